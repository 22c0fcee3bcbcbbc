"""Regions and pixels are what the pictures show, whatever source they come from, and hostile files are refused."""

from __future__ import annotations

import base64
import io
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from PIL import Image as pillow
from PIL import ImageDraw

from render.pictures.renderer import Renderer
from tests.tiny import saved_yolos
from train import cache
from train.config import RegionSettings
from train.data.pixels import MEAN, STD, Pictures
from train.regions import detector, recogniser
from train.regions import files as feature_files
from train.regions.pictures import PictureSet, grid_of
from train.regions.recogniser import features_of, recognise
from train.regions.sources import RegionTable, make_regions
from travlr import Cardinality, Count, Generator
from travlr.config import Image
from travlr.scene import COLOURS, SHAPES, SIZES, World

pytestmark = pytest.mark.usefixtures("one_thread")
SPANS = {size: getattr(Image(), size) for size in SIZES}
EVERYTHING = World(colours=tuple(COLOURS), shapes=SHAPES, sizes=SIZES)
WORLDS = {"paper": (World(), 64), "everything": (EVERYTHING, 37), "wide": (World(columns=5, rows=2), 24)}
PAPER = Renderer(World(), 64, SPANS)
SMALL = Renderer(World(columns=3, rows=2), 16, SPANS)


def random_grid(world: World, count: int, seed: int = 0, share: float = 0.3) -> np.ndarray:
    random = np.random.default_rng(seed)
    kinds = random.integers(1, len(world.kinds) + 1, (count, world.cells))
    return np.where(random.random((count, world.cells)) < share, kinds, 0)


def scenes_of(renderer: Renderer, grid: np.ndarray) -> PictureSet:
    ids = [f"picture-{i}" for i in range(len(grid))]
    return PictureSet(ids, grid, renderer.world.rows, renderer.world.columns, renderer)


def files_of(scenes: PictureSet, suffix: str = "") -> PictureSet:
    """The same pictures, as if they came from files, perhaps lossy ones."""
    pictures = list(scenes.pictures(np.arange(len(scenes))))
    if suffix:
        for i, picture in enumerate(pictures):
            file = io.BytesIO()
            pillow.fromarray(picture).save(file, suffix, quality=90)
            pictures[i] = np.asarray(pillow.open(file).convert("RGB"))
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

BAD_SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "source": ({"source": "boxes"}, r"regions.source=boxes: choose one of scene, grid, detector, file"),
    "none": ({"number": 0}, r"regions.number=0: must be exact"),
    "word": ({"number": "all"}, r"regions.number=all: must be exact"),
    "truth": ({"number": True}, r"regions.number=True: must be "),
    "misses": ({"misses": 1.0}, r"regions.misses=1.0"),
    "not a number": ({"misses": float("nan")}, r"regions.misses=nan"),
    "jitter": ({"jitter": -0.1}, r"regions.jitter=-0.1"),
    "seed": ({"seed": -1}, r"regions.seed=-1"),
    "misses of grid": ({"source": "grid", "misses": 0.1}, r"only regions.source=scene has it"),
    "jitter of file": ({"source": "file", "file": "a.tsv", "jitter": 0.1}, r"only regions.source=scene has it"),
    "context": ({"context": "some"}, r"regions.context=some: choose one of auto, none, receptive_field"),
    "context of file": (
        {"source": "file", "file": "a.tsv", "context": "receptive_field"},
        r"regions.context=receptive_field: features of regions.source=file stay",
    ),
    "context of detector": (
        {"source": "detector", "detector": "a", "context": "receptive_field"},
        r"regions.context=receptive_field: features of regions.source=detector stay",
    ),
    "blank": ({"blank": "white"}, r"regions.blank=white: choose one of whole, cells"),
    "no file": ({"source": "file"}, r"give regions.file"),
    "no detector": ({"source": "detector"}, r"give regions.detector"),
    "spare file": ({"file": "a.tsv"}, r"leave out regions.file"),
}


