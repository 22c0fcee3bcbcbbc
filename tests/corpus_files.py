"""Small corpora in the published forms, and what they hold when read without this project's code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from travlr.convert import main
from travlr.dataset import Dataset, open_dataset

Fact = tuple[str, str, bool]  # picture, sentence, whether it is true of it


def draw(folder: Path, *names: str, size: tuple[int, int] = (12, 8)) -> None:
    """Pictures of noise, each different, in the format of their names."""
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name)


def convert(source: Path, out: Path, **settings: Any) -> Dataset:
    """The dataset that the command makes of a corpus."""
    assert main([str(source), str(out), *(f"{name}={value}" for name, value in settings.items())]) == 0
    return open_dataset(out)


def facts(dataset: Dataset) -> list[Fact]:
    rows = [row for table in dataset["test_ind"].tables("query", "answer", "image.path") for row in table.to_pylist()]
    return [(row["image"]["path"], row["query"], row["answer"]) for row in rows]


def forms(dataset: Dataset) -> list[dict[str, Any]]:
    return [json.loads(example.query_form) for example in dataset["test_ind"]]
