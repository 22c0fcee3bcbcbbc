"""The style `equal_area`: all shapes cover equal areas, and each object has a size of its own.

With `plain`, shapes span the same width, so that a star has less ink than a circle and the sum of a colour's ink tells
them apart. Here the area of an object depends on its size and on a random variant only, and its edges are hard, so that
its ink is one number however a program counts it. A hash of the scene and the cell chooses the variant.
"""

from __future__ import annotations

import functools

import numpy as np

from render.pictures.look import Look, Spans, cells_on
from render.shapes import LEVELS, coverage, palette_of
from travlr.scene import World

VARIANTS = 24
FACTORS = (0.8, 1.0)  # of an object's width; sizes that are a third apart stay apart


def equal_area(world: World, cell: int, spans: Spans) -> Look:
    white = np.zeros((cell, cell), np.uint8)
    largest = max(spans[size] for size in world.sizes)
    room = min(int((solid(shape, cell - 2, cell) > 0).sum()) for shape in world.shapes)  # what every shape can cover
    sprites = np.empty((1, VARIANTS, len(world.kinds), cell, cell), np.uint8)
    for variant, factor in enumerate(np.linspace(*FACTORS, VARIANTS).tolist()):
        areas = {size: round(room * (factor * spans[size] / largest) ** 2) for size in world.sizes}
        shapes = {(z, s): shape_of_area(s, areas[z], cell) for z in world.sizes for s in world.shapes}
        sprites[0, variant] = cells_on(world, white, [shapes[size, shape] for size, shape, _ in world.kinds], 1)
    canvas = np.zeros((1, world.rows * cell, world.columns * cell), np.uint8)
    return Look(palette_of(world.colours), 1, canvas, sprites)


def solid(shape: str, span: float, cell: int) -> np.ndarray:
    """As `render.shapes.coverage`, with hard edges: a pixel is white or has the full colour."""
    return np.where(2 * coverage(shape, span, cell) > LEVELS, LEVELS, 0).astype(np.uint8)


@functools.cache
def shape_of_area(shape: str, area: int, cell: int) -> np.ndarray:
    """Coverage of a shape that covers `area` pixels, (cell, cell) uint8, 0 or `LEVELS`.

    The widest shape that covers no more gets the pixels that it lacks from the edge of the next wider one, top first.
    """
    low = int(16 * (cell - 2) * (area / _pixels(shape, 16 * (cell - 2), cell)) ** 0.5)  # in 1/16 pixel
    while _pixels(shape, low, cell) > area:
        low -= 1
    while low < 16 * (cell - 2) and _pixels(shape, low + 1, cell) <= area:
        low += 1
    inner, outer = (solid(shape, span / 16, cell) for span in (low, low + 1))
    edge = np.flatnonzero((outer > inner).ravel())
    result = inner.copy()
    result.ravel()[edge[: area - int((inner > 0).sum())]] = LEVELS
    return result


@functools.cache
def _pixels(shape: str, sixteenths: int, cell: int) -> int:
    return int((solid(shape, sixteenths / 16, cell) > 0).sum())
