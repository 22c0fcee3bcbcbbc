"""format=imagefolder: picture files and metadata.jsonl."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from travlr.files import regular
from travlr.formats.base import PARTS, Layout, Open, Part, Shared, Tables, rows_of, tables_of_rows, take_picture
from travlr.formats.columns import example_id


class ImageFolder(Layout):
    """`train/ID.png` and so on, and `train/metadata.jsonl` with their columns and `file_name`."""

    name = "imagefolder"

    def put(self, open_file: Open, part: Part, tables: Iterator[pa.Table]) -> None:
        lines = []
        for row in rows_of(tables):
            picture, name = take_picture(row)
            if not name.endswith(part.suffix):
                raise ValueError(f"{row['id']}: its picture is no {part.suffix}, unlike the first of the dataset")
            with open_file(f"{part.split}/{name}", False) as file:
                file.write(picture)
            lines.append(json.dumps({"file_name": name, **row}).encode() + b"\n")
        with open_file(f"{PARTS}/{part.name}.jsonl", False) as file:
            file.writelines(lines)

    def fragments(self, part: Part) -> list[str]:
        return [f"{part.name}.jsonl"]

    def entry(self, part: Part) -> dict[str, Any]:
        name = example_id(part.task, part.split, 0).removesuffix("00000000")
        return part.entry(f"{part.split}/{name}*.{part.suffix}") | {"start": part.start, "digits": "08d"}

    def shared(self, parts: list[Part]) -> list[Shared]:
        fragments: dict[str, list[str]] = {}
        for part in parts:
            fragments.setdefault(part.split, []).extend(self.fragments(part))
        return [Shared(f"{split}/metadata.jsonl", split, names) for split, names in fragments.items()]

    def data_files(self, parts: list[Part]) -> dict[str, str]:
        return {part.split: f"{part.split}/*" for part in parts}

    def tables(self, folder: Path, manifest: dict[str, Any], split: str, start: int, stop: int | None) -> Tables:
        def row(line: bytes) -> dict[str, Any]:
            columns = json.loads(line)
            name = columns.pop("file_name")
            if Path(name).name != name:
                raise ValueError(f"{name} leaves its folder")
            return columns | {"image": {"bytes": regular(folder / split / name).read_bytes(), "path": name}}

        path = folder / split / "metadata.jsonl"
        return tables_of_rows(path, itertools.islice(_lines(path), start, stop), row)


def _lines(path: Path) -> Iterator[bytes]:
    with open(regular(path), "rb") as file:
        yield from file
