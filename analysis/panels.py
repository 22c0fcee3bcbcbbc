"""Figures laid out in inches, until variation and the probes are drawn by `analysis.plotting`."""

from __future__ import annotations

import io
import math
import os
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath

from train.results.columns import BASELINES

T = TypeVar("T")

BLUE, ORANGE, GREEN, RED, SKY, PURPLE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
SPLIT_STYLE = {"test_ind": (SKY, ""), "test_ood": (ORANGE, "////")}
MARKERS = ((BLUE, "o"), (RED, "s"), (GREEN, "^"), (PURPLE, "D"), (ORANGE, "v"), (SKY, "P"), ("black", "X"))
# Where two lines with different dashes coincide, both are visible.
DASHES: tuple[Any, ...] = ((0, (6, 6)), (4.5, (1.5, 1.5, 1.5, 7.5)), (0, (3, 3)), (0, (9, 3)), (0, (1.5, 3)))
BASELINE_STYLES = tuple(  # column, what the rule sees, line style
    (f"floor_{name}", words, dashes) for (name, words), dashes in zip(BASELINES.items(), cycle(DASHES), strict=False)
)
TEXT, SMALL = 8.0, 6.0  # points
LINE, NOTE_LINE = 0.165, 0.125  # height of a line, in inches
CELLS = matplotlib.colormaps["cividis"]
FORMATS: dict[str, dict[str, Any]] = {
    "svg": {"Date": None},
    "png": {},
}  # metadata without the date
# Text stays text in SVG, so it can be searched.
SAVE_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "travlr",
    "savefig.dpi": 150,
    "hatch.linewidth": 0.5,
}


def save(
    figure: Figure, folder: str | os.PathLike[str], name: str, formats: Iterable[str] = tuple(FORMATS)
) -> list[Path]:
    """Write FOLDER/NAME.svg and .png (150 dots per inch). Returns the paths.

    Raises `ValueError` for another format.
    """
    paths = []
    Path(folder).mkdir(parents=True, exist_ok=True)
    for kind in formats:
        if kind not in FORMATS:
            raise ValueError(f"format {kind!r}: choose from {', '.join(FORMATS)}")
        with matplotlib.rc_context(SAVE_SETTINGS):
            data = io.BytesIO()
            figure.savefig(data, format=kind, metadata=FORMATS[kind])
        paths.append(Path(folder) / f"{name}.{kind}")
        paths[-1].write_bytes(data.getvalue())
    return paths


# Panels and legends ----------------------------------------------------------------------------------------


def panel_figure(
    title: Sequence[str],
    rows: int,
    sizes: Sequence[tuple[float, float]],
    *,
    note: str = "",
    key: Sequence[Artist] = (),
    left: float = 0.6,
    right: float = 0.15,
    gap: tuple[float, float] = (0.35, 0.65),
    above: float = 0.28,
    below: float = 0.5,
) -> tuple[Figure, list[list[Axes]]]:
    """A figure with rows of panels, title and legend above them and a note below. The figure's label is its title.

    sizes: width and height of the panels of each column. left, right, above, below: margins for labels. gap: between
    panels, across and down. All in inches. key: the artists of the legend. The first line of the title is larger.
    """
    widths, height = [width for width, _ in sizes], sizes[0][1]
    width = max(5.0, left + sum(widths) + gap[0] * (len(sizes) - 1) + right)
    notes = _wrap(note, width, SMALL + 0.5)
    lines = [
        (line, TEXT + 2 * (not n)) for n, text in enumerate(title) for line in _wrap(text, width, TEXT + 2 * (not n))
    ]
    across = _across(key, width)
    top = 0.1 + LINE * len(lines) + bool(key) * (0.05 + 0.19 * math.ceil(len(key) / across)) + above
    tall = top + rows * height + (rows - 1) * gap[1] + below + NOTE_LINE * len(notes) + 0.08
    figure = Figure(figsize=(width, tall), facecolor="white")
    figure.set_label(" · ".join(title))
    for n, (line, points) in enumerate(lines):
        y = 1 - (0.22 + LINE * n) / tall
        figure.text(0.1 / width, y, line, fontsize=points, va="baseline", parse_math=False)
    for n, line in enumerate(notes):  # in reading order, in which the page gives them to screen readers
        y = (0.07 + NOTE_LINE * (len(notes) - 1 - n)) / tall
        figure.text(0.1 / width, y, line, fontsize=SMALL + 0.5, color="#333", va="bottom", parse_math=False)
    if key:
        place = (0.1 / width, 1 - (0.1 + LINE * len(lines) + 0.05) / tall)
        figure.legend(handles=list(key), loc="upper left", bbox_to_anchor=place, ncols=across, fontsize=TEXT - 0.5,
                      frameon=False, borderaxespad=0, borderpad=0, columnspacing=1.2, handlelength=2.4)  # fmt: skip
    panels: list[list[Axes]] = [[] for _ in range(rows)]
    for row in range(rows):
        y = tall - top - (row + 1) * height - row * gap[1]
        for n, wide in enumerate(widths):
            x = left + sum(widths[:n]) + n * gap[0]
            panels[row].append(figure.add_axes((x / width, y / tall, wide / width, height / tall)))
            _style_axes(panels[row][-1])
    return figure, panels


