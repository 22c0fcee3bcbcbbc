"""Runs with their settings, and averages over seeds."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import pandas as pd

from analysis.runs import Runs
from analysis.statistics import SeedMean, over_seeds
from train.results.columns import averaged_runs
from train.results.scores import LEVEL, binomial_p_value
from train.results.tables import differing_settings, flat_settings, settings_text


@dataclass(frozen=True)
class RunSummary:
    """One run.

    info: the columns of results with one value for the run. settings: by dotted name (`training.steps`); empty if the
    results do not record them. rows: (test setting, split) -> macro-F1, whether it is above random.
    """

    info: dict[str, Any]
    settings: dict[str, Any]
    rows: dict[tuple[str, str], tuple[float, bool]]

    def score(self, test: str, split: str) -> float:
        """NaN where the run was not tested."""
        return self.rows.get((test, split), (math.nan, False))[0]

    @property
    def converged(self) -> bool:
        return bool(self.info["converged"])

    @property
    def traits(self) -> frozenset[str]:
        """How the run differs from the runs of Table 2; empty for these, and for mixed and text-only runs."""
        if not self.settings:
            return frozenset(["settings unknown"])
        traits = {
            "controlled": self.settings.get("controlled"),
            "frozen": self.settings.get("method") == "frozen",
            "trained further": self.settings.get("start"),
            "with consistency": self.settings.get("method") == "consistency",
            "subset": self.train_fraction != 1,
        }
        return frozenset(name for name, value in traits.items() if value)

    @property
    def streams(self) -> bool:
        """Whether the run never saw an example twice."""
        return bool(self.settings) and self.settings.get("training.examples") is None

    @property
    def train_fraction(self) -> float:
        """The part of the train split that the run was trained on, up to 1; a number of examples if the size of the
        split is unknown."""
        return float(self.settings.get("training.examples") or 1)

    @property
    def weights(self) -> str:
        """The initial weights: random, pretrained or unknown; for a run that was trained further, those of the first
        run."""
        if self.info["weights"] is None:
            return "unknown"
        pretrained = self.settings.get("pretrained") if self.settings.get("start") else self.info["weights"] != "random"
        return "pretrained" if pretrained else "random"


def run_summaries(runs: Runs) -> list[RunSummary]:
    """The runs of a folder, in the order of their results."""
    results = runs.results
    rows = results.drop_duplicates("name").to_dict("records")
    infos = [{name: None if value is pd.NA or value != value else value for name, value in row.items()} for row in rows]
    settings = [flat_settings(json.loads(info["config"] or "{}")) for info in infos]
    summaries = {
        str(info["name"]): RunSummary(info, _with_train_fraction(run_settings, runs), {})
        for info, run_settings in zip(infos, settings, strict=True)
    }
    columns = (results[name] for name in ("name", "test_setting", "split", "macro_f1"))
    for name, test, split, score, above in zip(*columns, results["above_random"].fillna(False), strict=True):
        summaries[name].rows[test, split] = float(score), bool(above)
    return list(summaries.values())


def _with_train_fraction(settings: dict[str, Any], runs: Runs) -> dict[str, Any]:
    """Settings with `training.examples` as a fraction of the train split, if its size is known: 8000 of 32,000 is
    0.25."""
    examples, dataset = settings.get("training.examples") or 1, runs.datasets.get(settings.get("dataset") or "")
    if examples > 1 and dataset is not None and "train" in dataset.manifest["splits"]:
        fraction = examples / dataset.manifest["splits"]["train"]["rows"]
        return settings | {"training.examples": 1 if fraction == 1 else fraction}
    return settings


def select(runs: Runs, **where: Any) -> Runs:
    """The runs where columns of results, or settings with dots as `__`, have these values (or one of a list):
    `select(runs, size="base", training__steps=[2000, 4000])`. Evaluations are selected by columns alone. Raises
    `ValueError` for a name that no run has."""
    evaluations = runs.evaluations
    values_of = {run.info["name"]: run.settings | run.info for run in run_summaries(runs)}
    choices = {name for values in values_of.values() for name in values} | set(runs.results.columns)
    for name, value in where.items():
        dotted = name.replace("__", ".")
        if dotted not in choices:
            near = get_close_matches(dotted, sorted(choices))
            hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(sorted(choices))}"
            raise ValueError(f"{dotted}: no column or setting of runs; {hint}")
        accepted = list(value) if isinstance(value, list | tuple | set) else [value]
        values_of = {run: values for run, values in values_of.items() if values.get(dotted) in accepted}
        evaluations = evaluations[evaluations[dotted].isin(accepted)] if dotted in evaluations else evaluations[:0]
    results = runs.results[runs.results["name"].isin(values_of)].reset_index(drop=True)
    return replace(runs, results=results, evaluations=evaluations)


ROW_SETTINGS = ("seed", "model", "task", "setting")  # of which tables have rows, columns and means


def variants(runs: Sequence[RunSummary], ignored: Collection[str] = ()) -> list[tuple[str, list[RunSummary]]]:
    """Groups of runs whose settings, except `ROW_SETTINGS` and `ignored`, are equal, the largest group first; each with
    the settings in which it differs from the other groups ("" for a single group)."""
    groups: dict[str, list[RunSummary]] = {}
    for run in runs:
        settings = {name: value for name, value in run.settings.items() if name not in (*ROW_SETTINGS, *ignored)}
        settings = settings or {"run": run.info["run"]}
        groups.setdefault(json.dumps(settings, sort_keys=True), []).append(run)
    labels = map(settings_text, differing_settings([json.loads(key) for key in groups]))
    return sorted(zip(labels, groups.values(), strict=True), key=lambda group: (-len(group[1]), group[0]))


@dataclass(frozen=True)
class SeedAverage:
    """Runs that differ in their seed alone. mixed: the settings in which they differ, too, and then there is no mean.
    Raises `ValueError` where two are equal."""

    runs: Sequence[RunSummary]
    mixed: str = ""

    def __post_init__(self) -> None:
        if self.mixed:
            return
        seeds = Counter(run.info["seed"] for run in self.runs)
        for seed, count in seeds.items():
            if count > 1:
                names = " and ".join(run.info["name"] for run in self.runs if run.info["seed"] == seed)
                raise ValueError(f"seed {seed} twice in one cell: {names}; move one of the folders away")

    @property
    def converged(self) -> int:
        return sum(run.converged for run in self.runs)

    @property
    def averaged(self) -> list[RunSummary]:
        """See `averaged_runs`."""
        return [] if self.mixed else averaged_runs(self.runs, lambda run: run.converged)

    def mean(self, test: str, split: str) -> SeedMean:
        """The mean over the averaged runs; of no scores if one of them was not tested there."""
        scores = [run.score(test, split) for run in self.averaged]
        return over_seeds([] if any(map(math.isnan, scores)) else scores)

    def score(self, test: str, split: str) -> float:
        return self.mean(test, split).mean

    def above_random(self, test: str, split: str) -> bool:
        """Whether each averaged run is above random: there is no test of the mean."""
        rows = [run.rows.get((test, split)) for run in self.averaged]
        return bool(rows) and all(row is not None and row[1] for row in rows)

    def numbers(self, test: str, split: str = "test_ood") -> dict[str, Any]:
        """Columns of a table's data; without runs, all but `runs` are missing."""
        mean = self.mean(test, split)
        return {
            "macro_f1": mean.mean,
            "deviation": mean.deviation,
            "interval_low": mean.interval_low,
            "interval_high": mean.interval_high,
            "above_random": self.above_random(test, split) if mean.runs else None,
            "runs": len(self.runs),
            "converged": self.converged if self.runs else None,
            "weights": weights_of(self.runs) or None,
        }


def weights_of(runs: Iterable[RunSummary]) -> str:
    return " or ".join(sorted({run.weights for run in runs}))


def above_unbound(row: Mapping[str, Any]) -> bool | None:
    """Whether a result is above the best unbound rule: an exact binomial test of its accuracy at `LEVEL`. None where
    the rule's accuracy is not known."""
    values = [row.get(name) for name in ("accuracy", "examples", "floor_unbound_accuracy")]
    if any(value is None or value is pd.NA or math.isnan(value) for value in values):
        return None
    accuracy, examples, level = map(float, values)  # type: ignore[arg-type]
    return binomial_p_value(round(accuracy * examples / 100), int(examples), level / 100) < LEVEL


def what_was_found(results: pd.DataFrame, noun: str) -> str:
    """How many results (a row for each) are above the best unbound rule, in a line."""
    above = [found for row in results.to_dict("records") if (found := above_unbound(row)) is not None]
    if not above:
        return f"No {noun} is compared with the best unbound rule: its accuracy is not known."
    others = f"; of {len(results) - len(above):,} more it is not known" if len(above) < len(results) else ""
    return f"{sum(above):,} of {len(above):,} {noun}s above the best unbound rule{others}."
