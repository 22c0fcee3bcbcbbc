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

from analysis import Runs, load, paper
from analysis.averages import select
from analysis.layout import Cell, Table
from analysis.paper import BIMODAL, SPLITS
from analysis.tables import TABLES, compare_runs, couples, overview
from analysis.tables.builder import SHORT_SETTINGS
from analysis.tables.facts import table6
from analysis.tables.scores import table2
from tests.grid import make_run, merged
from tests.helpers import write
from train.config import Run
from train.results.columns import RESULT_COLUMNS, TEST_SETTINGS
from train.results.store import canonical, run_id
from travlr.tasks import PAPER

Scores = Mapping[tuple[str, str], float]  # (test setting, split) -> macro-F1


# Results made to order, without predictions --------------------------------------------------------------------------


def made(scores: Scores, *, converged: bool = True, above: bool = True, config: Any = None, **about: Any) -> list[Any]:
    """The rows of one run; `about`: model, setting, task, seed, and any column of results."""
    known = {name: about[name] for name in ("model", "setting", "task", "seed")}
    told = merged(Run(**known).model_dump(), {"dataset": f"{known['task']}-digest"} | (config or {}))
    told = {name: value for name, value in told.items() if name not in ("runs", "data", "experiment", "device")}
    shared = dict.fromkeys(RESULT_COLUMNS) | {"weights": "random", "size": "small", "train_seconds": 7200.0}
    shared |= {"run": run_id(told), "name": run_id(told), "config": canonical(told), "parameters": 2_500_000}
    shared |= {"dataset": told["dataset"], "hardware": "a processor", "converged": converged, **about}
    return [
        shared | {"test_setting": test, "split": split, "macro_f1": score, "above_random": above}
        for (test, split), score in scores.items()
    ]


def runs_of(rows: list[Any]) -> Runs:
    frame = pd.DataFrame(rows, columns=[*RESULT_COLUMNS, "converged"])
    kinds = {str: "str", int: "Int64", float: "float64", bool: "boolean"}
    frame = frame.astype({name: kinds[kind] for name, kind in RESULT_COLUMNS.items()})
    return Runs(Path("nowhere"), frame.astype({"converged": "boolean"}), [], {})


def flat(score: float) -> Scores:
    return {(test, split): score for test in TEST_SETTINGS for split in SPLITS}


def like_table2(task: str, model: str, setting: str) -> list[Any]:
    """Three runs that average to what the paper printed; those that have not converged are far off, unless none has."""
    cells = {test: paper.published("table2", task, model, setting, test) for test in TEST_SETTINGS}
    converged = cells["image"].seeds or 0
    rows = []
    for seed in range(3):
        moved = [0.0] if converged == 1 else [1.5, -1.5] if converged == 2 else [2.0, -1.0, -1.0]
        scores = {}
        for test, cell in cells.items():
            off = moved[seed] if seed < (converged or 3) else -20.0
            scores[test, "test_ood"] = cell.score + off
            scores[test, "test_ind"] = cell.score - cell.difference + off
        ok = seed < converged
        rows += made(scores, converged=ok, above=ok, model=model, setting=setting, task=task, seed=seed)
    return rows


@pytest.fixture(scope="module")
def as_published() -> Runs:
    return runs_of([row for t in PAPER for m in BIMODAL for s in TEST_SETTINGS for row in like_table2(t, m, s)])


def texts(row: tuple[Cell, ...], skip: int = 3) -> list[str]:
    return [cell.text for cell in row[skip:]]


def own(table: Table) -> list[tuple[Cell, ...]]:
    return [row for row in table.rows if not any(cell.text.startswith("paper") for cell in row)]


def published(table: Table) -> list[tuple[Cell, ...]]:
    return [row for row in table.rows if any(cell.text.startswith("paper") for cell in row)]


# Table 2 -------------------------------------------------------------------------------------------------------------


