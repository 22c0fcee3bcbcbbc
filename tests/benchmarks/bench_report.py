"""How long a report over the full grid takes: `python tests/benchmarks/bench_report.py`.

4 models x 4 tasks x 4 settings x 3 seeds, 192 runs, each with predictions of 30,000 examples in 3 test settings, made
up (right with a probability that depends on settings, split and pair), on datasets of the paper's size. `--data
DIR` takes DIR/spatiality and so on from there, or makes them there; `--keep DIR` keeps the runs. Seconds are of this
machine on this day, and of what else it does: where others use it, look at the processor's.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from analysis.examples import describe_examples
from train.config import Run
from train.results.columns import TEST_SETTINGS, TEST_SPLITS
from train.results.predictions import predictions_table, write_predictions
from train.results.provenance import provenance
from train.results.scores import facts_in_order, prediction_columns
from train.results.store import (
    canonical,
    read_config,
    start_run,
    write_curve,
    write_results,
)
from travlr.dataset import Dataset, open_dataset
from travlr.generate import GenerateArguments, generate_dataset
from travlr.tasks import TASKS

MODELS = ("visualbert", "uniter", "lxmert", "albef")
SETTINGS = ("image", "caption", "image+caption", "mixed")
STEPS = 2000


def make_runs(runs: Path, task: str, folder: Path, about: dict[str, Any]) -> None:
    """The 48 runs of a task."""
    dataset = open_dataset(folder)
    parts = {split: describe_examples(dataset, split) for split in TEST_SPLITS}
    for model in MODELS:
        for setting in SETTINGS:
            for seed in range(3):
                make_run(runs, dataset, parts, about | {"model": model, "setting": setting, "task": task, "seed": seed})


def make_run(runs: Path, dataset: Dataset, parts: dict[str, Any], about: dict[str, Any]) -> None:
    config = Run(**{name: about[name] for name in ("model", "setting", "task", "seed")}).model_dump()
    config = {name: value for name, value in config.items() if name not in ("runs", "data", "experiment", "device")}
    digest = dataset.manifest["content_digest"]
    folder = start_run(runs, config | {"dataset": digest}, data=str(dataset.folder))
    random = np.random.default_rng([about["seed"], len(about["model"]), SETTINGS.index(about["setting"])])
    told = read_config(folder)
    known = {"run": told["run"], "name": folder.name, "config": canonical(told["config"])}
    known |= about | {"dataset": digest, "train_examples": len(dataset["train"])}
    rows, tables = [], []
    for split, frame in parts.items():
        answers, codes = frame["answer"].to_numpy(), frame["pair"].cat.codes.to_numpy()
        for test in TEST_SETTINGS:
            seen = about["setting"] in (test, "mixed") or about["setting"] == "image+caption"
            sure = 0.97 - 0.1 * (split == "test_ood") if seen else 0.5
            right = random.random(len(frame)) < sure - 0.1 * random.random(codes.max() + 1)[codes] * seen
            logits = np.where(right == answers, 1, -1) * random.gamma(2.0, 1.0, len(frame)).astype(np.float32)
            row: dict[str, Any] = {
                f"baseline_{name}{end}": 50.0 for name in ("query", "query_objects") for end in ("", "_accuracy")
            }
            facts = facts_in_order(frame["id"].to_list(), answers, ["all"] * len(frame), np.arange(len(frame)))
            row |= {"test_setting": test, "split": split} | prediction_columns(logits, facts)
            rows.append(known | row)
            tables.append(predictions_table(frame["id"].to_list(), split, test, logits, answers))
    write_predictions(folder, tables)
    losses = np.log(2) * np.exp(-np.arange(STEPS // 10) / 50) + 0.05 * random.random(STEPS // 10)
    write_curve(folder, [{"step": 10 * n + 10, "loss": float(loss)} for n, loss in enumerate(losses)])
    write_results(folder, rows)


def memory_of(process: int) -> int:
    """Bytes that a process and its children hold, shared pages counted once (PSS)."""
    total = 0
    for task in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(task.joinpath("stat").read_text().rsplit(")", 1)[1].split()[1])
            if int(task.name) == process or parent == process:
                line = next(x for x in task.joinpath("smaps_rollup").read_text().splitlines() if x.startswith("Pss:"))
                total += 1024 * int(line.split()[1])
        except (OSError, StopIteration, IndexError):
            continue
    return total


def measure(runs: Path, out: Path) -> None:
    """Write the report in a process of its own and say what it took."""
    load = os.getloadavg()[0]
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "analysis.report", str(runs), "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    peak = 0

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, memory_of(process.pid))
            time.sleep(0.5)

    watcher = threading.Thread(target=watch)
    watcher.start()
    lines, _ = process.communicate()
    watcher.join()
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(lines)
    print(f"wall {wall:.1f} s; processor {spent:.1f} s; at most {peak / 2**20:,.0f} MiB in all processes; "
          f"{len(os.sched_getaffinity(0))} cores; load before {load:.1f}, after {os.getloadavg()[0]:.1f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="where datasets of the paper's size are, or are to be")
    parser.add_argument("--keep", type=Path, help="where runs are, or are to be")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        data, runs = asked.data or Path(place) / "data", asked.keep or Path(place) / "runs"
        about = {"size": "small", "weights": "random", "parameters": 1_000_000, "train_seconds": 300.0, "steps": STEPS,
                 "evaluate_seconds": 20.0, "precision": "float32", **provenance()}  # fmt: skip
        begun = time.perf_counter()
        for task, config in ((name, task.Config) for name, task in TASKS.items()):
            folder = data / task
            if not folder.exists():
                generate_dataset(config(), GenerateArguments(out=str(folder)), log=lambda _: None)
            if not any(read_config(p)["config"]["task"] == task for p in runs.glob("*-s*")):
                make_runs(runs, task, folder, about)
        print(f"{sum(1 for _ in runs.glob('*/predictions.parquet'))} runs made in {time.perf_counter() - begun:.0f} s")
        measure(runs, Path(place) / "report")


if __name__ == "__main__":
    main()
