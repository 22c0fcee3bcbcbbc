"""Table 2, and tables of its form: text-only models, frozen models, subsets, transfer; and Table 9."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

from analysis.averages import RunSummary, SeedAverage, run_summaries, variants, weights_of
from analysis.layout import Cell, Table
from analysis.paper import BIMODAL, LEGEND, LETTERS, MODEL_NAMES, SPLITS, TABLE_9, TEXT_ONLY, Published, published
from analysis.runs import Runs
from analysis.tables.builder import (
    LABEL_COLUMNS,
    LONG_SETTINGS,
    MARKS,
    SHORT_SETTINGS,
    TableBuilder,
    average_cell,
    number_cell,
    runs_of,
    score_cell,
    source_cell,
    with_traits,
)
from train.results.columns import TEST_SETTINGS
from train.results.scores import TEST
from travlr.tasks import PAPER


@dataclass(frozen=True)
class Column:
    """A column: the runs that were trained in `train` and tested in `test` (None: the number of converged runs).

    part: of the train split, or "stream"; "" for any.
    """

    train: str
    test: str | None
    name: str
    group: str = ""
    part: str = ""

    def has(self, run: RunSummary) -> bool:
        part = "stream" if run.streams else str(run.train_fraction)
        return run.info["setting"] == self.train and self.part in ("", part)


@dataclass(frozen=True)
class ScoreLine:
    """A line of a table. runs: those that may stand in it. paper: the table of the paper with its scores. labels: other
    than task and model. keys: columns of `data`."""

    task: str
    model: str
    runs: list[RunSummary]
    paper: str = ""
    labels: tuple[str, ...] = ()
    keys: dict[str, Any] = field(default_factory=dict)

    def printed(self, column: Column) -> Published:
        test = column.test or column.train
        return published(self.paper, self.task, self.model, column.train, test, size=column.part)


def _score_table(
    name: str, title: str, runs: Runs, lines: Sequence[ScoreLine], columns: Sequence[Column], *,
    heads: Sequence[tuple[str, str]] = LABEL_COLUMNS, free: Sequence[str] = (), notes: Iterable[str] = (),
) -> Table:  # fmt: skip
    """A table with, for each line, a row of its runs and a row of the paper's scores. free: settings that may differ
    within a cell."""
    builder = TableBuilder()
    for line in lines:
        labels = (LETTERS[line.task], MODEL_NAMES[line.model])
        cells = [_cell(builder, line, column, free) for column in columns]
        builder.add([*labels, *line.labels, source_cell(line.runs), *cells], line.task)
        printed = [
            number_cell(line.printed(column).seeds) if column.test is None
            else score_cell(line.printed(column).score, line.printed(column).difference)
            for column in columns
        ]  # fmt: skip
        builder.paper((*labels, *line.labels), printed)
    included = (run for line in lines for run in line.runs if any(column.has(run) for column in columns))
    names = [*heads, *((column.group, column.name) for column in columns)]
    return builder.table(name, title, names, [*MARKS, *notes], included, runs)


def _cell(builder: TableBuilder, line: ScoreLine, column: Column, free: Sequence[str]) -> Cell:
    """A cell of ours; adds its row to `data`. Text-only models are trained on captions alone."""
    if line.model in TEXT_ONLY and column.train != "caption":
        return Cell("-")
    key = {"task": line.task, "model": line.model, **line.keys}
    average = builder.average([run for run in line.runs if column.has(run)], key | {"train": column.train}, free)
    if column.test is None:
        return number_cell(average.converged if average.runs else None)
    score, within = (average.score(column.test, split) for split in SPLITS)
    difference, paper = score - within, line.printed(column)
    part = {"part": None if column.part == "stream" else float(column.part)} if column.part else {}
    builder.data.append(
        key
        | {"train_setting": column.train, "test_setting": column.test}
        | part
        | average.numbers(column.test)
        | {"macro_f1_test_ind": within, "difference": difference}
        | {"paper_macro_f1": paper.score, "paper_difference": paper.difference, "paper_converged": paper.seeds}
    )
    return average_cell(average, column.test, "test_ood", difference)


def _columns(train: str, tests: Sequence[str]) -> list[Column]:
    """The columns of a training setting: one for each test setting, and the number of converged runs."""
    group = LONG_SETTINGS[train]
    return [*(Column(train, test, SHORT_SETTINGS[test], group) for test in tests), Column(train, None, "#sd", group)]


def table2(runs: Runs) -> Table:
    """Table 2: macro-F1 on test_ood by training and test setting, with the difference from test_ind."""
    candidates = with_traits(runs)
    lines = [ScoreLine(task, model, runs_of(candidates, task, model), "table2") for task in PAPER for model in BIMODAL]
    title = f"Table 2. Mean macro-F1 on test_ood (difference from test_ind) by training and test setting ({LEGEND})"
    notes = ["Groups of columns: trained in; columns: tested in. #sd: how many runs converged.", *_seed_notes(lines)]
    columns = [column for train in TEST_SETTINGS for column in _columns(train, TEST_SETTINGS)]
    return _score_table("table2", title, runs, lines, columns, notes=notes)


def _seed_notes(lines: Iterable[ScoreLine], seeds: int = 3) -> list[str]:
    """A note on groups with fewer runs than the paper's three, if there are any."""
    counts = [
        sum(run.info["setting"] == setting for run in alike)
        for line in lines
        for _, alike in variants(line.runs)
        for setting in {run.info["setting"] for run in alike}
    ]
    few = sum(count < seeds for count in counts)
    return [f"Fewer than {seeds} seeds: {few} of {len(counts)} groups of runs."] if few else []


