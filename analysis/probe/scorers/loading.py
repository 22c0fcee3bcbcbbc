"""Pretrained models as scorers by name, and fingerprints of their weights.

Scores are the models' own logits or cosines, without a softmax, so they do not saturate and do not depend on the other
sentences. Only examples with equally large tensors share a batch, and nothing is padded that the model was not trained
with: a sentence's score does not depend on its neighbours, and the batch size changes a score only by the rounding of
float32 sums. A pair of picture and sentence that occurs twice in a call is scored once, so equal captions tie exactly.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from analysis.probe.config import GRID, TRAVLR_MODELS, Probe
from analysis.probe.corpora.items import Scorer, as_float64
from train.config import RegionSettings
from train.fingerprint import checkpoint_digest
from travlr.files import path_digest
from travlr.plugins import import_name, is_import


class FunctionScorer:
    """A user's function as a scorer; `threshold` is the function's attribute of that name, or None."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.function = name, function
        self.threshold: float | None = getattr(function, "threshold", None)

    def __call__(self, images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        return as_float64(self.function(images, texts))


def is_function(name: str) -> bool:
    """Whether the name of a model is that of a function, MODULE:FUNCTION."""
    return name.partition(":")[0] not in TRAVLR_MODELS and is_import(name) and not Path(name).exists()


def check_functions(names: Sequence[str]) -> None:
    """Raise `ValueError` where all models are functions and none can be imported. Unlike `load`, this imports no
    torch."""
    errors = []
    for name in names if all(map(is_function, names)) else ():
        try:
            import_name("model", name)
        except ValueError as error:
            errors.append(error)
    if errors and len(errors) == len(names):
        raise errors[0]


def load_scorer(
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
    """A scorer by name, with attributes `name` and `threshold`; the settings are those of `analysis.probe.config`.

    precision: float16 and bf16 round scores to some 3 digits, so that many tie. Generative models are loaded in this
    type; the others are loaded in float32 and then converted. regions: None for a 6 x 6 grid. threshold: 0 where a
    score is the log-odds of a match, None where it only ranks (CLIP, ViLT, itc). Settings must be
    valid, as `Probe` checks them. Raises ValueError, in one line, for a name that cannot be used.
    """
    kind, colon, checkpoint = name.partition(":")
    ours = bool(colon) and kind in TRAVLR_MODELS
    if regions is not None and not ours:
        raise ValueError(f"regions: model={name} takes no regions; only visualbert:, uniter: and lxmert: do")
    if is_function(name):
        return FunctionScorer(name, import_name("model", name))
    if name in TRAVLR_MODELS and not Path(name).is_dir():
        raise ValueError(f"model={name}: give its checkpoint, too: {name}:FILE, {name}:FOLDER or {name}:HUB-ID")
    from analysis.probe.scorers.base import DTYPES, ModelScorer
    from analysis.probe.scorers.generative import GenerativeScorer
    from analysis.probe.scorers.travlr_models import travlr_scorer
    from train.models.hub import torch_device

    scorer: ModelScorer
    where, dtype = torch_device(device), DTYPES.get(precision)
    if ours:
        scorer = travlr_scorer(kind, checkpoint, head, regions, size)
    else:
        scorer = _hub_scorer(name, head, question, dtype, device_map)
    generative = isinstance(scorer, GenerativeScorer)
    if device_map is not None and not generative:
        raise ValueError(
            f"device_map={device_map}: only for generative models, which model={name} is not; leave it out"
        )
    dtype = dtype or next(parameter.dtype for parameter in scorer.model.parameters())
    if dtype not in DTYPES.values():
        raise ValueError(f"precision=auto: model={name} is saved in {dtype}; choose one of {', '.join(DTYPES)}")
    if device_map is None:  # otherwise accelerate has placed the model and moves activations between devices
        scorer.model.to(device=where, dtype=None if generative else dtype)  # generative ones have some float32 layers
    scorer.device, scorer.precision, scorer.batch_size = where, dtype, batch_size
    return scorer


def _hub_scorer(name: str, head: str | None, question: str | None, dtype: Any, device_map: str | None) -> Any:
    """The scorer of a model of `transformers`. dtype: None for the type of the saved weights."""
    import torch
    from transformers import __version__
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    from analysis.probe.scorers.contrastive import FAMILIES
    from analysis.probe.scorers.generative import QUESTION, GenerativeScorer
    from train.models.hub import check_vocabulary, config_of, hub_folder, load_model, load_processors

    folder = hub_folder(name, also=" or MODULE:FUNCTION")
    config = config_of(name, folder)
    kind = str(config.get("model_type"))
    architecture, family = FAMILIES.get(kind, ("", None))
    if kind == "blip-2" and architecture not in (config.get("architectures") or ()):
        family = None  # of the same `model_type`, but generative
    if family is not None:
        if head is not None and head not in family.heads:
            raise ValueError(f"head={head}: model={name} ({kind}) has {' and '.join(family.heads)} only")
        model = load_model(name, folder, architecture, "auto" if dtype is None else torch.float32, family.unused)
        tokenizer, processor = load_processors(name, folder, "AutoTokenizer", "AutoImageProcessor")
        check_vocabulary(name, model, tokenizer)
        return family(name, model, tokenizer, processor, head or family.heads[0])
    if kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        if head is not None:
            raise ValueError(f"head={head}: model={name} ({kind}) is asked yes or no and has no such head")
        model = load_model(name, folder, "AutoModelForImageTextToText", dtype or "auto", device_map=device_map)
        return GenerativeScorer(name, model, folder, question or QUESTION)
    if "auto_map" in config:
        raise ValueError(
            f"model={name}: its model_type={kind} needs code from the model's own repository, which is not run here; "
            "give a model that `transformers` supports (often a converted one whose name ends in -hf)"
        )
    raise ValueError(
        f"model={name}: its config says model_type={kind}; must be one of {', '.join(FAMILIES)}, or a generative "
        f"vision-language model of transformers {__version__}"
    )


# The models of a probe ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LoadedModel:
    """A scorer and its name. weights: fingerprint of its weights."""

    name: str
    scorer: Scorer
    weights: str

    @property
    def threshold(self) -> float | None:
        """The score above which a sentence matches, or None. Raises `ValueError` unless it is a finite number."""
        value: Any = getattr(self.scorer, "threshold", None)
        try:
            threshold = None if value is None else float(value)
        except (TypeError, ValueError):
            threshold = math.nan
        if threshold is not None and not math.isfinite(threshold):
            raise ValueError(f"{self.name}: its threshold is {value!r}; must be a number, or None")
        return threshold


def load_models(config: Probe, scorer: Scorer | None, failures: list[str]) -> Iterator[LoadedModel]:
    """Load models one after the other, so that one is in memory at a time; append errors to `failures`."""
    if scorer is not None:
        own_name, source = getattr(scorer, "name", ""), _source(scorer)
        if not own_name and not source:
            raise ValueError("scorer: has no source code to identify it by; give it an attribute `name`")
        name = own_name or getattr(scorer, "__qualname__", type(scorer).__qualname__)
        yield LoadedModel(str(name), scorer, source)
    settings = ("head", "size", "batch_size", "question", "device_map", "device", "precision")
    options: dict[str, Any] = {name: getattr(config, name) for name in settings}
    options["regions"] = None if config.regions == GRID else config.regions
    for name in config.model:
        try:  # no variable holds a model here, so that it can be freed before the next one is loaded
            yield LoadedModel(name, load_scorer(name, **options), digest_weights_of(name))
        except ValueError as error:
            failures.append(str(error))


def _source(scorer: Scorer) -> str:
    """SHA-256 of a scorer's source code, so that another function of the same name is another run.

    Empty where there is no source, and for `functools.partial`.
    """
    if isinstance(scorer, functools.partial):
        return ""
    try:
        code = inspect.getsource(scorer if inspect.isroutine(scorer) else type(scorer))
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(code.encode()).hexdigest()


def region_values(settings: RegionSettings) -> Mapping[str, Any] | None:
    """The region settings, with a digest of the file in place of its path; None for the default grid."""
    return None if settings == GRID else settings.model_dump() | {"file": path_digest(settings.file)}


def digest_weights_of(name: str) -> str:
    """Fingerprint of a model's weights: see `_content`; for a function, the digest of its module."""
    kind, _, checkpoint = name.partition(":")
    if is_function(name):
        spec = importlib.util.find_spec(kind)
        return path_digest(spec.origin if spec else None) or name
    return _content(checkpoint if kind in TRAVLR_MODELS and checkpoint else name)


def _content(name: str) -> str:
    """Digest of a folder, or of a checkpoint file with the files read beside it; of a hub id, the revision in the
    cache."""
    if Path(name).expanduser().exists():
        return checkpoint_digest(name)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, local_files_only=True)).name
    except Exception:  # the cache may be damaged, or hold the model in another form
        return name
