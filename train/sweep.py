"""Several runs: the grid of an experiment, or all combinations of listed values (`python train.py -m`).

Processes with the same folder of runs share the work: each skips the runs that another one is training.
"""

from __future__ import annotations

import gc
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from train.config import Run
from train.settings import FREE_TEXT, check_names, run_job, settings, with_start
from travlr import cli
from travlr.files import Locked
from travlr.settings import Log

POLL_SECONDS = 10.0  # between checks of runs that other processes train
MAX_RUNS = 1_000  # of a sweep; the settings of each are checked first, which takes time
IN_NAME = ("model", "task", "setting", "seed")  # settings in the name of a run, beside those that differ


# The list of runs ----------------------------------------------------------------------------------------------------


def expand(arguments: Sequence[str]) -> dict[str, Run]:
    """All runs of the arguments, by name. Raises `cli.UsageError` if the settings of any of them are invalid."""
    groups = cli.groups_of("train")
    check_names(arguments)
    fixed: list[str] = []
    values: dict[str, list[Any]] = {}
    for argument in arguments:
        name, _ = cli.name_and_value(argument, groups)
        if name in FREE_TEXT:
            fixed.append(argument)
        else:
            values[name] = cli.values_of(argument)
    group_choices = [[f"{name}={value}" for value in values.pop(name)] for name in groups if name in values]
    runs: list[tuple[list[str], dict[str, Any]]] = []  # arguments, and changes of a line of the grid
    for choices in itertools.product(*group_choices):
        grid = cli.compose("train", [*fixed, *choices], FREE_TEXT, defaults=asdict(Run())).get("grid") or [{}]
        changes_of_runs = itertools.islice(combinations(grid, values), MAX_RUNS + 1 - len(runs))
        runs += [([*fixed, *choices], changes) for changes in changes_of_runs]
        if len(runs) > MAX_RUNS:
            longest = max(values, key=lambda name: len(values[name]), default="experiment")
            raise cli.UsageError(f"-m: more than {MAX_RUNS:,} runs; give {longest} fewer values")
    jobs: dict[str, tuple[dict[str, Any], Run]] = {}
    for run_arguments, changes in runs:
        job = _checked(run_arguments, changes)
        jobs.setdefault(repr(job), (changes, job))
    if len(jobs) > 1 and (several := [job.devices for _, job in jobs.values() if job.devices > 1]):
        raise cli.UsageError(
            f"devices={several[0]}: -m gives each run one; start the command once for each GPU, with another "
            "CUDA_VISIBLE_DEVICES, and they share the work"
        )
    if not jobs:
        raise cli.UsageError("nothing to run: no line of the grid has all these settings")
    return _with_names(list(jobs.values()))


