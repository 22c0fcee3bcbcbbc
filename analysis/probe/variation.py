"""Vision variation: how a score changes as an object moves from the centre to the margin of a picture, and shrinks.

    python -m analysis.probe.variation --model MODEL [--object FILE] [--background FILE] [--sentence TEXT …]

The second half of the toolbox (section 3.2 of "An Explainable Toolbox for Evaluating Pre-trained Vision-Language
Models"), which was never released: one object is pasted on one background at every place of a grid and in every size,
and all sentences are scored with each picture. A good score does not depend on place and size. FOLDER gets
variation.csv (each picture and sentence), variation.md (means by place and by size), variation.svg and .png (plots) and
variation.json (settings and provenance).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image

from analysis.pasting import SIDE, find_box, object_from, picture_from, placed, scene, shape_picture
from analysis.probe import model_options
from train.ask.matchers.loading import ScoreFunction
from travlr.corpora.taxonomy import LOCATIONS, location_class, size_class
from travlr.scene import COLOURS, SHAPES
from travlr.settings import UsageError, run_command

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

GRID = 5
SIZES = (0.04, 0.08, 0.15, 0.3)  # of the background's shorter side; of 672 pixels: small, medium, large and larger
OBJECT = "red circle"
BATCH = 16  # pictures in a call of the scorer
ROUNDING = 1e-6  # relative difference of scores that a plot shows as equal
RECORD, TABLE = "variation.json", "variation.md"


class Placement(NamedTuple):
    """The place and size of an object. x, y: its centre, 0 to 1 of the background's width and height. size: its longer
    side, above 0 to 1 of the background's shorter side."""

    x: float
    y: float
    size: float


# Pictures ------------------------------------------------------------------------------------------------------------


def places(width: int, height: int, grid: int = GRID, sizes: Sequence[float] = SIZES) -> list[Placement]:
    """All places of a grid in each size, the largest first. The grid is the same for all sizes and fits the largest.

    Raises `ValueError` for a grid of less than 2, and for sizes that are repeated, not between 0 and 1, or less than a
    pixel.
    """
    if grid < 2:
        raise ValueError(f"grid={grid}: must be at least 2, from one margin to the other")
    if not sizes or len(set(sizes)) < len(sizes) or not all(0 < size < 1 for size in sizes):
        raise ValueError(f"sizes={' '.join(map(str, sizes))}: must be different, above 0 and below 1")
    if min(sizes) * min(width, height) < 1:
        raise ValueError(f"sizes={min(sizes)}: is less than a pixel of a background of {width} x {height}")
    half = max(sizes) * min(width, height) / 2
    across, down = (np.linspace(half / length, 1 - half / length, grid).tolist() for length in (width, height))
    return [Placement(x, y, size) for size in sorted(sizes, reverse=True) for y in down for x in across]


def place_object(name: str) -> Image.Image:
    """The object that `--object` names: a picture file, RGBA, or a colour and a shape. Raises `ValueError`."""
    words = name.split()
    if len(words) == 2 and words[0] in COLOURS and words[1] in SHAPES:
        picture = shape_picture(words[1], words[0])
        return picture.crop(picture.getchannel("A").getbbox())
    try:
        return object_from(Path(name))
    except ValueError as error:
        message = f"--object {name}: {error}; give a picture file, or a colour and a shape such as '{OBJECT}'"
        raise ValueError(message) from None


def background_of(name: str, texts: str = "", seed: int = 0) -> Image.Image:
    """The background that `--background` names: a picture file, RGB, a colour, or `scene`, eight small objects.

    texts: the object and the sentences, whose colours and shapes a scene avoids. Raises `ValueError`.
    """
    if name in COLOURS or name == "white":
        return Image.new("RGB", (SIDE, SIDE), COLOURS.get(name, (255, 255, 255)))
    try:
        return scene(seed, texts.split()) if name == "scene" else picture_from(Path(name))
    except ValueError as error:
        choices = "" if name == "scene" else "; give a picture file, a colour, white or scene"
        raise ValueError(f"--background {name}: {error}{choices}") from None


# Scores --------------------------------------------------------------------------------------------------------------


