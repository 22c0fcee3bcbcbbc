"""Figures of several runs: training-set sizes, transfer, and curves of the loss.

Each is a function of a data frame (its kind: `FigureKind.of`) and of the results. `analysis.counts` computes the
numbers. A figure without data raises `ValueError`.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from analysis import counts
from analysis.figures import panels
from analysis.figures.predictions import runs_title
from train.config import ARCHITECTURES, SETTINGS
from train.results.columns import TEST_SETTINGS, TEST_SPLITS, in_order, main_test_setting


def subsets(results: pd.DataFrame, _: pd.DataFrame | None = None) -> Figure:
    """Macro-F1 by training-set size, of one task: a column for each setting, a row for each split (figures 15-18)."""
    require_one(results, "task")
    table, marks = _number_labels(counts.by_size(results))
    splits, settings = in_order(table["split"], TEST_SPLITS[::-1]), in_order(table["setting"], SETTINGS)
    styles = dict(zip(sorted(table["label"].unique()), itertools.cycle(panels.MARKERS), strict=False))
    key: list[Artist] = [
        Line2D([], [], color=c, marker=m, markersize=4, label=label) for label, (c, m) in styles.items()
    ]
    note = (
        "Whiskers: 95 % bootstrap intervals of runs, over scenes. Lines go through means of seeds. Open: streamed, "
        f"none seen twice.{marks}"
    )
    rows = results[results["name"].isin(table["name"].unique())]
    figure, grid = panels.panel_figure(
        ["Macro-F1 by training-set size", *runs_title(rows)], len(splits), [(2.1, 1.8)] * len(settings), note=note,
        key=[*key, *panels.baseline_legend(rows, "macro_f1")], left=0.5, gap=(0.25, 0.55), below=0.45,
    )  # fmt: skip
    low = min(30.0, 10 * math.floor(table["low"].min() / 10))
    ends = table["train_examples"].min() / 1.3, table["train_examples"].max() * 1.3  # of a single size, too
    for axes, (split, setting) in panels.each_panel(grid, itertools.product(splits, settings)):
        cells = table[(table["split"] == split) & (table["setting"] == setting)]
        _size_lines(axes, cells, styles)
        axes.set_xlim(*ends)
        panels.baseline_lines(axes, cells, "macro_f1")
        panels.percent_axis(axes, low, 101)
        panels.label_axes(axes, f"{split}, {setting}")
    panels.label_outside(grid, "training examples", "macro-F1")
    return figure


def _label_order(label: str) -> tuple[int, str]:
    """A key to sort labels and models by: first those in `ARCHITECTURES`, in its order."""
    places = {model: place for place, model in enumerate(ARCHITECTURES)}
    return places.get(re.split("[ ,]", label)[0], len(places)), label


def _number_labels(table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The table with short labels, such as "uniter small [1]", and the legend of the numbers. Whole settings are too
    long for a panel."""
    numbers: dict[str, int] = {}
    short = {}
    for label in sorted(table["label"].unique()):
        name, _, settings = label.partition(", ")
        short[label] = f"{name} [{numbers.setdefault(settings, len(numbers) + 1)}]" if settings else name
    legend = "".join(f" [{number}] {settings}." for settings, number in numbers.items())
    return table.assign(label=table["label"].map(short)), legend


def _size_lines(axes: Axes, table: pd.DataFrame, styles: dict[str, tuple[str, str]]) -> None:
    axes.set_xscale("log", base=2)
    for label, runs in table.groupby("label", observed=True):
        colour, marker = styles[str(label)]
        axes.vlines(runs["train_examples"], runs["low"], runs["high"], colors=colour, linewidth=0.9)
        for streamed, points in runs.groupby("streamed"):
            face = "white" if streamed else colour
            x, y = points["train_examples"], points["macro_f1"]
            axes.plot(x, y, color=colour, marker=marker, markersize=4, linestyle="", markerfacecolor=face)
            if not streamed:
                means = points.groupby("train_examples")["macro_f1"].mean()
                axes.plot(means.index, means, color=colour, linewidth=1.2)
    sizes = sorted(table["train_examples"].unique())
    axes.set_xticks(sizes, [f"{size / 1000:g}k" if size >= 1000 else str(size) for size in sizes])
    axes.minorticks_off()


