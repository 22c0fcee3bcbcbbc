"""Reports of probes: made-up results, their tables and figures read back, and the page in a real browser."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.by import By

from analysis.probe.items import Answer, Corpus, Item
from analysis.probe.measures import MACRO, MICRO, measure
from analysis.probe.report import (
    RESULT,
    Result,
    figures,
    groups,
    interval_text,
    load_results,
    printed,
    radar_chart,
    save_result,
    tables,
    write,
)
from analysis.probe.scoring import keep
from tests.test_browse import Open, chrome, open_page  # noqa: F401

AXES = tuple(f"Part/{chr(97 + n)}" for n in range(13))
HOSTILE = "<script>document.title='owned'</script>|`x`"
MEASURING = {"task": "itc", "rules": "corrected", "sentences": "mean", "tolerance": 1e-5, "threshold": None, "seed": 0}


def corpus_of(pairs: int = 130, name: str = "made up", grades: bool = False) -> Corpus:
    items = []
    for n in range(pairs):
        for side in (0, 1):
            true, false = ("a", "b")[:: 1 - 2 * side]
            labels = {"grade": ("N1", "N2")[n // 13 % 2]} if grades else {}
            items.append(Item(f"{n}-{side}", f"{n}-{side}.png", (true,), (false,), AXES[n % 13], "s", str(n), labels))
    return Corpus(name, "checklist", tuple(items), None, ("A note on <it>.",))


def answers_of(corpus: Corpus, right: Any) -> list[Answer]:
    return [
        Answer(item.id, "scored", (float(one),), (float(not one),))
        for item, one in zip(corpus.items, right, strict=True)
    ]


def put(out: Path, corpus: Corpus, model: str, answers: list[Answer], rules: dict[str, list[Answer]]) -> Result:
    """A run's folder: with answers where it is of a model, of controls alone else."""
    folder = out / re.sub(r"\W+", "-", f"{corpus.name}-{model or 'controls'}")
    facts = {"name": corpus.name, "kind": corpus.kind, "digest": corpus.digest, "items": len(corpus.items)}
    keep(corpus, answers, folder, {"model": model}, {}) if model else folder.mkdir(parents=True)
    result = Result(
        name=folder.name,
        corpus={**facts, "notes": list(corpus.notes)},
        model=model,
        measuring=MEASURING,
        about={"device": "cpu", "versions": {"numpy": "2"}},
        lines=tuple(measure(corpus.items, answers)) if model else (),
        floors={rule: tuple(measure(corpus.items, said)) for rule, said in rules.items()},
        blind=tuple(rules) if not model else (),
    )
    save_result(folder, result)
    return result


