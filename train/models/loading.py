"""Loads published weights into a model, with the tokenizer and the pixel statistics of the checkpoint.

A path is a file (.pt, .pth, .th, .bin, .safetensors), a folder saved by `transformers`, or a repository on the Hugging
Face hub. Pickles are read with `weights_only`: one that would run code is refused.
"""

from __future__ import annotations

import json
import math
import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoTokenizer, BertTokenizer, PreTrainedTokenizerBase, RobertaTokenizer

from train.config import PREPROCESSOR
from train.data.pixels import PUBLISHED, Statistics
from train.models.layers import Model

HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")  # of a repository
SUFFIXES = (".pt", ".pth", ".th", ".bin", ".safetensors")
FOLDER_FILES = ("model.safetensors", "pytorch_model.bin")
WRAPPERS = ("model_state_dict", "state_dict", "model")
TENSORFLOW_RENAMES = ((r"\.gamma$", ".weight"), (r"\.beta$", ".bias"))  # of LayerNorm
OPTIONAL = ("head.", "matching.", "head_m.", "visual_encoder_m.", "text_encoder_m.")  # prefixes
WRONG_MODEL = "choose its own model= and size=base"

TOKENIZERS = {
    "visualbert": "bert-base-uncased",
    "uniter": "bert-base-cased",
    "lxmert": "bert-base-uncased",
    "albef": "bert-base-uncased",
    "bert": "bert-base-cased",
    "roberta": "roberta-base",
}


@dataclass(frozen=True)
class LoadReport:
    """missing: parameters of the model that the checkpoint lacks; they stay random (heads only). unexpected: tensors of
    the checkpoint that the model does not use, under the checkpoint's names."""

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"not in the checkpoint, start at random: {', '.join(self.missing) or 'nothing'}; "
            f"in the checkpoint, not used: {', '.join(self.unexpected) or 'nothing'}"
        )


def load_published(model: Model, path: str | Path) -> LoadReport:
    """Load a checkpoint into `model`, in place, from any key layout that its authors or `transformers` published.

    Raises ValueError, in one line, for a checkpoint that cannot be read, is of another architecture or size, or lacks
    any part of the encoder. A classification head with another number of classes is not loaded, but reported.
    """
    content = read_checkpoint(path)
    model_tensors = model.state_dict()
    tensors: dict[str, Tensor] = {}
    sources: dict[str, str] = {}
    unexpected = []
    for source, value in content.items():
        name = rename_key(source, (*model.renames, *TENSORFLOW_RENAMES))
        if name.endswith("embeddings.position_ids"):  # 0, 1, 2, ...: not a weight
            continue
        if name not in model_tensors or not isinstance(value, Tensor):
            check_depth(path, model_tensors, source, name)
            unexpected.append(source)
            continue
        if name in tensors:
            raise ValueError(f"pretrained={path}: both {sources[name]} and {source} would become {name}")
        tensor = model.adapt(name, value)
        if tensor.shape != model_tensors[name].shape and name.startswith("head"):
            unexpected.append(source)
            continue
        tensors[name], sources[name] = tensor, source
    missing = [name for name in model_tensors if name not in tensors]
    check_complete(path, model_tensors, tensors, sources)
    model.load_state_dict(tensors, strict=False)
    model.after_loading(missing)
    return LoadReport(tuple(missing), tuple(unexpected))


