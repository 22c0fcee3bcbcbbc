"""What a probe is asked to do: a frozen dataclass, the same names as the settings of conf/probe.yaml.

A value that no probe can have raises `ValueError` with the setting's name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from train.config import RegionSettings

SCENES = "scenes"
TASKS = ("itc", "itm")
RULES = ("corrected", "published")
SENTENCES = ("mean", "first", "all", "best")
TEMPLATES = ("normal", "alt")
PRECISIONS = ("float32", "float64", "bf16", "float16", "auto")
DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")  # of accelerate
HEADS = ("itm", "itc")  # image-text matching and image-text contrast, as VL-CheckList names them
TRAVLR_MODELS = ("visualbert", "uniter", "lxmert", "albef")  # whose names are followed by a colon and a file
SIZES = ("tiny", "small", "base")
GRID = RegionSettings(source="grid")


def written(value: Any) -> str:
    """A value as one would type it."""
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{name}:{written(one)}' for name, one in value.items())}}}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_one_of(name: str, value: Any, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise ValueError(f"{name}={value}: choose one of {', '.join(valid)}")


@dataclass(frozen=True)
class Probe:
    """Which models are asked what, how answers become numbers, and where they go.

    corpus: `scenes` (both of our own corpora), `checklist` or `predicate_noun` (one of them), or a path: a folder of
    VL-CheckList's (with corpus/v1), a published run file (.yaml), an eval_set.json or a folder with one, or a CSV of
    results of the predicate-noun study or a folder of them, whose scores are measured. Of a folder without CSVs those
    in its subfolders are read. CSVs of one folder, model, template and cropping are parts of one corpus. count: items
    of each of our own, an even number.
    images: where the corpus's pictures are, None for where the corpus says. model: none for floors alone. head,
    question, size, regions, device_map: of models that have a choice (see `analysis.probe.scorers.loading.load`).

    task: `itc` compares the sentences of a picture, `itm` asks of each whether it matches; None: what a run file says,
    else `itc`. A setting that is given goes before what a run file says. rules: `published` takes the
    first sentence of several, no tolerance for ties, and for `limit` the first items of each file; `corrected` samples
    them by axis and source. sentences: how several true and false sentences of an item are compared: their means, the
    first of each, all true above all false ones, or the best of each. limit: items of each axis and source, None for
    all, or as many as a run file says.

    types, data: axes and sources of VL-CheckList, None for all; a type stands for all below it. template, cropped: of
    the predicate-noun study. batch_size: sentences in a call of the scorer. floors: what is reached without looking,
    too. strict: fail where anything was not scored.
    """

    corpus: str = SCENES
    count: int | None = None
    images: str | None = None
    model: list[str] = field(default_factory=list)
    head: str | None = None
    question: str | None = None
    size: str = "base"
    regions: RegionSettings = GRID
    task: str | None = None
    rules: str = "corrected"
    sentences: str = "mean"
    limit: int | None = None
    types: list[str] | None = None
    data: list[str] | None = None
    template: str = "normal"
    cropped: bool = False
    floors: bool = True
    seed: int = 0
    batch_size: int = 64
    device: str = "auto"
    device_map: str | None = None
    precision: str = "float32"
    strict: bool = False
    out: str = "probes"
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.task is not None:
            _check_one_of("task", self.task, TASKS)
        _check_one_of("rules", self.rules, RULES)
        _check_one_of("sentences", self.sentences, SENTENCES)
        _check_one_of("template", self.template, TEMPLATES)
        _check_one_of("precision", self.precision, PRECISIONS)
        _check_one_of("size", self.size, SIZES)
        if self.head is not None:
            _check_one_of("head", self.head, HEADS)
        if self.device_map is not None:
            _check_one_of("device_map", self.device_map, DEVICE_MAPS)
            if self.device != "auto":
                raise ValueError(f"device={self.device}: device_map={self.device_map} chooses devices; leave one out")
        for name in ("count", "batch_size", "limit"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name}={value}: must be at least 1")
        if self.count is not None and self.count % 2:
            raise ValueError(f"count={self.count}: must be even, as each item has its mirror")
        if self.question is not None and "{text}" not in self.question:
            raise ValueError("question=: needs {text}, where the sentence stands")
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed={self.seed}: must be 0 or more, below 2**64")
        for name in ("corpus", "out"):
            if not getattr(self, name):
                raise ValueError(f"{name}=: must name something")
        if empty := [name for name in ("types", "data") if getattr(self, name) == []]:
            raise ValueError(f"{empty[0]}=[]: names none; give some, or null for all")
        if "" in self.model:
            raise ValueError("model=: a name is empty; give null for no model")
        if self.rules == "published" and self.sentences not in ("mean", "first"):
            raise ValueError(f"sentences={self.sentences}: rules=published takes the first of several sentences")

    @property
    def asked(self) -> str:
        """The task: the given one, else itc."""
        return self.task or TASKS[0]

    @property
    def compared(self) -> str:
        """How several sentences of an item are compared, by the rules."""
        return "first" if self.rules == "published" else self.sentences
