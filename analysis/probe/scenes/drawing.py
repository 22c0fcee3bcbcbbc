"""Pictures of scenes whose objects have many sizes and stand a little off the middle of their cells.

The shapes, colours and PNG files are the datasets' (`render.image`); their renderer shows few sizes, each centred.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from render.image import LEVELS, OUTLINES, coverage, palette_of, png
from travlr.scene import World

WORLD = World()  # five colours, seven shapes, 6 x 6 cells
CELL = 112  # pixels: the smallest multiple of 16 that holds an object which VL-CheckList calls large
CANVAS = CELL * WORLD.rows
# Roots of the areas of bounding boxes, in pixels, by VL-CheckList's classes of size (limits: 32 and 96). A shape whose
# box is not square is as much longer one way as it is shorter the other, so that no class prefers a shape.
SIDES = {"small": (22, 25, 28, 31), "medium": (46, 52, 58, 64, 70, 76, 82, 88), "large": (98, 100, 102)}
JITTER = 6  # pixels, each way: so little that no object changes its class of location
MARGIN = 8  # pixels around a crop, as far as its cell goes
PALETTE = palette_of(WORLD.colours)

Box = tuple[int, int, int, int]
"""Left, top, width and height in pixels, of all that is not white."""


@dataclass(frozen=True)
class PlacedObject:
    """An object where it stands. side: root of the area of its outline's box, in pixels. dx, dy: off the middle."""

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
        """All that can be said of it alone."""
        return frozenset((self.colour, self.shape, self.size))

    @functools.cached_property
    def box(self) -> Box:
        """At least one pixel within its cell on all sides, so that two objects never touch."""
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
    """How strongly each pixel shows the shape, 0 to `LEVELS`, without white lines around it: (height, width) uint8."""
    factor, ratio = 1.0, 1.0
    if shape in OUTLINES:
        factor, outline = OUTLINES[shape]
        across, down = (max(axis) - min(axis) for axis in zip(*outline, strict=True))
        ratio = min(across, down) / max(across, down)
    span = side / (factor * math.sqrt(ratio))
    drawn = coverage(shape, span, 2 * math.ceil(span / 2) + 4)
    rows, columns = np.flatnonzero(drawn.any(axis=1)), np.flatnonzero(drawn.any(axis=0))
    return drawn[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


@functools.cache
def ink(shape: str, side: int) -> int:
    """Pixels of a sprite that are not white."""
    return int(np.count_nonzero(sprite(shape, side)))


@functools.cache
def _coloured(colour: str, shape: str, side: int) -> np.ndarray:
    """The sprite in entries of the palette."""
    levels = sprite(shape, side)
    first = LEVELS * WORLD.colours.index(colour)
    return np.where(levels > 0, levels + first, 0).astype(np.uint8)


def draw(objects: Iterable[PlacedObject]) -> np.ndarray:
    """A picture in entries of `PALETTE`, (CANVAS, CANVAS) uint8."""
    picture = np.zeros((CANVAS, CANVAS), np.uint8)
    for o in objects:
        left, top, width, height = o.box
        picture[top : top + height, left : left + width] = _coloured(o.colour, o.shape, o.side)
    return picture


def crop_box(o: PlacedObject) -> Box:
    """The object's box and a margin, within its cell: nothing of another object."""
    left, top, width, height = o.box
    x, y = o.column * CELL, o.row * CELL
    from_x, from_y = max(left - MARGIN, x), max(top - MARGIN, y)
    to_x, to_y = min(left + width + MARGIN, x + CELL), min(top + height + MARGIN, y + CELL)
    return from_x, from_y, to_x - from_x, to_y - from_y


def cut(picture: np.ndarray, box: Box) -> np.ndarray:
    left, top, width, height = box
    return picture[top : top + height, left : left + width]


def as_png(picture: np.ndarray) -> bytes:
    return png(picture, PALETTE)
