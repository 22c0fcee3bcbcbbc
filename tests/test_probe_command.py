"""`python -m analysis.probe`: what it accepts, makes and refuses; corpora of every kind, from look-alikes of files."""

from __future__ import annotations

import csv
import functools
import gc
import html
import json
import os
import shutil
import signal
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from safetensors.torch import save_file

from analysis.probe import inputs
from analysis.probe.command import command
from analysis.probe.config import Probe
from analysis.probe.corpora.items import KINDS, Corpus
from analysis.probe.report import baselines, mistakes, report
from analysis.probe.report.metrics import MACRO, MICRO
from analysis.probe.report.results import Result, load_results
from analysis.probe.run import probe
from analysis.probe.scenes import corpus as scenes
from analysis.probe.scenes.scene_pairs import FORMAT_VERSION
from analysis.probe.scorers.scoring import ANSWERS, read_item_answers
from tests.helpers import one_line, start, values_of, wait_for
from train.config import RegionSettings
from train.data.text import SPECIAL
from train.models import make_model

QUIET: dict[str, Any] = {"log": lambda _: None}
SMALL = 144  # items, the fewest that a checklist can have
CODE = "from analysis.probe.command import command; command()"
SCORERS = """
import hashlib, os, time
import numpy as np

def blind(images, texts):
    return np.array([hashlib.sha256(text.encode()).digest()[0] + 1 / len(text) for text in texts])

def dark(images, texts):
    return np.array([float("dark" in text) * (np.asarray(image).mean() < 128) for image, text in zip(images, texts)])
dark.threshold = 0.5

def slow(images, texts):
    time.sleep(0 if os.path.exists("hurry") else 0.5)
    return blind(images, texts)

def broken(images, texts):
    return None

def often_wrong(images, texts):
    if any("blue" in text for text in texts):
        raise RuntimeError("no blue please")
    return blind(images, texts)
"""


def by_line(result: Result, value: str) -> Any:
    return next(line for line in result.lines if line.value == value)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our own corpora, small."""
    folder = tmp_path_factory.mktemp("built")
    for kind in KINDS:
        scenes.build_corpus(folder / f"{kind}-v{FORMAT_VERSION}-s0-{SMALL}", 0, SMALL, kind, workers=1, **QUIET)
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: Path) -> Path:
    """An empty folder to be in, with scorers in a module; our own corpora are those of `built`. Figures and thumbnails
    are not made: they take most of the time, and tests of the report make them."""
    (tmp_path / "my_scorers.py").write_text(SCORERS)
    monkeypatch.setattr(inputs, "SCENES_FOLDER", str(built))
    monkeypatch.setattr(report, "figures", lambda _: {})
    monkeypatch.setattr(mistakes, "_picture", lambda *_: {"picture": "data:", "pixels": (1, 1)})
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("my_scorers", None)
    return tmp_path


@pytest.fixture
def one_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the baselines that need no model only one is measured: all of them take seconds."""
    monkeypatch.setattr(baselines, "baselines", functools.partial(baselines.baselines, rules=("shorter",)))


# Settings ------------------------------------------------------------------------------------------------------------


def test_probe_takes_one_name_or_several() -> None:
    config = Probe.model_validate(values_of("model=[a,uniter:b.pt]", "types=Relation", "question='Is it {text}?'"))
    assert (config.model, config.types, config.question) == (("a", "uniter:b.pt"), ("Relation",), "Is it {text}?")


WRONG = (
    "+corpos=x",
    "task=x",
    "limit=0",
    "count=7",
    "types=[]",
    "batch_size=many",
    "corpus=",
    "question=why",
    "seed=-1",
)


@pytest.mark.parametrize("argument", WRONG)
def test_probe_names_a_wrong_setting(
    argument: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["probe", argument])
    with pytest.raises(SystemExit) as caught:
        command()
    assert caught.value.code == 2 and argument.strip("+").partition("=")[0] in capsys.readouterr().err


# Our own corpora -----------------------------------------------------------------------------------------------------


