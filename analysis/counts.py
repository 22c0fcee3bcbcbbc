"""What the figures draw, as tidy frames: counts, rates and intervals from predictions, results, curves and examples.

Rates are percent, 0 to 100. `low` and `high` bound a 95 % interval: Wilson's score interval of a share of examples (see
`shares`), or, where noted, that of a result, a bootstrap (see `train.results.scores.score`). Frames of predictions are
those of `analysis.runs.Runs.predictions`; a `ValueError` says in one line what is missing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from analysis.statistics import over_seeds, wilson
from train.config import ARCHITECTURES, CONTROLLED, Run
from train.results.columns import BASELINES, averaged_runs
from train.results.store import canonical
from train.results.tables import comparable_settings, differing_settings, flat_settings, settings_text
from travlr.tasks.quantifiers import FAMILIES

OUTCOMES = ("both right", "both wrong", "only image right", "only caption right")
PAIR_COLUMNS = ["split", "kind", "x", "y", "pair"]
BINS = 10  # of confidence in the answer, from 50 to 100 %
# The paper's figure 23: of each quantifier, the answer whose examples have a deciding set that is not empty.
DECIDED = {name: name == other for vacant, other in FAMILIES for name in (vacant, other)}


def shares(frame: pd.DataFrame, by: Sequence[str], hits: np.ndarray, name: str = "wrong") -> pd.DataFrame:
    """How many of each group of N examples are hits (N,) bool: by, examples, `name`, percent, low, high.

    Where examples of a group share a scene, the interval is Wilson's of as many independent examples as would vary
    alike: their number over the design effect, the variance with scenes as clusters over that without.
    """
    grouped = frame.groupby(list(by), observed=True, sort=True, dropna=False)
    found = grouped.size().rename("examples").reset_index()
    place, examples = grouped.ngroup().to_numpy(), found["examples"].to_numpy()
    found[name] = np.bincount(place, hits, len(found)).astype(int)
    part = found[name].to_numpy() / examples
    # Scenes are numbered anew in each split, so groups that mix splits would take different scenes for one.
    scene = frame["scene"].to_numpy() if "split" in by else np.arange(len(frame))
    _, first, cluster = np.unique(place.astype(np.int64) << 32 | scene, return_index=True, return_inverse=True)
    size, hit = np.bincount(cluster), np.bincount(cluster, hits)
    of = place[first]
    spread = np.bincount(of, (hit - part[of] * size) ** 2, len(found))
    plain = examples * part * (1 - part)
    alike = np.bincount(of, size**2, len(found)) / examples  # where all or none are hits, as if scenes decided
    effect = np.maximum(1, np.divide(spread, plain, out=alike, where=plain > 0))
    found["percent"] = 100 * part
    found["low"], found["high"] = wilson(part, examples / effect)
    return found


# Of the predictions of one run ---------------------------------------------------------------------------------------


def by_pair(predictions: pd.DataFrame) -> pd.DataFrame:
    """Wrong answers by split and pair (figures 2, 3, 24, 25): split, kind, x, y, pair, and the columns of `shares`.

    A pair that a split does not show, such as one that is held out, has no row.
    """
    return shares(predictions, PAIR_COLUMNS, ~predictions["right"].to_numpy())


def by_number(predictions: pd.DataFrame) -> pd.DataFrame:
    """How often a number is taken for another (figure 4), of cardinality: split, actual (the scene's number), predicted
    (the query's), examples that ask this, `true` (how many of them the model says are true), percent, low, high.
    """
    frame = _of_task(predictions, "cardinality").rename(columns={"x": "actual"})
    frame["predicted"] = frame["claim"].astype(str).astype(int)
    return shares(frame, ["split", "actual", "predicted"], frame["prediction"].to_numpy(), "true")


def by_objects(predictions: pd.DataFrame) -> pd.DataFrame:
    """Wrong answers by split and the scene's total number of objects (figure 22): split, objects, as `shares`."""
    return shares(predictions, ["split", "objects"], ~predictions["right"].to_numpy())


def by_critical(predictions: pd.DataFrame) -> pd.DataFrame:
    """Wrong answers by how many objects are in the set that decides (figure 23): split, claim (the quantifier), answer,
    critical, as `shares`. As in the paper, only answers for which that set is not empty.
    """
    frame = _of_task(predictions, "quantifiers")
    decided = frame["claim"].map(DECIDED).astype(bool)
    frame = frame[(frame["answer"] == decided) & (frame["critical"] > 0)]
    return shares(frame, ["split", "claim", "answer", "critical"], ~frame["right"].to_numpy())


def agreement(predictions: pd.DataFrame) -> pd.DataFrame:
    """How the answers from image and from caption to the same example go together: split, outcome (one of `OUTCOMES`),
    examples, count, percent, low, high, and `independent`, the percent if they were independent.
    """
    found = []
    for split, frame in predictions.groupby("split", observed=True):
        image, caption = (frame[frame["test_setting"] == name].set_index("row") for name in ("image", "caption"))
        both = image[["scene", "right"]].join(caption["right"].rename("other"), how="inner").assign(split=split)
        one, other = both["right"].to_numpy(), both["other"].to_numpy(dtype=bool)
        a, b = (np.mean(side) if len(both) else 0.0 for side in (one, other))
        of_outcome = (one & other, ~one & ~other, one & ~other, ~one & other)
        chances = (a * b, (1 - a) * (1 - b), a * (1 - b), (1 - a) * b)
        for outcome, hits, chance in zip(OUTCOMES, of_outcome, chances, strict=True):
            found.append(shares(both, ["split"], hits, "count").assign(outcome=outcome, independent=100 * chance))
    table = pd.concat(found, ignore_index=True) if found else pd.DataFrame()
    if not len(table):
        raise ValueError("agreement: no example was answered from image and from caption; test the run in both")
    return table[["split", "outcome", "examples", "count", "percent", "low", "high", "independent"]]


def calibration(predictions: pd.DataFrame) -> pd.DataFrame:
    """How often an answer is right by how sure the model is of it: test_setting, split, bin (0 to 9: confidence from 50
    to 55 % and so on), examples, right, percent, low, high, confidence (its mean in the bin, percent).
    """
    logit = np.abs(predictions["logit"].to_numpy(dtype=float))
    sure = 1 / (1 + np.exp(-logit))
    places = np.minimum((2 * BINS * (sure - 0.5)).astype(int), BINS - 1)
    frame = predictions[["test_setting", "split", "scene"]].assign(bin=places, sure=100 * sure)
    by = ["test_setting", "split", "bin"]
    found = shares(frame, by, predictions["right"].to_numpy(), "right")
    found["confidence"] = frame.groupby(by, observed=True, sort=True)["sure"].mean().to_numpy()
    return found


def calibration_error(bins: pd.DataFrame) -> float:
    """Expected calibration error, percent: the mean distance of accuracy from confidence over the examples of bins."""
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

    Lines (`label`) are of runs that differ in seed, setting and training set alone; those with a single size are left
    out. A streamed run never repeats an example, so its size is that of all it saw.
    """
    rows = results[results["own"].fillna(False).astype(bool) & results["config"].notna()].copy()
    free = ("training.examples", "training.stream")
    rows["streamed"] = _setting(rows, "training.stream")
    lines = run_labels(rows, free)
    sizes = rows[~rows["streamed"]].groupby(lines)["train_examples"].nunique()
    rows = rows[lines.isin(sizes.index[sizes > 1])].copy()
    if not len(rows):
        raise ValueError("no runs that differ in their training-set size alone: train some with experiment=subsets")
    rows["label"] = run_labels(rows, free)  # what those differ in that are left
    rows = rows.rename(columns={"interval_low": "low", "interval_high": "high"})
    order = ["task", "setting", "split", "label", "train_examples", "streamed", "seed"]
    columns = [*order, "name", "macro_f1", "low", "high", *(f"floor_{name}" for name in BASELINES)]
    return rows[columns].sort_values(order, ignore_index=True)


def transfer(results: pd.DataFrame) -> pd.DataFrame:
    """Macro-F1 by training setting and test setting, of one task: label, setting, test_setting, split, macro_f1, low,
    high, runs, converged.

    A matrix (`label`) is of runs that differ in seed and setting alone. Runs that started from another run have learned
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


LABEL_SETTINGS = ("seed", "model", "size", "setting", "task")  # by which runs are called, whatever else they differ in


def run_labels(rows: pd.DataFrame, but: Sequence[str] = ()) -> pd.Series:
    """What to call the runs of rows: "uniter small", or "uniter small, training.steps=4000" beside others."""
    apart = distinguishing_settings(rows, but)
    return _model_and_size(rows).where(apart == "", _model_and_size(rows) + ", " + apart)


def distinguishing_settings(rows: pd.DataFrame, but: Sequence[str] = ()) -> pd.Series:
    """In which settings runs depart from what others with their model, size and task do, in words; "" in none.

    From the default where any of these runs has it, else from what most have: equal words mean equal settings.
    but: settings that are not reported.
    """
    found = {}
    defaults = flat_settings(json.loads(canonical(asdict(Run()))))
    for _, group in rows[rows["config"].notna()].groupby([_model_and_size(rows), rows["task"]], observed=True):
        configs = list(group["config"].unique())
        settings = comparable_settings([json.loads(config) for config in configs])
        settings = [{n: value for n, value in one.items() if n not in (*LABEL_SETTINGS, *but)} for one in settings]
        apart = differing_settings(settings)
        usual = {name: _most_common([one[name] for one in apart], defaults.get(name)) for name in apart[0]}
        for config, one in zip(configs, apart, strict=True):
            unusual = {name: value for name, value in one.items() if json.dumps(value) != usual[name]}
            found[config] = settings_text(unusual)
    return pd.Series([found.get(config, "") for config in rows["config"]], rows.index, "str")


def _model_and_size(rows: pd.DataFrame) -> pd.Series:
    return (rows["model"].astype(str) + " " + rows["size"].fillna("").astype(str)).str.strip()


def _most_common(values: Sequence[Any], default: Any) -> str:
    """As JSON, the default where any has it, else what most have."""
    counted = Counter(map(json.dumps, values))
    usual = json.dumps(default)
    return usual if usual in counted else max(sorted(counted), key=lambda text: counted[text])


def _setting(rows: pd.DataFrame, name: str) -> pd.Series:
    """Whether the config of each row has a value for a setting."""
    known = {text: bool(flat_settings(json.loads(text)).get(name)) for text in rows["config"].unique()}
    return rows["config"].map(known).astype(bool)


def losses(curves: Mapping[str, pd.DataFrame], results: pd.DataFrame) -> pd.DataFrame:
    """Training loss by step (figures 19-21) of the runs named in `curves`: name, label, model, setting, seed, step,
    epoch (NaN of a streamed run), batch (examples of a step), loss, smooth.

    loss: of the answer alone where it was logged apart, in nats. smooth: its mean over a fiftieth of the curve.
    """
    found, called = [], dict(zip(results["name"], run_labels(results), strict=True))
    for name, curve in curves.items():
        which = "answer_loss" if "answer_loss" in curve else "loss"
        if which not in curve or not (curve := curve[curve[which].notna()]).size:
            continue
        info = results[results["name"] == name].iloc[0]
        batch, passes = _batch_and_epochs(info)
        frame = curve[["step"]].assign(loss=curve[which].astype(float), batch=batch)
        frame["smooth"] = frame["loss"].rolling(max(1, len(frame) // 50), center=True, min_periods=1).mean()
        frame["epoch"] = frame["step"] * passes
        for column in ("name", "model", "setting", "seed"):
            frame[column] = info[column]
        frame["label"] = called[name]
        found.append(frame)
    if not found:
        raise ValueError("no training curves to draw: none of these runs logged a loss")
    return pd.concat(found, ignore_index=True)


def _batch_and_epochs(info: pd.Series) -> tuple[float, float]:
    """Examples of a step, and epochs of a step; NaN where not known, or where there are no epochs."""
    if not isinstance(info["config"], str):
        return np.nan, np.nan
    config = json.loads(info["config"])
    training, optimiser = config.get("training", {}), config.get("optimiser", {})
    architecture = ARCHITECTURES.get(str(info["model"]))
    table_5 = CONTROLLED[0] if config.get("controlled") else architecture.batch_size if architecture else np.nan
    batch, accumulate = optimiser.get("batch_size") or table_5, optimiser.get("accumulate", 1)
    if training.get("stream", True) or pd.isna(info["train_examples"]) or np.isnan(batch):
        return batch * accumulate, np.nan
    examples = int(info["train_examples"])
    steps = examples // min(batch, examples) // accumulate  # of an epoch, as train/learning/batches.py counts
    return batch * accumulate, 1 / max(1, steps)


def pair_counts(examples: pd.DataFrame) -> pd.DataFrame:
    """How many examples of each split show each pair (figures 8-14): split, kind, x, y, pair, examples."""
    grouped = examples.groupby(PAIR_COLUMNS, observed=True, sort=True, dropna=False)
    return grouped.size().rename("examples").reset_index()
