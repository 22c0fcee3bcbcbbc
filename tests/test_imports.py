"""The direction of imports (docs/how-it-works.md), read from the sources."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

from tests.helpers import ROOT

PACKAGES = ("travlr", "render", "splits", "train", "analysis")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
# What each package may import of the others.
BELOW = {
    "splits": set[str](),
    "render": {"travlr.scene"},
    "travlr": {"render", "splits"},
    "train": {"render", "splits", "travlr"},
    "analysis": {"render", "splits", "travlr", "train"},
}
DEEP = {"torch", "lightning", "transformers"}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> set[str]:
    """Full names of all modules and names that a file imports anywhere, also inside of functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_packages_import_downwards() -> None:
    for path in SOURCES:
        package = module_of(path).split(".")[0]
        others = {name for name in imports(path) if name.split(".")[0] in PACKAGES and name.split(".")[0] != package}
        wrong = {name for name in others if not any(name == b or name.startswith(f"{b}.") for b in BELOW[package])}
        assert wrong <= {"travlr"}, (module_of(path), wrong)


def test_modules_import_in_no_circle() -> None:
    modules = {module_of(path) for path in SOURCES}
    graph = {module_of(path): (imports(path) & modules) - {module_of(path)} for path in SOURCES}
    for name, imported in graph.items():
        if (ROOT / name.replace(".", "/")).is_dir():  # a package offers names of its own modules
            graph[name] = {other for other in imported if not other.startswith(f"{name}.")}
    assert list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


def test_datasets_and_reports_need_no_deep_learning() -> None:
    program = (
        "import sys, travlr.generate, travlr.audit.checks, travlr.browse, travlr.convert, analysis.report; "
        f"print(sorted(set(sys.modules) & {DEEP}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_package_offers_its_names() -> None:
    import travlr

    assert all(getattr(travlr, name) is not None for name in travlr.__all__)
