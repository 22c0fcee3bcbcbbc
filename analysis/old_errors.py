"""Wrong answers of many runs for the page, until it has the one viewer.

The examples of a dataset have one random order for all runs, drawn from a seed, and each run contributes its first
errors of each test setting and split. So runs with similar errors share examples, and each example lists all runs that
answered it wrongly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from train.results.columns import TEST_SETTINGS, TEST_SPLITS
from travlr.dataset import Dataset
from travlr.generate import renderer_of
from travlr.tasks import config_from_dict
from travlr.viewer import embed_picture, read_grid

RIGHT, UNTESTED = 0, 255
ERRORS_IN_ALL = 4800  # errors to show of all runs together, by default
MIN_PER_RUN, MAX_PER_RUN = 24, 480  # limits of the errors of each run, by default


def run_errors(predictions: pd.DataFrame, examples: pd.DataFrame) -> np.ndarray:
    """The answers of one run to the N examples of both test splits: (3, N) uint8, by test setting. 0: right; 50 to 100:
    wrong, with this confidence in percent; 255: not tested. predictions: all of the run, from `Runs.predictions`.
    examples: from `Runs.examples`, in whose order the answers are."""
    sure = np.full((len(TEST_SETTINGS), len(examples)), UNTESTED, np.uint8)
    starts = {TEST_SPLITS[0]: 0, TEST_SPLITS[1]: int((examples["split"] == TEST_SPLITS[0]).sum())}
    split = predictions["split"].map(starts).to_numpy(np.int64)
    test = predictions["test_setting"].map({name: n for n, name in enumerate(TEST_SETTINGS)}).to_numpy(np.int64)
    percent = np.rint(100 / (1 + np.exp(-np.abs(predictions["logit"].to_numpy(float))))).astype(np.uint8)
    sure[test, split + predictions["row"].to_numpy()] = np.where(predictions["right"], RIGHT, percent)
    return sure


def errors_per_run(runs: int) -> int:
    """The default number of errors to show of each of so many runs."""
    return min(max(ERRORS_IN_ALL // max(runs, 1), MIN_PER_RUN), MAX_PER_RUN)


def first_errors(errors: Iterable[Sequence[np.ndarray]], size: int, limit: int, seed: int) -> np.ndarray:
    """Indices of the examples to show, of `size` examples, in a random order that all runs share: of each run `limit`
    errors, the same number (rounded up) of each of its kinds, or all that it has. errors: for each run and kind,
    (size,) bool, whether the run is wrong."""
    order, sampled = np.random.default_rng(seed).permutation(size), np.zeros(size, bool)
    for kinds in errors:
        for wrong in kinds:
            places = order[wrong[order]]
            sampled[places[: -(-limit // len(kinds))]] = True
    return order[sampled[order]]


def dataset_errors(
    answers: Mapping[str, np.ndarray], examples: pd.DataFrame, dataset: Dataset, limit: int, seed: int
) -> dict[str, Any]:
    """The errors on a dataset, for the page. answers: by the name of the run, see `run_errors`. limit: errors shown of
    each run, the same number (rounded up) of each of its test settings and splits.

    Returns `cells`: (split, pair, true answer, number of examples) of each kind of example; `wrong`: by the name of the
    run, for each test setting the number of errors of each cell, None where it was not tested; `examples`: those to
    show, each with `errors`: a flat list of (index of the run in `answers`, index of the test setting, confidence in
    percent).
    """
    cells, place = _cells(examples)
    splits = examples["split"].astype(object).to_numpy()
    inside = [splits == split for split in TEST_SPLITS]
    kinds = [
        [part & _is_wrong(tested) for tested in sure for part in inside if (tested[part] != UNTESTED).any()]
        for sure in answers.values()
    ]
    rows = first_errors(kinds, len(splits), limit, seed)
    wrong = {name: [_by_cell(tested, place, len(cells)) for tested in sure] for name, sure in answers.items()}
    stack = np.stack([sure[:, rows] for sure in answers.values()])  # (runs, 3, shown)
    entries = _entries(dataset, examples, rows)
    for number, (row, entry) in enumerate(zip(rows, entries, strict=True)):
        errors = np.nonzero(_is_wrong(stack[:, :, number]))
        entry["cell"] = int(place[row])
        entry["errors"] = np.stack([*errors, stack[*errors, number]], axis=1).ravel().tolist()
    return {"cells": cells, "wrong": wrong, "examples": entries}


def _is_wrong(sure: np.ndarray) -> np.ndarray:
    return (sure != RIGHT) & (sure != UNTESTED)


def _cells(examples: pd.DataFrame) -> tuple[list[tuple[str, str, bool, int]], np.ndarray]:
    """The kinds of examples, in the order of pairs, and (N,) the index of each example's kind."""
    by = ["split", "kind", "x", "y", "pair", "answer"]
    grouped = examples.groupby(by, observed=True, sort=True, dropna=False)
    cells = [(str(key[0]), str(key[4]), bool(key[5]), int(count)) for key, count in grouped.size().items()]
    return cells, grouped.ngroup().to_numpy()


def _by_cell(sure: np.ndarray, place: np.ndarray, cells: int) -> list[int] | None:
    tested = (sure != UNTESTED).any()
    return np.bincount(place[_is_wrong(sure)], minlength=cells).tolist() if tested else None


def _entries(dataset: Dataset, examples: pd.DataFrame, rows: np.ndarray) -> list[dict[str, Any]]:
    """The examples to show, each with its picture. Raises `ValueError` for a damaged one."""
    entries: dict[int, dict[str, Any]] = {}
    splits, places = examples["split"].astype(object).to_numpy(), examples["row"].to_numpy()
    settings = dataset.manifest.get("config") or {}
    config = config_from_dict(settings) if settings else None
    left, top, right, bottom = renderer_of(config).area if config else (0, 0, 1, 1)
    for row in sorted(rows.tolist()):  # in the order of the files, so that each part is read once
        example = dataset[splits[row]][int(places[row])]
        picture, pixels = embed_picture(example.image, example.id)
        queried, grid = [one for one in example.scene if one.queried], read_grid(example.caption, config)
        wide, high = ((right - left) / grid[0], (bottom - top) / grid[1]) if grid else (0.0, 0.0)
        entries[row] = {
            "id": example.id,
            "picture": picture.partition(",")[2],
            "pixels": pixels,
            "query": example.query,
            "caption": example.caption,
            # Left, top, width and height of the cell of each queried object, as fractions of the picture.
            "queried": [[left + o.column * wide, top + o.row * high, wide, high] for o in queried if grid],
        }
    return [entries[row] for row in rows.tolist()]


def count_errors(dataset_errors: Mapping[str, Any]) -> tuple[int, int]:
    """The number of errors on a dataset that the page shows, and of all."""
    on_page = sum(len(example["errors"]) // 3 for example in dataset_errors["examples"])
    return on_page, sum(sum(of_test) for tests in dataset_errors["wrong"].values() for of_test in tests if of_test)
