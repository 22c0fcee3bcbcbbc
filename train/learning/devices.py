"""Device, precision, memory, and the main process of a run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from pathlib import Path

import torch
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.strategies import StrategyRegistry

from train.config import PRECISIONS, Run

TRIAL = (1024, 768, 1024)  # rows, inner and columns of the matrix products that are timed
WARMUP, TIMED = 3, 10  # products before timing (they start threads and kernels), and at least so many that are timed
FASTER = 1.5  # precision=auto chooses bf16 if it is at least this much faster


def is_main_process() -> bool:
    """Whether this process writes files and prints. With `devices` above 1, Lightning starts further processes with the
    same command; they only train on their part of every batch."""
    return getattr(rank_zero_only, "rank", 0) == 0


def accelerator(run: Run) -> str:
    """`gpu` or `cpu`. Raises `ValueError` for `device=gpu` without a GPU, and for an unknown strategy."""
    if run.strategy not in ("auto", *StrategyRegistry.available_strategies()):
        raise ValueError(f"strategy={run.strategy}: give one of Lightning's, such as auto, ddp, fsdp or deepspeed")
    if run.device == "gpu" and not torch.cuda.is_available():
        raise ValueError("device=gpu: torch finds no GPU; use device=auto or device=cpu")
    if run.device == "gpu" or (run.device == "auto" and torch.cuda.is_available()):
        if run.devices > torch.cuda.device_count():
            raise ValueError(f"devices={run.devices}: there are {torch.cuda.device_count()} GPUs here")
        return "gpu"
    return "cpu"


def gpu_names(device: str) -> list[str]:
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if device == "gpu" else []


def matmul_rate(precision: torch.dtype, device: str = "cpu", seconds: float = 0.1) -> float:
    """GFLOP/s of the fastest of at least `TIMED` matrix products, of the size of those in base models."""
    rows, inner, columns = TRIAL
    first = torch.randn(rows, inner, dtype=precision, device=device)
    second = torch.randn(columns, inner, dtype=precision, device=device)

    def product_seconds() -> float:
        start = time.perf_counter()
        torch.nn.functional.linear(first, second)
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    for _ in range(WARMUP):
        product_seconds()
    times: list[float] = []
    while len(times) < TIMED or sum(times) < seconds:
        times.append(product_seconds())
    return 2 * rows * inner * columns / min(times) / 1e9


def chosen_precision(setting: str, device: str, file: Path | None = None) -> tuple[str, str]:
    """`float32` or `bf16`, and the reason. `auto` chooses bf16 if a short trial is 1.5 times faster in it.

    device: cpu or cuda. file: where the choice is saved; later calls and other processes read it.
    """
    if setting != "auto":
        return setting, "as set"
    if file and file.is_file() and (earlier := file.read_text()) in PRECISIONS:
        return earlier, f"chosen by an earlier trial and saved in {file}"
    full, half = (matmul_rate(kind, device) for kind in (torch.float32, torch.bfloat16))
    precision = "bf16" if half >= FASTER * full else "float32"
    if file:
        file.write_text(precision)
    return precision, f"matrix products reach {full:,.0f} GFLOP/s in float32, {half:,.0f} in bf16"


def keep_memory() -> None:
    """Make glibc keep freed memory, instead of asking the system for zeroed pages in every step. A step on long texts
    takes a third less time. Does nothing without glibc. Call `release_memory` now and then.

    Also limit the number of cached kernels for products in bf16, one for each size. With texts of many lengths, the
    1,024 kernels of the default take over 1 GB.
    """
    for variable in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):  # oneDNN's, torch's
        os.environ.setdefault(variable, "64")
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        for parameter in (-3, -1):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
            libc.mallopt(parameter, 1 << 30)


def release_memory() -> None:
    """Return free memory to the system. Batches of many lengths leave gaps in the memory that `keep_memory` keeps; the
    gaps would grow to several times the memory of a step. Does nothing without glibc."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
