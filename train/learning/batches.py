"""Batches for training, epoch by epoch, and for tests."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from train.config import VALIDATION, Run
from train.data.auxiliary import AuxiliaryTargets, check_auxiliary_words
from train.data.batching import shuffled_batches, sorted_batches, visible_modalities
from train.data.examples import Examples, RawExamples, VisualSettings
from train.data.inputs import Inputs
from train.data.sources import TrainingDataset, stream_examples
from train.data.text import WordTokenizer
from train.learning.consistency import paired_inputs
from train.models import shape_of
from train.results.columns import main_test_setting

TOKENS = 8_192  # padded tokens of a batch in evaluation


@dataclass(frozen=True)
class Schedule:
    """The training batches of a run, and its numbers of steps.

    epoch: from the number of a pass over the data to its batches, always the same. batches: of a pass. steps: of the
    optimiser, each of `accumulate` batches. check_every: steps between validations. examples: number of those
    of the train split that are used, or None for new ones in every batch.
    """

    epoch: Callable[[int], Iterator[Inputs]]
    batches: int
    steps: int
    check_every: int
    accumulate: int
    examples: int | None

    def between_validations(self, number: int) -> Iterator[Inputs]:
        """The batches from validation `number` to the next, or to the last step."""
        length = self.check_every * self.accumulate
        start, stop = number * length, min((number + 1) * length, self.steps * self.accumulate)
        for epoch in range(start // self.batches, -(-stop // self.batches)):
            first = epoch * self.batches
            yield from islice(self.epoch(epoch), max(0, start - first), min(self.batches, stop - first))


@dataclass(frozen=True)
class RunData:
    """The data of a run: its dataset, tokenizer and image inputs."""

    run: Run
    source: TrainingDataset
    tokenizer: WordTokenizer
    visual: VisualSettings

    def examples(self, split: str, limit: int | None = None) -> Examples:
        return self.prepared(self.source.raw(split, limit))

    @functools.cached_property
    def validation(self) -> Examples:
        return self.examples("validation", VALIDATION)

    def validation_batches(self) -> Iterator[Inputs]:
        return (inputs for _, inputs in test_batches(self.validation, main_test_setting(self.run.setting)))

    def prepared(self, raw: RawExamples) -> Examples:
        """Examples as arrays. Raises `ValueError` if a text is longer than the model takes: nothing is truncated."""
        examples = Examples(raw, self.tokenizer, self.visual)
        lengths, positions = examples.texts.lengths, shape_of(self.run.model, self.run.size).positions
        limit = positions - self.run.architecture.first_position
        if too_long := int((lengths[: len(examples)] > limit).sum()):
            raise ValueError(
                f"size={self.run.size}: {too_long} of {len(examples)} texts have more than the {limit} tokens that "
                f"model={self.run.model} takes (the longest {lengths.max()}); use data with fewer objects"
            )
        return examples


def random_of(*key: int) -> np.random.Generator:
    """A random generator for a key such as (seed, purpose, epoch). Different keys give independent streams."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


