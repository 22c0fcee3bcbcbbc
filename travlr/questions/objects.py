"""Scenes in a model's own words: reads the objects of a list, and compares them with those of the scene."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from travlr.scene import COLOURS, SHAPES, SIZES, Object, Scene, column_name, row_name

_COLUMN_ROW = re.compile(r"\bcolumn\W{0,3}([A-Z])\W{1,4}(?:and\s+)?row\W{0,3}([0-9]{1,2})\b", re.IGNORECASE)
_ROW_COLUMN = re.compile(r"\brow\W{0,3}([0-9]{1,2})\W{1,4}(?:and\s+)?column\W{0,3}([A-Z])\b", re.IGNORECASE)
_WORDS = sorted((*COLOURS, *SHAPES, *SIZES), key=len, reverse=True)
_TOKEN = re.compile(
    rf"(?P<word>\b(?:{'|'.join(_WORDS)})(?=s?\b))|\b(?P<column>[A-Z])(?:\s?[,:-]\s?|\s?)(?P<row>[1-9][0-9]?)\b"
)
_EMPTY = re.compile(r"\b(?:no objects|nothing|empty)\b", re.IGNORECASE)


@dataclass(frozen=True)
class ObjectErrors:
    """How the objects of a reply compare with those of a scene, in numbers of objects.

    found: right in colour, shape and cell. miscoloured, misshaped: at their cell, with that one error. misplaced: right
    but for the cell. missed: in no way in the reply. invented: in the reply, and none of the above.
    """

    found: int
    missed: int
    invented: int
    misplaced: int
    miscoloured: int
    misshaped: int

    @property
    def exact(self) -> bool:
        return not (self.missed or self.invented or self.misplaced or self.miscoloured or self.misshaped)


def parse_objects(text: str) -> Scene | None:
    """The objects that a text lists, in its order; None where it lists none. Sizes that it does not give are "".

    An object is a colour, a shape and a cell (`A 1`, `A1`, `column A, row 1`), in any order that stays the same. What
    lacks one of the three is no object.
    """
    text = _COLUMN_ROW.sub(lambda m: f"{m[1].upper()} {m[2]}", text)
    text = _ROW_COLUMN.sub(lambda m: f"{m[2].upper()} {m[1]}", text)
    tokens = [_kind(token) for token in _TOKEN.finditer(text)]
    cell_first = bool(tokens) and tokens[0][0] == "cell"
    objects: list[Object] = []
    parts: dict[str, str] = {}
    for kind, value in tokens:
        if kind == "cell" and not parts and objects and not cell_first:  # `red circles at A 1 and B 2`
            parts = {"colour": objects[-1].colour, "shape": objects[-1].shape, "size": objects[-1].size}
        elif kind in parts or (kind == "cell" and cell_first):  # the object before was incomplete
            parts = {}
        parts[kind] = value
        if {"colour", "shape", "cell"} <= parts.keys():
            column, _, row = parts["cell"].partition(" ")
            size = parts.get("size", "")
            objects.append(Object(parts["colour"], parts["shape"], size, int(row) - 1, ord(column) - ord("A")))
            parts = {}
    return tuple(objects) or (() if _EMPTY.search(text) else None)


def _kind(token: re.Match[str]) -> tuple[str, str]:
    word = token["word"]
    if word is None:
        return "cell", f"{token['column']} {token['row']}"
    return ("colour" if word in COLOURS else "shape" if word in SHAPES else "size"), word


def compare_objects(scene: Scene, objects: Scene) -> ObjectErrors:
    """Compare the objects of a reply with those of the scene. Each object of either side counts once."""
    truth, reply = Counter(map(_key, scene)), Counter(map(_key, objects))
    if not all(o.size for o in objects):  # the reply gives no sizes
        truth, reply = (Counter({(c, s, "", at): n for (c, s, _, at), n in x.items()}) for x in (truth, reply))
    numbers = {"found": (truth & reply).total()}
    truth, reply = truth - reply, reply - truth
    for name, blind in (("miscoloured", _without_colour), ("misshaped", _without_shape), ("misplaced", _without_cell)):
        numbers[name] = 0
        for key in list(reply.elements()):
            match = next((other for other in truth.elements() if blind(other) == blind(key)), None)
            if match is not None:
                numbers[name] += 1
                truth[match] -= 1
                reply[key] -= 1
        truth, reply = +truth, +reply
    return ObjectErrors(missed=truth.total(), invented=reply.total(), **numbers)


Key = tuple[str, str, str, tuple[int, int]]


def _key(o: Object) -> Key:
    return o.colour, o.shape, o.size, (o.row, o.column)


def _without_colour(key: Key) -> object:
    return key[1:]


def _without_shape(key: Key) -> object:
    return key[0], key[3]


def _without_cell(key: Key) -> object:
    return key[:3]


def objects_text(objects: Scene) -> str:
    """Objects as a list of lines, in the form that the question asks for."""
    return "\n".join(
        f"{'an' if o.colour[0] in 'aeiou' else 'a'} {o.colour} {o.shape} at {column_name(o.column)} {row_name(o.row)}"
        if not o.size
        else f"a {o.size} {o.colour} {o.shape} at {column_name(o.column)} {row_name(o.row)}"
        for o in objects
    )
