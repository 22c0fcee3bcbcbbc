"""Pictures of scenes with objects of many sizes, slightly off the centres of their cells.

Shapes, colours and PNG files come from `render`, whose renderer has few sizes and centres all objects.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from render.shapes import LEVELS, OUTLINES, coverage, palette_of
from travlr.scene import World

WORLD = World()  # five colours, seven shapes, 6 x 6 cells
CELL = 112  # pixels: the smallest multiple of 16 that fits an object of VL-CheckList's class large
CANVAS = CELL * WORLD.rows
# Square roots of bounding-box areas, in pixels, by VL-CheckList's classes of size (limits: 32 and 96). Boxes of all
# shapes have the same area, so that the class does not depend on the shape.
SIDES = {"small": (22, 25, 28, 31), "medium": (46, 52, 58, 64, 70, 76, 82, 88), "large": (98, 100, 102)}
JITTER = 6  # pixels in each direction; too little to change an object's class of location
MARGIN = 8  # pixels around a cropped object, within its cell
PALETTE = palette_of(WORLD.colours)

Box = tuple[int, int, int, int]
"""Left, top, width and height in pixels of an object's ink."""


@dataclass(frozen=True)
class PlacedObject:
    """An object in a scene. side: square root of its box's area, in pixels. dx, dy: offset from the cell's centre."""

    colour: str
    shape: str
    row: int
    column: int
    side: int
    dx: int = 0
    dy: int = 0

    @property
    def size(self) -> str:
        return next(size for size, sides in SIDES.items() if self.side in sides)

    @property
    def words(self) -> frozenset[str]:
        """Its attributes."""
        return frozenset((self.colour, self.shape, self.size))

    @functools.cached_property
    def box(self) -> Box:
        """Its box, at least one pixel inside its cell, so that objects never touch."""
        height, width = sprite(self.shape, self.side).shape
        left = min(max((CELL - width) // 2 + self.dx, 1), CELL - 1 - width)
        top = min(max((CELL - height) // 2 + self.dy, 1), CELL - 1 - height)
        return self.column * CELL + left, self.row * CELL + top, width, height

    @property
    def centre(self) -> tuple[float, float]:
        left, top, width, height = self.box
        return left + width / 2, top + height / 2


@functools.cache
def sprite(shape: str, side: int) -> np.ndarray:
    """Coverage of each pixel by the shape, 0 to `LEVELS`, cropped to its box: (height, width) uint8."""
    factor, ratio = 1.0, 1.0
    if shape in OUTLINES:
        factor, outline = OUTLINES[shape]
        across, down = (max(axis) - min(axis) for axis in zip(*outline, strict=True))
        ratio = min(across, down) / max(across, down)
    span = side / (factor * math.sqrt(ratio))
    pixels = coverage(shape, span, 2 * math.ceil(span / 2) + 4)
    rows, columns = np.flatnonzero(pixels.any(axis=1)), np.flatnonzero(pixels.any(axis=0))
    return pixels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


@functools.cache
def ink(shape: str, side: int) -> int:
    """Pixels of a sprite that are not white."""
    return int(np.count_nonzero(sprite(shape, side)))


@functools.cache
def _coloured(colour: str, shape: str, side: int) -> np.ndarray:
    """A sprite as palette indices."""
    levels = sprite(shape, side)
    first = LEVELS * WORLD.colours.index(colour)
    return np.where(levels > 0, levels + first, 0).astype(np.uint8)


def draw_scene(objects: Iterable[PlacedObject]) -> np.ndarray:
    """A picture as indices into `PALETTE`, (CANVAS, CANVAS) uint8."""
    picture = np.zeros((CANVAS, CANVAS), np.uint8)
    for o in objects:
        left, top, width, height = o.box
        picture[top : top + height, left : left + width] = _coloured(o.colour, o.shape, o.side)
    return picture


def crop(picture: np.ndarray, o: PlacedObject) -> np.ndarray:
    """The part of a picture with an object: its box with a margin, within its cell, so that no other one is visible."""
    left, top, width, height = o.box
    x, y = o.column * CELL, o.row * CELL
    rows = slice(max(top - MARGIN, y), min(top + height + MARGIN, y + CELL))
    columns = slice(max(left - MARGIN, x), min(left + width + MARGIN, x + CELL))
    return picture[rows, columns]
