"""Train the CNN that makes the features of regions (`train.regions.recogniser`), and measure its accuracy.

`python scripts/train_recogniser.py` writes the weights of the project again; with `--check` it only measures their
accuracy on renderings that training did not use.
"""

from __future__ import annotations

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
from scipy.fft import dct
from scipy.ndimage import shift
from torch import Tensor
from torch.nn import functional as F

from render.shapes import LEVELS, WHITE, coverage
from train.regions.recogniser import HEADS, SIDE, WEIGHTS, Recogniser, features_of, recognise, recogniser, resize_crops
from travlr.config import Image
from travlr.files import replace_file
from travlr.scene import COLOURS, SHAPES, SIZES

# Sizes of cells, in pixels, and spans of objects: training and the held-out renderings share none.
TRAINING_CELLS = (16, 20, 24, 28, 32, 37, 40, 44, 48, 56, 64, 72, 80, 96)
HELD_OUT_CELLS = (18, 22, 26, 30, 34, 38, 42, 46, 52, 60, 68, 76, 90)
TRAINING_SPANS = (0.94, 0.97, 1.0, 1.03, 1.06, 1.12)  # times the default span of a size
HELD_OUT_SPANS = (0.955, 0.985, 1.015, 1.045)
SHIFT = 0.05  # of a cell
# The released pictures have these colours, and octagons that stand on a corner.
RELEASED_COLOURS = {
    "red": (255, 0, 0),
    "blue": (0, 0, 255),
    "green": (0, 255, 0),
    "yellow": (255, 255, 0),
    "orange": (255, 165, 0),
}
MIN_PIXELS = 12  # span of an object: below it, a circle and an octagon are nearly the same


# Training --------------------------------------------------------------------------------------------------------


def _renderings(cells: tuple[int, ...], factors: tuple[float, ...]) -> list[tuple[int, int, np.ndarray]]:
    """Shape, size and covered of a cell's pixels (cell, cell), 0 to 1, for every span of at least `MIN_PIXELS`."""
    renderings = []
    for cell in cells:
        for factor in factors:
            for z in range(len(SIZES)):
                span = min(Image().spans[z] * factor, 1.0) * cell
                if span >= MIN_PIXELS:
                    renderings += [(s, z, coverage(shape, span, cell) / LEVELS) for s, shape in enumerate(SHAPES)]
    return renderings


def _shift(covered: np.ndarray, down: int, right: int) -> np.ndarray:
    """Move by whole pixels; the part outside the cell is cut off."""
    return np.asarray(shift(covered, (down, right), order=0))


def _rotate(covered: np.ndarray) -> np.ndarray:
    """Rotate by a sixteenth of a full turn."""
    return np.asarray(pillow.fromarray(covered.astype(np.float32)).rotate(22.5, pillow.Resampling.BICUBIC)).clip(0, 1)


def _training_set(random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Coverage (M, 1, 32, 32) of all training renderings, and labels (M, 2): shape and size. The last one is empty."""
    coverages, labels = [], []
    renderings = _renderings(TRAINING_CELLS, TRAINING_SPANS)
    octagon = SHAPES.index("octagon")
    renderings += [(shape, size, _rotate(covered)) for shape, size, covered in renderings if shape == octagon]
    for shape, size, covered in renderings:
        steps = random.choice((-SHIFT, 0.0, SHIFT), (2, 2)) * len(covered)
        for down, right in ((0, 0), *np.rint(steps).astype(int).tolist()):
            coverages.append(resize_crops(torch.from_numpy(_shift(covered, down, right)).float()[None, None])[0])
            labels.append((shape, size))
    return torch.stack([*coverages, torch.zeros(1, SIDE, SIDE)]), torch.tensor([*labels, (len(SHAPES), len(SIZES))])


def _perturb(crops: Tensor, basis: Tensor) -> Tensor:
    """Add noise to a third of the crops, quantise the cosine coefficients of a third as a lossy file does.

    basis: (8, 8), the orthonormal cosine transform of 8 values, as in JPEG.
    """
    third = len(crops) // 3
    crops = crops.clone()
    noisy = crops[:third]
    noisy += torch.randn_like(noisy) * 0.03 * torch.rand(third, 1, 1, 1)
    blocks = crops[third : 2 * third].reshape(third, 3, SIDE // 8, 8, SIDE // 8, 8)
    coefficients = torch.einsum("ux,ncaxby,vy->ncaubv", basis, blocks, basis)
    step = 0.02 + 0.13 * torch.rand(third, 1, 1, 1, 1, 1)
    quantised = (coefficients / step).round() * step
    lossy = torch.einsum("ux,ncaubv,vy->ncaxby", basis, quantised, basis)
    crops[third : 2 * third] = lossy.reshape(third, 3, SIDE, SIDE)
    return crops.clamp(0, 1)


def train_recogniser(steps: int = 2000, batch: int = 192, seed: int = 0) -> Recogniser:
    """A network trained on random renderings. The same seed gives the same weights on the same machine."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    coverages, labels = _training_set(random)
    colours = torch.tensor([list(COLOURS.values()), list((COLOURS | RELEASED_COLOURS).values())]) / 255
    network, basis = Recogniser(), torch.tensor(dct(np.eye(8), axis=0, norm="ortho"), dtype=torch.float32)
    small = (labels[:, 1] == SIZES.index("small")).nonzero()[:, 0]
    optimiser = torch.optim.AdamW(network.parameters(), lr=1.0, weight_decay=0.01)
    rate = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda i: 2e-3 * min(i / min(100, steps / 4), 1 - i / steps))
    for step in range(steps):
        rows = torch.randint(len(coverages), (batch,))
        rows[::4] = small[torch.randint(len(small), rows[::4].shape)]  # the hardest
        rows[torch.rand(batch) < 0.02] = len(coverages) - 1
        colour = torch.randint(len(COLOURS), (batch,))
        paint = (colours[(torch.rand(batch) < 0.2).long(), colour] + 0.02 * torch.randn(batch, 3))[:, :, None, None]
        covered = coverages[rows]
        crops = _perturb(1 - covered * (1 - paint), basis)
        colour[rows == len(coverages) - 1] = len(COLOURS)
        truth = {"colour": colour, "shape": labels[rows, 0], "size": labels[rows, 1]}
        logits = network.classify(network(crops))
        loss = torch.stack([F.cross_entropy(logits[name], truth[name]) for name in HEADS]).sum()
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        rate.step()
        if step % 100 == 99:
            print(f"step {step + 1:>5} of {steps}  loss {loss.item():.4f}", flush=True)
    return _scale_features(network.eval().requires_grad_(False), coverages)


