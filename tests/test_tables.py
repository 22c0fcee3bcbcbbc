"""Tables: the paper's own from results made to be the paper's, and every number again from saved predictions."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

from analysis.frames import DTYPES, Runs, read_runs, with_derived, with_settings
from analysis.tables import SPECS, SPLITS, TABLES
from analysis.tables.comparison import compare_runs
from analysis.tables.paper import BIMODAL, MODEL_NAMES, published
from analysis.tables.pivots import OURS, PAPER, Table, label_runs
from analysis.tables.render import to_csv, to_html, to_latex, to_markdown
from tests.grid import make_run, merged
from tests.helpers import write
from train.config import Run
from train.results.columns import RESULT_COLUMNS, TEST_SETTINGS
from train.results.store import canonical, run_id
from travlr.tasks import PAPER as PAPER_TASKS

Scores = Mapping[tuple[str, str], float]  # (test setting, split) -> macro-F1


# Results made to order, without predictions --------------------------------------------------------------------------


def made(scores: Scores, *, converged: bool = True, above: bool = True, config: Any = None, **about: Any) -> list[Any]:
    """The rows of one run; `about`: model, setting, task, seed, and any column of results."""
    settings = {name: about[name] for name in ("model", "setting", "task", "seed")}
    config = merged(Run(**settings).model_dump(), {"dataset": f"{about['task']}-digest"} | (config or {}))
    config = {name: value for name, value in config.items() if name not in ("runs", "data", "experiment", "device")}
    shared = dict.fromkeys(RESULT_COLUMNS) | {"weights": "random", "size": "small", "train_seconds": 7200.0}
    shared |= {"run": run_id(config), "name": run_id(config), "config": canonical(config), "parameters": 2_500_000}
    shared |= {"dataset": config["dataset"], "hardware": "a processor", "converged": converged, **about}
    return [
        shared | {"test_setting": test, "split": split, "macro_f1": score, "above_random": above}
        for (test, split), score in scores.items()
    ]


def runs_of(rows: list[Any]) -> Runs:
    frame = pd.DataFrame(rows, columns=[*RESULT_COLUMNS, "converged"])
    results = frame[list(RESULT_COLUMNS)].astype({name: DTYPES[kind] for name, kind in RESULT_COLUMNS.items()})
    results = with_derived(with_settings(results, {}), {})
    return Runs(Path("nowhere"), results.assign(converged=frame["converged"].astype(bool)), [], {})


def flat(score: float) -> Scores:
    return {(test, split): score for test in TEST_SETTINGS for split in SPLITS}


def paper_cells(table: str, task: str, model: str, setting: str) -> dict[tuple[str, str], Any]:
    """(test setting, split) -> the numbers of a cell."""
    rows = published(table)
    rows = rows[(rows["task"] == task) & (rows["model"] == model) & (rows["setting"] == setting)]
    return {(row.test_setting, row.split): row for row in rows.itertuples()}


def like_table2(task: str, model: str, setting: str) -> list[Any]:
    """Three runs that average to what the paper printed; those that have not converged are far off, unless none has."""
    cells = paper_cells("table2", task, model, setting)
    converged = int(cells["image", "test_ood"].seeds)
    rows = []
    for seed in range(3):
        moved = [0.0] if converged == 1 else [1.5, -1.5] if converged == 2 else [2.0, -1.0, -1.0]
        off = moved[seed] if seed < (converged or 3) else -20.0
        scores = {(test, "test_ood"): cell.mean + off for (test, _), cell in cells.items()}
        scores |= {(test, "test_ind"): cell.mean - cell.difference + off for (test, _), cell in cells.items()}
        ok = seed < converged
        rows += made(scores, converged=ok, above=ok, model=model, setting=setting, task=task, seed=seed)
    return rows


@pytest.fixture(scope="module")
def as_published() -> Runs:
    return runs_of([row for t in PAPER_TASKS for m in BIMODAL for s in TEST_SETTINGS for row in like_table2(t, m, s)])


def ours(table: Table) -> pd.DataFrame:
    """The lines of our runs, by the other labels."""
    source = table.frame.index.get_level_values("Source")
    return table.frame[source.str.startswith(OURS)].droplevel("Source")


def theirs(table: Table) -> pd.DataFrame:
    return table.frame[table.frame.index.get_level_values("Source") == PAPER].droplevel("Source")


# Table 2 -------------------------------------------------------------------------------------------------------------


def test_table2_from_the_papers_numbers(as_published: Runs) -> None:
    """Cell by cell: layout, means of converged runs alone, differences, and how many converged."""
    table = TABLES["table2"](as_published)
    assert len(ours(table)) == 16 and (table.frame != "").all(axis=None)
    pd.testing.assert_frame_equal(ours(table), theirs(table))
    assert list(ours(table).index) == [(task, MODEL_NAMES[model]) for task in PAPER_TASKS for model in BIMODAL]
    heads = ["Image", "Caption", "Img. + Cap."]
    assert list(table.frame.columns) == [(trained, test) for trained in heads for test in (*heads, "#sd")]
    assert list(theirs(table).iloc[0])[:4] == ["65.94 (-1.02)", "48.92 (-0.23)", "52.47 (+0.19)", "3"]
    assert set(table.frame.index.get_level_values("Source")) == {"ours, random", PAPER}


def test_overview_marks_the_best_above_random(as_published: Runs) -> None:
    table = TABLES["table2"](as_published)
    for task in PAPER_TASKS:
        marks = table.marks[table.frame.index.get_level_values("Source") != PAPER].loc[task]
        for column in (one for one in table.frame if one[1] != "#sd"):
            scores = ours(table).loc[task][column].str.split().str[0].astype(float).to_numpy()
            best = marks[column].str.contains("best").to_numpy()
            assert list(best) == list(scores == scores.max())
    marks = table.marks.xs("ours, random", level="Source").loc["spatiality"]
    assert "above" not in marks.loc["ALBEF", ("Image", "Image")]  # none converged: all three averaged
    assert "above" in marks.loc["UNITER", ("Caption", "Caption")]  # one converged: that one alone counts
    assert set(table.marks.xs(PAPER, level="Source").to_numpy().ravel()) == {"paper"}


def test_table2_with_a_missing_run(as_published: Runs) -> None:
    results = as_published.results
    gone = (results["model"] == "lxmert") & (results["task"] == "quantifiers") & (results["setting"] == "caption")
    line = ours(TABLES["table2"](replace(as_published, results=results[~gone]))).loc[("quantifiers", "LXMERT")]
    assert set(line["Caption"]) == {""} and all(line["Image"]) and all(line["Img. + Cap."])


def test_tables_without_runs() -> None:
    empty = runs_of([])
    for name, make in TABLES.items():
        table = make(empty)
        assert not table.frame.index.get_level_values(-1).astype(str).str.startswith(OURS).any(), name


def test_pivot_averages_no_runs_of_other_settings() -> None:
    """The cell says so, and a note in what."""
    about: dict[str, Any] = {"model": "uniter", "setting": "image", "task": "cardinality"}
    rows = [row for seed in range(3) for row in made(flat(80), seed=seed, **about)]
    rows += made(flat(95), seed=0, config={"training": {"steps": 4000}}, **about)
    runs = runs_of(rows)
    table = TABLES["table2"](runs)
    assert list(ours(table).loc[("cardinality", "UNITER"), "Image"])[:3] == ["4 runs differ"] * 3
    (note,) = [note for note in table.notes if "--select" in note]
    assert "cardinality, uniter, image: 4 runs" in note and "training.steps" in note
    chosen = TABLES["table2"](runs.select(training__steps=[4000]))
    assert ours(chosen).loc[("cardinality", "UNITER"), ("Image", "Image")] == "95.00 (+0.00)"
    labels = label_runs(runs.results).groupby(runs.results["name"]).first()
    assert sorted(labels) == ["uniter small"] * 3 + ["uniter small, training.steps=4000"]


KINDS: dict[str, dict[str, Any]] = {
    "frozen": {"method": "frozen"},
    "controlled": {"controlled": True},
    "trained further": {"start": "0123abcd"},
    "consistency": {"method": "consistency"},
    "part": {"training": {"examples": 0.25}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_table2_leaves_out_variants(kind: str) -> None:
    about: dict[str, Any] = {"model": "uniter", "setting": "image", "task": "cardinality", "seed": 0}
    rows = made(flat(80), experiment="transfer", **about) + made(flat(95), config=KINDS[kind], **about)
    table = TABLES["table2"](runs_of(rows))
    assert ours(table).loc[("cardinality", "UNITER"), ("Image", "Image")] == "80.00 (+0.00)"
    overview = TABLES["overview"](runs_of(rows)).frame
    assert {line[1] for line in overview.index} == {"", "Volta" if kind == "controlled" else kind}


# The other tables of scores ------------------------------------------------------------------------------------------


def test_tables_13_and_14_from_the_papers_numbers(as_published: Runs) -> None:
    rows = []
    for task in PAPER_TASKS:
        for model in BIMODAL:
            cells = paper_cells("table13", task, model, "mixed")
            scores = {place: cell.mean for place, cell in cells.items()}
            seeds = int(cells["image", "test_ood"].seeds)
            for seed in range(3):
                off = -20.0 if seeds and seed >= seeds else 0.0
                moved = {place: score + off for place, score in scores.items()}
                rows += made(moved, converged=seed < seeds, model=model, setting="mixed", task=task, seed=seed)
            less = {place: cell.difference for place, cell in paper_cells("table14", task, model, "mixed").items()}
            for test, part in {"image": 0.25, "caption": 0.25, "image+caption": 0.5}.items():
                base = {(test, split): scores[test, split] - less[test, split] for split in SPLITS}
                config = {"training": {"examples": part}}
                rows += made(base, config=config, model=model, setting=test, task=task, seed=0)
    runs = replace(as_published, results=pd.concat([as_published.results, runs_of(rows).results], ignore_index=True))
    table = TABLES["table13"](runs)
    assert ours(table).shape == theirs(table).shape == (16, 7)
    for mine, paper in zip(ours(table).to_numpy().ravel(), theirs(table).to_numpy().ravel(), strict=True):
        numbers, wanted = ([float(one) for one in re.findall(r"[+-]?[\d.]+", text)] for text in (mine, paper))
        assert numbers == pytest.approx(wanted, abs=0.021)  # the paper rounds earlier
    table = TABLES["table14"](runs)
    pd.testing.assert_frame_equal(ours(table), theirs(table))


def test_tables_10_to_12_by_size() -> None:
    about: dict[str, Any] = {"model": "uniter", "setting": "image", "task": "spatiality"}
    part = {"training": {"examples": 8000}}
    rows = [row for seed in range(3) for row in made(flat(80 + seed), seed=seed, config={"controlled": True}, **about)]
    rows += made(flat(70), seed=0, config=part | {"controlled": True}, **about)
    rows += made(flat(60), seed=0, config={"training": {"examples": 0.25}}, **about)
    rows += made(flat(90), seed=0, **about)
    table = TABLES["table10"](runs_of(rows))
    assert {line: list(texts) for line, texts in ours(table).T.items()} == {
        ("32k", "", "UNITER"): ["90.00", "-", "1"] * 2,
        ("32k", "Volta", "UNITER"): ["81.00", "1.00", "3"] * 2,
        ("8k", "", "UNITER"): ["60.00", "-", "1"] * 2,
        ("8k", "Volta", "UNITER"): ["70.00", "-", "1"] * 2,
    }
    assert list(theirs(table).loc[("32k", "", "UNITER")]) == ["89.67", "14.43", "3", "88.71", "14.58", "3"]
    assert len(ours(TABLES["table11"](runs_of(rows)))) == len(ours(TABLES["table12"](runs_of(rows)))) == 0


def test_few_shot_before_and_after() -> None:
    about: dict[str, Any] = {"model": "lxmert", "task": "spatiality", "seed": 0}
    before = made(flat(50), above=False, setting="image", **about)
    few = {"start": before[0]["run"], "training": {"examples": 200}}
    after = made(flat(70), setting="caption", config=few, weights=f"run {before[0]['name']}", **about)
    table = TABLES["few_shot"](runs_of(before + after))
    place = ("image", "Caption", "spatiality", "LXMERT", 0)
    assert list(table.frame.loc[(*place, after[0]["name"])]) == ["50.00", "70.00", "70.00", ""]
    assert list(table.marks.loc[(*place, after[0]["name"])].str.contains("above"))[:3] == [False, True, True]
    assert list(table.frame.loc[(*place, "paper")]) == ["", "", "", "no"] and len(table.frame) == 11


def test_subsets_by_part() -> None:
    about: dict[str, Any] = {"model": "roberta", "setting": "caption", "task": "cardinality", "seed": 0}
    rows = made(flat(99), **about)  # a stream, which is no part of the train split
    for place, part in enumerate((0.125, 0.25, 0.5, 1)):
        config = {"training": {"examples": part}}
        rows += made({("caption", split): 60.0 + place for split in SPLITS}, config=config, **about)
    table = TABLES["subsets"](runs_of(rows))
    line = ours(table).loc[("cardinality", "RoBERTa"), "Caption"]
    assert list(line.index) == ["12.5 %", "25 %", "50 %", "100 %", "stream"]
    assert list(line) == [f"{score}.00 (+0.00)" for score in (60, 61, 62, 63, 99)]
    assert theirs(table).loc[("cardinality", "RoBERTa"), ("Caption", "12.5 %")] == "86.76"


def test_transfer_by_what_helps_it() -> None:
    about: dict[str, Any] = {"model": "uniter", "task": "cardinality", "seed": 0, "setting": "image"}
    rows = made({("image", "test_ood"): 80.0, ("caption", "test_ood"): 50.0}, **about)
    rows += made({("image", "test_ood"): 81.0, ("caption", "test_ood"): 70.0}, config=KINDS["consistency"], **about)
    lines = ours(TABLES["transfer"](runs_of(rows)))["Image"]
    assert list(lines.loc[("cardinality", "UNITER", "")]) == ["80.00", "50.00", "1"]
    assert list(lines.loc[("cardinality", "UNITER", "consistency")]) == ["81.00", "70.00", "1"]


def test_hours_and_parameters_by_run() -> None:
    about: dict[str, Any] = {"model": "albef", "seed": 0, "train_seconds": 5400.0}
    rows = made(flat(80), setting="image", task="cardinality", **about)
    rows += made(flat(80), setting="caption", task="cardinality", **about)
    rows += made(flat(80), setting="caption", task="cardinality", hardware="another", **about | {"seed": 1})
    hours = ours(TABLES["table6"](runs_of(rows))).loc[("cardinality", "ALBEF")]
    assert list(hours[["Image", "Caption"]]) == ["1.5", "2 runs differ"]
    assert theirs(TABLES["table6"](runs_of(rows))).loc[("spatiality", "ALBEF"), "Image"] == "38"
    millions = TABLES["table8"](runs_of(rows)).frame
    assert millions.loc[("ALBEF", "", "small", "ours, random"), "cardinality"] == "2.50"
    assert millions.loc[("BERT", "", "base", PAPER), "any task"] == "108.31"


# From saved predictions ----------------------------------------------------------------------------------------------


def accuracy(own_setting: str) -> Any:
    return lambda test, split: {"test_ind": 0.9, "test_ood": 0.8}[split] if test == own_setting else 0.5


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Two models in two settings and three seeds, of which one has not converged; and BERT."""
    folder = tmp_path_factory.mktemp("saved")
    write(folder / "data")
    for model in ("uniter", "lxmert"):
        for setting in ("image", "caption"):
            for seed in range(3):
                learned = accuracy(setting) if seed else (lambda test, split: 0.5)
                make_run(folder / "runs", folder / "data", learned, model=model, setting=setting, seed=seed)
    make_run(folder / "runs", folder / "data", accuracy("caption"), model="bert", setting="caption")
    yield read_runs(folder / "runs")


