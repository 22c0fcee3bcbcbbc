"""Writing a dataset: the same bytes whatever the workers and however often it was killed, and nothing overwritten."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers import COUNTS, SETTINGS, SMALL, command, hashes, one_line, start, unfinish, wait_for, write
from travlr import Count, open_dataset, writing
from travlr.config import config_dict
from travlr.generate import tables_of
from travlr.manifest import MANIFEST, UNFINISHED
from travlr.writing import ROWS_PER_SHARD, shards_due, write_dataset

CONFIG = json.dumps(config_dict(SMALL))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Hashes of the files of the small dataset."""
    folder = tmp_path_factory.mktemp("whole") / "d"
    write(folder)
    return hashes(folder)


# The same bytes ------------------------------------------------------------------------------------------------------


def test_generate_gives_the_same_bytes_with_other_workers_and_hash_seed(tmp_path: Path) -> None:
    for workers, seed in ((1, "1"), (2, "2")):
        out = f"out={tmp_path / str(workers)}"
        code, _, error = command("generate", *SETTINGS, out, f"workers={workers}", env={"PYTHONHASHSEED": seed})
        assert (code, error) == (0, "")
    assert hashes(tmp_path / "1") == hashes(tmp_path / "2")


def test_write_dataset_gives_the_same_bytes_in_any_order_of_shards(
    whole: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "run", lambda work, items, workers: ((one, work(one)) for one in reversed(items)))
    write(tmp_path / "d")
    assert hashes(tmp_path / "d") == whole


def test_ray_writes_the_same_bytes(whole: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray: Any = pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    try:
        write(tmp_path / "d", workers="ray")
    finally:
        ray.shutdown()
    assert hashes(tmp_path / "d") == whole


def test_shards_cover_every_row_once() -> None:
    counts = {"train": 2 * ROWS_PER_SHARD + 1, "validation": ROWS_PER_SHARD, "test_ind": 1, "test_ood": 0}
    shards = shards_due(counts)
    rows = {split: [range(s.start, s.stop) for s in shards if s.split == split] for split in counts}
    assert {split: [n for part in parts for n in part] for split, parts in rows.items()} == {
        split: list(range(count)) for split, count in counts.items()
    }
    assert [shard.name for shard in shards][:2] == ["train-00000-of-00003.parquet", "train-00001-of-00003.parquet"]


def test_write_dataset_leaves_out_a_split_without_rows(tmp_path: Path) -> None:
    manifest, _ = write(tmp_path / "d", dataclasses.replace(SMALL, count=Count(20, 0, 10, 10)))
    assert list(manifest["splits"]) == ["train", "test_ind", "test_ood"]
    assert not list((tmp_path / "d").glob("validation*"))


def test_parquet_has_a_thousand_rows_in_a_group(tmp_path: Path) -> None:
    write(tmp_path / "d", dataclasses.replace(SMALL, count=Count(20, 0, 0, 10)))
    path = tmp_path / "big.parquet"
    writing.write_shard(path, tables_of(CONFIG, "train", 0, 2300))
    groups = pq.ParquetFile(path).metadata
    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [1000, 1000, 300]


# Killed, and started again -------------------------------------------------------------------------------------------


def killing_tables(moment: int, split: str, start: int, stop: int) -> Iterator[pa.Table]:
    """Rows of the small dataset; the process is killed in the shard number `moment`."""
    number = [(s.split, s.start) for s in shards_due(COUNTS)].index((split, start))
    yield from tables_of(CONFIG, split, start, stop)
    if number == moment:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("moment", range(5))
def test_write_dataset_resumes_after_a_kill(
    moment: int, whole: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "ROWS_PER_SHARD", 50)
    manifest, _ = write(tmp_path / "e")
    about = {name: manifest[name] for name in ("config", "held_out", "pixels")}
    if not (child := os.fork()):
        write_dataset(tmp_path / "d", COUNTS, about, functools.partial(killing_tables, moment), 1, log=lambda _: None)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with pytest.raises(ValueError, match="unfinished; run the command that began it again"):
        open_dataset(tmp_path / "d")
    made = list((tmp_path / "d").glob("[!.]*.parquet"))
    times = {path: path.stat().st_mtime_ns for path in made}
    write(tmp_path / "d")
    assert {path: path.stat().st_mtime_ns for path in made} == times  # a shard that exists is done
    assert hashes(tmp_path / "d") == whole


def test_workers_end_with_their_parent(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    many = ["task=cardinality", "count.train=400000", f"out={folder}", "workers=2"]
    process = start("generate", *many)
    wait_for(lambda: len(list(folder.glob("[!.]*.parquet"))) > 2)
    process.kill()
    process.wait()
    wait_for(lambda: not _alive(process.pid))


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_ctrl_c_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    process = start("generate", "task=cardinality", "count.train=400000", f"out={folder}", "workers=2")
    wait_for(lambda: len(list(folder.glob("[!.]*.parquet"))) > 1)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in error


def test_write_dataset_starts_again_with_other_versions(whole: dict[str, str], tmp_path: Path) -> None:
    unfinish(tmp_path / "d")
    job = json.loads((tmp_path / "d" / UNFINISHED).read_text())
    (tmp_path / "d" / UNFINISHED).write_text(json.dumps(job | {"versions": {"numpy": "0"}}))
    (tmp_path / "d" / "train-00000-of-00002.parquet").write_bytes(b"of another version")
    write(tmp_path / "d")
    assert hashes(tmp_path / "d") == whole


def test_a_worker_that_dies_is_one_line(tmp_path: Path) -> None:
    tables = functools.partial(killing_tables, 0)
    about = {"config": None, "held_out": None, "pixels": None}
    with pytest.raises(ValueError, match=r"^a worker died \(out of memory\?\)"):
        write_dataset(tmp_path / "d", COUNTS, about, tables, workers=2, log=lambda _: None)


# What is there before ------------------------------------------------------------------------------------------------


def test_a_complete_dataset_is_left_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "d")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "d").iterdir()}
    _, lines = write(tmp_path / "d")
    assert lines == [f"{tmp_path / 'd'} is complete: nothing to do"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "d").iterdir()} == before


