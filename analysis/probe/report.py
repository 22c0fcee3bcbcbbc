"""Results of probes as files: result.json of each run, and tables, figures and a page of all runs in a folder.

OUT/RUN/result.json    settings, surroundings and all numbers of a run
OUT/report.html        everything on one page that loads nothing else; OUT/report.md, the same as text
OUT/tables/            each table as Markdown and CSV; OUT/figures/: radar charts and bars as SVG and PNG
"""

from __future__ import annotations

import base64
import html
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.document import TEMPLATE, listed, plain
from analysis.layout import Cell, Table
from analysis.page import MARKED, NOTE_LINE, TEXT, bars, name, page, percent_axis, save, whiskers
from analysis.probe.measures import FLAG, MACRO, MICRO, Compared, Line, Outcomes, compare, outcomes, solved_blindly
from analysis.probe.scoring import ANSWERS, read
from travlr.browse import with_shared
from travlr.files import locked, put_file

VERSION = 1
RESULT, PAGE, TEXT_PAGE = "result.json", "report.html", "report.md"
FORMATS = ("svg", "png")
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "oooo")
CROPPED = ", cropped"  # after the name of a corpus whose pictures are
CHANCE = (50.0, 25.0)  # of one item, of a pair, by tossing coins
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Result:
    """A run: what was asked of whom, and all numbers.

    corpus: name, kind, digest, items, notes. measuring: task, rules, sentences, tolerance, threshold, seed. about: how
    and with what it was made. model: empty where controls alone answered. floors: lines of each control, by name.
    blind: the names of those that see text alone. averages: the paper's, of VL-CheckList.
    """

    name: str
    corpus: Mapping[str, Any]
    model: str
    measuring: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[Line, ...] = ()
    floors: Mapping[str, tuple[Line, ...]] = field(default_factory=dict)
    blind: tuple[str, ...] = ()
    averages: tuple[Mapping[str, Any], ...] = ()

    @property
    def coverage(self) -> Line | None:
        """The line of all items; None of a run of controls."""
        return next((line for line in self.lines if line.value == MICRO), None)


def save_result(folder: Path, result: Result) -> None:
    """Write FOLDER/result.json, in the place of an earlier one."""
    text = json.dumps({"version": VERSION, **asdict(result)}, indent=1, ensure_ascii=False, allow_nan=False)
    with locked(folder):
        (folder / RESULT).unlink(missing_ok=True)
        put_file(folder, RESULT, [text.encode() + b"\n"])


def load_results(out: Path) -> tuple[list[Result], list[str]]:
    """The results of all runs in a folder, by name, and a line for each that cannot be read."""
    found, skipped = [], []
    for path in sorted(out.glob(f"*/{RESULT}")):
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values.pop("version") != VERSION:
                raise ValueError("of another version")
            values["lines"] = _lines(values["lines"])
            values["floors"] = {rule: _lines(lines) for rule, lines in values["floors"].items()}
            found.append(Result(**values | {"blind": tuple(values["blind"]), "averages": tuple(values["averages"])}))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            skipped.append(f"{path}: cannot be read ({' '.join(str(error).split())})")
    return found, skipped


def _lines(values: Iterable[Mapping[str, Any]]) -> tuple[Line, ...]:
    return tuple(Line(**one) for one in values)


