"""VisualBERT (Li et al. 2019): regions appended to the text of a BERT, without their boxes.

Shapes: B examples, L text tokens, R regions, S = L + R, D numbers of a region's features, H width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import VisualBertConfig, VisualBertModel

from train.config import ARCHITECTURES
from train.data.inputs import Encoded, Inputs
from train.models.layers import Model, Shape, library_settings, run_layers, use_fused_attention
from train.models.regions import joint_states, region_heads, regions_of


class VisualBert(Model):
    """The VisualBERT of `transformers` with fused attention and the two-way head of the paper's fine-tuning code.

    matching: also build the published matching head (`cls.seq_relationship`). In the published pretraining code, label
    1 is a caption of this image, though under the name `is_random_next`; the documentation of `transformers` says the
    opposite. The head was trained on two captions, the first always of this image, and not in the question-answering
    phase.
    controlled: the "Volta" variant of section 5.1: two poolers and a whole-image region. It takes no boxes either:
    Volta's `VisualBertEmbeddings.forward` has an argument `image_loc` that it does not read.
    """

    architecture = ARCHITECTURES["visualbert"]
    renames = (
        (r"^module\.", ""),
        (r"^bert\.(bert|cls|classifier)\.", r"\1."),
        (r"^bert\.", "visual_bert."),
        (r"embeddings\.token_type_embeddings_visual\.", "embeddings.visual_token_type_embeddings."),
        (r"embeddings\.position_embeddings_visual\.", "embeddings.visual_position_embeddings."),
        (r"embeddings\.projection\.", "embeddings.visual_projection."),
        (r"^logit_fc\.", "head."),
        (r"^cls\.seq_relationship\.", "matching."),
    )

    region_segment = 0  # as in pretraining; 1 in the code that the paper fine-tuned

    def __init__(self, shape: Shape, *, matching: bool = False, controlled: bool = False) -> None:
        super().__init__()
        self.shape = shape
        # The library's padding, word 1, would freeze an ordinary word.
        config = VisualBertConfig(**library_settings(shape), visual_embedding_dim=shape.feature_width, pad_token_id=0)
        self.visual_bert = VisualBertModel(config, add_pooling_layer=not controlled)
        use_fused_attention(self.visual_bert, shape)
        self.fusion, self.head, self.matching = region_heads(shape, matching, controlled)

    @property
    def embeddings(self) -> nn.Embedding:
        return self.visual_bert.embeddings.word_embeddings

    def encode(self, inputs: Inputs, used: Tensor | None = None) -> Encoded:
        """Without regions, the text alone, as in a BERT. Boxes are ignored."""
        self.check(inputs)
        regions = regions_of(inputs, controlled=self.fusion is not None)
        features, types, mask = None, None, inputs.token_mask
        if regions is not None:
            features, _, region_mask = regions
            types = inputs.tokens.new_full(features.shape[:2], self.region_segment)
            mask = torch.cat([mask, region_mask], 1)  # (B, S)
        states = self.visual_bert.embeddings(
            input_ids=inputs.tokens, visual_embeds=features, visual_token_type_ids=types
        )
        used = used if self.fusion is None else None  # controlled models pool an image state, too
        states = run_layers(self.visual_bert.encoder.layer, states, mask, used)
        pooler: Any = self.visual_bert.pooler
        return joint_states(states, inputs.tokens.shape[1], pooler, self.fusion)
