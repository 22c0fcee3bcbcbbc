"""Starts a command: sets what OpenMP must find before torch is imported, and imports the module of the command.

It is apart from `travlr.cli` and imports nothing at its top, so that a module that is run with `python -m` can call it
before its own imports.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def start_command(program: str, module: str) -> NoReturn:
    """Import the module of a command and run its `main` with `travlr.cli.run`."""
    import os
    from importlib import import_module

    # Threads of OpenMP that wait must not spin: two trainings on two cores would take ten times as long. OpenMP reads
    # this when torch is imported.
    if "GOMP_SPINCOUNT" not in os.environ:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if container_cores() is not None:  # torch sees the cores of the machine alone
        os.environ.setdefault("OMP_NUM_THREADS", str(usable_cores()))
    try:
        from travlr import cli

        main = import_module(module).main
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    cli.run(program, main)


def usable_cores() -> int:
    """How many cores this process may use: those of its affinity, or fewer where a container has a limit."""
    import os

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, container_cores() or cores)


def container_cores(limit: str = "/sys/fs/cgroup/cpu.max") -> int | None:
    """How many whole cores, at least 1, a container may use; None without a limit.

    limit: file of the control group, with the microseconds of processor time in a period, and the period.
    """
    import contextlib

    with contextlib.suppress(OSError, ValueError), open(limit, encoding="ascii") as file:
        quota, period = map(int, file.read().split())  # `max 100000`: no limit
        return max(1, quota // period)
    return None
