"""The base class of tasks whose couples exchange words between two objects that size and place do not tell apart.

The scene of a true query begins with these two objects; distractors follow. The two have the same size and zone (but
for `relation`, which asks about places), shapes that do not look alike and, in pictures, cover equal areas. So both
scenes of a couple have the same numbers of objects of each colour and shape in each size and zone: a rule that knows
which words are large or central, but not which belong to one object, answers the same for both.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from pydantic import Field

from travlr.config import Config, Count, Image, RangeFrom0, Style
from travlr.scene import SIZES, Scene, World
from travlr.tasks.base import Arguments
from travlr.tasks.simple import SimpleTask

Cell = tuple[int, int]  # (row, column)
ZONES = ("center", "mid", "margin")
ALIKE = {"circle", "octagon", "hexagon"}  # when they are small


class Exchanged(Config):
    """The settings of these tasks. Their couples are always an exchange, so they have no presets."""

    presets = {}

    world: World = World(sizes=SIZES)
    image: Image = Image(cell=96)  # small octagons and circles of equal area need so many pixels to differ
    style: Style = Style(image="equal_area")
    count: Count = Count(train=8_000, validation=2_000, test_ind=4_000, test_ood=4_000)
    distractors: RangeFrom0 = Field((4, 8), description="how many objects beside the two that exchange words")

    @property
    def exchanged(self) -> bool:
        return True


class TwoObjectTask(SimpleTask):
    """Base class. A subclass has `true_scene` and, where it is not colours that are exchanged, `exchanged_words`."""

    config: Exchanged

    def __init__(self, config: Exchanged) -> None:
        super().__init__(config)
        world, most = self.world, 2 + config.distractors[1]
        if len(world.colours) < 2 or not any(map(self.unlike, world.shapes)):
            raise ValueError("world: needs two colours, and two shapes that do not look alike")
        if most > world.cells:
            raise ValueError(f"distractors: scenes have up to {most} objects, but the grid only {world.cells} cells")
        self._cells = [(row, column) for row in range(world.rows) for column in range(world.columns)]
        zones = [[cell for cell in self._cells if zone_of(*cell, world) == zone] for zone in ZONES]
        self._zones = [cells for cells in zones if len(cells) > 1]

    @abstractmethod
    def true_scene(self, random: Random, arguments: Arguments) -> Scene:
        """A scene in which the query is true. Its first two objects exchange words for the false one."""

    def exchanged_words(self, arguments: Arguments) -> Sequence[str]:
        """What the two objects exchange, of `colour`, `shape` and `size`."""
        return ("colour",)

    def scene(self, random: Random, arguments: Arguments, answer: bool) -> Scene:
        return self.true_scene(random, arguments)

    def exchange(self, scene: Scene, random: Random, *args: Any, **arguments: Any) -> Scene:
        one, other, *rest = scene
        words = self.exchanged_words(arguments)
        of_one, of_other = ({word: getattr(o, word) for word in words} for o in (one, other))
        return replace(one, **of_other), replace(other, **of_one), *rest

    # Helpers for `true_scene` -------------------------------------------------------------------------------------

    def unlike(self, *shapes: str) -> list[str]:
        """The shapes of the world that do not look like any of these."""
        return [s for s in self.world.shapes if not any(s == other or {s, other} <= ALIKE for other in shapes)]

    def other_colours(self, *colours: str) -> list[str]:
        return [colour for colour in self.world.colours if colour not in colours]

    def arrange(
        self,
        random: Random,
        two: Sequence[str],
        distractors: Sequence[str],
        cells: Sequence[Cell] | None = None,
        sizes: Sequence[str] | None = None,
    ) -> Scene:
        """A scene of two objects ("red circle") and distractors, in the given cells or in random ones.

        By default the two have one random size, and random cells of one random zone.
        """
        if cells is None:
            near = random.sample(random.choice(self._zones), 2)
            free = [cell for cell in self._cells if cell not in near]
            cells = [*near, *random.sample(free, len(distractors))]
        placed = self.place(random, [*two, *distractors], cells)
        first, second = sizes or [random.choice(self.world.sizes)] * 2
        return replace(placed[0], size=first), replace(placed[1], size=second), *placed[2:]

    def number_of_distractors(self, random: Random) -> int:
        return random.randint(*self.config.distractors)


def combine(colours: Sequence[str], shapes: Sequence[str]) -> list[str]:
    """The objects ("red circle") of these colours and shapes."""
    return [f"{colour} {shape}" for colour in colours for shape in shapes]


def zone_of(row: int, column: int, world: World) -> str:
    """VL-CheckList's class of a cell's place: how far it is from the centre, as a part of half the diagonal, is up to
    1/3, up to 2/3, or more."""
    down, across = 2 * row + 1 - world.rows, 2 * column + 1 - world.columns
    part = 9 * (down**2 + across**2) / (world.rows**2 + world.columns**2)
    return "center" if part <= 1 else "mid" if part <= 4 else "margin"
