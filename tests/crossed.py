"""Made-up corpora whose pictures and pairs cross, and answers to them that depend on each other: to check intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from analysis.probe.corpora.items import Answer, Item
from analysis.probe.report.intervals import Clustering, interval, sign_test
from analysis.probe.report.outcomes import clustering


@dataclass(frozen=True)
class Dependence:
    """Parts of what decides an item, together at most 1: its picture; its pair; and what makes the one item of a pair
    right that makes the other wrong, such as a sentence that is preferred whatever is shown."""

    picture: float = 0.0
    pair: float = 0.0
    opposed: float = 0.0


DEPENDENCES = {
    "independent": Dependence(),
    "pictures": Dependence(picture=0.5),
    "pictures alone": Dependence(picture=0.98),
    "pairs": Dependence(pair=0.5),
    "pictures and pairs": Dependence(picture=0.35, pair=0.35),
    "opposed": Dependence(opposed=0.6),
    "pictures and opposed": Dependence(picture=0.3, opposed=0.5),
}


def items_of(pictures: int, pairs: int, seed: int = 0, uneven: bool = False) -> list[Item]:
    """Pairs of two pictures drawn at random, the items of a pair in a row. uneven: some pictures far more often."""
    draw = np.random.default_rng(seed)
    weights = np.arange(1, pictures + 1) ** (-0.7 if uneven else 0.0)
    found = []
    for n in range(pairs):
        shown = draw.choice(pictures, 2, replace=False, p=weights / weights.sum())
        sentences = (f"{n} is red", f"{n} is blue")
        found += [
            Item(f"{n}-{side}", f"{image}.png", (sentences[side],), (sentences[1 - side],), "colour", "made", str(n))
            for side, image in enumerate(shown.tolist())
        ]
    return found


def right(items: list[Item], dependence: Dependence, accuracy: float, seed: int) -> Iterator[np.ndarray]:
    """Without end: which items (N,) bool are right, each with a probability of `accuracy`."""
    draw = np.random.default_rng(seed)
    _, picture = np.unique([item.image for item in items], return_inverse=True)
    pair, side = np.divmod(np.arange(len(items)), 2)
    alone = 1 - dependence.picture - dependence.pair - dependence.opposed
    while True:
        by_picture, by_pair, opposed, own = (draw.standard_normal(len(items)) for _ in range(4))
        value = np.sqrt(dependence.picture) * by_picture[picture] + np.sqrt(dependence.pair) * by_pair[pair]
        value += np.sqrt(dependence.opposed) * opposed[pair] * (1 - 2 * side) + np.sqrt(alone) * own
        yield value < stats.norm.ppf(accuracy)


def both_right(dependence: Dependence, accuracy: float) -> float:
    """The probability that both items of a pair are right."""
    shared = dependence.pair - dependence.opposed
    edge = stats.norm.ppf(accuracy)
    return float(stats.multivariate_normal([0, 0], [[1, shared], [shared, 1]]).cdf([edge, edge]))


def answers_of(items: list[Item], right: Iterable[Any]) -> list[Answer]:
    """Answers that are right, wrong, or tied (None)."""
    scores = {True: (1.0, 0.0), False: (0.0, 1.0), None: (0.5, 0.5)}
    pairs = [scores[None if one is None else bool(one)] for one in right]
    return [Answer(item.id, "scored", (a,), (b,)) for item, (a, b) in zip(items, pairs, strict=True)]


def share(counts: np.ndarray) -> np.ndarray:
    """Counts (..., 2) of wrong and right, as percent right."""
    return np.asarray(100 * counts[..., 1] / counts.sum(axis=-1))


def by_pictures(units: Clustering) -> Clustering:
    """The pairs of `items_of` by their two pictures."""
    return Clustering(units.clusters[:, 0].reshape(-1, 2), dyadic=True)


class Coverage(NamedTuple):
    """How many intervals, as a part, hold the accuracy of items and that of pairs; and how wide they are in percent."""

    items: float
    pairs: float
    items_width: float
    pairs_width: float


def coverage(items: list[Item], dependence: Dependence, accuracy: float, runs: int, seed: int = 1) -> Coverage:
    units = clustering(items)
    of_pairs, truths = by_pictures(units), (100 * accuracy, 100 * both_right(dependence, accuracy))
    held, widths = np.zeros(2), np.zeros(2)
    for lines in islice(right(items, dependence, accuracy, seed), runs):
        both = np.asarray(lines.reshape(-1, 2).all(axis=1))
        made = [_of(units, lines), _of(of_pairs, both)]
        held += [low <= truth <= high for (low, high), truth in zip(made, truths, strict=True)]
        widths += [high - low for low, high in made]
    return Coverage(*map(float, (*held / runs, *widths / runs)))


def _of(units: Clustering, lines: np.ndarray) -> tuple[float, float]:
    return interval(100 * float(lines.mean()), units, lines.astype(int), 2, share)[:2]


def called_different(
    items: list[Item], dependence: Dependence, accuracies: tuple[float, float], runs: int, level: float = 0.05
) -> float:
    """How often, as a part, two models are called different on pairs; they err independently of each other."""
    units = by_pictures(clustering(items))
    lines = [right(items, dependence, accuracy, seed) for seed, accuracy in enumerate(accuracies)]
    called = 0
    for one, other in islice(zip(*lines, strict=True), runs):
        lead = np.subtract(*(found.reshape(-1, 2).all(axis=1).astype(int) for found in (one, other)))
        called += sign_test(units, lead)[2] < level
    return called / runs
