"""The base class of all models, and what their encoders share: BERT's embeddings and layers, with fused attention.

Shapes: B examples, L text tokens, R regions or patches, S = L + R, H width, A heads, d = H / A,
Q queries and K keys of attention, V vocabulary. Masks are boolean, True where a position is attended to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertEncoder, BertLayer

from train.config import Architecture
from train.data.inputs import Encoded, Inputs

BASE_WIDTH, BASE_STD = 768, 0.02  # width of BERT, and standard deviation of its random weights


@dataclass(frozen=True)
class Shape:
    """The size of a model. vocabulary: number of words. feature_width: numbers of a region's features.

    layers: text layers, or all layers if text and image share them. image_layers, cross_layers: of LXMERT and ALBEF.
    picture, patch: sides in pixels, of ALBEF. epsilon: of LayerNorm.
    """

    layers: int = 12
    width: int = 768
    heads: int = 12
    intermediate: int = 3072
    vocabulary: int = 30522
    positions: int = 512
    types: int = 2
    feature_width: int = 2048
    image_layers: int = 0
    cross_layers: int = 0
    picture: int = 384
    patch: int = 16
    dropout: float = 0.1
    attention_dropout: float = 0.1
    epsilon: float = 1e-12


class Model(nn.Module):
    """Base class of all models. A subclass takes a `Shape`, and options by keyword.

    It sets `architecture`, `shape` and `head`, and defines `encode` and `embeddings`.

    renames: regular expressions and replacements that map published key names to the model's own, applied in order when
    a checkpoint is loaded. head: the classifier, which alone is trained when the encoder is frozen. matching: the
    published image-text matching head, (B, H) to (B, 2), built on request and not counted in Table 8. Output 1 means a
    match in all four published pretrainings.
    """

    architecture: ClassVar[Architecture]
    renames: ClassVar[tuple[tuple[str, str], ...]] = ()
    shape: Shape
    head: nn.Module
    matching: nn.Linear | None

    def encode(self, inputs: Inputs, used: Tensor | None = None) -> Encoded:
        """Hidden states of a batch. used: (B, L) bool, the tokens whose last states are used; then other states of
        `text` and `image` may be anything, so that a model can skip work. None: all states are used."""
        raise NotImplementedError

    @property
    def embeddings(self) -> nn.Embedding:
        """The word embeddings, (V, H)."""
        raise NotImplementedError

    def forward(self, inputs: Inputs) -> Tensor:
        """Logits (B, 2): false, true."""
        return self.head(self.encode(inputs, first_token(inputs.tokens)).pooled)

    def match(self, inputs: Inputs) -> Tensor:
        """Log-odds (B,) that image and text match, by the published matching head.

        Raises ValueError for a model without this head: text-only, or built without `matching=True`.
        """
        matching = getattr(self, "matching", None)
        if matching is None:
            raise ValueError(f"{type(self).__name__} has no matching head: build an image model with matching=True")
        scores = matching(self.encode(inputs).pooled)  # (B, 2)
        return scores[:, 1] - scores[:, 0]

    def encode_vision(self, inputs: Inputs) -> Tensor:
        """States of the pictures alone, (B, 1 + R, H), which later batches may have as `Inputs.vision_states`.

        Defined if `architecture.separate_vision` is true.
        """
        raise NotImplementedError

    def distillation_loss(self, inputs: Inputs) -> Tensor:
        """The loss with a momentum teacher. Defined if `architecture.teacher` is true."""
        raise NotImplementedError

    def encoder_parameters(self) -> Iterator[nn.Parameter]:
        """Every parameter outside the classification head."""
        return (parameter for name, parameter in self.named_parameters() if not name.startswith("head."))

    def adapt(self, name: str, tensor: Tensor) -> Tensor:
        """Convert a tensor of a checkpoint to this model's shape. name: the model's own name of the tensor."""
        return tensor

    def after_loading(self, missing: Sequence[str]) -> None:
        """Called after a checkpoint is loaded. missing: names of tensors that the checkpoint does not have."""

    def check(self, inputs: Inputs) -> None:
        """Raises ValueError for a batch that this model cannot take."""
        longest = self.shape.positions - self.architecture.first_position
        if inputs.tokens.shape[1] > longest:
            raise ValueError(f"text of {inputs.tokens.shape[1]} tokens: this model takes at most {longest} (positions)")
        if inputs.features is not None and inputs.features.shape[-1] != self.shape.feature_width:
            raise ValueError(
                f"regions of {inputs.features.shape[-1]} numbers: this model takes {self.shape.feature_width} "
                "(feature_width)"
            )


def first_token(tokens: Tensor) -> Tensor:
    """(B, L) bool, True for the first token of each text: what is used of the states where only `pooled` is."""
    used = torch.zeros_like(tokens, dtype=torch.bool)
    used[:, 0] = True
    return used


def initial_std(width: int) -> float:
    """Standard deviation of random weights: BERT's at its width, and larger in narrower layers, so that their outputs
    are as large."""
    return BASE_STD * (BASE_WIDTH / width) ** 0.5


def initialise(module: nn.Module) -> None:
    """Initialise as BERT: weights from N(0, 0.02), biases 0, padding row 0. LayerNorm keeps its 1 and 0."""
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.normal_(module.weight, std=BASE_STD)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=BASE_STD)
        if module.padding_idx is not None:
            with torch.no_grad():
                module.weight[module.padding_idx].zero_()


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """Softmax attention. query: (B, A, Q, d), key and value: (B, A, K, d), mask: (B, K) bool or None.

    Masked keys get the most negative finite score, as in `transformers`: if *every* key of an example is masked,
    attention is uniform rather than NaN. (The published LXMERT adds -10000, and differs in this case only.)

    Uses one fused kernel, except on a CPU in bf16, where its backward pass is several times slower than two batched
    products, and on a CPU with dropout, which the kernel does not fuse.
    """
    bias = None
    if mask is not None:
        bias = torch.zeros(mask.shape, dtype=query.dtype, device=mask.device)
        bias = bias.masked_fill(~mask, torch.finfo(query.dtype).min)[:, None, None, :]  # (B, 1, 1, K)
    if query.device.type == "cpu" and (dropout or (query.dtype == torch.bfloat16 and torch.is_grad_enabled())):
        return _matmul_attention(query, key, value, bias, dropout)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout)


def _matmul_attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, dropout: float) -> Tensor:
    *batch, rows, width = query.shape  # B, A, Q, d
    query, key, value = (x.reshape(-1, x.shape[-2], width) for x in (query, key, value))  # (B A, Q or K, d)
    start = query.new_zeros(1, 1, 1) if bias is None else bias.expand(*batch, rows, -1).flatten(0, 1)  # (B A, Q, K)
    scores = torch.baddbmm(start, query, key.transpose(1, 2), beta=float(bias is not None), alpha=width**-0.5)
    weights = fast_dropout(scores.softmax(-1), dropout)
    return torch.bmm(weights.to(value.dtype), value).reshape(*batch, rows, width)


def fast_dropout(values: Tensor, probability: float) -> Tensor:
    """Dropout, as in training. On a CPU the probability is rounded to a multiple of 1/65536, and one random number
    serves four values: one for each, drawn in a single thread, takes an eighth of a training step at base size."""
    if not probability or values.device.type != "cpu":
        return functional.dropout(values, probability)
    bits = torch.empty((values.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    draws = bits.view(torch.int16)[: values.numel()].view(values.shape)
    mask = torch.empty(values.shape, dtype=values.dtype)
    torch.ge(draws, round(probability * 65536) - 32768, out=mask)
    return values * mask.mul_(1 / (1 - probability))


class Dropout(nn.Dropout):
    """`fast_dropout` as a module."""

    def forward(self, values: Tensor) -> Tensor:
        return fast_dropout(values, self.p) if self.training else values


class Attention(nn.Module):
    """Multi-head attention without the output projection. Parameter names as in BERT."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, states: Tensor, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """states: (B, Q, H); context: (B or 1, K, H), `states` by default; mask: (B, K). Returns (B, Q, H)."""
        layers = (self.query, self.key, self.value)
        projected: Sequence[Any]
        if context is None:  # one product: less to cast, and less to add in the backward pass
            weight, bias = torch.cat([x.weight for x in layers]), torch.cat([x.bias for x in layers])
            projected = functional.linear(states, weight, bias).chunk(3, -1)
        else:
            projected = tuple(layer(x) for layer, x in zip(layers, (states, context, context), strict=True))
        query, key, value = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in projected)  # (B, A, Q or K, d)
        key, value = (x.expand(len(query), -1, -1, -1) for x in (key, value))
        dropout = self.dropout if self.training else 0.0
        return attend(query, key, value, mask, dropout).transpose(1, 2).flatten(2)  # (B, Q, H)


class FusedAttention(Attention):
    """Replaces the attention of a model of `transformers`, with the same parameters and results."""

    def forward(  # type: ignore[override]
        self,
        states: Tensor,
        attention_mask: Tensor | None,
        *_: object,
        encoder_hidden_states: Tensor | None = None,
        **__: object,
    ) -> tuple[Tensor, None]:
        return super().forward(states, encoder_hidden_states, attention_mask), None


def use_fused_attention(model: nn.Module, shape: Shape, attention: type[Attention] = FusedAttention) -> None:
    """Replace submodules `self` and `att` of a model of `transformers` by `attention`, and its dropout, in place."""
    for name, module in reversed(list(model.named_modules())):  # inner modules first
        parent, _, last = name.rpartition(".")
        if last in ("self", "att"):
            fused = attention(shape.width, shape.heads, shape.attention_dropout).apply(initialise)
            model.get_submodule(parent).register_module(last, fused)
        elif type(module) is nn.Dropout:
            model.get_submodule(parent).register_module(last, Dropout(module.p))


def library_settings(shape: Shape) -> dict[str, Any]:
    """The size as `transformers` names it, for the config of a BERT."""
    return {
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


def bert_encoder(shape: Shape, cross_layers: int = 0) -> Any:
    """The encoder of a BERT of `transformers`, with fused attention. cross_layers: further layers, which also attend to
    an image, between self-attention and inner layer. Its caller initialises the weights. Layers without an image are
    run by `run_layers`."""
    settings = library_settings(shape)
    encoder: Any = BertEncoder(BertConfig(**settings))  # type: ignore[no-untyped-call]
    crossing = BertConfig(**settings, is_decoder=True, add_cross_attention=True)
    for _ in range(cross_layers):
        encoder.layer.append(BertLayer(crossing))  # type: ignore[no-untyped-call]
    with torch.random.fork_rng([]):  # its random weights are replaced
        use_fused_attention(encoder, shape)
    return encoder


def run_layers(layers: Any, states: Tensor, mask: Tensor, used: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """States (B, S, H) after all layers of a BERT, and after half of them. mask: (B, S).

    used: (B, L) bool, as in `Model.encode`. On a CPU the last layer then computes these states alone, a
    seventh of those of a caption. On a GPU, counting them would wait for it.
    """
    states = middle = in_autocast_type(states)
    for number, layer in enumerate(layers[:-1], 1):
        states = run_layer(layer, states, None, mask)
        if number == len(layers) // 2:
            middle = states
    if used is None or states.device.type != "cpu":
        return run_layer(layers[-1], states, None, mask), middle
    most = int(used.sum(1).max())
    index = torch.argsort(~used, dim=1, stable=True)[:, :most, None].expand(-1, -1, states.shape[-1])  # (B, P, H)
    last = run_layer(layers[-1], states.gather(1, index), states, mask)
    return torch.zeros_like(states).scatter(1, index, last.to(states.dtype)), middle


def run_layer(layer: Any, states: Tensor, context: Tensor | None, mask: Tensor) -> Tensor:
    """One layer: states (B, Q, H) attend to context (B, K, H), or to themselves, and come out as (B, Q, H).

    mask: (B, K).
    """
    attended, _ = layer.attention.self(states, mask, encoder_hidden_states=context)
    attended = layer.attention.output(attended, states)
    return layer.output(layer.intermediate(attended), attended)


def in_autocast_type(states: Tensor) -> Tensor:
    """States in the type in which autocast multiplies, if it is on, so that layers do not cast them again and again."""
    device = states.device.type
    return states.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else states


class TextEmbeddings(nn.Module):
    """Words, positions and segments, summed and normalised, as in BERT."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(shape.vocabulary, shape.width, padding_idx=0)
        self.position_embeddings = nn.Embedding(shape.positions, shape.width)
        self.token_type_embeddings = nn.Embedding(shape.types, shape.width)
        self.LayerNorm = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.dropout = Dropout(shape.dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: (B, L) int64, all of segment 0. Returns (B, L, H)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        total = self.word_embeddings(tokens) + self.position_embeddings(positions)
        return self.dropout(self.LayerNorm(total + self.token_type_embeddings(torch.zeros_like(tokens))))
