"""Tables, figures and errors of saved runs in one folder: `python -m analysis.report RUNS`. No model is loaded.

RUNS/report/report.html   everything on one page that loads nothing else: scores, figures, errors to look at, tables
RUNS/report/report.md     the same without the errors
RUNS/report/tables/       each table as Markdown, LaTeX and CSV
RUNS/report/figures/      each figure as SVG and PNG, with --pdf as PDF too
RUNS/report/report.json   these files' SHA-256, by which the next report knows that it may replace them

What cannot be read or drawn is left out, with a line that says why. The same runs give the same bytes.
"""

from __future__ import annotations

if __name__ == "__main__":
    from travlr.start import start_command

    start_command("report", "analysis.report")

import argparse
import concurrent.futures
import contextlib
import io
import json
import multiprocessing
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from analysis.averages import RunSummary, run_summaries, select
from analysis.document import FORMATS, FigureFile, FigureSpec, ReportContent, html_page, markdown
from analysis.errors import (
    ERRORS_IN_ALL,
    MAX_PER_RUN,
    MIN_PER_RUN,
    RunErrors,
    count_errors,
    dataset_errors,
    errors_per_run,
    run_errors,
)
from analysis.layout import Table
from analysis.runs import Runs, load
from analysis.tables import TABLES, overview
from analysis.tables.facts import table6
from train.results.columns import main_test_setting
from train.results.store import REPORT
from travlr import cli
from travlr.cli import Log
from travlr.files import WORK, Locked, close, hashed, locked
from travlr.tasks import TASKS
from travlr.workers import Progress, end_with_parent

PAGE, TEXT = "report.html", "report.md"
COLOURS = 128  # of a figure on the page, whose file has all
# The column of a table's data without which it would show nothing of ours.
NUMBER_COLUMNS = {"table3": "true", "table6": "hours", "table8": "parameters", "few_shot": "after_test_ood",
         "table14": "difference"}  # fmt: skip
BIMODAL_FIGURES = (
    "agreement",
    "calibration",
)  # are drawn of one run of each task and model: one that saw both modalities


# What a report holds -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkItem:
    """What a process does at a time: figures of several runs, or (`run`) reading one run, and the figures of it."""

    drawings: list[FigureSpec]
    run: str | None = None


@dataclass(frozen=True)
class WorkResult:
    drawn: list[FigureFile]
    answers: RunErrors | None
    skipped: list[str]


def tables_of(
    runs: Runs, watts: float | None, grams: float | None, skipped: list[str]
) -> tuple[list[Table], list[str]]:
    """The tables that show a number of ours, and the titles of the others."""
    found, empty = [], []
    every = TABLES | {"table6": partial(table6, watts=watts, grams_per_kwh=grams)}
    for name, make in every.items():
        try:
            table = make(runs)
        except ValueError as error:
            skipped.append(f"table {name}: {error}")
            continue
        column = NUMBER_COLUMNS.get(name, "macro_f1")
        if column in table.data and table.data[column].notna().any():
            found.append(table)
        else:
            empty.append(table.title)
    return found, empty


