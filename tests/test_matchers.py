"""Matchers of `transformers` models: against direct calls of the models, one picture and one sentence at a time."""

from __future__ import annotations

import functools
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as library
from PIL import Image
from safetensors.torch import load_file, save_file

from tests.helpers import edit, one_line
from tests.tiny import pictures, saved
from train.ask.matchers.base import Matcher, words_of
from train.ask.matchers.families import FAMILIES
from train.ask.matchers.loading import load_matcher

models_of: Any = library
TEXTS = ["a red circle", "a blue star is above a circle", "a star", "a blue circle", "the circle is above the star"]


@pytest.fixture(autouse=True)
def seeded(one_thread: None) -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: saved(name, tmp_path_factory.mktemp("models") / name) for name in FAMILIES}


@pytest.fixture(scope="module")
def matchers(folders: dict[str, Path]) -> Callable[..., Matcher]:
    """Matchers by family, head and size of batches; each is loaded once."""

    @functools.cache
    def load(kind: str, head: str | None = None, **settings: Any) -> Matcher:
        matcher = load_matcher(str(folders[kind]), device="cpu", head=head, **settings)
        assert isinstance(matcher, Matcher)
        return matcher

    return load


def crossed() -> tuple[list[Image.Image], list[str]]:
    """Every picture with every sentence."""
    images = pictures()
    return [image for image in images for _ in TEXTS], TEXTS * len(images)


# Direct calls, as the documentation of `transformers` shows them ----------------------------------------------------


def direct(kind: str, folder: Path, image: Image.Image, text: str, head: str | None = None) -> float:
    """The score of one picture and one sentence by the library's own forward pass."""
    model = getattr(models_of, FAMILIES[kind][0]).from_pretrained(folder).eval()
    if kind == "blip-2":
        inputs = models_of.AutoProcessor.from_pretrained(folder)(images=image, text=text, return_tensors="pt")
        with torch.no_grad():
            logits = model(**inputs, use_image_text_matching_head=head != "itc").logits_per_image[0]
        return float(logits[0] if head == "itc" else logits[1] - logits[0])
    tokenizer = models_of.AutoTokenizer.from_pretrained(folder)
    processor = models_of.AutoImageProcessor.from_pretrained(folder, backend="pil")
    longest = {"siglip": 16, "siglip2": 40}.get(kind)
    padding = {"padding": "max_length", "max_length": longest} if longest else {}
    words = tokenizer(text, return_tensors="pt", **padding)
    inputs = {"input_ids": words["input_ids"], **processor(images=image, return_tensors="pt")}
    if not kind.startswith("siglip"):
        inputs["attention_mask"] = words["attention_mask"]
    with torch.no_grad():
        if kind == "align":
            return float(model(**inputs).logits_per_image * model.temperature)
        if "clip" in kind:
            out = model(**inputs)
            return float(out.logits_per_image / model.logit_scale.exp())
        if kind.startswith("siglip"):
            return float(model(**inputs).logits_per_image)
        if kind == "blip":
            logits = model(**inputs, use_itm_head=head != "itc").itm_score
            return float(logits) if head == "itc" else float(logits[0, 1] - logits[0, 0])
        if kind == "flava":
            out = model(**inputs, input_ids_masked=inputs["input_ids"], return_loss=False)
            if head == "itc":
                return float(out.contrastive_logits_per_image / model.flava.logit_scale.exp())
            return float(out.itm_logits[0, 1] - out.itm_logits[0, 0])
        logits = model(**inputs).logits
        return float(logits) if kind == "vilt" else float(logits[0, 1] - logits[0, 0])


