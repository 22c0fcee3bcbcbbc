"""Wrong items on the page of probes: counted again from the answers, filtered in a real browser, with pictures."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.by import By

from analysis.probe.corpora.items import Corpus, Item
from analysis.probe.report import mistakes
from analysis.probe.report.metrics import measure
from analysis.probe.report.report import write_report
from analysis.probe.report.results import Result, groups, load_results, save_result
from analysis.probe.scorers.scoring import score_items
from tests.probe_runs import HOSTILE, MEASURING
from tests.test_browse import Open, chrome, open_page, until  # noqa: F401
from tests.test_report import CHOOSE

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

    answers = score_items(corpus, scorer, folder, fingerprint={"model": model}, log=lambda _: None)
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
    write_report(probes)
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


def test_page_shows_the_wrong_items_that_filters_choose(out: Path, open_page: Open) -> None:  # noqa: F811
    filters = {"axis": "Relation/spatial", "how": "below", "grade": "N2", "model": "mostly"}
    driver = open_page(out / "report.html")
    for name, value in filters.items():
        driver.execute_async_script(CHOOSE, name, value)
    wrong = [item for (model, item), how in wrong_items(out).items() if (model, how) == ("mostly", "below")]
    fitting = {item for item in wrong if int(item[5:]) >= 24 and int(item[5:]) % 3 == 1}
    cards = driver.find_elements(By.CSS_SELECTOR, ".card")
    assert {card.get_attribute("data-id") for card in cards} == fitting
    assert driver.find_element(By.ID, "status").text.startswith(f"{len(fitting)} of {len(fitting)} wrong answer")


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
    assert "owned" not in driver.title
