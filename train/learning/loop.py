"""The training loop: a Lightning trainer with our checkpoints, progress and resuming."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, TQDMProgressBar
from lightning.pytorch.loggers import Logger

from train.config import Run
from train.learning.checkpoints import FOLDER, LAST, CheckpointFiles, Checkpoints
from train.learning.devices import is_main_process
from train.learning.module import Learner
from train.results.store import write_curve
from travlr.cli import Log

MULTI_DEVICE = "ddp_find_unused_parameters_true"  # a batch without auxiliary targets leaves heads unused
LOSSES = ("answer_loss", "pair_loss", "value_loss", "word_loss", "object_loss", "consistency_loss")
LOG_EVERY = 10  # steps between points of the loss curve


def fit(
    learner: Learner,
    run: Run,
    folder: Path,
    device: str,
    precision: str,
    log: Log,
    loggers: Sequence[Logger] = (),
) -> float:
    """Train to the last step, from the last checkpoint if there is one, and leave the last weights in the model.
    Returns the training time before that checkpoint, in seconds.

    loggers: receive losses, learning rate and validation scores; curve.csv is always written.
    """
    silence_warnings()
    place, check_every = folder / FOLDER, learner.schedule.check_every
    curve = CurveWriter(folder)
    trainer = L.Trainer(
        accelerator=device,
        devices=run.devices,
        strategy=MULTI_DEVICE if run.devices > 1 and run.strategy in ("auto", "ddp") else run.strategy,
        precision="bf16-mixed" if precision == "bf16" else "32-true",
        max_steps=learner.steps,
        max_epochs=-1,
        check_val_every_n_epoch=None,  # validations count batches
        val_check_interval=check_every * run.optimiser.accumulate,
        accumulate_grad_batches=run.optimiser.accumulate,
        gradient_clip_val=run.optimiser.clip,
        logger=loggers,
        callbacks=[
            curve,
            TQDMProgressBar(refresh_rate=5) if sys.stderr.isatty() else PlainProgress(),
            Checkpoints(place, run.save_minutes, check_every),
        ],
        plugins=[CheckpointFiles(learner)],
        enable_checkpointing=False,  # Lightning's own
        enable_progress_bar=sys.stderr.isatty(),
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        log_every_n_steps=LOG_EVERY,
        default_root_dir=folder,
    )
    last = place / LAST
    if last.is_file():
        log(f"{folder}: resuming from its last checkpoint")
    trainer.fit(learner, ckpt_path=str(last) if last.is_file() else None, weights_only=True)
    curve.write()
    return curve.seconds_before


class CurveWriter(Callback):
    """Writes curve.csv: losses and validation scores by step. A checkpoint contains its points and the training time,
    so a resumed run has the whole curve."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.points: list[dict[str, float | None]] = []
        self.seconds_before, self.start = 0.0, time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        return {"points": self.points, "seconds": self.seconds_before + time.monotonic() - self.start}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.points, self.seconds_before = state["points"], state.get("seconds", 0.0)

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step % LOG_EVERY == 0:
            losses = {name: float(value) for name, value in trainer.callback_metrics.items() if "loss" in name}
            self.points.append({"step": trainer.global_step, **losses})

    def on_validation_end(self, trainer: L.Trainer, *_: Any) -> None:
        metrics = trainer.callback_metrics
        self.points.append({"step": trainer.global_step, "validation_f1": float(metrics["f1"])})
        self.write()

    def write(self) -> None:
        if is_main_process():
            write_curve(self.folder, self.points)


class PlainProgress(Callback):
    """Prints one line for each validation, if standard error is no terminal."""

    def on_validation_end(self, trainer: L.Trainer, *_: Any) -> None:
        if not is_main_process():
            return
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        losses = "  ".join(f"{name} {metrics[name]:.3f}" for name in LOSSES if name in metrics)
        print(f"step {trainer.global_step:>6}  {losses}  validation F1 {metrics['f1']:.2f}", flush=True)


def silence_warnings() -> None:
    """Hide Lightning's advice against choices that are deliberate here."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    for message in (
        ".*does not have many workers.*",
        ".*your dataloader is not resumable.*",  # `Learner` skips the batches that are done
        ".*smaller than the logging interval.*",
        ".*`isinstance.treespec.*",
    ):
        warnings.filterwarnings("ignore", message)
