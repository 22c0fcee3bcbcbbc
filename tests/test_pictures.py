"""What ALBEF is shown: pixels by the checkpoint's own statistics, pictures from files kept small, published changes."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as pillow
from safetensors.torch import save_file

from tests.helpers import generated
from train.config import Optimiser, RegionSettings, Run, Training
from train.data.examples import Examples, VisualSettings
from train.data.pixels import PUBLISHED, FilePictures, Statistics, scale_picture
from train.data.sources import TrainingDataset
from train.data.text import WordTokenizer, grammar_tokenizer
from train.models import make_model
from train.models.albef import Albef
from train.run import run, visual_settings
from travlr import Cardinality
from travlr.config import Count
from travlr.formats.manifest import MANIFEST
from travlr.generate import renderer_of

WORDS = WordTokenizer(grammar_tokenizer())
PAPER = renderer_of(Cardinality())
OTHER: Statistics = ((0.5, 0.4, 0.3), (0.2, 0.25, 0.1))
SHORT = Training(steps=2, check_every=2, auxiliary_targets=False)


pytestmark = pytest.mark.usefixtures("one_thread", "rules_not_fitted", "unaudited")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    count = Count(train=40, validation=20, test_ind=20, test_ood=20)
    return generated(tmp_path_factory.mktemp("data") / "cardinality", Cardinality(count=count))


@pytest.fixture(scope="module")
def files(data: Path) -> Path:
    """The same dataset as if it came from elsewhere: its pictures are in its files alone."""
    folder = Path(shutil.copytree(data, data.with_name("files")))
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | {"config": None, "source": {"files": "0"}}))
    return folder


def albef(data: Path, runs: Path, **changes: Any) -> Run:
    values: dict[str, Any] = {"model": "albef", "size": "tiny", "setting": "image", "training": SHORT, "device": "cpu"}
    values |= {"precision": "float32", "optimiser": Optimiser(batch_size=10)}
    return Run(data=str(data), runs=str(runs), **(values | changes))


def png(picture: np.ndarray) -> bytes:
    file = io.BytesIO()
    pillow.fromarray(picture).save(file, "PNG")
    return file.getvalue()


# Statistics ----------------------------------------------------------------------------------------------------------


def checkpoint(folder: Path, statistics: Statistics | None) -> str:
    """A checkpoint with its tokenizer, and its statistics beside it."""
    folder.mkdir()
    torch.manual_seed(0)
    save_file(make_model("albef", "tiny", vocabulary=WORDS.size).state_dict(), folder / "albef.safetensors")
    WORDS.tokenizer.save_pretrained(folder)
    if statistics:
        statistics_of_file = dict(zip(("image_mean", "image_std"), statistics, strict=True))
        (folder / "preprocessor_config.json").write_text(json.dumps(statistics_of_file))
    return str(folder / "albef.safetensors")


@pytest.mark.parametrize("source", ["data", "files"])
def test_pixels_have_the_statistics_of_the_checkpoint(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    batches: list[np.ndarray] = []
    pixels_of = Albef.pixels_of

    def noted(model: Albef, inputs: Any) -> torch.Tensor:
        batches.append(inputs.pixels.numpy().copy())
        return pixels_of(model, inputs)

    monkeypatch.setattr(Albef, "pixels_of", noted)
    folder, by_checkpoint = request.getfixturevalue(source), {}
    training = SHORT.changed(examples=1.0)
    for name, statistics in (("none", None), ("published", PUBLISHED), ("other", OTHER)):
        pretrained = checkpoint(tmp_path / name, statistics)
        config = albef(folder, tmp_path / "runs" / name, pretrained=pretrained, training=training)
        run(config, log=lambda line: None)
        by_checkpoint[name] = list(batches)
        batches.clear()
    assert len(by_checkpoint["none"]) == len(by_checkpoint["other"]) > 4
    for published, other in zip(by_checkpoint["none"], by_checkpoint["other"], strict=True):
        values, same = (
            np.array(mean)[:, None, None] + pixels * np.array(std)[:, None, None]
            for pixels, (mean, std) in ((published, PUBLISHED), (other, OTHER))
        )
        np.testing.assert_allclose(values, same, atol=1e-5)
        assert values.max() == pytest.approx(1) and values.min() > -1e-5
    assert all(map(np.array_equal, by_checkpoint["none"], by_checkpoint["published"]))
    white = (1 - np.array(OTHER[0])) / OTHER[1]
    blank = next(pixels for pixels in by_checkpoint["other"] if len(pixels) == 1)  # what captions are tested with
    np.testing.assert_allclose(blank[0], np.broadcast_to(white[:, None, None], blank[0].shape), atol=1e-5)


def test_pixel_statistics_are_refused_for_regions(tmp_path: Path) -> None:
    pretrained = checkpoint(tmp_path / "other", OTHER)
    runs = {model: Run(model=model, setting="caption", pretrained=pretrained) for model in ("albef", "uniter")}
    assert visual_settings(runs["albef"]).statistics == OTHER
    assert visual_settings(runs["uniter"]).statistics == PUBLISHED
    assert visual_settings(Run(model="albef")).statistics == PUBLISHED


# Pictures from files -------------------------------------------------------------------------------------------------


def some_files(count: int) -> tuple[np.ndarray, list[bytes]]:
    """Pictures (count, 48, 48, 3) of noise, and their files."""
    pictures = np.random.default_rng(0).integers(0, 256, (count, 48, 48, 3), np.uint8)
    return pictures, [png(picture) for picture in pictures]


def values_of(pixels: torch.Tensor, statistics: Statistics = PUBLISHED) -> np.ndarray:
    """Normalised pixels as bytes (B, height, width, 3)."""
    mean, std = np.array(statistics)[:, :, None, None]
    return np.rint((pixels.numpy() * std + mean) * 255).transpose(0, 2, 3, 1).astype(np.uint8)


@pytest.mark.parametrize("side", [48, 24, 40])
def test_pixels_of_files_are_scaled_and_normalised(side: int) -> None:
    pictures, encoded = some_files(7)
    made = FilePictures("abcdefg", encoded, side, OTHER)
    for rows in ([3, 0, 6, 3], [5]):
        pixels = made(np.array(rows))
        assert pixels.is_contiguous() and pixels.dtype == torch.float32
        np.testing.assert_array_equal(values_of(pixels, OTHER), [scale_picture(pictures[row], side) for row in rows])
    assert (values_of(made(np.array([0, FilePictures.BLANK])), OTHER)[1] == 255).all()


def test_pixels_name_a_damaged_picture() -> None:
    _, encoded = some_files(3)
    encoded[1] = encoded[1][:200]
    with pytest.raises(ValueError, match=r"^picture b: [^\n]*$"):
        FilePictures("abc", encoded, 48)


def test_pixels_of_files_equal_those_of_the_renderer(data: Path, files: Path) -> None:
    visual = VisualSettings("pixels", RegionSettings(), side=192, statistics=OTHER)
    shown, hidden = np.ones(4, bool), np.zeros(4, bool)
    of_file, rendered = (TrainingDataset(folder).raw("validation", 13) for folder in (files, data))
    few = np.array([1, 4, 5, 9, 12])
    for raw, other in ((of_file, rendered), (of_file.take(few), rendered.take(few))):
        first, second = (Examples(some, WORDS, visual).inputs(np.arange(4), shown, hidden) for some in (raw, other))
        assert first.pixels is not None and second.pixels is not None
        np.testing.assert_allclose(first.pixels.numpy(), second.pixels.numpy(), atol=0.02)
