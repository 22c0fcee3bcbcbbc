"""VL-CheckList's taxonomy, classes of location and size, and averages, as in its paper.

Zhao et al. 2022, "VL-CheckList: Evaluating Pre-trained Vision-Language Models with Objects, Attributes and Relations".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

SIZES = ("large", "medium", "small")
LOCATIONS = ("center", "mid", "margin")
TEXT_LEVEL = {"Attribute": ("color", "material", "size", "state", "action"), "Relation": ("action", "spatial")}
TAXONOMY = (
    *(f"Object/Size/{name}" for name in SIZES),
    *(f"Object/Location/{name}" for name in LOCATIONS),
    *(f"{top}/{name}" for top, names in TEXT_LEVEL.items() for name in names),
)
"""The 13 axes of the published corpora, in the order of the paper's Tables 3 to 5."""

SMALL, MEDIUM = 1024, 9216  # pixels, the largest areas of small and medium objects (paper, section 3.1)


# Location and size ---------------------------------------------------------------------------------------------------


def location_class(box: Sequence[float], width: float, height: float) -> str:
    """`center`, `mid` or `margin` of a box (x, y, w, h) in a picture of width x height pixels (paper, section 3.1).

    The distance between the centres of box and picture, as a part of half the diagonal, is up to 1/3, up to 2/3, or
    more. Exact for integers. Raises `ValueError` for a box or picture without area.
    """
    x, y, w, h = _checked(box, width, height)
    squared = (2 * x + w - width) ** 2 + (2 * y + h - height) ** 2  # 4 times the distance squared
    diagonal = width**2 + height**2  # 4 times half the diagonal squared
    return "center" if 9 * squared <= diagonal else "mid" if 9 * squared <= 4 * diagonal else "margin"


def size_class(box: Sequence[float], width: float, height: float) -> str:
    """`small`, `medium` or `large` of a box (x, y, w, h): an area of up to 1,024 pixels, up to 9,216, or more (paper,
    section 3.1). Raises `ValueError` as `location_class`."""
    w, h = _checked(box, width, height)[2:]
    return "small" if w * h <= SMALL else "medium" if w * h <= MEDIUM else "large"


def _checked(box: Sequence[float], width: float, height: float) -> Sequence[float]:
    if len(box) != 4 or not all(length > 0 for length in (*box[2:], width, height)):
        raise ValueError(f"box {list(box)} in a picture of {width} x {height}: needs [x, y, w, h], with w, h above 0")
    return box


# Averages ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PaperAverage:
    """A mean of scores. rule: how it is computed. value: None where the axes in `lacking` have no scores."""

    name: str
    rule: str
    value: float | None
    lacking: tuple[str, ...] = ()


def by_axis(scores: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """Scores by axis, from scores by axis and source, as in the published radar chart: the mean over datasets of the
    mean over the sources of each dataset (such as vg_obj and vg_subj)."""
    nested: dict[str, dict[str, list[float]]] = {}
    for (axis, source), value in scores.items():
        nested.setdefault(axis, {}).setdefault(source.partition("_")[0], []).append(value)
    return {axis: fmean([fmean(values) for values in datasets.values()]) for axis, datasets in nested.items()}


def paper_averages(scores: Mapping[str, float]) -> list[PaperAverage]:
    """The averages in the paper's Tables 2 to 5, from scores by axis.

    Object is the mean of its six axes. Attribute and Relation are the mean of a text-level and an image-level mean;
    the latter needs scores by size and location (`Relation/Size/large`, `Relation/Location/mid`), which the published
    corpora do not have, so the text-level mean is also listed under its own name. `all` is the mean of the three.
    """
    places = [*(f"Size/{name}" for name in SIZES), *(f"Location/{name}" for name in LOCATIONS)]
    averages = [_average(scores, "Object", "mean of its six axes", [f"Object/{place}" for place in places])]
    for top, names in TEXT_LEVEL.items():
        text = _average(scores, f"{top}, text level", "mean of its axes", [f"{top}/{name}" for name in names])
        rule = "mean of the means of the three sizes and of the three locations"
        image = _average(scores, f"{top}, image level", rule, [f"{top}/{place}" for place in places])
        both = _joint(top, "mean of text level and image level", [text, image])
        averages += [both, text, image]
    three = [average for average in averages if "," not in average.name]
    return [*averages, _joint("all", "mean of Object, Attribute and Relation", three)]


def _average(scores: Mapping[str, float], name: str, rule: str, axes: Sequence[str]) -> PaperAverage:
    # There are as many sizes as locations, so the mean of all axes is the mean of both means.
    lacking = tuple(axis for axis in axes if axis not in scores)
    return PaperAverage(name, rule, None if lacking else fmean([scores[axis] for axis in axes]), lacking)


def _joint(name: str, rule: str, parts: Sequence[PaperAverage]) -> PaperAverage:
    values = [part.value for part in parts if part.value is not None]
    lacking = tuple(axis for part in parts for axis in part.lacking)
    return PaperAverage(name, rule, None if lacking else fmean(values), lacking)
