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


def bucket_batches(lengths: np.ndarray, size: int, window: int, random: np.random.Generator) -> Iterator[np.ndarray]:
    """Shuffled batches of `size` of N rows, for training. lengths: (N,). A last incomplete batch is dropped.

    The rows of each `window` consecutive batches are sorted by length. A wide window leaves little padding (see the
    benchmark), but the scenes of a batch then have equally many objects; small models learn to count sooner with a
    window of 1.
    """
    order = random.permutation(len(lengths))
    order = order[: len(order) // size * size]
    for start in range(0, len(order), window * size):
        rows = order[start : start + window * size]
        if window > 1:
            rows = rows[np.argsort(lengths[rows], kind="stable")]
        for batch in random.permutation(len(rows) // size):
            yield rows[batch * size : (batch + 1) * size]


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
