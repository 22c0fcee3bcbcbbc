"""Tables, figures and errors of saved runs and evaluations in one folder: `python -m analysis.report RUNS`.

RUNS/report/report.html   what models reason over, scores, errors, figures, tables, evaluations, corpora, runs
RUNS/report/tables/       each table as Markdown, LaTeX and CSV
RUNS/report/figures/      each figure as SVG
RUNS/report/report.json   says that the folder is no run

No model is loaded. An earlier report is written over. What cannot be read or drawn is left out, with a line that says
why.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from analysis.frames import Runs, left_out, read_runs
from analysis.sections.verdict import judge
from analysis.tables import TABLES
from analysis.tables.pivots import Table, has_ours, label_runs
from analysis.tables.render import plain_table, to_html, write_table
from train.results.store import REPORT
from travlr.settings import Log, UsageError, count_text, run_command
from travlr.tasks import add_task_option
from travlr.viewer import render_page
from travlr.workers import Progress

PAGE, TEMPLATE = "report.html", Path(__file__).with_name("report.html.j2")
RUN_FACTS = ["model", "size", "setting", "task", "seed", "initial", "experiment", "steps", "train_examples",
             "parameters", "converged", "train_seconds", "precision", "hardware", "commit"]  # fmt: skip


@dataclass
class Report:
    """The parts of the page. figures: by what they show, (file, caption) of each."""

    runs: Runs
    out: Path
    tables: list[Table] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    figures: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    sections: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    errors: dict[str, Any] = field(default_factory=dict)

    def save_figure(self, figure: Any, name: str) -> str:
        """Write a figure; returns its place beside the page."""
        from analysis.figures import write_figure

        write_figure(figure, self.out / "figures", name, ("svg",))
        return f"figures/{name}.svg"


def write_report(runs: Runs, out: Path, log: Log = print) -> Report:
    """Make a report and write it to `out`."""
    for name in ("tables", "figures"):
        (out / name).mkdir(parents=True, exist_ok=True)
    (out / REPORT).write_text("{}\n", encoding="utf-8")
    report = Report(runs, out)
    if len(runs.trainings):
        add_tables(report)
        add_figures(report, log)
    add_sections(report)
    add_errors(report)
    for table in report.tables:
        write_table(table, out / "tables")
    (out / PAGE).write_text(page_of(report), encoding="utf-8")
    return report


# Parts ---------------------------------------------------------------------------------------------------------------


def add_tables(report: Report) -> None:
    """The tables with a number of ours, and the titles of the others."""
    for name, make in TABLES.items():
        with left_out(report.runs.skipped, f"table {name}: "):
            table = make(report.runs)
            if has_ours(table):
                report.tables.append(table)
            else:
                report.empty.append(table.title)


def add_figures(report: Report, log: Log) -> None:
    """Draw the figures, by what they show."""
    from analysis.figures import FIGURES, draw, list_figures

    wanted = list(list_figures(report.runs))
    with Progress(len(wanted), log, "figures") as progress:
        for kind, name, where in wanted:
            with left_out(report.runs.skipped, f"figure {name}: "):
                figure = draw(kind, report.runs, **where)
                about = FIGURES[kind].caption
                report.figures.setdefault(about, []).append((report.save_figure(figure, name), str(figure.get_label())))
            progress.advance(1)


def add_sections(report: Report) -> None:
    """Tables and figures of evaluations and of corpora."""
    from analysis.sections import corpora, evaluations

    for heading, sections in (("Evaluations", evaluations.describe_evaluations), ("Corpora", corpora.describe_corpora)):
        parts = []
        with left_out(report.runs.skipped, f"{heading.lower()}: "):
            for title, note, content in sections(report.runs):
                name, part = slugify(title), {"title": title, "note": note, "html": "", "figure": ""}
                if isinstance(content, pd.DataFrame):
                    table = plain_table(name, title, content, (note,) if note else ())
                    write_table(table, report.out / "tables")
                    part |= {"name": name, "html": to_html(table)}
                else:
                    part |= {"figure": report.save_figure(content, name)}
                parts.append(part)
        report.sections[heading] = parts


def slugify(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def add_errors(report: Report) -> None:
    from analysis.sections.errors import errors_viewer

    with left_out(report.runs.skipped, "errors: "):
        report.errors = errors_viewer(report.runs)


def page_of(report: Report) -> str:
    """The page; texts of runs and datasets are escaped by the template."""
    runs = report.runs
    info = runs.results.drop_duplicates("name").assign(run=lambda rows: label_runs(rows))
    facts = info.set_index("name")[["run", *RUN_FACTS]].map(lambda value: "" if pd.isna(value) else str(value))
    run_table = Table("runs", "Runs and evaluations", facts, facts, facts.map(lambda _: ""))
    trainings, evaluations = runs.trainings["name"].nunique(), runs.evaluations["name"].nunique()
    return render_page(
        TEMPLATE,
        name=runs.folder.resolve().name,
        lead=f"Trained: {trainings:,}. Evaluated: {evaluations:,}. Results: {len(runs.results):,}. "
        f"Left out: {len(runs.skipped) or 'nothing'}.",
        verdict=judge(runs),
        tables=[{"table": table, "html": to_html(table)} for table in report.tables],
        empty=report.empty,
        figures=report.figures,
        sections={heading: parts for heading, parts in report.sections.items() if parts},
        runs=to_html(run_table),
        versions=list_versions(runs),
        skipped=runs.skipped,
        data={"errors": report.errors} if report.errors else {},
    )


def list_versions(runs: Runs) -> list[str]:
    """Versions of packages: a line for each combination that runs were made with, and one for this report."""
    lines = []
    for (versions, commit), rows in runs.results.fillna({"versions": "{}", "commit": ""}).groupby(
        ["versions", "commit"]
    ):
        packages = [f"{name} {version}" for name, version in json.loads(versions).items()]
        packages += [f"commit {commit}"] if commit else []
        lines.append(f"{count_text(rows['name'].nunique(), 'run')}: {', '.join(packages) or 'not recorded'}")
    ours = [f"{name} {metadata.version(name)}" for name in ("travlr", "pandas", "matplotlib", "numpy", "pyarrow")]
    return [*lines, f"this report: {', '.join(ours)}"]


# Command line --------------------------------------------------------------------------------------------------------


def select_runs(runs: Runs, selections: Iterable[str]) -> Runs:
    """The runs that fit all `name=value`; values are read as by the training command: seed=0,1."""
    where = {}
    for text in selections:
        name, equals, values = text.partition("=")
        if not equals:
            raise UsageError(f"--select {text}: write it as name=value, such as model=uniter or seed=0,1")
        where[name] = [yaml.safe_load(part) for part in values.split(",")]
    try:
        chosen = runs.select(**where)
    except ValueError as error:
        raise UsageError(f"--select {error}") from None
    if not len(chosen.results):
        raise UsageError(f"--select {' '.join(selections)}: no finished run has these values")
    return chosen


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "python -m analysis.report", description="Tables, figures and errors of saved runs."
    )
    parser.add_argument("runs", metavar="RUNS", type=Path, help="the folder with runs and evaluations")
    parser.add_argument("--out", metavar="DIR", type=Path, help="where to write (default: RUNS/report)")
    many: dict[str, Any] = {"nargs": "+", "default": []}
    parser.add_argument("--data", metavar="DIR", type=Path, help="datasets that have moved", **many)
    parser.add_argument("--select", metavar="NAME=VALUE", help="which runs, such as model=uniter seed=0,1", **many)
    add_task_option(parser)
    options = parser.parse_args(arguments)
    out = options.out or options.runs / "report"
    runs = read_runs(options.runs, options.data)
    if not len(runs.results):
        others = f"; left out: {runs.skipped[0]}" if runs.skipped else ""
        raise ValueError(f"{options.runs}: no finished run{others}")
    report = write_report(select_runs(runs, options.select) if options.select else runs, out)
    for line in report.runs.skipped:
        print(f"left out: {line}")
    for line in judge(report.runs):
        print(line)
    parts = [part for of_heading in report.sections.values() for part in of_heading]
    tables = len(report.tables) + sum(bool(part["html"]) for part in parts)
    figures = sum(map(len, report.figures.values())) + sum(bool(part["figure"]) for part in parts)
    print(f"{out}: {count_text(tables, 'table')}, {count_text(figures, 'figure')}; open {out / PAGE} in a browser")
    return 0


if __name__ == "__main__":
    run_command("report", lambda: sys.exit(main(sys.argv[1:])))
