"""Regions of pictures: boxes with feature vectors, from one of several sources.

A source sees a split once and gives `RegionTable`: one table of distinct feature vectors, and for each example which
rows of it stand where. So features are computed once for each distinct picture content and looked up after that.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image as pillow

from train.cache import Block, cached
from train.config import RegionSettings as RegionSettings
from train.regions.receptive_field import in_context
from train.regions.recogniser import DIMENSION, features_of, weights_digest
from train.regions.scenes import PictureSet

WHOLE = (0.0, 0.0, 1.0, 1.0)  # the box of a whole picture
FAINTEST = 12  # of 255: what a lossy file may show where nothing is


@dataclass(frozen=True)
class RegionTable:
    """Regions of N pictures and of a blank white one.

    table: (K, D) float16 or float32 distinct feature vectors, perhaps memory-mapped; `scene` and `grid` have that of a
    white cell in row 0.
    index: (N + 1, R) int32 rows of the table, -1 for padding, which comes last. boxes: (N + 1, R, 4) float32: left,
    top, right, bottom as parts of the picture. The last of the N + 1, row -1, is the blank picture.
    context: whether features hold the place and the surroundings of a region, too (`train.regions.receptive_field`).
    """

    table: np.ndarray
    index: np.ndarray
    boxes: np.ndarray
    context: bool = False

    BLANK = -1

    def __len__(self) -> int:
        return len(self.index) - 1

    @property
    def dimension(self) -> int:
        return int(self.table.shape[1])

    def take(self, rows: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Features (B, R', D) float32, boxes (B, R', 4) float32 and mask (B, R') bool, False for padding.

        R' is the most regions that one of these rows has. A row may be `BLANK`. Padding is zeros.
        """
        index = self.index[np.asarray(rows, np.int64)]
        mask = index >= 0
        most = int(mask.sum(axis=1).max(initial=0))
        index, mask = index[:, :most], mask[:, :most]
        features = np.zeros((*index.shape, self.dimension), np.float32)
        features[mask] = self.table[index[mask]]
        boxes = np.where(mask[..., None], self.boxes[np.asarray(rows, np.int64), :most], np.float32(0))
        if self.context:
            features = in_context(features, boxes, mask, index > 0)
        return features, boxes, mask


# Sources ---------------------------------------------------------------------------------------------------------


def make_regions(settings: RegionSettings, scenes: PictureSet, cache: Path | None = None) -> RegionTable:
    """The regions of a split. cache: a folder for what took long to make, found again by the pictures' content.

    `regions.context=auto` is `none` here; what it is for a model, `RegionSettings.for_model` says. Raises `ValueError`
    where the settings do not fit the pictures or a file is damaged.
    """
    found = SOURCES[settings.source](settings, scenes, cache)
    return replace(found, context=settings.context == "receptive_field")


def _scene(settings: RegionSettings, scenes: PictureSet, cache: Path | None) -> RegionTable:
    """The objects' own boxes, row by row, then empty cells up to `number`."""
    occupied = scenes.grid > 0
    objects = occupied.sum(axis=1)
    number = int(objects.max(initial=1)) if settings.number == "exact" else int(settings.number)
    if (most := int(objects.max(initial=0))) > number:
        raise ValueError(f"regions.number={number}: a picture has {most} objects; give at least {most}, or exact")
    kept, noise = _found(settings, scenes.grid)
    padding = np.zeros_like(occupied) if settings.number == "exact" else ~occupied
    order = np.argsort(np.where(kept, 0, np.where(padding, 1, 2)), axis=1, kind="stable")[:, :number]
    boxes, index, table = _cells(scenes, occupied, cache)
    if noise is not None:
        boxes = np.where(occupied[..., None], _moved(boxes, noise * settings.jitter), boxes)
    used = np.take_along_axis(kept | padding, order, axis=1)
    index = np.where(used, np.take_along_axis(index, order, axis=1), -1)
    boxes = np.take_along_axis(boxes, order[..., None], axis=1)
    nothing = ~used.any(axis=1)  # as the blank picture has: attention needs something to look at
    index[nothing, 0], boxes[nothing, 0] = 0, WHOLE
    blank = np.zeros((1, order.shape[1]), np.int32)
    white = _cell_boxes(scenes.rows, scenes.columns)[None, : order.shape[1]]
    if settings.blank == "whole" or settings.number == "exact":
        blank[0, 1:], white = -1, np.broadcast_to(np.array(WHOLE, np.float32), (1, order.shape[1], 4))
    return RegionTable(table, np.concatenate([index, blank]).astype(np.int32), np.concatenate([boxes, white]))


