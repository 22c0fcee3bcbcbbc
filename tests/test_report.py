"""A report of made-up runs: its files, what it leaves out, and its page in a browser, counted again by pandas."""

import html
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from selenium.webdriver.common.by import By

from analysis import document, figures, load
from analysis import report as reports
from analysis.averages import RunSummary
from analysis.document import ReportContent
from analysis.drawing import representative_runs
from analysis.layout import Cell, Table
from analysis.old_errors import errors_per_run
from analysis.paper import SPLITS
from analysis.tables import TABLES, overview
from tests.grid import make_run
from tests.helpers import generated, page_data
from tests.test_browse import Open, chrome, open_page, until  # noqa: F401
from tests.test_tables import made, runs_of
from train.results.predictions import PREDICTIONS
from train.results.store import read_config
from travlr import Cardinality, Spatiality
from travlr.config import Count, Image
from travlr.dataset import open_dataset

COUNT = Count(train=60, validation=20, test_ind=56, test_ood=64)
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><b>&amp;"
LIMIT = 12  # errors of each run


def hostile(folder: Path) -> None:
    """Give captions and queries of a dataset's test splits text that would do harm as markup."""
    for path in folder.glob("test_*.parquet"):
        table = pq.read_table(path)
        for column in ("caption", "query"):
            place = table.schema.get_field_index(column)
            texts = pa.array([f"{text} {HOSTILE}" for text in table[column].to_pylist()])
            table = table.set_column(place, table.schema.field(column), texts)
        pq.write_table(table, path, write_page_checksum=True)


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five runs on two datasets, one of them hostile; beside them what a report has to leave out."""
    place = tmp_path_factory.mktemp("grid")
    cardinality = generated(place / "cardinality", Cardinality(count=COUNT, image=Image(cell=8)))
    spatiality = generated(place / "spatiality", Spatiality(count=COUNT, image=Image(cell=8)))
    hostile(cardinality)
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
    return runs


DRAWN = ("cells", "numbers", "objects", "agreement", "subsets", "loss", "transfer")  # all kinds are in test_figures


@pytest.fixture(scope="module")
def report(grid: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reports") / "a report"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "FIGURES", {name: figures.FIGURES[name] for name in DRAWN})
        assert reports.main([str(grid), "--out", str(out), *options()]) == 0
    return out


@pytest.fixture
def few_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports with two kinds of figures, one of which has nothing to draw: drawing all takes a while."""
    monkeypatch.setattr(figures, "FIGURES", {name: figures.FIGURES[name] for name in ("cells", "subsets")})


def options(*more: str) -> list[str]:
    return ["--errors", str(LIMIT), "--workers", "1", *more]


def embedded(page: Path) -> Any:
    return page_data(page.read_text())


# Files ---------------------------------------------------------------------------------------------------------------


def test_report_writes_tables_figures_and_a_page(report: Path, grid: Path) -> None:
    found = {str(path.relative_to(report)) for path in report.rglob("*") if path.is_file()}
    tables = {Path(name).stem for name in found if name.startswith("tables/")}
    assert {"table2", "table3", "table6", "table8", "transfer", "text_only"} <= tables
    assert not tables & {"table13", "table14", "few_shot", "frozen", "table10"}  # no run of ours is in them
    drawn = {Path(name).stem for name in found if name.startswith("figures/")}
    names = [folder.name for folder in grid.iterdir() if folder.is_dir()]
    first = next(name for name in names if name.startswith("uniter-caption-cardinality-s0"))
    assert {f"cells-{first}", f"numbers-{first}", "transfer-cardinality", "loss-spatiality"} <= drawn
    assert not any("-s1-" in name for name in drawn)  # another seed of the same
    wanted = {f"tables/{t}.{s}" for t in tables for s in ("md", "tex", "csv")}
    wanted |= {f"figures/{f}.{s}" for f in drawn for s in ("svg", "png")}
    assert found == wanted | {"report.html", "report.json"}
    runs, page = load(grid), (report / "report.html").read_text()
    assert (report / "tables/table2.md").read_text() == TABLES["table2"](runs).markdown()
    assert (report / "tables/overview.md").read_text() == overview(runs).markdown()
    assert all(f'<figure id="{name}"' in page for name in drawn) and all(name in page for name in names)
    assert "Table 13" in page


@pytest.mark.usefixtures("few_figures")
def test_report_writes_over_an_earlier_one_which_is_no_run(grid: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "runs", grid.parent / "spatiality", lambda *_: 0.9, model="uniter")
    for _ in range(2):
        assert reports.main([str(tmp_path / "runs"), *options()]) == 0
        assert load(tmp_path / "runs").skipped == []
        (tmp_path / "runs" / "report" / "report.html").write_text("edited")


