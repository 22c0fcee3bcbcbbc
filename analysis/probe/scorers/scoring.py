"""A scorer over a corpus. Each picture is decoded once, a failure affects one item, answers are written at once.

FOLDER/config.json     the settings that determine the scores (`identity`), and how they were computed (`about`)
FOLDER/answers.jsonl   a line for each item; items that were not scored are tried again the next time
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import math
import os
import sys
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
    as_float64,
    find_picture,
    open_picture,
)
from travlr.cli import Log
from travlr.files import close, locked, put_file
from travlr.start import usable_cores
from travlr.workers import Progress

CONFIG, ANSWERS = "config.json", "answers.jsonl"
TEXTS = ("id", "image", "axis", "source", "pair")  # of an item
MAX_REASON_LENGTH = 300  # characters of `Answer.why`


@dataclass(frozen=True)
class ScoredItem:
    """An item and its answer. picture: first 16 digits of the SHA-256 of the picture's file; empty if it was not
    read."""

    item: Item
    answer: Answer
    picture: str = ""

    @property
    def line(self) -> bytes:
        """A line of answers.jsonl. margin: lowest score of a true sentence minus highest of a false one. yes_or_no: as
        in `Answer`, for generative models only."""
        item, answer = self.item, self.answer
        margin = min(answer.positives) - max(answer.negatives) if answer.status == "scored" else None
        values = {name: getattr(item, name) for name in (*TEXTS, "labels", "positives", "negatives")}
        values |= {"status": answer.status, "positive_scores": answer.positives, "negative_scores": answer.negatives}
        values |= {"margin": margin, "why": answer.why, "picture": self.picture}
        if answer.yes_or_no:
            values["yes_or_no"] = answer.yes_or_no
        return json.dumps(values, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass") + b"\n"


def score(
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
    sentence once. If it raises, or does not return one finite score per sentence, both halves of the batch are tried,
    down to single items. After an interruption, the same call continues. Raises `ValueError` for a folder with
    another fingerprint (by default the corpus and the scorer's name).
    """
    fingerprint = dict(fingerprint or {"corpus": corpus.digest, "model": getattr(scorer, "name", "")})
    with run_folder(folder, fingerprint, about or {}):
        path = folder / file
        records = {record.item.id: record for record in _unchanged(corpus.pictures, read_answers(path))}
        unscored = [
            item for item in corpus.items if item.id not in records or records[item.id].answer.status != "scored"
        ]
        with _appending(path) as append, Progress(len(unscored), log, "items") as progress:
            for batch in _answer_batches(corpus.pictures, unscored, scorer, batch_size):
                append(record for record in batch if records.get(record.item.id) != record)
                records.update((record.item.id, record) for record in batch)
                progress.advance(len(batch))
    return [records[item.id].answer for item in corpus.items]


def save_answers(
    corpus: Corpus, answers: Sequence[Answer], folder: Path, fingerprint: Mapping[str, Any], about: Mapping[str, Any]
) -> None:
    """Write answers that were computed elsewhere, in the form of `score`. Raises `ValueError` as it does."""
    with run_folder(folder, fingerprint, about):
        lines = [ScoredItem(item, answer).line for item, answer in zip(corpus.items, answers, strict=True)]
        put_file(folder / ANSWERS, b"".join(lines))


def delete_answers(folder: Path) -> None:
    """Delete the answers and config of a run. Raises `ValueError` for a folder that holds no run."""
    if folder.exists():
        read_config(folder)
        with locked(folder):
            for path in [*folder.glob("*.jsonl"), folder / CONFIG]:
                path.unlink(missing_ok=True)
            close(folder)


@contextlib.contextmanager
def run_folder(folder: Path, fingerprint: Mapping[str, Any], about: Mapping[str, Any]) -> Iterator[None]:
    """Lock a run's folder and write its config.json. Raises `ValueError` where the folder holds another run."""
    with locked(folder):
        path = folder / CONFIG
        if path.exists():
            before = read_config(folder)["identity"]
            if before != json.loads(json.dumps(dict(fingerprint))):
                other = sorted(n for n in {*before, *fingerprint} if before.get(n) != fingerprint.get(n))
                raise ValueError(f"{folder}: holds answers of another {' and '.join(other)}; name another folder")
        else:
            text = json.dumps({"identity": dict(fingerprint), "about": dict(about)}, indent=1, ensure_ascii=False)
            put_file(folder / CONFIG, text.encode() + b"\n")
        yield
        close(folder)


