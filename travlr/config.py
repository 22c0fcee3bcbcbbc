"""The settings that every task shares, with their defaults, limits and help. A task's file adds its own.

They are the settings of `python -m travlr.generate` and the `config` in the manifest of a dataset. An invalid value
raises `ValueError` with the name of the setting. Invalid combinations of settings are refused when a task is made from
its config, before any example is drawn.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import operator
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from render.image import IMAGE_STYLES
from render.text import CAPTION_STYLES
from travlr.scene import World, check_types

MOST_OBJECTS = 26 * 99  # cells of the largest grid
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


def config_dict(config: Any) -> dict[str, Any]:
    """A config as the JSON of a manifest."""
    values = {}
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if item.metadata.get("added") and value == _default(item):
            continue
        values[item.name] = config_dict(value) if dataclasses.is_dataclass(value) else value
    return json.loads(json.dumps(values))


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


@dataclass(frozen=True)
class Count:
    """Numbers of examples per split (section 3.3)."""

    train: int = option(8_000, least=0)
    validation: int = option(10_000, least=0)
    test_ind: int = option(10_000, least=0)
    test_ood: int = option(20_000, least=0)

    def __post_init__(self) -> None:
        check_settings(self, "count.")
        if not sum(dataclasses.astuple(self)):
            raise ValueError("count: every split is empty; give at least one of them examples")


@dataclass(frozen=True)
class Image:
    """Pixels along a cell's side, and the part of it that an object of each size spans."""

    cell: int = option(64, "pixels along the side of a cell", least=8, most=512)
    small: float = option(0.45, "part of the cell that a small object spans")
    medium: float = option(0.7, "of a medium one")
    large: float = option(0.94, "of a large one")

    def __post_init__(self) -> None:
        check_settings(self, "image.")
        if not 0 < self.small < self.medium < self.large <= 1:
            raise ValueError("image: sizes must satisfy 0 < small < medium < large <= 1")


@dataclass(frozen=True)
class Style:
    """How scenes are drawn and worded. It never changes what is true."""

    image: str = option("plain", "of pictures", choices=IMAGE_STYLES)
    caption: str = option("sentences", "of captions", choices=CAPTION_STYLES)

    def __post_init__(self) -> None:
        check_settings(self, "style.")


@dataclass(frozen=True)
class Config:
    """The settings of every task. A subclass has those of one task, and checks how they fit together."""

    task: str = ""
    seed: int = option(0, least=0)
    query_by: str = option("shape", choices={"shape": "", "colour": "", "both": "red circle"})
    world: World = field(default_factory=World)
    image: Image = field(default_factory=Image)
    style: Style = option(Style(), added=True)
    count: Count = field(default_factory=Count)
    couples: str = option(
        "independent",
        choices={
            "independent": "the true and the false scene of a query are drawn apart",
            "exchanged": "they differ by one exchange",
        },
        added=True,
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.world.cells * self.image.cell**2 > 1 << 26:
            raise ValueError(f"image.cell={self.image.cell}: pictures of this grid would pass 64 million pixels")
