"""Atomic writing of files, locks, and digests of files. Imports nothing else of this project."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`. On success it replaces `path`; on an exception it is removed."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def put_file(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    with replace_file(path) as temporary:
        temporary.write_bytes(data)


def file_hash(path: Path) -> dict[str, str | int]:
    """Size in bytes and SHA-256 of a file."""
    with open(path, "rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "bytes": file.tell()}


def path_digest(name: str | None) -> str | None:
    """SHA-256 of a file, or of the files of a folder and their names. If the path does not exist, the name itself."""
    path = Path(name).expanduser() if name else None
    if path is None or not path.exists():
        return name
    if path.is_file():
        return _sha256(path)
    files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
    lines = "".join(f"{_sha256(file)} {file.relative_to(path).as_posix()}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def _sha256(path: Path) -> str:
    about = path.stat()
    return _sha256_of(path.resolve(), about.st_size, about.st_mtime_ns)


@functools.cache  # the runs of a sweep share files, which may have gigabytes
def _sha256_of(path: Path, size: int, mtime_ns: int) -> str:
    return str(file_hash(path)["sha256"])
