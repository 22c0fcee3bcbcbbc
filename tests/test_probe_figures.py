"""Figures of made-up results, read back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from analysis.probe.report.figures import SALIENT_LABEL, WIDEST, bar_chart, figures, radar_chart
from analysis.probe.report.results import groups, load_results
from tests.probe_runs import AXES, answers_of, by_axis, corpus_of, group_of, made, put


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("probes"))


def test_radar_labels_and_values_are_of_the_same_axes(out: Path) -> None:
    """13 axes with 13 different values, in an order of their own: each spoke shows the value of its label."""
    figure = radar_chart(group_of(out), group_of(out).models)
    axes = figure.axes[0]
    labels = [label.get_text().replace("\n", "/") for label in axes.get_xticklabels()]
    shown = next(one for one in axes.get_lines() if one.get_gid() == "radar-first")
    turns, values = (np.asarray(part, float) for part in shown.get_data())
    assert labels == list(AXES) and np.allclose(turns[:-1], axes.get_xticks())
    corpus = corpus_of()
    for label, value in zip(labels, values[:-1], strict=True):
        right = [one for item, one in zip(corpus.items, by_axis(corpus), strict=True) if item.axis == label]
        assert value == pytest.approx(100 * np.mean(right))
    assert len(set(values[:-1])) == 13 and values[0] == values[-1]
    assert axes.get_ylim() == (0, 100)


def test_labels_of_the_radar_are_outside_its_circle(out: Path) -> None:
    figure = radar_chart(group_of(out), group_of(out).models)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    axes = figure.axes[0]
    middle = axes.transData.transform((0, 0))
    radius = np.linalg.norm(axes.transData.transform((0, 100)) - middle)
    boxes = [label.get_window_extent(canvas.get_renderer()) for label in axes.get_xticklabels()]
    assert len(boxes) == 13
    for box in boxes:
        nearest = np.clip(middle, box.min, box.max)
        assert np.linalg.norm(nearest - middle) > radius
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])


def test_bars_have_intervals_and_baselines(out: Path) -> None:
    figure = figures(group_of(out))["made-up-bars"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["items right (%)", "pairs with both items right (%)"]
    heights = [np.asarray(path.vertices)[:, 1].max() for path in figure.axes[0].collections[0].get_paths()]
    lines = {line.value: line for line in group_of(out).models["first"] if line.by == "axis"}
    assert heights == pytest.approx([lines[axis].single for axis in AXES])
    drawn = [s for c in figure.axes[0].collections for s in getattr(c, "get_segments", list)()]
    whiskers = [sorted(s[:, 1]) for s in drawn if s[0][0] == s[1][0]]
    for axis in AXES:
        ends = np.array([lines[axis].single_low, lines[axis].single_high], float)
        assert any(np.allclose(whisker, ends) for whisker in whiskers)
    baselines = sorted(s[0][1] for s in drawn if s[0][1] == s[1][1] and s[0][0] != s[1][0])
    assert baselines == [50] * 12 + [100]


def test_bars_have_the_best_salience_rule(out: Path) -> None:
    group = group_of(out)
    rules = {"most_ink": group.baselines["hash"], "most_central": group.baselines["hash"]}
    figure = bar_chart(replace(group, baselines={**group.baselines, **rules}), group.models)
    drawn = [s for c in figure.axes[0].collections for s in getattr(c, "get_segments", list)()]
    levels = sorted(s[0][1] for s in drawn if s[0][1] == s[1][1] and s[0][0] != s[1][0])
    assert levels == [50] * 25 + [100]  # of 13 axes, beside those of the blind rules
    labels = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
    assert SALIENT_LABEL in labels


def test_many_axes_take_rows_that_fit_a_page(out: Path) -> None:
    series = {f"m{n}": group_of(out).models["first"] for n in range(7)}
    figure = bar_chart(group_of(out), series)
    assert figure.get_size_inches()[0] < WIDEST + 1
    labels = [label.get_text().replace("\n", "/") for axes in figure.axes for label in axes.get_xticklabels()]
    assert len(figure.axes) == 4 and labels == [*AXES, *AXES]  # items, then pairs, each in two rows
    assert len({axes.get_xlim() for axes in figure.axes}) == 1  # so bars are as wide everywhere


def test_itm_has_a_panel_where_it_was_asked(tmp_path: Path) -> None:
    corpus = corpus_of(26)
    put(tmp_path, corpus, "m", answers_of(corpus, by_axis(corpus)), {}, task="itm", threshold=0.5)
    (group,) = groups(load_results(tmp_path)[0])
    labels = [axes.get_ylabel() for axes in bar_chart(group, group.models).axes]
    assert labels == ["items right (%)", "sentences right, each alone (%)", "pairs with both items right (%)"]


def test_seven_models_to_a_figure_and_few_axes_without_radar(tmp_path: Path) -> None:
    corpus = corpus_of(13)
    for n in range(8):
        put(tmp_path, corpus, f"m{n}", answers_of(corpus, [True] * 26), {})
    (group,) = groups(load_results(tmp_path)[0])
    assert set(figures(group)) == {f"made-up-{kind}{number}" for kind in ("bars", "radar") for number in ("", "-2")}


def test_the_key_fits_its_figure(out: Path) -> None:
    """Seven entries make columns of uneven lengths, the last of which must not run off the page."""
    group = group_of(out)
    names = ("google/siglip2-so400m-patch14-384", "m", "openai/clip-vit-large-patch14-336")
    for count in range(1, 4):
        series = dict(zip(names[:count], [*group.models.values(), *group.models.values()], strict=False))
        figure = bar_chart(group, series)
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        (legend,) = figure.legends
        box = legend.get_window_extent(canvas.get_renderer())
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
