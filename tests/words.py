"""Tasks whose pairs hold no numbers: `Most objects are red.`, with pairs of two words and of one."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from travlr.config import Config
from travlr.scene import Scene, World
from travlr.tasks.base import SIDES, CellsOf, Draw, OpenQuestion, Pair, Task, Template, choose_from

COLOURS = tuple(World().colours)
TOP, BOTTOM = 5, 1  # objects of the most and of the least frequent colour; the others have two or three


class Majority(Config):
    task: str = "majority"


class MajorityTask(Task):
    """Groups: the objects of each colour. The pair is the most and the least frequent colour."""

    name, title, Config = "majority", "which colour is the most frequent", Majority
    object_arguments = (0,)
    decided_by = "counts"
    pattern = re.compile(r"Most objects are (\w+)\.")
    vocabulary_arguments = tuple((colour,) for colour in COLOURS)
    axes = {"majority": ("most frequent colour", "least frequent colour")}

    @staticmethod
    def text(args: Sequence[Any]) -> str:
        return f"Most objects are {args[0]}."

    @staticmethod
    def parse(match: re.Match[str]) -> tuple[Any, ...]:
        return (match[1],)

    @classmethod
    def pair(cls, colours: Sequence[str]) -> Pair:
        """The pair of a scene from its colours, the most frequent one first."""
        return ("majority", colours[0], colours[-1])

    @classmethod
    def truth(cls, scene: Scene, args: Sequence[Any]) -> tuple[bool, Pair]:
        colours = [colour for colour, _ in Counter(one.colour for one in scene).most_common()]
        return colours[0] == args[0], cls.pair(colours)

    @classmethod
    def recount(cls, args: Sequence[Any], cells: CellsOf) -> tuple[bool, Pair]:
        colours = sorted((c for c in COLOURS if cells[c]), key=lambda colour: -len(cells[colour]))
        return all(len(cells[args[0]]) > len(cells[c]) for c in colours if c != args[0]), cls.pair(colours)

    @staticmethod
    def alternatives(scene: Scene, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        return [(colour,) for colour in COLOURS]

    @staticmethod
    def open_question(scene: Scene, args: Sequence[Any]) -> OpenQuestion:
        return OpenQuestion(
            "Which colour is the most frequent?", Counter(one.colour for one in scene).most_common(1)[0][0]
        )

    @staticmethod
    def auxiliary_words(pair: Pair) -> list[str]:
        return [pair[1], *pair[1:]]

    def build(self) -> None:
        self.most_objects = TOP + BOTTOM + 3 * 3
        for side, colours in self._sides().items():
            pairs = {p: self.pair_number(self.pair(p)) for p in itertools.permutations(colours, 2)}
            for colour in colours:
                true, false = ([n for p, n in pairs.items() if p[place] == colour] for place in (0, 1))
                self.add_template(side, true, false, [self.query_number(colour)])
        groups = [self.kind_list(self.world.matching(colour)) for colour in COLOURS]
        self.group_kinds = np.array([groups for _ in self.queries])
        self._ends = np.array([[COLOURS.index(word) for word in (pair[-2:] * 2)[-2:]] for pair in self.pairs])

    @staticmethod
    def _sides() -> dict[str, tuple[str, ...]]:
        return dict(zip(SIDES, (COLOURS[:3], COLOURS[3:]), strict=True))

    def held_out(self) -> dict[str, Any]:
        colours = self._sides()["out"]
        pairs = [list(self.pair(p)) for p in itertools.permutations(colours, 2)]
        return {"pairs": pairs, "queries": [[colour] for colour in colours]}

    def _bottom(self, draw: Draw) -> np.ndarray:
        return self._ends[draw.pair, 1]

    def group_counts(self, draw: Draw) -> np.ndarray:
        columns = [choose_from((2, 3), draw.words[:, place]) for place in range(len(COLOURS))]
        counts, rows = np.stack(columns, axis=1), np.arange(len(draw.pair))
        counts[rows, self._bottom(draw)] = BOTTOM
        counts[rows, self._ends[draw.pair, 0]] = TOP
        return counts

    def capacity(self, template: Template) -> int:
        return self.fewest_scenes(int(template.texts[0]), {0: TOP, 1: BOTTOM, 2: 2, 3: 2, 4: 2})


class Mode(Majority):
    task: str = "mode"


class ModeTask(MajorityTask):
    """The same with one word in a pair, the most frequent colour, and without all that a task may leave out."""

    name, title, Config = "mode", "which colour is the most frequent", Mode
    pattern = re.compile(r"The most frequent colour is (\w+)\.")
    axes = {colour: () for colour in COLOURS}

    @staticmethod
    def text(args: Sequence[Any]) -> str:
        return f"The most frequent colour is {args[0]}."

    @classmethod
    def pair(cls, colours: Sequence[str]) -> Pair:
        return (colours[0],)

    auxiliary_words = staticmethod(Task.auxiliary_words)
    recount = staticmethod(Task.recount)  # type: ignore[assignment]
    alternatives = staticmethod(Task.alternatives)
    open_question = staticmethod(Task.open_question)  # type: ignore[assignment]

    def build(self) -> None:
        self.most_objects = TOP + 4 * 3
        for side, colours in self._sides().items():
            pairs = [self.pair_number((colour,)) for colour in colours]
            texts = [self.query_number(colour) for colour in colours]
            shifts = np.array([np.roll(np.arange(len(pairs)), shift) for shift in range(1, len(pairs))])
            self.add_template(side, pairs, pairs, texts, shifts, by_pair=True)
        groups = [self.kind_list(self.world.matching(colour)) for colour in COLOURS]
        self.group_kinds = np.array([groups for _ in self.queries])
        self._ends = np.array([[COLOURS.index(pair[0])] * 2 for pair in self.pairs])
