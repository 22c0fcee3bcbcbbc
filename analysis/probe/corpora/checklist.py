"""VL-CheckList's files: published corpora and run files are read, and corpora are written in the same form.

The toolbox is described in "An Explainable Toolbox for Evaluating Pre-trained Vision-Language Models".
"""

from __future__ import annotations

import difflib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from analysis.probe.config import TASKS
from analysis.probe.corpora.items import Corpus, Item
from analysis.probe.corpora.selection import grouped
from analysis.probe.corpora.taxonomy import TAXONOMY, brief
from analysis.probe.folders import leaves_folder, read_json, read_yaml
from travlr import files

TREE = Path("corpus") / "v1"  # below the folder of a corpus: a YAML file for each axis and source
IMAGES = "images"  # `IMG_ROOT` of what is written: the first part of each item's path
SIDECAR = "items.jsonl"  # pairs and labels, which the published format does not have

# The corpus ----------------------------------------------------------------------------------------------------------

IRREGULARITIES = (
    "records with a bare string in place of a list of sentences",
    "records with more true than false sentences, or fewer",
    "records with leading, trailing or double spaces, kept as they are",
    "records with a false sentence that equals a true one, which no answer gets right",
    "records with a false sentence that is true of the same picture in another record",
    "exact repeats of an earlier record",
)


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

    Texts are not changed. The corpus's notes count irregularities. Malformed records (of another shape, or without a
    true or a false sentence) and missing data files are left out, with a line each in the corpus's `refused`. Raises
    `ValueError`, one line with the file, for an unreadable file, and for types and data that select nothing.
    """
    root = Path(folder)
    if images is not None and not Path(images).is_dir():
        raise ValueError(f"images={images}: there is no such folder")
    if (root / files.WORK).exists():
        raise ValueError(f"{folder}: is unfinished; run the command that writes it again")
    settings = {place: _settings(path, images) for place, path in _selected(root, types, data).items()}
    pictures = _above(Path(images), {one["IMG_ROOT"] for one in settings.values()}) if images else root
    items, malformed = list[Item](), list[str]()
    missing, empty = list[str](), list[str]()
    irregular: dict[str, Counter[str]] = {text: Counter() for text in IRREGULARITIES}  # records of each file
    for place, values in settings.items():
        file = root / values["ANNO_PATH"]
        if not os.path.isfile(file):  # also false for names that no file can have
            missing.append(place)
            continue
        records = read_json(file)
        if not isinstance(records, list):
            raise ValueError(f"{file}: needs a list of records [picture, {{POS: …, NEG: …}}]")
        if not records:
            empty.append(place)
        items += _items(records, place, _root(values["IMG_ROOT"], pictures, images), malformed, irregular)
    if (root / SIDECAR).is_file():
        items = _labelled(root / SIDECAR, items)
    notes = [
        f"{text}: {len(places)} of {len(settings)}, {_by_axis(places)}"
        for places, text in ((missing, "missing data files, whose records are left out"), (empty, "empty data files"))
        if places
    ]
    if malformed:
        counts = Counter(line.partition(": ")[0].rpartition("/")[0] for line in malformed)
        notes.append(f"{_count_note(counts, 'malformed records, left out')}; the first is {malformed[0]}")
    notes += [_count_note(counts, text) for text, counts in irregular.items() if counts]
    refused = (*malformed, *(f"{place}: its data file is missing" for place in missing))
    return Corpus(root.resolve().name, "checklist", tuple(items), pictures, tuple(notes), refused)


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


def _settings(path: Path, images: Path | str | None) -> dict[str, str]:
    """The values of a YAML file of a corpus. TYPE is not read, as all published files have the same."""
    values = read_yaml(path)
    for name in ("ANNO_PATH", "IMG_ROOT"):
        if not isinstance(values.get(name), str):
            raise ValueError(f"{path}: {name} is missing or not a text")
        if leaves_folder(values[name]) and (name == "ANNO_PATH" or images is None):
            mend = "" if name == "ANNO_PATH" else "; give images=FOLDER"
            raise ValueError(f"{path}: {name}: {brief(values[name])} leaves the folder of the corpus{mend}")
    return values


def _above(images: Path, roots: set[str]) -> Path:
    """The parent of `images` where `images` has the name of the only root, so that items keep their paths."""
    names = {root.strip("/") for root in roots}
    return (
        images.resolve().parent if names == {images.resolve().name} and not (images / names.pop()).is_dir() else images
    )


def _root(root: str, pictures: Path, images: Path | str | None) -> PurePosixPath:
    """The prefix of the records' paths; empty where `images` is the root itself, under any name."""
    is_root = images is not None and (leaves_folder(root) or not (pictures / root).is_dir())
    return PurePosixPath("" if is_root else root)


