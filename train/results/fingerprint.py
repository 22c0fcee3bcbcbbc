"""Which runs are the same: those whose results depend on the same settings and files, wherever these lie."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from train.config import Run
from train.results.store import read_config, run_name
from travlr.dataset import read_manifest
from travlr.files import hashed

PREPROCESSOR = "preprocessor_config.json"  # by which a checkpoint's pixels are normalised
BESIDE = (PREPROCESSOR, "tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt")
# Where things lie, what they run on, what is told: none of it changes a result.
EXCLUDED = ("runs", "data", "audit", "experiment", "device", "devices", "strategy", "logger", "save_minutes")


def fingerprint(config: Run, **resolved: Any) -> dict[str, Any]:
    """All settings that the result depends on, files by their content, and what was `resolved`."""
    known = with_digests(config)
    values = dataclasses.asdict(known) | {"regions": known.model_regions.fingerprint()}
    return {name: value for name, value in values.items() if name not in EXCLUDED} | resolved


def with_digests(config: Run) -> Run:
    """A run whose files and folders are named by their content: by its id the run it starts from, the others by
    SHA-256. A hub name stays as it is. Raises `ValueError` where `start` is no run."""
    regions = replace(
        config.regions, detector=path_digest(config.regions.detector), file=path_digest(config.regions.file)
    )
    start = config.start and _run_of(config.start)
    return replace(
        config,
        start=start,
        pretrained=_checkpoint(config.pretrained),
        tokenizer=path_digest(config.tokenizer),
        regions=regions,
    )


def _checkpoint(name: str | None) -> str | None:
    """`path_digest`; for a file, together with what is read beside it (`train.models.loading`)."""
    file = Path(name).expanduser() if name else None
    if file is None or not file.is_file():
        return path_digest(name)
    beside = [f" {_sha256(other)} {other.name}" for other in map(file.parent.joinpath, BESIDE) if other.is_file()]
    return hashlib.sha256((_sha256(file) + "".join(beside)).encode()).hexdigest() if beside else _sha256(file)


def run_folder(config: Run) -> Path:
    """The folder that a run has, or will have. Raises `ValueError` where its dataset is not made yet."""
    digest = read_manifest(dataset_folder(config))["content_digest"]
    return Path(config.runs) / run_name(fingerprint(config, dataset=digest))


def dataset_folder(config: Run) -> Path:
    return Path(config.data or f"data/{config.task}")


def _run_of(folder: str) -> str:
    try:
        return str(read_config(Path(folder))["run"])
    except ValueError as error:
        raise ValueError(f"start={error}") from None


def path_digest(name: str | None) -> str | None:
    """SHA-256 of a file, or of a folder's files and their names; the name itself where there is neither."""
    path = Path(name).expanduser() if name else None
    if path is None or not path.exists():
        return name
    if path.is_file():
        return _sha256(path)
    files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
    listed = "".join(f"{_sha256(file)} {file.relative_to(path).as_posix()}\n" for file in files)
    return hashlib.sha256(listed.encode()).hexdigest()


def _sha256(path: Path) -> str:
    about = path.stat()
    return _sha256_of(path.resolve(), about.st_size, about.st_mtime_ns)


@functools.cache  # many runs of a sweep share a file, of gigabytes at times
def _sha256_of(path: Path, size: int, changed: int) -> str:
    return str(hashed([path])["sha256"])
