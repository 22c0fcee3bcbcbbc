"""Examples as arrays, and batches of them: from a dataset's files, or streamed from its generator without end.

Text is tokenised once, features of regions are looked up, pictures are stamped from scaled sprites; nothing is decoded
but pictures that come from elsewhere, and those once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from render.image import Renderer, decode
from train.data.auxiliary import AuxiliaryTargets, auxiliary_targets
from train.data.inputs import Inputs
from train.data.pixels import PUBLISHED, FilePictures, Pictures, Statistics
from train.data.text import Ragged, WordTokenizer, tokenise
from train.regions.scenes import PictureSet, grid_of
from train.regions.sources import RegionSettings, RegionTable, make_regions
from travlr.config import Config
from travlr.dataset import Dataset, SplitReader, open_dataset
from travlr.generate import Generator, generator, renderer_of
from travlr.scene import SPLITS, Batch, World
from travlr.tasks import config_from_dict

SHOWN = {"image": (True, False), "caption": (False, True), "image+caption": (True, True)}  # image, caption
CHUNK = 4096  # examples drawn at once, whole couples
PER_EXAMPLE = ("grid", "order", "query", "pair", "answer")  # arrays of a `Batch`, an entry for each example
DROPPED = 0.25  # of each modality in the mixed setting (paper, appendix F)


@dataclass(frozen=True)
class VisualSettings:
    """What the model is shown beside text: `sees` of the model, how regions are made, the side of its pictures.

    statistics: by which pixels are normalised. cache: a folder for what took long to make.
    reader: reads examples' pictures as captions; the model is then shown what was read, and the blank image.
    """

    sees: str
    regions: RegionSettings
    side: int = 0
    statistics: Statistics = PUBLISHED
    cache: Path | None = None
    reader: Callable[[Examples], list[str]] | None = None


@dataclass(frozen=True)
class RawExamples:
    """N examples before tokens and regions. grid: (N, cells). encoded: gives the picture files, where none can be
    rendered; begins anew with every call."""

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

    def scenes(self) -> PictureSet:
        def decoded() -> Iterator[np.ndarray]:
            return (np.asarray(decode(file)) for file in (self.encoded or tuple)())

        files = decoded if self.encoded else None
        return PictureSet(self.ids, self.grid, self.world.rows, self.world.columns, self.renderer, files)


class Examples:
    """N examples, ready for batches.

    texts: 2 N token sequences, row i with the caption and row N + i without; 3 N where pictures are read, row 2 N + i
    with what was read. captions: of each text, "" where there is none. answers: (N,) bool. groups: (N,) first item of
    each pair. objects: (N,) numbers of objects. named: what is named beside the answers.
    """

    def __init__(self, raw: RawExamples, words: WordTokenizer, visual: VisualSettings) -> None:
        self.ids, self.queries, self.answers = raw.ids, raw.queries, raw.answers
        self.groups = np.array([pair[0] for pair in raw.pairs])
        self.pairs, self.captions = raw.pairs, [*raw.captions, *[""] * len(raw.ids)]
        self.words, self.grid = words, raw.grid
        self.objects = (raw.grid > 0).sum(axis=1)
        captions, queries = tokenise(words, raw.captions), tokenise(words, raw.queries)
        self.texts = _stacked(words.join(captions, queries), words.join(queries))
        self.phrases = np.array([len(caption) for caption in captions])  # tokens of each caption
        self.regions: RegionTable | None = None
        self.pixels: Pictures | FilePictures | None = None
        if visual.sees == "regions":
            self.regions = make_regions(visual.regions, raw.scenes(), visual.cache)
        elif visual.sees == "pixels" and raw.renderer is not None:
            self.pixels = Pictures(raw.renderer, visual.side, visual.statistics)
        elif visual.sees == "pixels" and raw.encoded is not None:
            self.pixels = FilePictures(raw.ids, raw.encoded, visual.side, visual.statistics, visual.cache)
        self.read = False  # until the reader, which is shown the pictures, has read them
        if visual.reader is not None:
            read, self.read = visual.reader(self), True
            self.texts = _stacked(self.texts, words.join([words.ids(text) for text in read], queries))
            self.captions += read

    def __len__(self) -> int:
        return len(self.ids)

    @functools.cached_property
    def auxiliary(self) -> AuxiliaryTargets:
        return auxiliary_targets(self.words, self.queries, self.pairs, self.captions)

    def text_rows(self, rows: np.ndarray, image: np.ndarray, caption: np.ndarray) -> np.ndarray:
        """Rows of `texts` for examples `rows` that are shown an image and a caption, or not; all (B,)."""
        return rows + len(self) * np.where(caption, 0, np.where(image & self.read, 2, 1))

    def inputs(
        self, rows: np.ndarray, image: np.ndarray, caption: np.ndarray, random: np.random.Generator | None = None
    ) -> Inputs:
        """A batch of examples `rows` (B,). image, caption: (B,) bool, what each is shown; else the image is blank.

        random: changes pictures, blank ones too, where the model sees pixels (`train.data.augment`).
        """
        tokens, mask = self.texts.padded(self.text_rows(rows, image, caption), self.words.pad)
        image = image & (not self.read)
        made = Inputs(
            torch.from_numpy(tokens),
            torch.from_numpy(mask),
            answer=torch.from_numpy(self.answers[rows].astype(np.int64)),
        )
        if self.regions is not None:
            features, boxes, seen = self.regions.take(np.where(image, rows, RegionTable.BLANK))
            made = replace(
                made,
                features=torch.from_numpy(features),
                boxes=torch.from_numpy(np.ascontiguousarray(boxes)),
                region_mask=torch.from_numpy(seen),
            )
        if self.pixels is not None:
            made = replace(made, pixels=self.pixels(self._pictured(rows, image), random))
        return made

    def _pictured(self, rows: np.ndarray, image: np.ndarray) -> np.ndarray:
        if isinstance(self.pixels, FilePictures):
            return np.where(image, rows, FilePictures.BLANK)
        return np.where(image[:, None], self.grid[rows], 0)


def _stacked(first: Ragged, second: Ragged) -> Ragged:
    """The sequences of both, one after the other."""
    starts = np.concatenate([first.starts, second.starts[1:] + first.starts[-1]])
    return Ragged(np.concatenate([first.flat, second.flat]), starts)


# Where examples come from ----------------------------------------------------------------------------------------


def streamed(maker: Generator, start: int, stop: int, split: str = "train", keep: int | None = None) -> RawExamples:
    """Examples start to stop of a generator. Those of `train` past `count.train` are in no split of the dataset.

    keep: only so many, those with the fewest objects; of each couple (true and false) both or neither.
    """
    drawn = _drawn(maker, split, start, stop, stop - start if keep is None else keep)
    return RawExamples(
        ids=[f"{split}-{index}" for index in drawn.index],
        captions=maker.captions(drawn.batch),
        queries=maker.query_texts(drawn.batch),
        answers=drawn.batch.answer.astype(bool),
        pairs=[maker.task.pairs[pair] for pair in drawn.batch.pair],
        grid=drawn.batch.grid,
        world=maker.config.world,
        renderer=maker.renderer,
    )


@dataclass(frozen=True)
class SampledBatch:
    """Examples of a generator. index: (N,) of each in its split, increasing."""

    batch: Batch
    index: np.ndarray

    def fewest_objects(self, keep: int) -> SampledBatch:
        """The couples with the fewest objects, `keep` examples in all; of couples with as many the earlier ones."""
        if keep >= len(self.index):
            return self
        objects = (self.batch.grid.reshape(len(self.index) // 2, -1) > 0).sum(axis=1)  # of each couple
        couples = np.sort(np.argsort(objects, kind="stable")[: keep // 2])
        rows = (2 * couples[:, None] + [0, 1]).ravel()
        kept: dict[str, Any] = {name: getattr(self.batch, name)[rows] for name in PER_EXAMPLE}
        return SampledBatch(replace(self.batch, **kept), self.index[rows])


def _joined(parts: Sequence[SampledBatch]) -> SampledBatch:
    """Parts of a split, one after the other."""
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(part.batch, name) for part in parts]) for name in PER_EXAMPLE
    }
    return SampledBatch(replace(parts[0].batch, **arrays), np.concatenate([part.index for part in parts]))


def _drawn(maker: Generator, split: str, start: int, stop: int, keep: int) -> SampledBatch:
    """As `streamed`; in portions, so that memory depends on `keep` and not on how many there are to choose from."""
    parts: list[SampledBatch] = []
    for first in range(start, stop, CHUNK):
        end = min(first + CHUNK, stop)
        parts.append(SampledBatch(maker.batch(split, first, end), np.arange(first, end)))
        if sum(len(part.index) for part in parts) > 2 * keep:
            parts = [_joined(parts).fewest_objects(keep)]
    return _joined(parts).fewest_objects(keep)


class Source:
    """A dataset on disk: its splits as `RawExamples`, and its generator where its manifest says how it was made.

    Raises `ValueError` where a split is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.dataset: Dataset = open_dataset(folder)
        self.folder, manifest = folder, self.dataset.manifest
        if missing := [split for split in SPLITS if split not in self.dataset.splits]:
            raise ValueError(f"data={folder}: has no split {missing[0]}; training needs {', '.join(SPLITS)}")
        self.task = str(self.dataset["train"].columns("task")["task"][0])
        self.digest: str = manifest["content_digest"]
        self.config: Config | None = config_from_dict(manifest["config"]) if manifest.get("config") else None

    @property
    def picture(self) -> tuple[int, int]:
        """Width and height of the pictures, in pixels."""
        if self.config is None:
            return self.dataset["train"][0].picture().size
        return self.config.world.columns * self.config.image.cell, self.config.world.rows * self.config.image.cell

    @property
    def generator(self) -> Generator:
        if self.config is None:
            raise ValueError(f"data={self.folder}: does not say how it was made; use training.stream=false")
        return generator(self.config)

    def raw(self, split: str, limit: int | None = None) -> RawExamples:
        """A split, or its first examples."""
        reader = self.dataset[split]
        table = reader.columns("id", "caption", "query", "answer", "pair", "objects").slice(0, limit)
        world = self.config.world if self.config else _world(table)
        return RawExamples(
            ids=table["id"].to_pylist(),
            captions=table["caption"].to_pylist(),
            queries=table["query"].to_pylist(),
            answers=table["answer"].to_numpy().astype(bool),
            pairs=table["pair"].to_pylist(),
            grid=grid_of(table["objects"], world),
            world=world,
            renderer=renderer_of(self.config) if self.config else None,
            encoded=None if self.config else lambda: islice(_files(reader), limit),
        )


