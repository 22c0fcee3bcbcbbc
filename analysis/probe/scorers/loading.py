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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

from analysis.probe.config import DEVICE_MAPS, HEADS, OWN, PRECISIONS
from analysis.probe.corpora.items import Scorer, numbers
from analysis.probe.scorers.base import DTYPES, GenerativeScorer, Matcher, check_not_spread, one_line

if TYPE_CHECKING:
    from train.config import RegionSettings


FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


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
    finds from the current folder. device: auto (a GPU if there is one), cpu, gpu, cuda:1, ... precision: float32;
    float64; float16 or bf16, which round scores to some 3 digits, so that many tie; or auto, the one that the weights
    are saved in. Generative models are loaded in it; the others are loaded in float32 and then converted. device_map:
    of generative models, how `accelerate` spreads them over all GPUs, one of `analysis.probe.config.DEVICE_MAPS`. head:
    itm or itc, of the models that have both; by default itm. question: asked of generative models, with `{text}` for
    the sentence; by default `analysis.probe.scorers.families.QUESTION`. regions: of VisualBERT, UNITER and LXMERT, by
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


# Pieces of parts --------------------------------------------------------------------------------------------------
