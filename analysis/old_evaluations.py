"""The page of evaluations, until the report has their sections."""

from __future__ import annotations

import base64
import html
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.averages import what_was_found
from analysis.document import FORMATS, TABLE_FILES, report_style, table_block
from analysis.filling import fill_template
from analysis.layout import Table
from analysis.panels import SMALL, label_axes, panel_figure, save, widest
from analysis.runs import Runs, left_out
from analysis.tables.evaluations import (
    LINE_COLUMNS,
    SPLIT_NAMES,
    Answers,
    accuracy_table,
    detail_table,
    found_table,
    how,
    pair_table,
    parsed_accuracy,
    reading_table,
)
from train.results.answers import AnswerRecord, read_answers

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
    "reasoning": ("errors from captions", "#cbd5e0"),
    "unparsed": ("no answer to images", "#4a5568"),
}


def read_all(runs: Runs) -> dict[str, list[AnswerRecord]]:
    """The answers of each evaluation. Evaluations that cannot be read are moved from `runs` to `runs.skipped`."""
    answers = {}
    for name in runs.evaluations["name"].unique():
        with left_out(runs.skipped):
            answers[str(name)] = read_answers(runs.folder / name)
    runs.evaluations = runs.evaluations[runs.evaluations["name"].isin(answers)]
    return answers


def distinguished(frame: pd.DataFrame) -> pd.DataFrame:
    """The results with a column `apart`. It tells evaluations apart whose lines in a table would look alike: by the
    digest of the dataset or, if they share it, of the run. It is "" for the others."""
    frame = frame.assign(apart="")
    for _, alike in frame.drop_duplicates("name").groupby([*LINE_COLUMNS, "task"], dropna=False):
        if len(alike) > 1:
            by = "dataset" if alike["dataset"].nunique() == len(alike) else "run"
            rows = frame["name"].isin(alike["name"])
            frame.loc[rows, "apart"] = f"{by} " + frame.loc[rows, by].astype(str).str[:8]
    return frame


def replies_of(frame: pd.DataFrame, answers: Answers, runs: Runs) -> pd.DataFrame:
    """A row for each reply: the columns `LINE_COLUMNS` of the tables, task, asked (in words), the fields of its
    `AnswerRecord`, and query, pair and objects of its example, which are missing where the dataset was not found."""
    parts = []
    for name, rows in frame.groupby("name", sort=True):
        first = rows.iloc[0]
        part = pd.DataFrame(list(map(vars, answers[str(name)])))
        if not len(part):
            continue
        line = {column: first[column] for column in (*LINE_COLUMNS, "task")} | {"name": name, "asked": how(first)}
        columns, examples = ["id", "query", "pair", "objects"], list[dict[str, Any]]()
        if (dataset := runs.datasets.get(first["dataset"])) is not None:
            ids = pa.array(part["id"].unique())
            for split in dataset.splits:
                table = dataset[split].columns(*columns)
                examples += table.filter(pc.is_in(table["id"], ids)).to_pylist()
        content = pd.DataFrame(examples, columns=columns, dtype=object)
        parts.append(part.assign(**line).drop(columns="objects").merge(content, "left", on="id"))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["form", "pair"])


# Where the loss is ---------------------------------------------------------------------------------------------------


def draw_losses(frame: pd.DataFrame) -> pd.DataFrame:
    """Where each model loses accuracy, in points: a row for each (model, form, task, split) with images and captions.

    unparsed: replies to images without a parsed answer. All other losses are of parsed answers alone, as parts of the
    share of replies to images that have one; they are NaN where images or captions have none. reasoning: errors from
    captions, where nothing has to be seen. The others need the same model's form=read of the same pictures: r is the
    part of the scenes that it reads from images without an error, so that images allow an accuracy of
    r * caption + (1 - r) * chance. seeing: the accuracy from captions minus this. using: this minus the accuracy from
    images. Without form=read, gap is the sum of seeing and using.
    """
    rows = []
    readings = frame[(frame["form"] == "read") & (frame["test_setting"] == "image")]
    pictures = ["model", "image_style", "dataset", "task", "split"]
    shares = {tuple(row[name] for name in pictures): parsed_accuracy(row) / 100 for row in readings.to_dict("records")}
    keys = [*dict.fromkeys([*LINE_COLUMNS, *pictures])]
    for key, group in frame[frame["form"] != "read"].groupby(keys, dropna=False, sort=True):
        of_setting = {row["test_setting"]: row for row in group.to_dict("records")}
        if not {"image", "caption"} <= of_setting.keys():
            continue
        line = dict(zip(keys, key, strict=True))
        image, caption = (parsed_accuracy(of_setting[setting]) for setting in ("image", "caption"))
        parts = {"image": image, "using": 0.0, "seeing": 0.0, "gap": 0.0, "reasoning": 100 - max(caption, image)}
        share = shares.get(tuple(line[name] for name in pictures), math.nan)
        if math.isnan(image + caption):
            parts |= dict.fromkeys(("using", "seeing", "gap", "reasoning"), math.nan)
        elif math.isnan(share):
            parts["gap"] = max(0.0, caption - image)
        else:
            chance = min(float(of_setting["image"]["chance"]), caption)
            allowed = share * caption + (1 - share) * chance if share else min(chance, image)
            parts["seeing"] = max(0.0, caption - max(allowed, image))
            parts["using"] = max(0.0, min(allowed, caption) - image)
        unparsed = float(of_setting["image"]["unparsed"])
        parts = {name: points * (1 - unparsed / 100) for name, points in parts.items()}
        parts["image"] = float(of_setting["image"]["accuracy"])  # a number without any answer, too
        rows.append(line | parts | {"unparsed": unparsed, "caption": float(of_setting["caption"]["accuracy"])})
    return pd.DataFrame(rows)


