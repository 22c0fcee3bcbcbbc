"""Fine-tuning of a chat model, from its settings to its results: rows, trainer, weights, the whole test matrix."""

from __future__ import annotations

import contextlib
import shutil
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import torch
import trl
from peft import LoraConfig
from peft.helpers import disable_input_dtype_casting

from train.ask.chat import keep_last_logits
from train.ask.config import Evaluation
from train.ask.evaluation import ask, result_rows
from train.ask.examples import ShownExamples
from train.ask.local import ChatModel, digest_weights
from train.chat.adapters import adapted_layers
from train.chat.config import Tuning
from train.chat.consistency import OwnReplies, consistency_rows
from train.config import OTHER
from train.data.inputs import IGNORED
from train.data.sources import TrainingDataset
from train.learning.devices import accelerator, chosen_precision, gpu_names
from train.prepare import prepare_dataset
from train.results.card import command_text, write_card
from train.results.columns import TEST_SPLITS, Row
from train.results.provenance import provenance
from train.results.store import (
    CURVE,
    is_finished,
    read_curve,
    read_results,
    run_name,
    start_run,
    write_curve,
    write_results,
)
from train.results.tables import transfer_table
from travlr.finetuning.rows import ChatRow, with_pictures
from travlr.finetuning.streams import TrainingStream
from travlr.questions import WORDING_VERSION
from travlr.rewards import correct
from travlr.settings import Log
from travlr.tasks import use_task

CHECKPOINTS = "checkpoints"
BLOCK = 256  # examples made at a time, whole couples
EXCLUDED = ("runs", "data", "device")  # settings that change no result


