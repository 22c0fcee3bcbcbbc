"""What the models are made of: sizes, BERT's layers under their published names, and attention in one fused kernel.

Shapes: B examples, L text tokens, R regions or patches, S = L + R, H width, A heads, V vocabulary.
Masks are boolean, True where a position may be attended to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from train.config import Architecture
from train.data.inputs import Encoded, Inputs

BASE_STD = 0.02  # standard deviation of BERT's random weights
POOLED_WIDTH = 1024  # of the controlled models' two poolers where the model is 768 wide; others in proportion


@dataclass(frozen=True)
class Shape:
    """How large a model is. `layers` counts text layers (or all, where text and image share them), `image_layers` and
    `cross_layers` those of LXMERT (5, 5) and ALBEF (12, 6); `picture` and `patch` are ALBEF's, in pixels."""

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

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width={self.width}: must be a multiple of heads={self.heads}")
        if self.picture % self.patch:
            raise ValueError(f"picture={self.picture}: must be a multiple of patch={self.patch}")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 0 and below 1")


class Model(nn.Module):
    """What all models share: `encode`, two logits from the pooled state, and a matching score where it is built.

    A subclass takes a `Shape`, and options by keyword. It sets `architecture` (what it sees and takes), `shape` and
    `head`, and defines `encode` and `embeddings`.

    renames: regular expressions from published key names to the model's own, applied in order when a checkpoint is
    loaded. head: the classifier, alone trained when the encoder is frozen. matching: the published image-text matching
    head, (B, H) to (B, 2), built on request and in no count of Table 8. Output 1 means a match in all four published
    pretrainings.
    """

    architecture: ClassVar[Architecture]
    renames: ClassVar[tuple[tuple[str, str], ...]] = ()
    shape: Shape
    head: nn.Module
    matching: nn.Linear | None

    def encode(self, inputs: Inputs, image_states: bool = True) -> Encoded:
        """States of every token and region. `image_states=False` lets a model skip work that `pooled` does not need."""
        raise NotImplementedError

    @property
    def embeddings(self) -> nn.Embedding:
        """The word embeddings, (V, H)."""
        raise NotImplementedError

    def forward(self, inputs: Inputs) -> Tensor:
        """Logits (B, 2): false, true."""
        return self.head(self.encode(inputs, image_states=False).pooled)

    def match(self, inputs: Inputs) -> Tensor:
        """(B,): log-odds that image and text belong together, by the published matching head.

        Raises ValueError for a model without one: text-only, or built without `matching=True`.
        """
        matching = getattr(self, "matching", None)
        if matching is None:
            raise ValueError(f"{type(self).__name__} has no matching head: build an image model with matching=True")
        scores = matching(self.encode(inputs, image_states=False).pooled)  # (B, 2)
        return scores[:, 1] - scores[:, 0]

    def encode_vision(self, inputs: Inputs) -> Tensor:
        """What `encode` makes of the pictures alone, (B, 1 + R, H); later batches may hold it as `Inputs.seen`.

        Defined where `architecture.separate_vision` is true.
        """
        raise NotImplementedError

    def distillation_loss(self, inputs: Inputs) -> Tensor:
        """The loss against a momentum teacher. Defined where `architecture.teacher` is true."""
        raise NotImplementedError

    def encoder_parameters(self) -> Iterator[nn.Parameter]:
        """Every parameter outside the classification head."""
        return (parameter for name, parameter in self.named_parameters() if not name.startswith("head."))

    def adapt(self, name: str, tensor: Tensor) -> Tensor:
        """A published tensor, under the model's own name, as this model needs it."""
        return tensor

    def after_loading(self, missing: Sequence[str]) -> None:
        """Called after a checkpoint is loaded. missing: the model's tensors that it lacked."""

    def check(self, inputs: Inputs) -> None:
        """Raises ValueError where the batch is not one that this model takes."""
        if inputs.tokens.shape[1] > self.shape.positions:
            raise ValueError(
                f"text of {inputs.tokens.shape[1]} tokens: this model takes at most {self.shape.positions} (positions)"
            )
        if inputs.features is not None and inputs.features.shape[-1] != self.shape.feature_width:
            raise ValueError(
                f"regions of {inputs.features.shape[-1]} numbers: this model takes {self.shape.feature_width} "
                "(feature_width)"
            )


def classifier(width: int, hidden: int) -> nn.Sequential:
    """Two-way head of the fine-tuned region models: Linear, GELU, LayerNorm, Linear, as in UNITER and LXMERT."""
    return nn.Sequential(
        nn.Linear(width, hidden), nn.GELU(), nn.LayerNorm(hidden, eps=1e-12), nn.Linear(hidden, 2)
    ).apply(initialise)


