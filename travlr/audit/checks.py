"""The audit of a whole dataset: joins the findings of all chunks into the lines of the report.

A chunk leaves counts and a hash of 16 bytes for each row, so memory hardly grows with the dataset.
"""

from __future__ import annotations

import csv
import fnmatch
import functools
import json
import math
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from render.text import CAPTION_STYLES, parse_caption
from travlr import baselines
from travlr.audit.examine import DatasetInfo, Findings, chunks_of, examine, read_info
from travlr.audit.pictures import renderer_of
from travlr.audit.proof import regeneration_checks
from travlr.audit.report import Check, checked, counted
from travlr.audit.rows import QUERY, ROW_CHECKS, TOTAL, score
from travlr.files import regular
from travlr.formats.base import CARD, names_present
from travlr.formats.columns import content_digest, damage, open_parquet
from travlr.formats.manifest import MANIFEST
from travlr.scene import IN_DISTRIBUTION
from travlr.tasks import TASKS
from travlr.workers import Progress, run

DATA_ENDINGS = {  # of files that loaders of a folder read
    *(".arrow", ".csv", ".gz", ".jpeg", ".jpg", ".json", ".jsonl", ".npy", ".parquet", ".png", ".py"),
    *(".tar", ".tsv", ".webp", ".zip"),
}
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
    return [*checks, *regeneration_checks(info, findings)]


def file_checks(info: DatasetInfo, findings: Findings) -> list[Check]:
    """The manifest against the files, and what only metadata.jsonl of the published layout holds."""
    checks = [
        Check("manifest", "note", 0, "none: no settings and hashes to check, and nothing to make the rows again from")
    ]
    if info.origin:
        failures = sum(n for (check, _), n in findings.failures.items() if check == "files")
        problems = [f"{failures} of them; first {findings.first['files'][1]}"] if failures else []
        checks = [checked("files", findings.totals["files"], problems, "SHA-256 as in the manifest"), other_files(info)]
        checks += [picture_mode(info)] if info.layout != "original" else []
    problems = [findings.first["rows"][1]] if "rows" in findings.first else []
    for split, n in ({key: {"rows": 0, "true": 0} for key in findings.rows} | info.splits).items():
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
    if info.digest:
        sums = {split: findings.digests[split] % (1 << 256) for split in info.splits}
        pixels = renderer_of(info.rules.config).digest() if info.pixels and info.rules.config else info.pixels
        digest = content_digest(sums, pixels)
        problems = [f"{digest[:16]} is not {info.digest[:16]}, the manifest's"] if digest != info.digest else []
        checks.append(checked("content digest", findings.rows.total(), problems, digest[:16]))
    return checks + (metadata_checks(info.folder) if info.layout == "original" else [])


def other_files(info: DatasetInfo) -> Check:
    """Files that the manifest does not list; a failure only where other programs would read them as part of a split."""
    ours = {MANIFEST, *CARD, baselines.FILE, *names_present(info.folder, info.files)}
    paths = (Path(parent, name).relative_to(info.folder) for parent, _, names in os.walk(info.folder) for name in names)
    others = sorted({str(path) for path in paths} - ours)
    problems = [f"{name} would be read as part of a split" for name in others if is_read(name, info.data_files)]
    if problems or not others:
        return checked("other files", len(others), problems[:1], "none")
    return Check("other files", "note", len(others), f"not of the dataset: {', '.join(others[:3])}")


def is_read(name: str, globs: Sequence[str]) -> bool:
    """Whether Hugging Face `datasets` would read a file of a folder, because of the card's globs or of its ending."""
    hidden = any(part.startswith((".", "__")) for part in Path(name).parts)  # which it leaves out
    ending = Path(name).suffix.lower()
    return any(fnmatch.fnmatch(name, glob) for glob in globs) or (ending in DATA_ENDINGS and not hidden)


