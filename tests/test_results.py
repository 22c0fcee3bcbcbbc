"""Results on disk: rows and predictions that come back, and runs that were killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped, unused-ignore]
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers import ROOT, flip, one_line
from train.results.baselines import BaselineScore
from train.results.columns import RESULT_COLUMNS, TEST_SETTINGS
from train.results.predictions import predictions_table, read_predictions, write_predictions
from train.results.provenance import commit, environment, hardware, provenance
from train.results.scores import by_group, score
from train.results.store import (
    collect_results,
    is_finished,
    read_config,
    read_curve,
    read_results,
    result_row,
    run_id,
    run_name,
    start_run,
    write_curve,
    write_results,
)

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
COUPLES = {"couples_right": 25.0, "couples_low": 20.0, "couples_high": 30.0}
# Columns that not all results have.
NEWER = (
    "couples_right",
    "couples_low",
    "couples_high",
    "possible",
    "unlabelled_examples",
    "floor_unbound",
    "floor_unbound_accuracy",
)


def predict(setting: str, split: str, seed: int, trained: str = "caption") -> tuple[list[str], Any, Any]:
    """Ids, logits and answers of a model that is right 90 % of the time where it is shown what it was trained on."""
    random = np.random.default_rng([seed, len(setting), SIZES[split]])
    answers = np.arange(SIZES[split]) % 2 == 0
    right = random.random(SIZES[split]) < (0.9 if setting == trained else 0.5)
    logits = np.where(right == answers, 1, -1) * random.exponential(size=SIZES[split])
    return [f"cardinality-{split}-{i:08d}" for i in range(SIZES[split])], logits, answers


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
            groups = by_group(answers, logits, ["circle", "star"] * (len(ids) // 2))
            rows.append(shared | result_row(setting, split, score(answers, logits), BASELINES, groups, COUPLES))
            tables.append(predictions_table(ids, split, setting, logits, answers))
    write_predictions(folder, tables)
    write_results(folder, rows)
    return folder


# Names ---------------------------------------------------------------------------------------------------------------


def test_a_run_is_named_after_all_that_is_in_its_config() -> None:
    name = run_name(CONFIG)
    assert name == f"uniter-caption-cardinality-s0-{run_id(CONFIG)}"
    assert run_id(dict(reversed(CONFIG.items()))) == run_id(CONFIG)
    assert run_id({**CONFIG, "rate": 0.001, "seed": 0.0}) == run_id(CONFIG)
    others = [{**CONFIG, key: value} for key, value in (("seed", 1), ("rate", 1e-4), ("frozen", True), ("frozen", 1))]
    assert len({run_id(config) for config in (CONFIG, *others)}) == 5
    assert run_name({**CONFIG, "task": "../a b"}).count("/") == 0


@pytest.mark.parametrize("value", [float("nan"), Path("a"), {1: 2}])
def test_a_config_that_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^config: .+; settings must be"):
        run_id({"rate": value})


def test_a_run_id_does_not_change_between_versions() -> None:
    text = '{"model":"uniter","rate":0.001,"seed":0,"setting":"caption","size":"tiny","task":"cardinality"}'
    hashed = subprocess.run(["sha256sum"], input=text, capture_output=True, text=True, check=True).stdout
    assert run_id(CONFIG) == hashed[:8]


# Rows ----------------------------------------------------------------------------------------------------------------


def test_rows_come_back_from_the_folder(tmp_path: Path) -> None:
    folder = run(tmp_path)
    rows = read_results(folder)
    assert len(rows) == 6
    assert all(set(row) == set(RESULT_COLUMNS) for row in rows)
    _, logits, answers = predict("caption", "test_ood", 0)
    row = next(r for r in rows if (r["test_setting"], r["split"]) == ("caption", "test_ood"))
    expected = score(answers, logits)
    assert [row[name] for name in expected.__dataclass_fields__] == list(vars(expected).values())
    assert row["run"] == run_id(CONFIG) and row["name"] == folder.name and json.loads(row["config"]) == CONFIG
    assert (row["floor_query_objects"], row["floor_query_objects_accuracy"], row["couples_high"]) == (61.5, 62.25, 30)
    assert json.loads(row["groups"])["star"]["examples"] == 200
    assert row["regions"] is None and row["train_examples"] is None
    assert "0.01" in row["test"] and row["above_random"] is True


def damaged(folder: Path, how: str) -> None:
    path = folder / "results.json"
    if how == "no config":
        (folder / "config.json").unlink()
    elif how == "half a config":
        (folder / "config.json").write_text('{"version": 1, "ru')
    elif how in ("newer", "edited config"):
        told = json.loads((folder / "config.json").read_text())
        told |= {"version": 2} if how == "newer" else {"config": CONFIG | {"seed": 9}}
        (folder / "config.json").write_text(json.dumps(told))
    elif how == "unfinished":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-150])
    elif how == "no rows":
        path.write_text("[]")
    elif how == "not a number":
        path.write_text(path.read_text().replace("61.5", '"high"'))
    elif how == "binary":
        path.write_bytes(os.urandom(2000))
    elif how == "twice":
        rows = json.loads(path.read_text())
        path.write_text(json.dumps([*rows, rows[-1]]))


HOW = {
    "no config": "stopped before it began",
    "half a config": "damaged",
    "newer": "version 2, not this program",
    "edited config": "damaged",
    "unfinished": "run the command that began it again",
    "cut": "damaged",
    "no rows": "damaged",
    "not a number": "damaged",
    "binary": "damaged",
    "twice": "damaged",
}


@pytest.mark.parametrize("how", HOW)
def test_a_damaged_run_is_left_out_with_one_line_and_the_others_stay(tmp_path: Path, how: str) -> None:
    folder, other = run(tmp_path), run(tmp_path, seed=1)
    damaged(folder, how)
    lines: list[str] = []
    rows = collect_results(tmp_path, lines.append)
    assert {row["name"] for row in rows} == {other.name} and len(rows) == 6
    assert len(lines) == 1
    line = one_line(lines[0])
    assert HOW[how] in line and str(folder) in line


def test_a_copy_of_a_run_does_not_count_as_another_seed(tmp_path: Path) -> None:
    folder = run(tmp_path)
    copy = tmp_path / "z-copy"
    copy.mkdir()
    for name in ("config.json", "results.json"):
        (copy / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "notes.txt").write_text("mine")
    lines: list[str] = []
    assert len(collect_results(tmp_path, lines.append)) == 6
    assert len(lines) == 1 and "the same run" in lines[0]


def test_folders_without_runs(tmp_path: Path) -> None:
    assert collect_results(tmp_path) == [] and collect_results(tmp_path / "none") == []


def test_a_run_is_found_again_and_another_config_does_not_take_its_folder(tmp_path: Path) -> None:
    folder = start_run(tmp_path, CONFIG, note="first")
    before = (folder / "config.json").read_bytes()
    assert start_run(tmp_path, CONFIG) == folder and not is_finished(folder)
    assert (folder / "config.json").read_bytes() == before
    assert read_config(folder) == {"note": "first", "version": 1, "run": run_id(CONFIG), "config": CONFIG}
    (folder / "config.json").write_text(json.dumps({"version": 1, "run": run_id({"a": 1}), "config": {"a": 1}}))
    with pytest.raises(ValueError, match="another run"):
        start_run(tmp_path, CONFIG)


# Predictions ---------------------------------------------------------------------------------------------------------


def test_scores_recomputed_from_the_predictions_file_are_those_of_the_table(tmp_path: Path) -> None:
    folder = run(tmp_path)
    frame = pd.read_parquet(folder / "predictions.parquet")
    assert list(frame.columns) == ["id", "split", "test_setting", "logit", "prediction", "answer"]
    assert len(frame) == 3 * 600
    for row in read_results(folder):
        part = frame[(frame.split == row["split"]) & (frame.test_setting == row["test_setting"])]
        f1 = []
        for side in (True, False):
            both = ((part.prediction == side) & (part.answer == side)).sum()
            precision, recall = both / (part.prediction == side).sum(), both / (part.answer == side).sum()
            f1.append(100 * 2 * precision * recall / (precision + recall))
        assert [row["f1_true"], row["f1_false"], row["macro_f1"]] == pytest.approx([*f1, sum(f1) / 2])
        assert row["accuracy"] == pytest.approx(100 * (part.prediction == part.answer).mean())


def test_predictions_come_back(tmp_path: Path) -> None:
    ids, logits, answers = predict("image", "test_ood", 3)
    logits[:3] = [0, 1e-60, -np.inf]
    table = predictions_table(ids, "test_ood", "image", logits, answers)
    write_predictions(tmp_path, [table, table.slice(0, 0)])
    found = read_predictions(tmp_path)
    assert found.equals(table)
    assert found["id"].to_pylist() == ids
    assert found["logit"].type == pa.float32()
    np.testing.assert_array_equal(found["logit"], logits.astype(np.float32))
    np.testing.assert_array_equal(found["prediction"], logits.astype(np.float32) > 0)
    assert read_predictions(tmp_path, ["logit", "answer"]).column_names == ["logit", "answer"]


def test_predictions_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="not numbers"):
        predictions_table(["a"], "test_ind", "image", np.array([np.nan]), np.array([True]))


@pytest.mark.parametrize("how", ["missing", "cut", "flipped", "other columns", "text"])
def test_damaged_predictions_are_one_line(tmp_path: Path, how: str) -> None:
    path = run(tmp_path) / "predictions.parquet"
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    elif how == "flipped":
        column = pq.read_metadata(path).row_group(2).column(3)  # logits; the checksum of their page tells
        flip(path, column.data_page_offset + column.total_compressed_size // 2)
    elif how == "other columns":
        pd.DataFrame({"id": ["a"], "logit": [1.0]}).to_parquet(path)
    else:
        path.write_text("no table")
    with pytest.raises(ValueError, match=r"predictions\.parquet: damaged or missing") as error:
        read_predictions(path.parent)
    one_line(str(error.value))


def test_a_training_curve_comes_back(tmp_path: Path) -> None:
    points = [{"step": 1, "loss": 0.1 + 0.2}, {"step": 2, "loss": 0.25, "validation_f1": 50.5}]
    write_curve(tmp_path, points)
    assert read_curve(tmp_path) == [{**points[0], "validation_f1": None}, points[1]]
    with pytest.raises(ValueError, match=r"curve\.csv: damaged or missing"):
        read_curve(tmp_path / "none")


# Kills and neighbours ------------------------------------------------------------------------------------------------

DYING = """
import os, sys
from pathlib import Path
from tests.test_results import CONFIG, predict, predictions_table, start_run, write_predictions

