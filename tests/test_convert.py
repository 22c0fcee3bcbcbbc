"""Datasets in other formats, in Hugging Face `datasets`, and those that other programs wrote."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from PIL import Image as pillow

from tests.helpers import COUNTS, SMALL, called, hashes, one_line, write
from train.config import Run, Training
from train.run import run
from travlr import Count, Image, Spatiality, make_example, open_dataset
from travlr.audit.checks import audit
from travlr.card import BEST_UNBOUND, _size
from travlr.columns import COLUMNS, FEATURES
from travlr.convert import convert_dataset, main
from travlr.exports import FORMATS
from travlr.generate import settings
from travlr.manifest import EXPORTED
from travlr.original import PUBLISHED_SPLITS, read_original
from travlr.scene import SPLITS
from travlr.tasks import PAPER

LOADED = {"parquet": "image", "imagefolder": "image", "webdataset": "png"}  # format -> the column of pictures
SIDE = 6 * SMALL.image.cell


@pytest.fixture(scope="module", autouse=True)
def offline() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        yield


def convert(source: Path, folder: Path, layout: str = "parquet", **options: Any) -> Path:
    convert_dataset(source, folder, layout, log=lambda _: None, **options)
    return folder


def rgb(picture: bytes) -> np.ndarray:
    """A picture, (height, width, 3), decoded by Pillow alone."""
    return np.asarray(pillow.open(io.BytesIO(picture)).convert("RGB"))


# Exports -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LOADED)
def test_load_dataset_gives_the_rows_with_rgb_pictures(layout: str, by_format: dict[str, Path], tmp_path: Path) -> None:
    loaded = datasets.load_dataset(str(by_format[layout]), cache_dir=str(tmp_path))
    column = LOADED[layout]
    assert {split: rows.num_rows for split, rows in loaded.items()} == COUNTS
    for split in SPLITS:
        row, example = loaded[split][7], make_example(SMALL, split, 7)
        columns = row["json"] if layout == "webdataset" else row
        assert (columns["id"], columns["caption"], columns["answer"]) == (example.id, example.caption, example.answer)
        assert tuple(columns["pair"]) == example.pair and len(columns["objects"]) == len(example.scene)
        assert row[column].mode == "RGB" and np.array_equal(np.asarray(row[column]), rgb(example.image))
        tensor = loaded[split].with_format("torch")[7][column]
        assert tensor.shape == (3, SIDE, SIDE) and tensor.dtype == torch.uint8


def test_convert_writes_what_generate_writes(by_format: dict[str, Path], tmp_path: Path) -> None:
    for layout in FORMATS:
        assert hashes(convert(by_format["parquet"], tmp_path / layout, layout)) == hashes(by_format[layout])


def test_original_is_the_published_layout(by_format: dict[str, Path]) -> None:
    folder = by_format["original"]
    frame = pd.read_csv(folder / "index.csv", index_col=0)
    entries = json.loads((folder / "metadata.jsonl").read_text())
    assert list(frame.columns) == ["caption", "query", "answer", "image", "split"] and frame["answer"].dtype == bool
    assert list(entries) == [str(n) for n in frame.index] == [str(n) for n in range(sum(COUNTS.values()))]
    assert {ours: int((frame["split"] == name).sum()) for ours, name in PUBLISHED_SPLITS.items()} == COUNTS
    for ours, name in PUBLISHED_SPLITS.items():
        number = int(frame.index[frame["split"] == name][3])
        example, entry = make_example(SMALL, ours, 3), entries[str(number)]
        assert (entry["query"], entry["answer"], entry["split"]) == (example.query, example.answer, name)
        assert [entry["objects"][n]["colour"] for n in entry["caption_abstract"]] == [o.colour for o in example.scene]
        assert frame.loc[number, "caption"] == example.caption
        jpeg = rgb((folder / "images" / f"{number}.jpg").read_bytes()).astype(int)
        assert np.abs(jpeg - rgb(example.image)).mean() < 4


def test_an_export_replaces_an_earlier_one_and_nothing_else(by_format: dict[str, Path], tmp_path: Path) -> None:
    folder = convert(by_format["parquet"], tmp_path / "d", "webdataset")
    convert(by_format["parquet"], folder, "imagefolder")
    assert not list(folder.glob("*.tar")) and hashes(folder) == hashes(by_format["imagefolder"])
    with pytest.raises(ValueError, match="is a copy in another format; give the dataset that it was made of"):
        open_dataset(folder)
    (folder / EXPORTED).unlink()
    before = hashes(folder)
    with pytest.raises(ValueError, match="is not empty and no export; name another folder"):
        convert(by_format["parquet"], folder, "webdataset")
    assert hashes(folder) == before


def test_original_refuses_styles(tmp_path: Path) -> None:
    config, _ = settings(["task=cardinality", "style.image=grid", "image.cell=8"])
    with pytest.raises(ValueError, match=r"format=original: holds style\.image=plain"):
        write(tmp_path / "d", config, format="original")


@pytest.mark.parametrize("where", ["d", "d/inside", "."])
def test_source_and_target_must_be_apart(where: str, tmp_path: Path) -> None:
    write(tmp_path / "d")
    with pytest.raises(ValueError, match="name another folder"):
        convert(tmp_path / "d", tmp_path / where, "imagefolder")


# The card ------------------------------------------------------------------------------------------------------------


def header_of(folder: Path) -> Any:
    return yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])


@pytest.mark.parametrize("layout", ["parquet", *FORMATS])
def test_the_card_says_what_is_there(layout: str, by_format: dict[str, Path]) -> None:
    folder, header = by_format[layout], header_of(by_format[layout])
    body = (folder / "README.md").read_text()
    if layout != "original":
        globs = {item["split"]: item["path"] for item in header["configs"][0]["data_files"]}
        assert all(list(folder.glob(globs[split])) for split in COUNTS)
    for split, count in COUNTS.items():
        true = sum(make_example(SMALL, split, i).answer for i in range(count))
        assert f"| {split} | {count:,} | {true} | {count - true} |" in body
    first = make_example(SMALL, "train", 0)
    assert first.query in body and first.caption in body and "right up to 94 %" in body
    assert pillow.open(folder / "example.png").size == (SIDE, SIDE)
    assert header["license"] == "apache-2.0" and header["size_categories"] == ["n<1K"]


def test_the_header_of_the_card_is_as_datasets_writes_it(by_format: dict[str, Path]) -> None:
    written = datasets.Features.from_dict(json.loads(json.dumps(FEATURES)))._to_yaml_list()
    assert header_of(by_format["parquet"])["dataset_info"]["features"] == written
    assert header_of(by_format["imagefolder"])["configs"][0]["features"] == written


@pytest.mark.parametrize("preset", ["paper", "strict"])
@pytest.mark.parametrize("task", PAPER)
def test_the_card_of_a_preset_says_what_rules_reach(task: str, preset: str, tmp_path: Path) -> None:
    some = [f"count.{split}=20" for split in SPLITS]
    config, _ = settings([f"task={task}", f"preset={preset}", "seed=7", "image.cell=8", "style.image=plain", *some])
    write(tmp_path / "d", config)
    shown = (tmp_path / "d" / "README.md").read_text().partition("## Known shortcuts")[2].partition("##")[0]
    assert f"right up to {BEST_UNBOUND[task][preset]} of the time" in " ".join(shown.split())


@pytest.mark.parametrize(("rows", "category"), [(999, "n<1K"), (1000, "1K<n<10K"), (10**13, "n>1T")])
def test_size_categories_are_those_of_the_hub(rows: int, category: str) -> None:
    assert _size(rows) == category


# The published layout as a source ------------------------------------------------------------------------------------

SOURCE = Spatiality(count=Count(30, 8, 8, 8), image=Image(cell=8))


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A dataset as published: columns in another order and one more, images numbered anyhow, objects not in the order
    of the caption."""
    folder = tmp_path / "published"
    write(folder, SOURCE, format="original")
    with open(folder / "index.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        (folder / "images" / f"{line['image']}.jpg").rename(folder / "images" / f"{int(line['image']) + 1000}.jpg")
        line |= {"image": str(int(line["image"]) + 1000), "positions": "[(0, 0), (2, 5), (1, 5)]"}
    with open(folder / "index.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["", "caption", "query", "answer", "positions", "split", "image"])
        writer.writeheader()
        writer.writerows(lines)
    entries = json.loads((folder / "metadata.jsonl").read_text())
    for entry in entries.values():
        entry["objects"].sort(key=lambda o: not o["queried"])
    (folder / "metadata.jsonl").write_text(json.dumps(dict(sorted(entries.items()))) + "\n")
    return folder


def test_the_published_layout_becomes_a_dataset(published: Path, tmp_path: Path) -> None:
    dataset = open_dataset(convert(published, tmp_path / "d"))
    assert dataset.manifest["config"] is None and set(dataset.manifest["source"]) == {"index.csv", "metadata.jsonl"}
    for split in SPLITS:
        for number, example in enumerate(dataset[split]):
            due = make_example(SOURCE, split, number)
            assert example.scene == due.scene
            assert (example.caption, example.query, example.answer) == (due.caption, due.query, due.answer)
            assert (example.pair, example.query_form, example.id) == (due.pair, due.query_form, due.id)
            assert example.image.startswith(b"\xff\xd8")
    assert not [check for check in audit(tmp_path / "d", workers=1) if check.status == "FAIL"]
    body = (tmp_path / "d" / "README.md").read_text()
    assert "Converted from a dataset" in body and "license" not in header_of(tmp_path / "d")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize(
    ("name", "damage"), [("metadata.jsonl", cut), ("metadata.jsonl", Path.unlink), ("images/1005.jpg", Path.unlink)]
)
def test_a_damaged_source_is_one_line_with_its_file(
    name: str, damage: Callable[[Path], object], published: Path, tmp_path: Path
) -> None:
    damage(published / name)
    with pytest.raises(ValueError, match=rf"{published / name}: damaged or missing") as caught:
        convert(published, tmp_path / "d")
    one_line(str(caught.value))


def test_a_picture_outside_the_folder_is_refused(published: Path) -> None:
    text = (published / "index.csv").read_text()
    (published / "index.csv").write_text(text.replace(",1000\n", ",../../secret\n"))
    with pytest.raises(ValueError, match=r"image '\.\./\.\./secret'"):
        list(read_original(published, "train", 0, 30))


# Parquet of other programs -------------------------------------------------------------------------------------------


def with_datasets(shards: dict[str, Path], folder: Path) -> None:
    """As `Dataset.to_parquet` writes it, with pictures that have no file names, and another column."""
    loaded = datasets.load_dataset("parquet", data_files={s: str(p) for s, p in shards.items()})
    for split, rows in loaded.items():
        rows = rows.map(lambda row: {"image": row["image"].convert("RGB"), "difficulty": len(row["objects"])})
        rows.to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")


def with_pandas(shards: dict[str, Path], folder: Path) -> None:
    for split, path in shards.items():
        (folder / "default" / split).mkdir(parents=True)
        pd.read_parquet(path).assign(extra=1.5).to_parquet(folder / "default" / split / "0000.parquet")


def with_large_strings(shards: dict[str, Path], folder: Path) -> None:
    """In two files for each split."""
    for split, path in shards.items():
        table = pq.read_table(path)
        for name in ("caption", "query"):
            table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.large_string()))
        pq.write_table(table[:8], folder / f"{split}-0.parquet")
        pq.write_table(table[8:], folder / f"{split}-1.parquet")


