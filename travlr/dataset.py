"""A dataset on disk: its columns, its manifest, and lazy reading. Formats are in `travlr.formats`."""

from __future__ import annotations

import bisect
import contextlib
import csv
import dataclasses
import hashlib
import itertools
import json
import operator
import os
import platform
import re
import shlex
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, SupportsIndex, overload

import pyarrow as pa
import pyarrow.parquet as pq

from travlr.files import WORK, regular
from travlr.scene import SPLITS, Object, Query, Scene

FORMAT_VERSION = 1
FORMATS = ("parquet", "imagefolder", "webdataset", "original")  # `travlr.formats` has one class for each
MANIFEST = "dataset.json"
ROW_GROUP = 1000  # rows read or written at a time
MOST_ROWS = 10**12  # of a split: a manifest that names more is damaged, and they would not fit `len`

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
        return {"mode": "RGB", "_type": "Image"}  # our PNGs have a palette, whose indices nobody wants as pixels
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "_type": "List"}
    if pa.types.is_struct(kind):
        return {field.name: _feature(field.type) for field in kind}
    return {"dtype": str(kind), "_type": "Value"}


# What Hugging Face `datasets` reads to know that `image` is a picture.
FEATURES = {name: _feature(kind) for name, kind in COLUMNS.items()}
SCHEMA = pa.schema(list(COLUMNS.items()), metadata={"huggingface": json.dumps({"info": {"features": FEATURES}})})
SCHEMA_DIGEST = hashlib.sha256(json.dumps(FEATURES).encode()).hexdigest()[:16]


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
    image: bytes = field(repr=False)
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
        if (path.parent / WORK).is_dir():
            raise ValueError(f"{folder}: unfinished; run the command that began it again to finish it")
        raise ValueError(f"{folder}: not a dataset (no {MANIFEST})")
    return checked_manifest(path)


def checked_manifest(path: Path) -> dict[str, Any]:
    """A manifest, or the `job.json` of an unfinished dataset, as well formed as the rest of the program takes it.

    Raises `ValueError` for one that is damaged, from a newer version, or that names files outside its folder.
    """
    with damage(path):
        manifest = json.loads(regular(path).read_text(encoding="utf-8"))
        version = int(manifest["format_version"])
    if version > FORMAT_VERSION:
        raise ValueError(f"{path}: format version {version}, newer than this program's {FORMAT_VERSION}; update TraVLR")
    with damage(path):
        for key, kind in {"layout": str, "config": dict | None, "splits": dict, "files": list}.items():
            if not isinstance(manifest[key], kind):
                raise ValueError(f"wrong {key}")
        if manifest["layout"] not in FORMATS:
            raise ValueError(f"unknown layout {manifest['layout']!r}")
        if not isinstance(rows_per_file := manifest.get("rows_per_file", 1), int) or rows_per_file < 1:
            raise ValueError(f"wrong rows_per_file {rows_per_file!r}")
        for file in manifest["files"]:
            _check_file(file)
        for split, counts in manifest["splits"].items():
            if split not in SPLITS or not _is_count(counts["rows"]) or counts["rows"] < 1:
                raise ValueError(f"wrong split {split!r}")
        if not manifest["splits"]:
            raise ValueError("no splits")
        if any("*" in f["name"] and f["rows"] > manifest["splits"][f["split"]]["rows"] for f in manifest["files"]):
            raise ValueError("more pictures than rows")
        for name in ("pairs", "queries") if manifest.get("held_out") else ():
            if not all(isinstance(item, list) for item in manifest["held_out"][name]):
                raise ValueError(f"wrong held_out {name}")
    return manifest


_SPLIT = f"(?:{'|'.join(SPLITS)})"
OURS = re.compile(  # every name that a layout gives to a file
    rf"{_SPLIT}-\d{{5,}}-of-\d{{5,}}\.(?:parquet|tar)"
    rf"|{_SPLIT}/(?:metadata\.jsonl|\w+-{_SPLIT}-\*\.(?:png|jpg))"
    r"|index\.csv|metadata\.jsonl|images/\*\.jpg"
)


