"""Runs work in several processes or on several machines, and reports progress. Independent of datasets."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Generator, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from travlr.cli import Log, without_pandas
from travlr.start import usable_cores

T = TypeVar("T")
R = TypeVar("R")
EXECUTORS = {"local": "", "ray": "an optional extra, for more than one machine"}
ENDS_WITHIN = 5  # seconds, at most, that the end of processes is waited for

Results = Generator[tuple[T, R], None, None]


def run(
    work: Callable[[T], R],
    items: list[T],
    workers: int = 0,
    executor: str = "local",
    prepare: Callable[[], object] | None = None,
) -> Results[T, R]:
    """Yield each item with `work(item)`, in order of completion.

    workers: processes on this machine, 0 for one per core. prepare: called first in each, by default `prepare_worker`.
    `work`, `prepare` and the items must be picklable. Exceptions of `work` are raised here; a worker that dies raises
    `ValueError`.
    """
    if executor == "ray":
        return _run_on_ray(work, items, workers)
    workers = min(workers or usable_cores(), len(items))
    if workers <= 1:
        return ((item, work(item)) for item in items)
    return _run_in_processes(work, items, workers, prepare or prepare_worker)


def _run_in_processes(
    work: Callable[[T], R], items: list[T], workers: int, prepare: Callable[[], object]
) -> Results[T, R]:
    pool = concurrent.futures.ProcessPoolExecutor(workers, multiprocessing.get_context(_start_method()), prepare)
    try:
        with _interrupts_held(), _without_main():
            waiting = {pool.submit(work, item): item for item in items}
        for future in concurrent.futures.as_completed(waiting):
            yield waiting[future], future.result()
    except BrokenProcessPool:
        raise ValueError("a worker died (out of memory?); run the same command again with fewer workers=") from None
    finally:
        for process in list((pool._processes or {}).values()):  # unfinished files are temporary, so nothing is lost
            process.kill()
        manager: Any = pool._executor_manager_thread
        pool.shutdown(wait=False, cancel_futures=True)
        if manager:  # Python may otherwise write to its pipe while it closes it, and print a traceback at the end
            manager.join(ENDS_WITHIN)


def _start_method() -> str:
    """How processes start. Forked ones have all modules at once, where others import them for 0.4 s. But a fork takes
    no other threads along, so a lock that one of them holds would never be released."""
    return "fork" if sys.platform == "linux" and threading.active_count() == 1 else "spawn"


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Start processes without the main script. Each would otherwise run the script again, including all code outside
    `if __name__ == "__main__":`. Our work functions are never defined there."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Defer Ctrl-C while processes start. They inherit the blocked signal, so that this process alone handles it."""
    interrupts: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda *_: interrupts.append(1)) if main else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if main:
            signal.signal(signal.SIGINT, handler)
    if interrupts:
        raise KeyboardInterrupt


def prepare_worker() -> None:
    """Initialise a worker that writes datasets: pandas stays unloaded, and the worker ends with its parent."""
    without_pandas()
    end_with_parent()


def end_with_parent() -> None:
    """End this worker as soon as its parent ends, however that happens."""
    parent = multiprocessing.parent_process()

    def die_with_parent() -> None:
        if parent is not None:
            multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=die_with_parent, daemon=True).start()


def _run_on_ray(work: Callable[[T], R], items: list[T], workers: int) -> Results[T, R]:
    """Run on the Ray cluster that the program is connected to or RAY_ADDRESS names, or else on a local one."""
    try:
        import ray
    except ImportError:
        raise ValueError("executor=ray: needs the extra ray: pip install -e '.[ray]'") from None
    ours = not ray.is_initialized()
    try:
        if ours:
            address = os.environ.get("RAY_ADDRESS", "local")
            cores, dashboard = (workers or None, False) if address == "local" else (None, None)
            ray.init(
                address,
                num_cpus=cores,
                include_dashboard=dashboard,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        call = ray.remote(_call)
        waiting = {call.remote(work, item): item for item in items}
        while waiting:
            for reference in ray.wait(list(waiting))[0]:
                yield waiting.pop(reference), ray.get(reference)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError) as error:
        cause = getattr(error, "cause", None) or error  # an exception of `work`, or a failure of Ray
        if isinstance(cause, (ray.exceptions.RayError, ConnectionError, RuntimeError)):
            raise ValueError(f"executor=ray: {str(cause).splitlines()[0]}") from None
        raise cause from None
    finally:
        if ours:
            ray.shutdown()


def _call(work: Callable[[Any], Any], item: Any) -> Any:
    return work(item)


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

    def advance(self, rows: int, note: str = "") -> None:
        """Count further rows. note: what else the line says."""
        self._done += rows
        now = time.monotonic()
        rate = self._done / max(now - self._started, 1e-9)
        minutes, seconds = divmod(int((self._total - self._done) / max(rate, 1e-9)), 60)
        time_left = f"{minutes}:{seconds:02d}"
        speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
        text = f"{self._done:,} of {self._total:,} {self._unit}, {speed}/s, {time_left} left{note and f', {note}'}"
        if self._terminal:
            filled = 30 * self._done // max(self._total, 1)
            print(f"\r[{'#' * filled}{'.' * (30 - filled)}] {text}\x1b[K", end="", file=sys.stderr, flush=True)
        elif now - self._logged > 5 or self._done == self._total:
            self._logged = now
            self._log(text)

    def __exit__(self, *_: object) -> None:
        if self._terminal and self._total:
            print(file=sys.stderr)
