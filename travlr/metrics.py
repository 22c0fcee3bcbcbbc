"""Metrics of answers: scores, intervals and tests, for training, asking, harnesses, baselines and reports.

Scores are percent, 0 to 100, and intervals 95 %. Answers and predictions are arrays (N,) of bool or of text; a
prediction of None is a reply without an answer, which is wrong. clusters: (N,) what depends on each other, such as
the scene or the picture of each example; None: each example is alone.

Two functions make intervals: `proportions` of what is counted, and `bootstrap_interval` of macro-F1 and of differences.
A sample may miss something that occurs. So both are at least as wide as if a part of the clusters were at either
extreme: the largest part of which so many clusters show none with a probability of 2.5 %.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

RESAMPLES = 1_000
LEVEL = 0.01  # of significance
Z = 1.959963984540054  # standard errors to the ends of a 95 % interval

Values = np.ndarray | Sequence[Any]


# Single scores -------------------------------------------------------------------------------------------------------


def predictions_of(logits: Values) -> np.ndarray:
    """Predictions (N,) bool of log-odds of true (N,). Raises `ValueError` if one is not a number."""
    logits = np.asarray(logits, np.float32)
    if np.isnan(logits).any():
        raise ValueError(f"{np.isnan(logits).sum()} of {logits.size} logits are not numbers; the model has diverged")
    return logits > 0


def f1_by_answer(answers: Values, predictions: Values) -> dict[str, float]:
    """The F1 of each right answer that occurs; of bool, of `true` and `false`. F1 is 0 where no reply gives it."""
    names, counts = _f1_counts(answers, predictions)
    return dict(zip(names, (100 * f1_scores(counts.sum(axis=0))).tolist(), strict=True))


def macro_f1(answers: Values, predictions: Values) -> float:
    """The mean of `f1_by_answer`."""
    return float(_mean_f1(_f1_counts(answers, predictions)[1].sum(axis=0)))


def f1_scores(counts: np.ndarray) -> np.ndarray:
    """F1 (..., L), from 0 to 1, of counts (..., 3, L) of each of L answers: given rightly, right, given."""
    total = counts[..., 1, :] + counts[..., 2, :]
    return np.divide(2.0 * counts[..., 0, :], total, out=np.zeros(total.shape), where=total > 0)


def _mean_f1(counts: np.ndarray) -> np.ndarray:
    """Mean F1 (...), percent, of the answers that are right at least once, of counts (..., 3, L)."""
    occurs = counts[..., 1, :] > 0
    return np.asarray(100 * (f1_scores(counts) * occurs).sum(axis=-1) / np.maximum(occurs.sum(axis=-1), 1))


def _f1_counts(answers: Values, predictions: Values) -> tuple[list[str], np.ndarray]:
    """The L right answers, and the counts (N, 3, L) of `f1_scores` for each example."""
    right, given = _texts(answers), _texts(predictions)
    names = sorted(set(right.tolist()))
    is_right, is_given = (values[:, None] == np.array(names, object) for values in (right, given))
    return names, np.stack([is_right & is_given, is_right, is_given], axis=1)


def _texts(values: Values) -> np.ndarray:
    """Values as text, (N,) of objects: `true` and `false` of bool; None stays."""
    values = np.asarray(values)
    return (np.where(values, "true", "false") if values.dtype == bool else values).astype(object)


def bias(answers: Values, predictions: Values) -> tuple[float, str | None]:
    """By how many points an answer is given more often than it is right, over parsed replies, and which: the answer
    with the largest excess, None without one."""
    pairs = [(a, p) for a, p in zip(_texts(answers), _texts(predictions), strict=True) if p is not None]
    if not pairs:
        return 0.0, None
    right, given = (Counter(values) for values in zip(*pairs, strict=True))
    answer = max(sorted({*right, *given}), key=lambda a: given[a] - right[a])
    excess = 100 * (given[answer] - right[answer]) / len(pairs)
    return excess, str(answer) if excess else None


def calibrated_accuracy(answers: Sequence[str], log_probabilities: Sequence[Mapping[str, float]]) -> float | None:
    """Accuracy after batch calibration (Zhou et al. 2024): from the log-probability of each answer its mean over all
    examples is subtracted, so that a general preference has no effect. None without log-probabilities; an example
    with none is wrong."""
    names = sorted({name for given in log_probabilities for name in given})
    table = np.array([[given.get(name, np.nan) for name in names] for given in log_probabilities if given])
    if not len(table):
        return None
    best = np.nanargmax(table - np.nanmean(table, axis=0), axis=1)
    right = [answer for answer, given in zip(answers, log_probabilities, strict=True) if given]
    return 100 * sum(names[i] == answer for i, answer in zip(best, right, strict=True)) / len(answers)


# Couples and items ---------------------------------------------------------------------------------------------------


def couples_in_order(answers: Values) -> np.ndarray:
    """The couple (N,) of each example: k of examples 2k and 2k + 1. All are "" in data that are not in couples, such as
    published data: unless one query of each two is true and one is false."""
    answers = np.asarray(answers, bool)
    paired = len(answers) % 2 == 0 and (answers[0::2] != answers[1::2]).all()
    return (np.arange(len(answers)) // 2).astype(str) if paired else np.full(len(answers), "")


def couples_right(answers: Values, right: Values, couples: Values) -> tuple[np.ndarray, np.ndarray]:
    """For each couple the row of its first example, and whether all its answers are right; couples (N,) "" for none.

    A couple has true and false queries (answers: (N,) bool); examples of which some couple has not are in none, such as
    published data. A coin gets 25 % of couples of two, and an answer that depends on the query alone 0 %."""
    answers, right = np.asarray(answers, bool), np.asarray(right, bool)
    first, place = _groups(couples)
    sizes, true, hits = (np.bincount(place, values, len(first)) for values in (None, answers, right))
    counts, mixed = (np.asarray(couples)[first] != "") & (sizes > 1), (true > 0) & (true < sizes)
    counts &= mixed[counts].all()
    return first[counts], (hits == sizes)[counts]


def ranked(scores: Values, answers: Values, items: Values, tolerance: float = 1e-5) -> tuple[np.ndarray, np.ndarray]:
    """For each item the row of its first sentence, and whether the mean score of its true sentences is above that of
    its false ones. A tie is wrong: two means that differ by no more than `tolerance` of the larger one, or of 1. So is
    an item with a score that is NaN.

    scores: (N,) how much each sentence is held to be true; of replies, see `reply_scores`. answers: (N,) bool. items:
    (N,), "" for none. An item without a true or without a false sentence is left out.
    """
    scores, answers = np.asarray(scores, np.float64), np.asarray(answers, bool)
    first, place = _groups(items)
    true, false = np.bincount(place, answers, len(first)), np.bincount(place, ~answers, len(first))
    counts = (np.asarray(items)[first] != "") & (true > 0) & (false > 0)
    above = np.bincount(place, scores * answers, len(first))[counts] / true[counts]
    below = np.bincount(place, scores * ~answers, len(first))[counts] / false[counts]
    margin = tolerance * np.maximum(1.0, np.maximum(np.abs(above), np.abs(below)))
    return first[counts], above - below > margin


def reply_scores(scores: Sequence[float | None], predictions: Sequence[str | None]) -> np.ndarray:
    """Scores for `ranked`: where a reply has none, 1 for true, -1 for false, and NaN for no answer."""
    votes = {"true": 1.0, "false": -1.0}
    return np.array(
        [votes.get(p or "", np.nan) if s is None else s for s, p in zip(scores, predictions, strict=True)], float
    )


def both_ranked(right: Values, couples: Values) -> tuple[np.ndarray, np.ndarray]:
    """For each couple of two items the place of its first item, and whether both items are ranked right. right: (I,)
    as `ranked` returns it; couples: (I,), "" for none."""
    first, place = _groups(couples)
    hits, sizes = np.bincount(place, np.asarray(right, bool), len(first)), np.bincount(place, minlength=len(first))
    counts = (np.asarray(couples)[first] != "") & (sizes == 2)
    return first[counts], hits[counts] == 2


def score_couples(
    scores: Values, answers: Values, items: Values, sentences: Values, couples: Values
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each couple of two items that exchange their sentences the row of its first sentence; whether with each
    picture its own sentence scores higher (Winoground's text score, `both_ranked`); and whether with each sentence its
    own picture scores higher (the image score). The group score is of couples with both. All are (N,), see `ranked`."""
    couples = np.asarray(couples, str)
    first, right = ranked(scores, answers, items)
    place, text = both_ranked(right, couples[first])
    names = np.char.add(np.char.add(couples, "\t"), np.asarray(sentences, str))
    other, hits = ranked(scores, answers, np.where(couples == "", "", names))
    with_image, image = both_ranked(hits, couples[other])
    images = dict(zip(couples[other][with_image].tolist(), image.tolist(), strict=True))
    rows = first[place]
    exchanged = np.array([couple in images for couple in couples[rows].tolist()], bool)
    rows, text = rows[exchanged], text[exchanged]
    return rows, text, np.array([images[couple] for couple in couples[rows].tolist()], bool)


