"""An evaluation from its settings to its results: requests, replies, scores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from render.text import make_captioner
from train.ask.config import Evaluation, ShownStyle, reply_settings
from train.ask.matchers.loading import digest_weights_of, is_matcher, load_matcher, short_model_name
from train.ask.requests import REFUSED, Backend, Reply, Request
from train.config import RegionSettings
from train.prepare import prepare_dataset
from train.results.answers import AnswerFile, AnswerRecord, request_key
from train.results.columns import Row
from train.results.metrics import ExampleFacts, result_columns
from train.results.provenance import provenance
from train.results.store import read_results, start_run, write_results
from travlr.baselines import best_unbound, dataset_baselines
from travlr.config import Style
from travlr.dataset import Dataset, Example, open_dataset
from travlr.generate import renderer_of
from travlr.questions import WORDING_VERSION, make_question, messages, score_reply
from travlr.questions.forms import SETTINGS
from travlr.settings import Log
from travlr.tasks import config_from_dict, use_task
from travlr.workers import Progress


def evaluate(config: Evaluation, log: Log = print) -> list[Row]:
    """Ask a model about a dataset, and score its replies: one row for each setting and split.

    Replies of earlier calls with the same settings are used again. Raises `ValueError`, in one line, for every failure;
    the replies until then are saved.
    """
    use_task(config.task)
    dataset = open_dataset(prepare_dataset(config.data, config.task, config.runs, log))
    _check_dataset(config, dataset)
    style = SceneStyle(config, dataset)
    model, resolved = load_backend(config, dataset.folder, log)
    config = config.changed(setting=chosen_settings(config, model))
    digest = dataset.manifest["content_digest"]
    resolved["style"] = style.style.model_dump()
    settings = reply_settings(config, **resolved, wording=WORDING_VERSION, dataset=digest, setting=None)
    folder = start_run(Path(config.runs), settings, str(dataset.folder))
    new, tokens = ask(config, model, dataset, style, folder, log)
    rows = result_rows(config, resolved, dataset, folder)
    write_results(folder, rows)
    log(f"{folder}: {new:,} new {'reply' if new == 1 else 'replies'}" + (f", {tokens:,} tokens" if tokens else ""))
    most = max((row["examples"] for row in rows), default=0)
    if config.limit is not None and most > config.limit:
        log(f"limit={config.limit}: earlier commands asked about {most:,} examples; the scores are of all of them")
    return [
        row for row in read_results(folder) if row["test_setting"] in config.setting and row["split"] in config.split
    ]


def _check_dataset(config: Evaluation, dataset: Dataset) -> None:
    for split in config.split:
        if split not in dataset.splits or not len(dataset[split]):
            raise ValueError(f"data={dataset.folder}: has no split {split}; it has {', '.join(dataset.splits)}")


def load_backend(config: Evaluation, data: Path, log: Log) -> tuple[Backend, dict[str, Any]]:
    """The model, and what identifies it: its name without folders, its origin, and a digest of its weights."""
    if config.server is not None:
        from train.ask.server import Server

        return Server(config, log), {"origin": "zero-shot", "weights": config.server}
    from train.ask.trained import TrainedModel, is_run

    name = Path(config.model).name if Path(config.model).is_dir() else config.model
    if is_run(config.model):
        return TrainedModel(config, data, log), {"model": name, "origin": "trained", "weights": f"run {name}"}
    if is_matcher(config.model, config.revision):
        return _matcher_backend(config)
    from train.ask.local import ChatModel, digest_weights

    chat = ChatModel(config, log)
    return chat, {
        "model": name,
        "origin": "zero-shot",
        "weights": digest_weights(chat.folder),
        "precision": chat.precision,
    }


def _matcher_backend(config: Evaluation) -> tuple[Backend, dict[str, Any]]:
    from train.ask.matchers.backend import BATCH_SIZE, MatcherBackend

    precision = "float32" if config.precision == "auto" else config.precision
    regions = RegionSettings(source="file", file=config.regions) if config.regions else None
    matcher = load_matcher(
        config.model,
        device=config.device,
        precision=precision,
        batch_size=config.batch_size or BATCH_SIZE,
        head=config.head,
        regions=regions,
        revision=config.revision,
    )
    return MatcherBackend(config, matcher), {
        "model": short_model_name(config.model),
        "origin": "zero-shot",
        "weights": digest_weights_of(config.model, config.revision),
        "precision": precision,
    }


def chosen_settings(config: Evaluation, model: Backend) -> tuple[str, ...]:
    """What the model sees: the settings, or all that it takes. Raises `ValueError` for one that it does not take."""
    if blind := [setting for setting in config.setting if setting not in model.settings]:
        raise ValueError(f"setting={blind[0]}: model={config.model} takes {' and '.join(model.settings)} alone")
    return config.setting or model.settings


# Styles --------------------------------------------------------------------------------------------------------------


class SceneStyle:
    """Shows the scenes of a dataset in a style, without writing another dataset.

    Raises `ValueError` if the dataset does not say how its scenes are drawn, and the settings give a style.
    """

    def __init__(self, config: Evaluation, dataset: Dataset) -> None:
        self.style, self._renderer, self._captioner = Style(), None, None
        changes, values = config.style, dataset.manifest["config"]
        if not values:
            if changes != ShownStyle():
                raise ValueError(f"style: data={dataset.folder} does not say how its scenes are drawn; leave style out")
            return
        own = config_from_dict(values)
        self.world = own.world
        self.style = Style(image=changes.image or own.style.image, caption=changes.caption or own.style.caption)
        if self.style.image != own.style.image:
            self._renderer = renderer_of(own.changed(style=self.style))
        if self.style.caption != own.style.caption:
            self._captioner = make_captioner(self.style.caption, own.world)

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


def example_numbers(config: Evaluation, dataset: Dataset, split: str) -> range:
    """The numbers of the examples of an evaluation: the first `limit`, in whole couples."""
    total = len(dataset[split])
    return range(total if config.limit is None else min(total, config.limit - config.limit % 2))


def requests(config: Evaluation, dataset: Dataset, style: SceneStyle) -> Iterator[Request]:
    """Every request, made as it is needed."""
    for split in config.split:
        for setting in config.setting:
            for number in example_numbers(config, dataset, split):
                example = style(dataset[split][number])
                question = make_question(example, config.form)
                chat = messages(question, example, setting, config.prompt, dataset.grid)
                yield Request(example.id, split, setting, chat, question, request_key(chat))


# Replies -------------------------------------------------------------------------------------------------------------


def ask(
    config: Evaluation, model: Backend, dataset: Dataset, style: SceneStyle, folder: Path, log: Log
) -> tuple[int, int]:
    """Send the requests that have no answer yet, and save each reply as it arrives. Returns the number of new replies
    and of their tokens."""
    new = tokens = 0
    total = len(config.setting) * sum(len(example_numbers(config, dataset, split)) for split in config.split)
    with AnswerFile(folder) as answers, Progress(total, log, "replies") as progress:

        def unanswered() -> Iterator[Request]:
            for request in requests(config, dataset, style):
                answer = answers.answers.get((request.split, request.setting, request.id))
                if answer is None or answer.request != request.key:
                    yield request
                else:
                    progress.advance(1)

        for request, reply in model.replies(unanswered()):
            answers.append(make_record(request, reply))
            new += 1
            tokens += (reply.input_tokens or 0) + (reply.output_tokens or 0)
            progress.advance(1)
    return new, tokens


def make_record(request: Request, reply: Reply) -> AnswerRecord:
    """The record of a reply. A reply that ran out of tokens has no answer, unless it is a list; a refusal has none,
    whatever its words."""
    outcome = score_reply(
        "" if reply.finish == REFUSED else reply.text, request.question, cut_off=reply.finish == "length"
    )
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
        reply.score,
    )


# Results -------------------------------------------------------------------------------------------------------------


def read_facts(dataset: Dataset, split: str, count: int) -> ExampleFacts:
    """The facts that scores need about the first `count` examples of a split."""
    table = dataset[split].columns("id", "answer", "pair", "objects").slice(0, count)
    names = ("row", "column", "colour", "shape", "size")  # without marks of the query
    keys = [json.dumps(sorted([o[n] for n in names] for o in scene)) for scene in table["objects"].to_pylist()]
    scenes = np.unique(keys, return_inverse=True)[1]
    groups = [pair[0] for pair in table["pair"].to_pylist()]
    return ExampleFacts(table["id"].to_pylist(), table["answer"].to_numpy().astype(bool), groups, scenes)


def result_rows(config: Evaluation, resolved: dict[str, Any], dataset: Dataset, folder: Path) -> list[Row]:
    """The rows of all settings and splits with saved answers, also of earlier calls. A row is about the examples before
    the first one without an answer, in whole couples."""
    records = AnswerFile(folder).answers
    is_local = "precision" in resolved or resolved["origin"] == "trained"
    shared = {  # columns of every row
        "model": resolved.get("model", config.model),
        "task": config.task,
        "seed": config.seed,
        "dataset": dataset.manifest["content_digest"],
        "precision": resolved.get("precision"),
        "wording": WORDING_VERSION,
        **{f"{name}_style": value for name, value in resolved["style"].items()},
        **{name: resolved[name] for name in ("origin", "weights")},
        **{name: getattr(config, name) for name in ("form", "prompt", "answers")},
        **provenance(),
        **({} if is_local else {"hardware": None}),  # that of a server is not known
    }
    rows = []
    unbound = best_unbound(dataset_baselines(dataset.folder)) if config.form == "true_false" else {}
    for split in (split for split in dataset.splits if any(place[0] == split for place in records)):
        ids = dataset[split].columns("id")["id"].to_pylist()
        for setting in SETTINGS:
            count = next((n for n, id in enumerate(ids) if (split, setting, id) not in records), len(ids))
            count -= count % 2 if count < len(ids) else 0
            if not count:
                continue
            facts = read_facts(dataset, split, count)
            answers = [records[split, setting, id] for id in facts.ids]
            row: Row = shared | {"test_setting": setting, "split": split} | result_columns(answers, facts)
            if split in unbound:
                row |= {"floor_unbound": unbound[split].macro_f1, "floor_unbound_accuracy": unbound[split].accuracy}
            rows.append(row)
    return rows
