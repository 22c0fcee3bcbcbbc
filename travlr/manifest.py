"""The manifest of a dataset: dataset.json, or what stands in for it where another program wrote the shards."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

from travlr.columns import damage, open_parquet
from travlr.files import hashed, regular
from travlr.scene import SPLITS

FORMAT_VERSION = 1
MANIFEST = "dataset.json"
MOST_ROWS = 10**12  # of a split: more do not fit `len`
UNFINISHED = ".unfinished.json"  # stands in a dataset that is not whole yet: what is being written
EXPORTED = "export.json"  # stands in a copy in another format
CARD = ("README.md", "example.png")
SHARD = re.compile(rf"({'|'.join(SPLITS)})-\d{{5,}}-of-\d{{5,}}\.parquet")
SPLIT = re.compile(rf"(?:^|[/.-])({'|'.join(SPLITS)})(?=$|[/.-]|_\d)")  # in a path: data/train-00000-of-00001
DEPTHS = ("*", "*/*", "*/*/*")  # where shards of other programs may lie


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
    return (folder / MANIFEST).is_file()


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a finished dataset, or what stands in for it in the dataset of another program.

    Raises `ValueError`, in one line, for a folder that holds no dataset, or one that is unfinished or damaged.
    """
    folder = Path(folder)
    if not folder.is_dir():
        what = "is a file; give the folder of a dataset" if folder.is_file() else "there is no such folder"
        raise ValueError(f"{folder}: {what}")
    if has_manifest(folder):
        return _checked(folder / MANIFEST)
    if (folder / UNFINISHED).exists():
        raise ValueError(f"{folder}: unfinished; run the command that began it again to finish it")
    return foreign_manifest(folder)


def _checked(path: Path) -> dict[str, Any]:
    """A manifest. Raises `ValueError` where it is damaged, of another version, or names files that no dataset has."""
    with damage(path):
        manifest: dict[str, Any] = json.loads(regular(path).read_text(encoding="utf-8"))
        version = manifest["format_version"]
    if version != FORMAT_VERSION:
        raise ValueError(f"{path}: format version {version}, not this program's {FORMAT_VERSION}; generate it again")
    with damage(path):
        for split, counts in manifest["splits"].items():
            if split not in SPLITS or not isinstance(counts, dict) or not 0 < int(counts["rows"]) <= MOST_ROWS:
                raise ValueError(f"wrong split {split!r}")
        for file in manifest["files"]:
            if not SHARD.fullmatch(file["name"]) or file["split"] not in SPLITS:
                raise ValueError(f"names a file that no dataset has: {file['name']}")
            if not 0 <= int(file["rows"]) <= MOST_ROWS:
                raise ValueError(f"wrong rows of {file['name']}")
        for key in ("config", "content_digest", "pixels"):
            manifest[key]
    return manifest


def foreign_manifest(folder: Path) -> dict[str, Any]:
    """What stands in for the manifest of shards that another program wrote; nothing says how they were made.

    Raises `ValueError` where the folder holds no dataset or several, and where a shard lacks a column.
    """
    if inner := sorted(path.parent.name for path in folder.glob(f"*/{MANIFEST}")):
        raise ValueError(f"{folder}: holds datasets and is none itself; name one of them: {', '.join(inner)}")
    if (folder / "index.csv").is_file():
        raise ValueError(f"{folder}: has the published layout; python -m travlr.convert reads it")
    if (folder / EXPORTED).is_file():
        raise ValueError(f"{folder}: is a copy in another format; give the dataset that it was made of")
    shards = shards_of(folder)
    homes = {split: sorted({_home(name) for other, name in shards if other == split}) for split, _ in shards}
    if several := next((names for names in homes.values() if len(names) > 1), []):
        raise ValueError(f"{folder}: holds several datasets; name one of them: {', '.join(several)}")
    files = [
        {"name": name, "split": split, "rows": open_parquet(folder / name).metadata.num_rows, **hashed(folder / name)}
        for split, name in shards
    ]
    if not files:
        raise ValueError(f"{folder}: not a dataset (no {MANIFEST}, and no Parquet files such as train-*.parquet)")
    splits = {split: sum(file["rows"] for file in files if file["split"] == split) for split in SPLITS}
    if not any(splits.values()):
        raise ValueError(f"{folder}: has no rows")
    lines = "".join(f"{file['split']} {file['sha256']}\n" for file in files)
    return {
        "format_version": FORMAT_VERSION,
        "config": None,
        "pixels": None,
        "splits": {split: {"rows": rows} for split, rows in splits.items() if rows},
        "files": files,
        "content_digest": hashlib.sha256(lines.encode()).hexdigest(),
    }


def shards_of(folder: Path) -> list[tuple[str, str]]:
    """Split and path of each Parquet file that is named after a split, or whose folder is; in the order of the rows.

    So files that `Dataset.to_parquet`, `DatasetDict.push_to_hub`, pandas or others wrote: `train.parquet`,
    `data/train-00000-of-00002.parquet`, `default/train/0000.parquet`.
    """
    shards = []
    for path in (path for depth in DEPTHS for path in folder.glob(f"{depth}.parquet")):
        name = path.relative_to(folder).as_posix()
        names = SPLIT.findall(name.removesuffix(".parquet"))
        if names and not any(part[0] in "._" for part in name.split("/")):
            shards.append((names[-1], name))
    return sorted(shards, key=lambda shard: (SPLITS.index(shard[0]), shard[1]))


def _home(name: str) -> str:
    """The folder of the dataset that a shard belongs to: that of the shard, but for a folder named after a split."""
    return "/".join(part for part in name.split("/")[:-1] if not SPLIT.search(part)) or "."


def file_problem(folder: Path, file: dict[str, Any]) -> str:
    """Why a file of a manifest's `files` is not as it says; empty where it is."""
    try:
        size_and_digest = hashed(folder / file["name"])
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return "" if size_and_digest.items() <= file.items() else f"{file['name']}: not the bytes that were written"
