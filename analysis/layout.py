"""A table of cells and its notes, as Markdown, LaTeX, HTML and CSV."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import pandas as pd


@dataclass(frozen=True)
class Cell:
    """A cell. text: as printed. value: the number that is compared within a column, None without one. mark: printed
    after the text, such as an arrow. small: an interval, printed small below the text, or in brackets after it.
    missing: whether a number belongs here that no run gives. In HTML alone: `hint` is shown under the pointer, `link`
    is a fragment of the page's address, and `classes` are for its style."""

    text: str = ""
    value: float | None = None
    bold: bool = False
    underlined: bool = False
    mark: str = ""
    small: str = ""
    missing: bool = False
    hint: str = ""
    link: str = ""
    classes: str = ""


BLANK = Cell(missing=True)
DENSE = 10  # columns; a wider table is printed smaller in HTML, to fit a page of 1,400 pixels
NUMBERED = re.compile(r"(Table \d+)\. (.*)", re.DOTALL)  # the title of a table that the paper numbers
SHRUNK = r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}"
ESCAPES = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "[": "{[}",  # at the start of a row these would be options of the line break before it
    "*": "{*}",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
}


@dataclass(frozen=True)
class Table:
    """A table in the paper's form. columns: (group, name) of each column, or several groups, the outermost first; ""
    for no group. data: raw numbers, a row for each cell (for each line, where cells are of different kinds). notes:
    whole sentences. shaded: in HTML, cells with a larger value (0 to 100) are darker."""

    name: str
    title: str
    columns: tuple[tuple[str, ...], ...]
    rows: tuple[tuple[Cell, ...], ...]
    data: pd.DataFrame
    notes: tuple[str, ...] = ()
    shaded: bool = False

    def _groups(self) -> Iterator[list[tuple[str, int, int]]]:
        """For each line of groups above the columns' names: the text, first column (from 0) and width of each group."""
        for level in range(len(self.columns[0]) - 1):
            groups = [list(g) for _, g in groupby(enumerate(self.columns), key=lambda item: item[1][: level + 1])]
            line = [(group[0][1][level], group[0][0], len(group)) for group in groups]
            if any(text for text, _, _ in line):
                yield line

    @property
    def missing(self) -> int:
        """How many cells are blank because no run gives their number."""
        return sum(cell.missing for row in self.rows for cell in row)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes, and how many cells are blank."""
        count = self.missing
        blank = f"{count} cell{'s are' if count > 1 else ' is'} blank: no finished run gives the number."
        return (*self.notes, *([blank] if count else []))

    def markdown(self) -> str:
        """The title, a table in GitHub's form, and the notes as a list; underlined cells are in <ins>."""
        heads = [": ".join(filter(None, column)) for column in self.columns]
        lines = [[_markdown(Cell(head)) for head in heads], [":--"] * len(heads)]
        lines += [[_markdown(cell) for cell in row] for row in self.rows]
        notes = "".join(f"- {_markdown(Cell(note))}\n" for note in self.all_notes)
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"**{_markdown(Cell(self.title))}**\n\n{table}\n" + (f"\n{notes}" if notes else "")

    def latex(self) -> str:
        """A `table*` for the packages booktabs and graphicx; it is scaled down if it is wider than the page."""
        heads = []
        for line in self._groups():
            cells = [
                f"\\multicolumn{{{n}}}{{c}}{{{_latex(Cell(text))}}}" if text else " & " * (n - 1) for text, _, n in line
            ]
            rules = [f"\\cmidrule(lr){{{first + 1}-{first + n}}}" for text, first, n in line if text]
            heads += [" & ".join(cells) + r" \\", "".join(rules)]
        heads.append(" & ".join(_latex(Cell(column[-1])) for column in self.columns) + r" \\")
        lines = []
        for number, row in enumerate(self.rows):
            if number and row[0].text != self.rows[number - 1][0].text:
                lines.append(r"\addlinespace")
            lines.append(" & ".join(_latex(cell) for cell in row) + r" \\")
        notes = [f"\\par\\smallskip\\footnotesize {' '.join(_latex(Cell(note)) for note in self.all_notes)}"]
        return "\n".join(
            [
                r"\begin{table*}",
                r"\centering\small\setlength{\tabcolsep}{3pt}",
                f"\\caption{{{_latex(Cell(self._caption()))}}}\\label{{tab:{self.name}}}",
                f"{SHRUNK}{{\\begin{{tabular}}{{{'l' * len(self.columns)}}}",
                r"\toprule",
                *heads,
                r"\midrule",
                *lines,
                r"\bottomrule",
                r"\end{tabular}}",
                *(notes if self.all_notes else []),
                "\\end{table*}\n",
            ]
        )

    def _caption(self) -> str:
        """The title without the paper's number, as LaTeX numbers tables itself."""
        numbered = NUMBERED.fullmatch(self.title)
        return f"{numbered[2]} (as {numbered[1]} of the TraVLR paper)" if numbered else self.title

    def html(self) -> str:
        """A `table` with its title as caption, without the notes; cells of missing numbers are of class missing."""
        lines = []
        for line in self._groups():
            cells = [
                f'<th scope="colgroup" colspan="{n}">{html.escape(text)}</th>' if text else f'<td colspan="{n}"></td>'
                for text, _, n in line
            ]
            lines.append(f"<tr>{''.join(cells)}</tr>")
        heads = [f'<th scope="col">{html.escape(column[-1])}</th>' for column in self.columns]
        lines.append(f"<tr>{''.join(heads)}</tr>")
        rows = [f"<tr>{''.join(_html(cell, self.shaded) for cell in row)}</tr>" for row in self.rows]
        head, body = "\n".join(lines), "\n".join(rows)
        caption = f"<caption>{html.escape(self.title)}</caption>"
        kinds = ["dense"] * (len(self.columns) > DENSE) + ["shaded"] * self.shaded
        classes = f' class="{" ".join(kinds)}"' if kinds else ""
        return f"<table{classes}>{caption}\n<thead>\n{head}\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>\n"

    def csv(self) -> str:
        """`data`, with all digits; empty where there is no number."""
        return str(self.data.to_csv(index=False, lineterminator="\n"))


def _markdown(cell: Cell) -> str:
    text = cell.text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    text = " ".join(filter(None, (text, cell.mark, cell.small and f"[{cell.small}]")))
    text = f"<ins>{text}</ins>" if cell.underlined else text
    return f"**{text}**" if cell.bold else text


def _html(cell: Cell, shaded: bool = False) -> str:
    if cell.missing:
        return '<td class="missing"></td>'
    text = html.escape(f"{cell.text} {cell.mark}" if cell.mark else cell.text)
    text = f"<u>{text}</u>" if cell.underlined else text
    text = f"<b>{text}</b>" if cell.bold else text
    text = f'<a href="#{html.escape(cell.link)}">{text}</a>' if cell.link else text
    text += f"<small>{html.escape(cell.small)}</small>" if cell.small else ""
    attributes = {"class": cell.classes, "title": cell.hint}
    attributes["style"] = f"--value:{cell.value:.1f}" if shaded and cell.value is not None else ""
    in_tag = "".join(f' {name}="{html.escape(value)}"' for name, value in attributes.items() if value)
    return f"<td{in_tag}>{text}</td>"


def _latex(cell: Cell) -> str:
    text = " ".join(filter(None, (cell.text, cell.mark, cell.small and f"[{cell.small}]")))
    text = "".join(ESCAPES.get(character, character) for character in text)
    text = f"\\underline{{{text}}}" if cell.underlined else text
    return f"\\textbf{{{text}}}" if cell.bold else text