def scores_from_predictions(runs: Runs) -> dict[tuple[str, str, str], float]:
    """(run's name, test setting, split) -> macro-F1, from the files alone."""
    scores = {}
    for name in runs.results["name"].unique():
        frame = pd.read_parquet(runs.folder / name / "predictions.parquet")
        for (test, split), part in frame.groupby(["test_setting", "split"], observed=True):
            scores[name, str(test), str(split)] = 100 * f1_score(part["answer"], part["logit"] > 0, average="macro")
    return scores


@pytest.mark.parametrize(("table", "cells"), [("table2", 2 * 2 * 3), ("overview", 2 * 2 * 6 + 2)])
def test_tables_equal_scores_of_the_predictions(saved: Runs, table: str, cells: int) -> None:
    scores = scores_from_predictions(saved)
    info = saved.results.drop_duplicates("name").set_index("name")
    data = TABLES[table](saved).data
    data = data[data["runs"].notna() & data["mean"].notna() & (data["test_setting"] != "#sd")]
    for row in data.to_dict("records"):
        names = info.index[(info["model"] == row["model"]) & (info["setting"] == row["setting"])]
        used = [name for name in names if info.loc[name, "converged"]] or list(names)
        mean = {split: np.mean([scores[name, row["test_setting"], split] for name in used]) for split in SPLITS}
        assert row["mean"] == pytest.approx(mean[row["split"]]) and row["seeds"] == len(used)
        if table == "table2":
            assert row["difference"] == pytest.approx(mean["test_ood"] - mean["test_ind"])
            assert row["converged"] == info.loc[names, "converged"].sum()
    assert len(data) == cells and 0 < info["converged"].sum() < len(info)


