"""Reads JSON and YAML files of others; an error is one line with the file's name."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml


@contextlib.contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Raise `ValueError`, in one line with the path, where a file cannot be read or has another form."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, yaml.YAMLError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise ValueError(reason if str(path) in reason else f"{path}: {reason}") from None


def read_json_file(path: Path) -> Any:
    """The value in a JSON file; an empty file, as VL-CheckList has, is an empty list. Raises `ValueError`."""
    with reading(path):
        return json.loads(path.read_text(encoding="utf-8-sig") or "[]")


def read_yaml(path: Path) -> dict[str, Any]:
    """The names and values in a YAML file of plain data. Raises `ValueError`."""
    with reading(path):
        return dict(yaml.safe_load(path.read_text(encoding="utf-8-sig")))
