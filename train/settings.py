"""From the settings of the command line to a run, and from a failure of the run to one line.

Nothing slow is imported before the settings are read, so that many mistakes are reported at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.config import ARCHITECTURES, SETTINGS, Run
from travlr import cli
from travlr.cli import Log
from travlr.config import option
from travlr.files import Locked

if TYPE_CHECKING:
    from train.results.columns import Row

OF_YAML = ("grid", "recipe")  # names that only the files of conf/ may set
RENAMED = {"training.naming": "training.auxiliary_targets"}
FREE_TEXT = ("data", "pretrained", "tokenizer", "start", "runs", "regions.detector", "regions.file")
ROOT = Path(__file__).resolve().parent.parent
OURS = ("train", "travlr", "render", "splits")  # packages whose `ValueError` is written for users


@dataclass(frozen=True)
class Arguments(Run):
    """The settings of the command line: those of a run, and `start_setting`, with which `start` is looked up when the
    run begins."""

    start_setting: str | None = option(
        None, "start from the finished run in `runs` that was trained in this setting and is otherwise alike"
    )

    def run(self, log: Log = print) -> list[Row]:
        """The results of `train.run.run`. Raises `ValueError`, in one line, for every failure of a library too."""
        from train.run import run

        config = self.resolved()
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

    def resolved(self) -> Run:
        """The run with its `start`. Raises `ValueError` if `start_setting` fits no finished run, or several."""
        config = Run(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Run)})
        if self.start_setting is None:
            return config
        return replace(config, start=str(matching_run(config, self.start_setting)))


def settings(arguments: Sequence[str], changes: Mapping[str, Any] | None = None) -> Arguments:
    """The run of `name=value` arguments, changed by `changes`. Raises `cli.UsageError` for a wrong name or value."""
    check_names(arguments)
    try:
        values = cli.compose("train", arguments, FREE_TEXT, changes, asdict(Arguments()))
    except cli.UsageError as error:
        if lacking := re.search(r"'recipe\.(.+)\.\w+'", str(error)):  # a scale sets values for each model
            raise cli.UsageError(f"model={lacking[1]}: choose one of {', '.join(ARCHITECTURES)}") from None
        raise
    for name in OF_YAML:
        values.pop(name, None)
    if isinstance(values["logger"], str | None):
        values["logger"] = [values["logger"]] if values["logger"] else []
    if values["start"]:
        values["start_setting"] = None
    job: Arguments = cli.typed(Arguments, values)
    if job.start_setting not in (None, *SETTINGS):
        raise cli.UsageError(
            f"start_setting={job.start_setting}: choose one of {', '.join(SETTINGS)}, or give start=FOLDER"
        )
    return job


def check_names(arguments: Sequence[str]) -> None:
    """Raises `cli.UsageError` for a name that only YAML files may set, and for a setting that is given twice."""
    groups = cli.groups_of("train")
    for argument in arguments:
        name, _ = cli.name_and_value(argument, groups)
        if name in RENAMED:
            raise cli.UsageError(f"{name}: is called {RENAMED[name]} now")
        if name.partition(".")[0] in OF_YAML:
            raise cli.UsageError(f"there is no setting {name!r}; --help lists them all")
    cli.refuse_repeated(arguments, groups)


MATCHED = ("model", "task", "seed", "size", "scale", "controlled", "boxes", "visual_token_type", "regions",
           "pretrained", "tokenizer")  # fmt: skip


def matching_run(config: Run, setting: str) -> Path:
    """The finished run in `config.runs` that was trained in `setting`, on all examples, and is otherwise equal.

    Raises `ValueError` if there is none, with the command that trains it, or if there are several.
    """
    from train.fingerprint import fingerprint
    from train.results.store import canonical, is_finished, read_config
    from train.results.tables import differing_settings, flat_settings, settings_text

    def key(settings: Mapping[str, Any]) -> str:
        return canonical({name: settings.get(name) for name in MATCHED})

    def matches(other: Mapping[str, Any]) -> bool:
        if "training" not in other:  # of a model that evaluate.py asked
            return False
        training = other["training"]
        whole = training["examples"] == 1 and not training["frozen"] and not training["shuffled"]
        equally_augmented = training.get("augment", False) == config.training.augment
        fresh = other["setting"] == setting and other["start"] is None
        return fresh and whole and equally_augmented and key(other) == own_key

    own_key = key(fingerprint(config))
    folders = sorted(Path(config.runs).glob("*")) if Path(config.runs).is_dir() else []
    matching = [folder for folder in folders if is_finished(folder) and matches(read_config(folder)["config"])]
    if len(matching) == 1:
        return matching[0]
    if matching:
        differences = differing_settings([flat_settings(read_config(folder)["config"]) for folder in matching])
        names = " or ".join(
            f"{shlex.quote(f'start={folder}')} ({settings_text(difference)})"
            for folder, difference in zip(matching, differences, strict=True)
        )
        raise ValueError(f"start_setting={setting}: several finished runs fit; choose {names}")
    raise ValueError(f"start_setting={setting}: no finished run fits; make it with {_command_for(config, setting)}")


def _command_for(config: Run, setting: str) -> str:
    """The command that trains a run with another training setting and otherwise equal settings."""
    copied = ("model", "task", "data", "seed", "size", "runs", "pretrained", "tokenizer", "boxes",
             "visual_token_type")  # fmt: skip
    values: dict[str, Any] = {name: getattr(config, name) for name in copied}
    values |= {"controlled": config.controlled or None, "training.augment": config.training.augment or None}
    scale = [f"+scale={config.scale}"] if config.scale else []
    default = asdict(settings([*scale, f"model={config.model}"]).regions)
    values |= {f"regions.{name}": value for name, value in asdict(config.regions).items() if value != default[name]}
    arguments = (f"{name}={cli.as_written(value)}" for name, value in values.items() if value is not None)
    return shlex.join(["python", "train.py", "experiment=table2", *scale, *arguments, f"setting={setting}"])


def is_ours(error: BaseException) -> bool:
    """Whether an exception was raised by our own code, not by a library."""
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    return Path(last).is_relative_to(ROOT) and Path(last).relative_to(ROOT).parts[0] in OURS


def _explanation(error: Exception, config: Run) -> str:
    """One line about an unexpected error; the traceback goes to error.txt in the folder of the run."""
    import torch
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    from train.fingerprint import run_folder

    message = " ".join(str(error).split())
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in message:
        return (
            f"optimiser.batch_size={config.batch_size}: out of memory; use fewer, with optimiser.accumulate=, or size="
        )
    if isinstance(error, MisconfigurationException):
        return f"device, devices, strategy or precision: {message}"
    folder = Path(config.runs)
    with contextlib.suppress(ValueError):
        folder = run_folder(config)
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "error.txt"
    report.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return f"{folder}: {type(error).__name__}: {message[:300]} (traceback in {report})"
