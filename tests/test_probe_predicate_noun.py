"""Predicate-noun dependencies: set and result files read, recomputed by a naive rule, and written byte for byte."""

from __future__ import annotations

import csv
import json
import random
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.probe.corpora.items import Answer
from analysis.probe.corpora.predicate_noun import (
    COLUMNS,
    KEYS,
    cropped_name,
    item_of,
    read_records,
    read_results,
    read_set,
    results_corpora,
    write_results,
)
from analysis.probe.report.metrics import MetricRow, measure
from tests.predicate_noun import accuracies


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


def found_accuracies(rows: list[MetricRow]) -> dict[str, float | None]:
    """In percent, by the names of `accuracies`."""
    whole, by_axis = rows[0], {row.value: row.pair_accuracy for row in rows if row.by == "axis"}
    found = {"single": whole.single, "pair": whole.pair_accuracy, "same": whole.same, "decisive": whole.decisive}
    return found | by_axis


def answers_of(records: list[dict[str, Any]], draw: random.Random) -> list[Answer]:
    return [Answer(str(record["id"]), "scored", (draw.random(),), (draw.random(),)) for record in records]


@pytest.fixture
def published(tmp_path: Path) -> Path:
    (tmp_path / "eval_set.json").write_text(json.dumps(triplets(6)))
    return tmp_path


# The set -------------------------------------------------------------------------------------------------------------


def test_a_published_set_is_read(published: Path) -> None:
    corpus = read_set(published / "eval_set.json")
    assert corpus == read_set(published)
    assert (corpus.kind, corpus.pictures, corpus.notes, len(corpus.items)) == ("predicate_noun", None, (), 12)
    one, mirror, third = corpus.items[:3]
    assert (one.id, one.image, one.pair, one.axis) == ("0", f"{0:016x}.jpg", "0", "predicate")
    assert one.positives == mirror.negatives == ("a girl is wearing hat 0",)
    assert (mirror.pair, third.pair, third.axis) == ("0", "1", "noun")
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


def test_pairs_that_are_no_mirrors_are_named(published: Path) -> None:
    records = triplets(3)
    records[0]["sentence_target"] = "a girl"
    (published / "eval_set.json").write_text(json.dumps(records))
    assert read_set(published).notes == ("pairs without exchanged sentences, where text alone may decide: 1 of 3",)


def changed(**values: Any) -> list[dict[str, Any]]:
    records = triplets(1)
    records[1] |= values
    return records


