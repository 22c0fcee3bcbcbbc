"""A fifth task, read from docs/adding-a-task.md: registered in one line, it goes from generation to a report."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.report import main as report
from tests.helpers import ROOT
from train.config import Run, Training
from train.run import run
from travlr import Count, GenerateArguments, Image, generate_dataset, open_dataset
from travlr.audit.checks import audit
from travlr.browse import page
from travlr.convert import convert_dataset
from travlr.formats import LAYOUTS
from travlr.tasks import TASKS, parse_query, query_text
from travlr.tasks.base import Task

COUNT = Count(train=96, validation=64, test_ind=64, test_ood=64)


def task_of_the_page(folder: Path) -> type[Task]:
    """The class whose file docs/adding-a-task.md shows."""
    text = (ROOT / "docs" / "adding-a-task.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 1
    path = folder / "parity.py"
    path.write_text(blocks[0], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("parity", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["parity"] = module  # a dataclass looks its types up by the name of its module
    spec.loader.exec_module(module)
    found: type[Task] = module.ParityTask
    return found


@pytest.fixture(scope="module")
def parity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[Task]]:
    """The task, registered for the tests of this module."""
    task = task_of_the_page(tmp_path_factory.mktemp("task"))
    TASKS[task.name] = task
    yield task
    del TASKS[task.name]
    del sys.modules["parity"]


@pytest.fixture(scope="module")
def data(parity: type[Task], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "parity"
    config: Any = parity.Config(count=COUNT, image=Image(cell=16))
    generate_dataset(config, GenerateArguments(str(folder), workers=1), log=lambda _: None)
    return folder


def test_the_dataset_passes_its_audit_and_a_corrupted_copy_fails(data: Path, tmp_path: Path) -> None:
    assert [check for check in audit(data, workers=1) if check.status == "FAIL"] == []
    copy = shutil.copytree(data, tmp_path / "copy")
    path = next(copy.glob("train-*.parquet"))
    table = pq.read_table(path)
    answers = table["answer"].to_pylist()
    answers[0] = not answers[0]
    table = table.set_column(table.column_names.index("answer"), "answer", pa.array(answers))
    pq.write_table(table, path)
    failed = {check.name for check in audit(copy, workers=1) if check.status == "FAIL"}
    assert {"files", "answer"} <= failed


def test_queries_are_read_back_and_truth_and_recount_agree(data: Path) -> None:
    examples = open_dataset(data)["test_ood"]
    for number in range(len(examples)):
        example = examples[number]
        query = parse_query(example.query)
        assert query.task == "parity" and query_text(query) == example.query
        shape, count = query.args[1], sum(o.shape == query.args[1] for o in example.scene)
        assert example.answer == ((count % 2 == 0) == (query.args[0] == "even"))
        assert list(example.pair) == [shape, str(count)]
        assert shape in ("star", "octagon") and count in (2, 5)


def test_the_page_and_every_format(data: Path, tmp_path: Path) -> None:
    assert "whether a number is even or odd" in page(data)
    queries = open_dataset(data)["train"].columns("query")["query"].to_pylist()
    for layout in LAYOUTS:
        folder = tmp_path / layout
        convert_dataset(data, folder, layout, workers=1, log=lambda _: None)
        back = tmp_path / f"{layout}-back"
        convert_dataset(folder, back, "parquet", workers=1, log=lambda _: None)
        assert open_dataset(back)["train"].columns("query")["query"].to_pylist() == queries


@pytest.mark.parametrize("setting", ["image", "caption", "image+caption", "mixed"])
def test_training_and_report(data: Path, setting: str, tmp_path: Path) -> None:
    config = Run(
        model="uniter",
        setting=setting,
        task="parity",
        data=str(data),
        size="tiny",
        runs=str(tmp_path / "runs"),
        device="cpu",
        precision="float32",
        training=Training(steps=2, check_every=2, validation=16),
    )
    results = run(config, log=lambda *_: None)
    assert {result["test_setting"] for result in results} == {"image", "caption", "image+caption"}
    assert report([str(tmp_path / "runs")]) == 0
    assert "parity" in (tmp_path / "runs" / "report" / "report.md").read_text(encoding="utf-8")
