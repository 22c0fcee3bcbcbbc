"""The answer forms: the question that an example asks in each form, and its right answer.

`true_false`: is the query true? `choice`: which of several statements is true? `open`: the task's own question, with a
number or a word as its answer. `read`: list all objects. The first three need reasoning, `read` needs perception alone.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from render.captions.style import PREFACE, preface
from travlr.config import check_choice
from travlr.corpora.items import MATCH
from travlr.dataset import Example
from travlr.formats.columns import parse_query_form
from travlr.questions.objects import objects_text
from travlr.sampling import streams
from travlr.scene import Scene, World
from travlr.tasks import task_class

WORDING: dict[str, Any] = tomllib.loads(resources.files(__package__).joinpath("wording.toml").read_text("utf-8"))
WORDING_VERSION: str = WORDING["version"]
FORMS = tuple(WORDING["question"])
PROMPTS = tuple(WORDING["prompt"])
SETTINGS = ("image", "caption", "image+caption")
LETTERS = "ABCDEFGH"
# Tokens of a reply, by prompt; `read` and `describe` list up to some 20 objects.
MOST_TOKENS = {"direct": 32, "reason": 4096, "describe": 1024}
READ_TOKENS = 1024

Message = dict[str, Any]  # {"role": "user", "content": [{"type": "image", "image": PNG bytes}, {"type": "text", ...}]}


@dataclass(frozen=True)
class Question:
    """One example in one answer form.

    answer: the right answer, as `parse` returns it: `true` or `false`, a letter, digits or a word; "" for `read`.
    wordings: each valid answer of `choice` and of questions with a word as answer -> the phrases that mean it.
    statement: what `true_false` asks about. scene: what the objects of a reply to `read` are compared with.
    """

    form: str
    text: str
    answer: str
    wordings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    statement: str = ""
    scene: Scene = ()


def make_question(example: Example, form: str = "true_false") -> Question:
    """The question of an example. Raises `ValueError` for an unknown form or a query that does not fit the scene."""
    check_choice("form", form, FORMS)
    template = WORDING["question"][form]
    if example.task == MATCH and form != "true_false":
        raise ValueError(f"form={form}: sentences about pictures are true or false; use form=true_false")
    if form == "read":
        return Question(form, template, "", scene=example.scene)
    if form == "true_false":
        text, answer = template.format(query=example.query), str(example.answer).lower()
        return Question(form, text, answer, statement=example.query)
    query = parse_query_form(example.query_form)
    task = task_class(query.task)
    if form == "open":
        question = task.open_question(example.scene, **task.by_name(query.args))
        if question is None:
            raise ValueError(f"form=open: the task {query.task} has no open question")
        return Question(form, template.format(question=question.text), question.answer, question.wordings)
    alternatives = task.alternatives(example.scene, **task.by_name(query.args))
    options = [tuple(arguments[name] for name in task.language().names) for arguments in alternatives]
    if not options:
        raise ValueError(f"form=choice: the task {query.task} has no alternatives to choose from")
    words = streams.words(streams.stream_key("choice", example.id, example.query_form), 0, 1, len(options))[0]
    options = [options[i] for i in words.argsort()]
    texts = {letter: task.text(option) for letter, option in zip(LETTERS, options, strict=False)}
    answers = [task.truth(example.scene, **task.by_name(option)) for option in options]
    right = [letter for letter, answer in zip(texts, answers, strict=True) if answer]
    if len(right) != 1:
        raise ValueError(f"{example.id}: {len(right)} of the alternatives are true, not one")
    lines = "\n".join(f"{letter}. {text}" for letter, text in texts.items())
    statements = {letter: (text.removesuffix("."),) for letter, text in texts.items()}
    return Question(form, template.format(options=lines), right[0], statements)


def messages(
    question: Question, example: Example, setting: str, prompt: str = "direct", grid: tuple[int, int] | None = None
) -> list[Message]:
    """The request of an example and its question: one message of a user, with the picture before the text.

    grid: columns and rows, for the form `read` without a caption; None to read them from the example's caption.
    Pictures are the bytes of `example.image`. Raises `ValueError` for an unknown setting or prompt.
    """
    check_choice("setting", setting, SETTINGS)
    check_choice("prompt", prompt, PROMPTS)
    of_scene = example.task != MATCH
    parts = [WORDING["scene"][setting].format(caption=example.caption) if of_scene else WORDING["photo"]["scene"]]
    if of_scene and setting == "image" and (question.form == "read" or prompt == "describe"):
        parts.append(WORDING["scene"]["image_grid"].format(preface=_preface(example, grid)))
    parts += [question.text, instruction(question, prompt, WORDING["prompt" if of_scene else "photo"])]
    content: list[dict[str, Any]] = [{"type": "text", "text": "\n\n".join(parts)}]
    if setting != "caption":
        content.insert(0, {"type": "image", "image": example.image})
    return [{"role": "user", "content": content}]


def instruction(question: Question, prompt: str, wording: Mapping[str, str]) -> str:
    """The sentences of a request that say how to answer. wording: of each prompt."""
    if question.form == "read":
        return str(WORDING["read"][prompt])
    kind = question.form if question.form != "open" else "word" if question.wordings else "number"
    *most, last = question.wordings or [""]
    answers = f"{', '.join(most)} or {last}" if most else last
    answer = WORDING["answer"][kind].format(letters=answers, answers=answers)
    return str(wording[prompt].format(answer=answer))


def right_reply(question: Question, example: Example, prompt: str = "direct", setting: str = "caption") -> str:
    """A reply to the request of `messages` that is right: what a model is trained to write.

    With `prompt=describe` it has the steps to the answer (`BaseTask.steps`), or all objects where a task has none.
    Objects are in the order of the caption, and with setting=image row by row. Raises `ValueError` for
    `prompt=reason`, as there is no reasoning to learn from.
    """
    if prompt == "reason":
        raise ValueError("prompt=reason: there are no right replies of it to train on; use direct or describe")
    if question.form == "read":
        return objects_text(question.scene)
    if prompt == "direct":
        return question.answer
    if example.task == MATCH:
        raise ValueError("prompt=describe: nothing describes pictures of others to train on; use prompt=direct")
    scene = example.scene if setting != "image" else tuple(sorted(example.scene, key=lambda o: (o.row, o.column)))
    query = parse_query_form(example.query_form)
    task = task_class(query.task)
    steps = task.steps(scene, **task.by_name(query.args))
    text = objects_text(scene) if steps is None else steps.facts
    if steps is not None and question.form == "true_false":
        text += f" The statement says {steps.claim}."
    return f"{text}\nAnswer: {question.answer}"


def most_tokens(form: str, prompt: str) -> int:
    """How many tokens a reply needs at most."""
    return max(MOST_TOKENS[prompt], READ_TOKENS if form == "read" else 0)


def _preface(example: Example, grid: tuple[int, int] | None) -> str:
    if grid is None:
        match = re.match(PREFACE, example.caption)
        if not match:
            raise ValueError(f"{example.id}: its caption does not give the size of the grid; give grid=(columns, rows)")
        return match[0]
    return preface(World(columns=grid[0], rows=grid[1]))
