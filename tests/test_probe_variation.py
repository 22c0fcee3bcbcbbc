"""Vision variation: where and how large objects really are, that scores are those of what is shown, and the command."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.text import Text
from PIL import Image

from analysis.probe import variation
from analysis.probe.corpora.items import Scorer
from analysis.probe.scenes.pasting import box_of, placed, shape_picture
from analysis.probe.variation import (
    background_of,
    changes,
    object_of,
    places,
    plot,
    sheet,
    vary,
    with_margins,
    write,
)
from tests.helpers import hashes
from travlr import cli, files
from travlr.scene import COLOURS

RED = np.array(COLOURS["red"])
WHITE = Image.new("RGB", (200, 100), "white")


def reds(picture: Image.Image) -> tuple[int, int, int, int]:
    """Left, top, width and height of what is red."""
    near = np.abs(np.asarray(picture).astype(int) - RED).max(axis=2) < 60
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


@settings(max_examples=60)
@given(
    width=st.integers(60, 300),
    height=st.integers(60, 300),
    grid=st.integers(2, 7),
    sizes=st.lists(st.sampled_from([0.1, 0.2, 0.35, 0.5, 0.8]), min_size=1, max_size=3, unique=True),
)
def test_objects_are_whole_and_where_they_should_be(width: int, height: int, grid: int, sizes: list[float]) -> None:
    where = places(width, height, grid, sizes)
    assert len(where) == grid * grid * len(sizes)
    by_size = {size: [(p.x, p.y) for p in where if p.size == size] for size in sizes}
    assert all(points == by_size[sizes[0]] for points in by_size.values())
    square = Image.new("RGB", (40, 40), COLOURS["red"])
    background = Image.new("RGB", (width, height), "white")
    for place in where[:: max(1, len(where) // 12)]:
        left, top, across, down = reds(placed(background, square, *place))
        assert (left, top, across, down) == box_of(background, square, *place)
        assert left >= 0 and left + across <= width and top >= 0 and top + down <= height
        assert abs(across - place.size * min(width, height)) <= 0.5
        assert abs(left + across / 2 - place.x * width) <= 1 and abs(top + down / 2 - place.y * height) <= 1


def test_the_grid_goes_from_margin_to_margin_through_the_centre() -> None:
    where = places(672, 672)
    assert {(p.x, p.y) for p in where} >= {(0.5, 0.5), (0.15, 0.15), (0.85, 0.15)}

    def none(images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        return np.zeros(len(texts))

    frame = vary(none, Image.new("RGB", (672, 672), "white"), shape_picture("circle", "red", 200), ["red"], where)
    assert set(frame["location"]) == {"center", "mid", "margin"}
    assert set(frame["size_class"]) == {"small", "medium", "large"}


@pytest.mark.parametrize("sizes", [[], [0.0], [1.0], [0.2, 0.2], [-0.1], [math.nan]])
def test_wrong_sizes_are_refused(sizes: list[float]) -> None:
    with pytest.raises(ValueError, match="sizes="):
        places(100, 100, 3, sizes)
    with pytest.raises(ValueError, match="grid=1"):
        places(100, 100, 1)


def test_a_size_of_less_than_a_pixel_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("sizes=0.009: is less than a pixel of a background of 200 x 100")):
        places(200, 100, 2, [0.5, 0.009])
    assert places(200, 100, 2, [0.5, 0.01])


def test_scores_are_those_of_what_is_shown() -> None:
    square = Image.new("RGB", (40, 40), COLOURS["red"])
    where = places(*WHITE.size, 3, [0.4, 0.2])
    frame = vary(oracle, WHITE, square, ["red", "blue"], where)
    assert len(frame) == 2 * 9 * 2
    for row in frame.itertuples():
        side = round(row.size * 100)
        value = 1000 * side * side / 20_000 - (round(row.x * 200 - side / 2) + side / 2) / 200
        assert row.score == pytest.approx(value if row.sentence == "red" else -value)
        box = (round(row.x * 200 - side / 2), round(row.y * 100 - side / 2))
        away = math.hypot(box[0] + side / 2 - 100, box[1] + side / 2 - 50) / math.hypot(100, 50)
        assert row.distance == pytest.approx(away)
        assert row.location == ("center" if away <= 1 / 3 else "mid" if away <= 2 / 3 else "margin")
    margins = with_margins(frame)
    difference = margins[margins["sentence"] == "red − blue"]
    assert difference["score"].tolist() == pytest.approx((2 * frame[frame["sentence"] == "red"]["score"]).tolist())
    table = changes(margins).set_index("sentence")
    reds_only = frame[frame["sentence"] == "red"]
    assert table.loc["red", "mean"] == pytest.approx(reds_only["score"].mean())
    small = reds_only[reds_only["size"] == 0.2]["score"].mean() - reds_only[reds_only["size"] == 0.4]["score"].mean()
    assert table.loc["red", "large to small"] == pytest.approx(small)
    means = {name: reds_only[reds_only["location"] == name]["score"].mean() for name in ("center", "margin")}
    assert table.loc["red", "center to margin"] == pytest.approx(means["margin"] - means["center"], nan_ok=True)


def test_sentences_of_a_picture_come_in_one_call_with_the_same_object() -> None:
    calls: list[int] = []

    def watch(images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        calls.append(len(images))
        assert all(images[n] is images[n + 1] for n in range(0, len(images), 2))
        assert list(texts) == ["a", "b"] * (len(texts) // 2)
        return np.zeros(len(texts))

    vary(watch, WHITE, shape_picture("star", "red", 200), ["a", "b"], places(200, 100))
    assert sum(calls) == 200 and max(calls) <= 2 * variation.BATCH


@pytest.mark.parametrize(
    ("scorer", "told"),
    [
        (lambda images, texts: np.full(len(texts), np.nan), "no finite number"),
        (lambda images, texts: np.zeros(1), "no finite number"),
        (lambda images, texts: 1 / 0, "failed: ZeroDivisionError"),
    ],
)
def test_a_scorer_that_fails_is_told_of_in_one_line(scorer: Scorer, told: str) -> None:
    with pytest.raises(ValueError, match=told) as error:
        vary(scorer, WHITE, shape_picture("star", "red", 200), ["a"], places(200, 100, 2))
    assert "\n" not in str(error.value)


def flat(images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
    """One score, but for rounding."""
    return 5 + 1e-7 * np.arange(len(texts))


def test_rounding_fills_no_scale_and_long_sentences_end_within_the_plot() -> None:
    sentence = "a sentence that goes on and on " * 8
    frame = vary(flat, WHITE, shape_picture("star", "red", 200), [sentence], places(200, 100, 2, [0.4]))
    figure = plot(frame, {"model": "m", "object": "o", "background": "b"})
    shades = [image for axes in figure.axes for image in axes.images] + [
        mesh for axes in figure.axes for mesh in axes.collections if mesh.get_array() is not None
    ]
    assert shades and all(high - low > 0.5 for low, high in (one.get_clim() for one in shades))
    figure.canvas.draw()
    edge = figure.bbox.width
    lines = [
        text.get_window_extent().x1 for axes in figure.axes for text in axes.findobj(Text) if "goes on" in str(text)
    ]
    assert max(lines) > edge / 2 and max(lines) <= edge


# Pictures ------------------------------------------------------------------------------------------------------------


def test_transparent_parts_show_the_background(tmp_path: Path) -> None:
    thing = Image.new("RGBA", (30, 30), (0, 0, 0, 0))
    thing.paste((*COLOURS["red"], 255), (10, 10, 20, 30))
    thing.save(tmp_path / "thing.png")
    cut = object_of(str(tmp_path / "thing.png"))
    assert cut.size == (10, 20)
    shown = placed(Image.new("RGB", (100, 100), "green"), cut, 0.5, 0.5, 0.4)
    assert reds(shown) == (40, 30, 20, 40)
    circle = placed(Image.new("RGB", (100, 100), (0, 128, 0)), shape_picture("circle", "red", 200), 0.5, 0.5, 1.0)
    assert circle.getpixel((1, 1)) == (0, 128, 0) and circle.getpixel((50, 50)) == COLOURS["red"]


@pytest.mark.parametrize("mode", ["L", "P", "RGB", "CMYK"])
def test_objects_of_any_mode_are_taken(mode: str, tmp_path: Path) -> None:
    path = tmp_path / ("thing.jpg" if mode == "CMYK" else "thing.png")
    Image.new("RGB", (8, 4), "white").convert(mode).save(path)
    assert object_of(str(path)).size == (8, 4) and object_of(str(path)).mode == "RGBA"
    assert background_of(str(path)).size == (8, 4) and background_of(str(path)).mode == "RGB"


def test_what_is_no_picture_is_told(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    Image.new("RGB", (5, 5)).save(tmp_path / "elsewhere/thing.png")
    (tmp_path / "link.png").symlink_to(tmp_path / "elsewhere/thing.png")
    assert object_of(str(tmp_path / "link.png")).size == (5, 5)
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"0" * 30)
    Image.new("RGBA", (5, 5), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    for name, told in (("broken.png", "--object"), ("missing.png", "is not there"), ("clear.png", "transparent")):
        with pytest.raises(ValueError, match=told) as error:
            object_of(str(tmp_path / name))
        assert "\n" not in str(error.value)
    for name in ("broken.png", "missing.png"):
        with pytest.raises(ValueError, match="--background"):
            background_of(str(tmp_path / name))


def test_a_scene_behind_shows_nothing_that_is_spoken_of() -> None:
    scene = background_of("scene", "red circle there is a blue star in the picture", 3)
    pixels = np.asarray(scene).reshape(-1, 3).tolist()
    shown = {tuple(pixel) for pixel in pixels}
    assert COLOURS["red"] not in shown and COLOURS["blue"] not in shown and COLOURS["green"] in shown
    assert scene != background_of("scene", "red circle", 4)
    with pytest.raises(ValueError, match="name all colours"):
        background_of("scene", " ".join(COLOURS))


def test_the_sheet_shows_every_picture() -> None:
    where = places(*WHITE.size, 3, [0.4, 0.2])
    whole = np.asarray(sheet(WHITE, Image.new("RGB", (9, 9), COLOURS["red"]), where)).astype(int)
    from scipy import ndimage

    _, number = ndimage.label(np.abs(whole - RED).max(axis=2) < 60)
    assert number == len(where)


# The command ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def injected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The oracle in the place of a model; the names that were asked for."""
    asked: list[str] = []

    def load(name: str, **_: object) -> Scorer:
        asked.append(name)
        return oracle

    monkeypatch.setattr("analysis.probe.scorers.loading.load", load)
    return asked


