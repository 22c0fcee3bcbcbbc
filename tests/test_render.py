"""Pictures and texts say exactly what the scene is: each is read back by something else than what wrote it."""

import hashlib
import itertools
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from render.captions.sentences import Captioner
from render.pictures.renderer import Renderer
from render.png import decode
from render.shapes import LEVELS, coverage
from render.text import parse_caption
from travlr.config import Image
from travlr.sampling.sampler import make_sampler
from travlr.scene import COLOURS, SHAPES, SIZES, Object, Query, World
from travlr.tasks import PAPER, TASKS, parse_query, query_text

SPANS = dict(zip(SIZES, Image().spans, strict=True))
EVERYTHING = World(colours=tuple(COLOURS), shapes=SHAPES, sizes=SIZES)


def random_grid(world: World, count: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    kinds = random.integers(1, len(world.kinds) + 1, (count, world.cells))
    return np.where(random.random((count, world.cells)) < 0.4, kinds, 0)


# Pictures ------------------------------------------------------------------------------------------------------------


def test_renderer_refuses_kinds_that_look_alike() -> None:
    with pytest.raises(ValueError, match=r"image\.cell=8: .*small .* and a "):
        Renderer(EVERYTHING, 8, SPANS)


def test_png_is_small_and_standard() -> None:
    png = Renderer(World(), 64, SPANS).pngs(random_grid(World(), 1))[0]
    assert struct.unpack(">II", png[16:24]) == (384, 384)
    assert png[24:26] == bytes([4, 3])  # four bits per pixel, palette
    assert len(png) < 6000


@pytest.mark.parametrize("cell", [37, 64, 112])
@pytest.mark.parametrize("size", SIZES)
def test_coverage_of_shapes_differs(cell: int, size: str) -> None:
    """No two shapes of one size share more than nine tenths of what they cover together."""
    drawn = {shape: coverage(shape, SPANS[size] * cell, cell) / LEVELS for shape in SHAPES}
    for (a, first), (b, second) in itertools.combinations(drawn.items(), 2):
        shared = np.minimum(first, second).sum() / np.maximum(first, second).sum()
        assert shared < 0.9, (a, b, shared)


@pytest.mark.parametrize("shape", SHAPES)
def test_coverage_is_centred_and_grows_with_size(shape: str) -> None:
    areas = []
    for size in SIZES:
        drawn = coverage(shape, SPANS[size] * 64, 64)
        assert not drawn[[0, -1]].any()
        assert not drawn[:, [0, -1]].any()
        for axis in (0, 1):
            where = np.nonzero(drawn.any(axis=axis))[0]
            assert abs(where[0] + where[-1] - 63) <= 1
        areas.append(drawn.sum())
    assert areas[0] * 1.5 < areas[1] < areas[2] / 1.3


def test_coverage_has_smooth_and_exact_edges() -> None:
    """A circle's covered part is its area; edge pixels are between white and full."""
    drawn = coverage("circle", 50, 64)
    assert drawn.sum() / LEVELS == pytest.approx(np.pi * 25**2, rel=0.005)
    assert set(np.unique(drawn)) == set(range(LEVELS + 1))
    assert coverage("square", 50, 64).sum() / LEVELS == pytest.approx((0.88 * 50) ** 2, rel=0.005)


def test_renderer_gives_the_golden_pixels() -> None:
    # A change here changes every picture: raise image.CONTENT_VERSION with it, and say so.
    sprites = Renderer(EVERYTHING, 64, SPANS).rgb_sprites
    assert hashlib.sha256(sprites.tobytes()).hexdigest()[:16] == "3e50a9935f08ded3"


@pytest.mark.parametrize("data", [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0 not really"])
def test_decode_refuses_what_is_no_picture(data: bytes) -> None:
    with pytest.raises(ValueError, match="PNG"):
        decode(data)


def test_decode_refuses_a_truncated_picture() -> None:
    png = Renderer(World(), 16, SPANS).pngs(random_grid(World(), 1))[0]
    with pytest.raises(ValueError, match="PNG"):
        decode(png[:-40])


# Texts ---------------------------------------------------------------------------------------------------------------


@st.composite
def scenes(draw: st.DrawFn) -> tuple[World, tuple[Object, ...]]:
    columns, rows = draw(st.integers(1, 26)), draw(st.integers(1, 99))
    sizes = draw(st.sampled_from([("medium",), SIZES]))
    world = World(colours=tuple(COLOURS), shapes=SHAPES, sizes=sizes, columns=columns, rows=rows)
    cells = draw(st.lists(st.integers(0, columns * rows - 1), min_size=1, max_size=20, unique=True))
    kind = st.tuples(st.sampled_from(list(COLOURS)), st.sampled_from(SHAPES), st.sampled_from(sizes))
    return world, tuple(Object(*draw(kind), *divmod(cell, columns)) for cell in cells)


def test_caption_reads_as_in_the_paper() -> None:
    scene = (Object("red", "circle", "medium", 0, 0), Object("orange", "octagon", "medium", 5, 5))
    start = "Columns, left to right, are ordered A to F. Rows, top to bottom, are ordered 1 to 6. There is "
    assert Captioner(World()).caption(scene) == f"{start}a red circle at A 1 and an orange octagon at F 6."
    assert Captioner(World()).caption(scene[:1]) == f"{start}a red circle at A 1."
    three = (*scene, Object("blue", "star", "medium", 2, 3))
    assert Captioner(World()).caption(three).endswith("at A 1, an orange octagon at F 6 and a blue star at D 3.")


THREE = (("red", "circle"), ("blue", "star"), ("red", "star"))
GOOD = Captioner(World()).caption(tuple(Object(*kind, "medium", n, n) for n, kind in enumerate(THREE)))


SPOILED = [("a red circle", "an red circle"), ("circle", "oval"), ("red", "mauve"), ("A 1", "G 1"), ("A 1", "A 7")]
SPOILED += [("B 2", "A 1"), (" and ", ", "), (", a blue", " and a blue"), ("a red circle", "a huge red circle")]


@pytest.mark.parametrize("spoiled", ["", GOOD[:-1], f"{GOOD} ", *(GOOD.replace(*two, 1) for two in SPOILED)])
def test_parse_caption_refuses_spoiled_captions(spoiled: str) -> None:
    with pytest.raises(ValueError):
        parse_caption(spoiled)


@given(st.text(max_size=200))
@settings(max_examples=200)
def test_parse_caption_survives_any_text(text: str) -> None:
    for parse in (parse_caption, parse_query):
        try:
            parse(text)
        except ValueError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("query_by", ["shape", "colour", "both"])
@pytest.mark.parametrize("task", PAPER)
def test_parse_query_reads_query_text(task: str, query_by: str) -> None:
    queries = make_sampler(TASKS[task].Config(query_by=query_by)).queries
    texts = {query_text(q): q for q in queries}
    assert len(texts) == len(queries)
    for text, query in texts.items():
        assert parse_query(text) == query


RELEASED: list[tuple[str, tuple[str | int, ...], str]] = [
    ("spatiality", ("red circle", "to the right of", "blue square"),
     "The red circle is to the right of the blue square."),
    ("spatiality", ("red", "above", "blue"), "The red object is above the blue object."),
    ("cardinality", (3, "circle"), "There are 3 circle objects."),
    ("cardinality", (1, "circle"), "There is 1 circle object."),
    ("cardinality", (2, "red circle"), "There are 2 red circle objects."),
    ("quantifiers", ("all", "circle", "red"), "All the circle objects are red objects."),
    ("quantifiers", ("not all", "circle", "red"), "Not all the circle objects are red objects."),
    ("quantifiers", ("some", "circle", "red"), "Some of the circle objects are red objects."),
    ("quantifiers", ("none", "circle", "red"), "None of the circle objects are red objects."),
    ("quantifiers", ("only", "circle", "red"), "Only the circle objects are red objects."),
    ("quantifiers", ("not only", "circle", "red"), "Not only the circle objects are red objects."),
    ("comparison", ("more", "circle", "square"), "There are more circles than squares."),
    ("comparison", ("fewer", "red", "blue"), "There are fewer red objects than blue objects."),
]  # fmt: skip


@pytest.mark.parametrize(("task", "arguments", "text"), RELEASED)
def test_query_text_equals_the_released_texts(task: str, arguments: tuple[str | int, ...], text: str) -> None:
    assert query_text(Query(task, arguments)) == text and parse_query(text) == Query(task, arguments)


@pytest.mark.parametrize(
    "text",
    ["There is 3 circle objects.", "There are 1 circle objects.", "There are 03 circle objects.",
     "All the red circle star objects are red objects.", "The circle is left of the square.",
     "There are three circle objects."],
)  # fmt: skip
def test_parse_query_refuses_spoiled_queries(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not a "):
        parse_query(text)
