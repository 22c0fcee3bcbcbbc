"""format=parquet: shards that Hugging Face datasets, pandas and other programs read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from travlr.formats.base import Layout, Open, Part, Tables, shards
from travlr.formats.columns import OBJECT, ROW_GROUP, SCHEMA, open_parquet, read_table


class Parquet(Layout):
    """`train-00000-of-00004.parquet` and so on: columns in row groups of a thousand, pictures not compressed again."""

    name, ending = "parquet", "parquet"

    def put(self, open_file: Open, part: Part, tables: Iterator[pa.Table]) -> None:
        objects = [f"objects.list.element.{field.name}" for field in OBJECT]
        dictionaries = ["query", "task", "query_form", "pair.list.element", *objects]
        compression = {name: "zstd" for name in _leaves() if name != "image.bytes"} | {"image.bytes": "none"}
        unordered = ("id", "image.bytes", "image.path", "caption", *objects)  # nobody looks for a range of their values
        with (
            open_file(f"{part.name}.{self.ending}", True) as file,
            pq.ParquetWriter(
                file,
                SCHEMA,
                compression=compression,
                use_dictionary=dictionaries,
                write_statistics=[name for name in _leaves() if name not in unordered],
                write_page_checksum=True,
            ) as writer,
        ):
            for table in _thousands(tables):
                writer.write_table(table, ROW_GROUP)

    def tables(self, folder: Path, manifest: dict[str, Any], split: str, start: int, stop: int | None) -> Tables:
        for path, first, last in shards(folder, manifest, split, start, stop):
            file = open_parquet(path)
            begin = 0
            for group in range(file.num_row_groups):
                end = begin + file.metadata.row_group(group).num_rows
                if end > first and (last is None or begin < last):
                    table = read_table(file, path, group=group)
                    yield path, table[max(0, first - begin) : end - begin if last is None else last - begin]
                begin = end


def _thousands(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of a thousand, each in one piece, so that a file's bytes depend on its rows alone."""
    rows = SCHEMA.empty_table()
    for table in tables:
        rows = pa.concat_tables([rows, table]) if rows.num_rows else table
        while rows.num_rows >= ROW_GROUP:
            yield rows[:ROW_GROUP].combine_chunks()
            rows = rows[ROW_GROUP:]
    if rows.num_rows:
        yield rows.combine_chunks()


def _leaves() -> list[str]:
    """The names of the columns in a Parquet file, one for each field of a struct."""
    names = []
    for field in SCHEMA:
        kind, path = field.type, field.name
        if pa.types.is_list(kind):
            kind, path = kind.value_type, f"{path}.list.element"
        names += [f"{path}.{inner.name}" for inner in kind] if pa.types.is_struct(kind) else [path]
    return names