def vary(
    scorer: ScoreFunction,
    background: Image.Image,
    thing: Image.Image,
    sentences: Sequence[str],
    where: Sequence[Placement],
) -> pd.DataFrame:
    """The score of each sentence with each picture: a row for each, with x, y and size as of `Placement`, distance (of
    the centres of object and picture, as a part of half the diagonal), location and size_class (VL-CheckList's),
    sentence and score. Raises `ValueError` where the scorer fails, or does not return a number for each."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for start in range(0, len(where), BATCH):
        batch = where[start : start + BATCH]
        pictures = [placed(background, thing, *place) for place in batch]
        scores = _scored(scorer, pictures, sentences)
        for place, picture_scores in zip(batch, scores, strict=True):
            box = find_box(background, thing, *place)
            columns = {
                **place._asdict(),
                "distance": _distance(box, *background.size),
                "location": location_class(box, *background.size),
                "size_class": size_class(box, *background.size),
            }
            rows += [
                {**columns, "sentence": sentence, "score": float(score)}
                for sentence, score in zip(sentences, picture_scores, strict=True)
            ]
    return pd.DataFrame(rows)


def _distance(box: Sequence[float], width: int, height: int) -> float:
    x, y, w, h = box
    return math.hypot(2 * x + w - width, 2 * y + h - height) / math.hypot(width, height)


def _scored(scorer: ScoreFunction, pictures: Sequence[Image.Image], sentences: Sequence[str]) -> np.ndarray:
    """(pictures, sentences) scores."""
    images = [picture for picture in pictures for _ in sentences]
    name = getattr(scorer, "name", "the scorer")
    try:
        scores = np.asarray(scorer(images, list(sentences) * len(pictures)), np.float64)
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(f"{name} failed: {' '.join(f'{type(error).__name__}: {error}'.split())[:300]}") from None
    if scores.shape != (len(images),) or not np.isfinite(scores).all():
        raise ValueError(f"{name} returned no finite number for each of {len(images)} pictures with a sentence")
    return scores.reshape(len(pictures), len(sentences))


def with_margins(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of `vary`, and rows with the margin of the first sentence over each other one, as further sentences."""
    import pandas as pd

    first, *others = (rows.reset_index(drop=True) for _, rows in frame.groupby("sentence", sort=False))
    names = [f"{first['sentence'][0]} − {other['sentence'][0]}" for other in others]
    scores = [first["score"] - other["score"] for other in others]
    margins = [first.assign(score=score, sentence=name) for score, name in zip(scores, names, strict=True)]
    return pd.concat([frame, *margins], ignore_index=True)


