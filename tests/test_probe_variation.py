"""Vision variation: where and how large objects really are, that scores are those of what is shown, and the command."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from analysis.pasting import find_box, placed, shape_picture
from analysis.probe import variation
from analysis.probe.variation import (
    background_of,
    changes,
    place_object,
    places,
    vary,
    with_margins,
)
from train.ask.matchers.loading import ScoreFunction
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
        assert (left, top, across, down) == find_box(background, square, *place)
        assert left >= 0 and left + across <= width and top >= 0 and top + down <= height
        assert abs(across - place.size * min(width, height)) <= 0.5
        assert abs(left + across / 2 - place.x * width) <= 1 and abs(top + down / 2 - place.y * height) <= 1


@pytest.mark.parametrize("sizes", [[], [0.0], [0.2, 0.2], [0.009]])
def test_wrong_sizes_are_refused(sizes: list[float]) -> None:
    with pytest.raises(ValueError, match="sizes="):
        places(100, 100, 3, sizes)
    with pytest.raises(ValueError, match="grid=1"):
        places(100, 100, 1)


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


@pytest.mark.parametrize(
    ("scorer", "told"),
    [
        (lambda images, texts: np.full(len(texts), np.nan), "no finite number"),
        (lambda images, texts: np.zeros(1), "no finite number"),
        (lambda images, texts: 1 / 0, "failed: ZeroDivisionError"),
    ],
)
def test_a_scorer_that_fails_is_told_of_in_one_line(scorer: ScoreFunction, told: str) -> None:
    with pytest.raises(ValueError, match=told) as error:
        vary(scorer, WHITE, shape_picture("star", "red", 200), ["a"], places(200, 100, 2))
    assert "\n" not in str(error.value)


# Pictures ------------------------------------------------------------------------------------------------------------


def test_transparent_parts_show_the_background(tmp_path: Path) -> None:
    thing = Image.new("RGBA", (30, 30), (0, 0, 0, 0))
    thing.paste((*COLOURS["red"], 255), (10, 10, 20, 30))
    thing.save(tmp_path / "thing.png")
    cut = place_object(str(tmp_path / "thing.png"))
    assert cut.size == (10, 20)
    shown = placed(Image.new("RGB", (100, 100), "green"), cut, 0.5, 0.5, 0.4)
    assert reds(shown) == (40, 30, 20, 40)
    circle = placed(Image.new("RGB", (100, 100), (0, 128, 0)), shape_picture("circle", "red", 200), 0.5, 0.5, 1.0)
    assert circle.getpixel((1, 1)) == (0, 128, 0) and circle.getpixel((50, 50)) == COLOURS["red"]


def test_what_is_no_picture_is_told(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    Image.new("RGB", (5, 5)).save(tmp_path / "elsewhere/thing.png")
    (tmp_path / "link.png").symlink_to(tmp_path / "elsewhere/thing.png")
    assert place_object(str(tmp_path / "link.png")).size == (5, 5)
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"0" * 30)
    Image.new("RGBA", (5, 5), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    for name, told in (("broken.png", "--object"), ("missing.png", "is not there"), ("clear.png", "transparent")):
        with pytest.raises(ValueError, match=told) as error:
            place_object(str(tmp_path / name))
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


# The command ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def injected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The oracle in the place of a model; the names that were asked for."""
    asked: list[str] = []

    def load(name: str, **_: object) -> ScoreFunction:
        asked.append(name)
        return oracle

    monkeypatch.setattr("train.ask.matchers.loading.load_matcher", load)
    return asked


def test_the_command_writes_all_files(
    injected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a folder"
    arguments = ["--model", "toy", "--grid", "2", "--sizes", "0.3", "--out", str(out)]
    variation.main(arguments)
    assert injected == ["toy"]
    lines = capsys.readouterr().out
    names = {"variation.csv", "variation.md", "variation.svg", "variation.png", "variation.json"}
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
    variation.main([*arguments, "--sizes", "0.2", "0.3"])  # over the files of before
    assert len(pd.read_csv(out / "variation.csv")) == 2 * 4 * 2


def test_the_command_takes_files_and_refuses_nonsense(injected: list[str], tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), COLOURS["red"]).save(tmp_path / "thing.png")
    Image.new("L", (90, 60), 255).save(tmp_path / "ground.png")
    pictures = ["--object", str(tmp_path / "thing.png"), "--background", str(tmp_path / "ground.png")]
    base = ["--model", "toy", "--grid", "2", "--sizes", "0.5", "--out", str(tmp_path / "out")]
    for arguments, problem in (
        ([*base, *pictures], "--sentence"),
        ([*base, "--object", "circle red"], "--object circle red"),
        ([*base, *pictures, "--sentence", "a", "--sentence", "a"], "--sentence"),
        ([*base, *pictures, "--sentence", "red", "--sizes", "2"], "sizes=2.0"),
    ):
        with pytest.raises(ValueError, match=problem):
            variation.main(arguments)
    assert injected == []
    variation.main([*base, *pictures, "--sentence", "red"])
    assert "| red | " in (tmp_path / "out/variation.md").read_text()
    assert "nan" not in (tmp_path / "out/variation.md").read_text()  # no place is in the centre
    frame = pd.read_csv(tmp_path / "out" / "variation.csv")
    assert len(frame) == 4 and set(frame["sentence"]) == {"red"}
