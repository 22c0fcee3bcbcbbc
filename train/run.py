"""One run from its config to its results: data, model, training, the whole test matrix."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from train.config import Run, identity
from train.data import Examples, Raw, Sight, Source, bucketed, in_order, shown, streamed
from train.devices import accelerator, chosen_precision, gpu_names, keep_memory
from train.evaluate import Scores, Texts, by_group, couples_right, floors, score
from train.fit import fit
from train.inputs import Inputs
from train.masking import deciding_tokens, masked_queries
from train.models import MODELS, Model, make_model, shape_of
from train.module import Learner
from train.results import (
    TEST_SPLITS,
    Row,
    finish_run,
    is_finished,
    predictions_table,
    read_results,
    result_row,
    start_run,
    surroundings,
)
from train.text import Words, grammar_tokenizer
from travlr.config import CONFIGS
from travlr.dataset import MANIFEST
from travlr.files import locked

Say = Callable[[str], object]
TOKENS = 16_384  # padded tokens of a batch in evaluation


@dataclass(frozen=True)
class Parts:
    """What a run works with, made once: its data, its words and what the model is shown."""

    run: Run
    source: Source
    words: Words
    sight: Sight

    def examples(self, split: str, limit: int | None = None) -> Examples:
        return self.checked(Examples(self.source.raw(split, limit), self.words, self.sight))

    def checked(self, examples: Examples) -> Examples:
        """Raises `ValueError` where a text is longer than the model takes: nothing is ever cut."""
        longest, limit = examples.texts.lengths, shape_of(self.run.model, self.run.size).positions
        limit -= 2 if self.run.model == "roberta" else 0  # its positions count from 2
        if too_long := int((longest[: len(examples)] > limit).sum()):
            raise ValueError(
                f"size={self.run.size}: {too_long} of {len(examples)} texts have more than the {limit} tokens that "
                f"model={self.run.model} takes (the longest {longest.max()}); use data with fewer objects"
            )
        return examples


def run(config: Run, say: Say = print) -> list[Row]:
    """Train and test; returns the results, one row for each test setting and split. A finished run is only read.

    Raises `ValueError`, in one line that names the setting, for whatever cannot be done.
    """
    device = accelerator(config)
    source = Source(prepare_data(config, say))
    if source.task != config.task:
        raise ValueError(f"data={source.folder}: holds task={source.task}, not task={config.task}")
    known = identity(config, dataset=source.digest)
    folder = start_run(Path(config.runs), known, data=str(source.folder))
    if is_finished(folder):
        say(f"{folder}: finished before; its results follow")
        return read_results(folder)
    with locked(folder):
        return train_and_test(config, source, folder, device, say)


def prepare_data(config: Run, say: Say) -> Path:
    """The dataset's folder; data/TASK is made where it is missing."""
    folder = Path(config.data or f"data/{config.task}")
    if not (folder / MANIFEST).is_file():
        if config.data is not None:
            raise ValueError(f"data={folder}: holds no dataset; make it with python -m travlr.generate out={folder}")
        from travlr.generate import Job, generate_dataset

        say(f"{folder}: making the dataset")
        generate_dataset(CONFIGS[config.task](), Job(out=str(folder)), say)
    return folder


def train_and_test(config: Run, source: Source, folder: Path, device: str, say: Say) -> list[Row]:
    keep_memory()
    precision, why = chosen_precision(config, device)
    say(f"{folder}: {device}, {precision} ({why})")
    torch.manual_seed(config.seed)
    words = Words(grammar_tokenizer())
    sees = MODELS[config.model].sees
    side = shape_of(config.model, config.size).picture if sees == "pixels" else 0
    parts = Parts(config, source, words, Sight(sees, config.regions, side, folder.parent / ".features"))
    model = build(config, words)
    batches, steps, count = fine_tuning(parts)
    validation = parts.examples("validation", config.training.validation)
    learner = Learner(
        model,
        config.optimiser,
        config.learning_rate,
        steps,
        batches,
        lambda: test_batches(validation, own_setting(config.setting)),
        config.seed,
        config.training.loss,
    )
    started = time.monotonic()
    fit(learner, config, folder, device, precision, say)
    trained = time.monotonic()
    shared = {
        "experiment": config.experiment,
        "model": config.model,
        "size": config.size,
        "setting": config.setting,
        "task": config.task,
        "seed": config.seed,
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "weights": "random",
        "regions": config.regions.source if sees == "regions" else None,
        "precision": precision,
        "steps": steps,
        "train_examples": count,
        "train_seconds": round(trained - started, 1),
        "dataset": source.digest,
        **surroundings(gpu_names(device)),
    }
    tested = test_matrix(parts, model, device, precision)
    shared["evaluate_seconds"] = round(time.monotonic() - trained, 1)
    rows = [result_row(shared, *named, **found) for named, found in tested.rows]
    finish_run(folder, rows, tested.predictions, say)
    return read_results(folder)


