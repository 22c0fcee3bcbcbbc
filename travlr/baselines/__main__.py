"""The command `python -m travlr.baselines`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from travlr.baselines import dataset_baselines, format_scores
from travlr.formats.manifest import check_files, read_manifest
from travlr.settings import run_command
from travlr.tasks import add_task_option


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m travlr.baselines",
        description="Print the accuracy of rules that do not reason, fitted on the train split; of a corpus, how many "
        "items are ranked right by rules that see no picture.",
    )
    parser.add_argument("dir", metavar="DIR", type=Path, help="folder of a dataset")
    add_task_option(parser)
    options = parser.parse_args(arguments)
    check_files(options.dir, read_manifest(options.dir)["files"])  # the scores may be older than the damage
    print(format_scores(dataset_baselines(options.dir)))
    return 0


if __name__ == "__main__":
    run_command("baselines", lambda: sys.exit(main(sys.argv[1:])))
