"""Worlds, scenes and queries: the basic types of the project. Imports nothing else of it.

A scene is a grid in which each cell is empty or shows one *kind* of object (a size, a shape, a colour). One scene is
`Scene`, a readable set of objects; many scenes are rows of a `Batch`, where a cell holds a small number: 0 for empty,
else the number of its kind in the world.
"""

from __future__ import annotations

import dataclasses
import functools
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

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


def check_types(settings: Any, group: str = "") -> None:
    """Raise `ValueError`, naming the setting, where a field of a dataclass has a value that its annotation rules out.

    group: what the names of the fields begin with, such as `world.`. A list may stand for a tuple, a tuple for a list,
    and a whole number for any number.
    """
    settings_class: Any = type(settings)
    for name, kind in field_types(settings_class).items():
        value = getattr(settings, name)
        if not _is_of(value, kind):
            raise ValueError(f"{group}{name}={value!r}: must be {in_words(kind)}")


@functools.cache
def field_types(kind: Any) -> dict[str, Any]:
    """The types of the fields of a dataclass."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def dataclass_from(kind: Any, values: Mapping[str, Any], skip_unknown: bool = False) -> Any:
    """A dataclass from the values of its fields; for a field that is itself a dataclass, from a mapping of its values.

    skip_unknown: leave out names that are not fields. Raises `TypeError` for such names otherwise.
    """
    types = field_types(kind)
    arguments = {}
    for name, value in values.items():
        if dataclasses.is_dataclass(types.get(name)):
            value = dataclass_from(types[name], value, skip_unknown)
        if name in types or not skip_unknown:
            arguments[name] = value
    return kind(**arguments)


def _is_of(value: Any, kind: Any) -> bool:
    parts = get_args(kind)
    if get_origin(kind) is UnionType:
        return any(_is_of(value, part) for part in parts)
    if get_origin(kind) in (list, tuple):
        return isinstance(value, (list, tuple)) and all(_is_of(item, parts[0]) for item in value)
    if get_origin(kind) is dict:
        return isinstance(value, dict) and all(_is_of(k, parts[0]) and _is_of(v, parts[1]) for k, v in value.items())
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def in_words(kind: Any) -> str:
    """The values of a type in the words of the command line, such as `a list of whole numbers, such as [1,2]`."""
    if get_origin(kind) in (list, tuple):
        return f"a list of {_items(kind)}, such as {_example(kind)}"
    if get_origin(kind) is dict:
        return "named values, given as SETTING.NAME=VALUE"
    if get_origin(kind) is UnionType:
        return " or ".join(map(in_words, get_args(kind)))
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", NoneType: "null"}
    return words.get(kind) or f"of type {getattr(kind, '__name__', kind)}"


def _items(kind: Any) -> str:
    inner = get_args(kind)[0]
    return {str: "words", int: "whole numbers", float: "numbers"}.get(inner) or f"lists of {_items(inner)}"


def _example(kind: Any) -> str:
    inner = get_args(kind)[0]
    items = {str: "a,b", int: "1,2", float: "0.5,1.5"}.get(inner) or ",".join([_example(inner)] * 2)
    return f"[{items}]"


@dataclass(frozen=True)
class World:
    """What a dataset draws its scenes from. The defaults are the paper's (appendix A): 5 x 7 objects on 6 x 6 cells.

    Raises `ValueError`, naming the setting, for an unknown or repeated name or a grid that cannot be captioned.
    """

    colours: tuple[str, ...] = ("red", "blue", "green", "yellow", "orange")
    shapes: tuple[str, ...] = ("square", "circle", "triangle", "star", "hexagon", "octagon", "pentagon")
    sizes: tuple[str, ...] = field(
        default=("medium",), metadata={"help": "small, medium, large; captions name the size where there are several"}
    )
    columns: int = field(default=6, metadata={"help": "up to 26"})
    rows: int = 6

    def __post_init__(self) -> None:
        check_types(self, "world.")
        for name, valid in (("colours", COLOURS), ("shapes", SHAPES), ("sizes", SIZES)):
            values = tuple(getattr(self, name))
            object.__setattr__(self, name, values)
            if unknown := [value for value in values if value not in valid]:
                raise ValueError(f"world.{name}={unknown[0]}: choose from {', '.join(valid)}")
            if not values or len(set(values)) < len(values):
                raise ValueError(f"world.{name}: needs at least one name and each only once, not {list(values)}")
        if not 1 <= self.columns <= 26:
            raise ValueError(f"world.columns={self.columns}: must be 1 to 26, because columns are named A to Z")
        if not 1 <= self.rows <= 99:
            raise ValueError(f"world.rows={self.rows}: must be 1 to 99")

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


def objects_of(scene: Scene, attribute: str) -> list[Object]:
    return [o for o in scene if o.matches(attribute)]


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