def rename_key(name: str, rules: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name


def check_depth(path: str | Path, model_tensors: dict[str, Tensor], source: str, name: str) -> None:
    """Raises ValueError if `name` (in the file: `source`) belongs to a layer that the model does not have."""
    stack = re.match(r"(.*\.(layer|blocks|r_layers|x_layers)\.)\d+\.", name)
    if stack and any(key.startswith(stack[1]) for key in model_tensors):
        raise ValueError(
            f"pretrained={path}: checkpoint of another architecture: it has {source}, which this model "
            f"lacks; {WRONG_MODEL}"
        )


def check_complete(
    path: str | Path, model_tensors: dict[str, Tensor], tensors: dict[str, Tensor], sources: dict[str, str]
) -> None:
    """Raises ValueError for the first tensor of the encoder that is missing or of another shape."""
    for name, tensor in model_tensors.items():
        if name not in tensors:
            if name.startswith(OPTIONAL):
                continue
            encoder = [key for key in model_tensors if not key.startswith(OPTIONAL)]
            absent = sum(key not in tensors for key in encoder)
            raise ValueError(
                f"pretrained={path}: checkpoint of another architecture: it has no {name} {tuple(tensor.shape)} "
                f"({absent} of the encoder's {len(encoder)} tensors are missing); {WRONG_MODEL}"
            )
        if tensors[name].shape != tensor.shape:
            fix = WRONG_MODEL
            if name.endswith("word_embeddings.weight") and tensors[name].shape[1:] == tensor.shape[1:]:
                fix = f"use its own tokenizer and vocabulary={len(tensors[name])}"
            raise ValueError(
                f"pretrained={path}: checkpoint of another architecture: {sources[name]} is "
                f"{tuple(tensors[name].shape)} there and {tuple(tensor.shape)} in this model; {fix}"
            )


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """The state dict of a checkpoint, without a wrapper around it. Raises ValueError if there is none."""
    content: dict[str, Any] = {}
    for file in weight_files(local_path(path)):
        content |= read_file(file)
    if not any(isinstance(value, Tensor) for value in content.values()):
        raise ValueError(f"pretrained={path}: no tensors in it")
    return content


def read_file(file: Path) -> dict[str, Any]:
    try:
        if file.suffix == ".safetensors":
            content: Any = load_file(file)
        else:
            content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(
            f"pretrained={file}: refused: it holds Python objects, not tensors alone, and opening them can run code"
        ) from None
    except Exception as error:  # a file that is no checkpoint fails in the reader in any way
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(f"pretrained={file}: cannot be read: {type(error).__name__} {reason}") from None
    for wrapper in WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ValueError(f"pretrained={file}: holds no state dict (names and tensors)")
    return content


def local_path(path: str | Path) -> Path:
    """The path of a file or folder; a hub repository is downloaded, unless it is in the hub's cache."""
    local = Path(path).expanduser()
    if local.exists():
        return local
    name = str(path)
    if local.suffix in SUFFIXES or not HUB_NAME.fullmatch(name):
        raise ValueError(f"pretrained={path}: no such file or folder")
    patterns = ["*.json", "*.txt", "*.safetensors", "pytorch_model*.bin"]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise ValueError(
            f"pretrained={path}: no such file or folder, and cannot be downloaded from the hub: {one_line(error)}"
        ) from None


def one_line(error: BaseException) -> str:
    """The first line of an error's message, after its type unless it is an `OSError` or a `ValueError`."""
    message = (str(error).strip().splitlines() or [""])[0]
    if message and isinstance(error, OSError | ValueError):
        return message
    return f"{type(error).__name__}: {message}".rstrip(": ")


def weight_files(path: Path) -> list[Path]:
    """The file itself, or the files in a folder: one file, or the shards that its index names.

    Raises ValueError if no file has the name of a file of weights.
    """
    if path.is_file():
        if path.suffix not in SUFFIXES:
            raise ValueError(f"pretrained={path}: is no file of weights ({', '.join(SUFFIXES)})")
        return [path]
    for name in FOLDER_FILES:
        if (path / name).is_file():
            return [path / name]
        index = path / f"{name}.index.json"
        if index.is_file():
            return shard_files(index)
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
    if len(files) == 1:
        return files
    what = "no weights" if not files else f"{len(files)} files of weights"
    raise ValueError(f"pretrained={path}: {what} in this folder: name one file ({', '.join(SUFFIXES)})")


def shard_files(index: Path) -> list[Path]:
    content = read_json(index)
    names = sorted(set(content["weight_map"].values())) if isinstance(content.get("weight_map"), dict) else []
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise ValueError(f"pretrained={index}: a shard outside its folder: {name!r}")
    if not names:
        raise ValueError(f"pretrained={index}: names no shards (weight_map)")
    return [index.parent / name for name in names]


def read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"pretrained={file}: cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"pretrained={file}: must hold a JSON object")
    return content


def checkpoint_folder(path: str | Path) -> Path:
    local = local_path(path)
    return local if local.is_dir() else local.parent


def tokenizer_of(path: str | Path, name: str) -> PreTrainedTokenizerBase:
    """The tokenizer in the folder of a checkpoint, or else the published one of the model `name`.

    A `vocab.txt` alone lower-cases text if it has no capital letter. Raises ValueError if the published tokenizer is
    needed and cannot be downloaded.
    """
    folder = checkpoint_folder(path)
    kind = RobertaTokenizer if name == "roberta" else BertTokenizer
    options: dict[str, Any] = {}
    vocabulary = folder / "vocab.txt"
    if vocabulary.is_file() and not (folder / "tokenizer_config.json").is_file():
        words = [word for word in vocabulary.read_text(encoding="utf-8").split("\n") if not word.startswith("[")]
        options["do_lower_case"] = all(word == word.lower() for word in words)
    try:
        if any((folder / file).is_file() for file in ("tokenizer.json", "vocab.txt", "vocab.json")):
            return kind.from_pretrained(folder, **options)
        return AutoTokenizer.from_pretrained(TOKENIZERS[name])
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise ValueError(
            f"pretrained={path}: no tokenizer beside it, and {TOKENIZERS[name]} cannot be downloaded "
            f"(put its vocab.txt or tokenizer.json into {folder}): {one_line(error)}"
        ) from None


def save_statistics(folder: Path, statistics: Statistics) -> None:
    """Write the statistics of pixels into a folder, as `pixel_statistics` reads them."""
    names = ("image_mean", "image_std")
    (folder / PREPROCESSOR).write_text(json.dumps(dict(zip(names, statistics, strict=True))), encoding="utf-8")


def pixel_statistics(path: str | Path) -> Statistics:
    """Mean and standard deviation of each channel (0 to 1) by which a checkpoint normalises pixels.

    From `preprocessor_config.json` in its folder, or else those that ALBEF published.
    """
    file = checkpoint_folder(path) / PREPROCESSOR
    if not file.is_file():
        return PUBLISHED
    content = read_json(file)
    mean, std = content.get("image_mean", PUBLISHED[0]), content.get("image_std", PUBLISHED[1])
    for name, values in (("image_mean", mean), ("image_std", std)):
        are_numbers = isinstance(values, list | tuple) and all(
            isinstance(value, float | int) and math.isfinite(value) for value in values
        )
        if not are_numbers or len(values) != 3 or (name == "image_std" and min(values) <= 0):
            raise ValueError(f"pretrained={file}: {name} must be three numbers, not {values!r}")
    return tuple(map(float, mean)), tuple(map(float, std))
