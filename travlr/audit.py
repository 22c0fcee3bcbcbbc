"""Check a written dataset from its files alone: `python -m travlr.audit DIR`.

Captions, query texts and pixels are read back (`travlr.recount`); from them answers, pairs, splits, balance and
shortcuts are worked out anew. Each row leaves behind counts and one 16-byte hash, so memory stays flat.
"""

from __future__ import annotations

if __name__ == "__main__":
    from travlr.start import start_command

    start_command("audit", "travlr.audit")

import contextlib
import csv
import fnmatch
import functools
import hashlib
import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from render.image import CONTENT_VERSION
from render.text import parse_caption
from travlr import cli
from travlr.dataset import MANIFEST, content_digest, damage, malformed, open_parquet, read_manifest, rows_digest
from travlr.files import WORK, hashed, regular
from travlr.formats import CARD, LAYOUTS, names_of, names_present, published_counts
from travlr.recount import (
    QUERY,
    ROW_CHECKS,
    TOTAL,
    Rules,
    examine_row,
    recount,
    renderer_of,
    rows_of,
    score,
)
from travlr.scene import IN_DISTRIBUTION, SPLITS
from travlr.task import Pair
from travlr.tasks import TASKS, config_from_dict, parse_query
from travlr.workers import Progress, run

BOUND, Z = 0.51, 3.0902  # a rule fails where the lower 99.9 % bound of its accuracy lies above BOUND


@dataclass(frozen=True)
class Check:
    """A line of the report. status: ok, FAIL or note. checked: how many rows, files, pairs or texts."""

    name: str
    status: str
    checked: int
    detail: str


@dataclass(frozen=True)
class Told:
    """What a dataset says of itself; published data has no manifest, so no files, and what is held out is inferred."""

    folder: Path
    layout: str
    splits: dict[str, dict[str, int]]
    rules: Rules
    files: tuple[dict[str, Any], ...] = ()
    data_files: tuple[str, ...] = ()
    pixels: str | None = None
    digest: str = ""


class Part(NamedTuple):
    """A file, or the files of some rows: rows start to stop of a split, or (None) to the end; no rows without split."""

    number: int
    split: str
    start: int
    stop: int | None
    file: dict[str, Any]


@dataclass
class Found:
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

    def add(self, other: Found) -> None:
        for name in ("done", "wrong", "tally", "rows", "true", "digests"):
            getattr(self, name).update(getattr(other, name))
        for check, first in other.first.items():
            self.first[check] = min(first, self.first.get(check, first))
        self.hashes += other.hashes


def audit(folder: str | os.PathLike[str], workers: int = 0) -> list[Check]:
    """Every check of a dataset. `workers=0` uses every core. Raises `ValueError` where the folder holds no dataset."""
    told = read_told(Path(folder))
    found, rows = Found(), sum(n["rows"] for n in told.splits.values())
    workers = workers or (1 if rows < 2000 else 0)  # less than a second of work: starting processes takes longer
    with Progress(rows, lambda line: None) as progress:
        for _, part in run(functools.partial(examine, told), parts_of(told), workers):
            found.add(part)
            progress.advance(part.rows.total())
    checks = [_counted(told, found, "columns", "as they should be, no null in any row")] * bool(found.done["columns"])
    checks += [*file_checks(told, found), *row_checks(told, found), *split_checks(found)]
    return [*checks, *balance_checks(found), *shortcut_checks(found)]


# What is told ------------------------------------------------------------------------------------------------------


def read_told(folder: Path) -> Told:
    """The manifest, or for published data without one what can be known of it. Raises `ValueError` for neither."""
    if (folder / "index.csv").is_file() and not (folder / MANIFEST).exists() and not (folder / WORK).exists():
        splits = {split: {"rows": rows} for split, rows in published_counts(folder).items()}
        told = Told(folder, "original", splits, Rules(None, frozenset(), frozenset(), exact=False))
    else:
        manifest = read_manifest(folder)
        with damage(folder / MANIFEST):
            told = _told(folder, manifest)
    if told.rules.pairs:
        return told
    return replace(told, rules=replace(told.rules, pairs=pairs_asked(told, "test_ood")))


