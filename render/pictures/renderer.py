"""Makes pictures from what a style has drawn."""

from __future__ import annotations

import functools
import hashlib

import numpy as np

from render.pictures.hashing import below, cell_words, scene_words
from render.pictures.look import Draw, Spans
from render.pictures.plain import plain
from render.png import png_file, png_head
from travlr.scene import World

CHUNK = 1 << 20  # bytes of pictures made at a time: they stay in the cache between filling and use
BLOCK = 1 << 25  # bytes of drawn cells that reading compares at a time
CONTENT_VERSION = 1  # rises when the same scene gets other pixels


class Renderer:
    """Pictures of one world in one style. `spans`: part of the cell that an object of each size spans.

    `grid` arguments are kind numbers (N, rows * columns), 0 for an empty cell. Pictures are `height` x `width` pixels.
    All pixels come from one small palette, so a PNG is a palette image.

    sprites: (T, cell, cell) uint8, entries of the palette: every look of a cell. The first `backgrounds` are empty
    cells; then follow, for each background and each variant, the kinds of objects in their order.
    """

    def __init__(self, world: World, cell: int, spans: Spans, draw: Draw = plain) -> None:
        self.world, self.cell = world, cell
        look = draw(world, cell, spans)
        self.palette, self.grounds, self.canvases = look.palette, look.grounds, look.canvases
        self.top, self.left = look.corner
        self.backgrounds, self.variants = look.sprites.shape[:2]
        self.height, self.width = self.canvases.shape[1:]
        empty = self.canvases[:, self.top : self.top + cell, self.left : self.left + cell]
        self.sprites = np.concatenate([empty, look.sprites.reshape(-1, cell, cell)])
        self._check_sprites()
        packs = len(self.palette) <= 16 and not (cell % 2 or self.left % 2 or self.width % 2)
        self.depth = 4 if packs else 8
        self._packed = self._pack(self.sprites)
        # Each line of a PNG begins with the type of its filter, 0 for none.
        self._packed_canvases = np.pad(self._pack(self.canvases), ((0, 0), (0, 0), (1, 0)))
        row = self._packed_canvases.shape[2]
        self._sprite_sums = _sums(self._packed, row)
        self._canvas_sums = _sums(self._packed_canvases, row)
        rows, columns = np.divmod(np.arange(world.cells), world.columns)
        width = self._packed.shape[2]
        self._starts = (self.top + rows * cell) * row + 1 + self.left * width // cell + columns * width  # of each cell
        self._head = png_head(self.width, self.height, self.depth, self.palette)

    def _check_sprites(self) -> None:
        """Raise `ValueError` where two kinds look the same, as small circles and octagons do in a few pixels."""
        looks: dict[bytes, tuple[str, str, str]] = {}
        kinds = self.kinds_of(np.arange(len(self.sprites)))
        for number, sprite in zip(kinds[self.backgrounds :].tolist(), self.sprites[self.backgrounds :], strict=True):
            kind = self.world.kinds[number - 1]
            earlier = looks.setdefault(sprite.tobytes(), kind)
            if earlier != kind or not (sprite >= self.grounds).any():
                alike = " and a ".join(f"{size} {colour} {shape}" for size, shape, colour in (earlier, kind))
                raise ValueError(f"image.cell={self.cell}: a {alike} look the same; use larger cells or other sizes")

    def _pack(self, pictures: np.ndarray) -> np.ndarray:
        """Pictures as the bytes of PNG lines."""
        return pictures[:, :, ::2] << 4 | pictures[:, :, 1::2] if self.depth == 4 else pictures

    @functools.cached_property
    def rgb_sprites(self) -> np.ndarray:
        """(T, cell, cell, 3) uint8."""
        return self.palette[self.sprites]

    @functools.cached_property
    def rgb_canvases(self) -> np.ndarray:
        """(backgrounds, height, width, 3) uint8."""
        return self.palette[self.canvases]

    # The look of each cell ---------------------------------------------------------------------------------------

    def canvas_numbers(self, grid: np.ndarray) -> np.ndarray:
        """The background of each picture, (N,)."""
        return below(scene_words(grid), self.backgrounds) if self.backgrounds > 1 else np.zeros(len(grid), np.intp)

    def tiles(self, grid: np.ndarray) -> np.ndarray:
        """The number in `sprites` of each cell's look, (N, cells)."""
        grid = grid.reshape(-1, self.world.cells)
        if len(self.sprites) == len(self.world.kinds) + 1:
            return grid
        canvas = self.canvas_numbers(grid)[:, None]
        variant = below(cell_words(grid), self.variants) if self.variants > 1 else 0
        first = self.backgrounds + (canvas * self.variants + variant) * len(self.world.kinds)
        return np.where(grid > 0, first + grid - 1, canvas)

    def kinds_of(self, tiles: np.ndarray) -> np.ndarray:
        """The kind that each look shows, 0 for an empty cell."""
        return np.where(tiles < self.backgrounds, 0, (tiles - self.backgrounds) % len(self.world.kinds) + 1)

    # Pictures ----------------------------------------------------------------------------------------------------

    def arrays(self, grid: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Pictures as (N, height, width, 3) uint8; into `out` where given."""
        grid = grid.reshape(-1, self.world.cells)
        if out is None:
            out = np.empty((len(grid), self.height, self.width, 3), np.uint8)
        sprites = self.rgb_sprites.reshape(-1, self.cell, self.cell * 3)
        canvases = self.rgb_canvases.reshape(-1, self.height, self.width * 3)
        step = max(1, CHUNK // max(1, self.height * self.width * 3))
        for start in range(0, len(out), step):
            lines = out[start : start + step].reshape(-1, self.height, self.width * 3)
            self._draw(lines, grid[start : start + step], sprites, canvases)
        return out

    def pngs(self, grid: np.ndarray) -> list[bytes]:
        """Pictures as PNG files."""
        grid = grid.reshape(-1, self.world.cells)
        step = max(1, CHUNK // self._packed_canvases[0].size)
        lines = np.empty((step, *self._packed_canvases.shape[1:]), np.uint8)
        files = []
        checksums = self._checksums(grid).tolist()
        for start in range(0, len(grid), step):
            part = grid[start : start + step]
            self._draw(lines[: len(part)], part, self._packed, self._packed_canvases, margin=1)
            part_sums = checksums[start : start + step]
            files += [png_file(self._head, *both) for both in zip(lines[: len(part)], part_sums, strict=True)]
        return files

    def _checksums(self, grid: np.ndarray) -> np.ndarray:
        """The Adler-32 of each picture's lines, (N,).

        It is a sum over bytes v at places i: (1 + sum of v) + 65536 * (n + sum of (n - i) v), each modulo 65521. So the
        sums of the canvas and of the sprites add up, and the lines need not be read for it.
        """
        length, canvas = self._packed_canvases[0].size, self.canvas_numbers(grid)
        picture, cell = np.nonzero(grid)
        values, places = (self._sprite_sums[self.tiles(grid)[picture, cell]] - self._sprite_sums[canvas[picture]]).T
        values_of_canvas, places_of_canvas = self._canvas_sums[canvas].T
        weighted = (length - self._starts[cell]) * values - places
        low = 1 + values_of_canvas + np.bincount(picture, values, len(grid)).astype(np.int64)
        high = length * (1 + values_of_canvas) - places_of_canvas
        high += np.bincount(picture, weighted, len(grid)).astype(np.int64)  # exact: far below 2**53
        return low % 65521 + (high % 65521 << 16)

    def _draw(
        self, lines: np.ndarray, grid: np.ndarray, sprites: np.ndarray, canvases: np.ndarray, margin: int = 0
    ) -> None:
        """Fill lines (N, height, bytes per line) with canvases, and copy the sprites of occupied cells into them.

        margin: bytes of each line before its pixels.
        """
        lines[:] = canvases[0] if len(canvases) == 1 else canvases[self.canvas_numbers(grid)]
        line = np.dtype((np.void, sprites.shape[2]))  # a line of a sprite is copied as one item, not byte by byte
        left = margin + self.left * line.itemsize // self.cell
        inside = lines[:, self.top :, left : left + self.world.columns * line.itemsize].view(line)
        of_picture, of_line, of_cell = inside.strides
        shape = (len(lines), self.world.rows, self.world.columns, self.cell)
        cells = np.lib.stride_tricks.as_strided(inside, shape, (of_picture, of_line * self.cell, of_cell, of_line))
        picture, cell = np.nonzero(grid)
        cells[picture, *np.divmod(cell, self.world.columns)] = sprites.view(line)[self.tiles(grid)[picture, cell], :, 0]

    def cells_in(self, picture: np.ndarray) -> np.ndarray:
        """The cells of a picture (height, width, …), (rows * columns, cell, cell, …)."""
        world, cell = self.world, self.cell
        inside = picture[self.top : self.top + world.rows * cell, self.left : self.left + world.columns * cell]
        tiles = inside.reshape(world.rows, cell, world.columns, cell, *picture.shape[2:])
        return tiles.swapaxes(1, 2).reshape(world.cells, cell, cell, *picture.shape[2:])

    # What other modules need of the style ----------------------------------------------------------------------------

    @property
    def area(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom of the cells, as fractions of the picture."""
        right, bottom = self.left + self.world.columns * self.cell, self.top + self.world.rows * self.cell
        return self.left / self.width, self.top / self.height, right / self.width, bottom / self.height

    def digest(self) -> str:
        """Digest of all sprites, and of canvases that are not white: with the objects column it fixes every pixel."""
        digest = hashlib.sha256(f"{CONTENT_VERSION} {self.rgb_sprites.shape}".encode())
        digest.update(self.rgb_sprites.tobytes())
        if (self.rgb_canvases != 255).any():
            digest.update(f" {self.rgb_canvases.shape} {self.top} {self.left}".encode() + self.rgb_canvases.tobytes())
        return digest.hexdigest()


def _sums(pictures: np.ndarray, row: int) -> np.ndarray:
    """For pictures (N, height, width) in lines of `row` bytes: the sum of their bytes v, and that of v times its place
    from the first byte on, (N, 2) int64."""
    _, height, width = pictures.shape
    places = np.arange(height)[:, None] * row + np.arange(width)
    values = pictures.astype(np.int64)
    return np.stack([values.sum(axis=(1, 2)), (values * places).sum(axis=(1, 2))], axis=1)
