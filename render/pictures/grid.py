"""The style `grid`: as plain, with lines between the cells and around them."""

from __future__ import annotations

import numpy as np

from render.pictures.look import Look, Spans, cells_on, first_entries
from render.pictures.plain import centred_shapes
from render.shapes import WHITE, Colour, palette_of
from travlr.scene import World

LINE: Colour = (168, 168, 168)


def grid(world: World, cell: int, spans: Spans) -> Look:
    grounds = (WHITE, LINE)
    lined = lined_cell(cell)
    sprites = cells_on(lined, centred_shapes(world, cell, spans), first_entries(world, len(grounds)))
    canvas = np.tile(lined, (world.rows, world.columns))
    return Look(palette_of(world.colours, grounds), len(grounds), canvas[None], sprites[None, None])


def lined_cell(cell: int) -> np.ndarray:
    """An empty cell with half of a line along each side: 0 for white, 1 for the line."""
    width = max(1, cell // 64)
    lined = np.ones((cell, cell), np.uint8)
    lined[width:-width, width:-width] = 0
    return lined
