"""Tables 10 to 14: controlled architectures, and what modal dropout changes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from analysis.averages import RunSummary, variants
from analysis.layout import BLANK, Cell, Table
from analysis.paper import BIMODAL, LEGEND, LETTERS, MODEL_NAMES, SPLITS, published
from analysis.runs import Runs
from analysis.tables.builder import (
    LABEL_COLUMNS,
    LARGE,
    MARKS,
    SHORT_SETTINGS,
    TableBuilder,
    arrow,
    average_cell,
    model_name,
    number_cell,
    runs_of,
    score_cell,
    signed,
    size_text,
    source_cell,
    with_traits,
)
from train.results.columns import TEST_SETTINGS
from travlr.tasks import PAPER

# Tables 10 to 12 ------------------------------------------------------------------------------------------------------


def _controlled(name: str, task: str, setting: str, sizes: Mapping[str, float], runs: Runs) -> Table:
    """Controlled and original architectures on a task in one setting. sizes: parts of the train split, by the paper's
    number of examples."""
    builder, included = TableBuilder(), list[RunSummary]()
    candidates = with_traits(runs, "controlled", "subset", exactly=False)
    for (size, part), controlled, model in product(sizes.items(), (True, False), ("lxmert", "uniter", "visualbert")):
        of_model = [
            run
            for run in runs_of(candidates, task, model, (setting,))
            if ("controlled" in run.traits) == controlled and _is_size(run, part)
        ]
        included += of_model
        label = model_name(model, controlled)
        by_split = {
            split: published(name, task, model, setting, setting, split, size=size, controlled=str(controlled))
            for split in SPLITS
        }
        fixed = {"paper_size": size, "train_examples": None, "model": model, "controlled": controlled}
        average, cells = builder.average(of_model, fixed), list[Cell]()
        examples = " or ".join(sorted({size_text(runs, run) for run in of_model}))
        for split, paper in by_split.items():
            mean = average.mean(setting, split)
            cells += [average_cell(average, setting, split), _deviation(mean.deviation) if mean.runs else BLANK]
            record = fixed | {"train_examples": examples or None, "split": split} | average.numbers(setting, split)
            record |= {"averaged": len(average.averaged), "paper_macro_f1": paper.score}
            record |= {"paper_deviation": paper.deviation, "paper_averaged": paper.seeds}
            builder.data.append(record)
        cells.append(number_cell(len(average.averaged) or None))
        builder.add([label, examples, source_cell(of_model), *cells], size)
        both = [cell for paper in by_split.values() for cell in (score_cell(paper.score), _deviation(paper.deviation))]
        builder.paper((label, size), [*both, number_cell(by_split["test_ood"].seeds)])
    statistics = [(group, name) for group in ("OOD", "InD") for name in ("Mean", "Stdev.")]
    heads = (("", "Model"), ("", "Training examples"), ("", "Source"), *statistics, ("", "# Seeds"))
    title = (
        f"Table {name[5:]}. Mean and standard deviation of macro-F1, controlled and original architectures, "
        f"{task}, {setting}"
    )
    notes = [
        *MARKS[:1],
        "Stdev.: with n - 1, - where there is one run; # Seeds: runs averaged. Volta: the controlled architectures.",
        "Underlined: each run averaged is above random by itself. Bold: the highest mean of a block, where it is "
        "underlined.",
        "Blocks are those of the paper: all of the train split, and for spatiality a quarter. streamed: none seen "
        "twice.",
    ]
    return builder.table(name, title, heads, notes, included, runs)


table10 = partial(_controlled, "table10", "spatiality", "image", {"32k": 1.0, "8k": 0.25})
table11 = partial(_controlled, "table11", "cardinality", "image", {"8k": 1.0})
table12 = partial(_controlled, "table12", "cardinality", "caption", {"8k": 1.0})


def _is_size(run: RunSummary, part: float) -> bool:
    """Whether a run was trained on a part of the train split. A quarter of that of spatiality is the paper's 8k; if its
    size is unknown, 8,000 examples count as a quarter."""
    return run.train_fraction == part or (part == 0.25 and run.train_fraction == 8000)


def _deviation(value: float) -> Cell:
    return Cell("-") if math.isnan(value) else number_cell(value, ",.2f")


# Tables 13 and 14 -----------------------------------------------------------------------------------------------------

STREAMED = ("training.examples",)


def table13(runs: Runs) -> Table:
    """Table 13: trained in mixed, with the difference from trained in image+caption."""
    candidates = with_traits(runs)
    title = f"Table 13. Mean macro-F1 trained in mixed (difference from trained in image+caption) ({LEGEND})"
    notes = [
        *MARKS,
        f"#sd: how many mixed runs converged. Arrows: differences above {LARGE:+.0f} and below {-LARGE:+.0f}, "
        "of means of few seeds and tested by nothing; compare() tests two runs.",
    ]
    return _mixed(runs, "table13", title, candidates, notes)


def table14(runs: Runs) -> Table:
    """Table 14 (section F.2): the score of runs trained in mixed, minus that of runs trained in the tested setting
    alone, on the part of the train split that mixed shows in it: a quarter in image, a quarter in caption, a half in
    image+caption."""
    title = f"Table 14. Mean macro-F1 trained in mixed, less trained on the part of the data in one setting ({LEGEND})"
    notes = [
        *MARKS[:1],
        "Baselines: trained and tested in the column's setting, on 25, 25 and 50 % of the train split. #sd: how many "
        f"mixed runs converged. Arrows: differences above {LARGE:+.0f} and below {-LARGE:+.0f}, tested by nothing.",
    ]
    candidates = with_traits(runs, "subset", exactly=False)
    if any(run.streams for run in candidates if run.info["setting"] == "mixed"):
        notes.append(
            "Mixed runs of training.examples=null saw other examples than the train split, of which the baselines saw "
            "a part: the paper's comparison needs parts of it for both."
        )
    return _mixed(runs, "table14", title, candidates, notes)


PARTS = {"image": 0.25, "caption": 0.25, "image+caption": 0.5}  # of the examples in mixed (appendix F)


def _mixed(runs: Runs, name: str, title: str, candidates: Sequence[RunSummary], notes: Iterable[str]) -> Table:
    """Either table: for each cell the mean of the mixed runs, and that of the runs they are compared with."""
    builder, included = TableBuilder(), list[RunSummary]()
    places = list(product(SPLITS, TEST_SETTINGS))
    for task, model in product(PAPER, BIMODAL):
        labels, others = (LETTERS[task], MODEL_NAMES[model]), runs_of(candidates, task, model)
        mixed = [run for run in runs_of(candidates, task, model, ("mixed",)) if not run.traits]
        by_place = {place: published(name, task, model, "mixed", place[1], place[0]) for place in places}
        key, cells = {"task": task, "model": model}, list[Cell]()
        average = builder.average(mixed, key)
        included += mixed
        for split, test in places:
            base = [run for run in others if _is_baseline(name, run, test) and _alike(name, run, mixed)]
            included += base
            baseline, score = builder.average(base, key), average.score(test, split)
            difference = score - baseline.score(test, split)
            cells.append(_mixed_cell(name, score, difference, average.above_random(test, split)))
            record = key | {"split": split, "test_setting": test} | average.numbers(test, split)
            record |= {"compared_macro_f1": baseline.score(test, split), "compared_runs": len(base)}
            record |= {"compared_converged": baseline.converged if base else None, "difference": difference}
            paper = by_place[split, test]
            record |= {"paper_macro_f1": paper.score, "paper_difference": paper.difference}
            builder.data.append(record | {"paper_converged": paper.seeds})
        converged = number_cell(average.converged if mixed else None)
        builder.add([*labels, source_cell(mixed), *cells, converged], task)
        printed = [_mixed_cell(name, cell.score, cell.difference) for cell in by_place.values()]
        builder.paper(labels, [*printed, number_cell(by_place["test_ood", "image"].seeds)])
    tested = [(group, SHORT_SETTINGS[test]) for group in ("OOD", "InD") for test in TEST_SETTINGS]
    return builder.table(name, title, [*LABEL_COLUMNS, *tested, ("", "#sd")], notes, included, runs)


def _is_baseline(table: str, run: RunSummary, test: str) -> bool:
    """Whether the mixed score in a test setting is compared with the score of a run."""
    if table == "table13":
        return run.info["setting"] == "image+caption" and not run.traits
    return run.info["setting"] == test and run.train_fraction == PARTS[test]


def _alike(table: str, run: RunSummary, mixed: Sequence[RunSummary]) -> bool:
    """Whether a run differs from the mixed runs only in what the table compares. For Table 14 this includes streaming,
    as a subset cannot be streamed."""
    return bool(mixed) and len(variants([mixed[0], run], STREAMED if table == "table14" else ())) == 1


def _mixed_cell(table: str, score: float, difference: float, above: bool = False) -> Cell:
    """A cell of Table 14, the difference; or of Table 13, the score with the difference if there is one."""
    if table == "table14":
        return BLANK if math.isnan(difference) else Cell(signed(difference), mark=arrow(difference))
    return replace(score_cell(score, difference, above), mark=arrow(difference))