def tables():
    ids, logits, answers = predict("image", "test_ind", 0)
    yield predictions_table(ids, "test_ind", "image", logits, answers)
    os._exit(9)

write_predictions(start_run(Path(sys.argv[1]), CONFIG), tables())
"""


def begin(code: str, *arguments: object) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, env=env, text=True)


def test_a_run_killed_while_it_writes_is_unfinished_and_can_be_finished(tmp_path: Path) -> None:
    assert begin(DYING, tmp_path).wait(300) == 9
    folder = tmp_path / run_name(CONFIG)
    lines: list[str] = []
    assert not is_finished(folder) and not (folder / "predictions.parquet").exists()
    assert collect_results(tmp_path, lines.append) == []
    assert len(lines) == 1 and "unfinished" in lines[0]
    assert run(tmp_path) == folder
    assert is_finished(folder) and len(collect_results(tmp_path)) == 6 and len(read_predictions(folder)) == 1800


def test_evaluating_imports_no_deep_learning_library() -> None:
    code = "import sys, train.results.tables; raise SystemExit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert begin(code).wait(300) == 0


# Surroundings --------------------------------------------------------------------------------------------------------


def test_hardware_names_gpus_and_the_cores_that_may_be_used() -> None:
    assert hardware().endswith(f"({len(os.sched_getaffinity(0))} cores)") or hardware().endswith("(1 core)")
    assert hardware(["H100", "H100"]) == f"2 x H100, {hardware()}"


def test_the_environment_lists_versions_of_what_is_installed() -> None:
    found = environment()
    assert found["numpy"] == np.__version__ and found["python"] == sys.version.split()[0]
    assert set(provenance()) <= set(RESULT_COLUMNS)
    assert json.loads(provenance()["versions"]) == {k: v for k, v in found.items() if k != "commit"}


def test_the_commit_says_whether_the_code_had_been_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as inside a hook

    def git(*arguments: str) -> str:
        named = ["-c", "user.name=a", "-c", "user.email=a@b"]
        env = {k: v for k, v in os.environ.items() if k != "GIT_DIR"}
        command = ["git", *named, "-C", str(tmp_path), *arguments]
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.strip()

    assert commit(tmp_path) == ""
    git("init", "-q")
    assert commit(tmp_path) == ""
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.py").write_text("1")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    head = git("rev-parse", "HEAD")
    (tmp_path / "notes.txt").write_text("not code")
    assert commit(tmp_path) == head
    assert commit(tmp_path / "train") == ""  # a folder inside another checkout
    (tmp_path / "train" / "b.py").write_text("new")
    assert commit(tmp_path) == f"{head}-dirty"
