"""What a run computes on: the trial that chooses the precision, by a clock that does not depend on the machine."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from train.learning import devices
from train.learning.devices import TRIAL, chosen_precision, keep_memory, matmul_rate, release_memory

OPERATIONS = 2 * TRIAL[0] * TRIAL[1] * TRIAL[2]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[torch.dtype, list[float]]:
    """Seconds that products of each precision take, one after the other; the last goes for all after it."""
    seconds = {torch.float32: [0.01], torch.bfloat16: [0.01]}
    now, calls = [0.0], dict.fromkeys(seconds, 0)

    def product(first: torch.Tensor, _: torch.Tensor) -> None:
        listed = seconds[first.dtype]
        now[0] += listed[min(calls[first.dtype], len(listed) - 1)]
        calls[first.dtype] += 1

    monkeypatch.setattr(torch.nn.functional, "linear", product)
    monkeypatch.setattr(devices, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return seconds


def test_neither_the_first_products_nor_a_single_slow_one_count(clock: dict[torch.dtype, list[float]]) -> None:
    clock[torch.float32] = [0.9, 0.5, 0.3, 0.2, 0.01]  # threads and kernels start; another process has the processor
    assert matmul_rate(torch.float32) == pytest.approx(OPERATIONS / 0.01 / 1e9)


def test_slow_products_are_timed_more_than_once(clock: dict[torch.dtype, list[float]]) -> None:
    clock[torch.float32] = [*[2.0] * 8, 1.0, 2.0]  # each takes longer than the whole trial of fast ones
    assert matmul_rate(torch.float32) == pytest.approx(OPERATIONS / 1.0 / 1e9)


@pytest.mark.parametrize(("half", "chosen"), [(0.004, "bf16"), (0.009, "float32")])
def test_a_slow_start_does_not_choose(
    half: float, chosen: str, clock: dict[torch.dtype, list[float]], tmp_path: Path
) -> None:
    clock[torch.float32], clock[torch.bfloat16] = [1.0, 0.01], [half]
    assert chosen_precision("auto", "cpu", tmp_path / "precision")[0] == chosen
    assert chosen_precision("auto", "cpu", tmp_path / "precision")[0] == chosen


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no malloc_trim")
def test_memory_between_blocks_in_use_is_given_back() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    keep_memory()
    blocks = [np.ones(1 << 15) for _ in range(800)]  # 256 KiB each
    last = blocks[-1]  # keeps the heap from shrinking
    before = resident()
    blocks.clear()
    gc.collect()
    assert resident() > before - (50 << 20), "the memory is kept"
    release_memory()
    assert resident() < before - (150 << 20)
    assert last[0] == 1


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no malloc_trim")
def test_products_of_many_sizes_leave_no_more_memory() -> None:
    program = """
import os, torch
from train.learning.devices import keep_memory, release_memory
keep_memory()
weights = torch.ones(256, 256, dtype=torch.bfloat16)
for size in range(1, 181):
    torch.nn.functional.linear(torch.ones(size, 256, dtype=torch.bfloat16), weights)
    if size in (80, 180):
        release_memory()
        print(int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20)
"""
    environment = {name: value for name, value in os.environ.items() if "CACHE_CAPACITY" not in name}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert after - before < 20, "MiB; 100 kernels that are kept take some 50"
