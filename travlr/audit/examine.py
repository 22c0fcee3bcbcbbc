"""Reads a dataset for the audit: first its manifest, then one chunk of rows after the other, in worker processes."""

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
from travlr.audit.regenerate import (
    Origin,
    differing_rows,
    due_parts,
    made_again,
    origin_of,
    picture_difference,
    write_again,
)
from travlr.audit.rows import Rules, examine_row, recount, rows_of
from travlr.audit.structure import parquet_problem
from travlr.formats import LAYOUTS
from travlr.formats.base import Part, file_problem
from travlr.formats.columns import damage, malformed, rows_digest
from travlr.formats.manifest import MANIFEST, has_manifest, read_manifest
from travlr.scene import SPLITS
from travlr.tasks import config_from_dict, parse_query
from travlr.tasks.base import Pair

# Checks that compare a dataset with what is made again, or written again (`regenerate.py`).
ROWS, PICTURES, FILES = "regeneration: rows", "regeneration: pictures", "regeneration: files"
ENCODING = "encoding"  # a rule whose features are how the picture was encoded, where not as here


@dataclass(frozen=True)
class DatasetInfo:
    """What the audit knows of a dataset before it reads the rows: its manifest, as far as it has one.

    splits: rows, and with a manifest true answers, of each split. files: with rows, empty for the published layout.
    data_files: globs that other programs read. pixels, digest, rows_per_file: of the manifest. origin: None where
    there is no manifest.
    """

    folder: Path
    layout: str
    splits: dict[str, dict[str, int]]
    rules: Rules
    files: tuple[dict[str, Any], ...]
    data_files: tuple[str, ...]
    pixels: str | None
    digest: str
    rows_per_file: int
    origin: Origin | None


class Chunk(NamedTuple):
    """A file, or the files of some rows: rows start to stop of a split (None: to its end). Without a split, no rows.

    part: the part in which the file was written, None where the manifest names no such part.
    """

    number: int
    split: str
    start: int
    stop: int | None
    file: dict[str, Any]
    part: Part | None = None


@dataclass
class Findings:
    """Counts of one chunk, or of several."""

    number: int = 0
    totals: Counter[str] = field(default_factory=Counter)  # check -> things that it has checked
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)  # (check, split) -> things that fail it
    first: dict[str, tuple[int, str]] = field(default_factory=dict)  # check -> chunk and text of the first problem
    tally: Counter[tuple[str, str, Any, bool]] = field(default_factory=Counter)  # (split, rule, feature, answer)
    rows: Counter[str] = field(default_factory=Counter)  # split -> rows read
    true: Counter[str] = field(default_factory=Counter)  # split -> answers
    digests: Counter[str] = field(default_factory=Counter)  # split -> sum of rows_digest
    hashes: list[tuple[str, int, bytes]] = field(default_factory=list)  # split, first row, 16 bytes for each row
    fragments: dict[str, tuple[int, str]] = field(default_factory=dict)  # of shared files, written again: size, SHA-256

    def check(self, name: str, split: str, problem: str) -> None:
        self.totals[name] += 1
        if problem:
            self.fail(name, split, problem)

    def fail(self, name: str, split: str, problem: str) -> None:
        self.failures[name, split] += 1
        self.first.setdefault(name, (self.number, problem))

    def add(self, other: Findings) -> None:
        for name in ("totals", "failures", "tally", "rows", "true", "digests"):
            getattr(self, name).update(getattr(other, name))
        for check, first in other.first.items():
            self.first[check] = min(first, self.first.get(check, first))
        self.hashes += other.hashes
        self.fragments |= other.fragments


def read_info(folder: Path) -> DatasetInfo:
    """What the audit knows of a dataset before it reads the rows. Raises `ValueError` where the folder holds none."""
    manifest = read_manifest(folder)
    with damage(folder / MANIFEST):
        info = info_of(folder, manifest)
    if info.rules.pairs:
        return info
    return replace(info, rules=replace(info.rules, pairs=pairs_in(info, "test_ood")))


def info_of(folder: Path, manifest: dict[str, Any]) -> DatasetInfo:
    ours = has_manifest(folder)
    held_out = manifest["held_out"] if manifest["config"] else {"pairs": [], "queries": []}
    pixels = manifest["pixels"] if ours else None
    return DatasetInfo(
        folder,
        manifest["layout"],
        {split: {name: int(n) for name, n in counts.items()} for split, counts in manifest["splits"].items()},
        Rules(
            config_from_dict(manifest["config"]) if manifest["config"] else None,
            frozenset(tuple(map(str, pair)) for pair in held_out["pairs"]),
            frozenset(frozenset(map(str, query)) for query in held_out["queries"]),
            exact=pixels is not None,
            numbered=ours,
        ),
        tuple(file for file in manifest["files"] if ours or "rows" in file),
        tuple(map(str, manifest["data_files"].values())) if ours else (),
        pixels,
        str(manifest["content_digest"]) if ours else "",
        manifest.get("rows_per_file", 1),
        origin_of(manifest) if ours else None,
    )


def chunks_of(info: DatasetInfo) -> list[Chunk]:
    """The chunks that workers examine. A file without rows of its own makes a chunk without split."""
    if not info.files:
        return [Chunk(number, split, 0, None, {}) for number, split in enumerate(info.splits)]
    chunks, starts = [], Counter[str]()
    parts = parts_in(info)
    last = {file["split"]: number for number, file in enumerate(info.files) if "rows" in file}
    for number, file in enumerate(info.files):
        split = file["split"] or "" if "rows" in file else ""
        stop = None if number == last.get(split) else starts[split] + file.get("rows", 0)
        part = parts.get((file["name"], file.get("start"), file.get("rows")))
        chunks.append(Chunk(number, split, starts[split], stop, file, part))
        starts[split] += file.get("rows", 0)
    return chunks


