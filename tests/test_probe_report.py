"""Reports of probes: the files of made-up results, and the page in a real browser."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from PIL import Image
from selenium.webdriver.common.by import By

from analysis.probe.corpora.items import Answer
from analysis.probe.report.report import write
from analysis.probe.report.tables import terminal_summary
from tests.probe_runs import AXES, HOSTILE, answers_of, corpus_of, made, put
from tests.test_browse import Open, chrome, open_page  # noqa: F401


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = made(tmp_path_factory.mktemp("probes"))
    write(place)
    return place


def test_what_cannot_be_read_is_told_of(out: Path) -> None:
    assert "broken" in (out / "report.md").read_text() and "broken" in (out / "report.html").read_text()


def test_flags_notes_and_coverage_stand_before_the_numbers(out: Path) -> None:
    text = (out / "report.md").read_text()
    before = text[text.index("## made up") :]
    before = before[: before.index("| items |")]
    assert "FLAGGED" in before and f"{AXES[2]}: right by text alone: shorter 100.0 %" in before
    assert f"{AXES[3]}: right by" not in text
    other = text[: text.index("## made up")]
    assert "total 52 = scored 48 + missing 4 + unreadable 0 + failed 0" in other
    assert "mixes N1, N2" in other and "A note on" in other


def test_figures_are_pictures_and_the_same_each_time(out: Path) -> None:
    before = {path: path.read_bytes() for path in out.rglob("*") if path.suffix in (".svg", ".png", ".md", ".html")}
    assert len([path for path in before if path.suffix == ".png"]) == 4
    for path in (path for path in before if path.suffix == ".png"):
        assert Image.open(path).width > 400
    assert "50 (coins)" in (out / "figures" / "made-up-radar.svg").read_text()
    write(out)
    assert before == {path: path.read_bytes() for path in before}


def test_what_is_no_longer_of_the_report_goes_and_nothing_else(tmp_path: Path) -> None:
    corpus, other = corpus_of(13), corpus_of(13, "other")
    for one in (corpus, other):
        put(tmp_path, one, "m", answers_of(one, [True] * 26), {})
    write(tmp_path)
    ours = {path.name for path in tmp_path.glob("*/made-up-*.*")}
    theirs = sorted(tmp_path.glob("*/other-*.*"))
    assert ours and {path.suffix for path in theirs} == {".md", ".csv", ".svg", ".png"}
    edited, beside = tmp_path / "tables" / "other-accuracy.csv", tmp_path / "figures" / "other-mine.png"
    edited.write_text("with my remarks")
    beside.write_text("drawn by hand")
    (tmp_path / "other-m").rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "result-corrected-mean.json").unlink()
    write(tmp_path)
    assert sorted(tmp_path.glob("*/other-*.*")) == sorted([edited, beside])
    assert {path.name for path in tmp_path.glob("*/made-up-*.*")} == ours
    assert (tmp_path / "elsewhere" / "answers.jsonl").exists()


def test_a_list_of_files_from_elsewhere_removes_nothing_elsewhere(tmp_path: Path) -> None:
    out, kept = tmp_path / "out", tmp_path / "kept.csv"
    kept.write_text("")
    digest = hashlib.sha256(b"").hexdigest()
    names = ["../kept.csv", "tables/../../kept.csv", str(kept), "tables/..", "answers.jsonl"]
    for text in (json.dumps({"files": dict.fromkeys(names, digest)}), "[]", '{"files": 1}', "{"):
        out.mkdir(exist_ok=True)
        (out / "tables").mkdir(exist_ok=True)
        (out / "answers.jsonl").write_text("")
        (out / "report.json").write_text(text)
        write(out)
        assert kept.exists() and (out / "answers.jsonl").exists()


def test_baselines_are_folded_only_beside_models(tmp_path: Path) -> None:
    corpus = corpus_of(13)
    put(tmp_path, corpus, "", [], {"hash": answers_of(corpus, [True] * 26)})
    write(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "No model yet, only baselines, on 1 corpus" in page
    assert '<details id="made-up-baselines" class="block" open>' in page
    put(tmp_path, corpus, "m", answers_of(corpus, [True] * 26), {})
    write(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "1 model on 1 corpus" in page and '<details id="made-up-baselines" class="block">' in page


def test_a_run_without_scores_is_reported(tmp_path: Path) -> None:
    corpus = corpus_of(13)
    put(tmp_path, corpus, "m", [Answer(i.id, "missing", why="gone") for i in corpus.items], {})
    (group,) = write(tmp_path)
    assert "total 26 = scored 0 + missing 26" in terminal_summary(group)
    assert not list(tmp_path.glob("figures/*"))


def test_an_empty_folder_has_an_empty_report(tmp_path: Path) -> None:
    assert write(tmp_path) == []
    assert "Nothing." in (tmp_path / "report.md").read_text()


def test_the_page_loads_nothing_runs_nothing_and_shows_all(out: Path, open_page: Open) -> None:  # noqa: F811
    driver = open_page(out / "report.html")
    assert driver.title == f"{out.name} · TraVLR probes"
    assert driver.execute_script("return performance.getEntriesByType('resource').length") == 0
    pictures = driver.find_elements(By.TAG_NAME, "img")
    assert len(pictures) == 4 and all(
        driver.execute_script("return arguments[0].naturalWidth", one) for one in pictures
    )
    shown = driver.find_element(By.TAG_NAME, "main").text
    assert HOSTILE in shown and "FLAGGED" in shown
    assert "{{" not in driver.page_source
    margin = driver.execute_script("return getComputedStyle(document.querySelector('h1')).margin")
    assert margin == "0px"  # by the style that all pages share
    cells = driver.find_elements(By.CSS_SELECTOR, "#made-up-accuracy tbody tr")
    assert len(cells) == 2 * 15
    rows = driver.find_elements(By.CSS_SELECTOR, "#made-up-baselines tbody tr")
    assert len(rows) == 3 * 15 and not rows[0].is_displayed()  # it is long, and folded
    driver.find_element(By.CSS_SELECTOR, "#made-up-baselines summary").click()
    assert rows[0].is_displayed()
    wide = driver.find_element(By.CSS_SELECTOR, "#made-up-bars")
    assert wide.size["width"] > 0.9 * driver.find_element(By.CSS_SELECTOR, "#made-up-accuracy").size["width"]
    driver.set_window_size(400, 800)
    assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth + 1")
