"""Pictures with true and false captions: SugarCrepe, ARO, Winoground, and a plain form for any other set.

Files are JSON (a list of records, or an object whose values are records) or JSON lines; a folder stands for all such
files in it. A record is one of these:

SugarCrepe   {"filename": "1.jpg", "caption": "...", "negative_caption": "..."}
ARO          {"image_path": "1.jpg", "true_caption": "...", "false_caption": "...", "bbox_x": 0, "bbox_y": 0,
              "bbox_w": 9, "bbox_h": 9}: the part of the picture that the captions are about
Winoground   {"id": 0, "image_0": "ex_0_img_0", "image_1": "ex_0_img_1", "caption_0": "...", "caption_1": "..."}
plain        {"image": "1.jpg", "true": ["..."], "false": ["...", "..."]}, and where wanted "axis", "source",
             "couple", "labels": {"...": "..."} and "box": [x, y, width, height]

The axis of a record without one is the name of its file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pydantic import Field

from travlr.corpora.items import Corpus, CorpusReader, Item, crop_items, read_items
from travlr.settings import count_text

Record = dict[str, Any]
ARO_GROUPS = {"relation": 1, "attributes": 25}  # what ARO's means are over -> the fewest items of each value
SUFFIXES = (".json", ".jsonl")


class Pairs(CorpusReader):
    about = "pictures with true and false captions: SugarCrepe, ARO, Winoground, or the plain form of docs/corpora.md"

    crop: bool = Field(False, description="show the box of an item alone, as ARO's own evaluation does")

    @classmethod
    def accepts(cls, source: Path) -> bool:
        return bool(files_of(source))

    def read(self, source: Path) -> Corpus:
        files = files_of(source)
        items = [item for path in files for item in read_items(path, functools.partial(items_of, path.stem))]
        if self.crop:
            items, notes = crop_items(items)
        else:
            number = sum(item.box is not None for item in items)
            note = f"shown whole, though they have a box (crop=true shows it alone): {count_text(number, 'item')}"
            notes = [note] * (number > 0)
            items = [item.model_copy(update={"box": None}) for item in items]
        folder = source if source.is_dir() else source.parent
        return Corpus(self.name or source.resolve().stem, items, self.find_images(folder), {"crop": self.crop}, notes)


def files_of(source: Path) -> list[Path]:
    """The files of a corpus: itself, or those in its folder."""
    paths = sorted(source.iterdir()) if source.is_dir() else [source]
    return [path for path in paths if path.suffix in SUFFIXES and path.is_file()]


# The items of a record ------------------------------------------------------------------------------------------------


def items_of(stem: str, number: int, record: Record) -> list[Item]:
    """The items of a record in the file of this name."""
    read = next((read for key, read in FORMS.items() if key in record), plain_items)
    items = [{"axis": stem, **item} for item in read(record)]
    name = f"{stem}/{number}"
    if len(items) > 1:
        items = [{**item, "couple": name} for item in items]
    elif couple := items[0].get("couple"):  # which another file may have, too
        items[0]["couple"] = f"{stem}/{couple}"
    return [Item(id=f"{name}/{n}" if len(items) > 1 else name, **item) for n, item in enumerate(items)]


def plain_items(record: Record) -> Iterable[Record]:
    yield {"picture": record["image"], **{name: value for name, value in record.items() if name != "image"}}


def sugarcrepe_items(record: Record) -> Iterable[Record]:
    yield {"picture": record["filename"], "true": [record["caption"]], "false": [record["negative_caption"]]}


def aro_items(record: Record) -> Iterable[Record]:
    """Its labels are what the published evaluation averages over: relations, or pairs of attributes."""
    labels = {"relation": record["relation_name"]} if "relation_name" in record else {}
    if "attributes" in record:
        labels = {"attributes": "_".join(record["attributes"])}
    yield {
        "picture": record["image_path"],
        "true": [record["true_caption"]],
        "false": [record["false_caption"]],
        "box": [record[f"bbox_{side}"] for side in "xywh"] if "bbox_x" in record else None,
        "labels": labels,
    }


def winoground_items(record: Record) -> Iterable[Record]:
    """Two pictures that exchange their captions; its file names them without `.png`."""
    labels = {name: str(record[name]) for name in ("tag", "secondary_tag") if record.get(name)}
    axis = {"axis": record["collapsed_tag"]} if record.get("collapsed_tag") else {}
    for own, other in ("01", "10"):
        image = record[f"image_{own}"]
        yield {
            "picture": image if Path(image).suffix else f"{image}.png",
            "true": [record[f"caption_{own}"]],
            "false": [record[f"caption_{other}"]],
            "labels": labels,
            **axis,
        }


# A key that only the records of a published set have -> the items of a record, as arguments of `Item`.
FORMS: dict[str, Callable[[Record], Iterable[Record]]] = {
    "negative_caption": sugarcrepe_items,
    "false_caption": aro_items,
    "image_1": winoground_items,
}
