"""What the audit reads: the manifest, then each piece of the dataset, in workers."""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from render.text import parse_caption
from travlr.audit.rows import Rules, examine_row, recount, rows_of
from travlr.dataset import MANIFEST, damage, malformed, read_manifest, rows_digest
from travlr.files import WORK, hashed
from travlr.formats import LAYOUTS
from travlr.formats.base import names_of
from travlr.formats.original import published_counts
from travlr.tasks import config_from_dict, parse_query
from travlr.tasks.base import Pair


@dataclass(frozen=True)
class DatasetInfo:
    """What a dataset says of itself; published data has no manifest, so no files, and what is held out is inferred."""

    folder: Path
    layout: str
    splits: dict[str, dict[str, int]]
    rules: Rules
    files: tuple[dict[str, Any], ...] = ()
    data_files: tuple[str, ...] = ()
    pixels: str | None = None
    digest: str = ""


class Chunk(NamedTuple):
    """A file, or the files of some rows: rows start to stop of a split, or (None) to the end; no rows without split."""

    number: int
    split: str
    start: int
    stop: int | None
    file: dict[str, Any]


@dataclass
class Findings:
    """What was found in a part, or in several."""

    number: int = 0
    done: Counter[str] = field(default_factory=Counter)  # check -> things checked
    wrong: Counter[tuple[str, str]] = field(default_factory=Counter)  # (check, split) -> those that fail it
    first: dict[str, tuple[int, str]] = field(default_factory=dict)  # check -> part and row of the first, and why
    tally: Counter[tuple[str, str, Any, bool]] = field(default_factory=Counter)  # (split, rule, feature, answer)
    rows: Counter[str] = field(default_factory=Counter)  # split -> rows read
    true: Counter[str] = field(default_factory=Counter)  # split -> answers
    digests: Counter[str] = field(default_factory=Counter)  # split -> sum of rows_digest
    hashes: list[tuple[str, int, bytes]] = field(default_factory=list)  # split, first row, 16 bytes for each row

    def check(self, name: str, split: str, problem: str) -> None:
        self.done[name] += 1
        if problem:
            self.wrong[name, split] += 1
            self.first.setdefault(name, (self.number, problem))

    def add(self, other: Findings) -> None:
        for name in ("done", "wrong", "tally", "rows", "true", "digests"):
            getattr(self, name).update(getattr(other, name))
        for check, first in other.first.items():
            self.first[check] = min(first, self.first.get(check, first))
        self.hashes += other.hashes


def read_info(folder: Path) -> DatasetInfo:
    """The manifest, or for published data without one what can be known of it. Raises `ValueError` for neither."""
    if (folder / "index.csv").is_file() and not (folder / MANIFEST).exists() and not (folder / WORK).exists():
        splits = {split: {"rows": rows} for split, rows in published_counts(folder).items()}
        told = DatasetInfo(folder, "original", splits, Rules(None, frozenset(), frozenset(), exact=False))
    else:
        manifest = read_manifest(folder)
        with damage(folder / MANIFEST):
            told = info_of(folder, manifest)
    if told.rules.pairs:
        return told
    return replace(told, rules=replace(told.rules, pairs=pairs_in(told, "test_ood")))


def info_of(folder: Path, manifest: dict[str, Any]) -> DatasetInfo:
    held_out = manifest["held_out"] if manifest["config"] else {"pairs": [], "queries": []}
    rules = Rules(
        config_from_dict(manifest["config"]) if manifest["config"] else None,
        frozenset(tuple(map(str, pair)) for pair in held_out["pairs"]),
        frozenset(frozenset(map(str, query)) for query in held_out["queries"]),
        exact=manifest["pixels"] is not None,
    )
    return DatasetInfo(
        folder,
        LAYOUTS[manifest["layout"]].name,
        {split: {"rows": n["rows"], "true": int(n["true"])} for split, n in manifest["splits"].items()},
        rules,
        tuple(manifest["files"]),
        tuple(map(str, manifest["data_files"].values())),
        manifest["pixels"],
        str(manifest["content_digest"]),
    )


