"""The manifest of a dataset: dataset.json, or what stands in for it where another program wrote the dataset."""

from __future__ import annotations

import functools
import json
import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

from travlr.files import WORK, regular
from travlr.formats.columns import damage
from travlr.formats.foreign import foreign_manifest
from travlr.scene import SPLITS

FORMAT_VERSION = 1
FORMATS = ("parquet", "imagefolder", "webdataset", "original")  # `travlr.formats` has one class for each
MANIFEST = "dataset.json"
MOST_ROWS = 10**12  # of a split: more mean a damaged manifest, and do not fit `len`


def versions() -> dict[str, str]:
    """Versions that the bytes of a dataset may depend on."""
    packages = ("travlr", "numpy", "pyarrow", "isal", "pillow")
    python = {"python": platform.python_version(), "machine": platform.machine()}
    return python | {package: _version(package) for package in packages}


@functools.cache
def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def has_manifest(folder: Path) -> bool:
    """Whether this program has finished a dataset in the folder; False for datasets of other programs."""
    return os.path.lexists(folder / MANIFEST)  # whatever it is: `checked_manifest` refuses all but regular files


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a finished dataset, or what stands in for it in the dataset of another program.

    Raises `ValueError`, in one line, for a folder that holds no dataset or an unfinished one.
    """
    folder = Path(folder)
    if has_manifest(folder):
        return checked_manifest(folder / MANIFEST)
    if not folder.is_dir():
        what = "is a file; give the folder of a dataset" if folder.is_file() else "there is no such folder"
        raise ValueError(f"{folder}: {what}")
    if (folder / WORK).is_dir():
        raise ValueError(f"{folder}: unfinished; run the command that began it again to finish it")
    return {"format_version": FORMAT_VERSION} | foreign_manifest(folder)


def checked_manifest(path: Path) -> dict[str, Any]:
    """A manifest, or the `job.json` of an unfinished dataset, after validation.

    Raises `ValueError` where it is damaged, comes from a newer version, or names files outside its folder.
    """
    with damage(path):
        manifest = json.loads(regular(path).read_text(encoding="utf-8"))
        version = int(manifest["format_version"])
    if version > FORMAT_VERSION:
        raise ValueError(f"{path}: format version {version}, newer than this program's {FORMAT_VERSION}; update TraVLR")
    with damage(path):
        for key, kind in {"layout": str, "config": dict | None, "splits": dict, "files": list}.items():
            if not isinstance(manifest[key], kind):
                raise ValueError(f"wrong {key}")
        if manifest["layout"] not in FORMATS:
            raise ValueError(f"unknown layout {manifest['layout']!r}")
        if not isinstance(rows_per_file := manifest.get("rows_per_file"), int) or rows_per_file < 1:
            raise ValueError(f"wrong rows_per_file {rows_per_file!r}")
        for file in manifest["files"]:
            _check_file(file)
        for split, counts in manifest["splits"].items():
            if (
                split not in SPLITS
                or not isinstance(counts, dict)
                or not _is_count(counts["rows"])
                or counts["rows"] < 1
            ):
                raise ValueError(f"wrong split {split!r}")
        if not manifest["splits"]:
            raise ValueError("no splits")
        if any("*" in f["name"] and f["rows"] > manifest["splits"][f["split"]]["rows"] for f in manifest["files"]):
            raise ValueError("more pictures than rows")
        for name in ("pairs", "queries") if manifest.get("held_out") else ():
            if not all(isinstance(item, list) for item in manifest["held_out"][name]):
                raise ValueError(f"wrong held_out {name}")
    return manifest


_SPLIT = f"(?:{'|'.join(SPLITS)})"


FILE_NAME = re.compile(  # all names that formats give to files
    rf"{_SPLIT}-\d{{5,}}-of-\d{{5,}}\.(?:parquet|tar)"
    rf"|{_SPLIT}/(?:metadata\.jsonl|\w+-{_SPLIT}-\*\.(?:png|jpg))"
    r"|index\.csv|metadata\.jsonl|images/\*\.jpg"
)


def _is_count(value: Any) -> bool:
    """Whether a value of a manifest can be a number of rows."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_ROWS


def _check_file(file: dict[str, Any]) -> None:
    name, rows = file["name"], file.get("rows", 0)
    if not FILE_NAME.fullmatch(name):  # also keeps `overwrite=true` from removing anything else
        raise ValueError(f"names a file that no dataset has: {name}")
    if file["split"] not in (None, *SPLITS) or not _is_count(rows):
        raise ValueError(f"wrong split or rows of {name}")
    if "*" in file["name"] and not ("rows" in file and _is_count(file["start"]) and file["digits"] in ("d", "08d")):
        raise ValueError(f"wrong numbers of {name}")