def _wrap(text: str, width: float, points: float) -> list[str]:
    """Lines of a text that fit into a width in inches; the width of a letter is about 0.58 of its size."""
    return textwrap.wrap(text, int((width - 0.2) * 72 / (points * 0.58)), break_on_hyphens=False)


def widest(texts: Iterable[str], points: float) -> float:
    """The width of the widest of some lines of text, in inches."""
    return max((TextPath((0, 0), text, size=points).get_extents().x1 / 72 for text in texts if text), default=0.0)


def _across(key: Sequence[Artist], width: float) -> int:
    """The number of columns of a legend: as many as fit. Columns are filled from top to bottom."""
    lengths = [0.5 + 0.066 * len(str(artist.get_label())) for artist in key]  # inches
    for columns in range(len(key), 1, -1):
        if sum(part.max() for part in np.array_split(lengths, columns)) + 0.13 * columns < width - 0.2:
            return columns
    return 1


def _style_axes(axes: Axes) -> None:
    axes.tick_params(labelsize=TEXT - 1, length=2.5, pad=2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def label_axes(axes: Axes, title: str = "", across: str = "", up: str = "") -> None:
    """Set a panel's title and the labels of its axes, unless empty."""
    if title:
        axes.set_title(title, fontsize=TEXT, pad=4, loc="left")
    if across:
        axes.set_xlabel(across, fontsize=TEXT - 0.5, labelpad=2)
    if up:
        axes.set_ylabel(up, fontsize=TEXT - 0.5, labelpad=2)


def each_panel(panels: Sequence[Sequence[Axes]], contents: Iterable[T]) -> Iterator[tuple[Axes, T]]:
    """The panels, row by row, each with one of `contents`; further panels are left blank."""
    flat, values = [axes for row in panels for axes in row], list(contents)
    for axes in flat[len(values) :]:
        axes.set_axis_off()
    return zip(flat, values, strict=False)


def label_outside(panels: Sequence[Sequence[Axes]], across: str, up: str) -> None:
    """Label the axes that panels share, below the last row and left of the first column."""
    for row in panels:
        for axes in row:
            label_axes(axes, "", across if row is panels[-1] else "", up if axes is row[0] else "")
            if axes is not row[0]:
                axes.set_yticklabels([])


def percent_axis(axes: Axes, low: float = 0, high: float = 100) -> None:
    axes.set_ylim(low, high)
    axes.set_yticks([tick for tick in (0, 20, 40, 60, 80, 100) if low <= tick <= high] if high > 50 else
                    np.linspace(0, high, 6))  # fmt: skip
    axes.grid(axis="y", color="#ddd", linewidth=0.5)
    axes.set_axisbelow(True)


def bars(
    axes: Axes, x: np.ndarray, low: np.ndarray | float, high: np.ndarray, width: float, face: str, hatch: str, edge: str
) -> None:
    """N bars around x, from low to high, as one artist, which takes a tenth of the time of `Axes.bar`."""
    low = np.broadcast_to(low, x.shape)
    left, right = x - width / 2, x + width / 2
    corners = np.stack([[left, low], [left, high], [right, high], [right, low]]).transpose(2, 0, 1)  # (N, 4, 2)
    style: dict[str, Any] = {"facecolor": face, "hatch": hatch or None, "edgecolor": edge, "linewidth": 0.5}
    axes.add_collection(PolyCollection(list(corners), **style), autolim=False)


def whiskers(axes: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """Intervals from low to high at x, all (N,)."""
    axes.vlines(x, low, high, colors="black", linewidth=0.9, zorder=4)
    ends = np.concatenate([low, high])
    axes.plot(np.concatenate([x, x]), ends, linestyle="", marker="_", markersize=3, color="black", zorder=4)


def split_legend(splits: Iterable[str]) -> list[Artist]:
    styles = [(split, *SPLIT_STYLE[split]) for split in splits]
    return [
        Patch(facecolor=face, hatch=hatch, edgecolor="black", linewidth=0.5, label=split)
        for split, face, hatch in styles
    ]


# Baselines ---------------------------------------------------------------------------------------------


def baseline_levels(results: pd.DataFrame, metric: str) -> list[tuple[str, str, Any, float]]:
    """The column, what the rule sees, the line style and the level of each baseline in these results. metric:
    `accuracy`, `error` (percent of wrong answers) or `macro_f1`."""
    return [
        (column, words, style, float(100 - value if metric == "error" else value))
        for column, words, style in BASELINE_STYLES
        for value in sorted(results[column if metric == "macro_f1" else f"{column}_accuracy"].dropna().unique())
    ]


def baseline_lines(axes: Axes, results: pd.DataFrame, metric: str = "accuracy") -> None:
    """Lines at the scores of baselines; metric: see `baseline_levels`."""
    for column, _, style, level in baseline_levels(results, metric):
        axes.axhline(level, color="black", linewidth=1.1, linestyle=style, zorder=3, gid=f"{column}-{level:.2f}")


def baseline_legend(results: pd.DataFrame, metric: str = "accuracy") -> list[Artist]:
    """The legend of `baseline_lines`, with the levels in these results, by split if they differ."""
    texts: dict[tuple[str, Any], dict[str, str]] = {}
    for split, rows in results.groupby("split", sort=False, observed=True):
        for _, words, style, level in baseline_levels(rows, metric):
            levels = texts.setdefault((words, style), {})
            levels[str(split)] = " and ".join(filter(None, (levels.get(str(split)), f"{level:.1f}")))
    return [
        Line2D([], [], color="black", linewidth=1.1, linestyle=style, label=f"text alone, {words}: {_by_split(levels)}")
        for (words, style), levels in texts.items()
    ]  # fmt: skip


def _by_split(levels: dict[str, str]) -> str:
    if len(set(levels.values())) == 1:
        return next(iter(levels.values()))
    return ", ".join(f"{split} {level}" for split, level in levels.items())


# Cells ---------------------------------------------------------------------------------------------------------------


def cell_grid(
    axes: Axes, values: np.ndarray, across: Sequence[object], up: Sequence[object], low: float, high: float
) -> None:
    """Cells (Y, X) in colours from low to high, blank for NaN, with the names of columns (X,) and rows (Y,)."""
    norm = Normalize(low, high)
    axes.pcolormesh(np.ma.masked_invalid(values), cmap=CELLS, norm=norm, edgecolors="white", linewidth=0.8)
    axes.set_xticks(np.arange(len(across)) + 0.5, [str(one) for one in across])
    axes.set_yticks(np.arange(len(up)) + 0.5, [str(one) for one in up])
    axes.tick_params(left=False, bottom=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#bbb")


def number_cells(
    axes: Axes, across: Sequence[object], up: Sequence[object], cells: Iterable[tuple[int, int, float, str, str]],
    points: tuple[float, float] = (TEXT - 1, SMALL - 0.5),
) -> None:  # fmt: skip
    """A `cell_grid` of 0 to 100 percent with numbers in it. cells: column, row (from 0), percent, large text, small
    text. points: the font sizes of the two texts."""
    cells = list(cells)
    values = np.full((len(up), len(across)), np.nan)
    for x, y, level, _, _ in cells:
        values[y, x] = level
    cell_grid(axes, values, across, up, 0, 100)
    for x, y, level, big, small in cells:
        style: dict[str, Any] = {"ha": "center", "color": text_colour(level / 100), "parse_math": False}
        if small:
            axes.text(x + 0.5, y + 0.52, big, va="bottom", fontsize=points[0], **style)
            axes.text(x + 0.5, y + 0.42, small, va="top", fontsize=points[1], **style)
        else:
            axes.text(x + 0.5, y + 0.5, big, va="center_baseline", fontsize=points[0], **style)


def text_colour(shade: float) -> str:
    """Black or white: the one with more contrast (WCAG 2) to the colour of a cell."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in CELLS(float(shade))[:3])
    bright = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "white" if 1.05 / (bright + 0.05) > (bright + 0.05) / 0.05 else "black"


def colour_scale(figure: Figure, panel: Axes, low: float, high: float, label: str) -> Axes:
    """A colour scale, right of a panel."""
    box, (width, height) = panel.get_position(), figure.get_size_inches()
    axes = figure.add_axes((box.x1 + 0.12 / width, box.y0, 0.1 / width, min(box.height, 2.2 / height)))
    steps = np.linspace(low, high, 65)
    axes.pcolormesh([0, 1], steps, steps[:-1, None], cmap=CELLS, norm=Normalize(low, high), edgecolors="face")
    axes.set_xticks([])
    axes.set_yticks(np.linspace(low, high, 6))
    axes.yaxis.tick_right()
    axes.yaxis.set_label_position("right")
    axes.tick_params(labelsize=TEXT - 1, length=2, pad=2)
    axes.set_ylabel(label, fontsize=TEXT - 1, labelpad=2)
    return axes