def _files(reader: SplitReader) -> Iterator[bytes]:
    for table in reader.tables("image"):
        yield from table["image"].combine_chunks().field("bytes").to_pylist()


def _world(table: pa.Table) -> World:
    """The world of a dataset that does not tell: what its objects show, on the grid that its captions speak of."""
    from render.text import parse_caption

    objects = table["objects"].combine_chunks().flatten()
    names = {name: sorted(set(objects.field(name).to_pylist())) for name in ("colour", "shape", "size")}
    columns, rows, _ = parse_caption(table["caption"][0].as_py())
    return World(tuple(names["colour"]), tuple(names["shape"]), tuple(names["size"]), columns, rows)


# Batches ---------------------------------------------------------------------------------------------------------


def shown(setting: str, rows: np.ndarray, random: np.random.Generator | None) -> tuple[np.ndarray, np.ndarray]:
    """Which of B examples show their image and which their caption. `mixed` drops either, never both (appendix F)."""
    if setting != "mixed":
        image, caption = SHOWN[setting]
        return np.full(len(rows), image), np.full(len(rows), caption)
    if random is None:
        raise ValueError("setting=mixed: is for training; a test shows image, caption or image+caption")
    draw = random.random(len(rows))
    return draw >= DROPPED, ~((draw >= DROPPED) & (draw < 2 * DROPPED))


def bucketed(lengths: np.ndarray, size: int, window: int, random: np.random.Generator) -> Iterator[np.ndarray]:
    """All of N rows in batches of `size`, shuffled; in each `window` of batches those of like length come together.

    What is left over, less than a batch, is dropped. A wide window leaves little padding (see the benchmark), but
    all of a batch then has as many objects; small models learn to count sooner from a window of 1.
    """
    order = random.permutation(len(lengths))
    order = order[: len(order) // size * size]
    for start in range(0, len(order), window * size):
        near = order[start : start + window * size]
        if window > 1:
            near = near[np.argsort(lengths[near], kind="stable")]
        for batch in random.permutation(len(near) // size):
            yield near[batch * size : (batch + 1) * size]


def in_order(lengths: np.ndarray, tokens: int) -> Iterator[np.ndarray]:
    """All of N rows by length, in batches of at most `tokens` padded tokens (at least one row): for evaluation."""
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        stop = start + max(1, tokens // max(1, int(lengths[order[min(len(order) - 1, start)]])))
        while stop > start + 1 and (stop - start) * lengths[order[min(stop, len(order)) - 1]] > tokens:
            stop -= 1
        yield order[start : min(stop, len(order))]
        start = min(stop, len(order))
