"""Two runs on the same examples."""

from __future__ import annotations

import math
from typing import Any

from analysis.averages import run_summaries
from analysis.layout import BLANK, Cell, Table
from analysis.paper import SPLITS
from analysis.runs import Runs
from analysis.statistics import PairedComparison, holm, paired
from analysis.tables.builder import SHORT_SETTINGS, TableBuilder, signed
from train.results.columns import TEST_SETTINGS
from train.results.predictions import read_predictions
from train.results.scores import LEVEL
from train.results.tables import differing_settings, score_text, settings_text


def compare_runs(runs: Runs, name_a: str, name_b: str) -> Table:
    """Two runs on the same examples, in each test setting and split that both were tested in.

    Examples that share a scene count once in the test and are drawn together in the bootstrap; without the dataset,
    each example counts by itself, and a note says so. Raises `ValueError` for an unknown name, and for runs on
    different datasets.
    """
    by_name = {run.info["name"]: run for run in run_summaries(runs)}
    for name in (name_a, name_b):
        if name not in by_name:
            raise ValueError(f"{name}: no finished run has this name; choose from {', '.join(by_name)}")
    one, other = by_name[name_a], by_name[name_b]
    digest = one.info["dataset"]
    if digest is None or digest != other.info["dataset"]:
        raise ValueError(f"{name_a} and {name_b}: tested on different datasets; compare two runs on the same one")
    scenes = runs.examples(digest).set_index("id")["scene"] if digest in runs.datasets else None
    predictions = [read_predictions(runs.folder / name).to_pandas() for name in (name_a, name_b)]
    both = predictions[0].merge(predictions[1], on=["id", "split", "test_setting"], suffixes=("_a", "_b"))
    places = [(split, test) for split in SPLITS for test in TEST_SETTINGS if (test, split) in {*one.rows, *other.rows}]
    results: dict[tuple[str, str], PairedComparison] = {}
    for split, test in places:
        part = both[(both["split"] == split) & (both["test_setting"] == test)]
        if len(part):
            clusters = None if scenes is None else scenes.loc[part["id"]].to_numpy()
            answers, one_logits, other_logits = (part[name].to_numpy() for name in ("answer_a", "logit_a", "logit_b"))
            results[split, test] = paired(answers, one_logits, other_logits, clusters)
    adjusted = holm([result.p_value for result in results.values()])
    p_values, builder = dict(zip(results, adjusted, strict=True)), TableBuilder()
    for split, test in places:
        result, p_value = results.get((split, test)), p_values.get((split, test), math.nan)
        texts: list[Cell | str] = [BLANK] * 8
        record: dict[str, Any] = {"split": split, "test_setting": test}
        if result is not None:
            differs = p_value < LEVEL and not result.interval_low <= 0 <= result.interval_high
            texts = [
                f"{result.examples:,}",
                *map(score_text, (result.first, result.second)),
                f"{signed(result.difference)} [{signed(result.interval_low)}, {signed(result.interval_high)}]",
                *(f"{count:,}" for count in (result.first_only, result.second_only)),
                f"{p_value:.2g}",
                ("A" if result.difference > 0 else "B") if differs else "no difference shown",
            ]
            record |= vars(result) | {"differs": differs, "p_adjusted": p_value}
        builder.add([split, SHORT_SETTINGS[test], *texts])
        builder.data.append(record)
    heads = ("Split", "Tested in", "Examples", "A", "B", "A - B [95 %]", "A right", "B right", "p", "Higher")
    differences = map(settings_text, differing_settings([run.settings for run in (one, other)]))
    names = [
        f"{letter}: {run.info['name']}, {run.weights} weights" + f"; {settings}" * bool(settings)
        for letter, run, settings in zip("AB", (one, other), differences, strict=True)
    ]
    unit = "examples; the dataset was not found" if scenes is None else "scenes (all examples of a scene together)"
    notes = [
        *(f"{name}." for name in names),
        f"A, B, A - B: macro-F1 and its difference, with a paired bootstrap interval over {unit}.",
        "A right, B right: how many of these one run has more right of than the other. p: two-sided exact McNemar "
        f"test, Holm-adjusted for the {len(results)} rows. Higher: given if p < {LEVEL} and the interval is without 0.",
    ]
    title = f"{name_a} (A) and {name_b} (B) on the same examples"
    return builder.table("compare", title, [("", head) for head in heads], notes)
