"""A trained model as a folder that `from_pretrained` of `transformers` opens.

Its config.json and model.safetensors are those of the class of `transformers` that is the same with its head (BERT,
RoBERTa, LXMERT), or else of `TravlrModel`, which importing this module registers. VisualBERT has another head than the
classes there, controlled models have other poolers, and UNITER and ALBEF have no class.
"""

from __future__ import annotations

import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.configuration_utils import PretrainedConfig
from transformers.modeling_outputs import SequenceClassifierOutput

from train.data.inputs import Inputs
from train.models.albef import Albef
from train.models.bert import Bert, Roberta
from train.models.layers import Model, Shape
from train.models.lxmert import Lxmert
from train.models.uniter import Uniter
from train.models.visualbert import VisualBert
from train.results.store import WEIGHTS

HEADS = "training.safetensors"  # what only training needs: heads of auxiliary targets, ALBEF's teacher
LABELS = {0: "false", 1: "true"}
# Our class -> that of `transformers`, and what its names of tensors begin with in place of ours.
LIBRARY: dict[type[Model], tuple[str, dict[str, str]]] = {
    Bert: ("BertForSequenceClassification", {"model.head.1.": "classifier."}),
    Roberta: ("RobertaForSequenceClassification",
              {"model.head.1.": "classifier.dense.", "model.head.4.": "classifier.out_proj."}),
    Lxmert: ("LxmertForQuestionAnswering", {"model.head.": "answer_head.logit_fc."}),
}  # fmt: skip
OWN: dict[str, type[Model]] = {"visualbert": VisualBert, "uniter": Uniter, "lxmert": Lxmert, "albef": Albef}


class TravlrConfig(PretrainedConfig):  # type: ignore[no-untyped-call]
    """model: a key of `OWN`. shape: fields of `Shape`. controlled: the variant of section 5.1."""

    model_type = "travlr"

    def __init__(
        self, model: str = "uniter", shape: dict[str, Any] | None = None, controlled: bool = False, **settings: Any
    ) -> None:
        self.model, self.shape, self.controlled = model, shape or {}, controlled
        super().__init__(**settings)


class TravlrModel(PreTrainedModel):  # type: ignore[no-untyped-call]
    """A model of this project, as `transformers` has models. Raises `ValueError` for a config of an unknown one."""

    config_class = TravlrConfig
    base_model_prefix = "model"

    def __init__(self, config: TravlrConfig) -> None:
        super().__init__(config)
        if config.model not in OWN:  # never an import: the name is from a file
            raise ValueError(f"config.json: model={config.model}: must be one of {', '.join(OWN)}")
        options = {"controlled": True} if config.controlled else {}
        self.model = OWN[config.model](Shape(**config.shape), **options)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        visual_embeds: Tensor | None = None,
        visual_boxes: Tensor | None = None,
        visual_attention_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Logits (B, 2): false, true. input_ids: (B, L). visual_embeds: (B, R, D), features of regions; visual_boxes:
        (B, R, 4), left, top, right, bottom, 0 to 1. pixel_values: (B, 3, height, width). Masks: (B, L) and (B, R)."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        regions = None if visual_attention_mask is None else visual_attention_mask.bool()
        inputs = Inputs(input_ids, mask.bool(), visual_embeds, visual_boxes, regions, pixel_values)
        return SequenceClassifierOutput(logits=self.model(inputs))


AutoConfig.register("travlr", TravlrConfig)
AutoModel.register(TravlrConfig, TravlrModel)


def in_library(model: Model) -> bool:
    return type(model) in LIBRARY and getattr(model, "fusion", None) is None


def library_config(model: Model) -> PretrainedConfig | None:
    """The content of config.json; None for a class of a user's own."""
    if in_library(model):
        name, _ = LIBRARY[type(model)]
        config = copy.deepcopy(getattr(model, getattr(transformers, name).base_model_prefix).config)
        if isinstance(model, Lxmert):
            config.num_qa_labels = len(LABELS)
    elif type(model) in OWN.values():
        name, (own,) = "TravlrModel", [own for own, kind in OWN.items() if type(model) is kind]
        config = TravlrConfig(own, asdict(model.shape), getattr(model, "fusion", None) is not None)
    else:
        return None
    config.update({"architectures": [name], "id2label": LABELS, "label2id": {text: n for n, text in LABELS.items()}})
    return config


def saved_names(learner: nn.Module) -> dict[str, str]:
    """The name in WEIGHTS of each tensor of a learner that belongs to its model (`learner.model`)."""
    model: Any = learner.model
    starts = LIBRARY[type(model)][1] | {"model.": ""} if in_library(model) else {"model.": "model."}
    names = (name for name in learner.state_dict() if name.startswith("model.") and "_m." not in name)
    by_start = ((name, next(start for start in starts if name.startswith(start))) for name in names)
    return {name: starts[start] + name.removeprefix(start) for name, start in by_start}


def save_model(learner: nn.Module, folder: Path) -> None:
    """Write WEIGHTS, HEADS and config.json into the folder of a run."""
    names, tensors, model = saved_names(learner), learner.state_dict(), cast(Model, learner.model)
    save_file({name: tensors[own] for own, name in names.items()}, folder / WEIGHTS, {"format": "pt"})
    save_file({name: tensor for name, tensor in tensors.items() if name not in names}, folder / HEADS)
    if config := library_config(model):
        config.save_pretrained(folder)


def load_weights(learner: nn.Module, folder: Path) -> None:
    """Load what `save_model` wrote. Raises `OSError`, `SafetensorError` or `RuntimeError` for other weights."""
    own_names = {name: own for own, name in saved_names(learner).items()}
    tensors = load_file(folder / WEIGHTS) | load_file(folder / HEADS)
    learner.load_state_dict({own_names.get(name, name): tensor for name, tensor in tensors.items()})
