"""A run that is killed and goes on, and what is left of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.helpers import ROOT, write
from train.results.predictions import read_predictions
from train.results.store import read_curve

# Imports once, then makes each run in a process of its own; prints the exit status of each.
SCRIPT = """
import json, os, signal, sys
import torch
from train.config import Optimiser, Run, Training
from train.learning.module import Learner
from train.models import SIZES
from train.run import run

torch.set_num_threads(1)
SIZES["tiny"] |= {"dropout": 0.1, "attention_dropout": 0.1}  # random numbers in every step, as at base size
learn = Learner.training_step
data, runs = sys.argv[1], json.loads(sys.argv[2])


def begin(folder, kill):
    def step(self, batch, number):
        if self.global_step == kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return learn(self, batch, number)

    Learner.training_step = step
    run(Run(
        data=data, runs=folder, setting="mixed", size="tiny", precision="float32", device="cpu",
        optimiser=Optimiser(batch_size=5), trainer={"accumulate_grad_batches": 2},
        training=Training(steps=11, check_every=4, examples=70),
    ))


for folder, kill in runs:
    process = os.fork()
    if not process:
        begin(folder, kill)
        sys.exit()
    print("status", os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


def test_killed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path: Path) -> None:
    write(tmp_path / "data")
    killed = str(tmp_path / "killed")
    runs = [(str(tmp_path / "whole"), -1), (killed, 6), (killed, 10), (killed, -1)]  # validations: steps 4, 8 and 11
    line = [sys.executable, "-u", "-c", SCRIPT, str(tmp_path / "data"), json.dumps(runs)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    events = [
        "goes on" if "checkpoint" in line else line
        for line in done.stdout.splitlines()
        if "checkpoint" in line or line.startswith("status")
    ]
    kill = f"status {-signal.SIGKILL}"
    assert events == ["status 0", kill, "goes on", kill, "goes on", "status 0"]
    whole, other = (next((tmp_path / runs).glob("uniter-*")) for runs in ("whole", "killed"))
    weights, others = (load_file(folder / "model.safetensors") for folder in (whole, other))
    assert weights.keys() == others.keys() and all(torch.equal(weights[name], others[name]) for name in weights)
    assert read_predictions(whole).equals(read_predictions(other))
    assert read_curve(whole) == read_curve(other)
    assert [point["step"] for point in read_curve(whole) if point["validation_f1"] is not None] == [4, 8, 11]
    assert not list(tmp_path.rglob("*.ckpt"))
