"""The cells of pictures as regions: box and feature vector of each cell.

Shapes: N pictures, K distinct feature vectors, D numbers of a feature vector, cells = rows * columns, row by row.
"""

from __future__ import annotations

import functools
import hashlib

import numpy as np
from PIL import Image as pillow
from tqdm import tqdm  # type: ignore[import-untyped]

from render.pictures.renderer import Renderer
from train.regions.pictures import WHOLE, Box, PictureSet
from train.regions.recogniser import features_of

MAX_NOISE = 12  # of 255: darkness that a lossy file may add to an empty cell


def cell_boxes(rows: int, columns: int, area: Box = WHOLE) -> np.ndarray:
    """(cells, 4) float32. area: the part of the picture that the cells fill."""
    down, right = np.divmod(np.arange(rows * columns), columns)
    boxes = np.stack([right / columns, down / rows, (right + 1) / columns, (down + 1) / rows], 1)
    corner, side = np.array([*area[:2]] * 2), np.array([area[2] - area[0], area[3] - area[1]] * 2)
    return (corner + boxes * side).astype(np.float32)


def cell_regions(
    pictures: PictureSet, mask: np.ndarray, centred: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes (N, cells, 4), rows of the feature table (N, cells), and the table (K, D), with a white cell in row 0.

    The box of an occupied cell is the bounding box of its object, that of an empty one is the cell. The first
    `empty_rows` rows of the table are empty cells. mask: (N, cells) bool; in decoded pictures, cells outside it count
    as empty. centred: if the style of rendered pictures moves objects within their cells, compute the features from
    crops with the object in the middle, as of a box around it.
    """
    if pictures.renderer is None:
        return _decoded_cell_regions(pictures, mask)
    tiles = pictures.renderer.tiles(pictures.grid)
    inside, table = _sprite_regions(pictures.renderer, centred)
    boxes = _to_picture(cell_boxes(pictures.rows, pictures.columns, pictures.area), inside[tiles])
    return boxes, (tiles + len(table) - len(inside)).astype(np.int32), table


def empty_rows(renderer: Renderer | None) -> int:
    """Number of empty cells at the start of a feature table: a white one, then those of other backgrounds."""
    return 1 if renderer is None or _is_white(renderer) else 1 + renderer.backgrounds


@functools.lru_cache(maxsize=4)
def _sprite_regions(renderer: Renderer, centred: bool) -> tuple[np.ndarray, np.ndarray]:
    """Box of the object in each sprite (T, 4), as fractions of the cell, and the features of all sprites, after those
    of a white cell if no sprite is one."""
    inside = np.array([bounding_box(sprite >= renderer.grounds) for sprite in renderer.sprites])
    features = features_of(_centred_crops(renderer.rgb_sprites, inside) if centred else renderer.rgb_sprites)
    if _is_white(renderer):
        return inside, features
    white = np.full((1, renderer.cell, renderer.cell, 3), 255, np.uint8)
    return inside, np.concatenate([features_of(white), features])


def _centred_crops(crops: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Crops (T, cell, cell, 3) with the boxes `inside` (T, 4) moved to the middle by whole pixels."""
    cell = crops.shape[1]
    steps = np.trunc((1 - inside[:, :2] - inside[:, 2:]) * cell / 2).astype(int).tolist()  # right and down
    result = crops.copy()
    for number, (right, down) in enumerate(steps):
        if right or down:
            result[number] = np.roll(crops[number], (down, right), (0, 1))
    return result


def _is_white(renderer: Renderer) -> bool:
    """Whether the empty cells of a style are white."""
    return renderer.backgrounds == 1 and bool((renderer.rgb_sprites[0] == 255).all())


def bounding_box(mask: np.ndarray) -> Box:
    """Left, top, right, bottom of the True part of a mask (height, width), 0 to 1; `WHOLE` if all is False."""
    if not mask.any():
        return WHOLE
    down, right = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    height, width = mask.shape
    return right[0] / width, down[0] / height, (right[-1] + 1) / width, (down[-1] + 1) / height


def _to_picture(cells: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Boxes (..., cells, 4) from fractions of their cells to fractions of the picture. cells: (cells, 4)."""
    corner = np.concatenate([cells[:, :2]] * 2, axis=1)
    side = np.concatenate([cells[:, 2:] - cells[:, :2]] * 2, axis=1)
    return (corner + inside * side).astype(np.float32)


def _decoded_cell_regions(pictures: PictureSet, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`cell_regions` of pictures from files: a feature vector for each distinct crop of the cells in `mask`."""
    decoded = pictures.decoded() if pictures.decoded else ()
    numbers: dict[bytes, int] = {}  # row of the table of each distinct crop, by digest
    table = [features_of(np.full((1, 32, 32, 3), 255, np.uint8)).astype(np.float16)]
    index = np.zeros(mask.shape, np.int32)
    inside = np.broadcast_to(np.array(WHOLE), (*mask.shape, 4)).copy()
    for row, picture in enumerate(tqdm(decoded, "recognising", len(pictures), disable=None, leave=False)):
        crops = _crops(picture, pictures)
        new: list[np.ndarray] = []
        for cell in np.flatnonzero(mask[row]):
            ink = 255 - crops[cell].min(axis=2)
            if (darkest := int(ink.max())) > MAX_NOISE:
                inside[row, cell] = bounding_box(ink > darkest // 4)  # a lossy file has a halo around a shape
                digest = hashlib.blake2b(crops[cell].tobytes(), digest_size=16).digest()
                if digest not in numbers:
                    numbers[digest] = len(numbers) + 1
                    new.append(crops[cell])
                index[row, cell] = numbers[digest]
        if new:
            table.append(features_of(np.stack(new)).astype(np.float16))
    return _to_picture(cell_boxes(pictures.rows, pictures.columns), inside), index, np.concatenate(table)


def _crops(picture: np.ndarray, pictures: PictureSet) -> np.ndarray:
    """The cells of a picture, (cells, height, width, 3). It is enlarged if a cell is not a whole number of pixels."""
    rows, columns = pictures.rows, pictures.columns
    height, width = -(-picture.shape[0] // rows), -(-picture.shape[1] // columns)
    if picture.shape[:2] != (height * rows, width * columns):
        enlarged = pillow.fromarray(picture).resize((width * columns, height * rows), pillow.Resampling.BILINEAR)
        picture = np.asarray(enlarged)
    return picture.reshape(rows, height, columns, width, 3).swapaxes(1, 2).reshape(-1, height, width, 3)
