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

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bf16": torch.bfloat16, "float16": torch.float16}
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

    columns: tuple[str, ...] = ("score",)  # of `outputs`
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

    def answer(self, both: Tensors) -> Tensors:
        """The same, to all `columns`."""
        return {"score": self.judge(both)}

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

    def __call__(self, images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        return self.outputs(images, texts)["score"]

    @property
    def precision_name(self) -> str:
        """The key in `DTYPES` of the type that the model computes in."""
        return next(name for name, dtype in DTYPES.items() if dtype == self.precision)

    @torch.inference_mode()
    def outputs(self, images: Sequence[Image.Image], texts: Sequence[str]) -> dict[str, np.ndarray]:
        """All `columns` of each picture with its text: (N,) float64. A pair that occurs twice is scored once. Raises
        ValueError where the numbers of images and texts differ."""
        if len(images) != len(texts):
            raise ValueError(f"{len(images)} images for {len(texts)} texts: give as many of each")
        pictures = {id(image): image for image in images}
        keys = [(id(image), text) for image, text in zip(images, texts, strict=True)]
        results = self.map_batches(self.answer, self.inputs(dict.fromkeys(keys), pictures))
        return {name: np.array([results[key][name].double().item() for key in keys], np.float64)
                for name in self.columns}  # fmt: skip

    def inputs(
        self, pairs: dict[tuple[int, str], None], pictures: dict[int, Image.Image]
    ) -> dict[tuple[int, str], Tensors]:
        """The inputs of `answer` of each pair of a picture (by its key) and a text."""
        by_text = self.map_batches(self.read, {text: self.tokens(text) for _, text in pairs})
        by_picture = self.map_batches(self.see, {key: self.prepare(image) for key, image in pictures.items()})
        return {(picture, text): by_picture[picture] | by_text[text] for picture, text in pairs}

    def map_batches(self, step: Callable[[Tensors], Tensors], examples: dict[Key, Tensors]) -> dict[Key, Tensors]:
        """Apply a step to each example (B = 1), in batches of examples with the same `batch_key`."""
        alike: dict[Hashable, list[Key]] = {}
        for key, tensors in examples.items():
            alike.setdefault(self.batch_key(tensors), []).append(key)
        out: dict[Key, Tensors] = {}
        for keys in alike.values():
            for start in range(0, len(keys), self.batch_size):
                batch = keys[start : start + self.batch_size]
                inputs = self.join_inputs([examples[key] for key in batch])
                outputs = step({name: self.on_device(tensor) for name, tensor in inputs.items()})
                for row, key in enumerate(batch):
                    out[key] = {name: tensor[row : row + 1] for name, tensor in outputs.items()}
        return out

    def batch_key(self, inputs: Tensors) -> Hashable:
        """What inputs (B = 1) must have in common to share a batch. Here: the shapes of all tensors."""
        return tuple((name, tensor.shape[1:]) for name, tensor in inputs.items())

    def join_inputs(self, examples: Sequence[Tensors]) -> Tensors:
        """Inputs (B = 1) that share a batch, as one batch."""
        return {name: torch.cat([inputs[name] for inputs in examples]) for name in examples[0]}

    def on_device(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, self.precision if tensor.is_floating_point() else None)


def words_of(tokenizer: Any, text: str, special: bool = True) -> list[tuple[str, list[int]]]:
    """The words of a text, each with the positions of its tokens. special: count special tokens as positions too."""
    spans = tokenizer(text, return_offsets_mapping=True, verbose=False, add_special_tokens=special)["offset_mapping"]
    return [
        (word.group(), [n for n, (a, b) in enumerate(spans) if a < b and a < word.end() and b > word.start()])
        for word in WORD.finditer(text)
    ]
