"""The style `plain`: each object in the middle of its cell, on white."""

from __future__ import annotations

import numpy as np

from render.pictures.look import Look, Spans, cells_on, first_entries
from render.shapes import coverage, palette_of
from travlr.scene import World


def plain(world: World, cell: int, spans: Spans) -> Look:
    white = np.zeros((cell, cell), np.uint8)
    sprites = cells_on(white, centred_shapes(world, cell, spans), first_entries(world, 1))
    canvas = np.zeros((1, world.rows * cell, world.columns * cell), np.uint8)
    return Look(palette_of(world.colours), 1, canvas, sprites[None, None])


def centred_shapes(world: World, cell: int, spans: Spans) -> list[np.ndarray]:
    """For each kind of a world: the coverage of its shape in the middle of a cell."""
    shapes = {(z, s): coverage(s, spans[z] * cell, cell) for z in world.sizes for s in world.shapes}
    return [shapes[size, shape] for size, shape, _ in world.kinds]
