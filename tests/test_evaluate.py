"""Scores against scikit-learn and SciPy, intervals by simulation, baselines against dictionaries."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest  # type: ignore[import-untyped, unused-ignore]
from sklearn.metrics import accuracy_score, f1_score  # type: ignore[import-untyped, unused-ignore]

from train.results.baselines import QueryTexts, text_baselines
from train.results.scores import binomial_p_value, by_group, couple_scores, score_predictions
from travlr import Cardinality, Comparison, Generator, Quantifiers, Spatiality
from travlr.config import Config

RELEASED = Cardinality(preset="released")


@given(st.lists(st.tuples(st.booleans(), st.floats(-9, 9, width=32)), min_size=1, max_size=60))
@settings(max_examples=50)
def test_scores_equal_those_of_scikit_learn(examples: list[tuple[bool, float]]) -> None:
    answers, logits = np.array([a for a, _ in examples]), np.array([x for _, x in examples])
    guess = [x > 0 for x in logits]
    found = score_predictions(answers, logits)
    each = f1_score(answers, guess, average=None, labels=[True, False], zero_division=0)
    macro = f1_score(answers, guess, average="macro", labels=[True, False], zero_division=0)
    assert found.examples == len(examples)
    assert [found.f1_true, found.f1_false] == pytest.approx([100 * f for f in each])
    assert found.macro_f1 == pytest.approx(100 * macro)
    assert found.accuracy == pytest.approx(100 * accuracy_score(answers, guess))
    assert found.interval_low <= found.interval_high


@given(st.integers(1, 3000), st.data())
@settings(max_examples=25)  # sums of thousands of whole numbers of hundreds of digits
def test_p_value_is_that_of_the_exact_binomial_test(examples: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, examples))
    ways = sum(math.comb(examples, k) for k in range(right, examples + 1))  # whole numbers: SciPy's tail becomes 0
    exact = float(Fraction(ways, 2**examples))
    assert binomial_p_value(right, examples) == pytest.approx(exact, rel=1e-7, abs=1e-200)


@pytest.mark.parametrize("examples", [10, 1_000, 10_000, 20_000])
def test_above_random_begins_where_the_exact_test_passes_one_percent(examples: int) -> None:
    answers = np.arange(examples) % 2 == 0
    first = next(
        k for k in range(examples // 2, examples + 1) if binomtest(k, examples, alternative="greater").pvalue < 0.01
    )
    for right in (first - 1, first):
        logits = np.where(answers, 1.0, -1.0) * np.where(np.arange(examples) < right, 1, -1)
        assert score_predictions(answers, logits).above_random == (right == first)


def test_faultless_answers_of_one_class_have_an_interval_up_to_their_score() -> None:
    found = score_predictions(np.zeros(6, bool), -np.ones(6))
    assert (found.macro_f1, found.interval_high) == (50, 50) and found.interval_low == pytest.approx(
        50 * 0.025 ** (1 / 6)
    )


def test_a_class_that_is_never_predicted_has_f1_0() -> None:
    found = score_predictions(np.array([True, False] * 500), np.ones(1000))
    assert (found.f1_false, found.accuracy, found.above_random) == (0, 50, False)
    assert found.macro_f1 == pytest.approx(100 / 3)
    assert found.p_value == pytest.approx(0.5, abs=0.02)


def test_a_logit_of_0_means_false_and_one_that_is_not_a_number_is_refused() -> None:
    assert score_predictions(np.array([False, True]), np.array([0.0, 1e-60])).accuracy == 50  # 1e-60 is 0 in float32
    with pytest.raises(ValueError, match="1 of 2 logits are not numbers"):
        score_predictions(np.array([False, True]), np.array([np.nan, 1.0]))


# Intervals -----------------------------------------------------------------------------------------------------------


def true_macro(true_true: float, true_false: float, false_true: float, false_false: float) -> float:
    """Macro-F1 of a population, from precision and recall."""
    f1 = []
    for right, missed, wrong in ((true_true, true_false, false_true), (false_false, false_true, true_false)):
        precision, recall = right / (right + wrong), right / (right + missed)
        f1.append(2 * precision * recall / (precision + recall))
    return 50 * sum(f1)


def test_intervals_cover_the_true_score_about_as_often_as_they_say() -> None:
    random = np.random.default_rng(7)
    shares = (0.35, 0.15, 0.05, 0.45)
    truth, covered, runs = true_macro(*shares), 0, 600
    for _ in range(runs):
        cells = random.choice(4, size=300, p=shares)
        found = score_predictions(cells < 2, np.where(cells % 2 == 0, 1.0, -1.0))
        covered += found.interval_low <= truth <= found.interval_high
    assert 0.92 <= covered / runs <= 0.975, covered / runs  # standard error 0.009


@pytest.mark.parametrize("clustered", [False, True])
def test_intervals_equal_those_of_resampling_one_by_one(clustered: bool) -> None:
    random = np.random.default_rng(9)
    answers = random.random(400) < 0.4
    clusters = random.integers(0, 80, 400)  # of unequal size
    ease = random.random(80)[clusters]
    logits = np.where((random.random(400) < ease) == answers, 1.0, -1.0)
    members = (
        [np.nonzero(clusters == c)[0] for c in np.unique(clusters)]
        if clustered
        else [np.array([i]) for i in range(400)]
    )
    drawn = []
    for _ in range(3000):
        chosen = np.concatenate([members[i] for i in random.integers(0, len(members), len(members))])
        right, guess = answers[chosen], logits[chosen] > 0
        f1 = [
            2 * (right & guess).sum() / (right.sum() + guess.sum()),
            2 * (~right & ~guess).sum() / ((~right).sum() + (~guess).sum()),
        ]
        drawn.append(50 * sum(f1))
    found = score_predictions(answers, logits, clusters if clustered else None)
    assert [found.interval_low, found.interval_high] == pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=0.7)
    plain = score_predictions(answers, logits)
    assert found.macro_f1 == plain.macro_f1
    if clustered:
        assert found.interval_high - found.interval_low > 1.3 * (plain.interval_high - plain.interval_low)


def test_faultless_predictions_are_not_called_certain() -> None:
    answers = np.array([True, False] * 5000)
    found = score_predictions(answers, np.where(answers, 3.0, -3.0))
    assert (found.macro_f1, found.interval_high) == (100, 100)
    assert (found.interval_low / 100) ** 10_000 == pytest.approx(0.025)
    clustered = score_predictions(answers, np.where(answers, 3.0, -3.0), np.arange(10_000) // 100)
    assert (clustered.interval_low / 100) ** 100 == pytest.approx(0.025)


# Groups and couples --------------------------------------------------------------------------------------------------


def test_groups_show_that_one_axis_was_learned_and_the_other_was_not() -> None:
    answers = np.array([True, False] * 200)
    groups = ["horizontal"] * 200 + ["vertical"] * 200
    logits = np.concatenate([np.where(answers[:200], 1.0, -1.0), np.ones(200)])
    found = by_group(answers, logits, groups)
    assert list(found) == ["horizontal", "vertical"]
    assert [found[name].macro_f1 for name in found] == pytest.approx([100, 100 / 3])
    assert [found[name].above_random for name in found] == [True, False]
    assert found["vertical"] == score_predictions(answers[200:], logits[200:])


def couples_right(answers: np.ndarray, logits: np.ndarray) -> float | None:
    return couple_scores(answers, logits).get("couples_right")


def test_couples_count_only_where_both_are_right() -> None:
    answers = np.array([True, False, False, True, True, False, False, True])
    assert couples_right(answers, np.where(answers, 1.0, -1.0)) == 100
    assert couples_right(answers, np.ones(8)) == 0
    assert couples_right(answers, np.array([1.0, -1, -1, 1, 1, 1, 1, -1])) == 50
    assert couples_right(answers[:7], np.ones(7)) is None
    assert couples_right(np.array([True, True, False, False]), np.ones(4)) is None


@pytest.mark.parametrize("config", [Spatiality(), Cardinality(), Quantifiers(), Comparison()], ids=lambda c: c.task)
def test_test_splits_are_made_of_couples(config: Config) -> None:
    batch = Generator(config).batch("test_ood", 0, 400)
    assert couples_right(batch.answer, np.where(batch.answer, 1.0, -1.0)) == 100
    assert (batch.query[0::2] == batch.query[1::2]).all()


# Baselines -----------------------------------------------------------------------------------------------------------


def texts(config: Config, split: str, count: int) -> QueryTexts:
    maker = Generator(config)
    batch = maker.batch(split, 0, count)
    return QueryTexts(maker.query_texts(batch), batch.answer, (batch.grid > 0).sum(axis=1))


def without(text: str, attributes: bool, numbers: bool) -> str:
    """A query text with the words for objects, or the numbers, left out."""
    words = text.split()
    if attributes:
        words = [w for w in words if not re.match("circle|square|star|triangle|hexagon|octagon|pentagon", w)]
    return " ".join(w for w in words if not (numbers and w.isdigit()))


def keys_of(query: str, objects: int, with_objects: bool) -> list[tuple[Any, ...]]:
    """What a rule may go by, finest first."""
    masked = [without(query, a, n) for a, n in ((False, False), (True, False), (False, True), (True, True))]
    alone = [*enumerate(masked), ("all",)]
    return [(*key, objects) for key in alone] + alone if with_objects else alone


def naive_baseline(train: QueryTexts, test: QueryTexts, with_objects: bool) -> list[float]:
    """The same rule, one example at a time. Gives macro-F1 and accuracy."""
    seen: dict[Any, Counter[bool]] = defaultdict(Counter)
    for query, answer, objects in zip(train.queries, train.answers, train.objects, strict=True):
        for key in keys_of(query, objects, with_objects):
            seen[key][bool(answer)] += 1
    table: dict[tuple[bool, bool], float] = defaultdict(float)
    for query, answer, objects in zip(test.queries, test.answers, test.objects, strict=True):
        share = 0.5
        for key in keys_of(query, objects, with_objects):
            if abs(seen[key][True] - seen[key][False]) > seen[key].total() ** 0.5:
                share = float(seen[key][True] > seen[key][False])
                break
        table[bool(answer), True] += share
        table[bool(answer), False] += 1 - share
    f1 = []
    for side in (True, False):
        right, wrong = table[side, side], table[side, not side] + table[not side, side]
        f1.append(2 * right / (2 * right + wrong) if right + wrong else 0.0)
    return [50 * sum(f1), 100 * (table[True, True] + table[False, False]) / len(test.answers)]


QUERIES = [
    "There are 3 circle objects.",
    "There are 2 circle objects.",
    "There are 3 star objects.",
    "There is 1 star object.",
    "There are more circles than squares.",
]
EXAMPLES = st.lists(st.tuples(st.sampled_from(QUERIES), st.booleans(), st.integers(1, 3)), min_size=1, max_size=60)


def as_texts(examples: list[tuple[str, bool, int]]) -> QueryTexts:
    queries, answers, objects = zip(*examples, strict=True)
    return QueryTexts(queries, np.array(answers), np.array(objects))


@given(EXAMPLES, EXAMPLES)
def test_baselines_equal_a_rule_applied_one_by_one(train: list[Any], test: list[Any]) -> None:
    found = text_baselines(as_texts(train), as_texts(test))
    for name, with_objects in (("query", False), ("query_objects", True)):
        expected = naive_baseline(as_texts(train), as_texts(test), with_objects)
        assert [found[name].macro_f1, found[name].accuracy] == pytest.approx(expected)


@pytest.mark.parametrize("split", ["test_ind", "test_ood"])
def test_numbers_of_objects_give_released_cardinality_away_and_not_ours(split: str) -> None:
    train, test = texts(RELEASED, "train", 8000), texts(RELEASED, split, 4000)
    found = text_baselines(train, test)
    for name, with_objects in (("query", False), ("query_objects", True)):
        expected = naive_baseline(train, test, with_objects)
        assert [found[name].macro_f1, found[name].accuracy] == pytest.approx(expected)
    ours = text_baselines(texts(Cardinality(), "train", 8000), texts(Cardinality(), split, 4000))
    assert 59 < found["query_objects"].macro_f1 < 66  # the design's 62 %
    assert found["query"].macro_f1 == pytest.approx(50, abs=1)
    assert ours["query"].macro_f1 == pytest.approx(50, abs=1)
    assert ours["query_objects"].macro_f1 == pytest.approx(50, abs=1)


@pytest.mark.parametrize("config", [Spatiality(), Quantifiers(), Comparison()], ids=lambda c: c.task)
def test_texts_give_nothing_away_in_the_default_tasks(config: Config) -> None:
    found = text_baselines(texts(config, "train", 4000), texts(config, "test_ood", 4000))
    for baseline in found.values():
        assert (baseline.macro_f1, baseline.accuracy) == pytest.approx((50, 50), abs=1.5)
