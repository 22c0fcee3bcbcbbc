"""The style `textured`: a pale pattern in place of white, one of several, which a hash of the scene chooses."""

from __future__ import annotations

import numpy as np

from render.pictures.look import Look, Spans
from render.pictures.plain import centred_shapes
from render.shapes import LEVELS, Colour, blend
from travlr.scene import COLOURS, World

# Pattern -> its two colours: both are pale, so that yellow stands out from them, and none is white.
PATTERNS: dict[str, tuple[Colour, Colour]] = {
    "stripes": ((238, 228, 206), (222, 208, 180)),
    "dots": ((218, 228, 240), (192, 206, 226)),
    "checks": ((222, 236, 220), (200, 220, 198)),
    "waves": ((240, 224, 228), (224, 200, 208)),
}
REPEATS = 4  # of a pattern along the side of a cell: a whole number, so that it goes on from cell to cell


def textured(world: World, cell: int, spans: Spans) -> Look:
    tints = [tint for pair in PATTERNS.values() for tint in pair]
    entries = [list(tint) for tint in tints]
    full, partial = {}, {}
    for colour in world.colours:
        full[colour] = len(entries)
        entries.append(list(COLOURS[colour]))
        for tint, ground in enumerate(tints):
            for level in range(1, LEVELS):
                partial[colour, tint, level] = len(entries)
                entries.append(blend(COLOURS[colour], ground, level))
    coverages, sprites, canvases = centred_shapes(world, cell, spans), [], []
    for number, name in enumerate(PATTERNS):
        empty = (2 * number + pattern(name, cell)).astype(np.uint8)
        canvases.append(np.tile(empty, (world.rows, world.columns)))
        for coverage, (_, _, colour) in zip(coverages, world.kinds, strict=True):
            sprite = np.where(coverage == LEVELS, full[colour], empty)
            for tint in (2 * number, 2 * number + 1):  # of this pattern
                for level in range(1, LEVELS):
                    sprite[(coverage == level) & (empty == tint)] = partial[colour, tint, level]
            sprites.append(sprite.astype(np.uint8))
    stacked = np.stack(sprites).reshape(len(PATTERNS), 1, len(world.kinds), cell, cell)
    return Look(np.array(entries, np.uint8), len(tints), np.stack(canvases), stacked)


def pattern(name: str, cell: int) -> np.ndarray:
    """The colour of each pixel of a cell: 0 for the first of the pattern, 1 for the second, (cell, cell)."""
    place = 2 * np.arange(cell) + 1  # the middle of each pixel, in half pixels
    across, down = np.meshgrid(place * REPEATS, place * REPEATS)
    x, y = across % (2 * cell), down % (2 * cell)  # from 0 to 2 * cell within each repeat
    if name == "stripes":
        second = (across + down) % (2 * cell) < cell
    elif name == "dots":
        second = 4 * ((x - cell) ** 2 + (y - cell) ** 2) < cell**2
    elif name == "checks":
        second = (x < cell) ^ (y < cell)
    else:  # waves: triangles instead of a sine, whose last bit could differ between machines
        second = (y + np.abs(x - cell)) % (2 * cell) < cell
    return second.astype(np.uint8)
