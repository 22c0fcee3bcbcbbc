"""The tasks for Inspect: `inspect eval travlr/cardinality -T setting=image --model ...`. Needs `inspect-ai`.

Questions, parser and scores are those of `evaluate.py`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inspect_ai import Task as InspectTask
from inspect_ai import task as inspect_task
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageUser, ContentImage, ContentText, GenerateConfig
from inspect_ai.scorer import (
    CORRECT,
    INCORRECT,
    NOANSWER,
    Metric,
    SampleScore,
    Scorer,
    Target,
    accuracy,
    grouped,
    metric,
    scorer,
    stderr,
)
from inspect_ai.scorer import Score as InspectScore
from inspect_ai.solver import TaskState, generate

from travlr.config import check_choice
from travlr.corpora import MATCH
from travlr.dataset import Dataset, Example, open_dataset
from travlr.formats.manifest import has_manifest
from travlr.harness import records
from travlr.questions import FORMS, PROMPTS, WORDING_VERSION, Question, make_question, messages, score, score_reply
from travlr.questions.forms import SETTINGS, Message, most_tokens
from travlr.scene import SPLITS, Object
from travlr.tasks import TASKS

Names = str | Sequence[str]


# Scores --------------------------------------------------------------------------------------------------------------


def _of_records(name: str, value: Callable[[Sequence[records.Record]], Any]) -> Callable[[], Metric]:
    """A metric of Inspect from a function of `records`."""

    def make() -> Metric:
        def compute(scores: list[SampleScore]) -> Any:
            return value([{**(s.sample_metadata or {}), **(s.score.metadata or {})} for s in scores])

        return compute

    make.__name__ = make.__qualname__ = name
    return metric(name=name)(make)


macro_f1, unparsed, couples_right = (
    _of_records(name, records.METRICS[name]) for name in ("macro_f1", "unparsed", "couples_right")
)


def _object_counts(replies: Sequence[records.Record]) -> dict[str, int]:
    """Counts by setting and split, of replies of the form `read`."""
    groups: dict[str, list[records.Record]] = {}
    for record in replies:
        if record["objects"] is not None:
            groups.setdefault(record["group"], []).append(record)
    return {f"{name}, {group}": n for group in groups for name, n in records.object_counts(groups[group]).items()}


object_counts = _of_records("object_counts", _object_counts)


BY_GROUP: dict[str, Metric] = {  # for every setting and split
    "accuracy": accuracy(),
    "stderr": stderr(cluster="scene"),
    "macro_f1": macro_f1(),
    "unparsed": unparsed(),
    "couples_right": couples_right(),
}
METRICS = [
    accuracy(),
    stderr(cluster="scene"),
    *(grouped(value, "group", all=False, name_template=f"{name}, {{group_name}}") for name, value in BY_GROUP.items()),
    object_counts(),
]


@scorer(metrics=METRICS)  # type: ignore[untyped-decorator, unused-ignore]
def reply_scorer() -> Scorer:
    """Reads replies with `travlr.questions`. A reply without an answer counts as wrong, and as unparsed."""

    async def score_state(state: TaskState, target: Target) -> InspectScore:
        reply = state.output.completion
        outcome = score_reply(reply, question_of(state.metadata), cut_off=state.output.stop_reason == "max_tokens")
        value = CORRECT if outcome.right else NOANSWER if outcome.parsed is None else INCORRECT
        return InspectScore(value=value, answer=outcome.parsed, explanation=reply, metadata=asdict(outcome))

    return score_state


def question_of(metadata: dict[str, Any]) -> Question:
    """The question of a sample, from its metadata."""
    values = dict(metadata["question"])
    values["wordings"] = {answer: tuple(phrases) for answer, phrases in values["wordings"].items()}
    values["scene"] = tuple(Object(**o) for o in values["scene"])
    return Question(**values)


# Samples -------------------------------------------------------------------------------------------------------------


def make_task(
    name: str, setting: Names, split: Names, form: str, prompt: str, data: str | None, examples: int | None
) -> InspectTask:
    """One task. Raises `ValueError`, naming the setting, for a wrong value."""
    settings, splits = _several("setting", setting, SETTINGS), _several("split", split, SPLITS)
    check_choice("form", form, FORMS)
    check_choice("prompt", prompt, PROMPTS)
    if examples is not None and examples < 2:
        raise ValueError(f"examples={examples}: must be 2 or more")
    dataset = find_dataset(name, data)
    dataset.check_task(name)
    for part in splits:
        if part not in dataset.splits or not len(dataset[part]):
            raise ValueError(f"data={dataset.folder}: has no split {part}; it has {', '.join(dataset.splits)}")
    samples = _samples(dataset, settings, splits, form, prompt, examples)
    about = {"task": name, "form": form, "prompt": prompt, "wording": WORDING_VERSION}
    about |= {"dataset": dataset.manifest["content_digest"], "data": str(dataset.folder.absolute())}
    return InspectTask(
        dataset=MemoryDataset(list(samples), name=f"travlr/{name}"),
        solver=generate(),
        scorer=reply_scorer(),
        config=GenerateConfig(temperature=0.0, max_tokens=most_tokens(form, prompt)),
        version=WORDING_VERSION,
        metadata=about,
    )


def _several(name: str, value: Names, valid: Sequence[str]) -> list[str]:
    values = [value] if isinstance(value, str) else list(value)
    for one in values:
        check_choice(name, one, valid)
    return values


def find_dataset(task: str, data: str | None) -> Dataset:
    """The dataset of a folder; without one data/TASK, which is generated if it is missing."""
    if task == MATCH and data is None:
        raise ValueError("data= is missing: the folder of a corpus, which python -m travlr.convert makes")
    folder = Path(data or f"data/{task}")
    if data is None and not has_manifest(folder):
        from travlr.generate import GenerateArguments, generate_dataset

        generate_dataset(TASKS[task].Config(), GenerateArguments(out=str(folder)))
    return open_dataset(folder)


def _samples(
    dataset: Dataset, settings: list[str], splits: list[str], form: str, prompt: str, examples: int | None
) -> Iterator[Sample]:
    """Example by example, so that the first samples have all settings and splits."""
    sizes = {split: len(dataset[split]) for split in splits}
    readers = {split: iter(dataset[split]) for split in splits}
    most = max(sizes.values())
    for number in range(most if examples is None else min(most, examples - examples % 2)):
        for split in splits:
            if number < sizes[split]:
                example = next(readers[split])
                for setting in settings:
                    yield _sample(example, setting, split, form, prompt, dataset.grid)


def _sample(example: Example, setting: str, split: str, form: str, prompt: str, grid: tuple[int, int] | None) -> Sample:
    question = make_question(example, form)
    facts: dict[str, Any] = {"id": example.id, "setting": setting, "split": split, "pair": example.pair[0]}
    facts |= {"group": f"{setting}, {split}", **records.example_facts(example)}
    facts["question"] = asdict(question) | {"text": ""}  # the text is in the input
    return Sample(
        id=f"{example.id} {setting}",
        input=[ChatMessageUser(content=_content(m)) for m in messages(question, example, setting, prompt, grid)],
        target=score(None, question).answer,
        metadata=facts,
    )


def _content(message: Message) -> list[ContentImage | ContentText]:
    return [
        ContentText(text=part["text"]) if part["type"] == "text" else ContentImage(image=_data_uri(part["image"]))
        for part in message["content"]
    ]


def _data_uri(picture: bytes) -> str:
    kind = "jpeg" if picture[:2] == b"\xff\xd8" else "png"
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


# Registration --------------------------------------------------------------------------------------------------------


def _register(name: str) -> Callable[..., InspectTask]:
    def make(
        setting: Names = ("image",) if name == MATCH else SETTINGS,
        split: Names = ("test_ind",) if name == MATCH else ("test_ind", "test_ood"),
        form: str = "true_false",
        prompt: str = "direct",
        data: str | None = None,
        examples: int | None = 500,
    ) -> InspectTask:
        try:
            return make_task(name, setting, split, form, prompt, data, examples)
        except ValueError as error:
            raise PrerequisiteError(f"ERROR: {error}") from None  # Inspect prints it without a traceback

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"The task {name}. examples: the first of each split, in whole couples; null for all."
    return inspect_task(name=name)(make)


tasks = {name: _register(name) for name in (*TASKS, MATCH)}