def changes(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean scores of each sentence: overall, by location and by size, and the changes from centre to margin and from
    largest to smallest. NaN for a class of location without places."""
    by = frame.groupby("sentence", sort=False)["score"]
    locations = frame.pivot_table("score", "sentence", "location", sort=False).reindex(columns=LOCATIONS)
    sizes = frame.pivot_table("score", "sentence", "size", sort=False)
    sizes = sizes[sorted(sizes, reverse=True)]
    table = by.mean().to_frame("mean").join(locations)
    table["center to margin"] = locations["margin"] - locations["center"]
    table = table.join(sizes.rename(columns=lambda size: f"size {size:g}"))
    return table.assign(**{"large to small": sizes.iloc[:, -1] - sizes.iloc[:, 0]}).reset_index()


# Files ---------------------------------------------------------------------------------------------------------------


def markdown(frame: pd.DataFrame, about: dict[str, Any]) -> str:
    from analysis.layout import Cell, Table

    table = changes(with_margins(frame))
    texts = table.map(lambda value: value if isinstance(value, str) else "–" if math.isnan(value) else f"{value:.4g}")
    rows = tuple(tuple(map(Cell, row)) for row in texts.itertuples(index=False))
    notes = (
        f"Model: {about['model']}. Object: {about['object']}. Background: {about['background']}.",
        "Means over all places of a class; center, mid and margin by VL-CheckList's formula. Sizes: the object's "
        "longer side as a part of the background's shorter side.",
        "A row with − is the margin of the first sentence over another; – stands for a class without places.",
    )
    columns = tuple(("", str(name)) for name in table.columns)
    return Table("variation", "How scores move with an object's place and size", columns, rows, table, notes).markdown()


def plot(frame: pd.DataFrame, about: dict[str, Any]) -> Figure:
    """A row for each sentence: scores by distance from the centre, a line for each size, and by place for each size."""
    from matplotlib.lines import Line2D

    from analysis.panels import MARKERS, cell_grid, colour_scale, label_axes, panel_figure

    with_margin = with_margins(frame)
    sentences, sizes = list(with_margin["sentence"].unique()), sorted(with_margin["size"].unique(), reverse=True)
    styles = dict(zip(sizes, MARKERS * len(sizes), strict=False))
    key = [
        Line2D([], [], color=colour, marker=marker, markersize=4, label=f"size {size:g}")
        for size, (colour, marker) in styles.items()
    ]
    note = (
        "Left: means of places that are equally far from the centre; 0 is the centre, 1 a corner. Right: scores by "
        "place, as the picture has them. Sizes: the object's longer side as a part of the background's shorter side."
    )
    title = [
        "How scores move with an object's place and size",
        f"{about['model']}; {about['object']} on {about['background']}",
    ]
    figure, panels = panel_figure(title, len(sentences), [(2.0, 1.3), *[(1.3, 1.3)] * len(sizes)], note=note, key=key,
                          left=0.8, right=1.0, gap=(0.25, 0.6))  # fmt: skip
    for row, sentence in zip(panels, sentences, strict=True):
        part = with_margin[with_margin["sentence"] == sentence]
        for size, (colour, marker) in styles.items():
            of_size = part[part["size"] == size]
            means = of_size.groupby(of_size["distance"].round(2))["score"].mean()
            row[0].plot(means.index, means, color=colour, marker=marker, markersize=3.5, linewidth=1.2)
        row[0].set_xlim(0, None)
        row[0].locator_params("y", nbins=5)
        fits = round(16 * (3 + 1.55 * len(sizes)))  # characters, 16 per inch
        label_axes(row[0], textwrap.shorten(sentence, fits, placeholder=" …"), "distance from the centre", "score")
        low, high = float(part["score"].min()), float(part["score"].max())
        if high - low <= ROUNDING * max(abs(low), abs(high)):  # else rounding errors would fill the scale
            low, high = low - 0.5, low + 0.5
        for axes, size in zip(row[1:], sizes, strict=True):
            cells = part[part["size"] == size].pivot(index="y", columns="x", values="score").sort_index(ascending=False)
            cell_grid(axes, cells.to_numpy(), [""] * cells.shape[1], [""] * cells.shape[0], low, high)
            label_axes(axes, "", f"size {size:g}")
        shades = colour_scale(figure, row[-1], low, high, "score")
        ticks = np.linspace(low, high, 5)
        shades.set_yticks(ticks, [f"{tick:.4g}" for tick in ticks])
    return figure


def write_variation(folder: Path, frame: pd.DataFrame, about: dict[str, Any]) -> None:
    """Write all files of a variation, over those of an earlier one."""
    from analysis.panels import save

    folder.mkdir(parents=True, exist_ok=True)
    save(plot(frame, about), str(folder), "variation", ("svg", "png"))
    frame.to_csv(folder / "variation.csv", index=False)
    (folder / RECORD).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    (folder / TABLE).write_text(markdown(frame, about), encoding="utf-8")


# Command line --------------------------------------------------------------------------------------------------------


def make_parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        "python -m analysis.probe.variation", description=(__doc__ or "").split("\n\n")[0]
    )
    options.add_argument("--model", required=True, help=model_options.MODEL)
    options.add_argument(
        "--object",
        default=OBJECT,
        metavar="FILE",
        help="an image file, its transparent parts left out, or a colour and a shape (default: %(default)s)",
    )
    options.add_argument(
        "--background",
        default="white",
        metavar="FILE",
        help="an image file, a colour, white or scene (default: %(default)s)",
    )
    options.add_argument(
        "--sentence",
        action="append",
        metavar="TEXT",
        help="may be repeated; the first is compared with the others (default: about the object, and about another)",
    )
    options.add_argument("--grid", type=int, default=GRID, help="places across and down (default: %(default)s)")
    options.add_argument(
        "--sizes",
        type=float,
        nargs="+",
        default=list(SIZES),
        metavar="PART",
        help="the object's longer side, as parts of the background's shorter side (default: %(default)s)",
    )
    options.add_argument("--seed", type=int, default=0, help="of the background scene (default: %(default)s)")
    model_options.add_options(options)
    options.add_argument("--out", type=Path, default=Path("variation"), help="(default: %(default)s)")
    return options


def sentences_of(options: argparse.Namespace) -> list[str]:
    if options.sentence:
        sentences = list(options.sentence)
    elif len(options.object.split()) == 2 and options.object.split()[1] in SHAPES:
        other = "blue star" if options.object != "blue star" else OBJECT
        article = "an" if options.object[0] in "aeiou" else "a"
        sentences = [f"there is {article} {options.object} in the picture", f"there is a {other} in the picture"]
    else:
        raise UsageError("--sentence: give a sentence about the object, such as --sentence 'an apple on the grass'")
    if len(set(sentences)) < len(sentences) or not all(sentence.strip() for sentence in sentences):
        raise UsageError("--sentence: give sentences that are not empty and differ")
    return sentences


def main(arguments: list[str]) -> None:
    from train.ask.matchers.loading import digest_weights_of, load_matcher
    from train.results.provenance import environment
    from travlr.formats.manifest import versions

    options = make_parser().parse_args(arguments)
    thing = place_object(options.object)
    sentences = sentences_of(options)
    background = background_of(options.background, " ".join([options.object, *sentences]), options.seed)
    where = places(*background.size, options.grid, options.sizes)
    about: dict[str, Any] = {
        **{name: getattr(options, name) for name in ("model", "head", "object", "background")},
        "sentences": sentences,
        "grid": options.grid,
        "sizes": sorted(options.sizes, reverse=True),
        "seed": options.seed,
        "versions": versions() | environment(),
        "weights": [digest_weights_of(options.model)],
    }
    scorer = load_matcher(options.model, **model_options.load_settings(options))
    write_variation(options.out, vary(scorer, background, thing, sentences, where), about)
    print((options.out / TABLE).read_text(encoding="utf-8"))
    print(f"{options.out}: variation.md, .csv, .svg and .png, of {len(where)} pictures")


if __name__ == "__main__":
    run_command("variation", lambda: main(sys.argv[1:]))