def _told(folder: Path, manifest: dict[str, Any]) -> Told:
    held_out = manifest["held_out"] if manifest["config"] else {"pairs": [], "queries": []}
    rules = Rules(
        config_from_dict(manifest["config"]) if manifest["config"] else None,
        frozenset(tuple(map(str, pair)) for pair in held_out["pairs"]),
        frozenset(frozenset(map(str, query)) for query in held_out["queries"]),
        exact=manifest["pixels"] is not None,
    )
    return Told(
        folder,
        LAYOUTS[manifest["layout"]].name,
        {split: {"rows": n["rows"], "true": int(n["true"])} for split, n in manifest["splits"].items()},
        rules,
        tuple(manifest["files"]),
        tuple(map(str, manifest["data_files"].values())),
        manifest["pixels"],
        str(manifest["content_digest"]),
    )


def parts_of(told: Told) -> list[Part]:
    """The dataset in the pieces that workers take. Files without rows of their own have no split here."""
    if not told.files:
        return [Part(number, split, 0, None, {}) for number, split in enumerate(told.splits)]
    parts, starts = [], Counter[str]()
    last = {file["split"]: number for number, file in enumerate(told.files) if "rows" in file}
    for number, file in enumerate(told.files):
        split = file["split"] or "" if "rows" in file else ""
        stop = None if number == last.get(split) else starts[split] + file.get("rows", 0)
        parts.append(Part(number, split, starts[split], stop, file))
        starts[split] += file.get("rows", 0)
    return parts


def tables_of(told: Told, part: Part) -> Iterator[pa.Table]:
    """The rows of a part, malformed ones too. Raises `ValueError` where they cannot be read."""
    files, rows = told.files, (part.start, part.stop)
    if part.file and "*" not in part.file["name"]:
        files, rows = (part.file,), (0, None)
    found = LAYOUTS[told.layout].tables(told.folder, {"files": files}, part.split, *rows)
    return (table for _, table in found)


def pairs_asked(told: Told, split: str) -> frozenset[Pair]:
    """The pairs that a split's queries show; what cannot be read is left for the checks to report."""
    pairs = set()
    with contextlib.suppress(ValueError):
        for part in (part for part in parts_of(told) if part.split == split):
            for table in tables_of(told, part):
                for row in () if malformed(table) else rows_of(table):
                    pairs.add(recount(parse_query(row.query), parse_caption(row.caption)[2])[1])
    return frozenset(pairs)


# One part, one row -------------------------------------------------------------------------------------------------


def examine(told: Told, part: Part) -> Found:
    """All that can be said of a part by itself."""
    found = Found(part.number)
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


def examine_table(told: Told, part: Part, table: pa.Table, found: Found) -> None:
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
        hashes.append(hashlib.blake2b(f"{sorted(row.things)} {row.query}".encode(), digest_size=16).digest())
        problems, looks = examine_row(told.rules, row, split, number)
        for name, problem in problems.items():
            found.check(name, split, problem and f"{row.id}: {problem}")
        for rule, feature in looks:
            found.tally[split, rule, feature, row.answer] += 1
    found.hashes.append((split, start, b"".join(hashes)))


# All parts together ------------------------------------------------------------------------------------------------


def file_checks(told: Told, found: Found) -> list[Check]:
    """The manifest against the files, and what only metadata.jsonl of the published layout holds."""
    checks = [Check("manifest", "note", 0, "none: published data, so settings and hashes are not checked")]
    if told.files:
        wrong = sum(n for (check, _), n in found.wrong.items() if check == "files")
        problems = [f"{wrong} of them; first {found.first['files'][1]}"] if wrong else []
        checks = [_check("files", found.done["files"], problems, "SHA-256 as in the manifest"), other_files(told)]
        checks += [picture_mode(told)] if told.layout != "original" else []
    problems = [found.first["rows"][1]] if "rows" in found.first else []
    for split, n in ({key: {"rows": 0, "true": 0} for key in found.rows} | told.splits).items():
        rows, true = found.rows[split], found.true[split]
        if (rows, true) != (n["rows"], n.get("true", true)):
            problems.append(
                f"{split} has {rows:,} rows and {true:,} true, not {n['rows']:,} and {n.get('true', true):,}"
            )
        if told.rules.config and rows != (asked := getattr(told.rules.config.count, split)):
            problems.append(f"{split} has {rows:,} rows, but count.{split} is {asked:,}")
    checks.append(_check("rows", found.rows.total(), problems, "rows and true answers as told"))
    if told.digest:
        sums = {split: found.digests[split] % (1 << 256) for split in told.splits}
        digest = content_digest(sums, sprites_digest(told) if told.pixels else None)
        problems = [f"{digest[:16]} is not {told.digest[:16]}, the manifest's"] if digest != told.digest else []
        checks.append(_check("content digest", found.rows.total(), problems, digest[:16]))
    return checks + (metadata_checks(told.folder) if told.layout == "original" else [])