def own_corpus(kind: str) -> Path:
    return Path(inputs.SCENES_FOLDER) / f"{kind}-v{FORMAT_VERSION}-s0-{SMALL}"


def small(**changed: Any) -> Probe:
    return Probe(**{"count": SMALL, **changed})


def test_without_a_model_the_baselines_answer(here: Path) -> None:
    results = probe(small(), **QUIET)
    assert [result.corpus["name"] for result in results] == ["scenes-checklist", "scenes-predicate_noun"]
    for result in results:
        assert result.lines == () and result.model == ""
        oracle = {line.value: line for line in result.baselines["scene_oracle"]}
        assert oracle[MICRO].single == oracle[MICRO].pair_accuracy == 100
        for rule in result.blind:
            for line in result.baselines[rule]:
                if line.by == "axis":
                    assert (line.single, line.pair_accuracy) == (50, 0), rule
        assert not {"scene_oracle", "visible_words", "most_ink", "most_central"} & set(result.blind)
        for rule in ("most_ink", "most_central"):
            shares = {(line.single, line.pair_accuracy) for line in result.baselines[rule]
                      if (line.by == "axis and grade" and "N1" not in line.value) or line.value == "noun"}  # fmt: skip
            assert shares == {(50, 0)}
    page = (here / "probes" / "report.html").read_text()
    assert "FLAGGED" not in page and "scene_oracle" in page
    assert all("-baselines-" in result.name for result in results)
    assert probe(small(corpus="predicate_noun"), **QUIET)[0].baselines == results[1].baselines


def test_a_scorer_from_python_is_asked_like_any_other(here: Path, one_rule: None) -> None:
    from my_scorers import blind  # type: ignore[import-not-found]

    config = small(corpus="checklist")
    _, given = probe(config, scorer=blind, **QUIET)
    assert (given.model, by_line(given, MICRO).pair_accuracy, by_line(given, MICRO).single) == ("blind", 0, 50)
    assert set(given.baselines) == {"blank picture", "other items' pictures"}
    assert {line.value: line.single for line in given.baselines["blank picture"]}[MICRO] == 50
    (named,) = probe(small(corpus="checklist", model=["my_scorers:blind"], baselines=False), **QUIET)
    assert named.lines == given.lines and named.name != given.name
    averages = {one.name: one.value for one in given.averages}
    assert averages["Object"] == 50 and averages["Relation"] is None


def test_probe_scores_again_with_overwrite(here: Path) -> None:
    sign = [1.0]

    def scorer(images: Any, texts: Sequence[str]) -> np.ndarray:
        return np.array([sign[0] * len(text) for text in texts])

    asked = small(corpus="predicate_noun", limit=4, baselines=False)
    probe(asked, scorer=scorer, **QUIET)
    sign[0] = -1.0
    for overwrite in (False, True):
        (result,) = probe(asked.changed(overwrite=overwrite), scorer=scorer, **QUIET)
        records = read_item_answers(here / "probes" / result.name / ANSWERS)
        assert all((record.answer.positives[0] < 0) is overwrite for record in records)


def test_a_scorer_is_known_by_its_code_or_its_name(here: Path) -> None:
    def scorer(sign: float, images: Any, texts: Sequence[str]) -> np.ndarray:
        return np.array([sign * len(text) for text in texts])

    config = small(corpus="predicate_noun", baselines=False, limit=4)
    named: Any = functools.partial(scorer, 1.0)
    with pytest.raises(ValueError, match=r"^scorer: .*`name`$"):
        probe(config, scorer=named, **QUIET)
    named.name = "long"
    assert probe(config, scorer=named, **QUIET)[-1].model == "long"

    def other(images: Any, texts: Sequence[str]) -> np.ndarray:
        return np.array([len(text) for text in texts])

    def another(images: Any, texts: Sequence[str]) -> np.ndarray:
        return np.array([-len(text) for text in texts])

    another.__qualname__ = other.__qualname__
    names = [probe(config, scorer=one, **QUIET)[0].name for one in (other, another, other)]
    assert names[0] == names[2] != names[1]


