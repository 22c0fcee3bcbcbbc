"""Trained models as folders that `transformers` opens, with the same logits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig, AutoModel

from tests.test_models import CONTRACT, batch_for, build
from train.config import Recipe
from train.data.inputs import Inputs
from train.learning.module import Learner
from train.models.layers import Model
from train.models.saved import LIBRARY, TravlrModel, in_library, load_weights, save_model

pytestmark = pytest.mark.usefixtures("one_thread")

# Opens each folder of this one with `transformers`, where this project cannot be imported.
ALONE = """
import json, pathlib, sys
sys.modules.update(dict.fromkeys(("train", "travlr", "render", "tests")))
import torch, transformers
from safetensors.torch import load_file
for folder in pathlib.Path(sys.argv[1]).iterdir():
    (name,) = json.loads((folder / "config.json").read_text())["architectures"]
    model, loading = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not any(loading.values()), loading
    inputs = load_file(folder / "inputs")
    due = inputs.pop("logits")
    output = model(**inputs)
    logits = output.question_answering_score if "question_answering_score" in output else output.logits
    torch.testing.assert_close(logits, due, rtol=0, atol=2e-6)
    print(name)
"""


def saved(name: str, options: dict[str, Any], folder: Path) -> tuple[Learner, Inputs, Tensor]:
    """A random model in a folder, an input, and its logits of that."""
    learner = Learner(build(name, options).eval(), Recipe(), 1e-3, steps=1, seed=0)
    folder.mkdir()
    save_model(learner, folder)
    batch = batch_for(name, learner.model.shape)
    with torch.no_grad():
        return learner, batch, learner.model(batch)


@pytest.mark.parametrize(("name", "options"), CONTRACT)
def test_saved_model_is_loaded_and_opened(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    learner, batch, due = saved(name, options, tmp_path / "run")
    other = Learner(build(name, options), Recipe(), 1e-3, steps=1, seed=0)
    load_weights(other, tmp_path / "run")
    assert all(tensor.equal(other.state_dict()[key]) for key, tensor in learner.state_dict().items())
    if in_library(learner.model):
        return
    model, loading = AutoModel.from_pretrained(tmp_path / "run", output_loading_info=True)
    assert isinstance(model, TravlrModel) and not any(loading.values())
    with torch.no_grad():
        output = model(
            batch.tokens, batch.token_mask.long(), batch.features, batch.boxes, batch.region_mask, batch.pixels
        )
    torch.testing.assert_close(output.logits, due, rtol=0, atol=0)


def test_saved_model_is_opened_by_transformers_alone(tmp_path: Path) -> None:
    for name in ("bert", "roberta", "lxmert"):
        _, batch, due = saved(name, {}, tmp_path / name)
        inputs = {"input_ids": batch.tokens, "attention_mask": batch.token_mask.long(), "logits": due}
        if batch.features is not None and batch.boxes is not None and batch.region_mask is not None:
            inputs |= {"visual_feats": batch.features, "visual_pos": batch.boxes}
            inputs["visual_attention_mask"] = batch.region_mask.long()
        save_file(inputs, tmp_path / name / "inputs")
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert sorted(done.stdout.split()) == sorted(name for name, _ in LIBRARY.values()), done.stderr


class OwnModel(Model):
    """Of a user."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(5, 4)
        self.head = torch.nn.Linear(4, 2)

    @property
    def embeddings(self) -> torch.nn.Embedding:
        return self.words


def test_own_model_is_loaded_and_has_no_config(tmp_path: Path) -> None:
    learner, other = (Learner(OwnModel(), Recipe(), 1e-3, steps=1, seed=0) for _ in range(2))
    save_model(learner, tmp_path)
    load_weights(other, tmp_path)
    assert all(tensor.equal(other.state_dict()[key]) for key, tensor in learner.state_dict().items())
    assert not (tmp_path / "config.json").exists()


def test_config_of_others_imports_nothing(tmp_path: Path) -> None:
    saved("uniter", {}, tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model": "os:system"}))
    with pytest.raises(ValueError, match="os:system"):
        TravlrModel(AutoConfig.from_pretrained(tmp_path / "run"))
