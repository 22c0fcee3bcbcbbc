"""Intervals and tests for scores of items that share pictures or sentences.

Two items are dependent if they show the same picture or belong to the same pair; two pairs are dependent if they share
a picture. As long as clusters of dependent items do not overlap, whole clusters are resampled. Where they overlap
(pictures in several pairs, pairs of several pictures), connected components soon contain the whole corpus and cannot be
resampled. There the variance is two-way cluster-robust: that over pictures, plus that over pairs, minus that over their
intersections (Cameron, Gelbach & Miller 2011, equation 2.11; for pairs of pictures the dyadic form of Aronow, Samii &
Assenova 2015). Each is a jackknife that leaves out one cluster at a time, which is less biased with few or unequal
clusters (MacKinnon, Nielsen & Webb 2024, "Jackknife inference with two-way clustering").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import stdtr, stdtrit

from analysis.statistics import Z, largest_unseen_share, mcnemar, wilson
from train.results.scores import bootstrap_counts, percentile_interval

Statistic = Callable[[np.ndarray], np.ndarray]
"""Counts (..., kinds) of units of each kind -> statistic (...)."""
ROUNDING = 1e-9  # relative; smaller differences of variances count as 0


@dataclass(frozen=True)
class Clustering:
    """Clusters of N units (items or pairs); units with a common cluster are dependent.

    clusters: (N, 2) int, the two clusters of each unit; equal numbers are the same cluster. dyadic: both
    columns are one grouping (the two pictures of a pair); else each column is a grouping of its own (the pictures of
    items, and their pairs).
    """

    clusters: np.ndarray
    dyadic: bool = False

    def __len__(self) -> int:
        return len(self.clusters)

    def take(self, places: np.ndarray) -> Clustering:
        """The clustering of some units, in this order, with repeats."""
        return Clustering(self.clusters[places], self.dyadic)

    @cached_property
    def _dense(self) -> np.ndarray:
        """(N, 2) clusters, numbered from 0 without gaps."""
        return np.unique(self.clusters, return_inverse=True)[1].reshape(-1, 2)

    @cached_property
    def connected(self) -> np.ndarray:
        """(N,) number of each unit's connected component: equal for units that are dependent, also through others."""
        number = int(self._dense.max(initial=0)) + 1
        links = coo_array((np.ones(len(self), bool), tuple(self._dense.T)), shape=(number, number))
        return np.asarray(connected_components(links, directed=False)[1][self._dense[:, 0]])

    @cached_property
    def crossed(self) -> bool:
        """Whether clusters overlap: some connected component is larger than each of its clusters."""
        first, second = self._dense.T
        units = np.bincount(np.concatenate([first, second[second != first]]))
        largest = np.zeros(len(self), np.int64)  # units of each component's largest cluster
        np.maximum.at(largest, self.connected, np.maximum(units[first], units[second]))
        return bool((largest < np.bincount(self.connected, minlength=len(self))).any())

    @cached_property
    def groupings(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each grouping, the cluster (M,) and the unit (M,) of each membership."""
        (first, second), every = self._dense.T, np.arange(len(self))
        if not self.dyadic:
            return [(first, every), (second, every)]
        two = first != second
        return [(np.concatenate([first, second[two]]), np.concatenate([every, every[two]]))]

    @cached_property
    def intersections(self) -> tuple[np.ndarray, np.ndarray]:
        """The same for intersections, the clusters of units with the same two clusters."""
        low, high = np.sort(self._dense, axis=1).T
        two = np.flatnonzero(low != high)
        return np.unique(low[two] * (len(self) * 2) + high[two], return_inverse=True)[1], two

    def sizes(self) -> list[np.ndarray]:
        """Cluster sizes of each grouping; sizes of connected components where clusters do not overlap."""
        groupings = [cluster for cluster, _ in self.groupings] if self.crossed else [self.connected]
        return [counts[counts > 0] for counts in map(np.bincount, groupings)]

    def min_independent(self) -> float:
        """Lower bound on the number of independent units: the clusters of the grouping with the fewest; for crossed
        pairs half of the pictures, as both pictures must be right."""
        return min(map(len, self.sizes())) / (1 + (self.dyadic and self.crossed))

    def freedom(self) -> float:
        """Degrees of freedom of a two-way variance: clusters of the grouping with the fewest, minus one. Clusters of
        unequal size count as fewer (Kish's effective number; Carter, Schnepel & Steigerwald 2017); never below 1."""
        effective = min(float(sizes.sum()) ** 2 / float((sizes.astype(float) ** 2).sum()) for sizes in self.sizes())
        return max(1.0, effective - 1)

    def two_way(self, variance: Callable[[np.ndarray, np.ndarray], float]) -> float:
        """The two-way variance. variance: computes the one-way variance from clusters (M,) and units (M,).

        If the difference is 0 or negative, it is the largest of the one-way variances.
        """
        terms, both = [variance(*grouping) for grouping in self.groupings], variance(*self.intersections)
        total = sum(terms) - both
        return total if total > ROUNDING * sum(terms) else max(both, *(term / (1 + self.dyadic) for term in terms))


def interval(
    value: float,
    units: Clustering,
    codes: np.ndarray,
    kinds: int,
    statistic: Statistic,
    seed: int = 0,
    least: float = 0.0,
    most: float = 100.0,
) -> tuple[float, float, float]:
    """Both ends of the 95 % interval of a statistic of N units, and its standard error. Values of the statistic lie
    between `least` and `most`.

    codes: (N,) the kind of each unit, from 0 to kinds - 1. Where clusters do not overlap: percentiles of 1,000
    resamples of whole clusters, drawn from `seed`. Where they do: Wilson's interval for the number of independent units
    that has the two-way variance, with quantiles of Student's t. Raises `ValueError` without units.
    """
    if not len(units):
        raise ValueError("an interval needs at least one item or pair")
    if units.crossed:
        whole = np.bincount(codes, minlength=kinds)
        error = math.sqrt(units.two_way(lambda cluster, unit: _jackknife(whole, codes[unit], cluster, statistic)))
        low, high = _wilson(value, error, units.freedom(), least, most)
    else:
        draws = statistic(bootstrap_counts(codes, kinds, units.connected, seed))
        error = float(draws.std())
        low, high = percentile_interval(draws)
    # Few or uniform clusters have little variance. The interval is therefore at least as wide as if a share of clusters
    # at either extreme were missing in the sample: the largest share that is missing with probability 2.5 %.
    unseen = largest_unseen_share(units.min_independent()) / 100
    return min(low, value + unseen * (least - value)), max(high, value + unseen * (most - value)), error


def _jackknife(whole: np.ndarray, codes: np.ndarray, cluster: np.ndarray, statistic: Statistic) -> float:
    """Jackknife variance of a statistic over clusters. whole: (kinds,) counts of all units; codes, cluster: (M,) of
    each membership."""
    kinds, (names, place) = len(whole), np.unique(cluster, return_inverse=True)
    counts = np.bincount(place * kinds + codes, minlength=len(names) * kinds).reshape(-1, kinds)
    changes = statistic(whole - counts) - statistic(whole)
    return float((changes**2).sum()) * (1 - 1 / max(1, len(names)))


def _wilson(value: float, error: float, freedom: float, least: float, most: float) -> tuple[float, float]:
    part, spread = (value - least) / (most - least), error / (most - least)
    if spread == 0:
        return value, value
    units = part * (1 - part) / spread**2 * (Z / stdtrit(freedom, 0.975)) ** 2
    low, high = (float(end) / 100 for end in wilson(np.asarray(part), np.asarray(units)))
    return least + low * (most - least), least + high * (most - least)


def sign_test(units: Clustering, lead: np.ndarray) -> tuple[int, int, float]:
    """Test which of two is ahead in N units. lead: (N,) 1 where the first is ahead, -1 where the second is, else 0.

    Returns the number of clusters (units, if clusters overlap) in which the first is ahead, that in which the second
    is, and the two-sided p-value of the hypothesis that both are ahead equally often.

    Where clusters do not overlap: the exact McNemar test, with each cluster counted once. Where they do: McNemar's
    statistic with the two-way variance in place of the number of discordant units (with one grouping, the test of
    Durkalski et al. 2003), compared with Student's t.
    """
    if not units.crossed:
        ahead = np.bincount(np.unique(units.connected, return_inverse=True)[1], weights=lead)
        first, second = int((ahead > 0).sum()), int((ahead < 0).sum())
        return first, second, mcnemar(first, second)
    variance = units.two_way(lambda cluster, unit: float((np.bincount(cluster, weights=lead[unit]) ** 2).sum()))
    score = abs(float(lead.sum())) / math.sqrt(variance) if variance else 0.0
    return int((lead > 0).sum()), int((lead < 0).sum()), float(2 * stdtr(units.freedom(), -score))
