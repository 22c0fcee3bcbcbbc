"""VisualBERT, UNITER, LXMERT and ALBEF as matchers: on the small checkpoints that the models are tested with."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.nn.functional import normalize
from transformers import BertTokenizer

from tests.helpers import one_line
from tests.test_models import fixture_shape, part
from train import models
from train.ask.matchers.base import Matcher
from train.ask.matchers.loading import PUBLISHED, load_matcher
from train.ask.requests import open_picture
from train.config import RegionSettings
from train.data.inputs import Inputs
from train.data.pixels import normalise_pixels, scale_picture
from train.data.text import SPECIAL
from train.models import make_model
from train.models.loading import load_published

TEXTS = ["a red circle", "a blue star is above a circle", "a star", "a blue circle"]
WORDS = ["a", "red", "blue", "circle", "star", "is", "above", "##s"]
HEADS = {"uniter": "itm_output", "visualbert": "bert.cls.seq_relationship", "lxmert": "module.cls.seq_relationship",
         "albef": "itm_head"}  # fmt: skip
REGION_MODELS = [kind for kind in PUBLISHED if kind != "albef"]


@pytest.fixture(autouse=True)
def seeded(one_thread: None) -> None:
    torch.manual_seed(0)


@pytest.fixture
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A published checkpoint of each model, and beside each a vocabulary of as many words."""
    for kind in PUBLISHED:
        shape = fixture_shape(kind)
        (tmp_path / kind).mkdir()
        save_file(part(kind, "ckpt/"), tmp_path / kind / "model.safetensors")
        words = [*SPECIAL, *WORDS]
        words += [f"other{n}" for n in range(shape.vocabulary - len(words))]
        (tmp_path / kind / "vocab.txt").write_text("\n".join(words))
        sizes = {key: value for key, value in asdict(shape).items() if key not in ("vocabulary", "feature_width")}
        monkeypatch.setitem(models.MODEL_SIZES[kind], "fixture", sizes)
    monkeypatch.setitem(models.SIZES, "fixture", {})
    return {kind: str(tmp_path / kind) for kind in PUBLISHED}


