"""Figures of a group of results: bars and radar charts, by axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.panels import MARKERS, NOTE_LINE, TEXT, bars, label_axes, panel_figure, percent_axis, whiskers
from analysis.probe.report.results import Group, Series, values_of

HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "oooo")
WIDEST = 12.0  # inches of a row of bars
OTHERS = {"blank picture": ("o", 0.3), "other items' pictures": ("^", 0.7)}  # marker and place on a bar
HOLLOW: dict[str, Any] = {"color": "black", "markerfacecolor": "white", "markersize": 4, "markeredgewidth": 0.8}
SALIENT_LABEL = "best salience rule (what is large or central)"
LINE_STYLE = {"color": "black", "linewidth": 1.3}
RULE_STYLES: dict[str, dict[str, Any]] = {
    "blind rule": {**LINE_STYLE, "label": "best blind rule (text alone)", "linestyle": (0, (3, 1.5))},
    "salience rule": {**LINE_STYLE, "label": SALIENT_LABEL, "linestyle": (0, (1, 1.2))},
}
# Metrics of panels: label, fields of a `MetricRow` (value and ends of the interval), value by chance.
SINGLE = ("items right (%)", ("single", "single_low", "single_high"), 50.0)
ALONE = ("sentences right, each alone (%)", ("itm_accuracy", "itm_low", "itm_high"), 50.0)
PAIRS = ("pairs with both items right (%)", ("pair_accuracy", "pair_low", "pair_high"), 25.0)
PlottedMetric = tuple[str, tuple[str, str, str], float]


def figures(group: Group) -> dict[str, Figure]:
    """Bar and radar charts, by file name; up to seven models in a figure."""
    series, charts = list(group.series.items()), dict[str, Figure]()
    for n in range(0, len(series), len(MARKERS)):
        part, number = dict(series[n : n + len(MARKERS)]), f"-{n // len(MARKERS) + 1}" if n else ""
        if any(line.single is not None for lines in part.values() for line in lines):
            charts[f"{group.slug}-bars{number}"] = bar_chart(group, part)
            if len(_axes_of(group)) >= 3:
                charts[f"{group.slug}-radar{number}"] = radar_chart(group, part)
    return charts


def _axes_of(group: Group) -> list[str]:
    return [value for by, value in group.keys if by == group.by]


def _values(group: Group, series: Series, label: str, axes_names: Sequence[str], metric: str) -> np.ndarray:
    """A metric of a model or rule on each axis; NaN without one."""
    return np.array([values_of(series, group.by, axis, metric).get(label, np.nan) for axis in axes_names])


def _best_rules(group: Group, kind: str, axes_names: Sequence[str], metric: str) -> np.ndarray:
    """The best value of the blind (or salience) rules on each axis; NaN without any."""
    values = [values_of(group.rules[kind], group.by, axis, metric).values() for axis in axes_names]
    return np.array([max(numbers, default=np.nan) for numbers in values])


def bar_chart(group: Group, series: Series) -> Figure:
    """Accuracy of items and pairs by axis, with intervals and the best blind rule; several rows for many axes."""
    names, has_pairs = _axes_of(group), any(line.pairs for lines in series.values() for line in lines)
    metrics = [SINGLE, *[ALONE] * group.matching, *[PAIRS] * has_pairs]
    key: list[Artist] = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="black", linewidth=0.5, label=label)
        for label, (colour, _), hatch in zip(series, MARKERS, HATCHES, strict=False)
    ]
    key += [Line2D([], [], **RULE_STYLES[kind]) for kind, rules in group.rules.items() if rules]
    key.append(Line2D([], [], color="#888", linewidth=0.8, label="tossing coins"))
    key += [
        Line2D([], [], linestyle="", marker=marker, label=baseline, **HOLLOW)
        for baseline, (marker, _) in OTHERS.items()
        if any(group.with_other_pictures(baseline, label) for label in series)
    ]
    each = max(0.85, 0.2 * len(series) + 0.25)
    rows = math.ceil(len(names) * each / WIDEST)
    across = math.ceil(len(names) / max(1, rows))
    parts = [names[n : n + across] for n in range(0, len(names), across)]
    note = "Whiskers: 95 % intervals over clusters of items. Items that were not scored are left out."
    figure, panels = panel_figure(
        [f"Accuracy: {group.title}"], len(metrics) * len(parts), [(max(4.5, across * each), 1.7)],
        note=note, key=key, left=0.5, gap=(0.3, 0.75), below=0.75,
    )  # fmt: skip
    for n, (axes,) in enumerate(panels):
        _bars(axes, group, series, metrics[n // len(parts)], parts[n % len(parts)])
        axes.set_xlim(-0.5, across - 0.5)
    return figure


def _bars(axes: Axes, group: Group, series: Series, metric: PlottedMetric, names: Sequence[str]) -> None:
    words, fields, coins = metric
    width = 0.8 / len(series)
    for n, (label, (colour, _), hatch) in enumerate(zip(series, MARKERS, HATCHES, strict=False)):
        values, low, high = (_values(group, series, label, names, name) for name in fields)
        places = np.flatnonzero(~np.isnan(values))
        x = places - 0.4 + width * (n + 0.5)
        if len(places):
            bars(axes, x, 0.0, values[places], 0.9 * width, colour, hatch, "black")
            whiskers(axes, x, low[places], high[places])
        for baseline, (marker, place) in OTHERS.items():
            if other := group.with_other_pictures(baseline, label):
                x = np.arange(len(names)) - 0.4 + width * (n + place)
                heights = _values(group, {label: other}, label, names, fields[0])
                axes.plot(x, heights, linestyle="", marker=marker, zorder=6, **HOLLOW)
    axes.axhline(coins, color="#888", linewidth=0.8)
    levels = {kind: _best_rules(group, kind, names, fields[0]) for kind in RULE_STYLES}
    for n, kind in itertools.product(range(len(names)), levels):
        if not np.isnan(levels[kind][n]):
            axes.hlines(levels[kind][n], n - 0.45, n + 0.45, zorder=5, **{**RULE_STYLES[kind], "label": None})
    axes.set_xticks(range(len(names)), [axis.replace("/", "\n") for axis in names], fontsize=TEXT - 1.5)
    percent_axis(axes, 0, 102)
    label_axes(axes, "", "", words)


def radar_chart(group: Group, series: Series) -> Figure:
    """Accuracy of items by axis on spokes, from 0 % in the middle to 100 % outside."""
    names = _axes_of(group)
    turns = np.linspace(0, 2 * math.pi, len(names), endpoint=False)
    styles = {label: {"color": colour, "marker": marker, "markersize": 4, "label": label}
              for label, (colour, marker) in zip(series, MARKERS, strict=False)}  # fmt: skip
    baseline = _best_rules(group, "blind rule", names, "single")
    blind = [RULE_STYLES["blind rule"]] * bool(np.isfinite(baseline).any())
    key: list[Artist] = [Line2D([], [], **style) for style in (*styles.values(), *blind)]
    note = "From 0 % in the middle to 100 % outside; rings at 25, 50 (coins), 75 and 100 %. A gap: nothing was scored."
    figure, panels = panel_figure([f"Items right by axis: {group.title}"], 1, [(3.4, 3.9)], note=note, key=key,
                          left=1.5, right=1.5, below=0.6 + NOTE_LINE)  # fmt: skip
    axes = _polar(figure, panels[0][0], names, turns)

    def draw(values: np.ndarray, **style: Any) -> None:
        axes.plot(np.append(turns, turns[0]), np.append(values, values[0]), **style)

    for label, style in styles.items():
        draw(_values(group, series, label, names, "single"), **style, linewidth=1.4, gid=f"radar-{label}")
    for style in blind:
        draw(baseline, **style)
    return figure


def _polar(figure: Figure, flat: Axes, names: Sequence[str], turns: np.ndarray) -> Axes:
    """Polar axes in place of flat ones, with rings and a label for each spoke."""
    left, bottom, width, height = flat.get_position().bounds
    place = (left, bottom, width, height * 3.4 / 3.9)  # leaves room for the top label
    axes: Any = figure.add_axes(place, projection="polar")
    flat.remove()
    axes.set_theta_zero_location("N")
    axes.set_theta_direction(-1)
    axes.set_ylim(0, 100)
    axes.set_yticks([25, 50, 75, 100], [""] * 4)
    for level in (25, 50, 75, 100):  # between two spokes, above the lines
        axes.text(math.pi / len(names), level, str(level), fontsize=TEXT - 2, ha="center", va="top", zorder=6)
    axes.set_xticks(turns, [axis.replace("/", "\n") for axis in names], fontsize=TEXT - 1)
    axes.tick_params(axis="x", pad=6)
    for spoke, turn in zip(axes.get_xticklabels(), turns.tolist(), strict=True):  # outside the circle
        x, y = math.sin(turn), math.cos(turn)
        spoke.set_horizontalalignment("left" if x > 0.05 else "right" if x < -0.05 else "center")
        spoke.set_verticalalignment("bottom" if y > 0.85 else "top" if y < -0.85 else "center")
    axes.plot(np.linspace(0, 2 * math.pi, 181), np.full(181, 50.0), color="#888", linewidth=0.8)
    return axes
