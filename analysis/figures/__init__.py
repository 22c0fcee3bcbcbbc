"""The paper's figures and others from saved runs. `FIGURES` lists them all, `draw` draws one, `save` writes its files.

To read in this order: `results`, figures of several runs; `predictions`, figures of one run, and of a dataset;
`panels`, what they are drawn with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis import counts
from analysis.examples import examples_of
from analysis.figures.panels import save
from analysis.figures.predictions import (
    agreement,
    calibration,
    cells,
    dataset,
    numbers,
    objects,
    pairs,
    quantifiers,
)
from analysis.figures.results import loss, require_one, subsets, transfer
from analysis.runs import Runs, left_out
from train.results.columns import TEST_SPLITS

__all__ = ["FIGURES", "FigureKind", "draw", "save"]

Draw = Callable[[pd.DataFrame, pd.DataFrame], Figure]


@dataclass(frozen=True)
class FigureKind:
    """A kind of figure: the function that draws it, its input, its tasks, and its numbers in the paper.

    of: predictions (of one run in one test setting; for agreement and calibration in several), results, examples, or
    curves (`counts.losses`). only: the tasks with this figure; empty for all tasks except `without`. tests: test
    settings that the figure needs.
    """

    draw: Draw
    of: str
    only: tuple[str, ...] = ()
    paper: str = ""
    without: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()

    def suits(self, task: str) -> bool:
        return task in self.only if self.only else task not in self.without


FIGURES: dict[str, FigureKind] = {
    "pairs": FigureKind(pairs, "predictions", ("spatiality",), "2"),
    "cells": FigureKind(cells, "predictions", (), "3, 24, 25"),
    "numbers": FigureKind(numbers, "predictions", ("cardinality",), "4"),
    "dataset": FigureKind(dataset, "examples", (), "8-14"),
    "subsets": FigureKind(subsets, "results", (), "15-18"),
    "loss": FigureKind(loss, "curves", (), "19-21"),
    "objects": FigureKind(objects, "predictions", (), "22", without=("spatiality",)),
    "quantifiers": FigureKind(quantifiers, "predictions", ("quantifiers",), "23"),
    "agreement": FigureKind(agreement, "predictions", tests=("image", "caption")),
    "calibration": FigureKind(calibration, "predictions"),
    "transfer": FigureKind(transfer, "results"),
}


def draw(figure: str, runs: Runs, **where: Any) -> Figure:
    """A figure of the runs whose results have these values: `draw("cells", runs, name="…", test_setting="image")`.

    Raises `ValueError`, in one line, for an unknown figure, or where there is nothing to draw.
    """
    if figure not in FIGURES:
        raise ValueError(f"figure {figure!r}: choose one of {', '.join(FIGURES)}")
    kind, results = FIGURES[figure], runs.chosen(**where)
    if kind.of == "results":
        return kind.draw(results, results)
    if kind.of == "curves":
        curves = {}
        for name in results["name"].unique():
            with left_out(runs.skipped):
                curves[name] = runs.curve(name)
        return kind.draw(counts.losses(curves, results), results)
    if kind.of == "examples":
        require_one(results, "dataset")
        dataset = runs.datasets.get(results["dataset"].iloc[0])
        if dataset is None:
            raise ValueError("the dataset of these runs was not found; say where it is with data=[FOLDER]")
        parts = [examples_of(dataset, split) for split in ("train", *TEST_SPLITS)]
        return kind.draw(pd.concat(parts, ignore_index=True), results)
    return kind.draw(runs.predictions(**where), runs.results)
