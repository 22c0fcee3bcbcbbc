"""VL-CheckList: reading what is published, and writing the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from analysis.probe.config import Probe
from analysis.probe.corpora.checklist import read_corpus, read_run_file
from analysis.probe.corpora.selection import sample
from analysis.probe.run import probe
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
    for note in (
        r"missing data files.*: 1 of 4, Attribute/color \(vaw\)",
        r"empty data files: 1 of 4, Relation/spatial \(vg\)",
        r"bare string.*: 1 \(Attribute/color/vg 1\)",
        r"malformed records.*: 1 \(Attribute/color/vg 1\); the first is Attribute/color/vg/6: POS needs a list",
        r"more true than false.*: 1 \(",
        r"double spaces.*: 2 \(",
        r"equals a true one.*: 1 \(",
        r"in another record: 2 \(",
        r"repeats.*: 1 \(",
    ):
        assert re.search(note, notes), note


def test_types_and_data_select(tmp_path: Path) -> None:
    folder = publish(tmp_path)
    assert {one.axis for one in read_corpus(folder, ["Attribute", "Relation/spatial"]).items} == {"Attribute/color"}
    assert {one.source for one in read_corpus(folder, data=["swig_item"]).items} == {"swig_item"}
    for chosen, problem in (
        (
            {"types": ["Attribute/colour"]},
            "types: the corpus has no 'Attribute/colour'; choose from Attribute/color",
        ),
        ({"types": ["Attr"]}, "types: the corpus has no 'Attr'"),
        ({"data": ["vg_obj"]}, "data: the corpus has no 'vg_obj'; choose from swig_item, vg"),
        ({"types": ["Attribute"], "data": ["swig_item"]}, "data: the corpus has no 'swig_item'; choose from vg"),
    ):
        with pytest.raises(ValueError, match=problem):
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
    "an alias": (SETTINGS, "x: &x [y]\nANNO_PATH: *x", r"vg.yaml: \*x: aliases are not read"),
    "not YAML": (SETTINGS, "ANNO_PATH: [", "vg.yaml: while parsing"),
    "a word": (SETTINGS, "vg", "vg.yaml: needs lines such as NAME: value"),
    "no path": (SETTINGS, "IMG_ROOT: vg", "vg.yaml: ANNO_PATH is missing"),
    "above": (SETTINGS, "ANNO_PATH: ../x.json\nIMG_ROOT: vg", "ANNO_PATH: ../x.json leaves the folder"),
    "the root": (
        SETTINGS,
        "ANNO_PATH: data/x.json\nIMG_ROOT: /vg",
        "/vg leaves the folder of the corpus; give images=",
    ),
    "large": (SETTINGS, "#" * ((1 << 20) + 1), "vg.yaml: has more than 1,048,576 characters"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    file, content, lines = BAD[name]
    folder = publish(tmp_path)
    (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ValueError, match=lines) as error:
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


@settings(max_examples=60)
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
    for read in (lambda: read_corpus(folder).digest, lambda: read_run_file(folder / "run.yaml")):
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
            baselines=False,
            strict=True,
        )
        (result,) = probe(config, lambda _, texts: np.array([text == "a" for text in texts]), log=lambda _: None)
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


# Run files -----------------------------------------------------------------------------------------------------------


def run_file(folder: Path, **changed: Any) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(RUN | changed))
    return path


def test_a_published_run_file_is_read(tmp_path: Path) -> None:
    run = read_run_file(run_file(tmp_path, BATCH_SIZES=3))
    assert (run.types, run.data, run.task, run.most, run.batch_size) == (("Attribute/color",), ("vg",), "itc", 2000, 4)
    assert (run.out, run.examples) == ("output/albef", 5)
    assert run.unknown == ("BATCH_SIZES (did you mean BATCH_SIZE?)",)
    assert read_run_file(run_file(tmp_path, MAX_NUM=None, TASK="itm", MODEL_NAME="x")).most is None


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"TASK": "itx"}, "TASK: itx: choose one of itc, itm"),
        ({"TASK": "i\n" * 100}, "TASK: i i i i .*: choose one of itc, itm"),
        ({"MAX_NUM": -1}, "MAX_NUM: -1: needs a whole number"),
        ({"BATCH_SIZE": 0}, "BATCH_SIZE: 0: needs a whole number of at least 1"),
        ({"BATCH_SIZE": True}, "BATCH_SIZE: True"),
        ({"DATA": None}, "DATA is missing; it needs TYPES and TEST_DATA"),
        ({"DATA": {"TYPES": [], "TEST_DATA": ["vg"]}}, "DATA.TYPES: needs a list of names"),
        ({"OUTPUT": {"NUM": 3}}, "OUTPUT.DIR: needs a name"),
    ],
)
def test_run_files_that_mean_nothing_are_refused(changed: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=problem) as error:
        read_run_file(run_file(tmp_path, **changed))
    assert "\n" not in str(error.value)
    (tmp_path / "none.yaml").write_text("TASK: itc\nDATA: {TYPES: a, TEST_DATA: b}\nOUTPUT: {DIR: o}")
    with pytest.raises(ValueError, match="MAX_NUM is missing"):
        read_run_file(tmp_path / "none.yaml")


def test_reading_and_scoring_load_nothing_heavy() -> None:
    heavy = {"torch", "transformers", "pandas", "matplotlib", "sklearn"}
    names = "analysis.probe.evaluate, analysis.probe.corpora.predicate_noun"
    program = f"import sys, {names}; print(sorted(set(sys.modules) & {heavy}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
