"""Endless rows for the data loaders of torch, and of `torchdata`, which can go on in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from travlr.finetuning.rows import ChatRow, with_pictures
from travlr.finetuning.streams import TrainingStream


class TorchStream(IterableDataset[ChatRow]):
    """The rows of a stream, with Pillow images, as `make_rows` describes them.

    Each worker of each rank has a share of its own. rank, ranks: of a training on several devices, if nothing else
    divides the rows between them. Iterating again goes on where the last iteration stopped.
    """

    def __init__(self, stream: TrainingStream, rank: int = 0, ranks: int = 1) -> None:
        if not 0 <= rank < ranks:
            raise ValueError(f"rank={rank}: must be at least 0 and below ranks={ranks}")
        self.stream, self.rank, self.ranks = stream, rank, ranks
        self.position = 0  # in the share of this process

    def _share(self) -> tuple[int, int]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        return self.rank * workers + number, self.ranks * workers

    def __iter__(self) -> Iterator[ChatRow]:
        for row in self.stream.share(*self._share(), self.position):
            self.position += 1
            yield with_pictures(row)

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "share": self._share()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after a saved state. Raises `ValueError` where ranks or workers are others than they were."""
        if tuple(state["share"]) != self._share():
            raise ValueError(f"the state is of share {state['share']}, not {self._share()}; keep ranks and workers")
        self.position = state["position"]
