"""Tables of a group of results, and its main numbers for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, fields, replace

import pandas as pd

from analysis.layout import Cell, Table
from analysis.probe.report.baselines import RULES
from analysis.probe.report.metrics import AXIS_GRADE, FLAG, MACRO, MICRO, MetricRow, ModelComparison
from analysis.probe.report.results import Group, Series, values_of

LARGE = 0.1  # part of all items; a larger cluster makes intervals rough
FEW = 30  # clusters: with fewer, intervals are rough
SMALL = 0.5  # p(yes) + p(no); below it most replies begin with another word
COINS = 50.0  # percent of items right by chance
RARE = (
    ". So it begins its replies with other words, for example to think before it answers, and its scores mean little; "
    "set question=TEXT to ask in other words, with {text} for the sentence"
)
OTHERS = {"blank picture": "blank picture", "other pictures": "other items' pictures"}  # columns and their baselines
COVERAGE = "total = scored + missing + unreadable + failed"
NOTES = (
    "Shares are of what was scored.",
    "Right: true sentences score above false ones; a tie is wrong. Tossing coins: 50 % of items, 25 % of pairs.",
    "Pairs: an item and its partner, with the same sentences of which the other is true. Same sentence: preferred for "
    "both pictures, so that the text decided. Decisive: both right, of pairs that are both right or both wrong.",
    "Detectable: the difference from a level, in points, that is detected with a power of 80 %.",
    "Intervals treat items that share a picture, or partners, as dependent: bootstrap over clusters of these.",
)
OF_MODELS = (
    "Blind rule: the best accuracy of a rule that reads the sentences alone, on all items, and its name if it is the "
    "only best one. Salience rule: the same for two rules that see which words are shown large or in the middle of a "
    "picture of our scenes, but not which belong together. Blank picture, other pictures: the model's accuracy when it "
    "sees these.",
    "Bold: the best model on these items, if its interval lies above chance and above every blind and salience rule. "
    "By chance alone, one row in forty is bold.",
)
OF_COMPARISONS = (
    "Pairs: both items right. Only first, only second: clusters of which this model has more right.",
    "p: two-sided exact McNemar test over clusters. Holm: adjusted for the number of comparisons in this table. "
    "Differ: adjusted p below 0.01, and an interval without 0.",
)
BINDING = "The same pairs, with pictures cropped to the sentence's objects and with whole ones: the cost of binding."


def _text(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def interval_text(value: float | None, low: float | None, high: float | None) -> str:
    """Such as `67.3 [64.1, 70.2]`; empty for None, and without the interval where a result has none."""
    return _text(value) if value is None or low is None else f"{_text(value)} [{_text(low)}, {_text(high)}]"


def write_value(line: MetricRow) -> str:
    """The group of a row, such as `subject: Man`, with the grades that it mixes."""
    plain = line.by in ("all", "axis", "axis and source", AXIS_GRADE)
    mixed = f" (mixes {line.mixed.replace(' and ', ', ')})" if line.mixed else ""
    return f"{'' if plain else f'{line.by}: '}{line.value}{mixed}"


Column = tuple[str, str]
VALUE, BY, TOTAL, RIGHT = ("", "items"), ("", "answered by"), ("", COVERAGE), ("items", "right % [95 %]")
BASELINES = ("blind rule", "salience rule", *OTHERS)
PAIRS_RIGHT, ALONE = ("pairs", "both right % [95 %]"), ("each sentence alone", "right % [95 %]")
METRICS: dict[Column, Callable[[MetricRow], str]] = {
    VALUE: write_value,
    TOTAL: lambda line: (
        f"{line.total:,} = " + " + ".join(f"{n:,}" for n in (line.scored, line.missing, line.unreadable, line.failed))
    ),
    RIGHT: lambda line: interval_text(line.single, line.single_low, line.single_high),
    **{("items", name): lambda line: "" for name in BASELINES},
    ("items", "ties"): lambda line: f"{line.ties:,}",
    ("items", "detectable"): lambda line: _text(line.detectable),
    ("pairs", "number"): lambda line: f"{line.pairs:,}" if line.pairs else "",
    PAIRS_RIGHT: lambda line: interval_text(line.pair_accuracy, line.pair_low, line.pair_high),
    **{("pairs", name): lambda line: "" for name in BASELINES[:2]},
    ("pairs", "same sentence %"): lambda line: _text(line.same),
    ("pairs", "decisive %"): lambda line: _text(line.decisive),
    ("", "scored"): lambda line: f"{line.scored:,}",
    ("as released", "right %"): lambda line: _text(line.published),
    ALONE: lambda line: interval_text(line.itm_accuracy, line.itm_low, line.itm_high),
    ("each sentence alone", "precision %"): lambda line: _text(line.itm_precision),
    ("each sentence alone", "recall %"): lambda line: _text(line.itm_recall),
    ("each sentence alone", "F1 %"): lambda line: _text(line.itm_f1),
}
"""All columns of metrics, and their texts. Those of baselines depend on the group."""
MAIN, LAST = list(METRICS)[:-6], list(METRICS)[-6:]
Row = dict[Column, Cell]
Keys = Sequence[tuple[str, str]]
"""`by` and `value` of groups of items."""


def _rows(group: Group, series: Series, keep: Keys) -> list[Row]:
    """A row of all columns for each group of items and each model or rule, in the order of groups."""
    return [
        {VALUE: Cell(write_value(line)), BY: Cell(label)} | {c: Cell(text(line)) for c, text in METRICS.items()}
        | (_beside(group, label, line) if series is group.models else {})
        for by, value in keep
        for label, lines in series.items()
        for line in lines
        if (line.by, line.value) == (by, value)
    ]  # fmt: skip


def _beside(group: Group, label: str, line: MetricRow) -> Row:
    """The columns of baselines of a model, and its accuracy, bold if it is the best and above them."""
    row: Row = {}
    level = COINS
    for kind, rules in group.rules.items():
        for unit, metric in (("items", "single"), ("pairs", "pair_accuracy")):
            row[unit, kind] = Cell(_best(rules, line, metric))
        level = max([level, *values_of(rules, line.by, line.value, "single").values()])
    for name, baseline in OTHERS.items():
        series = {label: group.with_other_pictures(baseline, label)}
        row["items", name] = Cell(_text(values_of(series, line.by, line.value, "single").get(label)))
    best = max(values_of(group.models, line.by, line.value, "single").values(), default=0.0)
    blind = values_of(group.rules["blind rule"], line.by, line.value, "single")
    bold = bool(blind) and line.single_low is not None and line.single_low > level and line.single == best
    return row | {RIGHT: Cell(METRICS[RIGHT](line), line.single, bold=bold)}


def _best(rules: Series, line: MetricRow, metric: str) -> str:
    """The best value of some rules, with the rule's name if it is the only best one."""
    values = values_of(rules, line.by, line.value, metric)
    best = max(values.values(), default=None)
    names = [rule for rule, value in values.items() if value == best]
    return f"{_text(best)}{f' {names[0]}' if len(names) == 1 < len(values) else ''}"


