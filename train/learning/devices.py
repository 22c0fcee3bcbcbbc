"""Device, precision, and the main process of a run."""

from __future__ import annotations

import torch
from lightning.fabric.utilities.rank_zero import rank_zero_only

from train.config import AnyRun


def is_main_process() -> bool:
    """Whether this process writes files and prints. With several devices, Lightning starts further processes with the
    same command; they only train on their part of every batch."""
    return getattr(rank_zero_only, "rank", 0) == 0


def accelerator(run: AnyRun) -> str:
    """`gpu` or `cpu`. Raises `ValueError` for `device=gpu` without a GPU."""
    if run.device == "gpu" and not torch.cuda.is_available():
        raise ValueError("device=gpu: torch finds no GPU; use device=auto or device=cpu")
    return "cpu" if run.device == "cpu" or not torch.cuda.is_available() else "gpu"


def gpu_names(device: str) -> list[str]:
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if device == "gpu" else []


def chosen_precision(setting: str, device: str) -> str:
    """`float32` or `bf16`. `auto` is bf16 where the processor or the GPU computes faster in it. device: cpu or cuda."""
    if setting != "auto":
        return setting
    if device == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported() else "float32"
    has = torch.cpu.get_capabilities()
    # Intel's AVX-512 multiplies bf16 no faster than float32, and training then takes 1.2 times as long.
    fast = (
        has.get("amx_bf16") or has.get("bf16") or (has.get("avx512_bf16") and "Intel" not in str(has.get("cpu_name")))
    )
    return "bf16" if fast else "float32"
