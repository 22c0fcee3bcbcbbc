"""A report as one HTML page that loads nothing else.

Text of runs and datasets is not trusted: it is escaped or, for errors, embedded as JSON that cannot end its element. A
content security policy allows no script but the page's own.
"""

from __future__ import annotations

import base64
import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.averages import RunSummary, run_summaries, what_was_found
from analysis.counts import distinguishing_settings
from analysis.filling import fill_template, insert_shared
from analysis.layout import Table
from analysis.runs import Runs
from train.config import ARCHITECTURES, SETTINGS
from train.results.columns import TEST_SETTINGS, TEST_SPLITS, in_order, main_test_setting
from train.results.tables import differing_settings, value_text
from travlr.tasks import TASKS

EVALUATED = ' Models that evaluate.py has asked: <a href="evaluations.html">evaluations</a>.'
FORMATS = ("svg", "png")  # of figures
WIDE = 1050  # pixels; a wider figure has the whole width of the page
TABLE_FILES = ("md", "tex", "csv")
TEMPLATE = Path(__file__).with_name("report.html")


@dataclass(frozen=True)
class FigureSpec:
    """A figure to draw: its kind, the name of its files, and the results to choose for it."""

    kind: str
    name: str
    where: dict[str, Any]


@dataclass(frozen=True)
class FigureFile:
    """A written figure. caption: its whole title; alt: its title and notes; png: as on the page, with few colours."""

    spec: FigureSpec
    caption: str
    alt: str
    png: bytes
    pixels: tuple[int, int]


@dataclass
class ReportContent:
    """All parts of a report. empty: titles of tables without a number of ours. errors: by content digest, see
    `analysis.errors.dataset_errors`."""

    runs: Runs
    overview: Table | None = None
    tables: list[Table] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    figures: list[FigureFile] = field(default_factory=list)
    errors: dict[str, dict[str, Any]] = field(default_factory=dict)
    evaluations: list[Table] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


RUN_FACTS = ("model", "size", "setting", "task", "seed", "weights", "experiment", "regions", "steps", "train_examples",
             "unlabelled_examples", "parameters", "precision", "hardware", "commit")  # fmt: skip


def summarise_runs(report: ReportContent) -> str:
    """Numbers of runs, results and things left out, in a sentence."""
    results = report.runs.results
    runs, converged = results["name"].nunique(), results.drop_duplicates("name")["converged"].sum()
    parts = [f"{runs:,} run{'s' * (runs > 1)}, {converged:,} of them converged", f"{len(results):,} results"]
    return f"{'; '.join(parts)}; {len(report.skipped) or 'nothing'} left out."


def found(report: ReportContent) -> str:
    """What was found, in a line: how many runs are above the best unbound rule, tested as trained."""
    results = report.runs.results
    own = results["test_setting"] == results["setting"].map(main_test_setting, na_action="ignore")
    return what_was_found(results[own.fillna(False) & (results["split"] == "test_ood")], "run")


def list_versions(runs: Runs) -> list[str]:
    """Versions of packages: a line for each combination that runs were made with, and one for this report."""
    lines = []
    results = runs.results.fillna({"versions": "{}", "commit": ""})
    for (packages_json, commit), rows in results.groupby(["versions", "commit"]):
        packages = [f"{name} {version}" for name, version in json.loads(packages_json).items()]
        packages += [f"commit {commit}"] if commit else []
        lines.append(f"{rows['name'].nunique()} runs: {', '.join(packages) or 'not recorded'}")
    ours = [f"{name} {metadata.version(name)}" for name in ("travlr", "pandas", "matplotlib", "numpy", "pyarrow")]
    return [*lines, f"this report: {', '.join(ours)}"]


def _settings_by_run(runs: Runs) -> dict[str, str]:
    """By name of the run, the settings in which it differs from the other runs of its model, size and task."""
    info = runs.results.drop_duplicates("name")
    return dict(zip(info["name"], distinguishing_settings(info), strict=True))


def _run_cells(run: RunSummary) -> list[str]:
    """Whether a run has converged, and its scores in its own setting on both test splits."""
    scores = [run.score(main_test_setting(run.info["setting"] or ""), split) for split in TEST_SPLITS]
    return ["yes" if run.converged else "no", *("" if math.isnan(score) else f"{score:.2f}" for score in scores)]


def html_page(report: ReportContent) -> str:
    """The report as one HTML page. Texts of runs and datasets are escaped, or are JSON that the page's script reads."""
    return fill_template(
        TEMPLATE,
        _data(report),
        name=html.escape(report.runs.folder.resolve().name),
        found=found(report),
        lead=html.escape(summarise_runs(report)) + EVALUATED * bool(report.evaluations),
        overview=table_block(report.overview, TABLE_FILES) if report.overview else "<p>None.</p>",
        figures=_figures(report),
        tables="".join(folded_table(one, one.title, TABLE_FILES, not place) for place, one in enumerate(report.tables)),
        empty=html_list(report.empty),
        skipped=html_list(report.skipped) or "<p>Nothing was left out.</p>",
        runs=_runs(run_summaries(report.runs), _settings_by_run(report.runs)),
        versions=html_list(list_versions(report.runs)),
    )


