"""Write a corpus as a dataset: a row for each picture and sentence, all in the split `test_ind`.

The rows of an item stand together, its true sentences first; the items of a couple stand next to each other; and
couples and single items take turns by axis and source. So the first N rows, in whole items and couples, are a fair
sample of every axis.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from travlr.corpora.items import MATCH, Corpus, CorpusReader, Item
from travlr.corpora.pictures import find_problems, read_picture
from travlr.formats.columns import SCHEMA, report_damage
from travlr.settings import Log, count_text
from travlr.workers import Progress, run_in_processes
from travlr.writing import write_dataset

SPLIT = "test_ind"
GROUP = 100  # rows that are read or written at a time: pictures of corpora are large
PICTURES = 64  # that a process checks at a time

Row = tuple[Item, int]  # an item and the number of its sentence, true ones first


def convert_corpus(source: Path, folder: Path, kind: str, reader: CorpusReader, log: Log = print) -> dict[str, Any]:
    """Write a corpus as a dataset, and return its manifest.

    Items whose picture is missing or unreadable, and items with a sentence that is both true and false, are left out
    and counted in the notes of the manifest. Raises `ValueError` where no item is left, and as `reader.read` and
    `write_dataset` do.
    """
    corpus = reader.read(source)
    items, notes = keep_usable(corpus, log)
    rows: list[Row] = [(item, n) for item in fair_order(items) for n in range(len(item.true) + len(item.false))]
    digest = hashlib.sha256()
    for item in items:  # with the sizes of pictures, so that other pictures of the same names are another dataset
        size = (corpus.pictures / item.picture).stat().st_size
        digest.update(f"{item.model_dump_json()} {size}\n".encode())
    about = {
        "config": None,
        "held_out": None,
        "pixels": digest.hexdigest(),
        "corpus": {"name": corpus.name, "kind": kind, "options": corpus.options, "notes": [*corpus.notes, *notes]},
        "source": {"items": digest.hexdigest()},
    }
    tables = functools.partial(make_row_tables, rows, corpus.pictures.absolute())
    return write_dataset(folder, {SPLIT: len(rows)}, about, tables, 1, reader.overwrite, log, repeats=True)


def fair_order(items: list[Item]) -> list[Item]:
    """Items in the order of the dataset, which depends on their ids alone."""
    units: dict[tuple[str, str], list[Item]] = {}
    for item in items:
        units.setdefault((item.couple, "" if item.couple else item.id), []).append(item)
    groups: dict[tuple[str, str], list[list[Item]]] = {}
    for unit in units.values():
        groups.setdefault((unit[0].axis, unit[0].source), []).append(unit)
    for group in groups.values():
        group.sort(key=lambda unit: hashlib.blake2b(unit[0].id.encode(), digest_size=8).digest())
    rounds = itertools.zip_longest(*groups.values(), fillvalue=())
    return [item for units_of_round in rounds for unit in units_of_round for item in unit]


def keep_usable(corpus: Corpus, log: Log) -> tuple[list[Item], list[str]]:
    """The items that can be asked, and notes that count the others. Raises `ValueError` where none is left."""
    items = [item for item in corpus.items if set(item.true).isdisjoint(item.false)]
    notes = []
    if contradictions := len(corpus.items) - len(items):
        notes.append(f"left out, as a false sentence is also a true one: {count_text(contradictions, 'item')}")
    wanted = list(dict.fromkeys((item.picture, item.box) for item in items))
    batches = [wanted[start : start + PICTURES] for start in range(0, len(wanted), PICTURES)]
    problems: dict[Any, str] = {}
    with Progress(len(wanted), log, "pictures checked") as progress:
        check = functools.partial(find_problems, corpus.pictures)
        workers = 0 if len(batches) > 8 else 1
        for batch, of_batch in zip(batches, run_in_processes(check, batches, workers), strict=True):
            problems |= dict(zip(batch, of_batch, strict=True))
            progress.advance(len(batch))
    usable = [item for item in items if not problems[item.picture, item.box]]
    by_kind: dict[str, list[str]] = {}
    for item in items:
        if problem := problems[item.picture, item.box]:
            kind, _, which = problem.partition(": ")
            by_kind.setdefault(kind, []).append(which)
    notes += [
        f"left out, as their picture {k}: {count_text(len(of), 'item')}; the first is {of[0]}"
        for k, of in by_kind.items()
    ]
    if not usable:
        raise ValueError(f"no item can be asked; {'; '.join(notes) or 'the corpus is empty'}; check images=")
    return usable, notes


# Rows ----------------------------------------------------------------------------------------------------------------


def make_row_tables(rows: list[Row], pictures: Path, split: str, start: int, stop: int) -> Iterator[pa.Table]:
    """Rows start to stop as tables."""
    read = functools.lru_cache(maxsize=1)(functools.partial(read_picture, pictures))  # an item's rows share it
    for begin in range(start, stop, GROUP):
        part = rows[begin : min(begin + GROUP, stop)]
        with report_damage(pictures):
            yield pa.Table.from_pylist([make_row(item, n, read(item.picture, item.box)) for item, n in part], SCHEMA)


def make_row(item: Item, number: int, image: bytes) -> dict[str, Any]:
    """The row of a sentence of an item: the number-th, true ones first."""
    sentence = [*item.true, *item.false][number]
    form = {"task": MATCH, "args": [sentence], "item": item.id, "couple": item.couple, "labels": item.labels}
    return {
        "id": f"{item.id}/{number}",
        "image": {"bytes": image, "path": item.picture},
        "caption": "",
        "query": sentence,
        "answer": number < len(item.true),
        "task": MATCH,
        "pair": [item.axis, item.source] if item.source else [item.axis],
        "query_form": json.dumps(form),
        "objects": [],
    }
