"""An evaluation's results as text: what `evaluate.py` prints."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from train.results.answers import read_answers
from train.results.columns import Row
from train.results.scores import compare_settings
from travlr.config import Style
from travlr.metrics import LEVEL
from travlr.settings import count_text
from travlr.tasks import config_from_dict, is_task

WIDTH = 22  # of a column
OBJECTS = ("found", "missed", "invented", "misplaced", "miscoloured", "misshaped")


def _percent(value: float | None) -> str:
    """One digit; "" where there is no number, which pandas has as NaN."""
    return "" if value is None or math.isnan(value) else f"{value:.1f}"


def _with_interval(row: Row, name: str, low: str, high: str) -> str:
    return f"{_percent(row[name])} [{_percent(row[low])}, {_percent(row[high])}]" if _percent(row[name]) else ""


def object_shares(text: str) -> dict[str, float]:
    """The column `objects` of a result as percent of the objects in the scenes."""
    counts = json.loads(text)
    total = sum(count for name, count in counts.items() if name != "invented")
    return {name: 100 * counts.get(name, 0) / max(total, 1) for name in OBJECTS}


def _objects(name: str, row: Row) -> str:
    return f"{object_shares(row['objects'])[name]:.1f}" if row["objects"] else ""


LINES: dict[str, Callable[[Row], str]] = {
    "accuracy, %": lambda row: _percent(row["accuracy"]) + ("*" if row["above_random"] else ""),
    "macro-F1 [95 %]": lambda row: _with_interval(row, "macro_f1", "interval_low", "interval_high"),
    "both of a couple, %": lambda row: _percent(row["couples_right"]),
    "ranked right [95 %]": lambda row: _with_interval(row, "ranked", "ranked_low", "ranked_high"),
    "both ranked right, %": lambda row: _percent(row["both_ranked"]),
    "image score, %": lambda row: _percent(row["image_score"]),
    "group score, %": lambda row: _percent(row["group_score"]),
    "no answer, %": lambda row: _percent(row["unparsed"]),
    "bias": lambda row: f"{row['bias']:+.1f} {row['bias_answer']}" if isinstance(row["bias_answer"], str) else "",
    "calibrated, %": lambda row: _percent(row["calibrated_accuracy"]),
    "chance, %": lambda row: _percent(row["chance"]),
    "best unbound rule, %": lambda row: "" if row["accuracy"] is None else _percent(row["baseline_unbound_accuracy"]),
    **{f"objects {name}, %": partial(_objects, name) for name in OBJECTS},
}


def evaluation_table(folder: Path, rows: Sequence[Row]) -> str:
    """The scores of every setting and split, and how settings compare. folder: of the evaluation."""
    first = rows[0]
    splits = list(dict.fromkeys(str(row["split"]) for row in rows))
    settings = list(dict.fromkeys(str(row["test_setting"]) for row in rows))
    about = json.loads(first["config"]).get("corpus") or first["task"]
    lines = [f"{first['model']} on {about} ({how_asked(first)}), {first['origin']}"]
    lines += [first["hardware"]] if first["hardware"] else []
    for split in splits:
        of_split = {row["test_setting"]: row for row in rows if row["split"] == split}
        examples = next(iter(of_split.values()))["examples"]
        head = f"{split}, {count_text(examples, 'example')}"
        lines += ["", f"{head:<28}{''.join(f'{setting:<{WIDTH}}' for setting in settings)}".rstrip()]
        for name, text in LINES.items():
            cells = [text(of_split[setting]) for setting in settings]
            if any(cells):
                lines.append(f"{name:<28}{''.join(f'{cell:<{WIDTH}}' for cell in cells)}".rstrip())
    lines += _comparisons(folder, rows)
    tests = {row["test"] for row in rows if row["above_random"]}
    if tests:
        test = tests.pop() if len(tests) == 1 else f"exact binomial, accuracy > chance, p < {LEVEL}"
        lines += ["", f"* above chance: {test}."]
    return "\n".join(lines)


def how_asked(row: Mapping[str, Any]) -> str:
    """How a model was asked, such as `choice, reason`: generated answers and the styles of the task are left out."""
    style = config_from_dict({"task": row["task"]}).style if is_task(row["task"]) else Style()
    usual = {"answers": "generate", "image_style": style.image, "caption_style": style.caption}
    unusual = [row[name] for name in usual if isinstance(row[name], str) and row[name] != usual[name]]
    return ", ".join([row["form"], row["prompt"], *unusual])


def _comparisons(folder: Path, rows: Sequence[Row]) -> list[str]:
    """Gap and agreement of captions and images, if an evaluation has both."""
    answers = read_answers(folder)
    lines = []
    for row in rows:
        comparison = compare_settings(answers, row["split"], "caption", "image", row["examples"])
        if row["test_setting"] == "image" and comparison is not None:
            gap, same = comparison
            difference = f"{gap.difference:+.1f} points [{gap.low:+.1f}, {gap.high:+.1f}]"
            agreed = f"{same.percent:.1f} % (independent answers: {same.by_chance:.1f} %)"
            of = "" if gap.examples == row["examples"] else f", of {gap.examples:,} with both answers"
            lines += ["", f"{row['split']}: gap (caption minus image) {difference}; same answer {agreed}{of}"]
    return lines
