"""The web page of a dataset, opened in a real browser; its numbers counted again from the dataset's own files."""

import io
import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as pillow
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.helpers import called, generated, one_line, page_data, write
from travlr import Cardinality, Comparison, Quantifiers, Spatiality, browse, cli
from travlr.baselines import best_unbound, score_baselines
from travlr.columns import SCHEMA
from travlr.config import Config, Count, Image
from travlr.manifest import UNFINISHED
from travlr.scene import World

SMALL = Count(train=200, validation=60, test_ind=60, test_ood=120)
TASKS: dict[str, Config] = {
    kind.__name__.lower(): kind(count=SMALL, image=Image(cell=16))
    for kind in (Spatiality, Cardinality, Quantifiers, Comparison)
}
ALL_ROWS = 1000  # examples that hold every row of the small datasets
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
)
Row = dict[str, Any]
Open = Callable[..., webdriver.Chrome]


def rows_of(folder: Path) -> dict[str, Row]:
    """All rows of a Parquet dataset by id, with their splits; not read by the code under test."""
    rows: dict[str, Row] = {}
    for path in sorted(folder.glob("*.parquet")):
        rows |= {row["id"]: {**row, "split": path.name.split("-")[0]} for row in pq.read_table(path).to_pylist()}
    return rows


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small dataset of each task, with a page that holds all its rows."""
    folders = {name: generated(tmp_path_factory.mktemp("data") / name, config) for name, config in TASKS.items()}
    for folder in folders.values():
        assert browse.main([str(folder), "--examples", str(ALL_ROWS)]) == 0
    return folders


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
    driver.set_script_timeout(300)
    yield driver
    driver.quit()


@pytest.fixture
def no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without the best unbound rule: fitting all of them takes seconds."""
    monkeypatch.setattr(browse, "dataset_baselines", lambda _: [])


def complaints(driver: webdriver.Chrome) -> list[str]:
    """What the console said since it was last asked."""
    return [entry["message"] for entry in driver.get_log("browser")]  # type: ignore[no-untyped-call]


@pytest.fixture
def open_page(chrome: webdriver.Chrome) -> Iterator[Open]:
    """Opens a page at a hash; at the end of the test nothing may have been complained of on the console."""

    def go(path: Path, hash: str = "", width: int = 1280, scheme: str = "light") -> webdriver.Chrome:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        load(chrome, "about:blank")
        load(chrome, f"{path.as_uri()}#{hash}")
        return chrome

    complaints(chrome)
    yield go
    assert complaints(chrome) == []


def until(driver: webdriver.Chrome, wanted: Callable[[], Any]) -> None:
    WebDriverWait(driver, 300, poll_frequency=0.02).until(lambda _: wanted())


def load(driver: webdriver.Chrome, url: str) -> None:
    """Open a page and wait until its scripts have run. On a busy machine `get` returns before."""
    driver.get(url)
    until(driver, lambda: driver.execute_script("return document.readyState") == "complete")


def card_ids(driver: webdriver.Chrome) -> list[str]:
    return driver.execute_script("return [...document.querySelectorAll('.card')].map((card) => card.dataset.id)")


# Both act and read in one go: a change of the hash is answered by the page when the script has ended.
USE = """
const [name, value, done] = arguments, control = document.getElementsByName(name)[0];
addEventListener("hashchange", () => setTimeout(done), { once: true });
control.value = value;
control.dispatchEvent(new Event(name === "text" ? "input" : "change", { bubbles: true }));
"""
EVERY_PAGE = """
const done = arguments[0], later = document.querySelector(".status .pager button:last-child"), ids = [];
function read() {
  ids.push(...[...document.querySelectorAll(".card")].map((card) => card.dataset.id));
  if (later.disabled) return done(ids);
  addEventListener("hashchange", () => setTimeout(read), { once: true });
  later.click();
}
read();
"""


def every_page(driver: webdriver.Chrome) -> list[str]:
    """The ids on this page of examples and on all after it."""
    return driver.execute_async_script(EVERY_PAGE)


# Heat maps -------------------------------------------------------------------------------------------------------

READ_MAPS = """
return [...document.querySelectorAll(".map table")].map((table) => ({
  split: table.dataset.split, map: table.dataset.map,
  labels: [...table.querySelectorAll(".axis")].map((e) => e.textContent),
  cells: [...table.tBodies[0].rows].flatMap((row) => [...row.querySelectorAll("td")].map((td, x) => [
    row.querySelector("[scope=row]").textContent, table.tHead.rows[1].querySelectorAll("th")[x].textContent,
    td.textContent, td.className,
    td.firstElementChild?.title.match(/: (\\d+) true, (\\d+) false/).slice(1).map(Number)])),
}));
"""


