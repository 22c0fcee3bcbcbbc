"""Figures of one run's predictions, and of a dataset: errors by pair, number and objects; agreement, calibration.

`rates` computes their numbers. A figure without data raises `ValueError`, in one line. The docstring of a figure's
function is its caption.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.plotting import (
    BLUE,
    ORANGE,
    SKY,
    add_legend,
    bars_with_intervals,
    baseline_lines,
    format_percent,
    heat_map,
    new_figure,
    split_bars,
)
from train.results.columns import TEST_SETTINGS, in_order
from train.results.tables import origin
from travlr.metrics import proportions
from travlr.scene import SPLITS, column_name
from travlr.tasks import task_class
from travlr.tasks.quantifiers import FAMILIES

PAIR_COLUMNS = ["split", "kind", "x", "y", "pair"]
BINS = 10  # of confidence in the answer, from 50 to 100 %
# For figure 23: by quantifier, the answer whose examples have a deciding set that is not empty.
CRITICAL_ANSWERS = {name: name == other for vacant, other in FAMILIES for name in (vacant, other)}
SETS = ("Xs that are Ys", "Xs that are not Ys", "Ys that are not Xs")
OUTCOMES = {"both right": (1, 1), "both wrong": (0, 0), "only image right": (1, 0), "only caption right": (0, 1)}


def rates(frame: pd.DataFrame, by: Sequence[str], hits: pd.Series | np.ndarray, name: str = "wrong") -> pd.DataFrame:
    """The number of hits (N,) in each group of N examples: by, examples, `name`, and percent with its 95 % interval,
    low and high. Examples that share a scene are one cluster, see `travlr.metrics.proportions`."""
    grouped = frame.groupby(list(by), observed=True, dropna=False)
    table = grouped.size().rename("examples").reset_index()
    clusters = frame.groupby(["split", "scene"], observed=True).ngroup().to_numpy()
    measured = proportions(np.asarray(hits, bool), grouped.ngroup().to_numpy(), clusters, len(table))
    table[name] = measured.hits
    return table.assign(percent=measured.percent, low=measured.low, high=measured.high)


# Titles --------------------------------------------------------------------------------------------------------------


def results_of(predictions: pd.DataFrame, results: pd.DataFrame, settings: int = 1) -> pd.DataFrame:
    """The results that belong to predictions. Raises `ValueError` unless these are of one run and at most so many test
    settings."""
    if not len(predictions):
        raise ValueError("no predictions to draw: choose other runs, or see in `skipped` what could not be read")
    for column, most in (("name", 1), ("test_setting", settings)):
        if len(values := predictions[column].unique()) > most:
            raise ValueError(
                f"predictions of {len(values)} values of {column}: choose one, such as {column}={values[0]!r}"
            )
    rows = results[results["name"] == predictions["name"].iloc[0]]
    for column in ("test_setting", "split"):
        rows = rows[rows[column].isin(list(predictions[column].unique()))]
    return rows


def run_title(title: str, rows: pd.DataFrame) -> list[str]:
    """A title, the run's settings, and its macro-F1 in its results `rows`."""
    row, settings = rows.iloc[0], in_order(rows["test_setting"], TEST_SETTINGS)
    size = f" ({row['size']})" if pd.notna(row["size"]) else ""
    weights = origin({"weights": row["weights"] if pd.notna(row["weights"]) else None})
    run = f"{row['model']}{size} trained in {row['setting']}, tested in {', '.join(settings)} · {row['task']}"
    where = rows["split"] if len(settings) == 1 else rows["test_setting"] + " " + rows["split"]
    scores = ", ".join(f"{place} {score:.2f}" for place, score in zip(where, rows["macro_f1"], strict=True))
    return [title, f"{run}, seed {row['seed']}, {weights}", f"macro-F1: {scores} · run {row['run']}"]


# Pairs as cells ------------------------------------------------------------------------------------------------------


