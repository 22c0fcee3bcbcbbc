"""The settings that determine a run's results. Two runs with the same are one, in whatever folders their files are."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from train.config import Run
from train.results.store import read_config
from travlr.files import path_digest

# Settings that change no result: paths, devices and what is reported.
EXCLUDED = ("runs", "data", "experiment", "device", "devices", "strategy", "logger")


def fingerprint(config: Run, dataset: str) -> dict[str, Any]:
    """Everything that the results of a run depend on: its settings, with files by their SHA-256 and `start` by the hash
    of that run, and the content digest of the dataset. Raises `ValueError` if `start` is not a run."""
    values = {name: value for name, value in dataclasses.asdict(config).items() if name not in EXCLUDED}
    return values | {  # names of the hub stay as they are
        "start": config.start and _run_of(config.start),
        "pretrained": path_digest(config.pretrained),
        "tokenizer": path_digest(config.tokenizer),
        "regions": dataclasses.asdict(config.model_regions) | {"file": path_digest(config.regions.file)},
        "dataset": dataset,
    }


def _run_of(folder: str) -> str:
    try:
        return str(read_config(Path(folder))["run"])
    except ValueError as error:
        raise ValueError(f"start={error}") from None
