"""One contract for all tasks: what DESIGN section 4 promises, recomputed from captions and query texts alone."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from render.captions.sentences import Captioner
from travlr.config import Config, Count, Image
from travlr.sampling.sampler import make_sampler
from travlr.scene import COLOURS, IN_DISTRIBUTION, SHAPES, SIZES, SPLITS, Batch, World
from travlr.tasks import query_text
from travlr.tasks.cardinality import Cardinality
from travlr.tasks.comparison import Comparison, HeldOutComparisons
from travlr.tasks.quantifiers import HeldOutQuantified, Quantifiers
from travlr.tasks.spatiality import HeldOutPositions, Spatiality

PAPER = {c.task: c for c in (Spatiality(), Cardinality(), Quantifiers(), Comparison())}
SMALL = Count(train=400, validation=100, test_ind=100, test_ood=100)
TWO_SIZES = World(sizes=("small", "large"))
WIDE = World(columns=26, rows=20)
OTHERS: dict[str, Config] = {
    "spatiality by shape, three distractors": Spatiality(query_by="shape", distractors=[0, 3]),
    "spatiality by colour, two sizes": Spatiality(query_by="colour", world=TWO_SIZES),
    "spatiality on a wide grid": Spatiality(world=WIDE, distractors=[1, 12]),
    "spatiality with given pairs": Spatiality(
        held_out=HeldOutPositions(columns=[["A", "B"]], rows=[[1, 6], [2, 3]], objects=0.5)
    ),
    "cardinality by colour": Cardinality(query_by="colour"),
    "cardinality by both": Cardinality(query_by="both"),
    "cardinality as released": Cardinality(preset="released"),
    "cardinality with given numbers": Cardinality(held_out={"circle": [2, 3]}, world=TWO_SIZES),
    "cardinality on a wide grid": Cardinality(world=WIDE),
    "quantifiers by colour": Quantifiers(query_by="colour"),
    "quantifiers by both": Quantifiers(query_by="both", world=TWO_SIZES),
    "quantifiers as released": Quantifiers(preset="released"),
    "quantifiers with given pairs": Quantifiers(
        held_out=HeldOutQuantified(numbers=[[2, 2], [3, 1]], attributes=[["circle", "red"]])
    ),
    "comparison by colour": Comparison(query_by="colour"),
    "comparison by both": Comparison(query_by="both", held_out=HeldOutComparisons(differences_above=1)),
    "comparison on a wide grid": Comparison(world=WIDE, numbers=[1, 20], distractors=[5, 30]),
    "spatiality, strict": Spatiality(preset="strict"),
    "cardinality by colour, strict": Cardinality(preset="strict", query_by="colour"),
    "cardinality in two sizes, strict": Cardinality(preset="strict", world=TWO_SIZES, image=Image(cell=96)),
    "quantifiers by both, strict": Quantifiers(preset="strict", query_by="both", numbers=[2, 5]),
    "comparison, strict": Comparison(preset="strict"),
}
ALL = {**PAPER, **OTHERS}


# A second reading of the texts, which shares nothing with the code under test ---------------------------------------


def read_caption(caption: str) -> list[tuple[str, str, str, int]]:
    """(colour, shape, column, row) of each object."""
    listed = caption.split("There is ")[1].rstrip(".").replace(" and ", ", ").split(", ")
    matches = [re.fullmatch(r"an? (?:small |medium |large )?(\w+) (\w+) at (\w) (\d+)", text) for text in listed]
    return [(m[1], m[2], m[3], int(m[4])) for m in matches if m]


def having(words: str, objects: list[tuple[str, str, str, int]]) -> list[tuple[str, str, str, int]]:
    """Objects that a noun phrase describes."""
    wanted = {w.removesuffix("s") for w in words.split()} - {"object"}
    return [o for o in objects if wanted <= {o[0], o[1]}]


def truth(objects: list[tuple[str, str, str, int]], query: str) -> tuple[bool, tuple[str, ...], str]:
    """Answer, pair and the phrases that the query names, by the rules of section 3 of the paper."""
    if m := re.fullmatch(r"The (.+) is (to the left of|to the right of|above|below) the (.+)\.", query):
        (first,), (second,) = having(m[1], objects), having(m[3], objects)
        if "to the" in m[2]:
            return (first[2] < second[2]) == ("left" in m[2]), ("horizontal", first[2], second[2]), m[1] + "|" + m[3]
        return (
            (first[3] < second[3]) == (m[2] == "above"),
            ("vertical", str(first[3]), str(second[3])),
            m[1] + "|" + m[3],
        )
    if m := re.fullmatch(r"There (?:is|are) (\d+) (.+) objects?\.", query):
        count = len(having(m[2], objects))
        return count == int(m[1]), (m[2], str(count)), m[2] + "|" + m[1]
    if m := re.fullmatch(r"There are (more|fewer) (.+) than (.+)\.", query):
        a, b = len(having(m[2], objects)), len(having(m[3], objects))
        return (a > b if m[1] == "more" else a < b), ("comparison", str(a), str(b)), m[2] + "|" + m[3]
    m = re.fullmatch(r"(All|Not all|Some of|None of|Only|Not only) the (.+) objects are (.+) objects\.", query)
    assert m, query
    x, y = set(having(m[2], objects)), set(having(m[3], objects))
    facts = {"All": not x - y, "None of": not x & y, "Only": not y - x}
    facts |= {"Not all": not facts["All"], "Some of": not facts["None of"], "Not only": not facts["Only"]}
    opposite = {"All": "Not all", "Some of": "None of", "Only": "Not only"}
    opposite |= {b: a for a, b in opposite.items()}
    true = m[1] if facts[m[1]] else opposite[m[1]]
    table_1 = {
        "All": (x & y, y - x),
        "Not all": (x & y, x - y),
        "None of": (x - y, y - x),
        "Some of": (x - y, x & y),
        "Only": (x & y, x - y),
        "Not only": (x & y, y - x),
    }
    quantifier = true.lower().removesuffix(" of")
    return facts[m[1]], (quantifier, *(str(len(part)) for part in table_1[true])), m[2] + "|" + m[3]


class Rows:
    """Examples of a batch as texts."""

    def __init__(self, task: Any, batch: Batch) -> None:
        self.task, self.batch = task, batch
        self.queries = [query_text(batch.queries[q]) for q in batch.query]
        self.pairs = [batch.pairs[p] for p in batch.pair]
        self.answers = [bool(a) for a in batch.answer]

    def __iter__(self) -> Iterator[tuple[str, str, tuple[str, ...], bool]]:
        return zip(Captioner(self.task.world).captions(self.batch), self.queries, self.pairs, self.answers, strict=True)


def rows_of(task: Any, split: str, count: int) -> Rows:
    return Rows(task, task.examples(split, 0, count))


@pytest.fixture(scope="module")
def tasks() -> dict[str, Any]:
    return {name: make_sampler(config) for name, config in ALL.items()}


# The contract --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_examples_have_the_answers_and_pairs_of_their_texts(tasks: dict[str, Any], name: str) -> None:
    for split in SPLITS:
        for caption, query, pair, answer in rows_of(tasks[name], split, 300):
            assert truth(read_caption(caption), query)[:2] == (answer, pair), (caption, query)


@pytest.mark.parametrize("name", ALL)
def test_examples_hold_splits_apart_and_never_repeat(tasks: dict[str, Any], name: str) -> None:
    """As a set of objects with a query text, within and across splits, streamed training examples included."""
    task, scenes = tasks[name], set[tuple[bytes, str]]()
    pairs: dict[str, set[Any]] = defaultdict(set)
    queries: dict[str, set[str]] = defaultdict(set)
    for split, start in [(s, 0) for s in SPLITS] + [("train", 40_000)]:
        rows = Rows(task, task.examples(split, start, start + 2000))
        pairs[split] |= set(rows.pairs)
        queries[split] |= set(rows.queries)
        scenes |= {(grid.tobytes(), query) for grid, query in zip(rows.batch.grid, rows.queries, strict=True)}
    assert len(scenes) == 5 * 2000
    held_out = {tuple(p) for p in task.held_out()["pairs"]}
    assert pairs["test_ood"] == held_out
    for split in IN_DISTRIBUTION:
        assert not pairs[split] & held_out and not queries[split] & queries["test_ood"]


@pytest.mark.parametrize("name", ALL)
def test_examples_depend_on_their_index_alone(tasks: dict[str, Any], name: str) -> None:
    for split in SPLITS:
        whole = tasks[name].examples(split, 100, 400)
        for part in (tasks[name].examples(split, 250, 300), tasks[name].examples(split, 399, 400)):
            rows = slice(part.start - 100, part.start - 100 + len(part.grid))
            for field in ("grid", "order", "query", "pair", "answer"):
                np.testing.assert_array_equal(getattr(part, field), getattr(whole, field)[rows], field)


@pytest.mark.parametrize("task", PAPER)
def test_examples_do_not_depend_on_counts(task: str) -> None:
    first = make_sampler(type(PAPER[task])(count=SMALL)).examples("train", 0, 400)
    np.testing.assert_array_equal(first.grid, make_sampler(PAPER[task]).examples("train", 0, 400).grid)


@given(name=st.sampled_from(sorted(ALL)), split=st.sampled_from(SPLITS), count=st.integers(1, 900))
@settings(max_examples=60)
def test_examples_are_balanced_at_every_length(tasks: dict[str, Any], name: str, split: str, count: int) -> None:
    rows = rows_of(tasks[name], split, count)
    for values in (rows.pairs, rows.queries):
        total, true = Counter(values), Counter(v for v, a in zip(values, rows.answers, strict=True) if a)
        for value, number in total.items():
            assert abs(number - 2 * true[value]) == number % 2, (value, number, true[value])
    counts = Counter(rows.pairs).values()
    everything = 0 if count < 2 * len(tasks[name].task.pairs) else min(counts)
    assert max(counts) - everything <= 2 or everything == 0


SCANT: dict[str, Config] = {
    "spatiality": Spatiality(
        world=World(colours=("red", "blue"), shapes=("circle", "square"), columns=3, rows=3), count=SMALL
    ),
    "cardinality": Cardinality(
        world=World(colours=("red",), shapes=("circle", "pentagon"), columns=4, rows=2),
        numbers=[1, 4], held_out={"circle": [1, 2], "pentagon": [1, 2]}, distractors=[2, 3], preset="released",
        count=Count(train=2, validation=0, test_ind=0, test_ood=2),
    ),
    "quantifiers": Quantifiers(
        world=World(colours=("red", "blue"), shapes=("circle", "square"), columns=3, rows=2),
        numbers=[1, 2], distractors=[0, 2],
        held_out=HeldOutQuantified(numbers=[[2, 2]], attributes=[["circle", "red"]]),
        count=Count(train=4, validation=2, test_ind=2, test_ood=2),
    ),
    "comparison": Comparison(
        world=World(colours=("red",), shapes=("circle", "square", "star"), columns=3, rows=2),
        numbers=[1, 3], distractors=[1, 1],
        held_out=HeldOutComparisons(differences_above=1, attributes=[["circle", "star"]]),
        count=Count(train=2, validation=0, test_ind=0, test_ood=2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCANT)
def test_sampler_exhausts_scant_worlds_and_refuses_more(name: str) -> None:
    task = make_sampler(SCANT[name])
    scenes: set[tuple[bytes, int]] = set()
    total = 0
    for split in SPLITS:
        limit = min(task.limits[split], 20_000)
        if limit:
            batch = task.examples(split, 0, limit)
            scenes |= {(g.tobytes(), int(q)) for g, q in zip(batch.grid, batch.query, strict=True)}
            total += limit
    assert total > 0
    assert len(scenes) == total
    config = SCANT[name]
    wanted = task.limits["train"] + 1
    with pytest.raises(ValueError, match=rf"count\.train={wanted}.*at most {wanted - 1} .*train"):
        make_sampler(type(config)(**{**vars(config), "count": Count(train=wanted)}))


@pytest.mark.parametrize("task", PAPER)
def test_examples_of_neighbouring_seeds_differ(task: str) -> None:
    a, b = (make_sampler(type(PAPER[task])(seed=seed)).examples("train", 0, 2000) for seed in (0, 1))
    shared = {g.tobytes() for g in a.grid} & {g.tobytes() for g in b.grid}
    assert len(shared) <= 1


# What the paper fixes, written down again ---------------------------------------------------------------------------


def pairs_in(task: Any, split: str, count: int = 6000) -> set[tuple[str, ...]]:
    return set(rows_of(task, split, count).pairs)


def test_spatiality_holds_out_the_papers_columns_and_rows(tasks: dict[str, Any]) -> None:
    columns = {frozenset(p) for p in ("AE", "BD", "CF")}
    rows = {frozenset(p) for p in ("26", "13", "45")}
    out = pairs_in(tasks["spatiality"], "test_ood")
    assert {frozenset(p[1:]) for p in out if p[0] == "horizontal"} == columns
    assert {frozenset(p[1:]) for p in out if p[0] == "vertical"} == rows
    assert len(out) == 12  # both orders
    assert len(pairs_in(tasks["spatiality"], "train")) == 60 - 12
    queries = [n for n in tasks["spatiality"].held_out()["queries"]]
    assert len(queries) == 119  # 20 % of the 595 pairs of 35 objects


HELD_OUT_NUMBERS = {
    "circle": {1, 5}, "hexagon": {2, 4}, "octagon": {3, 5}, "square": {4, 6}, "star": {1, 3}, "triangle": {2, 6},
    "pentagon": {2, 5},
}  # fmt: skip


def test_cardinality_shows_no_held_out_number_but_the_queried(tasks: dict[str, Any]) -> None:
    for split in SPLITS:
        for caption, _, pair, _ in rows_of(tasks["cardinality"], split, 2000):
            shown = Counter(o[1] for o in read_caption(caption))
            assert 7 <= sum(shown.values()) <= 11
            for shape, number in shown.items():
                is_held_out = number in HELD_OUT_NUMBERS[shape]
                assert is_held_out == (split == "test_ood" and shape == pair[0]), (shape, number, split)


@pytest.mark.parametrize("name", ["cardinality", "quantifiers", "cardinality by colour", "quantifiers by both"])
def test_cardinality_query_and_total_predict_nothing(tasks: dict[str, Any], name: str) -> None:
    """For each query text each total is as often true as false, to the example."""
    counts: Counter[tuple[str, int]] = Counter()
    for caption, query, _, answer in rows_of(tasks[name], "train", 4000):
        counts[query, len(read_caption(caption))] += 1 if answer else -1
    assert set(counts.values()) == {0}


def test_quantifiers_hold_out_the_papers_pairs_reversed_for_some(tasks: dict[str, Any]) -> None:
    listed = {("1", "3"), ("1", "4"), ("1", "5"), ("2", "4"), ("4", "4")}
    out = pairs_in(tasks["quantifiers"], "test_ood")
    assert len(out) == 30
    for quantifier, a, b in out:
        assert ((b, a) if quantifier == "some" else (a, b)) in listed
    assert len(pairs_in(tasks["quantifiers"], "train")) == 6 * 20


def test_comparison_trains_on_differences_up_to_three(tasks: dict[str, Any]) -> None:
    for split in SPLITS:
        for _, a, b in pairs_in(tasks["comparison"], split):
            assert (abs(int(a) - int(b)) > 3) == (split == "test_ood")
            assert 1 <= min(int(a), int(b)) <= max(int(a), int(b)) <= 9
    assert len(tasks["comparison"].held_out()["queries"]) == 4


# What is impossible, and any config ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (lambda: Spatiality(world=World(shapes=("star",)), query_by="shape"), "two attributes.* star"),
        (lambda: Comparison(world=World(shapes=("star",))), "two attributes.* star"),
        (lambda: Spatiality(world=World(columns=2, rows=2)), "to train|held out"),
        (lambda: Spatiality(held_out=HeldOutPositions(columns=[["A", "G"]])), "held_out.columns"),
        (lambda: Spatiality(held_out=HeldOutPositions(rows=[[1, 1]])), "held_out.rows"),
        (lambda: Spatiality(held_out=HeldOutPositions(objects=1.0)), "objects"),
        (lambda: Spatiality(distractors=[1, 40]), "cells"),
        (lambda: Cardinality(world=World(columns=3, rows=3)), "cells"),
        (lambda: Cardinality(held_out={"circle": [1, 2, 3, 4, 5]}), "circle .*one number"),
        (lambda: Cardinality(held_out={"circle": [9]}), "held_out.circle"),
        (lambda: Cardinality(total_objects=[3, 11]), "total_objects"),
        (lambda: Cardinality(world=World(shapes=("circle", "square"))), "distractors"),
        (lambda: Cardinality(numbers=[3, 2]), "numbers"),
        (lambda: Quantifiers(world=World(colours=("red",))), "two colours"),
        (lambda: Quantifiers(distractors=[2, 3]), "distractors"),
        (lambda: Quantifiers(held_out=HeldOutQuantified(numbers=[[1, 9]])), "held_out.numbers"),
        (lambda: Quantifiers(held_out=HeldOutQuantified(attributes=[["red", "circle"]])), "held_out.attributes"),
        (lambda: Comparison(held_out=HeldOutComparisons(differences_above=8)), "held out"),
        (lambda: Comparison(held_out=HeldOutComparisons(differences_above=0)), "to train"),
        (lambda: Comparison(world=World(shapes=("circle", "square"))), "distractor"),
        (lambda: Comparison(count=Count(train=-1)), "train"),
        (lambda: Comparison(count=Count(train=10**15)), "count.train=1000000000000000.*at most"),
    ],
)
def test_make_sampler_names_the_impossible_setting(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_sampler(config())


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Any config that the dataclasses admit, mostly small and odd."""

    def some(names: tuple[str, ...]) -> tuple[str, ...]:
        fewest = draw(st.sampled_from([1, 3]))
        return tuple(draw(st.lists(st.sampled_from(names), min_size=fewest, max_size=5, unique=True)))

    def span(low: int, high: int) -> list[int]:
        return sorted(draw(st.tuples(st.integers(low, high), st.integers(low, high))))

    sides = {name: draw(st.sampled_from([1, 2, 3, 6, 8])) for name in ("columns", "rows")}
    world = World(colours=some(tuple(COLOURS)), shapes=some(SHAPES), sizes=some(SIZES), **sides)
    few = st.sampled_from([0, 1, 2, 30, 300])
    count = Count(train=draw(few), validation=draw(few), test_ind=draw(few), test_ood=draw(st.integers(1, 50)))
    common: dict[str, Any] = {
        "world": world,
        "count": count,
        "query_by": draw(st.sampled_from(["shape", "colour", "both"])),
    }
    common |= {"seed": draw(st.integers(0, 2**40)), "distractors": span(0, 5)}
    numbers = span(1, 5)
    preset = draw(st.sampled_from(["paper", "released"]))
    choices: list[Callable[[], Config]] = [
        lambda: Spatiality(**common),
        lambda: Cardinality(**common, numbers=numbers, total_objects=span(1, 9), preset=preset),
        lambda: Quantifiers(**common, numbers=numbers, preset=preset),
        lambda: Comparison(
            **common, numbers=numbers, held_out=HeldOutComparisons(differences_above=draw(st.integers(0, 4)))
        ),
    ]
    return draw(st.sampled_from(choices))()


MOST = 60  # examples of each split


@given(configs())
@settings(max_examples=80, suppress_health_check=list(HealthCheck))
def test_sampler_keeps_its_promises_for_any_config(config: Config) -> None:
    try:
        task = make_sampler(config)
    except ValueError as error:
        assert "\n" not in str(error)
        assert re.match(r"[\w.]+(=|:| )", str(error)), error
        return
    scenes: set[tuple[bytes, int]] = set()
    total = 0
    for split in SPLITS:
        count = min(task.limits[split], MOST)
        assert count >= min(getattr(config.count, split), MOST)
        if count:
            batch = task.examples(split, 0, count)
            scenes |= {(g.tobytes(), int(q)) for g, q in zip(batch.grid, batch.query, strict=True)}
            total += count
            for caption, query, pair, answer in Rows(task, batch):
                assert truth(read_caption(caption), query)[:2] == (answer, pair), (caption, query)
    assert len(scenes) == total
    with pytest.raises(ValueError, match="at most"):
        task.examples("train", 0, task.limits["train"] + 1)
