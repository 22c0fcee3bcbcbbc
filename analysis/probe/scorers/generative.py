"""Generative models of `transformers`, asked whether a sentence describes a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from analysis.probe.scorers.base import ScorerParts, Tensors, words_of
from analysis.probe.scorers.vision_cache import CachedTower, find_vision_towers
from train.models.hub import quiet
from train.vlm.chat import answer_tokens, chat_inputs, chat_processor, keep_last_logits

QUESTION = 'Does the sentence "{text}" describe this picture? Answer yes or no.'


YES, NO = ("yes", "Yes", "true", "True"), ("no", "No", "false", "False")


def generative(name: str, model: Any, folder: Path, question: str) -> ScorerParts:
    """Log-odds of "yes" or "true" against "no" or "false" as the next word after the question.

    Every spelling of these words that is one token counts: with or without a capital and a space before it. Models with
    an encoder and a decoder (BLIP-2 with T5) start their answer in the decoder. Each picture is encoded once in a call,
    unless the inputs of the vision tower cannot be divided by picture (see `split_by_picture`; Pixtral's cannot).
    Raises ValueError, in one line, where the processor needs torchvision (as for videos) and it is not installed.
    """
    if "{text}" not in question:
        raise ValueError(f"question={question!r}: must hold {{text}}, where the sentence goes")
    processor = chat_processor(name, folder)
    tokenizer = getattr(processor, "tokenizer", None)
    if tokenizer is None:
        raise ValueError(f"model={name}: its processor has no tokenizer")
    yes, no = (answer_tokens(tokenizer, words) for words in (YES, NO))
    if not yes or not no or set(yes) & set(no):
        raise ValueError(f"model={name}: its tokenizer has no single tokens for yes and no")
    config = getattr(model.config, "text_config", model.config)
    longest = getattr(config, "max_position_embeddings", None)
    begin = getattr(config, "decoder_start_token_id", None)
    begin = config.pad_token_id if begin is None else begin
    last = keep_last_logits(model)
    with quiet():
        inputs = input_function(processor)
    towers = [CachedTower(module) for module in find_vision_towers(model)]

    def join(image: Image.Image, text: str) -> Tensors:
        for tower in towers:  # all examples of a call are joined before the first is scored
            tower.outputs.clear()
        with quiet():
            model_inputs = inputs(image.convert("RGB"), question.replace("{text}", text))
        if longest is not None and (length := model_inputs["input_ids"].shape[1]) > longest:
            raise ValueError(f"model={name}: takes {longest} tokens, not the {length} of picture and {text!r}")
        # PaliGemma's processor adds labels, from which the model would compute a loss.
        return {key: value for key, value in model_inputs.items() if isinstance(value, Tensor) and key != "labels"}

    def answer(both: Tensors) -> Tensors:
        first = {}
        if config.is_encoder_decoder:
            first["decoder_input_ids"] = torch.full_like(both["input_ids"][:, :1], begin)
        logs = model(**both, **first, **last).logits[:, -1].float().log_softmax(-1)  # (B, V)
        log_yes, log_no = logs[:, yes].logsumexp(-1), logs[:, no].logsumexp(-1)
        return {"score": log_yes - log_no, "yes_or_no": torch.logaddexp(log_yes, log_no).exp()}

    def unused(_: Any) -> Any:
        raise AssertionError("generative models take picture and text together")

    prompt = "chat template" if getattr(processor, "chat_template", None) else "plain"
    words = partial(words_of, tokenizer)
    return ScorerParts(
        model, words, unused, unused, unused, unused, unused, 0.0,
        join=join, processor=processor, answer=answer, prompt=prompt,
    )  # fmt: skip


def input_function(processor: Any) -> Callable[[Image.Image, str], Mapping[str, Any]]:
    """A function that maps a picture and a question to a model's inputs, B = 1.

    It applies the processor's chat template if there is one; otherwise it puts the image token before the question,
    unless the processor does so. The template is applied and tokenised in one call, so that the processor does not add
    a second token for the beginning of the text.
    """
    if getattr(processor, "chat_template", None):

        def chat(image: Image.Image, question: str) -> Mapping[str, Any]:
            content = [{"type": "image", "image": image}, {"type": "text", "text": question}]
            return chat_inputs(processor, [{"role": "user", "content": content}])

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
