"""The tasks for Inspect: `inspect eval travlr/cardinality -T setting=image --model ...`. Needs `inspect-ai`. Questions,
parser and scores are those of `evaluate.py`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inspect_ai import Task as InspectTask
from inspect_ai import scorer
from inspect_ai import task as inspect_task
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageUser, ContentImage, ContentText, GenerateConfig
from inspect_ai.solver import TaskState, generate
from pydantic import Field, TypeAdapter

from render.png import data_uri
from travlr.corpora import MATCH
from travlr.dataset import Dataset, Example, open_dataset
from travlr.formats.manifest import has_manifest
from travlr.generate import GenerateArguments, generate_dataset
from travlr.harness.records import QuestionSettings, Record, example_facts, measure_records
from travlr.questions import WORDING_VERSION, Question, make_question, messages, most_tokens, score, score_reply
from travlr.settings import PathText, in_one_line
from travlr.tasks import TASKS


@scorer.metric  # type: ignore[untyped-decorator, unused-ignore]
def of_groups() -> scorer.Metric:
    """The scores of every setting and split."""

    def compute(scores: list[scorer.SampleScore]) -> Any:
        groups: dict[str, list[Record]] = {}
        for one in scores:
            record = {**(one.sample_metadata or {}), **(one.score.metadata or {})}
            groups.setdefault(record["group"], []).append(record)
        measured = {group: measure_records(records) for group, records in groups.items()}
        return {f"{name}, {group}": value for group in groups for name, value in measured[group].items()}

    return compute


ERROR = scorer.stderr(cluster="scene")
OF_GROUPS = [of_groups(), scorer.grouped(ERROR, "group", all=False, name_template="stderr, {group_name}")]


@scorer.scorer(metrics=[scorer.accuracy(), ERROR, *OF_GROUPS])  # type: ignore[untyped-decorator, unused-ignore]
def reply_scorer() -> scorer.Scorer:
    """Reads replies with `travlr.questions`. A reply without an answer counts as wrong, and as unparsed."""

    async def score_state(state: TaskState, target: scorer.Target) -> scorer.Score:
        question = TypeAdapter(Question).validate_python(state.metadata["question"])
        reply = state.output.completion
        outcome = score_reply(reply, question, cut_off=state.output.stop_reason == "max_tokens")
        value = scorer.CORRECT if outcome.right else scorer.NOANSWER if outcome.parsed is None else scorer.INCORRECT
        return scorer.Score(value=value, answer=outcome.parsed, explanation=reply, metadata=asdict(outcome))

    return score_state


class TaskSettings(QuestionSettings):
    """What `-T` sets. examples: the first of each split, in whole couples; None for all."""

    data: PathText | None = None
    examples: int | None = Field(500, ge=2)


def make_task(name: str, settings: TaskSettings) -> InspectTask:
    """One task, of a folder or of data/TASK, which is generated if it is missing. Raises `ValueError`, naming the
    setting, for a wrong value."""
    folder = Path(settings.data or f"data/{name}")
    if settings.data is None and name in TASKS and not has_manifest(folder):
        generate_dataset(TASKS[name].Config(), GenerateArguments(out=str(folder)))
    dataset = open_dataset(folder)
    dataset.check_task(name)
    settings = settings.of_dataset(dataset)
    return InspectTask(
        dataset=MemoryDataset(list(make_samples(dataset, settings)), name=f"travlr/{name}"),
        solver=generate(),
        scorer=reply_scorer(),
        config=GenerateConfig(temperature=0.0, max_tokens=most_tokens(settings.form, settings.prompt)),
        version=WORDING_VERSION,
        metadata={**settings.model_dump(), "dataset": dataset.manifest["content_digest"]},
    )


def make_samples(dataset: Dataset, settings: TaskSettings) -> Iterator[Sample]:
    """Example by example, so that the first samples have all settings and splits."""
    most = settings.examples and settings.examples // 2 * 2
    examples = (itertools.islice(dataset[split], most) for split in settings.split)
    for of_splits in itertools.zip_longest(*examples):
        for split, example in zip(settings.split, of_splits, strict=True):
            for setting in settings.setting if example else ():
                yield make_sample(dataset, settings, split, setting, example)


def make_sample(dataset: Dataset, settings: TaskSettings, split: str, setting: str, example: Example) -> Sample:
    question = make_question(example, settings.form)
    (message,) = messages(question, example, setting, settings.prompt, dataset.grid)
    content: list[Any] = [
        ContentText(text=part["text"]) if part["type"] == "text" else ContentImage(image=data_uri(part["image"]))
        for part in message["content"]
    ]
    facts = {"setting": setting, "split": split, "group": f"{setting}, {split}", "pair": example.pair[0]}
    return Sample(
        id=f"{example.id} {setting}",
        input=[ChatMessageUser(content=content)],
        target=score(None, question).answer,
        metadata={**facts, **example_facts(example), "question": asdict(question)},
    )


def register_task(name: str) -> Any:
    """The function that Inspect calls for a task."""

    def make(**settings: Any) -> InspectTask:
        try:
            return make_task(name, TaskSettings(**settings))
        except ValueError as error:
            raise PrerequisiteError(f"ERROR: {in_one_line(error)}") from None  # printed without a traceback

    return inspect_task(name=name)(make)


tasks = {name: register_task(name) for name in (*TASKS, MATCH)}
