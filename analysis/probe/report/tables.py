"""Tables of a group of results, and its main numbers for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import pandas as pd

from analysis.layout import Cell, Table
from analysis.probe.report.metrics import AXIS_GRADE, FLAG, MACRO, MICRO, MetricRow, ModelComparison
from analysis.probe.report.results import Group, number

LARGE = 0.1  # of all items: a cluster that makes intervals rough
SMALL = 0.5  # p(yes) + p(no), below which most replies begin with another word
RARE = (
    ". So it begins its replies with other words, as a model does that thinks before it answers, and its scores say "
    "little; ask it otherwise with question="
)
FEW = 30  # clusters: with fewer, intervals are rough
OTHERS = ("blank picture", "other items' pictures")  # what a model is shown as a floor


def _text(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def interval_text(value: float | None, low: float | None, high: float | None) -> str:
    """Such as `67.3 [64.1, 70.2]`; empty for None, and without the interval where a result has none."""
    return _text(value) if value is None or low is None else f"{_text(value)} [{_text(low)}, {_text(high)}]"


def _frame(answerers: Mapping[str, Iterable[MetricRow]], keep: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """All numbers of the lines that are kept, a row for each."""
    chosen = set(keep)
    rows = [
        {"answered_by": label, **asdict(line)}
        for label, lines in answerers.items()
        for line in lines
        if (line.by, line.value) in chosen
    ]
    return pd.DataFrame(rows, columns=["answered_by", *(one.name for one in fields(MetricRow))])


COVERAGE = "total = scored + missing + unreadable + failed"
COLUMNS = (
    ("", "items"),
    ("", "answered by"),
    ("", COVERAGE),
    ("items", "right % [95 %]"),
    ("items", "blind rule"),
    ("items", "salience rule"),
    ("items", "blank picture"),
    ("items", "other pictures"),
    ("items", "ties"),
    ("items", "detectable"),
    ("pairs", "number"),
    ("pairs", "both right % [95 %]"),
    ("pairs", "blind rule"),
    ("pairs", "salience rule"),
    ("pairs", "same sentence %"),
    ("pairs", "decisive %"),
)
COINS = 50.0  # percent of items that tossing coins has right
FIRST = 4  # columns that are there even if they are empty, as others are not
BESIDE = (4, 5, 6, 7, 12, 13)  # the columns of floors, which a table of floors has not
NOTES = (
    "Shares are of what was scored.",
    "Right: true sentences score above false ones; a tie is wrong. Tossing coins: 50 % of items, 25 % of pairs.",
    "Pairs: an item and its mirror, with the same sentences of which the other is true. Same sentence: preferred for "
    "both pictures, so that the text decided. Decisive: both right, of pairs that are both right or both wrong.",
    "Detectable: how many points from a level a model must be to be told from it 4 times in 5.",
    "Intervals take items that share a picture, and mirrors, as dependent: bootstrap over clusters of these; where "
    "pictures and pairs cross, Wilson's interval with the two-way cluster-robust variance.",
)
OF_MODELS = (
    "Blind rule: the most that a rule has right which reads the sentences alone, scored or not, and its name where no "
    "other has as much. Salience rule: the same of two rules that see which words are shown large, or in the middle of "
    "a picture of our scenes, and bind nothing. Blank picture, other pictures: what the model itself has right when it "
    "is shown those.",
    "Bold: the most that a model has right of these items, where its interval lies above what every blind rule, every "
    "salience rule and tossing coins reach. By luck alone, one line in forty is bold.",
)


def _rows(group: Group, keep: Sequence[tuple[str, str]]) -> Iterator[tuple[Cell, ...]]:
    """A row for each line of each model, those of a value together."""
    blind, salient = group.blind_rules, group.salience_rules
    for by, value in keep:
        best, told = _best(blind, by, value, "single")
        level = max(best or 0.0, _best(salient, by, value, "single")[0] or 0.0, COINS)
        most = max((one.single or 0.0 for lines in group.answerers.values() for one in lines
                     if (one.by, one.value) == (by, value)), default=0.0)  # fmt: skip
        for label, lines in group.answerers.items():
            for line in (one for one in lines if (one.by, one.value) == (by, value)):
                above = best is not None and line.single_low is not None and line.single_low > level
                others = [_text(number(group.beside(floor, label), by, value, "single")) for floor in OTHERS]
                cells = list(_cells(line, label, bold=above and line.single == most))
                cells[4:4] = map(Cell, (told, _best(salient, by, value, "single")[1], *others))
                cells[12:12] = [Cell(_best(rules, by, value, "pair_accuracy")[1]) for rules in (blind, salient)]
                yield tuple(cells)


def _floor_rows(group: Group, keep: Sequence[tuple[str, str]]) -> Iterator[tuple[Cell, ...]]:
    for by, value in keep:
        for label, lines in group.floors.items():
            yield from (_cells(line, label) for line in lines if (line.by, line.value) == (by, value))


def _cells(line: MetricRow, label: str, bold: bool = False) -> tuple[Cell, ...]:
    """The numbers of a line, without those beside it."""
    parts = (line.total, line.scored, line.missing, line.unreadable, line.failed)
    return (
        Cell(value_text(line)),
        Cell(label),
        Cell(" + ".join(f"{n:,}" for n in parts).replace(" + ", " = ", 1)),
        Cell(interval_text(line.single, line.single_low, line.single_high), line.single, bold=bold),
        Cell(f"{line.ties:,}"),
        Cell(_text(line.detectable)),
        Cell(f"{line.pairs:,}" if line.pairs else ""),
        Cell(interval_text(line.pair_accuracy, line.pair_low, line.pair_high)),
        Cell(_text(line.same)),
        Cell(_text(line.decisive)),
    )


def value_text(line: MetricRow) -> str:
    """Which items a line is of, such as `subject: Man`, with what it mixes."""
    named = line.by in ("all", "axis", "axis and source", AXIS_GRADE)
    mixed = f" (mixes {line.mixed.replace(' and ', ', ')})" if line.mixed else ""
    return f"{'' if named else f'{line.by}: '}{line.value}{mixed}"


def _best(rules: Mapping[str, Iterable[MetricRow]], by: str, value: str, what: str) -> tuple[float | None, str]:
    """The most that one of these rules reaches, and this as text, with the rule's name where it is the only one."""
    found = {rule: reached for rule, lines in rules.items()
             if (reached := number(lines, by, value, what)) is not None}  # fmt: skip
    best = max(found.values(), default=None)
    names = [rule for rule, reached in found.items() if reached == best]
    return best, f"{_text(best)}{f' {names[0]}' if len(names) == 1 < len(found) else ''}"


