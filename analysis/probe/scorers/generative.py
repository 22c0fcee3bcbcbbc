"""Generative models of `transformers`, asked whether a sentence describes a picture."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Hashable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils._pytree import tree_map

from train.ask import chat
from train.ask.matchers.base import Matcher
from train.data.inputs import Tensors
from train.models.hub import quiet

QUESTION = 'Does the sentence "{text}" describe this picture? Answer yes or no.'
YES, NO = ("yes", "Yes", "true", "True"), ("no", "No", "false", "False")


class GenerativeScorer(Matcher):
    """Log-odds of "yes" or "true" against "no" or "false" as the next word after the question.

    Every spelling of these words that is one token counts: with or without a capital and a space before it. Models with
    an encoder and a decoder (BLIP-2 with T5) start their answer in the decoder. Each picture is encoded once in a call,
    unless the inputs of the vision tower cannot be divided by picture (see `split_by_picture`), as in Pixtral.
    prompt: the form of the question, `chat template` or `plain`. Raises ValueError, in one line, where the processor
    needs torchvision (as for videos) and it is not installed.
    """

    columns = ("score", "yes_or_no")

    def __init__(self, name: str, model: Any, folder: Path, question: str) -> None:
        processor = chat.chat_processor(name, folder)
        tokenizer = getattr(processor, "tokenizer", None)
        if tokenizer is None:
            raise ValueError(f"model={name}: its processor has no tokenizer")
        super().__init__(name, model, tokenizer, processor, "itm")
        self.question, self.last = question, chat.keep_last_logits(model)
        self.yes, self.no = (chat.answer_tokens(tokenizer, words) for words in (YES, NO))
        if not self.yes or not self.no or set(self.yes) & set(self.no):
            raise ValueError(f"model={name}: its tokenizer has no single tokens for yes and no")
        self.config = getattr(model.config, "text_config", model.config)
        self.prompt = "chat template" if getattr(processor, "chat_template", None) else "plain"
        # Chat models take texts of several lengths in one batch. Other models may not know about padding on the left.
        self.pads = self.prompt == "chat template" and not self.config.is_encoder_decoder
        self.pad = next((t for t in (tokenizer.pad_token_id, tokenizer.eos_token_id) if t is not None), 0)
        with quiet():
            self.before = image_token_line(processor) if self.prompt == "plain" else ""
        self.towers = [CachedTower(module) for module in find_vision_towers(model)]

    @property
    def longest(self) -> int:
        return int(getattr(self.config, "max_position_embeddings", None) or sys.maxsize)

    def inputs(
        self, pairs: dict[tuple[int, str], None], pictures: dict[int, Image.Image]
    ) -> dict[tuple[int, str], Tensors]:
        for tower in self.towers:
            tower.outputs.clear()
        inputs = {(picture, text): self.join(pictures[picture], text) for picture, text in pairs}
        return dict(sorted(inputs.items(), key=lambda item: item[1]["input_ids"].shape[1]))  # batches of like length

    def batch_key(self, inputs: Tensors) -> Hashable:
        return chat.batch_key(inputs) if self.pads else super().batch_key(inputs)

    def join_inputs(self, examples: Sequence[Tensors]) -> Tensors:
        return chat.join_inputs(examples, self.pad) if self.pads else super().join_inputs(examples)

    def join(self, image: Image.Image, text: str) -> Tensors:
        """A picture and a text to the model's inputs, B = 1."""
        image, question = image.convert("RGB"), self.question.replace("{text}", text)
        with quiet():
            if self.prompt == "chat template":
                content = [{"type": "image", "image": image}, {"type": "text", "text": question}]
                inputs = chat.chat_inputs(self.processor, [{"role": "user", "content": content}])
            else:
                question = f"{self.before}Question: {question} Answer:"
                inputs = chat.model_inputs(self.processor(images=[image], text=[question], return_tensors="pt"))
        chat.check_picture(self.name, inputs)
        self.check_length(inputs["input_ids"].shape[1], text)
        return inputs

    def answer(self, both: Tensors) -> Tensors:
        """`score` (B,), and `yes_or_no` (B,), the probability p(yes) + p(no) of the next token."""
        first, config = {}, self.config
        if config.is_encoder_decoder:
            start = getattr(config, "decoder_start_token_id", None)
            start = config.pad_token_id if start is None else start
            first["decoder_input_ids"] = torch.full_like(both["input_ids"][:, :1], start)
        logs = chat.next_token_logs(self.model, both, **first, **self.last)
        yes, no = chat.answer_log(logs, self.yes), chat.answer_log(logs, self.no)
        return {"score": yes - no, "yes_or_no": torch.logaddexp(yes, no).exp()}

    def with_probabilities(self, images: Sequence[Image.Image], texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Scores, and p(yes) + p(no): each (N,) float64."""
        outputs = self.outputs(images, texts)
        return outputs["score"], outputs["yes_or_no"]


def image_token_line(processor: Any) -> str:
    """The image token on a line of its own; empty where the processor has none, or inserts it into a text without."""
    token = str(getattr(processor, "image_token", None) or "")
    try:
        ids = list(processor(images=[Image.new("RGB", (64, 64))], text=["?"])["input_ids"][0]) if token else []
    except ValueError:  # it requires as many image tokens as pictures
        ids = []
    return f"{token}\n" if token and processor.tokenizer.convert_tokens_to_ids(token) not in ids else ""


# Vision towers, which encode each picture once in a call --------------------------------------------------------------


def find_vision_towers(model: Any) -> list[Any]:
    """The outermost modules of a model that take pixels and no tokens."""
    from transformers import PreTrainedModel

    towers: dict[str, Any] = {}
    for name, part in model.named_modules():
        if name and isinstance(part, PreTrainedModel) and not any(name.startswith(f"{outer}.") for outer in towers):
            parameters = inspect.signature(part.forward).parameters
            if ("pixel_values" in parameters or GRIDS in parameters) and "input_ids" not in parameters:
                towers[name] = part
    return list(towers.values())


# Input (N, 3) of towers that take the patches of all pictures in one row: patches of each picture along each dimension.
GRIDS = "grid_thw"
PER_PICTURE = ("patch_attention_mask", "aspect_ratio_ids", "aspect_ratio_mask")  # inputs with a row for each picture


class CachedTower:
    """Replaces a vision tower's `forward`, so that no picture is encoded twice.

    outputs: the tower's output for each picture, by the SHA-256 of the picture's inputs.
    """

    def __init__(self, tower: Any) -> None:
        self.names = list(inspect.signature(tower.forward).parameters)
        self.forward, self.outputs = tower.forward, dict[bytes, Any]()
        tower.forward = self

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        options |= dict(zip(self.names, inputs, strict=False))
        tensors = {name: options.pop(name) for name in list(options) if isinstance(options[name], Tensor)}
        pictures = split_by_picture(tensors, self.names[0])
        if not pictures or not all(isinstance(value, bool | int | None) for value in options.values()):
            return self.forward(**tensors, **options)  # another input may belong to single pictures, too
        keys = [picture_key(picture) for picture in pictures]
        new = {key: picture for key, picture in zip(keys, pictures, strict=True) if key not in self.outputs}
        if GRIDS in tensors:
            self.outputs |= {key: self.forward(**picture, **options) for key, picture in new.items()}
        elif new:
            batch = self.forward(**concatenate(list(new.values())), **options)
            self.outputs |= {key: select_row(batch, row) for row, key in enumerate(new)}
        return concatenate([self.outputs[key] for key in keys])


def split_by_picture(tensors: Tensors, pixels: str) -> list[Tensors]:
    """The inputs of each picture; empty where an input cannot be divided among the pictures."""
    if pixels not in tensors:
        return []
    if set(tensors) == {pixels, GRIDS}:
        sizes = tensors[GRIDS].prod(-1).tolist()
        if sum(sizes) != len(tensors[pixels]):
            return []
        patches = torch.split(tensors[pixels], sizes)
        return [{pixels: some, GRIDS: grid[None]} for some, grid in zip(patches, tensors[GRIDS], strict=True)]
    count = len(tensors[pixels])
    if set(tensors) - {pixels, *PER_PICTURE} or any(len(tensor) != count for tensor in tensors.values()):
        return []
    return [select_row(tensors, row) for row in range(count)]


def picture_key(picture: Tensors) -> bytes:
    digest = sha256()
    for tensor in picture.values():
        digest.update(str(tensor.shape).encode())  # blank pictures of other shapes can have the same bytes
        digest.update(tensor.contiguous().view(torch.uint8).cpu().numpy().data)
    return digest.digest()


def select_row(batch: Any, row: int) -> Any:
    """One row of the tensors in nested dictionaries, tuples, lists and `ModelOutput`s."""
    return tree_map(lambda value: value[row : row + 1] if isinstance(value, Tensor) else value, batch)


def concatenate(rows: Sequence[Any]) -> Any:
    """Rows as one batch: the inverse of `select_row`."""
    return tree_map(lambda *values: torch.cat(values) if isinstance(values[0], Tensor) else values[0], *rows)
