"""A run's predictions: RUNS/NAME/predictions.parquet, one row per (example, test setting)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from travlr.files import replace_file
from travlr.formats.columns import report_damage
from travlr.metrics import predictions_of

PREDICTIONS = "predictions.parquet"
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
    columns = [
        pa.array(ids, pa.string()),
        pa.repeat(split, count),
        pa.repeat(test_setting, count),
        pa.array(np.asarray(logits, np.float32)),
        pa.array(predictions_of(logits)),
        pa.array(np.asarray(answers, bool)),
    ]
    return pa.Table.from_arrays(columns, schema=PREDICTION_SCHEMA)


def write_predictions(folder: Path, tables: Iterable[pa.Table]) -> None:
    """Write a run's predictions. Each table is a row group, so that one test setting can be read without the others."""
    options: dict[str, Any] = {
        "compression": "zstd",
        "use_dictionary": ["split", "test_setting"],
        "column_encoding": {"id": "DELTA_BYTE_ARRAY"},  # consecutive ids differ in their last digits only
    }
    with (
        replace_file(Path(folder) / PREDICTIONS) as path,
        pq.ParquetWriter(path, PREDICTION_SCHEMA, write_page_checksum=True, **options) as writer,
    ):
        for table in tables:
            writer.write_table(table, row_group_size=max(1, len(table)))


def read_predictions(folder: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """A run's predictions, or some columns of them. Raises `ValueError`, in one line, if missing or damaged."""
    path = Path(folder) / PREDICTIONS
    with report_damage(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        if not file.schema_arrow.equals(PREDICTION_SCHEMA, check_metadata=False):
            raise ValueError("its columns are not those of predictions")
        return file.read(columns=None if columns is None else list(columns))
