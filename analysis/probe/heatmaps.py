"""Heat maps of where a scorer looks, for a sentence and for each of its words.

    python -m analysis.probe.heatmaps --model MODEL --image FILE --text "a red circle" [--out heatmap.png]

`attention` weights a model's attention by its gradient (see `analysis.attention`). `occlusion` covers one
part of the picture at a time and maps the decrease of the score; it works with any scorer. A word's map is that of the
word as a sentence.
"""

from __future__ import annotations

import argparse
import io
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from analysis.attention import Box, heat_map_function, size_of_map, visible_part
from analysis.filling import write_file
from analysis.pasting import picture_from
from analysis.probe import model_options
from train.ask.matchers.base import WORD, Matcher
from train.ask.matchers.loading import ScoreFunction, load_matcher
from travlr.settings import UsageError, run_command

METHODS = ("auto", "attention", "occlusion")
CELLS = 8  # of occlusion, along each side of the picture
MOST_WORDS = 24
PANEL = 2.3  # width of a panel of the figure, in inches
OCCLUSION_BATCH = 8  # pictures in a call of occlusion


@dataclass(frozen=True)
class HeatMaps:
    """Heat maps of a sentence and its words.

    words: the words of the text, in order. sentence: (H, W), at least 0, for each pixel of the picture, which is scaled
    down to 640 on its longer side. by_word: (words, H, W), likewise. method: attention or occlusion. visible: the part
    of the picture that the model sees; None if unknown.
    """

    text: str
    score: float
    words: tuple[str, ...]
    sentence: np.ndarray
    by_word: np.ndarray
    method: str
    model: str = ""
    visible: Box | None = None


def words_in(text: str) -> list[str]:
    words = WORD.findall(text)
    if not 1 <= len(words) <= MOST_WORDS:
        raise ValueError(f"text={text!r}: has {len(words)} words; a heat map needs 1 to {MOST_WORDS}")
    return words


def heat(scorer: ScoreFunction, image: Image.Image, text: str, method: str = "auto", cells: int = CELLS) -> HeatMaps:
    """Heat maps of a picture for a text. method: `auto` is attention if the model supports it, else occlusion.

    Raises ValueError for a text with no words or more than 24, and for attention where the model does not support it.
    """
    words = words_in(text)
    function = heat_map_function(scorer) if isinstance(scorer, Matcher) else None
    if method == "attention" and function is None:
        raise ValueError(f"method=attention: not for model={getattr(scorer, 'name', scorer)}; use occlusion")
    name = getattr(scorer, "name", "")
    score = float(scorer([image], [text])[0])
    if method == "occlusion" or function is None:
        sentence, *by_word = occlusion(scorer, image, [text, *words], cells)
        return HeatMaps(text, score, tuple(words), sentence, np.stack(by_word), "occlusion", name)
    assert isinstance(scorer, Matcher)
    sentence, *by_word = function(scorer, image, text)
    visible = visible_part(scorer.processor, *size_of_map(image))
    return HeatMaps(text, score, tuple(words), sentence, np.stack(by_word), "attention", name, visible)


