"""Rules that answer queries without reasoning: the features of each.

A rule is *unbound* when it sees counts of words, totals, places or orders, but not which colour, shape and place belong
together, or only one of the objects or counts that a query compares. `scoring` fits and scores the rules.

N examples, W words of the world (colours, then shapes), O and D arguments of a query that describe no object or some.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from travlr.baselines.arrays import BINS, MENTIONS, SplitArrays

Features = Callable[[SplitArrays], np.ndarray]


@dataclass(frozen=True)
class Rule:
    """A rule. blind: what it cannot see. features: (N, F) numbers that it sees beside the words of the query.

    bound_for: kinds of task (`Task.decided_by`) for which these features hold what decides, so that the rule is no
    baseline. alone_for: kinds of task for which it is unbound only without the features of other rules. noun: the only
    noun that the features are about, if there is one. counts: it finds what is asked in
    another way, such as elimination: it is shown, and is no unbound rule. boosted: it has many features.
    """

    name: str
    blind: str
    features: Features
    bound_for: tuple[str, ...] = ()
    alone_for: tuple[str, ...] = ()
    noun: int | None = None
    counts: bool = False
    boosted: bool = False


def query_features(e: SplitArrays) -> np.ndarray:
    """What every rule sees: (N, O + 2 D)."""
    return np.concatenate([e.operators, e.nouns.reshape(len(e.total), -1)], 1)


def _sorted_counts(e: SplitArrays) -> np.ndarray:
    """Counts of colours and of shapes, each in descending order; how many of them are the number that a query names."""
    equal = [(counts == e.operators[:, -1:]).sum(1) for counts in e.kinds]
    return np.column_stack([*(-np.sort(-counts, 1) for counts in e.kinds), *equal, e.total])


def _count_of(noun: int) -> Features:
    def features(e: SplitArrays) -> np.ndarray:
        counts = e.noun_counts(noun)
        leads = [counts.max(1) == part.max(1) for part in e.kinds]
        return np.column_stack([counts, e.total[:, None] - counts, *leads, e.total])

    return features


def _other_attributes(e: SplitArrays) -> np.ndarray:
    """Counts of the colours where the nouns name shapes alone, of the shapes where they name colours alone."""
    names_kind = (np.any(e.nouns[:, :, [kind]] >= 0, axis=1) for kind in (0, 1))
    return np.column_stack([np.where(names, -1, counts) for names, counts in zip(names_kind, e.kinds, strict=True)])


def _another_word(e: SplitArrays) -> np.ndarray:
    """The count of the word after the first noun's in the list of its kind; -1 where the second noun names it."""
    word = e.nouns[:, 0].max(1)
    first, number = np.where(word < e.colours, 0, e.colours), np.where(word < e.colours, e.colours, e.counts.shape[1])
    after = first + (word + 1 - first) % np.maximum(number - first, 1)
    in_query = np.any(e.nouns == after[:, None, None], axis=(1, 2))
    return np.where(in_query, -1, np.take_along_axis(e.counts, np.maximum(after, 0)[:, None], 1)[:, 0])


def _order(e: SplitArrays) -> np.ndarray:
    """Which noun the caption mentions first, and the position of each."""
    position = _at_nouns(e, e.mentions[:, :, 0])
    return np.column_stack([position, position[:, 0] < position[:, -1]])


def _mentions(e: SplitArrays) -> np.ndarray:
    """The first and the last mention of each noun, their distances from the end, and their order."""
    parts = [_at_nouns(e, mention) for mention in (e.mentions[:, :, 0], e.last)]
    orders = [part[:, 0] < part[:, -1] for part in parts]
    return np.column_stack([*parts, e.total[:, None] - parts[1], *orders])


def _further_mentions(e: SplitArrays) -> np.ndarray:
    """The first few mentions of each noun, -1 for none, and their orders."""
    parts = [_at_nouns(e, e.mentions[:, :, k]) for k in range(MENTIONS)]
    return np.column_stack([*parts, *(part[:, 0] < part[:, -1] for part in parts)])


def _at_nouns(e: SplitArrays, of_words: np.ndarray) -> np.ndarray:
    """The values of nouns, (N, D), among those of words, (N, W); -1 for none."""
    words = e.nouns.max(2)  # the shape, or the colour where there is no shape
    return np.where(words < 0, -1, np.take_along_axis(of_words, np.maximum(words, 0), 1))


def _other_counts(e: SplitArrays) -> np.ndarray:
    """The counts of all words but the last noun's, sorted too, how many of them a query asks for, the counts of the
    other nouns, and the total."""
    last_noun = e.nouns[:, -1]
    hidden = np.any(np.arange(e.counts.shape[1])[None, :, None] == last_noun[:, None], axis=2)
    counts = np.where(hidden, -1, e.counts)
    same = (counts == e.operators[:, -1:]).sum(1)
    shapes = np.sort(counts[:, e.colours :], axis=1)
    return np.column_stack([counts, shapes, same, e.noun_counts()[:, :-2], e.total])


