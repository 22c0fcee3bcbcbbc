"""TraVLR's VisualBERT, UNITER, LXMERT and ALBEF as scorers, with the published weights of their matching heads.

Scores are log-odds of a match; for ALBEF's `itc`, cosines. Texts are `[CLS] text [SEP]`. VisualBERT's head was trained
on two captions, of which the first always matches the picture; a single sentence is not what it was trained on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import normalize

from train.ask.matchers.base import Matcher, words_of
from train.config import ARCHITECTURES, RegionSettings
from train.data.inputs import Inputs, Tensors
from train.data.pixels import normalise_pixels, scale_picture
from train.data.text import WordTokenizer
from train.models import SIZES, make_model
from train.models.hub import quiet
from train.models.loading import load_published, pixel_statistics, read_checkpoint, tokenizer_of
from train.regions.pictures import PictureSet
from train.regions.recogniser import DIMENSION
from train.regions.sources import make_regions

ROWS = COLUMNS = 6  # of regions.source=grid
PATH = "path"  # key of a picture's path in its `info`, see `train.ask.requests.open_picture`

Find = Callable[[Image.Image], tuple[np.ndarray, np.ndarray]]
"""Picture -> features (R, D) and boxes (R, 4) of its regions: left, top, right, bottom as parts of the picture."""


def published_matcher(
    kind: str, checkpoint: str, head: str | None, regions: RegionSettings | None, size: str | None
) -> PublishedMatcher:
    """The scorer of one of TraVLR's models with published weights.

    regions: `grid` (the default; 6 x 6, with the features that are used for scenes), or a folder of features, found by
    the stem of the picture's file name, or by `blank` for a white picture without a name. Raises ValueError, in one
    line, where the checkpoint cannot be read, has another size or lacks the matching head, and where the model does not
    have this head or takes no regions.
    """
    name = f"{kind}:{checkpoint}"
    if not checkpoint:
        raise ValueError(f"model={name}: has no checkpoint; give {kind}:FILE, {kind}:FOLDER or {kind}:HUB-ID")
    sees_pixels = ARCHITECTURES[kind].sees == "pixels"
    if head == "itc" and kind != "albef":
        raise ValueError(f"head=itc: model={name} has itm only")
    if sees_pixels and regions is not None:
        raise ValueError(f"regions: model={name} sees pixels, not regions")
    settings = regions or RegionSettings(source="grid")
    find, width = (None, 0) if sees_pixels else finder(settings, ARCHITECTURES[kind].takes_boxes)
    changes: dict[str, Any] = {"feature_width": width} if width else {}
    try:
        with quiet():
            words = WordTokenizer(tokenizer_of(checkpoint, kind))
        model = make_model(kind, size or size_of(checkpoint), {"matching": True}, vocabulary=words.size, **changes)
        report = load_published(model, checkpoint)
    except ValueError as error:  # train.py has another name for this setting
        raise ValueError(str(error).replace("pretrained=", f"model={kind}:", 1)) from None
    if missing := [key for key in report.missing if key.startswith("matching.")]:
        raise ValueError(f"model={name}: has no matching head ({missing[0]}); its scores would be random")
    if find is not None:
        return RegionMatcher(name, model, words, find)
    return AlbefMatcher(name, model, words, checkpoint, head or "itm")


def size_of(checkpoint: str) -> str:
    """The size of the model of a checkpoint: that with the width of its word embeddings; base, if none has it."""
    tensors = read_checkpoint(checkpoint).items()
    widths = [value.shape[-1] for name, value in tensors if name.endswith("word_embeddings.weight")]
    return next((size for size, values in SIZES.items() if values["width"] in widths), "base")


class PublishedMatcher(Matcher):
    """One of our models with loaded weights."""

    positions = "shape.positions"

    def tokens(self, text: str) -> Tensors:
        ids = [self.tokenizer.cls, *self.tokenizer.ids(text), self.tokenizer.sep]
        self.check_length(len(ids), text)
        return {"tokens": torch.tensor([ids]), "token_mask": torch.ones(1, len(ids), dtype=torch.bool)}

    def words(self, text: str) -> list[tuple[str, list[int]]]:
        words = words_of(self.tokenizer.tokenizer, text, special=False)
        return [(word, [1 + n for n in places]) for word, places in words]

    def judge(self, both: Tensors) -> Tensor:
        inputs: dict[str, Any] = dict(both)
        return self.model.match(Inputs(**inputs))


class RegionMatcher(PublishedMatcher):
    """VisualBERT, UNITER or LXMERT. find: its region source."""

    def __init__(self, name: str, model: Any, words: WordTokenizer, find: Find) -> None:
        super().__init__(name, model, words, None, "itm")
        self.find = find

    def prepare(self, image: Image.Image) -> Tensors:
        features, boxes = self.find(image)
        return {
            "features": torch.from_numpy(np.asarray(features, np.float32))[None],
            "boxes": torch.from_numpy(np.asarray(boxes, np.float32))[None],
            "region_mask": torch.ones(1, len(boxes), dtype=torch.bool),
        }


class AlbefMatcher(PublishedMatcher):
    def __init__(self, name: str, model: Any, words: WordTokenizer, checkpoint: str, head: str) -> None:
        if head == "itc":
            model.projections = projections_of(name, checkpoint, model.shape.width)  # moves to the model's device
        super().__init__(name, model, words, None, head)
        self.statistics = pixel_statistics(checkpoint)

    def prepare(self, image: Image.Image) -> Tensors:
        picture = scale_picture(np.asarray(image.convert("RGB")), self.model.shape.picture)
        return {"pixels": normalise_pixels(picture[None], self.statistics)}

    def see(self, x: Tensors) -> Tensors:
        states = self.model.visual_encoder(x["pixels"])
        if self.head == "itm":
            return {"vision_states": states}
        return {"image": normalize(self.model.projections["image"](states[:, 0]), dim=-1)}

    def read(self, x: Tensors) -> Tensors:
        if self.head == "itm":
            return x
        states = self.model.text_encoder(x["tokens"], x["token_mask"])
        return {"text": normalize(self.model.projections["text"](states[:, 0]), dim=-1)}

    def judge(self, both: Tensors) -> Tensor:
        return super().judge(both) if self.head == "itm" else Matcher.judge(self, both)


def projections_of(name: str, checkpoint: str, width: int) -> nn.ModuleDict:
    """ALBEF's contrastive projections, `vision_proj` and `text_proj`."""
    content = {key.removeprefix("module."): value for key, value in read_checkpoint(checkpoint).items()}
    projections = {}
    for side, published in (("image", "vision_proj"), ("text", "text_proj")):
        weight, bias = content.get(f"{published}.weight"), content.get(f"{published}.bias")
        if weight is None or bias is None or weight.ndim != 2 or weight.shape[1] != width or len(bias) != len(weight):
            raise ValueError(f"head=itc: model={name} has no {published} that fits")
        projections[side] = nn.Linear(width, len(weight))
        projections[side].load_state_dict({"weight": weight, "bias": bias})
    return nn.ModuleDict(projections)


