"""Regions and pixels are what the pictures show, whatever source they come from, and hostile files are refused."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as pillow
from PIL import ImageDraw

from render.pictures.renderer import Renderer
from scripts import train_recogniser
from train.config import RegionSettings
from train.data.pixels import MEAN, STD, Pictures
from train.regions import recogniser
from train.regions.pictures import PictureSet, grid_of
from train.regions.recogniser import features_of, recognise
from train.regions.sources import RegionTable, make_regions
from travlr import Cardinality, Count, Generator
from travlr.config import Image
from travlr.scene import COLOURS, SHAPES, SIZES, World

pytestmark = pytest.mark.usefixtures("one_thread")
SPANS = dict(zip(SIZES, Image().spans, strict=True))
EVERYTHING = World(colours=tuple(COLOURS), shapes=SHAPES, sizes=SIZES)
WORLDS = {"paper": (World(), 64), "everything": (EVERYTHING, 37), "wide": (World(columns=5, rows=2), 24)}
PAPER = Renderer(World(), 64, SPANS)
SMALL = Renderer(World(columns=3, rows=2), 16, SPANS)


def random_grid(world: World, count: int, seed: int = 0, occupied: float = 0.3) -> np.ndarray:
    random = np.random.default_rng(seed)
    kinds = random.integers(1, len(world.kinds) + 1, (count, world.cells))
    return np.where(random.random((count, world.cells)) < occupied, kinds, 0)


def scenes_of(renderer: Renderer, grid: np.ndarray) -> PictureSet:
    ids = [f"picture-{i}" for i in range(len(grid))]
    return PictureSet(ids, grid, renderer.world.rows, renderer.world.columns, renderer)


def files_of(scenes: PictureSet) -> PictureSet:
    """The same pictures, as if they came from files."""
    assert scenes.renderer is not None
    pictures = list(scenes.renderer.arrays(scenes.grid))
    return PictureSet(scenes.ids, (scenes.grid > 0).astype(int), scenes.rows, scenes.columns, decoded=lambda: pictures)


def seen(picture: np.ndarray, rows: int, columns: int) -> Iterator[tuple[tuple[int, int, int, int], np.ndarray]]:
    """Box in pixels and cell crop of each object of a picture, row by row, found pixel by pixel."""
    height, width = picture.shape[0] // rows, picture.shape[1] // columns
    for row in range(rows):
        for column in range(columns):
            crop = picture[row * height : (row + 1) * height, column * width : (column + 1) * width]
            inked = [(x, y) for y in range(height) for x in range(width) if crop[y, x].tolist() != [255, 255, 255]]
            if inked:
                across, down = zip(*inked, strict=True)
                left, top = column * width, row * height
                yield (left + min(across), top + min(down), left + max(across) + 1, top + max(down) + 1), crop


def pixels(boxes: np.ndarray, picture: np.ndarray) -> np.ndarray:
    height, width = picture.shape[:2]
    return boxes * [width, height, width, height]


# Settings ------------------------------------------------------------------------------------------------------------


# Scenes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("world", "cell"), WORLDS.values(), ids=WORLDS)
def test_scene_boxes_and_features_are_those_of_the_picture(world: World, cell: int) -> None:
    renderer = Renderer(world, cell, SPANS)
    grid = random_grid(world, 3, occupied=0.5)
    regions = make_regions(RegionSettings(), scenes_of(renderer, grid))
    features, boxes, mask = regions.take(np.arange(3))
    for i, picture in enumerate(renderer.arrays(grid)):
        truth = list(seen(picture, world.rows, world.columns))
        assert mask[i].sum() == len(truth) == (grid[i] > 0).sum()
        np.testing.assert_allclose(pixels(boxes[i, mask[i]], picture), [box for box, _ in truth], atol=1e-3)
        np.testing.assert_allclose(features[i, mask[i]], features_of(np.stack([c for _, c in truth])), atol=1e-3)
    assert regions.dimension == 2048 and len(regions) == 3
    np.testing.assert_allclose(regions.table[0], features_of(np.full((1, cell, cell, 3), 255, np.uint8))[0], atol=1e-3)


def test_make_regions_pads_with_empty_cells() -> None:
    grid = random_grid(World(), 6)
    scenes = scenes_of(PAPER, grid)
    exact, full, part = (make_regions(RegionSettings(number=n), scenes) for n in ("exact", 36, 30))
    features, boxes, mask = full.take(np.arange(6))
    assert mask.all() and mask.shape == (6, 36)
    for i, picture in enumerate(PAPER.arrays(grid)):
        own_features, own_boxes, own = (values[0] for values in exact.take([i]))
        count = len(own)
        np.testing.assert_array_equal(features[i, :count], own_features)
        np.testing.assert_array_equal(boxes[i, :count], own_boxes)
        assert (features[i, count:] == full.table[0]).all()
        cells = np.rint(pixels(boxes[i, count:], picture)).astype(int)
        assert len({tuple(cell) for cell in cells.tolist()}) == 36 - count
        for left, top, right, bottom in cells:
            assert (right - left, bottom - top) == (64, 64) and left % 64 == top % 64 == 0
            assert (picture[top:bottom, left:right] == 255).all()
        np.testing.assert_array_equal(part.take([i])[1][0], boxes[i, :30])
    most = int((grid > 0).sum(axis=1).max())
    with pytest.raises(ValueError, match=rf"regions\.number={most - 1}: .* {most} objects"):
        make_regions(RegionSettings(number=most - 1), scenes)
    few = make_regions(RegionSettings(number=36), scenes_of(SMALL, random_grid(SMALL.world, 4)))
    assert few.take([0, 1, 2, 3])[2].sum() == 4 * 6  # no more than there are cells


def test_make_regions_grid_has_every_cell() -> None:
    grid = random_grid(World(), 3)
    found = make_regions(RegionSettings(source="grid"), scenes_of(PAPER, grid))
    features, boxes, mask = found.take([2, 0, 1])
    assert mask.all() and mask.shape == (3, 36)
    for i, picture in zip((1, 2, 0), PAPER.arrays(grid), strict=True):
        crops = []
        for left, top, right, bottom in np.rint(pixels(boxes[i], picture)).astype(int):
            crops.append(picture[top:bottom, left:right])
        np.testing.assert_allclose(features[i], features_of(np.stack(crops)), atol=1e-3)
        np.testing.assert_allclose(boxes[i, 8], [2 / 6, 1 / 6, 3 / 6, 2 / 6], atol=1e-6)
    blank = found.take([RegionTable.BLANK])
    assert blank[2].sum() == 36 and (blank[0] == found.table[0]).all()
    np.testing.assert_array_equal(blank[1][0], boxes[0])
    with pytest.raises(ValueError, match=r"regions\.number=10: regions\.source=grid .*36"):
        make_regions(RegionSettings(source="grid", number=10), scenes_of(PAPER, grid))


def test_take_trims_pads_and_blanks_rows() -> None:
    grid = np.zeros((3, 36), int)
    grid[0, [3, 8, 30]], grid[1, 5] = (1, 2, 3), 7
    found = make_regions(RegionSettings(), scenes_of(PAPER, grid))
    features, boxes, mask = found.take([1, RegionTable.BLANK, 0])
    assert mask.tolist() == [[True, False, False], [True, False, False], [True, True, True]]
    assert features.dtype == boxes.dtype == np.float32
    assert not features[~mask].any() and not boxes[~mask].any()
    for row in (1, 2):  # blank, and a picture that shows nothing
        shown = found.take([[RegionTable.BLANK, 2][row - 1]])
        np.testing.assert_array_equal(shown[0][0], found.table[:1])
        assert shown[1].tolist() == [[[0, 0, 1, 1]]]
    assert found.take([1])[0].shape == (1, 1, 2048)
    assert found.take([])[0].shape == (0, 0, 2048)


def test_grid_of_the_objects_column() -> None:
    generator = Generator(Cardinality(count=Count(train=60, validation=0, test_ind=0, test_ood=0)))
    objects = generator.table("train", 0, 60)["objects"]
    np.testing.assert_array_equal(grid_of(objects[7:], World()), generator.batch("train", 7, 60).grid)
    with pytest.raises(ValueError, match=r"objects: .*colour 'red'"):
        grid_of(objects, World(colours=("blue", "green", "yellow", "orange")))
    with pytest.raises(ValueError, match=r"objects: .* 6 rows .*4 columns"):
        grid_of(objects, World(columns=4))


# Pictures from files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["scene", "grid"])
def test_make_regions_of_decoded_pictures(source: str) -> None:
    scenes = scenes_of(PAPER, random_grid(World(), 6))
    rendered = make_regions(RegionSettings(source=source), scenes)
    decoded = make_regions(RegionSettings(source=source), files_of(scenes))
    for rows in ([0, 1, 2, 3, 4, 5], [RegionTable.BLANK]):
        for a, b in zip(rendered.take(rows), decoded.take(rows), strict=True):
            np.testing.assert_allclose(a, b, atol=5e-3)
    assert len(decoded.table) == 1 + len(np.unique(scenes.grid[scenes.grid > 0]))


def released_picture(objects: list[tuple[str, str]]) -> np.ndarray:
    """A row of six objects drawn as the released generator's pictures look, 500 x 500 pixels through a JPEG file."""
    picture = pillow.new("RGB", (500, 500), "white")
    draw = ImageDraw.Draw(picture)
    corners = {"triangle": 3, "square": 4, "pentagon": 5, "hexagon": 6, "octagon": 8, "star": 10, "circle": 90}
    for place, (colour, shape) in enumerate(objects):
        points = []
        for corner in range(corners[shape]):
            angle = 2 * np.pi * (corner + (0.5 if shape == "square" else 0)) / corners[shape]
            radius = 8.5 if shape == "star" and corner % 2 else 21
            points.append((500 / 6 * (place + 0.5) + radius * np.sin(angle), 500 / 6 * 2.5 - radius * np.cos(angle)))
        draw.polygon(points, fill={"green": "lime"}.get(colour, colour))
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=90)
    return np.asarray(pillow.open(file))


