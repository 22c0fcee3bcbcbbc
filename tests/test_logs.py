"""Lightning's loggers beside the curve of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import write
from train.config import Optimiser, Run, Training
from train.run import run


@pytest.mark.usefixtures("one_thread", "rules_not_fitted", "unaudited")
def test_run_writes_the_logs_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    write(tmp_path / "data")
    config = Run(
        data=str(tmp_path / "data"), runs=str(tmp_path / "runs"), size="tiny", precision="float32", device="cpu",
        trainer={"logger": ["csv", "tensorboard", "wandb"]}, optimiser=Optimiser(batch_size=5),
        training=Training(steps=4, check_every=2),
    )  # fmt: skip
    folder = tmp_path / "runs" / run(config, log=lambda _: None)[0]["name"]
    for pattern in ("curve.csv", "csv/metrics.csv", "tensorboard/events.*", "wandb/offline-run-*"):
        assert list(folder.glob(pattern)), pattern
