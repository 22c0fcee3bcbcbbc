"""The folder of runs, and the dataset of a run or an evaluation: generated if it is missing, and checked."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Protocol

from travlr.audit.checks import audit
from travlr.cli import Log
from travlr.dataset import open_dataset
from travlr.files import path_digest
from travlr.manifest import MANIFEST, file_problem, has_manifest, read_manifest
from travlr.tasks import TASKS

PASSED = ".audited"  # in the folder of runs: an empty file for each dataset that passed, named by its digest


class DatasetSettings(Protocol):
    """The settings of a run or an evaluation that are used here."""

    @property
    def data(self) -> str | None: ...
    @property
    def task(self) -> str: ...
    @property
    def runs(self) -> str: ...
    @property
    def audit(self) -> bool: ...


def make_runs_folder(config: DatasetSettings) -> Path:
    """The folder of runs. Raises `ValueError` if it cannot be made."""
    try:
        Path(config.runs).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"runs={config.runs}: cannot be made ({error.strerror}); name another folder") from None
    return Path(config.runs)


def dataset_folder(config: DatasetSettings) -> Path:
    return Path(config.data or f"data/{config.task}")


def prepare_dataset(config: DatasetSettings, log: Log) -> Path:
    """The folder of the dataset. data/TASK is generated if it is missing. Others are checked: their files against the
    manifest each time, and their audit (`travlr.audit`) once.

    Raises `ValueError` if a check fails.
    """
    folder = dataset_folder(config)
    if config.data is None and not has_manifest(folder):
        from travlr.generate import GenerateArguments, generate_dataset

        log(f"{folder}: generating the dataset")
        generate_dataset(TASKS[config.task].Config(), GenerateArguments(out=str(folder)), log)
        _audit_mark(config).touch()
        return folder
    check_files(folder, config.task)
    if config.audit and not _audit_mark(config).exists():
        log(f"{folder}: auditing the dataset (once)")
        if failed := [check for check in audit(folder) if check.status == "FAIL"]:
            raise ValueError(
                f"data={folder}: fails its audit ({failed[0].name}: {failed[0].detail}); generate it again with "
                "python -m travlr.generate ... overwrite=true, or use it anyway with audit=false"
            )
        _audit_mark(config).touch()
    return folder


def check_files(folder: Path, task: str) -> None:
    """Raises `ValueError` if a file is missing or differs from the manifest, or if the manifest is damaged."""
    if folder.is_file():
        raise ValueError(f"data={folder}: is a file; give the folder of a dataset")
    try:
        dataset = open_dataset(folder)
    except ValueError as error:
        command = shlex.join(["python", "-m", "travlr.generate", f"task={task}", f"out={folder}"])
        way = "" if folder.is_dir() else f"; generate a dataset with {command}"
        raise ValueError(f"data={error}{way}") from None
    dataset.check_task(task)
    manifest = dataset.manifest
    if problem := next(filter(None, (file_problem(folder, file) for file in manifest["files"])), None):
        raise ValueError(f"data={folder}: {problem}; generate it again with python -m travlr.generate")


def _audit_mark(config: DatasetSettings) -> Path:
    """The file in the folder of runs that says that the dataset passed its audit, by the present file of its task."""
    place = Path(config.runs) / PASSED
    place.mkdir(parents=True, exist_ok=True)
    folder = dataset_folder(config)
    digest = path_digest(str(folder / MANIFEST)) if has_manifest(folder) else read_manifest(folder)["content_digest"]
    code = path_digest(getattr(sys.modules.get(TASKS[config.task].__module__), "__file__", None))
    return place / f"{str(digest)[:16]}-{str(code)[:8]}"