@pytest.mark.parametrize(("values", "message"), BAD_SETTINGS.values(), ids=BAD_SETTINGS)
def test_settings_that_no_source_has(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        RegionSettings(**values)
    assert "\n" not in str(caught.value)


# Scenes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("world", "cell"), WORLDS.values(), ids=WORLDS)
def test_scene_boxes_and_features_are_those_of_the_picture(world: World, cell: int) -> None:
    renderer = Renderer(world, cell, SPANS)
    grid = random_grid(world, 5, share=0.5)
    found = make_regions(RegionSettings(), scenes_of(renderer, grid))
    features, boxes, mask = found.take(np.arange(5))
    for i, picture in enumerate(renderer.arrays(grid)):
        truth = list(seen(picture, world.rows, world.columns))
        assert mask[i].sum() == len(truth) == (grid[i] > 0).sum()
        np.testing.assert_allclose(pixels(boxes[i, mask[i]], picture), [box for box, _ in truth], atol=1e-3)
        np.testing.assert_allclose(features[i, mask[i]], features_of(np.stack([c for _, c in truth])), atol=1e-3)
    assert found.dimension == 2048 and len(found) == 5
    np.testing.assert_allclose(found.table[0], features_of(np.full((1, cell, cell, 3), 255, np.uint8))[0], atol=1e-3)


def test_empty_cells_fill_up_to_a_number() -> None:
    grid = random_grid(World(), 20)
    scenes = scenes_of(PAPER, grid)
    exact, full = (make_regions(RegionSettings(number=n), scenes) for n in ("exact", 36))
    part = make_regions(RegionSettings(number=30), scenes)
    features, boxes, mask = full.take(np.arange(20))
    assert mask.all() and mask.shape == (20, 36)
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
    with pytest.raises(ValueError, match=rf"regions.number={most - 1}: a picture has {most} objects"):
        make_regions(RegionSettings(number=most - 1), scenes)
    few = make_regions(RegionSettings(number=36), scenes_of(SMALL, random_grid(SMALL.world, 4)))
    assert few.take([0, 1, 2, 3])[2].sum() == 4 * 6  # no more than there are cells


def test_grid_has_a_region_for_each_cell() -> None:
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
    with pytest.raises(ValueError, match=r"regions.number=10: regions.source=grid has 36"):
        make_regions(RegionSettings(source="grid", number=10), scenes_of(PAPER, grid))


def test_rows_are_trimmed_padded_and_may_be_blank() -> None:
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


def test_misses_and_jitter_belong_to_the_picture() -> None:
    grid = random_grid(World(), 400, seed=3)
    settings = RegionSettings(misses=0.25, jitter=0.1, seed=5)
    plain = make_regions(RegionSettings(), scenes_of(PAPER, grid))
    noisy = make_regions(settings, scenes_of(PAPER, grid))
    order = np.random.default_rng(0).permutation(400)[:150]
    again = make_regions(settings, scenes_of(PAPER, grid[order].astype(np.int8)))
    for new, old in enumerate(order):
        for a, b in zip(again.take([new]), noisy.take([old]), strict=True):
            np.testing.assert_array_equal(a, b)
    other = make_regions(RegionSettings(misses=0.25, jitter=0.1, seed=6), scenes_of(PAPER, grid))
    assert (other.take(np.arange(400))[2].sum(axis=1) != noisy.take(np.arange(400))[2].sum(axis=1)).mean() > 0.3

    objects, found = (int((r.index[:-1] >= 0).sum()) for r in (plain, noisy))
    assert abs(found - 0.75 * objects) < 5 * (objects * 0.25 * 0.75) ** 0.5
    true = make_regions(RegionSettings(jitter=0.1, seed=5), scenes_of(PAPER, grid))
    _, clean, mask = plain.take(np.arange(400))
    _, moved, _ = true.take(np.arange(400))
    side = np.tile(clean[..., 2:] - clean[..., :2], 2)[mask]
    moves = (moved - clean)[mask] / side
    assert abs(moves.mean()) < 0.005 and abs(moves.std() - 0.1) < 0.005
    assert moved.min() >= 0 and moved.max() <= 1 and (moved[..., 2:] >= moved[..., :2]).all()


def test_a_picture_whose_objects_are_all_missed_still_has_a_region() -> None:
    grid = np.zeros((200, 36), int)
    grid[:, 0] = np.arange(200) % 35 + 1
    grid[:, 1] = np.arange(200) // 35 + 1
    found = make_regions(RegionSettings(misses=0.99), scenes_of(PAPER, grid))
    missed = (found.index[:-1, 0] == 0) & (found.boxes[:-1, 0] == [0, 0, 1, 1]).all(axis=1)
    assert 180 < missed.sum() < 200
    assert (found.take(np.arange(200))[2].sum(axis=1) >= 1).all()


def test_the_objects_column_gives_the_grid() -> None:
    generator = Generator(Cardinality(count=Count(60, 0, 0, 0)))
    objects = generator.table("train", 0, 60)["objects"]
    np.testing.assert_array_equal(grid_of(objects, World()), generator.batch("train", 0, 60).grid)
    np.testing.assert_array_equal(grid_of(objects[7:9], World()), generator.batch("train", 7, 9).grid)
    with pytest.raises(ValueError, match=r"objects: the colour 'red' is not of the world"):
        grid_of(objects, World(colours=("blue", "green", "yellow", "orange")))
    with pytest.raises(ValueError, match=r"objects: one lies outside the world's 6 rows and 4 columns"):
        grid_of(objects, World(columns=4))


@pytest.mark.parametrize("context", ["none", "receptive_field"])
def test_a_large_split_fits_in_memory(context: str) -> None:
    grid = random_grid(World(), 32_000)
    tracemalloc.start()
    found = make_regions(RegionSettings(number=36, context=context), scenes_of(PAPER, grid))
    for start in range(0, 640, 64):
        found.take(np.arange(start, start + 64))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.table.nbytes + found.index.nbytes + found.boxes.nbytes < 1 << 25
    assert peak < 1 << 28


# Pictures from files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["scene", "grid"])
def test_decoded_pictures_give_what_rendered_ones_do(source: str) -> None:
    scenes = scenes_of(PAPER, random_grid(World(), 6))
    rendered = make_regions(RegionSettings(source=source), scenes)
    decoded = make_regions(RegionSettings(source=source), files_of(scenes))
    for rows in ([0, 1, 2, 3, 4, 5], [RegionTable.BLANK]):
        for a, b in zip(rendered.take(rows), decoded.take(rows), strict=True):
            np.testing.assert_allclose(a, b, atol=5e-3)
    assert len(decoded.table) == 1 + len(np.unique(scenes.grid[scenes.grid > 0]))


def test_lossy_pictures_of_odd_size_are_understood(tmp_path: Path) -> None:
    renderer = Renderer(World(), 83, SPANS)
    scenes = scenes_of(renderer, random_grid(World(), 4))
    large = [np.pad(p, ((1, 1), (1, 1), (0, 0)), constant_values=255) for p in renderer.arrays(scenes.grid)]  # 500 px
    pictures = []
    for picture in large:
        file = io.BytesIO()
        pillow.fromarray(picture).save(file, "JPEG", quality=90)
        pictures.append(np.asarray(pillow.open(file)))
    lossy = PictureSet(scenes.ids, scenes.grid, 6, 6, decoded=lambda: pictures)
    features, boxes, mask = make_regions(RegionSettings(), lossy, tmp_path).take([0, 1, 2, 3])
    truth = make_regions(RegionSettings(), scenes).take([0, 1, 2, 3])
    np.testing.assert_array_equal(mask, truth[2])
    np.testing.assert_allclose(boxes[mask] * 500, truth[1][mask] * 498 + 1, atol=3)
    names = [(colour, shape, size) for size, shape, colour in World().kinds]
    assert recognise(features[mask]) == [names[k - 1] for row in scenes.grid for k in row if k]


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


def test_pictures_like_the_released_ones_are_understood() -> None:
    kinds = [(c, s) for c in World().colours for s in World().shapes]
    pictures = [released_picture(kinds[i : i + 6]) for i in range(0, 35, 6)]
    grid = np.zeros((6, 36), int)
    grid[:, 12:18] = 1
    grid[5, 17] = 0  # 35 kinds
    found = make_regions(RegionSettings(), PictureSet(list("abcdef"), grid, 6, 6, decoded=lambda: pictures))
    features, boxes, mask = found.take(np.arange(6))
    assert [names[:2] for names in recognise(features[mask])] == kinds
    sides = (boxes[..., 2:] - boxes[..., :2])[mask] * 500
    assert sides.min() > 25 and sides.max() < 48


# The recogniser ------------------------------------------------------------------------------------------------------


def test_the_shipped_network_names_what_it_was_not_trained_on() -> None:
    crops, names = recogniser.held_out_crops(3000, seed=77)
    found = recognise(features_of(crops))
    for head in range(3):
        assert np.mean([a[head] == b[head] for a, b in zip(found, names, strict=True)]) >= 0.99


@pytest.mark.parametrize("cell", [28, 32, 37, 48, 64, 96, 128])
def test_the_shipped_network_names_every_sprite(cell: int) -> None:
    sizes = SIZES if cell > 32 else SIZES[1:]  # a small circle and octagon in fewer pixels are too alike
    world = World(colours=tuple(COLOURS), shapes=SHAPES, sizes=sizes)
    renderer = Renderer(world, cell, SPANS)
    features = features_of(renderer.rgb_sprites)
    assert recognise(features) == [("", "", ""), *((c, s, z) for z, s, c in world.kinds)]
    assert features.shape == (len(world.kinds) + 1, 2048) and features.dtype == np.float32 and (features >= 0).all()
    assert 0.5 < np.square(features[1:]).mean() < 2
    white = np.linalg.norm(features[1:] - features[0], axis=1)
    assert white.min() > 10  # of about 45, the length of a feature vector


def test_the_weights_are_small_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    assert recogniser.WEIGHTS.stat().st_size < 1_500_000
    damaged = tmp_path / "weights.safetensors"
    for data in (b"", b"\x80\x04junk", recogniser.WEIGHTS.read_bytes()[:1000]):
        damaged.write_bytes(data)
        with pytest.raises(ValueError, match=r"not the recogniser's weights .*python -m train.regions.recogniser"):
            recogniser.recogniser(damaged)
    with pytest.raises(ValueError, match=r"not the recogniser's weights"):
        recogniser.recogniser(tmp_path / "missing.safetensors")


def test_training_learns_and_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recogniser, "TRAINING_CELLS", (32,))
    monkeypatch.setattr(recogniser, "TRAINING_SPANS", (1.0,))
    one, two = (recogniser.train_recogniser(steps=2, batch=12, seed=4) for _ in range(2))
    for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    recogniser.save(
        recogniser.train_recogniser(steps=60, batch=48, seed=4), tmp_path / "new.safetensors", {"note": "a test"}
    )
    assert [path.name for path in tmp_path.iterdir()] == ["new.safetensors"]
    sprites = Renderer(World(colours=tuple(COLOURS)), 32, SPANS).rgb_sprites[1:]
    network = recogniser.recogniser(tmp_path / "new.safetensors")
    colours = network.classify(network(torch.tensor(sprites).permute(0, 3, 1, 2) / 255))["colour"].argmax(1)
    assert (colours == torch.arange(len(sprites)) % len(COLOURS)).float().mean() > 0.3  # chance: 0.08


