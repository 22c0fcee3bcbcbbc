"""Write a dataset as Parquet shards, with one or many workers.

A shard is renamed into place when it is whole, and the manifest comes last. A shard that exists is done, so the same
command, given again after it was stopped, writes what is missing. An example is a pure function of config, split and
index, so the bytes are the same.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from travlr.files import file_hash, put_file, replace_file
from travlr.formats.card import card_files
from travlr.formats.columns import OBJECT, ROW_GROUP, SCHEMA, content_digest, read_shard, report_damage, rows_digest
from travlr.formats.manifest import (
    CARD,
    FORMAT_VERSION,
    MANIFEST,
    SHARD,
    UNFINISHED,
    has_manifest,
    read_manifest,
    versions,
)
from travlr.settings import Log, UsageError
from travlr.workers import Progress, Workers, run_in_processes

ROWS_PER_SHARD = 8000
Tables = Callable[[str, int, int], Iterator[pa.Table]]  # split, start, stop -> its rows, a row group at a time
OBJECTS = [f"objects.list.element.{field.name}" for field in OBJECT]
TEXTS = ["id", "image.bytes", "image.path", "caption", *OBJECTS]  # nobody looks for a range of their values
OTHERS = ["query", "answer", "task", "pair.list.element", "query_form"]


class Shard(NamedTuple):
    """Rows start to stop of a split: its shard `number` of `of`."""

    split: str
    number: int
    of: int
    start: int
    stop: int

    @property
    def name(self) -> str:
        return f"{self.split}-{self.number:05d}-of-{self.of:05d}.parquet"


def shards_due(counts: dict[str, int]) -> list[Shard]:
    """All shards of a dataset, in order. counts: rows by split."""
    starts = {split: range(0, count, ROWS_PER_SHARD) for split, count in counts.items()}
    return [
        Shard(split, number, len(starts[split]), start, min(start + ROWS_PER_SHARD, count))
        for split, count in counts.items()
        for number, start in enumerate(starts[split])
    ]


def write_dataset(
    folder: Path,
    counts: dict[str, int],
    about: dict[str, Any],
    tables: Tables,
    workers: Workers = 0,
    overwrite: bool = False,
    log: Log = print,
    repeats: bool = False,
) -> dict[str, Any]:
    """Write the missing shards of a dataset, and return its manifest.

    counts: rows by split. about: entries of the manifest that determine the rows: config, held_out, pixels, source.
    tables: a picklable function that makes rows. overwrite: write a finished dataset again, or replace another one.
    repeats: whether rows that follow each other show the same picture, which is then stored once.

    Raises `UsageError` for a folder that holds something else.
    """
    about = json.loads(json.dumps({"format_version": FORMAT_VERSION, **about}))
    prepare_folder(folder, about, overwrite)
    shards = shards_due(counts)
    missing = [shard for shard in shards if not (folder / shard.name).exists()]
    if has_manifest(folder) and not missing:
        log(f"{folder} is complete: nothing to do")
        return read_manifest(folder)
    if len(missing) < len(shards):
        log(f"resuming {folder}: {len(shards) - len(missing)} of {len(shards)} files are written")
    put_file(folder / UNFINISHED, json.dumps(about).encode())
    records = []
    with Progress(sum(counts.values()), log) as progress:
        make = functools.partial(make_shard, folder.absolute(), tables, repeats)
        for record in run_in_processes(make, shards, workers):
            progress.advance(record["rows"])
            records.append(record)
    manifest = _manifest(about, records)
    first_row = next(read_shard(folder / shards[0].name)).slice(0, 1).to_pylist()[0]
    for name, data in card_files(manifest, first_row).items():
        put_file(folder / name, data)
    put_file(folder / MANIFEST, json.dumps(manifest, indent=1).encode() + b"\n")
    (folder / UNFINISHED).unlink()
    for path in folder.glob(".*.parquet.*.tmp"):  # of a process that was killed
        path.unlink(missing_ok=True)
    return manifest


def _read_settings(path: Path) -> dict[str, Any]:
    with report_damage(path):
        return dict(json.loads(path.read_bytes()))


def prepare_folder(folder: Path, about: dict[str, Any], overwrite: bool) -> None:
    """Make the folder; with `overwrite` remove the dataset in it, finished or not.

    Raises `UsageError` where it is a file, or holds anything else: a dataset of other settings, or other files.
    """
    if folder.is_file():
        raise UsageError(f"{folder}: is a file")
    folder.mkdir(parents=True, exist_ok=True)
    earlier = next((folder / name for name in (MANIFEST, UNFINISHED) if (folder / name).is_file()), None)
    if earlier is None:
        if name := min((path.name for path in folder.iterdir()), default=""):
            raise UsageError(f"{folder}: is not empty and not a dataset ({name}); name another folder")
    elif overwrite:
        for path in folder.iterdir():
            if SHARD.fullmatch(path.name):
                path.unlink()
        for name in (*CARD, MANIFEST, UNFINISHED):  # last what says that the folder holds a dataset
            (folder / name).unlink(missing_ok=True)
    elif not about.items() <= _read_settings(earlier).items():
        raise UsageError(f"{folder}: holds a dataset of other settings; name another folder, or set overwrite=true")


# Shards --------------------------------------------------------------------------------------------------------------


def make_shard(folder: Path, tables: Tables, repeats: bool, shard: Shard) -> dict[str, Any]:
    """Write a shard unless it exists, and return what the manifest says of it."""
    path = folder / shard.name
    if not path.exists():
        write_shard(path, tables(shard.split, shard.start, shard.stop), repeats)
    record: dict[str, Any] = {
        "name": shard.name,
        "split": shard.split,
        "rows": 0,
        **file_hash(path),
        "true": 0,
        "rows_digest": 0,
    }
    for table in read_shard(path, [name for name in SCHEMA.names if name != "image"]):
        record["rows"] += table.num_rows
        record["true"] += pa.compute.sum(table["answer"]).as_py()
        record["rows_digest"] += rows_digest(table)
    return record


def write_shard(path: Path, tables: Iterable[pa.Table], repeats: bool = False) -> None:
    """Write rows as a Parquet file: columns in row groups of a thousand, pictures not compressed again."""
    with (
        replace_file(path) as temporary,
        pq.ParquetWriter(
            temporary,
            SCHEMA,
            compression={name: "none" if name == "image.bytes" else "zstd" for name in (*TEXTS, *OTHERS)},
            use_dictionary=["query", "task", "query_form", "pair.list.element", *OBJECTS, *["image.bytes"] * repeats],
            dictionary_pagesize_limit=1 << 30,
            write_statistics=OTHERS,
            write_page_checksum=True,
        ) as writer,
    ):
        for table in tables:
            writer.write_table(table, ROW_GROUP)


def _manifest(about: dict[str, Any], records: list[dict[str, Any]]) -> dict[str, Any]:
    splits: dict[str, dict[str, int]] = {}
    digests: dict[str, int] = {}
    for record in records:
        split = splits.setdefault(record["split"], {"rows": 0, "true": 0})
        split["rows"] += record["rows"]
        split["true"] += record["true"]
        digests[record["split"]] = (digests.get(record["split"], 0) + record["rows_digest"]) % (1 << 256)
    return {
        "format": "travlr",
        **about,
        "splits": splits,
        "content_digest": content_digest(digests, about["pixels"]),
        "versions": versions(),
        "files": [{key: record[key] for key in ("name", "split", "rows", "bytes", "sha256")} for record in records],
    }
