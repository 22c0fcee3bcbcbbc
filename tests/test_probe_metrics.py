"""Measures of probes: against slow ways of counting, scikit-learn, and simulation of what intervals promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score

from analysis.probe.corpora.items import Answer, Item
from analysis.probe.report.intervals import clusters_of
from analysis.probe.report.metrics import MACRO, MICRO, MetricRow, compare_models, measure, solved_blindly
from analysis.probe.report.outcomes import outcomes


def answers_of(items: list[Item], right: Iterable[Any]) -> list[Answer]:
    """Answers that are right, wrong, or tied (None)."""
    scores = {True: (1.0, 0.0), False: (0.0, 1.0), None: (0.5, 0.5)}
    pairs = [scores[None if one is None else bool(one)] for one in right]
    return [Answer(item.id, "scored", (a,), (b,)) for item, (a, b) in zip(items, pairs, strict=True)]


def items_of(pairs: int, axes: tuple[str, ...] = ("colour",), images: int | None = None, **labels: Any) -> list[Item]:
    """Partner pairs of items, axes in turn; each picture is used once, or `images` of them again and again."""
    found = []
    for n in range(pairs):
        for side in (0, 1):
            true, false = (f"{n} is red", f"{n} is blue")[:: 1 - 2 * side]
            image = f"{(2 * n + side) % images if images else 2 * n + side}.png"
            axis = axes[n % len(axes)]
            found.append(Item(f"{n}-{side}", image, (true,), (false,), axis, "made", str(n), labels))
    return found


def line(lines: list[MetricRow], value: str, by: str = "") -> MetricRow:
    return next(one for one in lines if one.value == value and by in ("", one.by))


# Against counting one by one -----------------------------------------------------------------------------------------

OUTCOMES = st.sampled_from([True, False, None, "missing", "unreadable", "failed"])


@settings(max_examples=60)
@given(st.lists(st.tuples(OUTCOMES, OUTCOMES), max_size=14))
def test_lines_are_those_of_counting_one_by_one(pairs_in: list[tuple[Any, Any]]) -> None:
    items = items_of(len(pairs_in), ("a", "b"))
    flat = [one for pair in pairs_in for one in pair]
    answers = answers_of(items, [one if not isinstance(one, str) else None for one in flat])
    answers = [
        Answer(answer.id, one, why="so") if isinstance(one, str) else answer
        for answer, one in zip(answers, flat, strict=True)
    ]
    lines = measure(items, answers)
    assert [one.value for one in lines[:2]] == ([MICRO, MACRO] if len(pairs_in) > 1 else [MICRO, *"a"[: len(pairs_in)]])
    for value, part in ((MICRO, slice(None)), ("a", slice(0, None, 2)), ("b", slice(1, None, 2))):
        pairs = pairs_in[part]
        if not pairs and value != MICRO:
            continue
        found = line(lines, value)
        flat = [one for pair in pairs for one in pair]
        scored = [one for one in flat if not isinstance(one, str)]
        counts = Counter(one for one in flat if isinstance(one, str))
        told = (found.total, found.scored, found.missing, found.unreadable, found.failed)
        assert told == (len(flat), len(scored), counts["missing"], counts["unreadable"], counts["failed"])
        assert found.total == found.scored + found.missing + found.unreadable + found.failed
        assert found.ties == scored.count(None)
        assert found.single == (pytest.approx(100 * scored.count(True) / len(scored)) if scored else None)
        assert found.published == found.single
        both = [pair for pair in pairs if not any(isinstance(one, str) for one in pair)]
        assert found.pairs == len(both)
        if both:
            right = both.count((True, True))
            assert found.pair_accuracy == pytest.approx(100 * right / len(both))
            same = both.count((True, False)) + both.count((False, True))
            assert found.same == pytest.approx(100 * same / len(both))
            sure = right + both.count((False, False))
            assert found.decisive == (pytest.approx(100 * right / sure) if sure else None)
            assert found.pair_low is not None and found.pair_high is not None and found.pair_accuracy is not None
            assert found.pair_low <= found.pair_accuracy <= found.pair_high


def test_micro_and_macro_averages_are_what_they_are_named() -> None:
    items = items_of(8, ("a",)) + [replace(i, id=f"b{i.id}", axis="b", image=f"b{i.image}", pair=f"b{i.pair}")
                                   for i in items_of(2)]  # fmt: skip
    lines = measure(items, answers_of(items, [True] * 16 + [False] * 4))
    assert line(lines, MICRO).single == pytest.approx(80)
    assert line(lines, MACRO).single == pytest.approx(50)
    assert line(lines, MACRO).pair_accuracy == pytest.approx(50)
    assert (line(lines, "a").single, line(lines, "b").single) == (100, 0)
    assert line(lines, MACRO).total == line(lines, MICRO).total == 20


def test_sources_grades_labels_and_crossings_have_lines_and_mixed_grades_say_so() -> None:
    items = [
        replace(item, source="xy"[n // 2 % 2], labels={
            "grade": ("N2", "N1")[n // 2 % 2], "location": ("mid", "margin")[n // 4 % 2], "size": "sl"[n // 8 % 2],
            "word": str(n), "constant": "c",
        })
        for n, item in enumerate(items_of(16))
    ]  # fmt: skip
    lines = measure(items, answers_of(items, [n // 2 % 2 for n in range(32)]))
    assert [one.by for one in lines if one.by != "location x size"] == [
        "all", "axis", *["axis and source"] * 2, *["axis and grade"] * 2, *["grade"] * 2, *["location"] * 2,
        *["size"] * 2,
    ]  # fmt: skip
    assert [one.value for one in lines if one.by == "grade"] == ["N1", "N2"]
    assert (line(lines, "colour, x").single, line(lines, "colour, y").single) == (0, 100)
    assert (line(lines, "colour, N2").single, line(lines, "colour, N1").single) == (0, 100)
    assert line(lines, "mid, s").single == 50
    assert {one.value for one in lines if one.mixed} == {MICRO, "colour", "mid", "margin", "s", "l", "mid, s", "mid, l",
                                                         "margin, s", "margin, l"}  # fmt: skip
    assert {one.mixed for one in lines} == {"", "N1 and N2"}


# Rules ---------------------------------------------------------------------------------------------------------------

SEVERAL = {
    "first": (3.0, 4.0), "mean": (4.0, 3.0), "all": (2.0, 4.0), "best": (7.0, 4.0)
}  # fmt: skip


@pytest.mark.parametrize("sentences", SEVERAL)
def test_several_sentences_are_compared_by_the_rule(sentences: str) -> None:
    item = Item("1", "1.png", ("a", "b", "c"), ("d", "e"), "x")
    answer = Answer("1", "scored", (3.0, 7.0, 2.0), (4.0, 2.0))
    true, false = SEVERAL[sentences]
    assert measure([item], [answer], sentences=sentences)[0].single == 100 * (true > false)
    tied = replace(answer, positives=tuple(score - true + false for score in answer.positives))
    assert measure([item], [tied], sentences=sentences)[0].ties == 1
    assert measure([item], [answer], sentences=sentences)[0].published == 0


def test_ties_are_wrong_within_the_tolerance_and_published_rules_have_none() -> None:
    items = items_of(2)
    answers = [Answer(item.id, "scored", (p,), (n,)) for item, p, n in zip(
        items, (20.0001, 1e-7, 20.01, 0.0), (20.0, 0.0, 20.0, 0.0), strict=True)]  # fmt: skip
    found = measure(items, answers)[0]
    assert (found.ties, found.single, found.published) == (3, 25, 75)
    assert measure(items, answers, tolerance=0)[0].single == 75


def test_answers_of_other_items_are_refused() -> None:
    items = items_of(2)
    with pytest.raises(ValueError, match=r"^answers: "):
        measure(items, answers_of(items, [True] * 4)[::-1])


@given(st.lists(st.tuples(*[st.floats(-2, 2)] * 4), min_size=1, max_size=20))
def test_matching_is_scikit_learns(scores: list[tuple[float, ...]]) -> None:
    items = [Item(str(n), f"{n}.png", ("a", "b"), ("c", "d"), "x") for n in range(len(scores))]
    answers = [Answer(str(n), "scored", one[:2], one[2:]) for n, one in enumerate(scores)]
    found = measure(items, answers, threshold=0.5)[0]
    truth = [True, True, False, False] * len(scores)
    predictions = [score > 0.5 for one in scores for score in one]
    assert found.itm_accuracy == pytest.approx(100 * accuracy_score(truth, predictions))
    assert found.itm_recall == pytest.approx(100 * recall_score(truth, predictions))
    assert (found.itm_precision or 0) == pytest.approx(100 * precision_score(truth, predictions, zero_division=0))
    assert (found.itm_f1 or 0) == pytest.approx(100 * f1_score(truth, predictions, zero_division=0))
    assert measure(items, answers)[0].itm_accuracy is None


# Clusters and intervals ----------------------------------------------------------------------------------------------


def sizes(items: list[Item]) -> list[int]:
    return np.unique(clusters_of(items), return_counts=True)[1].tolist()


def test_clusters_are_pairs_or_pictures_of_several_pairs() -> None:
    assert sizes(items_of(3)) == [2, 2, 2]
    assert sizes(items_of(6, images=3)) == [4, 4, 4]
    assert sizes([replace(item, pair="") for item in items_of(3, images=2)]) == [3, 3]
    cut = [Item(str(n), f"{n}.png", ("a",), ("b",), "x", labels={"whole": f"{n // 2}.png"}) for n in range(6)]
    assert sizes(cut) == [2, 2, 2]


def test_intervals_of_a_noisy_oracle_cover_the_truth() -> None:
    """p = 0.7 for each item: 95 % intervals hold 70 % of items and 49 % of pairs in 92 to 98 % of 200 runs."""
    items = items_of(150, ("a", "b", "c"))
    held = np.zeros(3)
    for seed in range(200):
        right = np.random.default_rng(seed).random(len(items)) < 0.7
        lines = measure(items, answers_of(items, right), seed=seed)
        micro, macro = line(lines, MICRO), line(lines, MACRO)
        ends = [
            (micro.single_low, micro.single_high),
            (micro.pair_low, micro.pair_high),
            (macro.single_low, macro.single_high),
        ]
        for n, ((low, high), truth) in enumerate(zip(ends, (70, 49, 70), strict=True)):
            assert low is not None and high is not None
            held[n] += low <= truth <= high
    assert ((held / 200 >= 0.92) & (held / 200 <= 0.98)).all(), held


def test_intervals_cover_where_items_share_pictures() -> None:
    """Ten items of a picture are all right or all wrong: taken as alone they would be far too sure."""
    items = [Item(str(n), f"{n // 10}.png", ("a",), ("b",), "x") for n in range(600)]
    held = narrow = 0
    for seed in range(100):
        right = np.repeat(np.random.default_rng(seed).random(60) < 0.7, 10)
        found = measure(items, answers_of(items, right))[0]
        assert found.single_low is not None and found.single_high is not None and found.clusters == 60
        held += found.single_low <= 70 <= found.single_high
        narrow += found.single_high - found.single_low < 15
    assert held >= 90 and not narrow


def test_faultless_and_empty_handed_models_have_intervals_too() -> None:
    items = items_of(50)
    best = measure(items, answers_of(items, [True] * 100))[0]
    assert (best.single, best.single_high, best.pair_accuracy) == (100, 100, 100)
    assert best.single_low == best.pair_low == pytest.approx(100 * 0.025 ** (1 / 50))
    none = measure(items, answers_of(items, [None] * 100))[0]
    assert (none.single, none.single_low, none.ties, none.decisive) == (0, 0, 100, None)
    assert none.single_high == pytest.approx(100 - 100 * 0.025 ** (1 / 50))


def test_clusters_that_are_all_alike_are_no_certainty() -> None:
    """One right of each pair, in few pairs: resamples are all 50 %, and yet a pair may well be unlike these."""
    items = items_of(12)
    found = measure(items, answers_of(items, [n % 2 == 0 for n in range(24)]))[0]
    unlike = 1 - 0.025 ** (1 / 12)
    assert (found.single, found.pair_accuracy) == (50, 0)
    assert [found.single_low, found.single_high] == pytest.approx([50 - 50 * unlike, 50 + 50 * unlike])
    assert [found.pair_low, found.pair_high] == pytest.approx([0, 100 * unlike])
    (alone,) = {(one.single_low, one.single_high) for one in measure(items[:2], answers_of(items[:2], [True, False]))}
    assert list(alone) == pytest.approx([1.25, 98.75])
    both = {"a": outcomes(items, answers_of(items, [True] * 24)), "b": outcomes(items, answers_of(items, [False] * 24))}
    (one,) = compare_models(both)
    assert (one.difference, one.difference_high) == (100, 100)
    assert one.difference_low == pytest.approx(100 - 200 * unlike)


# Models compared -----------------------------------------------------------------------------------------------------


def test_equal_models_do_not_differ_and_holm_counts_the_comparisons() -> None:
    items = [replace(item, pair="") for item in items_of(40)]
    right = np.arange(80) % 3 > 0
    models = {
        "a": outcomes(items, answers_of(items, right)),
        "b": outcomes(items, answers_of(items, right)),
        "c": outcomes(items, answers_of(items, ~right)),
    }
    found = {(one.first, one.second): one for one in compare_models(models)}
    same, other = found["a", "b"], found["a", "c"]
    assert (same.of, same.p_value, same.difference, same.differs) == ("items", 1, 0, False)
    assert same.difference_low < 0 < same.difference_high
    assert other.adjusted == pytest.approx(3 * other.p_value)
    (alone,) = compare_models(models, couples=[("a", "c")])
    assert (alone.p_value, alone.adjusted) == (other.p_value, other.p_value)


def test_models_are_compared_on_what_both_scored() -> None:
    items = [replace(item, pair="") for item in items_of(4)]
    whole = answers_of(items, [True] * 8)
    part = [replace(a, status="failed", positives=(), negatives=()) if n < 3 else a for n, a in enumerate(whole)]
    assert compare_models({"a": outcomes(items, whole), "b": outcomes(items, part)})[0].number == 5
    nothing = [replace(a, status="failed", positives=(), negatives=()) for a in whole]
    assert compare_models({"a": outcomes(items, whole), "b": outcomes(items, nothing)}) == []
    with pytest.raises(ValueError, match="same items"):
        compare_models({"a": outcomes(items, whole), "b": outcomes(items[:-1], whole[:-1])})


def test_the_test_keeps_its_level() -> None:
    """Of two models that are right as often, at most a few in a hundred are called different at 5 %."""
    items = items_of(100)
    random, called = np.random.default_rng(1), 0
    for _ in range(200):
        one, other = (outcomes(items, answers_of(items, random.random(200) < 0.7)) for _ in range(2))
        called += compare_models({"a": one, "b": other})[0].p_value < 0.05
    assert called <= 16


def test_corpora_that_a_blind_rule_solves_are_flagged() -> None:
    items = items_of(100, ("a", "b"))
    fair = [n % 2 == 0 for n in range(200)]
    solved = [item.axis == "a" or n % 2 == 0 for n, item in enumerate(items)]
    rules = {"shorter": measure(items, answers_of(items, solved)), "hash": measure(items, answers_of(items, fair))}
    assert [flag.partition(":")[0] for flag in solved_blindly(rules)] == [MICRO, "a"]
    assert all("shorter" in flag and "hash" not in flag for flag in solved_blindly(rules))
    assert solved_blindly({"hash": rules["hash"]}) == []
