"""Predicate-noun dependencies: the published set, and accuracies by a naive rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.probe.corpora.items import Answer
from analysis.probe.corpora.predicate_noun import cropped_name, item_of, read_set
from analysis.probe.report.metrics import MetricRow, measure


def relation(number: int, noun: str, word: str) -> dict[str, Any]:
    box = [0.25, 0.1 * 3, 0.49374999999999997, 0.5]
    return {"id": f"{number:024x}", "Label1": noun, "label": "wears", "Label2": word, "bounding_box": box}


def triplets(pairs: int) -> list[dict[str, Any]]:
    """A set as it is published, with each other pair about the noun."""
    records = []
    for number in range(2 * pairs):
        pair, second = divmod(number, 2)
        noun_differs = pair % 2 == 1
        nouns, things = (["Man", "Woman"], ["Hat"] * 2) if noun_differs else (["Girl"] * 2, ["Hat", "Glasses"])
        own, other = second, 1 - second
        sentences = [f"a {n.lower()} is wearing {w.lower()} {pair}" for n, w in zip(nouns, things, strict=True)]
        alt = [f"the {n.lower()} wears {w.lower()} {pair}" for n, w in zip(nouns, things, strict=True)]
        words = nouns if noun_differs else things
        records.append(
            {
                "id": number, "img_filename": f"{number % 5:016x}.jpg",
                "sentence_target": sentences[own], "sentence_distractor": sentences[other],
                "relationship_target": relation(number, nouns[own], things[own]),
                "relationship_distractor": relation(number + 999, nouns[other], things[other]),
                "subject": nouns[own], "predicate": "wears", "object": things[own],
                "word_target": words[own], "word_distractor": words[other],
                "pos": "subject" if noun_differs else "object", "open_images_split": "train",
                "sentence_target_alt": alt[own], "sentence_distractor_alt": alt[other],
            }
        )  # fmt: skip
    return records


def accuracies(records: list[dict[str, Any]], answers: list[Answer]) -> dict[str, float | None]:
    """The study's rules, triplet by triplet, as parts of 1, for pairs of two triplets in a row.

    pair, predicate, noun: pairs with both triplets right, of all pairs or of those with the wrong predicate or noun.
    same: pairs in which the same sentence wins for both pictures. decisive: pairs with both right among those with both
    right or both wrong. None where nothing was scored.
    """
    scores = [(a.positives[0], a.negatives[0]) if a.status == "scored" else None for a in answers]
    pairs = [(scores[k], scores[k + 1], records[k]["pos"]) for k in range(0, len(records), 2)]
    whole = [(a, b, pos) for a, b, pos in pairs if a and b]
    both = [a[0] > a[1] and b[0] > b[1] for a, b, _ in whole]
    one_sentence = [(a[0] > a[1] and b[1] > b[0]) or (a[1] > a[0] and b[0] > b[1]) for a, b, _ in whole]
    sided = [right for right, (a, b, _) in zip(both, whole, strict=True) if right or (a[0] < a[1] and b[0] < b[1])]
    return {
        "single": _mean([true > false for true, false in filter(None, scores)]),
        "pair": _mean(both),
        "predicate": _mean([right for right, (*_, pos) in zip(both, whole, strict=True) if pos == "object"]),
        "noun": _mean([right for right, (*_, pos) in zip(both, whole, strict=True) if pos == "subject"]),
        "same": _mean(one_sentence),
        "decisive": _mean(sided),
    }


def _mean(values: list[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def found_accuracies(rows: list[MetricRow]) -> dict[str, float | None]:
    """In percent, by the names of `accuracies`."""
    whole, by_axis = rows[0], {row.value: row.pair_accuracy for row in rows if row.by == "axis"}
    found = {"single": whole.single, "pair": whole.pair_accuracy, "same": whole.same, "decisive": whole.decisive}
    return found | by_axis


@pytest.fixture
def published(tmp_path: Path) -> Path:
    (tmp_path / "eval_set.json").write_text(json.dumps(triplets(6)))
    return tmp_path


def test_a_published_set_is_read(published: Path) -> None:
    corpus = read_set(published / "eval_set.json")
    assert corpus == read_set(published)
    assert (corpus.kind, corpus.pictures, corpus.notes, len(corpus.items)) == ("predicate_noun", None, (), 12)
    one, partner, third = corpus.items[:3]
    assert (one.id, one.image, one.pair, one.axis) == ("0", f"{0:016x}.jpg", "0", "predicate")
    assert one.positives == partner.negatives == ("a girl is wearing hat 0",)
    assert (partner.pair, third.pair, third.axis) == ("0", "1", "noun")
    words = {
        "subject": "Girl",
        "predicate": "wears",
        "object": "Hat",
        "word_target": "Hat",
        "word_distractor": "Glasses",
    }
    assert one.labels == {"template": "normal", "cropped": "false", "split": "train"} | words


def test_the_other_template_and_the_crops(published: Path) -> None:
    (published / "images").mkdir()
    corpus = read_set(published, "alt", cropped=True)
    assert corpus.items[0].positives == ("the girl wears hat 0",) and corpus.pictures == published / "images"
    assert corpus.items[1].image == f"{1:016x}_rel_{1:024x}.jpg"
    assert corpus.items[0].labels["template"] == "alt" and corpus.items[0].labels["cropped"] == "true"
    assert cropped_name("a.b/c.jpg.png", "7") == "a.b/c.jpg_rel_7.png"
    assert read_set(published, images=published).pictures == published
    with pytest.raises(ValueError, match="images=x"):
        read_set(published, images="x")


def test_pairs_without_exchanged_sentences_are_named(published: Path) -> None:
    records = triplets(3)
    records[0]["sentence_target"] = "a girl"
    (published / "eval_set.json").write_text(json.dumps(records))
    assert read_set(published).notes == ("pairs without exchanged sentences, where text alone may decide: 1 of 3",)


def changed(**values: Any) -> list[dict[str, Any]]:
    records = triplets(1)
    records[1] |= values
    return records


BAD: dict[str, Any] = {
    "cut off": json.dumps(triplets(1))[:-20],
    "an odd number": triplets(2)[:3],
    "no list": {"0": 1, "1": 2},
    "a key lacks": [{"id": 1}] * 2,
    "another pos": changed(pos="verb"),
}


@pytest.mark.parametrize("name", BAD)
def test_read_set_names_the_file_that_it_cannot_read(name: str, published: Path) -> None:
    (published / "eval_set.json").write_text(BAD[name] if isinstance(BAD[name], str) else json.dumps(BAD[name]))
    with pytest.raises(ValueError, match=r"eval_set\.json") as error:
        read_set(published)
    assert "\n" not in str(error.value)


@given(
    st.lists(
        st.tuples(*[st.sampled_from([0.0, 0.25, 0.5, 0.75])] * 2, st.sampled_from(["scored"] * 5 + ["missing"])),
        max_size=9,
    )
)
def test_accuracies_are_those_of_a_naive_rule(rows: list[tuple[float, float, str]]) -> None:
    records = triplets(len(rows) // 2)
    answers = [
        Answer(str(k), status, (t,) if status == "scored" else (), (d,) if status == "scored" else ())
        for k, (t, d, status) in enumerate(rows[: len(records)])
    ]
    items = [item_of(record, str(number // 2), "normal", cropped=False) for number, record in enumerate(records)]
    found = found_accuracies(measure(items, answers, tolerance=0.0))
    for name, value in accuracies(records, answers).items():
        assert found.get(name) == (None if value is None else pytest.approx(100 * value)), name
