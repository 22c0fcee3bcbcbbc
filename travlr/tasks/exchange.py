"""Helpers for tasks whose couples exchange numbers or colours (`preset=strict`, docs/strict.md)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from travlr.config import Config
from travlr.tasks.vectorised import groups_of, shuffled


def check_exchange(config: Config, numbers: Sequence[int], one_word: bool = True) -> None:
    """Raise `ValueError` for an exchange that a rule without reasoning could see in a caption.

    With queries that name objects by two words, the exchange of numbers would change how often each of the two words
    occurs (`one_word`). An object that is the only one of its kind is mentioned first and last at the same place.
    """
    if not config.exchanged:
        return
    if one_word and config.query_by == "both":
        raise ValueError("preset=strict: needs query_by=shape or query_by=colour in this task")
    if numbers[0] < 2:
        raise ValueError(
            f"numbers={list(numbers)}: preset=strict needs at least 2 of each, so that first and last "
            "mentions are of different objects"
        )


def rank_among(mask: np.ndarray, words: np.ndarray) -> np.ndarray:
    """(N, cells): the place of each cell in the mask in a random order of them, from 0."""
    order = shuffled(mask, words, mask.shape[1])
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(mask.shape[1])[None, :], axis=1)
    return rank


def mentioned_between(keys: np.ndarray, changes: np.ndarray, fixed: list[np.ndarray]) -> np.ndarray:
    """Keys (N, cells) that order the objects in a caption: those of cells that change are moved between others.

    They come after the first and before the last cell of each mask of `fixed`. So the caption mentions the word of
    these cells first and last at the same places in both scenes of a couple.
    keys: (N, cells) random uint64. changes: (N, cells) bool. fixed: one or two disjoint masks (N, cells) bool of cells
    that do not change, with at least two in each row.
    """
    rows = np.arange(len(keys))
    place = (keys >> np.uint64(1)).astype(np.float64) / 2.0**63
    for one, other in ((fixed[0], fixed[-1]), (fixed[-1], fixed[0])):  # where one is before the other, let them overlap
        last = np.where(one, place, -1.0).argmax(axis=1)
        first = np.where(other, place, 2.0).argmin(axis=1)
        apart = place[rows, last] < place[rows, first]
        row, a, b = rows[apart], last[apart], first[apart]
        place[row, a], place[row, b] = place[row, b], place[row, a]
    low = np.max([np.where(mask, place, 2.0).min(axis=1) for mask in fixed], axis=0)[:, None]
    high = np.min([np.where(mask, place, -1.0).max(axis=1) for mask in fixed], axis=0)[:, None]
    place = np.where(changes, low + place * (high - low), place)
    return (place * 2.0**62).astype(np.uint64)


def exchange_numbers(
    kinds: np.ndarray,
    numbers: np.ndarray,
    exchanged: np.ndarray,
    grid: np.ndarray,
    keys: np.ndarray,
    words: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The scenes of couples in which two attributes exchange their numbers, and their keys, as `Task.exchange`.

    As many objects as the numbers differ by have one attribute in the true scene and the other in the false one; all
    else is the same.

    kinds: (A, R), kind numbers of each attribute, in the same order of the remaining attributes. numbers: (N, A), how
    many objects have each attribute in the true scene. exchanged: (N, 2), the two attributes. grid: (N, cells), 0 or
    the remaining attributes of an object, from 1.
    """
    rows = np.arange(len(grid))
    most = int(numbers.sum(axis=1).max())
    a, b = (np.take_along_axis(numbers, exchanged, axis=1)).T
    larger, smaller = np.where(a > b, exchanged.T, exchanged.T[::-1])
    counts = np.concatenate([abs(a - b)[:, None], numbers], axis=1)
    counts[rows, larger + 1] = np.minimum(a, b)
    cells = shuffled(grid > 0, words, most)
    group = groups_of(counts, most)
    objects = np.take_along_axis(grid, cells, axis=1).astype(np.intp)
    occupied = objects > 0
    remaining = np.maximum(objects - 1, 0)
    scenes = np.zeros((2, *grid.shape), grid.dtype)
    for scene, attribute_that_changes in zip(scenes, (smaller, larger), strict=True):
        attribute = np.where(group == 0, attribute_that_changes[:, None], group - 1)
        numbers_of_kinds = np.where(occupied, kinds[np.minimum(attribute, len(kinds) - 1), remaining], 0)
        np.put_along_axis(scene, cells, numbers_of_kinds.astype(grid.dtype), axis=1)

    def in_cells(is_object: np.ndarray) -> np.ndarray:
        mask = np.zeros(grid.shape, bool)
        np.put_along_axis(mask, cells, is_object & occupied, axis=1)
        return mask

    fixed = [in_cells(group == 1 + attribute[:, None]) for attribute in exchanged.T]
    return scenes, np.broadcast_to(mentioned_between(keys, in_cells(group == 0), fixed), scenes.shape)
