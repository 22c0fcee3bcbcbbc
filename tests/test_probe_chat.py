"""Generative models: against the path that `transformers` documents, one picture and one sentence at a time."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as library
from PIL import Image

from analysis.probe.config import Probe
from analysis.probe.report.results import load_results
from analysis.probe.run import probe
from analysis.probe.scorers import generative
from analysis.probe.scorers.generative import QUESTION, CachedTower, GenerativeScorer
from analysis.probe.scorers.loading import load_scorer
from analysis.probe.scorers.scoring import ANSWERS
from tests import tiny_chat
from tests.helpers import one_line
from tests.tiny import pictures
from tests.tiny_chat import BUILT, WITHOUT_BOS

models_of: Any = library
TEXTS = ["a red circle", "the star is above the circle", "a star"]
NEED_TORCHVISION = ("mistral3", *WITHOUT_BOS)  # whose processors do not load without it
Saved = Callable[[str], Path]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    """Of each family that a test has asked for its folder and processor."""
    return {}


@pytest.fixture
def chat(
    folders: dict[str, tuple[Path, Any]],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    one_thread: None,
) -> Saved:
    """The folder of a family, whose processor can be loaded without torchvision."""

    def saved(kind: str) -> Path:
        if kind not in folders:
            folder = tmp_path_factory.mktemp(kind)
            folders[kind] = folder, tiny_chat.saved(kind, folder)
        folder, processor = folders[kind]
        if kind in NEED_TORCHVISION:
            monkeypatch.setattr(models_of.AutoProcessor, "from_pretrained", lambda *_, **__: processor)
        return folder

    return saved


def scorer_of(folder: Path, **settings: Any) -> GenerativeScorer:
    found = load_scorer(str(folder), **{"device": "cpu", **settings})
    assert isinstance(found, GenerativeScorer)
    return found


def crossed() -> tuple[list[Image.Image], list[str]]:
    """Every picture with every sentence."""
    seen = pictures()
    return [image for image in seen for _ in TEXTS], TEXTS * len(seen)


class Official:
    """A model asked as the documentation of `transformers` shows it."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        self.processor = models_of.AutoProcessor.from_pretrained(folder)
        self.processor.image_processor = models_of.AutoImageProcessor.from_pretrained(folder, backend="pil")
        self.model = models_of.AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype).eval()

    def inputs(self, image: Image.Image, text: str) -> Any:
        question = QUESTION.replace("{text}", text)
        if self.processor.chat_template is None:  # PaliGemma
            asked = f"Question: {question} Answer:"
            return self.processor(images=image, text=asked, return_tensors="pt")
        content = [{"type": "image", "image": image}, {"type": "text", "text": question}]
        return self.processor.apply_chat_template(
            [{"role": "user", "content": content}],
            add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt",
        )  # fmt: skip

    def answer(self, image: Image.Image, text: str) -> tuple[float, float]:
        """log p(yes) - log p(no), and p(yes) + p(no)."""
        with torch.no_grad():
            last = self.model(**self.inputs(image, text).to(self.model.dtype)).logits[0, -1].float().log_softmax(-1)
        vocabulary = self.processor.tokenizer.get_vocab()
        yes, no = (
            last[[vocabulary[word] for word in words if word in vocabulary]].logsumexp(0)
            for words in (("yes", "Yes", "Ġyes"), ("no", "No", "Ġno"))
        )
        return float(yes - no), float(yes.exp() + no.exp())


@pytest.mark.parametrize("kind", BUILT)
def test_scores_are_those_of_the_official_path(kind: str, chat: Saved) -> None:
    folder = chat(kind)
    scores, shares = scorer_of(folder).with_probabilities(*crossed())
    official = Official(folder)
    wanted = [official.answer(image, text) for image, text in zip(*crossed(), strict=True)]
    np.testing.assert_allclose(scores, [score for score, _ in wanted], atol=5e-5)
    np.testing.assert_allclose(shares, [share for _, share in wanted], atol=1e-6)
    assert np.ptp(scores) > 0.05  # of pictures and sentences, not constant


@pytest.mark.parametrize("kind", BUILT)
def test_a_text_begins_once(kind: str, chat: Saved) -> None:
    scorer = scorer_of(chat(kind))
    assert scorer.join is not None
    ids = scorer.join(pictures()[0], "a star")["input_ids"][0].tolist()
    beginning = scorer.processor.tokenizer.bos_token_id
    assert (beginning is None) == (kind in WITHOUT_BOS)
    assert beginning is None or ids.count(beginning) == 1


