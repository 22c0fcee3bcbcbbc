"""Gymnasium: `gymnasium.make("travlr.environments.gymnasium:travlr/cardinality-v0", setting="caption")`."""

from __future__ import annotations

import string
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from render.png import decode
from travlr.finetuning.streams import TrainingStream
from travlr.questions.parsing import LONGEST
from travlr.rewards import QUESTION, reward
from travlr.tasks import TASKS, config_from_dict

Observation = dict[str, Any]


class QuestionEnv(gymnasium.Env[Observation, str]):
    """One question in each episode: `reset` shows it, `step` takes the reply and ends the episode with its reward.

    Observed are `text`, the request, and with a picture `image`, (height, width, 3) uint8. task, generation: settings
    of `travlr.generate` (preset="strict"). setting, form, prompt: as of `evaluate.py`; one setting.

    Raises `ValueError` for a wrong setting.
    """

    def __init__(
        self, task: str, setting: str = "image", form: str = "open", prompt: str = "direct", **generation: Any
    ) -> None:
        config = config_from_dict({"task": task, **generation})
        self.stream = TrainingStream(config, setting=setting, form=form, prompt=prompt)
        if len(self.stream.settings.setting) > 1:
            raise ValueError(f"setting={setting}: give one")
        text = spaces.Text(LONGEST, charset=string.printable)
        parts: dict[str, spaces.Space[Any]] = {"text": text}
        if self.stream.settings.shows_pictures:
            side = config.image.cell
            parts["image"] = spaces.Box(0, 255, (config.world.rows * side, config.world.columns * side, 3), np.uint8)
        self.observation_space, self.action_space = spaces.Dict(parts), text

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draw a question. A seed decides this and the following ones."""
        super().reset(seed=seed)
        number = int(self.np_random.integers(self.stream.spread))
        self._row = next(self.stream.rows(number, number + 1))
        return self._observe(), {"id": self._row["id"]}

    def step(self, action: str) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """The observation again, the reward of a reply, that the episode has ended, and the right reply."""
        score = reward(action, QUESTION.validate_json(self._row["question"]))
        about = {"id": self._row["id"], "right_reply": self._row["completion"][0]["content"]}
        return self._observe(), score, True, False, about

    def _observe(self) -> Observation:
        parts: Observation = {"text": self._row["prompt"][0]["content"]}
        if images := self._row.get("images"):
            parts["image"] = np.asarray(decode(images[0]))
        return parts


for name in TASKS:
    gymnasium.register(f"travlr/{name}-v0", entry_point=f"{__name__}:QuestionEnv", kwargs={"task": name})
