"""Numerical comparison: `There are more circles than squares.`

The pair is the numbers of the two, in the query's order (section 3 and appendix A of the paper).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from pydantic import Field, model_validator

import splits
from render.text import plural
from travlr.config import STRICT, Config, RangeFrom0, RangeFrom1
from travlr.sampling import streams
from travlr.scene import Scene, objects_of
from travlr.settings import Settings
from travlr.tasks.base import Arguments, CellsOf, OpenQuestion, Pair, Steps
from travlr.tasks.exchange import check_exchange, exchange_numbers
from travlr.tasks.language import say_places
from travlr.tasks.vectorised import SIDES, Draw, Task, Template, choose_from, numbers_of

COMPARISONS = {"more": 1, "fewer": -1}  # comparison -> sign of first minus second number when it is true
CHAIN = 4  # numbers in a scene with preset=strict: the two compared and two further ones


class HeldOutComparisons(Settings):
    """Which pairs and queries only test_ood shows."""

    differences_above: int = Field(
        3, description="larger differences between the two numbers are test_ood (not with preset=strict)"
    )
    attributes: tuple[tuple[str, ...], ...] | None = Field(
        None, description="unordered pairs; null for four of the 21 pairs of shapes"
    )


class Comparison(Config):
    presets = {"released": {}, "strict": STRICT | {"numbers": [2, 10], "distractors": [1, 20]}}

    task: str = "comparison"
    numbers: RangeFrom1 = Field((1, 9), description="how many of each of the two: lowest, highest")
    distractors: RangeFrom0 = Field((1, 10), description="how many other objects: lowest, highest")
    held_out: HeldOutComparisons = HeldOutComparisons()

    @model_validator(mode="after")
    def _check(self) -> Comparison:
        check_exchange(self, self.numbers)
        if self.exchanged and self.held_out.differences_above != HeldOutComparisons().differences_above:
            raise ValueError("held_out.differences_above: has no effect with preset=strict; leave it out")
        return self


class ComparisonTask(Task):
    """Which of two kinds of objects are more.

    Groups: the first attribute's objects, the second's, the distractors.

    With `preset=strict` there is one group of all objects; `exchange` adds the attribute that queries name.
    """

    Config = Comparison
    query = "There are {comparison} {first:nouns} than {second:nouns}."
    arguments = {"comparison": list(COMPARISONS), "first": "nouns", "second": "nouns"}
    decided_by = "counts"
    axes = {"comparison": ("number of the first", "number of the second")}

    @staticmethod
    def truth(scene: Scene, comparison: str, first: str, second: str) -> bool:
        return (len(objects_of(scene, first)) - len(objects_of(scene, second))) * COMPARISONS[comparison] > 0

    @staticmethod
    def pair(scene: Scene, comparison: str, first: str, second: str) -> Pair:
        return "comparison", str(len(objects_of(scene, first))), str(len(objects_of(scene, second)))

    @staticmethod
    def recount(cells: CellsOf, comparison: str, first: str, second: str) -> tuple[bool, Pair]:
        a, b = len(cells[first]), len(cells[second])
        answer = a > b if comparison == "more" else a < b
        return answer, ("comparison", str(a), str(b))

    @staticmethod
    def alternatives(scene: Scene, comparison: str, first: str, second: str) -> list[Arguments]:
        return [{"comparison": word, "first": first, "second": second} for word in COMPARISONS]

    @staticmethod
    def open_question(scene: Scene, comparison: str, first: str, second: str) -> OpenQuestion:
        counts = {attribute: len(objects_of(scene, attribute)) for attribute in (first, second)}
        if counts[first] == counts[second]:
            raise ValueError(f"there are as many {plural(first)} as {plural(second)}: {counts[first]}")
        wordings = {}
        for most, least in ((first, second), (second, first)):
            more = ("{0}", "more {0}", "most {0}", "more {0} than {1}", "{0} more than {1}", "{0} outnumber {1}")
            fewer = [f"{less} {form}" for less in ("fewer", "less") for form in ("{1}", "{1} than {0}")]
            forms = [*more, *fewer, "{1} fewer than {0}"]
            wordings[most] = tuple(form.format(plural(most), plural(least)) for form in forms)
        text = f"Which are there more of, {plural(first)} or {plural(second)}?"
        return OpenQuestion(text, max(counts, key=counts.__getitem__), wordings)

    @staticmethod
    def steps(scene: Scene, comparison: str, first: str, second: str) -> Steps:
        groups = {attribute: objects_of(scene, attribute) for attribute in (first, second)}
        counted = [f"{say_places(plural(name), group)} That is {len(group)}." for name, group in groups.items()]
        a, b = map(len, groups.values())
        return Steps(f"{' '.join(counted)} {a} is {'more' if a > b else 'fewer'} than {b}.", comparison)

    @staticmethod
    def auxiliary_words(pair: Pair) -> list[str]:
        return ["more" if int(pair[1]) > int(pair[2]) else "fewer", *pair[1:]]

    # Scenes -------------------------------------------------------------------------------------------------------

    config: Comparison

    def build(self) -> None:
        attributes = self.compared_attributes()
        self._kinds = np.array([self.world.matching(attribute) for attribute in attributes])
        unordered = [tuple(sorted(names)) for names in itertools.combinations(attributes, 2)]
        self._held_out_attributes = self._read_attributes(unordered, attributes)
        held_out = set(self._held_out_attributes)
        for side, (relation, sign) in itertools.product(SIDES, COMPARISONS.items()):
            nouns = [names for names in unordered if (names in held_out) == (side == "out")]
            orders = [order for names in nouns for order in (names, names[::-1])]
            texts = [self.query_number(relation, *names) for names in orders]
            self.add_ordered_template(side, "comparison", self._numbers_of_side(side), sign, texts)
        compared = [query.args[1:] for query in self.queries]
        if self.exchanged:
            groups = [[self.kind_list(range(1, 1 + self._kinds.shape[1]))] for _ in compared]
        else:
            groups = [self.noun_groups(*names) for names in compared]
        if self.config.distractors[1] and () in self.kind_lists:
            raise ValueError("world: no kind of object is left for a distractor; add colours or shapes")
        most = 2 * self.config.numbers[1] - 1 + self.config.distractors[1]
        self.set_groups(groups, min(most, self.world.cells) if self.exchanged else most)  # exchanged: fills the grid
        self._compared = np.array([[attributes.index(name) for name in names] for names in compared]).reshape(-1, 2)
        self._numbers = np.array([[int(a), int(b)] for _, a, b in self.pairs]).reshape(-1, 2)
        if self.exchanged:
            self._chain_of_pair = self._chains()

    def _numbers_of_side(self, side: str) -> list[tuple[int, int]]:
        """Ordered pairs of numbers."""
        numbers, held_out = numbers_of(self.config.numbers), self.config.held_out
        if self.exchanged:
            places = splits.both_orders(splits.balanced_pairs(len(numbers))[SIDES.index(side)])
            return sorted((numbers[a], numbers[b]) for a, b in places)
        pairs = itertools.permutations(numbers, 2)
        return [(a, b) for a, b in pairs if (abs(a - b) > held_out.differences_above) == (side == "out")]

    def _read_attributes(self, unordered: list[tuple[str, ...]], attributes: list[str]) -> list[tuple[str, ...]]:
        held_out = self.config.held_out.attributes
        if held_out is None:
            return list(splits.held_out_comparisons(attributes))
        for names in held_out:
            if tuple(sorted(names)) not in unordered:
                raise ValueError(f"held_out.attributes: {names} is not two different attributes of {attributes}")
        return [tuple(sorted(names)) for names in held_out]

    def group_counts(self, draw: Draw) -> np.ndarray:
        if self.exchanged:
            return self._all_numbers(draw).sum(axis=1, keepdims=True)
        distractors = choose_from(self.config.distractors, draw.words[:, 1])
        return np.concatenate([self._numbers[draw.pair], distractors[:, None]], axis=1)

    def _chains(self) -> np.ndarray:
        """(pairs, C, 2): for each pair of numbers, the numbers of two further attributes, repeated to equal length C.

        With the pair (a, b) they form a chain of four numbers in which neighbours are compared in the same split, so
        that one number and the numbers of all attributes say little about the other: mostly, a number has one
        neighbour below and one above. Raises `ValueError` where no chain fits.
        """
        low, high = self.config.distractors
        chains: list[list[tuple[int, ...]]] = [[] for _ in self.pairs]
        for side in SIDES:
            compared = self._numbers_of_side(side)
            for a, b in compared:
                less, more = min(a, b), max(a, b)
                chains[self.pair_number(("comparison", a, b))] = [
                    chain
                    for below in range(CHAIN - 1)
                    for down in _steps(less, below, -1, compared)
                    for chain in ((*down, *up) for up in _steps(more, CHAIN - 2 - below, 1, compared))
                    if low <= sum(chain) <= high and sum(chain) + a + b <= self.world.cells
                ]
        if not chains:
            return np.zeros((0, 1, CHAIN - 2), np.intp)  # the sampler refuses it
        if not all(chains) or len(self._kinds) < CHAIN:
            raise ValueError(
                f"preset=strict: distractors={self.config.distractors} must hold two further numbers, each "
                f"next to one compared, of two further {self.config.query_by}s; widen it, lower numbers, or enlarge "
                "the world"
            )
        most = max(map(len, chains))
        return np.array([[of_pair[i % len(of_pair)] for i in range(most)] for of_pair in chains])

    def _all_numbers(self, draw: Draw) -> np.ndarray:
        """(N, attributes): how many objects have each attribute in the true scene of a couple."""
        rows, compared = np.arange(len(draw.query)), self._compared[draw.query]
        numbers = np.zeros((len(rows), len(self._kinds)), np.intp)
        order = streams.mix(draw.words[:, 2, None] + np.arange(numbers.shape[1], dtype=np.uint64))
        order[rows[:, None], compared] = np.uint64(2**64 - 1)  # those compared come last
        chain = choose_from((0, self._chain_of_pair.shape[1] - 1), draw.words[:, 1])
        further = self._chain_of_pair[draw.pair, chain]
        np.put_along_axis(numbers, order.argsort(axis=1)[:, : CHAIN - 2], further, axis=1)
        np.put_along_axis(numbers, compared, self._numbers[draw.pair], axis=1)
        return numbers

    def exchange(
        self, draw: Draw, grid: np.ndarray, keys: np.ndarray, words: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The two compared attributes exchange their numbers."""
        compared = self._compared[draw.query]
        return exchange_numbers(self._kinds, self._all_numbers(draw), compared, grid, keys, words)

    def capacity(self, template: Template) -> int:
        query = int(template.texts[0])
        if self.exchanged:
            low = int(self._numbers[template.true_pairs].sum(axis=1).min()) + self.config.distractors[0]
            high = int(self._numbers[template.true_pairs].sum(axis=1).max()) + self.config.distractors[1]
            totals = range(low, min(high, self.world.cells) + 1)
            return min(self.fewest_scenes(query, {0: total}) for total in totals)
        numbers = self._numbers[[*template.true_pairs, *template.false_pairs]].tolist()
        return min(self.fewest_scenes(query, {0: a, 1: b, 2: self.config.distractors[0]}) for a, b in numbers)


def _steps(number: int, steps: int, sign: int, compared: Sequence[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
    """Numbers from a number on, up (1) or down (-1), each compared with the last; by one where nothing is compared."""
    if not steps:
        yield ()
        return
    near = [b for a, b in compared if a == number and (b - a) * sign > 0]
    for next_number in near or [max(number + sign, 0)]:
        for rest in _steps(next_number, steps - 1, sign, compared):
            yield (next_number, *rest)
