"""A matcher as a source of replies for `evaluate.py`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
from PIL import Image

from train.ask.config import Evaluation, refuse_settings
from train.ask.matchers.loading import ScoreFunction, as_float64
from train.ask.requests import REFUSED, Reply, Request, open_picture, picture_of, reply_to_odds

BATCH_SIZE = 64


class MatcherBackend:
    """A matcher's replies: its scores and, if it has a threshold, `true` above it and `false` below, with
    log-probabilities of the distance.

    All sentences of a picture that follow each other are scored in one call, so that equal ones tie and the picture is
    encoded once. A sentence that the model does not take is a reply without an answer. Raises `ValueError`, in one
    line, for settings that are for other models, and for scores that are no numbers.
    """

    settings = ("image",)

    def __init__(self, config: Evaluation, matcher: ScoreFunction) -> None:
        why = "is not for a matcher, which scores a picture and a sentence"
        refuse_settings(config, why, "form", "prompt", "answers", "temperature", "seed", "max_tokens")
        self.name, self.matcher = config.model, matcher
        self.batch_size = config.batch_size or BATCH_SIZE
        self.threshold = threshold_of(config.model, matcher)

    def replies(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Reply]]:
        """Replies in the order of the requests."""
        for batch in self._batches(requests):
            yield from zip(batch, self._replies(batch), strict=True)

    def _batches(self, requests: Iterable[Request]) -> Iterator[list[Request]]:
        """At least `batch_size` requests, without parting those of one picture."""
        batch: list[Request] = []
        for _, group in groupby(requests, picture_of):
            batch += group
            if len(batch) >= self.batch_size:
                yield batch
                batch = []
        if batch:
            yield batch

    def _replies(self, batch: list[Request]) -> list[Reply]:
        refusal = getattr(self.matcher, "refusal", lambda text: None)
        refusals = {text: refusal(text) for text in dict.fromkeys(r.question.statement for r in batch)}
        taken = [request for request in batch if refusals[request.question.statement] is None]
        scores = iter(self._scores(taken) if taken else ())
        return [
            Reply(words, REFUSED) if (words := refusals[request.question.statement]) else self._reply(next(scores))
            for request in batch
        ]

    def _scores(self, batch: list[Request]) -> list[float]:
        pictures: dict[tuple[bytes, str], Image.Image] = {}
        for request in batch:
            key = (picture_of(request), request.picture)
            if key not in pictures:
                pictures[key] = open_picture(*key)
        images = [pictures[picture_of(request), request.picture] for request in batch]
        scores = as_float64(self.matcher(images, [request.question.statement for request in batch]))
        if scores.shape != (len(batch),):
            number = f"{len(scores)} scores" if scores.ndim == 1 else f"scores of shape {scores.shape}"
            raise ValueError(f"model={self.name}: returned {number} for {len(batch)} pictures and sentences")
        if not np.isfinite(scores).all():
            raise ValueError(f"model={self.name}: returned a score that is no finite number")
        return [float(score) for score in scores]

    def _reply(self, score: float) -> Reply:
        if self.threshold is None:
            return Reply("", score=score)
        return replace(reply_to_odds(score - self.threshold), score=score)


def threshold_of(name: str, matcher: Any) -> float | None:
    """The score above which a sentence matches, or None. Raises `ValueError` unless it is a finite number."""
    value = getattr(matcher, "threshold", None)
    try:
        threshold = None if value is None else float(value)
    except (TypeError, ValueError):
        threshold = math.nan
    if threshold is not None and not math.isfinite(threshold):
        raise ValueError(f"model={name}: its threshold is {value!r}; must be a number, or None")
    return threshold
