"""`probe(config, scorer=…) -> results`: corpora are made or read, models loaded, answers scored, measured and reported.

OUT/CORPUS-MODEL-HASH/   a run: config.json, answers.jsonl, a result, and the answers to other pictures
OUT/CORPUS-floors-HASH/  what is reached without a model
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from analysis.probe.config import SCENES, Probe, written
from analysis.probe.corpora.items import KINDS, Answer, Corpus, Missing, Scorer, Unreadable
from analysis.probe.corpora.selection import answerable, counted, firsts, head, is_there, sample
from analysis.probe.report import report, tables
from analysis.probe.report.metrics import TOLERANCES, Line, measure
from analysis.probe.report.results import Result, save_result
from analysis.probe.scorers.models import Model, models, regions_of
from analysis.probe.scorers.scoring import ANSWERS, forget, hash_of, keep, kept, read, read_config, score
from train.results.provenance import CODE, provenance
from train.results.store import run_id
from travlr.cli import Log
from travlr.files import Locked

SCENES_FOLDER = "data/probes"  # of our own corpora


@dataclass(frozen=True)
class Given:
    """A corpus, the settings that it changes, and the answers where they are there already, with the model's name.

    records: of the predicate-noun study, as its files have them.
    """

    corpus: Corpus
    config: Probe
    records: tuple[dict[str, Any], ...] = ()
    answers: tuple[Answer, ...] | None = None
    model: str = ""


def probe(config: Probe, scorer: Scorer | None = None, log: Log = print) -> list[Result]:
    """All runs that a config asks for; the report on everything in `config.out` is written at the end.

    scorer: a function (images, texts) -> scores to ask beside the models that are named. Its name is its attribute
    `name`, else that of the function; a run is known by that and by its code, so one that holds other weights needs
    another name. Raises `ValueError`, in one line, for what cannot be had, after all else is done; with `strict`, also
    where anything was not scored.
    """
    failures: list[str] = []
    _check_out(Path(config.out))
    waiting = models(config, scorer, failures)
    model = next(waiting, None)  # a wrong name is told before anything long begins
    if model is None and failures:
        raise ValueError(failures[0])
    corpora = list(_corpora(config, log))
    if scorer is not None and any(one.answers is not None for one in corpora):
        raise ValueError(f"scorer: corpus={config.corpus} holds answers, measured as they are; leave it out")
    _check(config, corpora)
    results: list[Result] = []
    for one in corpora:
        log(f"{one.corpus.name}: {counted(len(one.corpus.items), 'item')}, {_pictures(one, model is not None)}")
        measured = {(result.corpus["name"], result.corpus["digest"]) for result in results}
        if config.floors and (one.corpus.name, one.corpus.digest) not in measured:  # models may share a corpus
            try:
                results.append(_floors(one))
            except Locked:
                log(f"{one.corpus.name}: another process is at its floors")
        if one.answers is not None:
            results.append(_kept(one))
    while model is not None:
        for one in (one for one in corpora if one.answers is None):
            try:
                results.append(_run(one, model, log))
            except ValueError as error:
                failures.append(str(error))
        model = None  # so that it leaves the memory before the next is loaded
        model = next(waiting, None)
    shown = {result.name for result in results}
    for group in report.write(Path(config.out)):
        if shown & {result.name for result in group.results}:
            log("\n" + tables.printed(group))
    _check_scored(config, corpora, results, failures)
    return results


def _pictures(one: Given, needed: bool) -> str:
    """How many pictures a corpus has, and how many of them are there. Raises `ValueError` where none is and a model
    needs them."""
    images = {item.image for item in one.corpus.items}
    if one.answers is not None:
        return counted(len(images), "picture")
    there = sum(is_there(one.corpus.pictures, image) for image in images)
    if needed and not there:
        where = f"in {one.corpus.pictures}" if one.corpus.pictures else "with it"
        raise ValueError(f"corpus={one.config.corpus}: none of its pictures is {where}; give images=FOLDER")
    return counted(len(images), "picture") + f", of which {there:,} are there" * (there < len(images))


def _check_scored(config: Probe, corpora: Sequence[Given], results: Sequence[Result], failures: list[str]) -> None:
    """Raise `ValueError` for what failed, and where nothing was scored; with `strict`, where not all was."""
    lines = {result.name: result.coverage for result in results if result.coverage}
    for name, line in lines.items():
        if not line.scored:
            failures.append(f"{name}: nothing was scored, {line.coverage} (see its {ANSWERS})")
    if failures:
        raise ValueError(f"{failures[0]}{f' (and {len(failures) - 1} more)' if len(failures) > 1 else ''}")
    for name, line in lines.items():
        if config.strict and line.scored < line.total:
            raise ValueError(f"strict=true: {name}: {line.coverage}")
    if config.strict and (refused := [line for one in corpora for line in one.corpus.refused]):
        raise ValueError(f"strict=true: left out of the corpus: {len(refused):,}; the first is {refused[0]}")


def _check_out(out: Path) -> None:
    """Raise `ValueError` where results cannot be written, before anything long begins."""
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        why = "cannot be written to" if there.is_dir() else "is a file"
        raise ValueError(f"out={out}: {there} {why}; name another folder")


def _check(config: Probe, corpora: Sequence[Given]) -> None:
    """Raise `ValueError` for a setting that the corpora have no use for, and for pictures that regions cannot tell."""
    kinds = {one.corpus.kind for one in corpora}
    own, answered = config.corpus in (SCENES, *KINDS), any(one.answers is not None for one in corpora)
    for useless, names, why in (
        (answered, ("model", "images", "limit", "template", "cropped"), "holds answers, measured as they are"),
        ("checklist" not in kinds, ("types", "data"), "has no types and data"),
        ("predicate_noun" not in kinds, ("template", "cropped"), "has no templates and crops"),
        (own, ("images",), "is made with its pictures"),
        (not own, ("count",), "is there already"),
    ):
        given = [name for name in names if getattr(config, name) != getattr(Probe(), name)]
        if useless and given:
            value = written(getattr(config, given[0]))
            raise ValueError(f"{given[0]}={value}: corpus={config.corpus} {why}; leave it out")
    for one in corpora:
        _check_names(config, one.corpus)


def _check_names(config: Probe, corpus: Corpus) -> None:
    """Raise `ValueError` where two pictures that differ would be given the same regions. Equal ones share them: some of
    VL-CheckList's HAKE are Visual Genome's, under the same number."""
    if config.regions.source != "file" or corpus.pictures is None:
        return
    named: dict[str, str] = {}
    for image in dict.fromkeys(item.image for item in corpus.items):
        other = named.setdefault(PurePosixPath(image).stem, image)
        if other != image and not _alike(corpus.pictures, other, image):
            raise ValueError(
                f"regions.file={config.regions.file}: finds regions by the names of pictures, and {other} and {image} "
                f"of {corpus.name} have one name; rename one"
            )


def _alike(folder: Path, one: str, other: str) -> bool:
    """Whether two pictures are equal, or one of them cannot be read, and so has no regions."""
    try:
        return hash_of(folder, one) == hash_of(folder, other)
    except (Missing, Unreadable, OSError):
        return True


# Corpora -------------------------------------------------------------------------------------------------------------


def _corpora(config: Probe, log: Log) -> Iterator[Given]:
    """What the setting `corpus` names, without the items that cannot be answered right, and sampled."""
    for one in _read(config, log):
        corpus = one.corpus
        if not corpus.items:
            raise ValueError(
                f"corpus={config.corpus}: has no items; {'; '.join(corpus.notes) or 'is it the right one?'}"
            )
        limit = one.config.limit
        if one.answers is None and config.rules == "corrected":
            corpus = sample(answerable(corpus), limit, config.seed)
        elif one.answers is None:
            corpus = firsts(head(corpus, limit and 2 * limit, one.config.asked))
        yield replace(one, corpus=corpus)


def _read(config: Probe, log: Log) -> Iterator[Given]:
    from analysis.probe.corpora import checklist, predicate_noun

    name, path = config.corpus, Path(config.corpus).expanduser()
    if name in (SCENES, *KINDS):
        for kind in KINDS if name == SCENES else (name,):
            corpus = _scenes(kind, config, log)
            folder = corpus.pictures.parent if corpus.pictures and kind == "predicate_noun" else None
            yield Given(corpus, config, tuple(predicate_noun.read_records(folder)) if folder else ())
    elif path.suffix in (".yaml", ".yml"):
        folder = next((f for f in (Path(), *path.resolve().parents) if (f / checklist.TREE).is_dir()), Path())
        config = _as_file(path, config, log)
        yield Given(checklist.read_corpus(folder, config.types, config.data, config.images), config)
    elif path.suffix == ".csv" and not path.is_dir():
        yield from _of_results([path], config)
    elif (path / checklist.TREE).is_dir():
        yield Given(checklist.read_corpus(path, config.types, config.data, config.images), config)
    elif path.suffix == ".json" or (path / predicate_noun.SET).is_file():
        corpus = predicate_noun.read_set(path, config.template, config.cropped, config.images)
        yield Given(corpus, config, tuple(predicate_noun.read_records(path)))
    elif files := predicate_noun.result_files(path):
        yield from _of_results(files, config)
    else:
        needs = f"is no corpus: it has neither {checklist.TREE} nor {predicate_noun.SET} nor result files (.csv)"
        what = needs if path.exists() else "is not there"
        raise ValueError(f"corpus={name}: {what}; give {SCENES}, {', '.join(KINDS)}, or a folder or file of a corpus")


def _of_results(files: Sequence[Path], config: Probe) -> Iterator[Given]:
    from analysis.probe.corpora.predicate_noun import results_corpora

    for one in results_corpora(files):
        yield Given(one.corpus, config, one.records, one.answers, one.model)


def _as_file(path: Path, config: Probe, log: Log) -> Probe:
    """What a published run file asks for, where a setting does not say otherwise."""
    from analysis.probe.corpora import checklist

    run = checklist.read_run(path)
    for key in run.unknown:
        log(f"{path}: {key}: means nothing in a run file")
    log(f"{path}: OUTPUT and BATCH_SIZE are not read; results go to {config.out}")
    asked = {
        "task": (run.task, "TASK"),
        "limit": (run.most and max(1, run.most // 2), "MAX_NUM"),
        "types": (list(run.types), "DATA.TYPES"),
        "data": (list(run.data), "DATA.TEST_DATA"),
    }
    for name, (value, key) in asked.items():
        if (typed := getattr(config, name)) is not None and typed != value:
            log(f"{path}: {key} is not read, as {name}={written(typed)} is given")
    told: dict[str, Any] = {name: value for name, (value, _) in asked.items() if getattr(config, name) is None}
    return replace(config, **told)


def _scenes(kind: str, config: Probe, log: Log) -> Corpus:
    """One of our own corpora, built where it is missing."""
    from analysis.probe.corpora import checklist, predicate_noun
    from analysis.probe.scenes import corpus as scenes
    from analysis.probe.scenes.layouts import FORMAT_VERSION

    count = config.count or scenes.COUNTS[kind]
    folder = Path(SCENES_FOLDER) / f"{kind}-v{FORMAT_VERSION}-s{config.seed}-{count}"
    corpus = scenes.build(folder, config.seed, count, kind, log=log)
    if kind == "checklist" and (config.types or config.data):
        corpus = replace(checklist.read_corpus(folder, config.types, config.data), notes=corpus.notes)
    if kind == "predicate_noun" and (config.template != "normal" or config.cropped):
        asked = predicate_noun.read_set(folder, config.template, config.cropped)
        labels = {item.id: item.labels for item in corpus.items}
        items = tuple(replace(item, labels={**labels[item.id], **item.labels}) for item in asked.items)
        corpus = replace(asked, items=items, notes=corpus.notes)
    condition = f"{', alt' * (config.template == 'alt')}{', cropped' * config.cropped}" * (kind == "predicate_noun")
    return replace(corpus, name=f"{SCENES}-{kind}{condition}")


# Runs ----------------------------------------------------------------------------------------------------------------


def _folder(out: str, corpus: Corpus, name: str, identity: Mapping[str, Any]) -> Path:
    said = re.sub(r"[^\w.-]+", "-", name.rstrip("/").rpartition("/")[2])[-40:].strip("-.")
    return Path(out) / f"{_slug(corpus.name)}-{said or 'model'}-{run_id(identity)}"


def _slug(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")[:40] or "corpus"


def _corpus_facts(corpus: Corpus) -> dict[str, Any]:
    facts = {"name": corpus.name, "kind": corpus.kind, "digest": corpus.digest, "items": len(corpus.items)}
    pictures = str(corpus.pictures) if corpus.pictures else ""  # where the report finds those of wrong items
    return {**facts, "notes": list(corpus.notes), "pictures": pictures}


def _surroundings(device: str = "") -> dict[str, Any]:
    gpus = []
    if device.startswith("cuda"):
        import torch

        gpus = [torch.cuda.get_device_name(device)]
    found = provenance(gpus, (*CODE, "analysis"))
    return {**found, "versions": json.loads(found["versions"])}


def _measuring(config: Probe, tolerance: float, threshold: float | None) -> dict[str, Any]:
    return {
        "task": config.asked,
        "rules": config.rules,
        "sentences": config.compared,
        "tolerance": 0.0 if config.rules == "published" else tolerance,
        "threshold": threshold,
        "seed": config.seed,
    }


def _measured(corpus: Corpus, answers: Sequence[Answer], measuring: Mapping[str, Any]) -> tuple[Line, ...]:
    how = {name: measuring[name] for name in ("sentences", "tolerance", "threshold", "seed")}
    return tuple(measure(corpus.items, answers, **how))


def _floors(one: Given) -> Result:
    """What is reached without a model: rules that see text alone, and on our own scenes those that see the pictures or
    know the truth."""
    from analysis.probe.report import baselines as floors

    corpus, config = one.corpus, one.config
    identity = {"corpus": corpus.name, "digest": corpus.digest, "model": "", "seed": config.seed}
    identity |= {"rules": config.rules, "sentences": config.compared}
    folder = _folder(config.out, corpus, "floors", identity)
    measuring = _measuring(config, TOLERANCES["float64"], None)
    begun = time.monotonic()
    found = floors.floors(corpus, config.seed)
    lines = {rule: _measured(corpus, answers, measuring) for rule, answers in found.items()}
    about = {**_surroundings(), "seconds": round(time.monotonic() - begun, 1)}
    with kept(folder, identity, about):
        pass
    result = Result(
        name=folder.name,
        corpus=_corpus_facts(corpus),
        model="",
        measuring=measuring,
        about=about,
        floors=lines,
        blind=tuple(rule for rule in found if rule not in (*floors.OF_SCENES, "random", "constant")),
    )
    save_result(folder, result)
    return result


def _kept(one: Given) -> Result:
    """Answers that were made elsewhere, measured."""
    assert one.answers is not None
    corpus, config = one.corpus, one.config
    said = [{name: value for name, value in asdict(a).items() if name != "yes_or_no"} for a in one.answers]
    answered = hashlib.sha256(json.dumps(said).encode()).hexdigest()
    identity = {"corpus": corpus.name, "digest": corpus.digest, "model": one.model, "answers": answered}
    folder = _folder(config.out, corpus, one.model, identity)
    about = {**_surroundings(), "read": Path(config.corpus).name}
    keep(corpus, one.answers, folder, identity, about)
    measuring = _measuring(config, 0.0, 0.5)  # probabilities, which are compared as they are
    return _finished(folder, one, one.model, measuring, one.answers, {}, about)


def _run(one: Given, model: Model, log: Log) -> Result:
    """A model asked a corpus, and as floors the same with a blank picture and with other items' pictures."""
    from analysis.probe.report import baselines as floors

    corpus, config = one.corpus, one.config
    threshold = model.threshold
    if config.asked == "itm" and threshold is None:
        raise ValueError(f"task=itm: {model.name} has no score above which a sentence matches; use task=itc")
    precision = getattr(model.scorer, "precision_name", "float32" if config.precision == "auto" else config.precision)
    told = {
        "weights": model.weights,
        "precision": precision,
        "head": config.head,
        "question": config.question,
        "size": config.size,
        "regions": regions_of(config.regions, model.name),
    }
    if prompt := getattr(model.scorer, "prompt", ""):
        told["prompt"] = prompt  # answers from before it was said may be to a question with two beginnings
    identity = {"corpus": corpus.name, "digest": corpus.digest, "model": model.name, **told}
    folder = _folder(config.out, corpus, model.name, identity)
    device = str(getattr(model.scorer, "device", config.device))
    about = {"device": device, "batch_size": config.batch_size, **_surroundings(device), **told}
    about |= {} if config.device_map is None else {"device_map": config.device_map}
    how: dict[str, Any] = {"batch_size": config.batch_size, "identity": identity, "about": about}
    how |= {"log": log}
    measuring = _measuring(config, TOLERANCES[precision], threshold)
    begun = time.monotonic()
    log(f"{folder}: {model.name}")
    if config.overwrite:
        forget(folder)
    answers = score(corpus, model.scorer, folder, **how)
    blindly: dict[str, list[Answer]] = {}
    if config.floors:
        log(f"{folder}: floors, a blank picture and other items' pictures")
        blindly["blank picture"] = score(corpus, floors.blank(model.scorer), folder, file="blank.jsonl", **how)
        if len({item.image for item in corpus.items}) > 1:
            other, file = floors.shuffled(corpus, config.seed), f"shuffled-s{config.seed}.jsonl"
            blindly["other items' pictures"] = score(other, model.scorer, folder, file=file, **how)
    for name, said in {"": answers, **{f"floor {name}: ": said for name, said in blindly.items()}}.items():
        if failed := [answer.why for answer in said if answer.status == "failed"]:
            log(f"{folder}: {name}failed at {counted(len(failed), 'item')}, first with: {failed[0]}")
    about = read_config(folder)["about"]  # of when it was first asked
    about["seconds since the last start"] = round(time.monotonic() - begun, 1)  # of earlier ones no one knows
    return _finished(folder, one, model.name, measuring, answers, blindly, about)