BAD: dict[str, tuple[Any, str]] = {
    "cut off": (json.dumps(triplets(1))[:-20], "eval_set.json: line 1: not JSON or cut off"),
    "odd": (triplets(2)[:3], "has an odd number of triplets, 3; two in a row are a pair"),
    "twice": (changed(id=0), "id 0 "),
    "no list": ({"0": 1}, "needs a list of triplets"),
    "a text": (["a", "b"], "record 0: needs names and values"),
    "lacking": ([{"id": 1}] * 2, "record 0: lacks img_filename, sentence_target, "),
    "type": (changed(subject=3), "record 1: subject is not a text"),
    "id": (changed(id=True), "record 1: id is not a whole number"),
    "pos": (changed(pos="verb"), "record 1: pos is 'verb'; it must be object or subject"),
    "path": (changed(img_filename="../../x.jpg"), "record 1: img_filename '../../x.jpg' leaves the folder"),
    "relation": (changed(relationship_target={"id": "1"}), "record 1: relationship_target: needs id, Label1"),
    "box": (
        changed(relationship_distractor=relation(1, "Man", "Hat") | {"bounding_box": [1, 2, "3", 4]}),
        "record 1: relationship_distractor: bounding_box needs [x, y, w, h]",
    ),
    "infinite": (
        changed(relationship_distractor=relation(1, "Man", "Hat") | {"bounding_box": [1, 2, float("nan"), 4]}),
        "record 1: relationship_distractor: bounding_box needs",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_sets_that_cannot_be_read_are_refused_in_one_line(name: str, published: Path) -> None:
    value, lines = BAD[name]
    (published / "eval_set.json").write_text(value if isinstance(value, str) else json.dumps(value))
    with pytest.raises(ValueError, match=re.escape(lines)) as error:
        read_set(published)
    assert "\n" not in str(error.value) and "eval_set.json" in str(error.value)


plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.just([]), st.just({}))


@settings(max_examples=60)
@given(
    key=st.sampled_from(KEYS),
    inner=st.sampled_from(["", "id", "label", "bounding_box"]),
    value=plain,
    content=st.text(),
)
def test_whatever_a_file_holds_is_read_or_refused_in_one_line(
    key: str, inner: str, value: Any, content: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("junk")
    records = triplets(1)
    if key.startswith("relationship") and inner:
        records[1][key][inner] = value
    else:
        records[1][key] = value
    (folder / "eval_set.json").write_text(json.dumps(records))
    row = [repr(records[1][key]) if isinstance(records[1][key], dict) else records[1][key] for key in KEYS]
    with open(folder / "results.csv", "w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, [*row, "True", 1.0, "True", 0.9, 0.1, "False", "m"]])
    (folder / "text").write_bytes(content.encode(errors="surrogatepass"))
    for read, name in (
        (read_set, "eval_set.json"),
        (read_set, "text"),
        (read_results, "results.csv"),
        (read_results, "text"),
    ):
        try:
            read(folder / name)
        except ValueError as error:
            assert "\n" not in str(error) and name in str(error)


# Result files --------------------------------------------------------------------------------------------------------


def naive_file(path: Path, records: list[dict[str, Any]], answers: list[Answer], cropped: bool, model: str) -> None:
    """A result file as the study's scripts write it, with pandas."""
    rows = []
    for record, answer in zip(records, answers, strict=True):
        target, distractor = answer.positives[0], answer.negatives[0]
        separate = ((1 if target >= 0.5 else 0) + (1 if distractor < 0.5 else 0)) / 2
        strict = target >= 0.5 and distractor < 0.5
        results = [target > distractor, separate, strict, target, distractor, cropped, model]
        rows.append([*(record[key] for key in KEYS), *results])
    pd.DataFrame(rows, columns=list(COLUMNS)).to_csv(path, index=False)


def test_the_columns_are_the_published_ones_in_their_order() -> None:
    assert ",".join(COLUMNS) == (
        "id,img_filename,sentence_target,sentence_distractor,relationship_target,relationship_distractor,subject,predicate,"
        "object,word_target,word_distractor,pos,open_images_split,sentence_target_alt,sentence_distractor_alt,result,"
        "result_separate,result_strict,prob_target_match,prob_distractor_match,cropped_image,model"
    )


def test_a_file_is_written_as_the_study_writes_it_and_reads_the_same(published: Path) -> None:
    records = read_records(published)
    answers = answers_of(records, random.Random(0))
    answers[3] = Answer("3", "scored", (0.00001234,), (float("0.18087687"),))
    write_results(published / "runs/CLIP/results.csv", records, answers, "CLIP", True)
    naive_file(published / "naive.csv", records, answers, True, "CLIP")
    assert (published / "runs/CLIP/results.csv").read_bytes() == (published / "naive.csv").read_bytes()
    read, lines = read_results(published / "naive.csv")
    assert lines == answers
    assert [{key: record[key] for key in KEYS} for record in read] == records
    assert {(record["cropped_image"], record["model"]) for record in read} == {(True, "CLIP")}
    write_results(published / "again.csv", read, lines, "CLIP", True)
    assert (published / "again.csv").read_bytes() == (published / "naive.csv").read_bytes()
    (published / "excel.csv").write_bytes(
        b"\xef\xbb\xbf" + (published / "naive.csv").read_bytes().replace(b"\n", b"\r\n")
    )
    assert read_results(published / "excel.csv") == (read, lines)
    assert not (published / ".travlr").exists()


text = st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=9)
number = st.floats(0, 1)


@settings(max_examples=40)
@given(data=st.data())
def test_any_results_read_as_they_were_written(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    records = triplets(data.draw(st.integers(1, 3)))
    answers = []
    for record in records:
        record |= {key: data.draw(text) for key in ("subject", "sentence_target", "word_target")}
        record["relationship_target"] |= {
            "Label1": data.draw(text),
            "bounding_box": data.draw(st.lists(number, min_size=4, max_size=4)),
        }
        scored = data.draw(st.booleans())
        scores = ((data.draw(number),), (data.draw(number),)) if scored else ((), ())
        answers.append(Answer(str(record["id"]), "scored" if scored else "missing", *scores))
    path = tmp_path_factory.mktemp("results") / "results.csv"
    write_results(path, records, answers, "m", False)
    read, lines = read_results(path)
    assert [{key: record[key] for key in KEYS} for record in read] == records
    assert [(one.status == "scored", one.positives, one.negatives) for one in lines] == [
        (one.status == "scored", one.positives, one.negatives) for one in answers
    ]


def test_a_file_of_people_has_no_probabilities(published: Path) -> None:
    """As the published one: some triplets in any order, without alternative sentences, with ids of the whole set."""
    records = [record for record in triplets(5) if record["id"] not in (3, 8)]
    random.Random(2).shuffle(records)
    keys = [key for key in KEYS if not key.endswith("_alt")]
    with open(published / "results.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*keys, "result"])
        writer.writerows([*(record[key] for key in keys), record["id"] != 4] for record in records)
    ((corpus, _, lines, _),) = results_corpora([published / "results.csv"])
    rows = measure(corpus.items, lines)
    found = found_accuracies(rows)
    assert (rows[0].total, rows[0].scored, found["single"], rows[0].pairs) == (8, 8, 87.5, 3)
    # 4 and 5 are of the third pair, a predicate
    assert [found[name] for name in ("pair", "predicate", "noun")] == pytest.approx([200 / 3, 50, 100])


def damaged(published: Path, column: str, value: str) -> Path:
    records = read_records(published)
    path = published / "results.csv"
    naive_file(path, records, answers_of(records, random.Random(0)), False, "m")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    rows[1][column] = value
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("id", "x", "line 3: id 'x' is not a whole number"),
        ("id", "0", "line 3: id 0 "),
        ("id", "9" * 5000, "line 3: id 999999999999999999"),
        ("result", "yes", "line 3: result: 'yes' is neither True nor False"),
        ("result", "flip", "line 3: result is "),
        ("prob_target_match", "high", "line 3: prob_target_match: 'high' is not a number"),
        ("cropped_image", "", "line 3: cropped_image: '' is neither"),
        ("pos", "verb", "line 3: pos is 'verb'"),
        ("img_filename", "/etc/passwd", "line 3: img_filename '/etc/passwd' leaves"),
        ("relationship_target", "__import__('os').getcwd()", "line 3: relationship_target: is not a dictionary"),
        ("relationship_target", "{'id': 1", "line 3: relationship_target: is not a dictionary"),
        ("relationship_target", "[" * 4000, "line 3: relationship_target: is not a dictionary"),
        ("relationship_target", "[1]", "line 3: relationship_target: needs id, Label1"),
        ("relationship_target", "'" + "x" * 5000 + "'", "line 3: relationship_target: has more than 4,096 characters"),
    ],
)
def test_damaged_results_are_refused_in_one_line(column: str, value: str, problem: str, published: Path) -> None:
    path = damaged(published, column, value)
    if value == "flip":
        rows = list(csv.DictReader(path.read_text().splitlines()))
        rows[1]["result"] = str(float(rows[1]["prob_target_match"]) <= float(rows[1]["prob_distractor_match"]))
        pd.DataFrame(rows).to_csv(path, index=False)
    if value.startswith("999"):
        assert read_results(path)[0][1]["id"] == int("9" * 18)
        return
    with pytest.raises(ValueError, match=re.escape(problem)) as error:
        read_results(path)
    assert "results.csv" in str(error.value) and "\n" not in str(error.value)


def test_files_without_their_columns_or_cut_off_are_refused(published: Path) -> None:
    records = read_records(published)
    path = published / "results.csv"
    naive_file(path, records, answers_of(records, random.Random(0)), False, "m")
    whole = path.read_text()
    for content, problem in (
        ("id,pos\n1,object\n", r"results\.csv: lacks the columns img_filename, .*, result"),
        ("", "lacks the columns id, "),
        (whole[: whole.rfind('"') - 30], "results.csv: "),
        (whole.replace(",m\n", "\n"), "line 2: "),
        (whole.replace("train", "tr\xe9in").encode("latin-1"), "is not text in UTF-8"),
    ):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(ValueError, match=problem):
            read_results(path)
    with pytest.raises(ValueError, match="No such file"):
        read_results(published / "none.csv")


def test_a_probability_that_is_not_a_number_has_failed(published: Path) -> None:
    _, answers = read_results(damaged(published, "prob_target_match", "nan"))
    assert [one.status for one in answers] == ["scored", "failed", *["scored"] * 10]


# Accuracies ----------------------------------------------------------------------------------------------------------


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
