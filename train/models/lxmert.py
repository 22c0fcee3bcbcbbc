"""LXMERT (Tan and Bansal 2019): a text and a region encoder, joined by cross-attention.

Shapes: B examples, L text tokens, R regions, D numbers of a region's features, H width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import LxmertConfig, LxmertModel

from train.config import ARCHITECTURES
from train.data.inputs import Encoded, Inputs
from train.models.layers import Attention, Model, Shape, in_autocast_type, library_settings, use_fused_attention
from train.models.regions import region_heads, regions_of


class Lxmert(Model):
    """The LXMERT of `transformers` with fused attention and the two-way head of the paper's fine-tuning code.

    `Shape.layers` counts text layers, `image_layers` layers over regions, `cross_layers` layers over both.
    matching: also build the published matching head (`cls.seq_relationship`).
    controlled: the "Volta" variant of section 5.1: two poolers, a whole-image region, boxes of 5 numbers (with area).

    `forward` does not compute the region side of the last cross layer, on which it does not depend. Its
    parameters then have no gradient (in distributed training: `find_unused_parameters`).
    """

    architecture = ARCHITECTURES["lxmert"]
    renames = (
        (r"^module\.", ""),
        (r"^bert\.", "lxmert."),
        (r"^logit_fc\.", "head."),
        (r"^cls\.seq_relationship\.", "matching."),
    )

    def __init__(self, shape: Shape, *, matching: bool = False, controlled: bool = False) -> None:
        super().__init__()
        self.shape = shape
        self.lxmert = LxmertModel(lxmert_config(shape, box_width=5 if controlled else 4))
        use_fused_attention(self.lxmert, shape, FusedCrossAttention)
        if controlled:
            del self.lxmert.pooler
        self.fusion, self.head, self.matching = region_heads(shape, matching, controlled)

    @property
    def embeddings(self) -> nn.Embedding:
        return self.lxmert.embeddings.word_embeddings

    def encode(self, inputs: Inputs, used: Tensor | None = None) -> Encoded:
        """Raises ValueError without regions, which the text attends to."""
        self.check(inputs)
        regions = regions_of(inputs, controlled=self.fusion is not None)
        if regions is None:
            raise ValueError("model=lxmert: needs regions; use those of a blank picture for none")
        features, boxes, region_mask = regions
        if self.fusion is not None:
            left, top, right, bottom = boxes.unbind(-1)
            boxes = torch.cat([boxes, ((right - left) * (bottom - top))[..., None]], -1)  # (B, R, 5)
        encoder: Any = self.lxmert.encoder
        token_mask = inputs.token_mask
        text: Any = in_autocast_type(self.lxmert.embeddings(inputs.tokens, torch.zeros_like(inputs.tokens)))
        image: Any = in_autocast_type(encoder.visn_fc(features, boxes))
        for layer in encoder.layer:
            text = layer(text, token_mask)[0]
        for layer in encoder.r_layers:
            image = layer(image, region_mask)[0]
        states = [(text, image)]
        for layer in encoder.x_layers[:-1]:
            text, image = layer(text, token_mask, image, region_mask)
            states.append((text, image))
        first = 0 if self.fusion is None else 1  # the first region of a controlled model is the whole image
        words, regions_there = states[len(encoder.x_layers) // 2]
        middle = torch.cat([words, regions_there[:, first:]], 1)
        last = encoder.x_layers[-1]
        if used is None or self.fusion is not None:
            text, image = last(text, token_mask, image, region_mask)
        else:
            text, image = language_side(last, text, token_mask, image, region_mask), None
        if self.fusion is not None:
            return Encoded(text, image[:, 1:], self.fusion(text, image), middle)
        return Encoded(text, image, self.lxmert.pooler(text), middle)


def language_side(layer: Any, text: Tensor, token_mask: Tensor, image: Tensor, region_mask: Tensor) -> Tensor:
    """The text side of a cross layer: attention to regions, to text, inner layer. (B, L, H) to (B, L, H)."""
    text = layer.visual_attention(text, image, region_mask)[0]
    text = layer.lang_self_att(text, token_mask)[0]
    return layer.lang_output(layer.lang_inter(text), text)


class FusedCrossAttention(Attention):
    """Replaces `LxmertAttention`, with the same parameters and results."""

    def forward(  # type: ignore[override]
        self, states: Tensor, context: Tensor, mask: Tensor | None = None, output_attentions: bool = False
    ) -> tuple[Tensor]:
        return (super().forward(states, context, mask),)


def lxmert_config(shape: Shape, box_width: int) -> LxmertConfig:
    settings = library_settings(shape)
    del settings["num_hidden_layers"]  # LXMERT has three numbers of layers
    return LxmertConfig(
        **settings,
        l_layers=shape.layers,
        r_layers=shape.image_layers,
        x_layers=shape.cross_layers,
        visual_feat_dim=shape.feature_width,
        visual_pos_dim=box_width,
    )
