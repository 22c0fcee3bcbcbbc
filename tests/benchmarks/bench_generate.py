"""How fast generation is, beside its lower bounds, in one run: `python tests/benchmarks/bench_generate.py`.

Prints Markdown tables. Rates are of this machine on this day: compare rows of one run, not of two.
"""

from __future__ import annotations

import argparse
import functools
import io
import itertools
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from isal import isal_zlib
from PIL import Image as pillow

from render.image import IMAGE_STYLES
from render.png import deflate
from render.text import CAPTION_STYLES, make_captioner
from travlr import Cardinality
from travlr.config import Count, Image, Style
from travlr.finetuning.streams import TrainingStream
from travlr.finetuning.torch_stream import TorchStream
from travlr.formats.columns import rows_digest
from travlr.generate import GenerateArguments, Generator, generate_dataset, generator, renderer_of
from travlr.tasks import PAPER, TASKS, config_from_dict
from travlr.writing import write_shard

TASK_ROWS = 8000


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Median wall time of a piece of work."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def table(title: str, head: list[str], rows: list[list[str]]) -> None:
    print(f"\n### {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def whole_job(folder: Path) -> None:
    """Examples per second of the whole command's work at the paper's size, on one and on two processes."""
    rows = []
    presets = ("paper", "strict")
    kinds = [(n, p) for p in presets for n, task in TASKS.items() if p in ("paper", *task.Config.presets)]
    for task, preset in kinds:
        config = config_from_dict({"task": task, "preset": preset})
        generator(config)
        total = sum(config.count.model_dump().values())
        out, rates = folder / f"{task}-{preset}", []
        for workers in (1, 2):
            times = []
            for _ in range(5):
                begun = time.perf_counter()
                generate_dataset(config, GenerateArguments(out=str(out), workers=workers), log=lambda _: None)
                times.append(time.perf_counter() - begun)
                size = sum(f.stat().st_size for f in out.iterdir()) / total
                shutil.rmtree(out)
            rates.append(total / statistics.median(times))
        rows.append([f"{task}, {preset}", f"{total:,}", f"{rates[0]:,.0f}", f"{rates[1]:,.0f}", f"{size:,.0f}"])
    table(
        "Whole job, 384 x 384 PNG in Parquet",
        ["dataset", "examples", "1 process/s", "2 processes/s", "bytes each"],
        rows,
    )


def breakdown(folder: Path) -> None:
    """Where the time of one process goes, beside the floor: to deflate and write the same bytes and nothing else."""
    rows = []
    for task, kind in ((name, task.Config) for name, task in TASKS.items()):
        maker = Generator(kind())
        batch = maker.batch("train", 0, TASK_ROWS)
        written = maker.table("train", 0, TASK_ROWS)
        lines = packed_lines(maker, batch.grid[:500])
        captions = "".join(written["caption"].to_pylist()).encode()

        def floor(lines: Any = lines, text: bytes = captions) -> None:
            files = [deflate(picture) for _ in range(TASK_ROWS // 500) for picture in lines]
            (folder / "floor").write_bytes(b"".join([*files, isal_zlib.compress(text, 1)]))

        steps: dict[str, Callable[[], object]] = {
            "sample": functools.partial(maker.batch, "train", 0, TASK_ROWS),
            "captions": functools.partial(maker.captions, batch),
            "render and deflate": functools.partial(maker.renderer.pngs, batch.grid),
            "all columns": functools.partial(maker.table, "train", 0, TASK_ROWS),
            "digest": functools.partial(rows_digest, written),
            "write Parquet": functools.partial(write_shard, folder / "shard.parquet", [written]),
            "floor": floor,
        }
        took = {name: seconds(step, 3) / TASK_ROWS * 1e6 for name, step in steps.items()}
        whole = took["all columns"] + took["digest"] + took["write Parquet"]
        rows.append([task, *(f"{t:.1f}" for t in took.values()), f"{whole:.1f}", f"{whole / took['floor']:.1f}"])
    head = ["task", *steps, "whole", "whole / floor"]
    table("Microseconds per example, one process (all columns = sample + captions + pictures + arrays)", head, rows)


def packed_lines(maker: Generator, grid: np.ndarray) -> list[bytes]:
    """What the deflate of a picture reads: its PNG lines."""
    return [zlib.decompress(png[png.index(b"IDAT") + 4 : -16]) for png in maker.renderer.pngs(grid)]


def deflates() -> None:
    """Why ISA-L at level 0 (`render.png.deflate`): time and size of one picture's deflate by each candidate at hand."""
    maker = Generator(Cardinality())
    lines = packed_lines(maker, maker.batch("train", 0, 500).grid)
    arrays = maker.pictures(maker.batch("train", 0, 50))
    palettes = [pillow.fromarray(a).quantize(16) for a in arrays]

    def through_pillow(picture: Any) -> bytes:
        buffer = io.BytesIO()
        picture.save(buffer, "PNG", bits=4)
        return buffer.getvalue()

    ways: dict[str, tuple[list[Any], Callable[[Any], bytes]]] = {
        f"ISA-L, level {level}": (lines, functools.partial(isal_zlib.compress, level=level)) for level in range(4)
    }
    ways |= {f"zlib, level {level}": (lines, functools.partial(zlib.compress, level=level)) for level in (1, 6)}
    ways["Pillow, 4-bit palette"] = (palettes, through_pillow)
    rows = []
    for name, (data, way) in ways.items():
        took = seconds(functools.partial(list_of, way, data), 3) / len(data)
        rows.append([name, f"{took * 1e6:.0f}", f"{statistics.mean(len(way(x)) for x in data):,.0f}"])
    table("Deflate of one 384 x 384 picture", ["way", "microseconds", "bytes"], rows)


def list_of(way: Callable[[Any], bytes], data: list[Any]) -> list[bytes]:
    return [way(x) for x in data]


def batches() -> None:
    """Pictures per second as arrays, at 222 x 222, beside a white fill of the same array."""
    maker = Generator(Cardinality(image=Image(cell=37)))
    grid = maker.batch("train", 0, 2000).grid
    out = np.zeros((2000, 222, 222, 3), np.uint8)
    fill = 2000 / seconds(lambda: out.fill(255))
    draw = 2000 / seconds(lambda: maker.renderer.arrays(grid, out))
    table(
        "Batch rendering, one core",
        ["work", "pictures/s"],
        [["render", f"{draw:,.0f}"], ["white fill", f"{fill:,.0f}"]],
    )


def fastest(works: dict[str, Callable[[], object]], rounds: int = 7) -> dict[str, float]:
    """Least wall time of each piece of work, in turn, so that other load of the machine falls on all alike."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(seconds(work, 1))
    return {name: min(some) for name, some in times.items()}


def rows_to_train_on() -> None:
    """Rows per second of processor time with `TorchStream`: generated, asked, answered, pictures decoded."""
    made = []
    for task, form in itertools.product(PAPER, ("true_false", "read")):
        rates = []
        for setting in ("caption", "image"):
            stream = iter(TorchStream(TrainingStream(TASKS[task].Config(), setting=setting, form=form)))
            next(stream)
            begun = time.process_time()
            rates.append(len(list(itertools.islice(stream, 3000))) / (time.process_time() - begun))
        made.append([task, form, *(f"{rate:,.0f}" for rate in rates)])
    table("Rows to train on, one core", ["task", "form", "captions/s", "pictures/s"], made)


def styles() -> None:
    """Time and size of each style beside the default one, and the time until its first picture."""
    batch = generator(Cardinality()).batch("train", 0, 1000)
    configs = {style: Cardinality(style=Style(image=style)) for style in IMAGE_STYLES}
    start = fastest({style: functools.partial(renderer_of, config) for style, config in configs.items()})
    renderers = {style: renderer_of(config) for style, config in configs.items()}
    pngs = fastest({style: functools.partial(one.pngs, batch.grid) for style, one in renderers.items()})
    arrays = fastest({style: functools.partial(one.arrays, batch.grid) for style, one in renderers.items()})
    rows = []
    for style, one in renderers.items():
        size = statistics.mean(map(len, one.pngs(batch.grid)))
        times = [pngs[style] * 1e3, pngs[style] / pngs["plain"], arrays[style] * 1e3, arrays[style] / arrays["plain"]]
        rows.append([style, *(f"{t:,.{digits}f}" for t, digits in zip(times, (0, 1, 0, 1), strict=True))])
        rows[-1] += [f"{size:,.0f}", f"{start[style]:.2f}"]
    head = ["pictures", "PNG, µs", "times plain", "array, µs", "times plain", "bytes of a PNG", "drawn in advance, s"]
    table("Styles of pictures, 64 pixels for each cell", head, rows)
    writers = {style: make_captioner(style, Cardinality().world) for style in CAPTION_STYLES}
    took = fastest({style: functools.partial(one.captions, batch) for style, one in writers.items()})
    rows = [
        [style, f"{took[style] * 1e3:.1f}", f"{statistics.mean(map(len, one.captions(batch))):,.0f}"]
        for style, one in writers.items()
    ]
    table("Styles of captions", ["captions", "µs", "characters"], rows)


def start_up(folder: Path) -> None:
    """Seconds from start to end of the command, for --help and for ten examples."""
    ten = ["count.train=10", "count.validation=0", "count.test_ind=0", "count.test_ood=0"]
    rows = []
    for name, arguments in (("--help", ["--help"]), ("ten examples", ["task=spatiality", *ten])):

        def run(arguments: list[str] = arguments) -> None:
            shutil.rmtree(folder / "ten", ignore_errors=True)
            more = [] if "--help" in arguments else [f"out={folder / 'ten'}"]
            command = [sys.executable, "-m", "travlr.generate", *arguments, *more]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

        rows.append([name, f"{seconds(run):.2f}"])
    rows.append(
        ["python -c pass", f"{seconds(lambda: subprocess.run([sys.executable, '-c', 'pass'], check=True)):.2f}"]
    )
    table("Start-up", ["command", "seconds"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", action="store_true", help="only the table of whole jobs")
    parser.add_argument("--styles", action="store_true", help="only the tables of styles")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    print(f"{platform.processor() or platform.machine()}, {cores} cores, Python {platform.python_version()}")
    if options.styles:
        styles()
        return
    assert Count().train == TASK_ROWS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole_job(folder)
        if options.jobs:
            return
        breakdown(folder)
        deflates()
        batches()
        rows_to_train_on()
        styles()
        start_up(folder)


if __name__ == "__main__":
    main()
