"""Scenes -> pictures, and back. Drawing happens once per kind of object; after that a picture is a look-up.

Flat anti-aliased shapes, each centred in its cell, on white. All pixels of a dataset come from one small palette
(white, and each colour in three strengths), so a PNG is a packed palette image.
"""

from __future__ import annotations

import functools
import hashlib
import math
import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from isal import isal_zlib

from travlr.scene import COLOURS, World

if TYPE_CHECKING:
    from PIL import Image

WHITE = (255, 255, 255)
LEVELS = 3  # strengths of a colour: 1/3, 2/3 and full
SAMPLES = 8  # per pixel and axis, for the coverage of edge pixels
UNIT = 1 << 12  # vertices are whole multiples of 1/UNIT pixel, so that drawing is exact on every machine
CHUNK = 1 << 20  # bytes of pictures made at a time: they stay in the cache between filling and use
CONTENT_VERSION = 1  # rises when the same scene gets other pixels


def regular(corners: int, turn: float = 0.0, inner: float = 1.0) -> list[tuple[float, float]]:
    """Corners of a regular polygon on the unit circle, the first at `turn` of a step from straight up."""
    points = []
    for i in range(corners):
        angle = 2 * math.pi * (i + turn) / corners
        radius = inner if i % 2 else 1.0
        points.append((radius * math.sin(angle), -radius * math.cos(angle)))
    return points


# Shape -> factor and outline, x to the right and y down; the longer side of its box spans the factor times the span.
# The factors keep circle, octagon and hexagon apart at every size.
OUTLINES: dict[str, tuple[float, list[tuple[float, float]]]] = {
    "square": (0.88, [(-1, -1), (1, -1), (1, 1), (-1, 1)]),
    "triangle": (1.0, [(0, -0.9), (1, 0.9), (-1, 0.9)]),
    "star": (1.0, regular(10, inner=0.4)),
    "hexagon": (0.94, regular(6)),
    "octagon": (0.91, regular(8, turn=0.5)),
    "pentagon": (1.0, regular(5)),
    "trapezium": (1.0, [(-0.5, -0.62), (0.5, -0.62), (1, 0.62), (-1, 0.62)]),
    "parallelogram": (1.0, [(-0.4, -0.62), (1, -0.62), (0.4, 0.62), (-1, 0.62)]),
}


