"""Figures: what they draw counted by a plain loop, what must be blank or drawn, files that stay the same."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.text import Text

from analysis import Runs, counts, load
from analysis.examples import examples_of
from analysis.figures import FIGURES, draw, save
from splits import CARDINALITY
from tests.grid import Accuracy, make_run
from tests.helpers import generated
from train.results.store import canonical
from travlr.config import Count, Image
from travlr.tasks import PAPER, TASKS

COUNTS = {"train": 300, "validation": 0, "test_ind": 300, "test_ood": 300}
SIZES = (0.25, 0.5, 1.0)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A run of each task in each of two settings, and runs on parts of the train split of cardinality."""
    base = tmp_path_factory.mktemp("figures")
    for task in PAPER:
        generated(base / task, TASKS[task].Config(count=Count(**COUNTS), image=Image(cell=8)))
        for setting in ("image", "caption"):
            make_run(base / "runs", base / task, right_in(setting), setting=setting)
    for part in SIZES:
        training = {"examples": part}
        make_run(base / "runs", base / "cardinality", lambda *_, right=part: 0.5 + 0.4 * right, setting="image",
                 experiment="subsets", config={"training": training})  # fmt: skip
    found = load(base / "runs")
    subset = found.results["experiment"] == "subsets"
    parts = found.results.loc[subset, "config"].str.extract(r'"examples":([\d.]+)')[0].astype(float)
    found.results.loc[subset, "train_examples"] = (300 * parts).astype(int)
    return found


def right_in(own: str) -> Accuracy:
    return lambda shown, _: 0.9 if shown == own else 0.5


def where(figure: str, task: str = "cardinality") -> dict[str, Any]:
    """What chooses the results that a figure is drawn from."""
    if FIGURES[figure].of == "predictions":
        several = figure in ("agreement", "calibration")
        own = {"task": task, "setting": "image", "experiment": None}
        return own if several else own | {"test_setting": "image"}
    return {"task": task}


def chosen(runs: Runs, task: str, **more: Any) -> pd.DataFrame:
    name = runs.chosen(task=task, setting="image")["name"].iloc[0]
    return runs.predictions(name=name, **more)


def plain_wilson(hits: int, examples: int) -> tuple[float, float]:
    """The two shares p with (hits / n - p)^2 = z^2 p (1 - p) / n, by the quadratic formula."""
    z2, share = 1.959963984540054**2, hits / examples
    a, b, c = 1 + z2 / examples, -(2 * share + z2 / examples), share**2
    root = math.sqrt(b * b - 4 * a * c)
    return 100 * (-b - root) / (2 * a), 100 * (-b + root) / (2 * a)


def by_hand(frame: pd.DataFrame, key: list[str], hit: str, wanted: bool) -> dict[tuple[Any, ...], list[int]]:
    found: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
    for row in frame.to_dict("records"):
        place = tuple(None if pd.isna(row[name]) else row[name] for name in key)
        found[place][0] += 1
        found[place][1] += bool(row[hit]) == wanted
    return found


def same(table: pd.DataFrame, key: list[str], hits: str, expected: dict[tuple[Any, ...], list[int]]) -> None:
    assert len(table) == len(expected) > 0
    for row in table.to_dict("records"):
        examples, number = expected[tuple(None if pd.isna(row[name]) else row[name] for name in key)]
        assert (row["examples"], row[hits]) == (examples, number)
        assert row["percent"] == pytest.approx(100 * number / examples)
        assert (row["low"], row["high"]) == pytest.approx(plain_wilson(number, examples), abs=1e-6)


# What is counted -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", PAPER)
def test_errors_are_counted_as_by_a_loop(runs: Runs, task: str) -> None:
    frame = chosen(runs, task, test_setting="caption").assign(scene=lambda table: table["row"])
    for count, key in ((counts.by_pair, ["split", "kind", "x", "y"]), (counts.by_objects, ["split", "objects"])):
        same(count(frame), key, "wrong", by_hand(frame, key, "right", False))