def test_the_papers_numbers_give_the_papers_table(as_published: Runs) -> None:
    """Cell by cell: layout, means of converged runs alone, differences, and how many converged."""
    table = table2(as_published)
    ours, theirs = own(table), published(table)
    assert len(ours) == len(theirs) == 16 and table.missing == 0
    for one, other in zip(ours, theirs, strict=True):
        assert texts(one, 0)[:2] == texts(other, 0)[:2]
        assert texts(one) == texts(other)
    assert [row[0].text for row in ours] == [letter for letter in "SCQN" for _ in range(4)]
    assert [name for _, name in table.columns[3:7]] == ["Image", "Caption", "Img. + Cap.", "#sd"]
    assert [group for group, _ in table.columns[3::4]] == ["Image", "Caption", "Image + Caption"]
    assert texts(theirs[0])[:4] == ["65.94 (-1.02)", "48.92 (-0.23)", "52.47 (+0.19)", "3"]
    assert {row[2].text for row in ours} == {"ours, random"}
    assert {row[2].text for row in theirs} == {"paper, pretrained"}


def test_best_of_a_task_is_bold_and_above_random_underlined(as_published: Runs) -> None:
    table = table2(as_published)
    for task in range(4):
        block = own(table)[4 * task : 4 * task + 4]
        for column in range(3, 15):
            scores = [float(row[column].text.split()[0]) for row in block]
            bold = [row[column].bold for row in block]
            wanted = column not in (6, 10, 14)
            assert bold == [wanted and score == max(scores) for score in scores]
    lines = {(row[0].text, row[1].text): row for row in own(table)}
    assert not lines["S", "ALBEF"][3].underlined  # none converged: all three averaged, none above random
    assert lines["S", "UNITER"][8].underlined  # one converged: that one alone counts
    assert not any(cell.bold or cell.underlined for row in published(table) for cell in row)


def test_a_missing_run_leaves_blanks_that_are_counted(as_published: Runs) -> None:
    results = as_published.results
    gone = (results["model"] == "lxmert") & (results["task"] == "quantifiers") & (results["setting"] == "caption")
    table = table2(replace(as_published, results=results[~gone]))
    assert table.missing == 4  # three scores and #sd
    (row,) = [row for row in own(table) if (row[0].text, row[1].text) == ("Q", "LXMERT")]
    assert texts(row)[4:8] == [""] * 4 and all(texts(row)[:4]) and all(texts(row)[8:])
    assert "4 cells are blank" in table.markdown()
    assert table.data["macro_f1"].isna().sum() == 3
    one_less = table2(replace(as_published, results=results[~(gone & (results["seed"] == 0))]))
    assert one_less.missing == 0 and any("Fewer than 3 seeds: 1 of 48" in note for note in one_less.notes)


def test_no_runs_at_all() -> None:
    empty = runs_of([])
    for name, function in TABLES.items():
        table = function(empty)
        assert table.missing > 0, name
        rectangular(table)
    assert table2(empty).missing == 16 * 12


def test_other_settings_are_never_averaged() -> None:
    """Where runs differ in more than the seed, the cell says so, and a note in what."""
    about: dict[str, Any] = {"model": "uniter", "setting": "image", "task": "cardinality"}
    rows = [row for seed in range(3) for row in made(flat(80), seed=seed, **about)]
    rows += made(flat(95), seed=0, config={"training": {"steps": 4000}}, **about)
    runs = runs_of(rows)
    table = table2(runs)
    found = {row[1].text: texts(row)[0] for row in own(table) if row[3].text}
    assert found == {"UNITER": "4 runs differ"}
    assert any("training.steps=4000" in note and "--select" in note for note in table.notes)
    chosen = table2(select(runs, training__steps=[4000]))
    assert [texts(row)[0] for row in own(chosen) if row[3].text] == ["95.00 (+0.00)"]
    assert {row[1].text for row in own(chosen)} == set(paper.MODEL_NAMES[name] for name in BIMODAL)
    with pytest.raises(ValueError, match=r"training\.step: no column or setting of runs; did you mean training\.steps"):
        select(runs, training__step=1)


