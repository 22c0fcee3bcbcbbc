"""Accuracies with confidence intervals, and comparisons of models on the same items.

Shares are percent, 0 to 100. Intervals are 95 %, over clusters of items that share a picture or a pair
(`analysis.probe.report.intervals`); a pair is in the cluster of its first item. An item is right where its true
sentences score above its false ones; a tie is wrong. Items that were not scored are counted in every row, but are not
part of its shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from analysis.probe.corpora.items import STATUSES, WHOLE, Answer, Item
from analysis.probe.report.intervals import interval, sign_test
from analysis.probe.report.outcomes import Outcomes, outcomes
from analysis.statistics import holm
from train.results.scores import LEVEL

POWER = 2.8  # standard errors of a difference that is detected with power 80 %, two-sided at 5 %
CROSSED_LABELS = ("location", "size")  # labels whose combinations are measured, too
MAX_LABEL_VALUES = 12  # of a label that is measured; words have more
GRADE, AXIS_GRADE = "grade", "axis and grade"


@dataclass(frozen=True)
class MetricRow:
    """The metrics of a group of items. by, value: the group, such as axis `predicate`, or `all items` (micro average).

    total = scored + missing + unreadable + failed. clusters: number of clusters of dependent scored items. largest:
    scored items of the largest cluster. single: accuracy over items.
    pairs: number of complete pairs; pair_accuracy: both items right; same: the same sentence preferred for both
    pictures; decisive: both right, among pairs with both right or both wrong (50 without grounding). detectable:
    smallest difference from a level that is detected with power 80 %. published: single accuracy as the released code
    computes it, from the first sentences and without tolerance. itm_…: classification of every sentence alone by the
    scorer's threshold, with the interval of the accuracy; f1 is None without true positives. mixed: the grades of
    negatives in the group, if there are several; their mean says little.
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
AVERAGED = (  # metrics of `MACRO`
    *("single", "single_low", "single_high", "pair_accuracy", "pair_low", "pair_high"),
    *("itm_accuracy", "itm_low", "itm_high"),
)


def measure(items: Sequence[Item], answers: Sequence[Answer], **options: Any) -> list[MetricRow]:
    """The rows of all items, the mean of axes, each axis, source, grade and label, and combinations of labels.

    options: as of `outcomes`. Raises `ValueError` as `outcomes`. An empty corpus gives one row, of 0 items.
    """
    results = outcomes(items, answers, **options)
    lines = [_line("all", MICRO, results, [np.arange(len(items))])]
    groupings = _groupings(items)
    if len(axes := list(groupings["axis"].values())) > 1:
        lines.append(_line("all", MACRO, results, axes))
    for by, groups in groupings.items():
        lines += [_line(by, value, results, [places]) for value, places in groups.items()]
    return lines


def _groupings(items: Sequence[Item]) -> dict[str, dict[str, np.ndarray]]:
    """Groupings by axis and, if these differ, by source, grade and other labels: the indices of the items of each
    value. Values are in order of occurrence; grades are sorted within each axis."""
    import pandas as pd  # takes long to import

    axis, source = (pd.Series([getattr(item, name) for item in items], dtype=object) for name in ("axis", "source"))
    names = sorted({name for item in items for name in item.labels} - {WHOLE})
    labels = {name: pd.Series([item.labels.get(name) or None for item in items], dtype=object) for name in names}
    labels = {name: values for name, values in labels.items() if 2 <= values.nunique() <= MAX_LABEL_VALUES}
    ways = {"axis": [axis]}
    if source.any() and len(set(zip(axis, source, strict=True))) > axis.nunique():
        ways["axis and source"] = [axis, source]
    if GRADE in labels:
        ways[AXIS_GRADE] = [axis.astype(pd.CategoricalDtype(axis.unique(), ordered=True)), labels[GRADE]]
    ways |= {name: [values] for name, values in labels.items()}
    if set(CROSSED_LABELS) <= set(labels):
        ways[" x ".join(CROSSED_LABELS)] = [labels[name] for name in CROSSED_LABELS]
    groupings = {}
    for by, columns in ways.items():
        groups = pd.Series(range(len(items))).groupby(columns, sort=by in (GRADE, AXIS_GRADE), observed=True)
        groupings[by] = {", ".join(value): places.to_numpy() for value, places in groups}
    return groupings


