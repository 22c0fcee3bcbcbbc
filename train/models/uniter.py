"""UNITER (Chen et al. 2020): words and regions in one BERT.

Shapes: B examples, L text tokens, R regions, S = L + R, D numbers of a region's features, H width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertPooler

from train.config import ARCHITECTURES
from train.data.inputs import Encoded, Inputs
from train.models.layers import Dropout, Model, Shape, TextEmbeddings, bert_encoder, initialise, run_layers
from train.models.regions import joint_states, region_heads, regions_of


class Uniter(Model):
    """UNITER with the two-way head of the paper's fine-tuning code.

    matching: also build the published matching head (`itm_output`).
    controlled: the "Volta" variant of section 5.1: two poolers, a whole-image region, boxes of 5 numbers (left, top,
    right, bottom and area); `make_model` gives it another vocabulary.
    """

    architecture = ARCHITECTURES["uniter"]
    renames = (
        (r"^module\.", ""),
        (r"^bert\.", "uniter."),
        (r"^(embeddings|img_embeddings|encoder|pooler)\.", r"uniter.\1."),
        (r"^vqa_output\.", "head."),
        (r"^itm_output\.", "matching."),
    )

    def __init__(self, shape: Shape, *, matching: bool = False, controlled: bool = False) -> None:
        super().__init__()
        self.shape = shape
        self.uniter = UniterEncoder(shape, box_width=5 if controlled else 7, pooled=not controlled)
        self.fusion, self.head, self.matching = region_heads(shape, matching, controlled)

    @property
    def embeddings(self) -> nn.Embedding:
        return self.uniter.embeddings.word_embeddings

    def encode(self, inputs: Inputs, used: Tensor | None = None) -> Encoded:
        """Without regions, the text alone, as in a BERT."""
        self.check(inputs)
        regions = regions_of(inputs, controlled=self.fusion is not None)
        if regions is None:
            states = self.uniter(inputs.tokens, inputs.token_mask, used=used)
        else:
            features, boxes, region_mask = regions
            mask = torch.cat([inputs.token_mask, region_mask], 1)  # (B, S)
            used = used if self.fusion is None else None  # controlled models pool an image state, too
            states = self.uniter(inputs.tokens, mask, features, self.box_numbers(boxes), used)
        return joint_states(states, inputs.tokens.shape[1], self.uniter.pooler, self.fusion)

    def box_numbers(self, boxes: Tensor) -> Tensor:
        """Boxes (B, R, 4), 0 to 1, as the position embedding takes them: (B, R, 7), or (B, R, 5) if controlled."""
        left, top, right, bottom = boxes.unbind(-1)
        width, height = right - left, bottom - top
        if self.fusion is not None:
            return torch.stack([left, top, right, bottom, width * height], -1)
        return torch.stack([left, top, right, bottom, width, height, width * height], -1)


class UniterEncoder(nn.Module):
    """The parameters under the published prefix `uniter.`, without `mask_embedding`, which only pretraining uses."""

    def __init__(self, shape: Shape, box_width: int, pooled: bool) -> None:
        super().__init__()
        self.embeddings = TextEmbeddings(shape)
        self.img_embeddings = RegionEmbeddings(shape, box_width)
        self.encoder = bert_encoder(shape)
        self.pooler = BertPooler(BertConfig(hidden_size=shape.width)) if pooled else None  # type: ignore[no-untyped-call]
        self.apply(initialise)

    def forward(
        self,
        tokens: Tensor,
        mask: Tensor,
        features: Tensor | None = None,
        boxes: Tensor | None = None,
        used: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """tokens: (B, L); mask: (B, S); features: (B, R, D); boxes: (B, R, 7); used: (B, L). Returns states
        (B, S, H), text first, as `run_layers` does."""
        states = self.embeddings(tokens)
        if features is not None:
            types = torch.ones(features.shape[:2], dtype=torch.long, device=features.device)  # segments of the *text*
            regions = self.img_embeddings(features, boxes, self.embeddings.token_type_embeddings(types))
            states = torch.cat([states, regions], 1)
        return run_layers(self.encoder.layer, states, mask, used)


class RegionEmbeddings(nn.Module):
    """Features and boxes, each projected and normalised, summed with the region type and normalised again."""

    def __init__(self, shape: Shape, box_width: int) -> None:
        super().__init__()
        self.img_linear = nn.Linear(shape.feature_width, shape.width)
        self.img_layer_norm = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.pos_linear = nn.Linear(box_width, shape.width)
        self.pos_layer_norm = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.LayerNorm = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.dropout = Dropout(shape.dropout)

    def forward(self, features: Tensor, boxes: Tensor, types: Tensor) -> Tensor:
        """features: (B, R, D), boxes: (B, R, 7), types: (B, R, H). Returns (B, R, H)."""
        content = self.img_layer_norm(self.img_linear(features))
        position = self.pos_layer_norm(self.pos_linear(boxes))
        return self.dropout(self.LayerNorm(content + position + types))
