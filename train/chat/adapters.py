"""Which layers of a chat model get adapters."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers.pytorch_utils import Conv1D

CONNECTORS = ("merger", "projector", "connector")  # some models have these in their vision encoder


def adapted_layers(model: Any, targets: str, name: str) -> list[str]:
    """The names of the linear layers of a part of a model: `language`, `vision`, `connector` or `all`.

    Raises `ValueError` where there are none.
    """
    language, vision = _prefix(model, model.get_decoder()), _prefix(model, model.get_encoder(modality="image"))
    layers: dict[str, list[str]] = {"language": [], "vision": [], "connector": []}
    for layer, module in model.named_modules():
        if not isinstance(module, nn.Linear | Conv1D) or module is model.get_output_embeddings():
            continue
        if layer.startswith(language):
            part = "language"
        else:
            part = "connector" if not layer.startswith(vision) or any(c in layer for c in CONNECTORS) else "vision"
        layers[part].append(layer)
    chosen = [layer for part in layers if targets in (part, "all") for layer in layers[part]]
    if not chosen:
        parts = ", ".join(part for part in layers if layers[part])
        raise ValueError(f"adapter.targets={targets}: model={name} has linear layers in {parts or 'no part'}")
    return chosen


def _prefix(model: Any, part: Any) -> str:
    """The beginning of the names of the layers of a part; "" of the whole model."""
    name = next(name for name, module in model.named_modules() if module is part)
    return f"{name}." if name else ""
