"""Makes a dataset again from its settings, and compares.

An example is a pure function of (config, split, index), so that a dataset which names its config must be what
`travlr.generate` makes of it. This is the one part of the audit that uses the generator: it finds whatever differs from
the generator's output, and no mistake of the generator. The other checks are computed another way, and find those.

Columns and decoded pixels are the same everywhere. The bytes of a PNG depend on the compressor, those of a JPEG on
Pillow, and those of a Parquet file on pyarrow; where other versions wrote them, `structure.py` compares all else.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from travlr.audit.structure import encoding, jpeg_header, png_problem
from travlr.config import Config
from travlr.files import regular
from travlr.formats import LAYOUTS
from travlr.formats.base import PARTS, Part, Shared, parts_of
from travlr.formats.columns import DAMAGE, IMAGE, SCHEMA
from travlr.formats.manifest import FORMAT_VERSION
from travlr.formats.original import jpeg
from travlr.formats.writing import all_versions
from travlr.generate import generator
from travlr.scene import SPLITS
from travlr.tasks import config_from_dict

MANIFEST_KEYS = {
    *("format", "format_version", "layout", "source", "config", "rows_per_file", "pixels", "held_out", "data_files"),
    *("splits", "content_digest", "versions", "files"),
}
MEASURED = {"bytes", "sha256", "true", "rows_digest"}  # of an entry of `files`: other checks compare them
SOURCE_KEYS = {"layout", "content_digest", "versions", "source"}


@dataclass(frozen=True)
class Origin:
    """How a dataset says it was made.

    config: its settings, None where another program made the rows. jpeg: whether the pictures have passed
    through the published layout. pictures_here, files_here: whether the versions that wrote them are those at hand.
    other_versions: those of the files that are not, as text.
    """

    config: Config | None
    jpeg: bool
    pictures_here: bool
    files_here: bool
    other_versions: tuple[str, ...]


def origin_of(manifest: dict[str, Any]) -> Origin:
    """How a dataset says it was made."""
    chain = [manifest, *sources_of(manifest)]  # from this dataset back to the one that was generated
    config = config_from_dict(manifest["config"]) if manifest["config"] else None
    jpeg = any(dataset["layout"] == "original" for dataset in chain)
    ours = all_versions()
    file_versions, picture_versions = (dict(chain[place].get("versions") or {}) for place in (0, -1))
    pictures_here = picture_versions == ours if jpeg else picture_versions.get("encoder") == ours["encoder"]
    other_versions = tuple(
        f"{name} {file_versions.get(name)}, here {ours.get(name)}"
        for name in dict.fromkeys([*ours, *file_versions])
        if file_versions.get(name) != ours.get(name)
    )
    return Origin(config, jpeg, pictures_here, file_versions == ours, other_versions)


def sources_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """What the manifest says of the datasets that this one was converted from, the nearest first."""
    sources = []
    source = manifest.get("source")
    while manifest["config"] and isinstance(source, dict) and set(source) == SOURCE_KEYS:
        sources.append(source)
        source = source["source"]
    return sources


def source_problem(manifest: dict[str, Any], digests: dict[str, str | None]) -> str:
    """Why a dataset cannot have been converted from what it names; empty where it can.

    digests: the content digest that each source must have, by whether it is of JPEG pictures.
    """
    sources = sources_of(manifest)
    last = (sources[-1] if sources else manifest).get("source")
    if manifest["config"] and last is not None:
        return f"source: {as_text(last)} is not what a conversion writes"
    if not manifest["config"] and not (isinstance(last, dict) and set(map(type, last.values())) == {str}):
        return "config: no settings, and no source of another program"
    for number, source in enumerate(sources):
        jpeg = any(dataset["layout"] == "original" for dataset in sources[number:])
        if source["layout"] not in LAYOUTS:
            return f"source: there is no format {as_text(source['layout'])}"
        if source["content_digest"] != digests["jpeg" if jpeg else "png"]:
            return f"source: content {as_text(source['content_digest'])[:16]} is not that of these rows"
    return ""


# The manifest -------------------------------------------------------------------------------------------------------


def due_manifest(manifest: dict[str, Any], origin: Origin) -> dict[str, Any]:
    """The entries of a manifest that follow from the config or, without a config, from the numbers of rows.

    Raises `ValueError` where the config cannot be satisfied.
    """
    due: dict[str, Any] = {"format": "travlr", "format_version": FORMAT_VERSION, "pixels": None, "held_out": None}
    counts = {split: manifest["splits"][split]["rows"] for split in SPLITS if split in manifest["splits"]}
    if origin.config:
        maker, count = generator(origin.config), origin.config.count
        counts = {split: getattr(count, split) for split in SPLITS if getattr(count, split)}
        due["pixels"] = None if origin.jpeg else maker.renderer.digest()
        due["held_out"] = json.loads(json.dumps(maker.task.held_out()))
    parts, layout = due_parts(manifest, counts, origin), LAYOUTS[manifest["layout"]]
    shared = [{"name": file.name, "split": file.split} for file in layout.shared(parts)]
    return due | {
        "data_files": layout.data_files(parts),
        "splits": {split: {"rows": rows} for split, rows in counts.items()},
        "files": [*map(layout.entry, parts), *shared],
    }


def due_parts(manifest: dict[str, Any], counts: dict[str, int], origin: Origin) -> list[Part]:
    """The parts in which the dataset was written, in order."""
    if origin.config:
        task, suffix = origin.config.task, "jpg" if origin.jpeg else "png"
    else:  # names of picture files say it, where a format has them: train/TASK-train-*.png
        name = next((file["name"] for file in manifest["files"] if "/" in file["name"]), "")
        task, suffix = name.partition("/")[2].split("-")[0], name.rpartition(".")[2]
    return parts_of(task, counts, manifest["rows_per_file"], suffix)


def manifest_problem(manifest: dict[str, Any], due: dict[str, Any]) -> str:
    """The first entry of a manifest that is not the due one; empty where there is none."""
    if keys := sorted(MANIFEST_KEYS ^ set(manifest)):
        return f"entry {keys[0]} is {'missing' if keys[0] in MANIFEST_KEYS else 'not one of a dataset'}"
    values = {
        **manifest,
        "splits": {split: {k: v for k, v in n.items() if k != "true"} for split, n in manifest["splits"].items()},
        "files": [{key: value for key, value in file.items() if key not in MEASURED} for file in manifest["files"]],
    }
    for key, value in due.items():
        if values[key] != value or (isinstance(value, dict) and list(values[key]) != list(value)):
            return f"{key}: {difference(values[key], value)}"
    return ""


def difference(value: Any, due: Any) -> str:
    """The first difference of a value of a manifest from the due one."""
    if isinstance(value, dict) and isinstance(due, dict):
        for name in [*due, *value]:
            if name not in value or name not in due or value[name] != due[name]:
                return f"{name}: {difference(value.get(name), due.get(name))}"
        return f"in the order {', '.join(value)}, not {', '.join(due)}"
    if isinstance(value, list) and isinstance(due, list):
        for a, b in zip(value, due, strict=False):
            if a != b:
                return difference(a, b)
        return f"{len(value)} of them, not {len(due)}"
    return f"{as_text(value)}, not {as_text(due)}"


def where_differing(*values: Any) -> str:
    """Two values as text, `this, not that`, from shortly before their first difference on."""
    texts = [as_text(value, 10**6) for value in values]
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))
    cut = max(0, sum(1 for _ in same) - 20)
    return ", not ".join(("..." if cut else "") + as_text(text[cut:]) for text in texts)


def as_text(value: Any, most: int = 80) -> str:
    text = value if isinstance(value, str) and value.isprintable() else json.dumps(value, default=str)
    return text if len(text) <= most else f"{text[: most - 3]}..."


# Rows and pictures --------------------------------------------------------------------------------------------------


def made_again(origin: Origin, split: str, start: int, stop: int) -> pa.Table:
    """Rows start to stop of a split, from the config. Raises `ValueError` past the last row that there can be."""
    assert origin.config is not None
    table = generator(origin.config).table(split, start, stop)
    if not origin.jpeg:
        return table
    images = table["image"].combine_chunks()
    files = pa.array([jpeg(data) for data in images.field("bytes").to_pylist()], pa.binary())
    paths = pa.array([f"{name}.jpg" for name in table["id"].to_pylist()])
    jpegs = pa.StructArray.from_arrays([files, paths], fields=list(IMAGE))
    return table.set_column(SCHEMA.get_field_index("image"), SCHEMA.field("image"), jpegs)


def differing_rows(table: pa.Table, due: pa.Table) -> Iterator[tuple[int, str]]:
    """The rows in which a column is not the due one, with the first such column; `image` by its path alone."""

    def columns(rows: pa.Table) -> list[tuple[str, list[Any]]]:
        paths = rows["image"].combine_chunks().field("path").to_pylist()
        return [("image.path", paths) if name == "image" else (name, rows[name].to_pylist()) for name in SCHEMA.names]

    pairs = list(zip(columns(table), columns(due), strict=True))
    for row in range(table.num_rows):
        for (name, values), (_, due_values) in pairs:
            if values[row] != due_values[row]:
                yield row, f"{name} is {where_differing(values[row], due_values[row])}"
                break


def picture_difference(data: bytes, due: bytes, origin: Origin) -> tuple[str, list[tuple[str, Any]]]:
    """The first difference of a picture file from the one made again, and how the file was encoded (`encoding`).

    The difference is empty where another version of the encoder may have made it.
    """
    if data == due:
        return "", []
    try:
        if due.startswith(b"\xff\xd8"):
            jpeg_header(data)
            problem = ""
        else:
            problem = png_problem(data, due)
        if not problem and origin.pictures_here:
            problem = f"compressed otherwise: {len(data):,} bytes, not {len(due):,}, or others of them"
        return problem, [] if problem else encoding(data, due)
    except ValueError as error:
        return str(error), []


# Files --------------------------------------------------------------------------------------------------------------


class SameBytes(io.RawIOBase):
    """A file to write to that keeps nothing: it compares what is written with a file that exists."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._due = open(regular(path), "rb")  # noqa: SIM115 - closed with this file
        self._at = 0
        self.differs: int | None = None  # the first block of bytes that differs

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        block = bytes(data)
        if self.differs is None and self._due.read(len(block)) != block:
            self.differs = self._at
        self._at += len(block)
        return len(block)

    def ended(self) -> None:
        """Call this after the last byte: the file that exists must end there, too."""
        if self.differs is None and self._due.read(1):
            self.differs = self._at

    def close(self) -> None:
        self._due.close()
        super().close()


