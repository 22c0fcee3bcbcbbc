"""Replies of a chat model of `transformers` on this machine.

Requests of similar length share a batch, and a thread prepares the next batch while the model computes. Models of
images and text are loaded with `AutoModelForImageTextToText`, text-only ones, for captions, as causal language models.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from train.ask.chat import (
    answer_log,
    answer_tokens,
    batch_key,
    chat_inputs,
    chat_processor,
    check_picture,
    join_inputs,
    keep_last_logits,
    load_chat_model,
    next_token_logs,
)
from train.ask.config import Evaluation, refuse_settings
from train.ask.requests import SPELLINGS, Reply, Request, best_answer, fixed_answers, log_odds_of, open_picture
from train.data.inputs import Tensors
from train.learning.devices import chosen_precision
from train.models.hub import (
    check_weights,
    config_of,
    first_sentence,
    hub_folder,
    load_processors,
    quiet,
    torch_device,
)
from travlr.files import path_digest
from travlr.questions import Question
from travlr.questions.forms import SETTINGS, Message
from travlr.settings import Log

SPREAD = ("balanced", "balanced_low_0", "sequential")  # over all GPUs, by accelerate
BATCH_SIZE = 8
WINDOW = 16  # batches among which requests are sorted by length


class ChatModel:
    """A chat model. model_seconds: spent in the model since the first request. seconds: in all.

    Raises `ValueError`, in one line, if the model cannot be loaded, has no chat template, or takes no images and the
    settings show some. settings: what it takes.
    """

    def __init__(self, config: Evaluation, log: Log = print) -> None:
        from transformers.models.auto import modeling_auto

        self.config, self.name = config, config.model
        self.folder = hub_folder(self.name, revision=config.revision, also=", runs/NAME or a NAME with server=")
        kind = str(config_of(self.name, self.folder).get("model_type"))
        self.takes_images = kind in modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
        if not self.takes_images and kind not in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            raise ValueError(f"model={self.name}: its model_type={kind} is no chat model of the installed transformers")
        refuse_settings(config, "is for matchers", "head", "regions")
        self.settings = SETTINGS if self.takes_images else ("caption",)
        check_weights(self.name, self.folder)  # before a tokenizer is needed
        self.processor = self._load_processor()
        self.tokenizer = getattr(self.processor, "tokenizer", self.processor)
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        spread = config.device if config.device in SPREAD else None
        self.device = torch_device("auto" if spread else config.device)
        self.precision = chosen_precision(config.precision, self.device.type)
        auto = "AutoModelForImageTextToText" if self.takes_images else "AutoModelForCausalLM"
        dtype = torch.bfloat16 if self.precision == "bf16" else torch.float32
        self.model = load_chat_model(self.name, self.folder, auto, dtype, device_map=spread).eval()
        if spread is None:  # otherwise accelerate has placed the model, and moves activations between devices
            self.model.to(self.device)
        log(f"{self.name}: {self.device}, {self.precision}")
        self._last, self._log = keep_last_logits(self.model), log
        self._tokens: dict[tuple[str, ...], list[list[int]]] = {}
        self.model_seconds = self.seconds = 0.0

    def _load_processor(self) -> Any:
        if self.takes_images:
            processor = chat_processor(self.name, self.folder)
        else:
            (processor,) = load_processors(self.name, self.folder, "AutoTokenizer")
        if not getattr(processor, "chat_template", None):
            raise ValueError(
                f"model={self.name}: has no chat template; give a model that was tuned to follow instructions"
            )
        return processor

    def replies(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Reply]]:
        """Replies, in the order of batches of similar length."""
        batches = self._batches(requests)
        start = time.monotonic()
        with ThreadPoolExecutor(1) as pool:  # one thread: tokenizers are not safe to share
            first = next(batches, None)
            pending = first and pool.submit(self._inputs, first)
            while pending:
                parts = pending.result()
                following = next(batches, None)
                pending = following and pool.submit(self._inputs, following)
                for part, inputs in parts:
                    yield from zip(part, self._answer(part, inputs), strict=True)
                self.seconds = time.monotonic() - start
        if self.seconds:
            percent = 100 * self.model_seconds / self.seconds
            self._log(f"{self.name}: the model computed in {percent:.0f} % of {self.seconds:,.0f} s")

    def answer(self, batch: Sequence[Request]) -> list[Reply]:
        """Replies to a batch of requests, in its order."""
        replies: dict[int, Reply] = {}
        for part, inputs in self._inputs(batch):
            replies |= zip(map(id, part), self._answer(part, inputs), strict=True)
        return [replies[id(request)] for request in batch]

    def _batches(self, requests: Iterable[Request]) -> Iterator[list[Request]]:
        waiting, size = iter(requests), self.config.batch_size or BATCH_SIZE
        while window := list(itertools.islice(waiting, WINDOW * size)):
            window.sort(key=lambda request: (len(request.messages[0]["content"]), _length(request)))
            yield from (window[start : start + size] for start in range(0, len(window), size))

    def _inputs(self, batch: Sequence[Request]) -> list[tuple[list[Request], Tensors]]:
        """Parts of a batch with their inputs; one part if all inputs have equal `batch_key`."""
        parts: dict[Any, list[tuple[Request, Tensors]]] = {}
        for request in batch:
            try:
                with quiet():
                    inputs = chat_inputs(self.processor, [self._message(m) for m in request.messages])
            except Exception as error:  # templates and processors can raise anything
                reason = first_sentence(error)
                raise ValueError(f"model={self.name}: its processor refuses a request ({reason})") from None
            if any(part["type"] == "image" for message in request.messages for part in message["content"]):
                check_picture(self.name, inputs)
            parts.setdefault(batch_key(inputs), []).append((request, inputs))
        pad = self.tokenizer.pad_token_id
        return [
            ([request for request, _ in part], join_inputs([inputs for _, inputs in part], pad))
            for part in parts.values()
        ]

    def _message(self, message: Message) -> dict[str, Any]:
        if not self.takes_images:
            return {"role": message["role"], "content": "\n\n".join(part["text"] for part in message["content"])}
        return {"role": message["role"], "content": [_part(part) for part in message["content"]]}

    @torch.inference_mode()
    def _answer(self, batch: Sequence[Request], inputs: Tensors) -> list[Reply]:
        start = time.monotonic()
        dtype = self.model.dtype
        inputs = {
            name: value.to(self.device, dtype if value.is_floating_point() else None) for name, value in inputs.items()
        }
        answer = self._likelihoods if self.config.answers == "likelihood" else self._generate
        replies = answer(batch, inputs)
        self.model_seconds += time.monotonic() - start
        return replies

    def _generate(self, batch: Sequence[Request], inputs: Tensors) -> list[Reply]:
        config = self.config
        options: dict[str, Any] = {"do_sample": config.temperature > 0, "max_new_tokens": config.most_tokens}
        if config.temperature:
            options["temperature"] = config.temperature
            torch.manual_seed(int(batch[0].key, 16) ^ config.seed)  # a reply does not depend on earlier requests
        else:  # else transformers warns about a checkpoint's settings for sampling
            options |= {"temperature": None, "top_p": None, "top_k": None}
        with quiet():
            output = self.model.generate(**inputs, **options, pad_token_id=self.tokenizer.pad_token_id)
        length = inputs["input_ids"].shape[1]
        ends = self.model.generation_config.eos_token_id
        ends = {*(ends if isinstance(ends, list) else [ends]), self.tokenizer.eos_token_id}
        replies = []
        for mask, row in zip(inputs["attention_mask"], output[:, length:].tolist(), strict=True):
            end = next((i for i, token in enumerate(row) if token in ends), None)
            tokens = row if end is None else row[:end]
            text = self.tokenizer.decode(tokens, skip_special_tokens=True)
            replies.append(Reply(text, "length" if end is None else "stop", int(mask.sum()), len(tokens)))
        return replies

    def _likelihoods(self, batch: Sequence[Request], inputs: Tensors) -> list[Reply]:
        logs = next_token_logs(self.model, inputs, **self._last).cpu()
        replies = []
        for request, row, mask in zip(batch, logs, inputs["attention_mask"], strict=True):
            answers = fixed_answers(request.question)
            tokens = self._answer_tokens(request.question, answers)
            of_answer = {a: float(answer_log(row, ids)) for a, ids in zip(answers, tokens, strict=True)}
            score = log_odds_of(of_answer)
            replies.append(Reply(best_answer(of_answer), None, int(mask.sum()), 0, of_answer, score))
        return replies

    def _answer_tokens(self, question: Question, answers: Sequence[str]) -> list[list[int]]:
        key = tuple(answers)
        if key not in self._tokens:
            spellings = [[answer] for answer in answers]
            if question.form == "true_false":
                spellings = [[word for word, means in SPELLINGS.items() if means == answer] for answer in answers]
                spellings = [[*words, *map(str.capitalize, words)] for words in spellings]
            self._tokens[key] = [answer_tokens(self.tokenizer, words) for words in spellings]
            if not all(self._tokens[key]):
                raise ValueError(
                    f"answers=likelihood: the tokenizer of model={self.name} has no single token for one of "
                    f"{', '.join(answers)}; use answers=generate"
                )
        return self._tokens[key]


def _length(request: Request) -> int:
    return sum(len(part.get("text", "")) for part in request.messages[0]["content"])


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return dict(part)
    return {"type": "image", "image": open_picture(part["image"])}


def digest_weights(folder: Path) -> str:
    """A name of the weights: the commit of a hub snapshot, or the digest of a folder's files."""
    return folder.name if folder.parent.name == "snapshots" else str(path_digest(str(folder)))[:16]
