"""Pictures with an object put on a background, anywhere and in any size."""

from __future__ import annotations

import numpy as np
from PIL import Image

from analysis.probe.items import on_white
from render.image import LEVELS, coverage
from travlr.scene import COLOURS, SHAPES


def shape_picture(shape: str, colour: str, side: int) -> Image.Image:
    """A shape of our scenes, RGBA, transparent around it. Raises ValueError for a shape or colour we do not have."""
    for name, value, known in (("shape", shape, SHAPES), ("colour", colour, tuple(COLOURS))):
        if value not in known:
            raise ValueError(f"{name}={value}: choose one of {', '.join(known)}")
    share = coverage(shape, side, side)  # (side, side), 0 .. LEVELS
    pixels = np.empty((side, side, 4), np.uint8)
    pixels[..., :3] = COLOURS[colour]
    pixels[..., 3] = share.astype(np.int64) * 255 // LEVELS
    return Image.fromarray(pixels)  # RGBA


def placed(background: Image.Image, thing: Image.Image | None, x: float, y: float, scale: float) -> Image.Image:
    """A picture, RGB, with an object on it.

    x, y: the centre of the object, 0 to 1 of the background's width and height. scale: the longer side of the object,
    above 0 to 1 of the background's shorter side. What lies outside is cut off. Raises ValueError for other values.
    """
    for name, value in (("x", x), ("y", y), ("scale", scale)):
        if not 0 <= value <= 1 or (name == "scale" and value == 0):
            raise ValueError(f"{name}={value}: must be {'above 0, to 1' if name == 'scale' else '0 to 1'}")
    shown = on_white(background)
    if thing is None:
        return shown
    left, top, width, height = box_of(shown, thing, x, y, scale)
    small = thing.convert("RGBA").resize((width, height), Image.Resampling.LANCZOS)
    shown.paste(small, (left, top), small)
    return shown


def box_of(background: Image.Image, thing: Image.Image, x: float, y: float, scale: float) -> tuple[int, int, int, int]:
    """Left, top, width and height in pixels of an object that is put there."""
    factor = max(1, round(scale * min(background.size))) / max(thing.size)
    width, height = (max(1, round(length * factor)) for length in thing.size)
    return round(x * background.width - width / 2), round(y * background.height - height / 2), width, height
