"""Files from outside, and folders that a command writes: read, checked and written in one way, errors in one line."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from travlr import files


@contextlib.contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Raise `ValueError`, in one line with the path, for a file that cannot be opened or is not UTF-8."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except UnicodeError:
        raise ValueError(f"{path}: is not text in UTF-8") from None


def read_object(path: Path) -> dict[str, Any]:
    """The names and values in a JSON file of ours. Raises `ValueError` for other contents."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: needs names and values")
    return value


def is_begun(folder: Path, records: tuple[str, ...], settings: Mapping[str, Any], what: str) -> bool:
    """Whether a folder has a record of these settings, in the first of some files that exists.

    Raises `ValueError` for a record of other settings, and for a folder with other files.
    """
    for path in (folder / name for name in records):
        if path.is_file():
            record = read_object(path)
            if other := [f"{name}={record.get(name)}" for name in settings if record.get(name) != settings[name]]:
                raise ValueError(f"{folder} holds another {what} ({', '.join(other)}); name another folder")
            return True
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    if any(path.name != files.WORK for path in folder.glob("*")) or not files.is_work_alone(folder):
        raise ValueError(f"{folder} is not empty and holds no {what}; name another folder")
    return False


def write_files(folder: Path, contents: Mapping[str, bytes], sync: bool = True) -> None:
    """Write files in their order, each atomically, while no other process can."""
    folder.mkdir(parents=True, exist_ok=True)
    with files.locked(folder):
        put_files(folder, contents, sync)
        files.close(folder)


def put_files(folder: Path, contents: Mapping[str, bytes], sync: bool = True) -> None:
    """Write files to a folder that is locked."""
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        files.put_file(folder, name, [data], sync)
