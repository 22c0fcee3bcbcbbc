"""Items and answers as arrays: right, wrong or tied items, and clusters of dependent ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.probe.corpora.items import Answer, Item
from analysis.probe.report.intervals import clusters_of

# Relative change of a score with the batch size: the rounding of sums, or of the score itself.
TOLERANCES = {"float32": 1e-5, "float64": 1e-10, "bf16": 2**-8, "float16": 2**-11}


def compared_scores(answer: Answer, sentences: str) -> tuple[float, float]:
    """The scores that are compared for an item: one of its true sentences, and one of its false ones."""
    positives, negatives = answer.positives, answer.negatives
    if sentences == "first":
        return positives[0], negatives[0]
    if sentences == "mean":
        return sum(positives) / len(positives), sum(negatives) / len(negatives)
    return (min(positives) if sentences == "all" else max(positives)), max(negatives)


@dataclass(frozen=True)
class Outcomes:
    """Items and answers as arrays, all (N,). right, tie: False for items that were not scored. clusters: of
    dependent items. partner: index of an item's partner, -1 without one. statuses: as `Answer.status`.
    itm: (N, 4), see `itm_counts`; None without a threshold. compared: (N, 2), see `compared_scores`."""

    items: Sequence[Item]
    statuses: np.ndarray
    right: np.ndarray
    tie: np.ndarray
    published: np.ndarray
    clusters: np.ndarray
    partner: np.ndarray
    itm: np.ndarray | None
    compared: np.ndarray
    seed: int

    @property
    def scored(self) -> np.ndarray:
        return self.statuses == "scored"


def outcomes(
    items: Sequence[Item],
    answers: Sequence[Answer],
    sentences: str = "mean",
    tolerance: float = TOLERANCES["float32"],
    threshold: float | None = None,
    seed: int = 0,
) -> Outcomes:
    """Items as right, wrong or tied. sentences: see `analysis.probe.config`.

    tolerance: two scores tie if they differ by no more than this part of the larger one (of 1 if both are smaller).
    Raises `ValueError` unless there is one answer for each item, in order.
    """
    if [item.id for item in items] != [answer.id for answer in answers]:
        raise ValueError("answers: do not match the items; give one for each item, in order")
    statuses = np.array([answer.status for answer in answers], object)
    scored = statuses == "scored"
    compared, first = np.zeros((len(items), 2)), np.zeros((len(items), 2))
    for n in np.flatnonzero(scored).tolist():
        compared[n] = compared_scores(answers[n], sentences)
        first[n] = compared_scores(answers[n], "first")
    margin, largest = compared[:, 0] - compared[:, 1], np.maximum(1.0, np.abs(compared).max(axis=1))
    tie = scored & (np.abs(margin) <= tolerance * largest)
    return Outcomes(
        items=items,
        statuses=statuses,
        right=scored & (margin > 0) & ~tie,
        tie=tie,
        published=scored & (first[:, 0] > first[:, 1]),
        clusters=clusters_of(items),
        partner=_partners(items),
        itm=None if threshold is None else itm_counts(answers, threshold),
        compared=compared,
        seed=seed,
    )


def itm_counts(answers: Sequence[Answer], threshold: float) -> np.ndarray:
    """(N, 4): of each answer, the true sentences above the threshold and not, and the false ones above it and not."""
    counts = np.zeros((len(answers), 4), np.int64)
    for n, answer in enumerate(answers):
        true = sum(score > threshold for score in answer.positives)
        false = sum(score > threshold for score in answer.negatives)
        counts[n] = true, len(answer.positives) - true, false, len(answer.negatives) - false
    return counts


def _partners(items: Sequence[Item]) -> np.ndarray:
    """(N,) index of the other item of a pair; -1 unless there is exactly one."""
    pairs: dict[str, list[int]] = {}
    for n, item in enumerate(items):
        if item.pair:
            pairs.setdefault(item.pair, []).append(n)
    partner = np.full(len(items), -1)
    for places in pairs.values():
        if len(places) == 2:
            partner[places] = places[::-1]
    return partner
