"""The base class of tasks. Each other file in `travlr/tasks/` defines one task: a config and a subclass of `Task`.

A task defines the text and the truth of its queries, the held-out pairs, and the objects of a scene. `travlr.sampler`
draws examples from it. The audit, the browse page, training and the figures take all else about the task from it.
`docs/adding-a-task.md` shows a whole file.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from travlr import streams
from travlr.config import Config
from travlr.scene import Query, Scene

Cells = set[tuple[int, int]]  # (row, column)
CellsOf = Mapping[str, Cells]  # "red", "circle" or "red circle" -> the cells of such objects, empty for none
Pair = tuple[str, ...]

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
class OpenQuestion:
    """A question without given answers, about one scene.

    wordings: each valid answer -> the phrases that mean it, compared without articles, `is`, `to`, `of` and
    `objects`. Empty where the answer is a number, which stands in `answer` as digits.
    """

    text: str
    answer: str
    wordings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Draw:
    """Query and pair of N examples, drawn before their scenes.

    query, pair: (N,) numbers. partner: (N,), the pair of the other example of the couple. words: (N, 8) random uint64,
    the same for both examples of a couple.
    """

    query: np.ndarray
    pair: np.ndarray
    partner: np.ndarray
    words: np.ndarray


class Task(ABC):
    """Base class of tasks. The class defines the language of queries, an instance the pairs and queries of a config.

    A scene consists of *groups* of objects. `group_counts` gives the number of objects of each group, and
    `group_kinds[query]` the list of kinds that each group draws from.

    Raises `ValueError`, naming the setting, where the config leaves nothing to train on.
    """

    name: ClassVar[str]
    title: ClassVar[str]  # one line, for the dataset card
    Config: ClassVar[type[Config]]  # the settings of the task
    # What an answer follows from: the `place` of two objects, the `count` of one noun, the `counts` of two, or the
    # `binding` of attributes in single objects. A baseline must not see all of it (travlr/baselines.py).
    decided_by: ClassVar[str] = "binding"
    object_arguments: ClassVar[tuple[int, ...]]  # positions of the query arguments that describe objects
    pattern: ClassVar[re.Pattern[str]]  # matches every query text; `parse` reads its groups
    vocabulary_arguments: ClassVar[tuple[tuple[Any, ...], ...]]  # of queries that together use every word of the task
    # First item of a pair -> what its other items are, at most two: numbers, names of columns, or words. The key is ""
    # where the pair is an attribute and a value, and both have a label.
    axes: ClassVar[dict[str, tuple[str, ...]]]
    uses_positions: ClassVar[bool] = False  # whether answers depend on the positions of objects
    pair_note: ClassVar[str] = ""  # explains the pairs on the browse page

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
    def recount(args: Sequence[Any], cells: CellsOf) -> tuple[bool, Pair] | None:
        """Answer and pair for the audit, computed from sets of cells by code that `truth` does not share; by default
        None, and the audit then compares a dataset with `truth` alone."""
        return None

    @classmethod
    def pair_kind(cls, pair: Sequence[str]) -> str | None:
        """The key of `axes` that a pair belongs to; None where it is no pair of this task."""
        if "" in cls.axes:
            return "" if len(pair) == len(cls.axes[""]) else None
        return pair[0] if pair and len(pair) - 1 == len(cls.axes.get(pair[0], pair)) else None

    # How other models are asked (`travlr.questions`) ----------------------------------------------------------------

    @staticmethod
    def alternatives(scene: Scene, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Arguments of queries of which exactly one is true in the scene, for multiple choice; by default none.

        Which of them is true must not follow from the list; `args` need not be among them.
        """
        return []

    @staticmethod
    def open_question(scene: Scene, args: Sequence[Any]) -> OpenQuestion | None:
        """A question whose answer decides the query; by default none."""
        return None

    # What the audit checks ----------------------------------------------------------------------------------------

    @staticmethod
    def other_pairs(args: Sequence[Any], cells: CellsOf) -> set[Pair]:
        """Further pairs that the scene shows, which must not be held out either."""
        return set()

    @classmethod
    def held_out_key(cls, args: Sequence[Any]) -> frozenset[str]:
        """The part of a query that `held_out()["queries"]` lists: by default the objects that it describes."""
        return frozenset(str(args[i]) for i in cls.object_arguments)

    # What training and the figures use ----------------------------------------------------------------------------

    @staticmethod
    def predicate(args: Sequence[Any]) -> str:
        """The word of a query that makes it true or false: "3", "left", "more"; by default that of its first argument.

        Of `not all` and `not only` it is "not"; the rest of the query tells them apart.
        """
        return str(args[0]).partition(" ")[0]

    @staticmethod
    def auxiliary_words(pair: Pair) -> list[str]:
        """Words of the auxiliary targets of a pair: the predicate that is true of it, then its values; or none."""
        return []

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
        self.exchanged = config.exchanged
        if self.exchanged and type(self).exchange is Task.exchange:
            raise ValueError(f"preset=strict: the task {config.task} has no exchange")
        try:
            self.build()
        except ValueError as error:
            if "inhomogeneous" in str(error):  # NumPy's, of a list of lists
                raise self._error("`group_kinds` or a template has rows of different lengths") from error
            raise
        self._check()

    @abstractmethod
    def build(self) -> None:
        """Fill pairs, queries, templates, group_kinds and most_objects."""

    def _check(self) -> None:
        """Raise `ValueError` where `build` breaks a rule that sampling, training or figures rely on."""
        if self.group_kinds.dtype == object:
            raise self._error("`group_kinds` has rows of different lengths; every query needs a list for each group")
        if self.group_kinds.ndim != 2:
            raise ValueError("world: leaves no query to ask; add colours or shapes")
        if len(self.object_arguments) > 3:
            raise self._error("`object_arguments`: baselines and reports show at most three")
        for pair in self.pairs:
            if self.pair_kind(pair) is None:
                raise self._error(f"the pair {pair} has no entry in `axes`, or not as many items as that has labels")
        for side, templates in self.templates.items():
            parts = {"query": "texts", "true pair": "true_pairs", "false pair": "false_pairs"}
            for noun, name in parts.items():
                counts = Counter(number for template in templates for number in getattr(template, name).tolist())
                if repeated := [number for number in counts if counts[number] > 1]:
                    value = self.queries[repeated[0]] if noun == "query" else self.pairs[repeated[0]]
                    raise self._error(
                        f"{value} stands twice as a {noun} of the templates of the side {side!r}; it may stand once"
                    )
            for template in templates if any(map(self.auxiliary_words, self.pairs)) else ():
                self._check_words(template)

    def _check_words(self, template: Template) -> None:
        """Raise `ValueError` unless the first auxiliary word of a pair is the predicate of exactly the true queries."""
        predicates = np.array([self.predicate(self.queries[number].args) for number in template.texts])
        true, false = (
            np.array([(self.auxiliary_words(self.pairs[number]) or [""])[0] for number in numbers])
            for numbers in (template.true_pairs, template.false_pairs)
        )
        if template.by_pair:
            wrong = (true != predicates) | (false[template.matchings] == predicates).any(axis=0)
        else:
            wrong = np.array([{*true} != {word} or word in {*false} for word in predicates])
        if wrong.any():
            place = int(wrong.argmax())
            query = self.queries[template.texts[place]]
            raise self._error(
                f"`predicate` is {str(predicates[place])!r} for {query.args}; the first of "
                "`auxiliary_words` must be equal for the pairs that make the query true, and differ for the others"
            )

    def _error(self, problem: str) -> ValueError:
        return ValueError(f"task={self.config.task}: {problem}")

    @abstractmethod
    def held_out(self) -> dict[str, Any]:
        """For the manifest: the `pairs` that only test_ood shows, and the `queries` that only test_ood asks (lists of
        attributes, in the form of `held_out_key`)."""

    @abstractmethod
    def group_counts(self, draw: Draw) -> np.ndarray:
        """Numbers of objects in each group of each scene, (N, groups)."""

    @abstractmethod
    def capacity(self, template: Template) -> int:
        """A lower bound of the number of scenes for each query of a template, for true and for false examples."""

    def anchor_places(self, draw: Draw) -> np.ndarray:
        """(N, anchors): the number of cells that each anchor may take."""
        raise NotImplementedError

    def anchor_cells(self, draw: Draw, places: np.ndarray) -> np.ndarray:
        """(N, anchors): the cell of each anchor, from the number of its place, (N, anchors)."""
        raise NotImplementedError

    def exchange(
        self, draw: Draw, grid: np.ndarray, keys: np.ndarray, words: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """For preset=strict: the scenes of N couples, and the keys by which captions order their objects.

        Both have the shape (2, N, cells): first the false scenes, then the true ones.

        draw, grid: of the true scene of each couple, (N, cells), as `group_counts` and `group_kinds` describe it. What
        distinguishes two grids here must distinguish the two scenes that are made of each, so that none occurs twice.
        keys, words: (N, cells) random uint64. A task without this method cannot be set to preset=strict.
        """
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
        numbers = tuple(kinds)
        if numbers not in self.kind_lists:
            self.kind_lists[numbers] = len(self.kind_lists)
            self._kinds_in_list.append(max(len(numbers), 1))
        return self.kind_lists[numbers]

    def others(self, *attributes: str) -> list[int]:
        """Kinds that none of the attributes describes."""
        excluded = {kind for attribute in attributes for kind in self.world.matching(attribute)}
        return [kind for kind in range(1, len(self.world.kinds) + 1) if kind not in excluded]

    def compared_attributes(self) -> list[str]:
        """The attributes of the world from which queries take two. Raises `ValueError` where there is only one."""
        attributes = self.world.attributes(self.config.query_by)
        if len(attributes) < 2:
            raise ValueError(f"world: queries name two attributes, and there is only {attributes[0]}; add another")
        return attributes

    def noun_groups(self, *attributes: str) -> list[int]:
        """Kind lists of one group for each attribute, and of a last group for objects that none of them describes."""
        return [self.kind_list(kinds) for kinds in (*map(self.world.matching, attributes), self.others(*attributes))]

    def kinds_in_group(self, query: int, group: int) -> int:
        """How many kinds a group of a query draws from, at least 1."""
        return self._kinds_in_list[int(self.group_kinds[query, group])]

    def described(self, attributes: Sequence[str]) -> np.ndarray:
        """(attributes, kinds + 1) bool: whether each attribute describes each kind; kind 0, an empty cell, never."""
        table = np.zeros((len(attributes), len(self.world.kinds) + 1), bool)
        for row, attribute in zip(table, attributes, strict=True):
            row[list(self.world.matching(attribute))] = True
        return table

    def add_template(
        self,
        side: str,
        true_pairs: list[int],
        false_pairs: list[int],
        texts: list[int],
        matchings: np.ndarray | None = None,
        by_pair: bool = False,
    ) -> None:
        """Add a template to a side; one without pairs or texts is left out. A query, a true pair and a false pair may
        stand in one template of a side alone."""
        if not true_pairs or not texts:
            return
        if len(true_pairs) != len(false_pairs):
            raise self._error(f"a template has {len(true_pairs)} true and {len(false_pairs)} false pairs, not as many")
        if matchings is None:
            key = self.key(side, "any", str(len(self.templates[side])))
            matchings = streams.words(key, 0, MATCHINGS, len(true_pairs)).argsort(axis=1)
        true, false, text = (np.array(values) for values in (true_pairs, false_pairs, texts))
        self.templates[side].append(Template(true, false, text, matchings, by_pair))

    def add_ordered_template(
        self,
        side: str,
        dimension: str,
        values: Iterable[tuple[int, int]],
        sign: int,
        texts: list[int],
        name: Callable[[int], str] = str,
    ) -> None:
        """Add a template with the pairs (dimension, a, b), whose queries are true where (a - b) * sign > 0.

        values: all (a, b), which are never equal. name: writes one in a pair. With preset=strict the false pair
        that goes with (dimension, a, b) is (dimension, b, a).
        """
        numbers = {(a, b): self.pair_number((dimension, name(a), name(b))) for a, b in values}
        true = [(a, b) for a, b in numbers if (a - b) * sign > 0]
        false = [(a, b) for a, b in numbers if (a - b) * sign < 0]
        reverse = np.array([[false.index((b, a)) for a, b in true]], np.intp) if self.exchanged else None
        self.add_template(side, [numbers[p] for p in true], [numbers[p] for p in false], texts, reverse)

    @property
    def ranked(self) -> bool:
        """Whether the ways to place a group on the grid are few enough to number."""
        cells = self.world.cells
        return math.comb(cells, min(self.most_objects, cells // 2)) < streams.LARGEST

    def placements(self, cells: int, objects: int) -> int:
        """The number of ways to place objects on cells; 1 where placements are not numbered."""
        return math.comb(cells, objects) if self.ranked else 1

    def fewest_scenes(self, query: int, counts: Mapping[int, int]) -> int:
        """A lower bound of the number of scenes of a query, by the numbers of objects in its groups: group -> objects.

        It counts the ways to place all objects, and not the ways to share the cells out among the groups.
        """
        kinds = math.prod(self.kinds_in_group(query, group) ** number for group, number in counts.items())
        return self.placements(self.world.cells, sum(counts.values())) * kinds


def numbers_of(lowest_highest: Sequence[int]) -> list[int]:
    """All numbers of a range [lowest, highest]."""
    return list(range(lowest_highest[0], lowest_highest[1] + 1))


def choose_from(lowest_highest: Sequence[Any], word: np.ndarray) -> np.ndarray:
    """A number from the lowest to the highest (numbers or arrays) for each random word, (N,) uint64."""
    low, high = lowest_highest
    span = np.asarray(high) - low + 1
    return low + ((word >> np.uint64(32)) * span.astype(np.uint64) >> np.uint64(32)).astype(np.intp)


def shuffled(mask: np.ndarray, words: np.ndarray, most: int) -> np.ndarray:
    """(N, most): the numbers of the cells in the mask in random order, then those of other cells.

    mask: (N, cells) bool. words: (N, cells) random uint64.
    """
    return np.where(mask, words >> np.uint64(1), np.uint64(2**64 - 1)).argsort(axis=1)[:, :most]


def groups_of(counts: np.ndarray, most: int) -> np.ndarray:
    """(N, most): the group of each of the first objects, by the groups' counts (N, G); G past the last object."""
    return (np.arange(most)[None, :, None] >= np.cumsum(counts, axis=1)[:, None, :]).sum(axis=2)
