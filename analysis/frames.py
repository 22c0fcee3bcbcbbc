"""Saved runs and evaluations as data frames: every score, every answer beside what its example shows, every curve."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from analysis.examples import constant, describe_examples
from train.results.answers import read_answers
from train.results.columns import RESULT_COLUMNS, TEST_SPLITS, main_test_setting
from train.results.predictions import read_predictions
from train.results.store import collect_results, read_config, read_curve
from train.results.tables import flat_settings
from travlr.config import Style
from travlr.dataset import Dataset, open_dataset
from travlr.metrics import LEVEL, binomial_p_value
from travlr.settings import UsageError, count_text

DTYPES: dict[type, str] = {str: "str", int: "Int64", float: "float64", bool: "boolean"}
RUN_COLUMNS = ("run", "name", "model", "setting", "seed")  # of predictions
REPLY_COLUMNS = ("parsed", "expected", "reply", "objects_read")  # of predictions; missing where a run was trained
# Columns of results that follow from others.
DERIVED = ("own", "converged", "above_unbound", "variant", "part", "initial")


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
    """The finished runs and evaluations below a folder.

    results: a row for each (run, test setting, split): the columns of `train.results.columns.RESULT_COLUMNS`, every
    setting by its dotted name (`training.steps`), and those of `DERIVED`: `own` (tested as trained), `converged` (the
    run is above random there on test_ind, the paper's #sd), `above_unbound` (accuracy above that of the best unbound
    rule), `variant` (how a run departs from those of Table 2, "" for these), `part` (of the train split; missing for a
    stream of new examples), `initial` (random or pretrained weights). skipped: a line for each run or file that was
    left out. datasets: those of the runs, by content digest.
    """

    folder: Path
    results: pd.DataFrame
    skipped: list[str]
    datasets: dict[str, Dataset]
    _examples: dict[tuple[str, ...], pd.DataFrame] = field(default_factory=dict, repr=False)

    @property
    def trainings(self) -> pd.DataFrame:
        """The results of training runs, those of chat models included."""
        return self.results[self.results["setting"].notna()]

    @property
    def evaluations(self) -> pd.DataFrame:
        """The results of `evaluate.py`."""
        return self.results[self.results["setting"].isna()]

    def choose(self, **where: Any) -> pd.DataFrame:
        """The results whose columns have these values, or one of a list of values; dots of settings are `__`:
        `choose(size="base", training__steps=[2000, 4000])`. Raises `ValueError` for an unknown column."""
        rows = self.results
        for column, value in where.items():
            name = column.replace("__", ".")
            if name not in rows:
                near = get_close_matches(name, list(map(str, rows)))
                hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(map(str, rows))}"
                raise ValueError(f"{name}: no column or setting of runs; {hint}")
            rows = rows[rows[name].isin(value if isinstance(value, list | tuple | set) else [value])]
        return rows

    def select(self, **where: Any) -> Runs:
        """The runs with some of the results of `choose`, with all of their results."""
        names = self.choose(**where)["name"]
        return replace(self, results=self.results[self.results["name"].isin(names)].reset_index(drop=True))

    def examples(self, digest: str, splits: Sequence[str] = TEST_SPLITS) -> pd.DataFrame:
        """Splits of a dataset with the columns of `describe_examples`, each read once.

        Raises `ValueError` where the dataset was not found.
        """
        if digest not in self.datasets:
            raise ValueError(f"dataset {digest[:16]}: not found; say where it is with data=[FOLDER]")
        key = (digest, *splits)
        if key not in self._examples:
            dataset = self.datasets[digest]
            self._examples[key] = concat(
                [describe_examples(dataset, split) for split in splits if split in dataset.splits]
            )
        return self._examples[key]

    def predictions(self, **where: Any) -> pd.DataFrame:
        """A row for each answer of the results that `choose` chooses.

        Columns: those of `describe_examples`; `RUN_COLUMNS` and test_setting; score (log-odds of true, or another score
        that is higher for true), prediction (of the query; missing where a reply says neither true nor false), right;
        and of evaluations `REPLY_COLUMNS`: the parsed answer, the right one, the reply, and of form=read the errors.
        Runs whose dataset or predictions are missing are in `skipped` and left out here.
        """
        parts = []
        for name, rows in self.choose(**where).groupby("name", observed=True, sort=False):
            if rows["dataset"].iloc[0] in self.datasets:  # `skipped` has a line for a missing dataset
                with left_out(self.skipped):
                    parts.append(self._predictions_of(str(name), rows))
        return concat(parts) if parts else pd.DataFrame(columns=list(PREDICTIONS))

    def _predictions_of(self, name: str, rows: pd.DataFrame) -> pd.DataFrame:
        info, folder = rows.iloc[0], self.folder / name
        table = read_saved_predictions(folder) if pd.isna(info["form"]) else read_replies(folder)
        places = rows["test_setting"] + "/" + rows["split"]
        table = table[(table["test_setting"] + "/" + table["split"]).isin(places)]
        examples = self.examples(info["dataset"], sorted({*rows["split"]}))
        frame = examples.iloc[row_numbers(table["id"], examples["id"])].reset_index(drop=True)
        if "answer" in table and (table["answer"].to_numpy() != frame["answer"].to_numpy()).any():
            raise ValueError(f"{folder}: its answers are not those of its dataset")
        for column in RUN_COLUMNS:
            frame[column] = constant(len(frame), info[column])
        for column in ("test_setting", "score", "prediction", *REPLY_COLUMNS):
            frame[column] = table[column].array if column in table else constant(len(frame), None)
        right = table["right"].array if "right" in table else frame["prediction"] == frame["answer"]
        return frame.assign(right=right, test_setting=frame["test_setting"].astype("category"))[list(PREDICTIONS)]

    def curve(self, name: str) -> pd.DataFrame:
        """The training curve of a run: step, losses, validation scores."""
        return pd.DataFrame(read_curve(self.folder / name))


PREDICTIONS = ("id", "split", "answer", "task", "query", "objects", "row", "item", "couple", "scene", "pair", "kind",
               "x", "y", "claim", "first", "second", "third", "critical", "source", "picture", "group", *RUN_COLUMNS,
               "test_setting", "score", "prediction", "right", *REPLY_COLUMNS)  # fmt: skip


def read_runs(folder: str | os.PathLike[str], data: Iterable[str | os.PathLike[str]] = ()) -> Runs:
    """All finished runs and evaluations below a folder. data: folders of datasets that have been moved.

    What cannot be read is left out and listed in `skipped`. Raises `ValueError` where there is no such folder.
    """
    place = Path(folder)
    if not place.is_dir():
        raise UsageError(f"{place}: there is no such folder of runs")
    skipped: list[str] = []
    rows = collect_results(place, lambda line: skipped.append(line.removeprefix("left out: ")))
    results = pd.DataFrame(rows, columns=list(RESULT_COLUMNS))
    results = results.astype({name: DTYPES[kind] for name, kind in RESULT_COLUMNS.items()})
    datasets = _find_datasets(place, results, [Path(one) for one in data], skipped)
    return Runs(place, with_derived(with_settings(results, datasets), datasets), skipped, datasets)


# Columns of results --------------------------------------------------------------------------------------------------


def setting_columns(results: pd.DataFrame) -> list[str]:
    """The columns that hold settings in which the runs of one cell of a table may differ, beside seed, model, task and
    training setting."""
    of_results = {*RESULT_COLUMNS, *DERIVED}
    return ["size", "dataset", "form", "prompt", *(str(name) for name in results if name not in of_results)]


def with_settings(results: pd.DataFrame, datasets: dict[str, Dataset]) -> pd.DataFrame:
    """Results with a column for each setting of their runs, by its dotted name."""
    by_config = {config: flat_settings(json.loads(config)) for config in results["config"].dropna().unique()}
    names = sorted({name for settings in by_config.values() for name in settings} - {*RESULT_COLUMNS})
    values = [by_config.get(config, {}) for config in results["config"]]
    columns = {name: pd.Series([row.get(name) for row in values], results.index, object) for name in names}
    for name in ("image", "caption"):  # that of the dataset, where the settings of a run have none
        styles = {digest: _style(dataset)[name] for digest, dataset in datasets.items()}
        own = columns.get(f"style.{name}", pd.Series(None, results.index, object))
        columns[f"style.{name}"] = own.where(own.notna(), results["dataset"].map(styles).astype(object))
    return pd.concat([results, pd.DataFrame(columns, results.index)], axis=1)


def _style(dataset: Dataset) -> dict[str, Any]:
    return {**Style().model_dump(), **(dataset.manifest.get("config") or {}).get("style", {})}


def with_derived(results: pd.DataFrame, datasets: dict[str, Dataset]) -> pd.DataFrame:
    """Results with the columns of `DERIVED`, see `Runs`."""
    results = results.copy()
    results["own"] = results["test_setting"] == results["setting"].map(main_test_setting, na_action="ignore")
    main = results["split"].eq("test_ind") & results["own"].fillna(False)
    above = results["above_random"].fillna(False).astype(bool) & main
    results["converged"] = above.groupby(results["name"]).transform("any")
    results["above_unbound"] = pd.array([above_unbound(row) for row in results.to_dict("records")], "boolean")
    sizes = {digest: _train_rows(dataset) for digest, dataset in datasets.items()}
    examples = _setting(results, "training.examples").astype(float)
    rows = results["dataset"].map(sizes).astype(float)
    results["part"] = (examples / rows).where((examples > 1) & rows.notna(), examples)
    kinds = {
        "controlled": _setting(results, "controlled").eq(True),
        "frozen": _setting(results, "method").eq("frozen"),
        "trained further": _setting(results, "start").notna(),
        "consistency": _setting(results, "method").eq("consistency"),
        "mismatched": _setting(results, "method").eq("mismatched"),
        "fewer pairs": _setting(results, "training.unlabelled").notna(),
        "part": results["part"].notna() & results["part"].ne(1),
    }
    names = [", ".join(name for name in kinds if kinds[name].iloc[row]) for row in range(len(results))]
    results["variant"] = pd.array(names, "str")
    further = results["weights"].fillna("").str.startswith("run ")
    random = results["weights"].eq("random") | (further & _setting(results, "pretrained").isna())
    results["initial"] = np.where(results["weights"].isna(), "unknown", np.where(random, "random", "pretrained"))
    return results


def _setting(results: pd.DataFrame, name: str) -> pd.Series:
    return results[name] if name in results else pd.Series(None, results.index, object)


def _train_rows(dataset: Dataset) -> float:
    return float(dataset.manifest["splits"].get("train", {}).get("rows", np.nan))


def above_unbound(row: dict[str, Any]) -> bool | None:
    """Whether a result is above the best unbound rule: an exact binomial test of its accuracy at `LEVEL`. None where
    the rule's accuracy is not known."""
    values = [row["accuracy"], row["examples"], row["baseline_unbound_accuracy"]]
    if pd.isna(values).any():
        return None
    accuracy, examples, level = map(float, values)
    return binomial_p_value(round(accuracy * examples / 100), int(examples), level) < LEVEL


