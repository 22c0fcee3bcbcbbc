"""Pictures of corpora: finds, checks, reads and crops them. A path that leaves its folder is never opened."""

from __future__ import annotations

import io
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

FILES = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")  # formats that are read
MOST_PIXELS = 1 << 26  # a larger picture cannot be read back


def find_problems(folder: Path, pictures: list[tuple[str, Any]]) -> list[str]:
    """For each path and box why it has no picture; empty where it has one."""
    return [_problem(folder, name, box) for name, box in pictures]


def _problem(folder: Path, name: str, box: Any) -> str:
    try:
        path = find_picture(folder, name)
    except ValueError:
        return f"has no path in the folder of pictures: {name[:200]}"
    if not path.is_file():
        return f"is missing: {name}"
    try:
        read_picture(folder, name, box, check=True)
    except ValueError as error:
        return f"cannot be read: {error}"
    return ""


def find_picture(folder: Path, name: str) -> Path:
    """The path of a picture's file. Raises `ValueError` where it leaves the folder of pictures.

    The folders in that folder may be links, for example to another disk.
    """
    root, first = folder.resolve(), PurePosixPath(name).parts[0]
    try:
        path = (root / name).resolve()
        roots = (root, (root / first).resolve()) if (root / first).is_dir() else (root,)
    except (OSError, ValueError):  # too long, or with a character that file names cannot have
        raise ValueError(f"{name[:200]!r} is not a file name") from None
    if ".." in PurePosixPath(name).parts or not any(path.is_relative_to(one) for one in roots) or first == "/":
        raise ValueError(f"{name[:200]!r} leaves the folder of pictures")
    return path


def has_picture(folder: Path, name: str) -> bool:
    """Whether a picture's file exists in its folder."""
    try:
        return find_picture(folder, name).is_file()
    except ValueError:
        return False


def read_picture(folder: Path, name: str, box: tuple[float, ...] | None = None, check: bool = False) -> bytes:
    """The bytes of a picture: its file where that is a PNG or JPEG of colours or greys, else a PNG, on white.

    box: x, y, width and height of the part to show. check: whether to decode the file, to see that it is whole.
    EXIF rotation is ignored, as boxes refer to the stored pixels. Raises `ValueError` where it cannot be read.
    """
    path = find_picture(folder, name)
    try:
        data = path.read_bytes()
        with Image.open(io.BytesIO(data), formats=FILES) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise ValueError(f"has {picture.width} x {picture.height} pixels")
            plain = picture.mode in ("RGB", "L", "P") and "transparency" not in picture.info
            if box is None and plain and picture.format in ("PNG", "JPEG"):
                if check:
                    picture.draft(picture.mode, (picture.width // 8, picture.height // 8))  # eight times as fast
                    picture.load()
                return data
            flat = on_white(picture)
    except UnidentifiedImageError:  # whose message names the object that holds the bytes
        raise ValueError(f"{name}: is no picture of a known format") from None
    except Exception as error:  # decoders raise many kinds
        raise ValueError(f"{name}: {' '.join(str(error).split()) or type(error).__name__}") from None
    if box is not None:
        left, top, width, height = box
        edges = (max(left, 0), max(top, 0), min(left + width, flat.width), min(top + height, flat.height))
        x0, y0, x1, y1 = map(round, edges)
        if x0 >= x1 or y0 >= y1:
            raise ValueError(f"{name}: the box {list(box)} is not in the picture")
        flat = flat.crop((x0, y0, x1, y1))
    buffer = io.BytesIO()
    flat.save(buffer, "PNG")
    return buffer.getvalue()


def on_white(picture: Image.Image) -> Image.Image:
    """A picture as RGB, transparent parts on white, 16 bits as 8."""
    if picture.mode.startswith("I"):  # Pillow would clip it at 255
        return Image.fromarray((np.asarray(picture).clip(0, 65535) // 257).astype(np.uint8)).convert("RGB")
    if picture.mode not in ("RGBA", "LA", "PA") and "transparency" not in picture.info:
        return picture.convert("RGB")
    whole = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", whole.size, "white"), whole).convert("RGB")
