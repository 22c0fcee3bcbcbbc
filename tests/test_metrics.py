"""Metrics: against scikit-learn, naive loops and brute force, published results, and what intervals promise."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped, unused-ignore]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import accuracy_score, cohen_kappa_score, f1_score

from travlr.metrics import (
    agreement,
    bias,
    binomial_p_value,
    both_ranked,
    calibrated_accuracy,
    compare,
    couples_in_order,
    couples_right,
    f1_by_answer,
    holm,
    macro_f1,
    mcnemar,
    measure,
    picture_clusters,
    predictions_of,
    proportion,
    proportions,
    ranked,
    reply_scores,
    score_couples,
)

STUDY = Path(__file__).parent / "data" / "predicate_noun_scores.csv.gz"


def guesses(answers: np.ndarray, accuracy: float, random: np.random.Generator) -> np.ndarray:
    """Predictions of so many right, by luck."""
    return np.where(random.random(len(answers)) < accuracy, answers, ~answers)


# Published results ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "items", "couples"), [("CLIP", 52.1, 20.3), ("LXMERT", 76.4, 56.8)])
def test_ranked_gives_the_numbers_of_the_published_files(model: str, items: float, couples: float) -> None:
    """The scores that the predicate-noun study published: 2,584 pictures with a true and a false sentence."""
    scores = pd.read_csv(STUDY)[[f"{model} true", f"{model} false"]].to_numpy()
    count = len(scores)
    names = np.repeat(np.arange(count).astype(str), 2)
    first, right = ranked(scores.ravel(), np.tile([True, False], count), names)
    assert first.tolist() == list(range(0, 2 * count, 2))
    _, both = both_ranked(right, (np.arange(count) // 2).astype(str))
    assert (round(100 * right.mean(), 1), round(100 * both.mean(), 1)) == (items, couples)


# Scores --------------------------------------------------------------------------------------------------------------

PAIRS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)


@given(PAIRS)
def test_measure_is_scikit_learns_of_bool(pairs: list[tuple[bool, bool]]) -> None:
    answers, predictions = (np.array(side) for side in zip(*pairs, strict=True))
    scores = measure(answers, predictions)
    labels = sorted(set(answers.tolist()))
    assert scores.accuracy == pytest.approx(100 * accuracy_score(answers, predictions))
    assert scores.macro_f1 == pytest.approx(
        100 * f1_score(answers, predictions, labels=labels, average="macro", zero_division=0)
    )
    for label, value in ((True, scores.f1_true), (False, scores.f1_false)):
        one = 100 * f1_score(answers, predictions, pos_label=label, zero_division=0) if label in labels else None
        assert value == (None if one is None else pytest.approx(one))
    assert scores.interval_low <= scores.macro_f1 <= scores.interval_high
    assert (scores.unparsed, scores.examples) == (0, len(pairs))


def test_macro_f1_is_scikit_learns_of_labels() -> None:
    random = np.random.default_rng(0)
    answers = random.choice(["A", "B", "C", "D"], 300)
    replies = np.where(random.random(300) < 0.5, answers, random.choice(["A", "B", "C", "E", "none"], 300))
    parsed = [None if reply == "none" else str(reply) for reply in replies]
    labels = ["A", "B", "C", "D"]
    expected = 100 * f1_score(answers, replies, labels=labels, average=None)
    assert f1_by_answer(answers, parsed) == pytest.approx(dict(zip(labels, expected, strict=True)))
    assert macro_f1(answers, parsed) == pytest.approx(np.mean(expected))
    scores = measure(answers.tolist(), parsed)
    assert scores.unparsed == pytest.approx(100 * np.mean(replies == "none"))
    assert scores.chance == pytest.approx(100 * max(np.mean(answers == label) for label in labels))
    assert (scores.f1_true, scores.f1_false) == (None, None)


def test_measure_refuses_nothing_and_unequal_numbers() -> None:
    for answers, predictions in (([], []), ([True], [True, False])):
        with pytest.raises(ValueError, match="at least 1"):
            measure(answers, predictions)


def test_predictions_of_refuses_logits_that_are_no_numbers() -> None:
    assert predictions_of([0.5, 0.0, -1.0, 1e-60]).tolist() == [True, False, False, False]
    with pytest.raises(ValueError, match="1 of 2 logits"):
        predictions_of([1.0, math.nan])


def test_bias_is_of_parsed_replies() -> None:
    excess, answer = bias(["true", "false", "true", "false"], ["true", "true", None, "true"])
    assert answer == "true" and excess == pytest.approx(200 / 3)
    assert bias(["a", "b"], ["b", "a"]) == (0, None)
    assert bias(["a"], [None]) == (0, None)


def test_calibrated_accuracy_undoes_a_preference() -> None:
    """True is 3 nats too likely everywhere, so that every plain answer is true."""
    answers = ["true", "false"] * 4
    log_probabilities = [{"true": 3.0 + (answer == "true"), "false": 0.5} for answer in answers]
    assert calibrated_accuracy(answers, log_probabilities) == 100
    assert calibrated_accuracy(answers, [*log_probabilities[:-1], {}]) == pytest.approx(87.5)
    assert calibrated_accuracy(answers, [{}] * 8) is None


# Couples and items ---------------------------------------------------------------------------------------------------


def test_couples_in_order_are_none_where_two_answers_agree() -> None:
    assert couples_in_order([True, False, False, True]).tolist() == ["0", "0", "1", "1"]
    assert set(couples_in_order([True, False, True, True])) == {""}
    assert set(couples_in_order([True, False, True])) == {""}


def test_couples_right_is_a_loop_over_couples() -> None:
    random = np.random.default_rng(0)
    names = np.array([*np.repeat([f"c{n}" for n in range(60)], 2), *(f"lone{n}" for n in range(5)), *[""] * 10])
    answers, right = np.arange(len(names)) % 2 == 0, random.random(len(names)) < 0.8
    order = random.permutation(len(names))
    names, answers, right = names[order], answers[order], right[order]
    expected = {}
    for name in dict.fromkeys(names.tolist()):
        rows = np.flatnonzero(names == name)
        if name and len(rows) > 1:
            expected[rows[0]] = right[rows].all()
    first, both = couples_right(answers, right, names)
    assert len(both) == 60 and dict(zip(first.tolist(), both.tolist(), strict=True)) == expected
    assert len(couples_right([True, False, True, True], [True] * 4, ["a", "a", "b", "b"])[1]) == 0  # one is no couple


SCORES = st.lists(
    st.tuples(st.sampled_from(["", "a", "b", "c"]), st.booleans(), st.integers(-3, 3)), min_size=1, max_size=30
)


@given(SCORES)
def test_ranked_is_a_loop_over_items(rows: list[tuple[str, bool, int]]) -> None:
    expected = {}
    for name in dict.fromkeys(item for item, _, _ in rows):
        true, false = ([s for item, t, s in rows if (item, t) == (name, truth)] for truth in (True, False))
        if name and true and false:
            place = next(n for n, row in enumerate(rows) if row[0] == name)
            expected[place] = sum(true) / len(true) > sum(false) / len(false) + 1e-9
    items, truth, scores = zip(*rows, strict=True)
    first, right = ranked(scores, truth, items)
    assert dict(zip(first.tolist(), right.tolist(), strict=True)) == expected


def test_ranked_takes_a_tie_as_wrong() -> None:
    truth, items = [True, False] * 2, ["a", "a", "b", "b"]
    assert ranked([20.0001, 20.0, 20.01, 20.0], truth, items)[1].tolist() == [False, True]
    assert ranked([1e-6, 0.0, 1e-4, 0.0], truth, items)[1].tolist() == [False, True]


def test_reply_scores_vote_where_there_is_no_score() -> None:
    scores = reply_scores([None, None, None, 0.25], ["true", "false", None, "false"])
    np.testing.assert_equal(scores, [1, -1, np.nan, 0.25])


def test_ranked_takes_an_item_without_all_answers_as_wrong() -> None:
    truth, items = [True, False] * 3, ["a", "a", "b", "b", "c", "c"]
    assert ranked([1, -1, 1, np.nan, np.nan, -1], truth, items)[1].tolist() == [True, False, False]


def test_both_ranked_needs_both_items() -> None:
    first, both = both_ranked([True, True, False, True, True], ["x", "x", "y", "y", ""])
    assert (first.tolist(), both.tolist()) == ([0, 2], [True, False])
    assert len(both_ranked([True], ["x"])[0]) == 0


def test_score_couples_equals_a_loop_over_pictures_and_sentences() -> None:
    """Scores (K, 2, 2) of two pictures with two sentences, some tied, in shuffled rows; one item has no couple."""
    random = np.random.default_rng(0)
    scores = random.integers(0, 4, (60, 2, 2)).astype(float)
    rows = [(s, p == t, f"{k}/{p}", f"t{t}", f"{k}") for (k, p, t), s in np.ndenumerate(scores)]
    rows += [(1.0, True, "alone", "t0", ""), (0.0, False, "alone", "t1", "")]
    random.shuffle(rows)
    values, answers, items, sentences, couples = zip(*rows, strict=True)
    first, text, image = score_couples(values, answers, items, sentences, couples)
    for place, own_text, own_image in zip(first, text, image, strict=True):
        (a, b), (c, d) = scores[int(couples[place])]  # pictures in rows, sentences in columns
        assert (own_text, own_image) == (a > b and d > c, a > c and d > b)
    assert len(first) == 60 and text.any() and image.any() and (text != image).any()


def test_picture_clusters_join_the_couples_of_a_picture() -> None:
    couples = ["1", "1", "2", "2", "3", "3", "", ""]
    pictures = ["a", "b", "b", "c", "d", "e", "f", "f"]
    assert picture_clusters(pictures, couples).tolist() == [0, 1, 1, 2, 3, 3, 4, 4]


# Intervals -----------------------------------------------------------------------------------------------------------


def test_proportions_are_wilsons_of_examples_that_are_alone() -> None:
    random = np.random.default_rng(0)
    hits, groups = random.random(500) < 0.7, random.integers(0, 3, 500)
    found = proportions(hits, groups, number=4)
    for group in range(3):
        part = hits[groups == group]
        low, high = stats.binomtest(int(part.sum()), len(part)).proportion_ci(method="wilson")
        assert (found.hits[group], found.examples[group]) == (part.sum(), len(part))
        assert found.percent[group] == pytest.approx(100 * part.mean())
        assert found.error[group] == pytest.approx(100 * stats.sem(part.astype(float)))
        assert [found.low[group], found.high[group]] == pytest.approx([100 * low, 100 * high], abs=0.05)
    assert found.examples[3] == 0 and np.isnan([found.percent[3], found.low[3]]).all()


def test_clustered_error_is_that_of_means_of_equal_clusters() -> None:
    random = np.random.default_rng(0)
    hits, clusters = random.random(300) < 0.6, np.repeat(np.arange(100), 3)
    hits[:150] = np.repeat(hits[:150:3], 3)
    expected = 100 * stats.sem(hits.reshape(100, 3).mean(axis=1))
    assert proportions(hits, None, clusters).error[0] == pytest.approx(expected)
    assert expected > proportions(hits).error[0]


def test_proportion_leaves_room_for_what_no_cluster_shows() -> None:
    clusters, unseen = np.repeat(np.arange(50), 2), 1 - 0.025 ** (1 / 50)
    assert proportion(np.ones(100), clusters) == pytest.approx((100, 100 - 100 * unseen, 100))
    assert proportion(np.zeros(100), clusters) == pytest.approx((0, 0, 100 * unseen))
    one_of_two = proportion(np.tile([True, False], 50), clusters)
    assert one_of_two == pytest.approx((50, 50 - 50 * unseen, 50 + 50 * unseen))
    assert proportion([True]) == pytest.approx((100, 2.5, 100))


def naive_macro_f1(answers: np.ndarray, given: np.ndarray) -> float:
    return 50 * sum(2 * np.sum(a & g) / (a.sum() + g.sum()) for a, g in ((answers, given), (~answers, ~given)))


def test_intervals_are_those_of_drawing_clusters_one_by_one() -> None:
    """Brute force: draw scenes with replacement, put their examples together, score them."""
    random = np.random.default_rng(9)
    scenes = np.repeat(np.arange(60), random.integers(1, 5, 60))
    answers = random.random(len(scenes)) < 0.5
    first = np.where(np.repeat(random.random(60) < 0.8, np.bincount(scenes)), answers, ~answers)
    second = guesses(answers, 0.7, random)
    members, draws = [np.flatnonzero(scenes == scene) for scene in range(60)], []
    for _ in range(1500):
        rows = np.concatenate([members[scene] for scene in random.integers(0, 60, 60)])
        one, two = (naive_macro_f1(answers[rows], given[rows]) for given in (first, second))
        draws.append((one, one - two, 100 * np.mean(first[rows] == answers[rows])))
    scores, difference = measure(answers, first, scenes), compare(first, second, answers, scenes)
    _, low, high = proportion(first == answers, scenes)
    intervals = [(scores.interval_low, scores.interval_high), (difference.low, difference.high), (low, high)]
    for ends, values in zip(intervals, np.array(draws).T, strict=True):
        assert ends == pytest.approx(tuple(np.percentile(values, [2.5, 97.5])), abs=1.7)


def test_faultless_predictions_have_an_interval() -> None:
    answers = np.tile([True, False], 50)
    scores = measure(answers, answers)
    assert (scores.macro_f1, scores.interval_high) == (100, 100)
    assert scores.interval_low == pytest.approx(100 * 0.025 ** (1 / 100))


# Tests ---------------------------------------------------------------------------------------------------------------


def test_binomial_p_value_is_the_sum_of_its_tail() -> None:
    tail = sum(math.comb(20, k) * 0.25**k * 0.75 ** (20 - k) for k in range(9, 21))
    assert binomial_p_value(9, 20, 25) == pytest.approx(tail)
    answers = np.tile([True, False], 50)
    assert measure(answers, answers).above_random and not measure(answers, ~answers).above_random
    constant = measure([True] * 80 + [False] * 20, [True] * 100)
    assert not constant.above_random and constant.chance == 80


def test_mcnemar_is_the_sum_of_both_tails() -> None:
    assert mcnemar(0, 3) == pytest.approx(2 / 8)
    assert mcnemar(7, 2) == pytest.approx(2 * sum(math.comb(9, k) for k in range(3)) / 2**9)
    assert mcnemar(0, 0) == 1


def test_holm_is_the_closed_test() -> None:
    """A p-value becomes the largest Bonferroni one of any group that it is in."""
    p_values = [0.01, 0.04, 0.03, 0.5]
    for place, adjusted in enumerate(holm(p_values)):
        groups = [g for size in range(1, 5) for g in combinations(range(4), size) if place in g]
        assert adjusted == pytest.approx(max(min(1, len(g) * min(p_values[i] for i in g)) for g in groups))
    assert holm([]) == []


# Two on the same examples --------------------------------------------------------------------------------------------


def test_compare_scores_are_scikit_learns() -> None:
    random = np.random.default_rng(0)
    answers = random.random(500) < 0.4
    first, second = guesses(answers, 0.8, random), guesses(answers, 0.7, random)
    found = compare(first, second, answers)
    expected = [100 * f1_score(answers, given, average="macro") for given in (first, second)]
    assert [found.first, found.second] == pytest.approx(expected)
    right = [given == answers for given in (first, second)]
    assert (found.first_only, found.second_only) == ((right[0] & ~right[1]).sum(), (right[1] & ~right[0]).sum())
    assert found.low < found.difference == found.first - found.second < found.high
    gap = compare(*right)
    assert [gap.first, gap.second] == pytest.approx([100 * side.mean() for side in right])
    assert (gap.first_only, gap.p_value) == (found.first_only, found.p_value)


def test_compare_counts_a_cluster_once_in_the_test() -> None:
    """Right on all of three scenes with ten examples each is three, not thirty."""
    scenes = np.repeat(np.arange(6), 10)
    first, second = np.ones(60, bool), scenes >= 3
    assert compare(first, second).p_value == pytest.approx(2 / 2**30)
    found = compare(first, second, clusters=scenes)
    assert (found.first_only, found.second_only) == (3, 0) and found.p_value == pytest.approx(0.25)


def test_compare_leaves_room_where_nothing_differs() -> None:
    answers = np.tile([True, False], 50)
    found = compare(~answers, ~answers, answers)
    assert (found.difference, found.p_value) == (0, 1)
    assert found.high == pytest.approx(100 * (1 - 0.025 ** (1 / 100))) == -found.low


def test_agreement_is_scikit_learns() -> None:
    random = np.random.default_rng(0)
    first, second = (random.choice(["a", "b", "c"], 400, p=p) for p in ([0.5, 0.3, 0.2], [0.2, 0.6, 0.2]))
    second[:200] = first[:200]
    found = agreement(first, second)
    assert found.percent == pytest.approx(100 * accuracy_score(first, second))
    assert found.kappa == pytest.approx(cohen_kappa_score(first, second))
    shuffled = [100 * np.mean(first == random.permutation(second)) for _ in range(500)]
    assert found.by_chance == pytest.approx(np.mean(shuffled), abs=0.5)
    assert math.isnan(agreement(np.ones(10), np.ones(10)).kappa)
