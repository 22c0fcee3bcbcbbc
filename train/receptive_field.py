"""What a region's features hold beside its own content, as a detector's do: where it is, and what is around it.

The units of a detector's feature map know their place on the picture (Islam et al. 2020) and see more than the box, the
centre most and less with distance (Luo et al. 2016). A crop of one cell holds neither, so to a model that is given no
boxes, objects that change places look the same. Here both are added to the features of the crop: linear, frozen, and
computed for one batch at a time.

Shapes: B pictures, R regions, D numbers of a feature vector.
"""

from __future__ import annotations

import functools
import hashlib

import numpy as np

HALF_WAVES = (1, 2, 4, 8, 16)  # across the picture, of the waves that a place is told by; the last tells 26 columns apart
WIDTH = 1.25  # standard deviation of the receptive field, in sides of the box: larger boxes are seen from further away
PLACE, AROUND = 1.0, 0.3  # weights of the place and of another object right here, beside the region's own content


def in_context(features: np.ndarray, boxes: np.ndarray, mask: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """Features with the place of each region and its surroundings; as wide as before, and none negative.

    features: (B, R, D) float32, of each region alone. boxes: (B, R, 4) float32, left, top, right, bottom as parts of
    the picture. mask: (B, R) bool, False for padding, which stays as it is. objects: (B, R) bool, regions that show one.
    """
    width = features.shape[-1]
    place = np.maximum(_waves(boxes[mask]) @ _projection(width), 0)  # (regions, D)
    around = _nearness(boxes, objects) @ np.take(features, _order(width), axis=-1)
    found = features.copy()
    found[mask] += PLACE * place + AROUND * around[mask]
    return found


def _waves(boxes: np.ndarray) -> np.ndarray:
    """(…, 4) -> (…, K): sine and cosine of the centre and the size of each box, their mean square 1 / 2."""
    first, second = boxes[..., :2], boxes[..., 2:]
    values = np.concatenate([(first + second) / 2, second - first], -1)  # x, y, width, height
    angles = (values[..., None] * (np.pi * np.array(HALF_WAVES, np.float32))).reshape(*boxes.shape[:-1], -1)
    return np.concatenate([np.sin(angles), np.cos(angles)], -1)


def _nearness(boxes: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """(B, R, R): how much each region sees of each other one's object, from 1 at its own place down to 0."""
    first, second = boxes[..., :2], boxes[..., 2:]
    centre, area = (first + second) / 2, (second - first).prod(-1)
    far = np.square(centre[:, :, None] - centre[:, None]).sum(-1)  # (B, R, R)
    near = np.exp(-far / (2 * WIDTH**2 * np.maximum(area, 1e-4))[..., None])
    return np.where(objects[:, None] & ~np.eye(boxes.shape[1], dtype=bool), near, np.float32(0))


# Frozen numbers, from a hash: the same with every version of every library -------------------------------------------


@functools.cache
def _projection(width: int) -> np.ndarray:
    """(K, width) float32 of equal size and either sign, such that rectified projections have a mean square of 1."""
    rows = 8 * len(HALF_WAVES)
    bits = np.unpackbits(np.frombuffer(_bytes("place", rows * width // 8), np.uint8)).reshape(rows, width)
    return ((2 * bits.astype(np.float32) - 1) * np.float32(2 / np.sqrt(rows))).astype(np.float32)


@functools.cache
def _order(width: int) -> np.ndarray:
    """A permutation (width,): surroundings have the same numbers as a region's own content, but elsewhere."""
    return np.argsort(np.frombuffer(_bytes("surroundings", 8 * width), "<u8"), kind="stable")


def _bytes(purpose: str, count: int) -> bytes:
    return hashlib.shake_256(purpose.encode()).digest(count)
