"""The predicate-noun study's accuracies, worked out apart from `analysis.probe.report.metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.probe.corpora.items import Answer
from analysis.probe.corpora.predicate_noun import Triplet, pairs_of


@dataclass(frozen=True)
class Accuracies:
    """Accuracies as parts of 1, None where nothing was scored.

    total = scored + missing + unreadable + failed, in triplets. ties: triplets with two equal scores, never right.
    single: triplets whose true sentence scores strictly above the false one. separate, strict: means of
    `result_separate` and `result_strict` (see `write_results`). pairs: number of pairs with both triplets scored. pair:
    pairs with both triplets right (the published metric); predicate, noun: the same, for pairs with the wrong predicate
    or noun. same: pairs in which the same sentence wins for both pictures, so that the text decided. decisive: pairs
    with both right among those with both right or both wrong; 0.5 without grounding, whatever the text.
    """

    total: int
    scored: int
    missing: int
    unreadable: int
    failed: int
    ties: int
    pairs: int
    single: float | None
    separate: float | None
    strict: float | None
    pair: float | None
    predicate: float | None
    noun: float | None
    same: float | None
    decisive: float | None


def accuracies(records: Sequence[Triplet], answers: Sequence[Answer]) -> Accuracies:
    """Accuracies of the answers to triplets. Raises `ValueError` unless there is one answer for each, in order."""
    if [str(record["id"]) for record in records] != [answer.id for answer in answers]:
        raise ValueError(f"triplets: {len(records)}, answers: {len(answers)}; needs an answer to each, in order")
    status = Counter(answer.status for answer in answers)
    scored = np.array([answer.status == "scored" for answer in answers], bool)
    values = [(*answer.positives, *answer.negatives) if ok else (0.0, 0.0) for answer, ok in zip(answers, scored)]  # noqa: B905
    target, distractor = np.array(values, float).reshape(-1, 2).T
    right, tie = target > distractor, target == distractor
    sides = np.stack((target >= 0.5, distractor < 0.5), axis=1)[scored]
    pairs = np.array(pairs_of(records), int).reshape(-1, 2)
    pairs = pairs[scored[pairs].all(axis=1)]
    both, none = right[pairs].all(axis=1), ~right[pairs].any(axis=1)
    predicate = np.array([records[first]["pos"] == "object" for first, _ in pairs], bool)
    return Accuracies(
        total=len(records),
        scored=status["scored"],
        missing=status["missing"],
        unreadable=status["unreadable"],
        failed=status["failed"],
        ties=int(tie[scored].sum()),
        pairs=len(pairs),
        single=_share(right[scored]),
        separate=_share(sides),
        strict=_share(sides.min(axis=1, initial=True)),
        pair=_share(both),
        predicate=_share(both[predicate]),
        noun=_share(both[~predicate]),
        same=_share(right[pairs].any(axis=1) & ~both & ~tie[pairs].any(axis=1)),
        decisive=_share(both[both | none]),
    )


def _share(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None
