"""Corpora of both kinds from our own scenes, with exact truth: `build`, `read` and `truths`.

A folder holds images/, the files that the published corpora have (a checklist: corpus/v1/<TYPE>/<name>.yaml and
data/<TYPE>/<name>.json; predicates and nouns: eval_set.json, and crops beside their pictures), items.jsonl with ids,
pairs, objects, logical forms and grades, and manifest.json. An unfinished folder also has `.travlr`; the same command
continues it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from analysis.probe.corpora.items import KINDS, Corpus
from analysis.probe.folders import is_begun, put_files, read_object
from analysis.probe.scenes import drawing, records
from analysis.probe.scenes.drawing import CANVAS, CELL
from analysis.probe.scenes.records import IMAGES
from analysis.probe.scenes.scene_pairs import FORMAT_VERSION, PAIR_KINDS, PairKind
from travlr import files
from travlr.cli import Log
from travlr.files import WORK, put_file, regular
from travlr.workers import Progress, run

T = TypeVar("T")
COUNTS = {"checklist": 3600, "predicate_noun": 2584}  # records by default
MIN_COUNT = {"checklist": 144, "predicate_noun": 6}
MAX_COUNT = 1_000_000
CHUNK_PAIRS = 64  # pairs per chunk
SINGLE_PROCESS_RECORDS = 1000  # records; for fewer, further processes do not pay off
MANIFEST, ITEMS, CONFIG = "manifest.json", "items.jsonl", f"{WORK}/job.json"
NOTES = {
    "checklist": (
        "Attribute/action, Attribute/material, Attribute/state and Relation/action are left out: static flat shapes "
        "show no actions, materials or states.",
        "Grades: N1 a word that nothing in the picture shows, N2 words that are all shown but do not belong together, "
        "N3 the same words in another order. Each grade has files of its own: grid_absent, grid, grid_swap.",
        "Circles, octagons and hexagons look alike when small: none is ever shown or named against another.",
        "Size and place tell nothing of N2 and N3: salience rules have half of the items and no pair. Of N1 they have "
        "all, as has whatever knows which words are shown. N2 asks no large square for its colour: nothing is larger.",
    ),
    "predicate_noun": (
        "Nouns are shapes and predicates colours: static flat shapes show no actions.",
        "All four words are shown in both pictures of a pair; a crop shows the target alone.",
        "Size and place tell nothing in whole pictures: salience rules have half of the items and no pair. No large "
        "square is asked for its predicate: nothing is larger.",
    ),
}


@dataclass(frozen=True)
class ScenesConfig:
    """The settings of a corpus. count: records, two for each pair. Raises `ValueError` for impossible settings."""

    kind: str = "checklist"
    seed: int = 0
    count: int = COUNTS["checklist"]

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind}: choose one of {', '.join(KINDS)}")
        least = MIN_COUNT[self.kind]
        if self.count % 2 or not least <= self.count <= MAX_COUNT:
            raise ValueError(f"count={self.count}: must be even (an item and its mirror), {least} to {MAX_COUNT:,}")

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


def build(
    folder: str | os.PathLike[str],
    seed: int = 0,
    count: int | None = None,
    kind: str = "checklist",
    workers: int = 0,
    log: Log = print,
) -> Corpus:
    """Build a corpus in a folder, or what is missing of it. The same seed gives the same bytes.

    workers: processes, 0 for one per core. Raises `ValueError` for a wrong setting, and for a folder that holds
    other files or is being written by another process.
    """
    config = ScenesConfig(kind, seed, COUNTS.get(kind, 0) if count is None else count)
    place = Path(folder)
    _check(place, config)
    if (place / WORK).exists() or not _is_whole(place):
        with files.locked(place):
            _check(place, config)
            if not _is_whole(place):
                put_file(place, CONFIG, [_text(config.fingerprint)])
                _make(place, config, workers, log)
                _finish(place, config)
            files.close(place)
    return read(place)


def _text(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"


def _check(folder: Path, config: ScenesConfig) -> None:
    """Raise `ValueError` where the folder holds something else than this corpus."""
    is_begun(folder, (MANIFEST, CONFIG), config.fingerprint, "probe corpus")


# Building ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CorpusPart:
    """A range of pairs of one kind. unit: the kind's index. first: number of records of other kinds before it in the
    file."""

    number: int
    unit: int
    first: int
    start: int
    stop: int

    @property
    def record(self) -> str:
        return f"{WORK}/parts/{self.number:06d}.jsonl"


def _parts(config: ScenesConfig) -> list[CorpusPart]:
    parts: list[CorpusPart] = []
    first = 0
    for number, (_, pairs) in enumerate(config.pairs()):
        for start in range(0, pairs, CHUNK_PAIRS):
            parts.append(CorpusPart(len(parts), number, first, start, min(start + CHUNK_PAIRS, pairs)))
        first += 2 * pairs * (config.kind == "predicate_noun")  # whose units share one file
    return parts


@dataclass(frozen=True)
class ChunkWriter:
    """Writes the pictures of a chunk and, last, its lines of `items.jsonl`, which mark it as finished."""

    folder: Path
    config: ScenesConfig

    def __call__(self, part: CorpusPart) -> int:
        unit = PAIR_KINDS[self.config.kind][part.unit]
        lines = []
        for index in range(part.start, part.stop):
            pair = unit.pair(self.config.seed, index)
            for which in (0, 1):
                line, pictures = records.describe(unit, pair, part.first + 2 * index + which)
                for name, data in pictures.items():
                    if index == part.start:
                        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                    put_file(self.folder, name, [data], sync=False)
                hashes = {name: hashlib.sha256(data).hexdigest() for name, data in pictures.items()}
                lines.append(json.dumps({**line, "sha256": hashes}) + "\n")
        put_file(self.folder, part.record, [line.encode() for line in lines])
        return len(lines)


def _make(folder: Path, config: ScenesConfig, workers: int, log: Log) -> None:
    parts = _parts(config)
    (folder / WORK / "parts").mkdir(parents=True, exist_ok=True)
    missing = [part for part in parts if not _is_made(folder, part)]
    if len(missing) < len(parts):
        log(f"{folder}: {len(parts) - len(missing)} of {len(parts)} parts are there; continuing with the others")
    total = 2 * sum(part.stop - part.start for part in missing)
    workers = 1 if workers == 0 and total <= SINGLE_PROCESS_RECORDS else workers
    with (
        Progress(total, log, "records") as progress,
        contextlib.closing(run(ChunkWriter(folder, config), missing, workers)) as results,
    ):
        for _, lines in results:
            progress.advance(lines)


def _is_made(folder: Path, part: CorpusPart) -> bool:
    try:
        lines = _lines(folder / part.record)
    except (OSError, ValueError):
        return False
    return len(lines) == 2 * (part.stop - part.start) and _has_pictures(folder, lines)


def _lines(path: Path) -> list[dict[str, Any]]:
    with open(regular(path), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _has_pictures(folder: Path, lines: Sequence[dict[str, Any]]) -> bool:
    """Whether all pictures exist, with the right contents."""
    for line in lines:
        for name, digest in line["sha256"].items():
            try:
                if hashlib.sha256(regular(folder / name).read_bytes()).hexdigest() != digest:
                    return False
            except OSError:
                return False
    return True


# Finishing -----------------------------------------------------------------------------------------------------------


def _finish(folder: Path, config: ScenesConfig) -> None:
    """Write the files with all records and, last, the manifest."""
    from travlr.formats.manifest import versions  # pyarrow is slow to import, and workers do not need it

    lines = [line for part in _parts(config) for line in _lines(folder / part.record)]
    written = {ITEMS: b"".join(json.dumps(line).encode() + b"\n" for line in lines)}
    written |= records.published(lines)
    put_files(folder, written)
    corpus = _corpus(folder, config.kind, lines)
    pictures = hashlib.sha256("".join(d for line in lines for d in line["sha256"].values()).encode())
    counts = Counter((item.axis, item.source) for item in corpus.items)
    manifest = {
        **config.fingerprint,
        "canvas": CANVAS,
        "cell": CELL,
        "sides": drawing.SIDES,
        "records": len(lines),
        "counts": {f"{axis}/{source}" if source else axis: number for (axis, source), number in counts.items()},
        "notes": NOTES[config.kind],
        "digest": corpus.digest,
        "pictures": pictures.hexdigest(),
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(written.items())},
        "versions": versions(),
    }
    put_file(folder, MANIFEST, [_text(manifest)])


# Reading -------------------------------------------------------------------------------------------------------------


def _is_whole(folder: Path) -> bool:
    """Whether a finished corpus has all its files, with the right contents."""
    if not (folder / MANIFEST).is_file():
        return False
    try:
        for name, digest in read_object(folder / MANIFEST)["files"].items():
            if hashlib.sha256(regular(folder / name).read_bytes()).hexdigest() != digest:
                return False
        return _has_pictures(folder, _lines(folder / ITEMS))
    except (OSError, KeyError, ValueError):
        return False


def read(folder: str | os.PathLike[str]) -> Corpus:
    """Read a corpus that `build` has finished. Raises `ValueError` for any other folder."""
    place = Path(folder)
    if not (place / MANIFEST).is_file():
        raise ValueError(f"{folder}: no finished probe corpus; make it with build")
    manifest = read_object(place / MANIFEST)
    if manifest.get("format") != "travlr probe" or manifest.get("kind") not in KINDS:
        raise ValueError(f"{folder}: not a probe corpus")
    return _from_lines(place, lambda lines: _corpus(place, manifest["kind"], lines))


def _from_lines(folder: Path, make: Callable[[list[dict[str, Any]]], T]) -> T:
    """Apply `make` to the lines of a corpus. Raises `ValueError` where they are missing or damaged."""
    try:
        return make(_lines(folder / ITEMS))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{folder / ITEMS}: missing or damaged; build the corpus again to mend it") from None


def _corpus(folder: Path, kind: str, lines: Sequence[dict[str, Any]]) -> Corpus:
    """The corpus of `checklist.read_corpus` and `predicate_noun.read_set`, with more labels."""
    pictures = folder if kind == "checklist" else folder / IMAGES
    return Corpus("scenes", kind, tuple(map(records.item_of, lines)), pictures, NOTES[kind])


def truths(corpus: Corpus) -> dict[str, records.SceneTruth]:
    """Ground truth by item, for corpora from scenes; empty for others. Raises `ValueError` for a damaged file."""
    if corpus.pictures is None:
        return {}
    for folder in (corpus.pictures, corpus.pictures.parent):
        if (folder / MANIFEST).is_file() and (folder / ITEMS).is_file():
            return _from_lines(folder, lambda lines: {line["id"]: records.truth_of(line) for line in lines})
    return {}
