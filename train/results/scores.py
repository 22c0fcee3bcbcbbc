"""How good predictions are, how sure that is, and what a rule reaches that never looks at the scene.

All scores are percent, 0 to 100, as the paper prints them. The metric is macro-F1 (paper, appendix B.1). A prediction
is true where its logit, the log-odds of true kept as float32, is above 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from travlr.scene import COLOURS, SHAPES

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


def predicted(logits: np.ndarray) -> np.ndarray:
    """Predictions (N,) bool of log-odds of true (N,). Raises `ValueError` where one is not a number."""
    kept = np.asarray(logits, np.float32)
    if np.isnan(kept).any():
        raise ValueError(f"{np.isnan(kept).sum()} of {kept.size} logits are not numbers; the model has diverged")
    return kept > 0


def score(answers: np.ndarray, logits: np.ndarray, clusters: np.ndarray | None = None, seed: int = 0) -> Scores:
    """Scores of N predictions: answers (N,) bool, logits (N,) log-odds of true, clusters (N,) int or None.

    F1 of a class that is neither predicted nor the answer is 0. The interval takes the 2.5 and 97.5 percentiles of
    macro-F1 in 1,000 resamples of the examples or, where given, of whole clusters: of the examples that share a scene,
    say. Resamples of faultless predictions are all faultless; there the low end is macro-F1 times the accuracy that
    would show no fault in so many examples (clusters) once in 40 times. The binomial test takes examples as independent
    whatever the clusters are, and where one answer is commoner than the other a constant answer can pass it. Raises
    `ValueError` where there is nothing to score, or a logit is not a number.
    """
    truth, guess = np.asarray(answers, bool), predicted(logits)
    if truth.shape != guess.shape or truth.ndim != 1 or not len(guess):
        raise ValueError(f"answers {truth.shape} and logits {guess.shape}: needs (N,) of each and N of at least 1")
    cells = 2 * ~truth + ~guess
    counts = np.bincount(cells, minlength=4)
    f1_true, f1_false = 100 * f1_scores(counts)
    right = int(counts[0] + counts[3])
    p_value = chance(right, len(guess))
    low, high = ends(100 * f1_scores(resampled(cells, 4, clusters, seed)).mean(axis=1))
    if right == len(guess):
        low = float(f1_true + f1_false) / 2 * 0.025 ** (1 / independent(clusters, len(guess)))
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
    """F1 of true and of false (..., 2), as parts of 1, of counts (..., 4): true as true, as false; false so, and so."""
    right = 2.0 * counts[..., [0, 3]]
    involved = right + (counts[..., 1] + counts[..., 2])[..., None]
    return np.divide(right, involved, out=np.zeros_like(right), where=involved > 0)


def resampled(codes: np.ndarray, kinds: int, clusters: np.ndarray | None = None, seed: int = 0) -> np.ndarray:
    """How many examples of each kind there are in 1,000 resamples of whole clusters: (1000, kinds).

    codes: (N,) the kind of each example, from 0. clusters: (N,) equal where examples belong together; None for each
    alone. Clusters with equal counts are interchangeable, so a resample is a draw of how often each pattern occurs.
    """
    codes = np.asarray(codes)
    patterns, times = np.eye(kinds, dtype=np.int64), np.bincount(codes, minlength=kinds)
    if clusters is not None and np.shape(clusters) != codes.shape:
        raise ValueError(f"clusters {np.shape(clusters)} for {len(codes)} examples: needs one for each")
    if clusters is not None and independent(clusters, len(codes)) < len(codes):
        names, place = np.unique(clusters, return_inverse=True)
        counts = np.bincount(place * kinds + codes, minlength=len(names) * kinds).reshape(-1, kinds)
        patterns, times = np.unique(counts, axis=0, return_counts=True)
    total = int(times.sum())
    draws = np.random.default_rng(seed).multinomial(total, times / total, size=RESAMPLES)
    return np.asarray(draws @ patterns)


def independent(clusters: np.ndarray | None, examples: int) -> int:
    """How many clusters there are: as many as examples where there is None."""
    return examples if clusters is None else len(np.unique(clusters))


def ends(values: np.ndarray) -> tuple[float, float]:
    """Of a 95 % interval, by percentiles of resampled values."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def chance(right: int, examples: int) -> float:
    """Probability that a fair coin gets at least `right` of `examples` right: the exact binomial test's p-value."""
    if right <= 0:
        return 1.0
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, examples + 1)))])  # of factorials
    k = np.arange(right, examples + 1)
    ways = logs[examples] - logs[k] - logs[examples - k]
    return float(min(1.0, np.exp(np.logaddexp.reduce(ways) - examples * np.log(2))))


