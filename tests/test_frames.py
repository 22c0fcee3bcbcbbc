"""Saved runs as data frames: what examples show against their own objects, and what cannot be read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from analysis.examples import _scenes, describe_examples
from analysis.frames import PREDICTIONS as COLUMNS
from analysis.frames import read_runs
from tests.corpus_files import convert, draw
from tests.grid import make_run
from tests.helpers import generated
from train.results.answers import AnswerFile, AnswerRecord
from train.results.predictions import PREDICTIONS, read_predictions
from train.results.store import start_run, write_results
from travlr import open_dataset
from travlr.config import Count, Image
from travlr.dataset import Example
from travlr.formats.columns import OBJECT, parse_query_form
from travlr.tasks import PAPER, TASKS

COUNT = Count(train=20, validation=20, test_ind=120, test_ood=120)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small dataset of each task."""
    place = tmp_path_factory.mktemp("data")
    for name, task in ((name, TASKS[name]) for name in PAPER):
        generated(place / name, task.Config(count=COUNT, image=Image(cell=8)))
    return place


@pytest.fixture
def runs(data: Path, tmp_path: Path) -> Path:
    for seed in (0, 1):
        make_run(tmp_path / "runs", data / "cardinality", lambda *_: 0.8, seed=seed)
    return tmp_path / "runs"


# Examples against brute force ----------------------------------------------------------------------------------------


def holds(example: Example, attribute: str) -> list[Any]:
    return [o for o in example.scene if attribute in (o.colour, o.shape)]


def numbers(example: Example) -> tuple[str, list[int]]:
    """kind, and x and y, counted in the scene for the query's arguments."""
    args = list(parse_query_form(example.query_form).args)
    if example.task == "spatiality":
        first, relation, second = (str(arg) for arg in args)
        found = [next(o for o in example.scene if f"{o.colour} {o.shape}" == name) for name in (first, second)]
        across = "left" in relation or "right" in relation
        return "horizontal" if across else "vertical", [(o.column if across else o.row) + 1 for o in found]
    if example.task == "cardinality":
        return str(args[1]), [len(holds(example, str(args[1])))]
    if example.task == "comparison":
        return "comparison", [len(holds(example, str(name))) for name in args[1:]]
    return str(example.pair[0]), [int(value) for value in example.pair[1:]]


@pytest.mark.parametrize("task", PAPER)
@pytest.mark.parametrize("split", ["test_ind", "test_ood"])
def test_describe_examples_equals_a_loop_over_objects(data: Path, task: str, split: str) -> None:
    dataset = open_dataset(data / task)
    frame = describe_examples(dataset, split)
    assert len(frame) == 120
    scenes: dict[Any, int] = {}
    for row, example in zip(frame.to_dict("records"), dataset[split], strict=True):
        assert (row["id"], row["split"], row["task"], row["query"], row["answer"]) == (
            example.id, split, task, example.query, example.answer
        )  # fmt: skip
        assert row["pair"] == " ".join(example.pair) and row["objects"] == len(example.scene)
        kind, values = numbers(example)
        assert (row["kind"], [row[name] for name in "xy"[: len(values)]]) == (kind, values)
        assert len(values) == 2 or pd.isna(row["y"])
        args = [str(arg) for arg in parse_query_form(example.query_form).args]
        lines = [row[name] for name in ("claim", "first", "second", "third") if not pd.isna(row[name])]
        assert lines == ([args[1], args[0], args[2]] if task == "spatiality" else args)
        assert row["couple"] == row["row"] // 2
        assert scenes.setdefault(frozenset(example.scene), row["scene"]) == row["scene"]
        assert pd.isna(row["critical"]) == (task != "quantifiers")
    assert len(set(scenes.values())) == len(scenes) == frame["scene"].nunique()


@pytest.mark.parametrize("name", ["colour", "shape", "size", "row", "column"])
def test_scenes_differ_by_one_object(name: str) -> None:
    thing: dict[str, Any] = {"colour": "red", "shape": "star", "size": "small", "row": 1, "column": 1}
    other = thing | {
        name: 2 if isinstance(thing[name], int) else {"red": "blue", "star": "square", "small": "large"}[thing[name]]
    }
    objects = pa.array([thing | {"queried": False}, other | {"queried": True}, thing | {"queried": True}], OBJECT)
    first, second, third = _scenes(objects, np.arange(3), 3)
    assert first == third != second


