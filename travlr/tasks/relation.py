"""Relation: `A circle is above a square.`

What spatiality asks, of shapes in several sizes. For the false query the two objects exchange their places. The pair
is their columns or rows: neighbouring ones in training, and those two apart in `test_ood`. So the column or row of one
object says little, and either object is as often the more central one in true as in false scenes. As in strict
spatiality, each column (or row) has one object, so that the occupied cells do not tell where the other object is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from random import Random
from typing import Any

from pydantic import Field, model_validator

import splits
from travlr.config import RangeFrom0
from travlr.scene import Scene
from travlr.tasks.base import Arguments
from travlr.tasks.language import Args
from travlr.tasks.spatiality import COORDINATE_NAME, RELATIONS, SpatialityTask
from travlr.tasks.two_objects import Exchanged, TwoObjectTask, combine

APART = {"in": 1, "out": 2}  # columns or rows between the objects, by side


class Relation(Exchanged):
    task: str = "relation"
    distractors: RangeFrom0 = Field((4, 4), description="how many further objects: one in each column and in each row")

    @model_validator(mode="after")
    def _check(self) -> Relation:
        rest = self.world.columns - 2
        if rest < 1 or self.world.rows - 2 != rest or self.distractors != (rest, rest):
            raise ValueError(
                f"distractors: relation needs as many rows as columns, at least 3, and here [{rest},{rest}]"
            )
        return self


class RelationTask(TwoObjectTask):
    """Spatial relations between two objects that exchange their places."""

    Config = Relation
    query = "{first:a} is {relation} {second:a}."
    arguments = {"first": "shapes", "relation": list(RELATIONS), "second": "shapes"}
    decided_by = "place"
    axes = SpatialityTask.axes
    truth, pair = staticmethod(SpatialityTask.truth), staticmethod(SpatialityTask.pair)
    recount, auxiliary_words = staticmethod(SpatialityTask.recount), staticmethod(SpatialityTask.auxiliary_words)
    alternatives = staticmethod(SpatialityTask.alternatives)
    open_question, steps = staticmethod(SpatialityTask.open_question), staticmethod(SpatialityTask.steps)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        pairs = [
            (axis, name(a), name(a + APART["out"]))
            for axis, name in COORDINATE_NAME.items()
            for a in range(self.world.columns - APART["out"])
        ]
        shapes = [two for two in combinations(sorted(self.world.shapes), 2) if two[1] in self.unlike(two[0])]
        self._shapes_out = splits.hold_out_proportion(shapes, 0.2, "relation")
        both_orders = [*pairs, *((axis, b, a) for axis, a, b in pairs)]
        self.held_out = {"pairs": both_orders, "queries": self._shapes_out}

    def queries(self) -> list[Args]:
        return [args for args in super().queries() if args[2] in self.unlike(args[0])]

    def exchanged_words(self, arguments: Arguments) -> Sequence[str]:
        return ("colour", "shape")

    def true_scene(self, random: Random, arguments: Arguments) -> Scene:
        first, second = arguments["first"], arguments["second"]
        axis, sign = RELATIONS[arguments["relation"]]
        apart = APART["out" if tuple(sorted((first, second))) in self._shapes_out else "in"]
        length = self.world.columns
        start = random.randrange(length - apart)
        along = [start, start + apart][::sign]
        along += [place for place in range(length) if place not in along]
        cells = [(random.randrange(length), place) for place in along]
        if axis == "vertical":
            cells = [(row, column) for column, row in cells]
        others = combine(self.world.colours, self.unlike(first, second))
        distractors = random.choices(others, k=length - 2)
        two = [f"{random.choice(self.world.colours)} {shape}" for shape in (first, second)]
        return self.arrange(random, two, distractors, cells)