# What is left out ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("few_figures")
def test_what_cannot_be_read_is_a_line_each(grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    moved = generated(tmp_path / "moved", Cardinality(seed=1, count=COUNT, image=Image(cell=8)))
    good, no_data, damaged, unfinished, newer = (
        make_run(runs, data, lambda *_: 0.9, model=model, seed=seed)
        for model, data, seed in (
            ("uniter", grid.parent / "spatiality", 0),
            ("uniter", moved, 1),
            ("lxmert", grid.parent / "spatiality", 2),
            ("lxmert", grid.parent / "spatiality", 3),
            ("lxmert", grid.parent / "spatiality", 4),
        )
    )
    moved.rename(tmp_path / "elsewhere")
    (damaged / PREDICTIONS).write_bytes(b"PAR1" + b"\0" * 100)
    (unfinished / "results.json").unlink()
    (newer / "settings.yaml").write_text("version: 99")
    out = tmp_path / "out"
    assert reports.main([str(runs), "--out", str(out), *options()]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("left out: ")]
    for wanted in (f"{unfinished}: unfinished;", f"{newer / 'settings.yaml'}: damaged",
                   f"{damaged / PREDICTIONS}: damaged",
                   "predictions of 1 run, dataset ", "figure subsets-spatiality: no runs that differ"):  # fmt: skip
        (line,) = [line for line in lines if wanted in line]
        assert html.escape(line.removeprefix("left out: ")) in (out / "report.html").read_text()
    names = {path.stem for path in (out / "figures").iterdir()}
    assert f"cells-{good.name}" in names and not any(no_data.name in name or damaged.name in name for name in names)
    arguments = [str(runs), "--out", str(out), "--data", str(tmp_path / "elsewhere"), *options()]
    assert reports.main(arguments) == 0
    assert (out / "figures" / f"cells-{no_data.name}.svg").exists()


@pytest.mark.usefixtures("few_figures")
def test_selecting(grid: Path, tmp_path: Path) -> None:
    arguments = [
        str(grid),
        "--out",
        str(tmp_path / "out"),
        *options("--select", "model=uniter", "seed=0,1", "task=cardinality"),
    ]
    assert reports.main(arguments) == 0
    told = embedded(tmp_path / "out" / "report.html")
    assert [(run["model"], run["seed"], run["task"]) for run in told["runs"]] == [
        ("uniter", "0", "cardinality"),
        ("uniter", "1", "cardinality"),
    ]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--select", "modle=uniter"], "did you mean model"),
        (["--select", "model=albef"], "no finished run"),
        (["--select", "model"], "name=value"),
        (["--data", "nowhere"], "no such folder"),
    ],
)
def test_wrong_usage(grid: Path, tmp_path: Path, more: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reports.main([str(grid), "--out", str(tmp_path / "out"), *more])
    assert list(tmp_path.iterdir()) == []


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no such folder of runs"):
        reports.main([str(tmp_path / "nowhere")])
    with pytest.raises(ValueError, match="no finished run"):
        reports.main([str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


# Pieces --------------------------------------------------------------------------------------------------------------


def test_which_runs_are_drawn() -> None:
    def one(name: str, converged: bool, seed: int, setting: str = "image", **settings: Any) -> RunSummary:
        about = {"name": name, "converged": converged, "seed": seed, "task": "t", "model": "m", "setting": setting}
        about |= {"dataset": "d", "steps": 1}
        return RunSummary(
            about | {key: settings.pop(key) for key in about if key in settings}, {"any": 1} | settings, {}
        )

    runs = [one("a", False, 0), one("b", True, 2), one("c", True, 1), one("d", True, 0, controlled=True),
            one("e", False, 1, "caption"), one("f", False, 0, "caption"), one("g", False, 0, "caption", steps=2),
            one("h", False, 3, dataset="e")]  # fmt: skip
    assert [run.info["name"] for run in representative_runs(runs)] == ["c", "g", "h"]


def test_a_table_as_html_escapes_and_marks() -> None:
    cells = (Cell("<b>"), Cell("1", 1.0, bold=True, underlined=True, mark="↑"), Cell(missing=True))
    table = Table("t", "A & B", (("", "x"), ("g<", "y"), ("g<", "z")), (cells,), pd.DataFrame())
    text = table.html()
    assert "<caption>A &amp; B</caption>" in text and '<th scope="colgroup" colspan="2">g&lt;</th>' in text
    assert '<td>&lt;b&gt;</td><td><b><u>1 ↑</u></b></td><td class="missing"></td>' in text


def test_how_many_errors_of_each_run() -> None:
    assert [errors_per_run(runs) for runs in (1, 10, 20, 192, 1000)] == [480, 480, 240, 25, 24]


def test_what_was_found_is_said_first_and_marked() -> None:
    """Of three runs one is above the best unbound rule, one below it, and of one it is not known."""
    levels = {"uniter": 60.0, "lxmert": 95.0, "visualbert": float("nan")}
    scores = {("image", split): 90.0 for split in SPLITS}
    about: dict[str, Any] = {"setting": "image", "task": "cardinality", "seed": 0}
    rows = [row for model in levels for row in made(scores, model=model, **about)]
    runs = runs_of(rows)
    levels_of_rows = runs.results["model"].map(levels).astype(float)
    runs.results = runs.results.assign(
        floor_unbound=levels_of_rows, floor_unbound_accuracy=levels_of_rows, accuracy=90.0, examples=500,
        interval_low=87.4, interval_high=92.6, own=True,
    )  # fmt: skip
    table = overview(runs)
    content = ReportContent(runs, overview=table)
    text = document.html_page(content)
    assert "1 of 2 runs above" in text and text.index("1 of 2 runs above") < text.index("<h2>Scores")
    assert {row[0].text for row in table.rows if any(cell.mark == "+" for cell in row)} == {"UNITER"}
    assert all(text.count("87–93") == 6 for text in (table.markdown(), table.html(), table.latex()))


# The errors of the page ----------------------------------------------------------------------------------------------


def wrong_answers(grid: Path) -> tuple[pd.DataFrame, int]:
    """Every wrong answer from the files alone, and how many answers there are."""
    every = []
    for folder in (path for path in grid.iterdir() if path.is_dir()):
        told = read_config(folder)
        rows = pq.read_table(folder / PREDICTIONS).to_pandas()
        data = pd.concat(
            [pq.read_table(p, columns=["id", "pair"]).to_pandas() for p in Path(told["data"]).glob("*.parquet")]
        )
        rows = rows.merge(data, on="id").assign(run=folder.name, model=told["config"]["model"])
        every.append(rows.assign(setting=told["config"]["setting"], task=told["config"]["task"]))
    found = pd.concat(every, ignore_index=True)
    found["pair"] = found["pair"].map(" ".join)
    found = found.rename(columns={"test_setting": "test"})
    return found[found["prediction"] != found["answer"]], len(found)


CHOOSE = """
const [name, value, done] = arguments, control = document.getElementsByName(name)[0];
addEventListener("hashchange", () => setTimeout(done), { once: true });
control.value = value;
control.dispatchEvent(new Event("change", { bubbles: true }));
"""


def test_each_run_shows_its_errors_of_each_setting_and_split(report: Path, grid: Path) -> None:
    wrong, _ = wrong_answers(grid)
    examples = [e for found in embedded(report / "report.html")["sets"].values() for e in found["examples"]]
    shown = {example["id"] for example in examples}
    for (run, test, split), rows in wrong.groupby(["run", "test", "split"]):
        parts = 2 if run.startswith("bert") else 6
        assert rows["id"].isin(shown).sum() >= min(len(rows), LIMIT // parts), (run, test, split)
    text = (report / "report.html").read_text()
    assert all(text.count(f'"{example["id"]}"') == 1 for example in examples)
    assert len(shown) == len(examples) == text.count('"picture":')


def test_page_shows_the_errors_that_filters_choose(report: Path, grid: Path, open_page: Open) -> None:  # noqa: F811
    """Counted by pandas; hostile text stays text, and rings are around the queried objects."""
    wrong, _ = wrong_answers(grid)
    driver = open_page(report / "report.html")
    filters = {"task": "cardinality", "model": "uniter", "test": "image", "split": "test_ood"}
    for name, value in filters.items():
        driver.execute_async_script(CHOOSE, name, value)
        wrong = wrong[wrong[name] == value]
    assert f" of {len(wrong):,} wrong answer" in driver.find_element(By.ID, "status").text
    card = driver.find_element(By.CSS_SELECTOR, ".card")
    assert HOSTILE in card.find_element(By.CSS_SELECTOR, ".caption").text and "owned" not in driver.title
    rows = wrong[wrong["id"] == card.get_attribute("data-id")]
    assert len(card.find_elements(By.CSS_SELECTOR, ".wrong li")) == len(rows)
    answer = "✓ True" if rows["answer"].iloc[0] else "✗ False"
    assert card.find_element(By.CSS_SELECTOR, ".answer").text == answer
    driver = open_page(report / "report.html", "task=spatiality")
    until(driver, lambda: driver.find_elements(By.CSS_SELECTOR, ".card .ring"))
    card = driver.find_element(By.CSS_SELECTOR, ".card")
    told = next(read_config(folder) for folder in grid.iterdir() if "spatiality" in folder.name)
    examples = {e.id: e for split in SPLITS for e in open_dataset(Path(told["data"]))[split]}
    scene = examples[str(card.get_attribute("data-id"))].scene
    picture, cells = card.find_element(By.TAG_NAME, "img").rect, set()
    for ring in (one.rect for one in card.find_elements(By.CLASS_NAME, "ring")):
        down, right = ring["y"] + ring["height"] / 2 - picture["y"], ring["x"] + ring["width"] / 2 - picture["x"]
        cells.add((int(down * 6 // picture["height"]), int(right * 6 // picture["width"])))
    assert cells == {(one.row, one.column) for one in scene if one.queried} and len(cells) == 2
    assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth + 1")
