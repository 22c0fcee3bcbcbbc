"""Results on disk: rows and predictions that come back, and runs that were killed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped, unused-ignore]
import pyarrow as pa
import pytest

from tests.helpers import one_line
from train.results.baselines import BaselineScore
from train.results.columns import RESULT_COLUMNS, TEST_SETTINGS
from train.results.predictions import predictions_table, read_predictions, write_predictions
from train.results.provenance import commit, environment, hardware, provenance
from train.results.scores import baseline_columns, facts_in_order, prediction_columns
from train.results.store import (
    collect_results,
    is_finished,
    read_config,
    read_curve,
    read_results,
    run_id,
    run_name,
    start_run,
    write_curve,
    write_results,
)
from train.results.tables import transfer_table

CONFIG: dict[str, Any] = {
    "model": "uniter",
    "size": "tiny",
    "setting": "caption",
    "task": "cardinality",
    "seed": 0,
    "rate": 1e-3,
}
BASELINES = {"query": BaselineScore(50.0, 50.0), "query_objects": BaselineScore(61.5, 62.25)}
SIZES = {"test_ind": 200, "test_ood": 400}


def predict(setting: str, split: str, seed: int, trained: str = "caption") -> tuple[list[str], Any, Any]:
    """Ids, logits and answers of a model that is right 90 % of the time where it is shown what it was trained on."""
    random = np.random.default_rng([seed, len(setting), SIZES[split]])
    answers = np.arange(SIZES[split]) % 2 == 0
    right = random.random(SIZES[split]) < (0.9 if setting == trained else 0.5)
    logits = np.where(right == answers, 1, -1) * random.exponential(size=SIZES[split])
    return [f"cardinality-{split}-{i:08d}" for i in range(SIZES[split])], logits, answers


def columns(setting: str, split: str, ids: list[str], logits: Any, answers: Any) -> dict[str, Any]:
    facts = facts_in_order(ids, answers, ["circle", "star"] * (len(ids) // 2), np.arange(len(ids)))
    place = {"test_setting": setting, "split": split}
    return place | prediction_columns(logits, facts) | baseline_columns(BASELINES)


def run(runs: Path, **changed: Any) -> Path:
    """Make and finish a run; its folder."""
    config = CONFIG | changed
    folder = start_run(runs, config)
    shared = {k: v for k, v in config.items() if k in RESULT_COLUMNS}
    shared |= {"weights": "random", "parameters": 1_234_567, "steps": 1500, "train_seconds": 61.25, **provenance()}
    rows, tables = [], []
    for setting in TEST_SETTINGS:
        for split in SIZES:
            ids, logits, answers = predict(setting, split, config["seed"], config["setting"])
            rows.append(shared | columns(setting, split, ids, logits, answers))
            tables.append(predictions_table(ids, split, setting, logits, answers))
    write_predictions(folder, tables)
    write_results(folder, rows)
    return folder


# Names ---------------------------------------------------------------------------------------------------------------


def test_run_id_depends_on_the_whole_config() -> None:
    name = run_name(CONFIG)
    assert name == f"uniter-caption-cardinality-s0-{run_id(CONFIG)}"
    assert run_id(dict(reversed(CONFIG.items()))) == run_id(CONFIG)
    assert run_id({**CONFIG, "rate": 0.001, "seed": 0.0}) == run_id(CONFIG)
    others = [{**CONFIG, key: value} for key, value in (("seed", 1), ("rate", 1e-4), ("frozen", True), ("frozen", 1))]
    assert len({run_id(config) for config in (CONFIG, *others)}) == 5
    assert run_name({**CONFIG, "task": "../a b"}).count("/") == 0


# Rows ----------------------------------------------------------------------------------------------------------------


def test_read_results_returns_the_rows_written(tmp_path: Path) -> None:
    folder = run(tmp_path)
    rows = read_results(folder)
    assert len(rows) == 6
    assert all(set(row) == set(RESULT_COLUMNS) for row in rows)
    ids, logits, answers = predict("caption", "test_ood", 0)
    row = next(r for r in rows if (r["test_setting"], r["split"]) == ("caption", "test_ood"))
    expected = columns("caption", "test_ood", ids, logits, answers)
    assert {name: row[name] for name in expected} == expected
    assert row["run"] == run_id(CONFIG) and row["name"] == folder.name and json.loads(row["config"]) == CONFIG
    assert (row["baseline_query_objects"], row["baseline_query_objects_accuracy"]) == (61.5, 62.25)
    assert json.loads(row["groups"])["star"]["examples"] == 200
    assert row["regions"] is None and row["train_examples"] is None
    assert "0.01" in row["test"] and row["above_random"] is True


DAMAGE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "no settings": ("settings.yaml", Path.unlink, "not a run"),
    "half of the settings": ("settings.yaml", lambda path: path.write_text("run: 1\nconf"), "damaged"),
    "unfinished": ("results.json", Path.unlink, "unfinished"),
    "cut": ("results.json", lambda path: path.write_bytes(path.read_bytes()[:-150]), "damaged"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_collect_results_leaves_out_a_damaged_run_with_one_line(tmp_path: Path, how: str) -> None:
    folder, other = run(tmp_path), run(tmp_path, seed=1)
    name, damage, message = DAMAGE[how]
    damage(folder / name)
    lines: list[str] = []
    rows = collect_results(tmp_path, lines.append)
    assert {row["name"] for row in rows} == {other.name} and len(rows) == 6
    assert len(lines) == 1 and message in one_line(lines[0]) and str(folder) in lines[0]


def test_collect_results_counts_a_copy_of_a_run_once(tmp_path: Path) -> None:
    shutil.copytree(run(tmp_path), tmp_path / "z-copy")
    lines: list[str] = []
    assert len(collect_results(tmp_path, lines.append)) == 6
    assert len(lines) == 1 and "z-copy" in lines[0] and "same" in lines[0]
    assert collect_results(tmp_path / "none") == []


def test_read_settings_returns_what_was_written(tmp_path: Path) -> None:
    folder = start_run(tmp_path, CONFIG, "data/x")
    assert read_config(folder) == {"run": run_id(CONFIG), "data": "data/x", "config": CONFIG}
    assert start_run(tmp_path, CONFIG) == folder and not is_finished(folder)


# Predictions ---------------------------------------------------------------------------------------------------------


def test_read_predictions_returns_what_was_written(tmp_path: Path) -> None:
    ids, logits, answers = predict("image", "test_ood", 3)
    logits[:3] = [0, 1e-60, -np.inf]
    table = predictions_table(ids, "test_ood", "image", logits, answers)
    write_predictions(tmp_path, [table, table.slice(0, 0)])
    same = read_predictions(tmp_path)
    assert same.equals(table) and same["id"].to_pylist() == ids and same["logit"].type == pa.float32()
    np.testing.assert_array_equal(same["prediction"], logits.astype(np.float32) > 0)
    assert read_predictions(tmp_path, ["logit", "answer"]).column_names == ["logit", "answer"]
    path = tmp_path / "predictions.parquet"
    assert list(pd.read_parquet(path).columns) == ["id", "split", "test_setting", "logit", "prediction", "answer"]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"predictions\.parquet: "):
        read_predictions(tmp_path)


def test_read_curve_returns_what_was_written(tmp_path: Path) -> None:
    points = [{"step": 1, "loss": 0.1 + 0.2}, {"step": 2, "loss": 0.25, "validation_f1": 50.5}]
    write_curve(tmp_path, points)
    assert read_curve(tmp_path) == [{**points[0], "validation_f1": None}, points[1]]
    with pytest.raises(ValueError, match=r"curve\.csv: "):
        read_curve(tmp_path / "none")


# Surroundings --------------------------------------------------------------------------------------------------------


def test_provenance_names_gpus_cores_and_installed_versions() -> None:
    assert hardware(["H100", "H100"]) == f"2 x H100, {hardware()}"
    assert hardware().endswith(f"({len(os.sched_getaffinity(0))} cores)") or hardware().endswith("(1 core)")
    versions = environment()
    assert versions["numpy"] == np.__version__ and versions["python"] == sys.version.split()[0]
    assert set(provenance()) <= set(RESULT_COLUMNS)
    assert json.loads(provenance()["versions"]) == {k: v for k, v in versions.items() if k != "commit"}


def test_commit_says_whether_the_code_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)

    def git(*arguments: str) -> str:
        line = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path), *arguments]
        return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()

    assert commit(tmp_path) == ""
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.py").write_text("1")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    (tmp_path / "notes.txt").write_text("not code")
    head = git("rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as inside a hook
    assert commit(tmp_path) == head
    assert commit(tmp_path / "train") == ""  # a folder inside another checkout
    (tmp_path / "train" / "b.py").write_text("new")
    assert commit(tmp_path) == f"{head}-dirty"


# The printed table ---------------------------------------------------------------------------------------------------


def test_transfer_table_says_what_was_measured(tmp_path: Path) -> None:
    rows = read_results(run(tmp_path))
    text = transfer_table(rows)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert "random weights" in text and hardware() in text.replace("\n", " ") and "61.2 s of training" in text
    own = next(line for line in lines if line.startswith("caption (own)"))
    for name in ("test_ind", "test_ood"):
        cell = next(r for r in rows if (r["test_setting"], r["split"]) == ("caption", name))
        assert f"{cell['macro_f1']:.2f}* [{cell['interval_low']:.2f}, {cell['interval_high']:.2f}]" in own
    image = next(line for line in lines if line.startswith("image "))
    assert image.count("*") == sum(bool(r["above_random"]) for r in rows if r["test_setting"] == "image")
    assert next(line for line in lines if "query, objects" in line).split()[-2:] == ["61.50", "61.50"]
    assert "item: circle" in text and "p < 0.01" in text


def test_transfer_table_never_rounds_up_to_100(tmp_path: Path) -> None:
    rows: list[Any] = [
        row | {"macro_f1": 99.997, "above_random": True, "interval_low": None, "weights": None}
        for row in read_results(run(tmp_path))
        if (row["test_setting"], row["split"]) == ("caption", "test_ood")
    ]
    text = transfer_table(rows)
    assert next(line for line in text.splitlines() if line.startswith("caption")).split()[2] == "99.99*"
    assert "image+caption" not in text and "unknown" in text
