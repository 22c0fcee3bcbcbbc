"""Worlds, scenes and queries: the words every other part speaks. Imports nothing else of this project.

A scene is a grid in which each cell is empty or shows one *kind* of object (a size, a shape, a colour). One scene is
`Scene`, a readable set of objects; many scenes are rows of a `Batch`, where a cell holds a small number: 0 for empty,
else the number of its kind in the world.
"""

from __future__ import annotations

import dataclasses
import functools
import string
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

TASKS = ("spatiality", "cardinality", "quantifiers", "comparison")
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

# The paper's Table 1 by regions of the two queried sets X and Y. A quantifier and its complement share the first part
# of their pairs; the second part of the *vacant* one (all, none, only) is `spare`, that of the other is `decides`,
# which is empty exactly when the vacant quantifier is true.
REGIONS = ("both", "first only", "second only", "neither")  # X and Y, X without Y, Y without X, the rest
QUANTIFIER_FAMILIES: dict[tuple[str, str], dict[str, int]] = {
    ("all", "not all"): {"shared": 0, "decides": 1, "spare": 2},
    ("none", "some"): {"shared": 1, "decides": 0, "spare": 2},
    ("only", "not only"): {"shared": 0, "decides": 2, "spare": 1},
}
QUANTIFIERS = tuple(quantifier for family in QUANTIFIER_FAMILIES for quantifier in family)
RELATIONS = {  # relation -> (axis, sign of second minus first coordinate when it is true)
    "to the left of": ("horizontal", 1),
    "to the right of": ("horizontal", -1),
    "above": ("vertical", 1),
    "below": ("vertical", -1),
}
COMPARISONS = {"more": 1, "fewer": -1}  # comparison -> sign of first minus second number when it is true


def quantifier_regions(quantifier: str) -> tuple[int, int]:
    """The two regions (indices into `REGIONS`) that Table 1 of the paper pairs for a quantifier, in its order."""
    for (vacant, other), family in QUANTIFIER_FAMILIES.items():
        if quantifier in (vacant, other):
            return family["shared"], family["spare" if quantifier == vacant else "decides"]
    raise ValueError(f"unknown quantifier {quantifier!r}: choose one of {', '.join(QUANTIFIERS)}")


def complement(quantifier: str) -> str:
    """The quantifier that is true exactly when this one is false."""
    for vacant, other in QUANTIFIER_FAMILIES:
        if quantifier in (vacant, other):
            return other if quantifier == vacant else vacant
    raise ValueError(f"unknown quantifier {quantifier!r}: choose one of {', '.join(QUANTIFIERS)}")


def check_types(settings: Any, group: str = "") -> None:
    """Raise `ValueError`, naming the setting, where a field of a dataclass has a value that its annotation rules out.

    group: what the names of the fields begin with, such as `world.`. A list may stand for a tuple, a tuple for a list,
    and a whole number for any number.
    """
    settings_class: Any = type(settings)
    for name, kind in _annotations(settings_class).items():
        value = getattr(settings, name)
        if not _is_of(value, kind):
            raise ValueError(f"{group}{name}={value!r}: must be {_in_words(kind)}")


