"""Saved runs as data frames: every score, every prediction beside what its example shows, every training curve."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.examples import examples_of
from train.results.columns import RESULT_COLUMNS, TEST_SETTINGS, TEST_SPLITS, main_test_setting
from train.results.predictions import read_predictions
from train.results.store import canonical, collect_results, read_config, read_curve
from travlr.config import Style, check_choice
from travlr.dataset import Dataset, open_dataset

DTYPES: dict[type, str] = {str: "str", int: "Int64", float: "float64", bool: "boolean"}
SEPARATOR = "\t"  # of the items of a pair
EXAMPLE_COLUMNS = ("id", "split", "answer", "task", "query", "objects", "row", "couple", "scene", "pair", "kind", "x",
                   "y", "claim", "first", "second", "third", "critical")  # fmt: skip
RUN_COLUMNS = ("run", "name", "model", "setting", "seed")
PREDICTIONS = (*EXAMPLE_COLUMNS, *RUN_COLUMNS, "test_setting", "logit", "prediction", "right")


@contextlib.contextmanager
def left_out(skipped: list[str], what: str = "") -> Iterator[None]:
    """Add the line of a `ValueError` to `skipped`, unless it is there, and go on. what: what the line begins with."""
    try:
        yield
    except ValueError as error:
        if (line := f"{what}{error}") not in skipped:
            skipped.append(line)


@dataclass
class Runs:
    """The finished runs below a folder.

    results: a row for each (run, test setting, split), with the columns of `train.results.store.RESULT_COLUMNS`, and
    `own` (whether the test setting is that of training) and `converged` (whether the run is above random there on
    test_ind, the paper's #sd). evaluations: results of `evaluate.py`, which are in no other table. skipped: a line for
    each run or file that was left out. datasets: the datasets of the runs, by content digest.
    """

    folder: Path
    results: pd.DataFrame
    skipped: list[str]
    datasets: dict[str, Dataset]
    evaluations: pd.DataFrame = field(default_factory=pd.DataFrame)
    _examples: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False)

    def examples(self, digest: str) -> pd.DataFrame:
        """Both test splits of a dataset, `test_ind` first, with the columns of `examples_of`; read once.

        Raises `ValueError` where the dataset was not found.
        """
        if digest not in self._examples:
            if digest not in self.datasets:
                raise ValueError(f"dataset {digest[:16]}: not found; say where it is with data=[FOLDER]")
            dataset = self.datasets[digest]
            parts = [examples_of(dataset, split) for split in TEST_SPLITS]
            self._examples[digest] = _concat(parts)
        return self._examples[digest]

    def chosen(self, **where: Any) -> pd.DataFrame:
        """The results in which columns have these values (or one of a list of values): see `predictions`.

        Raises `ValueError` for a column that results do not have, and for an unknown test setting.
        """
        rows = self.results
        for column, value in where.items():
            if column not in rows:
                raise ValueError(f"{column}: no such column of results; choose from {', '.join(rows.columns)}")
            values = list(value) if isinstance(value, list | tuple | set) else [value]
            if column == "test_setting":
                for name in values:
                    check_choice(column, name, TEST_SETTINGS)
            rows = rows[rows[column].isin(values)]
        return rows

    def predictions(self, **where: Any) -> pd.DataFrame:
        """A row for each prediction of the results in which columns have these values (or one of a list of values):
        `runs.predictions(model="uniter", task="cardinality", test_setting=["image", "caption"])`.

        Columns: those of `examples_of`, run, name, model, setting, seed, test_setting; logit (log-odds of true),
        prediction, right. Runs whose dataset or predictions are missing are in `skipped` and left out here. Raises
        `ValueError` as `chosen`.
        """
        parts = []
        for name, rows in self.chosen(**where).groupby("name", observed=True, sort=False):
            if rows["dataset"].iloc[0] in self.datasets:  # `skipped` has a line for a missing dataset
                with left_out(self.skipped):
                    parts.append(self._of_run(str(name), rows))
        return _concat(parts) if parts else pd.DataFrame(columns=list(PREDICTIONS))

    def _of_run(self, name: str, rows: pd.DataFrame) -> pd.DataFrame:
        info = rows.iloc[0]
        examples = self.examples(info["dataset"])
        table = read_predictions(self.folder / name)
        places = pa.array((rows["test_setting"] + "/" + rows["split"]).to_list())
        table = table.filter(pc.is_in(pc.binary_join_element_wise(table["test_setting"], table["split"], "/"), places))
        frame = examples.iloc[_row_numbers(table["id"], examples["id"])].reset_index(drop=True)
        for column in RUN_COLUMNS:
            frame[column] = pd.Categorical.from_codes(np.zeros(len(frame), np.int8), [info[column]])
        frame["test_setting"] = pd.Categorical(table["test_setting"].to_pandas())
        frame["logit"] = table["logit"].to_numpy()
        frame["prediction"] = table["prediction"].to_numpy()
        frame["right"] = frame["prediction"] == frame["answer"]
        if not (table["answer"].to_numpy() == frame["answer"].to_numpy()).all():
            raise ValueError(f"{self.folder / name}: its answers are not those of its dataset")
        return frame

    def curve(self, name: str) -> pd.DataFrame:
        """The training curve of a run: step, losses, validation scores."""
        return pd.DataFrame(read_curve(self.folder / name))


def load(runs: str | os.PathLike[str], data: Iterable[str | os.PathLike[str]] = ()) -> Runs:
    """All finished runs below a folder. data: folders of datasets that have been moved.

    Runs and files that cannot be read are left out and listed in `skipped`. Raises `ValueError` where there is no such
    folder.
    """
    folder = Path(runs)
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder of runs")
    skipped: list[str] = []
    rows = collect_results(folder, lambda line: skipped.append(line.removeprefix("left out: ")))
    results = pd.DataFrame(rows, columns=list(RESULT_COLUMNS))
    results = results.astype({name: DTYPES[kind] for name, kind in RESULT_COLUMNS.items()})
    results["own"] = results["test_setting"] == results["setting"].map(main_test_setting, na_action="ignore")
    main = results["split"].eq("test_ind") & results["own"].fillna(False)  # which the paper's #sd refers to
    above = results["above_random"].fillna(False).astype(bool) & main
    results["converged"] = above.groupby(results["name"]).transform("any").astype("boolean")
    datasets = _datasets(folder, results, [Path(place) for place in data], skipped)
    evaluated = results["form"].notna()
    trained = results[~evaluated].reset_index(drop=True)
    configs = [
        _with_style(config, datasets.get(digest))
        for config, digest in zip(trained["config"], trained["dataset"], strict=True)
    ]
    trained["config"] = pd.Series(configs, dtype=trained["config"].dtype)
    return Runs(folder, trained, skipped, datasets, results[evaluated])


def _datasets(folder: Path, results: pd.DataFrame, places: list[Path], skipped: list[str]) -> dict[str, Dataset]:
    """The datasets of runs, by digest: from `places`, or from the path in the config of a run."""
    datasets: dict[str, Dataset] = {}

    def look(place: Path) -> str | None:
        try:
            dataset = open_dataset(place)
        except ValueError as error:
            return str(error)
        datasets.setdefault(dataset.manifest["content_digest"], dataset)
        return None

    skipped += [f"data: {why}" for why in map(look, places) if why]
    for digest in sorted(set(datasets) - set(results["dataset"])):
        skipped.append(f"data: {datasets.pop(digest).folder}: no run was trained or asked on this dataset")
    for digest, rows in results.groupby("dataset", dropna=False):
        why = "its runs do not say where it is"
        for name in rows["name"].unique():
            place_of_run = read_config(folder / name).get("data")
            if digest in datasets or not place_of_run:
                continue
            for place in (Path(place_of_run), folder.parent / place_of_run):
                if digest not in datasets and (place.is_dir() or place == Path(place_of_run)):
                    why = look(place) or f"{place}: holds other data by now"
        if digest not in datasets:
            count = rows["name"].nunique()
            skipped.append(f"predictions of {count} run{'s' * (count > 1)}, dataset {str(digest)[:16]}: {why}")
    return datasets


def _with_style(config: Any, dataset: Dataset | None) -> Any:
    """The config of a run as JSON. The style of its dataset, if known, stands in place of the digest of its words."""
    of_dataset = dataset.manifest.get("config") if dataset is not None else None
    if not of_dataset or not isinstance(config, str):
        return config
    settings = json.loads(config)
    settings.get("inputs", {}).pop("vocabulary", None)
    return canonical(settings | {"style": {**Style().model_dump(), **of_dataset.get("style", {})}})


def _row_numbers(ids: pa.ChunkedArray, example_ids: pd.Series) -> np.ndarray:
    """The index of each id among those of the examples. Raises `ValueError` for an unknown id."""
    places = pc.index_in(ids, pa.array(example_ids)).combine_chunks()
    if places.null_count:
        raise ValueError(f"{ids.filter(pc.is_null(places))[0]}: no example of the dataset has this id")
    return places.to_numpy()


def _concat(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """Several frames as one; categorical columns stay categorical."""
    if len(parts) == 1:
        return parts[0]
    columns = {}
    for name in parts[0].columns:
        if isinstance(parts[0][name].dtype, pd.CategoricalDtype):
            columns[name] = pd.Series(pd.api.types.union_categoricals([part[name] for part in parts]))
        else:
            columns[name] = pd.concat([part[name] for part in parts], ignore_index=True)
    return pd.DataFrame(columns)
