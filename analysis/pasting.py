"""Pictures from files, drawn shapes, and objects pasted on backgrounds at any place and size."""

from __future__ import annotations

import functools
from collections.abc import Collection
from pathlib import Path

import numpy as np
from PIL import Image

from render.shapes import LEVELS, coverage
from travlr.corpora.pictures import on_white
from travlr.scene import COLOURS, World

SHARP = 512  # pixels of a drawn shape before it is scaled down
WORLD = World()  # five colours, seven shapes, 6 x 6 cells
SIDE = 672  # pixels of a plain background and of a scene


def picture_from(path: Path) -> Image.Image:
    """A user's picture, RGB, transparent parts on white. Raises ValueError, in one line without its name, where it
    cannot be read."""
    try:
        with Image.open(path) as file:
            image = on_white(file)
    except FileNotFoundError:
        raise ValueError("is not there") from None
    except Exception:  # decoders raise many kinds
        raise ValueError("is no picture that can be read") from None
    image.info["path"] = path.name  # regions of files are found by it
    return image


def object_from(path: Path) -> Image.Image:
    """A user's picture of an object, RGBA, cropped to its visible part. Raises ValueError as `picture_from`, and where
    the picture is fully transparent."""
    whole = picture_from(path)  # checks that it is a picture and not too large
    with Image.open(path) as picture:
        clear = picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info
        cutout = (picture if clear else whole).convert("RGBA")
    box = cutout.getchannel("A").getbbox()
    if box is None:
        raise ValueError("is transparent all over")
    return cutout.crop(box)


def scene(seed: int, without: Collection[str] = (), scale: float = 0.05) -> Image.Image:
    """Eight objects of one size on white, `SIDE` pixels wide and high, each in a cell of its own. without: colours and
    shapes that it must not show. scale: of an object, as for `placed`.

    Raises ValueError where no colour or no shape is left.
    """
    colours = [colour for colour in WORLD.colours if colour not in without]
    shapes = [shape for shape in WORLD.shapes if shape not in without]
    if not colours or not shapes:
        raise ValueError("object and sentences name all colours or shapes; choose another background")
    random = np.random.default_rng(seed)
    picture = Image.new("RGB", (SIDE, SIDE), "white")
    for cell in random.choice(WORLD.cells, 8, replace=False).tolist():
        thing = shape_picture(str(random.choice(shapes)), str(random.choice(colours)))
        x, y = ((number + 0.5) / WORLD.columns for number in (cell % WORLD.columns, cell // WORLD.columns))
        picture = placed(picture, thing, x, y, scale)
    return picture


@functools.lru_cache(maxsize=16)
def shape_picture(shape: str, colour: str, side: int = SHARP) -> Image.Image:
    """A shape of our scenes, RGBA, on transparent ground. Cached, as large ones are slow."""
    pixels = np.empty((side, side, 4), np.uint8)
    pixels[..., :3] = COLOURS[colour]
    pixels[..., 3] = coverage(shape, side, side).astype(np.int64) * 255 // LEVELS
    return Image.fromarray(pixels)  # RGBA


def placed(background: Image.Image, thing: Image.Image | None, x: float, y: float, scale: float) -> Image.Image:
    """A picture, RGB, with an object on it.

    x, y: the centre of the object, 0 to 1 of the background's width and height. scale: the longer side of the object,
    above 0 to 1 of the background's shorter side. Parts outside the background are cut off.
    """
    picture = on_white(background)
    if thing is None:
        return picture
    left, top, width, height = find_box(picture, thing, x, y, scale)
    small = thing.convert("RGBA").resize((width, height), Image.Resampling.LANCZOS)
    picture.paste(small, (left, top), small)
    return picture


def find_box(
    background: Image.Image, thing: Image.Image, x: float, y: float, scale: float
) -> tuple[int, int, int, int]:
    """Left, top, width and height in pixels of an object at this place; see `placed`."""
    factor = max(1, round(scale * min(background.size))) / max(thing.size)
    width, height = (max(1, round(length * factor)) for length in thing.size)
    return round(x * background.width - width / 2), round(y * background.height - height / 2), width, height
