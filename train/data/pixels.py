"""Pictures as pixels, scaled to the size that a model takes and normalised: of rendered scenes, and from files."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from isal import isal_zlib
from PIL import Image as pillow
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

from render.pictures.renderer import Renderer
from render.png import decode
from train.data.lookup import Lookup, LookupTable

Statistics = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation of each channel, 0 to 1

# ALBEF's, from its published configurations.
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
PUBLISHED: Statistics = (MEAN, STD)
MAX_CACHED = 1 << 28  # bytes of scaled pictures in memory


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
    """Pictures of scenes as `side` x `side` pixels: `Pictures(renderer, side)(grid)`.

    The pixels are those of the whole picture, scaled. If a scaled cell has a whole number of pixels, only the sprites
    are scaled, once, unless they take more than 256 MiB; otherwise the last 256 MiB of scaled pictures stay in memory.
    """

    def __init__(self, renderer: Renderer, side: int, statistics: Statistics = PUBLISHED) -> None:
        if not 1 <= side <= 4096:
            raise ValueError(f"pixels.side={side}: must be 1 to 4096")
        self.renderer, self.side, self.statistics = renderer, side, statistics
        self._white = normalise_pixels(np.full((1, 1, 1, 3), 255, np.uint8), statistics)
        self._sprites = self._scaled_sprites()
        self._recent = functools.lru_cache(max(1, MAX_CACHED // (3 * side * side)))(self._picture)

    def __call__(self, grid: np.ndarray) -> Tensor:
        """Kind numbers (B, rows * columns) -> (B, 3, side, side) float32. A row of zeros gives the blank white picture,
        whatever the style.
        """
        if (lookup := self.lookup(grid)) is not None:
            return lookup.values()
        cells = np.asarray(grid).reshape(-1, self.renderer.world.cells).tolist()
        return normalise_pixels(np.stack([self._recent(tuple(of_one)) for of_one in cells]), self.statistics)

    def lookup(self, grid: np.ndarray) -> Lookup | None:
        """The same as scaled sprites, where pictures consist of these."""
        if self._sprites is None:
            return None
        world = self.renderer.world
        grid = np.asarray(grid).reshape(-1, world.cells)
        tiles = np.where(grid.any(axis=1, keepdims=True), self.renderer.tiles(grid).astype(np.int32), np.int32(-1))
        rows = torch.from_numpy(tiles.reshape(-1, world.rows, world.columns))
        return Lookup(self._sprites, rows, self._assembled)

    def _assembled(self, cells: Tensor) -> Tensor:
        """(B, rows, columns, 3, height, width) -> (B, 3, side, side)."""
        return cells.permute(0, 3, 1, 4, 2, 5).reshape(len(cells), 3, self.side, self.side)

    def _scaled_sprites(self) -> LookupTable | None:
        """(sprites, 3, height, width), or None if a scaled pixel would belong to two cells, or to the margin."""
        renderer, side = self.renderer, self.side
        if renderer.top or renderer.left or 4 * renderer.sprites.size * 3 > MAX_CACHED:
            return None
        if renderer.height % side or renderer.width % side:
            return None
        down, right = renderer.height // side, renderer.width // side
        if renderer.cell % down or renderer.cell % right:
            return None
        size = (renderer.cell // right, renderer.cell // down)
        sprites = [np.asarray(pillow.fromarray(s).resize(size, pillow.Resampling.BOX)) for s in renderer.rgb_sprites]
        scaled = normalise_pixels(np.stack(sprites), self.statistics)
        return LookupTable(scaled, self._white.expand_as(scaled[:1])[0])

    def _picture(self, cells: tuple[int, ...]) -> np.ndarray:
        full_size = self.renderer.arrays(np.array([cells]))[0] if any(cells) else np.full((1, 1, 3), 255, np.uint8)
        return scale_picture(full_size, self.side)


class FilePictures:
    """N pictures from files as `side` x `side` pixels: `FilePictures(ids, encoded, side)(rows)`.

    Each is decoded and scaled once, and stays compressed in a temporary file: all of them may be larger than memory.
    ids: (N,), names for error messages. encoded: the N files. Raises `ValueError` for a file that is not a picture.
    """

    BLANK = -1

    def __init__(
        self, ids: Sequence[str], encoded: Iterable[bytes], side: int, statistics: Statistics = PUBLISHED
    ) -> None:
        self.side, self.statistics = side, statistics
        self._file = tempfile.TemporaryFile(prefix="travlr-")  # noqa: SIM115 - read as long as this object lives
        self._places: list[tuple[int, int]] = []  # of each picture in the file: length and start
        files = tqdm(encoded, "decoding pictures", len(ids), disable=None, leave=False)
        for name, file in zip(ids, files, strict=True):
            try:
                pixels = scale_picture(np.asarray(decode(file)), side)
            except ValueError as error:
                raise ValueError(f"picture {name}: {error}") from None
            start = self._file.tell()
            self._places.append((self._file.write(isal_zlib.compress(pixels.tobytes(), 1)), start))
        self._file.flush()

    def __call__(self, rows: np.ndarray) -> Tensor:
        """Rows (B,), or `BLANK` -> (B, 3, side, side) float32."""
        return normalise_pixels(np.stack([self._picture(row) for row in rows.tolist()]), self.statistics)

    def _picture(self, row: int) -> np.ndarray:
        shape = (self.side, self.side, 3)
        if row == self.BLANK:
            return np.full(shape, 255, np.uint8)
        pixels = isal_zlib.decompress(os.pread(self._file.fileno(), *self._places[row]))
        return np.frombuffer(pixels, np.uint8).reshape(shape)
