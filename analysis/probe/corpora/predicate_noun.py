"""The predicate-noun study's evaluation set and result files: read, recomputed and written.

Nikolaus et al. 2022, "Do Vision-and-Language Transformers Learn Grounded Predicate-Noun Dependencies?". A pair is two
triplets (picture, true sentence, false sentence) with exchanged sentences, so that text alone cannot decide.
"""

from __future__ import annotations

import ast
import csv
import io
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.probe.corpora.items import WHOLE, Answer, Corpus, Item
from analysis.probe.corpora.taxonomy import is_length
from analysis.probe.folders import leaves_folder, read_json, reading, write_files
from travlr import files

SET = "eval_set.json"
AXES = {"object": "predicate", "subject": "noun"}  # wrong part of the false sentence, by the published `pos`

RELATION = ("id", "Label1", "label", "Label2", "bounding_box")
ALT = ("sentence_target_alt", "sentence_distractor_alt")
ALT_NAME = "_alt_sentences"  # in the names of result files
KEYS = (
    "id", "img_filename", "sentence_target", "sentence_distractor", "relationship_target", "relationship_distractor",
    "subject", "predicate", "object", "word_target", "word_distractor", "pos", "open_images_split", *ALT,
)  # fmt: skip
PROBABILITIES = ("prob_target_match", "prob_distractor_match")
RESULTS = ("result", "result_separate", "result_strict", *PROBABILITIES, "cropped_image", "model")
COLUMNS = (*KEYS, *RESULTS)
MAX_RELATION_LENGTH = 4096  # characters of a relationship in a result file
Triplet = dict[str, Any]


# The evaluation set --------------------------------------------------------------------------------------------------


def read_records(path: Path | str) -> list[Triplet]:
    """The triplets of an evaluation set, checked: its file, or the folder that it is in.

    Raises `ValueError`, one line with file and record, for what cannot be read, an odd number of triplets, a missing
    key, a value of another type, a repeated id, and a picture that leaves its folder.
    """
    file = Path(path) / SET if Path(path).is_dir() else Path(path)
    values = read_json(file)
    if not isinstance(values, list):
        raise ValueError(f"{file}: needs a list of triplets")
    records = [_checked(value, f"{file}: record {number}") for number, value in enumerate(values)]
    if repeated := [one for one, times in Counter(record["id"] for record in records).items() if times > 1]:
        raise ValueError(f"{file}: id {repeated[0]} occurs more than once")
    if len(records) % 2:
        raise ValueError(f"{file}: has an odd number of triplets, {len(records):,}; two in a row are a pair")
    return records


def _checked(value: Any, where: str, keys: Sequence[str] = KEYS) -> Triplet:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: needs names and values")
    if lacking := [key for key in keys if key not in value]:
        raise ValueError(f"{where}: lacks {', '.join(lacking)}")
    for key in keys:
        if key.startswith("relationship_"):
            _check_relation(value[key], f"{where}: {key}")
        elif not isinstance(value[key], int if key == "id" else str) or isinstance(value[key], bool):
            raise ValueError(f"{where}: {key} is not {'a whole number' if key == 'id' else 'a text'}")
    if value["pos"] not in AXES:
        raise ValueError(f"{where}: pos is {value['pos']!r}; it must be object or subject")
    if not value["img_filename"] or leaves_folder(value["img_filename"]):
        raise ValueError(f"{where}: img_filename {value['img_filename']!r} leaves the folder of pictures")
    return {key: value[key] for key in keys}


def _check_relation(value: Any, where: str) -> None:
    if not isinstance(value, dict) or set(value) != set(RELATION):
        raise ValueError(f"{where}: needs {', '.join(RELATION)}")
    if not all(isinstance(value[key], str) for key in RELATION[:-1]):
        raise ValueError(f"{where}: {', '.join(RELATION[:-1])} need to be texts")
    box = value["bounding_box"]
    if not isinstance(box, list) or len(box) != 4 or not all(map(is_length, box)):
        raise ValueError(f"{where}: bounding_box needs [x, y, w, h], parts of the picture")


def cropped_name(image: str, relation: str) -> str:
    """The file name of a picture cropped to a relationship's box, by the published rule."""
    stem, extension = os.path.splitext(image)
    return f"{stem}_rel_{relation}{extension}"


