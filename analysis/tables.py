"""The paper's tables from saved runs, its numbers beside ours: `TABLES["table2"](runs).markdown()`.

One rule holds for all of them. A cell averages runs that differ in their seed alone: the converged ones (above random
on test_ind in their own setting), or all where none has converged, as in Table 2. Which runs a table is about is told
by their settings, not by the experiment they were made for, as a run that two experiments share is trained once. Runs
of one row that differ in another setting (size, steps, dataset, ...) get rows of their own with a note that says what
differs; `select` chooses among them beforehand. A cell that no run fills is blank and counted in `Table.missing`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis import paper
from analysis.averages import Average, Trained, less, or_nan, select, trained, variants, weights_of
from analysis.layout import BLANK, Cell, Table
from analysis.paper import NAMES, SETTINGS, SPLITS, Published
from analysis.runs import Runs
from analysis.sheet import (
    LARGE,
    OURS,
    Sheet,
    arrow,
    difference_cell,
    left_out,
    number_cell,
    score_cell,
    score_text,
    seeds_cell,
    signed,
    source_cell,
)
from analysis.statistics import Paired, holm, paired
from train.evaluate import LEVEL, TEST
from train.results import read_predictions

__all__ = ["TABLES", "Cell", "Table", "compare", "select"]

TASKS = {task: letter for letter, task in paper.TASKS.items()}
BIMODAL = ("visualbert", "uniter", "lxmert", "albef")
TEXT_ONLY = ("bert", "roberta")
CONTROLLED = ("lxmert", "uniter", "visualbert")  # in the order of Tables 10 to 12
SHORT = {"image": "Image", "caption": "Caption", "image+caption": "Img. + Cap."}
LONG = SHORT | {"image+caption": "Image + Caption", "mixed": "Mixed"}

# Tables of scores in the form of Table 2 -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column: the cells of runs that were trained in `train` and tested in `test` (None: how many converged)."""

    group: str
    name: str
    train: str
    test: str | None
    of: Callable[[Trained], bool] = lambda run: True
    more: tuple[tuple[str, Any], ...] = ()  # of the data frame, beside train_setting and test_setting

    def has(self, run: Trained) -> bool:
        return run.about["setting"] == self.train and self.of(run)


@dataclass(frozen=True)
class Line:
    """A line of a table: its task and model, its other labels, and the runs that may stand in it."""

    task: str
    model: str
    runs: list[Trained]
    labels: tuple[str, ...] = ()
    keys: tuple[tuple[str, Any], ...] = ()
    columns: tuple[int, ...] | None = None  # those that apply to it; None for all


Known = Callable[[Line, Column], Published | None]


def _grid(sheet: Sheet, lines: Iterable[Line], columns: Sequence[Column], known: Known, free: Sequence[str]) -> None:
    """Fill a sheet: for each line one row for each variant of its runs, and one of what the paper has."""
    for line in lines:
        for label, runs in variants(line.runs, free) or [("", [])]:
            cells = []
            for place, column in enumerate(columns):
                if line.columns is not None and place not in line.columns:
                    cells.append(Cell("-"))
                    continue
                average = Average([run for run in runs if column.has(run)])
                published = known(line, column) or Published()
                cells.append(_cell(average, column))
                if column.test is not None:
                    sheet.data.append(_record(line, column, label, average, published))
            labels = (TASKS[line.task], NAMES[line.model] + sheet.mark(label), *line.labels)
            sheet.add([*map(Cell, labels), source_cell(runs), *cells], line.task)
        published_cells = [_published_cell(known(line, column), column.test is None) for column in columns]
        sheet.paper((TASKS[line.task], NAMES[line.model], *line.labels), published_cells)


def _cell(average: Average, column: Column) -> Cell:
    if column.test is None:
        return seeds_cell(average.converged if average.runs else None)
    score, within = (average.score(column.test, split) for split in SPLITS)
    return score_cell(score, less(score, within), average.above_random(column.test, "test_ood"))


def _published_cell(found: Published | None, seeds: bool) -> Cell:
    if found is None:
        return Cell()
    if seeds:
        return seeds_cell(found.seeds)
    return score_cell(found.score, found.difference)


def _record(line: Line, column: Column, label: str, average: Average, published: Published) -> dict[str, Any]:
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
        "difference": or_nan(less(average.score(test, "test_ood"), within)),
        "paper_macro_f1": or_nan(published.score),
        "paper_difference": or_nan(published.difference),
        "paper_converged": published.seeds,
    }


HEAD = (("", "Task"), ("", "Model"), ("", "Source"))
LETTERS = "S: spatiality, C: cardinality, Q: quantifiers, N: numerical comparison"
MARKS = (
    "Mean over the converged runs, or over all where none has converged; converged: above random on test_ind in its "
    "own setting (image+caption for mixed).",
    f"Underlined: each run averaged is above random on test_ood by itself ({TEST}). Bold: highest mean of a column "
    "among our rows of a task. Lines of the paper have neither.",
)


