"""VL-CheckList: published corpora and run files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from analysis.probe.config import Probe
from analysis.probe.corpora.checklist import read_corpus, read_run_file
from analysis.probe.corpora.selection import sample
from analysis.probe.run import probe

RECORDS: dict[str, list[Any]] = {
    "Attribute/color/vg": [
        ["VG/1.jpg", {"POS": ["red door"], "NEG": ["blue door"]}],
        ["VG/1.jpg", {"POS": ["blue door"], "NEG": [" green door"]}],
        ["VG/1.jpg", {"POS": ["red door"], "NEG": ["blue door"]}],
        ["VG/2.jpg", {"POS": ["red car"], "NEG": ["red car"]}],
        ["VG/3.jpg", {"POS": "white cat", "NEG": ["black  cat"]}],
        ["VG/4.jpg", {"POS": ["gray cat", "grey cat"], "NEG": ["black cat"]}],
        ["VG/5.jpg", {"POS": [], "NEG": ["black dog"]}],
    ],
    "Object/Size/small/swig_item": [
        ["eat_1.jpg", {"POS": ["an man eats", "man eats"], "NEG": ["an dog eats", "dog eats"]}],
        ["VG/../../x.jpg", {"POS": ["a"], "NEG": ["b"]}],
    ],
    "Relation/spatial/vg": [],
}
ROOTS = {"vg": "vg/", "swig_item": "swig"}


def publish(folder: Path, records: Mapping[str, Any] = RECORDS) -> Path:
    """A folder in the published layout."""
    for place, value in records.items():
        source = place.rpartition("/")[2]
        data = folder / "data" / f"{place}.json"
        corpus = folder / "corpus/v1" / f"{place}.yaml"
        for path in (data, corpus):
            path.parent.mkdir(parents=True, exist_ok=True)
        data.write_text(json.dumps(value))
        text = f'ANNO_PATH: "data/{place}.json"\nIMG_ROOT: "{ROOTS.get(source, "vg")}"\nTYPE: "TUPLE_JSON"'
        corpus.write_text(text)
    return folder


def draw(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), "red").save(folder / name)


# Reading -------------------------------------------------------------------------------------------------------------


def test_read_corpus_reads_a_published_corpus_as_it_is(tmp_path: Path) -> None:
    folder = publish(tmp_path / "own")
    (folder / "corpus/v1/Attribute/color/vaw.yaml").write_text(
        "ANNO_PATH: data/none.json\nIMG_ROOT: vg\nTYPE: TUPLE_JSON"
    )
    corpus = read_corpus(folder)
    assert (corpus.name, corpus.kind, corpus.pictures) == ("own", "checklist", folder)
    assert [(one.id, one.image) for one in corpus.items] == [
        ("Object/Size/small/swig_item/0", "swig/eat_1.jpg"),
        ("Object/Size/small/swig_item/1", "swig/VG/../../x.jpg"),
        *((f"Attribute/color/vg/{n}", f"vg/VG/{picture}.jpg") for n, picture in enumerate([1, 1, 1, 2, 3, 4])),
    ]
    assert corpus.items[0].labels == {"size": "small"} and corpus.items[2].labels == {}
    assert (corpus.items[3].negatives, corpus.items[6].positives) == ((" green door",), ("white cat",))
    assert corpus.refused == (
        "Attribute/color/vaw: its data file is missing",
        "Attribute/color/vg/6: has no true or no false sentence",
    )


def test_types_and_data_select(tmp_path: Path) -> None:
    folder = publish(tmp_path)
    assert {one.axis for one in read_corpus(folder, ["Attribute", "Relation/spatial"]).items} == {"Attribute/color"}
    assert {one.source for one in read_corpus(folder, data=["swig_item"]).items} == {"swig_item"}
    for chosen, problem in (
        (
            {"types": ["Attribute/colour"]},
            "types: the corpus has no 'Attribute/colour'; choose from Attribute/color",
        ),
        ({"types": ["Attribute"], "data": ["swig_item"]}, "data: the corpus has no 'swig_item'; choose from vg"),
    ):
        with pytest.raises(ValueError, match=problem):
            read_corpus(folder, chosen.get("types"), chosen.get("data"))


def test_images_stands_above_the_roots_or_for_one_of_them(tmp_path: Path) -> None:
    folder = publish(tmp_path / "corpus")
    draw(tmp_path / "above", "vg/VG/1.jpg")
    assert read_corpus(folder, ["Attribute"], images=tmp_path / "above").items[0].image == "vg/VG/1.jpg"
    above = read_corpus(folder, ["Attribute"], images=tmp_path / "above")
    (tmp_path / "above/vg").rename(tmp_path / "genome")
    corpus = read_corpus(folder, ["Attribute"], images=tmp_path / "genome")
    assert (corpus.items[0].image, corpus.pictures) == ("VG/1.jpg", tmp_path / "genome")
    drawn = [one.id for one in sample(above, 3, 0).items]
    assert [one.id for one in sample(corpus, 3, 0).items] == drawn  # wherever the pictures are
    with pytest.raises(ValueError, match=r"images=.*: there is no such folder"):
        read_corpus(folder, images=tmp_path / "none")


COLOR = "data/Attribute/color/vg.json"
SETTINGS = "corpus/v1/Attribute/color/vg.yaml"
BAD: dict[str, tuple[str, str]] = {
    "cut off": (COLOR, '[["a.jpg", {"POS": ["a"],'),
    "an object": (COLOR, '{"a": 1}'),
    "a number for a sentence": (COLOR, '[["a.jpg", {"POS": ["a"], "NEG": [1]}]]'),
    "a tag": (SETTINGS, "ANNO_PATH: !!python/object/apply:os.getcwd []"),
    "no path": (SETTINGS, "IMG_ROOT: vg"),
    "above": (SETTINGS, "ANNO_PATH: ../x.json\nIMG_ROOT: vg"),
}


@pytest.mark.parametrize("name", BAD)
def test_read_corpus_names_the_file_that_it_cannot_read(name: str, tmp_path: Path) -> None:
    file, content = BAD[name]
    folder = publish(tmp_path)
    (folder / file).write_text(content)
    with pytest.raises(ValueError, match=re.escape(file)) as error:
        read_corpus(folder)
    assert "\n" not in str(error.value)


RUN = {
    "MAX_NUM": 2000, "MODE_NAME": "ALBEF", "BATCH_SIZE": 4, "TASK": "ITC",
    "DATA": {"TYPES": ["Attribute/color"], "TEST_DATA": ["vg"]}, "OUTPUT": {"DIR": "output/albef"},
}  # fmt: skip


def test_strict_fails_on_what_was_left_out(tmp_path: Path) -> None:
    good = ["1.jpg", {"POS": ["a"], "NEG": ["b"]}]
    draw(tmp_path / "c/vg", "1.jpg")

    def run(*records: Any) -> str:
        config = Probe(
            corpus=str(publish(tmp_path / "c", {"Attribute/color/vg": records})),
            out=str(tmp_path / f"out{len(records)}"),
            baselines=False,
            strict=True,
        )
        (result,) = probe(config, lambda _, texts: np.array([text == "a" for text in texts]), log=lambda _: None)
        assert result.coverage
        return f"{result.coverage.scored} of {result.coverage.total}"

    assert run(good) == "1 of 1"
    with pytest.raises(ValueError, match="strict=true"):
        run(good, ["1.jpg", {"POS": ["a"], "NEG": []}])


def test_read_corpus_refuses_a_folder_without_a_corpus(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="corpus/v1"):
        read_corpus(tmp_path)


# Run files -----------------------------------------------------------------------------------------------------------


def run_file(folder: Path, **changed: Any) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(RUN | changed))
    return path


def test_read_run_file_reads_a_published_file(tmp_path: Path) -> None:
    run = read_run_file(run_file(tmp_path))
    assert (run.types, run.data, run.task, run.most, run.batch_size) == (("Attribute/color",), ("vg",), "itc", 2000, 4)
    assert run.out == "output/albef"
    assert read_run_file(run_file(tmp_path, MAX_NUM=None, TASK="itm", MODEL_NAME="x")).most is None


@pytest.mark.parametrize("changed", [{"TASK": "itx"}, {"MAX_NUM": "many"}, {"DATA": None}, {"OUTPUT": {"NUM": 3}}])
def test_read_run_file_names_the_file_that_means_nothing(changed: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"run\.yaml"):
        read_run_file(run_file(tmp_path, **changed))
