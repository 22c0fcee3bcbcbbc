"""Coverage of the probes' intervals where pictures and pairs cross: `python tests/benchmarks/bench_intervals.py`.

Prints a Markdown table: a row for each way in which items depend on each other, kind of corpus and accuracy.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tests.benchmarks.bench_generate import table
from tests.crossed import DEPENDENCES, called_different, coverage, items_of

CORPORA = ((30, 60, False), (60, 300, False), (200, 400, False), (200, 400, True))  # pictures, pairs, unevenly often
ACCURACIES = (0.5, 0.75, 0.95)


def rows(runs: int, seed: int) -> Iterator[list[str]]:
    for pictures, pairs, uneven in CORPORA:
        items = items_of(pictures, pairs, seed, uneven)
        for name, dependence in DEPENDENCES.items():
            for accuracy in ACCURACIES:
                held = coverage(items, dependence, accuracy, runs, seed + 1)
                called = called_different(items, dependence, (accuracy, accuracy), runs)
                corpus = f"{pictures} pictures{', unevenly' * uneven}, {pairs} pairs"
                numbers = (100 * held.items, held.items_width, 100 * held.pairs, held.pairs_width, 100 * called)
                yield [corpus, name, f"{accuracy:.0%}", *(f"{number:.1f}" for number in numbers)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500, help="samples of each row (default: 500)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    heads = ["corpus", "what items share", "accuracy", "items: held, %", "width", "pairs: held, %", "width"]
    title = f"95 % intervals and tests at 5 %, {options.runs} samples each, seed {options.seed}"
    table(title, [*heads, "equal models called different, %"], list(rows(options.runs, options.seed)))


if __name__ == "__main__":
    main()
