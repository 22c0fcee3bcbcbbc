"""Figures of one run's predictions: errors by pair and by number, and confidence; and a figure of a dataset.

Each is a function from predictions (of `Runs.predictions`) and results to a `Figure`; `analysis.figures` lists them.
`analysis.counts` computes the numbers. A figure without data raises `ValueError`, in one line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import counts
from analysis.figures.panels import (
    BLUE,
    ORANGE,
    SKY,
    SMALL,
    SPLIT_STYLE,
    TEXT,
    bars,
    baseline_legend,
    baseline_levels,
    baseline_lines,
    colour_scale,
    each_panel,
    label_axes,
    label_outside,
    number_cells,
    panel_figure,
    percent_axis,
    split_legend,
    whiskers,
    widest,
)
from train.results.columns import TEST_SETTINGS, in_order
from train.results.tables import origin
from travlr.scene import SPLITS, column_name
from travlr.tasks import TASKS, task_class
from travlr.tasks.base import BaseTask
from travlr.tasks.quantifiers import FAMILIES

INTERVAL = "Whiskers: 95 % intervals (Wilson; examples that share a scene count as a cluster)."


# Titles --------------------------------------------------------------------------------------------------------------


def run_title(rows: pd.DataFrame, results: pd.DataFrame) -> list[str]:
    """Title lines of one run: its settings, macro-F1 in its results `rows`, and how it differs from other runs."""
    row = rows.iloc[0]
    settings = [setting for setting in TEST_SETTINGS if setting in set(rows["test_setting"])]
    size = f" ({row['size']})" if pd.notna(row["size"]) else ""
    run = f"{row['model']}{size} trained in {row['setting']}, tested in {', '.join(settings)} · {row['task']}"
    scores = []
    for _, result in rows.iterrows():
        where = result["split"] if len(settings) == 1 else f"{result['test_setting']} {result['split']}"
        scores.append(f"{where} {result['macro_f1']:.2f}")
    others = results[(results["model"] == row["model"]) & (results["task"] == row["task"])]
    differences = counts.distinguishing_settings(others)[row.name]
    return [
        f"{run}, seed {row['seed']}, {_origin(row['weights'])}",
        f"macro-F1: {', '.join(scores)} · run {row['run']}{f' · {differences}' if differences else ''}",
    ]


def runs_title(results: pd.DataFrame) -> list[str]:
    """A title line of several runs."""
    count, seeds = results["run"].nunique(), sorted(results["seed"].dropna().unique())
    several = f"{count} run{'s' * (count > 1)}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    tasks = ", ".join(in_order(results["task"].dropna(), TASKS))
    return [f"{tasks} · {several}, {' or '.join(sorted({_origin(weights) for weights in results['weights']}))}"]


def _origin(weights: Any) -> str:
    return origin({"weights": weights if pd.notna(weights) else None})


def _begin(
    title: str, count: Callable[[pd.DataFrame], pd.DataFrame], predictions: pd.DataFrame, results: pd.DataFrame,
    one_setting: bool = True,
) -> tuple[list[str], pd.DataFrame, list[str], pd.DataFrame]:  # fmt: skip
    """What each figure of a run begins with: title lines, the table of counts, splits, and the results that belong to
    the predictions. Raises `ValueError` unless all predictions are of one run (and setting)."""
    if not len(predictions):
        raise ValueError("no predictions to draw: choose other runs, or see in `skipped` what could not be read")
    for column in ("name", "test_setting")[: 1 + one_setting]:
        if len(values := predictions[column].unique()) > 1:
            raise ValueError(
                f"predictions of {len(values)} values of {column}: choose one, such as {column}={values[0]!r}"
            )
    rows = results[results["name"] == predictions["name"].iloc[0]]
    for column in ("test_setting", "split"):
        rows = rows[rows[column].isin(list(predictions[column].unique()))]
    if not len(rows):
        raise ValueError(f"no results of run {predictions['name'].iloc[0]}: pass those of the same runs")
    table = count(predictions)
    return [title, *run_title(rows, results)], table, in_order(table["split"], SPLITS), rows


def _task_of(frame: pd.DataFrame) -> type[BaseTask]:
    return task_class(str(frame["task"].iloc[0]))


# Pairs as cells ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairGrid:
    """The axes of a grid of pairs: their labels, the column of the y values, and the values with their names."""

    labels: tuple[str, str]
    y_column: str
    x: dict[Any, str]
    y: dict[Any, str]


def _pair_grids(table: pd.DataFrame, task: type[BaseTask]) -> dict[str, PairGrid]:
    """A grid for each kind of pairs; a single one, under "", if all kinds share it (the shapes of cardinality).

    Raises `ValueError` if no pair has two values.
    """
    shown = table[["kind", "x", "y"]].drop_duplicates().itertuples(index=False)
    axes = task.axes_of([[str(value) for value in row if not pd.isna(value)] for row in shown])
    if "" in axes:
        kinds = {kind: kind for kind in sorted(table["kind"].unique(), reverse=True)}
        return {"": PairGrid((axes[""][1], ""), "kind", _axis(table, "x"), kinds)}
    grids = {}
    for kind, labels in axes.items():
        of_kind = table[table["kind"] == kind]
        if not len(of_kind) or len(labels) != 2:
            continue
        grids[kind] = PairGrid((labels[0], labels[1]), "y", _axis(of_kind, "x", "y"), _axis(of_kind, "y", "x"))
    if not grids:
        raise ValueError("no pairs to draw: none has two values")
    return grids


def _axis(table: pd.DataFrame, column: str, *others: str) -> dict[Any, str]:
    """The values along an axis, with their names: words, or all numbers up to the largest in this and other columns."""
    if not pd.api.types.is_numeric_dtype(table[column]):
        return {value: str(value) for value in sorted(table[column].dropna().unique())}
    numeric = [name for name in (column, *others) if pd.api.types.is_numeric_dtype(table[name])]
    letters = table["pair"].astype(str).str.contains(r" [A-Z](?: |$)").any()
    return {n: column_name(n - 1) if letters else str(n) for n in range(1, int(table[numeric].max().max()) + 1)}


def _pair_cells(axes: Axes, table: pd.DataFrame, grid: PairGrid, value: str) -> None:
    """Draw pairs as cells. value: a column of percentages, whose colours range from 0 to 100 in all figures."""
    columns, rows = list(grid.x), list(grid.y)
    x, y = [columns.index(item) for item in table["x"]], [rows.index(item) for item in table[grid.y_column]]
    numbers = [str(examples) for examples in table["examples"]]
    big, small = (numbers, [""] * len(x)) if value == "share" else (map(_percent, table[value]), numbers)
    points = (SMALL if value == "share" else TEXT - 1, SMALL - 0.5)
    cells = zip(x, y, table[value], big, small, strict=True)
    number_cells(axes, list(grid.x.values()), list(grid.y.values()), cells, points)
    label_axes(axes, "", *grid.labels)


def _percent(value: float) -> str:
    """Percent without digits; only 0 itself is written as 0, and only 100 as 100."""
    return "<1" if 0 < value < 0.5 else ">99" if 99.5 <= value < 100 else f"{value:.0f}"


def _pair_panels(
    title: list[str], table: pd.DataFrame, places: Sequence[tuple[str, str]], grids: dict[str, PairGrid], value: str,
    across: int, cell: float, scale: str, gap: tuple[float, float], **more: Any,
) -> tuple[Figure, Axes]:  # fmt: skip
    """A figure with a panel of pairs for each place (a split and a kind), and its colour scale. cell: size in
    inches. Names that are wider than a cell are turned, and margins have room for names."""
    titles = [f"{split}, {kind}" if len(grids) > 1 else split for split, kind in places]
    name = widest({name for grid in grids.values() for name in grid.x.values()}, TEXT - 1)
    beside = 0.4 + widest({name for grid in grids.values() for name in grid.y.values()}, TEXT - 1)
    down = name if name > 0.9 * cell else 0.0
    width = max(cell * max(len(grid.x) for grid in grids.values()), widest(titles, TEXT))
    labels = widest({grid.labels[1] for grid in grids.values()}, TEXT - 0.5)
    size = (width, max(cell * max(len(grid.y) for grid in grids.values()), labels))
    margin = max(0.8 if "" in grids else 0.55, beside)
    figure, panels = panel_figure(
        title, math.ceil(len(places) / across), [size] * across, left=margin, right=0.75,
        gap=(max(gap[0], beside), gap[1] + down), below=0.5 + down, **more,
    )  # fmt: skip
    for axes, (words, (split, kind)) in each_panel(panels, zip(titles, places, strict=True)):
        pairs_of_kind = table[(table["split"] == split) & (not kind or table["kind"] == kind)]
        _pair_cells(axes, pairs_of_kind, grids[kind], value)
        label_axes(axes, words)
        axes.tick_params("x", rotation=90 if down else 0)
    return figure, colour_scale(figure, panels[0][-1], 0, 100, scale)


def cells(predictions: pd.DataFrame, results: pd.DataFrame) -> Figure:
    """Wrong answers of a run in one test setting, percent, by pair <x, y> (figures 3, 24, 25)."""
    title, table, splits, rows = _begin("Wrong answers by pair", counts.by_pair, predictions, results)
    grids = _pair_grids(table, _task_of(predictions))
    places = list(product(splits, grids))
    note = (
        "In a cell: percent of answers that are wrong and, small, the number of examples. Blank: the split has no such "
        "examples; the pair is held out, or cannot be. Lines in the scale: percent that text alone gets wrong."
    )
    gap, across = (0.8 if "" in grids else 0.5, 0.7), min(3 if len(grids) > 2 else 2, len(places))
    key = baseline_legend(rows, "error")
    figure, scale = _pair_panels(
        title, table, places, grids, "percent", across, 0.36, "wrong answers (%)", note=note, gap=gap, key=key
    )
    baseline_lines(scale, rows, "error")
    scale.set_ylim(0, 100)
    return figure


def dataset(examples: pd.DataFrame, results: pd.DataFrame | None = None) -> Figure:
    """How many examples of each split of a dataset show each pair (figures 8-14)."""
    table, task = counts.pair_counts(examples), _task_of(examples)
    splits, grids = in_order(table["split"], SPLITS), _pair_grids(table, task)
    sizes = [f"{split} {len(examples[examples['split'] == split]):,}" for split in splits]
    most = table.groupby("split", observed=True)["examples"].transform("max")
    table = table.assign(share=100 * table["examples"] / most)
    note = "In a cell: the number of examples; colour: as a share of the most frequent pair of its split. Blank: none."
    name = "" if results is None else f"dataset {results['dataset'].iloc[0][:8]} · "
    title = [f"Examples by pair: {task.title()}", f"{examples['task'].iloc[0]} · {name}{', '.join(sizes)} examples"]
    places, gap = [(split, kind) for kind in grids for split in splits], (0.8 if "" in grids else 0.5, 0.62)
    scale = "of the most frequent pair (%)"
    return _pair_panels(title, table, places, grids, "share", len(splits), 0.29, scale, note=note, gap=gap)[0]


def numbers(predictions: pd.DataFrame, results: pd.DataFrame) -> Figure:
    """How often the model answers true, by the scene's number and the query's (figure 4)."""
    words = "Numbers taken for others: queries that the model answers with true"
    title, table, splits, _ = _begin(words, counts.by_number, predictions, results)
    every = list(range(1, int(max(table["actual"].max(), table["predicted"].max())) + 1))
    note = (
        "In a cell: queries that the model answers with true, of all such queries; colour is the share. (The paper's "
        "figure shows the larger number alone.) On the diagonal 'true' is right. Blank: there is no such query."
    )
    side = 0.42 * len(every)
    figure, panels = panel_figure(
        title, 1, [(side, side)] * len(splits), note=note, left=0.55, right=0.75, gap=(0.5, 0)
    )
    for axes, split in each_panel(panels, splits):
        part = table[table["split"] == split]
        x, y = part["actual"].to_numpy(int) - 1, part["predicted"].to_numpy(int) - 1
        true, total = part["true"].astype(str), "of " + part["examples"].astype(str)
        number_cells(axes, every, every, zip(x, y, part["percent"], true, total, strict=True))
        label_axes(axes, split, "actual: number in the scene", "predicted: number in the query")
    colour_scale(figure, panels[0][-1], 0, 100, "answered true (%)")
    return figure


# Bars ----------------------------------------------------------------------------------------------------------------


def pairs(predictions: pd.DataFrame, results: pd.DataFrame) -> Figure:
    """Right and wrong answers by pair, of spatiality: a row for each axis (figure 2)."""
    title, table, splits, rows = _begin("Right and wrong answers by pair", counts.by_pair, predictions, results)
    kinds = [kind for kind in TASKS["spatiality"].axes if kind in set(table["kind"])]
    if not kinds:
        raise ValueError("no predictions of spatiality: choose runs with task='spatiality'")
    most = table.groupby(["split", "kind"], observed=True).size().groupby("split", observed=True).max()
    key = [
        Patch(facecolor=BLUE, label="right"),
        Patch(facecolor=ORANGE, hatch="////", edgecolor="white", label="wrong"),
        *baseline_legend(rows),
    ]
    figure, panels = panel_figure(
        title, len(kinds), [(max(1.1, 0.165 * most[split]), 1.5) for split in splits], key=key,
        note=f"{INTERVAL} In brackets: the number of examples.", left=0.5, gap=(0.15, 1.05), below=0.8,
    )  # fmt: skip
    for axes, (kind, split) in each_panel(panels, product(kinds, splits)):
        part = table[(table["split"] == split) & (table["kind"] == kind)]
        place, right = np.arange(len(part)), 100 - part["percent"].to_numpy()
        bars(axes, place, 0, right, 0.8, BLUE, "", "white")
        bars(axes, place, right, np.full(len(part), 100.0), 0.8, ORANGE, "////", "white")
        whiskers(axes, place, 100 - part["high"].to_numpy(), 100 - part["low"].to_numpy())
        ticks = [f"{p.partition(' ')[2]} ({n})" for p, n in zip(part["pair"], part["examples"], strict=True)]
        axes.set_xticks(place, ticks, rotation=90, fontsize=SMALL)
        axes.set_xlim(-0.6, max(len(part), 1) - 0.4)
        percent_axis(axes)
        baseline_lines(axes, rows[rows["split"] == split])
        label_axes(axes, f"{split}, {kind}")
    label_outside(panels, "", "answers (%)")
    for row, kind in zip(panels, kinds, strict=True):
        label_axes(row[0], "", f"{'columns' if kind == 'horizontal' else 'rows'} of first and second object")
    return figure


def _split_bars(
    axes: Axes, table: pd.DataFrame, column: str, values: Sequence[Any], splits: Sequence[str]
) -> Iterator[tuple[pd.DataFrame, np.ndarray]]:
    """Draw percent by the value of a column, a bar for each split; yield the rows of each split and the x of its
    bars."""
    wide = 0.8 / len(splits)
    for n, split in enumerate(splits):
        part = table[table["split"] == split]
        place = np.array([values.index(value) for value in part[column]]) + (n - (len(splits) - 1) / 2) * wide
        face, hatch = SPLIT_STYLE[split]
        bars(axes, place, 0, part["percent"].to_numpy(), wide, face, hatch, "black")
        whiskers(axes, place, part["low"].to_numpy(), part["high"].to_numpy())
        yield part, place
    axes.set_xticks(range(len(values)), [str(value) for value in values])
    axes.set_xlim(-0.6, len(values) - 0.4)


def _error_bars(axes: Axes, table: pd.DataFrame, column: str, splits: Sequence[str], rows: pd.DataFrame) -> None:
    """Draw percent wrong by a number, a bar for each split, with the number of examples below."""
    values = sorted(table[column].unique())
    for n, (part, _) in enumerate(_split_bars(axes, table, column, values, splits)):
        below: dict[str, Any] = {"xytext": (0, -14 - 8 * n), "textcoords": "offset points", "annotation_clip": False}
        for value, examples in zip(part[column], part["examples"], strict=True):
            axes.annotate(str(examples), (values.index(value), 0), ha="center", va="top", fontsize=SMALL, **below)
    baseline_lines(axes, rows, "error")


def _highest(table: pd.DataFrame, rows: pd.DataFrame) -> float:
    """The end of an axis of error rates: above the highest interval and baseline."""
    levels = [table["high"].max(), *(level for *_, level in baseline_levels(rows, "error"))]
    return next(end for end in (10.0, 25.0, 60.0, 100.0) if end >= min(100.0, max(levels)))


def objects(predictions: pd.DataFrame, results: pd.DataFrame) -> Figure:
    """Wrong answers by the total number of objects in the scene (figure 22)."""
    title, table, splits, rows = _begin("Wrong answers by number of objects", counts.by_objects, predictions, results)
    width = max(3.5, 0.42 * table["objects"].nunique())
    key = [*split_legend(splits), *baseline_legend(rows, "error")]
    figure, [[axes]] = panel_figure(title, 1, [(width, 2.2)], note=f"{INTERVAL} {_below(splits)}", key=key, below=0.7)
    _error_bars(axes, table, "objects", splits, rows)
    percent_axis(axes, 0, _highest(table, rows))
    label_axes(axes, "", "", "wrong answers (%)")
    axes.set_xlabel("objects in the scene, distractors included", fontsize=TEXT - 0.5, labelpad=4 + 8 * len(splits))
    return figure


def _below(splits: Sequence[str]) -> str:
    return f"Small numbers: examples of {' and, below, of '.join(splits)}."


def quantifiers(predictions: pd.DataFrame, results: pd.DataFrame) -> Figure:
    """Wrong answers by the size of the set that decides a quantifier, in six panels (figure 23)."""
    words = "Wrong answers by the number of objects that decide"
    title, table, splits, rows = _begin(words, counts.by_critical, predictions, results)
    key, note = [*split_legend(splits), *baseline_legend(rows, "error")], f"{INTERVAL} {_below(splits)}"
    figure, panels = panel_figure(title, 2, [(2.0, 1.5)] * 3, note=note, key=key, left=0.5, gap=(0.2, 0.95), below=0.7)
    order = [(names[side], regions["decides"]) for side in (0, 1) for names, regions in FAMILIES.items()]
    for axes, (quantifier, decides) in each_panel(panels, order):
        _error_bars(axes, table[table["claim"] == quantifier], "critical", splits, rows)
        percent_axis(axes, 0, _highest(table, rows))
        label_axes(axes, f"{quantifier}: {str(counts.CRITICAL_ANSWERS[quantifier]).lower()}")
        sets = ("Xs that are Ys", "Xs that are not Ys", "Ys that are not Xs")
        axes.set_xlabel(f"number of {sets[decides]}", fontsize=TEXT - 0.5, labelpad=3 + 8 * len(splits))
    label_outside(panels, "", "wrong answers (%)")
    return figure


def agreement(predictions: pd.DataFrame, results: pd.DataFrame) -> Figure:
    """How often the same example gets the same answer from image and from caption, and which of them is right."""
    title, table, splits, _ = _begin(
        "Answers from image and from caption to the same examples", counts.agreement,
        predictions[predictions["test_setting"] != "image+caption"], results, one_setting=False,
    )  # fmt: skip
    same_answer = table[table["outcome"].isin(counts.OUTCOMES[:2])].groupby("split", observed=True)["percent"].sum()
    same = [f"{split} {same_answer[split]:.1f} %" for split in splits]
    diamond: dict[str, Any] = {"color": "black", "marker": "D", "markersize": 4, "linestyle": ""}
    diamond["markerfacecolor"] = "white"
    key = [*split_legend(splits), Line2D([], [], label="if independent", **diamond)]
    note = f"{INTERVAL} Numbers above: examples. The same answer from both: {', '.join(same)}."
    figure, [[axes]] = panel_figure(title, 1, [(4.6, 2.2)], note=note, key=key, below=0.3)
    for part, place in _split_bars(axes, table, "outcome", counts.OUTCOMES, splits):
        axes.plot(place, part["independent"], zorder=5, **diamond)
        for x, high, count in zip(place, np.maximum(part["high"], part["independent"]), part["count"], strict=True):
            axes.text(x, high + 2.5, f"{count}", ha="center", fontsize=SMALL)
    percent_axis(axes, 0, 108)
    label_axes(axes, "", "", "examples (%)")
    return figure


def calibration(predictions: pd.DataFrame, results: pd.DataFrame) -> Figure:
    """Right answers by the model's confidence, and the expected calibration error (ECE)."""
    words = "Right answers by the model's confidence"
    title, table, splits, rows = _begin(words, counts.calibration, predictions, results, one_setting=False)
    settings = in_order(table["test_setting"], TEST_SETTINGS)
    key: list[Artist] = [
        Patch(facecolor=SKY, label="right answers"),
        Line2D([], [], color="#666", linewidth=1, label="confidence"),
        *baseline_legend(rows),
    ]
    note = (
        f"{INTERVAL} In the bars: the number of examples. ECE: expected calibration error, the mean distance of "
        "accuracy from confidence."
    )
    sizes = [(2.15, 1.7)] * len(settings)
    figure, panels = panel_figure(title, len(splits), sizes, note=note, key=key, left=0.5, gap=(0.25, 0.6))
    for axes, (split, setting) in each_panel(panels, product(splits, settings)):
        part = table[(table["split"] == split) & (table["test_setting"] == setting)]
        x = 50 + 50 * (part["bin"].to_numpy() + 0.5) / counts.BINS
        bars(axes, x, 0, part["percent"].to_numpy(), 46 / counts.BINS, SKY, "", "white")
        axes.plot([50, 100], [50, 100], color="#666", linewidth=1)
        whiskers(axes, x + 1, part["low"].to_numpy(), part["high"].to_numpy())
        for place, examples in zip(x, part["examples"], strict=True):
            axes.text(place - 1, 2, f"{examples}", rotation=90, ha="center", va="bottom", fontsize=SMALL)
        axes.set_xlim(50, 100)
        axes.set_xticks([50, 60, 70, 80, 90, 100])
        percent_axis(axes)
        baseline_lines(axes, rows[(rows["split"] == split) & (rows["test_setting"] == setting)])
        label_axes(axes, f"{split}, {setting}: ECE {counts.calibration_error(part):.1f} %")
    label_outside(panels, "confidence in the answer (%)", "right answers (%)")
    return figure