def test_types_data_templates_crops_and_samples_choose_items(here: Path) -> None:
    def chosen(**changed: Any) -> Corpus:
        (one,) = inputs.probe_inputs(small(**changed), lambda _: None)
        return one.corpus

    by_type = chosen(corpus="checklist", types=["Relation"], data=["grid_swap"])
    assert {(item.axis, item.source) for item in by_type.items} == {("Relation/spatial", "grid_swap")}
    sample = chosen(corpus="checklist", limit=2)
    assert set(Counter((item.axis, item.source) for item in sample.items).values()) == {2}
    variants = [chosen(corpus="predicate_noun", **change) for change in ({}, {"template": "alt"}, {"cropped": True})]
    assert len({corpus.digest for corpus in variants}) == len({corpus.name for corpus in variants}) == 3
    for corpus in variants:
        (answers,) = baselines.baselines(corpus, rules=("scene_oracle",)).values()
        assert {(answer.positives, answer.negatives) for answer in answers} == {((1.0,), (0.0,))}


# Published files -----------------------------------------------------------------------------------------------------


def published(folder: Path, records: int = 40, pictures: int = 30) -> Path:
    """A corpus in VL-CheckList's form: dark and bright pictures, some of them missing; the true sentence is shorter."""
    (folder / "corpus/v1/Relation/spatial").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "vg").mkdir()
    lines = []
    for n in range(records):
        word, other = ("dark", "bright")[:: 1 - 2 * (n % 2)]
        lines.append([f"{n}.jpg", {"POS": [f"it is {word}"], "NEG": [f"it is surely {other}"]}])
        if n < pictures:
            Image.new("RGB", (8, 8), "black" if word == "dark" else "white").save(folder / f"vg/{n}.jpg")
    (folder / "data/spatial.json").write_text(json.dumps(lines))
    text = 'ANNO_PATH: "data/spatial.json"\nIMG_ROOT: "vg"\nTYPE: "TUPLE_JSON"\n'
    (folder / "corpus/v1/Relation/spatial/vg.yaml").write_text(text)
    return folder


def test_a_published_corpus_is_counted_flagged_and_scored(here: Path) -> None:
    folder = published(here / "published")
    baselines, result = probe(Probe(corpus=str(folder), model=["my_scorers:dark"]), **QUIET)
    line = by_line(result, MICRO)
    assert (line.total, line.scored, line.missing) == (40, 30, 10)
    assert (line.single, line.ties) == (50, 15)  # bright pictures tie: neither sentence is dark
    assert line.itm_accuracy == 75 and line.itm_precision == 100 and line.itm_recall == 50
    assert {one.value: one.single for one in baselines.baselines["shorter"]}[MICRO] == 100
    text = (here / "probes/report.html").read_text()
    assert "FLAGGED" in text and "scored 30 + missing 10 + unreadable 0 + failed 0; the first is missing: " in text
    refused(Probe(corpus=str(folder), model=["my_scorers:dark"], strict=True), r"strict=true.*scored 30 \+ missing 10")


def test_a_corpus_without_pictures_is_told_of_before_a_model_is_asked(here: Path) -> None:
    folder, told = published(here / "published"), list[str]()
    probe(Probe(corpus=str(folder)), log=told.append)
    assert told[0] == "published: 40 items, 40 pictures, of which 30 are there"
    (here / "empty").mkdir()
    asked = Probe(corpus=str(folder), images="empty", model=["my_scorers:dark"], out="other")
    with pytest.raises(ValueError, match=r"none of its pictures is in .*; give images=FOLDER$"):
        probe(asked, **QUIET)
    assert not (here / "other").exists()
    probe(asked.changed(model=[]), **QUIET)  # baselines need none


