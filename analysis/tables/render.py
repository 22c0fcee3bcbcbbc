"""Tables as HTML, LaTeX, Markdown and CSV, by pandas and its Styler."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pandas as pd
from pandas.io.formats.style import Styler

from analysis.tables.pivots import Table

LATEX = {"best": "textbf:--rwrap;", "above": "underline:--rwrap;"}  # by mark


def _styler(table: Table, escape: str) -> Styler:
    styler = table.frame.style.format(escape=escape)
    styler.cell_ids = False
    return styler.format_index(escape=escape, axis=0).format_index(escape=escape, axis=1)


def to_html(table: Table) -> str:
    """An HTML table without a title, whose cells have their marks as classes, and lead to their links."""
    styler = _styler(table, "html").set_td_classes(table.marks).set_uuid(table.name)
    if (links := table.links) is not None:
        texts = table.frame.map(html.escape)
        anchors = '<a href="' + links.map(html.escape) + '">' + texts + "</a>"
        styler.data = anchors.where((links != "") & (texts != ""), texts)
        styler.format(escape=None)
    page = styler.to_html()
    return page[page.index("<table") :]  # without its style, which is empty


def to_latex(table: Table) -> str:
    """A `table*` for the packages booktabs and multirow."""
    commands = table.marks.map(lambda marks: "".join(LATEX.get(mark, "") for mark in marks.split()))
    caption = re.sub(r"([&%$#_{}])", r"\\\1", " ".join((f"{table.title}.", *table.notes)))
    styler = _styler(table, "latex").apply(lambda _: commands, axis=None)
    return str(styler.to_latex(hrules=True, multicol_align="c", environment="table*", caption=caption,
                               label=f"tab:{table.name}", position_float="centering"))  # fmt: skip


def to_markdown(table: Table) -> str:
    """The title, a table in GitHub's form, and the notes as a list."""
    frame = table.frame.where(~table.marks.map(lambda marks: "best" in marks.split()), "**" + table.frame + "**")
    frame.columns = [": ".join(filter(None, one)) if isinstance(one, tuple) else str(one) for one in frame.columns]
    grid = frame.reset_index().to_markdown(index=False, disable_numparse=True)
    notes = "".join(f"- {note}\n" for note in table.notes)
    return f"**{table.title}**\n\n{grid}\n" + (f"\n{notes}" if notes else "")


def to_csv(table: Table) -> str:
    """The raw numbers, a row for each cell."""
    return str(table.data.to_csv(index=False, lineterminator="\n"))


FORMATS = {"md": to_markdown, "tex": to_latex, "csv": to_csv}


def write_table(table: Table, folder: Path) -> None:
    """Write the files of a table."""
    for suffix, render in FORMATS.items():
        (folder / f"{table.name}.{suffix}").write_text(render(table), encoding="utf-8")


def plain_table(name: str, title: str, frame: pd.DataFrame, notes: tuple[str, ...] = ()) -> Table:
    """A table of a frame as it is, numbers with one digit."""
    text = frame.map(
        lambda value: f"{value:,.1f}" if isinstance(value, float) else "" if pd.isna(value) else str(value)
    )
    return Table(name, title, text.replace("nan", ""), frame.reset_index(), frame.map(lambda _: ""), notes)
