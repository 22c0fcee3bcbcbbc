"""Requests of an evaluation and replies of a model or server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from travlr.questions import Question
from travlr.questions.forms import Message

# Spellings of the answers of `true_false`; yes and no count as well.
SPELLINGS = {"true": "true", "yes": "true", "false": "false", "no": "false"}

REFUSED = "refused"  # why a reply ended that is a refusal in the server's words, and has no answer


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
    """The text of a reply, why it ended, and numbers of tokens.

    With answers=likelihood, the text is the likeliest answer, and log_probabilities has every answer.
    """

    text: str
    finish: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    log_probabilities: dict[str, float] | None = None


class Backend(Protocol):
    """A model or server that answers requests."""

    def replies(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Reply]]:
        """A reply to each request, in any order. Raises `ValueError`, in one line, if there is no reply."""
        ...


def fixed_answers(question: Question) -> list[str]:
    """The answers of a question with fixed answers."""
    return ["true", "false"] if question.form == "true_false" else list(question.wordings)


def answer_of_token(token: str, question: Question) -> str | None:
    """The fixed answer that a token is, in any of its spellings, with or without a space before it."""
    word = token.strip(" \u2581\u0120")
    if question.form == "true_false":
        return SPELLINGS.get(word.lower())
    return word if word in question.wordings else None


def best_answer(log_probabilities: Mapping[str, float]) -> str:
    """The likeliest answer, "" if there is none."""
    return max(log_probabilities, key=log_probabilities.__getitem__, default="")
