"""Tables, figures and errors of saved runs in one folder: `python -m analysis.report RUNS`. No model is loaded.

RUNS/report/report.html   everything on one page that loads nothing else: scores, figures, errors, tables
RUNS/report/evaluations.html   the models that evaluate.py has asked: scores, where accuracy is lost, replies
RUNS/report/report.md     the tables and figures of both, without errors and replies
RUNS/report/tables/       each table as Markdown, LaTeX and CSV
RUNS/report/figures/      each figure as SVG and PNG, with --pdf as PDF too
RUNS/report/report.json   SHA-256 of these files; the next report replaces them only if they have not changed

Runs, tables and figures that fail are left out, with a line that says why. The same runs give the same bytes.
"""

from __future__ import annotations

if __name__ == "__main__":
    from travlr.start import start_command

    start_command("report", "analysis.report")

import argparse
import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from analysis.averages import select
from analysis.document import FORMATS, ReportContent, html_page, markdown
from analysis.drawing import draw_all, work_items
from analysis.errors import (
    ERRORS_IN_ALL,
    MAX_PER_RUN,
    MIN_PER_RUN,
    count_errors,
    dataset_errors,
    errors_per_run,
)
from analysis.layout import Table
from analysis.runs import Runs, left_out, load
from analysis.tables import TABLES, couples, overview
from analysis.tables.facts import table6
from train.results.store import REPORT
from travlr import cli
from travlr.cli import Log, whole_number
from travlr.dataset import open_dataset
from travlr.files import WORK, Locked, clear, close, hashed, locked

PAGE, TEXT, EVALUATIONS = "report.html", "report.md", "evaluations.html"
# The column of a table's data with our numbers, if it is not macro_f1.
NUMBER_COLUMNS = {"couples": "couples_right", "table3": "true", "table6": "hours", "table8": "parameters",
                  "few_shot": "after_test_ood", "table14": "difference"}  # fmt: skip


# Content -------------------------------------------------------------------------------------------------------------


def tables_of(
    runs: Runs, watts: float | None, grams: float | None, skipped: list[str]
) -> tuple[list[Table], list[str]]:
    """The tables with a number of ours, and the titles of the others. Errors are added to `skipped`."""
    tables, empty = [], []
    makers = {"couples": couples} | TABLES | {"table6": partial(table6, watts=watts, grams_per_kwh=grams)}
    for name, make in makers.items():
        with left_out(skipped, f"table {name}: "):
            table = make(runs)
            column = NUMBER_COLUMNS.get(name, "macro_f1")
            if column in table.data and table.data[column].notna().any():
                tables.append(table)
            else:
                empty.append(table.title)
    return tables, empty


def build(runs: Runs, stage: Path, options: argparse.Namespace, log: Log) -> ReportContent:
    """The content of a report; figures are written to STAGE/figures at once."""
    report = ReportContent(runs, formats=_formats(options))
    _read_examples(runs)
    items = work_items(runs)
    report.tables, report.empty = tables_of(runs, options.watts, options.co2, report.skipped)
    with left_out(report.skipped, "scores: "):
        report.overview = overview(runs)
    (stage / "figures").mkdir(exist_ok=True)
    skipped, errors = [*runs.skipped, *report.skipped], {}
    drawn = draw_all(items, runs, stage / "figures", report.formats, options.workers, log)
    for item, (figures, wrong, lines) in zip(items, drawn, strict=True):
        report.figures += figures
        skipped += lines
        if item.run and wrong is not None:
            errors[item.run] = wrong
    report.skipped = list(dict.fromkeys(skipped))
    limit = errors_per_run(len(errors)) if options.errors is None else options.errors
    for digest, names in runs.results.groupby("dataset", sort=True)["name"].unique().items():
        if answers := {name: errors[name] for name in names if name in errors}:
            dataset = runs.datasets[digest]
            with left_out(report.skipped, f"errors on dataset {digest[:16]}: "):
                report.errors[digest] = dataset_errors(answers, runs.examples(digest), dataset, limit, options.seed)
    return report


def _formats(options: argparse.Namespace) -> tuple[str, ...]:
    return (*FORMATS, "pdf") if options.pdf else FORMATS


