"""Rules that answer queries without reasoning: what they see of a split, as arrays, and the features of each rule.

A rule is *unbound* when it sees counts of words, totals, places or orders, but not which colour, shape and place belong
together, or only one of the objects or counts that a query compares. `travlr.baselines` fits and scores the rules.

N examples, W words of the world (colours, then shapes), O and D arguments of a query that describe no object or some.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from PIL import Image as pillow

from render.shapes import LEVELS, WHITE, blend
from render.text import CAPTION_STYLES
from travlr.columns import damage
from travlr.config import Style
from travlr.dataset import open_dataset
from travlr.manifest import MANIFEST
from travlr.scene import COLOURS
from travlr.tasks import config_from_dict, task_class

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


Features = Callable[[SplitArrays], np.ndarray]


@dataclass(frozen=True)
class Rule:
    """A rule. blind: what it cannot see. features: (N, F) numbers that it sees beside the words of the query.

    bound_for: kinds of task (`Task.decided_by`) for which these features hold what decides, so that the rule is no
    baseline. alone_for: kinds of task for which it is unbound only without the features of other rules. noun: the only
    noun that the features are about, if there is one. counts: it finds what is asked in
    another way, such as elimination: it is shown, and is no unbound rule. boosted: it has many features.
    """

    name: str
    blind: str
    features: Features
    bound_for: tuple[str, ...] = ()
    alone_for: tuple[str, ...] = ()
    noun: int | None = None
    counts: bool = False
    boosted: bool = False


def query_features(e: SplitArrays) -> np.ndarray:
    """What every rule sees: (N, O + 2 D)."""
    return np.concatenate([e.operators, e.nouns.reshape(len(e.total), -1)], 1)


def _sorted_counts(e: SplitArrays) -> np.ndarray:
    """Counts of colours and of shapes, each in descending order; how many of them are the number that a query names."""
    equal = [(counts == e.operators[:, -1:]).sum(1) for counts in e.kinds]
    return np.column_stack([*(-np.sort(-counts, 1) for counts in e.kinds), *equal, e.total])


def _count_of(noun: int) -> Features:
    def features(e: SplitArrays) -> np.ndarray:
        counts = e.noun_counts(noun)
        leads = [counts.max(1) == part.max(1) for part in e.kinds]
        return np.column_stack([counts, e.total[:, None] - counts, *leads, e.total])

    return features


def _other_attributes(e: SplitArrays) -> np.ndarray:
    """Counts of the colours where the nouns name shapes alone, of the shapes where they name colours alone."""
    names_kind = (np.any(e.nouns[:, :, [kind]] >= 0, axis=1) for kind in (0, 1))
    return np.column_stack([np.where(names, -1, counts) for names, counts in zip(names_kind, e.kinds, strict=True)])


def _another_word(e: SplitArrays) -> np.ndarray:
    """The count of the word after the first noun's in the list of its kind; -1 where the second noun names it."""
    word = e.nouns[:, 0].max(1)
    first, number = np.where(word < e.colours, 0, e.colours), np.where(word < e.colours, e.colours, e.counts.shape[1])
    after = first + (word + 1 - first) % np.maximum(number - first, 1)
    in_query = np.any(e.nouns == after[:, None, None], axis=(1, 2))
    return np.where(in_query, -1, np.take_along_axis(e.counts, np.maximum(after, 0)[:, None], 1)[:, 0])


def _order(e: SplitArrays) -> np.ndarray:
    """Which noun the caption mentions first, and the position of each."""
    position = _at_nouns(e, e.mentions[:, :, 0])
    return np.column_stack([position, position[:, 0] < position[:, -1]])


def _mentions(e: SplitArrays) -> np.ndarray:
    """The first and the last mention of each noun, their distances from the end, and their order."""
    parts = [_at_nouns(e, mention) for mention in (e.mentions[:, :, 0], e.last)]
    orders = [part[:, 0] < part[:, -1] for part in parts]
    return np.column_stack([*parts, e.total[:, None] - parts[1], *orders])


