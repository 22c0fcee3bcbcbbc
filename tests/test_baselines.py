"""Baselines: what rules without binding reach, and that no rule sees what decides."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.helpers import flip, generated
from travlr import Count, Image, open_dataset
from travlr.audit.__main__ import main as audit_command
from travlr.baselines import RuleScore, best_unbound, dataset_baselines, score_baselines
from travlr.baselines.__main__ import main
from travlr.baselines.arrays import SplitArrays, _ink_of, read_split, split_arrays, word_lists
from travlr.baselines.rules import RULES
from travlr.baselines.scoring import ALL, FILE, GRAMS, TOGETHER, _scores
from travlr.scene import COLOURS
from travlr.tasks import PAPER, TASKS

COUNT = Count(train=2000, validation=0, test_ind=600, test_ood=600)


@pytest.fixture(scope="module", params=sorted(PAPER))
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / request.param
    return generated(folder, TASKS[request.param].Config(count=COUNT, image=Image(cell=8)))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of few examples, whose rules are fitted at once."""
    count = Count(train=200, validation=0, test_ind=50, test_ood=50)
    folder = tmp_path_factory.mktemp("small") / "d"
    return generated(folder, TASKS["cardinality"].Config(count=count, image=Image(cell=8)))


@pytest.fixture(scope="module")
def results(data: Path) -> list[RuleScore]:
    return score_baselines(data)


def test_split_arrays_agree_with_the_objects(data: Path) -> None:
    dataset = open_dataset(data)
    colours, shapes = words = word_lists(read_split(dataset, "train"))
    arrays = split_arrays(read_split(dataset, "test_ood"), words)
    table = dataset["test_ood"].columns("image", "task", "query_form", "caption", "objects", "answer").slice(0, 200)
    for i, row in enumerate(table.to_pylist()):
        objects = row["objects"]
        shown = [{one["colour"], one["shape"]} for one in objects]
        every = (*colours, *shapes)
        assert arrays.counts[i].tolist() == [sum(word in one for one in shown) for word in every]
        assert arrays.last[i].tolist() == [max((n for n, o in enumerate(shown) if w in o), default=-1) for w in every]
        for number, word in enumerate(every):
            mentions = [n for n, one in enumerate(shown) if word in one][:3]
            assert arrays.mentions[i, number].tolist() == mentions + [-1] * (3 - len(mentions))
        bands = [arrays.ink[i][:-12], arrays.ink[i][-12:-6], arrays.ink[i][-6:]]
        assert np.allclose([band.sum() for band in bands], bands[0].sum()) and bands[0].sum() > 8 * len(objects)
        colours_shown = {list(COLOURS)[number] for number in np.flatnonzero(bands[0])}
        assert colours_shown == {one["colour"] for one in objects}
        assert (arrays.total[i], arrays.length[i]) == (len(objects), len(row["caption"]))
        assert arrays.answers[i] == row["answer"] and arrays.cells[i].sum() == len(objects)
        assert arrays.picture[i] == len(row["image"]["bytes"])
        assert arrays.described[i] == sum(one["queried"] for one in objects)
        for end, one in enumerate((objects[0], objects[-1])):
            words_of = [colours.index(one["colour"]), shapes.index(one["shape"])]
            assert arrays.ends[i, end].tolist() == [*words_of, one["row"], one["column"]]
        arguments = json.loads(row["query_form"])["args"]
        for noun, number in enumerate(TASKS[row["task"]].language().nouns):
            described = [o for o, has in zip(objects, shown, strict=True) if set(arguments[number].split()) <= has]
            place = [described[0]["row"], described[0]["column"]] if len(described) == 1 else [-1, -1]
            assert arrays.places[i, noun].tolist() == place


def test_score_baselines_leaves_out_rules_that_decide(data: Path, results: list[RuleScore]) -> None:
    task = str(open_dataset(data)["train"].columns("task")["task"][0])
    every = {rule.name for rule in RULES if rule.noun != 2} | {ALL, TOGETHER, GRAMS}  # no task here has a third noun
    of_places = {"place of first noun", "place of second noun", "all other places (by elimination)"}
    of_counts = {
        *("all other counts (counting by elimination)", "another has the asked number"),
        "second and third mentions (of both nouns)",
    }
    numbers = {"other objects", "distractors", "count of first noun", "count of second noun", "word counts"}
    bound = {"ink and word counts", "second and third mentions", *of_places}
    hidden = {
        "spatiality": {"first and last object", *of_counts},
        "cardinality": {
            *(numbers | bound) - {"second and third mentions"},
            "second and third mentions (of both nouns)",
        },
        "quantifiers": of_places | of_counts,
        "comparison": {"distractors", "word counts", "another has the asked number", *bound},
    }
    assert {result.baseline for result in results} == every - hidden[task]
    assert all(abs(result.accuracy - 50) < 5 for result in results if result.baseline == "query")