def training_schedule(data: RunData) -> Schedule:
    config, training = data.run, data.run.training
    if training.streams:
        return _streamed(data)
    examples = _split_examples(data)
    size = min(config.batch_size, len(examples))  # the paper's few-shot batch of ALBEF is larger than its 200 examples
    batches, accumulate = len(examples) // size, config.accumulate
    steps = training.steps or max(1, (training.epochs or 0) * batches // accumulate)
    check_every = min(training.check_every or max(1, batches // accumulate), steps)
    return Schedule(
        lambda epoch: _batches(data, examples, size, epoch), batches, steps, check_every, accumulate, len(examples)
    )


def count_examples(config: Run, schedule: Schedule, steps: int) -> dict[str, int]:
    """The different examples that a run of `steps` learned from: labelled ones, and unlabelled pairs of image and
    caption with `method=consistency`."""
    new = steps * config.accumulate * config.batch_size
    pairs = min(new, config.training.unlabelled or new) if config.pairs_modalities else 0
    return {
        "train_examples": new if schedule.examples is None else schedule.examples,
        "unlabelled_examples": pairs,
    }


def _streamed(data: RunData) -> Schedule:
    """As `training_schedule`, with new examples that are not in the dataset, each used once.

    Unlabelled examples follow the labelled ones in the stream. They come again if `training.unlabelled` is below their
    number.

    Raises `ValueError` if the world has too few examples for all steps.
    """
    config, training, maker = data.run, data.run.training, data.source.generator
    steps, accumulate = training.steps or 0, config.accumulate
    per_epoch = min(training.check_every or steps, steps)
    rows = 2 * math.ceil(per_epoch * accumulate * config.batch_size / 2)  # of an epoch
    labelled = rows * math.ceil(steps / per_epoch)
    unlabelled = min(labelled, training.unlabelled or labelled) if config.pairs_modalities else 0
    start = maker.config.count.train + maker.config.count.train % 2  # even, so that couples stay together
    available = max(0, maker.sampler.limits["train"] - start)
    if available < labelled + unlabelled:
        raise ValueError(
            f"training.steps={steps}: needs {labelled + unlabelled:,} examples past the dataset's own, of which its "
            f"world has only {available:,}; use fewer steps, or give training.examples"
        )

    def batches(epoch: int) -> Iterator[Inputs]:
        examples = data.prepared(stream_examples(maker, start + epoch * rows, start + (epoch + 1) * rows))
        batches = _batches(data, examples, config.batch_size, epoch)
        if not config.pairs_modalities:
            return batches
        numbers = start + labelled + np.sort(np.arange(epoch * rows, (epoch + 1) * rows) % unlabelled)
        raw = stream_examples(maker, numbers[0], numbers[-1] + 1).take(numbers - numbers[0])
        if config.method == "mismatched":
            raw = replace(raw, grid=np.roll(raw.grid, rows // 2, axis=0))
        return _with_sides(data, batches, data.prepared(raw), examples.auxiliary, epoch)

    return Schedule(batches, per_epoch * accumulate, steps, per_epoch, accumulate, None)


def _with_sides(
    data: RunData, batches: Iterator[Inputs], unlabelled: Examples, labelled: AuxiliaryTargets, epoch: int
) -> Iterator[Inputs]:
    """The batches, each with an equal number of unlabelled examples in `sides`."""
    order = random_of(data.run.seed, 6, epoch).permutation(len(unlabelled))
    for number, batch in enumerate(batches):
        rows = order[number * len(batch) : (number + 1) * len(batch)]
        yield replace(batch, sides=paired_inputs(unlabelled, rows, data.run.setting, labelled))


def _split_examples(data: RunData) -> Examples:
    """The examples of the train split, or a random part of them (`training.examples`)."""
    training, raw = data.run.training, data.source.raw("train")
    total = len(raw.ids)
    part = training.examples or 1.0
    count = round(part * total) if part <= 1 else int(part)
    if not 1 <= count <= total:
        raise ValueError(f"training.examples={training.examples}: the train split has {total}")
    rows = np.sort(random_of(data.run.seed, 2).permutation(total)[:count])
    return data.prepared(raw.take(rows))


def _batches(data: RunData, examples: Examples, size: int, epoch: int) -> Iterator[Inputs]:
    """All examples in batches of `size`, with auxiliary targets if the settings say so."""
    config, setting = data.run, data.run.setting
    random = random_of(config.seed, 1, epoch)
    has_targets = config.training.auxiliary_targets and config.method != "frozen"
    if has_targets:
        check_auxiliary_words(examples.queries, examples.pairs, examples.answers)
    for rows in shuffled_batches(len(examples), size, random):
        image, caption = visible_modalities(setting, rows, random)
        inputs = examples.batch(rows, image, caption)
        if has_targets:
            inputs = examples.with_targets(inputs, rows, image, caption)
        yield inputs


def test_batches(examples: Examples, setting: str) -> Iterator[tuple[np.ndarray, Inputs]]:
    """All examples in a setting, by length: their rows, and the inputs of a model."""
    extra = 0 if examples.regions is None or setting == "caption" else examples.regions.index.shape[1]
    for rows in sorted_batches(_lengths(examples, setting) + extra, TOKENS):
        yield rows, examples.batch(rows, *visible_modalities(setting, rows))


def _lengths(examples: Examples, setting: str) -> np.ndarray:
    """Number of tokens of each of N examples in a setting; in `mixed`, with both modalities."""
    rows = np.arange(len(examples))
    return examples.texts.lengths[examples.text_rows(rows, visible_modalities(main_test_setting(setting), rows)[1])]
