"""A web page with examples, pair counts and baselines of a dataset: `python -m travlr.browse DIR`.

The page is one file that loads nothing else; see `travlr.viewer`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from travlr.baselines import best_unbound, dataset_baselines
from travlr.config import Config
from travlr.corpora import is_corpus
from travlr.dataset import SplitReader, open_dataset
from travlr.scene import COLOURS, SHAPES, SPLITS, column_name
from travlr.settings import run_command
from travlr.tasks import add_task_option, is_task, task_class
from travlr.viewer import Card, example_card, read_rows, render_page, viewer_data

TEMPLATE = Path(__file__).with_name("browse.html")
BASELINES = {"query": "query alone", "total": "query and number of objects"}  # rules beside the best unbound one
LONGEST = 150  # values along one axis of a heat map
PAIR_NOTES = {  # task -> what its pairs are
    "spatiality": "The first object is the one that the query names first.",
    "cardinality": "The pair is of the objects that the query names; the scene's other objects are not counted here.",
    "quantifiers": "A scene counts in the map of the quantifier that is true of it; the first and the second set are "
    "the objects that the query names first and second.",
    "comparison": "The query names two kinds of objects; the numbers are in its order.",
}
COUNTS_NOTE = "Each number counts the examples whose scene shows a pair, whether the query is true or false."

Pair = tuple[str, ...]

# Reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Survey:
    """The statistics of a split, and the rows to show.

    counts: pair -> numbers of true and of false examples. couples: whether rows 2k and 2k + 1 ask the same query.
    """

    counts: dict[Pair, list[int]]
    rows: list[dict[str, Any]]
    couples: bool


def read_survey(reader: SplitReader, limit: int) -> Survey:
    """The counts of a split, and `limit` of its rows to show."""
    about = reader.columns("pair", "answer", "query")
    pairs = [tuple(map(str, pair)) for pair in about["pair"].to_pylist()]
    truths = about["answer"].to_pylist()
    counts: dict[Pair, list[int]] = {}
    for pair, truth in zip(pairs, truths, strict=True):
        counts.setdefault(pair, [0, 0])[not truth] += 1
    couples = are_couples(about["query"].to_pylist(), truths)
    step = 2 if couples else 1
    starts = choose_spread(list(zip(pairs, truths, strict=True))[::step], -(-limit // step))
    rows = [row for start in starts for row in range(step * start, step * start + step)][:limit]
    return Survey(counts, read_rows(reader, rows), couples)


def are_couples(queries: list[str], truths: list[bool]) -> bool:
    """Whether rows 2k and 2k + 1 ask the same, once true and once false."""
    same_queries = bool(queries) and queries[::2] == queries[1::2]
    return same_queries and all(first != second for first, second in zip(truths[::2], truths[1::2], strict=True))


def choose_spread(kinds: Sequence[Hashable], limit: int) -> list[int]:
    """At most `limit` numbers of rows, spread evenly over their kinds (pair and answer), and random otherwise."""
    places, rounds, earlier = random.Random(0), list[tuple[int, int]](), Counter[Hashable]()
    for _, row in sorted((places.random(), row) for row in range(len(kinds))):
        rounds.append((earlier[kinds[row]], row))
        earlier[kinds[row]] += 1
    return [row for _, row in sorted(rounds, key=lambda r: r[0])[:limit]]


# What the page shows ---------------------------------------------------------------------------------------------


def read_content(folder: Path, examples: int) -> dict[str, Any]:
    """The values of the page. Raises `ValueError` where the dataset is unfinished or damaged."""
    dataset = open_dataset(folder)
    manifest = dataset.manifest
    surveys = {split: read_survey(reader, examples) for split, reader in dataset.splits.items()}
    settings, task = dict(list_settings(manifest["config"] or {})), dataset.task
    total = sum(sum(truths) for survey in surveys.values() for truths in survey.counts.values())
    cards = list(make_cards(surveys, dataset.config))
    pairs = {pair for survey in surveys.values() for pair in survey.counts}
    maps = list(make_heat_maps(task, pairs)) if is_task(task) else []
    lead = task_class(task).title() if is_task(task) else "which sentences are true of a picture"
    splits = [{"name": name, "counts": [(" ".join(p), n) for p, n in s.counts.items()]} for name, s in surveys.items()]
    in_order = [f"{m['prefix']}{y} {x}" for m in maps for y in m["rows"] for x in m["columns"]]
    return {
        "name": (manifest.get("corpus") or {}).get("name") or folder.resolve().name,
        "lead": f"{task.capitalize()}: {lead}",
        "facts": list_facts(manifest, settings),
        "settings": list(settings.items()),
        "baselines": list_baselines(folder),
        "splits": [
            {"name": name, "true": sum(n[0] for n in s.counts.values()), "false": sum(n[1] for n in s.counts.values())}
            for name, s in surveys.items()
        ],
        "data": {
            "examples": viewer_data(
                cards,
                {"split": "Split", "answer": "Answer", "pair": "Pair"},
                orders={"split": SPLITS, "answer": ("true", "false"), "pair": in_order},
                note=f"of {total:,} examples the page has {len(cards):,}, drawn evenly over the pairs",
            ),
            "pairs": {"splits": splits, "maps": maps, "note": f"{COUNTS_NOTE} {PAIR_NOTES.get(task, '')}".strip()},
        },
    }


def make_cards(surveys: dict[str, Survey], config: Config | None) -> Iterator[Card]:
    """The cards of the rows to show."""
    for split, survey in surveys.items():
        for number, row in enumerate(survey.rows):
            card = example_card(split, row, config)
            columns = {**card.columns, "answer": str(card.answer).lower()}
            yield replace(card, columns=columns, couple=f"{split} {number // 2}" if survey.couples else None)


def list_baselines(folder: Path) -> list[tuple[str, dict[str, float]]]:
    """Name and accuracy in percent by split of some rules; none without a train split or scikit-learn."""
    with contextlib.suppress(ValueError):
        scores = dataset_baselines(folder)
        best = best_unbound(scores)
        lines = {name: [score for score in scores if score.baseline == rule] for rule, name in BASELINES.items()}
        lines["words alone" if is_corpus(open_dataset(folder)) else "best unbound"] = list(best.values())
        return [(name, {score.split: score.accuracy for score in line}) for name, line in lines.items()]
    return []


def make_heat_maps(task: str, pairs: set[Pair]) -> Iterator[dict[str, Any]]:
    """The axes of each dimension's heat map, the same for every split; empty ones where they would be too long.

    Pairs with fewer than two values have none.
    """
    for dimension, labels in task_class(task).axes_of(pairs).items():
        values = [pair[-2:] for pair in pairs if not dimension or pair[0] == dimension]
        if values and len(labels) == 2:
            rows, columns = (sort_axis({value[i] for value in values}) for i in (0, 1))
            axes = {"rows": rows, "columns": columns} if max(len(rows), len(columns)) <= LONGEST else {}
            title, prefix = (dimension, f"{dimension} ") if dimension else (" × ".join(labels), "")
            yield {"title": title, "prefix": prefix, "labels": labels, "rows": [], "columns": [], **axes}


def sort_axis(values: set[str]) -> list[str]:
    """The values along an axis, in the world's order; numbers and letters without gaps, to show what never occurs."""
    if all(re.fullmatch(r"[0-9]{1,3}", value) for value in values):
        numbers = {1, *map(int, values)}
        return [str(n) for n in range(min(numbers), max(numbers) + 1)]
    if all(re.fullmatch(r"[A-Z]", value) for value in values):
        return [column_name(n) for n in range(ord(max(values)) - ord("A") + 1)]
    places = {word: place for place, word in enumerate([*SHAPES, *COLOURS])}
    return sorted(values, key=lambda value: ([places.get(w, len(places)) for w in reversed(value.split())], value))


