"""The interface of a format (`Layout`). All formats write and read the same tables (`travlr.formats.columns.SCHEMA`).

A dataset is written in *parts*: rows start to stop of one split. The files of a part are written atomically. Where all
parts share a file, each writes a fragment to `.travlr/parts`, and the fragments are joined when all parts are written.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import pyarrow as pa

from travlr.files import WORK, hashed, placed, put_file, read_chunks
from travlr.formats.columns import ROW_GROUP, SCHEMA, damage, sound
from travlr.formats.manifest import MANIFEST

T = TypeVar("T")
Open = Callable[[str, bool], AbstractContextManager[IO[bytes]]]  # name, sync -> a file to write to
Tables = Iterator[tuple[Path, pa.Table]]  # each with the file that it comes from
PARTS = f"{WORK}/parts"  # records and fragments of finished parts
CARD = ("README.md", "example.png")
LARGEST = 99_999  # files of a split: five digits in their names keep them in order


@dataclass(frozen=True)
class Part:
    """Rows start to stop of a split: part `number` of the `of` parts of the split.

    offset: rows of all splits before this one. task: for the ids of the rows. suffix: of picture files, png or jpg.
    """

    task: str
    split: str
    number: int
    of: int
    start: int
    stop: int
    offset: int
    suffix: str = "png"

    @property
    def name(self) -> str:
        return f"{self.split}-{self.number:05d}-of-{self.of:05d}"

    def entry(self, name: str) -> dict[str, Any]:
        """The part's line in the manifest, with the name of its file or of its pictures."""
        return {"name": name, "split": self.split, "rows": self.stop - self.start}