def test_recognise_pictures_like_the_released_ones() -> None:
    kinds = [(c, s) for c in World().colours for s in World().shapes]
    pictures = [released_picture(kinds[i : i + 6]) for i in range(0, 35, 6)]
    grid = np.zeros((6, 36), int)
    grid[:, 12:18] = 1
    grid[5, 17] = 0  # 35 kinds
    regions = make_regions(RegionSettings(), PictureSet(list("abcdef"), grid, 6, 6, decoded=lambda: pictures))
    features, boxes, mask = regions.take(np.arange(6))
    assert [names[:2] for names in recognise(features[mask])] == kinds
    near, far = boxes[mask][:, :2] * 500, boxes[mask][:, 2:] * 500
    assert (far - near).min() > 25 and (far - near).max() < 48
    centres = [(500 / 6 * (place % 6 + 0.5), 500 / 6 * 2.5) for place in range(35)]
    np.testing.assert_allclose((near + far) / 2, centres, atol=8)  # a triangle is higher than low


# The recogniser ------------------------------------------------------------------------------------------------------


def test_recognise_unseen_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_recogniser, "HELD_OUT_CELLS", (22, 34, 52, 90))
    crops, names = train_recogniser.held_out_crops(600, seed=77)
    assert min(train_recogniser.accuracy(crops, names).values()) >= 0.99


