"""The settings that every task shares, with their defaults, limits and help. A task's file adds its own.

They are the settings of `python -m travlr.generate` and the `config` in the manifest of a dataset. Invalid combinations
of settings are refused when a task is made from its config, before any example is drawn.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from render.image import IMAGE_STYLES
from render.text import CAPTION_STYLES
from travlr.scene import World
from travlr.settings import Settings

STRICT: dict[str, Any] = {"style": {"image": "equal_area"}}  # of every task with preset=strict
MOST_OBJECTS = 26 * 99  # cells of the largest grid
MOST_PIXELS = 1 << 26


def _ordered(numbers: tuple[int, int]) -> tuple[int, int]:
    if numbers[0] > numbers[1]:
        raise ValueError(f"needs [lowest, highest], not {list(numbers)}")
    return numbers


_From0 = Annotated[int, Field(ge=0, le=MOST_OBJECTS)]
_From1 = Annotated[int, Field(ge=1, le=MOST_OBJECTS)]
RangeFrom0 = Annotated[tuple[_From0, _From0], AfterValidator(_ordered)]  # lowest and highest number of objects
RangeFrom1 = Annotated[tuple[_From1, _From1], AfterValidator(_ordered)]


def check_choice(name: str, value: str, valid: Any) -> None:
    """Raise `ValueError`, with the valid values, where a setting has another value."""
    if value not in valid:
        raise ValueError(f"{name}={value}: choose one of {', '.join(valid)}")


def one_of(name: str, valid: Any) -> AfterValidator:
    """`check_choice` as a validator of a setting."""

    def check(value: str) -> str:
        check_choice(name, value, valid)
        return value

    return AfterValidator(check)


ImageStyle = Annotated[str, one_of("style.image", IMAGE_STYLES)]
CaptionStyle = Annotated[str, one_of("style.caption", CAPTION_STYLES)]


class Count(Settings):
    """Numbers of examples per split (section 3.3)."""

    train: int = Field(8_000, ge=0)
    validation: int = Field(10_000, ge=0)
    test_ind: int = Field(10_000, ge=0)
    test_ood: int = Field(20_000, ge=0)

    @model_validator(mode="after")
    def _some(self) -> Count:
        if not self.train + self.validation + self.test_ind + self.test_ood:
            raise ValueError("count: every split is empty; give at least one of them examples")
        return self


class Image(Settings):
    """The size of pictures."""

    cell: int = Field(64, ge=8, le=512, description="pixels along the side of a cell")
    spans: tuple[float, float, float] = Field(
        (0.45, 0.7, 0.94), description="part of a cell that a small, a medium and a large object spans"
    )

    @field_validator("spans")
    @classmethod
    def _ascending(cls, spans: tuple[float, float, float]) -> tuple[float, float, float]:
        if not 0 < spans[0] < spans[1] < spans[2] <= 1:
            raise ValueError("needs three ascending numbers above 0, at most 1")
        return spans


class Style(Settings):
    """How scenes are drawn and worded. It never changes what is true."""

    image: ImageStyle = Field("plain", description=f"of pictures: {', '.join(IMAGE_STYLES)}")
    caption: CaptionStyle = Field("sentences", description=f"of captions: {', '.join(CAPTION_STYLES)}")


class Config(Settings):
    """The settings of every task. A subclass has those of one task, and checks how they fit together.

    `presets` has, for each preset but `paper`, the settings that it changes. Such a setting has the preset's value, or
    else its default, where it is null or not given.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"strict": STRICT}

    task: str = ""
    preset: str = Field(
        "paper",
        description="paper; strict: couples differ by one exchange, so that rules without reasoning fail "
        "(docs/strict.md); released: the shortcuts of the published generator",
    )
    seed: int = Field(0, ge=0)
    query_by: Literal["shape", "colour", "both"] = Field(
        "shape", description="what queries name: shape, colour or both (red circle)"
    )
    world: World = World()
    image: Image = Image()
    style: Style = Style()
    count: Count = Count()

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        preset = values.get("preset") or "paper"
        if preset not in ("paper", *cls.presets):
            raise ValueError(f"preset={preset}: choose one of {', '.join(('paper', *cls.presets))}")
        changing = functools.reduce(_merged, (Config.presets["strict"], *cls.presets.values()))
        return _merged(cls.presets.get(preset, {}), _without_null(values, changing))

    @model_validator(mode="after")
    def _not_too_large(self) -> Config:
        if self.world.cells * self.image.cell**2 > MOST_PIXELS:
            raise ValueError(f"image.cell={self.image.cell}: pictures of this grid would pass 64 million pixels")
        return self

    @property
    def exchanged(self) -> bool:
        """Whether the two scenes of a couple differ by one exchange."""
        return self.preset == "strict"

    @property
    def released(self) -> bool:
        """Whether scenes have the shortcuts of the published generator."""
        return self.preset == "released"


def _merged(defaults: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, and defaults for what they lack, also inside of groups."""
    merged = dict(defaults)
    for name, value in values.items():
        merged[name] = _merged(_group(defaults, name), value) if isinstance(value, Mapping) else value
    return merged


def _without_null(values: Mapping[str, Any], changing: Mapping[str, Any]) -> dict[str, Any]:
    """The values but those of null that a preset may change: the preset decides them."""
    return {
        name: _without_null(value, _group(changing, name)) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if value is not None or name not in changing
    }


def _group(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    group = values.get(name)
    return group if isinstance(group, Mapping) else {}