def text_only(runs: Runs) -> Table:
    """The text-only baselines of section 4, which the paper draws in figures 15 to 18 and does not print."""
    candidates = with_traits(runs)
    lines = [ScoreLine(task, model, runs_of(candidates, task, model)) for task in PAPER for model in TEXT_ONLY]
    title = f"Text-only baselines. Mean macro-F1 on test_ood (difference from test_ind), captions ({LEGEND})"
    return _score_table("text_only", title, runs, lines, _columns("caption", ["caption"]), notes=_seed_notes(lines))


def frozen(runs: Runs) -> Table:
    """Section 5.2: only the classification head trained; each model tested in its own setting."""
    columns = [Column(setting, setting, SHORT_SETTINGS[setting]) for setting in TEST_SETTINGS]
    title = (
        f"Frozen encoder (section 5.2). Mean macro-F1 on test_ood (difference from test_ind), own setting ({LEGEND})"
    )
    notes = ["The paper prints two scores, the others it says are not above random."]
    return _score_table("frozen", title, runs, _all_models(with_traits(runs, "frozen"), "frozen"), columns, notes=notes)


def _all_models(candidates: Sequence[RunSummary], paper: str) -> list[ScoreLine]:
    models = (*BIMODAL, *TEXT_ONLY)
    return [ScoreLine(task, model, runs_of(candidates, task, model), paper) for task in PAPER for model in models]


def subsets(runs: Runs) -> Table:
    """Appendix C: how much of the train split a model needs; each tested in its own setting."""
    candidates = with_traits(runs, "subset", exactly=False)
    parts = {f"{100 * part:.4g} %": str(part) for part in (0.125, 0.25, 0.5, 1.0)}
    if streams := any(run.streams for run in candidates):
        parts["stream"] = "stream"
    columns = [
        Column(setting, setting, name, LONG_SETTINGS[setting], part)
        for setting in TEST_SETTINGS
        for name, part in parts.items()
    ]
    title = f"Appendix C. Macro-F1 on test_ood (difference from test_ind) by how much is trained on ({LEGEND})"
    notes = [
        "Groups of columns: trained and tested in; columns: part of the train split. The paper draws its scores "
        "(figures 15 to 18) and prints few of them; its subsets have one seed.",
        *(["stream: examples that are never repeated, in place of the train split."] if streams else []),
    ]
    free = ("training.examples",)
    return _score_table("subsets", title, runs, _all_models(candidates, "subsets"), columns, free=free, notes=notes)


