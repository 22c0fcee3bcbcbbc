"""`python train.py`: settings become a run, or many, and whatever goes wrong becomes one line.

Nothing slow is imported before the settings are read: `--help` and many mistakes are answered at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from train.settings import Arguments, Job, settings
from travlr import cli

if TYPE_CHECKING:
    pass


# One run -------------------------------------------------------------------------------------------------------------


# Command line --------------------------------------------------------------------------------------------------------

HELP = """\
python train.py [NAME=VALUE ...]              train a model, test it in every setting
python train.py -m NAME=VALUE,VALUE [...]     every combination; with experiment=, its whole grid
python train.py -m [...] --list               what that would run, and what of it is finished

Killed or stopped, the same command goes on where it was; what is finished is not run again. Settings and their
defaults:

{settings}

experiments (experiment=NAME), whose grids -m runs; a setting beside it takes the place of the grid's
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
    given = [argument for argument in arguments if argument not in options]
    if {"-h", "--help"} & options:
        print(_help(), end="")
        return 0
    if unknown := options - {"-m", "--multirun", "--list"}:
        raise cli.UsageError(f"there is no option {min(unknown)}; there are -m, --list and --help")
    if {"-m", "--multirun"} & options:
        from train.sweep import expand, job_list, run_all

        jobs = expand(given)
        if "--list" in options:
            print(job_list(jobs))
        else:
            run_all(jobs)
        return 0
    if options:
        raise cli.UsageError("--list is for -m")
    job = settings(given)
    if several := _not_run(job, given):
        print(several)
    rows = job.run()
    if not rows:  # not the process that leads
        return 0
    from train.results.tables import transfer_table

    print(f"\n{transfer_table(rows)}\n\nPredictions, weights and curve: {Path(job.config.runs) / rows[0]['name']}")
    return 0


def _not_run(job: Job, given: Sequence[str]) -> str:
    """A line where an experiment has more runs of these settings than the one that is run without -m; else ""."""
    from train.sweep import expand

    runs = 1
    if job.config.experiment:
        with contextlib.suppress(cli.UsageError):  # what one run may have and many may not
            runs = len(expand(given))
    return f"experiment={job.config.experiment}: this is one run; -m runs all {runs} of its grid" if runs > 1 else ""


def _help() -> str:
    return HELP.format(
        settings="\n".join(f"  {line}" for line in cli.help_lines(Arguments, leave_out=("experiment", "scale"))),
        experiments=_first_lines("experiment"),
        scales=_first_lines("scale"),
    )


def _first_lines(group: str) -> str:
    """What each file of a group says of itself in its second line."""
    said = {path.stem: path.read_text(encoding="utf-8").splitlines()[1] for path in (cli.CONF / group).glob("*.yaml")}
    return "\n".join(f"  {name:<10} {said[name].removeprefix('# ')}" for name in sorted(said))
