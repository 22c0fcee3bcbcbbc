"""The audit of a whole dataset: joins the findings of all chunks into the lines of the report.

A chunk leaves counts and a hash of 16 bytes for each row, so memory hardly grows with the dataset.
"""

from __future__ import annotations

import functools
import math
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from render.text import CAPTION_STYLES
from travlr.audit.examine import (
    COMPRESSED,
    GENERATED,
    DatasetInfo,
    Findings,
    chunks_of,
    examine,
    manifest_problem,
    read_info,
)
from travlr.audit.report import Check, checked, counted
from travlr.audit.rows import ROW_CHECKS, score
from travlr.audit.shortcuts import ABOUT, QUERY, TOTAL, UNAVOIDABLE
from travlr.columns import content_digest
from travlr.scene import IN_DISTRIBUTION
from travlr.tasks import TASKS
from travlr.tasks.base import Task
from travlr.workers import Progress, run

BOUND, Z = 0.51, 3.0902  # a rule fails where the lower 99.9 % bound of its accuracy lies above BOUND


def audit(folder: str | os.PathLike[str], workers: int = 0) -> list[Check]:
    """Every check of a dataset. `workers=0` uses every core. Raises `ValueError` where the folder holds no dataset."""
    info = read_info(Path(folder))
    findings, rows = Findings(), sum(n["rows"] for n in info.splits.values())
    workers = workers or (1 if rows < 2000 else 0)  # less than a second of work: starting processes takes longer
    with Progress(rows, lambda line: None) as progress:
        for _, chunk in run(functools.partial(examine, info), chunks_of(info), workers):
            findings.add(chunk)
            progress.advance(chunk.rows.total())
    checks = []
    if findings.totals["columns"]:
        checks.append(counted(findings, "columns", "as they should be, no null in any row"))
    checks += [*file_checks(info, findings), *row_checks(info, findings), *split_checks(findings)]
    checks += [*balance_checks(findings), *shortcut_checks(info, findings)]
    return [*checks, *generated_check(info, findings)]


def file_checks(info: DatasetInfo, findings: Findings) -> list[Check]:
    """The manifest against the files."""
    checks = [
        Check("manifest", "note", 0, "none: no settings and hashes to check, and nothing to make the rows again from")
    ]
    if info.ours:
        problem = manifest_problem(info)
        failures = sum(n for (check, _), n in findings.failures.items() if check == "files")
        problems = [f"{failures} of them; first {findings.first['files'][1]}"] if failures else []
        checks = [checked("manifest", 1, [problem] if problem else [], "as its settings make it")]
        checks.append(checked("files", findings.totals["files"], problems, "SHA-256 as in the manifest"))
    problems = [findings.first["rows"][1]] if "rows" in findings.first else []
    for split, n in ({name: {"rows": 0, "true": 0} for name in findings.rows} | info.splits).items():
        rows, true = findings.rows[split], findings.true[split]
        if (rows, true) != (n["rows"], n.get("true", true)):
            problems.append(
                f"{split} has {rows:,} rows and {true:,} true, not {n['rows']:,} and {n.get('true', true):,}"
            )
        if info.rules.config and rows != (count := getattr(info.rules.config.count, split)):
            problems.append(f"{split} has {rows:,} rows, but count.{split} is {count:,}")
    checks.append(
        checked("rows", findings.rows.total(), problems, "as many rows and true answers as the manifest says")
    )
    if info.ours:
        sums = {split: findings.digests[split] % (1 << 256) for split in info.splits}
        digest, due = content_digest(sums, info.manifest["pixels"]), info.manifest["content_digest"]
        problems = [f"{digest[:16]} is not {due[:16]}, the manifest's"] if digest != due else []
        checks.append(checked("content digest", findings.rows.total(), problems, digest[:16]))
    return checks


def generated_check(info: DatasetInfo, findings: Findings) -> list[Check]:
    """The rows against those that the generator makes from the settings in the manifest."""
    if not info.rules.config:
        return []
    detail = "every row is as the generator makes it"
    if number := findings.totals[COMPRESSED]:
        detail += f"; {number:,} pictures have the same pixels, {COMPRESSED}"
    return [counted(findings, GENERATED, detail)]


def row_checks(info: DatasetInfo, findings: Findings) -> list[Check]:
    """The checks of single rows that apply to this dataset."""
    good = ROW_CHECKS | {"held-out pairs": f"{len(info.rules.pairs)} {ROW_CHECKS['held-out pairs']}"}
    if not CAPTION_STYLES[info.rules.style].ordered:
        good["caption"] = "read back: the objects column, whose order it does not show"
    if info.rules.config and TASKS[info.rules.config.task].recount is Task.recount:
        good["answer"] = "as the task's `truth` says of the caption: it has no recount of its own"
    if info.rules.config is None:
        good["image"] = "only which cells are empty is compared: another program drew it"
    return [counted(findings, name, detail) for name, detail in good.items() if findings.totals[name]]


def split_checks(findings: Findings) -> list[Check]:
    """Query texts of test_ood occur in no other split, and no example occurs twice (caption order is ignored)."""
    texts: dict[bool, set[str]] = {True: set(), False: set()}
    for split, rule, feature, _ in findings.tally:
        if rule == QUERY:
            texts[split == "test_ood"].add(feature)
    parts = sorted(findings.hashes)
    hashes = np.frombuffer(b"".join(part for *_, part in parts), "S16")
    starts = np.cumsum([0, *(len(part) // 16 for *_, part in parts)])
    order = hashes.argsort(kind="stable")
    repeats = np.nonzero(hashes[order][1:] == hashes[order][:-1])[0]  # equal to the next one in this order

    def row(place: int) -> str:
        part = int(np.searchsorted(starts, place, side="right")) - 1
        return f"{parts[part][0]} {parts[part][1] + place - starts[part]}"

    problems = [f"{row(order[i])} = {row(order[i + 1])}" for i in repeats]
    return [
        checked("query texts", len(texts[True]), sorted(texts[True] & texts[False]), "of test_ood are its own", "text"),
        checked("duplicates", len(hashes), problems, "no example occurs twice", "row"),
    ]


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


def shortcut_checks(info: DatasetInfo, findings: Findings) -> list[Check]:
    """Accuracy of rules that ignore the decisive objects: fitted on train, scored on validation and test_ind.

    Rules that count another set are only reported where couples are exchanged: an exchange changes all sets of a query
    alike, so that such a rule sees it, too (docs/strict.md).
    """
    checks = []
    exchanged = info.rules.config is not None and info.rules.config.couples == "exchanged"
    reported = set(ABOUT) - {QUERY, TOTAL} if exchanged else set(UNAVOIDABLE)
    for rule, about in ABOUT.items():
        counts = by_feature(findings, rule)
        scores = [score(counts["train"], counts[split]) for split in IN_DISTRIBUTION[1:]]
        right, total = (sum(part) for part in zip(*scores, strict=True))
        if not counts["train"] or not total:
            continue
        bound = lower_bound(right, total)
        status = "note" if rule in reported else "FAIL" if bound > BOUND else "ok"
        detail = f"accuracy {right / total:.1%}, lower 99.9% bound {bound:.1%}"
        checks.append(Check(rule, status, total, f"{detail}: {about}" if about else detail))
    return checks


def lower_bound(right: float, total: int) -> float:
    """Wilson's lower 99.9 % bound of a share."""
    share, z = right / total, Z * Z / total
    return (share + z / 2 - math.sqrt(share * (1 - share) * z + z * z / 4)) / (1 + z)
