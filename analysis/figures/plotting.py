"""How figures look: one place for sizes and colours, and the parts that several figures share.

Colours are Okabe and Ito's, and cividis for cells: they work in print and for colour-blind readers.
"""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Iterable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import seaborn as sns
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from train.results.columns import BASELINES, TEST_SPLITS

BLUE, ORANGE, GREEN, RED, SKY, PURPLE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
COLOURS = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY, "black")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
SPLIT_COLOURS = dict(zip(TEST_SPLITS, (SKY, ORANGE), strict=True))
# Where two lines with different dashes coincide, both are visible.
DASHES: tuple[Any, ...] = ((0, (6, 6)), (4.5, (1.5, 1.5, 1.5, 7.5)), (0, (3, 3)))
STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.labelsize": 7.5,
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#ddd",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "figure.titlesize": 9,
    "errorbar.capsize": 1.5,
    "hatch.linewidth": 0.5,
    "savefig.dpi": 150,
    "svg.fonttype": "none",  # text stays text, so it can be searched
    "svg.hashsalt": "travlr",
    "text.parse_math": False,
}


def new_figure(
    title: Sequence[str], rows: int, columns: int, size: tuple[float, float], **options: Any
) -> tuple[Figure, np.ndarray]:
    """A figure and its panels (rows, columns). title: lines, wrapped. size: of a panel with its labels, in inches."""
    width = max(4.5, columns * size[0])
    lines = [part for line in title for part in textwrap.wrap(line, int(width * 15.5), break_on_hyphens=False)]
    figure = Figure(figsize=(width, rows * size[1] + 0.16 * len(lines) + 0.35), layout="constrained", facecolor="white")
    figure.suptitle("\n".join(lines), x=0.01, ha="left")
    figure.set_label(" · ".join(title))
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def add_legend(figure: Figure) -> None:
    """A legend of all panels below them; each label once, in as many columns as fit."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        entries |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if entries:
        widest = 0.6 + 0.062 * max(map(len, entries))  # inches
        columns = max(1, min(len(entries), int(figure.get_figwidth() / widest)))
        figure.legend(entries.values(), entries.keys(), loc="outside lower left", ncols=columns)
        height = 0.17 * math.ceil(len(entries) / columns)
        figure.set_figheight(figure.get_figheight() + height)


def write_figure(
    figure: Figure, folder: str | os.PathLike[str], name: str, formats: Iterable[str] = ("svg", "png")
) -> None:
    """Write FOLDER/NAME.svg and .png."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        for kind in formats:
            metadata = {"Date": None} if kind == "svg" else {}
            figure.savefig(Path(folder) / f"{name}.{kind}", format=kind, metadata=metadata)


# Bars and lines ------------------------------------------------------------------------------------------------------


def bars_with_intervals(axes: Axes, x: np.ndarray, table: pd.DataFrame, width: float, **style: Any) -> None:
    """Bars of `percent` with whiskers from `low` to `high`."""
    percent, low, high = (table[name].to_numpy(float) for name in ("percent", "low", "high"))
    error = np.stack([percent - low, high - percent]).clip(0)
    axes.bar(x, percent, width, yerr=error, error_kw={"elinewidth": 0.9}, edgecolor="black", linewidth=0.5, **style)


def split_bars(axes: Axes, table: pd.DataFrame, column: str, values: Sequence[Any], splits: Sequence[str]) -> None:
    """Percent by the value of a column, a bar for each split; below them the number of examples of each."""
    width = 0.8 / len(splits)
    ticks = [[str(value)] for value in values]
    for n, split in enumerate(splits):
        part = table[table["split"] == split].set_index(column).reindex(list(values))
        place = np.arange(len(values)) + (n - (len(splits) - 1) / 2) * width
        hatch = "////" if n else ""
        bars_with_intervals(axes, place, part, width, color=SPLIT_COLOURS[split], hatch=hatch, label=split)
        for tick, count in zip(ticks, part["examples"], strict=True):
            tick.append("" if pd.isna(count) else f"{count:.0f}")
    axes.set_xticks(range(len(values)), ["\n".join(tick) for tick in ticks], fontsize=6)
    axes.grid(axis="y")


def baseline_levels(results: pd.DataFrame, metric: str) -> dict[str, list[float]]:
    """By what a baseline rule sees, its levels in these results. metric: accuracy, error (percent wrong) or
    macro_f1."""
    levels = {}
    for name, words in BASELINES.items():
        values = (
            results[f"baseline_{name}" if metric == "macro_f1" else f"baseline_{name}_accuracy"].dropna().astype(float)
        )
        levels[words] = sorted({100 - value if metric == "error" else value for value in values})
    return {words: values for words, values in levels.items() if values}


def baseline_lines(axes: Axes, results: pd.DataFrame, metric: str = "accuracy") -> None:
    """Lines at the scores of baseline rules; metric: see `baseline_levels`."""
    for (words, levels), dashes in zip(baseline_levels(results, metric).items(), cycle(DASHES), strict=False):
        for level in levels:
            axes.axhline(level, color="black", lw=1.1, ls=dashes, zorder=3, label=f"baseline: {words}", gid="baseline")


# Cells ---------------------------------------------------------------------------------------------------------------


def heat_map(
    axes: Axes, values: pd.DataFrame, texts: pd.DataFrame, points: float = 6.5, bar: str = "", **options: Any
) -> None:
    """Cells of percentages with texts in them; blank for NaN. bar: the label of the colour scale; "" for none."""
    shown = texts.astype(object).where(texts.notna(), "")
    sns.heatmap(
        values.astype(float), ax=axes, vmin=0, vmax=100, cmap="cividis", annot=shown, fmt="", square=True,
        linewidths=0.6, annot_kws={"fontsize": points}, cbar=bool(bar),
        cbar_kws={"label": bar, "shrink": 0.8} if bar else None, **options,
    )  # fmt: skip
    axes.tick_params(left=False, bottom=False, top=False, labelrotation=0)
    axes.set(xlabel="", ylabel="")


def format_percent(value: float) -> str:
    """Percent without digits; only 0 itself is written as 0, and only 100 as 100."""
    return "<1" if 0 < value < 0.5 else ">99" if 99.5 <= value < 100 else f"{value:.0f}"
