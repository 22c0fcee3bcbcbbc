"""Heat maps of where a model looks, for a sentence and for each of its words.

    python -m analysis.heatmaps --model MODEL --image FILE --text "a red circle" [--out heatmap.png]

A model's attention is weighted by its gradient (`analysis.attention`: CLIP, ViLT, VisualBERT, UNITER, LXMERT, ALBEF).
For any other model, one part of the picture after the other is covered, and the decrease of the
score is shown. A word's map is that of the word as a sentence.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from PIL import Image

from analysis.attention import heat_map_function, size_of_map
from train.ask.matchers.base import WORD, Matcher
from train.ask.matchers.loading import ScoreFunction, load_matcher
from train.config import RegionSettings
from travlr.corpora.pictures import on_white
from travlr.settings import count_text, run_command

CELLS = 8  # of occlusion, along each side of the picture
OCCLUSION_BATCH = 8  # pictures in a call of occlusion
MODELS = "a folder or hub name of CLIP's kind, visualbert:FILE, uniter:FILE, lxmert:FILE, albef:FILE, MODULE:FUNCTION"
PANEL = 2.3  # width of a panel of the figure, in inches


@dataclass(frozen=True)
class HeatMaps:
    """Heat maps of a sentence and its words.

    words: the words of the text, in order. sentence: (H, W), at least 0, for each pixel of the picture, which is scaled
    down to 640 on its longer side. by_word: (words, H, W), likewise. method: attention or occlusion.
    """

    text: str
    score: float
    words: tuple[str, ...]
    sentence: np.ndarray
    by_word: np.ndarray
    method: str


def heat(model: ScoreFunction, image: Image.Image, text: str, cells: int = CELLS) -> HeatMaps:
    """Heat maps of a picture for a text: by attention where the model supports it, else by occlusion.

    Raises `ValueError` for a text without words.
    """
    words = WORD.findall(text)
    if not words:
        raise ValueError(f"{text!r}: has no words; a heat map needs some")
    score = float(model([image], [text])[0])
    function = heat_map_function(model) if isinstance(model, Matcher) else None
    if function is None:
        sentence, *by_word = occlusion(model, image, [text, *words], cells)
        return HeatMaps(text, score, tuple(words), sentence, np.stack(by_word), "occlusion")
    assert isinstance(model, Matcher)
    sentence, *by_word = function(model, image, text)
    return HeatMaps(text, score, tuple(words), sentence, np.stack(by_word), "attention")


def occlusion(model: ScoreFunction, image: Image.Image, texts: Sequence[str], cells: int = CELLS) -> np.ndarray:
    """(texts, H, W): how much the score of each text decreases where a cell of the picture is covered, at least 0.

    The picture has cells x cells cells; a covered one has the picture's mean colour. A call has all texts of its
    pictures, so that a model encodes each picture once.
    """
    picture = np.asarray(image.convert("RGB"))
    mean = picture.reshape(-1, 3).mean(0).round().astype(np.uint8)

    def places(width: int, height: int) -> list[tuple[slice, slice]]:
        down, right = ([slice(s * n // cells, s * (n + 1) // cells) for n in range(cells)] for s in (height, width))
        return [(row, column) for row in down for column in right]

    def scores_of(pictures: Sequence[Image.Image]) -> np.ndarray:
        pairs = [(shown, text) for shown in pictures for text in texts]
        return np.asarray(model(*zip(*pairs, strict=True)), np.float64).reshape(len(pictures), len(texts))

    def covered(place: tuple[slice, slice]) -> Image.Image:
        pixels = picture.copy()
        pixels[place] = mean
        shown = Image.fromarray(pixels)
        shown.info.update(image.info)
        return shown

    cells_of_picture = places(*image.size)
    batches = range(0, len(cells_of_picture), OCCLUSION_BATCH)
    scores = [scores_of([covered(place) for place in cells_of_picture[n : n + OCCLUSION_BATCH]]) for n in batches]
    decreases = scores_of([image]) - np.concatenate(scores)
    width, height = size_of_map(image)
    maps = np.zeros((len(texts), height, width), np.float32)
    for place, decrease in zip(places(width, height), decreases, strict=True):
        maps[:, *place] = np.maximum(decrease, 0.0)[:, None, None]
    return maps


# Figure and command -------------------------------------------------------------------------------------------------


def draw_heat_map(maps: HeatMaps, image: Image.Image, model: str = "") -> Figure:
    """The picture, and the maps of the sentence and of each word on the picture in grey.

    All words have one scale, so that a word without effect stays clear.
    """
    height, width = maps.sentence.shape
    picture = image.convert("RGB").resize((width, height))
    panels = {"picture": np.asarray(picture), "whole sentence": overlay(picture, maps.sentence, maps.sentence.max())}
    most = maps.by_word.max()
    words = [(word, overlay(picture, values, most)) for word, values in zip(maps.words, maps.by_word, strict=True)]
    shown = [*panels.items(), *words]
    columns = min(len(shown), 5)
    rows = -(-len(shown) // columns)
    size = (PANEL * columns, (min(max(PANEL * height / width, 0.4), 2 * PANEL) + 0.35) * rows + 1.1)
    figure = Figure(figsize=size, dpi=100, layout="constrained")
    facts = f"score {maps.score:.3f}{model and ' by ' + model}, maps by {maps.method}"
    title = "\n".join(textwrap.fill(line, round(13 * size[0])) for line in (maps.text, facts))
    figure.suptitle(title, fontsize=10, parse_math=False)
    for place, (name, pixels) in enumerate(shown):
        axes = figure.add_subplot(rows, columns, place + 1)
        axes.imshow(pixels)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color("#bbb")  # so that white pictures have an edge
        axes.set_title(name, fontsize=9, parse_math=False)
    figure.supxlabel("Clear: no effect; yellow: some; red: most. All words have one scale.", fontsize=8)
    return figure


def overlay(image: Image.Image, values: np.ndarray, most: float) -> np.ndarray:
    """(H, W, 3) uint8: a map (H, W), from 0 to `most`, over the picture in grey."""
    part = values / most if most > 0 else np.zeros_like(values)
    grey = np.asarray(image.convert("L").convert("RGB"), np.float32)
    # Yellow to red is visible on white and on black.
    colours = colormaps["autumn_r"](part)[..., :3].astype(np.float32) * 255
    strength = 0.8 * np.sqrt(part)[..., None]
    return np.rint(grey * (1 - strength) + colours * strength).astype(np.uint8)


def read_picture_file(path: Path) -> Image.Image:
    """A user's picture, RGB, transparent parts on white. Regions are found by its name."""
    with Image.open(path) as file:
        picture = on_white(file)
    picture.info["path"] = path.name
    return picture


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("python -m analysis.heatmaps", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", required=True, help=MODELS)
    parser.add_argument("--head", choices=("itm", "itc"), help="of models with both (default: the model's own)")
    parser.add_argument(
        "--regions", metavar="FOLDER", help="of visualbert, uniter and lxmert: UNITER's .npz, by picture"
    )
    parser.add_argument("--image", required=True, type=Path, metavar="FILE", help="the picture")
    parser.add_argument("--text", required=True, help="a sentence")
    parser.add_argument("--out", type=Path, default=Path("heatmap.png"), metavar="FILE", help="(default: %(default)s)")
    options = parser.parse_args(arguments)
    image = read_picture_file(options.image)
    regions = RegionSettings(source=options.regions) if options.regions else None
    maps = heat(load_matcher(options.model, head=options.head, regions=regions), image, options.text)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    draw_heat_map(maps, image, options.model).savefig(options.out)
    print(f"{options.out}: score {maps.score:.4f}, {count_text(len(maps.words), 'word')}, by {maps.method}")


if __name__ == "__main__":
    run_command("heatmaps", lambda: main(sys.argv[1:]))