def test_describe_examples_critical_set_of_quantifiers(data: Path) -> None:
    dataset = open_dataset(data / "quantifiers")
    deciding: dict[tuple[str, str], Any] = {  # the number that must be 0, or must not
        ("all", "not all"): lambda x, y: len(x - y),
        ("some", "none"): lambda x, y: len(x & y),
        ("only", "not only"): lambda x, y: len(y - x),
    }
    frame = describe_examples(dataset, "test_ood")
    for row, example in zip(frame.to_dict("records"), dataset["test_ood"], strict=True):
        first, second = ({o for o in holds(example, row[name])} for name in ("first", "second"))
        [number] = [rule(first, second) for claims, rule in deciding.items() if row["claim"] in claims]
        assert row["critical"] == number
        assert example.answer == ((number == 0) == (row["claim"] in ("all", "none", "only")))


def test_describe_examples_of_a_corpus(tmp_path: Path) -> None:
    records = [{"image": f"{n}.png", "true": ["a cat", "a pet"], "false": ["a dog"], "source": "vg"} for n in (1, 2)]
    (tmp_path / "animals.json").write_text(json.dumps(records))
    draw(tmp_path / "images", "1.png", "2.png")
    frame = describe_examples(convert(tmp_path / "animals.json", tmp_path / "out"), "test_ind")
    assert list(frame["answer"]) == [True, True, False] * 2 and set(frame["kind"]) == {"animals"}
    assert list(frame.groupby("item", observed=True)["picture"].nunique()) == [1, 1] and set(frame["source"]) == {"vg"}
    assert frame["scene"].nunique() == 2 and frame[["x", "y", "claim", "critical", "first"]].isna().all(axis=None)


# Predictions ---------------------------------------------------------------------------------------------------------


def test_predictions_join_their_example(runs: Path) -> None:
    """In whatever order a file has them."""
    name = read_runs(runs).results["name"].iloc[0]
    before = read_runs(runs).predictions(name=name)
    table = read_predictions(runs / name)
    shuffled = table.take(pa.array(np.random.default_rng(0).permutation(len(table))))
    pq.write_table(shuffled, runs / name / PREDICTIONS, write_page_checksum=True)
    after = read_runs(runs).predictions(name=name)
    assert list(after["id"]) == shuffled["id"].to_pylist() and list(after.columns) == list(COLUMNS)
    one, two = (
        frame.sort_values(["id", "test_setting"], ignore_index=True).astype({"test_setting": str})
        for frame in (before, after)
    )
    pd.testing.assert_frame_equal(one, two)
    for row, saved in zip(after.to_dict("records"), shuffled.to_pylist(), strict=True):
        assert (row["answer"], row["prediction"], row["score"]) == (
            saved["answer"],
            saved["prediction"],
            saved["logit"],
        )
        assert row["right"] == (saved["answer"] == saved["prediction"])


def test_predictions_of_chosen_runs(runs: Path) -> None:
    found = read_runs(runs)
    some = found.predictions(seed=1, test_setting=["image", "caption"], split="test_ood")
    assert set(some["test_setting"]) == {"image", "caption"} and set(some["split"]) == {"test_ood"}
    assert len(some) == 240 and set(some["seed"]) == {1}
    nothing = found.predictions(model="albef")
    assert len(nothing) == 0 and list(nothing.columns) == list(some.columns)
    with pytest.raises(ValueError, match="colour: "):
        found.predictions(colour="red")
    with pytest.raises(ValueError, match=r"training\.step: .*training\.steps"):
        found.predictions(training__step=1)


def test_read_runs_has_settings_as_columns(data: Path, tmp_path: Path) -> None:
    """A quarter of the train split is a part of it, and 5 of 20 examples are, too."""
    for changes in ({}, {"training": {"examples": 0.25}}, {"training": {"examples": 5}}, {"method": "consistency"}):
        make_run(tmp_path, data / "cardinality", lambda test, _: 0.9 if test == "caption" else 0.5, config=changes)
    runs = read_runs(tmp_path)
    info = runs.results.drop_duplicates("name").set_index("name")
    assert sorted(info["variant"]) == ["", "consistency", "part", "part"]
    assert list(info.loc[info["variant"] == "part", "part"]) == [0.25, 0.25] and info["part"].isna().sum() == 2
    assert set(info["training.steps"]) == {2000} and set(info["style.image"]) == {"plain"}
    assert info["converged"].all() and set(info["initial"]) == {"random"}
    assert set(runs.results.loc[runs.results["own"], "test_setting"]) == {"caption"}
    chosen = runs.select(method="consistency").results
    assert len(chosen) == 6 and set(chosen["variant"]) == {"consistency"}
    assert len(runs.choose(training__examples=[0.25, 5], split="test_ood", own=True)) == 2


