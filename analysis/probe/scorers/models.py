"""The models of a probe, one after the other, and by what each one's weights are known, wherever they lie."""

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
    """A scorer, its name, and by what its weights are known."""

    name: str
    scorer: Scorer
    weights: str

    @property
    def threshold(self) -> float | None:
        """The score above which a sentence matches, None without one. Raises `ValueError` for what is no number."""
        given: Any = getattr(self.scorer, "threshold", None)
        try:
            found = None if given is None else float(given)
        except (TypeError, ValueError):
            found = math.nan
        if found is not None and not math.isfinite(found):
            raise ValueError(f"{self.name}: its threshold is {given!r}; must be a number, or None")
        return found


def load_models(config: Probe, scorer: Scorer | None, failures: list[str]) -> Iterator[LoadedModel]:
    """Models one after the other, so that one is in memory at a time; what cannot be loaded is added to failures."""
    if scorer is not None:
        own, source = getattr(scorer, "name", ""), _source(scorer)
        if not own and not source:
            raise ValueError("scorer: has no code by which it could be known; give it an attribute `name`")
        name = own or getattr(scorer, "__qualname__", type(scorer).__qualname__)
        yield LoadedModel(str(name), scorer, source)
    if not config.model:
        return
    from analysis.probe.scorers.loading import load

    options: dict[str, Any] = {"head": config.head, "size": config.size, "batch_size": config.batch_size}
    options |= {"question": config.question, "device_map": config.device_map}
    if config.regions != GRID:
        options["regions"] = config.regions
    for name in config.model:
        try:  # nothing here holds on to what is yielded, so that it can go before the next comes
            yield LoadedModel(
                name, load(name, device=config.device, precision=config.precision, **options), weights_of(name)
            )
        except ValueError as error:
            failures.append(str(error))


def regions_of(settings: RegionSettings, name: str) -> dict[str, Any] | None:
    """Settings of the regions that a model is shown, files by their content; None for the grid's cells alone."""
    shown = settings.for_model(takes_boxes=name.partition(":")[0] != "visualbert")
    if shown == replace(GRID, context="none"):
        return None
    detector = shown.detector and _content(shown.detector)
    return asdict(replace(shown, detector=detector, file=path_digest(shown.file)))


def _source(scorer: Scorer) -> str:
    """A scorer from Python by its code, so that another one of that name is another run; "" where there is no code of
    its own, as of what `functools.partial` made."""
    try:
        code = inspect.getsource(scorer if inspect.isroutine(scorer) else type(scorer))
    except (OSError, TypeError):
        return ""
    if isinstance(scorer, functools.partial):
        return ""
    return hashlib.sha256(code.encode()).hexdigest()


def weights_of(name: str) -> str:
    """What a model's weights are known by: `_content`; of a function, the content of its module."""
    kind, colon, rest = name.partition(":")
    if colon and kind in TRAVLR_MODELS:
        return _content(rest)
    if colon and not Path(name).exists():
        found = importlib.util.find_spec(kind)
        return path_digest(found.origin if found else None) or name
    return _content(name)


def _content(name: str) -> str:
    """A folder by its files, a file by itself and what is read beside it, a hub id by the revision that was fetched."""
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
    except Exception:  # of a cache in any state; a model that was not fetched as a repository
        return name
