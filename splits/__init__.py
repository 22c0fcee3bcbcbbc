"""Which pairs are in and out of distribution. A leaf: imports nothing else of this project.

Everything here is small and explicit, so that it can be read in the manifest of a dataset and reviewed.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from typing import TypeVar

Names = TypeVar("Names", bound=tuple[str, ...])

# The paper's world (section 3, appendix A). The released generator gave the pentagon the square's numbers.
CARDINALITY = {
    "circle": (1, 5),
    "hexagon": (2, 4),
    "octagon": (3, 5),
    "square": (4, 6),
    "star": (1, 3),
    "triangle": (2, 6),
    "pentagon": (2, 5),
}
COLUMNS_OF_SIX = ((0, 4), (1, 3), (2, 5))
ROWS_OF_SIX = ((1, 5), (0, 2), (3, 4))
BALANCED_TRAIN_OF_SIX = ((0, 2), (1, 3), (2, 3), (3, 4), (3, 5), (4, 5))
BALANCED_OUT_OF_SIX = ((0, 1), (1, 2), (2, 5))
QUANTIFIERS = ((1, 3), (1, 4), (1, 5), (2, 4), (4, 4))  # <a, b> in Table 1's order
COMPARED_SHAPES = (("circle", "square"), ("circle", "star"), ("hexagon", "square"), ("star", "triangle"))


def held_out_positions(length: int, axis: str) -> list[tuple[int, int]]:
    """Held-out unordered pairs of columns (or rows), counted from 0; every column and row stays in training.

    The paper's for six; otherwise each is paired once with the one half the grid away.
    """
    if length == 6:
        return list(COLUMNS_OF_SIX if axis == "horizontal" else ROWS_OF_SIX)
    return [(i, i + length // 2) for i in range(length // 2)] if length > 2 else []


def balanced_pairs(length: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Unordered pairs (a, b), a < b, of 0 .. length - 1 to train on and to hold out, so that one member says little.

    Both lists are as good as disjoint paths of small steps: almost every number is as often the smaller as the larger
    of a pair. The remaining pairs, with larger differences, belong to no split. For six the lists come from a search of
    all divisions that leave each number in training; `docs/strict.md` has the bound and its proof. Below four there is
    no such division: the first list has all pairs, the second none.
    """
    if length < 4:
        return list(itertools.combinations(range(length), 2)), []
    if length == 6:
        return list(BALANCED_TRAIN_OF_SIX), list(BALANCED_OUT_OF_SIX)
    starts = range(0, length, 4)
    train = [pair for i in starts for pair in ((i, i + 2), (i + 2, i + 3), (i + 3, i + 4))]
    train += [(i, i + 2) for i in range(1, length, 2)]
    out = [pair for i in starts for pair in ((i, i + 1), (i + 1, i + 2), (i + 2, i + 4))]
    return sorted(p for p in train if p[1] < length), sorted(p for p in out if p[1] < length)


def held_out_numbers(attributes: Sequence[str], numbers: Sequence[int]) -> dict[str, list[int]]:
    """Held-out numbers of each attribute: the paper's two where it has them, else two that move on with the attributes.

    There are none where fewer than two would stay in training, as a false query must name another number of its side.
    """
    if len(numbers) < 4:
        return {attribute: [] for attribute in attributes}
    held_out = {}
    for i, attribute in enumerate(attributes):
        paper = [n for n in CARDINALITY.get(attribute, ()) if n in numbers]
        moving = [numbers[i % len(numbers)], numbers[(i + len(numbers) // 2) % len(numbers)]]
        held_out[attribute] = paper if len(paper) == 2 else sorted(moving)
    return held_out


def hold_out_proportion(items: Iterable[Names], proportion: float, salt: str) -> list[Names]:
    """A fixed proportion of the items, chosen by hash, whatever their order and the seed of the data."""
    items = sorted(items)
    ranked = sorted(items, key=lambda item: hashlib.sha256(f"{salt}/{'/'.join(item)}".encode()).digest())
    return sorted(ranked[: round(proportion * len(items))])


def held_out_comparisons(attributes: Sequence[str]) -> list[tuple[str, str]]:
    """Unordered pairs of compared attributes held out: four of 21 shape pairs in the paper's world, else a fifth."""
    pairs = [(min(p), max(p)) for p in itertools.combinations(attributes, 2)]
    if all(p in pairs for p in COMPARED_SHAPES) and len(pairs) == 21:
        return list(COMPARED_SHAPES)
    return hold_out_proportion(pairs, 0.2, "comparison")


def held_out_attributes(shapes: Sequence[str], colours: Sequence[str]) -> list[tuple[str, str]]:
    """One colour for each shape, so that a seventh to a fifth of the (shape, colour) pairs are only in test_ood."""
    return [(shape, colours[i % len(colours)]) for i, shape in enumerate(shapes)]


def both_orders(pairs: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """(a, b) and (b, a) of each pair."""
    return {ordered for a, b in pairs for ordered in ((a, b), (b, a))}
