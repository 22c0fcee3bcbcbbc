"""From a task's pairs and queries to examples: couples, rounds, and scenes that are never drawn twice.

Examples come in couples, 2j and 2j + 1: the same query text, once true and once false. A *round* of couples uses
every pair of the split once in a true and once in a false example, so that all counts stay level at every length.
The scenes of one query text are numbered, and a keyed permutation of the numbers deals them out: train, validation and
test_ind take every third number each, so that they share no example, and no example occurs twice.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from travlr.config import Config, check_choice
from travlr.sampling import streams
from travlr.sampling.rejection import RejectionSampler
from travlr.scene import IN_DISTRIBUTION, SPLITS, Batch
from travlr.tasks import task_class
from travlr.tasks.simple import SimpleTask
from travlr.tasks.vectorised import SIDES, Draw, Task, Template, groups_of, shuffled


def make_sampler(config: Config) -> Sampler | RejectionSampler:
    """What draws the examples of a config. Raises `ValueError`, naming a setting, where it cannot be satisfied."""
    task: Any = task_class(config.task)
    return RejectionSampler(task(config)) if issubclass(task, SimpleTask) else Sampler(task(config))


class Sampler:
    """Draws the examples of a vectorised task.

    limits: split -> a lower bound of the number of its different, balanced examples.

    Raises `ValueError`, naming the setting and the limit, where objects do not fit the grid, or where a split asks for
    more examples than there are.
    """

    def __init__(self, task: Task) -> None:
        self.task, self.config, self.world = task, task.config, task.world
        self.queries, self.held_out = task.queries, task.held_out
        if task.most_objects > self.world.cells:
            raise ValueError(
                f"world: scenes have up to {task.most_objects} objects, but world.columns x world.rows has only "
                f"{self.world.cells} cells; enlarge the grid or lower the ranges (numbers, distractors, total_objects)"
            )
        self._make_tables()
        self.limits = {split: self._limit(split) for split in SPLITS}
        self._check_counts()
        if () in task.kind_lists:  # find out before anything is written whether scenes need objects of it
            for split in SPLITS:
                if count := min(getattr(self.config.count, split), 100):
                    self.examples(split, 0, count)

    # Examples --------------------------------------------------------------------------------------------------

    def examples(self, split: str, start: int, stop: int) -> Batch:
        """Examples start to stop of a split, a pure function of (config, split, index)."""
        check_choice("split", split, SPLITS)
        side = "out" if split == "test_ood" else "in"
        if not 0 <= start < stop <= self.limits[split]:
            raise ValueError(
                f"examples {start} to {stop}: {split} has {self.limits[split]} examples at most, from 0 on"
            )
        index = np.arange(start, stop)
        draw, answer, occurrence = self._draw(split, side, index)
        number = occurrence * np.uint64(3) + np.uint64(IN_DISTRIBUTION.index(split)) if side == "in" else occurrence
        make = self._exchanged if self.task.exchanged else self._independent
        grid, keys = make(split, index, draw, answer, number, self.task.key(side, "scenes"))
        order = shuffled(grid > 0, keys, self.task.most_objects)
        order = np.where(np.take_along_axis(grid, order, axis=1) > 0, order, -1)
        return Batch(grid, order, draw.query, draw.pair, answer, self.task.queries, self.task.pairs, start)

    def _independent(
        self, split: str, index: np.ndarray, draw: Draw, answer: np.ndarray, number: np.ndarray, key: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scenes that are drawn apart, and the keys by which their captions order the objects, (N, cells) each."""
        start, stop = int(index[0]), int(index[-1]) + 1
        name = draw.query.astype(np.uint64) * np.uint64(2) + answer
        grid = self._scenes(draw, number, _secret(name, key), self._words(split, "scenes", start, stop, self._width))
        return grid, self._words(split, "captions", start, stop, self.world.cells)

    def _exchanged(
        self, split: str, index: np.ndarray, draw: Draw, answer: np.ndarray, number: np.ndarray, key: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `_independent`. One scene is drawn for each couple, the true one; the task makes both scenes from it."""
        couple = index // 2
        first, last = int(couple[0]), int(couple[-1]) + 1
        one = np.maximum(2 * np.arange(first, last) - int(index[0]), 0)  # an example of each couple
        pairs = _ordered(answer[one], draw.pair[one], draw.partner[one])
        true = Draw(draw.query[one], *pairs, draw.words[one])
        widths = {"scenes": self._width, "captions": self.world.cells, "exchange": self.world.cells}
        random = {name: self._words(split, name, first, last, width) for name, width in widths.items()}
        grid = self._scenes(true, number[one], _secret(true.query.astype(np.uint64), key), random["scenes"])
        scenes, keys = self.task.exchange(true, grid, random["captions"], random["exchange"])
        which = answer.astype(np.intp), couple - first
        return scenes[which], keys[which]

    def _words(self, split: str, name: str, start: int, stop: int, width: int) -> np.ndarray:
        return streams.words(self.task.key(split, name), start, stop, width)

    def _draw(self, split: str, side: str, index: np.ndarray) -> tuple[Draw, np.ndarray, np.ndarray]:
        """Query, pair and answer of each example, and the number of earlier uses of its query."""
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
        secret += np.uint64(self.task.key(split, "texts") & 0xFFFFFFFFFFFFFFFF)
        text = streams.permute(text, plan.texts[t], secret).astype(np.intp)
        query = plan.queries[t, np.where(plan.by_pair[t], place, text)]

        words = self._words(split, "couples", int(couple[0]), int(couple[-1]) + 1, 8)[couple - couple[0]]
        answer = (index % 2 == 1) == (words[:, 0] % np.uint64(2) == 1)
        pair, partner = _ordered(answer, true_pair, false_pair)
        return Draw(query, pair, partner, words), answer, occurrence

    def _scenes(self, draw: Draw, number: np.ndarray, secret: np.ndarray, random: np.ndarray) -> np.ndarray:
        """Grids (N, cells): the groups' objects placed and given kinds, no grid twice for one query and answer."""
        counts = self.task.group_counts(draw)
        lists = self.task.group_kinds[draw.query]
        if () in self.task.kind_lists and ((lists == self.task.kind_lists[()]) & (counts > 0)).any():
            raise ValueError("world: no kind of object is left for a distractor; add colours or shapes")
        groups = counts.shape[1]
        group_of_slot = groups_of(counts, self.task.most_objects)
        list_of_slot = np.take_along_axis(lists, np.minimum(group_of_slot, groups - 1), axis=1)
        kinds = np.where(group_of_slot < groups, self._list_lengths[list_of_slot], 1).astype(np.uint64)
        anchors = self.task.anchor_cells(draw)
        radices = np.concatenate([self._placements(counts, anchors), kinds], axis=1)
        digits = streams.distinct_digits(radices, number, secret, random[:, : radices.shape[1]])
        labels = self._place(anchors, counts, digits[:, :groups], random[:, radices.shape[1] :])
        return self._paint(labels, group_of_slot, list_of_slot, digits[:, groups:])

    def _placements(self, counts: np.ndarray, anchors: np.ndarray) -> np.ndarray:
        """The number of ways to place each group on the cells that earlier groups leave free, (N, groups) uint64."""
        if self._choose is None:
            ways = np.ones(counts.shape, np.uint64)
        else:
            ways = self._choose[counts, self.world.cells - np.cumsum(counts, axis=1) + counts]
        ways[:, : anchors.shape[1]] = (anchors >= 0).sum(axis=2)
        return ways

    def _place(self, anchors: np.ndarray, counts: np.ndarray, ranks: np.ndarray, random: np.ndarray) -> np.ndarray:
        """The group in each cell, -1 where empty, (N, cells) int8. ranks: (N, groups), the number of each placement."""
        labels = np.full((len(counts), self.world.cells), -1, np.int8)
        first = anchors.shape[1]
        if first:
            cells = np.take_along_axis(anchors, ranks[:, :first, None].astype(np.intp), axis=2)[..., 0]
            np.put_along_axis(labels, cells, np.arange(first, dtype=np.int8)[None, :], axis=1)
        if self._choose is None:  # too many placements to number: any random one, the kinds alone are numbered
            order = shuffled(labels < 0, random, labels.shape[1])
            group = groups_of(counts[:, first:], labels.shape[1]) + first
            group = np.where(group < counts.shape[1], group, -1).astype(np.int8)
            group_of_cell = np.empty_like(labels)
            np.put_along_axis(group_of_cell, order, group, axis=1)
            return np.where(labels < 0, group_of_cell, labels)
        for g in range(first, counts.shape[1]):
            subset = self._combination(self._choose, ranks[:, g], counts[:, g])
            free = labels < 0
            rank_among_free = np.cumsum(free, axis=1) - 1
            labels[free & np.take_along_axis(subset, np.maximum(rank_among_free, 0), axis=1)] = g
        return labels

    def _combination(self, choose: np.ndarray, rank: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Subset of the given size with the given rank, as a mask (N, cells): the combinatorial number system."""
        subset = np.zeros((len(rank), self.world.cells), bool)
        rank = rank.copy()
        for k in range(int(size.max(initial=0)), 0, -1):
            rows = np.nonzero(size >= k)[0]
            top = np.searchsorted(choose[k], rank[rows], side="right") - 1
            rank[rows] -= choose[k, top]
            subset[rows, top] = True
        return subset

    def _paint(
        self, labels: np.ndarray, group_of_slot: np.ndarray, list_of_slot: np.ndarray, digits: np.ndarray
    ) -> np.ndarray:
        """Kinds for the objects of each group, in the order of their cells."""
        sortable = np.where(labels < 0, 127, labels).astype(np.int8)
        cells = sortable.argsort(axis=1, kind="stable")[:, : self.task.most_objects]
        kinds = self._kinds[list_of_slot, digits.astype(np.intp)]
        kinds[np.take_along_axis(labels, cells, axis=1) < 0] = 0
        grid = np.zeros(labels.shape, self._kinds.dtype)
        np.put_along_axis(grid, cells, kinds, axis=1)
        return grid

    # Checks and tables -----------------------------------------------------------------------------------------

    def _check_counts(self) -> None:
        for split in SPLITS:
            side = "out" if split == "test_ood" else "in"
            count = getattr(self.config.count, split)
            if count and not self.task.templates[side]:
                problem = "no pair left to train on" if side == "in" else "nothing held out to test on"
                raise ValueError(f"count.{split}={count}: held_out leaves {problem}; change held_out or the ranges")
            if count > self.limits[split]:
                raise ValueError(
                    f"count.{split}={count}: this world and these held-out pairs give at most {self.limits[split]} "
                    f"different examples of {split}; lower it, or widen world, numbers or distractors"
                )

    def _limit(self, split: str) -> int:
        """A lower bound of the number of different, balanced examples of a split."""
        side = "out" if split == "test_ood" else "in"
        rounds = []
        for template in self.task.templates[side]:
            scenes = self.task.capacity(template)
            if side == "in":  # every third number belongs to this split
                scenes = (scenes - IN_DISTRIBUTION.index(split) + 2) // 3
            length = len(template.true_pairs)
            rounds.append(scenes if template.by_pair else scenes * len(template.texts) // length)
        return 2 * sum(len(t.true_pairs) for t in self.task.templates[side]) * min(rounds, default=0)

    def _make_tables(self) -> None:
        """Tables that turn examples into look-ups."""
        cells, most = self.world.cells, self.task.most_objects
        self._choose: np.ndarray | None = None  # (most + 1, cells + 1): binomial coefficients, where they are small
        if self.task.ranked:
            table = [[math.comb(n, k) for n in range(cells + 1)] for k in range(most + 1)]
            self._choose = np.array(table, np.uint64)
        self._list_lengths = np.array([max(len(kinds), 1) for kinds in self.task.kind_lists], np.intp)
        shape = len(self._list_lengths), self._list_lengths.max(initial=1)
        self._kinds = np.zeros(shape, np.min_scalar_type(len(self.world.kinds)))
        for kinds, number in self.task.kind_lists.items():
            self._kinds[number, : len(kinds)] = kinds
        self._width = self.task.group_kinds.shape[1] + most + cells
        self._plans = {side: _Plan(self.task.templates[side]) for side in SIDES if self.task.templates[side]}


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


def _secret(name: np.ndarray, key: int) -> np.ndarray:
    """The key of the permutation of the scenes of each name (N,) uint64."""
    return streams.mix(name + np.uint64(key & 0xFFFFFFFFFFFFFFFF))


def _ordered(condition: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays, exchanged where the condition does not hold."""
    return np.where(condition, first, second), np.where(condition, second, first)
