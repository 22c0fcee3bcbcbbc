"""Couples that differ by one exchange, and the preset `strict`: what the two scenes share, object by object."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import Any

import pytest

import splits
from tests.helpers import config_of
from travlr import Example, iterate
from travlr.config import Config
from travlr.generate import generator
from travlr.scene import SPLITS
from travlr.tasks import TASKS

CONFIGS: dict[str, list[str]] = {
    "spatiality": ["task=spatiality", "preset=strict"],
    "spatiality by shape": ["task=spatiality", "preset=strict", "query_by=shape"],
    "spatiality on 10 x 10": [
        *("task=spatiality", "preset=strict", "world.columns=10", "world.rows=10", "distractors=[8,8]"),
    ],
    "cardinality": ["task=cardinality", "preset=strict"],
    "cardinality by colour": ["task=cardinality", "preset=strict", "query_by=colour"],
    "cardinality in two sizes": ["task=cardinality", "preset=strict", "world.sizes=[small,large]"],
    "quantifiers": ["task=quantifiers", "preset=strict"],
    "quantifiers by colour": ["task=quantifiers", "preset=strict", "query_by=colour"],
    "quantifiers by both": ["task=quantifiers", "preset=strict", "query_by=both", "numbers=[2,5]"],
    "comparison": ["task=comparison", "preset=strict"],
    "comparison by colour": ["task=comparison", "preset=strict", "query_by=colour"],
}


@pytest.fixture(scope="module", params=CONFIGS)
def config(request: pytest.FixtureRequest) -> Config:
    return config_of(*CONFIGS[request.param], "style.image=plain", "image.cell=40")  # pictures are not looked at


def couples_of(config: Config, split: str, number: int = 40) -> list[tuple[Example, Example]]:
    examples = list(iterate(config, split, 0, 2 * number))
    return list(zip(examples[0::2], examples[1::2], strict=True))


def order_of(example: Example) -> list[tuple[str, str]]:
    return [(o.colour, o.shape) for o in example.scene]


def test_strict_couples_keep_every_unbound_statistic(config: Config) -> None:
    for one, other in [couple for split in SPLITS for couple in couples_of(config, split)]:
        assert (one.query, one.answer) == (other.query, not other.answer)
        assert {(o.row, o.column) for o in one.scene} == {(o.row, o.column) for o in other.scene}
        for words in ("colour", "shape", "size"):
            here, there = (Counter(getattr(o, words) for o in example.scene) for example in (one, other))
            assert sorted(here.values()) == sorted(there.values())
            if config.task in ("spatiality", "quantifiers"):
                assert here == there
        nouns = TASKS[config.task].nouns(json.loads(one.query_form)["args"])
        for noun in nouns:  # the caption mentions each word of the query first and last at the same places
            for word in noun.split():
                mentions = [[i for i, o in enumerate(order_of(e)) if word in o] for e in (one, other)]
                assert mentions[0][0] == mentions[1][0] and mentions[0][-1] == mentions[1][-1]
        assert order_of(one)[0] == order_of(other)[0] and order_of(one)[-1] == order_of(other)[-1]


def test_strict_couples_differ_by_one_exchange(config: Config) -> None:
    for split, (one, other) in [(s, c) for s in SPLITS for c in couples_of(config, s, 20)]:
        places = [{(o.row, o.column): (o.colour, o.shape, o.size) for o in e.scene} for e in (one, other)]
        changed = [place for place in places[0] if places[0][place] != places[1][place]]
        arguments = json.loads(one.query_form)["args"]
        before, after = ([where[place] for place in changed] for where in places)
        if config.task == "spatiality":  # two objects exchange places
            assert len(changed) == 2 and before == after[::-1]
            for kind in before:
                assert any(set(arguments[i].split()) <= set(kind) for i in (0, 2))
        elif config.task == "quantifiers":  # colours move, shapes stay
            assert [kind[1] for kind in before] == [kind[1] for kind in after] and len(changed) % 2 == 0
            assert Counter(kind[0] for kind in before) == Counter(kind[0] for kind in after)
            colour, shape = sorted(arguments[1:], key=lambda word: word in config.world.shapes)
            assert sum(kind[1] == shape for kind in before) == len(changed) // 2
            assert sum(kind[0] == colour for kind in before) == len(changed) // 2
        else:  # all changed objects had one word and get another
            which = 0 if config.query_by == "colour" else 1
            words = {(a[which], b[which]) for a, b in zip(before, after, strict=True)}
            assert len(words) == 1 and [k[1 - which] for k in before] == [k[1 - which] for k in after], split
            counts = [Counter(kind[which] for kind in where.values()) for where in places]
            ((a, b),) = words
            assert (counts[0][a], counts[0][b]) == (counts[1][b], counts[1][a])


def test_strict_cardinality_balances_other_shapes_with_the_number() -> None:
    numbers: dict[bool, list[int]] = {True: [], False: []}
    for couple in couples_of(config_of("task=cardinality", "preset=strict"), "train", 500):
        for example in couple:
            number, queried = json.loads(example.query_form)["args"]
            counts = Counter(o.shape for o in example.scene)
            numbers[example.answer].append(sum(n == number for shape, n in counts.items() if shape != queried))
    frequency = {answer: [counts.count(n) / len(counts) for n in range(4)] for answer, counts in numbers.items()}
    best_rule = sum(map(max, zip(*frequency.values(), strict=True))) / 2
    assert best_rule < 0.72  # 2/3, where counts allow


def test_strict_comparison_numbers_predict_as_documented() -> None:
    """The best rule that sees one compared number and the sorted numbers of all shapes, counted over all chains."""
    task: Any = generator(config_of(*CONFIGS["comparison"])).sampler.task
    for side, due, third_leads in (("in", 0.7333, 0.5778), ("out", 0.75, 0.7333)):
        pairs = [pair for pair in task.pairs if (list(pair) in task.held_out()["pairs"]) == (side == "out")]
        chances: dict[Any, list[float]] = {}
        leads = 0.0
        for _, first, second in pairs:
            a, b = int(first), int(second)
            chains = task._chain_of_pair[task.pair_number(("comparison", a, b))].tolist()
            for chain in chains:
                chance = 1 / len(chains) / len(pairs)
                chances.setdefault((a, *sorted([a, b, *chain])), [0, 0])[a < b] += chance
                leads += chance * (max(chain) > max(a, b))
        assert sum(map(max, chances.values())) == pytest.approx(due, abs=1e-4)
        assert leads == pytest.approx(third_leads, abs=1e-4)


@pytest.mark.parametrize("length", range(4, 27))
def test_balanced_pairs_use_every_value_on_both_sides(length: int) -> None:
    """Nearly every number is as often the smaller as the larger one; the bound of docs/strict.md holds."""
    train, out = splits.balanced_pairs(length)
    assert not set(train) & set(out) and {a for pair in train for a in pair} == set(range(length))
    for pairs in (train, out):
        lead = [sum(a == i for a, _ in pairs) - sum(b == i for _, b in pairs) for i in range(length)]
        accuracy = 0.5 + sum(map(abs, lead)) / (4 * len(pairs))
        distance = sum(b - a for a, b in pairs) / len(pairs)
        lowest = 0.5 + distance / (2 * (length - 1))
        assert lowest - 1e-9 <= accuracy <= lowest + 0.09
        assert sum(map(abs, lead)) <= 4


def test_balanced_pairs_of_six_are_best() -> None:
    """All divisions of the 15 pairs with each column in training and at least three pairs held out."""

    def accuracy(pairs: tuple[tuple[int, int], ...]) -> float:
        lead = [sum(a == i for a, _ in pairs) - sum(b == i for _, b in pairs) for i in range(6)]
        return 0.5 + sum(map(abs, lead)) / (4 * len(pairs))

    pairs = list(itertools.combinations(range(6), 2))
    low = accuracy(tuple(splits.balanced_pairs(6)[0]))
    assert low == accuracy(tuple(splits.balanced_pairs(6)[1])) == pytest.approx(2 / 3)
    subsets = [s for n in range(3, 16) for s in itertools.combinations(pairs, n) if accuracy(s) < low - 1e-9]
    trains = [set(s) for s in subsets if {a for pair in s for a in pair} == set(range(6))]
    assert trains and all(train & set(out) for train in trains for out in subsets)


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        (["task=cardinality", "preset=strict", "numbers=[1,6]"], "numbers"),
        (["task=quantifiers", "preset=strict", "numbers=[1,5]"], "numbers"),
        (["task=comparison", "preset=strict", "numbers=[1,9]"], "numbers"),
        (["task=cardinality", "preset=strict", "world.shapes=[circle,square]"], "numbers|preset"),
        (["task=quantifiers", "preset=strict", "distractors=[2,4]"], "distractors"),
        (["task=comparison", "preset=strict", "distractors=[30,31]"], "distractors"),
        (["task=comparison", "preset=strict", "world.shapes=[circle,square,star]"], "strict"),
        (["task=spatiality", "preset=strict", "world.columns=8"], "preset"),
        (["task=cardinality", "preset=both"], "preset"),
        (["task=cardinality", "preset=strict", "query_by=both"], "query_by"),
        (["task=comparison", "preset=strict", "query_by=both"], "query_by"),
        (["task=comparison", "preset=strict", "numbers=[5,5]"], "count.train"),
        (["task=comparison", "preset=strict", "held_out.differences_above=2"], "held_out.differences_above"),
        (["task=spatiality", "preset=strict", "held_out.columns=[[A,E]]"], "held_out"),
    ],
)
def test_make_sampler_names_the_impossible_setting(arguments: list[str], setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        generator(config_of(*arguments))
