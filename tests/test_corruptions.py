"""Corruptions of a dataset, each with all hashes, counts and digests made consistent again: what finds which.

Each runs twice: where the manifest names the versions at hand, and where it names others, so that bytes which depend on
versions prove nothing.
"""

from __future__ import annotations

import io
import itertools
import json
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from isal import isal_zlib
from PIL import Image as pillow
from PIL import PngImagePlugin

from render.captions.sentences import Captioner
from render.png import deflate
from tests.helpers import write
from travlr import Cardinality, Count, Image, Object, World
from travlr.audit.checks import audit
from travlr.audit.regenerate import due_parts, origin_of
from travlr.audit.report import Check
from travlr.audit.structure import png_chunks
from travlr.convert import convert_dataset
from travlr.files import hashed
from travlr.formats import LAYOUTS
from travlr.formats.base import PARTS, names_of
from travlr.formats.card import write_card
from travlr.formats.columns import FEATURES, SCHEMA, content_digest, example_id, rows_digest
from travlr.formats.manifest import MANIFEST
from travlr.generate import renderer_of
from travlr.scene import SPLITS

pytestmark = pytest.mark.usefixtures("tables_made_once")
CONFIG = Cardinality(count=Count(60, 4, 4, 14), image=Image(cell=8))
OTHER = Cardinality(seed=1, count=CONFIG.count, image=CONFIG.image)
Row = dict[str, Any]
Rows = list[Row]
Change = Callable[[Path], None]
ROWS, PICTURES, FILES = "regeneration: rows", "regeneration: pictures", "regeneration: files"
SETTINGS, CARD = "regeneration: manifest", "regeneration: card"


# Reading, writing, and making consistent ----------------------------------------------------------------------------


def manifest_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / MANIFEST).read_text())


def put(folder: Path, manifest: dict[str, Any]) -> None:
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")


def mend(folder: Path) -> None:
    """Make counts, sizes and digests of the manifest, and the card, those of the files."""
    manifest = manifest_of(folder)
    layout, sums = LAYOUTS[manifest["layout"]], dict.fromkeys(manifest["splits"], 0)
    true, begin = dict.fromkeys(sums, 0), dict.fromkeys(sums, 0)
    for file in manifest["files"]:
        file.update(hashed(folder / name for name in names_of(file)))
        split = file["split"]
        if "rows" not in file:
            continue
        tables = list(layout.read(folder, manifest, split, begin[split], begin[split] + file["rows"]))
        begin[split] += file["rows"]
        total, answers = sum(map(rows_digest, tables)), sum(sum(t["answer"].to_pylist()) for t in tables)
        file.update(true=answers, rows_digest=f"{total % (1 << 256):064x}")
        sums[split], true[split] = sums[split] + total, true[split] + answers
    for split, counts in manifest["splits"].items():
        counts["true"] = true[split]
    digests = {split: n % (1 << 256) for split, n in sums.items()}
    manifest["content_digest"] = content_digest(digests, manifest["pixels"])
    put(folder, manifest)
    (folder / ".travlr").mkdir()
    write_card(folder, manifest)
    shutil.rmtree(folder / ".travlr")
    shutil.rmtree(folder / ".kept", ignore_errors=True)


def store(folder: Path, rows: dict[str, Rows]) -> None:
    """Write rows again, as their format does, and make all else consistent."""
    manifest = manifest_of(folder)
    layout, fragments = LAYOUTS[manifest["layout"]], dict[str, bytes]()
    counts = {split: len(some) for split, some in rows.items()}
    parts = due_parts(manifest, counts, origin_of(manifest))

    @contextmanager
    def open_file(name: str, sync: bool) -> Iterator[IO[bytes]]:
        if not name.startswith(PARTS):
            with open(folder / name, "wb") as file:
                yield file
            return
        buffer = io.BytesIO()
        yield buffer
        fragments[Path(name).name] = buffer.getvalue()

    for part in parts:
        table = pa.Table.from_pylist(rows[part.split][part.start : part.stop], schema=SCHEMA)
        layout.put(open_file, part, iter([table]))
    shared = layout.shared(parts)
    for one in shared:
        data = b"".join(fragments[piece] if isinstance(piece, str) else piece for piece in one.pieces())
        (folder / one.name).write_bytes(data)
    files = [*map(layout.entry, parts), *({"name": one.name, "split": one.split} for one in shared)]
    splits = {split: {"rows": n, "true": 0} for split, n in counts.items()}
    put(folder, manifest | {"files": files, "splits": splits})
    mend(folder)


def read(folder: Path) -> dict[str, Rows]:
    manifest = manifest_of(folder)
    layout = LAYOUTS[manifest["layout"]]
    return {
        split: [row for table in layout.read(folder, manifest, split) for row in table.to_pylist()]
        for split in manifest["splits"]
    }


