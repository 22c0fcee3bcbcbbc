"""Many runs: the grid of an experiment, or the combinations of what the command line lists (`python train.py -m`).

Processes that share a folder of runs share the work: a run that another one has is left to it.
"""

from __future__ import annotations

import gc
import itertools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from train.settings import FREE_TEXT, Arguments, Job, check_names, settings
from travlr import cli
from travlr.cli import Log
from travlr.files import Locked

POLL_SECONDS = 10.0  # seconds between looks at runs that other processes have
MAX_RUNS = 1_000  # of a sweep; checking the settings of each takes a while
IN_NAME = ("model", "task", "setting", "seed")  # what a run is called by, beside what differs


# What there is to run ------------------------------------------------------------------------------------------------


def expand(arguments: Sequence[str]) -> dict[str, Job]:
    """All runs that arguments ask for, by name. Raises `cli.UsageError` where any of them cannot be."""
    groups = cli.groups_of("train")
    check_names(arguments)
    fixed: list[str] = []
    given: dict[str, list[Any]] = {}
    for argument in arguments:
        name, _ = cli.named(argument, groups)
        if name in FREE_TEXT:
            fixed.append(argument)
        else:
            given[name] = cli.values_of(argument)
    chosen = [[f"{name}={value}" for value in given.pop(name)] for name in groups if name in given]
    asked: list[tuple[list[str], dict[str, Any]]] = []
    for choices in itertools.product(*chosen):
        grid = cli.compose("train", [*fixed, *choices], FREE_TEXT, defaults=asdict(Arguments())).get("grid") or [{}]
        runs = itertools.islice(combinations(grid, given), MAX_RUNS + 1 - len(asked))
        asked += [([*fixed, *choices], changes) for changes in runs]
        if len(asked) > MAX_RUNS:
            longest = max(given, key=lambda name: len(given[name]), default="experiment")
            raise cli.UsageError(f"-m: these are more than {MAX_RUNS:,} runs; give {longest} fewer values")
    jobs: dict[str, tuple[dict[str, Any], Job]] = {}
    for chosen_arguments, changes in asked:
        job = _checked(chosen_arguments, changes)
        jobs.setdefault(repr(job), (changes, job))
    if len(jobs) > 1 and (several := [job.config.devices for _, job in jobs.values() if job.config.devices > 1]):
        raise cli.UsageError(
            f"devices={several[0]}: -m gives each run one; start the command once for each GPU, with another "
            "CUDA_VISIBLE_DEVICES, and they share the work"
        )
    if not jobs:
        raise cli.UsageError("nothing to run: no line of the grid has all these settings")
    return _with_names(list(jobs.values()))


