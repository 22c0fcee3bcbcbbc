"""Models compared on the same items, with McNemar's test and an interval of the difference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from analysis.probe.report.intervals import interval, sign_test
from analysis.probe.report.metrics import pair_clusters, scored_pairs
from analysis.probe.report.outcomes import Outcomes
from analysis.statistics import holm
from train.results.scores import LEVEL


@dataclass(frozen=True)
class ModelComparison:
    """Two models on the items that both scored. of: `pairs` (both items right) where there are any, else `items`.

    difference: first minus second, percentage points, with its interval. first_only, second_only: clusters of which
    one model has more right than the other; where clusters overlap, pairs or items that only one has right. p_value:
    two-sided McNemar test of these (`intervals.sign`); adjusted: by Holm, for all comparisons. differs:
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
) -> list[ModelComparison]:
    """Compare models on the same items. models: outcomes by name. couples: names of first and second, None for all.

    Raises `ValueError` where the items differ. Two models without a common scored item are left out.
    """
    ids = [[item.id for item in found.items] for found in models.values()]
    if any(other != ids[0] for other in ids[1:]):
        raise ValueError("models: need outcomes on the same items, in the same order")
    chosen = combinations(models, 2) if couples is None else couples
    comparisons = [one for a, b in chosen if (one := _compare_two(a, models[a], b, models[b], seed))]
    adjusted = holm([one.p_value for one in comparisons])
    return [
        replace(one, adjusted=p, differs=p < LEVEL and not one.difference_low <= 0 <= one.difference_high)
        for one, p in zip(comparisons, adjusted, strict=True)
    ]


def _compare_two(first: str, one: Outcomes, second: str, other: Outcomes, seed: int) -> ModelComparison | None:
    scored = np.flatnonzero(one.scored & other.scored)
    if not len(scored):
        return None
    both = scored_pairs(one, scored)
    places = both if len(both) else scored[:, None]
    right = [found.right[places].all(axis=1) for found in (one, other)]
    units = pair_clusters(one, places) if len(both) else one.units.take(scored)
    lead = right[0].astype(int) - right[1].astype(int)

    def difference(counts: np.ndarray) -> np.ndarray:
        return np.asarray(100 * (counts[..., 2] - counts[..., 0]) / counts.sum(axis=-1))

    accuracies = [100 * float(found.mean()) for found in right]
    gap = accuracies[0] - accuracies[1]
    ends, ahead = interval(gap, units, lead + 1, 3, difference, seed, -100, 100), sign_test(units, lead)
    return ModelComparison(
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