def transfer(runs: Runs) -> Table:
    """Sections 4.2 and 6: trained in one modality and tested in the other, without help and with consistency, which the
    paper does not have."""
    candidates = with_traits(runs, "with consistency", exactly=False)
    helped = [run for run in candidates if run.traits]
    models = [model for model in BIMODAL if model == "uniter" or any(run.info["model"] == model for run in helped)]
    lines = [
        ScoreLine(task, model, [run for run in of_model if _consistent(run) == consistent],
                  "" if consistent else "table2", ("consistency" if consistent else "none",),
                  {"consistency": consistent})
        for task in PAPER
        for model in models
        for of_model in [runs_of(candidates, task, model, ("image", "caption"))]
        for consistent in (False, True)
    ]  # fmt: skip
    title = f"Cross-modal transfer. Mean macro-F1 on test_ood (difference from test_ind), by what helps it ({LEGEND})"
    notes = [
        "Groups of columns: trained in; columns: tested in. Consistency: of unlabelled pairs of image and caption the "
        "model learns to say of the other modality what it says of the one it is trained in. It is semi-supervised: "
        "the pairs are of the task's own distribution, with its queries, and none has an answer.",
        *_seed_notes(lines),
    ]
    heads = (*LABEL_COLUMNS[:2], ("", "Helped by"), LABEL_COLUMNS[2])
    columns = _columns("image", ["image", "caption"]) + _columns("caption", ["caption", "image"])
    return _score_table("transfer", title, runs, lines, columns, heads=heads, notes=notes)


def _consistent(run: RunSummary) -> bool:
    return run.settings.get("method") == "consistency"


def few_shot(runs: Runs) -> Table:
    """Table 9 and section 4.2: trained further on a few examples of the other modality, and tested in it; before and
    after."""
    builder, every = TableBuilder(), run_summaries(runs)
    by_run = {str(run.info["run"]): run for run in every}
    firsts = {str(run.info["name"]): by_run.get(str(run.settings.get("start"))) for run in every}
    groups: dict[tuple[str, str, str, str, int], list[RunSummary]] = {key: [] for key in TABLE_9}
    for run in every:
        info, first = run.info, firsts[run.info["name"]]
        is_of_paper = info["task"] in PAPER and info["model"] in MODEL_NAMES
        if is_of_paper and run.settings.get("start") and (first is None or first.info["setting"] != info["setting"]):
            other = {"image": "caption", "caption": "image"}.get(info["setting"], "unknown")
            before = str(first.info["setting"]) if first else other
            groups.setdefault((before, info["setting"], info["task"], info["model"], info["seed"]), []).append(run)
    names = ("seen", "trained_further_in", "task", "model", "seed")
    for place, runs_there in groups.items():
        before, setting, task, model, seed = place
        labels = (f"{LONG_SETTINGS.get(before, before)} to {LONG_SETTINGS.get(setting, setting)}", LETTERS[task])
        printed = "no" if place in TABLE_9 else ""
        for ours in [[run] for run in runs_there] or [list[RunSummary]()]:
            earlier = [first for run in ours if (first := firsts[run.info["name"]])]
            tests = [(SeedAverage(earlier), "test_ood"), *((SeedAverage(ours), split) for split in SPLITS)]
            scores = [average.score(setting, split) for average, split in tests]
            # Of a single run, so no mean could hide one that is not above random.
            above = [average.above_random(setting, split) for average, split in tests]
            scored = map(score_cell, scores, repeat(math.nan), above)
            cells = [replace(cell, value=None) for cell in scored]
            builder.add([*labels, MODEL_NAMES[model], str(seed), source_cell(ours), *cells, printed])
            examples = ("train_examples", "unlabelled_examples")
            record: dict[str, Any] = dict(zip(names, place, strict=True)) | {"weights": weights_of(ours) or None}
            record |= {name: ours[0].info[name] if ours else None for name in examples}
            record |= dict(zip(("before_test_ood", "after_test_ood", "after_test_ind"), scores, strict=True))
            record |= {"above_random": above[1] if ours else None, "paper_above_random": False if printed else None}
            builder.data.append(record)
    heads = [("", name) for name in ("Setting", "Task", "Model", "Seed", "Source")]
    columns = [*heads, ("OOD", "Before"), ("OOD", "After"), ("InD", "After"), ("", "Above random in the paper")]
    title = (
        "Table 9. Macro-F1 in the modality that was not seen, before and after training further on few examples of it"
    )
    notes = [
        f"Underlined: above random ({TEST}). The paper prints no scores here and says that none came above random."
    ]
    included = [run for runs_there in groups.values() for run in runs_there]
    return builder.table("few_shot", title, columns, notes, included, runs)
