"""Regions from features that another program extracted: a folder of `ID.npz`, as UNITER reads them.

Each file has the arrays `features` (R, D) and `norm_bb` (R, 4 or more), which begins with left, top, right, bottom as
fractions of the picture; its other arrays are not read. An image has the id of its example; the blank white picture has
the id `blank`.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm  # type: ignore[import-untyped]

from travlr.formats.columns import report_damage

BLANK = "blank"
MAX_BYTES = 1 << 28  # of one array


def file_regions(folder: Path, ids: Sequence[str], number: int | str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Table, index and boxes of a `RegionTable`: the first `number` regions of each image.

    Features are memory-mapped from a temporary file: all of them may be larger than memory. Raises `ValueError` if
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
    table, image_boxes = _read_images(folder, images, None if number == "exact" else int(number))
    lengths = np.array([len(boxes) for boxes in image_boxes])
    starts = np.cumsum(lengths) - lengths
    row_of = {image: row for row, image in enumerate(images)}
    rows = np.array([row_of[image] for image in (*ids, BLANK)])
    region = np.arange(lengths.max())
    mask = region < lengths[rows, None]
    index = np.where(mask, starts[rows, None] + region, -1).astype(np.int32)
    return table, index, np.where(mask[..., None], np.concatenate(image_boxes)[index], np.float32(0))


def _read_images(folder: Path, images: Sequence[str], number: int | None) -> tuple[np.ndarray, list[np.ndarray]]:
    """The features (K, D) float16 of all images, one after the other, and the boxes of each."""
    dimension = read_regions(folder, BLANK)[0].shape[1]  # all images must have as many numbers
    boxes: list[np.ndarray] = []
    with tempfile.TemporaryFile(prefix="travlr-") as file:
        for image in tqdm(images, f"reading {folder.name}", disable=None, leave=False):
            features, image_boxes = read_regions(folder, image, dimension)
            file.write(features[:number].tobytes())
            boxes.append(image_boxes[:number])
        file.flush()
        return np.memmap(file, np.float16, "r").reshape(-1, dimension), boxes  # the mapping outlives the open file


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
        with report_damage(path), np.load(path, allow_pickle=False) as file:
            member = name if name in file.zip.namelist() else f"{name}.npy"
            if file.zip.getinfo(member).file_size > MAX_BYTES:
                raise ValueError(f"{name} has more than {MAX_BYTES:,} bytes")
            array: np.ndarray = file[name]
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise ValueError(f"{path}: damaged or missing ({error})") from None
    if array.ndim != 2 or array.dtype.kind != "f":
        raise ValueError(f"{path}: {name} is {array.dtype} {array.shape}, not a table of floating-point numbers")
    return array
