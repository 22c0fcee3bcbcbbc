"""Pictures changed at random as ALBEF's published fine-tuning changes them (its dataset/__init__.py, train_transform).

Its labels say what a photograph shows; ours say what is left of what and how many there are, which crops and flips make
wrong. So no run does this but where it is asked to (`training.augment`), to measure what it does to learning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from PIL import Image as pillow
from PIL import ImageEnhance, ImageOps

AREA = (0.5, 1.0)  # of a crop, as a part of the picture
RATIO = (3 / 4, 4 / 3)  # of its width to its height
TRIES = 10  # after which a crop is all of the picture
CHANGES_EACH, LEVEL = 2, 0.7  # RandomAugment(2, 7), whose levels go to 10
GREY = (128, 128, 128)  # where nothing is left of the picture

Change = Callable[[pillow.Image, int], pillow.Image]  # second: 1 or -1, which way


def augment(pictures: np.ndarray | Sequence[np.ndarray], side: int, random: np.random.Generator) -> np.ndarray:
    """B pictures (height, width, 3) uint8 of any size as (B, side, side, 3), each with random numbers of its own."""
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        changed = pool.map(lambda picture, own: augmented(picture, side, own), pictures, random.spawn(len(pictures)))
        return np.stack(list(changed))


def augmented(picture: np.ndarray, side: int, random: np.random.Generator) -> np.ndarray:
    """A crop of a picture (height, width, 3) uint8, scaled to (side, side, 3); half of them mirrored; then two of
    `CHANGES`, the same perhaps twice, each of which is left out half of the time."""
    left, top, width, height = crop(picture.shape[1], picture.shape[0], random)
    image = pillow.fromarray(picture[top : top + height, left : left + width])
    image = image.resize((side, side), pillow.Resampling.BICUBIC)
    if random.random() < 0.5:
        image = ImageOps.mirror(image)
    for number in random.integers(len(CHANGES), size=CHANGES_EACH):
        if random.random() < 0.5:
            image = CHANGES[number](image, 1 if random.random() < 0.5 else -1)
    return np.asarray(image)


def crop(width: int, height: int, random: np.random.Generator) -> tuple[int, int, int, int]:
    """Left, top, width and height of a part of a picture, all in pixels (`RandomResizedCrop` of torchvision).

    Its area is even in `AREA` and the logarithm of its ratio in that of `RATIO`; what does not fit is drawn anew.
    """
    for _ in range(TRIES):
        area, ratio = width * height * random.uniform(*AREA), np.exp(random.uniform(*np.log(RATIO)))
        wide, high = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < wide <= width and 0 < high <= height:
            return int(random.integers(width - wide + 1)), int(random.integers(height - high + 1)), wide, high
    return 0, 0, width, height


def _moved(image: pillow.Image, *places: float) -> pillow.Image:
    """places: a, b, c, d, e, f; what is at (x, y) then was at (a x + b y + c, d x + e y + f) before."""
    how = pillow.Transform.AFFINE
    return image.transform(image.size, how, places, pillow.Resampling.BILINEAR, fillcolor=GREY)


def _rotated(image: pillow.Image, way: int) -> pillow.Image:
    return image.rotate(way * 30 * LEVEL, pillow.Resampling.BILINEAR, fillcolor=GREY)


ENHANCED = 1.8 * LEVEL + 0.1
SHEARED = 0.3 * LEVEL
SHIFTED = 10 * LEVEL / 384  # published in pixels of a picture of 384

CHANGES: tuple[Change, ...] = (
    lambda image, way: image,
    lambda image, way: ImageOps.autocontrast(image),
    lambda image, way: ImageOps.equalize(image),
    lambda image, way: ImageEnhance.Brightness(image).enhance(ENHANCED),
    lambda image, way: ImageEnhance.Sharpness(image).enhance(ENHANCED),
    lambda image, way: _moved(image, 1, way * SHEARED, 0, 0, 1, 0),
    lambda image, way: _moved(image, 1, 0, 0, way * SHEARED, 1, 0),
    lambda image, way: _moved(image, 1, 0, way * SHIFTED * image.width, 0, 1, 0),
    lambda image, way: _moved(image, 1, 0, 0, 0, 1, way * SHIFTED * image.height),
    _rotated,
)