CASES = [(kind, head) for kind in FAMILIES for head in FAMILIES[kind][1].heads]


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_scores_are_those_of_a_direct_call(
    kind: str, head: str | None, folders: dict[str, Path], matchers: Callable[..., Matcher]
) -> None:
    matcher = matchers(kind, head)
    images, texts = crossed()
    scores = matcher(images, texts)
    assert scores.dtype == np.float64 and scores.shape == (len(texts),)
    for place in (0, 6, 12):
        wanted = direct(kind, folders[kind], images[place], texts[place], head)
        assert scores[place] == pytest.approx(wanted, abs=1e-5, rel=1e-5)
    assert len(set(scores.round(6))) > len(scores) // 2  # of pictures and sentences, not constant
    odds = kind in ("siglip", "siglip2") or (kind in ("blip", "blip-2", "flava", "bridgetower") and head == "itm")
    assert (matcher.name, matcher.threshold) == (str(folders[kind]), 0.0 if odds else None)


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_batches_decide_nothing(kind: str, head: str | None, matchers: Callable[..., Matcher]) -> None:
    images, texts = crossed()
    one, many = matchers(kind, head, batch_size=1), matchers(kind, head)
    scores = many(images, texts)
    order = np.random.default_rng(1).permutation(len(texts))
    shuffled = many([images[i] for i in order], [texts[i] for i in order])
    single = one(images, texts)
    near = 2e-6 * max(1.0, np.abs(scores).max())  # log-odds near 0 are differences of logits as large as any
    np.testing.assert_allclose(single, scores, atol=near, rtol=1e-5)
    np.testing.assert_allclose(shuffled, scores[order], atol=near, rtol=1e-5)
    of_pictures = [values.reshape(-1, len(TEXTS)) for values in (single, scores)]
    first, second = (values[:, :, None] > values[:, None, :] for values in of_pictures)
    assert (first == second).all()  # which of any two sentences fits a picture better


TOWERS = dict.fromkeys(FAMILIES, "vision_model") | {
    "blip-2": "vision_model.embeddings",
    "metaclip_2": "vision_model.embeddings",
    "vilt": "vilt.embeddings.patch_embeddings",
    "flava": "flava.image_model",
    "bridgetower": "bridgetower.vision_model.visual.embeddings",
}


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_picture_is_encoded_once_and_equal_pairs_tie(kind: str, matchers: Callable[..., Matcher]) -> None:
    matcher, counted = matchers(kind), []

    def count(_: Any, given: Any, out: Any) -> None:
        counted.append(len(out if isinstance(out, torch.Tensor) else out.last_hidden_state))

    hook = matcher.model.get_submodule(TOWERS[kind]).register_forward_hook(count)
    images, texts = crossed()
    scores = matcher(images * 2, texts * 2)
    hook.remove()
    assert sum(counted) == 4
    assert (scores[: len(texts)] == scores[len(texts) :]).all()


def test_vilt_keeps_the_random_state(matchers: Callable[..., Matcher]) -> None:
    matcher, state = matchers("vilt"), torch.get_rng_state()
    first = matcher(*crossed())
    assert torch.equal(torch.get_rng_state(), state)
    assert (matcher(*crossed()) == first).all()


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_text_that_is_too_long_is_named_not_cut(kind: str, matchers: Callable[..., Matcher]) -> None:
    long = "the star is above the circle and " * 12
    with pytest.raises(ValueError, match=r"tokens.* the star is"):
        matchers(kind)(pictures()[:1], [long])
    assert "tokens" in str(matchers(kind).refusal(long)) and matchers(kind).refusal("a star") is None


# Names and settings that cannot be had ------------------------------------------------------------------------------


def refused(match: str, name: str, **settings: Any) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        load_matcher(name, **{"device": "cpu", **settings})
    one_line(str(caught.value))


def changed(folder: Path, to: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> str:
    """A copy of a model's folder whose weights are changed."""
    shutil.copytree(folder, to)
    weights = load_file(to / "model.safetensors")
    change(weights)
    save_file(weights, to / "model.safetensors", {"format": "pt"})
    return str(to)


@pytest.mark.parametrize(
    ("kind", "key"), [("clip", "visual_projection.weight"), ("blip", "itm_head.weight"), ("vilt", "rank_output.bias")]
)
def test_a_model_that_lacks_what_it_scores_with_is_refused(
    kind: str, key: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    name = changed(folders[kind], tmp_path / "model", lambda weights: weights.__delitem__(key))
    refused(f"lacks 1 of the weights .*{key}", name)


def test_load_matcher_refuses_unknown_weights(folders: dict[str, Path], tmp_path: Path) -> None:
    def deeper(weights: dict[str, torch.Tensor]) -> None:
        weights["vision_model.encoder.layers.2.mlp.fc1.bias"] = torch.zeros(48)

    def headed(weights: dict[str, torch.Tensor]) -> None:
        weights["mlm_score.bias"] = torch.zeros(4)

    refused("CLIPModel .*1 of its weights.*layers.2.mlp.fc1.bias", changed(folders["clip"], tmp_path / "deep", deeper))
    headless = load_matcher(changed(folders["clip"], tmp_path / "headed", headed), device="cpu")
    images, texts = crossed()
    assert (headless(images, texts) == load_matcher(str(folders["clip"]), device="cpu")(images, texts)).all()


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path(HOSTILE),))


