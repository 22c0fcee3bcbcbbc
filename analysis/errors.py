"""Wrong answers of many runs: how many by pair and answer, and which examples to show of them.

Of a dataset all runs go through the examples in one random order, drawn from a seed, and each shows its first errors of
each test setting and split. So runs that err alike show the same examples, and an example that is shown tells of every
run that errs on it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from train.results.columns import TEST_SETTINGS, TEST_SPLITS
from travlr.browse import picture
from travlr.dataset import Dataset

RIGHT, UNTESTED = 0, 255
ERRORS_IN_ALL = 4800  # errors to show of all runs together, where no number is asked for, but of each run from
MIN_PER_RUN, MAX_PER_RUN = 24, 480


def run_errors(predictions: pd.DataFrame, examples: pd.DataFrame) -> np.ndarray:
    """The answers of one run to the N examples of both test splits: (3, N) uint8, by test setting. 0: right. 50 to 100:
    wrong, and so many percent sure. 255: not tested. All predictions, as `Runs.predictions` gives them, in the order of
    `Runs.examples`."""
    sure = np.full((len(TEST_SETTINGS), len(examples)), UNTESTED, np.uint8)
    starts = {TEST_SPLITS[0]: 0, TEST_SPLITS[1]: int((examples["split"] == TEST_SPLITS[0]).sum())}
    split = predictions["split"].map(starts).to_numpy(np.int64)
    test = predictions["test_setting"].map({name: n for n, name in enumerate(TEST_SETTINGS)}).to_numpy(np.int64)
    percent = np.rint(100 / (1 + np.exp(-np.abs(predictions["logit"].to_numpy(float))))).astype(np.uint8)
    sure[test, split + predictions["row"].to_numpy()] = np.where(predictions["right"], RIGHT, percent)
    return sure


def errors_per_run(runs: int) -> int:
    """How many errors to show of each of so many runs, if no number is asked for."""
    return int(np.clip(ERRORS_IN_ALL // max(runs, 1), MIN_PER_RUN, MAX_PER_RUN))


def first_errors(errors: Iterable[Sequence[np.ndarray]], size: int, limit: int, seed: int) -> np.ndarray:
    """A sample of so many examples, in a random order that all runs share: of each run `limit` errors, rounded up to as
    many of each of its kinds, or all that it has. errors: for each run and kind, (size,) whether it errs."""
    order, shown = np.random.default_rng(seed).permutation(size), np.zeros(size, bool)
    for kinds in errors:
        for wrong in kinds:
            here = order[wrong[order]]
            shown[here[: -(-limit // len(kinds))]] = True
    return order[shown[order]]


def dataset_errors(
    answers: Mapping[str, np.ndarray], examples: pd.DataFrame, dataset: Dataset, limit: int, seed: int
) -> dict[str, Any]:
    """What the page has of a dataset's errors. answers: of each run by its name, see `run_errors`. limit: errors shown
    of each run, rounded up to as many of each of its test settings and splits.

    cells: (split, pair, true answer, examples) of each kind of example. wrong: by the run's name, for each test setting
    the number of errors of each cell, None where it was not tested. examples: those shown, each with `errors`: name,
    test setting (its place), percent sure.
    """
    cells, place = _cells(examples)
    splits = examples["split"].astype(object).to_numpy()
    inside = [splits == split for split in TEST_SPLITS]
    kinds = [
        [here & _is_wrong(tested) for tested in sure for here in inside if (tested[here] != UNTESTED).any()]
        for sure in answers.values()
    ]
    rows = first_errors(kinds, len(splits), limit, seed)
    wrong = {name: [_by_cell(tested, place, len(cells)) for tested in sure] for name, sure in answers.items()}
    names, stack = list(answers), np.stack([sure[:, rows] for sure in answers.values()])  # (runs, 3, shown)
    shown = _shown(dataset, examples, rows)
    for number, (row, example) in enumerate(zip(rows, shown, strict=True)):
        replies = stack[:, :, number]
        found = np.argwhere(_is_wrong(replies)).tolist()
        example["cell"] = int(place[row])
        example["errors"] = [(names[run], test, int(replies[run, test])) for run, test in found]
    return {"cells": cells, "wrong": wrong, "examples": shown}


def _is_wrong(sure: np.ndarray) -> np.ndarray:
    return (sure != RIGHT) & (sure != UNTESTED)


def _cells(examples: pd.DataFrame) -> tuple[list[tuple[str, str, bool, int]], np.ndarray]:
    """The kinds of examples, in the order of pairs, and (N,) which of them each example is."""
    by = ["split", "kind", "x", "y", "pair", "answer"]
    grouped = examples.groupby(by, observed=True, sort=True, dropna=False)
    cells = [(str(key[0]), str(key[4]), bool(key[5]), int(count)) for key, count in grouped.size().items()]
    return cells, grouped.ngroup().to_numpy()


def _by_cell(sure: np.ndarray, place: np.ndarray, cells: int) -> list[int] | None:
    tested = (sure != UNTESTED).any()
    return np.bincount(place[_is_wrong(sure)], minlength=cells).tolist() if tested else None


def _shown(dataset: Dataset, examples: pd.DataFrame, rows: np.ndarray) -> list[dict[str, Any]]:
    """The examples as the page shows them, each with its picture. Raises `ValueError` for a damaged one."""
    found: dict[int, dict[str, Any]] = {}
    splits, places = examples["split"].astype(object).to_numpy(), examples["row"].to_numpy()
    for row in sorted(rows.tolist()):  # in the order of the files, each part of which is then read once
        example = dataset[splits[row]][int(places[row])]
        data, pixels = picture(example.image, example.id)
        found[row] = {
            "id": example.id,
            "picture": base64.b64encode(data).decode(),
            "pixels": pixels,
            "query": example.query,
            "caption": example.caption,
        }
    return [found[row] for row in rows.tolist()]


def count_errors(dataset_errors: Mapping[str, Any]) -> tuple[int, int]:
    """How many errors a dataset's page shows, and how many there are."""
    shown = sum(len(example["errors"]) for example in dataset_errors["examples"])
    return shown, sum(sum(of_test) for tests in dataset_errors["wrong"].values() for of_test in tests if of_test)