@pytest.mark.parametrize("kind", [kind for kind in BUILT if kind != "mistral3"])
def test_a_picture_is_encoded_once_with_equal_scores(kind: str, chat: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = chat(kind)
    scorer, encoded = scorer_of(folder), list[int]()
    for module in scorer.model.modules():
        if isinstance(tower := module.forward, CachedTower):
            tower.forward = counting(tower.forward, tower.names[0], encoded)
    scores = scorer(*crossed())
    seen = sum(encoded)
    encoded.clear()
    scorer(pictures(), TEXTS[:1] * len(pictures()))
    assert seen == sum(encoded) > 0
    monkeypatch.setattr(generative, "find_vision_towers", lambda _: [])
    np.testing.assert_allclose(scores, scorer_of(folder)(*crossed()), atol=5e-5)


def counting(forward: Callable[..., Any], pixels: str, encoded: list[int]) -> Callable[..., Any]:
    """A vision tower's `forward` that adds how many rows of pixels it is given."""

    def counted(**given: Any) -> Any:
        encoded.append(len(given[pixels]))
        return forward(**given)

    return counted


# Precision, devices, processors -------------------------------------------------------------------------------------


def test_weights_are_loaded_in_the_precision(chat: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = chat("mllama")
    loaded_in = []
    real = models_of.AutoModelForImageTextToText.from_pretrained

    def recorded(*given: Any, **options: Any) -> Any:
        loaded_in.append(options["dtype"])
        return real(*given, **options)

    monkeypatch.setattr(models_of.AutoModelForImageTextToText, "from_pretrained", recorded)
    for name, dtype in (("bf16", torch.bfloat16), ("float16", torch.float16), ("float32", torch.float32)):
        scorer = scorer_of(folder, precision=name)
        assert loaded_in.pop() == dtype and scorer.precision_name == name
        assert {parameter.dtype for parameter in scorer.model.parameters()} == {dtype}
        # Rotary frequencies stay in float32, as `transformers` has them.
        assert {buffer.dtype for buffer in scorer.model.buffers()} == {torch.float32}
        image, text = pictures()[0], TEXTS[0]
        assert scorer([image], [text])[0] == pytest.approx(Official(folder, dtype).answer(image, text)[0], abs=1e-5)


def test_precision_may_be_that_of_the_weights(chat: Saved, tmp_path: Path) -> None:
    folder = chat("gemma3")
    assert scorer_of(folder, precision="auto").precision_name == "float32"
    half = models_of.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.bfloat16)
    half.save_pretrained(tmp_path)
    models_of.AutoProcessor.from_pretrained(folder).save_pretrained(tmp_path)
    assert scorer_of(tmp_path, precision="auto").precision_name == "bf16"
    scorer = scorer_of(tmp_path)  # float32, the default
    assert {parameter.dtype for parameter in scorer.model.parameters()} == {torch.float32}


def test_accelerate_spreads_a_model(chat: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = chat("gemma3")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"device_map=auto: needs accelerate; .*\[vlm\]") as caught:
        scorer_of(folder, device_map="auto", device="auto")
    one_line(str(caught.value))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    real = models_of.AutoModelForImageTextToText.from_pretrained

    def spread(*given: Any, device_map: str, **options: Any) -> Any:
        assert device_map == "balanced"
        model, about = real(*given, **options)
        model.to = lambda *_: pytest.fail("accelerate has placed the model")
        return model, about

    wanted = scorer_of(folder)(*crossed())
    monkeypatch.setattr(models_of.AutoModelForImageTextToText, "from_pretrained", spread)
    assert (scorer_of(folder, device_map="balanced")(*crossed()) == wanted).all()
    with pytest.raises(ValueError, match="device_map=auto"):
        Probe(device="cpu", device_map="auto")


# p(yes) + p(no) -----------------------------------------------------------------------------------------------------


def test_the_probability_of_an_answer_is_in_results(
    chat: Saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = chat("idefics3")
    monkeypatch.chdir(tmp_path)
    config = Probe(corpus="predicate_noun", count=6, model=[str(folder)], baselines=False, out="out")
    (result,) = probe(config, log=lambda _: None)
    lines = [json.loads(line) for line in (tmp_path / "out" / result.name / ANSWERS).read_text().splitlines()]
    shares = [share for line in lines for share in line["yes_or_no"]]
    assert len(shares) == 12 and all(0 < share < 1 for share in shares)
    assert result.yes_or_no == pytest.approx(np.mean(shares)) and np.mean(shares) < 0.5
    picture = Image.open(next((tmp_path / "data").rglob(lines[0]["image"])))
    _, (share,) = scorer_of(folder).with_probabilities([picture], [lines[0]["positives"][0]])
    assert shares[0] == pytest.approx(share, abs=1e-6)
    report = (tmp_path / "out/report.html").read_text()
    assert f"{result.yes_or_no:.3f} on average" in report and "set question=TEXT to ask in other words" in report
    assert load_results(tmp_path / "out")[0][0] == result
    config_file = tmp_path / "out" / result.name / "config.json"
    assert json.loads(config_file.read_text())["identity"]["prompt"] == "chat template"
    (again,) = probe(config, log=lambda _: None)
    assert again.yes_or_no == result.yes_or_no  # of answers that were read
