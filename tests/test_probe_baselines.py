"""Blind rules: exactly half of our own corpora, what is known of others, and the same as written out slowly."""

from __future__ import annotations

import gc
import math
import random
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from analysis.probe.corpora import predicate_noun
from analysis.probe.corpora.items import Answer, Corpus, Item
from analysis.probe.report.baselines import OF_SCENES, RULES, SALIENT, baselines, blank, sentence_table, shuffle_answers
from analysis.probe.report.baselines import _classifier as classifier
from analysis.probe.report.baselines import _ngrams as ngrams
from analysis.probe.scenes.corpus import build_corpus, read_corpus

TEXT = ("shorter", "ngrams", "classifier")


@pytest.fixture(scope="module", params=["checklist", "predicate_noun"])
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    count = {"checklist": 288, "predicate_noun": 60}[request.param]
    folder = tmp_path_factory.mktemp("baselines") / "made"
    build_corpus(folder, seed=2, count=count, kind=request.param, workers=1, log=lambda _: None)
    return read_corpus(folder, request.param)


def right(answers: Sequence[Answer]) -> dict[str, bool]:
    """By the strict rule: every true sentence above every false one."""
    return {a.id: min(a.positives) > max(a.negatives) for a in answers}


def shares(items: Sequence[Item], answers: Sequence[Answer]) -> tuple[float, float]:
    """Single and pair accuracy."""
    found = right(answers)
    pairs: dict[str, list[bool]] = {}
    for item in items:
        pairs.setdefault(item.pair, []).append(found[item.id])
    singles = [found[item.id] for item in items]
    return sum(singles) / len(singles), sum(map(all, pairs.values())) / len(pairs)


@pytest.mark.parametrize("rule", TEXT)
@pytest.mark.parametrize("seed", [0, 7])
def test_text_alone_gets_exactly_half_and_no_pair(rule: str, seed: int, corpus: Corpus) -> None:
    answers = baselines(corpus, seed, [rule])[rule]
    for axis, source in {(item.axis, item.source) for item in corpus.items}:
        of_axis = [item for item in corpus.items if (item.axis, item.source) == (axis, source)]
        assert shares(of_axis, answers) == (0.5, 0.0)


def test_what_sees_gets_what_it_was_made_to_get(corpus: Corpus) -> None:
    found = baselines(corpus, 1)
    assert list(found) == list(RULES)
    assert shares(corpus.items, found["scene_oracle"]) == (1.0, 1.0)
    for grade in {item.labels["grade"] for item in corpus.items}:
        of_grade = [item for item in corpus.items if item.labels["grade"] == grade]
        wanted = (1.0, 1.0) if grade == "N1" else (0.5, 0.0)
        for rule in ("visible_words", *SALIENT):
            assert shares(of_grade, found[rule]) == wanted, rule


def test_salience_is_read_from_the_pictures(tmp_path: Path) -> None:
    """Of a picture that is not there, or not one of ours, it says nothing; of a crop it says what is in it."""
    build_corpus(tmp_path / "made", count=12, kind="predicate_noun", workers=1, log=lambda _: None)
    whole = read_corpus(tmp_path / "made", "predicate_noun")
    assert whole.pictures
    first, second, *rest = (whole.pictures / item.image for item in whole.items)
    first.unlink()
    Image.new("RGB", (672, 672), "#123456").save(second)
    for rule, answers in baselines(whole, rules=SALIENT).items():
        assert [answer.status for answer in answers] == ["missing", "unreadable"] + ["scored"] * len(rest), rule
        assert all(answer.why for answer in answers[:2])
    crops = predicate_noun.read_set(tmp_path / "made", "normal", True)
    assert all(shares(crops.items, answers) == (1.0, 1.0) for answers in baselines(crops, rules=SALIENT).values())


# Look-alikes of published data ---------------------------------------------------------------------------------------

ON = ("logo ON bus", "lamp ON table", "cup IN sink", "man ON horse", "cat IN box", "hat ON head", "dog IN car")


def look_alike(number: int = 60) -> Corpus:
    """As in VL-CheckList's spatial relations: negatives from a closed list, longer, in lower case; no partners."""
    choose = random.Random(5)
    items = []
    for n in range(number):
        words = [choose.choice(ON).split() for _ in range(2)]
        true = f"{words[0][0]} {words[0][1]} {words[1][2]}"
        false = f"{words[0][0]} {choose.choice(('under', 'far from', 'nearby'))} {words[1][2]}"
        items.append(Item(f"{n}", f"{n // 3}.jpg", (true,), (false,), "Relation/spatial", "vg"))
    return Corpus("alike", "checklist", tuple(items), None)


