"""Scenes -> pictures, and back. Drawing happens once for each kind of object; after that a picture is a look-up.

`IMAGE_STYLES` is the registry of styles. A style is one file in `render/pictures/` and one line here.
"""

from __future__ import annotations

from render.pictures.equal_area import equal_area
from render.pictures.grid import grid
from render.pictures.jitter import jitter
from render.pictures.labelled import labelled
from render.pictures.look import Draw, Spans
from render.pictures.plain import plain
from render.pictures.renderer import Renderer
from render.pictures.textured import textured
from travlr.scene import World

IMAGE_STYLES: dict[str, Draw] = {
    "plain": plain,
    "grid": grid,
    "labelled": labelled,
    "textured": textured,
    "jitter": jitter,
    "equal_area": equal_area,
}


def make_renderer(style: str, world: World, cell: int, spans: Spans) -> Renderer:
    """The renderer of a style. Raises `ValueError` for an unknown style, with the valid ones."""
    if style not in IMAGE_STYLES:
        raise ValueError(f"style.image={style}: choose one of {', '.join(IMAGE_STYLES)}")
    return Renderer(world, cell, spans, IMAGE_STYLES[style])