# What belongs together -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Results on the same items by the same rules. answerers: models by a name that tells them apart, with their lines;
    controls: the same of rules and of models that are shown other pictures. compared: models, each with each. cropped:
    models on cropped pictures, each with itself on whole ones."""

    title: str
    slug: str
    results: tuple[Result, ...]
    answerers: dict[str, tuple[Line, ...]]
    controls: dict[str, tuple[Line, ...]]
    blind: tuple[str, ...]
    compared: tuple[Compared, ...] = ()
    cropped: tuple[Compared, ...] = ()

    @property
    def rules(self) -> dict[str, tuple[Line, ...]]:
        """The controls that see text alone."""
        return {rule: self.controls[rule] for rule in self.blind if rule in self.controls}

    @property
    def flags(self) -> list[str]:
        return solved_blindly(self.rules)

    @property
    def by(self) -> str:
        """What main tables and figures go through: axes, or their grades one by one where axes have several."""
        mixed = any(line.by == "axis" and line.mixed for lines in _series(self).values() for line in lines)
        return "axis and grade" if mixed else "axis"

    @property
    def kept(self) -> list[tuple[str, str]]:
        """`by` and `value` of the lines that all tables and figures go through."""
        lines = next(iter([*self.answerers.values(), *self.controls.values()]), ())
        return [(line.by, line.value) for line in lines]


def groups(results: Sequence[Result], out: Path | None = None) -> list[Group]:
    """Results that can be set side by side. out: where their answers are, from which models are compared."""
    found: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        measuring = tuple(str(result.measuring[name]) for name in ("rules", "sentences"))
        found.setdefault((result.corpus["name"], result.corpus["digest"], *measuring), []).append(result)
    made = []
    for (corpus, digest, rules, sentences), members in found.items():
        several = len({key for key in found if key[0] == corpus}) > 1
        told = f"{corpus}, items {digest[:8]}, rules {rules}, of several sentences {sentences}" if several else corpus
        models = [result for result in members if result.model]
        names = _names(models)
        named = dict(zip(names, models, strict=True))
        controls = {rule: lines for result in members if not result.model for rule, lines in result.floors.items()}
        for result, label in zip(models, names, strict=True):
            suffix = f" ({label})" if len(models) > 1 else ""
            controls |= {f"{rule}{suffix}": lines for rule, lines in result.floors.items()}
        made.append(
            Group(
                title=told,
                slug=_slug(f"{corpus}-{digest[:8]}-{rules}-{sentences}" if several else corpus),
                results=tuple(members),
                answerers={label: result.lines for label, result in named.items()},
                controls=controls,
                blind=tuple(dict.fromkeys(rule for result in members for rule in result.blind)),
                compared=tuple(_compared(named, out)) if out else (),
                cropped=tuple(_cropped(named, results, out)) if out else (),
            )
        )
    return made


def _names(results: Sequence[Result]) -> list[str]:
    """Of each run its model, and where several runs have that, the run's name."""
    models = [result.model for result in results]
    return [one if models.count(one) == 1 else result.name for one, result in zip(models, results, strict=True)]


def _slug(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text).strip("-.") or "corpus"


def _outcomes(models: Mapping[str, Result], out: Path) -> dict[str, Outcomes]:
    """Of each run its answers, in the order of ids; a run without its answers is left out."""
    found = {}
    for label, result in models.items():
        records = {record.item.id: record for record in read(out / result.name / ANSWERS)}
        if len(records) == result.corpus["items"]:
            ordered = [records[one] for one in sorted(records)]
            items, answers = [record.item for record in ordered], [record.answer for record in ordered]
            how = result.measuring
            found[label] = outcomes(items, answers, how["sentences"], how["tolerance"])
    return found


def _compared(models: Mapping[str, Result], out: Path) -> list[Compared]:
    """Each two models on the same items."""
    return compare(_outcomes(models, out), _seed(models.values())) if len(models) > 1 else []


def _seed(results: Iterable[Result]) -> int:
    return next((int(result.measuring["seed"]) for result in results), 0)


def _cropped(models: Mapping[str, Result], results: Sequence[Result], out: Path) -> list[Compared]:
    """Each model on the cropped pictures of the same items, against the whole ones: what binding costs it."""
    found = []
    for label, whole in models.items():
        name = f"{whole.corpus['name']}{CROPPED}"
        for other in results:
            same = (other.model, other.corpus["name"], other.measuring) == (whole.model, name, whole.measuring)
            if same and other.corpus["items"] == whole.corpus["items"]:
                both = _outcomes({f"{label}{CROPPED}": other, label: whole}, out)
                if len(both) == 2:
                    found += compare(both, _seed([whole]))
    return found


# Tables --------------------------------------------------------------------------------------------------------------