def test_a_lost_shard_is_made_again(whole: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "d")
    (tmp_path / "d" / "train-00001-of-00002.parquet").unlink()
    write(tmp_path / "d")
    assert hashes(tmp_path / "d") == whole


@pytest.mark.parametrize("finished", [True, False])
def test_another_config_is_refused_or_replaced(finished: bool, whole: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "d"
    write(folder, dataclasses.replace(SMALL, seed=5))
    (folder / "notes.txt").write_text("mine")
    if not finished:
        manifest = json.loads((folder / MANIFEST).read_text())
        (folder / MANIFEST).rename(folder / UNFINISHED)
        assert manifest["config"]["seed"] == 5
    before = hashes(folder)
    with pytest.raises(ValueError, match="holds a dataset with seed=5; name another folder, or set overwrite=true"):
        write(folder)
    assert hashes(folder) == before
    write(folder, overwrite=True)
    (folder / "notes.txt").unlink()
    assert hashes(folder) == whole


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_other_files_is_refused(overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = hashes(tmp_path)
    with pytest.raises(ValueError, match=r"is not empty and not a dataset \(thesis.txt\)"):
        write(tmp_path / "d", overwrite=overwrite)
    with pytest.raises(ValueError, match="is a file; name a folder"):
        write(tmp_path / "file", overwrite=overwrite)
    assert hashes(tmp_path) == before


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """A limit of the size of files stands in for a full disk."""
    code = (
        "import resource, signal, sys; from travlr import cli, generate\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))\n"
        "cli.run('generate', generate.main)"
    )
    status, _, error = command("", *SETTINGS, f"out={tmp_path / 'd'}", "workers=1", code=code)
    assert status == 1 and "File too large" in one_line(error)
    shutil.rmtree(tmp_path / "d")
