"""Figures of a group of results: bars and radar charts, by axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.panels import MARKERS, NOTE_LINE, TEXT, bars, label_axes, panel_figure, percent_axis, whiskers
from analysis.probe.report.metrics import MetricRow
from analysis.probe.report.results import Group, number

HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "oooo")
WIDEST = 12.0  # inches of a row of bars


@dataclass(frozen=True)
class PlottedMetric:
    """The metric of a panel: its label, its fields in a `MetricRow`, and its value by chance."""

    words: str
    value: str
    low: str
    high: str
    coins: float


SINGLE = PlottedMetric("items right (%)", "single", "single_low", "single_high", 50.0)
ALONE = PlottedMetric("sentences right, each alone (%)", "itm_accuracy", "itm_low", "itm_high", 50.0)
PAIRS = PlottedMetric("pairs with both items right (%)", "pair_accuracy", "pair_low", "pair_high", 25.0)


def _axes_of(group: Group) -> list[str]:
    return [value for by, value in group.keys if by == group.by]


def figures(group: Group) -> dict[str, Figure]:
    """Bar and radar charts, by file name; up to seven models in a figure."""
    series = list(group.series.items())
    found = {}
    for n in range(0, len(series), len(MARKERS)):
        part, number = dict(series[n : n + len(MARKERS)]), f"-{n // len(MARKERS) + 1}" if n else ""
        if any(line.single is not None for lines in part.values() for line in lines):
            found[f"{group.slug}-bars{number}"] = bar_chart(group, part)
            if len(_axes_of(group)) >= 3:
                found[f"{group.slug}-radar{number}"] = radar_chart(group, part)
    return found


def _best_rule(group: Group, axis: str, measure: PlottedMetric, salient: bool = False) -> float | None:
    """The best value of a blind (or salience) rule on an axis."""
    rules = (group.salience_rules if salient else group.blind_rules).values()
    found = [value for lines in rules if (value := number(lines, group.by, axis, measure.value)) is not None]
    return max(found, default=None)


OTHERS = {
    "blank picture": ("o", "blank picture"),
    "other items' pictures": ("^", "other items' pictures"),
}
HOLLOW: dict[str, Any] = {"color": "black", "markerfacecolor": "white", "markersize": 4, "markeredgewidth": 0.8}
BLIND_STYLE: dict[str, Any] = {"color": "black", "linewidth": 1.3, "linestyle": (0, (3, 1.5))}
BLIND_LABEL = "best blind rule (text alone)"
SALIENT_STYLE: dict[str, Any] = {"color": "black", "linewidth": 1.3, "linestyle": (0, (1, 1.2))}
SALIENT_LABEL = "best salience rule (what is large or central)"


def bar_chart(group: Group, series: Mapping[str, Sequence[MetricRow]]) -> Figure:
    """Accuracy of items and pairs by axis, with intervals and the best blind rule; several rows for many axes."""
    axes_names = _axes_of(group)
    lines = [line for found in series.values() for line in found]
    measures = [SINGLE, *([ALONE] if group.matching else []), *([PAIRS] if any(line.pairs for line in lines) else [])]
    key: list[Artist] = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="black", linewidth=0.5, label=label)
        for label, (colour, _), hatch in zip(series, MARKERS, HATCHES, strict=False)
    ]
    if group.blind_rules:
        key.append(Line2D([], [], label=BLIND_LABEL, **BLIND_STYLE))
    if group.salience_rules:
        key.append(Line2D([], [], label=SALIENT_LABEL, **SALIENT_STYLE))
    key.append(Line2D([], [], color="#888", linewidth=0.8, label="tossing coins"))
    key += [
        Line2D([], [], linestyle="", marker=marker, label=words, **HOLLOW)
        for baseline, (marker, words) in OTHERS.items()
        if any(group.with_other_pictures(baseline, label) for label in series)
    ]
    each = max(0.85, 0.2 * len(series) + 0.25)
    rows = math.ceil(len(axes_names) * each / WIDEST)
    across = math.ceil(len(axes_names) / max(1, rows))
    parts = [axes_names[n : n + across] for n in range(0, len(axes_names), across)]
    note = "Whiskers: 95 % intervals over clusters of items. Items that were not scored are left out."
    figure, panels = panel_figure(
        [f"Accuracy: {group.title}"],
        len(measures) * len(parts),
        [(max(4.5, across * each), 1.7)],
        note=note,
        key=key,
        left=0.5,
        gap=(0.3, 0.75),
        below=0.75,
    )
    for n, (axes,) in enumerate(panels):
        _bars(axes, group, series, measures[n // len(parts)], parts[n % len(parts)])
        axes.set_xlim(-0.5, across - 0.5)
    return figure


def _bars(
    axes: Axes,
    group: Group,
    series: Mapping[str, Sequence[MetricRow]],
    measure: PlottedMetric,
    axes_names: Sequence[str],
) -> None:
    width = 0.8 / len(series)

    def of(lines: Sequence[MetricRow], what: str) -> np.ndarray:
        values = [number(lines, group.by, axis, what) for axis in axes_names]
        return np.array([np.nan if value is None else value for value in values])

    for n, (label, (colour, _), hatch) in enumerate(zip(series, MARKERS, HATCHES, strict=False)):
        lines = series[label]
        here = np.flatnonzero(~np.isnan(of(lines, measure.value)))
        x = here - 0.4 + width * (n + 0.5)
        if len(here):
            bars(axes, x, 0.0, of(lines, measure.value)[here], 0.9 * width, colour, hatch, "black")
            whiskers(axes, x, of(lines, measure.low)[here], of(lines, measure.high)[here])
        for baseline, (marker, _words) in OTHERS.items():
            if other := group.with_other_pictures(baseline, label):
                places = np.arange(len(axes_names)) - 0.4 + width * (n + (0.3 if marker == "o" else 0.7))
                axes.plot(places, of(other, measure.value), linestyle="", marker=marker, zorder=6, **HOLLOW)
    axes.axhline(measure.coins, color="#888", linewidth=0.8)
    for n, axis in enumerate(axes_names):
        if (level := _best_rule(group, axis, measure)) is not None:
            axes.hlines(level, n - 0.45, n + 0.45, zorder=5, **BLIND_STYLE)
        if (level := _best_rule(group, axis, measure, salient=True)) is not None:
            axes.hlines(level, n - 0.45, n + 0.45, zorder=5, **SALIENT_STYLE)
    axes.set_xticks(range(len(axes_names)), [axis.replace("/", "\n") for axis in axes_names], fontsize=TEXT - 1.5)
    percent_axis(axes, 0, 102)
    label_axes(axes, "", "", measure.words)


def radar_chart(group: Group, series: Mapping[str, Sequence[MetricRow]]) -> Figure:
    """Accuracy of items by axis on spokes, from 0 % in the middle to 100 % outside."""
    axes_names = _axes_of(group)
    turns = np.linspace(0, 2 * math.pi, len(axes_names), endpoint=False)
    styles = dict(zip(series, MARKERS, strict=False))
    key: list[Artist] = [
        Line2D([], [], color=colour, marker=marker, markersize=4, label=label)
        for label, (colour, marker) in styles.items()
    ]
    baseline = [_best_rule(group, axis, SINGLE) for axis in axes_names]
    if any(level is not None for level in baseline):
        key.append(Line2D([], [], label=BLIND_LABEL, **BLIND_STYLE))
    note = "From 0 % in the middle to 100 % outside; rings at 25, 50 (coins), 75 and 100 %. A gap: nothing was scored."
    figure, panels = panel_figure([f"Items right by axis: {group.title}"], 1, [(3.4, 3.9)], note=note, key=key,
                          left=1.5, right=1.5, below=0.6 + NOTE_LINE)  # fmt: skip
    flat = panels[0][0]
    left, bottom, width, height = flat.get_position().bounds
    axes = figure.add_axes(
        (left, bottom, width, height * 3.4 / 3.9), projection="polar"
    )  # leaves room for the top label
    flat.remove()
    assert hasattr(axes, "set_theta_zero_location") and hasattr(axes, "set_theta_direction")
    axes.set_theta_zero_location("N")
    axes.set_theta_direction(-1)
    axes.set_ylim(0, 100)
    axes.set_yticks([25, 50, 75, 100], [""] * 4)
    for level in (25, 50, 75, 100):  # between two spokes, above the lines
        axes.text(math.pi / len(axes_names), level, str(level), fontsize=TEXT - 2, ha="center", va="top", zorder=6)
    axes.set_xticks(turns, [axis.replace("/", "\n") for axis in axes_names], fontsize=TEXT - 1)
    axes.tick_params(axis="x", pad=6)
    for spoke, turn in zip(axes.get_xticklabels(), turns.tolist(), strict=True):  # outside the circle
        x, y = math.sin(turn), math.cos(turn)
        spoke.set_horizontalalignment("left" if x > 0.05 else "right" if x < -0.05 else "center")
        spoke.set_verticalalignment("bottom" if y > 0.85 else "top" if y < -0.85 else "center")
    axes.plot(np.linspace(0, 2 * math.pi, 181), np.full(181, 50.0), color="#888", linewidth=0.8)

    def draw(levels: Sequence[float | None], **style: Any) -> None:
        values = np.array([np.nan if level is None else level for level in levels])
        axes.plot(np.append(turns, turns[0]), np.append(values, values[0]), **style)

    for label, lines in series.items():
        colour, marker = styles[label]
        values = [number(lines, group.by, axis, "single") for axis in axes_names]
        draw(values, color=colour, marker=marker, markersize=4, linewidth=1.4, gid=f"radar-{label}")
    if any(level is not None for level in baseline):
        draw(baseline, **BLIND_STYLE)
    return figure
