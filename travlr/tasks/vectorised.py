"""The base class of tasks that make many scenes at once, such as the paper's four.

A task says how many objects of which groups a scene holds; `travlr.sampling` draws examples from that, tens of
thousands a second. A task that need not be so fast is much shorter as a `SimpleTask`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from travlr.sampling import streams
from travlr.scene import Query
from travlr.tasks.base import BaseTask, Pair

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
    """Query and pair of N examples, drawn before their scenes.

    query, pair: (N,) numbers. partner: (N,), the pair of the other example of the couple. words: (N, 8) random uint64,
    the same for both examples of a couple.
    """

    query: np.ndarray
    pair: np.ndarray
    partner: np.ndarray
    words: np.ndarray


class Task(BaseTask):
    """Base class of vectorised tasks. The class defines the language of queries, an instance those of a config.

    A scene consists of *groups* of objects. `group_counts` gives the number of objects of each group, and
    `group_kinds[query]` the list of kinds that each group draws from.

    Raises `ValueError`, naming the setting, where the config leaves nothing to train on.
    """

    most_objects: int  # in any scene
    group_kinds: np.ndarray  # (queries, groups), numbers of kind lists

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
        self.build()
        self._check()

    @abstractmethod
    def build(self) -> None:
        """List the pairs, queries and templates of the config, and give `set_groups` the groups of each query."""

    @abstractmethod
    def group_counts(self, draw: Draw) -> np.ndarray:
        """Numbers of objects in each group of each scene, (N, groups)."""

    @abstractmethod
    def capacity(self, template: Template) -> int:
        """A lower bound of the number of scenes for each query of a template, for true and for false examples."""

    def anchor_cells(self, draw: Draw) -> np.ndarray:
        """(N, anchors, P): the cells that may hold the only object of each of the first groups, -1 where fewer than P.

        By default no group has such cells, and all objects may take any.
        """
        return np.zeros((len(draw.query), 0, 0), np.intp)

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

    def _check(self) -> None:
        """Raise `ValueError` where `build` breaks a rule that sampling relies on."""
        for side, templates in self.templates.items():
            parts = {"query": "texts", "true pair": "true_pairs", "false pair": "false_pairs"}
            for noun, name in parts.items():
                counts = Counter(number for template in templates for number in getattr(template, name).tolist())
                if repeated := [number for number in counts if counts[number] > 1]:
                    value = self.queries[repeated[0]] if noun == "query" else self.pairs[repeated[0]]
                    raise self._error(
                        f"{value} stands twice as a {noun} of the templates of the side {side!r}; it may stand once"
                    )

    def _error(self, problem: str) -> ValueError:
        return ValueError(f"task={self.config.task}: {problem}")

    def held_out(self) -> dict[str, Any]:
        """For the manifest: the `pairs` that only test_ood shows, and the `queries` that only test_ood asks.

        A query is listed by the objects that it describes; where training also asks about these, by all arguments.
        """
        pairs, queries_of_side = self._of_side("out")
        nouns_in_training = {frozenset(self.nouns(args)) for args in self._of_side("in")[1]}
        queries: dict[frozenset[str], list[str]] = {}
        for args in queries_of_side:
            nouns = self.nouns(args)
            key = [*map(str, args)] if frozenset(nouns) in nouns_in_training else nouns
            queries.setdefault(frozenset(key), key)
        return {"pairs": [list(pair) for pair in pairs], "queries": list(queries.values())}

    def _of_side(self, side: str) -> tuple[list[Pair], list[tuple[Any, ...]]]:
        """The pairs and the arguments of the queries of a side."""
        templates = self.templates[side]
        pairs = dict.fromkeys(n for t in templates for n in (*t.true_pairs.tolist(), *t.false_pairs.tolist()))
        return [self.pairs[n] for n in pairs], [self.queries[n].args for t in templates for n in t.texts.tolist()]

    def set_groups(self, kinds: Sequence[Sequence[int]], most_objects: int) -> None:
        """The list of kinds that each group of each query draws from, and the most objects of a scene."""
        if len({*map(len, kinds)}) > 1:
            raise self._error("the queries have different numbers of groups; each needs a list of kinds for each group")
        self.group_kinds = np.array(kinds, np.intp) if len(kinds) else np.zeros((0, 1), np.intp)
        self.most_objects = most_objects

    # Helpers for `build` and `capacity` ---------------------------------------------------------------------------

    def key(self, *names: str) -> int:
        """The key of a random stream of this task, for `travlr.sampling.streams`."""
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
