"""Tables 3, 6 and 8: datasets, run times, parameters."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from analysis import paper
from analysis.averages import RunSummary, or_nan, run_summaries, variants, weights_of
from analysis.layout import BLANK, Cell, Table
from analysis.paper import LEGEND, LETTERS, MODEL_NAMES, TEXT_ONLY
from analysis.runs import Runs
from analysis.tables.builder import OURS, TableBuilder, omission_notes, size_text, source_cell, with_traits
from train.results.columns import TEST_SETTINGS
from travlr.tasks import PAPER


def table3(runs: Runs) -> Table:
    """Table 3: how many answers of each split are true and false, by the datasets' manifests."""
    builder = TableBuilder()
    tasks = {digest: _task_of(runs, digest) for digest in runs.datasets}
    splits = {"train": "Train", "validation": "Val.", "test_ind": "InD Test", "test_ood": "OOD Test"}
    for task in PAPER:
        digests = [digest for digest, found in tasks.items() if found == task]
        for digest in digests or (None,):
            counts = {split: _true_false(runs, digest, split) for split in splits}
            label = digest[:8] if digest else ""
            builder.add(
                [Cell(task), Cell(f"{OURS} {label}".strip()), *(_true_false_cell(found) for found in counts.values())]
            )
            for split, found in counts.items():
                ours = dict(zip(("true", "false"), found or (None, None), strict=True))
                theirs = dict(zip(("paper_true", "paper_false"), paper.TABLE_3[task][split], strict=True))
                builder.data.append({"task": task, "dataset": digest, "split": split, **ours, **theirs})
        builder.add([Cell(task), Cell("paper"), *(_true_false_cell(paper.TABLE_3[task][split]) for split in splits)])
    columns = [("", name) for name in ("Task", "Source", *splits.values())]
    notes = [f"{digest[:8]}: {dataset.folder}." for digest, dataset in runs.datasets.items()]
    title = "Table 3. Examples whose answer is true / false"
    return builder.table("table3", title, columns, [], [*notes, *(f"Left out: {line}." for line in runs.skipped)])


def _task_of(runs: Runs, digest: str) -> str | None:
    """What a dataset says, or the runs on it do."""
    task = (runs.datasets[digest].manifest.get("config") or {}).get("task")
    found = runs.results.loc[runs.results["dataset"] == digest, "task"].dropna()
    return str(task) if task else str(found.iloc[0]) if len(found) else None


def _true_false(runs: Runs, digest: str | None, split: str) -> tuple[int, int] | None:
    counts = runs.datasets[digest].manifest["splits"].get(split) if digest else None
    return (counts["true"], counts["rows"] - counts["true"]) if counts and "true" in counts else None


def _true_false_cell(counts: tuple[int, int] | None) -> Cell:
    return Cell(f"{counts[0]} / {counts[1]}") if counts else BLANK


def table6(runs: Runs, watts: float | None = None, grams_per_kwh: float | None = None) -> Table:
    """Table 6: hours of training by how much was trained on, model and setting; means over runs on like hardware.

    watts: what the hardware draws, which no run measures; gives the energy of a run in the slowest setting, kWh.
    grams_per_kwh: CO2-equivalent of the electricity; gives kg of it. Both columns are blank without. Raises
    `ValueError` for values that are not above 0, and for the second without the first.
    """
    for name, value in (("watts", watts), ("grams_per_kwh", grams_per_kwh)):
        if value is not None and not value > 0:
            raise ValueError(f"{name}={value}: must be above 0")
    if grams_per_kwh is not None and watts is None:
        raise ValueError(f"grams_per_kwh={grams_per_kwh}: needs watts= too, what the hardware draws")
    builder = TableBuilder()
    chosen = [_with_hardware(run) for run in with_traits(runs) if run.info["setting"] in TEST_SETTINGS]
    tasks = {"32k": ["spatiality"], "8k": [task for task in PAPER if task != "spatiality"]}  # the paper's sizes
    for (size, model), hours in paper.TABLE_6.items():
        found = [run for run in chosen if run.info["model"] == model and run.info["task"] in tasks[size]]
        trained_on: dict[str, list[RunSummary]] = {}
        for run in found:
            trained_on.setdefault(size_text(runs, run), []).append(run)
        for own_size, of_size in trained_on.items() or [("", [])]:
            for label, alike in variants(of_size, ("dataset",)) or [("", [])]:
                names = _letters({run.info["task"] for run in alike} or tasks[size])
                _hours_line(builder, (size, model), (names, own_size), label, alike, (watts, grams_per_kwh))
        known = [Cell("-" if value is None else f"{value:g}") for value in hours]
        carbon = paper.CARBON.get((size, model))
        labels = (_letters(tasks[size]), size, MODEL_NAMES[model])
        builder.paper(labels, [*known, Cell(), Cell(f"{carbon:g}" if carbon else "")])
    heads = ("Task", "Training examples", "Model", "Source", "Image", "Caption", "Img.+Cap.", "Energy, kWh", "CO2e, kg")
    notes = [
        f"Tasks: {LEGEND}. Training examples: how many a run was trained on; streamed: none of them twice. Hours are "
        "of training, not of tests."
    ]
    if watts is None:
        notes.append("Energy and CO2e are blank: they need watts=, and CO2e grams_per_kwh= as well.")
    else:
        electricity = f", {grams_per_kwh:g} g of CO2-equivalent per kWh" if grams_per_kwh else ""
        notes.append(f"Energy and CO2e: not measured, of one run in its slowest setting at {watts:g} W{electricity}.")
    title = "Table 6. Hours of training"
    all_notes = [*notes, *omission_notes(runs, chosen, run_summaries(runs))]
    return builder.table("table6", title, [("", head) for head in heads], chosen, all_notes)


