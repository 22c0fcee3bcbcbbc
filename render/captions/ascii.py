"""The style `ascii`: the grid itself, with the words of an object or a dot in each cell. Its objects have no order."""

from __future__ import annotations

import functools
import re

import numpy as np

from render.captions.style import CaptionStyle, Parsed, check_written, object_of, refuse
from travlr.scene import SIZES, Batch, Scene, World, column_name, row_name

EMPTY = "."
GAP = "  "  # at least; no name of an object has two spaces


class AsciiCaptioner(CaptionStyle):
    """Captions as grids of words."""

    ordered = False
    pieces = (EMPTY,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._columns = list(map(column_name, range(world.columns)))
        width = len(row_name(world.rows - 1))
        self._rows = ["".ljust(width), *(row_name(row).ljust(width) for row in range(world.rows))]

    def captions(self, batch: Batch) -> list[str]:
        words = self._words[batch.grid].reshape(-1, self.world.rows, self.world.columns)
        return [self._aligned_lines(cells) for cells in words.tolist()]

    def caption(self, scene: Scene) -> str:
        cells = [[EMPTY] * self.world.columns for _ in range(self.world.rows)]
        for o in scene:
            cells[o.row][o.column] = self.words(o.size, o.shape, o.colour)
        return self._aligned_lines(cells)

    @functools.cached_property
    def _words(self) -> np.ndarray:
        """The words of each kind number, (1 + kinds,) of str."""
        return np.array([EMPTY, *(self.words(*kind) for kind in self.world.kinds)], object)

    def _aligned_lines(self, cells: list[list[str]]) -> str:
        """The caption of these words, row by row."""
        lines = [self._columns, *cells]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            GAP.join([label, *map(str.ljust, line, widths)]).rstrip()
            for label, line in zip(self._rows, lines, strict=True)
        )

    @staticmethod
    def parse(caption: str, size: str) -> Parsed:
        head, *lines = caption.split("\n")
        starts = [match.start() for match in re.finditer("[A-Z]", head)]
        objects, names_size = [], False
        for row, line in enumerate(lines, 1):
            for number, (start, end) in enumerate(zip(starts, [*starts[1:], None], strict=True)):
                words = line[start:end].split()
                if words == [EMPTY]:
                    continue
                if len(words) not in (2, 3) or number > 25:
                    refuse(caption)
                names_size = names_size or (len(words) == 3 and words[0] in SIZES)
                colour, shape = words[-2:]
                objects.append(object_of(words[0] if names_size else size, colour, shape, column_name(number), row))
        return check_written(AsciiCaptioner, caption, (len(starts), len(lines), tuple(objects)), names_size)
