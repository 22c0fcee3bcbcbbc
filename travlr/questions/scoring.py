"""Scores of parsed answers. A reply that could not be parsed counts as wrong, and `Summary.unparsed` counts it too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Summary:
    """Scores of N replies, in percent.

    macro_f1: mean over the right answers that occur of the F1 of each; for `read` the F1 of objects. unparsed: replies
    that give no answer. bias: by how many points the answer `bias_answer` is given more often than it is right, over
    parsed replies; the answer with the largest excess, None without one. chance: accuracy of the best constant
    answer, 0 for `read`.
    """

    examples: int
    accuracy: float
    macro_f1: float
    unparsed: float
    bias: float
    bias_answer: str | None
    chance: float


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


def summary(outcomes: Sequence[Outcome]) -> Summary:
    """Scores of all replies of one model in one form. Raises `ValueError` where there are none."""
    if not outcomes:
        raise ValueError("no replies to score")
    total = len(outcomes)
    right = sum(o.right for o in outcomes)
    unparsed = sum(o.parsed is None for o in outcomes)
    objects = [o.objects for o in outcomes if o.objects is not None]
    bias, bias_answer, chance = 0.0, None, 0.0
    if objects:
        macro = _object_f1(objects)
    else:
        macro = macro_f1([o.answer for o in outcomes], [o.parsed for o in outcomes])
        chance = 100 * max(Counter(o.answer for o in outcomes).values()) / total
        bias, bias_answer = _bias([(o.answer, o.parsed) for o in outcomes if o.parsed is not None])
    return Summary(total, 100 * right / total, macro, 100 * unparsed / total, bias, bias_answer, chance)


def macro_f1(answers: Sequence[str], parsed: Sequence[str | None]) -> float:
    """Mean F1 of the right answers that occur, in percent; F1 is 0 for one that no reply gives."""
    right, replies = Counter(answers), Counter(parsed)
    hits = Counter(a for a, p in zip(answers, parsed, strict=True) if a == p)
    return 100 * sum(2 * hits[a] / (right[a] + replies[a]) for a in right) / len(right)


def _object_f1(objects: Sequence[ObjectErrors]) -> float:
    right = sum(e.found for e in objects)
    almost = sum(e.misplaced + e.miscoloured + e.misshaped for e in objects)
    in_scenes = right + almost + sum(e.missed for e in objects)
    in_replies = right + almost + sum(e.invented for e in objects)
    return 100 * 2 * right / max(in_scenes + in_replies, 1)


def _bias(pairs: Sequence[tuple[str, str]]) -> tuple[float, str | None]:
    if not pairs:
        return 0.0, None
    right, replies = (Counter(values) for values in zip(*pairs, strict=True))
    answer = max(sorted({*right, *replies}), key=lambda a: replies[a] - right[a])
    excess = 100 * (replies[answer] - right[answer]) / len(pairs)
    return excess, answer if excess else None
