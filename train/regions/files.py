"""Regions from features made elsewhere, in the files that the published models' own code reads.

- `NAME.tsv` (LXMERT): a line for each image, no header, ten columns: id, height, width, object ids and their
  confidences, attribute ids and their confidences, number of boxes, boxes, features; or the six of bottom-up
  attention: id, width, height, number of boxes, boxes, features. Boxes (left, top, right, bottom in pixels) and
  features are base64 of little-endian float32.
- a folder of `ID.npz` (UNITER): arrays `features` (R, D) and `norm_bb` (R, 4 or more), which begins with left, top,
  right, bottom as parts of the picture; its other arrays are not read.
- `NAME.h5` or `NAME.hdf5`: datasets `ids` (N,) text, `features` (N, R, D), `boxes` (N, R, 4) as parts of the picture,
  and, where images have fewer than R regions, `counts` (N,).

Images are found by the ids of the examples; the blank white picture has the id `blank`.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from train.cache import Block, cached

BLANK = "blank"
MOST_BYTES = 1 << 28  # of one image in a file
MOST_REGIONS = 1 << 12  # of one image
ROWS = 2048  # of the table, written at a time


class FeatureFile(Protocol):
    """What each format gives: the number of regions of the wanted images that it has, and their arrays."""

    def counts(self, wanted: set[str]) -> dict[str, int]: ...

    def read(self, image: str) -> tuple[np.ndarray, np.ndarray]:
        """Features (R, D) and boxes (R, 4) as parts of the picture."""
        ...


class Tsv:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "rb")  # noqa: SIM115 - read from as long as the object lives
        self._places: dict[str, int] = {}

    def counts(self, wanted: set[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        self._file.seek(0)
        while True:
            place = self._file.tell()
            line = self._file.readline(MOST_BYTES)
            if not line:
                return found
            if len(line) == MOST_BYTES:
                raise ValueError(f"line {len(found) + 1} has more than {MOST_BYTES:,} bytes")
            if not line.strip():
                continue
            image = line.split(b"\t", 1)[0].decode("utf-8")
            if image in found:
                raise ValueError(f"image {image}: is there twice")
            if image in wanted:
                with _naming(image):
                    found[image] = self._numbers(line.split(b"\t"))[2]
                self._places[image] = place

    @staticmethod
    def _numbers(columns: list[bytes]) -> tuple[int, int, int]:
        """Width, height and number of boxes."""
        if len(columns) not in (6, 10):
            raise ValueError(f"has {len(columns)} columns; needs LXMERT's 10 or bottom-up attention's 6")
        if len(columns) == 6:
            return int(columns[1]), int(columns[2]), int(columns[3])
        return int(columns[2]), int(columns[1]), int(columns[7])

    def read(self, image: str) -> tuple[np.ndarray, np.ndarray]:
        self._file.seek(self._places[image])
        columns = self._file.readline(MOST_BYTES).rstrip(b"\r\n").split(b"\t")
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

    def counts(self, wanted: set[str]) -> dict[str, int]:
        found = {}
        for image in wanted:
            if Path(image).name != image or "\0" in image:
                raise ValueError(f"image {image!r}: is not the name of a file")
            if (self.path / f"{image}.npz").is_file():
                with _naming(image):
                    found[image] = len(self._array(image, "norm_bb"))
        return found

    def read(self, image: str) -> tuple[np.ndarray, np.ndarray]:
        return self._array(image, "features"), self._array(image, "norm_bb")[:, :4]

    def _array(self, image: str, name: str) -> np.ndarray:
        """Two-dimensional. Raises `ValueError` for any other, and for one that would fill the memory."""
        path = self.path / f"{image}.npz"
        if not zipfile.is_zipfile(path):
            raise ValueError("is not an .npz file")
        with np.load(path, allow_pickle=False) as file:
            if name not in file.files:
                raise ValueError(f"has no array {name}")
            member = name if name in file.zip.namelist() else f"{name}.npy"
            if file.zip.getinfo(member).file_size > MOST_BYTES:
                raise ValueError(f"{name} has more than {MOST_BYTES:,} bytes")
            array = file[name]
        if array.ndim != 2 or array.dtype.kind != "f":
            raise ValueError(f"{name} is {array.dtype} {array.shape}, not a table of floating-point numbers")
        return array


class Hdf5:
    def __init__(self, path: Path) -> None:
        try:
            import h5py
        except ImportError:
            raise ValueError("HDF5 needs another package; install it with: pip install h5py") from None
        self.path = path
        self._file = h5py.File(path, "r")
        self._places: dict[str, tuple[int, int]] = {}
        self._features, self._boxes, self._ids = (self._dataset(name) for name in ("features", "boxes", "ids"))
        shapes = (self._ids.shape, self._features.shape, self._boxes.shape)
        (images, *_), (_, regions, _) = shapes[0], shapes[1] if len(shapes[1]) == 3 else (0, 0, 0)
        if len(shapes[0]) != 1 or shapes[1][:2] != (images, regions) or shapes[2] != (images, regions, 4):
            raise ValueError("shapes of ids, features and boxes are {}, {}, {}; need (N,), (N, R, D)".format(*shapes))

    def _dataset(self, name: str) -> Any:
        """One in this file: links and external storage could name any other file."""
        import h5py

        if name not in self._file or not isinstance(self._file.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"has no dataset {name}")
        dataset = self._file[name]
        if not isinstance(dataset, h5py.Dataset) or dataset.external or dataset.is_virtual:
            raise ValueError(f"{name} is not a dataset stored in the file itself")
        return dataset

    def counts(self, wanted: set[str]) -> dict[str, int]:
        regions = self._features.shape[1]
        images = self._ids.asstr()[:].tolist()
        counts = self._dataset("counts")[:].tolist() if "counts" in self._file else [regions] * len(images)
        if len(counts) != len(images):
            raise ValueError(f"has {len(counts)} counts for {len(images)} ids")
        for place, (image, count) in enumerate(zip(images, counts, strict=True)):
            if image in wanted:
                if image in self._places:
                    raise ValueError(f"image {image}: is there twice")
                if not isinstance(count, int) or count > regions:
                    raise ValueError(f"image {image}: has {count} regions, but the arrays have {regions}")
                self._places[image] = place, count
        return {image: count for image, (_, count) in self._places.items()}

    def read(self, image: str) -> tuple[np.ndarray, np.ndarray]:
        place, count = self._places[image]
        if self._features.shape[1] * self._features.shape[2] * self._features.dtype.itemsize > MOST_BYTES:
            raise ValueError(f"has more than {MOST_BYTES:,} bytes")
        return self._features[place, :count], self._boxes[place, :count]


FORMATS: dict[str, type[Tsv] | type[NpzFolder] | type[Hdf5]] = {".tsv": Tsv, ".h5": Hdf5, ".hdf5": Hdf5}


@contextlib.contextmanager
def _naming(what: object) -> Iterator[None]:
    """Turn what goes wrong in reading into a one-line `ValueError` that names the image or the file."""
    try:
        yield
    except (OSError, ValueError, LookupError, EOFError, TypeError, MemoryError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{what}: {_line(error)}") from None
    except (zipfile.BadZipFile, binascii.Error, NotImplementedError) as error:
        raise ValueError(f"{what}: damaged ({_line(error)})") from None


def _line(error: BaseException) -> str:
    return (getattr(error, "strerror", None) or str(error).strip() or repr(error)).splitlines()[0]


def read_features(
    path: Path, ids: Sequence[str], number: int | str, cache: Path | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Table, index and boxes of `Regions` from a feature file, of which each image keeps its first `number` regions.

    The numbers are kept as float16 in `cache`, else in `PATH.cache`, and memory-mapped. Raises `ValueError` where
    images are missing or damaged.
    """
    if not path.exists():
        raise ValueError(f"{path}: there is no such file")
    if not path.is_dir() and path.suffix not in FORMATS:
        raise ValueError(f"{path}: must end in {', '.join(FORMATS)}, or be a folder of .npz files")
    images = list(dict.fromkeys([*ids, BLANK]))
    with _naming(path):
        file: FeatureFile = NpzFolder(path) if path.is_dir() else FORMATS[path.suffix](path)
        counts = file.counts(set(images))
    if missing := [image for image in images if image not in counts]:
        raise ValueError(
            f"{path}: lacks {len(missing):,} of {len(images):,} images, the first is {missing[0]}"
            + (" (the white picture)" if missing[0] == BLANK else "")
        )
    for image, count in counts.items():
        if not 1 <= count <= MOST_REGIONS:
            raise ValueError(f"{path}: image {image}: has {count} regions; must be 1 to {MOST_REGIONS}")
    taken = np.array([counts[i] if number == "exact" else min(counts[i], int(number)) for i in images])
    kept = _kept(path, file, images, taken, cache or path.with_name(f"{path.name}.cache"))
    starts = np.cumsum(taken) - taken
    place = {image: row for row, image in enumerate(images)}
    rows = np.array([place[image] for image in (*ids, BLANK)])
    region = np.arange(taken.max())
    there = region < taken[rows, None]
    index = np.where(there, starts[rows, None] + region, -1).astype(np.int32)
    boxes = np.where(there[..., None], np.asarray(kept["boxes"])[index], np.float32(0))
    return kept["features"], index, boxes


