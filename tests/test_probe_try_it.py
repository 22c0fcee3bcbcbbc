"""The page to try a model: what its functions make."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from analysis.pasting import placed, shape_picture
from analysis.probe.try_it import (
    compare_sentences,
    composed,
    heat_map_picture,
    launch,
    main,
    page,
)
from travlr.scene import COLOURS, SHAPES


def redness(images: Any, texts: Any) -> Any:
    """The part of red pixels, negative for a text without `red`."""
    distinct = {id(image): image for image in images}
    parts = {key: (np.asarray(image) == COLOURS["red"]).all(-1).mean() for key, image in distinct.items()}
    return [parts[id(image)] * (1 if "red" in text else -1) for image, text in zip(images, texts, strict=True)]


@pytest.fixture(scope="module", autouse=True)
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where Gradio keeps pictures."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("gradio")
        patch.setenv("GRADIO_TEMP_DIR", str(folder))
        yield folder


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
            (str(tmp_path / "notes.png"), r"notes\.png: is no picture"),
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


def test_wrong_options_are_usage(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main([])
    with pytest.raises(ValueError, match="--port 0: must be 1 to 65535"):
        main(["--model", "x:y", "--port", "0"])
    with pytest.raises(ValueError, match="must be a folder"):
        main(["--model", str(tmp_path / "absent")])


def test_launch_serves_this_computer_alone() -> None:
    made = page(["redness"], lambda name: redness)
    address = launch(made, None, block=False)
    assert address.startswith("http://127.0.0.1:")
    port = int(address.rstrip("/").rpartition(":")[2])
    with pytest.raises(ValueError, match=f"--port: {port} is not free"):
        launch(page(["redness"], lambda name: redness), port, block=False)
    made.close(verbose=False)
