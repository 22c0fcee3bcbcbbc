"""Features and pictures that are looked up where the model computes.

A batch has few distinct regions and sprites again and again. So the numbers of their rows travel to a GPU, and their
table stays there: 36 tiles of a picture instead of 1.8 MB of pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


class LookupTable:
    """(K + 1, ...) rows, copied to each device once. The last row, of number -1, is what pads."""

    def __init__(self, rows: Tensor, padding: Tensor) -> None:
        self._on = {torch.device("cpu"): torch.cat([rows, padding[None].to(rows.dtype)])}

    def on(self, device: torch.device) -> Tensor:
        if device not in self._on:
            self._on[device] = self._on[torch.device("cpu")].to(device)
        return self._on[device]


def as_they_are(values: Tensor) -> Tensor:
    return values


@dataclass(frozen=True)
class Lookup:
    """Rows of a table. rows: (B, ...) integers. finish: makes what the model takes of (B, ..., *row)."""

    table: LookupTable
    rows: Tensor
    finish: Callable[[Tensor], Tensor] = as_they_are

    def values(self) -> Tensor:
        """On the device of `rows`, float32."""
        return self.finish(self.table.on(self.rows.device)[self.rows.long()].float())
