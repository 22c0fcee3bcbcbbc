"""The settings of commands: pydantic models, given to Hydra; and how a command ends.

A model states each default, limit, choice and line of help once. `hydra_command` registers it in Hydra's ConfigStore,
so that Hydra composes and overrides values as usual, and pydantic validates them. `run_command` prints any failure in
one line; with HYDRA_FULL_ERROR=1, Python prints its traceback. The exit status is 2 for a mistake in a setting: what
pydantic, Hydra or `UsageError` say, and any `ValueError` of a command that begins with one of its settings
(`start=runs/x: ...`).
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

CONF = Path(__file__).resolve().parent.parent / "conf"
FULL_ERROR = "HYDRA_FULL_ERROR"
TRACEBACK = os.environ.get(FULL_ERROR) == "1"  # a user wants it
HELP_WIDTH = 116  # columns of a line of `--help`, without its indent

Log = Callable[[str], object]  # receives one line of progress, like print
# A path, given as text or as a path.
PathText = Annotated[
    str,
    StringConstraints(min_length=1),
    BeforeValidator(lambda path: os.fspath(path) if isinstance(path, Path) else path),
]


def as_texts(value: Any) -> Any:
    """The texts of `a,b` or `[a,b]`, as which the command line has several; another value as it is."""
    if not isinstance(value, str):
        return value
    return [text.strip() for text in value.strip("[]").split(",") if text.strip()]


TextList = Annotated[tuple[str, ...], BeforeValidator(as_texts)]
SettingsType = TypeVar("SettingsType", bound="Settings")


class UsageError(ValueError):
    """A mistake in the settings or arguments of a command: exit status 2."""


class Settings(BaseModel):
    """Base class of settings. Unknown names and wrong values raise pydantic's `ValidationError`, a `ValueError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    def changed(self: SettingsType, **values: Any) -> SettingsType:
        """A validated copy with other values."""
        return type(self).model_validate({name: getattr(self, name) for name in type(self).model_fields} | values)


# Commands with settings ----------------------------------------------------------------------------------------------


def hydra_command(
    name: str,
    defaults: Mapping[str, Any],
    help_text: str,
    sweep_dir: str,
    main: Callable[[Any], Any],
    of_groups: Mapping[str, Any] | None = None,
) -> None:
    """Run `main` as the Hydra application NAME, with the composed settings as plain values.

    defaults: settings with their defaults. They may hold `defaults`, Hydra's list of groups. An empty group takes any
    setting (`trainer.devices=2`). help_text: for `--help`. sweep_dir: where Hydra and its launchers keep their files
    during a sweep (`-m`). of_groups: further settings, which groups add.
    """
    groups = [*defaults.get("defaults", ["_self_"]), {"override hydra/job_logging": "none"}]
    hydra_settings = {
        "run": {"dir": "."},
        "sweep": {"dir": sweep_dir, "subdir": "."},
        "output_subdir": None,
        # Hydra's lines alone: clients of servers have one for each request.
        "hydra_logging": {"root": {"level": "WARNING"}, "loggers": {"hydra": {"level": "INFO"}}},
        "help": {"app_name": name, "template": help_text + "\nHydra's own options: --hydra-help"},
    }
    node = OmegaConf.create({**defaults, "defaults": groups, "hydra": hydra_settings})
    for group in (setting for setting, value in defaults.items() if value == {}):
        OmegaConf.set_struct(node[group], False)
    ConfigStore.instance().store(name=name, node=node)
    settings = list(dict.fromkeys([*_flat(defaults), *_flat(of_groups or {})]))

    @hydra.main(config_path=str(CONF), config_name=name, version_base="1.3")
    def application(config: Any) -> Any:
        values = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        if HydraConfig.get().mode == RunMode.RUN:
            several = HydraConfig.get().sweeper.params
            return run_command(name, lambda: _refuse_sweep() if several else main(values), settings)
        return main(values)  # an error is for Hydra, which goes on with the other jobs

    run_command(name, application, settings)


def _refuse_sweep() -> None:
    raise UsageError("these settings are of several jobs; give -m before them")


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The names of settings, those in groups as GROUP.NAME."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        elif name != "defaults":
            yield f"{prefix}{name}"


