"""Where examples come from: the files of a dataset, or its generator, which streams new ones without end."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa

from render.pictures.renderer import Renderer
from render.text import parse_caption
from train.data.examples import RawExamples
from train.regions.pictures import grid_of
from travlr.config import Config, Style
from travlr.dataset import Dataset, SplitReader, open_dataset
from travlr.generate import Generator, generator, renderer_of
from travlr.scene import SPLITS, World


class TrainingDataset:
    """A dataset on disk: its splits as `RawExamples`, and its generator if its manifest has the configuration.

    Raises `ValueError` if a split is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.dataset: Dataset = open_dataset(folder)
        self.folder, manifest = folder, self.dataset.manifest
        if missing := [split for split in SPLITS if split not in self.dataset.splits]:
            raise ValueError(f"data={folder}: has no split {missing[0]}; training needs {', '.join(SPLITS)}")
        self.digest: str = manifest["content_digest"]
        self.config: Config | None = self.dataset.config

    @property
    def picture(self) -> tuple[int, int]:
        """Width and height of the pictures, in pixels."""
        if self.renderer is None:
            return self.dataset["train"][0].picture().size
        return self.renderer.width, self.renderer.height

    @functools.cached_property
    def renderer(self) -> Renderer | None:
        """Draws the pictures; None if the dataset has no configuration."""
        return renderer_of(self.config) if self.config else None

    @property
    def style(self) -> Style:
        """The style of pictures and captions; the default one for a dataset of another program."""
        return self.config.style if self.config else Style()

    @property
    def generator(self) -> Generator:
        if self.config is None:
            raise ValueError(
                f"data={self.folder}: nothing says with which settings it was generated, so no examples can be "
                "streamed; give training.examples"
            )
        return generator(self.config)

    def raw(self, split: str, limit: int | None = None) -> RawExamples:
        """The first `limit` examples of a split, or all."""
        reader = self.dataset[split]
        table = reader.columns("id", "caption", "query", "answer", "pair", "objects").slice(0, limit)
        try:
            world = self.config.world if self.config else _world_of(table)
        except ValueError as error:
            raise ValueError(
                f"data={self.folder}: a caption of {split} cannot be read ({error}); check the dataset with "
                f"python -m travlr.audit {self.folder}"
            ) from None
        return RawExamples(
            ids=table["id"].to_pylist(),
            captions=table["caption"].to_pylist(),
            queries=table["query"].to_pylist(),
            answers=table["answer"].to_numpy().astype(bool),
            pairs=table["pair"].to_pylist(),
            grid=grid_of(table["objects"], world),
            world=world,
            renderer=self.renderer,
            encoded=None if self.config else lambda: islice(_picture_files(reader), limit),
        )


def _picture_files(reader: SplitReader) -> Iterator[bytes]:
    for table in reader.tables("image"):
        yield from table["image"].combine_chunks().field("bytes").to_pylist()


def _world_of(table: pa.Table) -> World:
    """A world for a dataset without configuration: the attributes of its objects, and the grid of its captions."""
    objects = table["objects"].combine_chunks().flatten()
    names = {name: sorted(set(objects.field(name).to_pylist())) for name in ("colour", "shape", "size")}
    columns, rows, _ = parse_caption(table["caption"][0].as_py())
    return World(colours=names["colour"], shapes=names["shape"], sizes=names["size"], columns=columns, rows=rows)


# Streaming -------------------------------------------------------------------------------------------------------


def stream_examples(maker: Generator, start: int, stop: int) -> RawExamples:
    """Training examples start to stop of a generator. Those past `count.train` are in no split of the dataset."""
    batch = maker.batch("train", start, stop)
    return RawExamples(
        ids=[f"train-{i}" for i in range(start, stop)],
        captions=maker.captions(batch),
        queries=maker.query_texts(batch),
        answers=batch.answer.astype(bool),
        pairs=[batch.pairs[pair] for pair in batch.pair],
        grid=batch.grid,
        world=maker.config.world,
        renderer=maker.renderer,
    )
