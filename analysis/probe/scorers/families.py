"""Models of `transformers` as parts of a scorer: which are known, how they are loaded, how each family scores."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from analysis.probe.config import OWN
from analysis.probe.scorers.base import Parts, Tensors, as_is, check_not_spread, cosine, one_line, words_of

QUESTION = 'Does the sentence "{text}" describe this picture? Answer yes or no.'
YES, NO = ("yes", "Yes", "true", "True"), ("no", "No", "false", "False")
WANTED = ("*.json", "*.txt", "*.model", "*.jinja")  # of a hub repository, beside weights


def parts_of(
    name: str, head: str | None, question: str | None, dtype: torch.dtype | None, device_map: str | None
) -> Parts:
    """The parts of a model of `transformers`, by the model_type of its config. See
    `analysis.probe.scorers.loading.load`.

    dtype: what to compute in, None for what the weights are saved in. Models that are not generative come in float32,
    if a dtype is given.
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
        model = loaded(name, folder, family, "auto" if dtype is None else torch.float32)
        tokenizer, processor = read_with(name, folder, "AutoTokenizer", "AutoImageProcessor")
        check_vocabulary(name, model, tokenizer)
        return family.build(name, model, tokenizer, processor, head or family.heads[0])
    if kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        if head is not None:
            raise ValueError(f"head={head}: model={name} ({kind}) is asked yes or no and has no such head")
        model = loaded(name, folder, GENERATIVE, dtype or "auto", device_map)
        return generative(name, model, folder, question or QUESTION)
    if "auto_map" in config:
        raise ValueError(
            f"model={name}: its model_type={kind} is code in the model's own repository, which is not run here; give a "
            "model that `transformers` has the code of (often the same one, converted, whose name ends in -hf)"
        )
    raise ValueError(
        f"model={name}: its config says model_type={kind}; must be one of {', '.join(FAMILIES)}, or a generative "
        f"vision-language model of transformers {__version__}"
    )


def family_of(config: Mapping[str, Any]) -> Family | None:
    """The family of models that score, None of other models. BLIP-2 has one model_type for both."""
    family = FAMILIES.get(str(config.get("model_type")))
    if family is not None and family.build is blip2 and family.kind not in (config.get("architectures") or ()):
        return None
    return family


def folder_of(name: str, setting: str = "model") -> Path:
    """The folder itself, or that of a hub repository, fetched or found in the cache. Raises ValueError, in one line."""
    local = Path(name).expanduser()
    if local.is_dir():
        return local
    if name in OWN:
        raise ValueError(f"model={name}: give its checkpoint, too: {name}:FILE, {name}:FOLDER or {name}:HUB-ID")
    if local.exists() or not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name):
        what = "is a file" if local.exists() else "there is no such folder"
        also = " or MODULE:FUNCTION" if setting == "model" else ""
        raise ValueError(f"{setting}={name}: {what}; must be a folder that `transformers` saved, a hub id{also}")
    from huggingface_hub import snapshot_download

    try:
        found = Path(snapshot_download(name, allow_patterns=[*WANTED, "*.safetensors"]))
        if not any(found.glob("*.safetensors")):
            found = Path(snapshot_download(name, allow_patterns=[*WANTED, "pytorch_model*.bin"]))
    except Exception as error:  # of the network, in any way
        raise ValueError(
            f"{setting}={name}: no such folder, nor could it be fetched from the hub ({one_line(error)})"
        ) from None
    return found


