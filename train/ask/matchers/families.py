"""Models of `transformers` with a contrastive or a matching score: a class for each family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from train.ask.matchers.base import Matcher
from train.data.inputs import Tensors


def log_odds(logits: Tensor) -> Tensor:
    """(B, 2), no match and match, to (B,)."""
    return logits[:, 1] - logits[:, 0]


class Clip(Matcher):
    """CLIP and similar models: cosines. The temperature scales all scores alike, so it changes no ranking."""

    heads = ("itc",)

    def see(self, x: Tensors) -> Tensors:
        return {"image": normalize(self.model.get_image_features(**x).pooler_output, dim=-1)}

    def read(self, x: Tensors) -> Tensors:
        return {"text": normalize(self.model.get_text_features(**x).pooler_output, dim=-1)}


class Siglip(Clip):
    """Log-odds of a match. SigLIP was trained on texts padded to full length, without a mask."""

    odds = ("itc",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.token_options = {"padding": "max_length", "max_length": self.longest}
        self.token_options |= {"truncation": False, "return_attention_mask": False}

    def judge(self, both: Tensors) -> Tensor:
        return super().judge(both) * self.model.logit_scale.exp() + self.model.logit_bias


class Blip(Matcher):
    """itm: log-odds of the matching head, whose text encoder attends to the picture. itc: cosines."""

    def see(self, x: Tensors) -> Tensors:
        states = self.model.vision_model(**x).last_hidden_state  # (B, 1 + patches, H)
        return {"image": states if self.head == "itm" else normalize(self.model.vision_proj(states[:, 0]), dim=-1)}

    def read(self, x: Tensors) -> Tensors:
        if self.head == "itm":
            return x
        return {"text": normalize(self.model.text_proj(self.model.text_encoder(**x).last_hidden_state[:, 0]), dim=-1)}

    def judge(self, both: Tensors) -> Tensor:
        if self.head == "itc":
            return super().judge(both)
        ids, mask = both["input_ids"], both["attention_mask"]
        states = self.model.text_encoder(ids, mask, encoder_hidden_states=both["image"]).last_hidden_state
        return log_odds(self.model.itm_head(states[:, 0]))


class Vilt(Matcher):
    """ViLT's ranking logit. Words and patches share all layers, so `see` computes the patch embedding alone."""

    heads, odds = ("itm",), ()
    positions = "config.max_position_embeddings"

    def see(self, x: Tensors) -> Tensors:
        with torch.random.fork_rng([]):  # it shuffles the patches
            states, mask, (place, (_, columns)) = self.model.vilt.embeddings.visual_embed(
                x["pixel_values"], x["pixel_mask"], max_image_length=-1
            )
        order = (place[..., 0] * columns + place[..., 1]).argsort(1)  # back in row order
        patches = states[:, 1:].gather(1, order[..., None].expand(-1, -1, states.shape[-1]))
        return {"image": torch.cat([states[:, :1], patches], 1), "patch_mask": mask}

    def judge(self, both: Tensors) -> Tensor:
        ids, mask = both["input_ids"], both["attention_mask"]
        return self.model(ids, mask, image_embeds=both["image"], pixel_mask=both["patch_mask"]).logits[:, 0]


class Flava(Matcher):
    """itm: log-odds of the matching head of the multimodal encoder, which gets states before the last LayerNorm, as in
    pretraining. itc: cosines."""

    unused = ("image_codebook.", "mim_head.", "mlm_head.", "mmm_image_head.", "mmm_text_head.")

    def see(self, x: Tensors) -> Tensors:
        return {"image": self._projected("image", x)}

    def read(self, x: Tensors) -> Tensors:
        return {"text": self._projected("text", x)}

    def _projected(self, side: str, x: Tensors) -> Tensor:
        flava: Any = self.model.flava
        states = getattr(flava, f"{side}_model")(**x, output_hidden_states=True)
        if self.head == "itm":
            return getattr(flava, f"{side}_to_mm_projection")(states.hidden_states[-1])
        return normalize(getattr(flava, f"{side}_projection")(states.last_hidden_state[:, 0]), dim=-1)

    def judge(self, both: Tensors) -> Tensor:
        if self.head == "itc":
            return super().judge(both)
        states = self.model.flava.multimodal_model(torch.cat([both["image"], both["text"]], 1)).last_hidden_state
        return log_odds(self.model.itm_head(states))


