"""A report of made-up runs, an evaluation and a corpus: its files, what it leaves out, and its page in a browser."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from selenium.webdriver.common.by import By

from analysis import figures
from analysis.figures import list_figures
from analysis.frames import read_runs
from analysis.report import main
from analysis.sections.verdict import judge
from analysis.tables import SPLITS, TABLES
from analysis.tables.render import to_markdown
from tests.corpus_files import convert, draw
from tests.grid import make_run
from tests.helpers import generated, page_data
from tests.test_browse import Open, chrome, open_page, until  # noqa: F401
from tests.test_tables import made, runs_of
from train.results.answers import AnswerFile, AnswerRecord
from train.results.predictions import PREDICTIONS
from train.results.store import read_config, start_run, write_results
from travlr import Cardinality, Spatiality
from travlr.config import Count, Image
from travlr.dataset import open_dataset
from travlr.tasks import TASKS

COUNT = Count(train=60, validation=20, test_ind=56, test_ood=64)
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><b>&amp;"


def make_hostile(folder: Path) -> None:
    """Give captions and queries of a dataset's test splits text that would do harm as markup."""
    for path in folder.glob("test_*.parquet"):
        table = pq.read_table(path)
        for column in ("caption", "query"):
            place = table.schema.get_field_index(column)
            texts = pa.array([f"{text} {HOSTILE}" for text in table[column].to_pylist()])
            table = table.set_column(place, table.schema.field(column), texts)
        pq.write_table(table, path, write_page_checksum=True)


