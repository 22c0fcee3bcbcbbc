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

from render.png import encoder_digest
from travlr.card import card_files
from travlr.cli import Log
from travlr.columns import OBJECT, ROW_GROUP, SCHEMA, content_digest, open_parquet, read_table, rows_digest
from travlr.files import hashed, put_file, replacing
from travlr.manifest import CARD, FORMAT_VERSION, MANIFEST, SHARD, UNFINISHED, has_manifest, read_manifest, versions
from travlr.workers import Progress, Workers, run

ROWS_PER_SHARD = 8000
Tables = Callable[[str, int, int], Iterator[pa.Table]]  # split, start, stop -> its rows


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
) -> dict[str, Any]:
    """Write the missing shards of a dataset, and return its manifest.

    counts: rows by split. about: entries of the manifest that determine the rows: config, held_out, pixels, source.
    tables: a picklable function that makes rows. overwrite: write a finished dataset again, or replace another one.

    Raises `ValueError` for a folder that holds something else.
    """
    about = json.loads(json.dumps({"format_version": FORMAT_VERSION, **about}))
    shards = [shard for shard in shards_due(counts) if shard.stop > shard.start]
    earlier = _earlier(folder)
    if earlier and not overwrite and (setting := differing_setting(earlier, about)):
        raise ValueError(f"{folder}: holds a dataset with {setting}; name another folder, or set overwrite=true")
    finished = has_manifest(folder) and all((folder / shard.name).is_file() for shard in shards)
    if finished and not overwrite:
        log(f"{folder} is complete: nothing to do")
        return read_manifest(folder)
    now = versions() | {"encoder": encoder_digest()}
    if overwrite or (earlier and earlier["versions"] != now):
        remove_dataset(folder)
    put_file(folder / UNFINISHED, json.dumps({**about, "versions": now}).encode())
    records = dict(_records(folder, shards, tables, workers, log))
    manifest = _manifest(about, now, [records[shard] for shard in shards])
    first_row = read_table(open_parquet(folder / shards[0].name), folder / shards[0].name, group=0).slice(0, 1)
    for name, data in card_files(manifest, first_row.to_pylist()[0]).items():
        put_file(folder / name, data)
    put_file(folder / MANIFEST, json.dumps(manifest, indent=1).encode() + b"\n")
    (folder / UNFINISHED).unlink(missing_ok=True)
    for path in folder.glob(".*.parquet.*.tmp"):  # of a process that was killed
        path.unlink(missing_ok=True)
    return manifest


def _earlier(folder: Path) -> dict[str, Any] | None:
    """The manifest of the dataset in the folder, or of the one that is being written; None for an empty folder.

    Raises `ValueError` for a folder that cannot be written or holds something else.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted(path.name for path in folder.iterdir())
    except FileExistsError:
        raise ValueError(f"{folder}: is a file; name a folder") from None
    except OSError as error:
        raise ValueError(f"{folder}: cannot be written ({error.strerror}); name another folder") from None
    if has_manifest(folder):
        return read_manifest(folder)
    if (folder / UNFINISHED).is_file():
        earlier: dict[str, Any] = json.loads((folder / UNFINISHED).read_bytes())
        return earlier
    if names:
        raise ValueError(f"{folder}: is not empty and not a dataset ({names[0]}); name another folder")
    return None


def differing_setting(earlier: dict[str, Any], about: dict[str, Any]) -> str:
    """The first setting in which two datasets differ, as `name=value` of the earlier one; empty where none does."""

    def flat(value: Any, name: str) -> dict[str, Any]:
        if isinstance(value, dict) and value:
            return {k: v for key, inner in value.items() for k, v in flat(inner, f"{name}.{key}").items()}
        return {name.removeprefix(".").removeprefix("config."): value}

    due, values = flat(about, ""), flat({key: earlier.get(key) for key in about}, "")
    names = [name for name in [*values, *due] if due.get(name) != values.get(name)]
    return f"{names[0]}={json.dumps(values.get(names[0]))}" if names else ""


def remove_dataset(folder: Path) -> None:
    """Delete the files of a dataset, finished or not, and nothing else. The manifest goes first."""
    for name in (MANIFEST, UNFINISHED, *CARD):
        (folder / name).unlink(missing_ok=True)
    for path in folder.iterdir():
        if SHARD.fullmatch(path.name):
            path.unlink()


# Shards --------------------------------------------------------------------------------------------------------------


def _records(
    folder: Path, shards: list[Shard], tables: Tables, workers: Workers, log: Log
) -> Iterator[tuple[Shard, dict[str, Any]]]:
    """Each shard with what the manifest says of it, as they are finished."""
    missing = [shard for shard in shards if not (folder / shard.name).exists()]
    if missing and len(missing) < len(shards):
        log(f"resuming {folder}: {len(shards) - len(missing)} of {len(shards)} files are written")
    # The largest first, so that all workers end at about one time.
    order = sorted(shards, key=lambda shard: shard.start - shard.stop)
    with Progress(sum(shard.stop - shard.start for shard in shards), log) as progress:
        for shard, record in run(functools.partial(make_shard, folder.absolute(), tables), order, workers):
            progress.advance(record["rows"])
            yield shard, record


def make_shard(folder: Path, tables: Tables, shard: Shard) -> dict[str, Any]:
    """Write a shard unless it exists, and return what the manifest says of it."""
    path = folder / shard.name
    if not path.exists():
        write_shard(path, tables(shard.split, shard.start, shard.stop))
    columns = [name for name in SCHEMA.names if name != "image"]
    table = read_table(open_parquet(path), path, columns)
    return {
        "name": shard.name,
        "split": shard.split,
        "rows": table.num_rows,
        **hashed(path),
        "true": pa.compute.sum(table["answer"]).as_py(),
        "rows_digest": rows_digest(table),
    }


def write_shard(path: Path, tables: Iterable[pa.Table]) -> None:
    """Write rows as a Parquet file: columns in row groups of a thousand, pictures not compressed again."""
    objects = [f"objects.list.element.{field.name}" for field in OBJECT]
    unordered = ("id", "image.bytes", "image.path", "caption", *objects)  # nobody looks for a range of their values
    with (
        replacing(path) as temporary,
        pq.ParquetWriter(
            temporary,
            SCHEMA,
            compression={name: "none" if name == "image.bytes" else "zstd" for name in _leaves()},
            use_dictionary=["query", "task", "query_form", "pair.list.element", *objects],
            write_statistics=[name for name in _leaves() if name not in unordered],
            write_page_checksum=True,
        ) as writer,
    ):
        for table in _thousands(tables):
            writer.write_table(table, ROW_GROUP)


def _thousands(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
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


def _manifest(about: dict[str, Any], now: dict[str, str], records: list[dict[str, Any]]) -> dict[str, Any]:
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
        "versions": now,
        "files": [{key: record[key] for key in ("name", "split", "rows", "bytes", "sha256")} for record in records],
    }