def _tables_grid(
    name: str,
    title: str,
    runs: Runs,
    lines: Sequence[Line],
    columns: Sequence[Column],
    known: Known,
    *,
    heads: Sequence[tuple[str, str]] = HEAD,
    free: Sequence[str] = (),
    notes: Iterable[str] = (),
) -> Table:
    sheet = Sheet()
    _grid(sheet, lines, columns, known, free)
    used = list({run.about["name"]: run for line in lines for run in line.runs if any(c.has(run) for c in columns)}
                .values())  # fmt: skip
    names = [*heads, *((column.group, column.name) for column in columns)]
    told = [*MARKS, *notes, *left_out(runs, used, trained(runs))]
    return sheet.table(name, title, names, used, told)


def _of(runs: Iterable[Trained], task: str, model: str, settings: Collection[str] = SETTINGS) -> list[Trained]:
    wanted = (task, model)
    return [
        run for run in runs if (run.about["task"], run.about["model"]) == wanted and run.about["setting"] in settings
    ]


def _kind(runs: Runs, *kind: str) -> list[Trained]:
    return [run for run in trained(runs) if run.kind == frozenset(kind)]


def table2(runs: Runs) -> Table:
    """Table 2: macro-F1 on test_ood by training and test setting, with the difference from test_ind."""
    columns = []
    for train in SETTINGS:
        columns += [Column(LONG[train], SHORT[test], train, test) for test in SETTINGS]
        columns.append(Column(LONG[train], "#sd", train, None))
    chosen = _kind(runs)
    lines = [Line(task, model, _of(chosen, task, model)) for task in TASKS for model in BIMODAL]
    title = f"Table 2. Mean macro-F1 on test_ood (difference from test_ind) by training and test setting ({LETTERS})"
    notes = ["Groups of columns: trained in; columns: tested in. #sd: how many runs converged.", *_few(lines)]
    return _tables_grid("table2", title, runs, lines, columns, _known_of_table2, notes=notes)


def _known_of_table2(line: Line, column: Column) -> Published | None:
    return paper.TABLE_2.get((line.task, line.model, column.train, column.test or "image"))


def _few(lines: Iterable[Line], seeds: int = 3) -> list[str]:
    """How many cells have fewer runs than the paper's three."""
    counts = [
        sum(run.about["setting"] == setting for run in found)
        for line in lines
        for _, found in variants(line.runs)
        for setting in {run.about["setting"] for run in found}
    ]
    few = sum(count < seeds for count in counts)
    return [f"Fewer than {seeds} seeds: {few} of {len(counts)} groups of runs."] if few else []


def text_only(runs: Runs) -> Table:
    """The text-only baselines of section 4, which the paper draws in figures 15 to 18 and does not print."""
    columns = [Column("Caption", "Caption", "caption", "caption"), Column("Caption", "#sd", "caption", None)]
    chosen = _kind(runs)
    lines = [Line(task, model, _of(chosen, task, model)) for task in TASKS for model in TEXT_ONLY]
    title = f"Text-only baselines. Mean macro-F1 on test_ood (difference from test_ind), captions ({LETTERS})"
    return _tables_grid("text_only", title, runs, lines, columns, lambda line, column: None, notes=_few(lines))


def frozen(runs: Runs) -> Table:
    """Section 5.2: only the classification head trained; each model tested in its own setting."""
    columns = [Column("", SHORT[setting], setting, setting) for setting in SETTINGS]
    chosen = _kind(runs, "frozen")
    lines = _with_text_only(chosen)
    title = (
        f"Frozen encoder (section 5.2). Mean macro-F1 on test_ood (difference from test_ind), own setting ({LETTERS})"
    )
    notes = ["The paper prints two scores, the others it says are not above random."]

    def known(line: Line, column: Column) -> Published | None:
        return paper.FROZEN.get((line.task, line.model, column.train))

    return _tables_grid("frozen", title, runs, lines, columns, known, notes=notes)


def _with_text_only(chosen: Sequence[Trained]) -> list[Line]:
    """A line for each task and model; of the text-only ones, caption (the second of three columns) alone."""
    return [
        Line(task, model, _of(chosen, task, model), columns=(1,) if model in TEXT_ONLY else None)
        for task in TASKS
        for model in (*BIMODAL, *TEXT_ONLY)
    ]


