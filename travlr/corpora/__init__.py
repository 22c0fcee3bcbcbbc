"""Other people's questions as ordinary datasets: pictures with true and false sentences.

To read in this order: `items`; `pairs`, `checklist` and `predicate_noun`, a file for each kind of corpus; `writing`,
which makes a dataset of one; `taxonomy`, the axes of VL-CheckList and its averages.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from travlr.corpora.checklist import Checklist
from travlr.corpora.items import MATCH as MATCH
from travlr.corpora.items import CorpusReader
from travlr.corpora.pairs import ARO_GROUPS, Pairs
from travlr.corpora.predicate_noun import PredicateNoun
from travlr.dataset import Dataset

KINDS: dict[str, type[CorpusReader]] = {
    "checklist": Checklist,
    "predicate_noun": PredicateNoun,
    "pairs": Pairs,
}
"""Every kind of corpus; the first that accepts a file or folder reads it."""


def is_corpus(dataset: Dataset) -> bool:
    """Whether a dataset holds pictures with true and false sentences, and not scenes of this project."""
    return dataset.task == MATCH


def item_columns(dataset: Dataset, split: str, count: int | None = None) -> dict[str, np.ndarray]:
    """Columns of texts, with a value for each of the first `count` rows of a split (None: of all).

    item: rows with the same value show one picture, with sentences that are true and false of it. couple: the same for
    items that exchange their sentences, or empty. axis, source: what is tested, and the data set within it. picture:
    its path in the corpus. group: of ARO, the relation or the pair of attributes, else empty. Where scenes are asked
    about, rows 2k and 2k + 1 are an item and a couple, the axis is the first part of the pair, and there is no source.
    """
    columns: dict[str, list[str]] = {name: [] for name in ("item", "couple", "axis", "source", "picture", "group")}
    of_scenes = not is_corpus(dataset)
    for table in dataset[split].tables("query_form", "pair", "image.path"):
        for form, pair, image in zip(*(table[name].to_pylist() for name in table.column_names), strict=True):
            number = f"{split}/{len(columns['item']) // 2}"
            values: dict[str, Any] = {"item": number, "couple": number} if of_scenes else json.loads(form)
            source = pair[1] if len(pair) > 1 and not of_scenes else ""
            labels = values.get("labels", {})
            group = next((f"{name}: {labels[name]}" for name in ARO_GROUPS if name in labels), "")
            row = (values["item"], values["couple"], pair[0] if pair else "", source, image["path"], group)
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
        if count is not None and len(columns["item"]) >= count:
            break
    return {name: np.array(values[:count], dtype=object) for name, values in columns.items()}
