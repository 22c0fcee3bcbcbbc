"""Table 2, and what is printed in its form: text-only models, frozen ones, subsets, transfer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis import paper
from analysis.averages import RunSummary, SeedAverage, minus, or_nan, run_summaries, variants
from analysis.layout import Cell, Table
from analysis.paper import BIMODAL, LEGEND, LETTERS, MODEL_NAMES, SPLITS, TEXT_ONLY, Published
from analysis.runs import Runs
from analysis.tables.builder import (
    LABEL_COLUMNS,
    LONG_SETTINGS,
    MARKS,
    SHORT_SETTINGS,
    TableBuilder,
    omission_notes,
    runs_of,
    score_cell,
    seeds_cell,
    source_cell,
    with_traits,
)
from train.results.columns import TEST_SETTINGS
from travlr.tasks import PAPER


@dataclass(frozen=True)
class Column:
    """A column: the cells of runs that were trained in `train` and tested in `test` (None: how many converged)."""

    group: str
    name: str
    train: str
    test: str | None
    of: Callable[[RunSummary], bool] = lambda run: True
    more: tuple[tuple[str, Any], ...] = ()  # of the data frame, beside train_setting and test_setting

    def has(self, run: RunSummary) -> bool:
        return run.info["setting"] == self.train and self.of(run)


@dataclass(frozen=True)
class GridRow:
    """A line of a table: its task and model, its other labels, and the runs that may stand in it."""

    task: str
    model: str
    runs: list[RunSummary]
    labels: tuple[str, ...] = ()
    keys: tuple[tuple[str, Any], ...] = ()
    columns: tuple[int, ...] | None = None  # those that apply to it; None for all


Lookup = Callable[[GridRow, Column], Published | None]


def _fill_grid(
    builder: TableBuilder, lines: Iterable[GridRow], columns: Sequence[Column], known: Lookup, free: Sequence[str]
) -> None:
    """Fill a builder: for each line one row for each variant of its runs, and one of what the paper has."""
    for line in lines:
        for label, runs in variants(line.runs, free) or [("", [])]:
            cells = []
            for place, column in enumerate(columns):
                if line.columns is not None and place not in line.columns:
                    cells.append(Cell("-"))
                    continue
                average = SeedAverage([run for run in runs if column.has(run)])
                published = known(line, column) or Published()
                cells.append(_cell(average, column))
                if column.test is not None:
                    builder.data.append(_record(line, column, label, average, published))
            labels = (LETTERS[line.task], MODEL_NAMES[line.model] + builder.mark(label), *line.labels)
            builder.add([*map(Cell, labels), source_cell(runs), *cells], line.task)
        published_cells = [_published_cell(known(line, column), column.test is None) for column in columns]
        builder.paper((LETTERS[line.task], MODEL_NAMES[line.model], *line.labels), published_cells)


def _cell(average: SeedAverage, column: Column) -> Cell:
    if column.test is None:
        return seeds_cell(average.converged if average.runs else None)
    score, within = (average.score(column.test, split) for split in SPLITS)
    cell = score_cell(score, minus(score, within), average.above_random(column.test, "test_ood"))
    return replace(cell, mark=average.mark(column.test))


def _published_cell(found: Published | None, seeds: bool) -> Cell:
    if found is None:
        return Cell()
    if seeds:
        return seeds_cell(found.seeds)
    return score_cell(found.score, found.difference)


def _record(line: GridRow, column: Column, label: str, average: SeedAverage, published: Published) -> dict[str, Any]:
    test = str(column.test)
    numbers = average.numbers(test)
    within = average.score(test, "test_ind")
    return {
        "task": line.task,
        "model": line.model,
        **dict(line.keys),
        "settings": label or None,
        "train_setting": column.train,
        "test_setting": test,
        **dict(column.more),
        **numbers,
        "macro_f1_test_ind": or_nan(within),
        "difference": or_nan(minus(average.score(test, "test_ood"), within)),
        "paper_macro_f1": or_nan(published.score),
        "paper_difference": or_nan(published.difference),
        "paper_converged": published.seeds,
    }


def _grid_table(
    name: str,
    title: str,
    runs: Runs,
    lines: Sequence[GridRow],
    columns: Sequence[Column],
    known: Lookup,
    *,
    heads: Sequence[tuple[str, str]] = LABEL_COLUMNS,
    free: Sequence[str] = (),
    notes: Iterable[str] = (),
) -> Table:
    builder = TableBuilder()
    _fill_grid(builder, lines, columns, known, free)
    used = list({run.info["name"]: run for line in lines for run in line.runs if any(c.has(run) for c in columns)}
                .values())  # fmt: skip
    names = [*heads, *((column.group, column.name) for column in columns)]
    all_notes = [*MARKS, *notes, *omission_notes(runs, used, run_summaries(runs))]
    return builder.table(name, title, names, used, all_notes)


def table2(runs: Runs) -> Table:
    """Table 2: macro-F1 on test_ood by training and test setting, with the difference from test_ind."""
    columns = []
    for train in TEST_SETTINGS:
        columns += [Column(LONG_SETTINGS[train], SHORT_SETTINGS[test], train, test) for test in TEST_SETTINGS]
        columns.append(Column(LONG_SETTINGS[train], "#sd", train, None))
    chosen = with_traits(runs)
    lines = [GridRow(task, model, runs_of(chosen, task, model)) for task in PAPER for model in BIMODAL]
    title = f"Table 2. Mean macro-F1 on test_ood (difference from test_ind) by training and test setting ({LEGEND})"
    notes = ["Groups of columns: trained in; columns: tested in. #sd: how many runs converged.", *_seed_notes(lines)]
    return _grid_table("table2", title, runs, lines, columns, _table2_score, notes=notes)


def _table2_score(line: GridRow, column: Column) -> Published | None:
    return paper.TABLE_2.get((line.task, line.model, column.train, column.test or "image"))


def _seed_notes(lines: Iterable[GridRow], seeds: int = 3) -> list[str]:
    """How many cells have fewer runs than the paper's three."""
    counts = [
        sum(run.info["setting"] == setting for run in found)
        for line in lines
        for _, found in variants(line.runs)
        for setting in {run.info["setting"] for run in found}
    ]
    few = sum(count < seeds for count in counts)
    return [f"Fewer than {seeds} seeds: {few} of {len(counts)} groups of runs."] if few else []


