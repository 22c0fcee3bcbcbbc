"""VL-CheckList's files: published corpora and run files, and our own corpora in the same form.

The toolbox is described in "An Explainable Toolbox for Evaluating Pre-trained Vision-Language Models".
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from analysis.probe.config import TASKS
from analysis.probe.corpora.items import Corpus, Item
from analysis.probe.corpora.selection import grouped
from analysis.probe.folders import read_json_file, read_yaml, reading
from travlr.config import check_choice
from travlr.corpora.taxonomy import TAXONOMY

TREE = Path("corpus") / "v1"  # below the folder of a corpus: a YAML file for each axis and source
IMAGES = "images"  # `IMG_ROOT` of what is written: the first part of each item's path
SIDECAR = "items.jsonl"  # pairs and labels, which the published format does not have

# The corpus ----------------------------------------------------------------------------------------------------------


def read_corpus(
    folder: Path | str,
    types: Sequence[str] | None = None,
    data: Sequence[str] | None = None,
    images: Path | str | None = None,
) -> Corpus:
    """A published corpus: the folder that holds `corpus/` and `data/`.

    types: axes such as `Object/Location/mid`, or groups of axes such as `Relation`. data: sources, the names of YAML
    files such as `vg_obj`. None: all. images: the folder that holds the pictures' roots (`IMG_ROOT`: vg, swig, hake),
    or one such root; None: the corpus's folder.

    Texts are not changed. Missing data files and records without a true or a false sentence are left out, with a line
    each in the corpus's `refused`. Raises `ValueError`, with the file's name, for a file of another form, and for types
    and data that select nothing.
    """
    root, items, refused = Path(folder), list[Item](), list[str]()
    if images is not None and not Path(images).is_dir():
        raise ValueError(f"images={images}: there is no such folder")
    pictures = root if images is None else Path(images)
    for place, path in _selected(root, types, data).items():
        with reading(path):
            values = read_yaml(path)
            file, prefix = root / values["ANNO_PATH"], PurePosixPath(values["IMG_ROOT"])
            if not file.resolve().is_relative_to(root.resolve()):
                raise ValueError(f"ANNO_PATH: {values['ANNO_PATH']} leaves the folder of the corpus")
        if images is not None and not (pictures / prefix).is_dir():
            prefix = PurePosixPath()  # `images` is the root itself
        if not file.is_file():
            refused.append(f"{place}: its data file is missing")
            continue
        with reading(file):
            items += _items(read_json_file(file), place, prefix, refused)
    if (root / SIDECAR).is_file():
        items = _labelled(root / SIDECAR, items)
    notes = (f"missing files and records left out: {len(refused):,}; the first is {refused[0]}",) if refused else ()
    return Corpus(root.resolve().name, "checklist", tuple(items), pictures, notes, tuple(refused))


def _selected(root: Path, types: Sequence[str] | None, data: Sequence[str] | None) -> dict[str, Path]:
    """The selected YAML files, by axis and source. Raises `ValueError` where a name selects none."""
    paths = sorted((root / TREE).rglob("*.yaml"))
    if not paths:
        raise ValueError(f"{root}: has no {TREE}/…/NAME.yaml; name the folder that holds corpus/ and data/")
    selected = {path.relative_to(root / TREE).with_suffix("").as_posix(): path for path in paths}
    for setting, names, part in (("types", types, 0), ("data", data, 2)):
        if names is None:
            continue
        available = sorted({place.rpartition("/")[part] for place in selected})
        chosen = set[str]()
        for name in (str(name).strip("/") for name in names):
            found = [one for one in available if one == name or one.startswith(f"{name}/")]
            if not found:
                near = difflib.get_close_matches(name, available, 3) or available
                raise ValueError(f"{setting}: the corpus has no {name!r}; choose from {', '.join(near)}")
            chosen.update(found)
        selected = {place: path for place, path in selected.items() if place.rpartition("/")[part] in chosen}
    order = {axis: number for number, axis in enumerate(TAXONOMY)}
    return dict(sorted(selected.items(), key=lambda one: (order.get(one[0].rpartition("/")[0], len(order)), one[0])))


def _items(records: list[Any], place: str, prefix: PurePosixPath, refused: list[str]) -> list[Item]:
    """The items of one file, in order, with their position in their ids. Adds to `refused`."""
    axis, _, source = place.rpartition("/")
    top, *middle, last = axis.split("/")
    labels = {middle[0].lower(): last} if top == "Object" and middle else {}
    items = []
    for number, (image, sentences) in enumerate(records):
        positives, negatives = (_texts(sentences.get(name, [])) for name in ("POS", "NEG"))
        if positives and negatives:
            path = (prefix / image).as_posix()
            items.append(Item(f"{place}/{number}", path, positives, negatives, axis, source, labels=labels))
        else:
            refused.append(f"{place}/{number}: has no true or no false sentence")
    return items


def _texts(value: str | list[str]) -> tuple[str, ...]:
    """Sentences; some published records have one alone, in place of a list."""
    texts = [value] if isinstance(value, str) else value
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a sentence is not a text")
    return tuple(texts)


def _labelled(path: Path, items: Sequence[Item]) -> list[Item]:
    """Items with the pairs and labels of our own corpora."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    by_id = {values["id"]: (values["pair"], values["labels"]) for values in lines}
    found = []
    for item in items:
        pair, labels = by_id.get(item.id, ("", {}))
        found.append(replace(item, pair=pair, labels={**item.labels, **labels}))
    return found


def read_published(items: Sequence[Item]) -> dict[str, bytes]:
    """The files of the published form, by name: for each axis and source its data and then its YAML.

    Their pictures are below `IMAGES`.
    """
    contents: dict[str, bytes] = {}
    for (axis, source), group in grouped(items).items():
        place = f"{axis}/{source}"
        data = f"data/{place}.json"
        records = [
            [item.image.removeprefix(f"{IMAGES}/"), {"POS": item.positives, "NEG": item.negatives}] for item in group
        ]
        settings = {"ANNO_PATH": data, "IMG_ROOT": f"{IMAGES}/", "TYPE": "TUPLE_JSON"}
        contents[data] = json.dumps(records).encode()
        contents[f"{TREE.as_posix()}/{place}.yaml"] = yaml.safe_dump(settings, sort_keys=False).encode()
    return contents


# The run file --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunFile:
    """A published run file.

    types, data: as of `read_corpus`. task: `itc` or `itm`. most: sentences to score of each file, half as many records;
    None for all (`MAX_NUM`).
    """

    types: tuple[str, ...]
    data: tuple[str, ...]
    task: str
    most: int | None
    batch_size: int
    out: str


def read_run_file(path: Path | str) -> RunFile:
    """Read a published run file. Raises `ValueError` with its name for a missing key or a wrong value."""
    with reading(Path(path)):
        values = read_yaml(Path(path))
        check_choice("TASK", task := str(values["TASK"]).lower(), TASKS)
        return RunFile(
            types=_texts(values["DATA"]["TYPES"]),
            data=_texts(values["DATA"]["TEST_DATA"]),
            task=task,
            most=int(values["MAX_NUM"] or 0) or None,
            batch_size=int(values.get("BATCH_SIZE", 16)),
            out=str(values["OUTPUT"]["DIR"]),
        )