def _grid(settings: RegionSettings, scenes: PictureSet, cache: Path | None) -> RegionTable:
    """One region for each cell, row by row."""
    cells = scenes.grid.shape[1]
    if settings.number not in ("exact", cells):
        raise ValueError(f"regions.number={settings.number}: regions.source=grid has {cells}, one for each cell")
    _, index, table = _cells(scenes, np.ones(scenes.grid.shape, bool), cache)
    index = np.concatenate([index, np.zeros((1, cells), np.int32)])
    boxes = _cell_boxes(scenes.rows, scenes.columns)
    return RegionTable(table, index, np.broadcast_to(boxes, (len(index), cells, 4)))


def _detector(settings: RegionSettings, scenes: PictureSet, cache: Path | None) -> RegionTable:
    from train.regions.detector import detected

    return RegionTable(*detected(str(settings.detector), settings.number, scenes, cache))


def _file(settings: RegionSettings, scenes: PictureSet, cache: Path | None) -> RegionTable:
    from train.regions.files import read_features

    try:
        return RegionTable(*read_features(Path(str(settings.file)), scenes.ids, settings.number, cache))
    except ValueError as error:
        raise ValueError(f"regions.file={error}") from None


Source = Callable[[RegionSettings, PictureSet, Path | None], RegionTable]
SOURCES: dict[str, Source] = {"scene": _scene, "grid": _grid, "detector": _detector, "file": _file}


# Cells -----------------------------------------------------------------------------------------------------------


def _cell_boxes(rows: int, columns: int) -> np.ndarray:
    """(rows * columns, 4) float32, row by row."""
    down, right = np.divmod(np.arange(rows * columns), columns)
    return np.stack([right / columns, down / rows, (right + 1) / columns, (down + 1) / rows], 1).astype(np.float32)