def pair_at(task: str, title: str, row: str, column: str) -> tuple[str, ...]:
    return (row, column) if task == "cardinality" else (title, row, column)


@pytest.mark.parametrize("task", TASKS)
def test_heat_maps_show_the_counts_of_the_dataset(task: str, datasets: dict[str, Path], open_page: Open) -> None:
    rows = rows_of(datasets[task]).values()
    wanted = Counter((row["split"], tuple(row["pair"])) for row in rows)
    true = Counter((row["split"], tuple(row["pair"])) for row in rows if row["answer"])
    apart = {pair for split, pair in wanted if split == "test_ood"}
    together = {pair for split, pair in wanted if split != "test_ood"}
    shown: Counter[tuple[str, tuple[str, ...]]] = Counter()
    maps = open_page(datasets[task] / browse.NAME, "view=pairs").execute_script(READ_MAPS)
    for drawn in maps:
        own, other = (apart, together) if drawn["split"] == "test_ood" else (together, apart)
        for row, column, text, name, answers in drawn["cells"]:
            pair = pair_at(task, drawn["map"], row, column)
            if text not in ("", "0"):
                shown[drawn["split"], pair] = int(text)
                number = wanted[drawn["split"], pair]
                assert answers == [true[drawn["split"], pair], number - true[drawn["split"], pair]]
                assert "shared" not in name
            else:
                assert name == ("zero" if pair in own else "held" if pair in other else "never")
                assert text == ("0" if pair in own else "")
    assert shown == wanted
    numbers = {"spatiality": 2, "quantifiers": 6}
    assert len(maps) == 4 * numbers.get(task, 1)


def test_heat_maps_of_the_paper_have_their_axes(datasets: dict[str, Path], open_page: Open) -> None:
    labels: dict[str, list[str]] = {}
    for task, folder in datasets.items():
        for drawn in open_page(folder / browse.NAME, "view=pairs").execute_script(READ_MAPS):
            labels[drawn["map"]] = drawn["labels"]
            values = [sorted({cell[i] for cell in drawn["cells"]}) for i in (0, 1)]
            lengths = {"spatiality": (6, 6), "cardinality": (7, 6), "quantifiers": (5, 5), "comparison": (9, 9)}[task]
            assert tuple(map(len, values)) == lengths
    assert labels["horizontal"] == ["column of the second object", "column of the first object"]
    assert labels["queried objects × their number in the scene"] == ["their number in the scene", "queried objects"]
    assert list(labels)[3:-1] == ["all", "not all", "none", "some", "only", "not only"]
    assert labels["not all"] == ["objects in the first set only", "objects in both sets"]


def test_cells_are_reached_by_keyboard_and_lead_to_their_examples(datasets: dict[str, Path], open_page: Open) -> None:
    rows = rows_of(datasets["spatiality"])
    driver = open_page(datasets["spatiality"] / browse.NAME, "view=pairs")
    stops = (
        "return [...document.querySelectorAll('.map table')].map((t) => t.querySelectorAll('a[tabindex=\"0\"]').length)"
    )
    assert driver.execute_script(stops) == [1] * 8
    driver.execute_script("document.querySelector('.map a[tabindex=\"0\"]').focus()")
    assert "horizontal A B in train" in str(driver.switch_to.active_element.get_attribute("title"))
    driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    driver.switch_to.active_element.send_keys(Keys.ARROW_LEFT)  # over the empty B B
    assert "horizontal B A in train" in str(driver.switch_to.active_element.get_attribute("title"))
    assert driver.execute_script(stops) == [1] * 8
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    until(driver, lambda: card_ids(driver))
    found = {i for i, row in rows.items() if row["split"] == "train" and row["pair"] == ["horizontal", "B", "A"]}
    assert set(every_page(driver)) == found
    assert driver.switch_to.active_element.text == "Examples"  # the focus is not lost in what went away


# Examples --------------------------------------------------------------------------------------------------------


def test_header_says_what_the_dataset_is(datasets: dict[str, Path], open_page: Open) -> None:
    folder = datasets["comparison"]
    manifest = json.loads((folder / "dataset.json").read_text())
    driver = open_page(folder / browse.NAME)
    assert driver.find_element(By.TAG_NAME, "h1").text == "comparison"
    head = driver.find_element(By.TAG_NAME, "header").text
    assert manifest["content_digest"] in head
    assert "6 × 6" in head and "red, blue, green, yellow, orange" in head
    for split, counts in manifest["splits"].items():
        tile = driver.find_element(By.CSS_SELECTOR, f".tile[data-split={split}]").text.split()
        false = counts["rows"] - counts["true"]
        assert tile[:6] == [split, str(counts["rows"]), str(counts["true"]), "true", str(false), "false"]
    driver.find_element(By.CSS_SELECTOR, "#settings summary").click()
    assert "world.columns\n6" in driver.find_element(By.ID, "settings").text


