"""VL-CheckList: its folder, or one of its run files.

Zhao et al. 2022, "An Explainable Toolbox for Evaluating Pre-trained Vision-Language Models". The folder has
`corpus/v1/AXIS/SOURCE.yaml`, which names a file of records `[picture, {"POS": [...], "NEG": [...]}]` and the folder of
their pictures (`IMG_ROOT`).

The records have no boxes. For the paper's local setting (CLIP_Local), boxes are looked up by picture and true sentence
in the annotations that the records were made from, Visual Genome's `relationships.json` or `attributes.json`, or in a
file of records `{"image": "VG_100K/1.jpg", "text": "man ON horse", "box": [x, y, width, height]}`.
"""

from __future__ import annotations

import difflib
import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from pydantic import Field

from travlr.config import check_choice
from travlr.corpora.items import Corpus, CorpusReader, Item, crop_items, read_items
from travlr.corpora.pictures import has_picture
from travlr.corpora.taxonomy import TAXONOMY
from travlr.formats.columns import report_damage
from travlr.settings import PathText, TextList, count_text

TREE = Path("corpus") / "v1"  # in the folder of the corpus: a YAML file for each axis and source
YAML = (".yaml", ".yml")

Box = tuple[float, float, float, float]


class Checklist(CorpusReader):
    about = "VL-CheckList: the folder with corpus/ and data/, or a run file (.yaml)"

    types: TextList = Field((), description="axes or groups of them, such as Object/Size,Relation; empty for all")
    data: TextList = Field((), description="sources, such as vg,swig_item; empty for all")
    crop: PathText | None = Field(None, description="a file with boxes: show these alone (the paper's CLIP_Local)")

    @classmethod
    def accepts(cls, source: Path) -> bool:
        return (source / TREE).is_dir() or (source.is_file() and source.suffix in YAML)

    def read(self, source: Path) -> Corpus:
        run = read_run_file(source) if source.is_file() else RunFile(source)
        images, items, left_out = self.find_images(run.folder), list[Item](), list[str]()
        types, data = self.types or run.types, self.data or run.data
        for place, path in choose_files(run.folder, types, data).items():
            file, root = read_place(run.folder, path)
            if not file.is_file():
                left_out.append(f"{place}: its data file is missing")
                continue
            prefix = PurePosixPath(root if (images / root).is_dir() else "")  # `images` may be the root itself
            of_file = read_items(file, functools.partial(record_items, place, prefix, left_out))
            if run.most is not None:
                there = (item for item in of_file if has_picture(images, item.picture))
                of_file = list(itertools.islice(there, run.most // 2))
            items += of_file
        notes = [f"left out: {len(left_out):,} files and records; the first is {left_out[0]}"] if left_out else []
        if run.most is not None:
            notes.append(f"of each file the first {count_text(run.most // 2, 'item')} with a picture (MAX_NUM)")
        if self.crop is not None:
            items, note = crop_items(find_boxes(items, read_boxes(self.crop)))
            notes += note
        options = {"types": list(types), "data": list(data), "crop": self.crop is not None}
        return Corpus(self.name or "VL-CheckList", items, images, options, notes)


# The folder ----------------------------------------------------------------------------------------------------------


def choose_files(folder: Path, types: Sequence[str], data: Sequence[str]) -> dict[str, Path]:
    """The YAML files of axes and sources, in the order of the paper. Raises `ValueError` for a name that has none."""
    paths = sorted((folder / TREE).rglob("*.yaml"))
    if not paths:
        raise ValueError(f"{folder}: has no {TREE}/.../NAME.yaml; name the folder that holds corpus/ and data/")
    files = {path.relative_to(folder / TREE).with_suffix("").as_posix(): path for path in paths}
    for setting, names, part in (("types", types, 0), ("data", data, 2)):
        available = sorted({place.rpartition("/")[part] for place in files})
        chosen = set[str]()
        for name in names:
            of_name = [one for one in available if one == name or one.startswith(f"{name}/")]
            if not of_name:
                near = difflib.get_close_matches(name, available, 3) or available
                raise ValueError(f"{setting}={name}: not in this corpus; choose from {', '.join(near)}")
            chosen.update(of_name)
        files = {place: path for place, path in files.items() if not names or place.rpartition("/")[part] in chosen}
    order = {axis: number for number, axis in enumerate(TAXONOMY)}
    return dict(sorted(files.items(), key=lambda one: (order.get(one[0].rpartition("/")[0], len(order)), one[0])))


def read_place(folder: Path, path: Path) -> tuple[Path, str]:
    """The file of records that a YAML file names, and the folder of their pictures."""
    values = read_yaml(path)
    with report_damage(path):
        file, root = folder / values["ANNO_PATH"], str(values["IMG_ROOT"])
        if not file.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"ANNO_PATH {values['ANNO_PATH']} leaves the folder of the corpus")
    return file, root


def record_items(place: str, prefix: PurePosixPath, left_out: list[str], number: int, record: Any) -> list[Item]:
    """The item of a record; none, and a line in `left_out`, where it has no true or no false sentence."""
    axis, _, source = place.rpartition("/")
    image, sentences = record
    true, false = (sentences.get(name, []) for name in ("POS", "NEG"))
    if not (true and false):
        left_out.append(f"{place}/{number}: it has no true or no false sentence")
        return []
    top, *middle, last = axis.split("/")
    labels = {middle[0].lower(): last} if top == "Object" and middle else {}
    picture = (prefix / image).as_posix()
    return [
        Item(id=f"{place}/{number}", picture=picture, true=true, false=false, axis=axis, source=source, labels=labels)
    ]


# Boxes ---------------------------------------------------------------------------------------------------------------


def find_boxes(items: list[Item], boxes: dict[tuple[str, str], Box]) -> list[Item]:
    """Items with the box of their first true sentence, where the file has one."""
    return [item.model_copy(update={"box": boxes.get(box_key(item.picture, item.true[0]))}) for item in items]


def box_key(picture: str, text: str) -> tuple[str, str]:
    """The name of a picture without folder and ending, and a text without its case and extra blanks."""
    return PurePosixPath(picture).stem, " ".join(text.casefold().split())


def read_boxes(path: str) -> dict[tuple[str, str], Box]:
    """The box of each sentence in a file of annotations; the first where several have it. Raises `ValueError`."""
    if not Path(path).is_file():
        raise ValueError(f"crop={path}: there is no such file; VL-CheckList has no boxes: see docs/corpora.md")
    boxes: dict[tuple[str, str], Box] = {}
    for picture, text, box in read_items(Path(path), record_boxes):
        boxes.setdefault(box_key(picture, text), box)
    return boxes


def record_boxes(number: int, record: dict[str, Any]) -> Iterator[tuple[str, str, Box]]:
    """Picture, sentence and box of a plain record, or of all relationships or attributes of a picture."""
    picture = str(record.get("image_id", record.get("image")))
    if "text" in record:
        x, y, width, height = record["box"]
        yield picture, record["text"], (x, y, width, height)
    for one in record.get("relationships", []):
        ends = one["subject"], one["object"]
        names = [end.get("name") or end["names"][0] for end in ends]
        yield picture, f"{names[0]} {one['predicate']} {names[1]}", join_boxes(*ends)
    for one in record.get("attributes", []):
        for name in one["names"]:
            for attribute in one.get("attributes") or []:
                yield picture, f"{attribute} {name}", join_boxes(one)


def join_boxes(*parts: dict[str, float]) -> Box:
    """The smallest box around parts with x, y, w and h."""
    left, top = (min(part[side] for part in parts) for side in "xy")
    right, bottom = (max(part[start] + part[size] for part in parts) for start, size in ("xw", "yh"))
    return left, top, right - left, bottom - top


# The run file --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunFile:
    """A published run file.

    folder: of the corpus, the nearest one around the file that has one. types, data: as the settings. most: sentences
    of each file, two for a record; None for all (`MAX_NUM`). task: `itc` or `itm`. out: folder of the results.
    """

    folder: Path
    types: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    most: int | None = None
    task: str = "itc"
    batch_size: int = 16
    out: str = ""


def read_run_file(path: Path) -> RunFile:
    """Read a published run file. Raises `ValueError` with its name for a missing key or a wrong value."""
    values = read_yaml(path)
    with report_damage(path):
        task = str(values["TASK"]).lower()
        check_choice("TASK", task, ("itc", "itm"))
        types, data = (tuple(map(str, values["DATA"][key])) for key in ("TYPES", "TEST_DATA"))
        most = int(values["MAX_NUM"] or 0) or None
        folder = next((one for one in (Path(), *path.resolve().parents) if (one / TREE).is_dir()), Path())
        return RunFile(folder, types, data, most, task, int(values.get("BATCH_SIZE", 16)), str(values["OUTPUT"]["DIR"]))


def read_yaml(path: Path) -> dict[str, Any]:
    """The names and values in a YAML file of plain data. Raises `ValueError` with its name."""
    try:
        return dict(yaml.safe_load(path.read_text(encoding="utf-8-sig")))
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: not a YAML file of names and values ({' '.join(str(error).split())})") from None
