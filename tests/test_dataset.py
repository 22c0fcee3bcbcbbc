"""Opening a written dataset: at random, by iteration, by column; and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers import COUNTS, SMALL, flip, unfinish, write
from travlr import iterate, make_example, open_dataset
from travlr.formats.columns import COLUMNS
from travlr.formats.manifest import read_manifest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset") / "d"
    write(folder)
    return folder


def test_dataset_access_iteration_and_make_example_agree(folder: Path) -> None:
    dataset = open_dataset(folder)
    assert {split: len(reader) for split, reader in dataset.splits.items()} == COUNTS
    for split, reader in dataset.splits.items():
        examples = list(reader)
        assert examples == list(iterate(SMALL, split))
        for index in (0, 49, -1, int(np.int64(7))):
            assert reader[index] == examples[index] == make_example(SMALL, split, index)
        for part in (slice(10, 20), slice(-5, None), slice(None, None, -7), slice(55, 1000), slice(3, 3)):
            assert reader[part] == examples[part], part


def test_dataset_refuses_unknown_indices_and_names(folder: Path) -> None:
    dataset = open_dataset(folder)
    for index in (100, -101):
        with pytest.raises(IndexError):
            dataset["train"][index]
        with pytest.raises(IndexError, match=r"^index -101: .* 100 "):
            make_example(SMALL, "train", -101)
    with pytest.raises(KeyError, match=r"'test'.* train, validation, test_ind, test_ood"):
        dataset["test"]
    with pytest.raises(ValueError, match="split"):
        make_example(SMALL, "dev", 0)


def test_columns_gives_the_given_columns_in_order(folder: Path) -> None:
    reader = open_dataset(folder)["train"]
    table = reader.columns("query", "answer", "id")
    assert table.column_names == ["query", "answer", "id"] and table.num_rows == 100
    assert table["query"].to_pylist() == [example.query for example in reader]
    assert reader.columns().column_names == list(COLUMNS)
    assert [t.column_names for t in reader.tables("caption")] == [["caption"]] * 2


def test_open_dataset_reads_no_rows(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "d")
    dataset = open_dataset(tmp_path / "d")
    (tmp_path / "d" / "train-00001-of-00002.parquet").unlink()
    assert dataset["validation"][49].id.endswith("00000049")
    with pytest.raises(ValueError, match=r"train-00001-of-00002\.parquet: "):
        dataset["train"][50]


@pytest.mark.parametrize("place", ["picture", "text"])
def test_dataset_names_damage(place: str, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "d")
    path = tmp_path / "d" / "train-00000-of-00002.parquet"
    flip(path, path.read_bytes().index(b"\x89PNG") + 60 if place == "picture" else path.stat().st_size // 2)
    with pytest.raises(ValueError, match=f"{path}: "):
        list(open_dataset(tmp_path / "d")["train"])


def test_open_dataset_takes_shards_of_other_programs_with_our_columns(folder: Path, tmp_path: Path) -> None:
    table = open_dataset(folder)["train"].columns()
    pq.write_table(table, tmp_path / "train.parquet")
    dataset = open_dataset(tmp_path)
    assert dataset["train"][7] == make_example(SMALL, "train", 7) and dataset.manifest["config"] is None
    pq.write_table(table.set_column(4, "answer", pa.array(["yes"] * 100)), tmp_path / "train.parquet")
    with pytest.raises(ValueError, match=r"train\.parquet: .*id: string"):
        open_dataset(tmp_path)["train"][0]


def test_open_dataset_refuses_what_is_no_finished_dataset(folder: Path, tmp_path: Path) -> None:
    unfinish(tmp_path / "begun")
    (tmp_path / "empty").mkdir()
    for name, words in {"none": "no such", "empty": "not a dataset", "begun": "unfinished"}.items():
        with pytest.raises(ValueError, match=words):
            open_dataset(tmp_path / name)
    for text in ("{", "[]", "\x00"):
        (tmp_path / "empty" / "dataset.json").write_text(text)
        with pytest.raises(ValueError, match=r"dataset\.json: "):
            open_dataset(tmp_path / "empty")
    write(tmp_path / "damaged")
    (tmp_path / "damaged" / "dataset.json").unlink()
    with pytest.raises(ValueError, match=r"damaged/dataset\.json: "):
        open_dataset(tmp_path / "damaged")


@pytest.mark.parametrize(
    ("entry", "changes"),
    [
        ("files.0.name", {"name": "../train-00000-of-00001.parquet"}),
        ("files.0.name", {"name": "train-00000-of-00001.parquet\n"}),
        ("files.0.rows", {"rows": "100"}),
        ("files.0.rows", {"rows": -1}),
        ("splits", {"splits": []}),
        ("config", {"config": None}),
        ("content_digest", {"content_digest": None}),
        ("format_version", {"format_version": 2}),
    ],
)
def test_open_dataset_names_a_wrong_manifest_entry(
    entry: str, changes: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    manifest = read_manifest(folder)
    (manifest["files"][0] if entry.startswith("files") else manifest).update(changes)
    (tmp_path / "dataset.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=rf"dataset\.json: .*{re.escape(entry)}="):
        open_dataset(tmp_path)