def chunks_of(told: DatasetInfo) -> list[Chunk]:
    """The dataset in the pieces that workers take. Files without rows of their own have no split here."""
    if not told.files:
        return [Chunk(number, split, 0, None, {}) for number, split in enumerate(told.splits)]
    parts, starts = [], Counter[str]()
    last = {file["split"]: number for number, file in enumerate(told.files) if "rows" in file}
    for number, file in enumerate(told.files):
        split = file["split"] or "" if "rows" in file else ""
        stop = None if number == last.get(split) else starts[split] + file.get("rows", 0)
        parts.append(Chunk(number, split, starts[split], stop, file))
        starts[split] += file.get("rows", 0)
    return parts


def tables_of(told: DatasetInfo, part: Chunk) -> Iterator[pa.Table]:
    """The rows of a part, malformed ones too. Raises `ValueError` where they cannot be read."""
    files, rows = told.files, (part.start, part.stop)
    if part.file and "*" not in part.file["name"]:
        files, rows = (part.file,), (0, None)
    found = LAYOUTS[told.layout].tables(told.folder, {"files": files}, part.split, *rows)
    return (table for _, table in found)


def pairs_in(told: DatasetInfo, split: str) -> frozenset[Pair]:
    """The pairs that a split's queries show; what cannot be read is left for the checks to report."""
    pairs = set()
    with contextlib.suppress(ValueError):
        for part in (part for part in chunks_of(told) if part.split == split):
            for table in tables_of(told, part):
                for row in () if malformed(table) else rows_of(table):
                    pairs.add(recount(parse_query(row.query), parse_caption(row.caption)[2])[1])
    return frozenset(pairs)


def examine(told: DatasetInfo, part: Chunk) -> Findings:
    """All that can be said of a part by itself."""
    found = Findings(part.number)
    if part.file:
        found.check("files", part.split, file_problem(told.folder, part.file))
    try:
        for table in tables_of(told, part) if part.split else ():
            examine_table(told, part, table, found)
        digest = f"{found.digests[part.split] % (1 << 256):064x}"
        there = {"rows": found.rows[part.split], "true": found.true[part.split], "rows_digest": digest}
        wrong = [key for key in there if part.split and there[key] != part.file.get(key, there[key])]
        problem = f"{wrong[0]} is {there[wrong[0]]}, not {part.file[wrong[0]]}" if wrong else ""
    except ValueError as error:
        problem = str(error)
    found.check("rows", part.split, problem and f"{part.file.get('name', part.split)}: {problem}")
    return found


def file_problem(folder: Path, file: dict[str, Any]) -> str:
    try:
        there = hashed(folder / name for name in names_of(file))
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return "" if there.items() <= file.items() else f"{file['name']}: not the bytes that were written"


def examine_table(told: DatasetInfo, part: Chunk, table: pa.Table, found: Findings) -> None:
    split, start = part.split, part.start + found.rows[part.split]
    found.rows[split] += table.num_rows
    if problem := malformed(table):  # its rows are left out of all other checks, which may fail for that
        found.check("columns", split, f"{part.file.get('name', split)}, rows from {start} on: {problem}")
        return
    found.done["columns"] += table.num_rows
    found.digests[split] += rows_digest(table)
    hashes = []
    for number, row in enumerate(rows_of(table), start):
        found.true[split] += row.answer
        hashes.append(hashlib.blake2b(f"{sorted(row.objects)} {row.query}".encode(), digest_size=16).digest())
        problems, looks = examine_row(told.rules, row, split, number)
        for name, problem in problems.items():
            found.check(name, split, problem and f"{row.id}: {problem}")
        for rule, feature in looks:
            found.tally[split, rule, feature, row.answer] += 1
    found.hashes.append((split, start, b"".join(hashes)))
