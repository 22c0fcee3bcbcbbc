"""A cache on disk for arrays and byte strings that take long to compute. An interrupted computation is resumed."""

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
Columns = dict[str, tuple[tuple[int, ...], str]]  # name -> (shape of a row, dtype)
PROGRESS = "done"  # file with the number of rows that are complete on disk
STRINGS_PER_BLOCK = 256


def cached_arrays(
    folder: Path | None,
    key: str,
    rows: int,
    columns: Columns,
    make: Callable[[int], Iterator[Block]],
    label: str,
) -> Block:
    """Arrays by name, each with `rows` rows, from `folder`/`key`, or computed and saved there.

    folder: None to compute them in memory. key: a file name, different for different content. make: a function from the
    number of the first missing row to blocks of consecutive rows, by name. label: of the progress bar.

    A process waits while another one computes the same arrays.
    """
    if folder is None:
        arrays = {name: np.empty((rows, *shape), dtype) for name, (shape, dtype) in columns.items()}
        _fill(arrays, 0, make, label)
        return arrays
    place = folder / key
    place.mkdir(parents=True, exist_ok=True)
    with waiting_lock(place / "lock"):
        start = _complete_rows(place, rows, columns)
        if start < rows:
            if not start:
                (place / PROGRESS).unlink(missing_ok=True)  # the files whose rows it counts are overwritten below
            arrays = {
                name: np.lib.format.open_memmap(
                    place / f"{name}.npy", "r+" if start else "w+", np.dtype(dtype), (rows, *shape)
                )
                for name, (shape, dtype) in columns.items()
            }
            _fill(arrays, start, make, label, place)
            del arrays
        return {name: _open(place, name) for name in columns}


def _open(place: Path, name: str) -> np.ndarray:
    return np.load(place / f"{name}.npy", mmap_mode="r", allow_pickle=False)


def _complete_rows(place: Path, rows: int, columns: Columns) -> int:
    """Number of rows on disk; 0 if a file is missing, damaged or of another shape."""
    try:
        complete = int((place / PROGRESS).read_text())
        arrays = {name: _open(place, name) for name in columns}
    except (OSError, ValueError):
        return 0
    fits = all(
        arrays[name].shape == (rows, *shape) and arrays[name].dtype == dtype for name, (shape, dtype) in columns.items()
    )
    return complete if fits and 0 <= complete <= rows else 0


def _fill(
    arrays: Block, start: int, make: Callable[[int], Iterator[Block]], label: str, place: Path | None = None
) -> None:
    """Compute the rows from `start` on. place: the folder of the arrays; None for arrays in memory."""
    rows = len(next(iter(arrays.values())))
    with tqdm(total=rows, initial=start, desc=label, disable=None, leave=False) as bar:
        for block in make(start):
            stop = start + len(next(iter(block.values())))
            for name, values in block.items():
                array = arrays[name]
                array[start:stop] = values
                if isinstance(array, np.memmap):
                    array.flush()
            if place is not None:
                with replacing(place / PROGRESS) as path:
                    path.write_text(str(stop))
            bar.update(stop - start)
            start = stop
    if start != rows:
        raise ValueError(f"{label}: only {start} of {rows} rows could be computed")


# Byte strings --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CompressedStrings:
    """Byte strings in a file: `strings[row]` reads and decompresses one. ends: (rows,), end of each in the file.

    temporary: the folder of the file, deleted with this object; None for a cache that stays.
    """

    file: Path
    ends: np.ndarray
    temporary: tempfile.TemporaryDirectory[str] | None = None

    def __getitem__(self, row: int) -> bytes:
        start = int(self.ends[row - 1]) if row else 0
        with open(self.file, "rb") as file:  # not memory-mapped: pages that were read would count as memory in use
            file.seek(start)
            return isal_zlib.decompress(file.read(int(self.ends[row]) - start))


def cached_strings(
    folder: Path | None, key: str, rows: int, make: Callable[[int], Iterator[bytes]], label: str
) -> CompressedStrings:
    """`rows` byte strings, compressed on disk. folder: None for a temporary folder. make: a function from the number of
    the first missing string to the strings from there on. The other arguments are those of `cached_arrays`."""
    if folder is None:
        temporary = tempfile.TemporaryDirectory(prefix="travlr-")
        strings = cached_strings(Path(temporary.name), key, rows, make, label)
        return CompressedStrings(strings.file, strings.ends, temporary)
    place = folder / key
    data = place / "data"
    columns: Columns = {"ends": ((), "<i8")}
    complete = _complete_rows(place, rows, columns)
    if complete and (data.stat().st_size if data.is_file() else 0) < _open(place, "ends")[complete - 1]:
        (place / PROGRESS).unlink()  # the file was truncated or deleted

    def blocks(start: int) -> Iterator[Block]:
        end = int(_open(place, "ends")[start - 1]) if start else 0
        strings = make(start)
        with open(data, "r+b" if start else "wb") as file:
            file.seek(end)
            while block := [isal_zlib.compress(string, 1) for string in islice(strings, STRINGS_PER_BLOCK)]:
                file.write(b"".join(block))
                file.flush()
                os.fsync(file.fileno())  # before they count as complete
                ends = end + np.cumsum([len(string) for string in block])
                end = int(ends[-1])
                yield {"ends": ends}

    return CompressedStrings(data, cached_arrays(folder, key, rows, columns, blocks, label)["ends"])
