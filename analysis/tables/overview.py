"""All scores in one table: every model, task, test setting and split, with the baselines below; and couple accuracy."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any
from urllib.parse import urlencode

import pandas as pd

from analysis.averages import RunSummary, SeedAverage, above_unbound, run_summaries
from analysis.layout import BLANK, Cell, Table
from analysis.paper import MODEL_NAMES
from analysis.runs import Runs
from analysis.tables.builder import MARKS, SHORT_SETTINGS, TableBuilder
from train.config import SETTINGS
from train.results.columns import BASELINES, TEST_SETTINGS, TEST_SPLITS, in_order, main_test_setting
from train.results.scores import LEVEL, TEST
from travlr.tasks import TASKS

SPLITS = dict(zip(TEST_SPLITS, ("InD", "OOD"), strict=True))
BASELINE = "Baseline"
TRAIT_LABELS = {"controlled": "Volta {}", "with consistency": "{} + consistency"}


def overview(runs: Runs) -> Table:
    """Mean macro-F1 of each model and training setting, by task, test setting and split; baselines below.

    Runs with consistency and of controlled architectures have lines of their own. Other runs that differ from those of
    Table 2 (see `RunSummary.traits`) are left out, unless there are no others.
    """
    notes = [
        MARKS[0],
        f"Underlined (on the page: black, not grey): each run averaged is above random by itself ({TEST}). Bold: the "
        "highest mean of a column, where it is underlined. On the page, framed: tested as trained.",
        "In brackets: the 95 % interval of one run; of several runs the lowest and highest score. +: each run averaged "
        f"is above the best unbound rule (exact binomial test of its accuracy, p < {LEVEL}).",
        "Baselines: what rules reach that see the query, or the query and the number of objects, and the best of the "
        "rules that bind no colour to a shape or see one object only (python -m travlr.baselines); the highest of "
        "several datasets.",
    ]
    table = _wide_table(runs, "overview", "Macro-F1 by model, task, test setting and split", _score_cell, notes)
    rows, data, places = list(table.rows), [table.data], _places(_included(runs))
    for name, words in BASELINES.items():
        levels = runs.results.groupby(["task", "split"])[f"floor_{name}"].max().dropna()
        if len(levels):
            label = words.replace(" and number of", ",")
            scores = [levels.get((task, split)) for task, _, split in places]
            cells = (Cell() if score is None else Cell(_text(score), score, classes="baseline") for score in scores)
            rows.append((Cell(BASELINE), Cell(label), *cells))
            frame = pd.DataFrame(places, columns=["task", "test_setting", "split"]).assign(macro_f1=scores)
            data.append(frame.assign(model=f"{BASELINE}: {label}"))
    return replace(table, rows=tuple(rows), data=pd.concat(data, ignore_index=True))


def couples(runs: Runs) -> Table:
    """As `overview`, with the percentage of couples with both answers right in place of macro-F1."""
    notes = [
        MARKS[0],
        "A couple is one query, true of one scene and false of another. A coin has 25 % of couples right; a rule that "
        "sees what the two scenes share has none. In brackets: the 95 % interval of one run, over couples; of several "
        "runs the lowest and the highest.",
    ]
    return _wide_table(runs, "couples", "Couples with both answers right, percent", _couple_cell, notes)


GROUPS = f"Groups of columns: tasks, tested in; InD: {TEST_SPLITS[0]}, OOD: {TEST_SPLITS[1]}."
# (columns of the cell's row in `data`, the runs of the cell, their results) -> the cell, and further columns.
MakeCell = Callable[[dict[str, Any], SeedAverage, list[dict[str, Any]]], tuple[Cell, dict[str, Any]]]


def _included(runs: Runs) -> list[RunSummary]:
    """The runs of the table."""
    every = _rank_by_task(_rank_by_task(run_summaries(runs), "dataset"), "inputs.vocabulary")
    return [run for run in every if run.traits <= TRAIT_LABELS.keys()] or every


def _places(runs: Sequence[RunSummary]) -> list[tuple[str, str, str]]:
    """Task, test setting and split of each column."""
    return list(product(in_order((str(run.info["task"]) for run in runs), TASKS), TEST_SETTINGS, TEST_SPLITS))


def _wide_table(runs: Runs, name: str, title: str, cell: MakeCell, notes: Sequence[str]) -> Table:
    """A line for each model and training setting, a column for each task, test setting and split."""
    included, builder = _included(runs), TableBuilder()
    places = _places(included)
    results = {(row["name"], row["test_setting"], row["split"]): row for row in runs.results.to_dict("records")}
    for label, setting, line in _lines(included):
        cells = []
        for task, test, split in places:
            key = {"model": label, "train_setting": setting, "task": task, "test_setting": test, "split": split}
            of_task = [run for run in line if run.info["task"] == task]
            average = builder.average(of_task, {"model": label, "setting": setting, "task": task})
            rows = [results.get((run.info["name"], test, split), {}) for run in average.averaged]
            content, numbers = cell(key, average, rows)
            content = Cell(f"{len(of_task)} runs differ") if average.mixed else content
            own = "own" if content.text and main_test_setting(setting) == test else ""
            cells.append(replace(content, classes=" ".join(filter(None, (own, content.classes)))))
            builder.data.append(key | numbers)
        builder.add([label, SHORT_SETTINGS.get(setting, setting.capitalize()), *cells])
    heads = [("", "", "Model"), ("", "", "Trained in")]
    heads += [(task, SHORT_SETTINGS[test], SPLITS[split]) for task, test, split in places]
    return builder.table(name, title, heads, [GROUPS, *notes], included, runs, shaded=True)


def _score_cell(key: dict[str, Any], average: SeedAverage, rows: list[dict[str, Any]]) -> tuple[Cell, dict[str, Any]]:
    model, setting, task, test, split = key.values()
    numbers, score = average.numbers(test, split), average.score(test, split)
    if math.isnan(score):
        return (Cell() if average.runs else BLANK), numbers  # a text-only model is not tested in image
    lines = [f"{model}, trained in {setting} on {task}, tested in {test}, {split}: {score:.2f}"]
    for row in rows:
        interval = _interval(row["interval_low"], row["interval_high"], 2)
        couples = "" if pd.isna(row["couples_right"]) else f", couples right {row['couples_right']:.1f} %"
        lines.append(f"seed {row['seed']}: {row['macro_f1']:.2f}{interval}{couples}")
    lines.append(f"{average.converged} of {len(average.runs)} converged")
    where = {"task": task, "model": rows[0]["model"], "setting": setting, "test": test, "split": split}
    above = average.above_random(test, split)
    cell = Cell(_text(score), score, underlined=above, hint="; ".join(lines), link=urlencode(where))
    mark = "+" if all(above_unbound(row) for row in rows) else ""
    small = _range([row["macro_f1"] for row in rows], rows[0]["interval_low"], rows[0]["interval_high"])
    return replace(cell, classes="" if above else "chance", mark=mark, small=small), numbers


def _couple_cell(key: dict[str, Any], average: SeedAverage, rows: list[dict[str, Any]]) -> tuple[Cell, dict[str, Any]]:
    right = [row["couples_right"] for row in rows if pd.notna(row.get("couples_right"))]
    score = statistics.fmean(right) if right and len(right) == len(rows) else None
    numbers = {"couples_right": score, "runs": len(right)}
    if score is None:
        return Cell(), numbers
    return Cell(_text(score), score, small=_range(right, rows[0]["couples_low"], rows[0]["couples_high"])), numbers


def _text(score: float) -> str:
    """A score with one digit; scores below 100 are not rounded up to 100.0."""
    return f"{min(score, 99.9) if score < 100 else score:.1f}"


def _range(scores: Sequence[float], low: float, high: float) -> str:
    """The lowest and highest of several scores; of a single one its interval, empty without one."""
    low, high = (min(scores), max(scores)) if len(scores) > 1 else (low, high)
    return "" if pd.isna(low) or pd.isna(high) else f"{low:.0f}–{high:.0f}"


def _interval(low: float, high: float, digits: int) -> str:
    """An interval; empty if the results have none."""
    return "" if pd.isna(low) or pd.isna(high) else f" [{low:.{digits}f}, {high:.{digits}f}]"


def _rank_by_task(runs: Sequence[RunSummary], name: str) -> list[RunSummary]:
    """The runs with a setting that depends on the task replaced by the rank of its value: 1 for the most frequent value
    of a task, 2 for the next, and so on. So equal trainings on different tasks have equal settings."""
    keys = [(str(run.info["task"]), str(run.settings.get(name))) for run in runs]
    counts, ranks = Counter(keys), dict[tuple[str, str], int]()
    for task, value in sorted(counts, key=lambda key: (-counts[key], key)):
        ranks[task, value] = 1 + sum(task == other for other, _ in ranks)
    return [
        replace(run, settings=run.settings | {name: ranks[key]}) if name in run.settings else run
        for run, key in zip(runs, keys, strict=True)
    ]


def _lines(runs: Sequence[RunSummary]) -> Iterator[tuple[str, str, list[RunSummary]]]:
    """The label of each line, its training setting, and its runs."""
    for model in in_order((str(run.info["model"]) for run in runs), MODEL_NAMES):
        own = [run for run in runs if run.info["model"] == model]
        for kind in sorted({run.traits for run in own}, key=lambda kind: (len(kind), sorted(kind))):
            label = MODEL_NAMES.get(model, model)
            for name in sorted(kind):
                label = TRAIT_LABELS.get(name, f"{{}}, {name}").format(label)
            alike = [run for run in own if run.traits == kind]
            for setting in in_order((str(run.info["setting"]) for run in alike), SETTINGS):
                yield label, setting, [run for run in alike if run.info["setting"] == setting]
