"""The predicate-noun study's accuracies, worked out apart from `analysis.probe.report.metrics`."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.probe.corpora.items import Answer
from analysis.probe.corpora.predicate_noun import Triplet


def accuracies(records: Sequence[Triplet], answers: Sequence[Answer]) -> dict[str, float | None]:
    """The study's rules, triplet by triplet, as parts of 1, for pairs of two triplets in a row.

    pair, predicate, noun: pairs with both triplets right, of all pairs or of those with the wrong predicate or noun.
    same: pairs in which the same sentence wins for both pictures. decisive: pairs with both right among those with both
    right or both wrong. None where nothing was scored.
    """
    scores = [(a.positives[0], a.negatives[0]) if a.status == "scored" else None for a in answers]
    pairs = [(scores[k], scores[k + 1], records[k]["pos"]) for k in range(0, len(records), 2)]
    whole = [(a, b, pos) for a, b, pos in pairs if a and b]
    both = [a[0] > a[1] and b[0] > b[1] for a, b, _ in whole]
    one_sentence = [(a[0] > a[1] and b[1] > b[0]) or (a[1] > a[0] and b[0] > b[1]) for a, b, _ in whole]
    sided = [right for right, (a, b, _) in zip(both, whole, strict=True) if right or (a[0] < a[1] and b[0] < b[1])]
    return {
        "single": _mean([true > false for true, false in filter(None, scores)]),
        "pair": _mean(both),
        "predicate": _mean([right for right, (*_, pos) in zip(both, whole, strict=True) if pos == "object"]),
        "noun": _mean([right for right, (*_, pos) in zip(both, whole, strict=True) if pos == "subject"]),
        "same": _mean(one_sentence),
        "decisive": _mean(sided),
    }


def _mean(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None
