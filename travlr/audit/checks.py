"""The audit of a whole dataset: examines all shards, and joins the findings into the lines of the report."""

from __future__ import annotations

import functools
import hashlib
import math
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from render.text import CAPTION_STYLES
from travlr.audit.corpus import Check, check_corpus
from travlr.audit.rows import ROW_CHECKS, Rules, difference, examine_row, thing
from travlr.audit.shortcuts import ABOUT, QUERY, TOTAL, UNAVOIDABLE
from travlr.formats.columns import content_digest, read_shard, report_damage, rows_digest, scene_of
from travlr.formats.manifest import MANIFEST, file_problem, read_manifest
from travlr.generate import generator
from travlr.scene import IN_DISTRIBUTION, SPLITS
from travlr.settings import count_text
from travlr.tasks import config_from_dict, task_class, use_task
from travlr.tasks.base import BaseTask
from travlr.workers import Progress, run_in_processes

BOUND, Z = 0.51, 3.0902  # a rule fails where the lower 99.9 % bound of its accuracy lies above BOUND
GENERATED = "generated again"  # the check that compares rows with those that the generator makes
COMPRESSED = "compressed otherwise"  # pictures with the same pixels in other bytes


@dataclass
class Findings:
    """Counts of one shard, or of several."""

    totals: Counter[str] = field(default_factory=Counter)  # check -> things that it has checked
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)  # (check, split) -> things that fail it
    first: dict[str, str] = field(default_factory=dict)  # check -> the first problem
    tally: Counter[tuple[str, str, Any, bool]] = field(default_factory=Counter)  # (split, rule, feature, answer)
    rows: Counter[str] = field(default_factory=Counter)  # split -> rows read
    true: Counter[str] = field(default_factory=Counter)  # split -> answers
    digests: Counter[str] = field(default_factory=Counter)  # split -> sum of rows_digest
    hashes: list[tuple[str, int, bytes]] = field(default_factory=list)  # split, number, hash of what a row asks

    def check(self, name: str, split: str, problem: str) -> None:
        self.totals[name] += 1
        if problem:
            self.failures[name, split] += 1
            self.first.setdefault(name, problem)

    def add(self, other: Findings) -> None:
        for name in ("totals", "failures", "tally", "rows", "true", "digests"):
            getattr(self, name).update(getattr(other, name))
        self.first = other.first | self.first
        self.hashes += other.hashes