def _groups(names: Values) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each group, in order of occurrence, and the number (N,) of each row's group."""
    _, first, place = np.unique(np.asarray(names), return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[place]


def picture_clusters(pictures: Values, couples: Values) -> np.ndarray:
    """The cluster (N,) of each row: its picture where that stands in several couples, else its couple; a row without a
    couple ("") belongs to its picture."""
    pictures, couples = np.asarray(pictures, str), np.asarray(couples, str)
    pairs = np.unique(np.stack([pictures, couples], axis=1), axis=0)
    names, several = np.unique(pairs[:, 0], return_counts=True)
    by_picture = (couples == "") | (several[np.searchsorted(names, pictures)] > 1)
    own = np.where(by_picture, np.char.add("picture ", pictures), np.char.add("couple ", couples))
    return _groups(own)[1]


# Intervals -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Proportions:
    """Of G groups, (G,) each: number of examples and of hits, percent of hits, its standard error (clustered) and
    interval. NaN for a group without examples."""

    examples: np.ndarray
    hits: np.ndarray
    percent: np.ndarray
    error: np.ndarray
    low: np.ndarray
    high: np.ndarray


def proportions(
    hits: Values, groups: Values | None = None, clusters: Values | None = None, number: int | None = None
) -> Proportions:
    """How often examples of each group are hits. hits: (N,) bool. groups: (N,) numbers from 0, None for one group;
    number: of groups, None: as occur.

    The interval is Wilson's, of as many independent examples as have the clustered standard error (Miller 2024)."""
    hits = np.asarray(hits, float)
    groups = np.zeros(len(hits), int) if groups is None else np.asarray(groups)
    number = int(groups.max(initial=0)) + 1 if number is None else number
    cluster = np.arange(len(hits)) if clusters is None else _groups(clusters)[1]
    _, first, place = np.unique(groups.astype(np.int64) << 32 | cluster, return_index=True, return_inverse=True)
    owner = groups[first]  # the group of each cluster within a group
    total, right = (np.bincount(groups, values, number) for values in (None, hits))
    clustered = np.bincount(owner, minlength=number).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        part = right / total
        residual = np.bincount(place, hits) - part[owner] * np.bincount(place)
        # Clusters over clusters - 1: few clusters vary less around their own mean than around the true one.
        error = np.sqrt(np.bincount(owner, residual**2, number) * clustered / np.maximum(clustered - 1, 1)) / total
        size = np.where(error > 0, part * (1 - part) / error**2, np.inf)
        middle = (part + Z**2 / (2 * size)) / (1 + Z**2 / size)
        half = Z * np.sqrt(part * (1 - part) / size + (Z / (2 * size)) ** 2) / (1 + Z**2 / size)
        missing = 1 - 0.025 ** (1 / clustered)
    low = 100 * np.clip(np.minimum(middle - half, part - missing * part), 0, part)
    high = 100 * np.clip(np.maximum(middle + half, part + missing * (1 - part)), part, 1)
    return Proportions(total, right.astype(int), 100 * part, 100 * error, low, high)


def proportion(hits: Values, clusters: Values | None = None) -> tuple[float, float, float]:
    """Percent of hits (N,) bool, and the ends of its interval: `proportions` of one group."""
    result = proportions(hits, None, clusters)
    return float(result.percent[0]), float(result.low[0]), float(result.high[0])


def bootstrap_interval(
    counts: np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray],
    clusters: Values | None = None,
    least: float = 0.0,
    most: float = 100.0,
) -> tuple[float, float]:
    """The interval of a statistic between `least` and `most`: percentiles of 1,000 resamples of whole clusters.

    counts: (N, ...) what is counted of each example; the statistic is of sums (R, ...) of counts. Clusters with equal
    sums are interchangeable, so a resample is a draw of how often each pattern of sums occurs.
    """
    sums = np.asarray(counts).reshape(len(counts), -1).astype(float)
    if clusters is not None:
        place = _groups(clusters)[1]
        order = np.argsort(place, kind="stable")
        sums = np.add.reduceat(sums[order], np.flatnonzero(np.diff(place[order], prepend=-1)), axis=0)
    patterns, times = np.unique(sums, axis=0, return_counts=True)
    draws = np.random.default_rng(0).multinomial(len(sums), times / len(sums), size=RESAMPLES) @ patterns
    value, *resampled = statistic(np.concatenate([sums.sum(axis=0)[None], draws]).reshape(-1, *counts.shape[1:]))
    low, high = np.percentile(resampled, [2.5, 97.5])
    missing = 1 - 0.025 ** (1 / len(sums))
    return float(min(low, value + missing * (least - value))), float(max(high, value + missing * (most - value)))


