"""The Lightning module: losses, optimiser and schedule."""

from __future__ import annotations

import math
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from train.config import Recipe
from train.data.inputs import IGNORED, NAME_TOKENS, PAIR_TOKENS, Encoded, Inputs
from train.learning.threads import encode
from train.models.layers import Model, first_token, initial_std
from travlr.metrics import macro_f1, predictions_of

# Of the losses of nouns and of what the query states: as much as the five words of an object. With a weight of 1,
# quantifiers are learned after 900 steps rather than 500.
WEIGHT = 5
CONFIDENT = 0.95  # FixMatch's. Targets that are guesses teach a model to go on guessing.


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


def used_tokens(batch: Inputs) -> Tensor:
    """(B, L) bool: the first token, and the objects of the query, whose last states the losses use."""
    used = first_token(batch.tokens)
    return used if batch.targets is None else used | (batch.targets != IGNORED)


def without_unseen(logits: Tensor, unseen: Tensor | None) -> Tensor:
    """Logits (…, V) float32, lowest for the words `unseen` (…, U), so that the loss says nothing about them."""
    if unseen is None:
        return logits
    words = logits.shape[-1]
    mask = logits.new_zeros(*logits.shape[:-1], words + 1, dtype=torch.bool)  # one more place, for what pads
    mask.scatter_(-1, unseen.masked_fill(unseen == IGNORED, words), True)
    # Not -inf, whose product with a target of 0 is not a number.
    return logits.masked_fill(mask[..., :words], torch.finfo(logits.dtype).min)


def unseen_values(targets: Tensor, unseen: Tensor | None) -> Tensor | None:
    """(P, U), the unseen words at the P positions of `targets` (B, L), which are values of the pair."""
    if unseen is None:
        return None
    example, position = (targets != IGNORED).nonzero(as_tuple=True)
    return unseen[example, (targets != IGNORED).cumsum(1)[example, position]]  # 1 or 2: the place in `pair`


def confident_cross_entropy(logits: Tensor, target_logits: Tensor) -> Tensor:
    """Cross-entropy of logits (N, V) with the softmax of `target_logits` (N, V) as targets: the mean over rows, with 0
    where no target is above `CONFIDENT`, as in FixMatch (Sohn et al. 2020)."""
    targets = target_logits.softmax(-1)
    losses = functional.cross_entropy(logits, targets, reduction="none")
    return (losses * (targets.amax(-1) > CONFIDENT)).mean()


