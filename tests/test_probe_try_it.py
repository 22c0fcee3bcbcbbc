"""The page to try a model: what its functions make, and the page itself in a real browser without any network."""

from __future__ import annotations

import functools
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from analysis.probe import try_it
from analysis.probe.scenes.pasting import placed, scene, shape_picture
from analysis.probe.try_it import (
    FIRST,
    compare_sentences,
    composed,
    heat_map_picture,
    launch,
    main,
    page,
)
from tests.test_browse import chrome  # noqa: F401
from travlr.cli import UsageError
from travlr.scene import COLOURS, SHAPES


def redness(images: Any, texts: Any) -> Any:
    """The part of red pixels, negative for a text without `red`."""
    distinct = {id(image): image for image in images}
    parts = {key: (np.asarray(image) == COLOURS["red"]).all(-1).mean() for key, image in distinct.items()}
    return [parts[id(image)] * (1 if "red" in text else -1) for image, text in zip(images, texts, strict=True)]


def broken(images: Any, texts: Any) -> Any:
    raise TypeError("this model\nis broken")


@pytest.fixture(scope="module", autouse=True)
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where Gradio keeps pictures."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("gradio")
        patch.setenv("GRADIO_TEMP_DIR", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def kept_there(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Again after the command, which names a folder of its own."""
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(kept))


# Pictures -----------------------------------------------------------------------------------------------------------


def test_what_lies_outside_is_cut_off_and_transparency_is_white() -> None:
    thing = Image.new("RGBA", (10, 10), (0, 0, 0, 255))
    shown = np.asarray(placed(Image.new("RGBA", (100, 100), (0, 0, 0, 0)), thing, 0, 1, 0.4))
    assert (shown[80:, :20] == 0).all() and (shown[:80] == 255).all() and (shown[:, 20:] == 255).all()
    ground = Image.new("RGB", (50, 40), "blue")
    assert (np.asarray(placed(ground, None, 0.5, 0.5, 1)) == np.asarray(ground)).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_of_its_colour_and_spans_its_side(shape: str) -> None:
    pixels = np.asarray(shape_picture(shape, "green", 100))
    full = pixels[..., 3] == 255
    assert (pixels[full][:, :3] == COLOURS["green"]).all()
    sides = [np.ptp(places) + 1 for places in np.nonzero(full)]
    assert 80 <= max(sides) <= 100
    assert pixels[0, 0, 3] == 0


def test_a_scene_depends_on_its_number_alone() -> None:
    first, again, other = (np.asarray(scene(seed, size="medium")) for seed in (0, 0, 1))
    assert (first == again).all() and (first != other).any()
    cells = first.reshape(6, 112, 6, 112, 3).swapaxes(1, 2).reshape(36, -1)
    assert (cells != 255).any(1).sum() == 8


def test_controls_make_the_picture(tmp_path: Path) -> None:
    controls: list[Any] = ["white", 0, None, "shape", "square", "red", None, 0.5, 0.5, 0.5]
    red = (np.asarray(composed(*controls)) == COLOURS["red"]).all(-1)
    assert red.mean() == pytest.approx((0.5 * 0.88) ** 2, rel=0.1)
    ground, crop = str(tmp_path / "ground.png"), str(tmp_path / "crop.png")
    Image.new("RGB", (30, 20), "blue").save(ground)
    Image.new("RGB", (4, 4), "lime").save(crop)
    uploads: list[Any] = ["upload", 0, ground, "upload", "square", "red", crop, 0.5, 0.5, 0.5]
    shown = np.asarray(composed(*uploads))
    assert shown.shape == (20, 30, 3) and (shown == (0, 255, 0)).all(-1).sum() == 100
    nothing: list[Any] = ["none" if n == 3 else value for n, value in enumerate(uploads)]
    assert (np.asarray(composed(*nothing)) == (0, 0, 255)).all()
    (tmp_path / "notes.png").write_text("notes")
    for place, name in ((2, "background"), (6, "object")):
        for value, told in (
            (None, "upload a picture"),
            (str(tmp_path / "notes.png"), r"notes\.png: cannot identify.*file$"),
        ):
            wrong = list(uploads)
            wrong[place] = value
            with pytest.raises(ValueError, match=f"^{name}: {told}"):
                composed(*wrong)
    unnumbered: list[Any] = ["scene", None, *controls[2:]]
    with pytest.raises(ValueError, match="type the number"):
        composed(*unnumbered)


# Answers ------------------------------------------------------------------------------------------------------------


def test_the_answer_names_the_higher_score() -> None:
    picture = composed("white", 0, None, "shape", "square", "red", None, 0.5, 0.5, 0.5)
    a, b, verdict = compare_sentences(redness, picture, "a red square", "a blue square")
    assert a == -b > 0 and verdict == f"The first fits better, by {2 * a:.4g}."
    assert compare_sentences(redness, picture, "a blue one", "a red one")[2].startswith("The second fits better")
    assert compare_sentences(redness, picture, "red", "a red one")[2] == "Both have the same score."
    outputs: Any = functools.partial(redness)
    outputs.threshold = 0.0
    assert compare_sentences(outputs, picture, "red", "blue")[2].endswith("Above the model's threshold: first.")
    for first, second in (("", "red"), ("red", "  ")):
        with pytest.raises(ValueError, match="type two sentences"):
            compare_sentences(redness, picture, first, second)
    with pytest.raises(ValueError, match=r"the model returned .nan, 1.0. for two sentences"):
        compare_sentences(lambda images, texts: np.array([np.nan, 1.0]), picture, "a", "b")


def test_heat_maps_of_both_sentences_stand_in_one_picture() -> None:
    picture = composed("white", 0, None, "shape", "square", "red", None, 0.5, 0.5, 0.5).resize((64, 64))
    one = heat_map_picture(redness, picture, "red", "red")
    assert one.mode == "RGB" and one.height % 2 == 0
    half = np.asarray(one)
    assert (half[: one.height // 2] == half[one.height // 2 :]).all()
    assert (half[..., 0] - half[..., 2].astype(int) > 150).any(), "nothing is lit"


def test_without_gradio_it_is_told_what_to_install_before_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(ValueError, match=r"pip install -e \.\[page\]$"):
        main(["--model", "no_such_module:score"])


def test_no_picture_stays_when_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradio keeps each picture that it shows as a file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("analysis.probe.scorers.loading.load", lambda name, **settings: redness)

    def served(made: Any, port: int | None, block: bool) -> None:
        image = next(one for one in made.blocks.values() if getattr(one, "elem_id", None) == "picture")
        kept = Path(image.postprocess(Image.new("RGB", (2, 2))).path)
        assert kept.is_file() and kept.is_relative_to(tmp_path)
        raise KeyboardInterrupt

    monkeypatch.setattr(try_it, "launch", served)
    with pytest.raises(KeyboardInterrupt):
        main(["--model", "redness"])
    assert not list(tmp_path.rglob("*"))


def test_wrong_options_are_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--model"):
        main([])
    with pytest.raises(UsageError, match="--port 0: must be 1 to 65535"):
        main(["--model", "x:y", "--port", "0"])
    with pytest.raises(ValueError, match="must be a folder"):
        main(["--model", str(tmp_path / "absent")])


# The page in a browser ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def called() -> Iterator[set[str]]:
    """The addresses that this process connects to from now on."""
    addresses: set[str] = set()
    connect = socket.socket.connect

    def told(self: socket.socket, address: Any) -> None:
        addresses.add(str(address[0] if isinstance(address, tuple) else address))
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", told)
        yield addresses


@pytest.fixture(scope="module")
def served(called: set[str]) -> Iterator[str]:
    made = page(["redness", "broken"], {"redness": redness, "broken": broken}.__getitem__)
    yield launch(made, None, block=False)
    made.close(verbose=False)


def until(driver: webdriver.Chrome, wanted: Any) -> Any:
    return WebDriverWait(driver, 300, poll_frequency=0.05).until(lambda _: wanted())


def field(driver: webdriver.Chrome, name: str) -> Any:
    return driver.find_element(By.CSS_SELECTOR, f"#{name} textarea, #{name} input")


def typed(driver: webdriver.Chrome, name: str, text: str) -> None:
    element = field(driver, name)
    element.send_keys(Keys.CONTROL, "a")
    element.send_keys(text)


def asked(driver: webdriver.Chrome, first: str, second: str) -> tuple[float, float, str]:
    before = field(driver, "verdict").get_attribute("value")
    typed(driver, "first", first)
    typed(driver, "second", second)
    driver.find_element(By.ID, "ask").click()
    until(driver, lambda: field(driver, "verdict").get_attribute("value") not in ("", before))
    a, b, verdict = (field(driver, name).get_attribute("value") for name in ANSWER)
    return float(a), float(b), str(verdict)


def test_two_sentences_are_typed_and_their_scores_read(served: str, called: set[str], chrome: webdriver.Chrome) -> None:  # noqa: F811
    chrome.get("about:blank")
    chrome.get_log("browser")  # type: ignore[no-untyped-call]
    chrome.execute_cdp_cmd("Network.enable", {})
    chrome.get(served)
    until(chrome, lambda: chrome.find_elements(By.CSS_SELECTOR, "#picture img"))
    assert field(chrome, "first").get_attribute("value") == FIRST
    picture = composed("white", 0, None, "shape", "circle", "red", None, 0.5, 0.5, 0.3)
    a, b, verdict = asked(chrome, "the circle is red", "the circle is blue")
    wanted = compare_sentences(redness, picture, "the circle is red", "the circle is blue")
    assert [a, b] == pytest.approx(wanted[:2], abs=1e-4)
    assert a > 0 and verdict == wanted[2]
    heat = until(chrome, lambda: chrome.find_elements(By.CSS_SELECTOR, "#heat img"))[0]
    until(chrome, lambda: chrome.execute_script("return arguments[0].naturalWidth", heat) > 300)
    a, b, verdict = asked(chrome, "it is blue", "it is red")
    assert a < 0 < b and verdict.startswith("The second fits better")
    # Nothing but this computer was asked for anything, by the page or by the server, and nothing was missed.
    assert called <= {"127.0.0.1", "::1", "localhost"}
    names = chrome.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert names and all(name.startswith((served, "data:", "blob:")) for name in names), names
    complaints = [entry["message"] for entry in chrome.get_log("browser") if entry["level"] == "SEVERE"]  # type: ignore[no-untyped-call]
    assert complaints == []


ANSWER = ("score_first", "score_second", "verdict")


def told(driver: webdriver.Chrome) -> str:
    """The answer to what the page now shows, without waiting for heat maps."""
    driver.find_element(By.ID, "ask").click()
    return str(until(driver, lambda: field(driver, "verdict").get_attribute("value")))


def test_an_answer_goes_when_what_was_asked_changes_and_what_is_wrong_is_told(
    served: str,
    chrome: webdriver.Chrome,  # noqa: F811
) -> None:
    chrome.get(served)
    until(chrome, lambda: chrome.find_elements(By.CSS_SELECTOR, "#picture img"))
    field(chrome, "looks").click()
    changes: tuple[Callable[[], Any], ...] = (
        lambda: typed(chrome, "second", "it is green"),
        lambda: chrome.find_element(By.CSS_SELECTOR, "#background input[value=scene]").click(),
    )
    for change in changes:
        assert told(chrome).startswith("The first fits better")
        change()
        until(chrome, lambda: not any(field(chrome, name).get_attribute("value") for name in ANSWER))
    typed(chrome, "second", " ")
    assert told(chrome) == "type two sentences"
    assert field(chrome, "score_first").get_attribute("value") == ""
    assert "Error" not in chrome.find_element(By.TAG_NAME, "body").text  # which would cover the picture
    field(chrome, "model").click()
    until(chrome, lambda: chrome.find_elements(By.CSS_SELECTOR, "[role=option]"))[1].click()
    until(chrome, lambda: field(chrome, "verdict").get_attribute("value") == "")
    typed(chrome, "second", "it is red")
    assert told(chrome) == "TypeError: this model"


def test_uploads_are_offered_where_they_are_chosen_and_used(
    served: str,
    chrome: webdriver.Chrome,  # noqa: F811
    tmp_path: Path,
) -> None:
    Image.new("RGB", (60, 40), COLOURS["red"]).save(tmp_path / "red.png")
    chrome.get(served)
    until(chrome, lambda: chrome.find_elements(By.CSS_SELECTOR, "#picture img"))
    assert not chrome.find_elements(By.CSS_SELECTOR, "#uploaded")
    for group, choice in (("background", "upload"), ("object", "none")):
        chrome.find_element(By.CSS_SELECTOR, f"#{group} input[value={choice}]").click()
    file = until(chrome, lambda: chrome.find_elements(By.CSS_SELECTOR, "#uploaded input[type=file]"))[0]
    file.send_keys(str(tmp_path / "red.png"))
    wide = "return (document.querySelector('#picture img') ?? {}).naturalWidth"
    until(chrome, lambda: chrome.execute_script(wide) == 60)
    field(chrome, "looks").click()
    a, b, _ = asked(chrome, "all is red", "all is blue")
    assert (a, b) == (1.0, -1.0)


def test_only_this_computer_is_served(served: str) -> None:
    assert served.startswith("http://127.0.0.1:")
    port = int(served.rstrip("/").rpartition(":")[2])
    with pytest.raises(ValueError, match=f"^--port: {port} is not free; choose another one$"):
        launch(page(["redness"], lambda name: redness), port, block=False)
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    others = {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), port, socket.AF_INET)}
    for address in others - {"127.0.0.1"}:
        with pytest.raises(OSError):
            socket.create_connection((address, port), timeout=1)
