"""What cannot be trained on, or goes wrong in training: one line that names the setting, exit status 2."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers import edit, flip, one_line, train_status
from tests.helpers import write as write_dataset
from train.data.text import grammar_tokenizer
from train.models import SIZES
from travlr import Cardinality, Count, Image

pytestmark = pytest.mark.usefixtures("one_thread", "rules_not_fitted")

COUNTS = {"train": 100, "validation": 20, "test_ind": 20, "test_ood": 20}
SMALL = ["data=d", "size=tiny", "optimiser.batch_size=10", "precision=float32", "device=cpu"]
SMALL += ["training.steps=6", "training.check_every=2"]
Damage = Callable[[Path], object]


def write(folder: Path, **counts: int) -> Path:
    write_dataset(folder, Cardinality(count=Count(**(COUNTS | counts)), image=Image(cell=8)))
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("whole") / "d")


@pytest.fixture
def data(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset that may be damaged, named `d` from the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(whole, tmp_path / "d")
    return tmp_path / "d"


@pytest.fixture
def refused(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def line(*arguments: str) -> str:
        assert train_status(monkeypatch, *SMALL, *arguments) == 2
        out, err = capsys.readouterr()
        assert "Traceback" not in out
        return one_line(err)

    return line


# Data ----------------------------------------------------------------------------------------------------------------


def manifest(folder: Path, **changes: Any) -> None:
    edit(folder / "dataset.json", **changes)


def without_a_split(folder: Path) -> None:
    shutil.rmtree(folder)
    write(folder, test_ood=0)


def first(folder: Path, split: str) -> Path:
    return next(folder.glob(f"{split}-*"))


DATA: dict[str, tuple[Damage, str]] = {
    "a file": (lambda folder: first(folder, "test_ood").unlink(), "test_ood-00000-of-00001.parquet"),
    "a bit": (lambda folder: flip(first(folder, "train")), "train-0000"),
    "split": (without_a_split, "split test_ood"),
    "audit": (functools.partial(manifest, content_digest="0" * 64), "content digest"),
    "nothing": (shutil.rmtree, "travlr.generate task=cardinality out=d"),
}


@pytest.mark.parametrize("case", DATA)
def test_train_names_data_that_do_not_fit(case: str, data: Path, refused: Callable[..., str]) -> None:
    damage, name = DATA[case]
    damage(data)
    line = refused()
    assert line.startswith("train: data=d: ") and name in line


def test_train_audits_a_dataset_once(
    data: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train_status(monkeypatch, *SMALL, "training.steps=2") == 0
    assert train_status(monkeypatch, *SMALL, "training.steps=2", "seed=1") == 0
    assert capsys.readouterr().out.count("auditing") == 1
    manifest(data, content_digest="0" * 64)
    assert "content digest" in refused("training.steps=2")


# The rest ------------------------------------------------------------------------------------------------------------


def test_train_names_a_missing_gpu(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert refused("device=gpu").startswith("train: device=gpu: ")


def test_train_names_a_text_that_is_too_long(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES["tiny"], "positions", 60)
    line = refused()
    assert line.startswith("train: size=tiny: ") and "60 tokens" in line and "model=uniter" in line


def test_train_names_a_rate_that_is_too_high(refused: Callable[..., str]) -> None:
    line = refused("optimiser.learning_rate=1e30")
    assert line.startswith("train: optimiser.learning_rate=1e+30: ") and "finite" in line


def test_train_names_a_checkpoint_of_another_architecture(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    grammar_tokenizer().save_pretrained(tmp_path)
    torch.save({"bert.embeddings.word_embeddings.weight": torch.zeros(9, 7)}, "other.pt")
    Path("notes.md").write_text("no weights")
    assert refused("pretrained=notes.md").startswith("train: pretrained=notes.md: ")
    line = refused("pretrained=other.pt")
    assert line.startswith("train: pretrained=other.pt: ") and "architecture" in line
    assert train_status(monkeypatch, *SMALL, "training.steps=2") == 0
    start = next(Path("runs").glob("uniter-*"))
    line = refused("model=lxmert", f"start={start}")
    assert line.startswith(f"train: start={start}: ") and "model=uniter" in line


def features(folder: Path, dimensions: dict[str, int]) -> None:
    """UNITER's format: a file for each image, with features as wide as its split has them."""
    folder.mkdir()
    for split, width in dimensions.items():
        for number in range(COUNTS.get(split, 1)):
            name = f"cardinality-{split}-{number:08d}" if split in COUNTS else split
            np.savez(folder / name, features=np.ones((2, width), np.float32), norm_bb=np.zeros((2, 6), np.float32))


SIX = (*COUNTS, "blank")
FEATURES: dict[str, tuple[dict[str, int], str]] = {
    "no blank picture": ({name: 6 for name in SIX if name != "blank"}, "1 of 21 .*blank"),
    "training": (dict.fromkeys(SIX, 6) | {"train": 5}, "cardinality-train-00000000: .* 5 "),
    "blank": (dict.fromkeys(SIX, 6) | {"blank": 5}, "-00000000: .* 6 .*blank.* 5"),
}


@pytest.mark.parametrize("case", FEATURES)
def test_train_names_features_that_do_not_fit(case: str, refused: Callable[..., str]) -> None:
    dimensions, pattern = FEATURES[case]
    features(Path("made"), dimensions)
    line = refused("training.examples=1.0", "regions.source=made")
    assert line.startswith("train: regions.source=made: ") and re.search(pattern, line)
    assert not list(Path("runs").glob("*/curve.csv"))  # told before training
