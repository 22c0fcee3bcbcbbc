"""What the commands share: settings from Hydra, one-line errors, exit codes (1 failed, 2 called wrongly)."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

CONF = Path(__file__).resolve().parent.parent / "conf"


class UsageError(Exception):
    """A command was called wrongly: exit code 2."""


def run(program: str, main: Callable[[list[str]], int | None]) -> NoReturn:
    """Run a command: every failure that a user can cause becomes one line on stderr."""
    code = 1
    try:
        code = main(sys.argv[1:]) or 0
        sys.stdout.flush()
    except UsageError as error:
        code = 2
        print(f"{program}: {error}", file=sys.stderr)
    except ValueError as error:
        print(f"{program}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        code = 130
        print(f"\n{program}: stopped; run the same command again to go on", file=sys.stderr)
    except BrokenPipeError:  # the reader of our output has gone
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    except MemoryError:
        print(f"{program}: out of memory; use fewer workers= or a smaller image.cell=", file=sys.stderr)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"{program}: {where}{error.strerror or error}; mend it and run the same command again", file=sys.stderr)
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

    overrides = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise UsageError(f"{argument!r} is not a setting; write it as name=value (see --help)")
        if key in free_text and value:
            value = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        overrides.append(f"{key}={value}")
    groups = {path.name: sorted(p.stem for p in path.glob("*.yaml")) for path in CONF.iterdir() if path.is_dir()}
    for key, value in (argument.split("=", 1) for argument in overrides):
        if key in groups and value not in groups[key]:
            raise UsageError(f"{key}={value}: choose one of {', '.join(groups[key])}")
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            try:
                known = OmegaConf.to_container(hydra_compose(name, [o for o in overrides if o.split("=")[0] in groups]))
            except HydraException as error:
                if "must specify" not in str(error):
                    raise
                missing = str(error).split("'")[1]
                raise UsageError(f"{missing}= is missing; choose one of {', '.join(groups[missing])}") from None
            for override in overrides:
                _check_key(override.split("=")[0], known, groups)
            return _plain(OmegaConf.to_container(hydra_compose(name, overrides), resolve=True))
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(str(error).splitlines()[0]) from None


def _plain(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError("settings must be names with values")
    return {str(key): inner for key, inner in value.items()}


def _check_key(key: str, known: Any, groups: dict[str, list[str]]) -> None:
    """Raise `UsageError` with the nearest valid names where a setting does not exist."""
    if key in groups:
        return
    names, free = [], []

    def walk(value: Any, prefix: str) -> None:
        for name, inner in value.items():
            names.append(f"{prefix}{name}")
            if isinstance(inner, dict):
                walk(inner, f"{prefix}{name}.")
            elif inner is None:
                free.append(f"{prefix}{name}.")

    walk(known, "")
    if key not in names and not any(key.startswith(start) for start in free):
        siblings = [n for n in names if n.startswith(key.rpartition(".")[0]) and n.count(".") == key.count(".")]
        near = difflib.get_close_matches(key, names, 3) or difflib.get_close_matches(key, siblings, 3, 0)
        raise UsageError(f"there is no setting {key!r}; did you mean {' or '.join(near)}? (--help lists them)")
