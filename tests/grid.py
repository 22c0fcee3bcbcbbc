"""Runs on disk as training leaves them, with predictions made up to order: for reports, tables and figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from train.config import Run
from train.results.baselines import QueryTexts, text_baselines
from train.results.predictions import predictions_table, write_predictions
from train.results.provenance import provenance
from train.results.scores import baseline_columns, facts_in_order, prediction_columns
from train.results.store import start_run, write_curve, write_results
from travlr.dataset import Dataset, open_dataset

SETTINGS = ("image", "caption", "image+caption")
Accuracy = Callable[[str, str], float]  # test setting, split -> the probability of a right answer


def make_run(
    runs: Path, data: Path, accuracy: Accuracy, *, config: Mapping[str, Any] | None = None, **about: Any
) -> Path:
    """A finished run on a dataset, with config values such as model="lxmert", setting="image", seed=1, in `about`.

    config: nested settings beside those, such as {"training": {"examples": 0.5}}. Answers are right with a
    probability that `accuracy` gives for the test setting and split, drawn from the run's seed.
    """
    dataset = open_dataset(data)
    task = str(dataset["train"].columns("task")["task"][0])
    settings = {name: value for name, value in about.items() if name != "experiment"}
    whole = merged(Run(task=task, **settings).model_dump(), config or {})
    columns = {name: whole[name] for name in ("model", "setting", "seed", "size")}
    whole = {name: value for name, value in whole.items() if name not in ("runs", "data", "experiment", "device")}
    folder = start_run(runs, whole | {"dataset": dataset.manifest["content_digest"]}, data=str(data))
    tests = ("caption",) if whole["model"] in ("bert", "roberta") else SETTINGS
    shared = columns | {"task": task, "experiment": about.get("experiment"), "weights": "random", "parameters": 1000}
    shared |= {"dataset": dataset.manifest["content_digest"], "train_seconds": 60.0, "evaluate_seconds": 5.0}
    shared |= {"precision": "float32", "steps": 100, "train_examples": len(dataset["train"]), **provenance()}
    random = np.random.default_rng([whole["seed"], len(whole["model"]), len(whole["setting"])])
    rows, predictions = [], []
    training_texts = texts(dataset, "train")
    for split in ("test_ind", "test_ood"):
        table = dataset[split].columns("id", "pair")
        true_texts = texts(dataset, split)
        ids, groups = table["id"].to_pylist(), [pair[0] for pair in table["pair"].to_pylist()]
        baselines = text_baselines(training_texts, true_texts)
        for setting in tests:
            right = random.random(len(table)) < accuracy(setting, split)
            lines = np.where(right, true_texts.answers, ~true_texts.answers)
            logits = np.where(lines, 1, -1) * random.gamma(2.0, 1.0, len(table)).astype(np.float32)
            facts = facts_in_order(ids, true_texts.answers, groups, np.arange(len(table)))
            row = {"test_setting": setting, "split": split} | baseline_columns(baselines)
            rows.append(shared | row | prediction_columns(logits, facts))
            predictions.append(predictions_table(ids, split, setting, logits, true_texts.answers))
    write_curve(folder, [{"step": step, "loss": 1 / step, "validation_f1": None} for step in range(10, 110, 10)])
    write_predictions(folder, predictions)
    write_results(folder, rows)
    return folder


def merged(settings: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    both = json.loads(json.dumps(settings))
    for name, value in more.items():
        both[name] = merged(both[name], value) if isinstance(value, Mapping) else value
    return both


def texts(dataset: Dataset, split: str) -> QueryTexts:
    table = dataset[split].columns("query", "answer", "objects")
    objects = np.diff(table["objects"].combine_chunks().offsets.to_numpy())
    return QueryTexts(table["query"].to_pylist(), table["answer"].to_numpy().astype(bool), objects)
