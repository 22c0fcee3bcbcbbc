"""Heat maps of where a scorer looks, for a sentence and for each of its words.

    python -m analysis.probe.heatmaps --model MODEL --image FILE --text "a red circle" [--out heatmap.png]

`attention` weights a model's attention by its positive gradient:
- one encoder for words and regions or patches (VisualBERT, UNITER, ViLT): relevance through all layers (Chefer et al.
  2021, equations 5 and 6), from the first token for the sentence, and from a word's tokens for the word;
- cross-attention from words to the picture (ALBEF, BLIP, LXMERT): Grad-CAM (Li et al. 2021, section 6.1), averaged over
  all layers: a word's row for the word, the sum of all rows for the sentence;
- two encoders (CLIP): relevance of patches for the picture's first token (as above). There is no attention between
  words and picture, so a word's map is that of the word as a sentence.
`occlusion` covers one part of the picture at a time and maps the decrease of the score; it works with any scorer. A
word's map is that of the word as a sentence.
"""

from __future__ import annotations

if __name__ == "__main__":
    from travlr.start import start_command

    start_command("heatmaps", "analysis.probe.heatmaps")

import argparse
import contextlib
import io
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from analysis.probe import model_options
from analysis.probe.corpora.items import Scorer
from analysis.probe.scenes.pasting import picture_from
from analysis.probe.scorers.base import WORD, ModelScorer
from analysis.probe.scorers.loading import load
from train.data.inputs import Tensors
from train.models.hub import quiet
from travlr.browse import write
from travlr.cli import Parser, UsageError

