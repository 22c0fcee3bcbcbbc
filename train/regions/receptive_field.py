"""The context of a region, which a detector's features contain: its position and the objects around it.

The units of a convolutional detector encode their position (Islam et al. 2020, "How Much Position Information Do
Convolutional Neural Networks Encode?"), and their receptive field is larger than the box, strongest at the centre and
weaker with distance (Luo et al. 2016, "Understanding the Effective Receptive Field"). The crop of one cell contains
neither, so a model that takes no boxes could not tell where objects are. Here frozen projections add both to the
features of the crops, one batch at a time.

Shapes: B pictures, R regions, D numbers of a feature vector, K numbers of the encoding of a box.
"""

from __future__ import annotations

import functools
import hashlib

import numpy as np

HALF_WAVES = (1, 2, 4, 8, 16)  # across the picture, of the encoding of a box; 16 still separate 26 columns
WIDTH = 1.25  # standard deviation of the receptive field, in sides of the box
POSITION, SURROUNDINGS = 1.0, 0.3  # weights of the position, and of another object at distance 0


def add_context(features: np.ndarray, boxes: np.ndarray, mask: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """Add position and surroundings to the features of each region: (B, R, D) float32, not smaller than before.

    features: (B, R, D) float32, not negative, of each region alone. boxes: (B, R, 4) float32: left, top, right, bottom
    as fractions of the picture, 0 to 1. mask: (B, R) bool, False for padding, which does not change. objects: (B, R)
    bool, True for regions that show an object: these are the surroundings of the others.
    """
    width = features.shape[-1]
    position = np.maximum(_encode(boxes[mask]) @ _projection(width), 0)  # (regions, D)
    surroundings = _proximity(boxes, objects) @ np.take(features, _permutation(width), axis=-1)  # (B, R, D)
    result = features.copy()
    result[mask] += POSITION * position + SURROUNDINGS * surroundings[mask]
    return result


def _encode(boxes: np.ndarray) -> np.ndarray:
    """(..., 4) -> (..., K): sines and cosines of the centre, the width and the height of each box."""
    first, second = boxes[..., :2], boxes[..., 2:]
    values = np.concatenate([(first + second) / 2, second - first], -1)  # x, y, width, height
    angles = (values[..., None] * (np.pi * np.array(HALF_WAVES, np.float32))).reshape(*boxes.shape[:-1], -1)
    return np.concatenate([np.sin(angles), np.cos(angles)], -1)


def _proximity(boxes: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """(B, R, R): weight of each other region's object in the surroundings of each region: 1 at distance 0, Gaussian."""
    first, second = boxes[..., :2], boxes[..., 2:]
    centre, area = (first + second) / 2, (second - first).prod(-1)
    squared = np.square(centre[:, :, None] - centre[:, None]).sum(-1)  # (B, R, R)
    weights = np.exp(-squared / (2 * WIDTH**2 * np.maximum(area, 1e-4))[..., None])  # jitter may give a box no area
    return np.where(objects[:, None] & ~np.eye(boxes.shape[1], dtype=bool), weights, np.float32(0))


# Frozen projections, from a hash: random generators of libraries may change between versions ------------------------


@functools.cache
def _projection(width: int) -> np.ndarray:
    """(K, width) float32, one number with random signs, so that rectified projections have a mean square of 1."""
    rows = 2 * 4 * len(HALF_WAVES)
    bits = np.unpackbits(np.frombuffer(_bytes("place", rows * width // 8), np.uint8)).reshape(rows, width)
    return (2 * bits.astype(np.float32) - 1) * np.float32(2 / np.sqrt(rows))


@functools.cache
def _permutation(width: int) -> np.ndarray:
    """(width,): the order of the numbers of an object's features in the surroundings of another object."""
    return np.argsort(np.frombuffer(_bytes("surroundings", 8 * width), "<u8"), kind="stable")


def _bytes(purpose: str, count: int) -> bytes:
    return hashlib.shake_256(purpose.encode()).digest(count)
