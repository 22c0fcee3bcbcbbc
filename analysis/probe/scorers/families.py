"""Which models of `transformers` can be scorers, by the `model_type` in their config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from analysis.probe.scorers.base import ScorerParts, check_not_spread
from analysis.probe.scorers.contrastive import blip, blip2, bridgetower, clip, flava, siglip, vilt
from analysis.probe.scorers.generative import QUESTION, generative
from train.models.hub import check_vocabulary, config_of, folder_of, load_model, load_processors


@dataclass(frozen=True)
class Family:
    """Models that are scored in the same way.

    kind: class of `transformers`. build: (name, model, tokenizer, image processor, head) -> parts. heads: the heads
    that the models have, the default first. unused: prefixes of weights that no score depends on.
    """

    kind: str
    build: Callable[[str, Any, Any, Any, str], ScorerParts]
    heads: tuple[str, ...]
    unused: tuple[str, ...] = ()


FAMILIES = {
    "clip": Family("CLIPModel", clip, ("itc",)),
    "metaclip_2": Family("MetaClip2Model", clip, ("itc",)),
    "align": Family("AlignModel", clip, ("itc",)),
    "altclip": Family("AltCLIPModel", clip, ("itc",)),
    "chinese_clip": Family("ChineseCLIPModel", clip, ("itc",)),
    "siglip": Family("SiglipModel", siglip, ("itc",)),
    "siglip2": Family("Siglip2Model", siglip, ("itc",)),
    "blip": Family("BlipForImageTextRetrieval", blip, ("itm", "itc")),
    "blip-2": Family("Blip2ForImageTextRetrieval", blip2, ("itm", "itc")),
    "vilt": Family("ViltForImageAndTextRetrieval", vilt, ("itm",)),
    "flava": Family(
        "FlavaForPreTraining",
        flava,
        ("itm", "itc"),
        ("image_codebook.", "mim_head.", "mlm_head.", "mmm_image_head.", "mmm_text_head."),
    ),
    "bridgetower": Family("BridgeTowerForImageAndTextRetrieval", bridgetower, ("itm",)),
}


def family_of(config: Mapping[str, Any]) -> Family | None:
    """The family of a model, None for models without a matching or contrastive score.

    BLIP-2 has the same `model_type` for retrieval and for generation; `architectures` tells them apart.
    """
    family = FAMILIES.get(str(config.get("model_type")))
    if family is not None and family.build is blip2 and family.kind not in (config.get("architectures") or ()):
        return None
    return family


def hub_parts(
    name: str, head: str | None, question: str | None, dtype: torch.dtype | None, device_map: str | None
) -> ScorerParts:
    """The parts of a model of `transformers`; see `analysis.probe.scorers.loading.load`.

    dtype: type to compute in, None for the type of the saved weights. Models that are not generative are loaded in
    float32 if a dtype is given.
    """
    from transformers import __version__
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    folder = folder_of(name)
    config = config_of(name, folder)
    kind = str(config.get("model_type"))
    family = family_of(config)
    if family is not None:
        check_not_spread(name, device_map)
        if head is not None and head not in family.heads:
            raise ValueError(f"head={head}: model={name} ({kind}) has {' and '.join(family.heads)} only")
        model = load_model(name, folder, family.kind, "auto" if dtype is None else torch.float32, family.unused)
        tokenizer, processor = load_processors(name, folder, "AutoTokenizer", "AutoImageProcessor")
        check_vocabulary(name, model, tokenizer)
        return family.build(name, model, tokenizer, processor, head or family.heads[0])
    if kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        if head is not None:
            raise ValueError(f"head={head}: model={name} ({kind}) is asked yes or no and has no such head")
        model = load_model(name, folder, "AutoModelForImageTextToText", dtype or "auto", device_map=device_map)
        return generative(name, model, folder, question or QUESTION)
    if "auto_map" in config:
        raise ValueError(
            f"model={name}: its model_type={kind} needs code from the model's own repository, which is not run here; "
            "give a model that `transformers` supports (often a converted one whose name ends in -hf)"
        )
    raise ValueError(
        f"model={name}: its config says model_type={kind}; must be one of {', '.join(FAMILIES)}, or a generative "
        f"vision-language model of transformers {__version__}"
    )