def parts_of(task: str, counts: dict[str, int], rows_per_file: int, suffix: str = "png") -> list[Part]:
    """All parts of a dataset, in order. Raises `ValueError` for more than `LARGEST` in a split."""
    parts, offset = [], 0
    for split, count in counts.items():
        starts = range(0, count, rows_per_file)
        if len(starts) > LARGEST:
            needed = -(-count // LARGEST)
            raise ValueError(f"rows_per_file={rows_per_file}: {split} has {count:,} rows, so use {needed} or more")
        for number, start in enumerate(starts):
            stop = min(start + rows_per_file, count)
            parts.append(Part(task, split, number, len(starts), start, stop, offset, suffix))
        offset += count
    return parts


@dataclass(frozen=True)
class Shared:
    """A file that is joined from fragments of all parts (names below `.travlr/parts`)."""

    name: str
    split: str | None
    fragments: list[str]
    before: bytes = b""
    between: bytes = b""
    after: bytes = b""

    def join(self, folder: Path) -> None:
        chunks = (read_chunks(folder / PARTS / piece) if isinstance(piece, str) else [piece] for piece in self.pieces())
        put_file(folder, self.name, itertools.chain.from_iterable(chunks))

    def pieces(self) -> Iterator[bytes | str]:
        """What the file consists of: bytes, and names of fragments."""
        yield self.before
        for i, fragment in enumerate(self.fragments):
            if i:
                yield self.between
            yield fragment
        yield self.after


class Layout:
    """Base class of the formats. ending: of the one file that holds a part; formats with other files have none."""

    name: str
    ending: str

    def check(self, config: dict[str, Any] | None) -> None:
        """Raise `ValueError` where this format cannot hold the datasets of a config, as manifests have it."""

    def write(self, folder: Path, part: Part, tables: Iterator[pa.Table]) -> None:
        self.put(functools.partial(opened, folder), part, tables)

    def put(self, open_file: Open, part: Part, tables: Iterator[pa.Table]) -> None:
        """Write the files of a part, which `open_file` opens: in a folder, or for the audit to compare."""
        raise NotImplementedError

    def entry(self, part: Part) -> dict[str, Any]:
        """The part's line in the manifest: the name of its file, or with a `*` the names of its pictures."""
        return part.entry(f"{part.name}.{self.ending}")

    def fragments(self, part: Part) -> list[str]:
        """What `write` leaves below `.travlr/parts`."""
        return []

    def shared(self, parts: list[Part]) -> list[Shared]:
        return []

    def data_files(self, parts: list[Part]) -> dict[str, str]:
        """Split -> glob of its files, for the card."""
        return {part.split: f"{part.split}-*.{self.ending}" for part in parts}

    def tables(self, folder: Path, manifest: dict[str, Any], split: str, start: int, stop: int | None) -> Tables:
        """Rows start to stop of a split (None: to its end) in order; they may have nulls.

        Raises `ValueError` where files are damaged.
        """
        raise NotImplementedError

    def read(
        self, folder: Path, manifest: dict[str, Any], split: str, start: int = 0, stop: int | None = None
    ) -> Iterator[pa.Table]:
        """Rows start to stop of a split in order. Raises `ValueError` where files are damaged or have a null."""
        return (sound(table, path) for path, table in self.tables(folder, manifest, split, start, stop))


@contextlib.contextmanager
def opened(folder: Path, name: str, sync: bool = True) -> Iterator[IO[bytes]]:
    """A file to write to; it gets its name when it is complete (`placed`)."""
    (folder / name).parent.mkdir(exist_ok=True)
    with placed(folder, name, sync) as path, open(path, "wb") as file:
        yield file


# Rows and tables --------------------------------------------------------------------------------------------------


def rows_of(tables: Iterator[pa.Table]) -> Iterator[dict[str, Any]]:
    for table in tables:
        yield from table.to_pylist()


def take_picture(row: dict[str, Any]) -> tuple[bytes, str]:
    """Remove the picture from a row; returns its bytes and a file name made of the row's id and the picture format."""
    data = row.pop("image")["bytes"]
    return data, f"{row['id']}.{suffix_of(data)}"


def suffix_of(picture: bytes) -> str:
    return "jpg" if picture.startswith(b"\xff\xd8") else "png"


def tables_of_rows(path: Path, items: Iterable[T], row: Callable[[T], dict[str, Any]]) -> Tables:
    """Tables of a thousand rows from the items of a file, each with the path of the file.

    Raises `ValueError`, with the path, where an item is damaged or has other columns.
    """
    items = iter(items)
    while True:
        with damage(path):
            rows = [row(item) for item in itertools.islice(items, ROW_GROUP)]
            for columns in rows:
                if set(columns) != set(SCHEMA.names):
                    raise ValueError(f"{columns.get('id', 'a row')}: its columns are not those of a dataset")
            table = pa.Table.from_pylist(rows, schema=SCHEMA)
        if not rows:
            return
        yield path, table


def shards(
    folder: Path, manifest: dict[str, Any], split: str, start: int, stop: int | None
) -> Iterator[tuple[Path, int, int | None]]:
    """The files that hold rows start to stop of a split, each with the range of these rows in it (None: to its end)."""
    begin = 0
    for file in manifest["files"]:
        if file["split"] != split:
            continue
        end = begin + file.get("rows", 0)
        ends_before, begins_after = 0 < start >= end, stop is not None and begin >= stop
        if not (ends_before or begins_after):
            yield folder / file["name"], max(0, start - begin), None if stop is None else stop - begin
        begin = end


# The files of a manifest -------------------------------------------------------------------------------------------


def remove(folder: Path, manifest: dict[str, Any]) -> None:
    """Delete the files of a dataset, finished or not, and nothing else; the manifest comes last.

    Raises `ValueError`, before any file is deleted, where a folder in the dataset is a link to another folder.
    """
    directories = {str(Path(file["name"]).parent) for file in manifest["files"]} - {"."}
    if links := sorted(name for name in directories if (folder / name).is_symlink()):
        raise ValueError(f"{folder / links[0]}: is a link to elsewhere; remove the link, or name another folder")
    for name in names_present(folder, manifest["files"]):
        (folder / name).unlink(missing_ok=True)
    for directory in directories:
        if (folder / directory).is_dir() and not any((folder / directory).iterdir()):
            (folder / directory).rmdir()
    for name in (*CARD, MANIFEST):
        (folder / name).unlink(missing_ok=True)


def names_of(file: dict[str, Any]) -> Iterator[str]:
    """The paths of an entry in the manifest's `files`: one, or one for each row where the name has a `*`."""
    name = file["name"]
    if "*" not in name:
        yield name
        return
    for number in range(file["start"], file["start"] + file["rows"]):
        yield name.replace("*", format(number, file["digits"]))


def file_problem(folder: Path, file: dict[str, Any]) -> str:
    """Why the files of an entry in the manifest's `files` are not as it says; empty where they are."""
    try:
        size_and_digest = hashed(folder / name for name in names_of(file))
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return "" if size_and_digest.items() <= file.items() else f"{file['name']}: not the bytes that were written"


def names_present(folder: Path, files: Sequence[dict[str, Any]]) -> list[str]:
    """The existing paths among those of a manifest's `files`.

    The time depends on the number of files in the folder, not on the number of rows that the manifest claims.
    """
    plain = {file["name"] for file in files if "*" not in file["name"]}
    numbered: dict[str, list[dict[str, Any]]] = {}
    for file in sorted((file for file in files if "*" in file["name"]), key=lambda file: file["start"]):
        numbered.setdefault(file["name"], []).append(file)

    def is_listed(path: str) -> bool:
        if not (parts := re.fullmatch(r"(.*?)([0-9]+)(\.\w+)", path)):
            return False
        entries, number = numbered.get(f"{parts[1]}*{parts[3]}", []), int(parts[2])
        at = bisect.bisect_right(entries, number, key=lambda file: file["start"])
        if not at:
            return False
        file = entries[at - 1]
        return number - file["start"] < file["rows"] and format(number, file["digits"]) == parts[2]

    files_there = (os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)
    paths = (os.path.relpath(path, folder) for path in files_there)
    return [path for path in paths if path in plain or is_listed(path)]