def initial_std(width: int) -> float:
    """Standard deviation of random weights: BERT's 0.02 at its width of 768; narrower layers have larger weights, so
    that what they put out is as large."""
    return BASE_STD * (768 / width) ** 0.5


def initialise(module: nn.Module) -> None:
    """BERT's start: weights from N(0, 0.02), biases 0, padding row 0; LayerNorm keeps its 1 and 0."""
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

    Masked keys get the most negative finite score, as in `transformers`: where *every* key of an example is masked,
    attention is uniform rather than NaN. (The published LXMERT adds -10000, and differs in that case alone.)

    One fused kernel, but on a CPU in bf16, where its backward pass is several times slower than two batched products,
    and with dropout, which it does not fuse there.
    """
    bias = None
    if mask is not None:
        bias = torch.zeros(mask.shape, dtype=query.dtype, device=mask.device)
        bias = bias.masked_fill(~mask, torch.finfo(query.dtype).min)[:, None, None, :]  # (B, 1, 1, K)
    if query.device.type == "cpu" and (query.dtype == torch.bfloat16 or dropout):
        return _attend_in_products(query, key, value, bias, dropout)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout)


def _attend_in_products(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, dropout: float) -> Tensor:
    *batch, rows, width = query.shape
    query, key, value = (x.reshape(-1, x.shape[-2], width) for x in (query, key, value))  # (B A, Q or K, d)
    start = query.new_zeros(1, 1, 1) if bias is None else bias.expand(*batch, rows, -1).flatten(0, 1)  # (B A, Q, K)
    scores = torch.baddbmm(start, query, key.transpose(1, 2), beta=float(bias is not None), alpha=width**-0.5)
    weights = fast_dropout(scores.softmax(-1), dropout)
    return torch.bmm(weights.to(value.dtype), value).reshape(*batch, rows, width)


def fast_dropout(values: Tensor, probability: float) -> Tensor:
    """Dropout in training. The probability is rounded to 1/65536 on a CPU, where one random number is drawn for four
    values: drawing one for each takes an eighth of a step at base size, and is not shared among threads."""
    if not probability or values.device.type != "cpu":
        return functional.dropout(values, probability)
    bits = torch.empty((values.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    draws = bits.view(torch.int16)[: values.numel()].view(values.shape)
    kept = torch.empty(values.shape, dtype=values.dtype)
    torch.ge(draws, round(probability * 65536) - 32768, out=kept)
    return values * kept.mul_(1 / (1 - probability))


class Dropout(nn.Dropout):
    """`fast_dropout` as a module."""

    def forward(self, values: Tensor) -> Tensor:
        return fast_dropout(values, self.p) if self.training else values


class Attention(nn.Module):
    """Multi-head attention up to, but without, the output projection; parameter names as in BERT."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, states: Tensor, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """states: (B, Q, H); context: (B or 1, K, H), the states themselves by default; mask: (B, K) for the keys.

        Returns (B, Q, H).
        """
        context = states if context is None else context
        query, key, value = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, A, Q or K, d)
            for layer, x in ((self.query, states), (self.key, context), (self.value, context))
        )
        key, value = (x.expand(len(query), -1, -1, -1) for x in (key, value))
        dropout = self.dropout if self.training else 0.0
        return attend(query, key, value, mask, dropout).transpose(1, 2).flatten(2)  # (B, Q, H)


class FusedAttention(Attention):
    """Stands in for the self-attention of a model of `transformers`: same parameters, same numbers."""

    def forward(  # type: ignore[override]
        self, states: Tensor, attention_mask: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, None]:
        return super().forward(states, mask=attention_mask), None


def use_fused_attention(model: nn.Module, shape: Shape, attention: type[Attention] = FusedAttention) -> None:
    """Give a model of `transformers`, in place, `attention` (where it has submodules `self` or `att`) and `Dropout`."""
    for name, module in reversed(list(model.named_modules())):  # what is inside first
        parent, _, last = name.rpartition(".")
        if last in ("self", "att"):
            fused = attention(shape.width, shape.heads, shape.attention_dropout).apply(initialise)
            model.get_submodule(parent).register_module(last, fused)
        elif type(module) is nn.Dropout:
            model.get_submodule(parent).register_module(last, Dropout(module.p))


class Residual(nn.Module):
    """What follows attention and the inner layer in BERT: project, drop, add, normalise."""

    def __init__(self, inside: int, shape: Shape) -> None:
        super().__init__()
        self.dense = nn.Linear(inside, shape.width)
        self.LayerNorm = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.dropout = Dropout(shape.dropout)

    def forward(self, states: Tensor, before: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(states)) + before)


class AttentionBlock(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self = Attention(shape.width, shape.heads, shape.attention_dropout)
        self.output = Residual(shape.width, shape)

    def forward(self, states: Tensor, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return self.output(self.self(states, context, mask), states)


class Layer(nn.Module):
    """BERT's layer, post-norm. With `cross`, attention to an image comes between self-attention and inner layer."""

    def __init__(self, shape: Shape, cross: bool = False) -> None:
        super().__init__()
        self.attention = AttentionBlock(shape)
        if cross:
            self.crossattention = AttentionBlock(shape)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(shape.width, shape.intermediate)})
        self.output = Residual(shape.intermediate, shape)

    def forward(self, states: Tensor, mask: Tensor, image: Tensor | None = None) -> Tensor:
        """states: (B, S, H); mask: (B, S); image: (B or 1, R, H), attended to whole. Returns (B, S, H)."""
        states = self.attention(states, mask=mask)
        if image is not None:
            states = self.crossattention(states, image)
        inner = functional.gelu(self.intermediate["dense"](states))  # (B, S, intermediate)
        return self.output(inner, states)


