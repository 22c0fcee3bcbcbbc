"""From scores to numbers: accuracies, their intervals, and models compared on the same items.

Shares are percent, 0 to 100. Intervals are 95 %; they and the tests take items that share a picture, and an item and
its mirror, as dependent (`analysis.probe.report.intervals`). An item is right where its true sentences score above its
false ones; a tie is wrong. What was not scored is counted on every line and is no part of its shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from analysis.probe.config import SENTENCES
from analysis.probe.corpora.items import STATUSES, WHOLE, Answer, Item
from analysis.probe.report.intervals import Clustering, interval, sign
from analysis.statistics import holm
from train.results.scores import LEVEL

# What a batch of another size may change a score by, as a part of it: the rounding of sums, or of the score itself.
TOLERANCES = {"float32": 1e-5, "float64": 1e-10, "bf16": 2**-8, "float16": 2**-11}
POWER = 2.8  # standard errors between a level and what is told from it 4 times in 5, two-sided at 5 %
CROSSED = ("location", "size")  # labels whose combinations are told of
MOST_VALUES = 12  # of a label that is told of; words have more
GRADE, AXIS_GRADE = "grade", "axis and grade"


@dataclass(frozen=True)
class Line:
    """Numbers of some items. by, value: which, such as axis `predicate`, or `all items` (micro average).

    total = scored + missing + unreadable + failed. clusters: how many there are of scored items that depend on each
    other; where pictures and pairs cross, of whichever are fewer. largest: scored items of the largest. single:
    accuracy over items.
    pairs: complete ones; pair_accuracy: both right; same: the same sentence preferred for both pictures; decisive: both
    right, of pairs that are both right or both wrong (50 without grounding). detectable: how far a model must be from
    a level to be told from it 4 times in 5. published: single accuracy as the released code counts, by the first
    sentence of each and without tolerance. itm_…: every sentence alone, by the scorer's threshold, with the interval of
    their accuracy; f1 is None where nothing true is found. mixed: grades of negatives that this line puts together;
    numbers of such lines mean little.
    None where there is nothing to count.
    """

    by: str
    value: str
    total: int
    scored: int
    missing: int
    unreadable: int
    failed: int
    clusters: int
    single: float | None = None
    single_low: float | None = None
    single_high: float | None = None
    detectable: float | None = None
    ties: int = 0
    pairs: int = 0
    pair_accuracy: float | None = None
    pair_low: float | None = None
    pair_high: float | None = None
    same: float | None = None
    decisive: float | None = None
    published: float | None = None
    itm_accuracy: float | None = None
    itm_precision: float | None = None
    itm_recall: float | None = None
    itm_f1: float | None = None
    itm_low: float | None = None
    itm_high: float | None = None
    mixed: str = ""
    largest: int = 0

    @property
    def coverage(self) -> str:
        """Such as `total 40 = scored 30 + missing 10 + unreadable 0 + failed 0`."""
        parts = (f"{status} {getattr(self, status):,}" for status in STATUSES)
        return f"total {self.total:,} = {' + '.join(parts)}"


MICRO, MACRO = "all items (micro average)", "mean of axes (macro average)"


def margins(answer: Answer, sentences: str) -> tuple[float, float]:
    """What is compared of a scored item: a number for its true sentences, and one for its false ones."""
    positives, negatives = answer.positives, answer.negatives
    if sentences == "first":
        return positives[0], negatives[0]
    if sentences == "mean":
        return sum(positives) / len(positives), sum(negatives) / len(negatives)
    return (min(positives) if sentences == "all" else max(positives)), max(negatives)


@dataclass(frozen=True)
class Outcomes:
    """Items and answers as arrays, all (N,). right, tie: of scored items. units: the items by picture and by pair.

    partner: the place of an item's mirror, -1 where it has none. statuses: as `Answer.status`.
    """

    items: Sequence[Item]
    statuses: np.ndarray
    right: np.ndarray
    tie: np.ndarray
    published: np.ndarray
    units: Clustering
    partner: np.ndarray
    itm: np.ndarray | None  # (N, 4): sentences that are true and found, missed, false and taken, refused

    @property
    def scored(self) -> np.ndarray:
        return self.statuses == "scored"


def outcomes(
    items: Sequence[Item],
    answers: Sequence[Answer],
    sentences: str = "mean",
    tolerance: float = TOLERANCES["float32"],
    threshold: float | None = None,
) -> Outcomes:
    """Items as right, wrong or tied. tolerance: the largest part of the larger score (of 1 for smaller ones) by which
    two scores differ that are called equal. Raises `ValueError` where answers are not the items', in order."""
    if sentences not in SENTENCES:
        raise ValueError(f"sentences={sentences}: choose one of {', '.join(SENTENCES)}")
    if [item.id for item in items] != [answer.id for answer in answers]:
        raise ValueError("answers are of other items, or in another order")
    statuses = np.array([answer.status for answer in answers], object)
    known = np.flatnonzero(statuses == "scored")
    compared = np.zeros((2, len(items)))
    first = np.zeros((2, len(items)))
    for n in known.tolist():
        compared[:, n] = margins(answers[n], sentences)
        first[:, n] = answers[n].positives[0], answers[n].negatives[0]
    margin, largest = compared[0] - compared[1], np.maximum(1.0, np.abs(compared).max(axis=0))
    scored = statuses == "scored"
    tie = scored & (np.abs(margin) <= tolerance * largest)
    return Outcomes(
        items=items,
        statuses=statuses,
        right=scored & (margin > 0) & ~tie,
        tie=tie,
        published=scored & (first[0] > first[1]),
        units=clustering(items),
        partner=_partners(items),
        itm=None if threshold is None else itm_counts(answers, threshold),
    )