def build(config: Run, words: Words) -> Model:
    """The model with random weights. At `base` it has the published vocabulary, of which our words are the first."""
    options: dict[str, Any] = {}
    if config.controlled:
        options["controlled"] = True
    for name in ("boxes", "visual_token_type"):
        if getattr(config, name) is not None:
            options[name] = getattr(config, name)
    changes = {} if config.size == "base" else {"vocabulary": words.size}
    model = make_model(config.model, config.size, options, **changes)
    if config.training.frozen:
        for parameter in model.encoder_parameters():
            parameter.requires_grad_(False)
    return model


def own_setting(setting: str) -> str:
    return "image+caption" if setting == "mixed" else setting


# Batches of fine-tuning ------------------------------------------------------------------------------------------


def generator_of(*key: int) -> np.random.Generator:
    """Random numbers of their own for each (seed, purpose, epoch, …)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


def fine_tuning(parts: Parts) -> tuple[Callable[[int], Iterator[Inputs]], int, int]:
    """Batches of an epoch, optimiser steps in all, and how many examples there are to see."""
    config = parts.run
    size, accumulate = config.batch_size, config.optimiser.accumulate
    if config.training.stream:
        steps = config.training.steps or 0
        per_epoch = min(config.training.check_every or steps, steps) * accumulate
        maker = parts.source.generator
        deciding = deciding_tokens(config.task, _query_texts(maker), parts.words)

        def batches(epoch: int) -> Iterator[Inputs]:
            random = generator_of(config.seed, 1, epoch)
            asked = int(round(config.masked_query.share * per_epoch)) if len(deciding) else 0
            rows = (per_epoch - asked) * size + 2 * asked * size
            first = maker.config.count.train + epoch * rows
            examples = parts.checked(Examples(streamed(maker, first, first + rows), parts.words, parts.sight))
            return _mixed(parts, examples, asked, deciding, random)

        return batches, steps, steps * accumulate * size
    examples = _chosen(parts)
    per_epoch = max(1, len(examples) // size // accumulate)
    steps = config.training.steps or per_epoch * (config.training.epochs or 0)
    if len(examples) < size:
        raise ValueError(f"optimiser.batch_size={size}: there are only {len(examples)} training examples")
    deciding = deciding_tokens(config.task, examples.queries, parts.words)
    asked = int(round(config.masked_query.share * len(examples) / size)) if len(deciding) else 0
    return lambda epoch: _mixed(parts, examples, asked, deciding, generator_of(config.seed, 1, epoch)), steps, len(examples)


def _query_texts(maker: Any) -> list[str]:
    from render.text import query_text

    return [query_text(query) for query in maker.task.queries]


def _chosen(parts: Parts) -> Examples:
    """The train split, or the part of it that `training.examples` asks for, answers shuffled where that is asked."""
    training, seed = parts.run.training, parts.run.seed
    raw = parts.source.raw("train")
    total = len(raw.ids)
    count = round(training.examples * total) if training.examples <= 1 else int(training.examples)
    if not 1 <= count <= total:
        raise ValueError(f"training.examples={training.examples}: the train split has {total}")
    rows = np.sort(generator_of(seed, 2).permutation(total)[:count])
    return parts.checked(Examples(raw.take(rows), parts.words, parts.sight))


def _mixed(
    parts: Parts, examples: Examples, asked: int, deciding: np.ndarray, random: np.random.Generator
) -> Iterator[Inputs]:
    """Batches of answers and, `asked` of them, of masked words of true queries, in random order."""
    config = parts.run
    size, setting = config.batch_size, config.setting
    lengths = examples.texts.lengths[examples.text_rows(np.arange(len(examples)), np.full(len(examples), setting != "image"))]
    true = np.flatnonzero(examples.answers)
    if config.training.shuffled:
        examples.answers = random.permutation(examples.answers)
    words = iter(true[part] for part in bucketed(lengths[true], size, random)) if asked else iter(())
    if config.training.stream:
        kept = np.arange(len(examples) - 2 * asked * size)
    else:
        kept = np.arange(len(examples))
    answers = bucketed(lengths[kept], size, random)
    plan = random.permutation(np.arange(len(kept) // size + asked) < asked)
    for masked in plan:
        if masked:
            rows = next(words, None)
            if rows is None:
                continue
            yield masked_queries(examples, rows, setting, deciding, config.masked_query.exchanged, random)
        else:
            rows = next(answers)
            yield examples.inputs(rows, *shown(setting, rows, random))


def test_batches(examples: Examples, setting: str) -> Iterator[Inputs]:
    """All examples in a setting, by length."""
    for rows in test_rows(examples, setting):
        yield examples.inputs(rows, *shown(setting, rows, None))


def test_rows(examples: Examples, setting: str) -> Iterator[np.ndarray]:
    caption = np.full(len(examples), setting != "image")
    extra = 0 if examples.regions is None or setting == "caption" else examples.regions.index.shape[1]
    return in_order(examples.texts.lengths[examples.text_rows(np.arange(len(examples)), caption)] + extra, TOKENS)


# Evaluation ------------------------------------------------------------------------------------------------------


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
