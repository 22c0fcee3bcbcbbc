"""Simple tasks whose pairs hold no numbers: `Most objects are red.`, with pairs of two words, of one, and of none."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

from travlr.scene import Scene, World
from travlr.tasks.base import Arguments, CellsOf, OpenQuestion, Pair
from travlr.tasks.simple import SimpleTask

COLOURS = World().colours
HELD_OUT = ("yellow", "orange")


def by_number(scene: Scene) -> list[str]:
    """Colours, the most frequent first."""
    return [colour for colour, _ in Counter(one.colour for one in scene).most_common()]


class Mode(SimpleTask):
    """Which colour is the most frequent."""

    query = "The most frequent colour is {colour}."
    arguments = {"colour": "colours"}
    decided_by = "counts"
    held_out = {"pairs": [(colour,) for colour in HELD_OUT], "queries": [(colour,) for colour in HELD_OUT]}

    @staticmethod
    def truth(scene: Scene, colour: str) -> bool:
        return by_number(scene)[0] == colour

    @staticmethod
    def pair(scene: Scene, colour: str) -> Pair:
        return (by_number(scene)[0],)

    def scene(self, random: Random, arguments: Arguments, answer: bool) -> Scene:
        colours = random.sample(COLOURS, len(COLOURS))
        numbers = (5, 3, 3, 2, 1)
        names = [
            random.choice(self.names(colour)) for colour, n in zip(colours, numbers, strict=True) for _ in range(n)
        ]
        return self.place(random, names)


class Majority(Mode):
    """Which colour is the most frequent."""

    query = "Most objects are {colour}."
    axes = {"majority": ("most frequent colour", "least frequent colour")}
    held_out = {
        "pairs": [("majority", *two) for two in itertools.permutations(HELD_OUT)],
        "queries": Mode.held_out["queries"],
    }

    @staticmethod
    def pair(scene: Scene, colour: str) -> Pair:
        colours = by_number(scene)
        return ("majority", colours[0], colours[-1])

    @staticmethod
    def recount(cells: CellsOf, colour: str) -> tuple[bool, Pair]:
        colours = sorted((c for c in COLOURS if cells[c]), key=lambda c: -len(cells[c]))
        return all(len(cells[colour]) > len(cells[c]) for c in COLOURS if c != colour), (
            "majority", colours[0], colours[-1],
        )  # fmt: skip

    @staticmethod
    def alternatives(scene: Scene, colour: str) -> list[Arguments]:
        return [{"colour": other} for other in COLOURS]

    @staticmethod
    def open_question(scene: Scene, colour: str) -> OpenQuestion:
        wordings = {other: (other,) for other in COLOURS}
        return OpenQuestion("Which colour is the most frequent?", by_number(scene)[0], wordings)

    @staticmethod
    def auxiliary_words(pair: Pair) -> list[str]:
        return [pair[1], *pair[1:]]


class NoPair(Mode):
    """Whether a colour is there. Its scenes are all alike; only queries are held out."""

    query = "There is {colour:a} object."
    held_out = {"queries": [("yellow",)]}
    pair = staticmethod(SimpleTask.pair)

    @staticmethod
    def truth(scene: Scene, colour: str) -> bool:
        return any(one.colour == colour for one in scene)

    def scene(self, random: Random, arguments: Arguments, answer: bool) -> Scene:
        but = [] if answer else [arguments["colour"]]
        return self.place(random, random.choices(self.names(but=but), k=8))