def itm_counts(answers: Sequence[Answer], threshold: float) -> np.ndarray:
    """(N, 4) of each answer its sentences: true ones above the threshold and not, false ones above it and not."""
    found = np.zeros((len(answers), 4), np.int64)
    for n, answer in enumerate(answers):
        true = sum(score > threshold for score in answer.positives)
        false = sum(score > threshold for score in answer.negatives)
        found[n] = true, len(answer.positives) - true, false, len(answer.negatives) - false
    return found


def clustering(items: Sequence[Item]) -> Clustering:
    """Items by picture (crops of one are of that one) and by pair. An item without a mirror is a pair of its own."""
    numbers: dict[tuple[str, str], int] = {}
    found = np.empty((len(items), 2), np.int64)
    for n, item in enumerate(items):
        picture, pair = ("picture", item.labels.get(WHOLE, item.image)), ("pair", item.pair)
        found[n, 0] = numbers.setdefault(picture, len(numbers))
        found[n, 1] = numbers.setdefault(pair if item.pair else ("item", str(n)), len(numbers))
    return Clustering(found)


def _partners(items: Sequence[Item]) -> np.ndarray:
    """(N,) the place of the other item of a pair; -1 where there is not exactly one."""
    found: dict[str, list[int]] = {}
    for n, item in enumerate(items):
        if item.pair:
            found.setdefault(item.pair, []).append(n)
    partner = np.full(len(items), -1)
    for places in found.values():
        if len(places) == 2:
            partner[places] = places[::-1]
    return partner


# Lines ---------------------------------------------------------------------------------------------------------------


def measure(
    items: Sequence[Item],
    answers: Sequence[Answer],
    *,
    sentences: str = "mean",
    tolerance: float = TOLERANCES["float32"],
    threshold: float | None = None,
    seed: int = 0,
) -> list[Line]:
    """All lines: of all items, the mean of axes, each axis, source, grade and label, and of what is crossed.

    Raises `ValueError` where answers are not the items'. An empty corpus gives one line, of 0 items.
    """
    found = outcomes(items, answers, sentences, tolerance, threshold)
    every = np.arange(len(items))
    lines = [_line("all", MICRO, found, every, seed)]
    axes = _groups(items, lambda item: item.axis)
    if len(axes) > 1:
        lines.append(_mean_of_axes(found, axes, seed))
    lines += [_line("axis", axis, found, places, seed) for axis, places in axes.items()]
    for by, of in _ways(items):
        groups = _groups(items, of)
        if by in (GRADE, AXIS_GRADE):  # from the easiest grade on, those of an axis together
            order = list(axes) if by == AXIS_GRADE else []
            groups = dict(sorted(groups.items(), key=lambda one: _place(items[one[1][0]], order)))
        lines += [_line(by, value, found, places, seed) for value, places in groups.items()]
    return lines