METHODS = ("auto", "attention", "occlusion")
CELLS = 8  # of occlusion, along each side of the picture
MOST_WORDS = 24
MAX_SIDE = 640  # pixels of the longer side of a map; no model has a higher resolution
PANEL = 2.3  # width of a panel of the figure, in inches
OCCLUSION_BATCH = 8  # pictures in a call of occlusion

Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels of a map."""


@dataclass(frozen=True)
class HeatMaps:
    """Heat maps of a sentence and its words.

    words: the words of the text, in order. sentence: (H, W), at least 0, for each pixel of the picture, which is scaled
    down to 640 on its longer side. by_word: (words, H, W), likewise. method: attention or occlusion. seen: the part of
    the picture that the model sees; None if unknown.
    """

    text: str
    score: float
    words: tuple[str, ...]
    sentence: np.ndarray
    by_word: np.ndarray
    method: str
    model: str = ""
    seen: Box | None = None


def words_in(text: str) -> list[str]:
    words = WORD.findall(text)
    if not 1 <= len(words) <= MOST_WORDS:
        raise ValueError(f"text={text!r}: has {len(words)} words; a heat map needs 1 to {MOST_WORDS}")
    return words


def heat(scorer: Scorer, image: Image.Image, text: str, method: str = "auto", cells: int = CELLS) -> HeatMaps:
    """Heat maps of a picture for a text. method: `auto` is attention if the model supports it, else occlusion.

    Raises ValueError for a text with no words or more than 24, and for attention where the model does not support it.
    """
    words = words_in(text)
    if method not in METHODS:
        raise ValueError(f"method={method}: choose one of {', '.join(METHODS)}")
    function = None
    if isinstance(scorer, ModelScorer):
        kind = type(scorer.model).__name__
        function = None if kind in CROSS and scorer.head == "itc" else HEAT_MAPS.get(kind)  # without cross-attention
    if method == "attention" and function is None:
        raise ValueError(f"method=attention: not for model={getattr(scorer, 'name', scorer)}; use occlusion")
    name = getattr(scorer, "name", "")
    score = float(scorer([image], [text])[0])
    if method == "occlusion" or function is None:
        hidden = occlusion(scorer, image, [text, *words], cells)
        return HeatMaps(text, score, tuple(words), hidden[0], hidden[1:], "occlusion", name)
    assert isinstance(scorer, ModelScorer)
    maps = function(scorer, image, text)
    seen = visible_part(scorer.processor, *size_of_map(image))
    return HeatMaps(text, score, tuple(words), maps[0], np.stack(maps[1:]), "attention", name, seen)


def size_of_map(image: Image.Image) -> tuple[int, int]:
    """Width and height."""
    part = min(1.0, MAX_SIDE / max(image.size))
    return max(1, round(image.width * part)), max(1, round(image.height * part))


def occlusion(scorer: Scorer, image: Image.Image, texts: Sequence[str], cells: int = CELLS) -> np.ndarray:
    """(texts, H, W): the decrease of the scores when a cell of cells x cells has the picture's mean colour, at least 0.

    A call has all texts of its pictures, so that a scorer encodes each of the cells x cells + 1 pictures once.
    """
    picture = np.asarray(image.convert("RGB"))
    mean = picture.reshape(-1, 3).mean(0).round().astype(np.uint8)

    def places(width: int, height: int) -> list[tuple[slice, slice]]:
        down, right = (
            [slice(size * n // cells, size * (n + 1) // cells) for n in range(cells)] for size in (height, width)
        )
        return [(row, column) for row in down for column in right]

    def scores_of(pictures: Sequence[Image.Image]) -> np.ndarray:
        pairs = [(one, text) for one in pictures for text in texts]
        return np.asarray(scorer(*zip(*pairs, strict=True)), np.float64).reshape(len(pictures), len(texts))

    def without(place: tuple[slice, slice]) -> Image.Image:
        hidden = picture.copy()
        hidden[place] = mean
        shown = Image.fromarray(hidden)
        shown.info.update(image.info)
        return shown

    whole, hide = scores_of([image])[0], places(*image.size)
    scores = [
        scores_of([without(place) for place in hide[n : n + OCCLUSION_BATCH]])
        for n in range(0, len(hide), OCCLUSION_BATCH)
    ]
    width, height = size_of_map(image)
    maps = np.zeros((len(texts), height, width), np.float32)
    for place, lost in zip(places(width, height), whole - np.concatenate(scores), strict=True):
        maps[:, *place] = np.maximum(lost, 0.0)[:, None, None]
    return maps


# Attention by gradient ----------------------------------------------------------------------------------------------

HeatMapFunction = Callable[[ModelScorer, Image.Image, str], list[np.ndarray]]
"""(scorer, picture, text) -> maps (H, W) of the sentence and of each word."""


def joint(scorer: ModelScorer, image: Image.Image, text: str) -> list[np.ndarray]:
    """One encoder for words and picture, whose inputs are words, then regions, or words, class token and patches; or
    cross-attention from words to the picture."""
    prepared, name = leaves(scorer, image), type(scorer.model).__name__
    inputs = scorer.see(prepared) | read(scorer, text)
    if name in SELF:
        length = inputs["tokens" if "tokens" in inputs else "input_ids"].shape[1]
        rows = relevance(with_gradients(scorer, SELF[name], inputs))[:, length:]  # (S, R)
        rows = rows[:, 1:] if "seen" in inputs else rows  # ViLT's class token of the picture
        sentence = rows[0]
    else:
        attention = with_gradients(scorer, CROSS[name], inputs)
        rows = torch.stack([positive_attention(weights, gradient) for weights, gradient in attention]).mean(0)  # (L, R)
        rows = rows if "boxes" in prepared else rows[:, 1:]  # the picture's class token
        sentence = rows.sum(0)
    paint = painter(scorer, image, prepared)
    return [paint(sentence), *(paint(rows[places].sum(0)) for _, places in scorer.words(text))]


def dual(scorer: ModelScorer, image: Image.Image, text: str) -> list[np.ndarray]:
    """Two encoders: self-attention of the picture encoder, for the sentence and for each word as a sentence."""
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
    found = torch.eye(size, dtype=attention[0][0].dtype)
    for weights, gradient in attention:
        found = found + positive_attention(weights, gradient) @ found
    return found - torch.eye(size, dtype=found.dtype)


def positive_attention(weights: Tensor, gradient: Tensor) -> Tensor:
    """(1, heads, Q, K) to (Q, K): the positive part of weights x gradients, averaged over heads."""
    return (weights * gradient).clamp(min=0).mean(1)[0].detach().cpu()


def read(scorer: ModelScorer, text: str) -> Tensors:
    return scorer.read({name: scorer.on_device(tensor) for name, tensor in scorer.tokens(text).items()})


def leaves(scorer: ModelScorer, image: Image.Image) -> Tensors:
    """The inputs of `see`, as leaves that require gradients."""
    found = {name: scorer.on_device(tensor) for name, tensor in scorer.prepare(image).items()}
    return {n: tensor.requires_grad_() if tensor.is_floating_point() else tensor for n, tensor in found.items()}


def with_gradients(
    scorer: ModelScorer,
    chosen: Callable[[Any], list[nn.Module]],
    inputs: Tensors,
    judge: Callable[[Tensors], Tensor] | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """Attention weights of the chosen modules, and the gradients of the score with respect to them.

    Gradients are 0 for layers on which the score does not depend.
    """
    model = scorer.model
    with recorded(model, chosen(model)) as weights:
        score = (judge or scorer.judge)(inputs)
    gradients = torch.autograd.grad(score.sum(), weights, allow_unused=True)
    return [
        (one, torch.zeros_like(one) if gradient is None else gradient)
        for one, gradient in zip(weights, gradients, strict=True)
    ]


@contextlib.contextmanager
def recorded(model: nn.Module, modules: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """The attention weights of some modules, in their order, from their first call.

    Fused kernels return no weights, so attention is computed unfused meanwhile.
    """
    from train.models import layers

    weights: dict[int, Tensor] = {}
    recorded_weights: list[Tensor] = []
    last: list[Tensor] = []
    fused, ours = layers.attend, type(model).__module__.startswith("train.")

    def unfused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min)
        last[:] = [scores.softmax(-1)]
        return last[0] @ value

    def record(module: nn.Module, _: Any, output: Any) -> None:
        if id(module) not in weights:
            weights[id(module)] = last[0] if ours else output[1]

    hooks = [module.register_forward_hook(record) for module in modules]
    settings: Any = getattr(model, "config", None)
    if ours:
        layers.attend = unfused
    else:
        before = settings._attn_implementation
        with quiet():  # BLIP, which is always unfused, warns that it cannot be set
            model.set_attn_implementation("eager")  # type: ignore[operator]
        settings.output_attentions = True
    try:
        yield recorded_weights
    finally:
        for hook in hooks:
            hook.remove()
        if ours:
            layers.attend = fused
        else:
            settings.output_attentions = False
            with quiet():
                model.set_attn_implementation(before)  # type: ignore[operator]
    recorded_weights += [weights[id(module)] for module in modules]


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
    "BlipForImageTextRetrieval": lambda m: [layer.crossattention.self for layer in m.text_encoder.encoder.layer],
}
HEAT_MAPS: dict[str, HeatMapFunction] = {**dict.fromkeys((*SELF, *CROSS), joint), "CLIPModel": dual}


# Painting -----------------------------------------------------------------------------------------------------------


def painter(scorer: ModelScorer, image: Image.Image, prepared: Tensors) -> Callable[[Tensor], np.ndarray]:
    """A function that maps values of regions (R,), or of patches in row order, to pixels (H, W).

    A pixel gets the highest value of the regions that contain it. Patches are interpolated; parts that the model crops
    away are 0.
    """
    width, height = size_of_map(image)
    if "boxes" in prepared:
        boxes = (prepared["boxes"][0].detach().cpu().numpy() * [width, height, width, height]).round().astype(int)

        def on_boxes(values: Tensor) -> np.ndarray:
            found = np.zeros((height, width), np.float32)
            for (left, top, right, bottom), value in zip(boxes, values.tolist(), strict=True):
                part = found[top : max(bottom, top + 1), left : max(right, left + 1)]
                np.maximum(part, value, out=part)
            return found

        return on_boxes
    pixels = prepared["pixels" if "pixels" in prepared else "pixel_values"]  # (1, 3, height, width)
    rows, columns = (size // patch_of(scorer.model) for size in pixels.shape[-2:])
    left, top, right, bottom = visible_part(scorer.processor, width, height)

    def on_patches(values: Tensor) -> np.ndarray:
        grid = Image.fromarray(values.reshape(rows, columns).float().numpy())
        found = np.zeros((height, width), np.float32)
        blended = grid.resize((right - left, bottom - top), Image.Resampling.BILINEAR)
        found[top:bottom, left:right] = np.asarray(blended)
        return found

    return on_patches


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
    seen = [
        min(size, round(processor.crop_size[side] * scale)) for size, side in ((width, "width"), (height, "height"))
    ]
    left, top = (width - seen[0]) // 2, (height - seen[1]) // 2
    return left, top, left + seen[0], top + seen[1]


# Figure and command -------------------------------------------------------------------------------------------------


def draw(maps: HeatMaps, image: Image.Image) -> Any:
    """A matplotlib figure: the picture, and the maps of the sentence and of each word on the picture in grey.

    All words have one scale, so that a word without effect stays clear.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    height, width = maps.sentence.shape
    shown = image.convert("RGB").resize((width, height))
    most = float(maps.sentence.max()), float(maps.by_word.max())
    panels = [("picture", np.asarray(shown)), ("whole sentence", overlaid(shown, maps.sentence, most[0]))]
    panels += [(word, overlaid(shown, of, most[1])) for word, of in zip(maps.words, maps.by_word, strict=True)]
    columns = min(len(panels), 5)
    rows = -(-len(panels) // columns)
    down = min(max(PANEL * height / width, 0.4), 2 * PANEL) + 0.35
    figure = Figure(figsize=(PANEL * columns, down * rows + 1.1), dpi=100, layout="constrained")
    about = f"score {maps.score:.3f}{maps.model and ' by ' + maps.model}, maps by {maps.method}"
    title = "\n".join(textwrap.fill(line, round(13 * PANEL * columns)) for line in (maps.text, about))
    figure.suptitle(title, fontsize=10, parse_math=False)
    for place, (name, pixels) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        axes.imshow(pixels)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color("#bbb")  # so that white pictures have an edge
        axes.set_title(name, fontsize=9, parse_math=False)
        if maps.seen not in (None, (0, 0, width, height)):
            left, top, right, bottom = maps.seen
            edge = Rectangle((left - 0.5, top - 0.5), right - left, bottom - top, fill=False, linestyle="--", alpha=0.6)
            axes.add_patch(edge)
    note = "Clear: no effect; yellow: some; red: most. All words have one scale."
    if maps.seen not in (None, (0, 0, width, height)):
        note += " Dashed: the part that the model sees."
    figure.supxlabel(note, fontsize=8)
    return figure


def overlaid(image: Image.Image, values: np.ndarray, most: float) -> np.ndarray:
    """(H, W, 3) uint8: a map (H, W), from 0 to `most`, over the picture in grey."""
    from matplotlib import colormaps

    part = values / most if most > 0 else np.zeros_like(values)
    grey = np.asarray(image.convert("L").convert("RGB"), np.float32)
    colours = (
        colormaps["autumn_r"](part)[..., :3].astype(np.float32) * 255
    )  # yellow to red is visible on white and on black
    strength = 0.8 * np.sqrt(part)[..., None]
    return np.rint(grey * (1 - strength) + colours * strength).astype(np.uint8)


def png(maps: HeatMaps, image: Image.Image) -> bytes:
    drawn = io.BytesIO()
    draw(maps, image).savefig(drawn, format="png")
    return drawn.getvalue()


def parser() -> argparse.ArgumentParser:
    options = Parser("python -m analysis.probe.heatmaps", description=(__doc__ or "").split("\n\n")[0])
    options.add_argument("--model", required=True, help=model_options.MODEL)
    options.add_argument("--image", required=True, type=Path, metavar="FILE", help="the picture")
    options.add_argument("--text", required=True, help=f"a sentence of 1 to {MOST_WORDS} words")
    options.add_argument("--out", type=Path, default=Path("heatmap.png"), metavar="FILE", help="(default: %(default)s)")
    options.add_argument(
        "--method",
        choices=METHODS,
        default="auto",
        help="attention, weighted by its gradient; occlusion, for any model; auto: attention if the model supports it "
        "(default: %(default)s)",
    )
    model_options.add_options(options)
    options.add_argument(
        "--regions",
        type=Path,
        metavar="FILE",
        help="instead of --detector: a file of features (LXMERT's .tsv, UNITER's .npz, HDF5), by the picture's name",
    )
    return options


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)
    if options.out.suffix.lower() != ".png":
        raise UsageError(f"--out {options.out}: must end in .png")
    if options.out.exists():
        raise UsageError(f"--out {options.out}: exists; choose another file")
    words_in(options.text)
    try:
        image = picture_from(options.image)
    except ValueError as error:
        raise ValueError(f"--image {options.image}: {error}") from None
    scorer = load(options.model, **model_options.load_settings(options, options.regions))
    maps = heat(scorer, image, options.text, options.method)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write(options.out, png(maps, image))
    print(f"{options.out}: score {maps.score:.4f}, {len(maps.words)} words, by {maps.method}")
