"""The audit of a corpus, of which nothing says how its answers came about: only what its files show."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from render.png import decode
from travlr.corpora import item_columns
from travlr.dataset import open_dataset
from travlr.formats.manifest import file_problem


@dataclass(frozen=True)
class Check:
    """A line of the report. status: ok, FAIL or note. checked: how many rows, files, pairs or texts."""

    name: str
    status: str
    checked: int
    detail: str


def check_corpus(folder: Path) -> list[Check]:
    """The lines of the report. Raises `ValueError` where a shard is damaged."""
    dataset = open_dataset(folder)
    files = dataset.manifest["files"]
    rows, ids, undecoded = 0, Counter[str](), list[str]()
    sides: dict[str, set[bool]] = {}
    for split, reader in dataset.splits.items():
        items = iter(item_columns(dataset, split)["item"])
        for example in reader:
            rows += 1
            ids[example.id] += 1
            sides.setdefault(next(items), set()).add(example.answer)
            try:
                decode(example.image)
            except ValueError as error:
                undecoded.append(f"{example.id}: {error}")
    problems = {
        "files": (len(files), [problem for file in files if (problem := file_problem(folder, file))]),
        "ids": (rows, [f"{name}: stands {count} times" for name, count in ids.items() if count > 1]),
        "pictures": (rows, undecoded),
        "items": (len(sides), [f"{item}: no true or no false sentence" for item, of in sides.items() if len(of) < 2]),
    }
    note = Check("corpus", "note", rows, "other people's questions: that their answers are right is not checked")
    return [note, *(Check(n, "FAIL" if p else "ok", number, p[0] if p else "") for n, (number, p) in problems.items())]
