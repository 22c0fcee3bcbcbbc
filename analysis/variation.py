"""Vision variation: how a score changes as an object moves from the centre to the margin of a picture, and shrinks.

    python -m analysis.variation --model MODEL [--object FILE] [--background FILE] [--sentence TEXT …]

The second half of the toolbox (section 3.2 of "An Explainable Toolbox for Evaluating Pre-trained Vision-Language
Models"), which was never released: one object is pasted on one background at every place of a grid and in every size,
and all sentences are scored with each picture. A good score does not depend on place and size. FOLDER gets
variation.csv (each picture and sentence) and variation.png (a plot); means by place and by size are printed.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from PIL import Image

from analysis.heatmaps import MODELS, read_picture_file
from render.shapes import LEVELS, coverage
from train.ask.matchers.loading import ScoreFunction, load_matcher
from travlr.config import Config
from travlr.config import Image as ImageSettings
from travlr.corpora.pictures import on_white
from travlr.corpora.taxonomy import LOCATIONS, location_class, size_class
from travlr.generate import renderer_of
from travlr.scene import COLOURS, SHAPES, World
from travlr.settings import UsageError, count_text, run_command

GRID = 5
SIZES = (0.04, 0.08, 0.15, 0.3)  # of the background's shorter side; of 672 pixels: small, medium, large and larger
OBJECT = "red circle"
BATCH = 16  # pictures in a call of the model
SIDE = 672  # pixels of a plain background and of a scene, 6 x 6 cells
SHARP = 512  # pixels of a drawn shape before it is scaled down
Box = tuple[int, int, int, int]  # left, top, width and height in pixels


# Pictures ------------------------------------------------------------------------------------------------------------


def paste(background: Image.Image, thing: Image.Image | None, x: float, y: float, size: float) -> Image.Image:
    """A picture, RGB, with an object on it. Parts outside the background are cut off. x, y, size: see `place_box`."""
    picture = on_white(background)
    if thing is not None:
        left, top, width, height = place_box(picture, thing, x, y, size)
        small = thing.convert("RGBA").resize((width, height), Image.Resampling.LANCZOS)
        picture.paste(small, (left, top), small)
    return picture


def place_box(background: Image.Image, thing: Image.Image, x: float, y: float, size: float) -> Box:
    """The box of an object at a place. x, y: its centre, 0 to 1 of the background's width and height. size: its longer
    side, above 0 to 1 of the background's shorter side."""
    factor = max(1, round(size * min(background.size))) / max(thing.size)
    width, height = (max(1, round(length * factor)) for length in thing.size)
    return round(x * background.width - width / 2), round(y * background.height - height / 2), width, height


@functools.lru_cache(maxsize=16)
def draw_shape(shape: str, colour: str, side: int = SHARP) -> Image.Image:
    """A shape of our scenes, RGBA, on transparent ground, cropped to it."""
    pixels = np.empty((side, side, 4), np.uint8)
    pixels[..., :3] = COLOURS[colour]
    pixels[..., 3] = coverage(shape, side, side).astype(np.int64) * 255 // LEVELS
    return cut_out(Image.fromarray(pixels))


def cut_out(picture: Image.Image) -> Image.Image:
    """The visible part of a picture, RGBA."""
    whole = picture.convert("RGBA")
    return whole.crop(whole.getchannel("A").getbbox())


