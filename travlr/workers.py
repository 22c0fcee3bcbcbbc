"""Runs work in several processes or on a Ray cluster, and reports progress. Independent of datasets."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from travlr.settings import Log

T = TypeVar("T")
R = TypeVar("R")
RAY = "ray"
Workers = int | str  # processes on this machine, 0 for one per core; or `RAY`


def run_in_processes(work: Callable[[T], R], items: list[T], workers: Workers = 0) -> Iterator[R]:
    """Yield `work(item)` of each item, in order. Both must be picklable."""
    if workers == RAY:
        yield from _run_on_ray(work, items)
    elif (number := min(int(workers) or usable_cores(), len(items))) <= 1:
        yield from map(work, items)
    else:
        # Forked processes have all modules at once, where others import them for 0.4 s. But a fork takes no other
        # threads along, so a lock that one of them holds would never be released.
        way = "fork" if sys.platform == "linux" and threading.active_count() == 1 else "spawn"
        context = multiprocessing.get_context(way)
        with concurrent.futures.ProcessPoolExecutor(number, context, _end_with_parent) as pool:
            yield from pool.map(work, items)


def _end_with_parent() -> None:
    """End this process when its parent is gone: after SIGKILL of the parent alone it would wait for work forever."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _run_on_ray(work: Callable[[T], R], items: list[T]) -> Iterator[R]:
    """Run on the Ray cluster that the program is connected to or RAY_ADDRESS names, or else on a local one."""
    import ray

    if not ray.is_initialized():
        ray.init(os.environ.get("RAY_ADDRESS", "local"), log_to_driver=False)
    call = ray.remote(_call)
    yield from map(ray.get, [call.remote(work, item) for item in items])


def _call(work: Callable[[Any], Any], item: Any) -> Any:
    return work(item)


def usable_cores() -> int:
    """How many cores this process may use: those of its affinity, or fewer where a container has a limit."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, container_cores() or cores)


def container_cores(limit: str = "/sys/fs/cgroup/cpu.max") -> int | None:
    """How many whole cores, at least 1, a container may use; None without a limit.

    limit: file of the control group, with the microseconds of processor time in a period, and the period.
    """
    with contextlib.suppress(OSError, ValueError), open(limit, encoding="ascii") as file:
        quota, period = map(int, file.read().split())  # `max 100000`: no limit
        return max(1, quota // period)
    return None


class Progress:
    """Progress of long work: a bar on a terminal, and otherwise a line every five seconds, with rate and time left."""

    def __init__(self, total: int, log: Log, unit: str = "examples") -> None:
        self._total, self._done, self._log, self._unit = total, 0, log, unit
        self._started = self._logged = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        if self._terminal and self._total:
            print(f"[{'.' * 30}] 0 of {self._total:,} {self._unit}", end="", file=sys.stderr, flush=True)
        return self

    def advance(self, rows: int) -> None:
        """Count further rows."""
        self._done += rows
        now = time.monotonic()
        rate = self._done / max(now - self._started, 1e-9)
        minutes, seconds = divmod(int((self._total - self._done) / max(rate, 1e-9)), 60)
        time_left = f"{minutes}:{seconds:02d}"
        speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
        text = f"{self._done:,} of {self._total:,} {self._unit}, {speed}/s, {time_left} left"
        if self._terminal:
            filled = 30 * self._done // max(self._total, 1)
            print(f"\r[{'#' * filled}{'.' * (30 - filled)}] {text}\x1b[K", end="", file=sys.stderr, flush=True)
        elif now - self._logged > 5 or self._done == self._total:
            self._logged = now
            self._log(text)

    def __exit__(self, *_: object) -> None:
        if self._terminal and self._total:
            print(file=sys.stderr)
