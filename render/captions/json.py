"""The style `json`: one JSON object with the ends of columns and rows, and the objects in their order."""

from __future__ import annotations

import json

from render.captions.style import ListStyle, Parsed, check_written, object_of, refuse, short
from travlr.scene import World, column_name


class JsonCaptioner(ListStyle):
    """Captions as JSON."""

    pieces = (
        '{"columns": {"left": "A", "right": "F"}, "rows": {"top": 1, "bottom": 6}, "objects": [{"size": "small",',
        '"colour": "red", "shape": "circle", "column": "A", "row": 1}]}',
    )

    def __init__(self, world: World) -> None:
        super().__init__(world)
        ends = {
            "columns": {"left": "A", "right": column_name(world.columns - 1)},
            "rows": {"top": 1, "bottom": world.rows},
        }
        self._start = f'{json.dumps(ends)[:-1]}, "objects": ['

    def entry(self, size: str, shape: str, colour: str, row: int, column: int) -> str:
        words = {"size": size} if self.names_size else {}
        return json.dumps(words | {"colour": colour, "shape": shape, "column": column_name(column), "row": row + 1})

    def assemble(self, entries: list[str]) -> str:
        return f"{self._start}{', '.join(entries)}]}}"

    @staticmethod
    def parse(caption: str, size: str) -> Parsed:
        try:
            value = json.loads(caption)
            columns, rows, entries = value["columns"]["right"], value["rows"]["bottom"], value["objects"]
            names_size = bool(entries) and "size" in entries[0]
            words = [[entry[name] for name in ("colour", "shape", "column", "row")] for entry in entries]
            sizes = [entry["size"] if names_size else size for entry in entries]
            scene = tuple(object_of(word, *rest) for word, rest in zip(sizes, words, strict=True))
            if not (isinstance(columns, str) and len(columns) == 1 and isinstance(rows, int)):
                refuse(caption)
        except (KeyError, TypeError, IndexError, RecursionError, json.JSONDecodeError):
            raise ValueError(f"not a caption: {short(caption)}") from None
        return check_written(JsonCaptioner, caption, (ord(columns) - ord("A") + 1, rows, scene), names_size)
