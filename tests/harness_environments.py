"""Environments for harnesses that need other versions of packages than requirements.lock has.

Each is made once, in .venv/harnesses: it sees the packages of .venv, and tests/harnesses/NAME.txt lists what comes
before them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

from tests.helpers import ROOT


def environment(name: str) -> Path:
    """The folder of the programs of a harness. Installs it, with pip, where that has not been done."""
    packages = ROOT / "tests" / "harnesses" / f"{name}.txt"
    checkout = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]  # several may share .venv
    folder = Path(sys.prefix) / "harnesses" / f"{name}-{checkout}"
    made_of = packages.read_text() + (ROOT / "pyproject.toml").read_text() + sys.version
    finished = folder / "made_of.txt"
    folder.parent.mkdir(exist_ok=True)
    with open(folder.parent / f".{folder.name}.lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not finished.exists() or finished.read_text() != made_of:
            shutil.rmtree(folder, ignore_errors=True)
            _run(sys.executable, "-m", "venv", "--without-pip", str(folder))
            site = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
            (site / "packages_of_the_project.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
            _write_entry_points(site)
            python = str(folder / "bin" / "python")
            pip = (sys.executable, "-m", "pip", "--python", python)  # faster than a pip of its own
            _run(*pip, "install", "--quiet", "--no-deps", "--no-compile", "-r", str(packages))
            finished.write_text(made_of)
    return folder / "bin"


def _write_entry_points(site: Path) -> None:
    """What an installation of this checkout writes for programs that look for plugins."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    about = site / f"{project['name']}-{project['version']}.dist-info"
    about.mkdir()
    names = "".join(f"{key}: {project[key.lower()]}\n" for key in ("Name", "Version"))
    url = {"url": ROOT.as_uri(), "dir_info": {"editable": True}}  # Inspect asks for it
    (about / "direct_url.json").write_text(json.dumps(url))
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\n{names}")
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")


def run_in(programs: Path, *command: str, folder: Path, **variables: str) -> str:
    """Run a program of an environment in a folder, without the hub; what it prints. Fails where it does."""
    settings = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub"), "COLUMNS": "120", "NO_COLOR": "1", **variables}
    program = str(programs / command[0])
    return _run(program, *command[1:], cwd=str(folder), env={**os.environ, **settings})


def _run(*command: str, cwd: str | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=900)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout
