"""Scores of predictions, with intervals and a significance test.

All scores are percent, 0 to 100, as the paper prints them. The metric is macro-F1 (paper, appendix B.1). A prediction
is true if its logit, the log-odds of true as float32, is above 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 1_000
LEVEL = 0.01
TEST = f"exact binomial, accuracy > 50 %, p < {LEVEL}"


@dataclass(frozen=True)
class Scores:
    """Percent, but for `examples` and `p_value`.

    interval_low, interval_high: 95 % bootstrap interval of macro-F1 (see `score`). p_value: one-sided exact binomial
    test that the accuracy is above 50 %. above_random: p_value below 0.01.
    """

    examples: int
    macro_f1: float
    accuracy: float
    f1_true: float
    f1_false: float
    interval_low: float
    interval_high: float
    p_value: float
    above_random: bool


def predictions_of(logits: np.ndarray) -> np.ndarray:
    """Predictions (N,) bool of log-odds of true (N,). Raises `ValueError` if one is not a number."""
    logits = np.asarray(logits, np.float32)
    if np.isnan(logits).any():
        raise ValueError(f"{np.isnan(logits).sum()} of {logits.size} logits are not numbers; the model has diverged")
    return logits > 0


def score_predictions(
    answers: np.ndarray, logits: np.ndarray, clusters: np.ndarray | None = None, seed: int = 0
) -> Scores:
    """Scores of N predictions: answers (N,) bool, logits (N,) log-odds of true, clusters (N,) int or None.

    F1 of a class that is neither predicted nor the answer is 0. The interval is between the 2.5 and 97.5 percentiles of
    macro-F1 in 1,000 resamples of the examples, or of whole clusters, such as the examples that share a scene. All
    resamples of faultless predictions are faultless; there the low end is macro-F1 times the accuracy that shows no
    fault in so many examples (clusters) with a probability of 0.025. The binomial test ignores clusters; if one
    answer is more frequent than the other, a constant answer can pass it.

    Raises `ValueError` if there is nothing to score, or a logit is not a number.
    """
    truth, guess = np.asarray(answers, bool), predictions_of(logits)
    if truth.shape != guess.shape or truth.ndim != 1 or not len(guess):
        raise ValueError(f"answers {truth.shape} and logits {guess.shape}: needs (N,) of each and N of at least 1")
    cells = 2 * ~truth + ~guess
    counts = np.bincount(cells, minlength=4)
    f1_true, f1_false = 100 * f1_scores(counts)
    right = int(counts[0] + counts[3])
    p_value = binomial_p_value(right, len(guess))
    low, high = percentile_interval(100 * f1_scores(bootstrap_counts(cells, 4, clusters, seed)).mean(axis=1))
    if right == len(guess):
        low = float(f1_true + f1_false) / 2 * 0.025 ** (1 / cluster_count(clusters, len(guess)))
    return Scores(
        examples=len(guess),
        macro_f1=float(f1_true + f1_false) / 2,
        accuracy=100 * right / len(guess),
        f1_true=float(f1_true),
        f1_false=float(f1_false),
        interval_low=low,
        interval_high=high,
        p_value=p_value,
        above_random=p_value < LEVEL,
    )


def f1_scores(counts: np.ndarray) -> np.ndarray:
    """F1 of true and of false (..., 2), from 0 to 1, of counts (..., 4): true predicted as true, true as false, false
    as true, false as false."""
    right = 2.0 * counts[..., [0, 3]]
    total = right + (counts[..., 1] + counts[..., 2])[..., None]
    return np.divide(right, total, out=np.zeros_like(right), where=total > 0)


def bootstrap_counts(codes: np.ndarray, kinds: int, clusters: np.ndarray | None = None, seed: int = 0) -> np.ndarray:
    """Numbers of examples of each kind in 1,000 bootstrap resamples of whole clusters: (1000, kinds).

    codes: (N,) the kind of each example, from 0. clusters: (N,) the cluster of each example; None: each is alone.
    Clusters with equal counts are interchangeable, so a resample is a draw of how often each pattern of counts occurs.
    """
    codes = np.asarray(codes)
    patterns, times = np.eye(kinds, dtype=np.int64), np.bincount(codes, minlength=kinds)
    if clusters is not None and cluster_count(clusters, len(codes)) < len(codes):
        names, place = np.unique(clusters, return_inverse=True)
        counts = np.bincount(place * kinds + codes, minlength=len(names) * kinds).reshape(-1, kinds)
        patterns, times = np.unique(counts, axis=0, return_counts=True)
    return resample(patterns, times, seed)


def resample(patterns: np.ndarray, times: np.ndarray, seed: int = 0) -> np.ndarray:
    """Sums (1000, K) over bootstrap resamples of clusters; patterns (P, K): their numbers, each so many times (P,)."""
    total = int(times.sum())
    draws = np.random.default_rng(seed).multinomial(total, times / total, size=RESAMPLES)
    return np.asarray(draws @ patterns)


def cluster_count(clusters: np.ndarray | None, examples: int) -> int:
    """The number of clusters; None: each example is one."""
    return examples if clusters is None else len(np.unique(clusters))


def percentile_interval(values: np.ndarray) -> tuple[float, float]:
    """Ends of the 95 % interval of resampled values: their 2.5 and 97.5 percentiles."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def binomial_p_value(right: int, examples: int, chance: float = 0.5) -> float:
    """One-sided exact binomial test: the probability that chance gets at least `right` of `examples` right."""
    from scipy.stats import binomtest  # takes long to import

    return float(binomtest(right, examples, chance, alternative="greater").pvalue)


def by_group(
    answers: np.ndarray, logits: np.ndarray, groups: Sequence[str], clusters: np.ndarray | None = None
) -> dict[str, Scores]:
    """Scores of each group of examples, such as those with the same first item of the pair; groups: N names."""
    answers, logits, names = np.asarray(answers), np.asarray(logits), np.asarray(groups)
    scores = {}
    for name in np.unique(names):
        here = names == name
        within = None if clusters is None else np.asarray(clusters)[here]
        scores[str(name)] = score_predictions(answers[here], logits[here], within)
    return scores


def couple_scores(answers: np.ndarray, logits: np.ndarray) -> dict[str, float]:
    """Couple accuracy, as columns of results: `couples_right`, percent of couples with both answers right, and
    `couples_low` and `couples_high`, its 95 % interval. Empty unless the answers of examples 2k and 2k + 1 differ for
    every k.

    A couple is one query text, true in one scene and false in another (`travlr.sampling`): a coin gets 25 %, and an
    answer that depends on the query alone 0 %. Examples must be in order and in whole couples; published data has none.
    The interval is Wilson's, over couples.
    """
    answers = np.asarray(answers, bool)
    if len(answers) % 2 or not len(answers) or (answers[0::2] == answers[1::2]).any():
        return {}
    from scipy.stats import binomtest  # takes long to import

    right = predictions_of(logits) == answers
    both = right[0::2] & right[1::2]
    low, high = binomtest(int(both.sum()), len(both)).proportion_ci(method="wilson")
    proportions = {"couples_right": both.mean(), "couples_low": low, "couples_high": high}
    return {name: 100 * float(value) for name, value in proportions.items()}