def text_only(runs: Runs) -> Table:
    """The text-only baselines of section 4, which the paper draws in figures 15 to 18 and does not print."""
    columns = [Column("Caption", "Caption", "caption", "caption"), Column("Caption", "#sd", "caption", None)]
    chosen = with_traits(runs)
    lines = [GridRow(task, model, runs_of(chosen, task, model)) for task in PAPER for model in TEXT_ONLY]
    title = f"Text-only baselines. Mean macro-F1 on test_ood (difference from test_ind), captions ({LEGEND})"
    return _grid_table("text_only", title, runs, lines, columns, lambda line, column: None, notes=_seed_notes(lines))


def frozen(runs: Runs) -> Table:
    """Section 5.2: only the classification head trained; each model tested in its own setting."""
    columns = [Column("", SHORT_SETTINGS[setting], setting, setting) for setting in TEST_SETTINGS]
    chosen = with_traits(runs, "frozen")
    lines = _with_text_only(chosen)
    title = (
        f"Frozen encoder (section 5.2). Mean macro-F1 on test_ood (difference from test_ind), own setting ({LEGEND})"
    )
    notes = ["The paper prints two scores, the others it says are not above random."]

    def known(line: GridRow, column: Column) -> Published | None:
        return paper.FROZEN.get((line.task, line.model, column.train))

    return _grid_table("frozen", title, runs, lines, columns, known, notes=notes)


def _with_text_only(chosen: Sequence[RunSummary]) -> list[GridRow]:
    """A line for each task and model; of the text-only ones, caption (the second of three columns) alone."""
    return [
        GridRow(task, model, runs_of(chosen, task, model), columns=(1,) if model in TEXT_ONLY else None)
        for task in PAPER
        for model in (*BIMODAL, *TEXT_ONLY)
    ]


