"""The settings of a run: what they are called, their defaults, limits and help.

`python train.py --help` and the checks of the command line are made from these dataclasses; conf/ holds only what
experiments and scales change. A value that no run can have raises `ValueError` with the setting's name.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace

from travlr.options import check_settings, option
from travlr.plugins import import_name, is_import
from travlr.tasks import TASKS, check_name


@dataclass(frozen=True)
class Architecture:
    """What a model takes and offers. `train.models` has the classes.

    sees: the visual input, beside text: `regions`, `pixels` or `nothing`. takes_boxes: whether the boxes of regions are
    part of the input; if not, only features can hold the places of regions (`regions.context`). teacher: whether the
    model has a momentum teacher, for `training.loss=distillation`. separate_vision: whether `Model.encode_vision` gives
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
    "vocab.txt",
    "vocab.json",
    "merges.txt",
)
SIZES = {"tiny": "", "small": "", "base": "the published architecture"}
SETTINGS = {"image": "", "caption": "", "image+caption": "", "mixed": "modal dropout"}
SOURCES = {"scene": "the boxes of the objects", "grid": "every cell", "file": "features made elsewhere"}
RENDERED = ("scene", "grid")  # sources whose features are of one cell each
PRECISIONS = {"float32": "", "bf16": "", "auto": "bf16 where the device computes in it"}
MAX_REGIONS = 1 << 16  # of a picture
MOST = 1_000_000_000  # of other numbers
MAX_STREAMED = 1 << 21  # examples streamed between two validations: they are in memory together, 2.4 kB each
MAX_SEED = (1 << 43) - 1  # seeds of dropout are made from it, and torch takes no larger ones


@functools.cache
def architecture_of(model: str) -> Architecture:
    """The architecture of one of `ARCHITECTURES`, or of the class that `package.module:Class` names.

    Raises `ValueError` if there is no such model, or if the class has no `architecture`.
    """
    if model in ARCHITECTURES:
        return ARCHITECTURES[model]
    if not is_import(model):
        raise ValueError(
            f"model={model}: choose one of {', '.join(ARCHITECTURES)}, or give your own as package.module:Class"
        )
    architecture = getattr(import_name("model", model), "architecture", None)
    if not isinstance(architecture, Architecture):
        raise ValueError(f"model={model}: needs a class attribute `architecture`, an Architecture of train.config")
    return architecture


@dataclass(frozen=True)
class RegionSettings:
    """The source of the regions of a picture, and their number.

    `context=receptive_field` adds the place of a region and its surroundings to its features, as in
    the features of a detector (train/regions/receptive_field.py).

    Raises `ValueError` for a value or a combination that no source has.
    """

    source: str = option("scene", choices=SOURCES)
    number: int | str = option(
        "exact",
        "exact: all objects, or all regions of file; a number pads with empty cells (scene) or takes the first so many "
        "(file)",
    )
    context: str = option(
        "auto",
        "of scene and grid, what features hold",
        choices={
            "auto": "receptive_field for models that take no boxes",
            "none": "the object alone",
            "receptive_field": "its place and surroundings too",
        },
    )
    file: str | None = option(None, "of file: a folder of UNITER's .npz")

    def __post_init__(self) -> None:
        check_settings(self, "regions.")
        whole = isinstance(self.number, int) and not isinstance(self.number, bool)
        if self.number != "exact" and not (whole and 1 <= int(self.number) <= MAX_REGIONS):
            raise ValueError(f"regions.number={self.number}: must be exact, or a number from 1 to {MAX_REGIONS}")
        if self.context == "receptive_field" and self.source not in RENDERED:
            raise ValueError(
                f"regions.context=receptive_field: features of regions.source={self.source} stay as they are; use auto"
            )
        if (self.file is not None) != (self.source == "file"):
            needs = "give regions.file" if self.source == "file" else "leave out regions.file"
            raise ValueError(f"regions.source={self.source}: {needs}")

    def for_model(self, takes_boxes: bool) -> RegionSettings:
        """The settings with `context=auto` resolved. takes_boxes: whether the model takes boxes."""
        if self.context != "auto":
            return self
        return replace(self, context="none" if takes_boxes or self.source not in RENDERED else "receptive_field")