@functools.cache
def _annotations(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


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


def _in_words(kind: Any) -> str:
    if get_origin(kind) in (list, tuple):
        return f"a list, each item {_in_words(get_args(kind)[0])}"
    if get_origin(kind) is UnionType:
        return " or ".join(map(_in_words, get_args(kind)))
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", NoneType: "None"}
    return words.get(kind) or f"of type {getattr(kind, '__name__', kind)}"


@dataclass(frozen=True)
class World:
    """What a dataset draws its scenes from. The defaults are the paper's (appendix A): 5 x 7 objects on 6 x 6 cells.

    Raises `ValueError`, naming the setting, for an unknown or repeated name or a grid that cannot be captioned.
    """

    colours: tuple[str, ...] = ("red", "blue", "green", "yellow", "orange")
    shapes: tuple[str, ...] = ("square", "circle", "triangle", "star", "hexagon", "octagon", "pentagon")
    sizes: tuple[str, ...] = ("medium",)
    columns: int = 6
    rows: int = 6

    def __post_init__(self) -> None:
        check_types(self, "world.")
        for name, known in (("colours", COLOURS), ("shapes", SHAPES), ("sizes", SIZES)):
            values = tuple(getattr(self, name))
            object.__setattr__(self, name, values)
            if unknown := [value for value in values if value not in known]:
                raise ValueError(f"world.{name}: {unknown[0]!r} is unknown; choose from {', '.join(known)}")
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

    @functools.cached_property
    def _kind_words(self) -> list[set[str]]:
        return [set(kind) for kind in self.kinds]

    @functools.cache  # noqa: B019 - worlds are few
    def matching(self, attribute: str) -> tuple[int, ...]:
        """Kind numbers that an attribute describes: a colour, a shape, or "colour shape"."""
        return tuple(i for i, kind in enumerate(self._kind_words, 1) if kind.issuperset(attribute.split()))

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
    """A symbolic statement: a task and its arguments in the order of the query text.

    spatiality (attribute, relation, attribute) · cardinality (number, attribute) · quantifiers (quantifier, attribute,
    attribute) · comparison (more|fewer, attribute, attribute).
    """

    task: str
    args: tuple[Any, ...]


def objects_of(scene: Scene, attribute: str) -> list[Object]:
    return [o for o in scene if o.matches(attribute)]


def region_counts(scene: Scene, first: str, second: str) -> tuple[int, int, int, int]:
    """Numbers of objects in each of `REGIONS`."""
    counts = [0, 0, 0, 0]
    for o in scene:
        counts[3 - 2 * o.matches(first) - o.matches(second)] += 1
    return counts[0], counts[1], counts[2], counts[3]


def answer(scene: Scene, query: Query) -> bool:
    """Truth of a query in a scene. Raises `ValueError` where a spatial query names no object, or several."""
    args = query.args
    if query.task == "spatiality":
        axis, sign = RELATIONS[args[1]]
        first, second = _one(scene, args[0]), _one(scene, args[2])
        gap = second.column - first.column if axis == "horizontal" else second.row - first.row
        return gap * sign > 0
    if query.task == "cardinality":
        return len(objects_of(scene, args[1])) == args[0]
    if query.task == "comparison":
        return (len(objects_of(scene, args[1])) - len(objects_of(scene, args[2]))) * COMPARISONS[args[0]] > 0
    counts = region_counts(scene, args[1], args[2])
    for (vacant, other), family in QUANTIFIER_FAMILIES.items():
        if args[0] in (vacant, other):
            return (counts[family["decides"]] == 0) == (args[0] == vacant)
    raise ValueError(f"unknown quantifier {args[0]!r}")


def pair(scene: Scene, query: Query) -> tuple[str, ...]:
    """What the scene shows along the task's dimension: the dimension and two values, as captions write them."""
    args = query.args
    if query.task == "spatiality":
        first, second = _one(scene, args[0]), _one(scene, args[2])
        if RELATIONS[args[1]][0] == "horizontal":
            return "horizontal", column_name(first.column), column_name(second.column)
        return "vertical", row_name(first.row), row_name(second.row)
    if query.task == "cardinality":
        return args[1], str(len(objects_of(scene, args[1])))
    if query.task == "comparison":
        return "comparison", str(len(objects_of(scene, args[1]))), str(len(objects_of(scene, args[2])))
    true = args[0] if answer(scene, query) else complement(args[0])
    counts = region_counts(scene, args[1], args[2])
    a, b = quantifier_regions(true)
    return true, str(counts[a]), str(counts[b])


def is_queried(o: Object, query: Query) -> bool:
    """Whether the query names an object: by either attribute."""
    return any(o.matches(argument) for argument in query.args if isinstance(argument, str) and _names_objects(argument))


def _names_objects(argument: str) -> bool:
    return all(word in COLOURS or word in SHAPES for word in argument.split())


def _one(scene: Scene, attribute: str) -> Object:
    found = objects_of(scene, attribute)
    if len(found) != 1:
        raise ValueError(f"the query names the {attribute}, but the scene has {len(found)}")
    return found[0]


@dataclass(frozen=True)
class Batch:
    """N examples as arrays: what the sampler makes and the renderer reads.

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
