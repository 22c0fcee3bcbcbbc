"""Datasets that other programs wrote: Parquet files with our columns and no manifest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers import SMALL, one_line
from train.config import Run, Training
from train.run import run
from travlr import generate_dataset, open_dataset
from travlr.audit.checks import audit
from travlr.browse import main as browse
from travlr.cli import UsageError
from travlr.convert import convert_dataset
from travlr.formats.columns import COLUMNS
from travlr.generate import GenerateArguments
from travlr.scene import SPLITS

LARGE = {  # what Polars and newer pandas write
    "id": pa.large_string(),
    "caption": pa.large_string(),
    "pair": pa.large_list(pa.large_string()),
    "task": pa.dictionary(pa.int32(), pa.string()),
    "image": pa.struct([("path", pa.large_string()), ("bytes", pa.large_binary())]),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source") / "d"
    generate_dataset(SMALL, GenerateArguments(str(folder), workers=1), log=lambda _: None)
    return folder


def shards(source: Path) -> dict[str, Path]:
    return {split: next(source.glob(f"{split}-*.parquet")) for split in SPLITS}


def with_datasets(source: Path, folder: Path) -> None:
    """As `Dataset.to_parquet` writes it, with pictures that have no file names, and another column."""
    loaded = datasets.load_dataset("parquet", data_files={s: str(p) for s, p in shards(source).items()})
    for split, rows in loaded.items():
        rows = rows.map(lambda row: {"image": row["image"].convert("RGB"), "difficulty": len(row["objects"])})
        rows.to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")


def with_pandas(source: Path, folder: Path) -> None:
    for split, path in shards(source).items():
        (folder / "default" / split).mkdir(parents=True)
        pd.read_parquet(path).assign(extra=1.5).to_parquet(folder / "default" / split / "0000.parquet")


def with_large_types(source: Path, folder: Path) -> None:
    """In two files for each split."""
    for split, path in shards(source).items():
        table = pq.read_table(path)
        for name, kind in LARGE.items():
            table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
        table = table.select(table.column_names[::-1])
        pq.write_table(table[:8], folder / f"{split}-0.parquet")
        pq.write_table(table[8:], folder / f"{split}-1.parquet")


WRITERS = (with_datasets, with_pandas, with_large_types)


@pytest.fixture(scope="module", params=WRITERS, ids=lambda writer: writer.__name__)
def foreign(request: pytest.FixtureRequest, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("foreign") / "d"
    folder.mkdir()
    request.param(source, folder)
    return folder


def test_it_opens_with_the_rows_and_types_of_ours(foreign: Path, source: Path) -> None:
    theirs, ours = open_dataset(foreign), open_dataset(source)
    assert list(theirs.splits) == list(ours.splits)
    for split in SPLITS:
        columns = [name for name in COLUMNS if name != "image"]
        assert theirs[split].columns(*columns).equals(ours[split].columns(*columns))
        assert theirs[split].columns().schema.types == list(COLUMNS.values())
        assert theirs[split][3].scene == ours[split][3].scene
        assert theirs[split][-1].picture().convert("RGB").tobytes() == ours[split][-1].picture().tobytes()


def test_its_digest_is_that_of_its_files(foreign: Path, source: Path, tmp_path: Path) -> None:
    digest = open_dataset(foreign).manifest["content_digest"]
    assert digest == open_dataset(foreign).manifest["content_digest"]
    path = next(foreign.rglob("*train*.parquet"), None) or foreign / "default" / "train" / "0000.parquet"
    before = path.read_bytes()
    table = pq.read_table(path)
    pq.write_table(table[:-1], path)
    assert open_dataset(foreign).manifest["content_digest"] != digest
    path.write_bytes(before)
    assert open_dataset(foreign).manifest["content_digest"] == digest


@pytest.mark.parametrize("model", ["uniter", "albef"])
def test_a_model_trains_and_is_tested_on_it(foreign: Path, model: str, tmp_path: Path) -> None:
    training = Training(steps=2, check_every=2, validation=8, stream=False)
    values: dict[str, Any] = {"model": model, "size": "tiny", "setting": "image+caption", "task": SMALL.task}
    values |= {"device": "cpu", "precision": "float32", "audit": False, "training": training}
    results = run(Run(data=str(foreign), runs=str(tmp_path / "runs"), **values), log=lambda line: None)
    assert {(row["test_setting"], row["split"]) for row in results} >= {("image", "test_ood"), ("caption", "test_ind")}
    again = run(Run(data=str(foreign), runs=str(tmp_path / "runs"), **values), log=lambda line: None)
    assert again == results


def test_a_stream_needs_the_settings_that_it_lacks(foreign: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"training\.stream=false") as error:
        run(Run(data=str(foreign), task=SMALL.task, size="tiny", device="cpu", audit=False, runs=str(tmp_path / "r")))
    assert one_line(f"{error.value}\n").startswith(f"data={foreign}: nothing says with which settings")


def test_a_caption_in_other_words_is_refused_with_the_dataset_that_has_it(source: Path, tmp_path: Path) -> None:
    for split, path in shards(source).items():
        table = pq.read_table(path)
        pq.write_table(replaced("caption", pa.string(), "A red circle.")(table), tmp_path / f"{split}.parquet")
    training = Training(steps=2, stream=False)
    config = Run(data=str(tmp_path), task=SMALL.task, size="tiny", device="cpu", precision="float32", audit=False)
    with pytest.raises(ValueError, match=r"a caption of \w+ cannot be read \(") as error:
        run(replace(config, runs=str(tmp_path / "r"), training=training), log=lambda line: None)
    assert one_line(f"{error.value}\n").startswith(f"data={tmp_path}: ")


def test_it_is_audited_converted_and_browsed(foreign: Path, source: Path, tmp_path: Path) -> None:
    checks = {check.name: check for check in audit(foreign, workers=1)}
    assert checks["manifest"].status == "note"
    failed = {name for name, check in checks.items() if check.status == "FAIL"}
    assert "ids" not in checks and failed <= {"balance by query text", "pair totals"}, checks
    convert_dataset(foreign, tmp_path / "d", "parquet", workers=1, log=lambda _: None)
    columns = [name for name in COLUMNS if name != "image"]
    converted = open_dataset(tmp_path / "d")
    for split in SPLITS:
        assert converted[split].columns(*columns).equals(open_dataset(source)[split].columns(*columns))
    with pytest.raises(UsageError, match="--out"):
        browse([str(foreign)])
    assert browse([str(foreign), "--out", str(tmp_path / "page.html")]) == 0


def rename_column(table: pa.Table) -> pa.Table:
    return table.rename_columns(["label" if name == "answer" else name for name in table.column_names])


def replaced(name: str, kind: pa.DataType, value: Any) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        column = pa.array([value] * table.num_rows, kind)
        return table.set_column(table.column_names.index(name), name, column)

    return change


STRUCT = pa.struct([("colour", pa.list_(pa.string())), ("row", pa.list_(pa.int32()))])
FEWER = pa.list_(pa.struct([("colour", pa.string()), ("shape", pa.string())]))
DAMAGE: dict[str, tuple[Callable[[pa.Table], pa.Table], tuple[str, ...]]] = {
    "a column is missing": (rename_column, ("column answer is missing", "bool")),
    "a truth value is a word": (replaced("answer", pa.string(), "yes"), ("column answer is string", "bool")),
    "a list is a word": (replaced("pair", pa.string(), "circle 3"), ("column pair is string", "list<")),
    "a picture is bytes alone": (replaced("image", pa.binary(), b""), ("column image is binary", "struct<")),
    "a struct of lists": (replaced("objects", STRUCT, {"colour": ["red"], "row": [1]}), ("column objects", "list<")),
    "a field is missing": (replaced("objects", FEWER, [{"colour": "red"}]), ("objects.size is missing", "string")),
    "nothing but nulls": (replaced("query", pa.null(), None), ("column query is null", "string")),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_file_that_does_not_fit_is_named_with_its_column(name: str, source: Path, tmp_path: Path) -> None:
    change, words = DAMAGE[name]
    for split, path in shards(source).items():
        table = pq.read_table(path)
        pq.write_table(change(table) if split == "test_ood" else table, tmp_path / f"{split}.parquet")
    with pytest.raises(ValueError) as error:
        open_dataset(tmp_path)
    message = one_line(f"{error.value}\n")
    assert message.startswith(str(tmp_path / "test_ood.parquet")) and all(word in message for word in words), message


def test_nulls_are_refused_when_they_are_read(source: Path, tmp_path: Path) -> None:
    table = pq.read_table(shards(source)["train"])
    pq.write_table(replaced("caption", pa.string(), None)(table), tmp_path / "train.parquet")
    train = open_dataset(tmp_path)["train"]
    with pytest.raises(ValueError, match="caption"):
        train.columns("caption")
    assert len(train.columns("query")) == len(train)


def test_folders_that_are_no_dataset(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"train-\*\.parquet"):
        open_dataset(tmp_path)
    table = pq.read_table(shards(source)["train"])
    for name in ("table.parquet", "test.parquet", ".hidden/train.parquet", "retrain.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / name)
    with pytest.raises(ValueError, match=r"train-\*\.parquet"):
        open_dataset(tmp_path)
    pq.write_table(table[:0], tmp_path / "train.parquet")
    with pytest.raises(ValueError, match="no rows"):
        open_dataset(tmp_path)
    pq.write_table(table, tmp_path / "train.parquet")
    with pytest.raises(ValueError, match="no split validation"):
        run(Run(data=str(tmp_path), task=SMALL.task, device="cpu", audit=False, runs=str(tmp_path / "r")))
    (tmp_path / "train.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(ValueError, match=r"train\.parquet: damaged"):
        open_dataset(tmp_path)


def test_a_folder_of_datasets_is_none_itself(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds datasets and is none itself; name one of them: d$"):
        open_dataset(source.parent)
    for name in ("a/train.parquet", "b/train/0000.parquet", "b/validation/0000.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(next(source.glob("train-*.parquet")), tmp_path / name)
    with pytest.raises(ValueError, match=r"holds several datasets; name one of them: a, b$"):
        open_dataset(tmp_path)
    assert set(open_dataset(tmp_path / "b").splits) == {"train", "validation"}


def test_another_format_is_refused_before_the_audit(source: Path, tmp_path: Path) -> None:
    convert_dataset(source, tmp_path / "d", "webdataset", workers=1, log=lambda _: None)
    with pytest.raises(ValueError, match=r"^data=.*/d: has format=webdataset, .*python -m travlr.convert"):
        run(Run(data=str(tmp_path / "d"), task=SMALL.task, device="cpu", runs=str(tmp_path / "r")))
    assert not any((tmp_path / "r" / ".audited").glob("*"))
