"""Worlds, scenes and queries: the basic types of the project. Imports nothing else of it.

A scene is a grid in which each cell is empty or shows one *kind* of object (a size, a shape, a colour). One scene is
`Scene`, a readable set of objects; many scenes are rows of a `Batch`, where a cell holds a small number: 0 for empty,
else the number of its kind in the world.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

IN_DISTRIBUTION = ("train", "validation", "test_ind")
SPLITS = (*IN_DISTRIBUTION, "test_ood")

# Name -> (R, G, B). The paper's five first (appendix A), then what larger worlds may add.
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (220, 30, 38),
    "blue": (28, 86, 214),
    "green": (24, 150, 60),
    "yellow": (250, 212, 0),
    "orange": (255, 128, 0),
    "purple": (136, 46, 170),
    "brown": (124, 74, 38),
    "black": (20, 20, 20),
    "pink": (255, 140, 190),
    "grey": (138, 138, 138),
    "cyan": (0, 190, 214),
    "lime": (150, 224, 40),
}
# The paper's seven first (appendix A); the released generator's quantifiers also show the last two.
SHAPES = ("square", "circle", "triangle", "star", "hexagon", "octagon", "pentagon", "trapezium", "parallelogram")
SIZES = ("small", "medium", "large")


class World(BaseModel):
    """What a dataset draws its scenes from. The defaults are the paper's (appendix A): 5 x 7 objects on 6 x 6 cells."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    colours: tuple[str, ...] = ("red", "blue", "green", "yellow", "orange")
    shapes: tuple[str, ...] = ("square", "circle", "triangle", "star", "hexagon", "octagon", "pentagon")
    sizes: tuple[str, ...] = Field(
        ("medium",), description="small, medium, large; captions name the size where there are several"
    )
    columns: int = Field(6, ge=1, le=26, description="up to 26, because they are named A to Z")
    rows: int = Field(6, ge=1, le=99)

    @field_validator("colours", "shapes", "sizes")
    @classmethod
    def _names(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        valid: Collection[str] = {"colours": COLOURS, "shapes": SHAPES, "sizes": SIZES}[str(info.field_name)]
        if unknown := [name for name in names if name not in valid]:
            raise ValueError(f"{unknown[0]} is none of {', '.join(valid)}")
        if not names or len(set(names)) < len(names):
            raise ValueError(f"needs at least one name and each only once, not {list(names)}")
        return names

    @property
    def cells(self) -> int:
        return self.columns * self.rows

    @functools.cached_property
    def kinds(self) -> tuple[tuple[str, str, str], ...]:
        """(size, shape, colour) of each kind; kind number k is item k - 1."""
        return tuple((z, s, c) for z in self.sizes for s in self.shapes for c in self.colours)

    @functools.cached_property
    def number(self) -> dict[tuple[str, str, str], int]:
        """(size, shape, colour) -> kind number, counting from 1."""
        return {kind: i for i, kind in enumerate(self.kinds, 1)}

    @functools.cache  # noqa: B019 - worlds are few
    def matching(self, attribute: str) -> tuple[int, ...]:
        """Kind numbers that an attribute describes: a colour, a shape, or "colour shape"."""
        words = set(attribute.split())
        return tuple(i for i, kind in enumerate(self.kinds, 1) if words.issubset(kind))

    def attributes(self, query_by: str) -> list[str]:
        """The attributes that queries of this world name, by `shape`, `colour` or `both` ("red circle")."""
        if query_by == "shape":
            return list(self.shapes)
        if query_by == "colour":
            return list(self.colours)
        return [f"{colour} {shape}" for shape in self.shapes for colour in self.colours]


def column_name(column: int) -> str:
    return string.ascii_uppercase[column]


def row_name(row: int) -> str:
    return str(row + 1)


@dataclass(frozen=True)
class Object:
    """One object. `row` and `column` count from 0; `queried` says whether the query names it."""

    colour: str
    shape: str
    size: str
    row: int
    column: int
    queried: bool = False

    def matches(self, attribute: str) -> bool:
        """Whether an attribute ("red", "circle" or "red circle") describes the object."""
        return set(attribute.split()) <= {self.colour, self.shape}


Scene = tuple[Object, ...]


@dataclass(frozen=True)
class Query:
    """A symbolic statement: the name of a task, and arguments in the order of the query text."""

    task: str
    args: tuple[Any, ...]


def described(world: World, attributes: Sequence[str]) -> np.ndarray:
    """(attributes, kinds + 1) bool: whether each attribute describes each kind; kind 0, an empty cell, never."""
    table = np.zeros((len(attributes), len(world.kinds) + 1), bool)
    for row, attribute in zip(table, attributes, strict=True):
        row[list(world.matching(attribute))] = True
    return table


def objects_of(scene: Scene, attribute: str) -> list[Object]:
    return [o for o in scene if o.matches(attribute)]


def only_object(scene: Scene, attribute: str) -> Object:
    """The object that an attribute describes. Raises `ValueError` where there is none, or more than one."""
    objects = objects_of(scene, attribute)
    if len(objects) != 1:
        raise ValueError(f"the query names the {attribute}, but the scene has {len(objects)}")
    return objects[0]


@dataclass(frozen=True)
class Batch:
    """N examples as arrays, as the sampler draws them and the renderer reads them.

    grid: kind number of each cell, 0 for empty, (N, rows * columns), row by row.
    order: occupied cells in caption order, padded with -1, (N, most objects).
    query: index into `queries`, (N,). pair: index into `pairs`, (N,). answer: (N,) bool. start: index of row 0.
    """

    grid: np.ndarray
    order: np.ndarray
    query: np.ndarray
    pair: np.ndarray
    answer: np.ndarray
    queries: list[Query]
    pairs: list[tuple[str, ...]]
    start: int
