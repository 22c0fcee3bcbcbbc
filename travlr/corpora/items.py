"""What a reader of a corpus returns: items, each a picture with true and false sentences; and how it reads files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BeforeValidator, Field

from travlr.formats.columns import report_damage
from travlr.settings import PathText, Settings, count_text, in_one_line

MATCH = "match"  # the task of a corpus: is the sentence true of the picture?
# Texts, or one.
Sentences = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
Content = TypeVar("Content")


class Item(Settings):
    """A picture with true and false sentences, which are as the corpus has them.

    id: unique in its corpus. picture: its path in the corpus's folder of pictures. axis: what is tested, such as
    `Object/Location/center`. source: the data set within the axis, such as `vg_subj`. couple: the same for two items
    that exchange their sentences; empty without a partner. labels: other groups. box: the part of the picture to show,
    (x, y, width, height) in pixels; None for all of it.
    """

    id: str
    picture: Annotated[str, Field(min_length=1)]
    true: Annotated[Sentences, Field(min_length=1)]
    false: Annotated[Sentences, Field(min_length=1)]
    axis: str
    source: str = ""
    couple: str = ""
    labels: dict[str, str] = {}
    box: tuple[float, float, float, float] | None = None


@dataclass(frozen=True)
class Corpus:
    """Items, and the folder of their pictures.

    options: the settings that chose them. notes: what a reader of the scores should know, one line each.
    """

    name: str
    items: list[Item]
    pictures: Path
    options: dict[str, Any]
    notes: Sequence[str] = ()


class CorpusReader(Settings):
    """The reader of a kind of corpora; its fields are the settings of the conversion.

    A kind is a class with `accepts` and `read` in a file of its own, and a line in `travlr.corpora.KINDS`.
    """

    images: PathText | None = Field(None, description="the folder of the pictures")
    name: str = Field("", description="what reports call it; empty for the usual name, or that of SRC")
    overwrite: bool = Field(False, description="replace another dataset in DST")

    about: ClassVar[str]  # one line for the help of the command

    @classmethod
    def accepts(cls, source: Path) -> bool:
        """Whether a file or folder looks like a corpus of this kind."""
        raise NotImplementedError

    def read(self, source: Path) -> Corpus:
        """Read a corpus. Raises `ValueError`, in one line with the name of the file, for a file of another form."""
        raise NotImplementedError

    def find_images(self, folder: Path) -> Path:
        """The folder of the pictures: `images`, or else the folder of this name in the corpus's, or else that."""
        if self.images is not None and not Path(self.images).is_dir():
            raise ValueError(f"images={self.images}: there is no such folder")
        beside = folder / "images"
        return Path(self.images) if self.images is not None else beside if beside.is_dir() else folder


def crop_items(items: list[Item]) -> tuple[list[Item], list[str]]:
    """The items that have a box, and a note that counts the others."""
    with_box = [item for item in items if item.box is not None]
    others = len(items) - len(with_box)
    return with_box, [f"left out, as they have no box: {count_text(others, 'item')}"] * (others > 0)


def read_items(path: Path, items_of: Callable[[int, Any], Iterable[Content]]) -> list[Content]:
    """What is in a file of records: a list, JSON lines, or an object whose values are the records.

    items_of: number and value of a record -> its items. Raises `ValueError` with the file, the record and the key.
    """
    items: list[Content] = []
    for number, (place, record) in enumerate(read_records(path)):
        try:
            items += items_of(number, record)
        except KeyError as error:
            raise ValueError(f"{path}: {place}: the key {error.args[0]} is missing") from None
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            what = in_one_line(error, Item.model_fields, "key") if isinstance(record, dict | list) else "no object"
            raise ValueError(f"{path}: {place}: {what}") from None
    return items


def read_records(path: Path) -> list[tuple[str, Any]]:
    """The records of a file, each with its place in words: its line, key or number. An empty file has none."""
    with report_damage(path):
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".jsonl":
            lines = [(f"line {n}", line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
            return [(place, parse_line(place, line)) for place, line in lines]
        records = json.loads(text or "[]")
        if not isinstance(records, dict | list):
            raise ValueError("holds no list of records")
        named = records.items() if isinstance(records, dict) else enumerate(records)
        return [(f"record {name}", record) for name, record in named]


def parse_line(place: str, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
