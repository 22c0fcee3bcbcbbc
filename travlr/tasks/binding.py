"""Binding: `The circle is red and the square is blue.`

As in the study of predicates and nouns, both scenes of a couple show all words of the query: the circle and the square
exchange their colours. The pair is the two colours in the query's order.
"""

from __future__ import annotations

from itertools import combinations, permutations, product
from random import Random
from typing import Any

import splits
from travlr.scene import COLOURS, Scene, only_object
from travlr.tasks.base import Arguments, CellsOf, OpenQuestion, Pair, Steps
from travlr.tasks.language import Args, say_places
from travlr.tasks.two_objects import Exchanged, TwoObjectTask, combine


class Binding(Exchanged):
    task: str = "binding"


class BindingTask(TwoObjectTask):
    """Which of two objects has which of two colours."""

    Config = Binding
    query = "The {first} is {colour} and the {second} is {other}."
    arguments = {"first": "shapes", "colour": list(COLOURS), "second": "shapes", "other": list(COLOURS)}
    axes = {"": ("colour of the first object", "colour of the second object")}

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        shapes = [two for two in combinations(sorted(self.world.shapes), 2) if two[1] in self.unlike(two[0])]
        colours = list(combinations(sorted(self.world.colours), 2))
        of_shapes, of_colours = (splits.hold_out_proportion(names, 0.2, "binding") for names in (shapes, colours))
        self.held_out = {"pairs": [two for names in of_colours for two in permutations(names)], "queries": of_shapes}
        self._queries = [
            (first, colour, second, other)
            for names, two in product(shapes, colours)
            if (names in of_shapes) == (two in of_colours)
            for (first, second), (colour, other) in product(permutations(names), permutations(two))
        ]

    def queries(self) -> list[Args]:
        return list(self._queries)

    @staticmethod
    def truth(scene: Scene, first: str, colour: str, second: str, other: str) -> bool:
        return BindingTask.pair(scene, first, colour, second, other) == (colour, other)

    @staticmethod
    def pair(scene: Scene, first: str, colour: str, second: str, other: str) -> Pair:
        return only_object(scene, first).colour, only_object(scene, second).colour

    @staticmethod
    def recount(cells: CellsOf, first: str, colour: str, second: str, other: str) -> tuple[bool, Pair]:
        shown = [next(word for word in COLOURS if cells[word] >= cells[shape]) for shape in (first, second)]
        return cells[first] <= cells[colour] and cells[second] <= cells[other], (shown[0], shown[1])

    @staticmethod
    def alternatives(scene: Scene, first: str, colour: str, second: str, other: str) -> list[Arguments]:
        orders = ((colour, other), (other, colour))
        return [{"first": first, "colour": a, "second": second, "other": b} for a, b in orders]

    @staticmethod
    def open_question(scene: Scene, first: str, colour: str, second: str, other: str) -> OpenQuestion:
        wordings = {shape: (shape, f"{shape} is {colour}", f"{colour} {shape}") for shape in (first, second)}
        answer = first if only_object(scene, first).colour == colour else second
        return OpenQuestion(f"Which is {colour}, the {first} or the {second}?", answer, wordings)

    @staticmethod
    def steps(scene: Scene, first: str, colour: str, second: str, other: str) -> Steps:
        objects = [only_object(scene, shape) for shape in (first, second)]
        listed = [f"{say_places(o.shape, [o])} It is {o.colour}." for o in objects]
        return Steps(f"{' '.join(listed)} So {objects[0].colour} and {objects[1].colour}.", f"{colour} and {other}")

    @staticmethod
    def auxiliary_words(pair: Pair) -> list[str]:
        return [pair[0], *pair]

    def true_scene(self, random: Random, arguments: Arguments) -> Scene:
        first, second = arguments["first"], arguments["second"]
        others = combine(self.world.colours, self.unlike(first, second))
        distractors = random.choices(others, k=self.number_of_distractors(random))
        two = [f"{arguments['colour']} {first}", f"{arguments['other']} {second}"]
        return self.arrange(random, two, distractors)
