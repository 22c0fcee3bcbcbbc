"""A small frozen CNN that recognises the colour, shape and size of one object: features of `scene` and `grid`.

It turns the crop of one cell into a feature vector like that of a detector's last layer (2048 numbers, none negative).
Its heads classify the vector as one of the colours, shapes and sizes of `travlr.scene`, or as an empty cell. The
weights are part of the project. `python scripts/train_recogniser.py` trains them again.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import safetensors
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from travlr.scene import COLOURS, SHAPES, SIZES

WEIGHTS = Path(__file__).with_name("recogniser.safetensors")
SIDE = 32  # pixels of a crop along each axis
BATCH = 256  # crops
DIMENSION = 2048  # of a feature vector, as in the detectors of the published models
HEADS = {"colour": tuple(COLOURS), "shape": SHAPES, "size": SIZES}


class Recogniser(nn.Module):
    """Crops (N, 3, 32, 32), 0 for black to 1 for white -> features (N, 2048), whose mean square is about 1."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((3, 24, 1), (24, 32, 2), (32, 48, 2), (48, 48, 2))
        self.convolutions = nn.ModuleList(nn.Conv2d(i, o, 3, stride, padding=1) for i, o, stride in sizes)
        self.narrow = nn.Linear(48 * 4 * 4, 64)
        self.wide = nn.Linear(64, DIMENSION)
        self.heads = nn.ModuleDict({name: nn.Linear(DIMENSION, len(names) + 1) for name, names in HEADS.items()})

    def forward(self, crops: Tensor) -> Tensor:
        values = 2 * (1 - crops)  # white is 0
        for convolution in self.convolutions:
            values = F.relu(convolution(values))
        return F.relu(self.wide(F.relu(self.narrow(values.flatten(1)))))

    def classify(self, features: Tensor) -> dict[str, Tensor]:
        """Features (N, 2048) -> logits (N, classes + 1) by head; the last class is an empty cell."""
        return {name: head(features) for name, head in self.heads.items()}


@functools.cache
def recogniser(path: Path = WEIGHTS) -> Recogniser:
    """The frozen network. Raises `ValueError` for a weights file that is missing or does not fit."""
    with torch.random.fork_rng([]):  # these random weights are replaced: leave the caller's generator alone
        network = Recogniser()
    try:
        with safetensors.safe_open(path, "pt") as file:
            network.load_state_dict({name: file.get_tensor(name).float() for name in file.keys()})  # noqa: SIM118
    except (OSError, RuntimeError, safetensors.SafetensorError) as error:
        raise ValueError(
            f"{path}: not the recogniser's weights ({str(error).splitlines()[0]}); "
            "train it with: python scripts/train_recogniser.py"
        ) from None
    return network.eval().requires_grad_(False)


def resize_crops(crops: Tensor) -> Tensor:
    """(N, C, height, width) float -> (N, C, 32, 32)."""
    if crops.shape[-2:] == (SIDE, SIDE):
        return crops
    return F.interpolate(crops, (SIDE, SIDE), mode="bilinear", antialias=True, align_corners=False)


@torch.inference_mode()
def features_of(crops: np.ndarray) -> np.ndarray:
    """Feature vectors (N, 2048) float32 of crops (N, height, width, 3) uint8, each of one cell."""
    network = recogniser()
    out = np.empty((len(crops), DIMENSION), np.float32)
    for start in range(0, len(crops), BATCH):
        part = torch.from_numpy(np.ascontiguousarray(crops[start : start + BATCH])).permute(0, 3, 1, 2)
        out[start : start + BATCH] = network(resize_crops(part.float() / 255)).numpy()
    return out


@torch.inference_mode()
def recognise(features: np.ndarray) -> list[tuple[str, str, str]]:
    """Colour, shape and size of each feature vector (N, 2048), each "" for an empty cell."""
    logits = recogniser().classify(torch.from_numpy(np.asarray(features, np.float32)))
    columns = [[(*HEADS[name], "")[i] for i in part.argmax(1).tolist()] for name, part in logits.items()]
    return list(zip(*columns, strict=True))
