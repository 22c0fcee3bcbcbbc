"""Several threads on a CPU, each with a part of a batch, or with a batch: faster than all cores at one product.

The texts of a part are of like length, so that less is padded. Backward passes go through the same parts. Gradients are
summed in a fixed order: the same seed gives the same bits.

Shapes: B examples, L text tokens, H width of the model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import torch
from torch import Tensor

from train.data.inputs import Encoded, Inputs
from train.models.layers import Model

Item = TypeVar("Item")
Result = TypeVar("Result")


def encode(model: Model, inputs: Inputs, used: Tensor) -> Encoded:
    """As `Model.encode` with `used`, in threads where that is faster; then the result has no `image`.

    A model with dropout is computed whole: otherwise it would depend on chance which thread draws which numbers.
    """
    threads, shape = torch.get_num_threads(), model.shape
    on_cpu = inputs.tokens.device.type == "cpu"
    if threads == 1 or not on_cpu or len(inputs) < threads or shape.dropout or shape.attention_dropout:
        return model.encode(inputs, used)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad and torch.is_grad_enabled()]
    parts = [Part(model, inputs, used, rows) for rows in rows_by_length(inputs, threads)]
    pooled, text, *inner = EncodeParts.apply(parts, pool(threads), *parameters)  # type: ignore[no-untyped-call]
    return Encoded(text, None, pooled, torch.cat(inner, 1))  # of the text, and of regions if there are any


def rows_by_length(inputs: Inputs, count: int) -> list[Tensor]:
    """The rows of a batch in at most `count` parts: of like length in each, of like numbers of tokens in all."""
    lengths = inputs.token_mask.sum(1)
    if inputs.region_mask is not None:
        lengths = lengths + inputs.region_mask.sum(1)
    order = torch.argsort(lengths, descending=True, stable=True)
    earlier = lengths[order].cumsum(0) - lengths[order]  # tokens of the rows before each
    part = earlier * count // lengths.sum()
    return [rows for number in range(count) if len(rows := order[part == number])]


def in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`map`, with as many items at a time as torch has threads."""
    items, threads = iter(items), torch.get_num_threads()
    while group := list(islice(items, threads)):
        yield from map(function, group) if threads == 1 else pool(threads).map(function, group)


@functools.cache
def pool(threads: int) -> ThreadPoolExecutor:
    """Threads that use one core each."""
    return ThreadPoolExecutor(threads, initializer=functools.partial(torch.set_num_threads, 1))


@dataclass
class Part:
    """Some rows of a batch. used: as in `Model.encode`, (B, L)."""

    model: Model
    inputs: Inputs
    used: Tensor
    rows: Tensor

    def forward(self, gradient: bool, autocast: bool) -> tuple[Tensor, ...]:
        """The states for the classifier, (rows, H), of the texts, last and middle, both (rows, longest text, H), and,
        with regions, theirs in the middle, (rows, most regions, H)."""
        inputs = self.inputs.take(self.rows).without_padding()
        length = inputs.tokens.shape[1]
        with torch.set_grad_enabled(gradient), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            encoded = self.model.encode(inputs, self.used[self.rows, :length])
        text, regions = encoded.middle[:, :length], encoded.middle[:, length:]
        return encoded.pooled, encoded.text, text, *([regions] if regions.shape[1] else [])


class EncodeParts(torch.autograd.Function):
    """The states of `Part.forward` of a whole batch, from its parts: (B, H), (B, L, H) and perhaps (B, R, H)."""

    @staticmethod
    def forward(context: Any, parts: list[Part], pool: ThreadPoolExecutor, *parameters: Tensor) -> Any:
        gradient, autocast = any(context.needs_input_grad), torch.is_autocast_enabled("cpu")
        states = list(pool.map(lambda part: part.forward(gradient, autocast), parts))
        context.parts, context.states, context.pool, context.parameters = parts, states, pool, parameters
        (count, length), features = parts[0].inputs.tokens.shape, parts[0].inputs.features
        regions = (0 if features is None else features.shape[1],)
        sizes = ((), (length,), (length,), regions)
        wholes = [one.new_zeros(count, *size, one.shape[-1]) for one, size in zip(states[0], sizes, strict=False)]
        for part, of_part in zip(parts, states, strict=True):
            for whole, one in zip(wholes, of_part, strict=True):
                whole[place_of(part, one)] = one
        return tuple(wholes)

    @staticmethod
    def backward(context: Any, *wholes: Tensor) -> Any:
        def of_part(part: Part, states: tuple[Tensor, ...]) -> Sequence[Tensor | None]:
            given = [whole[place_of(part, one)] for whole, one in zip(wholes, states, strict=True)]
            return torch.autograd.grad(states, context.parameters, given, allow_unused=True)

        gradients = zip(*context.pool.map(of_part, context.parts, context.states), strict=True)
        return None, None, *(None if of_one[0] is None else sum(of_one[1:], of_one[0]) for of_one in gradients)


def place_of(part: Part, states: Tensor) -> tuple[Tensor | slice, ...]:
    """Where the states of a part stand in those of the batch."""
    return (part.rows, slice(states.shape[1])) if states.ndim == 3 else (part.rows,)
