"""Statistics of saved predictions beside those of `train.results.scores`: paired comparison, agreement, seeds.

Shares are percent, 0 to 100. Intervals are 95 %, by bootstrap over whole clusters: over scenes, where several examples
share one. Logits are log-odds of true, and a prediction is true where its logit is above 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

from train.results.scores import bootstrap_counts, cluster_count, f1_scores, percentile_interval, predictions_of

Z = float(ndtri(0.975))


def largest_unseen_share(clusters: float) -> float:
    """The largest share, in percent, of something that none of so many clusters shows: with this share, none shows it
    with probability 2.5 %."""
    return 100 * (1 - 0.025 ** (1 / clusters))


def wilson(part: np.ndarray, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends, in percent, of Wilson's 95 % interval of a share: part (G,) from 0 to 1 of examples (G,)."""
    middle = (part + Z**2 / (2 * examples)) / (1 + Z**2 / examples)
    half = Z * np.sqrt(part * (1 - part) / examples + (Z / (2 * examples)) ** 2) / (1 + Z**2 / examples)
    return 100 * np.clip(middle - half, 0, part), 100 * np.clip(middle + half, part, 1)


# Two runs on the same examples ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairedComparison:
    """Two runs on the same examples. first, second, difference (first minus second): macro-F1 in percent.

    interval_low, interval_high: of the difference. first_only, second_only: the number of clusters (examples, without
    clusters) of which this run has more right than the other. p_value: two-sided exact McNemar test of these two
    numbers.
    """

    examples: int
    first: float
    second: float
    difference: float
    interval_low: float
    interval_high: float
    first_only: int
    second_only: int
    p_value: float


def paired(
    answers: np.ndarray, first: np.ndarray, second: np.ndarray, clusters: np.ndarray | None = None, seed: int = 0
) -> PairedComparison:
    """Compare two runs: answers (N,) bool, the logits (N,) of each run, clusters (N,) or None.

    McNemar's test assumes that what it counts is independent, so examples that share a scene count once, for the run
    that has more of them right. The bootstrap keeps together both runs' predictions of an example, and the examples of
    a cluster. If no prediction differs, the ends of the interval are minus and plus `largest_unseen_share` of the
    clusters. Raises `ValueError` where a logit is not a number.
    """
    truth, one, other = np.asarray(answers, bool), predictions_of(first), predictions_of(second)
    codes = 4 * ~truth + 2 * ~one + ~other
    scores = 100 * _macro(np.bincount(codes, minlength=8))
    low, high = percentile_interval(100 * np.subtract(*_macro(bootstrap_counts(codes, 8, clusters, seed)).T))
    if (one == other).all():
        high = largest_unseen_share(cluster_count(clusters, len(truth)))
        low = -high
    lead = (one == truth).astype(int) - (other == truth)
    if clusters is not None:
        lead = np.bincount(np.unique(clusters, return_inverse=True)[1], weights=lead)
    ahead, behind = int((lead > 0).sum()), int((lead < 0).sum())
    return PairedComparison(
        examples=len(truth),
        first=float(scores[0]),
        second=float(scores[1]),
        difference=float(scores[0] - scores[1]),
        interval_low=low,
        interval_high=high,
        first_only=ahead,
        second_only=behind,
        p_value=mcnemar(ahead, behind),
    )


def _macro(counts: np.ndarray) -> np.ndarray:
    """Macro-F1 (..., 2) of the first and the second run, as parts of 1, from counts (..., 8) of (answer, first,
    second), each true before false."""
    cube = counts.reshape(*counts.shape[:-1], 2, 2, 2)
    tables = [cube.sum(axis=axis).reshape(*counts.shape[:-1], 4) for axis in (-1, -2)]
    return np.stack([f1_scores(table).mean(axis=-1) for table in tables], axis=-1)


def mcnemar(first_only: int, second_only: int) -> float:
    """p-value of the two-sided exact McNemar test: do discordant clusters favour one of the runs?"""
    from scipy.stats import binomtest  # takes long to import

    total = first_only + second_only
    return float(binomtest(first_only, total).pvalue) if total else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number (Holm 1979): a level then bounds the probability of any false positive."""
    adjusted, order = np.empty(len(p_values)), np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values)[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return adjusted.tolist()


# Two test settings of one run ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Agreement:
    """How often the same examples get the same answer twice. All in percent, except examples and kappa.

    by_chance: the agreement of independent answers that are true as often as these. kappa: Cohen's, 0 at by_chance and
    1 at 100 % (Cohen 1960); None where by_chance is 100.
    """

    examples: int
    percent: float
    interval_low: float
    interval_high: float
    by_chance: float
    kappa: float | None


def agreement(first: np.ndarray, second: np.ndarray, clusters: np.ndarray | None = None, seed: int = 0) -> Agreement:
    """Agreement of the logits (N,) of two test settings on the same examples, clusters (N,) or None.

    If all or no examples agree, the other end of the interval is by `largest_unseen_share` of the clusters. Raises
    `ValueError` where a logit is not a number.
    """
    one, other = predictions_of(first), predictions_of(second)
    codes = (one != other).astype(np.int64)
    draws = bootstrap_counts(codes, 2, clusters, seed)
    low, high = percentile_interval(100 * draws[:, 0] / draws.sum(axis=1))
    same = float(np.mean(one == other))
    if same in (0.0, 1.0):
        most = largest_unseen_share(cluster_count(clusters, len(one)))
        low, high = (100 - most, 100.0) if same else (0.0, most)
    by_chance = float(one.mean() * other.mean() + (1 - one.mean()) * (1 - other.mean()))
    kappa = None if by_chance == 1 else (same - by_chance) / (1 - by_chance)
    return Agreement(len(one), 100 * same, low, high, 100 * by_chance, kappa)


# Several seeds -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeedMean:
    """The mean of scores that differ in the seed of training alone. deviation: standard deviation with n - 1, as in
    Tables 10 to 12; interval: of the mean, by Student's t. Both are NaN for a single score, and all are for none."""

    runs: int
    mean: float = math.nan
    deviation: float = math.nan
    interval_low: float = math.nan
    interval_high: float = math.nan


def over_seeds(scores: Sequence[float]) -> SeedMean:
    """Mean, deviation and interval over seeds. They measure how much trainings differ, which a bootstrap over the
    examples of one run cannot do."""
    count = len(scores)
    if count < 2:
        return SeedMean(count, *scores)
    mean = float(np.mean(scores))
    deviation = float(np.std(scores, ddof=1))
    half = float(stdtrit(count - 1, 0.975)) * deviation / math.sqrt(count)
    return SeedMean(count, mean, deviation, mean - half, mean + half)
