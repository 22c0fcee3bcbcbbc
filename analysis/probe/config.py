"""The settings of a probe, with their defaults, limits and help."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from train.config import SIZES, RegionSettings
from travlr.config import one_of
from travlr.settings import PathText, Settings

SCENES = "scenes"
TASKS = ("itc", "itm")
RULES = ("corrected", "published")
TEMPLATES = ("normal", "alt")
HEADS = {"itm": "image-text matching", "itc": "image-text contrast"}  # VL-CheckList's names
GRID = RegionSettings(source="grid")


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_listed)]


class Probe(Settings):
    """The models, the corpus, how answers are measured, and where the results go.

    Settings override those of a run file.
    """

    corpus: PathText = Field(
        SCENES,
        description="our own: scenes (both kinds), checklist or predicate_noun; or a path: VL-CheckList's folder (with "
        "corpus/v1), a run .yaml or an eval_set.json",
    )
    count: int | None = Field(
        None,
        ge=2,
        multiple_of=2,
        description="items of each of our own corpora; null for 3,600 (checklist) and 2,584 (predicate_noun)",
    )
    images: PathText | None = Field(None, description="folder of the corpus's pictures; null for the corpus's own")
    model: Names = Field(
        (),
        description="a folder or hub name of transformers, visualbert:FILE, uniter:FILE, lxmert:FILE, albef:FILE, or "
        "module:function; [A,B] for several; [] for the baselines alone",
    )
    head: Annotated[str, one_of("head", HEADS)] | None = Field(
        None, description="itm or itc, of models with both; null: itm"
    )
    question: str | None = Field(
        None,
        pattern=r"\{text\}",
        description="for generative models, with {text} for the sentence; null for a question that asks yes or no",
    )
    size: Annotated[str, one_of("size", SIZES)] = Field("base", description="of visualbert, uniter, lxmert and albef")
    regions: RegionSettings = GRID
    task: Literal["itc", "itm"] | None = Field(
        None,
        description="itc: which of two sentences fits better; itm: does each sentence match; null for that of a run "
        ".yaml, or itc",
    )
    rules: Literal["corrected", "published"] = Field(
        "corrected",
        description="corrected, or published: first sentence, first `limit` items, no tolerance for ties",
    )
    sentences: Literal["mean", "first", "all", "best"] = Field(
        "mean", description="of several sentences: mean, first, best, or all: every true one above every false one"
    )
    limit: int | None = Field(
        None, ge=1, description="items of each axis and source; null for all, or half of the run .yaml's MAX_NUM"
    )
    types: Names | None = Field(
        None,
        min_length=1,
        description="of VL-CheckList: axes such as [Object,Relation/spatial]; null for all or the run .yaml's",
    )
    data: Names | None = Field(
        None,
        min_length=1,
        description="of VL-CheckList: sources such as [vg_subj,swig_item]; null for all or the run .yaml's",
    )
    template: Literal["normal", "alt"] = Field("normal", description="of the predicate-noun study: normal or alt")
    cropped: bool = Field(False, description="of the predicate-noun study: pictures cropped to the sentence's objects")
    baselines: bool = Field(
        True,
        description="also measure baselines: blind rules (text alone), salience rules, a blank picture, other items' "
        "pictures",
    )
    seed: int = Field(0, ge=0, lt=1 << 64, description="of our own corpora, samples, shuffled pictures and intervals")
    batch_size: int = Field(64, ge=1, description="sentences in a call of the scorer")
    device: str = Field("auto", description="auto, cpu, gpu or cuda:1")
    device_map: Literal["auto", "balanced", "balanced_low_0", "sequential"] | None = Field(
        None, description="of generative models: how accelerate spreads them over all GPUs"
    )
    precision: Literal["float32", "float64", "bf16", "float16", "auto"] = Field(
        "float32", description="auto: the type of the saved weights"
    )
    strict: bool = Field(False, description="exit code 1 if an item was not scored or a record could not be read")
    out: PathText = Field("probes", description="folder with a folder for each run, and the report on all of them")
    overwrite: bool = Field(False, description="score again what was scored before")

    @model_validator(mode="after")
    def _check(self) -> Probe:
        if self.device_map is not None and self.device != "auto":
            raise ValueError(f"device={self.device}: device_map={self.device_map} chooses devices; leave one out")
        if self.rules == "published" and self.sentences not in ("mean", "first"):
            raise ValueError(f"sentences={self.sentences}: rules=published takes the first of several sentences")
        return self

    @property
    def effective_task(self) -> str:
        """The task; itc by default."""
        return self.task or "itc"

    @property
    def effective_sentences(self) -> str:
        """How several sentences of an item are compared under these rules."""
        return "first" if self.rules == "published" else self.sentences
