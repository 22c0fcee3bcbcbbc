"""Evaluations of other models (`evaluate.py`) for the report: tables, a figure of where the loss is, and replies."""

from __future__ import annotations

import base64
import html
import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.document import TABLE_FILES, table_block
from analysis.layout import BLANK, Cell, Table
from analysis.panels import label_axes, panel_figure, save
from analysis.runs import Runs, in_order
from train.results.answers import AnswerRecord, read_answers
from train.results.columns import TEST_SETTINGS, TEST_SPLITS
from train.results.measures import agreement
from travlr.browse import filled
from travlr.dataset import Dataset
from travlr.questions.objects import objects_text
from travlr.scene import SPLITS, Object, column_name
from travlr.tasks import TASKS

SHORT = {"image": "Image", "caption": "Caption", "image+caption": "Both"}
SPLIT_NAMES = dict(zip(TEST_SPLITS, ("InD", "OOD"), strict=True))
ASKED = [
    "model",
    "form",
    "prompt",
    "answers",
    "image_style",
    "caption_style",
    "apart",
]  # what makes a line of the tables
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


def accuracy_table(frame: pd.DataFrame) -> Table:
    """Accuracy of each model by task, setting and split, and the gap of captions and images, in the form of Table 2."""
    tasks = in_order(frame["task"].unique(), TASKS)
    places = [(task, setting, split) for task in tasks for setting in TEST_SETTINGS for split in TEST_SPLITS]
    columns = [("", "", "Model"), ("", "", "Asked"), *((t, SHORT[s], SPLIT_NAMES[p]) for t, s, p in places)]
    rows, data = [], []
    for line, results in _lines(frame):
        of_place = {(r["task"], r["test_setting"], r["split"]): r for r in results}
        cells = [_score_cell(of_place.get(place)) for place in places]
        rows.append((Cell(line["model"]), Cell(_how(line)), *cells))
        for task, setting, split in (place for place in places if place in of_place):
            score = of_place[task, setting, split]["accuracy"]
            data.append(line | {"task": task, "test_setting": setting, "split": split, "accuracy": score})
    for name, words in (("chance", "Best constant answer"), ("floor_unbound_accuracy", "Best unbound rule")):
        if frame[name].notna().any():
            of_form = frame[frame["form"] == "true_false"] if name != "chance" else frame
            best = of_form.groupby(["task", "test_setting", "split"])[name].max()
            scores = [best.get(place, math.nan) for place in places]
            cells = [Cell() if math.isnan(score) else Cell(f"{score:.1f}", classes="muted") for score in scores]
            rows.append((Cell("Baseline"), Cell(words), *cells))
    notes = (
        "Percent of right answers; what could not be parsed counts as wrong. Underlined: above the best constant "
        "answer (exact binomial test, p < 0.01). Point at a cell for macro-F1 and its 95 % interval, over scenes.",
        f"Groups of columns: tasks, what the model sees; InD: {TEST_SPLITS[0]}, OOD: {TEST_SPLITS[1]}.",
        "Baselines: the highest of several datasets and answer forms.",
    )
    title = "Accuracy of evaluated models by task, setting and split"
    return Table("evaluations", title, tuple(columns), tuple(rows), pd.DataFrame(data), notes, shaded=True)


def detail_table(frame: pd.DataFrame, folder: Path) -> Table:
    """All measures of every evaluation: a line for each task, split and setting."""
    heads = ("Model", "Asked", "Task", "Split", "Sees", "Examples", "Accuracy", "Macro-F1 [95 %]", "Couples",
             "No answer", "Bias", "Calibrated", "Gap to captions [95 %]", "Same answer (by chance)",
             "Objects")  # fmt: skip
    rows = []
    for line, results in _lines(frame):
        for r in results:
            interval = f"{r['macro_f1']:.1f} [{r['interval_low']:.1f}, {r['interval_high']:.1f}]"
            bias = f"{r['bias']:+.1f} {r['bias_answer']}" if isinstance(r["bias_answer"], str) else ""
            texts = [line["model"], _how(line), r["task"], r["split"], r["test_setting"], f"{r['examples']:,}"]
            texts += [f"{r['accuracy']:.1f}", interval, _one_digit(r["couples_right"]), _one_digit(r["unparsed"]), bias]
            texts += [_one_digit(r["calibrated_accuracy"]), *_compared(folder, r), _objects(r["objects"])]
            rows.append(tuple(map(Cell, texts)))
    notes = (
        "Percent. Couples: both examples of a couple right. Bias: the answer that is given more often than it is "
        "right, and by how many points. Gap: accuracy from captions minus that of the line. Same answer: examples with "
        "the same answer as from captions, and what independent answers of the same frequencies would give.",
        "Objects, of form=read: percent of the objects in the scenes.",
    )
    columns = tuple(("", head) for head in heads)
    data = frame.drop(columns=["config", "versions"])
    return Table("evaluation_details", "Measures of evaluated models", columns, tuple(rows), data, notes)