def read_set(
    path: Path | str, template: str = "normal", cropped: bool = False, images: Path | str | None = None
) -> Corpus:
    """A published evaluation set as a corpus.

    Axis `predicate` where the false sentence has the wrong predicate, `noun` where it has the wrong noun. template:
    `normal` ("a man is wearing glasses") or `alt` ("the man wears glasses"). cropped: use crops to the target's box
    (`cropped_name`), without the visual distractors. images: the folder of the pictures; None: the folder `images`
    beside the file, if there is one. Raises `ValueError` as `read_records`.
    """
    records = read_records(path)
    if images is not None and not Path(images).is_dir():
        raise ValueError(f"images={images}: there is no such folder")
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    beside = folder / "images" if (folder / "images").is_dir() else None
    pairs = [(first, first + 1) for first in range(0, len(records), 2)]
    unmirrored = sum(not _mirrored(records[a], records[b]) for a, b in pairs)
    note = f"pairs without exchanged sentences, where text alone may decide: {unmirrored:,} of {len(pairs):,}"
    corpus = _corpus(records, pairs, template, cropped)
    return replace(corpus, pictures=Path(images) if images else beside, notes=(note,) if unmirrored else ())


def _corpus(records: Sequence[Triplet], pairs: Sequence[tuple[int, int]], template: str, cropped: bool) -> Corpus:
    """Triplets as items. pairs: indices of both triplets of each pair."""
    pair = {index: str(number) for number, both in enumerate(pairs) for index in both}
    items = (item_of(record, pair.get(index, ""), template, cropped) for index, record in enumerate(records))
    name = f"predicate-noun{', alt' * (template == 'alt')}{', cropped' * cropped}"
    return Corpus(name, "predicate_noun", tuple(items), None)


def item_of(record: Triplet, pair: str, template: str, cropped: bool) -> Item:
    """A triplet as an item. pair: its number; empty without a mirror."""
    target, distractor = ALT if template == "alt" else ("sentence_target", "sentence_distractor")
    image = record["img_filename"]
    labels = {key: record[key] for key in ("subject", "predicate", "object", "word_target", "word_distractor")}
    labels |= {"template": template, "cropped": str(cropped).lower(), "split": record["open_images_split"]}
    return Item(
        id=str(record["id"]),
        image=cropped_name(image, record["relationship_target"]["id"]) if cropped else image,
        positives=(record[target],),
        negatives=(record[distractor],),
        axis=AXES[record["pos"]],
        pair=pair,
        labels={**labels, **({WHOLE: image} if cropped else {})},
    )


def _mirrored(one: Triplet, other: Triplet) -> bool:
    """Whether two triplets exchange their sentences."""
    names = [name for name in ("sentence_{}", "sentence_{}_alt") if name.format("target") in one]
    return one["pos"] == other["pos"] and all(
        one[name.format(a)] == other[name.format(b)]
        for name in names
        for a, b in (("target", "distractor"), ("distractor", "target"))
    )


# Result files --------------------------------------------------------------------------------------------------------


def read_results(path: Path | str) -> tuple[list[Triplet], list[Answer]]:
    """A published result file: its triplets, with `cropped_image` and `model`, and the answers to them.

    A file without probabilities, such as that of human answers, gives score 1 to the chosen sentence and 0 to the
    other. A triplet without a result or with a probability that is not a number counts as failed. Raises `ValueError`,
    one line with file and line, for missing columns, values of another type, a repeated id, and a result that
    contradicts its probabilities.
    """
    file = Path(path)
    records, answers = [], []
    seen = set()
    for where, row in _rows(file):
        record, answer = _result(row, where)
        if answer.id in seen:
            raise ValueError(f"{where}: id {answer.id} occurs more than once")
        seen.add(answer.id)
        records.append(record)
        answers.append(answer)
    return records, answers


def results_name(template: str, cropped: bool) -> str:
    """The published name of a result file, which is the only record of the template."""
    return f"results{'_cropped_images' * cropped}{ALT_NAME * (template == 'alt')}.csv"


def result_files(folder: Path | str) -> list[Path]:
    """The CSV files of a folder, sorted; if it has none, the result files of its subfolders (one per model, as
    published)."""
    below = (path for path in Path(folder).glob("*/results*.csv") if not path.parent.name.startswith("."))
    return sorted(Path(folder).glob("*.csv")) or sorted(below)


def results_corpora(paths: Sequence[Path | str]) -> list[tuple[Corpus, tuple[Triplet, ...], tuple[Answer, ...], str]]:
    """Result files as corpora, equal to those of `read_set` if all triplets are there, each with its triplets, the
    answers to them, and the model's name, or the folder's where the files have none.

    Files of one folder with the same model, template and cropping are parts of one corpus, in the order of `paths`. The
    template follows from the file's name, as in the published names. Raises `ValueError` as `read_results`, for a
    file without results, and for an id that occurs in two parts.
    """
    groups: dict[tuple[Path, str, str, bool], list[tuple[Triplet, Answer]]] = {}
    for path in map(Path, paths):
        records, answers = read_results(path)
        if not records:
            raise ValueError(f"{path}: has no results")
        template = "alt" if ALT_NAME in path.stem and ALT[0] in records[0] else "normal"
        model, cropped = records[0]["model"] or path.absolute().parent.name, bool(records[0]["cropped_image"])
        parts = groups.setdefault((path.parent, model, template, cropped), [])
        if repeated := {answer.id for _, answer in parts} & {answer.id for answer in answers}:
            raise ValueError(f"{path}: another file of this folder and model also has id {min(repeated)}")
        parts += zip(records, answers, strict=True)
    corpora = []
    for (_, model, template, cropped), parts in groups.items():
        triplets, their_answers = zip(*parts, strict=True)
        corpus = _corpus(triplets, pairs_of(triplets), template, cropped)
        corpora.append((corpus, triplets, their_answers, model))
    return corpora


