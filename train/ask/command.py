"""The command line of `python evaluate.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from train.ask.config import Evaluation
from train.ask.evaluation import evaluate
from train.results.evaluation_table import evaluation_table
from travlr.settings import help_lines, hydra_command

HELP = """\
python evaluate.py model=MODEL [NAME=VALUE ...]

Ask a model about a dataset without training it: a chat model, a server, a finished run, or a matcher such as CLIP, from
images, from captions, and from both. Every reply is saved as it arrives; after an interruption, the same command asks
what is missing. Settings and their defaults:

{settings}

examples
  python evaluate.py model=HuggingFaceTB/SmolVLM-256M-Instruct task=cardinality
  python evaluate.py model=Qwen/Qwen3-VL-2B-Instruct task=spatiality setting=image form=read limit=100
  python evaluate.py server=http://localhost:8000/v1 model=NAME task=quantifiers prompt=reason
  python evaluate.py model=runs/uniter-caption-cardinality-s0-1a2b3c4d data=data/strict limit=null
  python evaluate.py model=openai/clip-vit-base-patch32 data=data/vl-checklist limit=null
  python evaluate.py model=my_module:my_score data=data/vl-checklist style.image=blank
"""
DEFAULTS = Evaluation(model="NAME")


def main(values: dict[str, Any]) -> None:
    """Evaluate with composed settings, and print the table of scores."""
    config = Evaluation.model_validate(values)
    rows = evaluate(config)
    folder = Path(config.runs) / rows[0]["name"]
    print(f"\n{evaluation_table(folder, rows)}\n\nEvery reply: {folder / 'answers.jsonl'}")


def command() -> None:
    """The command, with the arguments of the process."""
    lines = help_lines(DEFAULTS)
    defaults = DEFAULTS.model_dump(mode="json") | {"model": ""}
    hydra_command("evaluate", defaults, HELP.format(settings="\n".join(f"  {line}" for line in lines)), "runs", main)
