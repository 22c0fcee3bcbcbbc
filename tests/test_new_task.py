"""A fifth task, read from docs/adding-a-task.md: registered in one line, it goes from generation to a report."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis import figures, load, overview
from analysis.figures import draw
from analysis.figures.predictions import _pair_grids
from analysis.report import main as report
from analysis.runs import _pairs, examples_of
from tests.grid import make_run
from tests.helpers import page_data, task_of_the_page
from tests.together import Together, TogetherTask
from tests.words import MajorityTask, ModeTask
from train.config import SETTINGS, Run, Training
from train.data.auxiliary import auxiliary_targets
from train.data.text import UnknownWord, WordTokenizer, grammar_tokenizer
from train.run import run
from travlr import Count, GenerateArguments, Image, generate_dataset, open_dataset
from travlr.audit.checks import audit
from travlr.baselines import score_baselines
from travlr.browse import page
from travlr.convert import convert_dataset
from travlr.exports import FORMATS
from travlr.questions import make_question
from travlr.tasks import TASKS, parse_query, query_text
from travlr.tasks.base import Task
from travlr.tasks.cardinality import CardinalityTask

COUNT = Count(train=96, validation=64, test_ind=64, test_ood=64)


@pytest.fixture(scope="module")
def parity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[Task]]:
    """The task, registered for the tests of this module."""
    task = task_of_the_page(tmp_path_factory.mktemp("task"))
    TASKS[task.name] = task
    yield task
    del TASKS[task.name]
    del sys.modules["parity"]


@pytest.fixture(scope="module")
def data(parity: type[Task], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "parity"
    config: Any = parity.Config(count=COUNT, image=Image(cell=16))
    generate_dataset(config, GenerateArguments(out=str(folder), workers=1), log=lambda _: None)
    return folder


def test_the_dataset_passes_its_audit_and_a_corrupted_copy_fails(data: Path, tmp_path: Path) -> None:
    assert [check for check in audit(data, workers=1) if check.status == "FAIL"] == []
    copy = shutil.copytree(data, tmp_path / "copy")
    path = next(copy.glob("train-*.parquet"))
    table = pq.read_table(path)
    answers = table["answer"].to_pylist()
    answers[0] = not answers[0]
    table = table.set_column(table.column_names.index("answer"), "answer", pa.array(answers))
    pq.write_table(table, path)
    failed = {check.name for check in audit(copy, workers=1) if check.status == "FAIL"}
    assert {"files", "answer"} <= failed


def test_the_card_claims_nothing_that_is_known_of_other_tasks_alone(data: Path) -> None:
    card = (data / "README.md").read_text()
    for claim in ("preset=", "The tasks and their held-out pairs follow", "show all others"):
        assert claim not in card
    assert "`python -m travlr.baselines` measures" in card


def test_a_preset_of_other_tasks_is_refused(parity: type[Task]) -> None:
    with pytest.raises(ValueError, match="preset=strict"):
        parity.Config(preset="strict")


def test_queries_are_read_back_and_truth_and_recount_agree(data: Path) -> None:
    examples = open_dataset(data)["test_ood"]
    for number in range(len(examples)):
        example = examples[number]
        query = parse_query(example.query)
        assert query.task == "parity" and query_text(query) == example.query
        shape, count = query.args[1], sum(o.shape == query.args[1] for o in example.scene)
        assert example.answer == ((count % 2 == 0) == (query.args[0] == "even"))
        assert list(example.pair) == [shape, str(count)]
        assert shape in ("star", "octagon") and count in (2, 5)


def test_the_page_and_every_format(data: Path, tmp_path: Path) -> None:
    assert "whether a number is even or odd" in page(data)
    queries = open_dataset(data)["train"].columns("query")["query"].to_pylist()
    for layout in FORMATS:
        convert_dataset(data, tmp_path / layout, layout, log=lambda _: None)
    convert_dataset(tmp_path / "original", tmp_path / "back", "parquet", log=lambda _: None)
    assert open_dataset(tmp_path / "back")["train"].columns("query")["query"].to_pylist() == queries


def run_of(data: Path, setting: str, runs: Path) -> Run:
    """A run of two steps on the dataset of a task, whose name its folder has."""
    training = Training(steps=2, check_every=2, validation=16)
    return Run(
        model="uniter", setting=setting, task=data.name, data=str(data), size="tiny", runs=str(runs), device="cpu",
        precision="float32", training=training,
    )  # fmt: skip


def test_training_in_every_setting_and_report(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one kind of figures; all kinds of a fifth task have a test below."""
    for setting in SETTINGS:
        results = run(run_of(data, setting, tmp_path / "runs"), log=lambda *_: None)
        assert {result["test_setting"] for result in results} == {"image", "caption", "image+caption"}
    monkeypatch.setattr(figures, "FIGURES", {"cells": figures.FIGURES["cells"]})
    assert report([str(tmp_path / "runs"), "--workers", "1"]) == 0
    assert "parity" in (tmp_path / "runs" / "report" / "report.html").read_text(encoding="utf-8")


