"""PNG files: palette pictures are written, PNG and JPEG are read."""

from __future__ import annotations

import base64
import io
import struct
from typing import TYPE_CHECKING

import numpy as np
from isal import isal_zlib

if TYPE_CHECKING:
    from PIL import Image

ZLIB_HEAD = b"\x78\x01"  # before a deflate stream: a window of 32 KiB, compressed at the fastest level


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
    return png_file(png_head(width, height, depth, palette), lines)


def png_file(head: bytes, lines: np.ndarray, checksum: int | None = None) -> bytes:
    """A PNG file from its head and its lines, each with its filter type. checksum: as of `deflate`."""
    return b"".join((head, *_chunk(b"IDAT", deflate(lines, checksum)), *_END))


def deflate(lines: bytes | np.ndarray, checksum: int | None = None) -> bytes:
    """The lines of a picture as a zlib stream, the same on every call. checksum: their Adler-32, if it is known.

    Levels 1 and 2 of ISA-L would save a quarter of the bytes, but they hash a register that they have not set: it holds
    the address of their state (`write_first_byte` in igzip_icf_body_h1_gr_bt.asm, up to version 2.32 at least). So in
    a few processes they make other bytes of the same lines. Level 3 takes eight times as long.
    """
    checksum = isal_zlib.adler32(lines) if checksum is None else checksum
    return b"".join((ZLIB_HEAD, isal_zlib.compress(lines, 0, wbits=-15), checksum.to_bytes(4, "big")))


def png_head(width: int, height: int, depth: int, palette: np.ndarray) -> bytes:
    """The chunks of a PNG file that come before its lines."""
    head = struct.pack(">IIBBBBB", width, height, depth, 3, 0, 0, 0)
    return b"".join((b"\x89PNG\r\n\x1a\n", *_chunk(b"IHDR", head), *_chunk(b"PLTE", palette.tobytes())))


def _chunk(name: bytes, data: bytes) -> tuple[bytes, ...]:
    """The parts of a chunk, for one `join`: pictures are large, and each further copy takes time."""
    crc = isal_zlib.crc32(data, isal_zlib.crc32(name))
    return struct.pack(">I", len(data)), name, data, struct.pack(">I", crc)


_END = _chunk(b"IEND", b"")


def data_uri(picture: bytes) -> str:
    """A PNG or JPEG file as a data URI."""
    kind = "jpeg" if picture.startswith(b"\xff\xd8") else "png"
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


def decode(data: bytes) -> Image.Image:
    """A picture file as RGB. Raises `ValueError` for anything but a whole PNG or JPEG of a sane size."""
    from PIL import Image as pillow
    from PIL import UnidentifiedImageError

    try:
        picture = pillow.open(io.BytesIO(data), formats=("PNG", "JPEG"))
        if picture.width * picture.height > 1 << 26:
            raise ValueError(f"picture of {picture.width} x {picture.height} pixels is too large")
        return picture.convert("RGB")
    except UnidentifiedImageError:  # whose message names the object that holds the bytes
        raise ValueError("not a readable PNG or JPEG") from None
    except (OSError, SyntaxError, pillow.DecompressionBombError) as error:
        raise ValueError(f"not a readable PNG or JPEG: {error}") from None
