"""Replies of a finished run of train.py, on any dataset whose words are in its vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from train.ask.config import Evaluation, ShownStyle, refuse_settings
from train.ask.requests import Reply, Request, reply_to_odds
from train.config import RegionSettings, Run, Training
from train.data.sources import TrainingDataset
from train.data.text import UnknownWord
from train.learning.batches import RunData
from train.learning.testing import predict
from train.models.hub import torch_device
from train.results.store import is_finished, read_config
from train.run import load_data, make_learner
from travlr.corpora.items import MATCH
from travlr.settings import Log


def is_run(name: str) -> bool:
    """Whether a name is the folder of a run of one of our models, or of an evaluation."""
    try:
        return "adapter" not in read_config(Path(name))["config"]  # which those of chat models have
    except (ValueError, OSError):
        return False


class TrainedModel:
    """A finished run. Its replies are `true` and `false`, with log-probabilities."""

    def __init__(self, config: Evaluation, data: Path, log: Log = print) -> None:
        self.folder = Path(config.model)
        settings = read_config(self.folder)["config"]
        if settings.get("form"):
            raise ValueError(f"model={self.folder}: is an evaluation, not a run of train.py")
        if not is_finished(self.folder):
            raise ValueError(f"model={self.folder}: this run is not finished; run it to its end first")
        if (config.form, config.prompt) != ("true_false", "direct"):
            raise ValueError(
                f"form={config.form} prompt={config.prompt}: a run of ours answers true_false, direct, alone"
            )
        why = "is not for a run of ours"
        refuse_settings(config, why, "revision", "temperature", "seed", "max_tokens", "head")
        if config.task == MATCH:
            raise ValueError(f"data={data}: holds sentences about pictures; a run of ours is asked about scenes alone")
        if config.style != ShownStyle():
            raise ValueError("style: a run of ours sees a dataset as it is; generate one in this style and give data=")
        self.run = self._run(settings, config, data)
        self.settings = self.run.test_settings
        self.config = config
        self.device = "cpu" if torch_device(config.device).type == "cpu" else "gpu"
        self.data: RunData = load_data(self.run, TrainingDataset(data))
        try:
            learner, _ = make_learner(self.run, self.data, 1, log)
        except UnknownWord as error:
            raise ValueError(
                f"model={self.folder}: its vocabulary does not hold the word {error.word!r} of data={data}; give a "
                "dataset with the words of the run's own one"
            ) from None
        self.model = learner.model.eval()

    def _run(self, settings: dict[str, Any], config: Evaluation, data: Path) -> Run:
        """The run's settings with the evaluation's dataset, and without settings that only training needs."""
        names = {name: settings[name] for name in ("model", "size", "setting", "controlled", "recipe")}
        source, number = settings["regions"]["source"], settings["regions"]["number"]
        if source != "file":
            refuse_settings(config, "is not for this run", "regions")
        elif config.regions is None:
            raise ValueError(f"regions=null: model={self.folder} takes features from files; give their folder")
        regions = RegionSettings(source=config.regions or source, number=number)
        own = {"start": self.folder, "data": data, "task": config.task, "runs": config.runs}
        return Run(**names, **own, regions=regions, training=Training(examples=2))

    def replies(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Reply]]:
        """Replies in the order of the requests, split by split."""
        device = torch.device("cuda" if self.device == "gpu" else "cpu")
        groups: dict[tuple[str, str], list[Request]] = {}
        for request in requests:
            groups.setdefault((request.split, request.setting), []).append(request)
        for (split, setting), group in groups.items():
            examples = self.data.examples(split, self.config.limit)
            precision = "float32" if self.config.precision == "auto" else self.config.precision
            logits = predict(self.model.to(device), examples, [setting], device, precision)[setting]
            logit_of = dict(zip(examples.ids, logits.tolist(), strict=True))
            for request in group:
                yield request, reply_to_odds(logit_of[request.id])
