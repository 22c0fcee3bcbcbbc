"""Results of runs, and groups of comparable ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from analysis.filling import write_file
from analysis.probe.report.baselines import SALIENT
from analysis.probe.report.metrics import AXIS_GRADE, MICRO, MetricRow, ModelComparison, compare_models, solved_blindly
from analysis.probe.report.outcomes import Outcomes, outcomes
from analysis.probe.scorers.scoring import ANSWERS, ScoredItem, read_item_answers
from travlr.corpora.taxonomy import PaperAverage

VERSION = 1
RESULT = "result-{rules}-{sentences}.json"  # in a run's folder
MODEL_SETTINGS = ("head", "question", "prompt", "size", "regions", "precision", "weights")  # in `about`
CROPPED = ", cropped"  # suffix of the name of a corpus with cropped pictures


@dataclass(frozen=True)
class Result:
    """A run: its corpus, model and metrics.

    corpus: name, kind, digest, items, notes. measuring: task, rules, sentences, tolerance, threshold, seed. about:
    provenance. model: empty for a run of baselines alone. lines: metrics of the model. baselines: their metrics, by
    name. blind: names of the blind rules among them, which read the sentences alone. averages: the paper's, of
    VL-CheckList. unscored: status and reason of the first item that was not scored. yes_or_no: of generative models,
    the mean of p(yes) + p(no) over the scored sentences.
    """

    name: str
    corpus: Mapping[str, Any]
    model: str
    measuring: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[MetricRow, ...] = ()
    baselines: Mapping[str, tuple[MetricRow, ...]] = field(default_factory=dict)
    blind: tuple[str, ...] = ()
    averages: tuple[PaperAverage, ...] = ()
    unscored: str = ""
    yes_or_no: float | None = None

    @property
    def coverage(self) -> MetricRow | None:
        """The row of all items; None without a model."""
        return next((line for line in self.lines if line.value == MICRO), None)


def save_result(folder: Path, result: Result) -> None:
    """Write a result to its run's folder, over an earlier one by the same rules."""
    text = json.dumps({"version": VERSION, **asdict(result)}, indent=1, ensure_ascii=False, allow_nan=False)
    write_file(folder / RESULT.format_map(result.measuring), text + "\n")


def load_results(out: Path) -> tuple[list[Result], list[str]]:
    """The results of all runs in a folder, each with its folder's present name, and a line for each unreadable one."""
    results, skipped = [], []
    for path in sorted(out.glob("*/result-*.json")):
        try:
            results.append(_parsed(json.loads(path.read_text(encoding="utf-8")) | {"name": path.parent.name}))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            skipped.append(f"{path}: cannot be read ({' '.join(str(error).split())})")
    return results, skipped


def _parsed(values: dict[str, Any]) -> Result:
    if values.pop("version") != VERSION:
        raise ValueError("it has another version")
    values["lines"] = tuple(MetricRow(**one) for one in values["lines"])
    values["baselines"] = {name: tuple(MetricRow(**row) for row in rows) for name, rows in values["baselines"].items()}
    values["averages"] = tuple(PaperAverage(**one | {"lacking": tuple(one["lacking"])}) for one in values["averages"])
    return Result(**values | {"blind": tuple(values["blind"])})


# Groups --------------------------------------------------------------------------------------------------------------

Series = Mapping[str, Sequence[MetricRow]]
"""Metrics by the name of a model or rule."""


@dataclass(frozen=True)
class Group:
    """Results on the same items by the same rules.

    models: metrics of models, by a unique name. baselines: metrics of rules, and of models that see other pictures.
    comparisons: of all pairs of models. cropped: of each model on cropped pictures with itself on whole ones.
    """

    title: str
    slug: str
    results: tuple[Result, ...]
    models: Series
    baselines: Series
    comparisons: tuple[ModelComparison, ...] = ()
    cropped: tuple[ModelComparison, ...] = ()

    @property
    def series(self) -> Series:
        """Metrics for figures and the terminal: of models or, without any, of baselines."""
        return self.models or self.baselines

    @property
    def rules(self) -> dict[str, Series]:
        """Baselines that need no model: `blind rule` (reads the sentences alone), and `salience rule` (prefers large or
        central objects in pictures of our scenes)."""
        blind = dict.fromkeys(rule for result in self.results for rule in result.blind)
        kinds: dict[str, Iterable[str]] = {"blind rule": blind, "salience rule": SALIENT}
        return {kind: {rule: self.baselines[rule] for rule in rules if rule in self.baselines}
                for kind, rules in kinds.items()}  # fmt: skip

    @property
    def model_results(self) -> dict[str, Result]:
        return dict(zip(self.models, (result for result in self.results if result.model), strict=True))

    @property
    def matching(self) -> bool:
        """Whether a model classified each sentence alone (task=itm)."""
        return any(result.model and result.measuring["task"] == "itm" for result in self.results)

    @property
    def flags(self) -> list[str]:
        return solved_blindly(self.rules["blind rule"])

    @property
    def by(self) -> str:
        """The grouping of main tables and figures: by axis, or by axis and grade if an axis has several grades."""
        mixed = any(line.by == "axis" and line.mixed for lines in self.series.values() for line in lines)
        return AXIS_GRADE if mixed else "axis"

    @property
    def keys(self) -> list[tuple[str, str]]:
        """`by` and `value` of all rows, in the order of tables and figures."""
        lines = next(iter([*self.models.values(), *self.baselines.values()]), ())
        return [(line.by, line.value) for line in lines]

    def with_other_pictures(self, baseline: str, model: str) -> Sequence[MetricRow]:
        """Metrics of a model that sees other pictures, such as `blank picture`."""
        own = self.baselines.get(f"{baseline} ({model})", ())
        return own or (self.baselines.get(baseline, ()) if len(self.models) == 1 else ())


