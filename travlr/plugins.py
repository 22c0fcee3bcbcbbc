"""Code of a user's own, given as `package.module:name` in the current folder or among the installed packages."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any


def is_import(text: str) -> bool:
    """Whether a text has the form `package.module:name`."""
    return re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", text) is not None


def import_name(setting: str, text: str) -> Any:
    """The object that `package.module:name` names; running this imports the module.

    Raises `ValueError`, in one line that begins with `setting=`, where it cannot be imported or has no such name.
    """
    module, _, name = text.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    importlib.invalidate_caches()  # the file may be new
    try:
        value = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        ours = error.name in (module, module.split(".")[0])
        why = "in the current folder or among the packages" if ours else " ".join(str(error).split())
        raise ValueError(f"{setting}={text}: there is no module {error.name} ({why})") from None
    except (Exception, SystemExit) as error:  # a user's module can fail in any way
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ValueError(f"{setting}={text}: {module} cannot be imported ({reason})") from None
    if not callable(value):
        raise ValueError(f"{setting}={text}: {module} has no class or function {name}")
    return value
