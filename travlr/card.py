"""The dataset card: README.md and an example picture."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from travlr.dataset import FEATURES
from travlr.files import put_file
from travlr.formats import LAYOUTS, suffix_of

TITLES = {
    "spatiality": "spatial relations between two objects",
    "cardinality": "how many objects there are",
    "quantifiers": "all, not all, some, none, only, not only",
    "comparison": "which of two kinds of objects are more",
}
COLUMNS = """
## Columns

`id`; `image`; `caption`; `query`; `answer`; `task`; `pair`, what the scene shows along the task's dimension
(the dimension and two values); `query_form`, the query as JSON; `objects` in the order of the caption, rows
and columns counted from 0.
"""


def write_card(folder: Path, manifest: dict[str, Any]) -> None:
    """Write README.md and example.png into a dataset that is otherwise finished."""
    split = next(iter(manifest["splits"]))
    table = next(LAYOUTS[manifest["layout"]].read(folder, manifest, split, 0, 1))
    row = table.to_pylist()[0]
    put_file(folder, "example.png", [_png(row["image"]["bytes"])])
    put_file(folder, "README.md", [_text(manifest, row).encode()])


def _png(data: bytes) -> bytes:
    if data.startswith(b"\x89PNG"):
        return data
    from render.image import decode

    buffer = io.BytesIO()
    decode(data).save(buffer, "PNG")
    return buffer.getvalue()


def _text(manifest: dict[str, Any], row: dict[str, Any]) -> str:
    header = _header(manifest, suffix_of(row["image"]["bytes"]))
    parts = [f"---\n{header}---\n", _example(row), _counts(manifest["splits"])]
    if manifest.get("held_out"):
        parts.append(_held_out(manifest["held_out"]))
    return "\n".join([*parts, COLUMNS, _origin(manifest)])


def _header(manifest: dict[str, Any], suffix: str) -> str:
    """The YAML in which `load_dataset` finds the splits and the features, among them that pictures become RGB."""
    import yaml

    header: dict[str, Any] = {
        "language": ["en"],
        "task_categories": ["visual-question-answering"],
        "pretty_name": "TraVLR",
    }
    splits = manifest["splits"]
    if globs := manifest["data_files"]:
        found = [{"split": split, "path": globs[split]} for split in splits]
        header["configs"] = [{"config_name": "default", "data_files": found}]
    if manifest["layout"] == "imagefolder":  # its loader takes features from nowhere else
        header["configs"][0]["features"] = _yaml(FEATURES)
    if manifest["layout"] == "webdataset":
        columns = {name: feature for name, feature in FEATURES.items() if name != "image"}
        names = {name: FEATURES["id"] for name in ("__key__", "__url__")}
        header["dataset_info"] = {"features": _yaml({suffix: FEATURES["image"], "json": columns, **names})}
    if manifest["layout"] == "parquet":
        size = {split: sum(f["bytes"] for f in manifest["files"] if f["split"] == split) for split in splits}
        header["dataset_info"] = {
            "features": _yaml(FEATURES),
            "splits": [
                {"name": split, "num_bytes": size[split], "num_examples": counts["rows"]}
                for split, counts in splits.items()
            ],
            "download_size": sum(size.values()),
            "dataset_size": sum(size.values()),
        }
    text: str = yaml.safe_dump(header, sort_keys=False)
    return text


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


def _example(row: dict[str, Any]) -> str:
    return f"""\
# TraVLR {row["task"]}: {TITLES[row["task"]]}

Every example shows one scene twice, as a picture and as a caption that says exactly the same, with a query
that is true or false of it.

![{row["caption"]}](example.png)

> {row["caption"]}

**{row["query"]}** {"True" if row["answer"] else "False"}.
"""


def _counts(splits: dict[str, dict[str, int]]) -> str:
    lines = ["| split | examples | true | false |", "|---|---:|---:|---:|"]
    for split, counts in splits.items():
        rows, true = counts["rows"], counts["true"]
        lines.append(f"| {split} | {rows:,} | {true:,} | {rows - true:,} |")
    return "\n".join(lines)


def _held_out(held_out: dict[str, Any]) -> str:
    pairs = ", ".join(f"`{' '.join(map(str, pair))}`" for pair in held_out["pairs"])
    queries = "; ".join(" ".join(map(str, query)) for query in held_out["queries"])
    return f"""
## Held out

Only `test_ood` shows these pairs; `train`, `validation` and `test_ind` show all others.

{pairs}.

Only its queries name: {queries}."""


def _origin(manifest: dict[str, Any]) -> str:
    """How the dataset came about: its config, or that it was converted from one that has none."""
    if not manifest["config"]:
        return "Converted from a dataset in the published layout of TraVLR, which does not say how it was made.\n"
    made = json.dumps({key: manifest[key] for key in ("config", "content_digest")}, indent=1)
    return f"""\
Examples 2k and 2k + 1 of a split ask the same question, once true and once false.

## Made with

```json
{made}
```
"""
