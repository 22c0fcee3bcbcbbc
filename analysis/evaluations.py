"""Evaluations of other models (`evaluate.py`) for the report: tables, a figure of where the loss is, and replies."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.document import TABLE_FILES, report_style, table_block
from analysis.layout import BLANK, Cell, Table
from analysis.panels import label_axes, panel_figure, save
from analysis.runs import Runs, in_order
from train.results.answers import AnswerRecord, read_answers
from train.results.columns import TEST_SETTINGS, TEST_SPLITS
from train.results.evaluation_table import compare, how_asked
from travlr.browse import filled
from travlr.questions.objects import objects_text
from travlr.scene import Object, column_name
from travlr.tasks import TASKS

SHORT = {"image": "Image", "caption": "Caption", "image+caption": "Both"}
SPLIT_NAMES = dict(zip(TEST_SPLITS, ("InD", "OOD"), strict=True))
PLACES = [(setting, split) for setting in TEST_SETTINGS for split in TEST_SPLITS]
# What makes a line of the tables.
ASKED = ["model", "form", "prompt", "answers", "image_style", "caption_style", "apart"]
FILTERS = ("model", "task", "asked", "setting", "split", "outcome")  # of the page's replies
REPLIES = 60  # shown of each setting of an evaluation, wrong and unparsed ones first
TEMPLATE = Path(__file__).with_name("evaluations.html")
LONGEST_REPLY = 2_000  # characters; the rest is in answers.jsonl
# Of a bar: accuracy from images, then what is lost, see `losses`.
PARTS = {
    "image": ("right from images", "#2b6cb0"),
    "using": ("seen, but not used", "#f6ad55"),
    "seeing": ("not seen", "#e53e3e"),
    "gap": ("not seen or not used (no form=read)", "#ed8936"),
    "reasoning": ("wrong from captions too", "#cbd5e0"),
}

Answers = Mapping[str, Sequence[AnswerRecord]]  # by the name of the evaluation


def read_all(runs: Runs) -> dict[str, list[AnswerRecord]]:
    """The answers of each evaluation. One that cannot be read is no longer in `runs`, but in `runs.skipped`."""
    answers = {}
    for name in runs.evaluations["name"].unique():
        try:
            answers[str(name)] = read_answers(runs.folder / name)
        except ValueError as error:
            runs.skipped.append(str(error))
    runs.evaluations = runs.evaluations[runs.evaluations["name"].isin(answers)]
    return answers


def distinguished(frame: pd.DataFrame) -> pd.DataFrame:
    """The results with a column `apart`: the digest of the dataset where evaluations differ in nothing else that a line
    of a table shows, or the run's where they share the dataset too; else ""."""
    frame = frame.assign(apart="")
    for _, alike in frame.drop_duplicates("name").groupby([*ASKED, "task"], dropna=False):
        if len(alike) > 1:
            by = "dataset" if alike["dataset"].nunique() == len(alike) else "run"
            rows = frame["name"].isin(alike["name"])
            frame.loc[rows, "apart"] = f"{by} " + frame.loc[rows, by].astype(str).str[:8]
    return frame


def replies_of(frame: pd.DataFrame, answers: Answers, runs: Runs) -> pd.DataFrame:
    """A row for each reply: what makes a line of the tables, task, asked (in words), the fields of its `AnswerRecord`,
    and query, pair and objects of its example, missing where the dataset was not found."""
    parts = []
    for name, rows in frame.groupby("name", sort=True):
        first = rows.iloc[0]
        part = pd.DataFrame(list(map(vars, answers[str(name)])))
        if not len(part):
            continue
        about = {column: first[column] for column in (*ASKED, "task")} | {"name": name, "asked": _how(first)}
        shown = pd.DataFrame({"id": [], "query": [], "pair": [], "objects": []}, dtype=object)
        if (dataset := runs.datasets.get(first["dataset"])) is not None:
            tables = [dataset[split].columns("id", "query", "pair", "objects") for split in dataset.splits]
            wanted = [table.filter(pc.is_in(table["id"], pa.array(part["id"].unique()))) for table in tables]
            shown = pd.DataFrame([row for table in wanted for row in table.to_pylist()], columns=shown.columns)
        parts.append(part.assign(**about).drop(columns="objects").merge(shown, "left", on="id"))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["form", "pair"])