@dataclass(frozen=True)
class Optimiser:
    """AdamW and its schedule."""

    batch_size: int | None = option(64, "null for the paper's (Table 5)", least=1, most=1 << 16)
    learning_rate: float | None = option(6e-4, "null for the paper's (Table 5)", above=0)
    weight_decay: float = option(0.01, least=0)
    betas: list[float] = option([0.9, 0.98], "of AdamW")
    warmup: float = option(0.1, "part of all steps in which the learning rate rises from 0", least=0, most=1)
    decay: str = option("linear", "how the learning rate falls after warm-up", choices=("linear", "cosine", "constant"))
    final_rate: float = option(0.0, "learning rate at the end of the decay", least=0)
    clip: float | None = option(1.0, "largest norm of the gradient, null for no limit", above=0)
    accumulate: int = option(1, "batches per optimiser step", least=1, most=MOST)

    def __post_init__(self) -> None:
        check_settings(self, "optimiser.")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"optimiser.betas={self.betas}: needs two numbers from 0 to below 1")


@dataclass(frozen=True)
class Training:
    """Fine-tuning. Exactly one of `steps` and `epochs` (of the train split) is given."""

    steps: int | None = option(2000, "optimiser steps; null where epochs is given", least=1, most=MOST)
    epochs: int | None = option(None, "passes over the train split", least=1, most=MOST)
    stream: bool = option(True, "train on new examples of the same distribution, never repeated; false: on the split")
    shortest_first: float = option(
        0.5,
        "of a stream: part of the steps that go from scenes with few objects (an eighth of all) to any scene",
        least=0,
        most=1,
    )
    examples: float = option(
        1.0, "how much of the train split: a part up to 1, or a number of examples above 1", above=0
    )
    check_every: int | None = option(250, "steps between validations, null for an epoch", least=1, most=MOST)
    validation: int = option(2000, "examples in each validation", least=1, most=MOST)
    frozen: bool = option(False, "train the classification head alone (section 5.2)")
    loss: str = option(
        "cross_entropy",
        choices={
            "cross_entropy": "",
            "binary": "the published fine-tuning code's",
            "distillation": "with ALBEF's teacher",
        },
    )
    auxiliary_targets: bool = option(
        True, "also learn the intermediate steps of an answer (train/data/auxiliary.py), which the paper does not"
    )
    consistency: bool = option(
        False, "semi-supervised: learn from unlabelled pairs to answer alike in the modality not trained in"
    )

    def __post_init__(self) -> None:
        check_settings(self, "training.")
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("training: give one of training.steps and training.epochs, and null for the other")
        if self.examples > 1 and self.examples != int(self.examples):
            raise ValueError(f"training.examples={self.examples}: must be a part up to 1, or a whole number above")
        if self.consistency and not (self.stream and self.auxiliary_targets and self.loss != "distillation"):
            raise ValueError(
                "training.consistency=true: needs training.stream=true, training.auxiliary_targets=true and another "
                "training.loss than distillation"
            )
        if self.consistency and self.frozen:
            raise ValueError("training.consistency=true: trains the encoder; give training.frozen=false")
        if self.stream and self.epochs is not None:
            raise ValueError("training.stream=true: a stream has no epochs; give training.steps, or stream=false")
        if self.stream and self.examples != 1:
            raise ValueError(
                f"training.examples={self.examples}: a part of the train split needs training.stream=false"
            )