def _letters(tasks: Collection[str]) -> str:
    return ", ".join(letter for task, letter in LETTERS.items() if task in tasks)


def _with_hardware(run: RunSummary) -> RunSummary:
    """With what it ran on among its settings, so that no mean is over different hardware."""
    more = {name: run.info[name] for name in ("hardware", "precision")}
    return replace(run, settings=run.settings | more)


def _hours_line(
    builder: TableBuilder,
    key: tuple[str, str],
    trained_on: tuple[str, str],
    label: str,
    runs: Sequence[RunSummary],
    rates: tuple[float | None, float | None],
) -> None:
    """A line of ours. key: the paper's size and model; trained_on: tasks and number of examples, as printed."""
    size, model = key
    watts, grams = rates
    hours: dict[str, float | None] = {}
    for place, setting in enumerate(TEST_SETTINGS):
        seconds = [run.info["train_seconds"] for run in runs if run.info["setting"] == setting]
        known = [value for value in seconds if value is not None]
        hours[setting] = float(np.mean(known)) / 3600 if known else None
        published = paper.TABLE_6[key][place]
        builder.data.append(
            {
                "paper_size": size,
                "tasks": trained_on[0],
                "train_examples": trained_on[1] or None,
                "model": model,
                "settings": label or None,
                "setting": setting,
                "hours": or_nan(hours[setting]),
                "runs": len(known),
                "energy_kwh": or_nan(_times(hours[setting], watts, 1000)),
                "co2e_kg": or_nan(_times(_times(hours[setting], watts, 1000), grams, 1000)),
                "paper_hours": or_nan(published),
                "paper_co2e_kg": or_nan(paper.CARBON.get(key)),
            }
        )
    slowest = max((value for value in hours.values() if value is not None), default=None)
    energy = _times(slowest, watts, 1000)
    cells = [Cell("-") if model in TEXT_ONLY and s != "caption" else _hours(hours[s]) for s in TEST_SETTINGS]
    estimates = [
        Cell(f"{value:.3g}") if value is not None else Cell() for value in (energy, _times(energy, grams, 1000))
    ]
    labels = (*map(Cell, trained_on), Cell(MODEL_NAMES[model] + builder.mark(label)))
    builder.add([*labels, source_cell(runs), *cells, *estimates])


def _times(value: float | None, rate: float | None, per: float) -> float | None:
    return None if value is None or rate is None else value * rate / per


def _hours(value: float | None) -> Cell:
    return BLANK if value is None else Cell(f"{value:.3g}")


def table8(runs: Runs) -> Table:
    """Table 8: trainable parameters of whole models, by size. Frozen runs train fewer and are left out."""
    builder = TableBuilder()
    chosen = [run for run in run_summaries(runs) if not run.traits & {"frozen", "settings unknown"}]
    for (model, controlled), published in paper.TABLE_8.items():
        found = [run for run in chosen if (run.info["model"], "controlled" in run.traits) == (model, controlled)]
        counted: dict[tuple[str, int | None], list[RunSummary]] = {}
        for run in found:
            counted.setdefault((run.info["size"] or "", run.info["parameters"]), []).append(run)
        label = ("Volta " if controlled else "") + MODEL_NAMES[model]
        for (size, parameters), alike in counted.items() or [(("", None), [])]:
            shown = BLANK if parameters is None else Cell(_millions(parameters))
            known = Cell(f"{published:.2f}")
            builder.add([Cell(label), Cell(size), source_cell(alike), shown, known])
            builder.data.append(
                {
                    "model": model,
                    "controlled": controlled,
                    "size": size or None,
                    "weights": weights_of(alike) or None,
                    "parameters": parameters,
                    "paper_millions": published,
                }
            )
    heads = [("", name) for name in ("Model", "Size", "Source", "Parameters, M", "Paper's, M")]
    notes = ["Only size=base has the published architectures. Volta: the controlled ones."]
    title = "Table 8. Trainable parameters, millions"
    return builder.table("table8", title, heads, chosen, [*notes, *omission_notes(runs, chosen, run_summaries(runs))])


def _millions(parameters: int) -> str:
    return f"{parameters / 1e6:.2f}" if parameters >= 1e6 else f"{parameters / 1e6:.3g}"
