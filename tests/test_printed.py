"""What the printed tables claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.test_results import CONFIG, run
from train.results.columns import RESULT_COLUMNS, Row
from train.results.provenance import hardware
from train.results.store import read_results, run_id
from train.results.tables import transfer_table


def row(tested: str, split: str, macro_f1: float, above: bool | None = None, **changed: Any) -> Row:
    """A row as it is read back; above random from 55 on by default."""
    filled = {"macro_f1": macro_f1, "above_random": macro_f1 > 55 if above is None else above}
    config = {**CONFIG, **{k: changed[k] for k in CONFIG if k in changed}}
    columns = {k: v for k, v in config.items() if k in RESULT_COLUMNS} | {"run": run_id(config), "weights": "random"}
    columns |= {"test_setting": tested, "split": split, "config": json.dumps(config), "hardware": "a computer"}
    return dict.fromkeys(RESULT_COLUMNS) | columns | filled | {k: v for k, v in changed.items() if k in RESULT_COLUMNS}


def test_transfer_table_says_what_was_measured(tmp_path: Path) -> None:
    rows = read_results(run(tmp_path))
    text = transfer_table(rows)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert "from random weights" in text and hardware() in text.replace("\n", " ") and "61.2 s of training" in text
    own = next(line for line in lines if line.startswith("caption (own)"))
    for name in ("test_ind", "test_ood"):
        cell = next(r for r in rows if (r["test_setting"], r["split"]) == ("caption", name))
        assert f"{cell['macro_f1']:.2f}* [{cell['interval_low']:.2f}, {cell['interval_high']:.2f}]" in own
    image = next(line for line in lines if line.startswith("image "))
    assert image.count("*") == sum(bool(r["above_random"]) for r in rows if r["test_setting"] == "image")
    assert next(line for line in lines if "query, objects" in line).split()[-2:] == ["61.50", "61.50"]
    assert "by the pair's first item: circle" in text and "p < 0.01" in text


def test_transfer_table_never_rounds_up_to_100() -> None:
    text = transfer_table([row("caption", "test_ood", 99.997), row("image", "test_ind", 100.0, weights=None)])
    caption = next(line for line in text.splitlines() if line.startswith("caption (own)"))
    assert caption.split() == ["caption", "(own)", "99.99*"]
    image = next(line for line in text.splitlines() if line.startswith("image"))
    assert image.split() == ["image", "100.00*"]
    assert "image+caption" not in text
    assert "origin of its weights unknown" in transfer_table([row("image", "test_ind", 100.0, weights=None)])


def test_tables_count_unlabelled_examples_apart() -> None:
    counts: dict[str, Any] = {"train_examples": 128_000, "unlabelled_examples": 31_500}
    words = " ".join(transfer_table([row("caption", "test_ood", 90.0, **counts)]).split())
    assert "128,000 labelled examples; 31,500 unlabelled pairs of image and caption" in words
    for none in (0, None):
        words = transfer_table([row("caption", "test_ood", 90.0, **counts | {"unlabelled_examples": none})])
        assert "128,000 training examples" in words and "unlabelled" not in words
