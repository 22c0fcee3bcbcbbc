"""Records of pairs of scenes: items, ground truth, and the files of the published corpora."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from analysis.probe.corpora import checklist, predicate_noun
from analysis.probe.corpora.checklist import IMAGES
from analysis.probe.corpora.items import Item
from analysis.probe.scenes.drawing import CANVAS, PALETTE, PlacedObject, crop, draw_scene
from analysis.probe.scenes.scene_pairs import PairKind, PairMember, ScenePair
from analysis.probe.scenes.statements import Statement
from render.png import png

ITEM, PLACED = (tuple(field.name for field in fields(kind)) for kind in (Item, PlacedObject))
SceneRecord = dict[str, Any]
"""A line of items.jsonl: an item with objects and logical forms and, for a triplet, its published record."""


def describe(unit: PairKind, pair: ScenePair, number: int) -> tuple[SceneRecord, dict[str, bytes]]:
    """The record of one scene of a pair, and pictures by path. number: index in its file; odd ones are partners."""
    side = pair.sides[number % 2]
    picture = draw_scene(side.scene)
    if not unit.source:
        return _triplet(unit, pair, number, picture)
    name = f"{unit.axis}/{unit.source}"
    item = Item(
        id=f"{name}/{number}",
        image=f"{IMAGES}/{name}/{name.replace('/', '-')}-{number:06d}.png",  # features are found by file name
        positives=(side.positive.sentence(pair.template),),
        negatives=(side.negative.sentence(pair.template),),
        axis=unit.axis,
        source=unit.source,
        pair=f"{name}/{number // 2}",
        labels={"grade": unit.grade, "template": str(pair.template + 1), **pair.labels},
    )
    return {**vars(item), **_truth(side)}, {item.image: png(picture, PALETTE)}


def _triplet(unit: PairKind, pair: ScenePair, number: int, picture: Any) -> tuple[SceneRecord, dict[str, bytes]]:
    """A triplet with its 15 published keys, and the crop to its target, with the published file name."""
    side = pair.sides[number % 2]
    target, distractor = side.scene[side.subject], side.scene[1 - side.subject]
    noun, predicate = (word.capitalize() for word in side.positive.args)
    tested = 0 if unit.axis == "noun" else 1
    record = {
        "id": number,
        "img_filename": f"{number:06d}.png",
        "sentence_target": side.positive.sentence(0),
        "sentence_distractor": side.negative.sentence(0),
        "relationship_target": _relationship(f"{number:06d}t", target),
        "relationship_distractor": _relationship(f"{number:06d}d", distractor),
        "subject": noun,
        "predicate": "is",
        "object": predicate,
        "word_target": side.positive.args[tested].capitalize(),
        "word_distractor": side.negative.args[tested].capitalize(),
        "pos": "subject" if unit.axis == "noun" else "object",
        "open_images_split": "synthetic",
        "sentence_target_alt": side.positive.sentence(1),
        "sentence_distractor_alt": side.negative.sentence(1),
    }
    item = predicate_noun.item_of(record, str(number // 2), "normal", cropped=False)
    item = replace(item, labels={**item.labels, "grade": unit.grade, **pair.labels})
    cropped = predicate_noun.cropped_name(item.image, f"{number:06d}t")
    pictures = {item.image: picture, cropped: crop(picture, target)}
    return {**vars(item), **_truth(side), "record": record}, {
        f"{IMAGES}/{name}": png(pixels, PALETTE) for name, pixels in pictures.items()
    }


def _relationship(name: str, o: PlacedObject) -> dict[str, Any]:
    labels = {"Label1": o.shape.capitalize(), "label": "is", "Label2": o.colour.capitalize()}
    return {"id": name, **labels, "bounding_box": [length / CANVAS for length in o.box]}


def _truth(side: PairMember) -> SceneRecord:
    objects = [{**asdict(o), "size": o.size, "box": o.box, "area": o.box[2] * o.box[3]} for o in side.scene]
    forms = {"positive_form": vars(side.positive), "negative_form": vars(side.negative)}
    return {"objects": objects, "subject": side.subject, **forms}


# Reading -------------------------------------------------------------------------------------------------------------


def make_item(line: SceneRecord) -> Item:
    values = {name: line[name] for name in ITEM}
    return Item(**{**values, "positives": tuple(values["positives"]), "negatives": tuple(values["negatives"])})


def truth_of(line: SceneRecord) -> PairMember:
    """Ground truth of an item."""
    scene = tuple(PlacedObject(*(o[name] for name in PLACED)) for o in line["objects"])
    forms = (line[name] for name in ("positive_form", "negative_form"))
    true, false = (Statement(form["says"], tuple(form["args"])) for form in forms)
    return PairMember(scene, true, false, line["subject"])


def publish_items(lines: Sequence[SceneRecord]) -> dict[str, bytes]:
    """The files of the published corpora, by name: `eval_set.json`, or YAML and JSON for each axis and source."""
    if lines and "record" in lines[0]:
        return {predicate_noun.SET: json.dumps([line["record"] for line in lines]).encode()}
    return checklist.read_published([make_item(line) for line in lines])
