"""Tables, figures and errors of saved runs in one folder: `python -m analysis.report RUNS`. No model is loaded.

RUNS/report/report.html   everything on one page that loads nothing else: scores, figures, errors, tables
RUNS/report/evaluations.html   the models that evaluate.py has asked: scores, where accuracy is lost, replies
RUNS/report/tables/       each table as Markdown, LaTeX and CSV
RUNS/report/figures/      each figure as SVG and PNG
RUNS/report/report.json   says that the folder is no run

An earlier report is written over. Runs, tables and figures that fail are left out, with a line that says why.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from analysis.averages import select
from analysis.document import ReportContent, html_page
from analysis.drawing import draw_all, work_items
from analysis.layout import Table
from analysis.old_errors import (
    ERRORS_IN_ALL,
    MAX_PER_RUN,
    MIN_PER_RUN,
    count_errors,
    dataset_errors,
    errors_per_run,
)
from analysis.runs import Runs, left_out, load
from analysis.tables import TABLES, couples, overview
from train.results.store import REPORT
from travlr.dataset import open_dataset
from travlr.settings import Log, UsageError, run_command
from travlr.tasks import add_task_option

PAGE, EVALUATIONS = "report.html", "evaluations.html"
# The column of a table's data with our numbers, if it is not macro_f1.
NUMBER_COLUMNS = {"couples": "couples_right", "table3": "true", "table6": "hours", "table8": "parameters",
                  "few_shot": "after_test_ood", "table14": "difference"}  # fmt: skip


# Content -------------------------------------------------------------------------------------------------------------


def make_tables(runs: Runs, skipped: list[str]) -> tuple[list[Table], list[str]]:
    """The tables with a number of ours, and the titles of the others. Errors are added to `skipped`."""
    tables, empty = [], []
    for name, make in ({"couples": couples} | TABLES).items():
        with left_out(skipped, f"table {name}: "):
            table = make(runs)
            column = NUMBER_COLUMNS.get(name, "macro_f1")
            if column in table.data and table.data[column].notna().any():
                tables.append(table)
            else:
                empty.append(table.title)
    return tables, empty


def build_report(runs: Runs, out: Path, options: argparse.Namespace, log: Log) -> ReportContent:
    """The content of a report; figures are written to OUT/figures at once."""
    report = ReportContent(runs)
    _read_examples(runs)
    items = work_items(runs)
    report.tables, report.empty = make_tables(runs, report.skipped)
    with left_out(report.skipped, "scores: "):
        report.overview = overview(runs)
    skipped, errors = [*runs.skipped, *report.skipped], {}
    drawn = draw_all(items, runs, out / "figures", options.workers, log)
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


def _read_examples(runs: Runs) -> None:
    """Read the examples of all datasets, for all processes that draw. Damaged datasets are left out."""
    for digest in sorted(runs.datasets):
        try:
            runs.examples(digest)
        except ValueError as error:
            runs.skipped.append(f"dataset {digest[:16]}: {error}")
            del runs.datasets[digest]


def write_files(report: ReportContent, out: Path) -> None:
    """Write the files of a report, except the figures, which `build` has written."""
    for table in [*([report.overview] if report.overview else []), *report.tables, *report.evaluations]:
        for suffix, text in (("md", table.markdown()), ("tex", table.latex()), ("csv", table.csv())):
            (out / "tables" / f"{table.name}.{suffix}").write_text(text, encoding="utf-8", newline="")
    if len(report.runs.results):
        (out / PAGE).write_text(html_page(report), encoding="utf-8", newline="")
    (out / REPORT).write_text(json.dumps({"version": 1}) + "\n", encoding="utf-8")


# Command line --------------------------------------------------------------------------------------------------------


def report(folder: Path, out: Path, options: argparse.Namespace, log: Log = print) -> ReportContent:
    """Load runs, build the report and write it to `out`. Raises `ValueError`, in one line, without runs."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder of runs")
    for place in options.data:
        try:
            open_dataset(place)
        except ValueError as error:
            raise UsageError(f"--data {error}") from None
    runs, tables = load(folder, options.data), list[Table]()
    if options.select and (len(runs.results) or len(runs.evaluations)):
        runs = select_runs(runs, options.select)
    if not len(runs.results) and not len(runs.evaluations):
        others = f"; left out: {runs.skipped[0]}" if runs.skipped else ""
        raise ValueError(f"{folder}: no finished run{others}")
    for name in ("tables", "figures"):
        (out / name).mkdir(parents=True, exist_ok=True)
    if len(runs.evaluations):
        from analysis.old_evaluations import read_all, write_page  # imports matplotlib

        if answers := read_all(runs):
            tables = write_page(runs, answers, out / EVALUATIONS)
    content = build_report(runs, out, options, log) if len(runs.results) else ReportContent(runs, skipped=runs.skipped)
    content.evaluations = tables
    write_files(content, out)
    return content


def select_runs(runs: Runs, selections: Iterable[str]) -> Runs:
    """The runs and evaluations that fit all `name=value`; values are read as by the training command: seed=0,1."""
    where = {}
    for text in selections:
        name, equals, values = text.partition("=")
        if not equals or not re.fullmatch(r"\w+(\.\w+)*", name):
            raise UsageError(f"--select {text}: write it as name=value, such as model=uniter or seed=0,1")
        where[name.replace(".", "__")] = [yaml.safe_load(part) for part in values.split(",")]
    try:
        selection = select(runs, **where)
    except ValueError as error:
        raise UsageError(f"--select {error}") from None
    if not len(selection.results) and not len(selection.evaluations):
        raise UsageError(f"--select {' '.join(selections)}: no finished run has these values")
    digests = {digest for frame in (selection.results, selection.evaluations) for digest in frame["dataset"].dropna()}
    return replace(selection, datasets={d: dataset for d, dataset in runs.datasets.items() if d in digests})


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "python -m analysis.report", description="Tables, figures and errors of saved runs."
    )
    parser.add_argument("runs", metavar="RUNS", type=Path, help="the folder that training wrote runs to")
    many: dict[str, Any] = {"nargs": "+", "default": []}
    parser.add_argument("--out", metavar="DIR", type=Path, help="where to write (default: RUNS/report)")
    parser.add_argument("--data", metavar="DIR", type=Path, help="datasets that have moved", **many)
    parser.add_argument("--select", metavar="NAME=VALUE", help="which runs, such as model=uniter seed=0,1", **many)
    errors = (
        f"errors to show of each run (default: {ERRORS_IN_ALL:,} among all runs, {MIN_PER_RUN} to {MAX_PER_RUN} each)"
    )
    parser.add_argument("--errors", metavar="N", type=int, help=errors)
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="seed of their choice (default: 0)")
    parser.add_argument("--workers", metavar="N", type=int, default=0, help="processes (default: one per core)")
    add_task_option(parser)
    options = parser.parse_args(arguments)
    out = options.out or options.runs / "report"
    print_written(report(options.runs, out, options), out)
    return 0


def print_written(content: ReportContent, out: Path) -> None:
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


if __name__ == "__main__":
    run_command("report", lambda: sys.exit(main(sys.argv[1:])))