def transfer(results: pd.DataFrame, _: pd.DataFrame | None = None) -> Figure:
    """Macro-F1 by training and test setting, of one task: a matrix for each model and split, and one for text-only
    models and baselines."""
    require_one(results, "task")
    table, marks = _number_labels(counts.transfer(results))
    splits = in_order(table["split"], TEST_SPLITS)
    trained, tested = in_order(table["setting"], SETTINGS), in_order(table["test_setting"], TEST_SETTINGS)
    captions_only = table.groupby("label")["test_setting"].agg(lambda settings: set(settings) == {"caption"})
    order = sorted(captions_only.index, key=_label_order)
    matrices = [label for label in order if not captions_only[label]]
    text = [label for label in order if captions_only[label]]
    text += [f"{RULE}{words}" for column, words, _ in panels.BASELINE_STYLES if results[column].notna().any()]
    across = min(2, max(1, len(matrices)))  # models in a row, each with a panel for each split
    rows = [matrices[n : n + across] for n in range(0, len(matrices), across)] + [[TEXT_ALONE]] * bool(text)
    note = (
        "In a cell: macro-F1 and, small, its 95 % bootstrap interval; of several runs the mean over converged seeds "
        "(all where none has), the lowest and highest, and how many converged. Framed: tested as trained. Blank: not "
        f"tested.{marks}"
    )
    most = max(len(trained) if matrices else 0, len(text))
    figure, grid = panels.panel_figure(
        ["Transfer from training setting (rows) to test setting (columns)", *runs_title(results)], len(rows),
        [(0.84 * len(tested), 0.36 * most)] * across * len(splits), note=note, left=1.3, right=0.7, gap=(0.15, 0.6),
        above=0.48, below=0.2,
    )  # fmt: skip
    for row, labels in zip(grid, rows, strict=True):
        for axes, (label, split) in panels.each_panel([row], itertools.product(labels, splits)):
            cells, names = table[(table["label"] == label) & (table["split"] == split)], trained
            if label == TEXT_ALONE:
                cells, names = _text_alone(table, results[results["split"] == split], text, tested), text
            _matrix(axes, cells, names, tested, most)
            panels.label_axes(axes, f"{split}, {label}")
    panels.label_outside(grid, "", "")
    panels.colour_scale(figure, grid[0][-1], 0, 100, "macro-F1")
    return figure


TEXT_ALONE, RULE = "text alone", "rule: "


def _text_alone(table: pd.DataFrame, results: pd.DataFrame, names: list[str], tested: list[str]) -> pd.DataFrame:
    """Scores of text-only models and of baselines in the split of `results`, in the columns of `counts.transfer`, with
    models and baselines as training settings. Baselines have the same score in all test settings."""
    own = table[table["label"].isin(names) & table["split"].isin(results["split"].unique())]
    parts = [own.assign(setting=own["label"])]
    for column, words, _ in panels.BASELINE_STYLES:
        level = results[column].mean()
        if pd.notna(level):
            cells = {"setting": f"{RULE}{words}", "test_setting": tested, "macro_f1": level, "low": np.nan, "runs": 1}
            parts.append(pd.DataFrame(cells))
    return pd.concat(parts, ignore_index=True)


def _matrix(axes: Axes, table: pd.DataFrame, trained: list[str], tested: list[str], most: int) -> None:
    """Scores by training setting (down) and test setting (across), with room for `most` training settings."""
    cells = []
    for row in table.itertuples():
        x, y = tested.index(row.test_setting), len(trained) - 1 - trained.index(row.setting)
        several = f" {row.converged:.0f}/{row.runs}" if row.runs > 1 else ""
        interval = f"{row.low:.1f}–{row.high:.1f}{several}" if pd.notna(row.low) else ""
        cells.append((x, y, row.macro_f1, f"{row.macro_f1:.1f}", interval))
        if main_test_setting(row.setting) == row.test_setting:
            style: dict[str, Any] = {"fill": False, "edgecolor": panels.RED, "linewidth": 1.5, "zorder": 3}
            axes.add_patch(Rectangle((x + 0.04, y + 0.04), 0.92, 0.92, **style))
    names = [words.replace(" and number of", ",") for words in trained][::-1]
    panels.number_cells(axes, tested, names, cells, (panels.TEXT, panels.SMALL + 0.5))
    axes.set_ylim(len(trained) - most, len(trained))
    axes.xaxis.tick_top()
    axes.tick_params(top=False, pad=1)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)


