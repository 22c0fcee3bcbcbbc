"""A vectorised task about three nouns: `There are more circles than squares and stars together.`"""

from __future__ import annotations

import itertools

import numpy as np

from travlr.config import Config, RangeFrom0
from travlr.scene import Scene, objects_of
from travlr.tasks.base import Arguments, CellsOf, OpenQuestion, Pair
from travlr.tasks.vectorised import SIDES, Draw, Task, Template, choose_from

SIGNS = {"more": 1, "fewer": -1}


class Together(Config):
    task: str = "together"
    distractors: RangeFrom0 = (1, 4)


class TogetherTask(Task):
    """Which objects are more.

    Groups: the objects of each noun, the distractors. The pair is the number of the first and of the other two.
    """

    Config = Together
    query = "There are {word} {first:nouns} than {second:nouns} and {third:nouns} together."
    arguments = {"word": list(SIGNS), "first": "shapes", "second": "shapes", "third": "shapes"}
    decided_by = "counts"
    axes = {"together": ("number of the first", "number of the others")}

    @staticmethod
    def truth(scene: Scene, word: str, first: str, second: str, third: str) -> bool:
        a, b, c = (len(objects_of(scene, noun)) for noun in (first, second, third))
        return (a - b - c) * SIGNS[word] > 0

    @staticmethod
    def pair(scene: Scene, word: str, first: str, second: str, third: str) -> Pair:
        a, b, c = (len(objects_of(scene, noun)) for noun in (first, second, third))
        return "together", str(a), str(b + c)

    @staticmethod
    def recount(cells: CellsOf, word: str, first: str, second: str, third: str) -> tuple[bool, Pair]:
        one, rest = cells[first], cells[second] | cells[third]
        answer = len(one) > len(rest) if word == "more" else len(one) < len(rest)
        return answer, ("together", str(len(one)), str(len(rest)))

    @staticmethod
    def alternatives(scene: Scene, word: str, first: str, second: str, third: str) -> list[Arguments]:
        return [{"word": other, "first": first, "second": second, "third": third} for other in SIGNS]

    @staticmethod
    def open_question(scene: Scene, word: str, first: str, second: str, third: str) -> OpenQuestion:
        return OpenQuestion(f"How many {first}s are there?", str(len(objects_of(scene, first))))

    @staticmethod
    def auxiliary_words(pair: Pair) -> list[str]:
        return ["more" if int(pair[1]) > int(pair[2]) else "fewer", *pair[1:]]

    config: Together

    def build(self) -> None:
        for side, (word, sign) in itertools.product(SIDES, SIGNS.items()):
            nouns = [n for n in itertools.permutations(self.world.shapes, 3) if ("star" in n) == (side == "out")]
            texts = [self.query_number(word, *names) for names in nouns]
            numbers = [p for p in itertools.permutations(range(2, 7), 2) if (abs(p[0] - p[1]) > 2) == (side == "out")]
            self.add_ordered_template(side, "together", numbers, sign, texts)
        self.set_groups([self.noun_groups(*query.args[1:]) for query in self.queries], 12 + self.config.distractors[1])
        self._values = np.array([[int(a), int(b)] for _, a, b in self.pairs])

    def group_counts(self, draw: Draw) -> np.ndarray:
        first, rest = self._values[draw.pair].T
        second = choose_from((np.ones_like(rest), rest - 1), draw.words[:, 2])
        return np.stack([first, second, rest - second, choose_from(self.config.distractors, draw.words[:, 1])], axis=1)

    def capacity(self, template: Template) -> int:
        values = self._values[[*template.true_pairs, *template.false_pairs]].tolist()
        return min(self.fewest_scenes(int(template.texts[0]), {0: a, 1: 1, 2: b - 1}) for a, b in values)
