"""Two runs on the same examples."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.frames import Runs
from analysis.tables.pivots import Table, format_signed
from travlr.metrics import LEVEL, compare, holm


def compare_runs(runs: Runs, name_a: str, name_b: str) -> Table:
    """Two runs on the same examples, in each test setting and split that both were tested in; examples that share a
    scene count once in the test and are drawn together in the bootstrap. Raises `ValueError` for an unknown name, and
    for runs without common examples."""
    for name in (name_a, name_b):
        if name not in set(runs.results["name"]):
            names = ", ".join(runs.results["name"].unique())
            raise ValueError(f"{name}: no finished run has this name; choose from {names}")
    place = ["split", "test_setting", "id"]
    one, other = (runs.predictions(name=name).astype(dict.fromkeys(place, str)) for name in (name_a, name_b))
    both = one.merge(other[[*place, "prediction"]], on=place, suffixes=("_a", "_b"))
    if not len(both):
        raise ValueError(f"{name_a} and {name_b}: no common examples; compare runs on the same dataset")
    rows = []
    for (split, test), part in both.groupby(place[:2], sort=False):
        first, second, answers, scenes = (part[one] for one in ("prediction_a", "prediction_b", "answer", "scene"))
        rows.append({"split": split, "test_setting": test, **vars(compare(first, second, answers, scenes))})
    data = pd.DataFrame(rows)
    data["p_adjusted"] = holm(data["p_value"])
    sure = (data["p_adjusted"] < LEVEL) & ((data["low"] > 0) | (data["high"] < 0))
    higher = np.where(sure, np.where(data["difference"] > 0, "A", "B"), "no difference shown")
    columns = {
        "Examples": data["examples"].map("{:,}".format),
        **{letter: data[name].map("{:.2f}".format) for letter, name in (("A", "first"), ("B", "second"))},
        "A - B [95 %]": [
            f"{format_signed(d)} [{format_signed(low)}, {format_signed(high)}]"
            for d, low, high in data[["difference", "low", "high"]].to_numpy()
        ],
        "A right": data["first_only"].astype(str),
        "B right": data["second_only"].astype(str),
        "p": data["p_adjusted"].map("{:.2g}".format),
        "Higher": higher,
    }
    lines = pd.MultiIndex.from_frame(data[["split", "test_setting"]], names=["Split", "Tested in"])
    frame = pd.DataFrame(columns).set_index(lines)
    notes = (
        f"A: {name_a}. B: {name_b}. A, B, A - B: macro-F1 and its difference, with a bootstrap interval over scenes.",
        "A right, B right: how many scenes one run has more right of than the other. p: two-sided exact McNemar test, "
        f"Holm-adjusted for the {len(data)} rows. Higher: given if p < {LEVEL} and the interval is without 0.",
    )
    title = f"{name_a} (A) and {name_b} (B) on the same examples"
    return Table("compare", title, frame, data, frame.map(lambda _: ""), notes)
