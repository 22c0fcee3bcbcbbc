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

from analysis.probe.scorers.base import ScorerParts, Tensors, cosine, unchanged, words_of
from train.config import ARCHITECTURES, RegionSettings
from train.data.inputs import Inputs
from train.data.pixels import normalise_pixels, scale_picture
from train.data.text import WordTokenizer
from train.models import make_model
from train.models.hub import folder_of, quiet
from train.models.loading import load_published, pixel_statistics, read_checkpoint, tokenizer_of
from train.regions.pictures import PictureSet
from train.regions.recogniser import DIMENSION
from train.regions.sources import make_regions

ROWS = COLUMNS = 6  # of regions.source=grid
PATH = "path"  # key of a picture's path in its `info`, see `analysis.probe.corpora.items.open_picture`

Find = Callable[[Image.Image], tuple[np.ndarray, np.ndarray]]
"""Picture -> features (R, D) and boxes (R, 4) of its regions: left, top, right, bottom as parts of the picture."""


def parts(
    kind: str,
    checkpoint: str,
    *,
    head: str | None = None,
    regions: RegionSettings | None = None,
    size: str = "base",
) -> ScorerParts:
    """The parts of one of TraVLR's models with published weights.

    regions: `grid` (the default; 6 x 6, with the features that are used for scenes), `detector`, or `file`, found by
    the stem of the picture's file name, or by `blank` for a white picture without a name. Raises ValueError, in one
    line, where the checkpoint cannot be read, has another size or lacks the matching head, and where the model does not
    have this head or takes no regions.
    """
    name = f"{kind}:{checkpoint}"
    if not checkpoint:
        raise ValueError(f"model={name}: has no checkpoint; give {kind}:FILE, {kind}:FOLDER or {kind}:HUB-ID")
    sees = ARCHITECTURES[kind].sees
    if head == "itc" and kind != "albef":
        raise ValueError(f"head=itc: model={name} has itm only")
    if sees == "pixels" and regions is not None:
        raise ValueError(f"regions: model={name} sees pixels, not regions")
    settings = (regions or RegionSettings(source="grid")).for_model(ARCHITECTURES[kind].takes_boxes)
    find, width = (None, 0) if sees == "pixels" else finder(settings)
    changes: dict[str, Any] = {"feature_width": width} if width else {}
    try:
        with quiet():
            words = WordTokenizer(tokenizer_of(checkpoint, kind))
        model = make_model(kind, size, {"matching": True}, vocabulary=words.size, **changes)
        report = load_published(model, checkpoint)
    except ValueError as error:  # train.py has another name for this setting
        raise ValueError(str(error).replace("pretrained=", f"model={kind}:", 1)) from None
    missing = [key for key in report.missing if key.startswith("matching.")]
    if missing:
        raise ValueError(f"model={name}: has no matching head ({missing[0]}); its scores would be random")
    return build_parts(name, model, words, checkpoint, find, head or "itm")


def build_parts(
    name: str, model: Any, words: WordTokenizer, checkpoint: str, find: Find | None, head: str
) -> ScorerParts:
    """The parts of a model with loaded weights. find: its region source, None for ALBEF."""

    def tokens(text: str) -> Tensors:
        ids = [words.cls, *words.ids(text), words.sep]
        if len(ids) > model.shape.positions:
            raise ValueError(f"model={name}: takes {model.shape.positions} tokens, not the {len(ids)} of {text!r}")
        return {"tokens": torch.tensor([ids]), "token_mask": torch.ones(1, len(ids), dtype=torch.bool)}

    def word_positions(text: str) -> list[tuple[str, list[int]]]:
        return [(word, [1 + n for n in places]) for word, places in words_of(words.tokenizer, text, special=False)]

    def judge(both: Tensors) -> Tensor:
        inputs: dict[str, Any] = dict(both)
        return model.match(Inputs(**inputs))

    if find is not None:
        return ScorerParts(model, word_positions, regions_with(find), tokens, unchanged, unchanged, judge, 0.0)
    statistics = pixel_statistics(checkpoint)

    def prepare(image: Image.Image) -> Tensors:
        picture = scale_picture(np.asarray(image.convert("RGB")), model.shape.picture)
        return {"pixels": normalise_pixels(picture[None], statistics)}

    def see(x: Tensors) -> Tensors:
        return {"vision_states": model.visual_encoder(x["pixels"])}

    if head == "itm":
        return ScorerParts(model, word_positions, prepare, tokens, see, unchanged, judge, 0.0)
    projections = projections_of(name, checkpoint, model.shape.width)
    model.projections = projections  # so that they move to the model's device

    def see_alone(x: Tensors) -> Tensors:
        return {"image": normalize(projections["image"](model.visual_encoder(x["pixels"])[:, 0]), dim=-1)}

    def read_alone(x: Tensors) -> Tensors:
        states = model.text_encoder(x["tokens"], x["token_mask"])
        return {"text": normalize(projections["text"](states[:, 0]), dim=-1)}

    return ScorerParts(model, word_positions, prepare, tokens, see_alone, read_alone, cosine, None)


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