def subsets(runs: Runs) -> Table:
    """Appendix C: how much of the train split a model needs; each tested in its own setting."""
    chosen = [run for run in trained(runs) if not run.kind - {"subset"}]
    parts = {f"{part:.4g}": part / 100 for part in (12.5, 25, 50, 100)}
    lines, names = [], (*BIMODAL, *TEXT_ONLY)
    streams = any(run.settings.get("training.stream") for run in chosen)
    columns = []
    for setting in SETTINGS:
        for name, part in parts.items():
            columns.append(Column(LONG[setting], f"{name} %", setting, setting, _is_part(part), (("part", part),)))
        if streams:
            columns.append(Column(LONG[setting], "stream", setting, setting, _is_part(None), (("part", None),)))
    own = tuple(place for place, column in enumerate(columns) if column.train == "caption")
    for task in TASKS:
        lines += [
            Line(task, name, _of(chosen, task, name), columns=own if name in TEXT_ONLY else None) for name in names
        ]

    def known(line: Line, column: Column) -> Published | None:
        return paper.SUBSETS.get((line.task, line.model, column.train, dict(column.more)["part"]))

    title = f"Appendix C. Macro-F1 on test_ood (difference from test_ind) by how much is trained on ({LETTERS})"
    notes = [
        "Groups of columns: trained and tested in; columns: part of the train split. The paper draws its scores "
        "(figures 15 to 18) and prints few of them; its subsets have one seed.",
        *(["stream: examples that are never repeated, in place of the train split."] if streams else []),
    ]
    free = ("training.examples", "training.stream")
    return _tables_grid("subsets", title, runs, lines, columns, known, free=free, notes=notes)


def _is_part(part: float | None) -> Callable[[Trained], bool]:
    """Whether a run learns from that part of the train split; None for a stream."""

    def fits(run: Trained) -> bool:
        stream = bool(run.settings.get("training.stream"))
        return stream if part is None else not stream and run.part == part

    return fits


def transfer(runs: Runs) -> Table:
    """Sections 4.2 and 6: trained in one modality and tested in the other, with nothing to help, with a reader and with
    consistency. The paper has neither."""
    columns = []
    for train, other in (("image", "caption"), ("caption", "image")):
        columns += [Column(LONG[train], SHORT[test], train, test) for test in (train, other)]
        columns.append(Column(LONG[train], "#sd", train, None))
    chosen = [run for run in trained(runs) if not run.kind - {"with a reader", "with consistency"}]
    helped = [run for run in chosen if run.kind]
    models = [model for model in BIMODAL if model == "uniter" or any(run.about["model"] == model for run in helped)]
    ways = {(500, False), (0, True)} - ({(500, False)} if any(_help(run)[0] for run in helped) else set())
    lines = []
    for task in TASKS:
        for model in models:
            found = _of(chosen, task, model, ("image", "caption"))
            for way in [(0, False), *sorted(ways | {_help(run) for run in helped}, key=lambda way: way[::-1])]:
                keys = (("reader_steps", way[0]), ("consistency", way[1]))
                lines.append(Line(task, model, [run for run in found if _help(run) == way], (_help_text(*way),), keys))

    def known(line: Line, column: Column) -> Published | None:
        return _known_of_table2(line, column) if line.labels == (_help_text(0, False),) else None

    title = f"Cross-modal transfer. Mean macro-F1 on test_ood (difference from test_ind), by what helps it ({LETTERS})"
    notes = [
        "Groups of columns: trained in; columns: tested in. A reader, trained on unlabelled images and captions, "
        "writes the caption of each image, which the model is shown in its place. Consistency: of unlabelled pairs the "
        "model learns to say of the other modality what it says of the one it is trained in.",
        *_few(lines),
    ]
    heads = (*HEAD[:2], ("", "Helped by"), HEAD[2])
    return _tables_grid("transfer", title, runs, lines, columns, known, heads=heads, notes=notes)


def _help(run: Trained) -> tuple[int, bool]:
    """Steps of the run's reader, 0 for none, and whether it learned from unlabelled pairs."""
    return int(run.settings.get("reader.steps") or 0), bool(run.settings.get("training.consistency"))


def _help_text(steps: int, consistency: bool) -> str:
    told = [f"reader, {steps:,} steps"] * bool(steps) + ["consistency"] * consistency
    return " and ".join(told) or "none"


# Tables 10 to 12: controlled architectures ---------------------------------------------------------------------------


def table10(runs: Runs) -> Table:
    """Table 10: controlled and original architectures on spatiality in image, by the size of the train split."""
    return _controlled(runs, "table10", "spatiality", "image", {"32k": 1.0, "8k": 0.25})


def table11(runs: Runs) -> Table:
    """Table 11: controlled and original architectures on cardinality in image."""
    return _controlled(runs, "table11", "cardinality", "image", {"8k": 1.0})


def table12(runs: Runs) -> Table:
    """Table 12: controlled and original architectures on cardinality in caption."""
    return _controlled(runs, "table12", "cardinality", "caption", {"8k": 1.0})


