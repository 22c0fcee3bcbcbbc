"""What a probe asks: items, the corpus they belong to, and its pictures.

An item is one picture with sentences that are true of it and sentences that are not. VL-CheckList's records and the
triplets of the predicate-noun study are both items, so one scorer, one set of measures and one report serve both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

KINDS = ("checklist", "predicate_noun")
WHOLE = "whole"  # the label of a crop's item that holds the path of the picture that it was cut from
MAX_PIXELS = 64_000_000  # of a picture; a larger one is unreadable, not a reason to run out of memory

Scorer = Callable[[Sequence[Image.Image], Sequence[str]], np.ndarray]
"""images (N), texts (N) -> (N,) scores, higher where the text fits the image better.

The same picture comes as the same object, and all sentences of a picture come in one call, so that a scorer can encode
each picture once. A scorer may have attributes: `name`; `threshold`, the score above which a text alone is said to
match (VL-CheckList's ITM needs it; contrastive models without a bias have none); `device`, what it runs on, as results
tell; and, if it asks a generative model, `with_probabilities`, which returns p(yes) + p(no), (N,), beside the scores.
"""


def as_float64(given: Any) -> np.ndarray:
    """What a scorer returned, as float64. Raises ValueError for what are no real numbers."""
    if hasattr(given, "detach"):  # a tensor, of any device and precision
        given = given.detach().double().cpu()
    found = np.asarray(given)
    if found.dtype.kind not in "biuf":
        raise ValueError(f"returned {type(given).__name__} of {found.dtype}: needs numbers")
    return found.astype(np.float64)


@dataclass(frozen=True)
class Item:
    """A picture, and sentences of which some are true of it.

    id: unique in its corpus. image: path below the corpus's pictures, with `/`. positives, negatives: as written,
    byte for byte. axis: what is tested, such as `Object/Location/center` or `predicate`. source: which data within the
    axis, such as `vg_subj`. pair: equal for an item and its mirror (the same sentences, the other one true); empty
    where it has none. labels: whatever else tells items apart, such as grade, size, location, template.
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
    """Items and where their pictures are.

    kind: one of `KINDS`. pictures: the folder that `Item.image` is below; None where there are none on disk.
    notes: what a reader must know beside the scores, such as axes that are left out, one line each. refused: what the
    corpus's files hold that is no item, one line each with place and reason.
    """

    name: str
    kind: str
    items: tuple[Item, ...]
    pictures: Path | None
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of all items, in order: equal digests, equal questions."""
        found = hashlib.sha256()
        for item in self.items:
            found.update(json.dumps(asdict(item), sort_keys=True, ensure_ascii=False).encode() + b"\n")
        return found.hexdigest()


STATUSES = ("scored", "missing", "unreadable", "failed")


@dataclass(frozen=True)
class Answer:
    """What a scorer said of an item: a score for each of its sentences, in order, and none unless `status` is scored.

    status: one of `STATUSES`; missing and unreadable are the picture's, failed the scorer's. why: in one line, of what
    was not scored. yes_or_no: of generative models, p(yes) + p(no) for each sentence, positives first; else empty.
    `total = scored + missing + unreadable + failed` holds wherever numbers are printed.
    """

    id: str
    status: str
    positives: tuple[float, ...] = ()
    negatives: tuple[float, ...] = ()
    why: str = ""
    yes_or_no: tuple[float, ...] = ()


class Missing(ValueError):
    """A picture that is not there."""


class Unreadable(ValueError):
    """A picture that is there and cannot be read: truncated, not a picture, too large, outside its folder."""


def find_picture(folder: Path, path: str) -> Path:
    """The file of a picture, which need not be one. Raises `Missing` or `Unreadable`, in one line.

    Folders in `folder` may be links to elsewhere, as where each dataset's pictures are on another disk.
    """
    said = path[:200] if path.isprintable() else repr(path[:200])
    root = folder.resolve()
    try:
        place = (root / path).resolve()
        there = place.is_file()
        first = root / Path(path).parts[0] if Path(path).parts else root
        linked = first.resolve() if first.is_symlink() and first.is_dir() else root
    except (OSError, ValueError):  # too long, or with a character that no name has
        raise Unreadable(f"{said} is no name of a file") from None
    if not place.is_relative_to(root) and not place.is_relative_to(linked):
        raise Unreadable(f"{said} leaves the folder of pictures")
    if not there:
        raise Missing(f"{said} is not there")
    return place


def open_picture(folder: Path | None, path: str) -> Image.Image:
    """A picture as RGB, transparent parts on white, its path in `info["path"]` (what finds regions made elsewhere needs
    it). Raises `Missing` or `Unreadable`, with why.

    The first picture of several; not turned as EXIF says, as boxes of published corpora are of the pixels as stored.
    Paths are of corpora that others wrote: one that leaves the folder is never opened.
    """
    if folder is None:
        raise Missing("the corpus has no folder of pictures; give images=FOLDER")
    place = find_picture(folder, path)
    try:
        with Image.open(place) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                raise Unreadable(f"{path} has {opened.width} x {opened.height} pixels, more than {MAX_PIXELS:,}")
            if opened.mode in ("RGBA", "LA", "PA") or "transparency" in opened.info:
                shown = on_white(opened)
            elif opened.mode.startswith("I"):  # 16 bits, which Pillow would clip at 255: nearly all white
                shown = Image.fromarray((np.asarray(opened).clip(0, 65535) // 257).astype(np.uint8)).convert("RGB")
            elif opened.mode == "F":
                raise Unreadable(f"{path}: has fractions for pixels, of a range that it does not tell")
            else:
                shown = opened.convert("RGB")
            shown.info["path"] = path
            return shown
    except Unreadable:
        raise
    except Exception as error:  # Pillow's readers of formats fail in any way: AVIF's with RuntimeError
        raise Unreadable(f"{path}: {' '.join(str(error).split()) or type(error).__name__}") from None


def on_white(picture: Image.Image) -> Image.Image:
    """RGB, transparent parts on white; a new picture."""
    whole = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", whole.size, "white"), whole).convert("RGB")
