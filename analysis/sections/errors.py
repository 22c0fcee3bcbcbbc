"""Wrong answers as cards of the viewer: of runs, of evaluated models, and items of corpora.

The examples of a dataset have one random order for all runs, drawn from a seed, and each run contributes its first
errors of each test setting and split. So runs with similar errors share examples, and each card lists all runs that
answered its example wrongly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.frames import Runs
from analysis.sections.evaluations import label_evaluations
from train.results.columns import TEST_SETTINGS, TEST_SPLITS
from travlr.corpora import is_corpus, item_columns
from travlr.dataset import Dataset
from travlr.metrics import ranked
from travlr.tasks import TASKS, config_from_dict
from travlr.viewer import Card, example_card, read_rows, viewer_data

FILTERS = {"task": "Task", "model": "Model", "setting": "Trained in", "question": "Question",
           "test_setting": "Tested in", "split": "Split", "pair": "Pair", "answer": "Right answer",
           "outcome": "Outcome", "run": "Run"}  # fmt: skip
ANSWERS_IN_ALL, FEWEST, MOST = 2400, 24, 240  # answers to show of all runs together, and limits for each
LONGEST_REPLY = 2_000  # characters; the rest is in answers.jsonl


def errors_viewer(runs: Runs, each: int | None = None) -> dict[str, Any]:
    """The data of the viewer of wrong answers. each: answers to show of each run; None for some 2,400 in all."""
    number = max(1, runs.results["name"].nunique())
    each = min(max(ANSWERS_IN_ALL // number, FEWEST), MOST) if each is None else each
    orders = {"task": TASKS, "test_setting": TEST_SETTINGS, "split": TEST_SPLITS, "answer": ("true", "false")}
    note = f"a sample: of each run up to {each} wrong answers, the same number of each test setting and split"
    return viewer_data(list(error_cards(runs, each)), FILTERS, orders=orders, note=note)


def error_cards(runs: Runs, each: int) -> Iterator[Card]:
    """A card for each example to show, of all datasets that were found."""
    for digest, rows in runs.results.groupby("dataset"):
        if digest in runs.datasets:
            parts = [wrong_answers(runs, str(name), each) for name in rows["name"].unique()]
            wrong = pd.concat([part for part in parts if len(part)] or [pd.DataFrame()], ignore_index=True)
            if len(wrong):
                shown = wrong[wrong["id"].isin(wrong.loc[wrong["sampled"], "id"])]
                yield from dataset_cards(runs.datasets[str(digest)], shown)


def wrong_answers(runs: Runs, name: str, each: int) -> pd.DataFrame:
    """The wrong answers of a run: id, split, row, item, answer, task, the columns to filter by, `words`, and `sampled`:
    whether it is one of `each` to show."""
    results = runs.results[runs.results["name"] == name]
    frame = runs.predictions(name=name)
    if not len(frame):
        return frame
    info = results.iloc[0]
    if ranks_only := bool(pd.notna(info["form"]) and pd.isna(info["accuracy"])):
        frame = wrong_items(frame)
    wrong = frame[~frame["right"].astype(bool)]
    order = pd.util.hash_array(wrong["item"].astype(str).to_numpy(object))
    groups = wrong.assign(order=order).sort_values("order").groupby(["test_setting", "split"], observed=True)
    places = groups.cumcount().reindex(wrong.index)
    question = label_evaluations(results)["question"].iloc[0] if pd.notna(info["form"]) else ""
    columns = wrong[["id", "split", "row", "item", "answer", "task"]].astype(object)
    columns["sampled"] = places < -(-each // max(1, groups.ngroups))
    columns["test_setting"] = wrong["test_setting"].astype(str)
    columns["outcome"] = np.where(wrong["parsed"].isna() & (question != "") & (not ranks_only), "no answer", "wrong")
    about = {
        "run": name,
        "model": info["model"],
        "setting": "" if question else info["setting"] or "",
        "question": question,
    }
    words = [say_answer(row, info, question, ranks_only) for row in wrong.to_dict("records")]
    return columns.assign(**about, words=words)


def wrong_items(frame: pd.DataFrame) -> pd.DataFrame:
    """The first row of each item of a model that ranks alone: `right` says whether its true ones score higher."""
    parts = []
    for _, part in frame.groupby(["split", "test_setting"], observed=True):
        first, right = ranked(part["score"], part["answer"], part["item"].astype(str))
        parts.append(part.iloc[first].assign(right=right))
    return pd.concat(parts, ignore_index=True)


def say_answer(row: dict[str, Any], info: pd.Series, question: str, ranks_only: bool) -> str:
    """What a run answered, in words."""
    if ranks_only:
        return f"{info['model']}: what is true does not score higher"
    if question:
        parsed, reply = (text if isinstance(text, str) else "" for text in (row["parsed"], row["reply"]))
        lines = dict.fromkeys([parsed or "no answer", reply[:LONGEST_REPLY].strip()])  # once, where they are the same
        return f"{info['model']} ({question}), {row['test_setting']}: " + "\n".join(filter(None, lines))
    sure = 100 / (1 + np.exp(-abs(row["score"])))
    size = f" {info['size']}" if pd.notna(info["size"]) else ""
    how = f"trained in {info['setting']}, tested in {row['test_setting']}, seed {info['seed']}"
    return f"{info['model']}{size} {how}: {bool(row['prediction'])}, {sure:.0f} % sure"


def dataset_cards(dataset: Dataset, wrong: pd.DataFrame) -> Iterator[Card]:
    """Cards of the examples (of a corpus: items) in `wrong`, each with all answers to it."""
    config = config_from_dict(dataset.manifest["config"]) if dataset.manifest.get("config") else None
    for split, of_split in wrong.groupby("split"):
        by_row = {int(row): answers for row, answers in of_split.groupby("row")}
        sentences = item_sentences(dataset, str(split)) if is_corpus(dataset) else {}
        rows = read_rows(dataset[str(split)], sorted(by_row))
        for row, content in zip(sorted(by_row), rows, strict=True):
            answers = by_row[row]
            card = example_card(str(split), content, config)
            columns = {**card.columns, "answer": str(card.answer).lower(), "task": str(answers["task"].iloc[0])}
            names = [name for name in (*FILTERS, "words") if name in answers and name not in columns]
            lines = [
                {name: value for name, value in line.items() if value} for line in answers[names].to_dict("records")
            ]
            yield replace(card, columns=columns, rows=lines, text=sentences.get(row, card.text))


def item_sentences(dataset: Dataset, split: str) -> dict[int, str]:
    """For each row of a corpus all sentences of its item, a line each, with a mark whether they are true."""
    table = dataset[split].columns("query", "answer").to_pandas()
    lines = table["answer"].map({True: "✓ ", False: "✗ "}) + table["query"]
    joined = lines.groupby(item_columns(dataset, split)["item"]).transform("\n".join)
    return dict(enumerate(joined))