# Scores of predictions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scores:
    """Percent, but for `examples` and `p_value`.

    interval_low, interval_high: of macro-F1. f1_true, f1_false: None for answers of other kinds. chance: accuracy of a
    rule without skill. p_value: one-sided exact binomial test that the accuracy is above chance; it ignores clusters.
    above_random: p_value below 0.01. test: the test in words. bias, bias_answer: see `bias`.
    """

    examples: int
    accuracy: float
    macro_f1: float
    interval_low: float
    interval_high: float
    f1_true: float | None
    f1_false: float | None
    unparsed: float
    bias: float
    bias_answer: str | None
    chance: float
    p_value: float | None
    above_random: bool | None
    test: str | None


def measure(
    answers: Values, predictions: Values, clusters: Values | None = None, chance: float | None = None
) -> Scores:
    """Scores of N predictions. chance: None for the accuracy of the best constant answer.

    Raises `ValueError` if there is nothing to score.
    """
    right, given = _texts(answers), _texts(predictions)
    if right.shape != given.shape or right.ndim != 1 or not len(right):
        raise ValueError(f"{right.shape} answers and {given.shape} predictions: needs as many of each, at least 1")
    f1 = f1_by_answer(right, given)
    low, high = bootstrap_interval(_f1_counts(right, given)[1], _mean_f1, clusters)
    hits = int((right == given).sum())
    chance = 100 * max(Counter(right.tolist()).values()) / len(right) if chance is None else chance
    p_value = binomial_p_value(hits, len(right), chance)
    excess, excess_answer = bias(right, given)
    return Scores(
        examples=len(right),
        accuracy=100 * hits / len(right),
        macro_f1=sum(f1.values()) / len(f1),
        interval_low=low,
        interval_high=high,
        f1_true=f1.get("true"),
        f1_false=f1.get("false"),
        unparsed=100 * sum(answer is None for answer in given) / len(given),
        bias=excess,
        bias_answer=excess_answer,
        chance=chance,
        p_value=p_value,
        above_random=p_value < LEVEL,
        test=describe_test(chance),
    )


