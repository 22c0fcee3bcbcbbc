"""ALBEF (Li et al. 2021) as a classifier: a ViT, a text encoder, and fusion by cross-attention.

Shapes: B examples, L text tokens, R patches, S = 1 + R states of the ViT, H width, A heads, d = H / A.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from train.config import ARCHITECTURES
from train.data.inputs import Encoded, Inputs
from train.models.layers import Model, Shape, TextEmbeddings, attend, bert_encoder, initialise

ALPHA, MOMENTUM = 0.4, 0.995  # of distillation, as published


class Albef(Model):
    """ALBEF with the classifier of its visual-entailment fine-tuning, two-way instead of three-way.

    `Shape.layers` counts text layers, `image_layers` layers of the ViT, `cross_layers` layers of the fusion; `picture`
    is the side of the square picture in pixels. (The 290.34 M of Table 8 are those of ALBEF's generative
    question-answering model.)
    matching: also build the published matching head (`itm_head`).
    distil: also build the momentum teacher for `distillation_loss`, under the published names `*_m`.
    """

    architecture = ARCHITECTURES["albef"]
    renames = (
        (r"^module\.", ""),
        (r"\bbert\.", ""),
        (r"^cls_head(_m)?\.", r"head\1."),
        (r"^itm_head\.", "matching."),
    )

    def __init__(self, shape: Shape, *, matching: bool = False, distil: bool = False) -> None:
        super().__init__()
        self.shape = shape
        self.visual_encoder = VisionTransformer(shape)
        self.text_encoder = TextEncoder(shape)
        self.head = nn.Sequential(nn.Linear(shape.width, shape.width), nn.ReLU(), nn.Linear(shape.width, 2))
        self.head.apply(initialise)
        self.matching = nn.Linear(shape.width, 2).apply(initialise) if matching else None
        self.distil = distil
        if distil:
            self.visual_encoder_m = copy.deepcopy(self.visual_encoder).requires_grad_(False)
            self.text_encoder_m = copy.deepcopy(self.text_encoder).requires_grad_(False)
            self.head_m = copy.deepcopy(self.head).requires_grad_(False)

    @property
    def embeddings(self) -> nn.Embedding:
        return self.text_encoder.embeddings.word_embeddings

    def encode(self, inputs: Inputs, used: Tensor | None = None) -> Encoded:
        """image: states of the patches from the ViT, row by row, without the class token. pooled: the first text state.

        Raises ValueError without pixels, and for pictures that are not `Shape.picture` pixels wide and high.
        """
        image = self.encode_vision(inputs)  # (B or 1, 1 + R, H)
        text, middle = self.text_encoder.run(inputs.tokens, inputs.token_mask, image)
        return Encoded(text, image[:, 1:], text[:, 0], middle)

    def encode_vision(self, inputs: Inputs) -> Tensor:
        """States of the ViT, (B, 1 + R, H), class token first."""
        if inputs.vision_states is not None:
            self.check(inputs)
            return inputs.vision_states
        return self.visual_encoder(self.pixels_of(inputs))

    def adapt(self, name: str, tensor: Tensor) -> Tensor:
        """Interpolate position embeddings of another resolution, as the published fine-tuning does."""
        return fit_positions(tensor, self.visual_encoder.pos_embed.shape[1]) if name.endswith("pos_embed") else tensor

    @torch.no_grad()
    def after_loading(self, missing: Sequence[str]) -> None:
        """Copy tensors of the teacher that the checkpoint lacks from the student."""
        tensors = self.state_dict()
        for name in missing:
            if "_m." in name:
                tensors[name].copy_(tensors[name.replace("_m.", ".", 1)])

    def pixels_of(self, inputs: Inputs) -> Tensor:
        self.check(inputs)
        if inputs.pixels is None:
            raise ValueError("model=albef: needs pixels; use a blank picture for none")
        side = self.shape.picture
        if inputs.pixels.shape[1:] != (3, side, side):
            raise ValueError(f"pixels {tuple(inputs.pixels.shape[1:])}: this model takes {(3, side, side)} (picture)")
        return inputs.pixels

    def distillation_loss(self, inputs: Inputs) -> Tensor:
        """Mean of (1 - ALPHA) cross-entropy with the answer + ALPHA cross-entropy with the teacher's distribution.

        Updates the teacher first: MOMENTUM x teacher + (1 - MOMENTUM) x student.
        Raises ValueError without a teacher or answers.
        """
        if not self.distil or inputs.answer is None:
            raise ValueError("distillation needs a model built with distil=True, and answers")
        pixels = self.pixels_of(inputs)
        with torch.no_grad():
            self.update_teacher()
            image = self.visual_encoder_m(pixels)
            teacher = self.head_m(self.text_encoder_m(inputs.tokens, inputs.token_mask, image)[:, 0]).softmax(-1)
        logits = self(inputs)
        answer_loss = functional.cross_entropy(logits, inputs.answer)
        return (1 - ALPHA) * answer_loss + ALPHA * functional.cross_entropy(logits, teacher)

    @torch.no_grad()
    def update_teacher(self) -> None:
        pairs = (
            (self.visual_encoder_m, self.visual_encoder),
            (self.text_encoder_m, self.text_encoder),
            (self.head_m, self.head),
        )
        for teacher, student in pairs:
            for average, current in zip(teacher.parameters(), student.parameters(), strict=True):
                average.mul_(MOMENTUM).add_(current, alpha=1 - MOMENTUM)


class TextEncoder(nn.Module):
    """A BERT without pooler. Its last `cross_layers` layers also attend to the image, class token included."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embeddings = TextEmbeddings(shape)
        self.encoder = bert_encoder(shape, shape.cross_layers)
        self.unimodal = shape.layers
        self.apply(initialise)

    def forward(self, tokens: Tensor, mask: Tensor, image: Tensor | None = None) -> Tensor:
        """tokens, mask: (B, L); image: (B or 1, 1 + R, H), or None for the text layers alone. Returns (B, L, H)."""
        return self.run(tokens, mask, image)[0]

    def run(self, tokens: Tensor, mask: Tensor, image: Tensor | None) -> tuple[Tensor, Tensor]:
        """As `forward`: states (B, L, H) after all layers, and after half of them."""
        states = [self.embeddings(tokens)]
        for layer in self.encoder.layer[: self.unimodal if image is None else None]:
            states.append(layer(states[-1], mask, image))
        return states[-1], states[(len(states) - 1) // 2]


class VisionTransformer(nn.Module):
    """The ViT that ALBEF published, with the names of timm: pre-norm, class token first, no dropout."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        patches = (shape.picture // shape.patch) ** 2
        self.cls_token = nn.Parameter(torch.empty(1, 1, shape.width))
        self.pos_embed = nn.Parameter(torch.empty(1, 1 + patches, shape.width))
        conv = nn.Conv2d(3, shape.width, kernel_size=shape.patch, stride=shape.patch)
        self.patch_embed = nn.ModuleDict({"proj": conv})
        self.blocks = nn.ModuleList(VisionBlock(shape) for _ in range(shape.image_layers))
        self.norm = nn.LayerNorm(shape.width, eps=1e-6)
        nn.init.normal_(self.cls_token, std=0.02)
        nn.init.normal_(self.pos_embed, std=0.02)
        self.apply(initialise)

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, 3, side, side) to (B, 1 + R, H), R = (side / patch) squared."""
        patches = self.patch_embed["proj"](pixels).flatten(2).transpose(1, 2)  # (B, R, H)
        states = torch.cat([self.cls_token.expand(len(pixels), -1, -1), patches], 1) + self.pos_embed
        for block in self.blocks:
            states = block(states)
        return self.norm(states)


class VisionBlock(nn.Module):
    """A pre-norm layer of the ViT, (B, S, H) to (B, S, H)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm1 = nn.LayerNorm(shape.width, eps=1e-6)
        self.attn = nn.ModuleDict(
            {"qkv": nn.Linear(shape.width, 3 * shape.width), "proj": nn.Linear(shape.width, shape.width)}
        )
        self.norm2 = nn.LayerNorm(shape.width, eps=1e-6)
        self.mlp = nn.ModuleDict(
            {
                "fc1": nn.Linear(shape.width, 4 * shape.width),
                "fc2": nn.Linear(4 * shape.width, shape.width),
            }
        )

    def forward(self, states: Tensor) -> Tensor:
        qkv = self.attn["qkv"](self.norm1(states)).unflatten(-1, (3, self.heads, -1))  # (B, S, 3, A, d)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each (B, A, S, d)
        states = states + self.attn["proj"](attend(query, key, value, None, 0.0).transpose(1, 2).flatten(2))
        return states + self.mlp["fc2"](functional.gelu(self.mlp["fc1"](self.norm2(states))))


def fit_positions(positions: Tensor, length: int) -> Tensor:
    """Position embeddings (1, 1 + n, H) of a square grid, interpolated (bicubic) to (1, length, H).

    The class token's stays as it is. Raises ValueError for a grid that is not square.
    """
    if positions.shape[1] == length:
        return positions
    sides = [round((count - 1) ** 0.5) for count in (positions.shape[1], length)]
    if [1 + side * side for side in sides] != [positions.shape[1], length]:
        raise ValueError(f"position embedding for {positions.shape[1]} positions: not a square grid of patches")
    old, new = sides
    grid = positions[:, 1:].float().reshape(1, old, old, -1).permute(0, 3, 1, 2)  # (1, H, old, old)
    grid = functional.interpolate(grid, size=(new, new), mode="bicubic", align_corners=False)
    return torch.cat([positions[:, :1].float(), grid.permute(0, 2, 3, 1).flatten(1, 2)], 1)
