"""What a region's features hold beside its own content, as a detector's do: where it is, and what is around it.

The units of a convolutional detector know their place on the picture (Islam et al. 2020, "How Much Position Information
Do Convolutional Neural Networks Encode?") and see more than the box, the centre most and less with distance (Luo et al.
2016, "Understanding the Effective Receptive Field"). The crop of one cell holds neither, so to a model that takes no
boxes, a scene looks the same wherever its objects are. Both are added here to the features of the crops, by frozen
projections, for one batch at a time.

Shapes: B pictures, R regions, D numbers of a feature vector, K of the code of a box.
"""

from __future__ import annotations

import functools
import hashlib

import numpy as np

HALF_WAVES = (1, 2, 4, 8, 16)  # of the code of a box, across the picture: the shortest still tell 26 columns apart
WIDTH = 1.25  # standard deviation of the receptive field, in sides of the box
PLACE, AROUND = 1.0, 0.3  # weights of the place, and of another object at no distance


def in_context(features: np.ndarray, boxes: np.ndarray, mask: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """Features with the place and the surroundings of each region: (B, R, D) float32, none smaller than before.

    features: (B, R, D) float32, not negative, of each region alone. boxes: (B, R, 4) float32: left, top, right, bottom
    as parts of the picture, 0 to 1. mask: (B, R) bool, False for padding, which stays as it is. objects: (B, R) bool,
    True where a region shows an object, which the regions near it then see.
    """
    width = features.shape[-1]
    place = np.maximum(_code(boxes[mask]) @ _projection(width), 0)  # (regions, D)
    around = _nearness(boxes, objects) @ np.take(features, _order(width), axis=-1)  # (B, R, D)
    found = features.copy()
    found[mask] += PLACE * place + AROUND * around[mask]
    return found


def _code(boxes: np.ndarray) -> np.ndarray:
    """(..., 4) -> (..., K): sines and cosines of the centre, the width and the height of each box."""
    first, second = boxes[..., :2], boxes[..., 2:]
    values = np.concatenate([(first + second) / 2, second - first], -1)  # x, y, width, height
    angles = (values[..., None] * (np.pi * np.array(HALF_WAVES, np.float32))).reshape(*boxes.shape[:-1], -1)
    return np.concatenate([np.sin(angles), np.cos(angles)], -1)


def _nearness(boxes: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """(B, R, R): how much each region sees of each other region's object, 1 at no distance, falling as a Gaussian."""
    first, second = boxes[..., :2], boxes[..., 2:]
    centre, area = (first + second) / 2, (second - first).prod(-1)
    squared = np.square(centre[:, :, None] - centre[:, None]).sum(-1)  # (B, R, R)
    near = np.exp(-squared / (2 * WIDTH**2 * np.maximum(area, 1e-4))[..., None])  # jitter may leave a box no area
    return np.where(objects[:, None] & ~np.eye(boxes.shape[1], dtype=bool), near, np.float32(0))


# Frozen numbers, from a hash: libraries change the streams of their random generators between versions ---------------


@functools.cache
def _projection(width: int) -> np.ndarray:
    """(K, width) float32, one number with random signs: rectified projections of codes have a mean square of 1."""
    rows = 2 * 4 * len(HALF_WAVES)
    bits = np.unpackbits(np.frombuffer(_bytes("place", rows * width // 8), np.uint8)).reshape(rows, width)
    return (2 * bits.astype(np.float32) - 1) * np.float32(2 / np.sqrt(rows))


@functools.cache
def _order(width: int) -> np.ndarray:
    """(width,): what is around has the numbers that it has itself, in another order."""
    return np.argsort(np.frombuffer(_bytes("surroundings", 8 * width), "<u8"), kind="stable")


def _bytes(purpose: str, count: int) -> bytes:
    return hashlib.shake_256(purpose.encode()).digest(count)
