"""How fast requests with pictures are made: `python tests/benchmarks/bench_requests.py DATASET`.

Prints requests per second of CPU time on one core, for each style of pictures, beside the PNG encoder's rate.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

from render.image import IMAGE_STYLES
from train.ask.config import Evaluation, ShownStyle
from train.ask.evaluation import requests
from train.ask.examples import ShownExamples
from travlr.dataset import open_dataset
from travlr.generate import generator
from travlr.tasks import config_from_dict

COUNT = 2_000


def main(folder: Path) -> None:
    dataset = open_dataset(folder)
    drawn = config_from_dict(dataset.manifest["config"])
    maker = generator(drawn)
    grid = maker.batch("test_ind", 0, COUNT).grid
    started = time.process_time()
    maker.renderer.pngs(grid)
    print(f"PNG encoder: {COUNT / (time.process_time() - started):,.0f} pictures/s")
    for style in IMAGE_STYLES:
        config = Evaluation(
            model="none", task=drawn.task, split=["test_ind"], setting=["image"], limit=COUNT,
            style=ShownStyle(image=style),
        )  # fmt: skip
        for form in ("true_false", "choice"):
            asked = config.changed(form=form)
            shown = ShownExamples(asked, dataset)
            list(itertools.islice(requests(asked, shown), 100))  # reads files, draws sprites
            started = time.process_time()
            made = sum(1 for _ in requests(asked, shown))
            print(f"{style:<10} {form:<11} {made / (time.process_time() - started):,.0f} requests/s")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
