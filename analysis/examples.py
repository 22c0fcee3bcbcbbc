"""What the examples of a dataset show, a row for each: the columns that errors and figures are grouped by."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from travlr.corpora import is_corpus, item_columns
from travlr.dataset import Dataset
from travlr.formats.columns import parse_query_form
from travlr.tasks import is_task, task_class
from travlr.tasks.quantifiers import FAMILIES

SEPARATOR = "\t"  # of the items of a pair


def describe_examples(dataset: Dataset, split: str) -> pd.DataFrame:
    """A row for each of the N examples of a split.

    id, split, task, query, answer; pair (its items joined by spaces) and kind (its first item: axis, shape, quantifier,
    or `comparison`); x and y, the pair's values, as numbers if they are numbers (columns and rows count from 1; a
    cardinality has x alone); claim: the query's claim (relation, number, quantifier, comparison); first, second
    and third: its objects; critical: of quantifiers, the size of the set that decides (figure 23), else missing;
    objects: the number of objects in the scene; row (in its split), couple (of examples 2k and 2k + 1), which is the
    item, too; scene: equal where scenes are; source, picture and group: of corpora, else missing.
    """
    table = dataset[split].columns("id", "query", "answer", "task", "pair", "query_form", "objects")
    objects, row = table["objects"].combine_chunks(), np.arange(len(table), dtype=np.int32)
    sizes, flat = np.diff(objects.offsets.to_numpy()), objects.flatten()
    which = np.repeat(row, sizes)
    columns = {
        "id": table["id"].to_pandas(),
        "split": pd.Categorical.from_codes(np.zeros(len(table), np.int8), [split]),
        "answer": table["answer"].to_numpy(),
        **{name: table[name].combine_chunks().dictionary_encode().to_pandas() for name in ("task", "query")},
        "objects": sizes.astype(np.int16),
        "row": row,
        "item": row // 2,
        "couple": row // 2,
        "scene": _scenes(flat, which, len(table)),
        **_pairs(table["pair"].combine_chunks()),
        **_query_columns(table["query_form"].combine_chunks()),
        **{name: constant(len(table), None) for name in ("source", "picture", "group")},
    }
    frame = pd.DataFrame(columns)
    if is_corpus(dataset):
        return _corpus_examples(dataset, split, frame)
    return frame.assign(critical=pd.array(_deciding_counts(flat, which, frame), dtype="Int16"))


def _corpus_examples(dataset: Dataset, split: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The examples of a corpus: items instead of couples of scenes, and a scene for each picture."""
    items = item_columns(dataset, split)
    columns = {name: pd.Categorical(items[name]) for name in ("item", "couple", "source", "picture", "group")}
    nothing = {name: constant(len(frame), None) for name in ("x", "y", "claim", "critical")}
    return frame.assign(**columns, **nothing, scene=columns["picture"].codes.astype(np.int32))


def constant(count: int, value: Any) -> pd.Categorical:
    """The same value so many times; missing for None."""
    missing = bool(pd.isna(value))
    return pd.Categorical.from_codes(np.full(count, -1 if missing else 0, np.int8), [] if missing else [value])


def _scenes(flat: pa.StructArray, which: np.ndarray, count: int) -> np.ndarray:
    """(N,) int32, equal where the objects of two examples are the same."""
    rows, columns = flat.field("row").to_numpy(), flat.field("column").to_numpy()
    width = int(columns.max(initial=0)) + 1
    grid = np.zeros((count, (int(rows.max(initial=0)) + 1) * width), np.int16)
    code = np.zeros(len(flat), np.int64)
    for name in ("colour", "shape", "size"):
        encoded = flat.field(name).dictionary_encode()
        code = code * len(encoded.dictionary) + encoded.indices.to_numpy()
    grid[which, rows * width + columns] = code + 1
    whole = np.ascontiguousarray(grid).view([("", np.void, grid.itemsize * grid.shape[1])]).ravel()
    return np.unique(whole, return_inverse=True)[1].astype(np.int32)


def _pairs(pairs: pa.ListArray) -> pd.DataFrame:
    """The columns pair, kind, x and y of N pairs, which are lists of a kind and one or two values, such as
    ["not all", "2", "3"]."""
    encoded = pc.binary_join(pairs, SEPARATOR).dictionary_encode()
    codes = encoded.indices.to_numpy()
    items = [text.split(SEPARATOR) for text in encoded.dictionary.to_pylist()]
    kinds = pd.Categorical([pair[0] for pair in items])
    columns = {"pair": pd.Categorical.from_codes(codes, [" ".join(pair) for pair in items]), "kind": kinds.take(codes)}
    for place, name in enumerate("xy", 1):
        columns[name] = _values([pair[place] if place < len(pair) else None for pair in items]).take(codes)
    return pd.DataFrame(columns)


def _values(words: list[str | None]) -> Any:
    """An array of the values of pairs: numbers, with columns A, B, C as 1, 2, 3; or words, where one is neither."""
    letters = {letter: str(number) for number, letter in enumerate(string.ascii_uppercase, 1)}
    numbers = [None if word is None else letters.get(word, word) for word in words]
    if all(number is None or number.isdecimal() for number in numbers):
        return pd.array([None if number is None else int(number) for number in numbers], "Int16")
    return pd.Categorical(words)


def _query_columns(forms: pa.StringArray) -> dict[str, pd.Categorical]:
    """claim, first, second and third of queries."""
    encoded = forms.dictionary_encode()
    columns: dict[str, list[str | None]] = {"claim": [], "first": [], "second": [], "third": []}
    for text in encoded.dictionary.to_pylist():
        query = parse_query_form(text)
        positions = task_class(query.task).language().nouns if is_task(query.task) else range(1, len(query.args))
        objects = [str(query.args[place]) for place in positions]
        claim = [str(arg) for place, arg in enumerate(query.args) if place not in positions]
        for name, value in zip(columns, (" ".join(claim), *objects, None, None, None), strict=False):
            columns[name].append(value)
    codes = encoded.indices.to_numpy()
    return {name: pd.Categorical(values).take(codes) for name, values in columns.items()}


def _deciding_counts(flat: pa.StructArray, which: np.ndarray, queries: pd.DataFrame) -> np.ndarray:
    """(N,) for quantifiers the number of objects in the region whose emptiness decides; NaN for other tasks."""
    regions = {name: family["decides"] for names, family in FAMILIES.items() for name in names}
    # Indices of regions: X and Y, X alone, Y alone.
    deciding = queries["claim"].map(regions).astype(float).to_numpy()
    holds = []
    for name in ("first", "second"):
        word = queries[name].astype(object).to_numpy()[which]
        shape, colour = (flat.field(part).to_numpy(zero_copy_only=False) for part in ("shape", "colour"))
        holds.append((shape == word) | (colour == word))
    region = np.where(holds[0], np.where(holds[1], 0, 1), np.where(holds[1], 2, 3))
    counts = np.bincount(which[region == deciding[which]], minlength=len(queries)).astype(float)
    return np.where((queries["task"] == "quantifiers").to_numpy(), counts, np.nan)
