"""Corpora of both kinds from our own scenes, with exact truth: `build`, `read` and `truths`.

A folder holds images/, the files that the published corpora have (a checklist: corpus/v1/<TYPE>/<name>.yaml and
data/<TYPE>/<name>.json; predicates and nouns: eval_set.json, and crops beside their pictures), items.jsonl with ids,
pairs, objects, logical forms and grades, and, written last, manifest.json.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from analysis.probe.corpora import checklist, predicate_noun
from analysis.probe.corpora.items import Corpus
from analysis.probe.folders import read_json_file
from analysis.probe.scenes import drawing, records
from analysis.probe.scenes.drawing import CANVAS, CELL
from analysis.probe.scenes.records import SceneRecord
from analysis.probe.scenes.scene_pairs import FORMAT_VERSION, PAIR_KINDS, PairKind, PairMember
from travlr.files import put_file
from travlr.settings import Log
from travlr.workers import Progress, run_in_processes

COUNTS = {"checklist": 3600, "predicate_noun": 2584}  # records by default
MIN_COUNT = {"checklist": 144, "predicate_noun": 6}
MAX_COUNT = 1_000_000
CHUNK_PAIRS = 64  # pairs that a process makes at a time
SINGLE_PROCESS_RECORDS = 1000  # records; for fewer, further processes do not pay off
MANIFEST, ITEMS = "manifest.json", "items.jsonl"
NOTES = {
    "checklist": (
        "Attribute/action, Attribute/material, Attribute/state and Relation/action are left out: static flat shapes "
        "show no actions, materials or states.",
        "Grades: N1 a word that nothing in the picture shows, N2 words that are all shown but do not belong together, "
        "N3 the same words in another order. Each grade has files of its own: grid_absent, grid, grid_swap.",
        "Circles, octagons and hexagons look alike when small, so they are never compared with each other.",
        "In N2 and N3 size and place do not tell which sentence is true: salience rules have half of the items right "
        "and no pair. In N1 they have all items right, as does any rule that knows which words are shown. N2 does not "
        "ask for the colour of large squares, because no object is larger.",
    ),
    "predicate_noun": (
        "Nouns are shapes and predicates colours: static flat shapes show no actions.",
        "All four words are shown in both pictures of a pair; a crop shows the target alone.",
        "In whole pictures size and place do not tell which sentence is true: salience rules have half of the items "
        "right and no pair. The predicate of large squares is never asked for, because no object is larger.",
    ),
}


@dataclass(frozen=True)
class ScenesConfig:
    """The settings of a corpus. kind: checklist or predicate_noun. count: records, two for each pair.

    Raises `ValueError` for an impossible count.
    """

    kind: str = "checklist"
    seed: int = 0
    count: int = COUNTS["checklist"]

    def __post_init__(self) -> None:
        least = MIN_COUNT[self.kind]
        if self.count % 2 or not least <= self.count <= MAX_COUNT:
            raise ValueError(f"count={self.count}: must be even (an item and its partner), {least} to {MAX_COUNT:,}")

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The settings as the manifest has them."""
        return {"format": "travlr probe", "format_version": FORMAT_VERSION, **asdict(self)}

    def pairs(self) -> list[tuple[PairKind, int]]:
        """The number of pairs of each kind."""
        units, total = PAIR_KINDS[self.kind], self.count // 2
        if self.kind == "predicate_noun":
            first = round(total * units[0].weight / sum(unit.weight for unit in units))
            return [(units[0], first), (units[1], total - first)]
        # A multiple of 3 for kinds of objects, so that the nine classes of location and size are balanced.
        each = 3 * (total // (3 * sum(unit.weight for unit in units)))
        others = [unit for unit in units if unit.weight > 1]
        rest = total - each * (len(units) - len(others))
        shares = {id(unit): (rest + n) // len(others) for n, unit in enumerate(others)}
        return [(unit, shares.get(id(unit), each)) for unit in units]


def build_corpus(
    folder: str | os.PathLike[str],
    seed: int = 0,
    count: int = COUNTS["checklist"],
    kind: str = "checklist",
    workers: int = 0,
    log: Log = print,
) -> None:
    """Build a corpus in a folder, unless the folder has it already. The same seed gives the same bytes.

    workers: processes, 0 for one per core. Raises `ValueError` for a wrong setting, and for a folder that holds
    another corpus.
    """
    config = ScenesConfig(kind, seed, count)
    place = Path(folder)
    if not (place / MANIFEST).exists():
        place.mkdir(parents=True, exist_ok=True)
        _write_corpus(place, config, workers, log)
    elif not config.fingerprint.items() <= read_json_file(place / MANIFEST).items():
        raise ValueError(f"{place}: holds another probe corpus; name another folder")


def _text(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"


# Building ------------------------------------------------------------------------------------------------------------

Chunk = tuple[int, int]
"""The index of a kind of pairs, and its first pair in the chunk."""


def _write_chunk(folder: Path, config: ScenesConfig, chunk: Chunk) -> list[SceneRecord]:
    """Write the pictures of a chunk. Returns its records."""
    number, start = chunk
    counts = config.pairs()
    unit, pairs = counts[number]
    share_file = config.kind == "predicate_noun"  # all kinds of pairs
    before = 2 * sum(pairs for _, pairs in counts[:number]) if share_file else 0  # records
    lines = []
    for index in range(start, min(start + CHUNK_PAIRS, pairs)):
        pair = unit.pair(config.seed, index)
        for which in (0, 1):
            record, pictures = records.describe(unit, pair, before + 2 * index + which)
            for name, data in pictures.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                put_file(folder / name, data)
            lines.append({**record, "sha256": {name: _digest(data) for name, data in pictures.items()}})
    return lines


def _write_corpus(folder: Path, config: ScenesConfig, workers: int, log: Log) -> None:
    """Write the pictures, then the files with all records and, last, the manifest."""
    from travlr.formats.manifest import versions  # pyarrow is slow to import, and workers do not need it

    workers = 1 if workers == 0 and config.count <= SINGLE_PROCESS_RECORDS else workers
    chunks = [(n, start) for n, (_, pairs) in enumerate(config.pairs()) for start in range(0, pairs, CHUNK_PAIRS)]
    records_in_order: list[SceneRecord] = []
    work = functools.partial(_write_chunk, folder, config)
    with Progress(config.count, log, "records") as progress:
        for chunk_records in run_in_processes(work, chunks, workers):
            records_in_order += chunk_records
            progress.advance(len(chunk_records))
    lines = json.loads(json.dumps(records_in_order))  # with the types that a reader gets
    contents = {ITEMS: b"".join(json.dumps(line).encode() + b"\n" for line in lines), **records.publish_items(lines)}
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        put_file(folder / name, data)
    items = tuple(map(records.make_item, lines))
    counts = Counter((item.axis, item.source) for item in items)
    manifest = {
        **config.fingerprint,
        "canvas": CANVAS,
        "cell": CELL,
        "sides": drawing.SIDES,
        "records": len(lines),
        "counts": {f"{axis}/{source}" if source else axis: number for (axis, source), number in counts.items()},
        "notes": NOTES[config.kind],
        "digest": Corpus("scenes", config.kind, items, None).digest,
        "pictures": _digest("".join(d for line in lines for d in line["sha256"].values()).encode()),
        "files": {name: _digest(data) for name, data in sorted(contents.items())},
        "versions": versions(),
    }
    put_file(folder / MANIFEST, _text(manifest))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# Reading -------------------------------------------------------------------------------------------------------------


def _lines(folder: Path) -> list[SceneRecord]:
    with open(folder / ITEMS, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_corpus(
    folder: Path,
    kind: str,
    types: Sequence[str] | None = None,
    data: Sequence[str] | None = None,
    template: str = "normal",
    cropped: bool = False,
) -> Corpus:
    """Read a corpus that `build` has finished, as a published one, with our labels and notes. types, data: of a
    checklist, as of `read_corpus`; template, cropped: of triplets, as of `read_set`. Raises `ValueError` as they do."""
    if kind == "checklist":
        corpus = checklist.read_corpus(folder, types, data)
    else:
        corpus = predicate_noun.read_set(folder, template, cropped)
        labels = {line["id"]: line["labels"] for line in _lines(folder)}
        items = tuple(replace(item, labels={**labels[item.id], **item.labels}) for item in corpus.items)
        corpus = replace(corpus, items=items)
    return replace(corpus, notes=NOTES[kind])


def truths(corpus: Corpus) -> dict[str, PairMember]:
    """Ground truth by item, for corpora from scenes; empty for others. Raises `ValueError` for a damaged file."""
    if corpus.pictures is None:
        return {}
    for folder in (corpus.pictures, corpus.pictures.parent):
        if (folder / MANIFEST).is_file() and (folder / ITEMS).is_file():
            return {line["id"]: records.truth_of(line) for line in _lines(folder)}
    return {}
