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
    """The outermost modules of a model that take pixels and no tokens."""
    from transformers import PreTrainedModel

    found: dict[str, Any] = {}
    for name, part in model.named_modules():
        if name and isinstance(part, PreTrainedModel) and not any(name.startswith(f"{outer}.") for outer in found):
            taken = inspect.signature(part.forward).parameters
            if ("pixel_values" in taken or GRIDS in taken) and "input_ids" not in taken:
                found[name] = part
    return list(found.values())


# Input (N, 3) of towers that take the patches of all pictures in one row: patches of each picture along each dimension.
GRIDS = "grid_thw"
PER_PICTURE = ("patch_attention_mask", "aspect_ratio_ids", "aspect_ratio_mask")  # inputs with a row for each picture


class CachedTower:
    """Replaces a vision tower's `forward`, so that no picture is encoded twice.

    outputs: the tower's output for each picture, by the SHA-256 of the picture's inputs.
    """

    def __init__(self, tower: Any) -> None:
        self.names = list(inspect.signature(tower.forward).parameters)
        self.forward, self.outputs = tower.forward, dict[bytes, Any]()
        tower.forward = self

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        options |= dict(zip(self.names, inputs, strict=False))
        tensors = {name: options.pop(name) for name in list(options) if isinstance(options[name], Tensor)}
        pictures = split_by_picture(tensors, self.names[0])
        if not pictures or not all(isinstance(value, bool | int | None) for value in options.values()):
            return self.forward(**tensors, **options)  # another input may belong to single pictures, too
        keys = [picture_key(picture) for picture in pictures]
        new = {key: picture for key, picture in zip(keys, pictures, strict=True) if key not in self.outputs}
        if GRIDS in tensors:
            self.outputs |= {key: self.forward(**picture, **options) for key, picture in new.items()}
        elif new:
            batch = self.forward(**concatenate(list(new.values())), **options)
            self.outputs |= {key: select_row(batch, row) for row, key in enumerate(new)}
        return concatenate([self.outputs[key] for key in keys])


def split_by_picture(tensors: Tensors, pixels: str) -> list[Tensors]:
    """The inputs of each picture; empty where an input cannot be divided among the pictures."""
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
    return [select_row(tensors, row) for row in range(count)]


def picture_key(picture: Tensors) -> bytes:
    digest = sha256()
    for tensor in picture.values():
        digest.update(str(tensor.shape).encode())  # blank pictures of other shapes can have the same bytes
        digest.update(tensor.contiguous().view(torch.uint8).cpu().numpy().data)
    return digest.digest()


def select_row(batch: Any, row: int) -> Any:
    """One row of the tensors in nested dictionaries, tuples, lists and `ModelOutput`s."""
    if isinstance(batch, Mapping):
        return type(batch)(**{name: select_row(value, row) for name, value in batch.items()})
    if isinstance(batch, tuple | list):
        return type(batch)(select_row(value, row) for value in batch)
    return batch[row : row + 1] if isinstance(batch, Tensor) else batch


def concatenate(rows: Sequence[Any]) -> Any:
    """Rows as one batch: the inverse of `select_row`."""
    first = rows[0]
    if isinstance(first, Mapping):
        return type(first)(**{name: concatenate([row[name] for row in rows]) for name in first})
    if isinstance(first, tuple | list):
        return type(first)(map(concatenate, zip(*rows, strict=True)))
    return torch.cat(list(rows)) if isinstance(first, Tensor) else first
