"""TensorBoard and Weights & Biases get what a run learns and how it is tested."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.helpers import write
from train.config import Optimiser, Run, Training
from train.run import run


@pytest.mark.usefixtures("one_thread")
def test_two_runs_of_a_process_have_two_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    write(tmp_path / "data")
    for seed in (0, 1):
        config = Run(
            data=str(tmp_path / "data"), runs=str(tmp_path / "runs"), seed=seed, size="tiny", precision="float32",
            device="cpu", logger=["tensorboard", "wandb"], optimiser=Optimiser(batch_size=5),
            training=Training(steps=20, check_every=10, validation=40),
        )  # fmt: skip
        rows = run(config, log=lambda _: None)
        folder = tmp_path / "runs" / rows[0]["name"]
        read = EventAccumulator(str(folder / "tensorboard")).Reload()
        points = {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}
        assert [step for step, _ in points["answer_loss"]] == [10, 20] and len(points["f1"]) == 2
        for row in rows:
            tag = f"test/{row['test_setting']}/{row['split']}/f1"
            assert points[tag] == [(20, pytest.approx(row["macro_f1"]))]
        (offline,) = folder.glob("wandb/offline-run-*")
        assert list(offline.glob(f"run-{folder.name}.wandb")) and (folder / "curve.csv").is_file()
