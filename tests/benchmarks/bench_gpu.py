"""How fast training is on a GPU at base size: `python tests/benchmarks/bench_gpu.py`, a few minutes.

For each model, steps (forward, backward, AdamW) on the captions, pictures or both of the default task: float32, bf16,
and bf16 through torch.compile, with the most memory that each takes. Input is made before and not timed: what it takes
is in bench_train.py. `--device cpu --size tiny --steps 2` tries it out where there is no GPU.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from train.config import Optimiser, Run, Training
from train.data.inputs import Inputs
from train.data.sources import TrainingDataset
from train.learning.batches import RunData, training_schedule
from train.learning.module import Learner
from train.models import MODELS
from train.run import build_model, tokenizer_for, visual_settings
from travlr import Cardinality
from travlr.config import Count
from travlr.generate import GenerateArguments, generate_dataset

WARM = 3  # steps that are not timed; compiling is in them


class Compiled(nn.Module):
    """A learner's losses as one module, which torch.compile takes."""

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, batch: Inputs) -> torch.Tensor:
        return torch.stack(list(self.learner.losses(batch).values())).sum()


def row(name: str, setting: str, how: str, data: Path, arguments: argparse.Namespace) -> list[str]:
    """Examples a second, milliseconds of a step and MiB of one model trained one way."""
    device = torch.device(arguments.device)
    run = Run(
        model=name,
        setting=setting,
        size=arguments.size,
        data=str(data),
        optimiser=Optimiser(batch_size=arguments.batch),
        training=Training(steps=arguments.steps + WARM, check_every=None, auxiliary_targets=False),
    )
    source, words = TrainingDataset(data), tokenizer_for(run)
    parts = RunData(run, source, words, visual_settings(run))
    regions = parts.examples("validation").regions
    model, _ = build_model(run, words, regions.dimension if regions else 0, lambda _: None)
    schedule = training_schedule(parts)
    learner = Learner(model, run.details, run.learning_rate, schedule.steps, 0).train().to(device)
    losses: nn.Module = Compiled(learner)
    if how == "bf16, compiled":
        losses = torch.compile(losses, dynamic=True)  # type: ignore[assignment]
    optimiser = learner.configure_optimizers()["optimizer"]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begun = 0.0
    for number, batch in enumerate(itertools.islice(schedule.epoch(0), arguments.steps + WARM)):
        if number == WARM:
            _wait(device)
            begun = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=how != "float32"):
            loss = losses(batch.to(device))
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    _wait(device)
    taken = (time.perf_counter() - begun) / arguments.steps
    peak = f"{torch.cuda.max_memory_allocated() / 2**20:,.0f}" if device.type == "cuda" else "-"
    return [name, setting, how, f"{arguments.batch / taken:,.1f}", f"{1e3 * taken:,.0f}", peak]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--size", default="base", choices=("tiny", "small", "base"))
    parser.add_argument("--batch", type=int, default=64, help="examples of a batch (64)")
    parser.add_argument("--steps", type=int, default=20, help="steps that are timed (20)")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: there is no GPU that torch can use here; try it out with --device cpu --size tiny")
    on = torch.cuda.get_device_name() if arguments.device == "cuda" else "the CPU"
    print(f"{on}, torch {torch.__version__}, size {arguments.size}, batches of {arguments.batch}\n")
    print("| model | setting | how | examples/s | ms a step | MiB at most |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        generate_dataset(
            Cardinality(count=Count(train=100, validation=20, test_ind=100, test_ood=100)),
            GenerateArguments(out=str(data)),
            log=lambda _: None,
        )
        for name in arguments.models:
            settings = (
                ("caption",) if MODELS[name].architecture.sees == "nothing" else ("image", "caption", "image+caption")
            )
            for setting, how in itertools.product(settings, ("float32", "bf16", "bf16, compiled")):
                print(f"| {' | '.join(row(name, setting, how, data, arguments))} |", flush=True)


if __name__ == "__main__":
    main()