def _frame(series: Series, keep: Keys) -> pd.DataFrame:
    """All metrics of the rows in `keep`."""
    rows = [(label, *astuple(line))
            for label, lines in series.items() for line in lines if (line.by, line.value) in keep]  # fmt: skip
    return pd.DataFrame(rows, columns=["answered_by", *(one.name for one in fields(MetricRow))])


def _table(
    name: str, title: str, rows: Sequence[Row], columns: Iterable[Column], data: pd.DataFrame, notes: Iterable[str]
) -> Table | None:
    """A table of rows, without columns that are empty in all of them; None without rows."""
    nonempty = [c for c in columns if c in (VALUE, BY, TOTAL, RIGHT) or any(row[c].text for row in rows)]
    cells = tuple(tuple(row[column] for column in nonempty) for row in rows)
    return Table(name, title, tuple(nonempty), cells, data, tuple(notes)) if rows else None


TABLE_COLUMNS = (VALUE, BY, *(column for column in MAIN if column != VALUE))


def overview_of_probes(groups: Sequence[Group]) -> Table | None:
    """All models (baselines of a corpus without any) on all items of each corpus; None without results."""
    keep = [("all", MICRO)]
    rows = [row | {VALUE: Cell(group.title)}
            for group in groups for row in _rows(group, group.series, keep)]  # fmt: skip
    if not rows:
        return None
    data = pd.concat([_frame(group.series, keep).assign(corpus=group.title) for group in groups])
    table = _table("scores", "Items and pairs right, of all items", rows, TABLE_COLUMNS, data, (*NOTES, *OF_MODELS))
    return table and replace(table, columns=(("", "corpus"), *table.columns[1:]))


