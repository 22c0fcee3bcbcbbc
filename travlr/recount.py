"""A second look at one row: what its caption, query text and pixels say, worked out by nothing that made them.

`travlr.scene` defines answers and pairs for the generator; here they are restated from the paper with sets of cells,
so that an audit compares two workings and not one with itself.
"""

from __future__ import annotations

import functools
import io
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from render.image import Renderer
from render.text import caption_of, parse_caption
from travlr.config import Config, Image
from travlr.dataset import example_id, parse_query_form
from travlr.scene import Query, Scene, World
from travlr.task import Cells, CellsOf, Pair
from travlr.tasks import TASKS, parse_query

Counts = Mapping[Any, Sequence[int]]  # what a rule looks at -> numbers of false and of true examples
Thing = tuple[str, str, str, int, int]  # colour, shape, size, row, column

# What each row is checked for, and what it means that all is well.
ROW_CHECKS = {
    "ids": "numbered in order; one task",
    "caption": "read back: the objects column, in its order",
    "image": "read back: every pixel is as the objects column says",
    "query": "read back: query_form",
    "queried": "marked are the objects that the query names",
    "answer": "worked out anew from the caption",
    "pair": "worked out anew from the caption",
    "settings": "objects, numbers and distractors are within the settings",
    "held-out pairs": "shown by test_ood queries, and by no other split's",
    "held-out numbers in scenes": "no scene shows one, but for what test_ood asks about",
    "held-out queries": "asked in test_ood, and nowhere else",
}
# Rules that predict answers without the objects that decide, for every task; a task adds its own `shortcuts`.
QUERY, TOTAL = "shortcut: query text", "shortcut: query text and number of objects"

WHITE, INK = 236, 0.04  # a cell holds an object where more than INK of it is darker; JPEG noise is less, shapes more
JPEG_ERROR = 36  # of a channel; saving as JPEG leaves up to 29, another object makes 75 in the paper's world


@dataclass(frozen=True)
class Rules:
    """What a row is held against: its dataset's settings, None where another program made it; the pairs and queries
    that only test_ood may show; and whether pictures are exact, to the pixel."""

    config: Config | None
    pairs: frozenset[Pair]
    queries: frozenset[frozenset[str]]
    exact: bool


class Row(NamedTuple):
    id: str
    image: dict[str, Any]
    caption: str
    query: str
    answer: bool
    task: str
    pair: list[str]
    form: str
    things: list[Thing]
    queried: list[bool]


def rows_of(table: pa.Table) -> Iterator[Row]:
    names = ("id", "image", "caption", "query", "answer", "task", "pair", "query_form")
    objects = table["objects"].combine_chunks()
    *fields, queried = (column.to_pylist() for column in objects.flatten().flatten())
    things, start = list(zip(*fields, strict=True)), 0
    lengths = objects.value_lengths().to_pylist()
    for length, *values in zip(lengths, *(table[name].to_pylist() for name in names), strict=True):
        stop = start + length
        yield Row._make([*values, things[start:stop], queried[start:stop]])
        start = stop


