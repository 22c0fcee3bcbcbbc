"""The four layouts of a dataset on disk. Each writes and reads the same tables (`travlr.dataset.SCHEMA`).

A dataset is made in *parts*: rows start to stop of one split. A part's own files are put in place whole or not at
all; what a part adds to a file that all parts share waits as a fragment in `.travlr/parts` until all are there.
"""

from __future__ import annotations

import bisect
import csv
import io
import itertools
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from travlr.dataset import (
    MANIFEST,
    ROW_GROUP,
    SCHEMA,
    damage,
    example_id,
    open_parquet,
    parse_query_form,
    query_form,
    sound,
)
from travlr.files import WORK, placed, put_file, read_chunks, regular
from travlr.scene import Object
from travlr.tasks import TASKS, parse_query, truth

T = TypeVar("T")
PARTS = f"{WORK}/parts"  # records and fragments of finished parts
CARD = ("README.md", "example.png")
LARGEST = 99_999  # files of a split: five digits in their names keep them in order


@dataclass(frozen=True)
class Part:
    """Rows start to stop of a split, the number-th of `of` parts. `offset`: rows of the splits before it.

    task, suffix: of the ids and of the picture files (png or jpg).
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


def parts_of(task: str, counts: dict[str, int], rows_per_file: int, suffix: str = "png") -> list[Part]:
    """All parts of a dataset, in order. Raises `ValueError` where there would be too many."""
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
    """A file that all parts add to: their fragments (names below `.travlr/parts`), joined."""

    name: str
    split: str | None
    fragments: list[str]
    before: bytes = b""
    between: bytes = b""
    after: bytes = b""

    def join(self, folder: Path) -> None:
        put_file(folder, self.name, self._chunks(folder / PARTS))

    def _chunks(self, parts: Path) -> Iterator[bytes]:
        yield self.before
        for i, fragment in enumerate(self.fragments):
            if i:
                yield self.between
            yield from read_chunks(parts / fragment)
        yield self.after


class Layout:
    """Base of the layouts."""

    name: str

    def write(self, folder: Path, part: Part, tables: Iterator[pa.Table]) -> None:
        raise NotImplementedError

    def entry(self, part: Part) -> dict[str, Any]:
        """The part's line in the manifest: the name of its file, or with a `*` the names of its pictures."""
        raise NotImplementedError

    def fragments(self, part: Part) -> list[str]:
        """What `write` leaves below `.travlr/parts`."""
        return []

    def shared(self, parts: list[Part]) -> list[Shared]:
        return []

    def data_files(self, parts: list[Part]) -> dict[str, str]:
        """Split -> glob of its files, for the card."""
        raise NotImplementedError

    def tables(
        self, folder: Path, manifest: dict[str, Any], split: str, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[Path, pa.Table]]:
        """Rows start to stop of a split in order, each table with its file; they may have nulls.

        Raises `ValueError` where files are damaged.
        """
        raise NotImplementedError

    def read(
        self, folder: Path, manifest: dict[str, Any], split: str, start: int = 0, stop: int | None = None
    ) -> Iterator[pa.Table]:
        """Rows start to stop of a split in order. Raises `ValueError` where files are damaged or have a null."""
        return (sound(table, path) for path, table in self.tables(folder, manifest, split, start, stop))


class Parquet(Layout):
    """`train-00000-of-00004.parquet` and so on: columns in row groups of a thousand, pictures not compressed again."""

    name = "parquet"

    def write(self, folder: Path, part: Part, tables: Iterator[pa.Table]) -> None:
        text = ("query", "task", "query_form", "pair.list.element", "objects.list.element.colour")
        dictionaries = [*text, "objects.list.element.shape", "objects.list.element.size"]
        compression = {name: "zstd" for name in _leaves() if name != "image.bytes"} | {"image.bytes": "none"}
        plain = ("id", "image.bytes", "image.path", "caption")
        with (
            placed(folder, f"{part.name}.parquet") as path,
            open(path, "wb") as file,
            pq.ParquetWriter(
                file,
                SCHEMA,
                compression=compression,
                use_dictionary=dictionaries,
                write_statistics=[name for name in _leaves() if name not in plain],
                write_page_checksum=True,
            ) as writer,
        ):
            for table in _thousands(tables):
                writer.write_table(table, ROW_GROUP)

    def entry(self, part: Part) -> dict[str, Any]:
        return _entry(f"{part.name}.parquet", part)

    def data_files(self, parts: list[Part]) -> dict[str, str]:
        return {part.split: f"{part.split}-*.parquet" for part in parts}

    def tables(
        self, folder: Path, manifest: dict[str, Any], split: str, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[Path, pa.Table]]:
        for path, first, last in _files_with(folder, manifest, split, start, stop):
            file = open_parquet(path)
            begin = 0
            for group in range(file.num_row_groups):
                end = begin + file.metadata.row_group(group).num_rows
                if end > first and (last is None or begin < last):
                    with damage(path):
                        table = file.read_row_group(group)
                    yield path, table[max(0, first - begin) : end - begin if last is None else last - begin]
                begin = end