def _free_column(e: SplitArrays) -> np.ndarray:
    """The place of the first noun, and the rows and columns of the objects that no noun describes."""
    return np.column_stack([e.places[:, 0], e.others.sum(1), e.others.sum(2)])


def _number_elsewhere(e: SplitArrays) -> np.ndarray:
    """How many other colours and how many other shapes have the number that a query names."""
    counts = _other_counts(e)[:, : e.counts.shape[1]]
    return np.column_stack([(part == e.operators[:, -1:]).sum(1) for part in np.split(counts, [e.colours], 1)])


def _ink(e: SplitArrays) -> np.ndarray:
    """The ink by colour, by row and by column, and its sum."""
    return np.column_stack([e.ink, e.ink[:, -BINS:].sum(1)])


def _cells(e: SplitArrays) -> np.ndarray:
    """The occupied cells, and how many there are in each row, each column and each half."""
    rows, columns = e.cells.sum(2), e.cells.sum(1)
    halves = [part[:, : part.shape[1] // 2].sum(1) for part in (rows, columns)]
    return np.column_stack([e.cells.reshape(len(e.total), -1), rows, columns, *halves])


RULES = (
    Rule("query", "the scene", lambda e: np.zeros((len(e.total), 0), np.int64)),
    Rule("total", "all but the number of objects", lambda e: e.total),
    Rule("length", "all but the length of the caption", lambda e: e.length),
    Rule("size of the picture file", "what the picture shows", lambda e: e.picture),
    Rule("occupied cells", "colours and shapes", _cells),
    Rule("first and last object", "the other objects", lambda e: e.ends.reshape(len(e.total), -1), ("place",)),
    Rule("order of mention", "counts and places", _order),
    Rule(
        "words present",
        "how many objects have a colour or shape",
        lambda e: np.column_stack([(counts > 0).sum(1) for counts in e.kinds]),
    ),
    Rule("sorted counts", "which count belongs to which colour or shape", _sorted_counts),
    Rule("counts of other attributes", "the attributes that the query names", _other_attributes),
    Rule("count of another word", "the objects that the query describes", _another_word),
    Rule("first and last mentions", "counts and places", _mentions, boosted=True),
    Rule(
        "second and third mentions",
        "which colour belongs to which shape",
        _further_mentions,
        bound_for=("counts",),
        alone_for=("count",),  # where the second mention is the last one, the number is two
        boosted=True,
    ),
    Rule(
        "second and third mentions (of both nouns)",  # their distances tell which is more frequent: this compares
        "further objects",
        _further_mentions,
        bound_for=("binding", "place", "count"),
        counts=True,
        boosted=True,
    ),
    Rule(
        "another has the asked number",
        "the objects that the query describes",
        _number_elsewhere,
        bound_for=("binding", "counts", "place"),
        alone_for=("count",),  # how many have it, without how many others have it, counts
        boosted=True,
    ),
    Rule("ink by colour, row and column", "shapes, and which object has which place", _ink, boosted=True),
    Rule(
        "ink and number of objects",
        "shapes, and which object has which place",
        lambda e: np.column_stack([_ink(e), _other_attributes(e), e.total]),
        boosted=True,
    ),
    Rule(
        "ink and word counts",
        "which colour belongs to which shape",
        lambda e: np.column_stack([_ink(e), e.noun_counts(), e.total]),
        bound_for=("count", "counts"),
        boosted=True,
    ),
    Rule(
        "all other counts (counting by elimination)",
        "only the count of the last noun",
        _other_counts,
        bound_for=("binding", "place"),
        counts=True,
        boosted=True,
    ),
    Rule(
        "all other places (by elimination)",
        "only the place of the last noun",
        _free_column,
        bound_for=("binding", "count", "counts"),
        counts=True,
        boosted=True,
    ),
    Rule(
        "other objects",  # at least so many: the total without the counts of the query's words
        "the objects that the query describes",
        lambda e: e.total - np.maximum(e.noun_counts(), 0).sum(1),
        ("count",),
        alone_for=("counts",),
    ),
    Rule(
        "distractors",
        "the objects that the query describes",
        lambda e: e.total - e.described,
        ("count", "counts"),
        alone_for=("binding",),
    ),
    Rule("count of first noun", "the other noun", _count_of(0), bound_for=("count",), noun=0),
    Rule("count of second noun", "the first noun", _count_of(1), bound_for=("count",), noun=1),
    Rule("count of third noun", "the other nouns", _count_of(2), bound_for=("count",), noun=2),
    Rule(
        "word counts",
        "which colour belongs to which shape",
        lambda e: np.column_stack([e.noun_counts(), e.total]),
        bound_for=("count", "counts"),
    ),
    Rule(
        "place of first noun",
        "the other object",
        lambda e: e.places[:, 0],
        bound_for=("count", "counts", "binding"),
        noun=0,
    ),
    Rule(
        "place of second noun",
        "the first object",
        lambda e: e.places[:, 1],
        bound_for=("count", "counts", "binding"),
        noun=1,
    ),
    Rule(
        "place of third noun",
        "the other objects",
        lambda e: e.places[:, 2],
        bound_for=("count", "counts", "binding"),
        noun=2,
    ),
)
