"""The columns of a dataset: their types, the digest of rows, and the checks of a table that was read."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from travlr.files import regular
from travlr.scene import Object, Query, Scene

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
        return {"mode": "RGB", "_type": "Image"}  # without a mode, programs read the palette's indices as pixels
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "_type": "List"}
    if pa.types.is_struct(kind):
        return {field.name: _feature(field.type) for field in kind}
    return {"dtype": str(kind), "_type": "Value"}


# Read by Hugging Face `datasets`, which decodes `image` because of it.
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


def rows_digest(table: pa.Table) -> int:
    """Digest of all columns but `image`: the sum, modulo 2**256, of each row's SHA-256.

    A sum, so that parts of a dataset can be digested separately and in any order (the id holds the place of a row).
    """
    import pyarrow.compute as pc

    objects = table["objects"].combine_chunks()
    flags = pc.if_else(objects.values.field("queried"), "1", "0")
    lists = {
        "pair": pc.binary_join(table["pair"], ","),
        "flags": pc.binary_join(pa.ListArray.from_arrays(objects.offsets, flags), ""),
        "sizes": pc.binary_join(pa.ListArray.from_arrays(objects.offsets, objects.values.field("size")), ","),
    }
    texts = [table[name] for name in ("id", "caption", "query")]
    texts += [pc.if_else(table["answer"], "True", "False"), table["task"], table["query_form"], *lists.values()]
    rows = pc.binary_join_element_wise(*texts, "\n").cast(pa.binary()).to_pylist()
    total = sum(int.from_bytes(hashlib.sha256(row).digest(), "big") for row in rows)
    return total % (1 << 256)


def content_digest(rows: dict[str, int], pixels: str | None) -> str:
    """The digest of a dataset: of the digests of its rows by split, and of its sprites."""
    text = json.dumps({"rows": {split: f"{n:064x}" for split, n in rows.items()}, "pixels": pixels}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


@contextlib.contextmanager
def damage(path: Path) -> Iterator[None]:
    """Turn any error while reading a file of a dataset into a `ValueError` of one line with the name of the file."""
    try:
        yield
    except (*DAMAGE, pa.ArrowException, csv.Error, tarfile.TarError) as error:
        message = (getattr(error, "strerror", None) or str(error) or repr(error)).splitlines()[0]
        name = getattr(error, "filename", None) or path
        raise ValueError(f"{name}: damaged or missing ({message})") from None


def open_parquet(path: Path) -> pq.ParquetFile:
    """A shard, memory-mapped. Raises `ValueError` where it is damaged or lacks a column; it may have further ones."""
    with damage(path):
        file = pq.ParquetFile(regular(path), memory_map=True, page_checksum_verification=True)
    if missing := [name for name in COLUMNS if name not in file.schema_arrow.names]:
        raise ValueError(f"{path}: has no column {missing[0]}; it must be {COLUMNS[missing[0]]}")
    return file


def read_table(file: pq.ParquetFile, path: Path, names: Sequence[str] = (), group: int | None = None) -> pa.Table:
    """Columns `names` (all of ours where empty) of a row group, or of all groups, in the types of `SCHEMA`.

    Raises `ValueError` where the file is damaged or a column cannot be of its type. The table may have nulls.
    """
    names = list(names or SCHEMA.names)
    with damage(path):
        table = file.read(names) if group is None else file.read_row_group(group, names)
    columns = []
    for name in names:
        try:
            columns.append(table[name].cast(COLUMNS[name]))
        except pa.ArrowException:
            raise ValueError(f"{path}: column {name} is {table[name].type}; it must be {COLUMNS[name]}") from None
    if "image" in names:
        columns[names.index("image")] = pa.chunked_array(map(_with_path, columns[names.index("image")].chunks), IMAGE)
    return pa.table(columns, schema=pa.schema([SCHEMA.field(name) for name in names], SCHEMA.metadata))


def _with_path(images: pa.StructArray) -> pa.StructArray:
    """Images whose missing paths are empty: other programs write pictures without the name of a file."""
    if not images.field("path").null_count:
        return images
    parts = [images.field("bytes"), images.field("path").fill_null("")]
    return pa.StructArray.from_arrays(parts, fields=list(IMAGE), mask=images.is_null())


def malformed(table: pa.Table) -> str:
    """Why the rows of a table cannot be read, such as a null in a column; empty for a sound table.

    Nulls in lists and in fields of structs count, too. Only the columns of the table are examined.
    """
    try:
        table.validate(full=True)
    except pa.ArrowException as error:
        return str(error).splitlines()[0]
    nulls = (null for name in table.column_names for chunk in table[name].chunks for null in _nulls(name, chunk))
    return f"column {name} has a null" if (name := next(nulls, "")) else ""


def _nulls(name: str, array: pa.Array) -> Iterator[str]:
    """The names of the array and of its nested fields that have nulls: `objects`, `objects.colour`."""
    if array.null_count:
        yield name
    if pa.types.is_list(array.type):
        yield from _nulls(name, array.flatten())
    elif pa.types.is_struct(array.type):
        for number, part in enumerate(array.type):
            yield from _nulls(f"{name}.{part.name}", array.field(number))


def sound(table: pa.Table, path: Path) -> pa.Table:
    """The table itself. Raises `ValueError`, with the path of its file, where it is malformed."""
    if problem := malformed(table):
        raise ValueError(f"{path}: damaged ({problem})")
    return table
