"""Shared by all commands: settings from Hydra, one-line errors, exit status (1 for failures, 2 for wrong usage)."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import difflib
import functools
import importlib.abc
import itertools
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, get_args, get_origin

from travlr.options import field_types, in_words

CONF = Path(__file__).resolve().parent.parent / "conf"
HELP_WIDTH = 116  # columns of a line of `--help`, without its indent
MOST_VALUES = 1_000  # of a setting that is swept over

Log = Callable[[str], object]  # receives one line of progress, like print


class UsageError(Exception):
    """Wrong usage of a command: exit status 2."""


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see --help)")


def folder(text: str) -> Path:
    """The type of arguments that name a folder. Refuses an empty one, which would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("the name of the folder is empty")
    return Path(text)


def whole_number(text: str) -> int:
    """The type of arguments that count something."""
    if not re.fullmatch("[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def run(program: str, main: Callable[[list[str]], int | None]) -> NoReturn:
    """Run a command and exit. Every failure that a user can cause becomes one line on stderr."""
    code = 1
    try:
        code = main(sys.argv[1:]) or 0
        if sys.stdout:  # None where it was closed from the start
            sys.stdout.flush()
    except (UsageError, ValueError) as error:
        code = 2 if isinstance(error, UsageError) else 1
        print(f"{program}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
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
    sys.exit(code)


def compose(
    name: str,
    arguments: Sequence[str],
    free_text: tuple[str, ...],
    changes: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The settings of conf/NAME.yaml, changed by `key=value` arguments, as plain values. Raises `UsageError`.

    free_text: keys whose values are taken literally, such as paths. changes: settings with their values, applied last.
    defaults: values of settings that the YAML files leave out.
    """
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    options: list[str] = []
    overrides: dict[str, Any] = {}
    literal: dict[str, str | None] = {}
    groups = groups_of(name)
    refuse_repeated(arguments, groups)
    for argument in arguments:
        key, value = name_and_value(argument, groups)
        if key in groups:
            check_choice(key, value, groups[key], arguments)
            options.append(f"{key}={value}")
        elif key in free_text:
            if not value:
                raise UsageError(f"{key}=: is empty; give a value, or leave it out")
            literal[key] = None if value == "null" else value
        else:
            overrides[key] = _value(argument, name)
    try:
        config = copy.deepcopy(_composed(name, tuple(options), json.dumps(dict(defaults or {}))))
        for key, value in {**overrides, **(changes or {})}.items():
            OmegaConf.update(config, key, value, merge=True, force_add=True)  # the schema finds wrong names
        values: Any = OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        message = str(error).splitlines()[0]
        if "must specify" in message:
            missing = message.split("'")[1]
            check_choice(missing, None, groups[missing], arguments)
        setting = getattr(error, "full_key", None)
        raise UsageError(f"{setting}: {message}" if setting else message) from None
    for key, text in literal.items():
        _put(values, key, text)
    return dict(values)


@functools.cache
def _composed(name: str, options: tuple[str, ...], defaults: str) -> Any:
    """conf/NAME.yaml with options of its groups; cached, because a sweep has many settings but few groups.

    options: such as `model=uniter`. defaults: values of settings that the file leaves out, as JSON.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(CONF), version_base="1.3"):
        return OmegaConf.merge(OmegaConf.create(json.loads(defaults)), hydra_compose(name, list(options)))


@functools.cache
def groups_of(name: str) -> dict[str, list[str]]:
    """The config groups of conf/NAME.yaml and their options."""
    import yaml

    entries = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8")).get("defaults", [])
    plain = [key for entry in entries if isinstance(entry, dict) for key in entry if re.fullmatch(r"\w+", key)]
    return {key: sorted(path.stem for path in (CONF / key).glob("*.yaml")) for key in plain}


def name_and_value(argument: str, groups: Container[str]) -> tuple[str, str]:
    """Name and value of a setting. Hydra's `+` before a group is allowed. Raises `UsageError`."""
    key, equals, value = argument.partition("=")
    if key.startswith("+") and (key[1:] in groups or key[1:] in ("task", "preset")):
        key = key[1:]
    if not equals or not re.fullmatch(r"\w+(\.\w+)*", key) or key.startswith("hydra"):
        raise UsageError(f"{argument!r} is not a setting; write it as name=value (see --help)")
    if value == "???":  # OmegaConf's mark of a missing value, also where a value is taken to the letter
        raise UsageError(f"{argument!r}: its value cannot be read; give a value")
    return key, value


def refuse_repeated(arguments: Sequence[str], groups: Container[str]) -> None:
    """Raise `UsageError` where a setting is given twice, because one of the values would be ignored."""
    first: dict[str, str] = {}
    for argument in arguments:
        key, _ = name_and_value(argument, groups)
        if key in first:
            raise UsageError(f"{key}: given twice, as {first[key]} and {argument}; give it once")
        first[key] = argument


def _put(values: dict[str, Any], key: str, text: Any) -> None:
    """Set a value by its name with dots."""
    *path, last = key.split(".")
    for name in path:
        values = values.setdefault(name, {})
        if not isinstance(values, dict):
            raise UsageError(f"{key}: {name}= was given a value of its own")
    values[last] = text


def values_of(argument: str) -> list[Any]:
    """The values of a setting as Hydra parses it: one, or several for a sweep, as in seed=0,1 or seed=range(0,3).

    Raises `UsageError` where it cannot be parsed, such as a list without its end, and for more than `MOST_VALUES`.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    name, _, text = argument.partition("=")
    try:
        if len(text.splitlines()) <= 1:
            override = OverridesParser.create().parse_override(f"++{name.lstrip('+')}={text}")
            if not override.is_sweep_override():
                return [override.value()]
            if override.is_discrete_sweep():
                texts = list(itertools.islice(override.sweep_string_iterator(), MOST_VALUES + 1))
                if len(texts) > MOST_VALUES:
                    raise UsageError(f"{argument}: more than {MOST_VALUES:,} values; give fewer")
                return [value for text in texts for value in values_of(f"{name}={text}")]
    except HydraException:
        pass
    quotes = "" if text.isascii() else ', and "" around words with other letters than a to z'
    raise UsageError(f"{argument!r}: its value cannot be read; write a word, a number or a list such as [a,b]{quotes}")


def _value(argument: str, command: str) -> Any:
    values = values_of(argument)
    if len(values) > 1:
        several = "give -m for a run of each" if command == "train" else "a list is written [a,b]"
        raise UsageError(f"{argument}: one value is needed; {several}")
    return values[0]


def check_choice(name: str, value: Any, valid: Collection[str], arguments: Sequence[str]) -> None:
    """Raise `UsageError`, with the valid values, where a setting has none of them or is missing (None)."""
    if value not in valid:
        problem = f"{name}= is missing;" if value is None else f"{name}={value}:"
        raise UsageError(f"{problem} choose one of {', '.join(valid)}{slip(name, arguments)}")


def slip(missing: str, arguments: Sequence[str]) -> str:
    """A hint where an argument looks like a misspelling of a setting that is missing."""
    near = difflib.get_close_matches(missing, [argument.partition("=")[0].lstrip("+") for argument in arguments], 1)
    return f" (there is no setting {near[0]!r})" if near and near[0] != missing else ""


def help_lines(kind: type, leave_out: Container[str] = ()) -> list[str]:
    """Lines for each setting of a dataclass and of the dataclasses in it: `name=default  # help`, wrapped."""
    lines = []
    for name, default, text in _documented(kind()):
        if name in leave_out or dataclasses.is_dataclass(default):
            continue
        start = f"{name}={as_written(default)}"
        first, others = f"{start}  # ", f"{' ' * len(start)}  # "
        lines += textwrap.wrap(text, HELP_WIDTH, initial_indent=first, subsequent_indent=others) or [start]
    return lines


def _documented(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Name, default and help of each setting and each group of settings, whose default is a dataclass."""
    for field in dataclasses.fields(settings):
        name, value = f"{prefix}{field.name}", getattr(settings, field.name)
        yield name, value, field.metadata.get("help", "")
        if dataclasses.is_dataclass(value):
            yield from _documented(value, f"{name}.")


def as_written(value: Any) -> str:
    """A value as a user writes it on the command line: null, true, [1,6]."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list | tuple):
        return f"[{','.join(map(as_written, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{name}:{as_written(inner)}' for name, inner in value.items())}}}"
    return str(value)


def typed(kind: type, values: dict[str, Any], defaults: Mapping[str, Any] | None = None) -> Any:
    """A dataclass from settings. Raises `UsageError` for unknown names and invalid values.

    defaults: nested settings that take the place of the defaults of the dataclass.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    config = OmegaConf.merge(_schema(kind), defaults or {})
    names = [name for name, _, _ in _documented(kind())]
    for name, value_type, value in _flat(kind, values, names):
        try:
            OmegaConf.update(config, name, _literal(value), merge=True)
        except (OmegaConfBaseException, TypeError):  # TypeError: a list in place of named values
            raise UsageError(f"{name}={as_written(value)}: must be {in_words(value_type)}") from None
    try:
        return OmegaConf.to_object(config)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _flat(kind: type, values: dict[str, Any], names: Sequence[str], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Name, type and value of each setting. Raises `UsageError` for a name that is not among `names`."""
    types = field_types(kind)
    for key, value in values.items():
        name = f"{prefix}{key}"
        if key not in types:
            near = close(name, names)
            hint = f"did you mean {' or '.join(near)}?" if near else "--help lists them all"
            raise UsageError(f"there is no setting {name!r}; {hint}")
        if get_origin(types[key]) is dict and isinstance(value, dict):
            yield from ((f"{name}.{inner}", get_args(types[key])[1], value[inner]) for inner in value)
        elif not dataclasses.is_dataclass(types[key]):
            yield name, types[key], value
        elif isinstance(value, dict):
            yield from _flat(types[key], value, names, f"{name}.")
        else:
            inner = ", ".join(other for other in names if other.startswith(f"{name}."))
            raise UsageError(f"{name}={as_written(value)}: is a group of settings; choose from {inner}")


@functools.cache
def _schema(kind: type) -> Any:
    """A frozen dataclass as a typed config that can still be changed."""
    from omegaconf import OmegaConf

    def unfreeze(node: Any) -> Any:
        OmegaConf.set_readonly(node, False)
        for inner in filter(OmegaConf.is_dict, node.values()):
            unfreeze(inner)
        return node

    return unfreeze(OmegaConf.structured(kind))


def _literal(value: Any) -> Any:
    """Values whose texts OmegaConf does not interpolate, even where they hold `${`."""
    if isinstance(value, dict):
        return {name: _literal(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_literal(inner) for inner in value]
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", value) if isinstance(value, str) else value


def close(unknown: str, names: Sequence[str]) -> list[str]:
    """At most three names similar to an unknown one; names in groups are also compared without their group."""
    matches = difflib.get_close_matches(unknown, names, 3)
    inside = difflib.get_close_matches(unknown.rpartition(".")[2], [name.rpartition(".")[2] for name in names], 3)
    return matches or [name for name in names if name.rpartition(".")[2] in inside][:3]


def without_pandas() -> None:
    """Prevent pyarrow from importing pandas, which saves a quarter of a second at the start of a command.

    Only for processes that end with the command, because nothing in them can import pandas afterwards.
    """
    sys.meta_path.insert(0, _NoPandas())


class _NoPandas(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ImportError("pandas is not needed here")
