"""Whether the picture of a row shows the objects of the row."""

from __future__ import annotations

import functools
import io
from typing import Any

import numpy as np

from render.image import make_renderer
from render.pictures.renderer import Renderer
from travlr.config import Config, Image
from travlr.scene import World
from travlr.tasks.base import Cells

ObjectRow = tuple[str, str, str, int, int]  # colour, shape, size, row, column

WHITE, INK = 236, 0.04  # a cell holds an object where more than INK of it is darker; JPEG noise is less, shapes more


def renderer_of(config: Config) -> Renderer:
    return _renderer(config.style.image, config.world, config.image)


@functools.lru_cache(maxsize=1)
def _renderer(style: str, world: World, image: Image) -> Renderer:
    return make_renderer(style, world, image.cell, {size: getattr(image, size) for size in world.sizes})


def picture_problem(data: bytes, objects: list[ObjectRow], world: World, config: Config | None) -> str:
    """The first difference between a picture file and the objects of its row; empty where there is none.

    With a config every pixel is compared with the sprites. Without one the way of drawing is unknown, so that only
    empty and occupied cells are compared.
    """
    from PIL import Image as pillow

    try:
        picture = pillow.open(io.BytesIO(data), formats=("PNG", "JPEG"))
        if picture.width * picture.height > 1 << 26:
            return f"a picture of {picture.width} x {picture.height} pixels"
        picture.load()
    except Exception as error:  # Pillow raises many kinds for damaged files
        return f"not a readable picture ({type(error).__name__})"
    if not all(0 <= y < world.rows and 0 <= x < world.columns for *_, y, x in objects):
        return "an object lies outside the grid"
    if config is None:
        occupied = {(row, column) for *_, row, column in objects}
        cells = inked_cells(np.asarray(picture.convert("RGB")), world.columns, world.rows) ^ occupied
    else:
        renderer = renderer_of(config)
        if picture.size != (renderer.width, renderer.height):
            return f"{picture.width} x {picture.height} pixels, not {renderer.width} x {renderer.height}"
        grid = np.zeros((world.rows, world.columns), np.intp)
        for colour, shape, size, y, x in objects:
            grid[y, x] = world.number.get((size, shape, colour), 0)
        pixels, sprites, canvas = comparable(renderer, picture)
        top, left = renderer.top, renderer.left
        if (top or left) and not (
            np.array_equal(pixels[:top], canvas[:top]) and np.array_equal(pixels[:, :left], canvas[:, :left])
        ):
            return "differs in the margin"
        differs = renderer.cells_in(pixels) != sprites[renderer.tiles(grid)[0]]
        cells = _cells(differs.reshape(len(differs), -1).any(axis=1).reshape(grid.shape))
    return f"differs at {chr(65 + min(cells)[1])} {min(cells)[0] + 1}" if cells else ""


def comparable(renderer: Renderer, picture: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pixels of a picture, and the sprites and a canvas of the renderer to compare them with.

    They are entries of the palette, a third of the bytes, where the picture has the renderer's; otherwise RGB.
    """
    palette = renderer.palette.ravel().tolist()
    if picture.mode == "P" and picture.getpalette()[: len(palette)] == palette:
        return np.asarray(picture), renderer.sprites, renderer.canvases[0]
    return np.asarray(picture.convert("RGB")), renderer.rgb_sprites, renderer.rgb_canvases[0]


def inked_cells(picture: np.ndarray, columns: int, rows: int) -> Cells:
    """Cells of a picture (height, width, 3) that are not empty."""
    dark = picture < WHITE
    ink = (dark[..., 0] | dark[..., 1] | dark[..., 2]).astype(np.int64)  # twice as fast as `any` over channels
    tops, lefts = (np.arange(n) * length // n for n, length in zip((rows, columns), ink.shape, strict=True))
    share = np.add.reduceat(np.add.reduceat(ink, tops, axis=0), lefts, axis=1) * rows * columns / ink.size
    return _cells(share > INK)


def _cells(mask: np.ndarray) -> Cells:
    rows, columns = np.nonzero(mask)
    return set(zip(rows.tolist(), columns.tolist(), strict=True))
