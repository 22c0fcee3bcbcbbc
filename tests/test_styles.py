"""Every style of pictures and captions says what the scene is: each is read back, and wrong ones are refused."""

from __future__ import annotations

import io
import json
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as pillow

from render.captions.style import CaptionStyle
from render.image import IMAGE_STYLES, make_renderer
from render.pictures.renderer import Renderer
from render.text import CAPTION_STYLES, make_captioner, parse_caption
from tests.oracle import read_picture
from tests.test_render import EVERYTHING, SPANS, random_grid, scenes
from travlr.scene import Batch, Object, World

WORLDS = {
    "paper-9": (World(), 9),
    "paper-24": (World(), 24),
    "paper-37": (World(), 37),
    "5x2-64": (World(columns=5, rows=2), 64),
    "26x12-16": (World(colours=("red", "blue"), shapes=("square", "star"), columns=26, rows=12), 16),
    "everything-48": (EVERYTHING, 48),
}

STYLES_AND_WORLDS = [  # with equal areas, circles and octagons look the same in a few pixels
    (style, name)
    for style in IMAGE_STYLES
    for name in WORLDS
    if style not in ("equal_area", "jitter") or name not in ("paper-9", "paper-24", "everything-48")
]


def renderer_of(style: str, world: World | None = None, cell: int = 40) -> Renderer:
    return make_renderer(style, world or World(), cell, SPANS)


# Pictures ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("style", "name"), STYLES_AND_WORLDS)
def test_renderer_pictures_read_back_as_their_scene(style: str, name: str) -> None:
    world, cell = WORLDS[name]
    renderer, grid = renderer_of(style, world, cell), random_grid(world, 4)
    arrays = renderer.arrays(grid)
    assert arrays.shape == (4, renderer.height, renderer.width, 3)
    for row, array, png in zip(grid, arrays, renderer.pngs(grid), strict=True):
        picture = pillow.open(io.BytesIO(png))
        assert (picture.format, picture.mode) == ("PNG", "P")
        np.testing.assert_array_equal(np.asarray(picture.convert("RGB")), array)
        np.testing.assert_array_equal(read_picture(renderer, array), row)
        if style == "plain":  # sprites beside and below each other
            sprites = renderer.rgb_sprites[row.reshape(world.rows, world.columns)]
            np.testing.assert_array_equal(array, np.concatenate(np.concatenate(sprites, axis=1), axis=1))


@pytest.mark.parametrize("style", IMAGE_STYLES)
def test_png_file_has_the_checksum_of_its_bytes(style: str) -> None:
    for png in renderer_of(style).pngs(random_grid(World(), 9)):
        at, body = 8, b""
        while at < len(png):
            end = at + 8 + int.from_bytes(png[at : at + 4], "big")
            assert zlib.crc32(png[at + 4 : end]) == int.from_bytes(png[end : end + 4], "big")
            body += png[at + 8 : end] * (png[at + 4 : at + 8] == b"IDAT")
            at = end + 4
        lines = zlib.decompress(body)  # refuses a wrong Adler-32
        assert zlib.adler32(lines) == int.from_bytes(body[-4:], "big")


@pytest.mark.parametrize("style", IMAGE_STYLES)
def test_renderer_depends_on_the_scene_alone(style: str) -> None:
    """Not on its place in a batch, on the batch's size, on the type of its numbers or on the process."""
    grid = random_grid(World(), 40)
    all_ = renderer_of(style).pngs(grid)
    assert renderer_of(style).pngs(grid[::-1].astype(np.int16))[::-1] == all_
    assert [renderer_of(style).pngs(row[None])[0] for row in grid[:3]] == all_[:3]


@pytest.mark.parametrize("style", [style for style in IMAGE_STYLES if style not in ("jitter", "equal_area")])
def test_styles_differ_around_the_objects_only(style: str) -> None:
    """Pixels that an object covers are those of plain, so that a style changes one thing."""
    plain, other, grid = renderer_of("plain"), renderer_of(style), random_grid(World(), 2)
    for before, after in zip(plain.arrays(grid), other.arrays(grid), strict=True):
        cells, drawn = plain.cells_in(before), other.cells_in(after)
        full = np.zeros(cells.shape[:3], bool)
        for rgb in plain.palette[3::3]:
            full |= (cells == rgb).all(axis=-1)
        np.testing.assert_array_equal(drawn[full], cells[full])
        assert full.any() and (style == "plain") == np.array_equal(before, after)


