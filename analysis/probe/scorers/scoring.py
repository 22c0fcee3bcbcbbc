"""A scorer over a corpus. Each picture is decoded once, a failure affects one item, answers are written at once.

FOLDER/config.json     the settings that determine the scores (`identity`), and how they were computed (`about`)
FOLDER/answers.jsonl   a line for each item; items that were not scored are tried again the next time
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from analysis.probe.corpora.items import (
    STATUSES,
    Answer,
    Corpus,
    Item,
    Missing,
    Scorer,
    Unreadable,
    open_picture,
)
from train.ask.matchers.loading import as_float64
from travlr.files import locked, put_file
from travlr.settings import Log
from travlr.workers import Progress, usable_cores

CONFIG, ANSWERS = "config.json", "answers.jsonl"
TEXTS = ("id", "image", "axis", "source", "pair")  # of an item
MAX_REASON_LENGTH = 300  # characters of `Answer.why`


@dataclass(frozen=True)
class ScoredItem:
    """An item and its answer."""

    item: Item
    answer: Answer

    @property
    def line(self) -> bytes:
        """A line of answers.jsonl. margin: lowest score of a true sentence minus highest of a false one. yes_or_no: as
        in `Answer`, for generative models only."""
        item, answer = self.item, self.answer
        margin = min(answer.positives) - max(answer.negatives) if answer.status == "scored" else None
        values = {name: getattr(item, name) for name in (*TEXTS, "labels", "positives", "negatives")}
        values |= {"status": answer.status, "positive_scores": answer.positives, "negative_scores": answer.negatives}
        values |= {"margin": margin, "why": answer.why}
        if answer.yes_or_no:
            values["yes_or_no"] = answer.yes_or_no
        return json.dumps(values, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass") + b"\n"


def score_items(
    corpus: Corpus,
    scorer: Scorer,
    folder: Path,
    *,
    batch_size: int = 64,
    fingerprint: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
    file: str = ANSWERS,
    log: Log = print,
) -> list[Answer]:
    """Score all items of a corpus, in order, and append the answers to FOLDER/FILE.

    A call of the scorer gets all sentences of some pictures, up to `batch_size` sentences or those of one picture, each
    sentence once. If it raises, or does not return one finite score per sentence, the items of the call are scored one
    by one, so that a failure affects one item. After an interruption, the same call continues. Raises `ValueError` for
    a scorer that runs out of memory, and for a folder with another fingerprint (by default the corpus and the scorer's
    name).
    """
    fingerprint = dict(fingerprint or {"corpus": corpus.digest, "model": getattr(scorer, "name", "")})
    with open_folder(folder, fingerprint, about or {}):
        path = folder / file
        records = {record.item.id: record for record in read_item_answers(path)}
        unscored = [
            item for item in corpus.items if item.id not in records or records[item.id].answer.status != "scored"
        ]
        with _appending(path) as append, Progress(len(unscored), log, "items") as progress:
            for batch in _answer_batches(corpus.pictures, unscored, scorer, batch_size):
                append(record for record in batch if records.get(record.item.id) != record)
                records.update((record.item.id, record) for record in batch)
                progress.advance(len(batch))
    return [records[item.id].answer for item in corpus.items]


def delete_answers(folder: Path) -> None:
    """Delete the answers and config of a run. Raises `ValueError` for a folder that holds no run."""
    if folder.exists():
        read_about(folder)
        with locked(folder):
            for path in [*folder.glob("*.jsonl"), folder / CONFIG]:
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def open_folder(folder: Path, fingerprint: Mapping[str, Any], about: Mapping[str, Any]) -> Iterator[None]:
    """Lock a run's folder and write its config.json. Raises `ValueError` where the folder holds another run."""
    with locked(folder):
        path = folder / CONFIG
        if path.exists():
            before = read_about(folder)["identity"]
            if before != json.loads(json.dumps(dict(fingerprint))):
                other = sorted(n for n in {*before, *fingerprint} if before.get(n) != fingerprint.get(n))
                raise ValueError(f"{folder}: holds answers of another {' and '.join(other)}; name another folder")
        else:
            text = json.dumps({"identity": dict(fingerprint), "about": dict(about)}, indent=1, ensure_ascii=False)
            put_file(folder / CONFIG, text.encode() + b"\n")
        yield


