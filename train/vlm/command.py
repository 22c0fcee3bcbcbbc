"""The command line of `python evaluate.py`.

Nothing slow is imported before the settings are read, so that `--help` and most mistakes are answered at once.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from train.settings import is_ours
from train.vlm.config import Evaluation
from travlr import cli
from travlr.files import Locked

if TYPE_CHECKING:
    from train.results.columns import Row

FREE_TEXT = ("model", "data", "runs", "server", "revision", "key")
LISTS = ("setting", "split")

HELP = """\
python evaluate.py model=MODEL [NAME=VALUE ...]

Ask a model about a dataset without training it: from images, from captions, and from both. Every reply is saved as it
arrives; after an interruption, the same command asks what is missing. Settings and their defaults:

{settings}

examples
  python evaluate.py model=HuggingFaceTB/SmolVLM-256M-Instruct task=cardinality
  python evaluate.py model=Qwen/Qwen3-VL-2B-Instruct task=spatiality setting=image form=read limit=100
  python evaluate.py server=http://localhost:8000/v1 model=NAME task=quantifiers prompt=reason
  python evaluate.py model=https://api.openai.com/v1#NAME limit=100
  python evaluate.py model=runs/uniter-caption-cardinality-s0-1a2b3c4d data=data/strict limit=null
"""


def settings(arguments: Sequence[str]) -> Evaluation:
    """The evaluation of `name=value` arguments. Raises `cli.UsageError` for a wrong name or value."""
    values = cli.compose("evaluate", [_listed(a) for a in arguments], FREE_TEXT, defaults=asdict(Evaluation()))
    for name in LISTS:
        if isinstance(values[name], str):
            values[name] = [values[name]]
    config: Evaluation = cli.typed(Evaluation, values | {"model": values["model"] or ""})
    if not config.model:
        hint = cli.slip("model", arguments)
        raise cli.UsageError(f"model= is missing; give a hub id, a folder, runs/NAME, or URL#NAME of a server{hint}")
    return config


def _listed(argument: str) -> str:
    """`setting=image,caption` as `setting=[image,caption]`."""
    name, _, value = argument.partition("=")
    return f"{name}=[{value}]" if name in LISTS and "," in value and not value.startswith("[") else argument


def main(arguments: list[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        lines = "\n".join(f"  {line}" for line in cli.help_lines(Evaluation))
        print(HELP.format(settings=lines), end="")
        return 0
    config = settings(arguments)
    rows = attempt(config)
    from train.results.evaluation_table import evaluation_table

    folder = Path(config.runs) / rows[0]["name"]
    print(f"\n{evaluation_table(folder, rows)}\n\nEvery reply: {folder / 'answers.jsonl'}")
    return 0


def attempt(config: Evaluation) -> list[Row]:
    """The results. Raises `ValueError`, in one line, for every failure of a library too."""
    from train.vlm.evaluation import evaluate

    try:
        return evaluate(config)
    except (OSError, Locked, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, ValueError) and is_ours(error):
            raise
        report = Path(config.runs) / "error.txt"
        report.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        message = " ".join(str(error).split())[:300]
        advice = "; use a smaller batch_size" if "out of memory" in message.lower() else ""
        raise ValueError(
            f"model={config.model}: {type(error).__name__}: {message}{advice} (traceback in {report})"
        ) from None