def test_the_command_writes_all_files(
    injected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a folder"
    arguments = ["--model", "toy", "--grid", "2", "--sizes", "0.3", "--out", str(out)]
    variation.main(arguments)
    assert injected == ["toy"]
    lines = capsys.readouterr().out
    names = {"variation.csv", "variation.md", "variation.svg", "variation.png", "pictures.png", "variation.json"}
    assert {path.name for path in out.iterdir()} == names
    frame = pd.read_csv(out / "variation.csv")
    assert len(frame) == 4 * 2
    assert frame["sentence"].unique().tolist() == [
        "there is a red circle in the picture",
        "there is a blue star in the picture",
    ]
    markdown = (out / "variation.md").read_text()
    assert markdown in lines and "toy" in markdown
    row = next(line for line in markdown.splitlines() if line.startswith("| there is a red"))
    mean = frame[frame["sentence"].str.contains("red")]["score"].mean()
    assert f"| {mean:.4g} |" in row
    svg = (out / "variation.svg").read_text()
    assert all(text in svg for text in ("size 0.3", "distance from the centre", "toy; red circle on white"))
    about = json.loads((out / "variation.json").read_text())
    assert about["seed"] == 0 and about["model"] == "toy"
    assert {"pillow", "torch", "transformers", "commit"} < set(about["versions"])
    before = hashes(out)
    with monkeypatch.context() as patch:
        patch.setattr(variation, "vary", None)  # what is finished is not scored again
        variation.main(arguments)
    lines = capsys.readouterr().out
    assert hashes(out) == before and "finished before" in lines and markdown in lines
    with monkeypatch.context() as patch, pytest.raises(ValueError, match=r"another variation \(weights="):
        patch.setattr("analysis.probe.scorers.loading.weights_of", lambda _: "others")
        variation.main(arguments)
    with pytest.raises(ValueError, match="holds another variation"):
        variation.main([*arguments, "--background", "scene"])
    assert hashes(out) == before


def test_stopped_while_it_writes_the_same_command_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.figures.panels.save", lambda *_: [])  # plots take long, and are files like any other
    thing, where = shape_picture("star", "red", 20), places(*WHITE.size, 2, [0.4])
    about = {"model": "toy", "object": "red star", "background": "white"}
    given = vary(oracle, WHITE, thing, ["red"], where), WHITE, thing, where, about
    write(tmp_path / "whole", *given)
    put = files.put_file
    for most in range(4):  # files that are written before it is stopped
        calls = iter(range(most))

        def stopping(*which: Any, calls: Any = calls) -> None:
            if next(calls, None) is None:
                raise KeyboardInterrupt
            put(*which)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(files, "put_file", stopping)
            write(tmp_path / f"stopped{most}", *given)
        write(tmp_path / f"stopped{most}", *given)
        assert hashes(tmp_path / f"stopped{most}") == hashes(tmp_path / "whole")


def test_the_command_takes_files_and_refuses_nonsense(injected: list[str], tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), COLOURS["red"]).save(tmp_path / "thing.png")
    Image.new("L", (90, 60), 255).save(tmp_path / "ground.png")
    pictures = ["--object", str(tmp_path / "thing.png"), "--background", str(tmp_path / "ground.png")]
    base = ["--model", "toy", "--grid", "2", "--sizes", "0.5", "--out", str(tmp_path / "out")]
    with pytest.raises(cli.UsageError, match=r"^--sentence: .*--sentence"):
        variation.main([*base, *pictures])
    with pytest.raises(
        ValueError, match="--object circle red: is not there; give a picture file, or a colour and a sh"
    ):
        variation.main([*base, "--object", "circle red"])
    with pytest.raises(cli.UsageError, match="--size: invalid choice"):
        variation.main([*base, "--size", "huge"])
    with pytest.raises(cli.UsageError, match="that are not empty and differ"):
        variation.main([*base, *pictures, "--sentence", "a", "--sentence", "a"])
    with pytest.raises(cli.UsageError, match="--model"):
        variation.main([])
    with pytest.raises(ValueError, match=re.escape("sizes=2.0")):
        variation.main([*base, *pictures, "--sentence", "red", "--sizes", "2"])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not empty"):
        variation.main([*base, *pictures, "--sentence", "red", "--out", str(tmp_path / "mine")])
    assert injected == []
    variation.main([*base, *pictures, "--sentence", "red"])
    assert "| red | " in (tmp_path / "out/variation.md").read_text()
    assert "nan" not in (tmp_path / "out/variation.md").read_text()  # no place is in the centre
    frame = pd.read_csv(tmp_path / "out" / "variation.csv")
    assert len(frame) == 4 and set(frame["sentence"]) == {"red"}