def by_axis(corpus: Corpus) -> list[bool]:
    """13 accuracies that differ: of the ten pairs of axis n both items are right in the first ones, n // 2 or so."""
    return [int(item.pair) // 13 * 20 + int(item.id[-1]) * 10 < 14 * (int(item.pair) % 13) for item in corpus.items]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models and controls on one corpus, which a rule solves; a model and no controls on another."""
    place = tmp_path_factory.mktemp("probes")
    corpus, other = corpus_of(), corpus_of(26, HOSTILE, grades=True)
    everything, nothing = [True] * 260, [False] * 260
    put(place, corpus, "", [], {
        "shorter": answers_of(corpus, [i.axis == AXES[2] or i.id.endswith("0") for i in corpus.items]),
        "hash": answers_of(corpus, [i.id.endswith("1") for i in corpus.items]),
    })  # fmt: skip
    put(place, corpus, "first", answers_of(corpus, by_axis(corpus)), {"blank picture": answers_of(corpus, nothing)})
    put(place, corpus, "second", answers_of(corpus, everything), {})
    part = [Answer(i.id, "missing", why="gone") if n < 4 else a for n, (i, a) in enumerate(
        zip(other.items, answers_of(other, [True] * 52), strict=True))]  # fmt: skip
    put(place, other, HOSTILE, part, {})
    broken = place / "broken"
    broken.mkdir()
    (broken / RESULT).write_text('{"version": 1}')
    write(place)
    return place


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    corpus = corpus_of(13)
    result = put(tmp_path, corpus, "m", answers_of(corpus, [True] * 26), {"hash": answers_of(corpus, [False] * 26)})
    assert load_results(tmp_path) == ([result], [])
    save_result(tmp_path / result.name, result)  # again, in its place
    assert load_results(tmp_path) == ([result], [])
    assert not (tmp_path / result.name / ".kept").exists()


def test_what_cannot_be_read_is_left_out_and_told_of(out: Path) -> None:
    results, skipped = load_results(out)
    assert len(results) == 4 and len(skipped) == 1 and "broken" in skipped[0] and "\n" not in skipped[0]
    assert "broken" in (out / "report.md").read_text() and "broken" in (out / "report.html").read_text()


def test_tables_hold_every_number_and_the_coverage(out: Path) -> None:
    rows = list(csv.DictReader(io.StringIO((out / "tables" / "made-up-accuracy.csv").read_text())))
    assert {row["answered_by"] for row in rows} == {"first", "second"}
    assert [row["value"] for row in rows if row["answered_by"] == "first"] == [MICRO, MACRO, *AXES]
    corpus = corpus_of()
    right = dict(zip((i.id for i in corpus.items), by_axis(corpus), strict=True))
    for axis in AXES:
        row = next(row for row in rows if (row["answered_by"], row["value"]) == ("first", axis))
        here = [right[item.id] for item in corpus.items if item.axis == axis]
        assert float(row["single"]) == pytest.approx(100 * np.mean(here))
    other = [*csv.DictReader(io.StringIO(next((out / "tables").glob("*script*accuracy.csv")).read_text()))]
    for row in [*rows, *other]:
        parts = [int(row[name]) for name in ("scored", "missing", "unreadable", "failed")]
        assert int(row["total"]) == sum(parts)
    assert other[0]["missing"] == "4" and other[0]["mixed"] == "N1 and N2"


def test_flags_notes_and_coverage_stand_before_the_numbers(out: Path) -> None:
    text = (out / "report.md").read_text()
    before = text[text.index("## made up") :]
    before = before[: before.index("| items |")]
    assert "FLAGGED" in before and f"{AXES[2]}: right by text alone: shorter 100.0 %" in before
    assert f"{AXES[3]}: right by" not in text
    other = text[: text.index("## made up")]
    assert "total 52 = scored 48 + missing 4 + unreadable 0 + failed 0" in other
    assert "mixes grades N1 and N2" in other and "A note on" in other


def test_models_are_compared_from_their_answers(out: Path) -> None:
    text = (out / "tables" / "made-up-compared.csv").read_text()
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["first"], row["second"], row["of"], row["number"]) == ("first", "second", "pairs", "130")
    assert float(row["second_accuracy"]) == 100 and row["differs"] == "True"
    right = np.array(by_axis(corpus_of())).reshape(-1, 2).all(axis=1)
    assert float(row["first_accuracy"]) == pytest.approx(100 * right.mean())


def test_bold_is_above_what_every_blind_rule_reaches(out: Path) -> None:
    (made,) = [group for group in groups(load_results(out)[0], out) if group.slug == "made-up"]
    table = next(table for table in tables(made) if table.name == "made-up-accuracy")
    bold = {(row[0].text, row[1].text) for row in table.rows if row[7].bold}
    assert (AXES[12], "second") in bold and (AXES[2], "second") not in bold  # there `shorter` has all right, too
    assert (AXES[0], "first") not in bold
    floors = next(table for table in tables(made) if table.name == "made-up-floors")
    assert {row[1].text for row in floors.rows} == {"shorter", "hash", "blank picture (first)"}
    assert not any(cell.bold for row in floors.rows for cell in row)


def test_radar_labels_and_values_are_of_the_same_axes(out: Path) -> None:
    """13 axes with 13 different values, in an order of their own: each spoke shows the value of its label."""
    (made,) = [group for group in groups(load_results(out)[0]) if group.slug == "made-up"]
    figure = radar_chart(made, made.answerers)
    axes = figure.axes[0]
    labels = [label.get_text().replace("\n", "/") for label in axes.get_xticklabels()]
    shown = next(one for one in axes.get_lines() if one.get_gid() == "radar-first")
    turns, values = (np.asarray(part, float) for part in shown.get_data())
    assert labels == list(AXES) and np.allclose(turns[:-1], axes.get_xticks())
    corpus = corpus_of()
    for label, value in zip(labels, values[:-1], strict=True):
        right = [one for item, one in zip(corpus.items, by_axis(corpus), strict=True) if item.axis == label]
        assert value == pytest.approx(100 * np.mean(right))
    assert len(set(values[:-1])) == 13 and values[0] == values[-1]
    assert axes.get_ylim() == (0, 100)


