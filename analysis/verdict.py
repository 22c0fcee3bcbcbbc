"""What models reason over, in a few sentences: the picture, the words of its caption, both or neither."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from analysis.frames import Runs, left_out
from train.results.columns import in_order
from travlr.baselines import dataset_baselines
from travlr.corpora.items import MATCH
from travlr.tasks import TASKS

MODALITIES = {"image": "pictures", "caption": "captions"}
MOST = 12  # sentences
WITHOUT_PICTURE = {"blank": "with blank pictures", "shuffled": "with pictures of other items"}


def judge(runs: Runs) -> list[str]:
    """A sentence or two for each task that models were trained on, for each evaluation, and for each corpus."""
    lines = [
        *_judge_trainings(runs.trainings),
        *_judge_evaluations(runs.evaluations),
        *_judge_corpora(runs),
    ]
    others = len(lines) - MOST
    return lines if others <= 0 else [*lines[:MOST], f"{others:,} more are in the tables below."]


def _judge_trainings(results: pd.DataFrame) -> Iterator[str]:
    """Of each task: what runs reach in the setting they were trained in, and what carries over to the other one."""
    results = results[results["split"] == "test_ood"]
    results = results[results["variant"] == ""] if results["variant"].eq("").any() else results
    for task in in_order(results["task"].dropna(), TASKS):
        parts, over = [], []
        for setting, words in MODALITIES.items():
            of_setting = results[(results["task"] == task) & (results["setting"] == setting)]
            own = of_setting[of_setting["test_setting"] == setting]
            if not len(own):
                continue
            above, level = _above(own)
            over += [words] if above.any() else []
            part = f"trained on {words}, {above.sum()} of {len(own)} runs are above {level}, the best with "
            part += f"{own['accuracy'].max():.1f} % right"
            other = "caption" if setting == "image" else "image"
            if len(transfer := of_setting[of_setting["test_setting"] == other]):
                carries = "which carries over" if _above(transfer)[0].any() else "and it does not carry over"
                part += f", {carries}: from {MODALITIES[other]} at best {transfer['accuracy'].max():.1f} %"
            parts.append(part)
        if parts:
            yield f"{task}: models reason over {_listed(over)}. {_sentence('; '.join(parts))} (test_ood)."


def _above(rows: pd.DataFrame) -> tuple[pd.Series, str]:
    """Whether results are above the best unbound rule, or above chance where the rule is not known, and its name."""
    if rows["above_unbound"].notna().any():
        levels = rows["baseline_unbound_accuracy"].dropna()
        return rows["above_unbound"].fillna(False).astype(bool), f"the best unbound rule ({levels.max():.1f} %)"
    return rows["above_random"].fillna(False).astype(bool), "chance (no unbound rule is known)"


def _judge_evaluations(results: pd.DataFrame) -> Iterator[str]:
    """Of each model and task: accuracy from pictures and from captions, and the gap."""
    results = results[(results["task"] != MATCH) & (results["form"] != "read")]
    results = results[~results["image_style"].isin(list(WITHOUT_PICTURE))]
    for (model, form, task, _), rows in results.groupby(["model", "form", "task", "name"], sort=False):
        split = "test_ood" if rows["split"].eq("test_ood").any() else str(rows["split"].iloc[0])
        rows = rows[rows["split"] == split].drop_duplicates("test_setting").set_index("test_setting", drop=False)
        rows = rows.loc[[setting for setting in MODALITIES if setting in rows.index]]
        if not len(rows):
            continue
        if rows["accuracy"].isna().any():  # a matcher that only ranks
            row = rows.iloc[0]
            ends = f"[{row['ranked_low']:.1f}, {row['ranked_high']:.1f}]"
            over = "the picture" if row["ranked_low"] > 50 else "not more than a coin"
            yield f"{model} on {task}, {split}: {row['ranked']:.1f} % of couples ranked right {ends}: {over}."
            continue
        above, level = _above(rows)
        seen = {one: words for one, words in MODALITIES.items() if one in rows.index}
        texts = [f"{rows.loc[one, 'accuracy']:.1f} % from {words}" for one, words in seen.items()]
        gap = ""
        if len(rows) == 2:
            gap = f", a gap of {rows.loc['caption', 'accuracy'] - rows.loc['image', 'accuracy']:+.1f} points"
        over = _listed([words for one, words in seen.items() if above[one]])
        beside = f"above {level} from {over}" if above.any() else f"not above {level}"
        yield f"{model} ({form}) on {task}, {split}: {' and '.join(texts)}{gap}; {beside}."


def _judge_corpora(runs: Runs) -> Iterator[str]:
    """Of each model and corpus: how often the true sentences score higher, and whether a coin, a rule that reads the
    words alone, or the model itself without its pictures ranks as many."""
    results = runs.evaluations
    results = results[(results["task"] == MATCH) & results["ranked"].notna()]
    other = results[results["image_style"].isin(list(WITHOUT_PICTURE))]
    for row in results.drop(other.index).to_dict("records"):
        levels = {"a coin": 50.0} | _words_alone(runs, row["dataset"])
        same = other[(other["dataset"] == row["dataset"]) & (other["model"] == row["model"])]
        levels |= {WITHOUT_PICTURE[one["image_style"]]: one["ranked"] for one in same.to_dict("records")}
        best = max(levels, key=levels.__getitem__)
        over = "the picture" if row["ranked_low"] > levels[best] else f"not more than {best}"
        ends = f"[{row['ranked_low']:.1f}, {row['ranked_high']:.1f}]"
        beside = ", ".join(f"{name} {level:.1f}" for name, level in levels.items())
        name = row.get("corpus") or "a corpus"
        yield f"{row['model']} on {name}: {row['ranked']:.1f} % of items ranked right {ends} ({beside}): {over}."


def _words_alone(runs: Runs, digest: str) -> dict[str, float]:
    """The best rule that reads the sentences of a corpus alone; empty where the corpus is not there."""
    if digest not in runs.datasets:
        return {}
    with left_out(runs.skipped, "blind rules: "):
        rules = dataset_baselines(runs.datasets[digest].folder)
        return {"the words alone": max(rule.accuracy for rule in rules if not rule.axis)}
    return {}


def _listed(words: list[str]) -> str:
    return " and ".join(words) or "neither pictures nor captions"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