def combinations(grid: Sequence[Mapping[str, Any]], values: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """The settings of each run. A line of the grid has one run for each combination of its values.

    values: of the command line, which replace those of the grid. A value that some lines have selects these lines; a
    value that no line has applies to all lines.
    """
    lines = [{name: value if isinstance(value, list) else [value] for name, value in line.items()} for line in grid]
    in_grid = {name: [value for line in lines for value in line.get(name, [])] for name in values}
    for line in lines:
        axes = dict(line)
        for name in values:
            axes[name] = [v for v in values[name] if v in line.get(name, []) or v not in in_grid[name]]
        for combination in itertools.product(*axes.values()):
            yield dict(zip(axes, combination, strict=True))


def _checked(arguments: Sequence[str], changes: Mapping[str, Any]) -> Run:
    try:
        return settings(arguments, changes)
    except cli.UsageError as error:
        line = " ".join(f"{name}={value}" for name, value in changes.items() if name in IN_NAME)
        raise cli.UsageError(f"{error} (in {line})" if line else str(error)) from None


def _with_names(jobs: Sequence[tuple[Mapping[str, Any], Run]]) -> dict[str, Run]:
    """Jobs by a name that holds the settings in which they differ."""
    from train.results.tables import value_text

    names = dict.fromkeys(name for changes, _ in jobs for name in changes)
    varied = [n for n in names if len({repr(changes.get(n)) for changes, _ in jobs}) > 1 and n not in IN_NAME]
    experiments = {job.experiment for _, job in jobs}
    jobs_by_name: dict[str, Run] = {}
    for changes, job in jobs:
        words = [f"{name}={getattr(job, name)}" for name in IN_NAME]
        words += [f"{name}={value_text(changes[name])}" for name in varied if name in changes]
        words += [f"experiment={job.experiment}"] if len(experiments) > 1 else []
        jobs_by_name[" ".join(words)] = job
    return jobs_by_name


# Running it ----------------------------------------------------------------------------------------------------------


@dataclass
class SweepProgress:
    """The state of the runs of a sweep."""

    jobs: Mapping[str, Run]
    log: Log
    rows: list[Any] = field(default_factory=list)
    finished: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # of each run that this process trained
    start: float = field(default_factory=time.monotonic)

    def report(self) -> None:
        """Log one line: the number of runs that ended, the time so far, and an estimate of the remaining time."""
        ended = len(self.finished) + len(self.failed)
        line = f"{ended} of {len(self.jobs)} runs"
        line += f" ({len(self.failed)} failed)" if self.failed else ""
        line += f", {_clock(time.monotonic() - self.start)}"
        if self.seconds and ended < len(self.jobs):
            line += f", about {_clock((len(self.jobs) - ended) * sum(self.seconds) / len(self.seconds))} left"
        self.log(line)


def run_all(jobs: Mapping[str, Run], log: Log = print) -> list[Any]:
    """Train all runs that are not finished, one after the other, and log the table of all. Returns the rows of all.

    A failed run is logged in one line, and the others continue. Raises `ValueError` at the end if any failed.
    """
    from train.results.tables import grid_table

    progress = SweepProgress(jobs, log)
    for name in jobs:
        if (rows := _results_of(jobs[name])) is not None:
            progress.rows += rows
            progress.finished.add(name)
    if progress.finished:
        log(f"{len(progress.finished)} of {len(jobs)} runs are finished already")
    waiting = [name for name in jobs if name not in progress.finished]
    while waiting:
        busy = [name for name in waiting if not _run_one(name, progress)]
        if busy == waiting:
            time.sleep(POLL_SECONDS)
        waiting = busy
    if progress.rows:
        log(f"\n{grid_table(progress.rows)}")
    if progress.failed:
        names = "; ".join(progress.failed)
        raise ValueError(f"{len(progress.failed)} of {len(jobs)} runs failed: {names}; the same command tries again")
    return progress.rows


def _run_one(name: str, progress: SweepProgress) -> bool:
    """Train one run. Returns False if another process is training it."""
    start = time.monotonic()
    progress.log(f"\n{name}")
    try:
        progress.rows += run_job(progress.jobs[name], progress.log)
    except BrokenPipeError:
        raise
    except Locked:
        progress.log("another process is training it; continuing with the next")
        return False
    except (ValueError, OSError) as error:
        message = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        progress.failed.append(name)
        progress.log(f"failed: {message}")
    else:
        progress.finished.add(name)
        progress.seconds.append(time.monotonic() - start)
    _free_memory()
    progress.report()
    return True


def _free_memory() -> None:
    gc.collect()
    if (torch := sys.modules.get("torch")) and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _results_of(job: Run) -> list[Any] | None:
    """The results of a finished job, else None. Errors are reported when the job runs."""
    from train.results.store import read_results
    from train.run import run_folder

    try:
        return read_results(run_folder(with_start(job)))
    except ValueError:
        return None


def job_list(jobs: Mapping[str, Run]) -> str:
    """All jobs, one line each, with their states and the number of jobs in each state."""
    states = {name: _state(job) for name, job in jobs.items()}
    counts = ", ".join(f"{count} {state}" for state, count in Counter(states.values()).items())
    lines = [f"{state:<9} {name}" for name, state in states.items()]
    return "\n".join([*lines, f"{len(jobs)} run{'s' * (len(jobs) != 1)}: {counts}"])


def _state(job: Run) -> str:
    from train.results.store import is_finished
    from train.run import run_folder

    try:
        config = with_start(job)
    except ValueError:
        return "no start"  # the run that it starts from is not finished
    try:
        folder = run_folder(config)
    except ValueError:
        return "to do"  # its dataset is not generated yet
    return "finished" if is_finished(folder) else "begun" if folder.is_dir() else "to do"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
