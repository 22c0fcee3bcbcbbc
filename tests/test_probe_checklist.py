"""VL-CheckList: reading what is published, writing the same, and the averages of the paper."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from analysis.probe.checklist import (
    SIDECAR,
    TAXONOMY,
    by_axis,
    location_class,
    paper_averages,
    read_corpus,
    read_run,
    size_class,
    write_corpus,
)
from analysis.probe.config import Probe
from analysis.probe.items import Item
from analysis.probe.run import probe
from analysis.probe.selection import sample
from tests.helpers import ROOT

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


def item(number: int, axis: str = "Attribute/color", source: str = "vg", **changed: Any) -> Item:
    plain = Item(f"{axis}/{source}/{number}", f"images/{number}.jpg", ("a",), ("b",), axis, source)
    return replace(plain, **changed)


# Location and size ---------------------------------------------------------------------------------------------------


@given(st.tuples(st.floats(0, 500), st.floats(0, 500), st.floats(1, 400), st.floats(1, 400)), st.integers(1, 900))
def test_classes_are_those_of_the_paper(box: tuple[float, float, float, float], width: int) -> None:
    x, y, w, h = box
    height = 480
    ratio = math.hypot(x + w / 2 - width / 2, y + h / 2 - height / 2) / (math.hypot(width, height) / 2)
    if min(abs(ratio - 1 / 3), abs(ratio - 2 / 3)) > 1e-9:
        assert location_class(box, width, height) == (
            "center" if ratio < 1 / 3 else "mid" if ratio < 2 / 3 else "margin"
        )
    area = w * h
    assert size_class(box, width, height) == ("small" if area <= 1024 else "medium" if area <= 9216 else "large")
    share = area / (width * height)
    if min(abs(share - 1 / 300), abs(share - 0.03)) > 1e-9:
        relative = "small" if share < 1 / 300 else "medium" if share < 0.03 else "large"
        assert size_class(box, width, height, "relative") == relative


def test_limits_belong_to_the_smaller_class() -> None:
    assert [size_class((0, 0, 32, side), 640, 480) for side in (32, 33, 288, 289)] == [
        "small",
        "medium",
        "medium",
        "large",
    ]
    assert [size_class((0, 0, 32, 32), 640 * k, 480 * k, "relative") for k in (1, 2)] == ["small", "small"]
    assert size_class((0, 0, 64, 64), 1280, 960, "relative") == "small"
    # a picture of 30 x 40 has half a diagonal of 25; its centre is at (15, 20)
    assert location_class((14 + 9, 19, 2, 2), 30, 40) == "mid"
    at = [location_class((300 - 1 + d, 400 - 1, 2, 2), 600, 800) for d in (166, 167, 333, 334)]
    assert at == ["center", "mid", "mid", "margin"]  # half the diagonal is 500
    assert location_class((150 - 1 + 50, 200 - 1, 2, 2), 180 + 120, 240 + 160) == "center"


def test_a_grid_of_six_by_six_has_the_known_numbers_of_each_location() -> None:
    cells = [location_class((64 * c, 64 * r, 64, 64), 384, 384) for c in range(6) for r in range(6)]
    assert [cells.count(name) for name in ("center", "mid", "margin")] == [4, 20, 12]


@pytest.mark.parametrize("box", [(0, 0, 0, 5), (0, 0, 5), (0, 0, 5, math.nan), (0, 0, -1, 2)])
def test_boxes_without_area_are_refused(box: Sequence[float]) -> None:
    for of in (location_class, size_class):
        with pytest.raises(ValueError, match="w, h above 0"):
            of(box, 100, 100)
    with pytest.raises(ValueError, match="thresholds=other: choose one of"):
        size_class((0, 0, 1, 1), 10, 10, "other")


# Reading -------------------------------------------------------------------------------------------------------------


def test_a_published_corpus_is_read_as_it_is_and_its_oddities_are_counted(tmp_path: Path) -> None:
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
    ]  # fmt: skip
    assert corpus.items[0].labels == {"size": "small"} and corpus.items[2].labels == {}
    assert (corpus.items[3].negatives, corpus.items[6].positives) == ((" green door",), ("white cat",))
    notes = " / ".join(corpus.notes)
    for said in (
        "1 of 4 data files are missing, and their records left out: Attribute/color (vaw)",
        "1 of 4 data files are empty: Relation/spatial (vg)",
        "records with a bare string in place of a list of sentences: 1 (Attribute/color/vg 1)",
        "malformed records, left out: 1 (Attribute/color/vg 1); the first is Attribute/color/vg/6: POS needs a list",
        "records with more true than false sentences, or fewer: 1 (",
        "records with leading, trailing or double spaces, kept as they are: 2 (",
        "records with a false sentence that equals a true one: nothing can be right there: 1 (",
        "records with a false sentence that is a true one of the same picture in another record: 2 (",
        "records that repeat an earlier one exactly: 1 (",
    ):
        assert said in notes, said


def test_types_and_data_select(tmp_path: Path) -> None:
    folder = publish(tmp_path)
    assert {one.axis for one in read_corpus(folder, ["Attribute", "Relation/spatial"]).items} == {"Attribute/color"}
    assert {one.source for one in read_corpus(folder, data=["swig_item"]).items} == {"swig_item"}
    for chosen, said in (
        (
            {"types": ["Attribute/colour"]},
            "types: nothing is named 'Attribute/colour' there; choose from Attribute/color",
        ),
        ({"types": ["Attr"]}, "types: nothing is named 'Attr'"),
        ({"data": ["vg_obj"]}, "data: nothing is named 'vg_obj' there; choose from swig_item, vg"),
        ({"types": ["Attribute"], "data": ["swig_item"]}, "data: nothing is named 'swig_item'"),
    ):
        with pytest.raises(ValueError, match=said):
            read_corpus(folder, chosen.get("types"), chosen.get("data"))


def test_images_stands_above_the_roots_or_for_one_of_them(tmp_path: Path) -> None:
    folder = publish(tmp_path / "corpus")
    draw(tmp_path / "above", "vg/VG/1.jpg")
    assert read_corpus(folder, ["Attribute"], images=tmp_path / "above").items[0].image == "vg/VG/1.jpg"
    by_name = read_corpus(folder, ["Attribute"], images=tmp_path / "above/vg")
    assert (by_name.items[0].image, by_name.pictures) == ("vg/VG/1.jpg", tmp_path / "above")
    (tmp_path / "above/vg").rename(tmp_path / "genome")
    corpus = read_corpus(folder, ["Attribute"], images=tmp_path / "genome")
    assert (corpus.items[0].image, corpus.pictures) == ("VG/1.jpg", tmp_path / "genome")
    drawn = [one.id for one in sample(by_name, 3, 0).items]
    assert [one.id for one in sample(corpus, 3, 0).items] == drawn  # wherever the pictures are
    with pytest.raises(ValueError, match=r"images=.*: there is no such folder"):
        read_corpus(folder, images=tmp_path / "none")


COLOR = "data/Attribute/color/vg.json"
SETTINGS = "corpus/v1/Attribute/color/vg.yaml"
BAD: dict[str, tuple[str, str | bytes, str]] = {
    "cut off": (COLOR, '[["a.jpg", {"POS": ["a"],', r"vg.json: line 1: not JSON or cut off"),
    "an object": (COLOR, "{}", "vg.json: needs a list of records"),
    "half a character": (COLOR, r'[["a.jpg", {"POS": ["\ud800"], "NEG": ["a"]}]]', "is not text in UTF-8"),
    "deep": (COLOR, "[" * 100_000, "vg.json: not JSON"),
    "a long number": (COLOR, f"[{'9' * 5000}]", "vg.json: "),
    "latin-1": (COLOR, b'[["\xe9.jpg", {}]]', "is not text in UTF-8"),
    "a tag": (SETTINGS, "ANNO_PATH: !!python/object/apply:os.getcwd []", "vg.yaml: could not determine a constructor"),
    "not YAML": (SETTINGS, "ANNO_PATH: [", "vg.yaml: while parsing"),
    "a word": (SETTINGS, "vg", "vg.yaml: needs lines such as NAME: value"),
    "no path": (SETTINGS, "IMG_ROOT: vg", "vg.yaml: ANNO_PATH is missing"),
    "above": (SETTINGS, "ANNO_PATH: ../x.json\nIMG_ROOT: vg", "ANNO_PATH: ../x.json leaves the folder"),
    "the root": (
        SETTINGS,
        "ANNO_PATH: data/x.json\nIMG_ROOT: /vg",
        "/vg leaves the folder of the corpus; give images=",
    ),
    "large": (SETTINGS, "#" * ((1 << 20) + 1), "vg.yaml: needs lines"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    file, content, said = BAD[name]
    folder = publish(tmp_path)
    (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ValueError, match=said) as error:
        read_corpus(folder)
    assert "\n" not in str(error.value)


RUN = {
    "MAX_NUM": 2000, "MODE_NAME": "ALBEF", "BATCH_SIZE": 4, "TASK": "ITC",
    "DATA": {"TYPES": ["Attribute/color"], "TEST_DATA": ["vg"]}, "OUTPUT": {"DIR": "output/albef"},
}  # fmt: skip
junk = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.sampled_from(["POS", "a.jpg"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["POS", "NEG", "x"]), inner, max_size=3),
        st.tuples(st.text(max_size=3), st.fixed_dictionaries({"POS": inner, "NEG": inner})),
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(
    data=st.one_of(junk.map(json.dumps), st.text()),
    run=st.one_of(
        st.builds(lambda key, value: json.dumps(RUN | {key: value}), st.sampled_from([*RUN]), junk), st.text()
    ),
)
def test_whatever_a_file_holds_is_read_or_refused_in_one_line(
    data: str, run: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = publish(tmp_path_factory.mktemp("junk"), {"Attribute/color/vg": []})
    (folder / COLOR).write_bytes(data.encode(errors="surrogatepass"))
    (folder / "run.yaml").write_bytes(run.encode(errors="surrogatepass"))
    for read in (lambda: read_corpus(folder).digest, lambda: read_run(folder / "run.yaml")):
        try:
            read()
        except ValueError as error:
            assert "\n" not in str(error) and ("vg.json" in str(error) or "run.yaml" in str(error))


MALFORMED = {
    "three parts": (["a.jpg", {"POS": ["a"], "NEG": ["b"]}, 1], "needs [picture, {POS: …, NEG: …}]"),
    "a number": (5, "needs [picture, {POS: …, NEG: …}]"),
    "no name": ([None, {"POS": ["a"], "NEG": ["b"]}], "needs [picture, {POS: …, NEG: …}]"),
    "a number for a sentence": (["a.jpg", {"POS": ["a"], "NEG": [1]}], "NEG needs a list of sentences"),
    "no NEG": (["a.jpg", {"POS": ["a"]}], "NEG needs a list of sentences"),
    "empty": (["a.jpg", {"POS": [], "NEG": ["a"]}], "POS needs a list of sentences"),
}


def test_malformed_records_are_counted_and_the_others_kept(tmp_path: Path) -> None:
    good = ["VG/1.jpg", {"POS": ["a"], "NEG": ["b"]}]
    records = [good, *(record for record, _ in MALFORMED.values()), good]
    folder = publish(tmp_path / "c", {"Attribute/color/vg": records, "Relation/spatial/vg": [good]})
    (folder / "data/Relation/spatial/vg.json").unlink()
    corpus = read_corpus(folder)
    assert [one.id for one in corpus.items] == ["Attribute/color/vg/0", "Attribute/color/vg/7"]
    whys = [f"Attribute/color/vg/{n}: {why}" for n, (_, why) in enumerate(MALFORMED.values(), 1)]
    assert corpus.refused == (*whys, "Relation/spatial/vg: its data file is missing")
    assert f"malformed records, left out: 6 (Attribute/color/vg 6); the first is {whys[0]}" in corpus.notes


def test_strict_fails_on_what_was_left_out(tmp_path: Path) -> None:
    good = ["1.jpg", {"POS": ["a"], "NEG": ["b"]}]
    draw(tmp_path / "c/vg", "1.jpg")

    def run(*records: Any) -> str:
        config = Probe(
            corpus=str(publish(tmp_path / "c", {"Attribute/color/vg": records})),
            out=str(tmp_path / f"out{len(records)}"),
            floors=False,
            strict=True,
        )
        (result,) = probe(config, lambda _, texts: np.array([text == "a" for text in texts]), say=lambda _: None)
        assert result.coverage
        return f"{result.coverage.scored} of {result.coverage.total}"

    assert run(good) == "1 of 1"
    with pytest.raises(
        ValueError, match=r"strict=true: left out of the corpus: 1; the first is Attribute/color/vg/1: "
    ):
        run(good, ["1.jpg"])


@pytest.mark.parametrize("name", ["x" * 5000, r"a\0b"])
def test_a_data_file_with_a_name_that_no_file_has_is_missing(name: str, tmp_path: Path) -> None:
    folder = publish(tmp_path)
    (folder / SETTINGS).write_text(f'ANNO_PATH: "{name}"\nIMG_ROOT: vg')
    assert "Attribute/color/vg: its data file is missing" in read_corpus(folder).refused


def test_a_folder_without_a_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no corpus/v1/"):
        read_corpus(tmp_path)


names = st.text("abcXY_ 1", max_size=6).map(lambda name: f"n{name}n")
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
sentences = st.lists(texts, min_size=1, max_size=3).map(tuple)


@st.composite
def corpora(draw: st.DrawFn) -> list[Item]:
    axes = draw(st.lists(st.tuples(st.sampled_from(TAXONOMY), names), min_size=1, max_size=3, unique=True))
    return [
        Item(
            f"{axis}/{source}/{number}", f"images/{draw(names)}", draw(sentences), draw(sentences), axis, source,
            draw(st.sampled_from(["", "p1"])), {"location": draw(names)},
        )
        for axis, source in sorted(axes, key=lambda one: (TAXONOMY.index(one[0]), f"{one[0]}/{one[1]}"))
        for number in range(draw(st.integers(1, 3)))
    ]  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(items=corpora())
def test_a_corpus_that_was_written_reads_the_same(items: list[Item], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, items)
    write_corpus(folder, items)  # the same once more is no other corpus
    read = {one.id: one for one in read_corpus(folder).items}
    for one in items:
        size = {"size": one.axis.rpartition("/")[2]} if one.axis.startswith("Object/Size/") else {}
        assert read.pop(one.id) == replace(one, labels=size | dict(one.labels))
    assert not read


def test_no_other_corpus_is_overwritten_and_none_is_written_outside(tmp_path: Path) -> None:
    write_corpus(tmp_path / "a", [item(0)])
    with pytest.raises(ValueError, match="holds another corpus"):
        write_corpus(tmp_path / "a", [item(0, positives=("c",))])
    with pytest.raises(ValueError, match="holds another corpus"):
        write_corpus(publish(tmp_path / "b"), [item(0)])
    for wrong in ({"image": "images/../../x.jpg"}, {"image": "x.jpg"}, {"axis": "../x"}, {"source": "a/b"}):
        with pytest.raises(ValueError, match="must"):
            write_corpus(tmp_path / "c", [item(0, **wrong)])
    (tmp_path / "a" / SIDECAR).write_text("{}\n")
    with pytest.raises(ValueError, match=r"items\.jsonl: line 1: is not an item"):
        read_corpus(tmp_path / "a")


# Run files -----------------------------------------------------------------------------------------------------------


def run_file(folder: Path, **changed: Any) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(RUN | changed))
    return path


def test_a_published_run_file_is_read(tmp_path: Path) -> None:
    run = read_run(run_file(tmp_path, BATCH_SIZES=3))
    assert (run.types, run.data, run.task, run.most, run.batch_size) == (("Attribute/color",), ("vg",), "itc", 2000, 4)
    assert (run.out, run.examples, run.model) == ("output/albef", 5, "ALBEF")
    assert run.unknown == ("BATCH_SIZES (did you mean BATCH_SIZE?)",)
    assert read_run(run_file(tmp_path, MAX_NUM=None, TASK="itm", MODEL_NAME="x")).most is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"TASK": "itx"}, "TASK: itx: choose one of itc, itm"),
        ({"TASK": "i\n" * 100}, "TASK: i i i i .*…: choose one of itc, itm"),
        ({"MAX_NUM": -1}, "MAX_NUM: -1: needs a whole number"),
        ({"BATCH_SIZE": 0}, "BATCH_SIZE: 0: needs a whole number of at least 1"),
        ({"BATCH_SIZE": True}, "BATCH_SIZE: True"),
        ({"DATA": None}, "DATA is missing; it needs TYPES and TEST_DATA"),
        ({"DATA": {"TYPES": [], "TEST_DATA": ["vg"]}}, "DATA.TYPES: needs a list of names"),
        ({"OUTPUT": {"NUM": 3}}, "OUTPUT.DIR: needs a name"),
    ],
)
def test_run_files_that_mean_nothing_are_refused(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said) as error:
        read_run(run_file(tmp_path, **changed))
    assert "\n" not in str(error.value)
    (tmp_path / "none.yaml").write_text("TASK: itc\nDATA: {TYPES: a, TEST_DATA: b}\nOUTPUT: {DIR: o}")
    with pytest.raises(ValueError, match="MAX_NUM is missing"):
        read_run(tmp_path / "none.yaml")


# Averages ------------------------------------------------------------------------------------------------------------

# What the paper prints, averages last: Table 3 (large, medium, small, center, mid, margin), Table 4 (action, spatial,
# then as Table 3), Table 5 (color, material, size, state, action, then as Table 3), and the mean of Table 2.
PRINTED = {
    "LXMERT": ([84.94, 82.05, 79.01, 84.56, 83.84, 79.77, 82.36],
               [61.47, 57.4, 57.70, 57.36, 53.37, 57.37, 56.43, 52.04, 57.57],
               [81.85, 82.15, 70.00, 68.63, 76.35, 82.25, 77.10, 75.36, 77.50, 79.25, 79.25, 77.12], 72.35),
    "UNITER": ([85.27, 81.12, 78.06, 85.69, 83.64, 77.84, 81.94],
               [69.17, 61.5, 64.73, 66.17, 60.31, 63.33, 63.70, 65.60, 64.65],
               [76.20, 75.75, 63.45, 68.10, 72.55, 74.90, 69.45, 68.49, 72.05, 73.30, 70.25, 71.31], 72.63),
    "OSCAR": ([81.43, 78.53, 74.93, 80.91, 78.59, 74.24, 78.10],
              [69.6, 72.6, 67.65, 65.65, 61.50, 70.70, 67.00, 63.43, 68.54],
              [68.80, 58.25, 52.65, 62.31, 67.60, 64.80, 59.15, 58.18, 65.75, 59.15, 56.80, 61.28], 69.31),
    "ViLT": ([88.58, 85.29, 82.18, 88.61, 86.65, 86.59, 86.32],
             [64.57, 66.6, 62.37, 62.97, 62.36, 60.80, 62.33, 61.20, 63.79],
             [86.45, 86.35, 71.40, 70.26, 80.00, 83.45, 81.90, 78.67, 81.60, 83.20, 82.20, 80.36], 76.82),
    "ALBEF": ([84.33, 80.25, 76.92, 82.87, 80.91, 81.19, 81.08],
              [70.47, 64.6, 65.17, 67.06, 61.59, 65.57, 65.73, 67.13, 66.45],
              [84.20, 87.30, 69.45, 72.08, 81.65, 86.65, 77.05, 71.13, 85.50, 80.00, 78.05, 79.33], 75.62),
    "TCL": ([86.15, 79.96, 74.91, 85.01, 83.21, 80.26, 81.58],
            [69.17, 59.4, 66.90, 62.34, 58.17, 66.57, 63.97, 62.60, 63.85],
            [83.00, 85.20, 63.45, 73.10, 82.85, 85.40, 76.65, 71.47, 83.50, 79.75, 77.40, 78.27], 74.57),
    "CLIP": ([88.77, 81.82, 75.65, 88.48, 85.80, 76.47, 82.83],
             [74.07, 49.1, 71.07, 65.17, 60.74, 71.33, 68.40, 64.03, 64.19],
             [72.90, 73.60, 65.20, 63.74, 74.25, 69.30, 65.90, 61.33, 69.85, 67.20, 62.00, 67.93], 71.65),
}  # fmt: skip
PLACES = ["Size/large", "Size/medium", "Size/small", "Location/center", "Location/mid", "Location/margin"]
COLUMNS = {
    "Object": PLACES,
    "Relation": ["action", "spatial", *PLACES],
    "Attribute": ["color", "material", "size", "state", "action", *PLACES],
}


@pytest.mark.parametrize("model", PRINTED)
def test_the_averages_are_those_that_the_paper_prints(model: str) -> None:
    *tables, overall = PRINTED[model]
    scores = {f"{top}/{place}": value for (top, places), table in zip(COLUMNS.items(), tables, strict=True)
              for place, value in zip(places, table, strict=False)}  # fmt: skip
    averages = {one.name: one.value for one in paper_averages(scores)}
    for top, table in zip(COLUMNS, tables, strict=True):
        assert averages[top] == pytest.approx(table[-1], abs=0.01), top
    assert averages["all"] == pytest.approx(overall, abs=0.01)


def test_an_average_names_the_axes_that_it_lacks() -> None:
    averages = {one.name: one for one in paper_averages({axis: 50.0 for axis in TAXONOMY})}
    assert averages["Object"].value == 50 and averages["Attribute, text level"].value == 50
    assert averages["Attribute"].value is None and averages["Attribute"].lacking[0] == "Attribute/Size/large"
    assert averages["all"].value is None
    assert len(TAXONOMY) == 13


def test_sources_of_a_dataset_are_averaged_before_datasets() -> None:
    scores = {("a", "vg_obj"): 10.0, ("a", "vg_subj"): 20.0, ("a", "hake"): 45.0, ("b", "vg"): 1.0}
    assert by_axis(scores) == {"a": 30.0, "b": 1.0}


def test_reading_and_scoring_load_nothing_heavy() -> None:
    heavy = {"torch", "transformers", "pandas", "matplotlib", "sklearn"}
    names = "analysis.probe.evaluate, analysis.probe.predicate_noun, analysis.probe.negatives"
    program = f"import sys, {names}; print(sorted(set(sys.modules) & {heavy}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