def list_settings(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """A config as the names and values that the command line has."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from list_settings(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and all(isinstance(item, str) for item in value):
        yield name, ", ".join(value)
    else:
        yield name, value if isinstance(value, str) else json.dumps(value)


def list_facts(manifest: dict[str, Any], settings: dict[str, str]) -> list[tuple[str, str]]:
    """The facts at the head of the page, as far as the config has them."""
    sides = [settings[name] for name in ("world.columns", "world.rows") if name in settings]
    names = {"colours": "world.colours", "shapes": "world.shapes", "sizes": "world.sizes"}
    names |= {"queries by": "query_by", "seed": "seed", "pictures": "style.image", "captions": "style.caption"}
    facts = [("grid", " × ".join(sides)), *((label, settings.get(name, "")) for label, name in names.items())]
    facts.append(("content digest", str(manifest.get("content_digest") or "")))
    return [(label, value) for label, value in facts if value]


# Writing ---------------------------------------------------------------------------------------------------------


def make_page(folder: Path, examples: int = 200) -> str:
    """The page of a dataset, with up to `examples` of each split. Raises `ValueError` as `read_content` does."""
    return render_page(TEMPLATE, **read_content(folder, examples))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "python -m travlr.browse", description="Write a web page to look at a dataset: one file, no network."
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="a dataset")
    parser.add_argument("--out", metavar="FILE", type=Path, help="the page (default: DIR/browse.html)")
    parser.add_argument("--examples", metavar="N", type=int, default=200, help="of each split (default: 200)")
    add_task_option(parser)
    options = parser.parse_args(arguments)
    if options.examples < 1:
        parser.error("argument --examples: must be at least 1")
    out = options.out or options.folder / TEMPLATE.name
    text = make_page(options.folder, options.examples)
    out.write_text(text, encoding="utf-8", newline="")
    print(f"{out}: {len(text.encode()) / 1e6:.1f} MB; open it in a browser")
    return 0


if __name__ == "__main__":
    run_command("browse", lambda: sys.exit(main(sys.argv[1:])))