def test_numbers_are_counted_as_by_a_loop(runs: Runs) -> None:
    frame = chosen(runs, "cardinality", test_setting="caption").assign(scene=lambda table: table["row"])
    lines = [int(text.split()[2]) for text in frame["query"]]  # "There are 3 circle objects."
    expected = by_hand(frame.assign(predicted=lines), ["split", "x", "predicted"], "prediction", True)
    same(counts.by_number(frame), ["split", "actual", "predicted"], "true", expected)


def test_deciding_sets_are_counted_as_by_a_loop(runs: Runs) -> None:
    frame = chosen(runs, "quantifiers", test_setting="caption").assign(scene=lambda table: table["row"])
    shown = {("all", False), ("not all", True), ("some", True), ("none", False), ("only", False), ("not only", True)}
    kept = frame[[(lines, answer) in shown for lines, answer in zip(frame["claim"], frame["answer"], strict=True)]]
    table = counts.by_critical(frame)
    same(table, ["split", "claim", "critical"], "wrong", by_hand(kept, ["split", "claim", "critical"], "right", False))
    assert {(row.claim, row.answer) for row in table.itertuples()} == shown


def test_agreement_is_counted_as_by_a_loop(runs: Runs) -> None:
    frame = chosen(runs, "cardinality")
    found: dict[tuple[str, str], int] = defaultdict(int)
    right = {(row.id, row.test_setting): row.right for row in frame.itertuples()}
    for row in frame[frame["test_setting"] == "image"].itertuples():
        image, caption = row.right, right[row.id, "caption"]
        which = {(1, 1): "both right", (0, 0): "both wrong", (1, 0): "only image right", (0, 1): "only caption right"}
        found[row.split, which[int(image), int(caption)]] += 1
    table = counts.agreement(frame.sample(frac=1, random_state=0))
    for row in table.to_dict("records"):
        assert (row["count"], row["examples"]) == (found[row["split"], row["outcome"]], 300)
    assert table.groupby("split", observed=True)["independent"].sum().to_list() == pytest.approx([100, 100])
    with pytest.raises(ValueError, match="from image and from caption"):
        counts.agreement(frame[frame["test_setting"] == "image"])


def test_calibration_is_counted_as_by_a_loop(runs: Runs) -> None:
    frame = chosen(runs, "comparison")
    bins: dict[tuple[str, str, int], list[tuple[float, bool]]] = defaultdict(list)
    for row in frame.to_dict("records"):
        true = 1 / (1 + math.exp(-float(row["logit"])))
        sure = max(true, 1 - true)
        bins[row["test_setting"], row["split"], min(9, int((sure - 0.5) * 20))].append((sure, row["right"]))
    table = counts.calibration(frame)
    assert len(table) == len(bins)
    for row in table.to_dict("records"):
        inside = bins[row["test_setting"], row["split"], row["bin"]]
        assert (row["examples"], row["right"]) == (len(inside), sum(right for _, right in inside))
        assert row["confidence"] == pytest.approx(100 * np.mean([sure for sure, _ in inside]), abs=1e-3)
    parts = [abs(sum(sure for sure, _ in b) - sum(right for _, right in b)) for b in bins.values()]
    assert counts.calibration_error(table) == pytest.approx(100 * sum(parts) / len(frame), abs=1e-3)


def test_scenes_that_repeat_widen_intervals() -> None:
    """Examples that come in fours of one scene, alike in all, are a quarter as many."""
    wrong = np.repeat(np.arange(25) < 10, 4)
    frame = pd.DataFrame({"split": "test_ind", "scene": np.repeat(np.arange(25), 4)})
    [row] = counts.shares(frame, ["split"], wrong).to_dict("records")
    assert (row["low"], row["high"]) == pytest.approx(plain_wilson(10, 25))
    [row] = counts.shares(frame, ["split"], np.zeros(100, bool)).to_dict("records")
    assert (row["low"], row["high"]) == pytest.approx(plain_wilson(0, 25), abs=1e-6)
    [row] = counts.shares(frame.assign(scene=range(100)), ["split"], wrong).to_dict("records")
    assert (row["low"], row["high"]) == pytest.approx(plain_wilson(40, 100))