def values_of(series: Series, by: str, value: str, metric: str) -> dict[str, float]:
    """One metric of one group of items, by model or rule; without those that lack it."""
    return {
        label: number
        for label, lines in series.items()
        for line in lines
        if (line.by, line.value) == (by, value) and (number := getattr(line, metric)) is not None
    }


def groups(results: Sequence[Result], out: Path | None = None) -> list[Group]:
    """Groups of comparable results. out: folder of the runs, whose answers are compared; None for no comparisons."""
    by_key: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        how = (str(result.measuring[name]) for name in ("rules", "sentences"))
        by_key.setdefault((result.corpus["name"], result.corpus["digest"], *how), []).append(result)
    result_groups: list[Group] = []
    for (corpus, digest, rules, sentences), members in by_key.items():
        others = [key for key in by_key if key[0] == corpus]
        texts = (f"{members[0].corpus['items']:,} items ({digest[:8]})", f"rules={rules}", f"sentences={sentences}")
        differing = [text for n, text in enumerate(texts, 1) if len({key[n] for key in others}) > 1]
        title = ", ".join([corpus, *differing])
        name = f"{corpus}-{digest[:8]}-{rules}-{sentences}" if len(others) > 1 else corpus
        slug = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "corpus"
        while slug in {group.slug for group in result_groups}:  # another corpus has the same slug
            slug += "-2"
        models = {_label(one, members): one for one in members if one.model}
        baselines = {name: rows for one in members if not one.model for name, rows in one.baselines.items()}
        for label, one in models.items():
            suffix = f" ({label})" if len(models) > 1 else ""
            baselines |= {f"{name}{suffix}": rows for name, rows in one.baselines.items()}
        result_groups.append(
            Group(
                title=title,
                slug=slug,
                results=tuple(members),
                models={label: result.lines for label, result in models.items()},
                baselines=baselines,
                comparisons=tuple(compare_models(_outcomes(models, out))) if out and len(models) > 1 else (),
                cropped=tuple(_compare_cropped(models, results, out)) if out else (),
            )
        )
    return result_groups


def _label(result: Result, members: Sequence[Result]) -> str:
    """The short name of a run's model; the whole name if other models have the same short one, and the name of the run
    if other runs have the same model."""
    models = [member.model for member in members]
    if models.count(result.model) > 1:
        return result.name
    short = _short_name(result.model)
    return short if list(map(_short_name, models)).count(short) == 1 else result.model


def _short_name(model: str) -> str:
    """A model's name without the folders of a path, such as `uniter:base.pt` for `uniter:/models/base.pt`. A name with
    at most one `/` may be one of the hub and stays whole."""
    kind, colon, path = model.rpartition(":")
    if path.count("/") < 2 and not path.startswith(("/", ".", "~")):
        return model
    return f"{kind}{colon}{path.rstrip('/').rpartition('/')[2]}"


def _outcomes(models: Mapping[str, Result], out: Path) -> dict[str, Outcomes]:
    """The outcomes of each run, in the order of ids; without runs whose answers are incomplete."""
    by_label = {}
    for label, result in models.items():
        records = sorted(read_item_answers(out / result.name / ANSWERS), key=lambda record: record.item.id)
        if len(records) == result.corpus["items"]:
            by_label[label] = outcomes_of(result, records)
    return by_label


def outcomes_of(result: Result, records: Sequence[ScoredItem]) -> Outcomes:
    """The outcomes of items and answers of a run, by its settings."""
    how = result.measuring
    items, answers = [record.item for record in records], [record.answer for record in records]
    return outcomes(items, answers, how["sentences"], how["tolerance"], seed=how["seed"])


def _compare_cropped(models: Mapping[str, Result], results: Iterable[Result], out: Path) -> list[ModelComparison]:
    """Comparisons of each model on cropped pictures with itself on whole ones: the cost of binding."""

    def settings(result: Result) -> list[Any]:
        model_settings = [result.about.get(name) for name in MODEL_SETTINGS]
        return [result.model, result.measuring, result.corpus["items"], *model_settings]

    by_label: dict[str, Outcomes] = {}
    couples = []
    for label, whole in models.items():
        crops = [one for one in results if one.corpus["name"] == f"{whole.corpus['name']}{CROPPED}"]
        if crop := next((one for one in crops if settings(one) == settings(whole)), None):
            both = _outcomes({f"{label}{CROPPED}": crop, label: whole}, out)
            ids = [[item.id for item in one.items] for one in both.values()]
            if len(ids) == 2 and ids[0] == ids[1]:  # samples may differ
                by_label |= both
                couples.append((f"{label}{CROPPED}", label))
    return compare_models(by_label, couples)
