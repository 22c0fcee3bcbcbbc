"""Writing a dataset: part by part, by one or many workers, safe to kill at any moment and to run again.

While a dataset is unfinished its folder has a `.travlr` folder: the lock, what is being made, unfinished files, and a
record of each finished part. The manifest is written last, so a folder with a manifest is a finished dataset.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import hashlib
import json
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from travlr.cli import without_pandas
from travlr.dataset import FORMAT_VERSION, MANIFEST, content_digest, read_manifest, rows_digest, versions
from travlr.formats import LAYOUTS, WORK, Layout, Part, names_of, parts_of, remove, replace_file

EXECUTORS = ("local", "ray")


@dataclass(frozen=True)
class Plan:
    """What to write where. `identity` is all that determines the bytes; a folder that holds another is refused.

    tables: makes the rows of a part, a picklable function. about: more for the manifest (config, held-out pairs, …).
    pixels: digest of the sprites, None where pictures are not exactly theirs.
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
    def identity(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            "layout": self.layout,
            "rows_per_file": self.rows_per_file,
            "config": self.about["config"],
            "source": self.about.get("source"),
        }


def write_dataset(
    plan: Plan,
    *,
    card: Callable[[Path, dict[str, Any]], None],
    workers: int = 0,
    executor: str = "local",
    overwrite: bool = False,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Write what is not yet written, and give the manifest. `workers=0` uses every core; `card` writes the README.

    Raises `ValueError` for a folder that holds something else, or that another process is writing.
    """
    folder, layout = plan.folder, LAYOUTS[plan.layout]
    finished = _open(folder, plan, overwrite)
    with _locked(folder):
        if overwrite and finished and _differs(finished, plan):
            remove_all(folder, finished)
            finished = None
        return _write(plan, layout, finished, card, workers, executor, say)


def _write(
    plan: Plan,
    layout: Layout,
    finished: dict[str, Any] | None,
    card: Callable[[Path, dict[str, Any]], None],
    workers: int,
    executor: str,
    say: Callable[[str], None],
) -> dict[str, Any]:
    folder = plan.folder
    work = folder / WORK
    parts = parts_of(plan.task, plan.counts, plan.rows_per_file, plan.suffix)
    if finished:
        if _intact(folder, finished, say):
            say(f"{folder} is complete: all {len(finished['files'])} files are as the manifest says")
            shutil.rmtree(work, ignore_errors=True)
            return finished
        layout_files = {entry["name"]: entry for entry in finished["files"]}
        (folder / MANIFEST).replace(work / "damaged.json")
        if not any(layout.fragments(p) for p in parts):  # each part stands alone: the records are in the manifest
            (work / "parts").mkdir(exist_ok=True)
            for part in parts:
                entry = layout_files[layout.entry(part)["name"]]
                _put_json(work / "parts" / f"{part.name}.json", entry, work)
    (work / "parts").mkdir(exist_ok=True)
    _put_json(work / "job.json", {**plan.identity, "files": [layout.entry(part) for part in parts]}, work)

    records = {part.name: record for part in parts if (record := _record(folder, layout, part, say))}
    todo = [part for part in parts if part.name not in records]
    if records and todo:
        done = sum(record["rows"] for record in records.values())
        say(f"going on in {folder}: {done:,} of {sum(plan.counts.values()):,} examples are there")
    with Progress(sum(p.stop - p.start for p in todo), say) as progress:
        for part, record in _run(plan, todo, workers, executor):
            records[part.name] = record
            progress.advance(record["rows"])

    manifest = _manifest(plan, layout, parts, records)
    card(folder, manifest)
    replace_file(folder / MANIFEST, work, [json.dumps(manifest, indent=1).encode() + b"\n"])
    shutil.rmtree(work)
    return manifest


def write_part(plan: Plan, part: Part) -> dict[str, Any]:
    """Write one part, and give its record: rows, true answers, digests, size."""
    layout = LAYOUTS[plan.layout]
    seen = {"rows": 0, "true": 0, "rows_digest": 0}

    def watched() -> Iterator[pa.Table]:
        for table in plan.tables(part):
            seen["rows"] += table.num_rows
            seen["true"] += sum(table["answer"].to_pylist())
            seen["rows_digest"] = (seen["rows_digest"] + rows_digest(table)) % (1 << 256)
            yield table

    layout.write(plan.folder, part, watched())
    if seen["rows"] != part.stop - part.start:
        raise ValueError(f"{part.name}: {seen['rows']} rows came where {part.stop - part.start} were due")
    record = {**layout.entry(part), "true": seen["true"], "rows_digest": f"{seen['rows_digest']:064x}"}
    record |= _hashed(plan.folder, record)
    for name in layout.fragments(part):
        record.setdefault("fragments", []).append(_sha256([plan.folder / WORK / "parts" / name])["sha256"])
    _put_json(plan.folder / WORK / "parts" / f"{part.name}.json", record, plan.folder / WORK)
    return record


def _manifest(plan: Plan, layout: Layout, parts: list[Part], records: dict[str, Any]) -> dict[str, Any]:
    files = []
    splits = {split: {"rows": count, "true": 0} for split, count in plan.counts.items() if count}
    digests = dict.fromkeys(splits, 0)
    for part in parts:
        record = {k: v for k, v in records[part.name].items() if k != "fragments"}
        files.append(record)
        splits[part.split]["true"] += record["true"]
        digests[part.split] = (digests[part.split] + int(record["rows_digest"], 16)) % (1 << 256)
    for name in layout.finish(plan.folder, parts):
        file = {"name": name, "split": name.split("/")[0] if "/" in name else None}
        files.append(file | _hashed(plan.folder, file))
    return {
        "format": "travlr",
        **plan.identity,
        **plan.about,
        "data_files": layout.data_files(parts),
        "splits": splits,
        "pixels": plan.pixels,
        "content_digest": content_digest(digests, plan.pixels),
        "versions": versions(),
        "files": files,
    }


# The folder: whose it is, the lock, and what is already there -----------------------------------------------------


def _open(folder: Path, plan: Plan, overwrite: bool) -> dict[str, Any] | None:
    """Make sure that the folder is ours to write in; the manifest where it is finished."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out={folder}: is a file; name a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = [name for name in os.listdir(folder) if name != WORK]
        if (folder / MANIFEST).is_file():
            manifest = read_manifest(folder)
            if not overwrite and (setting := _differs(manifest, plan)):
                raise ValueError(
                    f"out={folder}: holds a dataset with {setting}; name another folder, or replace it with "
                    "overwrite=true"
                )
            return manifest
        if held and not (folder / WORK / "job.json").is_file():
            raise ValueError(f"out={folder}: is not empty and not a dataset ({held[0]}); name another folder")
    except OSError as error:
        raise ValueError(f"out={folder}: {error.strerror}") from None
    job = folder / WORK / "job.json"
    if job.is_file():
        try:
            begun = json.loads(job.read_text())
        except ValueError:
            raise ValueError(f"out={folder}: {job} is damaged; remove {folder}, or name another folder") from None
        if setting := _differs(begun, plan):
            if not overwrite:
                raise ValueError(
                    f"out={folder}: holds an unfinished dataset with {setting}; name another folder, or replace it "
                    "with overwrite=true"
                )
            return begun
    return None


def _differs(held: dict[str, Any], plan: Plan) -> str:
    """The first setting in which a folder's dataset differs from the plan, as `name=value`; empty where none."""

    def flat(value: Any, name: str) -> dict[str, Any]:
        if isinstance(value, dict) and value:
            return {k: v for key, inner in value.items() for k, v in flat(inner, f"{name}.{key}").items()}
        return {name.removeprefix(".").removeprefix("config."): value}

    wanted = flat(json.loads(json.dumps(plan.identity)), "")
    there = flat({key: held.get(key) for key in plan.identity}, "")
    names = {"layout": "format"}
    for name in [*wanted, *there]:
        if wanted.get(name) != there.get(name):
            return f"{names.get(name, name)}={there.get(name)}"
    return ""


def remove_all(folder: Path, manifest: dict[str, Any]) -> None:
    """Take away a dataset to make room, keeping the lock."""
    lock = folder / WORK / "lock"
    for path in (folder / WORK).iterdir():
        if path != lock:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    remove(folder, manifest)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock. A POSIX record lock: workers do not inherit it, and it dies with its process."""
    path = folder / WORK / "lock"
    while True:
        try:
            path.parent.mkdir(exist_ok=True)
            file = open(path, "w")  # noqa: SIM115 - closed below, kept open in between
        except FileNotFoundError:
            continue  # another process has just finished and cleaned up
        except OSError as error:
            raise ValueError(f"out={folder}: {error.strerror}") from None
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise ValueError(
                f"out={folder}: another process is writing there; wait for it, or name another folder"
            ) from None
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(file.fileno()).st_ino == os.stat(path).st_ino:
                break
        file.close()
    try:
        yield
    finally:
        file.close()


def _record(folder: Path, layout: Layout, part: Part, say: Callable[[str], None]) -> dict[str, Any] | None:
    """The record of a finished part, if its files are still what it says; a damaged one is put aside, not removed."""
    path = folder / WORK / "parts" / f"{part.name}.json"
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text())
        expected = {**layout.entry(part), "sha256": record["sha256"], "bytes": record["bytes"]}
        fragments = [_sha256([path.parent / name])["sha256"] for name in layout.fragments(part)]
        if expected | _hashed(folder, expected) == expected and fragments == record.get("fragments", []):
            return record
    except (ValueError, KeyError, OSError, TypeError):
        pass
    _put_aside(folder, part.name, layout.entry(part), say)
    return None


def _put_aside(folder: Path, what: str, entry: dict[str, Any], say: Callable[[str], None]) -> None:
    path = folder / entry["name"]
    kept = ""
    if path.is_file():
        os.replace(path, path.with_name(f"{path.name}.damaged"))
        kept = f" (the damaged one is kept as {path.name}.damaged)"
    say(f"{what} is damaged or missing: making it again{kept}")


def _intact(folder: Path, manifest: dict[str, Any], say: Callable[[str], None]) -> bool:
    """Whether all files of a finished dataset are what the manifest says."""
    for file in manifest["files"]:
        try:
            if _hashed(folder, file)["sha256"] == file["sha256"]:
                continue
        except (OSError, KeyError):
            pass
        say(f"{folder / file['name']} is damaged or missing")
        return False
    return True


def _hashed(folder: Path, file: dict[str, Any]) -> dict[str, Any]:
    return _sha256([folder / name for name in names_of(file)])


def _sha256(paths: Iterable[Path]) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    for path in paths:
        with open(path, "rb") as opened:
            while chunk := opened.read(1 << 20):
                digest.update(chunk)
                size += len(chunk)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _put_json(path: Path, value: Any, work: Path) -> None:
    replace_file(path, work, [json.dumps(value).encode()])


# Workers ---------------------------------------------------------------------------------------------------------


def _run(plan: Plan, parts: list[Part], workers: int, executor: str) -> Iterator[tuple[Part, dict[str, Any]]]:
    if executor == "ray":
        yield from _run_ray(plan, parts)
        return
    workers = min(workers or len(os.sched_getaffinity(0)), len(parts))
    if workers <= 1:
        for part in parts:
            yield part, write_part(plan, part)
        return
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(workers, mp_context=context, initializer=_prepare_worker)
    try:
        waiting = {pool.submit(write_part, plan, part): part for part in parts}
        for future in concurrent.futures.as_completed(waiting):
            yield waiting[future], future.result()
        pool.shutdown()
    except concurrent.futures.process.BrokenProcessPool:
        raise ValueError("a worker died (out of memory?); run the same command again with fewer workers=") from None
    finally:
        for process in list((pool._processes or {}).values()):  # nothing to wait for: what they write is not in place
            process.kill()
        pool.shutdown(wait=False, cancel_futures=True)


def _prepare_worker() -> None:
    """Let the parent alone answer Ctrl-C, and die with it at once, however it dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    without_pandas()
    parent = multiprocessing.parent_process()

    def die_with_parent() -> None:
        if parent is not None:
            multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=die_with_parent, daemon=True).start()