def config_of(name: str, folder: Path) -> dict[str, Any]:
    from train.models.loading import read_json

    if not (folder / "config.json").is_file():
        raise ValueError(f"model={name}: has no config.json; give a folder that `transformers` saved")
    try:
        return dict(read_json(folder / "config.json"))
    except ValueError as error:
        raise ValueError(f"model={name}: {str(error).partition('=')[2]}") from None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the advice and progress bars that `transformers` and the hub write while they load."""
    from huggingface_hub.utils import logging as advice_of_hub
    from transformers.utils import logging as advice

    logging: Any = advice
    of_hub: Any = advice_of_hub
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    level_of_hub = of_hub.get_verbosity()
    logging.set_verbosity_error()
    of_hub.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        of_hub.set_verbosity(level_of_hub)
        if bars:
            logging.enable_progress_bar()


def first_sentence(error: BaseException) -> str:
    """What `transformers` says is wrong, without its advice, which is about calling it from Python."""
    return one_line(error).partition(". ")[0].removesuffix(".")


def loaded(name: str, folder: Path, family: Family, dtype: torch.dtype | str, device_map: str | None = None) -> Any:
    """The model with its weights, from safetensors or from a file of tensors alone.

    Raises ValueError where it cannot be read, lacks weights that a score depends on, or has some for parts of the model
    that are not there, such as more layers than the config says. Heads for other purposes are left out.
    """
    import transformers

    options: dict[str, Any] = {"init_codebook": False} if family.kind == "FlavaForPreTraining" else {}
    options |= {"trust_remote_code": False} if family is GENERATIVE else {}
    if device_map is not None:
        if importlib.util.find_spec("accelerate") is None:
            raise ValueError(f"device_map={device_map}: needs accelerate; install it with: pip install -e '.[vlm]'")
        options["device_map"] = device_map
    try:
        with quiet():
            model, about = getattr(transformers, family.kind).from_pretrained(
                folder,
                dtype=dtype,
                weights_only=True,
                output_loading_info=True,
                local_files_only=True,
                **options,
            )
    except Exception as error:  # a folder that holds no model fails in the reader in any way
        raise ValueError(f"model={name}: cannot be loaded ({first_sentence(error)})") from None
    missing = sorted(key for key in about["missing_keys"] if not key.startswith(family.unused))
    if missing:
        raise ValueError(
            f"model={name}: lacks {len(missing)} of the weights that {family.kind} scores with, the first is "
            f"{missing[0]}; it would score at random"
        )
    own = {key for key, _ in model.named_children()}
    unexpected = sorted(
        key
        for key in about["unexpected_keys"]
        if key.partition(".")[0] in own and not key.endswith(".position_ids") and not key.startswith(family.unused)
    )
    if unexpected:
        raise ValueError(
            f"model={name}: has {len(unexpected)} weights that {family.kind} with this config has no place for, the "
            f"first is {unexpected[0]}"
        )
    return model


def read_with(name: str, folder: Path, *kinds: str) -> list[Any]:
    """The tokenizer and image processor in a folder: those that use Pillow, which give the same pixels everywhere."""
    import transformers

    options = {"local_files_only": True, "trust_remote_code": False}  # without the second, a terminal would be asked
    try:
        with quiet():
            return [
                getattr(transformers, kind).from_pretrained(
                    folder, **options, **({"backend": "pil"} if kind == "AutoImageProcessor" else {})
                )
                for kind in kinds
            ]
    except Exception as error:  # files that others wrote fail in any way
        if "torchvision" in str(error).lower() and importlib.util.find_spec("torchvision") is None:
            raise ValueError(
                f"model={name}: its processor needs torchvision; install it with: pip install -e '.[vlm]'"
            ) from None
        why = first_sentence(error)
        raise ValueError(f"model={name}: its tokenizer or processor cannot be loaded ({why})") from None


def check_vocabulary(name: str, model: Any, tokenizer: Any) -> None:
    config = getattr(model.config, "text_config", model.config)
    if len(tokenizer) > config.vocab_size:
        raise ValueError(f"model={name}: a tokenizer of {len(tokenizer)} words beside a model of {config.vocab_size}")


def tokens_with(name: str, tokenizer: Any, longest: int, **options: Any) -> Callable[[str], Tensors]:
    """text -> input_ids and attention_mask (1, L). A text of more than `longest` tokens is refused, never cut."""

    def tokens(text: str) -> Tensors:
        found = tokenizer(text, return_tensors="pt", verbose=False, **options)
        if (length := found["input_ids"].shape[1]) > longest:
            raise ValueError(f"model={name}: takes {longest} tokens, not the {length} of {text!r}")
        return {key: found[key] for key in ("input_ids", "attention_mask") if key in found}

    return tokens


def pixels_with(processor: Any) -> Callable[[Image.Image], Tensors]:
    def prepare(image: Image.Image) -> Tensors:
        return dict(processor(images=image.convert("RGB"), return_tensors="pt"))

    return prepare


def with_processor(
    model: Any,
    tokenizer: Any,
    processor: Any,
    tokens: Callable[[str], Tensors],
    see: Callable[[Tensors], Tensors],
    read: Callable[[Tensors], Tensors],
    judge: Callable[[Tensors], Tensor],
    threshold: float | None,
) -> Parts:
    """The parts of a model of `transformers`, whose processor prepares pictures."""
    words, prepare = partial(words_of, tokenizer), pixels_with(processor)
    return Parts(model, words, prepare, tokens, see, read, judge, threshold, processor=processor)


def log_odds(logits: Tensor) -> Tensor:
    """(B, 2), no match and match, to (B,)."""
    return logits[:, 1] - logits[:, 0]


def clip(name: str, model: Any, tokenizer: Any, processor: Any, head: str) -> Parts:
    """Cosines. Of CLIP and its like, whose temperature is one factor for all scores and ranks nothing otherwise."""

    def see(x: Tensors) -> Tensors:
        return {"image": normalize(model.get_image_features(**x).pooler_output, dim=-1)}

    def read(x: Tensors) -> Tensors:
        return {"text": normalize(model.get_text_features(**x).pooler_output, dim=-1)}

    tokens = tokens_with(name, tokenizer, model.config.text_config.max_position_embeddings)
    return with_processor(model, tokenizer, processor, tokens, see, read, cosine, None)


def siglip(name: str, model: Any, tokenizer: Any, processor: Any, head: str) -> Parts:
    """Log-odds of a match. SigLIP was trained with texts padded to their full length, and no mask."""
    longest = model.config.text_config.max_position_embeddings
    tokens = tokens_with(
        name,
        tokenizer,
        longest,
        padding="max_length",
        max_length=longest,
        truncation=False,
        return_attention_mask=False,
    )

    def judge(both: Tensors) -> Tensor:
        return cosine(both) * model.logit_scale.exp() + model.logit_bias

    parts = clip(name, model, tokenizer, processor, head)
    return Parts(
        model,
        partial(words_of, tokenizer),
        parts.prepare,
        tokens,
        parts.see,
        parts.read,
        judge,
        0.0,
        processor=processor,
    )


def blip(name: str, model: Any, tokenizer: Any, processor: Any, head: str) -> Parts:
    """itm: log-odds by the matching head over text that attends to the picture. itc: cosines."""
    tokens = tokens_with(name, tokenizer, model.config.text_config.max_position_embeddings)

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
    return with_processor(model, tokenizer, processor, tokens, see, read, judge, threshold)


def vilt(name: str, model: Any, tokenizer: Any, processor: Any, head: str) -> Parts:
    """The logit that ViLT was trained to rank candidates by. Words and patches share all layers, so that of a picture
    only the patch embedding is made once."""
    tokens = tokens_with(name, tokenizer, model.config.max_position_embeddings)

    def see(x: Tensors) -> Tensors:
        with torch.random.fork_rng([]):  # it puts patches into a random order
            states, mask, (place, (_, columns)) = model.vilt.embeddings.visual_embed(
                x["pixel_values"], x["pixel_mask"], max_image_length=-1
            )
        order = (place[..., 0] * columns + place[..., 1]).argsort(1)  # row by row again
        patches = states[:, 1:].gather(1, order[..., None].expand(-1, -1, states.shape[-1]))
        return {"image": torch.cat([states[:, :1], patches], 1), "seen": mask}

    def judge(both: Tensors) -> Tensor:
        return model(
            both["input_ids"], both["attention_mask"], image_embeds=both["image"], pixel_mask=both["seen"]
        ).logits[:, 0]

    return with_processor(model, tokenizer, processor, tokens, see, as_is, judge, None)


def flava(name: str, model: Any, tokenizer: Any, processor: Any, head: str) -> Parts:
    """itm: log-odds by the matching head of the multimodal encoder. itc: cosines."""
    flava = model.flava
    tokens = tokens_with(name, tokenizer, model.config.text_config.max_position_embeddings)

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
    return with_processor(model, tokenizer, processor, tokens, see, read, judge, threshold)


def blip2(name: str, model: Any, tokenizer: Any, processor: Any, head: str) -> Parts:
    """itm: log-odds by the matching head, a mean over the queries, which attend to the picture and to the text. itc:
    the cosine of the query that is nearest to the text (Li et al. 2023, section 3.2)."""
    tokens = tokens_with(name, tokenizer, model.config.qformer_config.max_position_embeddings)

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
        asked = queries(image)
        states = model.qformer(
            query_embeds=model.embeddings(input_ids=both["input_ids"], query_embeds=asked),
            query_length=asked.shape[1],
            attention_mask=torch.cat([everywhere(asked), both["attention_mask"]], 1),
            encoder_hidden_states=image,
            encoder_attention_mask=everywhere(image),
        ).last_hidden_state
        return log_odds(model.itm_head(states[:, : asked.shape[1]]).mean(1))

    threshold = 0.0 if head == "itm" else None
    return with_processor(model, tokenizer, processor, tokens, see, read, judge, threshold)


def bridgetower(name: str, model: Any, tokenizer: Any, processor: Any, head: str) -> Parts:
    """Log-odds by the matching head. The vision tower, which does not depend on the text, runs once for each picture:
    its layers then give back what they gave."""
    visual = model.bridgetower.vision_model.visual
    blocks = visual.transformer.resblocks
    config = model.config.text_config
    tokens = tokens_with(name, tokenizer, config.max_position_embeddings - config.pad_token_id - 1)

    def see(x: Tensors) -> Tensors:
        states = [visual.forward_pre(x["pixel_values"])]  # (S, B, H)
        for block in blocks:
            states.append(block(states[-1]))
        return {"layers": torch.stack(states).permute(2, 0, 1, 3)}  # (B, 1 + layers, S, H)

    def judge(both: Tensors) -> Tensor:
        first, *layers = both["layers"].unbind(1)
        for block, given in zip(blocks, layers, strict=True):
            block.forward = lambda *_, given=given: given.transpose(0, 1)
        try:
            return log_odds(model(both["input_ids"], both["attention_mask"], image_embeds=first).logits)
        finally:
            for block in blocks:
                del block.forward

    return Parts(
        model, partial(words_of, tokenizer), pixels_with(processor), tokens, see, as_is, judge, 0.0, processor=processor
    )


def generative(name: str, model: Any, folder: Path, question: str) -> Parts:
    """Log-odds of "yes" or "true" against "no" or "false" as the next word after the question.

    Of these words, capitalised or not, with or without a space before them, all that are one token count. A model that
    reads with one half and writes with the other (BLIP-2 with T5) begins its answer there. Each picture is encoded once
    in a call, but by towers of which it is not known what belongs to which picture (see `apart`; Pixtral's is one).
    Raises ValueError, in one line, where the processor needs torchvision (those for videos do) and it is not installed.
    """
    if "{text}" not in question:
        raise ValueError(f"question={question!r}: must hold {{text}}, where the sentence goes")
    processor = generative_processor(name, folder)
    tokenizer = getattr(processor, "tokenizer", None)
    if tokenizer is None:
        raise ValueError(f"model={name}: its processor has no tokenizer")
    yes, no = (answers(tokenizer, words) for words in (YES, NO))
    if not yes or not no or set(yes) & set(no):
        raise ValueError(f"model={name}: its tokenizer has no single tokens for yes and no")
    config = getattr(model.config, "text_config", model.config)
    longest = getattr(config, "max_position_embeddings", None)
    begin = getattr(config, "decoder_start_token_id", None)
    begin = config.pad_token_id if begin is None else begin
    # Logits of the last place alone: those of all places have some 300 x 260,000 numbers for each sentence.
    last = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    with quiet():
        inputs = inputs_with(processor)
    towers = [Tower(module) for module in vision_towers(model)]

    def join(image: Image.Image, text: str) -> Tensors:
        for tower in towers:  # all pictures of a call are joined before the first is judged
            tower.known.clear()
        with quiet():
            found = inputs(image.convert("RGB"), question.replace("{text}", text))
        if longest is not None and (length := found["input_ids"].shape[1]) > longest:
            raise ValueError(f"model={name}: takes {longest} tokens, not the {length} of picture and {text!r}")
        # PaliGemma's processor gives labels, too, from which a model computes a loss.
        return {key: value for key, value in found.items() if isinstance(value, Tensor) and key != "labels"}

    def answer(both: Tensors) -> Tensors:
        first = {}
        if config.is_encoder_decoder:
            first["decoder_input_ids"] = torch.full_like(both["input_ids"][:, :1], begin)
        found = model(**both, **first, **last).logits[:, -1].float().log_softmax(-1)  # (B, V)
        of_yes, of_no = found[:, yes].logsumexp(-1), found[:, no].logsumexp(-1)
        return {"score": of_yes - of_no, "yes_or_no": torch.logaddexp(of_yes, of_no).exp()}

    def unused(_: Any) -> Any:
        raise AssertionError("a generative model takes picture and text together")

    prompt = "chat template" if getattr(processor, "chat_template", None) else "plain"
    words = partial(words_of, tokenizer)
    return Parts(
        model, words, unused, unused, unused, unused, unused, 0.0,
        join=join, processor=processor, answer=answer, prompt=prompt,
    )  # fmt: skip


def generative_processor(name: str, folder: Path) -> Any:
    """The processor in a folder, whose pictures are prepared by Pillow wherever the model has code for that, so that a
    score does not depend on whether torchvision, which resizes otherwise, is installed."""
    (processor,) = read_with(name, folder, "AutoProcessor")
    if hasattr(processor, "image_processor"):
        (processor.image_processor,) = read_with(name, folder, "AutoImageProcessor")
    return processor


def vision_towers(model: Any) -> list[Any]:
    """The outermost parts of a model that take pixels and no words."""
    from transformers import PreTrainedModel

    found: dict[str, Any] = {}
    for name, part in model.named_modules():
        if name and isinstance(part, PreTrainedModel) and not any(name.startswith(f"{outer}.") for outer in found):
            taken = inspect.signature(part.forward).parameters
            if ("pixel_values" in taken or GRIDS in taken) and "input_ids" not in taken:
                found[name] = part
    return list(found.values())


GRIDS = "grid_thw"  # (N, 3), of towers that take all pictures' patches in one row: how many each picture has, by sides
OF_PICTURES = ("patch_attention_mask", "aspect_ratio_ids", "aspect_ratio_mask")  # a row for each picture


class Tower:
    """Takes the place of a vision tower's `forward`: pictures that are in `known` are not encoded again.

    known: what was made of each picture, by the SHA-256 of all that the tower takes of it.
    """

    def __init__(self, tower: Any) -> None:
        self.names = list(inspect.signature(tower.forward).parameters)
        self.forward, self.known = tower.forward, dict[bytes, Any]()
        tower.forward = self

    def __call__(self, *given: Any, **options: Any) -> Any:
        options |= dict(zip(self.names, given, strict=False))
        tensors = {name: options.pop(name) for name in list(options) if isinstance(options[name], Tensor)}
        pictures = apart(tensors, self.names[0])
        if not pictures or not all(isinstance(value, bool | int | None) for value in options.values()):
            return self.forward(**tensors, **options)  # what is given may belong to single pictures, too
        keys = [digest(picture) for picture in pictures]
        new = {key: picture for key, picture in zip(keys, pictures, strict=True) if key not in self.known}
        if GRIDS in tensors:
            self.known |= {key: self.forward(**picture, **options) for key, picture in new.items()}
        elif new:
            made = self.forward(**stacked(list(new.values())), **options)
            self.known |= {key: row_of(made, place) for place, key in enumerate(new)}
        return stacked([self.known[key] for key in keys])


def apart(tensors: Tensors, pixels: str) -> list[Tensors]:
    """What a tower takes of each picture; none where it takes something that is not known to be apart."""
    if pixels not in tensors:
        return []
    if set(tensors) == {pixels, GRIDS}:
        sizes = tensors[GRIDS].prod(-1).tolist()
        if sum(sizes) != len(tensors[pixels]):
            return []
        patches = torch.split(tensors[pixels], sizes)
        return [{pixels: some, GRIDS: grid[None]} for some, grid in zip(patches, tensors[GRIDS], strict=True)]
    count = len(tensors[pixels])
    if set(tensors) - {pixels, *OF_PICTURES} or any(len(tensor) != count for tensor in tensors.values()):
        return []
    return [row_of(tensors, place) for place in range(count)]


def digest(picture: Tensors) -> bytes:
    found = sha256()
    for tensor in picture.values():
        found.update(str(tensor.shape).encode())  # a blank picture is the same numbers when it is turned
        found.update(tensor.contiguous().view(torch.uint8).cpu().numpy().data)
    return found.digest()


def row_of(made: Any, place: int) -> Any:
    """One row of tensors, in dictionaries, tuples, lists and `ModelOutput`s as they are."""
    if isinstance(made, Mapping):
        return type(made)(**{name: row_of(value, place) for name, value in made.items()})
    if isinstance(made, tuple | list):
        return type(made)(row_of(value, place) for value in made)
    return made[place : place + 1] if isinstance(made, Tensor) else made


def stacked(rows: Sequence[Any]) -> Any:
    """Rows as one batch: undoes `row_of`."""
    first = rows[0]
    if isinstance(first, Mapping):
        return type(first)(**{name: stacked([row[name] for row in rows]) for name in first})
    if isinstance(first, tuple | list):
        return type(first)(map(stacked, zip(*rows, strict=True)))
    return torch.cat(list(rows)) if isinstance(first, Tensor) else first


def answers(tokenizer: Any, words: Sequence[str]) -> list[int]:
    """The tokens that are one of these words, with or without a space before."""
    found = set()
    for word in words:
        for written in (word, f" {word}"):
            ids = tokenizer.encode(written, add_special_tokens=False)
            if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
                found.add(ids[0])
    return sorted(found)


def inputs_with(processor: Any) -> Callable[[Image.Image, str], Mapping[str, Any]]:
    """How a picture and a question become a model's inputs, B = 1: by the processor's chat template if it has one, else
    after the token for the picture, unless the processor places that itself.

    The template is applied and tokenised in one call: only then does the processor see that many a template writes the
    token for the beginning of a text, which the tokenizer would add once more.
    """
    if getattr(processor, "chat_template", None):

        def chat(image: Image.Image, question: str) -> Mapping[str, Any]:
            content = [{"type": "image", "image": image}, {"type": "text", "text": question}]
            return processor.apply_chat_template(
                [{"role": "user", "content": content}],
                add_generation_prompt=True,
                tokenize=True,
                return_dict=True,
                return_tensors="pt",
            )

        return chat
    token = str(getattr(processor, "image_token", None) or "")
    before = f"{token}\n" if token and not places(processor, token) else ""

    def plain(image: Image.Image, question: str) -> Mapping[str, Any]:
        return processor(images=[image], text=[f"{before}Question: {question} Answer:"], return_tensors="pt")

    return plain


def places(processor: Any, token: str) -> bool:
    """Whether a processor puts the token for the picture where there is none."""
    try:
        found = processor(images=[Image.new("RGB", (64, 64))], text=["?"])["input_ids"][0]
    except ValueError:  # it wants as many tokens as pictures
        return False
    return processor.tokenizer.convert_tokens_to_ids(token) in list(found)


@dataclass(frozen=True)
class Family:
    """kind: the class of `transformers`. build: its parts. heads: what it can score by, the default first. unused:
    beginnings of the names of weights that no score depends on."""

    kind: str
    build: Callable[[str, Any, Any, Any, str], Parts]
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
GENERATIVE = Family("AutoModelForImageTextToText", clip, ())
