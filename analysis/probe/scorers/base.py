"""What every scorer is made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

if TYPE_CHECKING:
    pass


Tensors = dict[str, Tensor]  # each (B, ...)


Key = TypeVar("Key")


DTYPES = {"float32": torch.float32, "float64": torch.float64, "bf16": torch.bfloat16, "float16": torch.float16}


WORD = re.compile(r"\w(?:[\w'’-]*\w)?")


@dataclass(frozen=True)
class ScorerParts:
    """A model in the steps that a scorer takes. Each function maps tensors of B examples to tensors of B examples.

    prepare: a picture to what `see` takes, B = 1. tokens: a text to what `read` takes, B = 1; raises ValueError for one
    that the model cannot take whole. see: what is made of pictures alone, once for each picture. read: likewise of
    texts. judge: what `see` and `read` gave, in one dictionary, to scores (B,).

    Generative models have `join` and `answer` in place of prepare, tokens, see, read and judge. join: a picture and a
    text to a model's inputs, B = 1. answer: inputs to `score` (B,) and `yes_or_no` (B,), the probability p(yes) + p(no)
    of the next token. prompt: how the question is put, `chat template` or `plain`.
    """

    model: nn.Module
    words: Callable[[str], list[tuple[str, list[int]]]]
    prepare: Callable[[Image.Image], Tensors]
    tokens: Callable[[str], Tensors]
    see: Callable[[Tensors], Tensors]
    read: Callable[[Tensors], Tensors]
    judge: Callable[[Tensors], Tensor]
    threshold: float | None
    join: Callable[[Image.Image, str], Tensors] | None = None
    processor: Any = None
    answer: Callable[[Tensors], Tensors] | None = None
    prompt: str = ""


class Matcher:
    """A scorer made of a model's parts: pictures (N), texts (N) -> (N,) float64.

    Raises ValueError for a text longer than the model takes, naming it, and where images and texts are not as many.
    """

    def __init__(
        self, name: str, parts: ScorerParts, device: torch.device, precision: torch.dtype, batch_size: int
    ) -> None:
        self.name, self.parts, self.threshold = name, parts, parts.threshold
        self.device, self.precision, self.batch_size = device, precision, batch_size
        parts.model.eval().requires_grad_(False)

    def __call__(self, images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        return self.judged(images, texts)["score"]

    @property
    def precision_name(self) -> str:
        """The key in `DTYPES` of what the model computes in."""
        return next(name for name, dtype in DTYPES.items() if dtype == self.precision)

    @torch.inference_mode()
    def judged(self, images: Sequence[Image.Image], texts: Sequence[str]) -> dict[str, np.ndarray]:
        """`score`, and of generative models `yes_or_no`, of each picture with its text: (N,) float64."""
        if len(images) != len(texts):
            raise ValueError(f"{len(images)} images for {len(texts)} texts: must be as many")
        parts = self.parts
        pictures = {id(image): image for image in images}
        pairs = dict.fromkeys((id(image), text) for image, text in zip(images, texts, strict=True))
        if parts.join is not None:
            inputs = [parts.join(pictures[picture], text) for picture, text in pairs]
        else:
            read = self.each(parts.read, {text: parts.tokens(text) for _, text in pairs})
            seen = self.each(parts.see, {key: parts.prepare(image) for key, image in pictures.items()})
            inputs = [seen[picture] | read[text] for picture, text in pairs]
        judge = parts.answer or (lambda batch: {"score": parts.judge(batch)})
        found = self.each(judge, dict(zip(pairs, inputs, strict=True)))
        asked = [(id(image), text) for image, text in zip(images, texts, strict=True)]
        names = ("score", "yes_or_no") if parts.answer else ("score",)
        return {name: np.array([found[pair][name].double().item() for pair in asked], np.float64) for name in names}

    def each(self, step: Callable[[Tensors], Tensors], given: dict[Key, Tensors]) -> dict[Key, Tensors]:
        """A step for each of some examples (B = 1), in batches of examples whose tensors are equally large."""
        alike: dict[Any, list[Key]] = {}
        for key, tensors in given.items():
            alike.setdefault(tuple((name, tensor.shape[1:]) for name, tensor in tensors.items()), []).append(key)
        out: dict[Key, Tensors] = {}
        for keys in alike.values():
            for start in range(0, len(keys), self.batch_size):
                some = keys[start : start + self.batch_size]
                names = given[some[0]]
                done = step({name: self.on_device(torch.cat([given[key][name] for key in some])) for name in names})
                for place, key in enumerate(some):
                    out[key] = {name: tensor[place : place + 1] for name, tensor in done.items()}
        return {key: out[key] for key in given}

    def on_device(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, self.precision if tensor.is_floating_point() else None)


class GenerativeScorer(Matcher):
    """A scorer made of a generative model, which is asked yes or no."""

    @property
    def prompt(self) -> str:
        return self.parts.prompt

    def with_probabilities(self, images: Sequence[Image.Image], texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Scores, and p(yes) + p(no): each (N,) float64."""
        found = self.judged(images, texts)
        return found["score"], found["yes_or_no"]


def check_not_spread(name: str, device_map: str | None) -> None:
    if device_map is not None:
        raise ValueError(f"device_map={device_map}: only generative models are spread, not model={name}; leave it out")


def one_line(error: BaseException) -> str:
    """What went wrong, without the advice of the lines that follow."""
    said = (str(error).strip().splitlines() or [""])[0]
    return said if isinstance(error, OSError | ValueError) and said else f"{type(error).__name__}: {said}".rstrip(": ")


def as_is(tensors: Tensors) -> Tensors:
    return tensors


def cosine(both: Tensors) -> Tensor:
    return (both["image"] * both["text"]).sum(-1)


def words_of(tokenizer: Any, text: str, special: bool = True) -> list[tuple[str, list[int]]]:
    """The words of a text, and the places of each one's tokens. special: whether the tokenizer puts its own in."""
    found = tokenizer(text, return_offsets_mapping=True, verbose=False, add_special_tokens=special)
    spans = found["offset_mapping"]
    return [
        (word.group(), [n for n, (a, b) in enumerate(spans) if a < b and a < word.end() and b > word.start()])
        for word in WORD.finditer(text)
    ]