def draw_cells(predictions: pd.DataFrame, results: pd.DataFrame) -> Figure:
    """Percent of wrong answers by pair <x, y>, and the number of examples. Blank: the split has no such examples."""
    rows = results_of(predictions, results)
    table = rates(predictions, PAIR_COLUMNS, ~predictions["right"])
    texts = table["percent"].map(format_percent) + "\n" + table["examples"].astype(str)
    title = run_title("Wrong answers by pair", rows)
    figure = pair_panels(title, table.assign(text=texts), str(predictions["task"].iloc[0]), 0.46, "wrong answers (%)")
    baseline_lines(figure.axes[-1], rows, "error")  # in the scale
    figure.axes[-1].set_ylim(0, 100)
    add_legend(figure)
    return figure


def draw_dataset(examples: pd.DataFrame, results: pd.DataFrame | None = None) -> Figure:
    """The number of examples that show each pair; the colour compares it with the split's most frequent pair."""
    table = examples.groupby(PAIR_COLUMNS, observed=True, dropna=False).size().rename("examples").reset_index()
    most = table.groupby("split", observed=True)["examples"].transform("max")
    table = table.assign(percent=100 * table["examples"] / most, text=table["examples"].astype(str))
    task, sizes = str(examples["task"].iloc[0]), examples["split"].value_counts()
    counts = ", ".join(f"{split} {sizes[split]:,}" for split in in_order(table["split"], SPLITS))
    name = "" if results is None else f"dataset {results['dataset'].iloc[0][:8]} · "
    title = [f"Examples by pair: {task_class(task).title()}", f"{task} · {name}{counts} examples"]
    return pair_panels(title, table, task, 0.34, "of the most frequent pair (%)")


