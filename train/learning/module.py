"""The Lightning module: losses, optimiser and schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, NamedTuple

import lightning as L
import torch
from torch import Tensor, nn
from torch.nn import functional

from train.config import Optimiser
from train.data.inputs import IGNORED, NAME_TOKENS, PAIR_TOKENS, Encoded, Inputs
from train.models.layers import Model, initial_std
from train.results.scores import score


class Schedule(NamedTuple):
    """Training batches and numbers of steps.

    epoch: from the number of an epoch to its batches, always the same. batches: number of batches in an epoch. steps:
    optimiser steps in all. check_every: steps between validations.
    """

    epoch: Callable[[int], Iterable[Inputs]]
    batches: int
    steps: int
    check_every: int


@dataclass(frozen=True)
class Loader:
    """An iterable that makes its batches anew in each iteration."""

    make: Callable[[], Iterable[Inputs]]

    def __iter__(self) -> Iterator[Inputs]:
        return iter(self.make())


@dataclass(frozen=True)
class TrainingLoader(Loader):
    """batches: number of all training batches; a resumed run iterates over the remaining ones."""

    batches: int

    def __len__(self) -> int:
        return self.batches


class WordHead(nn.Module):
    """BERT's masked-word head for one or more words: states (…, H) to logits (…, V), or (…, words, V) for several. The
    last layer shares the weights of the word embeddings."""

    def __init__(self, embeddings: nn.Embedding, words: int = 1) -> None:
        super().__init__()
        self.words, width = words, embeddings.embedding_dim
        self.first = nn.Linear(width, words * width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(embeddings.num_embeddings))
        nn.init.normal_(self.first.weight, std=initial_std(width))
        nn.init.zeros_(self.first.bias)

    def forward(self, states: Tensor, embeddings: nn.Embedding) -> Tensor:
        inner = functional.gelu(self.first(states))
        if self.words > 1:
            inner = inner.reshape(*states.shape[:-1], self.words, -1)
        return functional.linear(self.norm(inner), embeddings.weight, self.bias)


class Learner(L.LightningModule):
    """A model with its losses: for the answer, the auxiliary targets and consistency, whichever a batch has.

    The batches are those of epoch 0, 1, … in order. Dropout is seeded with (seed, epoch) at the start of each epoch,
    and a checkpoint holds the state of the generator. So a resumed run ends with the same weights as an uninterrupted
    one, and validations do not affect training.
    """

    def __init__(
        self,
        model: Model,
        optimiser: Optimiser,
        rate: float,
        schedule: Schedule,
        validation: Callable[[], Iterable[Inputs]],
        seed: int,
        loss: str = "cross_entropy",
    ) -> None:
        super().__init__()
        self.model, self.words = model, WordHead(model.embeddings)
        self.pair, self.objects = WordHead(model.embeddings, PAIR_TOKENS), WordHead(model.embeddings, NAME_TOKENS)
        self.values, self.value = (nn.Linear(model.embeddings.embedding_dim, count) for count in (2, 1))
        self.settings, self.rate, self.steps, self.seed = optimiser, rate, schedule.steps, seed
        self.schedule, self.validation, self.loss_name = schedule, validation, loss
        self._validation_outputs: list[tuple[Tensor, Tensor]] = []
        self._random: dict[str, Tensor] | None = None  # from a checkpoint, until training resumes

    # Data ---------------------------------------------------------------------------------------------------------

    def train_dataloader(self) -> Loader:
        batches = self.steps * self.settings.accumulate

        def remaining() -> Iterator[Inputs]:
            start = self.trainer.global_step * self.settings.accumulate  # checkpoints are saved after whole steps
            return map(self._part, islice(self._from(start), batches - start))

        return TrainingLoader(remaining, batches)

    def _from(self, number: int) -> Iterator[Inputs]:
        """The batches from batch `number` on, without end."""
        first, place = divmod(number, self.schedule.batches)
        for epoch in count(first):
            yield from islice(self.schedule.epoch(epoch), place, self.schedule.batches)
            place = 0

    def _part(self, batch: Inputs) -> Inputs:
        """The part of a batch that this process trains on: with n processes, every n-th example."""
        if (count := self.trainer.world_size) == 1:
            return batch
        return batch.every(count, self.global_rank)

    def val_dataloader(self) -> Loader:
        return Loader(self.validation)

    def transfer_batch_to_device(self, batch: Inputs, device: torch.device, dataloader_idx: int) -> Inputs:
        return batch.to(device)

    # Learning -----------------------------------------------------------------------------------------------------

    def on_train_batch_start(self, batch: Inputs, number: int) -> None:
        epoch, place = divmod(number, self.schedule.batches)
        if place == 0:
            torch.manual_seed((self.seed << 20) + epoch * 1_000 + self.global_rank)
        elif self._random is not None:
            torch.set_rng_state(self._random["cpu"])
            if "cuda" in self._random:
                torch.cuda.set_rng_state(self._random["cuda"], self.device)
        self._random = None

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the states of the random number generators of every process."""
        state = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self.device)
        states: list[Any] = [state] * self.trainer.world_size
        if self.trainer.world_size > 1:
            torch.distributed.all_gather_object(states, state)
        checkpoint["random"] = states

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        states = checkpoint["random"]
        self._random = states[self.global_rank] if len(states) == self.trainer.world_size else None

    def training_step(self, batch: Inputs, number: int) -> Tensor:
        losses = self.losses(batch)
        loss = torch.stack(list(losses.values())).sum()
        mean = self.trainer.strategy.reduce(loss.detach())  # over processes: not finite if one loss is not
        if not torch.isfinite(mean):
            names = [name for name, value in losses.items() if not torch.isfinite(value)] or [
                "a loss of another process"
            ]
            raise ValueError(
                f"optimiser.learning_rate={self.rate}: not a finite number at step {self.global_step + 1}: "
                f"{', '.join(names)}; a lower rate or a larger optimiser.warmup may help"
            )
        rate = self.trainer.lr_scheduler_configs[0].scheduler.get_last_lr()[0]
        # Lightning takes "step" for the step of the point; its own count is one less than that of `CurveWriter`
        metrics = {**losses, "learning_rate": rate, "step": self.global_step + 1.0}
        self.log_dict(metrics, batch_size=len(batch))
        self.log("loss", loss, prog_bar=True, batch_size=len(batch))
        return loss

    def losses(self, batch: Inputs) -> dict[str, Tensor]:
        """The losses by name, one for each kind of target that the batch has."""
        if self.loss_name == "distillation" and batch.answer is not None:
            return {"answer_loss": self.model.distillation_loss(batch)}
        encoded = self.model.encode(batch, image_states=False)
        losses = {}
        if batch.answer is not None:
            losses["answer_loss"] = self._answer_loss(self.model.head(encoded.pooled).float(), batch.answer)
        if batch.targets is not None and (batch.targets != IGNORED).any():
            losses["word_loss"] = self._word_loss(encoded, batch.targets)
        if batch.pair is not None and (batch.pair != IGNORED).any():
            logits = self.pair(encoded.text[:, 0], self.model.embeddings).float()
            losses["pair_loss"] = functional.cross_entropy(logits.flatten(0, 1), batch.pair.flatten())
        if batch.values is not None and batch.targets is not None:
            has_value = ~batch.values.isnan()
            if has_value.any():  # pairs of words have none
                losses["value_loss"] = self._value_loss(encoded, batch.targets, batch.values, has_value)
        if batch.objects is not None and (batch.objects != IGNORED).any():
            losses["object_loss"] = self._object_loss(encoded, batch.objects)
        if batch.sides is not None:
            losses["consistency_loss"] = self._consistency_loss(*batch.sides)
        return losses

    def _answer_loss(self, logits: Tensor, answer: Tensor) -> Tensor:
        if self.loss_name == "cross_entropy":
            return functional.cross_entropy(logits, answer)
        truth = functional.one_hot(answer, 2).to(logits.dtype)  # the mean over classes times their number
        return 2 * functional.binary_cross_entropy_with_logits(logits, truth)

    def _word_loss(self, encoded: Encoded, targets: Tensor) -> Tensor:
        positions = targets != IGNORED
        logits = self.words(encoded.text[positions], self.model.embeddings).float()
        return functional.cross_entropy(logits, targets[positions])

    def _value_loss(self, encoded: Encoded, targets: Tensor, values: Tensor, has_value: Tensor) -> Tensor:
        """Of the pair's values, as the first token and as the objects of the query predict them."""
        example, position = (targets != IGNORED).nonzero(as_tuple=True)
        place = (targets != IGNORED).cumsum(1)[example, position] - 1  # of the object in the query
        known = has_value[example, place]
        query_states = self.value(encoded.text[example[known], position[known]]).squeeze(-1)
        predictions = torch.cat([self.values(encoded.text[:, 0])[has_value], query_states]).float()
        targets_of_both = torch.cat([values[has_value], values[example, place][known]])
        return 2 * functional.smooth_l1_loss(predictions, targets_of_both)

    def _object_loss(self, encoded: Encoded, objects: Tensor) -> Tensor:
        positions = (objects != IGNORED).any(-1)
        logits = self.objects(encoded.text[positions], self.model.embeddings).float()
        return functional.cross_entropy(logits.flatten(0, 1), objects[positions].flatten())

    def _consistency_loss(self, own: Inputs, other: Inputs) -> Tensor:
        """The loss of the predictions for one side of unlabelled pairs, with those for the other side as targets
        (`train.learning.consistency`). own: the side of the training setting."""
        self.model.eval()
        with torch.no_grad():
            targets = self._predictions(self.model.encode(own, image_states=False), own.targets)
        self.model.train()
        encoded = self.model.encode(other, image_states=False)
        *logits, values = self._predictions(encoded, other.targets)
        *target_logits, target_values = targets
        losses = [functional.cross_entropy(p, t.softmax(-1)) for p, t in zip(logits, target_logits, strict=True)]
        losses.append(functional.smooth_l1_loss(values, target_values))
        if other.objects is not None:
            losses.append(self._object_loss(encoded, other.objects))
        return torch.stack(losses).sum()

    def _predictions(self, encoded: Encoded, targets: Tensor | None) -> tuple[Tensor, ...]:
        """Logits of the answer (B, 2), of the pair (4 B, V), of the words at the P positions of `targets` (P, V), and
        values (2 B + P)."""
        assert targets is not None
        embeddings, first = self.model.embeddings, encoded.text[:, 0]
        query_states = encoded.text[targets != IGNORED]
        pair = self.pair(first, embeddings).flatten(0, 1)
        values = torch.cat([self.values(first).flatten(), self.value(query_states).flatten()])
        predictions = (self.model.head(encoded.pooled), pair, self.words(query_states, embeddings), values)
        return tuple(tensor.float() for tensor in predictions)

    def configure_optimizers(self) -> Any:
        decayed = [p for p in self.parameters() if p.requires_grad and p.ndim > 1]
        not_decayed = [p for p in self.parameters() if p.requires_grad and p.ndim <= 1]
        groups = [
            {"params": decayed, "weight_decay": self.settings.weight_decay},
            {"params": not_decayed, "weight_decay": 0.0},
        ]
        first, second = self.settings.betas
        optimiser = torch.optim.AdamW(groups, lr=self.rate, betas=(first, second), fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, self.factor)
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(self, optimizer: Any, gradient_clip_val: Any = None, *_: Any, **__: Any) -> None:
        """Clip also for fused optimisers. Lightning refuses this because of gradient scalers, which are not in use."""
        if gradient_clip_val is not None:
            nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)

    def factor(self, step: int) -> float:
        """The factor of the learning rate at a step."""
        rise = max(1, round(self.settings.warmup * self.steps))
        if step < rise:
            return (step + 1) / rise
        progress = min(1.0, (step - rise) / max(1, self.steps - rise))
        if self.settings.decay == "constant":
            return 1.0
        fall = 1 - progress if self.settings.decay == "linear" else 0.5 * (1 + math.cos(math.pi * progress))
        final = self.settings.final_rate / self.rate
        return final + (1 - final) * fall

    # Validation ---------------------------------------------------------------------------------------------------

    def validation_step(self, batch: Inputs, number: int) -> None:
        assert batch.answer is not None
        encoded = self.model.encode(batch.without_labels(), image_states=False)
        logits = self.model.head(encoded.pooled).float()
        self._validation_outputs.append(((logits[:, 1] - logits[:, 0]).cpu(), batch.answer.cpu()))

    def on_validation_epoch_end(self) -> None:
        self.log("step", float(self.global_step), sync_dist=True)
        logits, answers = (torch.cat(parts).numpy() for parts in zip(*self._validation_outputs, strict=True))
        self._validation_outputs.clear()
        scores = score(answers.astype(bool), logits)
        self.log("f1", scores.macro_f1, prog_bar=True, batch_size=len(answers), sync_dist=True)
        self.log("accuracy", scores.accuracy, batch_size=len(answers), sync_dist=True)