def parts_in(info: DatasetInfo) -> dict[tuple[Any, ...], Part]:
    """The parts in which a dataset was written, by name, start and rows of their entries in the manifest."""
    if info.origin is None:
        return {}
    manifest = {"rows_per_file": info.rows_per_file, "files": info.files}
    counts = {split: info.splits[split]["rows"] for split in SPLITS if split in info.splits}
    try:
        parts = due_parts(manifest, counts, info.origin)
    except ValueError:  # more files than a split can have
        return {}
    entries = ((part, LAYOUTS[info.layout].entry(part)) for part in parts)
    return {(entry["name"], entry.get("start"), entry["rows"]): part for part, entry in entries}


def tables_of(info: DatasetInfo, chunk: Chunk) -> Iterator[pa.Table]:
    """The rows of a chunk, malformed ones too. Raises `ValueError` where they cannot be read."""
    files, rows = info.files, (chunk.start, chunk.stop)
    if chunk.file and "*" not in chunk.file["name"]:
        files, rows = (chunk.file,), (0, None)
    return (table for _, table in LAYOUTS[info.layout].tables(info.folder, {"files": files}, chunk.split, *rows))


def pairs_in(info: DatasetInfo, split: str) -> frozenset[Pair]:
    """The pairs of the rows of a split; unreadable rows are left to the checks."""
    pairs, style = set(), info.rules.style
    with contextlib.suppress(ValueError):
        for chunk in (chunk for chunk in chunks_of(info) if chunk.split == split):
            for table in tables_of(info, chunk):
                for row in () if malformed(table) else rows_of(table):
                    pairs.add(recount(parse_query(row.query), parse_caption(row.caption, style=style)[2])[1])
    return frozenset(pairs)


def examine(info: DatasetInfo, chunk: Chunk) -> Findings:
    """The findings of one chunk."""
    findings = Findings(chunk.number)
    if info.origin and chunk.file:
        findings.check("files", chunk.split, file_problem(info.folder, chunk.file))
    tables = examined(info, chunk, findings)
    if info.origin and chunk.part:
        problem, findings.fragments = write_again(info.folder, info.layout, chunk.part, tables)
        if problem and info.layout == "parquet":
            name = parquet_problem(info.folder / chunk.file["name"])
            problem = name or (problem if info.origin.files_here else "")
            findings.totals[f"{FILES} of other versions"] += not problem
        findings.check(FILES, chunk.split, problem)
    for _ in tables:  # those left where writing failed
        pass
    return findings


def examined(info: DatasetInfo, chunk: Chunk, findings: Findings) -> Iterator[pa.Table]:
    """The tables of a chunk, each examined before it is yielded; malformed ones are left out."""
    try:
        for table in tables_of(info, chunk) if chunk.split else ():
            if examine_table(info, chunk, table, findings):
                yield table
        digest = f"{findings.digests[chunk.split] % (1 << 256):064x}"
        facts = {"rows": findings.rows[chunk.split], "true": findings.true[chunk.split], "rows_digest": digest}
        keys = [key for key in facts if chunk.split and facts[key] != chunk.file.get(key, facts[key])]
        problem = f"{keys[0]} is {facts[keys[0]]}, not {chunk.file[keys[0]]}" if keys else ""
    except ValueError as error:
        problem = str(error)
    findings.check("rows", chunk.split, problem and f"{chunk.file.get('name', chunk.split)}: {problem}")


def examine_table(info: DatasetInfo, chunk: Chunk, table: pa.Table, findings: Findings) -> bool:
    """Whether the rows of a table are sound enough to be examined."""
    split, start = chunk.split, chunk.start + findings.rows[chunk.split]
    findings.rows[split] += table.num_rows
    if problem := malformed(table):  # its rows are left out of all other checks, which may fail for that
        findings.check("columns", split, f"{chunk.file.get('name', split)}, rows from {start} on: {problem}")
        return False
    findings.totals["columns"] += table.num_rows
    findings.digests[split] += rows_digest(table)
    hashes = []
    for number, row in enumerate(rows_of(table), start):
        findings.true[split] += row.answer
        hashes.append(hashlib.blake2b(f"{sorted(row.objects)} {row.query}".encode(), digest_size=16).digest())
        problems, features = examine_row(info.rules, row, split, number)
        for name, problem in problems.items():
            findings.check(name, split, problem and f"{row.id}: {problem}")
        for rule, feature in features:
            findings.tally[split, rule, feature, row.answer] += 1
    findings.hashes.append((split, start, b"".join(hashes)))
    if info.origin and info.origin.config:
        compare_again(info.origin, table, split, start, findings)
    return True


def compare_again(origin: Origin, table: pa.Table, split: str, start: int, findings: Findings) -> None:
    """Compare rows and picture files with those made again."""
    try:
        due = made_again(origin, split, start, start + table.num_rows)
    except ValueError as error:
        findings.check(ROWS, split, f"rows from {start} on: {error}")
        return
    findings.totals.update({ROWS: table.num_rows, PICTURES: table.num_rows})
    if table.equals(due):
        return
    for row, problem in differing_rows(table, due):
        findings.fail(ROWS, split, f"{split} row {start + row}: {problem}")
    files, due_files = (rows["image"].combine_chunks().field("bytes").to_pylist() for rows in (table, due))
    for row, answer in enumerate(table["answer"].to_pylist()):
        problem, features = picture_difference(files[row], due_files[row], origin)
        if problem:
            findings.fail(PICTURES, split, f"{split} row {start + row}: {problem}")
        for feature in features:
            findings.tally[split, ENCODING, feature, answer] += 1
