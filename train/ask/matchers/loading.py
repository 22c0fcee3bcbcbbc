"""Matchers by name, and digests of their weights.

Scores are the models' own logits or cosines, without a softmax, so they do not saturate and do not depend on the other
sentences. Only examples with equally large tensors share a batch, and nothing is padded that the model was not trained
with: a sentence's score does not depend on its neighbours, and the batch size changes a score only by the rounding of
float32 sums. A pair of picture and sentence that occurs twice in a call is scored once, so equal captions tie exactly.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from train.config import RegionSettings
from train.fingerprint import checkpoint_digest
from travlr.files import path_digest
from travlr.plugins import import_name, is_import

PUBLISHED = ("visualbert", "uniter", "lxmert", "albef")  # each as KIND:CHECKPOINT

OTHER_NAMES = ", runs/NAME, KIND:CHECKPOINT, MODULE:FUNCTION or a NAME with server="  # beside hub ids and folders

ScoreFunction = Callable[[Sequence[Image.Image], Sequence[str]], np.ndarray]
"""images (N), texts (N) -> (N,) scores, higher where the text fits the image better.

The same picture comes as the same object, and all sentences of a picture come in one call, so that each picture can be
encoded once. Attributes that a function may have: `name`; `threshold`, the score above which a text matches the image
(contrastive models without a bias have none).
"""


class FunctionMatcher:
    """A user's function as a matcher; `threshold` is the function's attribute of that name, or None."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.function = name, function
        self.threshold: float | None = getattr(function, "threshold", None)

    def __call__(self, images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        try:
            return as_float64(self.function(images, texts))
        except Exception as error:  # anything, as it is the user's
            raise ValueError(f"model={self.name}: {type(error).__name__}: {error}") from error


def as_float64(scores: Any) -> np.ndarray:
    """The output of a function as a float64 array. Raises ValueError unless it holds real numbers."""
    if hasattr(scores, "detach"):  # a tensor on any device and of any precision
        scores = scores.detach().double().cpu()
    array = np.asarray(scores)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"returned {type(scores).__name__} of {array.dtype}: needs numbers")
    return array.astype(np.float64)


def is_function(name: str) -> bool:
    """Whether the name of a model is that of a function, MODULE:FUNCTION."""
    return name.partition(":")[0] not in PUBLISHED and is_import(name) and not Path(name).exists()


def is_published(name: str) -> bool:
    """Whether a name is KIND:CHECKPOINT."""
    kind, colon, _ = name.partition(":")
    return kind in PUBLISHED and (bool(colon) or not Path(name).is_dir())


def is_matcher(name: str, revision: str | None = None) -> bool:
    """Whether a name is that of a matcher. Of a hub repository, this downloads it. Raises ValueError, in one line, for
    a name that cannot be used."""
    if is_published(name) or is_function(name):
        return True
    from train.ask.matchers.families import find_family
    from train.models.hub import config_of, hub_folder

    return find_family(config_of(name, hub_folder(name, revision=revision, also=OTHER_NAMES))) is not None


def short_model_name(name: str) -> str:
    """The name of a matcher without folders."""
    kind, _, checkpoint = name.partition(":") if is_published(name) else ("", "", name)
    path = Path(checkpoint).expanduser()
    short = path.name if path.exists() else checkpoint
    return f"{kind}:{short}" if kind else short


def load_matcher(
    name: str,
    *,
    device: str = "auto",
    precision: str = "float32",
    batch_size: int = 64,
    head: str | None = None,
    regions: RegionSettings | None = None,
    size: str | None = None,
    revision: str | None = None,
) -> Any:
    """A matcher by name: a `ScoreFunction` with attributes `name` and `threshold`; models are `base.Matcher`s.

    precision: of the model, which is loaded in float32 and then converted; bf16 rounds scores to some 3 digits, so that
    many tie. head: itm or itc, of models with both; None for the default. regions: of the published
    models, None for a 6 x 6 grid. size: of these, None to read it from the checkpoint. threshold: 0 where a score is
    the log-odds of a match, None where it only ranks (CLIP, ViLT, itc). Raises ValueError, in one line, for a name that
    cannot be used.
    """
    kind, colon, checkpoint = name.partition(":")
    ours = bool(colon) and kind in PUBLISHED
    if revision is not None and (ours or is_function(name)):
        raise ValueError(f"revision={revision}: model={name} is not on the hub; leave it out")
    if regions is not None and not ours:
        raise ValueError(f"regions: model={name} takes no regions; only visualbert:, uniter: and lxmert: do")
    if is_function(name):
        return FunctionMatcher(name, import_name("model", name))
    if name in PUBLISHED and not Path(name).is_dir():
        raise ValueError(f"model={name}: give its checkpoint, too: {name}:FILE, {name}:FOLDER or {name}:HUB-ID")
    from train.ask.matchers.base import DTYPES, Matcher
    from train.ask.matchers.published import published_matcher
    from train.models.hub import torch_device

    matcher: Matcher
    where, dtype = torch_device(device), DTYPES[precision]
    matcher = published_matcher(kind, checkpoint, head, regions, size) if ours else family_matcher(name, head, revision)
    matcher.model.to(device=where, dtype=dtype)
    matcher.device, matcher.precision, matcher.batch_size = where, dtype, batch_size
    return matcher


def family_matcher(name: str, head: str | None, revision: str | None = None) -> Any:
    """The matcher of a model of `transformers`, in float32."""
    import torch

    from train.ask.matchers.families import FAMILIES, find_family
    from train.models.hub import check_vocabulary, config_of, hub_folder, load_model, load_processors

    folder = hub_folder(name, revision=revision, also=OTHER_NAMES)
    config = config_of(name, folder)
    kind, family_entry = config.get("model_type"), find_family(config)
    if family_entry is None and "auto_map" in config:
        raise ValueError(
            f"model={name}: its model_type={kind} needs code from the model's own repository, which is not run here; "
            "give a model that `transformers` supports (often a converted one whose name ends in -hf)"
        )
    if family_entry is None:
        raise ValueError(f"model={name}: its config says model_type={kind}; must be one of {', '.join(FAMILIES)}")
    architecture, family = family_entry
    if head is not None and head not in family.heads:
        raise ValueError(f"head={head}: model={name} has {' and '.join(family.heads)} only")
    model = load_model(name, folder, architecture, torch.float32, family.unused)
    tokenizer, processor = load_processors(name, folder, "AutoTokenizer", "AutoImageProcessor")
    check_vocabulary(name, model, tokenizer)
    return family(name, model, tokenizer, processor, head or family.heads[0])


def digest_weights_of(name: str, revision: str | None = None) -> str:
    """What identifies the weights of a matcher: the digest of a folder, or of a checkpoint with the files read beside
    it; of a hub id, the revision in the cache; of a function, the digest of its module."""
    kind, _, checkpoint = name.partition(":")
    if is_function(name):
        spec = importlib.util.find_spec(kind)
        return path_digest(spec.origin if spec else None) or name
    place = checkpoint if kind in PUBLISHED and checkpoint else name
    if Path(place).expanduser().exists():
        return checkpoint_digest(place)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(place, revision=revision, local_files_only=True)).name
    except Exception:  # the cache may be damaged, or hold the model in another form
        return place