def on_rows(change: Callable[[Rows], Any], split: str = "train") -> Change:
    """Change the rows of a split; a result that is a list replaces them."""

    def corrupt(folder: Path) -> None:
        rows = read(folder)
        changed = change(rows[split])
        rows[split] = changed if isinstance(changed, list) else rows[split]
        store(folder, rows)

    return corrupt


def true(row: Row) -> bool:
    return bool(row["answer"])


def anyone(row: Row) -> bool:
    return True


def place(row: Row) -> int:
    return int(row["id"][-8:])


def each(
    change: Callable[[Row], Any], which: Callable[[Row], bool] = true, split: str = "train", most: int | None = None
) -> Change:
    """Change the rows of a split that `which` picks, or the first of them."""

    def changed(rows: Rows) -> None:
        for row in [row for row in rows if which(row)][:most]:
            change(row)

    return on_rows(changed, split)


def on_row(change: Callable[[Row], Any]) -> Change:
    return each(change, lambda row: place(row) == 5)


def both(*changes: Change) -> Change:
    def corrupt(folder: Path) -> None:
        for change in changes:
            change(folder)

    return corrupt


def on_manifest(change: Callable[[dict[str, Any]], Any], mended: bool = True) -> Change:
    def corrupt(folder: Path) -> None:
        manifest = manifest_of(folder)
        change(manifest)
        put(folder, manifest)
        if mended:
            mend(folder)

    return corrupt


def on_file(name: str, change: Callable[[bytes], bytes], mended: bool = True) -> Change:
    """Change the bytes of a file, the first that has this name."""

    def corrupt(folder: Path) -> None:
        path = sorted(folder.glob(name))[0]
        path.write_bytes(change(path.read_bytes()))
        if mended:
            mend(folder)

    return corrupt


def replaced(old: str, new: str) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert old.encode() in data
        return data.replace(old.encode(), new.encode(), 1)

    return change


# Rows ---------------------------------------------------------------------------------------------------------------


def number(rows: Rows, split: str = "train") -> Rows:
    """Give rows the ids of their places."""
    for index, row in enumerate(rows):
        row["id"] = example_id("cardinality", split, index)
        row["image"] = row["image"] | {"path": f"{row['id']}.png"}
    return rows


def draw(row: Row) -> None:
    """Make caption and picture those of the objects column."""
    world = World()
    row["caption"] = Captioner(world).caption(tuple(Object(**o) for o in row["objects"]))
    grid = [0] * world.cells
    for o in row["objects"]:
        grid[o["row"] * world.columns + o["column"]] = world.number[o["size"], o["shape"], o["colour"]]
    row["image"]["bytes"] = renderer_of(CONFIG).pngs(
        pa.array([grid], pa.list_(pa.int64())).flatten().to_numpy().reshape(1, -1)
    )[0]


def flip(row: Row) -> None:
    row["answer"] = not row["answer"]


def spoil(column: str, change: Callable[[Any], Any]) -> Callable[[Row], None]:
    def changed(row: Row) -> None:
        row[column] = change(row[column])

    return changed


def rename(pattern: str) -> Callable[[Row], None]:
    """Give a picture another path."""

    def changed(row: Row) -> None:
        row["image"]["path"] = pattern.format(**row)

    return changed


def reorder(key: Callable[[Row], Any]) -> Callable[[Row], None]:
    def changed(row: Row) -> None:
        row["objects"].sort(key=key)
        draw(row)

    return changed


def occupy(row: Row) -> None:
    """Move a distractor to A 1, if it is empty."""
    if all((o["row"], o["column"]) != (0, 0) for o in row["objects"]):
        next(o for o in row["objects"] if not o["queried"]).update(row=0, column=0)
        draw(row)


def redden(row: Row) -> None:
    """Paint most objects red."""
    for o in row["objects"][1:]:
        o["colour"] = "red"
    draw(row)


def mirror(row: Row) -> None:
    """Turn the scene upside down where its lower half has more objects."""
    if sum(o["row"] > 2 for o in row["objects"]) * 2 > len(row["objects"]):
        for o in row["objects"]:
            o["row"] = 5 - o["row"]
        draw(row)


def mark_all(row: Row) -> None:
    for o in row["objects"]:
        o["queried"] = True


def swap_two(rows: Rows) -> Rows:
    rows[4], rows[9] = rows[9], rows[4]
    return number(rows)


def swap_couples(rows: Rows) -> Rows:
    """True before false in every couple."""
    return number(
        [row for i in range(0, len(rows), 2) for row in sorted(rows[i : i + 2], key=lambda r: not r["answer"])]
    )


def swap_pictures(rows: Rows) -> None:
    rows[4]["image"]["bytes"], rows[5]["image"]["bytes"] = rows[5]["image"]["bytes"], rows[4]["image"]["bytes"]


