"""A report of made-up runs: its files, what it leaves out, and its page in a real browser, counted again by pandas."""

import html
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as pillow
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from analysis import document, figures, load
from analysis import report as reports
from analysis.averages import RunSummary
from analysis.document import FigureFile, FigureSpec, ReportContent
from analysis.document import escape_markdown as as_it_is
from analysis.drawing import representative_runs
from analysis.errors import errors_per_run
from analysis.layout import Cell, Table
from analysis.paper import BIMODAL, SPLITS, TEXT_ONLY
from analysis.tables import TABLES, overview
from tests.grid import make_run
from tests.helpers import ROOT, called, generated, one_line, page_data
from tests.test_browse import Open, chrome, open_page, until  # noqa: F401
from tests.test_tables import like_table2, made, runs_of
from train.results.columns import TEST_SETTINGS
from train.results.predictions import PREDICTIONS
from train.results.store import read_config
from travlr import Cardinality, Spatiality, cli
from travlr.config import Count, Image
from travlr.dataset import open_dataset
from travlr.tasks import PAPER

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


def options(*more: str) -> list[str]:
    return ["--errors", str(LIMIT), "--workers", "1", *more]


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


def embedded(page: Path) -> Any:
    return page_data(page.read_text())


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# Files ---------------------------------------------------------------------------------------------------------------


def test_what_is_written(report: Path, grid: Path) -> None:
    found = files(report)
    tables = {Path(name).stem for name in found if name.startswith("tables/")}
    assert {"table2", "table3", "table6", "table8", "transfer", "text_only"} <= tables
    assert not tables & {"table13", "table14", "few_shot", "frozen", "table10"}  # no run of ours is in them
    drawn = {Path(name).stem for name in found if name.startswith("figures/")}
    names = [folder.name for folder in grid.iterdir() if folder.is_dir()]
    first = next(name for name in names if name.startswith("uniter-caption-cardinality-s0"))
    assert {
        f"cells-{first}",
        f"numbers-{first}",
        f"objects-{first}",
        "transfer-cardinality",
        "loss-spatiality",
    } <= drawn
    assert not any("-s1-" in name for name in drawn)  # another seed of the same
    wanted = {f"tables/{t}.{s}" for t in tables for s in ("md", "tex", "csv")}
    wanted |= {f"figures/{f}.{s}" for f in drawn for s in ("svg", "png")}
    assert set(found) == wanted | {"report.md", "report.html", "report.json"}
    runs = load(grid)
    assert found["tables/table2.md"].decode() == TABLES["table2"](runs).markdown()
    text, page = found["report.md"].decode(), found["report.html"].decode()
    assert found["tables/overview.md"].decode() == overview(runs).markdown() and overview(runs).markdown() in text
    assert all(f"figures/{name}.png" in text for name in drawn)
    assert {one["name"] for one in embedded(report / "report.html")["figures"]} == drawn
    assert "Table 13" in text.partition("No run gives a number of")[2]
    assert all(name in page for name in names)


