"""Spatiality: `The red circle is to the right of the blue square.`

The pair is the columns (for left and right) or the rows (for above and below) of the two objects that the query
describes, in the query's order (section 3 and appendix A of the paper).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

import splits
from render.text import noun
from travlr.config import STRICT, Config, Count, RangeFrom0
from travlr.scene import Scene, column_name, described, only_object, row_name
from travlr.settings import Settings
from travlr.tasks.base import Arguments, CellsOf, OpenQuestion, Pair, Steps
from travlr.tasks.language import say_places
from travlr.tasks.vectorised import SIDES, Draw, Task, Template, choose_from

RELATIONS = {  # relation -> (axis, sign of second minus first coordinate when it is true)
    "to the left of": ("horizontal", 1),
    "to the right of": ("horizontal", -1),
    "above": ("vertical", 1),
    "below": ("vertical", -1),
}
COORDINATE_NAME: dict[str, Callable[[int], str]] = {"horizontal": column_name, "vertical": row_name}  # by axis
ANSWERS = {  # relation -> its word as an answer, and other words for it
    "to the left of": ("left",),
    "to the right of": ("right",),
    "above": ("above", "over", "on top of", "higher"),
    "below": ("below", "under", "beneath", "underneath", "lower"),
}


class HeldOutPositions(Settings):
    """Which pairs only test_ood shows."""

    columns: tuple[tuple[str, str], ...] | None = Field(
        None, description="unordered pairs such as [[A,E]]; null for the paper's or the preset's"
    )
    rows: tuple[tuple[int, int], ...] | None = Field(None, description="unordered pairs such as [[2,6]]; null as above")
    objects: float = Field(
        0.2, ge=0, lt=1, description="proportion of the unordered pairs of queried objects that only test_ood queries"
    )


class Spatiality(Config):
    presets = {"released": {}, "strict": STRICT | {"distractors": [4, 4]}}

    task: str = "spatiality"
    query_by: Literal["shape", "colour", "both"] = Field(
        "both", description="what queries name: shape, colour or both (red circle)"
    )
    count: Count = Count(train=32_000)
    distractors: RangeFrom0 = Field((1, 1), description="how many objects the query does not describe: lowest, highest")
    held_out: HeldOutPositions = HeldOutPositions()

    @model_validator(mode="after")
    def _check(self) -> Spatiality:
        if not self.exchanged:
            return self
        if self.held_out.columns is not None or self.held_out.rows is not None:
            raise ValueError("preset=strict: leaves no choice of held_out.columns and held_out.rows")
        rest = self.world.columns - 2
        if self.world.rows - 2 != rest or self.distractors != (rest, rest):
            raise ValueError(
                f"preset=strict: needs as many rows as columns, and distractors=[{rest},{rest}], one object in each of "
                f"the {self.world.columns} columns"
            )
        return self


class SpatialityTask(Task):
    """Spatial relations between two objects.

    Groups: the first queried object, the second, the distractors (which neither attribute describes).

    With `preset=strict` each distractor is a group of its own.
    """

    Config = Spatiality
    query = "The {first:noun} is {relation} the {second:noun}."
    arguments = {"first": "nouns", "relation": list(RELATIONS), "second": "nouns"}
    decided_by = "place"
    axes = {
        "horizontal": ("column of the first object", "column of the second object"),
        "vertical": ("row of the first object", "row of the second object"),
    }

    @staticmethod
    def truth(scene: Scene, first: str, relation: str, second: str) -> bool:
        a, b = _coordinates(scene, first, relation, second)
        return (b - a) * RELATIONS[relation][1] > 0

    @staticmethod
    def pair(scene: Scene, first: str, relation: str, second: str) -> Pair:
        axis = RELATIONS[relation][0]
        return axis, *(COORDINATE_NAME[axis](place) for place in _coordinates(scene, first, relation, second))

    @staticmethod
    def recount(cells: CellsOf, first: str, relation: str, second: str) -> tuple[bool, Pair]:
        if len(cells[first]) != 1 or len(cells[second]) != 1:
            raise ValueError(
                f"the scene has {len(cells[first])} {first} and {len(cells[second])} {second}, not one each"
            )
        (y, x), (v, u) = *cells[first], *cells[second]
        answer = {"to the left of": x < u, "to the right of": x > u, "above": y < v, "below": y > v}[relation]
        if relation in ("above", "below"):
            return answer, ("vertical", str(y + 1), str(v + 1))
        return answer, ("horizontal", chr(65 + x), chr(65 + u))

    @staticmethod
    def alternatives(scene: Scene, first: str, relation: str, second: str) -> list[Arguments]:
        return [{"first": first, "relation": word, "second": second} for word in _of_axis(relation)]

    @staticmethod
    def open_question(scene: Scene, first: str, relation: str, second: str) -> OpenQuestion:
        near, far = _of_axis(relation)
        true = [word for word in (near, far) if SpatialityTask.truth(scene, first, word, second)]
        one, other = noun(first), noun(second)
        if not true:
            raise ValueError(f"the {one} is neither {near} nor {far} the {other}")
        wordings = {}
        for word, opposite in ((near, far), (far, near)):
            forward = ("{0}", "{1} is {0}", "{0} {2}", "{1} is {0} {2}", "{0} {2} is {1}")
            phrases = [form.format(answer, one, other) for answer in ANSWERS[word] for form in forward]
            phrases += [form.format(answer, other, one) for answer in ANSWERS[opposite] for form in forward[1:]]
            wordings[ANSWERS[word][0]] = tuple(phrases)
        text = f"Is the {one} {near} or {far} the {other}?".replace(" of or", " or")
        return OpenQuestion(text, ANSWERS[true[0]][0], wordings)

    @staticmethod
    def steps(scene: Scene, first: str, relation: str, second: str) -> Steps:
        axis, a, b = SpatialityTask.pair(scene, first, relation, second)
        line = "column" if axis == "horizontal" else "row"
        places = " ".join(say_places(noun(name), [only_object(scene, name)]) for name in (first, second))
        true = next(word for word in _of_axis(relation) if SpatialityTask.truth(scene, first, word, second))
        return Steps(f"{places} {line.capitalize()} {a} is {true} {line} {b}.", ANSWERS[relation][0])

    @staticmethod
    def auxiliary_words(pair: Pair) -> list[str]:
        axis, first, second = pair
        before = (len(first), first) < (len(second), second)
        words = ("left", "right") if axis == "horizontal" else ("above", "below")
        return [words[0] if before else words[1], first, second]

    # Scenes -------------------------------------------------------------------------------------------------------

    config: Spatiality

    def build(self) -> None:
        world, attributes = self.world, self.compared_attributes()
        self.spread = self.exchanged  # one object in each column or row, so that the occupied cells say nothing
        self._positions = {  # axis -> side -> ordered pairs of coordinates
            "horizontal": self._sides_of_axis("horizontal", "columns", world.columns),
            "vertical": self._sides_of_axis("vertical", "rows", world.rows),
        }
        unordered = list(itertools.combinations(sorted(attributes), 2))
        self._held_out_objects = splits.hold_out_proportion(unordered, self.config.held_out.objects, "spatiality")
        held_out = set(self._held_out_objects)
        sides = {"out": self._held_out_objects, "in": [names for names in unordered if names not in held_out]}
        for side, relation in itertools.product(SIDES, RELATIONS):
            axis, sign = RELATIONS[relation]  # the sign is of second minus first
            orders = [order for names in sides[side] for order in (names, names[::-1])]
            texts = [self.query_number(first, relation, second) for first, second in orders]
            self.add_ordered_template(side, axis, self._positions[axis][side], -sign, texts, COORDINATE_NAME[axis])
        nouns = [query.args[::2] for query in self.queries]
        groups = [self.noun_groups(*names) for names in nouns]
        if self.config.distractors[1] and () in self.kind_lists:
            raise ValueError("world: no kind of object is left for a distractor; add colours or shapes")
        most = 2 + self.config.distractors[1]
        further = most - 3 if self.spread else 0
        self.set_groups([group + group[2:] * further for group in groups], most)
        coordinates: dict[Pair, tuple[bool, int, int]] = {
            (axis, COORDINATE_NAME[axis](a), COORDINATE_NAME[axis](b)): (axis == "horizontal", a, b)
            for axis, sides_of_axis in self._positions.items()
            for a, b in itertools.chain(*sides_of_axis.values())
        }
        self._coordinates = np.array([coordinates[pair] for pair in self.pairs]).reshape(-1, 3)
        self._described = [described(world, attributes) for attributes in zip(*nouns, strict=True)]

    def _sides_of_axis(self, axis: str, setting: str, length: int) -> dict[str, list[tuple[int, int]]]:
        """Ordered pairs of coordinates of each side, sorted."""
        pairs_to_hold_out = getattr(self.config.held_out, setting)
        if pairs_to_hold_out is not None:
            names = [COORDINATE_NAME[axis](i) for i in range(length)]
            for pair in pairs_to_hold_out:
                if len(pair) != 2 or len(set(pair)) < 2 or any(str(name) not in names for name in pair):
                    raise ValueError(f"held_out.{setting}: {pair} is not two different {setting} of {', '.join(names)}")
            held_out = splits.both_orders((names.index(str(a)), names.index(str(b))) for a, b in pairs_to_hold_out)
        elif self.exchanged:
            train, held_out = map(splits.both_orders, splits.balanced_pairs(length))
            return {"in": sorted(train), "out": sorted(held_out)}
        else:
            held_out = splits.both_orders(splits.held_out_positions(length, axis))
        return {"in": sorted(set(itertools.permutations(range(length), 2)) - held_out), "out": sorted(held_out)}

    def exchange(
        self, draw: Draw, grid: np.ndarray, keys: np.ndarray, words: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The two queried objects exchange places; a caption mentions them in the same order in both scenes."""
        rows = np.arange(len(grid))
        first, second = (self._described[i][draw.query[:, None], grid].argmax(axis=1) for i in (0, 1))
        swapped, swapped_keys = grid.copy(), keys.copy()
        for array in (swapped, swapped_keys):
            array[rows, first], array[rows, second] = array[rows, second], array[rows, first]
        return np.stack([swapped, grid]), np.stack([swapped_keys, keys])

    def group_counts(self, draw: Draw) -> np.ndarray:
        counts = np.ones((len(draw.query), self.group_kinds.shape[1]), np.intp)
        if not self.spread:
            counts[:, 2] = choose_from(self.config.distractors, draw.words[:, 1])
        return counts

    def anchor_cells(self, draw: Draw) -> np.ndarray:
        """The queried objects are free along the axis that the query does not ask about."""
        horizontal = self._coordinates[draw.pair, :1, None] == 1
        along = self._coordinates[draw.pair, 1:]  # (N, 2)
        width, height = self.world.columns, self.world.rows
        if self.spread:  # the distractors take the other coordinates in order
            free = np.ones((len(along), width), bool)
            np.put_along_axis(free, along, False, axis=1)
            along = np.concatenate([along, np.nonzero(free)[1].reshape(len(along), -1)], axis=1)
        across = np.arange(max(width, height))
        cells = np.where(horizontal, across * width + along[..., None], along[..., None] * width + across)
        return np.where(across < np.where(horizontal, height, width), cells, -1)

    def capacity(self, template: Template) -> int:
        relation = self.queries[template.texts[0]].args[1]
        across = self.world.rows if RELATIONS[relation][0] == "horizontal" else self.world.columns
        if self.spread:
            numbers = [self.kinds_in_group(int(template.texts[0]), group) for group in range(self.most_objects)]
            return across**self.most_objects * math.prod(numbers)
        lowest = self.config.distractors[0]
        kinds = [[self.kinds_in_group(int(query), group) for group in range(3)] for query in template.texts]
        fewest = min(first * second * rest**lowest for first, second, rest in kinds)
        return across**2 * fewest * self.placements(self.world.cells - 2, lowest)


def _of_axis(relation: str) -> list[str]:
    """The two relations of the axis of a relation."""
    return [word for word in RELATIONS if RELATIONS[word][0] == RELATIONS[relation][0]]


def _coordinates(scene: Scene, first: str, relation: str, second: str) -> list[int]:
    """Columns, or for above and below rows, of the two objects."""
    objects = [only_object(scene, attribute) for attribute in (first, second)]
    return [o.column if RELATIONS[relation][0] == "horizontal" else o.row for o in objects]