READ_CARDS = """
const texts = (card, what) => [...card.querySelectorAll(what)].map((element) => element.textContent);
return [...document.querySelectorAll(".card")].map((card) => [
  card.dataset.id, card.querySelector(".query").firstChild.textContent.trim(), ...texts(card, ".answer"),
  ...texts(card, ".caption"), texts(card, ".meta > *"), texts(card, "mark"), card.querySelectorAll(".ring").length,
  [...card.querySelectorAll("tbody tr")].map((line) => texts(line, "td")),
]);
"""


@pytest.mark.parametrize("task", TASKS)
def test_cards_show_their_rows(task: str, datasets: dict[str, Path], open_page: Open) -> None:
    rows = rows_of(datasets[task])
    driver = open_page(datasets[task] / browse.NAME)
    cards = driver.execute_script(READ_CARDS)
    assert len(cards) == 24
    for name, query, answer, caption, about, marked, rings, table in cards:
        row = rows[name]
        assert [query, answer] == [row["query"], "✓ True" if row["answer"] else "✗ False"]
        assert caption == row["caption"]
        assert about == [" ".join(row["pair"]), row["split"], name]
        where = [f"{'ABCDEF'[o['column']]} {o['row'] + 1}" for o in row["objects"]]
        lines = [f"{o['colour']} {o['shape']} at {w}" for o, w in zip(row["objects"], where, strict=True)]
        assert marked == [text for text, o in zip(lines, row["objects"], strict=True) if o["queried"]]
        assert rings == len(marked) >= 1
        assert table == [
            [o["colour"], o["shape"], w, "yes" if o["queried"] else ""]
            for o, w in zip(row["objects"], where, strict=True)
        ]


@pytest.mark.parametrize("task", TASKS)
def test_pictures_load_and_rings_lie_around_the_queried_objects(
    task: str, datasets: dict[str, Path], open_page: Open
) -> None:
    rows = rows_of(datasets[task])
    driver = open_page(datasets[task] / browse.NAME)
    until(driver, lambda: driver.execute_script("return [...document.images].every((i) => i.complete)"))
    found = driver.execute_script("""
      return [...document.querySelectorAll(".card")].map((card) => {
        const box = card.querySelector("img").getBoundingClientRect();
        const rings = [...card.querySelectorAll(".ring")].map((ring) => ring.getBoundingClientRect());
        return [card.dataset.id, card.querySelector("img").naturalWidth, rings.map((r) =>
          [(r.top + r.height / 2 - box.top) / box.height, (r.left + r.width / 2 - box.left) / box.width])];
      });""")
    assert len(found) == 24
    for name, width, rings in found:
        assert width == 96
        cells = {(int(6 * y), int(6 * x)) for y, x in rings}
        assert cells == {(o["row"], o["column"]) for o in rows[name]["objects"] if o["queried"]}
    driver.find_element(By.NAME, "marks").click()
    until(driver, lambda: not driver.find_elements(By.CSS_SELECTOR, ".ring"))


def test_filters_show_what_they_say(datasets: dict[str, Path], open_page: Open) -> None:
    rows = rows_of(datasets["quantifiers"])

    def wanted(keep: Callable[[Row], bool]) -> set[str]:
        return {name for name, row in rows.items() if keep(row)}

    driver = open_page(datasets["quantifiers"] / browse.NAME)
    everything = every_page(driver)
    assert len(everything) == len(rows) and set(everything) == set(rows)

    def choose(name: str, value: str) -> set[str]:
        driver.execute_async_script(USE, name, value)
        return set(every_page(driver))

    assert choose("split", "test_ood") == wanted(lambda r: r["split"] == "test_ood")
    assert choose("answer", "true") == wanted(lambda r: r["split"] == "test_ood" and r["answer"])
    assert choose("answer", "false") == wanted(lambda r: r["split"] == "test_ood" and not r["answer"])
    pair = next(r["pair"] for r in rows.values() if r["split"] == "test_ood" and not r["answer"])
    found = wanted(lambda r: r["split"] == "test_ood" and not r["answer"] and r["pair"] == pair)
    assert choose("pair", " ".join(pair)) == found != set()
    driver.find_element(By.CSS_SELECTOR, "button[type=reset]").click()
    until(driver, lambda: driver.current_url.endswith("#"))
    assert choose("text", "STAR objects are red") == wanted(lambda r: "star objects are red" in r["query"])
    for key in "no such words":
        driver.find_element(By.NAME, "text").send_keys(key)
    until(driver, lambda: not card_ids(driver))
    assert driver.find_element(By.NAME, "text").get_attribute("value") == "STAR objects are redno such words"
    assert "Clear a filter" in driver.find_element(By.ID, "cards").text


