"""Rows to train on: what a model is asked about an example, and the right reply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import pyarrow as pa
from pydantic import BeforeValidator, field_validator

from render.png import decode
from travlr.config import one_of
from travlr.dataset import Example
from travlr.formats.columns import IMAGE
from travlr.harness.records import QuestionSettings
from travlr.questions import make_question, messages, right_reply
from travlr.rewards import QUESTION
from travlr.scene import SPLITS
from travlr.settings import as_texts

ChatRow = dict[str, Any]
_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
COLUMNS: dict[str, pa.DataType] = {
    "id": pa.string(),
    "setting": pa.string(),
    "prompt": _MESSAGES,
    "completion": _MESSAGES,
    "question": pa.string(),
    "images": pa.list_(IMAGE),
}


class RowSettings(QuestionSettings):
    """Which questions are asked, and of which splits."""

    split: Annotated[tuple[Annotated[str, one_of("split", SPLITS)], ...], BeforeValidator(as_texts)] = (
        "train",
        "validation",
    )

    @field_validator("setting")
    @classmethod
    def _some(cls, setting: tuple[str, ...]) -> tuple[str, ...]:
        if not setting:
            raise ValueError("setting: give at least one")
        return setting

    @property
    def shows_pictures(self) -> bool:
        return self.setting != ("caption",)


def make_rows(examples: Iterable[Example], settings: RowSettings, grid: tuple[int, int] | None) -> Iterator[ChatRow]:
    """A row for each example and each of its settings, in this order.

    `id`, and `setting`; `prompt`, `completion`: the messages of a user and of the model, with texts, as TRL has them;
    `question`: JSON for `travlr.rewards`; `images`: the file (PNG or JPEG) of the picture that stands before the text,
    or none. Where no setting shows pictures, rows have no `images`, which trainers of text models refuse. grid: as for
    `messages`. Raises `ValueError` where a form does not fit the examples.
    """
    for example in examples:
        question = make_question(example, settings.form)
        encoded = QUESTION.dump_json(question).decode()
        for setting in settings.setting:
            (message,) = messages(question, example, setting, settings.prompt, grid)
            *images, text = message["content"]
            row = {
                "id": example.id,
                "setting": setting,
                "prompt": [{"role": "user", "content": text["text"]}],
                "completion": [
                    {"role": "assistant", "content": right_reply(question, example, settings.prompt, setting)}
                ],
                "question": encoded,
            }
            pictures = {"images": [part["image"] for part in images]} if settings.shows_pictures else {}
            yield row | pictures


def with_pictures(row: ChatRow) -> ChatRow:
    """A row with Pillow images in place of files."""
    return row | {name: [decode(image) for image in row[name]] for name in ("images",) if name in row}
