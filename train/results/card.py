"""The card of a finished run: README.md, which the Hugging Face hub shows. Its header holds the scores for programs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import EvalResult, ModelCardData

from train.results.columns import Row
from train.results.tables import flat_settings
from travlr.settings import Settings, as_written

CARD = "README.md"
METRICS = {"macro_f1": ("f1", "macro-F1"), "accuracy": ("accuracy", "accuracy")}  # column -> type and name on the hub


def command_text(program: str, config: Settings) -> str:
    """The command of a run: the settings that are not the defaults, and its model, setting, task and seed."""
    usual = flat_settings(type(config).model_construct().model_dump())
    settings = flat_settings(config.model_dump(exclude={"runs", "device"}))
    always = ("model", "setting", "task", "seed")
    changed = (f"{name}={as_written(value)}" for name, value in settings.items()
               if name in always or value != usual.get(name, ...))  # fmt: skip
    return " ".join(["python", program, *map(shlex.quote, changed)])


def write_card(folder: Path, rows: Sequence[Row], command: str, table: str) -> None:
    """Write the card of a run. rows: of its results.json, as `read_results` gives them. table: its scores as text."""
    first = rows[0]
    scores = [
        EvalResult(
            "visual-question-answering", "travlr", f"TraVLR {row['task']}", kind, row[column], metric_name=name,
            task_name=f"{row['task']}, tested in {row['test_setting']}", dataset_config=row["test_setting"],
            dataset_split=row["split"], dataset_revision=row["dataset"],
        )
        for row in rows for column, (kind, name) in METRICS.items() if row[column] is not None
    ]  # fmt: skip
    header = ModelCardData(
        language="en", library_name="transformers", tags=["travlr"], model_name=folder.name, eval_results=scores
    )
    versions = json.loads(first["versions"] or "{}")
    text = f"""\
---
{header.to_yaml()}
---
# {folder.name}

It answers queries about scenes, which it sees as pictures, as captions or as both.

```text
{table}
```
{_opening(folder)}
## Made with

```console
$ {command}
```

- dataset: TraVLR {first["task"]}, content {first["dataset"]}
- weights: {first["weights"]}
- hardware: {first["hardware"]}; {first["precision"]}
- versions: {", ".join(f"{name} {version}" for name, version in versions.items())}
- commit: {first["commit"] or "unknown"}
- finished: {first["created"]}
"""
    (folder / CARD).write_text(text, encoding="utf-8")


def _opening(folder: Path) -> str:
    """How to open the model, for one with a config.json."""
    if not (folder / "config.json").is_file():
        return ""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (name,) = config["architectures"]
    home = "train.models.saved" if name == "TravlrModel" else "transformers"
    classifies = "Its text is `CAPTION[SEP]QUERY`, or the query alone; its logits are of false and true. "
    return f"""
## Open

```python
from {home} import {name}

model = {name}.from_pretrained(FOLDER)
```

{classifies if "true" in config.get("label2id", {}) else ""}`results.json` has all scores, `settings.yaml` all settings.
"""