# Datasets ------------------------------------------------------------------------------------------------------------


def _find_datasets(folder: Path, results: pd.DataFrame, places: list[Path], skipped: list[str]) -> dict[str, Dataset]:
    """The datasets of runs, by digest: from `places`, or from the path in the settings of a run."""
    datasets = {dataset.manifest["content_digest"]: dataset for dataset in map(open_dataset, places)}
    for digest, rows in results.groupby("dataset", dropna=False):
        reason = "its runs do not say where it is"
        for name in rows["name"].unique():
            if digest in datasets or not (written := read_config(folder / name)["data"]):
                continue
            reason = f"{written}: there is no such folder"
            for place in (one for one in (Path(written), folder.parent / written) if one.is_dir()):
                reason = f"{place}: holds other data by now"
                try:
                    dataset = open_dataset(place)
                except ValueError as error:
                    reason = str(error)
                else:
                    datasets.setdefault(dataset.manifest["content_digest"], dataset)
        if digest not in datasets:
            count = rows["name"].nunique()
            skipped.append(f"predictions of {count_text(count, 'run')}, dataset {str(digest)[:16]}: {reason}")
    return {digest: dataset for digest, dataset in datasets.items() if digest in {*results["dataset"]}}


# Answers -------------------------------------------------------------------------------------------------------------