def _kept(path: Path, file: FeatureFile, images: list[str], taken: np.ndarray, cache: Path) -> Block:
    """All regions of all images as two arrays, kept under what the file is and which images are asked for."""
    dimension = len(checked(path, file, BLANK, None)[0][0])  # in every split: what differs from it does not fit
    starts = np.cumsum(taken) - taken

    def make(start: int) -> Iterator[Block]:
        some: list[tuple[np.ndarray, np.ndarray]] = []
        first = int(np.searchsorted(starts, start))
        for image, count in zip(images[first:], taken[first:], strict=True):
            features, boxes = checked(path, file, image, dimension)
            some.append((features[:count], boxes[:count]))
            if sum(len(boxes) for _, boxes in some) >= ROWS:
                yield _joined(some)
                some.clear()
        if some:
            yield _joined(some)

    columns: dict[str, tuple[tuple[int, ...], str]] = {"features": ((dimension,), "<f2"), "boxes": ((4,), "<f4")}
    return cached(cache, f"file-{_key(path, images, taken)}", int(taken.sum()), columns, make, f"reading {path.name}")


def _joined(some: list[tuple[np.ndarray, np.ndarray]]) -> Block:
    features, boxes = zip(*some, strict=True)
    return {"features": np.concatenate(features), "boxes": np.concatenate(boxes)}


def _key(path: Path, images: list[str], taken: np.ndarray) -> str:
    """What a conversion depends on: the file as it is now (size and time of change) and what is taken from it."""
    digest = hashlib.blake2b(str(path.resolve()).encode() + taken.astype("<i8").tobytes(), digest_size=16)
    for image in images:
        digest.update(f"{image}\n".encode())
        if path.is_dir():
            about = (path / f"{image}.npz").stat()
            digest.update(f"{about.st_size} {about.st_mtime_ns}\n".encode())
    if not path.is_dir():
        digest.update(f"{path.stat().st_size} {path.stat().st_mtime_ns}".encode())
    return digest.hexdigest()


def checked(path: Path, file: FeatureFile, image: str, dimension: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Features float16 and boxes float32 of an image. Raises `ValueError` for numbers that no detector gives."""
    with _naming(f"{path}: image {image}"):
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
