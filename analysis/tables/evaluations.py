"""Tables of models that `evaluate.py` has asked: accuracy, all metrics, by pair, and objects found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pandas as pd

from analysis.averages import above_unbound
from analysis.layout import BLANK, Cell, Table
from train.results.answers import AnswerRecord
from train.results.columns import TEST_SETTINGS, TEST_SPLITS, in_order
from train.results.evaluation_table import LINES, how_asked, object_shares
from train.results.metrics import compare_settings
from travlr.questions.objects import objects_text
from travlr.scene import Object, column_name
from travlr.tasks import TASKS

SHORT = {"image": "Image", "caption": "Caption", "image+caption": "Both"}
SPLIT_NAMES = dict(zip(TEST_SPLITS, ("InD", "OOD"), strict=True))
PLACES = [(setting, split) for setting in TEST_SETTINGS for split in TEST_SPLITS]
# The columns that identify a line of the tables.
LINE_COLUMNS = ["model", "form", "prompt", "answers", "image_style", "caption_style", "apart"]

Answers = Mapping[str, Sequence[AnswerRecord]]  # by the name of the evaluation


def _wide_table(
    name: str, title: str, frame: pd.DataFrame, by: Sequence[str], words: Mapping[str, Callable[[dict[str, Any]], str]],
    columns: Mapping[tuple[Any, ...], tuple[str, ...]], place: Sequence[str], cell: Callable[[Any], Cell],
    data: pd.DataFrame, notes: tuple[str, ...] = (),
) -> Table:  # fmt: skip
    """A line for each value of the columns `by`, which begins with `words`, and a cell for each value of the columns
    `place`. columns: the heads of each place. cell: makes the cell of a row of the frame, or of None."""
    lines = []
    for key, rows in frame.groupby(list(by), dropna=False, sort=True):
        line = dict(zip(by, key, strict=True))
        by_place = {tuple(row[column] for column in place): row for row in rows.to_dict("records")}
        lines.append((*(Cell(text(line)) for text in words.values()), *(cell(by_place.get(key)) for key in columns)))
    groups = ("",) * (len(next(iter(columns.values()))) - 1)
    heads = (*((*groups, word) for word in words), *columns.values())
    return Table(name, title, heads, tuple(lines), data, notes, shaded=True)


WORDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "Model": lambda line: line["model"],
    "Asked": lambda line: how(line),
}


BASELINES = {"chance": "Best constant answer", "floor_unbound_accuracy": "Best unbound rule"}


def accuracy_table(frame: pd.DataFrame) -> Table:
    """Accuracy of each model by task, setting and split, and the gap of captions and images, in the form of Table 2."""
    tasks = in_order(frame["task"].unique(), TASKS)
    columns = {(t, s, p): (t, SHORT[s], SPLIT_NAMES[p]) for t in tasks for s, p in PLACES}
    place = ["task", "test_setting", "split"]
    notes = (
        "Percent of right answers, of all replies; in brackets the percent of replies without an answer, and a dash "
        "where no reply has one. +: above the best unbound rule; underlined: above the best constant answer (exact "
        "binomial test, p < 0.01). All metrics has macro-F1 and its 95 % interval, over scenes.",
        f"Groups of columns: tasks, what the model sees; InD: {TEST_SPLITS[0]}, OOD: {TEST_SPLITS[1]}.",
        "Baselines: lowest and highest where the evaluations of a column have several datasets or numbers of examples.",
    )
    data = frame.sort_values([*LINE_COLUMNS, *place], key=_order)[[*LINE_COLUMNS, *place, "accuracy", "unparsed"]]
    title = "Accuracy of evaluated models by task, setting and split"
    table = _wide_table("evaluations", title, frame, LINE_COLUMNS, WORDS, columns, place, _score_cell, data, notes)
    rows = list(table.rows)
    forms = list(frame["form"].unique())
    for form, (name, words) in product(forms, BASELINES.items()):
        of_form = frame[(frame["form"] == form) & frame[name].notna()]
        if len(of_form):
            label = words if len(forms) == 1 else f"{words}, {form}"
            ends = of_form.groupby(place)[name].agg(["min", "max"])
            cells = (Cell(_ends(*ends.loc[p]), classes="muted") if p in ends.index else Cell() for p in columns)
            rows.append((Cell("Baseline"), Cell(label), *cells))
    return replace(table, rows=tuple(rows))


def _ends(low: float, high: float) -> str:
    return f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.0f}–{high:.0f}"


def _order(column: pd.Series) -> pd.Series:
    """Tasks and settings in the order of the tables."""
    order = {"task": list(TASKS), "test_setting": list(TEST_SETTINGS), "split": list(TEST_SPLITS)}.get(str(column.name))
    return column if order is None else column.map({value: place for place, value in enumerate(order)})


def _score_cell(row: dict[str, Any] | None) -> Cell:
    if row is None:
        return BLANK
    hint = f"macro-F1 {LINES['macro-F1 [95 %]'](row)}, {row['examples']:,} examples"
    above = pd.notna(row["above_random"]) and bool(row["above_random"])
    cell = _answer_cell(row)
    return replace(cell, underlined=above, mark=f"{'+' * bool(above_unbound(row))} {cell.mark}".strip(), hint=hint)


def _answer_cell(row: Mapping[str, Any] | None) -> Cell:
    """Accuracy and, in brackets, the percent of replies without an answer; a dash where no reply has one."""
    if row is None:
        return BLANK
    if row["unparsed"] == 100:
        return Cell("–", mark="(100)")
    mark = f"({row['unparsed']:.1f})" if row["unparsed"] else ""
    return Cell(f"{row['accuracy']:.1f}", row["accuracy"], mark=mark)


def parsed_accuracy(row: Mapping[str, Any]) -> float:
    """Accuracy of the replies that have an answer, in percent; NaN where none has."""
    return 100 * row["accuracy"] / (100 - row["unparsed"]) if row["unparsed"] < 100 else math.nan


def detail_table(frame: pd.DataFrame, answers: Answers) -> Table:
    """All metrics of every evaluation: a line for each task, split and setting."""
    metrics: dict[str, Callable[[Any], str]] = {
        "Model": lambda row: row["model"],
        "Asked": how,
        "Task": lambda row: row["task"],
        "Split": lambda row: row["split"],
        "Sees": lambda row: row["test_setting"],
        "Examples": lambda row: f"{row['examples']:,}",
        "Accuracy": lambda row: f"{row['accuracy']:.1f}",
        "Macro-F1 [95 %]": LINES["macro-F1 [95 %]"],
        "Couples": LINES["both of a couple, %"],
        "No answer": LINES["no answer, %"],
        "Bias": LINES["bias"],
        "Calibrated": LINES["calibrated, %"],
    }
    comparisons = ("Gap to captions [95 %]", "Same answer (by chance)")
    rows = [
        tuple(map(Cell, (*(text(row) for text in metrics.values()), *_compared(answers, row))))
        for row in frame.sort_values(LINE_COLUMNS, kind="stable", na_position="last").to_dict("records")
    ]
    notes = (
        "Percent. Couples: both examples of a couple right. Bias: the answer that is given more often than it is "
        "right, and by how many points. Gap: accuracy from captions minus that of the line. Same answer: examples with "
        "the same answer as from captions, and what independent answers of the same frequencies would give. Both are "
        "of the examples with an answer in both settings.",
    )
    columns = tuple(("", head) for head in (*metrics, *comparisons))
    data = frame.drop(columns=["config", "versions"])
    return Table("evaluation_details", "Metrics of evaluated models", columns, tuple(rows), data, notes)


def how(line: Any) -> str:
    """How a model was asked, such as `choice, reason`."""
    return ", ".join(filter(None, (how_asked(line), line["apart"])))


def reading_table(frame: pd.DataFrame) -> Table | None:
    """Of form=read, what became of the objects of the scenes, in percent: a line for each task, split and setting; None
    without form=read."""
    readings = frame[frame["objects"].notna()].sort_values(LINE_COLUMNS, kind="stable", na_position="last")
    if not len(readings):
        return None
    place = ["model", "task", "split", "test_setting"]
    shares = pd.DataFrame([object_shares(text) for text in readings["objects"]], readings.index)
    data = pd.concat([readings[place], shares], axis=1)
    texts = data.map(lambda value: value if isinstance(value, str) else f"{value:.1f}")
    rows = tuple(tuple(map(Cell, row)) for row in texts.itertuples(index=False))
    columns = tuple(("", head) for head in ("Model", "Task", "Split", "Sees", *map(str.capitalize, shares)))
    notes = ("Percent of the objects in the scenes. Invented objects are in the reply, but not in the scene.",)
    return Table("evaluation_readings", "Objects in replies to form=read", columns, rows, data, notes)


def _compared(answers: Answers, row: Mapping[str, Any]) -> tuple[str, str]:
    """The gap and the agreement of a setting and captions; empty for captions themselves and where no example has a
    parsed answer in both."""
    if row["test_setting"] == "caption":
        return "", ""
    of_split = [answer for answer in answers[row["name"]] if answer.split == row["split"]]
    pair = compare_settings(of_split, row["split"], "caption", row["test_setting"])
    if pair is None:
        return "", ""
    return f"{pair.gap:+.1f} [{pair.low:+.1f}, {pair.high:+.1f}]", f"{pair.agreement:.1f} ({pair.expected:.1f})"


def pair_table(replies: pd.DataFrame) -> Table | None:
    """Accuracy of each evaluation by the items of the pair, such as the quantifier and each number; None without a
    dataset. `data` also has the whole pairs, as item 0."""
    frame = replies[replies["pair"].notna()]
    if not len(frame):
        return None
    items = [[*enumerate(pair, 1), (0, " ".join(pair))] for pair in frame["pair"]]
    frame = frame.assign(items=items, right=100.0 * frame["right"], unparsed=100.0 * frame["parsed"].isna())
    frame = frame.explode("items")
    frame["item"], frame["value"] = (frame["items"].str[place] for place in (0, 1))
    line, place = [*LINE_COLUMNS, "task", "item", "value"], ["setting", "split"]
    means = (
        frame.groupby([*line, *place], dropna=False)
        .agg(accuracy=("right", "mean"), unparsed=("unparsed", "mean"), replies=("right", "size"))
        .reset_index()
    )
    columns = {(s, p): (SHORT[s], SPLIT_NAMES[p]) for s, p in PLACES}
    words = WORDS | {"Task": lambda line: line["task"], "Pair": lambda line: f"item {line['item']}: {line['value']}"}
    title, single = "Accuracy of evaluated models by the items of the pair", means[means["item"] > 0]
    notes = ("Percent of right answers, of all replies; in brackets the percent of replies without an answer.",)
    return _wide_table("evaluation_pairs", title, single, line, words, columns, place, _answer_cell, means, notes)


def _percent_cell(column: str) -> Callable[[Any], Cell]:
    return lambda row: Cell() if row is None else Cell(f"{row[column]:.1f}", row[column])


NUMBERS = {"1-5": 5, "6-10": 10, "11-15": 15, "16 or more": 10_000}  # of objects in a scene: the largest of each group


def found_table(replies: pd.DataFrame) -> Table | None:
    """Of form=read, percent of objects found, by number of objects in the scene and by column and row; None without
    form=read."""
    readings = replies[(replies["form"] == "read") & replies["pair"].notna()]
    if not len(readings):
        return None
    line, place = ["name", "model", "task", "setting"], ["axis", "value"]
    rows = []
    for reply in readings.to_dict("records"):
        parsed = reply["parsed"] if isinstance(reply["parsed"], str) else ""  # pandas has NaN for no answer
        texts, number = set(parsed.splitlines()), len(reply["objects"])
        entry = {name: reply[name] for name in line}
        size = next(words for words, most in NUMBERS.items() if number <= most)
        for one in reply["objects"]:
            text = objects_text((Object(one["colour"], one["shape"], "", one["row"], one["column"]),))
            where = {"objects in the scene": size, "column": column_name(one["column"]), "row": str(one["row"] + 1)}
            rows += [entry | {"axis": axis, "value": where[axis], "found": 100.0 * (text in texts)} for axis in where]
    means = pd.DataFrame(rows).groupby([*line, *place])["found"].mean().reset_index()
    values = {axis: sorted(part["value"].unique(), key=lambda v: (len(v), v)) for axis, part in means.groupby("axis")}
    values["objects in the scene"] = list(NUMBERS)
    columns = {(axis, v): (axis, v) for axis in ("objects in the scene", "column", "row") for v in values[axis]}
    data = means.drop(columns="name")
    words = {"Model": WORDS["Model"], "Task": lambda line: line["task"], "Sees": lambda line: line["setting"]}
    title = "Objects found, percent, by their number in the scene and by place"
    return _wide_table("evaluation_objects", title, means, line, words, columns, place, _percent_cell("found"), data)
