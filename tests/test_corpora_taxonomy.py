"""VL-CheckList's classes by the formulas of its paper, and its averages by the numbers it prints."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from travlr.corpora.taxonomy import TAXONOMY, by_axis, location_class, paper_averages, size_class

# Location and size ---------------------------------------------------------------------------------------------------


@given(st.tuples(st.floats(0, 500), st.floats(0, 500), st.floats(1, 400), st.floats(1, 400)), st.integers(1, 900))
def test_classes_are_those_of_the_paper(box: tuple[float, float, float, float], width: int) -> None:
    x, y, w, h = box
    height = 480
    ratio = math.hypot(x + w / 2 - width / 2, y + h / 2 - height / 2) / (math.hypot(width, height) / 2)
    if min(abs(ratio - 1 / 3), abs(ratio - 2 / 3)) > 1e-9:
        assert location_class(box, width, height) == (
            "center" if ratio < 1 / 3 else "mid" if ratio < 2 / 3 else "margin"
        )
    area = w * h
    assert size_class(box, width, height) == ("small" if area <= 1024 else "medium" if area <= 9216 else "large")


def test_limits_belong_to_the_smaller_class() -> None:
    sizes = [size_class((0, 0, 32, side), 640, 480) for side in (32, 33, 288, 289)]
    assert sizes == ["small", "medium", "medium", "large"]
    at = [location_class((300 - 1 + d, 400 - 1, 2, 2), 600, 800) for d in (166, 167, 333, 334)]
    assert at == ["center", "mid", "mid", "margin"]  # half the diagonal is 500


@pytest.mark.parametrize("box", [(0, 0, 0, 5), (0, 0, 5), (0, 0, 5, math.nan), (0, 0, -1, 2)])
def test_boxes_without_area_are_refused(box: Sequence[float]) -> None:
    for of in (location_class, size_class):
        with pytest.raises(ValueError, match="w, h above 0"):
            of(box, 100, 100)


# Averages ------------------------------------------------------------------------------------------------------------

# What the paper prints, averages last: Table 3 (large, medium, small, center, mid, margin), Table 4 (action, spatial,
# then as Table 3), Table 5 (color, material, size, state, action, then as Table 3), and the mean of Table 2.
PRINTED = {
    "LXMERT": ([84.94, 82.05, 79.01, 84.56, 83.84, 79.77, 82.36],
               [61.47, 57.4, 57.70, 57.36, 53.37, 57.37, 56.43, 52.04, 57.57],
               [81.85, 82.15, 70.00, 68.63, 76.35, 82.25, 77.10, 75.36, 77.50, 79.25, 79.25, 77.12], 72.35),
    "ViLT": ([88.58, 85.29, 82.18, 88.61, 86.65, 86.59, 86.32],
             [64.57, 66.6, 62.37, 62.97, 62.36, 60.80, 62.33, 61.20, 63.79],
             [86.45, 86.35, 71.40, 70.26, 80.00, 83.45, 81.90, 78.67, 81.60, 83.20, 82.20, 80.36], 76.82),
    "CLIP": ([88.77, 81.82, 75.65, 88.48, 85.80, 76.47, 82.83],
             [74.07, 49.1, 71.07, 65.17, 60.74, 71.33, 68.40, 64.03, 64.19],
             [72.90, 73.60, 65.20, 63.74, 74.25, 69.30, 65.90, 61.33, 69.85, 67.20, 62.00, 67.93], 71.65),
}  # fmt: skip
PLACES = ["Size/large", "Size/medium", "Size/small", "Location/center", "Location/mid", "Location/margin"]
COLUMNS = {
    "Object": PLACES,
    "Relation": ["action", "spatial", *PLACES],
    "Attribute": ["color", "material", "size", "state", "action", *PLACES],
}


@pytest.mark.parametrize("model", PRINTED)
def test_the_averages_are_those_that_the_paper_prints(model: str) -> None:
    *tables, overall = PRINTED[model]
    scores = {f"{top}/{place}": value for (top, places), table in zip(COLUMNS.items(), tables, strict=True)
              for place, value in zip(places, table, strict=False)}  # fmt: skip
    averages = {one.name: one.value for one in paper_averages(scores)}
    for top, table in zip(COLUMNS, tables, strict=True):
        assert averages[top] == pytest.approx(table[-1], abs=0.01), top
    assert averages["all"] == pytest.approx(overall, abs=0.01)


def test_an_average_names_the_axes_that_it_lacks() -> None:
    averages = {one.name: one for one in paper_averages({axis: 50.0 for axis in TAXONOMY})}
    assert averages["Object"].value == 50 and averages["Attribute, text level"].value == 50
    assert averages["Attribute"].value is None and averages["Attribute"].lacking[0] == "Attribute/Size/large"
    assert averages["all"].value is None
    assert len(TAXONOMY) == 13


def test_sources_of_a_dataset_are_averaged_before_datasets() -> None:
    scores = {("a", "vg_obj"): 10.0, ("a", "vg_subj"): 20.0, ("a", "hake"): 45.0, ("b", "vg"): 1.0}
    assert by_axis(scores) == {"a": 30.0, "b": 1.0}
