"""The numbers in figures, as tidy data frames: counts, rates and intervals from predictions, results, curves, examples.

Rates are percent, 0 to 100. `low` and `high` are the ends of a 95 % interval: Wilson's score interval of a share of
examples (see `shares`) or, where noted, the bootstrap interval of a result (see `train.results.scores.score`).
Predictions are data frames of `analysis.runs.Runs.predictions`; a `ValueError` says in one line what is missing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.statistics import over_seeds, wilson
from train.config import ARCHITECTURES, CONTROLLED, Run
from train.results.columns import BASELINES, averaged_runs
from train.results.store import canonical
from train.results.tables import differing_settings, flat_settings, settings_text
from travlr.tasks.quantifiers import FAMILIES

OUTCOMES = ("both right", "both wrong", "only image right", "only caption right")
PAIR_COLUMNS = ["split", "kind", "x", "y", "pair"]
BINS = 10  # of confidence in the answer, from 50 to 100 %
# For the paper's figure 23: by quantifier, the answer whose examples have a deciding set that is not empty.
CRITICAL_ANSWERS = {name: name == other for vacant, other in FAMILIES for name in (vacant, other)}


def shares(frame: pd.DataFrame, by: Sequence[str], hits: np.ndarray, name: str = "wrong") -> pd.DataFrame:
    """The number of hits in each group of N examples: by, examples, `name`, percent, low, high. hits: (N,) bool.

    If examples of a group share a scene, Wilson's interval is that of fewer, independent examples: their number divided
    by the design effect, which is the variance with scenes as clusters over the variance without clusters.
    """
    grouped = frame.groupby(list(by), observed=True, sort=True, dropna=False)
    counts = grouped.size().rename("examples").reset_index()
    place, examples = grouped.ngroup().to_numpy(), counts["examples"].to_numpy()
    counts[name] = np.bincount(place, hits, len(counts)).astype(int)
    part = counts[name].to_numpy() / examples
    # Each split numbers its scenes from 0, so in groups that mix splits equal numbers are different scenes.
    scene = frame["scene"].to_numpy() if "split" in by else np.arange(len(frame))
    _, first, cluster = np.unique(place.astype(np.int64) << 32 | scene, return_index=True, return_inverse=True)
    size, hit = np.bincount(cluster), np.bincount(cluster, hits)
    group = place[first]
    spread = np.bincount(group, (hit - part[group] * size) ** 2, len(counts))
    plain = examples * part * (1 - part)
    alike = (
        np.bincount(group, size**2, len(counts)) / examples
    )  # where all or none are hits: as if the scene decided each answer
    effect = np.maximum(1, np.divide(spread, plain, out=alike, where=plain > 0))
    counts["percent"] = 100 * part
    counts["low"], counts["high"] = wilson(part, examples / effect)
    return counts


# Of the predictions of one run ---------------------------------------------------------------------------------------


def by_pair(predictions: pd.DataFrame) -> pd.DataFrame:
    """Wrong answers by split and pair (figures 2, 3, 24, 25): split, kind, x, y, pair, and the columns of `shares`.

    A pair that a split does not show, such as one that is held out, has no row.
    """
    return shares(predictions, PAIR_COLUMNS, ~predictions["right"].to_numpy())


def by_number(predictions: pd.DataFrame) -> pd.DataFrame:
    """How often a number is taken for another (figure 4), of cardinality: split, actual (the scene's number), predicted
    (the query's number), examples, `true` (how many of them the model answers with true), percent, low, high.
    """
    frame = _of_task(predictions, "cardinality").rename(columns={"x": "actual"})
    frame["predicted"] = frame["claim"].astype(str).astype(int)
    return shares(frame, ["split", "actual", "predicted"], frame["prediction"].to_numpy(), "true")


def by_objects(predictions: pd.DataFrame) -> pd.DataFrame:
    """Wrong answers by split and the scene's total number of objects (figure 22): split, objects, and the columns of
    `shares`."""
    return shares(predictions, ["split", "objects"], ~predictions["right"].to_numpy())


def by_critical(predictions: pd.DataFrame) -> pd.DataFrame:
    """Wrong answers by the size of the set that decides (figure 23): split, claim (the quantifier), answer, critical,
    and the columns of `shares`. As in the paper, only answers for which this set is not empty.
    """
    frame = _of_task(predictions, "quantifiers")
    answer = frame["claim"].map(CRITICAL_ANSWERS).astype(bool)
    frame = frame[(frame["answer"] == answer) & (frame["critical"] > 0)]
    return shares(frame, ["split", "claim", "answer", "critical"], ~frame["right"].to_numpy())


def agreement(predictions: pd.DataFrame) -> pd.DataFrame:
    """The answers from image and from caption to the same examples: split, outcome (one of `OUTCOMES`), examples,
    count, percent, low, high, and `independent`, the percent if the two answers were independent.
    """
    parts = []
    for split, frame in predictions.groupby("split", observed=True):
        image, caption = (frame[frame["test_setting"] == name].set_index("row") for name in ("image", "caption"))
        both = image[["scene", "right"]].join(caption["right"].rename("other"), how="inner").assign(split=split)
        one, other = both["right"].to_numpy(), both["other"].to_numpy(dtype=bool)
        a, b = (np.mean(side) if len(both) else 0.0 for side in (one, other))
        of_outcome = (one & other, ~one & ~other, one & ~other, ~one & other)
        chances = (a * b, (1 - a) * (1 - b), a * (1 - b), (1 - a) * b)
        for outcome, hits, chance in zip(OUTCOMES, of_outcome, chances, strict=True):
            parts.append(shares(both, ["split"], hits, "count").assign(outcome=outcome, independent=100 * chance))
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if not len(table):
        raise ValueError("agreement: no example was answered from image and from caption; test the run in both")
    return table[["split", "outcome", "examples", "count", "percent", "low", "high", "independent"]]


def calibration(predictions: pd.DataFrame) -> pd.DataFrame:
    """How often an answer is right, by the model's confidence: test_setting, split, bin (0 to 9: confidence from 50 to
    55 % and so on), examples, right, percent, low, high, confidence (its mean in the bin, percent).
    """
    logit = np.abs(predictions["logit"].to_numpy(dtype=float))
    confidence = 1 / (1 + np.exp(-logit))
    bins = np.minimum((2 * BINS * (confidence - 0.5)).astype(int), BINS - 1)
    frame = predictions[["test_setting", "split", "scene"]].assign(bin=bins, confidence=100 * confidence)
    by = ["test_setting", "split", "bin"]
    table = shares(frame, by, predictions["right"].to_numpy(), "right")
    table["confidence"] = frame.groupby(by, observed=True, sort=True)["confidence"].mean().to_numpy()
    return table


def calibration_error(bins: pd.DataFrame) -> float:
    """Expected calibration error, percent: the mean distance of accuracy and confidence of bins, weighted by their
    examples."""
    return float(np.average(np.abs(bins["percent"] - bins["confidence"]), weights=bins["examples"]))


def _of_task(predictions: pd.DataFrame, task: str) -> pd.DataFrame:
    frame = predictions[predictions["task"] == task] if "task" in predictions else predictions[:0]
    if not len(frame):
        raise ValueError(f"no predictions of {task}: choose runs with task={task!r}")
    return frame


# Of results, curves and datasets -------------------------------------------------------------------------------------


def by_size(results: pd.DataFrame) -> pd.DataFrame:
    """Scores by training-set size (figures 15-18), in the setting of training: task, setting, split, label,
    train_examples, streamed, seed, name, macro_f1, low, high (bootstrap), and macro-F1 of the baselines. A row for
    each result.

    A line (`label`) has runs that differ in seed, setting and training set alone; lines with a single size are left
    out. A streamed run never repeats an example, so its size is the number of all examples that it was trained on.
    """
    rows = results[results["own"].fillna(False).astype(bool) & results["config"].notna()].copy()
    free = ("training.examples",)
    rows["streamed"] = ~_setting(rows, "training.examples")
    lines = run_labels(rows, free)
    sizes = rows[~rows["streamed"]].groupby(lines)["train_examples"].nunique()
    rows = rows[lines.isin(sizes.index[sizes > 1])].copy()
    if not len(rows):
        raise ValueError("no runs that differ in their training-set size alone: train some with experiment=subsets")
    rows["label"] = run_labels(rows, free)  # by the settings in which the remaining runs differ
    rows = rows.rename(columns={"interval_low": "low", "interval_high": "high"})
    order = ["task", "setting", "split", "label", "train_examples", "streamed", "seed"]
    columns = [*order, "name", "macro_f1", "low", "high", *(f"floor_{name}" for name in BASELINES)]
    return rows[columns].sort_values(order, ignore_index=True)


def transfer(results: pd.DataFrame) -> pd.DataFrame:
    """Macro-F1 by training setting and test setting, of one task: label, setting, test_setting, split, macro_f1, low,
    high, runs, converged.

    A matrix (`label`) has runs that differ in seed and setting alone. Runs that started from another run were trained
    in two settings and are left out. Its scores are means over the converged seeds, or over all
    where none has converged (`converged` is 0). low and high: of one run, the interval of its result; of several, the
    lowest and the highest score.
    """
    rows = results[results["config"].notna()].copy()
    rows = rows[~_setting(rows, "start")]
    if not len(rows):
        raise ValueError("no runs to draw that were trained in one setting alone: choose others")
    rows["label"] = run_labels(rows)
    rows["converged"] = rows["converged"].fillna(False).astype(bool)
    place = ["label", "setting", "test_setting", "split"]
    cells = []
    for key, cell in rows.groupby(place, observed=True, sort=False):
        averaged = averaged_runs(list(cell.itertuples()), lambda row: row.converged)
        scores = [row.macro_f1 for row in averaged]
        ends = (averaged[0].interval_low, averaged[0].interval_high)
        low, high = ends if len(averaged) == 1 else (min(scores), max(scores))
        cells.append((*key, over_seeds(scores).mean, low, high, len(cell), int(cell["converged"].sum())))
    return pd.DataFrame(cells, columns=[*place, "macro_f1", "low", "high", "runs", "converged"])


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


def _setting(rows: pd.DataFrame, name: str) -> pd.Series:
    """Whether a setting has a value, and not 0 or false, in the config of each row."""
    has_value = {config: bool(flat_settings(json.loads(config)).get(name)) for config in rows["config"].unique()}
    return rows["config"].map(has_value).astype(bool)


def losses(curves: Mapping[str, pd.DataFrame], results: pd.DataFrame) -> pd.DataFrame:
    """Training loss by step (figures 19-21) of the runs named in `curves`: name, label, model, setting, seed, step,
    epoch (NaN of a streamed run), batch (examples of a step), loss, smooth.

    loss: in nats, of the answer alone where the curve has it. smooth: its mean over a fiftieth of the curve.
    """
    frames, labels = [], dict(zip(results["name"], run_labels(results), strict=True))
    for name, curve in curves.items():
        which = "answer_loss" if "answer_loss" in curve else "loss"
        if which not in curve or not (curve := curve[curve[which].notna()]).size:
            continue
        info = results[results["name"] == name].iloc[0]
        batch, epochs = _batch_and_epochs(info)
        frame = curve[["step"]].assign(loss=curve[which].astype(float), batch=batch)
        frame["smooth"] = frame["loss"].rolling(max(1, len(frame) // 50), center=True, min_periods=1).mean()
        frame["epoch"] = frame["step"] * epochs
        for column in ("name", "model", "setting", "seed"):
            frame[column] = info[column]
        frame["label"] = labels[name]
        frames.append(frame)
    if not frames:
        raise ValueError("no training curves to draw: none of these runs logged a loss")
    return pd.concat(frames, ignore_index=True)


def _batch_and_epochs(info: pd.Series) -> tuple[float, float]:
    """Examples of a step, and epochs of a step; NaN where unknown, and without epochs."""
    if not isinstance(info["config"], str):
        return np.nan, np.nan
    config = json.loads(info["config"])
    training, optimiser = config.get("training", {}), config.get("optimiser", {})
    architecture = ARCHITECTURES.get(str(info["model"]))
    table_5 = CONTROLLED[0] if config.get("controlled") else architecture.batch_size if architecture else np.nan
    batch, accumulate = (
        optimiser.get("batch_size") or table_5,
        config.get("trainer", {}).get("accumulate_grad_batches", 1),
    )
    if training.get("examples") is None or pd.isna(info["train_examples"]) or np.isnan(batch):
        return batch * accumulate, np.nan
    examples = int(info["train_examples"])
    steps = examples // min(batch, examples) // accumulate  # of an epoch, as train/learning/batches.py counts
    return batch * accumulate, 1 / max(1, steps)


def pair_counts(examples: pd.DataFrame) -> pd.DataFrame:
    """How many examples of each split show each pair (figures 8-14): split, kind, x, y, pair, examples."""
    grouped = examples.groupby(PAIR_COLUMNS, observed=True, sort=True, dropna=False)
    return grouped.size().rename("examples").reset_index()