def test_the_hash_keeps_the_state(datasets: dict[str, Path], open_page: Open) -> None:
    driver = open_page(datasets["spatiality"] / browse.NAME, "split=train&text=above&page=2")
    assert Select(driver.find_element(By.NAME, "split")).first_selected_option.text == "train"
    assert driver.find_element(By.NAME, "text").get_attribute("value") == "above"
    second = card_ids(driver)
    driver.refresh()
    assert card_ids(driver) == second and "page 2 of" in driver.page_source
    driver.find_element(By.CSS_SELECTOR, "[data-view=pairs]").click()
    until(driver, lambda: driver.find_elements(By.CSS_SELECTOR, ".map"))
    driver.back()
    until(driver, lambda: driver.find_element(By.ID, "examples").is_displayed())
    assert card_ids(driver) == second
    for wild, shown in {"page=-7&text=left": 24, "split=nowhere": 0, "%E0%A4%A": 24, "view=&pair=<img>": 0}.items():
        assert len(card_ids(open_page(datasets["spatiality"] / browse.NAME, wild))) == shown


# Baselines -------------------------------------------------------------------------------------------------------

LOOKS: dict[str, Callable[[Row], Any]] = {
    "query alone": lambda row: row["query"],
    "query and number of objects": lambda row: (row["query"], len(row["objects"])),
}


def reached(rows: list[Row], split: str, look: Callable[[Row], Any]) -> float:
    """Accuracy, in percent, of the answer that is most frequent in train for what a rule looks at."""
    trained: dict[Any, Counter[bool]] = {}
    for row in rows:
        if row["split"] == "train":
            trained.setdefault(look(row), Counter())[row["answer"]] += 1
    right = []
    for row in rows:
        if row["split"] == split:
            counts = trained.get(look(row), Counter())
            same, other = counts[row["answer"]], counts[not row["answer"]]
            right.append(0.5 if same == other else float(same > other))
    return 100 * sum(right) / len(right)


def test_baselines_are_shown_for_each_split_but_train(tmp_path: Path, open_page: Open) -> None:
    count = Count(train=2000, validation=400, test_ind=400, test_ood=400)
    released = Cardinality(
        preset="released", held_out={"pentagon": [2, 5]}, distractors=[1, 3], count=count, image=Image(cell=16)
    )
    folder = generated(tmp_path / "released", released)
    rows = list(rows_of(folder).values())
    due = {
        split: {name: reached(rows, split, look) for name, look in LOOKS.items()}
        for split in ("validation", "test_ind", "test_ood")
    }
    for split, best in best_unbound(score_baselines(folder)).items():
        due[split]["best unbound"] = best.accuracy
    assert due["test_ind"]["query and number of objects"] > 60 > 51 > due["test_ind"]["query alone"]
    assert browse.main([str(folder), "--examples", "4"]) == 0
    driver = open_page(folder / browse.NAME)
    tiles = driver.execute_script("""
      return [...document.querySelectorAll(".tile")].map((tile) => [tile.dataset.split,
        [...tile.querySelectorAll(".rules div")].map((line) => [...line.children].map((e) => e.textContent))]);""")
    assert dict(tiles).keys() == {"train", *due} and not dict(tiles)["train"]
    for split, lines in tiles:
        shown = {name: float(text.removesuffix(" %")) for name, text in lines}
        assert shown == pytest.approx(due.get(split, {}), abs=0.051)
    assert "fitted on train" in driver.find_element(By.ID, "baselines").text


def test_without_a_train_split_there_are_no_baselines(tmp_path: Path, open_page: Open) -> None:
    config = Cardinality(count=Count(train=0, validation=0, test_ind=0, test_ood=60), image=Image(cell=16))
    folder = generated(tmp_path / "d", config)
    assert browse.main([str(folder)]) == 0
    driver = open_page(folder / browse.NAME)
    assert not driver.find_elements(By.CSS_SELECTOR, ".rules")
    assert not driver.find_element(By.ID, "baselines").is_displayed()


# Couples and axes ------------------------------------------------------------------------------------------------

READ_COUPLES = """
const texts = (card) => [".query", ".answer"].map((what) => card.querySelector(what).firstChild.textContent.trim());
return [...document.querySelectorAll(".couple")].map((couple) =>
  [...couple.querySelectorAll(".card")].map((card) => [card.dataset.id, ...texts(card)]));
"""