def test_rules_solve_what_is_known_to_be_solvable() -> None:
    found = baselines(look_alike())
    assert not set(found) & set(OF_SCENES)
    accuracy = {rule: sum(right(answers).values()) / 60 for rule, answers in found.items()}
    assert accuracy["shorter"] == accuracy["ngrams"] == accuracy["classifier"] == 1.0


def crossed(seed: int, by_word: bool) -> Corpus:
    """200 pairs of two of 10 pictures, so that pictures and pairs connect all items. by_word: the false sentences, and
    no others, say `no`; else a coin decides which sentence is true."""
    choose = random.Random(seed)
    items = []
    for pair in range(200):
        for side, picture in enumerate(choose.sample(range(10), 2)):
            nouns = [choose.choice(ON).split() for _ in range(2)]
            sentences = [f"{nouns[0][0]} {word} {nouns[1][2]}" for word in (choose.choice(("a", "the")), "no")]
            if not by_word:
                choose.shuffle(sentences)
            true, false = sentences
            items.append(Item(f"{pair}-{side}", f"{picture}.jpg", (true,), (false,), "Object", "vg", str(pair)))
    return Corpus("crossed", "checklist", tuple(items), None)


@pytest.mark.parametrize("rule", ["ngrams", "classifier"])
def test_fitted_rules_learn_where_all_items_are_connected(rule: str) -> None:
    corpus = crossed(0, by_word=True)
    assert shares(corpus.items, baselines(corpus, rules=[rule])[rule]) == (1.0, 1.0)


@pytest.mark.parametrize("rule", ["ngrams", "classifier"])
def test_fitted_rules_have_half_of_pairs_that_are_all_connected(rule: str) -> None:
    items = crossed(0, by_word=False).items
    partners = [replace(b, positives=a.negatives, negatives=a.positives) for a, b in zip(items[::2], items[1::2])]  # noqa: B905
    paired = [item for both in zip(items[::2], partners, strict=True) for item in both]
    corpus = Corpus("paired", "checklist", tuple(paired), None)
    assert shares(corpus.items, baselines(corpus, rules=[rule])[rule]) == (0.5, 0.0)


def test_several_captions_equal_ones_and_none() -> None:
    several = Item("a", "1.jpg", ("x y", "x y z", ""), ("x  y longer", "z", "é\ud800"), "Object/Size/small")
    same = Item("b", "2.jpg", ("x y",), ("x y",), "Object/Size/small")
    corpus = Corpus("odd", "checklist", (several, same), None)
    for answers in baselines(corpus).values():
        assert [(len(a.positives), len(a.negatives)) for a in answers] == [(3, 3), (1, 1)]
        assert all(math.isfinite(score) for a in answers for score in (*a.positives, *a.negatives))
    tied = baselines(corpus, rules=[rule for rule in RULES if rule in TEXT])
    assert all(answers[1].positives == answers[1].negatives for answers in tied.values())
    nothing = Corpus("none", "checklist", (), None)
    assert all(answers == [] for answers in baselines(nothing).values())


@pytest.mark.parametrize("corpus", [look_alike(), crossed(1, by_word=False)], ids=lambda corpus: corpus.name)
@pytest.mark.parametrize("rule", TEXT)
def test_the_order_of_items_does_not_matter(rule: str, corpus: Corpus) -> None:
    items = list(corpus.items)
    random.Random(1).shuffle(items)
    one, other = (
        baselines(corpus, rules=[rule])[rule],
        baselines(replace(corpus, items=tuple(items)), rules=[rule])[rule],
    )
    assert right(one) == right(other)


# Fitted rules, slowly ------------------------------------------------------------------------------------------------

SENTENCES = st.lists(st.sampled_from(["a", "b", "A", "c d", ""]), max_size=4).map(" ".join)
ITEMS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.lists(SENTENCES, min_size=1, max_size=2),
        st.lists(SENTENCES, min_size=1, max_size=2),
        st.sampled_from(["p", "q"]),
        st.sampled_from(["", "", "m", "n"]),
    ),
    min_size=1,
    max_size=12,
)


def items_of(drawn: list[tuple[int, list[str], list[str], str, str]]) -> tuple[Item, ...]:
    return tuple(
        Item(str(n), f"{image}.jpg", tuple(true), tuple(false), axis, pair=pair)
        for n, (image, true, false, axis, pair) in enumerate(drawn)
    )


