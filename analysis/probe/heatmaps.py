"""Where a scorer looks: a heat map over the picture for a sentence and for each of its words, as a figure.

    python -m analysis.probe.heatmaps --model MODEL --image FILE --text "a red circle" [--out heatmap.png]

`attention` weighs the attention of a model by its gradient, as far as it speaks for the score:
- one encoder for words and regions or patches (VisualBERT, UNITER, ViLT): relevance through all layers (Chefer et al.
  2021, equations 5 and 6), from the first token for the sentence, and from a word's tokens for the word;
- words that attend to the picture (ALBEF, BLIP, LXMERT): Grad-CAM on that attention (Li et al. 2021, section 6.1),
  here the mean of all its layers: a word's row for the word, the sum of all rows for the sentence;
- two encoders (CLIP): relevance of patches for the picture's first token (as above). The picture never meets single
  words there, so a word's map is that of the word as a sentence of its own.
`occlusion` covers a part of the picture at a time and takes what the score loses; it suits any scorer. A word's map is
then, as above, that of the word alone.
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
from analysis.probe.scorers.base import WORD, ModelScorer, ScorerParts, Tensors
from analysis.probe.scorers.hub import quiet
from analysis.probe.scorers.loading import load
from travlr.browse import write
from travlr.cli import Parser, UsageError

METHODS = ("auto", "attention", "occlusion")
CELLS = 8  # along each side of the picture, of occlusion
MOST_WORDS = 24
LONGEST = 640  # pixels of the longer side of a map: no model looks at more
PANEL = 2.3  # inches that a panel of the figure is wide
COVERED = 8  # pictures in a call of occlusion

Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels of a map."""


@dataclass(frozen=True)
class HeatMaps:
    """words: the words of the text, in order. sentence: (H, W), at least 0, of the picture's pixels; of a large picture
    shrunk to 640 on its longer side. by_word: (words, H, W), likewise. method: attention or occlusion. seen: what the
    model is shown of the picture; None where that is not known."""

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
    """Where a scorer looks in a picture for a text. auto: attention where the model has it, else occlusion.

    Raises ValueError for a text without words or with more than 24, and for a model that has no attention to show.
    """
    words = words_in(text)
    if method not in METHODS:
        raise ValueError(f"method={method}: choose one of {', '.join(METHODS)}")
    looks = HEAT_MAPS.get(type(scorer.parts.model).__name__) if isinstance(scorer, ModelScorer) else None
    if isinstance(scorer, ModelScorer) and looks is crossed and scorer.threshold is None:
        looks = None  # by `itc`, for which the words do not attend to the picture
    if method == "attention" and looks is None:
        raise ValueError(f"method=attention: model={getattr(scorer, 'name', scorer)} shows none; use occlusion")
    name = getattr(scorer, "name", "")
    score = float(scorer([image], [text])[0])
    if method == "occlusion" or looks is None:
        hidden = occlusion(scorer, image, [text, *words], cells)
        return HeatMaps(text, score, tuple(words), hidden[0], hidden[1:], "occlusion", name)
    assert isinstance(scorer, ModelScorer)
    maps = looks(scorer, image, text)
    seen = covered(scorer.parts.processor, *size_of_map(image))
    return HeatMaps(text, score, tuple(words), maps[0], np.stack(maps[1:]), "attention", name, seen)


def size_of_map(image: Image.Image) -> tuple[int, int]:
    """Width and height."""
    part = min(1.0, LONGEST / max(image.size))
    return max(1, round(image.width * part)), max(1, round(image.height * part))


