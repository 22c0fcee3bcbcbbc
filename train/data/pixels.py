"""Pictures as pixels, scaled to the size that a model takes and normalised: of rendered scenes, and from files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image as pillow
from torch import Tensor

from render.image import Renderer, decode
from train.cache import cached_strings
from train.data.augment import augment_batch

Statistics = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation of each channel, 0 to 1

# ALBEF's, from its published configurations.
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
PUBLISHED: Statistics = (MEAN, STD)


def scale_picture(picture: np.ndarray, side: int) -> np.ndarray:
    """(height, width, 3) uint8 -> (side, side, 3): means of areas if `side` divides both, else bicubic."""
    height, width = picture.shape[:2]
    if (height, width) == (side, side):
        return picture
    exact = height % side == 0 and width % side == 0
    method = pillow.Resampling.BOX if exact else pillow.Resampling.BICUBIC
    return np.asarray(pillow.fromarray(picture).resize((side, side), method))


def normalise_pixels(pictures: np.ndarray, statistics: Statistics = PUBLISHED) -> Tensor:
    """(N, height, width, 3) uint8 -> (N, 3, height, width) float32."""
    values = torch.from_numpy(np.array(np.moveaxis(pictures, -1, 1), order="C")).float()
    mean, std = (torch.tensor(numbers)[:, None, None] for numbers in statistics)
    return values.div_(255).sub_(mean).div_(std)  # in place: a batch may take half a GiB


class Pictures:
    """Pictures of scenes as `side` x `side` pixels: `Pictures(renderer, side)(grid)`."""

    def __init__(self, renderer: Renderer, side: int, statistics: Statistics = PUBLISHED) -> None:
        if not 1 <= side <= 4096:
            raise ValueError(f"pixels.side={side}: must be 1 to 4096")
        self.renderer, self.side, self.statistics = renderer, side, statistics

    def __call__(self, grid: np.ndarray, random: np.random.Generator | None = None) -> Tensor:
        """Kind numbers (B, rows * columns) -> (B, 3, side, side) float32. A row of zeros gives the blank white picture,
        whatever the style.

        random: augments the pictures (`train.data.augment`).
        """
        grid = np.asarray(grid).reshape(-1, self.renderer.world.cells)
        if random is not None:
            pictures = self.renderer.arrays(grid)
            pictures[~grid.any(axis=1)] = 255
            return normalise_pixels(augment_batch(pictures, self.side, random), self.statistics)
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            return normalise_pixels(np.stack(list(pool.map(self._picture, grid))), self.statistics)

    def _picture(self, cells: np.ndarray) -> np.ndarray:
        full_size = self.renderer.arrays(cells[None])[0] if cells.any() else np.full((1, 1, 3), 255, np.uint8)
        return scale_picture(full_size, self.side)


class FilePictures:
    """N pictures from files as `side` x `side` pixels: `FilePictures(ids, encoded, side)(rows)`.

    Each is decoded and scaled once, then read from `cache` (a folder, or None for a temporary one). The cache has
    uint8 pixels, before they are normalised.
    ids: (N,), names for error messages. encoded: gives the N files, from the first at every call. Raises `ValueError`
    for a file that is not a picture.
    """

    BLANK = -1

    def __init__(
        self,
        ids: Sequence[str],
        encoded: Callable[[], Iterable[bytes]],
        side: int,
        statistics: Statistics = PUBLISHED,
        cache: Path | None = None,
    ) -> None:
        self.side, self.statistics = side, statistics
        digest = hashlib.blake2b(f"{side} ".encode(), digest_size=16)
        for file in encoded():
            digest.update(hashlib.blake2b(file).digest())

        def make(start: int) -> Iterator[bytes]:
            for name, file in zip(ids[start:], islice(encoded(), start, None), strict=False):
                try:
                    yield scale_picture(np.asarray(decode(file)), side).tobytes()
                except ValueError as error:
                    raise ValueError(f"picture {name}: {error}") from None

        self._pictures = cached_strings(cache, f"pictures-{digest.hexdigest()}", len(ids), make, "decoding pictures")

    def __call__(self, rows: np.ndarray, random: np.random.Generator | None = None) -> Tensor:
        """Rows (B,), or `BLANK` -> (B, 3, side, side) float32.

        random: augments the pictures (`train.data.augment`), after they are scaled.
        """
        pictures = np.stack([self._picture(row) for row in rows.tolist()])
        if random is not None:
            pictures = augment_batch(pictures, self.side, random)
        return normalise_pixels(pictures, self.statistics)

    def _picture(self, row: int) -> np.ndarray:
        shape = (self.side, self.side, 3)
        if row == self.BLANK:
            return np.full(shape, 255, np.uint8)
        return np.frombuffer(self._pictures[row], np.uint8).reshape(shape)
