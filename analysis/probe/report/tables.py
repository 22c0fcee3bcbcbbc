"""Tables of a group of results, and its main numbers for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace

import pandas as pd

from analysis.layout import Cell, Table
from analysis.probe.report.comparison import ModelComparison
from analysis.probe.report.metrics import AXIS_GRADE, FLAG, MACRO, MICRO, MetricRow
from analysis.probe.report.results import Group, number

LARGE = 0.1  # part of all items; a larger cluster makes intervals rough
SMALL = 0.5  # p(yes) + p(no); below it most replies begin with another word
RARE = (
    ". So it begins its replies with other words, for example to think before it answers, and its scores mean little; "
    "change question="
)
FEW = 30  # clusters: with fewer, intervals are rough
OTHERS = {"blank picture": "blank picture", "other pictures": "other items' pictures"}  # columns and their baselines


def _text(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def interval_text(value: float | None, low: float | None, high: float | None) -> str:
    """Such as `67.3 [64.1, 70.2]`; empty for None, and without the interval where a result has none."""
    return _text(value) if value is None or low is None else f"{_text(value)} [{_text(low)}, {_text(high)}]"


def _frame(series: Mapping[str, Iterable[MetricRow]], keep: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """All metrics of the rows in `keep`."""
    chosen = set(keep)
    rows = [
        {"answered_by": label, **asdict(line)}
        for label, lines in series.items()
        for line in lines
        if (line.by, line.value) in chosen
    ]
    return pd.DataFrame(rows, columns=["answered_by", *(one.name for one in fields(MetricRow))])


COVERAGE = "total = scored + missing + unreadable + failed"
Column = tuple[str, str]
VALUE, BY, TOTAL, RIGHT = ("", "items"), ("", "answered by"), ("", COVERAGE), ("items", "right % [95 %]")
COLUMNS: tuple[Column, ...] = (
    VALUE,
    BY,
    TOTAL,
    RIGHT,
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
Row = dict[Column, Cell]
"""A row by column; cells that are not there are empty. A column that is empty in all rows is not shown."""
COINS = 50.0  # percent of items right by chance
NOTES = (
    "Shares are of what was scored.",
    "Right: true sentences score above false ones; a tie is wrong. Tossing coins: 50 % of items, 25 % of pairs.",
    "Pairs: an item and its mirror, with the same sentences of which the other is true. Same sentence: preferred for "
    "both pictures, so that the text decided. Decisive: both right, of pairs that are both right or both wrong.",
    "Detectable: the difference from a level, in points, that is detected with a power of 80 %.",
    "Intervals treat items that share a picture, and mirrors, as dependent: bootstrap over clusters of these; where "
    "pictures and pairs cross, Wilson's interval with the two-way cluster-robust variance.",
)
OF_MODELS = (
    "Blind rule: the best accuracy of a rule that reads the sentences alone, on all items, and its name if it is the "
    "only best one. Salience rule: the same for two rules that see which words are shown large or in the middle of a "
    "picture of our scenes, but not which belong together. Blank picture, other pictures: the model's accuracy when it "
    "sees these.",
    "Bold: the best model on these items, if its interval lies above chance and above every blind and salience rule. "
    "By chance alone, one row in forty is bold.",
)


def _rows(group: Group, keep: Sequence[tuple[str, str]]) -> Iterator[Row]:
    """The rows of all models, grouped by value."""
    rules = {"blind rule": group.blind_rules, "salience rule": group.salience_rules}
    for by, value in keep:
        best = {(of, rule): _best(lines, by, value, metric) for rule, lines in rules.items()
                for of, metric in (("items", "single"), ("pairs", "pair_accuracy"))}  # fmt: skip
        (blind, _), (salient, _) = (best["items", rule] for rule in rules)
        level = max(blind or 0.0, salient or 0.0, COINS)
        chosen = list(_lines_of(group.models, by, value))
        highest = max((line.single or 0.0 for _, line in chosen), default=0.0)
        for label, line in chosen:
            above = blind is not None and line.single_low is not None and line.single_low > level
            row = _row(line, label, bold=above and line.single == highest)
            row |= {column: Cell(text) for column, (_, text) in best.items()}
            for name, baseline in OTHERS.items():
                accuracy = number(group.with_other_pictures(baseline, label), by, value, "single")
                row["items", name] = Cell(_text(accuracy))
            yield row


def _baseline_rows(group: Group, keep: Sequence[tuple[str, str]]) -> Iterator[Row]:
    return (_row(line, label) for key in keep for label, line in _lines_of(group.baselines, *key))


def _lines_of(series: Mapping[str, Iterable[MetricRow]], by: str, value: str) -> Iterator[tuple[str, MetricRow]]:
    """The lines of a group of items, each with its label."""
    return ((label, one) for label, lines in series.items() for one in lines if (one.by, one.value) == (by, value))


def _row(line: MetricRow, label: str, bold: bool = False) -> Row:
    """The row of a line, without the columns of baselines."""
    parts = (line.total, line.scored, line.missing, line.unreadable, line.failed)
    return {
        VALUE: Cell(value_text(line)),
        BY: Cell(label),
        TOTAL: Cell(" + ".join(f"{n:,}" for n in parts).replace(" + ", " = ", 1)),
        RIGHT: Cell(interval_text(line.single, line.single_low, line.single_high), line.single, bold=bold),
        ("items", "ties"): Cell(f"{line.ties:,}"),
        ("items", "detectable"): Cell(_text(line.detectable)),
        ("pairs", "number"): Cell(f"{line.pairs:,}" if line.pairs else ""),
        ("pairs", "both right % [95 %]"): Cell(interval_text(line.pair_accuracy, line.pair_low, line.pair_high)),
        ("pairs", "same sentence %"): Cell(_text(line.same)),
        ("pairs", "decisive %"): Cell(_text(line.decisive)),
    }


def _table(name: str, title: str, rows: Sequence[Row], data: pd.DataFrame, notes: Iterable[str]) -> Table:
    shown = (VALUE, BY, TOTAL, RIGHT)
    used = [c for c in COLUMNS if c in shown or any(row.get(c, Cell()).text for row in rows)]
    cells = tuple(tuple(row.get(column, Cell()) for column in used) for row in rows)
    return Table(name, title, tuple(used), cells, data, tuple(notes))


def value_text(line: MetricRow) -> str:
    """The group of a row, such as `subject: Man`, with the grades that it mixes."""
    plain = line.by in ("all", "axis", "axis and source", AXIS_GRADE)
    mixed = f" (mixes {line.mixed.replace(' and ', ', ')})" if line.mixed else ""
    return f"{'' if plain else f'{line.by}: '}{line.value}{mixed}"


def _best(rules: Mapping[str, Iterable[MetricRow]], by: str, value: str, metric: str) -> tuple[float | None, str]:
    """The best value of some rules, and this as text, with the rule's name if it is the only best one."""
    values = {rule: reached for rule, lines in rules.items()
             if (reached := number(lines, by, value, metric)) is not None}  # fmt: skip
    best = max(values.values(), default=None)
    names = [rule for rule, reached in values.items() if reached == best]
    return best, f"{_text(best)}{f' {names[0]}' if len(names) == 1 < len(values) else ''}"