# Tables --------------------------------------------------------------------------------------------------------------


def _wide_table(
    name: str, title: str, frame: pd.DataFrame, by: Sequence[str], words: Mapping[str, Callable[[dict[str, Any]], str]],
    columns: Mapping[tuple[Any, ...], tuple[str, ...]], place: Sequence[str], cell: Callable[[Any], Cell],
    data: pd.DataFrame, notes: tuple[str, ...] = (),
) -> Table:  # fmt: skip
    """A line for each value of the columns `by`, with `words` at its head, and a cell for each value of the columns
    `place`. columns: the heads of each place. cell: of a row of the frame, or None."""
    lines = []
    for key, rows in frame.groupby(list(by), dropna=False, sort=True):
        line = dict(zip(by, key, strict=True))
        found = {tuple(row[column] for column in place): row for row in rows.to_dict("records")}
        lines.append((*(Cell(text(line)) for text in words.values()), *(cell(found.get(one)) for one in columns)))
    groups = ("",) * (len(next(iter(columns.values()))) - 1)
    heads = (*((*groups, word) for word in words), *columns.values())
    return Table(name, title, heads, tuple(lines), data, notes, shaded=True)


WORDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "Model": lambda line: line["model"],
    "Asked": lambda line: _how(line),
}


def accuracy_table(frame: pd.DataFrame) -> Table:
    """Accuracy of each model by task, setting and split, and the gap of captions and images, in the form of Table 2."""
    tasks = in_order(frame["task"].unique(), TASKS)
    columns = {(t, s, p): (t, SHORT[s], SPLIT_NAMES[p]) for t in tasks for s, p in PLACES}
    place = ["task", "test_setting", "split"]
    notes = (
        "Percent of right answers; what could not be parsed counts as wrong. Underlined: above the best constant "
        "answer (exact binomial test, p < 0.01). Point at a cell for macro-F1 and its 95 % interval, over scenes.",
        f"Groups of columns: tasks, what the model sees; InD: {TEST_SPLITS[0]}, OOD: {TEST_SPLITS[1]}.",
        "Baselines: the highest of several datasets and answer forms.",
    )
    data = frame.sort_values([*ASKED, *place], key=_order)[[*ASKED, *place, "accuracy"]]
    title = "Accuracy of evaluated models by task, setting and split"
    table = _wide_table("evaluations", title, frame, ASKED, WORDS, columns, place, _score_cell, data, notes)
    rows = list(table.rows)
    for name, words in (("chance", "Best constant answer"), ("floor_unbound_accuracy", "Best unbound rule")):
        of_form = frame[frame["form"] == "true_false"] if name != "chance" else frame
        if frame[name].notna().any():
            best = of_form.groupby(place)[name].max().dropna()
            cells = (Cell(f"{best[p]:.1f}", classes="muted") if p in best.index else Cell() for p in columns)
            rows.append((Cell("Baseline"), Cell(words), *cells))
    return Table(table.name, table.title, table.columns, tuple(rows), data, notes, shaded=True)


def _order(column: pd.Series) -> pd.Series:
    """Tasks and settings in the order of the tables."""
    order = {"task": list(TASKS), "test_setting": list(TEST_SETTINGS), "split": list(TEST_SPLITS)}.get(str(column.name))
    return column if order is None else column.map({value: place for place, value in enumerate(order)})


def _score_cell(row: dict[str, Any] | None) -> Cell:
    if row is None:
        return BLANK
    hint = f"macro-F1 {row['macro_f1']:.1f} {_interval(row)}, {row['examples']:,} examples"
    above = pd.notna(row["above_random"]) and bool(row["above_random"])
    return Cell(f"{row['accuracy']:.1f}", row["accuracy"], underlined=above, hint=hint)


