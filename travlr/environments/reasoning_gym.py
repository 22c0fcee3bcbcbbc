"""reasoning-gym: after an import of this module, `reasoning_gym.create_dataset("travlr", task="cardinality")`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reasoning_gym.factory import ProceduralDataset, register_dataset

from travlr.finetuning.streams import TrainingStream
from travlr.rewards import QUESTION, reward
from travlr.tasks import config_from_dict


@dataclass
class CaptionQuestionsConfig:
    """task, generation: settings of `travlr.generate`. seed: which of the endless examples come."""

    task: str = "cardinality"
    form: str = "open"
    prompt: str = "direct"
    seed: int | None = None
    size: int = 500
    generation: dict[str, Any] = field(default_factory=dict)


class CaptionQuestions(ProceduralDataset):
    """Questions about captions, with the scores of `travlr.rewards`. Raises `ValueError` for a wrong setting."""

    def __init__(self, config: CaptionQuestionsConfig) -> None:
        super().__init__(config=config, seed=config.seed, size=config.size)
        of_examples = config_from_dict({"task": config.task, **config.generation})
        self.stream = TrainingStream(of_examples, setting="caption", form=config.form, prompt=config.prompt)

    def __getitem__(self, idx: int) -> dict[str, Any]:
        number = (self.seed * self.size + idx) % self.stream.spread
        row = next(self.stream.rows(number, number + 1))
        source = {"source_dataset": f"travlr_{self.config.task}", "source_index": idx, "id": row["id"]}
        return {
            "question": row["prompt"][0]["content"],
            "answer": row["completion"][0]["content"],
            "metadata": source | {"travlr_question": row["question"]},
        }

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        return reward(answer or "", QUESTION.validate_json(entry["metadata"]["travlr_question"]))


register_dataset("travlr", CaptionQuestions, CaptionQuestionsConfig)