def _controlled(runs: Runs, name: str, task: str, setting: str, sizes: Mapping[str, float]) -> Table:
    sheet = Sheet()
    chosen = [run for run in trained(runs) if not run.kind - {"controlled", "subset"}]
    used = []
    for size, part in sizes.items():
        for controlled in (True, False):
            for model in CONTROLLED:
                found = [
                    run
                    for run in _of(chosen, task, model, (setting,))
                    if ("controlled" in run.kind) == controlled and _is_size(run, part)
                ]
                used += found
                _controlled_line(sheet, name, setting, (size, model, controlled), found)
    statistics = [(group, name) for group in ("OOD", "InD") for name in ("Mean", "Stdev.")]
    heads = (("", "Dataset size"), ("", "Model"), ("", "Source"), *statistics, ("", "# Seeds"))
    title = (
        f"Table {name[5:]}. Mean and standard deviation of macro-F1, controlled and original architectures, "
        f"{task}, {setting}"
    )
    notes = [
        *MARKS[:1],
        "Stdev.: with n - 1, - where there is one run; # Seeds: runs averaged. Volta: the controlled architectures.",
        "Underlined: each run averaged is above random by itself. Bold: highest mean of its size among our rows.",
        "Sizes are those of the paper's train splits: all of it, and for spatiality a quarter.",
        *left_out(runs, used, trained(runs)),
    ]
    return sheet.table(name, title, heads, used, notes)


def _is_size(run: Trained, part: float) -> bool:
    """A quarter of the train split of spatiality is the paper's 8k; where its size is unknown, so are 8,000."""
    return run.part == part or (part == 0.25 and run.part == 8000)


def _controlled_line(
    sheet: Sheet, table: str, setting: str, key: tuple[str, str, bool], found: Sequence[Trained]
) -> None:
    size, model, controlled = key
    label = ("Volta " if controlled else "") + NAMES[model]
    published = {split: paper.CONTROLLED[table][(*key, split)] for split in SPLITS}
    for settings, runs in variants(found) or [("", [])]:
        average = Average(runs)
        cells = []
        for split in SPLITS:
            mean = average.mean(setting, split)
            cells.append(score_cell(mean.mean if mean else None, above=average.above_random(setting, split)))
            cells.append(
                BLANK if mean is None else Cell("-") if mean.deviation is None else number_cell(mean.deviation)
            )
            sheet.data.append(
                {
                    "size": size,
                    "model": model,
                    "controlled": controlled,
                    "settings": settings or None,
                    "split": split,
                    **average.numbers(setting, split),
                    "averaged": len(average.used),
                    "paper_macro_f1": published[split].score,
                    "paper_deviation": or_nan(published[split].deviation),
                    "paper_averaged": published[split].seeds,
                }
            )
        cells.append(seeds_cell(len(average.used) or None))
        sheet.add([Cell(size), Cell(label + sheet.mark(settings)), source_cell(runs), *cells], size)
    printed = []
    for split in SPLITS:
        found_here = published[split]
        printed += [
            score_cell(found_here.score),
            number_cell(found_here.deviation) if found_here.deviation else Cell("-"),
        ]
    sheet.paper((size, label), [*printed, seeds_cell(published["test_ood"].seeds)])


# Tables 13 and 14: modal dropout -------------------------------------------------------------------------------------

STREAMED = ("training.stream", "training.examples")


def table13(runs: Runs) -> Table:
    """Table 13: trained in mixed, with the difference from trained in image+caption."""
    chosen = _kind(runs)
    title = f"Table 13. Mean macro-F1 trained in mixed (difference from trained in image+caption) ({LETTERS})"
    notes = [
        *MARKS,
        f"#sd: how many mixed runs converged. Arrows: differences above {LARGE:+.0f} and below {-LARGE:+.0f}, "
        "of means of few seeds and tested by nothing; compare() tests two runs.",
    ]
    return _mixed(runs, "table13", title, chosen, notes)


def table14(runs: Runs) -> Table:
    """Table 14 (section F.2): trained in mixed, less trained in the tested setting alone on the part of the train split
    that mixed shows so: a quarter in image, a quarter in caption, a half in image+caption."""
    title = f"Table 14. Mean macro-F1 trained in mixed, less trained on the part of the data in one setting ({LETTERS})"
    notes = [
        *MARKS[:1],
        "Baselines: trained and tested in the column's setting, on 25, 25 and 50 % of the train split. #sd: how many "
        f"mixed runs converged. Arrows: differences above {LARGE:+.0f} and below {-LARGE:+.0f}, tested by nothing.",
    ]
    chosen = [run for run in trained(runs) if not run.kind - {"subset"}]
    if any(run.settings.get("training.stream") for run in chosen if run.about["setting"] == "mixed"):
        notes.append(
            "Mixed runs of training.stream=true saw other examples than the train split, of which the baselines saw a "
            "part: the paper's comparison needs training.stream=false for both."
        )
    return _mixed(runs, "table14", title, chosen, notes)


PARTS = {"image": 0.25, "caption": 0.25, "image+caption": 0.5}  # of a mixed dataset that are shown so (appendix F)