def coverage(shape: str, span: float, cell: int) -> np.ndarray:
    """Share of each pixel of a cell that a shape covers, in 0 .. LEVELS, (cell, cell) uint8.

    span: pixels along the longer side of the shape's box, at most cell - 2, so that a cell's rim stays white.
    """
    half = round(min(span, cell - 2) * UNIT / 2)
    centres = (2 * np.arange(cell * SAMPLES) + 1) * UNIT // (2 * SAMPLES) - cell * UNIT // 2
    x, y = centres[None, :], centres[:, None]
    if shape == "circle":
        inside = x * x + y * y <= half * half
    else:
        factor, outline = OUTLINES[shape]
        left, right = min(px for px, _ in outline), max(px for px, _ in outline)
        top, bottom = min(py for _, py in outline), max(py for _, py in outline)
        scale = 2 * factor * half / max(right - left, bottom - top)
        corners = [
            (round((px - (left + right) / 2) * scale), round((py - (top + bottom) / 2) * scale)) for px, py in outline
        ]
        inside = np.zeros((cell * SAMPLES, cell * SAMPLES), bool)
        for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
            if y0 > y1:
                x0, y0, x1, y1 = x1, y1, x0, y0
            crosses = (y0 <= y) & (y < y1) & ((x - x0) * (y1 - y0) < (x1 - x0) * (y - y0))
            inside ^= crosses
    share = inside.reshape(cell, SAMPLES, cell, SAMPLES).sum(axis=(1, 3), dtype=np.int64)
    return ((share * LEVELS + SAMPLES**2 // 2) // SAMPLES**2).astype(np.uint8)


def palette_of(colours: Sequence[str]) -> np.ndarray:
    """White, then each colour in its strengths, weakest first: (1 + LEVELS * colours, 3) uint8."""
    strengths = [(COLOURS[c], level) for c in colours for level in range(1, LEVELS + 1)]
    blends = [
        [(255 * (LEVELS - level) + part * level + LEVELS // 2) // LEVELS for part in rgb] for rgb, level in strengths
    ]
    return np.array([list(WHITE), *blends], np.uint8)


class Renderer:
    """Pictures of one world. `spans`: part of the cell that an object of each size spans.

    `grid` arguments are kind numbers (N, rows * columns), 0 for an empty cell; pictures are rows * cell pixels high
    and columns * cell wide.
    """

    def __init__(self, world: World, cell: int, spans: dict[str, float]) -> None:
        self.world, self.cell = world, cell
        self.height, self.width = world.rows * cell, world.columns * cell
        self.palette = palette_of(world.colours)
        shapes = {(z, s): coverage(s, spans[z] * cell, cell) for z in world.sizes for s in world.shapes}
        first = {c: 1 + LEVELS * i for i, c in enumerate(world.colours)}
        drawn = [np.where(shapes[z, s] > 0, shapes[z, s] + first[c] - 1, 0) for z, s, c in world.kinds]
        self.sprites = np.stack([np.zeros((cell, cell)), *drawn]).astype(np.uint8)  # (kinds + 1, cell, cell)
        self._check_sprites()
        self.rgb_sprites = self.palette[self.sprites]  # (kinds + 1, cell, cell, 3)
        packs = len(self.palette) <= 16 and cell % 2 == 0
        self.depth = 4 if packs else 8
        self._packed = self.sprites[:, :, ::2] << 4 | self.sprites[:, :, 1::2] if packs else self.sprites
        self._head = _head(self.width, self.height, self.depth, self.palette)

    def _check_sprites(self) -> None:
        """Raise `ValueError` where two kinds look the same, as small circles and octagons do in a few pixels."""
        looks: dict[bytes, tuple[str, str, str]] = {}
        for kind, sprite in zip(self.world.kinds, self.sprites[1:], strict=True):
            other = looks.setdefault(sprite.tobytes(), kind)
            if other != kind or not sprite.any():
                alike = " and a ".join(f"{size} {colour} {shape}" for size, shape, colour in (other, kind))
                raise ValueError(f"image.cell={self.cell}: a {alike} look the same; use larger cells or other sizes")

    def arrays(self, grid: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Pictures as (N, height, width, 3) uint8; into `out` where given."""
        if out is None:
            out = np.empty((len(grid), self.height, self.width, 3), np.uint8)
        grid = grid.reshape(-1, self.world.cells)
        flat = out.reshape(len(out), -1)
        step = max(1, CHUNK // max(1, flat.shape[1]))
        for start in range(0, len(out), step):
            flat[start : start + step] = 255
            self._stamp(
                out[start : start + step].reshape(-1, self.height, self.width * 3), grid[start : start + step], 3
            )
        return out

    def pngs(self, grid: np.ndarray) -> list[bytes]:
        """Pictures as PNG files."""
        row = 1 + self.width * self.depth // 8  # a filter type, 0 for none, before each line
        step = max(1, CHUNK // (self.height * row))
        lines = np.zeros((step, self.height, row), np.uint8)
        files = []
        for start in range(0, len(grid), step):
            part = grid[start : start + step]
            lines[:] = 0
            self._stamp(lines[: len(part), :, 1:], part, 0)
            files += [
                self._head + _chunk(b"IDAT", isal_zlib.compress(picture, 2)) + _END for picture in lines[: len(part)]
            ]
        return files

    def _stamp(self, lines: np.ndarray, grid: np.ndarray, channels: int) -> None:
        """Copy the sprites of the occupied cells into lines (N, height, bytes per line)."""
        sprites = self.rgb_sprites.reshape(-1, self.cell, self.cell * 3) if channels else self._packed
        size = sprites.shape[2]
        n, line, one = lines.strides
        cells = np.lib.stride_tricks.as_strided(
            lines,
            (len(lines), self.world.rows, self.world.columns, self.cell, size),
            (n, line * self.cell, size * one, line, one),
        )
        picture, cell = np.nonzero(grid)
        row, column = np.divmod(cell, self.world.columns)
        cells[picture, row, column] = sprites[grid[picture, cell]]

    def read(self, picture: np.ndarray) -> tuple[np.ndarray, int]:
        """Kinds (rows * columns) of a picture (height, width, 3) uint8, and the largest error of any pixel.

        Each cell becomes the kind whose sprite is nearest, so a lossy picture reads well with an error above 0.
        """
        if picture.shape != (self.height, self.width, 3):
            raise ValueError(
                f"the picture is {picture.shape[1]} x {picture.shape[0]}, not {self.width} x {self.height}"
            )
        world, cell = self.world, self.cell
        tiles = picture.reshape(world.rows, cell, world.columns, cell, 3).swapaxes(1, 2).reshape(world.cells, -1)
        flat, norms = self._flat
        values = tiles.astype(np.float32)
        grid = (norms[None, :] - 2 * values @ flat.T).argmin(axis=1)
        error = np.abs(tiles.astype(np.int16) - self.rgb_sprites.reshape(len(flat), -1)[grid].astype(np.int16))
        return grid, int(error.max())

    @functools.cached_property
    def _flat(self) -> tuple[np.ndarray, np.ndarray]:
        flat = self.rgb_sprites.reshape(len(self.rgb_sprites), -1).astype(np.float32)
        return flat, (flat.astype(np.float64) ** 2).sum(axis=1)


def png(picture: np.ndarray, palette: np.ndarray) -> bytes:
    """One picture (height, width) of entries of a palette (entries, 3) uint8, as a PNG file."""
    height, width = picture.shape
    depth = 4 if len(palette) <= 16 else 8
    lines = np.zeros((height, 1 + -(-width * depth // 8)), np.uint8)  # a filter type, 0 for none, before each line
    if depth == 4:
        lines[:, 1:] = picture[:, ::2] << 4
        lines[:, 1 : 1 + width // 2] |= picture[:, 1::2]
    else:
        lines[:, 1:] = picture
    return _head(width, height, depth, palette) + _chunk(b"IDAT", isal_zlib.compress(lines, 2)) + _END


@functools.cache
def encoder_digest() -> str:
    """Digest of what the compressor makes of fixed lines. The same version of it has other instructions, and may make
    other bytes, on another kind of CPU."""
    lines = np.concatenate([coverage(shape, 20, 24) for shape in OUTLINES])
    return hashlib.sha256(isal_zlib.compress(np.tile(lines, 8), 2)).hexdigest()[:16]


def _head(width: int, height: int, depth: int, palette: np.ndarray) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, depth, 3, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"PLTE", palette.tobytes())


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(name)))


_END = _chunk(b"IEND", b"")


def decode(data: bytes) -> Image.Image:
    """A picture file as RGB. Raises `ValueError` for anything but a whole PNG or JPEG of a sane size."""
    import io

    from PIL import Image as pillow

    try:
        picture = pillow.open(io.BytesIO(data), formats=("PNG", "JPEG"))
        if picture.width * picture.height > 1 << 26:
            raise ValueError(f"picture of {picture.width} x {picture.height} pixels is too large")
        return picture.convert("RGB")
    except (OSError, SyntaxError, pillow.DecompressionBombError) as error:
        raise ValueError(f"not a readable PNG or JPEG: {error}") from None