def _items(
    records: list[Any], place: str, root: PurePosixPath, malformed: list[str], irregular: Mapping[str, Counter[str]]
) -> list[Item]:
    """The items of one file, in order, with their position in their ids. Adds to `malformed` and `irregular`."""
    axis, _, source = place.rpartition("/")
    top, *middle, last = axis.split("/")
    labels = {middle[0].lower(): last} if top == "Object" and middle else {}
    parsed: dict[str, _ParsedRecord] = {}
    for number, value in enumerate(records):
        try:
            parsed[f"{place}/{number}"] = _record(value)
        except ValueError as error:
            malformed.append(f"{place}/{number}: {error}")
    true_of: dict[str, set[str]] = defaultdict(set)
    for image, positives, _negatives, _bare in parsed.values():
        true_of[image].update(positives)
    items, seen = [], set()
    for name, (image, positives, negatives, bare) in parsed.items():
        own = set(positives)
        traits = (
            bare,
            len(positives) != len(negatives),
            any("  " in text or text != text.strip() for text in (*positives, *negatives)),
            not own.isdisjoint(negatives),
            own.isdisjoint(negatives) and any(text in true_of[image] for text in negatives),
            (image, positives, negatives) in seen,
        )
        for text, holds in zip(IRREGULARITIES, traits, strict=True):
            irregular[text].update([place] * holds)
        seen.add((image, positives, negatives))
        items.append(Item(name, (root / image).as_posix(), positives, negatives, axis, source, labels=labels))
    return items


_ParsedRecord = tuple[str, tuple[str, ...], tuple[str, ...], bool]
"""Picture, true and false sentences, and whether a bare string stood for a list."""


def _record(value: Any) -> _ParsedRecord:
    """Parse a record. Raises `ValueError`, with the reason, for another form and for a record without sentences."""
    if not (isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict)):
        raise ValueError("needs [picture, {POS: …, NEG: …}]")
    raw = [value[1].get(name) for name in ("POS", "NEG")]
    lists: list[Any] = [[texts] if isinstance(texts, str) else texts for texts in raw]
    for name, texts in zip(("POS", "NEG"), lists, strict=True):
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{name} needs a list of sentences")
    return value[0], tuple(lists[0]), tuple(lists[1]), any(isinstance(texts, str) for texts in raw)


def _count_note(counts: Counter[str], text: str) -> str:
    """A note with the total and the files with the largest counts."""
    most = ", ".join(f"{place} {count:,}" for place, count in counts.most_common(3))
    return f"{text}: {counts.total():,} ({most}{', …' if len(counts) > 3 else ''})"


def _by_axis(places: Sequence[str]) -> str:
    sources: dict[str, list[str]] = {}
    for axis, _, source in (place.rpartition("/") for place in places):
        sources.setdefault(axis, []).append(source)
    return ", ".join(f"{axis} ({', '.join(names)})" for axis, names in sources.items())


