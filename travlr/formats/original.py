"""The layout in which TraVLR was published: index.csv, metadata.jsonl (one JSON object on one line), images/N.jpg."""

from __future__ import annotations

import csv
import functools
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from render.png import decode
from render.text import parse_caption
from travlr.formats.columns import ROW_GROUP, SCHEMA, example_id, parse_query_form, query_form, report_damage
from travlr.scene import Object, Query
from travlr.tasks import parse_query, truth
from travlr.tasks.quantifiers import region_of, table_1

PUBLISHED_SPLITS = {"train": "train", "validation": "val", "test_ind": "val_test", "test_ood": "test"}
COLUMNS = ("", "caption", "query", "answer", "image", "split")
INDEX, METADATA = "index.csv", "metadata.jsonl"


# Export --------------------------------------------------------------------------------------------------------------


def write_original(folder: Path, splits: Mapping[str, Iterator[dict[str, Any]]]) -> dict[str, str]:
    """Write the rows of each split in the published layout; its loaders take no globs of files."""
    (folder / "images").mkdir()
    with (
        open(folder / INDEX, "w", encoding="utf-8", newline="") as index,
        open(folder / METADATA, "w", encoding="utf-8") as metadata,
    ):
        lines = csv.writer(index, lineterminator="\n")
        lines.writerow(COLUMNS)
        rows = ((PUBLISHED_SPLITS[split], row) for split, of_split in splits.items() for row in of_split)
        for number, (split, row) in enumerate(rows):
            (folder / "images" / f"{number}.jpg").write_bytes(jpeg(row["image"]["bytes"]))
            lines.writerow([number, row["caption"], row["query"], row["answer"], number, split])
            metadata.write(f'{", " if number else "{"}"{number}": {json.dumps(published_entry(row, split))}')
        metadata.write("}\n")
    return {}


def jpeg(picture: bytes) -> bytes:
    """A picture as the JPEG file of the published layout."""
    if picture.startswith(b"\xff\xd8"):
        return picture
    buffer = io.BytesIO()
    decode(picture).save(buffer, "JPEG", quality=95, subsampling=0)
    return buffer.getvalue()


def published_entry(row: dict[str, Any], split: str) -> dict[str, Any]:
    """An entry of metadata.jsonl. Objects are in caption order, so `caption_abstract` counts up."""
    query = parse_query_form(row["query_form"])
    objects = [{k: o[k] for k in ("shape", "colour")} | {"pattern": None} | o for o in row["objects"]]
    entry = {"objects": objects, "query": row["query"], "answer": row["answer"], "split": split}
    entry["caption_abstract"] = list(range(len(objects)))
    return entry | published_fields(query, [Object(**o) for o in row["objects"]], row["pair"])


# Entries of a query in metadata.jsonl, by task ------------------------------------------------------------------------

Fields = dict[str, Any]


def _of_spatiality(args: Sequence[Any], objects: Sequence[Object], pair: Sequence[str]) -> Fields:
    first, second = (next(i for i, o in enumerate(objects) if o.matches(args[a])) for a in (0, 2))
    kind = "left/right" if pair[0] == "horizontal" else "above/below"
    return {"relationship": kind, "query_abstract": [first, args[1], second]}


def _of_cardinality(args: Sequence[Any], objects: Sequence[Object], pair: Sequence[str]) -> Fields:
    return {"case": [args[1], args[0]], "query_abstract": {"attr": args[1], "number": args[0], "rel": "equal"}}


def _of_quantifiers(args: Sequence[Any], objects: Sequence[Object], pair: Sequence[str]) -> Fields:
    """`case` lists number, shape and colour of what is in the two regions that Table 1 counts."""
    groups = Counter((region_of(o, args[1], args[2]), o.shape, o.colour) for o in objects)
    regions = table_1(pair[0])
    counts = [[n, shape, colour] for (region, shape, colour), n in sorted(groups.items()) if region in regions]
    name = f"{args[0]} of" if args[0] in ("some", "none") else args[0]
    query = {"rel": name, "attr1": args[1], "attr2": args[2]}
    return {"case": [name, args[1], args[2], counts], "query_abstract": query}


def _of_comparison(args: Sequence[Any], objects: Sequence[Object], pair: Sequence[str]) -> Fields:
    rest = sum(not (o.matches(args[1]) or o.matches(args[2])) for o in objects)
    query = {"attr1": args[1], "attr2": args[2], "rel": args[0]}
    return {"case": [*args, int(pair[1]), int(pair[2]), rest], "query_abstract": query}


FIELDS = {
    "spatiality": _of_spatiality,
    "cardinality": _of_cardinality,
    "quantifiers": _of_quantifiers,
    "comparison": _of_comparison,
}


def published_fields(query: Query, objects: Sequence[Object], pair: Sequence[str]) -> Fields:
    if query.task in FIELDS:
        return FIELDS[query.task](query.args, objects, pair)
    return {"case": list(query.args), "query_abstract": {"args": list(query.args)}}


# Import --------------------------------------------------------------------------------------------------------------


def count_rows(folder: Path) -> dict[str, int]:
    """Rows by split, with this project's names of the splits. Raises `ValueError` where a file is damaged."""
    return {split: len(entries) for split, entries in _entries(folder).items() if entries}


def read_original(folder: Path, split: str, start: int, stop: int) -> Iterator[pa.Table]:
    """Rows start to stop of a split as tables. Raises `ValueError` where a file is damaged."""
    for begin in range(start, stop, ROW_GROUP):
        numbers = range(begin, min(begin + ROW_GROUP, stop))
        with report_damage(folder / INDEX):
            rows = [_row(folder, split, number, *_entries(folder)[split][number]) for number in numbers]
            table = pa.Table.from_pylist(rows, schema=SCHEMA)
        yield table


@functools.lru_cache(maxsize=1)  # the shards of a dataset read it one after the other
def _entries(folder: Path) -> dict[str, list[tuple[dict[str, str], Any]]]:
    """By split: line of index.csv and entry of metadata.jsonl of each row."""
    with report_damage(folder / METADATA):
        entries = json.loads((folder / METADATA).read_text(encoding="utf-8"))
    with report_damage(folder / INDEX), open(folder / INDEX, newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file, strict=True))
        return {
            split: [(line, entries[line[""]]) for line in lines if line["split"] == name]
            for split, name in PUBLISHED_SPLITS.items()
        }


def _row(folder: Path, split: str, number: int, line: dict[str, str], entry: Any) -> dict[str, Any]:
    if not re.fullmatch(r"\w+", line["image"]) or line["answer"] not in ("True", "False"):
        raise ValueError(f"row {line['']}: image {line['image']!r} or answer {line['answer']!r}")
    scene = {(o["row"], o["column"]): o for o in entry["objects"]}
    in_order = parse_caption(line["caption"])[2]
    ordered = [scene.pop((o.row, o.column)) for o in in_order if (o.row, o.column) in scene] + list(scene.values())
    query = parse_query(line["query"])
    objects = [Object(o["colour"], o["shape"], o["size"], o["row"], o["column"], bool(o["queried"])) for o in ordered]
    name, picture = example_id(query.task, split, number), folder / "images" / f"{line['image']}.jpg"
    return {
        "id": name,
        "image": {"bytes": picture.read_bytes(), "path": f"{name}.jpg"},
        "caption": line["caption"],
        "query": line["query"],
        "answer": line["answer"] == "True",
        "task": query.task,
        "pair": list(truth(tuple(objects), query)[1]),
        "query_form": query_form(query),
        "objects": [vars(o) for o in objects],
    }