def test_bars_have_intervals_and_floors(out: Path) -> None:
    (made,) = [group for group in groups(load_results(out)[0]) if group.slug == "made-up"]
    figure = figures(made)["made-up-bars"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["items right (%)", "pairs with both items right (%)"]
    heights = [np.asarray(path.vertices)[:, 1].max() for path in figure.axes[0].collections[0].get_paths()]
    lines = {line.value: line for line in made.answerers["first"] if line.by == "axis"}
    assert heights == pytest.approx([lines[axis].single for axis in AXES])
    drawn = [s for c in figure.axes[0].collections for s in getattr(c, "get_segments", list)()]
    whiskers = [sorted(s[:, 1]) for s in drawn if s[0][0] == s[1][0]]
    for axis in AXES:
        ends = np.array([lines[axis].single_low, lines[axis].single_high], float)
        assert any(np.allclose(whisker, ends) for whisker in whiskers)
    floors = sorted(s[0][1] for s in drawn if s[0][1] == s[1][1] and s[0][0] != s[1][0])
    assert floors == [50] * 12 + [100]


def test_seven_models_to_a_figure_and_few_axes_without_radar(tmp_path: Path) -> None:
    corpus = corpus_of(13)
    for n in range(8):
        put(tmp_path, corpus, f"m{n}", answers_of(corpus, [True] * 26), {})
    (made,) = groups(load_results(tmp_path)[0])
    assert set(figures(made)) == {f"made-up-{kind}{number}" for kind in ("bars", "radar") for number in ("", "-2")}


def test_figures_are_pictures_and_the_same_each_time(out: Path) -> None:
    before = {path: path.read_bytes() for path in out.rglob("*") if path.suffix in (".svg", ".png", ".md", ".html")}
    assert len([path for path in before if path.suffix == ".png"]) == 4
    for path in (path for path in before if path.suffix == ".png"):
        assert Image.open(path).width > 400
    assert "50 (coins)" in (out / "figures" / "made-up-radar.svg").read_text()
    write(out)
    assert before == {path: path.read_bytes() for path in before}


def test_other_rules_and_other_items_are_never_side_by_side(tmp_path: Path) -> None:
    corpus = corpus_of(13)
    said = answers_of(corpus, [True] * 26)
    one = put(tmp_path, corpus, "m", said, {})
    other = Result(**{**vars(one), "name": "n", "measuring": {**MEASURING, "sentences": "first"}})
    less = Result(**{**vars(one), "name": "o", "corpus": {**one.corpus, "digest": "f" * 64}})
    made = groups([one, other, less])
    assert len(made) == 3 and len({group.slug for group in made}) == 3 and len({group.title for group in made}) == 3


def test_runs_of_one_model_are_told_apart(tmp_path: Path) -> None:
    corpus = corpus_of(13)
    one = put(tmp_path, corpus, "m", answers_of(corpus, [True] * 26), {})
    other = Result(**{**vars(one), "name": "made-up-m-again"})
    assert set(groups([one, other])[0].answerers) == {"made-up-m", "made-up-m-again"}


def test_a_group_is_printed_with_its_floors(out: Path) -> None:
    (made,) = [group for group in groups(load_results(out)[0]) if group.slug == "made-up"]
    text = printed(made)
    line = next(line for line in made.answerers["first"] if line.value == MICRO)
    assert interval_text(line.single, line.single_low, line.single_high) in text
    assert "text alone at best: shorter" in text and max(map(len, text.splitlines())) < 160


def test_a_run_without_scores_is_reported(tmp_path: Path) -> None:
    corpus = corpus_of(13)
    put(tmp_path, corpus, "m", [Answer(i.id, "missing", why="gone") for i in corpus.items], {})
    (made,) = write(tmp_path)
    assert "total 26 = scored 0 + missing 26" in printed(made)
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
    driver.set_window_size(400, 800)
    assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth + 1")
