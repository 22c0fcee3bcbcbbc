"""Datasets in Hugging Face `datasets` and `transformers`: pictures are RGB there, though our PNGs have a palette."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from PIL import Image as pillow
from torch.utils.data import DataLoader

from tests.helpers import SMALL, hashes, unfinish, write
from travlr import make_example, open_dataset
from travlr.audit.checks import audit
from travlr.audit.report import Check
from travlr.files import WORK
from travlr.formats import parquet
from travlr.formats.columns import FEATURES, SCHEMA
from travlr.formats.manifest import MANIFEST

LOADED = {"parquet": "image", "imagefolder": "image", "webdataset": "png"}  # format -> the column of pictures
SIDE = 6 * SMALL.image.cell


@pytest.fixture(scope="module", autouse=True)
def offline() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        yield


def load(folder: Path, cache: Path, **options: Any) -> Any:
    return datasets.load_dataset(str(folder), cache_dir=str(cache), **options)


def rgb(split: str, index: int) -> np.ndarray:
    """The picture of an example, (height, width, 3), decoded by Pillow alone."""
    return np.asarray(pillow.open(io.BytesIO(make_example(SMALL, split, index).image)).convert("RGB"))


def old_schema() -> Any:
    """The schema of files that versions before this one wrote: without a picture mode."""
    features = {**FEATURES, "image": {"_type": "Image"}}
    return SCHEMA.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset as versions before this one wrote it."""
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "SCHEMA", old_schema())
        write(tmp_path / "old")
    of_old_versions(tmp_path / "old")
    return tmp_path / "old"


def of_old_versions(folder: Path) -> None:
    """Make a manifest that of versions which did not write a picture mode, nor say so."""
    manifest = json.loads((folder / MANIFEST).read_text())
    del manifest["versions"]["schema"]
    (folder / MANIFEST).write_text(json.dumps(manifest))


def picture_mode(folder: Path) -> Check:
    checks = audit(folder, workers=1)
    assert not [check for check in checks if check.status == "FAIL"]
    return next(check for check in checks if check.name == "picture mode")


# What loaders give --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LOADED)
@pytest.mark.parametrize("streaming", [False, True])
def test_rows_have_rgb_pictures(layout: str, streaming: bool, by_format: dict[str, Path], tmp_path: Path) -> None:
    column = LOADED[layout]
    loaded = load(by_format[layout], tmp_path, streaming=streaming)
    for split in ("train", "test_ood"):
        assert loaded[split].features[column].mode == "RGB"
        row = next(iter(loaded[split]))
        assert row[column].mode == "RGB" and np.array_equal(np.asarray(row[column]), rgb(split, 0))
        tensor = next(iter(loaded[split].with_format("torch")))[column]
        assert tensor.shape == (3, SIDE, SIDE) and tensor.dtype == torch.uint8
        assert np.array_equal(tensor.permute(1, 2, 0).numpy(), rgb(split, 0))


def test_a_parquet_file_declares_its_picture_mode_without_a_card(by_format: dict[str, Path], tmp_path: Path) -> None:
    path = str(next(by_format["parquet"].glob("test_ind-*")))
    loaded = datasets.load_dataset("parquet", data_files=path, cache_dir=str(tmp_path))["train"]
    assert np.array_equal(np.asarray(loaded[0]["image"]), rgb("test_ind", 0))


@pytest.mark.parametrize("layout", ["imagefolder", "webdataset"])
def test_converted_jpegs_are_declared_too(layout: str, by_format: dict[str, Path], tmp_path: Path) -> None:
    from travlr.convert import convert_dataset

    convert_dataset(by_format["original"], tmp_path / "d", layout, workers=1, log=lambda line: None)
    loaded = load(tmp_path / "d", tmp_path)["train"]
    column = "jpg" if layout == "webdataset" else "image"
    assert loaded.features[column].mode == "RGB" and loaded.num_rows == 100
    assert loaded.with_format("torch")[0][column].shape == (3, SIDE, SIDE)


def test_the_header_of_the_card_is_as_datasets_writes_it(by_format: dict[str, Path]) -> None:
    import yaml

    written = datasets.Features.from_dict(json.loads(json.dumps(FEATURES)))._to_yaml_list()
    header = {name: yaml.safe_load((by_format[name] / "README.md").read_text().split("---\n")[1]) for name in LOADED}
    assert header["parquet"]["dataset_info"]["features"] == written
    assert header["imagefolder"]["configs"][0]["features"] == written
    shards = header["webdataset"]["dataset_info"]["features"]
    assert datasets.Features._from_yaml_list(shards)._to_yaml_list() == shards


def test_pngs_still_have_a_palette(by_format: dict[str, Path]) -> None:
    row = pq.read_table(next(by_format["parquet"].glob("train-*"))).slice(0, 1).to_pylist()[0]
    assert pillow.open(io.BytesIO(row["image"]["bytes"])).mode == "P"


