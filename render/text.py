"""Scenes -> captions and back, and the nouns of queries. The wording is that of the released TraVLR data."""

from __future__ import annotations

import re

import numpy as np

from travlr.scene import COLOURS, SHAPES, SIZES, Batch, Object, Scene, World, column_name, row_name


def preface(world: World) -> str:
    """The sentence that explains the coordinates."""
    return (
        f"Columns, left to right, are ordered A to {column_name(world.columns - 1)}. "
        f"Rows, top to bottom, are ordered 1 to {row_name(world.rows - 1)}."
    )


def phrase(world: World, size: str, shape: str, colour: str) -> str:
    """`a red circle`; with the size only where the world has several."""
    words = f"{size} {colour} {shape}" if len(world.sizes) > 1 else f"{colour} {shape}"
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


class Captioner:
    """Captions of one world, by look-up of every (kind, cell) in advance."""

    def __init__(self, world: World) -> None:
        self._start = f"{preface(world)} There is "
        where = [f"at {column_name(c)} {row_name(r)}" for r in range(world.rows) for c in range(world.columns)]
        self._phrases = np.array(
            [[""] * world.cells] + [[f"{phrase(world, *k)} {w}" for w in where] for k in world.kinds], object
        )

    def captions(self, batch: Batch) -> list[str]:
        """One caption for each example, objects in the order of `batch.order`."""
        used = batch.order >= 0
        kinds = np.take_along_axis(batch.grid, np.maximum(batch.order, 0), axis=1)
        parts = self._phrases[kinds[used], batch.order[used]].tolist()
        captions, position = [], 0
        for count in used.sum(axis=1).tolist():
            last = position + count - 1
            listed = f"{', '.join(parts[position:last])} and {parts[last]}" if count > 1 else parts[last]
            captions.append(f"{self._start}{listed}.")
            position += count
        return captions


def caption_of(scene: Scene, world: World) -> str:
    """The caption of one scene, objects in its order."""
    parts = [f"{phrase(world, o.size, o.shape, o.colour)} at {column_name(o.column)} {row_name(o.row)}" for o in scene]
    listed = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    return f"{preface(world)} There is {listed}."


_PREFACE = re.compile(
    r"Columns, left to right, are ordered A to ([A-Z])\. "
    r"Rows, top to bottom, are ordered 1 to ([1-9][0-9]?)\. There is (.+)\."
)
_OBJECT = re.compile(r"(an?) (?:(\w+) )?(\w+) (\w+) at ([A-Z]) ([1-9][0-9]?)")


def parse_caption(caption: str, size: str = "medium") -> tuple[int, int, Scene]:
    """Columns, rows and objects (in caption order) of a caption. size: of objects without a size in the caption.

    Raises `ValueError` for anything that `Captioner` cannot have written.
    """
    whole = _PREFACE.fullmatch(caption)
    if not whole:
        raise ValueError(f"not a caption: {_short(caption)}")
    columns, rows = ord(whole[1]) - ord("A") + 1, int(whole[2])
    listed = whole[3]
    parts = listed.split(", ")
    parts[-1:] = parts[-1].split(" and ")
    if listed.count(" and ") != (len(parts) > 1):
        raise ValueError(f"no 'and' before the last object, or several: {_short(caption)}")
    objects = []
    for part in parts:
        found = _OBJECT.fullmatch(part)
        if not found or found[3] not in COLOURS or found[4] not in SHAPES or (found[2] and found[2] not in SIZES):
            raise ValueError(f"not an object: {_short(part)}")
        if found[1] != ("an" if (found[2] or found[3])[0] in "aeiou" else "a"):
            raise ValueError(f"wrong article: {_short(part)}")
        column, row = ord(found[5]) - ord("A"), int(found[6]) - 1
        if not (0 <= column < columns and 0 <= row < rows):
            raise ValueError(f"outside the grid: {_short(part)}")
        objects.append(Object(found[3], found[4], found[2] or size, row, column))
    if len({(o.row, o.column) for o in objects}) < len(objects):
        raise ValueError(f"two objects in one cell: {_short(caption)}")
    return columns, rows, tuple(objects)


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
    known = [(w in SHAPES, w in COLOURS) for w in words]
    if known not in ([(True, False)], [(False, True)], [(False, True), (True, False)]):
        raise ValueError(f"not a description of objects: {_short(text)}")
    return " ".join(words)


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