def _mixed(runs: Runs, name: str, title: str, chosen: Sequence[Trained], notes: Iterable[str]) -> Table:
    """Both tables: of each cell the mean of the mixed runs, and of what it is compared with."""
    sheet = Sheet()
    used: dict[str, Trained] = {}
    known = paper.TABLE_13 if name == "table13" else paper.TABLE_14
    for task in TASKS:
        for model in BIMODAL:
            mixed = [run for run in _of(chosen, task, model, ("mixed",)) if not run.kind]
            others = _of(chosen, task, model)
            for label, found in variants(mixed) or [("", [])]:
                cells = []
                for split in SPLITS:
                    for test in SETTINGS:
                        base = [run for run in others if _is_baseline(name, run, test) and _alike(name, run, found)]
                        used |= {run.about["name"]: run for run in (*found, *base)}
                        numbers = (Average(found), Average(base), split, test)
                        cells.append(_mixed_cell(name, *numbers))
                        key = {"task": task, "model": model, "settings": label or None}
                        sheet.data.append(key | _mixed_record(known[task, model, split, test], *numbers))
                converged = seeds_cell(Average(found).converged if found else None)
                labels = (Cell(TASKS[task]), Cell(NAMES[model] + sheet.mark(label)))
                sheet.add([*labels, source_cell(found), *cells, converged], task)
            printed = [known[task, model, split, test] for split in SPLITS for test in SETTINGS]
            shown = [_mixed_text(found.score, found.difference) for found in printed]
            sheet.paper((TASKS[task], NAMES[model]), [*shown, seeds_cell(printed[0].seeds)])
    tested = [(group, SHORT[test]) for group in ("OOD", "InD") for test in SETTINGS]
    told = [*notes, *left_out(runs, used.values(), trained(runs))]
    return sheet.table(name, title, [*HEAD, *tested, ("", "#sd")], list(used.values()), told)


def _is_baseline(table: str, run: Trained, test: str) -> bool:
    """Whether a mixed score in a test setting is compared with that run's."""
    if table == "table13":
        return run.about["setting"] == "image+caption" and not run.kind
    return run.about["setting"] == test and run.part == PARTS[test]


def _alike(table: str, run: Trained, mixed: Sequence[Trained]) -> bool:
    """Whether a run differs from the mixed ones in nothing but what the table compares; a subset cannot stream."""
    return bool(mixed) and len(variants([mixed[0], run], STREAMED if table == "table14" else ())) == 1


def _mixed_text(score: float | None, difference: float | None) -> Cell:
    """Of Table 13, which gives a score, and of Table 14, which does not."""
    if score is None:
        return difference_cell(difference)
    return replace(score_cell(score, difference), mark=arrow(difference))


def _mixed_cell(table: str, mixed: Average, base: Average, split: str, test: str) -> Cell:
    """Of Table 13, a score without its difference where there is nothing to compare it with."""
    score = mixed.score(test, split)
    difference = less(score, base.score(test, split))
    if table == "table14":
        return difference_cell(difference)
    return BLANK if score is None else replace(
        _mixed_text(score, difference), underlined=mixed.above_random(test, split)
    )  # fmt: skip


def _mixed_record(published: Published, mixed: Average, base: Average, split: str, test: str) -> dict[str, Any]:
    compared = base.score(test, split)
    return {
        "split": split,
        "test_setting": test,
        **mixed.numbers(test, split),
        "compared_macro_f1": or_nan(compared),
        "compared_runs": len(base.runs),
        "compared_converged": base.converged if base.runs else None,
        "difference": or_nan(less(mixed.score(test, split), compared)),
        "paper_macro_f1": or_nan(published.score),
        "paper_difference": or_nan(published.difference),
        "paper_converged": published.seeds,
    }


# Few-shot ------------------------------------------------------------------------------------------------------------


def few_shot(runs: Runs) -> Table:
    """Table 9 and section 4.2: trained further on a few examples of the modality that had not been seen, and tested in
    it; before and after."""
    sheet = Sheet()
    every = trained(runs)
    by_run = {str(run.about["run"]): run for run in every}
    chosen: dict[tuple[str, str, str, str, int], list[Trained]] = {key: [] for key in paper.TABLE_9}
    for run in every:
        if run.about["task"] not in TASKS or run.about["model"] not in NAMES:
            continue
        first = by_run.get(str(run.settings.get("start")))
        if run.settings.get("start") and (first is None or first.about["setting"] != run.about["setting"]):
            seen = str(first.about["setting"]) if first else _other(run.about["setting"])
            about = run.about
            chosen.setdefault((seen, about["setting"], about["task"], about["model"], about["seed"]), []).append(run)
    for key, found in chosen.items():
        for label, alike in variants(found, ("start",)) or [("", [])]:
            for found_run in alike or (None,):
                _few_shot_line(sheet, key, label, found_run, by_run)
    heads = [("", name) for name in ("Setting", "Task", "Model", "Seed", "Source")]
    columns = [*heads, ("OOD", "Before"), ("OOD", "After"), ("InD", "After"), ("", "Above random in the paper")]
    title = (
        "Table 9. Macro-F1 in the modality that was not seen, before and after training further on few examples of it"
    )
    used = [run for found in chosen.values() for run in found]
    notes = [
        f"Underlined: above random ({TEST}). The paper prints no scores here and says that none came above random.",
        *left_out(runs, used, every),
    ]
    return sheet.table("few_shot", title, columns, used, notes)


