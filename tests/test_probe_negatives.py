"""Negatives from annotations: false of their pictures, minimal, mirrored, balanced in length; read back from disk."""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.probe.corpora.checklist import read_corpus
from analysis.probe.corpora.items import Corpus, Item
from analysis.probe.corpora.lexicon import Lexicon, article, read_tables
from analysis.probe.corpora.taxonomy import location_class, size_class
from analysis.probe.negatives import AnnotatedObject, AnnotatedPicture, generate, main, read_annotations
from tests.helpers import called, one_line
from travlr import cli

NOUNS = ["man", "woman", "person", "cat", "apple", "dog", "dogs",
         "trees", "fire truck", "truck", "water", "old oak", "bus"]  # fmt: skip
WORDS = ["red", "blue", "gray", "grey", "orange", "small", "large",
         "tall", "short", "wet", "dry", "sitting", "walking", "odd"]  # fmt: skip
PREDICATES = ["on", "under", "above", "near", "far from", "riding", "pushing", "holding", "opening", "closing"]


def pictures(seed: int, count: int) -> list[AnnotatedPicture]:
    """Random annotations, such that most nouns and words come up often."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        things = tuple(
            AnnotatedObject(
                draw.choice(NOUNS),
                tuple(draw.sample(WORDS, draw.randrange(4))),
                (draw.randrange(500), draw.randrange(400), draw.randrange(1, 140), draw.randrange(1, 80))
                if draw.random() < 0.9 else None,
            )
            for _ in range(draw.randrange(1, 5))
        )  # fmt: skip
        ends = [tuple(draw.sample(range(len(things)), 2)) for _ in range(draw.randrange(3))] if len(things) > 1 else []
        relations = tuple((first, draw.choice(PREDICATES), second) for first, second in ends)
        made.append(AnnotatedPicture(f"{number}.jpg", 640, 480, things, relations))
    return made


# Words ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "right"),
    [("apple", "an"), ("bear", "a"), ("hour", "an"), ("house", "a"), ("unicorn", "a"), ("umbrella", "an"),
     ("orange", "an"), ("used car", "a"), ("unusual hat", "an"), ("uninformed man", "an"), ("uniform", "a"),
     ("honest man", "an"), ("European", "a"), ("ear", "an"), ("utensil", "a"), ("ukulele", "a"),
     ("one-way sign", "a"), ("onesie", "a"), ("onion", "an"), ("oil can", "an"), ("oinking pig", "an"),
     ("ouija board", "a"), ("oud", "an"), ("utility pole", "a"), ("utter mess", "an"), ("urinal", "a"), ("urn", "an"),
     ("urban street", "an"), ("usb port", "a"), ("USA flag", "a"), ("US flag", "a"), ("usher", "an"), ("ewe", "a"),
     ("unidentified object", "an"), ("unironed shirt", "an"), ("unlit candle", "an"), ("unicycle", "a"), ("unit", "a"),
     ("UPS truck", "a"), ("upset man", "an"), ("u-haul truck", "a"), ("UFO", "a"), ("suv", "an"),
     ("rv", "an"), ("tv", "a"), ("x-ray", "an"), ("xbox", "an"), ("s", "an"), ("t-shirt", "a"), ("18 wheeler", "an"),
     ("10 speed", "a"), ("heirloom", "an"), ("honor guard", "an"), ("honey jar", "a"), ("", "a")],
)  # fmt: skip
def test_articles_go_by_sound(words: str, right: str) -> None:
    assert article(words) == right


# What is generated ---------------------------------------------------------------------------------------------------

SENTENCE = re.compile(r"there (?:is|are) (?:an? )?(.+) in the picture")
# A naive table of what may be true together: for the words of this file alone.
TOGETHER = [{"gray", "grey"}, {"large", "tall"}, {"on", "above"}, {"person", "man"}, {"person", "woman"},
            {"dog", "dogs"}, {"truck", "fire truck"}]  # fmt: skip
INVERSE = {"on": "under", "under": "on", "near": "near", "far from": "far from"}


def alike(one: str, other: str) -> bool:
    return one == other or {one, other} in TOGETHER


def is_true(sentence: str, picture: AnnotatedPicture) -> bool:
    """Whether annotations say what a sentence says, read from its text."""
    if found := SENTENCE.fullmatch(sentence):
        for thing in picture.objects:
            if alike(thing.name, found[1]):
                return True
            for noun in NOUNS:
                word = found[1].removesuffix(f" {noun}")
                if word != found[1] and alike(noun, thing.name) and any(alike(word, one) for one in thing.attributes):
                    return True
        return False
    for first, predicate, second in picture.relations:
        subject, target = picture.objects[first].name, picture.objects[second].name
        ways = [(subject, predicate, target)]
        if predicate in INVERSE:
            ways.append((target, INVERSE[predicate], subject))
        for a, lines, b in ways:
            match = re.fullmatch(r"(?:an? )?(.+?) (?:is|are) (.+?) (?:an? )?([a-z]+|fire truck|old oak)", sentence)
            assert match, sentence
            if alike(match[1], a) and alike(match[2], lines) and alike(match[3], b):
                return True
    return False


def without(sentence: str) -> list[str]:
    return [word for word in sentence.split() if word not in ("a", "an")]


def check(corpus: Corpus, made: list[AnnotatedPicture]) -> None:
    by_name = {f"images/{one.image}": one for one in made}
    pairs: dict[str, list[Item]] = defaultdict(list)
    for item in corpus.items:
        (true,), (false,) = item.positives, item.negatives
        picture = by_name[item.image]
        assert is_true(true, picture), true
        assert not is_true(false, picture), (false, picture)
        word, other = item.labels["word"], item.labels["replacement"]
        exchanged = re.sub(rf"\b{word}\b", other, " ".join(without(true)), count=1)
        assert exchanged == " ".join(without(false))  # nothing else differs
        for sentence in (true, false):
            for lines, after in re.findall(r"\b(an?) (\w+)", sentence):
                assert lines == article(after), sentence
        if item.pair:
            pairs[item.pair].append(item)
        if item.axis.startswith("Object/"):
            boxes = [one.box for one in picture.objects if one.name == word]
            kind, name = item.axis.split("/")[1:]
            classes = [(location_class if kind == "Location" else size_class)(box, 640, 480) for box in boxes if box]
            assert classes == [name] == [item.labels[kind.lower()]]
    for one, mirror in pairs.values():
        assert (one.positives, one.negatives) == (mirror.negatives, mirror.positives)
        assert one.image != mirror.image and one.axis == mirror.axis
    assert len({item.id for item in corpus.items}) == len(corpus.items)
    assert len({(item.image, item.axis, item.positives) for item in corpus.items}) == len(corpus.items)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_no_negative_is_true_and_nothing_but_the_word_differs(seed: int, count: int) -> None:
    made = pictures(seed, count)
    check(generate(made, seed=seed), made)


def test_all_kinds_are_made_and_most_records_have_mirrors() -> None:
    made = pictures(0, 600)
    corpus = generate(made)
    axes = Counter(item.axis for item in corpus.items)
    assert {"Attribute/color", "Attribute/size", "Attribute/state", "Attribute/action", "Relation/spatial",
            "Relation/action", "Object/Location/mid", "Object/Size/medium"} <= set(axes)  # fmt: skip
    assert sum(bool(item.pair) for item in corpus.items) > 0.7 * len(corpus.items)
    shorter = [
        (len(item.negatives[0]) > len(item.positives[0])) + (len(item.negatives[0]) == len(item.positives[0])) / 2
        for item in corpus.items
    ]
    assert abs(sum(shorter) / len(shorter) - 0.5) < 0.02
    assert f"the shorter sentence is the true one in {sum(shorter) / len(shorter):.1%}" in corpus.notes[1]
    notes = " ".join(corpus.notes)
    for lines in ("objects without a box, left out", "attributes that are in no table, left out", "objects whose noun"):
        assert lines in notes


def test_where_all_have_mirrors_a_text_alone_decides_half() -> None:
    items = generate(pictures(0, 300), only_mirrored=True).items
    likes = {text: len(text) + hash(text) % 97 for item in items for text in (*item.positives, *item.negatives)}
    for rule in (len, likes.__getitem__):
        right = [
            (rule(item.positives[0]) > rule(item.negatives[0]))
            + (rule(item.positives[0]) == rule(item.negatives[0])) / 2
            for item in items
        ]
        assert items and sum(right) == len(items) / 2
    words = Counter(item.labels["word"] for item in items)
    assert words == Counter(item.labels["replacement"] for item in items)


def test_lengths_are_balanced_where_nothing_has_a_mirror() -> None:
    made = [
        AnnotatedPicture(f"{n}.jpg", 9, 9, (AnnotatedObject("cat", ("purple",), None),), ()) for n in range(100)
    ]  # all the same
    items = generate(made).items
    assert len(items) == 100 and not any(item.pair for item in items)
    lengths = [len(item.negatives[0]) - len(item.positives[0]) for item in items]
    assert sum(length > 0 for length in lengths) == sum(length < 0 for length in lengths)


def test_the_same_seed_gives_the_same() -> None:
    made = pictures(1, 100)
    assert generate(made).digest == generate(made).digest
    assert generate(made).digest != generate(made, seed=1).digest


def test_what_may_be_meant_by_another_object_is_no_negative() -> None:
    cats = (
        AnnotatedObject("cat", ("black",), None),
        AnnotatedObject("cat", ("white",), None),
        AnnotatedObject("cats", (), None),
    )
    assert generate([AnnotatedPicture("a.jpg", 9, 9, cats[:1], ())]).items
    sentences = {
        text
        for item in generate([AnnotatedPicture("a.jpg", 9, 9, cats[:2], ())], seed=3).items
        for text in item.negatives
    }
    assert sentences and not sentences & {f"there is a {word} cat in the picture" for word in ("black", "white")}
    assert not generate([AnnotatedPicture("a.jpg", 9, 9, cats, ())]).items  # of the last ones nothing is known
    person = AnnotatedObject("person", (), (0, 0, 5, 5))
    other = AnnotatedObject("man", (), (0, 0, 5, 5))
    made = [AnnotatedPicture("a.jpg", 9, 9, (person,), ()), AnnotatedPicture("b.jpg", 9, 9, (other,), ())]
    assert not generate(made).items  # a man is a person


# Files ---------------------------------------------------------------------------------------------------------------

LINE: dict[str, Any] = {
    "image": "a.jpg", "width": 640, "height": 480,
    "objects": [{"name": " Bear", "attributes": ["Black"], "box": [10, 20, 200, 180]}, {"name": "stick"}],
    "relations": [{"subject": 0, "predicate": "ON", "object": 1}],
}  # fmt: skip


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def test_annotations_are_read(tmp_path: Path) -> None:
    (one,) = read_annotations(write(tmp_path / "a.jsonl", LINE, ""))
    things = (AnnotatedObject("bear", ("black",), (10, 20, 200, 180)), AnnotatedObject("stick", (), None))
    assert one == AnnotatedPicture("a.jpg", 640, 480, things, ((0, "on", 1),))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"image": ', "line 2: not JSON or cut off"),
        ("[]", "line 2: needs an image"),
        ({"image": "../b.jpg"}, "line 2: image '../b.jpg' leaves the folder"),
        ({"image": "/b.jpg"}, "leaves the folder"),
        ({"image": "a.jpg"}, "line 2: a.jpg is there already"),
        ({"image": "b.jpg", "width": "9"}, "width and height need to be numbers"),
        ({"image": "b.jpg", "objects": ["cat"]}, "objects and relations need to be lists"),
        ({"image": "b.jpg", "objects": [{"name": " "}]}, "object 0: needs a name"),
        ({"image": "b.jpg", "objects": [{"name": "a", "attributes": "red"}]}, "object 0: attributes need"),
        ({"image": "b.jpg", "objects": [{"name": "a", "box": [1, 2, 3, 4]}]}, "object 0: its box needs the width and"),
        (LINE | {"image": "b.jpg", "objects": [{"name": "a", "box": [1, 2, 3]}]}, "object 0: box [1, 2, 3] in a"),
        (LINE | {"image": "b.jpg", "objects": [{"name": "a", "box": [640, 2, 3, 4]}]}, "box [640, 2, 3, 4] is outside"),
        ({"image": "b.jpg", "objects": [{"name": "\ud800"}]}, "unpaired surrogate"),
        ('{"image": "b.jpg", "width": NaN}', "width and height"),
        ({"image": "b.jpg", "relations": [{"subject": 0, "predicate": "on", "object": 0}]}, "relation 0: subject and"),
        (LINE | {"image": "b.jpg", "relations": [{"subject": 0, "object": 0}]}, "relation 0: needs a predicate"),
    ],
)  # fmt: skip
def test_wrong_annotations_are_refused_in_one_line(line: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)) as error:
        read_annotations(write(tmp_path / "a.jsonl", LINE, line))
    assert "a.jsonl: line 2" in str(error.value) and "\n" not in str(error.value)


junk = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.just([]), st.just({}))


@settings(max_examples=60)
@given(
    where=st.sampled_from([(), ("objects", 0), ("relations", 0)]),
    key=st.sampled_from(["image", "width", "objects", "relations", "name", "attributes", "box", "object", "predicate"]),
    value=st.one_of(junk, st.lists(junk, max_size=4)), text=st.text(),
)  # fmt: skip
def test_whatever_a_file_holds_is_read_or_refused_in_one_line(
    where: tuple[Any, ...], key: str, value: Any, text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("junk")
    line = json.loads(json.dumps(LINE))
    place = line
    for step in where:
        place = place[step]
    place[key] = value
    (folder / "text").write_bytes(text.encode(errors="surrogatepass"))
    for path in (write(folder / "line", line), folder / "text"):
        try:
            generate(read_annotations(path)).digest  # noqa: B018
        except ValueError as error:
            assert "\n" not in str(error) and f"{path}: " in str(error)
    try:
        Lexicon(read_tables(folder / "text"))
    except ValueError as error:
        assert "\n" not in str(error) and "text: " in str(error)


def test_tables_are_extended_and_wrong_ones_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.yaml", "Attribute/state: [[Frozen, melted]]", "inverse: [[feeds, eats]]")
    tables = read_tables(path)
    assert ["frozen", "melted"] in tables["Attribute/state"] and ["wet", "dry"] in tables["Attribute/state"]
    items = generate([AnnotatedPicture("a.jpg", 9, 9, (AnnotatedObject("lake", ("frozen",), None),), ())], tables).items
    assert [item.negatives for item in items] == [("there is a melted lake in the picture",)]
    for text, problem in (
        ("Attribute/colour: []", "there is no table 'Attribute/colour'"),
        ("together: [red]", "together: needs lists of words"),
        ("Relation/spatial: [[on, under]]", "write on, off, yes, no in quotes"),
        ("inverse: [['on']]", "inverse: needs lists of two words"),
        ("mass: !!python/name:os.system x", "could not determine a constructor"),
    ):
        with pytest.raises(ValueError, match=problem):
            read_tables(write(tmp_path / "t.yaml", text))


def test_the_command_writes_a_checklist_that_reads_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = pictures(2, 60)
    lines = [
        {"image": one.image, "width": one.width, "height": one.height,
         "objects": [{"name": t.name, "attributes": t.attributes, "box": t.box} for t in one.objects],
         "relations": [{"subject": a, "predicate": p, "object": b} for a, p, b in one.relations]}
        for one in made
    ]  # fmt: skip
    source = write(tmp_path / "mine.jsonl", *lines)
    out = tmp_path / "out"
    assert main([str(source), str(out), "--seed", "5"]) == 0
    printed = capsys.readouterr().out
    items = {item.id: item for item in generate(made, seed=5, source="mine").items}
    assert {item.id: item for item in read_corpus(out).items} == items
    assert f"records: {len(items):,}, in {out}" in printed and "Attribute/color" in printed
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert main([str(source), str(out), "--seed", "5"]) == 0
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="holds another corpus; name another folder"):
        main([str(source), str(out), "--seed", "6"])
    with pytest.raises(ValueError, match="no record can be made"):
        main([str(write(tmp_path / "empty.jsonl", "")), str(tmp_path / "other")])
    with pytest.raises(cli.UsageError, match="unrecognized arguments: --sead"):
        main([str(source), str(out), "--sead", "6"])


@pytest.mark.parametrize(("arguments", "code", "told"), [([], 2, "ANNOTATIONS"), (["none", "out"], 1, "none: ")])
def test_wrong_calls_are_one_line(
    arguments: list[str],
    code: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert called(monkeypatch, *arguments, name="negatives", main=main) == code
    assert told in one_line(capsys.readouterr().err) and not list(tmp_path.iterdir())


def test_the_example_in_the_help_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out.partition("Annotations are")[2].partition("positional arguments")[0]
    example = " ".join(line.strip() for line in text.splitlines() if line.startswith("    "))
    (one,) = read_annotations(write(tmp_path / "a.jsonl", example))
    assert [thing.name for thing in one.objects] == ["bear", "stick"] and len(generate([one]).items) == 1
