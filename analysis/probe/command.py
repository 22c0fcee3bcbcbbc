"""`python -m analysis.probe`: settings become a probe, and whatever goes wrong becomes one line.

Nothing slow is imported before the settings are read: `--help` and wrong names and values are answered at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.probe.config import Probe, written
from travlr import cli

FREE_TEXT = ("corpus", "images", "model", "out", "question", "regions.detector", "regions.file")
HELP = """\
python -m analysis.probe [NAME=VALUE ...]     ask pretrained models which of two sentences fits a picture

Each model is asked a corpus as it is, without fine-tuning; beside its accuracy stand floors, what is reached without
looking. Killed or stopped, the same command goes on where it was. The report on all runs in `out` is
out/report.html. Settings and their defaults:

{settings}

examples
  python -m analysis.probe                                          our own corpora, and floors that need no model
  python -m analysis.probe model=openai/clip-vit-base-patch32
  python -m analysis.probe model=[uniter:uniter-base.pt,my_module:my_scorer] limit=200
  python -m analysis.probe corpus=VL-CheckList images=pictures types=[Attribute,Relation/spatial] model=FOLDER
  python -m analysis.probe corpus=VL-CheckList/configs/sample.yaml rules=published model=FOLDER
  python -m analysis.probe corpus=sentence-semantics/eval_set.json images=pictures template=alt model=FOLDER
  python -m analysis.probe corpus=runs/sentence-semantics/LXMERT/results.csv
  python -m analysis.probe corpus=runs/sentence-semantics
"""


def settings(arguments: Sequence[str]) -> Probe:
    """What `name=value` arguments ask for. Raises `cli.UsageError` for a wrong name or value."""
    values = cli.compose("probe", arguments, FREE_TEXT)
    values["model"] = listed(values["model"])
    for name in ("types", "data"):
        if isinstance(values[name], str):
            values[name] = [values[name]]
    for name in ("model", "types", "data"):
        if isinstance(values[name], dict):
            raise cli.UsageError(f"{name}={written(values[name])}: write a name, or a list such as [a,b]")
    for name in ("corpus", "out"):
        if values[name] is None:
            raise cli.UsageError(f"{name}=: must name something")
    return cli.typed(Probe, values)


def listed(text: Any) -> list[Any]:
    """The names in `[A,B]`, in `A` (which may hold any other character), or in a list; none in null."""
    if not isinstance(text, str):
        return text or []
    found = re.fullmatch(r"\[(.*)\]", text, re.DOTALL)
    return [part.strip() for part in found[1].split(",")] if found else [text]


def main(arguments: list[str]) -> int:
    options = [argument for argument in arguments if argument.startswith("-")]
    if {"-h", "--help"} & set(options):
        print(_help(), end="")
        return 0
    if options:
        raise cli.UsageError(f"there is no option {options[0]}; settings are written name=value (see --help)")
    config = settings(arguments)
    from analysis.probe.run import probe

    results = probe(config, log=_say)
    if not any(result.model for result in results):
        _say("\nThese are floors. To probe a model, name it: model=FOLDER, a hub id, uniter:FILE or module:function.")
    _say(f"\nReport: {Path(config.out) / 'report.html'}")
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


def _help() -> str:
    lines = (cli.CONF / "probe.yaml").read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("corpus:"))
    return HELP.format(settings="\n".join(f"  {line}".rstrip() for line in lines[start:]))
