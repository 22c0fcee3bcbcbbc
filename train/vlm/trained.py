"""Replies of a finished run of ours, on any dataset with words that it knows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import torch

from train.config import Run
from train.data.sources import TrainingDataset
from train.learning.batches import RunData
from train.learning.checkpoints import WEIGHTS, load_weights
from train.learning.testing import predict
from train.models.hub import torch_device
from train.results.store import is_finished, read_config
from train.run import load_data, make_learner
from train.vlm.config import Evaluation, ShownStyle
from train.vlm.requests import Reply, Request, best_answer
from travlr.cli import Log


def is_run(name: str) -> bool:
    """Whether a name is the folder of a run."""
    try:
        return bool(read_config(Path(name)))
    except (ValueError, OSError):
        return False


class TrainedModel:
    """A finished run. Its replies are `true` and `false`, with log-probabilities."""

    def __init__(self, config: Evaluation, data: Path, log: Log = print) -> None:
        self.folder = Path(config.model)
        if read_config(self.folder)["config"].get("form"):
            raise ValueError(f"model={self.folder}: is an evaluation, not a run of train.py")
        if not is_finished(self.folder):
            raise ValueError(f"model={self.folder}: this run is not finished; run it to its end first")
        if (config.form, config.prompt) != ("true_false", "direct"):
            raise ValueError(
                f"form={config.form} prompt={config.prompt}: a run of ours answers true_false, direct, alone"
            )
        if config.style != ShownStyle():
            raise ValueError("style: a run of ours sees a dataset as it is; generate one in this style and give data=")
        self.run = self._run(config, data)
        if blind := [s for s in config.setting if s not in self.run.test_settings]:
            raise ValueError(
                f"setting={blind[0]}: model={self.run.model} sees {', '.join(self.run.test_settings)} alone"
            )
        self.config = config
        self.device = "cpu" if torch_device(config.device).type == "cpu" else "gpu"
        source = TrainingDataset(data)
        self.data: RunData = load_data(self.run, source, Path(config.runs) / ".features", self.device, log)
        learner, _, _ = make_learner(self.run, self.data, log)
        load_weights(learner, self.folder / WEIGHTS)
        self.model = learner.model.eval()

    def _run(self, config: Evaluation, data: Path) -> Run:
        """The run's settings, with the evaluation's dataset, and without what training alone needs."""
        saved = read_config(self.folder)["config"]
        values = {field.name: saved[field.name] for field in dataclasses.fields(Run) if field.name in saved}
        if values.get("start") or values.get("pretrained") or values.get("tokenizer"):
            missing = next(name for name in ("pretrained", "tokenizer", "start") if values.get(name))
            values["start"] = None
            if missing != "start":
                raise ValueError(f"model={self.folder}: was trained with {missing}=, which its folder does not hold")
        run: Run = _build(Run, values)
        training = replace(run.training, stream=False, examples=2, consistency=False)
        return replace(run, data=str(data), task=config.task, runs=config.runs, training=training)

    def replies(self, requests: Iterable[Request | None]) -> Iterator[tuple[Request, Reply]]:
        """Replies in the order of the requests, split by split."""
        where = torch.device("cuda" if self.device == "gpu" else "cpu")
        asked: dict[tuple[str, str], list[Request]] = {}
        for request in filter(None, requests):
            asked.setdefault((request.split, request.setting), []).append(request)
        for (split, setting), listed in asked.items():
            examples = self.data.examples(split, self.config.limit)
            precision = "float32" if self.config.precision == "auto" else self.config.precision
            logits = predict(self.model.to(where), examples, [setting], where, precision)[setting]
            of_id = dict(zip(examples.ids, logits.tolist(), strict=True))
            for request in listed:
                found = _log_probabilities(of_id[request.id])
                yield request, Reply(best_answer(found), None, None, None, found)


def _log_probabilities(logit: float) -> dict[str, float]:
    """Of true and false, from the log-odds of true."""

    def log_sigmoid(x: float) -> float:
        return min(x, 0.0) - math.log1p(math.exp(-abs(x)))

    return {"true": log_sigmoid(logit), "false": log_sigmoid(-logit)}


def _build(kind: type[Any], values: dict[str, Any]) -> Any:
    """A dataclass from the values of a config.json, and so are its fields that are dataclasses."""
    hints = get_type_hints(kind)
    known = {field.name for field in dataclasses.fields(kind)}
    return kind(
        **{
            name: _build(hints[name], value) if dataclasses.is_dataclass(hints[name]) else value
            for name, value in values.items()
            if name in known
        }
    )
