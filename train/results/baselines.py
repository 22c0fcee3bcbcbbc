"""Baselines: rules that answer from the query's text, fitted on the training split, without seeing the scene."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from travlr.metrics import f1_scores
from travlr.scene import COLOURS, SHAPES


@dataclass(frozen=True)
class QueryTexts:
    """What a baseline sees of N examples. objects: (N,) how many objects each scene has; answers: (N,) bool."""

    queries: Sequence[str]
    answers: np.ndarray
    objects: np.ndarray


@dataclass(frozen=True)
class BaselineScore:
    """Scores of a rule, percent. Where the rule tosses a coin, half an example counts for either answer."""

    macro_f1: float
    accuracy: float


_NUMBER = re.compile(r"\d+")
_ATTRIBUTE = re.compile(rf"\b(?:{'|'.join((*COLOURS, *SHAPES))})s?\b")


def text_baselines(train: QueryTexts, test: QueryTexts) -> dict[str, BaselineScore]:
    """The baselines `query` and `query_objects`, fitted on `train` and applied to `test`.

    Each answers as the majority of training examples with the same query text (and number of objects). Where that
    majority is within one standard error of a tie, as for every unseen text, it uses the text with colours and shapes
    masked, then with numbers masked, then with both, then all examples, and at last a fair coin. `query_objects` tries
    all of these with the number of objects before any without.
    """
    levels = _masked([*train.queries, *test.queries])
    numbers, place = np.unique(np.concatenate([train.objects, test.objects]), return_inverse=True)
    with_objects = [codes * len(numbers) + place for codes in levels]
    answers = np.asarray(train.answers, bool)
    votes = {"query": _votes(levels, answers), "query_objects": _votes([*with_objects, *levels], answers)}
    return {name: _baseline(np.asarray(test.answers, bool), vote) for name, vote in votes.items()}


def _masked(queries: Sequence[str]) -> list[np.ndarray]:
    """Codes (N,) of each text: as it is, and with more and more of it masked."""
    numbers: dict[str, int] = {}
    codes = np.array([numbers.setdefault(query, len(numbers)) for query in queries], np.int64)
    levels = [codes]
    for mask_attributes, mask_numbers in ((True, False), (False, True), (True, True)):
        masked: dict[str, int] = {}
        of_text = []
        for text in numbers:
            text = _ATTRIBUTE.sub("*", text) if mask_attributes else text
            text = _NUMBER.sub("0", text) if mask_numbers else text
            of_text.append(masked.setdefault(text, len(masked)))
        levels.append(np.array(of_text, np.int64)[codes])
    return [*levels, np.zeros_like(codes)]


def _votes(levels: list[np.ndarray], answers: np.ndarray) -> np.ndarray:
    """The answer of the first level with a clear majority, for each test example: 1, 0, or 0.5 for a coin.

    levels: codes of the training and then the test examples. answers: of the training examples.
    """
    train = len(answers)
    votes = np.full(len(levels[0]) - train, 0.5)
    for codes in reversed(levels):
        size = int(codes.max()) + 1
        count = np.bincount(codes[:train], minlength=size)
        lead = 2 * np.bincount(codes[:train][answers], minlength=size) - count  # a coin's standard error: sqrt(count)
        test = codes[train:]
        votes = np.where((lead**2 > count)[test], lead[test] > 0, votes)
    return votes


def _baseline(answers: np.ndarray, votes: np.ndarray) -> BaselineScore:
    given = np.stack([votes, 1 - votes], axis=1)  # (N, 2): true, false
    right = np.stack([answers, ~answers], axis=1)
    counts = np.stack([given * right, right, given], axis=1).sum(axis=0)  # (3, 2)
    return BaselineScore(100 * float(f1_scores(counts).mean()), 100 * float(counts[0].sum()) / len(answers))
