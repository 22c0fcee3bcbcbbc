"""A run's log in TensorBoard and Weights & Biases: its config, losses, learning rate, validation and test scores.

curve.csv, which every run has, is written by `train.fit.Curve`.
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
from train.devices import leads
from train.printed import flat
from train.results import TEST_SPLITS, Row

MODES = ("offline", "online", "disabled")  # of W&B, by WANDB_MODE
TESTED = {"f1": "macro_f1", "accuracy": "accuracy"}  # name in a log -> column of the results


class TensorBoard(TensorBoardLogger):
    """Event files in `folder`/tensorboard. The config is written as hyperparameters, the dashboard of which compares
    runs by `scores`, names of scalars."""

    def __init__(self, folder: Path, config: Mapping[str, Any], scores: Sequence[str] = ()) -> None:
        from torch.utils.tensorboard.summary import hparams

        super().__init__(folder, name="tensorboard", version="", default_hp_metric=False)
        self.log_hyperparams(dict(config))  # Lightning writes them as YAML, and as a summary only beside values
        settings = {name: "null" if value is None else value for name, value in flat(config).items()}
        for summary in hparams(settings, dict.fromkeys(scores, 0.0)):  # type: ignore[no-untyped-call]
            self.experiment._get_file_writer().add_summary(summary)

    def resume(self, step: int) -> None:
        """Take back all points after a step: what a killed run logged after its last checkpoint is logged again."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        begin = Event(step=step + 1, session_log=SessionLog(status=SessionLog.START))
        self.experiment._get_file_writer().add_event(begin)

    def log_tests(self, scores: Mapping[str, float], step: int) -> None:
        self.log_metrics(dict(scores), step)

    def finalize(self, status: str) -> None:
        """Lightning calls this after training; the tests come after that, and `opened` closes the file."""
        self.save()

    def close(self, failed: bool) -> None:
        self.experiment.close()


class Wandb(WandbLogger):
    """A W&B run with the name of `folder`, offline unless the environment variable WANDB_MODE says otherwise.

    Its steps are those of the optimiser. A resumed run goes on in the same W&B run, which takes no step twice; what is
    logged offline lies in one folder for each start, and the points after the last checkpoint may be in two of them.

    Raises `ValueError` for a WANDB_MODE that does not exist.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        import wandb

        mode = os.environ.get("WANDB_MODE") or "offline"
        if mode not in MODES:
            raise ValueError(f"WANDB_MODE={mode}: choose one of {', '.join(MODES)}")
        begun = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "travlr",
            name=folder.name,
            id=folder.name,
            dir=folder,
            config=dict(config),
            resume="allow",
            reinit="create_new",  # a W&B run that the calling program has open is left alone
            mode=mode,  # type: ignore[arg-type]
            settings=wandb.Settings(silent=True, console="off"),
        )
        super().__init__(experiment=begun)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.experiment.log(dict(metrics), step=step)

    def resume(self, step: int) -> None:
        """Nothing: W&B itself drops points before its last step."""

    def log_tests(self, scores: Mapping[str, float], step: int) -> None:
        self.experiment.summary.update(dict(scores))

    def close(self, failed: bool) -> None:
        self.experiment.finish(exit_code=int(failed))


Logger = TensorBoard | Wandb


@contextlib.contextmanager
def opened(run: Run, folder: Path, config: Mapping[str, Any], tests: Sequence[str] = ()) -> Iterator[list[Logger]]:
    """The loggers that a run asks for, none for a process that does not lead; closed when the run ends or fails.

    config: what is logged as hyperparameters. tests: the test settings that the run will have scores in.
    """
    loggers: list[Logger] = []
    failed = True
    with contextlib.ExitStack() as stack:

        def keep(logger: Logger) -> None:
            stack.callback(lambda: logger.close(failed))
            loggers.append(logger)

        if "tensorboard" in run.logger and leads():
            scores = [name_of(setting, split, name) for setting in tests for split in TEST_SPLITS for name in TESTED]
            keep(TensorBoard(folder, config, scores))
        if "wandb" in run.logger and leads():
            keep(Wandb(folder, config))
        yield loggers
        failed = False


def name_of(setting: str, split: str, score: str) -> str:
    return f"test/{setting}/{split}/{score}"


def log_tests(loggers: Sequence[Logger], rows: Sequence[Row], step: int) -> None:
    """Log the scores of a tested run, such as `test/caption/test_ood/f1`, in percent. step: the last of training."""
    scores = {
        name_of(row["test_setting"], row["split"], name): row[column] for row in rows for name, column in TESTED.items()
    }
    for logger in loggers:
        logger.log_tests(scores, step)


class Resume(Callback):
    """Tells the loggers which step training goes on from."""

    def on_train_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoard | Wandb):
                logger.resume(trainer.global_step)
