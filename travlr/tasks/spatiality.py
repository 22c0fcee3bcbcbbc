"""Spatiality: `The red circle is to the right of the blue square.`

The pair is the columns (for left and right) or the rows (for above and below) of the two objects that the query
describes, in the query's order (section 3 and appendix A of the paper).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import splits
from render.text import noun, parse_noun
from travlr.config import Config, Count, check_range, option
from travlr.scene import Object, Scene, check_types, column_name, objects_of, row_name
from travlr.tasks.base import SIDES, CellsOf, Draw, Limit, Pair, Task, Template, choose_from

RELATIONS = {  # relation -> (axis, sign of second minus first coordinate when it is true)
    "to the left of": ("horizontal", 1),
    "to the right of": ("horizontal", -1),
    "above": ("vertical", 1),
    "below": ("vertical", -1),
}


@dataclass(frozen=True)
class HeldOutPositions:
    """Which pairs only test_ood shows."""

    columns: list[list[str]] | None = option(None, "unordered pairs such as [[A,E]]; null for the paper's")
    rows: list[list[int]] | None = option(None, "unordered pairs such as [[2,6]]; null for the paper's")
    objects: float = option(0.2, "share of the unordered pairs of queried objects that only test_ood queries")

    def __post_init__(self) -> None:
        check_types(self, "held_out.")


@dataclass(frozen=True)
class Spatiality(Config):
    task: str = "spatiality"
    query_by: str = option("both", "shape, colour or both (red circle)")
    count: Count = field(default_factory=lambda: Count(train=32_000))
    distractors: list[int] = option([1, 1], "how many objects the query does not describe: lowest, highest")
    held_out: HeldOutPositions = field(default_factory=HeldOutPositions)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("distractors", self.distractors, 0)
        if not 0 <= self.held_out.objects < 1:
            raise ValueError(f"held_out.objects={self.held_out.objects}: must be a share from 0 to below 1")


class SpatialityTask(Task):
    """Groups: the first queried object, the second, the distractors (which neither attribute describes)."""

    name, title, Config = "spatiality", "spatial relations between two objects", Spatiality
    object_arguments = (0, 2)
    uses_positions = True
    decided_by = "place"
    pattern = re.compile(rf"The ([\w ]+?) is ({'|'.join(RELATIONS)}) the ([\w ]+)\.")
    vocabulary_arguments = tuple(("red circle", relation, "blue square") for relation in RELATIONS)
    axes = {
        "horizontal": ("column of the first object", "column of the second object"),
        "vertical": ("row of the first object", "row of the second object"),
    }
    pair_note = "The first object is the one that the query names first."
    best_unbound = "79 %"

    @staticmethod
    def text(args: Sequence[Any]) -> str:
        return f"The {noun(args[0])} is {args[1]} the {noun(args[2])}."

    @staticmethod
    def parse(match: re.Match[str]) -> tuple[Any, ...]:
        return parse_noun(match[1]), match[2], parse_noun(match[3])

    @staticmethod
    def truth(scene: Scene, args: Sequence[Any]) -> tuple[bool, Pair]:
        axis, sign = RELATIONS[args[1]]
        first, second = (_only_one(scene, args[i]) for i in (0, 2))
        if axis == "horizontal":
            a, b = first.column, second.column
            return (b - a) * sign > 0, (axis, column_name(a), column_name(b))
        a, b = first.row, second.row
        return (b - a) * sign > 0, (axis, row_name(a), row_name(b))

    @staticmethod
    def recount(args: Sequence[Any], cells: CellsOf) -> tuple[bool, Pair]:
        first, second = cells[args[0]], cells[args[2]]
        if len(first) != 1 or len(second) != 1:
            raise ValueError(f"the scene has {len(first)} {args[0]} and {len(second)} {args[2]}, not one each")
        (y, x), (v, u) = *first, *second
        answer = {"to the left of": x < u, "to the right of": x > u, "above": y < v, "below": y > v}[args[1]]
        if args[1] in ("above", "below"):
            return answer, ("vertical", str(y + 1), str(v + 1))
        return answer, ("horizontal", chr(65 + x), chr(65 + u))

    @staticmethod
    def setting_limits(config: Any, args: Sequence[Any], pair: Pair, cells: CellsOf, total: int) -> Iterator[Limit]:
        yield "distractors", total - len(cells[args[0]] | cells[args[2]]), config.distractors

    @staticmethod
    def predicate(args: Sequence[Any]) -> str:
        return {"to the left of": "left", "to the right of": "right"}.get(args[1], args[1])

    @staticmethod
    def auxiliary_words(pair: Pair) -> list[str]:
        axis, first, second = pair
        before = (len(first), first) < (len(second), second)
        words = ("left", "right") if axis == "horizontal" else ("above", "below")
        return [words[0] if before else words[1], first, second]

    @staticmethod
    def published_fields(args: Sequence[Any], objects: Sequence[Object], pair: Sequence[str]) -> dict[str, Any]:
        first, second = (next(i for i, o in enumerate(objects) if o.matches(args[a])) for a in (0, 2))
        kind = "left/right" if RELATIONS[args[1]][0] == "horizontal" else "above/below"
        return {"relationship": kind, "query_abstract": [first, args[1], second]}

    # Scenes -------------------------------------------------------------------------------------------------------

    config: Spatiality
    anchors = 2

    def build(self) -> None:
        world, attributes = self.world, self.world.attributes(self.config.query_by)
        self.most_objects = 2 + self.config.distractors[1]
        self._positions = {
            "horizontal": (world.columns, self._held_out_axis("columns", world.columns, column_name)),
            "vertical": (world.rows, self._held_out_axis("rows", world.rows, row_name)),
        }
        unordered = list(itertools.combinations(sorted(attributes), 2))
        self._held_out_objects = splits.hold_out_share(unordered, self.config.held_out.objects, "spatiality")
        if self.config.distractors[1] and any(not self.others(*both) for both in unordered):
            raise ValueError("world: no kind of object is left for a distractor; add colours or shapes")
        sides = {"out": self._held_out_objects, "in": [b for b in unordered if b not in set(self._held_out_objects)]}
        groups: list[list[int]] = []
        coordinates: dict[int, tuple[int, int, int]] = {}
        for side, relation in itertools.product(SIDES, RELATIONS):
            true, false = self._pairs(side, relation, coordinates)
            texts = []
            for both in sides[side]:
                for first, second in (both, both[::-1]):
                    texts.append(self.query_number(first, relation, second))
                    kinds = (world.matching(first), world.matching(second), self.others(first, second))
                    groups.append([self.kind_list(k) for k in kinds])
            self.add_template(side, true, false, texts)
        self.group_kinds = np.array(groups).reshape(-1, 3)
        self._coordinates = np.array([coordinates[i] for i in range(len(self.pairs))]).reshape(-1, 3)

    def _pairs(
        self, side: str, relation: str, coordinates: dict[int, tuple[int, int, int]]
    ) -> tuple[list[int], list[int]]:
        """Numbers of the pairs of a side for which a relation is true, and false; their coordinates are added."""
        axis, sign = RELATIONS[relation]
        length, held_out = self._positions[axis]
        name = column_name if axis == "horizontal" else row_name
        true: list[int] = []
        false: list[int] = []
        for a, b in itertools.permutations(range(length), 2):
            if ((a, b) in held_out) == (side == "out"):
                number = self.pair_number((axis, name(a), name(b)))
                coordinates[number] = (axis == "horizontal", a, b)
                (true if (b - a) * sign > 0 else false).append(number)
        return true, false

    def _held_out_axis(self, setting: str, length: int, name: Callable[[int], str]) -> set[tuple[int, int]]:
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
        return {"pairs": pairs, "queries": [list(both) for both in self._held_out_objects]}

    def group_counts(self, draw: Draw) -> np.ndarray:
        counts = np.ones((len(draw.query), 3), np.intp)
        counts[:, 2] = choose_from(self.config.distractors, draw.words[:, 1])
        return counts

    def anchor_places(self, draw: Draw) -> np.ndarray:
        """The queried objects are free along the axis that the query does not ask about."""
        horizontal = self._coordinates[draw.pair, 0] == 1
        return np.where(horizontal, self.world.rows, self.world.columns)[:, None]

    def anchor_cells(self, draw: Draw, places: np.ndarray) -> np.ndarray:
        horizontal = self._coordinates[draw.pair, :1] == 1
        along = self._coordinates[draw.pair, 1:]  # (N, 2)
        width = self.world.columns
        return np.where(horizontal, places * width + along, along * width + places)

    def capacity(self, template: Template) -> int:
        relation = self.queries[template.texts[0]].args[1]
        across = self.world.rows if RELATIONS[relation][0] == "horizontal" else self.world.columns
        lowest = self.config.distractors[0]

        def kinds(query: int) -> int:
            return (
                self.kinds_in_group(query, 0) * self.kinds_in_group(query, 1) * self.kinds_in_group(query, 2) ** lowest
            )

        return across**2 * min(map(kinds, template.texts)) * self.placements(self.world.cells - 2, lowest)


def _only_one(scene: Scene, attribute: str) -> Object:
    found = objects_of(scene, attribute)
    if len(found) != 1:
        raise ValueError(f"the query names the {attribute}, but the scene has {len(found)}")
    return found[0]