WHOLE = Spatiality(count=Count(48, 16, 16, 16), image=Image(cell=8))


@pytest.fixture(scope="module", params=[with_datasets, with_pandas, with_large_strings], ids=lambda f: f.__name__)
def foreign(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A dataset without a manifest, and ours of which it was made."""
    base = tmp_path_factory.mktemp("foreign")
    write(base / "ours", WHOLE)
    (base / "theirs").mkdir()
    request.param({split: next((base / "ours").glob(f"{split}-*")) for split in SPLITS}, base / "theirs")
    return base / "theirs", base / "ours"


def test_foreign_parquet_is_opened_audited_and_converted(foreign: tuple[Path, Path], tmp_path: Path) -> None:
    theirs, ours = map(open_dataset, foreign)
    assert list(theirs.splits) == list(ours.splits)
    columns = [name for name in COLUMNS if name != "image"]
    for split in SPLITS:
        assert theirs[split].columns(*columns).equals(ours[split].columns(*columns))
        assert theirs[split][3].scene == ours[split][3].scene
        assert np.array_equal(rgb(theirs[split][-1].image), rgb(ours[split][-1].image))
    assert not [check for check in audit(foreign[0], workers=1) if check.status == "FAIL"]
    converted = open_dataset(convert(foreign[0], tmp_path / "d"))
    assert converted["test_ood"][5].id == "spatiality-test_ood-00000005" and converted.manifest["config"] is None


def test_foreign_parquet_is_trained_on(foreign: tuple[Path, Path], tmp_path: Path) -> None:
    training = Training(steps=2, check_every=2, validation=8, stream=False)
    config = Run(
        model="uniter", setting="image", task="spatiality", data=str(foreign[0]), size="tiny", training=training,
        runs=str(tmp_path), precision="float32",
    )  # fmt: skip
    assert len(run(config, log=lambda _: None)) == 6


def test_a_shard_that_does_not_fit_is_named_with_its_column(tmp_path: Path) -> None:
    write(tmp_path / "d", WHOLE)
    table = pq.read_table(tmp_path / "d" / "train-00000-of-00001.parquet")
    (tmp_path / "e").mkdir()
    pq.write_table(table.drop_columns(["pair"]), tmp_path / "e" / "train.parquet")
    with pytest.raises(ValueError, match=r"train.parquet: has no column pair"):
        open_dataset(tmp_path / "e")
    words = table.set_column(4, "answer", pa.array(["yes"] * table.num_rows))
    pq.write_table(words, tmp_path / "e" / "train.parquet")
    with pytest.raises(ValueError, match=r"train.parquet: column answer is string; it must be bool"):
        open_dataset(tmp_path / "e")["train"][0]


def test_folders_that_are_no_dataset_are_one_line(tmp_path: Path) -> None:
    write(tmp_path / "base" / "d")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    shutil.copytree(tmp_path / "base" / "d", tmp_path / "two" / "a")
    (tmp_path / "two" / "a" / "dataset.json").unlink()
    shutil.copytree(tmp_path / "two" / "a", tmp_path / "two" / "b")
    for name, words in {
        "base": "holds datasets and is none itself; name one of them: d", "empty": "not a dataset",
        "missing": "there is no such folder", "file": "is a file; give the folder of a dataset",
        "two": "holds several datasets; name one of them: a, b",
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=words):
            open_dataset(tmp_path / name)


# The command ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["d", "e"], 2, "format= is missing; choose one of parquet, imagefolder"),
        (["d", "e", "format=zip"], 2, "format=zip: choose one of parquet"),
        (["d", "e", "format=imagefolder", "rows=5"], 2, "'rows=5' is not a setting"),
        (["missing", "e", "format=imagefolder"], 1, "missing: there is no such folder"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: list[str], status: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert called(monkeypatch, *arguments, name="convert", main=main) == status
    assert words in one_line(capsys.readouterr().err)
