"""Scores of parsed answers. A reply that could not be parsed counts as wrong, and `Scores.unparsed` counts it too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from travlr.metrics import Scores, Values, bootstrap_interval, measure
from travlr.questions.forms import Question
from travlr.questions.objects import ObjectErrors, compare_objects, objects_text
from travlr.questions.parsing import parse
from travlr.scene import Scene


@dataclass(frozen=True)
class Outcome:
    """One scored reply. answer: the right one. parsed: the reply's, None where it gives none; lines of objects for the
    form `read`, whose `objects` says how they compare with the scene."""

    answer: str
    parsed: str | None
    right: bool
    objects: ObjectErrors | None = None


def score(parsed: str | Scene | None, question: Question) -> Outcome:
    """Compare a parsed answer with the right one."""
    if question.form != "read":
        assert parsed is None or isinstance(parsed, str)
        return Outcome(question.answer, parsed, parsed == question.answer)
    if parsed is None:
        return Outcome(objects_text(question.scene), None, False, compare_objects(question.scene, ()))
    assert not isinstance(parsed, str)
    errors = compare_objects(question.scene, parsed)
    return Outcome(objects_text(question.scene), objects_text(parsed), errors.exact, errors)


def score_reply(reply: str, question: Question, cut_off: bool = False) -> Outcome:
    """Read a reply and score it. cut_off: the tokens ran out, so that a reply without a marked answer may have none."""
    unfinished = cut_off and question.form != "read" and _still_thinking(reply)
    return score(None if unfinished else parse(reply, question), question)


def _still_thinking(reply: str) -> bool:
    """Whether a cut-off reply had not reached its answer: it has several lines, and marks no answer."""
    return "\n" in reply.strip() and "answer" not in reply.lower()


def measure_replies(outcomes: Sequence[Outcome], clusters: Values | None = None) -> Scores:
    """Scores of all replies of one model in one form; for `read`, macro-F1 is the F1 of objects, and there is no
    chance. Raises `ValueError` where there are none."""
    objects = [o.objects for o in outcomes if o.objects is not None]
    if not objects:
        return measure([o.answer for o in outcomes], [o.parsed for o in outcomes], clusters)
    # A list is right, wrong or none; which it is says nothing.
    given = [None if o.parsed is None else str(o.right) for o in outcomes]
    counts = np.array([errors.f1_parts for errors in objects])
    low, high = bootstrap_interval(counts, _object_f1, clusters)
    return replace(
        measure(["True"] * len(given), given, clusters),
        macro_f1=float(_object_f1(counts.sum(axis=0))),
        interval_low=low,
        interval_high=high,
        bias=0.0,
        bias_answer=None,
        chance=0.0,
        p_value=None,
        above_random=None,
        test=None,
    )


def _object_f1(counts: np.ndarray) -> np.ndarray:
    """F1 (...), percent, of sums (..., 2) of `ObjectErrors.f1_parts`."""
    return np.asarray(100 * counts[..., 0] / np.maximum(counts[..., 1], 1))
