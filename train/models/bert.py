"""The text-only baselines: BERT (Devlin et al. 2019) and RoBERTa (Liu et al. 2019)."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

from train.inputs import Encoded, Inputs
from train.models.layers import Model, Shape, initialise


class Bert(Model):
    """The BERT of `transformers` and its sequence-classification head. Regions and pixels are not looked at."""

    sees = "nothing"
    renames = (
        (r"^module\.", ""),
        (r"^(embeddings|encoder|pooler)\.", r"bert.\1."),
        (r"^classifier\.", "head.1."),
    )

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, self.matching = shape, None
        self.bert = BertModel(BertConfig(**config_of(shape), pad_token_id=0))
        self.head = nn.Sequential(nn.Dropout(shape.dropout), nn.Linear(shape.width, 2)).apply(initialise)

    @property
    def embeddings(self) -> nn.Embedding:
        return self.bert.embeddings.word_embeddings

    def encode(self, inputs: Inputs, image_states: bool = True) -> Encoded:
        self.check(inputs)
        out = self.bert(input_ids=inputs.tokens, attention_mask=inputs.token_mask)
        return Encoded(out.last_hidden_state, None, out.pooler_output)


class Roberta(Model):
    """The RoBERTa of `transformers` and its sequence-classification head; `pooled` is the first state itself.

    Positions count from 2 (0 and 1 are unused in the published weights), so `Shape.positions` is two more than the
    longest text. They come from the mask: any padding token will do.
    """

    sees = "nothing"
    renames = (
        (r"^module\.", ""),
        (r"^(embeddings|encoder|pooler)\.", r"roberta.\1."),
        (r"^classifier\.dense\.", "head.1."),
        (r"^classifier\.out_proj\.", "head.4."),
    )

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, self.matching = shape, None
        config = RobertaConfig(**config_of(shape), pad_token_id=1)
        self.roberta = RobertaModel(config, add_pooling_layer=False)
        self.head = nn.Sequential(
            nn.Dropout(shape.dropout),
            nn.Linear(shape.width, shape.width),
            nn.Tanh(),
            nn.Dropout(shape.dropout),
            nn.Linear(shape.width, 2),
        ).apply(initialise)

    @property
    def embeddings(self) -> nn.Embedding:
        return self.roberta.embeddings.word_embeddings

    def encode(self, inputs: Inputs, image_states: bool = True) -> Encoded:
        self.check(inputs)
        mask = inputs.token_mask.long()
        positions = mask.cumsum(1) * mask + 1
        out = self.roberta(input_ids=inputs.tokens, attention_mask=inputs.token_mask, position_ids=positions)
        return Encoded(out.last_hidden_state, None, out.last_hidden_state[:, 0])

    def check(self, inputs: Inputs) -> None:
        longest = self.shape.positions - 2
        if inputs.tokens.shape[1] > longest:
            raise ValueError(f"text of {inputs.tokens.shape[1]} tokens: this model takes at most {longest} (positions)")


def config_of(shape: Shape) -> dict[str, Any]:
    return {
        "attn_implementation": "sdpa",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.intermediate,
        "hidden_dropout_prob": shape.dropout,
        "attention_probs_dropout_prob": shape.attention_dropout,
        "max_position_embeddings": shape.positions,
        "type_vocab_size": shape.types,
        "layer_norm_eps": shape.epsilon,
    }
