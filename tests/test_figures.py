"""Figures: what they draw counted by a plain loop, what must be blank or drawn, and that all are drawn."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import QuadMesh

from analysis.figures import FIGURES, draw, rates, write_figure
from analysis.figures.of_predictions import (
    CRITICAL_ANSWERS,
    PAIR_COLUMNS,
    bin_confidence,
    calibration_error,
    count_agreement,
)
from analysis.figures.of_runs import sizes_of, transfer_scores
from analysis.frames import Runs, read_runs
from splits import CARDINALITY
from tests.grid import Accuracy, make_run
from tests.helpers import generated
from travlr.config import Count, Image
from travlr.tasks import TASKS

COUNTS = {"train": 300, "validation": 0, "test_ind": 300, "test_ood": 300}
PAPERS = ("spatiality", "cardinality", "quantifiers", "comparison")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A run of each task in each of two settings, and runs on parts of the train split of cardinality."""
    base = tmp_path_factory.mktemp("figures")
    for task in PAPERS:
        generated(base / task, TASKS[task].Config(count=Count(**COUNTS), image=Image(cell=8)))
        for setting in ("image", "caption"):
            make_run(base / "runs", base / task, right_in(setting), setting=setting)
    for part in (0.25, 0.5, 1.0):
        make_run(base / "runs", base / "cardinality", lambda *_, right=part: 0.5 + 0.4 * right, setting="image",
                 experiment="subsets", config={"training": {"examples": part}})  # fmt: skip
    saved = read_runs(base / "runs")
    subset = saved.results["experiment"].eq("subsets").fillna(False)
    parts = saved.results.loc[subset, "training.examples"].astype(float)
    saved.results.loc[subset, "train_examples"] = (300 * parts).astype(int)
    return saved


def right_in(own: str) -> Accuracy:
    return lambda shown, _: 0.9 if shown == own else 0.5


def where(runs: Runs, figure: str, task: str) -> dict[str, Any]:
    """What chooses the results that a figure is drawn from."""
    if FIGURES[figure].of != "predictions":
        return {"task": task}
    rows = runs.choose(task=task, setting="image")
    own = {"name": rows[rows["experiment"].isna()]["name"].iloc[0]}
    return own if FIGURES[figure].tests else own | {"test_setting": "image"}


def predictions(runs: Runs, task: str, **more: Any) -> pd.DataFrame:
    return runs.predictions(**where(runs, "agreement", task), **more)


def count_by_loop(frame: pd.DataFrame, key: list[str], hits: pd.Series) -> dict[tuple[Any, ...], list[int]]:
    counts: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
    for row, hit in zip(frame.to_dict("records"), hits, strict=True):
        place = tuple(None if pd.isna(row[name]) else row[name] for name in key)
        counts[place][0] += 1
        counts[place][1] += bool(hit)
    return counts


# What is counted -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", PAPERS)
def test_rates_are_those_of_a_loop(runs: Runs, task: str) -> None:
    frame = predictions(runs, task, test_setting="caption")
    for key in (PAIR_COLUMNS, ["split", "objects"], ["split", "claim", "answer"]):
        table, expected = rates(frame, key, ~frame["right"]), count_by_loop(frame, key, ~frame["right"])
        assert len(table) == len(expected) > 0
        for row in table.to_dict("records"):
            examples, number = expected[tuple(None if pd.isna(row[name]) else row[name] for name in key)]
            assert (row["examples"], row["wrong"]) == (examples, number)
            assert row["percent"] == pytest.approx(100 * number / examples)
            assert row["low"] <= row["percent"] <= row["high"]


def test_critical_answers_are_those_whose_deciding_set_is_not_empty(runs: Runs) -> None:
    shown = {("all", False), ("not all", True), ("some", True), ("none", False), ("only", False), ("not only", True)}
    assert set(CRITICAL_ANSWERS.items()) == shown
    frame = predictions(runs, "quantifiers", test_setting="caption")
    critical = frame["answer"] == frame["claim"].map(CRITICAL_ANSWERS).astype(bool)
    assert (frame[critical]["critical"] > 0).all() and (frame[~critical]["critical"] == 0).all()


def test_agreement_is_that_of_a_loop(runs: Runs) -> None:
    frame = predictions(runs, "cardinality", test_setting=["image", "caption"])
    counts: dict[tuple[str, str], int] = defaultdict(int)
    right = {(row.id, row.test_setting): row.right for row in frame.itertuples()}
    words = {(1, 1): "both right", (0, 0): "both wrong", (1, 0): "only image right", (0, 1): "only caption right"}
    for row in frame[frame["test_setting"] == "image"].itertuples():
        counts[row.split, words[int(row.right), int(right[row.id, "caption"])]] += 1
    table = count_agreement(frame.sample(frac=1, random_state=0))
    assert {(row["split"], row["outcome"]): row["count"] for row in table.to_dict("records")} == counts
    assert table.groupby("split", observed=True)["independent"].sum().to_list() == pytest.approx([100, 100])
    with pytest.raises(ValueError, match=r"^agreement: "):
        count_agreement(frame[frame["test_setting"] == "image"])


def test_calibration_is_that_of_a_loop(runs: Runs) -> None:
    frame = predictions(runs, "comparison")
    bins: dict[tuple[str, str, int], list[tuple[float, bool]]] = defaultdict(list)
    for row in frame.to_dict("records"):
        true = 1 / (1 + math.exp(-float(row["score"])))
        sure = max(true, 1 - true)
        bins[row["test_setting"], row["split"], min(9, int((sure - 0.5) * 20))].append((sure, row["right"]))
    table = bin_confidence(frame)
    assert len(table) == len(bins)
    for row in table.to_dict("records"):
        sure, right = np.mean(bins[row["test_setting"], row["split"], row["bin"]], axis=0)
        assert row["examples"] == len(bins[row["test_setting"], row["split"], row["bin"]])
        assert (row["right"] / row["examples"], row["confidence"]) == pytest.approx((right, 100 * sure), abs=1e-3)
    parts = [abs(np.subtract(*np.sum(values, axis=0))) for values in bins.values()]
    assert calibration_error(table) == pytest.approx(100 * sum(parts) / len(frame), abs=1e-3)