def _interval(row: Any) -> str:
    return f"[{row['interval_low']:.1f}, {row['interval_high']:.1f}]"


def detail_table(frame: pd.DataFrame, answers: Answers) -> Table:
    """All measures of every evaluation: a line for each task, split and setting."""
    shown: dict[str, Callable[[Any], str]] = {
        "Model": lambda row: row["model"],
        "Asked": _how,
        "Task": lambda row: row["task"],
        "Split": lambda row: row["split"],
        "Sees": lambda row: row["test_setting"],
        "Examples": lambda row: f"{row['examples']:,}",
        "Accuracy": lambda row: f"{row['accuracy']:.1f}",
        "Macro-F1 [95 %]": lambda row: f"{row['macro_f1']:.1f} {_interval(row)}",
        "Couples": lambda row: _one_digit(row["couples_right"]),
        "No answer": lambda row: _one_digit(row["unparsed"]),
        "Bias": lambda row: f"{row['bias']:+.1f} {row['bias_answer']}" if isinstance(row["bias_answer"], str) else "",
        "Calibrated": lambda row: _one_digit(row["calibrated_accuracy"]),
    }
    compared = ("Gap to captions [95 %]", "Same answer (by chance)")
    rows = [
        tuple(map(Cell, (*(text(row) for text in shown.values()), *_compared(answers, row), _objects(row["objects"]))))
        for row in frame.sort_values(ASKED, kind="stable", na_position="last").to_dict("records")
    ]
    notes = (
        "Percent. Couples: both examples of a couple right. Bias: the answer that is given more often than it is "
        "right, and by how many points. Gap: accuracy from captions minus that of the line. Same answer: examples with "
        "the same answer as from captions, and what independent answers of the same frequencies would give.",
        "Objects, of form=read: percent of the objects in the scenes.",
    )
    columns = tuple(("", head) for head in (*shown, *compared, "Objects"))
    data = frame.drop(columns=["config", "versions"])
    return Table("evaluation_details", "Measures of evaluated models", columns, tuple(rows), data, notes)


def _how(line: Any) -> str:
    """How a model was asked, such as `choice, reason`."""
    return ", ".join(filter(None, (how_asked(line), line["apart"])))


def _one_digit(value: float | None) -> str:
    return "" if value is None or pd.isna(value) else f"{value:.1f}"


def _objects(text: Any) -> str:
    if not isinstance(text, str):
        return ""
    counts = json.loads(text)
    total = sum(count for name, count in counts.items() if name != "invented")
    return ", ".join(f"{name} {100 * count / max(total, 1):.1f}" for name, count in counts.items() if count)


def _compared(answers: Answers, row: Mapping[str, Any]) -> tuple[str, str]:
    """Gap and agreement of a setting and captions."""
    found = None
    if row["test_setting"] != "caption":
        found = compare(answers[row["name"]], row["split"], "caption", row["test_setting"])
    if found is None:
        return "", ""
    return f"{found.gap:+.1f} [{found.low:+.1f}, {found.high:+.1f}]", f"{found.agreement:.1f} ({found.expected:.1f})"


def pair_table(replies: pd.DataFrame) -> Table | None:
    """Accuracy of each evaluation by the items of the pair, such as the quantifier and each number; None where no
    dataset was found. The data has every whole pair too, as item 0."""
    frame = replies[replies["pair"].notna()]
    if not len(frame):
        return None
    items = [[*enumerate(pair, 1), (0, " ".join(pair))] for pair in frame["pair"]]
    frame = frame.assign(items=items, accuracy=100.0 * frame["right"]).explode("items")
    frame["item"], frame["value"] = (frame["items"].str[place] for place in (0, 1))
    line, place = [*ASKED, "task", "item", "value"], ["setting", "split"]
    means = frame.groupby([*line, *place], dropna=False)["accuracy"].agg(["mean", "size"]).reset_index()
    columns = {(s, p): (SHORT[s], SPLIT_NAMES[p]) for s, p in PLACES}
    words = WORDS | {"Task": lambda line: line["task"], "Pair": lambda line: f"item {line['item']}: {line['value']}"}
    title, single = "Accuracy of evaluated models by the items of the pair", means[means["item"] > 0]
    return _wide_table("evaluation_pairs", title, single, line, words, columns, place, _percent_cell("mean"), means)


