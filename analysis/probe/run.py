"""`probe(config, scorer=…) -> results`: every model on every corpus, and the report.

A run is a model or the baselines on one corpus, scored, measured and written to its folder:

OUT/CORPUS-MODEL-HASH/   config.json, answers.jsonl, a result, and the answers to other pictures
OUT/CORPUS-baselines-HASH/  baselines that need no model
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.probe.config import Probe
from analysis.probe.corpora.items import Answer, Corpus, Scorer
from analysis.probe.corpora.selection import count_text
from analysis.probe.inputs import ProbeInput, check_inputs, pictures_text, probe_inputs
from analysis.probe.report import baselines, report, tables
from analysis.probe.report.metrics import MetricRow, measure
from analysis.probe.report.outcomes import TOLERANCES
from analysis.probe.report.results import Result, save_result
from analysis.probe.scorers.loading import LoadedModel, load_models, region_values
from analysis.probe.scorers.scoring import (
    ANSWERS,
    delete_answers,
    open_folder,
    read_about,
    score_items,
)
from train.results.provenance import CODE, provenance
from train.results.store import run_id
from travlr.corpora.taxonomy import PaperAverage, by_axis, paper_averages
from travlr.files import Locked
from travlr.settings import Log


def probe(config: Probe, scorer: Scorer | None = None, log: Log = print) -> list[Result]:
    """Run all models and baselines of a config; write the report on all runs in `config.out`.

    scorer: a function (images, texts) -> scores, probed beside `config.model`. Its name is its attribute `name`, else
    that of the function. A run is identified by this name and the function's code, so a function with other weights
    needs another name. Raises `ValueError`, in one line, for models that fail, after all others are probed; with
    `strict`, also for items that were not scored.
    """
    failures: list[str] = []
    models = load_models(config, scorer, failures)
    model = next(models, None)  # so that a wrong name is reported before anything slow starts
    if model is None and failures:
        raise ValueError(failures[0])
    inputs = list(probe_inputs(config, log))
    check_inputs(config, inputs)
    results = _without_model(config, inputs, model is not None, log)
    while model is not None:
        for one in inputs:
            try:
                results.append(measure_model(one, model, log))
            except ValueError as error:
                failures.append(str(error))
        model = None  # frees its memory before the next one is loaded
        model = next(models, None)
    names = {result.name for result in results}
    for group in report.write_report(Path(config.out)):
        if names & {result.name for result in group.results}:
            log("\n" + tables.terminal_summary(group))
    _check_scored(config, inputs, results, failures)
    return results


def _without_model(config: Probe, inputs: Sequence[ProbeInput], has_model: bool, log: Log) -> list[Result]:
    """The results of the baselines of each corpus."""
    results: list[Result] = []
    for one in inputs:
        log(f"{one.corpus.name}: {count_text(len(one.corpus.items), 'item')}, {pictures_text(one, has_model)}")
        if config.baselines:
            try:
                results.append(measure_baselines(one))
            except Locked:
                log(f"{one.corpus.name}: another process measures its baselines")
    return results


def _check_scored(config: Probe, inputs: Sequence[ProbeInput], results: Sequence[Result], failures: list[str]) -> None:
    """Raise `ValueError` for failures, and where nothing was scored; with `strict`, where an item was not scored."""
    totals = {result.name: result.coverage for result in results if result.coverage}
    failures += [
        f"{name}: nothing was scored, {row.coverage} (see its {ANSWERS})"
        for name, row in totals.items()
        if not row.scored
    ]
    if failures:
        raise ValueError(f"{failures[0]}{f' (and {len(failures) - 1} more)' if len(failures) > 1 else ''}")
    for name, row in totals.items():
        if config.strict and row.scored < row.total:
            raise ValueError(f"strict=true: {name}: {row.coverage}")
    if config.strict and (refused := [line for one in inputs for line in one.corpus.refused]):
        raise ValueError(f"strict=true: left out of the corpus: {len(refused):,}; the first is {refused[0]}")


# One run -------------------------------------------------------------------------------------------------------------


def measure_baselines(one: ProbeInput) -> Result:
    """The result of the rules that need no model: rules that read text alone and, on our own scenes, rules that see the
    pictures or know the truth."""
    config, start = one.config, time.monotonic()
    settings = {"model": "", "seed": config.seed, "rules": config.rules, "sentences": config.effective_sentences}
    folder, fingerprint = _folder(one, "baselines", settings)
    answers = baselines.baselines(one.corpus, config.seed)
    facts = {**_provenance(), "seconds": round(time.monotonic() - start, 1)}
    with open_folder(folder, fingerprint, facts):
        pass
    return _save(folder, one, "", answers, facts, TOLERANCES["float64"])


def measure_model(one: ProbeInput, model: LoadedModel, log: Log) -> Result:
    """Score a corpus with a model and, as baselines, with the model seeing a blank picture or other items' pictures."""
    corpus, config, threshold, scorer = one.corpus, one.config, model.threshold, model.scorer
    if config.effective_task == "itm" and threshold is None:
        raise ValueError(f"task=itm: {model.name} has no score above which a sentence matches; use task=itc")
    precision = getattr(scorer, "precision_name", "float32" if config.precision == "auto" else config.precision)
    settings = {"weights": model.weights, "precision": precision}  # all that determines the scores
    settings |= {name: getattr(config, name) for name in ("head", "question", "size")}
    settings["regions"] = region_values(config.regions)
    if prompt := getattr(scorer, "prompt", ""):  # earlier runs may have asked the question with two beginnings
        settings["prompt"] = prompt
    folder, fingerprint = _folder(one, model.name, {"model": model.name, **settings})
    device = str(getattr(scorer, "device", config.device))
    facts = {"device": device, "batch_size": config.batch_size, **_provenance(device), **settings}
    facts |= {} if config.device_map is None else {"device_map": config.device_map}
    start = time.monotonic()
    log(f"{folder}: {model.name}")
    if config.overwrite:
        delete_answers(folder)
    options: dict[str, Any] = {"batch_size": config.batch_size, "fingerprint": fingerprint, "about": facts, "log": log}
    answers = {"": score_items(corpus, scorer, folder, **options)}
    if config.baselines:
        log(f"{folder}: baselines, with a blank picture and with other items' pictures")
        answers["blank picture"] = score_items(corpus, baselines.blank(scorer), folder, file="blank.jsonl", **options)
        if len({item.image for item in corpus.items}) > 1:
            other, file = baselines.shuffle_answers(corpus, config.seed), f"shuffled-s{config.seed}.jsonl"
            answers["other items' pictures"] = score_items(other, scorer, folder, file=file, **options)
    for name, part in answers.items():
        if reasons := [answer.why for answer in part if answer.status == "failed"]:
            prefix = f"baseline {name}: " if name else ""
            log(f"{folder}: {prefix}failed at {count_text(len(reasons), 'item')}, first with: {reasons[0]}")
    facts = read_about(folder)["about"]  # of the first start
    facts["seconds since the last start"] = round(time.monotonic() - start, 1)  # earlier ones are not recorded
    return _save(folder, one, model.name, answers, facts, TOLERANCES[precision], threshold)