def overview(groups: Sequence[Group]) -> Table | None:
    """All models, or where there are none the floors, on all items of each corpus; None where nothing was measured."""
    keep = [("all", MICRO)]
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        found = _rows(group, keep) if group.answerers else map(_with_room, _floor_rows(group, keep))
        rows += [(Cell(group.title), *row[1:]) for row in found]
    columns = (("", "corpus"), *COLUMNS[1:])
    kept = [n for n in range(len(columns)) if n < FIRST or any(row[n].text for row in rows)]
    shown = tuple(tuple(row[n] for n in kept) for row in rows)
    data = pd.concat([_frame(group.series, keep).assign(corpus=group.title) for group in groups]) if rows else None
    title = "Items and pairs right, of all items"
    if data is None:
        return None
    return Table("scores", title, tuple(columns[n] for n in kept), shown, data, (*NOTES, *OF_MODELS))


def _with_room(row: Sequence[Cell]) -> tuple[Cell, ...]:
    """A row of floors with the cells of `BESIDE`, empty."""
    cells = list(row)
    for place in BESIDE:
        cells.insert(place, Cell())
    return tuple(cells)


def tables(group: Group) -> list[Table]:
    """Accuracies by axis, in detail, of floors; ITM and the released code's numbers; models compared."""
    main = [(by, value) for by, value in group.kept if by in ("all", group.by)]
    detail = [(by, value) for by, value in group.kept if by not in ("all", group.by)]
    flagged = tuple(f"Flagged: {flag}." for flag in group.flags)
    corpus = tuple(f"Corpus: {note.removesuffix('.')}." for note in group.results[0].corpus["notes"])
    made: list[Table | None] = []

    def add(kind: str, title: str, columns: Any, rows: Any, data: pd.DataFrame, notes: tuple[str, ...]) -> None:
        if found := tuple(rows):
            kept = [n for n in range(len(columns)) if n < FIRST or any(row[n].text for row in found)]
            heads, found = tuple(columns[n] for n in kept), tuple(tuple(row[n] for n in kept) for row in found)
            made.append(Table(f"{group.slug}-{kind}", f"{group.title}: {title}", heads, found, data, notes))

    notes = (*NOTES, *OF_MODELS, *flagged, *corpus)
    add("accuracy", "accuracy", COLUMNS, _rows(group, main), _frame(group.answerers, main), notes)
    made += [
        _matching(group, main),
        _comparison(group, group.compared, "compared", "models compared", "Each two models on what both scored."),
        _comparison(group, group.cropped, "binding", "cropped pictures against whole ones", BINDING),
        _averages(group),
    ]
    data = _frame(group.answerers, detail)
    add("details", "accuracy by source, grade and other labels", COLUMNS, _rows(group, detail), data, notes)
    columns = tuple(column for n, column in enumerate(COLUMNS) if n not in BESIDE)
    rows, data = _floor_rows(group, main), _frame(group.floors, group.kept)
    notes = (*NOTES, *_meanings(group), *flagged, *corpus)
    add("floors", "floors, what is reached without a model or without the right picture", columns, rows, data, notes)
    return [table for table in made if table]


