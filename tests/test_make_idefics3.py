"""The small vision-language model of scripts/make_idefics3.py, with a tiny language model."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from PIL import Image

from scripts import make_idefics3
from tests import tiny_chat
from tests.helpers import generated
from train.ask.config import Evaluation
from train.ask.evaluation import evaluate
from travlr import Cardinality, Count, iterate

pytestmark = pytest.mark.usefixtures("one_thread", "unaudited", "rules_not_fitted")


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("language")
    tokenizer = tiny_chat.tokenizer("<|im_start|>", "<|im_end|>", adds=False)
    config = tiny_chat.models_of.LlamaConfig(**tiny_chat.TEXT, vocab_size=len(tokenizer), tie_word_embeddings=True)
    torch.manual_seed(0)
    tiny_chat.models_of.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_tokens_of_a_picture_are_its_cells(language: Path) -> None:
    """The connector joins the 4 x 4 patches of a cell, row by row; a cell's words are what its picture shows."""
    model, processor = make_idefics3.untrained(language)
    patches = torch.arange(24 * 24).view(24, 24)
    joined = model.model.connector.pixel_shuffle(patches.view(1, -1, 1), make_idefics3.JOINED)[0]
    for cell, of_cell in enumerate(joined):
        row, column = divmod(cell, make_idefics3.GRID)
        expected = patches[4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
        assert sorted(of_cell.tolist()) == sorted(expected.flatten().tolist())
    pixels, things = next(make_idefics3.batches(processor, 2))
    assert pixels.shape == (2, 1, 3, 384, 384)
    start = Cardinality().count.train
    for number, example in enumerate(iterate(Cardinality(), "train", start, start + 2)):
        picture = Image.open(io.BytesIO(example.image)).convert("RGB")
        for cell, thing in enumerate(things[number].tolist()):
            row, column = divmod(cell, make_idefics3.GRID)
            centre = picture.getpixel((64 * column + 32, 64 * row + 32))
            assert (centre == (255, 255, 255)) == (make_idefics3.THINGS[thing] == "empty")
            if centre != (255, 255, 255):
                words = make_idefics3.THINGS[thing]
                assert f"{words} at {'ABCDEF'[column]} {row + 1}" in example.caption


def test_model_is_asked_in_every_setting(language: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    monkeypatch.setattr(make_idefics3, "VISION", tiny)
    monkeypatch.setattr(make_idefics3, "CHECKED", 1)
    folder = tmp_path / "idefics3"
    assert 0 <= make_idefics3.make_idefics3(language, folder, steps=2, size=2, rate=1e-3, seed=0) <= 100
    data = generated(tmp_path / "data", Cardinality(count=Count(train=20, validation=10, test_ind=8, test_ood=8)))
    asked = Evaluation(
        model=str(folder), data=str(data), split="test_ind", limit=2, max_tokens=4, runs=str(tmp_path), device="cpu"
    )
    assert {row["test_setting"] for row in evaluate(asked, lambda line: None)} == {"image", "caption", "image+caption"}
