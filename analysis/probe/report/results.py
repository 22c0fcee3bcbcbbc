"""Results of probes: those of each run, and which can be set side by side."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from analysis.probe.report.baselines import SALIENT
from analysis.probe.report.metrics import (
    AXIS_GRADE,
    MICRO,
    MetricRow,
    ModelComparison,
    Outcomes,
    compare,
    outcomes,
    solved_blindly,
)
from analysis.probe.scorers.scoring import ANSWERS, read_answers
from travlr.browse import write
from travlr.files import regular

VERSION = 1
RESULT = "result-{rules}-{sentences}.json"  # in a run's folder
MODEL = ("head", "question", "prompt", "size", "regions", "precision", "weights")  # in `about`
CROPPED = ", cropped"  # after the name of a corpus whose pictures are


@dataclass(frozen=True)
class Result:
    """A run: what was asked of whom, and all numbers.

    corpus: name, kind, digest, items, notes. measuring: task, rules, sentences, tolerance, threshold, seed. about: how
    and with what it was made. model: empty where none was asked. floors: lines of each, by name. blind: the names of
    the blind rules among them, which read the sentences alone. averages: the paper's, of VL-CheckList. unscored: how
    the first item that was not scored ended, and why. yes_or_no: of generative models, the mean of p(yes) + p(no) over
    the sentences that were scored.
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
        """The line of all items; None where no model was asked."""
        return next((line for line in self.lines if line.value == MICRO), None)


def save_result(folder: Path, result: Result) -> None:
    """Write a result to its run's folder, in the place of an earlier one by the same rules."""
    text = json.dumps({"version": VERSION, **asdict(result)}, indent=1, ensure_ascii=False, allow_nan=False)
    write(folder / RESULT.format_map(result.measuring), text + "\n")


def load_results(out: Path) -> tuple[list[Result], list[str]]:
    """The results of all runs in a folder, by name, and a line for each that cannot be read."""
    found, skipped = [], []
    for path in sorted(out.glob("*/result-*.json")):
        try:
            found.append(_result(json.loads(regular(path).read_text(encoding="utf-8")), path.parent.name))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            skipped.append(f"{path}: cannot be read ({' '.join(str(error).split())})")
    return found, skipped


def _result(values: dict[str, Any], folder: str) -> Result:
    """A result that was read, by the name that its folder has now. Raises `ValueError`, `KeyError` or `TypeError` where
    it is not as it was written."""
    if values.pop("version") != VERSION:
        raise ValueError("of another version")
    values["lines"] = _lines(values["lines"])
    values["floors"] = {floor: _lines(lines) for floor, lines in values["floors"].items()}
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


# What belongs together -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Results on the same items by the same rules. answerers: models by a name that tells them apart, with their lines;
    floors: the same of what answers without looking, and of models that are shown other pictures. blind: the names of
    the blind rules among them. compared: models, each with each. cropped: models on cropped pictures, each with itself
    on whole ones."""

    title: str
    slug: str
    results: tuple[Result, ...]
    answerers: dict[str, tuple[MetricRow, ...]]
    floors: dict[str, tuple[MetricRow, ...]]
    blind: tuple[str, ...]
    compared: tuple[ModelComparison, ...] = ()
    cropped: tuple[ModelComparison, ...] = ()

    @property
    def series(self) -> dict[str, tuple[MetricRow, ...]]:
        """What figures and the terminal show: models, or where there are none the floors."""
        return self.answerers or self.floors

    @property
    def blind_rules(self) -> dict[str, tuple[MetricRow, ...]]:
        """Those floors that read the sentences alone."""
        return {rule: self.floors[rule] for rule in self.blind if rule in self.floors}

    @property
    def salience_rules(self) -> dict[str, tuple[MetricRow, ...]]:
        """Those floors that see only what is large or central in a picture of our scenes."""
        return {rule: self.floors[rule] for rule in SALIENT if rule in self.floors}

    @property
    def matching(self) -> bool:
        """Whether a model was asked of each sentence alone whether it matches."""
        return any(result.model and result.measuring["task"] == "itm" for result in self.results)

    @property
    def flags(self) -> list[str]:
        return solved_blindly(self.blind_rules)

    @property
    def by(self) -> str:
        """What main tables and figures go through: axes, or their grades one by one where axes have several."""
        mixed = any(line.by == "axis" and line.mixed for lines in self.series.values() for line in lines)
        return AXIS_GRADE if mixed else "axis"

    @property
    def kept(self) -> list[tuple[str, str]]:
        """`by` and `value` of the lines that all tables and figures go through."""
        lines = next(iter([*self.answerers.values(), *self.floors.values()]), ())
        return [(line.by, line.value) for line in lines]

    def beside(self, floor: str, label: str) -> Sequence[MetricRow]:
        """The lines of a model that is shown other pictures, by what it is shown and the model's name."""
        own = self.floors.get(f"{floor} ({label})", ())
        return own or (self.floors.get(floor, ()) if len(self.answerers) == 1 else ())