def overview(groups: Sequence[Group]) -> Table | None:
    """All models (baselines of a corpus without any) on all items of each corpus; None without results."""
    keep = [("all", MICRO)]
    rows = [
        row | {VALUE: Cell(group.title)}
        for group in groups
        for row in (_rows(group, keep) if group.models else _baseline_rows(group, keep))
    ]
    if not rows:
        return None
    data = pd.concat([_frame(group.series, keep).assign(corpus=group.title) for group in groups])
    table = _table("scores", "Items and pairs right, of all items", rows, data, (*NOTES, *OF_MODELS))
    return replace(table, columns=(("", "corpus"), *table.columns[1:]))


def tables(group: Group) -> list[Table]:
    """Tables of accuracies by axis, in detail and of baselines; of ITM and the released code's counts; of
    comparisons."""
    main = [(by, value) for by, value in group.keys if by in ("all", group.by)]
    detail = [(by, value) for by, value in group.keys if by not in ("all", group.by)]
    corpus = [f"Flagged: {flag}." for flag in group.flags]
    corpus += [f"Corpus: {note.removesuffix('.')}." for note in group.results[0].corpus["notes"]]

    def table(kind: str, title: str, rows: Iterator[Row], data: pd.DataFrame, notes: Iterable[str]) -> Table | None:
        found = list(rows)
        return _table(f"{group.slug}-{kind}", f"{group.title}: {title}", found, data, notes) if found else None

    notes, about_rules = (*NOTES, *OF_MODELS, *corpus), (*NOTES, *_meanings(group), *corpus)
    by_source = "accuracy by source, grade and other labels"
    baselines = "baselines, without a model or without the right picture"
    result = [
        table("accuracy", "accuracy", _rows(group, main), _frame(group.models, main), notes),
        _matching(group, main),
        _comparison(group, group.comparisons, "compared", "models compared", "Each two models on what both scored."),
        _comparison(group, group.cropped, "binding", "cropped pictures against whole ones", BINDING),
        _averages(group),
        table("details", by_source, _rows(group, detail), _frame(group.models, detail), notes),
        table("floors", baselines, _baseline_rows(group, main), _frame(group.baselines, group.keys), about_rules),
    ]
    return [one for one in result if one]