def sprites_digest(told: Told) -> str | None:
    if told.rules.config is None:
        return told.pixels
    sprites = renderer_of(told.rules.config.world, told.rules.config.image).rgb_sprites
    return hashlib.sha256(f"{CONTENT_VERSION} {sprites.shape}".encode() + sprites.tobytes()).hexdigest()


def other_files(told: Told) -> Check:
    """Files that are not the dataset's: they fail it only where other programs would read them as part of a split."""
    known = {MANIFEST, *CARD, *names_present(told.folder, told.files)}
    there = (Path(parent, name).relative_to(told.folder) for parent, _, names in os.walk(told.folder) for name in names)
    others = sorted({str(path) for path in there} - known)
    read = [name for name in others if any(fnmatch.fnmatch(name, glob) for glob in told.data_files)]
    if read or not others:
        return _check(
            "other files", len(others), [f"{read[0]} would be read as part of a split"] if read else [], "none"
        )
    return Check("other files", "note", len(others), f"not of the dataset: {', '.join(others[:3])}")


def picture_mode(told: Told) -> Check:
    """A note where Hugging Face `datasets` gives pictures as palette indices: earlier versions declared no mode."""
    if told.layout == "parquet":
        paths, declares = [told.folder / file["name"] for file in told.files], _schema_declares_rgb
        way = "python -m travlr.convert writes files that declare it"
    else:
        paths, declares = [told.folder / "README.md"], _card_declares_rgb
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
    wrong: dict[str, list[str]] = {"metadata.jsonl": [], "caption_abstract": []}
    count = 0
    try:
        with damage(folder / "metadata.jsonl"):
            entries = json.loads(regular(folder / "metadata.jsonl").read_text(encoding="utf-8"))
            for line in csv.DictReader(regular(folder / "index.csv").read_text(encoding="utf-8").splitlines()):
                count += 1
                entry = entries[line[""]]
                if any(str(entry[name]) != line[name] for name in ("query", "answer", "split")):
                    wrong["metadata.jsonl"].append(f"row {line['']}")
                cells = [(o["row"], o["column"]) for o in entry["objects"]]
                said = [(o.row, o.column) for o in parse_caption(line["caption"])[2]]
                if [cells[number] for number in entry["caption_abstract"]] != said:
                    wrong["caption_abstract"].append(
                        f"row {line['']}: {entry['caption_abstract']} is not its caption's"
                    )
    except ValueError as error:
        wrong["metadata.jsonl"].append(str(error))
    good = ("query, answer and split as in index.csv", "the order in which the caption names the objects")
    return [_check(name, count, wrong[name], text, "row") for name, text in zip(wrong, good, strict=True)]


def row_checks(told: Told, found: Found) -> list[Check]:
    """The checks of single rows that apply to this dataset."""
    good = ROW_CHECKS | {"held-out pairs": f"{len(told.rules.pairs)} {ROW_CHECKS['held-out pairs']}"}
    if told.rules.config is None:
        good["image"] = "only which cells are empty is compared: another program drew it"
    elif told.pixels is None:
        good["image"] = "read back: every pixel is as the objects column says, but for what JPEG loses"
    return [_counted(told, found, name, detail) for name, detail in good.items() if found.done[name]]


