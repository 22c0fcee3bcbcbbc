"""Regions from files of features that another program extracted, in the formats that the published models read.

- `NAME.tsv` (LXMERT): a line for each image, no header, ten columns: id, height, width, object ids and their
  confidences, attribute ids and their confidences, number of boxes, boxes, features; or the six of bottom-up
  attention: id, width, height, number of boxes, boxes, features. Boxes (left, top, right, bottom in pixels) and
  features are base64 of little-endian float32.
- a folder of `ID.npz` (UNITER): arrays `features` (R, D) and `norm_bb` (R, 4 or more), which begins with left, top,
  right, bottom as fractions of the picture; its other arrays are not read.
- `NAME.h5` or `NAME.hdf5`: datasets `ids` (N,) text, `features` (N, R, D), `boxes` (N, R, 4) as fractions of the
  picture, and, if images have fewer than R regions, `counts` (N,).

An image has the id of its example; the blank white picture has the id `blank`.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from train.cache import Block, Columns, cached_arrays

BLANK = "blank"
MAX_BYTES = 1 << 28  # of one image in a file
MAX_REGIONS = 1 << 12  # of one image
ROWS_PER_BLOCK = 2048  # regions written to the cache at once


class FeatureFile(Protocol):
    """A file, or folder, of features."""

    def counts(self, names: set[str]) -> dict[str, int]:
        """Number of regions of each image in the file whose name is one of `names`."""
        ...

    def read(self, image: str) -> tuple[np.ndarray, np.ndarray]:
        """Features (R, D) and boxes (R, 4) as fractions of the picture."""
        ...


class TsvFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "rb")  # noqa: SIM115 - open as long as the object lives
        self._offsets: dict[str, int] = {}

    def counts(self, names: set[str]) -> dict[str, int]:
        counts: dict[str, int] = {}
        self._file.seek(0)
        while True:
            offset = self._file.tell()
            line = self._file.readline(MAX_BYTES)
            if not line:
                return counts
            if len(line) == MAX_BYTES:
                raise ValueError(f"line {len(counts) + 1} has more than {MAX_BYTES:,} bytes")
            if not line.strip():
                continue
            image = line.split(b"\t", 1)[0].decode("utf-8")
            if image in counts:
                raise ValueError(f"image {image}: occurs twice")
            if image in names:
                with _error_prefix(image):
                    counts[image] = self._numbers(line.split(b"\t"))[2]
                self._offsets[image] = offset

    @staticmethod
    def _numbers(columns: list[bytes]) -> tuple[int, int, int]:
        """Width, height and number of boxes."""
        if len(columns) not in (6, 10):
            raise ValueError(f"has {len(columns)} columns; needs LXMERT's 10 or bottom-up attention's 6")
        if len(columns) == 6:
            return int(columns[1]), int(columns[2]), int(columns[3])
        return int(columns[2]), int(columns[1]), int(columns[7])

    def read(self, image: str) -> tuple[np.ndarray, np.ndarray]:
        self._file.seek(self._offsets[image])
        columns = self._file.readline(MAX_BYTES).rstrip(b"\r\n").split(b"\t")
        width, height, count = self._numbers(columns)
        if width < 1 or height < 1:
            raise ValueError(f"its picture is {width} x {height}")
        boxes, features = (np.frombuffer(base64.b64decode(text, validate=True), "<f4") for text in columns[-2:])
        if len(boxes) != 4 * count:
            raise ValueError(f"has {len(boxes)} numbers for {count} boxes")
        if not len(features) or len(features) % count:
            raise ValueError(f"has {len(features)} numbers for the features of {count} boxes")
        sides = np.array([width, height, width, height], np.float32)
        return features.reshape(count, -1), boxes.reshape(count, 4) / sides


class NpzFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def counts(self, names: set[str]) -> dict[str, int]:
        counts = {}
        for image in names:
            if Path(image).name != image or "\0" in image:
                raise ValueError(f"image {image!r}: is not a file name")
            if (self.path / f"{image}.npz").is_file():
                with _error_prefix(image):
                    counts[image] = len(self._array(image, "norm_bb"))
        return counts

    def read(self, image: str) -> tuple[np.ndarray, np.ndarray]:
        return self._array(image, "features"), self._array(image, "norm_bb")[:, :4]

    def _array(self, image: str, name: str) -> np.ndarray:
        """A two-dimensional array. Raises `ValueError` for any other, and for one of more than `MAX_BYTES`."""
        path = self.path / f"{image}.npz"
        if not zipfile.is_zipfile(path):
            raise ValueError("is not an .npz file")
        with np.load(path, allow_pickle=False) as file:
            if name not in file.files:
                raise ValueError(f"has no array {name}")
            member = name if name in file.zip.namelist() else f"{name}.npy"
            if file.zip.getinfo(member).file_size > MAX_BYTES:
                raise ValueError(f"{name} has more than {MAX_BYTES:,} bytes")
            array = file[name]
        if array.ndim != 2 or array.dtype.kind != "f":
            raise ValueError(f"{name} is {array.dtype} {array.shape}, not a table of floating-point numbers")
        return array


class Hdf5File:
    def __init__(self, path: Path) -> None:
        try:
            import h5py
        except ImportError:
            raise ValueError("HDF5 needs another package; install it with: pip install h5py") from None
        self.path = path
        self._file = h5py.File(path, "r")
        self._rows: dict[str, tuple[int, int]] = {}
        self._features, self._boxes, self._ids = (self._dataset(name) for name in ("features", "boxes", "ids"))
        shapes = (self._ids.shape, self._features.shape, self._boxes.shape)
        (images, *_), (_, regions, _) = shapes[0], shapes[1] if len(shapes[1]) == 3 else (0, 0, 0)
        if len(shapes[0]) != 1 or shapes[1][:2] != (images, regions) or shapes[2] != (images, regions, 4):
            raise ValueError("shapes of ids, features and boxes are {}, {}, {}; need (N,), (N, R, D)".format(*shapes))

    def _dataset(self, name: str) -> Any:
        """A dataset stored in the file itself: links and external storage could refer to any other file."""
        import h5py

        if name not in self._file or not isinstance(self._file.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"has no dataset {name}")
        dataset = self._file[name]
        if not isinstance(dataset, h5py.Dataset) or dataset.external or dataset.is_virtual:
            raise ValueError(f"{name} is not a dataset stored in the file itself")
        return dataset

    def counts(self, names: set[str]) -> dict[str, int]:
        regions = self._features.shape[1]
        images = self._ids.asstr()[:].tolist()
        counts = self._dataset("counts")[:].tolist() if "counts" in self._file else [regions] * len(images)
        if len(counts) != len(images):
            raise ValueError(f"has {len(counts)} counts for {len(images)} ids")
        for row, (image, count) in enumerate(zip(images, counts, strict=True)):
            if image in names:
                if image in self._rows:
                    raise ValueError(f"image {image}: occurs twice")
                if not isinstance(count, int) or count > regions:
                    raise ValueError(f"image {image}: has {count} regions, but the arrays have {regions}")
                self._rows[image] = row, count
        return {image: count for image, (_, count) in self._rows.items()}

    def read(self, image: str) -> tuple[np.ndarray, np.ndarray]:
        row, count = self._rows[image]
        if self._features.shape[1] * self._features.shape[2] * self._features.dtype.itemsize > MAX_BYTES:
            raise ValueError(f"has more than {MAX_BYTES:,} bytes")
        return self._features[row, :count], self._boxes[row, :count]


FORMATS: dict[str, Callable[[Path], FeatureFile]] = {".tsv": TsvFile, ".h5": Hdf5File, ".hdf5": Hdf5File}


@contextlib.contextmanager
def _error_prefix(name: object) -> Iterator[None]:
    """Raise errors of reading as a one-line `ValueError` that starts with the name of the image or file."""
    try:
        yield
    except (OSError, ValueError, LookupError, EOFError, TypeError, MemoryError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{name}: {_line(error)}") from None
    except (zipfile.BadZipFile, binascii.Error, NotImplementedError) as error:
        raise ValueError(f"{name}: damaged ({_line(error)})") from None


def _line(error: BaseException) -> str:
    return (getattr(error, "strerror", None) or str(error).strip() or repr(error)).splitlines()[0]


def file_regions(
    path: Path, ids: Sequence[str], number: int | str, cache: Path | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Table, index and boxes of a `RegionTable` from a feature file: the first `number` regions of each image.

    Features are converted to float16 in `cache`, by default `PATH.cache`, and memory-mapped. Raises `ValueError` if
    images are missing or damaged.
    """
    if not path.exists():
        raise ValueError(f"{path}: no such file")
    if not path.is_dir() and path.suffix not in FORMATS:
        raise ValueError(f"{path}: must end in {', '.join(FORMATS)}, or be a folder of .npz files")
    images = list(dict.fromkeys([*ids, BLANK]))
    with _error_prefix(path):
        file: FeatureFile = NpzFolder(path) if path.is_dir() else FORMATS[path.suffix](path)
        counts = file.counts(set(images))
    if missing := [image for image in images if image not in counts]:
        raise ValueError(
            f"{path}: lacks {len(missing):,} of {len(images):,} images, the first is {missing[0]}"
            + (" (the white picture)" if missing[0] == BLANK else "")
        )
    for image, count in counts.items():
        if not 1 <= count <= MAX_REGIONS:
            raise ValueError(f"{path}: image {image}: has {count} regions; must be 1 to {MAX_REGIONS}")
    lengths = np.array([counts[i] if number == "exact" else min(counts[i], int(number)) for i in images])
    arrays = _cached_arrays(path, file, images, lengths, cache or path.with_name(f"{path.name}.cache"))
    starts = np.cumsum(lengths) - lengths
    row_of = {image: row for row, image in enumerate(images)}
    rows = np.array([row_of[image] for image in (*ids, BLANK)])
    region = np.arange(lengths.max())
    mask = region < lengths[rows, None]
    index = np.where(mask, starts[rows, None] + region, -1).astype(np.int32)
    boxes = np.where(mask[..., None], np.asarray(arrays["boxes"])[index], np.float32(0))
    return arrays["features"], index, boxes


