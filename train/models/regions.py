"""What VisualBERT, UNITER and LXMERT share: the regions of a batch, the pooling of controlled models, and the heads.

Shapes: B examples, L text tokens, R regions, D numbers of a region's features, H width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from train.data.inputs import Encoded, Inputs
from train.models.layers import BASE_WIDTH, Dropout, Shape, initialise

POOLED_WIDTH = 1024  # of the controlled models' poolers at BASE_WIDTH; in proportion at other widths


def regions_of(inputs: Inputs, controlled: bool) -> tuple[Tensor, Tensor, Tensor] | None:
    """Features (B, R, D), boxes (B, R, 4) and mask (B, R) of the regions of a batch, or None if it has none.

    controlled: insert a first region, the mean of the features, with the whole image as its box.

    Raises ValueError for regions without boxes, and for a controlled model without regions.
    """
    if inputs.features is None:
        if controlled:
            raise ValueError("controlled=true: needs regions, because these models pool the image, too")
        return None
    features, boxes, mask = inputs.features, inputs.boxes, inputs.region_mask
    if boxes is None:
        raise ValueError("regions without boxes: Inputs.features needs Inputs.boxes")
    if mask is None:
        mask = torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
    if controlled:
        weights = mask[..., None].to(features.dtype)
        mean = (features * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True).clamp(min=1)  # (B, 1, D)
        features = torch.cat([mean, features], 1)
        boxes = torch.cat([boxes.new_tensor([0.0, 0.0, 1.0, 1.0]).expand(len(mean), 1, 4), boxes], 1)
        mask = torch.cat([mask.new_ones(len(mean), 1), mask], 1)
    return features, boxes, mask


class Fusion(nn.Module):
    """Pooling of the controlled ("Volta") models: the product of the first text state and the whole-image state, each
    projected and rectified. Bugliarello et al. 2021, in their configuration (`fusion_method` "mul", pooler size 1024).
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.width = shape.width * POOLED_WIDTH // BASE_WIDTH
        self.text = nn.Linear(shape.width, self.width)
        self.image = nn.Linear(shape.width, self.width)
        self.dropout = Dropout(shape.dropout)
        self.apply(initialise)

    def forward(self, text: Tensor, image: Tensor) -> Tensor:
        """text: (B, L, H); image: (B, 1 + R, H), the whole image first. Returns (B, 4/3 H)."""
        return self.dropout(torch.relu(self.text(text[:, 0])) * torch.relu(self.image(image[:, 0])))


def joint_states(
    states: tuple[Tensor, Tensor], length: int, pooler: Callable[[Tensor], Tensor] | None, fusion: Fusion | None
) -> Encoded:
    """What UNITER and VisualBERT return. states: (B, L + R, H), as `run_layers` returns them; length: L.

    fusion: of a controlled model, whose first region is the whole image; others have a pooler.
    """
    last, middle = states
    text, image = last[:, :length], last[:, length:]
    if fusion is None:
        assert pooler is not None
        return Encoded(text, image if image.shape[1] else None, pooler(last), middle)
    middle = torch.cat([middle[:, :length], middle[:, length + 1 :]], 1)
    return Encoded(text, image[:, 1:], fusion(text, image), middle)


def region_heads(
    shape: Shape, matching: bool, controlled: bool
) -> tuple[Fusion | None, nn.Sequential, nn.Linear | None]:
    """What follows the encoder of a model of regions: fusion, classifier and matching head.

    The classifier is the two-way head of the fine-tuned models: Linear, GELU, LayerNorm, Linear, as in UNITER and
    LXMERT. The fusion is None without `controlled`, the matching head without `matching`.
    """
    fusion = Fusion(shape) if controlled else None
    pooled, hidden = fusion.width if fusion else shape.width, 2 * shape.width
    head = nn.Sequential(
        nn.Linear(pooled, hidden), nn.GELU(), nn.LayerNorm(hidden, eps=1e-12), nn.Linear(hidden, 2)
    ).apply(initialise)
    return fusion, head, nn.Linear(pooled, 2).apply(initialise) if matching else None
