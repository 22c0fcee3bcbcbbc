"""`python -m analysis.probe`: the command line of `analysis.probe.run.probe`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from analysis.probe.config import Probe
from analysis.probe.run import probe
from analysis.probe.scorers.loading import check_functions
from travlr.settings import help_lines, hydra_command

HELP = """\
python -m analysis.probe [NAME=VALUE ...]     ask pretrained models which of two sentences fits a picture

Models are probed as they are, without fine-tuning. Beside each accuracy stand baselines (baselines=true): what can be
reached without looking at the picture. If the command is interrupted, run it again to continue. The report on all runs
in `out` is out/report.html. Settings and their defaults:

{settings}

examples
  python -m analysis.probe                                          our own corpora, and baselines that need no model
  python -m analysis.probe model=openai/clip-vit-base-patch32
  python -m analysis.probe model=[uniter:uniter-base.pt,my_module:my_scorer] limit=200
  python -m analysis.probe corpus=VL-CheckList images=pictures types=[Attribute,Relation/spatial] model=FOLDER
  python -m analysis.probe corpus=VL-CheckList/configs/sample.yaml rules=published model=FOLDER
  python -m analysis.probe corpus=sentence-semantics/eval_set.json images=pictures template=alt model=FOLDER
"""


def main(values: dict[str, Any]) -> None:
    """Probe with composed settings, and name the report."""
    config = Probe.model_validate(values)
    check_functions(config.model)
    log = partial(print, flush=True)
    results = probe(config, log=log)
    if not any(result.model for result in results):
        log("\nThese are baselines. To probe a model: model=FOLDER, a hub id, uniter:FILE or module:function.")
    log(f"\nReport: {Path(config.out) / 'report.html'}")


def command() -> None:
    """The command, with the arguments of the process."""
    lines = "\n".join(f"  {line}" for line in help_lines(Probe()))
    hydra_command("probe", Probe().model_dump(mode="json"), HELP.format(settings=lines), "probes", main)
