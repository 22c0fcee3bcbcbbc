"""Scenes in a model's own words: reads the objects of a list, and compares them with those of the scene."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from render.captions.sentences import Captioner
from travlr.scene import COLOURS, SHAPES, Object, Scene, World

_COLUMN_ROW = re.compile(r"\bcolumn\W{0,6}([A-Z])\b\W{1,20}(?:and\s+)?row\W{0,6}([0-9]{1,2})\b", re.IGNORECASE)
_ROW_COLUMN = re.compile(r"\brow\W{0,6}([0-9]{1,2})\b\W{1,20}(?:and\s+)?column\W{0,6}([A-Z])\b", re.IGNORECASE)
_AMERICAN = {"gray": "grey", "trapezoid": "trapezium"}
_TOKEN = re.compile(
    rf"\b(?P<word>(?i:{'|'.join((*COLOURS, *SHAPES, *_AMERICAN))}))(?=s?\b)"
    r"|\b(?P<column>[A-Z])[ \t,:|\"'-]*(?P<row>[1-9][0-9]?)\b|\b(?P<small>[a-z])(?P<of_small>[1-9][0-9]?)\b"
    r"|\b(?P<of_last>[1-9][0-9]?) ?(?P<last>[A-Z])\b(?! ?[a-z1-9])"
)
_RANGE = re.compile(r"\b[A-Z],? ?[1-9][0-9]?\b (?:to|through) [A-Z],? ?[1-9][0-9]?\b", re.IGNORECASE)
_NEGATION = re.compile(r"\b(?:no|not|none|nothing|never|neither|without|empty)\b|n't\b", re.IGNORECASE)
_PLACE_HEADING = re.compile(r"\W*(?:row (?P<row>[1-9][0-9]?)|column (?P<column>[A-Z]))\W{0,4}:", re.IGNORECASE)
_EMPTY = re.compile(
    r"\W*(?:there are )?(?:no objects|none|nothing|empty)(?: (?:in|on) the \w+)?\W*|\[\s*\]", re.IGNORECASE
)


@dataclass(frozen=True)
class ObjectErrors:
    """How the objects of a reply compare with those of a scene, in numbers of objects. Sizes are not compared.

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

    @property
    def f1_parts(self) -> tuple[int, int]:
        """Twice the objects that are right, and objects of the scene plus objects of the reply."""
        both = self.found + self.misplaced + self.miscoloured + self.misshaped
        return 2 * self.found, 2 * both + self.missed + self.invented

    @property
    def f1(self) -> float:
        """The F1 of objects, 0 to 1."""
        right, all_objects = self.f1_parts
        return right / max(all_objects, 1)


def short_cells(text: str) -> str:
    """A text with `A 1` for `column A, row 1` and the like."""
    text = _COLUMN_ROW.sub(lambda m: f"{m[1].upper()} {m[2]}", text)
    return _ROW_COLUMN.sub(lambda m: f"{m[2].upper()} {m[1]}", text)


def parse_objects(text: str) -> Scene | None:
    """The objects that a text lists, in its order, without sizes; None where it lists none.

    An object is a colour, a shape and a cell (`A 1`, `A1`, `a1`, `1 A`, `column A, row 1`), in any order that stays the
    same; a phrase without one of the three is no object, and an object that is listed twice is one. A heading (`Red:`,
    `Circles:`, `Row 2:`) applies to the lines below it. Of the `READINGS` of several cells, the first with the fewest
    unused words counts.
    """
    lines = _RANGE.sub(" ", short_cells(_cells_under_headings(text))).splitlines()
    tokens = _under_headings([_affirmed(line) for line in lines])
    objects, _ = min((_collect(tokens, reading) for reading in READINGS), key=lambda result: result[1])
    return tuple(dict.fromkeys(objects)) or (() if _EMPTY.fullmatch(text) else None)


def _affirmed(line: str) -> str:
    """A line without what its sentences deny: all of a sentence that denies before it names a shape, or the rest."""
    sentences = re.split(r"(?<=[.;])(?= )", line)
    for number, sentence in enumerate(sentences):
        if denial := _NEGATION.search(sentence):
            before = sentence[: denial.start()]
            sentences[number] = before if any(shape in before.lower() for shape in SHAPES) else ""
    return "".join(sentences)


Token = tuple[str, str]  # ("colour", "red"), ("shape", "circle") or ("cell", "A 1")


def _kind(token: re.Match[str]) -> Token:
    if token["word"] is None:
        column = token["column"] or token["last"] or token["small"].upper()
        return "cell", f"{column} {token['row'] or token['of_last'] or token['of_small']}"
    word = token["word"].lower()
    word = _AMERICAN.get(word, word)
    return "colour" if word in COLOURS else "shape", word