# The cache -----------------------------------------------------------------------------------------------------------


def test_an_interrupted_computation_resumes(tmp_path: Path) -> None:
    calls: list[int] = []

    def make(start: int, stop_at: int) -> Iterator[dict[str, np.ndarray]]:
        for row in range(start, 10, 2):
            if row >= stop_at:
                raise KeyboardInterrupt
            calls.append(row)
            yield {"a": np.arange(row, row + 2)[:, None] * [1.0, 10.0]}

    columns: dict[str, tuple[tuple[int, ...], str]] = {"a": ((2,), "<f4")}
    with pytest.raises(KeyboardInterrupt):
        cache.cached_arrays(tmp_path, "k", 10, columns, lambda start: make(start, 6), "making")
    for _ in range(2):
        found = cache.cached_arrays(tmp_path, "k", 10, columns, lambda start: make(start, 99), "making")["a"]
        assert isinstance(found, np.memmap)
        np.testing.assert_array_equal(found, np.arange(10)[:, None] * [1, 10])
        assert calls == [0, 2, 4, 6, 8]
    (tmp_path / "k" / "a.npy").write_bytes(b"damaged")
    again = cache.cached_arrays(tmp_path, "k", 10, columns, lambda start: make(start, 99), "making")["a"]
    np.testing.assert_array_equal(again, found := np.arange(10)[:, None] * [1, 10])
    assert calls == [0, 2, 4, 6, 8] * 2
    with pytest.raises(ValueError, match=r"making: only 10 of 12 rows could be computed"):
        cache.cached_arrays(None, "k", 12, columns, lambda start: make(start, 99), "making")


