"""A run's log in TensorBoard and Weights & Biases: its config, losses, learning rate, validation and test scores.

curve.csv, which every run has, is written by `train.learning.loop.CurveWriter`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger

from train.config import Run
from train.learning.devices import is_main_process
from train.results.columns import Row
from train.results.tables import flat_settings

SCORES = {"f1": "macro_f1", "accuracy": "accuracy"}  # name in a log -> column of the results


@contextlib.contextmanager
def open_loggers(run: Run, folder: Path, config: Mapping[str, Any]) -> Iterator[list[Logger]]:
    """Lightning's loggers of a run, with `config` as its hyperparameters. Only the main process has any.

    TensorBoard writes to `folder`/tensorboard. A run of W&B has the name of `folder` and stays offline unless the
    environment variable WANDB_MODE says otherwise; a resumed run continues it.
    """
    loggers: list[Logger] = []
    try:
        if "tensorboard" in run.logger and is_main_process():
            loggers.append(TensorBoardLogger(folder, name="tensorboard", version="", default_hp_metric=False))
        if "wandb" in run.logger and is_main_process():
            offline = (os.environ.get("WANDB_MODE") or "offline") == "offline"
            if offline:
                os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # else W&B sends error reports over the network
            project = os.environ.get("WANDB_PROJECT") or "travlr"
            loggers.append(
                WandbLogger(folder.name, folder, id=folder.name, project=project, offline=offline, resume="allow")
            )
        for logger in loggers:
            logger.log_hyperparams(flat_settings(config))
        yield loggers
    finally:
        for logger in loggers:
            logger.finalize("finished")
            if isinstance(logger, WandbLogger):
                logger.experiment.finish()


def log_tests(loggers: Sequence[Logger], rows: Sequence[Row], step: int) -> None:
    """Log the scores of a tested run, such as `test/caption/test_ood/f1`, in percent. step: the last of training."""
    scores = {
        f"test/{row['test_setting']}/{row['split']}/{name}": row[column]
        for row in rows
        for name, column in SCORES.items()
    }
    for logger in loggers:
        logger.log_metrics(scores, step)