def test_overview_ends_with_baselines(saved: Runs) -> None:
    frame = TABLES["overview"](saved).frame.loc["baseline"]
    for label, column in (("query", "baseline_query"), ("query and number of objects", "baseline_query_objects")):
        (line,) = (one for one in frame.index if one[0] == label)
        for (_, _, split), text in frame.loc[line].items():
            name = {"InD": "test_ind", "OOD": "test_ood"}[split]
            (level,) = saved.results.loc[saved.results["split"] == name, column].unique()
            assert text == f"{level:.1f}"


def test_couples_table_of_a_single_run(saved: Runs) -> None:
    line = TABLES["couples"](saved).frame.loc[("BERT", "", "Caption")]
    rows = saved.results[saved.results["model"] == "bert"].set_index("split")
    for split, name in (("InD", "test_ind"), ("OOD", "test_ood")):
        ends = f"{rows.loc[name, 'couples_low']:.0f}–{rows.loc[name, 'couples_high']:.0f}"
        assert line["cardinality", "Caption", split] == f"{rows.loc[name, 'couples_right']:.1f} [{ends}]"


@pytest.mark.parametrize("name", TABLES)
def test_tables_in_all_forms(saved: Runs, name: str) -> None:
    table = TABLES[name](saved)
    texts = [text for text in table.frame.to_numpy().ravel() if text]
    lines = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
    assert len(lines) == len(table.frame) + 2 and len({line.count("|") for line in lines}) == 1
    assert len(pd.read_csv(io.StringIO(to_csv(table)))) == len(table.data)
    assert to_html(table).count("</tr>") == len(table.frame) + table.frame.columns.nlevels + 1
    latex = to_latex(table)
    assert r"\toprule" in latex and r"\bottomrule" in latex and r"\begin{tabular}" in latex
    plain = {"html": to_html(table), "latex": latex.replace(r"\#", "#").replace(r"\%", "%"), "md": to_markdown(table)}
    for form, page in plain.items():
        assert all(text in page for text in texts if not re.search("[&<>_]", text)), form
    assert name == "overview" or name == "few_shot" or name in SPECS


