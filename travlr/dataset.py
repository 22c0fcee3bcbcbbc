"""Reading of datasets: `open_dataset(folder)["test_ood"][12].caption` reads one example."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import pyarrow as pa

from travlr.config import Config
from travlr.formats.columns import COLUMNS, SCHEMA, read_shard, report_damage, scene_of
from travlr.formats.manifest import MANIFEST, read_manifest
from travlr.scene import Scene
from travlr.tasks import config_from_dict


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


class SplitReader(Sequence[Example]):
    """One split of a dataset: `len`, `[i]`, `[i:j]` (a list), iteration and columns.

    Iteration and columns read what they need, a thousand rows at a time. The first `[i]` reads the whole split, which
    then stays in memory. Reading raises `ValueError` where a file is damaged.
    """

    def __init__(self, paths: Sequence[Path], rows: int) -> None:
        self._paths, self._rows = paths, rows

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"<split of {self._rows:,} examples in {', '.join(map(str, self._paths))}>"

    @overload
    def __getitem__(self, index: int) -> Example: ...

    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...

    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self[i] for i in range(self._rows)[index]]
        return next(examples_of(self._table.slice(range(self._rows)[index], 1)))

    def __iter__(self) -> Iterator[Example]:
        for table in self.tables():
            yield from examples_of(table)

    @functools.cached_property
    def _table(self) -> pa.Table:
        return self.columns()

    def tables(self, *names: str) -> Iterator[pa.Table]:
        """All rows, or some columns of them, a thousand at a time."""
        for path in self._paths:
            yield from read_shard(path, names)

    def columns(self, *names: str) -> pa.Table:
        """Whole columns as one table; pictures are not read unless `image` is named, or nothing is."""
        return pa.concat_tables([SCHEMA.empty_table().select(names or list(COLUMNS)), *self.tables(*names)])


class Dataset:
    """A dataset; its splits are `SplitReader`s. manifest: as `read_manifest` returns it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(folder)
        self.splits = {
            split: SplitReader(
                [self.folder / file["name"] for file in self.manifest["files"] if file["split"] == split],
                counts["rows"],
            )
            for split, counts in self.manifest["splits"].items()
        }

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split} {len(reader):,}" for split, reader in self.splits.items())
        task = f"{self.manifest['config']['task']} " if self.manifest["config"] else ""
        return f"<{task}dataset in {self.folder}: {sizes} examples>"

    def check_task(self, task: str) -> None:
        """Raise `ValueError` if the examples are of another task."""
        if self.task != task:
            raise ValueError(
                f"data={self.folder}: holds task={self.task}, not task={task}; "
                f"ask for task={self.task} or give other data"
            )

    def check_splits(self, splits: Iterable[str]) -> None:
        """Raise `ValueError` for a split without examples."""
        for split in splits:
            if split not in self.splits or not len(self[split]):
                raise ValueError(f"data={self.folder}: has no split {split}; it has {', '.join(self.splits)}")

    @functools.cached_property
    def task(self) -> str:
        """The task of its examples: that of its settings, or of its first row."""
        if self.manifest["config"]:
            return str(self.manifest["config"]["task"])
        return str(next(next(iter(self.splits.values())).tables("task"))["task"][0])

    @functools.cached_property
    def config(self) -> Config | None:
        """Its settings; None where another program made it. Raises `ValueError` where they are no settings."""
        with report_damage(self.folder / MANIFEST):
            return config_from_dict(self.manifest["config"]) if self.manifest["config"] else None

    @property
    def grid(self) -> tuple[int, int] | None:
        """Columns and rows of its pictures; None where no manifest says so."""
        return (self.config.world.columns, self.config.world.rows) if self.config else None

    def __getitem__(self, split: str) -> SplitReader:
        if split not in self.splits:
            raise KeyError(f"no split {split!r}; there are {', '.join(self.splits)}")
        return self.splits[split]


def open_dataset(folder: str | os.PathLike[str]) -> Dataset:
    """Open a dataset: one that this program wrote, or a folder of shards with the same columns from another program.

    Raises `ValueError` where the folder holds no dataset, or an unfinished or damaged one.
    """
    return Dataset(folder)
