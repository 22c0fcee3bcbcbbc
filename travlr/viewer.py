"""Web pages that load nothing else, and their one viewer of cards: pictures with what is asked and said of them.

Pages are Jinja2 templates that extend `viewer.html`. Text of datasets, models and runs is untrusted: templates escape
it, or it is JSON that the script shows as text, and a content security policy allows no script but the page's own.
"""

from __future__ import annotations

import io
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from render.png import data_uri, decode
from travlr.config import Config, Style
from travlr.dataset import SplitReader
from travlr.formats.columns import scene_of
from travlr.generate import renderer_of
from travlr.scene import Object, column_name

LONGER_SIDE = 384  # pixels along the longer side of a picture that is too large to embed as it is
LARGEST = 10_000  # bytes of a PNG that is embedded as it is
ENDS_PREFACE = re.compile(r"ordered A to ([A-Z])\. Rows, top to bottom, are ordered 1 to (\d{1,2})\.")


@dataclass(frozen=True)
class Card:
    """A picture with what is asked and said of it.

    title: the query. answer: whether it is true, None to show none. text: the caption; marks: its parts to mark; plain:
    whether its lines and columns mean something. columns: what filters choose by. rows: answers, each with columns to
    choose by and `words` to show. picture: a data URI, "" for none; pixels: its width and height. rings: left, top,
    width and height of what is queried, as fractions of the picture. grid: columns and rows whose names stand beside
    the picture; None for none. table: lines of texts, the first with the names of its columns. couple: equal in cards
    to show side by side.
    """

    id: str
    title: str
    answer: bool | None = None
    text: str = ""
    marks: Sequence[str] = ()
    plain: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    rows: Sequence[Mapping[str, str]] = ()
    picture: str = ""
    pixels: tuple[int, int] = (0, 0)
    rings: Sequence[Sequence[float]] = ()
    grid: tuple[int, int] | None = None
    table: Sequence[Sequence[str]] = ()
    couple: str | None = None


# Cards ---------------------------------------------------------------------------------------------------------------


def read_rows(reader: SplitReader, rows: Sequence[int]) -> list[dict[str, Any]]:
    """These rows of a split, in their order. A thousand are in memory at a time, for the pictures of large corpora."""
    contents: dict[int, dict[str, Any]] = {}
    start, last = 0, max(rows, default=-1)
    for table in reader.tables():
        here = sorted({row for row in rows if start <= row < start + len(table)})
        contents |= zip(here, table.take(pa.array([row - start for row in here], pa.int64())).to_pylist(), strict=True)
        start += len(table)
        if start > last:
            break
    return [contents[row] for row in rows]


def example_card(split: str, row: Mapping[str, Any], config: Config | None) -> Card:
    """The card of a dataset's row. Raises `ValueError` where its picture is damaged."""
    picture, pixels = embed_picture(row["image"]["bytes"], row["id"])
    scene, grid, plain = scene_of(row["objects"]), read_grid(row["caption"], config), Style()
    left, top, right, bottom = renderer_of(config).area if config else (0, 0, 1, 1)
    style = config.style if config else plain
    queried = [o for o in scene if o.queried]
    wide, high = ((right - left) / grid[0], (bottom - top) / grid[1]) if grid else (0.0, 0.0)
    return Card(
        id=row["id"],
        title=row["query"],
        answer=row["answer"],
        text=row["caption"],
        marks=[f"{o.colour} {o.shape} at {_cell(o)}" for o in queried] if style.caption == plain.caption else (),
        plain=style.caption != plain.caption,
        columns={"split": split, "pair": " ".join(row["pair"])},
        picture=picture,
        pixels=pixels,
        rings=[[left + o.column * wide, top + o.row * high, wide, high] for o in queried] if grid else (),
        grid=None if left > 0 else grid,  # a margin has these names already
        table=_objects_table(scene),
    )


def _cell(one: Object) -> str:
    return f"{column_name(one.column)} {one.row + 1}"


def _objects_table(scene: Sequence[Object]) -> list[list[str]]:
    sizes = len({one.size for one in scene}) > 1  # as in captions, one size alone is not named
    head = ["colour", "shape", *["size"] * sizes, "cell", "queried"]
    lines = [[one.colour, one.shape, *[one.size] * sizes, _cell(one), "yes" if one.queried else ""] for one in scene]
    return [head, *lines] if scene else []


def read_grid(caption: str, config: Config | None) -> tuple[int, int] | None:
    """The columns and rows of a scene; None where neither its caption nor its dataset tells them."""
    preface = ENDS_PREFACE.search(caption)
    if config and config.style.caption != Style().caption:
        return config.world.columns, config.world.rows
    return (ord(preface[1]) - ord("A") + 1, int(preface[2])) if preface else None


def embed_picture(data: bytes, name: str) -> tuple[str, tuple[int, int]]:
    """A picture as a data URI, itself where it is a small PNG, else a thumbnail, with its width and height.

    Raises `ValueError` if it is damaged.
    """
    try:
        image = decode(data)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    kind = "jpeg" if data.startswith(b"\xff\xd8") else "png"
    if kind == "jpeg" or len(data) > LARGEST:
        image.thumbnail((LONGER_SIDE, LONGER_SIDE))
        buffer = io.BytesIO()
        # A PNG has as many colours as there can be, or pale objects vanish.
        (image if kind == "jpeg" else image.quantize(256, method=2)).save(buffer, kind, quality=80)
        data = buffer.getvalue()
    return data_uri(data), image.size


def viewer_data(
    cards: Sequence[Card],
    filters: Mapping[str, str],
    *,
    orders: Mapping[str, Iterable[str]] | None = None,
    note: str = "",
) -> dict[str, Any]:
    """The data of a viewer. filters: columns of cards and rows to choose by, with their labels. orders: of values,
    where that is not the alphabet's. note: what the cards are a sample of."""
    choices = {}
    for name in filters:
        values = {part[name] for card in cards for part in (card.columns, *card.rows) if part.get(name)}
        ranks = {value: rank for rank, value in enumerate((orders or {}).get(name, ()))}
        choices[name] = sorted(values, key=lambda value: (ranks.get(value, len(ranks)), value))
    return {
        "filters": {name: label for name, label in filters.items() if choices[name]},
        "choices": choices,
        "cards": [asdict(card) for card in cards],
        "note": note,
    }


# Pages ---------------------------------------------------------------------------------------------------------------


def render_page(template: Path, **values: Any) -> str:
    """A page from a template that extends `viewer.html`. Its blocks are title, style, body and script.

    `<div class="viewer" id="NAME"></div>` in the body becomes a viewer of `data["NAME"]`, which is made by
    `viewer_data`. Other data are in elements NAME-data, too.
    """
    loader = FileSystemLoader([template.parent, Path(__file__).parent])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    return environment.get_template(template.name).render({"nonce": secrets.token_hex(16), "data": {}} | values)
