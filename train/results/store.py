"""The folders of runs.

RUNS/NAME/config.json          the run's settings; written first
RUNS/NAME/curve.csv            the training curve
RUNS/NAME/predictions.parquet  see `train.results.predictions`
RUNS/NAME/results.json         one row per (test setting, split); written last, so a folder that has it is finished

Each file is replaced as a whole. Rows have the keys of `train.results.columns.RESULT_COLUMNS`.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from train.results.baselines import BaselineScore
from train.results.columns import RESULT_COLUMNS, Row
from train.results.scores import TEST, Scores
from travlr.cli import Log
from travlr.columns import damage
from travlr.files import WORK, close, regular, replacing

VERSION = 1  # of a run's folder; a newer one is refused
CONFIG, RESULTS, CURVE = "config.json", "results.json", "curve.csv"
ANSWERS = "answers.jsonl"  # of an evaluation (`train.results.answers`)
OF_RUN = ("run", "name", "config")  # columns that follow from config.json and the folder
REPORT = "report.json"  # marks a folder of `analysis.report`, which may stand among the folders of runs


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
    """Eight hex digits of the settings that determine a run's results: no paths, loggers or numbers of workers."""
    return hashlib.sha256(canonical(config).encode()).hexdigest()[:8]


def run_name(config: Mapping[str, Any]) -> str:
    """Name of a run's folder, such as `uniter-caption-cardinality-s0-1a2b3c4d`."""
    words = [str(config[key]) for key in ("model", "setting", "task") if config.get(key)]
    seed = [f"s{config['seed']}"] if config.get("seed") is not None else []
    return re.sub(r"[^\w+-]", "_", "-".join([*words, *seed, run_id(config)]))


# A run's folder ------------------------------------------------------------------------------------------------------


def start_run(runs: Path, config: Mapping[str, Any], **metadata: Any) -> Path:
    """Make the folder of a run, unless it is there, and write its config.json with `metadata`.

    Raises `ValueError` if the folder's config.json is damaged, newer, or of another config.
    """
    folder = Path(runs) / run_name(config)
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / CONFIG).exists():
        if read_config(folder)["run"] != run_id(config):
            raise ValueError(f"{folder / CONFIG}: is of another run; move that folder away")
        return folder
    record = {**metadata, "version": VERSION, "run": run_id(config), "config": json.loads(canonical(config))}
    with replacing(folder / CONFIG) as path:
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return folder


def remove_refused(folder: Path) -> None:
    """Remove the folder of a run that was refused before its first step, or of an evaluation without answers, such as
    one whose first request was refused. Hold its lock while you call this."""
    answers = folder / ANSWERS
    has_answers = answers.is_file() and answers.stat().st_size > 0
    if not has_answers and {path.name for path in folder.iterdir()} <= {ANSWERS, CONFIG, WORK}:
        for name in (ANSWERS, CONFIG):
            (folder / name).unlink(missing_ok=True)
        close(folder)
        folder.rmdir()


def read_config(folder: Path) -> dict[str, Any]:
    """A run's config.json. Raises `ValueError`, in one line, if it is missing, damaged or of another version."""
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise ValueError(f"{folder}: no {CONFIG}, so not a run, or one that stopped before it began")
    with damage(path):
        record = json.loads(path.read_text(encoding="utf-8"))
        version, run = int(record["version"]), record["run"]
        if not isinstance(record["config"], dict) or run != run_id(record["config"]):
            raise ValueError("its config does not have the hash that its run is named by")
        if not isinstance(record.get("data"), str | None):
            raise ValueError("data is not the name of a folder")
    if version != VERSION:
        raise ValueError(f"{path}: version {version}, not this program's {VERSION}")
    return dict(record)


def is_finished(folder: Path) -> bool:
    return (Path(folder) / RESULTS).is_file()