class Stack(nn.Module):
    """Layers one after the other, under the published name `layer`."""

    def __init__(self, layers: Iterable[Layer]) -> None:
        super().__init__()
        self.layer = nn.ModuleList(layers)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layer:
            states = layer(states, mask)
        return states


class TextEmbeddings(nn.Module):
    """Words, positions and segments, summed and normalised, as in BERT."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(shape.vocabulary, shape.width, padding_idx=0)
        self.position_embeddings = nn.Embedding(shape.positions, shape.width)
        self.token_type_embeddings = nn.Embedding(shape.types, shape.width)
        self.LayerNorm = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.dropout = Dropout(shape.dropout)

    def forward(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        """tokens, segments: (B, L) int64; segments are 0 by default. Returns (B, L, H)."""
        segments = torch.zeros_like(tokens) if segments is None else segments
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        total = self.word_embeddings(tokens) + self.position_embeddings(positions)
        return self.dropout(self.LayerNorm(total + self.token_type_embeddings(segments)))


class Pooler(nn.Module):
    """tanh of a projection of the first state: (B, S, H) to (B, H)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, states: Tensor) -> Tensor:
        return torch.tanh(self.dense(states[:, 0]))


class Fusion(nn.Module):
    """Pooling of the controlled ("Volta") models: the first text state and the whole-image state, each projected and
    rectified, multiplied. Bugliarello et al. 2021, as configured there (`fusion_method` "mul", pooler size 1024)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.width = shape.width * POOLED_WIDTH // 768
        self.text = nn.Linear(shape.width, self.width)
        self.image = nn.Linear(shape.width, self.width)
        self.dropout = Dropout(shape.dropout)
        self.apply(initialise)

    def forward(self, text: Tensor, image: Tensor) -> Tensor:
        """text: (B, L, H); image: (B, 1 + R, H), the whole image first. Returns (B, 4/3 of H)."""
        return self.dropout(torch.relu(self.text(text[:, 0])) * torch.relu(self.image(image[:, 0])))


@dataclass(frozen=True)
class RegionInputs:
    """features: (B, R, D); boxes: (B, R, 4), left, top, right, bottom in 0 to 1; mask: (B, R) bool."""

    features: Tensor
    boxes: Tensor
    mask: Tensor

    def with_whole_image(self) -> RegionInputs:
        """The controlled models' first region: the mean of the others' features, its box the whole image."""
        kept = self.mask[..., None].to(self.features.dtype)
        mean = (self.features * kept).sum(1, keepdim=True) / kept.sum(1, keepdim=True).clamp(min=1)  # (B, 1, D)
        box = self.boxes.new_tensor([0.0, 0.0, 1.0, 1.0]).expand(len(mean), 1, 4)
        seen = self.mask.new_ones(len(mean), 1)
        return RegionInputs(
            torch.cat([mean, self.features], 1), torch.cat([box, self.boxes], 1), torch.cat([seen, self.mask], 1)
        )


def regions_of(inputs: Inputs, controlled: bool = False) -> RegionInputs | None:
    """The regions of a batch, None where it has none. Raises ValueError where only some of their tensors are there, or
    where a controlled model, whose pooled state is half image, is given none."""
    if inputs.features is None:
        if controlled:
            raise ValueError("controlled=true: these models pool the image too, and need regions")
        return None
    if inputs.boxes is None:
        raise ValueError("regions without boxes: give Inputs.boxes beside Inputs.features")
    mask = inputs.region_mask
    if mask is None:
        mask = torch.ones(inputs.features.shape[:2], dtype=torch.bool, device=inputs.features.device)
    found = RegionInputs(inputs.features, inputs.boxes, mask)
    return found.with_whole_image() if controlled else found
