"""Heat maps of a model's attention, weighted by its positive gradient.

- One encoder for words and regions or patches (VisualBERT, UNITER, ViLT): relevance through all layers (Chefer et al.
  2021, equations 5 and 6), from the first token for the sentence, and from a word's tokens for the word.
- Cross-attention from words to the picture (ALBEF, LXMERT): Grad-CAM (Li et al. 2021, section 6.1), averaged over
  all layers: a word's row for the word, the sum of all rows for the sentence.
- Two encoders (CLIP): relevance of patches for the picture's first token (as above). There is no attention between
  words and picture, so a word's map is that of the word as a sentence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from train.ask.matchers.base import WORD, Matcher
from train.data.inputs import Tensors

MAX_SIDE = 640  # pixels of the longer side of a map; no model has a higher resolution

Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels of a map."""

HeatMapFunction = Callable[[Matcher, Image.Image, str], list[np.ndarray]]
"""(scorer, picture, text) -> maps (H, W) of the sentence and of each word."""


def joint(scorer: Matcher, image: Image.Image, text: str) -> list[np.ndarray]:
    """Maps of a model with one encoder for words and picture (its inputs: words, then regions; or words, class token,
    patches), or with cross-attention from words to the picture."""
    prepared, name = leaves(scorer, image), type(scorer.model).__name__
    inputs = scorer.see(prepared) | read(scorer, text)
    if name in SELF:
        length = inputs["tokens" if "tokens" in inputs else "input_ids"].shape[1]
        rows = relevance(with_gradients(scorer, SELF[name], inputs))[:, length:]  # (S, R)
        rows = rows[:, 1:] if "patch_mask" in inputs else rows  # ViLT's class token of the picture
        sentence = rows[0]
    else:
        attention = with_gradients(scorer, CROSS[name], inputs)
        rows = torch.stack([positive_attention(weights, gradient) for weights, gradient in attention]).mean(0)  # (L, R)
        rows = rows if "boxes" in prepared else rows[:, 1:]  # the picture's class token
        sentence = rows.sum(0)
    paint = painter(scorer, image, prepared)
    return [paint(sentence), *(paint(rows[places].sum(0)) for _, places in scorer.words(text))]


def dual(scorer: Matcher, image: Image.Image, text: str) -> list[np.ndarray]:
    """Maps of a model with two encoders, from the self-attention of the picture encoder: for the sentence, and for each
    word as a sentence."""
    maps = []
    for sentence in (text, *WORD.findall(text)):
        encoded, prepared = read(scorer, sentence), leaves(scorer, image)

        def judge(inputs: Tensors, encoded: Tensors = encoded) -> Tensor:
            return scorer.judge(scorer.see(inputs) | encoded)

        attention = with_gradients(scorer, SELF["CLIPModel"], prepared, judge)
        maps.append(painter(scorer, image, prepared)(relevance(attention)[0, 1:]))
    return maps