def _thousands(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of a thousand, each in one piece, so that a file's bytes depend on its rows alone."""
    gathered = SCHEMA.empty_table()
    for table in tables:
        gathered = pa.concat_tables([gathered, table]) if gathered.num_rows else table
        while gathered.num_rows >= ROW_GROUP:
            yield gathered[:ROW_GROUP].combine_chunks()
            gathered = gathered[ROW_GROUP:]
    if gathered.num_rows:
        yield gathered.combine_chunks()


def _leaves() -> list[str]:
    names = []
    for field in SCHEMA:
        kind, path = field.type, field.name
        if pa.types.is_list(kind):
            kind, path = kind.value_type, f"{path}.list.element"
        names += [f"{path}.{inner.name}" for inner in kind] if pa.types.is_struct(kind) else [path]
    return names


class WebDataset(Layout):
    """`train-00000-of-00004.tar` and so on: for each example ID.png and ID.json (its other columns)."""

    name = "webdataset"

    def write(self, folder: Path, part: Part, tables: Iterator[pa.Table]) -> None:
        with (
            placed(folder, f"{part.name}.tar") as path,
            tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar,
        ):
            for row in _rows(tables):
                picture, name = _picture(row)
                for member, data in ((name, picture), (f"{row['id']}.json", json.dumps(row).encode())):
                    info = tarfile.TarInfo(member)
                    info.size, info.mode = len(data), 0o644
                    tar.addfile(info, io.BytesIO(data))

    def entry(self, part: Part) -> dict[str, Any]:
        return _entry(f"{part.name}.tar", part)

    def data_files(self, parts: list[Part]) -> dict[str, str]:
        return {part.split: f"{part.split}-*.tar" for part in parts}

    def tables(
        self, folder: Path, manifest: dict[str, Any], split: str, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[Path, pa.Table]]:
        for path, first, last in _files_with(folder, manifest, split, start, stop):
            yield from _tables(path, itertools.islice(self._examples(path), first, last), self._row)

    @staticmethod
    def _examples(path: Path) -> Iterator[tuple[str, bytes, bytes]]:
        """Name and bytes of each example's picture, and its JSON."""
        with tarfile.open(regular(path), "r:") as tar:
            for picture, other in zip(members := iter(tar), members, strict=True):
                opened = tar.extractfile(picture), tar.extractfile(other)
                if not (opened[0] and opened[1] and other.name == f"{Path(picture.name).stem}.json"):
                    raise ValueError(f"no picture and JSON of one name: {picture.name}, {other.name}")
                yield picture.name, opened[0].read(), opened[1].read()

    @staticmethod
    def _row(example: tuple[str, bytes, bytes]) -> dict[str, Any]:
        name, picture, other = example
        return {**json.loads(other), "image": {"bytes": picture, "path": name}}


class ImageFolder(Layout):
    """`train/ID.png` and so on, and `train/metadata.jsonl` with their columns and `file_name`."""

    name = "imagefolder"

    def write(self, folder: Path, part: Part, tables: Iterator[pa.Table]) -> None:
        (folder / part.split).mkdir(exist_ok=True)
        lines = []
        for row in _rows(tables):
            picture, name = _picture(row)
            if not name.endswith(part.suffix):
                raise ValueError(f"{row['id']}: its picture is no {part.suffix}, unlike the first of the dataset")
            put_file(folder, f"{part.split}/{name}", [picture], sync=False)
            lines.append(json.dumps({"file_name": name, **row}).encode() + b"\n")
        put_file(folder, f"{PARTS}/{part.name}.jsonl", lines, sync=False)

    def fragments(self, part: Part) -> list[str]:
        return [f"{part.name}.jsonl"]

    def entry(self, part: Part) -> dict[str, Any]:
        name = example_id(part.task, part.split, 0).removesuffix("00000000")
        return _entry(f"{part.split}/{name}*.{part.suffix}", part) | {"start": part.start, "digits": "08d"}

    def shared(self, parts: list[Part]) -> list[Shared]:
        fragments: dict[str, list[str]] = {}
        for part in parts:
            fragments.setdefault(part.split, []).extend(self.fragments(part))
        return [Shared(f"{split}/metadata.jsonl", split, names) for split, names in fragments.items()]

    def data_files(self, parts: list[Part]) -> dict[str, str]:
        return {part.split: f"{part.split}/*" for part in parts}

    def tables(
        self, folder: Path, manifest: dict[str, Any], split: str, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[Path, pa.Table]]:
        def row(line: bytes) -> dict[str, Any]:
            columns = json.loads(line)
            name = columns.pop("file_name")
            if Path(name).name != name:
                raise ValueError(f"{name} leaves its folder")
            return columns | {"image": {"bytes": regular(folder / split / name).read_bytes(), "path": name}}

        path = folder / split / "metadata.jsonl"
        return _tables(path, itertools.islice(_lines(path), start, stop), row)


# The published layout has other names for the splits.
PUBLISHED_SPLITS = {"train": "train", "validation": "val", "test_ind": "val_test", "test_ood": "test"}
PUBLISHED_COLUMNS = ("", "caption", "query", "answer", "image", "split")


class Original(Layout):
    """The published layout: index.csv, metadata.jsonl (in truth one JSON object on one line), images/N.jpg."""

    name = "original"

    def write(self, folder: Path, part: Part, tables: Iterator[pa.Table]) -> None:
        (folder / "images").mkdir(exist_ok=True)
        split = PUBLISHED_SPLITS[part.split]
        lines, entries = io.StringIO(), []
        writer = csv.writer(lines, lineterminator="\n")
        for number, row in enumerate(_rows(tables), part.offset + part.start):
            put_file(folder, f"images/{number}.jpg", [_jpeg(row)], sync=False)
            writer.writerow([number, row["caption"], row["query"], row["answer"], number, split])
            entries.append(f'"{number}": {json.dumps(_published(row, split))}')
        put_file(folder, f"{PARTS}/{part.name}.csv", [lines.getvalue().encode()], sync=False)
        put_file(folder, f"{PARTS}/{part.name}.jsonl", [", ".join(entries).encode()], sync=False)

    def fragments(self, part: Part) -> list[str]:
        return [f"{part.name}.csv", f"{part.name}.jsonl"]

    def entry(self, part: Part) -> dict[str, Any]:
        return _entry("images/*.jpg", part) | {"start": part.offset + part.start, "digits": "d"}

    def shared(self, parts: list[Part]) -> list[Shared]:
        header = ",".join(PUBLISHED_COLUMNS).encode() + b"\n"
        return [
            Shared("index.csv", None, [f"{part.name}.csv" for part in parts], header),
            Shared("metadata.jsonl", None, [f"{part.name}.jsonl" for part in parts], b"{", b", ", b"}\n"),
        ]

    def data_files(self, parts: list[Part]) -> dict[str, str]:
        return {}

    def tables(
        self, folder: Path, manifest: dict[str, Any], split: str, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[Path, pa.Table]]:
        def numbered() -> Iterator[tuple[int, dict[str, str], Any]]:
            entries, waiting = _published_entries(folder / "metadata.jsonl"), {}
            number = 0
            for line in _published_index(folder / "index.csv"):
                while line[""] not in waiting:  # in the published files the two are in the same order
                    name, entry = next(entries, (None, None))
                    if name is None:
                        raise ValueError(f"row {line['']!r} is not in metadata.jsonl")
                    waiting[name] = entry
                entry = waiting.pop(line[""])
                if line["split"] == PUBLISHED_SPLITS[split]:
                    yield number, line, entry
                    number += 1

        def row(found: tuple[int, dict[str, str], Any]) -> dict[str, Any]:
            return _from_published(folder, split, *found)

        return _tables(folder / "index.csv", itertools.islice(numbered(), start, stop), row)


def _jpeg(row: dict[str, Any]) -> bytes:
    """Take the picture out of a row, as JPEG."""
    from render.image import decode

    picture: bytes = row.pop("image")["bytes"]
    if suffix_of(picture) == "jpg":
        return picture
    try:
        image = decode(picture)
    except ValueError as error:
        raise ValueError(f"{row['id']}: {error}") from None
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=95, subsampling=0)
    return buffer.getvalue()


