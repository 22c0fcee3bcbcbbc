"""Results as text: settings, scores, and the table of one run.

Rows are as `train.results.store.read_results` returns them.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from train.results.columns import (
    BASELINES,
    TEST_SETTINGS,
    TEST_SPLITS,
    Row,
    main_test_setting,
)

WIDTH = 100  # of what is printed


# Settings ------------------------------------------------------------------------------------------------------------


def flat_settings(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A config by dotted names (`training.steps`), as the command line has them."""
    settings: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            settings |= flat_settings(value, f"{prefix}{name}.")
        else:
            settings[prefix + name] = json.dumps(value) if isinstance(value, list) else value
    return settings


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings as the command line takes them."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in settings.items())


def value_text(value: Any) -> str:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text[:12] if re.fullmatch("[0-9a-f]{41,}", text) else text  # a hash


# Tables --------------------------------------------------------------------------------------------------------------


def origin(row: Row) -> str:
    """What the weights started from, in words."""
    if row["weights"] is None:
        return "origin of its weights unknown"
    return "from random weights" if row["weights"] == "random" else f"from {row['weights']}"


def _measured(row: Row | None, name: str, interval: str, mark: str) -> str:
    """A score of a row with its interval; "" where it was not measured."""
    if row is None or row[name] is None:
        return ""
    low, high = row[f"{interval}_low"], row[f"{interval}_high"]
    ends = "" if low is None or high is None else f" [{score_text(low)}, {high:.2f}]"
    return f"{score_text(row[name])}{mark}{ends}"


def _marked_score(row: Row | None) -> str:
    mark = "" if row is None else "*" if row["above_random"] else " "
    return _measured(row, "macro_f1", "interval", mark)


def score_text(score: float) -> str:
    """Two digits; a score below 100 is not rounded up to 100.00."""
    return f"{math.floor(score * 100) / 100 if 99.995 <= score < 100 else score:.2f}"


def _fill(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)


def _number(value: float | None, unit: str, digits: int = 0) -> list[str]:
    return [] if value is None else [f"{value:,.{digits}f} {unit}"]


def _examples(row: Row) -> list[str]:
    """How many labelled and unlabelled examples a run was trained on."""
    pairs = _number(row["unlabelled_examples"] or None, "unlabelled pairs of image and caption")
    return [*_number(row["train_examples"], "labelled examples" if pairs else "training examples"), *pairs]


def transfer_table(rows: Sequence[Row]) -> str:
    """One run's scores in every test setting and split, at most 100 columns wide."""
    first = rows[0]
    main = main_test_setting(first["setting"] or "")
    by_test = {(row["test_setting"], row["split"]): row for row in rows}
    size = f" ({first['size']})" if first["size"] else ""
    run = f"{first['model']}{size} trained in {first['setting']} on {first['task']}, seed {first['seed']}"
    facts = [
        *_number(first["parameters"], "trainable parameters"),
        *_number(first["steps"], "steps"),
        *_examples(first),
        *_number(first["train_seconds"], "s of training", 1),
        *([first["precision"]] if first["precision"] else []),
        first["hardware"] or "unknown hardware",
    ]
    lines = [_fill(f"{run}, {origin(first)}"), _fill("; ".join(facts)), ""]
    lines.append(f"{'macro-F1 [95 %] tested in':<27}{'test_ind':<28}test_ood".rstrip())
    settings = [s for s in TEST_SETTINGS if any((s, split) in by_test for split in TEST_SPLITS)]
    lines += _setting_lines(by_test, settings, main, _marked_score)
    for name, words in BASELINES.items():
        cells = [f"{_baseline_text(rows, split, name):<28}" for split in TEST_SPLITS]
        lines.append(f"{'baseline: ' + words.replace(' and number of', ','):<27}{''.join(cells)}".rstrip())
    if any(row["couples_right"] is not None for row in rows):
        lines += ["", "both of a couple right, % [95 %]"]
        lines += _setting_lines(by_test, settings, main, lambda row: _measured(row, "couples_right", "couples", " "))
    lines += _group_lines(by_test, main)
    tests = sorted({row["test"] for row in rows if row["test"]})
    lines += ["", _fill(f"* above random: {' or '.join(tests) or 'test not recorded'}. Baselines: rules fitted on the "
                        f"training split; unbound: python -m travlr.baselines. A coin has 25 % of "
                        "couples.")]  # fmt: skip
    return "\n".join(lines)


def _setting_lines(
    by_test: Mapping[tuple[str, str], Row], settings: Iterable[str], main: str, text: Callable[[Row | None], str]
) -> list[str]:
    """A line for each test setting, with a text for each split."""
    lines = []
    for setting in settings:
        cells = "".join(f"{text(by_test.get((setting, split))):<28}" for split in TEST_SPLITS)
        lines.append(f"{setting + ' (own)' * (setting == main):<27}{cells}".rstrip())
    return lines


def _group_lines(by_test: Mapping[tuple[str, str], Row], setting: str) -> list[str]:
    """Scores by the pair's first item: an average hides that a model learned one axis and not the other."""
    lines = []
    for split in TEST_SPLITS:
        if (setting, split) in by_test and (groups := by_test[setting, split]["groups"]):
            parts = [f"{name} {score_text(part['macro_f1'])}" for name, part in json.loads(groups).items()]
            lines.append(_fill(f"{setting}, {split}, by the pair's first item: {', '.join(parts)}"))
    return ["", *lines] if lines else []


def _baseline_text(rows: Iterable[Row], split: str, name: str) -> str:
    """Macro-F1 of a baseline on a split, of each dataset of the rows."""
    values = {row[f"baseline_{name}"] for row in rows if row["split"] == split} - {None}
    return " / ".join(f"{value:.2f}" for value in sorted(values))
