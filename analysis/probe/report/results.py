"""Results of runs, and groups of comparable ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from analysis.probe.report.baselines import SALIENT
from analysis.probe.report.comparison import ModelComparison, compare
from analysis.probe.report.metrics import AXIS_GRADE, MICRO, MetricRow, solved_blindly
from analysis.probe.report.outcomes import Outcomes, outcomes
from analysis.probe.scorers.scoring import ANSWERS, read_answers
from travlr.browse import write
from travlr.files import regular

VERSION = 1
RESULT = "result-{rules}-{sentences}.json"  # in a run's folder
MODEL_SETTINGS = ("head", "question", "prompt", "size", "regions", "precision", "weights")  # in `about`
CROPPED = ", cropped"  # suffix of the name of a corpus with cropped pictures


@dataclass(frozen=True)
class Result:
    """A run: its corpus, model and metrics.

    corpus: name, kind, digest, items, notes. measuring: task, rules, sentences, tolerance, threshold, seed. about:
    provenance. model: empty for a run of baselines alone. lines: metrics of the model. floors: metrics of baselines, by
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
    floors: Mapping[str, tuple[MetricRow, ...]] = field(default_factory=dict)
    blind: tuple[str, ...] = ()
    averages: tuple[Mapping[str, Any], ...] = ()
    unscored: str = ""
    yes_or_no: float | None = None

    @property
    def coverage(self) -> MetricRow | None:
        """The row of all items; None without a model."""
        return next((line for line in self.lines if line.value == MICRO), None)


def save_result(folder: Path, result: Result) -> None:
    """Write a result to its run's folder, over an earlier one by the same rules."""
    text = json.dumps({"version": VERSION, **asdict(result)}, indent=1, ensure_ascii=False, allow_nan=False)
    write(folder / RESULT.format_map(result.measuring), text + "\n")


def load_results(out: Path) -> tuple[list[Result], list[str]]:
    """The results of all runs in a folder, by name, and a line for each unreadable one."""
    results, skipped = [], []
    for path in sorted(out.glob("*/result-*.json")):
        try:
            results.append(_parse_result(json.loads(regular(path).read_text(encoding="utf-8")), path.parent.name))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            skipped.append(f"{path}: cannot be read ({' '.join(str(error).split())})")
    return results, skipped


def _parse_result(values: dict[str, Any], folder: str) -> Result:
    """Parse a result and give it its folder's present name. Raises `ValueError`, `KeyError` or `TypeError` for values
    that do not fit."""
    if values.pop("version") != VERSION:
        raise ValueError("it has another version")
    values["lines"] = _lines(values["lines"])
    values["floors"] = {name: _lines(lines) for name, lines in values["floors"].items()}
    values |= {"name": folder, "blind": tuple(values["blind"]), "averages": tuple(values["averages"])}
    found = Result(**values)
    corpus, how, averages = found.corpus, found.measuring, found.averages
    texts = [found.model, found.unscored, *found.blind, corpus["name"], corpus["digest"], *corpus["notes"]]
    texts += [how[name] for name in ("task", "rules", "sentences")]
    texts += [one[name] for one in averages for name in ("name", "rule")]
    numbers = [corpus["items"], how["seed"], how["tolerance"], *(one["value"] or 0 for one in averages)]
    numbers.append(0 if found.yes_or_no is None else found.yes_or_no)
    right = all(isinstance(text, str) for text in texts) and all(isinstance(one, int | float) for one in numbers)
    if not right or not isinstance(found.about, dict):
        raise ValueError("a value is of another type")
    return found


TYPES: dict[str, Any] = {"str": str, "int": int, "float | None": float | int | None}


def _lines(values: Iterable[Mapping[str, Any]]) -> tuple[MetricRow, ...]:
    found = tuple(MetricRow(**one) for one in values)
    for line in found:
        for one in fields(MetricRow):
            if not isinstance(getattr(line, one.name), TYPES[str(one.type)]):
                raise ValueError(f"{one.name} of a line is not {one.type}")
    return found