def audit(folder: str | os.PathLike[str], workers: int = 0) -> list[Check]:
    """Every check of a dataset. `workers=0` uses every core. Raises `ValueError` where the folder holds no dataset."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    if manifest.get("corpus"):
        return check_corpus(folder)
    with report_damage(folder / MANIFEST):
        rules = rules_of(manifest)
    shards, starts = [], Counter[str]()
    for file in manifest["files"]:
        shards.append((file, starts[file["split"]]))
        starts[file["split"]] += file["rows"]
    findings, rows = Findings(), starts.total()
    check_names(folder, manifest, findings)
    workers = workers or (1 if rows < 2000 else 0)  # less than a second of work: starting processes takes longer
    with Progress(rows, lambda line: None) as progress:
        for of_shard in run_in_processes(functools.partial(examine_shard, folder, rules), shards, workers):
            findings.add(of_shard)
            progress.advance(of_shard.rows.total())
    return [
        manifest_check(manifest, rules),
        *file_checks(manifest, findings),
        *row_checks(rules, findings),
        *split_checks(rules, findings),
        *balance_checks(findings),
        *shortcut_checks(rules, findings),
        *generated_check(rules, findings),
    ]


def check_names(folder: Path, manifest: Mapping[str, Any], findings: Findings) -> None:
    """No shard lies in the folder that the manifest does not name: other programs would read it, too."""
    listed = {file["name"] for file in manifest["files"]}
    for split in SPLITS:
        for path in sorted(folder.glob(f"{split}-*.parquet")):
            if path.name not in listed:
                findings.check("files", split, f"{path.name}: the manifest does not name it")


def rules_of(manifest: Mapping[str, Any]) -> Rules:
    if not manifest["config"]:
        return Rules(None)
    held_out = manifest["held_out"]
    return Rules(
        config_from_dict(manifest["config"]),
        frozenset(tuple(map(str, pair)) for pair in held_out["pairs"]),
        frozenset(frozenset(map(str, query)) for query in held_out["queries"]),
    )


# One shard -----------------------------------------------------------------------------------------------------------


def examine_shard(folder: Path, rules: Rules, shard: tuple[dict[str, Any], int]) -> Findings:
    """The findings of one shard. shard: its entry in the manifest, and the number of its first row in the split."""
    findings, (file, start), problem = Findings(), shard, ""
    if rules.config:
        use_task(rules.config.task)  # the main process knows it, a worker may not
    split, path = file["split"], folder / file["name"]
    findings.check("files", split, file_problem(folder, file))
    try:
        for table in read_shard(path):
            if rules.config:
                compare_again(rules, table, split, start, findings)
                examine_couples(table, split, start, findings)
            with report_damage(path):  # a value that no row has, such as none
                examine_table(rules, table, split, start, findings)
            start += table.num_rows
            findings.rows[split] += table.num_rows
        if (rows := findings.rows[split]) != file["rows"]:
            problem = f"{path.name}: has {rows} rows, not {file['rows']}"
    except ValueError as error:
        problem = str(error)
    findings.check("rows", split, problem)
    return findings


def examine_table(rules: Rules, table: pa.Table, split: str, start: int, findings: Findings) -> None:
    """Examine the rows of a table."""
    findings.digests[split] += rows_digest(table)
    for number, row in enumerate(table.to_pylist(), start):
        findings.true[split] += row["answer"]
        content = f"{sorted(map(thing, scene_of(row['objects'])))} {row['query']}"
        findings.hashes.append((split, number, hashlib.blake2b(content.encode(), digest_size=16).digest()))
        problems, features = examine_row(rules, row, split, number)
        for name, problem in problems.items():
            findings.check(name, split, problem and f"{row['id']}: {problem}")
        for rule, feature in features:
            findings.tally[split, rule, feature, row["answer"]] += 1


def examine_couples(table: pa.Table, split: str, start: int, findings: Findings) -> None:
    """Rows 2k and 2k + 1 of a split ask the same, once true and once false."""
    rows = list(zip(table["query"].to_pylist(), table["answer"].to_pylist(), strict=True))[start % 2 :]
    for number, ((query, answer), (other_query, other)) in enumerate(zip(rows[::2], rows[1::2], strict=False)):
        problem = "" if (query, not answer) == (other_query, other) else f"{query} {answer}, {other_query} {other}"
        first = start + start % 2 + 2 * number
        findings.check("couples", split, problem and f"{split} rows {first} and {first + 1}: {problem}")


def compare_again(rules: Rules, table: pa.Table, split: str, start: int, findings: Findings) -> None:
    """Compare rows with those that the generator makes for the same places."""
    assert rules.config is not None
    try:
        due = generator(rules.config).table(split, start, start + table.num_rows)
    except (ValueError, IndexError) as error:  # there are no such settings, or no such rows
        findings.check(GENERATED, split, f"{split} rows from {start} on: {error}")
        return
    if table.equals(due):
        findings.totals[GENERATED] += table.num_rows
        return
    for number, (row, other) in enumerate(zip(table.to_pylist(), due.to_pylist(), strict=True), start):
        problem = difference(row, other)
        findings.check(GENERATED, split, problem and f"{split} row {number}: {problem}")
        findings.totals[COMPRESSED] += not problem and row != other


# The lines of the report ---------------------------------------------------------------------------------------------


def counted(findings: Findings, name: str, good: str) -> Check:
    """A check of rows or files: the number of failures in each split, and the first of them."""
    failures = {split: n for (check, split), n in findings.failures.items() if check == name}
    counts = [f"{failures[split]:,} of {findings.rows[split]:,} {split}" for split in SPLITS if split in failures]
    problems = [f"{', '.join(counts)}; first {findings.first[name]}"] if failures else []
    return checked(name, findings.totals[name], problems, good)


def checked(name: str, number: int, problems: list[str], good: str, unit: str = "") -> Check:
    """A check that fails where there are problems. The report lists them, or with `unit` their number and the first."""
    if not problems:
        return Check(name, "ok", number, good)
    total = f"{count_text(len(problems), unit)}; first {problems[0]}"
    return Check(name, "FAIL", number, total if unit else "; ".join(problems))


def manifest_check(manifest: Mapping[str, Any], rules: Rules) -> Check:
    """Whether the manifest is as the generator of its config makes it."""
    config = rules.config
    if config is None:
        return Check("manifest", "note", 0, "no settings: nothing to make the rows again from")
    try:
        maker = generator(config)
        counts = {split: getattr(config.count, split) for split in SPLITS}
        due = {
            "config": config.model_dump(mode="json"),
            "held_out": maker.sampler.held_out(),
            "pixels": maker.renderer.digest(),
        }
        problems = [f"{name} is not that of the settings" for name in due if manifest[name] != due[name]]
        rows = {split: n["rows"] for split, n in manifest["splits"].items()}
        problems += [f"{rows.get(split, 0)} rows of {split}" for split, n in counts.items() if rows.get(split, 0) != n]
    except ValueError as error:
        problems = [f"config: {error}"]
    return checked("manifest", 1, problems, "as its settings make it")


def file_checks(manifest: Mapping[str, Any], findings: Findings) -> list[Check]:
    """The manifest against the files."""
    problems = [findings.first["rows"]] if "rows" in findings.first else []
    for split, n in manifest["splits"].items():
        due, present = (n["rows"], n.get("true")), (findings.rows[split], findings.true[split])
        if present != due and (due[1] is not None or present[0] != due[0]):
            problems.append(f"{split} has {present[0]:,} rows and {present[1]:,} true, not {due[0]:,} and {due[1]}")
    checks = [
        counted(findings, "files", "SHA-256 as in the manifest"),
        checked("rows", findings.rows.total(), problems, "as many rows and true answers as the manifest says"),
    ]
    if "versions" in manifest:
        sums = {split: findings.digests[split] % (1 << 256) for split in manifest["splits"]}
        digest, due_digest = content_digest(sums, manifest["pixels"]), manifest["content_digest"]
        problems = [] if digest == due_digest else [f"{digest[:16]} is not {due_digest[:16]}, the manifest's"]
        checks.append(checked("content digest", findings.rows.total(), problems, digest[:16]))
    return checks


def generated_check(rules: Rules, findings: Findings) -> list[Check]:
    """The rows against those that the generator makes from the settings in the manifest."""
    if not rules.config:
        return []
    detail = "every row is as the generator makes it"
    if number := findings.totals[COMPRESSED]:
        detail += f"; {number:,} pictures have the same pixels, {COMPRESSED}"
    return [counted(findings, GENERATED, detail)]


def row_checks(rules: Rules, findings: Findings) -> list[Check]:
    """The checks of single rows that apply to this dataset."""
    good = ROW_CHECKS | {"held-out pairs": f"{len(rules.pairs)} {ROW_CHECKS['held-out pairs']}"}
    if not CAPTION_STYLES[rules.style].ordered:
        good["caption"] = "read back: the objects column, whose order it does not show"
    if rules.config and task_class(rules.config.task).recount is BaseTask.recount:
        good["answer"] = "as the task's `truth` says of the caption: it has no recount of its own"
    return [counted(findings, name, detail) for name, detail in good.items() if findings.totals[name]]


def split_checks(rules: Rules, findings: Findings) -> list[Check]:
    """Pairs and query texts of test_ood occur in no other split, and no example occurs twice (caption order is
    ignored)."""
    checks = []
    held_out = {"pairs": rules.pairs, "query texts": rules.queries}
    for name, rule in (("pairs", "pair"), ("query texts", QUERY)):
        if rules.config and not held_out[name]:
            continue
        texts: dict[bool, set[str]] = {True: set(), False: set()}
        for split, tallied, feature, _ in findings.tally:
            if tallied == rule:
                texts[split == "test_ood"].add(feature)
        shared = sorted(texts[True] & texts[False])
        checks.append(checked(name, len(texts[True]), shared, "of test_ood are its own", name.removesuffix("s")))
    places: dict[bytes, str] = {}
    problems = []
    for split, number, content in findings.hashes:
        if content in places:
            problems.append(f"{split} {number} = {places[content]}")
        places[content] = f"{split} {number}"
    return [*checks, checked("duplicates", len(findings.hashes), problems, "no example occurs twice", "row")]


def by_feature(findings: Findings, rule: str) -> dict[str, dict[Any, list[int]]]:
    """split -> feature -> numbers of false and of true examples."""
    counts: dict[str, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for (split, name, feature, answer), n in findings.tally.items():
        if name == rule:
            counts[split][feature][answer] += n
    return counts


def balance_checks(findings: Findings) -> list[Check]:
    """As many true as false examples of each pair and each query text (odd numbers differ by one), and equal totals of
    pairs."""
    checks = []
    for name, rule, unit in (("balance by pair", "pair", "pair"), ("balance by query text", QUERY, "text")):
        groups = [(s, f, n) for s, counts in by_feature(findings, rule).items() for f, n in counts.items()]
        problems = [f"{s} {f}: {n[1]} true, {n[0]} false" for s, f, n in groups if abs(n[1] - n[0]) != sum(n) % 2]
        checks.append(checked(name, len(groups), sorted(problems), "as many true as false, give or take one", unit))
    totals = {split: {f: sum(n) for f, n in counts.items()} for split, counts in by_feature(findings, "pair").items()}
    problems = []
    for split, n in sorted(totals.items()):
        least, most = min(n, key=n.__getitem__), max(n, key=n.__getitem__)
        if n[most] - n[least] > 2:
            problems.append(f"{split}: {n[least]} of {least}, {n[most]} of {most}")
    pairs = sum(map(len, totals.values()))
    return [*checks, checked("pair totals", pairs, problems, "within 2 in each split", "split")]


def shortcut_checks(rules: Rules, findings: Findings) -> list[Check]:
    """Accuracy of rules that ignore the decisive objects: fitted on train, scored on validation and test_ind.

    Rules that count another set are only reported where couples are exchanged: an exchange changes all sets of a query
    alike, so that such a rule sees it, too (docs/strict.md).
    """
    checks = []
    exchanged = rules.config is not None and rules.config.exchanged
    reported = set(ABOUT) - {QUERY, TOTAL} if exchanged else set(UNAVOIDABLE)
    for rule, about in ABOUT.items():
        counts = by_feature(findings, rule)
        scores = [score_rule(counts["train"], counts[split]) for split in IN_DISTRIBUTION[1:]]
        right, total = (sum(part) for part in zip(*scores, strict=True))
        if not counts["train"] or not total:
            continue
        bound = lower_bound(right, total)
        status = "note" if rule in reported else "FAIL" if bound > BOUND else "ok"
        detail = f"accuracy {right / total:.1%}, lower 99.9% bound {bound:.1%}"
        checks.append(Check(rule, status, total, f"{detail}: {about}" if about else detail))
    return checks


def score_rule(fitted: Mapping[Any, Sequence[int]], scored: Mapping[Any, Sequence[int]]) -> tuple[float, int]:
    """Correct and total examples of a majority rule, fitted on the first counts and scored on the second.

    Counts: feature -> numbers of false and of true examples. A feature that was as often true as false in the first
    counts, or did not occur there, scores half of its examples.
    """
    right, total = 0.0, 0
    for feature, (false, true) in scored.items():
        fitted_false, fitted_true = fitted.get(feature, (0, 0))
        lean = (fitted_true > fitted_false) - (fitted_true < fitted_false)
        right += (false + true + lean * (true - false)) / 2
        total += false + true
    return right, total


def lower_bound(right: float, total: int) -> float:
    """Wilson's lower 99.9 % bound of a proportion."""
    proportion, z = right / total, Z * Z / total
    return (proportion + z / 2 - math.sqrt(proportion * (1 - proportion) * z + z * z / 4)) / (1 + z)