def combinations(grid: Sequence[Mapping[str, Any]], given: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Settings of each run. A line of the grid has one run for each combination of its values.

    `given` takes the place of what the lines have. A value that some lines have narrows the grid to those; one that no
    line has goes into all of them.
    """
    lines = [{name: value if isinstance(value, list) else [value] for name, value in line.items()} for line in grid]
    known = {name: [value for line in lines for value in line.get(name, [])] for name in given}
    for line in lines:
        axes = dict(line)
        for name, values in given.items():
            axes[name] = [value for value in values if value in line.get(name, []) or value not in known[name]]
        for combination in itertools.product(*axes.values()):
            yield dict(zip(axes, combination, strict=True))


def _checked(arguments: Sequence[str], changes: Mapping[str, Any]) -> Job:
    try:
        return settings(arguments, changes)
    except cli.UsageError as error:
        named = " ".join(f"{name}={value}" for name, value in changes.items() if name in IN_NAME)
        raise cli.UsageError(f"{error} (in {named})" if named else str(error)) from None


def _with_names(jobs: Sequence[tuple[Mapping[str, Any], Job]]) -> dict[str, Job]:
    """Jobs by what tells them apart."""
    from train.results.tables import value_text

    names = dict.fromkeys(name for changes, _ in jobs for name in changes)
    varied = [n for n in names if len({repr(changes.get(n)) for changes, _ in jobs}) > 1 and n not in IN_NAME]
    experiments = {job.config.experiment for _, job in jobs}
    named: dict[str, Job] = {}
    for changes, job in jobs:
        words = [f"{name}={getattr(job.config, name)}" for name in IN_NAME]
        words += [f"{name}={value_text(changes[name])}" for name in varied if name in changes]
        words += [f"experiment={job.config.experiment}"] if len(experiments) > 1 else []
        named[" ".join(words)] = job
    return named


# Running it ----------------------------------------------------------------------------------------------------------


@dataclass
class SweepProgress:
    """What has become of the runs of a sweep."""

    jobs: Mapping[str, Job]
    log: Log
    rows: list[Any] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)  # of each run that was trained here
    began: float = field(default_factory=time.monotonic)

    def tell(self) -> None:
        """One line: how many runs are over, since when, and how long the rest takes if they are like those so far."""
        over = len(self.done) + len(self.failed)
        line = f"{over} of {len(self.jobs)} runs"
        line += f" ({len(self.failed)} failed)" if self.failed else ""
        line += f", {_clock(time.monotonic() - self.began)}"
        if self.seconds and over < len(self.jobs):
            line += f", about {_clock((len(self.jobs) - over) * sum(self.seconds) / len(self.seconds))} left"
        self.log(line)


def run_all(jobs: Mapping[str, Job], log: Log = print) -> list[Any]:
    """Run what is not finished, one after the other; then print the table of all. Gives the rows of all.

    A failing run is told in one line and the others go on. Raises `ValueError` at the end where any failed.
    """
    from train.results.tables import grid_table

    progress = SweepProgress(jobs, log)
    for name in jobs:
        if (rows := _finished(jobs[name])) is not None:
            progress.rows += rows
            progress.done.add(name)
    if progress.done:
        log(f"{len(progress.done)} of {len(jobs)} runs are finished already")
    waiting = [name for name in jobs if name not in progress.done]
    while waiting:
        taken = [name for name in waiting if not _run_one(name, progress)]
        if taken == waiting:
            time.sleep(POLL_SECONDS)
        waiting = taken
    if progress.rows:
        log(f"\n{grid_table(progress.rows)}")
    if progress.failed:
        names = "; ".join(progress.failed)
        raise ValueError(f"{len(progress.failed)} of {len(jobs)} runs failed: {names}; the same command tries again")
    return progress.rows


def _run_one(name: str, progress: SweepProgress) -> bool:
    """Run one; whether it is over. It is not where another process has it."""
    began = time.monotonic()
    progress.log(f"\n{name}")
    try:
        progress.rows += progress.jobs[name].run(progress.log)
    except BrokenPipeError:
        raise
    except Locked:
        progress.log("another process is at it: left for later")
        return False
    except (ValueError, OSError) as error:
        told = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        progress.failed[name] = told
        progress.log(f"failed: {told}")
    else:
        progress.done.add(name)
        progress.seconds.append(time.monotonic() - began)
    _free_memory()
    progress.tell()
    return True


def _free_memory() -> None:
    gc.collect()
    if (torch := sys.modules.get("torch")) and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _finished(job: Job) -> list[Any] | None:
    """The results of a job that is finished already; None where it is not. Running it tells what is wrong."""
    from train.fingerprint import run_folder
    from train.results.store import read_results

    try:
        return read_results(run_folder(job.resolved()))
    except ValueError:
        return None


def job_list(jobs: Mapping[str, Job]) -> str:
    """All jobs, a line each, and how many are in which state."""
    states = {name: _state(job) for name, job in jobs.items()}
    counts = [f"{list(states.values()).count(state)} {state}" for state in dict.fromkeys(states.values())]
    return "\n".join(
        [*(f"{state:<9} {name}" for name, state in states.items()), f"{len(jobs)} runs: {', '.join(counts)}"]
    )


def _state(job: Job) -> str:
    from train.fingerprint import run_folder
    from train.results.store import is_finished

    try:
        config = job.resolved()
    except ValueError:
        return "no start"  # the run that it goes on from is not finished
    try:
        folder = run_folder(config)
    except ValueError:
        return "to do"  # its dataset too
    return "finished" if is_finished(folder) else "begun" if folder.is_dir() else "to do"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
