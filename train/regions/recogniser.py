"""A small network that names the colour, shape and size of one object: the frozen "detector" of the region sources.

It reads the crop of one cell and gives a feature vector as a detector's last layer would (2048 numbers, none negative),
from which its heads read the names of all of `travlr.scene`, or that the cell is empty. The weights ship with the
project; `python -m train.regions.recogniser` trains them anew and `python -m train.regions.recogniser --check` says how
well the shipped ones name renderings that training has not seen.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import platform
import sys
import time
from pathlib import Path

import numpy as np
import safetensors
import torch
from PIL import Image as pillow
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from render.image import LEVELS, WHITE, coverage
from travlr.config import Image
from travlr.files import replacing
from travlr.scene import COLOURS, SHAPES, SIZES

WEIGHTS = Path(__file__).with_name("recogniser.safetensors")
SIDE = 32  # pixels of a crop along each axis
DIMENSION = 2048  # of a feature vector, as that of the detectors behind the published models
HEADS = {"colour": tuple(COLOURS), "shape": SHAPES, "size": SIZES}

# What training and the held-out renderings draw from: no cell size and no span is in both. Shifts are parts of a cell.
TRAINED_CELLS = (16, 20, 24, 28, 32, 37, 40, 44, 48, 56, 64, 72, 80, 96)
HELD_OUT_CELLS = (18, 22, 26, 30, 34, 38, 42, 46, 52, 60, 68, 76, 90)
TRAINED_SPANS = (0.94, 0.97, 1.0, 1.03, 1.06, 1.12)  # times the default span of a size
HELD_OUT_SPANS = (0.955, 0.985, 1.015, 1.045)
SHIFT = 0.05
# The released pictures differ: these colours, and octagons that stand on a corner.
RELEASED = {
    "red": (255, 0, 0),
    "blue": (0, 0, 255),
    "green": (0, 255, 0),
    "yellow": (255, 255, 0),
    "orange": (255, 165, 0),
}
FEWEST_PIXELS = 12  # of an object's span: below it a circle and an octagon are nearly the same few pixels


class Recogniser(nn.Module):
    """Crops (N, 3, 32, 32), 0 for black to 1 for white -> features (N, 2048), whose mean square is about 1."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((3, 24, 1), (24, 32, 2), (32, 48, 2), (48, 48, 2))
        self.convolutions = nn.ModuleList(nn.Conv2d(i, o, 3, stride, padding=1) for i, o, stride in sizes)
        self.narrow = nn.Linear(48 * 4 * 4, 64)
        self.wide = nn.Linear(64, DIMENSION)
        # The last class of each head is an empty cell.
        self.heads = nn.ModuleDict({name: nn.Linear(DIMENSION, len(names) + 1) for name, names in HEADS.items()})

    def forward(self, crops: Tensor) -> Tensor:
        values = 2 * (1 - crops)  # white is nothing
        for convolution in self.convolutions:
            values = F.relu(convolution(values))
        return F.relu(self.wide(F.relu(self.narrow(values.flatten(1)))))

    def named(self, features: Tensor) -> dict[str, Tensor]:
        """Features -> (N, names + 1) logits by head."""
        return {name: head(features) for name, head in self.heads.items()}


@functools.cache
def recogniser(path: Path = WEIGHTS) -> Recogniser:
    """The shipped network, frozen. Raises `ValueError` where its file is missing or not of this version."""
    with torch.random.fork_rng([]):  # weights that are replaced at once: whoever asks first draws no random numbers
        network = Recogniser()
    try:
        with safetensors.safe_open(path, "pt") as file:
            network.load_state_dict({name: file.get_tensor(name).float() for name in file.keys()})  # noqa: SIM118
    except (OSError, RuntimeError, safetensors.SafetensorError) as error:
        raise ValueError(
            f"{path}: not the recogniser's weights ({str(error).splitlines()[0]}); "
            "write them with: python -m train.regions.recogniser"
        ) from None
    return network.eval().requires_grad_(False)


@functools.cache
def weights_digest() -> bytes:
    """Of the shipped weights: what features are kept under."""
    return hashlib.sha256(WEIGHTS.read_bytes()).digest()


def resized(crops: Tensor) -> Tensor:
    """(N, C, height, width) float -> (N, C, 32, 32)."""
    if crops.shape[-2:] == (SIDE, SIDE):
        return crops
    return F.interpolate(crops, (SIDE, SIDE), mode="bilinear", antialias=True, align_corners=False)


@torch.inference_mode()
def features_of(crops: np.ndarray, batch: int = 256) -> np.ndarray:
    """Feature vectors (N, 2048) float32 of crops (N, height, width, 3) uint8, each of one cell."""
    network = recogniser()
    out = np.empty((len(crops), DIMENSION), np.float32)
    for start in range(0, len(crops), batch):
        part = torch.from_numpy(np.ascontiguousarray(crops[start : start + batch])).permute(0, 3, 1, 2)
        out[start : start + batch] = network(resized(part.float() / 255)).numpy()
    return out


