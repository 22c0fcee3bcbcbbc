"""What a run leaves behind: its folder, its rows in the one table of results, and its predictions.

RUNS/NAME/config.json          what the run is; written first
RUNS/NAME/curve.csv            what was logged in training
RUNS/NAME/predictions.parquet  one row per (example, test setting)
RUNS/NAME/results.csv          one row per (test setting, split); written last, so a folder that has it is finished
RUNS/results.csv               the rows of all finished runs

Every file is in place whole or not at all. Rows are dicts with the keys of `RESULT_COLUMNS`; None where not known.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from train.results.scores import TEST, Baseline, Scores, predicted
from travlr.cli import Log
from travlr.files import regular, replacing, waiting_lock
from travlr.formats.columns import damage

VERSION = 1  # of a run's folder; a newer one is not read
CONFIG, RESULTS, PREDICTIONS, CURVE = "config.json", "results.csv", "predictions.parquet", "curve.csv"
REPORT = "report.json"  # in a folder that `analysis.report` wrote, which may stand beside those of runs
TEST_SETTINGS = ("image", "caption", "image+caption")
TEST_SPLITS = ("test_ind", "test_ood")

RESULT_COLUMNS: dict[str, type] = {
    "run": str,  # hash of the config
    "name": str,  # of the run's folder
    "experiment": str,
    "model": str,
    "size": str,
    "setting": str,  # trained in
    "task": str,
    "seed": int,
    "test_setting": str,
    "split": str,
    "macro_f1": float,  # percent, as are the next five
    "accuracy": float,
    "f1_true": float,
    "f1_false": float,
    "interval_low": float,  # 95 %, of macro_f1
    "interval_high": float,
    "p_value": float,
    "above_random": bool,
    "test": str,  # what above_random means
    "floor_query": float,  # macro-F1 of text-only rules, percent
    "floor_query_objects": float,
    "floor_query_accuracy": float,
    "floor_query_objects_accuracy": float,
    "couples_right": float,  # percent of couples with both answers right
    "possible": bool,  # False where nothing that the model is shown tells the answer, so that no score means anything
    "groups": str,  # JSON: first item of the pair -> its scores
    "examples": int,
    "parameters": int,  # trainable
    "weights": str,  # "random", or the checkpoint's name and SHA-256
    "regions": str,
    "hardware": str,
    "precision": str,
    "steps": int,
    "train_examples": int,  # with an answer
    "unlabelled_examples": int,  # pairs of image and caption without one, of consistency and of a reader
    "train_seconds": float,
    "evaluate_seconds": float,
    "dataset": str,  # content digest
    "versions": str,  # JSON
    "commit": str,  # of the code, "-dirty" where it had been changed
    "created": str,  # UTC, ISO 8601
    "config": str,  # JSON
}
# Set by `result_row` alone.
SCORE_COLUMNS = ("test_setting", "split", "groups", "test", "possible", *Scores.__dataclass_fields__)
Row = dict[str, Any]


# Names ---------------------------------------------------------------------------------------------------------------


def canonical(config: Mapping[str, Any]) -> str:
    """A config as JSON that equal configs share: keys sorted, 1.0 as 1. Raises `ValueError` for what JSON lacks."""
    try:
        return json.dumps(_plain(config), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"config: {error}; settings must be text, numbers, lists and null") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise ValueError(f"key {wrong[0]!r} is not text")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def run_id(config: Mapping[str, Any]) -> str:
    """Eight hex digits of what determines a run's results: pass no paths, loggers or numbers of workers."""
    return hashlib.sha256(canonical(config).encode()).hexdigest()[:8]


def run_name(config: Mapping[str, Any]) -> str:
    """Name of a run's folder, such as `uniter-caption-cardinality-s0-1a2b3c4d`."""
    named = [str(config[key]) for key in ("model", "setting", "task") if config.get(key)]
    seed = [f"s{config['seed']}"] if config.get("seed") is not None else []
    return re.sub(r"[^\w+-]", "_", "-".join([*named, *seed, run_id(config)]))


# A run's folder ------------------------------------------------------------------------------------------------------


def start_run(runs: Path, config: Mapping[str, Any], **about: Any) -> Path:
    """Make a run's folder, or find it again, and write what the run is; `about` adds to config.json.

    Raises `ValueError` where the folder's config.json is damaged, newer, or tells of another config.
    """
    folder = Path(runs) / run_name(config)
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / CONFIG).exists():
        if canonical(read_config(folder)["config"]) != canonical(config):
            raise ValueError(f"{folder / CONFIG}: tells of another run; move that folder away")
        return folder
    told = {**about, "version": VERSION, "run": run_id(config), "config": json.loads(canonical(config))}
    with replacing(folder / CONFIG) as path:
        path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return folder


