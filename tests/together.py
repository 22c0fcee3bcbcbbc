"""A task about three nouns: `There are more circles than squares and stars together.`"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from render.text import parse_noun, plural
from travlr.config import Config, RangeFrom0
from travlr.scene import Scene, objects_of
from travlr.tasks.base import SIDES, CellsOf, Draw, OpenQuestion, Pair, Task, Template, choose_from

SIGNS = {"more": 1, "fewer": -1}


class Together(Config):
    task: str = "together"
    distractors: RangeFrom0 = (1, 4)


class TogetherTask(Task):
    """Groups: the objects of each noun, the distractors. The pair is the number of the first and of the other two."""

    name, title, Config = "together", "which objects are more", Together
    object_arguments = (1, 2, 3)
    decided_by = "counts"
    pattern = re.compile(r"There are (more|fewer) ([\w ]+?) than ([\w ]+?) and ([\w ]+?) together\.")
    vocabulary_arguments = tuple((word, "circle", "square", "star") for word in SIGNS)
    axes = {"together": ("number of the first", "number of the others")}

    @staticmethod
    def text(args: Sequence[Any]) -> str:
        return f"There are {args[0]} {plural(args[1])} than {plural(args[2])} and {plural(args[3])} together."

    @staticmethod
    def parse(match: re.Match[str]) -> tuple[Any, ...]:
        return match[1], *map(parse_noun, match.groups()[1:])

    @staticmethod
    def truth(scene: Scene, args: Sequence[Any]) -> tuple[bool, Pair]:
        a, b, c = (len(objects_of(scene, noun)) for noun in args[1:])
        return (a - b - c) * SIGNS[args[0]] > 0, ("together", str(a), str(b + c))

    @staticmethod
    def recount(args: Sequence[Any], cells: CellsOf) -> tuple[bool, Pair]:
        first, rest = cells[args[1]], cells[args[2]] | cells[args[3]]
        answer = len(first) > len(rest) if args[0] == "more" else len(first) < len(rest)
        return answer, ("together", str(len(first)), str(len(rest)))

    @staticmethod
    def alternatives(scene: Scene, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        return [(word, *args[1:]) for word in SIGNS]

    @staticmethod
    def open_question(scene: Scene, args: Sequence[Any]) -> OpenQuestion:
        return OpenQuestion(f"How many {plural(args[1])} are there?", str(len(objects_of(scene, args[1]))))

    @staticmethod
    def predicate(args: Sequence[Any]) -> str:
        return str(args[0])

    @staticmethod
    def auxiliary_words(pair: Pair) -> list[str]:
        return ["more" if int(pair[1]) > int(pair[2]) else "fewer", *pair[1:]]

    config: Together

    def build(self) -> None:
        self.most_objects = 12 + self.config.distractors[1]
        for side, (word, sign) in itertools.product(SIDES, SIGNS.items()):
            nouns = [n for n in itertools.permutations(self.world.shapes, 3) if ("star" in n) == (side == "out")]
            texts = [self.query_number(word, *names) for names in nouns]
            self.add_ordered_template(side, "together", self._numbers(side), sign, texts)
        self.group_kinds = np.array([self.noun_groups(*query.args[1:]) for query in self.queries])
        self._values = np.array([[int(a), int(b)] for _, a, b in self.pairs])

    def _numbers(self, side: str) -> list[tuple[int, int]]:
        pairs = itertools.permutations(range(2, 7), 2)
        return [(a, b) for a, b in pairs if (abs(a - b) > 2) == (side == "out")]

    def held_out(self) -> dict[str, Any]:
        shapes = itertools.combinations(sorted(self.world.shapes), 3)
        return {
            "pairs": [["together", str(a), str(b)] for a, b in self._numbers("out")],
            "queries": [list(names) for names in shapes if "star" in names],
        }

    def group_counts(self, draw: Draw) -> np.ndarray:
        first, rest = self._values[draw.pair].T
        second = choose_from((np.ones_like(rest), rest - 1), draw.words[:, 2])
        return np.stack([first, second, rest - second, choose_from(self.config.distractors, draw.words[:, 1])], axis=1)

    def capacity(self, template: Template) -> int:
        values = self._values[[*template.true_pairs, *template.false_pairs]].tolist()
        return min(self.fewest_scenes(int(template.texts[0]), {0: a, 1: 1, 2: b - 1}) for a, b in values)
