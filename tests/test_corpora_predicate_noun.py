"""The predicate-noun set becomes a dataset of couples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.corpus_files import convert, draw, facts, forms
from travlr.corpora import item_columns
from travlr.corpora.predicate_noun import PredicateNoun


def triplets(couples: int) -> list[dict[str, Any]]:
    """A set as it is published, with each other couple about the noun."""
    records = []
    for number in range(2 * couples):
        couple, second = divmod(number, 2)
        of_noun = couple % 2 == 1
        nouns, things = (["Man", "Woman"], ["Hat"] * 2) if of_noun else (["Girl"] * 2, ["Hat", "Glasses"])
        own, other = second, 1 - second
        sentences = [f"a {n.lower()} is wearing {t.lower()} {couple}" for n, t in zip(nouns, things, strict=True)]
        alt = [f"the {n.lower()} wears {t.lower()} {couple}" for n, t in zip(nouns, things, strict=True)]
        words = nouns if of_noun else things
        records.append(
            {
                "id": number, "img_filename": f"{number:016x}.jpg",
                "sentence_target": sentences[own], "sentence_distractor": sentences[other],
                "relationship_target": {"id": f"{number:024x}", "bounding_box": [0.25, 0.3, 0.49, 0.5]},
                "relationship_distractor": {"id": f"{number + 999:024x}", "bounding_box": [0.25, 0.3, 0.49, 0.5]},
                "subject": nouns[own], "predicate": "wears", "object": things[own],
                "word_target": words[own], "word_distractor": words[other],
                "pos": "subject" if of_noun else "object", "open_images_split": "train",
                "sentence_target_alt": alt[own], "sentence_distractor_alt": alt[other],
            }
        )  # fmt: skip
    return records


def publish(folder: Path, records: Any, cropped: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "eval_set.json").write_text(records if isinstance(records, str) else json.dumps(records))
    ending = "_rel_{0:024x}" if cropped else ""
    draw(folder / "images", *(f"{n:016x}{ending.format(n)}.jpg" for n in range(12)))
    return folder


@pytest.mark.parametrize("template", ["normal", "alt"])
@pytest.mark.parametrize("cropped", [False, True])
def test_couples_exchange_their_sentences(tmp_path: Path, template: str, cropped: bool) -> None:
    records = triplets(6)
    folder = publish(tmp_path / "set", records, cropped)
    source = folder if cropped else folder / "eval_set.json"
    dataset = convert(source, tmp_path / "out", template=template, crop=str(cropped).lower())
    expected = []
    for record in records:
        name = record["img_filename"]
        if cropped:
            name = name.replace(".jpg", f"_rel_{record['relationship_target']['id']}.jpg")
        ending = "_alt" if template == "alt" else ""
        expected += [(name, record[f"sentence_target{ending}"], True)]
        expected += [(name, record[f"sentence_distractor{ending}"], False)]
    assert sorted(facts(dataset)) == sorted(expected)
    columns = item_columns(dataset, "test_ind")
    for start in range(0, 24, 4):
        one, other = (set(facts(dataset)[start + n : start + n + 2]) for n in (0, 2))
        assert {(text, answer) for _, text, answer in one} == {(text, not answer) for _, text, answer in other}
        assert len(set(columns["couple"][start : start + 4])) == 1
        assert len(set(columns["item"][start : start + 4])) == 2
    assert list(columns["axis"]).count("noun") == 12 and set(columns["axis"][:8]) == {"noun", "predicate"}
    assert forms(dataset)[0]["labels"]["predicate"] == "wears" and not dataset.manifest["corpus"]["notes"]


def test_couples_without_exchanged_sentences_are_counted(tmp_path: Path) -> None:
    records = triplets(3)
    records[0]["sentence_target"] = "a girl"
    assert PredicateNoun().read(publish(tmp_path, records)).notes[0].endswith("1 of 3")


BAD: dict[str, Any] = {
    "cut off": json.dumps(triplets(1))[:-20],
    "an odd number": triplets(2)[:3],
    "a key lacks": [{"id": 1}] * 2,
    "another pos": [record | {"pos": "verb"} for record in triplets(1)],
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_of_another_form_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"eval_set\.json"):
        PredicateNoun().read(publish(tmp_path, BAD[name]))
