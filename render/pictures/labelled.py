"""The style `labelled`: as grid, with the names of the columns above and those of the rows on the left."""

from __future__ import annotations

import dataclasses

import numpy as np

from render.pictures.grid import LINE, lined_cell
from render.pictures.look import Look, Spans
from render.pictures.plain import centred
from render.shapes import WHITE, Colour
from travlr.scene import World, column_name, row_name

INK: Colour = (40, 40, 40)
INK_ENTRY = 2
GLYPH_HEIGHT = 7  # dots of a letter or digit
SMALLEST_MARGIN = 12  # pixels; "10" needs 11

# Letter or digit: its columns of dots from the left; the lowest bit is the upper dot.
DOTS = """
A:7e1111117e B:7f49494936 C:3e41414122 D:7f4141413e E:7f49494941 F:7f09090901 G:3e4149497a H:7f0808087f I:00417f4100
J:2040413f01 K:7f08142241 L:7f40404040 M:7f020c027f N:7f0408107f O:3e4141413e P:7f09090906 Q:3e4151215e R:7f09192946
S:4649494931 T:01017f0101 U:3f4040403f V:1f2040201f W:3f4038403f X:6314081463 Y:0708700807 Z:6151494543 0:3e5149453e
1:00427f4000 2:4261514946 3:2141454b31 4:1814127f10 5:2745454539 6:3c4a494930 7:0171090503 8:3649494936 9:064949291e
"""
GLYPHS = {glyph[0]: bytes.fromhex(glyph[2:]) for glyph in DOTS.split()}


def labelled(world: World, cell: int, spans: Spans) -> Look:
    look, edge = centred(world, cell, spans, lined_cell(cell), (WHITE, LINE, INK)), margin(cell)
    canvas = np.pad(look.canvases[0], ((edge, 0), (edge, 0)))  # with entry 0, white
    columns, rows = list(map(column_name, range(world.columns))), list(map(row_name, range(world.rows)))
    room = min(edge, cell)  # narrow cells leave less room than the margin
    longest = dots(max([*columns, *rows], key=len)).shape[1]
    scale = max(1, room * 3 // 4 // max(longest, GLYPH_HEIGHT))
    for column, name in enumerate(columns):
        write(canvas, name, scale, (edge // 2, edge + column * cell + cell // 2))
    for row, name in enumerate(rows):
        write(canvas, name, scale, (edge + row * cell + cell // 2, edge // 2))
    return dataclasses.replace(look, canvases=canvas[None], corner=(edge, edge))


def margin(cell: int) -> int:
    """Pixels of the margin above and on the left: half a cell, an even number."""
    return max(SMALLEST_MARGIN, cell // 4 * 2)


def dots(text: str) -> np.ndarray:
    """A text as dots, (GLYPH_HEIGHT, dots across) bool."""
    columns = np.frombuffer(b"\0".join(GLYPHS[character] for character in text), np.uint8)
    return (columns[None, :] >> np.arange(GLYPH_HEIGHT)[:, None] & 1).astype(bool)


def write(canvas: np.ndarray, text: str, scale: int, centre: tuple[int, int]) -> None:
    """Write a text into a canvas. scale: pixels of a dot. centre: row and column of its middle."""
    pixels = dots(text).repeat(scale, axis=0).repeat(scale, axis=1)
    top, left = (max(0, middle - length // 2) for middle, length in zip(centre, pixels.shape, strict=True))
    place = canvas[top : top + pixels.shape[0], left : left + pixels.shape[1]]
    place[pixels[: place.shape[0], : place.shape[1]]] = INK_ENTRY