def _cells(scenes: PictureSet, wanted: np.ndarray, cache: Path | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes (N, cells, 4), rows of the table (N, cells) and the table of features.

    The box of an occupied cell is its object's, that of an empty one the cell.
    """
    if scenes.renderer is None:
        return _decoded_cells(scenes, wanted, cache)
    inside = np.array([tight(sprite > 0) for sprite in scenes.renderer.sprites])
    boxes = _within(_cell_boxes(scenes.rows, scenes.columns), inside[scenes.grid])
    return boxes, scenes.grid.astype(np.int32), features_of(scenes.renderer.rgb_sprites)


def tight(shown: np.ndarray) -> tuple[float, float, float, float]:
    """Left, top, right, bottom of what a mask (height, width) shows, as parts of it; all of it where it shows none."""
    if not shown.any():
        return WHOLE
    down, right = np.flatnonzero(shown.any(axis=1)), np.flatnonzero(shown.any(axis=0))
    height, width = shown.shape
    return right[0] / width, down[0] / height, (right[-1] + 1) / width, (down[-1] + 1) / height


def _within(cells: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Parts of a cell (..., cells, 4) as parts of the picture, for boxes (cells, 4) of the cells."""
    corner = np.concatenate([cells[:, :2]] * 2, axis=1)
    side = np.concatenate([cells[:, 2:] - cells[:, :2]] * 2, axis=1)
    return (corner + inside * side).astype(np.float32)


def _decoded_cells(
    scenes: PictureSet, wanted: np.ndarray, cache: Path | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `_cells` for pictures from files: a feature vector for each distinct crop of the wanted cells."""
    numbers: dict[bytes, int] = {}
    firsts: list[tuple[int, int]] = []  # row and cell in which each distinct crop was first seen
    index = np.zeros(wanted.shape, np.int32)
    inside = np.broadcast_to(np.array(WHOLE), (*wanted.shape, 4)).copy()
    everything = np.arange(len(scenes))
    for row, picture in enumerate(scenes.pictures(everything)):
        crops = _crops(picture, scenes)
        for cell in np.flatnonzero(wanted[row]):
            ink = 255 - crops[cell].min(axis=2)
            if (strongest := int(ink.max())) > FAINTEST:
                inside[row, cell] = tight(ink > strongest // 4)  # a lossy file has a halo around what is drawn
                digest = hashlib.blake2b(crops[cell].tobytes(), digest_size=16).digest()
                if digest not in numbers:
                    numbers[digest] = len(firsts) + 1
                    firsts.append((row, int(cell)))
                index[row, cell] = numbers[digest]

    def make(start: int) -> Iterator[Block]:
        if start == 0:
            yield {"features": features_of(np.full((1, 32, 32, 3), 255, np.uint8))}
        seen = firsts[max(start - 1, 0) :]
        rows = np.unique([row for row, _ in seen])
        cells = [[cell for _, cell in group] for _, group in itertools.groupby(seen, lambda first: first[0])]
        for some, picture in zip(cells, scenes.pictures(rows), strict=True):
            yield {"features": features_of(_crops(picture, scenes)[some])}

    content = hashlib.blake2b(b"".join(numbers) + weights_digest(), digest_size=16).hexdigest()
    columns: dict[str, tuple[tuple[int, ...], str]] = {"features": ((DIMENSION,), "<f2")}
    table = cached(cache, f"cells-{content}", len(firsts) + 1, columns, make, "recognising")["features"]
    return _within(_cell_boxes(scenes.rows, scenes.columns), inside), index, table


def _crops(picture: np.ndarray, scenes: PictureSet) -> np.ndarray:
    """The cells (rows * columns, height, width, 3) of a picture, which grows where they are not whole pixels."""
    rows, columns = scenes.rows, scenes.columns
    height, width = -(-picture.shape[0] // rows), -(-picture.shape[1] // columns)
    if picture.shape[:2] != (height * rows, width * columns):
        grown = pillow.fromarray(picture).resize((width * columns, height * rows), pillow.Resampling.BILINEAR)
        picture = np.asarray(grown)
    return picture.reshape(rows, height, columns, width, 3).swapaxes(1, 2).reshape(-1, height, width, 3)


# What a detector would miss --------------------------------------------------------------------------------------


def _found(settings: RegionSettings, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Which cells' objects are found (N, cells), and standard normal noise (N, cells, 4) where boxes have any.

    Each picture has random numbers of its own, from the seed and from what it shows.
    """
    kept = grid > 0
    if not settings.misses and not settings.jitter:
        return kept, None
    contents = np.ascontiguousarray(grid, "<i4")
    noise = np.empty((*grid.shape, 4), np.float32) if settings.jitter else None
    for row, content in enumerate(contents):
        digest = hashlib.blake2b(content.tobytes(), digest_size=16, key=settings.seed.to_bytes(8, "big"))
        random = np.random.Generator(np.random.Philox(key=int.from_bytes(digest.digest(), "big")))
        kept[row] &= random.random(len(content)) >= settings.misses
        if noise is not None:
            noise[row] = random.standard_normal((len(content), 4), np.float32)
    return kept, noise


def _moved(boxes: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Boxes (..., 4) whose edges move by parts of their width and height; they stay inside and the right way round."""
    side = boxes[..., 2:] - boxes[..., :2]
    moved = np.clip(boxes + by * np.concatenate([side, side], axis=-1), 0, 1)
    first, second = moved[..., :2], moved[..., 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=-1).astype(np.float32)
