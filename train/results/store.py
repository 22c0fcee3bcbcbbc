"""The folders of runs.

RUNS/NAME/settings.yaml        the run's settings; written first
RUNS/NAME/curve.csv            the training curve
RUNS/NAME/model.safetensors    the trained weights, with the tokenizer and config.json beside them
RUNS/NAME/training.safetensors heads that only training needs (`train.models.saved`)
RUNS/NAME/predictions.parquet  see `train.results.predictions`
RUNS/NAME/results.json         one row per (test setting, split); written last, so a folder that has it is finished
RUNS/NAME/README.md            the card (`train.results.card`), made from the results

Rows have the keys of `train.results.columns.RESULT_COLUMNS`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from train.results.columns import RESULT_COLUMNS, Row
from travlr.files import replace_file
from travlr.formats.columns import report_damage
from travlr.settings import Log

SETTINGS, RESULTS, CURVE, WEIGHTS = "settings.yaml", "results.json", "curve.csv", "model.safetensors"
ANSWERS = "answers.jsonl"  # of an evaluation (`train.results.answers`)
OF_RUN = ("run", "name", "config")  # columns that follow from settings.yaml and the folder
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
    words = [str(config[key]) for key in ("model", "setting") if config.get(key)]
    words += [str(config.get("corpus") or config["task"])] if config.get("corpus") or config.get("task") else []
    seed = [f"s{config['seed']}"] if config.get("seed") is not None else []
    return re.sub(r"[^\w+-]", "_", "-".join([*words, *seed, run_id(config)]))


# A run's folder ------------------------------------------------------------------------------------------------------


def start_run(runs: Path, config: Mapping[str, Any], data: str = "") -> Path:
    """Make the folder of a run and write its settings.yaml. data: the folder of its dataset."""
    folder = Path(runs) / run_name(config)
    folder.mkdir(parents=True, exist_ok=True)
    record = {"run": run_id(config), "data": data, "config": json.loads(canonical(config))}
    (folder / SETTINGS).write_text(yaml.safe_dump(record, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return folder


def read_config(folder: Path) -> dict[str, Any]:
    """A run's settings.yaml: `run` (hash), `data` (folder), `config` (settings). Raises `ValueError`, in one line, if
    it is missing or damaged."""
    path = Path(folder) / SETTINGS
    if not path.is_file():
        raise ValueError(f"{folder}: no {SETTINGS}, so not a run")
    try:
        record = yaml.safe_load(path.read_text(encoding="utf-8"))
        return {"run": str(record["run"]), "data": str(record["data"]), "config": dict(record["config"])}
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: damaged ({' '.join(str(error).split())[:100]})") from None


def is_finished(folder: Path) -> bool:
    return (Path(folder) / RESULTS).is_file()


def write_results(folder: Path, rows: Sequence[Row]) -> None:
    """Write the results of a run or an evaluation, which finishes it. Columns that a row lacks are null."""
    values = [{name: _plain_number(row.get(name)) for name in RESULT_COLUMNS if name not in OF_RUN} for row in rows]
    with replace_file(Path(folder) / RESULTS) as path:
        path.write_text(json.dumps(values, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _plain_number(value: Any) -> Any:
    """A value as JSON holds it: NaN is null, and numbers of NumPy are Python's."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_curve(folder: Path, points: Sequence[Mapping[str, float | None]]) -> None:
    """Write the training curve: one row per point, with columns such as step, loss and validation_f1."""
    names = list(dict.fromkeys(name for point in points for name in point))
    with replace_file(Path(folder) / CURVE) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(points)


def read_curve(folder: Path) -> list[dict[str, float | None]]:
    """The points of a training curve. Raises `ValueError`, in one line, if it is missing or damaged."""
    path = Path(folder) / CURVE
    with report_damage(path), open(path, encoding="utf-8", newline="") as file:
        return [{k: float(v) if v else None for k, v in point.items()} for point in csv.DictReader(file, strict=True)]


# Results -------------------------------------------------------------------------------------------------------------


def read_results(folder: Path) -> list[Row]:
    """Rows of a finished run. Raises `ValueError`, in one line, if the run is unfinished or damaged."""
    folder = Path(folder)
    record, path = read_config(folder), folder / RESULTS
    if not path.is_file():
        raise ValueError(f"{folder}: unfinished; run the command that began it again to finish it")
    with report_damage(path):
        rows = [{name: row.get(name) for name in RESULT_COLUMNS} for row in json.loads(path.read_text())]
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
