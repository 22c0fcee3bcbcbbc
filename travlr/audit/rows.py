"""A second look at one row: what its caption, query text and pixels say, worked out by nothing that made them.

`travlr.scene` defines answers and pairs for the generator; here they are restated from the paper with sets of cells,
so that an audit compares two workings and not one with itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from render.text import caption_of, parse_caption
from travlr.audit.pictures import ObjectRow, picture_problem
from travlr.config import Config
from travlr.formats.columns import example_id, parse_query_form
from travlr.scene import Query, Scene, World
from travlr.tasks import TASKS, parse_query
from travlr.tasks.base import Cells, CellsOf, Pair

Counts = Mapping[Any, Sequence[int]]  # what a rule looks at -> numbers of false and of true examples

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
    objects: list[ObjectRow]
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
    problems["caption"] = caption_problem(row, scene, world)
    problems["image"] = picture_problem(row.image["bytes"], row.objects, world, config, rules.exact)
    try:
        query, form = parse_query(row.query), parse_query_form(row.form)
    except ValueError as error:
        return problems | {"query": str(error)}, []
    problems["query"] = "" if query == form and query.task == name else f"{row.query} is not {row.form}"
    task, cells = TASKS[query.task], cells_of(scene)
    asked = set().union(*(cells[query.args[i]] for i in task.object_arguments))
    marked = {thing[3:] for thing, flag in zip(row.objects, row.queried, strict=True) if flag}
    problems["queried"] = "" if marked == asked else f"{len(marked)} objects, but the query names {len(asked)} others"
    try:
        answer, pair = task.recount(query.args, cells)
    except ValueError as error:
        return problems | {"answer": str(error)}, []
    problems["answer"] = "" if answer == row.answer else f"says {row.answer}, the scene {answer}: {row.query}"
    problems["pair"] = "" if list(pair) == row.pair else f"says {' '.join(row.pair)}, the scene {' '.join(pair)}"
    if config:
        problems["settings"] = settings_problem(config, query, pair, scene, cells)
    problems |= held_out_problems(rules, split, query, pair, cells)
    shortcuts = [
        (QUERY, row.query),
        (TOTAL, (row.query, len(scene))),
        *task.shortcut_features(query.args, cells, len(scene)),
    ]
    return problems, [("pair", " ".join(pair)), *shortcuts]


def held_out_problems(rules: Rules, split: str, query: Query, pair: Pair, cells: CellsOf) -> dict[str, str]:
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


def settings_problem(config: Config, query: Query, pair: Pair, scene: Scene, cells: CellsOf) -> str:
    """What a scene shows that the settings of its dataset rule out, if anything."""
    if strange := [o for o in scene if (o.size, o.shape, o.colour) not in config.world.number]:
        return f"{strange[0].size} {strange[0].colour} {strange[0].shape} is not of this world"
    limits = TASKS[query.task].setting_limits(config, query.args, pair, cells, len(scene))
    return next((f"{name} {list(r)}, but {n}" for name, n, r in limits if not r[0] <= n <= r[1]), "")


def caption_problem(row: Row, scene: Scene, world: World) -> str:
    """Where a caption and the objects column differ, if anywhere."""
    said = [(o.colour, o.shape, o.size, o.row, o.column) for o in scene]
    if len(said) != len(row.objects):
        return f"names {len(said)} objects, the objects column {len(row.objects)}"
    if differing := [(a, b) for a, b in zip(said, row.objects, strict=True) if a != b]:
        return f"says {differing[0][0]}, the objects column {differing[0][1]}"
    return "" if caption_of(scene, world) == row.caption else f"another wording or grid: {row.caption[:120]}"


# Pictures ----------------------------------------------------------------------------------------------------------