HOSTILE = "it-ran"


def test_a_pickle_that_would_run_code_is_refused(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(folders["clip"], tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    torch.save({"logit_scale": Hostile()}, folder / "pytorch_model.bin")
    refused("cannot be loaded", str(folder))
    assert not (tmp_path / HOSTILE).exists()


def test_load_names_the_model_that_it_cannot_load(folders: dict[str, Path], tmp_path: Path) -> None:
    clip = str(folders["clip"])
    refused("no such folder", str(tmp_path / "absent"))
    refused("uniter:FILE", "uniter")
    refused("head=itm", clip, head="itm")
    refused("device=abacus", clip, device="abacus")
    (tmp_path / "empty").mkdir()
    refused("no config.json", str(tmp_path / "empty"))
    (tmp_path / "empty/config.json").write_text(json.dumps({"model_type": "bert"}))
    refused("model_type=bert", str(tmp_path / "empty"))


def test_remote_code_is_never_run(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["clip"], tmp_path / "model")
    (folder / "hostile.py").write_text(f"open({str(tmp_path / HOSTILE)!r}, 'w')\nclass Other: ...\n")
    autos = ("AutoConfig", "AutoModel", "AutoModelForImageTextToText", "AutoProcessor", "AutoImageProcessor")
    there = {"auto_map": {**dict.fromkeys(autos, "hostile.Other"), "AutoTokenizer": ["hostile.Other", None]}}
    for name in ("config.json", "tokenizer_config.json", "preprocessor_config.json", "processor_config.json"):
        if (folder / name).exists():
            edit(folder / name, **there)
    load_matcher(str(folder), device="cpu")(pictures()[:1], TEXTS[:1])
    for name, changes in (
        ("tokenizer_config.json", {"tokenizer_class": "Other"}),
        ("config.json", {"model_type": "new"}),
    ):
        edit(folder / name, **changes)
    refused("model_type=new .*not run here", str(folder))
    assert not (tmp_path / HOSTILE).exists()


def test_a_tokenizer_of_another_model_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["blip"], tmp_path / "model")
    vocabulary = {w: n for n, w in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(90))))}
    models_of.BertTokenizer(vocab=vocabulary).save_pretrained(folder)
    refused("tokenizer has 95 tokens", str(folder))


# Functions of a user ------------------------------------------------------------------------------------------------

MODULE = """
import numpy as np
def red(images, texts):
    return [np.asarray(image)[..., 0].mean() * ("red" in text) for image, text in zip(images, texts)]
red.threshold = 3.0
number = 5
def learned(images, texts):
    import torch
    return torch.ones(len(texts), requires_grad=True) * 2
def imaginary(images, texts):
    return [1j for _ in texts]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_probe_rule", raising=False)
    (tmp_path / "my_probe_rule.py").write_text(MODULE)
    return tmp_path


def test_a_users_function_is_a_matcher(here: Path) -> None:
    matcher = load_matcher("my_probe_rule:red")
    images = [Image.new("RGB", (2, 2), (200, 0, 0)), Image.new("RGB", (2, 2), (9, 0, 0))]
    assert matcher(images, ["a red one", "a blue one"]).tolist() == [200.0, 0.0]
    assert (matcher.name, matcher.threshold) == ("my_probe_rule:red", 3.0)
    refused("has no .*function number", "my_probe_rule:number")
    refused("there is no module nowhere_at_all", "nowhere_at_all:score")
    assert load_matcher("my_probe_rule:learned")(pictures()[:2], TEXTS[:2]).tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="needs numbers"):
        load_matcher("my_probe_rule:imaginary")(pictures()[:1], TEXTS[:1])


# Words and their tokens ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["clip", "blip", "bridgetower", "siglip"])
def test_words_have_the_tokens_that_spell_them(kind: str, folders: dict[str, Path]) -> None:
    tokenizer = models_of.AutoTokenizer.from_pretrained(folders[kind])
    text = "a red circle, is above: the star"
    ids = tokenizer(text)["input_ids"]
    words = words_of(tokenizer, text)
    assert [word for word, _ in words] == ["a", "red", "circle", "is", "above", "the", "star"]
    for word, places in words:
        spelled = "".join(tokenizer.convert_ids_to_tokens([ids[place] for place in places]))
        assert spelled.replace("</w>", "").replace("Ġ", "") == word
