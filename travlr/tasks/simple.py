"""The short way to write a task: how a query reads, when it is true, and how to draw a scene.

Couples, balance, held-out splits and distinct examples follow from these (`travlr.sampling.rejection`), at some
thousand examples a second. `docs/adding-a-task.md` shows a whole task.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from travlr.scene import Object, Scene
from travlr.tasks.base import Arguments, BaseTask
from travlr.tasks.language import Args


class SimpleTask(BaseTask):
    """Base class of simple tasks. A subclass has `query`, `arguments`, `truth`, `pair` and `scene`, and for
    `preset=strict` also `exchange`.

    held_out: what only test_ood shows: `pairs`, and `queries`, each by the objects that it describes or by all of its
    arguments. Of what is not given, a fifth is held out, chosen by hash.
    """

    held_out: Mapping[str, Sequence[Sequence[Any]]] = {}

    def __init__(self, config: Any) -> None:
        self.config = config
        self.world = config.world
        if config.query_by != type(config)().query_by:
            raise ValueError(f"query_by={config.query_by}: has no effect on {config.task}, whose `arguments` say it")
        if config.exchanged and type(self).exchange is SimpleTask.exchange:
            raise ValueError(f"preset=strict: the task {config.task} has no exchange")
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}

    def queries(self) -> list[Args]:
        """The arguments of every query. A subclass may leave out those that cannot be asked about its scenes."""
        return self.language().every(self.world)

    @abstractmethod
    def scene(self, random: Random, arguments: Arguments, answer: bool) -> Scene:
        """A scene in which the query has the answer; or any scene, of which those with another answer are dropped.

        Scenes should show all pairs about equally often. All chance comes from `random`.
        """

    def exchange(self, scene: Scene, random: Random, *args: Any, **arguments: Any) -> Scene:
        """For preset=strict: of a scene in which the query is true, one in which it is false, by exchanging words.

        A couple is dropped where the second is not false, where one pair is held out and the other is not, or where
        the two differ in more than an exchange does: they must have objects in the same cells, and, for colours, shapes
        and sizes alike, the same numbers of objects of one word, though the words may exchange their numbers.
        May raise `ValueError` for a scene that has no exchange.
        """
        raise NotImplementedError

    def names(self, attribute: str = "", but: Iterable[str] = ()) -> tuple[str, ...]:
        """The objects of the world ("red circle") that an attribute describes and none of `but` does."""
        key = (attribute, *but)
        if key not in self._names:
            wanted, excluded = set(attribute.split()), [set(words.split()) for words in key[1:]]
            every = [(name, set(name.split())) for name in self.world.attributes("both")]
            fits = [n for n, words in every if wanted <= words and not any(part <= words for part in excluded)]
            self._names[key] = tuple(fits)
        return self._names[key]

    def place(self, random: Random, names: Sequence[str], cells: Sequence[tuple[int, int]] | None = None) -> Scene:
        """A scene of objects ("red circle") in the given cells (row, column); by default in random ones."""
        if len(names) > self.world.cells:
            raise ValueError(f"world: a scene has {len(names)} objects, but the grid only {self.world.cells} cells")
        if cells is None:
            free = random.sample(range(self.world.cells), len(names))
            cells = [divmod(cell, self.world.columns) for cell in free]
        objects = []
        for name, (row, column) in zip(names, cells, strict=True):
            colour, shape = name.split()
            objects.append(Object(colour, shape, random.choice(self.world.sizes), row, column))
        return tuple(objects)
