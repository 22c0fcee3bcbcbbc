"""Results as text: the settings in which runs differ, the table of one run, and the grid of several (Table 2).

Rows are as `train.results.store.read_results` returns them.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from train.config import SETTINGS
from train.results.columns import (
    BASELINES,
    TEST_SETTINGS,
    TEST_SPLITS,
    Row,
    averaged_runs,
    has_converged,
    in_order,
    main_test_setting,
)
from train.results.store import canonical

WIDTH, LABEL = 100, 40  # of what is printed, and of the first column of a grid


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


def differing_settings(configs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The settings of each flat config whose values are not the same in all of them."""
    names = sorted({name for config in configs for name in config})
    differing = [name for name in names if len({json.dumps(config.get(name)) for config in configs}) > 1]
    return [{name: config.get(name) for name in differing} for config in configs]


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


def grid_table(rows: Sequence[Row]) -> str:
    """Several runs in the form of the paper's Table 2, at most 100 columns wide.

    A cell is mean macro-F1 on test_ood (difference from test_ind), over the converged seeds or, where none has
    converged, over all; seeds are runs whose configs differ in nothing else. It is empty where no run was tested, and
    has an asterisk where every run averaged is above random.
    """
    runs: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        runs[row["run"]].append(row)
    groups = _seed_groups(list(runs.values()))
    notes = _notes(groups)
    legend = list(dict.fromkeys(notes))
    lines = []
    for setting in in_order((run[0]["setting"] or "" for run in runs.values()), SETTINGS):
        head = "".join(f"{name:<17}" for name in TEST_SETTINGS)
        lines += [f"trained in {setting or 'an unknown setting'}, tested in", f"{'':<{LABEL}}{head}converged"]
        for (_, group), note in zip(groups, notes, strict=True):
            if (group[0][0]["setting"] or "") == setting:
                lines.append(_grid_row(group, legend.index(note) + 1))
        lines.append("")
    explanation = (
        "Mean macro-F1 on test_ood (difference from test_ind) of the converged runs, or of all where none has "
        "converged. Converged: how many runs are above random on test_ind in their own setting (image+caption for "
        "mixed). * every run averaged is above random."
    )
    lines.append(_fill(explanation))
    lines += [_fill(f"[{number}] {note}") for number, note in enumerate(legend, 1)]
    return "\n".join([*lines, *_grid_baselines(rows)])


Run = list[Row]


def _seed_groups(runs: Sequence[Run]) -> list[tuple[dict[str, Any], list[Run]]]:
    """Runs that differ in their seed alone, with the settings that they share; by task, model and size."""
    configs = [json.loads(run[0]["config"]) if run[0]["config"] else {"run": run[0]["run"]} for run in runs]
    groups: dict[str, tuple[dict[str, Any], list[Run]]] = {}
    for run, settings in zip(runs, map(flat_settings, configs), strict=True):
        settings.pop("seed", None)
        groups.setdefault(canonical(settings), (settings, []))[1].append(run)
    return [group for _, group in sorted(groups.items(), key=lambda item: _grid_order(item[0], item[1][1][0][0]))]


def _grid_order(settings: str, row: Row) -> tuple[str, ...]:
    return *(str(row[name]) for name in ("task", "model", "size")), settings


def _notes(groups: Sequence[tuple[dict[str, Any], list[Run]]]) -> list[str]:
    """The note of each row of the grid. Rows that would look alike have the settings in which they differ in it."""
    notes: list[str] = []
    alike: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, (_, runs) in enumerate(groups):
        row = runs[0][0]
        hardware = " or ".join(sorted({run[0]["hardware"] or "unknown hardware" for run in runs}))
        experiment = [f"experiment {row['experiment']}"] if row["experiment"] else []
        notes.append("; ".join([origin(row), *experiment, *_number(row["steps"], "steps"), *_examples(row), hardware]))
        alike[*(str(row[name]) for name in ("task", "model", "size", "setting")), notes[-1]].append(number)
    for numbers in alike.values():
        differing = differing_settings([groups[number][0] for number in numbers])
        for number, settings in zip(numbers, differing, strict=True):
            notes[number] += f"; {settings_text(settings)}" if settings else ""
    return notes


def _grid_row(group: list[Run], note: int) -> str:
    averaged, by_place = averaged_runs(group, has_converged), defaultdict[tuple[str, str], list[Row]](list)
    for row in (row for run in averaged for row in run):
        by_place[row["test_setting"], row["split"]].append(row)
    means = (
        _mean_text(by_place[name, "test_ood"], by_place[name, "test_ind"], len(averaged)) for name in TEST_SETTINGS
    )
    first = group[0][0]
    words = [str(first["task"]), str(first["model"]), first["size"] or "", f"[{note}]"]
    label = "".join(f"{word:<{width}}" for word, width in zip(words, (12, 13, 7, 7), strict=True))
    too_long = len(label) >= LABEL
    label = f"{' '.join(words)}\n{'':<{LABEL}}" if too_long else f"{label:<{LABEL}}"
    return f"{label}{''.join(f'{mean:<17}' for mean in means)}{sum(map(has_converged, group))} of {len(group)}"


def _mean_text(out: Sequence[Row], within: Sequence[Row], runs: int) -> str:
    """The mean over so many runs on test_ood (difference from test_ind): empty where one was not tested on test_ood;
    without the difference where one was not tested on test_ind."""
    if len(out) < runs:
        return ""
    mean = statistics.fmean(row["macro_f1"] for row in out)
    mark = "*" if all(row["above_random"] for row in out) else " "
    if len(within) < runs:
        return f"{score_text(mean)}{mark}"
    change = round(mean - statistics.fmean(row["macro_f1"] for row in within), 2) + 0.0  # never -0.00
    return f"{score_text(mean)}{mark}({change:+.2f})"


def _grid_baselines(rows: Sequence[Row]) -> list[str]:
    texts = []
    for task in sorted({row["task"] or "" for row in rows}):
        of_task = [row for row in rows if (row["task"] or "") == task]
        scores = [_baseline_text(of_task, "test_ood", name) for name in BASELINES]
        if all(scores):
            texts.append(f"{task} {' and '.join(scores)}")
    return [_fill(f"Baselines on test_ood ({'; '.join(BASELINES.values())}): {'; '.join(texts)}.")] if texts else []
