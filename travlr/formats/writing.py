"""Writes a dataset part by part, with one or many workers. A run can be killed at any moment and resumed.

Each finished part has a record in `.travlr/parts` with the digests of its files, so a later run resumes after it. The
manifest is written last. A folder with a manifest is a finished dataset, a folder with only `.travlr` an unfinished
one, and any other folder that is not empty is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from render.png import encoder_digest
from travlr import files
from travlr.cli import Log
from travlr.files import KEPT, WORK, hashed, put_file, regular
from travlr.formats import LAYOUTS, base
from travlr.formats.base import CARD, PARTS, Part, file_problem, names_of, remove
from travlr.formats.card import write_card
from travlr.formats.columns import SCHEMA_DIGEST, content_digest, rows_digest
from travlr.formats.manifest import FORMAT_VERSION, MANIFEST, checked_manifest, read_manifest, versions
from travlr.workers import Progress, run

JOB = f"{WORK}/job.json"  # of an unfinished dataset: what is being made


@dataclass(frozen=True)
class Plan:
    """A dataset to write and its folder. `fingerprint` determines the bytes; a folder with another one is refused.

    tables: a picklable function from a part to its rows. about: more entries of the manifest (config, held-out pairs).
    pixels: digest of the sprites, None where the pictures are not exactly made of them. suffix: of picture files.
    """

    folder: Path
    layout: str
    task: str
    counts: dict[str, int]
    rows_per_file: int
    about: dict[str, Any]
    tables: Callable[[Part], Iterator[pa.Table]]
    pixels: str | None = None
    suffix: str = "png"

    @property
    def fingerprint(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            "layout": self.layout,
            "source": self.about.get("source"),
            "config": self.about["config"],
            "rows_per_file": self.rows_per_file,
            "pixels": self.pixels,
        }


def parts_of(plan: Plan) -> list[Part]:
    return base.parts_of(plan.task, plan.counts, plan.rows_per_file, plan.suffix)


def write_dataset(
    plan: Plan,
    *,
    workers: int = 0,
    executor: str = "local",
    overwrite: bool = False,
    log: Log = print,
) -> dict[str, Any]:
    """Write the missing parts of a dataset, and return its manifest. `workers=0` uses every core. `overwrite` writes a
    finished dataset again, and replaces one of another config.

    Raises `ValueError` for a folder that holds something else, or that another process is writing.
    """
    parts_of(plan)  # raises before anything is changed
    LAYOUTS[plan.layout].check(plan.about["config"])
    _existing(plan, overwrite)
    with files.locked(plan.folder):
        earlier = _existing(plan, overwrite)  # again, because another process may have changed it before the lock
        if earlier and (_differs(earlier, plan) or (overwrite and _is_finished(earlier))):
            _put_job(plan.folder, earlier)  # marks the folder as ours in case this run is killed while it deletes files
            remove(plan.folder, earlier)
            files.clear(plan.folder / WORK, keep=("lock", "job.json"))
            earlier = None
        damaged = damaged_files(plan.folder, earlier) if earlier and _is_finished(earlier) else []
        if earlier and _is_finished(earlier) and not damaged:
            log(f"{plan.folder} is complete: nothing to do")
            manifest = earlier
            if not all((plan.folder / name).is_file() for name in CARD):
                write_card(plan.folder, manifest)
        else:
            _begin(plan, earlier, damaged, log)
            manifest = _finish(plan, _write_parts(plan, workers, executor, log))
        files.close(plan.folder)
    return manifest


# What the folder holds before -------------------------------------------------------------------------------------


def _existing(plan: Plan, overwrite: bool) -> dict[str, Any] | None:
    """The manifest of the dataset in the folder, the job of an unfinished one, or None for an empty folder.

    Raises `ValueError` for a folder that cannot be written or holds something else.
    """
    folder = plan.folder
    if any("\udc80" <= letter <= "\udcff" for letter in str(folder)):
        raise ValueError(f"{str(folder)!a}: is not a name in UTF-8; name another folder, or use a UTF-8 locale")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted({path.name for path in folder.iterdir()} - {WORK, KEPT})
    except FileExistsError:
        raise ValueError(f"{folder}: is a file; name a folder") from None
    except OSError as error:
        raise ValueError(f"{folder}: cannot be written ({error.strerror}); name another folder") from None
    if (folder / MANIFEST).exists():
        earlier = read_manifest(folder)
    elif (folder / JOB).exists():
        earlier = checked_manifest(folder / JOB)
    elif names or not files.is_work_alone(folder):
        name = names[0] if names else WORK
        raise ValueError(f"{folder}: is not empty and not a dataset ({name}); name another folder")
    else:
        return None
    if not overwrite and (setting := _differs(earlier, plan)):
        unfinished = "" if _is_finished(earlier) else "n unfinished"
        raise ValueError(
            f"{folder}: holds a{unfinished} dataset with {setting}; name another folder, or replace it with "
            "overwrite=true"
        )
    return earlier


def _differs(earlier: dict[str, Any], plan: Plan) -> str:
    """The first setting in which the dataset of a folder differs from the plan, as `name=value`; empty where none."""

    def flat(value: Any, name: str) -> dict[str, Any]:
        if isinstance(value, dict) and value:
            return {k: v for key, inner in value.items() for k, v in flat(inner, f"{name}.{key}").items()}
        return {name.removeprefix(".").removeprefix("config."): value}

    due = flat(json.loads(json.dumps(plan.fingerprint)), "")
    values = flat({key: earlier.get(key) for key in plan.fingerprint}, "")
    for name in [*values, *due]:
        if due.get(name) != values.get(name):
            return f"{'format' if name == 'layout' else name}={json.dumps(values.get(name))}"
    return ""


def _is_finished(earlier: dict[str, Any]) -> bool:
    return "content_digest" in earlier


def damaged_files(folder: Path, manifest: dict[str, Any]) -> list[str]:
    """Names of the files of a finished dataset that are missing or not as the manifest says."""
    return [file["name"] for file in manifest["files"] if file_problem(folder, file)]


# Parts -------------------------------------------------------------------------------------------------------------


def all_versions() -> dict[str, str]:
    """The versions that the bytes of files depend on beside the plan; parts of other versions are written again."""
    return {**versions(), "schema": SCHEMA_DIGEST, "encoder": encoder_digest()}


def _begin(plan: Plan, earlier: dict[str, Any] | None, damaged: list[str], log: Log) -> None:
    """Write the job to `.travlr`, and remove what this run cannot reuse from an earlier one."""
    folder, layout, parts = plan.folder, LAYOUTS[plan.layout], parts_of(plan)
    now = all_versions()
    reusable = earlier is not None and earlier.get("versions") == now
    if damaged:
        _log_damaged(folder, damaged, log)
    if not reusable:
        files.clear(folder / WORK, keep=("lock", "job.json"))
        if earlier:
            log(f"{folder} was begun with other versions of the program or its packages: writing all of it again")
    for path in (folder / WORK).glob("*.tmp"):  # of a run that was killed
        path.unlink(missing_ok=True)
    (folder / PARTS).mkdir(exist_ok=True)
    shared = [{"name": file.name, "split": file.split} for file in layout.shared(parts)]
    job = {
        **plan.fingerprint,
        "versions": now,
        "splits": {split: {"rows": count} for split, count in plan.counts.items()},
        "files": [*(layout.entry(part) for part in parts), *shared],
    }
    _put_job(folder, job)
    if earlier and reusable and _is_finished(earlier) and not shared:  # to be repaired: the manifest has the records
        for part, record in zip(parts, earlier["files"], strict=False):
            if record["name"] not in damaged:
                _put_record(folder, part, record)


def _put_job(folder: Path, job: dict[str, Any]) -> None:
    """Write the job of an unfinished dataset, which is its manifest without content digest."""
    unfinished = {key: value for key, value in job.items() if key != "content_digest"}
    put_file(folder, JOB, [json.dumps(unfinished).encode()])


def _log_damaged(folder: Path, names: list[str], log: Log) -> None:
    more = f" and {len(names) - 1} more" if names[1:] else ""
    log(f"{names[0]}{more}: damaged or missing, written again (the damaged file moves to {folder / KEPT})")


def _write_parts(plan: Plan, workers: int, executor: str, log: Log) -> dict[str, dict[str, Any]]:
    """Write the missing parts; returns the records of all parts by name."""
    parts = parts_of(plan)
    records = {part.name: record for part in parts if (record := _record(plan, part))}
    todo = [part for part in parts if part.name not in records]
    todo.sort(key=lambda part: part.start - part.stop)  # the largest first, so that all processes end at about one time
    if damaged := [part.name for part in todo if (plan.folder / PARTS / f"{part.name}.json").exists()]:
        _log_damaged(plan.folder, damaged, log)
    rows = sum(part.stop - part.start for part in todo)
    if records and todo:
        total = sum(plan.counts.values())
        log(f"resuming {plan.folder}: {total - rows:,} of {total:,} examples are written")
    write = functools.partial(write_part, dataclasses.replace(plan, folder=plan.folder.absolute()))
    with Progress(rows, log) as progress, contextlib.closing(run(write, todo, workers, executor)) as results:
        for part, record in results:
            if not (plan.folder / next(names_of(record))).is_file():
                raise ValueError(
                    f"{plan.folder}: {part.name} was written elsewhere; all machines must share this folder"
                )
            records[part.name] = record
            progress.advance(record["rows"])
    return records


def write_part(plan: Plan, part: Part) -> dict[str, Any]:
    """Write one part, and return its record: rows, true answers, digests, size."""
    layout = LAYOUTS[plan.layout]
    counts = {"rows": 0, "true": 0, "rows_digest": 0}

    def counted_tables() -> Iterator[pa.Table]:
        for table in plan.tables(part):
            counts["rows"] += table.num_rows
            counts["true"] += sum(table["answer"].to_pylist())
            counts["rows_digest"] = (counts["rows_digest"] + rows_digest(table)) % (1 << 256)
            yield table

    layout.write(plan.folder, part, counted_tables())
    if counts["rows"] != part.stop - part.start:
        raise ValueError(f"{part.name}: has {counts['rows']} rows, not {part.stop - part.start}")
    record = _measured(plan, part) | {"true": counts["true"], "rows_digest": f"{counts['rows_digest']:064x}"}
    _put_record(plan.folder, part, record)
    return record


def _put_record(folder: Path, part: Part, record: dict[str, Any]) -> None:
    put_file(folder, f"{PARTS}/{part.name}.json", [json.dumps(record).encode()], sync=False)


def _measured(plan: Plan, part: Part) -> dict[str, Any]:
    """The entries of a part's record that come from its files: names, sizes and hashes."""
    layout = LAYOUTS[plan.layout]
    entry = layout.entry(part)
    fragments = [str(hashed([plan.folder / PARTS / name])["sha256"]) for name in layout.fragments(part)]
    sizes_and_hashes = hashed(plan.folder / name for name in names_of(entry))
    return {**entry, **sizes_and_hashes, **({"fragments": fragments} if fragments else {})}