def _percent_cell(column: str) -> Callable[[Any], Cell]:
    return lambda row: Cell() if row is None else Cell(f"{row[column]:.1f}", row[column])


NUMBERS = {"1-5": 5, "6-10": 10, "11-15": 15, "16 or more": 10_000}  # of objects in a scene: the most of each group


def found_table(replies: pd.DataFrame) -> Table | None:
    """Of form=read, percent of objects found, by number of objects in the scene and by column and row; None without."""
    read = replies[(replies["form"] == "read") & replies["pair"].notna()]
    if not len(read):
        return None
    line, place = ["name", "model", "task", "setting"], ["axis", "value"]
    rows = []
    for reply in read.to_dict("records"):
        listed, number = set((reply["parsed"] or "").splitlines()), len(reply["objects"])
        about = {name: reply[name] for name in line}
        size = next(words for words, most in NUMBERS.items() if number <= most)
        for one in reply["objects"]:
            text = objects_text((Object(one["colour"], one["shape"], "", one["row"], one["column"]),))
            where = {"objects in the scene": size, "column": column_name(one["column"]), "row": str(one["row"] + 1)}
            rows += [about | {"axis": axis, "value": where[axis], "found": 100.0 * (text in listed)} for axis in where]
    seen = pd.DataFrame(rows).groupby([*line, *place])["found"].mean().reset_index()
    values = {axis: sorted(part["value"].unique(), key=lambda v: (len(v), v)) for axis, part in seen.groupby("axis")}
    values["objects in the scene"] = list(NUMBERS)
    columns = {(axis, v): (axis, v) for axis in ("objects in the scene", "column", "row") for v in values[axis]}
    data = seen.drop(columns="name")
    words = {"Model": WORDS["Model"], "Task": lambda line: line["task"], "Sees": lambda line: line["setting"]}
    title = "Objects found, percent, by their number in the scene and by place"
    return _wide_table("evaluation_objects", title, seen, line, words, columns, place, _percent_cell("found"), data)


# Where the loss is ---------------------------------------------------------------------------------------------------


def losses(frame: pd.DataFrame) -> pd.DataFrame:
    """Where each model loses accuracy, in points: a row for each (model, form, task, split) with images and captions.

    reasoning: what is wrong from captions, which leave nothing to see. With the same model's form=read, r is the part
    of scenes that it reads from images without an error; images then allow r * caption + (1 - r) * chance. seeing: what
    captions give above this. using: what images allow above the accuracy from images. Without form=read of the same
    pictures, gap is both.
    """
    rows = []
    read = frame[(frame["form"] == "read") & (frame["test_setting"] == "image")]
    pictures = ["model", "image_style", "dataset", "task", "split"]
    exact = {
        tuple(row): share / 100 for *row, share in read[[*pictures, "accuracy"]].itertuples(index=False, name=None)
    }
    keys = [*dict.fromkeys([*ASKED, *pictures])]
    for key, group in frame[frame["form"] != "read"].groupby(keys, dropna=False, sort=True):
        of_setting = group.drop_duplicates("test_setting", keep="last").set_index("test_setting")
        if not {"image", "caption"} <= set(of_setting.index):
            continue
        line = dict(zip(keys, key, strict=True))
        image, caption = (float(of_setting.loc[setting, "accuracy"]) for setting in ("image", "caption"))
        parts = {"image": image, "using": 0.0, "seeing": 0.0, "gap": 0.0, "reasoning": 100 - max(caption, image)}
        share = exact.get(tuple(line[name] for name in pictures))
        if share is None:
            parts["gap"] = max(0.0, caption - image)
        else:
            chance = min(float(of_setting.loc["image", "chance"]), caption)
            allowed = share * caption + (1 - share) * chance if share else min(chance, image)
            parts["seeing"] = max(0.0, caption - max(allowed, image))
            parts["using"] = max(0.0, min(allowed, caption) - image)
        rows.append(line | parts | {"caption": caption})
    return pd.DataFrame(rows)