class ReplyTrainer(trl.SFTTrainer):
    """TRL's trainer for CPUs, where it would compute the logits of all tokens: here those of replies alone. Nor are the
    inputs of adapters cast to float32, which autocast would cast back."""

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        labels = inputs.pop("labels")[:, 1:]
        predicting = (labels != IGNORED).any(0).nonzero().flatten()  # positions of the tokens before
        with disable_input_dtype_casting(model):
            logits = model(**inputs, use_cache=False, logits_to_keep=predicting).logits
        total = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), labels[:, predicting].flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return total / ((labels != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch)


SUPERVISED = (trl.SFTTrainer, trl.SFTConfig)
TRAINERS = {"supervised": SUPERVISED, "consistency": SUPERVISED, "grpo": (trl.GRPOTrainer, trl.GRPOConfig)}


def tune(config: Tuning, log: Log = print, experiment: str | None = None) -> list[Row]:
    """Fine-tune a chat model and ask it in every setting; a row for each setting and test split. A finished run is only
    read, an interrupted one goes on. Raises `ValueError`, in one line, for whatever makes the run impossible."""
    use_task(config.task)
    device = accelerator(config)
    precision = chosen_precision(config.precision, "cuda" if device == "gpu" else "cpu")
    source = TrainingDataset(prepare_dataset(config.data, config.task, config.runs, log))
    # Weights that are trained themselves need all digits of float32.
    exact = "float32" if config.adapter.targets == "none" else precision
    chat = ChatModel(Evaluation(model=config.model, device=device, precision=exact), log)
    settings = tuning_fingerprint(config, source, chat)
    folder = Path(config.runs) / run_name(settings)
    if is_finished(folder):
        log(f"{folder}: finished before; its results follow")
        return read_results(folder)
    stream = training_stream(config, source, chat)
    start_run(folder.parent, settings, str(source.folder))
    tokens = config.max_tokens or 2 * longest_reply(stream, chat.tokenizer)
    if not (folder / CURVE).is_file():
        begin_texts(chat)
        train(config, stream, chat, precision, tokens, folder, log)
    del chat
    asked = Evaluation(
        model=str(folder), task=config.task, data=str(source.folder), split=TEST_SPLITS, limit=config.limit,
        form=config.form, prompt=config.prompt, max_tokens=tokens, runs=config.runs, device=device, precision=precision,
    )  # fmt: skip
    rows = ask_everything(asked, source, settings, folder, log)
    *_, end = read_curve(folder)
    columns = {
        "experiment": experiment,
        "setting": config.setting,
        "seed": config.seed,
        "steps": config.training.steps,
        "parameters": int(end["parameters"] or 0),
        "train_examples": int(end["train_examples"] or 0),
        "unlabelled_examples": int(end["unlabelled_examples"] or 0),
        "train_seconds": end["train_seconds"],
        **provenance(gpu_names(device)),
    }
    write_results(folder, [row | columns for row in rows])
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    rows = read_results(folder)
    write_card(folder, rows, command_text("train.py", config), transfer_table(rows))  # in place of PEFT's
    return rows


def tuning_fingerprint(config: Tuning, source: TrainingDataset, chat: ChatModel) -> dict[str, Any]:
    """Everything that the results depend on."""
    name = chat.folder.resolve().name if Path(config.model).is_dir() else config.model
    resolved = {"model": name, "weights": digest_weights(chat.folder), "dataset": source.digest}
    return config.model_dump(mode="json", exclude=set(EXCLUDED)) | resolved | {"wording": WORDING_VERSION}


# Training ------------------------------------------------------------------------------------------------------------


def training_stream(config: Tuning, source: TrainingDataset, chat: ChatModel) -> TrainingStream:
    """New examples in the settings that the model learns from. Raises `ValueError` for a setting that it lacks."""
    settings: tuple[str, ...] = (config.setting,)
    if config.setting == "mixed":
        settings = ("image+caption", "image", "caption")
    elif config.method == "consistency":
        settings = (config.setting, OTHER[config.setting])
    if not set(settings) <= set(chat.settings):
        raise ValueError(f"setting={config.setting}: model={config.model} takes {' and '.join(chat.settings)} alone")
    return TrainingStream(source.generator.config, setting=settings, form=config.form, prompt=config.prompt)


def longest_reply(stream: TrainingStream, tokenizer: Any) -> int:
    """Tokens of the longest of some right replies."""
    replies = [row["completion"][0]["content"] for row in stream.rows(0, BLOCK)]
    return max(map(len, tokenizer(replies)["input_ids"]))


def begin_texts(chat: ChatModel) -> None:
    """TRL takes the text of the template as it is: where the tokenizer adds a token for its beginning, as it does when
    the model is asked, the template must have it."""
    begin = chat.tokenizer.bos_token
    asked = [{"role": "user", "content": [{"type": "text", "text": ""}] if chat.takes_images else ""}]
    adds = bool(begin) and chat.tokenizer("")["input_ids"][:1] == [chat.tokenizer.bos_token_id]
    if adds and not chat.processor.apply_chat_template(asked, tokenize=False).startswith(begin):
        chat.processor.chat_template = "{{ bos_token }}" + chat.processor.chat_template


def training_rows(stream: TrainingStream, first: int, as_parts: bool) -> Iterator[ChatRow]:
    """A row for each example of a stream from `first` on. as_parts: whether the model's template takes lists of parts,
    or texts."""
    each = len(stream.settings.setting)
    chosen: dict[int, Callable[[Iterator[ChatRow]], Iterator[ChatRow]]] = {1: iter, 2: consistency_rows, 3: mixed_rows}
    for start in range(first * each, stream.length, BLOCK * each):
        for row in map(with_pictures, chosen[each](stream.rows(start, start + BLOCK * each))):
            yield {**row, **{name: _parts(row, name) for name in ("prompt", "completion") if as_parts}}


def mixed_rows(rows: Iterator[ChatRow]) -> Iterator[ChatRow]:
    """One of the three rows of each example: the first half of the time, the others as often."""
    for of_example in zip(rows, rows, rows, strict=False):
        yield of_example[max(zlib.crc32(of_example[0]["id"].encode()) % 4 - 1, 0)]


def _parts(row: ChatRow, name: str) -> list[dict[str, Any]]:
    (message,) = row[name]
    images = [{"type": "image"} for _ in row.get("images", ()) if name == "prompt"]
    return [{**message, "content": [*images, {"type": "text", "text": message["content"]}]}]


def train(
    config: Tuning, stream: TrainingStream, chat: ChatModel, precision: str, tokens: int, folder: Path, log: Log
) -> None:
    """Train, from the last checkpoint if there is one, and save weights, processor and curve in the run's folder."""
    checkpoint = last_checkpoint(folder / CHECKPOINTS)
    done = int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0
    if checkpoint:
        log(f"{folder}: goes on from step {done}")
    arguments = trainer_arguments(config, precision, chat.device.type, tokens, folder)
    rows = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps
    examples = rows // arguments.num_generations if config.method == "grpo" else rows  # of a step
    of_rows = {"stream": stream, "first": done * examples, "as_parts": chat.takes_images}
    options: dict[str, Any] = {"reward_funcs": correct} if config.method == "grpo" else {}
    if (targets := config.adapter.targets) != "none":
        layers, rank = adapted_layers(chat.model, targets, config.model), config.adapter.rank
        options["peft_config"] = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=layers)
    kind = TRAINERS[config.method][0]
    if kind is trl.SFTTrainer and chat.device.type == "cpu" and keep_last_logits(chat.model):
        kind = ReplyTrainer
        chat.model.set_attn_implementation("eager")  # the gradient of fused attention in bf16 is slow
    with out_of_memory(config), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # TRL's use of transformers
        trainer = kind(
            model=chat.model,
            args=arguments,
            train_dataset=datasets.IterableDataset.from_generator(training_rows, gen_kwargs=of_rows),
            processing_class=chat.processor,
            **options,
        )
        if config.method == "consistency":
            chat.config = chat.config.changed(max_tokens=tokens)
            trainer.data_collator = OwnReplies(trainer.data_collator, chat)
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    save_tuned(trainer.accelerator.unwrap_model(trainer.model), chat, config, folder)
    history = trainer.state.log_history
    points = [{name: point.get(name) for name in ("step", "loss", "reward")} for point in history if "loss" in point]
    total, unlabelled = config.training.steps * examples, config.method == "consistency"
    end = {
        "step": trainer.state.global_step,
        "parameters": sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
        "train_examples": total // 2 if unlabelled else total,
        "unlabelled_examples": total // 2 if unlabelled else 0,
        "train_seconds": None if checkpoint else history[-1]["train_runtime"],
    }
    write_curve(folder, [*points, end])  # last, as it says that the rest is whole


