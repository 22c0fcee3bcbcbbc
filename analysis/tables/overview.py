"""All scores in one table: every model, task, test setting and split, with the baselines below; and couple accuracy."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlencode

import pandas as pd

from analysis.averages import RunSummary, SeedAverage, run_summaries, variants
from analysis.layout import BLANK, Cell, Table
from analysis.paper import MODEL_NAMES
from analysis.runs import Runs, in_order
from analysis.tables.builder import MARKS, SHORT_SETTINGS, TableBuilder, omission_notes
from train.config import SETTINGS
from train.results.columns import BASELINES, TEST_SETTINGS, TEST_SPLITS, main_test_setting
from train.results.scores import TEST
from travlr.tasks import TASKS

Place = tuple[str, str, str]  # task, test setting, split
Measured = Mapping[tuple[str, str, str], Sequence[float]]  # name, test setting, split -> interval, couples right
SPLITS = dict(zip(TEST_SPLITS, ("InD", "OOD"), strict=True))
BASELINE = "Baseline"
SHOWN = {"controlled": "Volta {}", "with a reader": "{} + reader", "with consistency": "{} + consistency"}


def overview(runs: Runs) -> Table:
    """Mean macro-F1 of each model and training setting, by task, test setting and split; baselines below.

    Runs with a reader, with consistency and of controlled architectures have lines of their own; other runs that differ
    from those of Table 2 (see `RunSummary.traits`) are left out, unless there is nothing else.
    """
    notes = [
        MARKS[0],
        f"Underlined (on the page: black, not grey): each run averaged is above random by itself ({TEST}). Bold: the "
        "highest mean of a column, where it is underlined. On the page, framed: tested as trained.",
        "Baselines: what rules reach that see the query, or the query and the number of objects, and the best of the "
        "rules that bind no colour to a shape or see one object only (python -m travlr.baselines); the highest of "
        "several datasets.",
    ]
    builder, table, places = _table(
        runs, "overview", "Macro-F1 by model, task, test setting and split", _cell,
        ["interval_low", "interval_high", "couples_right"], notes,
    )  # fmt: skip
    measured_rules = [name for name in BASELINES if runs.results[f"floor_{name}"].notna().any()]
    baselines = tuple(_baseline(builder, runs.results, name, places) for name in measured_rules)
    return replace(table, rows=(*table.rows, *baselines), data=pd.DataFrame(builder.data))


def couples(runs: Runs) -> Table:
    """As `overview`, with the couples of which both answers are right, percent, in place of macro-F1."""
    notes = [
        MARKS[0],
        "A couple is one query, true of one scene and false of another. A coin has 25 % of couples right; a rule that "
        "sees what the two scenes share has none. Point at a cell for the 95 % interval of each run, over couples.",
    ]
    columns = ["couples_right", "couples_low", "couples_high"]
    return _table(runs, "couples", "Couples with both answers right, percent", _couple_cell, columns, notes)[1]


GROUPS = f"Groups of columns: tasks, tested in; InD: {TEST_SPLITS[0]}, OOD: {TEST_SPLITS[1]}."
MakeCell = Callable[[TableBuilder, Sequence[RunSummary], str, str, Place, Measured], Cell]


def _table(
    runs: Runs, name: str, title: str, cell: MakeCell, numbers: Sequence[str], notes: Sequence[str]
) -> tuple[TableBuilder, Table, list[Place]]:
    """A table of all runs, its builder and its columns. numbers: columns of results that `cell` needs."""
    every, used, places = _shown(runs)
    rows = runs.results[["name", "test_setting", "split", *numbers]].itertuples(index=False, name=None)
    measured = {tuple(row[:3]): row[3:] for row in rows}
    builder = TableBuilder()
    for label, setting, line in _lines(builder, used):
        cells = [cell(builder, line, label, setting, place, measured) for place in places]
        builder.add([Cell(label), Cell(SHORT_SETTINGS.get(setting, setting.capitalize())), *cells])
    all_notes = [GROUPS, *notes, *omission_notes(runs, used, every)]
    return builder, replace(builder.table(name, title, _heads(places), used, all_notes), shaded=True), places


def _shown(runs: Runs) -> tuple[list[RunSummary], list[RunSummary], list[Place]]:
    """All runs, those of the table, and its columns."""
    every = _rank_by_task(_rank_by_task(run_summaries(runs), "dataset"), "inputs.vocabulary")
    used = [run for run in every if run.traits <= SHOWN.keys()] or every
    tasks = in_order((str(run.info["task"]) for run in used), TASKS)
    return every, used, [(task, test, split) for task in tasks for test in TEST_SETTINGS for split in TEST_SPLITS]


def _heads(places: Sequence[Place]) -> list[tuple[str, str, str]]:
    heads = [("", "", "Model"), ("", "", "Trained in")]
    return heads + [(task, SHORT_SETTINGS[test], SPLITS[split]) for task, test, split in places]


def _couple_cell(
    builder: TableBuilder, line: Sequence[RunSummary], label: str, setting: str, place: Place, measured: Measured
) -> Cell:
    task, test, split = place
    average = SeedAverage([run for run in line if run.info["task"] == task])
    of_runs = [measured.get((run.info["name"], test, split), (math.nan,) * 3) for run in average.averaged]
    right = [couples for couples, _, _ in of_runs if pd.notna(couples)]
    score = statistics.fmean(right) if right and len(right) == len(of_runs) else None
    key = {"model": label, "train_setting": setting, "task": task, "test_setting": test, "split": split}
    builder.data.append(key | {"couples_right": score, "runs": len(right)})
    if score is None:
        return Cell()
    hints = [f"{right:.1f}" + (f" [{low:.1f}, {high:.1f}]" if pd.notna(low) else "") for right, low, high in of_runs]
    return Cell(_text(score), score, hint="; ".join(hints), classes="own" if main_test_setting(setting) == test else "")


def _rank_by_task(runs: Sequence[RunSummary], name: str) -> list[RunSummary]:
    """Runs with a rank in place of a setting whose values depend on the task: 1 for the most frequent value of a task,
    2 for the next, and so on. So runs on different tasks that were trained alike have equal settings."""
    keys = [(str(run.info["task"]), str(run.settings.get(name))) for run in runs]
    counts, ranks = Counter(keys), dict[tuple[str, str], int]()
    for task, value in sorted(counts, key=lambda key: (-counts[key], key)):
        ranks[task, value] = 1 + sum(task == other for other, _ in ranks)
    return [
        replace(run, settings=run.settings | {name: ranks[key]}) if name in run.settings else run
        for run, key in zip(runs, keys, strict=True)
    ]


def _lines(builder: TableBuilder, runs: Sequence[RunSummary]) -> Iterator[tuple[str, str, list[RunSummary]]]:
    """The label of each line, its training setting, and its runs, which differ in task and seed alone."""
    for model in in_order((str(run.info["model"]) for run in runs), MODEL_NAMES):
        own = [run for run in runs if run.info["model"] == model]
        for kind in sorted({run.traits for run in own}, key=lambda kind: (len(kind), sorted(kind))):
            label = MODEL_NAMES.get(model, model)
            for name in sorted(kind):
                label = SHOWN.get(name, f"{{}}, {name}").format(label)
            for settings, alike in variants([run for run in own if run.traits == kind]):
                for setting in in_order((str(run.info["setting"]) for run in alike), SETTINGS):
                    line = [run for run in alike if run.info["setting"] == setting]
                    yield label + builder.mark(settings), setting, line


def _cell(
    builder: TableBuilder, line: Sequence[RunSummary], label: str, setting: str, place: Place, measured: Measured
) -> Cell:
    task, test, split = place
    average = SeedAverage([run for run in line if run.info["task"] == task])
    key = {"model": label, "train_setting": setting, "task": task, "test_setting": test, "split": split}
    builder.data.append(key | average.numbers(test, split))
    score = average.score(test, split)
    if score is None:
        return Cell() if average.runs else BLANK  # a text-only model is not tested in image
    lines = [f"{label}, trained in {setting} on {task}, tested in {test}, {split}: {score:.2f}"]
    for run in average.averaged:
        numbers = measured[run.info["name"], test, split]
        lines.append(f"seed {run.info['seed']}: {run.score(test, split):.2f}{_more(*numbers)}")
    lines.append(f"{average.converged} of {len(average.runs)} converged")
    where = {"task": task, "model": line[0].info["model"], "setting": setting, "test": test, "split": split}
    above = average.above_random(test, split)
    classes = ["own"] * (main_test_setting(setting) == test) + ["chance"] * (not above)
    return Cell(_text(score), score, underlined=above, hint="; ".join(lines), link=urlencode(where),
                classes=" ".join(classes))  # fmt: skip


def _text(score: float) -> str:
    """One digit; a score below 100 is not rounded up to 100.0."""
    return f"{min(score, 99.9) if score < 100 else score:.1f}"


def _more(low: float, high: float, couples: float) -> str:
    """The interval of a run's score, and couple accuracy, where results have them."""
    interval = "" if pd.isna(low) or pd.isna(high) else f" [{low:.2f}, {high:.2f}]"
    return interval + ("" if pd.isna(couples) else f", couples right {couples:.1f} %")


def _baseline(builder: TableBuilder, results: pd.DataFrame, name: str, places: Sequence[Place]) -> tuple[Cell, ...]:
    words = BASELINES[name].replace(" and number of", ",")
    cells = [Cell(BASELINE), Cell(words)]
    for task, test, split in places:
        level = results.loc[(results["task"] == task) & (results["split"] == split), f"floor_{name}"].max()
        score = float(level) if pd.notna(level) else None
        cells.append(Cell() if score is None else Cell(_text(score), score, classes="baseline"))
        record = {"model": f"{BASELINE}: {words}", "task": task, "test_setting": test, "split": split}
        builder.data.append(record | {"macro_f1": score})
    return tuple(cells)
