"""The style `sentences`: `There is a red circle at A 1 and …`, in the words of the released TraVLR data."""

from __future__ import annotations

import re

from render.captions.style import PREFACE, ListStyle, Parsed, check_places, preface, refuse, short
from travlr.scene import COLOURS, SHAPES, SIZES, Object, World, column_name, row_name


class Captioner(ListStyle):
    """Captions as English sentences."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._start = f"{preface(world)} There is "

    def entry(self, size: str, shape: str, colour: str, row: int, column: int) -> str:
        words = self.words(size, shape, colour)
        return f"{'an' if words[0] in 'aeiou' else 'a'} {words} at {column_name(column)} {row_name(row)}"

    def assemble(self, entries: list[str]) -> str:
        text = f"{', '.join(entries[:-1])} and {entries[-1]}" if len(entries) > 1 else entries[0]
        return f"{self._start}{text}."

    @staticmethod
    def parse(caption: str, size: str) -> Parsed:
        whole = _WHOLE.fullmatch(caption)
        if not whole:
            refuse(caption)
        columns, rows = ord(whole[1]) - ord("A") + 1, int(whole[2])
        text = whole[3]
        parts = text.split(", ")
        parts[-1:] = parts[-1].split(" and ")
        if text.count(" and ") != (len(parts) > 1):
            raise ValueError(f"no 'and' before the last object, or several: {short(caption)}")
        objects = []
        for part in parts:
            match = _OBJECT.fullmatch(part)
            if not match or match[3] not in COLOURS or match[4] not in SHAPES or (match[2] and match[2] not in SIZES):
                raise ValueError(f"not an object: {short(part)}")
            if match[1] != ("an" if (match[2] or match[3])[0] in "aeiou" else "a"):
                raise ValueError(f"wrong article: {short(part)}")
            column, row = ord(match[5]) - ord("A"), int(match[6]) - 1
            objects.append(Object(match[3], match[4], match[2] or size, row, column))
        check_places(columns, rows, objects)
        return columns, rows, tuple(objects)


_WHOLE = re.compile(rf"{PREFACE} There is (.+)\.")
_OBJECT = re.compile(r"(an?) (?:(\w+) )?(\w+) (\w+) at ([A-Z]) ([1-9][0-9]?)")
