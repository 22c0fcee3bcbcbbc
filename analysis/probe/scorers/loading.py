"""What answers: pretrained models as functions (images, texts) -> scores. `load` makes one from a name.

Scores are logits or cosines as the models give them, never softmaxed, so that they neither saturate nor depend on what
else is scored. Examples share a batch only where their tensors are equally large: nothing is padded beyond what a model
was trained with, so no sentence's score depends on its neighbours, and the size of a batch changes a score by no more
than the rounding of float32 sums. A pair of picture and sentence that occurs twice in a call is scored once: equal
captions tie exactly.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from analysis.probe.config import DEVICE_MAPS, HEADS, OWN, PRECISIONS
from analysis.probe.corpora.items import Scorer, numbers

if TYPE_CHECKING:
    from train.config import RegionSettings

Tensors = dict[str, Tensor]  # each (B, ...)
Key = TypeVar("Key")

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bf16": torch.bfloat16, "float16": torch.float16}
FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
WORD = re.compile(r"\w(?:[\w'’-]*\w)?")


@dataclass(frozen=True)
class Parts:
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

    def __init__(self, name: str, parts: Parts, device: torch.device, precision: torch.dtype, batch_size: int) -> None:
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


class Named:
    """A user's function as a scorer. `threshold` is the function's own, if it has one."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.function = name, function
        self.threshold: float | None = getattr(function, "threshold", None)

    def __call__(self, images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        return numbers(self.function(images, texts))


def load(
    name: str,
    *,
    device: str = "auto",
    precision: str = "float32",
    batch_size: int = 64,
    head: str | None = None,
    question: str | None = None,
    regions: RegionSettings | None = None,
    size: str = "base",
    device_map: str | None = None,
) -> Scorer:
    """A scorer by name, with attributes `name` and `threshold`.

    name: a folder that `transformers` saved or a hub id, of a CLIP, MetaCLIP 2, ALIGN, AltCLIP, Chinese CLIP, SigLIP,
    SigLIP 2, BLIP or BLIP-2 (image-text retrieval), ViLT (retrieval), FLAVA, BridgeTower (retrieval) or any generative
    vision-language model (its `model_type` decides); `visualbert:`, `uniter:`, `lxmert:` or `albef:` and a checkpoint
    as its authors published it; or `MODULE:FUNCTION`, a function (images, texts) -> scores of a module that Python
    finds from the current folder.
    device: auto (a GPU if there is one), cpu, gpu, cuda:1, ... precision: float32; float64; float16 or bf16, which
    round scores to some 3 digits, so that many tie; or auto, the one that the weights are saved in. Generative models
    are loaded in it; the others are loaded in float32 and then converted. device_map: of generative models, how
    `accelerate` spreads them over all GPUs, one of `analysis.probe.config.DEVICE_MAPS`.
    head: itm or itc, of the models that have both; by default itm. question: asked of generative models, with `{text}`
    for the sentence; by default `analysis.probe.scorers.families.QUESTION`. regions: of VisualBERT, UNITER and LXMERT, by
    default those of a 6 x 6 grid. size: of VisualBERT, UNITER, LXMERT and ALBEF, one of `train.models.SIZES`.

    threshold: 0 where a score is the log-odds of a match, None where it only ranks (CLIP, ViLT, itc).
    Raises ValueError, in one line, for a name or setting that cannot be had.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision}: choose one of {', '.join(PRECISIONS)}")
    if device_map not in (None, *DEVICE_MAPS):
        raise ValueError(f"device_map={device_map}: choose one of {', '.join(DEVICE_MAPS)}")
    if head not in (None, *HEADS):
        raise ValueError(f"head={head}: choose one of {', '.join(HEADS)}")
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: must be 1 or more")
    where, dtype = device_of(device), DTYPES.get(precision)
    kind, colon, rest = name.partition(":")
    if colon and kind in OWN:
        from analysis.probe.scorers import own

        check_not_spread(name, device_map)
        parts = own.parts(kind, rest, head=head, regions=regions, size=size)
    elif regions is not None:
        raise ValueError(f"regions: model={name} sees no regions; only visualbert:, uniter: and lxmert: do")
    elif FUNCTION.fullmatch(name) and not Path(name).exists():
        return function_of(name)
    else:
        from analysis.probe.scorers import families

        parts = families.parts_of(name, head, question, dtype, device_map)
    dtype = dtype or next(parameter.dtype for parameter in parts.model.parameters())
    if dtype not in DTYPES.values():
        raise ValueError(f"precision=auto: model={name} is saved in {dtype}; choose one of {', '.join(DTYPES)}")
    if parts.answer is None:
        parts.model.to(where, dtype)
    elif device_map is None:  # else accelerate has moved the model, and moves what goes from one layer to another
        parts.model.to(where)  # in the type that it was loaded in, which for some layers is float32
    scorer = Matcher if parts.answer is None else GenerativeScorer
    return scorer(name, parts, where, dtype, batch_size)


def check_not_spread(name: str, device_map: str | None) -> None:
    if device_map is not None:
        raise ValueError(f"device_map={device_map}: only generative models are spread, not model={name}; leave it out")


def device_of(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device("cuda" if name == "gpu" else name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={name}: cannot be used here ({one_line(error)}); use auto or cpu") from None
    return device


def function_of(name: str) -> Named:
    """The function that `MODULE:FUNCTION` names. Raises ValueError where there is none."""
    module, _, function = name.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    importlib.invalidate_caches()  # the file may be new
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        why = "in the current folder or among the packages" if error.name in (module, module.split(".")[0]) else error
        raise ValueError(f"model={name}: there is no module {error.name} ({why})") from None
    except (Exception, SystemExit) as error:  # a user's module fails in any way
        raise ValueError(f"model={name}: {module} cannot be imported ({one_line(error)})") from None
    if not callable(found):
        raise ValueError(f"model={name}: {module} has no function {function}")
    return Named(name, found)


def one_line(error: BaseException) -> str:
    """What went wrong, without the advice of the lines that follow."""
    said = (str(error).strip().splitlines() or [""])[0]
    return said if isinstance(error, OSError | ValueError) and said else f"{type(error).__name__}: {said}".rstrip(": ")


# Pieces of parts --------------------------------------------------------------------------------------------------


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
