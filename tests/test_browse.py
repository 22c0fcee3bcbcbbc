"""The web page of a dataset, opened in a real browser, and its data counted again from the dataset's own files."""

from __future__ import annotations

import base64
import io
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as pillow
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.helpers import command, generated, one_line, page_data, write
from travlr import Cardinality, Quantifiers, Spatiality, browse
from travlr.config import Config, Count, Image
from travlr.formats.columns import SCHEMA
from travlr.viewer import Card, embed_picture, viewer_data

SMALL = Count(train=200, validation=60, test_ind=60, test_ood=120)
TASKS: dict[str, Config] = {
    kind.__name__.lower(): kind(count=SMALL, image=Image(cell=16)) for kind in (Spatiality, Cardinality, Quantifiers)
}
FLAGS = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking"
Row = dict[str, Any]
Open = Callable[..., webdriver.Chrome]


def rows_of(folder: Path) -> dict[str, Row]:
    """All rows of a dataset by id, with their splits; not read by the code under test."""
    rows: dict[str, Row] = {}
    for path in sorted(folder.glob("*.parquet")):
        rows |= {row["id"]: {**row, "split": path.name.split("-")[0]} for row in pq.read_table(path).to_pylist()}
    return rows


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: generated(tmp_path_factory.mktemp("data") / name, config) for name, config in TASKS.items()}


# The data of the page ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("rules_not_fitted")
@pytest.mark.parametrize("task", TASKS)
def test_make_page_has_counts_and_examples(task: str, datasets: dict[str, Path]) -> None:
    rows = rows_of(datasets[task])
    page = browse.make_page(datasets[task], examples=30)
    for split in page_data(page, "pairs-data")["splits"]:
        due: dict[str, list[int]] = {}
        for row in rows.values():
            if row["split"] == split["name"]:
                due.setdefault(" ".join(row["pair"]), [0, 0])[not row["answer"]] += 1
        assert dict(split["counts"]) == due
    cards = page_data(page, "examples-data")["cards"]
    assert len(cards) == 4 * 30
    for first, second in zip(cards[::2], cards[1::2], strict=True):
        assert first["couple"] == second["couple"] and first["answer"] != second["answer"]
        row = rows[first["id"]]
        about = {"split": row["split"], "pair": " ".join(row["pair"]), "answer": str(row["answer"]).lower()}
        assert (first["title"], first["text"], first["columns"]) == (row["query"], row["caption"], about)


def test_make_page_shows_baselines(tmp_path: Path, rules_not_fitted: None) -> None:
    count = Count(train=100, validation=20, test_ind=20, test_ood=20)
    folder = generated(tmp_path / "d", Cardinality(count=count, image=Image(cell=16)))
    lines = dict(browse.read_content(folder, 2)["baselines"])
    splits = ("validation", "test_ind", "test_ood")
    assert list(lines) == ["query alone", "query and number of objects", "best unbound"]
    assert [lines[name] for name in ("query alone", "best unbound")] == [dict.fromkeys(splits, n) for n in (50.0, 60.0)]


def test_choose_spread_takes_pairs_and_answers_evenly() -> None:
    numbers = random.Random(1)
    kinds = [((str(numbers.randrange(9)),), numbers.random() < 0.3) for _ in range(200)]
    chosen = browse.choose_spread(kinds, 40)
    shown, there = Counter(kinds[row] for row in chosen), Counter(kinds)
    most = max(shown.values())
    assert len(set(chosen)) == 40 and all(shown[kind] >= min(count, most - 1) for kind, count in there.items())


def test_make_heat_maps_leaves_out_long_axes() -> None:
    pairs: set[browse.Pair] = {("comparison", str(n), "1") for n in range(browse.LONGEST + 1)}
    (drawn,) = browse.make_heat_maps("comparison", pairs)
    assert drawn["rows"] == drawn["columns"] == []


def test_embed_picture_makes_large_pictures_small() -> None:
    image = pillow.frombytes("RGB", (900, 600), random.Random(0).randbytes(900 * 600 * 3))
    for kind in ("PNG", "JPEG"):
        buffer = io.BytesIO()
        image.save(buffer, kind)
        address, size = embed_picture(buffer.getvalue(), "it")
        small = pillow.open(io.BytesIO(base64.b64decode(address.removeprefix(f"data:image/{kind.lower()};base64,"))))
        assert (small.format, small.size, size) == (kind, (384, 256), (384, 256))


def test_viewer_data_has_the_values_of_cards_and_rows_to_choose_from() -> None:
    rows = [{"model": "uniter", "words": "a"}, {"model": "bert", "words": "b"}]
    cards = [Card("1", "q", columns={"split": "test_ood"}, rows=rows), Card("2", "q", columns={"split": "test_ind"})]
    filters = {"split": "Split", "model": "Model", "task": "Task"}
    data = viewer_data(cards, filters, orders={"split": ("train", "test_ood")})
    assert data["choices"] == {"split": ["test_ood", "test_ind"], "model": ["bert", "uniter"], "task": []}
    assert list(data["filters"]) == ["split", "model"]