def swap_splits(folder: Path) -> None:
    rows = read(folder)
    train, validation = rows["train"][:4], rows["validation"]
    rows["train"] = number(validation + rows["train"][4:])
    rows["validation"] = number(train, "validation")
    store(folder, rows)


def other_seed(folder: Path) -> None:
    """The rows of another seed under the name of this one."""
    manifest = manifest_of(folder)
    shutil.rmtree(folder)
    write(folder, OTHER, rows_per_file=40)
    put(folder, manifest_of(folder) | {key: manifest[key] for key in ("config", "versions")})
    mend(folder)


ROW_CHANGES: dict[str, Change] = {
    "one answer": on_row(flip),
    "answers of a couple exchanged": each(flip, lambda row: place(row) in (4, 5)),
    "answers of the last split": each(flip, lambda row: place(row) > 11, "test_ood"),
    "another caption": on_rows(lambda rows: rows[4].update(caption=rows[5]["caption"])),
    "a space behind a caption": on_row(spoil("caption", lambda text: text + " ")),
    "a letter of another alphabet in captions": each(spoil("caption", lambda text: text.replace("a", "\u0430", 1))),
    "another query": on_rows(lambda rows: rows[4].update(query=rows[20]["query"])),
    "two spaces in queries": each(spoil("query", lambda text: text.replace(" ", "  ", 1))),
    "a key of query_form": each(spoil("query_form", lambda text: text.replace("}", ', "answer": true}'))),
    "spaces in query_form": each(spoil("query_form", lambda text: text.replace(": ", ":  "))),
    "a key twice in query_form": each(spoil("query_form", lambda text: text.replace("{", '{"task": 0, ', 1))),
    "order of keys in query_form": each(
        spoil("query_form", lambda t: json.dumps(dict(reversed(json.loads(t).items()))))
    ),
    "a value of a pair": on_row(spoil("pair", lambda pair: [pair[0], "7"])),
    "a third value of pairs": each(spoil("pair", lambda pair: [*pair, "yes"])),
    "folders in image.path": each(rename("{answer}/{id}.png")),
    "capitals in image.path": each(rename("{id}.PNG")),
    "a dot in image.path": each(rename("./{id}.png"), anyone),
    "an empty image.path": each(rename("")),
    "an id": on_row(spoil("id", lambda text: text + "x")),
    "the task": on_row(spoil("task", lambda text: "comparison")),
    "all objects queried": each(mark_all),
    "objects in another order": on_row(reorder(lambda o: o["colour"])),
    "objects sorted by shape": each(reorder(lambda o: o["shape"]), anyone),
    "planted: first object red": each(reorder(lambda o: o["colour"] != "red")),
    "planted: cell A 1 occupied": each(occupy),
    "planted: share of red": each(redden),
    "planted: top half heavier": each(mirror),
    "planted in 3 %": each(redden, most=2),
    "planted in test_ood": each(redden, split="test_ood"),
    "rows sorted by answer": on_rows(lambda rows: number(sorted(rows, key=lambda row: row["answer"]))),
    "rows sorted by query": on_rows(lambda rows: number(sorted(rows, key=lambda row: row["query"]))),
    "rows reversed": on_rows(lambda rows: number(rows[::-1])),
    "couples sorted": on_rows(swap_couples),
    "two rows exchanged": on_rows(swap_two),
    "a row twice": on_rows(lambda rows: number([*rows[:9], dict(rows[7]), *rows[10:]])),
    "a row of another split": swap_splits,
    "rows of another seed": other_seed,
}


# Pictures -----------------------------------------------------------------------------------------------------------


def on_png(change: Callable[[bytes], bytes]) -> Callable[[Row], None]:
    def changed(row: Row) -> None:
        row["image"]["bytes"] = change(row["image"]["bytes"])

    return changed


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(name)))


def with_chunks(change: Callable[[list[tuple[bytes, bytes]]], list[tuple[bytes, bytes]]]) -> Callable[[Row], None]:
    return on_png(lambda data: b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in change(list(png_chunks(data)))))


def added(name: bytes, data: bytes, place: int = -1) -> Callable[[Row], None]:
    """With one more chunk, before the last or at a place."""
    return with_chunks(lambda chunks: [*chunks[:place], (name, data), *chunks[place:]])


def packed(change: Callable[[bytes], bytes]) -> Callable[[Row], None]:
    """With image data compressed otherwise, or other lines. change: lines -> compressed lines."""
    return with_chunks(
        lambda chunks: [(n, change(zlib.decompress(body)) if n == b"IDAT" else body) for n, body in chunks]
    )