@torch.inference_mode()
def names_of(features: np.ndarray) -> list[tuple[str, str, str]]:
    """(colour, shape, size) that each feature vector shows, each "" for an empty cell."""
    logits = recogniser().named(torch.from_numpy(np.asarray(features, np.float32)))
    columns = [[(*HEADS[name], "")[i] for i in part.argmax(1).tolist()] for name, part in logits.items()]
    return list(zip(*columns, strict=True))


# Training --------------------------------------------------------------------------------------------------------


def _shares(cells: tuple[int, ...], factors: tuple[float, ...]) -> list[tuple[int, int, np.ndarray]]:
    """(shape, size, covered share of each pixel of a cell) for every rendering that can be told apart."""
    found = []
    for cell in cells:
        for factor in factors:
            for z, size in enumerate(SIZES):
                span = min(getattr(Image(), size) * factor, 1.0) * cell
                if span >= FEWEST_PIXELS:
                    found += [(s, z, coverage(shape, span, cell) / LEVELS) for s, shape in enumerate(SHAPES)]
    return found


def _shifted(share: np.ndarray, down: int, right: int) -> np.ndarray:
    """Moved by whole pixels; what leaves the cell is cut off."""
    moved = np.zeros_like(share)
    height, width = share.shape
    moved[max(down, 0) : height + min(down, 0), max(right, 0) : width + min(right, 0)] = share[
        max(-down, 0) : height + min(-down, 0), max(-right, 0) : width + min(-right, 0)
    ]
    return moved


def _turned(share: np.ndarray) -> np.ndarray:
    """By a sixteenth of a full turn."""
    return np.asarray(pillow.fromarray(share.astype(np.float32)).rotate(22.5, pillow.Resampling.BICUBIC)).clip(0, 1)


def _pool(random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Covered shares (M, 1, 32, 32) of all trained renderings, and their (shape, size); the last one is empty."""
    shares, labels = [], []
    drawn = _shares(TRAINED_CELLS, TRAINED_SPANS)
    octagon = SHAPES.index("octagon")
    drawn += [(shape, size, _turned(share)) for shape, size, share in drawn if shape == octagon]
    for shape, size, share in drawn:
        steps = random.choice((-SHIFT, 0.0, SHIFT), (2, 2)) * len(share)
        for down, right in ((0, 0), *np.rint(steps).astype(int).tolist()):
            shares.append(resized(torch.from_numpy(_shifted(share, down, right)).float()[None, None])[0])
            labels.append((shape, size))
    return torch.stack([*shares, torch.zeros(1, SIDE, SIDE)]), torch.tensor([*labels, (len(SHAPES), len(SIZES))])


def _cosines() -> Tensor:
    """The orthonormal cosine transform of 8 values, as JPEG uses it."""
    k, x = torch.arange(8.0)[:, None], torch.arange(8.0)[None, :]
    basis = torch.cos(torch.pi * (2 * x + 1) * k / 16) / 2
    basis[0] /= 2**0.5
    return basis


def _perturbed(pictures: Tensor, basis: Tensor) -> Tensor:
    """A third as drawn, a third with noise, and a third with the coarse cosine coefficients of a lossy file."""
    third = len(pictures) // 3
    pictures = pictures.clone()
    noisy = pictures[:third]
    noisy += torch.randn_like(noisy) * 0.03 * torch.rand(third, 1, 1, 1)
    blocks = pictures[third : 2 * third].reshape(third, 3, SIDE // 8, 8, SIDE // 8, 8)
    coefficients = torch.einsum("ux,ncaxby,vy->ncaubv", basis, blocks, basis)
    step = 0.02 + 0.13 * torch.rand(third, 1, 1, 1, 1, 1)
    coarse = (coefficients / step).round() * step
    lossy = torch.einsum("ux,ncaubv,vy->ncaxby", basis, coarse, basis)
    pictures[third : 2 * third] = lossy.reshape(third, 3, SIDE, SIDE)
    return pictures.clamp(0, 1)


def trained(steps: int = 2000, batch: int = 192, seed: int = 0) -> Recogniser:
    """A network trained on random renderings; the same on the same machine for the same seed."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    shares, labels = _pool(random)
    colours = torch.tensor([list(COLOURS.values()), list((COLOURS | RELEASED).values())]) / 255
    network, basis = Recogniser(), _cosines()
    small = (labels[:, 1] == SIZES.index("small")).nonzero()[:, 0]
    optimiser = torch.optim.AdamW(network.parameters(), lr=1.0, weight_decay=0.01)
    rate = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda i: 2e-3 * min(i / min(100, steps / 4), 1 - i / steps))
    for step in range(steps):
        rows = torch.randint(len(shares), (batch,))
        rows[::4] = small[torch.randint(len(small), rows[::4].shape)]  # the hardest to tell apart
        rows[torch.rand(batch) < 0.02] = len(shares) - 1
        colour = torch.randint(len(COLOURS), (batch,))
        paint = (colours[(torch.rand(batch) < 0.2).long(), colour] + 0.02 * torch.randn(batch, 3))[:, :, None, None]
        share = shares[rows]
        crops = _perturbed(1 - share * (1 - paint), basis)
        colour[rows == len(shares) - 1] = len(COLOURS)
        truth = {"colour": colour, "shape": labels[rows, 0], "size": labels[rows, 1]}
        logits = network.named(network(crops))
        loss = torch.stack([F.cross_entropy(logits[name], truth[name]) for name in HEADS]).sum()
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        rate.step()
        if step % 100 == 99:
            print(f"step {step + 1:>5} of {steps}  loss {loss.item():.4f}", flush=True)
    return _scaled(network.eval().requires_grad_(False), shares)


