"""The command `python train.py`: settings from Hydra, one run, its table."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from train.chat.config import Tuning, by_model, is_chat_model, joined_defaults, own_settings
from train.config import AnyRun, Run
from train.results.store import WEIGHTS
from train.results.tables import transfer_table
from train.run import run
from travlr.settings import CONF, help_lines, hydra_command

HELP = """\
python train.py [NAME=VALUE ...]              train a model, test it in every setting
python train.py -m NAME=VALUE,VALUE [...]     train all combinations; with experiment=, its whole sweep

After an interruption, the same command resumes. Finished runs are not trained again. Settings and their defaults:

{settings}

of chat models (model=FOLDER or OWNER/NAME; docs/training-todays-models.md), beside model, setting, ..., trainer
{chat}

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
  python train.py model=HuggingFaceTB/SmolVLM-256M-Instruct setting=caption adapter.targets=language
"""


def main(values: dict[str, Any]) -> None:
    """Train the run of composed settings and print its table. A finished run is only printed."""
    experiment = values.pop("experiment", None)
    config = chosen_config(values)
    if isinstance(config, Run):
        rows = run(with_start(config), experiment=experiment)
    else:
        try:
            from train.chat.tune import tune
        except ModuleNotFoundError as error:
            raise ValueError(f"model={config.model}: needs {error.name}; pip install -e '.[finetune]'") from None
        rows = tune(config, experiment=experiment)
    if rows:  # only the main process has any
        folder = Path(config.runs) / rows[0]["name"]
        print(f"\n{transfer_table(rows)}\n\nPredictions, weights and curve: {folder}")


def chosen_config(values: dict[str, Any]) -> Run | Tuning:
    """The settings of the kind of model that they name. Raises `ValueError` for settings of the other kind."""
    if is_chat_model(values["model"]):
        return Tuning.model_validate(own_settings(Tuning(), Run(), values))
    return Run.model_validate(own_settings(Run(), Tuning(), values))


def command_defaults() -> dict[str, Any]:
    """The settings of both kinds of models, with their defaults."""
    OmegaConf.register_new_resolver("by_model", by_model, replace=True)
    settings = joined_defaults(Run().model_dump(mode="json"), Tuning().model_dump(mode="json"))
    return {"defaults": ["_self_", {"experiment": None}], **settings}


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
        chat="\n".join(f"  {line}" for line in help_lines(Tuning(), without=(*AnyRun.model_fields,))),
        experiments=_first_lines("experiment"),
        scales=_first_lines("scale"),
    )
    hydra_command("train", command_defaults(), help_text, sweep_dir="${runs}", main=main)


def _first_lines(group: str) -> str:
    """The description of each file of a group, from its second line."""
    lines = {path.stem: path.read_text(encoding="utf-8").splitlines()[1] for path in (CONF / group).glob("*.yaml")}
    return "\n".join(f"  {name:<12} {lines[name].removeprefix('# ')}" for name in sorted(lines))
