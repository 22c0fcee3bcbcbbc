"""What is no regular file in the place of a dataset's file: refused at once, in one line, wherever it is read."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import SETTINGS, command, hashes, one_line, unfinish, write
from travlr import open_dataset
from travlr.audit.checks import audit
from travlr.browse import page
from travlr.convert import convert_dataset
from travlr.files import KEPT, WORK, regular
from travlr.formats import LAYOUTS

FILES = {
    "parquet": "train-00000-of-00002.parquet",
    "webdataset": "train-00000-of-00002.tar",
    "lines of imagefolder": "train/metadata.jsonl",
    "picture of imagefolder": "train/cardinality-train-00000000.png",
    "index of original": "index.csv",
    "metadata of original": "metadata.jsonl",
    "picture of original": "images/0.jpg",
}


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path may have some hundred characters only
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)
    os.chdir(here)


KINDS: dict[str, Callable[[Path], None]] = {
    "fifo": fifo,
    "device": device,
    "socket": a_socket,
    "directory": Path.mkdir,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("whole")
    for layout in LAYOUTS:
        write(base / layout, format=layout)
    return base


def replaced(whole: Path, folder: Path, case: str, kind: str) -> Path:
    """A copy of a dataset in which something else is in the place of one file."""
    shutil.copytree(whole / case.rpartition(" ")[2], folder)
    path = folder / FILES[case]
    path.unlink()
    KINDS[kind](path)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files_and_links_to_them_are_opened(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert regular(tmp_path / "file") and regular(tmp_path / "link")
    KINDS[kind](tmp_path / kind)
    for path in (tmp_path / kind, tmp_path / "missing"):
        with pytest.raises(OSError) as caught:
            regular(path)
        assert caught.value.filename == str(path)


@pytest.mark.parametrize("case", FILES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_reader_refuses_what_is_no_regular_file(kind: str, case: str, whole: Path, tmp_path: Path) -> None:
    folder = replaced(whole, tmp_path / "d", case, kind)
    readers: list[Callable[[], object]] = [
        lambda: page(folder, 5),
        lambda: convert_dataset(folder, tmp_path / "x", "parquet", workers=1, log=lambda line: None),
    ]
    if case == "parquet":
        readers += [lambda: open_dataset(folder)["train"][0], lambda: open_dataset(folder)["train"].columns()]
    for read in readers:
        with pytest.raises(ValueError, match=str(Path(folder, FILES[case]).parent)) as caught:
            read()
        assert one_line(str(caught.value))
    failed = {check.name: check.detail for check in audit(folder, workers=1) if check.status == "FAIL"}
    assert "not a regular file" in failed["files"] and "not a regular file" in failed["rows"]


@pytest.mark.parametrize("program", ["audit", "browse"])
def test_commands_do_not_wait_for_a_named_pipe(program: str, whole: Path, tmp_path: Path) -> None:
    folder = replaced(whole, tmp_path / "d", "parquet", "fifo")
    code, out, err = command(program, str(folder))
    assert code == 1 and "not a regular file" in out + err and "Traceback" not in err


@pytest.mark.parametrize("kind", KINDS)
def test_a_manifest_that_is_no_regular_file_is_no_dataset(kind: str, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole / "parquet", tmp_path / "d")
    (tmp_path / "d" / "dataset.json").unlink()
    KINDS[kind](tmp_path / "d" / "dataset.json")
    with pytest.raises(ValueError, match=r"dataset\.json"):
        open_dataset(tmp_path / "d")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_in_the_place_of_a_shard_is_moved_away_and_the_shard_made_again(
    kind: str, whole: Path, tmp_path: Path
) -> None:
    folder = replaced(whole, tmp_path / "d", "parquet", kind)
    write(folder)
    shutil.rmtree(folder / KEPT)
    assert hashes(folder) == hashes(whole / "parquet")


@pytest.mark.parametrize("name", ["lock", "job.json", "parts/train-00000-of-00002.json"])
def test_a_named_pipe_in_the_work_folder_is_not_waited_for(name: str, whole: Path, tmp_path: Path) -> None:
    unfinish(tmp_path / "d")
    path = tmp_path / "d" / WORK / name
    path.unlink(missing_ok=True)
    fifo(path)
    code, _, err = command("generate", *SETTINGS, f"out={tmp_path / 'd'}", "workers=1")
    if name.startswith("parts"):  # a record that cannot be read is none: the part is made again
        assert code == 0 and hashes(tmp_path / "d") == hashes(whole / "parquet")
    else:
        assert code == 1 and one_line(err).startswith(f"generate: {tmp_path / 'd'}")
