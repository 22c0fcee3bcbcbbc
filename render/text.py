"""Scenes -> captions and back, and the nouns of queries.

`CAPTION_STYLES` is the registry of styles. A style is one file in `render/captions/` and one line here.
"""

from __future__ import annotations

import functools

from render.captions.ascii import AsciiCaptioner
from render.captions.json import JsonCaptioner
from render.captions.sentences import Captioner
from render.captions.style import CaptionStyle, Parsed, short
from render.captions.table import TableCaptioner
from travlr.scene import COLOURS, SHAPES, World

CAPTION_STYLES: dict[str, type[CaptionStyle]] = {
    "sentences": Captioner,
    "table": TableCaptioner,
    "json": JsonCaptioner,
    "ascii": AsciiCaptioner,
}


@functools.lru_cache(maxsize=16)
def make_captioner(style: str, world: World) -> CaptionStyle:
    """What writes captions of a style; cached. Raises `ValueError` for an unknown style, with the valid ones."""
    return _caption_style(style)(world)


def parse_caption(caption: str, size: str = "medium", style: str = "sentences") -> Parsed:
    """Columns, rows and objects of a caption: in its order, or row by row where its style has none.

    size: of objects without a size in the caption. Raises `ValueError` for an unknown style, and for anything that this
    style cannot have written.
    """
    return _caption_style(style).parse(caption, size)


def _caption_style(style: str) -> type[CaptionStyle]:
    if style not in CAPTION_STYLES:
        raise ValueError(f"style.caption={style}: choose one of {', '.join(CAPTION_STYLES)}")
    return CAPTION_STYLES[style]


def noun(attribute: str) -> str:
    """`circle`, `red circle`; `red object` where the attribute is a colour alone."""
    return attribute if attribute.split()[-1] in SHAPES else f"{attribute} object"


def plural(attribute: str) -> str:
    return f"{noun(attribute)}s"


def parse_noun(text: str) -> str:
    """`circles`, `red objects`, `red circle` -> the attribute. Raises `ValueError` for words of no object."""
    words = [w for w in text.split() if w not in ("object", "objects")]
    if words and words[-1] not in SHAPES and words[-1].removesuffix("s") in SHAPES:
        words[-1] = words[-1].removesuffix("s")
    kinds = [(w in SHAPES, w in COLOURS) for w in words]
    if kinds not in ([(True, False)], [(False, True)], [(False, True), (True, False)]):
        raise ValueError(f"not a description of objects: {short(text)}")
    return " ".join(words)
