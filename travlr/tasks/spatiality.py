"""Spatiality: `The red circle is to the right of the blue square.`

The pair is the columns (for left and right) or the rows (for above and below) of the two objects that the query
describes, in the query's order (section 3 and appendix A of the paper).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

import splits
from render.text import noun, parse_noun
from travlr.config import Config, Count, RangeFrom0
from travlr.scene import Object, Scene, column_name, objects_of, row_name
from travlr.settings import Settings
from travlr.tasks.base import SIDES, CellsOf, Draw, OpenQuestion, Pair, Task, Template, choose_from
from travlr.tasks.exchange import STRICT

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
    """Groups: the first queried object, the second, the distractors (which neither attribute describes).

    With `preset=strict` each distractor is a group of its own.
    """

    name, title, Config = "spatiality", "spatial relations between two objects", Spatiality
    object_arguments = (0, 2)
    uses_positions = True
    decided_by = "place"
    pattern = re.compile(rf"The ([\w ]+?) is ({'|'.join(RELATIONS)}) the ([\w ]+)\.")
    vocabulary_arguments = tuple(("red circle", relation, "blue square") for relation in RELATIONS)
    axes = {
        "horizontal": ("column of the first object", "column of the second object"),
        "vertical": ("row of the first object", "row of the second object"),
    }
    pair_note = "The first object is the one that the query names first."

    @staticmethod
    def text(args: Sequence[Any]) -> str:
        return f"The {noun(args[0])} is {args[1]} the {noun(args[2])}."

    @staticmethod
    def parse(match: re.Match[str]) -> tuple[Any, ...]:
        return parse_noun(match[1]), match[2], parse_noun(match[3])

    @staticmethod
    def truth(scene: Scene, args: Sequence[Any]) -> tuple[bool, Pair]:
        axis, sign = RELATIONS[args[1]]
        first, second = (_only_one(scene, args[i]) for i in (0, 2))
        a, b = (o.column if axis == "horizontal" else o.row for o in (first, second))
        return (b - a) * sign > 0, (axis, COORDINATE_NAME[axis](a), COORDINATE_NAME[axis](b))

    @staticmethod
    def recount(args: Sequence[Any], cells: CellsOf) -> tuple[bool, Pair]:
        first, second = cells[args[0]], cells[args[2]]
        if len(first) != 1 or len(second) != 1:
            raise ValueError(f"the scene has {len(first)} {args[0]} and {len(second)} {args[2]}, not one each")
        (y, x), (v, u) = *first, *second
        answer = {"to the left of": x < u, "to the right of": x > u, "above": y < v, "below": y > v}[args[1]]
        if args[1] in ("above", "below"):
            return answer, ("vertical", str(y + 1), str(v + 1))
        return answer, ("horizontal", chr(65 + x), chr(65 + u))

    @staticmethod
    def alternatives(scene: Scene, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        axis = RELATIONS[args[1]][0]
        return [(args[0], relation, args[2]) for relation in RELATIONS if RELATIONS[relation][0] == axis]

    @staticmethod
    def open_question(scene: Scene, args: Sequence[Any]) -> OpenQuestion:
        first, second = noun(args[0]), noun(args[2])
        near, far = (relation for _, relation, _ in SpatialityTask.alternatives(scene, args))
        true = [r for r in (near, far) if SpatialityTask.truth(scene, (args[0], r, args[2]))[0]]
        if not true:
            raise ValueError(f"the {first} is neither {near} nor {far} the {second}")
        wordings = {}
        for relation, opposite in ((near, far), (far, near)):
            forward = ("{0}", "{1} is {0}", "{0} {2}", "{1} is {0} {2}", "{0} {2} is {1}")
            phrases = [form.format(word, first, second) for word in ANSWERS[relation] for form in forward]
            phrases += [form.format(word, second, first) for word in ANSWERS[opposite] for form in forward[1:]]
            wordings[ANSWERS[relation][0]] = tuple(phrases)
        text = f"Is the {first} {near} or {far} the {second}?".replace(" of or", " or")
        return OpenQuestion(text, ANSWERS[true[0]][0], wordings)

    @staticmethod
    def predicate(args: Sequence[Any]) -> str:
        return {"to the left of": "left", "to the right of": "right"}.get(args[1], args[1])

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
        self.most_objects = 2 + self.config.distractors[1]
        self.spread = self.exchanged  # one object in each column or row, so that the occupied cells say nothing
        self.anchors = self.most_objects if self.spread else 2
        self._positions = {  # axis -> side -> ordered pairs of coordinates
            "horizontal": self._sides_of_axis("horizontal", "columns", world.columns),
            "vertical": self._sides_of_axis("vertical", "rows", world.rows),
        }
        unordered = list(itertools.combinations(sorted(attributes), 2))
        self._held_out_objects = splits.hold_out_share(unordered, self.config.held_out.objects, "spatiality")
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
        further = self.most_objects - 3 if self.spread else 0
        self.group_kinds = np.array([group + group[2:] * further for group in groups]).reshape(len(groups), -1)
        coordinates: dict[Pair, tuple[bool, int, int]] = {
            (axis, COORDINATE_NAME[axis](a), COORDINATE_NAME[axis](b)): (axis == "horizontal", a, b)
            for axis, sides_of_axis in self._positions.items()
            for a, b in itertools.chain(*sides_of_axis.values())
        }
        self._coordinates = np.array([coordinates[pair] for pair in self.pairs]).reshape(-1, 3)
        self._described = [self.described(attributes) for attributes in zip(*nouns, strict=True)]

    def _sides_of_axis(self, axis: str, setting: str, length: int) -> dict[str, list[tuple[int, int]]]:
        """Ordered pairs of coordinates of each side, sorted."""
        named_pairs = getattr(self.config.held_out, setting)
        if named_pairs is not None:
            names = [COORDINATE_NAME[axis](i) for i in range(length)]
            for pair in named_pairs:
                if len(pair) != 2 or len(set(pair)) < 2 or any(str(name) not in names for name in pair):
                    raise ValueError(f"held_out.{setting}: {pair} is not two different {setting} of {', '.join(names)}")
            held_out = splits.both_orders((names.index(str(a)), names.index(str(b))) for a, b in named_pairs)
        elif self.exchanged:
            train, held_out = map(splits.both_orders, splits.balanced_pairs(length))
            return {"in": sorted(train), "out": sorted(held_out)}
        else:
            held_out = splits.both_orders(splits.held_out_positions(length, axis))
        return {"in": sorted(set(itertools.permutations(range(length), 2)) - held_out), "out": sorted(held_out)}

    def held_out(self) -> dict[str, Any]:
        pairs = [
            [axis, COORDINATE_NAME[axis](a), COORDINATE_NAME[axis](b)]
            for axis, sides in self._positions.items()
            for a, b in sides["out"]
        ]
        return {"pairs": pairs, "queries": [list(names) for names in self._held_out_objects]}

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

    def anchor_places(self, draw: Draw) -> np.ndarray:
        """The queried objects are free along the axis that the query does not ask about."""
        horizontal = self._coordinates[draw.pair, 0] == 1
        return np.where(horizontal, self.world.rows, self.world.columns)[:, None]

    def anchor_cells(self, draw: Draw, places: np.ndarray) -> np.ndarray:
        horizontal = self._coordinates[draw.pair, :1] == 1
        along = self._coordinates[draw.pair, 1:]  # (N, 2)
        if self.spread:  # the distractors take the other coordinates in order
            free = np.ones((len(along), self.world.columns), bool)
            np.put_along_axis(free, along, False, axis=1)
            along = np.concatenate([along, np.nonzero(free)[1].reshape(len(along), -1)], axis=1)
        width = self.world.columns
        return np.where(horizontal, places * width + along, along * width + places)

    def capacity(self, template: Template) -> int:
        relation = self.queries[template.texts[0]].args[1]
        across = self.world.rows if RELATIONS[relation][0] == "horizontal" else self.world.columns
        if self.spread:
            numbers = [self.kinds_in_group(int(template.texts[0]), group) for group in range(self.anchors)]
            return across**self.anchors * math.prod(numbers)
        lowest = self.config.distractors[0]
        kinds = [[self.kinds_in_group(int(query), group) for group in range(3)] for query in template.texts]
        fewest = min(first * second * rest**lowest for first, second, rest in kinds)
        return across**2 * fewest * self.placements(self.world.cells - 2, lowest)


def _only_one(scene: Scene, attribute: str) -> Object:
    objects = objects_of(scene, attribute)
    if len(objects) != 1:
        raise ValueError(f"the query names the {attribute}, but the scene has {len(objects)}")
    return objects[0]
