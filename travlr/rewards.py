"""Rewards for reinforcement learning: exact, by the parser and the scores of `evaluate.py`.

`correct` has the signature that TRL's GRPO and ms-swift call: `trl grpo --reward_funcs travlr.rewards.correct`. Its
column `question` is in the rows of `travlr.finetuning`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from travlr.questions import Question, score_reply

QUESTION = TypeAdapter(Question)

# What a model wrote: a text, or messages of which the last one is the reply.
Completion = str | Sequence[Mapping[str, Any]]


def correct(completions: Sequence[Completion], question: Sequence[str], **columns: Any) -> list[float]:
    """The reward of each completion, from 0 to 1. question: for each the JSON of its `Question`; other columns are not
    read."""
    questions = map(QUESTION.validate_json, question)
    return [reward(reply_text(reply), asked) for reply, asked in zip(completions, questions, strict=True)]


def reward(reply: str, question: Question) -> float:
    """1.0 for a right reply, 0.0 for a wrong one or one without an answer.

    For the form `read`, the part of objects that are right (their F1): an object that is not there costs as much as a
    missed one.
    """
    outcome = score_reply(reply, question)
    return float(outcome.right) if outcome.objects is None else outcome.objects.f1


def reply_text(completion: Completion) -> str:
    """The text of a completion."""
    if isinstance(completion, str):
        return completion
    content = completion[-1]["content"] or "" if completion else ""
    return content if isinstance(content, str) else "".join(part.get("text") or "" for part in content)
