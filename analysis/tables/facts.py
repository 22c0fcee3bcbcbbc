"""Tables 3, 6 and 8: datasets, run times, parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from analysis import paper
from analysis.averages import RunSummary, run_summaries, weights_of
from analysis.layout import BLANK, Cell, Table
from analysis.paper import BIMODAL, LEGEND, LETTERS, MODEL_NAMES, TEXT_ONLY, published
from analysis.runs import Runs
from analysis.tables.builder import (
    OURS,
    TableBuilder,
    model_name,
    number_cell,
    runs_of,
    size_text,
    source_cell,
    with_traits,
)
from train.results.columns import TEST_SETTINGS
from travlr.tasks import PAPER


def table3(runs: Runs) -> Table:
    """Table 3: how many answers of each split are true and false, by the datasets' manifests."""
    builder = TableBuilder()
    splits = {"train": "Train", "validation": "Val.", "test_ind": "InD Test", "test_ood": "OOD Test"}
    for task in PAPER:
        for digest in [digest for digest in runs.datasets if _task_of(runs, digest) == task] or (None,):
            counts = {split: _true_false(runs, digest, split) for split in splits}
            builder.add([task, f"{OURS} {(digest or '')[:8]}".strip(), *map(_true_false_cell, counts.values())])
            for split, numbers in counts.items():
                ours = dict(zip(("true", "false"), numbers or (None, None), strict=True))
                theirs = dict(zip(("paper_true", "paper_false"), paper.TABLE_3[task][split], strict=True))
                builder.data.append({"task": task, "dataset": digest, "split": split, **ours, **theirs})
        builder.add([task, "paper", *(_true_false_cell(paper.TABLE_3[task][split]) for split in splits)])
    columns = [("", name) for name in ("Task", "Source", *splits.values())]
    notes = [f"{digest[:8]}: {dataset.folder}." for digest, dataset in runs.datasets.items()]
    notes += [f"Left out: {line}." for line in runs.skipped]
    return builder.table("table3", "Table 3. Examples whose answer is true / false", columns, notes)


def _task_of(runs: Runs, digest: str) -> str | None:
    """The task of a dataset, by its manifest or by its runs."""
    task = (runs.datasets[digest].manifest.get("config") or {}).get("task")
    tasks = runs.results.loc[runs.results["dataset"] == digest, "task"].dropna()
    return str(task) if task else str(tasks.iloc[0]) if len(tasks) else None


def _true_false(runs: Runs, digest: str | None, split: str) -> tuple[int, int] | None:
    counts = runs.datasets[digest].manifest["splits"].get(split) if digest else None
    return (counts["true"], counts["rows"] - counts["true"]) if counts and "true" in counts else None


def _true_false_cell(counts: tuple[int, int] | None) -> Cell:
    return Cell(f"{counts[0]} / {counts[1]}") if counts else BLANK


def table6(runs: Runs) -> Table:
    """Table 6: hours of training by number of examples, model and setting; means over runs on equal hardware."""
    builder = TableBuilder()
    candidates = [run for run in with_traits(runs) if run.info["setting"] in TEST_SETTINGS]
    tasks = {"32k": ["spatiality"], "8k": [task for task in PAPER if task != "spatiality"]}  # the paper's sizes
    for size, model in product(tasks, ("uniter", "visualbert", "lxmert", "albef", "bert", "roberta")):
        of_model = [run for task in tasks[size] for run in runs_of(candidates, task, model)]
        hours = {name: published("table6", "", model, name, "", "", size=size).score for name in TEST_SETTINGS}
        for own_size in dict.fromkeys(size_text(runs, run) for run in candidates if run in of_model) or [""]:
            of_size = [run for run in candidates if run in of_model and size_text(runs, run) == own_size]
            fixed = {"paper_size": size, "train_examples": own_size or None, "model": model}
            letters = _letters([run.info["task"] for run in of_size] or tasks[size])
            cells = _hours_cells(builder, fixed | {"tasks": letters}, of_size, hours)
            builder.add([letters, own_size, MODEL_NAMES[model], source_cell(of_size), *cells])
        printed = [Cell("-") if math.isnan(value) else number_cell(value, "g") for value in hours.values()]
        builder.paper((_letters(tasks[size]), size, MODEL_NAMES[model]), printed)
    heads = ("Task", "Training examples", "Model", "Source", "Image", "Caption", "Img.+Cap.")
    notes = [
        f"Tasks: {LEGEND}. Training examples: how many a run was trained on; streamed: none of them twice. Hours are "
        "of training, not of tests."
    ]
    return builder.table(
        "table6", "Table 6. Hours of training", [("", head) for head in heads], notes, candidates, runs
    )


def _letters(tasks: Sequence[str]) -> str:
    return ", ".join(letter for task, letter in LETTERS.items() if task in tasks)


def _hours_cells(
    builder: TableBuilder, key: dict[str, Any], runs: Sequence[RunSummary], printed: Mapping[str, float]
) -> list[Cell]:
    """The cells of a line of ours: mean hours in each setting. printed: the paper's hours."""
    cells = []
    for setting, paper_hours in printed.items():
        of_setting = [run for run in runs if run.info["setting"] == setting]
        mixed = len({(run.info["hardware"], run.info["precision"]) for run in of_setting}) > 1
        every = [] if mixed else [run.info["train_seconds"] for run in of_setting]
        seconds = [value for value in every if value is not None]
        hours = float(np.mean(seconds)) / 3600 if seconds else math.nan
        builder.data.append(
            key | {"setting": setting, "hours": hours, "runs": len(seconds), "paper_hours": paper_hours}
        )
        untested = key["model"] in TEXT_ONLY and setting != "caption"
        text = f"{len(of_setting)} runs differ" if mixed else "-" if untested else ""
        cells.append(Cell(text) if text else number_cell(hours, ".3g"))
    return cells


def table8(runs: Runs) -> Table:
    """Table 8: trainable parameters of whole models, by size. Frozen runs train fewer and are left out."""
    builder = TableBuilder()
    candidates = [run for run in run_summaries(runs) if not run.traits & {"frozen", "settings unknown"}]
    architectures = [*((model, False) for model in MODEL_NAMES), *((model, True) for model in BIMODAL[:3])]
    for model, controlled in architectures:
        paper_millions = published("table8", "", model, "", "", "", controlled=str(controlled)).score
        groups: dict[tuple[str, int | None], list[RunSummary]] = {}
        for run in candidates:
            if (run.info["model"], "controlled" in run.traits) == (model, controlled):
                groups.setdefault((run.info["size"] or "", run.info["parameters"]), []).append(run)
        for (size, parameters), alike in groups.items() or [(("", None), [])]:
            millions = None if parameters is None else parameters / 1e6
            cell = number_cell(millions, ".2f" if millions is None or millions >= 1 else ".3g")
            builder.add([model_name(model, controlled), size, source_cell(alike), cell, f"{paper_millions:.2f}"])
            record = {"model": model, "controlled": controlled, "size": size or None}
            record |= {"weights": weights_of(alike) or None, "parameters": parameters, "paper_millions": paper_millions}
            builder.data.append(record)
    heads = [("", name) for name in ("Model", "Size", "Source", "Parameters, M", "Paper's, M")]
    notes = ["Only size=base has the published architectures. Volta: the controlled ones."]
    return builder.table("table8", "Table 8. Trainable parameters, millions", heads, notes, candidates, runs)
