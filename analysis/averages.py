"""Runs with their settings, which of them are seeds of one another, and what these reach on average."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from analysis.runs import Runs
from analysis.statistics import SeedMean, over_seeds
from train.results.tables import comparable_settings, differing_settings, settings_text
from travlr.cli import close


@dataclass(frozen=True)
class RunSummary:
    """One run: the columns of results that all its rows share, its settings by dotted name (`training.steps`; none
    where its results do not tell them), and by (test setting, split) its macro-F1 and whether it is above random.
    impossible: test settings in which nothing that it is shown tells the answer."""

    about: dict[str, Any]
    settings: dict[str, Any]
    rows: dict[tuple[str, str], tuple[float, bool]]
    impossible: frozenset[str] = frozenset()

    def score(self, test: str, split: str) -> float | None:
        row = self.rows.get((test, split))
        return None if row is None else row[0]

    @property
    def converged(self) -> bool:
        return bool(self.about["converged"])

    @property
    def kind(self) -> frozenset[str]:
        """What sets it apart from the runs of Table 2; empty for those (and for mixed and text-only ones)."""
        if not self.settings:
            return frozenset(["settings unknown"])
        kinds = {
            "controlled": self.settings.get("controlled"),
            "frozen": self.settings.get("training.frozen"),
            "trained further": self.settings.get("start"),
            "with a reader": self.settings.get("reader.steps"),
            "with consistency": self.settings.get("training.consistency"),
            "answers shuffled": self.settings.get("training.shuffled"),
            "subset": self.part != 1,
        }
        return frozenset(name for name, found in kinds.items() if found)

    @property
    def part(self) -> float:
        """How much of the train split it was trained on: a part up to 1, a number where the split's size is unknown."""
        return float(self.settings.get("training.examples") or 1)

    @property
    def weights(self) -> str:
        """What its weights started from: random, pretrained, or unknown; a run trained further, as the first one."""
        if self.about["weights"] is None:
            return "unknown"
        first = self.settings.get("pretrained") if self.settings.get("start") else self.about["weights"] != "random"
        started = "pretrained" if first else "random"
        return f"{started}, then scenes" if self.settings.get("pretraining.steps") else started


def run_summaries(runs: Runs) -> list[RunSummary]:
    """The runs of a folder, in the order of their results."""
    results = runs.results
    found: dict[str, RunSummary] = {}
    rows = results.drop_duplicates("name").to_dict("records")
    columns_of = [{n: None if value is pd.NA or value != value else value for n, value in row.items()} for row in rows]
    settings_of = comparable_settings([json.loads(about["config"] or "{}") for about in columns_of])
    for about, settings in zip(columns_of, settings_of, strict=True):
        found[str(about["name"])] = RunSummary(about, _with_train_fraction(settings, runs), {})
    above = results["above_random"].fillna(False)
    columns = (results[name] for name in ("name", "test_setting", "split", "macro_f1"))
    for name, test, split, score, is_above in zip(*columns, above, strict=True):
        found[name].rows[test, split] = float(score), bool(is_above)
    impossible = results[results["possible"].eq(False).fillna(False)]
    for name, tests in impossible.groupby("name")["test_setting"]:
        found[name] = replace(found[name], impossible=frozenset(tests))
    return list(found.values())


def _with_train_fraction(settings: dict[str, Any], runs: Runs) -> dict[str, Any]:
    """Settings with `training.examples` as a part of the train split, where that is known: 8000 of 32,000 is 0.25."""
    examples, dataset = settings.get("training.examples") or 1, runs.datasets.get(settings.get("dataset") or "")
    if examples > 1 and dataset is not None and "train" in dataset.manifest["splits"]:
        part = examples / dataset.manifest["splits"]["train"]["rows"]
        return settings | {"training.examples": 1 if part == 1 else part}
    return settings


