"""Intervals and tests where pictures and pairs cross: against sums over all dependent items, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.probe.report.intervals import Clustering, interval
from analysis.probe.report.outcomes import outcomes
from tests.crossed import DEPENDENCES, Dependence, answers_of, called_different, coverage, items_of, right, share

# Against slow ways ---------------------------------------------------------------------------------------------------

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=25)


def dependent(units: Clustering) -> np.ndarray:
    """(N, N) bool: whether two units have a cluster in common."""
    sets = [set(row) for row in units.clusters.tolist()]
    return np.array([[bool(one & other) for other in sets] for one in sets])


def both_kinds(drawn: list[tuple[int, int]]) -> list[Clustering]:
    found = np.array(drawn)
    return [Clustering(found + np.array([0, 10])), Clustering(found, dyadic=True)]


@settings(max_examples=60)
@given(PAIRS, st.integers(0, 100))
def test_the_two_way_variance_is_a_sum_over_all_that_depend_on_each_other(
    drawn: list[tuple[int, int]], seed: int
) -> None:
    for units in both_kinds(drawn):
        values = np.random.default_rng(seed).normal(size=len(units))
        expected = float(values @ dependent(units) @ values)

        def squares(cluster: np.ndarray, unit: np.ndarray, v: np.ndarray = values) -> float:
            return float((np.bincount(cluster, v[unit]) ** 2).sum())

        found = units.two_way(squares)
        assert found == pytest.approx(expected) if expected > 1e-6 else found > 0


@settings(max_examples=60)
@given(PAIRS)
def test_units_are_crossed_where_no_cluster_holds_all_that_hang_together(drawn: list[tuple[int, int]]) -> None:
    for units in both_kinds(drawn):
        part = np.linalg.matrix_power(dependent(units).astype(float), len(units)) > 0  # steps from one to the next
        connected = units.connected
        assert (part == (connected[:, None] == connected)).all()
        rows = [set(row) for row in units.clusters.tolist()]
        alone = [
            set.intersection(*(row for row, there in zip(rows, mates, strict=True) if there)) for mates in part
        ]  # what each unit has in common with all that it is connected with
        assert units.crossed == (not all(alone))


def test_an_interval_leaves_out_one_cluster_at_a_time() -> None:
    items = items_of(12, 30)
    found = outcomes(items, answers_of(items, next(right(items, Dependence(), 0.7, 0))))
    lines, sizes = found.right.astype(int), found.units.sizes()
    (first, second), total = found.units.clusters.T, 0.0
    for names, factor in ((first, 1), (second, 1), (first * 1000 + second, -1)):
        apart = [100 * lines[names != name].mean() - 100 * lines.mean() for name in np.unique(names)]
        total += factor * (len(apart) - 1) / len(apart) * float(np.square(apart).sum())
    low, high, error = interval(100 * lines.mean(), found.units, lines, 2, share)
    assert error == pytest.approx(np.sqrt(total))
    assert 0 < low < 100 * lines.mean() - error < 100 * lines.mean() + error < high < 100
    assert [len(one) for one in sizes] == [len(set(first)), 30]


def test_intervals_of_one_grouping_come_from_resamples_of_its_clusters() -> None:
    """Whatever the other grouping is called: pairs within pictures, and pictures within pairs."""
    picture, draw = np.repeat(np.arange(40), 4), np.random.default_rng(0)
    lines = draw.integers(0, 2, 160)
    within = Clustering(np.stack([picture, 100 + np.arange(160) // 2], axis=1))
    around = Clustering(np.stack([100 + np.arange(160), picture], axis=1))
    alone = Clustering(np.stack([picture, picture], axis=1), dyadic=True)
    ends = {interval(50.0, units, lines, 2, share) for units in (within, around, alone)}
    assert len(ends) == 1 and not within.crossed and not around.crossed and not alone.crossed
    ((_, _, error),) = ends
    by_picture = lines.reshape(40, 4).mean(axis=1)
    assert error == pytest.approx(100 * by_picture.std() / np.sqrt(40), rel=0.1)


# Simulations ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DEPENDENCES)
def test_intervals_cover_where_pictures_and_pairs_cross(name: str) -> None:
    """Of 300 samples of 120 pairs from 60 pictures, 92 to 98 % hold the accuracy of items, and of pairs."""
    held = coverage(items_of(60, 120), DEPENDENCES[name], 0.75, 300)
    assert all(0.92 < part < 0.985 for part in (held.items, held.pairs)), held


@pytest.mark.parametrize("name", ["independent", "pictures", "pictures and opposed"])
def test_the_test_keeps_its_level_and_finds_what_is_there(name: str) -> None:
    """Models that are right as often are called different at 5 % about 5 times in 100; one that is better is found."""
    items = items_of(80, 200)
    assert called_different(items, DEPENDENCES[name], (0.7, 0.7), 200) <= 0.09
    assert called_different(items, DEPENDENCES[name], (0.7, 0.9), 100) > 0.6
