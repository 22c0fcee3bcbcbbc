"""A model of a user's own, read from docs/adding-a-model.md: trained, tested, resumed and reported like ours."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from analysis import figures
from analysis.report import main as report
from tests.helpers import ROOT, one_line, train_status
from train.config import architecture_of
from train.results.store import collect_results, read_config
from travlr import Cardinality, Count, GenerateArguments, Image, generate_dataset

CODE = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "adding-a-model.md").read_text(encoding="utf-8"), re.DOTALL)
TINY = ("size=tiny", "training.steps=4", "training.check_every=2", "optimiser.batch_size=8",
        "data=data", "precision=float32", "device=cpu")  # fmt: skip

Train = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("one_thread", "unaudited")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    (code,) = CODE
    (folder / "my_models.py").write_text(code, encoding="utf-8")
    (folder / "broken.py").write_text("import torch\nraise RuntimeError('no\\nsuch thing')\n", encoding="utf-8")
    (folder / "others.py").write_text("import torch\nclass Plain(torch.nn.Module):\n    pass\n", encoding="utf-8")
    config = Cardinality(count=Count(train=40, validation=40, test_ind=40, test_ood=40), image=Image(cell=16))
    generate_dataset(config, GenerateArguments(out=str(folder / "data"), workers=1), log=lambda line: None)
    return folder


@pytest.fixture(scope="module")
def trained(work: Path) -> str:
    """What `python train.py` prints, which finds the modules of the current folder by itself."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.chdir(work)
        patch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(work))])
        assert train_status(patch, "model=my_models:LateFusion", "setting=image+caption", *TINY) == 0
    return out.getvalue()


@pytest.fixture
def train(work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Train:
    """The command in this process, which imports the models anew: its status, output and errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        architecture_of.cache_clear()
        for name in ("my_models", "broken", "others"):
            sys.modules.pop(name, None)
        status = train_status(monkeypatch, *TINY, *arguments)
        return status, *capsys.readouterr()

    monkeypatch.chdir(work)
    monkeypatch.syspath_prepend(str(work))
    return run


def test_new_model_is_tested_in_every_setting(work: Path, trained: str) -> None:
    rows = pd.DataFrame(collect_results(work / "runs"))
    assert set(rows["model"]) == {"my_models:LateFusion"} and len(rows) == 6
    assert set(rows["test_setting"]) == {"image", "caption", "image+caption"}
    assert re.search(r"my_models:LateFusion .*tiny.* image\+caption .*cardinality", trained)


def test_new_model_is_in_the_report(work: Path, trained: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one kind of figures: drawing all takes a while."""
    monkeypatch.chdir(work)
    monkeypatch.setattr(figures, "FIGURES", {"cells": figures.FIGURES["cells"]})
    assert report(["runs", "--out", "report"]) == 0
    assert "my_models:LateFusion" in (work / "report" / "report.html").read_text(encoding="utf-8")


def test_new_model_trains_with_consistency_and_epochs(work: Path, train: Train) -> None:
    status, _, err = train("model=my_models:LateFusion", "setting=caption", "method=consistency")
    assert status == 0, err
    (folder,) = (p for p in (work / "runs").glob("my_models_LateFusion-caption-*"))
    assert read_config(folder)["config"]["method"] == "consistency"


@pytest.mark.parametrize(
    ("model", "setting", "message"),
    [
        ("vilbert", "", "visualbert"),
        ("my_models:Missing", "", "no class"),
        ("nowhere:Model", "", "no module"),
        ("broken:Model", "", "imported"),
        ("others:Plain", "", "`architecture`"),
        ("my_models:LateFusion", "recipe=paper", "recipe=paper"),
    ],
)
def test_model_refuses_what_is_no_model(model: str, setting: str, message: str, train: Train) -> None:
    status, _, err = train(f"model={model}", *filter(None, [setting]))
    line = one_line(err)
    assert status == 2 and message in line and (setting or f"model={model}: ") in line
