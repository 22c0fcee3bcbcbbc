"""A run that is killed and goes on, and what is left of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.helpers import ROOT, write
from train.results.predictions import read_predictions
from train.results.store import read_curve

SCRIPT = """
import os, signal, sys
import torch
from train.config import Optimiser, Run, Training
from train.learning.module import Learner
from train.models import SIZES
from train.run import run

data, runs, kill = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.set_num_threads(1)
SIZES["tiny"] |= {"dropout": 0.1, "attention_dropout": 0.1}  # random numbers in every step, as at base size
learn = Learner.training_step

def step(self, batch, number):
    if self.global_step == kill:
        os.kill(os.getpid(), signal.SIGKILL)
    return learn(self, batch, number)

Learner.training_step = step
run(Run(
    data=data, runs=runs, setting="mixed", size="tiny", precision="float32", device="cpu",
    optimiser=Optimiser(batch_size=5), trainer={"accumulate_grad_batches": 2},
    training=Training(steps=11, check_every=4, examples=70),
))
"""


def trained(data: Path, runs: Path, kill: int = -1) -> tuple[int, bool]:
    """The exit status of a run that is killed in step `kill`, and whether it went on from a checkpoint."""
    line = [sys.executable, "-u", "-c", SCRIPT, str(data), str(runs), str(kill)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300)
    return done.returncode, "goes on from its last checkpoint" in done.stdout


def test_killed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path: Path) -> None:
    write(tmp_path / "data")
    assert trained(tmp_path / "data", tmp_path / "whole") == (0, False)
    for step, goes_on in ((6, False), (10, True)):  # after the validations of steps 4 and 8
        assert trained(tmp_path / "data", tmp_path / "killed", step) == (-signal.SIGKILL, goes_on)
    assert trained(tmp_path / "data", tmp_path / "killed") == (0, True)
    whole, killed = (next((tmp_path / runs).glob("uniter-*")) for runs in ("whole", "killed"))
    weights, others = (load_file(folder / "model.safetensors") for folder in (whole, killed))
    assert weights.keys() == others.keys() and all(torch.equal(weights[name], others[name]) for name in weights)
    assert read_predictions(whole).equals(read_predictions(killed))
    assert read_curve(whole) == read_curve(killed)
    assert [point["step"] for point in read_curve(whole) if point["validation_f1"] is not None] == [4, 8, 11]
    assert not list(tmp_path.rglob("*.ckpt"))
