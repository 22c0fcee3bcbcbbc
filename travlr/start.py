"""Starts a command such that Ctrl-C never prints a traceback, not even during the imports of the command.

A module that is run with `python -m` calls `start_command` before its own imports, which may take seconds. So this
module is apart from `travlr.cli` and imports nothing at its top.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def start_command(program: str, module: str) -> NoReturn:
    """Import the module of a command and run its `main` with `travlr.cli.run`.

    During the imports Ctrl-C ends the process by the signal itself, because imported modules may print or swallow a
    `KeyboardInterrupt`. Nothing is lost, as no work has begun.
    """
    try:
        import signal
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    interactive = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # background jobs ignore Ctrl-C
    if interactive:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    import os
    from importlib import import_module

    # Threads of OpenMP that wait must not spin: two trainings on two cores would take ten times as long. OpenMP reads
    # this when torch is imported.
    if "GOMP_SPINCOUNT" not in os.environ:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if container_cores() is not None:  # torch sees the cores of the machine alone
        os.environ.setdefault("OMP_NUM_THREADS", str(usable_cores()))

    from travlr import cli

    main = import_module(module).main
    if interactive:
        signal.signal(signal.SIGINT, signal.default_int_handler)
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
