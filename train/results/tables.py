"""Results as a person reads them: the table of one run, and the grid of many in the form of the paper's Table 2.

Rows are those that `train.results.store` reads back.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from train.results.store import TEST_SETTINGS, TEST_SPLITS, Row, canonical, has_converged, main_test_setting

WIDTH, LABEL = 100, 40  # of what is printed, and of the first column of a grid


# What runs differ in -------------------------------------------------------------------------------------------------


def flat_settings(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A config by dotted names (`training.steps`), as the command line has them."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            found |= flat_settings(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = json.dumps(value) if isinstance(value, list) else value
    return found


def differing_settings(configs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each of several flat configs, the settings in which not all are alike."""
    names = sorted({name for config in configs for name in config})
    apart = [name for name in names if len({json.dumps(config.get(name)) for config in configs}) > 1]
    return [{name: config.get(name) for name in apart} for config in configs]


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings as a person would type them."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in settings.items())


def value_text(value: Any) -> str:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text[:12] if re.fullmatch("[0-9a-f]{41,}", text) else text  # a hash


# Tables --------------------------------------------------------------------------------------------------------------


def origin(row: Row) -> str:
    """Where the weights were from, in words."""
    if row["weights"] is None:
        return "origin of its weights unknown"
    return "from random weights" if row["weights"] == "random" else f"from {row['weights']}"


def _scored(row: Row | None) -> str:
    if row is None:
        return ""
    low, high = (row[name] for name in ("interval_low", "interval_high"))
    interval = "" if low is None or high is None else f" [{_two_digits(low)}, {high:.2f}]"
    mark = "!" if row["possible"] is False else "*" if row["above_random"] else " "
    return f"{_two_digits(row['macro_f1'])}{mark}{interval}"


def _two_digits(score: float) -> str:
    """Two digits; what is below 100 does not read 100.00."""
    return f"{math.floor(score * 100) / 100 if 99.995 <= score < 100 else score:.2f}"


def _fill(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)


def _number(value: float | None, unit: str, digits: int = 0) -> list[str]:
    return [] if value is None else [f"{value:,.{digits}f} {unit}"]


def _examples(row: Row) -> list[str]:
    """What was learned from: with answers, and, where there were any, without."""
    pairs = _number(row["unlabelled_examples"] or None, "unlabelled pairs of image and caption")
    return [*_number(row["train_examples"], "labelled examples" if pairs else "training examples"), *pairs]


def _impossible(rows: Iterable[Row]) -> str:
    """What the mark ! says, where a score has one."""
    if all(row["possible"] is not False for row in rows):
        return ""
    return " ! nothing that the model is shown tells the answer: its regions hold no places (regions.context=none)."


def transfer_table(rows: Sequence[Row]) -> str:
    """One run's scores in every test setting and split, at most 100 columns wide."""
    if len({row["run"] for row in rows}) != 1:
        raise ValueError(f"rows of {len({row['run'] for row in rows})} runs: this table is of one")
    first = rows[0]
    named = {(row["test_setting"], row["split"]): row for row in rows}
    sized = f" ({first['size']})" if first["size"] else ""
    trained = f"{first['model']}{sized} trained in {first['setting']} on {first['task']}, seed {first['seed']}"
    facts = [
        *_number(first["parameters"], "trainable parameters"),
        *_number(first["steps"], "steps"),
        *_examples(first),
        *_number(first["train_seconds"], "s of training", 1),
        *([first["precision"]] if first["precision"] else []),
        first["hardware"] or "unknown hardware",
    ]
    lines = [_fill(f"{trained}, {origin(first)}"), _fill("; ".join(facts)), ""]
    lines.append(f"{'macro-F1 [95 %] tested in':<27}{'test_ind':<28}test_ood".rstrip())
    for setting in (s for s in TEST_SETTINGS if any((s, split) in named for split in TEST_SPLITS)):
        own = " (own)" if setting == main_test_setting(first["setting"] or "") else ""
        cells = [f"{_scored(named.get((setting, split))):<28}" for split in TEST_SPLITS]
        lines.append(f"{setting + own:<27}{''.join(cells)}".rstrip())
    for label, column in (("floor: query alone", "floor_query"), ("  and number of objects", "floor_query_objects")):
        cells = [f"{_floor_of(rows, split, column):<28}" for split in TEST_SPLITS]
        lines.append(f"{label:<27}{''.join(cells)}".rstrip())
    lines += _group_lines(named, main_test_setting(first["setting"] or ""))
    tests = sorted({row["test"] for row in rows if row["test"]})
    lines += ["", _fill(f"* above random: {' or '.join(tests) or 'test not recorded'}. Floors: what a rule reaches "
                        f"that sees text only, fitted on the training split.{_impossible(rows)}")]  # fmt: skip
    return "\n".join(lines)


def _group_lines(named: Mapping[tuple[str, str], Row], own: str) -> list[str]:
    """Scores by the pair's first item, for an average hides a model that learned one axis and not the other."""
    lines = []
    for split in TEST_SPLITS:
        if (own, split) in named and (groups := named[own, split]["groups"]):
            parts = [f"{name} {_two_digits(part['macro_f1'])}" for name, part in json.loads(groups).items()]
            lines.append(_fill(f"{own}, {split}, by the pair's first item: {', '.join(parts)}"))
    return ["", *lines] if lines else []


def _floor_of(rows: Iterable[Row], split: str, column: str) -> str:
    found = {row[column] for row in rows if row["split"] == split and row[column] is not None}
    return " / ".join(f"{value:.2f}" for value in sorted(found))