def split_checks(found: Found) -> list[Check]:
    """Query texts of test_ood are its own, and no example occurs twice, in whatever order its caption is."""
    texts: dict[bool, set[str]] = {True: set(), False: set()}
    for split, rule, feature, _ in found.tally:
        if rule == QUERY:
            texts[split == "test_ood"].add(feature)
    parts = sorted(found.hashes)
    hashes = np.frombuffer(b"".join(part for *_, part in parts), "S16")
    starts = np.cumsum([0, *(len(part) // 16 for *_, part in parts)])
    order = hashes.argsort(kind="stable")
    again = np.nonzero(hashes[order][1:] == hashes[order][:-1])[0]

    def row(place: int) -> str:
        part = int(np.searchsorted(starts, place, side="right")) - 1
        return f"{parts[part][0]} {parts[part][1] + place - starts[part]}"

    twins = [f"{row(order[i])} = {row(order[i + 1])}" for i in again]
    return [
        _check("query texts", len(texts[True]), sorted(texts[True] & texts[False]), "of test_ood are its own", "text"),
        _check("duplicates", len(hashes), twins, "no example occurs twice", "row"),
    ]


def by_feature(found: Found, rule: str) -> dict[str, dict[Any, list[int]]]:
    """split -> feature -> numbers of false and of true examples."""
    counts: dict[str, dict[Any, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for (split, name, feature, answer), n in found.tally.items():
        if name == rule:
            counts[split][feature][answer] += n
    return counts


def balance_checks(found: Found) -> list[Check]:
    """As many true as false for each pair and each text (odd numbers differ by one), and as many of each pair."""
    checks = []
    for name, rule, what in (("balance by pair", "pair", "pair"), ("balance by query text", QUERY, "text")):
        groups = [(s, f, n) for s, counts in by_feature(found, rule).items() for f, n in counts.items()]
        wrong = [f"{s} {f}: {n[1]} true, {n[0]} false" for s, f, n in groups if abs(n[1] - n[0]) != sum(n) % 2]
        checks.append(_check(name, len(groups), sorted(wrong), "as many true as false, give or take one", what))
    totals = {split: {f: sum(n) for f, n in counts.items()} for split, counts in by_feature(found, "pair").items()}
    wrong = []
    for split, n in sorted(totals.items()):
        least, most = min(n, key=n.__getitem__), max(n, key=n.__getitem__)
        if n[most] - n[least] > 2:
            wrong.append(f"{split}: {n[least]} of {least}, {n[most]} of {most}")
    return [*checks, _check("pair totals", sum(map(len, totals.values())), wrong, "within 2 in each split", "split")]


def shortcut_checks(found: Found) -> list[Check]:
    """Accuracy of rules that do not look at what decides: fitted on train, scored on validation and test_ind."""
    checks = []
    shortcuts = {QUERY: "", TOTAL: ""} | {
        name: about for task in TASKS.values() for name, about in task.shortcuts.items()
    }
    reported = {name for task in TASKS.values() for name in task.reported}
    for rule, about in shortcuts.items():
        counts = by_feature(found, rule)
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
    share, spread = right / total, Z * Z / total
    return (share + spread / 2 - math.sqrt(share * (1 - share) * spread + spread * spread / 4)) / (1 + spread)


def _counted(told: Told, found: Found, name: str, good: str) -> Check:
    """A check of single rows or files: in each split how many fail it, and the first."""
    wrong = {split: n for (check, split), n in found.wrong.items() if check == name}
    counts = [f"{wrong[split]:,} of {found.rows[split]:,} {split}" for split in SPLITS if split in wrong]
    problem = f"{', '.join(counts)}; first {found.first[name][1]}" if wrong else ""
    return _check(name, found.done[name], [problem] if problem else [], good)


def _check(name: str, checked: int, problems: list[str], good: str, what: str = "") -> Check:
    """A check that fails where there are problems; with `what` they are counted and the first is named."""
    counted = f"{len(problems):,} {what}{'s' * (len(problems) != 1)}; first " if what else ""
    shown = problems[:1] if what else problems
    return Check(name, "FAIL" if problems else "ok", checked, counted + "; ".join(shown) if problems else good)


# Command line ------------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    parser = cli.Parser(prog="python -m travlr.audit", description="Check a dataset from its files alone.")
    parser.add_argument("dir", metavar="DIR", type=cli.folder, help="folder of a dataset, in any format")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="processes (default: one per core)")
    options = parser.parse_args(arguments)
    if options.workers < 0:
        raise cli.UsageError(f"--workers {options.workers}: must be 0 (one per core) or more")
    cli.without_pandas()
    checks = audit(options.dir, options.workers)
    failed = sum(check.status == "FAIL" for check in checks)
    if options.json:
        report = {"dataset": str(options.dir), "ok": not failed, "checks": [asdict(check) for check in checks]}
        print(json.dumps(report, indent=1, ensure_ascii=False))
    else:
        width = max(len(check.name) for check in checks)
        for c in checks:
            print(f"{c.status:<4}  {c.name:<{width}}  {c.checked:>9,}  {c.detail}")
        print(f"{options.dir}: {f'{failed} of {len(checks)} checks FAILED' if failed else 'every check passed'}")
    return 1 if failed else 0
