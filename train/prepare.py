"""Before a run: its dataset is there, whole, and what it says it is."""

from __future__ import annotations

import shlex
from pathlib import Path

from train.config import Run
from train.fingerprint import dataset_folder
from travlr.audit.checks import audit
from travlr.audit.examine import file_problem
from travlr.cli import Log
from travlr.files import path_digest
from travlr.formats.manifest import FORMAT_VERSION, MANIFEST, read_manifest
from travlr.tasks import TASKS

PASSED = ".audited"  # in the folder of runs: an empty file for each dataset that has passed, by SHA-256 of its manifest


def prepare_dataset(config: Run, log: Log) -> Path:
    """The folder of a run's dataset. data/TASK is generated where it is missing. Any other dataset is checked: its files
    against its manifest in every run, and by `travlr.audit` once, unless `audit=false`.

    Raises `ValueError` where the dataset is missing or fails a check.
    """
    folder = dataset_folder(config)
    if config.data is None and not has_manifest(folder):
        from travlr.generate import Job, generate_dataset

        log(f"{folder}: making the dataset")
        generate_dataset(TASKS[config.task].Config(), Job(out=str(folder)), log)
        _passed(config).touch()
        return folder
    check_files(folder, config.task)
    if config.audit and not _passed(config).exists():
        log(f"{folder}: auditing the dataset, this once")
        if failed := [check for check in audit(folder) if check.status == "FAIL"]:
            raise ValueError(
                f"data={folder}: fails its audit ({failed[0].name}: {failed[0].detail}); make it anew with python -m "
                f"travlr.generate, or train on it all the same with audit=false"
            )
        _passed(config).touch()
    return folder


def check_files(folder: Path) -> None:
    """Raises `ValueError` where a file is missing or not the bytes that were written, or the manifest is no good."""
    try:
        manifest = read_manifest(folder)
    except ValueError as error:
        raise ValueError(f"data={error}") from None
    if manifest["format_version"] != FORMAT_VERSION:
        raise ValueError(
            f"data={folder}: format version {manifest['format_version']}, not this program's {FORMAT_VERSION}; "
            "make it anew with python -m travlr.generate"
        )
    if problem := next(filter(None, (file_problem(folder, file) for file in manifest["files"])), None):
        raise ValueError(f"data={folder}: {problem}; make it anew with python -m travlr.generate")


def _passed(config: Run) -> Path:
    place = Path(config.runs) / PASSED
    place.mkdir(parents=True, exist_ok=True)
    return place / str(path_digest(str(dataset_folder(config) / MANIFEST)))[:16]
