"""Scenes of one query of a simple task, in the order in which they are drawn: what does not fit is drawn again."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, defaultdict
from random import Random
from typing import Any, NamedTuple

from travlr.sampling import streams
from travlr.scene import Query, Scene
from travlr.tasks.base import Pair, TaskError
from travlr.tasks.simple import SimpleTask

TRIES = 1_000  # scenes drawn for one that fits


class Drawn(NamedTuple):
    """What a stream gives at a time: one scene, or both of a couple. The kinds in the cells and the pair of each."""

    grids: tuple[bytes, ...]
    pairs: tuple[Pair, ...]
    hash: int


class SceneStream:
    """The scenes of one query in the order in which they are drawn; none comes twice.

    answers: of the scenes that come together: (True,), (False,), or (True, False) of a scene and its exchange.
    """

    def __init__(self, task: SimpleTask, query: Query, answers: tuple[bool, ...]) -> None:
        self._task, self._query, self._answers = task, query, answers
        self.text = task.text(query.args)
        self._key = streams.stream_key("travlr", task.config.seed, query.task, "scenes", self.text, answers[0])
        self._tries, self._grids = 0, set[bytes]()
        self.drawn: list[Drawn] = []
        self.assigned = 0  # so many of the drawn stand in `of_split`, by split and pairs
        self.of_split: dict[tuple[str, tuple[Pair, ...]], list[Drawn]] = defaultdict(list)

    def draw(self) -> bool:
        """Try once; whether new scenes with the answers came. Raises `ValueError` for a scene against the rules."""
        random = Random(f"{self._key}/{self._tries}")
        self._tries += 1
        scene = self._task.scene(random, self._task.by_name(self._query.args), self._answers[0])
        grids = [grid_key(self._task, scene, "scene")]
        try:
            answers_and_pairs = [self._task.answer_and_pair(scene, self._query.args)]
            if len(self._answers) == 2 and answers_and_pairs[0][0]:
                other = self._task.exchange(scene, random, **self._task.by_name(self._query.args))
                grids.append(grid_key(self._task, other, "exchange"))
                if count_objects(scene) != count_objects(other):
                    return False
                answers_and_pairs.append(self._task.answer_and_pair(other, self._query.args))
        except TaskError:
            raise
        except ValueError:  # the query or the exchange does not apply to this scene
            return False
        answers, pairs = zip(*answers_and_pairs, strict=True)
        if answers != self._answers or not self._grids.isdisjoint(grids):
            return False
        self._grids.update(grids)
        digest = hashlib.blake2b(grids[0] + self.text.encode(), digest_size=8).digest()
        self.drawn.append(Drawn(tuple(grids), pairs, int.from_bytes(digest, "little")))
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
        name, answer = self._query.task, self._answers[0]
        if self.drawn:
            return ValueError(
                f"task={name}: `scene` gave no new scene with the answer {answer} in {TRIES:,} tries, after "
                f"{len(self.drawn):,}: {self.text} Ask for fewer examples (count), or let scenes vary more"
            )
        exchange = " or of which `exchange` makes no false one" if len(self._answers) == 2 else ""
        return ValueError(
            f"task={name}: `scene` gave a scene for which `truth` is not the answer asked for, {answer},{exchange} in "
            f"{TRIES:,} tries: {self.text}"
        )


def count_objects(scene: Scene) -> tuple[Any, ...]:
    """What an exchange keeps: the cells with objects, and how many have one colour, shape and size, in any order."""
    values = ([getattr(o, name) for o in scene] for name in ("colour", "shape", "size"))
    return {(o.row, o.column) for o in scene}, *(sorted(Counter(words).values()) for words in values)


def grid_key(task: SimpleTask, scene: Scene, method: str) -> bytes:
    """The kind in each cell, two bytes each. Raises `TaskError`, naming the rule, for a scene that cannot be drawn."""
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
        raise TaskError(f"task={task.config.task}: `{method}` gave {problem}")
    return grid.tobytes()
