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


def cells_on(world: World, empty: np.ndarray, coverages: Iterable[np.ndarray], grounds: int) -> np.ndarray:
    """Each kind of a world on an empty cell, (K, cell, cell) uint8.

    coverages: coverage of each kind. grounds: entries of the palette before the strengths of the world's colours.
    """
    first = {colour: grounds + LEVELS * i for i, colour in enumerate(world.colours)}
    pairs = zip(coverages, world.kinds, strict=True)
    cells = [np.where(coverage > 0, coverage + first[colour] - 1, empty) for coverage, (_, _, colour) in pairs]
    return np.stack(cells).astype(np.uint8)
