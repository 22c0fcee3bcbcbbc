"""The answers of an evaluation: RUNS/NAME/answers.jsonl, one line for each reply, whole.

Lines are appended as replies arrive, so that an evaluation that is killed loses at most the replies under way. A last
line that was cut off is left out when the file is read, and removed before more is appended.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from train.results.store import ANSWERS
from travlr.questions.forms import Message


@dataclass(frozen=True)
class AnswerRecord:
    """One reply and what it says.

    request: digest of the request (`request_key`). answer: the right answer; parsed: the reply's, None if it has
    none; then `right` is False, and None where a model only ranks by `score`. objects: for the form `read`, see
    `travlr.questions.objects.ObjectErrors`. log_probabilities: of each fixed answer, with answers=likelihood. finish:
    why the reply ended, such as stop or length. score: how much the model says that the query is true
    (`train.ask.requests.Reply`).
    """

    id: str
    split: str
    setting: str
    request: str
    reply: str
    answer: str
    parsed: str | None
    right: bool | None
    objects: dict[str, int] | None = None
    log_probabilities: dict[str, float] | None = None
    finish: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    score: float | None = None


RECORD = TypeAdapter(AnswerRecord)


def request_key(messages: Sequence[Message]) -> str:
    """Digest of a request's texts and pictures."""
    digest = hashlib.sha256()
    for message in messages:
        for part in message["content"]:
            digest.update(part["image"] if part["type"] == "image" else part["text"].encode())
            digest.update(b"\0")
    return digest.hexdigest()[:16]


class AnswerFile:
    """The answers of an evaluation. Use it as a context to append. Raises `ValueError` if the file is damaged."""

    def __init__(self, folder: Path) -> None:
        self.path = Path(folder) / ANSWERS
        self.answers, self._end = _read(self.path)

    def __enter__(self) -> AnswerFile:
        self._file = open(self.path, "ab", buffering=0)
        self._file.truncate(self._end)
        return self

    def append(self, answer: AnswerRecord) -> None:
        """Append one answer, and pass it to the system at once. Raises `OSError` with the file's name, for
        example if the disk is full."""
        line = json.dumps(asdict(answer), ensure_ascii=False).encode() + b"\n"
        try:
            while line:
                line = line[self._file.write(line) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        self.answers[answer.split, answer.setting, answer.id] = answer

    def __exit__(self, *_: object) -> None:
        os.fsync(self._file.fileno())
        self._file.close()


def read_answers(folder: Path) -> list[AnswerRecord]:
    """The answers of an evaluation, in the order of their replies. Raises `ValueError` if the file is damaged."""
    return list(_read(Path(folder) / ANSWERS)[0].values())


def _read(path: Path) -> tuple[dict[tuple[str, str, str], AnswerRecord], int]:
    """Answers by (split, setting, id), the last of each, and the end of the last whole line."""
    answers: dict[tuple[str, str, str], AnswerRecord] = {}
    if not path.exists():
        return answers, 0
    end = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            end += len(line)
            try:
                answer = _answer(json.loads(line.decode()))
            except (ValueError, TypeError, AttributeError) as error:
                raise ValueError(f"{path}: line {number} is no answer ({error}); remove it to ask again") from None
            answers[answer.split, answer.setting, answer.id] = answer
    return answers, end


def _answer(values: Any) -> AnswerRecord:
    if not isinstance(values, dict) or set(values) != set(AnswerRecord.__dataclass_fields__):
        raise ValueError("it lacks a value, or has one that is not known")
    return RECORD.validate_python(values)
