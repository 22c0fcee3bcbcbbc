"""Pretrained models as scorers: functions (images, texts) -> scores. `load` makes one from a name.

Scores are the models' own logits or cosines, without a softmax, so they do not saturate and do not depend on the other
sentences. Only examples with equally large tensors share a batch, and nothing is padded that the model was not trained
with: a sentence's score does not depend on its neighbours, and the batch size changes a score only by the rounding of
float32 sums. A pair of picture and sentence that occurs twice in a call is scored once, so equal captions tie exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from analysis.probe.config import DEVICE_MAPS, HEADS, PRECISIONS, TRAVLR_MODELS
from analysis.probe.corpora.items import Scorer, as_float64
from analysis.probe.scorers.base import DTYPES, GenerativeScorer, ModelScorer, check_not_spread
from train.models.hub import torch_device
from travlr.config import check_choice
from travlr.plugins import import_name, is_import

if TYPE_CHECKING:
    from train.config import RegionSettings


class FunctionScorer:
    """A user's function as a scorer; `threshold` is the function's attribute of that name, or None."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.function = name, function
        self.threshold: float | None = getattr(function, "threshold", None)

    def __call__(self, images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        return as_float64(self.function(images, texts))


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
    in its published form; or `MODULE:FUNCTION`, a function (images, texts) -> scores of a module that can be imported
    from the current folder.
    device: auto (a GPU if there is one), cpu, gpu, cuda:1, ... precision: float32; float64; float16 or bf16, which
    round scores to some 3 digits, so that many tie; or auto, the type of the saved weights. Generative models are
    loaded in this type; the others are loaded in float32 and then converted. device_map: of generative models, how
    `accelerate` spreads them over all GPUs, one of `analysis.probe.config.DEVICE_MAPS`.
    head: itm or itc, of models with both; the default is itm. question: for generative models, with `{text}` for the
    sentence; the default is `analysis.probe.scorers.generative.QUESTION`. regions: of VisualBERT, UNITER and LXMERT;
    the default is a 6 x 6 grid. size: of VisualBERT, UNITER, LXMERT and ALBEF, one of `train.config.SIZES`.

    threshold: 0 where a score is the log-odds of a match, None where it only ranks (CLIP, ViLT, itc).
    Raises ValueError, in one line, for a name or setting that cannot be used.
    """
    check_choice("precision", precision, PRECISIONS)
    if device_map is not None:
        check_choice("device_map", device_map, DEVICE_MAPS)
    if head is not None:
        check_choice("head", head, HEADS)
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: must be 1 or more")
    where, dtype = torch_device(device), DTYPES.get(precision)
    kind, colon, checkpoint = name.partition(":")
    if colon and kind in TRAVLR_MODELS:
        from analysis.probe.scorers import travlr_models

        check_not_spread(name, device_map)
        parts = travlr_models.parts(kind, checkpoint, head=head, regions=regions, size=size)
    elif regions is not None:
        raise ValueError(f"regions: model={name} takes no regions; only visualbert:, uniter: and lxmert: do")
    elif is_import(name) and not Path(name).exists():
        return FunctionScorer(name, import_name("model", name))
    elif name in TRAVLR_MODELS and not Path(name).is_dir():
        raise ValueError(f"model={name}: give its checkpoint, too: {name}:FILE, {name}:FOLDER or {name}:HUB-ID")
    else:
        from analysis.probe.scorers.families import hub_parts

        parts = hub_parts(name, head, question, dtype, device_map)
    dtype = dtype or next(parameter.dtype for parameter in parts.model.parameters())
    if dtype not in DTYPES.values():
        raise ValueError(f"precision=auto: model={name} is saved in {dtype}; choose one of {', '.join(DTYPES)}")
    if parts.answer is None:
        parts.model.to(where, dtype)
    elif device_map is None:  # otherwise accelerate has placed the model and moves activations between devices
        parts.model.to(where)  # keeps the loaded types, which are float32 for some layers
    scorer = ModelScorer if parts.answer is None else GenerativeScorer
    return scorer(name, parts, where, dtype, batch_size)
