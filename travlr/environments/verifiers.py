"""verifiers: an endless taskset, with the picture in the prompt. Its name for `verifiers` is `travlr_taskset`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf

from render.png import data_uri
from travlr.finetuning.streams import TrainingStream
from travlr.rewards import QUESTION, reward
from travlr.tasks import config_from_dict

__all__ = ["QuestionTaskset"]


class QuestionTasksetConfig(vf.TasksetConfig):
    """generation: settings of `travlr.generate`. setting, form, prompt: as of `evaluate.py`; several settings as
    `image,caption`."""

    generation: dict[str, Any] = {"task": "cardinality"}
    setting: str = "image"
    form: str = "open"
    prompt: str = "direct"


class QuestionData(vf.TaskData):
    """question: JSON for `travlr.rewards`."""

    question: str


class QuestionTask(vf.Task[QuestionData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def correct(self, trace: vf.Trace) -> float:
        """From 0 to 1, exact."""
        return reward(trace.last_reply, QUESTION.validate_json(self.data.question))


class QuestionTaskset(vf.Taskset[QuestionTask, QuestionTasksetConfig]):
    """The training examples after those of a dataset, without end."""

    INFINITE = True

    def load(self) -> Iterator[QuestionTask]:
        config = self.config
        of_rows = {"setting": config.setting, "form": config.form, "prompt": config.prompt}
        stream = TrainingStream(config_from_dict({**config.generation}), **of_rows)
        for row in stream.share(0, 1):
            images = [vf.ImageUrlSource(url=data_uri(image)) for image in row.get("images", ())]
            parts: list[Any] = [vf.ImageUrlContentPart(image_url=image) for image in images]
            text = vf.TextContentPart(text=row["prompt"][0]["content"])
            prompt = [vf.UserMessage(content=[*parts, text])]
            data = QuestionData(id=row["id"], name=row["id"], prompt=prompt, question=row["question"])
            yield QuestionTask(data, config.task)
