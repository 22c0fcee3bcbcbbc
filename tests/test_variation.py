"""Vision variation: where and how large objects are, and scores of what is shown; the page to try a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from analysis import variation
from analysis.try_it import build_page, compare_sentences, compose_picture
from analysis.variation import add_margins, background_of, draw_shape, mean_scores, paste, place_box, read_object, vary
from travlr.scene import COLOURS

WHITE = Image.new("RGB", (200, 100), "white")


def reds(picture: Image.Image) -> tuple[int, int, int, int]:
    """Left, top, width and height of what is red."""
    pixels = np.asarray(picture).astype(int)
    near = np.logical_and.reduce([np.abs(pixels[..., n] - value) < 60 for n, value in enumerate(COLOURS["red"])])
    rows, columns = np.flatnonzero(near.any(axis=1)), np.flatnonzero(near.any(axis=0))
    return int(columns[0]), int(rows[0]), int(np.ptp(columns)) + 1, int(np.ptp(rows)) + 1


def oracle(images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
    """How large what is red is, in thousandths of the picture, less how far it is right of the left margin."""
    scores = []
    for image, text in zip(images, texts, strict=True):
        left, _, width, height = reds(image)
        value = 1000 * width * height / (image.width * image.height) - (left + width / 2) / image.width
        scores.append(value if "red" in text else -value)
    return np.array(scores)


@pytest.mark.parametrize("width, height", [(100, 60), (61, 200)])
def test_vary_places_whole_objects_on_one_grid(width: int, height: int) -> None:
    square, background = Image.new("RGB", (40, 40), COLOURS["red"]), Image.new("RGB", (width, height), "white")
    frame = vary(oracle, background, square, ["red"], 3, [0.2, 0.5])
    assert len(frame) == 18 and len(frame[["x", "y"]].drop_duplicates()) == 9
    for row in frame.itertuples():
        left, top, across, down = reds(paste(background, square, row.x, row.y, row.size))
        assert (left, top, across, down) == place_box(background, square, row.x, row.y, row.size)
        assert left >= 0 and left + across <= width and top >= 0 and top + down <= height
        assert abs(across - row.size * min(width, height)) <= 0.5
        assert abs(left + across / 2 - row.x * width) <= 1 and abs(top + down / 2 - row.y * height) <= 1


def test_vary_scores_what_is_shown() -> None:
    square = Image.new("RGB", (40, 40), COLOURS["red"])
    frame = vary(oracle, WHITE, square, ["red", "blue"], 3, [0.4, 0.2])
    assert len(frame) == 2 * 9 * 2
    for row in frame.itertuples():
        side = round(row.size * 100)
        value = 1000 * side * side / 20_000 - (round(row.x * 200 - side / 2) + side / 2) / 200
        assert row.score == pytest.approx(value if row.sentence == "red" else -value)
        box = (round(row.x * 200 - side / 2), round(row.y * 100 - side / 2))
        away = math.hypot(box[0] + side / 2 - 100, box[1] + side / 2 - 50) / math.hypot(100, 50)
        assert row.distance == pytest.approx(away)
        assert row.location == ("center" if away <= 1 / 3 else "mid" if away <= 2 / 3 else "margin")
    margins = add_margins(frame)
    red = frame[frame["sentence"] == "red"]
    assert margins[margins["sentence"] == "red − blue"]["score"].tolist() == pytest.approx((2 * red["score"]).tolist())
    table = mean_scores(margins).loc["red"]
    assert table["mean"] == pytest.approx(red["score"].mean())
    assert table["size 0.2"] == pytest.approx(red[red["size"] == 0.2]["score"].mean())
    assert table["margin"] == pytest.approx(red[red["location"] == "margin"]["score"].mean(), nan_ok=True)


def test_vary_refuses_scores_that_are_no_numbers() -> None:
    with pytest.raises(ValueError, match="finite"):
        vary(lambda images, texts: np.full(len(texts), np.nan), WHITE, draw_shape("star", "red"), ["a"], 2)


def test_paste_shows_the_background_through_transparent_parts(tmp_path: Path) -> None:
    thing = Image.new("RGBA", (30, 30), (0, 0, 0, 0))
    thing.paste((*COLOURS["red"], 255), (10, 10, 20, 30))
    thing.save(tmp_path / "thing.png")
    cut = read_object(str(tmp_path / "thing.png"))
    assert cut.size == (10, 20)
    assert reds(paste(Image.new("RGB", (100, 100), "green"), cut, 0.5, 0.5, 0.4)) == (40, 30, 20, 40)
    circle = paste(Image.new("RGB", (100, 100), (0, 128, 0)), draw_shape("circle", "red"), 0.5, 0.5, 1.0)
    assert circle.getpixel((1, 1)) == (0, 128, 0) and circle.getpixel((50, 50)) == COLOURS["red"]


def test_background_scene_shows_no_colour_of_the_sentences() -> None:
    pixels = np.asarray(background_of("scene", "red circle there is a blue star in the picture", 3)).reshape(-1, 3)
    shown = set(map(tuple, pixels.tolist()))
    assert not {COLOURS["red"], COLOURS["blue"]} & shown and {COLOURS["green"], COLOURS["orange"]} & shown


def test_command_writes_scores_and_a_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(variation, "load_matcher", lambda name: lambda images, texts: np.arange(len(texts)))
    Image.new("RGB", (8, 8), COLOURS["red"]).save(tmp_path / "thing.png")
    arguments = ["--model", "toy", "--out", str(tmp_path / "out")]
    variation.main([*arguments, "--background", "green"])
    assert "there is a blue star in the picture" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"variation.csv", "variation.png"}
    assert len(pd.read_csv(tmp_path / "out/variation.csv")) == 2 * 25 * 4
    with pytest.raises(ValueError, match="--sentence"):
        variation.main([*arguments, "--object", str(tmp_path / "thing.png")])


# The page that tries a model -----------------------------------------------------------------------------------------


def test_compose_picture_prefers_what_is_uploaded(tmp_path: Path) -> None:
    Image.new("RGB", (90, 60), "green").save(tmp_path / "ground.png")
    ground = str(tmp_path / "ground.png")
    picture = compose_picture("white", 0, ground, "circle", "red", None, 0.5, 0.5, 0.5)
    assert picture.size == (90, 60) and reds(picture)[2:] == (30, 30)
    assert compose_picture("white", 0, None, "none", "red", None, 0, 0, 1).getcolors() == [(672 * 672, (255, 255, 255))]


def test_compare_sentences_names_the_higher_score() -> None:
    picture = paste(WHITE, draw_shape("circle", "red"), 0.1, 0.5, 0.8)
    first, second, verdict = compare_sentences(oracle, picture, "red", "blue")
    assert first == -second > 0 and "first" in verdict and "second" not in verdict


def test_page_answers_with_scores_and_heat_maps() -> None:
    pytest.importorskip("gradio")
    page = build_page(["toy"], lambda name: lambda images, texts: np.array([float(len(text)) for text in texts]))
    ask = next(function for function in page.fns.values() if function.name == "ask")
    answer = ask.fn("toy", "red", "blue", True, "white", 0, None, "square", "red", None, 0.5, 0.5, 0.3)
    assert answer[0].size == (672, 672) and answer[3].startswith("The ") and all(map.width > 400 for map in answer[4:])