def read_saved_predictions(folder: Path) -> pd.DataFrame:
    """The predictions of a training run."""
    return read_predictions(folder).to_pandas().rename(columns={"logit": "score"})


def read_replies(folder: Path) -> pd.DataFrame:
    """The answers of an evaluation."""
    records = read_answers(folder)
    says = {"true": True, "false": False}
    return pd.DataFrame(
        {
            **{name: [getattr(one, name) for one in records] for name in ("id", "split", "parsed", "reply")},
            "right": [bool(one.right) for one in records],
            "test_setting": [one.setting for one in records],
            "expected": [one.answer for one in records],
            "objects_read": [one.objects for one in records],
            "score": [np.nan if one.score is None else one.score for one in records],
            "prediction": pd.array([says.get(one.parsed or "") for one in records], "boolean"),
        }
    )


def row_numbers(ids: pd.Series, example_ids: pd.Series) -> np.ndarray:
    """The index of each id among those of the examples. Raises `ValueError` for an unknown id."""
    places = pc.index_in(pa.array(ids), pa.array(example_ids))
    if places.null_count:
        raise ValueError(
            f"{ids.iloc[pc.index(pc.is_null(places), True).as_py()]}: no example of the dataset has this id"
        )
    return places.to_numpy()


def concat(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Several frames with the same columns as one; columns that are categorical in all stay so."""
    columns = {}
    for name in parts[0].columns:
        values = [part[name] for part in parts]
        kinds = {value.dtype for value in values}
        if len(kinds) > 1 and all(isinstance(kind, pd.CategoricalDtype) for kind in kinds):
            categories = dict.fromkeys(category for value in values for category in value.cat.categories)
            values = [value.astype(pd.CategoricalDtype(list(categories))) for value in values]
        elif len(kinds) > 1:
            values = [value.astype(object) for value in values]
        columns[name] = pd.concat(values, ignore_index=True)
    return pd.DataFrame(columns)
