"""The style `plain`: each object in the middle of its cell, on white."""

from __future__ import annotations

import numpy as np

from render.pictures.look import Look, Spans, cells_on
from render.shapes import WHITE, Colour, coverage, palette_of
from travlr.scene import World


def plain(world: World, cell: int, spans: Spans) -> Look:
    return centred(world, cell, spans, np.zeros((cell, cell), np.uint8), (WHITE,))


def centred(world: World, cell: int, spans: Spans, empty: np.ndarray, grounds: tuple[Colour, ...]) -> Look:
    """Each object in the middle of its cell. empty: a cell without one, (cell, cell) uint8, entries of `grounds`."""
    sprites = cells_on(world, empty, centred_shapes(world, cell, spans), len(grounds))
    canvas = np.tile(empty, (world.rows, world.columns))
    return Look(palette_of(world.colours, grounds), len(grounds), canvas[None], sprites[None, None])


def centred_shapes(world: World, cell: int, spans: Spans) -> list[np.ndarray]:
    """For each kind of a world: the coverage of its shape in the middle of a cell."""
    shapes = {(z, s): coverage(s, spans[z] * cell, cell) for z in world.sizes for s in world.shapes}
    return [shapes[size, shape] for size, shape, _ in world.kinds]