def test_pairs_of_a_dataset_are_counted_as_by_a_loop(runs: Runs) -> None:
    dataset = runs.datasets[runs.chosen(task="quantifiers")["dataset"].iloc[0]]
    for split in ("train", "test_ood"):
        expected: dict[str, int] = defaultdict(int)
        for example in dataset[split]:
            expected[" ".join(example.pair)] += 1
        table = counts.pair_counts(examples_of(dataset, split))
        assert {f"{row.kind} {row.x} {row.y}": row.examples for row in table.itertuples()} == expected


def test_sizes_and_transfer_are_the_results(runs: Runs) -> None:
    table = counts.by_size(runs.chosen(task="cardinality"))
    sizes = table[~table["streamed"].astype(bool)]
    assert sorted(sizes["train_examples"].unique()) == [75, 150, 300]
    for row in sizes.to_dict("records"):
        own = runs.chosen(name=row["name"], test_setting="image", split=row["split"])
        assert own["macro_f1"].to_list() == [row["macro_f1"]]
    matrix = counts.transfer(runs.chosen(task="comparison"))
    assert len(matrix) == 2 * 3 * 2 and set(matrix["runs"]) == {1}
    for row in matrix.to_dict("records"):
        where = {name: row[name] for name in ("setting", "test_setting", "split")}
        assert runs.chosen(task="comparison", **where)["macro_f1"].to_list() == [row["macro_f1"]]


def test_transfer_averages_converged_seeds() -> None:
    config = '{"model":"uniter","seed":%d,"setting":"image","training":{"examples":null}}'
    shared: dict[str, Any] = {
        "model": "uniter",
        "size": "tiny",
        "experiment": None,
        "setting": "image",
        "test_setting": "image",
        "task": "cardinality",
    }
    shared |= {"split": "test_ind", "interval_low": 0.0, "interval_high": 1.0}
    scores = [(0, 90.0, True), (1, 80.0, True), (2, 50.0, False)]
    rows = pd.DataFrame([shared | {"config": config % s, "macro_f1": f, "converged": c} for s, f, c in scores])
    [cell] = counts.transfer(rows).to_dict("records")
    assert (cell["macro_f1"], cell["low"], cell["high"], cell["runs"], cell["converged"]) == (85.0, 80.0, 90.0, 3, 2)
    [cell] = counts.transfer(rows.assign(converged=False)).to_dict("records")
    assert (cell["macro_f1"], cell["converged"]) == (pytest.approx(220 / 3), 0)
    further = rows.assign(config=[config.replace("{", '{"start":"0123abcd",', 1) for config in rows["config"]])
    [cell] = counts.transfer(pd.concat([rows, further])).to_dict("records")
    assert cell["runs"] == 3  # what was trained further has learned in two settings
    with pytest.raises(ValueError, match="trained in one setting alone"):
        counts.transfer(further)


def settled(settings: list[dict[str, Any]], **columns: Any) -> pd.DataFrame:
    known = {"model": "uniter", "size": "small", "task": "cardinality", "setting": "image"}
    told = [{"seed": seed, **known, **config} for seed, config in enumerate(settings)]
    rows = [known | {"seed": one["seed"], "config": canonical(one)} for one in told]
    return pd.DataFrame(rows).assign(**columns)


