"""Tables, figures and error analysis from saved runs and evaluations; no model is loaded.

    runs = analysis.read_runs("runs")
    analysis.to_markdown(analysis.TABLES["table2"](runs))
    analysis.draw("cells", runs, name="…", test_setting="caption")

Names are imported at their first use, so `import analysis` is fast.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, which takes long to import: commands import this package before all else
if TYPE_CHECKING:
    from typing import Any

_HOME = {
    "FIGURES": "figures",
    "Runs": "frames",
    "TABLES": "tables",
    "compare_runs": "tables.comparison",
    "draw": "figures",
    "read_runs": "frames",
    "write_figure": "figures",
    "to_html": "tables.render",
    "to_latex": "tables.render",
    "to_markdown": "tables.render",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'analysis' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"analysis.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