@pytest.mark.parametrize("task", TASKS)
def test_couples_stand_side_by_side_the_true_one_first(task: str, datasets: dict[str, Path], open_page: Open) -> None:
    rows = rows_of(datasets[task])
    driver = open_page(datasets[task] / browse.NAME, "split=test_ood")
    driver.find_element(By.NAME, "couples").click()
    until(driver, lambda: driver.find_elements(By.CSS_SELECTOR, ".couple"))
    for answer in ("", "false"):  # a couple is shown where either of its examples matches
        if answer:
            driver.execute_async_script(USE, "answer", answer)
        couples = driver.execute_script(READ_COUPLES)
        assert len(couples) == 24
        for (first, query, true), (second, other, false) in couples:
            assert (true, false) == ("✓ True", "✗ False") and rows[first]["answer"] and not rows[second]["answer"]
            assert query == other == rows[first]["query"] == rows[second]["query"]
            numbers = sorted(int(name[-8:]) for name in (first, second))
            assert numbers[0] % 2 == 0 and numbers[1] == numbers[0] + 1
    assert "of 60 matching couples" in driver.find_element(By.ID, "status").text
    boxes = driver.execute_script("""
      const pictures = document.querySelector(".couple").querySelectorAll("img");
      return [...pictures].map((picture) => picture.getBoundingClientRect().toJSON());""")
    assert boxes[0]["top"] == boxes[1]["top"] and boxes[0]["right"] <= boxes[1]["left"]


@pytest.mark.usefixtures("no_rules")
def test_couples_across_files_and_in_a_sample_are_whole(tmp_path: Path) -> None:
    """Files of an odd number of rows cut couples in two."""
    config = TASKS["comparison"]
    write(tmp_path / "d", config, rows_per_shard=37)
    shown = page_data(browse.page(tmp_path / "d", 30))["examples"]
    assert len(shown) == 4 * 30
    for first, second in zip(shown[::2], shown[1::2], strict=True):
        assert first["couple"] == second["couple"] and first["query"] == second["query"]
        assert first["answer"] != second["answer"] and int(first["id"][-8:]) // 2 == int(second["id"][-8:]) // 2
    assert len({example["couple"] for example in shown}) == len(shown) // 2
    assert len(page_data(browse.page(tmp_path / "d", 1))["examples"]) == 4


@pytest.mark.usefixtures("no_rules")
def test_data_without_couples_offer_none(tmp_path: Path, open_page: Open) -> None:
    folder = generated(tmp_path / "mixed", TASKS["cardinality"])
    for name in ("dataset.json", "README.md"):
        (folder / name).unlink()
    for path in folder.glob("*.parquet"):
        table = pq.read_table(path)
        pq.write_table(table.take(np.random.default_rng(0).permutation(table.num_rows)), path)
    assert browse.main([str(folder), "--out", str(tmp_path / browse.NAME)]) == 0
    assert {example["couple"] for example in page_data((tmp_path / browse.NAME).read_text())["examples"]} == {None}
    driver = open_page(tmp_path / browse.NAME, "couples=1")
    assert len(card_ids(driver)) == 24 and not driver.find_elements(By.CSS_SELECTOR, ".couple")
    assert not driver.find_element(By.NAME, "couples").is_displayed()


READ_AXES = """
const box = document.querySelector(".card img").getBoundingClientRect();
function centre(e) {
  const place = e.getBoundingClientRect(), [x, y] = [place.left + place.width / 2, place.top + place.height / 2];
  return [e.textContent, (x - box.left) / box.width, (y - box.top) / box.height];
}
return ["columns", "rows"].map((name) => [...document.querySelector(`.card .${name}`).children].map(centre));
"""


@pytest.mark.parametrize("width", [360, 1280])
def test_axis_letters_stand_beside_their_columns_and_rows(
    width: int, datasets: dict[str, Path], open_page: Open
) -> None:
    driver = open_page(datasets["spatiality"] / browse.NAME, "", width)
    assert not driver.find_elements(By.CSS_SELECTOR, ".axes")
    driver.find_element(By.NAME, "axes").click()
    until(driver, lambda: len(driver.find_elements(By.CSS_SELECTOR, ".card .axes")) == 24)
    columns, rows = driver.execute_script(READ_AXES)
    assert [name for name, *_ in columns] == list("ABCDEF") and [name for name, *_ in rows] == list("123456")
    for place, (_, x, y) in enumerate(columns):
        assert x == pytest.approx((place + 0.5) / 6, abs=0.01) and y < 0
    for place, (_, x, y) in enumerate(rows):
        assert y == pytest.approx((place + 0.5) / 6, abs=0.01) and x < 0


# Trust -----------------------------------------------------------------------------------------------------------

HOSTILE = (
    "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
    "</script <!-- {{data}} \u2028 \\ \"'` & ${1}\n"
)


