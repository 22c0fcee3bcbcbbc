"""Vision towers of generative models, which encode each picture once in a call."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from analysis.probe.scorers.base import Tensors


def find_vision_towers(model: Any) -> list[Any]:
    """The outermost parts of a model that take pixels and no words."""
    from transformers import PreTrainedModel

    found: dict[str, Any] = {}
    for name, part in model.named_modules():
        if name and isinstance(part, PreTrainedModel) and not any(name.startswith(f"{outer}.") for outer in found):
            taken = inspect.signature(part.forward).parameters
            if ("pixel_values" in taken or GRIDS in taken) and "input_ids" not in taken:
                found[name] = part
    return list(found.values())


GRIDS = "grid_thw"  # (N, 3), of towers that take all pictures' patches in one row: how many each picture has, by sides


PER_PICTURE = ("patch_attention_mask", "aspect_ratio_ids", "aspect_ratio_mask")  # a row for each picture


class CachedTower:
    """Takes the place of a vision tower's `forward`: pictures that are in `known` are not encoded again.

    known: what was made of each picture, by the SHA-256 of all that the tower takes of it.
    """

    def __init__(self, tower: Any) -> None:
        self.names = list(inspect.signature(tower.forward).parameters)
        self.forward, self.known = tower.forward, dict[bytes, Any]()
        tower.forward = self

    def __call__(self, *given: Any, **options: Any) -> Any:
        options |= dict(zip(self.names, given, strict=False))
        tensors = {name: options.pop(name) for name in list(options) if isinstance(options[name], Tensor)}
        pictures = split_by_picture(tensors, self.names[0])
        if not pictures or not all(isinstance(value, bool | int | None) for value in options.values()):
            return self.forward(**tensors, **options)  # what is given may belong to single pictures, too
        keys = [picture_key(picture) for picture in pictures]
        new = {key: picture for key, picture in zip(keys, pictures, strict=True) if key not in self.known}
        if GRIDS in tensors:
            self.known |= {key: self.forward(**picture, **options) for key, picture in new.items()}
        elif new:
            made = self.forward(**concatenate(list(new.values())), **options)
            self.known |= {key: select_row(made, place) for place, key in enumerate(new)}
        return concatenate([self.known[key] for key in keys])


def split_by_picture(tensors: Tensors, pixels: str) -> list[Tensors]:
    """What a tower takes of each picture; none where it takes something that is not known to be apart."""
    if pixels not in tensors:
        return []
    if set(tensors) == {pixels, GRIDS}:
        sizes = tensors[GRIDS].prod(-1).tolist()
        if sum(sizes) != len(tensors[pixels]):
            return []
        patches = torch.split(tensors[pixels], sizes)
        return [{pixels: some, GRIDS: grid[None]} for some, grid in zip(patches, tensors[GRIDS], strict=True)]
    count = len(tensors[pixels])
    if set(tensors) - {pixels, *PER_PICTURE} or any(len(tensor) != count for tensor in tensors.values()):
        return []
    return [select_row(tensors, place) for place in range(count)]


def picture_key(picture: Tensors) -> bytes:
    found = sha256()
    for tensor in picture.values():
        found.update(str(tensor.shape).encode())  # a blank picture is the same numbers when it is turned
        found.update(tensor.contiguous().view(torch.uint8).cpu().numpy().data)
    return found.digest()


def select_row(made: Any, place: int) -> Any:
    """One row of tensors, in dictionaries, tuples, lists and `ModelOutput`s as they are."""
    if isinstance(made, Mapping):
        return type(made)(**{name: select_row(value, place) for name, value in made.items()})
    if isinstance(made, tuple | list):
        return type(made)(select_row(value, place) for value in made)
    return made[place : place + 1] if isinstance(made, Tensor) else made


def concatenate(rows: Sequence[Any]) -> Any:
    """Rows as one batch: undoes `select_row`."""
    first = rows[0]
    if isinstance(first, Mapping):
        return type(first)(**{name: concatenate([row[name] for row in rows]) for name in first})
    if isinstance(first, tuple | list):
        return type(first)(map(concatenate, zip(*rows, strict=True)))
    return torch.cat(list(rows)) if isinstance(first, Tensor) else first
