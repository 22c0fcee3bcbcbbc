"""The four tasks: their queries, the pairs that are in and out of distribution, and what a scene of each must hold.

Knows neither texts nor pixels. How examples are made of this is in `travlr.sampler`.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

import splits
from travlr import streams
from travlr.config import Cardinality, Comparison, Config, Quantifiers, Spatiality
from travlr.sampler import MATCHINGS, SIDES, Draw, Task, Template, choose_from
from travlr.scene import COMPARISONS, QUANTIFIER_FAMILIES, RELATIONS, column_name, row_name


class SpatialityTask(Task):
    """`The red circle is to the right of the blue square.` Pairs: columns, or rows, of the two, in the query's order.

    Groups: the first queried object, the second, the distractors (which neither attribute describes).
    """

    config: Spatiality
    places = True

    def build(self) -> None:
        world, attributes = self.world, self.world.attributes(self.config.query_by)
        self.most_objects = 2 + self.config.distractors[1]
        self._positions = {
            "horizontal": (world.columns, self._held_out_axis("columns", world.columns, column_name)),
            "vertical": (world.rows, self._held_out_axis("rows", world.rows, row_name)),
        }
        named = [(a, b) for a, b in itertools.combinations(sorted(attributes), 2)]
        self._held_out_objects = splits.hold_out_share(named, self.config.held_out.objects, "spatiality")
        apart = {"out": self._held_out_objects, "in": [n for n in named if n not in set(self._held_out_objects)]}
        lists = []
        coordinates: dict[int, tuple[int, int, int]] = {}
        for side in SIDES:
            for relation, (axis, sign) in RELATIONS.items():
                length, held_out = self._positions[axis]
                name = column_name if axis == "horizontal" else row_name
                true: list[int] = []
                false: list[int] = []
                for a, b in itertools.permutations(range(length), 2):
                    if ((a, b) in held_out) == (side == "out"):
                        number = self.pair_number((axis, name(a), name(b)))
                        coordinates[number] = (axis == "horizontal", a, b)
                        (true if (b - a) * sign > 0 else false).append(number)
                texts = []
                for unordered in apart[side]:
                    for first, second in (unordered, unordered[::-1]):
                        texts.append(self.query_number(first, relation, second))
                        kinds = (world.matching(first), world.matching(second), self.others(first, second))
                        lists.append([self.kind_list(k) for k in kinds])
                self.add_template(side, true, false, texts)
        if self.config.distractors[1] and any(not self.others(*n) for n in named):
            raise ValueError("world: no kind of object is left for a distractor; add colours or shapes")
        self.group_lists = np.array(lists).reshape(-1, 3)
        self._coordinates = np.array([coordinates[i] for i in range(len(self.pairs))]).reshape(-1, 3)

    def _held_out_axis(self, setting: str, length: int, name: Any) -> set[tuple[int, int]]:
        given = getattr(self.config.held_out, setting)
        if given is None:
            axis = "horizontal" if setting == "columns" else "vertical"
            return splits.both_orders(splits.held_out_positions(length, axis))
        names = [name(i) for i in range(length)]
        for p in given:
            if len(p) != 2 or len(set(p)) < 2 or any(str(part) not in names for part in p):
                raise ValueError(f"held_out.{setting}: {p} is not two different {setting} of {', '.join(names)}")
        return splits.both_orders([(names.index(str(a)), names.index(str(b))) for a, b in given])

    def held_out(self) -> dict[str, Any]:
        pairs = []
        for axis, (_, held_out) in self._positions.items():
            name = column_name if axis == "horizontal" else row_name
            pairs += [[axis, name(a), name(b)] for a, b in sorted(held_out)]
        return {"pairs": pairs, "queries": [list(names) for names in self._held_out_objects]}

    def group_counts(self, draw: Draw) -> np.ndarray:
        counts = np.ones((len(draw.query), 3), np.intp)
        counts[:, 2] = choose_from(self.config.distractors, draw.words[:, 1])
        return counts

    def _placements(self, counts: np.ndarray, draw: Draw) -> np.ndarray:
        """The queried objects are free along the other axis only."""
        radices = super()._placements(counts, draw)
        horizontal = self._coordinates[draw.pair, 0] == 1
        radices[:, :2] = np.where(horizontal, self.world.rows, self.world.columns)[:, None]
        return radices

    def _place(self, draw: Draw, counts: np.ndarray, ranks: np.ndarray, random: np.ndarray) -> np.ndarray:
        labels = np.full((len(counts), self.world.cells), -1, np.int8)
        axis, *coordinates = self._coordinates[draw.pair].T
        for g, along in enumerate(coordinates):
            across = ranks[:, g].astype(np.intp)
            cell = np.where(axis == 1, across * self.world.columns + along, along * self.world.columns + across)
            labels[np.arange(len(labels)), cell] = g
        return self._place_groups(labels, counts, ranks, random, first=2)

    def capacity(self, template: Template) -> int:
        axis = self.queries[template.texts[0]].args[1]
        across = self.world.rows if RELATIONS[axis][0] == "horizontal" else self.world.columns
        d = self.config.distractors[0]
        placements = math.comb(self.world.cells - 2, d) if self._ranked else 1
        return across**2 * min(self._scene_kinds(q, (1, 1, d)) for q in template.texts) * placements

    def _scene_kinds(self, query: int, counts: tuple[int, ...]) -> int:
        return math.prod(int(self._list_lengths[n]) ** c for n, c in zip(self.group_lists[query], counts, strict=True))


class CardinalityTask(Task):
    """`There are 3 circle objects.` Pairs: an attribute and its number in the scene.

    Groups with scope=scene: the objects of each attribute; with scope=queried: the queried objects and the others.
    """

    config: Cardinality

    def build(self) -> None:
        config, numbers = self.config, self.number_range()
        self._attributes = self.world.attributes(config.query_by)
        self._held_out_numbers = self._read_held_out(numbers)
        self._allowed = {a: [n for n in numbers if n not in self._held_out_numbers[a]] for a in self._attributes}
        lists, of_pair = [], {}
        for side in SIDES:
            for attribute in self._attributes:
                pairs, texts = [], []
                for n in numbers:
                    if (n in self._held_out_numbers[attribute]) == (side == "out"):
                        pairs.append(self.pair_number((attribute, n)))
                        of_pair[pairs[-1]] = (self._attributes.index(attribute), n)
                        texts.append(self.query_number(n, attribute))
                        named = self.world.matching(attribute)
                        groups = [self.world.matching(a) for a in self._attributes]
                        groups = groups if config.scope == "scene" else [named, self.others(attribute)]
                        lists.append([self.kind_list(g) for g in groups])
                if len(pairs) == 1:
                    raise ValueError(
                        f"held_out: {attribute} has one number {'to train on' if side == 'in' else 'held out'}, so no "
                        "false query can name another; give it none or at least two"
                    )
                shifts = [np.roll(np.arange(len(pairs)), -shift) for shift in range(1, len(pairs))]
                self.add_template(side, pairs, pairs, texts, np.array(shifts), by_pair=True)
        self.group_lists = np.array(lists)
        self._of_pair = np.array([of_pair[i] for i in range(len(self.pairs))])  # (attribute, number)
        self.most_objects = self._totals(numbers[-1])[1]
        if len(self._attributes) < 2 and config.distractors[1]:
            raise ValueError("world: no kind of object is left for a distractor; add colours or shapes")
        self._ways = self._count_ways() if config.scope == "scene" else None
        self._check_totals(numbers)

    def _read_held_out(self, numbers: list[int]) -> dict[str, list[int]]:
        given = self.config.held_out
        for attribute, held_out in given.items():
            if attribute not in self._attributes or any(n not in numbers for n in held_out):
                raise ValueError(
                    f"held_out.{attribute}={held_out}: needs one of {', '.join(self._attributes)} "
                    f"with numbers from {numbers[0]} to {numbers[-1]}"
                )
        default = splits.held_out_numbers(self._attributes, numbers)
        return {a: sorted(given.get(a, default[a])) for a in self._attributes}

    def held_out(self) -> dict[str, Any]:
        pairs = [[a, str(n)] for a in self._attributes for n in self._held_out_numbers[a]]
        return {"pairs": pairs, "queries": [[a, n] for a, n in pairs]}

    def _totals(self, number: int) -> tuple[int, int]:
        """Lowest and highest total number of objects of scenes with a queried number."""
        if self.config.total == "independent":
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
                            f"leaves {total - n} distractors, outside distractors={self.config.distractors}"
                        )
                    if self._ways is not None and not self._ways[q, 0, total - n]:
                        raise ValueError(
                            f"scope=scene: no numbers of distractors that are in the training pairs add up to "
                            f"{total - n} beside {n} {attribute} objects; change total_objects, held_out or the world"
                        )

    def _count_ways(self) -> np.ndarray:
        """ways[q, j, d]: in how many ways attributes from the j-th on, but not the q-th, can number d in all."""
        most = self.config.distractors[1]
        count = len(self._attributes)
        ways = np.zeros((count, count + 1, most + 1), np.uint64)
        ways[:, count, 0] = 1
        for q in range(count):
            for j in range(count - 1, -1, -1):
                for n in [0] if j == q else [0, *self._allowed[self._attributes[j]]]:
                    if n <= most:
                        ways[q, j, n:] += ways[q, j + 1, : most + 1 - n]
        return ways

    def group_counts(self, draw: Draw) -> np.ndarray:
        queried, number = self._of_pair[draw.pair].T
        if self.config.total == "independent":
            rest = choose_from(self.config.total_objects, draw.words[:, 1]) - number
        else:
            rest = choose_from(self.config.distractors, draw.words[:, 1])
        if self._ways is None:
            return np.stack([number, rest], axis=1)
        counts = np.zeros((len(queried), len(self._attributes)), np.intp)
        # Both examples of a couple have the same word here; what they make of it differs with their rests.
        rank = draw.words[:, 2] % self._ways[queried, 0, rest]
        for j, attribute in enumerate(self._attributes):
            open_ = np.ones(len(queried), bool)
            for n in [0, *self._allowed[attribute]]:
                possible = open_ & (n <= rest) & ((n == 0) | (queried != j))
                ways = np.where(possible, self._ways[queried, j + 1, np.maximum(rest - n, 0)], 0)
                here = possible & (rank < ways)
                counts[here, j] = n
                open_ &= ~here
                rank = np.where(open_, rank - ways, rank)
            rest = rest - counts[:, j]
        counts[np.arange(len(queried)), queried] = number
        return counts

    def capacity(self, template: Template) -> int:
        """Without the ways to share the cells out among attributes: never more than there are."""
        least = []
        for q in template.texts:
            number, attribute = self.queries[q].args
            others = (
                [self.others(attribute)]
                if self.config.scope == "queried"
                else [self.world.matching(a) for a in self._attributes if a != attribute]
            )
            kinds = min(len(group) for group in [self.world.matching(attribute), *others])
            for total in range(self._totals(number)[0], self._totals(number)[1] + 1):
                least.append((math.comb(self.world.cells, total) if self._ranked else 1) * kinds**total)
        return min(least)


class QuantifiersTask(Task):
    """`Not all the circle objects are red objects.` Pairs: Table 1's two numbers for the quantifier that is true.

    Groups: `REGIONS`. The two scenes of a couple share the size of the region that both their pairs name, as far as
    the held-out pairs allow, the size of the third region, and the total number of objects.
    """

    config: Quantifiers

    def build(self) -> None:
        config, numbers = self.config, self.number_range()
        self.most_objects = 3 * numbers[-1] + config.distractors[1]
        if config.third_region == "empty":
            self.most_objects -= numbers[-1]
        if config.total == "independent":  # a couple's smaller scene has as many: with the most distractors
            self.most_objects = min(self.most_objects, 2 * numbers[-1] + config.distractors[1])
        names = [(s, c) for s in self.world.shapes for c in self.world.colours]
        held_out_names = self._read_names(names)
        held_out = self._read_numbers(numbers)
        grid = list(itertools.product(numbers, numbers))
        lists: list[list[int]] = []
        regions: dict[int, tuple[int, int, int, int, int]] = {}
        for side in SIDES:
            pairs: dict[str, list[tuple[int, int]]] = {}
            for family in QUANTIFIER_FAMILIES:
                for quantifier in family:
                    out = {p[::-1] for p in held_out} if quantifier == "some" else set(held_out)
                    pairs[quantifier] = [p for p in grid if (p in out) == (side == "out")]
            named = [n for n in names if (n in held_out_names) == (side == "out")]
            for (vacant, other), roles in QUANTIFIER_FAMILIES.items():
                ids = {}
                for quantifier in (vacant, other):
                    ids[quantifier] = [self.pair_number((quantifier, *p)) for p in pairs[quantifier]]
                    for number, (a, b) in zip(ids[quantifier], pairs[quantifier], strict=True):
                        regions[number] = (quantifier == vacant, a, b, roles["shared"], roles["decides"])
                if not ids[vacant]:
                    continue
                matchings = self._matchings(side, vacant, pairs[vacant], pairs[other])
                for quantifier, opposite, matching in (
                    (vacant, other, matchings),
                    (other, vacant, matchings.argsort(axis=1)),
                ):
                    texts = []
                    for shape, colour in named:
                        orders = {"shape": [(shape, colour)], "colour": [(colour, shape)]}
                        for first, second in orders.get(config.query_by, [(shape, colour), (colour, shape)]):
                            texts.append(self.query_number(quantifier, first, second))
                            lists.append(self._region_lists(first, second))
                    self.add_template(side, ids[quantifier], ids[opposite], texts, matching)
        self.group_lists = np.array(lists).reshape(-1, 4)
        self._pair_table = np.array([regions[i] for i in range(len(self.pairs))]).reshape(-1, 5)
        self._held_out = (held_out, held_out_names)

    def _read_names(self, names: list[tuple[str, str]]) -> list[tuple[str, str]]:
        given = self.config.held_out.attributes
        if given is None:
            return splits.held_out_attributes(self.world.shapes, self.world.colours)
        for item in given:
            if tuple(item) not in names:
                raise ValueError(f"held_out.attributes: {item} is not [shape, colour] of this world")
        return [(s, c) for s, c in given]

    def _read_numbers(self, numbers: list[int]) -> list[tuple[int, int]]:
        given = self.config.held_out.numbers
        if given is None:
            return [p for p in splits.held_out_numbers_of_quantifiers(numbers[-1]) if min(p) >= numbers[0]]
        for item in given:
            if len(item) != 2 or any(n not in numbers for n in item):
                raise ValueError(f"held_out.numbers: {item} is not two numbers from {numbers[0]} to {numbers[-1]}")
        return [(a, b) for a, b in given]

    def held_out(self) -> dict[str, Any]:
        numbers, names = self._held_out
        pairs = []
        for family in QUANTIFIER_FAMILIES:
            for quantifier in family:
                pairs += [
                    [quantifier, str(a), str(b)] for a, b in (p[::-1] if quantifier == "some" else p for p in numbers)
                ]
        return {"pairs": pairs, "queries": [list(n) for n in names]}

    def _region_lists(self, first: str, second: str) -> list[int]:
        x, y = set(self.world.matching(first)), set(self.world.matching(second))
        rest = self.others(first, second)
        if not x - y or not y - x or (self.config.distractors[1] and not rest):
            raise ValueError("world: quantifiers need at least two colours and two shapes")
        return [self.kind_list(sorted(kinds)) for kinds in (x & y, x - y, y - x, rest)]

    def _matchings(
        self, side: str, vacant: str, vacant_pairs: list[tuple[int, int]], other_pairs: list[tuple[int, int]]
    ) -> np.ndarray:
        """(R, L): for each pair of the vacant quantifier one of the other, with the same shared number where it can.

        So the size of the shared region says as little about the truth as the held-out pairs allow.
        """
        words = iter(streams.words(self._key(side, "matchings", vacant), 0, 1 << 15, 2 * len(vacant_pairs)))
        found = []
        for word in words:
            v_word, o_word = word[: len(vacant_pairs)], word[len(vacant_pairs) :]
            matching = np.full(len(vacant_pairs), -1)
            left: list[int] = []
            rows: dict[int, list[int]] = {}
            for o in np.argsort(o_word):
                rows.setdefault(other_pairs[o][0], []).append(int(o))
            for v in np.argsort(v_word):
                row = rows.get(vacant_pairs[v][0])
                if row:
                    matching[v] = row.pop()
                else:
                    left.append(int(v))
            matching[left] = [o for row in rows.values() for o in row]
            if all(self._total_range(vacant_pairs[v], other_pairs[o]) for v, o in enumerate(matching)):
                found.append(matching)
                if len(found) == MATCHINGS:
                    return np.array(found)
        raise ValueError(
            f"distractors={self.config.distractors}: too narrow a range to give {vacant} and its complement the same "
            "total number of objects; widen it by the highest of numbers, or set total=released"
        )

    def _total_range(self, vacant_pair: tuple[int, int], other_pair: tuple[int, int]) -> tuple[int, int] | None:
        """Totals that both scenes of a couple can have, lowest and highest."""
        if self.config.total == "released":
            return 0, 0
        spare = vacant_pair[1] if self.config.third_region == "matched" else 0
        sizes = sum(vacant_pair), sum(other_pair) + spare
        low, high = max(sizes) + self.config.distractors[0], min(sizes) + self.config.distractors[1]
        return (low, high) if low <= high else None

    def group_counts(self, draw: Draw) -> np.ndarray:
        own, partner = self._pair_table[draw.pair], self._pair_table[draw.partner]
        is_vacant = own[:, 0] == 1
        vacant = np.where(is_vacant[:, None], own, partner)
        other = np.where(is_vacant[:, None], partner, own)
        spare_of_other = vacant[:, 2] if self.config.third_region == "matched" else np.zeros(len(own), np.intp)
        rows = np.arange(len(own))
        counts = np.zeros((len(own), 4), np.intp)
        counts[rows, own[:, 3]] = own[:, 1]
        counts[rows, own[:, 4]] = np.where(is_vacant, 0, other[:, 2])
        counts[rows, 3 - own[:, 3] - own[:, 4]] = np.where(is_vacant, vacant[:, 2], spare_of_other)
        low, high = self.config.distractors
        if self.config.total == "released":
            counts[:, 3] = choose_from((low, high), draw.words[:, 1] ^ streams.mix(draw.pair.astype(np.uint64)))
        else:
            sizes = np.stack([vacant[:, 1:3].sum(axis=1), other[:, 1:3].sum(axis=1) + spare_of_other])
            total = choose_from((sizes.max(axis=0) + low, sizes.min(axis=0) + high), draw.words[:, 1])
            counts[:, 3] = total - counts.sum(axis=1)
        return counts

    def capacity(self, template: Template) -> int:
        least = []
        for number in {*template.true_pairs.tolist(), *template.false_pairs.tolist()}:
            vacant, a, b, shared, decides = self._pair_table[number].tolist()
            total = a + b + self.config.distractors[0]
            placements = math.comb(self.world.cells, total) if self._ranked else 1
            region = 3 - shared - decides if vacant else decides
            kinds = {shared: a, region: b, 3: self.config.distractors[0]}
            for q in (template.texts[0], template.texts[-1]):
                lengths = self._list_lengths[self.group_lists[q]].tolist()
                least.append(placements * math.prod(lengths[g] ** n for g, n in kinds.items()))
        return min(least)


class ComparisonTask(Task):
    """`There are more circles than squares.` Pairs: the numbers of the two, in the query's order.

    Groups: the first attribute's objects, the second's, the distractors.
    """

    config: Comparison

    def build(self) -> None:
        config, numbers = self.config, self.number_range()
        attributes = self.world.attributes(config.query_by)
        self.most_objects = 2 * numbers[-1] - 1 + config.distractors[1]
        names = [tuple(sorted(n)) for n in itertools.combinations(attributes, 2)]
        held_out_names = self._read_names(names, attributes)
        largest = config.held_out.differences_above
        lists, of_pair = [], {}
        for side in SIDES:
            named = [n for n in names if (n in held_out_names) == (side == "out")]
            for relation, sign in COMPARISONS.items():
                true: list[int] = []
                false: list[int] = []
                for a, b in itertools.permutations(numbers, 2):
                    if (abs(a - b) > largest) == (side == "out"):
                        number = self.pair_number(("comparison", a, b))
                        of_pair[number] = (a, b)
                        (true if (a - b) * sign > 0 else false).append(number)
                texts = []
                for unordered in named:
                    for first, second in (unordered, unordered[::-1]):
                        texts.append(self.query_number(relation, first, second))
                        kinds = (self.world.matching(first), self.world.matching(second), self.others(first, second))
                        lists.append([self.kind_list(k) for k in kinds])
                        if config.distractors[1] and not kinds[2]:
                            raise ValueError("world: no kind of object is left for a distractor; add colours or shapes")
                self.add_template(side, true, false, texts)
        self.group_lists = np.array(lists).reshape(-1, 3)
        self._numbers = np.array([of_pair[i] for i in range(len(self.pairs))]).reshape(-1, 2)
        self._held_out_names = held_out_names

    def _read_names(self, names: list[tuple[str, ...]], attributes: list[str]) -> list[tuple[str, ...]]:
        given = self.config.held_out.attributes
        if given is None:
            return [tuple(n) for n in splits.held_out_comparisons(attributes)]
        for item in given:
            if tuple(sorted(item)) not in names:
                raise ValueError(f"held_out.attributes: {item} is not two different attributes of {attributes}")
        return [tuple(sorted(item)) for item in given]

    def held_out(self) -> dict[str, Any]:
        largest = self.config.held_out.differences_above
        pairs = [p for p in itertools.permutations(self.number_range(), 2) if abs(p[0] - p[1]) > largest]
        return {
            "pairs": [["comparison", str(a), str(b)] for a, b in pairs],
            "queries": [list(n) for n in self._held_out_names],
        }

    def group_counts(self, draw: Draw) -> np.ndarray:
        distractors = choose_from(self.config.distractors, draw.words[:, 1])
        return np.concatenate([self._numbers[draw.pair], distractors[:, None]], axis=1)

    def capacity(self, template: Template) -> int:
        least = []
        for number in {*template.true_pairs.tolist(), *template.false_pairs.tolist()}:
            counts = (*self._numbers[number].tolist(), self.config.distractors[0])
            placements = math.comb(self.world.cells, sum(counts)) if self._ranked else 1
            lengths = self._list_lengths[self.group_lists[template.texts[0]]].tolist()
            least.append(placements * math.prod(n**c for n, c in zip(lengths, counts, strict=True)))
        return min(least)


TASKS: dict[str, type[Task]] = {
    "spatiality": SpatialityTask,
    "cardinality": CardinalityTask,
    "quantifiers": QuantifiersTask,
    "comparison": ComparisonTask,
}


def make_task(config: Config) -> Task:
    """The task of a config, checked and ready to give examples. Raises `ValueError` as `Task` does."""
    return TASKS[config.task](config)
