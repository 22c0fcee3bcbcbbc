"""The answer in one table: every model, task, test setting and split, with what text alone reaches below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlencode

import pandas as pd

from analysis.averages import RunSummary, SeedAverage, run_summaries, variants
from analysis.layout import BLANK, Cell, Table
from analysis.paper import BIMODAL, MODEL_NAMES, TEXT_ONLY
from analysis.runs import Runs
from analysis.tables.builder import MARKS, SHORT_SETTINGS, TableBuilder, omission_notes
from train.config import SETTINGS
from train.results.columns import TEST_SETTINGS, TEST_SPLITS, main_test_setting
from train.results.scores import TEST
from travlr.tasks import TASKS

Place = tuple[str, str, str]  # task, test setting, split
Measured = Mapping[tuple[str, str, str], Sequence[float]]  # name, test setting, split -> interval, couples right
SPLITS = dict(zip(TEST_SPLITS, ("InD", "OOD"), strict=True))
BASELINES = {"floor_query": "query", "floor_query_objects": "query, objects"}
TEXT_ALONE = "Text alone"
SHOWN = {"controlled": "Volta {}", "with a reader": "{} + reader", "with consistency": "{} + consistency"}


def overview(runs: Runs) -> Table:
    """Mean macro-F1 of each model and training setting, by task, test setting and split; baselines below.

    Of runs that are set apart from those of Table 2 (see `RunSummary.kind`), those with a reader, with consistency and of
    controlled architectures have lines of their own; others are left out, unless there is nothing else.
    """
    every = _datasets_ranked(run_summaries(runs))
    used = [run for run in every if run.kind <= SHOWN.keys()] or every
    found = {run.about["task"] for run in used}
    tasks = [*(task for task in TASKS if task in found), *sorted(found - TASKS.keys())]
    places = [(task, test, split) for task in tasks for test in TEST_SETTINGS for split in TEST_SPLITS]
    columns = ["name", "test_setting", "split", "interval_low", "interval_high", "couples_right"]
    measured = {tuple(row[:3]): row[3:] for row in runs.results[columns].itertuples(index=False, name=None)}
    sheet = TableBuilder()
    for label, setting, line in _lines(sheet, used):
        cells = [_cell(sheet, line, label, setting, place, measured) for place in places]
        sheet.add([Cell(label), Cell(SHORT_SETTINGS.get(setting, setting.capitalize())), *cells])
    heads = [("", "", "Model"), ("", "", "Trained in")]
    heads += [(task, SHORT_SETTINGS[test], SPLITS[split]) for task, test, split in places]
    notes = [
        f"Groups of columns: tasks, tested in; InD: {TEST_SPLITS[0]}, OOD: {TEST_SPLITS[1]}.",
        MARKS[0],
        f"Underlined (on the page: black, not grey): each run averaged is above random by itself ({TEST}). Bold: the "
        "highest mean of a column, where it is underlined. On the page, framed: tested as trained.",
        "Text alone: what rules reach that see the query, or the query and the number of objects; the highest of "
        "several datasets.",
        *omission_notes(runs, used, every),
    ]
    title = "Macro-F1 by model, task, test setting and split"
    table = sheet.table("overview", title, heads, used, notes)
    baselines = tuple(_baseline(sheet, runs.results, name, places) for name in BASELINES)
    return replace(table, rows=(*table.rows, *baselines), data=pd.DataFrame(sheet.data), shaded=True)


def _datasets_ranked(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """Runs whose setting `dataset` is 1 on the dataset of their task that most are on, 2 on the next, and so on: what
    was trained alike on all tasks has then equal settings."""
    counts = pd.Series([(str(run.about["task"]), str(run.about["dataset"])) for run in runs]).value_counts()
    ranks: dict[tuple[str, str], int] = {}
    for task, dataset in sorted(counts.index, key=lambda key: (-counts[key], key)):
        ranks[task, dataset] = 1 + sum(task == other for other, _ in ranks)
    ranked = []
    for run in runs:
        rank = ranks[str(run.about["task"]), str(run.about["dataset"])]
        ranked.append(replace(run, settings=run.settings | {"dataset": rank} if run.settings else {}))
    return ranked


def _lines(sheet: TableBuilder, runs: Sequence[RunSummary]) -> Iterator[tuple[str, str, list[RunSummary]]]:
    """What each line is called, its training setting, and its runs, which differ in task and seed alone."""
    order = [*BIMODAL, *TEXT_ONLY]
    models = sorted({str(run.about["model"]) for run in runs}, key=lambda m: (order.index(m) if m in order else 9, m))
    for model in models:
        own = [run for run in runs if run.about["model"] == model]
        for kind in sorted({run.kind for run in own}, key=lambda kind: (len(kind), sorted(kind))):
            label = MODEL_NAMES.get(model, model)
            for name in sorted(kind):
                label = SHOWN.get(name, f"{{}}, {name}").format(label)
            for settings, alike in variants([run for run in own if run.kind == kind]):
                for setting in (*SETTINGS, *sorted({str(run.about["setting"]) for run in alike} - {*SETTINGS})):
                    if line := [run for run in alike if run.about["setting"] == setting]:
                        yield label + sheet.mark(settings), setting, line


def _cell(
    sheet: TableBuilder, line: Sequence[RunSummary], label: str, setting: str, place: Place, measured: Measured
) -> Cell:
    task, test, split = place
    average = SeedAverage([run for run in line if run.about["task"] == task])
    key = {"model": label, "train_setting": setting, "task": task, "test_setting": test, "split": split}
    sheet.data.append(key | average.numbers(test, split))
    score = average.score(test, split)
    if score is None:
        return Cell() if average.runs else BLANK  # a text-only model is not tested in image
    told = [f"{label}, trained in {setting} on {task}, tested in {test}, {split}: {score:.2f}"]
    for run in average.used:
        numbers = measured[run.about["name"], test, split]
        told.append(f"seed {run.about['seed']}: {run.score(test, split):.2f}{_more(*numbers)}")
    told.append(f"{average.converged} of {len(average.runs)} converged")
    where = {"task": task, "model": line[0].about["model"], "setting": setting, "test": test, "split": split}
    above = average.above_random(test, split)
    classes = ["own"] * (main_test_setting(setting) == test) + ["chance"] * (not above)
    return Cell(_text(score), score, underlined=above, hint="; ".join(told), link=urlencode(where),
                classes=" ".join(classes))  # fmt: skip


def _text(score: float) -> str:
    """One digit; what is below 100 does not read 100.0."""
    return f"{min(score, 99.9) if score < 100 else score:.1f}"


def _more(low: float, high: float, couples: float) -> str:
    """The interval of a run's score, and couple accuracy, where they are known."""
    interval = "" if pd.isna(low) or pd.isna(high) else f" [{low:.2f}, {high:.2f}]"
    return interval + ("" if pd.isna(couples) else f", couples right {couples:.1f} %")


def _baseline(sheet: TableBuilder, results: pd.DataFrame, column: str, places: Sequence[Place]) -> tuple[Cell, ...]:
    cells = [Cell(TEXT_ALONE), Cell(BASELINES[column])]
    for task, test, split in places:
        level = results.loc[(results["task"] == task) & (results["split"] == split), column].max()
        known = pd.notna(level)
        cells.append(Cell(_text(level), float(level), classes="baseline") if known else Cell())
        told = {"task": task, "test_setting": test, "split": split, "macro_f1": float(level) if known else None}
        sheet.data.append({"model": f"{TEXT_ALONE}: {BASELINES[column]}", **told})
    return tuple(cells)