def write_again(
    folder: Path, layout: str, part: Part, tables: Iterator[pa.Table]
) -> tuple[str, dict[str, tuple[int, str]]]:
    """Compare the files of a part with what the format writes of these rows; nothing is written.

    Returns the first file that differs (empty where none does), and size and SHA-256 of the fragments of shared files.
    """
    problems: list[str] = []
    fragments: dict[str, tuple[int, str]] = {}

    @contextlib.contextmanager
    def open_file(name: str, sync: bool) -> Iterator[IO[bytes]]:
        if name.startswith(PARTS):
            with io.BytesIO() as fragment:
                yield fragment
                data = fragment.getvalue()
            fragments[Path(name).name] = len(data), hashlib.sha256(data).hexdigest()
            return
        with SameBytes(folder / name) as file:
            yield file  # type: ignore[misc]
            file.ended()
            if file.differs is not None:
                problems.append(f"{name}: not what its rows give, from about byte {file.differs:,} on")

    try:
        LAYOUTS[layout].put(open_file, part, tables)
    except (*DAMAGE, pa.ArrowException, tarfile.TarError) as error:
        problems.append(f"{part.name}: cannot be written again ({(str(error) or repr(error)).splitlines()[0]})")
    return problems[0] if problems else "", fragments


def shared_problem(folder: Path, file: Shared, fragments: dict[str, tuple[int, str]]) -> str:
    """Why a file that parts share does not consist of their fragments; empty where it does."""
    try:
        with open(regular(folder / file.name), "rb") as stream:
            for piece in file.pieces():
                size, digest = (
                    fragments[piece] if isinstance(piece, str) else (len(piece), hashlib.sha256(piece).hexdigest())
                )
                if hashlib.sha256(stream.read(size)).hexdigest() != digest:
                    part = f"the rows of {Path(piece).stem}" if isinstance(piece, str) else "what joins its parts"
                    return f"{file.name}: not what {part} give"
            return f"{file.name}: goes on behind its last row" if stream.read(1) else ""
    except KeyError as error:
        return f"{file.name}: {error.args[0]} could not be written again"
    except OSError as error:
        return f"{file.name}: {error.strerror}"
