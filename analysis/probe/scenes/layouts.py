"""Pairs of scenes, each with the sentence that is true of it and false of the other: what is asked of scenes.

The two scenes of a pair have the same objects at the same places but for what is tested, and the two sentences are
exchanged between them. So nothing that reads the sentences alone can be right more often than wrong. Grades of false
sentences: N1 says a word that nothing in the picture shows, N2 words that are all shown but do not belong together,
N3 the very words of the true sentence in another order.

Nor does it help to know which words are shown large or in the middle. The tempting object is of the target's classes of
size and of place (but where size or place is what is asked), and what tells the two sentences apart, such as `circle`
from `star`, stays where it is and as large as it is: the two objects exchange the other attribute, so that red circle
and blue star become blue circle and red star. A rule of `analysis.probe.scenes.salience` therefore prefers the same
sentence in both pictures: it has half of the items right and no pair. This cannot be had of N1: a word that nothing
shows is less salient than any other, so that whoever knows which words are shown is always right.

A pair is a function of (seed, unit, index); the first pairs of a longer corpus are those of a shorter one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import TypeVar

from analysis.probe.corpora.taxonomy import LOCATIONS, location_class
from analysis.probe.scenes.drawing import CANVAS, CELL, JITTER, SIDES, WORLD, Placed, ink
from analysis.probe.scenes.salience import SALIENCE, from_scene, preferred
from analysis.probe.scenes.statements import Form, content_words
from travlr.streams import stream_key, words
from travlr.tasks.spatiality import RELATIONS

T = TypeVar("T")
FORMAT_VERSION = 3  # rises when the same config gives other bytes; a part of every random choice
ATTEMPTS = 1000  # at a pair; of colours, large objects need a second one half of the time
ALIKE = {"circle", "octagon", "hexagon"}  # as small pictures of these are, so that one never stands against another
MOST_FILLERS = 3
WORDS = 160  # random words for a pair; the most that one can use


class Draws:
    """Random choices for one pair."""

    def __init__(self, key: int, index: int) -> None:
        self._words = iter(words(key, index, index + 1, WORDS)[0].tolist())

    def below(self, number: int) -> int:
        return int(next(self._words) % number)  # 64 bits: no number is more likely than another by 1 in 10^17

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]


CELLS: dict[str, list[tuple[int, int]]] = {location: [] for location in LOCATIONS}
for _row in range(WORLD.rows):
    for _column in range(WORLD.columns):
        CELLS[location_class((_column * CELL, _row * CELL, CELL, CELL), CANVAS, CANVAS)].append((_row, _column))


@dataclass(frozen=True)
class Side:
    """A scene and its sentences. subject: the number of the object that the true sentence is about, other: of the one
    that makes the false one tempting."""

    scene: tuple[Placed, ...]
    positive: Form
    negative: Form
    subject: int = 0
    other: int = 1


@dataclass(frozen=True)
class Pair:
    """Two sides with their sentences exchanged. labels: of both sides. template: which of `TEMPLATES`."""

    sides: tuple[Side, Side]
    template: int = 0
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Unit:
    """Pairs of one kind. axis, source: as in `Item`. weight: how many pairs it gets, relative to others."""

    axis: str
    source: str
    grade: str
    make: Callable[[int, Draws], Pair]
    weight: int = 1

    def pair(self, seed: int, index: int) -> Pair:
        """Raises `ValueError` where a sentence's truth is not as it should be, or no scene is balanced, which never
        happens."""
        for attempt in range(ATTEMPTS):
            key = stream_key("probe", FORMAT_VERSION, seed, self.axis, self.source, attempt)
            made = self.make(index, Draws(key, index))
            for side in made.sides:
                if not side.positive.holds(side.scene) or side.negative.holds(side.scene):
                    raise ValueError(f"{self.axis}/{self.source}, pair {index}: wrong: {side}")
            if self.grade == "N1" or is_balanced(made):
                return made
        raise ValueError(f"{self.axis}/{self.source}, pair {index}: a salience rule tells its pictures apart")


def is_balanced(pair: Pair) -> bool:
    """Whether each salience rule prefers the same sentence in both pictures, or neither in both."""
    sentences = [content_words(form) for form in (pair.sides[0].positive, pair.sides[0].negative)]
    shown = [from_scene(side.scene) for side in pair.sides]
    return all(len({preferred(rule, objects, *sentences) for objects in shown}) == 1 for rule in SALIENCE)


# Scenes --------------------------------------------------------------------------------------------------------------


class Board:
    """Places that are still free, and objects put on them: at any location, and of any size, equally often."""

    def __init__(self, draws: Draws) -> None:
        self._draws, self._taken = draws, set[tuple[int, int]]()

    def put(
        self,
        colour: str,
        shape: str,
        location: str | None = None,
        size: str | None = None,
        cell: tuple[int, int] | None = None,
    ) -> Placed:
        draws = self._draws
        if cell is None:
            free = [c for c in CELLS[location or draws.pick(LOCATIONS)] if c not in self._taken]
            cell = draws.pick(free or [c for c in CELLS["mid"] if c not in self._taken])
        self._taken.add(cell)
        side = draws.pick(SIDES[size or draws.pick(tuple(SIDES))])
        dx, dy = draws.below(2 * JITTER + 1) - JITTER, draws.below(2 * JITTER + 1) - JITTER
        return Placed(colour, shape, *cell, side, dx, dy)

    def fillers(self, colours: Sequence[str], shapes: Sequence[str], size: str | None = None) -> list[Placed]:
        draws = self._draws
        number = draws.below(MOST_FILLERS + 1)
        return [self.put(draws.pick(colours), draws.pick(shapes), size=size) for _ in range(number)]


def _without(choices: Sequence[str], *taken: str) -> list[str]:
    return [choice for choice in choices if choice not in taken]


def unlike(*shapes: str) -> list[str]:
    """Shapes that nobody takes for one of these."""
    return [s for s in WORLD.shapes if not any(s == taken or {s, taken} <= ALIKE for taken in shapes)]


def _shapes(draws: Draws) -> tuple[str, str]:
    """Two shapes that nobody takes for each other."""
    first = draws.pick(WORLD.shapes)
    return first, draws.pick(unlike(first))


def _two(choices: Sequence[T], draws: Draws) -> tuple[T, T]:
    first = draws.pick(choices)
    return first, draws.pick([choice for choice in choices if choice != first])


def _exchanged(one: Placed, other: Placed, attribute: str) -> list[Placed]:
    """Both objects, each with the other's colour or shape."""
    ours, theirs = getattr(one, attribute), getattr(other, attribute)
    return [replace(one, **{attribute: theirs}), replace(other, **{attribute: ours})]


