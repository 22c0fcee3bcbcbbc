"""A web page with examples, pair counts and baselines of a dataset: `python -m travlr.browse DIR`.

The page is one file that loads nothing else. Text of the dataset is untrusted: it is embedded as JSON that cannot close
its element, shown as text only, and a content security policy allows no script but the page's own.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import html
import io
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from render.png import decode
from travlr.baselines import best_unbound, dataset_baselines
from travlr.config import Config, Style
from travlr.dataset import SplitReader, open_dataset
from travlr.files import replace_file
from travlr.formats.columns import OBJECT, report_damage
from travlr.formats.manifest import MANIFEST
from travlr.generate import renderer_of
from travlr.scene import COLOURS, SHAPES, column_name
from travlr.settings import run_command
from travlr.tasks import add_task_option, config_from_dict, task_class

TEMPLATE, SHARED = (Path(__file__).with_name(name) for name in ("browse.html", "page.html"))
NAME = "browse.html"
LONGER_SIDE = 384  # pixels along the longer side of a picture that is too large to embed as it is
LARGEST = 10_000  # bytes of a PNG that is embedded as it is
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
ENDS_PREFACE = re.compile(r"ordered A to ([A-Z])\. Rows, top to bottom, are ordered 1 to (\d{1,2})\.")

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


def read_survey(reader: SplitReader, limit: int, seed: str) -> Survey:
    """The counts of a split, and `limit` of its rows to show."""
    about = reader.columns("pair", "answer", "query")
    pairs = [tuple(map(str, pair)) for pair in about["pair"].to_pylist()]
    truths = about["answer"].to_pylist()
    counts: dict[Pair, list[int]] = {}
    for pair, truth in zip(pairs, truths, strict=True):
        counts.setdefault(pair, [0, 0])[not truth] += 1
    couples = are_couples(about["query"].to_pylist(), truths)
    step = 2 if couples else 1
    starts = choose_spread(list(zip(pairs, truths, strict=True))[::step], -(-limit // step), seed)
    rows = [row for start in starts for row in range(step * start, step * start + step)][:limit]
    return Survey(counts, reader.columns().take(rows).to_pylist(), couples)


def are_couples(queries: list[str], truths: list[bool]) -> bool:
    """Whether rows 2k and 2k + 1 ask the same, once true and once false."""
    same_queries = bool(queries) and queries[::2] == queries[1::2]
    return same_queries and all(first != second for first, second in zip(truths[::2], truths[1::2], strict=True))


def choose_spread(kinds: Sequence[Hashable], limit: int, seed: str) -> list[int]:
    """At most `limit` numbers of rows, spread evenly over their kinds (pair and answer), and random otherwise."""
    places, rounds, earlier = random.Random(seed), list[tuple[int, int]](), Counter[Hashable]()
    for _, row in sorted((places.random(), row) for row in range(len(kinds))):
        rounds.append((earlier[kinds[row]], row))
        earlier[kinds[row]] += 1
    return [row for _, row in sorted(rounds, key=lambda r: r[0])[:limit]]


# What the page shows ---------------------------------------------------------------------------------------------


def read_content(folder: Path, examples: int, seed: int) -> dict[str, Any]:
    """The data of the page. Raises `ValueError` where the dataset is unfinished or damaged."""
    dataset = open_dataset(folder)
    manifest = dataset.manifest
    surveys = {split: read_survey(reader, examples, f"{seed} {split}") for split, reader in dataset.splits.items()}
    config = manifest["config"] or {}
    task = config["task"] if config else next(iter(dataset.splits.values())).columns("task")["task"][0].as_py()
    with report_damage(folder / MANIFEST):
        settings = dict(list_settings(config))
        style_config = config_from_dict(config) if config else None
    return {
        "task": task,
        "facts": list_facts(manifest, settings),
        "settings": list(settings.items()),
        "splits": [
            {"name": name, "counts": [(" ".join(pair), counts) for pair, counts in s.counts.items()]}
            for name, s in surveys.items()
        ],
        "baselines": list_baselines(folder),
        "note": f"{COUNTS_NOTE} {PAIR_NOTES.get(task, '')}".strip(),
        "style": {  # area: left, top, right, bottom of a picture's cells, as fractions
            "caption": style_config.style.caption if style_config else Style().caption,
            "area": renderer_of(style_config).area if style_config else [0, 0, 1, 1],
        },
        "maps": list(make_heat_maps(task, {pair for s in surveys.values() for pair in s.counts})),
        "examples": [
            describe_example(split, row, style_config) | {"couple": f"{split} {number // 2}" if s.couples else None}
            for split, s in surveys.items()
            for number, row in enumerate(s.rows)
        ],
    }


def list_baselines(folder: Path) -> list[tuple[str, dict[str, float]]]:
    """Name and accuracy in percent by split of some rules; none without a train split or scikit-learn."""
    with contextlib.suppress(ValueError):
        scores = dataset_baselines(folder)
        best = best_unbound(scores)
        lines = {name: [score for score in scores if score.baseline == rule] for rule, name in BASELINES.items()}
        lines["best unbound"] = list(best.values())
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


def describe_example(split: str, row: dict[str, Any], config: Config | None) -> dict[str, Any]:
    """One row as the page shows it."""
    data, pixels = embed_picture(row["image"]["bytes"], row["id"])
    return {
        "split": split,
        "picture": base64.b64encode(data).decode(),
        "pixels": pixels,
        "grid": read_grid(row["caption"], config),
        "pair": " ".join(row["pair"]),
        "objects": [[o[field.name] for field in OBJECT] for o in row["objects"]],
        **{name: row[name] for name in ("id", "caption", "query", "answer")},
    }


def read_grid(caption: str, config: Config | None) -> list[int] | None:
    """The columns and rows of a scene; None where neither its caption nor its dataset tells them."""
    preface = ENDS_PREFACE.search(caption)
    if config and config.style.caption != Style().caption:
        return [config.world.columns, config.world.rows]
    return [ord(preface[1]) - ord("A") + 1, int(preface[2])] if preface else None


def embed_picture(data: bytes, name: str) -> tuple[bytes, tuple[int, int]]:
    """A small PNG of a picture, itself where it is one, with its width and height. Raises `ValueError` if damaged."""
    try:
        image = decode(data)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if data.startswith(b"\x89PNG") and len(data) <= LARGEST:
        return data, image.size
    image.thumbnail((LONGER_SIDE, LONGER_SIDE))
    buffer = io.BytesIO()
    image.quantize(256, method=2).save(buffer, "PNG")  # as many colours as there can be, or pale objects vanish
    return buffer.getvalue(), image.size


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


def make_page(folder: Path, examples: int = 200, seed: int = 0) -> str:
    """The page of a dataset, with up to `examples` of each split. Raises `ValueError` as `content` does."""
    data = read_content(folder, examples, seed)
    lead = html.escape(f"{data['task'].capitalize()}: {task_class(data['task']).title()}")
    return fill_template(TEMPLATE, data, name=html.escape(folder.resolve().name), lead=lead)


def fill_template(template: Path, data: Any, **values: str) -> str:
    """A page from its template, filled with what all pages share, values in HTML, and data for its script."""
    text = insert_shared(template)
    script = text.rpartition("<script>")[2].partition("</script>")[0]
    values["script_hash"] = "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    values["data"] = embed_json(data)
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], text)


def insert_shared(template: Path) -> str:
    """A template with the tags of the head, the style and the script that all pages share."""
    text, shared = (path.read_text(encoding="utf-8") for path in (template, SHARED))
    for part in ("head", "style", "script"):
        inside = shared.partition(f"<{part}>")[2].partition(f"</{part}>")[0].strip("\n")
        text = text.replace(f"{{{{shared_{part}}}}}", inside)
    return text


def embed_json(value: Any) -> str:
    """JSON in which no character means anything to HTML."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def write_file(out: Path, content: str | bytes) -> None:
    """Write a page or a picture atomically. Raises `ValueError` where the file cannot be written."""
    try:
        with replace_file(out) as path:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise ValueError(f"{out}: cannot be written ({error.strerror}); choose another file with --out") from None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        "python -m travlr.browse", description="Write a web page to look at a dataset: one file, no network."
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="a dataset")
    parser.add_argument("--out", metavar="FILE", type=Path, help=f"the page (default: DIR/{NAME})")
    parser.add_argument("--examples", metavar="N", type=int, default=200, help="of each split (default: 200)")
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="chooses the examples (default: 0)")
    add_task_option(parser)
    options = parser.parse_args(arguments)
    out = options.out or options.folder / NAME
    text = make_page(options.folder, options.examples, options.seed)
    write_file(out, text)
    print(f"{out}: {len(text.encode()) / 1e6:.1f} MB; open it in a browser")
    return 0


if __name__ == "__main__":
    run_command("browse", lambda: sys.exit(main(sys.argv[1:])))
