"""What a task is. Each file in `travlr/tasks/` defines one: a config, and a class that derives from `Task`.

A task says how its queries read and when they are true, which of its pairs are held out, and which objects a scene
must hold. `travlr.sampler` draws examples from that; the audit, the browse page, training and the figures ask the task
for the rest. `docs/adding-a-task.md` shows a whole file.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from travlr import streams
from travlr.config import Config
from travlr.scene import Object, Query, Scene

Cells = set[tuple[int, int]]  # (row, column)
CellsOf = Mapping[str, Cells]  # "red", "circle" or "red circle" -> the cells of such objects, empty for none
Pair = tuple[str, ...]
Limit = tuple[str, int, Sequence[int]]  # a setting, the number that a scene shows, and its range [lowest, highest]

SIDES = ("in", "out")  # of the training distribution
MATCHINGS = 60  # ways to match the true pairs of a template with its false pairs; a round draws one


@dataclass(frozen=True)
class Template:
    """Queries of one form, which differ in the objects that they describe, with the pairs that make them true or false.

    true_pairs, false_pairs: (L,) pair numbers. texts: (T,) query numbers; each serves every pair, or with `by_pair` the
    true pair in its place. matchings: (R, L), the false pair that goes with each true pair.
    """

    true_pairs: np.ndarray
    false_pairs: np.ndarray
    texts: np.ndarray
    matchings: np.ndarray
    by_pair: bool = False


@dataclass(frozen=True)
class Draw:
    """What is settled about N examples before their scenes are drawn.

    query, pair: (N,) numbers. partner: (N,), the pair of the other example of the couple. words: (N, 8) random uint64,
    the same for both examples of a couple.
    """

    query: np.ndarray
    pair: np.ndarray
    partner: np.ndarray
    words: np.ndarray


class Task(ABC):
    """A task with a config. An instance holds its pairs, queries and templates; the class holds its language.

    A scene is drawn from *groups* of objects: `group_counts` says how many objects each group has, and
    `group_kinds[query]` from which list of kinds each group draws.

    Raises `ValueError`, naming the setting, where the config leaves nothing to train on.
    """

    name: ClassVar[str]
    title: ClassVar[str]  # one line, for the dataset card
    Config: ClassVar[type[Config]]
    described: ClassVar[tuple[int, ...]]  # which arguments of a query describe objects
    pattern: ClassVar[re.Pattern[str]]  # of query texts; `parse` reads its groups
    # What an answer follows from: the `place` of two objects, the `count` of one noun, the `counts` of two, or the
    # `binding` of attributes in single objects. A baseline must not see all of it (travlr/baselines.py).
    decided_by: ClassVar[str] = "binding"
    samples: ClassVar[tuple[tuple[Any, ...], ...]]  # arguments of queries that together use every word of this task
    presets: ClassVar[dict[str, dict[str, Any]]] = {}  # preset -> settings that differ from the default
    # The first item of a pair -> what its two values are. "" where the pair is an attribute and one number.
    axes: ClassVar[dict[str, tuple[str, str]]]
    places: ClassVar[bool] = False  # whether answers depend on where objects are
    note: ClassVar[str] = ""  # how to read the pairs, for the browse page
    # With the default settings, the accuracy of the best rule that does not bind colour, shape and place; for the card.
    best_unbound: ClassVar[str] = ""
    shortcut_note: ClassVar[str] = ""  # what else the card says about it
    # Rules that predict answers without the objects that decide, for the audit: name -> what the rule looks at.
    shortcuts: ClassVar[dict[str, str]] = {}
    reported: ClassVar[tuple[str, ...]] = ()  # the shortcuts that follow by arithmetic: reported, never a failure

    # Language and truth ------------------------------------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def text(args: Sequence[Any]) -> str:
        """The English of a query with these arguments."""

    @staticmethod
    @abstractmethod
    def parse(match: re.Match[str]) -> tuple[Any, ...]:
        """The arguments of a query text that `pattern` matches. Raises `ValueError` for words of no object."""

    @staticmethod
    @abstractmethod
    def truth(scene: Scene, args: Sequence[Any]) -> tuple[bool, Pair]:
        """Answer and pair of a query in a scene. Raises `ValueError` where the query does not apply to the scene."""

    @staticmethod
    @abstractmethod
    def recount(args: Sequence[Any], cells: CellsOf) -> tuple[bool, Pair]:
        """Answer and pair once more, for the audit: from sets of cells, by code that `truth` does not share."""

    # What the audit checks ----------------------------------------------------------------------------------------

    @staticmethod
    def limits(config: Any, args: Sequence[Any], pair: Pair, cells: CellsOf, total: int) -> Iterator[Limit]:
        """Numbers of a scene that its settings limit. total: how many objects the scene has."""
        yield from ()

    @staticmethod
    def other_pairs(args: Sequence[Any], cells: CellsOf) -> set[Pair]:
        """Pairs of the scene beside that of the query, where scenes must not show held-out ones."""
        return set()

    @classmethod
    def held_out_key(cls, args: Sequence[Any]) -> frozenset[str]:
        """What `held_out()["queries"]` names of a query: by default the objects that it describes."""
        return frozenset(str(args[i]) for i in cls.described)

    @staticmethod
    def features(args: Sequence[Any], cells: CellsOf, total: int) -> Iterator[tuple[str, Any]]:
        """(shortcut, what it looks at) for each of `shortcuts` that applies to the query."""
        yield from ()

    # What training and the figures use ----------------------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def claim(args: Sequence[Any]) -> str:
        """The word of a query that is true or false of the objects that it describes: "3", "left", "more"."""

    @staticmethod
    @abstractmethod
    def steps(pair: Pair) -> list[str]:
        """Auxiliary targets: the claim that is true of a pair, then the one or two values that it follows from."""

    @staticmethod
    def published(args: Sequence[Any], objects: Sequence[Object], pair: Sequence[str]) -> dict[str, Any]:
        """What `metadata.jsonl` of the published layout says of a query; the paper's tasks have forms of their own."""
        return {"case": list(args), "query_abstract": {"args": list(args)}}

    # Scenes -------------------------------------------------------------------------------------------------------

    most_objects: int  # in any scene
    group_kinds: np.ndarray  # (queries, groups), numbers of kind lists
    anchors: int = 0  # the first groups hold one object each, whose cell `anchor_cells` gives

    def __init__(self, config: Any) -> None:
        self.config = config
        self.world = config.world
        self.pairs: list[Pair] = []
        self.queries: list[Query] = []
        self.templates: dict[str, list[Template]] = {side: [] for side in SIDES}
        self.kind_lists: dict[tuple[int, ...], int] = {}  # kinds -> number of the list
        self._kinds_in_list: list[int] = []
        self._pair_numbers: dict[Pair, int] = {}
        self.build()

    @abstractmethod
    def build(self) -> None:
        """Fill pairs, queries, templates, group_kinds and most_objects."""

    @abstractmethod
    def held_out(self) -> dict[str, Any]:
        """What only test_ood shows, for the manifest: `pairs`, and `queries`, lists of what its queries name."""

    @abstractmethod
    def group_counts(self, draw: Draw) -> np.ndarray:
        """Numbers of objects in each group of each scene, (N, groups)."""

    @abstractmethod
    def capacity(self, template: Template) -> int:
        """How many scenes each query of a template surely has, true and false alike."""

    def anchor_places(self, draw: Draw) -> np.ndarray:
        """(N, anchors): how many cells each anchor may take."""
        raise NotImplementedError

    def anchor_cells(self, draw: Draw, places: np.ndarray) -> np.ndarray:
        """(N, anchors): the cell of each anchor, from the number of its place, (N, anchors)."""
        raise NotImplementedError

    # Helpers for `build` and `capacity` ---------------------------------------------------------------------------

    def key(self, *names: str) -> int:
        """The key of a random stream of this task, for `travlr.streams`."""
        return streams.stream_key("travlr", self.config.seed, self.config.task, *names)

    def pair_number(self, pair: Sequence[object]) -> int:
        words = tuple(str(part) for part in pair)
        if words not in self._pair_numbers:
            self._pair_numbers[words] = len(self.pairs)
            self.pairs.append(words)
        return self._pair_numbers[words]

    def query_number(self, *args: Any) -> int:
        self.queries.append(Query(self.config.task, args))
        return len(self.queries) - 1

    def kind_list(self, kinds: Iterable[int]) -> int:
        """The number of a list of kinds that a group draws from."""
        listed = tuple(kinds)
        if listed not in self.kind_lists:
            self.kind_lists[listed] = len(self.kind_lists)
            self._kinds_in_list.append(max(len(listed), 1))
        return self.kind_lists[listed]

    def others(self, *attributes: str) -> list[int]:
        """Kinds that none of the attributes describes."""
        excluded = {kind for attribute in attributes for kind in self.world.matching(attribute)}
        return [kind for kind in range(1, len(self.world.kinds) + 1) if kind not in excluded]

    def kinds_in_group(self, query: int, group: int) -> int:
        """How many kinds a group of a query draws from, at least 1."""
        return self._kinds_in_list[int(self.group_kinds[query, group])]

    def add_template(
        self,
        side: str,
        true_pairs: list[int],
        false_pairs: list[int],
        texts: list[int],
        matchings: np.ndarray | None = None,
        by_pair: bool = False,
    ) -> None:
        """Add a template to a side; one without pairs or texts is left out."""
        if not true_pairs or not texts:
            return
        if matchings is None:
            key = self.key(side, "any", str(len(self.templates[side])))
            matchings = streams.words(key, 0, MATCHINGS, len(true_pairs)).argsort(axis=1)
        true, false, text = (np.array(values) for values in (true_pairs, false_pairs, texts))
        self.templates[side].append(Template(true, false, text, matchings, by_pair))

    @property
    def ranked(self) -> bool:
        """Whether the ways to place a group on the grid are few enough to number."""
        cells = self.world.cells
        return math.comb(cells, min(self.most_objects, cells // 2)) < streams.LARGEST

    def placements(self, cells: int, objects: int) -> int:
        """In how many ways objects can be placed on so many cells; 1 where these are not numbered."""
        return math.comb(cells, objects) if self.ranked else 1


def numbers_of(lowest_highest: Sequence[int]) -> list[int]:
    """All numbers of a range [lowest, highest]."""
    return list(range(lowest_highest[0], lowest_highest[1] + 1))


def choose_from(lowest_highest: Sequence[Any], word: np.ndarray) -> np.ndarray:
    """A number from the lowest to the highest (numbers or arrays) for each random word, (N,) uint64."""
    low, high = lowest_highest
    span = np.asarray(high) - low + 1
    return low + ((word >> np.uint64(32)) * span.astype(np.uint64) >> np.uint64(32)).astype(np.intp)
