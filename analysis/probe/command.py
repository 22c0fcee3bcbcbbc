"""`python -m analysis.probe`: the command line of `analysis.probe.run.probe`.

Slow modules are imported only after the settings are checked, so `--help` and wrong names and values are answered at
once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from analysis.probe.config import Probe
from travlr import cli

FREE_TEXT = ("corpus", "images", "model", "out", "question", "regions.file")
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


def settings(arguments: Sequence[str]) -> Probe:
    """The probe of `name=value` arguments. Raises `cli.UsageError` for a wrong name or value."""
    values = cli.compose("probe", arguments, FREE_TEXT, defaults=asdict(Probe()) | {"model": None})
    values["model"] = split_list(values["model"])
    for name in ("types", "data"):
        if isinstance(values[name], str):
            values[name] = [values[name]]
    for name in ("corpus", "out"):
        values[name] = values[name] or ""
    return cli.typed(Probe, values)


def split_list(text: Any) -> list[Any]:
    """The names in `[A,B]`, in `A` (which may hold any other character), or in a list; an empty list for null."""
    if not isinstance(text, str):
        return text or []
    match = re.fullmatch(r"\[(.*)\]", text, re.DOTALL)
    return [part.strip() for part in match[1].split(",")] if match else [text]


def main(arguments: list[str]) -> int:
    options = [argument for argument in arguments if argument.startswith("-")]
    if {"-h", "--help"} & set(options):
        lines = cli.help_lines(Probe)
        print(HELP.format(settings="\n".join(f"  {line}" for line in lines)), end="")
        return 0
    if options:
        raise cli.UsageError(f"there is no option {options[0]}; settings are written name=value (see --help)")
    config = settings(arguments)
    from analysis.probe.scorers.loading import check_functions

    check_functions(config.model)  # the next import takes seconds
    from analysis.probe.run import probe

    log = partial(print, flush=True)
    results = probe(config, log=log)
    if not any(result.model for result in results):
        log("\nThese are baselines. To probe a model: model=FOLDER, a hub id, uniter:FILE or module:function.")
    log(f"\nReport: {Path(config.out) / 'report.html'}")
    return 0
