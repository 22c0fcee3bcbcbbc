"""A model of a user's own, read from docs/adding-a-model.md: trained, tested, resumed and reported like ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.helpers import ROOT
from train.config import Run
from travlr import Cardinality, Count, GenerateArguments, Image, generate_dataset

CODE = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "adding-a-model.md").read_text(encoding="utf-8"), re.DOTALL)
TINY = ("size=tiny", "training.steps=4", "training.check_every=2", "training.validation=20", "optimiser.batch_size=8",
        "audit=false", "data=data", "precision=float32", "device=cpu")  # fmt: skip


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    (code,) = CODE
    (folder / "my_models.py").write_text(code, encoding="utf-8")
    (folder / "broken.py").write_text("import torch\nraise RuntimeError('no\\nsuch thing')\n", encoding="utf-8")
    (folder / "others.py").write_text("import torch\nclass Plain(torch.nn.Module):\n    pass\n", encoding="utf-8")
    config = Cardinality(count=Count(train=40, validation=40, test_ind=40, test_ood=40), image=Image(cell=16))
    generate_dataset(config, GenerateArguments(str(folder / "data"), workers=1), log=lambda line: None)
    return folder


def train(work: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "train.py"), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def trained(work: Path) -> subprocess.CompletedProcess[str]:
    done = train(work, "model=my_models:LateFusion", "setting=image+caption", *TINY)
    assert done.returncode == 0, done.stderr
    return done


def test_it_is_tested_in_every_setting(work: Path, trained: subprocess.CompletedProcess[str]) -> None:
    rows = pd.read_csv(work / "runs" / "results.csv")
    assert set(rows["model"]) == {"my_models:LateFusion"} and len(rows) == 6
    assert set(rows["test_setting"]) == {"image", "caption", "image+caption"}
    assert "my_models:LateFusion (tiny) trained in image+caption on cardinality" in trained.stdout
    assert rows["possible"].all()


def test_a_finished_run_is_read_until_its_code_changes(work: Path, trained: object) -> None:
    command = ("model=my_models:LateFusion", "setting=image+caption", *TINY)
    assert "finished before" in train(work, *command).stdout
    path = work / "my_models.py"
    path.write_text(path.read_text().replace("nn.GELU()", "nn.ReLU()"))
    assert "finished before" not in train(work, *command).stdout
    assert len(list((work / "runs").glob("*/results.csv"))) == 2


def test_it_is_in_the_report(work: Path, trained: object) -> None:
    command = [sys.executable, "-m", "analysis.report", "runs", "--out", "report"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "my_models:LateFusion" in (work / "report" / "report.md").read_text(encoding="utf-8")


def test_consistency_and_epochs_work_with_it(work: Path) -> None:
    done = train(work, "model=my_models:LateFusion", "setting=caption", "training.consistency=true", *TINY)
    assert done.returncode == 0, done.stderr
    (folder,) = (p for p in (work / "runs").glob("my_models_LateFusion-caption-*"))
    assert json.loads((folder / "config.json").read_text())["config"]["training"]["consistency"] is True


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vilbert", "choose one of visualbert"),
        ("my_models:Missing", "my_models has no class or function Missing"),
        ("nowhere:Model", "there is no module nowhere"),
        ("broken:Model", "broken cannot be imported"),
        ("others:Plain", "needs a class attribute `architecture`"),
    ],
)
def test_what_is_no_model_is_one_line(work: Path, name: str, message: str) -> None:
    done = train(work, f"model={name}", *TINY)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and f"model={name}: " in line and message in line


def test_a_setting_that_it_does_not_have_is_refused(work: Path) -> None:
    done = train(work, "model=my_models:LateFusion", "training.loss=distillation", *TINY)
    assert done.returncode == 2 and "training.loss=distillation" in done.stderr and len(done.stderr.splitlines()) == 1


def test_ours_need_no_import() -> None:
    assert Run(model="albef").architecture.sees == "pixels"
