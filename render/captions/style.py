"""The interface of a style of captions, and the words that styles share."""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

from travlr.scene import COLOURS, SHAPES, SIZES, Batch, Object, Scene, World, column_name, row_name

Parsed = tuple[int, int, Scene]  # columns, rows, objects

PREFACE = r"Columns, left to right, are ordered A to ([A-Z])\. Rows, top to bottom, are ordered 1 to ([1-9][0-9]?)\."


class CaptionStyle(ABC):
    """Captions of one world in one style.

    ordered: whether captions show the order of the objects; otherwise `parse` gives them row by row.
    pieces: texts that together have every word of the style, but for those of objects, columns and rows.
    """

    ordered = True
    pieces: tuple[str, ...] = ()

    def __init__(self, world: World) -> None:
        self.world = world
        self.names_size = len(world.sizes) > 1

    def words(self, size: str, shape: str, colour: str) -> str:
        """`red circle`; with the size only where the world has several."""
        return f"{size} {colour} {shape}" if self.names_size else f"{colour} {shape}"

    @abstractmethod
    def captions(self, batch: Batch) -> list[str]:
        """One caption for each example, objects in the order of `batch.order`."""

    @abstractmethod
    def caption(self, scene: Scene) -> str:
        """The caption of one scene, objects in its order. They need not be of this world, but in its grid."""

    @staticmethod
    @abstractmethod
    def parse(caption: str, size: str) -> Parsed:
        """Columns, rows and objects of a caption. size: of objects without a size in the caption.

        Raises `ValueError` for anything that this style cannot have written.
        """


class ListStyle(CaptionStyle):
    """Captions that list their objects, each with its cell. The text of every (kind, cell) is made in advance."""

    @abstractmethod
    def entry(self, size: str, shape: str, colour: str, row: int, column: int) -> str:
        """One object."""

    @abstractmethod
    def assemble(self, entries: list[str]) -> str:
        """The caption of these objects."""

    def captions(self, batch: Batch) -> list[str]:
        occupied = batch.order >= 0
        kinds = np.take_along_axis(batch.grid, np.maximum(batch.order, 0), axis=1)
        entries = self._entries[kinds[occupied], batch.order[occupied]].tolist()
        captions, start = [], 0
        for count in occupied.sum(axis=1).tolist():
            captions.append(self.assemble(entries[start : start + count]))
            start += count
        return captions

    def caption(self, scene: Scene) -> str:
        return self.assemble([self.entry(o.size, o.shape, o.colour, o.row, o.column) for o in scene])

    @functools.cached_property
    def _entries(self) -> np.ndarray:
        """Every object in every cell, (1 + kinds, cells) of str."""
        world = self.world
        cells = [divmod(cell, world.columns) for cell in range(world.cells)]
        return np.array([[""] * world.cells] + [[self.entry(*k, *cell) for cell in cells] for k in world.kinds], object)


def preface(world: World) -> str:
    """The sentence that explains the coordinates."""
    return (
        f"Columns, left to right, are ordered A to {column_name(world.columns - 1)}. "
        f"Rows, top to bottom, are ordered 1 to {row_name(world.rows - 1)}."
    )


def object_of(size: str, colour: Any, shape: Any, column: Any, row: Any) -> Object:
    """An object from its words. row: a number from 1. Raises `ValueError` for words of no object."""
    words = (size, colour, shape)
    if not all(word in valid for word, valid in zip(words, (SIZES, COLOURS, SHAPES), strict=True)):
        raise ValueError(f"not an object: {short(' '.join(map(str, words)))}")
    if not (isinstance(column, str) and re.fullmatch("[A-Z]", column) and isinstance(row, int) and row > 0):
        raise ValueError(f"not a cell: {short(f'{column} {row}')}")
    return Object(colour, shape, size, row - 1, ord(column) - ord("A"))


def check_written(style: type[CaptionStyle], caption: str, parsed: Parsed, names_size: bool) -> Parsed:
    """The parsed scene itself. Raises `ValueError` where a style writes it in another way.

    names_size: whether it writes sizes.
    """
    columns, rows, scene = parsed
    if not (1 <= columns <= 26 and 1 <= rows <= 99):
        raise ValueError(f"not a grid of letters and numbers: {columns} columns, {rows} rows")
    check_places(columns, rows, scene)
    if _writer(style, columns, rows, names_size).caption(scene) != caption:
        refuse(caption)
    return parsed


def check_places(columns: int, rows: int, scene: Iterable[Object]) -> None:
    """Raise `ValueError` where an object is outside the grid, or two are in one cell."""
    cells: set[tuple[int, int]] = set()
    for o in scene:
        where = f"{o.colour} {o.shape} at {column_name(o.column)} {row_name(o.row)}"
        if o.column >= columns or o.row >= rows:
            raise ValueError(f"outside the grid: {where}")
        if (o.row, o.column) in cells:
            raise ValueError(f"two objects in one cell: {where}")
        cells.add((o.row, o.column))


@functools.lru_cache(maxsize=64)
def _writer(style: type[CaptionStyle], columns: int, rows: int, names_size: bool) -> CaptionStyle:
    return style(World(columns=columns, rows=rows, sizes=SIZES if names_size else SIZES[:1]))


def refuse(caption: str) -> NoReturn:
    raise ValueError(f"not a caption: {short(caption)}")


def short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
