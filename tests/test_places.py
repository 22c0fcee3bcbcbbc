"""What is shown to a model says where objects are: one contract for all models, and the features by which it holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.test_regions import PAPER, files_of, random_grid, scenes_of
from train.config import RegionSettings, Run
from train.data.batching import MODALITIES
from train.data.batching import visible_modalities as shown_in
from train.data.examples import Examples, RawExamples
from train.data.inputs import Inputs
from train.data.sources import stream_examples
from train.models import MODELS
from train.models.layers import Model
from train.regions.receptive_field import add_context
from train.regions.sources import RegionTable, make_regions
from train.run import build_model, tokenizer_for, visual_settings
from travlr import Spatiality
from travlr.config import Count
from travlr.generate import Generator
from travlr.scene import World

pytestmark = pytest.mark.usefixtures("one_thread")
ALL = np.arange(24)


def raw() -> RawExamples:
    return stream_examples(
        Generator(Spatiality(count=Count(train=100, validation=0, test_ind=0, test_ood=0))), 0, len(ALL)
    )


def moved(grid: np.ndarray) -> np.ndarray:
    """Grids in which one object of each has gone to an empty cell."""
    random, moved = np.random.default_rng(0), grid.copy()
    for row in moved:
        old, new = random.choice(np.flatnonzero(row)), random.choice(np.flatnonzero(row == 0))
        row[[old, new]] = row[[new, old]]
    return moved


def elsewhere(caption: str) -> str:
    """A caption whose first object is in another cell: a column on, or back at the first."""
    return re.sub(r"at (\w) ", lambda match: f"at {'BCDEFA'['ABCDEF'.index(match[1])]} ", caption, count=1)


def changes(name: str, options: dict[str, Any], regions: RegionSettings) -> Iterator[tuple[str, float, float]]:
    """Of each test setting: the least that a move changes the logits of any example, the most that nothing does."""
    config = Run(model=name, size="tiny", setting="caption", task="spatiality", regions=regions, **options)
    before = raw()
    words, visual = tokenizer_for(config), visual_settings(config)
    grid, captions = moved(before.grid), before.captions
    if config.test_settings == ("caption",):
        grid, captions = before.grid, [elsewhere(caption) for caption in before.captions]
    examples = [Examples(case, words, visual) for case in (before, replace(before, grid=grid, captions=captions))]
    torch.manual_seed(0)
    made = examples[0].regions
    model, _ = build_model(config, words, made.dimension if made else 0, lambda line: None)
    model = model.double().eval()  # so that rounding cannot be taken for an effect, however small
    for setting in config.test_settings:
        if config.test_settings == ("caption",) or MODALITIES[setting][0]:
            first, second = (logits(model, some, ALL, setting) for some in examples)
            again = logits(model, examples[0], ALL[::-1].copy(), setting).flip(0)
            yield setting, float((first - second).abs().amax(1).min()), float((first - again).abs().max())


@torch.no_grad()
def logits(model: Model, examples: Examples, rows: np.ndarray, setting: str) -> torch.Tensor:
    inputs = examples.inputs(rows, *shown_in(setting, rows, None))
    doubled = {
        name: tensor.double()
        for name in ("features", "boxes", "pixels")
        if (tensor := getattr(inputs, name)) is not None
    }
    return model(Inputs(**{**vars(inputs), **doubled}))


def variants() -> Iterator[Any]:
    """Every model, its controlled architecture, and each way in which its regions are made."""
    ways = (
        RegionSettings(),
        RegionSettings(number=36),
        RegionSettings(source="grid"),
    )
    for name, model in MODELS.items():
        options: list[dict[str, Any]] = [{}]
        options += [{"controlled": True}] if "controlled" in (model.__init__.__kwdefaults__ or {}) else []
        for option in options:
            for regions in ways if model.architecture.sees == "regions" else ways[:1]:
                yield pytest.param(name, option, regions, id=f"{name}-{len(option)}-{ways.index(regions)}")


@pytest.mark.parametrize(("name", "options", "regions"), list(variants()))
def test_models_see_where_objects_are(name: str, options: dict[str, Any], regions: RegionSettings) -> None:
    cases = list(changes(name, options, regions))
    assert [setting for setting, *_ in cases] == (
        ["caption"] if MODELS[name].architecture.sees == "nothing" else ["image", "image+caption"]
    )
    for setting, change, noise in cases:
        assert change > max(1e-7, 100 * noise), setting


# Features ------------------------------------------------------------------------------------------------------------


def test_surroundings_fall_off_with_distance() -> None:
    def felt(*cells: int) -> np.ndarray:
        """What the object in cell 0 sees of a red circle in other cells: how its features grow."""
        grid = np.zeros((2, 36), int)
        grid[:, 0] = 5
        grid[1, list(cells)] = 1
        arrays = make_regions(RegionSettings(), scenes_of(PAPER, grid), takes_boxes=False)
        return np.diff(arrays.take([0, 1])[0][:, 0], axis=0)[0]

    sizes = [float(np.linalg.norm(felt(cell))) for cell in (1, 7, 2, 3, 5)]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 10 * sizes[-1] > 0
    np.testing.assert_allclose(felt(1, 7), felt(1) + felt(7), atol=1e-5)


def test_surroundings_hold_objects_only() -> None:
    """Neither white cells, nor objects that are missed, nor padding: three neighbours that should not be felt."""
    features = np.zeros((1, 3, 2048), np.float32)
    features[0] = np.random.default_rng(0).random((3, 2048))
    boxes = np.array([[[0.4, 0.4, 0.5, 0.5], [0.5, 0.4, 0.6, 0.5], [0.4, 0.5, 0.5, 0.6]]], np.float32)
    one = np.array([[True, False, False]])
    alone = add_context(features[:, :1], boxes[:, :1], one[:, :1], one[:, :1])
    white = add_context(features, boxes, np.ones((1, 3), bool), one)
    padded = add_context(features * one[..., None], boxes, one, one)
    np.testing.assert_allclose(white[:, 0], alone[:, 0], atol=1e-6)
    np.testing.assert_allclose(padded[:, 0], alone[:, 0], atol=1e-6)
    both = add_context(features, boxes, np.ones((1, 3), bool), np.ones((1, 3), bool))
    assert np.linalg.norm(both[0, 0] - alone[0, 0]) > 1


def test_features_stay_as_they_are() -> None:
    """The frozen numbers, which trained weights depend on, as they were when the README's were measured."""
    boxes, is_object = np.array([[[0, 0, 0.25, 0.5], [0.25, 0, 0.5, 0.5]]], np.float32), np.ones((1, 2), bool)
    place = add_context(np.zeros((1, 2, 2048), np.float32), boxes, is_object, is_object)[0]
    features = np.zeros((1, 2, 2048), np.float32)
    features[0, 1, :8] = np.arange(1, 9)
    around = add_context(features, boxes, is_object, is_object)[0, 0] - place[0]
    felt = np.flatnonzero(around > 0.1)
    expected = [[2.07, 1.48, 0.86, 0.46, 0.0], [0.65, 2.56, 1.05, 0.62, 0.36]]
    np.testing.assert_allclose(place[:, :5], expected, atol=0.006)
    assert felt[np.argsort(around[felt])].tolist() == [380, 1362, 1190, 654, 62, 956, 2017, 512]


@pytest.mark.parametrize("source", ["scene", "grid"])
def test_features_of_files_equal_those_of_renderings(source: str) -> None:
    scenes, settings = scenes_of(PAPER, random_grid(World(), 6)), RegionSettings(source=source)
    rendered, decoded = (make_regions(settings, some, takes_boxes=False) for some in (scenes, files_of(scenes)))
    for rows in ([0, 1, 2, 3, 4, 5], [RegionTable.BLANK]):
        for a, b in zip(rendered.take(rows), decoded.take(rows), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-2)


@pytest.mark.parametrize("takes_boxes", [True, False])
def test_blank_picture_is_one_white_region(takes_boxes: bool) -> None:
    grid = random_grid(World(), 3)
    whole = make_regions(RegionSettings(number=30), scenes_of(PAPER, grid), takes_boxes)
    _, boxes, mask = whole.take([RegionTable.BLANK])
    assert mask.shape == (1, 1) and boxes.tolist() == [[[0, 0, 1, 1]]]