def _other(setting: str) -> str:
    return {"image": "caption", "caption": "image"}.get(setting, "unknown")


def _few_shot_line(
    sheet: Sheet, key: tuple[str, str, str, str, int], label: str, run: Trained | None, by_run: Mapping[str, Trained]
) -> None:
    seen, setting, task, model, seed = key
    first = by_run.get(str(run.settings.get("start"))) if run else None
    before, after = Average([first] if first else []), Average([run] if run else [])
    places = ((before, "test_ood"), (after, "test_ood"), (after, "test_ind"))
    # A single run, so no mean could hide one that is not above random.
    cells = [
        score_cell(found.score(setting, split), above=found.above_random(setting, split)) for found, split in places
    ]
    published = "no" if key in paper.TABLE_9 else ""
    direction = f"{LONG.get(seen, seen)} to {LONG.get(setting, setting)}"
    labels = (direction, TASKS[task], NAMES[model] + sheet.mark(label), str(seed))
    plain = [replace(cell, value=None) for cell in cells]
    sheet.add([*map(Cell, labels), source_cell([run] if run else []), *plain, Cell(published)])
    names = ("before_test_ood", "after_test_ood", "after_test_ind")
    sheet.data.append(
        {
            "seen": seen,
            "trained_further_in": setting,
            "task": task,
            "model": model,
            "seed": seed,
            "settings": label or None,
            "weights": run.weights if run else None,
            "train_examples": run.about["train_examples"] if run else None,
            **{name: or_nan(found.score(setting, split)) for name, (found, split) in zip(names, places, strict=True)},
            "above_random": after.above_random(setting, "test_ood") if run else None,
            "paper_above_random": False if published else None,
        }
    )


# Tables 3, 6 and 8: datasets, run times, parameters ------------------------------------------------------------------


def table3(runs: Runs) -> Table:
    """Table 3: how many answers of each split are true and false, by the datasets' manifests."""
    sheet = Sheet()
    tasks = {digest: _task_of(runs, digest) for digest in runs.datasets}
    splits = {"train": "Train", "validation": "Val.", "test_ind": "InD Test", "test_ood": "OOD Test"}
    for task in TASKS:
        digests = [digest for digest, found in tasks.items() if found == task]
        for digest in digests or (None,):
            counts = {split: _true_false(runs, digest, split) for split in splits}
            label = digest[:8] if digest else ""
            sheet.add(
                [Cell(task), Cell(f"{OURS} {label}".strip()), *(_true_false_cell(found) for found in counts.values())]
            )
            for split, found in counts.items():
                told = dict(zip(("true", "false"), found or (None, None), strict=True))
                known = dict(zip(("paper_true", "paper_false"), paper.TABLE_3[task][split], strict=True))
                sheet.data.append({"task": task, "dataset": digest, "split": split, **told, **known})
        sheet.add([Cell(task), Cell("paper"), *(_true_false_cell(paper.TABLE_3[task][split]) for split in splits)])
    columns = [("", name) for name in ("Task", "Source", *splits.values())]
    notes = [f"{digest[:8]}: {dataset.folder}." for digest, dataset in runs.datasets.items()]
    title = "Table 3. Examples whose answer is true / false"
    return sheet.table("table3", title, columns, [], [*notes, *(f"Left out: {line}." for line in runs.skipped)])


def _task_of(runs: Runs, digest: str) -> str | None:
    """What a dataset says, or the runs on it do."""
    told = (runs.datasets[digest].manifest.get("config") or {}).get("task")
    found = runs.results.loc[runs.results["dataset"] == digest, "task"].dropna()
    return str(told) if told else str(found.iloc[0]) if len(found) else None


def _true_false(runs: Runs, digest: str | None, split: str) -> tuple[int, int] | None:
    counts = runs.datasets[digest].manifest["splits"].get(split) if digest else None
    return (counts["true"], counts["rows"] - counts["true"]) if counts and "true" in counts else None


def _true_false_cell(counts: tuple[int, int] | None) -> Cell:
    return Cell(f"{counts[0]} / {counts[1]}") if counts else BLANK