@pytest.fixture
def pictures(tmp_path: Path) -> list[Image.Image]:
    """Three pictures of a folder, of different sizes, and their regions in `features`: 5, 5 and 7 of 48 numbers."""
    random = np.random.default_rng(0)
    (tmp_path / "features").mkdir()
    (tmp_path / "pictures/deep").mkdir(parents=True)
    names = []
    for number, (width, height, count) in enumerate(((96, 96, 5), (120, 80, 5), (64, 72, 7))):
        names.append(f"deep/picture{number}.png")
        pixels = random.integers(0, 256, (height, width, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / names[-1])
        corners = np.sort(random.random((count, 2, 2)), axis=1).reshape(count, 4).astype(np.float32)
        features = random.standard_normal((count, 48)).astype(np.float16).astype(np.float32)
        np.savez(tmp_path / f"features/picture{number}.npz", features=features, norm_bb=corners)
    return [open_picture((tmp_path / "pictures" / name).read_bytes(), name) for name in names]


def settings_of(kind: str, pictures: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {"size": "fixture", "device": "cpu"}
    regions = RegionSettings(source=str(pictures / "features"))
    return settings if kind == "albef" else settings | {"regions": regions}


def direct(kind: str, checkpoint: str, image: Image.Image, text: str, folder: Path) -> float:
    """The published matching head on the pooled state, for one picture and one text."""
    model = make_model(kind, "fixture", vocabulary=fixture_shape(kind).vocabulary, feature_width=48)
    load_published(model, checkpoint)
    ids = BertTokenizer.from_pretrained(checkpoint)(text)["input_ids"]
    visual: dict[str, Any] = {}
    if kind == "albef":
        visual["pixels"] = normalise_pixels(scale_picture(np.asarray(image), model.shape.picture)[None])
    else:
        with np.load(folder / "features" / f"{Path(image.info['path']).stem}.npz") as file:
            visual = {"features": torch.tensor(file["features"])[None], "boxes": torch.tensor(file["norm_bb"])[None]}
    weights = part(kind, f"ckpt/{HEADS[kind]}.")
    with torch.no_grad():
        pooled = (
            model.eval().encode(Inputs(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool), **visual)).pooled
        )
        no, yes = (pooled @ weights["weight"].T + weights["bias"])[0].tolist()
    return yes - no


@pytest.mark.parametrize("kind", PUBLISHED)
def test_scores_are_those_of_the_published_head(
    kind: str, checkpoints: dict[str, str], pictures: list[Image.Image], tmp_path: Path
) -> None:
    images, texts = [image for image in pictures for _ in TEXTS], TEXTS * len(pictures)
    name = f"{kind}:{checkpoints[kind]}"
    matcher = load_matcher(name, **settings_of(kind, tmp_path))
    assert isinstance(matcher, Matcher)
    pictures_seen: list[int] = []
    if kind == "albef":  # which encodes a picture once for all its texts
        tower = matcher.model.get_submodule("visual_encoder")
        tower.register_forward_hook(lambda _, given, out: pictures_seen.append(len(out)))
    scores = matcher(images, texts)
    assert sum(pictures_seen) == (3 if kind == "albef" else 0)
    wanted = [direct(kind, checkpoints[kind], i, t, tmp_path) for i, t in zip(images, texts, strict=True)]
    np.testing.assert_allclose(scores, wanted, atol=1e-5)
    assert len(set(scores.round(5))) > len(scores) // 2
    single = load_matcher(name, batch_size=1, **settings_of(kind, tmp_path))
    np.testing.assert_allclose(single(images, texts), scores, atol=2e-6)
    assert (matcher.name, matcher.threshold) == (name, 0.0)


def test_albefs_contrast_is_a_cosine_of_its_projections(
    checkpoints: dict[str, str], pictures: list[Image.Image]
) -> None:
    matcher = load_matcher(f"albef:{checkpoints['albef']}", head="itc", size="fixture", device="cpu")
    assert isinstance(matcher, Matcher)
    assert matcher.threshold is None
    scores = matcher(pictures, TEXTS[:3])
    model: Any = matcher.model
    weights = part("albef", "ckpt/")
    for image, text, score in zip(pictures, TEXTS, scores, strict=False):
        ids = torch.tensor([BertTokenizer.from_pretrained(checkpoints["albef"])(text)["input_ids"]])
        pixels = normalise_pixels(scale_picture(np.asarray(image), model.shape.picture)[None])
        with torch.no_grad():
            seen = model.visual_encoder(pixels)[0, 0] @ weights["vision_proj.weight"].T + weights["vision_proj.bias"]
            read = model.text_encoder(ids, torch.ones_like(ids, dtype=torch.bool))[0, 0]
            read = read @ weights["text_proj.weight"].T + weights["text_proj.bias"]
        assert score == pytest.approx(float(normalize(seen, dim=0) @ normalize(read, dim=0)), abs=1e-6)


@pytest.mark.parametrize("kind", REGION_MODELS)
def test_regions_of_a_grid_need_nothing_else(kind: str, tmp_path: Path) -> None:
    """A tiny model with random weights; the same file loads by the model's own names."""
    words = [*SPECIAL, *WORDS]
    model = make_model(kind, "tiny", {"matching": True}, vocabulary=len(words))
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, tmp_path / "model.safetensors")
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    matcher = load_matcher(f"{kind}:{tmp_path}", device="cpu")
    pixels = np.full((96, 96, 3), 255, np.uint8)
    pixels[20:28, 36:44] = (220, 30, 38)
    shown, white = Image.fromarray(pixels), Image.new("RGB", (96, 96), "white")
    scores = matcher([shown, shown, white], ["a red circle", "a blue circle", "a red circle"])
    assert len(set(scores.tolist())) == 3
    moved = Image.fromarray(np.roll(pixels, (32, 16), (0, 1)))  # two cells down, one to the right
    same, other = matcher([shown, moved], ["a red circle"] * 2)
    assert same == pytest.approx(scores[0], abs=1e-6) and abs(other - same) > 1e-5


def test_a_checkpoint_without_its_matching_head_is_refused(
    checkpoints: dict[str, str], pictures: list[Image.Image], tmp_path: Path
) -> None:
    weights = {key: value for key, value in part("uniter", "ckpt/").items() if not key.startswith("itm_output")}
    save_file(weights, Path(checkpoints["uniter"]) / "model.safetensors")
    with pytest.raises(ValueError, match=r"matching\.weight") as caught:
        load_matcher(f"uniter:{checkpoints['uniter']}", **settings_of("uniter", tmp_path))
    one_line(str(caught.value))


def test_pictures_that_a_feature_file_lacks_are_named(
    checkpoints: dict[str, str], pictures: list[Image.Image], tmp_path: Path
) -> None:
    matcher = load_matcher(f"lxmert:{checkpoints['lxmert']}", **settings_of("lxmert", tmp_path))
    with pytest.raises(ValueError, match="file name"):
        matcher([Image.new("RGB", (8, 8))], ["a star"])
    white = Image.new("RGB", (8, 8), "white")
    with pytest.raises(ValueError, match="picture blank"):
        matcher([white], ["a star"])
    (tmp_path / "features/blank.npz").write_bytes((tmp_path / "features/picture1.npz").read_bytes())
    again = load_matcher(f"lxmert:{checkpoints['lxmert']}", **settings_of("lxmert", tmp_path))
    assert again([white], ["a star"]) == matcher(pictures[1:2], ["a star"])
    other = open_picture((tmp_path / "pictures/deep/picture0.png").read_bytes(), "other.png")
    with pytest.raises(ValueError, match="picture other"):
        matcher([other], ["a star"])
    with pytest.raises(ValueError, match=r"40 tokens.* 62 .*'a a"):
        matcher(pictures[:1], ["a " * 60])
