"""Random changes of pictures as in ALBEF's published fine-tuning (`train_transform` in its dataset/__init__.py).

ALBEF's labels say what a photograph shows. Ours depend on positions and counts, which crops and flips change, so
answers become wrong. `training.augment` is off by default and exists to measure this.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from PIL import Image as pillow
from PIL import ImageEnhance, ImageOps

AREA = (0.5, 1.0)  # of a crop, as a fraction of the picture
RATIO = (3 / 4, 4 / 3)  # width to height of a crop
CROP_ATTEMPTS = 10
OPERATIONS_PER_PICTURE, LEVEL = 2, 0.7  # RandomAugment(2, 7), of at most 10
ENHANCEMENT = 1.8 * LEVEL + 0.1
ROTATION = 30 * LEVEL  # degrees
SHEAR = 0.3 * LEVEL
SHIFT = 10 * LEVEL / 384  # of the picture; published in pixels of a picture of 384
GREY = (128, 128, 128)  # fills the area that a rotation, shear or shift leaves empty

Operation = Callable[[pillow.Image, int], pillow.Image]  # second argument: direction, 1 or -1


def augment_batch(pictures: np.ndarray | Sequence[np.ndarray], side: int, random: np.random.Generator) -> np.ndarray:
    """B pictures (height, width, 3) uint8 of any size -> (B, side, side, 3), each with its own random generator."""
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        sides, generators = itertools.repeat(side), random.spawn(len(pictures))
        return np.stack(list(pool.map(augment_picture, pictures, sides, generators)))


def augment_picture(picture: np.ndarray, side: int, random: np.random.Generator) -> np.ndarray:
    """A random crop of a picture (height, width, 3) uint8, scaled to (side, side, 3).

    It is mirrored with probability 0.5; then each of two random `OPERATIONS` is applied with probability 0.5.
    """
    left, top, width, height = random_crop(picture.shape[1], picture.shape[0], random)
    image = pillow.fromarray(picture[top : top + height, left : left + width])
    image = image.resize((side, side), pillow.Resampling.BICUBIC)
    if random.random() < 0.5:
        image = ImageOps.mirror(image)
    for number in random.integers(len(OPERATIONS), size=OPERATIONS_PER_PICTURE):
        if random.random() < 0.5:
            image = OPERATIONS[number](image, 1 if random.random() < 0.5 else -1)
    return np.asarray(image)


def random_crop(width: int, height: int, random: np.random.Generator) -> tuple[int, int, int, int]:
    """Left, top, width and height of a part of a picture, in pixels (`RandomResizedCrop` of torchvision).

    The area is uniform in `AREA`, the logarithm of the ratio uniform in that of `RATIO`. Crops that do not fit are
    drawn again; after `CROP_ATTEMPTS` the crop is the whole picture.
    """
    for _ in range(CROP_ATTEMPTS):
        area, ratio = width * height * random.uniform(*AREA), np.exp(random.uniform(*np.log(RATIO)))
        wide, high = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < wide <= width and 0 < high <= height:
            return int(random.integers(width - wide + 1)), int(random.integers(height - high + 1)), wide, high
    return 0, 0, width, height


def _transform(image: pillow.Image, *matrix: float) -> pillow.Image:
    """Affine transform. matrix: a, b, c, d, e, f; output (x, y) shows input (a x + b y + c, d x + e y + f)."""
    return image.transform(image.size, pillow.Transform.AFFINE, matrix, pillow.Resampling.BILINEAR, fillcolor=GREY)


OPERATIONS: tuple[Operation, ...] = (
    lambda image, direction: image,
    lambda image, direction: ImageOps.autocontrast(image),
    lambda image, direction: ImageOps.equalize(image),
    lambda image, direction: ImageEnhance.Brightness(image).enhance(ENHANCEMENT),
    lambda image, direction: ImageEnhance.Sharpness(image).enhance(ENHANCEMENT),
    lambda image, direction: _transform(image, 1, direction * SHEAR, 0, 0, 1, 0),
    lambda image, direction: _transform(image, 1, 0, 0, direction * SHEAR, 1, 0),
    lambda image, direction: _transform(image, 1, 0, direction * SHIFT * image.width, 0, 1, 0),
    lambda image, direction: _transform(image, 1, 0, 0, 0, 1, direction * SHIFT * image.height),
    lambda image, direction: image.rotate(direction * ROTATION, pillow.Resampling.BILINEAR, fillcolor=GREY),
)