def _cells_under_headings(text: str) -> str:
    """A text with `A 2` for `column A` in the line `Row 2: ...` and in the lines below it; the same for columns."""
    lines, heading = [], ""
    for line in text.splitlines():
        begins = _PLACE_HEADING.match(line)
        if begins and (not heading or heading.isdigit() == bool(begins["row"])):
            heading, line = begins["row"] or begins["column"].upper(), line[begins.end() :]
        if heading.isdigit():
            line = re.sub(r"\bcolumn ([A-Z])\b", rf"\1 {heading}", line, flags=re.IGNORECASE)
            line = re.sub(r"\(([A-Z])\)|\b([A-Z])(?=:)", rf"\1\2 {heading}", line)
        elif heading:
            line = re.sub(r"\brow ([0-9]{1,2})\b", rf"{heading} \1", line, flags=re.IGNORECASE)
            line = re.sub(r"\(([0-9]{1,2})\)|\b([0-9]{1,2})(?=:)", rf"{heading} \1\2", line)
        lines.append(line)
    return "\n".join(lines)


def _under_headings(lines: Sequence[str]) -> list[Token]:
    """The tokens of lines, with the colour and the shape of headings before each object below them.

    A token of kind `line` stands before a line with a colour, a shape and a cell, whose objects need no other line.
    """
    tokens: list[Token] = []
    headings: dict[str, str] = {}
    for line in lines:
        of_line = [_kind(token) for token in _TOKEN.finditer(line)]
        kinds = [kind for kind, _ in of_line]
        if line.rstrip("*_ ").endswith(":") and "cell" not in kinds and len(set(kinds)) == len(kinds):
            headings |= of_line
            continue
        headings = {kind: value for kind, value in headings.items() if kind not in kinds}
        tokens += [("line", "")] if {"colour", "shape", "cell"} == {*kinds, *headings} else []
        begins = "cell" if set(kinds) == {"cell"} else next((kind for kind in kinds if kind != "cell"), "")
        for kind, value in of_line:
            tokens += headings.items() if kind == begins else ()
            tokens.append((kind, value))
    return tokens


# How several cells are read. single: each object has one cell. plural: a further cell has an object like the last one
# (red circles at A 1 and B 2). respective: the cells are in the order of the objects before them (a red circle and a
# blue square at A 1 and B 2).
READINGS = ("single", "plural", "respective")


def _collect(tokens: Sequence[Token], reading: str) -> tuple[list[Object], int]:
    """The objects of tokens, and the number of unused tokens."""
    objects: list[Object] = []
    parts: dict[str, str] = {}
    waiting: list[dict[str, str]] = []  # for their cells
    unused = 0
    for kind, value in tokens:
        if kind == "line":
            unused += len(parts) + sum(map(len, waiting))
            parts, waiting = {}, []
            continue
        if reading == "plural" and kind == "cell" and not parts and objects:
            parts = {"colour": objects[-1].colour, "shape": objects[-1].shape}
        elif reading == "respective" and kind == "cell" and waiting:
            waiting += [parts] if parts else []
            parts = waiting.pop(0)
        elif kind in parts and reading == "respective" and parts.keys() == {"colour", "shape"}:
            waiting.append(parts)
            parts = {}
        elif kind in parts:  # the object before lacks something
            unused += len(parts)
            parts = {}
        parts[kind] = value
        if len(parts) == 3:
            column, _, row = parts["cell"].partition(" ")
            objects.append(Object(parts["colour"], parts["shape"], "", int(row) - 1, ord(column) - ord("A")))
            parts = {}
    return objects, unused + len(parts) + sum(map(len, waiting))


Key = tuple[str, str, tuple[int, int]]  # colour, shape, (row, column)

_ERRORS: dict[str, Callable[[Key], object]] = {  # error -> what of an object is right all the same
    "miscoloured": lambda key: key[1:],
    "misshaped": lambda key: (key[0], key[2]),
    "misplaced": lambda key: key[:2],
}


def compare_objects(scene: Scene, objects: Scene) -> ObjectErrors:
    """Compare the objects of a reply with those of the scene. Each object of either side counts once."""
    truth, reply = (Counter[Key]((o.colour, o.shape, (o.row, o.column)) for o in side) for side in (scene, objects))
    numbers = {"found": (truth & reply).total()}
    truth, reply = truth - reply, reply - truth
    for error, rest_of in _ERRORS.items():
        numbers[error] = 0
        for key in sorted(reply.elements()):
            match = next((other for other in sorted(truth.elements()) if rest_of(other) == rest_of(key)), None)
            if match is not None:
                numbers[error] += 1
                truth[match] -= 1
                reply[key] -= 1
    return ObjectErrors(missed=truth.total(), invented=reply.total(), **numbers)


_WRITER = Captioner(World())  # of phrases without a size


def objects_text(objects: Scene) -> str:
    """Objects as a list of lines, in the form that the question asks for. Equal sets of objects have equal texts."""
    in_order = sorted(objects, key=lambda o: (o.row, o.column, o.colour, o.shape))
    return "\n".join(_WRITER.entry(o.size, o.shape, o.colour, o.row, o.column) for o in in_order)