def read_config(folder: Path) -> dict[str, Any]:
    """A run's config.json. Raises `ValueError`, in one line, where it is missing, damaged or newer."""
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise ValueError(f"{folder}: no {CONFIG}, so not a run, or one that stopped before it began")
    with damage(path):
        told = json.loads(path.read_text(encoding="utf-8"))
        version, name = int(told["version"]), told["run"]
        if not isinstance(told["config"], dict) or name != run_id(told["config"]):
            raise ValueError("its config is not the one that its run is named after")
        if not isinstance(told.get("data"), str | None):
            raise ValueError("data is not the name of a folder")
    if version > VERSION:
        raise ValueError(f"{path}: version {version}, newer than this program's {VERSION}; update TraVLR")
    return told


def is_finished(folder: Path) -> bool:
    return (Path(folder) / RESULTS).is_file()


def result_row(
    run: Mapping[str, Any],
    test_setting: str,
    split: str,
    scores: Scores,
    floors: Mapping[str, Baseline],
    groups: Mapping[str, Scores] | None = None,
    couples_right: float | None = None,
    possible: bool | None = None,
) -> Row:
    """One row: `run` holds what all rows of the run share, by name of column; what it lacks stays empty.

    floors: as `evaluate.floors` gives them, for this split. groups: as `evaluate.by_group` does.
    """
    if wrong := [name for name in run if name not in RESULT_COLUMNS or name in SCORE_COLUMNS]:
        raise ValueError(f"{wrong[0]!r} is not a column that holds for a whole run")
    by_group = {name: asdict(part) for name, part in (groups or {}).items()}
    measured = {"test_setting": test_setting, "split": split, "test": TEST, **asdict(scores)}
    measured |= {"groups": json.dumps(by_group) if by_group else None, "couples_right": couples_right}
    measured["possible"] = possible
    for name, floor in floors.items():
        measured |= {f"floor_{name}": floor.macro_f1, f"floor_{name}_accuracy": floor.accuracy}
    return dict.fromkeys(RESULT_COLUMNS) | dict(run) | measured


def finish_run(folder: Path, rows: Sequence[Row], predictions: Iterable[pa.Table], log: Log = print) -> None:
    """Write predictions, then results, then the table of all runs beside the folder.

    What config.json says (run, name, config) goes into every row, in place of what it may hold.
    """
    told = read_config(folder)
    known = {"run": told["run"], "name": Path(folder).name, "config": canonical(told["config"])}
    write_predictions(folder, predictions)
    _write_table(Path(folder) / RESULTS, list(RESULT_COLUMNS), [row | known for row in rows])
    rebuild_table(Path(folder).parent, log)


def write_curve(folder: Path, points: Sequence[Mapping[str, float | None]]) -> None:
    """Write the training curve: a row per point, columns such as step, loss and validation_f1, empty where lacking."""
    names = list(dict.fromkeys(name for point in points for name in point))
    _write_table(Path(folder) / CURVE, names, points)


def read_curve(folder: Path) -> list[dict[str, float | None]]:
    """The points of a training curve. Raises `ValueError`, in one line, where it is missing or damaged."""
    path = Path(folder) / CURVE
    with damage(path), open(regular(path), encoding="utf-8", newline="") as file:
        return [{k: float(v) if v else None for k, v in point.items()} for point in csv.DictReader(file, strict=True)]


# The table of results ------------------------------------------------------------------------------------------------


def _write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_csv_text(row.get(name)) for name in columns] for row in rows)
    with replacing(path) as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8", newline="")


