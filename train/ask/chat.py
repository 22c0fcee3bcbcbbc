"""Chat models of `transformers`: their processors, their inputs, and the tokens of fixed answers."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from train.data.inputs import Tensors
from train.models.hub import first_sentence, hub_folder, load_model, load_processors
from train.models.loading import read_json

ADAPTERS = "adapter_config.json"  # says what model the adapters of a folder are for

# Messages {"role": ..., "content": [{"type": "image", "image": PIL}, {"type": "text", "text": ...}]}.
Conversation = list[dict[str, Any]]


def chat_processor(name: str, folder: Path) -> Any:
    """The processor of a folder, with the Pillow image processor if it has one.

    So results do not depend on whether torchvision, which resizes differently, is installed. Raises ValueError, in one
    line, if the processor cannot be loaded, for example because it needs torchvision.
    """
    (processor,) = load_processors(name, folder, "AutoProcessor")
    if hasattr(processor, "image_processor"):
        (processor.image_processor,) = load_processors(name, folder, "AutoImageProcessor")
    return processor


def load_chat_model(name: str, folder: Path, kind: str, dtype: torch.dtype, device_map: str | None = None) -> Any:
    """A model with its weights; of a folder with adapters (PEFT), the model that these are for, with them in it.

    Raises ValueError, in one line, if there is no such model.
    """
    if not (folder / ADAPTERS).is_file():
        return load_model(name, folder, kind, dtype, device_map=device_map)
    if importlib.util.find_spec("peft") is None:
        raise ValueError(f"model={name}: has adapters; install PEFT with: pip install -e '.[finetune]'")
    from peft import PeftModel

    base = str(read_json(folder / ADAPTERS).get("base_model_name_or_path"))
    model = load_chat_model(base, hub_folder(base), kind, dtype, device_map)
    try:
        return PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
    except Exception as error:  # a damaged folder can raise anything
        raise ValueError(f"model={name}: its adapters cannot be loaded ({first_sentence(error)})") from None


def chat_inputs(processor: Any, conversation: Conversation) -> Tensors:
    """The tensors of a conversation with the beginning of a reply, B = 1.

    The template is applied and tokenised in one call, so that the processor does not add a second token for the
    beginning of the text.
    """
    options = {"add_generation_prompt": True, "tokenize": True, "return_dict": True, "return_tensors": "pt"}
    return model_inputs(processor.apply_chat_template([conversation], **options))


def model_inputs(processed: Mapping[str, Any]) -> Tensors:
    """What a processor returns, without what is no input. PaliGemma's adds labels, for which the model would compute a
    loss."""
    return {name: value for name, value in processed.items() if isinstance(value, torch.Tensor) and name != "labels"}


def check_picture(name: str, inputs: Tensors) -> None:
    """Raises ValueError, in one line, if the inputs of a request with a picture hold none of its pixels. So it is where
    `transformers` does not know the processor of a folder, and takes the tokenizer in its place."""
    if not any("pixel" in key or "patches" in key for key in inputs):
        raise ValueError(
            f"model={name}: its processor makes no pixels of a picture (no pixel_values in {', '.join(inputs)}); "
            "is its processor_class one of the installed transformers, or does it need torchvision?"
        )


def batch_key(inputs: Tensors) -> Hashable:
    """Inputs (B = 1) with equal keys can share a batch: all tensors but those of tokens have equal shapes."""
    return tuple((name, None if _is_of_tokens(name, inputs) else tensor.shape[1:]) for name, tensor in inputs.items())


def join_inputs(examples: Sequence[Tensors], pad: int) -> Tensors:
    """Inputs of equal `batch_key` as one batch. Shorter ones are padded on the left, so that all replies begin at the
    same position. pad: token id."""
    longest = max(inputs["input_ids"].shape[1] for inputs in examples)

    def padded(name: str, inputs: Tensors) -> torch.Tensor:
        padding = longest - inputs["input_ids"].shape[1]
        if not padding or not _is_of_tokens(name, inputs):
            return inputs[name]
        return torch.nn.functional.pad(inputs[name], (padding, 0), value=pad if name == "input_ids" else 0)

    return {name: torch.cat([padded(name, inputs) for inputs in examples]) for name in examples[0]}


def _is_of_tokens(name: str, inputs: Tensors) -> bool:
    """Whether a tensor has one value for each token, such as attention_mask (1, T)."""
    return name == "input_ids" or (name.endswith(("_mask", "_ids")) and inputs[name].shape == inputs["input_ids"].shape)


def next_token_logs(model: Any, inputs: Tensors, **options: Any) -> torch.Tensor:
    """Log-probabilities of the token after the inputs (B, V)."""
    return model(**inputs, **options).logits[:, -1].float().log_softmax(-1)


def answer_log(logs: torch.Tensor, tokens: Sequence[int]) -> torch.Tensor:
    """Log-probability that the next token is one of `tokens`: (..., V) -> (...)."""
    return logs[..., list(tokens)].logsumexp(-1)


def keep_last_logits(model: Any) -> dict[str, int]:
    """The argument for the logits of the last position alone, if the model has it. Those of all positions are about
    300 x 260,000 numbers per sentence."""
    return {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}


def answer_tokens(tokenizer: Any, words: Sequence[str]) -> list[int]:
    """The tokens that are one of `words`, with or without a space before it."""
    tokens = set()
    for word in words:
        for text in (word, f" {word}"):
            ids = tokenizer.encode(text, add_special_tokens=False)
            if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
                tokens.add(ids[0])
    return sorted(tokens)
