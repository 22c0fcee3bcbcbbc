"""Salience rules for pictures of our scenes: prefer words of the largest, or most central, object.

A salience rule compares the words that occur in only one of the two sentences, and prefers the sentence whose word is
shown by the object with most ink (or nearest to the centre). It does not know which words belong to one object.
`from_scene` is for the generation of scene pairs, which balances these rules; `from_pixels` is for the baselines.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from analysis.probe.corpora.items import Unreadable
from analysis.probe.scenes.drawing import CANVAS, CELL, SIDES, WORLD, Box, PlacedObject, ink, sprite
from travlr.corpora.taxonomy import size_class
from travlr.scene import COLOURS

WORDS = frozenset((*WORLD.colours, *WORLD.shapes, *SIDES))  # attributes of single objects


@dataclass(frozen=True)
class VisibleObject:
    """An object in a picture. words: its attributes. ink: number of pixels that are not white. area: of its box, in
    pixels. off_centre: squared distance between the centres of box and picture, in half pixels."""

    words: frozenset[str]
    ink: int
    area: int
    off_centre: int


SALIENCE: dict[str, Callable[[VisibleObject], int]] = {
    "most_ink": lambda o: o.ink,
    "largest_box": lambda o: o.area,
    "most_central": lambda o: -o.off_centre,
}
"""Measures of salience, larger for more salient objects."""


def preferred(rule: str, objects: Collection[VisibleObject], one: Collection[str], other: Collection[str]) -> int:
    """Which sentence a rule of `SALIENCE` prefers, by the words of both: 1 the first, -1 the second, 0 neither. A word
    that no object shows is less salient than any other."""
    measure = SALIENCE[rule]
    first, second = (
        max((measure(o) for o in objects if not o.words.isdisjoint(only)), default=None)
        for only in (set(one) - set(other), set(other) - set(one))
    )
    if first is None or second is None:
        return (first is not None) - (second is not None)
    return (first > second) - (first < second)


def from_scene(scene: Iterable[PlacedObject]) -> list[VisibleObject]:
    """The objects of a scene as they appear in its picture."""
    return [_visible(o.colour, o.shape, o.box, ink(o.shape, o.side), CANVAS, CANVAS) for o in scene]


def _visible(colour: str, shape: str, box: Box, pixels: int, width: int, height: int) -> VisibleObject:
    x, y, w, h = box
    words = frozenset((colour, shape, size_class(box, width, height)))
    return VisibleObject(words, pixels, w * h, (2 * x + w - width) ** 2 + (2 * y + h - height) ** 2)


# From pixels ---------------------------------------------------------------------------------------------------------


def from_pixels(picture: Image.Image) -> list[VisibleObject]:
    """The objects of a picture of a scene, or of a crop to one object, RGB. Raises `Unreadable` for another picture."""
    inked = np.asarray(picture.getchannel("B")) < 255  # only white has a blue value of 255
    height, width = inked.shape
    corners = [(0, 0)]  # a crop shows one object
    if (height, width) == (CANVAS, CANVAS):  # each object is alone in its cell
        cells = inked.reshape(WORLD.rows, CELL, WORLD.columns, CELL).any(axis=(1, 3))
        corners = [(CELL * column, CELL * row) for row, column in np.argwhere(cells).tolist()]
    objects = []
    for left, top in corners:
        cell = inked[top : top + CELL, left : left + CELL]
        columns, rows = np.flatnonzero(cell.any(axis=0)).tolist(), np.flatnonzero(cell.any(axis=1)).tolist()
        if not rows:
            raise Unreadable("shows no object")
        box = (left + columns[0], top + rows[0], columns[-1] - columns[0] + 1, rows[-1] - rows[0] + 1)
        pixels = int(np.count_nonzero(cell))
        shape = _shapes().get((*box[2:], pixels))
        colour = _colours().get(picture.getpixel((box[0] + box[2] // 2, box[1] + box[3] // 2)))
        if shape is None or colour is None:
            raise Unreadable("shows an object that our scenes do not have")
        objects.append(_visible(colour, shape, box, pixels, width, height))
    return objects


@functools.cache
def _shapes() -> dict[tuple[int, int, int], str]:
    """Shapes by the width, height and ink of their sprites, which identify them."""
    sprites = ((shape, sprite(shape, side)) for shape in WORLD.shapes for sides in SIDES.values() for side in sides)
    return {(one.shape[1], one.shape[0], int(np.count_nonzero(one))): shape for shape, one in sprites}


@functools.cache
def _colours() -> dict[Any, str]:
    """Colours by RGB, which the centre of every shape has exactly."""
    return {COLOURS[colour]: colour for colour in WORLD.colours}
