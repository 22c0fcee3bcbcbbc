"""The parts of a model, and the scorers made of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

Tensors = dict[str, Tensor]  # each (B, ...)
Key = TypeVar("Key")

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bf16": torch.bfloat16, "float16": torch.float16}
WORD = re.compile(r"\w(?:[\w'’-]*\w)?")


@dataclass(frozen=True)
class ScorerParts:
    """A model, as the steps of a scorer. Each step maps tensors of B examples to tensors of B examples.

    words: a text to its words, each with the positions of its tokens.
    prepare: a picture to the inputs of `see`, B = 1. tokens: a text to the inputs of `read`, B = 1; raises ValueError
    for a text that is too long for the model. see: encodes pictures alone, once each. read: encodes texts alone, once
    each. judge: the joint outputs of `see` and `read` to scores (B,).
    threshold: the score above which a sentence matches, None where scores only rank.

    Generative models have `join` and `answer` in place of prepare, tokens, see, read and judge. join: a picture and a
    text to a model's inputs, B = 1. answer: inputs to `score` (B,) and `yes_or_no` (B,), the probability p(yes) + p(no)
    of the next token. prompt: the form of the question, `chat template` or `plain`.
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


class ModelScorer:
    """A scorer made of a model's parts: pictures (N), texts (N) -> (N,) float64.

    Raises ValueError for a text that is too long for the model, and where the numbers of images and texts differ.
    """

    def __init__(
        self, name: str, parts: ScorerParts, device: torch.device, precision: torch.dtype, batch_size: int
    ) -> None:
        self.name, self.parts, self.threshold = name, parts, parts.threshold
        self.device, self.precision, self.batch_size = device, precision, batch_size
        parts.model.eval().requires_grad_(False)

    def __call__(self, images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        return self.outputs(images, texts)["score"]

    @property
    def precision_name(self) -> str:
        """The key in `DTYPES` of the type that the model computes in."""
        return next(name for name, dtype in DTYPES.items() if dtype == self.precision)

    @torch.inference_mode()
    def outputs(self, images: Sequence[Image.Image], texts: Sequence[str]) -> dict[str, np.ndarray]:
        """`score`, and for generative models `yes_or_no`, of each picture with its text: (N,) float64."""
        if len(images) != len(texts):
            raise ValueError(f"{len(images)} images for {len(texts)} texts: give as many of each")
        parts = self.parts
        pictures = {id(image): image for image in images}
        keys = [(id(image), text) for image, text in zip(images, texts, strict=True)]
        pairs = list(dict.fromkeys(keys))
        if parts.join is not None:
            inputs = [parts.join(pictures[picture], text) for picture, text in pairs]
        else:
            texts_read = self.map_batches(parts.read, {text: parts.tokens(text) for _, text in pairs})
            encoded = self.map_batches(parts.see, {key: parts.prepare(image) for key, image in pictures.items()})
            inputs = [encoded[picture] | texts_read[text] for picture, text in pairs]
        judge = parts.answer or (lambda batch: {"score": parts.judge(batch)})
        results = self.map_batches(judge, dict(zip(pairs, inputs, strict=True)))
        names = ("score", "yes_or_no") if parts.answer else ("score",)
        return {name: np.array([results[key][name].double().item() for key in keys], np.float64) for name in names}

    def map_batches(self, step: Callable[[Tensors], Tensors], examples: dict[Key, Tensors]) -> dict[Key, Tensors]:
        """Apply a step to each example (B = 1), in batches of examples whose tensors have the same shapes."""
        by_shape: dict[Any, list[Key]] = {}
        for key, tensors in examples.items():
            by_shape.setdefault(tuple((name, tensor.shape[1:]) for name, tensor in tensors.items()), []).append(key)
        out: dict[Key, Tensors] = {}
        for keys in by_shape.values():
            for start in range(0, len(keys), self.batch_size):
                batch = keys[start : start + self.batch_size]
                names = examples[batch[0]]
                inputs = {name: self.on_device(torch.cat([examples[key][name] for key in batch])) for name in names}
                outputs = step(inputs)
                for row, key in enumerate(batch):
                    out[key] = {name: tensor[row : row + 1] for name, tensor in outputs.items()}
        return {key: out[key] for key in examples}

    def on_device(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, self.precision if tensor.is_floating_point() else None)


class GenerativeScorer(ModelScorer):
    """A scorer made of a generative model, which answers yes or no."""

    @property
    def prompt(self) -> str:
        return self.parts.prompt

    def with_probabilities(self, images: Sequence[Image.Image], texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Scores, and p(yes) + p(no): each (N,) float64."""
        outputs = self.outputs(images, texts)
        return outputs["score"], outputs["yes_or_no"]


def check_not_spread(name: str, device_map: str | None) -> None:
    if device_map is not None:
        raise ValueError(
            f"device_map={device_map}: only for generative models, which model={name} is not; leave it out"
        )


def unchanged(tensors: Tensors) -> Tensors:
    return tensors


def cosine(both: Tensors) -> Tensor:
    return (both["image"] * both["text"]).sum(-1)


def words_of(tokenizer: Any, text: str, special: bool = True) -> list[tuple[str, list[int]]]:
    """The words of a text, each with the positions of its tokens. special: count special tokens as positions too."""
    spans = tokenizer(text, return_offsets_mapping=True, verbose=False, add_special_tokens=special)["offset_mapping"]
    return [
        (word.group(), [n for n, (a, b) in enumerate(spans) if a < b and a < word.end() and b > word.start()])
        for word in WORD.finditer(text)
    ]