def _published_index(path: Path) -> Iterator[dict[str, str]]:
    with open(regular(path), newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, strict=True)
        if missing := set(PUBLISHED_COLUMNS) - set(reader.fieldnames or ()):
            raise ValueError(f"not in the published layout: it has no column {min(missing)!r}")
        yield from reader


def _published_entries(path: Path) -> Iterator[tuple[str, Any]]:
    """Names and values of one large JSON object, without ever holding all of it."""
    decoder, text = json.JSONDecoder(), ""
    space, colon = re.compile(r"[\s,{]*"), re.compile(r"\s*:\s*")
    with open(regular(path), encoding="utf-8") as file:
        while chunk := file.read(1 << 20):
            text, at = text + chunk, 0
            while True:
                begin = space.match(text, at).end()  # type: ignore[union-attr]
                try:
                    name, end = decoder.raw_decode(text, begin)
                    value, end = decoder.raw_decode(text, colon.match(text, end).end())  # type: ignore[union-attr]
                except (ValueError, AttributeError):
                    break  # cut off by the end of the chunk
                at = end
                yield name, value
            text = text[at:]
    if text.strip() != "}":
        raise ValueError(f"metadata.jsonl ends in the middle, or is no JSON object: {text[:40]!r}")


def published_counts(folder: Path) -> dict[str, int]:
    """Rows per split of a dataset in the published layout, with this project's names of the splits."""
    path = folder / "index.csv"
    found = dict.fromkeys(PUBLISHED_SPLITS.values(), 0)
    with damage(path):
        for line in _published_index(path):
            if line["split"] not in found:
                raise ValueError(f"unknown split {line['split']!r}")
            found[line["split"]] += 1
    return {split: found[name] for split, name in PUBLISHED_SPLITS.items() if found[name]}


