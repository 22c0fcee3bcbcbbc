"""The text-only baselines: BERT (Devlin et al. 2019) and RoBERTa (Liu et al. 2019).

Both are the models of `transformers`, with fused attention. Shapes: B examples, L text tokens, H width.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

from train.config import ARCHITECTURES
from train.data.inputs import Encoded, Inputs
from train.models.layers import Dropout, Model, Shape, initialise, library_settings, run_layers, use_fused_attention


class Bert(Model):
    """BERT with its classification head. It ignores regions and pixels."""

    architecture = ARCHITECTURES["bert"]
    renames = (
        (r"^module\.", ""),
        (r"^(embeddings|encoder|pooler)\.", r"bert.\1."),
        (r"^classifier\.", "head.1."),
    )

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, self.matching = shape, None
        self.bert = BertModel(BertConfig(**library_settings(shape), pad_token_id=0))
        use_fused_attention(self.bert, shape)
        self.head = nn.Sequential(Dropout(shape.dropout), nn.Linear(shape.width, 2)).apply(initialise)

    @property
    def embeddings(self) -> nn.Embedding:
        return self.bert.embeddings.word_embeddings

    def encode(self, inputs: Inputs, used: Tensor | None = None) -> Encoded:
        self.check(inputs)
        states = self.bert.embeddings(inputs.tokens)
        states, middle = run_layers(self.bert.encoder.layer, states, inputs.token_mask, used)
        pooler: Any = self.bert.pooler
        return Encoded(states, None, pooler(states), middle)


class Roberta(Model):
    """RoBERTa with its classification head. `pooled` is the first state.

    Positions count from 2 (0 and 1 are unused in the published weights), so `Shape.positions` is the length of the
    longest text + 2. They are computed from the mask, so the id of the padding token does not matter.
    """

    architecture = ARCHITECTURES["roberta"]
    renames = (
        (r"^module\.", ""),
        (r"^(embeddings|encoder|pooler)\.", r"roberta.\1."),
        (r"^classifier\.dense\.", "head.1."),
        (r"^classifier\.out_proj\.", "head.4."),
    )

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, self.matching = shape, None
        config = RobertaConfig(**library_settings(shape), pad_token_id=1)
        self.roberta = RobertaModel(config, add_pooling_layer=False)
        use_fused_attention(self.roberta, shape)
        self.head = nn.Sequential(
            Dropout(shape.dropout),
            nn.Linear(shape.width, shape.width),
            nn.Tanh(),
            Dropout(shape.dropout),
            nn.Linear(shape.width, 2),
        ).apply(initialise)

    @property
    def embeddings(self) -> nn.Embedding:
        return self.roberta.embeddings.word_embeddings

    def encode(self, inputs: Inputs, used: Tensor | None = None) -> Encoded:
        self.check(inputs)
        mask = inputs.token_mask.long()
        positions = mask.cumsum(1) * mask + 1
        states = self.roberta.embeddings(inputs.tokens, position_ids=positions)
        states, middle = run_layers(self.roberta.encoder.layer, states, inputs.token_mask, used)
        return Encoded(states, None, states[:, 0], middle)
