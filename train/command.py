"""The command line of `python train.py`: one run, or several with `-m`.

Nothing slow is imported before the settings are read, so `--help` and most mistakes are answered at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from train.config import Run
from train.settings import run_job, settings
from travlr import cli

# Command line --------------------------------------------------------------------------------------------------------

HELP = """\
python train.py [NAME=VALUE ...]              train a model, test it in every setting
python train.py -m NAME=VALUE,VALUE [...]     train all combinations; with experiment=, its whole grid
python train.py -m [...] --list               list these runs and their states, without training

After an interruption, the same command resumes. Finished runs are not trained again. Settings and their defaults:

{settings}

experiments (experiment=NAME); -m trains the grid, and settings of the command line replace those of the grid
{experiments}

scales (+scale=NAME)
{scales}

examples
  python train.py model=uniter setting=caption
  python train.py model=lxmert setting=image task=spatiality seed=1 optimiser.batch_size=32
  python train.py -m model=uniter,albef setting=image,caption seed=0,1,2
  python train.py -m experiment=table2 --list
  python train.py -m experiment=table2 model=uniter +scale=paper pretrained=uniter-base.pt device=gpu
"""


def main(arguments: list[str]) -> int:
    options = {argument for argument in arguments if argument.startswith("-")}
    assignments = [argument for argument in arguments if argument not in options]
    if {"-h", "--help"} & options:
        print(_help(), end="")
        return 0
    if unknown := options - {"-m", "--multirun", "--list"}:
        raise cli.UsageError(f"there is no option {min(unknown)}; there are -m, --list and --help")
    if {"-m", "--multirun"} & options:
        from train.sweep import expand, job_list, run_all

        jobs = expand(assignments)
        if "--list" in options:
            print(job_list(jobs))
        else:
            run_all(jobs)
        return 0
    if options:
        raise cli.UsageError("--list is for -m")
    job = settings(assignments)
    if hint := _grid_hint(job, assignments):
        print(hint)
    rows = run_job(job)
    if not rows:  # not the main process
        return 0
    from train.results.tables import transfer_table

    print(f"\n{transfer_table(rows)}\n\nPredictions, weights and curve: {Path(job.runs) / rows[0]['name']}")
    return 0


def _grid_hint(job: Run, assignments: Sequence[str]) -> str:
    """A line if the grid of the experiment has more runs with these settings than this one; else ""."""
    from train.sweep import expand

    runs = 1
    if job.experiment:
        with contextlib.suppress(cli.UsageError):  # some settings are valid for a single run only
            runs = len(expand(assignments))
    return f"experiment={job.experiment}: this is one run; -m trains all {runs} of its grid" if runs > 1 else ""


def _help() -> str:
    return HELP.format(
        settings="\n".join(f"  {line}" for line in cli.help_lines(Run, leave_out=("experiment", "scale"))),
        experiments=_first_lines("experiment"),
        scales=_first_lines("scale"),
    )


def _first_lines(group: str) -> str:
    """The description of each file of a group, from its second line."""
    lines = {path.stem: path.read_text(encoding="utf-8").splitlines()[1] for path in (cli.CONF / group).glob("*.yaml")}
    return "\n".join(f"  {name:<10} {lines[name].removeprefix('# ')}" for name in sorted(lines))
