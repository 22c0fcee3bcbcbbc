"""The command `python train.py`: settings from Hydra, one run, its table."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

from train.config import Run
from train.results.store import WEIGHTS
from train.results.tables import transfer_table
from train.run import run
from travlr.settings import CONF, help_lines, hydra_command

HELP = """\
python train.py [NAME=VALUE ...]              train a model, test it in every setting
python train.py -m NAME=VALUE,VALUE [...]     train all combinations; with experiment=, its whole sweep

After an interruption, the same command resumes. Finished runs are not trained again. Settings and their defaults:

{settings}

experiments (experiment=NAME); -m trains the sweep, and settings of the command line replace those of the sweep
{experiments}

scales (+scale=NAME)
{scales}

examples
  python train.py model=uniter setting=caption
  python train.py model=lxmert setting=image task=spatiality seed=1 optimiser.batch_size=32
  python train.py -m model=uniter,albef setting=image,caption seed=0,1,2
  python train.py -m experiment=table2 model=uniter +scale=paper pretrained=uniter-base.pt device=gpu
  python train.py -m experiment=table2 hydra/launcher=joblib
"""


def main(values: dict[str, Any]) -> None:
    """Train the run of composed settings and print its table. A finished run is only printed."""
    experiment = values.pop("experiment", None)
    config = with_start(Run.model_validate(values))
    rows = run(config, experiment=experiment)
    if rows:  # only the main process has any
        folder = Path(config.runs) / rows[0]["name"]
        print(f"\n{transfer_table(rows)}\n\nPredictions, weights and curve: {folder}")


def with_start(config: Run) -> Run:
    """The run with the one folder that its pattern `start` fits. Raises `ValueError` if none or several fit."""
    if config.start is None or Path(config.start).is_dir():
        return config
    folders = sorted(folder for folder in glob.glob(config.start) if (Path(folder) / WEIGHTS).is_file())
    if len(folders) != 1:
        several = f"several runs fit; give one of {', '.join(folders)}" if folders else "no run fits; train it first"
        raise ValueError(f"start={config.start}: {several}")
    return config.changed(start=folders[0])


def command() -> None:
    """The command, with the arguments of the process."""
    help_text = HELP.format(
        settings="\n".join(f"  {line}" for line in help_lines(Run())),
        experiments=_first_lines("experiment"),
        scales=_first_lines("scale"),
    )
    defaults = {"defaults": ["_self_", {"experiment": None}], **Run().model_dump(mode="json")}
    hydra_command("train", defaults, help_text, sweep_dir="${runs}", main=main)


def _first_lines(group: str) -> str:
    """The description of each file of a group, from its second line."""
    lines = {path.stem: path.read_text(encoding="utf-8").splitlines()[1] for path in (CONF / group).glob("*.yaml")}
    return "\n".join(f"  {name:<12} {lines[name].removeprefix('# ')}" for name in sorted(lines))
