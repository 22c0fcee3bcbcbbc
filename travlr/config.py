"""The settings that every task shares, with their defaults, limits and help. A task's file adds its own.

They are the settings of `python -m travlr.generate` and the `config` in the manifest of a dataset. An invalid value
raises `ValueError` with the name of the setting. Invalid combinations of settings are refused when a task is made from
its config, before any example is drawn.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from render.image import IMAGE_STYLES
from render.text import CAPTION_STYLES
from travlr.scene import SPLITS, World, check_types

QUERY_BY = ("shape", "colour", "both")
MOST_OBJECTS = 26 * 99  # cells of the largest grid
COUPLES = ("independent", "exchanged")


def option(default: Any, help: str, added: bool = False) -> Any:
    """A field of a config with its default (copied where it is a list or a dict) and its line of `--help`.

    added: whether earlier versions lack the setting or group of settings. Manifests leave it out where it has its
    default, so that datasets of earlier versions stay the same.
    """
    metadata = {"help": help, "added": added}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def config_dict(config: Any) -> dict[str, Any]:
    """A config as the JSON of a manifest."""
    values = {}
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        factory = item.default_factory
        default = item.default if factory is dataclasses.MISSING else factory()
        if item.metadata.get("added") and value == default:
            continue
        values[item.name] = config_dict(value) if dataclasses.is_dataclass(value) else value
    return json.loads(json.dumps(values))


def check_choice(name: str, value: str, valid: Collection[str]) -> None:
    """Raise `ValueError`, with the valid values, where a setting has another value."""
    if value not in valid:
        raise ValueError(f"{name}={value}: choose one of {', '.join(valid)}")


def check_choices(name: str, values: Sequence[str], valid: Collection[str]) -> None:
    """Raise `ValueError` where a list has other than the valid values, has none, or has one of them twice."""
    for value in values:
        check_choice(name, value, valid)
    if not values or len(set(values)) < len(values):
        raise ValueError(f"{name}={values}: needs at least one value, and each only once")


def check_range(name: str, value: list[int], lowest: int) -> None:
    """Raise `ValueError` where a setting is not a range [lowest, highest] of numbers of objects from `lowest` on."""
    if len(value) != 2 or not lowest <= value[0] <= value[1] <= MOST_OBJECTS:
        raise ValueError(
            f"{name}={value}: needs [lowest, highest] with {lowest} <= lowest <= highest <= {MOST_OBJECTS:,}"
        )


@dataclass(frozen=True)
class Count:
    """Numbers of examples per split (section 3.3)."""

    train: int = 8_000
    validation: int = 10_000
    test_ind: int = 10_000
    test_ood: int = 20_000

    def __post_init__(self) -> None:
        check_types(self, "count.")
        for split in SPLITS:
            if getattr(self, split) < 0:
                raise ValueError(f"count.{split}={getattr(self, split)}: must not be negative")
        if not sum(dataclasses.astuple(self)):
            raise ValueError("count: every split is empty; give at least one of them examples")


@dataclass(frozen=True)
class Image:
    """Pixels along a cell's side, and the part of it that an object of each size spans."""

    cell: int = option(64, "pixels along the side of a cell")
    small: float = option(0.45, "part of the cell that a small object spans")
    medium: float = option(0.7, "of a medium one")
    large: float = option(0.94, "of a large one")

    def __post_init__(self) -> None:
        check_types(self, "image.")
        if not 8 <= self.cell <= 512:
            raise ValueError(f"image.cell={self.cell}: must be 8 to 512 pixels")
        if not 0 < self.small < self.medium < self.large <= 1:
            raise ValueError("image: sizes must satisfy 0 < small < medium < large <= 1")


@dataclass(frozen=True)
class Style:
    """How scenes are drawn and worded. It never changes what is true."""

    image: str = option("plain", f"of pictures: {', '.join(IMAGE_STYLES)}")
    caption: str = option("sentences", f"of captions: {', '.join(CAPTION_STYLES)}")

    def __post_init__(self) -> None:
        check_types(self, "style.")
        check_choice("style.image", self.image, IMAGE_STYLES)
        check_choice("style.caption", self.caption, CAPTION_STYLES)


@dataclass(frozen=True)
class Config:
    """The settings of every task."""

    task: str = ""
    seed: int = 0
    query_by: str = option("shape", "shape, colour or both (red circle)")
    world: World = field(default_factory=World)
    image: Image = field(default_factory=Image)
    style: Style = option(Style(), "", added=True)
    count: Count = field(default_factory=Count)
    couples: str = option(
        "independent",
        "independent: the true and the false scene of a query are drawn apart; exchanged: they differ by one exchange",
        added=True,
    )

    def __post_init__(self) -> None:
        check_types(self)
        if self.seed < 0:
            raise ValueError(f"seed={self.seed}: must be 0 or more")
        check_choice("query_by", self.query_by, QUERY_BY)
        check_choice("couples", self.couples, COUPLES)
        if self.world.cells * self.image.cell**2 > 1 << 26:
            raise ValueError(f"image.cell={self.image.cell}: pictures of this grid would pass 64 million pixels")