def _further_mentions(e: SplitArrays) -> np.ndarray:
    """The first few mentions of each noun, -1 for none, and their orders."""
    parts = [_at_nouns(e, e.mentions[:, :, k]) for k in range(MENTIONS)]
    return np.column_stack([*parts, *(part[:, 0] < part[:, -1] for part in parts)])


def _at_nouns(e: SplitArrays, of_words: np.ndarray) -> np.ndarray:
    """The values of nouns, (N, D), among those of words, (N, W); -1 for none."""
    words = e.nouns.max(2)  # the shape, or the colour where there is no shape
    return np.where(words < 0, -1, np.take_along_axis(of_words, np.maximum(words, 0), 1))


def _other_counts(e: SplitArrays) -> np.ndarray:
    """The counts of all words but the last noun's, sorted too, how many of them a query asks for, the counts of the
    other nouns, and the total."""
    asked = e.nouns[:, -1]
    hidden = np.any(np.arange(e.counts.shape[1])[None, :, None] == asked[:, None], axis=2)
    counts = np.where(hidden, -1, e.counts)
    same = (counts == e.operators[:, -1:]).sum(1)
    shapes = np.sort(counts[:, e.colours :], axis=1)
    return np.column_stack([counts, shapes, same, e.noun_counts()[:, :-2], e.total])


def _free_column(e: SplitArrays) -> np.ndarray:
    """The place of the first noun, and the rows and columns of the objects that no noun describes."""
    return np.column_stack([e.places[:, 0], e.others.sum(1), e.others.sum(2)])


def _asked_elsewhere(e: SplitArrays) -> np.ndarray:
    """How many other colours and how many other shapes have the number that a query names."""
    counts = _other_counts(e)[:, : e.counts.shape[1]]
    return np.column_stack([(part == e.operators[:, -1:]).sum(1) for part in np.split(counts, [e.colours], 1)])


def _ink(e: SplitArrays) -> np.ndarray:
    """The ink by colour, by row and by column, and its sum."""
    return np.column_stack([e.ink, e.ink[:, -BINS:].sum(1)])