def test_textured_grounds_vary_and_are_never_white() -> None:
    renderer = renderer_of("textured")
    pictures = renderer.arrays(random_grid(World(), 40))
    assert not (pictures == 255).all(axis=-1).any()
    assert len({picture[0, 0].tobytes() + picture[3, 5].tobytes() for picture in pictures}) > 3
    assert len(set(renderer.canvas_numbers(random_grid(World(), 40)).tolist())) == 4


def test_grid_has_lines_between_all_cells() -> None:
    lines = (renderer_of("grid").arrays(np.zeros((1, 36), int))[0] != 255).any(axis=-1)
    assert {int(place) // 40 for place in np.flatnonzero(lines.all(axis=0)) + 1} == set(range(7))
    assert not lines.all()


def test_labelled_names_every_column_and_row() -> None:
    """Each label is in the middle of its column or row, and no two are alike."""
    for world, cell in (WORLDS["26x12-16"], (World(), 64)):
        renderer = renderer_of("labelled", world, cell)
        dark = (renderer.arrays(np.zeros((1, world.cells), int))[0] < 100).all(axis=-1)
        edge = renderer.top
        assert (renderer.left, dark[:edge, :edge].any(), dark[edge:, edge:].any()) == (edge, False, False)
        above = [dark[:edge, edge + c * cell : edge + (c + 1) * cell] for c in range(world.columns)]
        beside = [dark[edge + r * cell : edge + (r + 1) * cell, :edge] for r in range(world.rows)]
        for labels in (above, beside):
            assert len({label.tobytes() for label in labels}) == len(labels)
            for label in labels:
                places = np.argwhere(label)
                middle = (places.min(axis=0) + places.max(axis=0)) / 2
                assert np.abs(middle - (np.array(label.shape) - 1) / 2).max() <= 2


def test_jitter_moves_turns_and_scales() -> None:
    """Over many scenes, one kind in one cell takes many looks, all inside the cell and all of its own colour."""
    world, cell = World(), 64
    renderer = renderer_of("jitter", world, cell)
    grid = random_grid(world, 200)
    grid[:, 14] = world.number["medium", "square", "blue"]
    looks = np.stack([renderer.cells_in(picture)[14] for picture in renderer.arrays(grid)])
    ink = (looks != 255).any(axis=-1)
    assert not ink[:, [0, -1]].any() and not ink[:, :, [0, -1]].any()
    assert (looks[ink].max(axis=0) <= 255).all() and ((looks[ink] == (28, 86, 214)).all(axis=-1)).mean() > 0.8
    assert len({look.tobytes() for look in looks}) > 20
    centres = np.stack([np.argwhere(one).mean(axis=0) for one in ink])
    assert (centres.min(axis=0) < 28).all() and (centres.max(axis=0) > 35).all()
    areas = ink.sum(axis=(1, 2))
    assert areas.max() > 1.4 * areas.min()


def test_equal_area_gives_shapes_the_same_ink() -> None:
    renderer = renderer_of("equal_area")
    kinds = len(renderer.world.kinds)
    ink = (renderer.sprites[renderer.backgrounds :] >= renderer.grounds).sum(axis=(1, 2)).reshape(-1, kinds)
    assert (ink.min(axis=1) == ink.max(axis=1)).all()
    assert len(np.unique(ink)) == len(ink) and ink.std() > 0.1 * ink.mean()
    strengths = np.unique(renderer.rgb_sprites.reshape(-1, 3), axis=0)
    assert len(strengths) == 1 + len(renderer.world.colours)  # hard edges: white and the full colours


# Captions ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", CAPTION_STYLES)
@given(case=scenes())
def test_parse_caption_reads_what_each_style_writes(style: str, case: tuple[World, tuple[Object, ...]]) -> None:
    world, scene = case
    due = scene if CAPTION_STYLES[style].ordered else tuple(sorted(scene, key=lambda o: (o.row, o.column)))
    caption = make_captioner(style, world).caption(scene)
    assert parse_caption(caption, style=style) == (world.columns, world.rows, due)
    for other in CAPTION_STYLES:
        if other != style:
            with pytest.raises(ValueError):
                parse_caption(caption, style=other)


@pytest.mark.parametrize("style", CAPTION_STYLES)
@settings(max_examples=100)
@given(data=st.data())
def test_parse_caption_refuses_what_its_style_does_not_write(style: str, data: st.DataObject) -> None:
    """A caption with some characters changed is refused, or is what the style writes of the objects that it gives."""
    world, scene = data.draw(scenes())
    caption = make_captioner(style, world).caption(scene[:4])
    at, length = data.draw(st.integers(0, len(caption))), data.draw(st.integers(0, 4))
    put = data.draw(st.sampled_from(["", " ", "\n", ".", ",", "|", '"', "A", "7", "red", "a ", "é", "{", "]", "1e9"]))
    spoiled = caption[:at] + put + caption[at + length :]
    try:
        columns, rows, parsed = parse_caption(spoiled, style=style)
    except ValueError as error:
        assert len(str(error).splitlines()) == 1
        return
    sizes = world.sizes if len(world.sizes) > 1 else ("medium",)
    again = make_captioner(style, World(columns=columns, rows=rows, sizes=sizes)).caption(parsed)
    assert again == spoiled


TWO = (Object("red", "circle", "medium", 0, 0), Object("orange", "octagon", "medium", 1, 2))
SIZED = World(columns=3, rows=2, sizes=("small", "medium"))
GOOD = {style: make_captioner(style, World(columns=3, rows=2)).caption(TWO) for style in CAPTION_STYLES}


@pytest.mark.parametrize("style", CAPTION_STYLES)
def test_captions_name_sizes_where_there_are_several(style: str) -> None:
    sized = make_captioner(style, SIZED).caption(TWO)
    assert sized.count("medium") == 2 and "medium" not in GOOD[style]
    assert parse_caption(sized, style=style)[2] == TWO
    assert {o.size for o in parse_caption(GOOD[style], "small", style)[2]} == {"small"}


@pytest.mark.parametrize("style", CAPTION_STYLES)
def test_captions_of_a_batch_equal_those_of_its_scenes(style: str) -> None:
    writer = make_captioner(style, World())
    batch = batch_of(random_grid(World(), 20))
    for grid, order, caption in zip(batch.grid, batch.order, writer.captions(batch), strict=True):
        scene = []
        for cell in order[order >= 0].tolist():
            size, shape, colour = World().kinds[grid[cell] - 1]
            scene.append(Object(colour, shape, size, *divmod(cell, 6)))
        assert caption == writer.caption(tuple(scene))


def batch_of(grid: np.ndarray) -> Batch:
    order = np.argsort(np.random.default_rng(0).random(grid.shape) + (grid == 0), axis=1)
    order = np.where(np.take_along_axis(grid, order, axis=1) > 0, order, -1)
    zeros = np.zeros(len(grid), np.intp)
    return Batch(grid, order, zeros, zeros, zeros > 0, [], [], 0)


def test_captions_equal_those_of_the_docs() -> None:
    assert GOOD["table"].splitlines()[2:] == [
        "| colour | shape | column | row |",
        "|---|---|---|---|",
        "| red | circle | A | 1 |",
        "| orange | octagon | C | 2 |",
    ]
    first = "Columns, left to right, are ordered A to C. Rows, top to bottom, are ordered 1 to 2."
    assert GOOD["table"].splitlines()[0] == first
    assert json.loads(GOOD["json"]) == {
        "columns": {"left": "A", "right": "C"},
        "rows": {"top": 1, "bottom": 2},
        "objects": [
            {"colour": "red", "shape": "circle", "column": "A", "row": 1},
            {"colour": "orange", "shape": "octagon", "column": "C", "row": 2},
        ],
    }
    assert GOOD["ascii"] == "   A           B  C\n1  red circle  .  .\n2  .           .  orange octagon"


@pytest.mark.parametrize("style", CAPTION_STYLES.values())
def test_caption_styles_declare_their_order(style: type[CaptionStyle]) -> None:
    writer = style(World(columns=3, rows=2))
    assert style.ordered == (writer.caption(TWO) != writer.caption(TWO[::-1]))