def by_group(
    answers: np.ndarray,
    logits: np.ndarray,
    groups: Sequence[str],
    clusters: np.ndarray | None = None,
    seed: int = 0,
) -> dict[str, Scores]:
    """Scores of each group of examples, such as those whose pairs have the same first item; groups: N names."""
    answers, logits, named = np.asarray(answers), np.asarray(logits), np.asarray(groups)
    if named.shape != answers.shape:
        raise ValueError(f"groups {named.shape} for answers {answers.shape}: needs one for each")
    found = {}
    for name in np.unique(named):
        here = named == name
        within = None if clusters is None else np.asarray(clusters)[here]
        found[str(name)] = score(answers[here], logits[here], within, seed)
    return found


def couples_right(answers: np.ndarray, logits: np.ndarray) -> float | None:
    """Percent of couples with both answers right; None where examples 2k and 2k + 1 do not all differ in answer.

    Our splits are made of couples with one query text, true in one scene and false in the other (`travlr.sampler`),
    so a coin gets 25 % and a constant answer, or one that depends on the query alone, nothing. Examples must be whole
    splits (or a part with whole couples) in order; published data has no couples.
    """
    answers = np.asarray(answers, bool)
    if len(answers) % 2 or not len(answers) or (answers[0::2] == answers[1::2]).any():
        return None
    right = predicted(logits) == answers
    return 100 * float(np.mean(right[0::2] & right[1::2]))


# What text alone gives ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QueryTexts:
    """What a rule that does not look may know of N examples; objects: (N,) how many objects each scene has."""

    queries: Sequence[str]
    answers: np.ndarray
    objects: np.ndarray


@dataclass(frozen=True)
class Baseline:
    """What a text-only rule reaches, percent. Where the rule tosses a coin, half an example counts for either side."""

    macro_f1: float
    accuracy: float


_NUMBER = re.compile(r"\d+")
_ATTRIBUTE = re.compile(rf"\b(?:{'|'.join((*COLOURS, *SHAPES))})s?\b")


def text_baselines(train: QueryTexts, test: QueryTexts) -> dict[str, Baseline]:
    """Floors `query` and `query_objects`: rules fitted on `train` and applied to `test`.

    Each answers as most training examples with the same query text (and number of objects) do. Where that majority is
    within one standard error of a tie, as for every unseen text, it goes by the text with colours and shapes masked,
    then with numbers masked, then with both, then by all examples, and at last by a fair coin. `query_objects` tries
    all of these with the number of objects before any without.
    """
    for texts in (train, test):
        if not len(texts.queries) == len(texts.answers) == len(texts.objects):
            raise ValueError("floors need a query, an answer and a number of objects for each example")
    if not len(test.queries):
        raise ValueError("floors need at least one test example")
    levels = _masked([*train.queries, *test.queries])
    numbers, place = np.unique(np.concatenate([train.objects, test.objects]), return_inverse=True)
    with_objects = [codes * len(numbers) + place for codes in levels]
    answers = np.asarray(train.answers, bool)
    votes = {"query": _votes(levels, answers), "query_objects": _votes([*with_objects, *levels], answers)}
    return {name: _baseline(np.asarray(test.answers, bool), vote) for name, vote in votes.items()}


def _masked(queries: Sequence[str]) -> list[np.ndarray]:
    """Codes (N,) of each text: as it is, and with more and more of it masked."""
    names: dict[str, int] = {}
    codes = np.array([names.setdefault(query, len(names)) for query in queries], np.int64)
    levels = [codes]
    for attributes, numbers in ((True, False), (False, True), (True, True)):
        masked: dict[str, int] = {}
        of_text = []
        for text in names:
            text = _ATTRIBUTE.sub("*", text) if attributes else text
            text = _NUMBER.sub("0", text) if numbers else text
            of_text.append(masked.setdefault(text, len(masked)))
        levels.append(np.array(of_text, np.int64)[codes])
    return [*levels, np.zeros_like(codes)]


def _votes(levels: list[np.ndarray], answers: np.ndarray) -> np.ndarray:
    """What the first level with a clear majority says of each test example: 1, 0, or 0.5 for a coin.

    levels: codes of the training and then the test examples. answers: those of the training examples.
    """
    train = len(answers)
    votes = np.full(len(levels[0]) - train, 0.5)
    for codes in reversed(levels):
        size = int(codes.max()) + 1
        seen = np.bincount(codes[:train], minlength=size)
        lead = 2 * np.bincount(codes[:train][answers], minlength=size) - seen  # standard error of a coin: sqrt(seen)
        here = codes[train:]
        votes = np.where((lead**2 > seen)[here], lead[here] > 0, votes)
    return votes


def _baseline(answers: np.ndarray, votes: np.ndarray) -> Baseline:
    said, denied = votes[answers].sum(), votes[~answers].sum()
    counts = np.array([said, answers.sum() - said, denied, (~answers).sum() - denied])
    return Baseline(100 * float(f1_scores(counts).mean()), 100 * float(counts[0] + counts[3]) / len(answers))
