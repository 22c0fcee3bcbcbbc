"""The batch that a model takes, and the states that it returns.

Shapes: B examples, L text tokens, R regions or patches, D numbers of a feature vector, H width of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from train.data.lookup import Lookup

Tensors = dict[str, Tensor]  # a batch of a model of `transformers`, or its states; each (B, ...)
IGNORED = -100  # the target of a position without a target, as in torch.nn.functional.cross_entropy
PAIR_TOKENS, NAME_TOKENS = 4, 5  # largest number of target words of a pair, and of an object


@dataclass(frozen=True)
class Inputs:
    """A batch of B examples. The text is `[CLS] caption [SEP] query [SEP]`, or `[CLS] query [SEP]` without a caption.

    tokens: (B, L) int64, padded. token_mask: (B, L) bool, False for padding.
    features: (B, R, D) float, or None without regions. boxes: (B, R, 4) float: left, top, right, bottom as fractions of
    the picture, 0 to 1. region_mask: (B, R) bool, False for padding.
    pixels: (B, 3, height, width) float, normalised, or None.
    vision_states: (B or 1, 1 + R, H) float, the output of `Model.encode_vision`, used instead of `pixels`; or None.
    answer: (B,) int64, 1 for true; None for unlabelled examples.

    The fields below are auxiliary targets (`train.data.auxiliary`) and None without them. A target is a token id of the
    vocabulary, or `IGNORED`.

    targets: (B, L) int64, a value of the pair at the last token of each object that the query mentions.
    pair: (B, 4) int64, targets of the first token: the pair, and what the query states.
    unseen: (B, 4, U) int64, words at each place of `pair` that no training example of the same noun has; padded
    with `IGNORED`.
    values: (B, 2) float, the pair's two values as numbers, also for the first token; NaN for no value.
    objects: (B, L or L + R, 5) int64, the words of an object at the last token of each object in the text, and at each
    region that shows one.
    nouns: (B, L or L + R, 2) float, at each object of the caption and each region that shows one: 1 where the first or
    second noun of the query describes it, else 0; NaN without an object or noun.
    lookups: fields that `to` looks up on the device of the model, such as `features`, which are None until then.
    sides: B unlabelled examples twice, as the training setting shows them and in the other modality
    (`train.learning.consistency`).
    """

    tokens: Tensor
    token_mask: Tensor
    features: Tensor | None = None
    boxes: Tensor | None = None
    region_mask: Tensor | None = None
    pixels: Tensor | None = None
    vision_states: Tensor | None = None
    answer: Tensor | None = None
    targets: Tensor | None = None
    pair: Tensor | None = None
    unseen: Tensor | None = None
    values: Tensor | None = None
    objects: Tensor | None = None
    nouns: Tensor | None = None
    lookups: Mapping[str, Lookup] | None = None
    sides: tuple[Inputs, Inputs] | None = None

    def to(self, device: torch.device | str) -> Inputs:
        return self._each(lambda tensor: tensor.to(device, non_blocking=True)).looked_up()

    def looked_up(self) -> Inputs:
        """This batch with the values of `lookups`."""
        values: dict[str, Any] = {name: lookup.values() for name, lookup in (self.lookups or {}).items()}
        sides = self.sides and (self.sides[0].looked_up(), self.sides[1].looked_up())
        return replace(self, lookups=None, sides=sides, **values)

    def without_labels(self) -> Inputs:
        """What a model may see in a test: no answer and no auxiliary target."""
        labels = ("answer", "targets", "pair", "unseen", "values", "objects", "nouns", "sides")
        nothing: dict[str, Any] = dict.fromkeys(labels)
        return replace(self, **nothing)

    def take(self, rows: Tensor | slice) -> Inputs:
        """Some of the examples. `vision_states` of one row are those of all examples."""
        count = len(self)
        return self._each(lambda tensor: tensor[rows] if len(tensor) == count else tensor)

    def without_padding(self) -> Inputs:
        """Without labels, and without the tokens and regions at the end that are padding in every example."""
        length = int(self.token_mask.sum(1).max())
        inputs = replace(self.without_labels(), tokens=self.tokens[:, :length], token_mask=self.token_mask[:, :length])
        if self.region_mask is None or self.features is None or self.boxes is None:
            return inputs
        number = int(self.region_mask.sum(1).max())
        features, boxes, mask = (tensor[:, :number] for tensor in (self.features, self.boxes, self.region_mask))
        return replace(inputs, features=features, boxes=boxes, region_mask=mask)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        """This batch with every tensor changed."""
        values = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}
        sides = tuple(side._each(change) for side in values.pop("sides", ())) or None
        lookups = {name: replace(one, rows=change(one.rows)) for name, one in values.pop("lookups", {}).items()} or None
        changed = {name: change(tensor) for name, tensor in values.items()}
        return replace(self, sides=sides, lookups=lookups, **changed)

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Encoded:
    """Hidden states.

    text: (B, L, H) of the last layer. image: (B, R, H), of regions or patches, or None. pooled: (B, H), input of the
    classifier. middle: (B, L + R, H), text first, after half of the layers that see the text; (B, L, H) without
    regions. Auxiliary targets of objects are learned from these, so that later layers can use what an object is and
    whether the query describes it.
    """

    text: Tensor
    image: Tensor | None
    pooled: Tensor
    middle: Tensor