def describe_test(chance: float = 50.0) -> str:
    """The test of `measure` in words. chance: of a coin, unless it is given."""
    return f"exact binomial, accuracy > {chance:.4g} %, p < {LEVEL}"


def binomial_p_value(right: int, examples: int, chance: float = 50.0) -> float:
    """One-sided exact binomial test: the probability that chance, in percent, gets at least `right` of `examples`."""
    from scipy.stats import binomtest  # takes long to import

    return float(binomtest(right, examples, chance / 100, alternative="greater").pvalue)


# Two models, or two settings, on the same examples --------------------------------------------------------------------


@dataclass(frozen=True)
class PairedComparison:
    """first, second, difference (first minus second): percent, with the interval of the difference.

    first_only, second_only: the number of clusters (examples, without clusters) of which one has more right than the
    other. p_value: two-sided exact McNemar test of these two numbers.
    """

    examples: int
    first: float
    second: float
    difference: float
    low: float
    high: float
    first_only: int
    second_only: int
    p_value: float


def compare(
    first: Values, second: Values, answers: Values | None = None, clusters: Values | None = None
) -> PairedComparison:
    """Compare macro-F1 of two predictions (N,) of the same answers or, without answers, how many of (N,) bool are true.

    McNemar's test assumes that what it counts is independent, so a cluster counts once, for the one that has more of it
    right. The bootstrap keeps together both predictions of an example, and the examples of a cluster.
    """
    if answers is None:
        right = np.stack([np.asarray(given, bool) for given in (first, second)], axis=1)
        sides = np.stack([right, np.ones_like(right), np.ones_like(right)], axis=2)[
            ..., None
        ]  # its F1 is the part right
    else:
        right = np.stack([_texts(answers) == _texts(given) for given in (first, second)], axis=1)
        sides = np.stack([_f1_counts(answers, given)[1] for given in (first, second)], axis=1)  # (N, 2, 3, L)
    low, high = bootstrap_interval(sides, lambda sums: -np.diff(_mean_f1(sums))[:, 0], clusters, -100.0, 100.0)
    a, b = _mean_f1(sides.sum(axis=0)).tolist()
    place = np.arange(len(right)) if clusters is None else _groups(clusters)[1]
    lead = np.bincount(place, right[:, 0].astype(int) - right[:, 1])
    ahead, behind = int((lead > 0).sum()), int((lead < 0).sum())
    return PairedComparison(len(right), a, b, a - b, low, high, ahead, behind, mcnemar(ahead, behind))