@pytest.mark.usefixtures("no_rules")
def test_hostile_text_is_shown_and_does_nothing(tmp_path: Path, open_page: Open) -> None:
    folder = generated(tmp_path / "<img src=x onerror=window.hacked=3> {{data}} &amp;", TASKS["cardinality"])
    for path in folder.glob("*.parquet"):
        rows = pq.read_table(path).to_pylist()
        for row in rows:
            for name in ("id", "caption", "query"):
                row[name] += HOSTILE
            row["pair"][0] = HOSTILE
            for o in row["objects"]:
                o |= {"colour": HOSTILE, "shape": "(((", "row": -5, "column": 2**31 - 1}
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)
    manifest = json.loads((folder / "dataset.json").read_text())
    manifest["content_digest"] = manifest["config"][HOSTILE] = manifest["config"]["world"]["colours"] = HOSTILE
    (folder / "dataset.json").write_text(json.dumps(manifest))
    assert browse.main([str(folder)]) == 0
    for view in ("examples", "pairs"):
        driver = open_page(folder / browse.NAME, f"view={view}")
        driver.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert driver.execute_script("return [window.hacked, document.scripts.length]") == [None, 2]
        assert driver.execute_script("return [...document.images].every((i) => i.src.startsWith('data:'))")
        assert driver.execute_script("return document.body.textContent").count("window.hacked = 2") > 20
    assert driver.find_element(By.TAG_NAME, "h1").text == folder.name


def test_the_page_runs_no_script_but_its_own_and_loads_nothing(datasets: dict[str, Path], chrome: Any) -> None:
    path = datasets["spatiality"] / browse.NAME
    mended = path.with_name("with-a-hole.html")
    mended.write_text(
        path.read_text().replace("</body>", "<script>window.hacked = 1</script><img src='http://x.invalid/'>")
    )
    load(chrome, mended.as_uri())
    refused = complaints(chrome)
    assert chrome.execute_script("return window.hacked") is None and len(card_ids(chrome)) == 24
    assert len(refused) == 2 and all("Content Security Policy" in message for message in refused)
    load(chrome, path.as_uri())
    loaded = chrome.execute_script("return performance.getEntriesByType('resource').map((e) => e.name.slice(0, 5))")
    assert set(loaded) <= {"data:"}
    mended.unlink()


# How it looks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [360, 760, 1280])
@pytest.mark.parametrize("task", TASKS)
def test_nothing_sticks_out_of_the_screen(task: str, width: int, datasets: dict[str, Path], open_page: Open) -> None:
    for view in ("examples", "pairs"):
        driver = open_page(datasets[task] / browse.NAME, f"view={view}&couples=1&axes=1", width)
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    inner = "return [...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth).length"
    assert driver.execute_script(inner) == 0  # no map of the paper's world needs to be scrolled


