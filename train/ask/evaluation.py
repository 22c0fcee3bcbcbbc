"""An evaluation from its settings to its results: requests, replies, scores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from train.ask.config import Evaluation, reply_settings
from train.ask.examples import ShownExamples, whole_units
from train.ask.matchers.backend import BATCH_SIZE, MatcherBackend
from train.ask.matchers.loading import ScoreFunction, digest_weights_of, is_matcher, load_matcher, short_model_name
from train.ask.requests import REFUSED, Backend, Reply, Request
from train.config import RegionSettings
from train.prepare import prepare_dataset
from train.results.answers import AnswerFile, AnswerRecord, request_key
from train.results.columns import TEST_SPLITS, Row
from train.results.provenance import provenance
from train.results.scores import ExampleFacts, baseline_columns, facts_in_order, result_columns
from train.results.store import read_results, start_run, write_results
from travlr.baselines import best_unbound, dataset_baselines
from travlr.corpora.items import MATCH
from travlr.dataset import Dataset, open_dataset
from travlr.metrics import picture_clusters
from travlr.plugins import is_import
from travlr.questions import WORDING_VERSION, make_question, messages, score_reply
from travlr.questions.forms import SETTINGS
from travlr.settings import Log
from travlr.tasks import use_task
from travlr.workers import Progress


def evaluate(config: Evaluation, log: Log = print, matcher: ScoreFunction | None = None) -> list[Row]:
    """Ask a model about a dataset, and score its replies: one row for each setting and split.

    matcher: a function to ask in place of the model that `config.model` names; that is then its name in results.
    Replies of earlier calls with the same settings are used again. Raises `ValueError`, in one line, for every failure;
    the replies until then are saved.
    """
    config = config.changed(task=chosen_task(config))
    dataset = open_dataset(prepare_dataset(config.data, config.task, config.runs, log))
    config = config.changed(split=chosen_splits(config, dataset))
    examples = ShownExamples(config, dataset)
    model, resolved = load_backend(config, dataset, log, matcher)
    config = config.changed(setting=chosen_settings(config, model, examples.is_corpus))
    resolved |= {"style": examples.style, "corpus": (dataset.manifest.get("corpus") or {}).get("name")}
    digest = dataset.manifest["content_digest"]
    settings = reply_settings(config, **resolved, wording=WORDING_VERSION, dataset=digest, setting=None)
    folder = start_run(Path(config.runs), settings, str(dataset.folder))
    new, tokens = ask(config, model, examples, folder, log)
    rows = result_rows(config, resolved, examples, folder)
    write_results(folder, rows)
    log(f"{folder}: {new:,} new {'reply' if new == 1 else 'replies'}" + (f", {tokens:,} tokens" if tokens else ""))
    most = max((row["examples"] for row in rows), default=0)
    if config.limit is not None and most > config.limit:
        log(f"limit={config.limit}: earlier commands asked about {most:,} examples; the scores are of all of them")
    return [
        row for row in read_results(folder) if row["test_setting"] in config.setting and row["split"] in config.split
    ]


def chosen_task(config: Evaluation) -> str:
    """The task of the settings, or else of their dataset; a user's own is imported where the user names it."""
    task = config.task
    if not task:
        task = open_dataset(config.data).task if config.data and Path(config.data).exists() else "cardinality"
        if is_import(task):
            raise ValueError(
                f"data={config.data}: its task is a user's own, and files import no code; give task={task}"
            )
    if task != MATCH:
        use_task(task)
    return task


def chosen_splits(config: Evaluation, dataset: Dataset) -> tuple[str, ...]:
    """The splits of the settings, or else the test splits of the dataset. Raises `ValueError` for one that it lacks."""
    splits = config.split or tuple(s for s in TEST_SPLITS if s in dataset.splits and len(dataset[s]))
    dataset.check_splits(splits or ("test_ind",))
    return splits


def load_backend(
    config: Evaluation, dataset: Dataset, log: Log, matcher: ScoreFunction | None = None
) -> tuple[Backend, dict[str, Any]]:
    """The model, and what identifies it: its name without folders, its origin, and a digest of its weights."""
    if matcher is not None:
        return MatcherBackend(config, matcher), {"origin": "zero-shot", "weights": config.model}
    if config.server is not None:
        from train.ask.server import Server

        return Server(config, log), {"origin": "zero-shot", "weights": config.server}
    from train.ask.trained import TrainedModel, is_run

    name = Path(config.model).name if Path(config.model).is_dir() else config.model
    if is_run(config.model):
        return TrainedModel(config, dataset.folder, log), {"model": name, "origin": "trained", "weights": f"run {name}"}
    if is_matcher(config.model, config.revision):
        return _matcher_backend(config)
    from train.ask.chat import ADAPTERS
    from train.ask.local import ChatModel, digest_weights

    chat = ChatModel(config, log)
    return chat, {
        "model": name,
        "origin": "adapter" if (chat.folder / ADAPTERS).is_file() else "zero-shot",
        "weights": digest_weights(chat.folder),
        "precision": chat.precision,
    }