@settings(max_examples=50)
@given(drawn=ITEMS)
def test_ngrams_are_those_of_a_naive_model(drawn: list[tuple[int, list[str], list[str], str, str]]) -> None:
    items = items_of(drawn)
    texts = sentence_table(Corpus("c", "checklist", items, None), 0)
    folds = texts["fold"][texts["place"] == 0]
    scores = iter(ngrams(texts).tolist())
    vocabulary = len({word for s in texts["sentence"] for word in s.split()}) + 1
    for item, fold in zip(items, folds, strict=True):
        one: Counter[str] = Counter()
        two: Counter[tuple[str, str]] = Counter()
        for other, its in zip(items, folds, strict=True):
            if its != fold and other.axis == item.axis:
                for sentence in other.positives:
                    words = ["#", *sentence.split(), "#"]
                    one.update(words[1:])
                    two.update(pairwise(words))
        for sentence in (*item.positives, *item.negatives):
            words, total = ["#", *sentence.split(), "#"], 0.0
            for a, b in pairwise(words):
                chance = (one[b] + 1 / vocabulary) / (sum(one.values()) + 1)
                total += math.log((two[a, b] + chance) / (one[a] + 1))
            assert next(scores) == pytest.approx(total)


@settings(max_examples=50)
@given(drawn=ITEMS)
def test_the_classifier_is_a_naive_one(drawn: list[tuple[int, list[str], list[str], str, str]]) -> None:
    items = items_of(drawn)
    texts = sentence_table(Corpus("c", "checklist", items, None), 0)
    folds = texts["fold"][texts["place"] == 0]
    scores = iter(classifier(texts).tolist())

    def features(sentence: str) -> list[tuple[str, ...]]:
        words = ["#", *sentence.split(), "#"]
        return [(word,) for word in words[:-1]] + list(pairwise(words))

    for item, fold in zip(items, folds, strict=True):
        counts: dict[bool, Counter[tuple[str, ...]]] = {True: Counter(), False: Counter()}
        for other, its in zip(items, folds, strict=True):
            if its != fold and other.axis == item.axis:
                for true, sentences in ((True, other.positives), (False, other.negatives)):
                    for sentence in sentences:
                        counts[true].update(features(sentence))
        for sentence in (*item.positives, *item.negatives):
            odds = [math.log((counts[True][f] + 1) / (counts[False][f] + 1)) for f in features(sentence)]
            assert next(scores) == pytest.approx(sum(odds))


# Answers and pictures of other kinds ---------------------------------------------------------------------------------


def test_blank_pictures_are_white_and_each_size_is_one() -> None:
    shown: list[weakref.ref[Image.Image]] = []

    def scorer(images: Sequence[Image.Image], texts: Sequence[str]) -> np.ndarray:
        shown.extend(map(weakref.ref, images))
        assert len({id(image) for image in images}) == len({image.size for image in images})
        assert all(image.mode == "RGB" and image.getextrema() == ((255, 255),) * 3 for image in images)
        return np.array([float(len(text)) + image.width for image, text in zip(images, texts, strict=True)])

    images = [Image.new("RGB", size, "red") for size in ((3, 4), (3, 4), (5, 4))]
    assert blank(scorer)(images, ["a", "bb", "a"]).tolist() == [4, 5, 6]
    gc.collect()
    assert [one() for one in shown] == [None] * 3  # none is kept: they are as large as all pictures together


def test_shuffled_pictures_are_all_used_and_never_their_own(corpus: Corpus) -> None:
    new = shuffle_answers(corpus, 3)
    assert [item.id for item in new.items] == [item.id for item in corpus.items]
    assert sorted(item.image for item in new.items) == sorted(item.image for item in corpus.items)
    of_pair: dict[str, set[str]] = {}
    for item in corpus.items:
        of_pair.setdefault(item.pair, set()).add(item.image)
    assert not any(item.image in of_pair[item.pair] for item in new.items)
    assert shuffle_answers(corpus, 3) == new != shuffle_answers(corpus, 4)
    pictures = new.pictures
    assert pictures and all((pictures / item.image).is_file() for item in new.items)


def test_shuffling_keeps_together_what_shares_a_picture() -> None:
    new = shuffle_answers(look_alike())
    for n in range(0, 60, 3):
        assert len({item.image for item in new.items[n : n + 3]}) == 1
