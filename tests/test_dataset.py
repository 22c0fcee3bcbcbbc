"""Opening a written dataset: lazily, at random, by column; and manifests that are not to be trusted."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import COUNTS, NULLS, SMALL, command, exit_code, flip, one_line, unfinish, with_null, write
from travlr import iterate, make_example, open_dataset
from travlr.audit.__main__ import main as audit_main
from travlr.browse import main as browse_main
from travlr.columns import COLUMNS
from travlr.convert import main as convert_main
from travlr.dataset import SplitReader
from travlr.manifest import FORMAT_VERSION, read_manifest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset") / "d"
    write(folder)
    return folder


def test_random_access_iteration_and_make_example_agree(folder: Path) -> None:
    dataset = open_dataset(folder)
    assert {split: len(reader) for split, reader in dataset.splits.items()} == COUNTS
    for split, reader in dataset.splits.items():
        examples = list(reader)
        assert examples == list(iterate(SMALL, split))
        for index in (0, 1, 49, len(reader) - 1, -1, -len(reader), np.int64(7)):
            assert (
                reader[int(index)]
                == reader[index]
                == examples[index]
                == make_example(SMALL, split, int(index) % len(reader))
            )


def test_outside_the_split_is_an_index_error_and_unknown_names_are_answered(folder: Path) -> None:
    dataset = open_dataset(folder)
    for index in (100, -101, 10**9):
        with pytest.raises(IndexError, match=f"index {index}: the split has 100 examples"):
            dataset["train"][index]
    with pytest.raises(KeyError, match="no split 'test'; there are train, validation, test_ind, test_ood"):
        dataset["test"]
    for read in (dataset["train"].columns, lambda *names: list(dataset["train"].tables(*names))):
        with pytest.raises(ValueError, match="no column 'legend'; choose from id, image, caption"):
            read("legend")


def test_a_slice_is_a_list_of_examples_as_of_a_list(folder: Path) -> None:
    reader = open_dataset(folder)["test_ood"]
    examples = list(reader)
    for part in (slice(10, 20), slice(-5, None), slice(None, None, -7), slice(55, 1000), slice(3, 3), slice(None)):
        assert reader[part] == examples[part], part


def test_make_example_counts_from_the_end_as_a_written_split_does(folder: Path) -> None:
    reader = open_dataset(folder)["train"]
    assert make_example(SMALL, "train", -1) == reader[-1] and make_example(SMALL, "train", -100) == reader[0]
    assert make_example(SMALL, "train", 100).id == "cardinality-train-00000100"  # training goes on past the count
    for index in (-101, 10**30):
        with pytest.raises(IndexError, match=f"^index {index}: train has 100 examples"):
            make_example(SMALL, "train", index)
    with pytest.raises(TypeError):
        make_example(SMALL, "train", 1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="split=dev: choose one of train, validation"):
        make_example(SMALL, "dev", 0)
    with pytest.raises(ValueError, match="split=dev: choose one of train, validation"):
        next(iterate(SMALL, "dev"))


def test_what_is_printed_says_what_is_held_and_no_bytes(folder: Path) -> None:
    dataset = open_dataset(folder)
    assert "IHDR" not in repr(dataset["train"][0]) and dataset["train"][0].caption in repr(dataset["train"][0])
    assert all(part in repr(dataset) for part in ("cardinality", str(folder), "train 100", "test_ood 60"))
    assert all(part in repr(dataset["test_ood"]) for part in ("60", str(folder), "test_ood"))


def test_columns_come_without_pictures(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = open_dataset(folder)["train"]
    asked: list[list[str]] = []
    for file in (reader._file(0), reader._file(1)):

        def watched(columns: list[str], read: Callable[..., Any] = file.read) -> Any:
            asked.append(columns)
            return read(columns=columns)

        monkeypatch.setattr(file, "read", watched)
    table = reader.columns("query", "answer")
    assert table.column_names == ["query", "answer"] and table.num_rows == 100
    assert asked == [["query", "answer"]] * 2
    assert table["query"].to_pylist() == [example.query for example in reader]
    assert open_dataset(folder)["train"].columns().column_names == list(COLUMNS)
    assert [t.column_names for t in reader.tables("caption")] == [["caption"]] * 2


def test_opening_reads_no_rows_and_maps_the_files(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "d"
    shutil.copytree(folder, copy)
    dataset = open_dataset(copy)
    (copy / "train-00001-of-00002.parquet").unlink()
    assert dataset["train"][49].id.endswith("00000049")  # the other file is not touched
    assert str(copy / "train-00000-of-00002.parquet") in Path("/proc/self/maps").read_text()
    with pytest.raises(ValueError, match=r"train-00001-of-00002\.parquet: damaged or missing"):
        dataset["train"][50]


def test_readers_go_to_other_processes_and_keep_few_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SplitReader, "CACHED_GROUPS", 1)
    reader = open_dataset(folder)["train"]
    assert [reader[i].id for i in (0, 99, 1)] == [f"cardinality-train-{i:08d}" for i in (0, 99, 1)]
    assert len(reader._groups) == 1
    again = pickle.loads(pickle.dumps(reader))
    assert len(again) == 100 and again[99] == reader[99]


@pytest.mark.parametrize("place", ["picture", "text"])
def test_damage_is_found_when_it_is_read(place: str, folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "d"
    shutil.copytree(folder, copy)
    path = copy / "train-00000-of-00002.parquet"
    flip(path, path.read_bytes().index(b"\x89PNG") + 60 if place == "picture" else path.stat().st_size // 2)
    reader = open_dataset(copy)["train"]
    for read in (lambda: reader[3], lambda: list(reader), lambda: reader.columns()):
        with pytest.raises(ValueError, match=f"{path}: damaged or missing"):
            read()


@pytest.mark.parametrize("place", [place for place in NULLS if place != "image.path"])  # others name no files
def test_a_null_in_any_column_is_refused(place: str, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "d")
    name = with_null(tmp_path / "d", *NULLS[place])
    column = ".".join(part for part in map(str, NULLS[place]) if part != "0")
    reader = open_dataset(tmp_path / "d")["train"]
    for read in (
        lambda: reader[3],
        lambda: reader[3:5],
        lambda: list(reader),
        lambda: reader.columns(str(NULLS[place][0])),
        lambda: list(reader.tables(str(NULLS[place][0]))),
        lambda: list(reader.rows()),
    ):
        with pytest.raises(ValueError, match=rf"{name}: damaged \(column {column} has a null\)$") as caught:
            read()
        one_line(str(caught.value))
    assert reader[99] and reader.columns(*set(COLUMNS) - {str(NULLS[place][0])}).num_rows == 100


COMMANDS = {"audit": audit_main, "browse": browse_main, "convert": convert_main}


@pytest.mark.parametrize("place", ["task", "pair.0", "image.bytes", "objects", "objects.0", "objects.0.colour"])
@pytest.mark.parametrize("program", COMMANDS)
def test_commands_refuse_a_null(
    program: str,
    place: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(folder, tmp_path / "d")
    name = with_null(tmp_path / "d", *NULLS[place])
    arguments = [str(tmp_path / "x"), "format=imagefolder"] if program == "convert" else []
    code = exit_code(monkeypatch, program, COMMANDS[program], [str(tmp_path / "d"), *arguments])
    out, err = capsys.readouterr()
    column = place.replace(".0", "")
    assert code == 1 and "Traceback" not in err
    if program == "audit":
        (line,) = (line for line in out.splitlines() if line.startswith("FAIL  columns"))
        assert err == "" and f"{name}, rows from 0 on: column {column} has a null" in line
    else:
        assert f"{name}: damaged (column {column} has a null)" in err or "not the bytes" in err
        assert not list(tmp_path.rglob("*.html")) and not (tmp_path / "x" / "dataset.json").exists()


def test_a_file_with_fewer_rows_than_said_is_found(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "d"
    shutil.copytree(folder, copy)
    (copy / "train-00001-of-00002.parquet").write_bytes((copy / "test_ood-00001-of-00002.parquet").read_bytes())
    with pytest.raises(ValueError, match="has fewer rows than the manifest says"):
        open_dataset(copy)["train"][99]


def test_a_folder_without_a_finished_dataset_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere: there is no such folder"):
        open_dataset(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"not a dataset \(no dataset.json"):
        open_dataset(tmp_path)
    unfinish(tmp_path / "d")
    with pytest.raises(ValueError, match="unfinished; run the command that began it again to finish it"):
        open_dataset(tmp_path / "d")


WRONG: dict[str, Any] = {
    "outside": {"files": [{"name": "../x.parquet", "split": "train", "rows": 1}]},
    "absolute": {"files": [{"name": "/etc/passwd", "split": "train", "rows": 1}]},
    "negative rows": {"files": [{"name": "x.parquet", "split": "train", "rows": -1}]},
    "more rows than can be": {"files": [{"name": "train-00000-of-00001.parquet", "split": "train", "rows": 10**29}]},
    "a split of more rows than can be": {"splits": {"train": {"rows": 10**29, "true": 1}}},
    "rows no number": {"files": [{"name": "x.parquet", "split": "train", "rows": "1"}]},
    "unknown split": {"files": [{"name": "x.parquet", "split": "dev", "rows": 1}]},
    "no name": {"files": [{"split": "train", "rows": 1}]},
    "files no list": {"files": {"name": "x"}},
    "file no dict": {"files": ["x.parquet"]},
    "splits no dict": {"splits": ["train"]},
    "split null": {"splits": {"test_ind": None}},
}


@pytest.mark.parametrize("case", WRONG)
def test_a_manifest_that_is_not_to_be_trusted_is_refused(case: str, folder: Path, tmp_path: Path) -> None:
    manifest = read_manifest(folder) | WRONG[case]
    (tmp_path / "dataset.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=r"dataset.json: damaged or missing") as caught:
        open_dataset(tmp_path)
    assert "\n" not in str(caught.value) and ("null" not in case or "wrong split 'test_ind'" in str(caught.value))


@pytest.mark.parametrize("program", ["audit", "browse", "convert"])
def test_commands_refuse_more_rows_than_can_be(program: str, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "d")
    manifest = read_manifest(folder)
    manifest["files"][0]["rows"] = manifest["splits"]["train"]["rows"] = 10**29
    (tmp_path / "d" / "dataset.json").write_text(json.dumps(manifest))
    arguments = [str(tmp_path / "x"), "format=imagefolder"] if program == "convert" else []
    code, out, err = command(program, str(tmp_path / "d"), *arguments)
    assert (code, out) == (1, "") and "dataset.json: damaged or missing" in one_line(err)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "[" * 100_000, "\x00", "\udcff"])
def test_what_is_no_manifest_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "dataset.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=r"dataset.json: damaged or missing") as caught:
        read_manifest(tmp_path)
    assert "\n" not in str(caught.value)


def test_another_format_version_is_refused(folder: Path, tmp_path: Path) -> None:
    manifest = read_manifest(folder) | {"format_version": FORMAT_VERSION + 1, "files": "in some new way"}
    (tmp_path / "dataset.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=f"format version {FORMAT_VERSION + 1}, not this program's {FORMAT_VERSION}"):
        open_dataset(tmp_path)