def test_published_rules_take_the_head_and_what_is_strictly_above(here: Path) -> None:
    folder = published(here / "published")
    (path,) = (folder / "vg").glob("0.jpg")
    path.unlink()
    config = Probe(corpus=str(folder), model=["my_scorers:dark"], rules="published", limit=8, baselines=False)
    (result,) = probe(config, **QUIET)
    line = by_line(result, MICRO)
    assert (line.total, line.scored, line.missing) == (9, 8, 1)  # the first is skipped, as if it were not there
    assert line.single == line.published == 50
    given = [record.answer for record in read_item_answers(here / "probes" / result.name / ANSWERS)]
    right = [answer.positives[0] > answer.negatives[0] for answer in given if answer.status == "scored"]
    assert 100 * right.count(True) / len(right) == line.single and len(right) == line.scored
    assert result.measuring["tolerance"] == 0 and result.measuring["sentences"] == "first"


def test_a_published_run_file_says_what_is_asked(here: Path) -> None:
    folder = published(here / "published")
    data, output = {"TYPES": ["Relation/spatial"], "TEST_DATA": ["vg"]}, {"DIR": "out", "NUM": 2}
    run = {"MAX_NUM": 20, "MODEL_NAME": "x", "BATCH_SIZE": 4, "TASK": "ITM", "DATA": data, "OUTPUT": output}
    (folder / "configs").mkdir()
    (folder / "configs/run.yaml").write_text(yaml.safe_dump(run))
    config = Probe(corpus=str(folder / "configs/run.yaml"), model=["my_scorers:dark"], baselines=False)
    (result,) = probe(config, **QUIET)
    assert (result.corpus["items"], result.measuring["task"]) == (10, "itm")
    refused(Probe(corpus=config.corpus, model=["my_scorers:blind"], baselines=False), "^task=itm")
    lines: list[str] = []
    changes: dict[str, Any] = {"task": "itc", "limit": 3, "types": ["Relation"], "data": ["vg"]}
    (typed,) = probe(config.changed(**changes), log=lines.append)  # what is typed goes before what the file says
    assert (typed.corpus["items"], typed.measuring["task"]) == (3, "itc")
    assert sum("is not read" in line for line in lines) == 3


def test_settings_that_a_corpus_has_no_use_for_are_refused(here: Path) -> None:
    folder = published(here / "published")
    for config, name in (
        (Probe(corpus=str(folder), cropped=True), "cropped=true"),
        (Probe(corpus=str(folder), template="alt"), "template=alt"),
        (Probe(corpus=str(folder), count=10), "count=10"),
        (small(corpus="predicate_noun", types=["Relation", "a"]), r"types=\[Relation,a\]"),
        (small(corpus="checklist", images="here"), "images=here"),
    ):
        refused(config, f"^{name}: .*leave it out$")


def refused(config: Probe, told: str) -> None:
    with pytest.raises(ValueError, match=told) as error:
        probe(config, **QUIET)
    one_line(str(error.value))


NOT_THERE: dict[str, Callable[[Path], Any]] = {
    "is no corpus": lambda path: path.mkdir(),
    "has no items": lambda path: published(path, 0),
    "is not there": lambda path: None,
    "spatial.json": lambda path: (published(path) / "data/spatial.json").write_text("[[["),
}


@pytest.mark.parametrize("told", NOT_THERE)
def test_what_is_no_corpus_is_told_of_in_one_line(told: str, here: Path) -> None:
    NOT_THERE[told](here / "it")
    refused(Probe(corpus=str(here / "it")), told)


# Models --------------------------------------------------------------------------------------------------------------


def test_a_model_that_cannot_be_had_does_not_stop_the_others(here: Path) -> None:
    config = small(corpus="checklist", model=["nowhere:it", "my_scorers:blind"], baselines=False, limit=1)
    refused(config, "nowhere")
    (result,) = load_results(here / "probes")[0]
    assert result.model == "my_scorers:blind"
    refused(Probe(corpus="checklist", count=100_000, model=["nowhere:it"]), "nowhere")
    assert not list(Path(inputs.SCENES_FOLDER).glob("*100000*"))  # told before anything was built


