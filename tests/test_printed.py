"""What the printed tables claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.test_results import CONFIG, run
from train.results.columns import RESULT_COLUMNS, Row, has_converged
from train.results.provenance import hardware
from train.results.store import read_results, run_id
from train.results.tables import grid_table, transfer_table


def row(tested: str, split: str, macro_f1: float, above: bool | None = None, **changed: Any) -> Row:
    """A row as it is read back; above random from 55 on where not told."""
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


def three_seeds(own: list[float], other: list[float], **changed: Any) -> list[Row]:
    rows = []
    for seed, (a, b) in enumerate(zip(own, other, strict=True)):
        for setting, value in (("caption", a), ("image", b)):
            rows += [row(setting, "test_ind", value, seed=seed, **changed)]
            rows += [row(setting, "test_ood", value - 2, seed=seed, **changed)]
    return rows


def grid_line(text: str, *words: str) -> str:
    return next(line for line in text.splitlines() if all(word in line for word in words))


def test_grid_table_averages_converged_seeds() -> None:
    text = grid_table(three_seeds([90, 80, 50], [50, 52, 10]))
    assert grid_line(text, "cardinality", "uniter").split("[1]")[1].split() == [
        "49.00", "(-2.00)", "83.00*(-2.00)", "2", "of", "3",
    ]  # fmt: skip
    assert max(map(len, text.splitlines())) <= 100
    assert "[1] from random weights" in text and "a computer" in text


def test_grid_table_averages_all_seeds_where_none_converged() -> None:
    text = grid_table(three_seeds([50, 40, 51], [50, 52, 54]))
    assert grid_line(text, "cardinality", "uniter").split("[1]")[1].split() == [
        "50.00", "(-2.00)", "45.00", "(-2.00)", "0", "of", "3",
    ]  # fmt: skip


def test_tables_count_unlabelled_examples_apart() -> None:
    counts: dict[str, Any] = {"train_examples": 128_000, "unlabelled_examples": 31_500}
    for table in (
        transfer_table([row("caption", "test_ood", 90.0, **counts)]),
        grid_table(three_seeds([90], [50], **counts)),
    ):
        words = " ".join(table.split())
        assert "128,000 labelled examples; 31,500 unlabelled pairs of image and caption" in words
    for none in (0, None):
        words = transfer_table([row("caption", "test_ood", 90.0, **counts | {"unlabelled_examples": none})])
        assert "128,000 training examples" in words and "unlabelled" not in words


def test_grid_table_fits_100_columns() -> None:
    rows = three_seeds([100] * 12, [100] * 12) + three_seeds([100], [0], model="visualbert_controlled", size="small")
    lines = grid_table(rows).splitlines()
    assert max(map(len, lines)) <= 100
    starts = {line.index("98.00*") for line in lines if "98.00*" in line}
    assert starts == {lines[1].index("caption"), lines[1].index("image")}


def test_grid_table_marks_cells_with_every_run_above_random() -> None:
    cell = grid_line(grid_table(three_seeds([90, 80, 70], [90, 90, 40])), "uniter").split("[1]")[1]
    assert cell.split()[:2] == ["71.33", "(-2.00)"]


def test_grid_table_leaves_untested_cells_empty() -> None:
    rows = [r for r in three_seeds([90, 80], [50, 52]) if not (r["seed"] == 1 and r["test_setting"] == "image")]
    assert grid_line(grid_table(rows), "uniter").split("[1]")[1].split() == ["83.00*(-2.00)", "2", "of", "2"]


def test_grid_table_averages_over_seeds_only() -> None:
    rows = three_seeds([90, 80], [50, 52]) + three_seeds([60, 62], [50, 52], rate=1e-4)
    lines = [line for line in grid_table(rows).splitlines() if line.startswith("cardinality")]
    assert [line.split("]")[1].split()[-4] for line in lines] in (
        ["83.00*(-2.00)", "59.00*(-2.00)"],
        ["59.00*(-2.00)", "83.00*(-2.00)"],
    )
    assert "; rate=0.0001" in grid_table(rows) and grid_table(rows).count("; rate=") == 2


def test_grid_table_has_a_part_for_each_setting() -> None:
    rows = three_seeds([90], [50]) + three_seeds([95], [50], setting="mixed", weights="bert.pth, sha256 12ab")
    text = grid_table(rows)
    assert text.index("trained in caption") < text.index("trained in mixed")
    assert "from random weights" in text and "from bert.pth, sha256 12ab" in text


def test_grid_table_mixed_run_converges_with_both_inputs() -> None:
    both = row("image+caption", "test_ind", 60, setting="mixed")
    assert has_converged([both])
    assert not has_converged([row("caption", "test_ind", 60, setting="mixed")])
    assert not has_converged([row("caption", "test_ood", 60)])
    assert not has_converged([row("caption", "test_ind", 60, above=False)])
    assert has_converged([row("caption", "test_ind", 51, above=True)])
