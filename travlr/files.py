"""Atomic writing of files, locks of folders, and digests of files. Imports nothing else of this project."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

WORK = ".travlr"


class Locked(ValueError):
    """Another process has the lock of a folder."""


@contextlib.contextmanager
def replacing(path: Path, sync: bool = True) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`. On success it replaces `path`; on an exception it is removed.

    sync: wait until the bytes are on the disk.
    """
    with _temporary(path.with_name(f".{path.name}")) as temporary:
        yield temporary
        if sync:
            _sync(temporary)
        os.replace(temporary, path)


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield the path with random letters in its name, so that no two writers share it; remove what is left there."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Wait until the bytes of a file are on the disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def waiting_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which stays; another process waits for it."""
    with open(path, "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        yield


def check_apart(source: Path, folder: Path) -> None:
    """Raise `ValueError` where the folder to write and the source are the same, or one of them lies in the other."""
    paths = source.resolve(), folder.resolve()
    if paths[0].is_relative_to(paths[1]) or paths[1].is_relative_to(paths[0]):
        raise ValueError(f"{folder}: is, holds or lies in {source}; name another folder")


def put_file(path: Path, data: bytes, sync: bool = True) -> None:
    """Write a file atomically. sync: wait until the bytes are on the disk."""
    with replacing(path, sync) as temporary:
        temporary.write_bytes(data)


def hashed(path: Path) -> dict[str, str | int]:
    """Size in bytes and SHA-256 of a file."""
    with open(regular(path), "rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "bytes": file.tell()}


def regular(path: Path) -> Path:
    """The path of a regular file, or of a link to one. Raises `OSError` for anything else.

    Check every file from outside with it: opening a named pipe may block for ever, and a device may have no end.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. Raises `Locked` where another process holds it.

    It is a POSIX record lock: workers do not inherit it, it ends with its process, and it works on network disks.
    """
    path = folder / WORK / "lock"
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # O_NONBLOCK: to open a pipe in place of the lock would wait for ever. The file is closed below.
            file = open(path, "w", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK, 0o666))  # noqa: SIM115
        except FileNotFoundError:
            continue  # another process has just finished and removed it
        except OSError as error:
            raise ValueError(f"{folder}: {error.strerror}") from None
        with file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    message = f"{folder}: another process is writing there; wait for it, or name another folder"
                    raise Locked(message) from None
                raise ValueError(f"{folder}: no lock: {error.strerror}, or name another folder") from None
            if _is_still(file.fileno(), path):
                yield
                return


def _is_still(file: int, path: Path) -> bool:
    """Whether an open file is still at this path; its last holder may have removed it before we locked it."""
    try:
        return os.fstat(file).st_ino == os.stat(path).st_ino
    except FileNotFoundError:
        return False


def clear(folder: Path, keep: tuple[str, ...]) -> None:
    """Remove everything from a folder except the names in `keep`."""
    for path in folder.iterdir():
        if path.name not in keep:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def close(folder: Path) -> None:
    """Remove `.travlr` while holding its lock. Another process may take the lock as soon as its file is gone."""
    clear(folder / WORK, keep=("lock",))
    (folder / WORK / "lock").unlink()
    with contextlib.suppress(OSError):
        (folder / WORK).rmdir()


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
    return str(hashed(path)["sha256"])
