"""Random numbers that depend on the scene alone, so that the same scene always looks the same."""

from __future__ import annotations

import numpy as np

STEP = 0x9E3779B97F4A7C15


def mix(x: np.ndarray) -> np.ndarray:
    """Scramble uint64 words one to one (the finaliser of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def scene_words(grid: np.ndarray) -> np.ndarray:
    """A random word for each scene, (N,) uint64. grid: kind numbers (N, cells)."""
    return mix(mix(grid.astype(np.uint64) + _places(grid.shape[1])).sum(axis=1, dtype=np.uint64))


def cell_words(grid: np.ndarray) -> np.ndarray:
    """A random word for each cell of each scene, (N, cells) uint64."""
    return mix(scene_words(grid)[:, None] + _places(grid.shape[1]))


def below(words: np.ndarray, count: int) -> np.ndarray:
    """Random words as numbers from 0 to count - 1."""
    return ((words >> np.uint64(33)) % np.uint64(count)).astype(np.intp)


def _places(cells: int) -> np.ndarray:
    """A word for each cell, (cells,) uint64."""
    return (np.arange(cells, dtype=np.uint64) + np.uint64(1)) * np.uint64(STEP)