def grid_table(rows: Sequence[Row]) -> str:
    """Several runs in the form of the paper's Table 2, at most 100 columns wide.

    A cell is mean macro-F1 on test_ood (difference from test_ind), over the converged seeds or, where none has
    converged, over all; runs are seeds of one another where their configs differ in nothing else. Empty where no run
    was tested. An asterisk where every run averaged is above random.
    """
    runs: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        runs[row["run"]].append(row)
    seeds: dict[str, list[list[Row]]] = defaultdict(list)
    for of_run in runs.values():
        seeds[_but_seed(of_run[0])].append(of_run)
    kinds = sorted(seeds.items(), key=lambda item: tuple(str(item[1][0][0][k]) for k in ("task", "model", "size")))
    lines, notes = [], [note for note, _ in _notes(kinds)]
    legend = list(dict.fromkeys(notes))
    for setting in sorted({run[0]["setting"] or "" for run in runs.values()}, key=_setting_order):
        head = "".join(f"{name:<17}" for name in TEST_SETTINGS)
        lines += [f"trained in {setting or 'an unknown setting'}, tested in", f"{'':<{LABEL}}{head}converged"]
        for (_, group), note in zip(kinds, notes, strict=True):
            if (group[0][0]["setting"] or "") == setting:
                lines.append(_grid_row(group, legend.index(note) + 1))
        lines.append("")
    told = (
        "Mean macro-F1 on test_ood (difference from test_ind) of the converged runs, or of all where none has "
        "converged. Converged: of how many runs the own setting (image+caption for mixed) is above random on test_ind. "
        f"* every run averaged is above random.{_impossible(rows)}"
    )
    lines.append(_fill(told))
    lines += [_fill(f"[{number}] {note}") for number, note in enumerate(legend, 1)]
    return "\n".join([*lines, *_grid_floors(rows)])


def _but_seed(row: Row) -> str:
    if row["config"] is None:
        return canonical({"run": row["run"]})
    return canonical({key: value for key, value in json.loads(row["config"]).items() if key != "seed"})


def _setting_order(setting: str) -> tuple[int, str]:
    known = (*TEST_SETTINGS, "mixed")
    return known.index(setting) if setting in known else len(known), setting


def _notes(kinds: Sequence[tuple[str, list[list[Row]]]]) -> Iterator[tuple[str, str]]:
    """What a row of the grid must say beside its label; of rows that would look alike, what they differ in too."""
    alike: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    said = []
    for key, group in kinds:
        row = group[0][0]
        where = " or ".join(sorted({run[0]["hardware"] or "unknown hardware" for run in group}))
        experiment = [f"experiment {row['experiment']}"] if row["experiment"] else []
        note = "; ".join([origin(row), *experiment, *_number(row["steps"], "steps"),
                          *_examples(row), where])  # fmt: skip
        look = (*(row[name] for name in ("task", "model", "size", "setting")), note)
        alike[look].append(key)
        said.append((key, note, look))
    for key, note, look in said:
        apart = differing_settings([flat_settings(json.loads(other)) for other in alike[look]])
        settings = settings_text(apart[alike[look].index(key)])
        yield f"{note}; {settings}" if settings else note, key


def _grid_row(group: list[list[Row]], note: int) -> str:
    converged = [run for run in group if has_converged(run)]
    cells = []
    for setting in TEST_SETTINGS:
        scores = {split: [_find(run, setting, split) for run in converged or group] for split in TEST_SPLITS}
        cells.append(f"{_mean_cell(scores):<17}")
    first = group[0][0]
    words = [str(first["task"]), str(first["model"]), first["size"] or "", f"[{note}]"]
    label = "".join(f"{word:<{width}}" for word, width in zip(words, (12, 13, 7, 7), strict=True))
    fits = len(label) < LABEL  # else it has a line of its own
    label = f"{label:<{LABEL}}" if fits else f"{' '.join(words)}\n{'':<{LABEL}}"
    return f"{label}{''.join(cells)}{len(converged)} of {len(group)}"


def _find(run: Iterable[Row], setting: str, split: str) -> Row | None:
    return next((row for row in run if (row["test_setting"], row["split"]) == (setting, split)), None)


def _mean_cell(scores: dict[str, list[Row | None]]) -> str:
    """Empty where a run that should be averaged was not tested on test_ood; no difference where not on test_ind."""
    out = [row for row in scores["test_ood"] if row is not None]
    if not out or len(out) < len(scores["test_ood"]):
        return ""
    mean = statistics.fmean(row["macro_f1"] for row in out)
    within = [row for row in scores["test_ind"] if row is not None]
    impossible = any(row["possible"] is False for row in out)
    mark = "!" if impossible else "*" if all(row["above_random"] for row in out) else " "
    if len(within) < len(out):
        return f"{_two_digits(mean)}{mark}"
    change = round(mean - statistics.fmean(row["macro_f1"] for row in within), 2) + 0.0  # never -0.00
    return f"{_two_digits(mean)}{mark}({change:+.2f})"


def _grid_floors(rows: Sequence[Row]) -> list[str]:
    said = []
    for task in sorted({row["task"] or "" for row in rows}):
        here = [row for row in rows if (row["task"] or "") == task]
        pair = [_floor_of(here, "test_ood", column) for column in ("floor_query", "floor_query_objects")]
        if all(pair):
            said.append(f"{task} {pair[0]} and {pair[1]}")
    return [_fill(f"Text alone reaches on test_ood (query; query and number of objects): {'; '.join(said)}.")] * bool(
        said
    )
