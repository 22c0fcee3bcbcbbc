"""A dataset in the formats of other programs: one function for each. Parquet is the dataset, these are copies."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from travlr.card import card_files
from travlr.manifest import EXPORTED
from travlr.original import write_original

SHARD_ROWS = 8000  # of a tar file

Rows = Mapping[str, Iterator[dict[str, Any]]]  # by split


def write_imagefolder(folder: Path, splits: Rows) -> dict[str, str]:
    """`train/ID.png` and so on, and `train/metadata.jsonl` with their columns and `file_name`."""
    for split, rows in splits.items():
        (folder / split).mkdir()
        with open(folder / split / "metadata.jsonl", "w", encoding="utf-8") as metadata:
            for row in rows:
                image = row.pop("image")
                (folder / split / image["path"]).write_bytes(image["bytes"])
                metadata.write(json.dumps({"file_name": image["path"], **row}) + "\n")
    return {split: f"{split}/*" for split in splits}


def write_webdataset(folder: Path, splits: Rows) -> dict[str, str]:
    """`train-00000.tar` and so on: for each example ID.png and ID.json (its other columns)."""
    for split, rows in splits.items():
        number = 0
        while shard := list(itertools.islice(rows, SHARD_ROWS)):
            with tarfile.open(folder / f"{split}-{number:05d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
                for row in shard:
                    image = row.pop("image")
                    add_member(tar, image["path"], image["bytes"])
                    add_member(tar, f"{row['id']}.json", json.dumps(row).encode())
            number += 1
    return {split: f"{split}-*.tar" for split in splits}


def add_member(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Append a file to a tar file."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o644
    tar.addfile(info, io.BytesIO(data))


# Each writes rows by split into an empty folder, and returns the globs from which `datasets` takes the splits.
FORMATS: dict[str, Callable[[Path, Rows], dict[str, str]]] = {
    "imagefolder": write_imagefolder,
    "webdataset": write_webdataset,
    "original": write_original,
}


def check_export(layout: str, folder: Path, config: Mapping[str, Any] | None) -> None:
    """Raise `ValueError` for a format that cannot hold the dataset, and for a folder that holds something else."""
    if layout == "original" and config and "style" in config:
        style = ", ".join(f"style.{name}={value}" for name, value in config["style"].items())
        raise ValueError(f"format=original: holds style.image=plain, style.caption=sentences alone, not {style}")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / EXPORTED).is_file()):
        raise ValueError(f"{folder}: is not empty and no export; name another folder")


def export(layout: str, folder: Path, splits: Mapping[str, Iterator[pa.Table]], about: Mapping[str, Any]) -> None:
    """Write a dataset in another format, into a new folder or in place of an earlier export.

    about: the entries of the manifest of the dataset. Raises `ValueError` as `check_export` does.
    """
    check_export(layout, folder, about["config"])
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    first: list[dict[str, Any]] = []

    def rows(tables: Iterator[pa.Table]) -> Iterator[dict[str, Any]]:
        for table in tables:
            for row in table.to_pylist():
                first.extend([] if first else [row | {}])
                yield row

    try:
        globs = FORMATS[layout](temporary, {split: rows(tables) for split, tables in splits.items()})
        for name, data in card_files({**about, "layout": layout, "data_files": globs}, first[0]).items():
            (temporary / name).write_bytes(data)
        (temporary / EXPORTED).write_text(json.dumps({"format": layout, "content_digest": about["content_digest"]}))
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
