"""Scores of an evaluation's answers, without torch: a row for each setting and split, and how settings compare.

Intervals are 95 % percentiles of 1,000 bootstrap resamples of whole scenes, so that examples which share a scene count
as one observation.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from train.results.answers import AnswerRecord
from train.results.scores import LEVEL, binomial_p_value, bootstrap_counts, couple_scores, percentile_interval, resample
from travlr.metrics import both_ranked, proportion, ranked, reply_scores
from travlr.questions import Outcome, summary
from travlr.questions.objects import ObjectErrors


@dataclass(frozen=True)
class ExampleFacts:
    """What scores need of the examples of one split, in order. answers: (N,) bool, whether the query is true. groups:
    N first items of the pair. clusters: (N,) numbers of scenes or pictures. items, couples: (N,) as of
    `travlr.corpora.item_columns`."""

    ids: list[str]
    answers: np.ndarray
    groups: list[str]
    clusters: np.ndarray
    items: np.ndarray
    couples: np.ndarray


def result_columns(answers: Sequence[AnswerRecord], facts: ExampleFacts) -> dict[str, Any]:
    """Score columns of one setting and split (`RESULT_COLUMNS`); answers in the order of facts. A model that only ranks
    has no accuracy: its columns are None."""
    columns: dict[str, Any] = {"examples": len(answers)} if only_ranks(answers) else decision_columns(answers, facts)
    columns |= ranking_columns(answers, facts)
    columns["groups"] = json.dumps(group_scores(answers, facts)) if len(set(facts.groups)) > 1 else None
    for name in ("input_tokens", "output_tokens"):
        counts = [getattr(answer, name) for answer in answers]
        columns[name] = None if None in counts else sum(counts)
    return columns


def only_ranks(answers: Sequence[AnswerRecord]) -> bool:
    """Whether replies are scores without answers: those of a matcher without a threshold."""
    return any(a.score is not None for a in answers) and all(a.score is None or not a.reply for a in answers)


def ranking_columns(answers: Sequence[AnswerRecord], facts: ExampleFacts) -> dict[str, Any]:
    """How often the true sentences of an item have higher scores than its false ones; empty for other questions than
    true or false. Where others have scores, an answer without one makes its item wrong."""
    if not {answer.answer for answer in answers} <= {"true", "false"}:
        return {}
    scores = reply_scores([a.score for a in answers], [a.parsed for a in answers])
    missing = np.array([a.score is None for a in answers])
    scores[missing & ~missing.all()] = np.nan
    first, right = ranked(scores, facts.answers, facts.items)
    if not len(first):
        return {}
    percent, low, high = proportion(right, facts.clusters[first])
    both = both_ranked(right, facts.couples[first])[1]
    columns = {"ranked": percent, "ranked_low": low, "ranked_high": high}
    return columns | ({"both_ranked": 100 * float(both.mean())} if len(both) else {})


def decision_columns(answers: Sequence[AnswerRecord], facts: ExampleFacts) -> dict[str, Any]:
    """Columns of replies that are right or wrong."""
    outcomes = [outcome_of(answer) for answer in answers]
    scores = summary(outcomes)
    right = np.array([outcome.right for outcome in outcomes])
    low, high = bootstrap_interval(outcomes, facts.clusters)
    columns: dict[str, Any] = {**asdict(scores), **significance(int(right.sum()), len(right), scores.chance)}
    columns |= {"interval_low": low, "interval_high": high}
    columns |= couple_scores(facts.answers, np.where(right == facts.answers, 1.0, -1.0))
    columns["calibrated_accuracy"] = calibrated_accuracy(answers)
    errors = [Counter(asdict(o.objects)) for o in outcomes if o.objects is not None]
    columns["objects"] = json.dumps(dict(sum(errors, Counter()))) if errors else None
    if set(scores_of := {o.answer for o in outcomes}) <= {"true", "false"}:
        columns |= {f"f1_{value}": _f1(outcomes, value) for value in sorted(scores_of)}
    return columns


def outcome_of(answer: AnswerRecord) -> Outcome:
    objects = ObjectErrors(**answer.objects) if answer.objects is not None else None
    return Outcome(answer.answer, answer.parsed, answer.right, objects)


def _f1(outcomes: Sequence[Outcome], value: str) -> float:
    hits = sum(o.answer == value == o.parsed for o in outcomes)
    return 200 * hits / sum((o.answer == value) + (o.parsed == value) for o in outcomes)


def significance(right: int, examples: int, chance: float) -> dict[str, Any]:
    """One-sided exact binomial test that accuracy is above chance (percent); None for a chance of 0."""
    if not chance:
        return {"p_value": None, "above_random": None, "test": None}
    p_value = binomial_p_value(right, examples, chance / 100)
    test = f"exact binomial, accuracy > {chance:.4g} %, p < {LEVEL}"
    return {"p_value": p_value, "above_random": p_value < LEVEL, "test": test}


def group_scores(answers: Sequence[AnswerRecord], facts: ExampleFacts) -> dict[str, dict[str, Any]]:
    """The scores of the examples with the same first item of the pair."""
    members: dict[str, list[int]] = {}
    for row, group in enumerate(facts.groups):
        members.setdefault(group, []).append(row)
    scores = {}
    for group, rows in sorted(members.items()):
        of_group = [answers[row] for row in rows]
        summed = {} if only_ranks(answers) else asdict(summary([outcome_of(answer) for answer in of_group]))
        columns = {name: getattr(facts, name)[rows] for name in ("answers", "clusters", "items", "couples")}
        part = ExampleFacts([facts.ids[row] for row in rows], groups=[group] * len(rows), **columns)
        scores[group] = summed | ranking_columns(of_group, part)
    return scores


def bootstrap_interval(outcomes: Sequence[Outcome], scenes: np.ndarray) -> tuple[float, float]:
    """95 % interval of the macro-F1 of `travlr.questions.summary`."""
    if outcomes[0].objects is not None:
        return percentile_interval(_object_f1(outcomes, scenes))
    answers = sorted({o.answer for o in outcomes})
    replies = [*answers, *sorted({o.parsed or "" for o in outcomes} - set(answers))]
    codes = [answers.index(o.answer) * len(replies) + replies.index(o.parsed or "") for o in outcomes]
    counts = bootstrap_counts(np.array(codes), len(answers) * len(replies), scenes)
    counts = counts.reshape(-1, len(answers), len(replies))  # (resamples, right answer, reply's answer)
    hits = counts[:, np.arange(len(answers)), np.arange(len(answers))]
    true = counts.sum(2)
    total = true + counts.sum(1)[:, : len(answers)]
    f1 = np.divide(2.0 * hits, total, out=np.zeros(hits.shape), where=total > 0)
    occurs = true > 0
    return percentile_interval(100 * (f1 * occurs).sum(1) / np.maximum(occurs.sum(1), 1))


def _object_f1(outcomes: Sequence[Outcome], scenes: np.ndarray) -> np.ndarray:
    """F1 of objects in 1,000 resamples of scenes."""
    sums = np.array([_object_counts(o.objects) for o in outcomes if o.objects is not None])  # (N, 2)
    clusters = np.unique(scenes, return_inverse=True)[1]
    totals = np.stack([np.bincount(clusters, column) for column in sums.T], axis=1)  # (scenes, 2)
    samples = resample(*np.unique(totals, axis=0, return_counts=True))
    return np.asarray(100 * samples[:, 0] / np.maximum(samples[:, 1], 1))


def _object_counts(errors: ObjectErrors) -> tuple[int, int]:
    """Twice the objects found, and objects of the scene plus objects of the reply."""
    both = errors.found + errors.misplaced + errors.miscoloured + errors.misshaped
    return 2 * errors.found, 2 * both + errors.missed + errors.invented


def calibrated_accuracy(answers: Sequence[AnswerRecord]) -> float | None:
    """Accuracy in percent after batch calibration (Zhou et al. 2024); None without log-probabilities.

    Calibration subtracts from the log-probability of each answer its mean over all examples, so that a general
    preference for one answer has no effect.
    """
    if not answers or any(answer.log_probabilities is None for answer in answers):
        return None
    given = [answer for answer in answers if answer.log_probabilities]  # others have no answer, and are not right
    if not given:
        return None
    names = sorted({name for answer in given for name in answer.log_probabilities or ()})
    table = np.array([[(a.log_probabilities or {}).get(name, np.nan) for name in names] for a in given])
    table -= np.nanmean(table, axis=0)
    best = np.nanargmax(table, axis=1)
    return 100 * sum(names[i] == answer.answer for i, answer in zip(best, given, strict=True)) / len(answers)


@dataclass(frozen=True)
class SettingComparison:
    """Two settings on the same examples, in percent. examples: how many have a parsed answer in both settings; all else
    is of these alone. gap: accuracy of the first minus that of the second, in points. low, high: its 95 % interval.
    agreement: examples with the same answer; expected: what independent answers with the same frequencies would
    give."""

    examples: int

    gap: float
    low: float
    high: float
    agreement: float
    expected: float


def compare_settings(
    answers: Sequence[AnswerRecord], split: str, first: str, second: str, count: int | None = None
) -> SettingComparison | None:
    """Two settings on a split, on the first `count` examples with replies in both; None if no example has a parsed
    answer in both."""
    settings = [{a.id: a for a in answers if (a.split, a.setting) == (split, name)} for name in (first, second)]
    pairs = [(settings[0][id], settings[1][id]) for id in sorted(settings[0].keys() & settings[1].keys())[:count]]
    pairs = [(a, b) for a, b in pairs if a.parsed is not None and b.parsed is not None]
    if not pairs:
        return None
    differences = np.array([int(a.right) - int(b.right) for a, b in pairs])
    counts = bootstrap_counts(differences + 1, 3)
    low, high = percentile_interval(100 * (counts[:, 2] - counts[:, 0]) / counts.sum(1))
    same = sum(a.parsed == b.parsed for a, b in pairs)
    frequencies = Counter(b.parsed for _, b in pairs)
    by_chance = sum(frequencies[a.parsed] for a, _ in pairs)
    return SettingComparison(
        examples=len(pairs),
        gap=100 * float(differences.mean()),
        low=low,
        high=high,
        agreement=100 * same / len(pairs),
        expected=100 * by_chance / len(pairs) / len(pairs),
    )