def test_runs_are_called_by_the_settings_that_tell_them_from_others() -> None:
    plain, longer = {"training": {"steps": 20, "examples": None}}, {"training": {"steps": 40, "examples": None}}
    assert counts.run_labels(settled([plain, plain])).to_list() == ["uniter small"] * 2
    assert counts.run_labels(settled([longer, plain, plain])).to_list() == [
        "uniter small, training.steps=40",
        "uniter small",
        "uniter small",
    ]
    other = {"training": {"steps": 20, "examples": 1}, "start": "0123abcd"}
    assert counts.distinguishing_settings(settled([plain, other])).to_list() == [
        "",
        "start=0123abcd, training.examples=1",
    ]
    assert counts.distinguishing_settings(settled([plain, other]), ("start",)).to_list() == [
        "",
        "training.examples=1",
    ]
    usual = {"training": {"steps": 2000, "examples": None}}  # the default, however few have it
    assert counts.distinguishing_settings(settled([plain, usual])).to_list() == ["training.steps=20", ""]
    assert counts.distinguishing_settings(settled([plain, plain, usual])).to_list() == ["training.steps=20"] * 2 + [""]
    apart = settled([plain, longer], model=["uniter", "lxmert"])  # no other run has the model
    assert counts.run_labels(apart).to_list() == ["uniter small", "lxmert small"]
    assert counts.run_labels(settled([plain, longer], task=["cardinality", "spatiality"])).nunique() == 1
    unknown = settled([plain, longer]).assign(config=[None, "{}"])
    assert counts.run_labels(unknown).to_list() == ["uniter small"] * 2


def test_curves_that_cannot_be_read_are_told_of_and_the_others_drawn(runs: Runs, tmp_path: Path) -> None:
    few = runs.chosen(task="comparison")
    names = list(few["name"].unique())
    for name in names[1:]:
        (tmp_path / name).symlink_to(runs.folder / name)
    found = Runs(tmp_path, few, [], {})
    assert any("comparison · 1 run, seed 0" in text.get_text() for text in draw("loss", found).texts)
    assert [line.split(": ")[0] for line in found.skipped] == [str(tmp_path / names[0] / "curve.csv")]


def test_figures_of_several_runs_tell_settings_below_and_of_one_in_the_title(runs: Runs) -> None:
    few = runs.chosen(task="cardinality", setting="image")
    part = few[few["config"].str.contains('"examples":0.25')]["name"].iloc[0]
    told = " ".join(text.get_text() for text in draw("cells", runs, name=part, test_setting="image").texts)
    assert "training.examples=0.25" in told
    figure = draw("transfer", runs, task="cardinality")
    titles = {axes.get_title(loc="left") for axes in figure.axes} - {""}
    matrices = ("uniter small", *(f"uniter small [{n}]" for n in (1, 2, 3)), "text alone")
    assert titles == {f"{split}, {label}" for split in ("test_ind", "test_ood") for label in matrices}
    note = " ".join(text.get_text() for text in figure.texts)
    for number, part in enumerate(("0.25", "0.5"), 1):
        assert f"[{number}] training.examples={part}." in note
    assert "[3] training.examples=1." in note


