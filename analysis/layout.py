"""A table of cells and its notes, as Markdown, LaTeX, HTML and CSV."""

from __future__ import annotations

import html
from dataclasses import dataclass
from itertools import groupby

import pandas as pd


@dataclass(frozen=True)
class Cell:
    """text: as printed. value: the number that is compared within a column, None for none. mark: an arrow beside it.
    missing: a number belongs here and no run gives it."""

    text: str = ""
    value: float | None = None
    bold: bool = False
    underlined: bool = False
    mark: str = ""
    missing: bool = False


BLANK = Cell(missing=True)
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
    """A table in the paper's form. columns: (group, name) of each, group "" where it has none. data: the same and more
    as raw numbers, a row for each cell (or each line, where cells are of different kinds). notes: without the full
    stop of a caption, whole sentences."""

    name: str
    title: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Cell, ...], ...]
    data: pd.DataFrame
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if wrong := [row for row in self.rows if len(row) != len(self.columns)]:
            raise ValueError(f"{self.name}: a row of {len(wrong[0])} cells for {len(self.columns)} columns")

    @property
    def missing(self) -> int:
        """How many cells are blank because no run gives their number."""
        return sum(cell.missing for row in self.rows for cell in row)

    @property
    def said(self) -> tuple[str, ...]:
        """The notes, and how many cells are blank."""
        count = self.missing
        blank = f"{count} cell{'s are' if count > 1 else ' is'} blank: no finished run gives the number."
        return (*self.notes, *([blank] if count else []))

    def markdown(self) -> str:
        """The title, a table as GitHub shows it, and the notes as a list; above random is <ins>underlined</ins>."""
        heads = [f"{group}: {name}" if group else name for group, name in self.columns]
        lines = [[_markdown(Cell(head)) for head in heads], [":--"] * len(heads)]
        lines += [[_markdown(cell) for cell in row] for row in self.rows]
        notes = "".join(f"- {_markdown(Cell(note))}\n" for note in self.said)
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"**{_markdown(Cell(self.title))}**\n\n{table}\n" + (f"\n{notes}" if notes else "")

    def latex(self) -> str:
        """A `table*` for the packages booktabs and graphicx, made smaller where it is wider than the page."""
        groups = [list(found) for _, found in groupby(enumerate(self.columns), key=lambda item: item[1][0])]
        heads = []
        if any(group for group, _ in self.columns):
            named = [_latex(Cell(group[0][1][0])) + " &" * (len(group) - 1) for group in groups]
            spans = [f"\\cmidrule(lr){{{g[0][0] + 1}-{g[-1][0] + 1}}}" for g in groups if g[0][1][0]]
            heads = [" & ".join(named) + r" \\", "".join(spans)]
        heads.append(" & ".join(_latex(Cell(name)) for _, name in self.columns) + r" \\")
        lines = []
        for number, row in enumerate(self.rows):
            if number and row[0].text != self.rows[number - 1][0].text:
                lines.append(r"\addlinespace")
            lines.append(" & ".join(_latex(cell) for cell in row) + r" \\")
        notes = [f"\\par\\smallskip\\footnotesize {' '.join(_latex(Cell(note)) for note in self.said)}"]
        return "\n".join(
            [
                r"\begin{table*}",
                r"\centering\small\setlength{\tabcolsep}{3pt}",
                f"\\caption{{{_latex(Cell(self.title))}}}\\label{{tab:{self.name}}}",
                f"{SHRUNK}{{\\begin{{tabular}}{{{'l' * len(self.columns)}}}",
                r"\toprule",
                *heads,
                r"\midrule",
                *lines,
                r"\bottomrule",
                r"\end{tabular}}",
                *(notes if self.said else []),
                "\\end{table*}\n",
            ]
        )

    def html(self) -> str:
        """A `table` with its title as caption, without the notes; cells of missing numbers are of class missing."""
        groups = [list(found) for _, found in groupby(self.columns, key=lambda column: column[0])]
        lines = []
        if any(group for group, _ in self.columns):
            cells = [
                f'<th scope="colgroup" colspan="{len(g)}">{html.escape(g[0][0])}</th>'
                if g[0][0]
                else f'<td colspan="{len(g)}"></td>'
                for g in groups
            ]
            lines.append(f"<tr>{''.join(cells)}</tr>")
        heads = [f'<th scope="col">{html.escape(name)}</th>' for _, name in self.columns]
        lines.append(f"<tr>{''.join(heads)}</tr>")
        rows = [f"<tr>{''.join(map(_html, row))}</tr>" for row in self.rows]
        head, body = "\n".join(lines), "\n".join(rows)
        caption = f"<caption>{html.escape(self.title)}</caption>"
        return f"<table>{caption}\n<thead>\n{head}\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>\n"

    def csv(self) -> str:
        """`data`, a number to a column, every digit of it; empty where there is none."""
        return str(self.data.to_csv(index=False, lineterminator="\n"))


def _markdown(cell: Cell) -> str:
    text = cell.text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    text = f"{text} {cell.mark}" if cell.mark else text
    text = f"<ins>{text}</ins>" if cell.underlined else text
    return f"**{text}**" if cell.bold else text


def _html(cell: Cell) -> str:
    text = html.escape(f"{cell.text} {cell.mark}" if cell.mark else cell.text)
    text = f"<u>{text}</u>" if cell.underlined else text
    text = f"<b>{text}</b>" if cell.bold else text
    return '<td class="missing"></td>' if cell.missing else f"<td>{text}</td>"


def _latex(cell: Cell) -> str:
    text = f"{cell.text} {cell.mark}" if cell.mark else cell.text
    text = "".join(ESCAPES.get(character, character) for character in text)
    text = f"\\underline{{{text}}}" if cell.underlined else text
    return f"\\textbf{{{text}}}" if cell.bold else text