def _meanings(group: Group) -> list[str]:
    """Descriptions of the rules."""
    from analysis.probe.report.baselines import RULES

    lines = [
        f"{rule}: {RULES[rule]}{' (a blind rule)' * (rule in group.blind)}" for rule in group.baselines if rule in RULES
    ]
    return [f"{'; '.join(lines)}."] if lines else []


BINDING = "The same pairs, with pictures cropped to the sentence's objects and with whole ones: the cost of binding."


def _averages(group: Group) -> Table | None:
    """The averages of item accuracies in VL-CheckList's paper."""
    models = zip(group.models, (result for result in group.results if result.model), strict=True)
    averages = [(label, one) for label, result in models for one in result.averages]
    rows = tuple(
        (Cell(label), Cell(one["name"]), Cell(one["rule"]), Cell(_text(one["value"], 2)))
        for label, one in averages
        if one["value"] is not None
    )
    if not rows:
        return None
    notes = ["An axis with several sources: the mean over datasets of the mean over the sources of each."]
    if group.by != "axis":
        notes.append("These averages mix grades of negatives, which the paper does not have.")
    if without := dict.fromkeys(one["name"] for _, one in averages if one["value"] is None):
        notes.append(f"Without a number, as axes are missing (listed in the CSV): {'; '.join(without)}.")
    columns = (("", "answered by"), ("", "average"), ("", "rule"), ("", "right %"))
    data = pd.DataFrame([{"answered_by": label, **one} for label, one in averages])
    title = f"{group.title}: averages of the VL-CheckList paper"
    return Table(f"{group.slug}-averages", title, columns, rows, data, tuple(notes))


def _matching(group: Group, keep: Sequence[tuple[str, str]]) -> Table | None:
    """ITM, if a model has a threshold, and the released code's counts, if they differ from ours."""
    found = [one for by, value in keep if value != MACRO for one in _lines_of(group.models, by, value)]
    alone = any(line.itm_accuracy is not None for _, line in found)
    released = any(line.published != line.single for _, line in found)
    if not alone and not released:
        return None
    columns = [("", "items"), ("", "answered by"), ("", "scored")]
    columns += [("as released", "right %")] * released
    metrics = ("right % [95 %]", "precision %", "recall %", "F1 %")
    columns += [("each sentence alone", what) for what in metrics] * alone
    rows = []
    for label, line in found:
        texts = [value_text(line), label, f"{line.scored:,}", *([_text(line.published)] * released)]
        if alone:
            texts.append(interval_text(line.itm_accuracy, line.itm_low, line.itm_high))
            texts += map(_text, (line.itm_precision, line.itm_recall, line.itm_f1))
        rows.append(tuple(map(Cell, texts)))
    notes = ["As released: the first true sentence scores above the first false one, by any margin."] * released
    notes += ["Each sentence alone: it matches if its score is above the model's threshold."] * alone
    what = " and ".join(["as the released code counts"] * released + ["each sentence alone (ITM)"] * alone)
    title = f"{group.title}: {what}"
    data = _frame(group.models, keep)
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
        "Pairs: both items right. Only first, only second: clusters of which this model has more right; where pictures "
        "and pairs cross, pairs or items that only this model has right.",
        "p: two-sided exact McNemar test over clusters; where pictures and pairs cross, McNemar's test with the "
        "two-way cluster-robust variance. Holm: adjusted for the number of comparisons in this table. Differ: "
        "adjusted p below 0.01, and an interval without 0.",
    )
    data = pd.DataFrame([asdict(one) for one in compared])
    return Table(f"{group.slug}-{kind}", f"{group.title}: {title}", columns, rows, data, notes)


