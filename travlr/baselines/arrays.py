"""What rules see of a split, as arrays.

N examples, W words of the world (colours, then shapes), O and D arguments of a query that describe no object or some.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute
from PIL import Image as pillow

from render.shapes import LEVELS, WHITE, blend
from render.text import CAPTION_STYLES
from travlr.config import Style
from travlr.dataset import Dataset
from travlr.scene import COLOURS
from travlr.tasks import task_class

COLUMNS = ("query", "query_form", "caption", "objects", "answer", "task")
MENTIONS = 3  # of each word, from the first
BINS = 6  # bands of rows and of columns in which the ink of a picture is summed
ROWS = 32_000  # of each split, at most
WordLists = tuple[list[str], list[str]]  # colours and shapes


@dataclass(frozen=True)
class SplitArrays:
    """N examples as arrays.

    operators: (N, O), the arguments of a query that describe no objects: a number as it is, a word ("left") as a number
    below -1; -1 for none.
    nouns: (N, D, 2) words of the arguments that describe objects, a colour and a shape, -1 where a noun lacks one.
    counts: (N, W), how many objects each word describes. last: (N, W), the last object in caption order that a word
    describes, -1 if there is none; mentions: (N, W, `MENTIONS`), the first few. cells: (N, rows,
    columns) bool, occupied. others: (N, rows, columns) bool, occupied by an object that no noun describes. total: (N,).
    described: (N,), how many objects any noun describes. places: (N, D, 2), row and column of the object that a noun
    describes, -1 unless there is exactly one. ends: (N, 2, 4), colour, shape, row and column of the first and the last
    object. length, picture: (N,), characters of the caption and bytes of the picture file. ink: (N, colours of
    `COLOURS` + 2 `BINS`), pixels that each colour, each band of rows and each band of columns covers. texts: caption
    and query. answers: (N,) bool.
    """

    operators: np.ndarray
    nouns: np.ndarray
    counts: np.ndarray
    last: np.ndarray
    mentions: np.ndarray
    cells: np.ndarray
    others: np.ndarray
    total: np.ndarray
    described: np.ndarray
    places: np.ndarray
    ends: np.ndarray
    length: np.ndarray
    picture: np.ndarray
    ink: np.ndarray
    texts: list[str]
    answers: np.ndarray
    colours: int  # the first words are colours, then come shapes

    @property
    def kinds(self) -> tuple[np.ndarray, np.ndarray]:
        """Counts of the colours and of the shapes."""
        return self.counts[:, : self.colours], self.counts[:, self.colours :]

    def noun_counts(self, *nouns: int) -> np.ndarray:
        """(N, 2 nouns): how many objects the colour and the shape of nouns (of all, where none is given) describe, each
        word alone; -1 for none."""
        words = self.nouns[:, nouns or slice(None)].reshape(len(self.total), -1)
        return np.where(words < 0, -1, np.take_along_axis(self.counts, np.maximum(words, 0), 1))


def word_lists(train: pa.Table) -> WordLists:
    """Colours and shapes that the train split shows, sorted."""
    objects = train["objects"].combine_chunks().flatten()
    colours, shapes = (sorted(set(objects.field(name).unique().to_pylist())) for name in ("colour", "shape"))
    return colours, shapes


def split_arrays(table: pa.Table, words: WordLists) -> SplitArrays:
    """A split, as `read_split` returns it, as arrays. words: colours and shapes."""
    objects = table["objects"].combine_chunks()
    starts = objects.offsets.to_numpy() - objects.offsets[0].as_py()
    total, parts = np.diff(starts), objects.flatten()
    example = np.repeat(np.arange(len(table)), total)
    colour, shape = (
        pa.compute.index_in(parts.field(name), pa.array(names)).fill_null(-1).to_numpy()
        for name, names in zip(("colour", "shape"), words, strict=True)
    )
    row, column = (parts.field(name).to_numpy() for name in ("row", "column"))
    operators, nouns = _queries(table["query_form"].to_pylist(), words)
    colours = len(words[0])
    counts = np.zeros((len(table), colours + len(words[1])), np.int64)
    last = np.full(counts.shape, -1)
    place = np.arange(len(example)) - starts[example]  # of each object in its caption
    mentions = np.full((*counts.shape, MENTIONS), -1)
    for word in (colour, colours + shape):
        keys = example * counts.shape[1] + word
        order = np.argsort(keys, kind="stable")
        times = np.empty_like(keys)  # how many objects before an object have its word
        times[order] = np.arange(len(keys)) - np.searchsorted(keys[order], keys[order])
        early = times < MENTIONS
        mentions[example[early], word[early], times[early]] = place[early]
        np.add.at(counts, (example, word), 1)
        np.maximum.at(last, (example, word), place)
    cells = np.zeros((len(table), int(row.max()) + 1, int(column.max()) + 1), bool)
    cells[example, row, column] = True
    described, places = np.zeros(len(example), bool), np.full((*nouns.shape[:2], 2), -1)
    words_of_object = np.stack([colour, colours + shape], 1)
    for noun in range(nouns.shape[1]):
        words_of_noun = nouns[example, noun]  # in the query about each object's scene
        match = np.all((words_of_noun < 0) | (words_of_noun == words_of_object), axis=1)
        described |= match
        alone = np.flatnonzero(match & (np.bincount(example[match], minlength=len(table)) == 1)[example])
        places[example[alone], noun] = np.stack([row, column], 1)[alone]
    others = cells.copy()
    others[example[described], row[described], column[described]] = False
    columns = np.stack([colour, shape, row, column], 1)
    return SplitArrays(
        operators=operators,
        nouns=nouns,
        counts=counts,
        last=last,
        mentions=mentions,
        cells=cells,
        others=others,
        total=total,
        described=np.bincount(example[described], minlength=len(table)),
        places=places,
        ends=np.stack([columns[starts[:-1]], columns[starts[1:] - 1]], 1),
        length=pa.compute.utf8_length(table["caption"].combine_chunks()).to_numpy(),
        picture=table["picture"].to_numpy(),
        ink=np.array(table["ink"].combine_chunks().flatten()).reshape(len(table), -1),
        texts=[f"{c} . {q}" for c, q in zip(table["caption"].to_pylist(), table["query"].to_pylist(), strict=True)],
        answers=table["answer"].to_numpy(),
        colours=colours,
    )


def _queries(forms: Sequence[str], words: WordLists) -> tuple[np.ndarray, np.ndarray]:
    """`SplitArrays.operators` and `SplitArrays.nouns` of queries."""
    colours, shapes = words
    parsed = {text: json.loads(text) for text in dict.fromkeys(forms)}
    operators = sorted(  # so that each split gives them the same numbers
        {
            arg
            for form in parsed.values()
            for i, arg in enumerate(form["args"])
            if isinstance(arg, str) and i not in task_class(form["task"]).language().nouns
        }
    )
    rows: dict[str, tuple[list[int], list[tuple[int, int]]]] = {}
    for text, form in parsed.items():
        noun_arguments = task_class(form["task"]).language().nouns
        nouns = []
        for i in noun_arguments:
            parts = str(form["args"][i]).split()
            colour = next((colours.index(word) for word in parts if word in colours), -1)
            shape = next((len(colours) + shapes.index(word) for word in parts if word in shapes), -1)
            nouns.append((colour, shape))
        others = [arg for i, arg in enumerate(form["args"]) if i not in noun_arguments]
        coded = [arg if isinstance(arg, int) else -2 - operators.index(str(arg)) for arg in others]
        rows[text] = (coded or [-1], nouns)
    numbers, nouns_of = zip(*(rows[text] for text in forms), strict=True)
    return np.array(numbers, np.int64), np.array(nouns_of, np.int64).reshape(len(forms), -1, 2)


# Reading --------------------------------------------------------------------------------------------------------------


def read_split(dataset: Dataset, split: str) -> pa.Table:
    """The first rows of a split: `COLUMNS`, and `picture`, the bytes of each picture file."""
    parts: list[pa.Table] = []
    for table in dataset[split].tables():
        table = table[: ROWS - sum(map(len, parts))]
        if not len(table):
            break
        pictures = table["image"].combine_chunks().field("bytes")
        inks = []
        for picture in pictures:
            try:
                inks.append(_ink_of(picture.as_buffer()))
            except (OSError, SyntaxError, pillow.DecompressionBombError):
                row = sum(len(part) for part in parts) + len(inks)
                problem = f"the picture of row {row} of {split} is no readable PNG or JPEG"
                raise ValueError(f"{dataset.folder}: {problem}") from None
        ink = pa.array(inks, pa.list_(pa.float64()))
        sizes = pa.compute.binary_length(pictures)
        parts.append(table.select(COLUMNS).append_column("picture", sizes).append_column("ink", ink))
    whole = pa.concat_tables(parts)
    style = dataset.config.style if dataset.config else Style()
    return whole if CAPTION_STYLES[style.caption].ordered else in_reading_order(whole)


def _ink_of(data: pa.Buffer) -> np.ndarray:
    """Pixels that each colour, each band of rows and each band of columns of a picture file covers."""
    picture: pillow.Image = pillow.open(io.BytesIO(data), formats=("PNG", "JPEG"))
    if picture.mode != "P":
        picture = picture.convert("RGB").quantize(64)
    entries, weights = np.asarray(picture), _weights(bytes(picture.getpalette("RGB") or b""))
    height, width = entries.shape
    inked = np.flatnonzero(entries != weights.any(1).argmin())  # few pixels: most are white
    entries, (rows, columns) = entries.ravel()[inked], np.divmod(inked, width)
    covered = weights.sum(1)[entries]
    bands = [np.bincount(bands_of(size)[at], covered, BINS) for at, size in ((rows, height), (columns, width))]
    return np.concatenate([np.bincount(entries, minlength=256) @ weights, *bands])


@functools.cache
def bands_of(size: int) -> np.ndarray:
    """The band of each of `size` lines."""
    return np.searchsorted(np.arange(BINS) * size // BINS, np.arange(size), side="right") - 1


@functools.cache
def _weights(palette: bytes) -> np.ndarray:
    """(256, colours): how much of a pixel each colour covers, for each entry of a palette; the nearest is taken."""
    entries = np.frombuffer(palette, np.uint8).reshape(-1, 3).astype(float)
    shades = [(-1, 0, list(WHITE))]
    for number, rgb in enumerate(COLOURS.values()):
        shades += [(number, level, blend(rgb, WHITE, level)) for level in range(1, LEVELS + 1)]
    distance = ((entries[:, None] - np.array([rgb for _, _, rgb in shades])[None]) ** 2).sum(2)
    weights = np.zeros((256, len(COLOURS)))
    for entry, nearest in enumerate(distance.argmin(1)):
        number, level, _ = shades[nearest]
        if level:
            weights[entry, number] = level / LEVELS
    return weights


def in_reading_order(table: pa.Table) -> pa.Table:
    """A table with the objects of each row in the order in which a grid of words shows them."""
    objects = table["objects"].combine_chunks()
    lengths = objects.value_lengths().to_numpy()
    example = np.repeat(np.arange(len(table)), lengths)
    flat = objects.flatten()
    row, column = (flat.field(name).to_numpy() for name in ("row", "column"))
    offsets = pa.array(np.concatenate([[0], lengths.cumsum()]).astype(np.int32))
    sorted_objects = pa.ListArray.from_arrays(offsets, flat.take(pa.array(np.lexsort((column, row, example)))))
    return table.set_column(table.column_names.index("objects"), "objects", sorted_objects)
