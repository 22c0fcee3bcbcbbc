"""The models: the registry of their classes (`MODELS`) and their sizes; a user's own is `package.module:Class`.

Read `layers` (base class and layers) and `regions` (what models of regions share) first, then one architecture per
file, then `loading` (published weights) and `saved` (weights of runs). `hub` has the models of `transformers`
themselves, for evaluations.
"""

from __future__ import annotations

from typing import Any

import torch

from train.config import architecture_of
from train.models.albef import Albef
from train.models.bert import Bert, Roberta
from train.models.layers import BASE_STD, Model, Shape, initial_std
from train.models.lxmert import Lxmert
from train.models.uniter import Uniter
from train.models.visualbert import VisualBert
from travlr.plugins import import_name

MODELS: dict[str, type[Model]] = {
    "visualbert": VisualBert,
    "uniter": Uniter,
    "lxmert": Lxmert,
    "albef": Albef,
    "bert": Bert,
    "roberta": Roberta,
}

# `base` is the published architecture. The others are for CPUs: without dropout, which the fused attention kernel does
# not support there, and with smaller pictures for ALBEF.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "width": 64, "heads": 2, "intermediate": 256, "dropout": 0.0, "attention_dropout": 0.0},
    "small": {"layers": 4, "width": 128, "heads": 4, "intermediate": 512, "dropout": 0.0, "attention_dropout": 0.0},
    "base": {"layers": 12, "width": 768, "heads": 12, "intermediate": 3072, "dropout": 0.1, "attention_dropout": 0.1},
}

# Where a model differs from `SIZES`: at every size (under "") and at one.
MODEL_SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "visualbert": {},
    "uniter": {"": {"vocabulary": 28996}},
    "lxmert": {
        "tiny": {"layers": 1, "image_layers": 1, "cross_layers": 1},
        "small": {"layers": 2, "image_layers": 2, "cross_layers": 2},
        "base": {"layers": 9, "image_layers": 5, "cross_layers": 5},
    },
    "albef": {
        "tiny": {"layers": 1, "image_layers": 1, "cross_layers": 1, "picture": 192},
        "small": {"layers": 2, "image_layers": 2, "cross_layers": 2, "picture": 192},
        "base": {"layers": 6, "image_layers": 12, "cross_layers": 6, "picture": 384},
    },
    "bert": {"": {"vocabulary": 28996}},
    "roberta": {"": {"vocabulary": 50265, "positions": 514, "types": 1, "epsilon": 1e-5}},
}
CONTROLLED = {"vocabulary": 30522}  # of bert-base-uncased: in Volta, UNITER too has it


def shape_of(name: str, size: str = "base", **changes: Any) -> Shape:
    """The shape of a model. changes: fields of `Shape`, usually `vocabulary` and `feature_width`.

    Raises ValueError for an unknown name or size, TypeError for an unknown field.
    """
    architecture_of(name)
    if size not in SIZES:
        raise ValueError(f"size={size}: must be one of {', '.join(SIZES)}")
    differences = MODEL_SIZES.get(name, {})
    return Shape(**{**SIZES[size], **differences.get("", {}), **differences.get(size, {}), **changes})


def class_of(name: str) -> type[Model]:
    """The class of a model: one of `MODELS`, or `package.module:Class`. Raises ValueError for any other name."""
    if name in MODELS:
        return MODELS[name]
    architecture_of(name)
    model = import_name("model", name)
    if not (isinstance(model, type) and issubclass(model, Model)):
        raise ValueError(f"model={name}: must be a subclass of Model in train.models.layers")
    return model


def make_model(name: str, size: str = "base", options: dict[str, Any] | None = None, **changes: Any) -> Model:
    """A model with random weights. options: of its class (`matching`, `controlled`, `boxes`, ...). changes: of `Shape`.

    Raises ValueError for an unknown name, size or option value, and for an option that the model does not have.
    """
    options = options or {}
    shape = shape_of(name, size, **((CONTROLLED if options.get("controlled") else {}) | changes))
    valid = class_of(name).__init__.__kwdefaults__ or {}
    for option in options:
        if option not in valid:
            raise ValueError(f"{option}: not an option of model={name}, which has {', '.join(valid) or 'none'}")
    model = class_of(name)(shape, **options)
    if name not in MODELS:  # a user's class initialises its own weights
        return model
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(initial_std(shape.width) / BASE_STD)
    return model