def loss_figure(frame: pd.DataFrame) -> Figure:
    """A bar for each model and task: what it has right from images, and where the rest is lost. Raises `ValueError`
    where no model was asked from images and from captions."""
    found = losses(frame)
    if not len(found):
        raise ValueError("no evaluation has both images and captions")
    labels = [
        f"{line['model']}, {line['task']} ({_how(line)}), {SPLIT_NAMES.get(line['split'], line['split'])}"
        for line in found.to_dict("records")
    ]
    key = [Patch(color=colour, label=words) for name, (words, colour) in PARTS.items() if found[name].any()]
    figure, ((axes,),) = panel_figure(
        ["Where evaluated models lose accuracy"], 1, [(4.6, 0.26 * len(found) + 0.2)], key=key, left=3.4, below=0.45,
        note="Percent of examples. Not seen: what the same model misreads when it lists the objects of a picture.",
    )  # fmt: skip
    places, start = np.arange(len(found))[::-1], np.zeros(len(found))
    for name, (_, colour) in PARTS.items():
        axes.barh(places, found[name], left=start, color=colour, height=0.7)
        start = start + found[name].to_numpy()
    axes.set_yticks(places, labels, fontsize=6)
    axes.set_xlim(0, 100)
    label_axes(axes, "", "%", "")
    return figure


# The page ------------------------------------------------------------------------------------------------------------


def shown_replies(replies: pd.DataFrame, limit: int = REPLIES) -> list[dict[str, str]]:
    """Replies as the page shows them, of each setting of an evaluation wrong ones and those without an answer first."""
    if not len(replies):
        return []
    some = replies.sort_values(["name", "right", "id"]).groupby(["name", "setting", "split"]).head(limit)
    outcome = np.where(some["right"], "right", np.where(some["parsed"].isna(), "no answer", "wrong"))
    some = some.assign(outcome=outcome, reply=some["reply"].str[:LONGEST_REPLY])
    return some[[*FILTERS, "id", "query", "answer", "parsed", "reply"]].fillna("").to_dict("records")


def write_page(runs: Runs, answers: Answers, page: Path, formats: Sequence[str]) -> list[Table]:
    """Write the page of evaluations, and its figure to the folder `figures` beside it; returns its tables."""
    frame = distinguished(runs.evaluations)
    replies = replies_of(frame, answers, runs)
    tables = [accuracy_table(frame), detail_table(frame, answers)]
    tables += [table for table in (found_table(replies), pair_table(replies)) if table is not None]
    try:
        drawn = loss_figure(frame)
    except ValueError as error:
        figure = f"<p>No figure: {html.escape(str(error))}.</p>"
    else:
        save(drawn, page.parent / "figures", "evaluations", formats)
        data = io.BytesIO()
        drawn.savefig(data, format="png", dpi=150)
        source = f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}"
        figure = f'<figure><img alt="Where evaluated models lose accuracy" src="{source}"></figure>'
    shown = shown_replies(replies)
    count = frame["name"].nunique()
    text = filled(
        TEMPLATE,
        {"replies": shown, "choices": {name: sorted({reply[name] for reply in shown}) for name in FILTERS}},
        report_style=report_style(),
        name=html.escape(runs.folder.resolve().name),
        lead=f"{count:,} evaluation{'s' * (count > 1)}, {len(frame):,} results.",
        accuracy=table_block(tables[0], TABLE_FILES),
        details="".join(table_block(table, TABLE_FILES) for table in tables[1:]),
        figure=figure,
    )
    page.write_text(text, encoding="utf-8", newline="")
    return tables