def representative_runs(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """One run of each task, model and setting: converged if any has, of Table 2 if any is; then the lowest seed."""
    order = sorted(runs, key=lambda run: (not run.converged, bool(run.kind), run.about["seed"] or 0, run.about["name"]))
    first: dict[tuple[str, ...], RunSummary] = {}
    for run in order:
        first.setdefault(tuple(str(run.about[name]) for name in ("task", "model", "setting")), run)
    return [run for run in runs if run in first.values()]


def work_items(runs: Runs) -> list[WorkItem]:
    """All figures and runs of a report, in its order: by task, figures of several runs first."""
    from analysis.figures import FIGURES

    known = [run for run in run_summaries(runs) if run.about["task"] in TASKS]
    others = [run.about for run in run_summaries(runs) if run.about["task"] not in TASKS]
    runs.skipped += [f"{about['name']}: unknown task {about['task']!r}" for about in others]
    shown = {run.about["name"] for run in representative_runs(known)}
    works, both = [], _bimodal_runs(known, shown)
    for task in TASKS:
        here = [run for run in known if run.about["task"] == task]
        for kind in (name for name, kind in FIGURES.items() if kind.of in ("results", "curves") and here):
            works.append(WorkItem([FigureSpec(kind, f"{kind}-{task}", {"task": task})]))
        digests = sorted({run.about["dataset"] for run in here if run.about["dataset"] in runs.datasets})
        works += [
            WorkItem([FigureSpec("dataset", f"dataset-{task}-{d[:8]}", {"dataset": d, "task": task})]) for d in digests
        ]
        for run in here:
            if run.about["dataset"] in runs.datasets:
                tests = {test for test, _ in run.rows}
                kinds = [
                    name
                    for name, figure in FIGURES.items()
                    if figure.of == "predictions" and task in figure.tasks and tests >= set(figure.tests)
                ]
                works.append(WorkItem(list(_figure_specs(run, kinds, shown, both)), run.about["name"]))
    return works


def _bimodal_runs(runs: Iterable[RunSummary], shown: set[str]) -> set[str]:
    """Of each task and model, the run that is drawn and has seen most of both modalities."""
    order = ("image+caption", "mixed", "image", "caption")
    first: dict[tuple[str, str], RunSummary] = {}
    for run in sorted(runs, key=lambda run: order.index(run.about["setting"]) if run.about["setting"] in order else 4):
        if run.about["name"] in shown:
            first.setdefault((run.about["task"], run.about["model"]), run)
    return {run.about["name"] for run in first.values()}


def _figure_specs(run: RunSummary, kinds: Iterable[str], shown: set[str], both: set[str]) -> Iterator[FigureSpec]:
    name = run.about["name"]
    for kind in kinds:
        if name in (both if kind in BIMODAL_FIGURES else shown):
            own = {} if kind == "agreement" else {"test_setting": main_test_setting(run.about["setting"] or "")}
            yield FigureSpec(kind, f"{kind}-{name}", {"name": name} | own)


# Drawing, in several processes ---------------------------------------------------------------------------------------

_worker_state: dict[str, Any] = {}  # of a process that draws: the runs, the folder it writes to, and the formats


def _begin(report: ReportContent, folder: Path) -> None:
    _worker_state.update(runs=report.runs, folder=folder, formats=report.formats)


def _begin_worker(report: ReportContent, folder: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent alone answers Ctrl-C
    end_with_parent()
    _begin(report, folder)


def process_item(work: WorkItem) -> WorkResult:
    """Read a run's predictions, once, and draw; write the figures. What cannot be done is a line in `skipped`."""
    from analysis.figures import FIGURES, draw

    runs, before = _worker_state["runs"], list(_worker_state["runs"].skipped)
    drawn, skipped, answers, predictions = [], [], None, None
    if work.run is not None:
        predictions = runs.predictions(name=work.run)
        if not len(predictions):
            return WorkResult([], None, [line for line in runs.skipped if line not in before])
        digest = runs.results.loc[runs.results["name"] == work.run, "dataset"].iloc[0]
        answers = run_errors(work.run, predictions, runs.examples(digest))
    for drawing in work.drawings:
        try:
            if predictions is None:
                figure = draw(drawing.kind, runs, **drawing.where)
            else:
                test = drawing.where.get("test_setting")
                rows = predictions if test is None else predictions[predictions["test_setting"] == test]
                figure = FIGURES[drawing.kind].draw(rows, runs.results)
        except ValueError as error:
            skipped.append(f"figure {drawing.name}: {error}")
            continue
        drawn.append(_save_figure(drawing, figure))
    return WorkResult(drawn, answers, [*(line for line in runs.skipped if line not in before), *skipped])


def _save_figure(drawing: FigureSpec, figure: Any) -> FigureFile:
    """A figure in files, and as the page shows it: a PNG of few colours, a third as large."""
    from PIL import Image

    from analysis.figures import save

    save(figure, _worker_state["folder"], drawing.name, _worker_state["formats"])
    said = " ".join(text.get_text() for text in figure.texts)
    with Image.open(_worker_state["folder"] / f"{drawing.name}.png") as image:
        small = io.BytesIO()
        image.convert("RGB").quantize(COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
            small, "PNG"
        )
        return FigureFile(drawing, figure.get_label(), said, small.getvalue(), image.size)


def process_all(works: list[WorkItem], report: ReportContent, folder: Path, workers: int, log: Log) -> list[WorkResult]:
    """What is made of each piece of work, in their order. Raises `ValueError` where a process dies."""
    total = sum(len(work.drawings) + (work.run is not None) for work in works)
    found: dict[int, WorkResult] = {}
    with Progress(total, log, "runs and figures") as progress, _pool(workers, report, folder) as call:
        for number, done in call(list(enumerate(works))):
            found[number] = done
            progress.advance(len(works[number].drawings) + (works[number].run is not None))
    return [found[number] for number in range(len(works))]


Call = Callable[[list[tuple[int, WorkItem]]], Iterator[tuple[int, WorkResult]]]


@contextlib.contextmanager
def _pool(workers: int, report: ReportContent, folder: Path) -> Iterator[Call]:
    workers = workers or len(os.sched_getaffinity(0))
    if workers == 1:
        _begin(report, folder)
        yield lambda works: ((number, process_item(work)) for number, work in works)
        return
    context = multiprocessing.get_context("spawn")  # threads of pyarrow do not survive a fork
    pool = concurrent.futures.ProcessPoolExecutor(workers, context, _begin_worker, (report, folder))

    def call(works: list[tuple[int, WorkItem]]) -> Iterator[tuple[int, WorkResult]]:
        waiting = {pool.submit(process_item, work): number for number, work in works}
        for future in concurrent.futures.as_completed(waiting):
            yield waiting[future], future.result()

    try:
        yield call
    except BrokenProcessPool:
        raise ValueError("a process that draws died (out of memory?); try --workers 1") from None
    finally:
        for process in list((pool._processes or {}).values()):  # not waiting for what they are at: it is not in place
            process.kill()
        pool.shutdown(wait=False, cancel_futures=True)


# The report ----------------------------------------------------------------------------------------------------------


def build(runs: Runs, stage: Path, options: argparse.Namespace, log: Log) -> ReportContent:
    """Everything of a report; figures are written to STAGE/figures at once."""
    report = ReportContent(runs, formats=(*FORMATS, "pdf") if options.pdf else FORMATS)
    _read_examples(runs)
    works = work_items(runs)
    report.tables, report.empty = tables_of(runs, options.watts, options.co2, report.skipped)
    try:
        report.overview = overview(runs)
    except ValueError as error:
        report.skipped.append(f"scores: {error}")
    (stage / "figures").mkdir()
    done = process_all(works, report, stage / "figures", options.workers, log)
    report.drawn = [drawn for one in done for drawn in one.drawn]
    report.skipped = list(dict.fromkeys([*runs.skipped, *report.skipped, *(line for d in done for line in d.skipped)]))
    answers = {one.answers.name: one.answers for one in done if one.answers is not None}
    limit = errors_per_run(len(answers)) if options.errors is None else options.errors
    for digest, names in runs.results.groupby("dataset", sort=True)["name"].unique().items():
        if of_runs := [answers[name] for name in names if name in answers]:
            dataset = runs.datasets[digest]
            try:
                report.errors[digest] = dataset_errors(of_runs, runs.examples(digest), dataset, limit, options.seed)
            except ValueError as error:
                report.skipped.append(f"errors on dataset {digest[:16]}: {error}")
    return report


def _read_examples(runs: Runs) -> None:
    """Read the examples of all datasets, for the processes that draw; a damaged one is as if it were not there."""
    for digest in sorted(runs.datasets):
        try:
            runs.examples(digest)
        except ValueError as error:
            runs.skipped.append(f"dataset {digest[:16]}: {error}")
            del runs.datasets[digest]


def write(report: ReportContent, stage: Path) -> None:
    """The files of a report, but for the figures, which are there."""
    (stage / "tables").mkdir()
    for table in [*([report.overview] if report.overview else []), *report.tables]:
        for suffix, text in (("md", table.markdown()), ("tex", table.latex()), ("csv", table.csv())):
            (stage / "tables" / f"{table.name}.{suffix}").write_text(text, encoding="utf-8", newline="")
    (stage / TEXT).write_text(markdown(report), encoding="utf-8", newline="")
    (stage / PAGE).write_text(html_page(report), encoding="utf-8", newline="")
    files = {name: hashed([stage / name])["sha256"] for name in _files(stage)}
    (stage / REPORT).write_text(json.dumps({"version": 1, "files": files}, indent=1) + "\n", encoding="utf-8")


def _files(folder: Path) -> list[str]:
    """What is below a folder, but for the lock."""
    paths = (path for path in folder.rglob("*") if not path.is_dir() and path.relative_to(folder).parts[0] != WORK)
    return sorted(str(path.relative_to(folder)) for path in paths if path.relative_to(folder) != Path(REPORT))


def refuse_foreign(out: Path) -> None:
    """Raise `ValueError` where something is in the way that is not a report as it was written."""
    if not out.exists() and not out.is_symlink():
        return
    if not out.is_dir() or out.is_symlink():
        raise ValueError(f"{out}: is in the way; choose another folder with --out")
    told: Any = {}
    with contextlib.suppress(OSError, ValueError):
        told = json.loads((out / REPORT).read_text(encoding="utf-8"))["files"]
    for name in _files(out):
        if not isinstance(told, dict) or told.get(name) != hashed([out / name])["sha256"]:
            why = "has been changed since" if isinstance(told, dict) and name in told else "is not of a report"
            raise ValueError(f"{out}: holds {name}, which {why}; move it away, or choose another folder with --out")


@contextlib.contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A folder beside `out` to write to; on leaving it takes that name, and on an exception nothing is left of it."""
    stage = out.with_name(f".{out.name}.tmp")
    refuse_foreign(out)
    try:
        stage.mkdir(parents=True, exist_ok=True)
        with locked(stage):
            _empty(stage)
            try:
                yield stage
                refuse_foreign(out)
                if out.exists():
                    shutil.rmtree(out)
                close(stage)
                os.rename(stage, out)
            except BaseException:
                _empty(stage)
                close(stage)
                stage.rmdir()
                raise
    except Locked:
        raise ValueError(
            f"{out}: another report is being written there; wait for it, or choose another --out"
        ) from None


def _empty(stage: Path) -> None:
    """Remove what an earlier report left that was killed."""
    for path in stage.iterdir():
        if path.name != WORK:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


# Command line --------------------------------------------------------------------------------------------------------


def report(folder: Path, out: Path, options: argparse.Namespace, log: Log = print) -> ReportContent:
    """Load runs, build the report and put it in place. Raises `ValueError`, in one line, where there are no runs."""
    if not folder.is_dir():  # or it would be made, with the place to write to
        raise ValueError(f"{folder}: there is no such folder of runs")
    with staged(out) as stage:
        runs = load(folder, options.data)
        if not len(runs.results):
            others = f"; left out: {runs.skipped[0]}" if runs.skipped else ""
            raise ValueError(f"{folder}: no finished run{others}")
        if options.select:
            runs = select_runs(runs, options.select)
        made = build(runs, stage, options, log)
        write(made, stage)
    return made


def select_runs(runs: Runs, selections: Iterable[str]) -> Runs:
    """The runs that all of `name=value` hold for; values as the training command reads them: seed=0,1."""
    where = {}
    for text in selections:
        name, equals, _ = text.partition("=")
        if not equals or not re.fullmatch(r"\w+(\.\w+)*", name):
            raise cli.UsageError(f"--select {text}: write it as name=value, such as model=uniter or seed=0,1")
        where[name.replace(".", "__")] = cli.values_of(text)
    try:
        found = select(runs, **where)
    except ValueError as error:
        raise cli.UsageError(f"--select {error}") from None
    if not len(found.results):
        raise cli.UsageError(f"--select {' '.join(selections)}: no finished run has these values")
    digests = set(found.results["dataset"].dropna())
    return replace(found, datasets={d: dataset for d, dataset in runs.datasets.items() if d in digests})


def _count(text: str) -> int:
    with contextlib.suppress(ValueError):
        if (value := int(text)) >= 0:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")


def _above_0(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (value := float(text)) < float("inf"):
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


def main(arguments: list[str]) -> int:
    parser = cli.Parser("python -m analysis.report", description="Tables, figures and errors of saved runs.")
    parser.add_argument("runs", metavar="RUNS", type=cli.folder, help="the folder that training wrote runs to")
    several: dict[str, Any] = {"nargs": "+", "default": []}
    parser.add_argument("--out", metavar="DIR", type=cli.folder, help="where to write (default: RUNS/report)")
    parser.add_argument("--data", metavar="DIR", type=cli.folder, help="datasets that have moved", **several)
    parser.add_argument("--select", metavar="NAME=VALUE", help="which runs, such as model=uniter seed=0,1", **several)
    parser.add_argument("--watts", metavar="W", type=_above_0, help="what the hardware draws, for Table 6")
    parser.add_argument("--co2", metavar="GRAMS", type=_above_0, help="CO2-equivalent of a kWh, for Table 6")
    parser.add_argument("--pdf", action="store_true", help="figures as PDF, too, which takes as long again")
    told = (
        f"errors to show of each run (default: {ERRORS_IN_ALL:,} among all runs, {MIN_PER_RUN} to {MAX_PER_RUN} each)"
    )
    parser.add_argument("--errors", metavar="N", type=_count, help=told)
    parser.add_argument("--seed", metavar="S", type=_count, default=0, help="chooses these errors (default: 0)")
    parser.add_argument("--workers", metavar="N", type=_count, default=0, help="processes (default: one per core)")
    given = parser.parse_args(arguments)
    if given.co2 is not None and given.watts is None:
        raise cli.UsageError("--co2 needs --watts too, what the hardware draws")
    out = given.out or given.runs / "report"
    made = report(given.runs, out, given)
    for line in made.skipped:
        print(f"left out: {line}")
    if made.empty:
        titles = ", ".join(title.partition(". ")[0] for title in made.empty)
        print(f"left out, as no run gives a number of them: {titles}")
    of_sets = [count_errors(found) for found in made.errors.values()]
    shown, wrong = (sum(found[place] for found in of_sets) for place in (0, 1))
    megabytes = (out / PAGE).stat().st_size / 1e6
    print(f"{out}: {len(made.tables)} tables, {len(made.drawn)} figures, {shown:,} of {wrong:,} errors; "
          f"open {out / PAGE} ({megabytes:.1f} MB) in a browser")  # fmt: skip
    return 0
