"""Models of `transformers` with a contrastive or a matching score: one function for each family makes its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from analysis.probe.scorers.base import ScorerParts, Tensors, cosine, unchanged, words_of


def tokenizer_function(name: str, tokenizer: Any, longest: int, **options: Any) -> Callable[[str], Tensors]:
    """A function text -> input_ids and attention_mask (1, L); it raises ValueError for more than `longest` tokens."""

    def tokens(text: str) -> Tensors:
        encoded = tokenizer(text, return_tensors="pt", verbose=False, **options)
        if (length := encoded["input_ids"].shape[1]) > longest:
            raise ValueError(f"model={name}: takes {longest} tokens, not the {length} of {text!r}")
        return {key: encoded[key] for key in ("input_ids", "attention_mask") if key in encoded}

    return tokens


def pixel_function(processor: Any) -> Callable[[Image.Image], Tensors]:
    def prepare(image: Image.Image) -> Tensors:
        return dict(processor(images=image.convert("RGB"), return_tensors="pt"))

    return prepare


def make_parts(
    model: Any,
    tokenizer: Any,
    processor: Any,
    tokens: Callable[[str], Tensors],
    see: Callable[[Tensors], Tensors],
    read: Callable[[Tensors], Tensors],
    judge: Callable[[Tensors], Tensor],
    threshold: float | None,
) -> ScorerParts:
    """The parts of a model of `transformers`, whose processor prepares pictures."""
    words, prepare = partial(words_of, tokenizer), pixel_function(processor)
    return ScorerParts(model, words, prepare, tokens, see, read, judge, threshold, processor=processor)


def log_odds(logits: Tensor) -> Tensor:
    """(B, 2), no match and match, to (B,)."""
    return logits[:, 1] - logits[:, 0]


def clip(name: str, model: Any, tokenizer: Any, processor: Any, head: str) -> ScorerParts:
    """CLIP and similar models: cosines. The temperature scales all scores alike, so it changes no ranking."""

    def see(x: Tensors) -> Tensors:
        return {"image": normalize(model.get_image_features(**x).pooler_output, dim=-1)}

    def read(x: Tensors) -> Tensors:
        return {"text": normalize(model.get_text_features(**x).pooler_output, dim=-1)}

    tokens = tokenizer_function(name, tokenizer, model.config.text_config.max_position_embeddings)
    return make_parts(model, tokenizer, processor, tokens, see, read, cosine, None)


def siglip(name: str, model: Any, tokenizer: Any, processor: Any, head: str) -> ScorerParts:
    """Log-odds of a match. SigLIP was trained on texts padded to full length, without a mask."""
    longest = model.config.text_config.max_position_embeddings
    options = {"padding": "max_length", "max_length": longest, "truncation": False, "return_attention_mask": False}

    def judge(both: Tensors) -> Tensor:
        return cosine(both) * model.logit_scale.exp() + model.logit_bias

    tokens = tokenizer_function(name, tokenizer, longest, **options)
    return replace(clip(name, model, tokenizer, processor, head), tokens=tokens, judge=judge, threshold=0.0)


def blip(name: str, model: Any, tokenizer: Any, processor: Any, head: str) -> ScorerParts:
    """itm: log-odds of the matching head, whose text encoder attends to the picture. itc: cosines."""
    tokens = tokenizer_function(name, tokenizer, model.config.text_config.max_position_embeddings)

    def see(x: Tensors) -> Tensors:
        states = model.vision_model(**x).last_hidden_state  # (B, 1 + patches, H)
        return {"image": states} if head == "itm" else {"image": normalize(model.vision_proj(states[:, 0]), dim=-1)}

    def read(x: Tensors) -> Tensors:
        if head == "itm":
            return x
        return {"text": normalize(model.text_proj(model.text_encoder(**x).last_hidden_state[:, 0]), dim=-1)}

    def judge(both: Tensors) -> Tensor:
        if head == "itc":
            return cosine(both)
        image = both["image"]
        everywhere = torch.ones(image.shape[:2], dtype=torch.long, device=image.device)
        states = model.text_encoder(
            both["input_ids"], both["attention_mask"], encoder_hidden_states=image, encoder_attention_mask=everywhere
        ).last_hidden_state
        return log_odds(model.itm_head(states[:, 0]))

    threshold = 0.0 if head == "itm" else None
    return make_parts(model, tokenizer, processor, tokens, see, read, judge, threshold)


def vilt(name: str, model: Any, tokenizer: Any, processor: Any, head: str) -> ScorerParts:
    """ViLT's ranking logit. Words and patches share all layers, so only the patch embedding is computed once per
    picture."""
    tokens = tokenizer_function(name, tokenizer, model.config.max_position_embeddings)

    def see(x: Tensors) -> Tensors:
        with torch.random.fork_rng([]):  # it shuffles the patches
            states, mask, (place, (_, columns)) = model.vilt.embeddings.visual_embed(
                x["pixel_values"], x["pixel_mask"], max_image_length=-1
            )
        order = (place[..., 0] * columns + place[..., 1]).argsort(1)  # back in row order
        patches = states[:, 1:].gather(1, order[..., None].expand(-1, -1, states.shape[-1]))
        return {"image": torch.cat([states[:, :1], patches], 1), "seen": mask}

    def judge(both: Tensors) -> Tensor:
        return model(
            both["input_ids"], both["attention_mask"], image_embeds=both["image"], pixel_mask=both["seen"]
        ).logits[:, 0]

    return make_parts(model, tokenizer, processor, tokens, see, unchanged, judge, None)


def flava(name: str, model: Any, tokenizer: Any, processor: Any, head: str) -> ScorerParts:
    """itm: log-odds of the matching head of the multimodal encoder. itc: cosines."""
    flava = model.flava
    tokens = tokenizer_function(name, tokenizer, model.config.text_config.max_position_embeddings)

    def see(x: Tensors) -> Tensors:
        found = flava.image_model(**x, output_hidden_states=True)
        if head == "itm":  # the states before the last LayerNorm, as in pretraining
            return {"image": flava.image_to_mm_projection(found.hidden_states[-1])}
        return {"image": normalize(flava.image_projection(found.last_hidden_state[:, 0]), dim=-1)}

    def read(x: Tensors) -> Tensors:
        found = flava.text_model(**x, output_hidden_states=True)
        if head == "itm":
            return {"text": flava.text_to_mm_projection(found.hidden_states[-1])}
        return {"text": normalize(flava.text_projection(found.last_hidden_state[:, 0]), dim=-1)}

    def judge(both: Tensors) -> Tensor:
        if head == "itc":
            return cosine(both)
        states = flava.multimodal_model(torch.cat([both["image"], both["text"]], 1)).last_hidden_state
        return log_odds(model.itm_head(states))

    threshold = 0.0 if head == "itm" else None
    return make_parts(model, tokenizer, processor, tokens, see, read, judge, threshold)


def blip2(name: str, model: Any, tokenizer: Any, processor: Any, head: str) -> ScorerParts:
    """itm: log-odds of the matching head, averaged over the queries, which attend to picture and text. itc: the cosine
    of the text and its nearest query (Li et al. 2023, section 3.2)."""
    tokens = tokenizer_function(name, tokenizer, model.config.qformer_config.max_position_embeddings)

    def everywhere(states: Tensor) -> Tensor:
        return torch.ones(states.shape[:2], dtype=torch.long, device=states.device)

    def queries(image: Tensor) -> Tensor:
        return model.query_tokens.expand(len(image), -1, -1)  # (B, Q, H)

    def see(x: Tensors) -> Tensors:
        image = model.vision_model(**x).last_hidden_state  # (B, 1 + patches, H)
        if head == "itm":
            return {"image": image}
        states = model.qformer(
            query_embeds=queries(image), encoder_hidden_states=image, encoder_attention_mask=everywhere(image)
        ).last_hidden_state
        return {"image": normalize(model.vision_projection(states), dim=-1)}  # (B, Q, D)

    def read(x: Tensors) -> Tensors:
        if head == "itm":
            return x
        embedded = model.embeddings(input_ids=x["input_ids"])
        states = model.qformer(
            query_embeds=embedded, query_length=0, attention_mask=x["attention_mask"]
        ).last_hidden_state
        return {"text": normalize(model.text_projection(states[:, 0]), dim=-1)}

    def judge(both: Tensors) -> Tensor:
        image = both["image"]
        if head == "itc":
            return (image @ both["text"][:, :, None]).amax((1, 2))
        query = queries(image)
        states = model.qformer(
            query_embeds=model.embeddings(input_ids=both["input_ids"], query_embeds=query),
            query_length=query.shape[1],
            attention_mask=torch.cat([everywhere(query), both["attention_mask"]], 1),
            encoder_hidden_states=image,
            encoder_attention_mask=everywhere(image),
        ).last_hidden_state
        return log_odds(model.itm_head(states[:, : query.shape[1]]).mean(1))

    threshold = 0.0 if head == "itm" else None
    return make_parts(model, tokenizer, processor, tokens, see, read, judge, threshold)


def bridgetower(name: str, model: Any, tokenizer: Any, processor: Any, head: str) -> ScorerParts:
    """Log-odds of the matching head. The vision tower does not depend on the text, so it runs once for each picture;
    `judge` replaces the `forward` of its layers by their saved outputs."""
    visual = model.bridgetower.vision_model.visual
    blocks = visual.transformer.resblocks
    config = model.config.text_config
    tokens = tokenizer_function(name, tokenizer, config.max_position_embeddings - config.pad_token_id - 1)

    def see(x: Tensors) -> Tensors:
        states = [visual.forward_pre(x["pixel_values"])]  # (S, B, H)
        for block in blocks:
            states.append(block(states[-1]))
        return {"layers": torch.stack(states).permute(2, 0, 1, 3)}  # (B, 1 + layers, S, H)

    def judge(both: Tensors) -> Tensor:
        first, *layers = both["layers"].unbind(1)
        for block, output in zip(blocks, layers, strict=True):
            block.forward = lambda *_, output=output: output.transpose(0, 1)
        try:
            return log_odds(model(both["input_ids"], both["attention_mask"], image_embeds=first).logits)
        finally:
            for block in blocks:
                del block.forward

    return ScorerParts(
        model,
        partial(words_of, tokenizer),
        pixel_function(processor),
        tokens,
        see,
        unchanged,
        judge,
        0.0,
        processor=processor,
    )