# Regions ----------------------------------------------------------------------------------------------------------


def finder(settings: RegionSettings, takes_boxes: bool) -> tuple[Find, int]:
    """A function that finds the regions of a picture, and the width of their features. Raises ValueError for a source
    that needs more than pictures, or cannot be read."""
    if settings.kind not in FINDERS:
        raise ValueError(f"regions={settings.source}: choose grid, or a folder of UNITER's .npz")
    return FINDERS[settings.kind](settings, takes_boxes)


def _grid(settings: RegionSettings, takes_boxes: bool) -> tuple[Find, int]:
    def find(image: Image.Image) -> tuple[np.ndarray, np.ndarray]:
        picture = np.asarray(image.convert("RGB"))
        cells = np.ones((1, ROWS * COLUMNS), np.int16)
        pictures = PictureSet(["picture"], cells, ROWS, COLUMNS, decoded=lambda: [picture])
        table = make_regions(settings, pictures, takes_boxes)
        features, boxes, _ = table.take([0])
        return features[0], boxes[0]

    return find, DIMENSION


def _file(settings: RegionSettings, takes_boxes: bool) -> tuple[Find, int]:
    from train.regions.files import BLANK, read_regions

    folder = Path(settings.source)
    names = {npz.stem for npz in folder.glob("*.npz")}
    if not names:
        raise ValueError(f"regions={folder}: must be a folder of .npz files")
    try:
        first = read_regions(folder, min(names))[0]  # all have the width of the first
    except ValueError as error:
        raise ValueError(f"regions={error}") from None

    def find(image: Image.Image) -> tuple[np.ndarray, np.ndarray]:
        name = PurePosixPath(str(image.info.get(PATH, ""))).stem
        if not name and set(image.convert("RGB").getextrema()) == {(255, 255)}:  # the blank-picture baseline
            name = BLANK
        if not name:
            raise ValueError(f"regions={folder}: regions are found by file name, which this picture lacks")
        if name not in names:
            raise ValueError(f"regions={folder}: lacks the picture {name}{' (white)' if name == BLANK else ''}")
        try:
            features, boxes = read_regions(folder, name)
        except ValueError as error:
            raise ValueError(f"regions={error}") from None
        number = len(boxes) if settings.number == "exact" else int(settings.number)
        return features[:number], boxes[:number]

    return find, first.shape[1]


FINDERS: dict[str, Callable[[RegionSettings, bool], tuple[Find, int]]] = {"grid": _grid, "file": _file}