def picture_mode(info: DatasetInfo) -> Check:
    """A note where Hugging Face `datasets` reads palette indices from pictures: earlier versions declared no mode."""
    if info.layout == "parquet":
        paths, declares = [info.folder / file["name"] for file in info.files], _schema_declares_rgb
        way = "python -m travlr.convert writes files that declare it"
    else:
        paths, declares = [info.folder / "README.md"], _card_declares_rgb
        way = "remove README.md and run the command that made the dataset again"
    if silent := [path.name for path in paths if not declares(path)]:
        detail = f"{silent[0]} does not declare RGB, so Hugging Face datasets gives palette indices; {way}"
        return Check("picture mode", "note", len(paths), detail)
    return Check("picture mode", "ok", len(paths), "declared as RGB for Hugging Face datasets")


def _schema_declares_rgb(path: Path) -> bool:
    try:
        return b'"mode": "RGB"' in (open_parquet(path).schema_arrow.metadata or {}).get(b"huggingface", b"")
    except ValueError:
        return True  # a damaged file: other checks report it


def _card_declares_rgb(path: Path) -> bool:
    try:
        return "mode: RGB\n" in regular(path).read_text(encoding="utf-8").partition("\n---\n")[0]
    except (OSError, ValueError):
        return False


def metadata_checks(folder: Path) -> list[Check]:
    """metadata.jsonl of the published layout against index.csv."""
    problems: dict[str, list[str]] = {"metadata.jsonl": [], "caption_abstract": []}
    count = 0
    try:
        with damage(folder / "metadata.jsonl"):
            entries = json.loads(regular(folder / "metadata.jsonl").read_text(encoding="utf-8"))
            for line in csv.DictReader(regular(folder / "index.csv").read_text(encoding="utf-8").splitlines()):
                count += 1
                entry = entries[line[""]]
                if any(str(entry[name]) != line[name] for name in ("query", "answer", "split")):
                    problems["metadata.jsonl"].append(f"row {line['']}")
                cells = [(o["row"], o["column"]) for o in entry["objects"]]
                parsed = [(o.row, o.column) for o in parse_caption(line["caption"])[2]]
                if [cells[number] for number in entry["caption_abstract"]] != parsed:
                    problems["caption_abstract"].append(
                        f"row {line['']}: {entry['caption_abstract']} is not its caption's"
                    )
    except ValueError as error:
        problems["metadata.jsonl"].append(str(error))
    good = ("query, answer and split as in index.csv", "the order in which the caption names the objects")
    return [checked(name, count, problems[name], text, "row") for name, text in zip(problems, good, strict=True)]


def row_checks(info: DatasetInfo, findings: Findings) -> list[Check]:
    """The checks of single rows that apply to this dataset."""
    good = ROW_CHECKS | {"held-out pairs": f"{len(info.rules.pairs)} {ROW_CHECKS['held-out pairs']}"}
    if not CAPTION_STYLES[info.rules.style].ordered:
        good["caption"] = "read back: the objects column, whose order it does not show"
    if info.rules.config is None:
        good["image"] = "only which cells are empty is compared: another program drew it"
    elif info.pixels is None:
        good["image"] = "read back: every pixel is as the objects column says, but for what JPEG loses"
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
    twins = np.nonzero(hashes[order][1:] == hashes[order][:-1])[0]  # equal to the next one in this order

    def row(place: int) -> str:
        part = int(np.searchsorted(starts, place, side="right")) - 1
        return f"{parts[part][0]} {parts[part][1] + place - starts[part]}"

    problems = [f"{row(order[i])} = {row(order[i + 1])}" for i in twins]
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

    Rules of a task are only reported where couples are exchanged: an exchange changes all sets of a query alike, so
    that a rule that counts the objects of another set sees it, too (docs/strict.md).
    """
    checks = []
    shortcuts = {QUERY: "", TOTAL: ""} | {
        name: about for task in TASKS.values() for name, about in task.shortcuts.items()
    }
    exchanged = info.rules.config is not None and info.rules.config.couples == "exchanged"
    reported = {name for task in TASKS.values() for name in (task.shortcuts if exchanged else task.reported_shortcuts)}
    for rule, about in shortcuts.items():
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
