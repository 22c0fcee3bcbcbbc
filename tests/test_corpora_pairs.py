"""Sets of pictures with true and false captions: SugarCrepe, ARO, Winoground and the plain form."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

from tests.corpus_files import convert, draw, facts, forms
from travlr.convert import main
from travlr.corpora import is_corpus, item_columns
from travlr.corpora.pairs import Pairs

SUGARCREPE = {  # two of its seven files
    "swap_att": {str(n): [f"{n}.jpg", f"a red dog and {n} cats", f"{n} red cats and a dog"] for n in range(30)},
    "add_obj": {str(n): [f"{n % 2}.jpg", f"a bed {n}", f"a bed {n} and a lamp"] for n in range(5)},
}


def publish_sugarcrepe(folder: Path) -> Path:
    folder.mkdir()
    for name, records in SUGARCREPE.items():
        keys = ("filename", "caption", "negative_caption")
        published = {key: dict(zip(keys, values, strict=True)) for key, values in records.items()}
        (folder / f"{name}.json").write_text(json.dumps(published))
    draw(folder / "images", *(f"{n}.jpg" for n in range(30) if n != 7))
    return folder


def test_sugarcrepe_becomes_a_dataset_without_its_missing_pictures(tmp_path: Path) -> None:
    dataset = convert(publish_sugarcrepe(tmp_path / "sugar"), tmp_path / "out", name="SugarCrepe")
    there = [record for records in SUGARCREPE.values() for record in records.values() if record[0] != "7.jpg"]
    expected = [(image, text, text == true) for image, true, false in there for text in (true, false)]
    assert sorted(facts(dataset)) == sorted(expected)
    example = dataset["test_ind"][0]
    assert example.image == (tmp_path / "sugar/images" / facts(dataset)[0][0]).read_bytes()  # the file as it is
    assert (example.caption, example.task, example.scene, example.picture().size) == ("", "match", (), (12, 8))
    assert dataset.manifest["corpus"]["name"] == "SugarCrepe"
    (note,) = dataset.manifest["corpus"]["notes"]
    assert "missing" in note and "1 item" in note and "7.jpg" in note


def test_aro_shows_its_boxes_where_asked(tmp_path: Path) -> None:
    record = {
        "image_path": "1.jpg", "true_caption": "dog behind tree", "false_caption": "tree behind dog",
        "bbox_x": 2, "bbox_y": 1, "bbox_w": 20, "bbox_h": 4, "relation_name": "behind",
    }  # fmt: skip
    (tmp_path / "visual_genome_relation.json").write_text(json.dumps([record]))
    draw(tmp_path / "images", "1.jpg")
    whole = convert(tmp_path / "visual_genome_relation.json", tmp_path / "whole")
    cropped = convert(tmp_path / "visual_genome_relation.json", tmp_path / "cropped", crop="true")
    assert facts(whole) == [("1.jpg", "dog behind tree", True), ("1.jpg", "tree behind dog", False)]
    assert "crop=true" in whole.manifest["corpus"]["notes"][0] and not cropped.manifest["corpus"]["notes"]
    pixels = np.asarray(Image.open(tmp_path / "images/1.jpg"))[1:5, 2:12]
    assert (np.asarray(cropped["test_ind"][1].picture()) == pixels).all()
    assert forms(cropped)[0]["labels"] == {"relation": "behind"}
    assert cropped["test_ind"][0].pair == ("visual_genome_relation",)


def test_winoground_is_two_items_that_exchange_their_captions(tmp_path: Path) -> None:
    record = {
        "id": 4, "image_0": "ex_4_img_0", "image_1": "ex_4_img_1", "caption_0": "a plant eats a dog",
        "caption_1": "a dog eats a plant", "tag": "Noun", "secondary_tag": "", "num_main_preds": 1,
        "collapsed_tag": "Object",
    }  # fmt: skip
    lines = [json.dumps(record), json.dumps(record | {"collapsed_tag": "Both"})]
    (tmp_path / "examples.jsonl").write_text("\n".join(lines))
    draw(tmp_path / "images", "ex_4_img_0.png", "ex_4_img_1.png")
    dataset = convert(tmp_path / "examples.jsonl", tmp_path / "out")
    first, second = "a plant eats a dog", "a dog eats a plant"
    expected = [("ex_4_img_0.png", first, True), ("ex_4_img_0.png", second, False)]
    expected += [("ex_4_img_1.png", second, True), ("ex_4_img_1.png", first, False)]
    assert facts(dataset) == expected * 2
    columns = item_columns(dataset, "test_ind")
    assert list(columns["axis"]) == ["Object"] * 4 + ["Both"] * 4
    assert [len(set(columns["couple"][:4])), len(set(columns["item"][:4])), len(set(columns["couple"]))] == [1, 2, 2]


PLAIN: list[dict[str, Any]] = [
    {"image": "a.png", "true": ["x", "y"], "false": ["z"], "axis": "Attribute/color", "source": "vg", "couple": "c",
     "box": [0, 0, 99, 99]},
    {"image": "b.webp", "true": ["z"], "false": ["x"], "axis": "Attribute/color", "source": "vg", "couple": "c",
     "labels": {"word": "z"}, "box": [0, 0, 3, 3]},
    {"image": "a.png", "true": ["same"], "false": ["same"], "box": [0, 0, 1, 1]},
    {"image": "a.png", "true": ["no"], "false": ["box"]},
]  # fmt: skip


def test_the_plain_form_says_all_that_a_row_can_hold(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(json.dumps(PLAIN))
    draw(tmp_path, "a.png", "b.webp")
    dataset = convert(tmp_path / "own.json", tmp_path / "out", images=tmp_path, crop="true")
    truths = [("a.png", "x", True), ("a.png", "y", True), ("a.png", "z", False), ("b.webp", "z", True)]
    assert facts(dataset) == [*truths, ("b.webp", "x", False)]
    assert [form["couple"] for form in forms(dataset)] == ["own/c"] * 5 and forms(dataset)[4]["labels"] == {"word": "z"}
    assert {example.pair for example in dataset["test_ind"]} == {("Attribute/color", "vg")}
    assert Image.open(io.BytesIO(dataset["test_ind"][3].image)).format == "PNG"
    assert dataset["test_ind"][3].picture().size == (3, 3)
    assert any("true one" in note and "1 item" in note for note in dataset.manifest["corpus"]["notes"])


@pytest.mark.parametrize(
    "name, data",
    [("file.bin", b"\x00\x01"), ("short.png", None), ("../out.png", None), ("/etc/hostname", None), ("x" * 300, None)],
)
def test_a_picture_that_cannot_be_read_is_counted(tmp_path: Path, name: str, data: bytes | None) -> None:
    draw(tmp_path / "images", "a.png", "short.png", "../out.png")
    (tmp_path / "images/short.png").write_bytes((tmp_path / "images/a.png").read_bytes()[:60])
    if data:
        (tmp_path / "images" / name).write_bytes(data)
    records = [{"image": image, "true": ["x"], "false": ["z"]} for image in ("a.png", name)]
    (tmp_path / "own.json").write_text(json.dumps(records))
    dataset = convert(tmp_path / "own.json", tmp_path / "data")
    assert facts(dataset) == [("a.png", "x", True), ("a.png", "z", False)]
    assert "1 item" in dataset.manifest["corpus"]["notes"][0]


def test_a_transparent_picture_stands_on_white(tmp_path: Path) -> None:
    Image.new("RGBA", (4, 4), (255, 0, 0, 0)).save(tmp_path / "a.png")
    (tmp_path / "own.json").write_text(json.dumps([{"image": "a.png", "true": ["x"], "false": ["z"]}]))
    dataset = convert(tmp_path / "own.json", tmp_path / "out")
    assert (np.asarray(dataset["test_ind"][0].picture()) == 255).all()


@pytest.mark.parametrize(
    "text, places",
    [
        ('{"image": "a.png", "true": "x", "false": "y"}\n\n{"image": "a.png", "true": "x"}', ("line 3", "false")),
        ('{"image": "a.png", "true": "x", "false": "y", "axs": "z"}', ("line 1", "axs", "axis")),
        ('{"image": "a.png"}\n{"image": "a.p', ("line 2",)),
        ('{"filename": "a.png", "negative_caption": "x"}', ("line 1", "caption")),
    ],
)
def test_a_bad_record_is_named_with_line_and_key(tmp_path: Path, text: str, places: tuple[str, ...]) -> None:
    (tmp_path / "bad.jsonl").write_text(text)
    with pytest.raises(ValueError) as error:
        Pairs().read(tmp_path / "bad.jsonl")
    assert all(place in str(error.value) for place in ("bad.jsonl", *places)) and "setting" not in str(error.value)


@pytest.mark.parametrize(
    "text",
    ["[{", "5", '[{"image": "a.png"}]', '[{"image": "a.png", "true": [], "false": ["x"]}]', '[["a"]]',
     '[{"image": "a.png", "true": ["x"], "false": [1]}]', '[{"filename": "a.png", "negative_caption": "x"}]'],
)  # fmt: skip
def test_convert_names_a_malformed_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ValueError, match=r"bad\.json") as error:
        convert(tmp_path / "bad.json", tmp_path / "out")
    assert "\n" not in str(error.value)


def test_a_converted_corpus_opens_elsewhere(tmp_path: Path) -> None:
    dataset = convert(publish_sugarcrepe(tmp_path / "sugar"), tmp_path / "out")
    assert is_corpus(dataset)
    expected = [(query, answer) for _, query, answer in facts(dataset)]
    for layout in ("parquet", "imagefolder"):
        folder = tmp_path / ("out" if layout == "parquet" else layout)
        if layout != "parquet":
            assert main([str(tmp_path / "out"), str(folder), f"format={layout}"]) == 0
        rows = datasets.load_dataset(str(folder), split="test_ind", cache_dir=str(tmp_path / "cache"))
        assert sorted(zip(rows["query"], rows["answer"], strict=True)) == sorted(expected)
        assert rows[0]["image"].size == (12, 8)


def test_a_webdataset_of_png_and_jpeg_loads_every_picture(tmp_path: Path) -> None:
    names = [f"{n}.{'jpg' if n % 2 else 'png'}" for n in range(8)]
    draw(tmp_path, *names)
    records = [{"image": name, "true": "x", "false": "y"} for name in names]
    (tmp_path / "own.json").write_text(json.dumps(records))
    dataset = convert(tmp_path / "own.json", tmp_path / "out")
    assert main([str(tmp_path / "out"), str(tmp_path / "tar"), "format=webdataset"]) == 0
    rows = datasets.load_dataset(str(tmp_path / "tar"), split="test_ind", cache_dir=str(tmp_path / "cache"))
    (column,) = set(rows.column_names) & {"png", "jpg"}
    for row, example in zip(rows, dataset["test_ind"], strict=True):
        assert np.array_equal(np.asarray(row[column].convert("RGB")), np.asarray(example.picture()))


def test_a_picture_of_several_sentences_is_stored_once(tmp_path: Path) -> None:
    draw(tmp_path, "a.png", size=(300, 300))
    record = {"image": "a.png", "true": ["x"], "false": [str(n) for n in range(30)]}
    (tmp_path / "own.json").write_text(json.dumps([record]))
    convert(tmp_path / "own.json", tmp_path / "out")
    size = sum(path.stat().st_size for path in (tmp_path / "out").glob("*.parquet"))
    assert size < 1.2 * (tmp_path / "a.png").stat().st_size
