"""The four layouts of a dataset on disk. Each writes and reads the same tables (`travlr.dataset.SCHEMA`).

A dataset is made in *parts*: rows start to stop of one split. A part's own files are put in place whole or not at
all; what a part adds to a file that all parts share waits as a fragment in `.travlr/parts` until `finish` joins them.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from travlr.dataset import ROW_GROUP, SCHEMA, example_id, parse_query_form, query_form
from travlr.scene import QUANTIFIERS, RELATIONS, SPLITS, Object, Query, is_queried, pair

WORK = ".travlr"  # holds the lock, unfinished files and records of parts; gone when the dataset is finished


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
    """All parts of a dataset, in order."""
    parts, offset = [], 0
    for split, count in counts.items():
        starts = range(0, count, rows_per_file)
        for number, start in enumerate(starts):
            stop = min(start + rows_per_file, count)
            parts.append(Part(task, split, number, len(starts), start, stop, offset, suffix))
        offset += count
    return parts


def replace_file(path: Path, work: Path, chunks: Iterable[bytes]) -> None:
    """Write a file so that it is there whole or not at all."""
    temporary = work / f"{path.name}.tmp"
    with open(temporary, "wb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


class Layout:
    """Base of the layouts; `fragments` are names below `.travlr/parts`."""

    name: str

    def write(self, folder: Path, part: Part, tables: Iterator[pa.Table]) -> None:
        raise NotImplementedError

    def entry(self, part: Part) -> dict[str, Any]:
        """The part's line in the manifest: the name of its file, or with a `*` the names of its pictures."""
        raise NotImplementedError

    def fragments(self, part: Part) -> list[str]:
        return []

    def finish(self, folder: Path, parts: list[Part]) -> list[str]:
        """Join the fragments; the shared files made."""
        return []

    def data_files(self, parts: list[Part]) -> dict[str, str]:
        """Split -> glob of its files, for the card."""
        raise NotImplementedError

    def read(self, folder: Path, manifest: dict[str, Any], split: str) -> Iterator[pa.Table]:
        """All rows of a split in order. Raises `ValueError` where files are damaged."""
        raise NotImplementedError

    @staticmethod
    def _join(
        folder: Path, name: str, parts: list[str], before: bytes = b"", between: bytes = b"", after: bytes = b""
    ) -> None:
        work = folder / WORK

        def chunks() -> Iterator[bytes]:
            yield before
            for i, part in enumerate(parts):
                if i:
                    yield between
                with open(work / "parts" / part, "rb") as file:
                    while chunk := file.read(1 << 20):
                        yield chunk
            yield after

        replace_file(folder / name, work, chunks())