def tables(group: Group) -> list[Table]:
    """Tables of accuracies by axis, in detail and of baselines; of ITM and the released code's counts; of
    comparisons."""
    main = [(by, value) for by, value in group.keys if by in ("all", group.by)]
    detail = [(by, value) for by, value in group.keys if by not in ("all", group.by)]
    corpus = [f"Flagged: {flag}." for flag in group.flags]
    corpus += [f"Corpus: {note.removesuffix('.')}." for note in group.results[0].corpus["notes"]]
    blind = group.rules["blind rule"]
    meanings = [f"{rule}: {RULES[rule]}{' (a blind rule)' * (rule in blind)}"
                for rule in group.baselines if rule in RULES]  # fmt: skip
    of_rules = (*NOTES, *([f"{'; '.join(meanings)}."] if meanings else []), *corpus)

    def table(kind: str, title: str, series: Series, keep: Keys, data: Keys, notes: Sequence[str]) -> Table | None:
        name, rows = f"{group.slug}-{kind}", _rows(group, series, keep)
        return _table(name, f"{group.title}: {title}", rows, TABLE_COLUMNS, _frame(series, data), notes)

    notes, models = (*NOTES, *OF_MODELS, *corpus), group.models
    of_baselines = "baselines, without a model or without the right picture"
    every = [
        table("accuracy", "accuracy", models, main, main, notes),
        _matching(group, main),
        _comparison(group, group.comparisons, "compared", "models compared", "Each two models on what both scored."),
        _comparison(group, group.cropped, "binding", "cropped pictures against whole ones", BINDING),
        _averages(group),
        table("details", "accuracy by source, grade and other labels", models, detail, detail, notes),
        table("baselines", of_baselines, group.baselines, main, group.keys, of_rules),
    ]
    return [one for one in every if one]


def _averages(group: Group) -> Table | None:
    """The averages of item accuracies in VL-CheckList's paper."""
    averages = [(label, one) for label, result in group.model_results.items() for one in result.averages]
    rows = tuple((Cell(label), Cell(one.name), Cell(one.rule), Cell(_text(one.value, 2)))
                 for label, one in averages if one.value is not None)  # fmt: skip
    if not rows:
        return None
    notes = ["An axis with several sources: the mean over datasets of the mean over the sources of each."]
    if group.by != "axis":
        notes.append("These averages mix grades of negatives, which the paper does not have.")
    if without := dict.fromkeys(one.name for _, one in averages if one.value is None):
        notes.append(f"Without a number, as axes are missing (listed in the CSV): {'; '.join(without)}.")
    columns = (("", "answered by"), ("", "average"), ("", "rule"), ("", "right %"))
    data = pd.DataFrame([{"answered_by": label, **asdict(one), "lacking": list(one.lacking)}
                         for label, one in averages])  # fmt: skip
    title = f"{group.title}: averages of the VL-CheckList paper"
    return Table(f"{group.slug}-averages", title, columns, rows, data, tuple(notes))


def _matching(group: Group, keep: Keys) -> Table | None:
    """ITM, if a model has a threshold, and the released code's counts, if they differ from ours."""
    keep = [(by, value) for by, value in keep if value != MACRO]
    lines = [line for rows in group.models.values() for line in rows if (line.by, line.value) in keep]
    released = any(line.published != line.single for line in lines)
    alone = any(line.itm_accuracy is not None for line in lines)
    kinds = ["as the released code counts"] * released + ["each sentence alone (ITM)"] * alone
    if not kinds:
        return None
    columns = [VALUE, BY, LAST[0], *[LAST[1]] * released, *LAST[2:] * alone]
    notes = ["As released: the first true sentence scores above the first false one, by any margin."] * released
    notes += ["Each sentence alone: it matches if its score is above the model's threshold."] * alone
    data = _frame(group.models, [*keep, ("all", MACRO)])
    of_table = ["answered_by", "by", "value", "total", "scored", "published"]
    data = data[[*of_table, *(name for name in data.columns if name.startswith("itm_"))]]
    rows = _rows(group, group.models, keep)
    cells = tuple(tuple(row[column] for column in columns) for row in rows)
    title = f"{group.title}: {' and '.join(kinds)}"
    return Table(f"{group.slug}-matching", title, tuple(columns), cells, data, tuple(notes))


