"""Endless rows as a `datasets.IterableDataset`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import datasets

from travlr.finetuning.rows import ChatRow, with_pictures
from travlr.finetuning.streams import BLOCK, TrainingStream

MOST_BLOCKS = 20_000  # 15 million rows


def datasets_stream(stream: TrainingStream) -> datasets.IterableDataset:
    """The first 15 million rows of a stream, as `make_rows` describes them, with Pillow images.

    `datasets` gives workers of a data loader shares that do not overlap, and the ranks of
    `datasets.distributed.split_dataset_by_node`; its `state_dict` goes on in the middle.
    """
    blocks = list(range(min(MOST_BLOCKS, -(-stream.length // BLOCK))))
    # Without features: with them, `datasets` decodes each picture twice.
    return datasets.IterableDataset.from_generator(_rows, gen_kwargs={"stream": stream, "blocks": blocks})


def _rows(stream: TrainingStream, blocks: Sequence[int]) -> Iterator[ChatRow]:
    for block in blocks:
        yield from map(with_pictures, stream.rows(block * BLOCK, (block + 1) * BLOCK))
