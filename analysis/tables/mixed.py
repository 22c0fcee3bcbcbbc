"""Tables 13 and 14: what modal dropout changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from analysis import paper
from analysis.averages import RunSummary, SeedAverage, minus, or_nan, run_summaries, variants
from analysis.layout import BLANK, Cell, Table
from analysis.paper import BIMODAL, LEGEND, LETTERS, MODEL_NAMES, SPLITS, Published
from analysis.runs import Runs
from analysis.tables.builder import (
    LABEL_COLUMNS,
    LARGE,
    MARKS,
    SHORT_SETTINGS,
    TableBuilder,
    arrow,
    difference_cell,
    omission_notes,
    runs_of,
    score_cell,
    seeds_cell,
    source_cell,
    with_traits,
)
from train.results.columns import TEST_SETTINGS
from travlr.tasks import PAPER

STREAMED = ("training.stream", "training.examples")


def table13(runs: Runs) -> Table:
    """Table 13: trained in mixed, with the difference from trained in image+caption."""
    chosen = with_traits(runs)
    title = f"Table 13. Mean macro-F1 trained in mixed (difference from trained in image+caption) ({LEGEND})"
    notes = [
        *MARKS,
        f"#sd: how many mixed runs converged. Arrows: differences above {LARGE:+.0f} and below {-LARGE:+.0f}, "
        "of means of few seeds and tested by nothing; compare() tests two runs.",
    ]
    return _mixed(runs, "table13", title, chosen, notes)


def table14(runs: Runs) -> Table:
    """Table 14 (section F.2): trained in mixed, less trained in the tested setting alone on the part of the train split
    that mixed shows so: a quarter in image, a quarter in caption, a half in image+caption."""
    title = f"Table 14. Mean macro-F1 trained in mixed, less trained on the part of the data in one setting ({LEGEND})"
    notes = [
        *MARKS[:1],
        "Baselines: trained and tested in the column's setting, on 25, 25 and 50 % of the train split. #sd: how many "
        f"mixed runs converged. Arrows: differences above {LARGE:+.0f} and below {-LARGE:+.0f}, tested by nothing.",
    ]
    chosen = [run for run in run_summaries(runs) if not run.traits - {"subset"}]
    if any(run.settings.get("training.stream") for run in chosen if run.info["setting"] == "mixed"):
        notes.append(
            "Mixed runs of training.stream=true saw other examples than the train split, of which the baselines saw a "
            "part: the paper's comparison needs training.stream=false for both."
        )
    return _mixed(runs, "table14", title, chosen, notes)


PARTS = {"image": 0.25, "caption": 0.25, "image+caption": 0.5}  # of a mixed dataset that are shown so (appendix F)


def _mixed(runs: Runs, name: str, title: str, chosen: Sequence[RunSummary], notes: Iterable[str]) -> Table:
    """Both tables: of each cell the mean of the mixed runs, and of what it is compared with."""
    builder = TableBuilder()
    used: dict[str, RunSummary] = {}
    known = paper.TABLE_13 if name == "table13" else paper.TABLE_14
    for task in PAPER:
        for model in BIMODAL:
            mixed = [run for run in runs_of(chosen, task, model, ("mixed",)) if not run.traits]
            others = runs_of(chosen, task, model)
            for label, found in variants(mixed) or [("", [])]:
                cells = []
                for split in SPLITS:
                    for test in TEST_SETTINGS:
                        base = [run for run in others if _is_baseline(name, run, test) and _alike(name, run, found)]
                        used |= {run.info["name"]: run for run in (*found, *base)}
                        numbers = (SeedAverage(found), SeedAverage(base), split, test)
                        cells.append(_mixed_cell(name, *numbers))
                        key = {"task": task, "model": model, "settings": label or None}
                        builder.data.append(key | _mixed_record(known[task, model, split, test], *numbers))
                converged = seeds_cell(SeedAverage(found).converged if found else None)
                labels = (Cell(LETTERS[task]), Cell(MODEL_NAMES[model] + builder.mark(label)))
                builder.add([*labels, source_cell(found), *cells, converged], task)
            printed = [known[task, model, split, test] for split in SPLITS for test in TEST_SETTINGS]
            shown = [_mixed_text(found.score, found.difference) for found in printed]
            builder.paper((LETTERS[task], MODEL_NAMES[model]), [*shown, seeds_cell(printed[0].seeds)])
    tested = [(group, SHORT_SETTINGS[test]) for group in ("OOD", "InD") for test in TEST_SETTINGS]
    all_notes = [*notes, *omission_notes(runs, used.values(), run_summaries(runs))]
    return builder.table(name, title, [*LABEL_COLUMNS, *tested, ("", "#sd")], list(used.values()), all_notes)


def _is_baseline(table: str, run: RunSummary, test: str) -> bool:
    """Whether a mixed score in a test setting is compared with that run's."""
    if table == "table13":
        return run.info["setting"] == "image+caption" and not run.traits
    return run.info["setting"] == test and run.train_fraction == PARTS[test]


def _alike(table: str, run: RunSummary, mixed: Sequence[RunSummary]) -> bool:
    """Whether a run differs from the mixed ones in nothing but what the table compares; a subset cannot stream."""
    return bool(mixed) and len(variants([mixed[0], run], STREAMED if table == "table14" else ())) == 1


def _mixed_text(score: float | None, difference: float | None) -> Cell:
    """Of Table 13, which gives a score, and of Table 14, which does not."""
    if score is None:
        return difference_cell(difference)
    return replace(score_cell(score, difference), mark=arrow(difference))


def _mixed_cell(table: str, mixed: SeedAverage, base: SeedAverage, split: str, test: str) -> Cell:
    """Of Table 13, a score without its difference where there is nothing to compare it with."""
    score = mixed.score(test, split)
    difference = minus(score, base.score(test, split))
    if table == "table14":
        return difference_cell(difference)
    return BLANK if score is None else replace(
        _mixed_text(score, difference), underlined=mixed.above_random(test, split)
    )  # fmt: skip


def _mixed_record(published: Published, mixed: SeedAverage, base: SeedAverage, split: str, test: str) -> dict[str, Any]:
    compared = base.score(test, split)
    return {
        "split": split,
        "test_setting": test,
        **mixed.numbers(test, split),
        "compared_macro_f1": or_nan(compared),
        "compared_runs": len(base.runs),
        "compared_converged": base.converged if base.runs else None,
        "difference": or_nan(minus(mixed.score(test, split), compared)),
        "paper_macro_f1": or_nan(published.score),
        "paper_difference": or_nan(published.difference),
        "paper_converged": published.seeds,
    }
