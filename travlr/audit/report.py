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
    wrong = {split: n for (check, split), n in findings.wrong.items() if check == name}
    counts = [f"{wrong[split]:,} of {findings.rows[split]:,} {split}" for split in SPLITS if split in wrong]
    problem = f"{', '.join(counts)}; first {findings.first[name][1]}" if wrong else ""
    return checked(name, findings.done[name], [problem] if problem else [], good)


def checked(name: str, number: int, problems: list[str], good: str, what: str = "") -> Check:
    """A check that fails where there are problems; with `what` the report counts them and shows the first."""
    total = f"{len(problems):,} {what}{'s' * (len(problems) != 1)}; first " if what else ""
    shown = problems[:1] if what else problems
    return Check(name, "FAIL" if problems else "ok", number, total + "; ".join(shown) if problems else good)
