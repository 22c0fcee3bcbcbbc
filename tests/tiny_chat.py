"""Tiny generative vision-language models with random weights, with processors and chat templates like those of the hub:
one of each way to begin a text, to show a picture (in one piece, in tiles, in patches) and to attend to it.

Whether the tokenizer and the template add a beginning-of-sequence token is as in each family's published files, since a
score depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers as library
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import nn

models_of: Any = library
WIDTH = 32
TEXT: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
}
VISION: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}
SQUARE: dict[str, Any] = {"size": {"height": 32, "width": 32}}
MERGES = [("y", "e"), ("ye", "s"), ("n", "o"), ("Y", "e"), ("Ye", "s"), ("N", "o"), ("Ġ", "yes"), ("Ġ", "no")]


def tokenizer(begin: str, end: str, marks: Sequence[str] = (), adds: bool = True, **named: str) -> Any:
    """Bytes, and single tokens for yes and no. begin: the beginning-of-sequence token, "" for none; adds: whether the
    tokenizer puts it before a text. named: special tokens that are attributes of the tokenizer."""
    special = list(dict.fromkeys([token for token in (begin, end, "<pad>", *marks, *named.values()) if token]))
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(first + second for first, second in MERGES)]
    vocabulary = {piece: n for n, piece in enumerate([*special, *pieces])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=MERGES))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    if begin and adds:
        made.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", pair=f"{begin} $A {begin} $B", special_tokens=[(begin, vocabulary[begin])]
        )
    made.add_special_tokens(special)
    return models_of.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token=begin or None, eos_token=end, pad_token="<pad>", extra_special_tokens=named
    )


def template(begin: str, user: str, image: str, after: str, reply: str) -> str:
    """A chat template. begin: before all; user, after: around a turn; image: for a picture; reply: begins an answer."""
    return (
        f"{begin}{{% for message in messages %}}{user}{{% for part in message['content'] %}}"
        f"{{% if part['type'] == 'image' %}}{image}{{% else %}}{{{{ part['text'] }}}}{{% endif %}}{{% endfor %}}{after}"
        f"{{% endfor %}}{{% if add_generation_prompt %}}{reply}{{% endif %}}"
    )


BOS = "{{ bos_token }}"


def clip_vision() -> Any:
    return models_of.CLIPVisionConfig(**VISION)


def llava() -> tuple[Any, Any]:
    """LLaVA 1.5: the tokenizer adds BOS, the template does not."""
    words = tokenizer("<s>", "</s>", image_token="<image>")
    config = models_of.LlavaConfig(
        vision_config=clip_vision(),
        text_config=models_of.LlamaConfig(**TEXT, vocab_size=len(words)),
        image_token_index=words.image_token_id,
        vision_feature_layer=-1,
    )
    images = models_of.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    processor = models_of.LlavaProcessor(
        images, words, patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=template("", "USER: ", "<image>\n", " ", "ASSISTANT:"),
    )  # fmt: skip
    return models_of.LlavaForConditionalGeneration(config), processor


def gemma3() -> tuple[Any, Any]:
    """Gemma 3: template and tokenizer both add BOS."""
    words = tokenizer(
        "<bos>", "<eos>", ("<start_of_turn>", "<end_of_turn>"),
        image_token="<image_soft_token>", boi_token="<start_of_image>", eoi_token="<end_of_image>",
    )  # fmt: skip
    config = models_of.Gemma3Config(
        vision_config=models_of.SiglipVisionConfig(**VISION, vision_use_head=False),
        text_config=models_of.Gemma3TextConfig(
            **TEXT, vocab_size=len(words), sliding_window=512, query_pre_attn_scalar=16
        ),
        mm_tokens_per_image=4,
        image_token_index=words.image_token_id,
        boi_token_index=words.boi_token_id,
        eoi_token_index=words.eoi_token_id,
    )
    processor = models_of.Gemma3Processor(
        models_of.Gemma3ImageProcessorPil(**SQUARE), words, image_seq_length=4,
        chat_template=template(
            BOS, "<start_of_turn>user\n", "<start_of_image>", "<end_of_turn>\n", "<start_of_turn>model\n"
        ),
    )  # fmt: skip
    return models_of.Gemma3ForConditionalGeneration(config), processor


def mllama() -> tuple[Any, Any]:
    """Llama 3.2 Vision: template and tokenizer both add BOS; words attend to pictures across."""
    marks = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>")
    words = tokenizer("<|begin_of_text|>", "<|end_of_text|>", marks, image_token="<|image|>")
    vision: dict[str, Any] = {"hidden_size": WIDTH, "intermediate_size": 48, "num_hidden_layers": 2}
    vision |= {"num_global_layers": 1}
    vision |= {"attention_heads": 2, "image_size": 32, "patch_size": 8, "max_num_tiles": 4, "vision_output_dim": 64}
    vision |= {"intermediate_layers_indices": [1]}
    text = {**TEXT, "num_hidden_layers": 3, "cross_attention_layers": [1], "vocab_size": len(words)}
    text |= {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "pad_token_id": words.pad_token_id}
    del text["head_dim"]
    config = models_of.MllamaConfig(vision_config=vision, text_config=text, image_token_index=words.image_token_id)
    images = models_of.MllamaImageProcessorPil(**SQUARE, max_image_tiles=4)
    header = "<|start_header_id|>{role}<|end_header_id|>\n\n"
    processor = models_of.MllamaProcessor(
        images, words,
        chat_template=template(
            BOS, header.format(role="user"), "<|image|>", "<|eot_id|>", header.format(role="assistant")
        ),
    )  # fmt: skip
    return models_of.MllamaForConditionalGeneration(config), processor


def idefics3() -> tuple[Any, Any]:
    """Idefics 3 (SmolVLM's words): the beginning of a turn is BOS, which the template writes."""
    rows = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    marks = ("<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>", *rows)
    words = tokenizer("<|im_start|>", "<|im_end|>", marks, adds=False)
    images = models_of.Idefics3ImageProcessorPil(
        size={"longest_edge": 64}, max_image_size={"longest_edge": 32}, do_image_splitting=True
    )
    processor = models_of.Idefics3Processor(
        images, words, image_seq_len=4,
        chat_template=template("<|im_start|>", "User:", "<image>", "<end_of_utterance>\n", "Assistant:"),
    )  # fmt: skip
    config = models_of.Idefics3Config(
        vision_config=VISION,
        text_config=models_of.LlamaConfig(**TEXT, vocab_size=len(words), pad_token_id=words.pad_token_id),
        scale_factor=2,
        image_token_id=words.convert_tokens_to_ids("<image>"),
    )
    return models_of.Idefics3ForConditionalGeneration(config), processor


def without_video(kind: Any) -> Any:
    """A processor of pictures and texts alone: those for videos need torchvision."""

    class Still(kind):  # type: ignore[misc]
        @classmethod
        def get_attributes(cls) -> list[str]:
            return ["image_processor", "tokenizer"]

    return Still


def qwen3_vl() -> tuple[Any, Any]:
    """Qwen 3 VL: no BOS at all; all pictures' patches in one row, with how many each has."""
    marks = ("<|im_start|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    words = tokenizer("", "<|im_end|>", marks)
    vision: dict[str, Any] = {"depth": 2, "hidden_size": WIDTH, "out_hidden_size": WIDTH, "num_heads": 2}
    vision |= {"patch_size": 8, "intermediate_size": 48, "deepstack_visual_indexes": [0], "num_position_embeddings": 16}
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
    names = {"image": "image_pad", "video": "video_pad", "vision_start": "vision_start", "vision_end": "vision_end"}
    config = models_of.Qwen3VLConfig(
        vision_config=vision, text_config={**TEXT, "vocab_size": len(words), "rope_parameters": rope},
        **{f"{name}_token_id": words.convert_tokens_to_ids(f"<|{token}|>") for name, token in names.items()},
    )  # fmt: skip
    images = models_of.Qwen2VLImageProcessorPil(
        size={"shortest_edge": 32 * 32, "longest_edge": 64 * 64}, patch_size=8, merge_size=2, temporal_patch_size=2
    )
    processor = without_video(models_of.Qwen3VLProcessor)(
        images, words,
        chat_template=template(
            "", "<|im_start|>user\n", "<|vision_start|><|image_pad|><|vision_end|>", "<|im_end|>\n",
            "<|im_start|>assistant\n",
        ),
    )  # fmt: skip
    return models_of.Qwen3VLForConditionalGeneration(config), processor


def internvl() -> tuple[Any, Any]:
    """InternVL: no BOS; a picture becomes several tiles."""
    words = tokenizer(
        "", "<|im_end|>", ("<|im_start|>",), start_image_token="<img>", end_image_token="</img>",
        context_image_token="<IMG_CONTEXT>", video_token="<video>",
    )  # fmt: skip
    config = models_of.InternVLConfig(
        vision_config=models_of.InternVLVisionConfig(**{**VISION, "image_size": [32, 32], "patch_size": [8, 8]}),
        text_config=models_of.Qwen2Config(**TEXT, vocab_size=len(words)),
        image_token_id=words.context_image_token_id,
        image_seq_length=4,
    )
    images = models_of.GotOcr2ImageProcessorPil(**SQUARE, crop_to_patches=True, min_patches=1, max_patches=3)
    processor = without_video(models_of.InternVLProcessor)(
        images, words, image_seq_length=4,
        chat_template=template(
            "", "<|im_start|>user\n", "<IMG_CONTEXT>\n", "<|im_end|>\n", "<|im_start|>assistant\n"
        ),
    )  # fmt: skip
    return models_of.InternVLForConditionalGeneration(config), processor


WITHOUT_BOS = ("qwen3_vl", "internvl")
BUILT: dict[str, Callable[[], tuple[Any, Any]]] = {
    "llava": llava, "gemma3": gemma3, "mllama": mllama, "idefics3": idefics3, "qwen3_vl": qwen3_vl,
    "internvl": internvl,
}  # fmt: skip
NEED_TORCHVISION = WITHOUT_BOS  # whose processors do not load without it


def saved(kind: str, folder: Path) -> Any:
    """Save a model of a family, with weights so large that scores differ, and its tokenizer. Returns its processor."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model, processor = BUILT[kind]()
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if parameter.ndim > 1:
                    nn.init.normal_(parameter, std=0.25)
                elif key.endswith("bias"):
                    nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return processor
