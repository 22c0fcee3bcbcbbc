"""Chat models of `transformers`: their processors, their inputs, and the tokens of fixed answers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from train.models.hub import load_processors

Conversation = list[
    dict[str, Any]
]  # messages {"role", "content": [{"type": "image", "image": PIL}, {"type": "text", ...}]}


def chat_processor(name: str, folder: Path) -> Any:
    """The processor of a folder, with its Pillow image processor where there is one.

    So a result does not depend on whether torchvision, which resizes differently, is installed. Raises ValueError, in
    one line, where the processor cannot be loaded, as without torchvision where it needs it.
    """
    (processor,) = load_processors(name, folder, "AutoProcessor")
    if hasattr(processor, "image_processor"):
        (processor.image_processor,) = load_processors(name, folder, "AutoImageProcessor")
    return processor


def chat_inputs(processor: Any, conversations: Sequence[Conversation]) -> Mapping[str, Any]:
    """The tensors of B conversations, each with the beginning of a reply.

    The template is applied and tokenised in one call, so that the processor does not add a second token for the
    beginning of the text. Several conversations are padded; set `padding_side` of the tokenizer to left for generation.
    """
    padding: dict[str, Any] = {"padding": True} if len(conversations) > 1 else {}
    if hasattr(processor, "tokenizer"):  # a tokenizer takes the setting itself, a processor passes it on
        padding = {"processor_kwargs": padding} if padding else {}
    return processor.apply_chat_template(
        list(conversations),
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        **padding,
    )


def keep_last_logits(model: Any) -> dict[str, int]:
    """The argument by which a model computes the logits of the last position alone, where it has one: those of all
    positions are some 300 x 260,000 numbers per sentence."""
    return {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}


def answer_tokens(tokenizer: Any, words: Sequence[str]) -> list[int]:
    """The tokens that are one of some words, with or without a space before it."""
    tokens = set()
    for word in words:
        for text in (word, f" {word}"):
            ids = tokenizer.encode(text, add_special_tokens=False)
            if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
                tokens.add(ids[0])
    return sorted(tokens)
