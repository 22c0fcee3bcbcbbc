"""Cardinality: `There are 3 circle objects.`

The pair is an attribute and its number in the scene (section 3 and appendix A of the paper).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from pydantic import Field, field_validator, model_validator

import splits
from render.text import plural
from travlr.config import STRICT, Config, RangeFrom0, RangeFrom1
from travlr.sampling import streams
from travlr.scene import Scene, objects_of
from travlr.tasks.base import Arguments, CellsOf, OpenQuestion, Pair, Steps
from travlr.tasks.exchange import check_exchange, exchange_numbers
from travlr.tasks.language import say_places
from travlr.tasks.vectorised import MATCHINGS, SIDES, Draw, Task, Template, choose_from, numbers_of

ALIKE = 2  # with preset=strict, at most so many unchanged attributes have the number that the query names


class Cardinality(Config):
    presets = {
        "released": {"held_out": {"pentagon": [4, 6]}},
        "strict": STRICT | {"numbers": [2, 7], "total_objects": [9, 24], "distractors": [2, 22]},
    }

    task: str = "cardinality"
    numbers: RangeFrom1 = Field((1, 6), description="how many queried objects: lowest, highest")
    distractors: RangeFrom0 = Field((1, 10), description="how many other objects: lowest, highest")
    total_objects: RangeFrom1 = Field(
        (7, 11), description="how many objects in all, whatever the queried number is (not with preset=released)"
    )
    held_out: dict[str, tuple[int, ...]] = Field(
        {}, description="numbers by attribute, such as +held_out.circle=[2,3]; the paper's for attributes not given"
    )

    @field_validator("held_out")
    @classmethod
    def _sorted(cls, held_out: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        return dict(sorted(held_out.items()))  # one order, one manifest

    @model_validator(mode="after")
    def _check(self) -> Cardinality:
        check_exchange(self, self.numbers)
        return self


class CardinalityTask(Task):
    """How many objects there are.

    Groups: the objects of each attribute; with `preset=released` the queried objects and the others.

    With `preset=strict` there is one group of all objects; `exchange` adds the attribute that queries name.
    """

    Config = Cardinality
    query = "There {number:is|are} {number} {attribute} object{number:|s}."
    arguments = {"number": int, "attribute": "nouns"}
    decided_by = "count"
    axes = {"": ("queried objects", "their number in the scene")}

    @staticmethod
    def truth(scene: Scene, number: int, attribute: str) -> bool:
        return len(objects_of(scene, attribute)) == number

    @staticmethod
    def pair(scene: Scene, number: int, attribute: str) -> Pair:
        return attribute, str(len(objects_of(scene, attribute)))

    @staticmethod
    def recount(cells: CellsOf, number: int, attribute: str) -> tuple[bool, Pair]:
        queried = cells[attribute]
        return len(queried) == number, (attribute, str(len(queried)))

    @staticmethod
    def alternatives(scene: Scene, number: int, attribute: str) -> list[Arguments]:
        """Four of the block of six numbers (1 to 6, 7 to 12, ...) that holds the right one."""
        right = len(objects_of(scene, attribute))
        first = 6 * ((max(right, 1) - 1) // 6) + 1
        others = [n for n in range(first, first + 6) if n != right]
        key = streams.stream_key("alternatives", repr(scene), str((number, attribute)))
        draw = streams.words(key, 0, 1, len(others))[0]
        numbers = sorted([right, *(others[i] for i in draw.argsort()[:3])])
        return [{"number": n, "attribute": attribute} for n in numbers]

    @staticmethod
    def open_question(scene: Scene, number: int, attribute: str) -> OpenQuestion:
        return OpenQuestion(f"How many {attribute} objects are there?", str(len(objects_of(scene, attribute))))

    @staticmethod
    def steps(scene: Scene, number: int, attribute: str) -> Steps:
        objects = objects_of(scene, attribute)
        return Steps(f"{say_places(plural(attribute), objects)} That is {len(objects)}.", str(number))

    @staticmethod
    def auxiliary_words(pair: Pair) -> list[str]:
        return [pair[1], pair[1]]

    # Scenes -------------------------------------------------------------------------------------------------------

    config: Cardinality

    def build(self) -> None:
        config, numbers = self.config, numbers_of(self.config.numbers)
        self._attributes = self.world.attributes(config.query_by)
        self._held_out_numbers = self._read_held_out(numbers)
        self._allowed = {a: [n for n in numbers if n not in self._held_out_numbers[a]] for a in self._attributes}
        templates: list[tuple[str, list[int], list[int]]] = []
        for side, attribute in itertools.product(SIDES, self._attributes):
            of_side = [n for n in numbers if (n in self._held_out_numbers[attribute]) == (side == "out")]
            if len(of_side) == 1:
                raise ValueError(
                    f"held_out: {attribute} has one number {'to train on' if side == 'in' else 'held out'}, so no "
                    "false query can name another; give it none or at least two"
                )
            pairs = [self.pair_number((attribute, n)) for n in of_side]
            templates.append((side, pairs, [self.query_number(n, attribute) for n in of_side]))
        self._of_pair = np.array([(self._attributes.index(a), int(n)) for a, n in self.pairs])  # (attribute, number)
        self.set_groups([self._groups_of(query.args[1]) for query in self.queries], self._totals(numbers[-1])[1])
        if len(self._attributes) < 2 and config.distractors[1]:
            raise ValueError("world: no kind of object is left for a distractor; add colours or shapes")
        self._query_numbers = numbers if self.exchanged else [-1]
        if not config.released:
            self._ways = self._count_ways()
        if self.exchanged:
            self._options = self._exchanges([pairs for _, pairs, _ in templates])
        else:
            self._check_totals(numbers)
        for side, pairs, texts in templates:
            self.add_template(side, pairs, pairs, texts, self._matchings(pairs), by_pair=True)

    def _groups_of(self, attribute: str) -> list[int]:
        if self.exchanged:
            return [self.kind_list(range(1, 1 + len(self.world.matching(attribute))))]
        if not self.config.released:
            return [self.kind_list(self.world.matching(a)) for a in self._attributes]
        return self.noun_groups(attribute)

    def _read_held_out(self, numbers: list[int]) -> dict[str, list[int]]:
        for attribute, held_out in self.config.held_out.items():
            if attribute not in self._attributes or any(n not in numbers for n in held_out):
                raise ValueError(
                    f"held_out.{attribute}={held_out}: needs one of {', '.join(self._attributes)} "
                    f"with numbers from {numbers[0]} to {numbers[-1]}"
                )
        default = splits.held_out_numbers(self._attributes, numbers)
        return {a: sorted(self.config.held_out.get(a, default[a])) for a in self._attributes}

    def _totals(self, number: int) -> tuple[int, int]:
        """Lowest and highest total number of objects of scenes with a queried number."""
        if not self.config.released:
            return self.config.total_objects[0], self.config.total_objects[1]
        return number + self.config.distractors[0], number + self.config.distractors[1]

    def _check_totals(self, numbers: list[int]) -> None:
        low, high = self.config.distractors
        for q, attribute in enumerate(self._attributes):
            for n in numbers:
                for total in range(self._totals(n)[0], self._totals(n)[1] + 1):
                    if not low <= total - n <= high:
                        raise ValueError(
                            f"total_objects={self.config.total_objects}: a total of {total} with {n} queried objects "
                            f"(numbers={self.config.numbers}) leaves {total - n} distractors, outside "
                            f"distractors={self.config.distractors}"
                        )
                    if not self.config.released and not self._ways[q, 0, 0, 0, 0, total - n]:
                        raise ValueError(
                            f"distractors: no numbers that are in the training pairs add up to "
                            f"{total - n} beside {n} {attribute} objects; change total_objects, held_out or the world"
                        )

    def _count_ways(self) -> np.ndarray:
        """ways[q, p, a, u, j, d]: in how many ways attributes from the j-th on, but not q-th and p-th, have d objects.

        u of them have the number `self._query_numbers[a]`. Without exchanges there are no p, a and u: their axes have
        length 1.
        """
        most = max(self.config.distractors[1], self.config.total_objects[1])
        count = len(self._attributes)
        attribute = np.arange(count)
        partners, alike = (attribute, ALIKE + 1) if self.exchanged else (attribute[:1], 1)
        ways = np.zeros((count, len(partners), len(self._query_numbers), alike, count + 1, most + 1), np.uint64)
        ways[:, :, :, 0, count, 0] = 1
        for j in range(count - 1, -1, -1):
            ways[..., j, :] = ways[..., j + 1, :]
            free = attribute[:, None] != j
            if self.exchanged:
                free = free & (partners[None, :] != j)
            for a, query_number in enumerate(self._query_numbers):
                for n in self._allowed[self._attributes[j]]:
                    same = int(n == query_number)
                    if n <= most and same < alike:
                        before = ways[:, :, a, : alike - same, j + 1, : most + 1 - n]
                        ways[:, :, a, same:, j, n:] += free[..., None, None] * before
        return ways

    def _matchings(self, pairs: list[int]) -> np.ndarray:
        """(R, L): ways to give each number of an attribute another one; with exchanges, one that it can exchange."""
        places = np.arange(len(pairs))
        shifts = np.array([np.roll(places, -shift) for shift in range(1, len(pairs))], np.intp)
        if not self.exchanged or not pairs:
            return shifts
        orders = np.array(list(itertools.permutations(places))) if len(pairs) <= 6 else shifts
        possible = self._options["number"][np.array(pairs)[:, None], np.array(pairs)[None, :], 0] > 0
        orders = orders[possible[places, orders].all(axis=1)]
        if not len(orders):
            attribute, _ = self.pairs[pairs[0]]
            numbers = ", ".join(self.pairs[pair][1] for pair in pairs)
            raise ValueError(
                f"preset=strict: not all of the numbers {numbers} of {attribute} objects can be exchanged with "
                f"those of another {self.config.query_by}; change numbers, distractors, total_objects, held_out or the "
                "world"
            )
        return orders[:: -(-len(orders) // MATCHINGS)]

    def _exchanges(self, attributes: list[list[int]]) -> dict[str, np.ndarray]:
        """For each true and false pair and each u: the partners and totals that an exchange may have, their number.

        The partner must have both numbers in training. u further attributes have the number that the query names. In
        the false scene the partner has it, too; as u is drawn from 0 to the most possible, this says little.
        attributes: the pairs of each attribute on each side.
        """
        low, high = self.config.distractors
        options: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
        for true, false in itertools.chain.from_iterable(itertools.permutations(pairs, 2) for pairs in attributes):
            (q, n), (_, m) = self._of_pair[true].tolist(), self._of_pair[false].tolist()
            for u in range(ALIKE + 1):
                options[true, false, u] = [
                    (p, total)
                    for p, partner in enumerate(self._attributes)
                    for total in numbers_of(self.config.total_objects)
                    if p != q
                    and {n, m} <= set(self._allowed[partner])
                    and total >= n + m
                    and low <= total - max(n, m)
                    and total - min(n, m) <= high
                    and self._ways[q, p, self._query_numbers.index(n), u, 0, total - n - m]
                ]
        shape = (len(self.pairs), len(self.pairs), ALIKE + 1)
        number = np.zeros(shape, np.intp)
        choices = np.zeros((*shape, max(1, *map(len, options.values())), 2), np.intp)
        for place, partners_and_totals in options.items():
            number[place] = len(partners_and_totals)
            choices[place][: len(partners_and_totals)] = np.array(partners_and_totals).reshape(-1, 2)
        return {"number": number, "choices": choices}

    def group_counts(self, draw: Draw) -> np.ndarray:
        queried, number = self._of_pair[draw.pair].T
        if self.exchanged:
            return self._exchange_of(draw)[1][:, 1:]
        if not self.config.released:
            rest = choose_from(self.config.total_objects, draw.words[:, 1]) - number
        else:
            rest = choose_from(self.config.distractors, draw.words[:, 1])
        if self.config.released:
            return np.stack([number, rest], axis=1)
        nothing = np.zeros_like(queried)
        counts = self._other_numbers(queried, None, nothing, nothing, rest, draw.words[:, 2])
        counts[np.arange(len(queried)), queried] = number
        return counts

    def _other_numbers(
        self,
        queried: np.ndarray,
        partner: np.ndarray | None,
        query_number: np.ndarray,
        alike: np.ndarray,
        rest: np.ndarray,
        word: np.ndarray,
    ) -> np.ndarray:
        """(N, attributes): numbers of the attributes but the queried one and its partner, which add up to `rest`.

        `alike` of them have the number that the query names, `self._query_numbers[query_number]`.
        """
        counts = np.zeros((len(queried), len(self._attributes)), np.intp)
        second = np.zeros_like(queried) if partner is None else partner
        # Both examples of a couple have the same word; their numbers differ where their rests differ.
        rank = word % self._ways[queried, second, query_number, alike, 0, rest]
        for j, attribute in enumerate(self._attributes):
            undecided = np.ones(len(queried), bool)
            free = queried != j if partner is None else (queried != j) & (partner != j)
            left = alike
            for n in [0, *self._allowed[attribute]]:
                after = alike - (n == np.array(self._query_numbers)[query_number])
                possible = undecided & (n <= rest) & ((n == 0) | free) & (after >= 0)
                ways = self._ways[queried, second, query_number, np.maximum(after, 0), j + 1, np.maximum(rest - n, 0)]
                ways = np.where(possible, ways, 0)
                has_number = possible & (rank < ways)
                counts[has_number, j] = n
                left = np.where(has_number, after, left)
                undecided &= ~has_number
                rank = np.where(undecided, rank - ways, rank)
            rest, alike = rest - counts[:, j], left
        return counts

    def _exchange_of(self, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
        """Of each couple: how many further attributes have the number asked for (N,); partner and total (N, 2)."""
        number = self._options["number"][draw.pair, draw.partner]
        possible = number > 0
        rank = draw.words[:, 3] % possible.sum(axis=1).astype(np.uint64)
        alike = (possible & (possible.cumsum(axis=1) == rank[:, None].astype(np.intp) + 1)).argmax(axis=1)
        choice = choose_from((0, number[np.arange(len(alike)), alike] - 1), draw.words[:, 1])
        return alike, self._options["choices"][draw.pair, draw.partner, alike, choice]

    def exchange(
        self, draw: Draw, grid: np.ndarray, keys: np.ndarray, words: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The queried attribute exchanges its number with another (circle 3 and star 4, circle 4 and star 3)."""
        rows = np.arange(len(grid))
        (queried, number), (_, other_number) = self._of_pair[draw.pair].T, self._of_pair[draw.partner].T
        alike, partners = self._exchange_of(draw)
        partner, total = partners.T
        query_number = number - self._query_numbers[0]
        numbers = self._other_numbers(
            queried, partner, query_number, alike, total - number - other_number, draw.words[:, 2]
        )
        numbers[rows, queried], numbers[rows, partner] = number, other_number
        kinds = np.array([self.world.matching(a) for a in self._attributes])
        exchanged = np.stack([queried, partner], axis=1)
        return exchange_numbers(kinds, numbers, exchanged, grid, keys, words)

    def capacity(self, template: Template) -> int:
        """Does not count the ways to share the cells out among attributes, so that it is never too high."""
        if self.exchanged:
            totals = {int(total) for q in template.true_pairs for total in self._options["choices"][q, ..., 1].ravel()}
            return min(self.fewest_scenes(int(template.texts[0]), {0: total}) for total in totals - {0})
        least = []
        for q in template.texts:
            number, attribute = self.queries[q].args
            others: list[Sequence[int]] = [self.others(attribute)]
            if not self.config.released:
                others = [self.world.matching(a) for a in self._attributes if a != attribute]
            kinds = min(len(group) for group in [self.world.matching(attribute), *others])
            for total in range(self._totals(number)[0], self._totals(number)[1] + 1):
                least.append(self.placements(self.world.cells, total) * kinds**total)
        return min(least)
