"""Consistency of chat models: unlabelled pairs of image and caption carry a skill to the other modality.

As `train.learning.consistency`, with replies in place of predictions. Half of the rows show the setting of training and
have the right reply. The others show the other modality, and their target is the model's own reply to the same question
in the setting of training. The right replies to these are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from train.ask.local import ChatModel
from train.ask.requests import Request
from travlr.finetuning.rows import ChatRow
from travlr.rewards import QUESTION

REQUEST = "request"  # of an unlabelled row: the message that asks the same in the setting of training


def consistency_rows(rows: Iterator[ChatRow]) -> Iterator[ChatRow]:
    """Labelled and unlabelled rows. rows: two for each example, in the setting of training and in the other modality.

    Couples are labelled and unlabelled in turn, so that as many labelled answers are true as false.
    """
    for own, other in zip(rows, rows, strict=False):
        if int(own["id"].rpartition("-")[2]) // 2 % 2 == 0:
            yield own
        else:
            images = [{"type": "image", "image": image} for image in own["images"]]
            message = {"role": "user", "content": [*images, {"type": "text", "text": own["prompt"][0]["content"]}]}
            yield {**other, "completion": [{"role": "assistant", "content": ""}], REQUEST: message}


@dataclass
class OwnReplies:
    """A collator that first gives unlabelled rows the replies of the model as their completions."""

    collate: Callable[[list[ChatRow]], Any]
    chat: ChatModel

    def __call__(self, rows: Sequence[ChatRow]) -> Any:
        unlabelled = [row for row in rows if REQUEST in row]
        requests = [
            Request(row["id"], "train", row["setting"], [row[REQUEST]], QUESTION.validate_json(row["question"]), "")
            for row in unlabelled
        ]
        self.chat.model.eval()
        for row, reply in zip(unlabelled, self.chat.answer(requests), strict=True):
            row["completion"][0]["content"] = [{"type": "text", "text": reply.text}]
        self.chat.model.train()
        return self.collate([{name: value for name, value in row.items() if name != REQUEST} for row in rows])
