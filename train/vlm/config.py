"""The settings of `evaluate.py`, with their defaults, limits and help."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any

from render.image import IMAGE_STYLES
from render.text import CAPTION_STYLES
from train.config import PRECISIONS
from travlr.options import check_settings, option
from travlr.questions import FORMS, PROMPTS, most_tokens
from travlr.questions.forms import SETTINGS
from travlr.scene import SPLITS
from travlr.tasks import TASKS, check_name

FIXED_ANSWERS = ("true_false", "choice")  # the forms that answers=likelihood is for


@dataclass(frozen=True)
class ShownStyle:
    """How a model is shown the scenes of a dataset; null for the dataset's own style."""

    image: str | None = option(None, "of pictures, null for the dataset's", choices=IMAGE_STYLES)
    caption: str | None = option(None, "of captions, null for the dataset's", choices=CAPTION_STYLES)

    def __post_init__(self) -> None:
        check_settings(self, "style.")


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: a model, the examples that it is asked about, and how it is asked."""

    model: str = option(
        "",
        "a hub id or folder of a chat model, a finished run as runs/NAME, URL#NAME of a server, or with server= a NAME",
    )
    task: str = option("cardinality", f"{', '.join(TASKS)}, or your own as package.module:Class")
    data: str | None = option(None, "folder of a dataset; null for data/TASK, which is generated if it is missing")
    setting: list[str] = option(list(SETTINGS), "what the model sees, one or several", choices=SETTINGS)
    split: list[str] = option(["test_ind", "test_ood"], "one or several", choices=SPLITS)
    limit: int | None = option(500, "the first examples of each split, in whole couples; null for all", least=2)
    form: str = option(
        "true_false",
        choices=dict.fromkeys(FORMS, "")
        | {"choice": "of statements", "open": "a number or a word", "read": "the scene"},
    )
    prompt: str = option(
        "direct",
        choices=dict.fromkeys(PROMPTS, "")
        | {"direct": "answer alone", "reason": "think first", "describe": "list the objects first"},
    )
    style: ShownStyle = field(default_factory=ShownStyle)
    answers: str = option(
        "generate",
        choices={"generate": "", "likelihood": "log-probabilities of the answers of true_false and choice"},
    )
    max_tokens: int | None = option(
        None, "of a reply; null for 32 (direct), 1024 (describe, read) or 4096 (reason)", least=1, below=1 << 63
    )
    temperature: float = option(0.0, "0 for the likeliest reply", least=0)
    seed: int = option(0, "of replies with a temperature above 0", least=0, below=1 << 63)
    runs: str = option("runs", "folder with a folder for each evaluation and run, and the table of all results")
    revision: str | None = option(None, "commit, tag or branch of a hub repository")
    device: str = option("auto", "auto, cpu, gpu, cuda:1, ... of a local model")
    precision: str = option("auto", "of a local model", choices=PRECISIONS)
    batch_size: int = option(8, "requests that a local model answers at a time", least=1, below=1 << 63)
    server: str | None = option(None, "URL of an OpenAI-compatible server, such as http://localhost:8000/v1")
    key: str = option("OPENAI_API_KEY", "name of the environment variable that holds the server's key")
    concurrency: int = option(8, "requests that a server answers at a time", least=1, below=1 << 63)
    timeout: float = option(300.0, "seconds that a request may take", above=0)

    def __post_init__(self) -> None:
        check_settings(self)
        check_name(self.task)
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
        if self.answers == "likelihood" and (self.form not in FIXED_ANSWERS or self.prompt != "direct"):
            raise ValueError("answers=likelihood: needs form=true_false or form=choice, and prompt=direct")

    @property
    def most_tokens(self) -> int:
        """Of a reply."""
        return most_tokens(self.form, self.prompt) if self.max_tokens is None else self.max_tokens


# Settings that change no reply: where files lie, what computes, how fast, and which examples are asked about.
EXCLUDED = (
    *("data", "setting", "split", "limit", "runs", "device", "batch_size", "key", "concurrency"),
    *("timeout", "max_tokens"),
)


def fingerprint(config: Evaluation, **resolved: Any) -> dict[str, Any]:
    """All that a reply depends on, beside the example. resolved: digests of model and dataset, versions."""
    values = {name: value for name, value in dataclasses.asdict(config).items() if name not in EXCLUDED}
    return values | {"max_tokens": config.most_tokens} | resolved