@pytest.mark.parametrize("cell", [28, 37, 64])
def test_recognise_every_sprite(cell: int) -> None:
    sizes = SIZES if cell > 32 else SIZES[1:]  # a small circle and octagon in fewer pixels are too alike
    world = World(colours=tuple(COLOURS), shapes=SHAPES, sizes=sizes)
    renderer = Renderer(world, cell, SPANS)
    features = features_of(renderer.rgb_sprites)
    assert recognise(features) == [("", "", ""), *((c, s, z) for z, s, c in world.kinds)]
    assert features.shape == (len(world.kinds) + 1, 2048) and features.dtype == np.float32 and (features >= 0).all()
    assert 0.5 < np.square(features[1:]).mean() < 2
    white = np.linalg.norm(features[1:] - features[0], axis=1)
    assert white.min() > 10  # of about 45, the length of a feature vector


def test_recogniser_refuses_damaged_weights(tmp_path: Path) -> None:
    assert recogniser.WEIGHTS.stat().st_size < 1_500_000
    damaged = tmp_path / "weights.safetensors"
    for data in (b"", b"\x80\x04junk", recogniser.WEIGHTS.read_bytes()[:1000]):
        damaged.write_bytes(data)
        with pytest.raises(ValueError, match=r"weights\.safetensors: .*python scripts/train_recogniser\.py"):
            recogniser.recogniser(damaged)
    with pytest.raises(ValueError, match=r"missing\.safetensors: "):
        recogniser.recogniser(tmp_path / "missing.safetensors")


