"""The dataset card: README.md, an example picture, and for programs croissant.json."""

from __future__ import annotations

import io
import json
from typing import Any

import yaml

from render.png import decode
from render.text import CAPTION_STYLES
from travlr.config import Style
from travlr.formats.columns import FEATURES
from travlr.formats.croissant import croissant_text
from travlr.tasks import PAPER, config_from_dict, task_class

COLUMNS = """
## Columns

`id`; `image`; `caption`; `query`; `answer`; `task`; `pair`, what the scene shows along the task's dimension
(the dimension and two values); `query_form`, the query as JSON; `objects` in the order of the caption, rows
and columns counted from 0.
"""
NO_ORDER = COLUMNS.replace("`objects` in the order of the caption,", "`objects` in random order,")

BIBTEX = """\
@inproceedings{chow-etal-2023-travlr,
    title = "{T}ra{VLR}: Now You See It, Now You Don{'}t! A Bimodal Dataset for Evaluating Visio-Linguistic Reasoning",
    author = "Chow, Keng Ji and Tan, Samson and Kan, Min-Yen",
    booktitle = "Proceedings of the 17th Conference of the European Chapter of the Association for Computational
      Linguistics",
    month = may,
    year = "2023",
    publisher = "Association for Computational Linguistics",
    pages = "3322--3347",
    doi = "10.18653/v1/2023.eacl-main.242",
    url = "https://aclanthology.org/2023.eacl-main.242",
}"""
CITATION = f"""
## Citation

%s:

```bibtex
{BIBTEX}
```
"""
# Task -> preset -> accuracy of the best unbound rule, as docs/strict.md has it.
BEST_UNBOUND = {
    "spatiality": {"paper": "88 % in `test_ind` and 74 % in `test_ood`", "strict": "67 %"},
    "cardinality": {"paper": "94 %", "strict": "75 % in `test_ind` and 85 % in `test_ood`"},
    "quantifiers": {"paper": "93 %", "strict": "66 %"},
    "comparison": {"paper": "99 % in `test_ind` and 100 % in `test_ood`", "strict": "78 %"},
}


def card_files(manifest: dict[str, Any], row: dict[str, Any]) -> dict[str, bytes]:
    """The files of the card of a dataset with this first row.

    manifest: of a Parquet dataset, or of an export with its `layout` and `data_files`, the globs of its splits.
    """
    files = {"example.png": _png(row["image"]["bytes"]), "README.md": _text(manifest, row).encode()}
    if "layout" in manifest:
        return files
    corpus = manifest.get("corpus")
    name, citation = (corpus["name"], "") if corpus else (f"TraVLR {row['task']}", BIBTEX)
    return files | {"croissant.json": croissant_text(manifest, name, citation).encode()}


def _png(data: bytes) -> bytes:
    if data.startswith(b"\x89PNG"):
        return data
    buffer = io.BytesIO()
    decode(data).save(buffer, "PNG")
    return buffer.getvalue()


def _text(manifest: dict[str, Any], row: dict[str, Any]) -> str:
    header = _header(manifest, row["image"]["path"].rpartition(".")[2])
    if corpus := manifest.get("corpus"):
        return f"---\n{header}---\n{_corpus(corpus, row)}\n{_counts(manifest['splits'])}\n"
    style = (config_from_dict(manifest["config"]).style if manifest["config"] else Style()).caption
    parts = [f"---\n{header}---\n", _example(row, style), _counts(manifest["splits"])]
    if manifest.get("held_out"):
        parts.append(_held_out(manifest))
    columns = COLUMNS if CAPTION_STYLES[style].ordered else NO_ORDER
    follow = "The tasks and their held-out pairs follow" if row["task"] in PAPER else "Scenes and splits follow"
    return "\n".join([*parts, _shortcuts(manifest["config"]), columns, _origin(manifest), CITATION % follow])


def _corpus(corpus: dict[str, Any], row: dict[str, Any]) -> str:
    """What the card of other people's questions says."""
    notes = "\n".join(f"- {note}" for note in corpus["notes"])
    return f"""\
# {corpus["name"]}

Pictures with true and false sentences, from the published corpus. Each row is a picture and a sentence (`query`), and
`answer` says whether the sentence is true of it. `pair` has the axis and the source; in `query_form`, rows of the same
`item` show the same picture, and items of the same `couple` exchange their sentences. The pictures and sentences keep
the licence of the corpus.

![A picture of the corpus](example.png)

**{row["query"]}** {"True" if row["answer"] else "False"}.

{notes}
"""


