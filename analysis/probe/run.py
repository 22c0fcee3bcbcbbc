"""`probe(config, scorer=…) -> results`: every model on every corpus, and the report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from analysis.probe.config import Probe
from analysis.probe.corpora.items import Scorer
from analysis.probe.corpora.selection import count_text
from analysis.probe.inputs import ProbeInput, check_inputs, pictures_text, probe_inputs
from analysis.probe.measuring import measure_baselines, measure_model, measure_saved
from analysis.probe.report import report, tables
from analysis.probe.report.results import Result
from analysis.probe.scorers.loading import load_models
from analysis.probe.scorers.scoring import ANSWERS
from travlr.cli import Log
from travlr.files import Locked


def probe(config: Probe, scorer: Scorer | None = None, log: Log = print) -> list[Result]:
    """Run all models and baselines of a config; write the report on all runs in `config.out`.

    scorer: a function (images, texts) -> scores, probed beside `config.model`. Its name is its attribute `name`, else
    that of the function. A run is identified by this name and the function's code, so a function with other weights
    needs another name. Raises `ValueError`, in one line, for what fails, after everything else is done; with `strict`,
    also where an item was not scored.
    """
    failures: list[str] = []
    _check_out(Path(config.out))
    models = load_models(config, scorer, failures)
    model = next(models, None)  # so that a wrong name is reported before anything slow starts
    if model is None and failures:
        raise ValueError(failures[0])
    inputs = list(probe_inputs(config, log))
    if scorer is not None and any(one.answers is not None for one in inputs):
        raise ValueError(f"scorer: corpus={config.corpus} holds answers, measured as they are; leave it out")
    check_inputs(config, inputs)
    results = _without_model(config, inputs, model is not None, log)
    while model is not None:
        for one in (one for one in inputs if one.answers is None):
            try:
                results.append(measure_model(one, model, log))
            except ValueError as error:
                failures.append(str(error))
        model = None  # frees its memory before the next one is loaded
        model = next(models, None)
    names = {result.name for result in results}
    for group in report.write(Path(config.out)):
        if names & {result.name for result in group.results}:
            log("\n" + tables.terminal_summary(group))
    _check_scored(config, inputs, results, failures)
    return results


def _without_model(config: Probe, inputs: Sequence[ProbeInput], has_model: bool, log: Log) -> list[Result]:
    """Baselines of each corpus, and corpora that hold answers."""
    results: list[Result] = []
    for one in inputs:
        log(f"{one.corpus.name}: {count_text(len(one.corpus.items), 'item')}, {pictures_text(one, has_model)}")
        measured = {(result.corpus["name"], result.corpus["digest"]) for result in results}
        if config.floors and (one.corpus.name, one.corpus.digest) not in measured:  # models may share a corpus
            try:
                results.append(measure_baselines(one))
            except Locked:
                log(f"{one.corpus.name}: another process measures its baselines")
        if one.answers is not None:
            results.append(measure_saved(one))
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


def _check_out(out: Path) -> None:
    """Raise `ValueError` where results cannot be written."""
    existing = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = "cannot be written to" if existing.is_dir() else "is a file"
        raise ValueError(f"out={out}: {existing} {why}; name another folder")