def _from_published(folder: Path, split: str, number: int, line: dict[str, str], entry: Any) -> dict[str, Any]:
    from render.text import parse_caption

    if not re.fullmatch(r"\w+", line["image"]) or line["answer"] not in ("True", "False"):
        raise ValueError(f"row {line['']}: image {line['image']!r} or answer {line['answer']!r}")
    scene = {(o["row"], o["column"]): o for o in entry["objects"]}
    said = parse_caption(line["caption"])[2]
    ordered = [scene.pop((o.row, o.column)) for o in said if (o.row, o.column) in scene] + list(scene.values())
    query = parse_query(line["query"])
    if any(o["queried"] is None for o in ordered):  # other nulls are found in the table
        raise ValueError("column objects.queried has a null")
    objects = [Object(o["colour"], o["shape"], o["size"], o["row"], o["column"], bool(o["queried"])) for o in ordered]
    name, picture = example_id(query.task, split, number), folder / "images" / f"{line['image']}.jpg"
    return {
        "id": name,
        "image": {"bytes": regular(picture).read_bytes(), "path": f"{name}.jpg"},
        "caption": line["caption"],
        "query": line["query"],
        "answer": line["answer"] == "True",
        "task": query.task,
        "pair": list(truth(tuple(objects), query)[1]),
        "query_form": query_form(query),
        "objects": [vars(o) for o in objects],
    }


def _published(row: dict[str, Any], split: str) -> dict[str, Any]:
    """An entry of metadata.jsonl. Objects are in caption order, so `caption_abstract` counts up, here truly."""
    query = parse_query_form(row["query_form"])
    objects = [{k: o[k] for k in ("shape", "colour")} | {"pattern": None} | o for o in row["objects"]]
    entry = {"objects": objects, "query": row["query"], "answer": row["answer"], "split": split}
    entry["caption_abstract"] = list(range(len(objects)))
    return entry | TASKS[query.task].published(query.args, [Object(**o) for o in row["objects"]], row["pair"])


