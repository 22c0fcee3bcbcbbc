"""The settings of `evaluate.py`, with their defaults, limits and help."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from render.image import IMAGE_STYLES
from travlr.config import CaptionStyle, one_of
from travlr.corpora.items import MATCH
from travlr.files import path_digest
from travlr.questions import FORMS, PROMPTS, most_tokens
from travlr.questions.forms import SETTINGS
from travlr.scene import SPLITS
from travlr.settings import PathText, Settings, as_written
from travlr.tasks import TASKS, check_name

BLANK, SHUFFLED = "blank", "shuffled"  # ways of showing pictures, beside the styles of scenes
FIXED_ANSWERS = ("true_false", "choice")  # the forms that answers=likelihood is for


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else () if value is None else value


def _task_name(name: str | None) -> str:
    return name if name == MATCH else check_name(name) if name else ""


class ShownStyle(Settings):
    """How a model is shown the examples of a dataset; null for the dataset's own style."""

    image: Annotated[str, one_of("style.image", (*IMAGE_STYLES, BLANK, SHUFFLED))] | None = Field(
        None, description="of pictures, null for the dataset's; blank: white ones, shuffled: those of other items"
    )
    caption: CaptionStyle | None = Field(None, description="of captions, null for the dataset's")


class Evaluation(Settings):
    """One evaluation: a model, the examples that it is asked about, and how it is asked."""

    model_config = ConfigDict(hide_input_in_errors=True)  # it may be a key or a password

    model: str = Field(
        "",
        description="a hub id or folder of a chat model, a finished run as runs/NAME, or with server= a NAME (in "
        "quotes, URL#NAME says both); or a matcher, which scores a picture and a sentence: CLIP and its kind, "
        "visualbert:FILE, uniter:FILE, lxmert:FILE, albef:FILE, or your function as module:function",
    )
    task: Annotated[str, BeforeValidator(_task_name)] = Field(
        "",
        description=f"{', '.join(TASKS)}, or your own as package.module:Class; empty for that of data, or cardinality",
    )
    data: PathText | None = Field(
        None,
        description="a dataset, such as a corpus of others that travlr.convert has written; null for data/TASK, which "
        "is generated if it is missing",
    )
    setting: Annotated[tuple[Annotated[str, one_of("setting", SETTINGS)], ...], BeforeValidator(_listed)] = Field(
        (), description="what the model sees, one or several, such as [image,caption]; empty for all that it takes"
    )
    split: Annotated[tuple[Annotated[str, one_of("split", SPLITS)], ...], BeforeValidator(_listed)] = Field(
        (), description="one or several; empty for the test splits of data"
    )
    limit: int | None = Field(
        500, ge=2, description="the first examples of each split, in whole couples or items; null for all"
    )
    form: Annotated[str, one_of("form", FORMS)] = Field(
        "true_false", description="true_false, choice (of statements), open (a number or a word) or read (the scene)"
    )
    prompt: Annotated[str, one_of("prompt", PROMPTS)] = Field(
        "direct", description="direct (answer alone), reason (think first) or describe (list the objects first)"
    )
    style: ShownStyle = ShownStyle()
    head: Literal["itm", "itc"] | None = Field(
        None, description="itm or itc, of matchers with both; null for the model's own"
    )
    regions: PathText | None = Field(
        None,
        description="of visualbert, uniter and lxmert, and runs with features from files: a folder of UNITER's .npz; "
        "null: the cells of a 6 x 6 grid",
    )
    answers: Literal["generate", "likelihood"] = Field(
        "generate", description="generate, or likelihood: log-probabilities of the answers of true_false and choice"
    )
    max_tokens: int | None = Field(
        None, ge=1, description="of a reply; null for 32 (direct), 1024 (describe, read) or 4096 (reason)"
    )
    temperature: float = Field(0.0, ge=0, description="0 for the likeliest reply")
    seed: int = Field(0, ge=0, lt=1 << 63, description="of replies with a temperature above 0")
    runs: PathText = Field("runs", description="folder with a folder for each evaluation and run")
    revision: str | None = Field(None, description="commit, tag or branch of a hub repository")
    device: str = Field(
        "auto",
        description="auto, cpu, gpu, cuda:1, ... of a local model; balanced, balanced_low_0 or sequential: how "
        "accelerate spreads a chat model over all GPUs",
    )
    precision: Literal["auto", "float32", "bf16"] = Field(
        "auto", description="auto, float32 or bf16, of a local model; auto is float32 for matchers"
    )
    batch_size: int | None = Field(
        None, ge=1, description="requests that a local model answers at a time; null for 8, of matchers 64"
    )
    server: str | None = Field(
        None,
        description="URL of an OpenAI-compatible server, such as http://localhost:8000/v1; a key is read from the "
        "environment variable OPENAI_API_KEY",
    )
    concurrency: int = Field(8, ge=1, description="requests that a server answers at a time")
    timeout: float = Field(300.0, gt=0, description="seconds that a request may take")

    @model_validator(mode="before")
    @classmethod
    def _server_of_model(cls, values: Any) -> Any:
        """Take `URL#NAME` apart."""
        if isinstance(values, Mapping) and isinstance(values.get("model"), str) and "://" in values["model"]:
            address, _, name = values["model"].rpartition("#")
            if not address or values.get("server"):
                raise ValueError(f"model={values['model']}: give server=URL and model=NAME")
            return {**values, "server": address, "model": name}
        return values

    @model_validator(mode="after")
    def _check(self) -> Evaluation:
        if not self.model:
            raise ValueError("model= is missing; give a hub id, a folder, runs/NAME, or server=URL and model=NAME")
        if not re.fullmatch(r"https?://[^@?]+", self.server or "http://none"):  # the message must not show a password
            raise ValueError("server: must begin with http:// or https://, and hold no password or key")
        if self.server is not None and (self.revision is not None or self.precision != "auto"):
            raise ValueError(f"server={self.server}: chooses revision and precision itself; leave these out")
        if self.answers == "likelihood" and (self.form not in FIXED_ANSWERS or self.prompt != "direct"):
            raise ValueError("answers=likelihood: needs form=true_false or form=choice, and prompt=direct")
        return self

    @property
    def most_tokens(self) -> int:
        """Of a reply."""
        return most_tokens(self.form, self.prompt) if self.max_tokens is None else self.max_tokens


def refuse_settings(config: Evaluation, why: str, *names: str) -> None:
    """Raise `ValueError` where one of the settings is not at its default."""
    for name in names:
        if (value := getattr(config, name)) != Evaluation.model_fields[name].default:
            raise ValueError(f"{name}={as_written(value)}: {why}; leave it out")


# Settings that change no reply: where files lie, what computes, how fast, and which examples are asked about.
EXCLUDED = {
    *("data", "setting", "split", "limit", "runs", "device", "batch_size", "concurrency"),
    *("timeout", "max_tokens"),
}


def reply_settings(config: Evaluation, **resolved: Any) -> dict[str, Any]:
    """All that a reply depends on, beside the example. resolved: digests of model and dataset, versions."""
    values = config.model_dump(mode="json", exclude=EXCLUDED)
    return values | {"max_tokens": config.most_tokens, "regions": path_digest(config.regions)} | resolved
