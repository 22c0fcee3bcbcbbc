"""The shapes of objects as coverage of pixels, and their colours. Numbers are whole, so drawing is exact everywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from travlr.scene import COLOURS

WHITE = (255, 255, 255)
LEVELS = 3  # strengths of a colour: 1/3, 2/3 and full
SAMPLES = 8  # per pixel and axis, for the coverage of edge pixels
UNIT = 1 << 12  # vertices are whole multiples of 1/UNIT pixel, so that drawing is exact on every machine

Colour = tuple[int, int, int]
Points = list[tuple[float, float]]


def regular_polygon(corners: int, turn: float = 0.0, inner: float = 1.0) -> Points:
    """Corners of a regular polygon on the unit circle, the first at `turn` of a step from straight up."""
    points = []
    for i in range(corners):
        angle = 2 * math.pi * (i + turn) / corners
        radius = inner if i % 2 else 1.0
        points.append((radius * math.sin(angle), -radius * math.cos(angle)))
    return points


# Shape -> factor and outline, x to the right and y down; the longer side of its box spans the factor times the span.
# The factors keep circle, octagon and hexagon apart at every size.
OUTLINES: dict[str, tuple[float, Points]] = {
    "square": (0.88, [(-1, -1), (1, -1), (1, 1), (-1, 1)]),
    "triangle": (1.0, [(0, -0.9), (1, 0.9), (-1, 0.9)]),
    "star": (1.0, regular_polygon(10, inner=0.4)),
    "hexagon": (0.94, regular_polygon(6)),
    "octagon": (0.91, regular_polygon(8, turn=0.5)),
    "pentagon": (1.0, regular_polygon(5)),
    "trapezium": (1.0, [(-0.5, -0.62), (0.5, -0.62), (1, 0.62), (-1, 0.62)]),
    "parallelogram": (1.0, [(-0.4, -0.62), (1, -0.62), (0.4, 0.62), (-1, 0.62)]),
}


def coverage(shape: str, span: float, cell: int) -> np.ndarray:
    """Coverage of each pixel of a cell that a shape covers, in 0 .. LEVELS, (cell, cell) uint8.

    span: pixels along the longer side of the shape's box, at most cell - 2, so that a cell's rim stays white.
    """
    half = round(min(span, cell - 2) * UNIT / 2)
    if shape == "circle":
        return disc_coverage(half, (0, 0), cell)
    factor, outline = OUTLINES[shape]
    (left, top), (right, bottom) = box_of(outline)
    scale = 2 * factor * half / max(right - left, bottom - top)
    corners = [
        (round((px - (left + right) / 2) * scale), round((py - (top + bottom) / 2) * scale)) for px, py in outline
    ]
    return polygon_coverage(corners, cell)


def box_of(outline: Points) -> tuple[tuple[float, float], tuple[float, float]]:
    """Left and top, right and bottom of an outline."""
    xs, ys = zip(*outline, strict=True)
    return (min(xs), min(ys)), (max(xs), max(ys))


def disc_coverage(radius: int, centre: tuple[int, int], cell: int) -> np.ndarray:
    """`coverage` of a disc. radius, centre (x, y) from the centre of the cell: in 1/UNIT pixel."""
    x, y = (_samples(cell) - shift for shift in centre)
    return _levels((x * x)[None, :] + (y * y)[:, None] <= radius * radius, cell)


def polygon_coverage(corners: list[tuple[int, int]], cell: int) -> np.ndarray:
    """`coverage` of a polygon. corners: (x, y) from the centre of the cell, in 1/UNIT pixel."""
    x = y = _samples(cell)
    inside = np.zeros((len(y), len(x)), bool)
    for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
        if y0 > y1:
            x0, y0, x1, y1 = x1, y1, x0, y0
        if y0 == y1:
            continue
        rows = np.flatnonzero((y0 <= y) & (y < y1))
        ends = x0 - (-(y[rows] - y0) * (x1 - x0)) // (y1 - y0)  # samples left of it lie on one side of the edge
        inside[rows] ^= x[None, :] < ends[:, None]
    return _levels(inside, cell)


def _samples(cell: int) -> np.ndarray:
    """Places of the samples along one axis of a cell, from its centre, in 1/UNIT pixel."""
    return (2 * np.arange(cell * SAMPLES) + 1) * UNIT // (2 * SAMPLES) - cell * UNIT // 2


def _levels(inside: np.ndarray, cell: int) -> np.ndarray:
    """The samples of each pixel that lie inside, in 0 .. LEVELS."""
    columns = inside.reshape(cell, SAMPLES, cell * SAMPLES).sum(axis=1, dtype=np.uint8)  # whole rows at once: fast
    covered = columns.reshape(cell, cell, SAMPLES).sum(axis=2, dtype=np.int64)
    return ((covered * LEVELS + SAMPLES**2 // 2) // SAMPLES**2).astype(np.uint8)


def blend(colour: Colour, ground: Colour, level: int) -> list[int]:
    """A colour of which a pixel shows level / LEVELS, and for the rest the background."""
    return [
        (below * (LEVELS - level) + part * level + LEVELS // 2) // LEVELS
        for part, below in zip(colour, ground, strict=True)
    ]


def palette_of(colours: Sequence[str], grounds: Sequence[Colour] = (WHITE,)) -> np.ndarray:
    """Background colours, then each colour in its strengths on white, weakest first: (entries, 3) uint8."""
    strengths = [(COLOURS[c], level) for c in colours for level in range(1, LEVELS + 1)]
    return np.array([*map(list, grounds), *(blend(rgb, WHITE, level) for rgb, level in strengths)], np.uint8)
