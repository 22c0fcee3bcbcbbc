"""format=original: the layout in which TraVLR was published."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from travlr.files import regular
from travlr.formats.base import PARTS, Layout, Open, Part, Shared, Tables, rows_of, suffix_of, tables_of_rows
from travlr.formats.columns import example_id, parse_query_form, query_form
from travlr.formats.foreign import PUBLISHED_COLUMNS, PUBLISHED_SPLITS, read_index
from travlr.scene import Object
from travlr.tasks import TASKS, parse_query, truth


class Original(Layout):
    """The published layout: index.csv, metadata.jsonl (in truth one JSON object on one line), images/N.jpg."""

    name = "original"

    def check(self, config: dict[str, Any] | None) -> None:
        if config and "style" in config:
            style = ", ".join(f"style.{name}={value}" for name, value in config["style"].items())
            raise ValueError(f"format=original: holds style.image=plain, style.caption=sentences alone, not {style}")

    def put(self, open_file: Open, part: Part, tables: Iterator[pa.Table]) -> None:
        split = PUBLISHED_SPLITS[part.split]
        lines, entries = io.StringIO(), []
        writer = csv.writer(lines, lineterminator="\n")
        for number, row in enumerate(rows_of(tables), part.offset + part.start):
            with open_file(f"images/{number}.jpg", False) as file:
                file.write(_jpeg(row))
            writer.writerow([number, row["caption"], row["query"], row["answer"], number, split])
            entries.append(f'"{number}": {json.dumps(_published(row, split))}')
        for suffix, text in (("csv", lines.getvalue()), ("jsonl", ", ".join(entries))):
            with open_file(f"{PARTS}/{part.name}.{suffix}", False) as file:
                file.write(text.encode())

    def fragments(self, part: Part) -> list[str]:
        return [f"{part.name}.csv", f"{part.name}.jsonl"]

    def entry(self, part: Part) -> dict[str, Any]:
        return part.entry("images/*.jpg") | {"start": part.offset + part.start, "digits": "d"}

    def shared(self, parts: list[Part]) -> list[Shared]:
        header = ",".join(PUBLISHED_COLUMNS).encode() + b"\n"
        return [
            Shared("index.csv", None, [f"{part.name}.csv" for part in parts], header),
            Shared("metadata.jsonl", None, [f"{part.name}.jsonl" for part in parts], b"{", b", ", b"}\n"),
        ]

    def data_files(self, parts: list[Part]) -> dict[str, str]:
        return {}

    def tables(self, folder: Path, manifest: dict[str, Any], split: str, start: int, stop: int | None) -> Tables:
        def numbered() -> Iterator[tuple[int, dict[str, str], Any]]:
            entries, waiting = read_entries(folder / "metadata.jsonl"), {}
            number = 0
            for line in read_index(folder / "index.csv"):
                while line[""] not in waiting:  # in the published files the two are in the same order
                    name, entry = next(entries, (None, None))
                    if name is None:
                        raise ValueError(f"row {line['']!r} is not in metadata.jsonl")
                    waiting[name] = entry
                entry = waiting.pop(line[""])
                if line["split"] == PUBLISHED_SPLITS[split]:
                    yield number, line, entry
                    number += 1

        def row(item: tuple[int, dict[str, str], Any]) -> dict[str, Any]:
            return _from_published(folder, split, *item)

        return tables_of_rows(folder / "index.csv", itertools.islice(numbered(), start, stop), row)


def _jpeg(row: dict[str, Any]) -> bytes:
    """Take the picture out of a row, as JPEG."""
    picture: bytes = row.pop("image")["bytes"]
    if suffix_of(picture) == "jpg":
        return picture
    try:
        return jpeg(picture)
    except ValueError as error:
        raise ValueError(f"{row['id']}: {error}") from None


def jpeg(picture: bytes) -> bytes:
    """A picture as the JPEG file of the published layout."""
    from render.png import decode

    buffer = io.BytesIO()
    decode(picture).save(buffer, "JPEG", quality=95, subsampling=0)
    return buffer.getvalue()


def read_entries(path: Path) -> Iterator[tuple[str, Any]]:
    """Names and values of one large JSON object, without ever holding all of it."""
    decoder, text = json.JSONDecoder(), ""
    space, colon = re.compile(r"[\s,{]*"), re.compile(r"\s*:\s*")
    with open(regular(path), encoding="utf-8") as file:
        while chunk := file.read(1 << 20):
            text, at = text + chunk, 0
            while True:
                begin = space.match(text, at).end()  # type: ignore[union-attr]
                try:
                    name, end = decoder.raw_decode(text, begin)
                    value, end = decoder.raw_decode(text, colon.match(text, end).end())  # type: ignore[union-attr]
                except (ValueError, AttributeError):
                    break  # cut off by the end of the chunk
                at = end
                yield name, value
            text = text[at:]
    if text.strip() != "}":
        raise ValueError(f"metadata.jsonl ends in the middle, or is no JSON object: {text[:40]!r}")


def _from_published(folder: Path, split: str, number: int, line: dict[str, str], entry: Any) -> dict[str, Any]:
    from render.text import parse_caption

    if not re.fullmatch(r"\w+", line["image"]) or line["answer"] not in ("True", "False"):
        raise ValueError(f"row {line['']}: image {line['image']!r} or answer {line['answer']!r}")
    scene = {(o["row"], o["column"]): o for o in entry["objects"]}
    in_order = parse_caption(line["caption"])[2]
    ordered = [scene.pop((o.row, o.column)) for o in in_order if (o.row, o.column) in scene] + list(scene.values())
    query = parse_query(line["query"])
    if any(o["queried"] is None for o in ordered):  # other nulls are found in the table
        raise ValueError("column objects.queried has a null")
    objects = [Object(o["colour"], o["shape"], o["size"], o["row"], o["column"], bool(o["queried"])) for o in ordered]
    name, picture = example_id(query.task, split, number), folder / "images" / f"{line['image']}.jpg"
    return {
        "id": name,
        "image": {"bytes": regular(picture).read_bytes(), "path": f"{name}.jpg"},
        "caption": line["caption"],
        "query": line["query"],
        "answer": line["answer"] == "True",
        "task": query.task,
        "pair": list(truth(tuple(objects), query)[1]),
        "query_form": query_form(query),
        "objects": [vars(o) for o in objects],
    }


def _published(row: dict[str, Any], split: str) -> dict[str, Any]:
    """An entry of metadata.jsonl. Objects are in caption order, so `caption_abstract` counts up, here truly."""
    query = parse_query_form(row["query_form"])
    objects = [{k: o[k] for k in ("shape", "colour")} | {"pattern": None} | o for o in row["objects"]]
    entry = {"objects": objects, "query": row["query"], "answer": row["answer"], "split": split}
    entry["caption_abstract"] = list(range(len(objects)))
    return entry | TASKS[query.task].published_fields(query.args, [Object(**o) for o in row["objects"]], row["pair"])
