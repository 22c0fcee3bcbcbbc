"""The settings of fine-tuning a chat model, where they differ from those of our models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from train.config import ARCHITECTURES, OTHER, AnyRun
from travlr.config import one_of
from travlr.plugins import is_import
from travlr.questions import FORMS
from travlr.settings import Settings, as_written


def is_chat_model(name: str) -> bool:
    """Whether `model=` is a folder or a hub id, and none of our models."""
    return name not in ARCHITECTURES and not is_import(name) and ("/" in name or Path(name).is_dir())


class Adapter(Settings):
    """Low-rank adapters (LoRA) of linear layers."""

    rank: int = Field(16, ge=1, description="of adapters (LoRA); their alpha is twice as much")
    targets: Literal["language", "vision", "connector", "all", "none"] = Field(
        "all",
        description="linear layers that get adapters: of the language model, the vision encoder, the connector between "
        "them, or all; none trains all weights themselves",
    )


class ChatOptimiser(Settings):
    batch_size: int = Field(8, ge=1, description="rows on a device at a time")
    learning_rate: float | None = Field(None, gt=0, description="null for 5e-4 (adapters) or 5e-5 (all weights)")


class ChatTraining(Settings):
    steps: int = Field(300, ge=1, description="optimiser steps, each with new examples")


class Tuning(AnyRun):
    """The settings of one fine-tuning of a chat model."""

    method: Literal["supervised", "consistency", "grpo"] = Field(
        "supervised",
        description="supervised; consistency: also learn from its own replies about unlabelled pairs of image and "
        "caption; or grpo: reinforcement learning with an exact reward",
    )
    form: Annotated[str, one_of("form", FORMS)] = Field(
        "true_false", description="as for evaluate.py: true_false, choice, open or read"
    )
    prompt: Literal["direct", "describe"] = Field(
        "describe", description="describe (the steps, then the answer) or direct (the answer alone)"
    )
    adapter: Adapter = Adapter()
    optimiser: ChatOptimiser = ChatOptimiser()
    training: ChatTraining = ChatTraining()
    limit: int | None = Field(500, ge=2, description="examples of each test split that it is asked about; null for all")
    max_tokens: int | None = Field(None, ge=1, description="of a reply; null for twice the longest right one")

    @model_validator(mode="after")
    def _fits(self) -> Tuning:
        if self.method == "grpo" and self.setting == "mixed":
            raise ValueError("setting=mixed: GRPO takes no rows with and without pictures at once; use another setting")
        if self.method == "consistency" and self.setting not in OTHER:
            raise ValueError(f"method=consistency: needs setting=image or caption, not {self.setting}")
        return self

    @property
    def learning_rate(self) -> float:
        return self.optimiser.learning_rate or (5e-5 if self.adapter.targets == "none" else 5e-4)


# One command for both kinds of models ---------------------------------------------------------------------------------


def joined_defaults(ours: Any, chat: Any) -> Any:
    """The settings of both kinds with their defaults. Where the two differ, OmegaConf chooses by `model`."""
    if isinstance(ours, dict) and isinstance(chat, dict):
        both = {name: joined_defaults(ours[name], chat[name]) for name in ours if name in chat}
        return {**ours, **both, **{name: value for name, value in chat.items() if name not in ours}}
    return ours if ours == chat else f"${{by_model:${{model}},{as_written(ours)},{as_written(chat)}}}"


def by_model(model: str, ours: Any, chat: Any) -> Any:
    """The resolver of `joined_defaults`."""
    return chat if is_chat_model(model) else ours


def own_settings(own: Settings, other: Settings, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of settings that `own` has. own, other: the defaults of the two kinds.

    Raises `ValueError` for a setting of the other kind alone that is not at its default.
    """
    kept: dict[str, Any] = {}
    others = other.model_dump(mode="json")
    for name, value in values.items():
        mine, theirs = (getattr(settings, name, None) for settings in (own, other))
        if isinstance(theirs, Settings) and (mine is None or isinstance(mine, Settings)):
            inner = own_settings(mine or Settings(), theirs, value, f"{prefix}{name}.")
            kept |= {} if mine is None else {name: inner}
        elif name in type(own).model_fields or name not in others:
            kept[name] = value
        elif value != others[name]:
            raise ValueError(f"{prefix}{name}={as_written(value)}: is no setting of this kind of model; leave it out")
    return kept