def occlusion(scorer: ScoreFunction, image: Image.Image, texts: Sequence[str], cells: int = CELLS) -> np.ndarray:
    """(texts, H, W): how much the score of each text decreases where a cell of the picture is covered, at least 0.

    The picture has cells x cells cells; a covered one has the picture's mean colour. A call has all texts of its
    pictures, so that a scorer encodes each of the cells x cells + 1 pictures once.
    """
    picture = np.asarray(image.convert("RGB"))
    mean = picture.reshape(-1, 3).mean(0).round().astype(np.uint8)

    def places(width: int, height: int) -> list[tuple[slice, slice]]:
        down, right = (
            [slice(size * n // cells, size * (n + 1) // cells) for n in range(cells)] for size in (height, width)
        )
        return [(row, column) for row in down for column in right]

    def scores_of(pictures: Sequence[Image.Image]) -> np.ndarray:
        pairs = [(shown, text) for shown in pictures for text in texts]
        return np.asarray(scorer(*zip(*pairs, strict=True)), np.float64).reshape(len(pictures), len(texts))

    def without(place: tuple[slice, slice]) -> Image.Image:
        pixels = picture.copy()
        pixels[place] = mean
        covered = Image.fromarray(pixels)
        covered.info.update(image.info)
        return covered

    whole, cells_of_picture = scores_of([image])[0], places(*image.size)
    scores = [
        scores_of([without(place) for place in cells_of_picture[n : n + OCCLUSION_BATCH]])
        for n in range(0, len(cells_of_picture), OCCLUSION_BATCH)
    ]
    width, height = size_of_map(image)
    maps = np.zeros((len(texts), height, width), np.float32)
    for place, decrease in zip(places(width, height), whole - np.concatenate(scores), strict=True):
        maps[:, *place] = np.maximum(decrease, 0.0)[:, None, None]
    return maps


# Figure and command -------------------------------------------------------------------------------------------------


def draw_heat_map(maps: HeatMaps, image: Image.Image) -> Any:
    """A matplotlib figure: the picture, and the maps of the sentence and of each word on the picture in grey.

    All words have one scale, so that a word without effect stays clear.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    height, width = maps.sentence.shape
    frame = None if maps.visible == (0, 0, width, height) else maps.visible
    picture = image.convert("RGB").resize((width, height))
    most = float(maps.sentence.max()), float(maps.by_word.max())
    panels = [("picture", np.asarray(picture)), ("whole sentence", overlaid(picture, maps.sentence, most[0]))]
    panels += [
        (word, overlaid(picture, values, most[1])) for word, values in zip(maps.words, maps.by_word, strict=True)
    ]
    columns = min(len(panels), 5)
    rows = -(-len(panels) // columns)
    down = min(max(PANEL * height / width, 0.4), 2 * PANEL) + 0.35
    figure = Figure(figsize=(PANEL * columns, down * rows + 1.1), dpi=100, layout="constrained")
    facts = f"score {maps.score:.3f}{maps.model and ' by ' + maps.model}, maps by {maps.method}"
    title = "\n".join(textwrap.fill(line, round(13 * PANEL * columns)) for line in (maps.text, facts))
    figure.suptitle(title, fontsize=10, parse_math=False)
    for place, (name, pixels) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        axes.imshow(pixels)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color("#bbb")  # so that white pictures have an edge
        axes.set_title(name, fontsize=9, parse_math=False)
        if frame:
            left, top, right, bottom = frame
            edge = Rectangle((left - 0.5, top - 0.5), right - left, bottom - top, fill=False, linestyle="--", alpha=0.6)
            axes.add_patch(edge)
    dashed = " Dashed: the part that the model sees." if frame else ""
    figure.supxlabel(f"Clear: no effect; yellow: some; red: most. All words have one scale.{dashed}", fontsize=8)
    return figure


def overlaid(image: Image.Image, values: np.ndarray, most: float) -> np.ndarray:
    """(H, W, 3) uint8: a map (H, W), from 0 to `most`, over the picture in grey."""
    from matplotlib import colormaps

    part = values / most if most > 0 else np.zeros_like(values)
    grey = np.asarray(image.convert("L").convert("RGB"), np.float32)
    # Yellow to red is visible on white and on black.
    colours = colormaps["autumn_r"](part)[..., :3].astype(np.float32) * 255
    strength = 0.8 * np.sqrt(part)[..., None]
    return np.rint(grey * (1 - strength) + colours * strength).astype(np.uint8)


def heat_map_png(maps: HeatMaps, image: Image.Image) -> bytes:
    data = io.BytesIO()
    draw_heat_map(maps, image).savefig(data, format="png")
    return data.getvalue()


def make_options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser("python -m analysis.probe.heatmaps", description=(__doc__ or "").split("\n\n")[0])
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
        help="a folder of features (UNITER's .npz), by the picture's name",
    )
    return options


def main(arguments: list[str]) -> None:
    options = make_options().parse_args(arguments)
    if options.out.suffix.lower() != ".png":
        raise UsageError(f"--out {options.out}: must end in .png")
    words_in(options.text)
    try:
        image = picture_from(options.image)
    except ValueError as error:
        raise ValueError(f"--image {options.image}: {error}") from None
    scorer = load_matcher(options.model, **model_options.load_settings(options, options.regions))
    maps = heat(scorer, image, options.text, options.method)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_file(options.out, heat_map_png(maps, image))
    print(f"{options.out}: score {maps.score:.4f}, {len(maps.words)} words, by {maps.method}")


if __name__ == "__main__":
    run_command("heatmaps", lambda: main(sys.argv[1:]))
