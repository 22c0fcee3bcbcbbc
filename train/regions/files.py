"""Regions from features that another program extracted: a folder of `ID.npz`, as UNITER reads them.

Each file has the arrays `features` (R, D) and `norm_bb` (R, 4 or more), which begins with left, top, right, bottom as
fractions of the picture; its other arrays are not read. An image has the id of its example; the blank white picture has
the id `blank`.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from train.cache import Block, Columns, cached_arrays
from travlr.columns import damage

BLANK = "blank"
MAX_BYTES = 1 << 28  # of one array
ROWS_PER_BLOCK = 2048  # regions written to the cache at once


def file_regions(
    folder: Path, ids: Sequence[str], number: int | str, cache: Path | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Table, index and boxes of a `RegionTable`: the first `number` regions of each image.

    Features are converted to float16 in `cache`, by default `FOLDER.cache`, and memory-mapped. Raises `ValueError` if
    images are missing or damaged.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder}: is no folder of .npz files")
    images = list(dict.fromkeys([*ids, BLANK]))
    if outside := [image for image in images if Path(image).name != image or "\0" in image]:
        raise ValueError(f"image {outside[0]!r}: is not a file name")
    if missing := [image for image in images if not (folder / f"{image}.npz").is_file()]:
        white = " (the white picture)" if missing[0] == BLANK else ""
        raise ValueError(
            f"{folder}: lacks {len(missing):,} of {len(images):,} images, the first is {missing[0]}{white}"
        )
    counts = np.array([len(read_array(folder, image, "norm_bb")) for image in images])
    lengths = counts if number == "exact" else np.minimum(counts, int(number))
    arrays = _cached_arrays(folder, images, lengths, cache or folder.with_name(f"{folder.name}.cache"))
    starts = np.cumsum(lengths) - lengths
    row_of = {image: row for row, image in enumerate(images)}
    rows = np.array([row_of[image] for image in (*ids, BLANK)])
    region = np.arange(lengths.max())
    mask = region < lengths[rows, None]
    index = np.where(mask, starts[rows, None] + region, -1).astype(np.int32)
    boxes = np.where(mask[..., None], np.asarray(arrays["boxes"])[index], np.float32(0))
    return arrays["features"], index, boxes


def _cached_arrays(folder: Path, images: list[str], lengths: np.ndarray, cache: Path) -> Block:
    """All regions of all images as two arrays, from the cache. lengths: (images,), number of regions of each."""
    dimension = read_regions(folder, BLANK)[0].shape[1]  # all images must have as many numbers
    starts = np.cumsum(lengths) - lengths

    def make(start: int) -> Iterator[Block]:
        block: list[tuple[np.ndarray, np.ndarray]] = []
        first = int(np.searchsorted(starts, start))
        for image, count in zip(images[first:], lengths[first:], strict=True):
            features, boxes = read_regions(folder, image, dimension)
            block.append((features[:count], boxes[:count]))
            if sum(len(boxes) for _, boxes in block) >= ROWS_PER_BLOCK:
                yield _concatenate(block)
                block.clear()
        if block:
            yield _concatenate(block)

    columns: Columns = {"features": ((dimension,), "<f2"), "boxes": ((4,), "<f4")}
    key = f"file-{_key(folder, images, lengths)}"
    return cached_arrays(cache, key, int(lengths.sum()), columns, make, f"reading {folder.name}")


def _concatenate(block: list[tuple[np.ndarray, np.ndarray]]) -> Block:
    features, boxes = zip(*block, strict=True)
    return {"features": np.concatenate(features), "boxes": np.concatenate(boxes)}


def _key(folder: Path, images: list[str], lengths: np.ndarray) -> str:
    """A digest of the images, their numbers of regions, and the size and time of change of each file."""
    digest = hashlib.blake2b(str(folder.resolve()).encode() + lengths.astype("<i8").tobytes(), digest_size=16)
    for image in images:
        status = (folder / f"{image}.npz").stat()
        digest.update(f"{image}\n{status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def read_regions(folder: Path, image: str, dimension: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Features (R, D) float16 and boxes (R, 4) float32 of an image. dimension: D, or None for any.

    Raises `ValueError` for shapes that do not fit, numbers that are not finite and boxes outside the picture.
    """
    features, boxes = read_array(folder, image, "features"), read_array(folder, image, "norm_bb")[:, :4]
    problem = ""
    if not len(boxes) or features.shape[0] != len(boxes) or boxes.shape[1] != 4 or not features.shape[1]:
        problem = f"has features of shape {features.shape} for boxes of shape {boxes.shape}"
    elif dimension is not None and features.shape[1] != dimension:
        problem = f"has features of {features.shape[1]} numbers, but {BLANK} of {dimension}"
    elif not (np.isfinite(features.astype(np.float16)).all() and np.isfinite(boxes).all()):
        problem = "has a number that float16 cannot hold"
    elif boxes.min() < -0.01 or boxes.max() > 1.01 or (boxes[:, 2:] < boxes[:, :2]).any():
        problem = "has a box that is not left, top, right, bottom within the picture"
    if problem:
        raise ValueError(f"{folder}: image {image}: {problem}")
    return features.astype(np.float16), np.clip(boxes, 0, 1).astype(np.float32)


def read_array(folder: Path, image: str, name: str) -> np.ndarray:
    """A two-dimensional array of a file. Raises `ValueError` for any other, and for one of more than `MAX_BYTES`."""
    path = folder / f"{image}.npz"
    try:
        with damage(path), np.load(path, allow_pickle=False) as file:
            member = name if name in file.zip.namelist() else f"{name}.npy"
            if file.zip.getinfo(member).file_size > MAX_BYTES:
                raise ValueError(f"{name} has more than {MAX_BYTES:,} bytes")
            array: np.ndarray = file[name]
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise ValueError(f"{path}: damaged or missing ({error})") from None
    if array.ndim != 2 or array.dtype.kind != "f":
        raise ValueError(f"{path}: {name} is {array.dtype} {array.shape}, not a table of floating-point numbers")
    return array
