"""What determines the content of a dataset: one frozen dataclass per task, its defaults the paper's.

The same names are the settings of `conf/generate.yaml` and the `config` of a dataset's manifest. A value that no
dataset can have raises `ValueError` with the setting's name; what only the combination of settings rules out is found
by `travlr.tasks` when a task is made from its config, before any example is.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from travlr.scene import SPLITS, World, check_types

QUERY_BY = ("shape", "colour", "both")


def _choice(name: str, value: str, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise ValueError(f"{name}={value}: choose one of {', '.join(valid)}")


def _range(name: str, value: list[int], lowest: int) -> None:
    if len(value) != 2 or value[0] > value[1] or value[0] < lowest:
        raise ValueError(f"{name}={value}: needs [lowest, highest] with {lowest} <= lowest <= highest")


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

    cell: int = 64
    small: float = 0.45
    medium: float = 0.7
    large: float = 0.94

    def __post_init__(self) -> None:
        check_types(self, "image.")
        if not 8 <= self.cell <= 512:
            raise ValueError(f"image.cell={self.cell}: must be 8 to 512 pixels")
        if not 0 < self.small < self.medium < self.large <= 1:
            raise ValueError("image: sizes must satisfy 0 < small < medium < large <= 1")


@dataclass(frozen=True)
class Config:
    """What every task has. `query_by` names objects by `shape`, `colour` or `both` ("red circle")."""

    task: str = ""
    seed: int = 0
    query_by: str = "shape"
    world: World = field(default_factory=World)
    image: Image = field(default_factory=Image)
    count: Count = field(default_factory=Count)

    def __post_init__(self) -> None:
        check_types(self)
        _choice("query_by", self.query_by, QUERY_BY)
        if self.world.cells * self.image.cell**2 > 1 << 26:
            raise ValueError(f"image.cell={self.image.cell}: pictures of this grid would pass 64 million pixels")


@dataclass(frozen=True)
class HeldOutPositions:
    """Unordered pairs, null for the default: columns by letter, rows by number, and a share of the queried objects."""

    columns: list[list[str]] | None = None
    rows: list[list[int]] | None = None
    objects: float = 0.2

    def __post_init__(self) -> None:
        check_types(self, "held_out.")


@dataclass(frozen=True)
class Spatiality(Config):
    task: str = "spatiality"
    query_by: str = "both"
    count: Count = field(default_factory=lambda: Count(train=32_000))
    distractors: list[int] = field(default_factory=lambda: [1, 1])
    held_out: HeldOutPositions = field(default_factory=HeldOutPositions)

    def __post_init__(self) -> None:
        super().__post_init__()
        _range("distractors", self.distractors, 0)
        if not 0 <= self.held_out.objects < 1:
            raise ValueError(f"held_out.objects={self.held_out.objects}: must be a share from 0 to below 1")


@dataclass(frozen=True)
class Cardinality(Config):
    """`scope`: `scene` holds every shape of the scene to its training numbers, `queried` only the queried one.

    `total`: `independent` draws the number of objects from `total_objects` whatever the queried number is; `released`
    draws the number of distractors, as the released generator does.
    """

    task: str = "cardinality"
    numbers: list[int] = field(default_factory=lambda: [1, 6])
    distractors: list[int] = field(default_factory=lambda: [1, 10])
    total_objects: list[int] = field(default_factory=lambda: [7, 11])
    scope: str = "scene"
    total: str = "independent"
    held_out: dict[str, list[int]] = field(default_factory=dict)  # where it says nothing, the paper's

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "held_out", dict(sorted(self.held_out.items())))  # one order, one manifest
        _range("numbers", self.numbers, 1)
        _range("distractors", self.distractors, 0)
        _range("total_objects", self.total_objects, 1)
        _choice("scope", self.scope, ("scene", "queried"))
        _choice("total", self.total, ("independent", "released"))


@dataclass(frozen=True)
class HeldOutQuantified:
    """`numbers`: `<a, b>` in Table 1's order (reversed for *some*); `attributes`: [shape, colour]; null for default."""

    numbers: list[list[int]] | None = None
    attributes: list[list[str]] | None = None

    def __post_init__(self) -> None:
        check_types(self, "held_out.")


@dataclass(frozen=True)
class Quantifiers(Config):
    """`third_region`: `matched` fills the region that Table 1 does not name from the same range, `empty` leaves it out.

    `total`: `independent` gives a quantifier and its complement the same numbers of objects in all, by the number of
    distractors; `released` draws the distractors whatever else is in the scene.
    """

    task: str = "quantifiers"
    numbers: list[int] = field(default_factory=lambda: [1, 5])
    distractors: list[int] = field(default_factory=lambda: [2, 8])
    third_region: str = "matched"
    total: str = "independent"
    held_out: HeldOutQuantified = field(default_factory=HeldOutQuantified)

    def __post_init__(self) -> None:
        super().__post_init__()
        _range("numbers", self.numbers, 1)
        _range("distractors", self.distractors, 0)
        _choice("third_region", self.third_region, ("matched", "empty"))
        _choice("total", self.total, ("independent", "released"))


@dataclass(frozen=True)
class HeldOutComparisons:
    """`differences_above`: larger |a - b| are test_ood; `attributes`: unordered pairs, null for the default."""

    differences_above: int = 3
    attributes: list[list[str]] | None = None

    def __post_init__(self) -> None:
        check_types(self, "held_out.")


@dataclass(frozen=True)
class Comparison(Config):
    task: str = "comparison"
    numbers: list[int] = field(default_factory=lambda: [1, 9])
    distractors: list[int] = field(default_factory=lambda: [1, 10])
    held_out: HeldOutComparisons = field(default_factory=HeldOutComparisons)

    def __post_init__(self) -> None:
        super().__post_init__()
        _range("numbers", self.numbers, 1)
        _range("distractors", self.distractors, 0)


CONFIGS: dict[str, type[Config]] = {c.task: c for c in (Spatiality, Cardinality, Quantifiers, Comparison)}


def from_dict(values: dict[str, Any]) -> Config:
    """The config of a manifest. Raises `ValueError` for one that this version cannot have written."""
    try:
        return _build(CONFIGS[values["task"]], values)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"config is not one of this version: {error}") from None


def _build(kind: type[Any], values: dict[str, Any]) -> Any:
    nested: dict[str, Any] = {"world": World, "image": Image, "count": Count}
    if kind in CONFIGS.values():
        default = kind.__dataclass_fields__["held_out"].default_factory
        if dataclasses.is_dataclass(default):
            nested["held_out"] = default
    return kind(**{k: _build(nested[k], v) if k in nested else v for k, v in values.items()})