# For a terminal ------------------------------------------------------------------------------------------------------


def terminal_summary(group: Group) -> str:
    """The main metrics of a group as text for a terminal; without models those of the baselines on all items."""
    keep = [(by, value) for by, value in group.keys if value == MICRO or (group.models and by in ("all", group.by))]
    rule_columns = {"blind rule": group.blind_rules, "salience rule": group.salience_rules} if group.models else {}
    rule_columns, matching = {head: rules for head, rules in rule_columns.items() if rules}, group.matching
    heads = ["", "", "items", "right % [95 %]", *rule_columns, *(["sentences right % [95 %]"] * matching)]
    rows = [[*heads, "pairs right % [95 %]", *rule_columns, "ties"]]
    for by, value in keep:
        single, pair = (
            [_best(rules, by, value, what)[1] for rules in rule_columns.values()]
            for what in ("single", "pair_accuracy")
        )
        previous = ""
        for label, line in _lines_of(group.series, by, value):
            items = f"{line.scored:,}" if line.scored == line.total else f"{line.scored:,} of {line.total:,}"
            first = value_text(line)
            alone = [interval_text(line.itm_accuracy, line.itm_low, line.itm_high)] * matching
            right = interval_text(line.single, line.single_low, line.single_high)
            pairs, ties = interval_text(line.pair_accuracy, line.pair_low, line.pair_high), f"{line.ties:,}"
            rows.append(["" if first == previous else first, label, items, right, *single, *alone, pairs, *pair, ties])
            previous = first
    columns = [n for n in range(len(rows[0])) if n < 3 or any(row[n] for row in rows[1:])]
    widths = {n: max(len(row[n]) for row in rows) for n in columns}
    text_lines = ["  ".join(row[n].ljust(widths[n]) for n in columns).rstrip() for row in rows]
    return "\n".join([group.title, *(f"  {line}" for line in warnings(group)), "", *text_lines])


def warnings(group: Group) -> list[str]:
    """Caveats of a group: items that were not scored, axes that a blind rule solves, notes of the corpus."""
    lines = [f"FLAGGED as solvable without looking: {flag}" for flag in group.flags]
    lines += [f"Flagged is where {FLAG}."] if group.flags else []
    models = [one for one in group.results if one.model]
    for label, result in zip(group.models, models, strict=True):
        if (all_items := result.coverage) and all_items.scored < all_items.total:
            why = f"; the first is {result.unscored}" if result.unscored else ""
            lines.append(f"{label}: {all_items.coverage}{why}")
    for label, result in zip(group.models, models, strict=True):
        if (share := result.yes_or_no) is not None:
            lines.append(f"{label}: p(yes) + p(no) is {share:.3f} on average{RARE * (share < SMALL)}")
    if len({result.coverage.scored for result in group.results if result.model and result.coverage}) > 1:
        lines.append(
            "The models did not all score the same items, so their numbers are of different items. Comparisons use the "
            "items that both models scored."
        )
    if any(line.mixed for found in group.series.values() for line in found):
        lines.append("Rows and averages that mix grades of negatives are marked; compare grades one by one.")
    every = [line for found in group.series.values() for line in found if line.value == MICRO]
    if all_items := max(every, key=lambda line: line.largest, default=None):
        lines += _rough(all_items)
    return [*lines, *group.results[0].corpus["notes"]]


def _rough(line: MetricRow) -> Iterator[str]:
    """A warning if there are too few independent items for exact intervals."""
    if line.largest > LARGE * line.scored and line.largest * line.clusters > 2 * line.scored:  # unless all are large
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
