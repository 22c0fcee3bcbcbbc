"""A dataset in the formats of other programs: one function for each. Parquet is the dataset, these are copies."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from travlr.config import Config, Style
from travlr.dataset import Dataset, SplitReader
from travlr.formats.card import card_files
from travlr.formats.manifest import EXPORTED
from travlr.formats.original import write_original
from travlr.settings import UsageError

SHARD_ROWS = 8000  # of a tar file

Rows = Mapping[str, Iterator[dict[str, Any]]]  # by split


def write_imagefolder(folder: Path, splits: Rows) -> dict[str, str]:
    """`train/ID.png` and so on, and `train/metadata.jsonl` with their columns and `file_name`."""
    for split, rows in splits.items():
        (folder / split).mkdir()
        with open(folder / split / "metadata.jsonl", "w", encoding="utf-8") as metadata:
            for row in rows:
                image = row.pop("image")
                file = file_name(row, image["bytes"])
                (folder / split / file).write_bytes(image["bytes"])
                metadata.write(json.dumps({"file_name": file, **row}) + "\n")
    return {split: f"{split}/*" for split in splits}


def write_webdataset(folder: Path, splits: Rows) -> dict[str, str]:
    """`train-00000.tar` and so on: for each example ID.png and ID.json (its other columns).

    All pictures have the ending of the first one, as `datasets` makes a column of each ending; it reads them by their
    content.
    """
    ending = None
    for split, rows in splits.items():
        number = 0
        while shard := list(itertools.islice(rows, SHARD_ROWS)):
            with tarfile.open(folder / f"{split}-{number:05d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
                for row in shard:
                    image = row.pop("image")
                    name, _, own_ending = file_name(row, image["bytes"]).rpartition(".")
                    ending = ending or own_ending
                    add_member(tar, f"{name}.{ending}", image["bytes"])
                    add_member(tar, f"{name}.json", json.dumps(row).encode())
            number += 1
    return {split: f"{split}-*.tar" for split in splits}


def file_name(row: Mapping[str, Any], picture: bytes) -> str:
    """The file of a row's picture, without the slashes and full stops that the ids of corpora have."""
    return re.sub(r"[/.]", "-", row["id"]) + (".png" if picture.startswith(b"\x89PNG") else ".jpg")


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


def check_export(layout: str, folder: Path, config: Config | None) -> None:
    """Raise `UsageError` for a format that cannot hold the dataset, and for a folder that holds something else."""
    if layout == "original" and config and config.style != Style():
        raise UsageError("format=original: holds style.image=plain and style.caption=sentences alone")
    check_folder(folder)


def check_folder(folder: Path) -> None:
    """Raise `UsageError` where a folder holds something else than an export."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / EXPORTED).is_file()):
        raise UsageError(f"{folder}: is not empty and no export; name another folder")


def check_apart(source: Path, folder: Path) -> None:
    """Raise `UsageError` where the folder to write and the source are the same, or one of them lies in the other."""
    paths = source.resolve(), folder.resolve()
    if paths[0].is_relative_to(paths[1]) or paths[1].is_relative_to(paths[0]):
        raise UsageError(f"{folder}: is, holds or lies in {source}; name another folder")


def export(layout: str, folder: Path, dataset: Dataset) -> None:
    """Write a dataset in another format, into a new folder or in place of an earlier export.

    Raises `UsageError` as `check_export` does.
    """
    check_export(layout, folder, dataset.config)
    with replace_export(folder, layout, dataset) as temporary:
        globs = FORMATS[layout](temporary, {split: _rows(reader) for split, reader in dataset.splits.items()})
        first_row = next(_rows(next(iter(dataset.splits.values()))))
        about = {**dataset.manifest, "layout": layout, "data_files": globs}
        for file, data in card_files(about, first_row).items():
            (temporary / file).write_bytes(data)


@contextlib.contextmanager
def replace_export(folder: Path, layout: str, dataset: Dataset) -> Iterator[Path]:
    """Yield an empty folder. On success it replaces an export, on an exception it is removed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as name:
        temporary = Path(name) / folder.name
        temporary.mkdir()
        yield temporary
        content = {"format": layout, "content_digest": dataset.manifest["content_digest"]}
        (temporary / EXPORTED).write_text(json.dumps(content))
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)


def _rows(reader: SplitReader) -> Iterator[dict[str, Any]]:
    return (row for table in reader.tables() for row in table.to_pylist())