def draw_scene(seed: int, without: Collection[str] = ()) -> Image.Image:
    """A scene of eight objects. without: colours and shapes that it must not show."""
    colours, shapes = (tuple(name for name in names if name not in without) for names in (COLOURS, SHAPES))
    world, random = World(colours=colours, shapes=shapes), np.random.default_rng(seed)
    grid = np.zeros((1, world.cells), np.int64)
    grid[0, random.choice(world.cells, 8, replace=False)] = random.integers(1, len(world.kinds) + 1, 8)
    settings = Config(world=world, image=ImageSettings(cell=SIDE // world.columns))
    return Image.fromarray(renderer_of(settings).arrays(grid)[0])


def read_object(name: str) -> Image.Image:
    """The object that `--object` names: a colour and a shape, or a picture file, RGBA."""
    words = name.split()
    if len(words) == 2 and words[0] in COLOURS and words[1] in SHAPES:
        return draw_shape(words[1], words[0])
    with Image.open(name) as file:
        return cut_out(file)


def background_of(name: str, texts: str = "", seed: int = 0) -> Image.Image:
    """The background that `--background` names: a colour, `scene`, or a picture file. texts: what a scene avoids."""
    if name == "scene":
        return draw_scene(seed, texts.split())
    if name in COLOURS or name == "white":
        return Image.new("RGB", (SIDE, SIDE), COLOURS.get(name, (255, 255, 255)))
    return read_picture_file(Path(name))


# Scores --------------------------------------------------------------------------------------------------------------


def vary(
    model: ScoreFunction,
    background: Image.Image,
    thing: Image.Image,
    sentences: Sequence[str],
    grid: int = GRID,
    sizes: Sequence[float] = SIZES,
) -> pd.DataFrame:
    """The score of each sentence with the object at each place of a grid in each size: a row for each.

    The grid is the same for all sizes and fits the largest. Columns: x, y, size (see `place_box`), distance (of the
    centres of object and picture, as a part of half the diagonal), location and size_class (VL-CheckList's), sentence,
    score. Raises `ValueError` where the model does not return a finite number for each.
    """
    half = max(sizes) * min(background.size) / 2
    across, down = (np.linspace(half / side, 1 - half / side, grid).tolist() for side in background.size)
    where = [(x, y, size) for size in sorted(sizes, reverse=True) for y in down for x in across]
    rows = []
    for start in range(0, len(where), BATCH):
        batch = where[start : start + BATCH]
        images = [picture for place in batch for picture in [paste(background, thing, *place)] * len(sentences)]
        scores = np.asarray(model(images, list(sentences) * len(batch)), np.float64)
        if scores.shape != (len(images),) or not np.isfinite(scores).all():
            raise ValueError(f"the model gave no finite number for each of {len(images)} pictures with a sentence")
        for place, of_picture in zip(batch, scores.reshape(len(batch), -1).tolist(), strict=True):
            box = place_box(background, thing, *place)
            (x, y, w, h), (width, height) = box, background.size
            distance = math.hypot(2 * x + w - width, 2 * y + h - height) / math.hypot(width, height)
            classes = location_class(box, width, height), size_class(box, width, height)
            rows += [(*place, distance, *classes, *pair) for pair in zip(sentences, of_picture, strict=True)]
    columns = ["x", "y", "size", "distance", "location", "size_class", "sentence", "score"]
    return pd.DataFrame(rows, columns=columns)


def add_margins(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of `vary`, and the margin of the first sentence over each other one as rows of further sentences."""
    first, *others = (rows.reset_index(drop=True) for _, rows in frame.groupby("sentence", sort=False))
    margins = [
        first.assign(score=first["score"] - other["score"], sentence=f"{first['sentence'][0]} − {other['sentence'][0]}")
        for other in others
    ]
    return pd.concat([frame, *margins], ignore_index=True)


def mean_scores(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean scores of each sentence: overall, by location and by size."""
    locations = frame.pivot_table("score", "sentence", "location", sort=False).reindex(columns=list(LOCATIONS))
    sizes = frame.pivot_table("score", "sentence", "size", sort=False).rename(columns=lambda size: f"size {size:g}")
    return frame.groupby("sentence", sort=False)["score"].mean().to_frame("mean").join(locations).join(sizes)


def plot(frame: pd.DataFrame, title: str) -> Figure:
    """A row for each sentence: scores by distance from the centre, a line for each size, and by place for each size."""
    sentences, sizes = (list(frame[name].unique()) for name in ("sentence", "size"))
    figure = Figure(figsize=(2.6 + 1.9 * len(sizes), 0.4 + 2.1 * len(sentences)), layout="constrained")
    figure.suptitle(title, fontsize=10, parse_math=False)
    panels = figure.subplots(len(sentences), 1 + len(sizes), squeeze=False, width_ratios=[1.6, *[1.0] * len(sizes)])
    for row, sentence in zip(panels, sentences, strict=True):
        part = frame[frame["sentence"] == sentence]
        means = part.assign(distance=part["distance"].round(2), size=part["size"].map("{:g}".format))
        sns.lineplot(means, x="distance", y="score", hue="size", style="size", markers=True, errorbar=None, ax=row[0])
        row[0].get_legend().remove()
        row[0].set_xlabel("distance from the centre")
        row[0].set_title(sentence, fontsize=8, loc="left", parse_math=False)
        for axes, size in zip(row[1:], sizes, strict=True):
            cells = part[part["size"] == size].pivot(index="y", columns="x", values="score")
            limits = {"vmin": part["score"].min(), "vmax": part["score"].max()}
            sns.heatmap(cells, cmap="cividis", cbar=size == sizes[-1], ax=axes, square=True, **limits)
            axes.set(xlabel=f"size {size:g}", ylabel="", xticks=[], yticks=[])
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, [f"size {label}" for label in labels], loc="outside lower left", ncols=len(labels))
    return figure


# Command line --------------------------------------------------------------------------------------------------------


def sentences_of(options: argparse.Namespace) -> list[str]:
    """Those of the command, or one about the object and one about another."""
    words = options.object.split()
    if options.sentence:
        return list(dict.fromkeys(options.sentence))
    if len(words) != 2 or words[1] not in SHAPES:
        raise UsageError("--sentence: give a sentence about the object, such as --sentence 'an apple on the grass'")
    other = "blue star" if options.object != "blue star" else OBJECT
    article = "an" if options.object[0] in "aeiou" else "a"
    return [f"there is {article} {options.object} in the picture", f"there is a {other} in the picture"]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("python -m analysis.variation", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", required=True, help=MODELS)
    parser.add_argument(
        "--object", default=OBJECT, help="a picture file, or a colour and a shape (default: %(default)s)"
    )
    parser.add_argument(
        "--background", default="white", help="a picture file, a colour, white or scene (default: %(default)s)"
    )
    parser.add_argument(
        "--sentence",
        action="append",
        metavar="TEXT",
        help="may be repeated; the first is compared with the others (default: about the object, and about another)",
    )
    parser.add_argument("--out", type=Path, default=Path("variation"), metavar="FOLDER", help="(default: %(default)s)")
    options = parser.parse_args(arguments)
    sentences = sentences_of(options)
    background = background_of(options.background, " ".join([options.object, *sentences]))
    model = load_matcher(options.model)
    frame = vary(model, background, read_object(options.object), sentences)
    margins = add_margins(frame)
    options.out.mkdir(parents=True, exist_ok=True)
    frame.to_csv(options.out / "variation.csv", index=False)
    title = f"{options.model}: {options.object} on {options.background}"
    plot(margins, title).savefig(options.out / "variation.png", dpi=150)
    print(mean_scores(margins).to_string(float_format="{:.4g}".format, na_rep="–"))
    print(f"{options.out}: variation.csv and variation.png, of {count_text(len(frame) // len(sentences), 'picture')}")


if __name__ == "__main__":
    run_command("variation", lambda: main(sys.argv[1:]))