def _mirrored(
    one: list[Placed], other: list[Placed], true: Form, false: Form, index: int, subject: int = 0, **labels: str
) -> Pair:
    """subject: the object that the second scene's true sentence is about; the first scene's is about object 0."""
    sides = Side(tuple(one), true, false), Side(tuple(other), false, true, subject, 1 - subject)
    return Pair(sides, index % 2, labels)


def _larger(colour: str, board: Board, draws: Draws, shapes: Sequence[str], two: Sequence[Placed]) -> list[Placed]:
    """An object of a colour that has more ink than either of two has, in its own shape or the other's; none where none
    of these shapes has: a large square leaves no room for more.

    Two objects that exchange their shapes exchange ink, too: a star has a third of a square's. So the colour with most
    ink would be another in the second picture, and tell it from the first, were it not for this third object.
    """
    most = max(ink(shape, o.side) for o in two for shape in {one.shape for one in two})
    sides = [side for of_class in SIDES.values() for side in of_class]
    larger = [(shape, side) for shape in shapes for side in sides if ink(shape, side) > most]
    if not larger:
        return []
    shape, side = draws.pick(larger)
    return [replace(board.put(colour, shape), side=side)]


# VL-CheckList --------------------------------------------------------------------------------------------------------


def _object(location: str | None, size: str | None, absent: bool, index: int, draws: Draws) -> Pair:
    """A red circle or a red star? With the star's shape and the circle's colour elsewhere in the picture, or absent."""
    location, size = location or LOCATIONS[index % 3], size or tuple(SIDES)[index % 3]
    board = Board(draws)
    shape, other = _shapes(draws)
    colour, else_colour = _two(WORLD.colours, draws)
    rest = unlike(shape, other)
    target = board.put(colour, shape, location, size)
    lure = board.put(else_colour, draws.pick(rest) if absent else other, location, size)
    fillers = [board.put(colour, draws.pick(rest)), *board.fillers(WORLD.colours, rest)]
    changed = [replace(target, shape=other), lure] if absent else _exchanged(target, lure, "colour")
    true, false = (Form("exists", (f"{colour} {s}",)) for s in (shape, other))
    one, two = [target, lure, *fillers], [*changed, *fillers]
    return _mirrored(one, two, true, false, index, not absent, location=location, size=size)


