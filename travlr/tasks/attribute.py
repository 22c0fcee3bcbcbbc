"""Attribute: `The circle is red.`, `The star is large.`

A scene has one circle. For the false query it exchanges its colour with an object of another shape; or its size with an
object of another shape and the same colour. The pair is the shape and its colour or size. A scene shows a colour of a
shape that is held out only where the query asks about this shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any

from travlr.scene import COLOURS, Scene, only_object
from travlr.tasks.base import Arguments, CellsOf, OpenQuestion, Pair, Steps
from travlr.tasks.language import Args, say_places
from travlr.tasks.two_objects import Exchanged, TwoObjectTask

EXTREMES = ("small", "large")  # a medium size is hard to tell from either
OPTIONS = 6  # of a multiple choice, at most


class Attribute(Exchanged):
    task: str = "attribute"


class AttributeTask(TwoObjectTask):
    """Which colour or size an object has."""

    Config = Attribute
    query = "The {shape} is {value}."
    arguments = {"shape": "shapes", "value": [*COLOURS, *EXTREMES]}
    axes = {"": ("shape", "its colour or size in the scene")}

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        shapes, colours = self.world.shapes, self.world.colours
        steps = (0, 1) if len(colours) > 3 else ()  # two colours of each shape are held out, which leaves two or more
        out = {(shape, colours[(i + step) % len(colours)]) for i, shape in enumerate(shapes) for step in steps}
        self._plain = {shape: [c for c in colours if (shape, c) not in out] for shape in shapes}
        out |= set(product(shapes[2::3], EXTREMES))  # and both sizes of every third shape
        self.held_out = {name: sorted(out) for name in ("pairs", "queries")}
        values = [*colours, *(EXTREMES if set(EXTREMES) <= set(self.world.sizes) else ())]
        # Query -> colours of the two objects of a true scene, and the shape of the second.
        self._twos = {args: self._list_twos(*args, args in out) for args in product(shapes, values)}

    def _list_twos(self, shape: str, value: str, out: bool) -> list[tuple[str, str, str]]:
        if value in EXTREMES:
            of_both = ((c, c, other) for other in self.unlike(shape) for c in self._plain[other])
            return [two for two in of_both if two[0] in self._plain[shape]]
        partners = [c for c in self.other_colours(value) if (c not in self._plain[shape]) == out]
        both = product([value], partners, self.unlike(shape))
        return [(a, b, other) for a, b, other in both if {a, b} <= set(self._plain[other])]

    def queries(self) -> list[Args]:
        return [args for args, twos in self._twos.items() if twos]

    @staticmethod
    def truth(scene: Scene, shape: str, value: str) -> bool:
        return _value_of(scene, shape, value) == value

    @staticmethod
    def pair(scene: Scene, shape: str, value: str) -> Pair:
        return shape, _value_of(scene, shape, value)

    @staticmethod
    def recount(cells: CellsOf, shape: str, value: str) -> tuple[bool, Pair]:
        (cell,) = cells[shape]
        values = EXTREMES if value in EXTREMES else COLOURS
        (shown,) = (word for word in values if cell in cells[word])
        return cell in cells[value], (shape, shown)

    @staticmethod
    def alternatives(scene: Scene, shape: str, value: str) -> list[Arguments]:
        """The colours that the scene shows, or both sizes."""
        right = _value_of(scene, shape, value)
        values = EXTREMES if value in EXTREMES else sorted({o.colour for o in scene})
        others = [word for word in values if word != right][: OPTIONS - 1]
        return [{"shape": shape, "value": word} for word in sorted((right, *others))]

    @staticmethod
    def open_question(scene: Scene, shape: str, value: str) -> OpenQuestion:
        values = EXTREMES if value in EXTREMES else COLOURS  # and not those of the scene: the request names them
        wordings = {word: (word, f"{shape} is {word}", f"{word} {shape}") for word in values}
        text = f"Is the {shape} small or large?" if value in EXTREMES else f"What colour is the {shape}?"
        return OpenQuestion(text, _value_of(scene, shape, value), wordings)

    @staticmethod
    def steps(scene: Scene, shape: str, value: str) -> Steps:
        place = say_places(shape, [only_object(scene, shape)])
        return Steps(f"{place} It is {_value_of(scene, shape, value)}.", value)

    @staticmethod
    def auxiliary_words(pair: Pair) -> list[str]:
        return [pair[1], pair[1]]

    def true_scene(self, random: Random, arguments: Arguments) -> Scene:
        shape, value = arguments["shape"], arguments["value"]
        first, second, other = random.choice(self._twos[shape, value])
        sizes = [value, *(size for size in EXTREMES if size != value)] if value in EXTREMES else None
        others = [f"{colour} {of}" for of in self.unlike(shape) for colour in self._plain[of]]
        distractors = random.choices(others, k=self.number_of_distractors(random))
        return self.arrange(random, [f"{first} {shape}", f"{second} {other}"], distractors, sizes=sizes)

    def exchanged_words(self, arguments: Arguments) -> Sequence[str]:
        return ("size",) if arguments["value"] in EXTREMES else ("colour",)


def _value_of(scene: Scene, shape: str, value: str) -> str:
    """The colour of the only object with a shape; or its size, where the value is one."""
    o = only_object(scene, shape)
    return o.size if value in EXTREMES else o.colour