def _read_examples(runs: Runs) -> None:
    """Read the examples of all datasets, for all processes that draw. Damaged datasets are left out."""
    for digest in sorted(runs.datasets):
        try:
            runs.examples(digest)
        except ValueError as error:
            runs.skipped.append(f"dataset {digest[:16]}: {error}")
            del runs.datasets[digest]


def write_files(report: ReportContent, stage: Path) -> None:
    """Write the files of a report, except the figures, which `build` has written."""
    (stage / "tables").mkdir()
    for table in [*([report.overview] if report.overview else []), *report.tables, *report.evaluations]:
        for suffix, text in (("md", table.markdown()), ("tex", table.latex()), ("csv", table.csv())):
            (stage / "tables" / f"{table.name}.{suffix}").write_text(text, encoding="utf-8", newline="")
    (stage / TEXT).write_text(markdown(report), encoding="utf-8", newline="")
    if len(report.runs.results):
        (stage / PAGE).write_text(html_page(report), encoding="utf-8", newline="")
    files = {name: hashed(stage / name)["sha256"] for name in _files(stage)}
    (stage / REPORT).write_text(json.dumps({"version": 1, "files": files}, indent=1) + "\n", encoding="utf-8")


def _files(folder: Path) -> list[str]:
    """The files of a report's folder, without its lock and report.json."""
    paths = (path for path in folder.rglob("*") if not path.is_dir() and path.relative_to(folder).parts[0] != WORK)
    return sorted(str(path.relative_to(folder)) for path in paths if path.relative_to(folder) != Path(REPORT))


def refuse_foreign(out: Path) -> None:
    """Raise `ValueError` where `out` holds anything but an unchanged report."""
    if not out.exists() and not out.is_symlink():
        return
    if not out.is_dir() or out.is_symlink():
        raise ValueError(f"{out}: is in the way; choose another folder with --out")
    digests: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        digests = dict(json.loads((out / REPORT).read_text(encoding="utf-8"))["files"])
    for name in _files(out):
        if digests.get(name) != hashed(out / name)["sha256"]:
            why = "has been changed since" if name in digests else "is not of a report"
            raise ValueError(f"{out}: holds {name}, which {why}; move it away, or choose another folder with --out")