class Parquet(Layout):
    """`train-00000-of-00004.parquet` and so on: columns in row groups of a thousand, pictures not compressed again."""

    name = "parquet"

    def write(self, folder: Path, part: Part, tables: Iterator[pa.Table]) -> None:
        final = folder / f"{part.name}.parquet"
        temporary = folder / WORK / f"{part.name}.tmp"
        text = ("query", "task", "query_form", "pair.list.element", "objects.list.element.colour")
        dictionaries = [*text, "objects.list.element.shape", "objects.list.element.size"]
        compression = {name: "zstd" for name in _leaves() if name != "image.bytes"} | {"image.bytes": "none"}
        plain = ("id", "image.bytes", "image.path", "caption")
        with pq.ParquetWriter(
            temporary,
            SCHEMA,
            compression=compression,
            use_dictionary=dictionaries,
            write_statistics=[name for name in _leaves() if name not in plain],
        ) as writer:
            for table in tables:
                writer.write_table(table, ROW_GROUP)
        _sync(temporary)
        os.replace(temporary, final)

    def entry(self, part: Part) -> dict[str, Any]:
        return _entry(f"{part.name}.parquet", part)

    def data_files(self, parts: list[Part]) -> dict[str, str]:
        return {part.split: f"{part.split}-*.parquet" for part in parts}

    def read(self, folder: Path, manifest: dict[str, Any], split: str) -> Iterator[pa.Table]:
        for file in manifest["files"]:
            if file["split"] == split:
                try:
                    reader = pq.ParquetFile(folder / file["name"], memory_map=True)
                    if not reader.schema_arrow.equals(SCHEMA, check_metadata=False):
                        raise ValueError(f"{folder / file['name']}: its columns are not those of a dataset")
                    for batch in reader.iter_batches(ROW_GROUP):
                        yield pa.Table.from_batches([batch])
                except (OSError, pa.ArrowException) as error:
                    message = str(error).splitlines()[0]
                    raise ValueError(f"{folder / file['name']}: damaged or missing ({message})") from None


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
        temporary = folder / WORK / f"{part.name}.tmp"
        with tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as tar:
            for row in _rows(tables):
                picture, name = _picture(row)
                for member, data in ((name, picture), (f"{row['id']}.json", json.dumps(row).encode())):
                    info = tarfile.TarInfo(member)
                    info.size, info.mode = len(data), 0o644
                    tar.addfile(info, io.BytesIO(data))
        _sync(temporary)
        os.replace(temporary, folder / f"{part.name}.tar")

    def entry(self, part: Part) -> dict[str, Any]:
        return _entry(f"{part.name}.tar", part)

    def data_files(self, parts: list[Part]) -> dict[str, str]:
        return {part.split: f"{part.split}-*.tar" for part in parts}

    def read(self, folder: Path, manifest: dict[str, Any], split: str) -> Iterator[pa.Table]:
        def rows() -> Iterator[dict[str, Any]]:
            for file in manifest["files"]:
                if file["split"] != split:
                    continue
                try:
                    with tarfile.open(folder / file["name"], "r:") as tar:
                        picture: tuple[str, bytes] = ("", b"")
                        for member in tar:
                            data = tar.extractfile(member)
                            if data is None:
                                raise ValueError("holds something that is not a file")
                            if member.name.endswith(".json"):
                                row = json.loads(data.read())
                                row["image"] = {"bytes": picture[1], "path": picture[0]}
                                yield row
                            else:
                                picture = (member.name, data.read())
                except (OSError, tarfile.TarError, ValueError) as error:
                    raise ValueError(f"{folder / file['name']}: damaged or missing ({error})") from None

        return _tables(rows())


class ImageFolder(Layout):
    """`train/ID.png` and so on, and `train/metadata.jsonl` with their columns and `file_name`."""

    name = "imagefolder"

    def write(self, folder: Path, part: Part, tables: Iterator[pa.Table]) -> None:
        target = folder / part.split
        target.mkdir(exist_ok=True)
        lines = []
        for row in _rows(tables):
            picture, name = _picture(row)
            replace_file(target / name, folder / WORK, [picture])
            lines.append(json.dumps({"file_name": name, **row}).encode() + b"\n")
        replace_file(folder / WORK / "parts" / self.fragments(part)[0], folder / WORK, lines)

    def fragments(self, part: Part) -> list[str]:
        return [f"{part.name}.jsonl"]

    def entry(self, part: Part) -> dict[str, Any]:
        name = example_id(part.task, part.split, 0).removesuffix("00000000")
        return _entry(f"{part.split}/{name}*.{part.suffix}", part) | {"start": part.start, "digits": "08d"}

    def finish(self, folder: Path, parts: list[Part]) -> list[str]:
        made = []
        for split in dict.fromkeys(part.split for part in parts):
            made.append(f"{split}/metadata.jsonl")
            self._join(folder, made[-1], [self.fragments(p)[0] for p in parts if p.split == split])
        return made

    def data_files(self, parts: list[Part]) -> dict[str, str]:
        return {part.split: f"{part.split}/*" for part in parts}

    def read(self, folder: Path, manifest: dict[str, Any], split: str) -> Iterator[pa.Table]:
        def rows() -> Iterator[dict[str, Any]]:
            path = folder / split / "metadata.jsonl"
            try:
                with open(path, encoding="utf-8") as file:
                    for line in file:
                        row = json.loads(line)
                        name = str(row.pop("file_name"))
                        if Path(name).name != name:
                            raise ValueError(f"{name} leaves its folder")
                        row["image"] = {"bytes": (folder / split / name).read_bytes(), "path": name}
                        yield row
            except (OSError, ValueError, KeyError, AttributeError) as error:
                raise ValueError(f"{path}: damaged or missing ({error})") from None

        return _tables(rows())


# The published layout calls the splits, and the quantifiers *some* and *none*, by other names.
PUBLISHED_SPLITS = {"train": "train", "validation": "val", "test_ind": "val_test", "test_ood": "test"}
PUBLISHED_QUANTIFIERS = {q: f"{q} of" if q in ("some", "none") else q for q in QUANTIFIERS}


