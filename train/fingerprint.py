"""Fingerprints of runs: two runs with equal fingerprints have equal results, in whatever folders their files are."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

from train.config import CHECKPOINT_FILES, Run
from train.data.text import vocabulary_digest
from train.prepare import dataset_folder
from train.results.store import read_config, run_name
from travlr.config import Style
from travlr.files import path_digest
from travlr.manifest import read_manifest
from travlr.tasks import config_from_dict

# Settings that change no result: paths, devices and what is reported.
EXCLUDED = ("runs", "data", "audit", "experiment", "device", "devices", "strategy", "logger")


def fingerprint(config: Run, caption_style: str = Style().caption, **resolved: Any) -> dict[str, Any]:
    """Everything that the results of a run depend on: its settings, with files by their digest and `start` by the id of
    that run, the inputs of the model, and `resolved`. caption_style: of the dataset. Raises `ValueError` if `start` is
    not a run."""
    values = {name: value for name, value in dataclasses.asdict(config).items() if name not in EXCLUDED}
    values |= {  # files and folders by their SHA-256; names of the hub stay as they are
        "start": config.start and _run_of(config.start),
        "pretrained": _checkpoint(config.pretrained),
        "tokenizer": path_digest(config.tokenizer),
        "regions": dataclasses.asdict(config.model_regions) | {"file": path_digest(config.regions.file)},
    }
    return values | {"inputs": _inputs(config, caption_style)} | resolved


def _inputs(config: Run, caption_style: str) -> dict[str, Any]:
    """What the inputs of a model depend on beside the settings: the vocabulary that is made from the grammar."""
    own = config.pretrained is None and config.tokenizer is None
    return {"vocabulary": vocabulary_digest(config.task, caption_style)} if own else {}


def _checkpoint(name: str | None) -> str | None:
    """`path_digest`; for a file, together with the files that are read with it (`train.models.loading`)."""
    file = Path(name).expanduser() if name else None
    if file is None or not file.is_file():
        return path_digest(name)
    digest = str(path_digest(str(file)))
    others = filter(Path.is_file, map(file.parent.joinpath, CHECKPOINT_FILES))
    beside = "".join(f" {path_digest(str(other))} {other.name}" for other in others)
    return hashlib.sha256((digest + beside).encode()).hexdigest() if beside else digest


def run_folder(config: Run) -> Path:
    """The folder of a run, which need not exist. Raises `ValueError` if its dataset is not generated yet."""
    manifest = read_manifest(dataset_folder(config))
    style = (config_from_dict(manifest["config"]).style if manifest["config"] else Style()).caption
    return Path(config.runs) / run_name(fingerprint(config, style, dataset=manifest["content_digest"]))


def _run_of(folder: str) -> str:
    try:
        return str(read_config(Path(folder))["run"])
    except ValueError as error:
        raise ValueError(f"start={error}") from None