def _place(item: Item, axes: Sequence[str]) -> tuple[int, str]:
    """By its axis, if there are any, and its grade, as values are in order; both may have commas in their names."""
    return (axes.index(item.axis) if axes else 0), item.labels[GRADE]


def _ways(items: Sequence[Item]) -> list[tuple[str, Callable[[Item], str]]]:
    """By what else the items are told apart: source, grade and other labels, where these differ."""
    ways: list[tuple[str, Callable[[Item], str]]] = []
    if any(item.source for item in items) and len({(item.axis, item.source) for item in items}) > len(
        {item.axis for item in items}
    ):
        ways.append(("axis and source", lambda item: f"{item.axis}, {item.source}"))
    values: dict[str, set[str]] = {}
    for item in items:
        for name, value in item.labels.items():
            values.setdefault(name, set()).add(value)
    told = [name for name, found in values.items() if 2 <= len(found) <= MOST_VALUES and name != WHOLE]
    if GRADE in told:
        ways.append((AXIS_GRADE, lambda item: _joined(item.axis, item.labels.get(GRADE, ""))))
    ways += [(name, lambda item, name=name: item.labels.get(name, "")) for name in sorted(told)]  # type: ignore[misc]
    if all(name in told for name in CROSSED):
        ways.append((" x ".join(CROSSED), lambda item: _joined(*(item.labels.get(name, "") for name in CROSSED))))
    return ways


def _joined(*parts: str) -> str:
    return ", ".join(parts) if all(parts) else ""


def _groups(items: Sequence[Item], of: Callable[[Item], str]) -> dict[str, np.ndarray]:
    """The places of the items of each value, in the order in which values first occur; none of the empty value."""
    found: dict[str, list[int]] = {}
    for n, item in enumerate(items):
        if value := of(item):
            found.setdefault(value, []).append(n)
    return {value: np.array(places) for value, places in found.items()}


def _line(by: str, value: str, found: Outcomes, places: np.ndarray, seed: int) -> Line:
    scored = places[found.scored[places]]
    values: dict[str, Any] = {}
    if len(scored):
        values |= _share("single", found.right[scored], found.units.take(scored), seed)
        values["published"] = 100 * float(found.published[scored].mean())
    both = _pairs(found, scored)
    if len(both):
        values |= _pair_values(found, both, seed)
    if found.itm is not None and len(scored):
        right, item = _sentences(found.itm, scored)
        share = _share("itm", right, found.units.take(item), seed)
        values |= itm_shares(found.itm[scored].sum(axis=0))
        values |= {"itm_low": share["itm_low"], "itm_high": share["itm_high"]}
    return Line(by=by, value=value, **_counts(found, places), **values)


def _counts(found: Outcomes, places: np.ndarray) -> dict[str, Any]:
    """What is counted of items, whatever their scores' shares and means are."""
    statuses = found.statuses[places]
    scored = places[statuses == "scored"]
    grades = sorted({grade for n in places.tolist() if (grade := found.items[n].labels.get(GRADE, ""))})
    sizes = found.units.take(scored).sizes()
    return {
        "total": len(places),
        **{status: int((statuses == status).sum()) for status in STATUSES},
        "clusters": min(map(len, sizes)),
        "largest": max(int(counts.max(initial=0)) for counts in sizes),
        "ties": int(found.tie[scored].sum()),
        "pairs": len(_pairs(found, scored)),
        "mixed": " and ".join(grades) if len(grades) > 1 else "",
    }


def _pairs(found: Outcomes, scored: np.ndarray) -> np.ndarray:
    """(P, 2) the places of both items of each pair, where both are scored and both among these."""
    first = scored[found.partner[scored] > scored]
    second = found.partner[first]
    return np.stack([first, second], axis=1)[np.isin(second, scored)]


def _of_pairs(found: Outcomes, both: np.ndarray) -> Clustering:
    """Pairs by their two pictures. both: (P, 2) the places of their items."""
    return Clustering(found.units.clusters[both, 0], dyadic=True)