def distinguished(frame: pd.DataFrame) -> pd.DataFrame:
    """The results with a column `apart`: the digest of the dataset where evaluations differ in nothing else that a line
    of a table shows, or the run's where they share the dataset too; else ""."""
    frame = frame.assign(apart="")
    runs = frame.drop_duplicates("name")
    for _, alike in runs.groupby([*ASKED, "task"], dropna=False):
        if len(alike) > 1:
            by = "dataset" if alike["dataset"].nunique() == len(alike) else "run"
            for name, value in zip(alike["name"], alike[by], strict=True):
                frame.loc[frame["name"] == name, "apart"] = f"{by} {str(value)[:8]}"
    return frame


def _lines(frame: pd.DataFrame) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """What makes a line of a table, and its results."""
    for key, rows in frame.groupby(ASKED, dropna=False, sort=True):
        yield dict(zip(ASKED, key, strict=True)), rows.to_dict("records")


def _how(line: dict[str, Any]) -> str:
    """How a model was asked, such as `choice, reason`."""
    usual = {"image_style": "plain", "caption_style": "sentences"}
    styles = [line[name] for name in usual if isinstance(line[name], str) and line[name] != usual[name]]
    words = [line["form"], line["prompt"], *(["likelihood"] if line["answers"] == "likelihood" else []), *styles]
    return ", ".join([*words, *([line["apart"]] if line["apart"] else [])])


def _score_cell(row: dict[str, Any] | None) -> Cell:
    if row is None:
        return BLANK
    interval = f"[{row['interval_low']:.1f}, {row['interval_high']:.1f}]"
    hint = f"macro-F1 {row['macro_f1']:.1f} {interval}, {row['examples']:,} examples"
    above = pd.notna(row["above_random"]) and bool(row["above_random"])
    return Cell(f"{row['accuracy']:.1f}", row["accuracy"], underlined=above, hint=hint)


def _one_digit(value: float | None) -> str:
    return "" if value is None or pd.isna(value) else f"{value:.1f}"


def _objects(text: Any) -> str:
    if not isinstance(text, str):
        return ""
    counts = json.loads(text)
    total = sum(count for name, count in counts.items() if name != "invented")
    return ", ".join(f"{name} {100 * count / max(total, 1):.1f}" for name, count in counts.items() if count)


def _compared(folder: Path, row: dict[str, Any]) -> tuple[str, str]:
    """Gap and agreement of a setting and captions."""
    if row["test_setting"] == "caption":
        return "", ""
    answers = _answers(folder, row["name"], row["split"])
    here, captions = answers.get(row["test_setting"], {}), answers.get("caption", {})
    ids = sorted(here.keys() & captions.keys())
    if not ids:
        return "", ""
    found = agreement([captions[id] for id in ids], [here[id] for id in ids])
    return f"{found.gap:+.1f} [{found.low:+.1f}, {found.high:+.1f}]", f"{found.agreement:.1f} ({found.expected:.1f})"


def _answers(folder: Path, name: str, split: str) -> dict[str, dict[str, AnswerRecord]]:
    found: dict[str, dict[str, AnswerRecord]] = {}
    for answer in read_answers(folder / name):
        if answer.split == split:
            found.setdefault(answer.setting, {})[answer.id] = answer
    return found


# By pair -------------------------------------------------------------------------------------------------------------