def test_browse_command_writes_a_page_or_one_line(
    datasets: dict[str, Path], tmp_path: Path, rules_not_fitted: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    assert browse.main([str(datasets["spatiality"]), "--out", str(out), "--examples", "2"]) == 0
    assert str(out) in capsys.readouterr().out and page_data(out.read_text(), "examples-data")
    code, text, error = command("browse", str(tmp_path / "nothing"))
    assert (code, text) == (2, "") and one_line(error)
    with pytest.raises(SystemExit) as caught:
        browse.main([str(datasets["spatiality"]), "--out", str(tmp_path / "none.html"), "--examples", "-1"])
    assert caught.value.code == 2 and not (tmp_path / "none.html").exists()


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    for program, package in (("chromium", "chromium"), ("chromedriver", "chromium-driver")):
        if not shutil.which(program):
            pytest.fail(f"{program} is missing: install Debian's package {package} (apt-get install {package})")
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture
def open_page(chrome: webdriver.Chrome) -> Iterator[Open]:
    """Opens a page at a hash; at the end of the test nothing may have been complained of on the console."""

    def go(path: Path, hash: str = "", width: int = 1280, scheme: str = "light") -> webdriver.Chrome:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        for url in ("about:blank", f"{path.as_uri()}#{hash}"):
            chrome.get(url)
            until(chrome, lambda: chrome.execute_script("return document.readyState") == "complete")
        return chrome

    yield go
    assert chrome.get_log("browser") == []  # type: ignore[no-untyped-call]


def page_of(folder: Path) -> Path:
    """A page with all rows of a dataset."""
    path = folder.with_suffix(".html")
    path.write_text(browse.make_page(folder, examples=1000))
    return path


def until(driver: webdriver.Chrome, wanted: Callable[[], Any]) -> None:
    WebDriverWait(driver, 300, poll_frequency=0.02).until(lambda _: wanted())


READ_CARDS = """
const text = (card, what) => card.querySelector(what)?.firstChild.textContent.trim();
return [...document.querySelectorAll(".card")].map((card) => [card.dataset.id, text(card, ".query"),
  text(card, ".answer"), card.querySelector(".caption").textContent, card.querySelectorAll(".ring").length]);
"""


@pytest.mark.usefixtures("rules_not_fitted")
def test_page_shows_examples_pairs_and_couples(datasets: dict[str, Path], open_page: Open) -> None:
    rows = rows_of(datasets["spatiality"])
    path = page_of(datasets["spatiality"])
    chrome = open_page(path)
    cards = chrome.execute_script(READ_CARDS)
    assert len(cards) == 24
    for name, query, answer, caption, rings in cards:
        assert (query, caption) == (rows[name]["query"], rows[name]["caption"])
        assert (answer, rings) == ("✓ True" if rows[name]["answer"] else "✗ False", 2)
    assert chrome.execute_script("return [...document.images].every((i) => i.src.startsWith('data:'))")
    chrome.find_element(By.CSS_SELECTOR, "[data-view=pairs]").click()
    until(chrome, lambda: len(chrome.find_elements(By.CSS_SELECTOR, ".map table")) == 8)
    cells = chrome.execute_script("return [...document.querySelectorAll('.map td')].map((td) => td.textContent)")
    assert sum(int(text) for text in cells if text) == len(rows)
    open_page(path, "split=test_ood&answer=true&text=STAR")
    due = [r for r in rows.values() if r["split"] == "test_ood" and r["answer"] and "star" in r["query"]]
    assert f"{len(due)} " in chrome.find_element(By.CSS_SELECTOR, "[role=status]").text
    assert {card[0] for card in chrome.execute_script(READ_CARDS)} <= {row["id"] for row in due}
    chrome.find_element(By.NAME, "couples").click()
    until(chrome, lambda: chrome.find_elements(By.CSS_SELECTOR, ".couple"))
    cards = chrome.execute_script(READ_CARDS)
    for (_, query, true, *_), (_, other, false, *_) in zip(cards[::2], cards[1::2], strict=True):
        assert query == other and (true, false) == ("✓ True", "✗ False")


@pytest.mark.usefixtures("rules_not_fitted")
def test_page_shows_hostile_text_as_text(tmp_path: Path, open_page: Open) -> None:
    hostile = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'> <!-- {{data}} \u2028"
    folder = tmp_path / "<img src=x onerror=window.hacked=3> {{data}} &amp;"
    write(folder, TASKS["cardinality"])
    for path in folder.glob("*.parquet"):
        rows = pq.read_table(path).to_pylist()
        for row in rows:
            row |= {name: row[name] + hostile for name in ("id", "caption", "query")}
            row["objects"][0] |= {"colour": hostile, "row": -5}
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)
    manifest = json.loads((folder / "dataset.json").read_text()) | {"content_digest": hostile}
    (folder / "dataset.json").write_text(json.dumps(manifest))
    chrome = open_page(page_of(folder))
    assert chrome.execute_script("return [window.hacked, document.scripts.length]") == [None, 3]
    assert chrome.execute_script("return document.body.textContent").count("window.hacked = 2") > 20
    assert chrome.find_element(By.TAG_NAME, "h1").text == folder.name