def select(runs: Runs, **where: Any) -> Runs:
    """The runs where columns of results, or settings with dots as `__`, have these values (or one of a list):
    `select(runs, size="base", training__steps=[2000, 4000])`. Raises `ValueError` for a name that no run has."""
    found = run_summaries(runs)
    known = {name for run in found for name in (*run.about, *run.settings)} | set(runs.results.columns)
    kept = set(run.about["name"] for run in found)
    for name, value in where.items():
        dotted = name.replace("__", ".")
        if dotted not in known:
            near = close(dotted, sorted(known)) or sorted(known)
            raise ValueError(f"{dotted}: no column or setting of runs; choose from {', '.join(near)}")
        values = list(value) if isinstance(value, list | tuple | set) else [value]
        kept -= {run.about["name"] for run in found if {**run.settings, **run.about}.get(dotted) not in values}
    return replace(runs, results=runs.results[runs.results["name"].isin(kept)].reset_index(drop=True))


ROW_SETTINGS = ("seed", "model", "task", "setting")


def variants(runs: Sequence[RunSummary], free: Collection[str] = ()) -> list[tuple[str, list[RunSummary]]]:
    """Runs parted by their settings other than seed, model, task, setting and those in `free`; with each part, the
    settings that tell it from the others ("" for one part alone). Most runs first."""
    parts: dict[str, list[RunSummary]] = {}
    for run in runs:
        kept = {name: value for name, value in run.settings.items() if name not in (*ROW_SETTINGS, *free)}
        kept = kept or {"run": run.about["run"]}
        parts.setdefault(json.dumps(kept, sort_keys=True), []).append(run)
    labels = map(settings_text, differing_settings([json.loads(key) for key in parts]))
    return sorted(zip(labels, parts.values(), strict=True), key=lambda part: (-len(part[1]), part[0]))


@dataclass(frozen=True)
class SeedAverage:
    """Runs that differ in their seed alone; `used`: the converged ones, or all where none has converged."""

    runs: Sequence[RunSummary]

    def __post_init__(self) -> None:
        seeds = Counter(run.about["seed"] for run in self.runs)
        for seed, count in seeds.items():
            if count > 1:
                names = " and ".join(run.about["name"] for run in self.runs if run.about["seed"] == seed)
                raise ValueError(f"seed {seed} twice in one cell: {names}; move one of the folders away")

    @property
    def converged(self) -> int:
        return sum(run.converged for run in self.runs)

    @property
    def used(self) -> list[RunSummary]:
        return [run for run in self.runs if run.converged] or list(self.runs)

    def mean(self, test: str, split: str) -> SeedMean | None:
        """Over the runs used; None where there is none, or one was not tested there."""
        scores = [run.score(test, split) for run in self.used]
        known = [score for score in scores if score is not None]
        return over_seeds(known) if known and len(known) == len(scores) else None

    def score(self, test: str, split: str) -> float | None:
        found = self.mean(test, split)
        return found.mean if found else None

    def above_random(self, test: str, split: str) -> bool:
        """Whether each of the runs used is, alone: a mean of seeds has no test of its own."""
        rows = [run.rows.get((test, split)) for run in self.used]
        return bool(rows) and all(row is not None and row[1] for row in rows)

    def mark(self, test: str) -> str:
        """! where nothing that one of the runs used is shown tells the answer."""
        return "!" if any(test in run.impossible for run in self.used) else ""

    def numbers(self, test: str, split: str = "test_ood") -> dict[str, Any]:
        """What the data frame of a table says of a cell; all but `runs` missing where there are no runs."""
        mean = self.mean(test, split) or SeedMean(0, math.nan)
        return {
            "macro_f1": mean.mean,
            "deviation": or_nan(mean.deviation),
            "interval_low": or_nan(mean.interval_low),
            "interval_high": or_nan(mean.interval_high),
            "above_random": self.above_random(test, split) if mean.runs else None,
            "runs": len(self.runs),
            "converged": self.converged if self.runs else None,
            "weights": weights_of(self.runs) or None,
        }


def or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def minus(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second


def weights_of(runs: Iterable[RunSummary]) -> str:
    return " or ".join(sorted({run.weights for run in runs}))
