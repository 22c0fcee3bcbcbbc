"""The four tasks: which examples there are, and how example number i of a split is made.

Examples come in couples, 2j and 2j + 1: the same query text, once true and once false. A *round* of couples uses
every pair of the split once in a true and once in a false example, so that all counts stay level at every length.
Scenes of one query text are numbered, and a keyed permutation of the numbers deals them out: train, validation and
test_ind take every third each, so none can share an example, and none can occur twice.

Nothing here knows texts or pixels; the splits' held-out pairs come from `splits`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import splits
from travlr import streams
from travlr.config import Cardinality, Comparison, Config, Quantifiers, Spatiality
from travlr.scene import (
    COMPARISONS,
    IN_DISTRIBUTION,
    QUANTIFIER_FAMILIES,
    RELATIONS,
    SPLITS,
    Batch,
    Query,
    column_name,
    row_name,
)

SIDES = ("in", "out")  # of the training distribution
MATCHINGS = 60  # ways to couple true with false pairs, one drawn for each round


@dataclass(frozen=True)
class Template:
    """Queries that share a form and differ in what they name; its pairs are where it is true and where it is false.

    texts: query numbers, all of which serve every pair, or with `by_pair` one for each true pair.
    matchings: (R, L) which false pair goes with which true pair.
    """

    true_pairs: np.ndarray  # (L,) pair numbers
    false_pairs: np.ndarray  # (L,)
    texts: np.ndarray  # (T,) query numbers
    matchings: np.ndarray
    by_pair: bool = False


@dataclass(frozen=True)
class Draw:
    """What is settled for each of N examples before its scene is: all arrays (N,) but `words` (N, 8)."""

    query: np.ndarray
    pair: np.ndarray
    partner: np.ndarray  # the pair of the other example of the couple
    words: np.ndarray  # random, the same for both examples of a couple


class Task:
    """Base: couples, rounds and scenes. A task gives `pairs`, `queries`, `templates` and `groups`.

    Raises `ValueError`, naming the setting and the limit, where a config leaves nothing to train on, asks for objects
    that do not fit the grid, or for more examples than there are.
    """

    most_objects: int
    limits: dict[str, int]  # split -> how many different, balanced examples it surely has
    group_lists: np.ndarray  # (queries, G): number of the kind list that each group draws from

    def __init__(self, config: Any) -> None:
        self.config = config
        self.world = config.world
        self.pairs: list[tuple[str, ...]] = []
        self.queries: list[Query] = []
        self.templates: dict[str, list[Template]] = {side: [] for side in SIDES}
        self._pair_numbers: dict[tuple[str, ...], int] = {}
        self._kind_lists: dict[tuple[int, ...], int] = {}
        self.build()
        self._check_fit()
        self._freeze()
        self.limits = {split: self._limit(split) for split in SPLITS}
        self._check_counts()

    # What each task defines ------------------------------------------------------------------------------------

    def build(self) -> None:
        """Fill pairs, queries, templates, group_lists and most_objects."""
        raise NotImplementedError

    def group_counts(self, draw: Draw) -> np.ndarray:
        """Numbers of objects in each group of each scene, (N, G)."""
        raise NotImplementedError

    def capacity(self, side: str, template: Template) -> int:
        """How many scenes each query of a template surely has, true and false alike."""
        raise NotImplementedError

    def held_out(self) -> dict[str, Any]:
        """What only test_ood shows, for the manifest: pairs, and what its queries name."""
        raise NotImplementedError

    # Examples --------------------------------------------------------------------------------------------------

    def examples(self, split: str, start: int, stop: int) -> Batch:
        """Examples start to stop of a split, a pure function of (config, split, index)."""
        if split not in SPLITS:
            raise ValueError(f"split={split}: choose one of {', '.join(SPLITS)}")
        side = "out" if split == "test_ood" else "in"
        if not 0 <= start < stop <= self.limits[split]:
            raise ValueError(f"examples {start} to {stop}: {split} has {self.limits[split]} examples at most, from 0 on")
        index = np.arange(start, stop)
        draw, answer, occurrence = self._draw(split, side, index)
        share = np.uint64(IN_DISTRIBUTION.index(split) if side == "in" else 0)
        number = occurrence * np.uint64(3 if side == "in" else 1) + share
        name = draw.query.astype(np.uint64) * np.uint64(2) + answer
        secret = streams.mix(name + np.uint64(self._key(side, "scenes") & 0xFFFFFFFFFFFFFFFF))
        grid = self._scenes(draw, number, secret, self._words(split, "scenes", start, stop, self._width))
        order = _shuffled_cells(grid, self._words(split, "captions", start, stop, self.world.cells), self.most_objects)
        return Batch(grid, order, draw.query, draw.pair, answer, self.queries, self.pairs, start)

    def _key(self, *names: str) -> int:
        return streams.stream_key("travlr", self.config.seed, self.config.task, *names)

    def _words(self, split: str, name: str, start: int, stop: int, width: int) -> np.ndarray:
        return streams.words(self._key(split, name), start, stop, width)

    def _draw(self, split: str, side: str, index: np.ndarray) -> tuple[Draw, np.ndarray, np.ndarray]:
        """Query, pair and answer of each example, and how often its query was used before."""
        plan = self._plans[side]
        couple = index // 2
        turn, position = np.divmod(couple, len(plan.template))
        first, last = int(turn[0]), int(turn[-1]) + 1
        order = self._words(split, "order", first, last, len(plan.template)).argsort(axis=1)
        slot = order[turn - first, position]
        t, place = plan.template[slot], plan.place[slot]
        matching = self._words(split, "matchings", first, last, len(plan.lengths))[turn - first, t] % plan.matchings[t]
        true_pair = plan.true_pairs[t, place]
        false_pair = plan.false_pairs[t, plan.matching[t, matching.astype(np.intp), place]]

        use = np.where(plan.by_pair[t], turn, turn * plan.lengths[t] + place).astype(np.uint64)
        occurrence, text = np.divmod(use, plan.texts[t])
        secret = streams.mix(occurrence * np.uint64(len(plan.lengths)) + t.astype(np.uint64))
        secret += np.uint64(self._key(split, "texts") & 0xFFFFFFFFFFFFFFFF)
        text = streams.permute(text, plan.texts[t], secret).astype(np.intp)
        query = plan.queries[t, np.where(plan.by_pair[t], place, text)]

        words = self._words(split, "couples", int(couple[0]), int(couple[-1]) + 1, 8)[couple - couple[0]]
        answer = (index % 2 == 1) == (words[:, 0] % np.uint64(2) == 1)
        pair, partner = np.where(answer, (true_pair, false_pair), (false_pair, true_pair))
        return Draw(query, pair, partner, words), answer, occurrence

    def _scenes(self, draw: Draw, number: np.ndarray, secret: np.ndarray, random: np.ndarray) -> np.ndarray:
        """Grids (N, cells): the groups' objects placed and given kinds, no grid twice for one query and answer."""
        counts = self.group_counts(draw)
        lists = self.group_lists[draw.query]
        groups = counts.shape[1]
        slot = np.arange(self.most_objects)
        group_of_slot = (slot[None, :, None] >= np.cumsum(counts, axis=1)[:, None, :]).sum(axis=2)  # (N, objects)
        list_of_slot = np.take_along_axis(lists, np.minimum(group_of_slot, groups - 1), axis=1)
        kinds = np.where(group_of_slot < groups, self._list_lengths[list_of_slot], 1).astype(np.uint64)
        radices = np.concatenate([self._placements(counts, draw), kinds], axis=1)
        digits = streams.distinct_digits(radices, number, secret, random[:, : radices.shape[1]])
        labels = self._place(draw, counts, digits[:, :groups], random[:, radices.shape[1] :])
        return self._paint(labels, group_of_slot, list_of_slot, digits[:, groups:])

    def _placements(self, counts: np.ndarray, draw: Draw) -> np.ndarray:
        """In how many ways each group can be placed on the cells that earlier groups leave, (N, G) uint64."""
        if not self._ranked:
            return np.ones(counts.shape, np.uint64)
        free = self.world.cells - np.cumsum(counts, axis=1) + counts
        return self._choose[counts, free]

    def _place(self, draw: Draw, counts: np.ndarray, ranks: np.ndarray, random: np.ndarray) -> np.ndarray:
        """The group in each cell, -1 where empty, (N, cells) int8."""
        labels = np.full((len(counts), self.world.cells), -1, np.int8)
        return self._place_groups(labels, counts, ranks, random, first=0)

    def _place_groups(
        self, labels: np.ndarray, counts: np.ndarray, ranks: np.ndarray, random: np.ndarray, first: int
    ) -> np.ndarray:
        if not self._ranked:  # too many placements to number: any random one, the kinds alone are numbered
            order = np.where(labels < 0, random >> np.uint64(1), np.uint64(2**64 - 1)).argsort(axis=1)
            ends = np.cumsum(counts[:, first:], axis=1)
            group = (np.arange(labels.shape[1])[None, :, None] >= ends[:, None, :]).sum(axis=2) + first
            group = np.where(group < counts.shape[1], group, -1).astype(np.int8)
            chosen = np.empty_like(labels)
            np.put_along_axis(chosen, order, group, axis=1)
            return np.where(labels < 0, chosen, labels)
        for g in range(first, counts.shape[1]):
            chosen = self._combination(ranks[:, g], counts[:, g])
            free = labels < 0
            rank_among_free = np.cumsum(free, axis=1) - 1
            labels[free & np.take_along_axis(chosen, np.maximum(rank_among_free, 0), axis=1)] = g
        return labels

    def _combination(self, rank: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Subset of the given size with the given rank, as a mask (N, cells): the combinatorial number system."""
        chosen = np.zeros((len(rank), self.world.cells), bool)
        rank = rank.copy()
        for k in range(int(size.max(initial=0)), 0, -1):
            rows = np.nonzero(size >= k)[0]
            top = np.searchsorted(self._choose[k], rank[rows], side="right") - 1
            rank[rows] -= self._choose[k, top]
            chosen[rows, top] = True
        return chosen

    def _paint(
        self, labels: np.ndarray, group_of_slot: np.ndarray, list_of_slot: np.ndarray, digits: np.ndarray
    ) -> np.ndarray:
        """Kinds for the objects of each group, in the order of their cells."""
        sortable = np.where(labels < 0, 127, labels).astype(np.int8)
        cells = sortable.argsort(axis=1, kind="stable")[:, : self.most_objects]
        kinds = self._kinds[list_of_slot, digits.astype(np.intp)]
        kinds[np.take_along_axis(labels, cells, axis=1) < 0] = 0
        grid = np.zeros(labels.shape, self._kinds.dtype)
        np.put_along_axis(grid, cells, kinds, axis=1)
        return grid

    # Building blocks for `build` -------------------------------------------------------------------------------

    def pair_number(self, pair: Sequence[object]) -> int:
        named = tuple(str(part) for part in pair)
        if named not in self._pair_numbers:
            self._pair_numbers[named] = len(self.pairs)
            self.pairs.append(named)
        return self._pair_numbers[named]

    def query_number(self, *args: Any) -> int:
        self.queries.append(Query(self.config.task, args))
        return len(self.queries) - 1

    def kind_list(self, kinds: Iterable[int]) -> int:
        """Number of a list of kinds that a group draws from; raises where it is empty."""
        listed = tuple(kinds)
        return self._kind_lists.setdefault(listed, len(self._kind_lists))

    def others(self, *attributes: str) -> list[int]:
        """Kinds that none of the attributes describes."""
        excluded = {kind for attribute in attributes for kind in self.world.matching(attribute)}
        return [kind for kind in range(1, len(self.world.kinds) + 1) if kind not in excluded]

    def add_template(
        self,
        side: str,
        true_pairs: list[int],
        false_pairs: list[int],
        texts: list[int],
        matchings: np.ndarray | None = None,
        by_pair: bool = False,
    ) -> None:
        if not true_pairs or not texts:
            return
        if matchings is None:
            names = self._key(side, "any", str(len(self.templates[side])))
            matchings = streams.words(names, 0, MATCHINGS, len(true_pairs)).argsort(axis=1)
        true, false, text = (np.array(values) for values in (true_pairs, false_pairs, texts))
        self.templates[side].append(Template(true, false, text, matchings, by_pair))

    def number_range(self) -> list[int]:
        return list(range(self.config.numbers[0], self.config.numbers[1] + 1))

    # Checks and tables -----------------------------------------------------------------------------------------

    def _check_fit(self) -> None:
        if self.most_objects > self.world.cells:
            raise ValueError(
                f"world: scenes have up to {self.most_objects} objects, but world.columns x world.rows has only "
                f"{self.world.cells} cells; enlarge the grid or lower the ranges (numbers, distractors, total_objects)"
            )

    def _check_counts(self) -> None:
        for split in SPLITS:
            side = "out" if split == "test_ood" else "in"
            wanted = getattr(self.config.count, split)
            if wanted and not self.templates[side]:
                what = "no pair left to train on" if side == "in" else "nothing held out to test on"
                raise ValueError(f"count.{split}={wanted}: held_out leaves {what}; change held_out or the ranges")
            if wanted > self.limits[split]:
                raise ValueError(
                    f"count.{split}={wanted}: this world and these held-out pairs give at most {self.limits[split]} "
                    f"different examples of {split}; lower it, or widen world, numbers or distractors"
                )

    def _limit(self, split: str) -> int:
        """How many different, balanced examples a split surely has."""
        side = "out" if split == "test_ood" else "in"
        rounds = []
        for template in self.templates[side]:
            scenes = self.capacity(side, template)
            if side == "in":  # every third number belongs to this split
                scenes = (scenes - IN_DISTRIBUTION.index(split) + 2) // 3
            length = len(template.true_pairs)
            rounds.append(scenes if template.by_pair else scenes * len(template.texts) // length)
        return 2 * sum(len(t.true_pairs) for t in self.templates[side]) * min(rounds, default=0)

    def _freeze(self) -> None:
        """Tables that turn examples into look-ups."""
        cells, most = self.world.cells, self.most_objects
        self._ranked = math.comb(cells, min(most, cells // 2)) < streams.LARGEST
        if self._ranked:
            table = [[math.comb(n, k) for n in range(cells + 1)] for k in range(most + 1)]
            self._choose = np.array(table, np.uint64)
        longest = max((len(kinds) for kinds in self._kind_lists), default=1)
        self._kinds = np.zeros((len(self._kind_lists), max(longest, 1)), np.min_scalar_type(len(self.world.kinds)))
        for kinds, number in self._kind_lists.items():
            self._kinds[number, : len(kinds)] = kinds
        self._list_lengths = np.array([max(len(kinds), 1) for kinds in self._kind_lists])
        self._width = self.group_lists.shape[1] + most + cells
        self._plans = {side: _Plan(self.templates[side]) for side in SIDES if self.templates[side]}


class _Plan:
    """The templates of one side as padded arrays, one row per template, and the couples of a round."""

    def __init__(self, templates: list[Template]) -> None:
        self.lengths = np.array([len(t.true_pairs) for t in templates])
        self.by_pair = np.array([t.by_pair for t in templates])
        self.texts = np.array([1 if t.by_pair else len(t.texts) for t in templates], np.uint64)
        self.matchings = np.array([len(t.matchings) for t in templates], np.uint64)
        self.true_pairs = _padded([t.true_pairs for t in templates])
        self.false_pairs = _padded([t.false_pairs for t in templates])
        self.queries = _padded([t.texts for t in templates])
        self.matching = np.zeros((len(templates), int(self.matchings.max()), int(self.lengths.max())), np.intp)
        for row, t in zip(self.matching, templates, strict=True):
            row[: t.matchings.shape[0], : t.matchings.shape[1]] = t.matchings
        self.template = np.repeat(np.arange(len(templates)), self.lengths)  # of each couple of a round
        self.place = np.concatenate([np.arange(length) for length in self.lengths])


def _padded(rows: list[np.ndarray]) -> np.ndarray:
    table = np.zeros((len(rows), max(map(len, rows))), np.intp)
    for target, row in zip(table, rows, strict=True):
        target[: len(row)] = row
    return table


def _shuffled_cells(grid: np.ndarray, random: np.ndarray, most: int) -> np.ndarray:
    """Occupied cells in random order, padded with -1, (N, most)."""
    order = np.where(grid > 0, random >> np.uint64(1), np.uint64(2**64 - 1)).argsort(axis=1)[:, :most]
    return np.where(np.take_along_axis(grid, order, axis=1) > 0, order, -1)


def _choose_from(lowest_highest: Sequence[Any], word: np.ndarray) -> np.ndarray:
    """A number from the lowest to the highest (numbers or arrays) for each word."""
    low, high = lowest_highest
    span = np.asarray(high) - low + 1
    return low + ((word >> np.uint64(32)) * span.astype(np.uint64) >> np.uint64(32)).astype(np.intp)


# The tasks -----------------------------------------------------------------------------------------------------


class SpatialityTask(Task):
    """`The red circle is to the right of the blue square.` Pairs: columns, or rows, of the two, in the query's order.

    Groups: the first queried object, the second, the distractors (which neither attribute describes).
    """

    config: Spatiality

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
        counts[:, 2] = _choose_from(self.config.distractors, draw.words[:, 1])
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

    def capacity(self, side: str, template: Template) -> int:
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
            rest = _choose_from(self.config.total_objects, draw.words[:, 1]) - number
        else:
            rest = _choose_from(self.config.distractors, draw.words[:, 1])
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

    def capacity(self, side: str, template: Template) -> int:
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
            counts[:, 3] = _choose_from((low, high), draw.words[:, 1] ^ streams.mix(draw.pair.astype(np.uint64)))
        else:
            sizes = np.stack([vacant[:, 1:3].sum(axis=1), other[:, 1:3].sum(axis=1) + spare_of_other])
            total = _choose_from((sizes.max(axis=0) + low, sizes.min(axis=0) + high), draw.words[:, 1])
            counts[:, 3] = total - counts.sum(axis=1)
        return counts

    def capacity(self, side: str, template: Template) -> int:
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
        distractors = _choose_from(self.config.distractors, draw.words[:, 1])
        return np.concatenate([self._numbers[draw.pair], distractors[:, None]], axis=1)

    def capacity(self, side: str, template: Template) -> int:
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