class Original(Layout):
    """The published layout: index.csv, metadata.jsonl (in truth one JSON object on one line), images/N.jpg."""

    name = "original"

    def write(self, folder: Path, part: Part, tables: Iterator[pa.Table]) -> None:
        from render.image import decode

        target = folder / "images"
        target.mkdir(exist_ok=True)
        table_text, entries = io.StringIO(), []
        writer = csv.writer(table_text, lineterminator="\n")
        for number, row in enumerate(_rows(tables), part.offset + part.start):
            picture = row.pop("image")["bytes"]
            if not picture.startswith(b"\xff\xd8"):
                buffer = io.BytesIO()
                decode(picture).save(buffer, "JPEG", quality=95, subsampling=0)
                picture = buffer.getvalue()
            replace_file(target / f"{number}.jpg", folder / WORK, [picture])
            split = PUBLISHED_SPLITS[part.split]
            writer.writerow([number, row["caption"], row["query"], row["answer"], number, split])
            entries.append(f'"{number}": {json.dumps(_published(row, split))}')
        parts = folder / WORK / "parts"
        replace_file(parts / f"{part.name}.csv", folder / WORK, [table_text.getvalue().encode()])
        replace_file(parts / f"{part.name}.jsonl", folder / WORK, [", ".join(entries).encode()])

    def fragments(self, part: Part) -> list[str]:
        return [f"{part.name}.csv", f"{part.name}.jsonl"]

    def entry(self, part: Part) -> dict[str, Any]:
        return _entry("images/*.jpg", part) | {"start": part.offset + part.start, "digits": "d"}

    def finish(self, folder: Path, parts: list[Part]) -> list[str]:
        self._join(folder, "index.csv", [f"{p.name}.csv" for p in parts], b",caption,query,answer,image,split\n")
        self._join(folder, "metadata.jsonl", [f"{p.name}.jsonl" for p in parts], b"{", b", ", b"}\n")
        return ["index.csv", "metadata.jsonl"]

    def data_files(self, parts: list[Part]) -> dict[str, str]:
        return {}

    def read(self, folder: Path, manifest: dict[str, Any], split: str) -> Iterator[pa.Table]:
        def rows() -> Iterator[dict[str, Any]]:
            index, entries = _published_index(folder)
            published, number = PUBLISHED_SPLITS[split], 0
            for line in index:
                if line["split"] != published:
                    continue
                try:
                    yield _from_published(folder, line, entries[line[""]], split, number)
                except (KeyError, TypeError, ValueError, OSError) as error:
                    raise ValueError(f"{folder / 'index.csv'}: row {line['']!r} is damaged ({error})") from None
                number += 1

        return _tables(rows())


@functools.lru_cache(maxsize=1)
def _published_index(folder: Path) -> tuple[list[dict[str, str]], dict[str, Any]]:
    try:
        with open(folder / "index.csv", newline="", encoding="utf-8") as file:
            index = list(csv.DictReader(file))
        entries = json.loads((folder / "metadata.jsonl").read_text(encoding="utf-8"))
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(f"{folder}: index.csv or metadata.jsonl is damaged or missing ({error})") from None
    needed = {"", "caption", "query", "answer", "image", "split"}
    if not isinstance(entries, dict) or (index and not needed <= set(index[0])):
        raise ValueError(f"{folder}: index.csv and metadata.jsonl are not in the published layout")
    return index, entries


def published_counts(folder: Path) -> dict[str, int]:
    """Rows per split of a dataset in the published layout, with this project's names of the splits."""
    found = [line["split"] for line in _published_index(folder)[0]]
    if unknown := set(found) - set(PUBLISHED_SPLITS.values()):
        raise ValueError(f"{folder / 'index.csv'}: unknown split {min(unknown)!r}")
    return {split: found.count(name) for split, name in PUBLISHED_SPLITS.items() if name in found}


def _from_published(folder: Path, line: dict[str, str], entry: Any, split: str, number: int) -> dict[str, Any]:
    from render.text import parse_caption, parse_query

    if not re.fullmatch(r"\w+", line["image"]) or line["answer"] not in ("True", "False"):
        raise ValueError(f"image {line['image']!r} or answer {line['answer']!r}")
    scene = {(o["row"], o["column"]): o for o in entry["objects"]}
    said = parse_caption(line["caption"])[2]
    ordered = [scene.pop((o.row, o.column)) for o in said if (o.row, o.column) in scene] + list(scene.values())
    query = parse_query(line["query"])
    objects = [Object(o["colour"], o["shape"], o["size"], o["row"], o["column"], bool(o["queried"])) for o in ordered]
    name = example_id(query.task, split, number)
    return {
        "id": name,
        "image": {"bytes": (folder / "images" / f"{line['image']}.jpg").read_bytes(), "path": f"{name}.jpg"},
        "caption": line["caption"],
        "query": line["query"],
        "answer": line["answer"] == "True",
        "task": query.task,
        "pair": list(pair(tuple(objects), query)),
        "query_form": query_form(query),
        "objects": [vars(o) for o in objects],
    }