class Blip2(Matcher):
    """itm: log-odds of the matching head, averaged over the queries, which attend to picture and text. itc: the cosine
    of the text and its nearest query (Li et al. 2023, section 3.2)."""

    positions = "config.qformer_config.max_position_embeddings"

    def _queries(self, image: Tensor) -> Tensor:
        return self.model.query_tokens.expand(len(image), -1, -1)  # (B, Q, H)

    def see(self, x: Tensors) -> Tensors:
        image = self.model.vision_model(**x).last_hidden_state  # (B, 1 + patches, H)
        if self.head == "itm":
            return {"image": image}
        states = self.model.qformer(query_embeds=self._queries(image), encoder_hidden_states=image).last_hidden_state
        return {"image": normalize(self.model.vision_projection(states), dim=-1)}  # (B, Q, D)

    def read(self, x: Tensors) -> Tensors:
        if self.head == "itm":
            return x
        embedded = self.model.embeddings(input_ids=x["input_ids"])
        states = self.model.qformer(query_embeds=embedded, query_length=0, attention_mask=x["attention_mask"])
        return {"text": normalize(self.model.text_projection(states.last_hidden_state[:, 0]), dim=-1)}

    def judge(self, both: Tensors) -> Tensor:
        image = both["image"]
        if self.head == "itc":
            return (image @ both["text"][:, :, None]).amax((1, 2))
        query, mask = self._queries(image), both["attention_mask"]
        states = self.model.qformer(
            query_embeds=self.model.embeddings(input_ids=both["input_ids"], query_embeds=query),
            query_length=query.shape[1],
            attention_mask=torch.cat([mask.new_ones(query.shape[:2]), mask], 1),
            encoder_hidden_states=image,
        ).last_hidden_state
        return log_odds(self.model.itm_head(states[:, : query.shape[1]]).mean(1))


class BridgeTower(Matcher):
    """Log-odds of the matching head. The vision tower does not depend on the text, so it runs once for each picture;
    `judge` replaces the `forward` of its layers by their saved outputs."""

    heads = ("itm",)

    @property
    def longest(self) -> int:
        config = self.model.config.text_config
        return int(config.max_position_embeddings - config.pad_token_id - 1)

    def see(self, x: Tensors) -> Tensors:
        visual: Any = self.model.bridgetower.vision_model.visual
        states = [visual.forward_pre(x["pixel_values"])]  # (S, B, H)
        for block in visual.transformer.resblocks:
            states.append(block(states[-1]))
        return {"layers": torch.stack(states).permute(2, 0, 1, 3)}  # (B, 1 + layers, S, H)

    def judge(self, both: Tensors) -> Tensor:
        first, *layers = both["layers"].unbind(1)
        blocks: Any = self.model.bridgetower.vision_model.visual.transformer.resblocks
        for block, output in zip(blocks, layers, strict=True):
            block.forward = lambda *_, output=output: output.transpose(0, 1)
        try:
            return log_odds(self.model(both["input_ids"], both["attention_mask"], image_embeds=first).logits)
        finally:
            for block in blocks:
                del block.forward


FAMILIES: dict[str, tuple[str, type[Matcher]]] = {
    "clip": ("CLIPModel", Clip),
    "metaclip_2": ("MetaClip2Model", Clip),
    "align": ("AlignModel", Clip),
    "altclip": ("AltCLIPModel", Clip),
    "chinese_clip": ("ChineseCLIPModel", Clip),
    "siglip": ("SiglipModel", Siglip),
    "siglip2": ("Siglip2Model", Siglip),
    "blip": ("BlipForImageTextRetrieval", Blip),
    "blip-2": ("Blip2ForImageTextRetrieval", Blip2),
    "vilt": ("ViltForImageAndTextRetrieval", Vilt),
    "flava": ("FlavaForPreTraining", Flava),
    "bridgetower": ("BridgeTowerForImageAndTextRetrieval", BridgeTower),
}
"""By the `model_type` in a model's config: the class of `transformers`, and ours."""


def find_family(config: Mapping[str, Any]) -> tuple[str, type[Matcher]] | None:
    """The entry of `FAMILIES` of a model's config, None if it has none. A BLIP-2 may be generative."""
    family = FAMILIES.get(str(config.get("model_type")))
    is_blip2 = config.get("model_type") == "blip-2"
    return None if family and is_blip2 and family[0] not in (config.get("architectures") or ()) else family
