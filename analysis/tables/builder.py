"""Builds tables: rows of our numbers and of the paper's, the best values, and notes on our runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from analysis.averages import RunSummary, SeedAverage, run_summaries, variants, weights_of
from analysis.layout import BLANK, Cell, Table
from analysis.paper import MODEL_NAMES
from analysis.runs import Runs
from train.results.columns import TEST_SETTINGS
from train.results.scores import TEST
from train.results.tables import score_text, value_text

SHORT_SETTINGS = {"image": "Image", "caption": "Caption", "image+caption": "Img. + Cap."}
LONG_SETTINGS = SHORT_SETTINGS | {"image+caption": "Image + Caption", "mixed": "Mixed"}
LABEL_COLUMNS = (("", "Task"), ("", "Model"), ("", "Source"))
MARKS = (
    "Mean over the converged runs, or over all where none has converged; converged: above random on test_ind in its "
    "own setting (image+caption for mixed).",
    f"Underlined: each run averaged is above random on test_ood by itself ({TEST}). Bold: the highest mean of a column "
    "among our rows of a task, where it is underlined. Lines of the paper have neither.",
)
LARGE = 5.0  # points: larger differences are marked in Tables 13 and 14
OURS = "ours"
PAPER_SOURCE = Cell("paper, pretrained")


def signed(difference: float) -> str:
    """ "+1.20"; no difference is +0.00."""
    return f"{round(difference, 2) + 0.0:+.2f}"


def average_cell(average: SeedAverage, test: str, split: str, difference: float = math.nan) -> Cell:
    """A mean as in Table 2; or that its runs differ in more than the seed."""
    if average.mixed:
        return Cell(f"{len(average.runs)} runs differ")
    return score_cell(average.score(test, split), difference, average.above_random(test, split))


def score_cell(score: float, difference: float = math.nan, above: bool = False) -> Cell:
    """A score as in Table 2: 65.94 (-1.02). NaN: there is none."""
    if math.isnan(score):
        return BLANK
    text = score_text(score) if math.isnan(difference) else f"{score_text(score)} ({signed(difference)})"
    return Cell(text, score, underlined=above)


def arrow(difference: float) -> str:
    return "" if math.isnan(difference) or abs(difference) <= LARGE else "↑" if difference > 0 else "↓"


def number_cell(value: float | None, form: str = "") -> Cell:
    return BLANK if pd.isna(value) else Cell(format(value, form))


def model_name(model: str, controlled: bool = False) -> str:
    return ("Volta " if controlled else "") + MODEL_NAMES[model]


def source_cell(runs: Iterable[RunSummary]) -> Cell:
    return Cell(", ".join(filter(None, (OURS, weights_of(runs)))))


@dataclass
class TableBuilder:
    """The rows and data of a table. blocks: for each row the part of the table (a task) in which the best value of each
    column is marked. mixed: notes on cells whose runs differ in more than the seed."""

    rows: list[list[Cell]] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)
    data: list[dict[str, Any]] = field(default_factory=list)
    mixed: list[str] = field(default_factory=list)

    def average(
        self, runs: Sequence[RunSummary], key: Mapping[str, Any] | None = None, free: Collection[str] = ()
    ) -> SeedAverage:
        """The mean of the runs of a cell. Where they differ in more than the seed there is none, and a note says so.
        free: settings that may differ."""
        if len(groups := variants(runs, free)) < 2:
            return SeedAverage(runs)
        mixed = " or ".join(text for text, _ in groups)
        row = ", ".join(str(value) for value in (key or {}).values() if isinstance(value, str))
        self.mixed.append(f"{row}: {len(runs)} runs differ ({mixed}); choose with --select.")
        return SeedAverage(runs, mixed)

    def add(self, cells: Iterable[Cell | str], block: str = "") -> None:
        self.rows.append([Cell(cell) if isinstance(cell, str) else cell for cell in cells])
        self.blocks.append(block)

    def paper(self, labels: Iterable[str], cells: Sequence[Cell]) -> None:
        """Add a row of the paper's numbers, if it has any; cells without a number are not counted as missing."""
        if any(cell.text for cell in cells):
            self.add([*labels, PAPER_SOURCE, *(replace(cell, missing=False, value=None) for cell in cells)])

    def best(self) -> tuple[tuple[Cell, ...], ...]:
        """The rows, with the highest value of each column of each block in bold if it is above random (underlined): the
        highest of several scores at chance is luck."""
        highest: dict[tuple[str, int], float] = {}
        for block, row in zip(self.blocks, self.rows, strict=True):
            for place, cell in enumerate(row):
                if cell.value is not None:
                    highest[block, place] = max(cell.value, highest.get((block, place), -math.inf))
        return tuple(
            tuple(replace(cell, bold=cell.underlined and cell.value is not None and cell.value == highest[block, place])
                  for place, cell in enumerate(row))
            for block, row in zip(self.blocks, self.rows, strict=True)
        )  # fmt: skip

    def table(
        self, name: str, title: str, columns: Sequence[tuple[str, ...]], notes: Iterable[str],
        included: Iterable[RunSummary] = (), runs: Runs | None = None, **more: Any,
    ) -> Table:  # fmt: skip
        """The table, with notes on cells without a mean, on the included runs, and on the other runs."""
        included = list({run.info["name"]: run for run in included}.values())
        others = omission_notes(runs, included) if runs else []
        every = (*notes, *dict.fromkeys(self.mixed), *others, *run_notes(included))
        return Table(name, title, tuple(columns), self.best(), pd.DataFrame(self.data), every, **more)


