"""Heat maps: against models and rules that depend, by construction, on one place; against covering that place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from analysis.attention import (
    CROSS,
    SELF,
    leaves,
    painter,
    read,
    relevance,
    size_of_map,
    with_gradients,
)
from analysis.heatmaps import HeatMaps, draw_heat_map, heat, main, occlusion, overlay
from tests.tiny import BUILT, pictures, saved
from train.ask.matchers.base import Matcher
from train.ask.matchers.loading import load_matcher
from train.ask.matchers.published import AlbefMatcher, RegionMatcher
from train.data.text import WordTokenizer, grammar_tokenizer
from train.models import make_model

TEXT = "a red circle is above the star"
WORDS = ("a", "red", "circle", "is", "above", "the", "star")


@pytest.fixture(autouse=True)
def seeded(one_thread: None) -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: saved(name, tmp_path_factory.mktemp("models") / name) for name in ("clip", "blip", "vilt")}


def one_place(images: Any, texts: Any) -> Any:
    """Redness of the second quarter of the third row of four, for texts with `red`."""
    return [
        float(np.asarray(image)[48:64, 16:32, 0].mean()) * ("red" in text)
        for image, text in zip(images, texts, strict=True)
    ]


# Occlusion ----------------------------------------------------------------------------------------------------------


def test_occlusion_finds_the_one_place_that_counts() -> None:
    pixels = np.zeros((96, 64, 3), np.uint8)
    pixels[..., 1] = 80
    pixels[48:64, 16:32, 0] = 240
    found = heat(one_place, Image.fromarray(pixels), "a red circle", cells=4)
    assert found.method == "occlusion" and found.words == ("a", "red", "circle")
    assert found.sentence.shape == (96, 64) and found.by_word.shape == (3, 96, 64)
    lit = np.zeros((96, 64), bool)
    lit[48:72, 16:32] = True  # the cell of 4 x 4 that holds it
    assert ((found.sentence > 0) == lit).all()
    mean = float(np.rint(pixels[..., 0].mean()))
    assert found.sentence.max() == pytest.approx(240 - mean)
    assert (found.by_word[1] == found.sentence).all()
    assert not found.by_word[[0, 2]].any()


def test_occlusion_covers_every_pixel_once() -> None:
    """Of a score that is the sum of all pixels, each cell loses what it holds above the mean."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (37, 23, 3), np.uint8)

    def total(images: Any, texts: Any) -> Any:
        return [float(np.asarray(image, np.float64).sum()) for image in images]

    (found,) = occlusion(total, Image.fromarray(pixels), ["x"], 5)
    mean = pixels.reshape(-1, 3).mean(0).round()
    for row in range(5):
        for column in range(5):
            part = slice(37 * row // 5, 37 * (row + 1) // 5), slice(23 * column // 5, 23 * (column + 1) // 5)
            lost = (pixels[part].astype(np.float64) - mean).sum()
            np.testing.assert_allclose(found[part], max(lost, 0.0), rtol=1e-6)


# Attention: models made to depend on one place -----------------------------------------------------------------------


def still(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if "norm" not in name.lower():
            nn.init.zeros_(parameter)


def test_attention_of_clip_lights_the_one_patch_that_it_reads(folders: dict[str, Path]) -> None:
    """CLIP of the tests, its vision tower set by hand: the class token attends to the tenth patch of 16 alone."""
    scorer = load_matcher(str(folders["clip"]), device="cpu")
    assert isinstance(scorer, Matcher)
    model: Any = scorer.model
    vision = model.vision_model
    still(vision)
    with torch.no_grad():
        vision.embeddings.class_embedding[0] = 5.0
        vision.embeddings.position_embedding.weight[1 + 9, 1] = 5.0
        vision.embeddings.patch_embedding.weight[2] = 0.05
        attention = vision.encoder.layers[0].self_attn
        attention.q_proj.weight[0, 0] = 6.0
        attention.k_proj.weight[0, 1] = 6.0
        attention.v_proj.weight[3, 1] = 1.0
        attention.out_proj.weight[3, 3] = 4.0
    image = pictures()[0]
    text = "a red circle"
    low, high = (
        float(scorer([image], [lines])[0]) for lines in sorted(("a star", text), key=lambda t: scorer([image], [t])[0])
    )
    assert low < high
    with torch.no_grad():  # so that what patch 9 brings speaks for this text
        direction = scorer.read({k: v for k, v in scorer.tokens(text).items()})["text"][0]
        model.visual_projection.weight.zero_()
        model.visual_projection.weight[:, 3] = direction
        model.visual_projection.weight[:, 0] = torch.randn(len(direction))
    found = heat(scorer, image, text)
    assert found.method == "attention" and found.sentence.shape == (32, 32)
    row, column = divmod(int(found.sentence.argmax()), 32)
    assert (row // 8, column // 8) == (2, 1)
    centres = found.sentence[4::8, 4::8].flatten()
    assert centres[9] > 10 * np.delete(centres, 9).max()


def test_relevance_of_two_layers_is_the_paper_s_rule() -> None:
    random = torch.Generator().manual_seed(0)
    layers = [(torch.rand(1, 2, 3, 3, generator=random), torch.randn(1, 2, 3, 3, generator=random)) for _ in range(2)]
    one, two = ((w * g).clamp(min=0).mean(1)[0] for w, g in layers)
    wanted = (torch.eye(3) + two) @ (torch.eye(3) + one) - torch.eye(3)
    torch.testing.assert_close(relevance(layers), wanted)


# Attention: gradients are those of finite differences ---------------------------------------------------------------


BOXES = np.array([[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1]], np.float32)


def region_scorer(kind: str, tmp_path: Path) -> Matcher:
    """A matcher of one of our models, with weights so large that scores differ."""
    words = WordTokenizer(grammar_tokenizer())
    sizes: dict[str, Any] = {"layers": 2, "image_layers": 1, "cross_layers": 2, "vocabulary": words.size}
    sizes |= {"picture": 64} if kind == "albef" else {"feature_width": 16}
    model = make_model(kind, "tiny", {"matching": True}, **sizes)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.25)
    if kind == "albef":
        (tmp_path / "model.pt").touch()
        return AlbefMatcher(kind, model, words, str(tmp_path / "model.pt"), "itm")
    features = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
    return RegionMatcher(kind, model, words, lambda _: (features, BOXES))


@pytest.mark.parametrize("kind", ["uniter", "visualbert", "lxmert", "albef", "clip", "vilt"])
def test_heat_leaves_the_model_unchanged(
    kind: str,
    folders: dict[str, Path],
    tmp_path: Path,
) -> None:
    scorer: Any = load_matcher(str(folders[kind]), device="cpu") if kind in BUILT else region_scorer(kind, tmp_path)
    image = pictures()[1]  # wider than high
    before = scorer([image] * 2, [TEXT, "a star"])
    found = heat(scorer, image, TEXT)
    assert (found.words, found.method) == (WORDS, "attention")
    assert found.sentence.shape == (40, 64) and found.by_word.shape == (7, 40, 64)
    for values in (found.sentence, *found.by_word):
        assert np.isfinite(values).all() and values.min() >= 0
    assert found.sentence.max() > 0 and found.by_word.max() > 0
    assert found.score == pytest.approx(before[0], abs=1e-5)
    assert (scorer([image] * 2, [TEXT, "a star"]) == before).all()
    again = heat(scorer, image, TEXT)
    np.testing.assert_allclose(again.by_word, found.by_word, rtol=1e-4, atol=1e-7)
    if kind == "clip":  # which crops the middle
        assert not found.sentence[:, :12].any() and not found.sentence[:, 52:].any()
        assert (found.sentence[:, 12:52] > 0).any()


@pytest.mark.parametrize("kind", ["uniter", "lxmert", "albef"])
def test_with_gradients_gives_those_of_finite_differences(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A weight of the attention is changed by hand, in the second layer that words and picture share."""
    scorer = region_scorer(kind, tmp_path)
    scorer.model.double()
    scorer.precision = torch.float64
    chosen = (SELF | CROSS)[type(scorer.model).__name__]
    image = pictures()[0]
    inputs = scorer.see(leaves(scorer, image)) | read(scorer, TEXT)
    weights, gradients = zip(*with_gradients(scorer, chosen, inputs), strict=True)
    place = (0, 1, 0, 9 if kind == "uniter" else 2)  # of [CLS]; which head; which region or patch
    calls = [0]

    def moved(by: float) -> float:
        def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
            found = (query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5).softmax(-1)
            if found.shape == weights[1].shape and torch.allclose(found, weights[1], atol=1e-9):
                calls[0] += 1
                found = found.clone()
                found[place] += by
            return found @ value

        monkeypatch.setattr("train.models.layers.attend", attend)
        return float(scorer([image], [TEXT])[0])

    step = 1e-4
    assert gradients[1][place] == pytest.approx((moved(step) - moved(-step)) / (2 * step), rel=1e-4, abs=1e-9)
    assert calls[0] == 2 and gradients[1][place] != 0


# Places on the picture ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["clip", "vilt", "albef"])
@pytest.mark.parametrize("size", [(90, 60), (1500, 1000)])
def test_painter_paints_at_the_place_that_the_model_is_shown(
    kind: str, size: tuple[int, int], folders: dict[str, Path], tmp_path: Path
) -> None:
    """The brightness of the patches that the model is given, painted, is that of the picture, white right of and above
    its centre."""
    scorer: Any = load_matcher(str(folders[kind]), device="cpu") if kind in BUILT else region_scorer(kind, tmp_path)
    width, height = size
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[height // 4 : height // 2, width // 2 : width * 3 // 4] = 255
    image = Image.fromarray(pixels)
    prepared = scorer.prepare(image)
    given = prepared["pixels" if "pixels" in prepared else "pixel_values"]
    values = nn.functional.avg_pool2d(given.mean(1, keepdim=True), 16 if kind == "albef" else 8).flatten()
    painted = painter(scorer, image, prepared)(values - values.min())
    across, down = size_of_map(image)
    assert painted.shape == (down, across)
    rows, columns = np.mgrid[:down, :across]
    centre = (painted * columns).sum() / painted.sum() / across, (painted * rows).sum() / painted.sum() / down
    assert centre == pytest.approx((0.625, 0.375), abs=0.04)


# Figure and command -------------------------------------------------------------------------------------------------


def test_draw_heat_map_has_the_words_as_titles() -> None:
    image = pictures()[0]
    values = np.zeros((32, 32), np.float32)
    values[3, 4] = 2
    maps = HeatMaps("a $red star", 0.5, ("a", "$red", "star"), values, np.stack([values] * 3), "occlusion")
    figure = draw_heat_map(maps, image)
    assert [axes.get_title() for axes in figure.axes] == ["picture", "whole sentence", "a", "$red", "star"]
    colours, grey, clear = overlay(image, values, 2.0), np.asarray(image.convert("L")), values == 0
    assert (colours[clear] == grey[clear][:, None]).all() and (colours[3, 4] != grey[3, 4]).any()
    assert (overlay(image, 0 * values, 0.0) == grey[..., None]).all()


MODULE = """
import numpy as np
def score(images, texts):
    assert images[0].info["path"] == "in.png"
    return [float(np.asarray(image)[..., 0].mean()) for image in images]
"""


def test_command_writes_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rule_of_heatmaps.py").write_text(MODULE)
    pictures()[1].save("in.png")
    options = ["--model", "rule_of_heatmaps:score", "--image", "in.png", "--out", "new/out.png", "--text"]
    main([*options, "a red star"])
    out = capsys.readouterr().out
    assert "3 words" in out and "occlusion" in out
    with Image.open("new/out.png") as written:
        assert written.width > 400
    with pytest.raises(ValueError, match=r"'\.\.\.'"):
        main([*options, "..."])
