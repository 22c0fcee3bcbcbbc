"""Pairs of scenes; each scene makes one of two sentences true and the other false.

The scenes of a pair differ only in the tested property, and share their two sentences, so a rule that reads the
sentences alone gets half of the items right. Grades of false sentences: N1 has a word that nothing in the picture
shows; N2 has words that are all shown but do not belong together; N3 has the words of the true sentence in another
order.

Salience does not help either. The distractor (the object that makes the false sentence tempting) has the classes of
size and place of the target, unless these are tested, and the attribute that distinguishes the sentences, such as
`circle` and `star`, keeps its place and size: the two objects exchange their other attribute, so that red circle and
blue star become blue circle and red star. A rule of `analysis.probe.scenes.salience` prefers the same sentence in both
pictures: it gets half of the items right and no pair. N1 is an exception: a word that nothing shows is less salient
than any other, so a rule that knows which words are shown is always right.

A pair is a function of (seed, kind, index), so a longer corpus begins with the pairs of a shorter one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import TypeVar

from analysis.probe.scenes.drawing import CANVAS, CELL, JITTER, SIDES, WORLD, PlacedObject, ink
from analysis.probe.scenes.salience import SALIENCE, from_scene, preferred
from analysis.probe.scenes.statements import Statement, content_words
from travlr.corpora.taxonomy import LOCATIONS, location_class
from travlr.sampling.streams import stream_key, words
from travlr.tasks.spatiality import RELATIONS

T = TypeVar("T")
FORMAT_VERSION = 3  # increases when the same config gives other bytes; a part of every random key
ATTEMPTS = 1000  # per pair; colours of large objects need a second one half of the time
ALIKE = {"circle", "octagon", "hexagon"}  # look alike when small, so they are never contrasted
MAX_FILLERS = 3
WORDS = 160  # random words per pair, as many as one can use


class RandomChoices:
    """Random choices for one pair."""

    def __init__(self, key: int, index: int) -> None:
        self._words = iter(words(key, index, index + 1, WORDS)[0].tolist())

    def below(self, number: int) -> int:
        return int(next(self._words) % number)  # of 64 bits, so the bias is below 1e-17

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]


CELLS: dict[str, list[tuple[int, int]]] = {location: [] for location in LOCATIONS}
for _row in range(WORLD.rows):
    for _column in range(WORLD.columns):
        CELLS[location_class((_column * CELL, _row * CELL, CELL, CELL), CANVAS, CANVAS)].append((_row, _column))


@dataclass(frozen=True)
class PairMember:
    """A scene and its sentences. Its first two objects are the target of the true sentence, at the index `subject`, and
    the distractor."""

    scene: tuple[PlacedObject, ...]
    positive: Statement
    negative: Statement
    subject: int = 0


@dataclass(frozen=True)
class ScenePair:
    """Two scenes with exchanged sentences. labels: of both items. template: index in `TEMPLATES`."""

    sides: tuple[PairMember, PairMember]
    template: int = 0
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PairKind:
    """A kind of pairs. axis, source: as in `Item`. make: (index, random choices) -> pair. weight: relative number of
    pairs."""

    axis: str
    source: str
    grade: str
    make: Callable[[int, RandomChoices], ScenePair]
    weight: int = 1

    def pair(self, seed: int, index: int) -> ScenePair:
        """Generate a pair. Raises `ValueError` for an error in this module: a wrong truth value, or no balanced
        scene."""
        for attempt in range(ATTEMPTS):
            key = stream_key("probe", FORMAT_VERSION, seed, self.axis, self.source, attempt)
            pair = self.make(index, RandomChoices(key, index))
            for side in pair.sides:
                if not side.positive.holds(side.scene) or side.negative.holds(side.scene):
                    raise ValueError(f"{self.axis}/{self.source}, pair {index}: wrong: {side}")
            if self.grade == "N1" or is_balanced(pair):
                return pair
        raise ValueError(f"{self.axis}/{self.source}, pair {index}: a salience rule tells its pictures apart")


def is_balanced(pair: ScenePair) -> bool:
    """Whether each salience rule prefers the same sentence in both pictures, or neither in both."""
    sentences = [content_words(form) for form in (pair.sides[0].positive, pair.sides[0].negative)]
    pictures = [from_scene(side.scene) for side in pair.sides]
    return all(len({preferred(rule, objects, *sentences) for objects in pictures}) == 1 for rule in SALIENCE)


# Scenes --------------------------------------------------------------------------------------------------------------


class Board:
    """Places objects on free cells; by default locations and sizes are uniformly distributed."""

    def __init__(self, choices: RandomChoices) -> None:
        self._choices, self._occupied = choices, set[tuple[int, int]]()

    def put(
        self,
        colour: str,
        shape: str,
        location: str | None = None,
        size: str | None = None,
        cell: tuple[int, int] | None = None,
    ) -> PlacedObject:
        choices = self._choices
        if cell is None:
            free = [c for c in CELLS[location or choices.pick(LOCATIONS)] if c not in self._occupied]
            cell = choices.pick(free or [c for c in CELLS["mid"] if c not in self._occupied])
        self._occupied.add(cell)
        side = choices.pick(SIDES[size or choices.pick(tuple(SIDES))])
        dx, dy = choices.below(2 * JITTER + 1) - JITTER, choices.below(2 * JITTER + 1) - JITTER
        return PlacedObject(colour, shape, *cell, side, dx, dy)

    def fillers(self, colours: Sequence[str], shapes: Sequence[str], size: str | None = None) -> list[PlacedObject]:
        choices = self._choices
        number = choices.below(MAX_FILLERS + 1)
        return [self.put(choices.pick(colours), choices.pick(shapes), size=size) for _ in range(number)]


def unlike(*shapes: str) -> list[str]:
    """Shapes that do not look like any of these."""
    return [s for s in WORLD.shapes if not any(s == other or {s, other} <= ALIKE for other in shapes)]


def _shapes(choices: RandomChoices) -> tuple[str, str]:
    """Two shapes that do not look alike."""
    first = choices.pick(WORLD.shapes)
    return first, choices.pick(unlike(first))


def _two(values: Sequence[T], choices: RandomChoices) -> tuple[T, T]:
    first = choices.pick(values)
    return first, choices.pick([value for value in values if value != first])


def _exchanged(one: PlacedObject, other: PlacedObject, attribute: str) -> list[PlacedObject]:
    """Both objects, with their colour or shape exchanged."""
    first, second = getattr(one, attribute), getattr(other, attribute)
    return [replace(one, **{attribute: second}), replace(other, **{attribute: first})]


def _couple(
    one: Sequence[PlacedObject],
    other: Sequence[PlacedObject],
    fillers: Sequence[PlacedObject],
    true: Statement,
    false: Statement,
    index: int,
    subject: int = 0,
    **labels: str,
) -> ScenePair:
    """A pair of two scenes, each with a target and a distractor, and the same fillers.

    subject: index of the second scene's target; the first scene's is object 0.
    """
    first, second = PairMember((*one, *fillers), true, false), PairMember((*other, *fillers), false, true, subject)
    return ScenePair((first, second), index % 2, labels)


def _larger(
    colour: str, board: Board, choices: RandomChoices, shapes: Sequence[str], two: Sequence[PlacedObject]
) -> list[PlacedObject]:
    """A third object of a colour, with more ink than either of two objects has in either shape; none if no shape has
    more (a large square cannot be exceeded).

    Objects that exchange shapes also exchange ink: a star has a third of a square's. Without the third object, the
    colour with most ink would differ between the two pictures.
    """
    most = max(ink(shape, o.side) for o in two for shape in {one.shape for one in two})
    sides = [side for of_class in SIDES.values() for side in of_class]
    larger = [(shape, side) for shape in shapes for side in sides if ink(shape, side) > most]
    if not larger:
        return []
    shape, side = choices.pick(larger)
    return [replace(board.put(colour, shape), side=side)]


# VL-CheckList --------------------------------------------------------------------------------------------------------


def _object(location: str | None, size: str | None, absent: bool, index: int, choices: RandomChoices) -> ScenePair:
    """A red circle or a red star? Another object has the star's shape (N2), or none has (N1)."""
    location, size = location or LOCATIONS[index % 3], size or tuple(SIDES)[index % 3]
    board = Board(choices)
    shape, other = _shapes(choices)
    colour, else_colour = _two(WORLD.colours, choices)
    rest = unlike(shape, other)
    target = board.put(colour, shape, location, size)
    distractor = board.put(else_colour, choices.pick(rest) if absent else other, location, size)
    fillers = [board.put(colour, choices.pick(rest)), *board.fillers(WORLD.colours, rest)]
    partner = [replace(target, shape=other), distractor] if absent else _exchanged(target, distractor, "colour")
    true, false = (Statement("exists", (f"{colour} {s}",)) for s in (shape, other))
    return _couple([target, distractor], partner, fillers, true, false, index, not absent, location=location, size=size)


