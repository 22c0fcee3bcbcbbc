"""TraVLR: bimodal reasoning datasets whose training and test distributions are provably apart.

Read `scene.py` first (worlds, objects, queries), then `tasks/` (one file per task), `sampling/` (examples of a task),
`generate.py` (rows of a dataset), `writing.py` and `dataset.py` (writing and reading them), `formats/` (their files),
and `audit/`, `baselines/`, `browse.py`, `convert.py` and `publish.py` (commands on finished datasets). `settings.py`,
`config.py`, `files.py`, `plugins.py` and `workers.py` are shared helpers.

Names are imported on first use: importing `travlr` loads nothing, and `render` can import `travlr.scene`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, which takes long to import: commands import this package before all else
if TYPE_CHECKING:  # type checkers do not run `__getattr__`
    from typing import Any

    from travlr.config import Count as Count
    from travlr.config import Image as Image
    from travlr.config import Style as Style
    from travlr.dataset import Example as Example
    from travlr.dataset import open_dataset as open_dataset
    from travlr.generate import GenerateArguments as GenerateArguments
    from travlr.generate import Generator as Generator
    from travlr.generate import generate_dataset as generate_dataset
    from travlr.generate import iterate as iterate
    from travlr.generate import make_example as make_example
    from travlr.scene import Batch as Batch
    from travlr.scene import Object as Object
    from travlr.scene import Query as Query
    from travlr.scene import World as World
    from travlr.tasks.cardinality import Cardinality as Cardinality
    from travlr.tasks.comparison import Comparison as Comparison
    from travlr.tasks.quantifiers import Quantifiers as Quantifiers
    from travlr.tasks.spatiality import Spatiality as Spatiality

_NAMES = {
    "config": ("Count", "Image", "Style"),
    "dataset": ("Example", "open_dataset"),
    "generate": ("GenerateArguments", "Generator", "generate_dataset", "iterate", "make_example"),
    "scene": ("Batch", "Object", "Query", "World"),
    "tasks.cardinality": ("Cardinality",),
    "tasks.comparison": ("Comparison",),
    "tasks.quantifiers": ("Quantifiers",),
    "tasks.spatiality": ("Spatiality",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'travlr' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"travlr.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