@pytest.mark.usefixtures("few_figures")
def test_a_report_replaces_a_report_and_nothing_else(report: Path, grid: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "report"
    make_run(tmp_path / "runs", grid.parent / "spatiality", lambda *_: 0.9, model="uniter")
    arguments = [str(tmp_path / "runs"), *options()]
    assert reports.main(arguments) == 0  # in the folder of the runs, where it is taken for no run
    assert reports.main(arguments) == 0 and load(tmp_path / "runs").skipped == []
    before = files(out)
    (out / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"holds notes\.txt, which is not of a report"):
        reports.main(arguments)
    (out / "notes.txt").unlink()
    (out / "report.md").write_text("edited")
    with pytest.raises(ValueError, match=r"holds report\.md, which has been changed since"):
        reports.main(arguments)
    assert files(out) == before | {"report.md": b"edited"}
    with pytest.raises(ValueError, match="which is not of a report"):
        reports.main([*arguments, "--out", str(grid.parent / "spatiality")])
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is in the way"):
        reports.main([*arguments, "--out", str(tmp_path / "file")])


@pytest.mark.usefixtures("few_figures")
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_report_that_breaks_off_leaves_nothing(error: type[BaseException], grid: Path, tmp_path: Path) -> None:
    (tmp_path / ".out.tmp").mkdir()
    (tmp_path / ".out.tmp" / "of a report that was killed").write_text("")

    def stop(*_: object) -> None:
        assert not (tmp_path / ".out.tmp" / "of a report that was killed").exists()
        raise error

    with pytest.MonkeyPatch.context() as patch, pytest.raises(error):
        patch.setattr(reports, "write_files", stop)
        reports.main([str(grid), "--out", str(tmp_path / "out"), *options("--select", "model=bert")])
    assert list(tmp_path.iterdir()) == []


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
    told = read_config(newer) | {"version": 99}
    (newer / "config.json").write_text(json.dumps(told))
    (unfinished / "error.txt").write_text("Traceback\n  File x\nKeyError: the key\n")
    out = tmp_path / "out"
    assert reports.main([str(runs), "--out", str(out), *options()]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("left out: ")]
    for wanted in (f"{unfinished}: unfinished; it failed with KeyError: the key;", "version 99, not",
                   f"{damaged / PREDICTIONS}: damaged",
                   "predictions of 1 run, dataset ", "figure subsets-spatiality: no runs that differ"):  # fmt: skip
        (line,) = [line for line in lines if wanted in line]
        assert html.escape(line.removeprefix("left out: ")) in (out / "report.html").read_text()
        assert as_it_is(line.removeprefix("left out: ")) in (out / "report.md").read_text()
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
        *options("--pdf", "--select", "model=uniter", "seed=0,1", "task=cardinality"),
    ]
    assert reports.main(arguments) == 0
    figures = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    assert {name[:-4] for name in figures if name.endswith(".pdf")} == {name[:-4] for name in figures}
    told = embedded(tmp_path / "out" / "report.html")
    assert {f"{one['name']}.{kind}" for one in told["figures"] for kind in told["formats"]} == figures
    assert [(run["model"], run["seed"], run["task"]) for run in told["runs"]] == [
        ("uniter", "0", "cardinality"),
        ("uniter", "1", "cardinality"),
    ]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--select", "modle=uniter"], r"modle: no column or setting of runs; did you mean model\?$"),
        (["--select", "model=albef"], "no finished run has these values"),
        (["--select", "model"], "write it as name=value"),
        (["--select", "seed=[1"], "cannot be read"),
        (["--errors", "-1"], "not a whole number of 0 or more"),
        (["--watts", "nan"], "'nan' is not a number above 0"),
        (["--watts", "0"], "'0' is not a number above 0"),
        (["--select", "zzz=1"], "zzz: no column or setting of runs; choose from above_random, accuracy"),
        (["--co2", "400"], "--co2 needs --watts"),
        (["--colour"], "unrecognized"),
        (["--data", "nowhere"], "^--data nowhere: there is no such folder$"),
        (["--data", __file__], "^--data .*test_report.py: is a file"),
        (["--data", str(ROOT / "docs")], "^--data .*docs: not a dataset"),
    ],
)
def test_wrong_usage(grid: Path, tmp_path: Path, more: list[str], message: str) -> None:
    with pytest.raises(cli.UsageError, match=message) as error:
        reports.main([str(grid), "--out", str(tmp_path / "out"), *more])
    assert "\n" not in str(error.value) and list(tmp_path.iterdir()) == []


def test_an_out_below_a_file(grid: Path) -> None:
    with pytest.raises(ValueError, match=r"^--out .*test_report.py/x: .*test_report.py is not a folder"):
        reports.main([str(grid), "--out", f"{__file__}/x"])