def _finished(
    folder: Path,
    one: Given,
    model: str,
    measuring: Mapping[str, Any],
    answers: Sequence[Answer],
    blindly: Mapping[str, Sequence[Answer]],
    about: Mapping[str, Any],
) -> Result:
    """Measure a run's answers and write its result."""
    seen = sorted({(record.item.image, record.picture) for record in read(folder / ANSWERS) if record.picture})
    pictures = hashlib.sha256(json.dumps(seen).encode()).hexdigest() if seen else ""
    lines = _measured(one.corpus, answers, measuring)
    why = next((f"{answer.status}: {answer.why}" for answer in answers if answer.status != "scored"), "")
    result = Result(
        name=folder.name,
        corpus=_corpus_facts(one.corpus),
        model=model,
        measuring=measuring,
        about={**about, "pictures": pictures},
        lines=lines,
        floors={name: _measured(one.corpus, found, measuring) for name, found in blindly.items()},
        averages=_averages(one.corpus, lines, measuring["task"]),
        unscored=why,
        yes_or_no=_mean([share for answer in answers for share in answer.yes_or_no]),
    )
    save_result(folder, result)
    if one.records and one.answers is None:
        _write_results(folder, one, model, answers, measuring["threshold"])
    return result


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _write_results(folder: Path, one: Given, model: str, answers: Sequence[Answer], threshold: float | None) -> None:
    """Answers in the columns of the predicate-noun study. A score becomes a probability: its own where it has a
    threshold, which is 0.5 then; else, as the study's CLIP has it, that of the two sentences of the item. Scores more
    than some 36 above the threshold all become 1 there, and so tie; they are whole in answers.jsonl."""
    from analysis.probe.corpora.predicate_noun import results_name, write_results

    def probability(score: float, other: float) -> float:
        return 1 / (1 + math.exp(min(700.0, (other if threshold is None else threshold) - score)))

    ids = {item.id for item in one.corpus.items}
    records = [record for record in one.records if str(record["id"]) in ids]
    said = [
        replace(answer, positives=(probability(true, false),), negatives=(probability(false, true),))
        for answer in answers
        for true, false in [(*answer.positives, *answer.negatives) or (0.0, 0.0)]
    ]
    path = folder / results_name(one.config.template, one.config.cropped)
    path.unlink(missing_ok=True)
    write_results(path, records, said, model, one.config.cropped)


def _averages(corpus: Corpus, lines: Sequence[Line], task: str) -> tuple[dict[str, Any], ...]:
    """The averages of VL-CheckList's paper: of accuracies over items or, of ITM, over sentences alone."""
    if corpus.kind != "checklist":
        return ()
    from analysis.probe.corpora.taxonomy import by_axis, paper_averages

    what, told = ("itm_accuracy", ", of ITM accuracies") if task == "itm" else ("single", "")
    found = {(line.by, line.value): value for line in lines if (value := getattr(line, what)) is not None}
    sources = {tuple(value.split(", ")): score for (by, value), score in found.items() if by == "axis and source"}
    axes = {value: score for (by, value), score in found.items() if by == "axis"}
    averages = paper_averages(by_axis({(axis, source): score for (axis, source), score in sources.items()}) or axes)
    return tuple({**asdict(average), "rule": f"{average.rule}{told}"} for average in averages)
