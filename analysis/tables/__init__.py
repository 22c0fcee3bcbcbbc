"""The tables of the report: the paper's from saved runs, its numbers beside ours, and an overview of all scores.

A cell averages runs that differ in their seed alone: the converged ones (above random on test_ind in their own
setting), or all where none has converged, as in Table 2. Where runs of a cell differ in another setting, the cell says
so and a note names it; `--select` chooses among them beforehand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from analysis.frames import Runs, setting_columns
from analysis.tables.paper import BIMODAL, MODEL_NAMES, TABLE_9, TEXT_ONLY, published
from analysis.tables.pivots import (
    OURS,
    PAPER,
    Layout,
    Row,
    Table,
    average,
    count,
    format_deviation,
    format_difference,
    format_score,
    number,
    pivot,
    score_and_difference,
    score_and_interval,
    subtract,
)
from train.config import SETTINGS
from train.results.columns import BASELINES, TEST_SETTINGS, TEST_SPLITS
from travlr.metrics import describe_test
from travlr.tasks import PAPER as PAPER_TASKS
from travlr.tasks import TASKS

SPLITS = TEST_SPLITS[::-1]  # in the order of the paper's columns
CONVERGED = "#sd"
EVERY = ("*",)  # of the settings that may differ within a cell
HEADS = {"task": "Task", "model": "Model", "variant": "Variant", "size": "Size", "part": "Trained on",
         "setting": "Trained in", "test_setting": "Tested in", "split": "Split", "source": "Source"}  # fmt: skip
SHORT = {"image": "Image", "caption": "Caption", "image+caption": "Img. + Cap.", "mixed": "Mixed"}
WORDS = {
    "model": MODEL_NAMES,
    "setting": SHORT,
    "test_setting": SHORT,
    "split": dict(zip(TEST_SPLITS, ("InD", "OOD"), strict=True)),
    "part": {"0.125": "12.5 %", "0.25": "25 %", "0.5": "50 %", "1.0": "100 %"},
    "variant": {"controlled": "Volta"},
}
ORDERS = {"task": list(TASKS), "model": list(MODEL_NAMES), "setting": list(SETTINGS), "split": SPLITS,
          "test_setting": [*TEST_SETTINGS, CONVERGED], "part": [*WORDS["part"], "stream"],
          "size": ["32k", "8k", "tiny", "small", "base"]}  # fmt: skip
MEANS = (
    "Mean over the converged runs, or over all where none has converged; converged: above random on test_ind in its "
    f"own setting ({describe_test()}). Underlined: each run averaged is above random by itself; bold: the highest such "
    "mean of a column."
)
DIFFERENCE = "In brackets: the difference from test_ind."
COUNT = f"{CONVERGED}: how many runs converged."


def lay_out(lines: str, columns: str, texts: Mapping[str, Callable[[Row], str]] | None = None,
            blocks: Sequence[str] = ("task",)) -> Layout:  # fmt: skip
    """A layout by the names of the columns of results."""
    heads = [{name: HEADS[name] for name in names.split()} for names in (lines, columns)]
    return Layout(heads[0], heads[1], texts or {"": score_and_difference}, blocks, ORDERS, WORDS)


@dataclass(frozen=True)
class Spec:
    """What a table is. choose: its results among those of training runs (with columns of its own). value: the column
    that is averaged. baseline: the results whose means are subtracted, those on test_ind if it is None. split: the one
    to show, "" for both. paper: its name in paper.csv. free: settings that may differ within a cell. counts: whether a
    column says how many runs converged."""

    title: str
    layout: Layout
    choose: Callable[[pd.DataFrame], pd.DataFrame]
    value: str = "macro_f1"
    baseline: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    split: str = "test_ood"
    paper: Callable[[], pd.DataFrame] = pd.DataFrame
    free: Sequence[str] = ()
    counts: bool = False
    notes: Sequence[str] = field(default=(MEANS, DIFFERENCE))


# Which results -------------------------------------------------------------------------------------------------------


def of_variant(results: pd.DataFrame, *variants: str, models: Sequence[str] = (*BIMODAL, *TEXT_ONLY)) -> pd.DataFrame:
    return results[
        results["variant"].isin(variants) & results["task"].isin(PAPER_TASKS) & results["model"].isin(models)
    ]


def by_part(results: pd.DataFrame) -> pd.DataFrame:
    """Runs by how much of the train split they were trained on, each tested in its own setting."""
    rows = of_variant(results[results["setting"].isin(TEST_SETTINGS)], "", "part")
    parts = rows["part"].map(lambda part: "stream" if pd.isna(part) else str(float(part)))
    return rows[rows["own"]].assign(part=parts)


def architectures(results: pd.DataFrame, task: str, setting: str) -> pd.DataFrame:
    """Controlled and original architectures, by size of the training set as in the paper."""
    rows = of_variant(results, "", "part", "controlled", "controlled, part", models=("lxmert", "uniter", "visualbert"))
    rows = rows[(rows["task"] == task) & (rows["setting"] == setting) & rows["own"]]
    quarter = rows["part"].isin([0.25, 8000])
    size = quarter.map({True: "8k", False: "32k"}) if task == "spatiality" else "8k"
    kind = rows["variant"].str.startswith("controlled").map({True: "controlled", False: ""})
    return rows[quarter | ~rows["variant"].str.contains("part")].assign(size=size, variant=kind)


def once_for_each_run(results: pd.DataFrame) -> pd.DataFrame:
    """Facts of runs; where the hardware differs, hours do."""
    rows = results[results["variant"].isin(["", "controlled"])].drop_duplicates("name")
    return rows.assign(hours=rows["train_seconds"] / 3600, millions=rows["parameters"].astype(float) / 1e6)


PARTS = {"image": 0.25, "caption": 0.25, "image+caption": 0.5}  # of the examples in mixed (appendix F)


def parts_of_mixed(results: pd.DataFrame) -> pd.DataFrame:
    """Trained in one setting on the part of the train split that mixed shows in it."""
    rows = of_variant(results, "part", models=BIMODAL)
    return rows[rows["own"] & (rows["part"] == rows["setting"].map(PARTS))]


def controlled_cells(name: str) -> pd.DataFrame:
    kinds = {"True": "controlled", "False": ""}
    return published(name).assign(variant=lambda rows: rows["controlled"].map(kinds))


def transfer_cells() -> pd.DataFrame:
    rows = published("table2").assign(variant="")
    return rows[rows["setting"].isin(["image", "caption"]) & rows["test_setting"].isin(["image", "caption"])]


def hours_cells() -> pd.DataFrame:
    tasks = {"32k": "spatiality", "8k": ", ".join(PAPER_TASKS[1:])}
    return published("table6").assign(task=lambda rows: rows["size"].map(tasks))


# The tables ----------------------------------------------------------------------------------------------------------

LINES = "task model source"
STATISTICS = {"Mean": format_score, "Stdev.": format_deviation, "Seeds": count("seeds")}


def _architectures(name: str, task: str, setting: str) -> Spec:
    title = f"Table {name[5:]}. Macro-F1 of controlled (Volta) and original architectures, {task}, {setting}"
    layout = lay_out("size variant model source", "split", STATISTICS, ["size"])
    notes = (MEANS, "Stdev.: with n - 1, - for one run. 8k: for spatiality a quarter of the train split.")
    return Spec(title, layout, lambda results: architectures(results, task, setting), split="",
                paper=lambda: controlled_cells(name), free=("training.examples",), notes=notes)  # fmt: skip


SPECS = {
    "couples": Spec(
        "Couples with both answers right, percent",
        lay_out("model variant setting", "task test_setting split", {"": score_and_interval}, ()),
        lambda results: results[results["couples_right"].notna()],
        value="couples_right",
        split="",
        notes=(
            "A couple is one query, true of one scene and false of another. A coin has 25 % of couples right; a rule "
            "that sees what the two scenes share has none. In brackets: the 95 % interval of one run, over couples; of "
            "several runs the lowest and the highest.",
        ),
    ),
    "table2": Spec(
        "Table 2. Mean macro-F1 on test_ood (difference from test_ind) by training and test setting",
        lay_out(LINES, "setting test_setting"),
        lambda results: of_variant(results[results["setting"].isin(TEST_SETTINGS)], "", models=BIMODAL),
        paper=lambda: published("table2"),
        counts=True,
        notes=(MEANS, DIFFERENCE, COUNT),
    ),
    "text_only": Spec(
        "Text-only baselines. Mean macro-F1 on test_ood (difference from test_ind), captions",
        lay_out(LINES, "setting test_setting"),
        lambda results: of_variant(results, "", models=TEXT_ONLY),
        counts=True,
        notes=(MEANS, DIFFERENCE, COUNT),
    ),
    "transfer": Spec(
        "Cross-modal transfer. Mean macro-F1 on test_ood (difference from test_ind), by what helps it",
        lay_out("task model variant source", "setting test_setting"),
        lambda results: of_variant(
            results[results["setting"].isin(["image", "caption"]) & results["test_setting"].isin(["image", "caption"])],
            *("", "consistency"),
            models=BIMODAL,
        ),
        paper=transfer_cells,
        counts=True,
        notes=(
            MEANS,
            DIFFERENCE,
            "Consistency: of unlabelled pairs of image and caption the model learns to say of the other modality what "
            "it says of the one it is trained in. The pairs are of the task's own distribution; none has an answer.",
        ),
    ),
    "frozen": Spec(
        "Frozen encoder (section 5.2). Mean macro-F1 on test_ood (difference from test_ind), own setting",
        lay_out(LINES, "setting"),
        lambda results: of_variant(results[results["own"]], "frozen"),
        paper=lambda: published("frozen"),
        notes=(MEANS, DIFFERENCE, "The paper prints two scores, the others it says are not above random."),
    ),
    "subsets": Spec(
        "Appendix C. Macro-F1 on test_ood (difference from test_ind) by how much is trained on",
        lay_out(LINES, "setting part"),
        by_part,
        paper=lambda: published("subsets").assign(part=lambda rows: rows["size"]),
        free=("training.examples",),
        notes=(
            MEANS,
            DIFFERENCE,
            "The paper draws its scores (figures 15 to 18) and prints few of them; its subsets have one seed. stream: "
            "examples that are never repeated, in place of the train split.",
        ),
    ),
    "table10": _architectures("table10", "spatiality", "image"),
    "table11": _architectures("table11", "cardinality", "image"),
    "table12": _architectures("table12", "cardinality", "caption"),
    "table13": Spec(
        "Table 13. Mean macro-F1 trained in mixed (difference from trained in image+caption)",
        lay_out(LINES, "split test_setting"),
        lambda results: of_variant(results[results["setting"] == "mixed"], "", models=BIMODAL),
        baseline=lambda results: of_variant(results[results["setting"] == "image+caption"], "", models=BIMODAL),
        split="",
        paper=lambda: published("table13"),
        counts=True,
        notes=(MEANS, COUNT),
    ),
    "table14": Spec(
        "Table 14. Mean macro-F1 trained in mixed, less trained on the part of the data in one setting",
        lay_out(LINES, "split test_setting", {"": format_difference}),
        lambda results: of_variant(results[results["setting"] == "mixed"], "", models=BIMODAL),
        baseline=parts_of_mixed,
        split="",
        paper=lambda: published("table14"),
        free=("training.examples",),
        counts=True,
        notes=(MEANS, COUNT, "Compared with runs in the column's setting on 25, 25 and 50 % of the train split."),
    ),
    "table6": Spec(
        "Table 6. Hours of training",
        lay_out(LINES, "setting", {"": number}),
        lambda results: once_for_each_run(results).assign(machine=lambda rows: rows["hardware"]),
        value="hours",
        split="",
        paper=hours_cells,
        notes=("Hours are of training, not of tests.",),
    ),
    "table8": Spec(
        "Table 8. Trainable parameters, millions",
        lay_out("model variant size source", "task", {"": format_score}),
        once_for_each_run,
        value="millions",
        split="",
        paper=lambda: controlled_cells("table8").assign(size="base", task="any task"),
        free=EVERY,
        notes=("Only size=base has the published architectures. Volta: the controlled ones.",),
    ),
}


def make_table(name: str, runs: Runs) -> Table:
    """A table of `SPECS` from training runs."""
    spec = SPECS[name]
    results = spec.choose(runs.trainings)
    shown = [*spec.layout.lines, *spec.layout.columns]
    key = list(dict.fromkeys([*(name for name in shown if name != "source"), "split"]))
    free = setting_columns(results) if spec.free is EVERY else spec.free
    cells = average(results, key, spec.value, free)
    if spec.baseline is None:
        on = [one for one in key if one != "split"]
        cells = subtract(cells, cells[cells["split"] == "test_ind"], on)
        cells = cells[cells["split"] == spec.split] if spec.split else cells
    else:
        others = spec.baseline(runs.trainings)
        together = average(pd.concat([results, others]), key, spec.value, free)
        cells = subtract(cells, average(others, key, spec.value, free), key)
        cells["differing"] = cells[key].merge(together, "left", key)["differing"].to_numpy()
    cells["source"] = OURS + ", " + cells["initial"]
    paper = spec.paper()
    if len(paper):
        paper = paper.assign(source=PAPER, converged=paper["seeds"], differing="")
        cells = pd.concat([cells, paper[[one for one in paper if one in cells]]], ignore_index=True)
    if spec.counts:
        cells = with_counts(cells, shown)
    return pivot(name, spec.title, cells, spec.layout, spec.notes)


def with_counts(cells: pd.DataFrame, shown: Sequence[str]) -> pd.DataFrame:
    """Cells with one more in each group of columns: how many runs converged."""
    place = [one for one in shown if one not in ("test_setting", "split")]
    counts = cells[cells["differing"] == ""].drop_duplicates(place)[[*place, "converged", "runs"]]
    counts = counts.assign(test_setting=CONVERGED, split="", differing="")
    counts["text"] = ["" if pd.isna(one) else f"{one:.0f}" for one in counts["converged"]]
    return pd.concat([cells, counts[counts["text"] != ""]], ignore_index=True)


def overview(runs: Runs) -> Table:
    """Mean macro-F1 of each model and training setting, by task, test setting and split; the baselines below."""
    layout = lay_out("model variant setting", "task test_setting split", {"": score_and_interval}, ())
    layout = replace(layout, links=("task", "model", "setting", "test_setting", "split"))
    results = runs.trainings
    key = [*layout.lines, *layout.columns]
    cells = average(results, key, "macro_f1").assign(source=OURS)
    places = cells[["task", "test_setting", "split"]].drop_duplicates()
    levels = results.groupby(["task", "split"])[[f"baseline_{name}" for name in BASELINES]].max().reset_index()
    for name, words in BASELINES.items():
        line = places.merge(levels, "left").rename(columns={f"baseline_{name}": "mean"}).dropna(subset="mean")
        cells = pd.concat([cells, line[["task", "test_setting", "split", "mean"]].assign(
            model="baseline", variant=words, setting="", source=PAPER, differing="")], ignore_index=True)  # fmt: skip
    notes = (
        MEANS,
        "In brackets: the 95 % interval of one run; of several runs the lowest and highest score. +: each run averaged "
        "is above the best unbound rule.",
        "Baselines: what rules reach that see the query, or the query and the number of objects, and the best of the "
        "rules that bind no colour to a shape or see one object only (python -m travlr.baselines); the highest of "
        "several datasets.",
    )
    return pivot("overview", "Macro-F1 by model, task, test setting and split", cells, layout, notes)


def few_shot(runs: Runs) -> Table:
    """Table 9: trained further on a few examples of the other modality, and tested in it; before and after."""
    results = runs.trainings
    further = results[results["variant"].str.contains("trained further") & results["own"]]
    first = results.drop_duplicates("run")[["run", "setting"]].rename(columns={"run": "start", "setting": "seen"})
    before = results[["run", "test_setting", "split", "macro_f1", "above_random"]].rename(columns={"run": "start"})
    lines = {
        "seen": "Seen",
        "setting": "Trained further in",
        "task": "Task",
        "model": "Model",
        "seed": "Seed",
        "name": "Run",
    }
    columns = ["start", *lines, "split", "macro_f1", "above_random"]
    after = further.merge(first, "left", "start")[columns] if "start" in further else pd.DataFrame(columns=columns)
    old = after[after["split"] == "test_ood"].drop(columns=["macro_f1", "above_random"])
    old = old.merge(before, "left", left_on=["start", "setting", "split"], right_on=["start", "test_setting", "split"])
    heads = {"test_ood": "after, OOD", "test_ind": "after, InD"}
    cells = pd.concat([old.assign(when="before, OOD"), after.assign(when=after["split"].map(heads))], ignore_index=True)
    cells = cells.rename(columns={"macro_f1": "mean", "above_random": "above"}).assign(
        differing="", own=False, source=OURS
    )
    printed = pd.DataFrame(TABLE_9, columns=[*lines][:-1]).assign(name="paper", when="above random", text="no")
    printed = printed.assign(source=PAPER, differing="")
    layout = Layout(lines, {"when": ""}, {"": format_score}, ["name"], ORDERS, WORDS)
    title = "Table 9. Macro-F1 in the modality that was not seen, before and after training further on examples of it"
    notes = (f"Underlined: above random ({describe_test()}).", "The paper prints no scores: none came above random.")
    return pivot("few_shot", title, pd.concat([cells, printed], ignore_index=True), layout, notes)


TABLES: dict[str, Callable[[Runs], Table]] = {
    "overview": overview,
    **{name: functools.partial(make_table, name) for name in SPECS},
    "few_shot": few_shot,
}
