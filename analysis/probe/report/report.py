"""The report on all runs in a folder: a page, and tables and figures as files.

OUT/report.html   everything on one page that loads nothing else, with wrong items to look at
OUT/tables/       each table as Markdown and CSV; OUT/figures/: radar charts and bars as SVG and PNG

The report covers all runs whose folders are in OUT. It is written over an earlier one.
"""

from __future__ import annotations

import base64
import html
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from analysis.document import folded_table, html_list, report_style, table_block
from analysis.filling import fill_template, write_file
from analysis.layout import Table
from analysis.panels import save
from analysis.probe.report.figures import figures
from analysis.probe.report.mistakes import per_model, wrong_items
from analysis.probe.report.results import Group, Result, groups, load_results
from analysis.probe.report.tables import overview_of_probes, tables, warnings

PAGE = "report.html"
FORMATS = ("svg", "png")
WIDE = 6.6  # inches; a wider figure has the page's whole width
TEMPLATE = Path(__file__).with_name("report.html")


@dataclass(frozen=True)
class GroupReport:
    """A group with its tables and figures. files: contents by path in the report."""

    group: Group
    tables: list[Table]
    figures: dict[str, Figure]
    files: dict[str, bytes]


def write_report(out: Path) -> list[Group]:
    """Write tables, figures and the page on all runs in a folder, over earlier ones. Returns the groups of runs."""
    results, skipped = load_results(out)
    contents = [_content(group) for group in groups(results, out)]
    files = {path: data for content in contents for path, data in content.files.items()}
    files[PAGE] = probe_page(out, contents, skipped).encode()
    for name, data in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        write_file(out / name, data)
    return [content.group for content in contents]


def _content(group: Group) -> GroupReport:
    group_tables, group_figures = tables(group), figures(group)
    files = {f"tables/{table.name}.md": table.markdown().encode() for table in group_tables}
    files |= {f"tables/{table.name}.csv": table.csv().encode() for table in group_tables}
    with tempfile.TemporaryDirectory() as folder:
        paths = [path for name, figure in group_figures.items() for path in save(figure, folder, name, FORMATS)]
        files |= {f"figures/{path.name}": path.read_bytes() for path in paths}
    return GroupReport(group, group_tables, group_figures, files)


# The page ------------------------------------------------------------------------------------------------------------


def _about(result: Result) -> str:
    """A run in one line, with its settings."""
    facts = {**result.measuring, **result.about, "items": result.corpus["items"], "digest": result.corpus["digest"]}
    settings = ", ".join(f"{name} {_brief(value)}" for name, value in facts.items() if value not in (None, "", {}))
    return f"{result.name}: {result.model or 'no model, baselines alone'}; {settings}"


def _brief(value: Any) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{name} {_brief(one)}" for name, one in value.items()) + ")"
    return f"{value:g}" if isinstance(value, float) else str(value)


def probe_page(out: Path, contents: Sequence[GroupReport], skipped: Sequence[str]) -> str:
    """A self-contained page: all models on all corpora, figures of each corpus, wrong items, tables of each corpus.

    Text of corpora and models is escaped; that of the items is embedded as JSON.
    """
    groups = [content.group for content in contents]
    scores, limit = overview_of_probes(groups), per_model(sum(len(group.models) for group in groups))
    links = [("scores", "Scores"), *((group.slug, group.title) for group in groups), ("items", "Wrong items")]
    links += [(f"{group.slug}-tables", f"{group.title}: tables") for group in groups]
    return fill_template(
        TEMPLATE,
        [wrong_items(group, out, limit) for group in groups],
        name=html.escape(out.resolve().name),
        style=report_style(),
        lead=_lead(groups),
        contents="".join(f'<li><a href="#{place}">{html.escape(text)}</a></li>' for place, text in links),
        scores=f'<section id="scores"><h2>Scores</h2>{table_block(scores)}</section>' if scores else "",
        figures="\n".join(map(_figures_section, contents)),
        tables="\n".join(map(_tables_section, contents)),
        left=f"<section><h2>Left out</h2>{html_list(skipped)}</section>" if skipped else "",
    )


def _figures_section(content: GroupReport) -> str:
    group, runs = content.group, "Runs, with their settings, versions and digests"
    settings = f"<details><summary>{runs}</summary>{html_list(map(_about, group.results))}</details>"
    return (
        f'<section id="{group.slug}"><h2>{html.escape(group.title)}</h2>{html_list(warnings(group))}'
        f'<div class="figures">{_pictures(content)}</div>{settings}</section>'
    )


def _tables_section(content: GroupReport) -> str:
    group = content.group
    first = f"{group.slug}-{'accuracy' if group.models else 'baselines'}"
    folded = "".join(
        folded_table(one, f"{one.title} ({len(one.rows):,} rows)", ("md", "csv"), one.name == first)
        for one in content.tables
    )
    return f'<section id="{group.slug}-tables"><h2>{html.escape(group.title)}: tables</h2>{folded}</section>'


def _lead(groups: Sequence[Group]) -> str:
    models = len({result.model for group in groups for result in group.results if result.model})
    count = f"{models:,} model{'s' * (models != 1)}" if models else "No model yet, only baselines,"
    corpora = "1 corpus" if len(groups) == 1 else f"{len(groups):,} corpora"
    return f"{count} on {corpora}: which of two sentences fits a picture, without fine-tuning"


def _pictures(content: GroupReport) -> str:
    elements = []
    for name, figure in content.figures.items():
        width, height = (int(96 * size) for size in figure.get_size_inches())
        alt = html.escape("; ".join(text.get_text() for text in figure.texts))
        data = base64.b64encode(content.files[f"figures/{name}.png"]).decode()
        links = " ".join(f'<a href="figures/{name}.{s}">{s}</a>' for s in FORMATS)
        image = f'<img width="{width}" height="{height}" alt="{alt}" src="data:image/png;base64,{data}">'
        wide = width > 96 * WIDE
        if wide:
            image = f'<div class="scroll" tabindex="0" role="region" aria-label="{alt}">{image}</div>'
        caption = html.escape(str(figure.get_label()))
        elements.append(
            f'<figure id="{name}" class="{"wide" if wide else ""}">{image}'
            f'<figcaption>{caption} <span class="files">{links}</span></figcaption></figure>\n'
        )
    return "".join(elements)