def number(lines: Iterable[MetricRow], by: str, value: str, what: str) -> float | None:
    """One number of one line; None where there is no such line."""
    return next((getattr(line, what) for line in lines if (line.by, line.value) == (by, value)), None)


def groups(results: Sequence[Result], out: Path | None = None) -> list[Group]:
    """Results that can be set side by side. out: where their answers are, from which models are compared."""
    found: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        measuring = tuple(str(result.measuring[name]) for name in ("rules", "sentences"))
        found.setdefault((result.corpus["name"], result.corpus["digest"], *measuring), []).append(result)
    made: list[Group] = []
    for (corpus, digest, rules, sentences), members in found.items():
        others = [key for key in found if key[0] == corpus]
        several = len(others) > 1
        apart = (f"{members[0].corpus['items']:,} items ({digest[:8]})", f"rules={rules}", f"sentences={sentences}")
        told = ", ".join([corpus, *(text for n, text in enumerate(apart, 1) if len({key[n] for key in others}) > 1)])
        slug = _slug(f"{corpus}-{digest[:8]}-{rules}-{sentences}" if several else corpus)
        while slug in {group.slug for group in made}:  # of another corpus, whose name makes the same name of a file
            slug += "-2"
        models = [result for result in members if result.model]
        names = _names(models)
        named = dict(zip(names, models, strict=True))
        floors = {floor: lines for result in members if not result.model for floor, lines in result.floors.items()}
        for result, label in zip(models, names, strict=True):
            suffix = f" ({label})" if len(models) > 1 else ""
            floors |= {f"{floor}{suffix}": lines for floor, lines in result.floors.items()}
        made.append(
            Group(
                title=told,
                slug=slug,
                results=tuple(members),
                answerers={label: result.lines for label, result in named.items()},
                floors=floors,
                blind=tuple(dict.fromkeys(rule for result in members for rule in result.blind)),
                compared=tuple(_compared(named, out)) if out else (),
                cropped=tuple(_cropped(named, results, out)) if out else (),
            )
        )
    return made


def _names(results: Sequence[Result]) -> list[str]:
    """Of each run its model, and where several runs have that, the run's name."""
    models = [result.model for result in results]
    return [one if models.count(one) == 1 else result.name for one, result in zip(models, results, strict=True)]


def _slug(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text).strip("-.") or "corpus"


def _outcomes(models: Mapping[str, Result], out: Path) -> dict[str, Outcomes]:
    """Of each run its answers, in the order of ids; a run without its answers is left out."""
    found = {}
    for label, result in models.items():
        records = {record.item.id: record for record in read_answers(out / result.name / ANSWERS)}
        if len(records) == result.corpus["items"]:
            ordered = [records[one] for one in sorted(records)]
            items, answers = [record.item for record in ordered], [record.answer for record in ordered]
            how = result.measuring
            found[label] = outcomes(items, answers, how["sentences"], how["tolerance"])
    return found


def _compared(models: Mapping[str, Result], out: Path) -> list[ModelComparison]:
    """Each two models on the same items."""
    return compare(_outcomes(models, out), _seed(models.values())) if len(models) > 1 else []


def _seed(results: Iterable[Result]) -> int:
    return next((int(result.measuring["seed"]) for result in results), 0)


def _cropped(models: Mapping[str, Result], results: Sequence[Result], out: Path) -> list[ModelComparison]:
    """Each model on the cropped pictures of the same items, against the whole ones: what binding costs it."""
    asked: dict[str, Result] = {}
    couples = []
    for label, whole in models.items():
        name = f"{whole.corpus['name']}{CROPPED}"
        for other in results:
            same = (other.model, other.corpus["name"], other.measuring) == (whole.model, name, whole.measuring)
            same &= all(other.about.get(setting) == whole.about.get(setting) for setting in MODEL)
            if same and other.corpus["items"] == whole.corpus["items"] and label not in asked:
                couples.append((f"{label}{CROPPED}", label))
                asked |= {f"{label}{CROPPED}": other, label: whole}
    found = _outcomes(asked, out)
    ids = {label: [item.id for item in one.items] for label, one in found.items()}
    kept = [(a, b) for a, b in couples if a in ids and b in ids and ids[a] == ids[b]]  # samples of either may differ
    return compare({label: found[label] for both in kept for label in both}, _seed(asked.values()), kept)
