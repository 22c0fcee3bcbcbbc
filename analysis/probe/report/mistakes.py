"""Items that models have wrong, to look at: how many there are of each kind, and some of them with their pictures.

All models go through a corpus in one random order, and each shows the first items of each axis that it has wrong. So
models that err alike show the same items, and an item that is shown lists every model that has it wrong.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from analysis.probe.corpora.items import Item, Missing, Unreadable, open_picture
from analysis.probe.report.metrics import GRADE, margins, outcomes
from analysis.probe.report.results import Group, Result
from analysis.probe.scorers.scoring import ANSWERS, ScoredItem, picture_hash, read_answers

TOTAL_ITEMS = 960  # wrong items to show of all models of a report together, but of each from
MIN_ITEMS, MAX_ITEMS = 24, 240  # to
SIDE = 256  # pixels of the longer side of a picture, as it is shown
WRONG, TIE = 1, 2


@dataclass(frozen=True)
class ModelErrors:
    """What a model said to the N items of a corpus. wrong: (N,) uint8, 0, `WRONG` or `TIE`; what was not scored is 0.
    scores: (N, 2) what was compared: of the true sentences, and of the false ones."""

    label: str
    wrong: np.ndarray
    scores: np.ndarray


def wrong_items(group: Group, out: Path, limit: int, seed: int = 0) -> dict[str, Any]:
    """What the page has of a group's wrong items.

    models: by name. cells: (axis, grade of negatives, items) of each kind of item. wrong: for each model and cell, how
    many are wrong and how many of these are ties. items: those shown, each with `errors`: model, whether it is a tie,
    score of the true sentences, score of the false ones.
    """
    results = [result for result in group.results if result.model]
    records = {
        label: read_answers(out / result.name / ANSWERS) for label, result in zip(group.answerers, results, strict=True)
    }
    records = {label: of for label, of in records.items() if of}  # a run whose answers are gone shows none
    if not records:
        return {"title": group.title, "models": [], "cells": [], "wrong": [], "items": []}
    first = next(iter(records.values()))
    places = {record.item.id: place for place, record in enumerate(first)}
    how = dict(zip(group.answerers, results, strict=True))
    answered = [_answered(label, how[label], of, places) for label, of in records.items()]
    items = [record.item for record in first]
    cells, cell = _cells(items)
    chosen = _chosen(answered, np.array([item.axis for item in items]), limit, seed)
    shown = _shown(first, chosen, _folders(results, out))
    for place, one in zip(chosen.tolist(), shown, strict=True):
        one["cell"] = int(cell[place])
        one["errors"] = [
            [number, bool(of.wrong[place] == TIE), *of.scores[place].tolist()]
            for number, of in enumerate(answered)
            if of.wrong[place]
        ]
    counts = [
        np.stack([np.bincount(cell[hits], minlength=len(cells)) for hits in (of.wrong > 0, of.wrong == TIE)], axis=1)
        for of in answered
    ]
    wrong = [of_model.tolist() for of_model in counts]
    models = [of.label for of in answered]
    return {"title": group.title, "models": models, "cells": cells, "wrong": wrong, "items": shown}


def per_model(models: int) -> int:
    """How many wrong items to show of each of so many models."""
    return int(np.clip(TOTAL_ITEMS // max(models, 1), MIN_ITEMS, MAX_ITEMS))


def _answered(label: str, result: Result, records: Sequence[ScoredItem], places: Mapping[str, int]) -> ModelErrors:
    """A model's answers in the order of `places`, by id."""
    known = [record for record in records if record.item.id in places]
    how = result.measuring
    items, answers = [record.item for record in known], [record.answer for record in known]
    found = outcomes(items, answers, how["sentences"], how["tolerance"])
    wrong, scores = np.zeros(len(places), np.uint8), np.full((len(places), 2), np.nan)
    for n in np.flatnonzero(found.scored & ~found.right).tolist():
        place = places[answers[n].id]
        wrong[place] = TIE if found.tie[n] else WRONG
        scores[place] = margins(answers[n], how["sentences"])
    return ModelErrors(label, wrong, scores)


def _cells(items: Sequence[Item]) -> tuple[list[tuple[str, str, int]], np.ndarray]:
    """The kinds of items in the order in which they come, and (N,) which of them each item is."""
    keys = [(item.axis, item.labels.get(GRADE, "")) for item in items]
    order = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    cell = np.array([order[key] for key in keys], np.int64)
    counts = np.bincount(cell, minlength=len(order)).tolist()
    return [(axis, grade, count) for (axis, grade), count in zip(order, counts, strict=True)], cell


def _chosen(answered: Sequence[ModelErrors], axes: np.ndarray, limit: int, seed: int) -> np.ndarray:
    """The items that are shown, in order: of each model `limit` (rounded up to as many of each axis), or all."""
    order = np.random.default_rng(seed).permutation(len(axes))
    kinds = sorted(set(axes.tolist()))
    shown = np.zeros(len(axes), bool)
    for one in answered:
        for axis in kinds:
            here = order[((one.wrong > 0) & (axes == axis))[order]]
            shown[here[: -(-limit // len(kinds))]] = True
    return order[shown[order]]


# Pictures ------------------------------------------------------------------------------------------------------------


def _folders(results: Sequence[Result], out: Path) -> list[Path]:
    """Where the pictures of a corpus may be: as the runs say, or beside the folder of runs."""
    told = dict.fromkeys(str(result.corpus.get("pictures") or "") for result in results)
    return [place for text in told if text for place in (Path(text), out.parent / text)]


def _shown(records: Sequence[ScoredItem], chosen: np.ndarray, folders: Sequence[Path]) -> list[dict[str, Any]]:
    found = []
    for place in chosen.tolist():
        record = records[place]
        item = record.item
        texts = {"id": item.id, "positives": item.positives, "negatives": item.negatives}
        found.append(texts | _picture(record, folders))
    return found


def _picture(record: ScoredItem, folders: Sequence[Path]) -> dict[str, Any]:
    """A picture as it was scored, small, as a data URI with its width and height; or why it is not shown."""
    if not record.picture:
        return {"picture": "", "why": "the run read none"}
    why = "the run does not say where its pictures are"
    for folder in folders:
        try:
            if picture_hash(folder, record.item.image) != record.picture:
                why = "its file has changed since it was scored"
                continue
            small = open_picture(folder, record.item.image)
        except (Missing, Unreadable, OSError) as error:
            why = str(error)
            continue
        small.thumbnail((SIDE, SIDE))
        return {"picture": data_uri(small, record.item.image), "pixels": small.size}
    return {"picture": "", "why": why}


def data_uri(picture: Image.Image, name: str) -> str:
    """A picture as text: PNG of few colours where it was none that loses any, else JPEG, which photographs need."""
    data = io.BytesIO()
    flat = name.lower().endswith((".png", ".gif"))
    if flat:
        picture.quantize(128).save(data, "PNG")
    else:
        picture.save(data, "JPEG", quality=80)
    return f"data:image/{'png' if flat else 'jpeg'};base64,{base64.b64encode(data.getvalue()).decode()}"
