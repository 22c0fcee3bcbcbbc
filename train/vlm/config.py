"""The settings of `evaluate.py`, with their defaults, limits and help."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any

from render.image import IMAGE_STYLES
from render.text import CAPTION_STYLES
from travlr.config import check_choice, check_choices, option
from travlr.questions import FORMS, PROMPTS, most_tokens
from travlr.questions.forms import SETTINGS
from travlr.scene import SPLITS, check_types
from travlr.tasks import TASKS

ANSWERS = ("generate", "likelihood")
FIXED_ANSWERS = ("true_false", "choice")  # the forms that answers=likelihood is for


@dataclass(frozen=True)
class Price:
    """What a server's tokens cost."""

    input: float = option(0.0, "of a million tokens of requests, in your currency")
    output: float = option(0.0, "of a million tokens of replies")

    def __post_init__(self) -> None:
        check_types(self, "price.")
        for name, value in dataclasses.asdict(self).items():
            if not 0 <= value < float("inf"):
                raise ValueError(f"price.{name}={value}: must be 0 or more")


@dataclass(frozen=True)
class ShownStyle:
    """How a model is shown the scenes of a dataset; null for the dataset's own style."""

    image: str | None = option(None, f"of pictures: null for the dataset's, or {', '.join(IMAGE_STYLES)}")
    caption: str | None = option(None, f"of captions: null for the dataset's, or {', '.join(CAPTION_STYLES)}")

    def __post_init__(self) -> None:
        check_types(self, "style.")
        for name, valid in (("image", IMAGE_STYLES), ("caption", CAPTION_STYLES)):
            if getattr(self, name) is not None:
                check_choice(f"style.{name}", getattr(self, name), valid)


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: a model, the examples that it is asked about, and how it is asked."""

    model: str = option(
        "",
        "a hub id or folder of a chat model, a finished run as runs/NAME, URL#NAME of a server, or with server= a NAME",
    )
    task: str = option("cardinality", f"{', '.join(TASKS)}")
    data: str | None = option(None, "folder of a dataset; null for data/TASK, which is generated if it is missing")
    audit: bool = option(True, "refuse a dataset that fails its audit; the audit takes half a minute, once")
    setting: list[str] = option(list(SETTINGS), "what the model sees: one or several of image, caption, image+caption")
    split: list[str] = option(["test_ind", "test_ood"], "one or several splits of the dataset")
    limit: int | None = option(500, "the first examples of each split, in whole couples; null for all")
    form: str = option(
        "true_false", "true_false, choice (of statements), open (a number or a word) or read (the scene)"
    )
    prompt: str = option("direct", "direct (answer alone), reason (think first) or describe (list the objects first)")
    style: ShownStyle = field(default_factory=ShownStyle)
    answers: str = option(
        "generate", "generate, or likelihood: log-probabilities of the answers of true_false and choice"
    )
    max_tokens: int | None = option(None, "of a reply; null for 32 (direct), 1024 (describe, read) or 4096 (reason)")
    temperature: float = option(0.0, "0 for the likeliest reply")
    seed: int = option(0, "of replies with a temperature above 0")
    runs: str = option("runs", "folder with a folder for each evaluation and run, and the table of all results")
    revision: str | None = option(None, "commit, tag or branch of a hub repository")
    device: str = option("auto", "auto, cpu, gpu, cuda:1, ... of a local model")
    precision: str = option(
        "auto", "float32, bf16, or auto: bf16 if a short trial is 1.5 times faster; the choice is saved in runs"
    )
    batch_size: int = option(8, "requests that a local model answers at a time")
    server: str | None = option(None, "URL of an OpenAI-compatible server, such as http://localhost:8000/v1")
    key: str = option("OPENAI_API_KEY", "name of the environment variable that holds the server's key")
    concurrency: int = option(8, "requests that a server answers at a time")
    retries: int = option(6, "of a request after 429, 5xx, a timeout or a broken reply, with growing pauses")
    timeout: float = option(300.0, "seconds that a request may take")
    price: Price = field(default_factory=Price)
    max_tokens_total: int | None = option(None, "stop before the tokens of all requests and replies exceed this number")
    max_cost: float | None = option(None, "stop before the cost exceeds this; needs price.input and price.output")

    def __post_init__(self) -> None:
        check_types(self)
        address, hash_sign, name = self.model.rpartition("#")
        if hash_sign and "://" in address and self.server is not None:
            raise ValueError(f"model={self.model}: names a server too; give server={address} or leave out server=")
        if hash_sign and "://" in address and name:
            object.__setattr__(self, "server", address)
            object.__setattr__(self, "model", name)
        if self.server is not None and not self.server.startswith(("http://", "https://")):
            raise ValueError(f"server={self.server}: must begin with http:// or https://")
        if self.server is None and "://" in self.model:
            raise ValueError(f"model={self.model}: give URL#NAME, with the name of a model of the server")
        if self.server is not None and self.revision is not None:
            raise ValueError(f"revision={self.revision}: is for models of the hub; a server chooses its own")
        if self.server is not None and ("@" in self.server or "?" in self.server):
            raise ValueError(
                "server: must not hold a password or a key, which would be saved; give the key in a variable (key=)"
            )
        if self.server is not None and self.precision != "auto":
            raise ValueError(f"precision={self.precision}: is for local models; leave it out")
        if not re.fullmatch(r"[A-Za-z_]\w*", self.key, re.ASCII):  # the message must not show a key
            raise ValueError("key: must be the name of an environment variable, such as OPENAI_API_KEY")
        if self.server is None and (self.max_tokens_total is not None or self.max_cost is not None):
            raise ValueError("max_tokens_total and max_cost: are for servers; use limit=")
        check_choice("task", self.task, TASKS)
        check_choices("setting", self.setting, SETTINGS)
        check_choices("split", self.split, SPLITS)
        for name, valid in (("form", FORMS), ("prompt", PROMPTS), ("answers", ANSWERS)):
            check_choice(name, getattr(self, name), valid)
        check_choice("precision", self.precision, ("auto", "float32", "bf16"))
        self._check_numbers()
        if self.answers == "likelihood" and (self.form not in FIXED_ANSWERS or self.prompt != "direct"):
            raise ValueError("answers=likelihood: needs form=true_false or form=choice, and prompt=direct")

    def _check_numbers(self) -> None:
        lowest: dict[str, float] = {"batch_size": 1, "concurrency": 1, "retries": 0, "temperature": 0, "seed": 0}
        lowest |= {"limit": 2, "max_tokens": 1, "max_tokens_total": 1, "max_cost": 0}
        for name, least in lowest.items():
            value = getattr(self, name)
            if value is not None and not least <= value < 2**63:
                raise ValueError(f"{name}={value}: must be {least} or more")
        if not 0 < self.timeout < float("inf"):
            raise ValueError(f"timeout={self.timeout}: must be a finite number of seconds above 0")
        if self.max_cost == 0:
            raise ValueError("max_cost=0: must be above 0")
        if self.max_cost is not None and not (self.price.input or self.price.output):
            raise ValueError("max_cost: needs price.input and price.output, the cost of a million tokens")

    @property
    def most_tokens(self) -> int:
        """Of a reply."""
        return most_tokens(self.form, self.prompt) if self.max_tokens is None else self.max_tokens


@dataclass(frozen=True)
class LogSettings:
    """The settings of `evaluate.py log=FILE`."""

    log: str = option("", "a log of Inspect (.eval or .json) to make an evaluation of; needs no model=")
    data: str | None = option(None, "folder of the dataset; null for the one that the log names")
    runs: str = option("runs", "folder with a folder for each evaluation and run, and the table of all results")

    def __post_init__(self) -> None:
        check_types(self)


# Settings that change no reply: where files lie, what computes, how fast, and which examples are asked about.
EXCLUDED = (
    *("data", "audit", "setting", "split", "limit", "runs", "device", "batch_size", "key", "concurrency", "retries"),
    *("timeout", "price", "max_tokens_total", "max_cost", "max_tokens"),
)


def fingerprint(config: Evaluation, **resolved: Any) -> dict[str, Any]:
    """All that a reply depends on, beside the example. resolved: digests of model and dataset, versions."""
    values = {name: value for name, value in dataclasses.asdict(config).items() if name not in EXCLUDED}
    return values | {"max_tokens": config.most_tokens} | resolved
