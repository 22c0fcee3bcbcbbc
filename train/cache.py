"""What takes long to make: kept in a folder, read from there, and gone on with where an earlier process stopped."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from isal import isal_zlib
from tqdm import tqdm  # type: ignore[import-untyped]

from travlr.files import replacing, waiting_lock

Block = dict[str, np.ndarray]
PACKED = 256  # byte strings that are noted at once


def cached(
    folder: Path | None,
    key: str,
    rows: int,
    columns: dict[str, tuple[tuple[int, ...], str]],
    make: Callable[[int], Iterator[Block]],
    label: str,
) -> Block:
    """Arrays by name, each of `rows` rows; columns: name -> (shape of a row, dtype).

    make: called with a row number, gives from there on blocks of consecutive rows, by name. folder: None to keep the
    arrays in memory alone. key: what the content depends on, made a file name by the caller. The rows of a block count
    as made when the whole block is on the disk. Another process that makes the same waits for this one.
    """
    if folder is None:
        arrays = {name: np.empty((rows, *shape), kind) for name, (shape, kind) in columns.items()}
        _fill(arrays, 0, make, label, lambda done: None)
        return arrays
    place = folder / key
    place.mkdir(parents=True, exist_ok=True)
    with waiting_lock(place / "lock"):
        start = _done(place, rows, columns)
        if start < rows:
            mode = "r+" if start else "w+"
            if not start:
                (place / "done").unlink(missing_ok=True)  # what it said of files that are now written anew
            arrays = {
                name: np.lib.format.open_memmap(place / f"{name}.npy", mode, np.dtype(kind), (rows, *shape))
                for name, (shape, kind) in columns.items()
            }
            _fill(arrays, start, make, label, lambda done: _note(place, arrays, done))
            del arrays
        return {name: _opened(place, name) for name in columns}


def _opened(place: Path, name: str) -> np.ndarray:
    return np.load(place / f"{name}.npy", mmap_mode="r", allow_pickle=False)


def _done(place: Path, rows: int, columns: dict[str, tuple[tuple[int, ...], str]]) -> int:
    """How many rows an earlier process has made; none where a file is missing, damaged or of another shape."""
    try:
        done = int((place / "done").read_text())
        found = {name: _opened(place, name) for name in columns}
    except (OSError, ValueError):
        return 0
    fits = all(
        found[name].shape == (rows, *shape) and found[name].dtype == kind for name, (shape, kind) in columns.items()
    )
    return done if fits and 0 <= done <= rows else 0


def _note(place: Path, arrays: Block, done: int) -> None:
    for array in arrays.values():
        if isinstance(array, np.memmap):
            array.flush()
    with replacing(place / "done") as path:
        path.write_text(str(done))


def _fill(
    arrays: Block, start: int, make: Callable[[int], Iterator[Block]], label: str, note: Callable[[int], None]
) -> None:
    rows = len(next(iter(arrays.values())))
    with tqdm(total=rows, initial=start, desc=label, disable=None, leave=False) as bar:
        for block in make(start):
            stop = start + len(next(iter(block.values())))
            for name, values in block.items():
                arrays[name][start:stop] = values
            note(stop)
            bar.update(stop - start)
            start = stop
    if start != rows:
        raise ValueError(f"{label}: {start} of {rows} rows could be made")


# Byte strings --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Packed:
    """Byte strings on the disk: `packed[row]` reads one. ends: where each ends in the file. place: a temporary folder
    that the file is in, and that goes when this goes."""

    file: Path
    ends: np.ndarray
    place: tempfile.TemporaryDirectory[str] | None = None

    def __getitem__(self, row: int) -> bytes:
        start = int(self.ends[row - 1]) if row else 0
        with open(self.file, "rb") as file:  # not mapped: what was read then takes no memory
            file.seek(start)
            return isal_zlib.decompress(file.read(int(self.ends[row]) - start))


def packed(folder: Path | None, key: str, rows: int, make: Callable[[int], Iterator[bytes]], label: str) -> Packed:
    """`rows` byte strings, compressed. make: called with a row number, gives them from there on. All else as `cached`,
    but where there is no folder they are in a temporary one."""
    if folder is None:
        temporary = tempfile.TemporaryDirectory(prefix="travlr-")
        made = packed(Path(temporary.name), key, rows, make, label)
        return Packed(made.file, made.ends, temporary)
    place = folder / key
    columns: dict[str, tuple[tuple[int, ...], str]] = {"ends": ((), "<i8")}
    if (done := _done(place, rows, columns)) and _size(place / "data") < _opened(place, "ends")[done - 1]:
        (place / "done").unlink()  # someone cut or deleted the file

    def blocks(start: int) -> Iterator[Block]:
        end = int(_opened(place, "ends")[start - 1]) if start else 0
        strings = make(start)
        with open(place / "data", "r+b" if start else "wb") as file:
            file.seek(end)
            while some := [isal_zlib.compress(string, 1) for string in islice(strings, PACKED)]:
                file.write(b"".join(some))
                file.flush()
                os.fsync(file.fileno())  # before they count as made
                ends = end + np.cumsum([len(string) for string in some])
                end = int(ends[-1])
                yield {"ends": ends}

    return Packed(place / "data", cached(folder, key, rows, columns, blocks, label)["ends"])


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0