def _published(row: dict[str, Any], split: str) -> dict[str, Any]:
    """An entry of metadata.jsonl. Objects are in caption order, so `caption_abstract` counts up, here truly."""
    query = parse_query_form(row["query_form"])
    objects = [{k: o[k] for k in ("shape", "colour")} | {"pattern": None} | o for o in row["objects"]]
    entry = {"objects": objects, "query": row["query"], "answer": row["answer"], "split": split}
    entry["caption_abstract"] = list(range(len(objects)))
    return entry | _published_query(query, [Object(**o) for o in row["objects"]], row["pair"])


def _published_query(query: Query, objects: list[Object], shown: list[str]) -> dict[str, Any]:
    args = query.args
    if query.task == "spatiality":
        first, second = (next(i for i, o in enumerate(objects) if o.matches(a)) for a in (args[0], args[2]))
        kind = "left/right" if RELATIONS[args[1]][0] == "horizontal" else "above/below"
        return {"relationship": kind, "query_abstract": [first, args[1], second]}
    if query.task == "cardinality":
        case = [shown[0], int(shown[1])]
        return {"case": case, "query_abstract": {"attr": args[1], "number": args[0], "rel": "equal"}}
    attributes = {"attr1": args[1], "attr2": args[2]}
    if query.task == "comparison":
        rest = sum(not is_queried(o, query) for o in objects)
        case = [*args, int(shown[1]), int(shown[2]), rest]
        return {"case": case, "query_abstract": {**attributes, "rel": args[0]}}
    case = [PUBLISHED_QUANTIFIERS[shown[0]], args[1], args[2], [int(shown[1]), int(shown[2])]]
    return {"case": case, "query_abstract": {"rel": PUBLISHED_QUANTIFIERS[args[0]], **attributes}}


def _rows(tables: Iterator[pa.Table]) -> Iterator[dict[str, Any]]:
    for table in tables:
        yield from table.to_pylist()


def _picture(row: dict[str, Any]) -> tuple[bytes, str]:
    """Take the picture out of a row: its bytes and a file name after the id and what the bytes are."""
    data = row.pop("image")["bytes"]
    return data, f"{row['id']}.{'jpg' if data.startswith(bytes([0xFF, 0xD8])) else 'png'}"


def _tables(rows: Iterator[dict[str, Any]]) -> Iterator[pa.Table]:
    """Rows as tables of a thousand. Raises `ValueError` where one lacks a column or has another type."""
    gathered: list[dict[str, Any]] = []

    def table() -> pa.Table:
        for row in gathered:
            if set(row) != set(SCHEMA.names):
                raise ValueError(f"{row.get('id', 'a row')}: its columns are not those of a dataset")
        try:
            return pa.Table.from_pylist(gathered, schema=SCHEMA)
        except (pa.ArrowException, TypeError) as error:
            raise ValueError(f"{gathered[0].get('id')} or after: {str(error).splitlines()[0]}") from None

    for row in rows:
        gathered.append(row)
        if len(gathered) == ROW_GROUP:
            yield table()
            gathered = []
    if gathered:
        yield table()


def _sync(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in (Parquet(), WebDataset(), ImageFolder(), Original())}


def remove(folder: Path, manifest: dict[str, Any]) -> None:
    """Take away the files of a dataset, finished or not, and nothing else."""
    for file in manifest["files"]:
        for path in [folder / name for name in names_of(file)]:
            path.unlink(missing_ok=True)
    for name in ("dataset.json", "README.md", "example.png", "index.csv", "metadata.jsonl"):
        (folder / name).unlink(missing_ok=True)
    for split in SPLITS:
        (folder / split / "metadata.jsonl").unlink(missing_ok=True)
    for directory in (*SPLITS, "images"):
        if (folder / directory).is_dir() and not any((folder / directory).iterdir()):
            (folder / directory).rmdir()


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