def pair_table(frame: pd.DataFrame, runs: Runs) -> Table | None:
    """Accuracy of each evaluation by the items of the pair, such as the quantifier and each number; None where no
    dataset was found. The data has every whole pair too."""
    data = []
    for name, rows in frame.groupby("name", sort=True):
        dataset = runs.datasets.get(rows["dataset"].iloc[0])
        if dataset is None:
            continue
        pairs: dict[str, list[str]] = {}
        for split in dataset.splits:
            table = dataset[split].columns("id", "pair")
            pairs |= dict(zip(table["id"].to_pylist(), table["pair"].to_pylist(), strict=True))
        line = {column: rows[column].iloc[0] for column in (*ASKED, "task")}
        for answer in read_answers(runs.folder / str(name)):
            pair = pairs.get(answer.id, [])
            for item, value in (*enumerate(pair, 1), (0, " ".join(pair))):
                place = {"setting": answer.setting, "split": answer.split, "item": item, "value": value}
                data.append(line | place | {"accuracy": 100.0 * answer.right})
    if not data:
        return None
    keys = [*ASKED, "task", "item", "value", "setting", "split"]
    means = pd.DataFrame(data).groupby(keys, dropna=False, sort=True)["accuracy"].agg(["mean", "size"]).reset_index()
    places = [(setting, split) for setting in TEST_SETTINGS for split in TEST_SPLITS]
    columns = [
        ("", "Model"),
        ("", "Asked"),
        ("", "Task"),
        ("", "Pair"),
        *((SHORT[s], SPLIT_NAMES[p]) for s, p in places),
    ]
    lines = []
    for key, group in means[means["item"] > 0].groupby(keys[:-2], dropna=False, sort=True):
        line = dict(zip(keys[:-2], key, strict=True))
        shares = {(r["setting"], r["split"]): r["mean"] for r in group.to_dict("records")}
        words = (line["model"], _how(line), line["task"], f"item {line['item']}: {line['value']}")
        lines.append((*map(Cell, words), *(_percent_cell(shares.get(place)) for place in places)))
    title = "Accuracy of evaluated models by the items of the pair"
    return Table("evaluation_pairs", title, tuple(columns), tuple(lines), means, shaded=True)


# What is found of the objects, by place and by number ----------------------------------------------------------------

NUMBERS = ((1, 5), (6, 10), (11, 15), (16, 10_000))  # of objects in a scene


def found_table(frame: pd.DataFrame, runs: Runs) -> Table | None:
    """Of form=read, percent of objects found, by number of objects in the scene and by column and row; None without."""
    lines = []
    for name, rows in frame[frame["form"] == "read"].groupby("name", sort=True):
        dataset = runs.datasets.get(rows["dataset"].iloc[0])
        if dataset is None:
            continue
        lines += [
            (dict(rows.iloc[0]), setting, seen) for setting, seen in _objects_seen(runs.folder / str(name), dataset)
        ]
    if not lines:
        return None
    every = pd.concat([seen for _, _, seen in lines])
    numbers = [f"{low}-{high}" if high < 10_000 else f"{low} or more" for low, high in NUMBERS]
    axes = {
        "objects in the scene": numbers,
        "column": sorted(every["column"].unique()),
        "row": sorted(every["row"].unique()),
    }
    columns = [
        ("", "Model"),
        ("", "Task"),
        ("", "Sees"),
        *((axis, str(v)) for axis, values in axes.items() for v in values),
    ]
    rows_of_table, data = [], []
    for line, setting, seen in lines:
        cells = []
        for axis, values in axes.items():
            shares = 100 * seen.groupby(axis)["found"].mean()
            cells += [_percent_cell(shares.get(value)) for value in values]
            data += [
                {
                    "model": line["model"],
                    "task": line["task"],
                    "setting": setting,
                    "axis": axis,
                    "value": value,
                    "found": share,
                }
                for value, share in shares.items()
            ]
        rows_of_table.append((Cell(line["model"]), Cell(line["task"]), Cell(setting), *cells))
    title = "Objects found, percent, by their number in the scene and by place"
    return Table("evaluation_objects", title, tuple(columns), tuple(rows_of_table), pd.DataFrame(data), shaded=True)


def _percent_cell(share: float | None) -> Cell:
    return Cell() if share is None else Cell(f"{share:.1f}", share)


def _objects_seen(folder: Path, dataset: Dataset) -> Iterator[tuple[str, pd.DataFrame]]:
    """For each setting a row for each object of a scene: where it is, among how many, and whether a reply has it."""
    scenes: dict[str, Any] = {}
    for split in dataset.splits:
        table = dataset[split].columns("id", "objects")
        scenes |= dict(zip(table["id"].to_pylist(), table["objects"].to_pylist(), strict=True))
    rows: dict[str, list[tuple[str, str, int, bool]]] = {}
    for answer in read_answers(folder):
        listed = set((answer.parsed or "").splitlines())
        for o in (objects := scenes.get(answer.id, [])):
            number = next(f"{a}-{b}" if b < 10_000 else f"{a} or more" for a, b in NUMBERS if a <= len(objects) <= b)
            line = objects_text((Object(o["colour"], o["shape"], "", o["row"], o["column"]),))
            rows.setdefault(answer.setting, []).append((number, column_name(o["column"]), o["row"] + 1, line in listed))
    names = ["objects in the scene", "column", "row", "found"]
    for setting in in_order(rows, TEST_SETTINGS):
        yield setting, pd.DataFrame(rows[setting], columns=names)


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


