"""Tiny models of each family of matchers, with random weights, as `transformers` saves them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as library
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn

models_of: Any = library
WORDS = (*"abcdefghijklmnopqrstuvwxyz", "red", "blue", "circle", "star", "above", "is", "the", "yes", "no")
WIDTH = 32
# Of every tower: as small as it can be, with two layers.
TOWER: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
VISION: dict[str, Any] = {**TOWER, "image_size": 32, "patch_size": 8}
PICTURE: dict[str, Any] = {"size": {"height": 32, "width": 32}}
ROBERTA_MARKS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "Ġ")


def bert_tokenizer() -> Any:
    vocabulary = {w: n for n, w in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS))}
    return models_of.BertTokenizer(vocab=vocabulary)


def letters(kind: Any, end: str, marks: Sequence[str]) -> Any:
    """A byte-pair tokenizer of single letters, those at the end of a word (or after a space) apart."""
    first, last = ("", "</w>") if end else ("Ġ", "")
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = [*marks, *alphabet, *(f"{first}{letter}{last}" for letter in alphabet)]
    return kind(
        vocab={word: n for n, word in enumerate(vocabulary)}, merges=[("Ġ", x) for x in alphabet] if not end else []
    )


def plain_tokenizer(*marks: str, end: bool = True) -> Any:
    """Words and, at the end, `</s>`; as the tokenizers of SigLIP and of language models."""
    special = ("<pad>", "<unk>", "</s>", *marks)
    vocabulary = {word: n for n, word in enumerate((*special, *WORDS, "?", ".", ":", '"', "\n"))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    if end:
        tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return models_of.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="</s>",
        additional_special_tokens=list(marks),
    )  # fmt: skip


Parts = tuple[Any, Any, Any]  # model, tokenizer, processor of pictures
SQUARE: dict[str, Any] = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}


def like_clip(
    name: str, tokenizer: Any, processor: Any, text: dict[str, Any], vision: dict[str, Any] | None = None, **more: Any
) -> Parts:
    """A model of two towers; `text` and `vision`: settings of the towers beside the size."""
    text = {**TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 40, **text}
    vision = {**VISION, "projection_dim": 16} if vision is None else vision
    config = getattr(models_of, f"{name}Config")(text_config=text, vision_config=vision, **more)
    return getattr(models_of, f"{name}Model")(config), tokenizer, processor


def clip() -> Parts:
    tokenizer = letters(models_of.CLIPTokenizer, "</w>", ("<|startoftext|>", "<|endoftext|>"))
    text = {"projection_dim": 16, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    return like_clip("CLIP", tokenizer, models_of.CLIPImageProcessorPil(**SQUARE), text, projection_dim=16)


def metaclip2() -> Parts:
    text = {"max_position_embeddings": 24, "projection_dim": 16, "bos_token_id": 0, "eos_token_id": 2}
    processor = models_of.CLIPImageProcessorPil(**SQUARE)
    return like_clip("MetaClip2", plain_tokenizer(), processor, text | {"pad_token_id": 0}, projection_dim=16)


def align() -> Parts:
    vision: dict[str, Any] = {"image_size": 32, "width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 64}
    vision |= {"in_channels": [32], "out_channels": [128], "kernel_sizes": [3], "strides": [1], "expand_ratios": [1]}
    vision |= {"num_block_repeats": [1], "depthwise_padding": []}
    processor = models_of.EfficientNetImageProcessorPil(**PICTURE)
    return like_clip("Align", bert_tokenizer(), processor, {}, vision, projection_dim=WIDTH)


def altclip() -> Parts:
    tokenizer = letters(models_of.RobertaTokenizer, "", ROBERTA_MARKS)
    text = {"max_position_embeddings": 48, "project_dim": 16, "pad_token_id": 1}
    return like_clip("AltCLIP", tokenizer, models_of.CLIPImageProcessorPil(**SQUARE), text, projection_dim=16)


def chinese_clip() -> Parts:
    processor = models_of.ChineseCLIPImageProcessorPil(**PICTURE, crop_size={"height": 32, "width": 32})
    return like_clip("ChineseCLIP", bert_tokenizer(), processor, {}, projection_dim=16)


def siglip() -> Parts:
    text = {"max_position_embeddings": 16, "projection_size": WIDTH}
    return like_clip("Siglip", plain_tokenizer(), models_of.SiglipImageProcessorPil(**PICTURE), text, dict(VISION))


def siglip2() -> Parts:
    marks = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁")
    vocabulary = {word: n for n, word in enumerate((*marks, *"abcdefghijklmnopqrstuvwxyz"))}
    tokenizer = models_of.Siglip2Tokenizer(vocab=vocabulary, merges=[])
    processor = models_of.Siglip2ImageProcessorPil(patch_size=8, max_num_patches=16)
    vision = {**TOWER, "patch_size": 8, "num_patches": 16}
    return like_clip("Siglip2", tokenizer, processor, {"projection_size": WIDTH}, vision)


def blip() -> Parts:
    tokenizer = bert_tokenizer()
    text = {**TOWER, "vocab_size": len(tokenizer), "encoder_hidden_size": WIDTH, "max_position_embeddings": 24}
    text |= {"pad_token_id": 0, "bos_token_id": 2, "sep_token_id": 3, "projection_dim": 16}
    config = models_of.BlipConfig(text_config=text, vision_config=dict(VISION), image_text_hidden_size=16)
    return models_of.BlipForImageTextRetrieval(config), tokenizer, models_of.BlipImageProcessorPil(**PICTURE)


def vilt() -> Parts:
    tokenizer = bert_tokenizer()
    config = models_of.ViltConfig(**VISION, vocab_size=len(tokenizer), max_position_embeddings=24)
    processor = models_of.ViltImageProcessorPil(size={"shortest_edge": 32}, size_divisor=8)
    return models_of.ViltForImageAndTextRetrieval(config), tokenizer, processor


def flava() -> Parts:
    tokenizer = bert_tokenizer()
    text = {**TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 24}
    towers = {"text_config": text, "image_config": dict(VISION), "multimodal_config": dict(TOWER)}
    config = models_of.FlavaConfig(**towers, hidden_size=WIDTH, projection_dim=16, init_codebook=False)
    processor = models_of.FlavaImageProcessorPil(**PICTURE, crop_size={"height": 32, "width": 32})
    return models_of.FlavaForPreTraining(config), tokenizer, processor


def bridgetower() -> Parts:
    tokenizer = letters(models_of.RobertaTokenizer, "", ROBERTA_MARKS)
    wide = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}
    text = {**wide, "vocab_size": len(tokenizer), "max_position_embeddings": 48, "pad_token_id": 1}
    vision = {"hidden_size": 64, "num_hidden_layers": 3, "image_size": 32, "patch_size": 8}
    both = {**wide, "num_hidden_layers": 2, "share_cross_modal_transformer_layers": True}
    config = models_of.BridgeTowerConfig(text_config=text, vision_config=vision, **both)
    sizes = {"size": {"shortest_edge": 32}, "crop_size": {"shortest_edge": 32}, "size_divisor": 8}
    processor = models_of.BridgeTowerImageProcessorPil(**sizes)
    return models_of.BridgeTowerForImageAndTextRetrieval(config), tokenizer, processor


def blip2_retrieval() -> Parts:
    """Whose published processor puts tokens for the picture before a text, of which the model takes none."""
    tokenizer = bert_tokenizer()
    queries = {**TOWER, "encoder_hidden_size": WIDTH, "vocab_size": len(tokenizer), "max_position_embeddings": 24}
    about: dict[str, Any] = {"num_query_tokens": 4, "image_text_hidden_size": 16, "image_token_index": len(tokenizer)}
    about |= {"vision_config": dict(VISION), "qformer_config": {**queries, "use_qformer_text_input": True}}
    processor = models_of.Blip2Processor(models_of.BlipImageProcessorPil(**PICTURE), tokenizer, num_query_tokens=4)
    return models_of.Blip2ForImageTextRetrieval(models_of.Blip2Config(**about)), None, processor


BUILT: dict[str, Callable[[], Parts]] = {
    "clip": clip, "metaclip_2": metaclip2, "align": align, "altclip": altclip, "chinese_clip": chinese_clip,
    "siglip": siglip, "siglip2": siglip2, "blip": blip, "blip-2": blip2_retrieval, "vilt": vilt, "flava": flava,
    "bridgetower": bridgetower,
}  # fmt: skip


def saved(name: str, folder: Path) -> Path:
    """A folder with the model of a family, and weights so large that scores differ."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model, tokenizer, processor = BUILT[name]()
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if parameter.ndim > 1:
                    nn.init.normal_(parameter, std=0.25)
                elif key.endswith("bias"):
                    nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return folder


def pictures() -> list[Image.Image]:
    random = np.random.default_rng(0)
    sizes = [(32, 32), (64, 40), (40, 56), (32, 32)]
    return [Image.fromarray(random.integers(0, 256, (height, width, 3), np.uint8)) for width, height in sizes]
