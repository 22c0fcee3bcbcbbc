"""Pretraining on unlabelled scenes: read masked words of statements about what the image or the caption shows."""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from train.batches import Parts, random_of
from train.checkpoints import FOLDER, load_weights, save_weights
from train.data import Examples, bucketed, streamed
from train.devices import leads, locked_by_leader
from train.fit import fit
from train.identity import by_content
from train.inputs import Inputs
from train.logs import open_loggers
from train.module import Learner, Schedule
from train.results import run_id
from train.statements import Statements

CHECKED = 1_000  # validation scenes
WEIGHTS = "model.safetensors"


def pretrain(learner: Learner, parts: Parts, device: str, precision: str, say: Callable[[str], object]) -> None:
    """Give a learner's model (and word head) weights that read scenes, made once for all runs that start from them."""
    run = parts.run
    config = identity(parts)
    folder = Path(run.runs) / ".pretrained" / run_id(config)
    folder.mkdir(parents=True, exist_ok=True)
    with locked_by_leader(folder):
        if not (folder / WEIGHTS).is_file():
            say(f"{folder}: pretraining on unlabelled scenes, {run.pretraining.steps} steps")
            reading = Learner(
                learner.model,
                run.optimiser,
                run.pretraining.learning_rate,
                scenes(parts),
                validation(parts),
                run.seed,
                words=learner.words,
            )
            with open_loggers(run, folder, config) as loggers:
                fit(reading, run, folder, device, precision, say, loggers, monitor="word_accuracy")
            save_weights(learner, folder / WEIGHTS)
            if leads():
                shutil.rmtree(folder / FOLDER, ignore_errors=True)
    load_weights(learner, folder / WEIGHTS)
    say(f"{folder}: weights pretrained on unlabelled scenes")


def identity(parts: Parts) -> dict[str, Any]:
    """All that pretraining depends on: not on the setting, nor on what is fine-tuned."""
    run = by_content(parts.run)
    names = ("model", "task", "seed", "size", "pretrained", "tokenizer", "controlled", "boxes", "visual_token_type")
    values = {name: getattr(run, name) for name in names}
    nested = {name: dataclasses.asdict(getattr(run, name)) for name in ("optimiser", "pretraining")}
    nested["regions"] = run.shown_regions.identity()
    return values | nested | {"dataset": parts.source.digest, "batch_size": run.batch_size}


def scenes(parts: Parts) -> Schedule:
    """What pretraining learns from: statements about training scenes that no split of the dataset holds.

    Raises `ValueError` where its world has too few of them.
    """
    run, maker = parts.run, parts.source.generator
    steps = min(run.training.check_every or run.pretraining.steps, run.pretraining.steps)
    count = steps * run.optimiser.accumulate
    rows = count * run.batch_size
    there = max(0, maker.sampler.limits["train"] - maker.config.count.train)
    needed = math.ceil(run.pretraining.steps / steps) * rows
    if needed > there:
        raise ValueError(
            f"pretraining.steps={run.pretraining.steps}: needs {needed:,} scenes past the dataset's own, of which its "
            f"world has only {there:,}; use fewer steps"
        )

    def batches(epoch: int) -> Iterator[Inputs]:
        random = random_of(run.seed, 3, epoch)
        first = maker.config.count.train + epoch * rows
        raw = streamed(maker, first, first + rows)
        examples, statements = Examples(raw, parts.words, parts.sight), Statements(raw, parts.words)
        for batch in bucketed(examples.texts.lengths[: len(examples)], run.batch_size, run.training.window, random):
            yield statements.inputs(examples, batch, run.pretraining.shown, random)

    return Schedule(batches, count, run.pretraining.steps, steps)


def validation(parts: Parts) -> Callable[[], Iterator[Inputs]]:
    raw = parts.source.raw("validation", CHECKED)
    examples, statements = Examples(raw, parts.words, parts.sight), Statements(raw, parts.words)

    def batches() -> Iterator[Inputs]:
        random = random_of(parts.run.seed, 4)
        for batch in bucketed(examples.texts.lengths[: len(examples)], min(100, len(examples)), 1, random):
            yield statements.inputs(examples, batch, parts.run.pretraining.shown, random)

    return batches