# Rows and tables --------------------------------------------------------------------------------------------------


def _rows(tables: Iterator[pa.Table]) -> Iterator[dict[str, Any]]:
    for table in tables:
        yield from table.to_pylist()


def _picture(row: dict[str, Any]) -> tuple[bytes, str]:
    """Take the picture out of a row: its bytes and a file name after the id and what the bytes are."""
    data = row.pop("image")["bytes"]
    return data, f"{row['id']}.{suffix_of(data)}"


def suffix_of(picture: bytes) -> str:
    return "jpg" if picture.startswith(b"\xff\xd8") else "png"


def _lines(path: Path) -> Iterator[bytes]:
    with open(regular(path), "rb") as file:
        yield from file


def _tables(path: Path, found: Iterable[T], row: Callable[[T], dict[str, Any]]) -> Iterator[tuple[Path, pa.Table]]:
    """What was found in a file as tables of a thousand rows, each with the file.

    Raises `ValueError` for what is not as it should be.
    """
    found = iter(found)
    while True:
        with damage(path):
            gathered = [row(item) for item in itertools.islice(found, ROW_GROUP)]
            if wrong := next((columns for columns in gathered if set(columns) != set(SCHEMA.names)), None):
                raise ValueError(f"{wrong.get('id', 'a row')}: its columns are not those of a dataset")
            table = pa.Table.from_pylist(gathered, schema=SCHEMA)
        if not gathered:
            return
        yield path, table


def _files_with(
    folder: Path, manifest: dict[str, Any], split: str, start: int, stop: int | None
) -> Iterator[tuple[Path, int, int | None]]:
    """The files that hold rows start to stop of a split, and which of their rows; None for all that come."""
    begin = 0
    for file in manifest["files"]:
        if file["split"] != split:
            continue
        end = begin + file.get("rows", 0)
        ends_before, begins_after = 0 < start >= end, stop is not None and begin >= stop
        if not (ends_before or begins_after):
            yield folder / file["name"], max(0, start - begin), None if stop is None else stop - begin
        begin = end


LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in (Parquet(), ImageFolder(), WebDataset(), Original())}


# The files of a manifest -------------------------------------------------------------------------------------------


def remove(folder: Path, manifest: dict[str, Any]) -> None:
    """Take away the files of a dataset, finished or not, and nothing else; its manifest last.

    Raises `ValueError`, before anything is gone, where a folder in it is a link to elsewhere.
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


def _entry(name: str, part: Part) -> dict[str, Any]:
    return {"name": name, "split": part.split, "rows": part.stop - part.start}


def names_of(file: dict[str, Any]) -> Iterator[str]:
    """The paths of an entry of the manifest's `files`: one, or one for each row where the name has a `*`."""
    name = file["name"]
    if "*" not in name:
        yield name
        return
    for number in range(file["start"], file["start"] + file["rows"]):
        yield name.replace("*", format(number, file["digits"]))


def names_present(folder: Path, files: Sequence[dict[str, Any]]) -> list[str]:
    """Of the paths that a manifest's `files` name, those that exist.

    Takes as long as the folder is large, however many rows the manifest claims.
    """
    plain = {file["name"] for file in files if "*" not in file["name"]}
    numbered: dict[str, list[dict[str, Any]]] = {}
    for file in sorted((file for file in files if "*" in file["name"]), key=lambda file: file["start"]):
        numbered.setdefault(file["name"], []).append(file)

    def is_named(path: str) -> bool:
        if not (parts := re.fullmatch(r"(.*?)([0-9]+)(\.\w+)", path)):
            return False
        entries, number = numbered.get(f"{parts[1]}*{parts[3]}", []), int(parts[2])
        at = bisect.bisect_right(entries, number, key=lambda file: file["start"])
        if not at:
            return False
        file = entries[at - 1]
        return number - file["start"] < file["rows"] and format(number, file["digits"]) == parts[2]

    found = (os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)
    paths = (os.path.relpath(path, folder) for path in found)
    return [path for path in paths if path in plain or is_named(path)]
