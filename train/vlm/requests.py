"""Requests and replies: what passes between an evaluation and whatever answers it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from travlr.questions import Question
from travlr.questions.forms import Message

# Spellings of the answers of `true_false`; yes and no count as well.
SPELLINGS = {"true": "true", "yes": "true", "false": "false", "no": "false"}


@dataclass(frozen=True)
class Request:
    """One example in one setting. key: digest of the messages."""

    id: str
    split: str
    setting: str
    messages: list[Message]
    question: Question
    key: str


@dataclass(frozen=True)
class Reply:
    """What a model wrote, why it ended, and its tokens; with answers=likelihood the likeliest answer, and the
    log-probability of each."""

    text: str
    finish: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    log_probabilities: Mapping[str, float] | None = None


class Backend(Protocol):
    """Whatever answers requests."""

    def replies(self, requests: Iterable[Request | None]) -> Iterator[tuple[Request, Reply]]:
        """A reply to each request, in any order. None in place of a request: wait for a reply before the next one.

        Raises `ValueError`, in one line, where there is no reply.
        """
        ...


def fixed_answers(question: Question) -> list[str]:
    """The answers of a question that has fixed ones."""
    return ["true", "false"] if question.form == "true_false" else list(question.wordings)


def answer_of_token(token: str, question: Question) -> str | None:
    """The fixed answer that a token is, in any of its spellings, with or without a space before it."""
    word = token.strip(" \u2581\u0120")
    if question.form == "true_false":
        return SPELLINGS.get(word.lower())
    return word if word in question.wordings else None


def best_answer(log_probabilities: Mapping[str, float]) -> str:
    """The likeliest answer, "" where there is none."""
    return max(log_probabilities, key=log_probabilities.__getitem__, default="")
