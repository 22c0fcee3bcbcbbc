"""Statistics of predictions, against scipy and scikit-learn, brute force, and simulation of what intervals promise."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import accuracy_score, cohen_kappa_score, f1_score

from analysis.statistics import agreement, holm, over_seeds, paired

RANDOM = np.random.default_rng(0)


def logits(answers: np.ndarray, accuracy: float, random: np.random.Generator) -> np.ndarray:
    right = random.random(len(answers)) < accuracy
    return np.where(right == answers, 1.0, -1.0) * random.gamma(2.0, 1.0, len(answers))


def macro(answers: np.ndarray, lines: np.ndarray) -> float:
    return 100 * float(f1_score(answers, lines > 0, average="macro", zero_division=0))


# Paired --------------------------------------------------------------------------------------------------------------


def test_paired_scores_are_scikit_learns() -> None:
    answers = RANDOM.random(500) < 0.4
    first, second = logits(answers, 0.8, RANDOM), logits(answers, 0.7, RANDOM)
    found = paired(answers, first, second)
    assert found.examples == 500
    assert found.first == pytest.approx(macro(answers, first))
    assert found.second == pytest.approx(macro(answers, second))
    assert found.difference == pytest.approx(found.first - found.second)
    right = [(lines > 0) == answers for lines in (first, second)]
    assert (found.first_only, found.second_only) == ((right[0] & ~right[1]).sum(), (right[1] & ~right[0]).sum())
    assert found.interval_low < found.difference < found.interval_high


def test_bootstrap_of_clusters_is_that_of_drawing_them_one_by_one() -> None:
    """Brute force: draw scenes with replacement, put their examples together, score with scikit-learn."""
    scenes = np.repeat(np.arange(60), RANDOM.integers(1, 5, 60))
    answers = RANDOM.random(len(scenes)) < 0.5
    first = np.where(np.repeat(RANDOM.random(60) < 0.8, np.bincount(scenes)) == answers, 1.0, -1.0)
    second = logits(answers, 0.7, RANDOM)
    found = paired(answers, first, second, scenes)
    draws = []
    for _ in range(400):
        rows = np.concatenate([np.flatnonzero(scenes == scene) for scene in RANDOM.integers(0, 60, 60)])
        draws.append(macro(answers[rows], first[rows]) - macro(answers[rows], second[rows]))
    low, high = np.percentile(draws, [2.5, 97.5])
    assert found.interval_low == pytest.approx(low, abs=1.5)
    assert found.interval_high == pytest.approx(high, abs=1.5)
    alone = paired(answers, first, second)
    assert found.interval_high - found.interval_low > alone.interval_high - alone.interval_low


def test_scenes_count_once_in_the_test() -> None:
    """One run right on all of three scenes with ten examples each is three for it, not thirty."""
    answers = np.ones(60, bool)
    scenes = np.repeat(np.arange(6), 10)
    first, second = np.ones(60), np.where(scenes < 3, -1.0, 1.0)
    assert paired(answers, first, second).p_value == pytest.approx(2 / 2**30)
    found = paired(answers, first, second, scenes)
    assert (found.first_only, found.second_only) == (3, 0)
    assert found.p_value == pytest.approx(0.25)


def test_paired_interval_covers_and_the_test_keeps_its_level() -> None:
    """Of simulated pairs with correlated scenes, 95 % of intervals hold the true difference, of 0 here."""
    covered, claimed, times = 0, 0, 200
    for number in range(times):
        random = np.random.default_rng([7, number])
        scenes = np.repeat(np.arange(150), 3)
        answers = random.random(450) < 0.5
        lines = [logits(answers, 0.75, random) for _ in range(2)]
        for one in lines:  # a run is right or wrong on a whole scene more often than not
            whole = np.repeat(random.random(150) < 0.5, 3)
            fate = np.repeat(random.random(150) < 0.75, 3)
            one[whole] = np.where(fate == answers, 1.0, -1.0)[whole]
        found = paired(answers, lines[0], lines[1], scenes)
        covered += found.interval_low <= 0 <= found.interval_high
        claimed += found.p_value < 0.01
    assert 0.91 * times <= covered <= 0.985 * times
    assert claimed <= 0.03 * times


def test_equal_predictions_leave_room_for_a_difference_unseen() -> None:
    answers = np.array([True, False] * 50)
    found = paired(answers, np.ones(100), np.ones(100))
    assert found.difference == 0 and found.p_value == 1
    assert found.interval_high == pytest.approx(100 * (1 - 0.025 ** (1 / 100))) == -found.interval_low


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="1 of 3 logits are not numbers"):
        paired(np.ones(3, bool), np.ones(3), np.array([1.0, np.nan, 1.0]))


def test_holm_against_all_subsets() -> None:
    """Holm is the closed test: a p-value is as large as the largest Bonferroni one of any group that it is in."""
    p_values = [0.01, 0.04, 0.03, 0.5]
    for place, adjusted in enumerate(holm(p_values)):
        groups = [g for size in range(1, 5) for g in combinations(range(4), size) if place in g]
        assert adjusted == pytest.approx(max(min(1, len(g) * min(p_values[i] for i in g)) for g in groups))
    assert holm([]) == []


# Agreement -----------------------------------------------------------------------------------------------------------


def test_agreement_is_scikit_learns() -> None:
    first, second = RANDOM.normal(0.3, 1, 400), RANDOM.normal(-0.1, 1, 400)
    second[:200] = first[:200]
    found = agreement(first, second)
    assert found.percent == pytest.approx(100 * accuracy_score(first > 0, second > 0))
    assert found.kappa == pytest.approx(cohen_kappa_score(first > 0, second > 0))
    shuffled = [100 * np.mean((first > 0) == (RANDOM.permutation(second) > 0)) for _ in range(500)]
    assert found.by_chance == pytest.approx(np.mean(shuffled), abs=0.5)


def test_agreement_interval_covers() -> None:
    """Of 300 samples of 200 scenes with two examples each, which agree together or not, about 285."""
    covered = 0
    for number in range(300):
        random = np.random.default_rng([8, number])
        first = random.normal(size=400)
        second = np.where(np.repeat(random.random(200) < 0.8, 2), first, -first)
        found = agreement(first, second, np.repeat(np.arange(200), 2))
        covered += found.interval_low <= 80 <= found.interval_high
    assert 273 <= covered <= 296


def test_agreement_at_its_ends() -> None:
    same = agreement(np.ones(10), np.ones(10))
    assert (same.percent, same.interval_high, same.kappa) == (100, 100, None)
    assert same.interval_low == pytest.approx(100 * 0.025 ** (1 / 10))
    other = agreement(np.ones(10), -np.ones(10), np.arange(10) // 2)
    assert (other.percent, other.interval_low, other.by_chance, other.kappa) == (0, 0, 0, 0)
    assert other.interval_high == pytest.approx(100 * (1 - 0.025 ** (1 / 5)))


# Seeds ---------------------------------------------------------------------------------------------------------------


def test_over_seeds_is_scipys() -> None:
    scores = [60.0, 70.0, 74.0]
    found = over_seeds(scores)
    assert found.deviation == pytest.approx(np.std(scores, ddof=1))
    expected = stats.t.interval(0.95, 2, np.mean(scores), stats.sem(scores))
    assert (found.interval_low, found.interval_high) == pytest.approx(expected)


def test_one_seed_has_no_interval() -> None:
    found = over_seeds([88.0])
    assert (found.runs, found.mean) == (1, 88) and np.isnan([found.deviation, found.interval_low]).all()
