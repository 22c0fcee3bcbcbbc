"""The examples of an evaluation: how many of each split, and how their pictures and captions are shown."""

from __future__ import annotations

import functools
import hashlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

import numpy as np
from PIL import Image

from render.text import make_captioner
from train.ask.config import BLANK, SHUFFLED, Evaluation, ShownStyle
from train.ask.requests import open_picture
from travlr.config import Style
from travlr.corpora import is_corpus, item_columns
from travlr.dataset import Dataset, Example, SplitReader
from travlr.generate import renderer_of
from travlr.tasks import config_from_dict

BLOCK = 1000  # rows among which pictures are shuffled
Columns = Mapping[str, np.ndarray]  # of `travlr.corpora.item_columns`


class ShownExamples:
    """The examples of a dataset as an evaluation shows them. style: of pictures and of captions, None for a corpus's
    own.

    Raises `ValueError` for a style that needs scenes, if the dataset does not say how its scenes are drawn.
    """

    def __init__(self, config: Evaluation, dataset: Dataset) -> None:
        self.dataset, self.limit, self.is_corpus = dataset, config.limit, is_corpus(dataset)
        self.columns = functools.cache(functools.partial(item_columns, dataset))
        self.style, self._scenes = shown_style(config.style, dataset)

    def count(self, split: str) -> int:
        """How many examples are shown: the first `limit`, in whole items and couples, and at least one of these."""
        if self.limit is None:
            return len(self.dataset[split])
        columns = self.columns(split)
        return whole_units(columns, self.limit) or next(
            n for n in range(self.limit, len(columns["item"]) + 1) if whole_units(columns, n)
        )

    def shown(self, split: str) -> Iterator[tuple[Example, str]]:
        """Each example, and the path of the picture that it shows; empty for a blank one."""
        rows = shuffled_rows if self.style["image"] == SHUFFLED else zip_pictures
        for example, path in islice(rows(self.dataset[split], self.columns(split)), self.count(split)):
            if self._scenes is not None:
                example = self._scenes(example)
            if self.style["image"] == BLANK:
                example, path = replace(example, image=blank_picture(example.image)), ""
            yield example, path


def whole_units(columns: Columns, count: int) -> int:
    """The most of the first `count` rows that end with a whole item and its couple."""
    units = np.where(columns["couple"] == "", columns["item"], columns["couple"])
    ends = np.flatnonzero(np.append(units[1:] != units[:-1], True)) + 1
    return int(ends[ends <= count].max(initial=0))


def zip_pictures(reader: SplitReader, columns: Columns) -> Iterator[tuple[Example, str]]:
    """Each example, and the path of its picture."""
    return zip(reader, (str(path or "") for path in columns["picture"]), strict=True)


def shuffled_rows(reader: SplitReader, columns: Columns) -> Iterator[tuple[Example, str]]:
    """Each example with the picture of another item, and the path of that; pictures are exchanged within `BLOCK` rows,
    so that few are in memory."""
    rows, total, start = zip_pictures(reader, columns), len(reader), 0
    for stop in (*(whole_units(columns, n) for n in range(BLOCK, total - BLOCK + 1, BLOCK)), total):
        block = list(islice(rows, stop - start))
        others = shuffle_pictures({name: values[start:stop] for name, values in columns.items()})
        for (example, _), other in zip(block, others.tolist(), strict=True):
            yield replace(example, image=block[other][0].image), block[other][1]
        start = stop


def shuffle_pictures(columns: Columns) -> np.ndarray:
    """For each row (N,) the row whose picture it shows: one of the next item, in an order by the hash of their names,
    that has another picture. Raises `ValueError` if all have the same."""
    rows: dict[str, list[int]] = {}
    for row, item in enumerate(columns["item"]):
        rows.setdefault(item, []).append(row)
    order = sorted(rows, key=lambda item: hashlib.sha256(f"shuffled {item}".encode()).digest())
    pictures, shown = columns["picture"], np.empty(len(columns["item"]), np.intp)
    for place, item in enumerate(order):
        later = (rows[order[(place + step) % len(order)]] for step in range(1, len(order)))
        other = next((others for others in later if pictures[others[0]] != pictures[rows[item][0]]), None)
        if other is None:
            raise ValueError("style.image=shuffled: needs items with different pictures")
        shown[rows[item]] = [other[n % len(other)] for n in range(len(rows[item]))]
    return shown


def blank_picture(data: bytes) -> bytes:
    """A white picture, PNG, of the size of another."""
    return _blank(open_picture(data).size)


@functools.lru_cache
def _blank(size: tuple[int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, "white").save(file, "PNG")
    return file.getvalue()


# Scenes ---------------------------------------------------------------------------------------------------------------


def shown_style(changes: ShownStyle, dataset: Dataset) -> tuple[dict[str, str | None], SceneStyle | None]:
    """The style of pictures and captions, and what draws and words scenes in it, None where they are shown as they
    are."""
    values = dataset.manifest["config"]
    other_picture = changes.image if changes.image in (BLANK, SHUFFLED) else None
    if not values:
        if changes.caption or (changes.image and not other_picture):
            why = "does not say how its scenes are drawn"
            raise ValueError(f"style: data={dataset.folder} {why}; leave it out, or style.image={BLANK} or {SHUFFLED}")
        own = {"image": None, "caption": None} if is_corpus(dataset) else Style().model_dump()
        return own | ({"image": other_picture} if other_picture else {}), None
    own = config_from_dict(values).style.model_dump()
    style = own | {name: value for name, value in changes.model_dump().items() if value}
    drawn = style | ({"image": own["image"]} if other_picture else {})
    return style, SceneStyle(dataset, Style(**drawn)) if drawn != own else None


class SceneStyle:
    """Draws and words the scenes of a dataset in a style, without writing another dataset."""

    def __init__(self, dataset: Dataset, style: Style) -> None:
        own = config_from_dict(dataset.manifest["config"])
        self.world = own.world
        self._renderer = renderer_of(own.changed(style=style)) if style.image != own.style.image else None
        self._captioner = make_captioner(style.caption, own.world) if style.caption != own.style.caption else None

    def __call__(self, example: Example) -> Example:
        """The example with its picture and its caption in the style."""
        if self._renderer is not None:
            grid = np.zeros((1, self.world.cells), np.intp)
            for o in example.scene:
                grid[0, o.row * self.world.columns + o.column] = self.world.number[o.size, o.shape, o.colour]
            example = replace(example, image=self._renderer.pngs(grid)[0])
        if self._captioner is not None:
            example = replace(example, caption=self._captioner.caption(example.scene))
        return example