def test_sizes_and_transfer_are_the_results(runs: Runs) -> None:
    table = sizes_of(runs.choose(task="cardinality"))
    assert sorted(table[~table["streamed"]]["train_examples"].unique()) == [75, 150, 300]
    matrix = transfer_scores(runs.choose(task="comparison"))
    assert len(matrix) == 2 * 3 * 2 and set(matrix["runs"]) == {1}
    for row in matrix.to_dict("records"):
        place = {name: row[name] for name in ("setting", "test_setting", "split")}
        assert runs.choose(task="comparison", **place)["macro_f1"].to_list() == [row["macro_f1"]]


def test_transfer_averages_converged_seeds() -> None:
    config = '{"model":"uniter","seed":%d,"setting":"image","training":{"examples":null}}'
    shared: dict[str, Any] = {"model": "uniter", "size": "tiny", "experiment": None, "start": None}
    shared |= {"form": None, "prompt": None}
    shared |= {"setting": "image", "test_setting": "image", "task": "cardinality", "split": "test_ind"}
    shared |= {"interval_low": 0.0, "interval_high": 1.0, "dataset": "0123", "seed": 0}
    shared |= {"above_random": True, "above_unbound": True, "initial": "random", "own": True}
    scores = [(0, 90.0, True), (1, 80.0, True), (2, 50.0, False)]
    rows = pd.DataFrame(
        [shared | {"name": f"run{s}", "config": config % s, "macro_f1": f, "converged": c} for s, f, c in scores]
    )
    [cell] = transfer_scores(rows).to_dict("records")
    assert (cell["macro_f1"], cell["low"], cell["high"], cell["runs"], cell["converged"]) == (85.0, 80.0, 90.0, 3, 2)
    [cell] = transfer_scores(rows.assign(converged=False)).to_dict("records")
    assert (cell["macro_f1"], cell["converged"]) == (pytest.approx(220 / 3), 0)
    with pytest.raises(ValueError, match="one setting"):
        transfer_scores(rows.assign(start="0123abcd"))  # what was trained further has learned in two settings


# What is drawn -------------------------------------------------------------------------------------------------------

DRAWN = [(figure, task) for figure, kind in FIGURES.items() for task in PAPERS if kind.suits(task)
         if figure != "subsets" or task == "cardinality"]  # fmt: skip


@pytest.mark.parametrize(("figure", "task"), DRAWN)
def test_draw_makes_every_figure_of_every_task(runs: Runs, figure: str, task: str, tmp_path: Path) -> None:
    figure_of_task = draw(figure, runs, **where(runs, figure, task))
    assert task in str(figure_of_task.get_label()) and FIGURES[figure].caption
    if figure in ("pairs", "objects", "quantifiers", "calibration", "subsets"):
        assert any(line.get_gid() == "baseline" for line in figure_of_task.axes[0].lines)
        assert any("baseline" in text.get_text() for text in figure_of_task.legends[0].get_texts())
    if (figure, task) == next(drawn for drawn in DRAWN if drawn[0] == figure):  # saving takes longest
        write_figure(figure_of_task, tmp_path, figure, ("svg",))
        assert b"<text" in (tmp_path / f"{figure}.svg").read_bytes()


@pytest.mark.parametrize("task", ["spatiality", "cardinality", "comparison"])
def test_cells_of_held_out_pairs_are_blank(runs: Runs, task: str) -> None:
    figure = draw("cells", runs, **where(runs, "cells", task))
    frame = runs.predictions(**where(runs, "cells", task))
    for axes in (axes for axes in figure.axes if axes.get_title(loc="left")):  # the others are scales
        title = axes.get_title(loc="left").split(", ")
        here = frame[frame["split"] == title[0]]
        here = here[here["kind"] == title[1]] if len(title) > 1 else here
        [mesh] = [artist for artist in axes.collections if isinstance(artist, QuadMesh)]
        blank = np.ma.getmaskarray(np.ma.asarray(mesh.get_array())).reshape(len(axes.get_yticks()), -1)
        rows = [label.get_text() for label in axes.get_yticklabels()]
        places = {
            (rows.index(r.kind) if task == "cardinality" else len(rows) - r.y, r.x - 1) for r in here.itertuples()
        }
        assert {(int(y), int(x)) for y, x in np.argwhere(~blank)} == places
        if task == "cardinality" and title[0] == "test_ind":
            held_out = {(rows.index(shape), n - 1) for shape, numbers in CARDINALITY.items() for n in numbers}
            assert not held_out & places and blank.sum() == len(held_out)


def test_draw_refuses_what_it_cannot_draw(runs: Runs) -> None:
    one = {"task": "comparison", "setting": "image", "test_setting": "image"}
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("nonsense", {}, "pairs, cells"),
        ("pairs", one, "task='spatiality'"),
        ("cells", {"task": "comparison", "test_setting": "image"}, "2 values of name"),
        ("transfer", {"task": "none"}, "no results"),
    ]
    for figure, chosen, message in wrong:
        with pytest.raises(ValueError, match=message):
            draw(figure, runs, **chosen)
    with pytest.raises(ValueError, match=r"data=\[FOLDER\]"):
        draw("dataset", replace(runs, datasets={}, _examples={}), task="comparison")
