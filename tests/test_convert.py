"""Datasets in other formats, in Hugging Face `datasets`, and the published layout as a source."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from PIL import Image as pillow

from tests.harness_environments import environment, run_in
from tests.helpers import COUNTS, SMALL, command, config_of, hashes, one_line, write
from travlr import Count, Image, Spatiality, make_example, open_dataset
from travlr.audit.checks import audit
from travlr.convert import convert_dataset, main
from travlr.formats.card import BEST_UNBOUND
from travlr.formats.exports import FORMATS
from travlr.formats.manifest import EXPORTED
from travlr.formats.original import PUBLISHED_SPLITS, read_original
from travlr.scene import SPLITS

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


def test_convert_original_is_the_published_layout(by_format: dict[str, Path]) -> None:
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


def test_convert_replaces_an_earlier_export_only(by_format: dict[str, Path], tmp_path: Path) -> None:
    folder = convert(by_format["parquet"], tmp_path / "d", "webdataset")
    convert(by_format["parquet"], folder, "imagefolder")
    assert not list(folder.glob("*.tar")) and hashes(folder) == hashes(by_format["imagefolder"])
    with pytest.raises(ValueError, match="copy"):
        open_dataset(folder)
    (folder / EXPORTED).unlink()
    before = hashes(folder)
    with pytest.raises(ValueError, match="not empty"):
        convert(by_format["parquet"], folder, "webdataset")
    assert hashes(folder) == before


def test_convert_original_refuses_styles(tmp_path: Path) -> None:
    config = config_of("task=cardinality", "style.image=grid", "image.cell=8")
    with pytest.raises(ValueError, match=r"format=original: .*style\.image=plain"):
        write(tmp_path / "d", config, format="original")


# The card ------------------------------------------------------------------------------------------------------------


def header_of(folder: Path) -> Any:
    return yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])


@pytest.mark.parametrize("layout", ["parquet", *FORMATS])
def test_card_counts_what_is_there(layout: str, by_format: dict[str, Path]) -> None:
    folder, header = by_format[layout], header_of(by_format[layout])
    body = (folder / "README.md").read_text()
    if layout != "original":
        globs = {item["split"]: item["path"] for item in header["configs"][0]["data_files"]}
        assert all(list(folder.glob(globs[split])) for split in COUNTS)
    for split, count in COUNTS.items():
        true = sum(make_example(SMALL, split, i).answer for i in range(count))
        assert f"| {split} | {count:,} | {true} | {count - true} |" in body
    first = make_example(SMALL, "train", 0)
    assert first.query in body and first.caption in body and "94 %" in body
    assert pillow.open(folder / "example.png").size == (SIDE, SIDE)
    assert header["license"] == "apache-2.0"


def test_card_of_strict_data_says_what_rules_reach(tmp_path: Path) -> None:
    some = [f"count.{split}=20" for split in SPLITS]
    write(tmp_path, config_of("task=comparison", "preset=strict", "image.cell=8", "style.image=plain", *some))
    parts = (tmp_path / "README.md").read_text().split("\n## ")
    (shown,) = (part for part in parts if "shortcuts" in part.partition("\n")[0])
    assert BEST_UNBOUND["comparison"]["strict"] in " ".join(shown.split())


CROISSANT = """
import json, sys
import mlcroissant
dataset = mlcroissant.Dataset(sys.argv[1])
rows = {split.name: list(dataset.records(split.name)) for split in dataset.metadata.record_sets}
print(json.dumps({name: len(of_split) for name, of_split in rows.items()}))
first = rows["test_ood"][0]
print(json.dumps({name.partition("/")[2]: str(value) for name, value in first.items()}))
"""


def test_croissant_reads_every_row(by_format: dict[str, Path], tmp_path: Path) -> None:
    path = by_format["parquet"] / "croissant.json"
    lines = run_in(environment("environments"), "python", "-W", "ignore", "-c", CROISSANT, str(path), folder=tmp_path)
    counts, row = map(json.loads, lines.splitlines()[-2:])
    example = make_example(SMALL, "test_ood", 0)
    assert counts == COUNTS  # and mlcroissant found no error, which it raises
    assert row["caption"] == str(example.caption.encode()) and row["answer"] == str(example.answer)
    assert f"size={SIDE}x{SIDE}" in row["image"] and row["objects"].count("colour") == len(example.scene)
    described = json.loads(path.read_text())
    files = {part["name"]: part["sha256"] for part in described["distribution"] if "sha256" in part}
    assert files == {name: digest for name, digest in hashes(by_format["parquet"]).items() if name.endswith("parquet")}


# The published layout as a source ------------------------------------------------------------------------------------

SOURCE = Spatiality(count=Count(train=30, validation=8, test_ind=8, test_ood=8), image=Image(cell=8))


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


def test_convert_reads_the_published_layout(published: Path, tmp_path: Path) -> None:
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
    assert "Converted" in body and "license" not in header_of(tmp_path / "d")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize(
    ("name", "damage"), [("metadata.jsonl", cut), ("metadata.jsonl", Path.unlink), ("images/1005.jpg", Path.unlink)]
)
def test_convert_names_the_damaged_file(
    name: str, damage: Callable[[Path], object], published: Path, tmp_path: Path
) -> None:
    damage(published / name)
    with pytest.raises(ValueError, match=f"{published / name}: ") as caught:
        convert(published, tmp_path / "d")
    one_line(str(caught.value))


def test_convert_refuses_a_picture_outside_the_folder(published: Path) -> None:
    text = (published / "index.csv").read_text()
    (published / "index.csv").write_text(text.replace(",1000\n", ",../../secret\n"))
    with pytest.raises(ValueError, match=r"image '\.\./\.\./secret'"):
        list(read_original(published, "train", 0, 30))


# The command ---------------------------------------------------------------------------------------------------------


def test_convert_command_refuses_wrong_usage() -> None:
    with pytest.raises(ValueError, match=r"(?s)format.*parquet.*original.*lmms_eval.*trl.*messages"):
        main(["d", "e", "format=zip"])
    code, _, text = command("convert", "missing", "e", "format=original")
    assert code == 2 and one_line(text).startswith("convert: missing: ")
