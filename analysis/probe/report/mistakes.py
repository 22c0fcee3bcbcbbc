"""Wrong items for the report: counts by axis and grade, and a sample with pictures.

The items have one random order for all models, and each model contributes its first wrong items of each axis. So models
with similar errors share items, and each item lists all models that have it wrong.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.old_errors import first_errors
from analysis.probe.corpora.items import Missing, Unreadable, open_picture
from analysis.probe.report.metrics import GRADE
from analysis.probe.report.results import Group, outcomes_of
from analysis.probe.scorers.scoring import ANSWERS, read_item_answers

TOTAL_ITEMS = 960  # wrong items in a report, for all models together
MIN_ITEMS, MAX_ITEMS = 24, 240  # wrong items of each model
SIDE = 256  # pixels of the longer side of a picture on the page


def wrong_items(group: Group, out: Path, limit: int) -> dict[str, Any]:
    """The page's JSON about a group's wrong items.

    models: names. cells: (axis, grade of negatives, number of items). wrong: for each model and cell, the numbers of
    wrong items and of ties among them. items: the sample, each with `errors`: model, whether it is a tie, score of the
    true sentences, score of the false ones.
    """
    answers = {label: read_item_answers(out / one.name / ANSWERS) for label, one in group.model_results.items()}
    answers = {label: records for label, records in answers.items() if records}  # some may have been deleted
    first = next(iter(answers.values()), [])
    place_of = {record.item.id: place for place, record in enumerate(first)}
    keys = [(record.item.axis, record.item.labels.get(GRADE, "")) for record in first]
    cells = list(dict.fromkeys(keys))
    cell, axes = np.array([cells.index(key) for key in keys], int), np.array([axis for axis, _ in keys])
    errors: list[dict[int, list[Any]]] = []  # of each model: by place, whether it is a tie, and both scores
    for label, records in answers.items():
        common = [record for record in records if record.item.id in place_of]
        results = outcomes_of(group.model_results[label], common)
        places = np.flatnonzero(results.scored & ~results.right).tolist()
        scores = results.compared.tolist()
        errors.append({place_of[common[n].item.id]: [bool(results.tie[n]), *scores[n]] for n in places})
    hits = [np.isin(np.arange(len(first)), list(wrong)) for wrong in errors]
    by_axis = ([hit & (axes == axis) for axis in np.unique(axes)] for hit in hits)
    folders = _folders(group, out)
    entries = []
    for place in first_errors(by_axis, len(first), limit, seed=0).tolist():
        item = first[place].item
        texts = {"id": item.id, "positives": item.positives, "negatives": item.negatives}
        by_model = [[number, *wrong[place]] for number, wrong in enumerate(errors) if place in wrong]
        entries.append(texts | _picture(item.image, folders) | {"cell": int(cell[place]), "errors": by_model})
    counts = []
    for wrong in errors:
        ties = [place for place, (tie, *_) in wrong.items() if tie]
        both = [np.bincount(cell[places], minlength=len(cells)) for places in (list(wrong), ties)]
        counts.append(np.stack(both, axis=1).tolist())
    sizes = np.bincount(cell).tolist()
    with_sizes = [(*key, size) for key, size in zip(cells, sizes, strict=True)]
    return {"title": group.title, "models": list(answers), "cells": with_sizes, "wrong": counts, "items": entries}


def per_model(models: int) -> int:
    """The number of wrong items to show of each model."""
    return min(max(TOTAL_ITEMS // max(models, 1), MIN_ITEMS), MAX_ITEMS)


def _folders(group: Group, out: Path) -> list[Path]:
    """Possible folders of the pictures: those in the results, also relative to the parent of the folder of runs."""
    texts = dict.fromkeys(str(result.corpus.get("pictures") or "") for result in group.model_results.values())
    return [place for text in texts if text for place in (Path(text), out.parent / text)]


def _picture(image: str, folders: Sequence[Path]) -> dict[str, Any]:
    """A scored picture as a thumbnail (data URI, width and height), or the reason why it is not shown. A thumbnail is a
    PNG with a palette if the picture's name is that of a PNG or GIF, else a JPEG."""
    why = "the run has no folder of pictures"
    for folder in folders:
        try:
            small = open_picture(folder, image)
        except (Missing, Unreadable, OSError) as error:
            why = str(error)
            continue
        small.thumbnail((SIDE, SIDE))
        data, kind = io.BytesIO(), "png" if image.lower().endswith((".png", ".gif")) else "jpeg"
        (small.quantize(128) if kind == "png" else small).save(data, kind, quality=80)
        source = f"data:image/{kind};base64,{base64.b64encode(data.getvalue()).decode()}"
        return {"picture": source, "pixels": small.size}
    return {"picture": "", "why": why}