def test_train_recogniser_learns_and_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_recogniser, "TRAINING_CELLS", (32,))
    monkeypatch.setattr(train_recogniser, "TRAINING_SPANS", (1.0,))
    one, two = (train_recogniser.train_recogniser(steps=2, batch=12, seed=4) for _ in range(2))
    assert all(map(torch.equal, one.state_dict().values(), two.state_dict().values()))
    taught = train_recogniser.train_recogniser(steps=60, batch=24, seed=4)
    train_recogniser.save_network(taught, tmp_path / "new.safetensors", {"note": "a test"})
    sprites = Renderer(World(colours=tuple(COLOURS)), 32, SPANS).rgb_sprites[1:]
    network = recogniser.recogniser(tmp_path / "new.safetensors")
    colours = network.classify(network(torch.tensor(sprites).permute(0, 3, 1, 2) / 255))["colour"].argmax(1)
    assert (colours == torch.arange(len(sprites)) % len(COLOURS)).float().mean() > 0.2  # chance: 0.08


# Feature files -------------------------------------------------------------------------------------------------------

Images = dict[str, tuple[np.ndarray, np.ndarray]]  # features (R, D) and boxes (R, 4) in 0..1


def images() -> Images:
    """Images with 2 to 5 regions, and the blank one."""
    random = np.random.default_rng(0)
    made: Images = {}
    for name in ("picture-0", "picture-1", "picture-2", "picture-3", "blank"):
        number = 2 + len(made) % 4
        corners = np.sort(random.random((number, 2, 2)), axis=1).reshape(-1, 4)
        made[name] = random.random((number, 6)).astype(np.float32), corners.astype(np.float32)
    return made


def write_npz(folder: Path, what: Images) -> Path:
    path = folder / "uniter"
    path.mkdir(exist_ok=True)
    for name, (features, boxes) in what.items():
        size = boxes[:, 2:] - boxes[:, :2]
        np.savez(
            path / f"{name}.npz",
            features=features.astype(np.float16),
            norm_bb=np.concatenate([boxes, size], axis=1),
        )
    return path


def from_file(path: Path, **settings: Any) -> RegionTable:
    return make_regions(RegionSettings(source=str(path), **settings), scenes_of(SMALL, np.zeros((4, 6), int)))


def test_read_regions_returns_what_was_written(tmp_path: Path) -> None:
    what = images()
    folder = write_npz(tmp_path, what)
    every, first_three = from_file(folder), from_file(folder, number=3)
    assert isinstance(every.table, np.memmap) and every.dimension == 6
    for row, name in [(0, "picture-0"), (1, "picture-1"), (3, "picture-3"), (RegionTable.BLANK, "blank")]:
        for found, stop in ((every, 99), (first_three, 3)):
            features, boxes, mask = found.take([row])
            np.testing.assert_allclose(features[0], what[name][0][:stop], atol=1e-3)
            np.testing.assert_allclose(boxes[0], what[name][1][:stop], atol=1e-6)
            assert mask.all()
    assert every.take([0, 3])[2].sum(axis=1).tolist() == [2, 5]


def test_make_regions_shares_features_of_equal_pictures(tmp_path: Path) -> None:
    folder = write_npz(tmp_path, images())
    scenes = PictureSet(["picture-2", "picture-0", "picture-2"], np.zeros((3, 6), int), 2, 3, SMALL)
    found = make_regions(RegionSettings(source=str(folder)), scenes)
    assert len(found.table) == 4 + 2 + 2  # picture-2, picture-0, blank
    np.testing.assert_array_equal(found.take([0])[0], found.take([2])[0])


def _spoilt(folder: Path, features: Any, boxes: Any) -> Path:
    """A folder of which one file holds these arrays."""
    path = write_npz(folder, images())
    np.savez(path / "picture-1.npz", features=np.array(features), norm_bb=np.array(boxes, float))
    return path