def _colour(absent: bool, index: int, choices: RandomChoices) -> ScenePair:
    """Is the circle red or blue? Another object is blue (N2), or none is (N1)."""
    location, size = LOCATIONS[index % 3], tuple(SIDES)[index // 3 % 3]
    board = Board(choices)
    shape, else_shape = _shapes(choices)
    colour, other = _two(WORLD.colours, choices)
    rest = [one for one in WORLD.colours if one not in (colour, other)]
    target = board.put(colour, shape, location, size)
    distractor = board.put(choices.pick(rest) if absent else other, else_shape, location, size)
    fillers = board.fillers(rest, unlike(shape))
    partner = [replace(target, colour=other), distractor]
    if not absent:
        partner = _exchanged(target, distractor, "shape")
        fillers += _larger(choices.pick((colour, other)), board, choices, unlike(shape), [target, distractor])
    true, false = (Statement("is", (shape, c)) for c in (colour, other))
    return _couple([target, distractor], partner, fillers, true, false, index, not absent, location=location, size=size)


def _size(absent: bool, index: int, choices: RandomChoices) -> ScenePair:
    """Is the circle small or large? Another object of its colour has the other size (N2), or none has (N1).

    Only the extreme classes are tested, and all other objects are medium, so that the answer is clear.
    """
    location = LOCATIONS[index % 3]
    board = Board(choices)
    shape, else_shape = _shapes(choices)
    colour = choices.pick(WORLD.colours)
    target = board.put(colour, shape, location, "small")
    distractor = board.put(colour, else_shape, location, "medium" if absent else "large")
    fillers = board.fillers(WORLD.colours, unlike(shape), "medium")
    grown = replace(target, side=choices.pick(SIDES["large"]))
    partner = [grown, distractor] if absent else _exchanged(target, distractor, "shape")
    true, false = (Statement("is", (shape, s)) for s in ("small", "large"))
    return _couple([target, distractor], partner, fillers, true, false, index, not absent, location=location)


# Ordered positions in a row or column of which the second is nearest to the middle.
LINES = [
    places
    for places in combinations(range(WORLD.rows), 3)
    if all(abs(2 * places[1] - WORLD.rows + 1) < abs(2 * place - WORLD.rows + 1) for place in places[::2])
]


def _spatial(swap: bool, index: int, choices: RandomChoices) -> ScenePair:
    """Is the red circle above the blue star, or below it; or (swap) is the star above the circle?

    Both objects are in one row or column, so that no other relation is true. In the second picture one of them moves to
    the other side of the other, which is more central in both pictures: a rule that prefers the more central object as
    the subject answers the same for both.
    """
    board = Board(choices)
    axis = ("horizontal", "vertical")[index // 2 % 2]
    relation, opposite = _two([r for r, (its, _) in RELATIONS.items() if its == axis], choices)
    objects = list(zip(_two(WORLD.colours, choices), _shapes(choices), strict=True))
    mover, line, (before, middle, after) = choices.below(2), choices.below(WORLD.rows), choices.pick(LINES)
    if (RELATIONS[relation][1] < 0) != (mover == 1):  # the mover starts to the right of the other, or below it
        before, after = after, before
    cells = [(line, place) if axis == "horizontal" else (place, line) for place in (before, middle, after)]
    moving, still = board.put(*objects[mover], cell=cells[0]), board.put(*objects[1 - mover], cell=cells[1])
    moved = replace(board.put(*objects[mover], cell=cells[2]), side=moving.side)
    fillers = board.fillers(WORLD.colours, unlike(moving.shape, still.shape))
    first, second = [(o, still) if mover == 0 else (still, o) for o in (moving, moved)]
    one, other = (" ".join(words) for words in objects)
    true = Statement("stands", (one, relation, other))
    false = Statement("stands", (other, relation, one) if swap else (one, opposite, other))
    return _couple(first, second, fillers, true, false, index, dimension=axis)


def _checklist() -> tuple[PairKind, ...]:
    """The kinds in the order of the paper's tables; within an axis hard sentences come first."""
    units = []
    for size in reversed(SIDES):
        units += _graded(f"Object/Size/{size}", partial(_object, None, size))
    for location in LOCATIONS:
        units += _graded(f"Object/Location/{location}", partial(_object, location, None))
    units += _graded("Attribute/color", _colour, 2)
    units += _graded("Attribute/size", _size, 2)
    units.append(PairKind("Relation/spatial", "grid", "N2", partial(_spatial, False), 2))
    units.append(PairKind("Relation/spatial", "grid_swap", "N3", partial(_spatial, True), 2))
    return tuple(units)


def _graded(axis: str, make: Callable[[bool, int, RandomChoices], ScenePair], weight: int = 1) -> list[PairKind]:
    return [
        PairKind(axis, "grid", "N2", partial(make, False), weight),
        PairKind(axis, "grid_absent", "N1", partial(make, True), weight),
    ]


# Predicates and nouns ------------------------------------------------------------------------------------------------


def _bound(noun: bool, index: int, choices: RandomChoices) -> ScenePair:
    """A red circle and a blue square: is a circle red, or blue; or (noun) is a circle red, or a square?"""
    board = Board(choices)
    location, size = LOCATIONS[index % 3], tuple(SIDES)[index // 3 % 3]
    (shape, other), (colour, else_colour) = _shapes(choices), _two(WORLD.colours, choices)
    target, distractor = board.put(colour, shape, location, size), board.put(else_colour, other, location, size)
    fillers = board.fillers(WORLD.colours, unlike(shape, other))
    if not noun:
        fillers += _larger(choices.pick((colour, else_colour)), board, choices, unlike(shape), [target, distractor])
    partner = _exchanged(target, distractor, "colour" if noun else "shape")
    true, false = (
        Statement("binds", (shape, colour)),
        Statement("binds", (other, colour) if noun else (shape, else_colour)),
    )
    return _couple([target, distractor], partner, fillers, true, false, 0, 1, location=location, size=size)


PAIR_KINDS: dict[str, tuple[PairKind, ...]] = {
    "checklist": _checklist(),
    "predicate_noun": (
        PairKind("predicate", "", "N2", partial(_bound, False), 743),  # as many pairs as the published set has
        PairKind("noun", "", "N2", partial(_bound, True), 549),
    ),
}
