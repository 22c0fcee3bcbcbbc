"""The settings that determine a run's results. Two runs with the same are one, in whatever folders their files are."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from train.config import CHECKPOINT_FILES, Run
from train.results.store import read_config
from travlr.files import path_digest

# Settings that change no result: paths, devices and what is reported.
EXCLUDED = ("runs", "data", "device", "trainer")
# And of the arguments of Lightning's trainer.
EXCLUDED_OF_TRAINER = (
    *("devices", "num_nodes", "strategy", "logger", "callbacks", "profiler"),
    *("log_every_n_steps", "enable_progress_bar", "enable_model_summary"),
)


def fingerprint(config: Run, dataset: str) -> dict[str, Any]:
    """Everything that the results of a run depend on: its settings, with files by their SHA-256 and `start` by the hash
    of that run, and the content digest of the dataset. Raises `ValueError` if `start` is not a run."""
    values = config.model_dump(exclude=set(EXCLUDED))
    trainer = {name: value for name, value in config.trainer.items() if name not in EXCLUDED_OF_TRAINER}
    regions = config.regions
    files = path_digest(regions.source) if regions.kind == "file" else None
    return values | {  # names of the hub stay as they are
        "trainer": trainer,
        "start": config.start and _run_of(config.start),
        "pretrained": checkpoint_digest(config.pretrained) if config.pretrained else began_pretrained(config),
        "regions": {"source": regions.kind, "number": regions.number, "file": files},
        "dataset": dataset,
    }


def began_pretrained(config: Run) -> str | None:
    """The checkpoint that the weights began with, its name or digest; None for random weights."""
    if config.pretrained or not config.start:
        return config.pretrained
    checkpoint = read_config(Path(config.start))["config"].get("pretrained")
    return None if checkpoint is None else str(checkpoint)


def checkpoint_digest(name: str) -> str:
    """Digest of a folder, or of a file of weights with the tokenizer and preprocessor files that are read beside it. If
    the path does not exist, the name itself."""
    path = Path(name).expanduser()
    if not path.is_file():
        return str(path_digest(name))
    beside = [path.parent / other for other in CHECKPOINT_FILES if (path.parent / other).is_file()]
    lines = [str(path_digest(name)), *(f"{file.name} {path_digest(str(file))}" for file in beside)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _run_of(folder: str) -> str:
    try:
        return str(read_config(Path(folder))["run"])
    except ValueError as error:
        raise ValueError(f"start={error}") from None