def _cached_arrays(path: Path, file: FeatureFile, images: list[str], lengths: np.ndarray, cache: Path) -> Block:
    """All regions of all images as two arrays, from the cache. lengths: (images,), number of regions of each."""
    dimension = len(read_regions(path, file, BLANK, None)[0][0])  # all images must have as many numbers
    starts = np.cumsum(lengths) - lengths

    def make(start: int) -> Iterator[Block]:
        block: list[tuple[np.ndarray, np.ndarray]] = []
        first = int(np.searchsorted(starts, start))
        for image, count in zip(images[first:], lengths[first:], strict=True):
            features, boxes = read_regions(path, file, image, dimension)
            block.append((features[:count], boxes[:count]))
            if sum(len(boxes) for _, boxes in block) >= ROWS_PER_BLOCK:
                yield _concatenate(block)
                block.clear()
        if block:
            yield _concatenate(block)

    columns: Columns = {"features": ((dimension,), "<f2"), "boxes": ((4,), "<f4")}
    return cached_arrays(
        cache, f"file-{_key(path, images, lengths)}", int(lengths.sum()), columns, make, f"reading {path.name}"
    )


def _concatenate(block: list[tuple[np.ndarray, np.ndarray]]) -> Block:
    features, boxes = zip(*block, strict=True)
    return {"features": np.concatenate(features), "boxes": np.concatenate(boxes)}


