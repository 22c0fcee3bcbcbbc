"""The checks of one row: its caption, query text and picture are parsed, and its answer and pair computed again.

The generator takes answers and pairs from the templates of a task, and `evaluate.py` from its `truth`. The audit takes
them from the task's `recount`, which works on sets of cells and shares no code with either, and compares all three.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from render.text import make_captioner, parse_caption
from travlr.audit.pictures import ObjectRow, picture_problem
from travlr.audit.shortcuts import FEATURES, QUERY, TOTAL
from travlr.columns import example_id, parse_query_form
from travlr.config import Config, Style
from travlr.scene import Query, Scene, World
from travlr.tasks import TASKS, parse_query
from travlr.tasks.base import Cells, CellsOf, Pair

Counts = Mapping[Any, Sequence[int]]  # feature -> numbers of false and of true examples

# The checks of each row, with the text of the report where no row fails.
ROW_CHECKS = {
    "ids": "numbered in order; one task",
    "caption": "read back: the objects column, in its order",
    "image": "read back: every pixel is as the objects column says",
    "query": "read back: query_form",
    "queried": "marked are the objects that the query names",
    "answer": "worked out anew from the caption",
    "pair": "worked out anew from the caption",
    "world": "objects are of the world of the settings",
    "held-out pairs": "shown by test_ood queries, and by no other split's",
    "held-out numbers in scenes": "no scene shows one, but for what test_ood asks about",
    "held-out queries": "asked in test_ood, and nowhere else",
}


@dataclass(frozen=True)
class Rules:
    """What the rows of a dataset must fit.

    config: settings of the dataset, None where another program made it. pairs, queries: held out, only for test_ood.
    numbered: whether ids count the rows.
    """

    config: Config | None
    pairs: frozenset[Pair]
    queries: frozenset[frozenset[str]]
    numbered: bool

    @property
    def style(self) -> str:
        """The style of captions. For datasets of other programs it is the default one."""
        return (self.config.style if self.config else Style()).caption


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
    places, start = list(zip(*fields, strict=True)), 0
    lengths = objects.value_lengths().to_pylist()
    for length, *values in zip(lengths, *(table[name].to_pylist() for name in names), strict=True):
        stop = start + length
        yield Row._make([*values, places[start:stop], queried[start:stop]])
        start = stop


def examine_row(rules: Rules, row: Row, split: str, number: int) -> tuple[dict[str, str], list[tuple[str, Any]]]:
    """Problems of a row by check (empty where it passes), and the features of the row by shortcut rule.

    Both end early where the caption or the query cannot be parsed.
    """
    config = rules.config
    name = config.task if config else row.task
    expected = example_id(name, split, number)
    numbered = (row.id, row.image["path"].rpartition(".")[0], row.task) == (expected, expected, name)
    problems = {"ids": "" if numbered else f"id, picture or task is not that of {expected}"} if rules.numbered else {}
    try:
        columns, rows, scene = parse_caption(row.caption, config.world.sizes[0] if config else "medium", rules.style)
        world = config.world if config else World(columns=columns, rows=rows)
    except ValueError as error:
        return problems | {"caption": str(error)}, []
    problems["caption"] = caption_problem(row, scene, world, rules.style)
    problems["image"] = picture_problem(row.image["bytes"], row.objects, world, config)
    try:
        query, form = parse_query(row.query), parse_query_form(row.form)
    except ValueError as error:
        return problems | {"query": str(error)}, []
    same = query == form and query.task == name and json.loads(row.form).keys() == {"task", "args"}
    problems["query"] = "" if same else f"{row.query} is not {row.form}"
    task, cells = TASKS[query.task], cells_of(scene)
    described = set().union(*(cells[query.args[i]] for i in task.object_arguments))
    queried = {thing[3:] for thing, flag in zip(row.objects, row.queried, strict=True) if flag}
    problems["queried"] = (
        "" if queried == described else f"{len(queried)} objects, but the query names {len(described)} others"
    )
    try:
        truth = task.truth(scene, query.args)
        answer, pair = task.recount(query.args, cells) or truth
    except ValueError as error:
        return problems | {"answer": str(error)}, []
    problems["answer"] = "" if answer == row.answer else f"says {row.answer}, the scene {answer}: {row.query}"
    problems["pair"] = "" if list(pair) == row.pair else f"says {row.pair}, the scene {list(pair)}"
    if truth != (answer, pair):
        problems["answer"] = f"`truth` is {truth}, `recount` {answer, pair}: {row.query}"
    if config:
        unknown = [o for o in scene if (o.size, o.shape, o.colour) not in config.world.number]
        problems["world"] = f"{unknown[0]} is not of this world" if unknown else ""
    problems |= held_out_problems(rules, split, query, pair, cells)
    shortcuts: list[tuple[str, Any]] = [(QUERY, row.query), (TOTAL, (row.query, len(scene)))]
    if query.task in FEATURES:
        shortcuts += FEATURES[query.task](query.args, cells, len(scene))
    return problems, [("pair", " ".join(map(str, pair))), *shortcuts]


def held_out_problems(rules: Rules, split: str, query: Query, pair: Pair, cells: CellsOf) -> dict[str, str]:
    """Problems by check of held-out pairs and queries, which all rows of test_ood and no other row must show."""
    out, problems = split == "test_ood", {}
    if rules.pairs:
        is_held_out = pair in rules.pairs
        problems["held-out pairs"] = _held_out_problem(" ".join(pair), is_held_out, out)
        others = TASKS[query.task].other_pairs(query.args, cells)
        if others:
            held_out = " ".join(min((others if out else others | {pair}) & rules.pairs, default=()))
            problems["held-out numbers in scenes"] = f"shows {held_out}" if held_out else ""
    if rules.queries:
        is_held_out = TASKS[query.task].held_out_key(query.args) in rules.queries
        problems["held-out queries"] = _held_out_problem("what it asks", is_held_out, out)
    return problems


def _held_out_problem(what: str, is_held_out: bool, out: bool) -> str:
    """The problem of a pair or query; empty where it is held out exactly in test_ood. out: whether the row is there."""
    return "" if is_held_out == out else f"{what} is {'' if is_held_out else 'not '}held out"


def score(fitted: Counts, scored: Counts) -> tuple[float, int]:
    """Correct and total examples of a majority rule, fitted on the first counts and scored on the second.

    Counts: feature -> numbers of false and of true examples. A feature that was as often true as false in the first
    counts, or did not occur there, scores half of its examples.
    """
    right, total = 0.0, 0
    for feature, (false, true) in scored.items():
        fitted_false, fitted_true = fitted.get(feature, (0, 0))
        lean = (fitted_true > fitted_false) - (fitted_true < fitted_false)
        right += (false + true + lean * (true - false)) / 2
        total += false + true
    return right, total


def cells_of(scene: Scene) -> CellsOf:
    """For each colour, shape, and both together: the cells of the objects that it describes."""
    cells: dict[str, Cells] = defaultdict(set)
    for o in scene:
        for words in (o.colour, o.shape, f"{o.colour} {o.shape}"):
            cells[words].add((o.row, o.column))
    return cells


def recount(query: Query, scene: Scene) -> tuple[bool, Pair]:
    """Answer and pair of a query, by the task's own recount if it has one."""
    task = TASKS[query.task]
    return task.recount(query.args, cells_of(scene)) or task.truth(scene, query.args)


def caption_problem(row: Row, scene: Scene, world: World, style: str) -> str:
    """The first difference between a caption and the objects column; empty where there is none.

    Their orders must be the same where captions of the style have one.
    """
    writer = make_captioner(style, world)
    parsed = [(o.colour, o.shape, o.size, o.row, o.column) for o in scene]
    if len(parsed) != len(row.objects):
        return f"names {len(parsed)} objects, the objects column {len(row.objects)}"
    objects = row.objects if writer.ordered else sorted(row.objects, key=lambda thing: thing[3:])
    for a, b in zip(parsed, objects, strict=True):
        if a != b:
            return f"says {a}, the objects column {b}"
    return "" if writer.caption(scene) == row.caption else f"another wording or grid: {row.caption[:120]!r}"