# Processors and loaders ---------------------------------------------------------------------------------------------

PROCESSORS = ("ViTImageProcessor", "ViltImageProcessor", "CLIPImageProcessor")


@pytest.mark.parametrize("layout", LOADED)
@pytest.mark.parametrize("name", PROCESSORS)
def test_image_processors_take_rows(name: str, layout: str, by_format: dict[str, Path], tmp_path: Path) -> None:
    process = getattr(transformers, name)()
    rows = load(by_format[layout], tmp_path)["test_ind"]
    given = process([row[LOADED[layout]] for row in rows.select(range(3))], return_tensors="np")
    pictures = [make_example(SMALL, "test_ind", index).picture().convert("RGB") for index in range(3)]
    due = process(pictures, return_tensors="np")
    assert given["pixel_values"].shape[:2] == (3, 3)
    assert np.array_equal(given["pixel_values"], due["pixel_values"])


def test_a_data_loader_with_workers_gives_batches(by_format: dict[str, Path], tmp_path: Path) -> None:
    rows = load(by_format["parquet"], tmp_path)["train"].with_format("torch").select_columns(["image", "answer"])
    batches = list(DataLoader(rows, batch_size=32, num_workers=2))
    assert [batch["image"].shape[0] for batch in batches] == [32, 32, 32, 4]
    pictures = torch.cat([batch["image"] for batch in batches]).permute(0, 2, 3, 1).numpy()
    assert all(np.array_equal(picture, rgb("train", index)) for index, picture in enumerate(pictures))
    answers = torch.cat([batch["answer"] for batch in batches]).tolist()
    assert answers == [make_example(SMALL, "train", index).answer for index in range(100)]


def test_a_split_of_ours_goes_through_a_data_loader_with_workers(by_format: dict[str, Path]) -> None:
    reader = open_dataset(by_format["parquet"])["train"]
    reader[0]  # so that this process has a file open when workers begin
    loader: Any = DataLoader(reader, batch_size=32, num_workers=2, collate_fn=list)  # type: ignore[arg-type]
    batches = list(loader)
    assert [example for batch in batches for example in batch] == list(reader)


# Datasets of earlier versions ---------------------------------------------------------------------------------------


def test_a_dataset_without_a_mode_opens_passes_the_audit_and_is_complete(old: Path) -> None:
    before = hashes(old)
    reader = open_dataset(old)["test_ood"]
    assert reader[3] == make_example(SMALL, "test_ood", 3) and reader.columns("caption").num_rows == 60
    note = picture_mode(old)
    assert note.status == "note" and "travlr.convert" in note.detail and "\n" not in note.detail
    manifest, lines = write(old)
    assert lines == [f"{old} is complete: nothing to do"] and hashes(old) == before
    assert manifest["content_digest"] == write(old.parent / "new")[0]["content_digest"]


def test_converting_a_dataset_without_a_mode_declares_it(old: Path, tmp_path: Path) -> None:
    from travlr.convert import convert_dataset

    convert_dataset(old, tmp_path / "new", "parquet", workers=1, log=lambda line: None)
    assert picture_mode(tmp_path / "new").status == "ok"
    write(tmp_path / "fresh")
    names = [path.name for path in old.glob("*.parquet")]
    assert names and all(hashes(tmp_path / "new")[name] == hashes(tmp_path / "fresh")[name] for name in names)


@pytest.mark.parametrize("layout", ["imagefolder", "webdataset"])
def test_a_card_without_a_mode_is_noted_and_made_again(layout: str, by_format: dict[str, Path], tmp_path: Path) -> None:
    write(tmp_path / "d", format=layout)
    card = tmp_path / "d" / "README.md"
    text = card.read_text()
    assert picture_mode(tmp_path / "d").status == "ok"
    of_old_versions(tmp_path / "d")
    card.write_text(text.replace("mode: RGB", "decode: true"))
    note = picture_mode(tmp_path / "d")
    assert note.status == "note" and "README.md" in note.detail and "\n" not in note.detail
    card.unlink()
    write(tmp_path / "d", format=layout)
    assert card.read_text() == text


def test_an_unfinished_dataset_without_a_mode_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with and without a mode are not mixed in one dataset."""
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "SCHEMA", old_schema())
        unfinish(tmp_path / "d")
    job = tmp_path / "d" / WORK / "job.json"
    told = json.loads(job.read_text())
    del told["versions"]["schema"]
    job.write_text(json.dumps(told))
    _, lines = write(tmp_path / "d")
    assert any("begun with other versions" in line for line in lines)
    write(tmp_path / "fresh")
    finished = {name: digest for name, digest in hashes(tmp_path / "d").items() if not name.startswith(".kept")}
    assert finished == hashes(tmp_path / "fresh")