def _scaled(network: Recogniser, shares: Tensor) -> Recogniser:
    """The same names from features whose mean square over objects is 1."""
    colours = torch.tensor(list(COLOURS.values())) / 255
    some = shares[torch.arange(0, len(shares) - 1, 11)]
    paint = colours[torch.arange(len(some)) % len(colours)][:, :, None, None]
    scale = network(1 - some * (1 - paint)).square().mean().sqrt()
    for parameter in network.wide.parameters():
        parameter.div_(scale)
    for name, parameter in network.heads.named_parameters():
        if name.endswith("weight"):
            parameter.mul_(scale)
    return network


def save(network: Recogniser, path: Path, notes: dict[str, str]) -> None:
    """Write the weights in half precision, whole or not at all."""
    weights = {name: value.half().contiguous() for name, value in network.state_dict().items()}
    with replacing(path) as temporary:
        save_file(weights, temporary, notes)


# Checking --------------------------------------------------------------------------------------------------------


def held_out(count: int, seed: int) -> tuple[np.ndarray, list[tuple[str, str, str]]]:
    """`count` crops (count, 32, 32, 3) uint8 with cells, spans and shifts that training had not, and their names.

    Noise of up to 5 of 255 on each pixel, and every other crop went through a JPEG file of quality 80 to 95.
    """
    random = np.random.default_rng(seed)
    shares = _shares(HELD_OUT_CELLS, HELD_OUT_SPANS)
    crops, names = np.empty((count, SIDE, SIDE, 3), np.uint8), []
    for i in range(count):
        shape, size, share = shares[random.integers(len(shares))]
        colour = list(COLOURS)[random.integers(len(COLOURS))]
        down, right = np.rint(random.uniform(-SHIFT, SHIFT, 2) * len(share)).astype(int).tolist()
        share = _shifted(share, down, right)[:, :, None]
        crop = share * COLOURS[colour] + (1 - share) * WHITE + random.uniform(-5, 5, (*share.shape[:2], 3))
        crop = np.clip(np.rint(crop), 0, 255).astype(np.uint8)
        crops[i] = _in_side(_through_jpeg(crop, int(random.integers(80, 96))) if i % 2 else crop)
        names.append((colour, SHAPES[shape], SIZES[size]))
    return crops, names


def _through_jpeg(crop: np.ndarray, quality: int) -> np.ndarray:
    file = io.BytesIO()
    pillow.fromarray(crop).save(file, "JPEG", quality=quality)
    return np.asarray(pillow.open(file).convert("RGB"))


def _in_side(crop: np.ndarray) -> np.ndarray:
    small = resized(torch.tensor(crop).permute(2, 0, 1)[None].float())[0]
    return small.permute(1, 2, 0).round().clamp(0, 255).byte().numpy()


def accuracy(crops: np.ndarray, names: list[tuple[str, str, str]]) -> dict[str, float]:
    """Share of crops named rightly by the shipped network, by head."""
    both = zip(names_of(features_of(crops)), names, strict=True)
    right = np.array([[a == b for a, b in zip(found, true, strict=True)] for found, true in both])
    return dict(zip(HEADS, right.mean(axis=0).tolist(), strict=True))


def main(arguments: list[str]) -> None:
    if arguments not in ([], ["--check"]):
        sys.exit("usage: python -m train.regions.recogniser [--check]")
    if not arguments:
        start = time.perf_counter()
        save(trained(), WEIGHTS, {"torch": torch.__version__.split("+")[0], "python": platform.python_version()})
        print(f"{WEIGHTS.name}: {WEIGHTS.stat().st_size:,} bytes, {time.perf_counter() - start:.0f} s")
        recogniser.cache_clear()
    with safetensors.safe_open(WEIGHTS, "pt") as file:
        print("written with", json.dumps(file.metadata()))
    for name, share in accuracy(*held_out(6000, seed=1)).items():
        print(f"{name:<7} {100 * share:.2f} % of 6,000 held-out renderings")


if __name__ == "__main__":
    main(sys.argv[1:])
