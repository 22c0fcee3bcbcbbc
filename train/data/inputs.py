"""What every model is given, and what it gives back. Shapes: B examples, L text tokens, R regions, H model width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

IGNORED = -100  # a target where no word is asked for
PAIR_TOKENS, NAME_TOKENS = 4, 5  # words that are named of a pair and of an object, at most


@dataclass(frozen=True)
class Inputs:
    """B examples. Text is `[CLS] caption [SEP] query [SEP]`, or `[CLS] query [SEP]` where no caption is shown.

    tokens: (B, L) int64, padded. token_mask: (B, L) bool, False for padding. features: (B, R, D) float. boxes: (B, R,
    4) float: left, top, right, bottom as parts of the picture, 0 to 1. region_mask: (B, R) bool, False for padding.
    Regions are None for models that see none. pixels: (B, 3, height, width) float, normalised; None for models that see
    regions or text alone. seen: (B or 1, 1 + R, H) float, what a model that sees pixels made of them before; it is then
    used in their place. answer: (B,) int64, 1 for true; None where it is not known. targets: (B, L) int64, words that
    tokens should name (masked or not), `IGNORED` elsewhere; None where none should. pair: (B, 4) int64, words that the
    first token's state should name (`train.data.auxiliary`); None where it is not asked. values: (B, 2) float, numbers
    that it should tell; NaN for none; None where that is not asked. objects: (B, L, 5) int64, words that the last token
    of each object of the text should name; None where that is not asked. sides: B unlabelled examples as the training
    setting shows them, and as the other modality does (`train.learning.consistency`); None where there are none.
    """

    tokens: Tensor
    token_mask: Tensor
    features: Tensor | None = None
    boxes: Tensor | None = None
    region_mask: Tensor | None = None
    pixels: Tensor | None = None
    seen: Tensor | None = None
    answer: Tensor | None = None
    targets: Tensor | None = None
    pair: Tensor | None = None
    values: Tensor | None = None
    objects: Tensor | None = None
    sides: tuple[Inputs, Inputs] | None = None

    def to(self, device: torch.device | str) -> Inputs:
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def every(self, step: int, first: int) -> Inputs:
        """Examples first, first + step, …"""
        return self._each(lambda tensor: tensor[first::step])

    def _each(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        there = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}
        sides = tuple(side._each(change) for side in there.pop("sides", ())) or None
        return replace(self, sides=sides, **{name: change(tensor) for name, tensor in there.items()})

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Encoded:
    """text: (B, L, H), image: (B, R, H) (patches for a model that sees pixels) or None, pooled: (B, H)."""

    text: Tensor
    image: Tensor | None
    pooled: Tensor