def _header(manifest: dict[str, Any], suffix: str) -> str:
    """The YAML header from which `load_dataset` takes the splits, and the features of what is not Parquet."""
    splits, layout = manifest["splits"], manifest.get("layout", "parquet")
    header: dict[str, Any] = {
        "language": ["en"],
        "task_categories": ["visual-question-answering"],
        "pretty_name": (manifest.get("corpus") or {"name": "TraVLR"})["name"],
    }
    if manifest["config"]:  # data of others keep their licence
        header["license"] = "apache-2.0"
    if globs := manifest.get("data_files", {split: f"{split}-*.parquet" for split in splits}):
        data_files = [{"split": split, "path": globs[split]} for split in splits]
        header["configs"] = [{"config_name": "default", "data_files": data_files}]
    if layout == "imagefolder":  # its loader takes features from nowhere else
        header["configs"][0]["features"] = _yaml(FEATURES)
    if layout == "webdataset":
        columns = {name: feature for name, feature in FEATURES.items() if name != "image"}
        names = {name: FEATURES["id"] for name in ("__key__", "__url__")}
        header["dataset_info"] = {"features": _yaml({suffix: FEATURES["image"], "json": columns, **names})}
    return str(yaml.safe_dump(header, sort_keys=False))


def _yaml(features: dict[str, Any]) -> list[dict[str, Any]]:
    """Features in the dialect of the header."""
    return [{"name": name, **_yaml_feature(feature)} for name, feature in features.items()]


def _yaml_feature(feature: dict[str, Any]) -> dict[str, Any]:
    if feature.get("_type") == "Image":
        return {"dtype": {"image": {"mode": feature["mode"]}}}
    if feature.get("_type") == "Value":
        return {"dtype": feature["dtype"]}
    if feature.get("_type") == "List":
        inner = _yaml_feature(feature["feature"])
        return {"list": inner.get("dtype") or inner["struct"]}
    return {"struct": _yaml(feature)}


def _example(row: dict[str, Any], style: str) -> str:
    caption = words = row["caption"]
    quoted = f"> {caption}"
    if style != Style().caption:
        words, quoted = "The scene that the caption below describes", f"```text\n{caption}\n```"
    return f"""\
# TraVLR {row["task"]}: {task_class(row["task"]).title()}

Every example shows one scene twice, as a picture and as a caption that says exactly the same, with a query
that is true or false of it.

![{words}](example.png)

{quoted}

**{row["query"]}** {"True" if row["answer"] else "False"}.
"""


def _counts(splits: dict[str, dict[str, int]]) -> str:
    lines = ["| split | examples | true | false |", "|---|---:|---:|---:|"]
    for split, counts in splits.items():
        rows, true = counts["rows"], counts["true"]
        lines.append(f"| {split} | {rows:,} | {true:,} | {rows - true:,} |")
    return "\n".join(lines)


def _held_out(manifest: dict[str, Any]) -> str:
    held_out = manifest["held_out"]
    pairs = ", ".join(f"`{' '.join(map(str, pair))}`" for pair in held_out["pairs"])
    queries = "; ".join(" ".join(map(str, query)) for query in held_out["queries"])
    config = manifest["config"] or {}
    choice = config.get("held_out")  # a task may have a setting of this name that is no group
    balanced = isinstance(choice, dict) and choice.get("pairs") == "balanced"
    all_others = config.get("scope") != "queried" and not balanced
    if config.get("task") in PAPER and all_others:
        splits = "Only `test_ood` shows these pairs; `train`, `validation` and `test_ind` show all others."
    else:  # pairs of other queries, and pairs that no split has, are possible
        splits = "Only queries of `test_ood` are about these pairs; those of the other splits are about others."
    return f"""
## Held out

{splits}

{pairs}.

Only its queries name: {queries}."""


def _shortcuts(config: dict[str, Any] | None) -> str:
    """The section on shortcuts; their accuracies are known for the default settings with any seed."""
    title = "\n## Known shortcuts\n"
    if not config:
        return f"{title}\n`python -m travlr.audit` measures what the query text and the number of objects tell.\n"
    task, settings = config["task"], config_from_dict(config)

    def is_preset(name: str) -> bool:
        if name != settings.preset:
            return False
        usual = config_from_dict({"task": task, "preset": name})
        free = {name: getattr(usual, name) for name in ("seed", "count", "image", "style")}
        return settings.changed(**free) == usual

    accuracies = BEST_UNBOUND.get(task, {})
    accuracy = next((text for preset, text in accuracies.items() if is_preset(preset)), "")
    if not accuracies:
        return f"{title}\n`python -m travlr.baselines` measures the accuracy of rules that do not reason.\n"
    if not accuracy:
        presets = " and ".join(f"`preset={preset}`" for preset in accuracies)
        return f"""{title}
The accuracy of rules that do not reason is known for {presets}; these settings are others.
`python -m travlr.baselines` measures it.
"""
    return f"""{title}
The query text alone, and the query text with the number of objects, predict the answer no better than chance, 50 %
(`python -m travlr.audit` measures it). Rules that see numbers of words, totals, places or orders, and not which
colour, shape and place belong together, or that look at only one of the objects or numbers that a query compares, are
right up to {accuracy} of the time. A model's accuracy says something about reasoning where it is above that.
"""


def _origin(manifest: dict[str, Any]) -> str:
    """The section on the origin: the config, or that another program wrote the source."""
    if not manifest["config"]:
        return "Converted from a dataset that another program wrote, which does not say how it was made.\n"
    return f"""\
Examples 2k and 2k + 1 of a split ask the same question, once true and once false.

## Made with

```json
{json.dumps({key: manifest[key] for key in ("config", "content_digest")}, indent=1)}
```
"""
