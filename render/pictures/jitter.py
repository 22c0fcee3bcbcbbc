"""The style `jitter`: each object has a size, an angle and a place of its own within its cell.

They are those of one of a few dozen variants, which are drawn in advance; a hash of the scene and the cell chooses one.
"""

from __future__ import annotations

import math

import numpy as np

from render.pictures.hashing import mix
from render.pictures.look import Look, Spans, cells_on
from render.shapes import OUTLINES, UNIT, Points, box_of, disc_coverage, palette_of, polygon_coverage
from travlr.scene import World

FACTORS = (0.86, 0.93, 1.0, 1.08)  # of the span; sizes that are a third apart stay apart
ANGLES = (-16, -11, -6, -2, 2, 6, 11, 16)  # degrees
PLACES = (-1.0, -0.6, -0.2, 0.2, 0.6, 1.0)  # of the way from the middle of the cell to its rim, down and right
VARIANTS = (32, 16, 8)  # the most that fit into MOST_BYTES
MOST_BYTES = 1 << 26  # of drawn cells, one byte for each pixel


def jitter(world: World, cell: int, spans: Spans) -> Look:
    fitting = [count for count in VARIANTS if count * len(world.kinds) * cell**2 <= MOST_BYTES]
    count = (*fitting, VARIANTS[-1])[0]
    white = np.zeros((cell, cell), np.uint8)
    sprites = np.empty((1, count, len(world.kinds), cell, cell), np.uint8)
    for variant in range(count):
        shapes = {(z, s): moved_shape(s, spans[z] * cell, cell, variant) for z in world.sizes for s in world.shapes}
        sprites[0, variant] = cells_on(world, white, [shapes[size, shape] for size, shape, _ in world.kinds], 1)
    canvas = np.zeros((1, world.rows * cell, world.columns * cell), np.uint8)
    return Look(palette_of(world.colours), 1, canvas, sprites)


def moved_shape(shape: str, span: float, cell: int, variant: int) -> np.ndarray:
    """Coverage of a shape in one of the variants, (cell, cell) uint8. It leaves the rim of the cell white."""
    factor, angle, across, down = choices(variant)
    half, room = factor * span * UNIT / 2, (cell - 2) * UNIT / 2
    if shape == "circle":
        radius = round(min(half, room))
        return disc_coverage(radius, (int(across * (room - radius)), int(down * (room - radius))), cell)
    shape_factor, outline = OUTLINES[shape]
    (left, top), (right, bottom) = box_of(outline)
    scale = 2 * shape_factor * half / max(right - left, bottom - top)
    points = turned_outline(outline, angle)
    (left, top), (right, bottom) = box_of(points)
    scale = min(scale, 2 * room / max(right - left, bottom - top))
    x = across * (room - scale * (right - left) / 2) - scale * (left + right) / 2
    y = down * (room - scale * (bottom - top) / 2) - scale * (top + bottom) / 2
    return polygon_coverage([(round(px * scale + x), round(py * scale + y)) for px, py in points], cell)


def choices(variant: int) -> tuple[float, float, float, float]:
    """Factor of the span, angle in degrees, and place (across, down) of a variant."""
    bits = mix(np.arange(4, dtype=np.uint64) + np.uint64(4 * variant + 1)) >> np.uint64(33)
    picks = zip((FACTORS, ANGLES, PLACES, PLACES), bits.tolist(), strict=True)
    factor, angle, across, down = (values[number % len(values)] for values, number in picks)
    return factor, angle, across, down


def turned_outline(outline: Points, degrees: float) -> Points:
    """An outline, turned about its origin."""
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    return [(x * cosine - y * sine, x * sine + y * cosine) for x, y in outline]
