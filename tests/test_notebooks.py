"""The notebooks, from top to bottom, on small runs; and as they are committed, without outputs."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.grid import make_run
from tests.helpers import ROOT, generated
from travlr.config import Count, Image
from travlr.tasks import PAPER, TASKS

FOLDER = ROOT / "analysis" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up run on a small dataset of each task, and a second one of cardinality."""
    place = tmp_path_factory.mktemp("notebooks")
    count = Count(train=60, validation=20, test_ind=64, test_ood=64)
    for task in PAPER:
        generated(place / task, TASKS[task].Config(count=count, image=Image(cell=16)))
        for setting in ("caption", "image")[: 1 + (task == "cardinality")]:
            make_run(place / "runs", place / task, lambda *_: 0.7, setting=setting)
    return place / "runs"


def committed(name: str) -> Any:
    return nbformat.read(FOLDER / name, as_version=4)  # type: ignore[no-untyped-call]


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS == ["1_dataset.ipynb", "2_errors.ipynb", "3_transfer.ipynb"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_committed_without_outputs(name: str) -> None:
    notebook = committed(name)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code[0].metadata.tags == ["parameters"] and "os.environ" in code[0].source
    for cell in code:
        assert cell.outputs == [] and cell.execution_count is None
        ast.parse(cell.source)
        assert len(cell.source.splitlines()) <= 14
    assert f"analysis/notebooks/{name}" in (ROOT / "docs" / "analysis.md").read_text()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_run(name: str, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = committed(name)
    monkeypatch.setenv("RUNS", str(runs))
    monkeypatch.setenv("DATA", str(runs.parent / "quantifiers"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    resources = {"metadata": {"path": str(runs.parent)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    pages = "".join(o["data"]["text/html"] for o in outputs if "text/html" in o.get("data", {}))
    assert len(pictures) == {"1_dataset.ipynb": 1, "2_errors.ipynb": 14, "3_transfer.ipynb": 5}[name]
    assert ("data:image/png;base64" in pages) == (name != "3_transfer.ipynb") and "<table" in pages
    if name == "2_errors.ipynb":
        _worst_pairs_come_with_intervals_that_order_them(notebook)


def _worst_pairs_come_with_intervals_that_order_them(notebook: Any) -> None:
    """A pair with 2 of 2 wrong is no worse for certain than one with 90 of 100: the intervals' lower ends decide."""
    last = [cell for cell in notebook.cells if cell.cell_type == "code"][-1]
    pages = [output["data"]["text/html"] for output in last.outputs if "<table" in output["data"].get("text/html", "")]
    assert len(pages) == len(PAPER)
    for page in pages:
        head, *rows = [
            re.findall(r"<t[hd]>(.*?)</t[hd]>", line) for line in re.findall(r"<tr.*?</tr>", page, re.DOTALL)
        ]
        columns = [head.index(name) for name in ("low", "percent", "high")]
        shown = [tuple(float(row[place]) for place in columns) for row in rows]
        assert len(shown) == 5 and all(low <= percent <= high and low < high for low, percent, high in shown)
        assert shown == sorted(shown, key=lambda row: -row[0])
        assert "examples" in head