def table6(runs: Runs, watts: float | None = None, grams_per_kwh: float | None = None) -> Table:
    """Table 6: hours of training by the size of the train split, model and setting; means over runs on like hardware.

    watts: what the hardware draws, which no run measures; gives the energy of a run in the slowest setting, kWh.
    grams_per_kwh: CO2-equivalent of the electricity; gives kg of it. Both columns are blank without. Raises
    `ValueError` for values that are not above 0, and for the second without the first.
    """
    for name, value in (("watts", watts), ("grams_per_kwh", grams_per_kwh)):
        if value is not None and not value > 0:
            raise ValueError(f"{name}={value}: must be above 0")
    if grams_per_kwh is not None and watts is None:
        raise ValueError(f"grams_per_kwh={grams_per_kwh}: needs watts= too, what the hardware draws")
    sheet = Sheet()
    chosen = [_with_hardware(run) for run in _kind(runs) if run.about["setting"] in SETTINGS]
    sizes = {"32k": ["spatiality"], "8k": [task for task in TASKS if task != "spatiality"]}
    for (size, model), hours in paper.TABLE_6.items():
        found = [run for run in chosen if run.about["model"] == model and run.about["task"] in sizes[size]]
        for label, alike in variants(found, ("dataset",)) or [("", [])]:
            _hours_line(sheet, (size, model), label, alike, (watts, grams_per_kwh))
        known = [Cell("-" if value is None else f"{value:g}") for value in hours]
        carbon = paper.CARBON.get((size, model))
        sheet.paper((size, NAMES[model]), [*known, Cell(), Cell(f"{carbon:g}" if carbon else "")])
    heads = ("Dataset size", "Model", "Source", "Image", "Caption", "Img.+Cap.", "Energy, kWh", "CO2e, kg")
    notes = [
        "32k: spatiality; 8k: the other tasks, whatever size the dataset has. Hours are of training, not of tests."
    ]
    if watts is None:
        notes.append("Energy and CO2e are blank: they need watts=, and CO2e grams_per_kwh= as well.")
    else:
        electricity = f", {grams_per_kwh:g} g of CO2-equivalent per kWh" if grams_per_kwh else ""
        notes.append(f"Energy and CO2e: not measured, of one run in its slowest setting at {watts:g} W{electricity}.")
    title = "Table 6. Hours of training"
    told = [*notes, *left_out(runs, chosen, trained(runs))]
    return sheet.table("table6", title, [("", head) for head in heads], chosen, told)


def _with_hardware(run: Trained) -> Trained:
    """With what it ran on among its settings, so that no mean is over different hardware."""
    more = {name: run.about[name] for name in ("hardware", "precision")}
    return replace(run, settings=run.settings | more)


def _hours_line(
    sheet: Sheet,
    key: tuple[str, str],
    label: str,
    runs: Sequence[Trained],
    rates: tuple[float | None, float | None],
) -> None:
    size, model = key
    watts, grams = rates
    hours: dict[str, float | None] = {}
    for place, setting in enumerate(SETTINGS):
        seconds = [run.about["train_seconds"] for run in runs if run.about["setting"] == setting]
        known = [value for value in seconds if value is not None]
        hours[setting] = float(np.mean(known)) / 3600 if known else None
        published = paper.TABLE_6[key][place]
        sheet.data.append(
            {
                "size": size,
                "model": model,
                "settings": label or None,
                "setting": setting,
                "hours": or_nan(hours[setting]),
                "runs": len(known),
                "energy_kwh": or_nan(_times(hours[setting], watts, 1000)),
                "co2e_kg": or_nan(_times(_times(hours[setting], watts, 1000), grams, 1000)),
                "paper_hours": or_nan(published),
                "paper_co2e_kg": or_nan(paper.CARBON.get(key)),
            }
        )
    slowest = max((value for value in hours.values() if value is not None), default=None)
    energy = _times(slowest, watts, 1000)
    cells = [Cell("-") if model in TEXT_ONLY and s != "caption" else _hours(hours[s]) for s in SETTINGS]
    estimates = [
        Cell(f"{value:.3g}") if value is not None else Cell() for value in (energy, _times(energy, grams, 1000))
    ]
    sheet.add([Cell(size), Cell(NAMES[model] + sheet.mark(label)), source_cell(runs), *cells, *estimates])


def _times(value: float | None, rate: float | None, per: float) -> float | None:
    return None if value is None or rate is None else value * rate / per


def _hours(value: float | None) -> Cell:
    return BLANK if value is None else Cell(f"{value:.3g}")


def table8(runs: Runs) -> Table:
    """Table 8: trainable parameters of whole models, by size. Frozen runs train fewer and are left out."""
    sheet = Sheet()
    chosen = [run for run in trained(runs) if not run.kind & {"frozen", "settings unknown"}]
    for (model, controlled), published in paper.TABLE_8.items():
        found = [run for run in chosen if (run.about["model"], "controlled" in run.kind) == (model, controlled)]
        counted: dict[tuple[str, int | None], list[Trained]] = {}
        for run in found:
            counted.setdefault((run.about["size"] or "", run.about["parameters"]), []).append(run)
        label = ("Volta " if controlled else "") + NAMES[model]
        for (size, parameters), alike in counted.items() or [(("", None), [])]:
            shown = BLANK if parameters is None else Cell(_millions(parameters))
            known = Cell(f"{published:.2f}")
            sheet.add([Cell(label), Cell(size), source_cell(alike), shown, known])
            sheet.data.append(
                {
                    "model": model,
                    "controlled": controlled,
                    "size": size or None,
                    "weights": weights_of(alike) or None,
                    "parameters": parameters,
                    "paper_millions": published,
                }
            )
    heads = [("", name) for name in ("Model", "Size", "Source", "Parameters, M", "Paper's, M")]
    notes = ["Only size=base has the published architectures. Volta: the controlled ones."]
    title = "Table 8. Trainable parameters, millions"
    return sheet.table("table8", title, heads, chosen, [*notes, *left_out(runs, chosen, trained(runs))])


