"""The paper's figures and others, from the frames of `analysis.frames`. `FIGURES` lists them all, `draw` draws one.

`of_predictions` has the figures of one run and of a dataset, `of_runs` those of several runs, and
`plotting` how all of them look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from analysis.figures.of_predictions import (
    draw_agreement,
    draw_calibration,
    draw_cells,
    draw_dataset,
    draw_numbers,
    draw_objects,
    draw_pairs,
    draw_quantifiers,
    rates,
)
from analysis.figures.of_runs import draw_loss, draw_subsets, draw_transfer, require_one
from analysis.figures.plotting import STYLE, write_figure
from analysis.frames import Runs
from train.results.columns import in_order, main_test_setting
from travlr.tasks import TASKS, is_task, short_name

__all__ = ["FIGURES", "FigureKind", "draw", "list_figures", "rates", "write_figure"]

INFORMATIVE = ("image+caption", "mixed", "image", "caption")  # training settings, those with most modalities first


@dataclass(frozen=True)
class FigureKind:
    """A kind of figure: the function that draws it, its input, its tasks, and its numbers in the paper.

    of: predictions (of one run in one test setting, or in those of `tests`), results, examples, or curves. only: the
    tasks with this figure; empty for all tasks except `without`. tests: test settings that the figure needs.
    """

    draw: Callable[..., Figure]
    of: str
    only: tuple[str, ...] = ()
    paper: str = ""
    without: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()

    def suits(self, task: str) -> bool:
        return task in self.only if self.only else task not in self.without

    @property
    def caption(self) -> str:
        """What the figure shows, in words."""
        return " ".join((self.draw.__doc__ or "").split())


FIGURES: dict[str, FigureKind] = {
    "pairs": FigureKind(draw_pairs, "predictions", ("spatiality",), "2"),
    "cells": FigureKind(draw_cells, "predictions", (), "3, 24, 25"),
    "numbers": FigureKind(draw_numbers, "predictions", ("cardinality",), "4"),
    "dataset": FigureKind(draw_dataset, "examples", (), "8-14"),
    "subsets": FigureKind(draw_subsets, "results", (), "15-18"),
    "loss": FigureKind(draw_loss, "curves", (), "19-21"),
    "objects": FigureKind(draw_objects, "predictions", (), "22", without=("spatiality",)),
    "quantifiers": FigureKind(draw_quantifiers, "predictions", ("quantifiers",), "23"),
    "agreement": FigureKind(draw_agreement, "predictions", tests=("image", "caption")),
    "calibration": FigureKind(draw_calibration, "predictions"),
    "transfer": FigureKind(draw_transfer, "results"),
}


def draw(figure: str, runs: Runs, **where: Any) -> Figure:
    """A figure of the runs whose results have these values: `draw("cells", runs, name="…", test_setting="image")`.

    Raises `ValueError`, in one line, for an unknown figure, or where there is nothing to draw.
    """
    if figure not in FIGURES:
        raise ValueError(f"figure {figure!r}: choose one of {', '.join(FIGURES)}")
    kind, results = FIGURES[figure], runs.choose(**where)
    if kind.of in ("results", "curves"):  # evaluations have neither a training setting nor a curve
        results = results[results["setting"].notna()]
    with matplotlib.rc_context(STYLE):
        if kind.of == "results":
            return kind.draw(results)
        if kind.of == "curves":
            return kind.draw({name: runs.curve(name) for name in results["name"].unique()}, results)
        if kind.of == "examples":
            require_one(results, "dataset")
            return kind.draw(runs.examples(results["dataset"].iloc[0], ("train", "test_ind", "test_ood")), results)
        return kind.draw(runs.predictions(**where), results)


def list_figures(runs: Runs) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Kind, file and chosen results of each figure of a report: by task, figures of several runs first, transfer
    before all; then those of one run of each dataset, model and setting: converged, like a run of Table 2, of the
    lowest seed, and trained longest."""
    results = runs.trainings
    rows_of_tasks = results[results["task"].map(is_task)]
    for task in sorted({*results["task"]} - {*rows_of_tasks["task"]}):
        runs.skipped.append(f"no figures of the task {task}; name yours with --task")
    for task in in_order(rows_of_tasks["task"], TASKS):
        for kind in in_order((kind for kind, one in FIGURES.items() if one.of in ("results", "curves")), ["transfer"]):
            yield kind, f"{kind}-{short_name(task)}", {"task": task}
        of_task = rows_of_tasks[rows_of_tasks["task"] == task]
        digests = of_task.loc[of_task["dataset"].isin(runs.datasets), "dataset"].unique()
        for digest in digests:
            yield "dataset", f"dataset-{short_name(task)}-{digest[:8]}", {"dataset": digest, "task": task}
    rows = rows_of_tasks.drop_duplicates("name").assign(
        later=lambda rows: ~rows["converged"], other=lambda rows: rows["variant"] != "",
        shorter=lambda rows: -rows["steps"].fillna(0),
    )  # fmt: skip
    rows = rows[rows["dataset"].isin(runs.datasets)].sort_values(["later", "other", "seed", "shorter", "name"])
    first = rows.drop_duplicates(["task", "dataset", "model", "setting"])
    bimodal = first.sort_values("setting", key=lambda column: column.map(INFORMATIVE.index), kind="stable")
    bimodal = bimodal.drop_duplicates(["task", "dataset", "model"])
    for row in first.sort_values("name").to_dict("records"):
        tests = {*results.loc[results["name"] == row["name"], "test_setting"]}
        for kind, figure in FIGURES.items():
            if figure.of == "predictions" and figure.suits(row["task"]) and tests >= {*figure.tests}:
                if not figure.tests:
                    where = {"name": row["name"], "test_setting": main_test_setting(row["setting"])}
                    yield kind, f"{kind}-{row['name']}", where
                elif row["name"] in set(bimodal["name"]):
                    yield kind, f"{kind}-{row['name']}", {"name": row["name"]}
