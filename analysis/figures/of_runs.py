"""Figures of several runs: training-set sizes, transfer between settings, and curves of the loss."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis.figures.plotting import (
    COLOURS,
    MARKERS,
    RED,
    add_legend,
    baseline_levels,
    baseline_lines,
    heat_map,
    new_figure,
)
from analysis.tables.pivots import average, label_runs
from train.config import ARCHITECTURES, CONTROLLED, SETTINGS
from train.results.columns import TEST_SETTINGS, TEST_SPLITS, in_order, main_test_setting
from travlr.settings import count_text


def require_one(results: pd.DataFrame, column: str) -> None:
    values = sorted(results[column].dropna().unique())
    if not values:
        raise ValueError("no results to draw: choose others, or see in `skipped` what could not be read")
    if len(values) > 1:
        raise ValueError(f"results of {len(values)} values of {column}: choose one, such as {column}={values[0]!r}")


def runs_title(title: str, rows: pd.DataFrame) -> list[str]:
    """A title, and a line about several runs."""
    count, seeds = rows["run"].nunique(), sorted(rows["seed"].dropna().unique())
    weights = ", ".join(sorted(set(rows["weights"].fillna("unknown")))[:3])
    several = f"{count_text(count, 'run')}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    return [title, f"{', '.join(sorted(rows['task'].dropna().unique()))} · {several}, weights: {weights}"]


def order_labels(labels: pd.Series) -> list[str]:
    """The distinct labels, such as "uniter small": first those of the models in `ARCHITECTURES`, in its order."""
    ranks = {model: rank for rank, model in enumerate(ARCHITECTURES)}
    return sorted(labels.unique(), key=lambda label: (ranks.get(re.split("[ ,]", label)[0], len(ranks)), label))


def has_setting(rows: pd.DataFrame, name: str) -> pd.Series:
    """Whether a setting has a value, and not 0 or false, in each row."""
    return rows[name].map(bool, na_action="ignore").eq(True) if name in rows else pd.Series(False, rows.index)


# Training-set sizes --------------------------------------------------------------------------------------------------


def sizes_of(results: pd.DataFrame) -> pd.DataFrame:
    """The results in the setting of training, of runs that differ in their training-set size, with `label`: what the
    runs of a line share. `streamed`: never repeats an example, so its size is all that it was trained on."""
    rows = results[results["own"].fillna(False).astype(bool)].copy()
    rows["streamed"] = ~has_setting(rows, "training.examples")
    lines = label_runs(rows, ("training.examples",))
    sizes = rows[~rows["streamed"]].groupby(lines)["train_examples"].nunique()
    rows = rows[lines.isin(sizes.index[sizes > 1])].copy()
    if not len(rows):
        raise ValueError("no runs that differ in their training-set size alone: train some with experiment=subsets")
    return rows.assign(label=label_runs(rows, ("training.examples",)))


def draw_subsets(results: pd.DataFrame) -> Figure:
    """Macro-F1 by training-set size; lines go through means of seeds, whiskers are 95 % intervals of runs. Open:
    streamed, none seen twice."""
    require_one(results, "task")
    table = sizes_of(results)
    splits, settings = in_order(table["split"], TEST_SPLITS[::-1]), in_order(table["setting"], SETTINGS)
    styles = {label: (COLOURS[n % 7], MARKERS[n % 7]) for n, label in enumerate(sorted(table["label"].unique()))}
    title = runs_title("Macro-F1 by training-set size", table)
    figure, panels = new_figure(title, len(splits), len(settings), (2.5, 2.1), sharex=True, sharey=True)
    for axes, (split, setting) in zip(panels.flat, product(splits, settings), strict=True):
        cells = table[(table["split"] == split) & (table["setting"] == setting)]
        axes.set_xscale("log", base=2)
        for (label, streamed), runs in cells.groupby(["label", "streamed"]):
            colour, marker = styles[label]
            x, y = runs["train_examples"].to_numpy(float), runs["macro_f1"].to_numpy(float)
            error = np.stack([y - runs["interval_low"], runs["interval_high"] - y]).clip(0)
            axes.errorbar(x, y, error, color=colour, marker=marker, ms=4, ls="", lw=0.9,
                          mfc="white" if streamed else colour, label=label if not streamed else None)  # fmt: skip
            if not streamed:
                axes.plot(runs.groupby("train_examples")["macro_f1"].mean(), color=colour, lw=1.2)
        baseline_lines(axes, cells, "macro_f1")
        sizes = sorted(table["train_examples"].unique())
        axes.set_xticks(sizes, [f"{size / 1000:g}k" if size >= 1000 else str(size) for size in sizes])
        axes.minorticks_off()
        axes.grid(axis="y")
        axes.set(title=f"{split}, {setting}", xlim=(min(sizes) / 1.3, max(sizes) * 1.3))
    low = min(30.0, 10 * math.floor(table["interval_low"].min() / 10))
    panels[0][0].set_ylim(low, 101)
    for axes in panels[-1]:
        axes.set_xlabel("training examples")
    for line in panels:
        line[0].set_ylabel("macro-F1")
    add_legend(figure)
    return figure


# Transfer ------------------------------------------------------------------------------------------------------------


def transfer_scores(results: pd.DataFrame) -> pd.DataFrame:
    """Macro-F1 by training setting and test setting, of one task: label, setting, test_setting, split, macro_f1, low,
    high, runs, converged.

    A matrix (`label`) has runs that differ in seed and setting alone; runs that started from another one were trained
    in two settings and are left out. Its scores are means over the converged seeds, or over all where none has
    converged. low and high: of one run, the interval of its result; of several, the lowest and the highest score.
    """
    rows = results[~has_setting(results, "start")].copy()
    if not len(rows):
        raise ValueError("no runs to draw that were trained in one setting alone: choose others")
    place = ["label", "setting", "test_setting", "split"]
    cells = average(rows.assign(label=label_runs(rows)), place, "macro_f1").rename(columns={"mean": "macro_f1"})
    return cells[[*place, "macro_f1", "low", "high", "runs", "converged"]]


def draw_transfer(results: pd.DataFrame) -> Figure:
    """Macro-F1 by training setting (rows) and test setting (columns). Below it the 95 % interval of one run, or of
    several the lowest and the highest and how many converged. Framed: tested as trained. Blank: not tested."""
    require_one(results, "task")
    table = transfer_scores(results)
    trained, tested = in_order(table["setting"], SETTINGS), in_order(table["test_setting"], TEST_SETTINGS)
    splits, labels = in_order(table["split"], TEST_SPLITS), order_labels(table["label"])
    ends = table["low"].map("{:.1f}–".format) + table["high"].map("{:.1f}".format)
    several = " " + table["converged"].astype(str) + "/" + table["runs"].astype(str)
    table["text"] = table["macro_f1"].map("{:.1f}\n".format) + ends + several.where(table["runs"] > 1, "")
    rules = pd.DataFrame({split: rule_scores(results[results["split"] == split]) for split in splits})
    lines = {
        label: [one for one in trained if one in set(table[table["label"] == label]["setting"])] for label in labels
    }
    lines |= {RULES: list(rules.index)} if len(rules) else {}
    title = runs_title("Transfer from training setting (rows) to test setting (columns)", results)
    heights = [len(rows) + 1.4 for rows in lines.values()]
    size = (0.85 * len(tested) + 0.8, 0.38 * float(np.mean(heights)))
    figure, panels = new_figure(title, len(lines), len(splits), size, height_ratios=heights)
    for line, (label, rows) in zip(panels, lines.items(), strict=True):
        for axes, split in zip(line, splits, strict=True):
            if label == RULES:
                scores = rules[[split]].rename(columns={split: "any setting"})
                heat_map(axes, scores, scores.map("{:.1f}".format), yticklabels=rows)
            else:
                cells = table[(table["label"] == label) & (table["split"] == split)]
                draw_matrix(axes, cells.set_index(["setting", "test_setting"]), rows, tested)
            axes.set_title("\n".join(textwrap.wrap(f"{label}: {split}" if axes is line[0] else split, 36)))
            axes.set_aspect("auto")
            axes.xaxis.tick_top()
            axes.tick_params(top=False)
            if axes is not line[0]:
                axes.set_yticks([])
    return figure


RULES = "baselines"


def rule_scores(results: pd.DataFrame) -> pd.Series:
    """The macro-F1 of each baseline rule in these results, by what it sees."""
    levels = baseline_levels(results, "macro_f1")
    return pd.Series({words: float(np.mean(values)) for words, values in levels.items()}, dtype=float)


def draw_matrix(axes: Axes, cells: pd.DataFrame, trained: list[str], tested: list[str]) -> None:
    scores, texts = (cells[name].unstack().reindex(index=trained, columns=tested) for name in ("macro_f1", "text"))
    heat_map(axes, scores, texts, 6.0)
    frame: dict[str, Any] = {"fill": False, "edgecolor": RED, "linewidth": 1.5, "zorder": 3}
    for y, setting in enumerate(trained):
        if (own := main_test_setting(setting)) in tested:
            axes.add_patch(Rectangle((tested.index(own) + 0.03, y + 0.04), 0.94, 0.92, **frame))


# Loss ----------------------------------------------------------------------------------------------------------------


def loss_curves(curves: Mapping[str, pd.DataFrame], results: pd.DataFrame) -> pd.DataFrame:
    """Training loss by step of the runs in `curves`: name, label, model, setting, step, epoch (NaN of a streamed run),
    loss (in nats, of the answer alone where the curve has it), smooth (its mean over a fiftieth of the curve)."""
    frames, labels = [], dict(zip(results["name"], label_runs(results), strict=True))
    for name, curve in curves.items():
        which = "answer_loss" if "answer_loss" in curve else "loss"
        if which not in curve or not (curve := curve[curve[which].notna()]).size:
            continue
        info = results[results["name"] == name].iloc[0]
        frame = curve[["step"]].assign(loss=curve[which].astype(float), name=name, label=labels[name])
        frame["smooth"] = frame["loss"].rolling(max(1, len(frame) // 50), center=True, min_periods=1).mean()
        frame["epoch"] = frame["step"] / steps_of_epoch(info)
        frames.append(frame.assign(model=info["model"], setting=info["setting"]))
    if not frames:
        raise ValueError("no training curves to draw: none of these runs logged a loss")
    return pd.concat(frames, ignore_index=True)


def steps_of_epoch(info: pd.Series) -> float:
    """Steps of an epoch, as train/learning/batches.py counts; NaN where unknown, and without epochs."""
    architecture = ARCHITECTURES.get(str(info["model"]))
    controlled = CONTROLLED[0] if info.get("controlled") else architecture.batch_size if architecture else np.nan
    batch = info.get("optimiser.batch_size") or controlled
    if pd.isna(info.get("training.examples")) or pd.isna(info["train_examples"]) or pd.isna(batch):
        return np.nan
    examples = int(info["train_examples"])
    return float(max(1, examples // min(int(batch), examples) // int(info.get("trainer.accumulate_grad_batches") or 1)))


def draw_loss(curves: Mapping[str, pd.DataFrame], results: pd.DataFrame) -> Figure:
    """Training loss of the answer, in nats: a panel for each model, or one panel for all models of a single setting.
    Bold: its mean over a fiftieth of the curve."""
    table = loss_curves(curves, results)
    one = table["setting"].nunique() == 1
    panel, line = ("setting", "model") if one else ("label", "setting")
    labels = in_order(table[panel], SETTINGS) if one else order_labels(table[panel])
    styles = {name: COLOURS[n % 7] for n, name in enumerate(in_order(table[line], ARCHITECTURES if one else SETTINGS))}
    across = min(2, len(labels))
    title = runs_title("Training loss", results[results["name"].isin(table["name"].unique())])
    figure, panels = new_figure(title, math.ceil(len(labels) / across), across, (3.4, 2.2))
    for axes in panels.flat[len(labels) :]:
        axes.set_axis_off()
    for axes, label in zip(panels.flat, labels, strict=False):
        part = table[table[panel] == label]
        for _, run in part.groupby("name"):
            name = run[line].iloc[0]
            axes.plot(run["step"], run["loss"], color=styles[name], lw=0.4, alpha=0.3)
            axes.plot(run["step"], run["smooth"], color=styles[name], lw=1.2, label=name)
        axes.axhline(math.log(2), color="#666", lw=0.8, ls=(0, (4, 2)), label="chance: ln 2")
        axes.set(title=label, xlabel="step", ylabel="loss (nats)", xlim=(0, part["step"].max()))
        axes.set_ylim(0, max(0.8, 1.05 * part["smooth"].max()))
        steps = (part["step"] / part["epoch"]).dropna().round(6).unique()
        if len(steps) == 1 and part["epoch"].notna().all():  # all runs have epochs of the same length
            scale = (lambda step, each=steps[0]: step / each, lambda epoch, each=steps[0]: epoch * each)
            axes.secondary_xaxis("top", functions=scale).set_xlabel("epoch", fontsize=7)
    add_legend(figure)
    return figure
