"""Writing: the same bytes whatever happens on the way, and nothing destroyed. Other processes are really killed."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import (
    FORMATS,
    ROOT,
    SETTINGS,
    SMALL,
    command,
    edit,
    failing_tables,
    flip,
    hashes,
    last_of,
    one_line,
    start,
    unfinish,
    wait_for,
    write,
)
from travlr import Count, workers
from travlr.files import KEPT, WORK
from travlr.formats import base, writing
from travlr.formats.base import Part
from travlr.formats.columns import open_parquet
from travlr.formats.manifest import FORMAT_VERSION, MANIFEST, versions
from travlr.formats.writing import Plan, write_dataset
from travlr.generate import main as generate

pytestmark = pytest.mark.usefixtures("tables_made_once")
OTHER = dataclasses.replace(SMALL, seed=1)
LONG = last_of([*SETTINGS, "count.train=3000"])  # a second of work for two workers


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is room, as thousands of small files take long on a disk."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 1 << 28
    with tempfile.TemporaryDirectory(dir=memory if roomy else tmp_path) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Hashes of the small dataset in each format, written without interruption."""
    found = {}
    for layout in FORMATS:
        folder = tmp_path_factory.mktemp("whole") / layout
        write(folder, format=layout)
        found[layout] = hashes(folder)
    return found