def make_evaluation(runs: Path, data: Path, **about: Any) -> Path:
    """An evaluation of a model that always says true, with a score for each example; about: columns of its results."""
    dataset = open_dataset(data)
    shared = {"model": "chat", "dataset": dataset.manifest["content_digest"], "seed": 0, "form": "true_false"}
    shared |= {"prompt": "direct", "answers": "generate", "image_style": "plain", "caption_style": "sentences", **about}
    folder, rows = start_run(runs, shared, str(data)), []
    for setting, accuracy in (("image", 50.0), ("caption", 90.0)):
        with AnswerFile(folder) as file:
            for place, example in enumerate(dataset["test_ind"]):
                right = str(example.answer).lower()
                words = (example.id, "test_ind", setting, str(place), "True.", right, "true", right == "true")
                file.append(AnswerRecord(*words))
        row = {"test_setting": setting, "split": "test_ind", "accuracy": accuracy, "macro_f1": accuracy, "chance": 50.0}
        row |= {"examples": len(dataset["test_ind"]), "unparsed": 0.0, "bias": 50.0, "bias_answer": "true"}
        row |= {"above_random": accuracy > 60, "ranked": accuracy, "ranked_low": accuracy - 5}
        rows.append(shared | row | {"ranked_high": accuracy + 5})
    write_results(folder, rows)
    return folder


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five runs on two datasets, one of them hostile; an evaluation of a task, and one of a corpus."""
    place = tmp_path_factory.mktemp("grid")
    cardinality = generated(place / "cardinality", Cardinality(count=COUNT, image=Image(cell=8)))
    spatiality = generated(place / "spatiality", Spatiality(count=COUNT, image=Image(cell=8)))
    make_hostile(cardinality)
    runs = place / "runs"
    for model, setting, data, seed in (
        ("uniter", "caption", cardinality, 0),
        ("uniter", "caption", cardinality, 1),
        ("lxmert", "image", cardinality, 0),
        ("bert", "caption", cardinality, 0),
        ("uniter", "image+caption", spatiality, 0),
    ):
        make_run(
            runs, data, lambda test, split: 0.9 if test == "caption" else 0.5,
            model=model, setting=setting, seed=seed, experiment="<b>x</b>",
        )  # fmt: skip
    make_evaluation(runs, cardinality, task="cardinality")
    records = [{"image": f"{n}.png", "true": [f"a cat {n}"], "false": [f"a dog {n}"]} for n in range(4)]
    (place / "animals.json").write_text(json.dumps(records))
    draw(place / "images", *(f"{n}.png" for n in range(4)))
    convert(place / "animals.json", place / "animals")
    make_evaluation(runs, place / "animals", task="match", corpus="Animals")
    return runs


@pytest.fixture(scope="module", autouse=True)
def few_figures() -> Iterator[None]:
    """Drawing all kinds takes a while, and is in test_figures."""
    with pytest.MonkeyPatch.context() as patch:
        drawn = {name: figures.FIGURES[name] for name in ("cells", "subsets", "transfer")}
        patch.setattr(figures, "FIGURES", drawn)
        yield


@pytest.fixture(scope="module")
def report(grid: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reports") / "a report"
    assert main([str(grid), "--out", str(out)]) == 0
    return out


# Files ---------------------------------------------------------------------------------------------------------------


def test_report_writes_tables_figures_and_a_page(report: Path, grid: Path) -> None:
    names = {str(path.relative_to(report)) for path in report.rglob("*") if path.is_file()}
    tables = {Path(name).stem for name in names if name.startswith("tables/")}
    assert {"overview", "couples", "table2", "table6", "table8", "transfer", "text_only"} <= tables
    assert not tables & {"table13", "table14", "few_shot", "frozen"}  # no run of ours is in them
    assert {"accuracy-of-evaluated-models", "animals-scores"} <= tables
    drawn = {Path(name).stem for name in names if name.startswith("figures/")}
    folders = [folder.name for folder in grid.iterdir() if folder.is_dir()]
    first = next(name for name in folders if name.startswith("uniter-caption-cardinality-s0"))
    assert {f"cells-{first}", "transfer-cardinality"} <= drawn
    assert not any("-s1-" in name for name in drawn)  # another seed of the same
    runs, page = read_runs(grid), (report / "report.html").read_text()
    assert (report / "tables/table2.md").read_text() == to_markdown(TABLES["table2"](runs))
    assert all(f'src="figures/{name}.svg"' in page for name in drawn) and all(name in page for name in folders)
    assert "Table 13" in page and "<b>x</b>" not in page and HOSTILE not in page
    assert all(html.escape(line).replace("&#x27;", "&#39;") in page for line in judge(runs))


def test_report_of_tasks_about_two_objects(tmp_path: Path) -> None:
    """A run and an evaluation of each; all that is left out is figures that need more runs."""
    names = ("existence", "binding")
    for name in names:
        count = Count(train=40, validation=8, test_ind=24, test_ood=24)
        data = generated(tmp_path / name, TASKS[name].Config(count=count, image=Image(cell=96)))
        make_run(tmp_path / "runs", data, lambda test, _: 0.9 if test == "caption" else 0.5)
        make_evaluation(tmp_path / "runs", data, task=name, image_style="equal_area")
    assert main([str(tmp_path / "runs")]) == 0
    runs = read_runs(tmp_path / "runs")
    assert runs.skipped == [] and sorted(line.partition(":")[0] for line in judge(runs)) == sorted([*names, *names])
    drawn = {path.stem for path in (tmp_path / "runs/report/figures").iterdir()}
    assert all(f"transfer-{name}" in drawn and any(f"-{name}-s0" in one for one in drawn) for name in names)
    page = (tmp_path / "runs/report/report.html").read_text()
    cards = page_data(page, "errors-data")["cards"]
    assert {card["columns"]["task"] for card in cards} == {*names} and "equal_area" not in str(cards)


def test_report_of_one_run_draws_what_a_selection_names(grid: Path, tmp_path: Path) -> None:
    assert main([str(grid), "--out", str(tmp_path), "--select", "model=uniter", "seed=1", "task=cardinality"]) == 0
    drawn = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert drawn and all("-s1-" in name or name == "transfer-cardinality" for name in drawn)


# What is left out ----------------------------------------------------------------------------------------------------


def test_report_lists_what_cannot_be_read(grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, spatiality = tmp_path / "runs", grid.parent / "spatiality"
    good, damaged, unfinished = (make_run(runs, spatiality, lambda *_: 0.9, seed=seed) for seed in range(3))
    (damaged / PREDICTIONS).write_bytes(b"PAR1" + b"\0" * 100)
    (unfinished / "results.json").unlink()
    assert main([str(runs), "--out", str(tmp_path / "out")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("left out: ")]
    for part in (f"{unfinished}: unfinished;", f"{damaged / PREDICTIONS}: damaged", "figure subsets-spatiality: "):
        (line,) = [line for line in lines if part in line]
        assert line.removeprefix("left out: ") in html.unescape((tmp_path / "out" / "report.html").read_text())
    names = {path.stem for path in (tmp_path / "out" / "figures").iterdir()}
    assert f"cells-{good.name}" in names and not any(damaged.name in name for name in names)


def test_report_replaces_an_earlier_one(tmp_path: Path) -> None:
    data = generated(tmp_path / "before", Spatiality(count=COUNT, image=Image(cell=8)))
    run = make_run(tmp_path / "runs", data, lambda *_: 0.9)
    data.rename(tmp_path / "after")
    page, figure = (tmp_path / "runs" / "report" / name for name in ("report.html", f"figures/cells-{run.name}.svg"))
    assert main([str(tmp_path / "runs")]) == 0 and not figure.exists()
    page.write_text("edited")
    assert main([str(tmp_path / "runs"), "--data", str(tmp_path / "after")]) == 0
    assert figure.exists() and page.read_text() != "edited"
    assert read_runs(tmp_path / "runs", data=[tmp_path / "after"]).skipped == []  # the report is no run


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--select", "modle=uniter"], "modle.* model"),
        (["--select", "model=albef"], "model=albef"),
        (["--select", "model"], "name=value"),
        (["--data", "nowhere"], "nowhere"),
    ],
)
def test_report_refuses_wrong_usage(grid: Path, tmp_path: Path, more: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        main([str(grid), "--out", str(tmp_path / "out"), *more])
    assert list(tmp_path.iterdir()) == []


def test_report_refuses_a_folder_without_runs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere"):
        main([str(tmp_path / "nowhere")])
    with pytest.raises(ValueError, match="finished"):
        main([str(tmp_path)])


# The verdict ---------------------------------------------------------------------------------------------------------


def test_verdict_compares_with_the_best_unbound_rule() -> None:
    """Trained on captions a model is above the rule, trained on pictures it is not, and neither carries over."""
    rows = []
    for setting, scores in {"caption": (50.0, 90.0), "image": (60.0, 51.0)}.items():
        for test, score in zip(("image", "caption"), scores, strict=True):
            about: dict[str, Any] = {
                "accuracy": score,
                "examples": 500,
                "baseline_unbound_accuracy": 70.0,
                "above": score > 55,
            }
            where = {(test, split): score for split in SPLITS}
            rows += made(where, model="uniter", setting=setting, task="cardinality", seed=0, **about)
    (line,) = judge(runs_of(rows))
    assert line.startswith("cardinality: ") and "over captions: " in line and "70.0 %" in line
    assert "90.0 %" in line and "60.0 %" in line and "Nothing" in line


def test_verdict_names_modalities_and_ranked_items(grid: Path) -> None:
    lines = judge(read_runs(grid))
    (line,) = (line for line in lines if line.startswith("cardinality: chat"))
    assert "over captions" in line and "50.0 % from pictures" in line and "90.0 % from captions" in line
    assert any(line.startswith("Animals: chat") and "90.0 %" in line for line in lines)


def test_list_figures_chooses_one_run_of_each_setting() -> None:
    rows = []
    for seed, converged, setting, steps in (
        (0, False, "image", 2000), (2, True, "image", 2000), (1, True, "image", 2000), (1, False, "caption", 2000),
        (0, False, "caption", 1000), (0, False, "caption", 4000),
    ):  # fmt: skip
        about: dict[str, Any] = {"model": "uniter", "setting": setting, "task": "cardinality"}
        about |= {"seed": seed, "steps": steps}
        config = {"training": {"steps": steps}}
        rows += made({(setting, s): 80.0 for s in SPLITS}, converged=converged, config=config, **about)
    runs = runs_of(rows)
    runs.datasets["cardinality-digest"] = None  # type: ignore[assignment]
    names = [where["name"] for kind, _, where in list_figures(runs) if kind == "cells"]
    info = runs.results.drop_duplicates("name").set_index("name")
    assert {(info.loc[name, "setting"], info.loc[name, "seed"], info.loc[name, "steps"]) for name in names} == {
        ("image", 1, 2000), ("caption", 0, 4000)
    }  # fmt: skip


# The errors of the page ----------------------------------------------------------------------------------------------


def wrong_answers(grid: Path) -> pd.DataFrame:
    """Every wrong answer of training runs, from the files alone."""
    parts = []
    for folder in (path for path in grid.iterdir() if (path / PREDICTIONS).exists()):
        config = read_config(folder)["config"]
        rows = pq.read_table(folder / PREDICTIONS).to_pandas()
        parts.append(
            rows.assign(run=folder.name, model=config["model"], setting=config["setting"], task=config["task"])
        )
    answers = pd.concat(parts, ignore_index=True)
    return answers[answers["prediction"] != answers["answer"]]


def test_report_links_scores_to_errors(report: Path, grid: Path, open_page: Open) -> None:  # noqa: F811
    """Counted by pandas; hostile text stays text, and the page is no wider than the screen."""
    wrong = wrong_answers(grid)
    filters = {"task": "cardinality", "model": "uniter", "setting": "caption", "test_setting": "image"}
    for name, value in filters.items():
        wrong = wrong[wrong[name] == value]
    driver = open_page(report / "report.html")
    link = driver.find_element(
        By.CSS_SELECTOR, "#overview a[href*='setting=caption&test_setting=image&split=test_ood']"
    )
    driver.execute_script("arguments[0].click()", link)
    until(driver, lambda: driver.find_elements(By.CSS_SELECTOR, ".card"))
    shown = {card.get_attribute("data-id") for card in driver.find_elements(By.CSS_SELECTOR, ".card")}
    assert shown and shown <= set(wrong.loc[wrong["split"] == "test_ood", "id"])
    assert "owned" not in driver.title and HOSTILE in driver.find_element(By.CSS_SELECTOR, ".card .query").text
    assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth + 1")
