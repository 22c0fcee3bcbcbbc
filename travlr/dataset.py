"""A dataset on disk: its columns, its manifest, and lazy reading. Formats are in `travlr.formats`."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from travlr.scene import Object, Query, Scene

FORMAT_VERSION = 1
MANIFEST = "dataset.json"
ROW_GROUP = 1000  # rows read or written at a time

OBJECT = pa.struct(
    [
        ("colour", pa.string()),
        ("shape", pa.string()),
        ("size", pa.string()),
        ("row", pa.int32()),
        ("column", pa.int32()),
        ("queried", pa.bool_()),
    ]
)
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
COLUMNS: dict[str, pa.DataType] = {
    "id": pa.string(),
    "image": IMAGE,
    "caption": pa.string(),
    "query": pa.string(),
    "answer": pa.bool_(),
    "task": pa.string(),
    "pair": pa.list_(pa.string()),
    "query_form": pa.string(),
    "objects": pa.list_(OBJECT),
}


def _feature(kind: pa.DataType) -> Any:
    if kind == IMAGE:
        return {"_type": "Image"}
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "_type": "List"}
    if pa.types.is_struct(kind):
        return {field.name: _feature(field.type) for field in kind}
    return {"dtype": str(kind), "_type": "Value"}


# What Hugging Face `datasets` reads to know that `image` is a picture.
FEATURES = {name: _feature(kind) for name, kind in COLUMNS.items()}
SCHEMA = pa.schema(list(COLUMNS.items()), metadata={"huggingface": json.dumps({"info": {"features": FEATURES}})})


def example_id(task: str, split: str, index: int) -> str:
    return f"{task}-{split}-{index:08d}"


def query_form(query: Query) -> str:
    return json.dumps({"task": query.task, "args": list(query.args)})


def parse_query_form(text: str) -> Query:
    """Raises `ValueError` where the text is not a query form."""
    try:
        form = json.loads(text)
        return Query(form["task"], tuple(form["args"]))
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"not a query_form: {text[:80]!r}") from None


def scene_of(objects: list[dict[str, Any]]) -> Scene:
    """The objects column of one row as a scene."""
    return tuple(Object(**o) for o in objects)


@dataclass(frozen=True)
class Example:
    """One row. `image` holds the bytes of a PNG (JPEG where converted from such); `picture()` decodes them."""

    id: str
    image: bytes
    caption: str
    query: str
    answer: bool
    task: str
    pair: tuple[str, ...]
    query_form: str
    scene: Scene

    def picture(self) -> Any:
        """The picture as a Pillow image."""
        from render.image import decode

        return decode(self.image)


def examples_of(table: pa.Table) -> Iterator[Example]:
    for row in table.to_pylist():
        yield Example(
            row["id"],
            row["image"]["bytes"],
            row["caption"],
            row["query"],
            row["answer"],
            row["task"],
            tuple(row["pair"]),
            row["query_form"],
            scene_of(row["objects"]),
        )


def rows_digest(table: pa.Table) -> int:
    """Digest of all columns but `image`: the sum, modulo 2**256, of each row's SHA-256.

    A sum, so that parts of a dataset can be digested apart and in any order (the id holds each row's place).
    """
    sizes = table["objects"].combine_chunks()
    queried = sizes.flatten().field("queried").to_pylist()
    spans = sizes.flatten().field("size").to_pylist()
    ends = sizes.offsets.to_pylist()
    total = 0
    columns = [table[name].to_pylist() for name in ("id", "caption", "query", "answer", "task", "query_form", "pair")]
    for i, (name, caption, query, truth, task, form, pair) in enumerate(zip(*columns, strict=True)):
        flags = "".join("1" if q else "0" for q in queried[ends[i] - ends[0] : ends[i + 1] - ends[0]])
        sized = ",".join(spans[ends[i] - ends[0] : ends[i + 1] - ends[0]])
        row = f"{name}\n{caption}\n{query}\n{truth}\n{task}\n{form}\n{','.join(pair)}\n{flags}\n{sized}"
        total += int.from_bytes(hashlib.sha256(row.encode()).digest(), "big")
    return total % (1 << 256)


def content_digest(rows: dict[str, int], pixels: str | None) -> str:
    """One digest of what a dataset holds, whatever its format: its rows by split, and the digest of its sprites."""
    text = json.dumps({"rows": {split: f"{n:064x}" for split, n in rows.items()}, "pixels": pixels}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def versions() -> dict[str, str]:
    """Versions that the bytes of a dataset may depend on."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in ("travlr", "numpy", "pyarrow", "isal", "pillow"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "unknown"
    return found


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a finished dataset. Raises `ValueError`, in one line, for anything else."""
    path = Path(folder) / MANIFEST
    if not Path(folder).is_dir():
        raise ValueError(f"{folder}: there is no such folder")
    if not path.is_file():
        if (path.parent / ".travlr").is_dir():
            raise ValueError(f"{folder}: unfinished; run the command that began it again to finish it")
        raise ValueError(f"{folder}: not a dataset (no {MANIFEST})")
    try:
        manifest = json.loads(path.read_text())
        version = manifest["format_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a manifest ({error})") from None
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ValueError(f"{path}: format version {version}, newer than this program's {FORMAT_VERSION}; update TraVLR")
    if missing := [key for key in ("layout", "files", "splits", "config") if key not in manifest]:
        raise ValueError(f"{path}: not a manifest (no {missing[0]})")
    for file in manifest["files"]:
        name = Path(str(file.get("name")))
        if name.is_absolute() or ".." in name.parts:
            raise ValueError(f"{path}: names a file outside the dataset: {name}")
    return manifest


class SplitReader:
    """One split of a Parquet dataset: `len`, `[i]`, iteration, and columns, all straight from memory-mapped files."""

    def __init__(self, files: list[tuple[Path, int]]) -> None:
        self._files = files
        self._starts = [0]
        for _, rows in files:
            self._starts.append(self._starts[-1] + rows)

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> Example:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index}: the split has {len(self)} examples")
        index %= len(self)
        number = next(n for n, start in enumerate(self._starts) if index < start) - 1
        return next(examples_of(self._rows(number, index - self._starts[number])))

    def __iter__(self) -> Iterator[Example]:
        for table in self.tables():
            yield from examples_of(table)

    def tables(self, *names: str) -> Iterator[pa.Table]:
        """All rows, or some columns of them, a thousand at a time."""
        for number in range(len(self._files)):
            for batch in self._file(number).iter_batches(ROW_GROUP, columns=list(names) or None):
                yield pa.Table.from_batches([batch])

    def columns(self, *names: str) -> pa.Table:
        """Whole columns as one table; pictures are not touched unless `image` is named."""
        if unknown := [name for name in names if name not in COLUMNS]:
            raise ValueError(f"no column {unknown[0]!r}; choose from {', '.join(COLUMNS)}")
        if not self._files:
            return SCHEMA.empty_table().select(list(names))
        return pa.concat_tables([self._file(n).read(columns=list(names)) for n in range(len(self._files))])

    def _rows(self, number: int, row: int) -> pa.Table:
        file = self._file(number)
        for group in range(file.num_row_groups):
            length = file.metadata.row_group(group).num_rows
            if row < length:
                return self._group(number, group).slice(row, 1)
            row -= length
        raise IndexError(row)

    @functools.cache  # noqa: B019 - a reader lives as long as its files are read
    def _file(self, number: int) -> pq.ParquetFile:
        path = self._files[number][0]
        try:
            file = pq.ParquetFile(path, memory_map=True)
        except (OSError, pa.ArrowInvalid) as error:
            raise ValueError(f"{path}: damaged or missing ({str(error).splitlines()[0]})") from None
        if not file.schema_arrow.equals(SCHEMA, check_metadata=False):
            raise ValueError(f"{path}: its columns are not those of a dataset")
        return file

    @functools.lru_cache(maxsize=4)  # noqa: B019
    def _group(self, number: int, group: int) -> pa.Table:
        return self._file(number).read_row_group(group)


class Dataset:
    """A written Parquet dataset, opened lazily: `Dataset(folder)["test_ood"][12].caption`."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(folder)
        if self.manifest["layout"] != "parquet":
            raise ValueError(
                f"{folder}: has format={self.manifest['layout']}, random access needs parquet; "
                f"python -m travlr.convert {folder} {folder}-parquet format=parquet"
            )
        self.splits = {
            split: SplitReader(
                [(self.folder / f["name"], f["rows"]) for f in self.manifest["files"] if f["split"] == split]
            )
            for split in self.manifest["splits"]
        }

    def __getitem__(self, split: str) -> SplitReader:
        if split not in self.splits:
            raise KeyError(f"no split {split!r}; there are {', '.join(self.splits)}")
        return self.splits[split]


def open_dataset(folder: str | os.PathLike[str]) -> Dataset:
    """Open a written dataset. Raises `ValueError` where the folder holds none, or an unfinished or newer one."""
    return Dataset(folder)


def config_dict(config: Any) -> dict[str, Any]:
    """A config as the JSON of a manifest."""
    return json.loads(json.dumps(dataclasses.asdict(config)))
