"""Score columns of results (`train.results.columns`), of training and of evaluations, and how two settings compare."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from train.results.answers import AnswerRecord
from train.results.columns import Row
from travlr.metrics import (
    Agreement,
    PairedComparison,
    Scores,
    agreement,
    both_ranked,
    calibrated_accuracy,
    compare,
    couples_in_order,
    couples_right,
    measure,
    predictions_of,
    proportion,
    ranked,
    reply_scores,
    score_couples,
)
from travlr.questions import Outcome, measure_replies
from travlr.questions.objects import ObjectErrors


@dataclass(frozen=True)
class ExampleFacts:
    """What scores need of N examples, in order. answers: (N,) bool, whether the query is true. groups: N first items of
    the pair. clusters: (N,) scenes or pictures, for intervals. items, couples: (N,) their names, "" for none
    (`travlr.metrics.ranked`). sentences: (N,) where items exchange theirs, else None."""

    ids: Sequence[str]
    answers: np.ndarray
    groups: Sequence[str]
    clusters: np.ndarray
    items: np.ndarray
    couples: np.ndarray
    sentences: np.ndarray | None = None


def facts_in_order(
    ids: Sequence[str], answers: np.ndarray, groups: Sequence[str], clusters: np.ndarray
) -> ExampleFacts:
    """The facts of examples of a split from its first one on, whose couples are items, too."""
    couples = couples_in_order(answers)
    return ExampleFacts(ids, answers, groups, clusters, couples, couples)


# Columns -------------------------------------------------------------------------------------------------------------


def prediction_columns(logits: np.ndarray, facts: ExampleFacts) -> Row:
    """Score columns of one setting and split of a trained model: log-odds of true (N,). Chance is a coin's, 50 %.

    Raises `ValueError` if a logit is not a number.
    """
    given = predictions_of(logits)

    def scores(rows: np.ndarray) -> Scores:
        return measure(facts.answers[rows], given[rows], facts.clusters[rows], chance=50.0)

    return _columns(facts, scores, given == facts.answers, logits)


def result_columns(answers: Sequence[AnswerRecord], facts: ExampleFacts) -> Row:
    """Score columns of one setting and split of an evaluation; answers in the order of facts. A model that only ranks
    has no accuracy: its columns are None."""
    outcomes = [_outcome(answer) for answer in answers]

    def scores(rows: np.ndarray) -> Scores:
        return measure_replies([outcomes[row] for row in rows], facts.clusters[rows])

    right = np.array([outcome.right for outcome in outcomes])
    ranks = None
    if {outcome.answer for outcome in outcomes} <= {"true", "false"}:
        ranks = reply_scores([answer.score for answer in answers], [outcome.parsed for outcome in outcomes])
    columns = _columns(facts, None if only_ranks(answers) else scores, right, ranks)
    errors = [Counter(asdict(o.objects)) for o in outcomes if o.objects is not None]
    columns["objects"] = json.dumps(dict(sum(errors, Counter()))) if errors else None
    if all(answer.log_probabilities is not None for answer in answers):
        columns["calibrated_accuracy"] = calibrated_accuracy(
            [answer.answer for answer in answers], [answer.log_probabilities or {} for answer in answers]
        )
    for name in ("input_tokens", "output_tokens"):
        counts = [getattr(answer, name) for answer in answers]
        columns[name] = None if None in counts else sum(counts)
    return columns


def only_ranks(answers: Sequence[AnswerRecord]) -> bool:
    """Whether replies are scores without answers: those of a matcher without a threshold."""
    return any(a.score is not None for a in answers) and all(a.score is None or not a.reply for a in answers)


def _outcome(answer: AnswerRecord) -> Outcome:
    objects = ObjectErrors(**answer.objects) if answer.objects is not None else None
    return Outcome(answer.answer, answer.parsed, bool(answer.right), objects)


def _columns(
    facts: ExampleFacts,
    scores: Callable[[np.ndarray], Scores] | None,
    right: np.ndarray,
    ranks: np.ndarray | None,
) -> Row:
    """Columns of all examples, and `groups`. scores: of rows, None where there are only ranks. right: (N,) bool. ranks:
    (N,) how much each query is held to be true, None where answers are not true or false."""

    def of_rows(rows: np.ndarray) -> Row:
        row: Row = {"examples": len(rows)} if scores is None else asdict(scores(rows))
        answers, couples, clusters = facts.answers[rows], facts.couples[rows], facts.clusters[rows]
        if scores is not None:
            first, both = couples_right(answers, right[rows], couples)
            row |= _proportion_columns("couples_right", "couples", both, clusters[first])
        if ranks is not None:
            first, hits = ranked(ranks[rows], answers, facts.items[rows])
            row |= _proportion_columns("ranked", "ranked", hits, clusters[first])
            _, both = both_ranked(hits, couples[first])
            row["both_ranked"] = 100 * float(both.mean()) if len(both) else None
            if facts.sentences is not None:
                sentences = facts.sentences[rows]
                _, text, image = score_couples(ranks[rows], answers, facts.items[rows], sentences, couples)
                if len(text):
                    row |= {"image_score": 100 * float(image.mean()), "group_score": 100 * float((text & image).mean())}
        return row

    names, group = np.unique(np.asarray(facts.groups, str), return_inverse=True)
    row = of_rows(np.arange(len(group)))
    groups = {str(name): of_rows(np.flatnonzero(group == n)) for n, name in enumerate(names)}
    row["groups"] = json.dumps(groups) if len(groups) > 1 else None
    return row


def _proportion_columns(name: str, interval: str, hits: np.ndarray, clusters: np.ndarray) -> Row:
    """The percent of hits, and `interval`_low and `interval`_high; none where nothing is counted."""
    if not len(hits):
        return {}
    return dict(zip((name, f"{interval}_low", f"{interval}_high"), proportion(hits, clusters), strict=True))


class Baseline(Protocol):
    @property
    def macro_f1(self) -> float: ...
    @property
    def accuracy(self) -> float: ...


def baseline_columns(baselines: Mapping[str, Baseline]) -> Row:
    """Columns of baselines, by the names of `train.results.columns.BASELINES`."""
    scores = {f"baseline_{name}": baseline.macro_f1 for name, baseline in baselines.items()}
    return scores | {f"baseline_{name}_accuracy": baseline.accuracy for name, baseline in baselines.items()}


# Two settings --------------------------------------------------------------------------------------------------------


def compare_settings(
    answers: Sequence[AnswerRecord], split: str, first: str, second: str, count: int | None = None
) -> tuple[PairedComparison, Agreement] | None:
    """How accuracies of two settings on a split differ (the gap), and how often their answers agree: on the examples
    with a parsed answer in both, of the first `count` with replies in both. None if there is none."""
    settings = [{a.id: a for a in answers if (a.split, a.setting) == (split, name)} for name in (first, second)]
    pairs = [(settings[0][id], settings[1][id]) for id in sorted(settings[0].keys() & settings[1].keys())[:count]]
    pairs = [(a, b) for a, b in pairs if a.parsed is not None and b.parsed is not None]
    if not pairs:
        return None
    right: list[list[Any]] = [[answer.right for answer in side] for side in zip(*pairs, strict=True)]
    parsed: list[list[Any]] = [[answer.parsed for answer in side] for side in zip(*pairs, strict=True)]
    return compare(*right), agreement(*parsed)