CONTRASTS = """
const light = (css) => {
  const parts = css.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255);
  const [r, g, b] = parts.map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
};
const map = document.querySelector(".map");
return arguments[0].map((name) => {
  const probe = map.appendChild(document.createElement("span"));
  probe.className = name;
  const { color, backgroundColor } = getComputedStyle(probe);
  const back = light(backgroundColor === "rgba(0, 0, 0, 0)" ? getComputedStyle(map).backgroundColor : backgroundColor);
  const [a, b] = [light(color), back].sort((x, y) => y - x);
  probe.remove();
  return [(a + .05) / (b + .05), back];
});
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_can_be_read_on_every_step_of_the_scale(
    scheme: str, datasets: dict[str, Path], open_page: Open
) -> None:
    driver = open_page(datasets["cardinality"] / browse.NAME, "view=pairs", scheme=scheme)
    steps = [f"s{step}" for step in range(1, 8)]
    found = driver.execute_script(CONTRASTS, [*steps, "answer true", "answer false", "muted", "warn"])
    assert all(contrast >= 4.5 for contrast, _ in found)
    lights = [light for _, light in found[: len(steps)]]
    assert lights == sorted(lights, reverse=scheme == "light")  # told apart by lightness alone


# Other worlds and layouts ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_rules")
def test_wide_worlds(tmp_path: Path, open_page: Open) -> None:
    count, world = Count(train=300, validation=0, test_ind=0, test_ood=0), World(columns=26, rows=30)
    config = Spatiality(count=count, world=world, image=Image(cell=8))
    folder = generated(tmp_path / "wide", config)
    assert browse.main([str(folder), "--examples", "30"]) == 0
    driver = open_page(folder / browse.NAME, "view=pairs")
    wanted = Counter(tuple(row["pair"]) for row in rows_of(folder).values())
    maps = driver.execute_script(READ_MAPS)
    shown = {(m["map"], row, column): int(text) for m in maps for row, column, text, *_ in m["cells"] if text}
    assert shown == wanted
    sample = {i["pair"] for i in page_data((folder / browse.NAME).read_text())["examples"]}
    left_out = next(pair for pair in wanted if " ".join(pair) not in sample)
    driver = open_page(folder / browse.NAME, f"pair={'+'.join(left_out)}")
    assert f"has {wanted[left_out]} such examples" in driver.find_element(By.ID, "cards").text


@pytest.mark.usefixtures("no_rules")
@pytest.mark.parametrize("query_by", ["colour", "both"])
def test_attributes_keep_the_order_of_the_world(query_by: str, tmp_path: Path) -> None:
    count = Count(train=800, validation=0, test_ind=0, test_ood=800)
    config = Cardinality(query_by=query_by, count=count, image=Image(cell=8))
    generated(tmp_path / "data", config)
    shown = page_data(browse.page(tmp_path / "data", examples=0))
    assert shown["maps"][0]["rows"] == config.world.attributes(query_by)
    assert shown["examples"] == []


def test_axes_without_end_are_not_drawn() -> None:
    pairs: set[browse.Pair] = {("comparison", str(n), "1") for n in range(browse.LONGEST + 1)}
    (drawn,) = browse.heat_maps("comparison", pairs)
    assert drawn["rows"] == drawn["columns"] == []
    (drawn,) = browse.heat_maps("comparison", pairs - {("comparison", str(browse.LONGEST), "1")})
    assert len(drawn["rows"]) == browse.LONGEST and drawn["columns"] == ["1"]


@pytest.mark.usefixtures("no_rules")
def test_a_dataset_without_a_manifest_has_a_page_elsewhere(tmp_path: Path) -> None:
    folder = generated(tmp_path / "published", TASKS["comparison"])
    wanted = page_data(browse.page(folder))
    for name in ("dataset.json", "README.md"):
        (folder / name).unlink()
    with pytest.raises(cli.UsageError, match="--out"):  # nothing of ours goes into others' data unasked
        browse.main([str(folder)])
    out = tmp_path / browse.NAME
    assert browse.main([str(folder), "--out", str(out)]) == 0
    shown = page_data(out.read_text())
    assert shown["splits"] == wanted["splits"] and shown["examples"] == wanted["examples"] and not shown["settings"]


@pytest.mark.usefixtures("no_rules")
def test_pairs_on_both_sides_are_pointed_out(tmp_path: Path, open_page: Open) -> None:
    folder = generated(tmp_path / "leaky", TASKS["cardinality"])
    shutil.copy(folder / "train-00000-of-00001.parquet", folder / "test_ood-00000-of-00001.parquet")
    manifest = json.loads((folder / "dataset.json").read_text())
    manifest["splits"]["test_ood"] = manifest["splits"]["train"]
    (folder / "dataset.json").write_text(json.dumps(manifest))
    assert browse.main([str(folder)]) == 0
    driver = open_page(folder / browse.NAME, "view=pairs")
    assert "28 of the pairs of test_ood are in other splits too" in driver.find_element(By.CSS_SELECTOR, ".warn").text
    assert driver.find_elements(By.CSS_SELECTOR, "td.shared")


# The sample and the file -----------------------------------------------------------------------------------------


def test_the_sample_is_spread_over_pairs_and_answers() -> None:
    numbers = random.Random(1)
    for seed in "abcdefgh":
        kinds = [((str(numbers.randrange(9)),), numbers.random() < 0.3) for _ in range(200)]
        chosen = browse.spread(kinds, 40, seed)
        shown, there = Counter(kinds[row] for row in chosen), Counter(kinds)
        most = max(shown.values())
        assert len(set(chosen)) == 40 and all(shown[kind] >= min(count, most - 1) for kind, count in there.items())


@pytest.mark.usefixtures("no_rules")
def test_the_same_seed_gives_the_same_page(datasets: dict[str, Path]) -> None:
    first = browse.page(datasets["spatiality"], 30, seed=3)
    assert browse.page(datasets["spatiality"], 30, seed=3) == first
    ids = [
        {e["id"] for e in page_data(p)["examples"]} for p in (first, browse.page(datasets["spatiality"], 30, seed=4))
    ]
    assert ids[0] != ids[1] and len(ids[0]) == len(ids[1]) == 4 * 30


def test_large_and_jpeg_pictures_become_small_pngs() -> None:
    noise = random.Random(0).randbytes(900 * 600 * 3)
    image = pillow.frombytes("RGB", (900, 600), noise)
    image.paste((230, 230, 250), (0, 0, 300, 300))  # pale on white: must not vanish
    image.paste((255, 255, 255), (300, 0, 900, 600))
    for kind in ("PNG", "JPEG"):
        buffer = io.BytesIO()
        image.save(buffer, kind)
        data, size = browse.picture(buffer.getvalue(), "it")
        small = pillow.open(io.BytesIO(data))
        assert (small.format, small.size, size) == ("PNG", (384, 256), (384, 256))
        assert small.convert("RGB").getpixel((20, 20)) != small.convert("RGB").getpixel((300, 20))


@pytest.mark.usefixtures("no_rules")
def test_an_earlier_page_is_replaced_and_nothing_else(datasets: dict[str, Path], tmp_path: Path) -> None:
    folder = str(datasets["spatiality"])
    out = tmp_path / "a page, with ~ = ().html"
    assert browse.main([folder, "--out", str(out), "--examples", "1"]) == 0
    first = out.read_bytes()
    assert first.startswith(browse.MARK)
    assert browse.main([folder, "--out", str(out), "--examples", "2"]) == 0
    assert out.read_bytes() != first and list(tmp_path.iterdir()) == [out]
    out.write_text("somebody's notes")
    with pytest.raises(ValueError, match="not a page of"):
        browse.main([folder, "--out", str(out)])
    assert out.read_text() == "somebody's notes"
    with pytest.raises(ValueError, match="not a page of"):
        browse.main([folder, "--out", str(tmp_path)])
    with pytest.raises(ValueError, match="cannot be written"):
        browse.main([folder, "--out", str(tmp_path / "nowhere" / "page.html")])


def _unfinish(folder: Path) -> None:
    (folder / "dataset.json").rename(folder / UNFINISHED)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def _deepen(folder: Path) -> None:
    text = (folder / "dataset.json").read_text()
    deep = '"config": {"a": ' + 5000 * '{"a": ' + "0" + 5000 * "}" + ","
    (folder / "dataset.json").write_text(text.replace('"config": {', deep))


def _set(folder: Path, **values: Any) -> None:
    manifest = json.loads((folder / "dataset.json").read_text())
    (folder / "dataset.json").write_text(json.dumps(manifest | values))


def _rewrite(folder: Path, column: str, values: Callable[[list[Any]], list[Any]]) -> None:
    path = folder / "train-00000-of-00001.parquet"
    table = pq.read_table(path)
    place = table.schema.get_field_index(column)
    new = pa.array(values(table[column].to_pylist()), table.schema.field(column).type)
    pq.write_table(table.set_column(place, table.schema.field(column), new), path)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "gone": (shutil.rmtree, "no such folder"),
    "no dataset": (_empty, "not a dataset"),
    "unfinished": (_unfinish, "unfinished"),
    "newer": (lambda f: _set(f, format_version=99), "format version 99, not"),
    "missing rows": (lambda f: _set(f, splits={"train": {"rows": 7}}), "train has 200 rows, its manifest says 7"),
    "endless manifest": (_deepen, "damaged or missing"),
    "truncated": (lambda f: (f / "train-00000-of-00001.parquet").write_bytes(b"PAR1"), "damaged or missing"),
    "no answer": (lambda f: _rewrite(f, "answer", lambda a: [None, *a[1:]]), "column answer has a null"),
    "other task": (lambda f: _rewrite(f, "task", lambda a: ["cooking"] * len(a)), "task cardinality, cooking"),
    "odd pair": (lambda f: _rewrite(f, "pair", lambda a: [["circle"], *a[1:]]), r"pair \['circle'\]"),
    "empty pair": (lambda f: _rewrite(f, "pair", lambda a: [[], *a[1:]]), r"pair \[\]"),
    "no picture": (lambda f: _rewrite(f, "image", lambda a: [{"bytes": b"", "path": ""}] * len(a)), "not a readable"),
}


@pytest.mark.usefixtures("no_rules")
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_line_and_leaves_no_page(damage: str, datasets: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(datasets["cardinality"], folder)
    (folder / browse.NAME).unlink()
    break_it, message = DAMAGES[damage]
    break_it(folder)
    with pytest.raises(ValueError, match=message) as error:
        browse.main([str(folder)])
    assert "\n" not in str(error.value)
    assert not list(tmp_path.rglob("*.html")) and not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize(
    "arguments",
    [[], ["a", "b"], ["a", "--examples", "-1"], ["a", "--examples", "many"], ["a", "--seed", "0.5"], ["a", "--colour"]],
)
def test_wrong_usage(arguments: list[str]) -> None:
    with pytest.raises(cli.UsageError) as error:
        browse.main(arguments)
    assert "\n" not in str(error.value)


def test_command(datasets: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    command = [sys.executable, "-m", "travlr.browse", str(datasets["spatiality"]), "--out", str(tmp_path / "page.html")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and "open it in a browser" in done.stdout
    assert (tmp_path / "page.html").stat().st_mode & 0o444 == 0o444
    for arguments, status in (([str(tmp_path / "nothing")], 1), (["--examples"], 2)):
        assert called(monkeypatch, *arguments, name="travlr.browse", main=browse.main) == status
        out, err = capsys.readouterr()
        assert out == "" and one_line(err)
    with pytest.raises(SystemExit):
        browse.main(["--help"])
    assert "--examples N" in capsys.readouterr().out