def pair_panels(title: list[str], table: pd.DataFrame, task: str, cell: float, scale: str) -> Figure:
    """A heat map of `percent` with `text` in its cells for each kind of pairs (down) and split (across). cell: its size
    in inches. Raises `ValueError` if no pair has two values."""
    shown = table[["kind", "x", "y"]].drop_duplicates().itertuples(index=False)
    labels = task_class(task).axes_of([[str(value) for value in row if not pd.isna(value)] for row in shown])
    shared = "" in labels  # all kinds share one grid, whose rows they are
    kinds = [""] if shared else [kind for kind in labels if len(labels[kind]) == 2 and kind in set(table["kind"])]
    if not kinds:
        raise ValueError("no pairs to draw: none has two values")
    splits, grids = in_order(table["split"], SPLITS), {}
    for kind in kinds:
        part = table if shared else table[table["kind"] == kind]
        grids[kind] = (part, axis_values(part, "x", "y"), axis_values(part, "kind" if shared else "y", "x"))
    wide, high = (max(len(grid[n]) for grid in grids.values()) * cell for n in (1, 2))
    across_kinds = 2 if len(kinds) > 2 and len(splits) == 2 else 1
    figure, panels = new_figure(
        title, -(-len(kinds) // across_kinds), len(splits) * across_kinds, (wide + 0.9, high + 0.75)
    )
    for axes in panels.flat[len(kinds) * len(splits) :]:
        axes.set_axis_off()
    for axes, (kind, split) in zip(panels.flat, product(kinds, splits), strict=False):
        part, across, up = grids[kind]
        index = "kind" if shared else "y"
        cells = part[part["split"] == split].astype({"x": object, index: object}).set_index([index, "x"])
        percent, text = (
            cells[name].unstack("x").reindex(index=list(up)[::-1], columns=list(across)) for name in ("percent", "text")
        )
        names = {"xticklabels": list(across.values()), "yticklabels": list(up.values())[::-1]}
        heat_map(axes, percent, text, 6.0 if cell > 0.4 else 5.0, scale if axes in panels[:, -1] else "", **names)
        axes.set_title(f"{split}, {kind}" if len(kinds) > 1 else split)
        down, beside = ("" if shared else labels[kind][1]), (labels[""][1] if shared else labels[kind][0])
        axes.set(xlabel=beside, ylabel=down if split == splits[0] else "")
        axes.tick_params("x", labelrotation=90 if max(map(len, across.values())) > 3 else 0)
    return figure


def axis_values(table: pd.DataFrame, column: str, other: str) -> dict[Any, str]:
    """The values along an axis, with their names: words, or all numbers up to the largest of both columns."""
    if not pd.api.types.is_numeric_dtype(table[column]):
        return {value: str(value) for value in sorted(table[column].dropna().unique(), reverse=column != "x")}
    numbers = [table[name].max() for name in (column, other) if pd.api.types.is_numeric_dtype(table[name])]
    letters = table["pair"].astype(str).str.contains(r" [A-Z](?: |$)").any()
    most = int(max(number for number in numbers if not pd.isna(number)))
    return {n: column_name(n - 1) if letters else str(n) for n in range(1, most + 1)}


def draw_numbers(predictions: pd.DataFrame, results: pd.DataFrame) -> Figure:
    """Queries that the model answers with true, of all such queries, by the scene's number and the query's. On the
    diagonal 'true' is right. (The paper's figure 4 shows the larger number alone.)"""
    rows = results_of(predictions, results)
    frame = predictions.assign(actual=predictions["x"], predicted=predictions["claim"].astype(str).astype(int))
    table = rates(frame, ["split", "actual", "predicted"], frame["prediction"].eq(True), "true")
    table["text"] = table["true"].astype(str) + "\nof " + table["examples"].astype(str)
    every = range(1, int(table[["actual", "predicted"]].to_numpy(int).max()) + 1)
    splits = in_order(table["split"], SPLITS)
    title = run_title("Numbers taken for others: queries that the model answers with true", rows)
    figure, panels = new_figure(title, 1, len(splits), (0.5 * len(every) + 0.8, 0.5 * len(every) + 0.6))
    for axes, split in zip(panels.flat, splits, strict=True):
        cells = table[table["split"] == split].astype({"actual": int}).set_index(["predicted", "actual"])
        percent, text = (cells[name].unstack("actual").reindex(index=every[::-1], columns=every)
                         for name in ("percent", "text"))  # fmt: skip
        heat_map(axes, percent, text, bar="answered true (%)" if split == splits[-1] else "")
        axes.set(title=split, xlabel="actual: number in the scene", ylabel="predicted: number in the query")
    return figure


# Bars ----------------------------------------------------------------------------------------------------------------


def draw_pairs(predictions: pd.DataFrame, results: pd.DataFrame) -> Figure:
    """Right and wrong answers by pair, of spatiality; whiskers are 95 % intervals, numbers are examples."""
    rows = results_of(predictions, results)
    table = rates(predictions, PAIR_COLUMNS, predictions["right"], "right")
    kinds = [kind for kind in task_class("spatiality").axes if kind in set(table["kind"])]
    if not kinds:
        raise ValueError("no predictions of spatiality: choose runs with task='spatiality'")
    splits = in_order(table["split"], SPLITS)
    most = table.groupby(["split", "kind"], observed=True).size().groupby("split", observed=True).max()
    widths = [max(10, most[split]) for split in splits]
    wide = sum(0.15 * width + 0.4 for width in widths) / len(splits)
    title = run_title("Right and wrong answers by pair", rows)
    options: dict[str, Any] = {"width_ratios": widths, "sharey": True}
    figure, panels = new_figure(title, len(kinds), len(splits), (wide, 2.2), **options)
    for axes, (kind, split) in zip(panels.flat, product(kinds, splits), strict=True):
        part = table[(table["split"] == split) & (table["kind"] == kind)]
        place = np.arange(len(part))
        bars_with_intervals(axes, place, part, 0.8, color=BLUE, label="right")
        axes.bar(place, 100 - part["percent"], 0.8, part["percent"], color=ORANGE, hatch="////", ec="white",
                 zorder=0, label="wrong")  # fmt: skip
        texts = [
            f"{p.partition(' ')[2]} ({n})" for p, n in zip(part["pair"].astype(str), part["examples"], strict=True)
        ]
        axes.set_xticks(place, texts, rotation=90, fontsize=6)
        axes.set(title=f"{split}, {kind}", ylim=(0, 100), xlim=(-0.6, len(part) - 0.4))
        baseline_lines(axes, rows[rows["split"] == split])
    for line in panels:
        line[0].set_ylabel("answers (%)")
    add_legend(figure)
    return figure


def limit_errors(axes: Axes, table: pd.DataFrame) -> None:
    """End an axis of error rates above the highest interval and baseline."""
    levels = [line.get_ydata()[0] for line in axes.lines if line.get_gid() == "baseline"]  # type: ignore[index]
    highest = max([table["high"].max(), *levels])
    axes.set_ylim(0, next((end for end in (10, 25, 60) if highest <= end), 100))


def draw_objects(predictions: pd.DataFrame, results: pd.DataFrame) -> Figure:
    """Percent of wrong answers by the number of objects in the scene; below each number the examples of each split."""
    rows = results_of(predictions, results)
    table = rates(predictions, ["split", "objects"], ~predictions["right"])
    values, splits = sorted(table["objects"].unique()), in_order(table["split"], SPLITS)
    size = (max(4.5, 0.42 * len(values) + 0.6), 2.6)
    figure, [[axes]] = new_figure(run_title("Wrong answers by number of objects", rows), 1, 1, size)
    split_bars(axes, table, "objects", values, splits)
    baseline_lines(axes, rows, "error")
    limit_errors(axes, table)
    axes.set(xlabel="objects in the scene, distractors included", ylabel="wrong answers (%)")
    add_legend(figure)
    return figure


def draw_quantifiers(predictions: pd.DataFrame, results: pd.DataFrame) -> Figure:
    """Percent of wrong answers by the size of the set that decides, where it is not empty; below it the examples."""
    rows = results_of(predictions, results)
    critical = predictions["answer"] == predictions["claim"].map(CRITICAL_ANSWERS).astype(bool)
    frame = predictions[critical & (predictions["critical"] > 0)]
    table = rates(frame, ["split", "claim", "critical"], ~frame["right"])
    splits, title = (
        in_order(table["split"], SPLITS),
        run_title("Wrong answers by the number of objects that decide", rows),
    )
    figure, panels = new_figure(title, 2, 3, (2.3, 2.1))
    order = [(names[side], regions["decides"]) for side in (0, 1) for names, regions in FAMILIES.items()]
    for axes, (quantifier, decides) in zip(panels.flat, order, strict=True):
        part = table[table["claim"] == quantifier]
        split_bars(axes, part, "critical", sorted(part["critical"].unique()), splits)
        baseline_lines(axes, rows, "error")
        limit_errors(axes, table)
        axes.set(title=f"{quantifier}: {str(CRITICAL_ANSWERS[quantifier]).lower()}")
        axes.set(xlabel=f"number of {SETS[decides]}", ylabel="wrong answers (%)")
    add_legend(figure)
    return figure


def count_agreement(predictions: pd.DataFrame) -> pd.DataFrame:
    """The answers from image and from caption to the same examples: split, outcome (one of `OUTCOMES`), the columns of
    `rates`, and `independent`, the percent if the two answers were independent."""
    sides = predictions.pivot(index=["split", "scene", "id"], columns="test_setting", values="right")
    if not {"image", "caption"} <= set(sides) or not len(sides := sides.dropna(subset=["image", "caption"])):
        raise ValueError("agreement: no example was answered from image and from caption; test the run in both")
    sides, parts = sides.astype(bool).reset_index(), []
    means = sides.groupby("split", observed=True)[["image", "caption"]].mean()
    for outcome, (image, caption) in OUTCOMES.items():
        table = rates(sides, ["split"], (sides["image"] == image) & (sides["caption"] == caption), "count")
        chance = (means["image"] if image else 1 - means["image"]) * (
            means["caption"] if caption else 1 - means["caption"]
        )
        parts.append(table.assign(outcome=outcome, independent=100 * chance.to_numpy()))
    return pd.concat(parts, ignore_index=True)


def draw_agreement(predictions: pd.DataFrame, results: pd.DataFrame) -> Figure:
    """How often the same example gets the same answer from image and from caption; diamonds: if independent."""
    predictions = predictions[predictions["test_setting"].isin(["image", "caption"])]
    rows = results_of(predictions, results, settings=2)
    table = count_agreement(predictions)
    splits = in_order(table["split"], SPLITS)
    title = run_title("Answers from image and from caption to the same examples", rows)
    figure, [[axes]] = new_figure(title, 1, 1, (5.2, 2.6))
    split_bars(axes, table.assign(examples=table["count"]), "outcome", list(OUTCOMES), splits)
    for n, split in enumerate(splits):
        chances = table[table["split"] == split].set_index("outcome")["independent"].reindex(list(OUTCOMES))
        axes.plot(np.arange(4) + (n - (len(splits) - 1) / 2) * 0.8 / len(splits), chances, "D", color="black",
                  mfc="white", ms=4, zorder=5, label="if independent")  # fmt: skip
    axes.set(ylabel="examples (%)", ylim=(0, 100))
    add_legend(figure)
    return figure


def bin_confidence(predictions: pd.DataFrame) -> pd.DataFrame:
    """How often an answer is right, by the model's confidence: test_setting, split, bin (0 to 9: confidence from 50 to
    55 % and so on), the columns of `rates`, confidence (its mean in the bin, percent)."""
    confidence = 1 / (1 + np.exp(-predictions["score"].astype(float).abs()))
    bins = (2 * BINS * (confidence - 0.5)).astype(int).clip(upper=BINS - 1)
    frame = predictions[["test_setting", "split", "scene"]].assign(bin=bins, confidence=100 * confidence)
    by = ["test_setting", "split", "bin"]
    table = rates(frame, by, predictions["right"], "right")
    return table.assign(confidence=frame.groupby(by, observed=True)["confidence"].mean().to_numpy())


def calibration_error(bins: pd.DataFrame) -> float:
    """Expected calibration error, percent: the mean distance of accuracy and confidence of bins, by their examples."""
    return float(np.average((bins["percent"] - bins["confidence"]).abs(), weights=bins["examples"]))


def draw_calibration(predictions: pd.DataFrame, results: pd.DataFrame) -> Figure:
    """Right answers by the model's confidence, with the number of examples in the bars. ECE: expected calibration
    error, the mean distance of accuracy from confidence."""
    rows = results_of(predictions, results, settings=len(TEST_SETTINGS))
    table = bin_confidence(predictions)
    settings, splits = in_order(table["test_setting"], TEST_SETTINGS), in_order(table["split"], SPLITS)
    title = run_title("Right answers by the model's confidence", rows)
    figure, panels = new_figure(title, len(splits), len(settings), (2.4, 2.1), sharex=True, sharey=True)
    for axes, (split, setting) in zip(panels.flat, product(splits, settings), strict=True):
        part = table[(table["split"] == split) & (table["test_setting"] == setting)]
        x = 50 + 50 * (part["bin"].to_numpy() + 0.5) / BINS
        bars_with_intervals(axes, x, part, 46 / BINS, color=SKY, label="right answers")
        axes.plot([50, 100], [50, 100], color="#666", lw=1, label="confidence")
        for place, examples in zip(x, part["examples"], strict=True):
            axes.text(place, 2, f"{examples}", rotation=90, ha="center", fontsize=6)
        baseline_lines(axes, rows[(rows["split"] == split) & (rows["test_setting"] == setting)])
        axes.set(title=f"{split}, {setting}: ECE {calibration_error(part):.1f} %", xlim=(50, 100), ylim=(0, 100))
    for axes in panels[-1]:
        axes.set_xlabel("confidence in the answer (%)")
    for line in panels:
        line[0].set_ylabel("right answers (%)")
    add_legend(figure)
    return figure