def _colour(absent: bool, index: int, draws: Draws) -> Pair:
    """Is the circle red or blue? With something blue elsewhere in the picture, or nothing."""
    location, size = LOCATIONS[index % 3], tuple(SIDES)[index // 3 % 3]
    board = Board(draws)
    shape, else_shape = _shapes(draws)
    colour, other = _two(WORLD.colours, draws)
    rest = _without(WORLD.colours, colour, other)
    target = board.put(colour, shape, location, size)
    lure = board.put(draws.pick(rest) if absent else other, else_shape, location, size)
    fillers = board.fillers(rest, unlike(shape))
    changed = [replace(target, colour=other), lure]
    if not absent:
        changed = _exchanged(target, lure, "shape")
        fillers += _larger(draws.pick((colour, other)), board, draws, unlike(shape), [target, lure])
    true, false = (Form("is", (shape, c)) for c in (colour, other))
    one, two = [target, lure, *fillers], [*changed, *fillers]
    return _mirrored(one, two, true, false, index, not absent, location=location, size=size)


def _size(absent: bool, index: int, draws: Draws) -> Pair:
    """Is the circle small or large? With something of the other size and its colour in the picture, or nothing.

    Of the extreme classes only, and all else is medium: nobody can dispute either.
    """
    location = LOCATIONS[index % 3]
    board = Board(draws)
    shape, else_shape = _shapes(draws)
    colour = draws.pick(WORLD.colours)
    target = board.put(colour, shape, location, "small")
    lure = board.put(colour, else_shape, location, "medium" if absent else "large")
    fillers = board.fillers(WORLD.colours, unlike(shape), "medium")
    grown = replace(target, side=draws.pick(SIDES["large"]))
    changed = [grown, lure] if absent else _exchanged(target, lure, "shape")
    true, false = (Form("is", (shape, s)) for s in ("small", "large"))
    one, two = [target, lure, *fillers], [*changed, *fillers]
    return _mirrored(one, two, true, false, index, not absent, location=location)


# Places of a row or column, in order, of which the second is nearer to the middle than the others.
LINES = [
    places
    for places in combinations(range(WORLD.rows), 3)
    if all(abs(2 * places[1] - WORLD.rows + 1) < abs(2 * place - WORLD.rows + 1) for place in places[::2])
]


def _spatial(swap: bool, index: int, draws: Draws) -> Pair:
    """Is the red circle above the blue star, or below it; or (swap) is the star above the circle?

    Both stand in one row or column, so that no other relation is as good an answer. In the second picture one of them
    stands on the other side of the other, which is the more central one in both pictures: a rule that names the more
    central object first says the same of both.
    """
    board = Board(draws)
    axis = ("horizontal", "vertical")[index // 2 % 2]
    relation, opposite = _two([r for r, (its, _) in RELATIONS.items() if its == axis], draws)
    objects = list(zip(_two(WORLD.colours, draws), _shapes(draws), strict=True))
    mover, line, (before, middle, after) = draws.below(2), draws.below(WORLD.rows), draws.pick(LINES)
    if (RELATIONS[relation][1] < 0) != (mover == 1):  # the mover is first to the right of the other, or below it
        before, after = after, before
    cells = [(line, place) if axis == "horizontal" else (place, line) for place in (before, middle, after)]
    moving, still = board.put(*objects[mover], cell=cells[0]), board.put(*objects[1 - mover], cell=cells[1])
    moved = replace(board.put(*objects[mover], cell=cells[2]), side=moving.side)
    fillers = board.fillers(WORLD.colours, unlike(moving.shape, still.shape))
    scenes = [[*([o, still] if mover == 0 else [still, o]), *fillers] for o in (moving, moved)]
    one, other = (" ".join(words) for words in objects)
    true = Form("stands", (one, relation, other))
    false = Form("stands", (other, relation, one) if swap else (one, opposite, other))
    return _mirrored(scenes[0], scenes[1], true, false, index, dimension=axis)


def _checklist() -> tuple[Unit, ...]:
    """In the order of the paper's tables; at one axis the hard sentences come first."""
    units = []
    for size in reversed(SIDES):
        units += _graded(f"Object/Size/{size}", partial(_object, None, size))
    for location in LOCATIONS:
        units += _graded(f"Object/Location/{location}", partial(_object, location, None))
    units += _graded("Attribute/color", _colour, 2)
    units += _graded("Attribute/size", _size, 2)
    units.append(Unit("Relation/spatial", "grid", "N2", partial(_spatial, False), 2))
    units.append(Unit("Relation/spatial", "grid_swap", "N3", partial(_spatial, True), 2))
    return tuple(units)


def _graded(axis: str, make: Callable[[bool, int, Draws], Pair], weight: int = 1) -> list[Unit]:
    return [
        Unit(axis, "grid", "N2", partial(make, False), weight),
        Unit(axis, "grid_absent", "N1", partial(make, True), weight),
    ]


# Predicates and nouns ------------------------------------------------------------------------------------------------


def _bound(noun: bool, index: int, draws: Draws) -> Pair:
    """A red circle and a blue square: is a circle red, or blue; or (noun) is a circle red, or a square?"""
    board = Board(draws)
    location, size = LOCATIONS[index % 3], tuple(SIDES)[index // 3 % 3]
    (shape, other), (colour, else_colour) = _shapes(draws), _two(WORLD.colours, draws)
    target, lure = board.put(colour, shape, location, size), board.put(else_colour, other, location, size)
    fillers = board.fillers(WORLD.colours, unlike(shape, other))
    if not noun:
        fillers += _larger(draws.pick((colour, else_colour)), board, draws, unlike(shape), [target, lure])
    changed = _exchanged(target, lure, "colour" if noun else "shape")
    true, false = Form("binds", (shape, colour)), Form("binds", (other, colour) if noun else (shape, else_colour))
    sides = Side((target, lure, *fillers), true, false), Side((*changed, *fillers), false, true, 1, 0)
    return Pair(sides, 0, {"location": location, "size": size})


UNITS: dict[str, tuple[Unit, ...]] = {
    "checklist": _checklist(),
    "predicate_noun": (
        Unit("predicate", "", "N2", partial(_bound, False), 743),  # as many pairs as the published set has
        Unit("noun", "", "N2", partial(_bound, True), 549),
    ),
}
