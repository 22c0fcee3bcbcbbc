"""Examples of simple tasks: scenes are drawn until they fit, and planned so that pairs and answers stay in balance.

Each query has one stream of scenes for each answer; with `preset=strict` one of true scenes, each with its exchange. A
scene's hash assigns it to a split, and no scene comes twice. A *round* of couples uses every pair of a split once in a
true and once in a false example. As the plan and the streams are functions of the config, so is every example; the
scenes before it are drawn again where they are not in memory.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

import splits
from travlr.config import check_choice
from travlr.sampling import streams
from travlr.sampling.scene_streams import TRIES, Drawn, SceneStream
from travlr.scene import IN_DISTRIBUTION, SPLITS, Batch, Query
from travlr.tasks.base import Pair
from travlr.tasks.simple import SimpleTask

PROBES = 3_000, 6  # scenes drawn beforehand to find the pairs: in all, and at least for each query and answer
RARE = 5  # a pair that comes up so many times less often than the mean is left out
MATCHINGS = 4  # ways to match the pairs of true examples with those of false ones; each round takes one
HELD_OUT, ATTEMPTS = 0.2, 40  # part of the pairs and of the queries, where the task names none; it grows by attempt

PairCounts = list[list[Counter[tuple[Pair, ...]]]]  # by query and stream: how often it shows each pair


@dataclass(frozen=True)
class Plan:
    """The pairs of one side, numbered; which pair of a false example goes with each, and the queries of such couples.

    matchings: (MATCHINGS, P). queries: (true pair, false pair) -> the numbers of the queries that can show them.
    """

    pairs: list[Pair]
    matchings: np.ndarray
    queries: dict[tuple[Pair, ...], list[int]]


class Couple(NamedTuple):
    """A query, the pairs of the true and the false example, and what the split had used of each stream before.

    numbers: for each stream of the query, how many of its scenes with these pairs.
    """

    query: int
    pairs: tuple[Pair, ...]
    numbers: tuple[int, ...]


class RejectionSampler:
    """Draws the examples of a simple task, as `travlr.sampling.sampler.Sampler` does for vectorised ones.

    limits: split -> the number of examples that may be asked for; how many different ones there are shows only when
    they are drawn.

    Raises `ValueError`, naming the task and its method, or the setting, where the task leaves nothing to train on.
    """

    def __init__(self, task: SimpleTask) -> None:
        self.task, self.config, self.world = task, task.config, task.world
        self.queries = [Query(task.config.task, args) for args in task.queries()]
        self._answers = ((True, False),) if self.config.exchanged else ((True,), (False,))  # of each stream of a query
        self._streams = [[SceneStream(task, query, answers) for answers in self._answers] for query in self.queries]
        self._plans = self._hold_out(self._probe())
        self.pairs = list(dict.fromkeys(pair for plan in self._plans.values() for pair in plan.pairs))
        self._number = {pair: number for number, pair in enumerate(self.pairs)}
        self.limits = {split: streams.LARGEST if _side(split) in self._plans else 0 for split in SPLITS}
        self._couples: dict[str, list[Couple]] = {split: [] for split in SPLITS}
        self._uses: dict[str, Counter[Any]] = {split: Counter() for split in SPLITS}
        self._check_counts()

    def examples(self, split: str, start: int, stop: int) -> Batch:
        """Examples start to stop of a split, a pure function of (config, split, index)."""
        check_choice("split", split, SPLITS)
        if not 0 <= start < stop <= self.limits[split]:
            raise ValueError(f"examples {start} to {stop}: {split} has {self.limits[split]} at most, from 0 on")
        index = np.arange(start, stop)
        coins = self._words(split, "couples", start // 2, (stop - 1) // 2 + 1, 1)[index // 2 - start // 2, 0]
        answer = (index % 2 == 1) == (coins % np.uint64(2) == 1)
        couples = self._plan_of(split, (stop - 1) // 2 + 1)
        scenes = [self._scene(split, couples[k], a) for k, a in zip(index // 2, answer.tolist(), strict=True)]
        grid = np.frombuffer(b"".join(scene for scene, _ in scenes), np.uint16).reshape(len(scenes), -1)
        caption = index // 2 if self.config.exchanged else index  # an exchange keeps the order of cells
        first = int(caption[0])
        words = self._words(split, "captions", first, int(caption[-1]) + 1, self.world.cells)
        keys = words[caption - first] >> np.uint64(1)
        order = np.where(grid > 0, keys, np.uint64(2**64 - 1)).argsort(axis=1)
        order = np.where(np.take_along_axis(grid, order, axis=1) > 0, order, -1)
        query = np.array([couples[number].query for number in index // 2])
        pairs = np.array([self._number[pair] for _, pair in scenes])
        return Batch(grid, order, query, pairs, answer, self.queries, self.pairs, start)

    def held_out(self) -> dict[str, Any]:
        """For the manifest: the `pairs` that only test_ood shows, and the `queries` that only test_ood asks."""
        shown = self._plans["out"].pairs if self._held_out_pairs and "out" in self._plans else []
        return {"pairs": [list(pair) for pair in shown], "queries": [sorted(part) for part in self._held_out_queries]}

    # What is held out ----------------------------------------------------------------------------------------------

    def _hold_out(self, frequencies: PairCounts) -> dict[str, Plan]:
        """Choose what is held out, where the task does not say, so that both sides have a plan; the plan of each.

        Raises `ValueError` where there is no such choice.
        """
        pairs = {pair for of_query in frequencies for counts in of_query for pairs in counts for pair in pairs}
        nouns = {tuple(sorted(self.task.nouns(q.args) or map(str, q.args))) for q in self.queries}
        held_out = {name: [tuple(map(str, part)) for part in parts] for name, parts in self.task.held_out.items()}
        for attempt in range(1 if len(held_out) == 2 else ATTEMPTS):
            queries = held_out.get("queries", _part_of(nouns, attempt))
            self._held_out_pairs = set(held_out.get("pairs", _part_of(pairs, attempt)))
            self._held_out_queries = [frozenset(part) for part in queries]
            self._query_is_out = [self._is_held_out(query) for query in range(len(self.queries))]
            plans = {side: self._make_plan(side, frequencies) for side in ("in", "out")}
            if all(plans.values()):
                break
        return {side: plan for side, plan in plans.items() if plan}

    def _is_held_out(self, query: int) -> bool:
        arguments = frozenset(map(str, self.queries[query].args))
        return any(part <= arguments for part in self._held_out_queries)

    def _on_side(self, side: str, query: int, pairs: Iterable[Pair]) -> bool:
        """Whether a side has this query with these pairs: of what is held out, test_ood has nothing else."""
        out = side == "out"
        query_fits = not self._held_out_queries or self._query_is_out[query] == out
        pair_fits = not self._held_out_pairs or all((pair in self._held_out_pairs) == out for pair in pairs)
        return query_fits and pair_fits and (not out or bool(self._held_out_queries or self._held_out_pairs))

    # Which couples ------------------------------------------------------------------------------------------------

    def _probe(self) -> PairCounts:
        """How often each stream shows each pair, or the pairs of a couple, in its first scenes."""
        number = max(PROBES[1], PROBES[0] // max(2 * len(self.queries), 1))
        for stream in itertools.chain(*self._streams):
            stream.at(0)  # raises where there is none
            for _ in range(4 * number):
                if len(stream.drawn) < number:
                    stream.draw()
        return [[Counter(drawn.pairs for drawn in stream.drawn) for stream in parts] for parts in self._streams]

    def _make_plan(self, side: str, frequencies: PairCounts) -> Plan | None:
        """The plan of a side; None where there is none.

        Pairs that cannot be shown as often by true as by false examples of the side are left out.
        """
        times: Counter[Pair] = Counter()
        queries: dict[tuple[Pair, ...], list[int]] = defaultdict(list)
        for query, of_query in enumerate(frequencies):
            of_side = [{p: n for p, n in counts.items() if self._on_side(side, query, p)} for counts in of_query]
            for pairs, n in itertools.chain(*(counts.items() for counts in of_side)):
                times.update(dict.fromkeys(pairs, n))
            for parts in itertools.product(*of_side):
                queries[tuple(itertools.chain(*parts))].append(query)  # (true pair, false pair)
        often = sorted(pair for pair, n in times.items() if RARE * n * len(times) >= times.total())
        possible = np.array([[(true, false) in queries for false in often] for true in often], bool)
        in_cycles = self._match(possible, side, 0)[1] if often else np.zeros(0, bool)
        if not in_cycles.any():
            return None
        matched = [pair for pair, in_cycle in zip(often, in_cycles, strict=True) if in_cycle]
        possible = possible[np.ix_(in_cycles, in_cycles)]
        return Plan(matched, np.array([self._match(possible, side, turn)[0] for turn in range(MATCHINGS)]), queries)

    def _match(self, possible: np.ndarray, side: str, turn: int) -> tuple[np.ndarray, np.ndarray]:
        """The false pair of each true pair (P,), each once; and which have one at all, (P,)."""
        size = len(possible)
        random = self._words(side, f"matching {turn}", 0, size, size) / 2.0**64
        cost = np.where(possible, random, np.where(np.eye(size, dtype=bool), 1e3, 1e6))
        false = linear_sum_assignment(cost)[1]
        return false, possible[np.arange(size), false]

    def _plan_of(self, split: str, stop: int) -> list[Couple]:
        """The couples of a split, at least up to `stop`."""
        couples, uses, plan = self._couples[split], self._uses[split], self._plans[_side(split)]
        while len(couples) < stop:
            turn = len(couples) // len(plan.pairs)
            words = self._words(split, "rounds", turn, turn + 1, len(plan.pairs) + 1)[0]
            matching = plan.matchings[int(words[-1] % np.uint64(MATCHINGS))]
            for true in words[:-1].argsort().tolist():
                false = int(matching[true])
                pairs = plan.pairs[true], plan.pairs[false]
                query = self._next_query(split, plan.queries[pairs], (true, false))
                keys = [(query, part, self._pairs_of(part, pairs)) for part in range(len(self._answers))]
                couples.append(Couple(query, pairs, tuple(uses[key] for key in keys)))
                uses.update(keys)
        return couples

    def _next_query(self, split: str, queries: list[int], edge: tuple[int, int]) -> int:
        """The query of the next couple with these pairs: all of them in turn, in an order of the split's own."""
        turn, place = divmod(self._uses[split][edge], len(queries))
        self._uses[split][edge] += 1
        order = self._words(split, f"queries {edge} {turn}", 0, 1, len(queries))[0].argsort()
        return queries[int(order[place])]

    # Which scenes -------------------------------------------------------------------------------------------------

    def _pairs_of(self, part: int, pairs: tuple[Pair, ...]) -> tuple[Pair, ...]:
        """Of the pairs of a couple, (true, false), those that one stream of its query shows."""
        return tuple(pairs[not answer] for answer in self._answers[part])

    def _scene(self, split: str, couple: Couple, answer: bool) -> tuple[bytes, Pair]:
        """The scene of a couple with this answer, and its pair."""
        part = next(part for part, answers in enumerate(self._answers) if answer in answers)
        place, pairs = self._answers[part].index(answer), self._pairs_of(part, couple.pairs)
        drawn = self._find(split, couple.query, part, pairs, couple.numbers[part])
        return drawn.grids[place], drawn.pairs[place]

    def _find(self, split: str, query: int, part: int, pairs: tuple[Pair, ...], number: int) -> Drawn:
        """What has this number among all that a stream gives a split with these pairs."""
        stream = self._streams[query][part]
        most, tries = 3 * TRIES * len(self.pairs), 0
        while len(stream.of_split[split, pairs]) <= number:
            drawn = stream.at(stream.assigned)
            stream.assigned += 1
            where = self._split_of(query, drawn), drawn.pairs
            stream.of_split[where].append(drawn)
            tries = 0 if where == (split, pairs) else tries + 1
            if tries == most:
                shown = " and then ".join(str(list(pair)) for pair in pairs)
                raise ValueError(
                    f"task={self.config.task}: `scene` gave the pair {shown} in none of {most:,} scenes: {stream.text}"
                )
        return stream.of_split[split, pairs][number]

    def _split_of(self, query: int, drawn: Drawn) -> str:
        """The split that scenes belong to; "" for none."""
        if self._on_side("out", query, drawn.pairs):
            return "test_ood"
        return IN_DISTRIBUTION[drawn.hash % 3] if self._on_side("in", query, drawn.pairs) else ""

    def _words(self, split: str, name: str, start: int, stop: int, width: int) -> np.ndarray:
        return streams.words(self._key(split, name), start, stop, width)

    def _key(self, *names: str) -> int:
        return streams.stream_key("travlr", self.config.seed, self.config.task, *names)

    def _check_counts(self) -> None:
        for split in SPLITS:
            count = getattr(self.config.count, split)
            if count and not self.limits[split]:
                raise ValueError(
                    f"task={self.config.task}: no `pair` of {split} can be as often true as false in examples. "
                    f"A pair must not follow from the answer, `held_out` must leave pairs for both answers, or set "
                    f"count.{split}=0"
                )


def _side(split: str) -> str:
    return "out" if split == "test_ood" else "in"


def _part_of(keys: set[tuple[str, ...]], attempt: int) -> list[tuple[str, ...]]:
    """Which of the keys are held out, by hash: a fifth, and in later attempts others and up to half; none of one."""
    if len(keys) < 2:
        return []
    part = HELD_OUT + (0.5 - HELD_OUT) * attempt / ATTEMPTS
    return splits.hold_out_proportion(keys, max(part, 1 / len(keys)), f"attempt {attempt}")