def test_one_model_is_in_memory_at_a_time(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Heavy:
        def __call__(self, images: Sequence[Any], texts: Sequence[str]) -> np.ndarray:
            return np.arange(len(texts))

    loaded: list[weakref.ref[Heavy]] = []
    there: list[int] = []

    def load(name: str, **_: Any) -> Heavy:
        gc.collect()
        there.append(sum(one() is not None for one in loaded))
        made = Heavy()
        loaded.append(weakref.ref(made))
        return made

    monkeypatch.setattr("analysis.probe.scorers.loading.load_scorer", load)
    probe(small(corpus="predicate_noun", model=["a", "b", "c"], limit=2, baselines=False), **QUIET)
    assert there == [0, 0, 0]


def test_failures_are_counted_and_the_rest_kept(here: Path) -> None:
    told: list[str] = []
    (result,) = probe(small(corpus="checklist", model=["my_scorers:often_wrong"], baselines=False), log=told.append)
    line = by_line(result, MICRO)
    assert 0 < line.failed < line.total == line.scored + line.failed
    assert any(f"failed at {line.failed} items, first with: " in one for one in told)
    assert (
        result.unscored.startswith("failed: ")
        and html.escape(result.unscored) in (here / "probes/report.html").read_text()
    )
    text = (here / "probes" / result.name / "answers.jsonl").read_text()
    assert sum("no blue please" in one for one in text.splitlines()) == line.failed


BOXES = np.array([[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]], np.float32)


def save_regions_and_model(here: Path, pictures: Iterable[str], kind: str) -> None:
    """Random features of two regions of each picture, and a tiny model that takes them."""
    (here / "features").mkdir()
    random = np.random.default_rng(0)
    for name in pictures:
        np.savez(here / f"features/{name}.npz", features=random.standard_normal((2, 8)), norm_bb=BOXES)
    words = [*SPECIAL, "a", "the", "is", "red", "circle"]
    model = make_model(kind, "tiny", {"matching": True}, vocabulary=len(words), feature_width=8)
    save_file(model.state_dict(), here / "model.safetensors")
    (here / "vocab.txt").write_text("\n".join(words))


def test_regions_made_elsewhere_are_part_of_what_a_run_is(here: Path, one_thread: None) -> None:
    items = scenes.read_corpus(own_corpus("predicate_noun"), "predicate_noun").items
    save_regions_and_model(here, {Path(item.image).stem for item in items}, "uniter")
    changes = ["regions.source=file", "regions.file=features", "size=tiny", "baselines=false", f"count={SMALL}"]
    asked = Probe.model_validate(values_of("corpus=predicate_noun", f"model=uniter:{here}/model.safetensors", *changes))
    (first,) = probe(asked, **QUIET)
    assert first.coverage and first.coverage.scored == SMALL
    np.savez(here / f"features/{Path(items[0].image).stem}.npz", features=np.ones((2, 8)), norm_bb=BOXES)
    (second,) = probe(asked, **QUIET)
    assert second.name != first.name
    scored = [
        [record.answer.positives for record in read_item_answers(here / "probes" / r.name / ANSWERS)]
        for r in (first, second)
    ]
    assert scored[0][0] != scored[1][0] and scored[0][2:] == scored[1][2:]


def test_a_checklist_of_scenes_needs_regions_of_each_picture_and_the_blank_one(
    here: Path, one_rule: None, one_thread: None
) -> None:
    """Pictures are found by their names alone, so no two of a corpus may have one; the blank one has a name, too."""
    pictures = [path.stem for path in own_corpus("checklist").rglob("*.png")]
    save_regions_and_model(here, [*pictures, "blank"], "lxmert")
    regions = RegionSettings(source="file", file="features")
    config = small(corpus="checklist", model=["lxmert:model.safetensors"], size="tiny", regions=regions, limit=2)
    _, result = probe(config, **QUIET)
    assert result.coverage and result.coverage.scored == result.corpus["items"]
    for lines in result.baselines.values():
        assert lines[0].scored == lines[0].total == result.corpus["items"]
    (here / "features/blank.npz").unlink()
    printed: list[str] = []
    _, result = probe(config, log=printed.append)
    (failure,) = [line for line in printed if "baseline blank picture" in line]
    assert (
        f"failed at {result.corpus['items']} items, first with: regions.file=features: lacks the picture blank"
        in failure
    )


def test_pictures_that_share_a_name_have_no_regions_of_a_file(here: Path) -> None:
    folder = published(here / "published", 4, 4)
    (folder / "vg/deep").mkdir()
    shutil.copy(folder / "vg/0.jpg", folder / "vg/deep/0.jpg")
    lines = json.loads((folder / "data/spatial.json").read_text())
    lines[3][0] = "deep/0.jpg"
    (folder / "data/spatial.json").write_text(json.dumps(lines))
    config = Probe(corpus=str(folder), regions=RegionSettings(source="file", file="features"), baselines=False)
    probe(config, **QUIET)  # they are equal
    shutil.copy(folder / "vg/3.jpg", folder / "vg/deep/0.jpg")
    refused(config, r"regions.file=features: .* vg/0.jpg and vg/deep/0.jpg")


def test_tiny_clip_answers_and_the_size_of_batches_decides_nothing(here: Path, one_thread: None) -> None:
    from tests.tiny import saved

    saved("clip", here / "clip")
    found = {}
    for batch_size in (1, 64):
        config = small(
            corpus="checklist",
            model=[str(here / "clip")],
            batch_size=batch_size,
            baselines=False,
            limit=2,
            out=f"o{batch_size}",
        )
        (result,) = probe(config, **QUIET)
        found[batch_size] = [(one.value, one.single, one.ties, one.pair_accuracy) for one in result.lines]
        assert result.about["versions"]["torch"] and result.about["device"] == "cpu"
    line = by_line(result, MICRO)
    assert found[1] == found[64] and by_line(result, MACRO).single is not None
    assert 20 < line.scored == line.total - line.failed  # some sentences are too long for it
    shutil.copytree(here / "clip", here / "moved")  # the same weights elsewhere: the same run but for its name
    (other,) = probe(small(corpus="checklist", model=["moved"], baselines=False, limit=2, out="o64"), **QUIET)
    assert other.lines == result.lines


def test_cropped_and_whole_pictures_of_the_same_pairs_are_compared(here: Path) -> None:
    for cropped in (False, True):
        config = small(corpus="predicate_noun", model=["my_scorers:dark"], baselines=False, cropped=cropped)
        probe(config, **QUIET)
    with open(here / "probes/tables/scenes-predicate_noun-binding.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["first"], row["second"]) == ("my_scorers:dark, cropped", "my_scorers:dark")
    assert (row["of"], row["number"], row["p_value"]) == ("pairs", "72", "1.0")


# The command ---------------------------------------------------------------------------------------------------------


def test_probe_goes_on_after_it_was_stopped(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped in a process of its own, as by a terminal; gone on in this one, which is quicker."""
    arguments = ["corpus=predicate_noun", "count=144", "model=my_scorers:slow", "batch_size=2", "baselines=false"]
    environment = {"PYTHONPATH": f"{Path(__file__).parent.parent}{os.pathsep}{here}", "OMP_NUM_THREADS": "1"}
    process = start("", *arguments, code=CODE, cwd=here, env=environment)
    wait_for(lambda: [path for path in here.glob("probes/*/answers.jsonl") if path.stat().st_size])
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130 and "Traceback" not in err
    (answers,) = here.glob("probes/*/answers.jsonl")
    kept = answers.read_bytes()
    assert 0 < kept.count(b"\n") < 144
    (here / "hurry").touch()
    monkeypatch.setattr("sys.argv", ["probe", *arguments])
    command()
    out = capsys.readouterr().out
    assert answers.read_bytes().startswith(kept) and answers.read_bytes().count(b"\n") == 144
    assert "scenes-predicate_noun" in out and "Report: probes/report.html" in out
