"""What the audit knows of single tasks: rules beside those of `travlr.baselines`, and further pairs of a scene.

The rules count a set that a query does not ask about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from travlr.scene import COLOURS, SHAPES, Query
from travlr.tasks.base import CellsOf, Pair
from travlr.tasks.quantifiers import COUNTED

# Rules that predict answers from the query, and from the query and the number of objects, in every task.
QUERY, TOTAL = "shortcut: query text", "shortcut: query text and number of objects"
UNASKED, EMPTY = "shortcut: set not asked about", "shortcut: set not asked about, empty or not"
SHARED, REVERSED, REST = "shortcut: part of both pairs", "shortcut: X without Y", "shortcut: number of distractors"

ABOUT = {  # rule -> explanation
    QUERY: "",
    TOTAL: "",
    UNASKED: "Y without X, and for only and not only X without Y",
    EMPTY: "",
    SHARED: "X and Y, for all, not all, only and not only",
    REVERSED: "for some and none: Table 1 reverses the held-out numbers of one of them",
    REST: "at equal totals they make up for the set that is empty where a quantifier, or its opposite, is true",
}
UNAVOIDABLE = (REVERSED, REST)  # reported, no failure: arithmetic cannot remove them


def quantifier_features(args: Sequence[Any], cells: CellsOf, total: int) -> Iterator[tuple[str, Any]]:
    """(rule, feature that it predicts the answer from) of a query about quantifiers. total: objects of the scene."""
    quantifier, x, y = args[0], cells[args[1]], cells[args[2]]
    unasked = len(x - y if quantifier in ("only", "not only") else y - x)
    yield UNASKED, (quantifier, unasked)
    yield EMPTY, (quantifier, unasked > 0)
    shared = COUNTED[quantifier](x, y)[0]
    yield REVERSED if quantifier in ("some", "none") else SHARED, (quantifier, len(shared))
    yield REST, (quantifier, total - len(x | y))


FEATURES: dict[str, Callable[[Sequence[Any], CellsOf, int], Iterator[tuple[str, Any]]]] = {
    "quantifiers": quantifier_features,
}


def other_pairs(query: Query, cells: CellsOf) -> set[Pair]:
    """Further pairs that a scene shows, which must not be held out either: for cardinality, of its other attributes.

    They are of the kind that the query names: of shapes, where it names a shape.
    """
    if query.task != "cardinality":
        return set()

    def kind(words: str) -> tuple[bool, bool]:
        return words in COLOURS, words in SHAPES

    queried = query.args[1]
    return {(words, str(len(cells[words]))) for words in cells if kind(words) == kind(queried) and words != queried}