def _labelled(path: Path, items: Sequence[Item]) -> list[Item]:
    """Items with the pairs and labels of a sidecar file. Raises `ValueError` where the file does not fit the items."""
    by_id: dict[str, tuple[Any, str, dict[str, str]]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        try:
            values = json.loads(line)
            labels = {str(name): str(value) for name, value in values["labels"].items()}
            by_id[values["id"]] = (values["positives"], values["negatives"]), str(values["pair"]), labels
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise ValueError(
                f"{path}: line {number}: is not an item; remove the file, or write the corpus again"
            ) from None
    with_labels = []
    for item in items:
        own = list(item.positives), list(item.negatives)
        sentences, pair, labels = by_id.get(item.id, (own, "", {}))
        if sentences != own:
            raise ValueError(
                f"{path}: {item.id} has other sentences than its data; remove the file, or write the corpus again"
            )
        with_labels.append(replace(item, pair=pair, labels={**item.labels, **labels}))
    return with_labels


def published(items: Sequence[Item]) -> dict[str, bytes]:
    """The files of the published form, by name: for each axis and source its data and then its YAML.

    Their pictures are below `IMAGES`. Raises `ValueError` for an axis or a source that leaves its folder.
    """
    contents: dict[str, bytes] = {}
    for (axis, source), group in grouped(items).items():
        place = f"{axis}/{source}"
        if not axis or not source or "/" in source or leaves_folder(place):
            raise ValueError(f"{place}: an axis and a source must be names of folders and of a file")
        data = f"data/{place}.json"
        records = [
            [item.image.removeprefix(f"{IMAGES}/"), {"POS": item.positives, "NEG": item.negatives}] for item in group
        ]
        settings = {"ANNO_PATH": data, "IMG_ROOT": f"{IMAGES}/", "TYPE": "TUPLE_JSON"}
        contents[data] = json.dumps(records).encode()
        contents[f"{TREE.as_posix()}/{place}.yaml"] = yaml.safe_dump(settings, sort_keys=False).encode()
    return contents


# The run file --------------------------------------------------------------------------------------------------------

RUN_FILE_KEYS = {
    "": ("MAX_NUM", "MODEL_NAME", "MODE_NAME", "BATCH_SIZE", "TASK", "DATA", "OUTPUT"),  # MODE_NAME: in the sample
    "DATA": ("TYPES", "TEST_DATA"),
    "OUTPUT": ("DIR", "NUM"),
}


@dataclass(frozen=True)
class RunFile:
    """A published run file.

    types, data: as of `read_corpus`. task: `itc` or `itm`. most: sentences to score of each file, half as many records;
    None for all (`MAX_NUM`). examples: number of right and of wrong answers in the result (`OUTPUT.NUM`). unknown:
    unknown keys, with suggestions.
    """

    types: tuple[str, ...]
    data: tuple[str, ...]
    task: str
    most: int | None
    batch_size: int
    out: str
    examples: int = 5
    unknown: tuple[str, ...] = ()


def read_run_file(path: Path | str) -> RunFile:
    """Read a published run file. Raises `ValueError`, one line with the key, for a missing key or a wrong value."""
    values = read_yaml(Path(path))
    unknown = []
    for part, names in RUN_FILE_KEYS.items():
        inside = values.get(part) if part else values
        if not isinstance(inside, dict):
            raise ValueError(f"{path}: {part} is missing; it needs {' and '.join(names)}")
        for key in (str(key) for key in inside if key not in names):
            near = difflib.get_close_matches(key, names, 1)
            unknown.append(f"{part}{'.' * bool(part)}{brief(key)}" + (f" (did you mean {near[0]}?)" if near else ""))
    data, output = values["DATA"], values["OUTPUT"]
    task = str(values.get("TASK")).lower()
    if task not in TASKS:
        raise ValueError(f"{path}: TASK: {brief(values.get('TASK'))}: choose one of {', '.join(TASKS)}")
    if "MAX_NUM" not in values:
        raise ValueError(f"{path}: MAX_NUM is missing; give a number of sentences, or 0 for all")
    return RunFile(
        types=_names(path, "DATA.TYPES", data.get("TYPES")),
        data=_names(path, "DATA.TEST_DATA", data.get("TEST_DATA")),
        task=task,
        most=_whole(path, "MAX_NUM", values["MAX_NUM"] or 0, 0) or None,
        batch_size=_whole(path, "BATCH_SIZE", values.get("BATCH_SIZE", 16), 1),
        out=_names(path, "OUTPUT.DIR", output.get("DIR"))[0],
        examples=_whole(path, "OUTPUT.NUM", output.get("NUM", 5), 0),
        unknown=tuple(unknown),
    )


def _names(path: Path | str, key: str, value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{path}: {key}: needs {'a name' if key.endswith('DIR') else 'a list of names'}")
    return tuple(names)


def _whole(path: Path | str, key: str, value: Any, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{path}: {key}: {brief(value)}: needs a whole number of at least {least}")
    return value
