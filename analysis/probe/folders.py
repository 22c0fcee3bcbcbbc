"""Reads and checks files from users, and the folders that a command writes; errors are one line."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from travlr import files

LARGEST_YAML = 1 << 20  # characters


@contextlib.contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Raise `ValueError`, in one line with the path, for a file that cannot be opened or is not UTF-8."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except UnicodeError:
        raise ValueError(f"{path}: is not text in UTF-8") from None


def read_json(path: Path) -> Any:
    """The value in a JSON file; an empty file is an empty list. Raises `ValueError`, one line, for what is not JSON."""
    with reading(path):
        text = path.read_text(encoding="utf-8-sig")
        if not text.strip():
            return []
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}: line {error.lineno}: not JSON or cut off ({error.msg})") from None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: not JSON ({error})") from None
        if "\\ud" in text.lower():  # an unpaired surrogate cannot be written as UTF-8
            json.dumps(value, ensure_ascii=False).encode()
    return value


class _LoaderWithoutAliases(yaml.SafeLoader):
    """A YAML loader that refuses aliases, as a few of them can expand to more than the memory."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise ValueError(f"*{self.peek_event().anchor}: aliases are not read; write the value itself")  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)


def read_yaml(path: Path) -> dict[str, Any]:
    """The names and values in a YAML file of plain data (no tags). Raises `ValueError`, one line."""
    with reading(path), open(path, encoding="utf-8-sig") as file:
        text = file.read(LARGEST_YAML + 1)
    if len(text) > LARGEST_YAML:
        raise ValueError(f"{path}: has more than {LARGEST_YAML:,} characters")
    try:
        value = yaml.load(text, _LoaderWithoutAliases)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: needs lines such as NAME: value")
    return {str(key): inner for key, inner in value.items()}


def leaves_folder(path: str) -> bool:
    """Whether a relative path leaves its folder."""
    normal = os.path.normpath(path.replace("\\", "/"))
    return os.path.isabs(normal) or normal == ".." or normal.startswith("../")


def read_object(path: Path) -> dict[str, Any]:
    """The names and values in a JSON file of ours. Raises `ValueError` for other contents."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path}: needs names and values")
    return value


def is_begun(folder: Path, records: tuple[str, ...], settings: Mapping[str, Any], noun: str) -> bool:
    """Whether a folder has a record of these settings, in the first file of `records` that exists. noun: of what the
    folder holds, for messages.

    Raises `ValueError` for a record of other settings, and for a folder with other files.
    """
    for path in (folder / name for name in records):
        if path.is_file():
            record = read_object(path)
            if other := [f"{name}={record.get(name)}" for name in settings if record.get(name) != settings[name]]:
                raise ValueError(f"{folder} holds another {noun} ({', '.join(other)}); name another folder")
            return True
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    if any(path.name != files.WORK for path in folder.glob("*")):
        raise ValueError(f"{folder} is not empty and holds no {noun}; name another folder")
    return False


def write_files(folder: Path, contents: Mapping[str, bytes], sync: bool = True) -> None:
    """Lock a folder and write files in their order, each atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    with files.locked(folder):
        put_files(folder, contents, sync)
        files.close(folder)


def put_files(folder: Path, contents: Mapping[str, bytes], sync: bool = True) -> None:
    """Write files to a folder that is locked."""
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        files.put_file(folder / name, data, sync)