def _meanings(group: Group) -> list[str]:
    """What the floors are that no model gives."""
    from analysis.probe.report.baselines import RULES

    told = [
        f"{rule}: {RULES[rule]}{' (a blind rule)' * (rule in group.blind)}" for rule in group.floors if rule in RULES
    ]
    return [f"{'; '.join(told)}."] if told else []


BINDING = "The same pairs, with pictures cropped to what the sentence is about, and whole: what binding costs."


def _averages(group: Group) -> Table | None:
    """VL-CheckList's averages of the accuracies of items, by the rules of its paper."""
    models = zip(group.answerers, (result for result in group.results if result.model), strict=True)
    averages = [(label, one) for label, result in models for one in result.averages]
    rows = tuple(
        (Cell(label), Cell(one["name"]), Cell(one["rule"]), Cell(_text(one["value"], 2)))
        for label, one in averages
        if one["value"] is not None
    )
    if not rows:
        return None
    notes = ["Of an axis with several sources: those of one dataset are averaged first, then datasets."]
    if group.by != "axis":
        notes.append("These averages mix grades of negatives, as the paper knows none.")
    if without := dict.fromkeys(one["name"] for _, one in averages if one["value"] is None):
        notes.append(f"Without a number, as axes are lacking (the CSV has which): {'; '.join(without)}.")
    columns = (("", "answered by"), ("", "average"), ("", "rule"), ("", "right %"))
    data = pd.DataFrame([{"answered_by": label, **one} for label, one in averages])
    title = f"{group.title}: averages of the VL-CheckList paper"
    return Table(f"{group.slug}-averages", title, columns, rows, data, tuple(notes))


def _matching(group: Group, keep: Sequence[tuple[str, str]]) -> Table | None:
    """ITM, where a model has a threshold, and the released code's counts where these differ from ours."""
    found = [
        (label, line)
        for by, value in keep
        if value != MACRO
        for label, lines in group.answerers.items()
        for line in lines
        if (line.by, line.value) == (by, value)
    ]
    alone = any(line.itm_accuracy is not None for _, line in found)
    released = any(line.published != line.single for _, line in found)
    if not alone and not released:
        return None
    columns = [("", "items"), ("", "answered by"), ("", "scored")]
    columns += [("as released", "right %")] * released
    whats = ("right % [95 %]", "precision %", "recall %", "F1 %")
    columns += [("each sentence alone", what) for what in whats] * alone
    rows = []
    for label, line in found:
        texts = [value_text(line), label, f"{line.scored:,}", *([_text(line.published)] * released)]
        if alone:
            texts.append(interval_text(line.itm_accuracy, line.itm_low, line.itm_high))
            texts += map(_text, (line.itm_precision, line.itm_recall, line.itm_f1))
        rows.append(tuple(map(Cell, texts)))
    notes = ["As released: the first true sentence scores above the first false one, however little."] * released
    notes += ["Each sentence alone: it is said to match where its score is above the model's own threshold."] * alone
    told = " and ".join(["as the released code counts"] * released + ["each sentence alone (ITM)"] * alone)
    title = f"{group.title}: {told}"
    data = _frame(group.answerers, keep)
    of_table = ["answered_by", "by", "value", "total", "scored", "published"]
    data = data[[*of_table, *(name for name in data.columns if name.startswith("itm_"))]]
    return Table(f"{group.slug}-matching", title, tuple(columns), tuple(rows), data, tuple(notes))


