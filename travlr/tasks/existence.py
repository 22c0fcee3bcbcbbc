"""Existence: `There is a red circle.`

Red objects and circles are in both scenes of a couple. In the true one a red circle is among them; for the false one it
exchanges its colour with an object that is neither. The pair is how many objects are red and how many are circles.
"""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import splits
from travlr.scene import Scene, objects_of
from travlr.tasks.base import Arguments, CellsOf, Pair, Steps
from travlr.tasks.language import cell_of
from travlr.tasks.two_objects import Exchanged, TwoObjectTask, combine

NUMBERS = (1, 2, 3)  # of objects with the colour, and with the shape


class Existence(Exchanged):
    task: str = "existence"


class ExistenceTask(TwoObjectTask):
    """Whether one object has both a colour and a shape."""

    Config = Existence
    query = "There is {object:a}."
    arguments = {"object": "objects"}
    axes = {"": ("objects of the colour", "objects of the shape")}

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        if config.distractors[0] < 2 * (NUMBERS[-1] - 1):
            raise ValueError(f"distractors={list(config.distractors)}: existence needs at least {2 * NUMBERS[-1] - 2}")
        attributes = splits.held_out_attributes(self.world.shapes, self.world.colours)
        self._held_out_objects = {f"{colour} {shape}" for shape, colour in attributes}
        self.held_out = {
            "pairs": [(a, b) for a, b in product(NUMBERS, NUMBERS) if self._is_held_out(a, b)],
            "queries": [[name] for name in sorted(self._held_out_objects)],
        }

    @staticmethod
    def _is_held_out(a: int, b: int) -> bool:
        return a + b == NUMBERS[0] + NUMBERS[-1]  # each number stays in training, and in test_ood

    @staticmethod
    def truth(scene: Scene, object: str) -> bool:
        return bool(objects_of(scene, object))

    @staticmethod
    def pair(scene: Scene, object: str) -> Pair:
        colour, shape = (str(len(objects_of(scene, word))) for word in object.split())
        return colour, shape

    @staticmethod
    def recount(cells: CellsOf, object: str) -> tuple[bool, Pair]:
        colour, shape = object.split()
        return bool(cells[colour] & cells[shape]), (str(len(cells[colour])), str(len(cells[shape])))

    @staticmethod
    def alternatives(scene: Scene, object: str) -> list[Arguments]:
        """The object, and one of its colour and another shape, of which exactly one exists."""
        colour, shape = object.split()
        exists = bool(objects_of(scene, object))
        others = [f"{colour} {o.shape}" for o in scene if o.shape != shape]
        other = [name for name in others if bool(objects_of(scene, name)) != exists]
        return [{"object": name} for name in (object, *other[:1])] if other else []

    @staticmethod
    def steps(scene: Scene, object: str) -> Steps:
        colour, shape = object.split()
        listed = [f"{o.colour} at {cell_of(o)}" for o in objects_of(scene, shape)]
        found = "One" if objects_of(scene, object) else "None"
        return Steps(f"{shape.capitalize()}s: {', '.join(listed) or 'none'}. {found} is {colour}.", f"one is {colour}")

    def true_scene(self, random: Random, arguments: Arguments) -> Scene:
        colour, shape = arguments["object"].split()
        out = arguments["object"] in self._held_out_objects
        red, circles = random.choice([n for n in product(NUMBERS, NUMBERS) if self._is_held_out(*n) == out])
        colours, shapes = self.other_colours(colour), self.unlike(shape)
        names = [f"{colour} {random.choice(shapes)}" for _ in range(red - 1)]
        names += [f"{random.choice(colours)} {shape}" for _ in range(circles - 1)]
        rest = self.number_of_distractors(random) - len(names)
        names += random.choices(combine(colours, shapes), k=rest)
        return self.arrange(random, [arguments["object"], random.choice(combine(colours, shapes))], names)