def _line(by: str, value: str, results: Outcomes, groups: Sequence[np.ndarray]) -> MetricRow:
    """The metrics of a group of items (their indices). Of several groups, the unweighted means over those with scores,
    with joint intervals, as groups may share pictures."""
    every, code = np.concatenate(groups), np.zeros(len(results.items), np.int64)
    for n, places in enumerate(groups):
        code[places] = 2 * n
    scored = np.sort(every[results.scored[every]])
    both, clusters = scored_pairs(results, scored), results.clusters
    values: dict[str, Any] = {}
    if len(scored):
        codes = code[scored] + results.right[scored]
        share, low, high, error = _mean_share(codes, len(groups), clusters[scored], results.seed)
        values |= {"single": share, "single_low": low, "single_high": high, "detectable": POWER * error or None}
        values["published"] = 100 * float(results.published[scored].mean())
    if len(both):
        codes = code[both[:, 0]] + results.right[both].all(axis=1)
        share, low, high, _ = _mean_share(codes, len(groups), clusters[both[:, 0]], results.seed)
        values |= {"pair_accuracy": share, "pair_low": low, "pair_high": high, **_pair_values(results, both)}
    if results.itm is not None and len(scored):
        right, item = _sentences(results.itm, scored)
        share, low, high, _ = _mean_share(code[item] + right, len(groups), clusters[item], results.seed)
        values |= itm_shares(results.itm[scored].sum(axis=0))
        values |= {"itm_accuracy": share, "itm_low": low, "itm_high": high}
    if len(groups) > 1:
        values = {name: one for name, one in values.items() if name in AVERAGED}
    return MetricRow(by=by, value=value, **_counts(results, every, clusters[scored], len(both)), **values)


def _counts(results: Outcomes, places: np.ndarray, clusters: np.ndarray, pairs: int) -> dict[str, Any]:
    """The counts of a row. clusters: of the scored items."""
    statuses = results.statuses[places]
    grades = sorted({grade for n in places.tolist() if (grade := results.items[n].labels.get(GRADE, ""))})
    sizes = np.unique(clusters, return_counts=True)[1]
    return {
        "total": len(places),
        **{status: int((statuses == status).sum()) for status in STATUSES},
        "clusters": len(sizes),
        "largest": int(sizes.max(initial=0)),
        "ties": int(results.tie[places].sum()),
        "pairs": pairs,
        "mixed": " and ".join(grades) if len(grades) > 1 else "",
    }


def scored_pairs(results: Outcomes, scored: np.ndarray) -> np.ndarray:
    """(P, 2) indices of both items of each pair within the scored items."""
    first = scored[results.partner[scored] > scored]
    second = results.partner[first]
    return np.stack([first, second], axis=1)[np.isin(second, scored)]


def _pair_values(results: Outcomes, both: np.ndarray) -> dict[str, float | None]:
    right, tie = results.right[both], results.tie[both]
    all_right = int(right.all(axis=1).sum())
    all_wrong = int((~right.any(axis=1) & ~tie.any(axis=1)).sum())
    one_right = (right.sum(axis=1) == 1) & ~tie.any(axis=1)
    sure = all_right + all_wrong
    return {"same": 100 * float(one_right.mean()), "decisive": 100 * float(all_right) / sure if sure else None}


def _mean_share(codes: np.ndarray, groups: int, clusters: np.ndarray, seed: int) -> tuple[float, float, float, float]:
    """The mean over groups of the share of odd codes, without empty groups, with its interval and standard error."""

    def mean(counts: np.ndarray) -> np.ndarray:
        cells = counts.reshape(*counts.shape[:-1], groups, 2)
        with np.errstate(invalid="ignore"):  # an empty group has no share
            return np.asarray(100 * np.nanmean(cells[..., 1] / cells.sum(axis=-1), axis=-1))

    value = float(mean(np.bincount(codes, minlength=2 * groups)))
    return value, *interval(value, clusters, codes, 2 * groups, mean, seed)