def _cut(folder: Path) -> Path:
    path = write_npz(folder, images())
    (path / "picture-1.npz").write_bytes((path / "picture-1.npz").read_bytes()[:200])
    return path


BOX = [[0.1, 0.1, 0.5, 0.5]]
DAMAGED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing folder": (lambda folder: folder / "no", r"^regions\.source=/.*no: "),
    "no blank": (
        lambda f: write_npz(f, {n: a for n, a in images().items() if n != "blank"}),
        r" 1 of 5 .* blank",
    ),
    "nan": (lambda f: _spoilt(f, [[np.nan] * 6], BOX), r"image picture-1: .*float16"),
    "dimension": (lambda f: _spoilt(f, [[1.0] * 5], BOX), r"image picture-1: .* 5 "),
    "outside": (lambda f: _spoilt(f, [[1.0] * 6], [[0, 0, 3, 1]]), r"image picture-1: .*box"),
    "cut": (_cut, r"picture-1\.npz: "),
    "pickle": (lambda f: _spoilt(f, [[{}]], BOX), r"picture-1.npz: .*allow_pickle"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGED.values(), ids=DAMAGED)
def test_read_regions_refuses_damaged_files(damage: Callable[[Path], Path], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        from_file(damage(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/b"])
def test_read_regions_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    path = write_npz(tmp_path, images())
    np.savez(tmp_path / "outside.npz", features=np.ones((1, 6)), norm_bb=np.ones((1, 4)))
    scenes = PictureSet([name], np.zeros((1, 6), int), 2, 3, SMALL)
    with pytest.raises(ValueError, match=f"image '{name}'"):
        make_regions(RegionSettings(source=str(path)), scenes)


# Pixels --------------------------------------------------------------------------------------------------------------


def by_hand(picture: np.ndarray, side: int) -> np.ndarray:
    """Means over squares of pixels, (3, side, side), normalised."""
    factor = len(picture) // side
    small = np.zeros((side, side, 3))
    for y in range(factor):
        for x in range(factor):
            small += picture[y::factor, x::factor]
    values = np.rint(small / factor**2) / 255
    return ((values - MEAN) / STD).transpose(2, 0, 1)


@pytest.mark.parametrize("side", [384, 128, 48])
def test_scale_picture_keeps_the_whole_picture(side: int) -> None:
    grid = random_grid(World(), 3)
    found = Pictures(PAPER, side)(grid)
    assert found.dtype == torch.float32 and found.shape == (3, 3, side, side) and found.is_contiguous()
    for pixels_found, picture in zip(found.numpy(), PAPER.arrays(grid), strict=True):
        difference = np.abs(pixels_found - by_hand(picture, side))
        assert difference.max() <= 1.01 / 255 / min(STD)  # halves may be rounded either way
        assert (difference > 1e-5).mean() < 0.01


@pytest.mark.parametrize("side", [224, 400])
def test_scale_picture_is_bicubic(side: int) -> None:
    grid = random_grid(World(), 3)
    pictures = Pictures(PAPER, side)
    for _ in range(2):  # the second time from memory
        for found, picture in zip(pictures(grid[[2, 0, 1]]), PAPER.arrays(grid[[2, 0, 1]]), strict=True):
            small = np.asarray(pillow.fromarray(picture).resize((side, side), pillow.Resampling.BICUBIC)) / 255
            np.testing.assert_allclose(found.numpy(), ((small - MEAN) / STD).transpose(2, 0, 1), atol=1e-5)


def test_blank_picture_is_white(monkeypatch: pytest.MonkeyPatch) -> None:
    white = (1 - np.array(MEAN)) / STD
    for side in (96, 100):
        blank = Pictures(PAPER, side)(np.zeros((2, 36), int))
        np.testing.assert_allclose(blank.numpy(), np.broadcast_to(white[:, None, None], (2, 3, side, side)), atol=1e-5)
    monkeypatch.setattr("train.data.pixels.MAX_CACHED", 3 * 100 * 100 * 3)
    pictures = Pictures(PAPER, 100)
    pictures(random_grid(World(), 8))
    assert pictures._recent.cache_info().currsize == 3
    with pytest.raises(ValueError, match=r"pixels.side=0"):
        Pictures(PAPER, 0)
