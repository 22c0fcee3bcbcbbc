"""Generative models of `transformers`, asked whether a sentence describes a picture."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from analysis.probe.scorers.base import ModelScorer, Tensors
from analysis.probe.scorers.vision_cache import CachedTower, find_vision_towers
from train.models.hub import quiet
from train.vlm.chat import answer_tokens, chat_inputs, chat_processor, keep_last_logits

QUESTION = 'Does the sentence "{text}" describe this picture? Answer yes or no.'
YES, NO = ("yes", "Yes", "true", "True"), ("no", "No", "false", "False")


class GenerativeScorer(ModelScorer):
    """Log-odds of "yes" or "true" against "no" or "false" as the next word after the question.

    Every spelling of these words that is one token counts: with or without a capital and a space before it. Models with
    an encoder and a decoder (BLIP-2 with T5) start their answer in the decoder. Each picture is encoded once in a call,
    unless the inputs of the vision tower cannot be divided by picture (see `split_by_picture`; Pixtral's cannot).
    prompt: the form of the question, `chat template` or `plain`. Raises ValueError, in one line, where the processor
    needs torchvision (as for videos) and it is not installed.
    """

    columns = ("score", "yes_or_no")

    def __init__(self, name: str, model: Any, folder: Path, question: str) -> None:
        if "{text}" not in question:
            raise ValueError(f"question={question!r}: must hold {{text}}, where the sentence goes")
        processor = chat_processor(name, folder)
        tokenizer = getattr(processor, "tokenizer", None)
        if tokenizer is None:
            raise ValueError(f"model={name}: its processor has no tokenizer")
        super().__init__(name, model, tokenizer, processor, "itm")
        self.question, self.last = question, keep_last_logits(model)
        self.yes, self.no = (answer_tokens(tokenizer, words) for words in (YES, NO))
        if not self.yes or not self.no or set(self.yes) & set(self.no):
            raise ValueError(f"model={name}: its tokenizer has no single tokens for yes and no")
        self.config = getattr(model.config, "text_config", model.config)
        self.prompt = "chat template" if getattr(processor, "chat_template", None) else "plain"
        with quiet():
            self.ask = input_function(processor)
        self.towers = [CachedTower(module) for module in find_vision_towers(model)]

    @property
    def longest(self) -> int:
        return int(getattr(self.config, "max_position_embeddings", None) or sys.maxsize)

    def inputs(
        self, pairs: dict[tuple[int, str], None], pictures: dict[int, Image.Image]
    ) -> dict[tuple[int, str], Tensors]:
        for tower in self.towers:
            tower.outputs.clear()
        return {(picture, text): self.join(pictures[picture], text) for picture, text in pairs}

    def join(self, image: Image.Image, text: str) -> Tensors:
        """A picture and a text to the model's inputs, B = 1."""
        with quiet():
            found = self.ask(image.convert("RGB"), self.question.replace("{text}", text))
        self.check_length(found["input_ids"].shape[1], text)
        # PaliGemma's processor adds labels, from which the model would compute a loss.
        return {key: value for key, value in found.items() if isinstance(value, Tensor) and key != "labels"}

    def answer(self, both: Tensors) -> Tensors:
        """`score` (B,), and `yes_or_no` (B,), the probability p(yes) + p(no) of the next token."""
        first, config = {}, self.config
        if config.is_encoder_decoder:
            begin = getattr(config, "decoder_start_token_id", None)
            begin = config.pad_token_id if begin is None else begin
            first["decoder_input_ids"] = torch.full_like(both["input_ids"][:, :1], begin)
        logs = self.model(**both, **first, **self.last).logits[:, -1].float().log_softmax(-1)  # (B, V)
        yes, no = logs[:, self.yes].logsumexp(-1), logs[:, self.no].logsumexp(-1)
        return {"score": yes - no, "yes_or_no": torch.logaddexp(yes, no).exp()}

    def with_probabilities(self, images: Sequence[Image.Image], texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Scores, and p(yes) + p(no): each (N,) float64."""
        outputs = self.outputs(images, texts)
        return outputs["score"], outputs["yes_or_no"]


def input_function(processor: Any) -> Callable[[Image.Image, str], Mapping[str, Any]]:
    """A function that maps a picture and a question to a model's inputs, B = 1.

    It applies the processor's chat template if there is one; otherwise it puts the image token before the question,
    unless the processor does so. The template is applied and tokenised in one call, so that the processor does not add
    a second token for the beginning of the text.
    """
    if getattr(processor, "chat_template", None):

        def chat(image: Image.Image, question: str) -> Mapping[str, Any]:
            content = [{"type": "image", "image": image}, {"type": "text", "text": question}]
            return chat_inputs(processor, [[{"role": "user", "content": content}]])

        return chat
    token = str(getattr(processor, "image_token", None) or "")
    before = f"{token}\n" if token and not inserts_image_token(processor, token) else ""

    def plain(image: Image.Image, question: str) -> Mapping[str, Any]:
        return processor(images=[image], text=[f"{before}Question: {question} Answer:"], return_tensors="pt")

    return plain


def inserts_image_token(processor: Any, token: str) -> bool:
    """Whether a processor inserts the image token into a text without one."""
    try:
        ids = processor(images=[Image.new("RGB", (64, 64))], text=["?"])["input_ids"][0]
    except ValueError:  # it requires as many image tokens as pictures
        return False
    return processor.tokenizer.convert_tokens_to_ids(token) in list(ids)
