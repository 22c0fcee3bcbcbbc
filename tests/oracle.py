"""A scripted model that answers from what it is shown: it reads the picture or the caption, and the question's text."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable

import numpy as np

from render.image import make_renderer
from render.pictures.renderer import Renderer
from render.png import decode
from render.text import parse_caption
from travlr.scene import Object, Scene, World, objects_of
from travlr.tasks import parse_query, truth

SPANS = {"small": 0.45, "medium": 0.7, "large": 0.94}
CELL = 36
IMAGE_STYLE, CAPTION_STYLE = ["plain"], ["sentences"]  # in which the oracle reads pictures and captions
Misread = Callable[[Object], Object]
WORLD = World()


def scene_of(text: str, picture: bytes | None, misread: Misread | None = None, world: World = WORLD) -> Scene:
    """The scene of a request: from its picture, if it has one, or else from its caption."""
    if picture is None:
        return _caption_of(text)
    grid = read_picture(_renderer(world, IMAGE_STYLE[0], CELL), np.asarray(decode(picture)))
    objects = []
    for cell in np.flatnonzero(grid):
        size, shape, colour = world.kinds[grid[cell] - 1]
        true_object = Object(colour, shape, size, *divmod(int(cell), world.columns))
        objects.append(misread(true_object) if misread else true_object)
    return tuple(objects)


def read_picture(renderer: Renderer, picture: np.ndarray) -> np.ndarray:
    """Kinds (rows * columns) of a picture (height, width, 3): in each cell that of the nearest sprite."""
    cells = renderer.cells_in(picture).reshape(renderer.world.cells, -1).astype(np.float32)
    sprites = renderer.rgb_sprites.reshape(len(renderer.sprites), -1).astype(np.float32)
    distances = (sprites.astype(np.float64) ** 2).sum(axis=1) - 2 * cells @ sprites.T
    return renderer.kinds_of(distances.argmin(axis=1))


def _caption_of(text: str) -> Scene:
    """The scene of the paragraphs of a text that are a caption."""
    parts = text.split("\n\n")
    for start in range(len(parts)):
        for end in range(start + 1, len(parts) + 1):
            with contextlib.suppress(ValueError):
                return parse_caption("\n\n".join(parts[start:end]), style=CAPTION_STYLE[0])[2]
    raise AssertionError(text)


@functools.cache
def _renderer(world: World, style: str, cell: int) -> Renderer:
    return make_renderer(style, world, cell, {size: SPANS[size] for size in world.sizes})


def answer(text: str, picture: bytes | None, misread: Misread | None = None) -> str:
    """A reply to a request in the words that it asks for, after some reasoning where it asks for that."""
    scene = scene_of(text, picture, misread=misread)
    if "List every object" in text:
        listed = "\n".join(f"a {o.colour} {o.shape} at {'ABCDEF'[o.column]} {o.row + 1}" for o in scene)
        return f"I see these.\nList:\n{listed}" if "step by step" in text else listed
    answer = _decide(text, scene)
    return answer if "nothing but" in text else f"It could be true or false, A or B, 1 or 2.\nAnswer: {answer}"


def _decide(text: str, scene: Scene) -> str:
    if "true or false?" in text:
        query = next(line for line in text.splitlines() if _is_query(line))
        return str(truth(scene, parse_query(query))[0]).lower()
    if options := re.findall(r"^([A-H])\. (.+)$", text, re.MULTILINE):
        return next(letter for letter, statement in options if truth(scene, parse_query(statement))[0])
    question = next(line for line in text.splitlines() if line.endswith("?"))
    if match := re.fullmatch(r"How many ([\w ]+) objects are there\?", question):
        return str(len(objects_of(scene, match[1])))
    if match := re.fullmatch(r"How many of the ([\w ]+?) objects are (not )?([\w ]+?) objects\?", question):
        return str(sum(o.matches(match[1]) and o.matches(match[3]) is not bool(match[2]) for o in scene))
    if match := re.fullmatch(r"Which are there more of, (\w+)s or (\w+)s\?", question):
        return max(match[1], match[2], key=lambda attribute: len(objects_of(scene, attribute)))
    if match := re.fullmatch(r"What colour is the (\w+)\?", question):
        return objects_of(scene, match[1])[0].colour
    if match := re.fullmatch(r"Is the (\w+) small or large\?", question):
        return objects_of(scene, match[1])[0].size
    if match := re.fullmatch(r"Which is (\w+), the (\w+) or the (\w+)\?", question):
        return next(shape for shape in match.groups()[1:] if objects_of(scene, f"{match[1]} {shape}"))
    match = re.fullmatch(r"Is the ([\w ]+) (to the left|above) or (?:to the right of|below) the ([\w ]+)\?", question)
    assert match, question
    (first,), (second,) = objects_of(scene, match[1]), objects_of(scene, match[3])
    if match[2] == "above":
        return "above" if first.row < second.row else "below"
    return "left" if first.column < second.column else "right"


def _is_query(line: str) -> bool:
    try:
        parse_query(line)
    except ValueError:
        return False
    return True
