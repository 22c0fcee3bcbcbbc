"""A dataset as files for trainers: `python -m travlr.convert SRC DST format=trl`, or `format=messages`."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pydantic import model_validator

from render.png import data_uri, decode
from travlr.dataset import open_dataset
from travlr.finetuning.rows import COLUMNS, ChatRow, RowSettings, make_rows
from travlr.formats.columns import ROW_GROUP, schema_of
from travlr.formats.exports import check_apart, check_folder, file_name, replace_export
from travlr.formats.manifest import check_files
from travlr.tasks import short_name


class TrainerExport(RowSettings):
    """The settings of an export."""

    format: Literal["trl", "messages"]
    pictures: Literal["files", "inline"] = "files"  # in a folder or in the lines

    @model_validator(mode="after")
    def _pictures_of_lines(self) -> TrainerExport:
        if self.format == "trl" and self.pictures == "inline":
            raise ValueError("pictures=inline: is of format=messages; Parquet files hold their pictures anyway")
        return self


def export_rows(source: Path, folder: Path, settings: TrainerExport) -> None:
    """Write the rows of a dataset, into a new folder or in place of an earlier export.

    Raises `ValueError` for what cannot be exported.
    """
    check_apart(source, folder)
    check_folder(folder)
    dataset = open_dataset(source)
    check_files(source, dataset.manifest["files"])
    settings = settings.of_dataset(dataset)
    with replace_export(folder, settings.format, dataset) as temporary:
        for split in settings.split:
            WRITERS[settings.format](temporary, split, make_rows(dataset[split], settings, dataset.grid), settings)
        about = _card(settings) if settings.format == "trl" else _dataset_info(dataset.task, settings)
        for name, text in about.items():
            (temporary / name).write_text(text, encoding="utf-8")


# TRL -----------------------------------------------------------------------------------------------------------------


def write_parquet(folder: Path, split: str, rows: Iterator[ChatRow], settings: RowSettings) -> None:
    """SPLIT.parquet with the columns of `make_rows`."""
    schema = schema_of({name: kind for name, kind in COLUMNS.items() if name != "images" or settings.shows_pictures})
    with pq.ParquetWriter(folder / f"{split}.parquet", schema, compression="zstd") as writer:
        while group := list(itertools.islice(rows, ROW_GROUP)):
            with_files = [row | {"images": [{"bytes": image} for image in row.get("images", ())]} for row in group]
            writer.write_table(pa.Table.from_pylist(with_files, schema))


def _card(settings: RowSettings) -> dict[str, str]:
    files = [{"split": split, "path": f"{split}.parquet"} for split in settings.split]
    header = yaml.safe_dump({"configs": [{"config_name": "default", "data_files": files}]}, sort_keys=False)
    return {"README.md": f"---\n{header}---\nRows for TRL, made by travlr.convert.\n"}


# Messages ------------------------------------------------------------------------------------------------------------


def write_messages(folder: Path, split: str, rows: Iterator[ChatRow], settings: TrainerExport) -> None:
    """SPLIT.jsonl: `messages`, and the paths of their `images`, each with its place `<image>`, as ms-swift and
    LLaMA-Factory have them; with pictures=inline the messages alone, as hosted fine-tuning takes them."""
    if settings.shows_pictures and settings.pictures == "files":
        (folder / "images").mkdir(exist_ok=True)
    with open(folder / f"{split}.jsonl", "w", encoding="utf-8") as lines:
        for row in rows:
            line = _inline(row) if settings.pictures == "inline" else _with_paths(row, folder)
            lines.write(json.dumps(line, ensure_ascii=False) + "\n")


def _with_paths(row: ChatRow, folder: Path) -> dict[str, Any]:
    images = row.get("images", ())
    paths = [f"images/{file_name(row, image)}" for image in images]
    for path, image in zip(paths, images, strict=True):
        (folder / path).write_bytes(image)
    (prompt,) = row["prompt"]
    asked = {**prompt, "content": "<image>" * len(paths) + prompt["content"]}
    line = {"messages": [asked, *row["completion"]], "question": row["question"]}
    return line | ({"images": paths} if "images" in row else {})


def _inline(row: ChatRow) -> dict[str, Any]:
    (prompt,) = row["prompt"]
    parts = [
        {"type": "image_url", "image_url": {"url": data_uri(_without_palette(image))}}
        for image in row.get("images", ())
    ]
    content = [*parts, {"type": "text", "text": prompt["content"]}] if parts else prompt["content"]
    return {"messages": [{**prompt, "content": content}, *row["completion"]]}


def _without_palette(image: bytes) -> bytes:
    """A picture as a PNG file in RGB: hosted fine-tuning refuses palettes."""
    file = io.BytesIO()
    decode(image).save(file, "PNG")
    return file.getvalue()


def _dataset_info(task: str, settings: TrainerExport) -> dict[str, str]:
    """The index of LLaMA-Factory."""
    columns = {"messages": "messages"} | ({"images": "images"} if settings.shows_pictures else {})
    tags = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}
    info = {
        f"travlr_{short_name(task)}_{split}": {
            "file_name": f"{split}.jsonl",
            "formatting": "sharegpt",
            "columns": columns,
            "tags": tags,
        }
        for split in settings.split
    }
    return {} if settings.pictures == "inline" else {"dataset_info.json": json.dumps(info, indent=1)}


WRITERS: dict[str, Callable[[Path, str, Iterator[ChatRow], TrainerExport], None]] = {
    "trl": write_parquet,
    "messages": write_messages,
}
