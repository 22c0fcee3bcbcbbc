"""One run from its config to its results: data, model, training, the whole test matrix."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoTokenizer

from train.config import Run
from train.data.examples import VisualSettings
from train.data.pixels import PUBLISHED
from train.data.sources import TrainingDataset
from train.data.text import WordTokenizer, grammar_tokenizer
from train.fingerprint import began_pretrained, fingerprint
from train.learning.batches import RunData, count_examples, training_schedule
from train.learning.devices import (
    accelerator,
    chosen_precision,
    gpu_names,
    is_main_process,
)
from train.learning.loop import CHECKPOINTS, TrainingData, fit, make_trainer
from train.learning.module import Learner
from train.learning.testing import test_matrix
from train.models import make_model, shape_of
from train.models.layers import Model
from train.models.loading import (
    load_published,
    local_path,
    pixel_statistics,
    save_statistics,
    tokenizer_of,
    weight_files,
)
from train.models.positions import start_positions
from train.models.saved import load_weights, save_model
from train.prepare import dataset_folder, prepare_dataset
from train.results.card import CARD, command_text, write_card
from train.results.columns import TEST_SPLITS, Row
from train.results.predictions import write_predictions
from train.results.provenance import provenance
from train.results.store import WEIGHTS, is_finished, read_config, read_results, run_name, start_run, write_results
from train.results.tables import transfer_table
from travlr.config import Style
from travlr.files import path_digest
from travlr.settings import Log
from travlr.tasks import use_task


def run(config: Run, log: Log = print, experiment: str | None = None) -> list[Row]:
    """Train and test; returns the results, one row for each test setting and split. A finished run is only read.

    experiment: a name for the results. With several processes (several devices), only the main process returns rows.
    Raises `ValueError`, in one line that names the setting, for whatever makes the run impossible.
    """
    use_task(config.task)
    device = accelerator(config)
    log = log if is_main_process() else lambda line: None
    if is_main_process():
        prepare_dataset(config.data, config.task, config.runs, log)
    source = TrainingDataset(dataset_folder(config.data, config.task))
    settings = fingerprint(config, source.digest)
    folder = Path(config.runs) / run_name(settings)
    if not is_finished(folder):
        train_and_test(config, source, settings, folder, device, log, experiment)
    elif is_main_process():
        log(f"{folder}: finished before; its results follow")
    if not is_main_process():
        return []
    rows = read_results(folder)
    if not (folder / CARD).is_file():
        write_card(folder, rows, command_text("train.py", config), transfer_table(rows))
    return rows


def train_and_test(
    config: Run,
    source: TrainingDataset,
    settings: dict[str, Any],
    folder: Path,
    device: str,
    log: Log,
    experiment: str | None,
) -> None:
    """Train a model, test it in every setting, and write its results into its folder. settings: its fingerprint."""
    precision = chosen_precision(config.precision, "cuda" if device == "gpu" else "cpu")
    log(f"{folder}: {device}, {precision}")
    data = load_data(config, source)
    schedule = training_schedule(data)
    learner, weights = make_learner(config, data, schedule.steps, log)
    trainer = make_trainer(config, schedule, folder, device, precision)
    if is_main_process():
        start_run(folder.parent, settings, str(source.folder))
        save_preprocessing(data, folder)
    if (folder / CHECKPOINTS).is_dir():
        log(f"{folder}: goes on from its last checkpoint")
    for logger in trainer.loggers:
        logger.log_hyperparams(settings)
    train_seconds = fit(trainer, learner, TrainingData(schedule, data.validation_batches))
    if not is_main_process():
        return
    save_model(learner, folder)
    start = time.monotonic()
    rows, predictions = test_matrix(data, learner.model, device, precision)
    columns = {  # of every row
        "experiment": experiment,
        "model": config.model,
        "size": config.size,
        "setting": config.setting,
        "task": config.task,
        "seed": config.seed,
        "parameters": sum(p.numel() for p in learner.model.parameters() if p.requires_grad),
        "weights": weights,
        "regions": config.regions.kind if data.visual.sees == "regions" else None,
        "precision": precision,
        "steps": learner.steps,
        **count_examples(config, schedule, learner.steps),
        "train_seconds": round(train_seconds, 1),
        "evaluate_seconds": round(time.monotonic() - start, 1),
        "dataset": source.digest,
        **provenance(gpu_names(device)),
    }
    for logger in trainer.loggers:
        logger.log_metrics({f"test/{r['test_setting']}/{r['split']}/f1": r["macro_f1"] for r in rows}, learner.steps)
        logger.finalize("success")
    write_predictions(folder, predictions)
    write_results(folder, [row | columns for row in rows])
    shutil.rmtree(folder / CHECKPOINTS)  # several times the size of the weights


def load_data(config: Run, source: TrainingDataset) -> RunData:
    """The data of a run, with its tokenizer and the inputs of its model.

    Raises `ValueError`, before any training, if a file of features lacks a picture of the test splits.
    """
    visual = visual_settings(config)
    data = RunData(config, source, tokenizer_for(config, source.style.caption), visual)
    if visual.sees == "regions" and config.regions.kind == "file":
        for split in TEST_SPLITS:
            data.examples(split)
    return data


def save_preprocessing(data: RunData, folder: Path) -> None:
    """Write what the inputs are made with into the folder of a run: the tokenizer, and the statistics of pixels."""
    data.tokenizer.tokenizer.save_pretrained(folder)
    if data.visual.sees == "pixels":
        save_statistics(folder, data.visual.statistics)


def make_learner(config: Run, data: RunData, steps: int, log: Log) -> tuple[Learner, str]:
    """The model with its losses, and the origin of its weights. steps: of the optimiser."""
    dimension = data.validation.regions.dimension if data.validation.regions is not None else 0
    torch.manual_seed(config.seed)
    model, weights = build_model(config, data.tokenizer, dimension, log)
    learner = Learner(model, config.details, config.learning_rate, steps, config.seed)
    if config.start:
        weights = start_from(config, learner)
    return learner, weights


def visual_settings(config: Run) -> VisualSettings:
    """The image inputs of the model. Pixels are normalised with the statistics of the checkpoint or the first run."""
    visual = VisualSettings(config.architecture.sees, config.regions, config.architecture.takes_boxes)
    if visual.sees != "pixels":
        return visual
    origin = config.start or config.pretrained
    statistics = pixel_statistics(origin) if origin else PUBLISHED
    return replace(visual, side=shape_of(config.model, config.size).picture, statistics=statistics)


def start_from(config: Run, learner: Learner) -> str:
    """Load the weights of a finished run and return its name. Raises `ValueError` if the run is not finished or has
    another model."""
    folder = Path(str(config.start))
    first, own = read_config(folder)["config"], fingerprint(config, "")
    for name in ("model", "size", "controlled", *(["pretrained"] if config.pretrained else [])):
        if first.get(name) != own[name]:
            raise ValueError(f"start={folder}: has {name}={first.get(name)}; give the same, not {own[name]}")
    if not is_finished(folder):
        raise ValueError(f"start={folder}: this run is not finished; run it to its end first")
    try:
        load_weights(learner, folder)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise ValueError(
            f"{folder / WEIGHTS}: not weights of this model: {str(error).splitlines()[-1].strip()}"
        ) from None
    return f"run {folder.name}"


def tokenizer_for(config: Run, caption_style: str = Style().caption) -> WordTokenizer:
    """That of the run to start from, the checkpoint's own, or the grammar's."""
    if config.start:
        return WordTokenizer(AutoTokenizer.from_pretrained(config.start))
    if config.pretrained is None:
        return WordTokenizer(grammar_tokenizer(config.task, caption_style))
    weight_files(local_path(config.pretrained))  # before a tokenizer is downloaded
    return WordTokenizer(tokenizer_of(config.pretrained, config.model))


def build_model(config: Run, tokenizer: WordTokenizer, dimension: int, log: Log) -> tuple[Model, str]:
    """The model, and the origin of its weights. dimension: of region features.

    At `base`, a model with random weights has the size of the published vocabulary; our tokens are its first ones.
    The weights of `start` are not loaded here.
    Raises `ValueError` for an option that the model does not have, and for a checkpoint of another architecture.
    """
    options: dict[str, Any] = {"controlled": True} if config.controlled else {}
    if config.details.loss == "distillation":
        options["distil"] = True
    changes: dict[str, Any] = {"feature_width": dimension} if dimension else {}
    if config.size != "base" or began_pretrained(config):
        changes["vocabulary"] = tokenizer.size
    model = make_model(config.model, config.size, options, **changes)
    origin = "random"
    if config.pretrained and not config.start:
        report = load_published(model, config.pretrained)
        log(f"pretrained={config.pretrained}: {report}")
        origin = f"{Path(config.pretrained).name} {str(path_digest(str(local_path(config.pretrained))))[:16]}"
    elif config.details.positions == "sinusoidal":
        start_positions(model)
    if config.method == "frozen":
        for parameter in model.encoder_parameters():
            parameter.requires_grad_(False)
    return model, origin
