"""A report as text: Markdown, and one HTML page that loads nothing else.

The page trusts no text of runs and datasets: it is escaped, and that of the errors travels as JSON that cannot end its
element; a content security policy runs no script but the page's own.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.averages import RunSummary, run_summaries
from analysis.counts import distinguishing_settings
from analysis.layout import Table
from analysis.runs import Runs, in_order
from train.config import ARCHITECTURES, SETTINGS
from train.results.columns import TEST_SETTINGS, main_test_setting
from train.results.tables import differing_settings, value_text
from travlr.browse import filled
from travlr.tasks import TASKS

FORMATS = ("svg", "png")  # of figures; PDF takes as long again
TEMPLATE = Path(__file__).with_name("report.html")


@dataclass(frozen=True)
class FigureSpec:
    """A figure to be drawn: its kind, the name of its files, and of which results it is."""

    kind: str
    name: str
    where: dict[str, Any]


@dataclass(frozen=True)
class FigureFile:
    """A figure that was written. caption: its title, whole; alt: all that its title and notes say. png: as the page
    shows it."""

    drawing: FigureSpec
    caption: str
    alt: str
    png: bytes
    pixels: tuple[int, int]


@dataclass
class ReportContent:
    """All that is written, in order. errors: by content digest, as `analysis.errors.dataset_errors` gives them."""

    runs: Runs
    formats: tuple[str, ...] = FORMATS
    overview: Table | None = None
    tables: list[Table] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    drawn: list[FigureFile] = field(default_factory=list)
    errors: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


RUN_FACTS = ("model", "size", "setting", "task", "seed", "weights", "experiment", "regions", "steps", "train_examples",
         "unlabelled_examples", "parameters", "precision", "hardware", "commit")  # fmt: skip


def summary(report: ReportContent) -> str:
    """In a sentence, what the report is of."""
    results = report.runs.results
    runs, converged = results["name"].nunique(), results.drop_duplicates("name")["converged"].sum()
    parts = [f"{runs:,} run{'s' * (runs > 1)}, {converged:,} of them converged", f"{len(results):,} results"]
    left = len(report.skipped)
    return f"{'; '.join(parts)}; {left or 'nothing'} left out."


def versions(runs: Runs) -> list[str]:
    """What the runs were made with, a line for each combination, and with what this report."""
    lines = []
    for (told, commit), rows in runs.results.fillna({"versions": "{}", "commit": ""}).groupby(["versions", "commit"]):
        packages = [f"{name} {version}" for name, version in json.loads(told).items()]
        at = [f"commit {commit}"] if commit else []
        lines.append(f"{rows['name'].nunique()} runs: {', '.join([*packages, *at]) or 'not told'}")
    own = [f"{name} {metadata.version(name)}" for name in ("travlr", "pandas", "matplotlib", "numpy", "pyarrow")]
    return [*lines, f"this report: {', '.join(own)}"]


def markdown(report: ReportContent) -> str:
    """The report without its errors, for a reader of plain text."""
    lines = ["# Report of runs", "", summary(report), "", "## Scores", ""]
    lines += [report.overview.markdown()] if report.overview else ["None."]
    lines += ["", "## Figures", ""]
    for drawn in report.drawn:
        lines += [
            f"![{escape_markdown(drawn.alt)}](figures/{drawn.drawing.name}.png)",
            "",
            escape_markdown(drawn.caption),
            "",
        ]
    lines += ["## Tables", ""]
    for table in report.tables:
        lines += [table.markdown(), ""]
    lines += [f"- No run gives a number of: {escape_markdown(title)}" for title in report.empty]
    lines += [
        "",
        "## Runs",
        "",
        "| run | settings that tell it from others | converged | macro-F1 in its own setting, test_ind | test_ood |",
        "|---|---|---|---|---|",
    ]
    apart = _settings_by_run(report.runs)
    for run in run_summaries(report.runs):
        scores = [run.score(main_test_setting(run.about["setting"] or ""), split) for split in ("test_ind", "test_ood")]
        texts = ["" if score is None else f"{score:.2f}" for score in scores]
        words = [
            escape_markdown(run.about["name"]),
            escape_markdown(apart[run.about["name"]]),
            "yes" if run.converged else "no",
            *texts,
        ]
        lines.append(f"| {' | '.join(words)} |")
    lines += ["", *(f"- {escape_markdown(line)}" for line in versions(report.runs)), "", "## Left out", ""]
    lines += [f"- {escape_markdown(line)}" for line in report.skipped] or ["Nothing."]
    return "\n".join(lines) + "\n"


def _settings_by_run(runs: Runs) -> dict[str, str]:
    """By the name of each run, the settings that tell it from others with its model, size and task."""
    about = runs.results.drop_duplicates("name")
    return dict(zip(about["name"], distinguishing_settings(about), strict=True))


def escape_markdown(text: str) -> str:
    """A text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text)


def html_page(report: ReportContent) -> str:
    """The whole report as one file. All text of runs and datasets is escaped, that of the errors travels as JSON."""
    return filled(
        TEMPLATE,
        _data(report),
        name=html.escape(report.runs.folder.resolve().name),
        lead=html.escape(summary(report)),
        overview=_table_block(report.overview) if report.overview else "<p>None.</p>",
        tables="".join(_table(table, opened=not place) for place, table in enumerate(report.tables)),
        empty=html_list(report.empty),
        skipped=html_list(report.skipped) or "<p>Nothing was left out.</p>",
        runs=_runs(run_summaries(report.runs), _settings_by_run(report.runs)),
        versions=html_list(versions(report.runs)),
    )


