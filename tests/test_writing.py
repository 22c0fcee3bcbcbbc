"""Writing a dataset: the same bytes whatever the workers and however often it was killed, and nothing overwritten."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.helpers import SETTINGS, SMALL, command, hashes, write
from travlr import Count, open_dataset, writing
from travlr.formats.manifest import MANIFEST, UNFINISHED
from travlr.generate import tables_of
from travlr.writing import ROWS_PER_SHARD, shards_due

CONFIG = SMALL.model_dump_json()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Hashes of the files of the small dataset."""
    folder = tmp_path_factory.mktemp("whole") / "d"
    write(folder)
    return hashes(folder)


# The same bytes ------------------------------------------------------------------------------------------------------


def test_generate_gives_equal_bytes_with_other_workers(tmp_path: Path) -> None:
    for workers, seed in ((1, "1"), (2, "2")):
        out = f"out={tmp_path / str(workers)}"
        code, _, error = command("generate", *SETTINGS, out, f"workers={workers}", env={"PYTHONHASHSEED": seed})
        assert (code, error) == (0, "")
    assert hashes(tmp_path / "1") == hashes(tmp_path / "2")


def test_write_dataset_gives_the_same_bytes_on_ray(
    whole: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray: Any = pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    try:
        write(tmp_path / "d", workers="ray")
    finally:
        ray.shutdown()
    assert hashes(tmp_path / "d") == whole


def test_shards_due_covers_every_row_once() -> None:
    counts = {"train": 2 * ROWS_PER_SHARD + 1, "validation": ROWS_PER_SHARD, "test_ind": 1, "test_ood": 0}
    shards = shards_due(counts)
    rows = {split: [range(s.start, s.stop) for s in shards if s.split == split] for split in counts}
    assert {split: [n for part in parts for n in part] for split, parts in rows.items()} == {
        split: list(range(count)) for split, count in counts.items()
    }
    assert [shard.name for shard in shards][:2] == ["train-00000-of-00003.parquet", "train-00001-of-00003.parquet"]


def test_write_dataset_leaves_out_a_split_without_rows(tmp_path: Path) -> None:
    manifest, _ = write(tmp_path / "d", SMALL.changed(count=Count(train=20, validation=0, test_ind=10, test_ood=10)))
    assert list(manifest["splits"]) == ["train", "test_ind", "test_ood"]
    assert not list((tmp_path / "d").glob("validation*"))


def test_write_shard_puts_a_thousand_rows_in_a_group(tmp_path: Path) -> None:
    write(tmp_path / "d", SMALL.changed(count=Count(train=20, validation=0, test_ind=0, test_ood=10)))
    path = tmp_path / "big.parquet"
    writing.write_shard(path, tables_of(CONFIG, "train", 0, 2300))
    groups = pq.ParquetFile(path).metadata
    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [1000, 1000, 300]


# Killed, and started again -------------------------------------------------------------------------------------------


def test_write_dataset_resumes_after_a_kill(whole: dict[str, str], tmp_path: Path) -> None:
    folder, moment = tmp_path / "d", 3  # shards
    code = (
        "import os, signal, sys; from travlr import Cardinality, GenerateArguments, generate_dataset, writing\n"
        "make = writing.write_shard\n"
        "def write_shard(path, tables, repeats):\n"
        f"    if len(list(path.parent.glob('*.parquet'))) == {moment}:\n"
        "        (path.parent / f'.{path.name}.abc.tmp').write_bytes(b'half')\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    make(path, tables)\n"
        "writing.write_shard, writing.ROWS_PER_SHARD = write_shard, 50\n"
        "generate_dataset(Cardinality.model_validate_json(sys.argv[1]), GenerateArguments(out=sys.argv[2], workers=1))"
    )
    assert command("", CONFIG, str(folder), code=code)[0] == -signal.SIGKILL
    with pytest.raises(ValueError, match="unfinished"):
        open_dataset(folder)
    made = {path: path.stat().st_mtime_ns for path in folder.glob("[!.]*.parquet")}
    assert len(made) == moment
    write(folder)
    assert {path: path.stat().st_mtime_ns for path in made} == made  # a shard that exists is done
    assert hashes(folder) == whole


def test_run_in_processes_leaves_no_worker_after_a_kill() -> None:
    code = (
        "import os, signal, sys, time; from travlr.workers import run_in_processes\n"
        "def work(n):\n"
        "    if n == 2:\n"
        "        os.kill(os.getppid(), signal.SIGKILL)\n"
        "    return n\n"
        "list(run_in_processes(work, [1, 2, 3], 2))"
    )
    # Workers hold the pipes of the process, whose ends `command` waits for.
    assert command("", code=code)[0] == -signal.SIGKILL


# What is there before ------------------------------------------------------------------------------------------------


def test_write_dataset_leaves_a_complete_dataset(tmp_path: Path) -> None:
    write(tmp_path / "d")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "d").iterdir()}
    _, lines = write(tmp_path / "d")
    (line,) = lines
    assert line.startswith(str(tmp_path / "d")) and "complete" in line
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "d").iterdir()} == before


def test_write_dataset_makes_a_lost_shard_again(whole: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "d")
    (tmp_path / "d" / "train-00001-of-00002.parquet").unlink()
    write(tmp_path / "d")
    assert hashes(tmp_path / "d") == whole


@pytest.mark.parametrize("finished", [True, False])
def test_write_dataset_refuses_or_replaces_another_config(
    finished: bool, whole: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "d"
    write(folder, SMALL.changed(seed=5))
    (folder / "notes.txt").write_text("mine")
    if not finished:
        manifest = json.loads((folder / MANIFEST).read_text())
        (folder / MANIFEST).rename(folder / UNFINISHED)
        assert manifest["config"]["seed"] == 5
    before = hashes(folder)
    with pytest.raises(ValueError, match="other settings"):
        write(folder)
    assert hashes(folder) == before
    write(folder, overwrite=True)
    (folder / "notes.txt").unlink()
    assert hashes(folder) == whole


@pytest.mark.parametrize("overwrite", [False, True])
def test_write_dataset_refuses_a_folder_with_other_files(overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "thesis.txt").write_text("mine")
    before = hashes(tmp_path)
    with pytest.raises(ValueError, match=r"thesis\.txt"):
        write(tmp_path / "d", overwrite=overwrite)
    assert hashes(tmp_path) == before
