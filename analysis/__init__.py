"""Tables, figures and error analysis from saved runs; no model is loaded."""

from analysis.runs import Runs, load

__all__ = ["Runs", "load"]