def regions_with(find: Find) -> Callable[[Image.Image], Tensors]:
    def prepare(image: Image.Image) -> Tensors:
        features, boxes = find(image)
        return {
            "features": torch.from_numpy(np.asarray(features, np.float32))[None],
            "boxes": torch.from_numpy(np.asarray(boxes, np.float32))[None],
            "region_mask": torch.ones(1, len(boxes), dtype=torch.bool),
        }

    return prepare


def finder(settings: RegionSettings) -> tuple[Find, int]:
    """A function that finds the regions of a picture, and the width of their features. Raises ValueError for a source
    that needs more than pictures, or cannot be read."""
    if settings.source not in FINDERS:
        raise ValueError(f"regions.source={settings.source}: choose one of {', '.join(FINDERS)}")
    return FINDERS[settings.source](settings)


def _grid(settings: RegionSettings) -> tuple[Find, int]:
    def find(image: Image.Image) -> tuple[np.ndarray, np.ndarray]:
        picture = np.asarray(image.convert("RGB"))
        cells = np.ones((1, ROWS * COLUMNS), np.int16)
        table = make_regions(settings, PictureSet(["picture"], cells, ROWS, COLUMNS, decoded=lambda: [picture]))
        features, boxes, _ = table.take([0])
        return features[0], boxes[0]

    return find, DIMENSION


def _detector(settings: RegionSettings) -> tuple[Find, int]:
    from train.regions.detector import Detector

    folder_of(str(settings.detector), "regions.detector")  # else `transformers` would try each file for minutes
    with quiet():
        detector = Detector(str(settings.detector), settings.number)

    def find(image: Image.Image) -> tuple[np.ndarray, np.ndarray]:
        table = detector.detect([np.asarray(image.convert("RGB"))])
        return np.asarray(table["features"][0]), np.asarray(table["boxes"][0])

    return find, detector.dimension


class _AllImages(set[str]):
    """A set that contains every image."""

    def __contains__(self, image: object) -> bool:
        return True


def _file(settings: RegionSettings) -> tuple[Find, int]:
    from train.regions.files import BLANK, FORMATS, NpzFolder, read_regions

    path = Path(str(settings.file))
    if not path.exists() or (not path.is_dir() and path.suffix not in FORMATS):
        what = "must be" if path.exists() else "is not there; give"
        raise ValueError(f"regions.file={path}: {what} a file in {', '.join(FORMATS)}, or a folder of .npz files")
    try:
        file = NpzFolder(path) if path.is_dir() else FORMATS[path.suffix](path)
        names = {npz.stem for npz in path.glob("*.npz")} if path.is_dir() else set(file.counts(_AllImages()))
        if not names:
            raise ValueError("holds no features")
        first = read_regions(path, file, min(names), None)[0]  # all have the width of the first
    except (ValueError, OSError) as error:
        raise ValueError(f"regions.file={path}: {str(error).removeprefix(f'{path}: ')}") from None

    def find(image: Image.Image) -> tuple[np.ndarray, np.ndarray]:
        name = PurePosixPath(str(image.info.get(PATH, ""))).stem
        if not name and set(image.convert("RGB").getextrema()) == {(255, 255)}:  # the blank-picture baseline
            name = BLANK
        if not name:
            raise ValueError(f"regions.file={path}: regions are found by file name, which this picture lacks")
        if name not in names:
            raise ValueError(f"regions.file={path}: lacks the picture {name}{' (white)' if name == BLANK else ''}")
        try:
            features, boxes = read_regions(path, file, name, None)
        except ValueError as error:
            raise ValueError(f"regions.file={error}") from None
        number = len(boxes) if settings.number == "exact" else int(settings.number)
        return features[:number], boxes[:number]

    return find, first.shape[1]


FINDERS: dict[str, Callable[[RegionSettings], tuple[Find, int]]] = {"grid": _grid, "detector": _detector, "file": _file}
