"""Chat models: against the path that `transformers` documents, one picture and one sentence at a time."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as library

from tests import tiny_chat
from tests.tiny import pictures
from tests.tiny_chat import BUILT, NEED_TORCHVISION, WITHOUT_BOS
from train.ask.chat import chat_inputs
from train.ask.config import Evaluation
from train.ask.local import ChatModel
from train.ask.requests import Request, open_picture, picture_of
from train.results.answers import request_key
from travlr.dataset import Example
from travlr.questions import make_question, messages

models_of: Any = library
TEXTS = ["a red circle", "the star is above the circle", "a star"]
Saved = Callable[[str], Path]


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Saved:
    """Saves a model of a family, whose processor can then be loaded without torchvision; gives its folder."""

    def saved(kind: str) -> Path:
        processor = tiny_chat.saved(kind, tmp_path)
        if kind in NEED_TORCHVISION:
            monkeypatch.setattr(models_of.AutoProcessor, "from_pretrained", lambda *_, **__: processor)
        return tmp_path

    return saved


def make_requests() -> list[Request]:
    """Every picture with every sentence."""
    requests = []
    for number, picture in enumerate(pictures()):
        file = io.BytesIO()
        picture.save(file, "PNG")
        for text in TEXTS:
            example = Example(f"{number}/{text}", file.getvalue(), "", text, True, "match", (), "{}", ())
            question = make_question(example)
            chat = messages(question, example, "image")
            requests.append(Request(example.id, "test_ind", "image", chat, question, request_key(chat)))
    return requests


def model_of(folder: Path, **settings: Any) -> ChatModel:
    values = {"answers": "likelihood", "precision": "float32", "device": "cpu", "batch_size": 4, **settings}
    return ChatModel(Evaluation(model=str(folder), **values), log=lambda _: None)


def scores_of(model: ChatModel) -> dict[str, float]:
    return {request.id: float(reply.score or 0.0) for request, reply in model.replies(make_requests())}


def official_score(processor: Any, model: Any, request: Request) -> float:
    """log p(true) - log p(false), of every spelling, as the documentation of `transformers` shows it."""
    text = request.messages[0]["content"][1]["text"]
    content = [{"type": "image", "image": open_picture(picture_of(request))}, {"type": "text", "text": text}]
    inputs = processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt",
    )  # fmt: skip
    with torch.no_grad():
        last = model(**inputs).logits[0, -1].log_softmax(-1)
    vocabulary = processor.tokenizer.get_vocab()
    spellings = [[f"{space}{word}" for word in words for space in ("", "Ġ", "▁")]
                 for words in (("true", "True", "yes", "Yes"), ("false", "False", "no", "No"))]  # fmt: skip
    true, false = (last[[vocabulary[w] for w in words if w in vocabulary]].logsumexp(0) for words in spellings)
    return float(true - false)


@pytest.mark.parametrize("kind", BUILT)
def test_chat_model_scores_are_those_of_the_official_path(kind: str, chat: Saved) -> None:
    folder = chat(kind)
    scores = scores_of(model_of(folder))
    processor = models_of.AutoProcessor.from_pretrained(folder)
    processor.image_processor = models_of.AutoImageProcessor.from_pretrained(folder, backend="pil")
    model = models_of.AutoModelForImageTextToText.from_pretrained(folder).eval()
    expected = {request.id: official_score(processor, model, request) for request in make_requests()}
    assert scores == pytest.approx(expected, abs=5e-5)
    assert np.ptp(list(scores.values())) > 0.05  # of pictures and sentences, not constant
    content = [{"type": "image", "image": pictures()[0]}, {"type": "text", "text": "a star"}]
    ids = chat_inputs(processor, [{"role": "user", "content": content}])["input_ids"][0].tolist()
    beginning = processor.tokenizer.bos_token_id  # stands once, where there is one
    assert (beginning is None) == (kind in WITHOUT_BOS) and (beginning is None or ids.count(beginning) == 1)


def test_chat_model_is_spread_by_accelerate(chat: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = chat("gemma3")
    expected = scores_of(model_of(folder))
    real = models_of.AutoModelForImageTextToText.from_pretrained

    def spread(*values: Any, device_map: str, **options: Any) -> Any:
        assert device_map == "balanced"
        model, about = real(*values, **options)
        model.to = lambda *_: pytest.fail("accelerate has placed the model")
        return model, about

    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr(models_of.AutoModelForImageTextToText, "from_pretrained", spread)
    assert scores_of(model_of(folder, device="balanced")) == expected
