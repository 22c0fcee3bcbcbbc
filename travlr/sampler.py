"""From a task's pairs and queries to examples: couples, rounds, and scenes that are never drawn twice.

Examples come in couples, 2j and 2j + 1: the same query text, once true and once false. A *round* of couples uses
every pair of the split once in a true and once in a false example, so that all counts stay level at every length.
The scenes of one query text are numbered, and a keyed permutation of the numbers deals them out: train, validation and
test_ind take every third each, so none can share an example, and none can occur twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from travlr import streams
from travlr.scene import IN_DISTRIBUTION, SPLITS, Batch, Query

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
    """Base: couples, rounds and scenes. What a task adds is under "What each task defines".

    Raises `ValueError`, naming the setting and the limit, where a config leaves nothing to train on, asks for objects
    that do not fit the grid, or for more examples than there are.
    """

    places: ClassVar[bool] = False  # whether answers depend on where objects are
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

    def capacity(self, template: Template) -> int:
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
            raise ValueError(
                f"examples {start} to {stop}: {split} has {self.limits[split]} examples at most, from 0 on"
            )
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
        """Number of a list of kinds that a group draws from."""
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
            scenes = self.capacity(template)
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


def choose_from(lowest_highest: Sequence[Any], word: np.ndarray) -> np.ndarray:
    """A number from the lowest to the highest (numbers or arrays) for each word."""
    low, high = lowest_highest
    span = np.asarray(high) - low + 1
    return low + ((word >> np.uint64(32)) * span.astype(np.uint64) >> np.uint64(32)).astype(np.intp)
