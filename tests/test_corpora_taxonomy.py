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
    assert [size_class((0, 0, 32, side), 640, 480) for side in (32, 33, 288, 289)] == [
        "small",
        "medium",
        "medium",
        "large",
    ]
    # a picture of 30 x 40 has half a diagonal of 25; its centre is at (15, 20)
    assert location_class((14 + 9, 19, 2, 2), 30, 40) == "mid"
    at = [location_class((300 - 1 + d, 400 - 1, 2, 2), 600, 800) for d in (166, 167, 333, 334)]
    assert at == ["center", "mid", "mid", "margin"]  # half the diagonal is 500
    assert location_class((150 - 1 + 50, 200 - 1, 2, 2), 180 + 120, 240 + 160) == "center"


def test_a_grid_of_six_by_six_has_the_known_numbers_of_each_location() -> None:
    cells = [location_class((64 * c, 64 * r, 64, 64), 384, 384) for c in range(6) for r in range(6)]
    assert [cells.count(name) for name in ("center", "mid", "margin")] == [4, 20, 12]


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
    "UNITER": ([85.27, 81.12, 78.06, 85.69, 83.64, 77.84, 81.94],
               [69.17, 61.5, 64.73, 66.17, 60.31, 63.33, 63.70, 65.60, 64.65],
               [76.20, 75.75, 63.45, 68.10, 72.55, 74.90, 69.45, 68.49, 72.05, 73.30, 70.25, 71.31], 72.63),
    "OSCAR": ([81.43, 78.53, 74.93, 80.91, 78.59, 74.24, 78.10],
              [69.6, 72.6, 67.65, 65.65, 61.50, 70.70, 67.00, 63.43, 68.54],
              [68.80, 58.25, 52.65, 62.31, 67.60, 64.80, 59.15, 58.18, 65.75, 59.15, 56.80, 61.28], 69.31),
    "ViLT": ([88.58, 85.29, 82.18, 88.61, 86.65, 86.59, 86.32],
             [64.57, 66.6, 62.37, 62.97, 62.36, 60.80, 62.33, 61.20, 63.79],
             [86.45, 86.35, 71.40, 70.26, 80.00, 83.45, 81.90, 78.67, 81.60, 83.20, 82.20, 80.36], 76.82),
    "ALBEF": ([84.33, 80.25, 76.92, 82.87, 80.91, 81.19, 81.08],
              [70.47, 64.6, 65.17, 67.06, 61.59, 65.57, 65.73, 67.13, 66.45],
              [84.20, 87.30, 69.45, 72.08, 81.65, 86.65, 77.05, 71.13, 85.50, 80.00, 78.05, 79.33], 75.62),
    "TCL": ([86.15, 79.96, 74.91, 85.01, 83.21, 80.26, 81.58],
            [69.17, 59.4, 66.90, 62.34, 58.17, 66.57, 63.97, 62.60, 63.85],
            [83.00, 85.20, 63.45, 73.10, 82.85, 85.40, 76.65, 71.47, 83.50, 79.75, 77.40, 78.27], 74.57),
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
