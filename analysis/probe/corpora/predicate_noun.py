"""The predicate-noun study's evaluation set.

Nikolaus et al. 2022, "Do Vision-and-Language Transformers Learn Grounded Predicate-Noun Dependencies?". A pair is two
triplets (picture, true sentence, false sentence) with exchanged sentences, so that text alone cannot decide.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from analysis.probe.corpora.items import WHOLE, Corpus, Item
from analysis.probe.folders import read_json_file, reading

SET = "eval_set.json"
AXES = {"object": "predicate", "subject": "noun"}  # wrong part of the false sentence, by the published `pos`
ALT = ("sentence_target_alt", "sentence_distractor_alt")
KEYS = (
    "id", "img_filename", "sentence_target", "sentence_distractor", "relationship_target", "relationship_distractor",
    "subject", "predicate", "object", "word_target", "word_distractor", "pos", "open_images_split", *ALT,
)  # fmt: skip
Triplet = dict[str, Any]


def cropped_name(image: str, relation: str) -> str:
    """The file name of a picture cropped to a relationship's box, by the published rule."""
    stem, extension = os.path.splitext(image)
    return f"{stem}_rel_{relation}{extension}"


def read_set(
    path: Path | str, template: str = "normal", cropped: bool = False, images: Path | str | None = None
) -> Corpus:
    """A published evaluation set as a corpus: its file, or the folder that it is in.

    Axis `predicate` where the false sentence has the wrong predicate, `noun` where it has the wrong noun. template:
    `normal` ("a man is wearing glasses") or `alt` ("the man wears glasses"). cropped: use crops to the target's box
    (`cropped_name`), without the visual distractors. images: the folder of the pictures; None: the folder `images`
    beside the file, if there is one. Raises `ValueError`, with the file's name, for a file of another form.
    """
    file = Path(path) / SET if Path(path).is_dir() else Path(path)
    if images is not None and not Path(images).is_dir():
        raise ValueError(f"images={images}: there is no such folder")
    beside = file.parent / "images" if (file.parent / "images").is_dir() else None
    with reading(file):
        records: list[Triplet] = read_json_file(file)
        if len(records) % 2:
            raise ValueError(f"has an odd number of triplets, {len(records):,}; two in a row are a pair")
        items = tuple(item_of(record, str(number // 2), template, cropped) for number, record in enumerate(records))
        unexchanged = sum(not _exchanged(*records[n : n + 2]) for n in range(0, len(records), 2))
    name = f"predicate-noun{', alt' * (template == 'alt')}{', cropped' * cropped}"
    note = f"pairs without exchanged sentences, where text alone may decide: {unexchanged:,} of {len(records) // 2:,}"
    return Corpus(name, "predicate_noun", items, Path(images) if images else beside, (note,) if unexchanged else ())


def item_of(record: Triplet, pair: str, template: str, cropped: bool) -> Item:
    """A triplet as an item. pair: the number of its pair."""
    target, distractor = ALT if template == "alt" else ("sentence_target", "sentence_distractor")
    image = record["img_filename"]
    labels = {key: record[key] for key in ("subject", "predicate", "object", "word_target", "word_distractor")}
    labels |= {"template": template, "cropped": str(cropped).lower(), "split": record["open_images_split"]}
    return Item(
        id=str(record["id"]),
        image=cropped_name(image, record["relationship_target"]["id"]) if cropped else image,
        positives=(record[target],),
        negatives=(record[distractor],),
        axis=AXES[record["pos"]],
        pair=pair,
        labels={**labels, **({WHOLE: image} if cropped else {})},
    )


def _exchanged(one: Triplet, other: Triplet) -> bool:
    """Whether two triplets exchange their sentences."""
    return one["pos"] == other["pos"] and all(
        one[f"sentence_{a}{ending}"] == other[f"sentence_{b}{ending}"]
        for ending in ("", "_alt")
        for a, b in (("target", "distractor"), ("distractor", "target"))
    )