KINDS: dict[str, dict[str, Any]] = {
    "frozen": {"method": "frozen"},
    "controlled": {"controlled": True},
    "trained further": {"start": "0123abcd"},
    "with consistency": {"method": "consistency"},
    "subset": {"training": {"examples": 0.25}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_table2_is_about_plain_runs(kind: str) -> None:
    """Whatever experiment they were made for; what is left out is told."""
    about: dict[str, Any] = {"model": "uniter", "setting": "image", "task": "cardinality", "seed": 0}
    rows = made(flat(80), experiment="transfer", **about) + made(flat(95), config=KINDS[kind], **about)
    table = table2(runs_of(rows))
    assert [texts(row)[0] for row in own(table) if row[3].text] == ["80.00 (+0.00)"]
    assert f"Runs of the folder that this table is not about: 1 {kind}." in table.notes


# The other tables of scores ------------------------------------------------------------------------------------------


def test_the_papers_numbers_give_tables_13_and_14(as_published: Runs) -> None:
    rows = []
    for task in PAPER:
        for model in BIMODAL:
            cells = {
                (test, s): paper.published("table13", task, model, "mixed", test, s)
                for test in TEST_SETTINGS
                for s in SPLITS
            }
            seeds = cells["image", "test_ood"].seeds or 0
            scores = {place: cell.score for place, cell in cells.items()}
            for seed in range(3):
                rows += made(scores, converged=seed < seeds, model=model, setting="mixed", task=task, seed=seed)
                if seeds and seed >= seeds:
                    for row in rows[-6:]:
                        row["macro_f1"] = 0.0
            for test, part in {"image": 0.25, "caption": 0.25, "image+caption": 0.5}.items():
                less = {s: paper.published("table14", task, model, "mixed", test, s).difference for s in SPLITS}
                base = {(test, s): scores[test, s] - less[s] for s in SPLITS}
                config = {"training": {"examples": part}}
                rows += made(base, config=config, model=model, setting=test, task=task, seed=0)
    results = pd.concat([as_published.results, runs_of(rows).results], ignore_index=True)
    runs = replace(as_published, results=results)
    table = TABLES["table13"](runs)
    for one, other in zip(own(table), published(table), strict=True):
        for mine, theirs in zip(one[3:9], other[3:9], strict=True):
            score, difference = (float(number) for number in re.findall(r"[+-]?[\d.]+", mine.text))
            wanted, changed = (float(number) for number in re.findall(r"[+-]?[\d.]+", theirs.text))
            assert score == wanted and difference == pytest.approx(changed, abs=0.021)  # the paper rounds earlier
        assert one[9].text == other[9].text
    table = TABLES["table14"](runs)
    assert [texts(row) for row in own(table)] == [texts(row) for row in published(table)]
    marks = {cell.mark for row in own(table) for cell in row[3:9] if abs(float(cell.text)) < 5}
    assert marks == {""} and own(table)[0][4].mark == "↑" and own(table)[0][5].mark == "↓"
    assert any("training.examples" in note for note in table.notes)
    assert table.missing == 0 and TABLES["table13"](runs).missing == 0


def test_tables_10_to_12() -> None:
    about: dict[str, Any] = {"model": "uniter", "setting": "image", "task": "spatiality"}
    part = {"training": {"examples": 8000}}
    rows = [row for seed in range(3) for row in made(flat(80 + seed), seed=seed, config={"controlled": True}, **about)]
    rows += made(flat(70), seed=0, config=part | {"controlled": True}, **about)
    rows += made(flat(60), seed=0, config={"training": {"examples": 0.25}}, **about)
    rows += made(flat(90), seed=0, **about)
    for row in rows:
        row["train_examples"] = 2000 if '"examples":null' not in row["config"] else 128_000
    found = {(row[0].text, row[1].text): texts(row) for row in own(TABLES["table10"](runs_of(rows))) if row[3].text}
    assert found == {
        ("Volta UNITER", "128,000, streamed"): ["81.00", "1.00", "81.00", "1.00", "3"],
        ("Volta UNITER", "2,000"): ["70.00", "-", "70.00", "-", "1"],
        ("UNITER", "2,000"): ["60.00", "-", "60.00", "-", "1"],
        ("UNITER", "128,000, streamed"): ["90.00", "-", "90.00", "-", "1"],
    }
    table = TABLES["table10"](runs_of(rows))
    assert texts(published(table)[4]) == ["89.67", "14.43", "88.71", "14.58", "3"]
    assert TABLES["table11"](runs_of(rows)).missing == TABLES["table12"](runs_of(rows)).missing == 6 * 5


def test_few_shot_before_and_after() -> None:
    about: dict[str, Any] = {"model": "lxmert", "task": "spatiality", "seed": 0}
    before = made(flat(50), above=False, setting="image", **about)
    few = {"start": before[0]["run"], "training": {"examples": 200}}
    after = made(flat(70), setting="caption", config=few, weights=f"run {before[0]['name']}", **about)
    table = TABLES["few_shot"](runs_of(before + after))
    (row,) = [row for row in own(table) if row[5].text]
    assert texts(row, 0) == ["Image to Caption", "S", "LXMERT", "0", "ours, random", "50.00", "70.00", "70.00", "no"]
    assert [cell.underlined for cell in row[5:8]] == [False, True, True]
    assert len(table.rows) == 10 and table.missing == 9 * 3
    lost = TABLES["few_shot"](runs_of(after))  # the run that it started from is not in the folder
    assert lost.missing == 9 * 3 + 1


def test_subsets_by_part() -> None:
    about: dict[str, Any] = {"model": "roberta", "setting": "caption", "task": "cardinality", "seed": 0}
    rows = []
    for place, part in enumerate((0.125, 0.25, 0.5, 1)):
        config = {"training": {"examples": part}}
        rows += made({("caption", s): 60.0 + place for s in SPLITS}, config=config, **about)
    table = TABLES["subsets"](runs_of(rows))
    (row,) = [row for row in own(table) if (row[0].text, row[1].text) == ("C", "RoBERTa")]
    assert texts(row) == ["-"] * 4 + [f"{60 + place}.00 (+0.00)" for place in range(4)] + ["-"] * 4
    (row,) = [row for row in published(table) if row[1].text == "RoBERTa"]
    assert texts(row)[4] == "86.76"
    rows += made(flat(99), **about)  # a stream, which is no part of the train split
    table = TABLES["subsets"](runs_of(rows))
    assert table.columns[7] == ("Image", "stream")
    (row,) = [row for row in own(table) if (row[0].text, row[1].text) == ("C", "RoBERTa")]
    assert row[12].text == "99.00 (+0.00)"


def test_transfer_by_what_helps_it() -> None:
    about: dict[str, Any] = {"model": "uniter", "task": "cardinality", "seed": 0, "setting": "image"}
    rows = made({("image", "test_ood"): 80.0, ("caption", "test_ood"): 50.0}, **about)
    helps: dict[str, dict[str, Any]] = {
        "consistency": {"method": "consistency"},
    }
    for place, config in enumerate(helps.values()):
        rows += made({("image", "test_ood"): 81.0, ("caption", "test_ood"): 70.0 + place}, config=config, **about)
    table = TABLES["transfer"](runs_of(rows))
    found = {row[2].text: [cell.text for cell in row[4:7]] for row in own(table) if row[4].text}
    assert found == {"none": ["80.00", "50.00", "1"]} | {
        name: ["81.00", f"{70 + place}.00", "1"] for place, name in enumerate(helps)
    }
    assert {row[2].text for row in published(table)} == {"none"}
    assert table.data["consistency"].drop_duplicates().tolist() == [False, True]
    bare = TABLES["transfer"](runs_of(rows[:2]))
    assert list(dict.fromkeys(row[2].text for row in own(bare))) == ["none", "consistency"]


def test_table6_has_the_hours_of_each_setting() -> None:
    rows = [
        row
        for task, setting, seconds in (("cardinality", "image", 3600.0), ("comparison", "image", 7200.0),
                                       ("cardinality", "caption", 18000.0))
        for row in made(flat(80), model="albef", setting=setting, task=task, seed=0, train_seconds=seconds)
    ]  # fmt: skip
    runs = runs_of(rows)
    (row,) = [row for row in own(table6(runs)) if row[4].text not in ("", "-")]
    assert texts(row, 0) == ["C, N", "streamed", "ALBEF", "ours, random", "1.5", "5", ""]
    theirs = {(row[1].text, row[2].text): texts(row, 4) for row in published(table6(runs))}
    assert theirs["32k", "ALBEF"] == ["38", "38", "38"]
    assert theirs["8k", "BERT"] == ["-", "3", "-"]
    for row in rows[:6]:
        row["hardware"] = "another processor"
    split = table6(runs_of(rows))
    assert [texts(row, 4)[0] for row in own(split) if row[2].text == "ALBEF"] == ["", "2 runs differ"]


def test_parameters_by_size() -> None:
    about: dict[str, Any] = {"setting": "caption", "task": "cardinality", "seed": 0, "model": "bert"}
    rows = made(flat(80), **about) + made(flat(80), config={"size": "base"}, **about | {"size": "base"})
    rows[-1:] = [row | {"parameters": 108_310_000} for row in rows[-1:]]
    for row in rows[6:]:
        row["parameters"] = 108_310_000
    rows += made(flat(80), config={"method": "frozen"}, **about | {"parameters": 2})
    table = TABLES["table8"](runs_of(rows))
    found = [texts(row, 1) for row in table.rows if row[0].text == "BERT"]
    assert found == [["small", "ours, random", "2.50", "108.31"], ["base", "ours, random", "108.31", "108.31"]]
    assert table.missing == 8


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
    yield load(folder / "runs")


def scores_from_predictions(runs: Runs) -> dict[tuple[str, str, str], float]:
    """(run's name, test setting, split) -> macro-F1, from the files alone."""
    found = {}
    for name in runs.results["name"].unique():
        frame = pd.read_parquet(runs.folder / name / "predictions.parquet")
        for (test, split), part in frame.groupby(["test_setting", "split"], observed=True):
            found[name, str(test), str(split)] = 100 * f1_score(part["answer"], part["logit"] > 0, average="macro")
    return found


def test_every_number_of_table2_is_that_of_the_predictions(saved: Runs) -> None:
    scores = scores_from_predictions(saved)
    names = saved.results.drop_duplicates("name").set_index(["model", "setting", "seed"])["name"]
    converged = saved.results.drop_duplicates("name").set_index("name")["converged"]
    table = table2(saved)
    checked = 0
    for row in table.data.dropna(subset="macro_f1").to_dict("records"):
        runs = [names[row["model"], row["train_setting"], seed] for seed in range(3)]
        used = [name for name in runs if converged[name]] or runs
        out, within = (np.mean([scores[n, row["test_setting"], split] for n in used]) for split in SPLITS)
        assert row["macro_f1"] == pytest.approx(out) and row["difference"] == pytest.approx(out - within)
        assert row["converged"] == sum(converged[name] for name in runs)
        checked += 1
    assert checked == 2 * 2 * 3 and 0 < converged.sum() < len(converged)


def rectangular(table: Table) -> list[list[str]]:
    """The cells of the Markdown table, which must have as many in each line."""
    lines = [line for line in table.markdown().splitlines() if line.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    assert {len(line) for line in cells} == {len(table.columns)}
    assert len(cells) == len(table.rows) + 2 and set(cells[1]) == {" :-- "}
    return [[text.strip() for text in line] for line in cells]


def test_all_tables_in_all_forms(saved: Runs) -> None:
    for name, function in TABLES.items():
        table = function(saved)
        cells = rectangular(table)
        for line, row in zip(cells[2:], table.rows, strict=True):
            assert [re.sub(r"\*\*|</?ins>|\\", "", text) for text in line] == [
                f"{cell.text} {cell.mark}".strip() for cell in row
            ], name
        read = pd.read_csv(io.StringIO(table.csv()))
        pd.testing.assert_frame_equal(read, table.data, check_dtype=False, check_exact=True)
        assert len(table.data) and all(cell.text == "" for row in table.rows for cell in row if cell.missing)
        assert table.latex().count(r" \\") >= len(table.rows) and r"\begin{tabular}" in table.latex()


def test_latex_and_markdown_escape() -> None:
    cells = (Cell("50 % of a_b & c #1", bold=True, underlined=True), Cell("a|b <c> *d*", mark="↑"))
    table = Table("x", "50 % & more_less", (("", "one|two"), ("a_b", "c%")), (cells,), pd.DataFrame())
    assert r"\textbf{\underline{50 \% of a\_b \& c \#1}} & a|b \textless{}c\textgreater{} {*}d{*} $\uparrow$ \\" in (
        table.latex()
    )
    assert r"\caption{50 \% \& more\_less}" in table.latex()
    assert r"| **<ins>50 % of a_b & c #1</ins>** | a\|b &lt;c> \*d\* ↑ |" in table.markdown()
    assert r"\toprule" in table.latex() and r"\bottomrule" in table.latex()


def test_label_counts_are_the_manifests(saved: Runs) -> None:
    table = TABLES["table3"](saved)
    (row,) = [row for row in table.rows if row[0].text == "cardinality" and row[1].text.startswith("ours")]
    dataset = next(iter(saved.datasets.values()))
    for cell, split in zip(row[2:], ("train", "validation", "test_ind", "test_ood"), strict=True):
        answers = dataset[split].columns("answer")["answer"].to_numpy()
        assert cell.text == f"{answers.sum()} / {(~answers).sum()}"
    assert table.missing == 12


# Everything in one table ---------------------------------------------------------------------------------------------


def test_the_overview_has_every_score_once(saved: Runs) -> None:
    """Model x task x test setting x split, from predictions, with what text alone reaches in the lines below."""
    scores = scores_from_predictions(saved)
    about = saved.results.drop_duplicates("name").set_index(["model", "setting"]).sort_index()
    table = overview(saved)
    places = [(test, split) for test in TEST_SETTINGS for split in ("test_ind", "test_ood")]
    assert [column[0] for column in table.columns[2:]] == ["cardinality"] * 6
    checked = 0
    for row in own(table)[:-2]:
        model = next(model for model, name in paper.MODEL_NAMES.items() if name == row[0].text)
        runs = about.loc[[(model, row[1].text.lower())]]
        used = runs[runs["converged"]] if runs["converged"].any() else runs
        for cell, place in zip(row[2:], places, strict=True):
            known = [scores[name, *place] for name in used["name"] if (name, *place) in scores]
            assert cell.text == (f"{np.mean(known):.1f}" if known else "") and not cell.missing
            checked += bool(known)
    assert checked == 2 * 2 * 6 + 2
    for row, column in zip(table.rows[-2:], ("floor_query", "floor_query_objects"), strict=True):
        for cell, (_, split) in zip(row[2:], places, strict=True):
            levels = saved.results.loc[saved.results["split"] == split, column].unique()
            assert [cell.text] == [f"{level:.1f}" for level in levels]
    bold = {(row[0].text, place) for row in table.rows for place, cell in enumerate(row) if cell.bold}
    assert bold and all(row[place].underlined for row in table.rows for name, place in bold if row[0].text == name
                        and row[place].bold)  # fmt: skip
    rectangular(table)


def test_couples_stand_as_in_the_results(saved: Runs) -> None:
    table = couples(saved)
    one = saved.results.groupby(["model", "setting"])["name"].nunique()
    assert [row[:2] for row in table.rows] == [row[:2] for row in overview(saved).rows[:-2]]
    checked = 0
    for row in table.rows:
        model = next(model for model, name in paper.MODEL_NAMES.items() if name == row[0].text)
        for cell, (_, test, split) in zip(row[2:], table.columns[2:], strict=True):
            where = (saved.results["model"] == model) & (saved.results["setting"] == row[1].text.lower())
            where &= saved.results["test_setting"].map(SHORT_SETTINGS) == test
            where &= saved.results["split"] == {"InD": "test_ind", "OOD": "test_ood"}[split]
            found = saved.results[where]
            if one[model, row[1].text.lower()] == 1 and len(found):
                assert cell.text == f"{found['couples_right'].iloc[0]:.1f}" and "–" in cell.small
                checked += 1
    assert checked


def test_the_overview_keeps_other_settings_and_other_data_apart() -> None:
    about: dict[str, Any] = {"model": "uniter", "setting": "image", "seed": 0}
    rows = [row for task in PAPER for row in made(flat(80), task=task, **about)]
    rows += made(flat(95), task="cardinality", config={"method": "consistency"}, **about)
    rows += made(flat(85), task="cardinality", config={"dataset": "another"}, **about)
    rows += made(flat(99), task="cardinality", config={"method": "frozen"}, **about)
    rows += made(flat(90), task="quantifiers", config={"training": {"steps": 4000}}, **about)
    table = overview(runs_of(rows))
    found = {row[0].text: {column[0]: cell.text for column, cell in zip(table.columns, row, strict=True) if cell.text}
             for row in table.rows}  # fmt: skip
    differ = "2 runs differ"
    assert {label: [text for name, text in cells.items() if name] for label, cells in found.items()} == {
        "UNITER": ["80.0", differ, differ, "80.0"],
        "UNITER + consistency": ["95.0"],
    }
    assert any("dataset=2" in note for note in table.notes)
    assert any("training.steps=4000" in note for note in table.notes)
    assert any("1 frozen" in note for note in table.notes)


# Two runs ------------------------------------------------------------------------------------------------------------


def test_compare_is_scikit_learns_difference_of_the_predictions(saved: Runs) -> None:
    scores = scores_from_predictions(saved)
    names = saved.results.drop_duplicates("name").set_index(["model", "setting", "seed"])["name"]
    one, other = names["uniter", "image", 1], names["lxmert", "caption", 1]
    data = compare_runs(saved, one, other).data.set_index(["test_setting", "split"])
    assert len(data) == 6
    for place, row in data.iterrows():
        assert row["first"] == pytest.approx(scores[one, *place])
        assert row["second"] == pytest.approx(scores[other, *place])
        assert row["interval_low"] <= row["difference"] <= row["interval_high"]
        assert row["p_value"] <= row["p_adjusted"] <= 1
    table = compare_runs(saved, one, other)
    for cells, row in zip(table.rows, table.data.to_dict("records"), strict=True):
        wanted = ("A" if row["difference"] > 0 else "B") if row["differs"] else "no difference shown"
        assert cells[-1].text == wanted
    assert data.loc[("image", "test_ind"), "differs"]  # learned against not learned
    same = compare_runs(saved, one, one)
    assert {cells[-1].text for cells in same.rows} == {"no difference shown"}
    rectangular(table)


def test_compare_refuses(saved: Runs) -> None:
    name = saved.results["name"].iloc[0]
    with pytest.raises(ValueError, match="nobody: no finished run has this name; choose from"):
        compare_runs(saved, name, "nobody")
    results = saved.results.assign(dataset=saved.results["dataset"].where(saved.results["name"] == name, "other"))
    with pytest.raises(ValueError, match="tested on different datasets"):
        compare_runs(replace(saved, results=results), name, str(results["name"].iloc[-1]))
