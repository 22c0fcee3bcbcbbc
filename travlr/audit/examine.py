"""Reads a dataset for the audit: first its manifest, then one shard after the other, in worker processes."""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from render.png import decode
from render.text import parse_caption
from travlr.audit.rows import Rules, examine_row, recount, rows_of
from travlr.columns import damage, malformed, open_parquet, read_table, rows_digest
from travlr.config import config_dict
from travlr.generate import generator
from travlr.manifest import MANIFEST, file_problem, has_manifest, read_manifest
from travlr.tasks import config_from_dict, parse_query
from travlr.tasks.base import Pair

GENERATED = "generated again"  # the check that compares rows with those that the generator makes
COMPRESSED = "compressed otherwise"  # pictures with the same pixels in other bytes


@dataclass(frozen=True)
class DatasetInfo:
    """What the audit knows of a dataset before it reads the rows: its manifest, as far as it has one.

    splits: rows, and with a manifest true answers, of each split. ours: whether this program wrote the dataset.
    """

    folder: Path
    manifest: dict[str, Any]
    splits: dict[str, dict[str, int]]
    rules: Rules
    ours: bool


class Chunk(NamedTuple):
    """The rows of a file of a split, of which the first has the number `start` in its split."""

    number: int
    split: str
    start: int
    file: dict[str, Any]


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


def read_info(folder: Path) -> DatasetInfo:
    """What the audit knows of a dataset before it reads the rows. Raises `ValueError` where the folder holds none."""
    manifest = read_manifest(folder)
    held_out = manifest["held_out"] if manifest["config"] else {"pairs": [], "queries": []}
    with damage(folder / MANIFEST):
        rules = Rules(
            config_from_dict(manifest["config"]) if manifest["config"] else None,
            frozenset(tuple(map(str, pair)) for pair in held_out["pairs"]),
            frozenset(frozenset(map(str, query)) for query in held_out["queries"]),
            numbered=has_manifest(folder),
        )
    info = DatasetInfo(folder, manifest, manifest["splits"], rules, has_manifest(folder))
    return info if rules.pairs else replace(info, rules=replace(rules, pairs=pairs_in(info, "test_ood")))


def chunks_of(info: DatasetInfo) -> list[Chunk]:
    """The chunks that workers examine: one for each file."""
    chunks, starts = [], Counter[str]()
    for number, file in enumerate(info.manifest["files"]):
        chunks.append(Chunk(number, file["split"], starts[file["split"]], file))
        starts[file["split"]] += file["rows"]
    return chunks


def tables_of(info: DatasetInfo, chunk: Chunk) -> Iterator[pa.Table]:
    """The rows of a chunk, malformed ones too. Raises `ValueError` where they cannot be read."""
    path = info.folder / chunk.file["name"]
    file = open_parquet(path)
    return (read_table(file, path, group=group) for group in range(file.num_row_groups))


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
    findings, name = Findings(chunk.number), chunk.file["name"]
    if info.ours:
        findings.check("files", chunk.split, file_problem(info.folder, chunk.file))
    try:
        for table in tables_of(info, chunk):
            examine_table(info, chunk, table, findings)
        problem = ""
        if (rows := findings.rows[chunk.split]) != chunk.file["rows"]:
            problem = f"{name}: has {rows} rows, not {chunk.file['rows']}"
    except ValueError as error:
        problem = str(error)
    findings.check("rows", chunk.split, problem)
    return findings


def examine_table(info: DatasetInfo, chunk: Chunk, table: pa.Table, findings: Findings) -> None:
    """Examine the rows of a table, unless it is malformed."""
    split, start = chunk.split, chunk.start + findings.rows[chunk.split]
    findings.rows[split] += table.num_rows
    if problem := malformed(table):  # its rows are left out of all other checks, which may fail for that
        findings.check("columns", split, f"{chunk.file['name']}, rows from {start} on: {problem}")
        return
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
    if info.rules.config:
        compare_again(info, table, split, start, findings)


def compare_again(info: DatasetInfo, table: pa.Table, split: str, start: int, findings: Findings) -> None:
    """Compare rows with those that the generator makes for the same places."""
    assert info.rules.config is not None
    try:
        due = generator(info.rules.config).table(split, start, start + table.num_rows)
    except (ValueError, IndexError) as error:  # there are no such settings, or no such rows
        findings.check(GENERATED, split, f"{split} rows from {start} on: {error}")
        return
    findings.totals[GENERATED] += table.num_rows
    if table.equals(due):
        return
    for number, (row, other) in enumerate(zip(table.to_pylist(), due.to_pylist(), strict=True), start):
        if problem := difference(row, other):
            findings.fail(GENERATED, split, f"{split} row {number}: {problem}")
        elif row != other:
            findings.totals[COMPRESSED] += 1


def difference(row: dict[str, Any], due: dict[str, Any]) -> str:
    """The first column in which two rows differ, and how; empty where none does. Of pictures, pixels are compared."""
    for name, value in due.items():
        if name == "image":
            same = row[name] == value or (
                row[name]["path"] == value["path"] and _pixels(row[name]["bytes"]) == _pixels(value["bytes"])
            )
            problem = "" if same else "image is another picture"
        else:
            here, there = where_differing(str(row[name]), str(value))
            problem = "" if row[name] == value else f"{name} is {here}, not {there}"
        if problem:
            return problem
    return ""


def where_differing(one: str, other: str) -> tuple[str, str]:
    """The parts of two texts from shortly before their first difference."""
    same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(0, same - 20)
    parts = ("…" * bool(start) + text[start : start + 60].replace("\n", "\\n") for text in (one, other))
    return next(parts), next(parts)


def _pixels(data: bytes) -> bytes:
    try:
        return bytes(decode(data).tobytes())
    except Exception as error:  # Pillow raises many kinds for damaged files
        return repr(error).encode()


def manifest_problem(info: DatasetInfo) -> str:
    """The first entry of the manifest that is not as the generator of its config makes it; empty where all are."""
    config = info.rules.config
    if config is None:
        return ""
    try:
        maker = generator(config)
    except ValueError as error:
        return f"config: {error}"
    due = {"config": config_dict(config), "held_out": maker.task.held_out(), "pixels": maker.renderer.digest()}
    return next((f"{name} is not that of the settings" for name in due if info.manifest[name] != due[name]), "")