def mcnemar(first_only: int, second_only: int) -> float:
    """p-value of the two-sided exact McNemar test: do discordant clusters favour one of two?"""
    from scipy.stats import binomtest  # takes long to import

    total = first_only + second_only
    return float(binomtest(first_only, total).pvalue) if total else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number (Holm 1979): a level then bounds the probability of any false positive."""
    adjusted, order = np.empty(len(p_values)), np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values)[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return [float(p) for p in adjusted]


@dataclass(frozen=True)
class Agreement:
    """How often the same examples get the same answer twice, percent, with its interval. by_chance: the agreement of
    independent answers with the same frequencies. kappa: Cohen's, 0 at by_chance and 1 at 100 %; NaN if that is 100."""

    examples: int
    percent: float
    low: float
    high: float
    by_chance: float
    kappa: float


def agreement(first: Values, second: Values, clusters: Values | None = None) -> Agreement:
    """Agreement of two predictions (N,) of the same examples."""
    one, other = _texts(first), _texts(second)
    same, low, high = proportion(one == other, clusters)
    frequency = Counter(other.tolist())
    chance = 100 * sum(frequency[answer] for answer in one.tolist()) / len(one) / len(one)
    kappa = math.nan if chance == 100 else (same - chance) / (100 - chance)
    return Agreement(len(one), same, low, high, chance, kappa)