# The same bytes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", FORMATS)
def test_same_bytes_in_another_process_with_other_workers_and_hash_seed(
    layout: str, whole: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    arguments = [*SETTINGS, f"format={layout}", f"out={tmp_path / 'd'}", "workers=2"]
    assert command("generate", *arguments, env={"PYTHONHASHSEED": "7"})[0] == 0
    assert hashes(tmp_path / "d") == whole[layout]
    assert not {name.split("/")[0] for name in whole[layout]} & {WORK, KEPT}


@pytest.mark.parametrize("layout", FORMATS)
def test_same_bytes_in_any_order_of_parts(
    layout: str, whole: dict[str, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def backwards(work: Callable[[Part], Any], parts: list[Part], *_: object) -> Iterator[tuple[Part, Any]]:
        yield from workers.run(work, parts[::-1], 1)

    monkeypatch.setattr(writing, "run", backwards)
    write(tmp_path / "d", format=layout)
    assert hashes(tmp_path / "d") == whole[layout]


def test_the_manifest_tells_neither_workers_nor_paths_nor_times(tmp_path: Path) -> None:
    text = json.dumps(write(tmp_path / "d")[0])
    assert str(tmp_path) not in text and "workers" not in text and time.strftime("%Y") not in text


def test_a_split_without_examples_has_no_files(tmp_path: Path) -> None:
    manifest, _ = write(tmp_path / "d", dataclasses.replace(SMALL, count=Count(60, 0, 0, 50)))
    assert list(manifest["splits"]) == ["train", "test_ood"]
    assert {name.split("-")[0] for name in hashes(tmp_path / "d") if name.endswith(".parquet")} == {"train", "test_ood"}


def test_too_many_files_are_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "LARGEST", 1)
    with pytest.raises(ValueError, match="rows_per_file=50: train has 100 rows, so use 100 or more"):
        write(tmp_path / "d")
    assert not (tmp_path / "d").exists()


# Killed, stopped, and two at a time ---------------------------------------------------------------------------------

KILLED = """
# Runs a command in FOLDER/N for each N of MOMENTS, killed just before the N-th change that it makes there.
import dataclasses, functools, json, os, shutil, signal, sys
from travlr import generate
folder, before, moments, *arguments = sys.argv[1:]
os.fsync = lambda _: None
config, job = generate.settings(arguments)
table = generate.Generator.table = functools.cache(generate.Generator.table)
for split, count in dataclasses.asdict(config.count).items():  # for all moments
    for start in range(0, count, job.rows_per_file):
        table(generate.generator(config), split, start, min(start + job.rows_per_file, count))

def run(moment):
    out, seen = f"{folder}/{moment}", 0
    def watch(event, values):
        nonlocal seen
        changes = event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir") or (event == "open" and values[2] & 3)
        if changes and str(values[0]).startswith(out):
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(watch)
    generate.generate_dataset(config, dataclasses.replace(job, out=out))
    print("moments", seen, flush=True)
    os._exit(0)

for moment in json.loads(moments):
    if before:
        shutil.copytree(before, f"{folder}/{moment}")
    child = os.fork() or run(moment)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == (-signal.SIGKILL if moment else 0), status
"""


def kill(folder: Path, moments: list[int], *arguments: str, before: str = "") -> str:
    """Run `generate` in FOLDER/N, on a copy of `before`, killed at moment N; never where N is 0."""
    code, out, err = command("", str(folder), before, json.dumps(moments), *arguments, code=KILLED)
    assert code == 0, err
    return out


def moments(folder: Path, *arguments: str, before: str = "") -> int:
    """How many moments there are for a kill."""
    return int(kill(folder, [0], *arguments, before=before).split()[-1])


@pytest.mark.parametrize("layout", FORMATS)
def test_killed_at_any_moment_it_goes_on_to_the_same_bytes(
    layout: str, whole: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    arguments = [*SETTINGS, f"format={layout}", "workers=1"]
    total = moments(tmp_path, *arguments)
    assert total > 50
    first = range(1, 8) if layout == "parquet" else ()  # which all formats share
    last = () if layout == "webdataset" else range(total - 10, total + 1)  # as those of parquet
    some = sorted({*first, *range(8, total, total // 6), *last})
    kill(tmp_path, some, *arguments)
    for moment in some:
        write(tmp_path / str(moment), format=layout)
        assert hashes(tmp_path / str(moment)) == whole[layout], moment


@pytest.mark.parametrize("before", ["parquet", "imagefolder"])
def test_killed_while_it_replaces_a_dataset_it_still_ends_with_the_same_bytes(
    before: str, whole: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    old = tmp_path / "old"
    write(old, OTHER, format=before)
    (old / "notes.txt").write_text("mine")
    arguments = [*SETTINGS, "workers=1", "overwrite=true"]
    total = moments(tmp_path, *arguments, before=str(old))
    some = sorted({*range(1, 12), *range(12, total, total // 6), *range(total - 52, total - 40)})
    kill(tmp_path, some, *arguments, before=str(old))
    for moment in some:
        folder = tmp_path / str(moment)
        write(folder, overwrite=True)
        assert (folder / "notes.txt").read_text() == "mine"
        (folder / "notes.txt").unlink()
        assert hashes(folder) == whole["parquet"], moment


def children(parent: int) -> list[int]:
    """Processes begun by a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rsplit(")", 1)[1].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def begun(folder: Path, parts: int) -> Callable[[], bool]:
    return lambda: len(list((folder / WORK).glob("parts/*.json"))) >= parts


@pytest.fixture(scope="module")
def long_hashes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("long") / "d"
    assert generate([*LONG, f"out={folder}", "workers=1"]) == 0
    return hashes(folder)


def test_killing_the_parent_ends_its_workers_and_frees_the_folder(long_hashes: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "d"
    process = start("generate", *LONG, f"out={folder}", "workers=2")
    wait_for(begun(folder, 2))
    running = children(process.pid)
    assert len(running) >= 2
    process.kill()
    wait_for(lambda: not any(alive(child) for child in running))
    process.communicate()
    code, out, err = command("generate", *LONG, f"out={folder}", "workers=2")
    assert (code, err) == (0, "") and f"resuming {folder}: " in out
    assert hashes(folder) == long_hashes


@pytest.mark.parametrize(("moment", "count"), [("start", 2), ("parts", 2), ("parts", 1)])
def test_ctrl_c_stops_at_once_and_says_how_to_go_on(
    moment: str, count: int, long_hashes: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "d"
    process = start("generate", *LONG, f"out={folder}", f"workers={count}")
    if moment == "start":
        wait_for(lambda: (folder / WORK / "job.json").exists() and children(process.pid))
    else:
        wait_for(begun(folder, 2))
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "run the same command again to go on" in one_line(err)
    assert not list((folder / WORK).glob("*.tmp")) or count == 2  # of workers, which were killed
    for path in folder.glob("*.parquet"):
        open_parquet(path)
    assert generate([*LONG, f"out={folder}", "workers=1"]) == 0
    assert hashes(folder) == long_hashes


def test_a_second_process_is_refused_and_the_first_goes_on(long_hashes: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "d"
    first = start("generate", *LONG, f"out={folder}", "workers=1")
    wait_for(begun(folder, 1))
    first.send_signal(signal.SIGSTOP)  # alive, and not about to finish
    code, _, err = command("generate", *LONG, f"out={folder}", "overwrite=true")
    first.send_signal(signal.SIGCONT)
    assert code == 1
    assert one_line(err) == f"generate: {folder}: another process is writing there; wait for it, or name another folder"
    assert first.wait(300) == 0
    assert hashes(folder) == long_hashes


# A disk that fails --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layout", "count"), [("parquet", 1), ("parquet", 2), ("original", 2), ("webdataset", 1)])
def test_a_full_disk_is_one_line_and_leaves_no_broken_file(
    layout: str, count: int, whole: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))

    folder = tmp_path / "d"
    arguments = [*SETTINGS, f"out={folder}", f"format={layout}", f"workers={count}"]
    code, _, err = command("generate", *arguments, preexec_fn=limit)
    assert code == 1
    assert one_line(err).startswith(f"generate: {folder}") and "File too large; mend it" in err
    assert not {name for name in hashes(folder) if not name.startswith(WORK)} - set(whole[layout])
    write(folder, format=layout)
    assert hashes(folder) == whole[layout]


def test_no_space_left_takes_back_what_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write(tmp_path / "d")
    assert str(caught.value.filename).startswith(str(tmp_path / "d"))
    assert set(hashes(tmp_path / "d")) == {f"{WORK}/lock", f"{WORK}/parts"}


def test_a_folder_that_cannot_be_made_or_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = command("generate", *SETTINGS, "out=/proc/travlr/d")
    assert code == 1 and one_line(err) == (
        "generate: /proc/travlr/d: cannot be written (No such file or directory); name another folder"
    )

    def read_only(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    write(tmp_path / "d")
    before = hashes(tmp_path / "d")
    monkeypatch.setattr(Path, "mkdir", read_only)
    for config in (SMALL, OTHER):
        with pytest.raises(ValueError, match=r"d: cannot be written .Read-only file system.") as caught:
            write(tmp_path / "d", config, overwrite=True)
        one_line(str(caught.value))
    assert hashes(tmp_path / "d") == before


# Folders that are not ours ------------------------------------------------------------------------------------------


def foreign(folder: Path) -> None:
    folder.mkdir()
    (folder / "photo.jpg").write_text("mine")


def not_a_folder(folder: Path) -> None:
    folder.mkdir()
    (folder / WORK).write_text("mine")


def newer(folder: Path) -> None:
    write(folder)
    edit(folder / MANIFEST, format_version=FORMAT_VERSION + 1)


def newer_unfinished(folder: Path) -> None:
    unfinish(folder)
    edit(folder / WORK / "job.json", format_version=FORMAT_VERSION + 1)


def damaged(name: str, text: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (unfinish if name.startswith(WORK) else write)(folder)
        (folder / name).write_text(text)

    return make


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file": (lambda folder: folder.write_text("mine"), "is a file; name a folder"),
    "foreign": (foreign, r"is not empty and not a dataset \(photo.jpg\); name another folder"),
    "newer": (newer, f"format version {FORMAT_VERSION + 1}, newer than this program's {FORMAT_VERSION}; update TraVLR"),
    "newer, unfinished": (newer_unfinished, f"format version {FORMAT_VERSION + 1}, newer than"),
    "no JSON": (damaged(MANIFEST, "{"), "dataset.json: damaged or missing"),
    "empty manifest": (damaged(MANIFEST, ""), "dataset.json: damaged or missing"),
    "another JSON": (damaged(MANIFEST, "[1]"), "dataset.json: damaged or missing"),
    "no JSON, unfinished": (damaged(f"{WORK}/job.json", "nonsense"), "job.json: damaged or missing"),
    "outside, unfinished": (
        damaged(
            f"{WORK}/job.json",
            '{"format_version": 1, "layout": "parquet", "config": {}, "rows_per_file": 8, "splits": {},'
            ' "files": [{"name": "../photo.jpg", "split": "train"}]}',
        ),
        "names a file that no dataset has",
    ),
    ".travlr is a file": (not_a_folder, "not empty and not a dataset"),
}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_ours_to_write_in_is_refused_untouched(case: str, overwrite: bool, tmp_path: Path) -> None:
    make, message = REFUSED[case]
    folder = tmp_path / "d"
    make(folder)
    before = hashes(tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        write(folder, dataclasses.replace(SMALL, seed=int(overwrite)), overwrite=overwrite)
    assert one_line(str(caught.value)).startswith(str(folder))
    assert hashes(tmp_path) == before


OTHERS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "seed": (OTHER, {}, "seed=1"),
    "count": (dataclasses.replace(SMALL, count=Count(90, 50, 50, 60)), {}, "count.train=90"),
    "held_out": (dataclasses.replace(SMALL, held_out={"circle": [2, 3]}), {}, r"held_out.circle=\[2, 3\]"),
    "format": (SMALL, {"format": "webdataset"}, 'format="webdataset"'),
    "rows_per_file": (SMALL, {"rows_per_file": 40}, "rows_per_file=40"),
}


@pytest.mark.parametrize("state", ["finished", "unfinished"])
@pytest.mark.parametrize("case", OTHERS)
def test_another_dataset_is_refused_by_its_first_differing_setting_or_replaced(
    case: str, state: str, whole: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    config, job, setting = OTHERS[case]
    folder = tmp_path / "d"
    write(folder, config, **job)
    (folder / "photo.jpg").write_text("mine")
    (folder / "index.csv").write_text("mine too, though some datasets have a file of this name")
    if state == "unfinished":
        held = json.loads((folder / MANIFEST).read_text())
        (folder / WORK).mkdir()
        (folder / MANIFEST).replace(folder / WORK / "job.json")
        edit(folder / WORK / "job.json", **{"content_digest": held["content_digest"]})
        text = json.loads((folder / WORK / "job.json").read_text())
        del text["content_digest"]
        (folder / WORK / "job.json").write_text(json.dumps(text))
    before = hashes(folder)
    kind = "a dataset" if state == "finished" else "an unfinished dataset"
    with pytest.raises(ValueError, match=f"holds {kind} with {setting}; name another folder, or .* overwrite=true"):
        write(folder)
    assert hashes(folder) == before
    write(folder, overwrite=True)
    after = hashes(folder)
    assert [after.pop(name) for name in ("photo.jpg", "index.csv")] == [before[n] for n in ("photo.jpg", "index.csv")]
    assert after == whole["parquet"]


# Damage -------------------------------------------------------------------------------------------------------------


DAMAGE: dict[str, Callable[[Path], object]] = {
    "one bit": flip,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
}
FILES = {
    "parquet": "train-00001-of-00002.parquet",
    "webdataset": "test_ind-00000-of-00001.tar",
    "imagefolder": "train/cardinality-train-00000007.png",
    "original": "index.csv",
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("layout", FILES)
def test_a_damaged_file_of_a_finished_dataset_is_made_again_and_kept_aside(
    layout: str, kind: str, whole: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    folder, name = tmp_path / "d", FILES[layout]
    write(folder, format=layout)
    DAMAGE[kind](folder / name)
    left = (folder / name).read_bytes() if (folder / name).exists() else None
    _, lines = write(folder, format=layout)
    assert sum("damaged or missing, written again" in line for line in lines) == 1
    assert ((folder / KEPT / name).read_bytes() if left is not None else None) == left
    shutil.rmtree(folder / KEPT, ignore_errors=True)
    assert hashes(folder) == whole[layout]


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_part_of_an_unfinished_dataset_is_made_again_and_kept_aside(
    kind: str, whole: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    folder, name = tmp_path / "d", "train-00000-of-00002.parquet"
    unfinish(folder)
    DAMAGE[kind](folder / name)
    _, lines = write(folder)
    assert sum(line.startswith("train-00000-of-00002: damaged or missing, written again") for line in lines) == 1
    assert f"resuming {folder}: 100 of 260 examples are written" in lines
    assert (folder / KEPT / name).exists() == (kind != "missing")
    shutil.rmtree(folder / KEPT, ignore_errors=True)
    assert hashes(folder) == whole["parquet"]


def test_damaged_records_and_leavings_do_no_harm(whole: dict[str, dict[str, str]], tmp_path: Path) -> None:
    folder = tmp_path / "d"
    unfinish(folder)
    records = sorted((folder / WORK / "parts").glob("*.json"))
    assert len(records) == 3
    for record, text in zip(records, ("", "[]", '{"true": "many", "rows_digest": "?"}'), strict=True):
        record.write_text(text)
    (folder / WORK / "train-00000-of-00002.parquet.0.tmp").write_text("half a file")
    write(folder)
    assert hashes(folder) == whole["parquet"]


def test_a_complete_dataset_is_left_as_it_is_and_a_lost_card_comes_back(
    whole: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    folder = tmp_path / "d"
    write(folder)
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    _, lines = write(folder)
    assert lines == [f"{folder} is complete: nothing to do"]
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == times
    (folder / "README.md").unlink()
    write(folder)
    assert hashes(folder) == whole["parquet"]


def test_a_complete_dataset_is_written_again_where_that_is_asked(
    whole: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """As of a task whose code has changed since, which the config does not show."""
    folder = tmp_path / "d"
    write(folder)
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    write(folder, overwrite=True)
    assert all(path.stat().st_mtime_ns > times[path] for path in folder.iterdir())
    assert hashes(folder) == whole["parquet"]


def test_an_edited_card_is_not_lost_when_a_file_is_repaired(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    write(folder)
    (folder / "README.md").write_text("my notes")
    (folder / FILES["parquet"]).unlink()
    write(folder)
    assert (folder / KEPT / "README.md").read_text() == "my notes"


@pytest.mark.parametrize("state", ["finished", "unfinished"])
def test_parts_of_other_versions_are_not_mixed_with_new_ones(
    state: str, whole: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    folder, other = tmp_path / "d", {**versions(), "numpy": "0.1"}
    if state == "unfinished":
        unfinish(folder)
        edit(folder / WORK / "job.json", versions=other)
    else:
        write(folder)
        edit(folder / MANIFEST, versions=other)
        (folder / FILES["parquet"]).unlink()
    _, lines = write(folder)
    assert any("begun with other versions" in line for line in lines)
    assert not any("resuming" in line for line in lines)
    shutil.rmtree(folder / KEPT, ignore_errors=True)  # the manifest of the other versions
    assert hashes(folder) == whole["parquet"]


# Work that fails ----------------------------------------------------------------------------------------------------


def failing(folder: Path, how: str) -> Plan:
    manifest, _ = write(folder)
    counts = {split: n["rows"] for split, n in manifest["splits"].items()}
    shutil.rmtree(folder)
    about = {"config": manifest["config"], "held_out": manifest["held_out"]}
    tables = functools.partial(failing_tables, json.dumps(manifest["config"]), how)
    return Plan(folder, "parquet", "cardinality", counts, 50, about, tables)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("how", "error"), [("missing", "train-00001-of-00002: has 49 rows, not 50"), ("full", "No space left")]
)
def test_what_fails_in_a_worker_is_said_here(how: str, error: str, count: int, tmp_path: Path) -> None:
    with pytest.raises((ValueError, OSError), match=error):
        write_dataset(failing(tmp_path / "d", how), workers=count, log=lambda _: None)
    assert not (tmp_path / "d" / MANIFEST).exists()


def test_a_worker_that_dies_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a worker died"):
        write_dataset(failing(tmp_path / "d", "dies"), workers=2, log=lambda _: None)


# Ray ----------------------------------------------------------------------------------------------------------------


def test_ray_writes_the_same_bytes_and_its_errors_are_one_line(
    whole: dict[str, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one cluster, which the first dataset starts."""
    monkeypatch.setenv("RAY_TASK_MAX_RETRIES", "0")  # each would start another worker, which dies as well
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    try:
        import ray
    except ImportError:
        pytest.fail("Ray is missing; install the extra: pip install -e '.[ray]'")
    ended: list[bool] = []
    try:
        with monkeypatch.context() as patch:
            patch.setattr(ray, "shutdown", lambda: ended.append(True))
            write(tmp_path / "d", format="imagefolder", executor="ray")
        assert hashes(tmp_path / "d") == whole["imagefolder"] and ended and ray.is_initialized()
        with pytest.raises(ValueError, match="has 49 rows, not 50"):
            plan = failing(tmp_path / "e", "missing")
            write_dataset(plan, executor="ray", log=lambda _: None)
        with pytest.raises(ValueError, match="executor=ray: ") as caught:
            write_dataset(failing(tmp_path / "f", "dies"), executor="ray", log=lambda _: None)
        one_line(str(caught.value))
    finally:
        ray.shutdown()


def test_without_ray_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"executor=ray: needs the extra ray: pip install -e '.\[ray\]'"):
        write(tmp_path / "d", executor="ray")


@pytest.mark.parametrize(
    ("other_thread", "method"),
    [
        ("", "fork" if sys.platform == "linux" else "spawn"),
        ("threading.Thread(target=time.sleep, args=[60], daemon=True).start()", "spawn"),
    ],
    ids=["one thread", "two threads"],
)
def test_a_script_needs_no_guard_and_runs_once(other_thread: str, method: str, tmp_path: Path) -> None:
    """Without `if __name__ == "__main__":`, though it starts processes, in either of the two ways."""
    script = tmp_path / "script.py"
    script.write_text(
        "from tests.helpers import write\nfrom pathlib import Path\nfrom travlr import workers\n"
        f"import sys, threading, time\n{other_thread}\n"
        "print(workers._start_method())\nwrite(Path(sys.argv[1]), workers=2)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "d")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"{method}\n")
    write(tmp_path / "whole")
    assert hashes(tmp_path / "d") == hashes(tmp_path / "whole")


# What others put there ---------------------------------------------------------------------------------------------


def test_a_work_folder_with_other_things_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "d" / WORK).mkdir(parents=True)
    (tmp_path / "d" / WORK / "notes").write_text("mine")
    before = hashes(tmp_path)
    with pytest.raises(ValueError, match="not empty and not a dataset"):
        write(tmp_path / "d", overwrite=True)
    assert hashes(tmp_path) == before


def test_replacing_a_dataset_follows_no_link(tmp_path: Path) -> None:
    folder, outside = tmp_path / "d", tmp_path / "outside"
    write(folder, format="imagefolder")
    shutil.move(folder / "train", outside)
    (folder / "train").symlink_to(outside)
    before = hashes(outside)
    with pytest.raises(ValueError, match="train: is a link to elsewhere"):
        write(folder, dataclasses.replace(SMALL, seed=1), format="imagefolder", overwrite=True)
    assert hashes(outside) == before


@pytest.mark.parametrize(
    "name", ["notes.txt", "link/p.txt", "train/../../p", "/etc/passwd", "train/*.png", "train-0.tar"]
)
def test_a_manifest_names_no_other_files(name: str, tmp_path: Path) -> None:
    write(tmp_path / "d")
    manifest = json.loads((tmp_path / "d" / MANIFEST).read_text())
    manifest["files"].append({"name": name, "split": None})
    (tmp_path / "d" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="names a file that no dataset has"):
        write(tmp_path / "d", dataclasses.replace(SMALL, seed=1), overwrite=True)


def test_every_damaged_copy_is_kept(tmp_path: Path) -> None:
    write(tmp_path / "d")
    shard = next((tmp_path / "d").glob("train-*.parquet"))
    for text in ("one", "two", "three"):
        shard.write_text(text)
        write(tmp_path / "d")
    kept = sorted((tmp_path / "d" / ".kept").iterdir())
    assert [path.read_text() for path in kept] == ["one", "two", "three"]


def test_new_sprites_are_not_mixed_with_old_ones(tmp_path: Path) -> None:
    write(tmp_path / "d")
    manifest = json.loads((tmp_path / "d" / MANIFEST).read_text())
    (tmp_path / "d" / MANIFEST).write_text(json.dumps({**manifest, "pixels": "0" * 64}))
    with pytest.raises(ValueError, match='holds a dataset with pixels="000'):
        write(tmp_path / "d")