def examine_row(rules: Rules, row: Row, split: str, number: int) -> tuple[dict[str, str], list[tuple[str, Any]]]:
    """Check -> what is wrong, or nothing, as far as the row can be read; and (rule, what it looks at) once it could."""
    config = rules.config
    name = config.task if config else row.task
    due = example_id(name, split, number)
    numbered = (row.id, Path(row.image["path"]).stem, row.task) == (due, due, name)
    problems = {"ids": "" if numbered else f"id, picture or task is not that of {due}"}
    try:
        columns, rows, scene = parse_caption(row.caption, config.world.sizes[0] if config else "medium")
        world = config.world if config else World(columns=columns, rows=rows)
    except ValueError as error:
        return problems | {"caption": str(error)}, []
    problems["caption"] = misread(row, scene, world)
    problems["image"] = misdrawn(rules, row, world)
    try:
        query, form = parse_query(row.query), parse_query_form(row.form)
    except ValueError as error:
        return problems | {"query": str(error)}, []
    problems["query"] = "" if query == form and query.task == name else f"{row.query} is not {row.form}"
    task, cells = TASKS[query.task], cells_of(scene)
    asked = set().union(*(cells[query.args[i]] for i in task.described))
    marked = {thing[3:] for thing, flag in zip(row.things, row.queried, strict=True) if flag}
    problems["queried"] = "" if marked == asked else f"{len(marked)} objects, but the query names {len(asked)} others"
    try:
        answer, pair = task.recount(query.args, cells)
    except ValueError as error:
        return problems | {"answer": str(error)}, []
    problems["answer"] = "" if answer == row.answer else f"says {row.answer}, the scene {answer}: {row.query}"
    problems["pair"] = "" if list(pair) == row.pair else f"says {' '.join(row.pair)}, the scene {' '.join(pair)}"
    if config:
        problems["settings"] = outside_settings(config, query, pair, scene, cells)
    problems |= misplaced(rules, split, query, pair, cells)
    shortcuts = [(QUERY, row.query), (TOTAL, (row.query, len(scene))), *task.features(query.args, cells, len(scene))]
    return problems, [("pair", " ".join(pair)), *shortcuts]


def misplaced(rules: Rules, split: str, query: Query, pair: Pair, cells: CellsOf) -> dict[str, str]:
    """Check -> problem, or nothing, of what is held out: exactly the rows of test_ood show such a thing."""
    out, problems = split == "test_ood", {}
    if rules.pairs:
        held = pair in rules.pairs
        problems["held-out pairs"] = "" if held == out else f"{' '.join(pair)} is {'' if held else 'not '}held out"
        shown = TASKS[query.task].other_pairs(query.args, cells)
        if shown:
            extra = " ".join(min((shown if out else shown | {pair}) & rules.pairs, default=()))
            problems["held-out numbers in scenes"] = f"shows {extra}" if extra else ""
    if rules.queries:
        held = TASKS[query.task].held_out_key(query.args) in rules.queries
        problems["held-out queries"] = "" if held == out else f"what it asks is {'' if held else 'not '}held out"
    return problems


def score(fitted: Counts, scored: Counts) -> tuple[float, int]:
    """How many examples a rule answers right, and of how many: fitted on the first counts, scored on the second.

    Counts: what the rule looks at -> numbers of false and of true examples. Half of the examples are right where as
    many were true as false, or where nothing was seen in fitting.
    """
    right, total = 0.0, 0
    for feature, (false, true) in scored.items():
        fitted_false, fitted_true = fitted.get(feature, (0, 0))
        lean = (fitted_true > fitted_false) - (fitted_true < fitted_false)
        right += (false + true + lean * (true - false)) / 2
        total += false + true
    return right, total


# What a scene says -------------------------------------------------------------------------------------------------


def cells_of(scene: Scene) -> CellsOf:
    """The cells of all objects that a colour, a shape or both describe."""
    cells: dict[str, Cells] = defaultdict(set)
    for o in scene:
        for words in (o.colour, o.shape, f"{o.colour} {o.shape}"):
            cells[words].add((o.row, o.column))
    return cells


def recount(query: Query, scene: Scene) -> tuple[bool, Pair]:
    """Answer and pair of a query, by the task's own recount."""
    return TASKS[query.task].recount(query.args, cells_of(scene))


def outside_settings(config: Config, query: Query, pair: Pair, scene: Scene, cells: CellsOf) -> str:
    """What a scene shows that the settings of its dataset rule out, if anything."""
    if strange := [o for o in scene if (o.size, o.shape, o.colour) not in config.world.number]:
        return f"{strange[0].size} {strange[0].colour} {strange[0].shape} is not of this world"
    limits = TASKS[query.task].limits(config, query.args, pair, cells, len(scene))
    return next((f"{name} {list(r)}, but {n}" for name, n, r in limits if not r[0] <= n <= r[1]), "")