def _pair_values(found: Outcomes, both: np.ndarray, seed: int) -> dict[str, float | None]:
    right, tie = found.right[both], found.tie[both]
    all_right = right.all(axis=1)
    all_wrong = ~right.any(axis=1) & ~tie.any(axis=1)
    one_right = (right.sum(axis=1) == 1) & ~tie.any(axis=1)
    values = _share("pair", all_right, _of_pairs(found, both), seed)
    values["pair_accuracy"] = values.pop("pair")
    values["same"] = 100 * float(one_right.mean())
    sure = int(all_right.sum() + all_wrong.sum())
    values["decisive"] = 100 * float(all_right.sum()) / sure if sure else None
    return {name: value for name, value in values.items() if name != "detectable"}


def _share(name: str, right: np.ndarray, units: Clustering, seed: int) -> dict[str, float | None]:
    """How many are right, its interval, and what difference could be told."""

    def share(counts: np.ndarray) -> np.ndarray:
        return np.asarray(100 * counts[..., 1] / counts.sum(axis=-1))

    value = 100 * float(right.mean())
    found = interval(value, units, right.astype(np.int64), 2, share, seed)
    return {
        name: value,
        f"{name}_low": found.low,
        f"{name}_high": found.high,
        "detectable": POWER * found.error or None,
    }


