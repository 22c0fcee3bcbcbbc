"""The dataset card: README.md and an example picture."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from travlr.dataset import FEATURES
from travlr.formats import LAYOUTS, WORK, replace_file

TITLES = {
    "spatiality": "spatial relations between two objects",
    "cardinality": "how many objects there are",
    "quantifiers": "all, not all, some, none, only, not only",
    "comparison": "which of two kinds of objects are more",
}


def write_card(folder: Path, manifest: dict[str, Any]) -> None:
    """Write README.md and example.png into a dataset that is otherwise finished."""
    split = next(iter(manifest["splits"]))
    table = next(LAYOUTS[manifest["layout"]].read(folder, manifest, split))
    row = table.slice(0, 1).to_pylist()[0]
    work = folder / WORK
    replace_file(folder / "example.png", work, [_png(row["image"]["bytes"])])
    replace_file(folder / "README.md", work, [_text(manifest, row).encode()])


def _png(data: bytes) -> bytes:
    if data.startswith(b"\x89PNG"):
        return data
    from render.image import decode

    buffer = io.BytesIO()
    decode(data).save(buffer, "PNG")
    return buffer.getvalue()


def _yaml_feature(name: str | None, feature: Any) -> list[str]:
    """Lines of a feature in the header's dialect."""
    lead = [f"name: {name}"] if name else []
    if feature.get("_type") == "Value":
        return [*lead, f"dtype: {feature['dtype']}"]
    if feature.get("_type") == "Image":
        return [*lead, "dtype: image"]
    inner = feature["feature"]
    if inner.get("_type") == "Value":
        return [*lead, f"list: {inner['dtype']}"]
    lines = [*lead, "list:"]
    for key, value in inner.items():
        first, *rest = _yaml_feature(key, value)
        lines += [f"- {first}", *(f"  {line}" for line in rest)]
    return lines


def _text(manifest: dict[str, Any], row: dict[str, Any]) -> str:
    config, splits, held_out = manifest["config"], manifest["splits"], manifest.get("held_out")
    head = ["---", "language: [en]", "task_categories: [visual-question-answering]", "pretty_name: TraVLR"]
    if manifest["data_files"]:
        head += ["configs:", "- config_name: default", "  data_files:"]
        for split, glob in manifest["data_files"].items():
            head += [f"  - split: {split}", f"    path: {json.dumps(glob)}"]
    if manifest["layout"] == "parquet":
        head += ["dataset_info:", "  features:"]
        for name, feature in FEATURES.items():
            first, *rest = _yaml_feature(name, feature)
            head += [f"  - {first}", *(f"    {line}" for line in rest)]
        head += ["  splits:"]
        for split, counts in splits.items():
            head += [f"  - name: {split}", f"    num_examples: {counts['rows']}"]
    task = row["task"]
    body = [
        "---",
        "",
        f"# TraVLR {task}: {TITLES[task]}",
        "",
        "Every example shows one scene twice, as a picture and as a caption that says exactly the same, with a query",
        "that is true or false of it.",
        "",
        f"![{row['caption']}](example.png)",
        "",
        f"> {row['caption']}",
        "",
        f"**{row['query']}** {'True' if row['answer'] else 'False'}.",
        "",
        "| split | examples | true | false |",
        "|---|---:|---:|---:|",
    ]
    body += [f"| {s} | {c['rows']:,} | {c['true']:,} | {c['rows'] - c['true']:,} |" for s, c in splits.items()]
    if held_out:
        queries = "; ".join(" ".join(str(part) for part in item) for item in held_out["queries"])
        body += [
            "",
            "## Held out",
            "",
            "Only `test_ood` shows these pairs; `train`, `validation` and `test_ind` show all others.",
            "",
            ", ".join(f"`{' '.join(item)}`" for item in held_out["pairs"]) + ".",
            "",
            f"Only its queries name: {queries}.",
        ]
    body += [
        "",
        "## Columns",
        "",
        "`id`; `image`; `caption`; `query`; `answer`; `task`; `pair`, what the scene shows along the task's dimension",
        "(the dimension and two values); `query_form`, the query as JSON; `objects` in the order of the caption, rows",
        "and columns counted from 0.",
        "",
        "Examples 2k and 2k + 1 of a split ask the same question, once true and once false.",
        "",
        "## Made with",
        "",
        "```json",
        json.dumps({"config": config, "content_digest": manifest["content_digest"]}, indent=1),
        "```",
    ]
    return "\n".join([*head, *body]) + "\n"