def html_list(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _table(table: Table, opened: bool) -> str:
    """A table that unfolds; `opened` from the beginning."""
    head = f"<summary><h3>{html.escape(table.title)}</h3></summary>"
    return f'<details id="{table.name}" class="block"{" open" * opened}>{head}{_table_block(table)}</details>\n'


def _table_block(table: Table) -> str:
    """A table with its notes folded, and links to its files."""
    files = " ".join(f'<a href="tables/{table.name}.{s}">{s}</a>' for s in ("md", "tex", "csv"))
    notes = f"<details><summary>Notes</summary>{html_list(table.said)}</details>" if table.said else ""
    title = html.escape(table.title)
    scrolled = f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">{table.html()}</div>'
    return f'{scrolled}{notes}<p class="files">{files}</p>'


def _figures(report: ReportContent) -> list[dict[str, Any]]:
    """The figures for the page's script, which draws those that fit the filters; those of several runs first, the
    answer among them. model and setting are None where a figure is of several."""
    about = report.runs.results.drop_duplicates("name").set_index("name")
    found = []
    for drawn in report.drawn:
        drawing = drawn.drawing
        run = about.loc[drawing.where["name"]] if "name" in drawing.where else {}
        columns = {column: run.get(column) for column in ("task", "model", "setting")}
        told = {column: None if pd.isna(value) else str(value) for column, value in columns.items()}
        told["kind"] = drawing.kind
        if "task" in drawing.where:
            told["task"] = drawing.where["task"]
        width, height = (pixels * 2 // 3 for pixels in drawn.pixels)
        png = base64.b64encode(drawn.png).decode()
        texts = {"name": drawing.name, "caption": drawn.caption, "alt": drawn.alt}
        found.append(told | texts | {"width": width, "height": height, "png": png})
    return sorted(found, key=lambda one: (one["model"] is not None, one["kind"] != "transfer"))


def _runs(runs: Sequence[RunSummary], apart: Mapping[str, str]) -> str:
    """A line for each run with its settings that not all share, and the settings that all share."""
    own = differing_settings([run.settings for run in runs])
    shared = {name: value for name, value in runs[0].settings.items() if name not in own[0]}
    lines = []
    for run, settings in zip(runs, own, strict=True):
        scores = [run.score(main_test_setting(run.about["setting"] or ""), split) for split in ("test_ind", "test_ood")]
        facts = {name: run.about[name] for name in RUN_FACTS if run.about[name] is not None}
        cells = ["yes" if run.converged else "no", *("" if score is None else f"{score:.2f}" for score in scores)]
        name = ": ".join(filter(None, (run.about["name"], apart[run.about["name"]])))
        lines.append(
            f'<tr><th scope="row"><details><summary>{html.escape(name)}</summary>{_settings(facts)}'
            f"{_settings(settings)}</details></th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        )
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("Run", "Converged", "test_ind", "test_ood"))
    caption = "<caption>Macro-F1 in the setting of training. A run opens to its settings.</caption>"
    table = f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    folded = f'<summary>{len(lines):,} run{"s" * (len(lines) > 1)}</summary><div class="scroll">{table}</div>'
    common = f"<details><summary>Settings that all runs share</summary>{_settings(shared)}</details>" if shared else ""
    return f"<details>{folded}</details>{common}"


def _settings(settings: dict[str, Any]) -> str:
    items = (f"<dt>{html.escape(n)}</dt><dd>{html.escape(value_text(v))}</dd>" for n, v in settings.items())
    return f'<dl class="code">{"".join(items)}</dl>'


def _data(report: ReportContent) -> dict[str, Any]:
    """What the page's script shows: the runs, how often each erred on what, and examples of it."""
    about = report.runs.results.drop_duplicates("name").set_index("name")
    apart = _settings_by_run(report.runs)
    names = [name for found in report.errors.values() for name in found["wrong"]]
    place = {name: number for number, name in enumerate(names)}
    runs = []
    for digest, found in report.errors.items():
        for name in found["wrong"]:
            row = about.loc[name]
            told = {c: None if pd.isna(row[c]) else str(row[c]) for c in ("model", "size", "setting", "task", "seed")}
            runs.append({"name": name, "dataset": digest, **told, "apart": apart[name]})
    sets = {
        digest: {
            "cells": found["cells"],
            "wrong": list(found["wrong"].values()),
            "examples": [
                {**example, "errors": [number for name, *rest in example["errors"] for number in (place[name], *rest)]}
                for example in found["examples"]
            ],
        }
        for digest, found in report.errors.items()
    }
    figures = _figures(report)
    orders: dict[str, Iterable[str]] = {"task": TASKS, "model": ARCHITECTURES, "setting": SETTINGS}
    choices = {name: in_order((one[name] for one in (*runs, *figures) if one[name]), order)
               for name, order in orders.items()}  # fmt: skip
    shown = {"figures": figures, "formats": list(report.formats), "kinds": _kinds(report), "choices": choices}
    return {"tests": list(TEST_SETTINGS), "runs": runs, "sets": sets, **shown}


def _kinds(report: ReportContent) -> dict[str, str]:
    """The kinds of figures that there are, with the paper's figures that they stand for."""
    from analysis.figures import FIGURES

    there = {drawn.drawing.kind for drawn in report.drawn}
    papers = {kind: FIGURES[kind].paper for kind in FIGURES if kind in there}
    return {kind: f"{kind} (paper: {paper})" if paper else kind for kind, paper in papers.items()}
