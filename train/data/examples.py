"""Examples as arrays, from which a batch is looked up.

Text is tokenised once, features of regions are computed once for each distinct picture, and pictures are assembled from
scaled sprites. Only pictures that the project did not render are decoded, each once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
import torch

from render.pictures.renderer import Renderer
from render.png import decode
from train.config import RegionSettings
from train.data.auxiliary import AuxiliaryTargets, auxiliary_targets, region_names
from train.data.inputs import Inputs
from train.data.lookup import Lookup
from train.data.pixels import PUBLISHED, FilePictures, Pictures, Statistics
from train.data.text import WordTokenizer, tokenise
from train.regions.pictures import PictureSet
from train.regions.sources import RegionTable, make_regions
from travlr.scene import World


class Examples:
    """N examples, ready for batches.

    texts: token sequences. Row i is example i with its caption, row N + i without. captions: of each text, "" if there
    is none. answers: (N,) bool. groups: (N,), first item of each pair, "" without one. objects: (N,), number of
    objects. grid: (N, cells), see `RawExamples`.
    """

    def __init__(self, raw: RawExamples, tokenizer: WordTokenizer, visual: VisualSettings) -> None:
        self.ids, self.queries, self.answers = raw.ids, raw.queries, raw.answers
        self.groups = np.array([" ".join(pair[:1]) for pair in raw.pairs])
        self.pairs, self.captions = raw.pairs, [*raw.captions, *[""] * len(raw.ids)]
        self.tokenizer, self.grid, self.world = tokenizer, raw.grid, raw.world
        self.objects = (raw.grid > 0).sum(axis=1)
        captions, queries = tokenise(tokenizer, raw.captions), tokenise(tokenizer, raw.queries)
        self.texts = tokenizer.join(captions, queries).followed_by(tokenizer.join(queries))
        self.regions: RegionTable | None = None
        self.pixels: Pictures | FilePictures | None = None
        if visual.sees == "regions":
            self.regions = make_regions(visual.regions, raw.picture_set(), visual.takes_boxes)
        elif visual.sees == "pixels" and raw.renderer is not None:
            self.pixels = Pictures(raw.renderer, visual.side, visual.statistics)
        elif visual.sees == "pixels" and raw.encoded is not None:
            self.pixels = FilePictures(raw.ids, raw.encoded(), visual.side, visual.statistics)

    def __len__(self) -> int:
        return len(self.ids)

    @functools.cached_property
    def auxiliary(self) -> AuxiliaryTargets:
        return auxiliary_targets(self.tokenizer, self.queries, self.pairs, self.captions)

    @functools.cached_property
    def region_names(self) -> np.ndarray:
        return region_names(self.tokenizer, self.world)

    def with_targets(self, inputs: Inputs, rows: np.ndarray, image: np.ndarray, caption: np.ndarray) -> Inputs:
        """A batch of examples `rows` (B,) with auxiliary targets. image, caption: as in `inputs`."""
        regions = None
        if self.regions is not None and self.regions.cells is not None and inputs.boxes is not None:
            cells = np.where(image[:, None], self.regions.cells[rows], -1)[:, : inputs.boxes.shape[1]]
            kinds = np.where(cells >= 0, self.grid[rows[:, None], cells], 0)
            regions = self.region_names[kinds, cells]
        return self.auxiliary(inputs, rows, self.text_rows(rows, caption), regions)

    def text_rows(self, rows: np.ndarray, caption: np.ndarray) -> np.ndarray:
        """Rows of `texts` for examples `rows` (B,). caption: (B,) bool, whether each shows its caption."""
        return rows + len(self) * np.where(caption, 0, 1)

    def inputs(self, rows: np.ndarray, image: np.ndarray, caption: np.ndarray) -> Inputs:
        """A batch of examples `rows` (B,). image, caption: (B,) bool, the modalities that each shows.

        A hidden image is blank.
        """
        return self.batch(rows, image, caption).looked_up()

    def batch(self, rows: np.ndarray, image: np.ndarray, caption: np.ndarray) -> Inputs:
        """As `inputs`, with features and pixels as lookups where they can be."""
        tokens, mask = self.texts.padded(self.text_rows(rows, caption), self.tokenizer.pad)
        inputs = Inputs(
            torch.from_numpy(tokens),
            torch.from_numpy(mask),
            answer=torch.from_numpy(self.answers[rows].astype(np.int64)),
        )
        if self.regions is not None:
            shown = np.where(image, rows, RegionTable.BLANK)
            table = self.regions.device_table
            found, boxes, region_mask = self.regions.take(shown) if table is None else self.regions.places(shown)
            inputs = replace(
                inputs,
                features=torch.from_numpy(found) if table is None else None,
                lookups=None if table is None else {"features": Lookup(table, torch.from_numpy(found))},
                boxes=torch.from_numpy(np.ascontiguousarray(boxes)),
                region_mask=torch.from_numpy(region_mask),
            )
        if isinstance(self.pixels, FilePictures):
            inputs = replace(inputs, pixels=self.pixels(np.where(image, rows, FilePictures.BLANK)))
        elif self.pixels is not None:
            grid = np.where(image[:, None], self.grid[rows], 0)
            lookup = self.pixels.lookup(grid)
            inputs = (
                replace(inputs, lookups={"pixels": lookup}) if lookup else replace(inputs, pixels=self.pixels(grid))
            )
        return inputs


@dataclass(frozen=True)
class VisualSettings:
    """The visual input of a model. sees, takes_boxes: as in `Architecture`. side: width and height in pixels."""

    sees: str
    regions: RegionSettings
    takes_boxes: bool = True
    side: int = 0
    statistics: Statistics = PUBLISHED


@dataclass(frozen=True)
class RawExamples:
    """N examples before tokenising. grid: (N, cells), see `PictureSet`.

    renderer: draws the pictures; None for pictures from files. encoded: the N files, from the first at every call.
    """

    ids: Sequence[str]
    captions: Sequence[str]
    queries: Sequence[str]
    answers: np.ndarray
    pairs: Sequence[Sequence[str]]
    grid: np.ndarray
    world: World
    renderer: Renderer | None
    encoded: Callable[[], Iterable[bytes]] | None = None

    def take(self, rows: np.ndarray) -> RawExamples:
        """Examples `rows`, increasing."""
        encoded = self.encoded
        return replace(
            self,
            ids=[self.ids[row] for row in rows],
            captions=[self.captions[row] for row in rows],
            queries=[self.queries[row] for row in rows],
            answers=self.answers[rows],
            pairs=[self.pairs[row] for row in rows],
            grid=self.grid[rows],
            encoded=encoded and (lambda: compress(encoded(), np.bincount(rows, minlength=len(self.ids)))),
        )

    def picture_set(self) -> PictureSet:
        def decoded() -> Iterator[np.ndarray]:
            return (np.asarray(decode(file)) for file in (self.encoded or tuple)())

        files = decoded if self.encoded else None
        return PictureSet(self.ids, self.grid, self.world.rows, self.world.columns, self.renderer, files)