COMPARISON_COLUMNS: dict[str, Callable[[ModelComparison], str]] = {
    "first": lambda one: one.first,
    "second": lambda one: one.second,
    "on": lambda one: f"{one.number:,} {one.of}",
    "first %": lambda one: _text(one.first_accuracy),
    "second %": lambda one: _text(one.second_accuracy),
    "difference [95 %]": lambda one: f"{one.difference:+.1f} [{one.difference_low:+.1f}, {one.difference_high:+.1f}]",
    "only first": lambda one: f"{one.first_only:,}",
    "only second": lambda one: f"{one.second_only:,}",
    "p": lambda one: f"{one.p_value:.2g}",
    "p (Holm)": lambda one: f"{one.adjusted:.2g}",
    "differ": lambda one: "yes" if one.differs else "no",
}


def _comparison(group: Group, pairs: Sequence[ModelComparison], kind: str, title: str, note: str) -> Table | None:
    if not pairs:
        return None
    rows = tuple(tuple(Cell(text(pair)) for text in COMPARISON_COLUMNS.values()) for pair in pairs)
    columns, data = tuple(("", head) for head in COMPARISON_COLUMNS), pd.DataFrame(pairs)
    notes = (note, *OF_COMPARISONS)
    return Table(f"{group.slug}-{kind}", f"{group.title}: {title}", columns, rows, data, notes)


# For a terminal ------------------------------------------------------------------------------------------------------


def terminal_summary(group: Group) -> str:
    """The main metrics of a group as text for a terminal; without models, those of baselines on all items."""
    keep = [(by, value) for by, value in group.keys if value == MICRO or (group.models and by in ("all", group.by))]
    rules = [kind for kind, series in group.rules.items() if series and group.models]
    columns: list[Column] = [RIGHT, *(("items", kind) for kind in rules), *[ALONE] * group.matching]
    columns += [PAIRS_RIGHT, *(("pairs", kind) for kind in rules), ("items", "ties")]
    heads = {ALONE: "sentences right % [95 %]", PAIRS_RIGHT: "pairs right % [95 %]"}
    lines = [["", "", "items", *(heads.get(column, column[1]) for column in columns)]]
    previous = ""
    for row in _rows(group, group.series, keep):
        name, total, scored = row[VALUE].text, row[TOTAL].text.split()[0], row["", "scored"].text
        items = scored if scored == total else f"{scored} of {total}"
        cells = [row[column].text for column in columns]
        lines.append(["" if name == previous else name, row[BY].text, items, *cells])
        previous = name
    shown = [column for n, column in enumerate(zip(*lines, strict=True)) if n < 3 or any(column[1:])]
    aligned = [[text.ljust(max(map(len, column))) for text in column] for column in shown]
    text = ["  ".join(line).rstrip() for line in zip(*aligned, strict=True)]
    return "\n".join([group.title, *(f"  {line}" for line in warnings(group)), "", *text])


def warnings(group: Group) -> list[str]:
    """Caveats of a group: items that were not scored, axes that a blind rule solves, notes of the corpus."""
    lines = [f"FLAGGED as solvable without looking: {flag}" for flag in group.flags]
    lines += [f"Flagged is where {FLAG}."] if group.flags else []
    coverages = {label: row for label, result in group.model_results.items() if (row := result.coverage)}
    for label, row in coverages.items():
        if row.scored < row.total:
            unscored = group.model_results[label].unscored
            lines.append(f"{label}: {row.coverage}{f'; the first is {unscored}' if unscored else ''}")
    for label, result in group.model_results.items():
        if (share := result.yes_or_no) is not None:
            lines.append(f"{label}: p(yes) + p(no) is {share:.3f} on average{RARE * (share < SMALL)}")
    if len({row.scored for row in coverages.values()}) > 1:
        lines.append(
            "The models did not all score the same items, so their numbers are of different items. Comparisons use the "
            "items that both models scored."
        )
    every = [line for rows in group.series.values() for line in rows]
    if any(line.mixed for line in every):
        lines.append("Rows and averages that mix grades of negatives are marked; compare grades one by one.")
    if micro := max((line for line in every if line.value == MICRO), key=lambda line: line.largest, default=None):
        lines += _rough(micro)
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