def _rows(file: Path) -> Iterator[tuple[str, dict[str, str]]]:
    needed = [name for name in (*KEYS, "result") if name not in ALT]
    with reading(file), open(files.regular(file), encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, strict=True)
        try:
            if lacking := [name for name in needed if name not in (reader.fieldnames or ())]:
                raise ValueError(f"{file}: lacks the columns {', '.join(lacking)}")
            for row in reader:
                where = f"{file}: line {reader.line_num}"
                if None in row or None in row.values():
                    raise ValueError(f"{where}: has more or fewer columns than the first line; the file may be cut off")
                yield where, row
        except csv.Error as error:
            raise ValueError(f"{file}: {error}") from None


def _result(row: Mapping[str, str], where: str) -> tuple[Triplet, Answer]:
    record: Triplet = {key: row[key] for key in KEYS if key in row}
    if not record["id"].isdecimal():
        raise ValueError(f"{where}: id {record['id'][:20]!r} is not a whole number")
    record["id"] = int(record["id"][:18])
    for key in ("relationship_target", "relationship_distractor"):
        record[key] = _literal(row[key], f"{where}: {key}")
    record = _checked(record, where, tuple(record))
    record["cropped_image"] = _boolean(row.get("cropped_image", "False"), f"{where}: cropped_image")
    record["model"] = row.get("model", "")
    name = str(record["id"])
    if not row["result"]:
        return record, Answer(name, "failed", why="the file has no result of it")
    is_right = _boolean(row["result"], f"{where}: result")
    if not all(column in row for column in PROBABILITIES):
        return record, Answer(name, "scored", (float(is_right),), (float(not is_right),))
    target, distractor = (_number(row[column], f"{where}: {column}") for column in PROBABILITIES)
    if not math.isfinite(target) or not math.isfinite(distractor):
        return record, Answer(name, "failed", why="a probability is not a number")
    if is_right != (target > distractor):
        raise ValueError(f"{where}: result is {is_right}, but the probabilities are {target} and {distractor}")
    return record, Answer(name, "scored", (target,), (distractor,))


def _literal(text: str, where: str) -> Any:
    """A relationship in Python's notation for dictionaries, parsed as a literal and never executed."""
    if len(text) > MAX_RELATION_LENGTH:
        raise ValueError(f"{where}: has more than {MAX_RELATION_LENGTH:,} characters")
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(f"{where}: is not a dictionary in Python's notation") from None


def _boolean(text: str, where: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{where}: {text[:20]!r} is neither True nor False")
    return text.lower() == "true"


def _number(text: str, where: str) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        raise ValueError(f"{where}: {text[:20]!r} is not a number") from None


def write_results(
    path: Path | str, records: Sequence[Triplet], answers: Sequence[Answer], model: str, cropped: bool
) -> None:
    """Write answers to the triplets of an evaluation set as a result file with the published columns, in their order
    and number format.

    Writing what `read_results` read restores a published file byte for byte; a file of that name is replaced.
    A triplet that was not scored has no result and no probabilities. result_separate: the share of the
    two sentences on the right side of a probability of 0.5; result_strict: whether both are.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record, answer in zip(records, answers, strict=True):
        writer.writerow([*(record[key] for key in KEYS), *_result_values(answer), cropped, model])
    write_files(Path(path).parent, {Path(path).name: text.getvalue().encode()})


def _result_values(answer: Answer) -> list[Any]:
    if answer.status != "scored":
        return [""] * 5
    (target,), (distractor,) = answer.positives, answer.negatives
    sides = target >= 0.5, distractor < 0.5
    return [target > distractor, sum(sides) / 2, all(sides), float(target), float(distractor)]


def pairs_of(records: Sequence[Triplet]) -> list[tuple[int, int]]:
    """The indices of both triplets of each pair. If ids count from 0 without a gap, each two in a row are a pair; in a
    file with some of the triplets, such as human answers, triplets 2k and 2k + 1 that exchange their sentences."""
    ids = [record["id"] for record in records]
    if ids == list(range(len(ids))):
        return [(first, first + 1) for first in range(0, len(ids) - 1, 2)]
    index = {one: number for number, one in enumerate(ids)}
    pairs = [(index[one], index[one + 1]) for one in ids if one % 2 == 0 and one + 1 in index]
    return [(a, b) for a, b in pairs if _mirrored(records[a], records[b])]