def read_config(folder: Path) -> dict[str, Any]:
    """`identity` and `about` of a run's folder. Raises `ValueError`, in one line, where config.json is unreadable."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        return {"identity": dict(config["identity"]), "about": dict(config["about"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{folder / CONFIG}: missing or damaged; remove the folder to score again") from None


# The file of answers -------------------------------------------------------------------------------------------------


def read_answers(path: Path) -> list[ScoredItem]:
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
        record = ScoredItem(Item(positives=positives, negatives=negatives, labels=labels, **texts), answer,
                            str(values["picture"]))  # fmt: skip
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


def picture_hash(folder: Path, path: str) -> str:
    """First 16 digits of the SHA-256 of a picture's file. Raises as `find_picture`."""
    return hashlib.sha256(find_picture(folder, path).read_bytes()).hexdigest()[:16]


def _unchanged(folder: Path | None, records: Sequence[ScoredItem]) -> list[ScoredItem]:
    """Records whose picture has not changed since it was scored, or is missing: `images` may now be another folder."""
    now: dict[str, str] = {}
    for path in {record.item.image for record in records if record.picture and folder}:
        with contextlib.suppress(Missing, Unreadable, OSError):
            now[path] = picture_hash(folder or Path(), path)
    return [record for record in records if now.get(record.item.image, record.picture) == record.picture]


def _open(folder: Path | None, path: str) -> tuple[Image.Image, str]:
    """A picture and its hash."""
    return open_picture(folder, path), picture_hash(folder or Path(), path)


def _answer_batches(
    folder: Path | None, items: Sequence[Item], scorer: Scorer, batch_size: int
) -> Iterator[list[ScoredItem]]:
    """Batches of records. The pictures of the next batch are decoded while the scorer runs."""
    batches = _BatchScorer(scorer, batch_size)
    ready: list[tuple[list[Item], dict[str, Future[tuple[Image.Image, str]]]]] = []
    with ThreadPoolExecutor(min(4, usable_cores())) as pool:
        for batch in batches.split(items):
            ready.append((batch, {path: pool.submit(_open, folder, path) for path in {item.image for item in batch}}))
            if len(ready) > 1:
                yield batches.records(*ready.pop(0))
        for last in ready:
            yield batches.records(*last)


class _BatchScorer:
    """A scorer, called with an adaptive number of sentences.

    After it runs out of memory, a call gets half as many; the number rises again as larger calls succeed, so that one
    large picture does not slow down all others.
    """

    def __init__(self, scorer: Scorer, batch_size: int) -> None:
        self._scorer, self._max_size, self._size = scorer, batch_size, batch_size

    def split(self, items: Iterable[Item]) -> Iterator[list[Item]]:
        """Items of whole pictures whose sentences fit into a call, or those of one picture."""
        pictures: dict[str, list[Item]] = {}
        for item in items:
            pictures.setdefault(item.image, []).append(item)
        batch, size = list[Item](), 0
        for items_of_picture in pictures.values():
            count = len(_sentences(items_of_picture))
            if batch and size + count > self._size:
                yield batch
                batch, size = [], 0
            batch += items_of_picture
            size += count
        if batch:
            yield batch

    def records(
        self, items: Sequence[Item], futures: Mapping[str, Future[tuple[Image.Image, str]]]
    ) -> list[ScoredItem]:
        pictures, hashes, errors = dict[str, Image.Image](), dict[str, str](), dict[str, Exception]()
        for path, future in futures.items():
            try:
                pictures[path], hashes[path] = future.result()
            except (Missing, Unreadable, OSError) as error:
                errors[path] = error
        answers = {}
        for item in items:
            if failure := errors.get(item.image):
                status = "missing" if isinstance(failure, Missing) else "unreadable"
                answers[item.id] = Answer(item.id, status, why=str(failure))
        for batch in self.split([item for item in items if item.id not in answers]):  # sizes may have shrunk since
            answers |= self._score(batch, pictures)
        return [ScoredItem(item, answers[item.id], hashes.get(item.image, "")) for item in items]

    def _score(self, items: Sequence[Item], pictures: Mapping[str, Image.Image]) -> dict[str, Answer]:
        try:
            answers = _call(self._scorer, items, pictures)
            self._size = min(self._max_size, max(self._size, len(_sentences(items))))
            return answers
        except (Exception, SystemExit) as error:  # a user's scorer can raise anything
            why = _reason(error)
            out_of_memory = _is_out_of_memory(error)
        if out_of_memory:  # here, as the error's frames hold the batch
            gc.collect()
            if (torch := sys.modules.get("torch")) and torch.cuda.is_available():
                torch.cuda.empty_cache()
            self._size = min(self._size, max(1, len(_sentences(items)) // 2))
        if len(items) == 1:
            return {items[0].id: Answer(items[0].id, "failed", why=why)}
        half = len(items) // 2  # between two pictures if there are several
        between = [n for n in range(1, len(items)) if items[n].image != items[n - 1].image]
        half = min(between or [half], key=lambda n: abs(n - half))
        return self._score(items[:half], pictures) | self._score(items[half:], pictures)


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


def _is_out_of_memory(error: BaseException) -> bool:
    message = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in message or "can't allocate memory" in message
