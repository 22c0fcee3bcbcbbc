"""Runs that are killed and go on: they lose little, make progress, and end like a run that was never stopped."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.helpers import ROOT, called, one_line
from train.config import Optimiser, Run, Training
from train.learning.checkpoints import FOLDER, LAST
from train.learning.module import Learner
from train.models import SIZES
from train.results.predictions import read_predictions
from train.results.store import read_curve
from train.run import run
from travlr import Cardinality
from travlr.config import Count
from travlr.generate import GenerateArguments, generate_dataset

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS = 11
STREAM = Training(steps=STEPS, check_every=4, validation=40)
EPOCHS = replace(STREAM, stream=False, examples=70, check_every=4)  # epochs of 7 steps
NEVER = 1e9  # minutes


class RunKilled(Exception):
    """Ends a run in the middle of a step, as a kill does: nothing is saved any more."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("data") / "cardinality")
    count = Count(train=80, validation=40, test_ind=40, test_ood=40)
    generate_dataset(Cardinality(count=count), GenerateArguments(out=folder, workers=1), log=lambda line: None)
    return folder


@pytest.fixture(autouse=True)
def dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random numbers in every step, as at base size."""
    monkeypatch.setitem(SIZES, "tiny", SIZES["tiny"] | {"dropout": 0.1, "attention_dropout": 0.1})


def tiny(data: str, runs: Path, **changes: Any) -> Run:
    values: dict[str, Any] = {"size": "tiny", "precision": "float32", "device": "cpu", "training": STREAM}
    values["audit"] = False
    return Run(**{"data": data, "runs": str(runs), "optimiser": Optimiser(batch_size=10), **values, **changes})


@pytest.fixture
def falling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every validation scores less than the one before."""
    scores: Iterator[float] = iter(range(99, 0, -1))
    monkeypatch.setattr("train.learning.module.score", lambda *_: SimpleNamespace(macro_f1=next(scores), accuracy=50.0))


def lives(config: Run, monkeypatch: pytest.MonkeyPatch, batches: int) -> int:
    """How often a run has to be started that is killed in its batch after so many batches, each time."""
    learn: Callable[..., Any] = Learner.training_step
    for life in range(1, 50):
        left = iter(range(batches))

        def step(*arguments: Any, left: Iterator[int] = left) -> Any:
            if next(left, None) is None:
                raise RunKilled
            return learn(*arguments)

        monkeypatch.setattr(Learner, "training_step", step)
        try:
            run(config, log=lambda line: None)
        except RunKilled:
            continue
        finally:
            monkeypatch.setattr(Learner, "training_step", learn)
        return life
    pytest.fail("no progress")


def folder_of(config: Run) -> Path:
    (folder,) = (path for path in Path(config.runs).iterdir() if path.is_dir() and path.name[0] != ".")
    return folder


