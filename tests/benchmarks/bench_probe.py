"""How fast probes are on corpora from scenes: `python tests/benchmarks/bench_probe.py`.

Prints Markdown tables. Rates are of this machine on this day: compare rows of one run, not of two.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from analysis.probe.floors import RULES, floors
from analysis.probe.items import Corpus
from analysis.probe.scenes import SMOKE, build
from tests.benchmarks.bench_generate import table


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def quiet(_: str) -> None:
    pass


def building(folder: Path, count: int) -> None:
    """A corpus with all its pictures, on one and on two processes, and once more where it is already there."""
    rows = []
    for kind in ("checklist", "predicate_noun"):
        for workers in (1, 2):
            out = folder / f"{kind}-{workers}"
            took = seconds(lambda: build(out, count=count, kind=kind, workers=workers, say=quiet))  # noqa: B023
            again = seconds(lambda: build(out, count=count, kind=kind, workers=workers, say=quiet))  # noqa: B023
            size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
            numbers = [f"{took:.1f}", f"{count / took:,.0f}", f"{size:.0f}", f"{again:.1f}"]
            rows.append([kind, str(workers), f"{count:,}", *numbers])
            shutil.rmtree(out)
    table("Building", ["kind", "processes", "records", "seconds", "records/s", "MB", "seconds once more"], rows)


def blind_rules(corpus: Corpus) -> None:
    """The blind rules over a corpus."""
    rows = []
    for rule in RULES:
        took = seconds(lambda: floors(corpus, 0, [rule]))  # noqa: B023
        rows.append([rule, f"{len(corpus.items):,}", f"{took:.2f}"])
    table("Blind rules", ["rule", "items", "seconds"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=12_000, help="records to build (default: %(default)s)")
    count = parser.parse_args().count
    print(f"{os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        building(folder, count)
        blind_rules(build(folder / "floors", count=count, workers=0, say=quiet))
        print(f"smoke: {SMOKE} records")


if __name__ == "__main__":
    main()
