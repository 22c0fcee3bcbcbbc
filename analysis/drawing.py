"""The figures of a report: their list, and drawing them in several processes, one run at a time."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analysis.averages import RunSummary, run_summaries
from analysis.document import FORMATS, FigureFile, FigureSpec
from analysis.frames import read_runs
from analysis.old_errors import run_errors
from analysis.runs import Runs, left_out
from train.results.columns import in_order, main_test_setting
from travlr.settings import Log
from travlr.tasks import TASKS, is_task, short_name
from travlr.workers import Progress, run_in_processes

COLOURS = 128  # of a figure on the page; the files have all colours
BIMODAL_FIGURES = ("agreement", "calibration")  # drawn of one run of each dataset and model, see `_bimodal_runs`
BY_MODALITIES = ("image+caption", "mixed", "image", "caption")  # training settings, most informative first


@dataclass(frozen=True, eq=False)
class WorkItem:
    """Figures of several runs, or of a single `run`, whose predictions are then read once."""

    figures: list[FigureSpec]
    run: str | None = None

    @property
    def steps(self) -> int:
        return len(self.figures) + (self.run is not None)


# Figures that were drawn; errors of a run, as of `run_errors`; and a line for each figure that was left out.
WorkResult = tuple[list[FigureFile], np.ndarray | None, list[str]]


# Which figures -------------------------------------------------------------------------------------------------------


def work_items(runs: Runs) -> list[WorkItem]:
    """All figures and runs of a report, in its order: by task, figures of several runs first."""
    from analysis.figures import FIGURES

    summaries = run_summaries(runs)
    for run in summaries:
        if not is_task(run.info["task"]):
            runs.skipped.append(
                f"{run.info['name']}: no figures of the task {run.info['task']}; name yours with --task"
            )
    representative = representative_runs([run for run in summaries if is_task(run.info["task"])])
    items = []
    for task in in_order((run.info["task"] for run in summaries if is_task(run.info["task"])), TASKS):
        of_task = [run for run in summaries if run.info["task"] == task]
        for kind in (name for name, kind in FIGURES.items() if kind.of in ("results", "curves") and of_task):
            items.append(WorkItem([FigureSpec(kind, f"{kind}-{short_name(task)}", {"task": task})]))
        readable = [run for run in of_task if run.info["dataset"] in runs.datasets]
        for digest in sorted({run.info["dataset"] for run in readable}):
            where = {"dataset": digest, "task": task}
            items.append(WorkItem([FigureSpec("dataset", f"dataset-{short_name(task)}-{digest[:8]}", where)]))
        items += [WorkItem(list(_figures_of(run, representative)), run.info["name"]) for run in readable]
    return items


def representative_runs(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """One run of each dataset, model and setting: preferably converged, then preferably a run of Table 2, then the one
    with the lowest seed, then the longest training."""

    def rank(run: RunSummary) -> tuple[Any, ...]:
        info = run.info
        return not run.converged, bool(run.traits), info["seed"] or 0, -(info["steps"] or 0), info["name"]

    first: dict[tuple[str, ...], RunSummary] = {}
    for run in sorted(runs, key=rank):
        first.setdefault(tuple(str(run.info[name]) for name in ("task", "dataset", "model", "setting")), run)
    return [run for run in runs if run in first.values()]


def _figures_of(run: RunSummary, representative: Sequence[RunSummary]) -> Iterator[FigureSpec]:
    """The figures of a run: none, unless it stands for its dataset, model and setting."""
    from analysis.figures import FIGURES

    name, tests = run.info["name"], {test for test, _ in run.rows}
    for kind, figure in FIGURES.items():
        if figure.of != "predictions" or not figure.suits(run.info["task"]) or not tests >= set(figure.tests):
            continue
        if run in (_bimodal_runs(representative) if kind in BIMODAL_FIGURES else representative):
            test = {} if figure.tests else {"test_setting": main_test_setting(run.info["setting"] or "")}
            yield FigureSpec(kind, f"{kind}-{name}", {"name": name} | test)


def _bimodal_runs(runs: Iterable[RunSummary]) -> list[RunSummary]:
    """Of each dataset and model the run whose training setting comes first in `BY_MODALITIES`."""
    ranks = {setting: rank for rank, setting in enumerate(BY_MODALITIES)}
    first: dict[tuple[str, ...], RunSummary] = {}
    for run in sorted(runs, key=lambda run: ranks.get(run.info["setting"], len(ranks))):
        first.setdefault(tuple(str(run.info[name]) for name in ("task", "dataset", "model")), run)
    return list(first.values())


# Drawing -------------------------------------------------------------------------------------------------------------

_worker_state: dict[str, Any] = {}  # runs and folder of a process that draws


def _begin(runs: Runs, folder: Path) -> None:
    frames = read_runs(runs.folder, [dataset.folder for dataset in runs.datasets.values()])
    _worker_state.update(runs=runs, folder=folder, frames=frames.select(name=list(runs.results["name"].unique())))


def draw_all(items: Sequence[WorkItem], runs: Runs, folder: Path, workers: int, log: Log) -> list[WorkResult]:
    """The result of each work item, in order; figures are written to `folder`.

    workers: number of processes, 0 for one per core.
    """
    _begin(runs, folder)  # of this process, which draws where there is one worker
    prepare, results = partial(_begin, runs, folder), []
    with Progress(sum(item.steps for item in items), log, "runs and figures") as progress:
        for item, result in zip(items, run_in_processes(process_item, list(items), workers, prepare), strict=True):
            results.append(result)
            progress.advance(item.steps)
    return results


def process_item(item: WorkItem) -> WorkResult:
    """Draw the figures of an item; a run's predictions are read once. `skipped` has a line for each figure or file that
    fails."""
    from analysis.figures import draw

    runs: Runs = _worker_state["runs"]
    before, figures, skipped, errors, predictions = list(runs.skipped), [], list[str](), None, None
    if item.run is not None:
        predictions = runs.predictions(name=item.run)
        if not len(predictions):
            return [], None, [line for line in runs.skipped if line not in before]
        digest = runs.results.loc[runs.results["name"] == item.run, "dataset"].iloc[0]
        errors = run_errors(predictions, runs.examples(digest))
    for spec in item.figures:
        with left_out(skipped, f"figure {spec.name}: "):
            figure = draw(spec.kind, _worker_state["frames"], **spec.where)
            figures.append(_save(spec, figure))
    return figures, errors, [*(line for line in runs.skipped if line not in before), *skipped]


def _save(spec: FigureSpec, figure: Any) -> FigureFile:
    """Write the files of a figure, and return it for the page: a PNG of few colours, a third as large."""
    from PIL import Image

    from analysis.figures import save

    save(figure, _worker_state["folder"], spec.name, FORMATS)
    alt = " ".join(text.get_text() for text in figure.texts)
    with Image.open(_worker_state["folder"] / f"{spec.name}.png") as image:
        small, method = io.BytesIO(), Image.Quantize.FASTOCTREE
        image.convert("RGB").quantize(COLOURS, method=method, dither=Image.Dither.NONE).save(small, "PNG")
        return FigureFile(spec, figure.get_label(), alt, small.getvalue(), image.size)
