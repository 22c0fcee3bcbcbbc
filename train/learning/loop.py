"""Training by Lightning: its trainer, checkpoints, loggers and progress bar, and what they need of a run."""

from __future__ import annotations

import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, Timer
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger

from train.config import Run
from train.data.inputs import Inputs
from train.learning.batches import Schedule
from train.learning.module import Learner
from train.results.store import write_curve
from travlr.config import check_choice
from travlr.plugins import import_name
from travlr.settings import as_written

CHECKPOINTS = "checkpoints"  # in the folder of a run; removed when the run is finished
LOG_EVERY = 10  # steps between points of the loss curve


def make_trainer(run: Run, schedule: Schedule, folder: Path, device: str, precision: str) -> L.Trainer:
    """Lightning's trainer for a run. An epoch of it lasts from one validation to the next and ends with a checkpoint.

    folder: of the run. device: cpu or gpu. precision: float32 or bf16.
    """
    quieten()
    own: dict[str, Any] = {
        "devices": 1,
        "strategy": "auto",
        "log_every_n_steps": LOG_EVERY,
        "enable_progress_bar": sys.stderr.isatty(),
        "enable_model_summary": False,
        **run.trainer,
    }
    own["logger"] = [_logger(name, folder) for name in _as_list(own.get("logger"))]
    own["callbacks"] = [
        Curve(folder),
        EarlyEnd(run.training.until, run.details.hold, schedule.check_every),
        Timer(),
        ModelCheckpoint(folder / CHECKPOINTS, filename="last", enable_version_counter=False),
        *(import_name("trainer.callbacks", name)() for name in _as_list(own.get("callbacks"))),
    ]
    if (own["devices"], own.get("num_nodes", 1)) != (1, 1) and own["strategy"] in ("auto", "ddp"):
        own["strategy"] = "ddp_find_unused_parameters_true"  # a batch without auxiliary targets leaves heads unused
    try:
        trainer = L.Trainer(
            accelerator=device,
            precision="bf16-mixed" if precision == "bf16" else "32-true",
            max_steps=schedule.steps,
            max_epochs=-1,
            gradient_clip_val=run.details.clip,
            reload_dataloaders_every_n_epochs=1,
            num_sanity_val_steps=0,
            default_root_dir=folder,
            **own,
        )
    except Exception as error:  # Lightning can raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"trainer={as_written(run.trainer)}: {reason}") from None
    if run.batch_size % trainer.world_size:
        raise ValueError(
            f"trainer={as_written(run.trainer)}: {trainer.world_size} devices must divide "
            f"optimiser.batch_size={run.batch_size}, which they share out"
        )
    return trainer


def _logger(name: str, folder: Path) -> Logger:
    check_choice("trainer.logger", name, LOGGERS)
    return LOGGERS[name](folder)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []


def fit(trainer: L.Trainer, learner: Learner, data: TrainingData) -> float:
    """Train to the last step, from the last checkpoint if there is one. Returns the seconds of training in all."""
    last = Path(trainer.default_root_dir) / CHECKPOINTS / "last.ckpt"
    trainer.fit(learner, data, ckpt_path=last if last.is_file() else None, weights_only=True)
    timer = next(callback for callback in trainer.callbacks if isinstance(callback, Timer))  # type: ignore[attr-defined]
    return float(timer.time_elapsed("train"))


LOGGERS: dict[str, Callable[[Path], Logger]] = {
    "csv": lambda folder: CSVLogger(folder, name="csv", version=""),
    "tensorboard": lambda folder: TensorBoardLogger(folder, name="tensorboard", version=""),
    "wandb": lambda folder: WandbLogger(folder.name, folder, id=folder.name, project="travlr"),
}


@dataclass(frozen=True)
class Batches:
    """`count` batches that are made anew in each iteration."""

    make: Callable[[], Iterator[Inputs]]
    count: int | None = None

    def __iter__(self) -> Iterator[Inputs]:
        return self.make()


class TrainingData(L.LightningDataModule):
    """The batches of a run. With n devices, each trains on every n-th example of a batch."""

    def __init__(self, schedule: Schedule, validation: Callable[[], Iterator[Inputs]]) -> None:
        super().__init__()
        self.schedule, self.validation = schedule, validation

    def train_dataloader(self) -> Batches:
        epoch, count, rank = self._trainer().current_epoch, self._trainer().world_size, self._trainer().global_rank

        def make() -> Iterator[Inputs]:
            batches = self.schedule.between_validations(epoch)
            return batches if count == 1 else (batch.take(slice(rank, None, count)) for batch in batches)

        return Batches(make)

    def val_dataloader(self) -> Batches:
        return Batches(self.validation)

    def _trainer(self) -> L.Trainer:
        assert self.trainer is not None
        return self.trainer


class Curve(Callback):
    """Writes curve.csv, losses and validation scores by step, and prints a line at each validation. A checkpoint holds
    the points before it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.points = folder, list[dict[str, float]]()

    def state_dict(self) -> dict[str, Any]:
        return {"points": self.points}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.points = state["points"]

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step % LOG_EVERY == 0:
            self._add(trainer, _losses(trainer))

    def on_validation_end(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        self._add(trainer, {"validation_f1": float(trainer.callback_metrics["f1"])})
        losses = "  ".join(f"{name} {value:.3f}" for name, value in _losses(trainer).items() if name != "loss")
        learner.print(f"step {trainer.global_step:>6}  {losses}  validation F1 {self.points[-1]['validation_f1']:.2f}")

    def on_fit_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.is_global_zero:
            write_curve(self.folder, self.points)

    def _add(self, trainer: L.Trainer, values: dict[str, float]) -> None:
        self.points.append({"step": trainer.global_step, **values})


class EarlyEnd(Callback):
    """Ends a run whose validation macro-F1 is at least `until`, after the fall of the learning rate.

    until: percent, or None for all steps. hold: of the recipe; the fall takes the same part of a shortened run, or half
    of it with a recipe that does not hold the rate. check_every: steps between validations; a run ends with one.
    """

    def __init__(self, until: float | None, hold: float, check_every: int) -> None:
        self.until, self.hold, self.check_every = until, hold, check_every
        self.steps: int | None = None  # of the shortened run

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]

    def on_train_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        assert isinstance(learner, Learner)
        learner.steps = self.steps or learner.steps
        trainer.should_stop = trainer.global_step >= learner.steps  # interrupted after its last checkpoint

    def on_validation_end(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        assert isinstance(learner, Learner)
        score = float(trainer.callback_metrics["f1"])
        if self.until is not None and self.steps is None and score >= self.until:
            checks = math.ceil(trainer.global_step / max(self.hold, 0.5) / self.check_every)
            self.steps = learner.steps = min(learner.steps, checks * self.check_every)
        trainer.should_stop = trainer.global_step >= learner.steps


def _losses(trainer: L.Trainer) -> dict[str, float]:
    return {name: float(value) for name, value in trainer.callback_metrics.items() if "loss" in name}


def quieten() -> None:
    """Hide Lightning's advice against choices that are deliberate here."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    for message in (
        ".*Checkpoint directory .* exists.*",
        ".*smaller than the logging interval.*",
        ".*`isinstance.treespec.*",
    ):
        warnings.filterwarnings("ignore", message)
