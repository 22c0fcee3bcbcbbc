"""One run: a model, the baselines or saved answers on one corpus, scored, measured and written to the run's folder.

OUT/CORPUS-MODEL-HASH/   config.json, answers.jsonl, a result, and the answers to other pictures
OUT/CORPUS-floors-HASH/  baselines that need no model
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from analysis.probe.config import Probe
from analysis.probe.corpora import predicate_noun
from analysis.probe.corpora.items import Answer, Corpus
from analysis.probe.corpora.selection import count_text
from analysis.probe.corpora.taxonomy import PaperAverage, by_axis, paper_averages
from analysis.probe.inputs import ProbeInput, corpus_facts
from analysis.probe.report import baselines
from analysis.probe.report.metrics import MetricRow, measure
from analysis.probe.report.outcomes import TOLERANCES
from analysis.probe.report.results import Result, save_result
from analysis.probe.scorers.loading import LoadedModel, regions_of
from analysis.probe.scorers.scoring import (
    ANSWERS,
    delete_answers,
    read_answers,
    read_config,
    run_folder,
    save_answers,
    score,
)
from train.results.provenance import CODE, provenance
from train.results.store import run_id
from travlr.cli import Log


def measure_baselines(one: ProbeInput) -> Result:
    """The result of the rules that need no model: of those that read text alone and, on our own scenes, of those that
    see the pictures or know the truth."""
    corpus, config = one.corpus, one.config
    fingerprint = {"corpus": corpus.name, "digest": corpus.digest, "model": "", "seed": config.seed}
    fingerprint |= {"rules": config.rules, "sentences": config.effective_sentences}
    folder = _folder(config.out, corpus, "floors", fingerprint)
    measuring = _measuring(config, TOLERANCES["float64"], None)
    start = time.monotonic()
    answers = baselines.baselines(corpus, config.seed)
    rows = {rule: _measure(corpus, of_rule, measuring) for rule, of_rule in answers.items()}
    about = {**_provenance(), "seconds": round(time.monotonic() - start, 1)}
    with run_folder(folder, fingerprint, about):
        pass
    result = Result(
        name=folder.name,
        corpus=corpus_facts(corpus),
        model="",
        measuring=measuring,
        about=about,
        floors=rows,
        blind=tuple(rule for rule in answers if rule not in (*baselines.OF_SCENES, "random", "constant")),
    )
    save_result(folder, result)
    return result


def measure_saved(one: ProbeInput) -> Result:
    """The result of answers that were read with the corpus."""
    assert one.answers is not None
    corpus, config = one.corpus, one.config
    values = [{name: value for name, value in asdict(a).items() if name != "yes_or_no"} for a in one.answers]
    digest = hashlib.sha256(json.dumps(values).encode()).hexdigest()
    fingerprint = {"corpus": corpus.name, "digest": corpus.digest, "model": one.model, "answers": digest}
    folder = _folder(config.out, corpus, one.model, fingerprint)
    about = {**_provenance(), "read": Path(config.corpus).name}
    save_answers(corpus, one.answers, folder, fingerprint, about)
    measuring = _measuring(config, 0.0, 0.5)  # probabilities, compared without tolerance
    return _save(folder, one, one.model, measuring, one.answers, {}, about)


def measure_model(one: ProbeInput, model: LoadedModel, log: Log) -> Result:
    """Score a corpus with a model; as baselines also with a blank picture and with other items' pictures."""
    corpus, config = one.corpus, one.config
    threshold = model.threshold
    if config.effective_task == "itm" and threshold is None:
        raise ValueError(f"task=itm: {model.name} has no score above which a sentence matches; use task=itc")
    precision = getattr(model.scorer, "precision_name", "float32" if config.precision == "auto" else config.precision)
    settings = _model_settings(config, model, precision)
    fingerprint = {"corpus": corpus.name, "digest": corpus.digest, "model": model.name, **settings}
    folder = _folder(config.out, corpus, model.name, fingerprint)
    device = str(getattr(model.scorer, "device", config.device))
    about = {"device": device, "batch_size": config.batch_size, **_provenance(device), **settings}
    about |= {} if config.device_map is None else {"device_map": config.device_map}
    start = time.monotonic()
    log(f"{folder}: {model.name}")
    if config.overwrite:
        delete_answers(folder)
    answers = _score_all(folder, one, model, fingerprint, about, log)
    for name, of_pictures in answers.items():
        if failed := [answer.why for answer in of_pictures if answer.status == "failed"]:
            what = f"baseline {name}: " if name else ""
            log(f"{folder}: {what}failed at {count_text(len(failed), 'item')}, first with: {failed[0]}")
    about = read_config(folder)["about"]  # of the first start
    about["seconds since the last start"] = round(time.monotonic() - start, 1)  # earlier ones are not recorded
    measuring = _measuring(config, TOLERANCES[precision], threshold)
    return _save(folder, one, model.name, measuring, answers.pop(""), answers, about)


def _model_settings(config: Probe, model: LoadedModel, precision: str) -> dict[str, Any]:
    """All that determines a model's scores."""
    settings = {
        "weights": model.weights,
        "precision": precision,
        "head": config.head,
        "question": config.question,
        "size": config.size,
        "regions": regions_of(config.regions, model.name),
    }
    if prompt := getattr(model.scorer, "prompt", ""):  # runs without it may have asked a question with two beginnings
        settings["prompt"] = prompt
    return settings