def relevance(attention: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """(S, S): relevance of each position for each state through all layers of self-attention, without the identity.

    attention: weights and gradients (1, heads, S, S) of each layer. Chefer et al. 2021: R = R + A R from R = 1, where A
    is the mean over heads of the positive part of weights x gradients.
    """
    size = attention[0][0].shape[-1]
    identity = torch.eye(size, dtype=attention[0][0].dtype)
    total = identity
    for weights, gradient in attention:
        total = total + positive_attention(weights, gradient) @ total
    return total - identity


def positive_attention(weights: Tensor, gradient: Tensor) -> Tensor:
    """(1, heads, Q, K) to (Q, K): the positive part of weights x gradients, averaged over heads."""
    return (weights * gradient).clamp(min=0).mean(1)[0].detach().cpu()


def read(scorer: Matcher, text: str) -> Tensors:
    return scorer.read({name: scorer.on_device(tensor) for name, tensor in scorer.tokens(text).items()})


def leaves(scorer: Matcher, image: Image.Image) -> Tensors:
    """The inputs of `see`, as leaves that require gradients."""
    inputs = {name: scorer.on_device(tensor) for name, tensor in scorer.prepare(image).items()}
    return {name: tensor.requires_grad_() if tensor.is_floating_point() else tensor for name, tensor in inputs.items()}


def with_gradients(
    scorer: Matcher,
    modules_of: Callable[[Any], list[nn.Module]],
    inputs: Tensors,
    judge: Callable[[Tensors], Tensor] | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """Attention weights of some modules of the model, and the gradients of the score with respect to them.

    Gradients are 0 for layers on which the score does not depend.
    """
    modules = modules_of(scorer.model)
    with recorded(scorer.model, modules) as weights_of:
        score = (judge or scorer.judge)(inputs)
    weights = [weights_of[module] for module in modules]
    gradients = torch.autograd.grad(score.sum(), weights, allow_unused=True)
    return [
        (tensor, torch.zeros_like(tensor) if gradient is None else gradient)
        for tensor, gradient in zip(weights, gradients, strict=True)
    ]


@contextlib.contextmanager
def recorded(model: nn.Module, modules: Sequence[nn.Module]) -> Iterator[dict[nn.Module, Tensor]]:
    """The attention weights of some modules, from their first call.

    Fused kernels return no weights, so attention is computed unfused inside the context.
    """
    from train.models import layers

    weights: dict[nn.Module, Tensor] = {}
    last: list[Tensor] = []
    fused, ours = layers.attend, type(model).__module__.startswith("train.")

    def unfused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min)
        last[:] = [scores.softmax(-1)]
        return last[0] @ value

    def record(module: nn.Module, _: Any, output: Any) -> None:
        weights.setdefault(module, last[0] if ours else output[1])

    hooks = [module.register_forward_hook(record) for module in modules]
    settings: Any = getattr(model, "config", None)
    if ours:
        layers.attend = unfused
    else:
        before = settings._attn_implementation
        model.set_attn_implementation("eager")  # type: ignore[operator]
        settings.output_attentions = True
    try:
        yield weights
    finally:
        for hook in hooks:
            hook.remove()
        if ours:
            layers.attend = fused
        else:
            settings.output_attentions = False
            model.set_attn_implementation(before)  # type: ignore[operator]


# Self-attention and cross-attention modules by class of model.
SELF: dict[str, Callable[[Any], list[nn.Module]]] = {
    "Uniter": lambda m: [layer.attention.self for layer in m.uniter.encoder.layer],
    "VisualBert": lambda m: [layer.attention.self for layer in m.visual_bert.encoder.layer],
    "ViltForImageAndTextRetrieval": lambda m: [layer.attention.attention for layer in m.vilt.encoder.layer],
    "CLIPModel": lambda m: [layer.self_attn for layer in m.vision_model.encoder.layers],
}
CROSS: dict[str, Callable[[Any], list[nn.Module]]] = {
    "Albef": lambda m: [layer.crossattention.self for layer in m.text_encoder.encoder.layer[m.shape.layers :]],
    "Lxmert": lambda m: [layer.visual_attention.att for layer in m.lxmert.encoder.x_layers],
}


def heat_map_function(scorer: Matcher) -> HeatMapFunction | None:
    """The function for the model of a scorer; None for a model that is not supported, and for head=itc of a model whose
    cross-attention belongs to head=itm."""
    kind = type(scorer.model).__name__
    if kind in CROSS:
        return joint if scorer.head == "itm" else None
    return dual if kind == "CLIPModel" else joint if kind in SELF else None


# Painting -----------------------------------------------------------------------------------------------------------


def painter(scorer: Matcher, image: Image.Image, prepared: Tensors) -> Callable[[Tensor], np.ndarray]:
    """A function that maps values of regions (R,), or of patches in row order, to pixels (H, W).

    A pixel gets the highest value of the regions that contain it. Patches are interpolated; parts that the model crops
    away are 0.
    """
    width, height = size_of_map(image)
    if "boxes" in prepared:
        boxes = (prepared["boxes"][0].detach().cpu().numpy() * [width, height, width, height]).round().astype(int)

        def on_boxes(values: Tensor) -> np.ndarray:
            pixels = np.zeros((height, width), np.float32)
            for (left, top, right, bottom), value in zip(boxes, values.tolist(), strict=True):
                part = pixels[top : max(bottom, top + 1), left : max(right, left + 1)]
                np.maximum(part, value, out=part)
            return pixels

        return on_boxes
    inputs = prepared["pixels" if "pixels" in prepared else "pixel_values"]  # (1, 3, height, width)
    rows, columns = (size // patch_of(scorer.model) for size in inputs.shape[-2:])
    left, top, right, bottom = visible_part(scorer.processor, width, height)

    def on_patches(values: Tensor) -> np.ndarray:
        grid = Image.fromarray(values.reshape(rows, columns).float().numpy())
        pixels = np.zeros((height, width), np.float32)
        blended = grid.resize((right - left, bottom - top), Image.Resampling.BILINEAR)
        pixels[top:bottom, left:right] = np.asarray(blended)
        return pixels

    return on_patches


def size_of_map(image: Image.Image) -> tuple[int, int]:
    """Width and height of the map of a picture."""
    part = min(1.0, MAX_SIDE / max(image.size))
    return max(1, round(image.width * part)), max(1, round(image.height * part))


def patch_of(model: Any) -> int:
    """The side of a patch, in pixels of the model's input."""
    shape: Any = getattr(model, "shape", None)
    config: Any = getattr(model, "config", None)
    return int(shape.patch if shape is not None else getattr(config, "vision_config", config).patch_size)


def visible_part(processor: Any, width: int, height: int) -> Box:
    """The part of a picture that the model sees: all, or the centre crop of its processor."""
    if not getattr(processor, "do_center_crop", False):
        return 0, 0, width, height
    shortest = dict(processor.size).get("shortest_edge")
    scale = min(width, height) / shortest if shortest else 1.0
    across, down = (
        min(size, round(processor.crop_size[side] * scale)) for size, side in ((width, "width"), (height, "height"))
    )
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down
