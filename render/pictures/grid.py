"""The style `grid`: as plain, with lines between the cells and around them."""

from __future__ import annotations

import numpy as np

from render.pictures.look import Look, Spans
from render.pictures.plain import centred
from render.shapes import WHITE, Colour
from travlr.scene import World

LINE: Colour = (168, 168, 168)


def grid(world: World, cell: int, spans: Spans) -> Look:
    return centred(world, cell, spans, lined_cell(cell), (WHITE, LINE))


def lined_cell(cell: int) -> np.ndarray:
    """An empty cell with half of a line along each side: 0 for white, 1 for the line."""
    width = max(1, cell // 64)
    lined = np.ones((cell, cell), np.uint8)
    lined[width:-width, width:-width] = 0
    return lined