# Replies -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShownReply:
    """One reply as the page shows it."""

    model: str
    task: str
    asked: str
    setting: str
    split: str
    outcome: str  # right, wrong or no answer
    id: str
    query: str
    answer: str
    parsed: str
    reply: str


def shown_replies(frame: pd.DataFrame, runs: Runs, limit: int = REPLIES) -> list[ShownReply]:
    """Replies of each evaluation, wrong ones and those without an answer before right ones."""
    shown = []
    for name, rows in frame.groupby("name", sort=True):
        first = rows.iloc[0]
        queries = _queries(runs, first["dataset"])
        how = _how({column: first[column] for column in ASKED})
        taken: dict[tuple[str, str], int] = {}
        for answer in sorted(read_answers(runs.folder / str(name)), key=lambda a: (a.right, a.id)):
            place = (answer.setting, answer.split)
            taken[place] = taken.get(place, 0) + 1
            outcome = "right" if answer.right else "no answer" if answer.parsed is None else "wrong"
            if taken[place] <= limit:
                shown.append(
                    ShownReply(
                        first["model"],
                        first["task"],
                        how,
                        *place,
                        outcome,
                        answer.id,
                        queries.get(answer.id, ""),
                        answer.answer,
                        answer.parsed or "",
                        answer.reply[:LONGEST_REPLY],
                    )
                )
    return shown


def _queries(runs: Runs, digest: str) -> dict[str, str]:
    """The query of each example of a dataset, where it was found."""
    dataset = runs.datasets.get(digest)
    if dataset is None:
        return {}
    tables = [dataset[split].columns("id", "query") for split in SPLITS if split in dataset.splits]
    return {id: query for table in tables for id, query in zip(*(c.to_pylist() for c in table.columns), strict=True)}


def choices(replies: Sequence[ShownReply]) -> dict[str, list[str]]:
    """The values by which the page filters replies."""
    names = ("model", "task", "asked", "setting", "split", "outcome")
    return {name: sorted({getattr(reply, name) for reply in replies}) for name in names}


# The page ------------------------------------------------------------------------------------------------------------


def readable(runs: Runs) -> pd.DataFrame:
    """The evaluations whose replies can be read; the others are in `skipped`."""
    damaged = []
    for name in runs.evaluations["name"].unique():
        try:
            read_answers(runs.folder / name)
        except ValueError as error:
            runs.skipped.append(str(error))
            damaged.append(name)
    return runs.evaluations[~runs.evaluations["name"].isin(damaged)]


def write_page(runs: Runs, page: Path, formats: Sequence[str]) -> list[Table]:
    """Write the page of evaluations, and its figure to the folder `figures` beside it; returns its tables."""
    frame = distinguished(runs.evaluations)
    tables = [accuracy_table(frame), detail_table(frame, runs.folder)]
    tables += [table for table in (found_table(frame, runs), pair_table(frame, runs)) if table is not None]
    figure = ""
    try:
        drawn = loss_figure(frame)
    except ValueError as error:
        figure = f"<p>No figure: {html.escape(str(error))}.</p>"
    else:
        save(drawn, page.parent / "figures", "evaluations", formats)
        data = io.BytesIO()
        drawn.savefig(data, format="png", dpi=150)
        encoded = base64.b64encode(data.getvalue()).decode()
        figure = (
            f'<figure><img alt="Where evaluated models lose accuracy" src="data:image/png;base64,{encoded}"></figure>'
        )
    replies = shown_replies(frame, runs)
    count = frame["name"].nunique()
    text = filled(
        TEMPLATE,
        {"replies": [asdict(reply) for reply in replies], "choices": choices(replies)},
        name=html.escape(runs.folder.resolve().name),
        lead=f"{count:,} evaluation{'s' * (count > 1)}, {len(frame):,} results.",
        accuracy=table_block(tables[0], TABLE_FILES),
        details="".join(table_block(table, TABLE_FILES) for table in tables[1:]),
        figure=figure,
    )
    page.write_text(text, encoding="utf-8", newline="")
    return tables