def _key(path: Path, images: list[str], lengths: np.ndarray) -> str:
    """A digest of the file's size and time of change, of the images and of their numbers of regions."""
    digest = hashlib.blake2b(str(path.resolve()).encode() + lengths.astype("<i8").tobytes(), digest_size=16)
    for image in images:
        digest.update(f"{image}\n".encode())
        if path.is_dir():
            status = (path / f"{image}.npz").stat()
            digest.update(f"{status.st_size} {status.st_mtime_ns}\n".encode())
    if not path.is_dir():
        digest.update(f"{path.stat().st_size} {path.stat().st_mtime_ns}".encode())
    return digest.hexdigest()


def read_regions(path: Path, file: FeatureFile, image: str, dimension: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Features (R, D) float16 and boxes (R, 4) float32 of an image. dimension: D, or None for any.

    Raises `ValueError` for shapes that do not fit, numbers that are not finite and boxes outside the picture.
    """
    with _error_prefix(f"{path}: image {image}"):
        features, boxes = file.read(image)
        if features.ndim != 2 or features.shape[0] != len(boxes) or not features.shape[1]:
            raise ValueError(f"has features of shape {features.shape} for {len(boxes)} boxes")
        if dimension is not None and features.shape[1] != dimension:
            raise ValueError(f"has features of {features.shape[1]} numbers, but {BLANK} of {dimension}")
        if boxes.shape[1:] != (4,):
            raise ValueError(f"has boxes of shape {boxes.shape}")
        if not (np.isfinite(features).all() and np.isfinite(boxes).all()):
            raise ValueError("has a number that is not finite")
        if np.abs(features).max() > np.finfo(np.float16).max:
            raise ValueError(f"has a feature of {np.abs(features).max():g}, which is too large")
        if boxes.min() < -0.01 or boxes.max() > 1.01 or (boxes[:, 2:] < boxes[:, :2]).any():
            raise ValueError("has a box that is not left, top, right, bottom within the picture")
        return features.astype(np.float16), np.clip(boxes, 0, 1).astype(np.float32)
