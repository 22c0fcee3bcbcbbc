"""Which examples form a batch, and which modalities each of them shows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

MODALITIES = {"image": (True, False), "caption": (False, True), "image+caption": (True, True)}  # image, caption
DROP_PROBABILITY = 0.25  # of each modality in the mixed setting (paper, appendix F)


def visible_modalities(
    setting: str, rows: np.ndarray, random: np.random.Generator | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Whether each of the examples `rows` (B,) shows its image, (B,) bool, and its caption, (B,) bool.

    `mixed` drops the image or the caption, never both. random: needed for `mixed` only.
    """
    if setting != "mixed":
        shows_image, shows_caption = MODALITIES[setting]
        return np.full(len(rows), shows_image), np.full(len(rows), shows_caption)
    if random is None:
        raise ValueError("setting=mixed: is for training; test in image, caption or image+caption")
    draw = random.random(len(rows))
    image = draw >= DROP_PROBABILITY
    return image, ~(image & (draw < 2 * DROP_PROBABILITY))


def shuffled_batches(count: int, size: int, random: np.random.Generator) -> Iterator[np.ndarray]:
    """Shuffled batches of `size` of `count` rows, for training. A last incomplete batch is dropped."""
    order = random.permutation(count)
    for start in range(0, count // size * size, size):
        yield order[start : start + size]


def sorted_batches(lengths: np.ndarray, tokens: int) -> Iterator[np.ndarray]:
    """N rows in order of length, for evaluation: batches of at most `tokens` padded tokens, or of one row."""
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        stop = min(len(order), start + max(1, tokens // max(1, int(lengths[order[start]]))))
        while stop > start + 1 and (stop - start) * lengths[order[stop - 1]] > tokens:
            stop -= 1
        yield order[start:stop]
        start = stop
