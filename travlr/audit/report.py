"""A line of the audit's report, and how it is made from the findings of all chunks."""

from __future__ import annotations

from dataclasses import dataclass

from travlr.audit.examine import Findings
from travlr.scene import SPLITS


@dataclass(frozen=True)
class Check:
    """A line of the report. status: ok, FAIL or note. checked: how many rows, files, pairs or texts."""

    name: str
    status: str
    checked: int
    detail: str


def counted(findings: Findings, name: str, good: str) -> Check:
    """A check of rows or files: the number of failures in each split, and the first of them."""
    failures = {split: n for (check, split), n in findings.failures.items() if check == name}
    counts = [f"{failures[split]:,} of {findings.rows[split]:,} {split}" for split in SPLITS if split in failures]
    problems = [f"{', '.join(counts)}; first {findings.first[name][1]}"] if failures else []
    return checked(name, findings.totals[name], problems, good)


def checked(name: str, number: int, problems: list[str], good: str, unit: str = "") -> Check:
    """A check that fails where there are problems. The report lists them, or with `unit` their number and the first."""
    if not problems:
        return Check(name, "ok", number, good)
    total = f"{len(problems):,} {unit}{'s' * (len(problems) != 1)}; first {problems[0]}"
    return Check(name, "FAIL", number, total if unit else "; ".join(problems))
