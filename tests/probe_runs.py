"""Made-up runs of probes, as `analysis.probe.run` leaves them in a folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from analysis.probe.corpora.items import Answer, Corpus, Item
from analysis.probe.report.metrics import measure
from analysis.probe.report.results import Group, Result, groups, load_results, save_result
from analysis.probe.scorers.scoring import ANSWERS, ScoredItem, open_folder

AXES = tuple(f"Part/{chr(97 + n)}" for n in range(13))
HOSTILE = "<script>document.title='owned'</script>|`x`"
MEASURING = {"task": "itc", "rules": "corrected", "sentences": "mean", "tolerance": 1e-5, "threshold": None, "seed": 0}


def corpus_of(pairs: int = 130, name: str = "made up", grades: bool = False) -> Corpus:
    items = []
    for n in range(pairs):
        for side in (0, 1):
            true, false = ("a", "b")[:: 1 - 2 * side]
            labels = {"grade": ("N1", "N2")[n // 13 % 2]} if grades else {}
            items.append(Item(f"{n}-{side}", f"{n}-{side}.png", (true,), (false,), AXES[n % 13], "s", str(n), labels))
    return Corpus(name, "checklist", tuple(items), None, ("A note on <it>.",))


def answers_of(corpus: Corpus, right: Any) -> list[Answer]:
    return [
        Answer(item.id, "scored", (float(one),), (float(not one),))
        for item, one in zip(corpus.items, right, strict=True)
    ]


def save_answers(corpus: Corpus, answers: list[Answer], folder: Path, model: str) -> None:
    """A run's folder with these answers, as `scoring.score` leaves it."""
    with open_folder(folder, {"model": model}, {}):
        lines = [ScoredItem(item, answer).line for item, answer in zip(corpus.items, answers, strict=True)]
        (folder / ANSWERS).write_bytes(b"".join(lines))


def put(
    out: Path, corpus: Corpus, model: str, answers: list[Answer], rules: dict[str, list[Answer]], **measuring: Any
) -> Result:
    """A run's folder: with answers where it is of a model, of baselines alone else."""
    folder = out / re.sub(r"\W+", "-", f"{corpus.name}-{model or 'baselines'}")
    facts = {"name": corpus.name, "kind": corpus.kind, "digest": corpus.digest, "items": len(corpus.items)}
    facts["pictures"] = str(corpus.pictures or "")
    save_answers(corpus, answers, folder, model) if model else folder.mkdir(parents=True)
    result = Result(
        name=folder.name,
        corpus={**facts, "notes": list(corpus.notes)},
        model=model,
        measuring=MEASURING | measuring,
        about={"device": "cpu", "versions": {"numpy": "2"}},
        lines=tuple(measure(corpus.items, answers, threshold=measuring.get("threshold"))) if model else (),
        baselines={rule: tuple(measure(corpus.items, guesses)) for rule, guesses in rules.items()},
        blind=tuple(rules) if not model else (),
    )
    save_result(folder, result)
    return result


def group_of(out: Path) -> Group:
    """The group of the corpus of `made` that has everything."""
    (found,) = [group for group in groups(load_results(out)[0], out) if group.slug == "made-up"]
    return found


def by_axis(corpus: Corpus) -> list[bool]:
    """13 accuracies that differ: of the ten pairs of axis n both items are right in the first ones, n // 2 or so."""
    return [int(item.pair) // 13 * 20 + int(item.id[-1]) * 10 < 14 * (int(item.pair) % 13) for item in corpus.items]


def made(place: Path) -> Path:
    """Two models and baselines on one corpus, which a rule solves; a model alone on another; a broken run."""
    corpus, other = corpus_of(), corpus_of(26, HOSTILE, grades=True)
    everything, nothing = [True] * 260, [False] * 260
    put(place, corpus, "", [], {
        "shorter": answers_of(corpus, [i.axis == AXES[2] or i.id.endswith("0") for i in corpus.items]),
        "hash": answers_of(corpus, [i.id.endswith("1") for i in corpus.items]),
    })  # fmt: skip
    put(place, corpus, "first", answers_of(corpus, by_axis(corpus)), {"blank picture": answers_of(corpus, nothing)})
    put(place, corpus, "second", answers_of(corpus, everything), {})
    part = [Answer(i.id, "missing", why="gone") if n < 4 else a for n, (i, a) in enumerate(
        zip(other.items, answers_of(other, [True] * 52), strict=True))]  # fmt: skip
    put(place, other, HOSTILE, part, {})
    broken = place / "broken"
    broken.mkdir()
    (broken / "result-corrected-mean.json").write_text('{"version": 1}')
    return place