def subsets(runs: Runs) -> Table:
    """Appendix C: how much of the train split a model needs; each tested in its own setting."""
    chosen = [run for run in run_summaries(runs) if not run.traits - {"subset"}]
    parts = {f"{part:.4g}": part / 100 for part in (12.5, 25, 50, 100)}
    lines, names = [], (*BIMODAL, *TEXT_ONLY)
    streams = any(run.settings.get("training.stream") for run in chosen)
    columns = []
    for setting in TEST_SETTINGS:
        for name, part in parts.items():
            columns.append(
                Column(LONG_SETTINGS[setting], f"{name} %", setting, setting, _is_part(part), (("part", part),))
            )
        if streams:
            columns.append(
                Column(LONG_SETTINGS[setting], "stream", setting, setting, _is_part(None), (("part", None),))
            )
    own = tuple(place for place, column in enumerate(columns) if column.train == "caption")
    for task in PAPER:
        lines += [
            GridRow(task, name, runs_of(chosen, task, name), columns=own if name in TEXT_ONLY else None)
            for name in names
        ]

    def known(line: GridRow, column: Column) -> Published | None:
        return paper.SUBSETS.get((line.task, line.model, column.train, dict(column.more)["part"]))

    title = f"Appendix C. Macro-F1 on test_ood (difference from test_ind) by how much is trained on ({LEGEND})"
    notes = [
        "Groups of columns: trained and tested in; columns: part of the train split. The paper draws its scores "
        "(figures 15 to 18) and prints few of them; its subsets have one seed.",
        *(["stream: examples that are never repeated, in place of the train split."] if streams else []),
    ]
    free = ("training.examples", "training.stream")
    return _grid_table("subsets", title, runs, lines, columns, known, free=free, notes=notes)


def _is_part(part: float | None) -> Callable[[RunSummary], bool]:
    """Whether a run learns from that part of the train split; None for a stream."""

    def fits(run: RunSummary) -> bool:
        stream = bool(run.settings.get("training.stream"))
        return stream if part is None else not stream and run.train_fraction == part

    return fits


def transfer(runs: Runs) -> Table:
    """Sections 4.2 and 6: trained in one modality and tested in the other, with nothing to help, with a reader and with
    consistency. The paper has neither."""
    columns = []
    for train, other in (("image", "caption"), ("caption", "image")):
        columns += [Column(LONG_SETTINGS[train], SHORT_SETTINGS[test], train, test) for test in (train, other)]
        columns.append(Column(LONG_SETTINGS[train], "#sd", train, None))
    chosen = [run for run in run_summaries(runs) if not run.traits - {"with a reader", "with consistency"}]
    helped = [run for run in chosen if run.traits]
    models = [model for model in BIMODAL if model == "uniter" or any(run.info["model"] == model for run in helped)]
    ways = {(500, False), (0, True)} - ({(500, False)} if any(_help(run)[0] for run in helped) else set())
    lines = []
    for task in PAPER:
        for model in models:
            found = runs_of(chosen, task, model, ("image", "caption"))
            for way in [(0, False), *sorted(ways | {_help(run) for run in helped}, key=lambda way: way[::-1])]:
                keys = (("reader_steps", way[0]), ("consistency", way[1]))
                lines.append(
                    GridRow(task, model, [run for run in found if _help(run) == way], (_help_text(*way),), keys)
                )

    def known(line: GridRow, column: Column) -> Published | None:
        return _table2_score(line, column) if line.labels == (_help_text(0, False),) else None

    title = f"Cross-modal transfer. Mean macro-F1 on test_ood (difference from test_ind), by what helps it ({LEGEND})"
    notes = [
        "Groups of columns: trained in; columns: tested in. A reader, trained on unlabelled images and captions, "
        "writes the caption of each image, which the model is shown in its place. Consistency: of unlabelled pairs the "
        "model learns to say of the other modality what it says of the one it is trained in. Both are semi-supervised: "
        "the pairs are of the task's own distribution, those of consistency with its queries, and none has an answer.",
        *_seed_notes(lines),
    ]
    heads = (*LABEL_COLUMNS[:2], ("", "Helped by"), LABEL_COLUMNS[2])
    return _grid_table("transfer", title, runs, lines, columns, known, heads=heads, notes=notes)


def _help(run: RunSummary) -> tuple[int, bool]:
    """Steps of the run's reader, 0 for none, and whether it learned from unlabelled pairs."""
    return int(run.settings.get("reader.steps") or 0), bool(run.settings.get("training.consistency"))


def _help_text(steps: int, consistency: bool) -> str:
    methods = [f"reader, {steps:,} steps"] * bool(steps) + ["consistency"] * consistency
    return " and ".join(methods) or "none"
