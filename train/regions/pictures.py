"""The pictures of a split, for region sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyarrow import compute

from render.pictures.renderer import Renderer
from travlr.scene import World

Box = tuple[float, float, float, float]  # left, top, right, bottom as fractions of a picture
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True)
class PictureSet:
    """The N pictures of a split, either rendered (`renderer`) or from files (`decoded`).

    ids: (N,). grid: (N, rows * columns), kind number of the object in each cell, row by row; 0 for an empty cell. With
    `decoded`, only 0 or not matters.
    decoded: gives the pictures, (height, width, 3) uint8, from the first at every call.
    """

    ids: Sequence[str]
    grid: np.ndarray
    rows: int
    columns: int
    renderer: Renderer | None = None
    decoded: Callable[[], Iterable[np.ndarray]] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def area(self) -> Box:
        """The part of each picture that the cells fill."""
        return self.renderer.area if self.renderer is not None else WHOLE


def grid_of(objects: pa.ChunkedArray, world: World) -> np.ndarray:
    """The `objects` column of a dataset as the `grid` of a `PictureSet`, (N, rows * columns) int16.

    Raises `ValueError` for an object that the world does not have, or outside its grid.
    """
    grid = np.zeros((len(objects), world.cells), np.int16)
    column = objects.combine_chunks()
    parts = column.flatten()
    example = np.repeat(np.arange(len(column)), np.diff(column.offsets.to_numpy()))
    down, right = (parts.field(name).to_numpy() for name in ("row", "column"))
    inside = (down >= 0) & (down < world.rows) & (right >= 0) & (right < world.columns)
    if not inside.all():
        raise ValueError(f"objects: one lies outside the world's {world.rows} rows and {world.columns} columns")
    codes = np.zeros(len(parts), np.int64)
    for name, values in (("size", world.sizes), ("shape", world.shapes), ("colour", world.colours)):
        numbers = compute.index_in(parts.field(name), pa.array(values))
        if numbers.null_count:
            unknown = parts.field(name)[compute.index(compute.is_null(numbers), True).as_py()]
            raise ValueError(f"objects: the {name} {str(unknown)!r} is not of the world ({', '.join(values)})")
        codes = codes * len(values) + numbers.to_numpy()
    grid[example, down * world.columns + right] = codes + 1
    return grid