def _scale_features(network: Recogniser, coverages: Tensor) -> Recogniser:
    """Scale the features to a mean square of 1 over objects, without a change of the logits."""
    colours = torch.tensor(list(COLOURS.values())) / 255
    sample = coverages[torch.arange(0, len(coverages) - 1, 11)]
    paint = colours[torch.arange(len(sample)) % len(colours)][:, :, None, None]
    scale = network(1 - sample * (1 - paint)).square().mean().sqrt()
    for parameter in network.wide.parameters():
        parameter.div_(scale)
    for name, parameter in network.heads.named_parameters():
        if name.endswith("weight"):
            parameter.mul_(scale)
    return network


def save_network(network: Recogniser, path: Path, notes: dict[str, str]) -> None:
    """Write the weights in half precision, atomically. notes: metadata of the file."""
    weights = {name: value.half().contiguous() for name, value in network.state_dict().items()}
    with replace_file(path) as temporary:
        save_file(weights, temporary, notes)


# Checking --------------------------------------------------------------------------------------------------------


def held_out_crops(count: int, seed: int) -> tuple[np.ndarray, list[tuple[str, str, str]]]:
    """Crops (count, 32, 32, 3) uint8 with cells, spans and shifts that training did not use, and their names.

    Each pixel has noise of up to 5 of 255, and every other crop is compressed as JPEG of quality 80 to 95.
    """
    random = np.random.default_rng(seed)
    renderings = _renderings(HELD_OUT_CELLS, HELD_OUT_SPANS)
    crops, names = np.empty((count, SIDE, SIDE, 3), np.uint8), []
    for i in range(count):
        shape, size, covered = renderings[random.integers(len(renderings))]
        colour = list(COLOURS)[random.integers(len(COLOURS))]
        down, right = np.rint(random.uniform(-SHIFT, SHIFT, 2) * len(covered)).astype(int).tolist()
        covered = _shift(covered, down, right)[:, :, None]
        crop = covered * COLOURS[colour] + (1 - covered) * WHITE + random.uniform(-5, 5, (*covered.shape[:2], 3))
        crop = np.clip(np.rint(crop), 0, 255).astype(np.uint8)
        if i % 2:
            file = io.BytesIO()
            pillow.fromarray(crop).save(file, "JPEG", quality=int(random.integers(80, 96)))
            crop = np.asarray(pillow.open(file).convert("RGB"))
        small = resize_crops(torch.tensor(crop).permute(2, 0, 1)[None].float())[0]
        crops[i] = small.permute(1, 2, 0).round().clamp(0, 255).byte().numpy()
        names.append((colour, SHAPES[shape], SIZES[size]))
    return crops, names


def accuracy(crops: np.ndarray, names: list[tuple[str, str, str]]) -> dict[str, float]:
    """Accuracy of the network with the project's weights, by head. names: of the crops."""
    pairs = zip(recognise(features_of(crops)), names, strict=True)
    correct = np.array([[a == b for a, b in zip(predicted, true, strict=True)] for predicted, true in pairs])
    return dict(zip(HEADS, correct.mean(axis=0).tolist(), strict=True))


def main(arguments: list[str]) -> None:
    if arguments not in ([], ["--check"]):
        sys.exit("usage: python scripts/train_recogniser.py [--check]")
    if not arguments:
        start = time.perf_counter()
        save_network(
            train_recogniser(), WEIGHTS, {"torch": torch.__version__.split("+")[0], "python": platform.python_version()}
        )
        print(f"{WEIGHTS.name}: {WEIGHTS.stat().st_size:,} bytes, {time.perf_counter() - start:.0f} s")
        recogniser.cache_clear()
    with safetensors.safe_open(WEIGHTS, "pt") as file:
        print("written with", json.dumps(file.metadata()))
    for name, covered in accuracy(*held_out_crops(6000, seed=1)).items():
        print(f"{name:<7} {100 * covered:.2f} % of 6,000 held-out renderings")


if __name__ == "__main__":
    main(sys.argv[1:])
