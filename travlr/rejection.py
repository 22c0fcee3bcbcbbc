"""Examples of simple tasks: scenes are drawn until they fit, and planned so that pairs and answers stay in balance.

Each query has one stream of scenes for each answer. A scene's hash assigns it to a split, and no scene comes twice. A
*round* of couples uses every pair of a split once in a true and once in a false example. As the plan and the streams
are functions of the config, so is every example; the scenes before it are drawn again where they are not in memory.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

import splits
from travlr import streams
from travlr.config import check_choice
from travlr.scene import IN_DISTRIBUTION, SPLITS, Batch, Query, Scene
from travlr.tasks.base import Pair, TaskError
from travlr.tasks.simple import SimpleTask

TRIES = 1_000  # scenes drawn for one that fits
PROBES = 3_000, 6  # scenes drawn beforehand to find the pairs: in all, and at least for each query and answer
RARE = 5  # a pair that comes up so many times less often than the mean is left out
MATCHINGS = 4  # ways to match the pairs of true examples with those of false ones; each round takes one
HELD_OUT, ATTEMPTS = 0.2, 40  # part of the pairs and of the queries, where the task names none; it grows by attempt


class Drawn(NamedTuple):
    """A scene: the kind in each cell, its hash, and its pair."""

    grid: bytes
    hash: int
    pair: Pair


class SceneStream:
    """The scenes of one query with one answer, in the order in which they are drawn; none comes twice."""

    def __init__(self, task: SimpleTask, query: Query, answer: bool) -> None:
        self._task, self._query, self._answer = task, query, answer
        self.text = task.text(query.args)
        self._key = streams.stream_key("travlr", task.config.seed, query.task, "scenes", self.text, answer)
        self._tries, self._grids = 0, set[bytes]()
        self.drawn: list[Drawn] = []

    def draw(self) -> bool:
        """Try one scene; whether it is a new one with the answer. Raises `ValueError` for a scene against the rules."""
        task, arguments = self._task, self._task.by_name(self._query.args)
        random = Random(f"{self._key}/{self._tries}")
        self._tries += 1
        scene = task.scene(random, dict(arguments), self._answer)
        grid = grid_key(task, scene)
        try:
            answer, pair = task.answer_and_pair(scene, self._query.args)
        except TaskError:
            raise
        except ValueError:  # the query does not apply to this scene
            return False
        if answer != self._answer or grid in self._grids:
            return False
        self._grids.add(grid)
        digest = hashlib.blake2b(grid + self.text.encode(), digest_size=8).digest()
        self.drawn.append(Drawn(grid, int.from_bytes(digest, "little"), pair))
        return True

    def at(self, number: int) -> Drawn:
        """Scene by its number. Raises `ValueError` where the task gives no new one."""
        tries = 0
        while len(self.drawn) <= number:
            tries = 0 if self.draw() else tries + 1
            if tries == TRIES:
                raise self._error()
        return self.drawn[number]

    def _error(self) -> ValueError:
        name = self._query.task
        if not self.drawn:
            return ValueError(
                f"task={name}: `scene` gave a scene for which `truth` is not the answer asked for, {self._answer}, in "
                f"{TRIES:,} tries: {self.text}"
            )
        return ValueError(
            f"task={name}: `scene` gave no new scene with the answer {self._answer} in {TRIES:,} tries, after "
            f"{len(self.drawn):,}: {self.text} Ask for fewer examples (count), or let scenes vary more"
        )


def grid_key(task: SimpleTask, scene: Scene) -> bytes:
    """The kind in each cell, two bytes each. Raises `ValueError`, naming the rule, for a scene that cannot be drawn."""
    world, grid = task.world, array("H", bytes(2 * task.world.cells))
    problem = "" if scene else "no objects"
    for o in scene:
        kind = world.number.get((o.size, o.shape, o.colour))
        if kind is None:
            problem = f"a {o.size} {o.colour} {o.shape}, which is not of this world"
        elif not (0 <= o.row < world.rows and 0 <= o.column < world.columns):
            problem = f"an object in row {o.row} and column {o.column}, counted from 0, outside of the grid"
        elif grid[cell := o.row * world.columns + o.column]:
            problem = f"two objects in row {o.row} and column {o.column}, counted from 0"
        else:
            grid[cell] = kind
    if problem:
        raise ValueError(f"task={task.config.task}: `scene` gave {problem}")
    return grid.tobytes()


@dataclass(frozen=True)
class Plan:
    """The pairs of one side, numbered; which pair of a false example goes with each, and the queries of such couples.

    matchings: (MATCHINGS, P). queries: (true pair, false pair) -> the numbers of the queries that can show them.
    """

    pairs: list[Pair]
    matchings: np.ndarray
    queries: dict[tuple[int, int], list[int]]


@dataclass
class SortedScenes:
    """The scenes of a stream by split and pair, up to the one with the number `next`."""

    next: int = 0
    grids: dict[tuple[str, Pair], list[bytes]] = field(default_factory=lambda: defaultdict(list))


class Couple(NamedTuple):
    """A query and its two scenes: the pair of each, and how many scenes with this pair the split has used before."""

    query: int
    pairs: tuple[Pair, Pair]  # of the false example, of the true one
    numbers: tuple[int, int]


class RejectionSampler:
    """Draws the examples of a simple task, as `travlr.sampler.Sampler` does for vectorised ones.

    limits: split -> the number of examples that may be asked for; how many different ones there are shows only when
    they are drawn.

    Raises `ValueError`, naming the task and its method, or the setting, where the task leaves nothing to train on.
    """

    def __init__(self, task: SimpleTask) -> None:
        self.task, self.config, self.world = task, task.config, task.world
        self.queries = [Query(task.config.task, args) for args in task.language().every(task.world)]
        self._streams = [[SceneStream(task, query, answer) for answer in (False, True)] for query in self.queries]
        self._plans = self._hold_out(self._probe())
        self.pairs = [pair for plan in self._plans.values() for pair in plan.pairs]
        self.pairs = list(dict.fromkeys(self.pairs))
        self._number = {pair: number for number, pair in enumerate(self.pairs)}
        self.limits = {split: streams.LARGEST if _side(split) in self._plans else 0 for split in SPLITS}
        self._couples: dict[str, list[Couple]] = {split: [] for split in SPLITS}
        self._uses: dict[str, Counter[Any]] = {split: Counter() for split in SPLITS}
        self._sorted: dict[tuple[int, bool], SortedScenes] = defaultdict(SortedScenes)
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
        rows, pairs = [], []
        for number, true in zip((index // 2).tolist(), answer.tolist(), strict=True):
            couple = couples[number]
            rows.append(self._scene(split, couple.query, true, couple.pairs[true], couple.numbers[true]))
            pairs.append(self._number[couple.pairs[true]])
        grid = np.frombuffer(b"".join(rows), np.uint16).reshape(len(rows), -1)
        keys = self._words(split, "captions", start, stop, self.world.cells) >> np.uint64(1)
        order = np.where(grid > 0, keys, np.uint64(2**64 - 1)).argsort(axis=1)
        order = np.where(np.take_along_axis(grid, order, axis=1) > 0, order, -1)
        query = np.array([couples[number].query for number in index // 2])
        return Batch(grid, order, query, np.array(pairs), answer, self.queries, self.pairs, start)

    def held_out(self) -> dict[str, Any]:
        """For the manifest: the `pairs` that only test_ood shows, and the `queries` that only test_ood asks."""
        shown = self._plans["out"].pairs if self._held_out_pairs and "out" in self._plans else []
        return {"pairs": [list(pair) for pair in shown], "queries": [sorted(part) for part in self._held_out_queries]}

    # What is held out ----------------------------------------------------------------------------------------------

    def _hold_out(self, found: Counter[tuple[int, bool, Pair]]) -> dict[str, Plan]:
        """Choose what is held out, where the task does not say, so that both sides have a plan; the plan of each.

        Raises `ValueError` where there is no such choice.
        """
        pairs = {pair for _, _, pair in found}
        nouns = {tuple(sorted(self.task.nouns(q.args) or map(str, q.args))) for q in self.queries}
        given = {name: [tuple(map(str, part)) for part in parts] for name, parts in self.task.held_out.items()}
        for attempt in range(1 if len(given) == 2 else ATTEMPTS):
            queries = given.get("queries", _part_of(nouns, attempt))
            self._held_out_pairs = set(given.get("pairs", _part_of(pairs, attempt)))
            self._held_out_queries = [frozenset(part) for part in queries]
            self._query_is_out = [self._is_held_out(query) for query in range(len(self.queries))]
            plans = {side: self._make_plan(side, found) for side in ("in", "out")}
            if all(plans.values()):
                break
        return {side: plan for side, plan in plans.items() if plan}

    def _is_held_out(self, query: int) -> bool:
        arguments = frozenset(map(str, self.queries[query].args))
        return any(part <= arguments for part in self._held_out_queries)

    def _on_side(self, side: str, query: int, pair: Pair) -> bool:
        """Whether a side has this query with this pair: of what is held out, test_ood has nothing else."""
        out = side == "out"
        query_fits = not self._held_out_queries or self._query_is_out[query] == out
        pair_fits = not self._held_out_pairs or (pair in self._held_out_pairs) == out
        return query_fits and pair_fits and (not out or bool(self._held_out_queries or self._held_out_pairs))

    # Which couples ------------------------------------------------------------------------------------------------

    def _probe(self) -> Counter[tuple[int, bool, Pair]]:
        """How often each query shows each pair with each answer, in the first scenes of all streams."""
        number = max(PROBES[1], PROBES[0] // max(2 * len(self.queries), 1))
        found: Counter[tuple[int, bool, Pair]] = Counter()
        for query, of_query in enumerate(self._streams):
            for answer, stream in zip((False, True), of_query, strict=True):
                stream.at(0)  # raises where there is none
                for _ in range(4 * number):
                    if len(stream.drawn) < number:
                        stream.draw()
                found.update((query, answer, drawn.pair) for drawn in stream.drawn)
        return found

    def _make_plan(self, side: str, found: Counter[tuple[int, bool, Pair]]) -> Plan | None:
        """The plan of a side; None where there is none.

        Pairs that cannot be shown as often by true as by false examples of the side are left out.
        """
        of_side = {key: n for key, n in found.items() if self._on_side(side, key[0], key[2])}
        times: Counter[Pair] = Counter()
        for (_, _, pair), n in of_side.items():
            times[pair] += n
        pairs = sorted(pair for pair, n in times.items() if RARE * n * len(times) >= times.total())
        shows = np.zeros((2, len(self.queries), len(pairs)), bool)
        number = {pair: place for place, pair in enumerate(pairs)}
        for query, answer, pair in of_side:
            if pair in number:
                shows[int(answer), query, number[pair]] = True
        possible = shows[1].astype(np.float32).T @ shows[0].astype(np.float32) > 0  # (true pair, false pair)
        in_cycles = self._match(possible, side, 0)[1] if len(pairs) else np.zeros(0, bool)
        kept = [pair for pair, in_cycle in zip(pairs, in_cycles, strict=True) if in_cycle]
        if not kept:
            return None
        possible, shows = possible[np.ix_(in_cycles, in_cycles)], shows[:, :, in_cycles]
        matchings = np.array([self._match(possible, side, turn)[0] for turn in range(MATCHINGS)])
        edges = {(true, int(false)) for matching in matchings for true, false in enumerate(matching)}
        queries = {(a, b): np.flatnonzero(shows[1, :, a] & shows[0, :, b]).tolist() for a, b in sorted(edges)}
        return Plan(kept, matchings, queries)

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
                query = self._next_query(split, plan.queries[true, false], (true, false))
                pairs, numbers = (plan.pairs[false], plan.pairs[true]), []
                for answer, pair in zip((False, True), pairs, strict=True):
                    numbers.append(uses[query, answer, pair])
                    uses[query, answer, pair] += 1
                couples.append(Couple(query, pairs, (numbers[0], numbers[1])))
        return couples

    def _next_query(self, split: str, queries: list[int], edge: tuple[int, int]) -> int:
        """The query of the next couple with these pairs: all of them in turn, in an order of the split's own."""
        turn, place = divmod(self._uses[split][edge], len(queries))
        self._uses[split][edge] += 1
        order = self._words(split, f"queries {edge} {turn}", 0, 1, len(queries))[0].argsort()
        return queries[int(order[place])]

    # Which scenes -------------------------------------------------------------------------------------------------

    def _scene(self, split: str, query: int, answer: bool, pair: Pair, number: int) -> bytes:
        """The scene with this number among those of a split that show a pair."""
        stream, scenes = self._streams[query][answer], self._sorted[query, answer]
        most, tries = 3 * TRIES * len(self.pairs), 0
        while len(scenes.grids[split, pair]) <= number:
            drawn = stream.at(scenes.next)
            scenes.next += 1
            where = self._split_of(query, drawn), drawn.pair
            scenes.grids[where].append(drawn.grid)
            tries = 0 if where == (split, pair) else tries + 1
            if tries == most:
                raise ValueError(
                    f"task={self.config.task}: `scene` gave the pair {list(pair)} in none of {most:,} scenes: "
                    f"{stream.text}"
                )
        return scenes.grids[split, pair][number]

    def _split_of(self, query: int, drawn: Drawn) -> str:
        """The split that a scene belongs to; "" for none."""
        if self._on_side("out", query, drawn.pair):
            return "test_ood"
        return IN_DISTRIBUTION[drawn.hash % 3] if self._on_side("in", query, drawn.pair) else ""

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
    return splits.hold_out_share(keys, max(part, 1 / len(keys)), f"attempt {attempt}")
