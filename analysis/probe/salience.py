"""Two rules that look at a picture of ours and bind nothing: prefer the words of the largest, or most central, object.

A salience rule takes the words that only one of the two sentences says, and prefers the sentence whose word is shown by
the object with the most ink (or nearest to the centre). It never asks whether the words of a sentence belong to one
object. `from_scene` serves the layouts, which must give these rules nothing; `from_pixels` serves the baselines.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np
from PIL import Image

from analysis.probe.drawing import CANVAS, CELL, PALETTE, SIDES, WORLD, Box, Placed, ink, sprite
from analysis.probe.items import Unreadable
from analysis.probe.taxonomy import size_class
from render.image import LEVELS


def _packed(pixels: np.ndarray) -> np.ndarray:
    """One number for each pixel of (..., 3) uint8."""
    return pixels.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])


ENTRIES = np.argsort(_packed(PALETTE))
PACKED = _packed(PALETTE)[ENTRIES]
WORDS = frozenset((*WORLD.colours, *WORLD.shapes, *SIDES))  # that a sentence can say of one object


@dataclass(frozen=True)
class Shown:
    """An object of a picture. words: all that is true of it alone. ink: its pixels that are not white. area: of its
    box, in pixels. off_centre: squared distance of the centres of box and picture, in half pixels."""

    words: frozenset[str]
    ink: int
    area: int
    off_centre: int


SALIENCE: dict[str, Callable[[Shown], int]] = {
    "most_ink": lambda o: o.ink,
    "largest_box": lambda o: o.area,
    "most_central": lambda o: -o.off_centre,
}
"""How salient an object is, larger for more."""


def preferred(objects: Collection[Shown], one: Collection[str], other: Collection[str], rule: str) -> int:
    """The sentence that a rule of `SALIENCE` prefers, by the words of both: 1 for the first, -1 for the second, 0 for
    neither. A word that nothing shows has less salience than any that something shows."""
    measure = SALIENCE[rule]
    first, second = (
        max((measure(o) for o in objects if not o.words.isdisjoint(only)), default=None)
        for only in (set(one) - set(other), set(other) - set(one))
    )
    if first is None or second is None:
        return (first is not None) - (second is not None)
    return (first > second) - (first < second)


def from_scene(scene: Iterable[Placed]) -> list[Shown]:
    """The objects of a scene, as its picture shows them."""
    return [_shown(o.colour, o.shape, o.box, ink(o.shape, o.side), CANVAS, CANVAS) for o in scene]


def _shown(colour: str, shape: str, box: Box, pixels: int, width: int, height: int) -> Shown:
    x, y, w, h = box
    words = frozenset((colour, shape, size_class(box, width, height)))
    return Shown(words, pixels, w * h, (2 * x + w - width) ** 2 + (2 * y + h - height) ** 2)


# From pixels ---------------------------------------------------------------------------------------------------------


def from_pixels(picture: Image.Image) -> list[Shown]:
    """The objects of a picture of a scene, or of a crop to one object. Raises `Unreadable` for any other picture."""
    pixels = np.asarray(picture.convert("RGB"))
    height, width = pixels.shape[:2]
    whole = (height, width) == (CANVAS, CANVAS)
    corners = [(y, x) for y in range(0, CANVAS, CELL) for x in range(0, CANVAS, CELL)] if whole else [(0, 0)]
    found = []
    for top, left in corners:  # each object is alone in its cell, and a crop shows one object
        cell = pixels[top : top + CELL, left : left + CELL]
        inked = (cell != 255).any(axis=2)
        if not inked.any():
            continue
        rows, columns = np.flatnonzero(inked.any(axis=1)), np.flatnonzero(inked.any(axis=0))
        part = cell[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        colour, shape = _recognised(part)
        box = (left + int(columns[0]), top + int(rows[0]), part.shape[1], part.shape[0])
        found.append(_shown(colour, shape, box, int(inked.sum()), width, height))
    return found


@functools.cache
def _shapes() -> dict[tuple[tuple[int, ...], bytes], str]:
    """The shape of each sprite, by the sprite's size and pixels."""
    sprites = ((shape, sprite(shape, side)) for shape in WORLD.shapes for sides in SIDES.values() for side in sides)
    return {(one.shape, one.tobytes()): shape for shape, one in sprites}


def _recognised(part: np.ndarray) -> tuple[str, str]:
    """The colour and the shape of the object that fills a part of a picture, (H, W, 3) uint8."""
    entries = ENTRIES[np.searchsorted(PACKED, _packed(part)).clip(max=len(PACKED) - 1)]  # (H, W), of the palette
    levels = np.where(entries > 0, (entries - 1) % LEVELS + 1, 0).astype(np.uint8)
    colours = set(((entries[entries > 0] - 1) // LEVELS).tolist())
    shape = _shapes().get((levels.shape, levels.tobytes()))
    if shape is None or len(colours) != 1 or (PALETTE[entries] != part).any():
        raise Unreadable("shows something that our scenes do not have")
    return WORLD.colours[colours.pop()], shape