def test_predictions_of_evaluations_join_their_example(data: Path, tmp_path: Path) -> None:
    """Of an evaluation of the first examples: what was said, and whether the query is held to be true."""
    dataset = open_dataset(data / "cardinality")
    shared = {"model": "chat", "task": "cardinality", "dataset": dataset.manifest["content_digest"], "seed": 0}
    shared |= {"form": "true_false", "prompt": "direct", "answers": "likelihood"}
    folder = start_run(tmp_path / "runs", shared, str(data / "cardinality"))
    with AnswerFile(folder) as file:
        for example, parsed, score in zip(dataset["test_ood"][:2], ("true", None), (1.0, None), strict=True):
            right = str(example.answer).lower()
            words = (example.id, "test_ood", "caption", "0", "I say", right, parsed, parsed == right)
            file.append(AnswerRecord(*words, score=score))
    write_results(folder, [shared | {"test_setting": "caption", "split": "test_ood", "accuracy": 50.0, "examples": 2}])
    runs = read_runs(tmp_path / "runs")
    assert len(runs.evaluations) == 1 and len(runs.trainings) == 0
    rows = runs.predictions().to_dict("records")
    assert [row["query"] for row in rows] == [example.query for example in dataset["test_ood"][:2]]
    assert rows[0]["score"] == 1.0 and rows[0]["prediction"] and pd.isna(rows[1]["prediction"])
    assert [row["right"] for row in rows] == [dataset["test_ood"][0].answer, False]
    assert [row["expected"] for row in rows] == [str(row["answer"]).lower() for row in rows]


# What cannot be read -------------------------------------------------------------------------------------------------


def test_read_runs_with_a_dataset_that_moved(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "comparison", tmp_path / "here")
    make_run(tmp_path / "runs", tmp_path / "here", lambda *_: 0.8)
    (tmp_path / "here").rename(tmp_path / "there")
    found = read_runs(tmp_path / "runs")
    (line,) = found.skipped
    assert "1 run" in line and "here: " in line and "no such" in line
    assert len(found.results) == 6 and len(found.predictions()) == 0 and found.skipped == [line]
    with pytest.raises(ValueError, match="data="):
        found.examples(found.results["dataset"].iloc[0])
    moved = read_runs(tmp_path / "runs", data=[tmp_path / "there"])
    assert len(moved.predictions()) == 3 * 240 and moved.skipped == []
    with pytest.raises(ValueError, match="nowhere"):
        read_runs(tmp_path / "runs", data=[tmp_path / "nowhere"])
    shutil.copytree(data / "cardinality", tmp_path / "here")
    (line,) = read_runs(tmp_path / "runs").skipped
    assert "here: " in line and "other data" in line


def of_another(path: Path) -> None:
    table = pq.read_table(path)
    ids = pc.replace_substring(table["id"], "cardinality", "elsewhere")
    pq.write_table(table.set_column(0, table.schema.field(0), ids), path)


def turned(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.set_column(5, table.schema.field(5), pc.invert(table["answer"])), path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (Path.unlink, PREDICTIONS),
        (lambda path: path.write_bytes(path.read_bytes()[:200]), PREDICTIONS),
        (of_another, " id"),
        (turned, "answers"),
    ],
)
def test_predictions_leave_out_damaged_files(runs: Path, spoil: Any, message: str) -> None:
    first, second = sorted(path for path in runs.iterdir() if path.is_dir())
    spoil(first / PREDICTIONS)
    found = read_runs(runs)
    assert set(found.predictions()["name"]) == {second.name}
    found.predictions()
    (line,) = found.skipped
    assert message in line and "\n" not in line


def test_read_runs_without_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path / 'runs'}: "):
        read_runs(tmp_path / "runs")
    assert len(read_runs(tmp_path).results) == 0 and len(read_runs(tmp_path).predictions()) == 0