@dataclass(frozen=True)
class Run:
    """The settings of one training run: model, data, training and device."""

    model: str = option(
        "uniter", f"{', '.join(ARCHITECTURES)}, or your own as package.module:Class (docs/adding-a-model.md)"
    )
    setting: str = option("caption", "what it is trained on", choices=SETTINGS)
    task: str = option("cardinality", f"{', '.join(TASKS)}, or your own as package.module:Class")
    data: str | None = option(None, "folder of a dataset; null for data/TASK, which is generated if it is missing")
    seed: int = option(0, least=0, most=MAX_SEED)
    size: str = option("small", choices=SIZES)
    pretrained: str | None = option(None, "published weights: a file, folder or hub name; null for random weights")
    tokenizer: str | None = option(None, "folder or hub name, if the checkpoint's own is not beside it")
    start: str | None = option(
        None, "folder of a finished run whose weights are fine-tuned further, or a pattern that one folder fits"
    )
    controlled: bool = option(False, "the controlled architectures of section 5.1 (visualbert, uniter, lxmert)")
    positions: str = option(
        "sinusoidal",
        "how position embeddings start if nothing is pretrained",
        choices={"sinusoidal": "", "random": "as in BERT"},
    )
    experiment: str | None = None
    scale: str | None = None
    runs: str = option("runs", "folder with a folder for each run, and the table of all results")
    device: str = option("auto", choices=("auto", "cpu", "gpu"))
    devices: int = option(
        1, "GPUs, or processes on a CPU; each learns from its part of every batch", least=1, most=MOST
    )
    strategy: str = option("auto", "Lightning's strategy for several devices, such as ddp")
    precision: str = option("auto", choices=PRECISIONS)
    logger: list[str] = option(
        [],
        "a CSV file is always written; beside it one or several",
        choices={"csv": "", "tensorboard": "", "wandb": "offline unless WANDB_MODE=online"},
    )
    regions: RegionSettings = field(default_factory=RegionSettings)
    optimiser: Optimiser = field(default_factory=Optimiser)
    training: Training = field(default_factory=Training)

    def __post_init__(self) -> None:
        architecture = self.architecture
        check_settings(self)
        check_name(self.task)
        if self.optimiser.final_rate > self.learning_rate:
            raise ValueError(
                f"optimiser.final_rate={self.optimiser.final_rate}: must not be above the rate it falls from, "
                f"optimiser.learning_rate={self.learning_rate}"
            )
        if self.batch_size % self.devices:
            raise ValueError(
                f"devices={self.devices}: must divide optimiser.batch_size={self.batch_size}, shared out among them"
            )
        self._check_memory()
        self._check_model(architecture)

    def _check_memory(self) -> None:
        """Raises `ValueError` if the examples of a stream would not fit into memory."""
        training = self.training
        steps = (training.steps or 0) * training.stream
        check_every = min(training.check_every or steps, steps)
        examples = check_every * self.optimiser.accumulate * self.batch_size * (1 + training.consistency)
        if examples > MAX_STREAMED:
            raise ValueError(
                f"optimiser.batch_size={self.batch_size}: {examples:,} examples would be streamed at once, for "
                f"{check_every:,} of training.steps={steps}; use smaller batches or a smaller training.check_every, "
                f"for at most {MAX_STREAMED:,}"
            )

    def _check_model(self, architecture: Architecture) -> None:
        """Raises `ValueError` for a setting that the model does not have."""
        sees, model = architecture.sees, self.model
        if sees == "nothing" and self.setting != "caption":
            raise ValueError(f"setting={self.setting}: model={model} sees text alone; use setting=caption")
        if self.training.loss == "distillation" and not architecture.teacher:
            raise ValueError(f"training.loss=distillation: only model=albef has a momentum teacher, not {model}")
        if self.controlled and model in ARCHITECTURES and not architecture.controlled:
            others = " or ".join(f"model={name}" for name, other in ARCHITECTURES.items() if other.controlled)
            raise ValueError(f"controlled=true: model={model} has none; leave it out, or give {others}")
        if self.regions.source == "file" and sees == "regions" and self.training.stream:
            raise ValueError("regions.source=file: has no features of new scenes; use training.stream=false")
        if self.training.consistency and (sees == "nothing" or self.setting not in ("image", "caption")):
            raise ValueError(
                "training.consistency=true: teaches a model the modality that it is not trained in; "
                f"model={model} setting={self.setting} has none"
            )

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
    def model_regions(self) -> RegionSettings:
        """`regions`, with `context=auto` resolved for this model."""
        return self.regions.for_model(self.architecture.takes_boxes or self.architecture.sees != "regions")

    @property
    def sees_places(self) -> bool:
        """Whether the model's input holds the places of the objects. It does not if the model takes no boxes and the
        features are those of the objects alone; the features of a file may hold places."""
        regions, architecture = self.model_regions, self.architecture
        if architecture.sees != "regions" or architecture.takes_boxes:
            return True
        return regions.context != "none" or regions.source not in RENDERED

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
