"""A batch computed in parts by several threads gives the losses and gradients of the whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from tests.test_models import CONTRACT, batch_for, build
from train.config import RegionSettings, Run
from train.data.examples import Examples, VisualSettings
from train.data.inputs import Inputs
from train.data.sources import stream_examples
from train.data.text import WordTokenizer, grammar_tokenizer
from train.learning.consistency import paired_inputs
from train.learning.module import Learner, used_tokens
from train.learning.threads import encode, rows_by_length
from train.models import make_model
from train.models.layers import first_token
from travlr import Cardinality
from travlr.generate import generator

WORDS = WordTokenizer(grammar_tokenizer())


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def learner_and_batch(sees: str, model: str, count: int = 13) -> tuple[Learner, Inputs]:
    """A tiny model and labelled examples, with unlabelled pairs of the same examples."""
    visual = VisualSettings(sees, RegionSettings(), side=192)
    examples = Examples(stream_examples(generator(Cardinality()), 0, count + count % 2), WORDS, visual)
    rows, shown = np.arange(count), np.ones(count, bool)
    batch = examples.with_targets(examples.inputs(rows, shown, shown), rows, shown, shown)
    batch = replace(batch, sides=paired_inputs(examples, rows, "caption", examples.auxiliary))
    torch.manual_seed(0)
    dimension: dict[str, Any] = {"feature_width": examples.regions.dimension} if examples.regions is not None else {}
    learner = Learner(make_model(model, "tiny", vocabulary=WORDS.size, **dimension), Run().details, 1e-3, 1, 0)
    return learner.train(), batch.looked_up()


def gradients(learner: Learner, batch: Inputs, threads: int, precision: torch.dtype) -> tuple[torch.Tensor, ...]:
    torch.set_num_threads(threads)
    learner.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
        losses = torch.stack(list(learner.losses(batch).values()))
    losses.sum().backward()  # type: ignore[no-untyped-call]
    assert torch.get_num_threads() == threads
    parameters = (parameter.grad for parameter in learner.parameters() if parameter.grad is not None)
    return losses.detach(), torch.cat([gradient.flatten() for gradient in parameters])


@pytest.mark.parametrize("model", ["uniter", "lxmert", "albef", "bert"])
def test_threads_give_the_losses_and_gradients_of_one(model: str, threads: None) -> None:
    sees = {"albef": "pixels", "bert": "nothing"}.get(model, "regions")
    learner, batch = learner_and_batch(sees, model)
    one, two = (gradients(learner, batch, count, torch.float32) for count in (1, 2))
    torch.testing.assert_close(two[0], one[0], rtol=1e-4, atol=1e-5)
    assert (two[1] - one[1]).norm() < 1e-4 * one[1].norm()


def test_threads_give_the_states_of_one_without_gradients(threads: None) -> None:
    """The blank picture is encoded before, as in tests of a run: its states cannot be part of a gradient."""
    learner, batch = learner_and_batch("pixels", "albef")
    model, pooled = learner.model.eval(), []
    with torch.inference_mode():
        blank = model.encode_vision(batch.without_labels().take(slice(1)))
        batch = replace(batch.without_labels(), vision_states=blank, pixels=None)
        for count in (1, 2):
            torch.set_num_threads(count)
            pooled.append(encode(model, batch, first_token(batch.tokens)).pooled)
    torch.testing.assert_close(pooled[1], pooled[0], rtol=0, atol=2e-6)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_threads_give_the_same_bits_each_time(precision: torch.dtype, threads: None) -> None:
    learner, batch = learner_and_batch("regions", "uniter")
    first, *others = (gradients(learner, batch, 2, precision) for _ in range(4))
    assert all(loss.equal(first[0]) and gradient.equal(first[1]) for loss, gradient in others)


def test_models_with_dropout_are_left_in_one_part(threads: None) -> None:
    torch.set_num_threads(2)
    _, batch = learner_and_batch("nothing", "bert")
    model = make_model("bert", "tiny", vocabulary=WORDS.size, dropout=0.5).train()
    states = []
    for _ in range(2):
        torch.manual_seed(1)
        states.append(encode(model, batch, used_tokens(batch)).pooled)
    assert states[0].equal(states[1])


@pytest.mark.parametrize("count", [1, 3, 4, 20])
def test_parts_share_out_tokens_by_length(count: int) -> None:
    lengths = torch.randint(5, 50, (64,), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(50) < lengths[:, None]
    parts = rows_by_length(Inputs(mask.long(), mask), count)
    assert torch.cat(parts).sort().values.equal(torch.arange(64)) and len(parts) == count
    assert all(lengths[a].min() >= lengths[b].max() for a, b in pairwise(parts))
    tokens = [int(lengths[rows].sum()) for rows in parts]
    assert max(tokens) - min(tokens) <= 100  # two texts at most


@pytest.mark.parametrize(("name", "options"), CONTRACT)
def test_states_that_are_used_do_not_depend_on_the_others(name: str, options: dict[str, bool]) -> None:
    model = build(name, options).eval()
    batch = batch_for(name, model.shape)
    used = torch.zeros(3, 12, dtype=torch.bool)
    for row, tokens in enumerate(([0, 3, 11], [0], [0, 2])):
        used[row, tokens] = True
    with torch.no_grad():
        some, every = model.encode(batch, used), model.encode(batch)
    torch.testing.assert_close(some.text[used], every.text[used], rtol=0, atol=2e-6)
    torch.testing.assert_close(some.pooled, every.pooled, rtol=0, atol=2e-6)
