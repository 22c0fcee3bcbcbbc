"""How a model with random weights starts to tell places apart.

What an object of a caption is depends on the tokens before its last one: "a red circle at A 1". Pretrained models have
heads of attention that look at the token before (Clark et al. 2019, "What Does BERT Look At?", section 3.1). With
random weights, small models take hundreds of steps to find such heads. So here they start with them: the heads of
the first layer look at the tokens one, two, ... places before. All weights are trained.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from train.models.layers import Attention, Model, initial_std

SIZE = 3.0  # of position embeddings beside those of words, so that the first heads see places rather than words
SHARPNESS = 2.0  # of the first heads: about three quarters of the attention goes to one token
NOISE = 0.2  # of the random weights that these heads keep


@torch.no_grad()
def start_positions(model: Model) -> None:
    """Position embeddings are sinusoids (Vaswani et al. 2017), and the heads of the first text layer look back
    (`look_back`). ALBEF's patches have sinusoids of row and column."""
    for name, table in model.named_parameters():
        if name.endswith(".position_embeddings.weight"):
            width = table.shape[1]
            table.copy_(SIZE * initial_std(width) * waves(torch.arange(len(table)), token_rates(width)))
        elif name.endswith("visual_encoder.pos_embed"):
            side, width = int((table.shape[1] - 1) ** 0.5), table.shape[2] // 2  # of each axis
            axes = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
            rates = 10_000 ** (-torch.arange(0, width, 2) / width)
            table[0, 1:] = initial_std(width) * torch.cat([waves(axis.flatten(), rates) for axis in axes], 1)
    for name, module in model.named_modules():
        if name.endswith(".layer.0.attention.self") and isinstance(module, Attention):  # users' models have others
            look_back(module)


def waves(places: Tensor, rates: Tensor) -> Tensor:
    """Sines and cosines of N places at R rates in turn, (N, 2 R)."""
    angles = places[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)


def token_rates(width: int) -> Tensor:
    """Radians for each token, (width / 2,). The fastest turn a quarter of a circle, which tells neighbours apart."""
    return math.pi / 2 * 100.0 ** (-torch.arange(0, width, 2) / width)


def look_back(attention: Attention) -> None:
    """Head n attends to the token n places before: its keys are the fastest waves, its queries those waves turned back
    by n places."""
    size = attention.query.out_features // attention.heads  # of a head
    rates = token_rates(attention.query.in_features)[: size // 2]
    for head in range(attention.heads):
        rows = slice(head * size, (head + 1) * size)
        for layer, places in ((attention.query, -head - 1), (attention.key, 0)):
            sine, cosine = (places * rates).sin(), (places * rates).cos()
            layer.weight[rows] *= NOISE
            for number, turn in enumerate(torch.stack([cosine, sine, -sine, cosine], 1).reshape(-1, 2, 2)):
                pair = slice(2 * number, 2 * number + 2)
                layer.weight[rows][pair, pair] += SHARPNESS**0.5 * turn
