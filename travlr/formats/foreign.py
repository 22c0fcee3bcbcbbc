"""Datasets that other programs wrote, without a manifest: Parquet shards with our columns, and the published layout.

Both get what stands in for a manifest: `layout`, `config` (None, as nobody says how the examples were made), `splits`,
`files`, and a `content_digest` of the bytes of the files.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from travlr.files import path_digest, regular
from travlr.formats.columns import damage, open_parquet
from travlr.scene import SPLITS

# The published layout has other names for the splits.
PUBLISHED_SPLITS = {"train": "train", "validation": "val", "test_ind": "val_test", "test_ood": "test"}
PUBLISHED_COLUMNS = ("", "caption", "query", "answer", "image", "split")
PUBLISHED_FILES = ("index.csv", "metadata.jsonl")
SPLIT = re.compile(rf"(?:^|[/.-])({'|'.join(SPLITS)})(?=$|[/.-]|_\d)")  # in a path: data/train-00000-of-00001
DEPTHS = ("*", "*/*", "*/*/*")  # where shards may lie in the folder of a dataset


def foreign_manifest(folder: Path) -> dict[str, Any]:
    """What stands in for the manifest of a folder that has none.

    Raises `ValueError` where the folder holds no dataset or several, and where a shard lacks a column or has one of
    another type.
    """
    if (folder / PUBLISHED_FILES[0]).is_file():
        splits, layout = published_counts(folder), "original"
        files = [_entry(folder, name, None) for name in PUBLISHED_FILES]
    else:
        layout = "parquet"
        if inner := sorted(path.parent.name for path in folder.glob("*/dataset.json")):
            raise ValueError(f"{folder}: holds datasets and is none itself; name one of them: {', '.join(inner)}")
        shards = shards_of(folder)
        homes = {split: sorted({_home(name) for other, name in shards if other == split}) for split, _ in shards}
        if several := next((names for names in homes.values() if len(names) > 1), []):
            raise ValueError(f"{folder}: holds several datasets; name one of them: {', '.join(several)}")
        files = [
            _entry(folder, name, split) | {"rows": open_parquet(folder / name).metadata.num_rows}
            for split, name in shards
        ]
        splits = {split: sum(file["rows"] for file in files if file["split"] == split) for split in SPLITS}
        splits = {split: rows for split, rows in splits.items() if rows}
    if not files:
        raise ValueError(f"{folder}: not a dataset (no dataset.json, and no Parquet files such as train-*.parquet)")
    if not splits:
        raise ValueError(f"{folder}: has no rows")
    lines = "".join(f"{file['split']} {file['sha256']}\n" for file in files)
    return {
        "layout": layout,
        "config": None,
        "splits": {split: {"rows": rows} for split, rows in splits.items()},
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


def _entry(folder: Path, name: str, split: str | None) -> dict[str, Any]:
    path = folder / name
    size = path.stat().st_size if path.is_file() else 0
    return {"name": name, "split": split, "bytes": size, "sha256": path_digest(str(path))}


def published_counts(folder: Path) -> dict[str, int]:
    """Rows per split of a dataset in the published layout, with this project's names of the splits."""
    path = folder / PUBLISHED_FILES[0]
    counts = dict.fromkeys(PUBLISHED_SPLITS.values(), 0)
    with damage(path):
        for line in read_index(path):
            if line["split"] not in counts:
                raise ValueError(f"unknown split {line['split']!r}")
            counts[line["split"]] += 1
    return {split: counts[name] for split, name in PUBLISHED_SPLITS.items() if counts[name]}


def read_index(path: Path) -> Iterator[dict[str, str]]:
    """The lines of index.csv. Raises `ValueError` where it lacks a column."""
    with open(regular(path), newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, strict=True)
        if missing := set(PUBLISHED_COLUMNS) - set(reader.fieldnames or ()):
            raise ValueError(f"not in the published layout: it has no column {min(missing)!r}")
        yield from reader
