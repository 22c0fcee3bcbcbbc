"""Pictures as the pixels that a model sees: scaled to its size and normalised. As with regions, a look-up."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import torch
from PIL import Image as pillow
from torch import Tensor

from render.image import Renderer

# Of each channel, 0 to 1: those of ALBEF's published configurations.
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
MOST_KEPT = 1 << 28  # bytes of scaled pictures


def scaled(picture: np.ndarray, side: int) -> np.ndarray:
    """A picture (height, width, 3) uint8 as (side, side, 3): area means where `side` divides both, else bicubic."""
    height, width = picture.shape[:2]
    if (height, width) == (side, side):
        return picture
    exact = height % side == 0 and width % side == 0
    how = pillow.Resampling.BOX if exact else pillow.Resampling.BICUBIC
    return np.asarray(pillow.fromarray(picture).resize((side, side), how))


def normalised(pictures: np.ndarray) -> Tensor:
    """(..., 3) uint8 -> (..., 3) float32."""
    values = torch.tensor(np.ascontiguousarray(pictures)).float() / 255
    return (values - torch.tensor(MEAN)) / torch.tensor(STD)


class Pictures:
    """Pictures of scenes for a model that sees `side` x `side` pixels: `Pictures(renderer, side)(grid)`.

    They are the same as whole pictures scaled, but where the scale leaves cells whole pixels only the sprites are
    scaled, once; else the last 256 MiB of scaled pictures are kept.
    """

    def __init__(self, renderer: Renderer, side: int) -> None:
        if not 1 <= side <= 4096:
            raise ValueError(f"pixels.side={side}: must be 1 to 4096")
        self.renderer, self.side = renderer, side
        self._sprites = self._scaled_sprites()
        self._kept: OrderedDict[bytes, np.ndarray] = OrderedDict()

    def __call__(self, grid: np.ndarray) -> Tensor:
        """Kind numbers (B, rows * columns) -> (B, 3, side, side) float32. A row of zeros is the blank white picture."""
        world = self.renderer.world
        grid = np.asarray(grid).reshape(-1, world.rows, world.columns)
        if self._sprites is not None:
            cells = self._sprites[torch.from_numpy(grid.astype(np.int64))]  # (B, rows, columns, 3, height, width)
            return cells.permute(0, 3, 1, 4, 2, 5).reshape(len(grid), 3, self.side, self.side)
        pictures = np.stack([self._picture(cells) for cells in grid.reshape(len(grid), -1)])
        return normalised(pictures).permute(0, 3, 1, 2).contiguous()

    def blank(self, count: int = 1) -> Tensor:
        """White pictures, (count, 3, side, side)."""
        return self(np.zeros((count, self.renderer.world.cells), np.int64))

    def _scaled_sprites(self) -> Tensor | None:
        """(kinds + 1, 3, height, width), or None where a pixel would lie in two cells."""
        renderer, side = self.renderer, self.side
        if renderer.height % side or renderer.width % side:
            return None
        down, right = renderer.height // side, renderer.width // side
        if renderer.cell % down or renderer.cell % right:
            return None
        size = (renderer.cell // right, renderer.cell // down)
        sprites = [np.asarray(pillow.fromarray(s).resize(size, pillow.Resampling.BOX)) for s in renderer.rgb_sprites]
        return normalised(np.stack(sprites)).permute(0, 3, 1, 2).contiguous()

    def _picture(self, cells: np.ndarray) -> np.ndarray:
        key = np.ascontiguousarray(cells, "<i4").tobytes()
        picture = self._kept.pop(key, None)
        if picture is None:
            picture = scaled(self.renderer.arrays(cells[None])[0], self.side)
            if (len(self._kept) + 1) * picture.nbytes > MOST_KEPT and self._kept:
                self._kept.popitem(last=False)
        self._kept[key] = picture
        return picture