def _is_count(value: Any) -> bool:
    """Whether a value of a manifest can be a number of rows."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_ROWS


def _check_file(file: dict[str, Any]) -> None:
    name, rows = file["name"], file.get("rows", 0)
    if not OURS.fullmatch(name):  # also keeps `overwrite=true` from removing anything else
        raise ValueError(f"names a file that no dataset has: {name}")
    if file["split"] not in (None, *SPLITS) or not _is_count(rows):
        raise ValueError(f"wrong split or rows of {name}")
    if "*" in file["name"] and not ("rows" in file and _is_count(file["start"]) and file["digits"] in ("d", "08d")):
        raise ValueError(f"wrong numbers of {name}")


DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


@contextlib.contextmanager
def damage(path: Path) -> Iterator[None]:
    """Turn what goes wrong in reading a file of a dataset into a `ValueError` that names it, in one line."""
    try:
        yield
    except (*DAMAGE, pa.ArrowException, csv.Error, tarfile.TarError) as error:
        message = (getattr(error, "strerror", None) or str(error) or repr(error)).splitlines()[0]
        other = getattr(error, "filename", None) or path
        raise ValueError(f"{other}: damaged or missing ({message})") from None


def open_parquet(path: Path) -> pq.ParquetFile:
    """A shard, memory-mapped. Raises `ValueError` where it is damaged or has other columns."""
    with damage(path):
        file = pq.ParquetFile(regular(path), memory_map=True, page_checksum_verification=True)
        if not file.schema_arrow.equals(SCHEMA, check_metadata=False):
            raise ValueError("its columns are not those of a dataset")
        return file


def malformed(table: pa.Table) -> str:
    """What makes the rows of a table unreadable, such as a null, with the name of its column; empty for a sound table.

    A null counts in lists, items of lists and fields of structs, too. Only the columns of the table are examined.
    """
    try:
        table.validate(full=True)
    except pa.ArrowException as error:
        return str(error).splitlines()[0]
    nulls = (null for name in table.column_names for chunk in table[name].chunks for null in _nulls(name, chunk))
    return f"column {name} has a null" if (name := next(nulls, "")) else ""


def _nulls(name: str, array: pa.Array) -> Iterator[str]:
    """The name of an array that has a null, and of each part of it that has one: `objects`, `objects.colour`."""
    if array.null_count:
        yield name
    if pa.types.is_list(array.type):
        yield from _nulls(name, array.flatten())
    elif pa.types.is_struct(array.type):
        for number, part in enumerate(array.type):
            yield from _nulls(f"{name}.{part.name}", array.field(number))


def sound(table: pa.Table, path: Path) -> pa.Table:
    """The table, which was read from `path`. Raises `ValueError` where it is malformed."""
    if problem := malformed(table):
        raise ValueError(f"{path}: damaged ({problem})")
    return table


class SplitReader:
    """One split of a Parquet dataset: `len`, `[i]`, `[i:j]` (a list), iteration, and columns, all straight from
    memory-mapped files. Numbers are those of a list: negative ones count from the end.

    Of what was read by number the last `KEPT_GROUPS` thousands of rows stay in memory. Reading raises `ValueError`
    where a file is damaged, or a column that is read has a null.
    """

    KEPT_GROUPS = 32

    def __init__(self, files: list[tuple[Path, int]]) -> None:
        self._paths = [path for path, _ in files]
        self._starts = [0, *itertools.accumulate(rows for _, rows in files)]
        self._files: dict[int, pq.ParquetFile] = {}
        self._groups: dict[tuple[int, int], pa.Table] = {}

    def __reduce__(self) -> Any:  # to other processes goes where the files are, not what was read
        rows = [stop - start for start, stop in itertools.pairwise(self._starts)]
        return SplitReader, (list(zip(self._paths, rows, strict=True)),)

    def __len__(self) -> int:
        return self._starts[-1]

    def __repr__(self) -> str:
        names = f"{self._paths[0]}{' …' * (len(self._paths) > 1)}" if self._paths else "no file"
        return f"<split of {len(self):,} examples in {names}>"

    @overload
    def __getitem__(self, index: SupportsIndex) -> Example: ...

    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not hasattr(index, "__index__"):
            raise TypeError(
                f"{index!r}: a split gives examples for a number or a slice; columns(…) gives whole columns"
            )
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index}: the split has {len(self)} examples")
        index %= len(self)
        number = bisect.bisect_right(self._starts, index) - 1
        return next(examples_of(self._row(number, index - self._starts[number])))

    def __iter__(self) -> Iterator[Example]:
        for table in self.tables():
            yield from examples_of(table)

    def tables(self, *names: str) -> Iterator[pa.Table]:
        """All rows, or some columns of them, a thousand at a time."""
        _check_columns(names)
        for number, path in enumerate(self._paths):
            file = self._file(number)
            for group in range(file.num_row_groups):
                with damage(path):
                    table = file.read_row_group(group, columns=list(names) or None)
                yield sound(table, path)

    def columns(self, *names: str) -> pa.Table:
        """Whole columns as one table; pictures are not touched unless `image` is named."""
        _check_columns(names)
        tables = [SCHEMA.empty_table().select(list(names) or SCHEMA.names)]
        for number, path in enumerate(self._paths):
            file = self._file(number)
            with damage(path):
                table = file.read(columns=list(names) or None)
            tables.append(sound(table, path))
        return pa.concat_tables(tables)

    def _row(self, number: int, row: int) -> pa.Table:
        metadata = self._file(number).metadata
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group).num_rows
            if row < rows:
                return self._group(number, group).slice(row, 1)
            row -= rows
        raise ValueError(f"{self._paths[number]}: has fewer rows than the manifest says")

    def _file(self, number: int) -> pq.ParquetFile:
        if number not in self._files:
            self._files[number] = open_parquet(self._paths[number])
        return self._files[number]

    def _group(self, number: int, group: int) -> pa.Table:
        table = self._groups.pop((number, group), None)
        if table is None:
            file = self._file(number)
            with damage(self._paths[number]):
                table = file.read_row_group(group)
            sound(table, self._paths[number])
        self._groups[number, group] = table  # the last used is the last in the dict
        if len(self._groups) > self.KEPT_GROUPS:
            del self._groups[next(iter(self._groups))]
        return table


def _check_columns(names: tuple[str, ...]) -> None:
    if unknown := [name for name in names if name not in COLUMNS]:
        raise ValueError(f"no column {unknown[0]!r}; choose from {', '.join(COLUMNS)}")


class Dataset:
    """A written Parquet dataset, opened lazily: `Dataset(folder)["test_ood"][12].caption`."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(folder)
        if self.manifest["layout"] != "parquet":
            parquet = shlex.join([str(folder), f"{self.folder}-parquet"])
            raise ValueError(
                f"{folder}: has format={self.manifest['layout']}, random access needs parquet; "
                f"python -m travlr.convert {parquet} format=parquet"
            )
        self.splits = {
            split: SplitReader(
                [(self.folder / f["name"], f.get("rows", 0)) for f in self.manifest["files"] if f["split"] == split]
            )
            for split in self.manifest["splits"]
        }

    def __repr__(self) -> str:
        held = ", ".join(f"{split} {len(reader):,}" for split, reader in self.splits.items())
        task = f"{(self.manifest['config'] or {}).get('task', 'published')} "
        return f"<{task}dataset in {self.folder}: {held} examples>"

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
