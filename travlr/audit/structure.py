"""Checks that files hold nothing but pixels and rows, as files of any version of this program do.

A chunk of text in a PNG, bytes behind its end, another column or a metadata entry of a Parquet file could each hold
answers.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from travlr.formats.columns import FEATURES, ROW_GROUP, SCHEMA, open_parquet

SIGNATURE = b"\x89PNG\r\n\x1a\n"
JPEG_MARKERS = {0xE0, 0xDB, 0xC0, 0xC2, 0xC4, 0xDD, 0xDA}  # JFIF, tables, the frame, the scan: no comment, no Exif
ARROW_VERSION = re.compile(r"parquet-cpp-arrow version [\d.]+(-SNAPSHOT)?")


# Pictures -----------------------------------------------------------------------------------------------------------


def png_problem(data: bytes, due: bytes) -> str:
    """The first difference of a PNG file from the one that is due; empty where they differ in compression alone.

    Then both have the same chunks with the same bytes, and image data that decompress to the same bytes.
    """
    try:
        chunks, due_chunks = list(png_chunks(data)), list(png_chunks(due))
        names, due_names = (" ".join(name.decode("latin-1") for name, _ in file) for file in (chunks, due_chunks))
        if names != due_names:
            return f"PNG chunks are {names}, not {due_names}"
        for (name, body), (_, due_body) in zip(chunks, due_chunks, strict=True):
            if name != b"IDAT" and body != due_body:
                return f"PNG chunk {name.decode('latin-1')} has other bytes"
            if name == b"IDAT" and inflated(body) != inflated(due_body):
                return "image data of the PNG are other lines (pixels, filters or padding)"
    except ValueError as error:
        return str(error)
    return ""


def png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Names and bodies of the chunks of a PNG file. Raises `ValueError` where there is anything else."""
    if not data.startswith(SIGNATURE):
        raise ValueError("not a PNG file")
    at, name = len(SIGNATURE), b""
    while at < len(data):
        if name == b"IEND":
            raise ValueError(f"{len(data) - at} bytes behind the end of the PNG")
        if at + 12 > len(data):
            raise ValueError("the PNG ends within a chunk")
        size, name = struct.unpack_from(">I4s", data, at)
        body, end = data[at + 8 : at + 8 + size], at + 8 + size
        if data[end : end + 4] != struct.pack(">I", zlib.crc32(body, zlib.crc32(name))):
            raise ValueError(f"wrong CRC of the PNG chunk {name.decode('latin-1')}")
        yield name, body
        at = end + 4
    if name != b"IEND":
        raise ValueError("the PNG has no end")


def inflated(stream: bytes) -> bytes:
    """A decompressed stream. Raises `ValueError` where it is damaged, or followed by other bytes."""
    inflate = zlib.decompressobj()
    try:
        lines = inflate.decompress(stream)
    except zlib.error as error:
        raise ValueError(f"compressed data are damaged ({error})") from None
    if not inflate.eof or inflate.unused_data:
        raise ValueError(f"{len(inflate.unused_data)} bytes behind the compressed data, or no end of them")
    return lines


def jpeg_header(data: bytes) -> bytes:
    """What a JPEG file holds before its one scan. Raises `ValueError` for comments, Exif, and bytes behind the end."""
    if not data.startswith(b"\xff\xd8"):
        raise ValueError("not a JPEG file")
    at, marker = 2, 0
    while marker != 0xDA:
        if at + 4 > len(data) or data[at] != 0xFF or data[at + 1] not in JPEG_MARKERS:
            raise ValueError(f"JPEG marker {data[at : at + 2].hex()}")
        marker = data[at + 1]
        at += 2 + int(struct.unpack_from(">H", data, at + 2)[0])
    end = re.compile(rb"\xff[^\x00\xd0-\xd7]").search(data, at)  # FF00 and restarts belong to the scan
    if not end or data[end.start() :] != b"\xff\xd9":
        raise ValueError("bytes behind the end of the JPEG, or no end")
    return data[:at]


def encoding(data: bytes, due: bytes) -> list[tuple[str, Any]]:
    """How a sound picture file was encoded: its header, and how much larger it is than the due one."""
    header, larger = stream_header(data), len(data) - len(due)
    same = header == stream_header(due)
    return [
        ("header", "as here" if same else hashlib.sha256(header).hexdigest()[:8]),
        ("larger", (larger > 0) - (larger < 0)),
        ("bytes more", larger),
    ]


def stream_header(data: bytes) -> bytes:
    """What a program chooses once for all pictures: how it compresses a PNG, or the tables of a JPEG."""
    if data.startswith(SIGNATURE):
        return next(body[:2] for name, body in png_chunks(data) if name == b"IDAT")
    return jpeg_header(data)


# Parquet files ------------------------------------------------------------------------------------------------------


def parquet_problem(path: Path) -> str:
    """The first part of a Parquet file that no version of this program writes; empty where there is none."""
    try:
        file = open_parquet(path)
    except ValueError as error:
        return str(error)
    schema, about = file.schema_arrow, file.metadata
    if names := [name for name in schema.names if name not in SCHEMA.names]:
        return f"{path.name}: has a column {names[0]}"
    for field, due in zip(schema, SCHEMA, strict=False):
        if not field.equals(due) or has_metadata(field):
            return f"{path.name}: column {field.name} is not in its place, or of another type, or has metadata"
    if keys := sorted(set(about.metadata or {}) - {b"ARROW:schema", b"huggingface"}):
        return f"{path.name}: has metadata {keys[0].decode(errors='replace')}"
    if not declares(schema.metadata or {}):
        return f"{path.name}: declares other features to Hugging Face datasets"
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    if any(group.num_rows != ROW_GROUP for group in groups[:-1]):
        return f"{path.name}: has row groups of other sizes than {ROW_GROUP}"
    if not ARROW_VERSION.fullmatch(about.created_by):
        return f"{path.name}: another program wrote it ({about.created_by[:60]})"
    end = 4
    for column in (group.column(number) for group in groups for number in range(group.num_columns)):
        if end != (column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset):
            return f"{path.name}: has other bytes before byte {end} of {column.path_in_schema}"
        end += column.total_compressed_size
    behind = path.stat().st_size - end - about.serialized_size - 8
    return f"{path.name}: has {behind} other bytes between rows and metadata" if behind else ""


def has_metadata(field: pa.Field) -> bool:
    """Whether a field, or one within it, has metadata of its own."""
    kind = field.type
    inner = [kind.value_field] if pa.types.is_list(kind) else list(kind) if pa.types.is_struct(kind) else []
    return bool(field.metadata) or any(map(has_metadata, inner))


def declares(metadata: dict[bytes, bytes]) -> bool:
    """Whether metadata declare the features of a dataset, with or (as earlier versions did) without a picture mode."""
    try:
        features = json.loads(metadata[b"huggingface"])
    except (KeyError, ValueError):
        return False
    silent = {**FEATURES, "image": {"_type": "Image"}}
    return set(metadata) == {b"huggingface"} and features in ({"info": {"features": f}} for f in (FEATURES, silent))