# Results -------------------------------------------------------------------------------------------------------------


def _folder(one: ProbeInput, name: str, settings: Mapping[str, Any]) -> tuple[Path, dict[str, Any]]:
    """The folder of a run, and all that identifies it."""
    fingerprint = {"corpus": one.corpus.name, "digest": one.corpus.digest, **settings}
    short = re.sub(r"[^\w.-]+", "-", name.rstrip("/").rpartition("/")[2])[-40:].strip("-.")
    slug = re.sub(r"[^\w.-]+", "-", one.corpus.name).strip("-.")[:40] or "corpus"
    return Path(one.config.out) / f"{slug}-{short or 'model'}-{run_id(fingerprint)}", fingerprint


def _provenance(device: str = "") -> dict[str, Any]:
    gpus = []
    if device.startswith("cuda"):
        import torch

        gpus = [torch.cuda.get_device_name(device)]
    values = provenance(gpus, (*CODE, "analysis"))
    return {**values, "versions": json.loads(values["versions"])}


def _save(
    folder: Path,
    one: ProbeInput,
    model: str,
    answers: Mapping[str, Sequence[Answer]],
    about: Mapping[str, Any],
    tolerance: float,
    threshold: float | None = None,
) -> Result:
    """Measure the answers of a run and write the result. answers: of the model under "", and of baselines by name."""
    corpus, config, own = one.corpus, one.config, answers.get("", ())
    how: dict[str, Any] = {
        "sentences": config.effective_sentences,
        "tolerance": 0.0 if config.rules == "published" else tolerance,
        "threshold": threshold,
        "seed": config.seed,
    }
    rows = {name: tuple(measure(corpus.items, part, **how)) for name, part in answers.items()}
    lines, shares = rows.pop("", ()), [share for answer in own for share in answer.yes_or_no]
    result = Result(
        name=folder.name,
        corpus=_corpus_facts(corpus),
        model=model,
        measuring={"task": config.effective_task, "rules": config.rules, **how},
        about=about,
        lines=lines,
        baselines=rows,
        blind=() if model else tuple(rule for rule in rows if rule in baselines.BLIND),
        averages=_averages(corpus, lines, config.effective_task),
        unscored=next((f"{answer.status}: {answer.why}" for answer in own if answer.status != "scored"), ""),
        yes_or_no=math.fsum(shares) / len(shares) if shares else None,
    )
    save_result(folder, result)
    return result


def _corpus_facts(corpus: Corpus) -> dict[str, Any]:
    """The facts about a corpus in a result. pictures: the folder in which the report looks for the pictures of wrong
    items."""
    facts = {"name": corpus.name, "kind": corpus.kind, "digest": corpus.digest, "items": len(corpus.items)}
    return {**facts, "notes": list(corpus.notes), "pictures": str(corpus.pictures or "")}


def _averages(corpus: Corpus, rows: Sequence[MetricRow], task: str) -> tuple[PaperAverage, ...]:
    """The averages of VL-CheckList's paper: of item accuracies or, for ITM, of accuracies over single sentences."""
    if corpus.kind != "checklist" or not rows:
        return ()
    metric, suffix = ("itm_accuracy", ", of ITM accuracies") if task == "itm" else ("single", "")
    scores = [(row.by, row.value, value) for row in rows if (value := getattr(row, metric)) is not None]
    sources = {tuple(value.split(", ")): score for by, value, score in scores if by == "axis and source"}
    axes = {value: score for by, value, score in scores if by == "axis"}
    averages = paper_averages(by_axis({(axis, source): score for (axis, source), score in sources.items()}) or axes)
    return tuple(replace(average, rule=f"{average.rule}{suffix}") for average in averages)
