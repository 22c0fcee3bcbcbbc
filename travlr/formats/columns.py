"""The columns of a dataset: their types, the digest of rows, and the rows of a shard."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from travlr.scene import Object, Query, Scene
from travlr.settings import UsageError, in_one_line

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
    """A type as Hugging Face `datasets` names it in the metadata of a schema."""
    if kind == IMAGE:
        return {"mode": "RGB", "_type": "Image"}  # without a mode, programs read the palette's indices as pixels
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "_type": "List"}
    if pa.types.is_struct(kind):
        return {field.name: _feature(field.type) for field in kind}
    return {"dtype": str(kind), "_type": "Value"}


def schema_of(columns: Mapping[str, pa.DataType]) -> pa.Schema:
    """A schema of which Hugging Face `datasets` knows how to decode pictures."""
    features = {name: _feature(kind) for name, kind in columns.items()}
    return pa.schema(list(columns.items()), metadata={"huggingface": json.dumps({"info": {"features": features}})})


FEATURES = {name: _feature(kind) for name, kind in COLUMNS.items()}
SCHEMA = schema_of(COLUMNS)


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
def report_damage(path: Path) -> Iterator[None]:
    """Turn any error while reading a file of a dataset into a `ValueError` of one line with the name of the file."""
    try:
        yield
    except UsageError:
        raise
    except (*DAMAGE, pa.ArrowException, csv.Error) as error:
        message = getattr(error, "strerror", None) or in_one_line(error)
        raise ValueError(f"{getattr(error, 'filename', None) or path}: damaged or missing ({message})") from None


def read_shard(path: Path, names: Sequence[str] = ()) -> Iterator[pa.Table]:
    """Columns `names` (all where empty; `image.path` for that part of `image`) of a shard, a row group at a time.

    Raises `ValueError` where it is damaged.
    """
    names = list(names or COLUMNS)
    with report_damage(path):
        file = pq.ParquetFile(path, memory_map=True, page_checksum_verification=True)
        if not file.schema_arrow.equals(SCHEMA):
            raise ValueError(f"its columns are not {', '.join(f'{name}: {kind}' for name, kind in COLUMNS.items())}")
    for group in range(file.num_row_groups):
        with report_damage(path):
            table = file.read_row_group(group, names).select([name.partition(".")[0] for name in names])
        yield table