def result_row(
    test_setting: str,
    split: str,
    scores: Scores,
    baselines: Mapping[str, BaselineScore],
    groups: Mapping[str, Scores] | None = None,
    couples: Mapping[str, float] | None = None,
    possible: bool | None = None,
) -> Row:
    """The score columns of one row. baselines: of this split, by the names of `train.results.columns.BASELINES`.
    groups, couples: as `train.results.scores.by_group` and `couple_scores` return them.
    """
    by_group = {name: asdict(part) for name, part in (groups or {}).items()}
    row = {"test_setting": test_setting, "split": split, "test": TEST, **asdict(scores)}
    row |= {"groups": json.dumps(by_group) if by_group else None, "possible": possible}
    row |= couples or {}
    for name, baseline in baselines.items():
        row |= {f"floor_{name}": baseline.macro_f1, f"floor_{name}_accuracy": baseline.accuracy}
    return row


def write_results(folder: Path, rows: Sequence[Row]) -> None:
    """Write the results of a run or an evaluation, which finishes it. Columns that a row lacks are null."""
    values = [{name: _plain_number(row.get(name)) for name in RESULT_COLUMNS if name not in OF_RUN} for row in rows]
    with replacing(Path(folder) / RESULTS) as path:
        path.write_text(json.dumps(values, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _plain_number(value: Any) -> Any:
    """A value as JSON holds it: NaN is null, and numbers of NumPy are Python's."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_curve(folder: Path, points: Sequence[Mapping[str, float | None]]) -> None:
    """Write the training curve: one row per point, with columns such as step, loss and validation_f1."""
    names = list(dict.fromkeys(name for point in points for name in point))
    with replacing(Path(folder) / CURVE) as path, open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(points)


def read_curve(folder: Path) -> list[dict[str, float | None]]:
    """The points of a training curve. Raises `ValueError`, in one line, if it is missing or damaged."""
    path = Path(folder) / CURVE
    with damage(path), open(regular(path), encoding="utf-8", newline="") as file:
        return [{k: float(v) if v else None for k, v in point.items()} for point in csv.DictReader(file, strict=True)]


# Results -------------------------------------------------------------------------------------------------------------


def _error_of(folder: Path) -> str:
    """What the last line of a run's error.txt says; empty where there is none."""
    with contextlib.suppress(OSError, ValueError):
        lines = regular(folder / "error.txt").read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"; it failed with {last[:300]}" if last else ""
    return ""


def read_results(folder: Path) -> list[Row]:
    """Rows of a finished run. Raises `ValueError`, in one line, if the run is unfinished or damaged."""
    folder = Path(folder)
    record, path = read_config(folder), folder / RESULTS
    if not path.is_file():
        problem = f"unfinished{_error_of(folder)}"
        raise ValueError(f"{folder}: {problem}; run the command that began it again to finish it")
    with damage(path):
        rows = [{name: row.get(name) for name in RESULT_COLUMNS} for row in json.loads(regular(path).read_text())]
        keys = [(row["test_setting"], row["split"]) for row in rows]
        if not rows or len(set(keys)) < len(keys):
            raise ValueError(f"{len(rows)} rows for {len(set(keys))} pairs of test setting and split")
        for row in rows:
            for name, kind in RESULT_COLUMNS.items():
                if row[name] is not None and not isinstance(row[name], (int, float) if kind is float else kind):
                    raise ValueError(f"{name} is {str(row[name])[:40]!r}")
            if not isinstance(row["macro_f1"], int | float):
                raise ValueError("a row has no macro_f1")
    of_run = {"run": record["run"], "name": folder.name, "config": canonical(record["config"])}
    return [row | of_run for row in rows]


def collect_results(runs: Path, log: Log = print) -> list[Row]:
    """Rows of every finished run in a folder. `log` gets a line for each folder that is left out."""
    rows: list[Row] = []
    first_folders: dict[str, Path] = {}
    entries = sorted(Path(runs).iterdir()) if Path(runs).is_dir() else []
    for folder in (p for p in entries if p.is_dir() and p.name[0] != "." and not (p / REPORT).is_file()):
        try:
            of_run = read_results(folder)
        except ValueError as error:
            log(f"left out: {error}")
            continue
        first = first_folders.setdefault(of_run[0]["run"], folder)
        if first != folder:
            log(f"left out: {folder}: the same run as {first}")
            continue
        rows += of_run
    return rows