def _sentences(itm: np.ndarray, scored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each sentence of the scored items, whether it is classified correctly, and its item's index: both (S,)."""
    counts = itm[scored][:, [0, 3, 1, 2]]  # right, right, wrong, wrong
    right = np.repeat(np.tile([True, True, False, False], len(scored)), counts.ravel())
    return right, np.repeat(scored, counts.sum(axis=1))


def itm_shares(counts: np.ndarray) -> dict[str, float | None]:
    """Accuracy, precision, recall and F1, in percent, of `itm_counts` summed to (4,); None where undefined."""
    tp, fn, fp, tn = map(int, counts)

    def percent(part: int, whole: int) -> float | None:
        return 100 * part / whole if whole else None

    return {
        "itm_accuracy": percent(tp + tn, tp + fn + fp + tn),
        "itm_precision": percent(tp, tp + fp),
        "itm_recall": percent(tp, tp + fn),
        "itm_f1": percent(2 * tp, 2 * tp + fn + fp) if tp else None,
    }


# Whether a corpus can be solved blindly ------------------------------------------------------------------------------

BLIND_THRESHOLD = 55.0  # percent
FLAG = f"a blind rule has more than {BLIND_THRESHOLD:.0f} % of the items right (lower end of its interval)"


def solved_blindly(rules: Mapping[str, Iterable[MetricRow]]) -> list[str]:
    """A line for each axis (and for all items) that blind rules solve, with these rules, the best first.

    rules: the rows of each blind rule.
    """
    solvers: dict[str, list[tuple[float, str]]] = {}
    for name, rows in rules.items():
        for line in rows:
            if line.by in ("all", "axis") and line.value != MACRO and (line.single_low or 0.0) > BLIND_THRESHOLD:
                assert line.single is not None
                solvers.setdefault(line.value, []).append((line.single, name))
    lines = []
    for value, of_value in solvers.items():
        texts = [f"{name} {single:.1f} %" for single, name in sorted(of_value)[::-1]]
        lines.append(f"{value}: right by text alone: {', '.join(texts)}")
    return lines


# Models compared ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelComparison:
    """Two models on the items that both scored. of: `pairs` (both items right) if there are any, else `items`.

    difference: first minus second, percentage points, with its interval. first_only, second_only: clusters of which
    one model has more right than the other. p_value: two-sided McNemar test of these (`intervals.sign_test`); adjusted:
    by Holm, for all comparisons. differs: adjusted below 0.01 and the interval without 0.
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


def compare_models(
    models: Mapping[str, Outcomes], couples: Iterable[tuple[str, str]] | None = None
) -> list[ModelComparison]:
    """Compare models on the same items. models: outcomes by name. couples: names of first and second, None for all.

    Raises `ValueError` where the items of two differ. Two models without a common scored item are left out.
    """
    names = combinations(models, 2) if couples is None else couples
    comparisons = [pair for a, b in names if (pair := _compare_two(a, models[a], b, models[b]))]
    adjusted = holm([pair.p_value for pair in comparisons])
    return [
        replace(pair, adjusted=p, differs=p < LEVEL and not pair.difference_low <= 0 <= pair.difference_high)
        for pair, p in zip(comparisons, adjusted, strict=True)
    ]


def _compare_two(first: str, one: Outcomes, second: str, other: Outcomes) -> ModelComparison | None:
    if [item.id for item in one.items] != [item.id for item in other.items]:
        raise ValueError(f"{first} and {second}: need outcomes on the same items, in the same order")
    scored = np.flatnonzero(one.scored & other.scored)
    if not len(scored):
        return None
    both = scored_pairs(one, scored)
    places = both if len(both) else scored[:, None]
    right = [results.right[places].all(axis=1) for results in (one, other)]
    clusters = one.clusters[places[:, 0]]
    lead = right[0].astype(int) - right[1].astype(int)

    def difference(counts: np.ndarray) -> np.ndarray:
        return np.asarray(100 * (counts[..., 2] - counts[..., 0]) / counts.sum(axis=-1))

    first_accuracy, second_accuracy = (100 * float(hits.mean()) for hits in right)
    gap = first_accuracy - second_accuracy
    low, high, _ = interval(gap, clusters, lead + 1, 3, difference, one.seed, -100, 100)
    first_only, second_only, p_value = sign_test(clusters, lead)
    return ModelComparison(
        first, second, "pairs" if len(both) else "items", len(places), first_accuracy, second_accuracy,
        gap, low, high, first_only, second_only, p_value, adjusted=p_value, differs=False,
    )  # fmt: skip
