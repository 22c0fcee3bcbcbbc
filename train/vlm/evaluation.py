"""An evaluation from its settings to its results: requests, replies, scores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from render.text import make_captioner
from train.prepare import prepare_dataset
from train.results.answers import AnswerFile, AnswerRecord, remove_without_answers, request_key
from train.results.columns import Row
from train.results.measures import ExampleFacts, result_columns
from train.results.provenance import provenance
from train.results.store import read_results, start_run, write_results
from train.vlm.config import Evaluation, ShownStyle, fingerprint
from train.vlm.requests import Backend, Reply, Request
from travlr.baselines import best_unbound, dataset_baselines
from travlr.cli import Log
from travlr.config import Style
from travlr.dataset import Dataset, Example, open_dataset
from travlr.files import locked
from travlr.generate import renderer_of
from travlr.questions import WORDING_VERSION, make_question, score_reply
from travlr.questions.forms import SETTINGS, messages_of
from travlr.tasks import config_from_dict
from travlr.workers import Progress

IMAGE_TOKENS = 1500  # of a picture, and CHARACTERS for a token: a guess until a server has counted
CHARACTERS = 3


def evaluate(config: Evaluation, log: Log = print) -> list[Row]:
    """Ask a model about a dataset, and score its replies: one row for each setting and split.

    Replies of earlier calls with the same settings are used again. Raises `ValueError`, in one line, for whatever
    cannot be done; replies that have arrived are saved.
    """
    runs = Path(config.runs)
    try:
        runs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"runs={config.runs}: cannot be made ({error.strerror}); name another folder") from None
    dataset = open_dataset(prepare_dataset(config, log))
    _check_dataset(config, dataset)
    style = SceneStyle(config, dataset)
    model, identity = load(config, dataset.folder, log)
    digest = dataset.manifest["content_digest"]
    identity["style"] = asdict(style.style)
    settings = fingerprint(config, **identity, wording=WORDING_VERSION, dataset=digest, setting=None)
    folder = start_run(runs, settings, data=str(dataset.folder))
    with locked(folder):
        try:
            spent = ask(config, model, dataset, style, folder, log)
        finally:
            remove_without_answers(folder)
        rows = result_rows(config, identity, dataset, folder)
        write_results(folder, rows, log)
    log(f"{folder}: {spent.replies:,} new replies{spent.text}")
    return [
        row for row in read_results(folder) if row["test_setting"] in config.setting and row["split"] in config.split
    ]


def _check_dataset(config: Evaluation, dataset: Dataset) -> None:
    for split in config.split:
        if split not in dataset.splits or not len(dataset[split]):
            raise ValueError(f"data={dataset.folder}: has no split {split}; it has {', '.join(dataset.splits)}")
        task = dataset[split][0].task
        if task != config.task:
            raise ValueError(f"data={dataset.folder}: holds task={task}, not task={config.task}")


def load(config: Evaluation, data: Path, log: Log) -> tuple[Backend, dict[str, Any]]:
    """The model, and what identifies it: its name without folders, where it comes from, a digest of its weights."""
    if config.server is not None:
        from train.vlm.server import Server

        return Server(config, log), {"origin": "zero-shot", "weights": config.server}
    from train.vlm.trained import TrainedModel, is_run

    name = Path(config.model).name if Path(config.model).is_dir() else config.model
    if is_run(config.model):
        trained = TrainedModel(config, data, log)
        return trained, {"model": name, "origin": "trained", "weights": f"run {name}"}
    from train.vlm.local import ChatModel, weights_digest

    chat = ChatModel(config, log)
    return chat, {
        "model": name,
        "origin": "zero-shot",
        "weights": weights_digest(chat.folder),
        "precision": chat.precision,
    }


# Styles --------------------------------------------------------------------------------------------------------------


class SceneStyle:
    """Shows the scenes of a dataset in a style, without writing another dataset.

    Raises `ValueError` where the dataset does not say how it was drawn and another style is wanted.
    """

    def __init__(self, config: Evaluation, dataset: Dataset) -> None:
        self.style, self._renderer, self._captioner = Style(), None, None
        wanted, values = config.style, dataset.manifest["config"]
        if not values:
            if wanted != ShownStyle():
                raise ValueError(f"style: data={dataset.folder} does not say how its scenes are drawn; leave style out")
            return
        drawn = config_from_dict(values)
        self.world = drawn.world
        self.style = Style(wanted.image or drawn.style.image, wanted.caption or drawn.style.caption)
        if self.style.image != drawn.style.image:
            self._renderer = renderer_of(replace(drawn, style=self.style))
        if self.style.caption != drawn.style.caption:
            self._captioner = make_captioner(self.style.caption, drawn.world)

    def __call__(self, example: Example) -> Example:
        """The example with its picture and its caption in the style."""
        if self._renderer is not None:
            grid = np.zeros((1, self.world.cells), np.intp)
            for o in example.scene:
                grid[0, o.row * self.world.columns + o.column] = self.world.number[o.size, o.shape, o.colour]
            example = replace(example, image=self._renderer.pngs(grid)[0])
        if self._captioner is not None:
            example = replace(example, caption=self._captioner.caption(example.scene))
        return example


# Requests ------------------------------------------------------------------------------------------------------------


def chosen(config: Evaluation, dataset: Dataset, split: str) -> range:
    """The numbers of the examples that are asked about: the first, in whole couples."""
    total = len(dataset[split])
    return range(total if config.limit is None else min(total, config.limit - config.limit % 2))


def requests(config: Evaluation, dataset: Dataset, style: SceneStyle) -> Iterator[Request]:
    """Every request, made as it is needed."""
    for split in config.split:
        for setting in config.setting:
            for number in chosen(config, dataset, split):
                yield request_of(style(dataset[split][number]), split, setting, config, dataset.grid)


def request_of(example: Example, split: str, setting: str, config: Evaluation, grid: tuple[int, int] | None) -> Request:
    """The request of one example in one setting."""
    question = make_question(example, config.form)
    made = messages_of(question, example, setting, config.prompt, grid)
    return Request(example.id, split, setting, made, question, request_key(made))


# Replies -------------------------------------------------------------------------------------------------------------


@dataclass
class Spent:
    """Replies, tokens and cost, of earlier calls too, but for `replies`."""

    config: Evaluation
    replies: int = 0
    tokens: int = 0
    cost: float = 0.0
    largest: tuple[int, int] = (0, 0)  # tokens of one request, and of one reply
    under_way: int = 0

    def add(self, given: Reply | AnswerRecord, request: Request | None = None) -> None:
        """Count a reply; where the server does not, by the guess for its request."""
        used = (given.input_tokens or 0, given.output_tokens or 0)
        if given.input_tokens is None and request is not None and self.config.server is not None:
            used = (_guess(request), len(given.reply if isinstance(given, AnswerRecord) else given.text) // CHARACTERS)
        self.tokens += sum(used)
        self.largest = max(self.largest[0], used[0]), max(self.largest[1], used[1])
        self.cost += cost_of(self.config, *used)

    def full_cap(self, request: Request, under_way: int) -> str:
        """The name of a cap that leaves no room for one more request beside so many under way; "" for none."""
        config, next_ones = self.config, under_way + 1
        guess = self.largest if any(self.largest) else (_guess(request), config.most_tokens)
        if config.max_tokens_total is not None and self.tokens + next_ones * sum(guess) > config.max_tokens_total:
            return "max_tokens_total"
        full = config.max_cost is not None and self.cost + next_ones * cost_of(config, *guess) > config.max_cost
        return "max_cost" if full else ""

    @property
    def text(self) -> str:
        """Tokens and cost, after a comma; "" where nobody counts them."""
        cost = f", cost {self.cost:,.2f}" if self.cost else ""
        return f", {self.tokens:,} tokens{cost}" if self.tokens else ""


def _guess(request: Request) -> int:
    parts = [part for message in request.messages for part in message["content"]]
    return sum(IMAGE_TOKENS if part["type"] == "image" else len(part["text"]) // CHARACTERS for part in parts)


def cost_of(config: Evaluation, input_tokens: int | None, output_tokens: int | None) -> float:
    price = config.price
    return ((input_tokens or 0) * price.input + (output_tokens or 0) * price.output) / 1e6


def ask(config: Evaluation, model: Backend, dataset: Dataset, style: SceneStyle, folder: Path, log: Log) -> Spent:
    """Ask what has not been answered yet, and save each reply as it arrives."""
    spent, full_cap = Spent(config), ""
    total = len(config.setting) * sum(len(chosen(config, dataset, split)) for split in config.split)
    with AnswerFile(folder) as answers, Progress(total, log, "replies") as progress:
        for answer in answers.answers.values():
            spent.add(answer)

        def missing() -> Iterator[Request | None]:
            """None where a cap leaves no room until a reply has come."""
            nonlocal full_cap
            for request in requests(config, dataset, style):
                answer = answers.answers.get((request.split, request.setting, request.id))
                if answer is not None and answer.request == request.key:
                    progress.advance(1)
                    continue
                while spent.full_cap(request, spent.under_way):
                    if not spent.under_way:
                        full_cap = spent.full_cap(request, 0)
                        return
                    yield None
                spent.under_way += 1
                yield request

        for request, reply in model.replies(missing()):
            spent.under_way -= 1
            spent.replies += 1
            spent.add(reply, request)
            answers.append(answer_of(request, reply))
            progress.advance(1, spent.text.removeprefix(", "))
    if full_cap:
        raise ValueError(
            f"{full_cap}={getattr(config, full_cap)}: leaves no room for another request{spent.text}; the replies are "
            "saved, and the same command with a higher cap or a lower limit goes on"
        )
    return spent


def answer_of(request: Request, reply: Reply) -> AnswerRecord:
    """A reply with what it says. A reply that ran out of tokens before its end has no answer, unless it is a list."""
    outcome = score_reply(reply.text, request.question, cut_off=reply.finish == "length")
    return AnswerRecord(
        request.id,
        request.split,
        request.setting,
        request.key,
        reply.text,
        outcome.answer,
        outcome.parsed,
        outcome.right,
        None if outcome.objects is None else asdict(outcome.objects),
        reply.log_probabilities,
        reply.finish,
        reply.input_tokens,
        reply.output_tokens,
    )


# Results -------------------------------------------------------------------------------------------------------------


def facts_of(dataset: Dataset, split: str, count: int) -> ExampleFacts:
    """What scores need of the first examples of a split."""
    table = dataset[split].columns("id", "answer", "pair", "objects").slice(0, count)
    objects = [json.dumps(row, sort_keys=True) for row in _places(table["objects"].to_pylist())]
    scenes = np.unique(objects, return_inverse=True)[1]
    groups = [pair[0] for pair in table["pair"].to_pylist()]
    return ExampleFacts(table["id"].to_pylist(), table["answer"].to_numpy().astype(bool), groups, scenes)


def _places(scenes: Sequence[Sequence[dict[str, Any]]]) -> Iterator[list[list[Any]]]:
    """The objects of each scene, without their order and without what the query names."""
    for scene in scenes:
        yield sorted([o["row"], o["column"], o["colour"], o["shape"], o["size"]] for o in scene)


def result_rows(config: Evaluation, identity: dict[str, Any], dataset: Dataset, folder: Path) -> list[Row]:
    """The rows of all settings and splits with saved answers, those of earlier calls too: of the first examples, as far
    as each of them is answered, in whole couples."""
    saved = AnswerFile(folder).answers
    about = {
        "model": identity.get("model", config.model),
        "task": config.task,
        "seed": config.seed,
        "dataset": dataset.manifest["content_digest"],
        "precision": identity.get("precision"),
        "wording": WORDING_VERSION,
        **{f"{name}_style": value for name, value in identity["style"].items()},
        **{name: identity[name] for name in ("origin", "weights")},
        **{name: getattr(config, name) for name in ("form", "prompt", "answers")},
        **provenance(),
    }
    rows = []
    unbound = best_unbound(dataset_baselines(dataset.folder)) if config.form == "true_false" else {}
    for split in (split for split in dataset.splits if any(place[0] == split for place in saved)):
        ids = dataset[split].columns("id")["id"].to_pylist()
        for setting in SETTINGS:
            count = next((n for n, id in enumerate(ids) if (split, setting, id) not in saved), len(ids))
            count -= count % 2 if count < len(ids) else 0
            if not count:
                continue
            facts = facts_of(dataset, split, count)
            answers = [saved[split, setting, id] for id in facts.ids]
            row: Row = about | {"test_setting": setting, "split": split} | result_columns(answers, facts)
            if split in unbound:
                row |= {"floor_unbound": unbound[split].macro_f1, "floor_unbound_accuracy": unbound[split].accuracy}
            row["cost"] = cost_of(config, row["input_tokens"], row["output_tokens"]) or None
            rows.append(row)
    return rows
