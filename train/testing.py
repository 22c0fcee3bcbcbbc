"""The test matrix: a model's answers in every test setting, in and out of distribution."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from train.batches import Parts, test_rows
from train.data import Examples, shown
from train.evaluate import Scores, Texts, by_group, couples_right, floors, score
from train.models.layers import Model
from train.results import TEST_SPLITS, predictions_table


@dataclass
class Tested:
    rows: list[tuple[tuple[str, str, Scores, Any], dict[str, Any]]]
    predictions: list[Any]


def test_matrix(parts: Parts, model: Model, device: str, precision: str) -> Tested:
    """Scores and predictions in every test setting, in and out of distribution."""
    where = torch.device("cuda" if device == "gpu" else "cpu")
    model.to(where).eval()
    train = parts.source.raw("train")
    seen = Texts(train.queries, train.answers, (train.grid > 0).sum(axis=1))
    tested = Tested([], [])
    for split in TEST_SPLITS:
        examples = parts.examples(split)
        floor = floors(seen, Texts(examples.queries, examples.answers, examples.objects))
        for setting in parts.run.tests:
            logits = predict(model, examples, setting, where, precision)
            found = {
                "groups": by_group(examples.answers, logits, examples.groups.tolist()),
                "couples_right": couples_right(examples.answers, logits),
            }
            tested.rows.append(((setting, split, score(examples.answers, logits), floor), found))
            tested.predictions.append(predictions_table(examples.ids, split, setting, logits, examples.answers))
    return tested


@torch.inference_mode()
def predict(model: Model, examples: Examples, setting: str, device: torch.device, precision: str) -> np.ndarray:
    """Log-odds of true, (N,) float32."""
    logits = np.zeros(len(examples), np.float32)
    cast = torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
    for rows in test_rows(examples, setting):
        inputs = examples.inputs(rows, *shown(setting, rows, None)).to(device)
        with cast:
            out = model(inputs).float()
        logits[rows] = (out[:, 1] - out[:, 0]).cpu().numpy()
    return logits