def _run_ray(plan: Plan, parts: list[Part]) -> Iterator[tuple[Part, dict[str, Any]]]:
    """The same parts on a Ray cluster; `plan.folder` must be the same place on every machine."""
    try:
        import ray
    except ImportError:
        raise ValueError("executor=ray: needs the extra, pip install -e .[ray]") from None
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    write = ray.remote(write_part)
    waiting = {write.remote(plan, part): part for part in parts}
    while waiting:
        ready, _ = ray.wait(list(waiting))
        for reference in ready:
            try:
                yield waiting.pop(reference), ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None


class Progress:
    """A bar on a terminal, a plain line every few seconds elsewhere: examples, rate, time left."""

    def __init__(self, total: int, say: Callable[[str], None]) -> None:
        self._total, self._done, self._say = total, 0, say
        self._begun = self._said = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        if self._terminal and self._total:
            print(f"[{'.' * 30}] 0 of {self._total:,} examples", end="", file=sys.stderr, flush=True)
        return self

    def advance(self, rows: int) -> None:
        self._done += rows
        now = time.monotonic()
        rate = self._done / max(now - self._begun, 1e-9)
        left = (self._total - self._done) / max(rate, 1e-9)
        text = f"{self._done:,} of {self._total:,} examples, {rate:,.0f}/s, {_minutes(left)} left"
        if self._terminal:
            filled = 30 * self._done // max(self._total, 1)
            print(f"\r[{'#' * filled}{'.' * (30 - filled)}] {text}\x1b[K", end="", file=sys.stderr, flush=True)
        elif now - self._said > 5 or self._done == self._total:
            self._said = now
            self._say(text)

    def __exit__(self, *_: object) -> None:
        if self._terminal and self._total:
            print(file=sys.stderr)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
