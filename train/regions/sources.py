"""Regions of pictures: boxes with feature vectors, from one of several sources (`SOURCES`).

A source turns the pictures of a split into a `RegionTable`, which has each distinct feature vector once. So features
are computed once for each distinct picture and looked up after that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from train.config import RegionSettings
from train.data.lookup import LookupTable
from train.regions.cells import cell_boxes, cell_regions, empty_rows
from train.regions.pictures import WHOLE, PictureSet
from train.regions.receptive_field import add_context


@dataclass(frozen=True)
class RegionTable:
    """Regions of N pictures and of a blank white one.

    table: (K, D) float16 or float32, distinct feature vectors, possibly memory-mapped. With `scene` and `grid`, row 0
    is a white cell, and the first `empty` rows are empty cells.
    index: (N + 1, R) int32, rows of the table; -1 for padding, which comes last. boxes: (N + 1, R, 4) float32: left,
    top, right, bottom as fractions of the picture. The last of the N + 1 rows is the blank picture.
    cells: (N + 1, R) int, the cell that each region shows, -1 for none; None if regions are no cells.
    context: add the position and the surroundings of regions to their features (`train.regions.receptive_field`).
    """

    table: np.ndarray
    index: np.ndarray
    boxes: np.ndarray
    context: bool = False
    empty: int = 1
    cells: np.ndarray | None = None

    BLANK = -1

    def __len__(self) -> int:
        return len(self.index) - 1

    @property
    def dimension(self) -> int:
        return int(self.table.shape[1])

    @functools.cached_property
    def device_table(self) -> LookupTable | None:
        """The table for `Lookup`; None where features are not its rows alone, or where it may be larger than memory."""
        if self.context or self.cells is None:
            return None
        table = torch.from_numpy(np.asarray(self.table))
        return LookupTable(table, torch.zeros(self.dimension))

    def places(self, rows: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows of the table (B, R'), -1 for padding, boxes (B, R', 4) float32 and mask (B, R') bool, False for padding.

        rows: (B,), or `BLANK`. R' is the largest number of regions in these rows. Padding is zeros.
        """
        index = self.index[np.asarray(rows, np.int64)]
        mask = index >= 0
        most = int(mask.sum(axis=1).max(initial=0))
        index, mask = index[:, :most], mask[:, :most]
        boxes = np.where(mask[..., None], self.boxes[np.asarray(rows, np.int64), :most], np.float32(0))
        return index, boxes, mask

    def take(self, rows: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As `places`, with features (B, R', D) float32 in place of rows of the table."""
        index, boxes, mask = self.places(rows)
        features = np.zeros((*index.shape, self.dimension), np.float32)
        features[mask] = self.table[index[mask]]
        if self.context:
            features = add_context(features, boxes, mask, index >= self.empty)
        return features, boxes, mask


def make_regions(settings: RegionSettings, pictures: PictureSet, takes_boxes: bool = True) -> RegionTable:
    """The regions of a split, for a model that takes boxes or not: without them, features hold the places of regions.

    A file's features stay as they are. Raises `ValueError` if the settings do not fit the pictures, or a file is
    damaged.
    """
    regions = SOURCES[settings.kind](settings, pictures)
    return replace(regions, context=not takes_boxes and settings.kind != "file")


# Sources ---------------------------------------------------------------------------------------------------------


def _scene(settings: RegionSettings, pictures: PictureSet) -> RegionTable:
    """The bounding boxes of the objects, row by row, then empty cells up to `number`."""
    occupied = pictures.grid > 0
    objects = occupied.sum(axis=1)
    number = int(objects.max(initial=1)) if settings.number == "exact" else int(settings.number)
    if (most := int(objects.max(initial=0))) > number:
        raise ValueError(f"regions.number={number}: a picture has {most} objects; give at least {most}, or exact")
    padding = np.zeros_like(occupied) if settings.number == "exact" else ~occupied
    order = np.argsort(np.where(occupied, 0, np.where(padding, 1, 2)), axis=1, kind="stable")[:, :number]
    boxes, index, table = cell_regions(pictures, occupied, centred=True)
    is_region = np.take_along_axis(occupied | padding, order, axis=1)
    index = np.where(is_region, np.take_along_axis(index, order, axis=1), -1)
    shown = np.where(is_region, order, -1)
    boxes = np.take_along_axis(boxes, order[..., None], axis=1)
    empty = ~is_region.any(axis=1)  # gets one white region, like the blank picture: attention needs at least one
    index[empty, 0], boxes[empty, 0] = 0, WHOLE
    blank = np.where(np.arange(order.shape[1]) == 0, 0, -1)[None]  # one white region
    blank_boxes = np.broadcast_to(np.array(WHOLE, np.float32), (1, order.shape[1], 4))
    index, boxes = np.concatenate([index, blank]).astype(np.int32), np.concatenate([boxes, blank_boxes])
    cells = np.concatenate([shown, np.full_like(blank, -1)])
    return RegionTable(table, index, boxes, empty=empty_rows(pictures.renderer), cells=cells)


def _grid(settings: RegionSettings, pictures: PictureSet) -> RegionTable:
    """One region for each cell, row by row."""
    cells = pictures.grid.shape[1]
    if settings.number not in ("exact", cells):
        raise ValueError(f"regions.number={settings.number}: regions.source=grid has {cells}, one for each cell")
    _, index, table = cell_regions(pictures, np.ones(pictures.grid.shape, bool))
    index = np.concatenate([index, np.zeros((1, cells), np.int32)])
    boxes = cell_boxes(pictures.rows, pictures.columns, pictures.area)
    boxes = np.broadcast_to(boxes, (len(index), cells, 4))
    order = np.broadcast_to(np.arange(cells), (len(index), cells))
    return RegionTable(table, index, boxes, empty=empty_rows(pictures.renderer), cells=order)


def _file(settings: RegionSettings, pictures: PictureSet) -> RegionTable:
    from train.regions.files import file_regions

    try:
        return RegionTable(*file_regions(Path(settings.source), pictures.ids, settings.number))
    except ValueError as error:
        raise ValueError(f"regions.source={error}") from None


RegionSource = Callable[[RegionSettings, PictureSet], RegionTable]
SOURCES: dict[str, RegionSource] = {"scene": _scene, "grid": _grid, "file": _file}
