"""The settings of a probe, with their defaults, limits and help. `--help` is made from them.

Raises `ValueError`, with the setting's name, for a value that no probe can have.
"""

from __future__ import annotations

from dataclasses import dataclass

from train.config import SIZES, RegionSettings
from travlr.options import check_settings, option

SCENES = "scenes"
TASKS = {"itc": "which of two sentences fits better", "itm": "does each sentence match"}
RULES = {"corrected": "", "published": "first sentence, first `limit` items, no tolerance for ties"}
TEMPLATES = ("normal", "alt")
PRECISIONS = {"float32": "", "float64": "", "bf16": "", "float16": "", "auto": "the type of the saved weights"}
DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")  # of accelerate
HEADS = {"itm": "image-text matching", "itc": "image-text contrast"}  # VL-CheckList's names
TRAVLR_MODELS = ("visualbert", "uniter", "lxmert", "albef")  # named as KIND:CHECKPOINT
GRID = RegionSettings(source="grid")


@dataclass(frozen=True)
class Probe:
    """The models, the corpus, how answers are measured, and where the results go.

    task: `itc` compares the sentences of a picture, `itm` classifies each sentence alone. Settings override those of a
    run file. limit: with `rules=corrected`, a sample of items by axis and source.
    """

    corpus: str = option(
        SCENES,
        "our own: scenes (both kinds), checklist or predicate_noun; or a path: VL-CheckList's folder (with corpus/v1), "
        "a run .yaml or an eval_set.json",
    )
    count: int | None = option(
        None, "items of each of our own corpora, even; null for 3,600 (checklist) and 2,584 (predicate_noun)", least=1
    )
    images: str | None = option(None, "folder of the corpus's pictures; null for the corpus's own")
    model: list[str] = option(
        [],
        "a folder or hub name of transformers, visualbert:FILE, uniter:FILE, lxmert:FILE, albef:FILE, or "
        "module:function; [A,B] for several; null for the baselines alone",
    )
    head: str | None = option(None, "of models with both, null for itm", choices=HEADS)
    question: str | None = option(
        None, "for generative models, with {text} for the sentence; null for a question that asks yes or no"
    )
    size: str = option("base", "of visualbert, uniter, lxmert and albef", choices=SIZES)
    regions: RegionSettings = GRID
    task: str | None = option(None, "null for the task of a run .yaml, or itc", choices=TASKS)
    rules: str = option("corrected", choices=RULES)
    sentences: str = option(
        "mean",
        "of several sentences",
        choices={"mean": "", "first": "", "all": "every true one above every false one", "best": ""},
    )
    limit: int | None = option(
        None, "items of each axis and source; null for all, or half of the run .yaml's MAX_NUM", least=1
    )
    types: list[str] | None = option(
        None,
        "of VL-CheckList: axes such as [Object/Location,Relation/spatial]; null for all, or those of the run .yaml",
    )
    data: list[str] | None = option(
        None, "of VL-CheckList: sources such as [vg_subj,swig_item]; null for all, or those of the run .yaml"
    )
    template: str = option("normal", "of the predicate-noun study", choices=TEMPLATES)
    cropped: bool = option(False, "of the predicate-noun study: pictures cropped to the sentence's objects")
    baselines: bool = option(
        True, "also measure baselines: blind rules (text alone), salience rules, a blank picture, other items' pictures"
    )
    seed: int = option(0, "of our own corpora, samples, shuffled pictures and intervals", least=0, below=1 << 64)
    batch_size: int = option(64, "sentences in a call of the scorer", least=1)
    device: str = option("auto", "auto, cpu, gpu or cuda:1")
    device_map: str | None = option(None, "of generative models, how they spread over all GPUs", choices=DEVICE_MAPS)
    precision: str = option("float32", choices=PRECISIONS)
    strict: bool = option(False, "exit code 1 if an item was not scored or a record could not be read")
    out: str = option("probes", "folder with a folder for each run, and the report on all of them")
    overwrite: bool = option(False, "score again what was scored before")

    def __post_init__(self) -> None:
        check_settings(self)
        if self.device_map is not None and self.device != "auto":
            raise ValueError(f"device={self.device}: device_map={self.device_map} chooses devices; leave one out")
        if self.count is not None and self.count % 2:
            raise ValueError(f"count={self.count}: must be even, as each item has its mirror")
        if self.question is not None and "{text}" not in self.question:
            raise ValueError("question=: needs {text}, the place of the sentence")
        for name in ("corpus", "out"):
            if not getattr(self, name):
                raise ValueError(f"{name}=: is empty; give a name")
        if empty := [name for name in ("types", "data") if getattr(self, name) == []]:
            raise ValueError(f"{empty[0]}=[]: is empty; give some names, or null for all")
        if "" in self.model:
            raise ValueError("model=: a name is empty; give null for no model")
        if self.rules == "published" and self.sentences not in ("mean", "first"):
            raise ValueError(f"sentences={self.sentences}: rules=published takes the first of several sentences")

    @property
    def effective_task(self) -> str:
        """The task; itc by default."""
        return self.task or "itc"

    @property
    def effective_sentences(self) -> str:
        """How several sentences of an item are compared under these rules."""
        return "first" if self.rules == "published" else self.sentences
