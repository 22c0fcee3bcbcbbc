"""What determines a run: frozen dataclasses, the same names as the settings of conf/train.yaml.

A value that no run can have raises `ValueError` with the setting's name.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from travlr.tasks import TASKS

# Names of what has classes and functions in `train.models` and `train.regions.sources`, which take seconds to import.
MODELS = ("visualbert", "uniter", "lxmert", "albef", "bert", "roberta")
TEXT_ONLY = ("bert", "roberta")
WITHOUT_BOXES = ("visualbert",)  # see regions, but are not given their boxes
SIZES = ("tiny", "small", "base")
SOURCES = ("scene", "grid", "detector", "file")
DRAWN = ("scene", "grid")  # whose features are of one cell each
CONTEXTS = ("auto", "none", "receptive_field")
BLANKS = ("whole", "cells")

SETTINGS = ("image", "caption", "image+caption", "mixed")
PRECISIONS = ("auto", "float32", "bf16")
DECAYS = ("linear", "cosine", "constant")
LOSSES = ("cross_entropy", "binary", "distillation")
LOGGERS = ("csv", "tensorboard", "wandb")
MOST_REGIONS = 1 << 16  # of a picture
MOST_IN_BATCH = 1 << 16
MOST_AT_ONCE = 1 << 21  # examples that are streamed between two validations: they are in memory together, 2.4 kB each
MOST_SEED = (1 << 43) - 1  # seeds of dropout are made of it, and torch takes no larger ones
# Settings of regions that there were not always, at the value that all was before: no part of what a run is known by,
# so that runs keep their names.
AS_BEFORE = (("context", "none"), ("blank", "whole"))

# Table 5 of the paper: batch size and learning rate; LXMERT needs the larger rate for spatiality only.
TABLE_5 = {
    "visualbert": (64, 2e-5),
    "uniter": (32, 5e-6),
    "lxmert": (32, 5e-6),
    "albef": (256, 2e-5),
    "bert": (32, 2e-5),  # the paper does not give the text-only models' values; these are BERT's own
    "roberta": (32, 2e-5),
}
LXMERT_SPATIALITY = 5e-5
CONTROLLED = (32, 5e-6)


def _choice(name: str, value: Any, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise ValueError(f"{name}={value}: choose one of {', '.join(valid)}")


def _at_least(name: str, value: float | None, lowest: float) -> None:
    if value is not None and not value >= lowest:
        raise ValueError(f"{name}={value}: must be at least {lowest}")


def _whole(name: str, value: int | None, lowest: int, highest: int = 1_000_000_000) -> None:
    if value is not None and not lowest <= value <= highest:
        raise ValueError(f"{name}={value}: must be from {lowest} to {highest:,}")


def _finite(group: str, settings: Any) -> None:
    for setting in fields(settings):
        value = getattr(settings, setting.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{group}{setting.name}={value}: must be a finite number")


def _part(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name}={value}: must be a part from 0 to 1")


@dataclass(frozen=True)
class RegionSettings:
    """Where regions come from, and how many.

    number: regions of a picture. For `scene`, `exact` gives the objects only and a number pads with empty cells; for
    `detector` and `file`, `exact` takes all there are and a number the first so many (a detector's most confident).
    misses, jitter: of `scene`, as if a detector found the boxes: the probability that an object is missed, and the
    standard deviation of each edge as a part of the box's width or height. Both depend on the seed and on what the
    picture shows, not on its place in the data.
    context: of `scene` and `grid`, what a region's features hold. `none`: its own content. `receptive_field`: its place
    on the picture and what is around it, too, as a detector's features do (train/regions/receptive_field.py). `auto`:
    `receptive_field` for a model that is given no boxes (VisualBERT), else `none`.
    blank: of `scene`, what the white picture of the setting `caption` has: one region, the `whole` picture; or white
    `cells`, as many as `number` (with `exact` the whole picture all the same).
    detector: a folder or hub name of a `transformers` object-detection model. file: features made elsewhere.

    Raises `ValueError` for a value or a combination that no source has.
    """

    source: str = "scene"
    number: int | str = "exact"
    misses: float = 0.0
    jitter: float = 0.0
    context: str = "auto"
    blank: str = "whole"
    detector: str | None = None
    file: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise ValueError(f"regions.source={self.source}: choose one of {', '.join(SOURCES)}")
        whole = isinstance(self.number, int) and not isinstance(self.number, bool)
        if self.number != "exact" and not (whole and 1 <= int(self.number) <= MOST_REGIONS):
            raise ValueError(f"regions.number={self.number}: must be exact, or a number from 1 to {MOST_REGIONS}")
        if not 0 <= self.misses < 1:
            raise ValueError(f"regions.misses={self.misses}: must be a probability from 0 to below 1")
        if not 0 <= self.jitter <= 0.5:
            raise ValueError(f"regions.jitter={self.jitter}: must be a part of the box from 0 to 0.5")
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"regions.seed={self.seed}: must be 0 or more, below 2**64")
        for name in ("misses", "jitter"):
            if getattr(self, name) and self.source != "scene":
                raise ValueError(f"regions.{name}={getattr(self, name)}: only regions.source=scene has it")
        _choice("regions.context", self.context, CONTEXTS)
        _choice("regions.blank", self.blank, BLANKS)
        if self.context == "receptive_field" and self.source not in DRAWN:
            raise ValueError(
                f"regions.context=receptive_field: features of regions.source={self.source} stay as they are; use auto"
            )
        for name in ("detector", "file"):
            if (getattr(self, name) is not None) != (self.source == name):
                needs = f"give regions.{name}" if self.source == name else f"leave out regions.{name}"
                raise ValueError(f"regions.source={self.source}: {needs}")

    def for_model(self, takes_boxes: bool) -> RegionSettings:
        """With what `context=auto` is for a model that is given boxes, or is not."""
        if self.context != "auto":
            return self
        return replace(self, context="none" if takes_boxes or self.source not in DRAWN else "receptive_field")

    def identity(self) -> dict[str, Any]:
        """The settings by name that runs, readers and the like are known by."""
        return {name: value for name, value in asdict(self).items() if (name, value) not in AS_BEFORE}


@dataclass(frozen=True)
class Optimiser:
    """AdamW. batch_size and learning_rate: null for the paper's (Table 5).

    warmup: the part of all steps in which the rate rises from 0. decay: how it falls after that, to final_rate.
    clip: the largest norm of the gradient, null for any. accumulate: batches to a step.
    """

    batch_size: int | None = 64
    learning_rate: float | None = 6e-4
    weight_decay: float = 0.01
    betas: list[float] = field(default_factory=lambda: [0.9, 0.98])
    warmup: float = 0.1
    decay: str = "linear"
    final_rate: float = 0.0
    clip: float | None = 1.0
    accumulate: int = 1

    def __post_init__(self) -> None:
        _finite("optimiser.", self)
        _choice("optimiser.decay", self.decay, DECAYS)
        _part("optimiser.warmup", self.warmup)
        _whole("optimiser.batch_size", self.batch_size, 1, MOST_IN_BATCH)
        _whole("optimiser.accumulate", self.accumulate, 1)
        _at_least("optimiser.weight_decay", self.weight_decay, 0)
        _at_least("optimiser.final_rate", self.final_rate, 0)
        for name in ("learning_rate", "clip"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ValueError(f"optimiser.{name}={value}: must be above 0")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"optimiser.betas={self.betas}: needs two numbers from 0 to below 1")


@dataclass(frozen=True)
class Training:
    """Fine-tuning. One of `steps` and `epochs` (of the training split) is given.

    stream: examples past the dataset's own, of the same distribution and never repeated; else its train split.
    shortest_first: the part of the steps in which a stream goes from scenes with few objects (an eighth of all) to any.
    examples: how much of the train split: a part up to 1, or a number above.
    check_every: steps between validations, null for an epoch. validation: examples of each.
    frozen: train the classification head alone (section 5.2). loss: `binary` is that of the code the paper fine-tuned,
    `distillation` ALBEF's own, from a momentum teacher.
    naming: beside the answer, name the steps that lead to it (train/data/auxiliary.py), which the paper does not do.
    consistency: semi-supervised: learn from unlabelled pairs of image and caption, too, as many as labelled examples,
    to say of the other modality what is said of the one trained in (train/learning/consistency.py): an answer to the paper's
    open challenge.
    window: batches among which examples of like length come together; 1 for random batches.
    augment: change training pictures as ALBEF's published fine-tuning does (train/data/augment.py); its crops and flips make
    left, right and counts wrong.
    shuffled: give the training answers to other examples, which no model can learn from: a check of the whole chain.
    keep: which weights are tested, the last (the paper) or the best on validation.
    """

    steps: int | None = 2000
    epochs: int | None = None
    stream: bool = True
    shortest_first: float = 0.5
    examples: float = 1.0
    check_every: int | None = 250
    validation: int = 2000
    frozen: bool = False
    loss: str = "cross_entropy"
    naming: bool = True
    consistency: bool = False
    window: int = 1
    augment: bool = False
    shuffled: bool = False
    keep: str = "last"

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("training: give one of training.steps and training.epochs, and null for the other")
        _finite("training.", self)
        for name in ("steps", "epochs", "check_every", "validation", "window"):
            _whole(f"training.{name}", getattr(self, name), 1)
        _choice("training.loss", self.loss, LOSSES)
        _choice("training.keep", self.keep, ("last", "best"))
        _part("training.shortest_first", self.shortest_first)
        if not self.examples > 0 or (self.examples > 1 and self.examples != int(self.examples)):
            raise ValueError(f"training.examples={self.examples}: must be a part up to 1, or a whole number above")
        if self.consistency and not (self.stream and self.naming and self.loss != "distillation"):
            raise ValueError(
                "training.consistency=true: needs training.stream=true, training.naming=true and another "
                "training.loss than distillation"
            )
        if self.consistency and self.frozen:
            raise ValueError(
                "training.consistency=true: what it teaches is not in the head; give training.frozen=false"
            )
        if self.stream and self.epochs is not None:
            raise ValueError("training.stream=true: a stream has no epochs; give training.steps, or stream=false")
        if self.stream and self.examples != 1:
            raise ValueError(
                f"training.examples={self.examples}: a part of the train split needs training.stream=false"
            )


@dataclass(frozen=True)
class Pretraining:
    """Reading unlabelled scenes before fine-tuning, streamed from the task's training distribution; no answer is seen.

    shown: what the scene is shown as: `image`, `caption`, `image+caption`, `mixed`, or `each` (image or caption alone).
    The statement in the place of the query lists objects of the scene; some of its words are masked.
    """

    steps: int = 0
    shown: str = "each"
    learning_rate: float = 6e-4

    def __post_init__(self) -> None:
        _finite("pretraining.", self)
        _whole("pretraining.steps", self.steps, 0)
        if not self.learning_rate > 0:
            raise ValueError(f"pretraining.learning_rate={self.learning_rate}: must be above 0")
        _choice("pretraining.shown", self.shown, (*SETTINGS, "each"))


@dataclass(frozen=True)
class Reading:
    """Language-like intermediates (the paper's section 6): a reader, trained on `steps` batches of unlabelled (image,
    caption) pairs, writes the caption of an image; the model that reasons is shown that in the place of the image. What
    it learns in all is semi-supervised.
    """

    steps: int = 0

    def __post_init__(self) -> None:
        _whole("reader.steps", self.steps, 0)


@dataclass(frozen=True)
class Run:
    """One trained model. `data`: a dataset's folder, null for data/TASK, which is made where it is missing. audit:
    refuse a dataset that fails its audit.

    pretrained: a checkpoint's file, folder or hub name; null starts from random weights. tokenizer: where the
    checkpoint's own is not beside it. start: the folder of a finished run whose weights are fine-tuned further
    (few-shot, appendix B.5). controlled: the architectures of section 5.1. boxes, visual_token_type: of UNITER and
    VisualBERT, as the code the paper fine-tuned has them or as the models were made (null). positions: how position
    embeddings start where nothing is pretrained; `random` is BERT's way. save_minutes: how long a run trains at most,
    in minutes, before it saves the state that it goes on from when it is killed; it saves at each validation, too.
    """

    model: str = "uniter"
    setting: str = "caption"
    task: str = "cardinality"
    data: str | None = None
    audit: bool = True
    seed: int = 0
    size: str = "small"
    pretrained: str | None = None
    tokenizer: str | None = None
    start: str | None = None
    controlled: bool = False
    positions: str = "sinusoidal"
    boxes: str | None = None
    visual_token_type: int | None = None
    experiment: str | None = None
    scale: str | None = None
    runs: str = "runs"
    device: str = "auto"
    devices: int = 1
    strategy: str = "auto"
    precision: str = "auto"
    logger: list[str] = field(default_factory=list)
    save_minutes: float = 5.0
    regions: RegionSettings = field(default_factory=RegionSettings)
    optimiser: Optimiser = field(default_factory=Optimiser)
    training: Training = field(default_factory=Training)
    pretraining: Pretraining = field(default_factory=Pretraining)
    reader: Reading = field(default_factory=Reading)

    def __post_init__(self) -> None:
        _choice("model", self.model, MODELS)
        _choice("setting", self.setting, SETTINGS)
        _choice("task", self.task, tuple(TASKS))
        _choice("size", self.size, SIZES)
        _choice("positions", self.positions, ("sinusoidal", "random"))
        _choice("device", self.device, ("auto", "cpu", "gpu"))
        _choice("precision", self.precision, PRECISIONS)
        _finite("", self)
        _whole("seed", self.seed, 0, MOST_SEED)
        _whole("devices", self.devices, 1)
        _at_least("save_minutes", self.save_minutes, 0)
        if self.optimiser.final_rate > self.learning_rate:
            raise ValueError(
                f"optimiser.final_rate={self.optimiser.final_rate}: must not be above the rate it falls from, "
                f"optimiser.learning_rate={self.learning_rate}"
            )
        if self.batch_size % self.devices:
            raise ValueError(
                f"devices={self.devices}: must divide optimiser.batch_size={self.batch_size}, shared out among them"
            )
        self._check_streams()
        for logger in self.logger:
            _choice("logger", logger, LOGGERS)
        if self.model in TEXT_ONLY and self.setting != "caption":
            raise ValueError(f"setting={self.setting}: model={self.model} sees text alone; use setting=caption")
        if self.training.loss == "distillation" and self.model != "albef":
            raise ValueError(f"training.loss=distillation: only model=albef has a momentum teacher, not {self.model}")
        if self.training.augment and self.model != "albef":
            raise ValueError(f"training.augment=true: model={self.model} sees no pixels; leave it out, or model=albef")
        if self.regions.source == "file" and self.model in ("visualbert", "uniter", "lxmert"):
            for name, none, streams in (
                ("training.stream", "false", self.training.stream),
                ("pretraining.steps", "0", self.pretraining.steps),
                ("reader.steps", "0", self.reader.steps),
            ):
                if streams:
                    raise ValueError(f"regions.source=file: has no features of scenes made anew; use {name}={none}")
        if self.reader.steps and self.model in TEXT_ONLY:
            raise ValueError(f"reader.steps={self.reader.steps}: model={self.model} sees no images that could be read")
        if self.training.consistency and self.training.augment:
            raise ValueError(
                "training.augment=true: changes no unlabelled pictures; leave out training.consistency=true"
            )
        if self.training.consistency and (self.model in TEXT_ONLY or self.setting not in ("image", "caption")):
            raise ValueError(
                "training.consistency=true: teaches a model the modality that it is not trained in; "
                f"model={self.model} setting={self.setting} has none"
            )

    def _check_streams(self) -> None:
        """Raises `ValueError` where examples of a stream would not fit into memory."""
        training, consistency = self.training, self.training.consistency
        streams = {
            "training.steps": (training.steps or 0) * training.stream,
            "pretraining.steps": self.pretraining.steps,
        }
        for name, steps in streams.items():
            apart = min(training.check_every or steps, steps)
            examples = apart * self.optimiser.accumulate * self.batch_size * (1 + consistency)
            if examples > MOST_AT_ONCE:
                raise ValueError(
                    f"optimiser.batch_size={self.batch_size}: {examples:,} examples would be streamed at once, for "
                    f"{apart:,} of {name}={steps}; use smaller batches or a smaller training.check_every, for at most "
                    f"{MOST_AT_ONCE:,}"
                )

    @property
    def batch_size(self) -> int:
        return self.optimiser.batch_size or self._table_5()[0]

    @property
    def learning_rate(self) -> float:
        return self.optimiser.learning_rate or self._table_5()[1]

    @property
    def shown_regions(self) -> RegionSettings:
        """`regions`, with what `context=auto` is for this model."""
        return self.regions.for_model(takes_boxes=self.model not in WITHOUT_BOXES)

    @property
    def sees_places(self) -> bool:
        """Whether what the model is shown of a picture says where objects are. Not if it is given no boxes and features
        of the objects alone; a detector's features, and those of a file, may say it."""
        shown = self.shown_regions
        return self.model not in WITHOUT_BOXES or shown.context != "none" or shown.source not in DRAWN

    def _table_5(self) -> tuple[int, float]:
        if self.controlled:
            return CONTROLLED
        batch, rate = TABLE_5[self.model]
        if self.model == "lxmert" and self.task == "spatiality":
            rate = LXMERT_SPATIALITY
        return batch, rate

    @property
    def tests(self) -> tuple[str, ...]:
        """The test settings: text-only models have one (section 4)."""
        return ("caption",) if self.model in TEXT_ONLY else ("image", "caption", "image+caption")