@pytest.mark.usefixtures("few_figures")
def test_data_that_no_run_names_is_noted(grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = generated(tmp_path / "other", Cardinality(seed=3, count=COUNT, image=Image(cell=8)))
    arguments = ["--out", str(tmp_path / "out"), "--data", str(other), *options("--select", "model=bert")]
    assert reports.main([str(grid), *arguments]) == 0
    assert f"left out: data: {other}: no run was trained or asked on this dataset" in capsys.readouterr().out


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no such folder of runs"):
        reports.main([str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")])
    with pytest.raises(ValueError, match="there is no such folder of runs"):
        reports.main([str(tmp_path / "nowhere")])
    with pytest.raises(ValueError, match="no finished run"):
        reports.main([str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


def test_command(
    grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same runs give the same bytes, whether one process draws or two."""
    arguments = [str(grid), "--watts", "250", "--co2", "400", "--select", "model=bert"]
    one, two = (["--out", str(tmp_path / workers), "--workers", workers] for workers in "12")
    command = [sys.executable, "-m", "analysis.report", *arguments, *one]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and "in a browser" in done.stdout.splitlines()[-1]
    assert "at 250 W, 400 g of CO2" in (tmp_path / "1" / "tables" / "table6.md").read_text()
    assert reports.main([*arguments, *two]) == 0 and capsys.readouterr().out
    assert files(tmp_path / "1") == files(tmp_path / "2")
    for wrong, status in (([str(tmp_path / "nothing")], 1), ([], 2)):
        assert called(monkeypatch, *wrong, name="analysis.report", main=reports.main) == status
        out, err = capsys.readouterr()
        assert out == "" and one_line(err)


@pytest.mark.parametrize(
    ("module", "unloaded"),
    [
        ("analysis", {"pandas", "numpy", "matplotlib", "torch"}),
        ("analysis.report", {"matplotlib", "torch", "transformers"}),
        ("analysis.figures", {"matplotlib.pyplot", "torch"}),
    ],
)
def test_importing_loads_no_more_than_it_needs(module: str, unloaded: set[str]) -> None:
    program = f"import sys, {module}; print({unloaded} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True, cwd=ROOT) == "set()\n"


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
    for text in (document.markdown(content), document.html_page(content)):
        assert "1 of 2 runs above" in text and text.index("1 of 2 runs above") < text.index("Scores")
    assert {row[0].text for row in table.rows if any(cell.mark == "+" for cell in row)} == {"UNITER"}
    assert all(text.count("87–93") == 6 for text in (table.markdown(), table.html(), table.latex()))


# The page, as it is looked at ----------------------------------------------------------------------------------------

SCREEN = (1400, 900)  # pixels, of which a scroll bar takes 15
TALLEST = 16_000  # pixels of the page, whatever it is of; the full grid's had 92,000


@pytest.fixture(scope="module")
def full_grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page on 4 models x 4 tasks x 4 settings x 3 seeds and text-only models, with 204 figures as large as any."""
    rows = [row for t in PAPER for m in BIMODAL for s in TEST_SETTINGS for row in like_table2(t, m, s)]
    for task in PAPER:
        for model, setting in [*((model, "mixed") for model in BIMODAL), *((model, "caption") for model in TEXT_ONLY)]:
            tests = ("caption",) if model in TEXT_ONLY else TEST_SETTINGS
            scores = {(test, split): 98.76 for test in tests for split in SPLITS}
            about: dict[str, Any] = {"task": task, "model": model, "setting": setting}
            rows += [row for seed in range(3) for row in made(scores, seed=seed, **about)]
    runs = runs_of(rows)
    runs.results = runs.results.assign(
        floor_query=50.0, floor_query_objects=61.2, weights="a-checkpoint-of-some-size.pt 0123456789abcdef",
        train_examples=128_000,
    )  # fmt: skip
    data = io.BytesIO()
    pillow.new("RGB", (1831, 1350)).save(data, "PNG")
    size = (1831, 1350)  # of a transfer figure of five models
    names = runs.results["name"].unique()[:204]
    png = data.getvalue()
    drawings = [
        FigureFile(FigureSpec("cells", name, {"name": name}), f"Errors of {name}", "", png, size) for name in names
    ]
    made_up = ReportContent(
        runs, overview=overview(runs), tables=[table(runs) for table in TABLES.values()], figures=drawings
    )
    path = tmp_path_factory.mktemp("full") / "report.html"
    path.write_text(document.html_page(made_up))
    return path


def sizes(driver: webdriver.Chrome) -> tuple[int, int]:
    found = driver.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    )
    return found[0], found[1]


def wide_tables(driver: webdriver.Chrome) -> list[str]:
    """The titles of tables that do not fit the page."""
    driver.execute_script("for (const fold of document.querySelectorAll('details')) fold.open = true")
    return driver.execute_script(
        "return [...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth + 1)"
        ".map((e) => e.textContent.slice(0, 60))"
    )


def test_the_first_screen_has_every_score(full_grid: Path, open_page: Open) -> None:  # noqa: F811
    driver = open_page(full_grid, width=SCREEN[0])
    table = driver.find_element(By.CSS_SELECTOR, "#overview table")
    assert table.rect["y"] + table.rect["height"] <= SCREEN[1]
    lines = [row.text for row in table.find_elements(By.CSS_SELECTOR, "tbody tr")]
    assert len(lines) == 4 * 4 + 2 + 2 and lines[-1].startswith("Baseline query, objects 61.2")
    sections = [one.get_attribute("id") for one in driver.find_elements(By.CSS_SELECTOR, "main > section")]
    assert sections[:4] == ["overview", "errors", "figures", "tables"]


def test_the_full_grid_fits_the_screen(full_grid: Path, open_page: Open) -> None:  # noqa: F811
    driver = open_page(full_grid, width=SCREEN[0])
    width, height = sizes(driver)
    assert width <= SCREEN[0] and height <= TALLEST
    assert 0 < len(driver.find_elements(By.TAG_NAME, "figure")) <= 6  # of 204: the others are drawn when asked for
    assert wide_tables(driver) == []
    assert sizes(driver)[0] <= SCREEN[0]


def test_captions_are_whole(report: Path, grid: Path, open_page: Open) -> None:  # noqa: F811
    """Each is the title of its figure: what it is, of which run, and its scores; titles of several lines, too."""
    runs, shown = load(grid), dict[str, str]()
    driver = open_page(report / "report.html")
    for page in range(1, 100):
        driver = open_page(report / "report.html", f"figures={page}")
        found = driver.execute_script(
            "return [...document.querySelectorAll('figure')].map((e) => [e.id, e.querySelector('.title').textContent])"
        )
        if not set(dict(found)) - set(shown):
            break
        shown |= dict(found)
    drawn = {one["name"]: one for one in embedded(report / "report.html")["figures"]}
    assert set(shown) == set(drawn)
    for name, caption in shown.items():
        words = caption.replace(" · ", " ").split()
        assert drawn[name]["alt"].replace(" · ", " ").split()[: len(words)] == words
        rows = runs.results[[name.endswith(run) for run in runs.results["name"]]]
        if len(rows):
            about = rows.iloc[0]
            assert caption.startswith(tuple("WRANAH")) and f"run {about['run']}" in caption
            assert f"trained in {about['setting']}, tested in" in caption and "macro-F1: " in caption
            scores = rows[rows["split"] == "test_ood"]["macro_f1"]
            assert any(f"test_ood {score:.2f}" in caption for score in scores)
        else:
            assert f"{name.split('-')[1]} ·" in caption


def test_figures_are_filtered_and_drawn_on_demand(report: Path, open_page: Open) -> None:  # noqa: F811
    figures = embedded(report / "report.html")["figures"]
    driver = open_page(report / "report.html")
    assert len(driver.find_elements(By.CSS_SELECTOR, "figure img")) < len(figures)
    for name, value in (("model", "lxmert"), ("task", "cardinality"), ("kind", "cells")):
        driver.execute_async_script(CHOOSE, name, value)
        figures = [one for one in figures if one[name] in (value, None)]
        assert driver.find_element(By.ID, "drawn").text.startswith(f"{len(figures)} of ")
    shown = driver.find_elements(By.TAG_NAME, "figure")
    assert [one.get_attribute("id") for one in shown] == [one["name"] for one in figures] and len(shown) == 1
    assert driver.execute_script("return document.querySelector('figure img').naturalWidth") > 400
    errors = driver.find_elements(By.CSS_SELECTOR, "#filters select[name=model]")
    assert [one.get_attribute("value") for one in errors] == ["lxmert"]  # the errors below are of the same runs


def test_a_score_leads_to_its_errors(report: Path, grid: Path, open_page: Open) -> None:  # noqa: F811
    driver = open_page(report / "report.html", width=SCREEN[0])
    link = driver.find_element(By.CSS_SELECTOR, "#overview a[href*='lxmert'][href*='test=caption'][href*='test_ood']")
    link.click()
    top = "return document.getElementById('errors').getBoundingClientRect().top"
    until(driver, lambda: driver.execute_script(top) < 50)
    wrong, _ = wrong_answers(grid)
    here = wrong[(wrong["model"] == "lxmert") & (wrong["test"] == "caption") & (wrong["split"] == "test_ood")]
    assert f" of {len(here)} wrong answer" in driver.find_element(By.ID, "status").text


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


SHOWN = """
const done = arguments[0], ids = [];
function read() {
  ids.push(...[...document.querySelectorAll(".card")].map((card) => [card.dataset.id, Number(card.dataset.errors)]));
  const later = document.querySelector("#errors .status .pager button:last-child");
  if (document.querySelector("#errors .pager").hidden || later.disabled) return done(ids);
  addEventListener("hashchange", () => setTimeout(read), { once: true });
  later.click();
}
read();
"""
CHOOSE = """
const [name, value, done] = arguments, control = document.getElementsByName(name)[0];
addEventListener("hashchange", () => setTimeout(done), { once: true });
control.value = value;
control.dispatchEvent(new Event("change", { bubbles: true }));
"""
FILTERS: list[dict[str, str]] = [
    {},
    {"task": "cardinality"},
    {"model": "uniter", "task": "cardinality", "test": "image"},
    {"setting": "image", "split": "test_ood", "answer": "true"},
    {"split": "test_ind", "test": "caption"},
    {"pair": "circle 2"},
    {"model": "bert", "test": "image"},
]


@pytest.mark.parametrize("filters", FILTERS, ids=lambda filters: ",".join(filters.values()) or "all")
def test_filters_count_and_show_what_pandas_counts(
    filters: dict[str, str], report: Path, grid: Path, open_page: Open  # noqa: F811
) -> None:  # fmt: skip
    wrong, _ = wrong_answers(grid)
    first = open_page(report / "report.html").execute_async_script(SHOWN)
    driver = open_page(report / "report.html")
    for name, value in filters.items():
        driver.execute_async_script(CHOOSE, name, value)
    for name, value in filters.items():
        wrong = wrong[wrong[name].astype(str).str.lower() == value]
    shown = dict(driver.execute_async_script(SHOWN))
    here = wrong[wrong["id"].isin([example for example, _ in first])]  # of an example that is shown every error is
    assert shown == here.groupby("id").size().to_dict()
    status = driver.find_element(By.ID, "status").text
    assert status.startswith(f"{len(here)} of {len(wrong):,} wrong answer")


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


def test_cards_say_who_erred_and_hostile_text_stays_text(report: Path, grid: Path, open_page: Open) -> None:  # noqa: F811
    driver = open_page(report / "report.html", "task=cardinality")
    until(driver, lambda: driver.find_elements(By.CSS_SELECTOR, ".card"))
    card = driver.find_element(By.CSS_SELECTOR, ".card")
    assert HOSTILE in card.find_element(By.CSS_SELECTOR, ".caption").text
    assert HOSTILE in card.find_element(By.CSS_SELECTOR, ".query").text
    assert "owned" not in driver.title
    assert driver.execute_script("return document.querySelectorAll('img[src=x], .card b').length") == 0
    assert (
        driver.execute_script(
            "return performance.getEntriesByType('resource').filter((e) => !e.name.startsWith('data:')).length"
        )
        == 0
    )
    wrong, _ = wrong_answers(grid)
    rows = wrong[wrong["id"] == card.get_attribute("data-id")]
    lines = driver.execute_script(
        "return [...arguments[0].querySelectorAll('.wrong li')].map((e) => e.textContent)", card
    )
    assert len(lines) == len(rows)
    for row in rows.itertuples():
        assert any(f"{row.model} small trained in {row.setting}, tested in {row.test}, seed" in line for line in lines)
    right = bool(rows["answer"].iloc[0])
    answers = [span.text for span in card.find_elements(By.CSS_SELECTOR, ".answer")]
    assert answers == (["✓ True", "False"] if right else ["✗ False", "True"])


def test_queried_objects_are_marked_where_they_are(report: Path, grid: Path, open_page: Open) -> None:  # noqa: F811
    driver = open_page(report / "report.html", "task=spatiality")
    until(driver, lambda: driver.find_elements(By.CSS_SELECTOR, ".card .ring"))
    told = next(read_config(folder) for folder in grid.iterdir() if "spatiality" in folder.name)
    examples = {e.id: e for split in SPLITS for e in open_dataset(Path(told["data"]))[split]}
    for card in driver.find_elements(By.CSS_SELECTOR, ".card")[:4]:
        scene = examples[str(card.get_attribute("data-id"))].scene
        picture, rings = card.find_element(By.TAG_NAME, "img").rect, card.find_elements(By.CLASS_NAME, "ring")
        cells = set()
        for ring in (one.rect for one in rings):
            down, right = ring["y"] + ring["height"] / 2 - picture["y"], ring["x"] + ring["width"] / 2 - picture["x"]
            cells.add((int(down * 6 // picture["height"]), int(right * 6 // picture["width"])))
        assert cells == {(one.row, one.column) for one in scene if one.queried} and len(cells) == 2


def test_keyboard_print_and_narrow_screens(report: Path, open_page: Open) -> None:  # noqa: F811
    driver = open_page(report / "report.html")
    driver.execute_script("document.getElementsByName('task')[0].focus()")
    driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    until(driver, lambda: "task=" in driver.current_url)
    assert driver.execute_script("return document.querySelector('#runs details').open") is False
    driver.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert driver.execute_script("return [...document.querySelectorAll('details')].every((fold) => fold.open)")
    images = "return [...document.images].filter((image) => !image.alt).length"
    assert driver.execute_script(images) == 0
    links = "return [...document.querySelectorAll('nav a')].filter((a) => !document.getElementById(a.hash.slice(1)))"
    assert driver.execute_script(links) == []
    driver = open_page(report / "report.html", width=380)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 380


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(scheme: str, report: Path, open_page: Open) -> None:  # noqa: F811
    driver: webdriver.Chrome = open_page(report / "report.html", scheme=scheme)
    script = """
      const linear = (v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
      const parts = (text) => text.match(/[\\d.]+/g).slice(0, 3).map((v) => text.startsWith("color") ? +v : v / 255);
      const light = (text) => parts(text).reduce((sum, v, place) => sum + [.2126, .7152, .0722][place] * linear(v), 0);
      const paper = (e) => getComputedStyle(e).backgroundColor;
      const behind = (e) => paper(e) === "rgba(0, 0, 0, 0)" ? behind(e.parentElement) : paper(e);
      return [".muted", ".card .query", ".card .caption", ".card .answer.true", ".card .answer.false", ".card .meta",
        "#tables td", "#tables .files a", ".shaded td.chance a", ".shaded td a", ".shaded td.baseline", ".shaded th",
        "figcaption", "summary", "nav a", "button:enabled", "label"].map((what) => {
        const every = [...document.querySelectorAll(what)];
        const all = every.map((e) => [light(getComputedStyle(e).color), light(behind(e))]);
        return [what, Math.min(...all.map((both) => (Math.max(...both) + .05) / (Math.min(...both) + .05)))]; });"""
    for what, contrast in driver.execute_script(script):
        assert contrast >= 4.5, what