# Groups --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Results on the same items by the same rules.

    models: metrics of models, by a unique name. baselines: metrics of rules, and of models that see other pictures.
    blind: names of the blind rules among them. comparisons: of all pairs of models. cropped: of each model on cropped
    pictures with itself on whole ones.
    """

    title: str
    slug: str
    results: tuple[Result, ...]
    models: dict[str, tuple[MetricRow, ...]]
    baselines: dict[str, tuple[MetricRow, ...]]
    blind: tuple[str, ...]
    comparisons: tuple[ModelComparison, ...] = ()
    cropped: tuple[ModelComparison, ...] = ()

    @property
    def series(self) -> dict[str, tuple[MetricRow, ...]]:
        """Metrics for figures and the terminal: of models or, without any, of baselines."""
        return self.models or self.baselines

    @property
    def blind_rules(self) -> dict[str, tuple[MetricRow, ...]]:
        """Metrics of the rules that read the sentences alone."""
        return {rule: self.baselines[rule] for rule in self.blind if rule in self.baselines}

    @property
    def salience_rules(self) -> dict[str, tuple[MetricRow, ...]]:
        """Metrics of the rules that prefer large or central objects in pictures of our scenes."""
        return {rule: self.baselines[rule] for rule in SALIENT if rule in self.baselines}

    @property
    def matching(self) -> bool:
        """Whether a model classified each sentence alone (task=itm)."""
        return any(result.model and result.measuring["task"] == "itm" for result in self.results)

    @property
    def flags(self) -> list[str]:
        return solved_blindly(self.blind_rules)

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


def number(rows: Iterable[MetricRow], by: str, value: str, metric: str) -> float | None:
    """One metric of one row; None if there is no such row."""
    return next((getattr(row, metric) for row in rows if (row.by, row.value) == (by, value)), None)


def groups(results: Sequence[Result], out: Path | None = None) -> list[Group]:
    """Groups of comparable results. out: folder of the runs, whose answers are compared; None for no comparisons."""
    found: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        measuring = tuple(str(result.measuring[name]) for name in ("rules", "sentences"))
        found.setdefault((result.corpus["name"], result.corpus["digest"], *measuring), []).append(result)
    result_groups: list[Group] = []
    for (corpus, digest, rules, sentences), members in found.items():
        others = [key for key in found if key[0] == corpus]
        several = len(others) > 1
        apart = (f"{members[0].corpus['items']:,} items ({digest[:8]})", f"rules={rules}", f"sentences={sentences}")
        title = ", ".join([corpus, *(text for n, text in enumerate(apart, 1) if len({key[n] for key in others}) > 1)])
        slug = _slug(f"{corpus}-{digest[:8]}-{rules}-{sentences}" if several else corpus)
        while slug in {group.slug for group in result_groups}:  # another corpus has the same slug
            slug += "-2"
        models = [result for result in members if result.model]
        names = _names(models)
        by_name = dict(zip(names, models, strict=True))
        baselines = {name: rows for result in members if not result.model for name, rows in result.floors.items()}
        for result, label in zip(models, names, strict=True):
            suffix = f" ({label})" if len(models) > 1 else ""
            baselines |= {f"{name}{suffix}": rows for name, rows in result.floors.items()}
        result_groups.append(
            Group(
                title=title,
                slug=slug,
                results=tuple(members),
                models={label: result.lines for label, result in by_name.items()},
                baselines=baselines,
                blind=tuple(dict.fromkeys(rule for result in members for rule in result.blind)),
                comparisons=tuple(_compare_models(by_name, out)) if out else (),
                cropped=tuple(_compare_cropped(by_name, results, out)) if out else (),
            )
        )
    return result_groups


def _names(results: Sequence[Result]) -> list[str]:
    """Unique names: of each run its model or, if several runs have that, the run's name."""
    models = [result.model for result in results]
    return [one if models.count(one) == 1 else result.name for one, result in zip(models, results, strict=True)]


def _slug(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text).strip("-.") or "corpus"


def _outcomes(models: Mapping[str, Result], out: Path) -> dict[str, Outcomes]:
    """The outcomes of each run, in the order of ids; without runs whose answers are incomplete."""
    found = {}
    for label, result in models.items():
        records = {record.item.id: record for record in read_answers(out / result.name / ANSWERS)}
        if len(records) == result.corpus["items"]:
            ordered = [records[one] for one in sorted(records)]
            items, answers = [record.item for record in ordered], [record.answer for record in ordered]
            how = result.measuring
            found[label] = outcomes(items, answers, how["sentences"], how["tolerance"])
    return found


def _compare_models(models: Mapping[str, Result], out: Path) -> list[ModelComparison]:
    """All pairs of models on the same items."""
    return compare(_outcomes(models, out), _seed(models.values())) if len(models) > 1 else []


def _seed(results: Iterable[Result]) -> int:
    return next((int(result.measuring["seed"]) for result in results), 0)


def _compare_cropped(models: Mapping[str, Result], results: Sequence[Result], out: Path) -> list[ModelComparison]:
    """Each model on cropped pictures against whole ones: the cost of binding."""
    runs: dict[str, Result] = {}
    couples = []
    for label, whole in models.items():
        name = f"{whole.corpus['name']}{CROPPED}"
        for other in results:
            same = (other.model, other.corpus["name"], other.measuring) == (whole.model, name, whole.measuring)
            same &= all(other.about.get(setting) == whole.about.get(setting) for setting in MODEL_SETTINGS)
            if same and other.corpus["items"] == whole.corpus["items"] and label not in runs:
                couples.append((f"{label}{CROPPED}", label))
                runs |= {f"{label}{CROPPED}": other, label: whole}
    found = _outcomes(runs, out)
    ids = {label: [item.id for item in one.items] for label, one in found.items()}
    couples = [(a, b) for a, b in couples if a in ids and b in ids and ids[a] == ids[b]]  # samples may differ
    return compare({label: found[label] for couple in couples for label in couple}, _seed(runs.values()), couples)
