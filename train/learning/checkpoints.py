"""Checkpoints: the state from which a killed run resumes, and the weights of a finished one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import Callback
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from train.learning.devices import is_main_process
from train.learning.module import Learner
from travlr.files import replacing

FOLDER = "checkpoints"  # in the folder of a run; removed when the run is finished
LAST = "last.ckpt"
WEIGHTS = "model.safetensors"  # in the folder of a finished run


def save_weights(learner: Learner, path: Path) -> None:
    """Write the model and its heads as safetensors. Every process of the run waits until the file is complete."""
    if is_main_process():
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in learner.state_dict().items()}
        with replacing(path) as temporary:
            save_file(tensors, temporary)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()


def load_weights(learner: Learner, path: Path) -> None:
    """Load weights of `save_weights`. Raises `ValueError` if they are of another architecture."""
    try:
        learner.load_state_dict(load_file(path))
    except (RuntimeError, SafetensorError) as error:
        raise ValueError(f"{path}: not weights of this model: {str(error).splitlines()[-1].strip()}") from None


class Checkpoints(Callback):
    """Saves the state of a run at every validation, and every `minutes` between validations."""

    def __init__(self, folder: Path, minutes: float, check_every: int) -> None:
        self.folder, self.minutes, self.check_every = folder, minutes, check_every
        self.save_time = time.monotonic()

    def on_train_batch_end(self, trainer: L.Trainer, learner: L.LightningModule, _: Any, __: Any, number: int) -> None:
        accumulating = (number + 1) % trainer.accumulate_grad_batches != 0
        if accumulating or trainer.global_step % self.check_every == 0:  # the validation that follows saves
            return
        if trainer.strategy.broadcast(time.monotonic() - self.save_time >= 60 * self.minutes):
            self._save(trainer)

    def on_validation_end(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        self._save(trainer)

    def _save(self, trainer: L.Trainer) -> None:
        trainer.save_checkpoint(self.folder / LAST)
        self.save_time = time.monotonic()


class CheckpointFiles(TorchCheckpointIO):
    """Writes checkpoints atomically, without pickled objects. (Lightning writes them to another disk and copies them.)

    Reading raises `ValueError` for a damaged checkpoint, or one whose weights do not fit `learner`.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        path = Path(path)
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as temporary:
            torch.save(checkpoint, temporary)

    def load_checkpoint(self, path: str | Path, *_: Any, **__: Any) -> dict[str, Any]:
        try:
            checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            fits = _shapes(checkpoint["state_dict"]) == _shapes(self.learner.state_dict()) and "random" in checkpoint
        except OSError:
            raise
        except Exception:  # the type depends on where the file is damaged
            raise ValueError(f"{path}: damaged; delete this file, and the run starts again") from None
        if not fits:
            raise ValueError(f"{path}: of another version of TraVLR; delete this file, and the run starts again")
        return checkpoint


def _shapes(weights: dict[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in weights.items()}
