"""Table 9: a few examples of the modality that had not been seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from analysis import paper
from analysis.averages import RunSummary, SeedAverage, or_nan, run_summaries, variants
from analysis.layout import Cell, Table
from analysis.paper import LETTERS, MODEL_NAMES
from analysis.runs import Runs
from analysis.tables.builder import LONG_SETTINGS, TableBuilder, omission_notes, score_cell, source_cell
from train.results.scores import TEST
from travlr.tasks import PAPER


def few_shot(runs: Runs) -> Table:
    """Table 9 and section 4.2: trained further on a few examples of the modality that had not been seen, and tested in
    it; before and after."""
    builder = TableBuilder()
    every = run_summaries(runs)
    by_run = {str(run.info["run"]): run for run in every}
    chosen: dict[tuple[str, str, str, str, int], list[RunSummary]] = {key: [] for key in paper.TABLE_9}
    for run in every:
        if run.info["task"] not in PAPER or run.info["model"] not in MODEL_NAMES:
            continue
        first = by_run.get(str(run.settings.get("start")))
        if run.settings.get("start") and (first is None or first.info["setting"] != run.info["setting"]):
            seen = str(first.info["setting"]) if first else _other(run.info["setting"])
            info = run.info
            chosen.setdefault((seen, info["setting"], info["task"], info["model"], info["seed"]), []).append(run)
    for key, found in chosen.items():
        for label, alike in variants(found, ("start",)) or [("", [])]:
            for found_run in alike or (None,):
                _few_shot_line(builder, key, label, found_run, by_run)
    heads = [("", name) for name in ("Setting", "Task", "Model", "Seed", "Source")]
    columns = [*heads, ("OOD", "Before"), ("OOD", "After"), ("InD", "After"), ("", "Above random in the paper")]
    title = (
        "Table 9. Macro-F1 in the modality that was not seen, before and after training further on few examples of it"
    )
    used = [run for found in chosen.values() for run in found]
    notes = [
        f"Underlined: above random ({TEST}). The paper prints no scores here and says that none came above random.",
        *omission_notes(runs, used, every),
    ]
    return builder.table("few_shot", title, columns, used, notes)


def _other(setting: str) -> str:
    return {"image": "caption", "caption": "image"}.get(setting, "unknown")


def _few_shot_line(
    builder: TableBuilder,
    key: tuple[str, str, str, str, int],
    label: str,
    run: RunSummary | None,
    by_run: Mapping[str, RunSummary],
) -> None:
    seen, setting, task, model, seed = key
    first = by_run.get(str(run.settings.get("start"))) if run else None
    before, after = SeedAverage([first] if first else []), SeedAverage([run] if run else [])
    places = ((before, "test_ood"), (after, "test_ood"), (after, "test_ind"))
    # A single run, so no mean could hide one that is not above random.
    cells = [
        score_cell(found.score(setting, split), above=found.above_random(setting, split)) for found, split in places
    ]
    published = "no" if key in paper.TABLE_9 else ""
    direction = f"{LONG_SETTINGS.get(seen, seen)} to {LONG_SETTINGS.get(setting, setting)}"
    labels = (direction, LETTERS[task], MODEL_NAMES[model] + builder.mark(label), str(seed))
    plain = [replace(cell, value=None) for cell in cells]
    builder.add([*map(Cell, labels), source_cell([run] if run else []), *plain, Cell(published)])
    names = ("before_test_ood", "after_test_ood", "after_test_ind")
    builder.data.append(
        {
            "seen": seen,
            "trained_further_in": setting,
            "task": task,
            "model": model,
            "seed": seed,
            "settings": label or None,
            "weights": run.weights if run else None,
            **{name: run.info[name] if run else None for name in ("train_examples", "unlabelled_examples")},
            **{name: or_nan(found.score(setting, split)) for name, (found, split) in zip(names, places, strict=True)},
            "above_random": after.above_random(setting, "test_ood") if run else None,
            "paper_above_random": False if published else None,
        }
    )