def test_a_task_about_three_nouns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    """The third noun is counted, has targets, rules and a column, and makes a run and a report."""
    monkeypatch.setitem(TASKS, "together", TogetherTask)
    folder = tmp_path / "together"
    config = Together(count=COUNT, image=Image(cell=16))
    generate_dataset(config, GenerateArguments(out=str(folder), workers=1), log=lambda _: None)
    assert [check for check in audit(folder, workers=1) if check.status == "FAIL"] == []
    rules = {score.baseline for score in score_baselines(folder)}
    assert {f"count of {place} noun" for place in ("first", "second", "third")} < rules
    frame = examples_of(open_dataset(folder), "test_ind")
    example = open_dataset(folder)["test_ind"][0]
    query = parse_query(example.query)
    assert [frame[name][0] for name in ("claim", "first", "second", "third")] == list(query.args)
    tokenizer = WordTokenizer(grammar_tokenizer("together"))
    targets = auxiliary_targets(tokenizer, [example.query], [example.pair], [""])
    words = tokenizer.tokenizer.convert_ids_to_tokens(targets.query_objects[0, :, 0].tolist())
    assert words == list(query.args[1:])
    monkeypatch.chdir(tmp_path)
    training = Training(steps=2, check_every=2, validation=8)
    (row, *_) = run(Run(task="together", data=str(folder), size="tiny", training=training, precision="float32"), print)
    assert 0 <= row["accuracy"] <= 100