def _cells(e: SplitArrays) -> np.ndarray:
    """The occupied cells, and how many there are in each row, each column and each half."""
    rows, columns = e.cells.sum(2), e.cells.sum(1)
    halves = [part[:, : part.shape[1] // 2].sum(1) for part in (rows, columns)]
    return np.column_stack([e.cells.reshape(len(e.total), -1), rows, columns, *halves])


RULES = (
    Rule("query", "the scene", lambda e: np.zeros((len(e.total), 0), np.int64)),
    Rule("total", "all but the number of objects", lambda e: e.total),
    Rule("length", "all but the length of the caption", lambda e: e.length),
    Rule("size of the picture file", "what the picture shows", lambda e: e.picture),
    Rule("occupied cells", "colours and shapes", _cells),
    Rule("first and last object", "the other objects", lambda e: e.ends.reshape(len(e.total), -1), ("place",)),
    Rule("order of mention", "counts and places", _order),
    Rule(
        "words present",
        "how many objects have a colour or shape",
        lambda e: np.column_stack([(counts > 0).sum(1) for counts in e.kinds]),
    ),
    Rule("sorted counts", "which count belongs to which colour or shape", _sorted_counts),
    Rule("counts of other attributes", "the attributes that the query names", _other_attributes),
    Rule("count of another word", "the objects that the query describes", _another_word),
    Rule("first and last mentions", "counts and places", _mentions, boosted=True),
    Rule(
        "second and third mentions",
        "which colour belongs to which shape",
        _further_mentions,
        bound_for=("counts",),
        alone_for=("count",),  # where the second mention is the last one, the number is two
        boosted=True,
    ),
    Rule(
        "second and third mentions (of both nouns)",  # their distances tell which is more frequent: this compares
        "further objects",
        _further_mentions,
        bound_for=("binding", "place", "count"),
        counts=True,
        boosted=True,
    ),
    Rule(
        "another has the asked number",
        "the objects that the query describes",
        _asked_elsewhere,
        bound_for=("binding", "counts", "place"),
        alone_for=("count",),  # how many have it, without how many others have it, counts
        boosted=True,
    ),
    Rule("ink by colour, row and column", "shapes, and which object has which place", _ink, boosted=True),
    Rule(
        "ink and number of objects",
        "shapes, and which object has which place",
        lambda e: np.column_stack([_ink(e), _other_attributes(e), e.total]),
        boosted=True,
    ),
    Rule(
        "ink and word counts",
        "which colour belongs to which shape",
        lambda e: np.column_stack([_ink(e), e.noun_counts(), e.total]),
        bound_for=("count", "counts"),
        boosted=True,
    ),
    Rule(
        "all other counts (counting by elimination)",
        "only the count of the last noun",
        _other_counts,
        bound_for=("binding", "place"),
        counts=True,
        boosted=True,
    ),
    Rule(
        "all other places (by elimination)",
        "only the place of the last noun",
        _free_column,
        bound_for=("binding", "count", "counts"),
        counts=True,
        boosted=True,
    ),
    Rule(
        "other objects",  # at least so many: the total without the counts of the query's words
        "the objects that the query describes",
        lambda e: e.total - np.maximum(e.noun_counts(), 0).sum(1),
        ("count",),
        alone_for=("counts",),
    ),
    Rule(
        "distractors",
        "the objects that the query describes",
        lambda e: e.total - e.described,
        ("count", "counts"),
        alone_for=("binding",),
    ),
    Rule("count of first noun", "the other noun", _count_of(0), bound_for=("count",), noun=0),
    Rule("count of second noun", "the first noun", _count_of(1), bound_for=("count",), noun=1),
    Rule("count of third noun", "the other nouns", _count_of(2), bound_for=("count",), noun=2),
    Rule(
        "word counts",
        "which colour belongs to which shape",
        lambda e: np.column_stack([e.noun_counts(), e.total]),
        bound_for=("count", "counts"),
    ),
    Rule(
        "place of first noun",
        "the other object",
        lambda e: e.places[:, 0],
        bound_for=("count", "counts", "binding"),
        noun=0,
    ),
    Rule(
        "place of second noun",
        "the first object",
        lambda e: e.places[:, 1],
        bound_for=("count", "counts", "binding"),
        noun=1,
    ),
    Rule(
        "place of third noun",
        "the other objects",
        lambda e: e.places[:, 2],
        bound_for=("count", "counts", "binding"),
        noun=2,
    ),
)


# Reading --------------------------------------------------------------------------------------------------------------


def read_split(folder: Path, manifest: dict[str, Any], split: str) -> pa.Table:
    """The first rows of a split: `COLUMNS`, and `picture`, the bytes of each picture file."""
    parts: list[pa.Table] = []
    for table in open_dataset(folder)[split].tables():
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
                raise ValueError(f"{folder}: the picture of row {row} of {split} is no readable PNG or JPEG") from None
        ink = pa.array(inks, pa.list_(pa.float64()))
        sizes = pa.compute.binary_length(pictures)
        parts.append(table.select(COLUMNS).append_column("picture", sizes).append_column("ink", ink))
    whole = pa.concat_tables(parts)
    with damage(folder / MANIFEST):
        style = config_from_dict(manifest["config"]).style if manifest["config"] else Style()
    return whole if CAPTION_STYLES[style.caption].ordered else in_reading_order(whole)


def _ink_of(data: pa.Buffer) -> np.ndarray:
    """Pixels that each colour, each band of rows and each band of columns of a picture file covers."""
    picture: pillow.Image = pillow.open(io.BytesIO(data), formats=("PNG", "JPEG"))
    if picture.mode != "P":
        picture = picture.convert("RGB").quantize(64)
    entries = np.asarray(picture)
    weights = _weights(bytes(picture.getpalette("RGB") or b""))
    colours = np.bincount(entries.ravel(), minlength=256) @ weights
    covered = weights.sum(1)[entries]
    bands = [np.add.reduceat(covered.sum(axis), _starts(covered.shape[1 - axis])) for axis in (1, 0)]
    return np.concatenate([colours, *bands])


def _starts(size: int) -> np.ndarray:
    """The first line of each band."""
    return np.arange(BINS) * size // BINS


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