def run_command(program: str, main: Callable[[], object], settings: Collection[str] = ()) -> None:
    """Call `main`. A failure becomes one line on standard error, and the exit status 2 for wrong usage, else 1.

    settings: the names of the command's settings.
    """
    os.environ[FULL_ERROR] = "1"  # Hydra raises errors instead of printing them
    try:
        main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if TRACEBACK:
            raise
        line = in_one_line(error, settings)
        print(f"{program}: {line}", file=sys.stderr)
        usage = isinstance(error, UsageError | ValidationError | HydraException | OmegaConfBaseException)
        sys.exit(2 if usage or (isinstance(error, ValueError) and _about_a_setting(line, settings)) else 1)
    finally:
        os.environ[FULL_ERROR] = str(int(TRACEBACK))


def _about_a_setting(line: str, settings: Collection[str]) -> bool:
    start = re.match(r"([a-z_]+)[a-z_.]*=", line)
    return start is not None and any(start[1] == name.partition(".")[0] for name in settings)


def in_one_line(error: Exception, settings: Collection[str] = (), what: str = "setting") -> str:
    """What an exception says, in one line, with the setting or the file that it is about. settings: the names of all
    settings, to which a wrong name may be near. what: they are."""
    if isinstance(error, ValidationError):
        errors: dict[str, list[Any]] = {}
        for part in error.errors(include_url=False):
            errors.setdefault(_name(part), []).append(part)
        return "; ".join(_of_setting(name, parts, settings, what) for name, parts in errors.items())
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, value = str(error.missing_cfg_file).rpartition("/")
        return f"{group}={value}: choose one of {', '.join(error.options)}"
    if isinstance(error, HydraException | OmegaConfBaseException):
        if unknown := re.match(r"Could not override '([\w.]+)'", str(error)):
            return _unknown(unknown[1], settings, what)
        text = str(error).partition("Config search path")[0]
        lines = [line for line in text.splitlines() if not line.startswith("    ")]  # where in its config
        return " ".join(" ".join(lines).split())
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


def _name(error: Any) -> str:
    """The setting of an error. A setting with several types has an error for each, with the type as the last part."""
    parts = (part for part in error["loc"] if part not in ("int", "float", "str"))
    return ".".join(str(part) for part in parts if str(part).isidentifier() or isinstance(part, int))


def _unknown(name: str, settings: Collection[str], what: str) -> str:
    """That there is no such setting or key, with those whose last part is like that of the name."""
    if name in settings and what == "setting":  # which groups add
        return f"{name}: is a setting of another task; see --help"

    def likeness(setting: str) -> float:
        return difflib.SequenceMatcher(None, name.rpartition(".")[2], setting.rpartition(".")[2]).ratio()

    near = sorted((setting for setting in settings if likeness(setting) > 0.6), key=likeness, reverse=True)
    return f"{name}: there is no such {what}; " + (f"near is {' or '.join(near[:3])}" if near else "see --help")


def _of_setting(name: str, errors: Sequence[Any], settings: Collection[str], what: str) -> str:
    """What is wrong with a setting or key. errors: one for each type that it may have."""
    error = errors[0]
    if error["type"] == "value_error":  # of a validator of ours, which names the settings where it is about several
        message = str(error["ctx"]["error"])
        return message if re.match(r"[a-z_.]+[=:]", message) else f"{name}: {message}"
    if error["type"] == "extra_forbidden":
        return _unknown(name, settings, what)
    if error["type"] == "missing":
        return f"{name}= is missing" if what == "setting" else f"the {what} {name} is missing"
    messages = dict.fromkeys(f"{part['msg'][0].lower()}{part['msg'][1:]}" for part in errors)
    return f"{name}={as_written(error['input'])}: {', or '.join(messages)}"


# Help ----------------------------------------------------------------------------------------------------------------


def help_lines(settings: Settings, without: tuple[str, ...] = ()) -> list[str]:
    """Lines for each setting and those in its groups: `name=value  # description`, wrapped."""
    lines = []
    for name, default, text in _described(settings):
        if name in without:
            continue
        start = f"{name}={as_written(default)}"
        first, others = f"{start}  # ", f"{' ' * len(start)}  # "
        lines += textwrap.wrap(text, HELP_WIDTH, initial_indent=first, subsequent_indent=others) or [start]
    return lines


def _described(settings: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Name, value and description of each setting."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from _described(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value, field.description or ""


def count_text(number: int, word: str) -> str:
    """A number with what it counts: `1 item`, `2,000 items`."""
    return f"{number:,} {word}{'s' * (number != 1)}"


def as_written(value: Any) -> str:
    """A value as a user writes it on the command line: null, true, [1,6]."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list | tuple):
        return f"[{','.join(map(as_written, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{name}:{as_written(inner)}' for name, inner in value.items())}}}"
    return str(value)
