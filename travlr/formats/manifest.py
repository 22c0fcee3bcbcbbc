"""The manifest of a dataset: dataset.json, or what stands in for it where another program wrote the shards."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pydantic import BaseModel, Field, model_validator

from travlr.files import file_hash
from travlr.formats.columns import report_damage
from travlr.scene import SPLITS
from travlr.settings import UsageError

FORMAT_VERSION = 1
MANIFEST = "dataset.json"
UNFINISHED = ".unfinished.json"  # stands in a dataset that is not whole yet: what is being written
EXPORTED = "export.json"  # stands in a copy in another format
CARD = ("README.md", "example.png", "croissant.json")
SHARD = re.compile(rf"\A({'|'.join(SPLITS)})-\d{{5,}}-of-\d{{5,}}\.parquet\Z")


class FileEntry(BaseModel):
    name: str = Field(pattern=SHARD)
    split: str
    rows: int = Field(ge=0)
    bytes: int
    sha256: str


class SplitEntry(BaseModel):
    rows: int = Field(ge=0)
    true: int


class Manifest(BaseModel):
    """The entries of a manifest that are read without another check."""

    format_version: int = Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)
    config: dict[str, Any] | None
    held_out: dict[str, list[list[Any]]] | None
    pixels: str | None
    splits: dict[str, SplitEntry]
    content_digest: str
    versions: dict[str, str]
    files: list[FileEntry]
    source: dict[str, str] | None = None  # of what was not generated

    @model_validator(mode="after")
    def _has_an_origin(self) -> Manifest:
        if self.config is None and not self.source:
            raise ValueError("config=null: is for data with a source alone")
        return self


def versions() -> dict[str, str]:
    """Versions that the bytes of a dataset may depend on."""
    packages = {package: metadata.version(package) for package in ("travlr", "numpy", "pyarrow", "isal", "pillow")}
    return {"python": platform.python_version(), "machine": platform.machine(), **packages}


def has_manifest(folder: Path) -> bool:
    """Whether this program has finished a dataset in the folder; False for datasets of other programs."""
    return (folder / MANIFEST).is_file()


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a finished dataset, or what stands in for it. Raises `ValueError` where a folder holds none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UsageError(f"{folder}: {'is a file' if folder.is_file() else 'there is no such folder'}")
    if (folder / UNFINISHED).exists():
        raise ValueError(f"{folder}: unfinished; run the command that began it again to finish it")
    if not has_manifest(folder):
        return _foreign_manifest(folder)
    with report_damage(folder / MANIFEST):
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        Manifest.model_validate(manifest, strict=True)
    return manifest


def _foreign_manifest(folder: Path) -> dict[str, Any]:
    """What stands in for the manifest of shards that another program wrote: `train*.parquet` and so on.

    Raises `ValueError` where there are none, and where our own manifest is lost.
    """
    if (folder / EXPORTED).is_file():
        raise UsageError(f"{folder}: is a copy in another format; give the dataset that it was made of")
    if all((folder / name).is_file() for name in CARD[:2]):  # others may have a README.md alone
        raise ValueError(f"{folder / MANIFEST}: is missing; make the damaged dataset again, in another folder")
    files = []
    for split in SPLITS:
        for path in sorted(folder.glob(f"{split}*.parquet")):
            with report_damage(path):
                rows = pq.read_metadata(path).num_rows
            files.append({"name": path.name, "split": split, "rows": rows, **file_hash(path)})
    if not files:
        raise UsageError(f"{folder}: not a dataset (no {MANIFEST}, and no Parquet files such as train-*.parquet)")
    splits = {split: sum(file["rows"] for file in files if file["split"] == split) for split in SPLITS}
    return {
        "format_version": FORMAT_VERSION,
        "config": None,
        "pixels": None,
        "splits": {split: {"rows": rows} for split, rows in splits.items() if rows},
        "files": files,
        "content_digest": hashlib.sha256("".join(str(file["sha256"]) for file in files).encode()).hexdigest(),
    }


def check_files(folder: Path, files: Sequence[dict[str, Any]]) -> None:
    """Raise `ValueError` where one of a manifest's `files` is not as it says."""
    if problem := next(filter(None, (file_problem(folder, file) for file in files)), ""):
        raise ValueError(f"{folder}: {problem}; make it again, with the command that made it")


def file_problem(folder: Path, file: dict[str, Any]) -> str:
    """Why a file of a manifest's `files` is not as it says; empty where it is."""
    try:
        same = file_hash(folder / file["name"]).items() <= file.items()
    except OSError as error:
        return f"{file['name']}: {error.strerror}"
    return "" if same else f"{file['name']}: not the bytes that were written"