def test_forms_escape_and_mark() -> None:
    index = pd.Index(["<b>"], name="")
    frame = pd.DataFrame({"a_b": ["50 % of a_b"], "c": ["<i>"]}, index)
    marks = pd.DataFrame({"a_b": ["best above"], "c": [""]}, index)
    table = Table("t", "A & B", frame, pd.DataFrame(), marks)
    assert "&lt;b&gt;" in to_html(table) and "<i>" not in to_html(table)
    assert re.search(r'<td class="[^"]*best above" ?>50 % of a_b', to_html(table))
    latex = to_latex(table)
    assert r"\textbf{" in latex and r"\underline{" in latex and r"50 \% of a\_b" in latex and r"A \& B" in latex
    assert "**50 % of a_b**" in to_markdown(table)


# Two runs ------------------------------------------------------------------------------------------------------------


def test_compare_runs_equals_scikit_learn(saved: Runs) -> None:
    scores = scores_from_predictions(saved)
    names = saved.results.drop_duplicates("name").set_index(["model", "setting", "seed"])["name"]
    one, other = names["uniter", "image", 1], names["lxmert", "caption", 1]
    table = compare_runs(saved, one, other)
    assert len(table.data) == 6
    for row in table.data.to_dict("records"):
        place = row["test_setting"], row["split"]
        assert (row["first"], row["second"]) == pytest.approx((scores[one, *place], scores[other, *place]))
        assert row["low"] <= row["difference"] <= row["high"] and row["p_value"] <= row["p_adjusted"] <= 1
    assert table.frame.loc[("test_ind", "image"), "Higher"] == "A"  # learned against not learned
    with pytest.raises(ValueError, match="nobody: "):
        compare_runs(saved, one, "nobody")