def trainer_arguments(config: Tuning, precision: str, device: str, tokens: int, folder: Path) -> Any:
    """The arguments of TRL's trainer. Raises `ValueError` for those of the settings that it does not have."""
    steps = config.training.steps
    arguments: dict[str, Any] = {
        "output_dir": str(folder / CHECKPOINTS),
        "max_steps": steps,
        "per_device_train_batch_size": config.optimiser.batch_size,
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": "linear",
        "warmup_steps": steps // 10,
        "seed": config.seed,
        "bf16": precision == "bf16",
        "use_cpu": device == "cpu",
        "gradient_checkpointing": device != "cpu",
        "save_steps": 50,
        "save_total_limit": 1,
        "ignore_data_skip": True,  # rows begin after those of the checkpoint
        **({"remove_unused_columns": False} if config.method == "consistency" else {}),  # they say what is asked
        "report_to": [],
        "disable_tqdm": not sys.stderr.isatty(),
        # A limit could cut the tokens of pictures.
        **({"max_completion_length": tokens} if config.method == "grpo" else {"max_length": None}),
    }
    kind = TRAINERS[config.method][1]
    try:
        return kind(**arguments | config.trainer)
    except TypeError:
        name = next((name for name in config.trainer if name not in kind.__dataclass_fields__), "")
        raise ValueError(f"trainer.{name}: is no argument of TRL's {kind.__name__}") from None
    except ValueError as error:
        raise ValueError(f"trainer={config.trainer}: {' '.join(str(error).split())}") from None


def last_checkpoint(folder: Path) -> Path | None:
    """The last whole checkpoint, which has the trainer's state; others were being written when the run was killed."""
    whole = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    return max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


@contextlib.contextmanager
def out_of_memory(config: Tuning) -> Iterator[None]:
    """Say in one line which setting to change where memory does not suffice."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        raise ValueError(
            f"optimiser.batch_size={config.optimiser.batch_size}: out of memory; give a smaller one and "
            "trainer.gradient_accumulation_steps, or trainer.gradient_checkpointing=true"
        ) from None


def save_tuned(model: Any, chat: ChatModel, config: Tuning, folder: Path) -> None:
    """Write adapters, or all weights, and the processor, so that `evaluate.py` opens the folder of the run."""
    if config.adapter.targets != "none":
        local = Path(config.model).expanduser()
        model.peft_config["default"].base_model_name_or_path = str(local.resolve()) if local.is_dir() else config.model
        chat.model.config.save_pretrained(folder)
    model.save_pretrained(folder)
    chat.processor.save_pretrained(folder)


# Asking --------------------------------------------------------------------------------------------------------------


def ask_everything(
    config: Evaluation, source: TrainingDataset, settings: dict[str, Any], folder: Path, log: Log
) -> list[Row]:
    """Ask the finished model in all settings that it takes, and score its replies. settings: of the run."""
    chat = ChatModel(config, log)
    config = config.changed(setting=chat.settings)
    examples = ShownExamples(config, source.dataset)
    ask(config, chat, examples, folder, log)
    resolved = {
        "model": settings["model"],
        "origin": "trained" if settings["adapter"]["targets"] == "none" else "adapter",
        "weights": f"{settings['model']} {settings['weights'][:16]}",
        "precision": chat.precision,
        "style": examples.style,
    }
    return result_rows(config, resolved, examples, folder)
