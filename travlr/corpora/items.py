"""What a reader of a corpus returns: items, each a picture with true and false sentences; and how it reads files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from travlr.formats.columns import report_damage
from travlr.settings import PathText, Settings, count_text, in_one_line

MATCH = "match"  # the task of a corpus: is the sentence true of the picture?
Sentences = Annotated[tuple[str, ...], Field(min_length=1)]


class Item(Settings):
    """A picture with true and false sentences, which are as the corpus has them.

    id: unique in its corpus. picture: its path in the corpus's folder of pictures. axis: what is tested, such as
    `Object/Location/center`. source: the data set within the axis, such as `vg_subj`. couple: the same for two items
    that exchange their sentences; empty without a partner. labels: other groups. box: the part of the picture to show,
    (x, y, width, height) in pixels; None for all of it.
    """

    id: str
    picture: Annotated[str, Field(min_length=1)]
    true: Sentences
    false: Sentences
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


def read_values(path: Path) -> Any:
    """The value in a JSON file, the list of values in a file of JSON lines; an empty file is an empty list.

    Raises `ValueError` with the name of the file.
    """
    with report_damage(path):
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in text.split("\n") if line.strip()]
        return json.loads(text or "[]")


def read_items(path: Path, items_of: Callable[[int, Any], list[Item]]) -> list[Item]:
    """The items of a file of records: a list, JSON lines, or an object whose values are the records.

    items_of: number and value of a record -> its items. Raises `ValueError` with the file and the record.
    """
    records = read_values(path)
    if isinstance(records, dict):
        records = list(records.values())
    if not isinstance(records, list):
        raise ValueError(f"{path}: holds no list of records")
    items = []
    for number, record in enumerate(records):
        try:
            items += items_of(number, record)
        except KeyError as error:
            raise ValueError(f"{path}: record {number}: {error.args[0]} is missing") from None
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path}: record {number}: {in_one_line(error, Item.model_fields)}") from None
    return items
