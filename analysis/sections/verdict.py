"""What models reason over, a sentence or two for each model and task; the tables have the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from analysis.frames import Runs, left_out
from train.results.columns import in_order
from travlr.baselines import dataset_baselines
from travlr.corpora.items import MATCH
from travlr.questions import FORMS
from travlr.tasks import TASKS

MODALITIES = {"image": "pictures", "caption": "captions"}
MOST = 12  # models and tasks
OTHER_PICTURES = {"blank": "itself with blank pictures", "shuffled": "itself with pictures of other items"}


def judge(runs: Runs) -> list[str]:
    """What models reason over: of each task that models were trained on, and of each model that was asked, by task and
    by corpus."""
    lines = [*_judge_trainings(runs.trainings), *_judge_evaluations(runs.evaluations), *_judge_corpora(runs)]
    others = len(lines) - MOST
    return lines if others <= 0 else [*lines[:MOST], f"{others:,} more are in the tables below."]


def _judge_trainings(results: pd.DataFrame) -> Iterator[str]:
    """Of each task: what the best run reaches in the modality that it was trained in, and whether that carries over to
    the other one."""
    results = results[results["split"] == "test_ood"]
    results = results[results["variant"] == ""] if results["variant"].eq("").any() else results
    for task in in_order(results["task"].dropna(), TASKS):
        of_task = results[results["task"] == task]
        of_task = of_task[of_task[["setting", "test_setting"]].isin(list(MODALITIES)).all(axis=1)]
        own = of_task[of_task["test_setting"] == of_task["setting"]]
        other = of_task.drop(own.index)
        if len(own):
            carries = ""
            if len(other):
                best = other.loc[other["accuracy"].idxmax()]
                where = f"from {MODALITIES[best['setting']]} to {MODALITIES[best['test_setting']]}"
                reached = f"{where} ({best['accuracy']:.1f} %)"
                carries = f" It carries over {reached}." if _above(other).any() else " Nothing carries over."
            yield f"{task}: models {_reason_over(own)}{carries}"


def _judge_evaluations(results: pd.DataFrame) -> Iterator[str]:
    """Of each model and task, in the simplest form that it was asked in."""
    results = results[(results["task"] != MATCH) & (results["form"] != "read")]
    results = results[
        ~results["image_style"].isin(list(OTHER_PICTURES)) & results["test_setting"].isin(list(MODALITIES))
    ]
    for (model, task), rows in results.groupby(["model", "task"], sort=False):
        rows = rows[rows["form"] == in_order(rows["form"], FORMS)[0]]
        rows = rows[rows["name"] == rows["name"].iloc[0]]
        rows = rows[rows["split"] == ("test_ood" if rows["split"].eq("test_ood").any() else rows["split"].iloc[0])]
        if rows["accuracy"].notna().all():
            yield f"{task}: {model} {_reason_over(rows)}"
        else:  # a matcher that only ranks
            yield f"{task}: {model} {_rank(rows.iloc[0], {'a coin': 50.0})}"


def _reason_over(rows: pd.DataFrame) -> str:
    """What models reason over by results in the modality that they were trained in, or asked in; the best of each."""
    above = set(rows.loc[_above(rows), "test_setting"])
    over = [words for setting, words in MODALITIES.items() if setting in above]
    best = rows.groupby("test_setting")["accuracy"].max()
    texts = [f"{best[setting]:.1f} % from {words}" for setting, words in MODALITIES.items() if setting in best]
    levels = rows["baseline_unbound_accuracy"].dropna()
    level = f"best unbound rule {levels.max():.1f} %" if len(levels) else "no unbound rule is known, so above chance"
    ending = "s" if rows["form"].notna().any() else ""  # of one model
    what = f"reason{ending} over {' and '.join(over)}" if over else f"show{ending} no reasoning"
    return f"{what}: {', '.join(texts)} right ({level})."


def _above(rows: pd.DataFrame) -> pd.Series:
    """Whether results are above the best unbound rule, or above chance where the rule is not known."""
    return rows["above_unbound"].fillna(rows["above_random"]).fillna(False).astype(bool)


def _judge_corpora(runs: Runs) -> Iterator[str]:
    """Of each model and corpus: how often the true sentences score higher, and the best of a coin, a rule that reads
    the words alone, and the model itself without its pictures."""
    results = runs.evaluations
    results = results[(results["task"] == MATCH) & results["ranked"].notna()]
    other = results[results["image_style"].isin(list(OTHER_PICTURES))]
    words_alone = {digest: _words_alone(runs, str(digest)) for digest in results["dataset"].unique()}
    for row in results.drop(other.index).to_dict("records"):
        same = other[(other["dataset"] == row["dataset"]) & (other["model"] == row["model"])]
        itself = {OTHER_PICTURES[one["image_style"]]: one["ranked"] for one in same.to_dict("records")}
        levels = {"a coin": 50.0, **words_alone[row["dataset"]], **itself}
        yield f"{row.get('corpus') or 'a corpus'}: {row['model']} {_rank(row, levels)}"


def _rank(row: pd.Series | dict[str, float], levels: dict[str, float]) -> str:
    """What a model that ranks shows, beside the best of some levels."""
    best = max(levels, key=levels.__getitem__)
    over = "looks at the picture" if row["ranked_low"] > levels[best] else f"is not above {best}"
    return f"{over}: {row['ranked']:.1f} % of items ranked right ({best} {levels[best]:.1f} %)."


def _words_alone(runs: Runs, digest: str) -> dict[str, float]:
    """The best rule that reads the sentences of a corpus alone; empty where the corpus is not there."""
    if digest not in runs.datasets:
        return {}
    with left_out(runs.skipped, "blind rules: "):
        rules = dataset_baselines(runs.datasets[digest].folder)
        return {"the words alone": max(rule.accuracy for rule in rules if not rule.axis)}
    return {}