def _csv_text(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return repr(float(value)) if isinstance(value, float) else str(value)  # repr: every digit, to be compared exactly


class UnfinishedRun(ValueError):
    """A run that was begun and may be at work."""


def read_results(folder: Path) -> list[Row]:
    """Rows of a finished run. Columns that its version did not have are None, but for the config, which its folder has;
    others it had are left out.

    Raises `ValueError`, in one line, where the run is unfinished, damaged or newer.
    """
    folder = Path(folder)
    told, path = read_config(folder), folder / RESULTS
    if not path.is_file():
        raise UnfinishedRun(f"{folder}: unfinished; run the command that began it again to finish it")
    with damage(path):
        with open(path, encoding="utf-8", newline="") as file:
            rows = [_read_row(texts) for texts in csv.DictReader(file, strict=True)]
        keys = [(row["test_setting"], row["split"]) for row in rows]
        if not rows or len(set(keys)) < len(keys):
            raise ValueError(f"{len(rows)} rows for {len(set(keys))} pairs of test setting and split")
        if any(row["run"] != told["run"] for row in rows):
            raise ValueError("its rows are of another run")
    return [row | {"config": row["config"] or canonical(told["config"])} for row in rows]


def _read_row(texts: dict[str, str | None]) -> Row:
    if None in texts or None in texts.values():
        raise ValueError("a row has more or fewer values than there are columns")
    row: Row = {}
    for name, kind in RESULT_COLUMNS.items():
        text = texts.get(name) or ""
        if kind is bool and text not in ("", "True", "False"):
            raise ValueError(f"{name} is {text[:40]!r}")
        row[name] = None if text == "" else text == "True" if kind is bool else kind(text)
    if lacking := [name for name in ("run", "test_setting", "split", "macro_f1") if row[name] is None]:
        raise ValueError(f"a row has no {lacking[0]}")
    return row


def collect_results(runs: Path, log: Log = print, begun: bool = True) -> list[Row]:
    """Rows of every finished run below a folder; of what is left out, `log` is told in one line each, `begun`: of runs
    that are only unfinished too."""
    rows: list[Row] = []
    places: dict[str, Path] = {}
    there = sorted(Path(runs).iterdir()) if Path(runs).is_dir() else []
    folders = [p for p in there if p.is_dir() and p.name[0] != "." and not (p / REPORT).is_file()]
    for folder in folders:
        try:
            found = read_results(folder)
        except ValueError as error:
            if begun or not isinstance(error, UnfinishedRun):
                log(f"left out: {error}")
            continue
        first = places.setdefault(found[0]["run"], folder)
        if first != folder:
            log(f"left out: {folder}: the same run as {first}")
            continue
        rows += found
    return rows


def rebuild_table(runs: Path, log: Log = print) -> list[Row]:
    """Write RUNS/results.csv anew from the folders of all runs, and give its rows.

    One process at a time, the others wait: so whoever is last has seen every run that has finished.
    """
    runs = Path(runs)
    if not runs.is_dir():
        raise ValueError(f"{runs}: there is no such folder of runs")
    with waiting_lock(runs / ".results.lock"):
        rows = collect_results(runs, log, begun=False)  # a sweep would tell of them after each of its runs
        _write_table(runs / RESULTS, list(RESULT_COLUMNS), rows)
    return rows


def main_test_setting(setting: str) -> str:
    """The test setting that is a training setting's own: image+caption for mixed."""
    return "image+caption" if setting == "mixed" else setting


def has_converged(rows: Iterable[Row]) -> bool:
    """Whether a run's own setting is above random on test_ind (the paper's #sd counts such runs)."""
    return any(
        row["split"] == "test_ind"
        and row["test_setting"] == main_test_setting(row["setting"] or "")
        and row["above_random"]
        for row in rows
    )


# Predictions ---------------------------------------------------------------------------------------------------------

PREDICTION_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("split", pa.string()),
        ("test_setting", pa.string()),
        ("logit", pa.float32()),  # log-odds of true
        ("prediction", pa.bool_()),
        ("answer", pa.bool_()),
    ]
)


def predictions_table(
    ids: Sequence[str], split: str, test_setting: str, logits: np.ndarray, answers: np.ndarray
) -> pa.Table:
    """Predictions of one (test setting, split): N ids, logits (N,) log-odds of true, answers (N,) bool."""
    count = len(ids)
    if not count == len(logits) == len(answers):
        raise ValueError(f"{count} ids, {len(logits)} logits, {len(answers)} answers: needs as many of each")
    columns = [
        pa.array(ids, pa.string()),
        pa.repeat(split, count),
        pa.repeat(test_setting, count),
        pa.array(np.asarray(logits, np.float32)),
        pa.array(predicted(logits)),
        pa.array(np.asarray(answers, bool)),
    ]
    return pa.Table.from_arrays(columns, schema=PREDICTION_SCHEMA)


def write_predictions(folder: Path, tables: Iterable[pa.Table]) -> None:
    """Write a run's predictions, each table a row group, so that one test setting can be read without the others."""
    options: dict[str, Any] = {
        "compression": "zstd",
        "use_dictionary": ["split", "test_setting"],
        "column_encoding": {"id": "DELTA_BYTE_ARRAY"},  # an id differs from the one before in its last digits
    }
    with (
        replacing(Path(folder) / PREDICTIONS) as path,
        pq.ParquetWriter(path, PREDICTION_SCHEMA, write_page_checksum=True, **options) as writer,
    ):
        for table in tables:
            writer.write_table(table, row_group_size=max(1, len(table)))


def read_predictions(folder: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """A run's predictions, or some columns of them. Raises `ValueError`, in one line, where missing or damaged."""
    path = Path(folder) / PREDICTIONS
    with damage(path), pq.ParquetFile(regular(path), page_checksum_verification=True) as file:
        if not file.schema_arrow.equals(PREDICTION_SCHEMA, check_metadata=False):
            raise ValueError("its columns are not those of predictions")
        return file.read(columns=None if columns is None else list(columns))
