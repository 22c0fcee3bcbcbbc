"""Wrong items on the page of probes: counted again from the answers, filtered in a real browser, with pictures."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.by import By

from analysis.probe.corpora.items import Corpus, Item
from analysis.probe.report import mistakes
from analysis.probe.report.metrics import measure
from analysis.probe.report.report import write
from analysis.probe.report.results import Result, groups, load_results, save_result
from analysis.probe.scorers.scoring import score
from tests.probe_runs import HOSTILE, MEASURING, answers_of, by_axis, corpus_of, put
from tests.test_browse import Open, chrome, open_page, until  # noqa: F401
from tests.test_report import CHOOSE, embedded, wide_tables

LONG = ("google/siglip2-so400m-patch14-384", "Qwen/Qwen3-VL-2B-Instruct", "openai/clip-vit-large-patch14-336")
Judge = Callable[[str], float]


def corpus(folder: Path) -> Corpus:
    """40 items on two axes: a drawing or a photograph each, of which one is gone by now and one another."""
    random = np.random.default_rng(0)
    items = []
    folder.mkdir()
    for n in range(40):
        name = f"{n}.{'jpg' if n % 2 else 'png'}"
        if n % 2:
            Image.fromarray(random.integers(0, 255, (600, 900, 3), np.uint8)).save(folder / name)
        else:
            Image.new("RGB", (224, 224), (n, 0, 0)).save(folder / name)
        axis = "Object/Size" if n < 24 else "Relation/spatial"
        labels = {"grade": f"N{1 + n % 3}"}
        items.append(Item(f"item {n}", name, (f"{n} is {HOSTILE}",), (f"{n} is not",), axis, "s", "", labels))
    return Corpus("with pictures", "checklist", tuple(items), folder)


def asked(out: Path, corpus: Corpus, model: str, judge: Judge) -> None:
    """A run of a model that gives true sentences the score `judge` gives their number, and false ones 0."""
    folder = out / model

    def scorer(images: Any, texts: Any) -> np.ndarray:
        return np.array([0.0 if text.endswith("is not") else judge(text) for text in texts])

    answers = score(corpus, scorer, folder, fingerprint={"model": model}, log=lambda _: None)
    facts = {"name": corpus.name, "kind": corpus.kind, "digest": corpus.digest, "items": len(corpus.items), "notes": []}
    lines = tuple(measure(corpus.items, answers))
    measured = Result(folder.name, {**facts, "pictures": str(corpus.pictures)}, model, MEASURING, {}, lines)
    save_result(folder, measured)


def number(text: str) -> int:
    return int(text.split()[0])


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("mistakes")
    every, probes = corpus(place / "pictures"), place / "probes"
    asked(probes, every, "mostly", lambda text: -0.25 if number(text) % 7 == 0 else 1.5)
    asked(probes, every, "ties", lambda text: 0.0 if number(text) % 2 else -3.0)
    (place / "pictures" / "0.png").unlink()
    Image.new("RGB", (50, 50)).save(place / "pictures" / "14.png")
    write(probes)
    return probes


def wrong_items(out: Path) -> dict[tuple[str, str], str]:
    """(model, item's id) -> how it is wrong, from the answers alone."""
    found = {}
    for path in out.glob("*/answers.jsonl"):
        for line in path.read_text().splitlines():
            told = json.loads(line)
            margin = told["positive_scores"][0] - told["negative_scores"][0]
            if margin <= 0:
                found[path.parent.name, told["id"]] = "tie" if margin == 0 else "below"
    return found


def test_every_wrong_item_is_counted_and_each_model_shows_some(out: Path) -> None:
    wrong = wrong_items(out)
    (group,) = groups(load_results(out)[0], out)
    for limit in (4, 1000):
        found = mistakes.wrong_items(group, out, limit)
        for model, counts in zip(found["models"], found["wrong"], strict=True):
            own = [how for (name, _), how in wrong.items() if name == model]
            assert [sum(column) for column in zip(*counts, strict=True)] == [len(own), own.count("tie")]
            shown = [one for one in found["items"] if any(found["models"][e[0]] == model for e in one["errors"])]
            assert len(shown) >= min(limit, len(own)) and {one["id"] for one in shown} <= {i for _, i in wrong}
        assert sum(items for *_, items in found["cells"]) == 40
    assert len(found["items"]) == len({item for _, item in wrong})
    assert mistakes.wrong_items(group, out, 4) == mistakes.wrong_items(group, out, 4)
    assert [mistakes.per_model(models) for models in (1, 8, 1000)] == [240, 120, 24]


FILTERS: list[dict[str, str]] = [{}, {"model": "ties"}, {"how": "tie"}, {"axis": "Relation/spatial", "how": "below"},
                                 {"grade": "N2", "model": "mostly"}]  # fmt: skip


@pytest.mark.parametrize("filters", FILTERS, ids=lambda filters: ",".join(filters.values()) or "all")
def test_filters_show_what_the_answers_say(filters: dict[str, str], out: Path, open_page: Open) -> None:  # noqa: F811
    driver = open_page(out / "report.html")
    for name, value in filters.items():
        driver.execute_async_script(CHOOSE, name, value)
    labels = {f"item {n}": {"axis": "Object/Size" if n < 24 else "Relation/spatial", "grade": f"N{1 + n % 3}"}
              for n in range(40)}  # fmt: skip
    fitting = [(model, item) for (model, item), how in wrong_items(out).items()
               if filters.items() <= ({"model": model, "how": how} | labels[item]).items()]  # fmt: skip
    status = driver.find_element(By.ID, "status").text
    assert status.startswith(f"{len(fitting)} of {len(fitting)} wrong answer") and "0 left out" in status
    cards = driver.find_elements(By.CSS_SELECTOR, ".card")
    shown = {card.get_attribute("data-id"): int(str(card.get_attribute("data-errors"))) for card in cards}
    wanted = {item: sum(item == other for _, other in fitting) for _, item in fitting}
    assert len(shown) == min(24, len(wanted)) and shown.items() <= wanted.items()


def test_a_card_has_picture_sentences_and_margins(out: Path, open_page: Open) -> None:  # noqa: F811
    driver = open_page(out / "report.html", "model=mostly")
    cards = {card.get_attribute("data-id"): card for card in driver.find_elements(By.CSS_SELECTOR, ".card")}
    assert set(cards) == {f"item {n}" for n in range(0, 40, 7)}
    photo = cards["item 21"].find_element(By.TAG_NAME, "img")
    assert driver.execute_script("return [arguments[0].naturalWidth, arguments[0].naturalHeight]", photo) == [256, 171]
    assert str(photo.get_attribute("src")).startswith("data:image/jpeg;base64,")
    drawing = str(cards["item 28"].find_element(By.TAG_NAME, "img").get_attribute("src"))
    picture = Image.open(io.BytesIO(base64.b64decode(drawing.partition("base64,")[2])))
    assert picture.convert("RGB").getpixel((100, 100)) == (28, 0, 0)
    text = cards["item 28"].text
    assert f"✓ 28 is {HOSTILE}" in text and "✗ 28 is not" in text
    assert "mostly: margin -0.25 (-0.25 for the true, 0 for the false)" in text
    assert "No picture: 0.png is not there" in cards["item 0"].text
    assert "has changed since it was scored" in cards["item 14"].text
    assert "owned" not in driver.title


def test_what_is_left_out_is_told(out: Path, open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(mistakes, "TOTAL_ITEMS", 8)
    monkeypatch.setattr(mistakes, "MIN_ITEMS", 4)
    write(out)
    driver = open_page(out / "report.html")
    wrong = wrong_items(out)
    found: Any = embedded(out / "report.html")
    shown = sum(len(one["errors"]) for one in found[0]["items"])
    assert 0 < shown < len(wrong)
    status = driver.find_element(By.ID, "status").text
    assert status.startswith(f"{shown} of {len(wrong)} wrong answers shown, {len(wrong) - shown} left out")
    monkeypatch.undo()
    write(out)


def test_without_models_or_pictures_the_page_says_so(tmp_path: Path, open_page: Open) -> None:  # noqa: F811
    alone, answered = corpus_of(13, "baselines alone"), corpus_of(13, "without pictures")
    put(tmp_path, alone, "", [], {"hash": answers_of(alone, [True] * 26)})
    put(tmp_path, answered, "m", answers_of(answered, by_axis(answered)), {})
    write(tmp_path)
    driver = open_page(tmp_path / "report.html")
    driver.execute_async_script(CHOOSE, "corpus", "baselines alone")
    assert "No wrong item fits" in driver.find_element(By.ID, "cards").text
    driver.execute_async_script(CHOOSE, "corpus", "without pictures")
    assert "No picture: " in driver.find_element(By.CSS_SELECTOR, ".card").text


def test_a_page_with_long_names_fits_the_screen(tmp_path: Path, open_page: Open) -> None:  # noqa: F811
    """Scores of all models first; tables, all of them unfolded, on a page of 1,400 pixels."""
    made = [corpus_of(130, "VL-CheckList, as published", grades=True), corpus_of(130, "predicate-noun dependencies")]
    for one in made:
        nothing = answers_of(one, [False] * 260)
        put(tmp_path, one, "", [], {rule: answers_of(one, [True] * 260) for rule in ("shorter", "visible_words")})
        for n, model in enumerate(LONG):
            right = [place % (n + 2) > 0 for place in range(260)]
            baselines = {"blank picture": nothing, "other items' pictures": nothing}
            put(tmp_path, one, model, answers_of(one, right), baselines, threshold=0.5, task="itm")
    write(tmp_path)
    driver = open_page(tmp_path / "report.html", width=1400)
    scores = driver.find_element(By.CSS_SELECTOR, "#scores table")
    assert scores.rect["y"] + scores.rect["height"] <= 900
    lines = [row.text for row in scores.find_elements(By.CSS_SELECTOR, "tbody tr")]
    assert len(lines) == 2 * len(LONG) and all(any(model in line.replace("\n", "") for line in lines) for model in LONG)
    assert wide_tables(driver) == []
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 1400


def test_old_results_that_do_not_say_where_pictures_are(out: Path, tmp_path: Path) -> None:
    (group,) = groups(load_results(out)[0], out)
    bare = [replace(one, corpus={k: v for k, v in one.corpus.items() if k != "pictures"}) for one in group.results]
    found = mistakes.wrong_items(replace(group, results=tuple(bare)), out, 8)
    assert {one["why"] for one in found["items"]} == {"the run has no folder of pictures"}