def misread(row: Row, scene: Scene, world: World) -> str:
    """Where a caption and the objects column differ, if anywhere."""
    said = [(o.colour, o.shape, o.size, o.row, o.column) for o in scene]
    if len(said) != len(row.things):
        return f"names {len(said)} objects, the objects column {len(row.things)}"
    if differing := [(a, b) for a, b in zip(said, row.things, strict=True) if a != b]:
        return f"says {differing[0][0]}, the objects column {differing[0][1]}"
    return "" if caption_of(scene, world) == row.caption else f"another wording or grid: {row.caption[:120]}"


# Pictures ----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def renderer_of(world: World, image: Image) -> Renderer:
    return Renderer(world, image.cell, {size: getattr(image, size) for size in world.sizes})


def misdrawn(rules: Rules, row: Row, world: World) -> str:
    """Where a picture and the objects column differ, if anywhere.

    They are compared in every pixel, but for what JPEG loses where pictures are not exact; or, where without a config
    the way of drawing is not known, in which cells are empty.
    """
    from PIL import Image as pillow

    config, things = rules.config, row.things
    try:
        picture = pillow.open(io.BytesIO(row.image["bytes"]), formats=("PNG",) if rules.exact else ("PNG", "JPEG"))
        if picture.width * picture.height > 1 << 26:
            return f"a picture of {picture.width} x {picture.height} pixels"
        picture.load()
    except Exception as error:  # Pillow raises many kinds for damaged files
        return f"not a readable picture ({type(error).__name__})"
    if not all(0 <= y < world.rows and 0 <= x < world.columns for *_, y, x in things):
        return "an object lies outside the grid"
    if config is None:
        wrong = inked_cells(np.asarray(picture.convert("RGB")), world.columns, world.rows) ^ {
            thing[3:] for thing in things
        }
    else:
        renderer = renderer_of(world, config.image)
        if picture.size != (renderer.width, renderer.height):
            return f"{picture.width} x {picture.height} pixels, not {renderer.width} x {renderer.height}"
        grid = np.zeros((world.rows, world.columns), np.intp)
        for colour, shape, size, y, x in things:
            grid[y, x] = world.number.get((size, shape, colour), 0)
        wrong = differing_cells(renderer, picture, grid)
    return f"differs at {chr(65 + min(wrong)[1])} {min(wrong)[0] + 1}" if wrong else ""


def differing_cells(renderer: Renderer, picture: Any, grid: np.ndarray) -> Cells:
    """Cells where a picture is not what the sprites of a grid of kinds make."""
    palette = renderer.palette.ravel().tolist()
    indexed = picture.mode == "P" and picture.getpalette()[: len(palette)] == palette  # a third of the bytes
    due = (renderer.sprites[..., None] if indexed else renderer.rgb_sprites)[grid]
    rows, columns, cell, _, channels = due.shape
    drawn = np.asarray(picture if indexed else picture.convert("RGB"))
    tiles = drawn.reshape(rows, cell, columns, cell, channels).swapaxes(1, 2)
    if np.array_equal(tiles, due):
        return set()
    error = np.maximum(tiles, due) - np.minimum(tiles, due)
    return _cells((error > (JPEG_ERROR if picture.format == "JPEG" else 0)).any(axis=(2, 3, 4)))


def inked_cells(picture: np.ndarray, columns: int, rows: int) -> Cells:
    """Cells of a picture (height, width, 3) that are not empty."""
    ink = (picture.min(axis=2) < WHITE).astype(np.int64)
    tops, lefts = (np.arange(n) * length // n for n, length in zip((rows, columns), ink.shape, strict=True))
    share = np.add.reduceat(np.add.reduceat(ink, tops, axis=0), lefts, axis=1) * rows * columns / ink.size
    return _cells(share > INK)


def _cells(mask: np.ndarray) -> Cells:
    rows, columns = np.nonzero(mask)
    return set(zip(rows.tolist(), columns.tolist(), strict=True))
