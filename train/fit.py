"""Lightning's loop around a learner: checkpoints, loggers, progress, resuming."""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, TQDMProgressBar
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from train.config import Run
from train.devices import leads
from train.module import Learner
from train.results import write_curve

CHECKPOINTS = "checkpoints"
SEVERAL = "ddp_find_unused_parameters_true"  # heads go unused that a batch asks nothing of
LOSSES = ("answer_loss", "pair_loss", "value_loss", "word_loss", "object_loss", "consistency_loss")
LOGGED = 10  # steps between points of the loss curve


def fit(
    learner: Learner,
    run: Run,
    folder: Path,
    device: str,
    precision: str,
    say: Callable[[str], object],
    monitor: str = "f1",
) -> float:
    """Train to the last step, going on from the last checkpoint where there is one; keep the weights asked for. Gives
    the seconds that went before that checkpoint.

    monitor: the validation metric by which weights are the best.
    """
    quieten()
    checkpoints = Checkpoints(
        folder / CHECKPOINTS, "best", monitor=monitor, mode="max", save_last=True, enable_version_counter=False
    )
    last = folder / CHECKPOINTS / "last.ckpt"
    bar, curve = progress_bar(), Curve(folder)
    trainer = L.Trainer(
        accelerator=device,
        devices=run.devices,
        strategy=SEVERAL if run.devices > 1 and run.strategy in ("auto", "ddp") else run.strategy,
        precision="bf16-mixed" if precision == "bf16" else "32-true",
        max_steps=learner.steps,
        max_epochs=-1,
        accumulate_grad_batches=run.optimiser.accumulate,
        gradient_clip_val=run.optimiser.clip,
        logger=loggers(run, folder),
        callbacks=[checkpoints, curve, *bar],
        enable_progress_bar=sys.stderr.isatty(),
        enable_model_summary=False,
        num_sanity_val_steps=0,
        reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False,
        log_every_n_steps=LOGGED,
        default_root_dir=folder,
    )
    if last.is_file():
        say(f"{folder}: going on from its last checkpoint")
    try:
        trainer.fit(learner, ckpt_path=str(last) if last.is_file() else None, weights_only=True)
    finally:
        if "wandb" in run.logger:
            import wandb

            wandb.finish()  # or the next run of this process would go on in it
    chosen = Path(checkpoints.best_model_path) if run.training.keep == "best" else None
    if chosen is not None and chosen.is_file():
        learner.load_state_dict(torch.load(chosen, weights_only=True, map_location="cpu")["state_dict"])
    return curve.before


def save_weights(learner: Learner, path: Path) -> None:
    """The model and its word heads as safetensors; whole or not at all, and there for every process of the run."""
    if leads():
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in learner.state_dict().items()}
        temporary = path.with_suffix(".tmp")
        save_file(tensors, temporary)
        temporary.replace(path)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()


def load_weights(learner: Learner, path: Path) -> None:
    """Weights of `save_weights`. Raises `ValueError` where they are of another architecture."""
    try:
        learner.load_state_dict(load_file(path))
    except (RuntimeError, SafetensorError) as error:
        raise ValueError(f"{path}: not weights of this model: {str(error).splitlines()[-1].strip()}") from None


class Checkpoints(ModelCheckpoint):
    """Of whole epochs, those that end in a validation. A resumed run comes to the end of its last one once more."""

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.monitor in trainer.callback_metrics:
            super().on_train_epoch_end(trainer, pl_module)


class Curve(Callback):
    """curve.csv: loss and validation scores by step; it is part of the checkpoint, with the seconds it took until then,
    so a resumed run has all of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.points: list[dict[str, float | None]] = []
        self.before, self.began = 0.0, time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        return {"points": self.points, "seconds": self.before + time.monotonic() - self.began}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.points, self.before = state["points"], state.get("seconds", 0.0)

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step % LOGGED == 0:
            found = {name: float(value) for name, value in trainer.callback_metrics.items() if "loss" in name}
            self.points.append({"step": trainer.global_step, **found})

    def on_validation_end(self, trainer: L.Trainer, *_: Any) -> None:
        metrics = trainer.callback_metrics
        found = {f"validation_{name}": float(metrics[name]) for name in ("f1", "word_accuracy") if name in metrics}
        self.points.append({"step": trainer.global_step, **found})
        self.on_train_end(trainer)

    def on_train_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Training may end before the first validation, or after the last."""
        if trainer.is_global_zero:
            write_curve(self.folder, self.points)


def loggers(run: Run, folder: Path) -> list[Any]:
    """TensorBoard and Weights & Biases by name, the latter offline unless WANDB_MODE says otherwise; `Curve` is the CSV
    that is always written."""
    from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger

    made: list[Any] = []
    if "tensorboard" in run.logger:
        made.append(TensorBoardLogger(folder, name="tensorboard", version=""))
    if "wandb" in run.logger and leads():
        import wandb

        begun = wandb.init(
            project="travlr",
            name=folder.name,
            id=folder.name,
            dir=folder,
            resume="allow",
            mode="online" if os.environ.get("WANDB_MODE") == "online" else "offline",
            settings=wandb.Settings(silent=True, console="off"),
        )
        made.append(WandbLogger(experiment=begun))
    return made


def progress_bar() -> list[Callback]:
    if sys.stderr.isatty():
        return [TQDMProgressBar(refresh_rate=5)]
    return [Lines()] if leads() else []


class Lines(Callback):
    """One plain line for each validation, where there is no terminal."""

    def on_validation_end(self, trainer: L.Trainer, *_: Any) -> None:
        found = {k: float(v) for k, v in trainer.callback_metrics.items()}
        told = "  ".join(f"{name} {found[name]:.3f}" for name in LOSSES if name in found)
        scores = {"f1": "F1", "word_accuracy": "words right %"}
        told += "".join(f"  validation {says} {found[name]:.2f}" for name, says in scores.items() if name in found)
        print(f"step {trainer.global_step:>6}  {told}", flush=True)


def quieten() -> None:
    """What Lightning says of our choices is not for users."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    for message in (".*does not have many workers.*", ".*checkpoint directory.*", ".*`isinstance.treespec.*"):
        warnings.filterwarnings("ignore", message)
