"""Rows without end, made as they are asked for, and split into shares that do not overlap."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from travlr.config import Config
from travlr.finetuning.rows import ChatRow, RowSettings, make_rows
from travlr.generate import generator, iterate
from travlr.tasks import task_class
from travlr.tasks.simple import SimpleTask

BLOCK = 768  # rows that go to one share; whole couples in 1, 2 or 3 settings

SPREAD = 1 << 16


class TrainingStream:
    """The rows of all training examples that follow those of a dataset: of `train`, past `count.train`.

    So they are in no split of the dataset of this config, show no held-out pair, and do not repeat. Row n is of example
    n // S after those of the dataset, S the number of settings.

    start: the first example, counted in `train`. length: how many rows there are, 10**8 or more. spread: among how many
    to draw at random, which is fewer for simple tasks, as they make all scenes before a given one.

    Raises `ValueError` for a form or prompt that does not fit the task.
    """

    def __init__(self, config: Config, **settings: Any) -> None:
        self.config, self.settings = config, RowSettings(**settings)
        self.grid = config.world.columns, config.world.rows
        self.start = config.count.train + config.count.train % 2  # couples are whole
        self.length = (generator(config).sampler.limits["train"] - self.start) * len(self.settings.setting)
        self.spread = min(self.length, SPREAD) if issubclass(task_class(config.task), SimpleTask) else self.length
        next(self.rows(0, 1))

    def rows(self, start: int, stop: int) -> Iterator[ChatRow]:
        """Rows start to stop."""
        each = len(self.settings.setting)
        first, last = start // each, -(-min(stop, self.length) // each)
        examples = iterate(self.config, "train", self.start + first, self.start + last)
        return itertools.islice(
            make_rows(examples, self.settings, self.grid), start - first * each, min(stop, self.length) - first * each
        )

    def share(self, number: int, shares: int, position: int = 0) -> Iterator[ChatRow]:
        """The rows of one of several shares, which overlap in none; position: how many of them to leave out."""
        for block in itertools.count(position // BLOCK):
            first = (block * shares + number) * BLOCK
            if first >= self.length:
                return
            yield from self.rows(first + position % BLOCK, first + BLOCK)
            position = 0