def turned_palette(chunks: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The last two entries exchanged, and the pixels that show them."""
    bodies = dict(chunks)
    palette, lines = bodies[b"PLTE"], bytearray(zlib.decompress(bodies[b"IDAT"]))
    last = len(palette) // 3 - 1
    turn = {last: last - 1, last - 1: last}
    width = len(lines) // 48
    for at in range(len(lines)):
        if at % width:
            high, low = lines[at] >> 4, lines[at] & 15
            lines[at] = turn.get(high, high) << 4 | turn.get(low, low)
    bodies[b"PLTE"] = palette[:-6] + palette[-3:] + palette[-6:-3]
    bodies[b"IDAT"] = deflate(bytes(lines))
    return list(bodies.items())


def saved(kind: str, mode: str, **options: Any) -> Callable[[Row], None]:
    """Saved by Pillow."""

    def change(data: bytes) -> bytes:
        buffer = io.BytesIO()
        pillow.open(io.BytesIO(data)).convert(mode).save(buffer, kind, **options)
        return buffer.getvalue()

    return on_png(change)


def speck(row: Row) -> None:
    picture = pillow.open(io.BytesIO(row["image"]["bytes"]))
    picture.putpixel((0, 0), 1)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    row["image"]["bytes"] = buffer.getvalue()


def subtracted(lines: bytes) -> bytes:
    """The same pixels with another line filter."""
    width, filtered = len(lines) // 48, bytearray()
    for at in range(0, len(lines), width):
        line = lines[at + 1 : at + width]
        filtered += bytes([1, line[0], *((b - a) % 256 for a, b in itertools.pairwise(line))])
    return deflate(bytes(filtered))


def split_data(chunks: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    body = dict(chunks)[b"IDAT"]
    return [*chunks[:2], (b"IDAT", body[:9]), (b"IDAT", body[9:]), *chunks[3:]]


def wrong_sum(data: bytes) -> bytes:
    at = data.index(b"PLTE") + 4 + struct.unpack(">I", data[data.index(b"PLTE") - 4 : data.index(b"PLTE")])[0]
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def deep(chunks: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """With one byte for each pixel."""
    bodies = dict(chunks)
    lines, width = zlib.decompress(bodies[b"IDAT"]), 25
    wide = b"".join(
        bytes([0, *(half for byte in lines[at + 1 : at + width] for half in (byte >> 4, byte & 15))])
        for at in range(0, len(lines), width)
    )
    bodies[b"IHDR"] = bodies[b"IHDR"][:8] + b"\x08" + bodies[b"IHDR"][9:]
    bodies[b"IDAT"] = deflate(wide)
    return list(bodies.items())


PICTURE_CHANGES: dict[str, Change] = {
    "a text chunk": each(added(b"tEXt", b"answer\0true")),
    "a text chunk in every picture": each(added(b"tEXt", b"a\0b"), anyone),
    "a compressed text chunk": each(added(b"zTXt", b"answer\0\0" + zlib.compress(b"true"))),
    "an international text chunk": each(added(b"iTXt", b"answer\0\0\0\0\0true")),
    "a chunk of no standard": each(added(b"trAv", b"1")),
    "a time chunk": each(added(b"tIME", struct.pack(">HBBBBB", 2020, 1, 1, 0, 0, 1))),
    "a gamma chunk": each(added(b"gAMA", struct.pack(">I", 45455), 1)),
    "a resolution chunk": each(added(b"pHYs", struct.pack(">IIB", 1, 1, 0), 1)),
    "an Exif chunk": each(added(b"eXIf", b"MM\0*\0\0\0\x08\0\0\0\0\0\0")),
    "a background chunk": each(added(b"bKGD", b"\1", 2)),
    "alpha of the palette": each(added(b"tRNS", b"\xfe", 2)),
    "bytes behind the picture": each(on_png(lambda data: data + b"true")),
    "a newline behind every picture": each(on_png(lambda data: data + b"\n"), anyone),
    "bytes behind the compressed data": each(packed(lambda lines: deflate(lines) + b"true")),
    "lines behind the last line": each(packed(lambda lines: deflate(lines + b"true"))),
    "data in two chunks": each(with_chunks(split_data)),
    "an empty data chunk": each(added(b"IDAT", b"")),
    "the palette in another order": each(with_chunks(turned_palette)),
    "a longer palette": each(with_chunks(lambda c: [(n, b + (n == b"PLTE") * b"\1\2\3") for n, b in c])),
    "a byte for each pixel": each(with_chunks(deep)),
    "other line filters": each(packed(subtracted)),
    "RGB": each(saved("PNG", "RGB")),
    "RGBA": each(saved("PNG", "RGBA")),
    "grey": each(saved("PNG", "L")),
    "one pixel": on_row(speck),
    "a wrong CRC": each(on_png(wrong_sum)),
    "JPEG": each(saved("JPEG", "RGB")),
    "WebP": on_row(saved("WEBP", "RGB", lossless=True)),
    "pictures of two rows exchanged": on_rows(swap_pictures),
    "no compression": each(packed(lambda lines: zlib.compress(lines, 0))),
    "another level": each(packed(lambda lines: isal_zlib.compress(lines, 1))),
    "every other couple of another level": each(
        packed(lambda lines: zlib.compress(lines, 9)), lambda row: place(row) % 4 < 2
    ),
    "two levels": both(
        each(packed(lambda lines: zlib.compress(lines, 9))),
        each(packed(lambda lines: zlib.compress(lines, 1)), lambda row: not row["answer"]),
    ),
    "two levels in test_ood": both(
        each(packed(lambda lines: zlib.compress(lines, 9)), true, "test_ood"),
        each(packed(lambda lines: zlib.compress(lines, 1)), lambda row: not row["answer"], "test_ood"),
    ),
}


# Parquet files ------------------------------------------------------------------------------------------------------


def on_table(change: Callable[[pa.Table], pa.Table], **options: Any) -> Change:
    """Write the first file again from a changed table."""

    def corrupt(folder: Path) -> None:
        path = sorted(folder.glob("train-*"))[0]
        pq.write_table(change(pq.read_table(path)), path, **options)
        mend(folder)

    return corrupt


def features(change: dict[str, Any]) -> Change:
    about = json.dumps({"info": {"features": FEATURES | change}})
    return on_table(lambda table: table.replace_schema_metadata({"huggingface": about}))


def cast(name: str, kind: pa.DataType) -> Change:
    def changed(table: pa.Table) -> pa.Table:
        return table.set_column(table.column_names.index(name), name, table[name].cast(kind))

    return on_table(changed)


def gap(data: bytes) -> bytes:
    """Bytes between rows and metadata, which no reader sees."""
    size = struct.unpack("<I", data[-8:-4])[0] + 8
    return data[:-size] + b"answers" + data[-size:]


def described(table: pa.Table) -> pa.Table:
    field = table.schema.field("answer").with_metadata({"answers": "1"})
    return table.cast(table.schema.set(table.column_names.index("answer"), field))


FILE_CHANGES: dict[str, Change] = {
    "another column": on_table(lambda table: table.append_column("cheat", table["answer"])),
    "columns in another order": on_table(lambda table: table.select(table.column_names[::-1])),
    "another metadata entry": on_table(
        lambda table: table.replace_schema_metadata({**SCHEMA.metadata, "answers": "1"})
    ),
    "no features": on_table(lambda table: table.replace_schema_metadata(None)),
    "answer as a class label": features({"answer": {"names": ["no", "yes"], "_type": "ClassLabel"}}),
    "grey pictures declared": features({"image": {"mode": "L", "_type": "Image"}}),
    "caption not declared": features({"caption": {"dtype": "int32", "_type": "Value"}}),
    "metadata of a column": on_table(described),
    "captions as large strings": cast("caption", pa.large_string()),
    "ids as a dictionary": cast("id", pa.dictionary(pa.int32(), pa.string())),
    "small row groups": on_table(lambda table: table, row_group_size=10),
    "bytes no reader sees": on_file("train-*", gap),
    "another writer": on_file("train-*", replaced("parquet-cpp-arrow", "parquet-cqq-arrow")),
}


# Manifest, card, stray files ----------------------------------------------------------------------------------------


def without_a_split(folder: Path) -> None:
    manifest = manifest_of(folder)
    for file in [file for file in manifest["files"] if file["split"] == "test_ind"]:
        (folder / file["name"]).unlink()
        manifest["files"].remove(file)
    del manifest["splits"]["test_ind"], manifest["data_files"]["test_ind"]
    put(folder, manifest)
    mend(folder)


def swap(values: Any, a: Any, b: Any) -> None:
    values[a], values[b] = values[b], values[a]


def swap_globs(data: bytes) -> bytes:
    text = data.decode()
    for a, b in (("path: test_ood-", "path: \0"), ("path: train-", "path: test_ood-"), ("path: \0", "path: train-")):
        assert a in text
        text = text.replace(a, b)
    return text.encode()


def source(**changed: Any) -> Callable[[dict[str, Any]], None]:
    """As if converted from another dataset."""

    def change(manifest: dict[str, Any]) -> None:
        about = {key: manifest[key] for key in ("layout", "content_digest", "versions", "source")}
        manifest["source"] = about | changed

    return change


def another_example(folder: Path) -> None:
    (folder / "example.png").write_bytes(read(folder)["train"][1]["image"]["bytes"])


def text_in(path: Path) -> None:
    about = PngImagePlugin.PngInfo()
    about.add_text("answers", "1")
    pillow.open(path).save(path, pnginfo=about)


def stray(name: str, data: str | None = None) -> Change:
    """A further file: with a text, or a copy of a file of the dataset."""

    def corrupt(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        if data is None:
            shutil.copy(sorted(folder.rglob(f"*{Path(name).suffix}"))[0], folder / name)
        else:
            (folder / name).write_text(data)

    return corrupt


MANIFEST_CHANGES: dict[str, tuple[Change, str]] = {
    "another seed": (on_manifest(lambda m: m["config"].update(seed=1)), ROWS),
    "other totals": (on_manifest(lambda m: m["config"].update(total_objects=[7, 12])), ROWS),
    "a wider grid": (on_manifest(lambda m: m["config"]["world"].update(columns=7)), ROWS),
    "larger cells": (on_manifest(lambda m: m["config"]["image"].update(cell=10)), SETTINGS),
    "more examples": (on_manifest(lambda m: m["config"]["count"].update(train=80)), SETTINGS),
    "settings that cannot be": (on_manifest(lambda m: m["config"]["count"].update(train=10**9)), SETTINGS),
    "a missing split": (without_a_split, SETTINGS),
    "fewer held-out pairs": (on_manifest(lambda m: m["held_out"]["pairs"].pop()), SETTINGS),
    "a held-out pair that no row shows": (
        on_manifest(lambda m: m["held_out"]["pairs"].append(["star", "9"])),
        SETTINGS,
    ),
    "no held-out queries": (on_manifest(lambda m: m["held_out"].update(queries=[])), SETTINGS),
    "no held-out lists": (on_manifest(lambda m: m["held_out"].update(pairs=[], queries=[])), SETTINGS),
    "globs exchanged": (on_manifest(lambda m: swap(m["data_files"], "train", "test_ood")), SETTINGS),
    "a wider glob": (on_manifest(lambda m: m["data_files"].update(train="*.parquet")), SETTINGS),
    "splits in another order": (
        on_manifest(lambda m: m.update(splits=dict(reversed(m["splits"].items())))),
        SETTINGS,
    ),
    "an entry more": (on_manifest(lambda m: m.update(answers="0110")), SETTINGS),
    "an entry less": (on_manifest(lambda m: m.pop("source")), SETTINGS),
    "an entry of a file more": (on_manifest(lambda m: m["files"][0].update(answers="0110")), SETTINGS),
    "an entry of a split more": (on_manifest(lambda m: m["splits"]["train"].update(answers="0110")), SETTINGS),
    "files in another order": (on_manifest(lambda m: swap(m["files"], 0, 2)), SETTINGS),
    "files of a split exchanged": (on_manifest(lambda m: swap(m["files"], 3, 4)), SETTINGS),
    "other rows in a file": (on_manifest(lambda m: m.update(rows_per_file=50)), SETTINGS),
    "no digest of pixels": (on_manifest(lambda m: m.update(pixels=None)), SETTINGS),
    "another digest of pixels": (on_manifest(lambda m: m.update(pixels="0" * 64)), SETTINGS),
    "another format": (on_manifest(lambda m: m.update(format="other")), SETTINGS),
    "an older format version": (on_manifest(lambda m: m.update(format_version=0)), SETTINGS),
    "converted from other rows": (on_manifest(source(content_digest="0" * 64)), SETTINGS),
    "converted from no dataset": (on_manifest(lambda m: m.update(source={"index.csv": "0"})), SETTINGS),
    "no settings": (on_manifest(lambda m: m.update(config=None, held_out=None, pixels=None)), SETTINGS),
    "converted from no format": (on_manifest(source(layout="zip")), SETTINGS),
    "another content digest": (
        on_manifest(lambda m: m.update(content_digest="0" * 64), mended=False),
        "content digest",
    ),
    "another number of true answers": (
        on_manifest(lambda m: m["splits"]["train"].update(true=7), mended=False),
        "rows",
    ),
    "another hash": (on_manifest(lambda m: m["files"][0].update(sha256="0" * 64), mended=False), "files"),
    "a missing file": (lambda folder: sorted(folder.glob("train-*"))[1].unlink(), "files"),
    "rows missing": (on_rows(lambda rows: rows[:-2]), "rows"),
    "rows missing in the middle": (on_rows(lambda rows: number(rows[:20] + rows[22:])), ROWS),
    "rows more": (on_rows(lambda rows: number([*rows, *map(dict, rows[:2])])), "rows"),
    "card: globs exchanged": (on_file("README.md", swap_globs, False), CARD),
    "card: another glob": (on_file("README.md", replaced("test_ind-*.parquet", "test_*.parquet"), False), CARD),
    "card: other features": (on_file("README.md", replaced("dtype: bool", "dtype: string"), False), CARD),
    "card: grey pictures": (on_file("README.md", replaced("mode: RGB", "mode: L"), False), CARD),
    "card: another number of examples": (
        on_file("README.md", replaced("num_examples: 60", "num_examples: 6"), False),
        CARD,
    ),
    "card: another licence": (on_file("README.md", replaced("apache-2.0", "mit"), False), CARD),
    "card: another table": (on_file("README.md", replaced("| train | 60 |", "| train | 61 |"), False), CARD),
    "card: another seed": (on_file("README.md", replaced('"seed": 0', '"seed": 1'), False), CARD),
    "card: other held-out pairs": (on_file("README.md", replaced("`circle 1`, ", ""), False), CARD),
    "card: another example": (on_file("README.md", replaced("**There are", "**There were"), False), CARD),
    "card: no header": (on_file("README.md", replaced("---", "--"), False), CARD),
    "card: missing": (lambda folder: (folder / "README.md").unlink(), CARD),
    "no example.png": (lambda folder: (folder / "example.png").unlink(), CARD),
    "another example.png": (
        another_example,
        CARD,
    ),
    "text in example.png": (lambda folder: text_in(folder / "example.png"), CARD),
    "a stray shard": (stray("train-00007-of-00008.parquet"), "other files"),
    "a stray file of another name": (stray("extra.parquet"), "other files"),
    "stray JSON": (stray("answers.json", "[]"), "other files"),
    "stray lines": (stray("metadata.jsonl", "{}"), "other files"),
    "a stray folder": (stray("test/a.png"), "other files"),
    "a stray program": (stray("data.py", ""), "other files"),
}


# Other formats ------------------------------------------------------------------------------------------------------


def on_tar(change: Callable[[Any, Any], Any]) -> Change:
    """Write a shard again. change: member and its bytes -> bytes, None to leave them; it may change the member."""
    import tarfile

    def corrupt(folder: Path) -> None:
        path = sorted(folder.glob("train-*"))[0]
        with tarfile.open(path) as tar:
            members = [(member, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for member, data in members:
                data = change(member, data) or data
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        mend(folder)

    return corrupt


def dated(member: Any, data: bytes) -> None:
    member.mtime = 7


def owned(member: Any, data: bytes) -> None:
    member.uname = "true"


def on_json(change: Callable[[bytes], bytes]) -> Callable[[Any, bytes], bytes | None]:
    return lambda member, data: change(data) if member.name.endswith("json") else None


def on_jpg(change: Callable[[bytes], bytes], which: Callable[[int], bool] = lambda answer: bool(answer)) -> Change:
    """Change the training pictures of the published layout whose answers `which` picks."""

    def corrupt(folder: Path) -> None:
        for index, row in enumerate(read(folder)["train"]):
            if which(row["answer"]):
                path = folder / "images" / f"{index}.jpg"
                path.write_bytes(change(path.read_bytes()))
        mend(folder)

    return corrupt


def quality(level: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        buffer = io.BytesIO()
        pillow.open(io.BytesIO(data)).save(buffer, "JPEG", quality=level, subsampling=0)
        return buffer.getvalue()

    return change


def comment(data: bytes) -> bytes:
    return data[:2] + b"\xff\xfe\0\6true" + data[2:]


def swap_files(folder: Path) -> None:
    a, b = (folder / "images" / f"{n}.jpg" for n in (4, 5))
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)
    mend(folder)


def swap_lines(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join([*lines[:4], lines[5], lines[4], *lines[6:]])


LAYOUT_CHANGES: dict[str, tuple[str, Change, str]] = {
    "a text chunk": ("imagefolder", PICTURE_CHANGES["a text chunk"], PICTURES),
    "an answer": ("imagefolder", on_row(flip), ROWS),
    "spaces": ("imagefolder", on_file("train/metadata.jsonl", replaced(": ", ":  ")), FILES),
    "a key": ("imagefolder", on_file("train/metadata.jsonl", replaced('{"colour"', '{"x": 1, "colour"')), FILES),
    "an empty line": ("imagefolder", on_file("train/metadata.jsonl", lambda d: d + b" \n", False), "rows"),
    "lines exchanged": ("imagefolder", on_file("train/metadata.jsonl", swap_lines), ROWS),
    "a stray picture": ("imagefolder", stray("train/a.png"), "other files"),
    "a stray list": ("imagefolder", stray("metadata.csv", "file_name\n"), "other files"),
    "card without features": ("imagefolder", on_file("README.md", replaced("name: query", "name: text"), False), CARD),
    "card globs": ("imagefolder", on_file("README.md", replaced("train/*", "test_ood/*"), False), CARD),
    "dates of members": ("webdataset", on_tar(dated), FILES),
    "owners of members": ("webdataset", on_tar(owned), FILES),
    "key of a member": ("webdataset", on_tar(on_json(replaced('{"colour"', '{"x": 1, "colour"'))), FILES),
    "spaces of a member": ("webdataset", on_tar(on_json(replaced(", ", ",  "))), FILES),
    "bytes behind the end": ("webdataset", on_file("train-*", lambda data: data + b"true" * 128), FILES),
    "alpha": ("webdataset", PICTURE_CHANGES["alpha of the palette"], PICTURES),
    "an answer of a member": ("webdataset", on_row(flip), ROWS),
    "an answer of a line": ("original", on_row(flip), ROWS),
    "a comment": ("original", on_jpg(comment), PICTURES),
    "bytes behind pictures": ("original", on_jpg(lambda data: data + b"true"), PICTURES),
    "quality by the answer": ("original", on_jpg(quality(90)), PICTURES),
    "two qualities": (
        "original",
        both(on_jpg(quality(90)), on_jpg(quality(80), lambda answer: not answer)),
        PICTURES,
    ),
    "pictures exchanged": ("original", swap_files, "image"),
    "another pattern": ("original", on_file("metadata.jsonl", replaced('"pattern": null', '"pattern": "yes"')), FILES),
    "a key of an entry": ("original", on_file("metadata.jsonl", replaced('{"objects"', '{"x": 1, "objects"')), FILES),
    "a column of lines": ("original", on_file("index.csv", lambda d: d.replace(b"\n", b",\n"), False), FILES),
    "quotes": ("original", on_file("index.csv", replaced(",True,", ',"True",')), FILES),
}


@dataclass(frozen=True)
class Corruption:
    """check: that must fail; other: that must where the manifest names other versions, empty where it is harmless."""

    layout: str
    change: Change
    check: str
    other: str


# What changes only how the same pixels and columns are encoded, in one way: another version may have written that.
HARMLESS: dict[str, tuple[Change, str, str]] = {
    "all pictures of another level": (
        both(*(each(packed(lambda lines: zlib.compress(lines, 9)), anyone, split) for split in SPLITS)),
        PICTURES,
        "one compressor for all pictures",
    ),
    "another codec": (on_table(lambda table: table, compression="snappy"), FILES, "columns are the same"),
    "card: another sentence": (
        on_file("README.md", replaced("## Columns", "Good luck.\n\n## Columns"), False),
        CARD,
        "wording of another version",
    ),
}

CORRUPTIONS = {
    **{f"row: {name}": Corruption("parquet", change, ROWS, ROWS) for name, change in ROW_CHANGES.items()},
    **{f"picture: {name}": Corruption("parquet", c, PICTURES, PICTURES) for name, c in PICTURE_CHANGES.items()},
    **{f"file: {name}": Corruption("parquet", change, FILES, FILES) for name, change in FILE_CHANGES.items()},
    **{f"manifest: {name}": Corruption("parquet", c, check, check) for name, (c, check) in MANIFEST_CHANGES.items()},
    **{f"{at}: {name}": Corruption(at, c, check, check) for name, (at, c, check) in LAYOUT_CHANGES.items()},
    **{f"encoding: {name}": Corruption("parquet", c, check, "") for name, (c, check, _) in HARMLESS.items()},
}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    for layout in LAYOUTS:
        write(folder / layout, CONFIG, format=layout, rows_per_file=40)
    return folder


def of_other_versions(folder: Path) -> None:
    """Say that other versions wrote the dataset, and those that it was converted from."""

    def renamed(about: Any) -> Any:
        if not about or "versions" not in about:
            return about
        source = {"source": renamed(about["source"])} if "source" in about else {}
        return about | {"versions": dict.fromkeys(about["versions"], "0.1")} | source

    put(folder, renamed(manifest_of(folder)))


def failing(folder: Path) -> dict[str, str]:
    return {check.name: check.detail for check in audit(folder, workers=1) if check.status == "FAIL"}


def test_there_are_many_corruptions() -> None:
    assert len(CORRUPTIONS) >= 80


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_every_corruption_is_found_by_name(name: str, clean: Path, tmp_path: Path) -> None:
    case = CORRUPTIONS[name]
    folder = shutil.copytree(clean / case.layout, tmp_path / "d")
    case.change(folder)
    found = failing(folder)
    assert case.check in found, found
    of_other_versions(folder)
    found = failing(folder)
    assert case.other in found if case.other else not found, found
    if not case.other:  # the report says what it could not prove
        notes = statuses(audit(folder, workers=1))
        assert notes[case.check] == notes["regeneration: not proved"] == "note"


def statuses(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.status for check in checks if check.name.startswith("regeneration: ")}


@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("then", [None, "parquet", "imagefolder", "original"])
def test_sound_datasets_are_proved(first: str, then: str | None, clean: Path, tmp_path: Path) -> None:
    """Converted ones, too; the same bytes prove it even where the manifest names other versions."""
    folder = clean / first
    if then:
        convert_dataset(folder, tmp_path / "d", then, workers=1, rows_per_file=25, log=lambda line: None)
    else:
        shutil.copytree(folder, tmp_path / "d")
    checks = audit(tmp_path / "d", workers=1)
    assert set(statuses(checks).values()) == {"ok"} and len(statuses(checks)) == 5, checks
    assert not [check for check in checks if check.status == "FAIL"]
    of_other_versions(tmp_path / "d")
    assert audit(tmp_path / "d", workers=1) == checks
