"""format=webdataset: tar files."""

from __future__ import annotations

import io
import itertools
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from travlr.files import regular
from travlr.formats.base import Layout, Open, Part, Tables, rows_of, shards, tables_of_rows, take_picture


class WebDataset(Layout):
    """`train-00000-of-00004.tar` and so on: for each example ID.png and ID.json (its other columns)."""

    name, ending = "webdataset", "tar"

    def put(self, open_file: Open, part: Part, tables: Iterator[pa.Table]) -> None:
        with (
            open_file(f"{part.name}.{self.ending}", True) as file,
            tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar,
        ):
            for row in rows_of(tables):
                picture, name = take_picture(row)
                for member, data in ((name, picture), (f"{row['id']}.json", json.dumps(row).encode())):
                    info = tarfile.TarInfo(member)
                    info.size, info.mode = len(data), 0o644
                    tar.addfile(info, io.BytesIO(data))

    def tables(self, folder: Path, manifest: dict[str, Any], split: str, start: int, stop: int | None) -> Tables:
        for path, first, last in shards(folder, manifest, split, start, stop):
            yield from tables_of_rows(path, itertools.islice(_examples(path), first, last), _row)


def _examples(path: Path) -> Iterator[tuple[str, bytes, bytes]]:
    """Name and bytes of each example's picture, and its JSON."""
    with tarfile.open(regular(path), "r:") as tar:
        for picture, columns in zip(members := iter(tar), members, strict=True):
            files = tar.extractfile(picture), tar.extractfile(columns)
            if not (files[0] and files[1] and columns.name == f"{Path(picture.name).stem}.json"):
                raise ValueError(f"no picture and JSON of one name: {picture.name}, {columns.name}")
            yield picture.name, files[0].read(), files[1].read()


def _row(example: tuple[str, bytes, bytes]) -> dict[str, Any]:
    name, picture, columns = example
    return {**json.loads(columns), "image": {"bytes": picture, "path": name}}
