"""TraVLR: bimodal reasoning datasets whose training and test distributions are provably apart.

Names are fetched when first used: importing `travlr` loads nothing, and `render` can import `travlr.scene`.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "Batch": "scene",
    "Cardinality": "tasks.cardinality",
    "Comparison": "tasks.comparison",
    "Count": "config",
    "Example": "dataset",
    "Generator": "generate",
    "Image": "config",
    "Job": "generate",
    "Object": "scene",
    "Quantifiers": "tasks.quantifiers",
    "Query": "scene",
    "Spatiality": "tasks.spatiality",
    "World": "scene",
    "generate_dataset": "generate",
    "iterate": "generate",
    "make_example": "generate",
    "open_dataset": "dataset",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'travlr' has no attribute {name!r}")
    return getattr(import_module(f"travlr.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