def loss(curves: pd.DataFrame, results: pd.DataFrame) -> Figure:
    """Training loss by step and epoch (figures 19-21): a panel for each model, or one panel for all models of a single
    setting; runs with other settings have panels of their own."""
    rows = results[results["name"].isin(curves["name"].unique())]
    one = curves["setting"].nunique() == 1
    curves, marks = _number_labels(curves)
    panel = curves["label"].str.extract(r"(\[\d+\])$")[0].fillna("") if one else curves["label"]
    labels = sorted(panel.unique(), key=_label_order)
    line = curves["model"] if one else curves["setting"]
    order = in_order(line, ARCHITECTURES if one else SETTINGS)
    styles = dict(zip(order, itertools.cycle(panels.MARKERS), strict=False))
    key: list[Artist] = [
        Line2D([], [], color=styles[label][0], marker=styles[label][1], markersize=4, label=label) for label in order
    ]
    key.append(Line2D([], [], color="#666", linewidth=0.8, linestyle=(0, (4, 2)), label="chance: ln 2"))
    across = min(2, len(labels))
    title = f"Training loss in the setting {curves['setting'].iloc[0]}" if one else "Training loss"
    note = f"Loss of the answer, in nats; lines: its mean over a fiftieth of the curve.{marks}"
    figure, grid = panels.panel_figure(
        [title, *runs_title(rows)], math.ceil(len(labels) / across), [(3.0, 1.8)] * across, note=note, key=key,
        left=0.55, gap=(0.45, 0.85), below=0.6,
    )  # fmt: skip
    for axes, label in panels.each_panel(grid, labels):
        curves_of_label = curves[panel == label]
        for n, (_, run) in enumerate(curves_of_label.groupby("name", observed=True)):
            colour, marker = styles[str((run["model"] if one else run["setting"]).iloc[0])]
            axes.plot(run["step"], run["loss"], color=colour, linewidth=0.4, alpha=0.3)
            every = max(1, len(run) // 8)
            style: dict[str, Any] = {"marker": marker, "markersize": 3.5}
            style["markevery"] = (n * every // 4 % len(run), every)
            axes.plot(run["step"], run["smooth"], color=colour, linewidth=1.2, **style)
        axes.axhline(math.log(2), color="#666", linewidth=0.8, linestyle=(0, (4, 2)))
        axes.set_ylim(0, max(0.8, 1.05 * curves_of_label["smooth"].max()))
        axes.locator_params("y", nbins=5)
        _step_axis(axes, curves_of_label)
        panels.label_axes(axes, label, "", "loss (nats)")
    return figure


def _step_axis(axes: Axes, curves: pd.DataFrame) -> None:
    """An axis of steps, with epochs below them where all runs have epochs of the same length."""
    last = float(curves["step"].max())
    axes.set_xlim(0, last)
    every = next(s * 10**e for e in range(9) for s in (1, 2, 5) if last / (s * 10**e) <= 5)
    ticks = np.arange(0, last + 1, every)
    batches = sorted({int(batch) for batch in curves["batch"].dropna().unique()})
    label = f"step ({' or '.join(map(str, batches))} examples each)" if batches else "step"
    passes = (curves["epoch"] / curves["step"]).dropna().round(9).unique()
    if len(passes) == 1 and curves["epoch"].notna().all():
        axes.set_xticks(ticks, [f"{tick:g}\n{tick * passes[0]:.3g}" for tick in ticks])
        panels.label_axes(axes, "", f"{label}, below it epoch")
    else:
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        streamed = curves["epoch"].isna().all()
        panels.label_axes(
            axes, "", f"{label}; {'streamed, so without epochs' if streamed else 'epochs differ in length'}"
        )


def require_one(results: pd.DataFrame, column: str) -> None:
    values = sorted(results[column].dropna().unique())
    if not values:
        raise ValueError("no results to draw: choose others, or see in `skipped` what could not be read")
    if len(values) > 1:
        raise ValueError(f"results of {len(values)} values of {column}: choose one, such as {column}={values[0]!r}")
