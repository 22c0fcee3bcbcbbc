"""Atomic writing of files, locks of folders, and digests of files. Imports nothing else of this project.

The folder of an unfinished dataset holds a folder `.travlr` with the lock, the plan and temporary files. A file that
would be replaced by other bytes moves to `.kept`: it is damaged, or a user has edited it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import filecmp
import functools
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

WORK = ".travlr"
KEPT = ".kept"


class Locked(ValueError):
    """Another process has the lock of a folder."""


@contextlib.contextmanager
def replacing(path: Path, sync: bool = True) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`. On success it replaces `path`; on an exception it is removed.

    sync: wait until the bytes are on the disk. `placed` also keeps the file that it replaces.
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


@contextlib.contextmanager
def placed(folder: Path, name: str, sync: bool = True) -> Iterator[Path]:
    """Yield a temporary path. On success it becomes `folder / name`; on an exception it is removed.

    An older file with other bytes moves to `.kept`. sync: wait until the bytes are on the disk, which is slow for many
    small files; parts need no sync, because their records show which of them a power failure has damaged.

    Raises `OSError` with the name of the file that cannot be written.
    """
    target = folder / name
    with _temporary(folder / WORK / target.name) as temporary:
        try:
            yield temporary
            if sync:
                _sync(temporary)
            if target.exists() and not name.startswith(WORK):
                if filecmp.cmp(temporary, target, shallow=False):
                    return
                _keep(folder, name)
            os.replace(temporary, target)
        except OSError as error:
            number = error.errno or errno.EIO
            raise OSError(number, os.strerror(number), str(target)) from None


def _keep(folder: Path, name: str) -> None:
    """Move a file to `.kept`, under a name that no earlier one has."""
    target = folder / KEPT / name
    target.parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while target.exists():
        number += 1
        target = folder / KEPT / f"{name}.{number}"
    os.replace(folder / name, target)


def check_apart(source: Path, folder: Path) -> None:
    """Raise `ValueError` where the folder to write and the source are the same, or one of them lies in the other."""
    paths = source.resolve(), folder.resolve()
    if paths[0].is_relative_to(paths[1]) or paths[1].is_relative_to(paths[0]):
        raise ValueError(f"{folder}: is, holds or lies in {source}; name another folder")


def put_file(folder: Path, name: str, chunks: Iterable[bytes], sync: bool = True) -> None:
    """Write `folder / name` atomically."""
    with placed(folder, name, sync) as path, open(path, "wb") as file:
        for chunk in chunks:
            file.write(chunk)


def regular(path: Path) -> Path:
    """The path of a regular file, or of a link to one. Raises `OSError` for anything else.

    Check every file from outside with it: opening a named pipe may block for ever, and a device may have no end.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path


def read_chunks(path: Path) -> Iterator[bytes]:
    with open(regular(path), "rb") as file:
        while chunk := file.read(1 << 20):
            yield chunk


def hashed(paths: Iterable[Path]) -> dict[str, str | int]:
    """Size in bytes and SHA-256 of the concatenation of files."""
    digest, size = hashlib.sha256(), 0
    for path in paths:
        for chunk in read_chunks(path):
            digest.update(chunk)
            size += len(chunk)
    return {"bytes": size, "sha256": digest.hexdigest()}


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


def is_work_alone(folder: Path) -> bool:
    """Whether `.travlr` is missing, or holds only files of a run that ended before it wrote its plan."""
    work = folder / WORK
    if not work.is_dir():
        return not work.exists()
    return all(p.name in ("lock", "parts") or p.suffix == ".tmp" for p in work.iterdir())


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
    return str(hashed([path])["sha256"])
