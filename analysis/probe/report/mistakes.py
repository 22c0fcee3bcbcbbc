"""Wrong items for the report: counts by axis and grade, and a sample with pictures.

The items have one random order for all models, and each model contributes its first wrong items of each axis. So models
with similar errors share items, and each item lists all models that have it wrong.
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

from analysis.errors import first_errors
from analysis.probe.corpora.items import Item, Missing, Unreadable, open_picture
from analysis.probe.report.metrics import GRADE
from analysis.probe.report.outcomes import margins, outcomes
from analysis.probe.report.results import Group, Result
from analysis.probe.scorers.scoring import ANSWERS, ScoredItem, picture_hash, read_answers

TOTAL_ITEMS = 960  # wrong items in a report, for all models together
MIN_ITEMS, MAX_ITEMS = 24, 240  # wrong items of each model
SIDE = 256  # pixels of the longer side of a picture on the page
WRONG, TIE = 1, 2


@dataclass(frozen=True)
class ModelErrors:
    """A model's errors on the N items of a corpus. wrong: (N,) uint8, `WRONG`, `TIE`, or 0 if right or not scored.
    scores: (N, 2) compared scores of the true and of the false sentences."""

    label: str
    wrong: np.ndarray
    scores: np.ndarray


def wrong_items(group: Group, out: Path, limit: int, seed: int = 0) -> dict[str, Any]:
    """The page's JSON about a group's wrong items.

    models: names. cells: (axis, grade of negatives, number of items). wrong: for each model and cell, the numbers of
    wrong items and of ties among them. items: the sample, each with `errors`: model, whether it is a tie, score of the
    true sentences, score of the false ones.
    """
    results = [result for result in group.results if result.model]
    records = {
        label: read_answers(out / result.name / ANSWERS) for label, result in zip(group.models, results, strict=True)
    }
    records = {label: of for label, of in records.items() if of}  # without runs whose answers were deleted
    if not records:
        return {"title": group.title, "models": [], "cells": [], "wrong": [], "items": []}
    first = next(iter(records.values()))
    places = {record.item.id: place for place, record in enumerate(first)}
    how = dict(zip(group.models, results, strict=True))
    answered = [_answered(label, how[label], of, places) for label, of in records.items()]
    items = [record.item for record in first]
    cells, cell = _cells(items)
    axes = np.array([item.axis for item in items])
    errors = ([(one.wrong > 0) & (axes == axis) for axis in np.unique(axes)] for one in answered)
    chosen = first_errors(errors, len(items), limit, seed)
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
    """The number of wrong items to show of each model."""
    return int(np.clip(TOTAL_ITEMS // max(models, 1), MIN_ITEMS, MAX_ITEMS))


def _answered(label: str, result: Result, records: Sequence[ScoredItem], places: Mapping[str, int]) -> ModelErrors:
    """A model's answers in the order of `places`, by id."""
    shared = [record for record in records if record.item.id in places]
    how = result.measuring
    items, answers = [record.item for record in shared], [record.answer for record in shared]
    found = outcomes(items, answers, how["sentences"], how["tolerance"])
    wrong, scores = np.zeros(len(places), np.uint8), np.full((len(places), 2), np.nan)
    for n in np.flatnonzero(found.scored & ~found.right).tolist():
        place = places[answers[n].id]
        wrong[place] = TIE if found.tie[n] else WRONG
        scores[place] = margins(answers[n], how["sentences"])
    return ModelErrors(label, wrong, scores)


def _cells(items: Sequence[Item]) -> tuple[list[tuple[str, str, int]], np.ndarray]:
    """The cells (axis, grade, items) in order of occurrence, and (N,) each item's cell."""
    keys = [(item.axis, item.labels.get(GRADE, "")) for item in items]
    order = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    cell = np.array([order[key] for key in keys], np.int64)
    counts = np.bincount(cell, minlength=len(order)).tolist()
    return [(axis, grade, count) for (axis, grade), count in zip(order, counts, strict=True)], cell


# Pictures ------------------------------------------------------------------------------------------------------------


def _folders(results: Sequence[Result], out: Path) -> list[Path]:
    """Possible folders of the pictures: those in the results, also relative to the parent of the folder of runs."""
    texts = dict.fromkeys(str(result.corpus.get("pictures") or "") for result in results)
    return [place for text in texts if text for place in (Path(text), out.parent / text)]


def _shown(records: Sequence[ScoredItem], chosen: np.ndarray, folders: Sequence[Path]) -> list[dict[str, Any]]:
    found = []
    for place in chosen.tolist():
        record = records[place]
        item = record.item
        texts = {"id": item.id, "positives": item.positives, "negatives": item.negatives}
        found.append(texts | _picture(record, folders))
    return found


def _picture(record: ScoredItem, folders: Sequence[Path]) -> dict[str, Any]:
    """A scored picture as a thumbnail (data URI, width and height), or the reason why it is not shown."""
    if not record.picture:
        return {"picture": "", "why": "the run read no picture"}
    why = "the run has no folder of pictures"
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
    """A picture as a data URI: PNG with a palette if its name is that of a PNG or GIF, else JPEG."""
    data = io.BytesIO()
    flat = name.lower().endswith((".png", ".gif"))
    if flat:
        picture.quantize(128).save(data, "PNG")
    else:
        picture.save(data, "JPEG", quality=80)
    return f"data:image/{'png' if flat else 'jpeg'};base64,{base64.b64encode(data.getvalue()).decode()}"
