"""Lazy reading of Parquet datasets: ours, and those that other programs wrote with our columns.

`open_dataset(folder)["test_ood"][12].caption` reads one row.
"""

from __future__ import annotations

import bisect
import itertools
import operator
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, SupportsIndex, overload

import pyarrow as pa
import pyarrow.parquet as pq

from travlr.columns import COLUMNS, SCHEMA, open_parquet, read_table, scene_of, sound
from travlr.manifest import read_manifest
from travlr.scene import Scene


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
        from render.png import decode

        return decode(self.image)


def example_of(row: Mapping[str, Any], image: bytes) -> Example:
    """The example of a row, with the bytes of its picture."""
    texts = {name: row[name] for name in ("id", "caption", "query", "answer", "task", "query_form")}
    return Example(image=image, pair=tuple(row["pair"]), scene=scene_of(row["objects"]), **texts)


def examples_of(table: pa.Table) -> Iterator[Example]:
    return (example_of(row, row["image"]["bytes"]) for row in table.to_pylist())


class SplitReader:
    """One split of a Parquet dataset: `len`, `[i]`, `[i:j]` (a list), iteration and columns, from memory-mapped files.

    Indices are those of a list: negative ones count from the end. The last `CACHED_GROUPS` row groups that were read by
    index stay in memory. Reading raises `ValueError` where a file is damaged or a column that is read has a null.
    """

    CACHED_GROUPS = 32

    def __init__(self, files: list[tuple[Path, int]]) -> None:
        self._paths = [path for path, _ in files]
        self._starts = [0, *itertools.accumulate(rows for _, rows in files)]
        self._files: dict[int, pq.ParquetFile] = {}
        self._groups: dict[tuple[int, int], pa.Table] = {}

    def __reduce__(self) -> Any:  # other processes open the files again
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
                yield sound(read_table(file, path, names, group), path)

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[pa.Table]:
        """Rows start to stop (None: to the end) with all columns, at most a thousand at a time."""
        stop, begin = len(self) if stop is None else stop, 0
        for number, path in enumerate(self._paths):
            file = self._file(number)
            for group in range(file.num_row_groups):
                end = begin + file.metadata.row_group(group).num_rows
                if begin < stop and end > start:
                    table = sound(read_table(file, path, group=group), path)
                    yield table[max(0, start - begin) : stop - begin]
                begin = end

    def columns(self, *names: str) -> pa.Table:
        """Whole columns as one table; pictures are not touched unless `image` is named."""
        _check_columns(names)
        tables = [SCHEMA.empty_table().select(list(names) or SCHEMA.names)]
        for number, path in enumerate(self._paths):
            tables.append(sound(read_table(self._file(number), path, names), path))
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
            path = self._paths[number]
            table = sound(read_table(self._file(number), path, group=group), path)
        self._groups[number, group] = table  # the last used is the last in the dict
        if len(self._groups) > self.CACHED_GROUPS:
            del self._groups[next(iter(self._groups))]
        return table


def _check_columns(names: tuple[str, ...]) -> None:
    if unknown := [name for name in names if name not in COLUMNS]:
        raise ValueError(f"no column {unknown[0]!r}; choose from {', '.join(COLUMNS)}")


class Dataset:
    """A Parquet dataset, opened lazily; its splits are `SplitReader`s. manifest: as `read_manifest` returns it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(folder)
        self.splits = {
            split: SplitReader(
                [(self.folder / f["name"], f.get("rows", 0)) for f in self.manifest["files"] if f["split"] == split]
            )
            for split in self.manifest["splits"]
        }

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split} {len(reader):,}" for split, reader in self.splits.items())
        task = f"{self.manifest['config']['task']} " if self.manifest["config"] else ""
        return f"<{task}dataset in {self.folder}: {sizes} examples>"

    def check_task(self, task: str) -> None:
        """Raise `ValueError` if the examples are of another task."""
        config = self.manifest["config"]
        holds = config.get("task", task) if config else next(iter(self.splits.values()))[0].task
        if holds != task:
            raise ValueError(
                f"data={self.folder}: holds task={holds}, not task={task}; ask for task={holds} or give other data"
            )

    @property
    def grid(self) -> tuple[int, int] | None:
        """Columns and rows of its pictures; None where no manifest says so."""
        world = (self.manifest["config"] or {}).get("world")
        return (world["columns"], world["rows"]) if world else None

    def __getitem__(self, split: str) -> SplitReader:
        if split not in self.splits:
            raise KeyError(f"no split {split!r}; there are {', '.join(self.splits)}")
        return self.splits[split]


def open_dataset(folder: str | os.PathLike[str]) -> Dataset:
    """Open a Parquet dataset: one that this program wrote, or a folder of shards with our columns from another program.

    Raises `ValueError` where the folder holds no dataset, or an unfinished or damaged one, or one of a newer version,
    and where a shard lacks a column or has one of another type.
    """
    return Dataset(folder)