def _score_all(
    folder: Path,
    one: ProbeInput,
    model: LoadedModel,
    fingerprint: Mapping[str, Any],
    about: Mapping[str, Any],
    log: Log,
) -> dict[str, list[Answer]]:
    """Answers to the corpus, under "", and to its baselines with other pictures, by name."""
    corpus, config = one.corpus, one.config
    options: dict[str, Any] = {"batch_size": config.batch_size, "fingerprint": fingerprint, "about": about, "log": log}
    answers = {"": score(corpus, model.scorer, folder, **options)}
    if not config.floors:
        return answers
    log(f"{folder}: baselines, with a blank picture and with other items' pictures")
    blank = baselines.blank(model.scorer)
    answers["blank picture"] = score(corpus, blank, folder, file="blank.jsonl", **options)
    if len({item.image for item in corpus.items}) > 1:
        other, file = baselines.shuffled(corpus, config.seed), f"shuffled-s{config.seed}.jsonl"
        answers["other items' pictures"] = score(other, model.scorer, folder, file=file, **options)
    return answers


# Results -------------------------------------------------------------------------------------------------------------


def _folder(out: str, corpus: Corpus, name: str, fingerprint: Mapping[str, Any]) -> Path:
    short = re.sub(r"[^\w.-]+", "-", name.rstrip("/").rpartition("/")[2])[-40:].strip("-.")
    slug = re.sub(r"[^\w.-]+", "-", corpus.name).strip("-.")[:40] or "corpus"
    return Path(out) / f"{slug}-{short or 'model'}-{run_id(fingerprint)}"


def _provenance(device: str = "") -> dict[str, Any]:
    gpus = []
    if device.startswith("cuda"):
        import torch

        gpus = [torch.cuda.get_device_name(device)]
    values = provenance(gpus, (*CODE, "analysis"))
    return {**values, "versions": json.loads(values["versions"])}


def _measuring(config: Probe, tolerance: float, threshold: float | None) -> dict[str, Any]:
    """How scores become numbers, as a result has it."""
    return {
        "task": config.effective_task,
        "rules": config.rules,
        "sentences": config.effective_sentences,
        "tolerance": 0.0 if config.rules == "published" else tolerance,
        "threshold": threshold,
        "seed": config.seed,
    }


def _measure(corpus: Corpus, answers: Sequence[Answer], measuring: Mapping[str, Any]) -> tuple[MetricRow, ...]:
    options = {name: measuring[name] for name in ("sentences", "tolerance", "threshold", "seed")}
    return tuple(measure(corpus.items, answers, **options))


def _save(
    folder: Path,
    one: ProbeInput,
    model: str,
    measuring: Mapping[str, Any],
    answers: Sequence[Answer],
    baseline_answers: Mapping[str, Sequence[Answer]],
    about: Mapping[str, Any],
) -> Result:
    """Measure the answers of a run and write the result."""
    scored = read_answers(folder / ANSWERS)
    hashes = sorted({(record.item.image, record.picture) for record in scored if record.picture})
    pictures = hashlib.sha256(json.dumps(hashes).encode()).hexdigest() if hashes else ""
    rows = _measure(one.corpus, answers, measuring)
    shares = [share for answer in answers for share in answer.yes_or_no]
    result = Result(
        name=folder.name,
        corpus=corpus_facts(one.corpus),
        model=model,
        measuring=measuring,
        about={**about, "pictures": pictures},
        lines=rows,
        floors={name: _measure(one.corpus, other, measuring) for name, other in baseline_answers.items()},
        averages=_averages(one.corpus, rows, measuring["task"]),
        unscored=next((f"{answer.status}: {answer.why}" for answer in answers if answer.status != "scored"), ""),
        yes_or_no=math.fsum(shares) / len(shares) if shares else None,
    )
    save_result(folder, result)
    if one.triplets and one.answers is None:
        _write_results(folder, one, model, answers, measuring["threshold"])
    return result


def _write_results(
    folder: Path, one: ProbeInput, model: str, answers: Sequence[Answer], threshold: float | None
) -> None:
    """Write answers in the columns of the predicate-noun study, with scores as probabilities.

    A score with a threshold becomes the sigmoid of its distance from it; a score without one becomes the softmax over
    the two sentences of the item, as in the study's CLIP code. Scores more than some 36 above the threshold all become
    1 and so tie in this file; answers.jsonl has the scores themselves.
    """

    def probability(score: float, other: float) -> float:
        return 1 / (1 + math.exp(min(700.0, (other if threshold is None else threshold) - score)))

    ids = {item.id for item in one.corpus.items}
    triplets = [triplet for triplet in one.triplets if str(triplet["id"]) in ids]
    as_probabilities = [
        replace(answer, positives=(probability(true, false),), negatives=(probability(false, true),))
        for answer in answers
        for true, false in [(*answer.positives, *answer.negatives) or (0.0, 0.0)]
    ]
    path = folder / predicate_noun.results_name(one.config.template, one.config.cropped)
    path.unlink(missing_ok=True)
    predicate_noun.write_results(path, triplets, as_probabilities, model, one.config.cropped)


def _averages(corpus: Corpus, rows: Sequence[MetricRow], task: str) -> tuple[PaperAverage, ...]:
    """The averages of VL-CheckList's paper: of item accuracies or, for ITM, of accuracies over single sentences."""
    if corpus.kind != "checklist":
        return ()
    metric, suffix = ("itm_accuracy", ", of ITM accuracies") if task == "itm" else ("single", "")
    values = {(row.by, row.value): value for row in rows if (value := getattr(row, metric)) is not None}
    sources = {tuple(value.split(", ")): score for (by, value), score in values.items() if by == "axis and source"}
    axes = {value: score for (by, value), score in values.items() if by == "axis"}
    averages = paper_averages(by_axis({(axis, source): score for (axis, source), score in sources.items()}) or axes)
    return tuple(replace(average, rule=f"{average.rule}{suffix}") for average in averages)
