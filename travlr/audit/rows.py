"""The checks of one row: its caption, query text and picture are parsed, and its answer and pair computed again.

The generator takes answers and pairs from the templates of a task, and `evaluate.py` from its `truth`. The audit takes
them from the task's `recount`, which works on sets of cells and shares no code with either, and compares all three. A
task without `recount` is checked by its `truth` and `pair` alone, and the report says so.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from render.pictures.renderer import Renderer
from render.png import decode
from render.text import make_captioner, parse_caption
from travlr.audit.shortcuts import FEATURES, QUERY, TOTAL, other_pairs
from travlr.config import Config, Style
from travlr.formats.columns import example_id, parse_query_form, scene_of
from travlr.generate import generator
from travlr.scene import Object, Query, Scene, World, column_name
from travlr.tasks import parse_query, short_name, task_class
from travlr.tasks.base import Cells, CellsOf, Pair

# The checks of rows, with the text of the report where no row fails.
ROW_CHECKS = {
    "ids": "numbered in order; one task",
    "caption": "read back: the objects column, in its order",
    "image": "drawn again: every pixel is as the objects column says",
    "query": "read back: query_form",
    "queried": "marked are the objects that the query names",
    "answer": "worked out anew from the caption",
    "pair": "worked out anew from the caption",
    "couples": "rows 2k and 2k + 1 ask the same, once true and once false",
    "world": "objects are of the world of the settings",
    "held-out pairs": "shown by test_ood queries, and by no other split's",
    "held-out numbers in scenes": "no scene shows one, but for what test_ood asks about",
    "held-out queries": "asked in test_ood, and nowhere else",
}


@dataclass(frozen=True)
class Rules:
    """What the rows of a dataset must fit.

    config: settings of the dataset, None where nothing says how it was made. pairs, queries: held out for test_ood.
    """

    config: Config | None
    pairs: frozenset[Pair] = frozenset()
    queries: frozenset[frozenset[str]] = frozenset()

    @property
    def style(self) -> str:
        """The style of captions; without settings the default one."""
        return (self.config.style if self.config else Style()).caption

    @functools.cached_property
    def renderer(self) -> Renderer | None:
        return generator(self.config).renderer if self.config else None


def examine_row(
    rules: Rules, row: dict[str, Any], split: str, number: int
) -> tuple[dict[str, str], list[tuple[str, Any]]]:
    """Problems of a row by check (empty where it passes), and the features of the row by shortcut rule.

    Both end early where the caption or the query cannot be parsed.
    """
    config, problems, objects = rules.config, dict[str, str](), scene_of(row["objects"])
    name = config.task if config else row["task"]
    if config:
        expected = example_id(short_name(name), split, number)
        numbered = (row["id"], row["image"]["path"], row["task"]) == (expected, f"{expected}.png", name)
        problems["ids"] = "" if numbered else f"id, picture or task is not that of {expected}"
    try:
        size = config.world.sizes[0] if config else "medium"
        columns, rows, scene = parse_caption(row["caption"], size, rules.style)
    except ValueError as error:
        return problems | {"caption": str(error)}, []
    world = config.world if config else World(columns=columns, rows=rows)
    problems["caption"] = caption_problem(row["caption"], scene, objects, world, rules.style)
    if rules.renderer:
        problems["image"] = picture_problem(row["image"]["bytes"], objects, rules.renderer)
    try:
        query, form = parse_query(row["query"]), parse_query_form(row["query_form"])
    except ValueError as error:
        return problems | {"query": str(error)}, []
    same = query == form and query.task == name and json.loads(row["query_form"]).keys() == {"task", "args"}
    problems["query"] = "" if same else f"{row['query']} is not {row['query_form']}"
    task, cells = task_class(query.task), cells_of(scene)
    described = set().union(*(cells[noun] for noun in task.nouns(query.args)))
    queried = {(o.row, o.column) for o in objects if o.queried}
    problems["queried"] = (
        "" if queried == described else f"{len(queried)} objects, but the query names {len(described)} others"
    )
    try:
        truth = task.answer_and_pair(scene, query.args)
        answer, pair = task.recount(cells, **task.by_name(query.args)) or truth
    except ValueError as error:
        return problems | {"answer": str(error)}, []
    problems["answer"] = "" if answer == row["answer"] else f"says {row['answer']}, the scene {answer}: {row['query']}"
    problems["pair"] = "" if list(pair) == row["pair"] else f"says {row['pair']}, the scene {list(pair)}"
    if truth != (answer, pair):
        problems["answer"] = f"`truth` is {truth}, `recount` {answer, pair}: {row['query']}"
    if config:
        unknown = [o for o in scene if (o.size, o.shape, o.colour) not in world.number]
        problems["world"] = f"{unknown[0]} is not of this world" if unknown else ""
        problems |= held_out_problems(rules, split, query, pair, cells)
    shortcuts: list[tuple[str, Any]] = [(QUERY, row["query"]), (TOTAL, (row["query"], len(scene)))]
    if query.task in FEATURES:
        shortcuts += FEATURES[query.task](query.args, cells, len(scene))
    return problems, [("pair", " ".join(map(str, pair))), *shortcuts]


def held_out_problems(rules: Rules, split: str, query: Query, pair: Pair, cells: CellsOf) -> dict[str, str]:
    """Problems by check of held-out pairs and queries, which all rows of test_ood and no other row must show."""
    out, problems = split == "test_ood", {}
    if rules.pairs:
        is_held_out = pair in rules.pairs
        problems["held-out pairs"] = _held_out_problem(" ".join(pair), is_held_out, out)
        others = other_pairs(query, cells)
        if others:
            held_out = " ".join(min((others if out else others | {pair}) & rules.pairs, default=()))
            problems["held-out numbers in scenes"] = f"shows {held_out}" if held_out else ""
    if rules.queries:
        arguments = frozenset(map(str, query.args))
        is_held_out = any(part <= arguments for part in rules.queries)
        problems["held-out queries"] = _held_out_problem("what it asks", is_held_out, out)
    return problems


def _held_out_problem(what: str, is_held_out: bool, out: bool) -> str:
    """The problem of a pair or query; empty where it is held out exactly in test_ood. out: whether the row is there."""
    return "" if is_held_out == out else f"{what} is {'' if is_held_out else 'not '}held out"


def cells_of(scene: Scene) -> CellsOf:
    """For each colour, shape, size, and colour and shape together: the cells of the objects that it describes."""
    cells: dict[str, Cells] = defaultdict(set)
    for o in scene:
        for words in (o.colour, o.shape, o.size, f"{o.colour} {o.shape}"):
            cells[words].add((o.row, o.column))
    return cells


def caption_problem(caption: str, scene: Scene, objects: Scene, world: World, style: str) -> str:
    """The first difference between a caption, read back as a scene, and the objects column; empty where there is none.

    Their orders must be the same where captions of the style have one.
    """
    writer = make_captioner(style, world)
    if len(scene) != len(objects):
        return f"names {len(scene)} objects, the objects column {len(objects)}"
    ordered = objects if writer.ordered else sorted(objects, key=lambda o: (o.row, o.column))
    for in_caption, in_column in zip(map(thing, scene), map(thing, ordered), strict=True):
        if in_caption != in_column:
            return f"says {in_caption}, the objects column {in_column}"
    return "" if writer.caption(scene) == caption else f"another wording or grid: {caption[:120]!r}"


def thing(o: Object) -> tuple[str, str, str, int, int]:
    """What a caption says of an object."""
    return o.colour, o.shape, o.size, o.row, o.column


def picture_problem(data: bytes, objects: Scene, renderer: Renderer) -> str:
    """The first difference between a picture file and the objects of its row; empty where there is none.

    A file with the bytes that the renderer makes of the objects is theirs. Of any other, each cell is compared with the
    sprite of its object.
    """
    world, top, left = renderer.world, renderer.top, renderer.left
    if not all(0 <= o.row < world.rows and 0 <= o.column < world.columns for o in objects):
        return "an object lies outside the grid"
    grid = np.zeros((world.rows, world.columns), np.intp)
    for o in objects:
        grid[o.row, o.column] = world.number.get((o.size, o.shape, o.colour), 0)
    if renderer.pngs(grid) == [data]:  # decoding takes ten times as long
        return ""
    try:
        pixels = np.asarray(decode(data))
    except ValueError as error:
        return str(error)
    if pixels.shape != (renderer.height, renderer.width, 3):
        return f"{pixels.shape[1]} x {pixels.shape[0]} pixels, not {renderer.width} x {renderer.height}"
    canvas = renderer.rgb_canvases[0]
    if (pixels[:top] != canvas[:top]).any() or (pixels[:, :left] != canvas[:, :left]).any():
        return "differs in the margin"
    differs = (renderer.cells_in(pixels) != renderer.rgb_sprites[renderer.tiles(grid)[0]]).any(axis=(1, 2, 3))
    row, column = np.divmod(int(differs.argmax()), world.columns)
    return f"differs at {column_name(column)} {row + 1}" if differs.any() else ""


def difference(row: dict[str, Any], due: dict[str, Any]) -> str:
    """The first column in which two rows differ, and how; empty where none does. Of pictures, pixels are compared."""
    for name, value in due.items():
        if name == "image" and row[name] != value:
            try:
                same = decode(row[name]["bytes"]).tobytes() == decode(value["bytes"]).tobytes()
            except (ValueError, TypeError):
                same = False
            if not same or row[name]["path"] != value["path"]:
                return "image is another picture"
        elif row[name] != value:
            return f"{name} is {str(row[name])[:200]}, not {str(value)[:200]}"
    return ""