def assert_alike(one: Path, other: Path) -> None:
    """The same weights and predictions to the bit, and the same curve."""
    weights = [load_file(folder / "model.safetensors") for folder in (one, other)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    logits = [read_predictions(folder)["logit"].to_numpy() for folder in (one, other)]
    np.testing.assert_array_equal(*logits)
    assert read_curve(one) == read_curve(other)


KINDS: dict[str, dict[str, Any]] = {
    "stream": {},
    "epochs": {"training": EPOCHS, "setting": "mixed"},
    "whole epochs": {"training": replace(EPOCHS, check_every=None, steps=None, epochs=2)},
    "consistency": {"training": replace(STREAM, consistency=True), "setting": "image"},
    "accumulated": {"training": EPOCHS, "optimiser": Optimiser(batch_size=5, accumulate=3)},
    "distillation": {
        "training": replace(EPOCHS, loss="distillation", auxiliary_targets=False, steps=5),
        "model": "albef",
        "setting": "image",
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_killed_again_and_again_ends_like_one_that_was_not(
    kind: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in each sixth step (of few steps in each fourth), with its state saved after each step."""
    whole, killed = (tiny(data, tmp_path / name, save_minutes=0.0, **KINDS[kind]) for name in ("whole", "killed"))
    run(whole, log=lambda line: None)
    steps = killed.training.steps or 14
    each = 5 if steps > 5 else 3
    lives_needed = math.ceil(steps / each)  # where no step is taken twice
    assert lives(killed, monkeypatch, each * killed.optimiser.accumulate) == lives_needed
    assert_alike(folder_of(whole), folder_of(killed))


@pytest.mark.usefixtures("falling")
@pytest.mark.parametrize("training", [STREAM, EPOCHS], ids=["stream", "epochs"])
def test_a_run_whose_score_only_falls_goes_on_from_its_last_validation(
    training: Training, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(data, tmp_path, training=training, save_minutes=NEVER)
    whole = replace(config, runs=str(tmp_path / "whole"))
    config = replace(config, runs=str(tmp_path / "killed"))
    scored = run(whole, log=lambda line: None)[0]["name"]
    points = [p["validation_f1"] for p in read_curve(tmp_path / "whole" / scored) if p.get("validation_f1")]
    assert len(points) == STEPS // 4 and points == sorted(points, key=lambda f1: -(f1 or 0.0))
    learn: Callable[..., Any] = Learner.training_step
    for last in (4, 8):  # killed two steps after each validation

        def step(self: Learner, *arguments: Any, last: int = last) -> Any:
            if self.trainer.global_step == last + 2:
                raise RunKilled
            return learn(self, *arguments)

        monkeypatch.setattr(Learner, "training_step", step)
        with pytest.raises(RunKilled):
            run(config, log=lambda line: None)
        assert torch.load(folder_of(config) / FOLDER / LAST, weights_only=True)["global_step"] == last
    monkeypatch.setattr(Learner, "training_step", learn)
    lines: list[str] = []
    run(config, log=lines.append)
    assert any("resuming" in line for line in lines)
    weights = [load_file(folder_of(one) / "model.safetensors") for one in (whole, config)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_between_validations_a_run_is_saved_every_so_many_minutes(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that goes on a minute with each step."""
    saved: list[int] = []
    now = [0]
    clock = SimpleNamespace(monotonic=lambda: 60.0 * now[0])
    learn, save = Learner.training_step, Learner.on_save_checkpoint

    def step(*arguments: Any) -> Any:
        now[0] += 1
        return learn(*arguments)

    def on_save(self: Learner, checkpoint: dict[str, Any]) -> None:
        saved.append(checkpoint["global_step"])
        save(self, checkpoint)

    monkeypatch.setattr("train.learning.checkpoints.time", clock)
    monkeypatch.setattr(Learner, "training_step", step)
    monkeypatch.setattr(Learner, "on_save_checkpoint", on_save)
    run(tiny(data, tmp_path, save_minutes=3, training=replace(STREAM, check_every=8)), log=lambda line: None)
    assert saved == [3, 6, 8, 11]


def test_a_finished_run_leaves_its_weights_alone(data: str, tmp_path: Path) -> None:
    training = replace(STREAM, steps=4)
    run(tiny(data, tmp_path, training=training), log=lambda line: None)
    heavy = [path for path in tmp_path.rglob("*") if path.suffix in (".ckpt", ".safetensors", ".tmp")]
    assert [path.name for path in heavy] == ["model.safetensors"]


def test_a_run_that_was_killed_in_its_tests_is_not_trained_again(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(data, tmp_path, training=replace(STREAM, steps=4))

    def dies(*_: Any) -> None:
        raise RunKilled

    with monkeypatch.context() as patched, pytest.raises(RunKilled):
        patched.setattr("train.run.test_matrix", dies)
        run(config, log=lambda line: None)
    monkeypatch.setattr(Learner, "training_step", lambda *_: pytest.fail("trained again"))
    assert len(run(config, log=lambda line: None)) == 6
    assert {point["step"] for point in read_curve(folder_of(config))} == {4}


# How often is validated ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"check_every": 3}, [3, 6, 9]),  # within epochs of 7 steps, and across them
        ({"check_every": 10}, [10]),
        ({"check_every": None}, [7]),
        ({"check_every": 50}, [11]),
        ({"check_every": None, "steps": None, "epochs": 2}, [7, 14]),
        ({"stream": True, "examples": 1.0, "check_every": 3}, [3, 6, 9]),
    ],
)
def test_validations_are_so_many_steps_apart(
    changes: dict[str, Any], steps: list[int], data: str, tmp_path: Path
) -> None:
    config = tiny(data, tmp_path, training=replace(EPOCHS, **changes))
    run(config, log=lambda line: None)
    points = read_curve(folder_of(config))
    assert [point["step"] for point in points if point.get("validation_f1") is not None] == steps


def test_validations_change_nothing(data: str, tmp_path: Path) -> None:
    configs = [tiny(data, tmp_path / str(n), training=replace(EPOCHS, check_every=n)) for n in (3, None)]
    for config in configs:
        run(config, log=lambda line: None)
    weights = [load_file(folder_of(config) / "model.safetensors") for config in configs]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


# Processes -----------------------------------------------------------------------------------------------------------


ARGUMENTS = ["size=tiny", "precision=float32", "device=cpu", "optimiser.batch_size=10", "training.check_every=2",
             "training.validation=40", "audit=false"]  # fmt: skip


@pytest.fixture
def without_dropout(dropout: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny size of other processes, in this one."""
    monkeypatch.setitem(SIZES, "tiny", SIZES["tiny"] | {"dropout": 0.0, "attention_dropout": 0.0})


TWICE = """
# A run of two processes that is killed as soon as it prints its second validation, and then goes on. All are forked
# from this process, which imports what they need, but for one that Lightning begins.
import os, signal, socket, sys
from lightning.fabric.utilities.rank_zero import rank_zero_only
import train.learning.loop, train.run
from train.command import main
from travlr import cli

def begin(out, **environment):
    if process := os.fork():
        return process
    os.dup2(out.fileno(), 1)
    os.environ |= environment
    rank_zero_only.rank = int(environment.get("LOCAL_RANK", 0))
    cli.run("train", main)

del sys.argv[0]  # what is left is a command, which Lightning repeats
with socket.create_server(("127.0.0.1", 0)) as free:
    port = str(free.getsockname()[1])
ends = [os.fdopen(end, mode) for end, mode in zip(os.pipe(), "rw")]
killed = [begin(ends[1], LOCAL_RANK=rank, MASTER_PORT=port) for rank in "01"]
ends[1].close()
second = any(line.startswith("step      4") for line in ends[0])
for process in killed:
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(begin(sys.stdout), 0)[1]) if second else "no second validation")
"""


@pytest.mark.usefixtures("without_dropout")
def test_processes_that_are_killed(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that resumes ends like one of a single process, as near as sums of other parts are."""
    arguments = [f"data={data}", *ARGUMENTS, "training.steps=6"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", TWICE, str(ROOT / "train.py"), *arguments, "devices=2", "runs=killed"]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "resuming" in done.stdout, done.stderr
    steps = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("step ")]
    assert steps in (["4", "6"], ["6"])  # by whether the state was saved before the kill
    assert done.stdout.count("trained in caption") == 1
    monkeypatch.chdir(tmp_path)
    assert called(monkeypatch, *arguments, "runs=whole", "devices=1") == 0
    killed, whole = (next((tmp_path / runs).glob("uniter-*")) for runs in ("killed", "whole"))
    assert killed.name == whole.name
    one, other = (read_predictions(folder)["logit"].to_numpy() for folder in (killed, whole))
    assert not np.array_equal(one, other)  # equal sums would mean that one process did all
    np.testing.assert_allclose(one, other, atol=1e-3)  # 0.1 or more where a state is lost


# Damage --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def stopped(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of a run that was stopped after a validation, in the folder `runs`."""
    monkeypatch.chdir(tmp_path)
    arguments = [f"data={data}", *ARGUMENTS, "training.steps=4"]
    with monkeypatch.context() as patched:
        learn = Learner.training_step

        def step(self: Learner, *given: Any) -> Any:
            if self.trainer.global_step == 3:
                raise KeyboardInterrupt
            return learn(self, *given)

        patched.setattr(Learner, "training_step", step)
        assert called(patched, *arguments) == 130
    return arguments


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2000])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def nonsense(path: Path) -> None:
    path.write_bytes(b"\x80\x02not a checkpoint")


def pickled(path: Path) -> None:
    """Loads only where code in files is run."""
    torch.save({"state_dict": SimpleNamespace()}, path)


def other(path: Path) -> None:
    state = torch.load(path, weights_only=True)
    state["state_dict"].popitem()
    torch.save(state, path)


@pytest.mark.parametrize("damage", [cut, empty, nonsense, pickled, other])
def test_a_damaged_checkpoint_is_one_line_that_says_what_to_delete(
    damage: Callable[[Path], None], stopped: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (last,) = Path("runs").glob(f"*/{FOLDER}/{LAST}")
    damage(last)
    capsys.readouterr()
    assert called(monkeypatch, *stopped) == 1
    line = one_line(capsys.readouterr().err)
    assert line.startswith(f"train: {last}: ") and "delete this file" in line and "weights_only" not in line
    last.unlink()
    assert called(monkeypatch, *stopped) == 0
