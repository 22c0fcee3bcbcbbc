"""Tables and a figure of the models that `evaluate.py` has asked: accuracy, gaps, objects read, pairs, losses."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.figures.plotting import STYLE, add_legend, new_figure
from analysis.frames import Runs
from train.results.columns import TEST_SETTINGS, TEST_SPLITS
from train.results.evaluation_table import how_asked
from travlr.corpora.items import MATCH
from travlr.dataset import Dataset
from travlr.metrics import agreement, compare
from travlr.questions.objects import objects_text
from travlr.scene import Object, column_name
from travlr.tasks import TASKS

LINE = ["model", "question"]  # what a line of a table is
SIZES = {"1-5": 5, "6-10": 10, "11-15": 15, "16 or more": 10_000}  # of scenes: the largest number of objects of each
CELL = ["task", "test_setting", "split"]
# Of a bar: accuracy from images, then what is lost, see `count_losses`.
PARTS = {
    "image": ("right from images", "#2b6cb0"),
    "using": ("seen, but not used", "#f6ad55"),
    "seeing": ("not seen", "#e53e3e"),
    "gap": ("not seen or not used (no form=read)", "#ed8936"),
    "reasoning": ("errors from captions", "#cbd5e0"),
    "unparsed": ("no answer to images", "#4a5568"),
}


class Section(NamedTuple):
    """A part of the report. content: a frame of texts, with the lines' names as its index, or a figure."""

    title: str
    note: str
    content: pd.DataFrame | Figure


def describe_evaluations(runs: Runs) -> list[Section]:
    """The sections about evaluations of TraVLR's own tasks; none without any."""
    results = label_evaluations(runs.evaluations[runs.evaluations["task"] != MATCH])
    if not len(results):
        return []
    names = results.drop_duplicates("name").set_index("name")[[*LINE, "form"]]
    predictions = runs.predictions(name=list(names.index))
    answers = predictions.drop(columns="model").merge(names, left_on="name", right_index=True)
    parts = [
        Section("Accuracy of evaluated models", ACCURACY_NOTE, accuracy_table(results)),
        Section("Metrics of evaluated models", METRICS_NOTE, metrics_table(results, answers)),
    ]
    if results["objects"].notna().any():
        parts.append(Section("Objects in replies to form=read", READ_NOTE, reading_table(results)))
        if len(table := reading_table_by_place(answers[answers["form"] == "read"], runs, results)):
            parts.append(Section("Objects found by their number and place", "Percent of the objects.", table))
    judged = answers[answers["name"].isin(results.loc[results["accuracy"].notna(), "name"])]
    if len(judged):
        parts.append(Section("Accuracy by the items of the pair", "Percent of right answers.", pair_table(judged)))
    losses = count_losses(results)
    if len(losses):
        parts.append(Section("Where evaluated models lose accuracy", LOSS_NOTE, draw_losses(losses)))
    return parts


def label_evaluations(results: pd.DataFrame) -> pd.DataFrame:
    """The results with a column `question`: how a model was asked, with the run where that is not enough."""
    question = pd.Series([how_asked(row) for row in results.to_dict("records")], results.index, "str")
    results = results.assign(question=question)
    same = results.groupby([*LINE, *CELL], dropna=False)["run"].transform("nunique") > 1
    return results.assign(question=question.where(~same, question + ", run " + results["run"].str[:8]))


# Tables --------------------------------------------------------------------------------------------------------------

ACCURACY_NOTE = (
    "Percent of right answers, of all replies; in brackets the percent of replies without an answer. *: above the best "
    "constant answer (exact binomial test, p < 0.01); +: above the best unbound rule. Baselines: lowest and highest "
    "where a column has several datasets."
)
METRICS_NOTE = (
    "Percent. Ranked: couples whose true example scores higher. Couples: both examples of a couple right. Bias: the "
    "answer that is given more often than it is right, and by how many points. Gap: accuracy from captions minus that "
    "of the line. Same answer: as from captions, and what independent answers of the same frequencies would give. Both "
    "are of examples with an answer in both settings."
)
READ_NOTE = "Percent of the objects in the scenes. Invented objects are in the reply, but not in the scene."
LOSS_NOTE = (
    "Differences of accuracies of parsed answers, in points: errors from captions are 100 minus the accuracy from "
    "captions (from images, if it is higher). Not seen: what the same model misreads when it lists the objects of a "
    "picture."
)


