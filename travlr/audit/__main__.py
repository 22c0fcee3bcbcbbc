"""The command `python -m travlr.audit DIR`: prints one line for each check; exit status 1 where one fails."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from travlr.audit.checks import audit
from travlr.audit.corpus import Check
from travlr.baselines import RuleScore, dataset_baselines, format_scores
from travlr.corpora import is_corpus
from travlr.dataset import open_dataset
from travlr.settings import run_command
from travlr.tasks import add_task_option

OF_DATASET = "Rules that do not reason, fitted on train; accuracy in percent, chance is 50:"
OF_CORPUS = "Rules that read the words alone, fitted on other items; percent of items ranked right, a coin has 50:"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m travlr.audit", description="Check a dataset from its files alone.")
    parser.add_argument("dir", metavar="DIR", type=Path, help="folder of a dataset")
    add_task_option(parser)
    options = parser.parse_args(arguments)
    checks = audit(options.dir)
    failed = sum(check.status == "FAIL" for check in checks)
    rules: list[RuleScore] = []
    if not failed:
        try:
            rules = dataset_baselines(options.dir)
        except ValueError as error:  # no train split, no scikit-learn, or rows that cannot be read
            checks.append(Check("baselines", "note", 0, str(error)))
    width = max(len(check.name) for check in checks)
    for c in checks:
        print(f"{c.status:<4}  {c.name:<{width}}  {c.checked:>9,}  {c.detail}")
    if rules:
        print(f"\n{OF_CORPUS if is_corpus(open_dataset(options.dir)) else OF_DATASET}\n{format_scores(rules)}\n")
    print(f"{options.dir}: {f'{failed} of {len(checks)} checks FAILED' if failed else 'every check passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    run_command("audit", lambda: sys.exit(main(sys.argv[1:])))
