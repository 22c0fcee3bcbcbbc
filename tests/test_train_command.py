"""`python train.py`: settings, experiments, a run, a sweep."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import yaml

from tests.helpers import ROOT, one_line, train_settings, train_status
from tests.helpers import write as write_dataset
from train.command import with_start
from train.config import Run
from train.results.store import collect_results
from travlr import Cardinality, Count, Image

pytestmark = pytest.mark.usefixtures("one_thread", "unaudited")

TINY = ("data=d", "size=tiny", "training.steps=3", "training.check_every=3", "optimiser.batch_size=8", "device=cpu")
RUNS = {
    "table2": 144, "text_only": 24, "subsets": 144, "subsets_text": 24, "frozen": 48, "frozen_text": 8, "mixed": 48,
    "few_shot": 10, "volta": 27, "volta_8000": 9, "transfer": 48, "unlabelled": 56, "mismatched": 8,
    "transfer_vlm": 64,
}  # fmt: skip


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "d"
    count = Count(train=40, validation=20, test_ind=20, test_ood=20)
    write_dataset(folder, Cardinality(count=count, image=Image(cell=8)))
    return folder


@pytest.fixture
def work(tmp_path: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small dataset in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").symlink_to(dataset)
    return tmp_path


@pytest.mark.parametrize("name", RUNS)
def test_experiment_has_the_paper_s_runs_and_all_are_valid(name: str) -> None:
    """Of each axis, every value; with the paper's sizes, too."""
    file = yaml.safe_load((ROOT / "conf" / "experiment" / f"{name}.yaml").read_text())
    axes = [[f"{key}={value}" for value in text.split(",")] for key, text in file["hydra"]["sweeper"]["params"].items()]
    assert math.prod(map(len, axes)) == RUNS[name]
    for place in range(max(map(len, axes))):
        combination = [axis[place % len(axis)] for axis in axes]
        if name == "transfer_vlm":
            train_settings(f"experiment={name}", "model=hub/chat", *combination)
            continue
        run = train_settings(f"experiment={name}", *combination)
        assert (run.size, run.recipe) == ("small", "default")
        if not run.pairs_modalities:  # which needs new examples and auxiliary targets
            run = train_settings(f"experiment={name}", *combination, "+scale=paper")
            assert (run.size, run.recipe) == ("base", "paper")


# Table 5 and the published code: model -> batch, rate, decay of weights, clipping, schedule and its end, loss.
PAPER = {
    "visualbert": (64, 2e-5, 0.01, 5.0, "linear", 0.0, "binary"),
    "uniter": (32, 5e-6, 0.01, 5.0, "linear", 0.0, "binary"),
    "lxmert": (32, 5e-6, 0.01, 5.0, "linear", 0.0, "binary"),
    "albef": (256, 2e-5, 0.02, None, "cosine", 1e-6, "distillation"),
}


@pytest.mark.parametrize("model", PAPER)
def test_scale_paper_is_the_paper_s(model: str) -> None:
    run = train_settings(f"model={model}", "+scale=paper")
    recipe, training = run.details, run.training
    found = (recipe.weight_decay, recipe.clip, recipe.decay, recipe.final_rate, recipe.loss)
    assert (run.batch_size, run.learning_rate, *found) == PAPER[model]
    assert (run.regions.number, recipe.betas, recipe.positions) == (36, (0.9, 0.999), "random")
    assert (training.epochs, training.steps, training.examples, training.auxiliary_targets) == (80, None, 1.0, False)


def test_few_shot_is_table_9() -> None:
    cases = [yaml.safe_load(path.read_text()) for path in (ROOT / "conf" / "case").glob("few_shot_*.yaml")]
    found = {(case["task"], case["setting"], case["model"], case["seed"]) for case in cases}
    assert len(found) == 10 and {seed for task, setting, _, seed in found if task == "quantifiers"} == {2}


def test_run_prints_its_table_and_is_not_trained_again(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train_status(monkeypatch, *TINY) == 0
    table = capsys.readouterr().out
    assert "macro-F1" in table and "step      3" in table
    assert train_status(monkeypatch, *TINY) == 0
    again = capsys.readouterr().out
    assert "finished before" in again and "step      3" not in again
    names = {path.name for path in next(Path("runs").glob("uniter-*")).iterdir()}
    files = {"settings.yaml", "results.json", "predictions.parquet", "curve.csv", "model.safetensors", "tokenizer.json"}
    assert names >= files


def test_sweep_goes_on_after_a_failed_job(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train_status(monkeypatch, "-m", *TINY, "model=bert,uniter", "setting=image") != 0
    assert "model=bert" in capsys.readouterr().err
    assert {row["model"] for row in collect_results(Path("runs"))} == {"uniter"}


@pytest.mark.parametrize(
    ("argument", "pattern"),
    [
        ("seed=-1", "seed=-1: "),
        ("sed=1", "sed.* seed"),
        ("+epochs=1", r"training\.epochs"),
        ("setting=video", "setting=video: "),
        ("task=speed", "task=speed: .*spatiality"),
        ("task=spatiality", "data=d: .*task=cardinality"),
        ("data=", "data=: "),
        ("runs=d/dataset.json", r"runs=d/dataset\.json: "),
        ("start=runs/*", r"start=runs/\*: "),
        ("pretrained=none.pt", r"pretrained=none\.pt: "),
        ("regions.source=none", "regions.source=none: "),
        ("training.examples=1000", "training.examples=1000: "),
        ("trainer.devises=2", r"trainer=\{devises:2\}: "),
        ("trainer.strategy=many", r"trainer=\{strategy:many\}: "),
        ("trainer.callbacks=none:None", "trainer.callbacks=none:None: "),
        ("trainer.logger=none", "trainer.logger=none: .*csv"),
        ("trainer.devices=3", "optimiser.batch_size=8"),
    ],
)
def test_wrong_setting_is_named_before_a_run_begins(
    argument: str, pattern: str, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    others = ["training.examples=1.0"] if argument.startswith("regions") else []
    assert train_status(monkeypatch, *TINY, *others, argument) == 2
    line = one_line(capsys.readouterr().err)
    assert line.startswith("train: ") and re.search(pattern, line)
    assert not Path("runs").exists()


def test_start_is_the_one_run_that_fits(tmp_path: Path) -> None:
    for name in ("uniter-image-s0-a", "uniter-image-s1-b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").touch()
    (tmp_path / "uniter-image-s0-a-evaluation").mkdir()
    run = with_start(Run(start=f"{tmp_path}/*-s0-*"))
    assert run.start == str(tmp_path / "uniter-image-s0-a")
    with pytest.raises(ValueError, match="uniter-image-s1-b"):
        with_start(Run(start=f"{tmp_path}/*"))