def accuracy_table(results: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of each model by task, setting and split, and the baselines, in the form of Table 2."""
    marks = pd.Series("", results.index)
    for column, mark in (("above_random", "*"), ("above_unbound", "+")):
        marks += np.where(results[column].fillna(False).astype(bool), mark, "")
    unparsed = results["unparsed"].map(lambda value: f" ({value:.1f})" if value > 0 else "")
    ranked = results["ranked"].map(lambda value: "" if pd.isna(value) else f"{value:.1f} ranked")
    texts = results.assign(
        text=(results["accuracy"].map("{:.1f}".format) + marks + unparsed).where(results["accuracy"].notna(), ranked)
    )
    table = texts.pivot(index=LINE, columns=CELL, values="text")
    for form, of_form in results.groupby("form"):
        for column, words in (("chance", "best constant answer"), ("baseline_unbound_accuracy", "best unbound rule")):
            ends = of_form.groupby(CELL)[column].agg(["min", "max"]).dropna()
            if len(ends):
                table.loc[("Baseline", f"{words}, {form}"), ends.index] = [_ends(*row) for row in ends.to_numpy()]
    orders = [list(TASKS), list(TEST_SETTINGS), list(TEST_SPLITS)]
    columns = sorted(table.columns, key=lambda key: [_rank(v, order) for v, order in zip(key, orders, strict=True)])
    return table[columns].fillna("")


def _rank(value: str, order: list[str]) -> tuple[int, str]:
    return (order.index(value) if value in order else len(order), value)


def _ends(low: float, high: float) -> str:
    return f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.0f}–{high:.0f}"


def metrics_table(results: pd.DataFrame, answers: pd.DataFrame) -> pd.DataFrame:
    """All metrics of every evaluation: a line for each task, split and setting."""
    sides = {key: part for key, part in answers.groupby(["name", "split", "test_setting"], observed=True)}
    lines = []
    for row in results.sort_values([*LINE, *CELL]).to_dict("records"):
        line = {name: row[name] for name in (*LINE, "task", "split")} | {"sees": row["test_setting"]}
        line |= {"examples": f"{row['examples']:,}", "accuracy": _percent(row["accuracy"])}
        line["ranked"] = _percent(row["ranked"])
        if pd.notna(row["macro_f1"]):
            line["macro-F1 [95 %]"] = f"{row['macro_f1']:.1f} [{row['interval_low']:.1f}, {row['interval_high']:.1f}]"
        line |= {"couples": _percent(row["couples_right"]), "no answer": _percent(row["unparsed"])}
        line["bias"] = f"{row['bias']:+.1f} {row['bias_answer']}" if isinstance(row["bias_answer"], str) else ""
        line["calibrated"] = _percent(row["calibrated_accuracy"])
        own, captions = (sides.get((row["name"], row["split"], name)) for name in (row["test_setting"], "caption"))
        lines.append(line | (compare_with_captions(own, captions) if row["test_setting"] != "caption" else {}))
    return pd.DataFrame(lines).fillna("").set_index([*LINE, "task", "split", "sees"])


def _percent(value: Any) -> str:
    return "" if pd.isna(value) else f"{value:.1f}"


def compare_with_captions(own: pd.DataFrame | None, captions: pd.DataFrame | None) -> dict[str, str]:
    """The gap to captions and the agreement with them; nothing where no example has an answer in both settings."""
    if own is None or captions is None:
        return {}
    both = captions.merge(own, on="id", suffixes=("", "_own"))
    both = both[both["parsed"].notna() & both["parsed_own"].notna()]
    if not len(both):
        return {}
    gap = compare(both["right"].astype(bool), both["right_own"].astype(bool), clusters=both["scene"])
    same = agreement(both["parsed"].to_numpy(object), both["parsed_own"].to_numpy(object), both["scene"])
    return {
        "gap to captions [95 %]": f"{gap.difference:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}]",
        "same answer (by chance)": f"{same.percent:.1f} ({same.by_chance:.1f})",
    }


def reading_table(results: pd.DataFrame) -> pd.DataFrame:
    """Of form=read, what became of the objects of the scenes, in percent."""
    readings = results[results["objects"].notna()]
    counts = pd.DataFrame([json.loads(text) for text in readings["objects"]], readings.index).fillna(0)
    percent = 100 * counts.div(counts.drop(columns="invented", errors="ignore").sum(axis=1).clip(lower=1), axis=0)
    columns = [*LINE, "task", "split", "test_setting"]
    return pd.concat([readings[columns], percent.map("{:.1f}".format)], axis=1).set_index(columns)


def reading_table_by_place(readings: pd.DataFrame, runs: Runs, results: pd.DataFrame) -> pd.DataFrame:
    """Of form=read, percent of objects found, by their number in the scene, and by column and row."""
    digests = results.drop_duplicates("name").set_index("name")["dataset"]
    parts = []
    for (name, split), part in readings.groupby(["name", "split"], observed=True):
        parts.append(part.merge(read_objects(runs.datasets[digests[name]], str(split)), on="id"))
    if not parts:
        return pd.DataFrame()
    objects = pd.concat(parts, ignore_index=True)
    lines = objects["parsed"].fillna("").astype(str).str.split("\n")
    hits = [100.0 * (text in line) for text, line in zip(objects["text"], lines, strict=True)]
    long = objects.assign(hit=hits).melt(
        [*LINE, "task", "test_setting", "hit"], ["number", "column", "line"], "by", "value"
    )
    means = long.groupby([*LINE, "task", "test_setting", "by", "value"], observed=True)["hit"].mean()
    table = means.map("{:.1f}".format).unstack(["by", "value"]).sort_index(axis=1, key=_numeric_order).fillna("")
    return table.rename(columns={"line": "row", "number": "objects in the scene"}, level=0)


def _numeric_order(values: pd.Index) -> pd.Index:
    sizes = {size: n for n, size in enumerate(SIZES)}
    return pd.Index([f"{sizes[value]:03d}" if value in sizes else f"{value:>3}" for value in values])


def read_objects(dataset: Dataset, split: str) -> pd.DataFrame:
    """A row for each object of a split: id of the example, its text in captions, number of objects, column, line."""
    rows = []
    for example in dataset[split].columns("id", "objects").to_pylist():
        number = next(words for words, most in SIZES.items() if len(example["objects"]) <= most)
        for one in example["objects"]:
            text = objects_text((Object(one["colour"], one["shape"], "", one["row"], one["column"]),))
            rows.append((example["id"], text, number, column_name(one["column"]), str(one["row"] + 1)))
    return pd.DataFrame(rows, columns=["id", "text", "number", "column", "line"])


def pair_table(answers: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of each evaluation by the items of the pair, such as the quantifier and each number."""
    parts = answers.assign(right=100.0 * answers["right"].astype(float), item_1=answers["kind"], item_2=answers["x"],
                           item_3=answers["y"]).astype({f"item_{n}": object for n in (1, 2, 3)})  # fmt: skip
    names = ["item_1", "item_2", "item_3"]
    long = parts.melt([*LINE, "task", "test_setting", "split", "right"], names, "item", "value").dropna(subset="value")
    long["item"] = long["item"].str.replace("item_", "item ") + ": " + long["value"].astype(str)
    by = [*LINE, "task", "item", "test_setting", "split"]
    means = long.groupby(by, observed=True)["right"].mean()
    table = means.map("{:.1f}".format).unstack(["test_setting", "split"]).fillna("")
    return table[in_order_of_settings(table.columns)]


def in_order_of_settings(columns: pd.Index) -> list[tuple[str, str]]:
    return [(s, p) for s in TEST_SETTINGS for p in TEST_SPLITS if (s, p) in columns]


# Where accuracy is lost ----------------------------------------------------------------------------------------------


def count_losses(results: pd.DataFrame) -> pd.DataFrame:
    """Where each model loses accuracy, in points: a row for each model, question, task and split with images and
    captions.

    unparsed: replies to images without a parsed answer. All other losses are of parsed answers alone, as parts of the
    proportion of replies to images that have one. reasoning: errors from captions, where nothing has to be seen. The
    others need the same model's form=read of the same pictures: r is the proportion of scenes that it reads from images
    without an error, so that images allow an accuracy of r * caption + (1 - r) * chance. seeing: the accuracy from
    captions minus this. using: this minus the accuracy from images. Without form=read, gap is the sum of both.
    """
    results = results.assign(parsed_accuracy=100 * results["accuracy"] / (100 - results["unparsed"]).replace(0, np.nan))
    pictures = ["model", "image_style", "dataset", "task", "split"]
    read = results[(results["form"] == "read") & (results["test_setting"] == "image")]
    reading = read.groupby(pictures, dropna=False)["parsed_accuracy"].first().rename("reading")
    keys = [*dict.fromkeys([*LINE, *pictures])]
    others = results[results["form"] != "read"].set_index("test_setting")
    image = others.loc[others.index == "image", [*keys, "accuracy", "parsed_accuracy", "unparsed", "chance"]]
    caption = others.loc[others.index == "caption", [*keys, "parsed_accuracy"]]
    table = image.merge(caption, on=keys, suffixes=("", "_caption")).merge(reading, "left", on=pictures)
    from_images, from_captions = table["parsed_accuracy"], table["parsed_accuracy_caption"]
    part = table["reading"] / 100
    chance = np.minimum(table["chance"], from_captions)
    allowed = (part * from_captions + (1 - part) * chance).where(part > 0, np.minimum(chance, from_images))
    losses = pd.DataFrame(
        {
            "using": (np.minimum(allowed, from_captions) - from_images).clip(0).where(part.notna(), 0),
            "seeing": (from_captions - np.maximum(allowed, from_images)).clip(0).where(part.notna(), 0),
            "gap": (from_captions - from_images).clip(0).where(part.isna(), 0),
            "reasoning": 100 - np.maximum(from_captions, from_images),
        }
    ).mul(1 - table["unparsed"] / 100, axis=0)
    losses = losses.where((from_images + from_captions).notna())
    return pd.concat([table[keys], table["accuracy"].rename("image"), losses, table["unparsed"]], axis=1)


def draw_losses(losses: pd.DataFrame) -> Figure:
    """A bar for each model and task: what it has right from images, and where the rest is lost."""
    labels = losses["model"] + ", " + losses["task"] + " (" + losses["question"] + "), " + losses["split"].astype(str)
    with matplotlib.rc_context(STYLE):
        figure, [[axes]] = new_figure(["Where evaluated models lose accuracy"], 1, 1, (8.0, 0.26 * len(losses) + 0.6))
        y, start = np.arange(len(losses)), np.zeros(len(losses))
        for name, (words, colour) in PARTS.items():
            points = losses[name].fillna(0).to_numpy(float)
            left = 100 - points if name == "unparsed" else start
            if points.any():
                axes.barh(y, points, left=left, color=colour, height=0.7, label=words)
            start = start + points
        axes.set_yticks(y, labels, fontsize=6)
        axes.invert_yaxis()
        axes.set(xlim=(0, 100), xlabel="accuracy (%)")
        add_legend(figure)
    return figure