def _comparison(group: Group, compared: Sequence[ModelComparison], kind: str, title: str, note: str) -> Table | None:
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
        "Pairs: both items right. Only first, only second: clusters of which one model has more right than the other; "
        "where pictures and pairs cross, pairs or items that one model alone has right.",
        "p: two-sided exact McNemar test over clusters; where pictures and pairs cross, McNemar's test with the "
        "two-way cluster-robust variance. Holm: adjusted for the number of comparisons in this table. Differ: "
        "adjusted p below 0.01, and an interval without 0.",
    )
    data = pd.DataFrame([asdict(one) for one in compared])
    return Table(f"{group.slug}-{kind}", f"{group.title}: {title}", columns, rows, data, notes)


# For a terminal ------------------------------------------------------------------------------------------------------


def terminal_summary(group: Group) -> str:
    """The main numbers of a group as text for a terminal; of floors alone those of all items."""
    keep = [(by, value) for by, value in group.kept if value == MICRO or (group.answerers and by in ("all", group.by))]
    beside = {"blind rule": group.blind_rules, "salience rule": group.salience_rules} if group.answerers else {}
    beside, matching = {head: rules for head, rules in beside.items() if rules}, group.matching
    heads = ["", "", "items", "right % [95 %]", *beside, *(["sentences right % [95 %]"] * matching)]
    rows = [[*heads, "pairs right % [95 %]", *beside, "ties"]]
    for by, value in keep:
        single, pair = (
            [_best(rules, by, value, what)[1] for rules in beside.values()] for what in ("single", "pair_accuracy")
        )
        shown = ""
        for label, lines in group.series.items():
            for line in (one for one in lines if (one.by, one.value) == (by, value)):
                items = f"{line.scored:,}" if line.scored == line.total else f"{line.scored:,} of {line.total:,}"
                first = value_text(line)
                alone = [interval_text(line.itm_accuracy, line.itm_low, line.itm_high)] * matching
                right = interval_text(line.single, line.single_low, line.single_high)
                pairs = interval_text(line.pair_accuracy, line.pair_low, line.pair_high)
                ties = f"{line.ties:,}"
                rows.append(["" if first == shown else first, label, items, right, *single, *alone, pairs, *pair, ties])
                shown = first
    columns = [n for n in range(len(rows[0])) if n < 3 or any(row[n] for row in rows[1:])]
    widths = {n: max(len(row[n]) for row in rows) for n in columns}
    told = ["  ".join(row[n].ljust(widths[n]) for n in columns).rstrip() for row in rows]
    return "\n".join([group.title, *(f"  {line}" for line in warnings(group)), "", *told])


def warnings(group: Group) -> list[str]:
    """What must be read before the numbers of a group: what was not scored, what a blind rule solves, notes."""
    lines = [f"FLAGGED as solvable without looking: {flag}" for flag in group.flags]
    lines += [f"Flagged is where {FLAG}."] if group.flags else []
    models = [one for one in group.results if one.model]
    for label, result in zip(group.answerers, models, strict=True):
        if (all_items := result.coverage) and all_items.scored < all_items.total:
            why = f"; the first is {result.unscored}" if result.unscored else ""
            lines.append(f"{label}: {all_items.coverage}{why}")
    for label, result in zip(group.answerers, models, strict=True):
        if (share := result.yes_or_no) is not None:
            lines.append(f"{label}: p(yes) + p(no) is {share:.3f} on average{RARE * (share < SMALL)}")
    if len({result.coverage.scored for result in group.results if result.model and result.coverage}) > 1:
        lines.append(
            "Not every model scored the same items: their numbers are of different ones. Compared are they on "
            "what both scored."
        )
    if any(line.mixed for found in group.series.values() for line in found):
        lines.append("Lines that mix grades of negatives say so, averages among them; read the grades one by one.")
    every = [line for found in group.series.values() for line in found if line.value == MICRO]
    if all_items := max(every, key=lambda line: line.largest, default=None):
        lines += _rough(all_items)
    return [*lines, *group.results[0].corpus["notes"]]


def _rough(line: MetricRow) -> Iterator[str]:
    """Why intervals are rough, where they are."""
    if line.largest > LARGE * line.scored and line.largest * line.clusters > 2 * line.scored:  # not where all are large
        yield (
            f"{line.largest:,} of {line.scored:,} items are one cluster, as they share a picture or a pair: where one "
            "holds so many, intervals are rough."
        )
    elif 0 < line.clusters < FEW:
        clusters = f"{line.clusters} cluster{'s' * (line.clusters > 1)}"
        yield (
            f"All {line.scored:,} items are of {clusters}, each of a shared picture or pair: with fewer than {FEW}, "
            "intervals are rough."
        )
