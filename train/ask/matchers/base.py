"""A pretrained model as a scorer: a class whose methods are the steps from picture and text to a score."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from train.data.inputs import Tensors

Key = TypeVar("Key")

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}
WORD = re.compile(r"\w(?:[\w'’-]*\w)?")


class TooLong(ValueError):
    """A text has more tokens than a model takes."""


class Matcher:
    """Pictures (N), texts (N) -> (N,) float64. A subclass has the steps of its models; here are the most frequent
    steps.

    In a call, `prepare` and `see` run once for each picture, `tokens` and `read` once for each text; `judge` scores
    both together. Each step maps tensors of B examples to tensors of B examples. head: `itm` or `itc`. threshold: the
    score above which a sentence matches; None if scores only rank. device, precision, batch_size: set by
    `loading.load`.
    """

    heads: tuple[str, ...] = ("itm", "itc")  # of the class's models, the default first
    odds: tuple[str, ...] = ("itm",)  # heads whose score is the log-odds of a match
    unused: tuple[str, ...] = ()  # prefixes of weights on which no score depends
    positions = "config.text_config.max_position_embeddings"  # attribute of the model: see `longest`
    token_options: dict[str, Any] = {}

    def __init__(self, name: str, model: Any, tokenizer: Any, processor: Any, head: str) -> None:
        self.name, self.tokenizer, self.processor, self.head = name, tokenizer, processor, head
        self.model: Any = model.eval().requires_grad_(False)
        self.threshold = 0.0 if head in self.odds else None
        self.device, self.precision, self.batch_size = torch.device("cpu"), torch.float32, 64

    # The steps --------------------------------------------------------------------------------------------------------

    @property
    def longest(self) -> int:
        """The longest text, in tokens."""
        return int(attrgetter(self.positions)(self.model))

    def prepare(self, image: Image.Image) -> Tensors:
        """The inputs of `see`, B = 1."""
        return dict(self.processor(images=image.convert("RGB"), return_tensors="pt"))

    def tokens(self, text: str) -> Tensors:
        """The inputs of `read`, B = 1. Raises `TooLong`."""
        encoded = self.tokenizer(text, return_tensors="pt", verbose=False, **self.token_options)
        self.check_length(encoded["input_ids"].shape[1], text)
        return {key: encoded[key] for key in ("input_ids", "attention_mask") if key in encoded}

    def see(self, x: Tensors) -> Tensors:
        return x

    def read(self, x: Tensors) -> Tensors:
        return x

    def judge(self, both: Tensors) -> Tensor:
        """The joint outputs of `see` and `read` to scores (B,). Here: cosines."""
        return (both["image"] * both["text"]).sum(-1)

    def words(self, text: str) -> list[tuple[str, list[int]]]:
        """The words of a text, each with the positions of its tokens."""
        return words_of(self.tokenizer, text)

    def check_length(self, length: int, text: str) -> None:
        if length > self.longest:
            raise TooLong(f"model={self.name}: takes {self.longest} tokens, not the {length} of {text!r}")

    def refusal(self, text: str) -> str | None:
        """Why the model does not take a text, in one line; None if it does."""
        try:
            self.tokens(text)
        except TooLong as error:
            return str(error)
        return None

    # The call ---------------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def __call__(self, images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        """The score of each picture with its text: (N,) float64. A pair that occurs twice is scored once. Raises
        ValueError where the numbers of images and texts differ."""
        if len(images) != len(texts):
            raise ValueError(f"{len(images)} images for {len(texts)} texts: give as many of each")
        pictures = {id(image): image for image in images}
        keys = [(id(image), text) for image, text in zip(images, texts, strict=True)]
        inputs = self.inputs(dict.fromkeys(keys), pictures)
        scores = self.map_batches(lambda both: {"score": self.judge(both)}, inputs)
        return np.array([scores[key]["score"].double().item() for key in keys], np.float64)

    def inputs(
        self, pairs: dict[tuple[int, str], None], pictures: dict[int, Image.Image]
    ) -> dict[tuple[int, str], Tensors]:
        """The inputs of `judge` of each pair of a picture (by its key) and a text."""
        by_text = self.map_batches(self.read, {text: self.tokens(text) for _, text in pairs})
        by_picture = self.map_batches(self.see, {key: self.prepare(image) for key, image in pictures.items()})
        return {(picture, text): by_picture[picture] | by_text[text] for picture, text in pairs}

    def map_batches(self, step: Callable[[Tensors], Tensors], examples: dict[Key, Tensors]) -> dict[Key, Tensors]:
        """Apply a step to each example (B = 1), in batches of examples whose tensors have the same shapes."""
        alike: dict[Hashable, list[Key]] = {}
        for key, tensors in examples.items():
            alike.setdefault(tuple((name, t.shape[1:]) for name, t in tensors.items()), []).append(key)
        out: dict[Key, Tensors] = {}
        for keys in alike.values():
            for start in range(0, len(keys), self.batch_size):
                batch = keys[start : start + self.batch_size]
                inputs = {name: torch.cat([examples[key][name] for key in batch]) for name in examples[batch[0]]}
                outputs = step({name: self.on_device(tensor) for name, tensor in inputs.items()})
                for row, key in enumerate(batch):
                    out[key] = {name: tensor[row : row + 1] for name, tensor in outputs.items()}
        return out

    def on_device(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, self.precision if tensor.is_floating_point() else None)


def words_of(tokenizer: Any, text: str, special: bool = True) -> list[tuple[str, list[int]]]:
    """The words of a text, each with the positions of its tokens. special: count special tokens as positions too."""
    spans = tokenizer(text, return_offsets_mapping=True, verbose=False, add_special_tokens=special)["offset_mapping"]
    return [
        (word.group(), [n for n, (a, b) in enumerate(spans) if a < b and a < word.end() and b > word.start()])
        for word in WORD.finditer(text)
    ]