@pytest.mark.parametrize("task", [MajorityTask, ModeTask], ids=lambda task: task.name)
def test_pairs_of_words(task: type[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    """Pairs of two words, and of one word without auxiliary targets, go from generation to a report."""
    monkeypatch.setitem(TASKS, task.name, task)
    folder = tmp_path / task.name
    config: Any = task.Config(count=COUNT, image=Image(cell=16))
    generate_dataset(config, GenerateArguments(out=str(folder), workers=1), log=lambda _: None)
    checks = {check.name: check for check in audit(folder, workers=1)}
    assert [check for check in checks.values() if check.status == "FAIL"] == []
    assert ("it has no recount of its own" in checks["answer"].detail) == (task is ModeTask)
    example = open_dataset(folder)["test_ind"][0]
    if task is ModeTask:
        for form, lacks in (("choice", "no alternatives"), ("open", "no open question")):
            with pytest.raises(ValueError, match=f"^form={form}: the task mode has {lacks}"):
                make_question(example, form)
    assert "count of first noun" in {score.baseline for score in score_baselines(folder)}
    shown = page_data(page(folder))
    assert {name for split in shown["splits"] for name, _ in split["counts"]} == set(map(" ".join, task(config).pairs))
    assert len(shown["maps"]) == (len(task(config).pairs[0]) > 2)  # pairs of two values alone have a heat map
    for setting in ("image", "mixed"):
        run(run_of(folder, setting, tmp_path / "runs"), log=lambda *_: None)
    assert report([str(tmp_path / "runs"), "--workers", "1"]) == 0
    assert task.name in (tmp_path / "runs" / "report" / "report.html").read_text(encoding="utf-8")


def change(**entries: Any) -> type[Task]:
    """The task about three nouns with other class attributes."""
    return type("Changed", (TogetherTask,), entries)


def with_ragged_kinds(task: Task, kinds: type | None) -> None:
    TogetherTask.build(task)  # type: ignore[arg-type]
    task.group_kinds = np.array([[0, 1], [0]], dtype=kinds)


def add_twice(task: Task, *template: Any) -> None:
    for _ in range(2):
        TogetherTask.add_ordered_template(task, *template)


BROKEN: dict[str, tuple[type[Task], str]] = {
    "pairs without axes": (change(axes={"to gether": ("a", "b")}), "`axes`"),
    "pairs of another length": (change(axes={"": ("a", "b")}), "`axes`"),
    "one word for all queries": (change(predicate=staticmethod(lambda args: "together")), "`predicate` is 'together'"),
    "one word for all pairs": (change(auxiliary_words=staticmethod(lambda pair: ["more", *pair[1:]])), "`predicate`"),
    "a fourth noun": (change(object_arguments=(0, 1, 2, 3)), "`object_arguments`"),
    "unequal lists": (
        change(add_ordered_template=lambda self, side, *_: self.add_template(side, [0, 1], [2], [0])),
        "2 true and 1 false pairs",
    ),
    "lists of kinds of different lengths": (change(build=lambda self: with_ragged_kinds(self, None)), "`group_kinds`"),
    "the same as objects": (change(build=lambda self: with_ragged_kinds(self, object)), "`group_kinds`"),
    "a query in two templates": (change(add_ordered_template=add_twice), "stands twice"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_task_that_breaks_a_rule_is_refused_in_one_line(rule: str) -> None:
    task, message = BROKEN[rule]
    with pytest.raises(ValueError, match=f"^task=together: .*{re.escape(message)}") as error:
        task(Together())
    assert "\n" not in str(error.value)


def refuses(scene: Any, args: Any) -> Any:
    raise ValueError("`truth` does not apply")


@pytest.mark.parametrize("truth", [lambda scene, args: (True, TogetherTask.truth(scene, args)[1]), refuses])
def test_truth_and_recount_must_agree(truth: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong `truth` changes no dataset, as answers come from templates."""
    monkeypatch.setitem(TASKS, "together", change(truth=staticmethod(truth)))
    config = Together(count=COUNT, image=Image(cell=16))
    generate_dataset(config, GenerateArguments(out=str(tmp_path / "d"), workers=1), log=lambda _: None)
    failed = {check.name: check for check in audit(tmp_path / "d", workers=1) if check.status == "FAIL"}
    assert "`truth`" in failed["answer"].detail


def test_a_word_of_an_auxiliary_target_that_the_tokenizer_does_not_know_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = staticmethod(lambda pair: ["sandwiched", pair[1]])
    monkeypatch.setitem(TASKS, "cardinality", type("Other", (CardinalityTask,), {"auxiliary_words": words}))
    with pytest.raises(UnknownWord, match="'sandwiched'"):
        auxiliary_targets(WordTokenizer(grammar_tokenizer()), ["There are 3 circle objects."], [["circle", "3"]], [""])


OWN_MODEL = "my_package.my_module:MyModel"


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of the fifth task, of a model of ours and of one that only its user has; and of a task of the paper."""
    place = tmp_path_factory.mktemp("reported")
    config = CardinalityTask.Config(count=COUNT, image=Image(cell=8))
    generate_dataset(config, GenerateArguments(out=str(place / "cardinality"), workers=1), log=lambda _: None)
    for folder in (place / "cardinality", data):
        for model in ("uniter", OWN_MODEL):
            make_run(place / "runs", folder, lambda test, split: 0.8, config={"model": model}, setting="image")
    return place / "runs"


def test_a_fifth_task_and_a_users_model_stand_after_ours_in_the_report(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {"cells", "objects", "agreement", "calibration", "numbers", "pairs", "quantifiers"}  # of single runs
    monkeypatch.setattr(figures, "FIGURES", {name: figures.FIGURES[name] for name in figures.FIGURES if name in kinds})
    assert report([str(runs), "--workers", "1"]) == 0
    table = overview(load(runs))
    assert list(dict.fromkeys(column[0] for column in table.columns[2:])) == ["cardinality", "parity"]
    labels = [row[0].text for row in table.rows[:-2]]
    assert labels == ["UNITER", OWN_MODEL]
    assert all(cell.text for row in table.rows[:-2] for cell in row)
    page = (runs / "report" / "report.html").read_text(encoding="utf-8")
    data = page_data(page)
    assert data["choices"] == {
        "task": ["cardinality", "parity"],
        "model": ["uniter", OWN_MODEL],
        "setting": ["image"],
    }
    drawn = {
        figure["kind"] for figure in data["figures"] if figure["task"] == "parity" and figure["model"] == OWN_MODEL
    }
    assert drawn == {"cells", "objects", "agreement", "calibration"}
    assert {run["model"] for run in data["runs"] if run["task"] == "parity"} == {"uniter", OWN_MODEL}
    assert all(len(one["examples"]) > 0 for one in data["sets"].values()) and len(data["sets"]) == 2


def test_figures_of_several_runs_hold_a_users_model(runs: Path) -> None:
    saved = load(runs)
    transfer = draw("transfer", saved, task="parity")
    titles = [axes.get_title(loc="left") for axes in transfer.axes]
    assert titles[:4] == [f"{split}, {m} small" for m in ("uniter", OWN_MODEL) for split in ("test_ind", "test_ood")]
    loss = draw("loss", saved, task="parity", setting="image")
    assert [text.get_text() for text in loss.legends[0].get_texts()] == ["uniter", OWN_MODEL, "chance: ln 2"]
    dataset = draw("dataset", saved, task="parity")
    assert "whether a number is even or odd" in str(dataset.get_label())


def test_pairs_of_words_have_axes_of_words() -> None:
    """A task whose pairs are no numbers, as those of connectives and truth values."""

    class Logic(CardinalityTask):
        axes = {"and": ("first", "second"), "or": ("first", "second")}

    table = _pairs(pa.array([["and", "true", "false"], ["or", "true", "true"], ["and", "false", "false"]]))
    grids = _pair_grids(table, Logic)
    assert list(grids) == ["and", "or"] and grids["and"].labels == ("first", "second")
    assert list(grids["and"].x.values()) == ["false", "true"] and list(grids["and"].y.values()) == ["false"]
    letters = _pairs(pa.array([["horizontal", "A", "C"], ["horizontal", "B", "A"]]))
    assert letters["x"].to_list() == [1, 2] and letters["y"].to_list() == [3, 1]
    grid = _pair_grids(letters, TASKS["spatiality"])["horizontal"]
    assert list(grid.x.values()) == list(grid.y.values()) == ["A", "B", "C"]