def report_style() -> str:
    """The style of the page, for other pages with its tables and cards."""
    style = re.search(r"<style>.*?</style>", insert_shared(TEMPLATE), re.DOTALL)
    return style[0] if style else ""


def html_list(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def folded_table(table: Table, title: str, suffixes: Sequence[str], is_open: bool) -> str:
    """A table that can be folded and unfolded."""
    head = f"<summary><h3>{html.escape(title)}</h3></summary>"
    block = table_block(table, suffixes)
    return f'<details id="{table.name}" class="block"{" open" * is_open}>{head}{block}</details>\n'


def table_block(table: Table, suffixes: Sequence[str] = ()) -> str:
    """A table with its notes folded, and links to its files with these suffixes."""
    files = " ".join(f'<a href="tables/{table.name}.{s}">{s}</a>' for s in suffixes)
    notes = f"<details><summary>Notes</summary>{html_list(table.all_notes)}</details>" if table.all_notes else ""
    region = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(table.title)}">{table.html()}</div>'
    )
    return f"{region}{notes}" + (f'<p class="files">{files}</p>' if files else "")


def _figures(report: ReportContent) -> str:
    """The figures by kind, folded: transfer first, and open, then others of several runs, then those of one run."""

    def rank(figure: FigureFile) -> tuple[bool, bool]:
        return "name" in figure.spec.where, figure.spec.kind != "transfer"

    kinds: dict[str, list[FigureFile]] = {}
    for figure in sorted(report.figures, key=rank):
        kinds.setdefault(figure.spec.kind, []).append(figure)
    return "".join(
        f"<details{' open' * (kind == 'transfer')}><summary><h3>{kind} ({len(figures):,})</h3></summary>"
        f'<div class="figures">{"".join(map(_figure, figures))}</div></details>\n'
        for kind, figures in kinds.items()
    )


def _figure(figure: FigureFile) -> str:
    name, (width, height) = html.escape(figure.spec.name), (pixels * 2 // 3 for pixels in figure.pixels)
    picture = f"data:image/png;base64,{base64.b64encode(figure.png).decode()}"
    files = " ".join(f'<a href="figures/{name}.{suffix}">{suffix}</a>' for suffix in FORMATS)
    return (
        f'<figure id="{name}" class="{"wide" * (figure.pixels[0] > WIDE)}">'
        f'<img loading="lazy" width="{width}" height="{height}" alt="{html.escape(figure.alt)}" src="{picture}">'
        f'<figcaption>{html.escape(figure.caption)} <span class="files">{files}</span></figcaption></figure>\n'
    )


def _runs(runs: Sequence[RunSummary], labels: Mapping[str, str]) -> str:
    """A line for each run, which unfolds to its settings that are not the same in all runs; and the shared settings."""
    differing = differing_settings([run.settings for run in runs])
    shared = {name: value for name, value in runs[0].settings.items() if name not in differing[0]}
    lines = []
    for run, settings in zip(runs, differing, strict=True):
        facts = {name: run.info[name] for name in RUN_FACTS if run.info[name] is not None}
        name = ": ".join(filter(None, (run.info["name"], labels[run.info["name"]])))
        lines.append(
            f'<tr><th scope="row"><details><summary>{html.escape(name)}</summary>{_settings(facts)}'
            f"{_settings(settings)}</details></th>{''.join(f'<td>{cell}</td>' for cell in _run_cells(run))}</tr>"
        )
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("Run", "Converged", *TEST_SPLITS))
    caption = "<caption>Macro-F1 in the setting of training. A run opens to its settings.</caption>"
    table = f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    folded = f'<summary>{len(lines):,} run{"s" * (len(lines) > 1)}</summary><div class="scroll">{table}</div>'
    common = f"<details><summary>Settings that all runs share</summary>{_settings(shared)}</details>" if shared else ""
    return f"<details>{folded}</details>{common}"


def _settings(settings: dict[str, Any]) -> str:
    items = (f"<dt>{html.escape(n)}</dt><dd>{html.escape(value_text(v))}</dd>" for n, v in settings.items())
    return f'<dl class="code">{"".join(items)}</dl>'


def _data(report: ReportContent) -> dict[str, Any]:
    """The data of the page's script: runs, filters, and for each dataset the errors of its runs."""
    infos = report.runs.results.drop_duplicates("name").set_index("name")
    labels = _settings_by_run(report.runs)
    runs, sets = list[dict[str, Any]](), {}
    for digest, errors in report.errors.items():
        for name in errors["wrong"]:
            info = infos.loc[name, ["model", "size", "setting", "task", "seed"]]
            values = {column: None if pd.isna(value) else str(value) for column, value in info.items()}
            runs.append({"name": name, "dataset": digest, **values, "apart": labels[name]})
        sets[digest] = errors | {"wrong": list(errors["wrong"].values())}
    orders: dict[str, Iterable[str]] = {"task": TASKS, "model": ARCHITECTURES, "setting": SETTINGS}
    choices = {name: in_order((run[name] for run in runs if run[name]), order) for name, order in orders.items()}
    return {"tests": list(TEST_SETTINGS), "runs": runs, "sets": sets, "choices": choices}
