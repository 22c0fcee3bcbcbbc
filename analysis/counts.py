"""What runs are called: model and size, and the settings in which they differ from others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from train.config import Run
from train.results.store import canonical
from train.results.tables import differing_settings, flat_settings, settings_text

LABEL_SETTINGS = ("seed", "model", "size", "setting", "task")  # not reported as differences between runs


def run_labels(rows: pd.DataFrame, ignored: Sequence[str] = ()) -> pd.Series:
    """The label of the run of each row: model and size, and the settings in which it differs from other runs, such as
    "uniter small, training.steps=4000"."""
    differences = distinguishing_settings(rows, ignored)
    return _model_and_size(rows).where(differences == "", _model_and_size(rows) + ", " + differences)


def distinguishing_settings(rows: pd.DataFrame, ignored: Sequence[str] = ()) -> pd.Series:
    """The settings in which the run of each row differs from the other runs of its model, size and task, in words; ""
    for none.

    Settings are compared with the default if any of these runs has it, else with the most common value. So runs with
    equal words have equal settings. ignored: settings that are not reported.
    """
    texts = {}
    defaults = flat_settings(json.loads(canonical(Run().model_dump())))
    for _, group in rows[rows["config"].notna()].groupby([_model_and_size(rows), rows["task"]], observed=True):
        configs = list(group["config"].unique())
        settings = [flat_settings(json.loads(config)) for config in configs]
        unreported = (*LABEL_SETTINGS, *ignored)
        settings = [{name: value for name, value in run.items() if name not in unreported} for run in settings]
        differing = differing_settings(settings)
        usual = {name: _most_common([run[name] for run in differing], defaults.get(name)) for name in differing[0]}
        for config, run in zip(configs, differing, strict=True):
            unusual = {name: value for name, value in run.items() if json.dumps(value) != usual[name]}
            texts[config] = settings_text(unusual)
    return pd.Series([texts.get(config, "") for config in rows["config"]], rows.index, "str")


def _model_and_size(rows: pd.DataFrame) -> pd.Series:
    return (rows["model"].astype(str) + " " + rows["size"].fillna("").astype(str)).str.strip()


def _most_common(values: Sequence[Any], default: Any) -> str:
    """The default if it is among the values, else the most common value; as JSON."""
    counts = Counter(map(json.dumps, values))
    usual = json.dumps(default)
    return usual if usual in counts else max(sorted(counts), key=lambda text: counts[text])
