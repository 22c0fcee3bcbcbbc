"""What a style draws in advance: empty pictures, and cells with an object."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from render.shapes import LEVELS
from travlr.scene import World

Spans = dict[str, float]  # size -> part of the cell that an object spans


@dataclass(frozen=True)
class Look:
    """Everything that the pictures of a world consist of: B backgrounds, V variants of each of K kinds of objects.

    palette: (entries, 3) uint8; the first `grounds` entries are never those of an object.
    canvases: (B, height, width) uint8, entries of the palette: pictures without objects, whose cells all look alike.
    sprites: (B, V, K, cell, cell) uint8: cells with an object.
    corner: pixels from the top and from the left of the picture to the first cell.
    """

    palette: np.ndarray
    grounds: int
    canvases: np.ndarray
    sprites: np.ndarray
    corner: tuple[int, int] = (0, 0)


Draw = Callable[[World, int, Spans], Look]  # world, pixels of a cell, spans


def cells_on(canvas_cell: np.ndarray, shares: Iterable[np.ndarray], firsts: Iterable[int]) -> np.ndarray:
    """Objects on one cell of a canvas, (K, cell, cell) uint8.

    shares: coverage of each kind. firsts: entry of the palette for the weakest strength of its colour.
    """
    pairs = zip(shares, firsts, strict=True)
    return np.stack([np.where(share > 0, share + first - 1, canvas_cell) for share, first in pairs]).astype(np.uint8)


def first_entries(world: World, grounds: int) -> list[int]:
    """For each kind of a world: the entry of the palette for the weakest strength of its colour."""
    first = {colour: grounds + LEVELS * i for i, colour in enumerate(world.colours)}
    return [first[colour] for _, _, colour in world.kinds]