def test_score_baselines_learns_nothing_from_random_answers(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import travlr.baselines.scoring as module

    def shuffled(table: Any, words: Any) -> Any:
        arrays = split_arrays(table, words)
        answers = np.random.default_rng(0).permutation(arrays.answers)
        return type(arrays)(**{**vars(arrays), "answers": answers})

    monkeypatch.setattr(module, "split_arrays", shuffled)
    accuracies = [result.accuracy for result in score_baselines(small)]
    assert abs(np.mean(accuracies) - 50) < 4 and max(accuracies) < 75


def test_dataset_baselines_reads_its_file_until_the_content_changes(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import travlr.baselines.scoring as module

    results = dataset_baselines(small)
    monkeypatch.setattr(module, "score_baselines", lambda folder: [])
    assert dataset_baselines(small) == results
    path = small / FILE
    path.write_text(path.read_text().replace('"content_digest": "', '"content_digest": "0'))
    assert dataset_baselines(small) == []
    path.unlink()


def test_best_unbound_leaves_out_elimination() -> None:
    interval = (50.0, 50.0)
    scores = {"total": 50.0, **{rule.name: 100.0 for rule in RULES if rule.counts}}
    results = [RuleScore(name, "", "test_ind", score, interval, score, None, 2) for name, score in scores.items()]
    assert len(results) > 1 and best_unbound(results)["test_ind"].baseline == "total"


def test_best_unbound_takes_the_best_of_each_split(results: list[RuleScore]) -> None:
    for split, best in best_unbound(results).items():
        counting = {rule.name for rule in RULES if rule.counts}
        assert best.accuracy == max(r.accuracy for r in results if r.split == split and r.baseline not in counting)
        assert best.interval[0] <= best.accuracy <= best.interval[1] and best.couples is not None


def test_score_baselines_finds_planted_rules(data: Path) -> None:
    """Answers that follow from one thing that a rule sees: the rule learns them."""
    dataset = open_dataset(data)
    words = word_lists(read_split(dataset, "train"))
    arrays = {split: split_arrays(read_split(dataset, split), words) for split in ("train", "test_ind")}
    planted: dict[str, Callable[[SplitArrays], np.ndarray]] = {
        "occupied cells": lambda e: e.cells[:, 0, 0],
        "first and last object": lambda e: e.ends[:, 0, 0] == 0,
        "counts of other attributes": lambda e: 3 * e.counts[:, 0] > e.total,
        "size of the picture file": lambda e: e.picture > np.median(e.picture),
        "total": lambda e: e.total % 2 == 1,
        "first and last mentions": lambda e: e.last[np.arange(len(e.total)), e.nouns[:, 0].max(1)] > 4,
        "ink by colour, row and column": lambda e: e.ink[:, -1] > np.median(e.ink[:, -1]),
    }
    tried = 0
    for name, answers_of in planted.items():
        if name == "counts of other attributes" and (arrays["train"].nouns[:, :, 0] >= 0).any():
            continue  # the queries name colours
        rule = next(rule for rule in RULES if rule.name == name)
        splits = {split: replace(e, answers=answers_of(e)) for split, e in arrays.items()}
        if len(set(splits["train"].answers)) < 2:
            continue  # all scenes have as many objects
        (result,) = _scores(name, rule.blind, [rule], splits)
        assert result.accuracy > 80, name
        tried += 1
    assert tried >= 3


def test_commands_print_and_save_the_rules(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not (small / FILE).exists()
    assert audit_command([str(small)]) == 0 and (small / FILE).exists()
    assert ALL in capsys.readouterr().out
    assert audit_command([str(small)]) == 0
    out = capsys.readouterr().out
    assert "query" in out and ALL in out and FILE not in out  # it is no stray file
    assert main([str(small)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["rule", "test_ind", "test_ood", "cannot", "see"] and lines[-1].startswith(ALL)


def test_score_baselines_refuses_a_dataset_without_train(tmp_path: Path) -> None:
    count = Count(train=0, validation=0, test_ind=10, test_ood=10)
    folder = generated(tmp_path / "d", TASKS["cardinality"].Config(count=count, image=Image(cell=8)))
    with pytest.raises(ValueError, match="train split"):
        score_baselines(folder)


def test_read_split_names_an_empty_picture(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("travlr.baselines.arrays._ink_of", lambda data, ink=_ink_of: ink(pa.py_buffer(b"")))
    with pytest.raises(ValueError, match="row 0 of train"):
        score_baselines(small)


def test_baselines_refuses_data_damaged_after_its_scores(small: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(small, tmp_path / "damaged"))
    dataset_baselines(folder)
    flip(next(folder.glob("test_ood-*")))
    with pytest.raises(ValueError, match="test_ood-0"):
        main([str(folder)])