def run_notes(included: Sequence[RunSummary]) -> list[str]:
    """Facts about our runs in a table: number, size, initial weights, steps, examples, hardware."""
    if not included:
        return []

    def each(name: str, unit: str = "", between: str = " or ") -> list[str]:
        values: list[Any] = sorted({run.info[name] for run in included} - {None})
        return [f"{unit}{between.join(map(value_text, values))}"] if values else []

    facts = [f"{len(included)} run{'s' * (len(included) > 1)}", *each("seed", "seeds ", ", "), *each("size", "size ")]
    facts += [
        f"{weights_of(included)} weights",
        *each("steps", "steps "),
        *each("train_examples", "training examples "),
    ]
    if any(run.info["unlabelled_examples"] for run in included):
        facts += each("unlabelled_examples", "beside them unlabelled pairs of image and caption ")
    if any(run.streams for run in included):
        facts.append("those of training.examples=null never repeat an example")
    if any(run.settings.get("training.auxiliary_targets") for run in included):
        facts.append("those of training.auxiliary_targets=true also learn the intermediate steps of an answer")
    lines = [f"Ours: {'; '.join([*facts, *each('hardware')])}."]
    if other := sum(run.weights != "pretrained" for run in included):
        lines.append(
            f"The paper's runs started from pretrained weights, {other} of our {len(included)} did not: those scores "
            "are no reproduction of the paper's."
        )
    return lines


def omission_notes(runs: Runs, included: Iterable[RunSummary]) -> list[str]:
    """The number of runs that a table does not include, by their traits; and the runs that could not be read."""
    names = {run.info["name"] for run in included}
    kinds = Counter(
        " and ".join([*sorted(run.traits), *(["mixed"] if run.info["setting"] == "mixed" else [])]) or "of other tables"
        for run in run_summaries(runs)
        if run.info["name"] not in names
    )
    others = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    lines = [f"Runs of the folder that this table is not about: {others}."] if others else []
    return lines + [f"Left out: {line}." for line in runs.skipped]


def size_text(runs: Runs, run: RunSummary) -> str:
    """The number of examples that a run was trained on; "" if unknown. A stream never repeats an example, so all of its
    examples count."""
    examples, dataset = run.info["train_examples"], runs.datasets.get(run.info["dataset"] or "")
    if run.streams:
        return f"{examples:,}, streamed" if examples is not None else "streamed"
    if examples is None and dataset is not None and "train" in dataset.manifest["splits"]:
        examples = round(run.train_fraction * dataset.manifest["splits"]["train"]["rows"])
    return "" if examples is None else f"{examples:,}"


# Which runs ----------------------------------------------------------------------------------------------------------


def runs_of(
    runs: Iterable[RunSummary], task: str, model: str, settings: Collection[str] = TEST_SETTINGS
) -> list[RunSummary]:
    """The runs of a task and a model that were trained in one of the settings."""
    return [
        run
        for run in runs
        if (run.info["task"], run.info["model"]) == (task, model) and run.info["setting"] in settings
    ]


def with_traits(runs: Runs, *kind: str, exactly: bool = True) -> list[RunSummary]:
    """The runs with exactly these traits (see `RunSummary.traits`) or, with exactly=False, with no others."""
    return [run for run in run_summaries(runs) if run.traits == {*kind} or (not exactly and run.traits <= {*kind})]
