"""Checks of settings that are dataclasses. They go when the last of them is a model of `travlr.settings`."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import operator
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

MOST_OBJECTS = 26 * 99
COMPARISONS = {"at least": operator.ge, "above": operator.gt, "at most": operator.le, "below": operator.lt}


def option(
    default: Any,
    help: str = "",
    *,
    choices: Collection[str] = (),
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    counts_from: int | None = None,
    added: bool = False,
) -> Any:
    """A field of a config: its default (copied where it is a list or a dict), its limits, and its line of `--help`.

    choices: the valid values, or those of a list, which `--help` lists; a mapping may have their meanings. least,
    most, above, below: limits of a number. counts_from: the field is a range [lowest, highest] of numbers of objects,
    from this number on. added: whether earlier versions lack the setting or group of settings. Manifests leave it out
    where it has its default, so that datasets of earlier versions stay the same. `check_settings` checks the limits.
    """
    limits = {"at least": least, "above": above, "at most": most, "below": below}
    text = ": ".join(part for part in (help, listed(choices)) if part)
    metadata = {
        "help": text,
        "choices": choices,
        "limits": {words: limit for words, limit in limits.items() if limit is not None},
        "counts_from": counts_from,
        "added": added,
    }
    if isinstance(default, list | dict):
        return field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def listed(choices: Collection[str]) -> str:
    """Such as `linear, cosine or constant`, each with its meaning in brackets if it has one."""
    meanings = choices if isinstance(choices, Mapping) else dict.fromkeys(choices)
    names = [f"{name} ({text})" if text and isinstance(text, str) else name for name, text in meanings.items()]
    *most, last = names or [""]
    return f"{', '.join(most)} or {last}" if most else last


def check_settings(settings: Any, group: str = "") -> None:
    """Raise `ValueError`, naming the setting, where a field has a value that its type or its `option` rules out.

    A field without an `option`, such as one with another default, has the rules of the class it is inherited from.
    Paths become texts. group: what the names of the fields begin with, such as `world.`.
    """
    for item in dataclasses.fields(settings):
        if isinstance(path := getattr(settings, item.name), os.PathLike):
            object.__setattr__(settings, item.name, os.fspath(path))
    check_types(settings, group)
    for item in dataclasses.fields(settings):
        value, rules, name = getattr(settings, item.name), _rules(type(settings), item.name), f"{group}{item.name}"
        if value is None or not rules:
            continue
        if rules["choices"] and isinstance(value, list | tuple):
            check_choices(name, value, rules["choices"], may_be_empty=not _default(item))
        elif rules["choices"]:
            check_choice(name, value, rules["choices"])
        elif rules["counts_from"] is not None:
            check_range(name, value, rules["counts_from"])
        elif isinstance(value, int | float):
            check_limits(name, value, rules["limits"])


def _rules(kind: type, name: str) -> Mapping[str, Any]:
    """What `option` says of a field, in the class itself or the nearest one that it is inherited from; else empty."""
    fields = (getattr(base, "__dataclass_fields__", {}).get(name) for base in kind.__mro__)
    return next((item.metadata for item in fields if item is not None and "choices" in item.metadata), {})


def check_limits(name: str, value: float, limits: Mapping[str, float]) -> None:
    """Raise `ValueError` where a number is not finite or not within the limits, which are named as in `COMPARISONS`."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name}={value}: must be a finite number")
    if not all(COMPARISONS[words](value, limit) for words, limit in limits.items()):
        in_words = " and ".join(f"{words} {limit:,}" for words, limit in limits.items())
        raise ValueError(f"{name}={value}: must be {in_words}")


def _default(item: dataclasses.Field[Any]) -> Any:
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()


def check_choice(name: str, value: str, valid: Collection[str]) -> None:
    """Raise `ValueError`, with the valid values, where a setting has another value."""
    if value not in valid:
        raise ValueError(f"{name}={value}: choose one of {', '.join(valid)}")


def check_choices(name: str, values: Sequence[str], valid: Collection[str], may_be_empty: bool = False) -> None:
    """Raise `ValueError` where a list has other than the valid values, has none, or has one of them twice."""
    for value in values:
        check_choice(name, value, valid)
    if not (values or may_be_empty) or len(set(values)) < len(values):
        raise ValueError(f"{name}={values}: needs {'' if may_be_empty else 'at least one value, and '}each only once")


def check_range(name: str, value: list[int], lowest: int) -> None:
    """Raise `ValueError` where a setting is not a range [lowest, highest] of numbers of objects from `lowest` on."""
    if len(value) != 2 or not lowest <= value[0] <= value[1] <= MOST_OBJECTS:
        raise ValueError(
            f"{name}={value}: needs [lowest, highest] with {lowest} <= lowest <= highest <= {MOST_OBJECTS:,}"
        )


def check_types(settings: Any, group: str = "") -> None:
    """Raise `ValueError`, naming the setting, where a field of a dataclass has a value that its annotation rules out.

    group: what the names of the fields begin with, such as `world.`. A list may stand for a tuple, a tuple for a list,
    and a whole number for any number.
    """
    settings_class: Any = type(settings)
    for name, kind in field_types(settings_class).items():
        value = getattr(settings, name)
        if not _is_of(value, kind):
            raise ValueError(f"{group}{name}={value!r}: must be {in_words(kind)}")


@functools.cache
def field_types(kind: Any) -> dict[str, Any]:
    """The types of the fields of a dataclass."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def dataclass_from(kind: Any, values: Mapping[str, Any], skip_unknown: bool = False) -> Any:
    """A dataclass from the values of its fields; for a field that is itself a dataclass, from a mapping of its values.

    skip_unknown: leave out names that are not fields. Raises `TypeError` for such names otherwise.
    """
    types = field_types(kind)
    arguments = {}
    for name, value in values.items():
        if dataclasses.is_dataclass(types.get(name)):
            value = dataclass_from(types[name], value, skip_unknown)
        if name in types or not skip_unknown:
            arguments[name] = value
    return kind(**arguments)


def _is_of(value: Any, kind: Any) -> bool:
    parts = get_args(kind)
    if get_origin(kind) is UnionType:
        return any(_is_of(value, part) for part in parts)
    if get_origin(kind) in (list, tuple):
        return isinstance(value, (list, tuple)) and all(_is_of(item, parts[0]) for item in value)
    if get_origin(kind) is dict:
        return isinstance(value, dict) and all(_is_of(k, parts[0]) and _is_of(v, parts[1]) for k, v in value.items())
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def in_words(kind: Any) -> str:
    """The values of a type in the words of the command line, such as `a list of whole numbers, such as [1,2]`."""
    if get_origin(kind) in (list, tuple):
        return f"a list of {_items(kind)}, such as {_example(kind)}"
    if get_origin(kind) is dict:
        return "named values, given as SETTING.NAME=VALUE"
    if get_origin(kind) is UnionType:
        return " or ".join(map(in_words, get_args(kind)))
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", NoneType: "null"}
    return words.get(kind) or f"of type {getattr(kind, '__name__', kind)}"


def _items(kind: Any) -> str:
    inner = get_args(kind)[0]
    return {str: "words", int: "whole numbers", float: "numbers"}.get(inner) or f"lists of {_items(inner)}"


def _example(kind: Any) -> str:
    inner = get_args(kind)[0]
    items = {str: "a,b", int: "1,2", float: "0.5,1.5"}.get(inner) or ",".join([_example(inner)] * 2)
    return f"[{items}]"