def _matcher_backend(config: Evaluation) -> tuple[Backend, dict[str, Any]]:
    precision = "float32" if config.precision == "auto" else config.precision
    regions = RegionSettings(source=config.regions) if config.regions else None
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


def chosen_settings(config: Evaluation, model: Backend, is_corpus: bool) -> tuple[str, ...]:
    """What the model sees: the settings, or all that it takes and the dataset has. Raises `ValueError` for others."""
    for name, takes in (("model", model.settings), ("data", ("image",) if is_corpus else SETTINGS)):
        if blind := [setting for setting in config.setting if setting not in takes]:
            what = f"{name}={getattr(config, name)} {'takes' if name == 'model' else 'has'} {' and '.join(takes)} alone"
            raise ValueError(f"setting={blind[0]}: {what}")
    settings = config.setting or tuple(s for s in model.settings if s == "image" or not is_corpus)
    if not settings:
        raise ValueError(f"data={config.data}: is about pictures, which model={config.model} does not take")
    return settings


# Requests ------------------------------------------------------------------------------------------------------------


def requests(config: Evaluation, examples: ShownExamples) -> Iterator[Request]:
    """Every request, made as it is needed."""
    for split in config.split:
        for setting in config.setting:
            for example, picture in examples.shown(split):
                question = make_question(example, config.form)
                chat = messages(question, example, setting, config.prompt, examples.dataset.grid)
                yield Request(example.id, split, setting, chat, question, request_key(chat), picture)


# Replies -------------------------------------------------------------------------------------------------------------


def ask(config: Evaluation, model: Backend, examples: ShownExamples, folder: Path, log: Log) -> tuple[int, int]:
    """Send the requests that have no answer yet, and save each reply as it arrives. Returns the number of new replies
    and of their tokens."""
    new = tokens = 0
    total = len(config.setting) * sum(map(examples.count, config.split))
    with AnswerFile(folder) as answers, Progress(total, log, "replies") as progress:

        def unanswered() -> Iterator[Request]:
            for request in requests(config, examples):
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
    whatever its words; nor has a score without words, which is neither right nor wrong."""
    only_ranks = reply.score is not None and not reply.text
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
        None if only_ranks else outcome.right,
        None if outcome.objects is None else asdict(outcome.objects),
        reply.log_probabilities,
        reply.finish,
        reply.input_tokens,
        reply.output_tokens,
        reply.score,
    )


# Results -------------------------------------------------------------------------------------------------------------


def read_facts(examples: ShownExamples, split: str, count: int) -> ExampleFacts:
    """The facts that scores need about the first `count` examples of a split."""
    table = examples.dataset[split].columns("id", "answer", "objects", "query").slice(0, count)
    ids, answers = table["id"].to_pylist(), table["answer"].to_numpy().astype(bool)
    columns = {name: values[:count] for name, values in examples.columns(split).items()}
    groups = columns["axis"].tolist()
    if examples.is_corpus:
        clusters = picture_clusters(columns["picture"], columns["couple"])
        sentences = np.array(table["query"].to_pylist(), object)
        return ExampleFacts(ids, answers, groups, clusters, columns["item"], columns["couple"], sentences)
    names = ("row", "column", "colour", "shape", "size")  # without marks of the query
    keys = [json.dumps(sorted([o[n] for n in names] for o in scene)) for scene in table["objects"].to_pylist()]
    return facts_in_order(ids, answers, groups, np.unique(keys, return_inverse=True)[1])


def result_rows(config: Evaluation, resolved: dict[str, Any], examples: ShownExamples, folder: Path) -> list[Row]:
    """The rows of all settings and splits with saved answers, also of earlier calls. A row is about the examples before
    the first one without an answer, in whole couples."""
    dataset, records = examples.dataset, AnswerFile(folder).answers
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
        **({} if is_local else {"hardware": None}),  # of a server, nobody says it
    }
    rows = []
    has_rules = config.form == "true_false" and not examples.is_corpus
    unbound = best_unbound(dataset_baselines(dataset.folder)) if has_rules else {}
    for split in (split for split in dataset.splits if any(place[0] == split for place in records)):
        ids = dataset[split].columns("id")["id"].to_pylist()
        for setting in SETTINGS:
            count = next((n for n, id in enumerate(ids) if (split, setting, id) not in records), len(ids))
            count = whole_units(examples.columns(split), count)
            if not count:
                continue
            facts = read_facts(examples, split, count)
            answers = [records[split, setting, id] for id in facts.ids]
            row: Row = shared | {"test_setting": setting, "split": split} | result_columns(answers, facts)
            if split in unbound:
                row |= baseline_columns({"unbound": unbound[split]})
            rows.append(row)
    return rows