# Detectors -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def detr(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny DETR with random weights."""
    from transformers import DetrConfig, DetrForObjectDetection, DetrImageProcessor, ResNetConfig

    folder = tmp_path_factory.mktemp("detr")
    torch.manual_seed(0)
    backbone: dict[str, Any] = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    sizes: dict[str, Any] = {
        **{"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None},
        **{"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "num_queries": 7, "num_labels": 3, "init_std": 0.5},
        **{"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16},
    }
    layers: dict[str, Any] = {"out_features": ["stage2"]}
    config = DetrConfig(backbone_config=ResNetConfig(**backbone, **layers), **sizes)
    DetrForObjectDetection(config).save_pretrained(folder)
    DetrImageProcessor(size={"shortest_edge": 48, "longest_edge": 48}).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def yolos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_yolos(tmp_path_factory.mktemp("yolos"))


def oracle(folder: Path, picture: np.ndarray, number: int) -> tuple[list[np.ndarray], list[list[float]]]:
    """What a detector says of one picture, by the library's own post-processing."""
    from transformers import AutoImageProcessor, AutoModelForObjectDetection

    processor = AutoImageProcessor.from_pretrained(folder)  # type: ignore[no-untyped-call]
    model = AutoModelForObjectDetection.from_pretrained(folder).eval()
    with torch.no_grad():
        out = model(**processor(images=pillow.fromarray(picture), return_tensors="pt"))
    size = [picture.shape[:2]]
    found = processor.post_process_object_detection(out, threshold=-1.0, target_sizes=size)[0]
    best = sorted(range(len(found["scores"])), key=lambda i: -float(found["scores"][i]))[:number]
    queries = out.last_hidden_state[0, -out.logits.shape[1] :].numpy()
    return [queries[i] for i in best], [found["boxes"][i].tolist() for i in best]


@pytest.mark.parametrize("kind", ["detr", "yolos"])
def test_a_detector_gives_its_queries_and_boxes(kind: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(kind)
    scenes = scenes_of(SMALL, random_grid(SMALL.world, 5, share=0.5))
    found = make_regions(RegionSettings(source="detector", detector=str(folder), number=4), scenes)
    everything = [*SMALL.arrays(scenes.grid), np.full((32, 48, 3), 255, np.uint8)]
    for row, picture in zip((0, 1, 2, 3, 4, RegionTable.BLANK), everything, strict=True):
        features, boxes, mask = found.take([row])
        assert mask.tolist() == [[True] * 4]
        queries, pixel_boxes = oracle(folder, picture, 4)
        np.testing.assert_allclose(features[0], queries, atol=5e-3, rtol=5e-3)
        np.testing.assert_allclose(pixels(boxes[0], picture), np.clip(pixel_boxes, 0, [48, 32, 48, 32]), atol=0.02)


def test_detection_runs_once_for_each_picture_and_resumes(
    detr: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = random_grid(SMALL.world, 40, share=0.5)
    grid = np.concatenate([grid, grid[::-1]])
    settings = RegionSettings(source="detector", detector=str(detr))
    whole = make_regions(settings, scenes_of(SMALL, grid))
    assert whole.table.shape == (41 * 7, 16)
    seen_pictures: list[int] = []
    find = detector.Detector.detect

    def counted(self: detector.Detector, pictures: list[np.ndarray]) -> dict[str, np.ndarray]:
        if len(seen_pictures) == 1:
            seen_pictures.append(0)
            raise KeyboardInterrupt
        seen_pictures.append(len(pictures))
        return find(self, pictures)

    monkeypatch.setattr(detector.Detector, "detect", counted)
    with pytest.raises(KeyboardInterrupt):
        make_regions(settings, scenes_of(SMALL, grid), tmp_path)
    for source in (scenes_of(SMALL, grid), scenes_of(SMALL, grid)):
        found = make_regions(settings, source, tmp_path)
        assert seen_pictures == [16, 0, 16, 9]
        for a, b in zip(found.take(np.arange(80)), whole.take(np.arange(80)), strict=True):
            np.testing.assert_array_equal(a, b)
        for a, b in zip(found.take([RegionTable.BLANK]), whole.take([RegionTable.BLANK]), strict=True):
            np.testing.assert_array_equal(a, b)
    make_regions(settings, scenes_of(SMALL, grid[:3]), tmp_path)  # other pictures
    assert seen_pictures[4:] == [4]


def test_detectors_that_cannot_be_used(detr: Path, tmp_path: Path) -> None:
    scenes = scenes_of(SMALL, random_grid(SMALL.world, 1))

    def message(folder: Path, number: int | str = "exact") -> str:
        with pytest.raises(ValueError) as caught:
            make_regions(RegionSettings(source="detector", detector=str(folder), number=number), scenes)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "finds at most 7" in message(detr, 8)
    assert "cannot be loaded" in message(tmp_path)
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_bytes((detr / name).read_bytes())
    torch.save({}, tmp_path / "pytorch_model.bin")  # a pickle
    assert "cannot be loaded" in message(tmp_path)
    from safetensors.torch import load_file, save_file

    weights = load_file(detr / "model.safetensors")
    dropped = weights.pop("class_labels_classifier.weight")
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    assert dropped is not None and "lacks 1 weights, the first is class_labels_classifier.weight" in message(tmp_path)


# Feature files -------------------------------------------------------------------------------------------------------

Images = dict[str, tuple[np.ndarray, np.ndarray]]  # features (R, D) and boxes (R, 4) in 0..1
WIDTH, HEIGHT = 640, 400


def images(count: int = 4, dimension: int = 6) -> Images:
    """Images with 2 to 5 regions, and the blank one."""
    random = np.random.default_rng(0)
    made: Images = {}
    for name in [*(f"picture-{i}" for i in range(count)), "blank"]:
        regions_here = 2 + len(made) % 4
        corners = np.sort(random.random((regions_here, 2, 2)), axis=1).reshape(-1, 4)
        made[name] = random.random((regions_here, dimension)).astype(np.float32), corners.astype(np.float32)
    return made


def encoded(values: np.ndarray) -> str:
    return base64.b64encode(values.astype("<f4").tobytes()).decode()


def tsv_line(name: str, features: np.ndarray, boxes: np.ndarray, columns: int = 10) -> str:
    sides = [WIDTH, HEIGHT, WIDTH, HEIGHT]
    count, filler = str(len(boxes)), encoded(np.zeros(len(boxes)))
    middle = [str(HEIGHT), str(WIDTH), *[filler] * 4] if columns == 10 else [str(WIDTH), str(HEIGHT)]
    return "\t".join([name, *middle, count, encoded(boxes * sides), encoded(features)])


def write_lxmert(folder: Path, what: Images) -> Path:
    path = folder / "features.tsv"
    path.write_text("".join(tsv_line(name, *arrays) + "\n" for name, arrays in reversed(what.items())))
    return path


def write_bottom_up(folder: Path, what: Images) -> Path:
    path = folder / "six.tsv"
    path.write_text("\r\n".join(tsv_line(name, *arrays, columns=6) for name, arrays in what.items()))
    return path


def write_npz(folder: Path, what: Images) -> Path:
    path = folder / "uniter"
    path.mkdir(exist_ok=True)
    for name, (features, boxes) in what.items():
        size = boxes[:, 2:] - boxes[:, :2]
        np.savez(
            path / f"{name}.npz",
            features=features.astype(np.float16),
            norm_bb=np.concatenate([boxes, size], axis=1),
            conf=np.ones((len(boxes), 1)),
            soft_labels=np.zeros((len(boxes), 5)),
        )
    return path


def write_hdf5(folder: Path, what: Images) -> Path:
    path = folder / "features.h5"
    most = max(len(boxes) for _, boxes in what.values())
    with h5py.File(path, "w") as file:
        file["ids"] = list(what)
        file["counts"] = [len(boxes) for _, boxes in what.values()]
        for number, name in enumerate(("features", "boxes")):
            arrays = [pair[number] for pair in what.values()]
            file[name] = np.stack([np.pad(a, ((0, most - len(a)), (0, 0)), constant_values=np.nan) for a in arrays])
    return path


WRITERS: dict[str, Callable[[Path, Images], Path]] = {
    "lxmert": write_lxmert,
    "bottom-up": write_bottom_up,
    "npz": write_npz,
    "hdf5": write_hdf5,
}


def from_file(path: Path, count: int = 4, **settings: Any) -> RegionTable:
    return make_regions(
        RegionSettings(source="file", file=str(path), **settings), scenes_of(SMALL, np.zeros((count, 6), int))
    )


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_features_made_elsewhere_are_read_back(write: Callable[[Path, Images], Path], tmp_path: Path) -> None:
    what = images()
    path = write(tmp_path, what)
    every, first_three = from_file(path), from_file(path, number=3)
    assert isinstance(every.table, np.memmap) and every.dimension == 6
    for row, name in [(0, "picture-0"), (1, "picture-1"), (3, "picture-3"), (RegionTable.BLANK, "blank")]:
        for found, stop in ((every, 99), (first_three, 3)):
            features, boxes, mask = found.take([row])
            np.testing.assert_allclose(features[0], what[name][0][:stop], atol=1e-3)
            np.testing.assert_allclose(boxes[0], what[name][1][:stop], atol=1e-6)
            assert mask.all()
    assert every.take([0, 3])[2].sum(axis=1).tolist() == [2, 5]


def test_repeated_pictures_share_their_features(tmp_path: Path) -> None:
    path = write_lxmert(tmp_path, images())
    grid = np.zeros((3, 6), int)
    scenes = PictureSet(["picture-2", "picture-0", "picture-2"], grid, 2, 3, SMALL)
    found = make_regions(RegionSettings(source="file", file=str(path)), scenes, tmp_path / "cache")
    assert len(found.table) == 4 + 2 + 2  # picture-2, picture-0, blank
    np.testing.assert_array_equal(found.take([0])[0], found.take([2])[0])
    assert not (tmp_path / "features.tsv.cache").exists()


def test_a_conversion_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lxmert(tmp_path, images(12))
    whole = from_file(path, 12).take(np.arange(12))
    monkeypatch.setattr(feature_files, "ROWS_PER_BLOCK", 8)
    reads: list[str] = []
    read = feature_files.TsvFile.read

    def counted(self: feature_files.TsvFile, image: str) -> tuple[np.ndarray, np.ndarray]:
        reads.append(image)
        if len(reads) == 8:
            raise KeyboardInterrupt
        return read(self, image)

    monkeypatch.setattr(feature_files.TsvFile, "read", counted)
    other = tmp_path / "elsewhere"
    scenes = scenes_of(SMALL, np.zeros((12, 6), int))
    settings = RegionSettings(source="file", file=str(path))
    with pytest.raises(KeyboardInterrupt):
        make_regions(settings, scenes, other)
    again = make_regions(settings, scenes, other)
    for a, b in zip(again.take(np.arange(12)), whole, strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(reads) < 8 + 1 + 13  # the blank one is read to learn the dimension, those on the disk not again
    reads[:] = []
    make_regions(settings, scenes, other)
    assert reads == ["blank"]


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_changed_file_is_read_again(write: Callable[[Path, Images], Path], tmp_path: Path) -> None:
    path = write(tmp_path, images())
    before = from_file(path).take([2])[0]
    write(tmp_path, {name: (features + 1, boxes) for name, (features, boxes) in images().items()})
    np.testing.assert_allclose(from_file(path).take([2])[0], before + 1, atol=2e-3)


def test_converting_needs_little_memory(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    path = tmp_path / "large.tsv"
    with open(path, "w") as file:
        boxes = np.tile([0.1, 0.1, 0.5, 0.5], (36, 1))
        for i in range(300):
            file.write(tsv_line(f"picture-{i}", random.random((36, 1024)), boxes) + "\n")
        file.write(tsv_line("blank", np.zeros((36, 1024)), boxes) + "\n")
    tracemalloc.start()
    found = from_file(path, 300)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.table.nbytes > 22e6 and peak < 0.7 * found.table.nbytes


Damage = Callable[[Path], Path]


def _tsv(line: str) -> Damage:
    """A file whose second line is another."""

    def write(folder: Path) -> Path:
        path = write_bottom_up(folder, images())
        lines = path.read_text().splitlines()
        path.write_text("\n".join([lines[0], line, *lines[2:]]))
        return path

    return write


def _with(name: str, features: Any, boxes: Any) -> Images:
    return images() | {name: (np.array(features, np.float32), np.array(boxes, np.float32))}


def _cut_npz(folder: Path) -> Path:
    path = write_npz(folder, images())
    file = path / "picture-1.npz"
    file.write_bytes(file.read_bytes()[:200])
    return path


def _pickled_npz(folder: Path) -> Path:
    path = write_npz(folder, images())
    np.savez(path / "picture-1.npz", features=np.array([[{}]], object), norm_bb=np.ones((1, 4)))
    return path


def _one_array_npz(folder: Path) -> Path:
    path = write_npz(folder, images())
    np.savez(path / "picture-1.npz", features=np.ones((2, 6)))
    return path


def _plain_npy(folder: Path) -> Path:
    path = write_npz(folder, images())
    with open(path / "picture-1.npz", "wb") as file:
        np.save(file, np.ones((2, 6)))
    return path


def _linked_hdf5(folder: Path) -> Path:
    write_hdf5(folder, images())
    path = folder / "linked.h5"
    with h5py.File(path, "w") as file:
        for name in ("features", "boxes", "ids"):
            file[name] = h5py.ExternalLink("features.h5", name)
    return path


def _external_hdf5(folder: Path) -> Path:
    path = write_hdf5(folder, images())
    secret = folder / "secret"
    secret.write_bytes(bytes(5 * 5 * 4 * 4))
    with h5py.File(path, "a") as file:
        del file["boxes"]
        file.create_dataset("boxes", (5, 5, 4), "f4", external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
    return path


def _misshapen_hdf5(folder: Path) -> Path:
    path = write_hdf5(folder, images())
    with h5py.File(path, "a") as file:
        del file["boxes"]
        file["boxes"] = np.ones((5, 4, 4))
    return path


def _counting_hdf5(folder: Path) -> Path:
    path = write_hdf5(folder, images())
    with h5py.File(path, "a") as file:
        file["counts"][1] = 9
    return path


def _junk(name: str) -> Damage:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(b"\x80\x04junk")
        return folder / name

    return write


GOOD, BOX = [[1.0] * 6], [[0.1, 0.1, 0.5, 0.5]]
DAMAGED: dict[str, tuple[Damage, str]] = {
    "missing file": (lambda folder: folder / "no.tsv", r"^regions.file=/.*no.tsv: no such file"),
    "suffix": (_junk("a.pkl"), r"^regions.file=/.*a.pkl: must end in .tsv, .h5, .hdf5, or be a folder"),
    "junk tsv": (_junk("a.tsv"), r"a.tsv: "),
    "junk hdf5": (_junk("a.h5"), r"a.h5: "),
    "base64": (_tsv("picture-1\t9\t9\t1\tAA!A\tAAAA"), r"six.tsv: image picture-1: "),
    "padding": (_tsv("picture-1\t9\t9\t1\tAAA\tAAAA"), r"six.tsv: image picture-1: "),
    "columns": (_tsv("picture-1\t9\t9"), r"six.tsv: picture-1: has 3 columns"),
    "count": (_tsv("picture-1\t9\t9\tmany\tAAAA\tAAAA"), r"six.tsv: picture-1: invalid literal"),
    "no regions": (_tsv("picture-1\t9\t9\t0\t\t"), r"image picture-1: has 0 regions"),
    "minus one": (_tsv("picture-1\t9\t9\t-1\t\t"), r"image picture-1: has -1 regions"),
    "no size": (_tsv(tsv_line("picture-1", np.ones((1, 6)), np.ones((1, 4)), 6).replace("640", "0")), r"is 0 x 400"),
    "boxes": (_tsv(f"picture-1\t9\t9\t2\t{encoded(np.ones(7))}\t{encoded(np.ones(12))}"), r"7 numbers for 2 boxes"),
    "features": (_tsv(f"picture-1\t9\t9\t2\t{encoded(np.ones(8))}\t{encoded(np.ones(11))}"), r"11 numbers for the"),
    "half a number": (_tsv("picture-1\t9\t9\t1\tAAAA\tAAAA"), r"image picture-1: buffer size"),
    "twice": (_tsv(tsv_line("picture-0", np.ones((1, 6)), np.ones((1, 4)), 6)), r"image picture-0: occurs twice"),
    "missing": (_tsv(""), r"six.tsv: lacks 1 of 5 images, the first is picture-1"),
    "no blank": (
        lambda f: write_bottom_up(f, {n: a for n, a in images().items() if n != "blank"}),
        r"lacks 1 of 5 images, the first is blank \(the white picture\)",
    ),
    "nan": (lambda f: write_lxmert(f, _with("picture-3", [[np.nan] * 6], BOX)), r"image picture-3: .*not finite"),
    "infinite box": (
        lambda f: write_hdf5(f, _with("picture-3", GOOD, [[0, 0, 1, np.inf]])),
        r"picture-3: .*not finite",
    ),
    "huge": (lambda f: write_lxmert(f, _with("picture-3", [[1e30] * 6], BOX)), r"picture-3: .*too large"),
    "dimension": (lambda f: write_npz(f, _with("blank", [[1.0] * 5], BOX)), r"picture-0: .* 6 numbers, but blank of 5"),
    "outside": (lambda f: write_npz(f, _with("picture-0", GOOD, [[0, 0, 3, 1]])), r"image picture-0: has a box"),
    "backwards": (lambda f: write_lxmert(f, _with("picture-0", GOOD, [[0.5, 0, 0.1, 1]])), r"picture-0: has a box"),
    "cut npz": (_cut_npz, r"uniter: picture-1: is not an .npz file"),
    "pickle in npz": (_pickled_npz, r"uniter: image picture-1: .*allow_pickle"),
    "npz lacks boxes": (_one_array_npz, r"uniter: picture-1: has no array norm_bb"),
    "npy": (_plain_npy, r"uniter: picture-1: is not an .npz file"),
    "linked": (_linked_hdf5, r"linked.h5: has no dataset features"),
    "external": (_external_hdf5, r"features.h5: boxes is not a dataset stored in the file itself"),
    "misshapen": (_misshapen_hdf5, r"features.h5: shapes of ids, features and boxes"),
    "miscounted": (_counting_hdf5, r"image picture-1: has 9 regions, but the arrays have 5"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_feature_files_are_refused_in_one_line(damage: Damage, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        from_file(damage(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/b"])
def test_ids_do_not_lead_out_of_a_folder(name: str, tmp_path: Path) -> None:
    path = write_npz(tmp_path, images())
    write_npz(tmp_path / "uniter", {})
    np.savez(tmp_path / "outside.npz", features=np.ones((1, 6)), norm_bb=np.ones((1, 4)))
    scenes = PictureSet([name], np.zeros((1, 6), int), 2, 3, SMALL)
    with pytest.raises(ValueError, match=r"is not a file name"):
        make_regions(RegionSettings(source="file", file=str(path)), scenes)


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


@pytest.mark.parametrize("side", [384, 192, 128, 96, 64, 48])
def test_pixels_are_the_whole_picture_scaled(side: int) -> None:
    grid = random_grid(World(), 3)
    found = Pictures(PAPER, side)(grid)
    assert found.dtype == torch.float32 and found.shape == (3, 3, side, side) and found.is_contiguous()
    for pixels_found, picture in zip(found.numpy(), PAPER.arrays(grid), strict=True):
        difference = np.abs(pixels_found - by_hand(picture, side))
        assert difference.max() <= 1.01 / 255 / min(STD)  # halves may be rounded either way
        assert (difference > 1e-5).mean() < 0.01


@pytest.mark.parametrize("side", [224, 256, 400])
def test_other_sides_are_bicubic(side: int) -> None:
    grid = random_grid(World(), 3)
    pictures = Pictures(PAPER, side)
    for _ in range(2):  # the second time from memory
        for found, picture in zip(pictures(grid[[2, 0, 1]]), PAPER.arrays(grid[[2, 0, 1]]), strict=True):
            small = np.asarray(pillow.fromarray(picture).resize((side, side), pillow.Resampling.BICUBIC)) / 255
            np.testing.assert_allclose(found.numpy(), ((small - MEAN) / STD).transpose(2, 0, 1), atol=1e-5)


def test_the_blank_picture_is_white_and_little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
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
