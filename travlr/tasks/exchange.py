"""Helpers for tasks whose couples exchange numbers or colours (couples=exchanged, docs/strict.md)."""

from __future__ import annotations

import numpy as np

from travlr.config import Config
from travlr.tasks.base import groups_of, shuffled


def check_one_word(config: Config) -> None:
    """Raise `ValueError` for an exchange of numbers where queries name objects by two words.

    The exchange would change how often each of the two words occurs, so that a rule that counts single words sees it.
    """
    if config.couples == "exchanged" and config.query_by == "both":
        raise ValueError("couples=exchanged: needs query_by=shape or query_by=colour in this task")


def rank_among(mask: np.ndarray, words: np.ndarray) -> np.ndarray:
    """(N, cells): the place of each cell in the mask in a random order of them, from 0."""
    order = shuffled(mask, words, mask.shape[1])
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(mask.shape[1])[None, :], axis=1)
    return rank


def mentioned_later(keys: np.ndarray, grid: np.ndarray, changes: np.ndarray, before: list[np.ndarray]) -> np.ndarray:
    """Keys (N, cells) that order the objects in a caption: those of cells that change are moved between others.

    They come after the first cell of each mask of `before`, and before the last cell that does not change.
    keys: (N, cells) random uint64. changes: (N, cells) bool. before: masks (N, cells) bool of cells that do not change,
    at least one in each row.
    """
    rows = np.arange(len(keys))
    place = (keys >> np.uint64(1)).astype(np.float64) / 2.0**63
    unchanged = (grid > 0) & ~changes
    first = np.stack([np.where(mask, place, 2.0).argmin(axis=1) for mask in before])  # (masks, N) cells
    later = first[place[rows, first].argmax(axis=0), rows]
    others = unchanged.copy()
    others[rows, first] = False
    last = np.where(unchanged, place, -1.0).argmax(axis=1)
    spare = np.where(others, place, -1.0).argmax(axis=1)
    is_last = (last == later) & others.any(axis=1)  # nothing unchanged comes after it: exchange it with another
    row, a, b = rows[is_last], last[is_last], spare[is_last]
    place[row, a], place[row, b] = place[row, b], place[row, a]
    low = np.max([np.where(mask, place, 2.0).min(axis=1) for mask in before], axis=0)[:, None]
    high = np.where(unchanged, place, -1.0).max(axis=1)[:, None]
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

    before = [in_cells(group == 1 + attribute[:, None]) for attribute in exchanged.T]
    return scenes, np.broadcast_to(mentioned_later(keys, grid, in_cells(group == 0), before), scenes.shape)