def loss_figure(frame: pd.DataFrame) -> Figure:
    """A bar for each model and task: what it has right from images, and where the rest is lost. Raises `ValueError`
    where no model was asked from images and from captions."""
    lines = draw_losses(frame)
    if not len(lines):
        raise ValueError("no evaluation has both images and captions")
    labels = [
        f"{line['model']}, {line['task']} ({how(line)}), {SPLIT_NAMES.get(line['split'], line['split'])}"
        for line in lines.to_dict("records")
    ]
    key = [Patch(color=colour, label=words) for name, (words, colour) in PARTS.items() if (lines[name] > 0).any()]
    left = max(1.5, 0.2 + widest(labels, SMALL))
    figure, ((axes,),) = panel_figure(
        ["Where evaluated models lose accuracy"], 1, [(4.6, 0.26 * len(lines) + 0.2)], key=key, left=left, below=0.45,
        note="Differences of accuracies of parsed answers, in points, not counts of examples: errors from captions are "
        "100 minus the accuracy from captions (from images, if it is higher). Not seen: what the same model misreads "
        "when it lists the objects of a picture. Blank: images or captions have no parsed answer to compare.",
    )  # fmt: skip
    y, start = np.arange(len(lines))[::-1], np.zeros(len(lines))
    for name, (_, colour) in PARTS.items():
        left_end = 100 - lines[name].to_numpy() if name == "unparsed" else start
        axes.barh(y, lines[name].fillna(0), left=left_end, color=colour, height=0.7)
        start = start + lines[name].fillna(0).to_numpy()
    axes.set_yticks(y, labels, fontsize=SMALL)
    axes.set_xlim(0, 100)
    label_axes(axes, "", "accuracy (%)", "")
    return figure


# The page ------------------------------------------------------------------------------------------------------------


def shown_replies(replies: pd.DataFrame, limit: int = REPLIES) -> list[dict[str, str]]:
    """The replies that the page shows: of each setting of an evaluation, first those that are wrong or have no
    answer."""
    if not len(replies):
        return []
    some = replies.sort_values(["name", "right", "id"]).groupby(["name", "setting", "split"]).head(limit)
    outcome = np.where(some["right"], "right", np.where(some["parsed"].isna(), "no answer", "wrong"))
    some = some.assign(outcome=outcome, reply=some["reply"].str[:LONGEST_REPLY])
    return some[[*FILTERS, "id", "query", "answer", "parsed", "reply"]].fillna("").to_dict("records")


def write_page(runs: Runs, answers: Answers, page: Path) -> list[Table]:
    """Write the page of evaluations, and its figure to the folder `figures` beside it; returns its tables."""
    frame = distinguished(runs.evaluations)
    replies = replies_of(frame, answers, runs)
    accuracy = accuracy_table(frame)
    tables = {
        "All metrics": detail_table(frame, answers),
        "Objects read": reading_table(frame),
        "Objects found": found_table(replies),
        "Accuracy by the items of the pair": pair_table(replies),
    }
    metric_tables = {heading: table for heading, table in tables.items() if table is not None}
    try:
        bars = loss_figure(frame)
    except ValueError as error:
        figure = f"<p>No figure: {html.escape(str(error))}.</p>"
    else:
        save(bars, page.parent / "figures", "evaluations", FORMATS)
        data = (page.parent / "figures" / "evaluations.png").read_bytes()
        source = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        figure = f'<figure><img alt="Where evaluated models lose accuracy" src="{source}"></figure>'
    entries = shown_replies(replies)
    count = frame["name"].nunique()
    text = fill_template(
        TEMPLATE,
        {"replies": entries, "choices": {name: sorted({entry[name] for entry in entries}) for name in FILTERS}},
        report_style=report_style(),
        name=html.escape(runs.folder.resolve().name),
        found=what_was_found(frame[frame["form"] != "read"], "result"),
        lead=f"{count:,} evaluation{'s' * (count > 1)}, {len(frame):,} results.",
        accuracy=table_block(accuracy, TABLE_FILES),
        metric_tables="\n".join(
            f'<section aria-label="{heading}"><h2>{heading}</h2>{table_block(table, TABLE_FILES)}</section>'
            for heading, table in metric_tables.items()
        ),
        figure=figure,
    )
    page.write_text(text, encoding="utf-8", newline="")
    return [accuracy, *metric_tables.values()]
