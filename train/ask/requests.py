"""Requests of an evaluation and replies of a model or server."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from PIL import Image
from scipy.special import log_expit

from travlr.corpora.pictures import on_white
from travlr.questions import Question
from travlr.questions.forms import Message
from travlr.settings import in_one_line

# Spellings of the answers of `true_false`; yes and no count as well.
SPELLINGS = {"true": "true", "yes": "true", "false": "false", "no": "false"}

REFUSED = "refused"  # why a reply ended that is a refusal in the server's words, and has no answer


@dataclass(frozen=True)
class Request:
    """One example in one setting. key: digest of the messages. picture: the path of its picture in the dataset, by
    which regions in files are looked up; empty for a blank one."""

    id: str
    split: str
    setting: str
    messages: list[Message]
    question: Question
    key: str
    picture: str = ""


@dataclass(frozen=True)
class Reply:
    """The text of a reply, why it ended, and numbers of tokens.

    With answers=likelihood, the text is the likeliest answer, and log_probabilities has every answer. score: how much
    the model says that the query is true, as log-odds, logit or cosine; None where it says so in words alone. A matcher
    without a threshold ranks by its scores; its text is empty.
    """

    text: str
    finish: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    log_probabilities: dict[str, float] | None = None
    score: float | None = None


class Backend(Protocol):
    """A model or server that answers requests. settings: what it takes."""

    @property
    def settings(self) -> tuple[str, ...]: ...

    def replies(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Reply]]:
        """A reply to each request, in any order. Raises `ValueError`, in one line, if there is no reply."""
        ...


def picture_of(request: Request) -> bytes:
    """The file of the picture that a request shows; empty without one."""
    parts = request.messages[0]["content"]
    return next((part["image"] for part in parts if part["type"] == "image"), b"")


def open_picture(data: bytes, path: str = "") -> Image.Image:
    """The picture in a file, RGB, transparent parts on white; `info["path"]` is its path in the dataset."""
    try:
        picture = on_white(Image.open(io.BytesIO(data)))
    except Exception as error:  # Pillow's decoders can raise anything
        raise ValueError(f"picture {path}: cannot be read ({in_one_line(error)})") from None
    picture.info["path"] = path
    return picture


def fixed_answers(question: Question) -> list[str]:
    """The answers of a question with fixed answers."""
    return ["true", "false"] if question.form == "true_false" else list(question.wordings)


def answer_of_token(token: str, question: Question) -> str | None:
    """The fixed answer that a token is, in any of its spellings, with or without a space before it."""
    word = token.strip(" \u2581\u0120")
    if question.form == "true_false":
        return SPELLINGS.get(word.lower())
    return word if word in question.wordings else None


def reply_to_odds(odds: float) -> Reply:
    """The reply of a model whose output is the log-odds of true."""
    logs = {"true": float(log_expit(odds)), "false": float(log_expit(-odds))}
    return Reply("true" if odds > 0 else "false", log_probabilities=logs, score=odds)


def log_odds_of(log_probabilities: Mapping[str, float], lowest: float | None = None) -> float | None:
    """The log-odds of true; lowest: for an answer without a log-probability. None without those of both."""
    true, false = (log_probabilities.get(answer, lowest) for answer in ("true", "false"))
    return None if true is None or false is None or not log_probabilities else true - false


def best_answer(log_probabilities: Mapping[str, float]) -> str:
    """The likeliest answer, "" if there is none."""
    return max(log_probabilities, key=log_probabilities.__getitem__, default="")