def _sentences(itm: np.ndarray, scored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each sentence of scored items whether it is judged right, and the place of its item: both (S,)."""
    counts = itm[scored][:, [0, 3, 1, 2]]  # right, right, wrong, wrong
    right = np.repeat(np.tile([True, True, False, False], len(scored)), counts.ravel())
    return right, np.repeat(scored, counts.sum(axis=1))


def itm_shares(counts: np.ndarray) -> dict[str, float | None]:
    """Accuracy, precision, recall and F1, in percent, of `itm_counts` summed to (4,); None where nothing is counted."""
    found, missed, taken, refused = map(int, counts)

    def percent(part: int, whole: int) -> float | None:
        return 100 * part / whole if whole else None

    return {
        "itm_accuracy": percent(found + refused, found + missed + taken + refused),
        "itm_precision": percent(found, found + taken),
        "itm_recall": percent(found, found + missed),
        "itm_f1": percent(2 * found, 2 * found + missed + taken) if found else None,
    }


def _mean_of_axes(found: Outcomes, axes: dict[str, np.ndarray], seed: int) -> Line:
    """The unweighted mean of the axes that have scores; one interval of all, as axes may share pictures."""
    every = np.concatenate(list(axes.values()))
    code = np.zeros(len(found.items), np.int64)
    for n, places in enumerate(axes.values()):
        code[places] = 2 * n
    scored = np.sort(every[found.scored[every]])
    values: dict[str, Any] = {}
    if len(scored):
        values = _means("single", code[scored] + found.right[scored], len(axes), found.units.take(scored), seed)
    both = _pairs(found, scored)
    if len(both):
        codes = code[both[:, 0]] + found.right[both].all(axis=1)
        pair = _means("pair", codes, len(axes), _of_pairs(found, both), seed)
        values |= {"pair_accuracy": pair["pair"], "pair_low": pair["pair_low"], "pair_high": pair["pair_high"]}
    if found.itm is not None and len(scored):
        right, item = _sentences(found.itm, scored)
        itm = _means("itm", code[item] + right, len(axes), found.units.take(item), seed)
        values |= {"itm_accuracy": itm["itm"], "itm_low": itm["itm_low"], "itm_high": itm["itm_high"]}
    return Line(by="all", value=MACRO, **_counts(found, every), **values)


def _means(name: str, codes: np.ndarray, groups: int, units: Clustering, seed: int) -> dict[str, float | None]:
    """The mean over groups of their share of odd codes; a group with none is left out."""

    def mean(counts: np.ndarray) -> np.ndarray:
        cells = counts.reshape(*counts.shape[:-1], groups, 2)
        totals = cells.sum(axis=-1)
        shares = np.divide(cells[..., 1], totals, out=np.full(totals.shape, np.nan), where=totals > 0)
        return np.asarray(100 * np.nanmean(shares, axis=-1))

    value = float(mean(np.bincount(codes, minlength=2 * groups)))
    found = interval(value, units, codes, 2 * groups, mean, seed)
    return {name: value, f"{name}_low": found.low, f"{name}_high": found.high}


# Models compared -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """Two models on what both scored. of: `pairs` (both items right) where there are any, else `items`.

    difference: first minus second, percentage points, with its interval. first_only, second_only: clusters of which
    one model has more right than the other; where clusters overlap, pairs or items that one alone has right. p_value:
    two-sided McNemar test of these (`intervals.sign`); adjusted: by Holm, for all models compared here. differs:
    adjusted below 0.01 and the interval without 0.
    """

    first: str
    second: str
    of: str
    number: int
    first_accuracy: float
    second_accuracy: float
    difference: float
    difference_low: float
    difference_high: float
    first_only: int
    second_only: int
    p_value: float
    adjusted: float
    differs: bool


def compare(
    models: Mapping[str, Outcomes], seed: int = 0, couples: Iterable[tuple[str, str]] | None = None
) -> list[Compared]:
    """Models on the same items; names to outcomes, in the same order of items. couples: which two, None for each two.

    Raises `ValueError` where the items differ. Two models that scored nothing in common are left out.
    """
    ids = [[item.id for item in found.items] for found in models.values()]
    if any(other != ids[0] for other in ids[1:]):
        raise ValueError("models are compared on the same items, in the same order")
    asked = combinations(models, 2) if couples is None else couples
    found = [one for a, b in asked if (one := _two(a, models[a], b, models[b], seed))]
    adjusted = holm([one.p_value for one in found])
    return [
        replace(one, adjusted=p, differs=p < LEVEL and not one.difference_low <= 0 <= one.difference_high)
        for one, p in zip(found, adjusted, strict=True)
    ]


def _two(first: str, one: Outcomes, second: str, other: Outcomes, seed: int) -> Compared | None:
    scored = np.flatnonzero(one.scored & other.scored)
    if not len(scored):
        return None
    both = _pairs(one, scored)
    places = both if len(both) else scored[:, None]
    right = [found.right[places].all(axis=1) for found in (one, other)]
    units = _of_pairs(one, places) if len(both) else one.units.take(scored)
    lead = right[0].astype(int) - right[1].astype(int)

    def difference(counts: np.ndarray) -> np.ndarray:
        return np.asarray(100 * (counts[..., 2] - counts[..., 0]) / counts.sum(axis=-1))

    accuracies = [100 * float(found.mean()) for found in right]
    gap = accuracies[0] - accuracies[1]
    ends, ahead = interval(gap, units, lead + 1, 3, difference, seed, -100, 100), sign(units, lead)
    return Compared(
        first=first,
        second=second,
        of="pairs" if len(both) else "items",
        number=len(places),
        first_accuracy=accuracies[0],
        second_accuracy=accuracies[1],
        difference=gap,
        difference_low=ends.low,
        difference_high=ends.high,
        first_only=ahead.first,
        second_only=ahead.second,
        p_value=ahead.p_value,
        adjusted=ahead.p_value,
        differs=False,
    )


# Whether a corpus can be solved blindly ------------------------------------------------------------------------------

BLIND = 55.0  # percent
FLAG = f"a blind rule has more than {BLIND:.0f} % of the items right (lower end of its interval)"


def solved_blindly(rules: Mapping[str, Iterable[Line]]) -> list[str]:
    """In a line each, the axes (or the whole) that blind rules solve, with these rules, best first.

    rules: by name, of those that read the sentences alone.
    """
    found: dict[str, list[tuple[float, str]]] = {}
    for name, lines in rules.items():
        for line in lines:
            if line.by in ("all", "axis") and line.value != MACRO and (line.single_low or 0.0) > BLIND:
                assert line.single is not None
                found.setdefault(line.value, []).append((line.single, name))
    return [
        f"{value}: right by text alone: {', '.join(f'{name} {single:.1f} %' for single, name in sorted(said)[::-1])}"
        for value, said in found.items()
    ]
