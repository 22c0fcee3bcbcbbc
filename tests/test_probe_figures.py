"""Figures of made-up results, read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.probe.report.figures import bar_chart, figures, radar_chart
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


def test_itm_has_a_panel_where_it_was_asked(tmp_path: Path) -> None:
    corpus = corpus_of(26)
    put(tmp_path, corpus, "m", answers_of(corpus, by_axis(corpus)), {}, task="itm", threshold=0.5)
    (group,) = groups(load_results(tmp_path)[0])
    labels = [axes.get_ylabel() for axes in bar_chart(group, group.models).axes]
    assert labels == ["items right (%)", "sentences right, each alone (%)", "pairs with both items right (%)"]
