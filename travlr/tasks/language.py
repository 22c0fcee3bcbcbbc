"""The English of queries: a template such as `The {first:noun} is {relation} the {second:noun}.`, written and read.

A field names an argument of the query and how it is written:

- `{shape}`: as it is, a word or a number;
- `{first:a}`: with an article, `a red circle`, `an octagon`;
- `{first:noun}`, `{first:nouns}`: `circle`, `red object`; `circles`, `red objects`;
- `{number:is|are}`: one of two words, the first for the number 1.

A text begins with a capital letter.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from render.text import noun, parse_noun, plural
from travlr.scene import COLOURS, SHAPES, Object, World, column_name, row_name

Args = tuple[Any, ...]

# What an argument that describes objects may be -> examples. `nouns` are shapes, colours, or both together.
OBJECT_ARGUMENTS = {
    "shapes": ("circle", "square", "star"),
    "colours": ("red", "blue", "green"),
    "objects": ("red circle", "blue square", "green star"),
    "nouns": ("red", "circle", "blue star"),
}
WRITTEN: dict[str, Callable[[str], str]] = {
    "": str,
    "noun": noun,
    "nouns": plural,
    "a": lambda words: f"{article(words)} {words}",
}


class QueryText:
    """A template with its arguments: each a list of values, a mapping of values to words, `int`, or a word of
    `OBJECT_ARGUMENTS`.

    names: the arguments in the order of the text. nouns: the places of those that describe objects.
    Raises `ValueError` where the template and the arguments do not fit.
    """

    def __init__(self, template: str, arguments: Mapping[str, Any]) -> None:
        self._parts = [(text, name, spec or "") for text, name, spec, _ in string.Formatter().parse(template)]
        self.names = tuple(dict.fromkeys(name for _, name, _ in self._parts if name is not None))
        if set(self.names) != set(arguments):
            raise ValueError(f"`query` has the fields {list(self.names)}, `arguments` are {list(arguments)}")
        self.arguments = {name: arguments[name] for name in self.names}
        self.nouns = tuple(place for place, name in enumerate(self.names) if self._is_noun(name))
        if len(self.nouns) > 3:
            raise ValueError("`arguments`: at most three may describe objects")
        self._words = {name: _words(value) for name, value in self.arguments.items() if not self._is_noun(name)}
        self._pattern = re.compile(self._regular_expression())

    def _is_noun(self, name: str) -> bool:
        value = self.arguments[name]
        if isinstance(value, str) and value not in OBJECT_ARGUMENTS:
            raise ValueError(f"`arguments`: {name} is {value!r}; give a list, or one of {', '.join(OBJECT_ARGUMENTS)}")
        return isinstance(value, str)

    def _regular_expression(self) -> str:
        parts, values = [], set[str]()
        for text, name, spec in self._parts:
            parts.append(re.escape(text))
            if name is None:
                continue
            if "|" in spec:
                parts.append(f"(?:{'|'.join(map(re.escape, spec.split('|')))})")
                continue
            if spec not in WRITTEN:
                raise ValueError(f"`query`: {{{name}:{spec}}} ends in none of {', '.join(WRITTEN)[2:]} or one|other")
            parts.append("an? " if spec == "a" else "")
            parts.append(f"(?P={name})" if name in values else f"(?P<{name}>{self._value_pattern(name)})")
            values.add(name)
        if values != set(self.names):
            raise ValueError(f"`query` does not say {', '.join(set(self.names) - values)}")
        return "".join(parts)

    def _value_pattern(self, name: str) -> str:
        if self._is_noun(name):
            return r"[\w ]+?"
        if self.arguments[name] is int:
            return "[0-9]+"
        return "|".join(map(re.escape, self._words[name].values()))

    def text(self, args: Args) -> str:
        values, parts = dict(zip(self.names, args, strict=True)), []
        for text, name, spec in self._parts:
            parts.append(text)
            if name is not None and "|" in spec:
                parts.append(spec.split("|")[values[name] != 1])
            elif name is not None:
                words = self._words.get(name, {}).get(values[name], values[name])
                parts.append(WRITTEN[spec](str(words)))
        whole = "".join(parts)
        return whole[:1].upper() + whole[1:]

    def parse(self, text: str) -> Args | None:
        """The arguments of a text; None where it has another form. Raises `ValueError` for words of no object."""
        match = self._pattern.fullmatch(text) or self._pattern.fullmatch(text[:1].lower() + text[1:])
        return match and tuple(self._value(name, match[name]) for name in self.names)

    def _value(self, name: str, words: str) -> Any:
        kind = self.arguments[name]
        if kind is int:
            return int(words)
        if not self._is_noun(name):
            return next(value for value, of_value in self._words[name].items() if of_value == words)
        attribute = parse_noun(words)
        valid = {"shapes": attribute in SHAPES, "colours": attribute in COLOURS, "objects": " " in attribute}
        if not valid.get(kind, True):
            raise ValueError(f"{attribute} is none of the {kind}")
        return attribute

    def samples(self) -> list[Args]:
        """Arguments of queries that together use every word."""
        values = [self._samples_of(name) for name in self.names]
        return [tuple(of[row % len(of)] for of in values) for row in range(max(map(len, values), default=1))]

    def _samples_of(self, name: str) -> list[Any]:
        if not self._is_noun(name):
            return list(self._words[name]) or [1, 2]
        kind = self.arguments[name]
        if kind == "nouns" and any(field == name and spec == "noun" for _, field, spec in self._parts):
            kind = "objects"
        return [OBJECT_ARGUMENTS[kind][self.nouns.index(self.names.index(name))]]

    def every(self, world: World) -> list[Args]:
        """The arguments of every query about a world; no two of them describe the same objects."""
        attributes = {"shapes": [*world.shapes], "colours": [*world.colours], "objects": world.attributes("both")}
        attributes["nouns"] = attributes["shapes"] + attributes["colours"]
        values = [
            attributes[self.arguments[name]] if self._is_noun(name) else list(self._words[name]) for name in self.names
        ]
        queries = itertools.product(*values)
        return [args for args in queries if len({args[i] for i in self.nouns}) == len(self.nouns)]


def article(words: str) -> str:
    return "an" if words[0] in "aeiou" else "a"


def cell_of(o: Object) -> str:
    """`A 1`"""
    return f"{column_name(o.column)} {row_name(o.row)}"


def say_places(name: str, objects: Sequence[Object]) -> str:
    """`Circles: A 1, B 2.`, `Circles: none.`"""
    return f"{name[:1].upper()}{name[1:]}: {', '.join(map(cell_of, objects)) or 'none'}."


def _words(value: Any) -> dict[Any, str]:
    """The values of an argument with their words; empty for `int`."""
    if value is int:
        return {}
    return {
        item: str(words)
        for item, words in (value.items() if isinstance(value, Mapping) else zip(value, value, strict=True))
    }