def _millions(parameters: int) -> str:
    return f"{parameters / 1e6:.2f}" if parameters >= 1e6 else f"{parameters / 1e6:.3g}"


# Two runs ------------------------------------------------------------------------------------------------------------


def compare(runs: Runs, name_a: str, name_b: str) -> Table:
    """Two runs on the same examples, in each test setting and split that both were tested in.

    Scenes, where several examples share one, count once in the test and are drawn whole in the bootstrap; where the
    dataset was not found, examples stand for themselves, and a note says so. Raises `ValueError` for a name that is
    not there, and for runs on different datasets.
    """
    found = {run.about["name"]: run for run in trained(runs)}
    for name in (name_a, name_b):
        if name not in found:
            raise ValueError(f"{name}: no finished run has this name; choose from {', '.join(found)}")
    one, other = found[name_a], found[name_b]
    digest = one.about["dataset"]
    if digest is None or digest != other.about["dataset"]:
        raise ValueError(f"{name_a} and {name_b}: tested on different datasets; compare two runs on the same one")
    scenes = runs.examples(digest).set_index("id")["scene"] if digest in runs.datasets else None
    predictions = [read_predictions(runs.folder / name).to_pandas() for name in (name_a, name_b)]
    both = predictions[0].merge(predictions[1], on=["id", "split", "test_setting"], suffixes=("_a", "_b"))
    places = [(split, test) for split in SPLITS for test in SETTINGS if (test, split) in {*one.rows, *other.rows}]
    results: dict[tuple[str, str], Paired] = {}
    for split, test in places:
        part = both[(both["split"] == split) & (both["test_setting"] == test)]
        if len(part):
            clusters = None if scenes is None else scenes.loc[part["id"]].to_numpy()
            answers, one_said, other_said = (part[name].to_numpy() for name in ("answer_a", "logit_a", "logit_b"))
            results[split, test] = paired(answers, one_said, other_said, clusters)
    adjusted = dict(zip(results, holm([result.p_value for result in results.values()]), strict=True))
    return _compare_table((one, other), places, results, adjusted, scenes is not None)


def _compare_table(
    runs: tuple[Trained, Trained],
    places: Sequence[tuple[str, str]],
    results: Mapping[tuple[str, str], Paired],
    adjusted: Mapping[tuple[str, str], float],
    clustered: bool,
) -> Table:
    sheet = Sheet()
    for place in places:
        result = results.get(place)
        told: dict[str, Any] = {"split": place[0], "test_setting": place[1]}
        if result is None:
            sheet.add([*map(Cell, (place[0], SHORT[place[1]])), *[BLANK] * 8])
            sheet.data.append(told)
            continue
        differs = adjusted[place] < LEVEL and not result.interval_low <= 0 <= result.interval_high
        higher = ("A" if result.difference > 0 else "B") if differs else "no difference shown"
        texts = [
            f"{result.examples:,}",
            *map(score_text, (result.first, result.second)),
            f"{signed(result.difference)} [{signed(result.interval_low)}, {signed(result.interval_high)}]",
            *(f"{count:,}" for count in (result.first_only, result.second_only)),
            f"{adjusted[place]:.2g}",
            higher,
        ]
        sheet.add(map(Cell, (place[0], SHORT[place[1]], *texts)))
        sheet.data.append(told | vars(result) | {"p_adjusted": adjusted[place], "differs": differs})
    heads = ("Split", "Tested in", "Examples", "A", "B", "A - B [95 %]", "A right", "B right", "p", "Higher")
    names = [f"{letter}: {run.about['name']}, {run.weights} weights" for letter, run in zip("AB", runs, strict=True)]
    unit = "scenes (all examples of a scene together)" if clustered else "examples; the dataset was not found"
    notes = [
        *(f"{name}." for name in names),
        f"A, B, A - B: macro-F1 and its difference, with a paired bootstrap interval over {unit}.",
        "A right, B right: how many of these one run has more right of than the other. p: two-sided exact McNemar "
        f"test, Holm-adjusted for the {len(results)} rows. Higher: told if p < {LEVEL} and the interval is without 0.",
    ]
    title = f"{runs[0].about['name']} (A) and {runs[1].about['name']} (B) on the same examples"
    return sheet.table("compare", title, [("", head) for head in heads], [], notes)


TABLES: dict[str, Callable[[Runs], Table]] = {
    "table2": table2,
    "table3": table3,
    "table6": table6,
    "table8": table8,
    "few_shot": few_shot,
    "table10": table10,
    "table11": table11,
    "table12": table12,
    "table13": table13,
    "table14": table14,
    "subsets": subsets,
    "frozen": frozen,
    "text_only": text_only,
    "transfer": transfer,
}
