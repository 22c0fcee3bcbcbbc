"""Where and with what a run was made: processor, versions, the commit of the code."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from travlr.settings import count_text
from travlr.workers import usable_cores

PACKAGES = (
    "travlr",
    "pillow",
    "torch",
    "transformers",
    "lightning",
    "trl",
    "peft",
    "tokenizers",
    "safetensors",
    "numpy",
    "scikit-learn",
)
CODE = ("train", "train.py", "travlr", "render", "splits", "conf")  # that a run of train.py depends on


def hardware(gpus: Sequence[str] = ()) -> str:
    """The processor and the cores this process may use, after the names of the GPUs that the run uses."""
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        if match := re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            processor = match[1].strip()
    cores = usable_cores()
    counted = [f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus)]
    return ", ".join([*counted, f"{processor} ({count_text(cores, 'core')})"])


def environment(code: Sequence[str] = CODE) -> dict[str, str]:
    """Versions of Python and of installed packages (nothing is imported), and the commit of the code, "" if none."""
    versions = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {**versions, "commit": commit(Path(__file__).resolve().parents[2], code)}


def commit(checkout: Path, code: Sequence[str] = CODE) -> str:
    """The commit of a checkout, with "-dirty" if the code differs from it; "" for a folder that is no checkout."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(checkout), *arguments]
        process = subprocess.run(command, capture_output=True, text=True, timeout=10, env=clean, check=True)
        return process.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != checkout.resolve():
            return ""  # another project's checkout, in which this one is installed
        head = git("rev-parse", "HEAD")
        return head + "-dirty" * bool(git("status", "--porcelain", "--", *code))
    except (OSError, subprocess.SubprocessError):
        return ""


def provenance(gpus: Sequence[str] = (), code: Sequence[str] = CODE) -> dict[str, str]:
    """The columns of a row about hardware, versions, commit and time of a run. gpus: names of those it uses."""
    versions = environment(code)
    return {
        "hardware": hardware(gpus),
        "commit": versions.pop("commit"),
        "versions": json.dumps(versions),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
