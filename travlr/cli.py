"""What the commands share: settings from Hydra, one-line errors, exit codes (1 failed, 2 called wrongly)."""

from __future__ import annotations

import argparse
import difflib
import importlib
import importlib.abc
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

CONF = Path(__file__).resolve().parent.parent / "conf"


class UsageError(Exception):
    """A command was called wrongly: exit code 2."""


class Parser(argparse.ArgumentParser):
    """For the commands with plain options: what argparse would print in several lines is one."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see --help)")


def folder(text: str) -> Path:
    """An argument that names a folder; an empty one would quietly be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("the name of the folder is empty")
    return Path(text)


def run(program: str, main: Callable[[list[str]], int | None]) -> NoReturn:
    """Run a command: every failure that a user can cause becomes one line on stderr."""
    spec = sys.modules["__main__"].__spec__
    if spec and main.__module__ == "__main__":  # workers cannot find what belongs to `__main__`: use its own name
        main = importlib.import_module(spec.name).main
    code = 1
    try:
        code = main(sys.argv[1:]) or 0
        if sys.stdout:  # None where it was closed from the start
            sys.stdout.flush()
    except UsageError as error:
        code = 2
        print(f"{program}: {error}", file=sys.stderr)
    except ValueError as error:
        print(f"{program}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # once is enough
        code = 130
        print(f"\n{program}: stopped; run the same command again to go on", file=sys.stderr)
    except BrokenPipeError:  # the reader of our output has gone
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        print(f"{program}: stopped, as its output was closed; run the same command again to go on", file=sys.stderr)
    except MemoryError:
        print(f"{program}: out of memory; use fewer workers= or a smaller image.cell=", file=sys.stderr)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else "output: "
        print(f"{program}: {where}{error.strerror or error}; mend it and run the same command again", file=sys.stderr)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to stop
    sys.exit(code)


def compose(name: str, arguments: list[str], free_text: tuple[str, ...]) -> dict[str, Any]:
    """Settings of conf/NAME.yaml with `key=value` arguments, as plain values. Raises `UsageError`.

    free_text: keys whose values are taken to the letter (paths), whatever characters they hold.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    overrides: list[str] = []
    literal: dict[str, str | None] = {}
    groups = {path.name: sorted(p.stem for p in path.glob("*.yaml")) for path in CONF.iterdir() if path.is_dir()}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not re.fullmatch(r"\w+(\.\w+)*", key) or key.startswith("hydra"):
            raise UsageError(f"{argument!r} is not a setting; write it as name=value (see --help)")
        if key in groups and value not in groups[key]:
            raise UsageError(f"{key}={value}: choose one of {', '.join(groups[key])}")
        if key in free_text:
            literal[key] = None if value in ("", "null") else value
            continue
        overrides.append(f"{key}={value}" if key in groups else f"++{key}={value}")  # the schema finds wrong names
        _check_value(argument, overrides[-1], value)
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return _plain(OmegaConf.to_container(hydra_compose(name, overrides), resolve=True)) | literal
    except (HydraException, OmegaConfBaseException) as error:
        message = str(error).splitlines()[0].replace("++", "")
        if "must specify" in message:
            missing = message.split("'")[1]
            message = f"{missing}= is missing; choose one of {', '.join(groups[missing])}"
            if slip := difflib.get_close_matches(missing, [argument.partition("=")[0] for argument in arguments], 1):
                message += f" (there is no setting {slip[0]!r})"
        setting = getattr(error, "full_key", None)
        raise UsageError(f"{setting}: {message}" if setting else message) from None


def _check_value(argument: str, override: str, value: str) -> None:
    """Raise `UsageError` where Hydra cannot read a value, such as a list without its end."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        if value != "???" and len(value.splitlines()) <= 1:  # three question marks are Hydra's for no value
            OverridesParser.create().parse_override(override)
            return
    except HydraException:
        pass
    raise UsageError(f"{argument!r}: its value cannot be read; write a word, a number or a list such as [a,b]")


def typed(kind: type, values: dict[str, Any]) -> Any:
    """A dataclass from settings. Raises `UsageError` for a name it does not have, and for values it refuses."""
    from omegaconf import OmegaConf
    from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

    try:
        return OmegaConf.to_object(OmegaConf.merge(_schema(kind), values))
    except ConfigKeyError as error:
        names = _names(OmegaConf.structured(kind), "")
        wrong = str(error.full_key)
        near = difflib.get_close_matches(wrong, names, 3) or [n for n in names if "." not in n]
        raise UsageError(f"there is no setting {wrong!r}; did you mean {' or '.join(near)}?") from None
    except OmegaConfBaseException as error:
        message = str(error).splitlines()[0]
        if "is not a ListConfig" in message:
            message = "needs a list, such as [a,b], or for pairs [[a,b],[c,d]]"
        names = _names(OmegaConf.structured(kind), "")
        for group in {name.partition(".")[0] for name in names if "." in name}:
            if group in values and not isinstance(values[group], dict):
                inner = ", ".join(name for name in names if name.startswith(f"{group}."))
                raise UsageError(f"{group}={values[group]}: is a group of settings; choose from {inner}") from None
        raise UsageError(f"{error.full_key or 'a setting'}: {message}") from None
    except ValueError as error:
        raise UsageError(str(error)) from None


def _schema(kind: type) -> Any:
    """A dataclass as a typed config that can be filled in, though the dataclass is frozen."""
    from omegaconf import Container, OmegaConf

    def unfreeze(node: Any) -> Any:
        if isinstance(node, Container):
            OmegaConf.set_readonly(node, False)
            for key in node if OmegaConf.is_dict(node) and not node._is_none() else ():
                unfreeze(node._get_node(key))
        return node

    return unfreeze(OmegaConf.structured(kind))


def _names(node: Any, prefix: str) -> list[str]:
    """All settings of a config, as they are written on the command line."""
    names = []
    for key in node:
        names.append(f"{prefix}{key}")
        if hasattr(node[key], "keys"):
            names += _names(node[key], f"{prefix}{key}.")
    return names


def without_pandas() -> None:
    """Keep pyarrow from importing pandas, which it does not need here: a quarter of a second at start-up.

    For processes that end with the command, as nothing in them can use pandas afterwards.
    """
    sys.meta_path.insert(0, _NoPandas())


class _NoPandas(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ImportError("pandas is not needed here")


def _plain(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError("settings must be names with values")
    return {str(key): inner for key, inner in value.items()}