class Learner(L.LightningModule):
    """A model with its losses: for the answer, the auxiliary targets and consistency, whichever a batch has.

    Dropout is seeded with (seed, epoch) at the start of each epoch, which ends with a checkpoint. So a resumed run ends
    with the same weights as an uninterrupted one, and validations do not affect training.
    """

    def __init__(self, model: Model, recipe: Recipe, rate: float, steps: int, seed: int) -> None:
        super().__init__()
        self.model, self.words = model, WordHead(model.embeddings)
        self.pair, self.query = WordHead(model.embeddings, PAIR_TOKENS - 1), WordHead(model.embeddings)
        self.objects = WordHead(model.embeddings, NAME_TOKENS)
        self.values, self.value, self.nouns = (nn.Linear(model.embeddings.embedding_dim, count) for count in (2, 1, 2))
        self.recipe, self.rate, self.steps, self.seed = recipe, rate, steps, seed
        self._validation_outputs: list[tuple[Tensor, Tensor]] = []

    # Learning -----------------------------------------------------------------------------------------------------

    def on_train_epoch_start(self) -> None:
        torch.manual_seed((self.seed << 20) + self.current_epoch * 1_000 + self.global_rank)

    def training_step(self, batch: Inputs, number: int) -> Tensor:
        losses = self.losses(batch)
        loss = torch.stack(list(losses.values())).sum()
        if not torch.isfinite(loss):
            names = ", ".join(name for name, value in losses.items() if not torch.isfinite(value))
            raise ValueError(
                f"optimiser.learning_rate={self.rate}: {names} is not a finite number at step {self.global_step + 1}; "
                "a lower rate may help"
            )
        rate = self.trainer.lr_scheduler_configs[0].scheduler.get_last_lr()[0]
        self.log_dict({**losses, "learning_rate": rate}, batch_size=len(batch))
        self.log("loss", loss, prog_bar=True, batch_size=len(batch))
        return loss

    def losses(self, batch: Inputs) -> dict[str, Tensor]:
        """The losses by name, one for each kind of target that the batch has."""
        if self.recipe.loss == "distillation" and batch.answer is not None:
            return {"answer_loss": self.model.distillation_loss(batch)}
        encoded = encode(self.model, batch, used_tokens(batch))
        losses = {}
        if batch.answer is not None:
            losses["answer_loss"] = self._answer_loss(self.model.head(encoded.pooled).float(), batch.answer)
        if batch.targets is not None and (batch.targets != IGNORED).any():
            losses["word_loss"] = self._word_loss(encoded, batch.targets, batch.unseen)
        if batch.pair is not None:
            if (batch.pair[:, :-1] != IGNORED).any():  # tasks of one's own may have no words for a pair
                losses["pair_loss"] = self._pair_loss(encoded, batch.pair, batch.unseen)
            losses["query_loss"] = self._query_loss(encoded, batch.pair, batch.unseen)
        if batch.values is not None and batch.targets is not None:
            has_value = ~batch.values.isnan()
            if has_value.any():  # pairs of words have none
                losses["value_loss"] = self._value_loss(encoded, batch.targets, batch.values, has_value)
        if batch.objects is not None and (batch.objects != IGNORED).any():
            losses["object_loss"] = self._object_loss(encoded, batch.objects)
        if batch.nouns is not None and (has_noun := ~batch.nouns.isnan()).any():
            losses["noun_loss"] = self._noun_loss(encoded, batch.nouns, has_noun)
        if batch.sides is not None:
            losses["consistency_loss"] = self._consistency_loss(*batch.sides)
        return losses

    def _answer_loss(self, logits: Tensor, answer: Tensor) -> Tensor:
        if self.recipe.loss == "cross_entropy":
            return functional.cross_entropy(logits, answer)
        truth = functional.one_hot(answer, 2).to(logits.dtype)  # the mean over classes times their number
        return 2 * functional.binary_cross_entropy_with_logits(logits, truth)

    def _word_loss(self, encoded: Encoded, targets: Tensor, unseen: Tensor | None) -> Tensor:
        logits = self.words(encoded.text[targets != IGNORED], self.model.embeddings).float()
        return functional.cross_entropy(
            without_unseen(logits, unseen_values(targets, unseen)), targets[targets != IGNORED]
        )

    def _pair_loss(self, encoded: Encoded, pair: Tensor, unseen: Tensor | None) -> Tensor:
        """Of the pair, as the first token predicts it."""
        return functional.cross_entropy(self._pair_logits(encoded, unseen).flatten(0, 1), pair[:, :-1].flatten())

    def _pair_logits(self, encoded: Encoded, unseen: Tensor | None) -> Tensor:
        """(B, 3, V)"""
        logits = self.pair(encoded.text[:, 0], self.model.embeddings).float()
        return without_unseen(logits, None if unseen is None else unseen[:, :-1])

    def _query_loss(self, encoded: Encoded, pair: Tensor, unseen: Tensor | None) -> Tensor:
        """Of the word of the query, as the first token predicts it after half of the layers."""
        logits = self.query(encoded.middle[:, 0], self.model.embeddings).float()
        logits = without_unseen(logits, None if unseen is None else unseen[:, -1])
        return WEIGHT * functional.cross_entropy(logits, pair[:, -1])

    def _value_loss(self, encoded: Encoded, targets: Tensor, values: Tensor, has_value: Tensor) -> Tensor:
        """Of the pair's values, as the first token and as the objects of the query predict them."""
        example, position = (targets != IGNORED).nonzero(as_tuple=True)
        place = (targets != IGNORED).cumsum(1)[example, position] - 1  # of the object in the query
        has_target = has_value[example, place]
        query_states = self.value(encoded.text[example[has_target], position[has_target]]).squeeze(-1)
        predictions = torch.cat([self.values(encoded.text[:, 0])[has_value], query_states]).float()
        targets_of_both = torch.cat([values[has_value], values[example, place][has_target]])
        return 2 * functional.smooth_l1_loss(predictions, targets_of_both)

    def _object_loss(self, encoded: Encoded, objects: Tensor) -> Tensor:
        """Mean over objects of the sum over their words."""
        positions = (objects != IGNORED).any(-1)
        logits = self.objects(encoded.middle[:, : objects.shape[1]][positions], self.model.embeddings).float()
        loss = functional.cross_entropy(logits.flatten(0, 1), objects[positions].flatten(), reduction="sum")
        return loss / positions.sum()

    def _noun_loss(self, encoded: Encoded, nouns: Tensor, has_noun: Tensor) -> Tensor:
        logits = self.nouns(encoded.middle[:, : nouns.shape[1]][has_noun.any(-1)]).float()
        has_noun, nouns = has_noun[has_noun.any(-1)], nouns[has_noun.any(-1)]
        return WEIGHT * functional.binary_cross_entropy_with_logits(logits[has_noun], nouns[has_noun])

    def _consistency_loss(self, own: Inputs, other: Inputs) -> Tensor:
        """The loss of the predictions for one side of unlabelled pairs, with those for the other side as targets
        (`train.learning.consistency`). own: the side of the training setting."""
        self.model.eval()
        with torch.no_grad():
            targets = self._predictions(encode(self.model, own, used_tokens(own)), own)
        self.model.train()
        encoded = encode(self.model, other, used_tokens(other))
        *logits, values = self._predictions(encoded, other)
        *target_logits, target_values = targets
        losses = [confident_cross_entropy(*pair) for pair in zip(logits, target_logits, strict=True)]
        losses.append(functional.smooth_l1_loss(values, target_values))
        if other.objects is not None:
            losses.append(self._object_loss(encoded, other.objects))
        if other.pair is not None:
            losses.append(self._query_loss(encoded, other.pair, other.unseen))
        return torch.stack(losses).sum()

    def _predictions(self, encoded: Encoded, inputs: Inputs) -> tuple[Tensor, ...]:
        """Logits of the answer (B, 2), of the pair (3 B, V), of the words at the P positions of `targets` (P, V), and
        values (2 B + P)."""
        targets, unseen = inputs.targets, inputs.unseen
        assert targets is not None
        embeddings, first = self.model.embeddings, encoded.text[:, 0]
        query_states = encoded.text[targets != IGNORED]
        words = without_unseen(self.words(query_states, embeddings).float(), unseen_values(targets, unseen))
        values = torch.cat([self.values(first).flatten(), self.value(query_states).flatten()])
        pair = self._pair_logits(encoded, unseen).flatten(0, 1)
        return self.model.head(encoded.pooled).float(), pair, words, values.float()

    def configure_optimizers(self) -> Any:
        decayed = [p for p in self.parameters() if p.requires_grad and p.ndim > 1]
        not_decayed = [p for p in self.parameters() if p.requires_grad and p.ndim <= 1]
        groups = [
            {"params": decayed, "weight_decay": self.recipe.weight_decay},
            {"params": not_decayed, "weight_decay": 0.0},
        ]
        first, second = self.recipe.betas
        optimiser = torch.optim.AdamW(groups, lr=self.rate, betas=(first, second))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, self.factor)
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def factor(self, step: int) -> float:
        """The factor of the learning rate at a step."""
        rise = max(1, round(self.recipe.warmup * self.steps))
        if step < rise:
            return (step + 1) / rise
        start = max(rise, round(self.recipe.hold * self.steps))  # of the fall
        progress = min(1.0, max(0, step - start) / max(1, self.steps - start))
        fall = 1 - progress if self.recipe.decay == "linear" else 0.5 * (1 + math.cos(math.pi * progress))
        final = self.recipe.final_rate / self.rate
        return final + (1 - final) * fall

    # Validation ---------------------------------------------------------------------------------------------------

    def validation_step(self, batch: Inputs, number: int) -> None:
        assert batch.answer is not None
        encoded = encode(self.model, batch.without_labels(), first_token(batch.tokens))
        logits = self.model.head(encoded.pooled).float()
        self._validation_outputs.append(((logits[:, 1] - logits[:, 0]).cpu(), batch.answer.cpu()))

    def on_validation_epoch_end(self) -> None:
        logits, answers = (torch.cat(parts).numpy() for parts in zip(*self._validation_outputs, strict=True))
        self._validation_outputs.clear()
        answers, given = answers.astype(bool), predictions_of(logits)
        self.log("f1", macro_f1(answers, given), prog_bar=True, batch_size=len(answers), sync_dist=True)
        self.log("accuracy", 100 * float(np.mean(answers == given)), batch_size=len(answers), sync_dist=True)
