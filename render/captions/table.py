"""The style `table`: the preface of the sentences, and a Markdown table with a line for each object."""

from __future__ import annotations

import re

from render.captions.style import PREFACE, ListStyle, Parsed, check_written, object_of, preface, refuse
from travlr.scene import World, column_name, row_name


class TableCaptioner(ListStyle):
    """Captions as Markdown tables."""

    pieces = ("| size | colour | shape | column | row |", "|---|---|---|---|---|")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        names = [*["size"] * self.names_size, "colour", "shape", "column", "row"]
        self._start = f"{preface(world)}\n\n{_line(names)}\n|{'---|' * len(names)}"

    def entry(self, size: str, shape: str, colour: str, row: int, column: int) -> str:
        return _line([*[size] * self.names_size, colour, shape, column_name(column), row_name(row)])

    def assemble(self, entries: list[str]) -> str:
        return "\n".join([self._start, *entries])

    @staticmethod
    def parse(caption: str, size: str) -> Parsed:
        first, *lines = caption.split("\n")
        match = re.fullmatch(PREFACE, first)
        if not match or len(lines) < 3:
            refuse(caption)
        columns, rows, objects = ord(match[1]) - ord("A") + 1, int(match[2]), []
        names_size = lines[1].startswith("| size |")
        for line in lines[3:]:
            words = line.strip("| ").split(" | ")
            if len(words) != 4 + names_size or not re.fullmatch("[1-9][0-9]?", words[-1]):
                refuse(line)
            colour, shape, column, row = words[-4:]
            objects.append(object_of(words[0] if names_size else size, colour, shape, column, int(row)))
        return check_written(TableCaptioner, caption, (columns, rows, tuple(objects)), names_size)


def _line(words: list[str]) -> str:
    return f"| {' | '.join(words)} |"
