"""The settings of a run: what they are called, their defaults, limits and help; and what recipes fix beside them.

conf/ holds only what experiments and scales change.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field, model_validator

from travlr.plugins import import_name, is_import
from travlr.settings import PathText, Settings
from travlr.tasks import TASKS, check_name


@dataclass(frozen=True)
class Architecture:
    """What a model takes and offers. `train.models` has the classes.

    sees: the visual input, beside text: `regions`, `pixels` or `nothing`. takes_boxes: whether the boxes of regions are
    part of the input; if not, the features of rendered regions hold their places. teacher: whether the
    model has a momentum teacher, for the loss `distillation`. separate_vision: whether `Model.encode_vision` gives
    the states of pictures alone, so that each picture is encoded once for all texts. first_position: the position of
    the first token. controlled: whether the model has the variant of section 5.1. batch_size, learning_rate: the
    paper's (Table 5).
    """

    sees: str
    takes_boxes: bool = False
    teacher: bool = False
    separate_vision: bool = False
    first_position: int = 0
    controlled: bool = False
    batch_size: int = 32
    learning_rate: float = 2e-5

    def __post_init__(self) -> None:
        if self.sees not in ("regions", "pixels", "nothing"):
            raise ValueError(f"sees={self.sees}: choose one of regions, pixels, nothing")


ARCHITECTURES = {
    "visualbert": Architecture("regions", controlled=True, batch_size=64),
    "uniter": Architecture("regions", takes_boxes=True, controlled=True, learning_rate=5e-6),
    "lxmert": Architecture("regions", takes_boxes=True, controlled=True, learning_rate=5e-6),
    "albef": Architecture("pixels", teacher=True, separate_vision=True, batch_size=256),
    # The paper does not give the text-only models' batch size and rate; these are BERT's own.
    "bert": Architecture("nothing"),
    "roberta": Architecture("nothing", first_position=2),
}
LXMERT_SPATIALITY = 5e-5  # Table 5: LXMERT needs a larger learning rate for spatiality only
CONTROLLED = (32, 5e-6)  # batch size and learning rate of the controlled architectures

PREPROCESSOR = "preprocessor_config.json"  # says how a checkpoint's pixels are normalised
# Files beside a checkpoint's weights that are read with it.
CHECKPOINT_FILES = (
    PREPROCESSOR,
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
)
SETTINGS = ("image", "caption", "image+caption", "mixed")
MAX_SEED = (1 << 43) - 1  # seeds of dropout are made from it, and torch takes no larger ones
VALIDATION = 2000  # examples in each validation, or the whole split


@dataclass(frozen=True)
class Recipe:
    """What is fixed about the training of a model.

    warmup: part of all steps in which the learning rate rises from 0. hold: part of all steps, warmup included, before
    it falls. decay: how it falls: linear or cosine. final_rate: learning rate at the end. clip: largest norm of the
    gradient. loss: cross_entropy, binary (the published fine-tuning code's) or distillation (with ALBEF's teacher).
    positions: how position embeddings and the first heads start if nothing is pretrained: sinusoidal
    (`train.models.positions`), or random as in BERT.
    """

    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    warmup: float = 0.1
    hold: float = 0.0
    decay: str = "linear"
    final_rate: float = 0.0
    clip: float | None = 1.0
    loss: str = "cross_entropy"
    positions: str = "sinusoidal"


DEFAULT = Recipe(hold=0.7)
# BERT's own. The paper does not give that of its text-only models.
BERT = Recipe(betas=(0.9, 0.999), positions="random")
# Transformers-VQA. Its AdamW has no correction of the first steps' bias and decays biases too: not repeated here.
TRANSFORMERS_VQA = replace(BERT, clip=5.0, loss="binary")
# Visual entailment. Its first epoch of 80 has half the rate: here that epoch warms up. It also flips and crops
# pictures, which makes left, right and counts wrong: not here.
ENTAILMENT = replace(
    BERT, weight_decay=0.02, warmup=0.0125, decay="cosine", final_rate=1e-6, clip=None, loss="distillation"
)
PAPER_RECIPES = {
    "visualbert": TRANSFORMERS_VQA, "uniter": TRANSFORMERS_VQA, "lxmert": TRANSFORMERS_VQA, "albef": ENTAILMENT,
    "bert": BERT, "roberta": BERT,
}  # fmt: skip


@functools.cache
def architecture_of(model: str) -> Architecture:
    """The architecture of one of `ARCHITECTURES`, or of the class that `package.module:Class` names.

    Raises `ValueError` if there is no such model, or if the class has no `architecture`.
    """
    if model in ARCHITECTURES:
        return ARCHITECTURES[model]
    if not is_import(model):
        raise ValueError(
            f"model={model}: choose one of {', '.join(ARCHITECTURES)}, your own as package.module:Class, or the folder "
            "or hub id (OWNER/NAME) of a chat model"
        )
    architecture = getattr(import_name("model", model), "architecture", None)
    if not isinstance(architecture, Architecture):
        raise ValueError(f"model={model}: needs a class attribute `architecture`, an Architecture of train.config")
    return architecture


class RegionSettings(Settings):
    """The source of the regions of a picture, and their number."""

    source: PathText = Field(
        "scene",
        description="scene (the boxes of the objects), grid (every cell), or a folder of UNITER's .npz (features made "
        "elsewhere)",
    )
    number: Literal["exact"] | Annotated[int, Field(ge=1, le=1 << 16)] = Field(
        "exact",
        description="exact: all objects, or all regions of a file; a number pads with empty cells (scene) or takes the "
        "first so many (files)",
    )

    @property
    def kind(self) -> str:
        """Where regions come from: scene, grid or file."""
        return self.source if self.source in ("scene", "grid") else "file"


class Optimiser(Settings):
    """AdamW; a recipe has what is not here."""

    batch_size: int | None = Field(64, ge=1, le=1 << 16, description="null for the paper's (Table 5)")
    learning_rate: float | None = Field(6e-4, gt=0, description="null for the paper's (Table 5)")


class Training(Settings):
    """How long a run trains, and on what."""

    steps: int | None = Field(2000, ge=1, description="optimiser steps; null where epochs is given")
    epochs: int | None = Field(None, ge=1, description="passes over the examples of the train split")
    examples: int | float | None = Field(
        None,
        gt=0,
        description="null: new examples of the same distribution, never repeated; else how much of the train split: a "
        "part up to 1, or a number of examples above 1",
    )
    unlabelled: int | None = Field(
        None,
        ge=2,
        description="of method=consistency: number of different unlabelled pairs; null: new ones in every step",
    )
    check_every: int | None = Field(125, ge=1, description="steps between validations, null for an epoch")
    until: float | None = Field(
        95.0,
        gt=50,
        le=100,
        description="end early: validation macro-F1 from which the learning rate falls to 0; null for all steps",
    )
    auxiliary_targets: bool = Field(
        True, description="also learn the intermediate steps of an answer (train/data/auxiliary.py)"
    )

    @model_validator(mode="after")
    def _fits(self) -> Training:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("training: give one of training.steps and training.epochs, and null for the other")
        if self.examples is not None and self.examples > 1 and self.examples != int(self.examples):
            raise ValueError(f"training.examples={self.examples}: must be a part up to 1, or a whole number above")
        if self.streams and self.epochs is not None:
            raise ValueError(f"training.epochs={self.epochs}: needs training.examples; new examples have no epochs")
        return self

    @property
    def streams(self) -> bool:
        """Whether each training example is new."""
        return self.examples is None


OTHER = {"image": "caption", "caption": "image"}  # the other modality


class AnyRun(Settings):
    """The settings that training of our models and of chat models (`train.chat`) share."""

    model: str = Field(
        "uniter",
        description=f"{', '.join(ARCHITECTURES)}, or your own as package.module:Class (docs/adding-a-model.md); or the "
        "folder or hub id (OWNER/NAME) of a chat model",
    )
    setting: Literal["image", "caption", "image+caption", "mixed"] = Field(
        "caption", description="what it is trained on: image, caption, image+caption or mixed (modal dropout)"
    )
    task: Annotated[str, AfterValidator(check_name)] = Field(
        "cardinality", description=f"{', '.join(TASKS)}, or your own as package.module:Class"
    )
    data: PathText | None = Field(
        None, description="folder of a dataset; null for data/TASK, which is generated if it is missing"
    )
    seed: int = Field(0, ge=0, le=MAX_SEED)
    runs: PathText = Field("runs", description="folder with a folder for each run")
    device: Literal["auto", "cpu", "gpu"] = Field("auto", description="auto, cpu or gpu")
    precision: Literal["float32", "bf16", "auto"] = Field(
        "auto", description="float32, bf16, or auto: bf16 where the device computes faster in it"
    )
    trainer: dict[str, Any] = Field(
        {},
        description="arguments of Lightning's Trainer, such as trainer.devices=4, trainer.strategy=ddp, "
        "trainer.accumulate_grad_batches=2, trainer.logger=wandb, trainer.profiler=simple (docs/training.md); of chat "
        "models those of TRL's SFTConfig or GRPOConfig, such as trainer.gradient_checkpointing=true",
    )


class Run(AnyRun):
    """The settings of one training run of our models: model, data, training and device."""

    size: Literal["tiny", "small", "base"] = Field("small", description="tiny, small or base (as published)")
    pretrained: PathText | None = Field(
        None, description="published weights: a file, folder or hub name; null for random weights"
    )
    start: PathText | None = Field(
        None, description="folder of a finished run whose weights are fine-tuned further, or a pattern that one fits"
    )
    controlled: bool = Field(
        False, description="the controlled architectures of section 5.1 (visualbert, uniter, lxmert)"
    )
    method: Literal["supervised", "consistency", "mismatched", "frozen"] = Field(
        "supervised",
        description="consistency: semi-supervised, learn from unlabelled pairs to answer alike in the other modality; "
        "mismatched: the same with the pictures of other pairs, a control; "
        "frozen: train the classification head alone (section 5.2)",
    )
    recipe: Literal["default", "paper"] = Field(
        "default", description="optimiser's details, loss and first positions: ours, or the published code's"
    )
    regions: RegionSettings = RegionSettings()
    optimiser: Optimiser = Optimiser()
    training: Training = Training()

    @model_validator(mode="after")
    def _fits(self) -> Run:
        batches = self.trainer.get("accumulate_grad_batches", 1)
        if not isinstance(batches, int) or batches < 1:
            raise ValueError(f"trainer.accumulate_grad_batches={batches}: must be a whole number from 1")
        architecture, model = self.architecture, self.model
        sees = architecture.sees
        if sees == "nothing" and self.setting != "caption":
            raise ValueError(f"setting={self.setting}: model={model} sees text alone; use setting=caption")
        if self.controlled and model in ARCHITECTURES and not architecture.controlled:
            others = " or ".join(f"model={name}" for name, other in ARCHITECTURES.items() if other.controlled)
            raise ValueError(f"controlled=true: model={model} has none; leave it out, or give {others}")
        if self.recipe == "paper" and model not in PAPER_RECIPES:
            raise ValueError(f"recipe=paper: is for {', '.join(PAPER_RECIPES)}, not model={model}")
        if self.regions.kind == "file" and sees == "regions" and self.training.streams:
            source = self.regions.source
            raise ValueError(f"regions.source={source}: choose scene or grid; a folder needs training.examples")
        if self.training.unlabelled is not None and not self.pairs_modalities:
            raise ValueError(f"training.unlabelled={self.training.unlabelled}: needs method=consistency or mismatched")
        if self.pairs_modalities:
            self._check_consistency(sees)
        return self

    def _check_consistency(self, sees: str) -> None:
        if not (self.training.streams and self.training.auxiliary_targets):
            raise ValueError(f"method={self.method}: needs training.examples=null and training.auxiliary_targets=true")
        if sees == "nothing" or self.setting not in OTHER:
            raise ValueError(
                f"method={self.method}: teaches a model the modality that it is not trained in; "
                f"model={self.model} setting={self.setting} has none"
            )

    @property
    def pairs_modalities(self) -> bool:
        """Whether the run also learns from unlabelled pairs of image and caption."""
        return self.method in ("consistency", "mismatched")

    @property
    def details(self) -> Recipe:
        """What the recipe fixes. Consistency has no teacher of its own beside ALBEF's."""
        recipe = PAPER_RECIPES[self.model] if self.recipe == "paper" else DEFAULT
        distils = recipe.loss == "distillation" and self.pairs_modalities
        return replace(recipe, loss="cross_entropy") if distils else recipe

    @property
    def architecture(self) -> Architecture:
        return architecture_of(self.model)

    @property
    def batch_size(self) -> int:
        return self.optimiser.batch_size or self._table_5()[0]

    @property
    def learning_rate(self) -> float:
        return self.optimiser.learning_rate or self._table_5()[1]

    @property
    def accumulate(self) -> int:
        """Batches of an optimiser step."""
        return cast(int, self.trainer.get("accumulate_grad_batches", 1))

    @property
    def test_settings(self) -> tuple[str, ...]:
        """The settings that the run is tested in: text-only models have one (section 4)."""
        return ("caption",) if self.architecture.sees == "nothing" else ("image", "caption", "image+caption")

    def _table_5(self) -> tuple[int, float]:
        """Batch size and learning rate of Table 5."""
        if self.controlled:
            return CONTROLLED
        rate = self.architecture.learning_rate
        if self.model == "lxmert" and self.task == "spatiality":
            rate = LXMERT_SPATIALITY
        return self.architecture.batch_size, rate
