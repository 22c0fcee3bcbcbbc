"""A run's log in TensorBoard and Weights & Biases: its config, losses, learning rate, validation and test scores.

curve.csv, which every run has, is written by `train.learning.loop.CurveWriter`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger

from train.config import Run
from train.learning.devices import is_main_process
from train.results.columns import TEST_SPLITS, Row
from train.results.tables import flat_settings

MODES = ("offline", "online", "disabled")  # of W&B, by WANDB_MODE
SCORES = {"f1": "macro_f1", "accuracy": "accuracy"}  # name in a log -> column of the results


class TensorBoard(TensorBoardLogger):
    """Event files in `folder`/tensorboard.

    config: written as hyperparameters. scores: names of the scalars by which TensorBoard's HPARAMS tab compares runs.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], scores: Sequence[str] = ()) -> None:
        from torch.utils.tensorboard.summary import hparams

        super().__init__(folder, name="tensorboard", version="", default_hp_metric=False)
        self.log_hyperparams(dict(config))  # Lightning writes them as YAML, and as a summary only beside values
        settings = {name: "null" if value is None else value for name, value in flat_settings(config).items()}
        for summary in hparams(settings, dict.fromkeys(scores, 0.0)):  # type: ignore[no-untyped-call]
            self.experiment._get_file_writer().add_summary(summary)

    def resume(self, step: int) -> None:
        """Drop all points after a step: a resumed run logs the points after its last checkpoint again."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        begin = Event(step=step + 1, session_log=SessionLog(status=SessionLog.START))
        self.experiment._get_file_writer().add_event(begin)

    def log_tests(self, scores: Mapping[str, float], step: int) -> None:
        self.log_metrics(dict(scores), step)

    def finalize(self, status: str) -> None:
        """Leave the file open: Lightning calls this after training, and test scores are logged after that."""
        self.save()

    def close(self, failed: bool) -> None:
        self.experiment.close()


class Wandb(WandbLogger):
    """A W&B run with the name of `folder`, offline unless the environment variable WANDB_MODE says otherwise.

    Its steps are those of the optimiser. A resumed run continues the same W&B run. Online, W&B ignores steps that it
    has already; offline, each start writes another folder, and two folders may contain the same steps.

    Raises `ValueError` for a WANDB_MODE that does not exist.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        mode = os.environ.get("WANDB_MODE") or "offline"
        if mode not in MODES:
            raise ValueError(f"WANDB_MODE={mode}: choose one of {', '.join(MODES)}")
        if mode != "online":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # else W&B sends error reports over the network
        import wandb

        wandb_run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "travlr",
            name=folder.name,
            id=folder.name,
            dir=folder,
            config=dict(config),
            resume="allow",
            reinit="create_new",  # does not end a W&B run of the calling program
            mode=mode,  # type: ignore[arg-type]
            settings=wandb.Settings(silent=True, console="off"),
        )
        super().__init__(experiment=wandb_run)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.experiment.log(dict(metrics), step=step)

    def resume(self, step: int) -> None:
        """Do nothing: W&B itself ignores steps that it has already."""

    def log_tests(self, scores: Mapping[str, float], step: int) -> None:
        self.experiment.summary.update(dict(scores))

    def close(self, failed: bool) -> None:
        self.experiment.finish(exit_code=int(failed))


Logger = TensorBoard | Wandb


@contextlib.contextmanager
def open_loggers(
    run: Run, folder: Path, config: Mapping[str, Any], tests: Sequence[str] = ()
) -> Iterator[list[Logger]]:
    """Open the loggers of a run, and close them when it ends or fails. Only the main process has any.

    config: the hyperparameters to log. tests: the run's test settings.
    """
    loggers: list[Logger] = []
    failed = True
    try:
        if "tensorboard" in run.logger and is_main_process():
            scores = [score_name(setting, split, name) for setting in tests for split in TEST_SPLITS for name in SCORES]
            loggers.append(TensorBoard(folder, config, scores))
        if "wandb" in run.logger and is_main_process():
            loggers.append(Wandb(folder, config))
        yield loggers
        failed = False
    finally:
        for logger in loggers:
            logger.close(failed)


def score_name(setting: str, split: str, score: str) -> str:
    return f"test/{setting}/{split}/{score}"


def log_tests(loggers: Sequence[Logger], rows: Sequence[Row], step: int) -> None:
    """Log the scores of a tested run, such as `test/caption/test_ood/f1`, in percent. step: the last of training."""
    scores = {
        score_name(row["test_setting"], row["split"], name): row[column]
        for row in rows
        for name, column in SCORES.items()
    }
    for logger in loggers:
        logger.log_tests(scores, step)


class Resume(Callback):
    """Tells the loggers from which step training continues."""

    def on_train_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoard | Wandb):
                logger.resume(trainer.global_step)
