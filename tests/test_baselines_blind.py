"""Blind rules of corpora, by slower or hand-made rules."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.corpus_files import convert, draw
from travlr.baselines import dataset_baselines
from travlr.baselines.__main__ import main
from travlr.baselines.blind import blind_scores


def naive_bayes(sentences: list[str], answers: list[bool], text: str, corpus: list[str]) -> float:
    """Log-odds of a text by naive Bayes on words and pairs of words, with one of each added."""

    def grams(sentence: str) -> list[str]:
        words = sentence.split()
        return words + [f"{a} {b}" for a, b in itertools.pairwise(words)]

    counts = {answer: Counter[str]() for answer in (True, False)}
    for sentence, answer in zip(sentences, answers, strict=True):
        counts[answer].update(grams(sentence))
    vocabulary = set().union(*map(grams, corpus))
    return sum(
        math.log((counts[True][gram] + 1) / (counts[True].total() + len(vocabulary)))
        - math.log((counts[False][gram] + 1) / (counts[False].total() + len(vocabulary)))
        for gram in grams(text)
    )


def test_blind_scores_equal_a_naive_rule() -> None:
    rng = np.random.default_rng(0)
    sentences = [" ".join(rng.choice(list("abcdef"), 4)) for _ in range(40)]
    answers, units = np.tile([True, False], 20), np.repeat([str(n) for n in range(20)], 2)
    shorter = blind_scores(sentences, answers, np.zeros(40), units)[0]
    assert set(np.ceil(shorter)) <= {-7.0, -6.0}
    by_two = blind_scores(sentences, answers, np.zeros(40), np.repeat(["one", "two"], 20))[1]  # two folds
    for row in range(40):
        others = [n for n in range(40) if (n < 20) != (row < 20)]
        fitted = [sentences[n] for n in others], [bool(answers[n]) for n in others]
        assert 0 <= by_two[row] - naive_bayes(*fitted, sentences[row], sentences) <= 0.01  # the tie-break


def test_blind_rules_find_no_answer_in_exchanged_sentences(tmp_path: Path) -> None:
    records = [
        {"image": f"{n % 3}.png", "true": [f"{one} {n // 2}"], "false": [f"{other} {n // 2}"], "couple": f"{n // 2}",
         "axis": "color" if n < 30 else "size"}
        for n in range(60) for one, other in [("red", "dark blue") if n % 2 else ("dark blue", "red")]
    ]  # fmt: skip
    (tmp_path / "own.json").write_text(json.dumps(records))
    draw(tmp_path, "0.png", "1.png", "2.png")
    convert(tmp_path / "own.json", tmp_path / "out")
    for score in dataset_baselines(tmp_path / "out"):
        assert (score.accuracy, score.couples) == (50.0, 0.0)
    assert [score.axis for score in dataset_baselines(tmp_path / "out")][:3] == ["", "color", "size"]


def test_blind_rules_find_a_word_that_gives_the_answer_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        {"image": f"{n}.png", "true": [f"a dog {n} ON a bed"], "false": [f"a dog {n} out of a bed"]} for n in range(20)
    ]
    (tmp_path / "own.json").write_text(json.dumps(records))
    draw(tmp_path, *(f"{n}.png" for n in range(20)))
    convert(tmp_path / "own.json", tmp_path / "out")
    assert [score.accuracy for score in dataset_baselines(tmp_path / "out")] == [100.0, 100.0]
    assert main([str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.count("100.0 ± ") == 2
