"""What the tests share: a small dataset, the commands in a process of their own or in this one, and hashes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from train.command import chosen_config, command_defaults
from train.command import command as train_command
from travlr import Cardinality, Count, GenerateArguments, Image, generate_dataset, writing
from travlr.config import Config
from travlr.formats.manifest import CARD, MANIFEST, UNFINISHED
from travlr.tasks import config_from_dict

ROOT = Path(__file__).parent.parent
COUNTS = {"train": 100, "validation": 50, "test_ind": 50, "test_ood": 60}
SMALL = Cardinality(count=Count(**COUNTS), image=Image(cell=8))
SETTINGS = ["task=cardinality", *(f"count.{s}={n}" for s, n in COUNTS.items()), "image.cell=8"]


def values_of(*arguments: str) -> dict[str, Any]:
    """The values of `name=value` arguments, as Hydra reads them."""
    values: dict[str, Any] = {}
    for override in OverridesParser.create().parse_overrides(list(arguments)):
        *path, last = str(override.key_or_group).split(".")
        group = values
        for name in path:
            group = group.setdefault(name, {})
        group[last] = override.value()
    return values


def config_of(*arguments: str) -> Config:
    """The config of a dataset with these settings."""
    return config_from_dict(values_of(*arguments))


def write(
    folder: Path, config: Config = SMALL, rows_per_shard: int = 50, **job: Any
) -> tuple[dict[str, Any], list[str]]:
    """Write a small dataset in this process; its manifest, and what was logged."""
    lines: list[str] = []
    with mock.patch.object(writing, "ROWS_PER_SHARD", rows_per_shard):
        manifest = generate_dataset(
            config, GenerateArguments(**{"out": str(folder), "workers": 1, **job}), lines.append
        )
    return manifest, lines


def generated(folder: Path, config: Config, layout: str = "parquet") -> Path:
    """A dataset, written in this process; its folder."""
    generate_dataset(config, GenerateArguments(out=str(folder), format=layout, workers=1), log=lambda _: None)
    return folder


def page_data(page: str, name: str = "data") -> Any:
    """The data of an HTML page's script: that of a viewer NAME is in the element NAME-data."""
    return json.loads(page.partition(f'<script type="application/json" id="{name}">')[2].partition("</script>")[0])


def unfinish(folder: Path) -> None:
    """Write a small dataset whose last three shards are missing, as after a kill."""
    manifest, _ = write(folder)
    about = ("format_version", "config", "held_out", "pixels")
    (folder / UNFINISHED).write_text(json.dumps({name: manifest[name] for name in about}))
    for name in (MANIFEST, *CARD, *(record["name"] for record in manifest["files"][-3:])):
        (folder / name).unlink()


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder, hidden ones too, and the empty folders."""
    digests = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_file():
            digests[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif not any(path.iterdir()):
            digests[name] = "empty folder"
    return digests


def flip(path: Path, place: int | None = None) -> None:
    """Change one bit of a file, in the middle where no place is given."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 1
    path.write_bytes(data)


def edit(path: Path, **changes: Any) -> None:
    """Change values of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def start(module: str, *arguments: str, code: str = "", **changed: Any) -> subprocess.Popen[str]:
    """Begin a command in a process group of its own, as a terminal does; `code` runs in place of `-m MODULE`."""
    how = ["-c", code] if code else ["-m", f"travlr.{module}"]
    options: dict[str, Any] = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    options |= {"preexec_fn": interruptible} | changed
    options["env"] = {**os.environ, "PYTHONPATH": str(ROOT), **options.get("env", {})}
    return subprocess.Popen([sys.executable, *how, *arguments], start_new_session=True, text=True, **options)


def interruptible() -> None:
    """For `preexec_fn`: Ctrl-C stops the process, also where the tests run in the background, in which it would not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def command(module: str, *arguments: str, **options: Any) -> tuple[int, str, str]:
    """Run a command to its end: exit code, stdout, stderr."""
    process = start(module, *arguments, **options)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def last_of(arguments: Iterable[str]) -> list[str]:
    """Arguments of which the later ones replace those of the same name, so that tests may change what others begin
    with; commands refuse a setting that is given twice."""
    return list({argument.partition("=")[0]: argument for argument in arguments}.values())


def train_settings(*arguments: str) -> Any:
    """The settings of `python train.py ARGUMENTS`, which trains nothing."""
    node = OmegaConf.create(command_defaults())
    OmegaConf.set_struct(node.trainer, False)
    ConfigStore.instance().store(name="composed", node=node)
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        values: Any = OmegaConf.to_container(compose("composed", list(arguments)), resolve=True)
    return chosen_config({name: value for name, value in values.items() if name != "experiment"})


def train_status(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Exit status of `python train.py ARGUMENTS`, run in this process. Later arguments replace earlier ones."""
    monkeypatch.setattr("sys.argv", ["train", *last_of(arguments)])
    GlobalHydra.instance().clear()
    try:
        train_command()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 300  # seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def one_line(text: str) -> str:
    """The line of an error. Fails where there are more, such as those of a traceback."""
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    return lines[0]


def task_of_the_page(folder: Path) -> str:
    """The name of the task that docs/adding-a-task.md shows, in a module of that folder."""
    text = (ROOT / "docs" / "adding-a-task.md").read_text(encoding="utf-8")
    (folder / "parity_page.py").write_text(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], encoding="utf-8")
    return "parity_page:Parity"
