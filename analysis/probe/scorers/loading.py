"""Pretrained models as scorers by name, and fingerprints of their weights.

Scores are the models' own logits or cosines, without a softmax, so they do not saturate and do not depend on the other
sentences. Only examples with equally large tensors share a batch, and nothing is padded that the model was not trained
with: a sentence's score does not depend on its neighbours, and the batch size changes a score only by the rounding of
float32 sums. A pair of picture and sentence that occurs twice in a call is scored once, so equal captions tie exactly.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.probe.config import GRID, Probe
from analysis.probe.corpora.items import Scorer
from train.ask.matchers.loading import PUBLISHED, digest_weights_of, is_function, load_matcher
from train.config import RegionSettings
from travlr.files import path_digest
from travlr.plugins import import_name


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


def load_scorer(name: str, *, question: str | None = None, device_map: str | None = None, **options: Any) -> Scorer:
    """A scorer by name: a matcher (see `train.ask.matchers.loading.load_matcher`, for the other options), or a
    generative model, asked `question`. precision=auto: the type of the saved weights."""
    kind = name.partition(":")[0]
    config = {} if kind in PUBLISHED or is_function(name) else _config_of(name)
    if not _is_generative(config):
        if device_map is not None:
            raise ValueError(
                f"device_map={device_map}: only for generative models, which model={name} is not; leave it out"
            )
        if options.get("precision") == "auto":
            options["precision"] = "float32"
        return load_matcher(name, **options)
    return _generative_scorer(name, question, device_map, **options)


def _config_of(name: str) -> dict[str, Any]:
    from train.models.hub import config_of, hub_folder

    return config_of(name, hub_folder(name, also=" or MODULE:FUNCTION"))


def _is_generative(config: Mapping[str, Any]) -> bool:
    if not config:
        return False
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    from train.ask.matchers.families import family_of

    return family_of(config) is None and config.get("model_type") in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES


def _generative_scorer(
    name: str,
    question: str | None,
    device_map: str | None,
    *,
    device: str = "auto",
    precision: str = "float32",
    batch_size: int = 64,
    head: str | None = None,
    regions: RegionSettings | None = None,
    size: str = "base",
) -> Scorer:
    from analysis.probe.scorers.generative import QUESTION, GenerativeScorer
    from train.ask.matchers.base import DTYPES
    from train.models.hub import hub_folder, load_model, torch_device

    if regions is not None:
        raise ValueError(f"regions: model={name} takes no regions; only visualbert:, uniter: and lxmert: do")
    if head is not None:
        raise ValueError(f"head={head}: model={name} is asked yes or no and has no such head")
    folder, where, dtype = hub_folder(name), torch_device(device), DTYPES.get(precision)
    model = load_model(name, folder, "AutoModelForImageTextToText", dtype or "auto", device_map=device_map)
    scorer = GenerativeScorer(name, model, folder, question or QUESTION)
    dtype = dtype or next(parameter.dtype for parameter in scorer.model.parameters())
    if dtype not in DTYPES.values():
        raise ValueError(f"precision=auto: model={name} is saved in {dtype}; choose one of {', '.join(DTYPES)}")
    if device_map is None:  # otherwise accelerate has placed the model and moves activations between devices
        scorer.model.to(device=where)
    scorer.device, scorer.precision, scorer.batch_size = where, dtype, batch_size
    return scorer


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