def test_epochs_are_steps_over_those_of_an_epoch(runs: Runs) -> None:
    rows = runs.chosen(experiment="subsets", train_examples=150)
    name = rows["name"].iloc[0]
    curve = counts.losses({name: runs.curve(name)}, rows)
    assert curve["step"].to_list() == list(range(10, 110, 10))
    assert curve["epoch"].to_list() == pytest.approx([step / (150 // 64) for step in range(10, 110, 10)])
    assert curve["loss"].to_list() == pytest.approx([1 / step for step in range(10, 110, 10)])
    streamed = runs.chosen(task="comparison")["name"].iloc[0]
    assert counts.losses({streamed: runs.curve(streamed)}, runs.results)["epoch"].isna().all()
    unknown = counts.losses({streamed: runs.curve(streamed)}, runs.results.assign(config=None))
    assert unknown[["epoch", "batch"]].isna().all(axis=None)


# What is drawn -------------------------------------------------------------------------------------------------------

DRAWN = [(figure, task) for figure, kind in FIGURES.items() for task in PAPER if kind.suits(task)
         if figure != "subsets" or task == "cardinality"]  # fmt: skip


def texts(figure: Figure) -> list[Text]:
    return [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_visible() and text.get_text()]


@pytest.mark.parametrize(("figure", "task"), DRAWN)
def test_draw_names_the_runs(runs: Runs, figure: str, task: str, tmp_path: Path) -> None:
    drawn = draw(figure, runs, **where(figure, task))
    told = " ".join(text.get_text() for text in drawn.texts)
    assert task in told and task in str(drawn.get_label())
    if FIGURES[figure].of == "predictions":
        rows = runs.chosen(**where(figure, task))
        assert all(f"{score:.2f}" in told for score in rows[rows["test_setting"] == "image"]["macro_f1"])
    (path,) = save(drawn, tmp_path, figure, ("svg",))
    assert b"<text" in path.read_bytes()


@pytest.mark.parametrize("task", ["spatiality", "cardinality", "comparison"])
def test_held_out_cells_are_blank(runs: Runs, task: str) -> None:
    drawn = draw("cells", runs, **where("cells", task))
    frame = runs.predictions(**where("cells", task))
    for axes in drawn.axes[:-1]:  # the last is the scale
        title = axes.get_title(loc="left").split(", ")
        here = frame[frame["split"] == title[0]]
        here = here[here["kind"] == title[1]] if len(title) > 1 else here
        [mesh] = [artist for artist in axes.collections if isinstance(artist, QuadMesh)]
        values = np.ma.getmaskarray(np.ma.asarray(mesh.get_array()))
        rows = [label.get_text() for label in axes.get_yticklabels()]
        places = {(rows.index(r.kind) if task == "cardinality" else r.y - 1, r.x - 1) for r in here.itertuples()}
        assert {(int(y), int(x)) for y, x in np.argwhere(~values)} == places
        if task == "cardinality" and title[0] == "test_ind":
            held_out = {(rows.index(shape), n - 1) for shape, numbers in CARDINALITY.items() for n in numbers}
            assert not held_out & places and values.sum() == len(held_out)


FLOORED = {"pairs": "spatiality", "objects": "cardinality", "quantifiers": "quantifiers", "calibration": "comparison"}


@pytest.mark.parametrize(("figure", "task"), [*FLOORED.items(), ("subsets", "cardinality")])
def test_baselines_are_drawn_at_their_levels(runs: Runs, figure: str, task: str) -> None:
    moved = runs.results.copy()
    levels = {"floor_query": 41.0, "floor_query_objects": 43.5}
    for name, level in levels.items():
        moved[name] = level + 1
        moved[f"{name}_accuracy"] = level
    drawn = draw(figure, Runs(runs.folder, moved, [], runs.datasets), **where(figure, task))
    above = {"objects": (59.0, 56.5), "quantifiers": (59.0, 56.5), "subsets": (42.0, 44.5)}.get(figure, (41.0, 43.5))
    for axes in drawn.axes:
        lines = {float(np.asarray(line.get_ydata())[0]) for line in axes.lines if "floor" in str(line.get_gid())}
        assert lines == set(above)
    assert any("text alone" in text.get_text() for text in texts(drawn))


def test_the_transfer_matrix_shows_baselines(runs: Runs) -> None:
    moved = runs.results.assign(floor_query=12.3, floor_query_objects=45.6)
    drawn = draw("transfer", Runs(runs.folder, moved, [], runs.datasets), task="comparison")
    shown = [text.get_text() for text in texts(drawn)]
    assert shown.count("12.3") == shown.count("45.6") == 2 * 3  # splits x test settings


# What cannot be drawn ------------------------------------------------------------------------------------------------


def test_draw_refuses_what_it_cannot_draw(runs: Runs) -> None:
    one = {"task": "comparison", "setting": "image", "test_setting": "image"}
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("nonsense", {}, "choose one of pairs, cells"),
        ("pairs", one, "task='spatiality'"),
        ("cells", {"task": "comparison", "test_setting": "image"}, "2 values of name"),
        ("transfer", {"task": "none"}, "no results to draw"),
        ("loss", {"nonsense": 1}, "no such column"),
    ]
    for figure, chosen, message in wrong:
        with pytest.raises(ValueError, match=message):
            draw(figure, runs, **chosen)
    with pytest.raises(ValueError, match=r"data=\[FOLDER\]"):
        draw("dataset", Runs(runs.folder, runs.results, [], {}), task="comparison")
