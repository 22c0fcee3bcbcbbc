"""Which examples make which batch: of fine-tuning, epoch by epoch, and of tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from render.text import query_text
from train.config import Run
from train.data import Examples, Sight, Source, bucketed, in_order, shown, streamed
from train.inputs import Inputs
from train.masking import deciding_tokens, masked_queries
from train.models import shape_of
from train.text import Words

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


def own_setting(setting: str) -> str:
    return "image+caption" if setting == "mixed" else setting


def random_of(*key: int) -> np.random.Generator:
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
        deciding = deciding_tokens(config.task, [query_text(query) for query in maker.task.queries], parts.words)

        def batches(epoch: int) -> Iterator[Inputs]:
            random = random_of(config.seed, 1, epoch)
            asked = round(config.masked_query.share * per_epoch) if len(deciding) else 0
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
    asked = round(config.masked_query.share * len(examples) / size) if len(deciding) else 0
    return (
        lambda epoch: _mixed(parts, examples, asked, deciding, random_of(config.seed, 1, epoch)),
        steps,
        len(examples),
    )


def _chosen(parts: Parts) -> Examples:
    """The train split, or the part of it that `training.examples` asks for, answers shuffled where that is asked."""
    training, seed = parts.run.training, parts.run.seed
    raw = parts.source.raw("train")
    total = len(raw.ids)
    count = round(training.examples * total) if training.examples <= 1 else int(training.examples)
    if not 1 <= count <= total:
        raise ValueError(f"training.examples={training.examples}: the train split has {total}")
    rows = np.sort(random_of(seed, 2).permutation(total)[:count])
    return parts.checked(Examples(raw.take(rows), parts.words, parts.sight))


def _mixed(
    parts: Parts, examples: Examples, asked: int, deciding: np.ndarray, random: np.random.Generator
) -> Iterator[Inputs]:
    """Batches of answers and, `asked` of them, of masked words of true queries, in random order."""
    config = parts.run
    size, setting = config.batch_size, config.setting
    lengths = examples.texts.lengths[
        examples.text_rows(np.arange(len(examples)), np.full(len(examples), setting != "image"))
    ]
    true = np.flatnonzero(examples.answers)
    if config.training.shuffled:
        examples.answers = random.permutation(examples.answers)
    words = iter(true[part] for part in bucketed(lengths[true], size, random)) if asked else iter(())
    kept = np.arange(len(examples) - (2 * asked * size if config.training.stream else 0))
    answers = bucketed(lengths[kept], size, random)
    plan = random.permutation(np.arange(len(kept) // size + asked) < asked)
    for masked in plan:
        if masked:
            rows = next(words, None)
            if rows is None:
                continue
            yield masked_queries(examples, rows, setting, deciding, random)
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
