"""Tests: the predictions and scores of a model in every test setting, in and out of distribution."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import torch

from train.data.batching import MODALITIES, sorted_batches, visible_modalities
from train.data.examples import Examples
from train.data.inputs import Inputs
from train.data.pixels import Pictures
from train.learning.batches import TOKENS, RunData, test_batches
from train.learning.threads import in_threads
from train.models.layers import Model
from train.results.baselines import BaselineScore, QueryTexts, text_baselines
from train.results.columns import TEST_SPLITS, Row
from train.results.predictions import predictions_table
from train.results.scores import baseline_columns, facts_in_order, prediction_columns
from travlr.baselines import best_unbound, dataset_baselines

MAX_VISION = 1 << 26  # numbers of image states in memory at a time: 256 MiB

Batches = Iterator[tuple[str, np.ndarray, Inputs]]  # setting, rows of examples, model inputs


def test_matrix(data: RunData, model: Model, device: str, precision: str) -> tuple[list[Row], list[pa.Table]]:
    """Rows of results, and tables of predictions, for every test setting on test_ind and test_ood."""
    torch_device = torch.device("cuda" if device == "gpu" else "cpu")
    model.to(torch_device).eval()
    train = data.source.raw("train")
    train_texts = QueryTexts(train.queries, train.answers, (train.grid > 0).sum(axis=1))
    unbound = best_unbound(dataset_baselines(data.source.folder))
    rows, predictions = [], []
    for split in TEST_SPLITS:
        examples = data.examples(split)
        baselines = text_baselines(train_texts, QueryTexts(examples.queries, examples.answers, examples.objects))
        if split in unbound:
            baselines["unbound"] = BaselineScore(unbound[split].macro_f1, unbound[split].accuracy)
        scenes = np.unique(examples.grid, axis=0, return_inverse=True)[1]
        facts = facts_in_order(examples.ids, examples.answers, examples.groups.tolist(), scenes)
        for setting, logits in predict(model, examples, data.run.test_settings, torch_device, precision).items():
            row: Row = {"test_setting": setting, "split": split}
            rows.append(row | prediction_columns(logits, facts) | baseline_columns(baselines))
            predictions.append(predictions_table(examples.ids, split, setting, logits, examples.answers))
    return rows, predictions


def predict(
    model: Model, examples: Examples, settings: Sequence[str], device: torch.device, precision: str
) -> dict[str, np.ndarray]:
    """Log-odds of true, (N,) float32, in each setting."""

    def predict_batch(batch: tuple[str, np.ndarray, Inputs]) -> tuple[str, np.ndarray, np.ndarray]:
        setting, rows, inputs = batch
        with testing(device, precision):
            logits = model(inputs.without_labels().to(device)).float()
            return setting, rows, (logits[:, 1] - logits[:, 0]).cpu().numpy()

    if model.architecture.separate_vision:
        batches = _batches_with_vision(model, examples, settings, device, precision)
    else:
        batches = ((setting, *batch) for setting in settings for batch in test_batches(examples, setting))
    log_odds = {setting: np.zeros(len(examples), np.float32) for setting in settings}
    of_each: Callable[..., Iterator[tuple[str, np.ndarray, np.ndarray]]] = in_threads if device.type == "cpu" else map
    for setting, rows, values in of_each(predict_batch, batches):
        log_odds[setting][rows] = values
    return log_odds


@contextlib.contextmanager
def testing(device: torch.device, precision: str) -> Iterator[None]:
    """How a model computes in tests. Each thread needs it."""
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
        yield


def _batches_with_vision(
    model: Model, examples: Examples, settings: Sequence[str], device: torch.device, precision: str
) -> Batches:
    """As `test_batches`, with image states: each distinct picture, and the blank one, is encoded once for all settings.

    Pictures are encoded in portions, so that their states fit into memory.
    """

    def encode(rows: np.ndarray, image: bool) -> torch.Tensor:
        inputs = examples.inputs(rows, np.full(len(rows), image), np.zeros(len(rows), bool))
        with testing(device, precision):
            return model.encode_vision(inputs.without_labels().to(device))

    texts = copy.copy(examples)
    texts.pixels = None
    with_image = [setting for setting in settings if MODALITIES[setting][0]]
    if blank := [setting for setting in settings if setting not in with_image]:
        states = encode(np.arange(1), False)  # (1, 1 + R, H)
        for setting in blank:
            for rows, inputs in test_batches(texts, setting):
                yield setting, rows, replace(inputs, vision_states=states)
    first, which = distinct(examples)
    order = np.argsort(which, kind="stable")
    shape = model.shape
    numbers = ((shape.picture // shape.patch) ** 2 + 1) * shape.width  # of the states of one picture
    portion, batch = max(1, MAX_VISION // numbers), max(1, TOKENS * shape.width // numbers)
    for start in range(0, len(first) if with_image else 0, portion):
        pictures = first[start : start + portion]
        states = torch.cat([encode(pictures[i : i + batch], True) for i in range(0, len(pictures), batch)])
        rows = order[slice(*np.searchsorted(which[order], (start, start + portion)))]
        for setting in with_image:
            text_rows = examples.text_rows(rows, visible_modalities(setting, rows)[1])
            for part in sorted_batches(examples.texts.lengths[text_rows], TOKENS):
                inputs = texts.inputs(rows[part], *visible_modalities(setting, rows[part]))
                yield setting, rows[part], replace(inputs, vision_states=states[which[rows[part]] - start])


def distinct(examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each distinct picture, and for each of N rows the number of its picture."""
    if examples.regions is not None:
        keys = zip(examples.regions.index[:-1], examples.regions.boxes[:-1], strict=True)
        contents = [index.tobytes() + boxes.tobytes() for index, boxes in keys]
    elif isinstance(examples.pixels, Pictures):
        contents = [row.tobytes() for row in examples.grid]
    else:  # two files may show the same scene in different pixels
        return np.arange(len(examples)), np.arange(len(examples))
    numbers: dict[bytes, int] = {}
    which = np.array([numbers.setdefault(content, len(numbers)) for content in contents], np.int64)
    return np.unique(which, return_index=True)[1], which
