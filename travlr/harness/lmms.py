"""What the `utils.py` of an export for lmms-eval calls. A doc is a row of a dataset, its picture a Pillow image.

Scores are those of `travlr.questions`. lmms-eval does not say which replies were cut off, so such replies are read like
others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from travlr import questions
from travlr.dataset import example_of
from travlr.harness import records
from travlr.harness.records import Record

Doc = Mapping[str, Any]
Grid = tuple[int, int] | None
METRICS = records.METRICS
OBJECTS = ("found", "missed", "invented", "misplaced", "miscoloured", "misshaped")  # metrics of the form `read`


def metrics(form: str) -> tuple[str, ...]:
    """The metrics of an answer form."""
    return (*METRICS, *(OBJECTS if form == "read" else ()))


def pictures(doc: Doc) -> list[Any]:
    return [doc["image"].convert("RGB")]


def chat_messages(doc: Doc, form: str, setting: str, prompt: str, grid: Grid) -> list[dict[str, Any]]:
    """The request, as chat models of lmms-eval take it."""
    example = example_of(doc, b"")
    request = questions.messages(questions.make_question(example, form), example, setting, prompt, grid)
    return [
        {
            "role": message["role"],
            "content": [
                {"type": "image", "url": pictures(doc)[0]} if part["type"] == "image" else part
                for part in message["content"]
            ],
        }
        for message in request
    ]


def text(doc: Doc, form: str, setting: str, prompt: str, grid: Grid) -> str:
    """The text of the request, for models that take the pictures apart."""
    example = example_of(doc, b"")
    (message,) = questions.messages(questions.make_question(example, form), example, setting, prompt, grid)
    return "\n\n".join(part["text"] for part in message["content"] if part["type"] == "text")


def target(doc: Doc, form: str) -> str:
    return questions.score(None, questions.make_question(example_of(doc, b""), form)).answer


def results(doc: Doc, reply: str, form: str) -> dict[str, Record]:
    """Metric -> the record that it aggregates. That of `accuracy` has a score, for its standard error by scenes."""
    example = example_of(doc, b"")
    outcome = questions.score_reply(reply, questions.make_question(example, form))
    record = {"id": example.id, **records.example_facts(example), **asdict(outcome)}
    return dict.fromkeys(metrics(form), record) | {"accuracy": record | {"score": float(outcome.right)}}


def objects(name: str) -> Any:
    """The aggregation of a metric of `OBJECTS`: how many objects there are of this kind."""

    def count(items: Sequence[Record]) -> int:
        return records.object_counts(items)[name]

    return count
