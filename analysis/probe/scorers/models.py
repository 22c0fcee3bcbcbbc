"""The models of a probe, loaded one after the other, and fingerprints of their weights."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from analysis.probe.config import GRID, TRAVLR_MODELS, Probe
from analysis.probe.corpora.items import Scorer
from train.config import CHECKPOINT_FILES, RegionSettings
from travlr.files import path_digest


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
    if not config.model:
        return
    from analysis.probe.scorers.loading import load

    options: dict[str, Any] = {"head": config.head, "size": config.size, "batch_size": config.batch_size}
    options |= {"question": config.question, "device_map": config.device_map}
    if config.regions != GRID:
        options["regions"] = config.regions
    for name in config.model:
        try:  # no variable holds a model here, so that it can be freed before the next one is loaded
            yield LoadedModel(
                name, load(name, device=config.device, precision=config.precision, **options), weights_of(name)
            )
        except ValueError as error:
            failures.append(str(error))


def regions_of(settings: RegionSettings, name: str) -> dict[str, Any] | None:
    """The region settings of a model, with digests of files in place of paths; None for the default grid."""
    resolved = settings.for_model(takes_boxes=name.partition(":")[0] != "visualbert")
    if resolved == replace(GRID, context="none"):
        return None
    detector = resolved.detector and _content(resolved.detector)
    return asdict(replace(resolved, detector=detector, file=path_digest(resolved.file)))


def _source(scorer: Scorer) -> str:
    """SHA-256 of a scorer's source code, so that another function of the same name is another run.

    Empty where there is no source, and for `functools.partial`.
    """
    try:
        code = inspect.getsource(scorer if inspect.isroutine(scorer) else type(scorer))
    except (OSError, TypeError):
        return ""
    if isinstance(scorer, functools.partial):
        return ""
    return hashlib.sha256(code.encode()).hexdigest()


def weights_of(name: str) -> str:
    """Fingerprint of a model's weights: see `_content`; for a function, the digest of its module."""
    kind, colon, rest = name.partition(":")
    if colon and kind in TRAVLR_MODELS:
        return _content(rest)
    if colon and not Path(name).exists():
        spec = importlib.util.find_spec(kind)
        return path_digest(spec.origin if spec else None) or name
    return _content(name)


def _content(name: str) -> str:
    """Digest of a folder, or of a checkpoint file with the files read beside it; of a hub id, the revision in the
    cache."""
    path = Path(name).expanduser()
    if path.is_file():
        beside = [
            f"{other} {path_digest(str(path.parent / other))}"
            for other in CHECKPOINT_FILES
            if (path.parent / other).is_file()
        ]
        return hashlib.sha256("\n".join([str(path_digest(name)), *beside]).encode()).hexdigest()
    if path.exists():
        return str(path_digest(name))
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, local_files_only=True)).name
    except Exception:  # the cache may be damaged, or hold the model in another form
        return name
