"""Tables as pivots of results: means over seeds, the best of a column, and what the runs of one cell differ in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import pandas as pd

from analysis.frames import setting_columns
from train.config import Run
from train.results.tables import flat_settings, score_text, settings_text, value_text

OURS, PAPER = "ours", "paper, pretrained"
DEFAULTS = flat_settings(Run().model_dump())


@dataclass(frozen=True)
class Table:
    """frame: the text of each cell, with lines as index and heads as columns. marks: of the same form, the marks of
    each cell: `best` (of its column), `above` (random), `own` (tested as trained), `paper`, `differs`. data: raw
    numbers, a row for each cell. notes: whole sentences. links: of the same form, where a cell of a page leads."""

    name: str
    title: str
    frame: pd.DataFrame
    data: pd.DataFrame
    marks: pd.DataFrame
    notes: tuple[str, ...] = ()
    links: pd.DataFrame | None = None


def has_ours(table: Table) -> bool:
    """Whether a table of `pivot` has a number of our runs, or says that some differ."""
    ours = table.data["source"].fillna(OURS).astype(str).str.startswith(OURS)
    return bool((ours & (table.data["mean"].notna() | table.data["differing"].fillna("").ne(""))).any())


# Averages ------------------------------------------------------------------------------------------------------------


def average(results: pd.DataFrame, key: Sequence[str], value: str, free: Sequence[str] = ()) -> pd.DataFrame:
    """A row for each cell: `key`, mean and deviation (n - 1) of `value` over the converged runs, or over all where none
    has converged (the paper's Table 2), and what is known of its runs.

    low, high: the interval of a single run, the lowest and highest of several. seeds: how many runs were averaged;
    converged: how many converged, of `runs`. above, unbound: whether each averaged run is above random, and above the
    best unbound rule. differing: the settings beside the seed and `free` in which its runs differ; then there is no
    mean, as these are not runs of one kind.
    """
    key = list(key)
    groups = results.groupby(key, sort=False, dropna=False, observed=True)
    settings = [name for name in setting_columns(results) if name not in {*key, *free, value}]
    recipe = results[settings].map(value_text).agg("|".join, axis=1) if len(results) else results["name"]
    used = results[results["converged"] | ~groups["converged"].transform("any")]
    ends = [name if name in used else value for name in (f"{_interval(value)}_low", f"{_interval(value)}_high")]
    columns = {"mean": (value, "mean"), "deviation": (value, "std"), "lowest": (value, "min"),
               "highest": (value, "max"), "low": (ends[0], "first"), "high": (ends[1], "first"),
               "seeds": ("name", "nunique"), "above": ("above_random", "all"), "unbound": ("above_unbound", "min"),
               "own": ("own", "first"), "initial": ("initial", "first")}  # fmt: skip
    cells = used.groupby(key, sort=False, dropna=False, observed=True).agg(**columns)
    cells["converged"], cells["runs"] = groups["converged"].sum(), groups["name"].nunique()
    several = cells["seeds"] > 1
    cells["low"] = cells["low"].mask(several, cells["lowest"])
    cells["high"] = cells["high"].mask(several, cells["highest"])
    kinds = recipe.groupby([results[name] for name in key], sort=False, dropna=False, observed=True).nunique()
    cells["differing"] = ""
    for cell in kinds.index[kinds > 1]:
        of_cell = results.loc[groups.groups[cell], settings].map(value_text)
        cells.loc[[cell], "differing"] = ", ".join(of_cell.columns[of_cell.nunique() > 1])
    cells.loc[cells["differing"] != "", ["mean", "deviation", "low", "high"]] = math.nan
    return cells.drop(columns=["lowest", "highest"]).reset_index()


def _interval(value: str) -> str:
    return {"macro_f1": "interval", "couples_right": "couples"}.get(value, value)


def subtract(cells: pd.DataFrame, others: pd.DataFrame, on: Sequence[str]) -> pd.DataFrame:
    """Cells with `difference`: their mean minus that of the cell of `others` with the same values of `on`. Where the
    other's runs differ, so do these."""
    other = others[[*on, "mean", "differing"]].rename(columns={"mean": "other", "differing": "also"})
    merged = cells.merge(other, "left", list(on))
    merged["difference"] = merged["mean"] - merged["other"]
    merged["differing"] = merged["differing"].where(merged["differing"] != "", merged["also"].fillna(""))
    return merged.drop(columns=["other", "also"])


# Cells ---------------------------------------------------------------------------------------------------------------

Row = Mapping[str, float]


def format_signed(difference: float) -> str:
    """ "+1.20"; no difference is +0.00."""
    return f"{round(difference, 2) + 0.0:+.2f}"


def format_score(cell: Row) -> str:
    return "" if math.isnan(cell["mean"]) else score_text(cell["mean"])


def score_and_difference(cell: Row) -> str:
    """As in Table 2: 65.94 (-1.02)."""
    return format_score(cell) + ("" if math.isnan(cell["difference"]) else f" ({format_signed(cell['difference'])})")


def format_difference(cell: Row) -> str:
    return "" if math.isnan(cell["difference"]) else format_signed(cell["difference"])


def format_deviation(cell: Row) -> str:
    """Of n - 1; "-" for a single run."""
    return "" if math.isnan(cell["mean"]) else "-" if math.isnan(cell["deviation"]) else f"{cell['deviation']:.2f}"


def number(cell: Row) -> str:
    return "" if math.isnan(cell["mean"]) else f"{cell['mean']:.3g}"


def score_and_interval(cell: Row) -> str:
    """With one digit; a score below 100 is not rounded up to it. "+": above the best unbound rule."""
    if math.isnan(cell["mean"]):
        return ""
    text = f"{min(cell['mean'], 99.9) if cell['mean'] < 100 else cell['mean']:.1f}"
    plus = "+" if pd.notna(cell["unbound"]) and cell["unbound"] else ""
    return text + plus + ("" if math.isnan(cell["low"]) else f" [{cell['low']:.0f}–{cell['high']:.0f}]")


def count(name: str) -> Callable[[Row], str]:
    return lambda cell: "" if math.isnan(cell[name]) else f"{cell[name]:.0f}"


# Pivots --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """lines, columns: what of the cells makes the index and the columns, with the heads of these. texts: for each cell
    one text, or several with a head each. blocks: the lines among which the best of a column is marked share these.
    orders: of values, where that is not how they occur. words: for readers, of values. links: the columns whose values
    are the filters of the errors that a cell leads to."""

    lines: Mapping[str, str]
    columns: Mapping[str, str]
    texts: Mapping[str, Callable[[Row], str]] = field(default_factory=lambda: {"": score_and_difference})
    blocks: Sequence[str] = ("task",)
    orders: Mapping[str, Sequence[str]] = field(default_factory=dict)
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    links: Sequence[str] = ()


def pivot(name: str, title: str, cells: pd.DataFrame, layout: Layout, notes: Sequence[str] = ()) -> Table:
    """The table of cells, which have the columns of `average`, and `source`."""
    cells = cells.reset_index(drop=True)
    ours = cells["source"] != PAPER
    differs = cells["differing"].fillna("") != ""
    above = cells["above"].fillna(False).astype(bool) & ours & ~differs
    column_keys = [*layout.columns]
    blocks = [cells[one] for one in (*layout.blocks, *column_keys) if one in cells] or [ours]
    best = above & (cells["mean"] == cells["mean"].where(above).groupby(blocks, dropna=False).transform("max"))
    marks = [
        " ".join(mark for mark, holds in zip(("best", "above", "own", "paper", "differs"), line, strict=True) if holds)
        for line in zip(best, above, cells["own"].fillna(False).astype(bool), ~ours, differs, strict=True)
    ]
    lines, heads = _ordered(cells, [*layout.lines], layout), _ordered(cells, column_keys, layout)

    def place(values: Sequence[str]) -> pd.DataFrame:
        frame = cells.assign(cell=values).pivot(index=[*layout.lines], columns=column_keys, values="cell")
        return frame.reindex(index=lines, columns=heads).fillna("")

    rows = cells.to_dict("records")
    frame = _joined({head: place([_text(cell, text) for cell in rows]) for head, text in layout.texts.items()}, layout)
    mark = _joined(dict.fromkeys(layout.texts, place(marks)), layout)
    links = None
    if layout.links:
        hrefs = ["#" + urlencode({name: cell[name] for name in layout.links}) if own else ""
                 for cell, own in zip(rows, ours, strict=True)]  # fmt: skip
        links = _joined({"": place(hrefs)}, layout)
    return Table(name, title, frame, cells, mark, (*notes, *_conflicts(cells, layout)), links)


def _text(cell: Mapping[str, Any], text: Callable[[Row], str]) -> str:
    """The text of a cell: its own, where it has one."""
    if cell["differing"] and isinstance(cell["differing"], str):
        return f"{cell['runs']:.0f} runs differ"
    return cell["text"] if isinstance(cell.get("text"), str) else text(cell)


def _ordered(cells: pd.DataFrame, names: list[str], layout: Layout) -> pd.Index:
    """The distinct values of some columns, in the order of the table."""
    distinct = cells[names].drop_duplicates()

    def rank(column: pd.Series) -> pd.Series:
        order = {value: place for place, value in enumerate(layout.orders.get(str(column.name), ()))}
        occurrence = {value: len(order) + place for place, value in enumerate(column.unique())}
        return column.map({**occurrence, **order})

    distinct = distinct.sort_values(names, key=rank, kind="stable")
    return pd.MultiIndex.from_frame(distinct) if len(names) > 1 else pd.Index(distinct[names[0]])


def _joined(parts: Mapping[str, pd.DataFrame], layout: Layout) -> pd.DataFrame:
    """Several texts of the same cells beside each other, with the words for readers."""
    if len(parts) == 1:
        (frame,) = parts.values()
    else:
        frame = pd.concat(parts, axis=1).reorder_levels([*range(1, len(layout.columns) + 1), 0], axis=1)
        heads = [
            (*(one if isinstance(one, tuple) else (one,)), head) for one in next(iter(parts.values())) for head in parts
        ]
        frame = frame[heads]
    frame.index.names = list(layout.lines.values())
    frame.columns.names = [*layout.columns.values(), *[""] * (len(parts) > 1)]
    for axis, names in ((0, layout.lines), (1, layout.columns)):
        for level, one in enumerate(names):
            frame = frame.rename(
                layout.words.get(one, {}), axis=axis, level=level if frame.axes[axis].nlevels > 1 else None
            )
    return frame


def _conflicts(cells: pd.DataFrame, layout: Layout) -> list[str]:
    """A line for each kind of runs whose cells have no mean."""
    which = [name for name in (*layout.lines, *layout.columns) if name not in ("source", "test_setting", "split")]
    lines = {}
    for cell in cells[cells["differing"].fillna("") != ""].to_dict("records"):
        place = ", ".join(str(cell[name]) for name in which if cell[name])
        lines[place] = f"{place}: {cell['runs']:.0f} runs differ in {cell['differing']}: choose with --select."
    return list(lines.values())


# Names of runs -------------------------------------------------------------------------------------------------------


def label_runs(results: pd.DataFrame, free: Sequence[str] = ()) -> pd.Series:
    """The label of the run of each row: model and size, and the settings in which it differs from the other runs of
    its model, size and task, such as "uniter small, training.steps=4000"; the default, or else the most common value,
    is not named. free: settings that are not named either."""
    kind = (results["model"].astype(str) + " " + results["size"].fillna("").astype(str)).str.strip()
    labels = kind.copy()
    names = [name for name in setting_columns(results) if name not in {*free, "size"}]
    for _, group in results.groupby([kind, results["task"]], sort=False, dropna=False):
        runs = group.drop_duplicates("name")[names].map(value_text)
        for name in runs.columns[runs.nunique() > 1]:
            default = value_text(DEFAULTS.get(name))
            usual = default if default in set(runs[name]) else runs[name].mode()[0]
            values = group[name].map(value_text)
            unusual = values.index[values != usual]
            labels[unusual] += [f", {settings_text({name: value})}" for value in values[unusual]]
    return labels
