"""Intervals and tests for scores of items that share pictures or sentences: whole clusters are resampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from analysis.probe.corpora.items import WHOLE, Item
from analysis.statistics import largest_unseen_share, mcnemar
from train.results.scores import bootstrap_counts, cluster_count, percentile_interval

Statistic = Callable[[np.ndarray], np.ndarray]
"""Counts (..., kinds) of items of each kind -> statistic (...)."""


def clusters_of(items: Sequence[Item]) -> np.ndarray:
    """(N,) cluster of each item: its picture where that stands in several pairs, else its pair. Crops belong to their
    whole picture; an item without a partner is a pair of its own."""
    pictures = [item.labels.get(WHOLE, item.image) for item in items]
    pairs = [("pair", item.pair) if item.pair else ("item", item.id) for item in items]
    pairs_of: dict[str, set[tuple[str, str]]] = {}
    for picture, pair in zip(pictures, pairs, strict=True):
        pairs_of.setdefault(picture, set()).add(pair)
    names = [
        ("picture", picture) if len(pairs_of[picture]) > 1 else pair
        for picture, pair in zip(pictures, pairs, strict=True)
    ]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], int)


def interval(
    value: float,
    clusters: np.ndarray,
    codes: np.ndarray,
    kinds: int,
    statistic: Statistic,
    seed: int = 0,
    least: float = 0.0,
    most: float = 100.0,
) -> tuple[float, float, float]:
    """Both ends of the 95 % interval of a statistic of N items or pairs, and its standard error: percentiles of 1,000
    resamples of whole clusters (N,). Values of the statistic lie between `least` and `most`.

    codes: (N,) the kind of each, from 0 to kinds - 1.
    """
    draws = statistic(bootstrap_counts(codes, kinds, clusters, seed))
    low, high = percentile_interval(draws)
    # Few or uniform clusters have little variance. The interval is therefore at least as wide as if a share of clusters
    # at either extreme were missing in the sample: the largest share that is missing with probability 2.5 %.
    unseen = largest_unseen_share(cluster_count(clusters, len(codes))) / 100
    return (
        min(low, value + unseen * (least - value)),
        max(high, value + unseen * (most - value)),
        float(draws.std()),
    )


def sign_test(clusters: np.ndarray, lead: np.ndarray) -> tuple[int, int, float]:
    """The number of clusters in which the first of two models is ahead, that in which the second is, and the p-value of
    the exact McNemar test of both. lead: (N,) 1 where the first is ahead, -1 where the second is, else 0."""
    ahead = np.bincount(np.unique(clusters, return_inverse=True)[1], weights=lead)
    first, second = int((ahead > 0).sum()), int((ahead < 0).sum())
    return first, second, mcnemar(first, second)
