"""VL-CheckList: its folder and its run files become datasets."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from tests.corpus_files import convert, draw, facts, forms
from travlr.corpora import item_columns
from travlr.corpora.checklist import Checklist, read_run_file

RECORDS: dict[str, list[Any]] = {
    "Attribute/color/vg": [
        ["VG_100K/1.jpg", {"POS": ["brown knob"], "NEG": ["teal knob"]}],
        ["VG_100K/2.jpg", {"POS": ["woman IN pink vest"], "NEG": [" woman IN  white vest"]}],
        ["VG_100K/1.jpg", {"POS": ["brown knob"], "NEG": ["brown knob"]}],
        ["VG_100K/9.jpg", {"POS": ["red car"], "NEG": ["blue car"]}],
        ["VG_100K/1.jpg", {"POS": "old door", "NEG": ["new door"]}],
        ["VG_100K/1.jpg", {"POS": [], "NEG": ["black dog"]}],
    ],
    "Object/Size/small/swig_item": [
        ["eat_1.jpg", {"POS": ["an man eats", "man eats"], "NEG": ["an dog eats", "dog eats"]}],
        ["../../x.jpg", {"POS": ["a"], "NEG": ["b"]}],
    ],
    "Object/Size/small/swig_place": [],
}  # fmt: skip
PICTURES = ("vg/VG_100K/1.jpg", "vg/VG_100K/2.jpg", "swig/eat_1.jpg")


def publish(folder: Path, records: dict[str, list[Any]] = RECORDS) -> Path:
    """A folder in the published layout. One YAML file names a file that is missing."""
    for place in [*records, "Attribute/color/vaw"]:
        for path in (folder / "data" / f"{place}.json", folder / "corpus/v1" / f"{place}.yaml"):
            path.parent.mkdir(parents=True, exist_ok=True)
        root = "swig/" if "swig" in place else "vg"
        (folder / "corpus/v1" / f"{place}.yaml").write_text(
            f'ANNO_PATH: "data/{place}.json"\nIMG_ROOT: "{root}"\nTYPE: "TUPLE_JSON"'
        )
        if place in records:
            (folder / "data" / f"{place}.json").write_text(json.dumps(records[place]))
    draw(folder, *PICTURES)
    return folder


def test_convert_keeps_all_sentences(tmp_path: Path) -> None:
    dataset = convert(publish(tmp_path / "corpus"), tmp_path / "out")
    expected = []
    for place, records in RECORDS.items():
        for image, sentences in records:
            path = f"{'swig' if 'swig' in place else 'vg'}/{image}"
            true, false = ([s] if isinstance(s := sentences[name], str) else s for name in ("POS", "NEG"))
            if path in PICTURES and true and true != false:
                expected += [(path, text, text in true) for text in (*true, *false)]
    assert sorted(facts(dataset)) == sorted(expected) and len(expected) == 10
    of_object = [form for form in forms(dataset) if form["item"].startswith("Object")]
    assert {form["item"] for form in of_object} == {"Object/Size/small/swig_item/0"}
    assert of_object[0]["labels"] == {"size": "small"}
    axes = item_columns(dataset, "test_ind")
    assert set(zip(axes["axis"], axes["source"], strict=True)) == {
        ("Attribute/color", "vg"),
        ("Object/Size/small", "swig_item"),
    }
    notes = "\n".join(dataset.manifest["corpus"]["notes"])
    assert "vaw" in notes
    for pattern in ("2 files", r"missing.* 1 item.*vg/VG_100K/9\.jpg", "folder.* 1 item", "true one.* 1 item"):
        assert re.search(pattern, notes), pattern


def test_types_and_data_choose_files(tmp_path: Path) -> None:
    folder = publish(tmp_path)
    assert {item.axis for item in Checklist(types=("Attribute",)).read(folder).items} == {"Attribute/color"}
    assert {item.axis for item in Checklist(data=("swig_item",)).read(folder).items} == {"Object/Size/small"}
    with pytest.raises(ValueError, match="Attribute/color"):
        Checklist(types=("Attribute/colour",)).read(folder)
    with pytest.raises(ValueError, match="swig_item"):
        Checklist(data=("swig",)).read(folder)


def test_images_stands_above_the_roots_or_for_one_of_them(tmp_path: Path) -> None:
    folder = publish(tmp_path / "corpus")
    (folder / "vg").rename(tmp_path / "genome")
    dataset = convert(folder, tmp_path / "out", images=tmp_path / "genome", types="Attribute")
    assert {picture for picture, *_ in facts(dataset)} == {"VG_100K/1.jpg", "VG_100K/2.jpg"}


RUN = {
    "MAX_NUM": 4, "MODE_NAME": "ALBEF", "BATCH_SIZE": 4, "TASK": "ITC",
    "DATA": {"TYPES": ["Attribute/color"], "TEST_DATA": ["vg"]}, "OUTPUT": {"DIR": "output/albef", "NUM": 5},
}  # fmt: skip


def test_run_file_takes_records_with_a_picture(tmp_path: Path) -> None:
    records = RECORDS["Attribute/color/vg"]
    publish(tmp_path, {"Attribute/color/vg": [records[3], *records]})  # one without a picture first
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/run.yaml").write_text(yaml.safe_dump(RUN))
    dataset = convert(tmp_path / "configs/run.yaml", tmp_path / "out")
    assert Counter(answer for *_, answer in facts(dataset)) == {True: 2, False: 2}
    assert {text for _, text, answer in facts(dataset) if answer} == {"brown knob", "woman IN pink vest"}
    assert dataset.manifest["corpus"]["options"]["types"] == ["Attribute/color"]
    run = read_run_file(tmp_path / "configs/run.yaml")
    assert (run.types, run.data, run.most, run.task, run.out) == (
        ("Attribute/color",), ("vg",), 4, "itc", "output/albef",
    )  # fmt: skip


@pytest.mark.parametrize("changed", [{"TASK": "itx"}, {"MAX_NUM": "many"}, {"DATA": None}, {"OUTPUT": {"NUM": 3}}])
def test_read_run_file_names_a_file_that_means_nothing(tmp_path: Path, changed: dict[str, Any]) -> None:
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(RUN | changed))
    with pytest.raises(ValueError, match=r"run\.yaml"):
        read_run_file(tmp_path / "run.yaml")


COLOR, SETTINGS = "data/Attribute/color/vg.json", "corpus/v1/Attribute/color/vg.yaml"
BAD = {
    "cut off": (COLOR, '[["a.jpg", {"POS": ["a"],'),
    "a number for a sentence": (COLOR, '[["a.jpg", {"POS": ["a"], "NEG": [1]}]]'),
    "a tag": (SETTINGS, "ANNO_PATH: !!python/object/apply:os.getcwd []"),
    "no path": (SETTINGS, "IMG_ROOT: vg"),
    "above": (SETTINGS, "ANNO_PATH: ../x.json\nIMG_ROOT: vg"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_of_another_form_is_named(tmp_path: Path, name: str) -> None:
    file, content = BAD[name]
    (publish(tmp_path) / file).write_text(content)
    with pytest.raises(ValueError, match=Path(file).name):
        Checklist().read(tmp_path)


BOXES: dict[str, list[Any]] = {
    "relationships.json": [
        {"image_id": 2, "relationships": [
            {"predicate": "in", "subject": {"name": "woman", "x": 6, "y": 1, "w": 2, "h": 2},
             "object": {"names": ["pink vest"], "x": 7, "y": 2, "w": 3, "h": 4}},
        ]},
    ],
    "attributes.json": [{"image_id": 2, "attributes": [
        {"names": ["vest"], "x": 0, "y": 0, "w": 1, "h": 1},
        {"names": ["IN pink vest"], "attributes": ["old", "woman"], "x": 6, "y": 1, "w": 4, "h": 5},
    ]}],
    "boxes.jsonl": [{"image": "VG_100K/2.jpg", "text": "woman IN pink vest", "box": [6, 1, 4, 5]}],
}  # fmt: skip


@pytest.mark.parametrize("name", BOXES)
def test_crop_shows_the_region_that_the_annotations_give_the_sentence(tmp_path: Path, name: str) -> None:
    publish(tmp_path)
    lines = [json.dumps(record) for record in BOXES[name]]
    (tmp_path / name).write_text("\n".join(lines) if name.endswith("l") else f"[{','.join(lines)}]")
    dataset = convert(tmp_path, tmp_path / "out", crop=tmp_path / name, types="Attribute")
    assert [text for _, text, answer in facts(dataset) if answer] == ["woman IN pink vest"]
    pixels = np.asarray(Image.open(tmp_path / "vg/VG_100K/2.jpg"))[1:6, 6:10]
    assert (np.asarray(dataset["test_ind"][0].picture()) == pixels).all()
    assert any("box" in note and "4 items" in note for note in dataset.manifest["corpus"]["notes"])


def test_crop_without_a_file_of_boxes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="crop=true"):
        Checklist(crop="true").read(publish(tmp_path))