def occlusion(scorer: Scorer, image: Image.Image, texts: Sequence[str], cells: int = CELLS) -> np.ndarray:
    """(texts, H, W): what scores lose where a cell of cells x cells has the picture's mean colour; a gain is 0.

    All texts of a picture are asked in one call, so that a scorer encodes each of the cells x cells + 1 pictures once.
    """
    picture = np.asarray(image.convert("RGB"))
    mean = picture.reshape(-1, 3).mean(0).round().astype(np.uint8)

    def places(width: int, height: int) -> list[tuple[slice, slice]]:
        down, right = (
            [slice(size * n // cells, size * (n + 1) // cells) for n in range(cells)] for size in (height, width)
        )
        return [(row, column) for row in down for column in right]

    def asked(shown: Sequence[Image.Image]) -> np.ndarray:
        pairs = [(one, text) for one in shown for text in texts]
        return np.asarray(scorer(*zip(*pairs, strict=True)), np.float64).reshape(len(shown), len(texts))

    def without(place: tuple[slice, slice]) -> Image.Image:
        hidden = picture.copy()
        hidden[place] = mean
        shown = Image.fromarray(hidden)
        shown.info.update(image.info)
        return shown

    whole, hide = asked([image])[0], places(*image.size)
    scores = [asked([without(place) for place in hide[n : n + COVERED]]) for n in range(0, len(hide), COVERED)]
    width, height = size_of_map(image)
    found = np.zeros((len(texts), height, width), np.float32)
    for place, lost in zip(places(width, height), whole - np.concatenate(scores), strict=True):
        found[:, *place] = np.maximum(lost, 0.0)[:, None, None]
    return found


# Attention by gradient ----------------------------------------------------------------------------------------------

HeatMapFunction = Callable[[ModelScorer, Image.Image, str], list[np.ndarray]]
"""Maps (H, W) of the sentence and of each word."""


def single(scorer: ModelScorer, image: Image.Image, text: str) -> list[np.ndarray]:
    """One encoder for words and picture: words first, then regions, or the class token and patches."""
    words = scorer.parts.words(text)
    inputs, prepared = graph(scorer, image, text)
    attention = with_gradients(scorer, SELF[type(scorer.parts.model).__name__], inputs)
    length = inputs["tokens" if "tokens" in inputs else "input_ids"].shape[1]
    rows = relevance(attention)[:, length:]  # (S, R)
    rows = rows[:, 1:] if "seen" in inputs else rows  # ViLT's class token of the picture
    paint = painter(scorer.parts, image, prepared)
    return [paint(rows[0]), *(paint(rows[places].sum(0)) for _, places in words)]


def crossed(scorer: ModelScorer, image: Image.Image, text: str) -> list[np.ndarray]:
    """Words that attend to the picture."""
    words = scorer.parts.words(text)
    inputs, prepared = graph(scorer, image, text)
    attention = with_gradients(scorer, CROSS[type(scorer.parts.model).__name__], inputs)
    rows = torch.stack([spoken_for(weights, gradient) for weights, gradient in attention]).mean(0)  # (L, R)
    rows = rows if "boxes" in prepared else rows[:, 1:]  # the picture's class token
    paint = painter(scorer.parts, image, prepared)
    return [paint(rows.sum(0)), *(paint(rows[places].sum(0)) for _, places in words)]


def dual(scorer: ModelScorer, image: Image.Image, text: str) -> list[np.ndarray]:
    """Two encoders: the picture's own attention, for the sentence and for each word as a sentence."""
    parts = scorer.parts
    paint = painter(parts, image, parts.prepare(image))
    maps = []
    for said in (text, *WORD.findall(text)):
        read = parts.read(_text(scorer, said))

        def judge(prepared: Tensors, read: Tensors = read) -> Tensor:
            return parts.judge(parts.see(prepared) | read)

        attention = with_gradients(scorer, SELF["CLIPModel"], grown(scorer, parts.prepare(image)), judge)
        maps.append(paint(relevance(attention)[0, 1:]))
    return maps


def relevance(attention: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """(S, S): what each state owes to each position, through all layers of self-attention, without itself.

    attention: weights and gradients (1, heads, S, S) of each layer. Chefer et al. 2021: R = R + A R from R = 1, where A
    is the mean over heads of weights x gradients, as far as they are positive.
    """
    size = attention[0][0].shape[-1]
    found = torch.eye(size, dtype=attention[0][0].dtype)
    for weights, gradient in attention:
        found = found + spoken_for(weights, gradient) @ found
    return found - torch.eye(size, dtype=found.dtype)


def spoken_for(weights: Tensor, gradient: Tensor) -> Tensor:
    """(1, heads, Q, K) to (Q, K): attention that speaks for the score, the mean over heads."""
    return (weights * gradient).clamp(min=0).mean(1)[0].detach().cpu()


def _text(scorer: ModelScorer, text: str) -> Tensors:
    return {name: scorer.on_device(tensor) for name, tensor in scorer.parts.tokens(text).items()}


def grown(scorer: ModelScorer, tensors: Tensors) -> Tensors:
    """On the device, from where gradients are to grow."""
    found = {name: scorer.on_device(tensor) for name, tensor in tensors.items()}
    return {n: tensor.requires_grad_() if tensor.is_floating_point() else tensor for n, tensor in found.items()}


def graph(scorer: ModelScorer, image: Image.Image, text: str) -> tuple[Tensors, Tensors]:
    """What `judge` takes of a picture and a text, with gradients, and what `see` was given."""
    prepared = grown(scorer, scorer.parts.prepare(image))
    return scorer.parts.see(prepared) | scorer.parts.read(_text(scorer, text)), prepared


def with_gradients(
    scorer: ModelScorer,
    chosen: Callable[[Any], list[nn.Module]],
    inputs: Tensors,
    judge: Callable[[Tensors], Tensor] | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """Attention weights of the chosen modules, the first each time, and the gradient of the score with respect to them.

    A layer on which the score does not depend has a gradient of 0.
    """
    model = scorer.parts.model
    with recorded(model, chosen(model)) as weights:
        score = (judge or scorer.parts.judge)(inputs)
    gradients = torch.autograd.grad(score.sum(), weights, allow_unused=True)
    return [
        (one, torch.zeros_like(one) if gradient is None else gradient)
        for one, gradient in zip(weights, gradients, strict=True)
    ]


@contextlib.contextmanager
def recorded(model: nn.Module, modules: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """The attention weights of some modules, in their order, from the first time that each runs.

    Fused kernels give none, so attention is computed in steps meanwhile.
    """
    from train.models import layers

    found: dict[int, Tensor] = {}
    kept: list[Tensor] = []
    last: list[Tensor] = []
    fused, ours = layers.attend, type(model).__module__.startswith("train.")

    def in_steps(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min)
        last[:] = [scores.softmax(-1)]
        return last[0] @ value

    def keep(module: nn.Module, _: Any, given: Any) -> None:
        if id(module) not in found:
            found[id(module)] = last[0] if ours else given[1]

    hooks = [module.register_forward_hook(keep) for module in modules]
    settings: Any = getattr(model, "config", None)
    if ours:
        layers.attend = in_steps
    else:
        before = settings._attn_implementation
        with quiet():  # BLIP, always in steps, says that it cannot be set
            model.set_attn_implementation("eager")  # type: ignore[operator]
        settings.output_attentions = True
    try:
        yield kept
    finally:
        for hook in hooks:
            hook.remove()
        if ours:
            layers.attend = fused
        else:
            settings.output_attentions = False
            with quiet():
                model.set_attn_implementation(before)  # type: ignore[operator]
    kept += [found[id(module)] for module in modules]


# Which modules attend: to words and picture alike, or from words to the picture.
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
HEAT_MAPS: dict[str, HeatMapFunction] = {
    **dict.fromkeys(SELF, single),
    **dict.fromkeys(CROSS, crossed),
    "CLIPModel": dual,
}


# Painting -----------------------------------------------------------------------------------------------------------


def painter(parts: ScorerParts, image: Image.Image, prepared: Tensors) -> Callable[[Tensor], np.ndarray]:
    """What puts values of regions (R,) or of patches, row by row, onto a map's pixels (H, W).

    A pixel has the highest value of the regions it lies in. Patches blend into each other; what a model crops away
    is 0.
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
    rows, columns = (size // patch_of(parts) for size in pixels.shape[-2:])
    left, top, right, bottom = covered(parts.processor, width, height)

    def on_patches(values: Tensor) -> np.ndarray:
        grid = Image.fromarray(values.reshape(rows, columns).float().numpy())
        found = np.zeros((height, width), np.float32)
        blended = grid.resize((right - left, bottom - top), Image.Resampling.BILINEAR)
        found[top:bottom, left:right] = np.asarray(blended)
        return found

    return on_patches


def patch_of(parts: ScorerParts) -> int:
    """The side of a patch, in pixels of what the model is given."""
    shape = getattr(parts.model, "shape", None)
    config: Any = getattr(parts.model, "config", None)
    return int(shape.patch if shape is not None else getattr(config, "vision_config", config).patch_size)


def covered(processor: Any, width: int, height: int) -> Box:
    """What the model sees of a picture: all, or the middle where its processor crops."""
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


def draw(found: HeatMaps, image: Image.Image) -> Any:
    """A matplotlib figure: the picture, and over it in grey the sentence's map and each word's.

    The words' maps have one scale, so that a word that nothing is looked at for stays clear.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    height, width = found.sentence.shape
    shown = image.convert("RGB").resize((width, height))
    most = float(found.sentence.max()), float(found.by_word.max())
    panels = [("picture", np.asarray(shown)), ("whole sentence", overlaid(shown, found.sentence, most[0]))]
    panels += [(word, overlaid(shown, of, most[1])) for word, of in zip(found.words, found.by_word, strict=True)]
    columns = min(len(panels), 5)
    rows = -(-len(panels) // columns)
    down = min(max(PANEL * height / width, 0.4), 2 * PANEL) + 0.35
    figure = Figure(figsize=(PANEL * columns, down * rows + 1.1), dpi=100, layout="constrained")
    about = f"score {found.score:.3f}{found.model and ' by ' + found.model}, maps by {found.method}"
    title = "\n".join(textwrap.fill(line, round(13 * PANEL * columns)) for line in (found.text, about))
    figure.suptitle(title, fontsize=10, parse_math=False)
    for place, (name, pixels) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        axes.imshow(pixels)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color("#bbb")  # a white picture has an edge
        axes.set_title(name, fontsize=9, parse_math=False)
        if found.seen not in (None, (0, 0, width, height)):
            left, top, right, bottom = found.seen
            edge = Rectangle((left - 0.5, top - 0.5), right - left, bottom - top, fill=False, linestyle="--", alpha=0.6)
            axes.add_patch(edge)
    note = "Clear: nothing; yellow: some; red: most. All words have one scale."
    if found.seen not in (None, (0, 0, width, height)):
        note += " Dashed: the part that the model is shown."
    figure.supxlabel(note, fontsize=8)
    return figure


def overlaid(image: Image.Image, values: np.ndarray, most: float) -> np.ndarray:
    """(H, W, 3) uint8: the picture in grey, and over it, from clear to strong, a map (H, W) as a part of `most`."""
    from matplotlib import colormaps

    part = values / most if most > 0 else np.zeros_like(values)
    grey = np.asarray(image.convert("L").convert("RGB"), np.float32)
    colours = colormaps["autumn_r"](part)[..., :3].astype(np.float32) * 255  # yellow to red: seen on white and on black
    strength = 0.8 * np.sqrt(part)[..., None]
    return np.rint(grey * (1 - strength) + colours * strength).astype(np.uint8)


def save(found: HeatMaps, image: Image.Image, path: Path) -> None:
    """Write the figure as PNG, whole or not at all, in a folder that is made if need be. Raises ValueError where that
    cannot be done."""
    drawn = io.BytesIO()
    draw(found, image).savefig(drawn, format="png")
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, drawn.getvalue())


def parser() -> argparse.ArgumentParser:
    options = Parser("python -m analysis.probe.heatmaps", description=(__doc__ or "").split("\n\n")[0])
    options.add_argument("--model", required=True, help=model_options.MODEL)
    options.add_argument("--image", required=True, type=Path, metavar="FILE", help="the picture")
    options.add_argument("--text", required=True, help=f"a sentence of 1 to {MOST_WORDS} words")
    options.add_argument("--out", type=Path, default=Path("heatmap.png"), metavar="FILE", help="(default: %(default)s)")
    told = (
        "attention, weighed by its gradient; occlusion, which suits any model; auto: attention where the model has it"
    )
    options.add_argument("--method", choices=METHODS, default="auto", help=f"{told} (default: %(default)s)")
    model_options.add_options(options)
    told = "instead: features made elsewhere (LXMERT's .tsv, UNITER's .npz, HDF5), found by the picture's file name"
    options.add_argument("--regions", type=Path, metavar="FILE", help=told)
    return options


def main(arguments: list[str]) -> None:
    given = parser().parse_args(arguments)
    if given.out.suffix.lower() != ".png":
        raise UsageError(f"--out {given.out}: must end in .png")
    if given.out.exists():
        raise UsageError(f"--out {given.out}: exists; choose another file")
    words_in(given.text)
    try:
        image = picture_from(given.image)
    except ValueError as error:
        raise ValueError(f"--image {given.image}: {error}") from None
    scorer = load(given.model, **model_options.load_settings(given, given.regions))
    found = heat(scorer, image, given.text, given.method)
    save(found, image, given.out)
    print(f"{given.out}: score {found.score:.4f}, {len(found.words)} words, by {found.method}")
