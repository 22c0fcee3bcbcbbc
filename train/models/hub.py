"""Models of `transformers`: fetched from the hub or read from a folder, with their tokenizers and processors."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from train.models.loading import HUB_NAME, one_line, read_json

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")
DOWNLOADED = ("*.json", "*.txt", "*.model", "*.jinja")  # files of a hub repository, beside its weights


def hub_folder(name: str, revision: str | None = None, also: str = "") -> Path:
    """The folder of a model: a local one, or that of a hub repository in the cache, downloaded if need be.

    revision: a commit, tag or branch of the hub repository. also: other valid values of `model=`, for messages. Raises
    ValueError, in one line, if there is no such folder or repository.
    """
    local = Path(name).expanduser()
    if local.is_dir():
        return local
    if local.exists() or not HUB_NAME.fullmatch(name):
        what = "is a file" if local.exists() else "there is no such folder"
        raise ValueError(f"model={name}: {what}; must be a folder that `transformers` saved, a hub id{also}")
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=[*DOWNLOADED, "*.safetensors"]))
        if not any(folder.glob("*.safetensors")):
            patterns = [*DOWNLOADED, "pytorch_model*.bin"]
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except Exception as error:  # the network can raise anything
        raise ValueError(
            f"model={name}: no such folder, nor could it be fetched from the hub ({one_line(error)})"
        ) from None
    return folder


def config_of(name: str, folder: Path) -> dict[str, Any]:
    if not (folder / "config.json").is_file():
        raise ValueError(f"model={name}: has no config.json; give a folder that `transformers` saved")
    try:
        return dict(read_json(folder / "config.json"))
    except ValueError as error:
        raise ValueError(f"model={name}: {str(error).partition('=')[2]}") from None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings and progress bars of `transformers` and the hub while they load."""
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging as transformers_logging

    logging: Any = transformers_logging
    hub: Any = hub_logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub_level = hub.get_verbosity()
    logging.set_verbosity_error()
    hub.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        hub.set_verbosity(hub_level)
        if bars:
            logging.enable_progress_bar()


def first_sentence(error: BaseException) -> str:
    """The first sentence of an error of `transformers`, without its advice to programmers."""
    return one_line(error).partition(". ")[0].removesuffix(".")


def check_weights(name: str, folder: Path) -> None:
    """Raises ValueError, in one line, if a safetensors file of a model is damaged. Only headers are read."""
    for file in sorted(folder.glob("model*.safetensors")):
        try:
            with safe_open(file, "pt"):
                pass
        except (OSError, SafetensorError) as error:
            raise ValueError(f"model={name}: {file.name} is damaged ({first_sentence(error)})") from None


def load_model(
    name: str,
    folder: Path,
    kind: str,
    dtype: torch.dtype | str,
    unused: tuple[str, ...] = (),
    device_map: str | None = None,
) -> Any:
    """A model with its weights, from safetensors or from a file of tensors alone.

    kind: class of `transformers`. unused: prefixes of weights that no score depends on. Weights of heads for other
    purposes are ignored. Raises ValueError if the model cannot be read, lacks weights that a score depends on, or has
    weights for layers that its config does not have.
    """
    import transformers

    options: dict[str, Any] = {"init_codebook": False} if kind == "FlavaForPreTraining" else {}
    options |= {"trust_remote_code": False} if kind.startswith("Auto") else {}
    if device_map is not None:
        if importlib.util.find_spec("accelerate") is None:
            raise ValueError(f"device_map={device_map}: needs accelerate; install it with: pip install -e '.[vlm]'")
        options["device_map"] = device_map
    try:
        with quiet():
            model, report = getattr(transformers, kind).from_pretrained(
                folder,
                dtype=dtype,
                weights_only=True,
                output_loading_info=True,
                local_files_only=True,
                **options,
            )
    except Exception as error:  # a damaged folder can raise anything
        reason = first_sentence(error)
        if "ignore_mismatched_sizes" in str(error):
            reason = "its weights have other shapes than its config.json says"
        raise ValueError(f"model={name}: cannot be loaded ({reason})") from None
    missing = sorted(key for key in report["missing_keys"] if not key.startswith(unused))
    if missing:
        raise ValueError(
            f"model={name}: lacks {len(missing)} of the weights of {kind}, such as {missing[0]}; its scores would be "
            "random"
        )
    children = {key for key, _ in model.named_children()}
    unexpected = sorted(
        key
        for key in report["unexpected_keys"]
        if key.partition(".")[0] in children and not key.endswith(".position_ids") and not key.startswith(unused)
    )
    if unexpected:
        raise ValueError(
            f"model={name}: {kind} with this config does not use {len(unexpected)} of its weights, such as "
            f"{unexpected[0]}"
        )
    return model


def load_processors(name: str, folder: Path, *kinds: str) -> list[Any]:
    """Tokenizers and processors of a folder. Image processors use Pillow, so that pixels are the same everywhere."""
    import transformers

    options = {"local_files_only": True, "trust_remote_code": False}  # otherwise `transformers` asks the user
    try:
        with quiet():
            return [
                getattr(transformers, kind).from_pretrained(
                    folder, **options, **({"backend": "pil"} if kind == "AutoImageProcessor" else {})
                )
                for kind in kinds
            ]
    except Exception as error:  # a damaged file can raise anything
        if "torchvision" in str(error).lower() and importlib.util.find_spec("torchvision") is None:
            raise ValueError(
                f"model={name}: its processor needs torchvision; install it with: pip install -e '.[vlm]'"
            ) from None
        why = first_sentence(error)
        if not any((folder / file).is_file() for file in TOKENIZER_FILES):
            why = f"its folder has none of {', '.join(TOKENIZER_FILES)}"
        raise ValueError(f"model={name}: its tokenizer or processor cannot be loaded ({why})") from None


def check_vocabulary(name: str, model: Any, tokenizer: Any) -> None:
    config = getattr(model.config, "text_config", model.config)
    if len(tokenizer) > config.vocab_size:
        raise ValueError(f"model={name}: its tokenizer has {len(tokenizer)} tokens, its model only {config.vocab_size}")


def torch_device(name: str) -> torch.device:
    """The device of a setting. Raises `ValueError` for one that cannot be used."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device("cuda" if name == "gpu" else name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={name}: cannot be used here ({first_sentence(error)}); use auto or cpu") from None
    return device
