"""What every task says: the English of its queries, when they are true, and what a scene shows of the task.

`SimpleTask` (simple.py) and `Task` (vectorised.py) add the two ways to make scenes. The audit, the browse page,
training, questions and figures read tasks through `BaseTask` alone.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from travlr.config import Config
from travlr.scene import Scene
from travlr.tasks.language import QueryText

Cells = set[tuple[int, int]]  # (row, column)
CellsOf = Mapping[str, Cells]  # "red", "circle" or "red circle" -> the cells of such objects, empty for none
Pair = tuple[str, ...]
Arguments = dict[str, Any]  # of a query, by name


class TaskError(ValueError):
    """A task breaks a rule for tasks; the message names the task, its method and the rule."""


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
class Steps:
    """The steps to an answer in words. facts: sentences, the queried objects with their places and what follows from
    them. claim: what the query says instead of the last fact, in the words of that."""

    facts: str
    claim: str


class BaseTask(ABC):
    """Base class of tasks. The first line of a task's docstring is its title.

    query, arguments: a template and what its fields may be, see `travlr.tasks.language`.
    decided_by: what an answer follows from: the `place` of two objects, the `count` of one noun, the `counts` of two,
    or the `binding` of attributes in single objects. A baseline must not see all of it (`travlr.baselines`).
    axes: first item of a pair -> labels of its further items, for pages and figures. The key is "" where both items of
    a pair are values.
    """

    Config: ClassVar[type[Config]] = Config
    query: ClassVar[str]
    arguments: ClassVar[Mapping[str, Any]]
    decided_by: ClassVar[str] = "binding"
    axes: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @staticmethod
    @abstractmethod
    def truth(scene: Scene, *args: Any, **arguments: Any) -> bool:
        """Whether a query is true of a scene. Raises `ValueError` where it does not apply."""

    @staticmethod
    def pair(scene: Scene, *args: Any, **arguments: Any) -> Pair:
        """What the scene shows of the task, whether the query is true or false; this is what datasets hold out."""
        return ()

    @staticmethod
    def recount(cells: CellsOf, *args: Any, **arguments: Any) -> tuple[bool, Pair] | None:
        """Answer and pair for the audit, from sets of cells and by code that `truth` and `pair` do not share.

        By default None; the audit then compares a dataset with `truth` and `pair` alone.
        """
        return None

    @staticmethod
    def alternatives(scene: Scene, *args: Any, **arguments: Any) -> list[Arguments]:
        """Arguments of queries of which exactly one is true in the scene, for multiple choice; by default none.

        Which of them is true must not follow from the list; the query's own need not be among them.
        """
        return []

    @staticmethod
    def open_question(scene: Scene, *args: Any, **arguments: Any) -> OpenQuestion | None:
        """A question whose answer decides the query; by default none."""
        return None

    @staticmethod
    def steps(scene: Scene, *args: Any, **arguments: Any) -> Steps | None:
        """How the answer follows from the scene, in short sentences that models learn to write; by default None.

        Objects are listed in the order of the scene.
        """
        return None

    @staticmethod
    def auxiliary_words(pair: Pair) -> list[str]:
        """Words of the auxiliary targets of a pair: the predicate that is true of it, then its values; or none."""
        return []

    # What follows from these ----------------------------------------------------------------------------------------

    @classmethod
    def language(cls) -> QueryText:
        try:
            return _language(cls)
        except ValueError as error:
            raise ValueError(f"task={cls.__name__}: {error}") from None

    @classmethod
    def title(cls) -> str:
        line = (cls.__doc__ or cls.__name__).strip().partition("\n")[0].removesuffix(".")
        return line[:1].lower() + line[1:]

    @classmethod
    def text(cls, args: Sequence[Any]) -> str:
        """The English of a query."""
        return cls.language().text(tuple(args))

    @classmethod
    def by_name(cls, args: Sequence[Any]) -> Arguments:
        """The arguments of a query by name. Raises `ValueError` where they are too few or too many."""
        return dict(zip(cls.language().names, args, strict=True))

    @classmethod
    def nouns(cls, args: Sequence[Any]) -> list[str]:
        """The arguments that describe objects."""
        return [str(args[place]) for place in cls.language().nouns]

    @classmethod
    def answer_and_pair(cls, scene: Scene, args: Sequence[Any]) -> tuple[bool, Pair]:
        """Answer and pair of a query in a scene. Raises `ValueError` where the query does not apply to the scene."""
        arguments = cls.by_name(args)
        pair: Any = cls.pair(scene, **arguments)
        if isinstance(pair, str):
            raise TaskError(f"task={cls.__name__}: `pair` gave the text {pair!r}; it must give a tuple of texts")
        return bool(cls.truth(scene, **arguments)), tuple(map(str, pair))

    @classmethod
    def axes_of(cls, pairs: Iterable[Sequence[str]]) -> Mapping[str, tuple[str, ...]]:
        """`axes`, or plain ones for pairs that have two values."""
        plain = ("first value", "second value")
        of_three = {pair[0]: plain for pair in pairs if len(pair) == 3}
        of_two = {"": plain} if any(len(pair) == 2 for pair in pairs) else {}
        return cls.axes or of_three or of_two


@functools.cache
def _language(task: type[BaseTask]) -> QueryText:
    return QueryText(task.query, task.arguments)