@contextlib.contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A folder beside `out` to write to. It is renamed to `out` at the end, or removed after an exception."""
    stage = out.with_name(f".{out.name}.tmp")
    above = next(folder for folder in out.absolute().parents if folder.exists())
    if not above.is_dir():
        raise ValueError(f"--out {out}: {above} is not a folder; choose another")
    refuse_foreign(out)
    try:
        stage.mkdir(parents=True, exist_ok=True)
        with locked(stage):
            clear(stage, keep=(WORK,))  # the files of an earlier report that was killed
            try:
                yield stage
                refuse_foreign(out)
                if out.exists():
                    shutil.rmtree(out)
                close(stage)
                os.rename(stage, out)
            except BaseException:
                clear(stage, keep=(WORK,))
                close(stage)
                stage.rmdir()
                raise
    except Locked:
        raise ValueError(
            f"{out}: another report is being written there; wait for it, or choose another --out"
        ) from None


# Command line --------------------------------------------------------------------------------------------------------


def report(folder: Path, out: Path, options: argparse.Namespace, log: Log = print) -> ReportContent:
    """Load runs, build the report and write it to `out`. Raises `ValueError`, in one line, without runs."""
    if not folder.is_dir():  # otherwise `staged` would create it
        raise ValueError(f"{folder}: there is no such folder of runs")
    for place in options.data:
        try:
            open_dataset(place)
        except ValueError as error:
            raise cli.UsageError(f"--data {error}") from None
    with staged(out) as stage:
        runs, tables = load(folder, options.data), list[Table]()
        if options.select and (len(runs.results) or len(runs.evaluations)):
            runs = select_runs(runs, options.select)
        if len(runs.evaluations):
            from analysis.evaluations import read_all, write_page  # imports matplotlib

            if answers := read_all(runs):
                tables = write_page(runs, answers, stage / EVALUATIONS, _formats(options))
        if not len(runs.results) and not len(runs.evaluations):
            others = f"; left out: {runs.skipped[0]}" if runs.skipped else ""
            raise ValueError(f"{folder}: no finished run{others}")
        content = build(runs, stage, options, log) if len(runs.results) else ReportContent(runs, skipped=runs.skipped)
        content.evaluations = tables
        write_files(content, stage)
    return content


def select_runs(runs: Runs, selections: Iterable[str]) -> Runs:
    """The runs and evaluations that fit all `name=value`; values are read as by the training command: seed=0,1."""
    where = {}
    for text in selections:
        name, equals, _ = text.partition("=")
        if not equals or not re.fullmatch(r"\w+(\.\w+)*", name):
            raise cli.UsageError(f"--select {text}: write it as name=value, such as model=uniter or seed=0,1")
        where[name.replace(".", "__")] = cli.values_of(text)
    try:
        selection = select(runs, **where)
    except ValueError as error:
        raise cli.UsageError(f"--select {error}") from None
    if not len(selection.results) and not len(selection.evaluations):
        raise cli.UsageError(f"--select {' '.join(selections)}: no finished run has these values")
    digests = {digest for frame in (selection.results, selection.evaluations) for digest in frame["dataset"].dropna()}
    return replace(selection, datasets={d: dataset for d, dataset in runs.datasets.items() if d in digests})


def _above_0(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (value := float(text)) < float("inf"):
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


def main(arguments: list[str]) -> int:
    parser = cli.Parser("python -m analysis.report", description="Tables, figures and errors of saved runs.")
    parser.add_argument("runs", metavar="RUNS", type=cli.folder, help="the folder that training wrote runs to")
    many: dict[str, Any] = {"nargs": "+", "default": []}
    parser.add_argument("--out", metavar="DIR", type=cli.folder, help="where to write (default: RUNS/report)")
    parser.add_argument("--data", metavar="DIR", type=cli.folder, help="datasets that have moved", **many)
    parser.add_argument("--select", metavar="NAME=VALUE", help="which runs, such as model=uniter seed=0,1", **many)
    parser.add_argument("--watts", metavar="W", type=_above_0, help="power of the hardware, for Table 6")
    parser.add_argument("--co2", metavar="GRAMS", type=_above_0, help="CO2-equivalent of a kWh, for Table 6")
    parser.add_argument("--pdf", action="store_true", help="write figures as PDF too, which doubles the time")
    errors = (
        f"errors to show of each run (default: {ERRORS_IN_ALL:,} among all runs, {MIN_PER_RUN} to {MAX_PER_RUN} each)"
    )
    parser.add_argument("--errors", metavar="N", type=whole_number, help=errors)
    parser.add_argument("--seed", metavar="S", type=whole_number, default=0, help="seed of their choice (default: 0)")
    parser.add_argument(
        "--workers", metavar="N", type=whole_number, default=0, help="processes (default: one per core)"
    )
    options = parser.parse_args(arguments)
    if options.co2 is not None and options.watts is None:
        raise cli.UsageError("--co2 needs --watts too, the power of the hardware")
    out = options.out or options.runs / "report"
    print_summary(report(options.runs, out, options), out)
    return 0


def print_summary(content: ReportContent, out: Path) -> None:
    for line in content.skipped:
        print(f"left out: {line}")
    if content.empty:
        titles = ", ".join(title.partition(". ")[0] for title in content.empty)
        print(f"left out, as no run gives a number of them: {titles}")
    on_page, wrong = map(sum, zip((0, 0), *map(count_errors, content.errors.values()), strict=True))
    page = PAGE if len(content.runs.results) else EVALUATIONS
    if content.evaluations:
        print(f"{out}: {len(content.runs.evaluations):,} results of evaluated models; open {out / EVALUATIONS}")
    megabytes = (out / page).stat().st_size / 1e6
    print(f"{out}: {len(content.tables)} tables, {len(content.figures)} figures, {on_page:,} of {wrong:,} errors; "
          f"open {out / page} ({megabytes:.1f} MB) in a browser")  # fmt: skip
