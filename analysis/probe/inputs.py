"""The corpora that the setting `corpus` names: built, read and sampled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from analysis.probe.config import SCENES, Probe
from analysis.probe.corpora import checklist, predicate_noun
from analysis.probe.corpora.items import KINDS, Corpus, Missing, Unreadable, find_picture
from analysis.probe.corpora.selection import answerable, count_text, first_sentences, head, is_there, sample
from travlr.settings import Log, as_written

SCENES_FOLDER = "data/probes"  # of our own corpora
CORPORA = f"give {SCENES}, {', '.join(KINDS)}, or a folder or file of a corpus"


@dataclass(frozen=True)
class ProbeInput:
    """A corpus, and the settings with which it is probed (a run file may change them)."""

    corpus: Corpus
    config: Probe


def probe_inputs(config: Probe, log: Log) -> Iterator[ProbeInput]:
    """The inputs that `config.corpus` names, without unanswerable items, and sampled. Raises `ValueError`."""
    for one in _read(config, log):
        corpus = one.corpus
        if not corpus.items:
            raise ValueError(
                f"corpus={config.corpus}: has no items; {'; '.join(corpus.notes) or 'is it the right one?'}"
            )
        limit = one.config.limit
        if config.rules == "corrected":
            corpus = sample(answerable(corpus), limit, config.seed)
        else:
            corpus = first_sentences(head(corpus, limit and 2 * limit, one.config.effective_task))
        yield replace(one, corpus=corpus)


def _read(config: Probe, log: Log) -> Iterator[ProbeInput]:
    name, path = config.corpus, Path(config.corpus).expanduser()
    if name in (SCENES, *KINDS):
        for kind in KINDS if name == SCENES else (name,):
            yield ProbeInput(_scenes(kind, config, log), config)
    elif not path.exists():
        raise ValueError(f"corpus={name}: is not there; {CORPORA}")
    elif path.suffix in (".yaml", ".yml"):
        folder = next((f for f in (Path(), *path.resolve().parents) if (f / checklist.TREE).is_dir()), Path())
        config = _with_run_file(path, config, log)
        yield ProbeInput(checklist.read_corpus(folder, config.types, config.data, config.images), config)
    elif (path / checklist.TREE).is_dir():
        yield ProbeInput(checklist.read_corpus(path, config.types, config.data, config.images), config)
    elif path.suffix == ".json" or (path / predicate_noun.SET).is_file():
        yield ProbeInput(predicate_noun.read_set(path, config.template, config.cropped, config.images), config)
    else:
        lacks = f"it has neither {checklist.TREE} nor {predicate_noun.SET}"
        raise ValueError(f"corpus={name}: is no corpus: {lacks}; {CORPORA}")


def _with_run_file(path: Path, config: Probe, log: Log) -> Probe:
    """The settings; those that are None are taken from a published run file."""
    run = checklist.read_run_file(path)
    log(f"{path}: OUTPUT and BATCH_SIZE are not read; results go to {config.out}")
    of_file = {
        "task": (run.task, "TASK"),
        "limit": (run.most and max(1, run.most // 2), "MAX_NUM"),
        "types": (tuple(run.types), "DATA.TYPES"),
        "data": (tuple(run.data), "DATA.TEST_DATA"),
    }
    for name, (value, key) in of_file.items():
        if (setting := getattr(config, name)) is not None and setting != value:
            log(f"{path}: {key} is not read, as {name}={as_written(setting)} is given")
    missing: dict[str, Any] = {name: value for name, (value, _) in of_file.items() if getattr(config, name) is None}
    return config.changed(**missing)


def _scenes(kind: str, config: Probe, log: Log) -> Corpus:
    """One of our own corpora, built where it is missing."""
    from analysis.probe.scenes import corpus as scenes
    from analysis.probe.scenes.scene_pairs import FORMAT_VERSION

    count = config.count or scenes.COUNTS[kind]
    folder = Path(SCENES_FOLDER) / f"{kind}-v{FORMAT_VERSION}-s{config.seed}-{count}"
    scenes.build_corpus(folder, config.seed, count, kind, log=log)
    corpus = scenes.read_corpus(folder, kind, config.types, config.data, config.template, config.cropped)
    condition = f"{', alt' * (config.template == 'alt')}{', cropped' * config.cropped}" * (kind == "predicate_noun")
    return replace(corpus, name=f"{SCENES}-{kind}{condition}")


# Checks --------------------------------------------------------------------------------------------------------------


def check_inputs(config: Probe, inputs: Sequence[ProbeInput]) -> None:
    """Raise `ValueError` for a setting that the corpora do not use, and for pictures whose regions are ambiguous."""
    kinds = {one.corpus.kind for one in inputs}
    own = config.corpus in (SCENES, *KINDS)
    for useless, names, why in (
        ("checklist" not in kinds, ("types", "data"), "has no types and data"),
        ("predicate_noun" not in kinds, ("template", "cropped"), "has no templates and crops"),
        (own, ("images",), "is made with its pictures"),
        (not own, ("count",), "is there already"),
    ):
        unusual = [name for name in names if getattr(config, name) != getattr(Probe(), name)]
        if useless and unusual:
            value = as_written(getattr(config, unusual[0]))
            raise ValueError(f"{unusual[0]}={value}: corpus={config.corpus} {why}; leave it out")
    if config.regions.source == "file":
        for one in inputs:
            _check_file_names(str(config.regions.file), one.corpus)


def _check_file_names(file: str, corpus: Corpus) -> None:
    """Raise `ValueError` where two different pictures have one name, by which their regions are looked up.

    Equal pictures may share regions: some of VL-CheckList's HAKE pictures are Visual Genome's, under the same number.
    Pictures that cannot be read need no regions.
    """
    by_name: dict[str, list[str]] = {}
    for image in dict.fromkeys(item.image for item in corpus.items if corpus.pictures):
        by_name.setdefault(PurePosixPath(image).stem, []).append(image)
    for images in by_name.values():
        contents: dict[bytes, str] = {}
        for image in images if len(images) > 1 else ():
            with contextlib.suppress(Missing, Unreadable, OSError):
                contents.setdefault(find_picture(corpus.pictures or Path(), image).read_bytes(), image)
        if len(contents) > 1:
            one, other, *_ = contents.values()
            raise ValueError(
                f"regions.file={file}: finds regions by the names of pictures, and {one} and {other} "
                f"of {corpus.name} have one name; rename one"
            )


def pictures_text(one: ProbeInput, needed: bool) -> str:
    """How many pictures a corpus has, and how many of them exist. Raises `ValueError` if none exists but a model needs
    them."""
    images = {item.image for item in one.corpus.items}
    present = sum(is_there(one.corpus.pictures, image) for image in images)
    if needed and not present:
        where = f"in {one.corpus.pictures}" if one.corpus.pictures else "with it"
        raise ValueError(f"corpus={one.config.corpus}: none of its pictures is {where}; give images=FOLDER")
    return count_text(len(images), "picture") + f", of which {present:,} are there" * (present < len(images))