def _record(plan: Plan, part: Part) -> dict[str, Any] | None:
    """The record of a finished part; None where its files have changed."""
    try:
        record = json.loads(regular(plan.folder / PARTS / f"{part.name}.json").read_text())
        counted = {"true": int(record["true"]), "rows_digest": f"{int(record['rows_digest'], 16):064x}"}
        return record if record == _measured(plan, part) | counted else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _finish(plan: Plan, records: dict[str, Any]) -> dict[str, Any]:
    """Write the files that all parts share, then the card, and the manifest last."""
    folder, layout, parts = plan.folder, LAYOUTS[plan.layout], parts_of(plan)
    entries = []
    splits = {split: {"rows": count, "true": 0} for split, count in plan.counts.items() if count}
    digests = dict.fromkeys(splits, 0)
    for part in parts:
        record = records[part.name]
        entries.append({key: value for key, value in record.items() if key != "fragments"})
        splits[part.split]["true"] += record["true"]
        digests[part.split] = (digests[part.split] + int(record["rows_digest"], 16)) % (1 << 256)
    for shared in layout.shared(parts):
        shared.join(folder)
        entries.append({"name": shared.name, "split": shared.split, **hashed([folder / shared.name])})
    manifest = {
        "format": "travlr",
        **plan.fingerprint,
        **plan.about,
        "data_files": layout.data_files(parts),
        "splits": splits,
        "content_digest": content_digest(digests, plan.pixels),
        "versions": all_versions(),
        "files": entries,
    }
    write_card(folder, manifest)
    put_file(folder, MANIFEST, [json.dumps(manifest, indent=1).encode() + b"\n"])
    return manifest