def read_about(folder: Path) -> dict[str, Any]:
    """`identity` and `about` of a run's folder. Raises `ValueError`, in one line, where config.json is unreadable."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        return {"identity": dict(config["identity"]), "about": dict(config["about"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{folder / CONFIG}: missing or damaged; remove the folder to score again") from None


# The file of answers -------------------------------------------------------------------------------------------------


def read_item_answers(path: Path) -> list[ScoredItem]:
    """The last record of each item, in the order of their first records. Damaged lines, such as the last line of a
    run that was killed, are skipped: their items are scored again."""
    if not path.exists():
        return []
    records: dict[str, ScoredItem] = {}
    with open(path, "rb") as file:
        for line in file:
            if record := _parse(line):
                records[record.item.id] = record
    return list(records.values())


def _parse(line: bytes) -> ScoredItem | None:
    try:
        values = json.loads(line.decode("utf-8", "surrogatepass"))
        positives, negatives = (tuple(map(str, values[name])) for name in ("positives", "negatives"))
        labels = {str(name): str(value) for name, value in values["labels"].items()}
        texts = {name: str(values[name]) for name in TEXTS}
        true, false, shares = (
            tuple(map(float, values.get(name, ()))) for name in ("positive_scores", "negative_scores", "yes_or_no")
        )
        answer = Answer(texts["id"], str(values["status"]), true, false, str(values["why"]), shares)
        record = ScoredItem(Item(positives=positives, negatives=negatives, labels=labels, **texts), answer)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    whole = answer.status in STATUSES and len(shares) in (0, len(positives) + len(negatives))
    if answer.status == "scored":
        whole &= (len(true), len(false)) == (len(positives), len(negatives))
    return record if whole and all(map(math.isfinite, (*true, *false, *shares))) else None


@contextlib.contextmanager
def _appending(path: Path) -> Iterator[Callable[[Iterable[ScoredItem]], None]]:
    """A function that appends records; each batch survives a kill, if not a power failure."""
    with open(path, "ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")  # completes the partial line of a killed run

        def append(records: Iterable[ScoredItem]) -> None:
            if lines := b"".join(record.line for record in records):
                file.write(lines)
                file.flush()

        yield append
        os.fsync(file.fileno())


# Calling the scorer --------------------------------------------------------------------------------------------------


def _answer_batches(
    folder: Path | None, items: Sequence[Item], scorer: Scorer, batch_size: int
) -> Iterator[list[ScoredItem]]:
    """Batches of records. The pictures of the next batch are decoded while the scorer runs."""
    ready: list[tuple[list[Item], dict[str, Future[Image.Image]]]] = []
    with ThreadPoolExecutor(min(4, usable_cores())) as pool:
        for batch in _batches(items, batch_size):
            paths = {item.image for item in batch}
            ready.append((batch, {path: pool.submit(open_picture, folder, path) for path in paths}))
            if len(ready) > 1:
                yield _records(scorer, *ready.pop(0))
        for last in ready:
            yield _records(scorer, *last)


def _batches(items: Iterable[Item], most: int) -> Iterator[list[Item]]:
    """Items of whole pictures with up to `most` sentences, or those of one picture."""
    pictures: dict[str, list[Item]] = {}
    for item in items:
        pictures.setdefault(item.image, []).append(item)
    batch, size = list[Item](), 0
    for items_of_picture in pictures.values():
        count = len(_sentences(items_of_picture))
        if batch and size + count > most:
            yield batch
            batch, size = [], 0
        batch += items_of_picture
        size += count
    if batch:
        yield batch


def _records(scorer: Scorer, items: Sequence[Item], futures: Mapping[str, Future[Image.Image]]) -> list[ScoredItem]:
    pictures, answers = dict[str, Image.Image](), dict[str, Answer]()
    for item in items:
        try:
            pictures[item.image] = futures[item.image].result()
        except (Missing, Unreadable, OSError) as error:
            status = "missing" if isinstance(error, Missing) else "unreadable"
            answers[item.id] = Answer(item.id, status, why=str(error))
    if readable := [item for item in items if item.id not in answers]:
        answers |= _score(scorer, readable, pictures)
    return [ScoredItem(item, answers[item.id]) for item in items]


def _score(scorer: Scorer, items: Sequence[Item], pictures: Mapping[str, Image.Image]) -> dict[str, Answer]:
    """The answers of one call; where it fails, those of each item alone."""
    try:
        return _call(scorer, items, pictures)
    except (Exception, SystemExit) as error:  # a user's scorer can raise anything
        why = _reason(error)
        if isinstance(error, MemoryError) or "out of memory" in why.lower():
            raise ValueError(f"{why}; use a smaller batch_size") from None
    if len(items) == 1:
        return {items[0].id: Answer(items[0].id, "failed", why=why)}
    return {name: answer for item in items for name, answer in _score(scorer, [item], pictures).items()}


def _sentences(items: Iterable[Item]) -> dict[tuple[str, str], None]:
    """Pairs of picture and sentence, each once, grouped by picture."""
    return dict.fromkeys((item.image, text) for item in items for text in (*item.positives, *item.negatives))


def _call(scorer: Scorer, items: Sequence[Item], pictures: Mapping[str, Image.Image]) -> dict[str, Answer]:
    """The answers of one call. Raises `ValueError` unless it returns one finite score per sentence."""
    pairs = list(_sentences(items))
    images, texts = [pictures[path] for path, _ in pairs], [text for _, text in pairs]
    columns = getattr(scorer, "with_probabilities", lambda *arguments: (scorer(*arguments),))(images, texts)
    values = [as_float64(column) for column in columns]
    scores = values[0]
    if scores.shape != (len(pairs),):
        raise ValueError(f"returned scores {scores.shape} for {len(pairs)} sentences: needs ({len(pairs)},)")
    if (wrong := np.flatnonzero(~np.isfinite(scores))).size:
        raise ValueError(f"returned {scores[wrong[0]]} for {pairs[wrong[0]][1]!r}")
    score_of, *share_of = [dict(zip(pairs, column.tolist(), strict=True)) for column in values]

    def of(item: Item, texts: Sequence[str], column: Mapping[tuple[str, str], float]) -> tuple[float, ...]:
        return tuple(column[item.image, text] for text in texts)

    return {
        item.id: Answer(
            item.id, "scored", of(item, item.positives, score_of), of(item, item.negatives, score_of),
            yes_or_no=of(item, (*item.positives, *item.negatives), share_of[0]) if share_of else (),
        )
        for item in items
    }  # fmt: skip


def _reason(error: BaseException) -> str:
    message = " ".join(str(error).split())
    reason = message if isinstance(error, ValueError) and message else f"{type(error).__name__}: {message}"
    return reason[:MAX_REASON_LENGTH]
