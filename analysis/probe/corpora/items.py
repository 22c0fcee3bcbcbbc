"""Items, corpora of items, and their pictures.

An item is one picture with true and false sentences about it. VL-CheckList's records and the triplets of the
predicate-noun study are both items, so scorers, metrics and reports are the same for both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from train.ask.matchers.loading import ScoreFunction

KINDS = ("checklist", "predicate_noun")
WHOLE = "whole"  # label of a crop's item: the path of the uncropped picture
MAX_PIXELS = 64_000_000  # a larger picture is treated as unreadable, to protect memory

Scorer = ScoreFunction
"""It may have more attributes: `device`, which results record; and, for generative models, `with_probabilities`, which
also returns p(yes) + p(no), (N,)."""


@dataclass(frozen=True)
class Item:
    """A picture with true and false sentences.

    id: unique in its corpus. image: path relative to the corpus's pictures, with `/`. positives, negatives: true and
    false sentences, unchanged from the corpus. axis: what is tested, such as `Object/Location/center` or `predicate`.
    source: data set within the axis, such as `vg_subj`. pair: equal for an item and its partner (the same sentences,
    the other one true); empty without a partner. labels: other groups, such as grade, size, location, template.
    """

    id: str
    image: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...]
    axis: str
    source: str = ""
    pair: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Corpus:
    """Items and the folder of their pictures.

    kind: one of `KINDS`. pictures: the folder that `Item.image` is relative to; None without pictures. notes: caveats
    for readers of the scores, such as axes that are left out, one line each. refused: records that could not be read,
    one line each with place and reason.
    """

    name: str
    kind: str
    items: tuple[Item, ...]
    pictures: Path | None
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of all items, in order."""
        digest = hashlib.sha256()
        for item in self.items:
            digest.update(json.dumps(asdict(item), sort_keys=True, ensure_ascii=False).encode() + b"\n")
        return digest.hexdigest()


STATUSES = ("scored", "missing", "unreadable", "failed")


@dataclass(frozen=True)
class Answer:
    """Scores of an item's sentences, in order; none unless `status` is scored.

    status: one of `STATUSES`; the picture is missing or unreadable, or the scorer failed. why: the reason of a failure,
    in one line. yes_or_no: of generative models, p(yes) + p(no) for each sentence, positives first; else empty.
    """

    id: str
    status: str
    positives: tuple[float, ...] = ()
    negatives: tuple[float, ...] = ()
    why: str = ""
    yes_or_no: tuple[float, ...] = ()


class Missing(ValueError):
    """A picture does not exist."""


class Unreadable(ValueError):
    """A picture cannot be read: truncated, not a picture, too large, outside its folder."""


def find_picture(folder: Path, path: str) -> Path:
    """The path of a picture's file. Raises `Missing` or `Unreadable`, in one line.

    Folders in `folder` may be links, for example to another disk with a dataset's pictures.
    """
    name = path[:200] if path.isprintable() else repr(path[:200])
    root = folder.resolve()
    try:
        place = (root / path).resolve()
        exists = place.is_file()
        first = root / Path(path).parts[0] if Path(path).parts else root
        linked = first.resolve() if first.is_symlink() and first.is_dir() else root
    except (OSError, ValueError):  # too long, or with a character that file names cannot have
        raise Unreadable(f"{name} is not a file name") from None
    if not place.is_relative_to(root) and not place.is_relative_to(linked):
        raise Unreadable(f"{name} leaves the folder of pictures")
    if not exists:
        raise Missing(f"{name} is not there")
    return place


def open_picture(folder: Path | None, path: str) -> Image.Image:
    """A picture as RGB, transparent parts on white. Raises `Missing` or `Unreadable`.

    `info["path"]` is its path, by which regions in files are looked up; `info["file"]` is its file. Only the first
    frame is read. EXIF rotation is ignored, as boxes of published corpora refer to the stored pixels. A path that
    leaves the folder is never opened.
    """
    if folder is None:
        raise Missing("the corpus has no folder of pictures; give images=FOLDER")
    place = find_picture(folder, path)
    try:
        with Image.open(place) as file:
            if file.width * file.height > MAX_PIXELS:
                raise Unreadable(f"{path} has {file.width} x {file.height} pixels, more than {MAX_PIXELS:,}")
            if file.mode in ("RGBA", "LA", "PA") or "transparency" in file.info:
                picture = on_white(file)
            elif file.mode.startswith("I"):  # 16 bits, which Pillow would clip at 255
                picture = Image.fromarray((np.asarray(file).clip(0, 65535) // 257).astype(np.uint8)).convert("RGB")
            elif file.mode == "F":
                raise Unreadable(f"{path}: has floating-point pixels of unknown range")
            else:
                picture = file.convert("RGB")
            picture.info |= {"path": path, "file": str(place)}
            return picture
    except Unreadable:
        raise
    except Exception as error:  # Pillow's decoders can raise anything, AVIF's a RuntimeError
        raise Unreadable(f"{path}: {' '.join(str(error).split()) or type(error).__name__}") from None


def on_white(picture: Image.Image) -> Image.Image:
    """RGB, transparent parts on white; a new picture."""
    whole = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", whole.size, "white"), whole).convert("RGB")
