"""From the settings of the command line to a run, and from a failure of the run to one line.

Nothing slow is imported before the settings are read, so that many mistakes are reported at once.
"""

from __future__ import annotations

import glob
import re
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.config import ARCHITECTURES, Run
from travlr import cli
from travlr.files import Locked
from travlr.settings import Log

if TYPE_CHECKING:
    from train.results.columns import Row

OF_YAML = ("grid", "recipe")  # names that only the files of conf/ may set
FREE_TEXT = ("data", "pretrained", "tokenizer", "start", "runs", "regions.file")
ROOT = Path(__file__).resolve().parent.parent
OURS = ("train", "travlr", "render", "splits")  # packages whose `ValueError` is written for users


def run_job(config: Run, log: Log = print) -> list[Row]:
    """The results of `train.run.run`. Raises `ValueError`, in one line, for every failure of a library too."""
    from train.run import run

    config = with_start(config)
    try:
        return run(config, log)
    except SystemExit:  # raised by Lightning after Ctrl-C
        raise KeyboardInterrupt from None
    except (OSError, Locked):
        raise
    except Exception as error:
        if isinstance(error, ValueError) and is_ours(error):
            raise
        raise ValueError(_explanation(error, config)) from None


def with_start(config: Run) -> Run:
    """The run with the one folder that its pattern `start` fits. Raises `ValueError` if none or several fit.

    A pattern may name settings of the run, such as `runs/{model}-image-{task}-s{seed}-*`.
    """
    if config.start is None or "*" not in config.start:
        return config
    names = {name: getattr(config, name) for name in ("runs", "model", "task", "seed")}
    folders = sorted(glob.glob(config.start.format(**names)))
    if len(folders) != 1:
        several = f"several runs fit; give one of {', '.join(folders)}" if folders else "no run fits; train it first"
        raise ValueError(f"start={config.start}: {several}")
    return replace(config, start=folders[0])


def settings(arguments: Sequence[str], changes: Mapping[str, Any] | None = None) -> Run:
    """The run of `name=value` arguments, changed by `changes`. Raises `cli.UsageError` for a wrong name or value."""
    check_names(arguments)
    try:
        values = cli.compose("train", arguments, FREE_TEXT, changes, asdict(Run()))
    except cli.UsageError as error:
        if lacking := re.search(r"'recipe\.(.+)\.\w+'", str(error)):  # a scale sets values for each model
            raise cli.UsageError(f"model={lacking[1]}: choose one of {', '.join(ARCHITECTURES)}") from None
        raise
    for name in OF_YAML:
        values.pop(name, None)
    if isinstance(values["logger"], str | None):
        values["logger"] = [values["logger"]] if values["logger"] else []
    config: Run = cli.typed(Run, values)
    return config


def check_names(arguments: Sequence[str]) -> None:
    """Raises `cli.UsageError` for a name that only YAML files may set, and for a setting that is given twice."""
    groups = cli.groups_of("train")
    for argument in arguments:
        name, _ = cli.name_and_value(argument, groups)
        if name.partition(".")[0] in OF_YAML:
            raise cli.UsageError(f"there is no setting {name!r}; --help lists them all")
    cli.refuse_repeated(arguments, groups)


def is_ours(error: BaseException) -> bool:
    """Whether an exception was raised by our own code, not by a library."""
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    return Path(last).is_relative_to(ROOT) and Path(last).relative_to(ROOT).parts[0] in OURS


def _explanation(error: Exception, config: Run) -> str:
    """One line about an unexpected error; the traceback goes to error.txt in the folder of the run."""
    import torch
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    message = " ".join(str(error).split())
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in message:
        return (
            f"optimiser.batch_size={config.batch_size}: out of memory; use fewer, with optimiser.accumulate=, or size="
        )
    if isinstance(error, MisconfigurationException):
        return f"device, devices, strategy or precision: {message}"
    report = Path(config.runs) / "error.txt"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return f"{type(error).__name__}: {message[:300]} (traceback in {report})"
