"""The dataset of a run or an evaluation: generated if it is missing, and checked."""

from __future__ import annotations

import shlex
from pathlib import Path

from travlr.audit.checks import audit
from travlr.corpora import is_corpus
from travlr.dataset import open_dataset
from travlr.formats.manifest import check_files, has_manifest
from travlr.generate import GenerateArguments, generate_dataset
from travlr.settings import Log
from travlr.tasks import short_name, task_class


def dataset_folder(data: str | None, task: str) -> Path:
    return Path(data or f"data/{short_name(task)}")


def prepare_dataset(data: str | None, task: str, runs: str, log: Log) -> Path:
    """The folder of the dataset. data/TASK is generated if it is missing. Others are checked: their files against the
    manifest, and their audit unless a run in the folder `runs` has this dataset.

    Raises `ValueError` if a check fails.
    """
    if Path(runs).is_file():
        raise ValueError(f"runs={runs}: is a file; give a folder")
    folder = dataset_folder(data, task)
    if data is None and not has_manifest(folder):
        log(f"{folder}: generating the dataset")
        generate_dataset(task_class(task).Config(task=task), GenerateArguments(out=str(folder)), log)
        return folder
    try:
        dataset = open_dataset(folder)
    except ValueError as error:
        command = shlex.join(["python", "-m", "travlr.generate", f"task={task}", f"out={folder}"])
        raise ValueError(
            f"data={error}" + ("" if folder.exists() else f"; generate a dataset with {command}")
        ) from None
    dataset.check_task(task)
    try:
        check_files(folder, dataset.manifest["files"])
    except ValueError as error:
        raise ValueError(f"data={error}") from None
    digest = str(dataset.manifest["content_digest"])
    if is_corpus(dataset):
        return folder
    if not any(digest in settings.read_text(encoding="utf-8") for settings in Path(runs).glob("*/settings.yaml")):
        log(f"{folder}: auditing the dataset, because no run in {runs} has it")
        if failed := [check for check in audit(folder) if check.status == "FAIL"]:
            raise ValueError(f"data={folder}: fails its audit ({failed[0].name}: {failed[0].detail})")
    return folder