def _text(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def interval_text(value: float | None, low: float | None, high: float | None) -> str:
    """Such as `67.3 [64.1, 70.2]`; empty for None."""
    return "" if value is None else f"{_text(value)} [{_text(low)}, {_text(high)}]"


def _frame(answerers: Mapping[str, Iterable[Line]], keep: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """All numbers of the lines that are kept, a row for each."""
    chosen = set(keep)
    rows = [
        {"answered_by": label, **asdict(line)}
        for label, lines in answerers.items()
        for line in lines
        if (line.by, line.value) in chosen
    ]
    return pd.DataFrame(rows, columns=["answered_by", *(one.name for one in fields(Line))])


COLUMNS = (
    ("", "items"),
    ("", "answered by"),
    ("coverage", "total"),
    ("coverage", "scored"),
    ("coverage", "missing"),
    ("coverage", "unreadable"),
    ("coverage", "failed"),
    ("each item", "right % [95 %]"),
    ("each item", "ties"),
    ("each item", "detectable"),
    ("pairs", "number"),
    ("pairs", "both right % [95 %]"),
    ("pairs", "same sentence %"),
    ("pairs", "decisive %"),
)
NOTES = (
    "Total = scored + missing + unreadable + failed; shares are of what was scored.",
    "Right: true sentences score above false ones; a tie is wrong. Tossing coins: 50 % of items, 25 % of pairs.",
    "Pairs: an item and its mirror, with the same sentences of which the other is true. Same sentence: preferred for "
    "both pictures, so that the text decided. Decisive: both right, of pairs that are both right or both wrong.",
    "Detectable: how many points from a level a model must be to be told from it 4 times in 5.",
    "Intervals: bootstrap over clusters of items that share pictures or are mirrors.",
    "Bold: the interval lies above what every rule reaches that sees text alone.",
)


def _rows(
    answerers: Mapping[str, Sequence[Line]], keep: Sequence[tuple[str, str]], rules: Mapping[str, Sequence[Line]]
) -> Iterator[tuple[Cell, ...]]:
    """A row for each line of each answerer, those of a value together."""
    for by, value in keep:
        best = max((_of(lines, by, value, "single") or 0.0 for lines in rules.values()), default=None)
        for label, lines in answerers.items():
            line = next((one for one in lines if (one.by, one.value) == (by, value)), None)
            if line is None:
                continue
            above = best is not None and line.single_low is not None and line.single_low > best
            mixed = f" (mixes grades {line.mixed})" if line.mixed else ""
            single = interval_text(line.single, line.single_low, line.single_high)
            yield (
                Cell(value + mixed),
                Cell(label),
                *(Cell(f"{n:,}") for n in (line.total, line.scored, line.missing, line.unreadable, line.failed)),
                Cell(single, line.single, bold=above and label not in rules),
                Cell(f"{line.ties:,}"),
                Cell(_text(line.detectable)),
                Cell(f"{line.pairs:,}" if line.pairs else ""),
                Cell(interval_text(line.pair_accuracy, line.pair_low, line.pair_high)),
                Cell(_text(line.same)),
                Cell(_text(line.decisive)),
            )


def _of(lines: Iterable[Line], by: str, value: str, what: str) -> float | None:
    return next((getattr(line, what) for line in lines if (line.by, line.value) == (by, value)), None)


def tables(group: Group) -> list[Table]:
    """Accuracies by axis, in detail, of controls; ITM and the released code's numbers; models compared."""
    main = [(by, value) for by, value in group.kept if by in ("all", group.by)]
    detail = [(by, value) for by, value in group.kept if by not in ("all", group.by)]
    notes = (*NOTES, *(f"Flagged: {flag}." for flag in group.flags))
    corpus = group.results[0].corpus
    notes = (*notes, *(f"Corpus: {note}." for note in corpus["notes"]))
    made = []

    def add(kind: str, title: str, answerers: Mapping[str, Sequence[Line]], keep: Sequence[tuple[str, str]]) -> None:
        if rows := tuple(_rows(answerers, keep, group.rules)):
            data = _frame(answerers, keep)
            made.append(Table(f"{group.slug}-{kind}", f"{group.title}: {title}", COLUMNS, rows, data, notes))

    add("accuracy", "accuracy", group.answerers, main)
    add("floors", "what is reached without a model, or without the picture", group.controls, main)
    add("details", "accuracy by source, grade and other labels", group.answerers, detail)
    more = [
        _averages(group),
        _matching(group, main),
        _comparison(group, group.compared, "compared", "models compared", "Each two models on what both scored."),
        _comparison(group, group.cropped, "binding", "cropped pictures against whole ones", BINDING),
    ]
    made += [table for table in more if table]
    return made


BINDING = "The same pairs, with pictures cropped to what the sentence is about, and whole: what binding costs."


def _averages(group: Group) -> Table | None:
    """VL-CheckList's averages of the accuracies of items, by the rules of its paper."""
    models = [result for result in group.results if result.averages]
    if not models:
        return None
    columns = (("", "answered by"), ("", "average"), ("", "rule"), ("", "right %"), ("", "lacking"))
    data = pd.DataFrame([{"answered_by": result.model, **one} for result in models for one in result.averages])
    rows = tuple(
        (Cell(result.model), *map(Cell, (one["name"], one["rule"], _text(one["value"], 2), ", ".join(one["lacking"]))))
        for result in models
        for one in result.averages
    )
    title = f"{group.title}: averages of the VL-CheckList paper"
    notes = ["Of an axis with several sources: those of one dataset are averaged first, then datasets."]
    if group.by != "axis":
        notes.append("These averages mix grades of negatives, as the paper knows none.")
    return Table(f"{group.slug}-averages", title, columns, rows, data, tuple(notes))


def _matching(group: Group, keep: Sequence[tuple[str, str]]) -> Table | None:
    """ITM, where a model has a threshold, and the released code's counts where these differ from ours."""
    lines = [line for found in group.answerers.values() for line in found]
    if not any(line.itm_accuracy is not None or line.published != line.single for line in lines if line.scored):
        return None
    columns = (
        ("", "items"),
        ("", "answered by"),
        ("", "scored"),
        ("as released", "right %"),
        *(("each sentence alone", what) for what in ("accuracy %", "precision %", "recall %", "F1 %")),
    )
    rows = [
        (
            Cell(value),
            Cell(label),
            Cell(f"{line.scored:,}"),
            *map(Cell, map(_text, (line.published if line.by != "all" or line.value == MICRO else None,
                                   line.itm_accuracy, line.itm_precision, line.itm_recall, line.itm_f1))),
        )
        for by, value in keep
        for label, found in group.answerers.items()
        for line in found
        if (line.by, line.value) == (by, value) and value != MACRO
    ]  # fmt: skip
    notes = (
        "As released: the first true sentence scores above the first false one, however little.",
        "Each sentence alone: it is said to match where its score is above the model's own threshold.",
    )
    title = f"{group.title}: as the released code counts, and each sentence alone"
    return Table(f"{group.slug}-matching", title, columns, tuple(rows), _frame(group.answerers, keep), notes)


def _comparison(group: Group, compared: Sequence[Compared], kind: str, title: str, note: str) -> Table | None:
    if not compared:
        return None
    columns = tuple(
        ("", what)
        for what in ("first", "second", "on", "first %", "second %", "difference [95 %]", "only first", "only second",
                     "p", "p (Holm)", "differ")
    )  # fmt: skip
    rows = tuple(
        (
            Cell(one.first),
            Cell(one.second),
            Cell(f"{one.number:,} {one.of}"),
            Cell(_text(one.first_accuracy)),
            Cell(_text(one.second_accuracy)),
            Cell(f"{one.difference:+.1f} [{one.difference_low:+.1f}, {one.difference_high:+.1f}]"),
            Cell(f"{one.first_only:,}"),
            Cell(f"{one.second_only:,}"),
            Cell(f"{one.p_value:.2g}"),
            Cell(f"{one.adjusted:.2g}"),
            Cell("yes" if one.differs else "no"),
        )
        for one in compared
    )
    notes = (
        note,
        "Pairs: both items right. Only first, only second: clusters of which one model has more right than the other.",
        "p: two-sided exact McNemar test over clusters; Holm: adjusted for the number of comparisons in this table. "
        "Differ: adjusted p below 0.01, and an interval without 0.",
    )
    data = pd.DataFrame([asdict(one) for one in compared])
    return Table(f"{group.slug}-{kind}", f"{group.title}: {title}", columns, rows, data, notes)


def printed(group: Group) -> str:
    """The main numbers of a group as text for a terminal; of controls alone those of all items."""
    keep = [(by, value) for by, value in group.kept if value == MICRO or (group.answerers and by in ("all", group.by))]
    answerers = group.answerers or group.controls
    rows = [("", "items", "right % [95 %]", "pairs right % [95 %]", "ties")]
    for by, value in keep:
        for label, lines in answerers.items():
            for line in (one for one in lines if (one.by, one.value) == (by, value)):
                items = f"{line.scored:,}" if line.scored == line.total else f"{line.scored:,} of {line.total:,}"
                single = interval_text(line.single, line.single_low, line.single_high)
                pair = interval_text(line.pair_accuracy, line.pair_low, line.pair_high)
                mixed = f" (mixes {line.mixed})" if line.mixed else ""
                rows.append((f"{value}{mixed}, {label}", items, single, pair, f"{line.ties:,}"))
        rules = [
            (found, rule, _of(lines, by, value, "pair_accuracy"))
            for rule, lines in group.rules.items()
            if (found := _of(lines, by, value, "single")) is not None
        ]
        if group.answerers and rules:
            best, rule, pairs = max(rules)
            rows.append((f"  text alone at best: {rule}", "", _text(best), _text(pairs), ""))
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    told = ["  ".join(cell.ljust(wide) for cell, wide in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([group.title, *(f"  {line}" for line in said(group)), "", *told])


# Figures -------------------------------------------------------------------------------------------------------------


def _series(group: Group) -> dict[str, tuple[Line, ...]]:
    """What figures show: models, or where there are none the controls."""
    return group.answerers or group.controls


def _axes_of(group: Group) -> list[str]:
    return [value for by, value in group.kept if by == group.by]


def figures(group: Group) -> dict[str, Figure]:
    """Bars and radar chart, by the name of their file; seven answerers to a figure."""
    series = list(_series(group).items())
    found = {}
    for n in range(0, len(series), len(MARKED)):
        part, number = dict(series[n : n + len(MARKED)]), f"-{n // len(MARKED) + 1}" if n else ""
        if any(line.single is not None for lines in part.values() for line in lines):
            found[f"{group.slug}-bars{number}"] = bar_chart(group, part)
            if len(_axes_of(group)) >= 3:
                found[f"{group.slug}-radar{number}"] = radar_chart(group, part)
    return found


def _floor(group: Group, axis: str, measure: str = "single") -> float | None:
    """The most that a rule which sees text alone has right of an axis."""
    found = [value for lines in group.rules.values() if (value := _of(lines, group.by, axis, measure)) is not None]
    return max(found, default=None)


SHOWN_OTHERS = {"blank picture": "o", "other items' pictures": "^"}  # controls of a model, and their markers
HOLLOW: dict[str, Any] = {"color": "black", "markerfacecolor": "white", "markersize": 4, "markeredgewidth": 0.8}
FLOOR_STYLE: dict[str, Any] = {"color": "black", "linewidth": 1.3, "linestyle": (0, (3, 1.5))}


def bar_chart(group: Group, series: Mapping[str, Sequence[Line]]) -> Figure:
    """Accuracy of items and of pairs by axis, with intervals, and the best text-only rule of each axis."""
    axes_names = _axes_of(group)
    pairs = any(line.pairs for lines in series.values() for line in lines)
    measures = ["single", *(["pair_accuracy"] if pairs else [])]
    floors = {measure: [_floor(group, axis, measure) for axis in axes_names] for measure in measures}
    key: list[Artist] = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="black", linewidth=0.5, label=label)
        for label, (colour, _), hatch in zip(series, MARKED, HATCHES, strict=False)
    ]
    if any(value is not None for values in floors.values() for value in values):
        key.append(Line2D([], [], label="best rule that sees text alone", **FLOOR_STYLE))
    key.append(Line2D([], [], color="#888", linewidth=0.8, label="coins"))
    key += [
        Line2D([], [], linestyle="", marker=marker, label=f"shown {rule}", **HOLLOW)
        for rule, marker in SHOWN_OTHERS.items()
        if any(_of_model(group, rule, label) for label in series)
    ]
    wide = max(4.5, len(axes_names) * max(0.85, 0.2 * len(series) + 0.25))
    note = "Whiskers: 95 % bootstrap intervals over clusters of items. Items that were not scored are left out."
    words = {"single": "items right (%)", "pair_accuracy": "pairs with both items right (%)"}
    figure, panels = page([f"Accuracy: {group.title}"], len(measures), [(wide, 1.7)], note=note, key=key,
                          left=0.5, gap=(0.3, 0.75), below=0.75)  # fmt: skip
    for row, measure, coins in zip(panels, measures, CHANCE, strict=False):
        _bars(row[0], group, series, measure)
        row[0].axhline(coins, color="#888", linewidth=0.8)
        for n, level in enumerate(floors[measure]):
            if level is not None:
                row[0].hlines(level, n - 0.45, n + 0.45, zorder=5, **FLOOR_STYLE)
        name(row[0], "", "", words[measure])
    return figure


def _of_model(group: Group, rule: str, label: str) -> Sequence[Line]:
    """The lines of a control of a model, under its name or, of several models, with the model's beside it."""
    own = group.controls.get(f"{rule} ({label})", ())
    return own or (group.controls.get(rule, ()) if len(group.answerers) == 1 else ())


def _bars(axes: Axes, group: Group, series: Mapping[str, Sequence[Line]], measure: str) -> None:
    axes_names = _axes_of(group)
    width = 0.8 / len(series)
    low, high = ("single_low", "single_high") if measure == "single" else ("pair_low", "pair_high")

    def of(lines: Sequence[Line], what: str) -> np.ndarray:
        values = [_of(lines, group.by, axis, what) for axis in axes_names]
        return np.array([np.nan if value is None else value for value in values])

    for n, (label, (colour, _), hatch) in enumerate(zip(series, MARKED, HATCHES, strict=False)):
        lines = series[label]
        here = np.flatnonzero(~np.isnan(of(lines, measure)))
        x = here - 0.4 + width * (n + 0.5)
        if len(here):
            bars(axes, x, 0.0, of(lines, measure)[here], 0.9 * width, colour, hatch, "black")
            whiskers(axes, x, of(lines, low)[here], of(lines, high)[here])
        for rule, marker in SHOWN_OTHERS.items():
            if other := _of_model(group, rule, label):
                places = np.arange(len(axes_names)) - 0.4 + width * (n + (0.3 if marker == "o" else 0.7))
                axes.plot(places, of(other, measure), linestyle="", marker=marker, zorder=6, **HOLLOW)
    axes.set_xticks(range(len(axes_names)), [axis.replace("/", "\n") for axis in axes_names], fontsize=TEXT - 1.5)
    axes.set_xlim(-0.5, len(axes_names) - 0.5)
    percent_axis(axes, 0, 102)


def radar_chart(group: Group, series: Mapping[str, Sequence[Line]]) -> Figure:
    """Accuracy of items by axis on spokes, 0 in the middle to 100 % outside; labels and values from one list."""
    axes_names = _axes_of(group)
    turns = np.linspace(0, 2 * math.pi, len(axes_names), endpoint=False)
    styles = dict(zip(series, MARKED, strict=False))
    key: list[Artist] = [
        Line2D([], [], color=colour, marker=marker, markersize=4, label=label)
        for label, (colour, marker) in styles.items()
    ]
    floor = [_floor(group, axis) for axis in axes_names]
    if any(level is not None for level in floor):
        key.append(Line2D([], [], label="best rule that sees text alone", **FLOOR_STYLE))
    note = "From 0 % in the middle to 100 % outside; rings at 25, 50 (coins), 75 and 100 %. A gap: nothing was scored."
    figure, panels = page([f"Items right by axis: {group.title}"], 1, [(3.4, 3.9)], note=note, key=key,
                          left=1.5, right=1.5, below=0.6 + NOTE_LINE)  # fmt: skip
    flat = panels[0][0]
    left, bottom, width, height = flat.get_position().bounds
    axes = figure.add_axes((left, bottom, width, height * 3.4 / 3.9), projection="polar")  # above it, a label
    flat.remove()
    assert hasattr(axes, "set_theta_zero_location") and hasattr(axes, "set_theta_direction")
    axes.set_theta_zero_location("N")
    axes.set_theta_direction(-1)
    axes.set_ylim(0, 100)
    axes.set_yticks([25, 50, 75, 100], ["25", "50", "75", "100"], fontsize=TEXT - 2)
    axes.set_xticks(turns, [axis.replace("/", "\n") for axis in axes_names], fontsize=TEXT - 1)
    axes.tick_params(axis="x", pad=14)
    axes.plot(np.linspace(0, 2 * math.pi, 181), np.full(181, 50.0), color="#888", linewidth=0.8)

    def draw(levels: Sequence[float | None], **style: Any) -> None:
        values = np.array([np.nan if level is None else level for level in levels])
        axes.plot(np.append(turns, turns[0]), np.append(values, values[0]), **style)

    for label, lines in series.items():
        colour, marker = styles[label]
        values = [_of(lines, group.by, axis, "single") for axis in axes_names]
        draw(values, color=colour, marker=marker, markersize=4, linewidth=1.4, gid=f"radar-{label}")
    if any(level is not None for level in floor):
        draw(floor, **FLOOR_STYLE)
    return figure


# The page ------------------------------------------------------------------------------------------------------------

FRAME = """<!doctype html><!-- a report of analysis.probe -->
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="referrer" content="no-referrer">
<title>{name} · TraVLR probes</title>
<link rel="icon" href="data:,">
{style}
</head>
<body>
<header>
  <p class="eyebrow">TraVLR probes</p>
  <h1>{name}</h1>
  <p class="muted">{lead}</p>
  <nav aria-label="Contents"><ul>{contents}</ul></nav>
</header>
<main>
{body}
</main>
</body>
</html>
"""


@dataclass(frozen=True)
class Content:
    """A group, and what is shown of it; figures by the name of their file."""

    group: Group
    tables: list[Table]
    figures: dict[str, Figure]


def write(out: Path) -> list[Group]:
    """Tables, figures and pages on all runs in a folder, in the place of earlier ones. Returns what they are of."""
    results, skipped = load_results(out)
    contents = [Content(group, tables(group), figures(group)) for group in groups(results, out)]
    files: dict[str, bytes] = {}
    for content in contents:
        for table in content.tables:
            files[f"tables/{table.name}.md"] = table.markdown().encode()
            files[f"tables/{table.name}.csv"] = table.csv().encode()
        for file, figure in content.figures.items():
            save(figure, out / "figures", file, FORMATS)
    files[TEXT_PAGE] = markdown(contents, skipped).encode()
    files[PAGE] = html_page(out, contents, skipped).encode()
    for file, data in files.items():
        path = out / file
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        temporary.write_bytes(data)
        temporary.replace(path)
    return [content.group for content in contents]


def said(group: Group) -> list[str]:
    """What must be read before the numbers of a group: what was not scored, what a blind rule solves, notes."""
    lines = [f"FLAGGED as solvable without looking: {flag}" for flag in group.flags]
    lines += [f"Flagged is where {FLAG}."] if group.flags else []
    for label, result in zip(group.answerers, [one for one in group.results if one.model], strict=True):
        if (all_items := result.coverage) and all_items.scored < all_items.total:
            lines.append(f"{label}: {coverage_text(all_items)}")
    if any(line.mixed for found in _series(group).values() for line in found):
        lines.append("Lines that mix grades of negatives say so, averages among them; read the grades one by one.")
    return [*lines, *group.results[0].corpus["notes"]]


def coverage_text(line: Line) -> str:
    """Such as `total 40 = scored 30 + missing 10 + unreadable 0 + failed 0`."""
    return (
        f"total {line.total:,} = scored {line.scored:,} + missing {line.missing:,} + unreadable {line.unreadable:,} "
        f"+ failed {line.failed:,}"
    )


def markdown(contents: Sequence[Content], skipped: Sequence[str]) -> str:
    """The report for a reader of plain text."""
    lines = ["# Report of probes", ""]
    for content in contents:
        group = content.group
        lines += [f"## {plain(group.title)}", "", *(f"- {plain(line)}" for line in said(group)), ""]
        for table in content.tables:
            lines += [table.markdown(), ""]
        lines += [f"![{plain(file)}](figures/{file}.png)\n" for file in content.figures]
        lines += ["Runs:", "", *(f"- {plain(line)}" for line in map(_about, group.results)), ""]
    lines += ["## Left out", "", *([f"- {plain(line)}" for line in skipped] or ["Nothing."])]
    return "\n".join(lines) + "\n"


def _about(result: Result) -> str:
    """A run in a line: what, with what, on which items."""
    about = {**result.measuring, **result.about, "items": result.corpus["items"], "digest": result.corpus["digest"]}
    told = ", ".join(f"{name} {_brief(value)}" for name, value in about.items() if value not in (None, "", {}))
    return f"{result.name}: {result.model or 'controls alone'}; {told}"


def _brief(value: Any) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{name} {_brief(one)}" for name, one in value.items()) + ")"
    return f"{value:g}" if isinstance(value, float) else str(value)


def html_page(out: Path, contents: Sequence[Content], skipped: Sequence[str]) -> str:
    """One file that loads nothing else and runs no script; all text of corpora and models is escaped.

    out: the folder of the report, in which its figures are.
    """
    style = re.search(r"<style>.*?</style>", with_shared(TEMPLATE), re.DOTALL)  # that of analysis.report
    body, links = [], []
    for content in contents:
        group = content.group
        links.append(f'<li><a href="#{group.slug}">{html.escape(group.title)}</a></li>')
        body.append(f'<section id="{group.slug}"><h2>{html.escape(group.title)}</h2>{listed(said(group))}')
        body.append(f'<div class="figures">{"".join(_picture(*one, out) for one in content.figures.items())}</div>')
        body += map(_html_table, content.tables)
        body.append(f"<details open><summary>Runs</summary>{listed(map(_about, group.results))}</details></section>")
    left = f"<section><h2>Left out</h2>{listed(skipped)}</section>" if skipped else ""
    models = len({result.model for content in contents for result in content.group.results if result.model})
    return FRAME.format(
        policy=POLICY,
        name=html.escape(out.resolve().name),
        style=style[0] if style else "",
        lead=f"{models} model{'s' * (models != 1)} on {len(contents)} corp{'ora' if len(contents) != 1 else 'us'}: "
        "which of two sentences fits a picture, without fine-tuning",
        contents="".join(links),
        body="\n".join(body) + left,
    )


def _html_table(table: Table) -> str:
    files = " ".join(f'<a href="tables/{table.name}.{s}">{s}</a>' for s in ("md", "csv"))
    notes = f"<details><summary>Notes</summary>{listed(table.said)}</details>"
    title = html.escape(table.title)
    scrolled = f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">{table.html()}</div>'
    return f'<section id="{table.name}" class="block">{scrolled}{notes}<p class="files">{files}</p></section>\n'


def _picture(file: str, figure: Figure, out: Path) -> str:
    data = (out / "figures" / f"{file}.png").read_bytes()
    wide, tall = (int(96 * size) for size in figure.get_size_inches())
    alt = html.escape("; ".join(text.get_text() for text in figure.texts))
    links = " ".join(f'<a href="figures/{file}.{s}">{s}</a>' for s in FORMATS)
    encoded = base64.b64encode(data).decode()
    return (
        f'<figure id="{file}"><img width="{wide}" height="{tall}" alt="{alt}" src="data:image/png;base64,{encoded}">'
        f'<figcaption>{html.escape(file)} <span class="files">{links}</span></figcaption></figure>\n'
    )
